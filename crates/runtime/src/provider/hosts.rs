//! Hosts that are known by name: each holds an executor that is started by `ssh`, or by `srun` within an allocation of Slurm.
//!
//! Host number i of the list is node number i, so a node that comes back comes back to its host. The starting program runs here and
//! holds the executor by its standard input: the cluster's key goes in as the first line, so it needs no shared folder
//! and stands in no command line, and when this process is gone the executor reads the end of it and ends.

use super::launch::Launch;
use super::local::Start;
use eyas_text::{line_of, shown, shown_path};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of the environment that say which nodes an allocation has, by batch system.
const SLURM: &str = "SLURM_JOB_NODELIST";
const GRID_ENGINE: &str = "PE_HOSTFILE";
const PBS: &str = "PBS_NODEFILE";

/// How hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// A command with options, such as `ssh -p 2222`; the host and a line for its shell are added.
    Ssh(Vec<String>),
    /// A step of the Slurm job that this process is in.
    Srun,
}

/// Hosts by their names, in order; one that stands twice holds two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    pub names: Vec<String>,
    pub reach: Reach,
}

impl Hosts {
    /// Those of a file: one on a line, as ssh takes it; `#` begins a comment. `Err`: one sentence.
    pub fn of_file(path: &Path, ssh: &str) -> Result<Hosts, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read the list of hosts {}: {e}", shown_path(path)))?;
        let names = names_of_lines(&text);
        for (i, name) in names.iter().enumerate() {
            // Otherwise ssh would take it for an option, or the shell for several words.
            if name.starts_with('-') || name.contains(char::is_whitespace) {
                return Err(format!(
                    "{} has {} as its host {}, which is no name",
                    shown_path(path),
                    shown(name),
                    i + 1
                ));
            }
        }
        let words: Vec<String> = ssh.split_whitespace().map(str::to_string).collect();
        match (names.is_empty(), words.is_empty()) {
            (true, _) => Err(format!("{} names no host", shown_path(path))),
            (_, true) => Err("--ssh is empty".into()),
            _ => Ok(Hosts { names, reach: Reach::Ssh(words) }),
        }
    }

    /// Those of the allocation that this process is in. `get` reads the environment. `Err`: one sentence.
    pub fn of_allocation(get: impl Fn(&str) -> Option<String>, ssh: &str) -> Result<Hosts, String> {
        let file = |path: String| {
            let path = PathBuf::from(path);
            let text = std::fs::read_to_string(&path);
            text.map_err(|e| {
                format!("cannot read the nodes of this allocation in {}: {e}", shown_path(&path))
            })
        };
        let (names, reach) = if let Some(list) = get(SLURM) {
            (names_of_slurm(&list)?, Reach::Srun)
        } else if let Some(path) = get(GRID_ENGINE) {
            let first_words = names_of_lines(&file(path)?)
                .into_iter()
                .filter_map(|line| line.split_whitespace().next().map(str::to_string));
            (first_words.collect(), ssh_words(ssh))
        } else if let Some(path) = get(PBS) {
            // A node stands there once for each of its processors.
            (names_of_lines(&file(path)?), ssh_words(ssh))
        } else {
            return Err(format!(
                "this is no allocation of a batch system that eyas knows: none of {SLURM}, {GRID_ENGINE} and {PBS} is set"
            ));
        };
        let mut once: Vec<String> = vec![];
        for name in names {
            if !once.contains(&name) {
                once.push(name);
            }
        }
        match once.is_empty() {
            true => Err("this allocation has no nodes".into()),
            false => Ok(Hosts { names: once, reach }),
        }
    }

    /// What starts the executor of the node with that number, from 1; `name` is its block's. `Err`: one sentence.
    pub fn start(&self, name: &str, number: u32, launch: &Launch) -> Result<Start, String> {
        let Some(host) = self.names.get(number as usize - 1) else {
            return Err(format!("there are {} hosts, and {name} would be one more", self.names.len()));
        };
        // A name of the network without user, port and domain is enough to find it.
        let short = host.rsplit(['@', '/']).next().unwrap_or(host);
        let short: String = short.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let node = if short.is_empty() { name.to_string() } else { format!("{name}.{short}") };
        let script = launch.script("-", &node, true);
        let (program, args) = match &self.reach {
            Reach::Srun => {
                let options = ["--nodes=1", "--ntasks=1", "--overlap", "--quiet", "--mpi=none"];
                let mut args: Vec<String> = options.map(str::to_string).to_vec();
                args.extend([format!("--nodelist={host}"), "--chdir=/".into()]);
                args.extend(["/bin/sh".into(), "-c".into(), script, "sh".into()]);
                ("srun".to_string(), args)
            }
            Reach::Ssh(words) => {
                let mut args = words[1..].to_vec();
                args.extend(["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"].map(str::to_string));
                args.extend([host.clone(), format!("exec /bin/sh -c {} sh", super::launch::quoted(&script))]);
                (words[0].clone(), args)
            }
        };
        Ok(Start { program: program.into(), args, label: Some(host.clone()) })
    }
}

fn ssh_words(ssh: &str) -> Reach {
    Reach::Ssh(ssh.split_whitespace().map(str::to_string).collect())
}

fn names_of_lines(text: &str) -> Vec<String> {
    let content = |line: &str| line.split('#').next().unwrap_or_default().trim().to_string();
    text.lines().map(content).filter(|line| !line.is_empty()).collect()
}

/// Slurm's own program knows how Slurm folds names.
fn names_of_slurm(list: &str) -> Result<Vec<String>, String> {
    let done = Command::new("scontrol").args(["show", "hostnames", list]).output();
    let done = done.map_err(|e| format!("cannot run `scontrol show hostnames`: {e}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("`scontrol show hostnames` failed: {}", line_of(said.trim())));
    }
    Ok(names_of_lines(&String::from_utf8_lossy(&done.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_in_files_of_users_and_of_batch_systems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Hosts::of_file(&path, "ssh -p 22").map(|hosts| hosts.names.join(" "))
        };
        assert_eq!(
            of("# ours\nc01\n\n me@c02 # slow\nssh://c03:2222\nc01\n").unwrap(),
            "c01 me@c02 ssh://c03:2222 c01"
        );
        assert!(of("# none\n").unwrap_err().ends_with("names no host"));
        assert!(of("c01\n-oProxyCommand=x\n").unwrap_err().ends_with("as its host 2, which is no name"));
        assert!(of("c01 c02\n").unwrap_err().contains("which is no name"));
        let allocation = |variable: &str, text: &str| {
            std::fs::write(&path, text).unwrap();
            let value = path.display().to_string();
            let get = |name: &str| (name == variable).then(|| value.clone());
            Hosts::of_allocation(get, "ssh").map(|hosts| hosts.names.join(" "))
        };
        assert_eq!(allocation(PBS, "n1\nn1\nn2\nn2\n").unwrap(), "n1 n2");
        assert_eq!(
            allocation(GRID_ENGINE, "g1 2 all.q@g1 UNDEFINED\ng2 1 all.q@g2 <NULL>\n").unwrap(),
            "g1 g2"
        );
        assert!(allocation("OTHER", "").unwrap_err().starts_with("this is no allocation"));
    }

    #[test]
    fn a_node_is_called_after_its_block_and_its_host_and_there_are_no_more_than_hosts() {
        let launch = Launch {
            exe: "/bin/eyas".into(),
            node_args: vec!["--cache".into(), "7".into()],
            node_dir: None,
            scratch_age: std::time::Duration::ZERO,
            setup: vec!["module load x".into()],
            walltime: None,
        };
        let names = vec!["me@c02.site.org".to_string(), "ssh://10.0.0.1:2222".into()];
        let hosts = Hosts { names, reach: Reach::Ssh(vec!["ssh".into(), "-4".into()]) };
        let start = hosts.start("node1", 1, &launch).unwrap();
        assert_eq!((start.program, start.label.as_deref()), (PathBuf::from("ssh"), Some("me@c02.site.org")));
        assert_eq!(
            start.args[..6],
            ["-4", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "me@c02.site.org"]
        );
        let line = &start.args[6];
        assert!(line.starts_with("exec /bin/sh -c '") && line.ends_with("\"$@\"' sh"), "{line}");
        assert!(line.contains("/bin/eyas executor --join - --name node1.c02 "), "{line}");
        assert!(line.contains("\" --scratch-age 0ms --cache 7 \"$@\""), "{line}");
        assert!(hosts.start("node2", 2, &launch).unwrap().args[6].contains("--name node2.10 "));
        assert!(hosts.start("node3", 3, &launch).is_err());
    }
}
