//! Hosts that are known by name: each holds an executor that is started by `ssh`, or within an allocation by the batch system's own
//! `srun` (Slurm) or `qrsh -inherit` (Grid Engine).
//!
//! Host number i of the list is node number i, so a node that comes back comes back to its host. The starting program runs here and
//! holds the executor by its standard input: the cluster's key goes in as the first line, so it needs no shared folder
//! and stands in no command line, and when this process is gone the executor reads the end of it and ends.

use super::launch::Launch;
use super::local::Start;
use eyas_batch::{
    BatchSystem, Env, GridEngine, HOSTS_OF_GRID_ENGINE, HOSTS_OF_PBS, HOSTS_OF_SLURM, Slurm, names_of_file,
    names_of_lines,
};
use eyas_text::{shown, shown_path};
use std::path::Path;

/// How hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// A command with options, such as `ssh -p 2222`; the host and a line for its shell are added.
    Ssh(Vec<String>),
    /// A step of the Slurm job that this process is in.
    Srun,
    /// A task of the Grid Engine job that this process is in. The first host is the one of this process: its executor needs no
    /// `qrsh`, which a parallel environment may refuse there (`job_is_first_task`).
    Qrsh,
}

/// Hosts by their names, in order; one that stands twice holds two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    pub names: Vec<String>,
    /// Of each host: slots that the allocation has there, where its list says it.
    pub slots: Vec<Option<u32>>,
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
            _ => Ok(Hosts { slots: vec![None; names.len()], names, reach: Reach::Ssh(words) }),
        }
    }

    /// Those of the allocation that this process is in. `ssh`: how to reach them, if the user says
    /// it. `Err`: one sentence.
    pub fn of_allocation(env: Env<'_>, ssh: Option<&str>) -> Result<Hosts, String> {
        // A host may stand several times: its slots are added.
        let (lines, reach): (Vec<(String, Option<u32>)>, _) = if let Some(hosts) = Slurm.hosts_here(env) {
            (hosts?, Reach::Srun)
        } else if let Some(hosts) = GridEngine.hosts_here(env) {
            (hosts?, ssh.map_or(Reach::Qrsh, ssh_words))
        } else if let Some(path) = env(HOSTS_OF_PBS) {
            // A node stands there once for each of its processors.
            let lines = names_of_file(Path::new(&path))?.into_iter().map(|name| (name, Some(1))).collect();
            (lines, ssh_words(ssh.unwrap_or("ssh")))
        } else {
            return Err(format!(
                "this is no allocation of a batch system that eyas knows: none of {HOSTS_OF_SLURM}, {HOSTS_OF_GRID_ENGINE} and {HOSTS_OF_PBS} is set"
            ));
        };
        let mut once: Vec<(String, Option<u32>)> = vec![];
        for (name, slots) in lines {
            match once.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum = sum.zip(slots).map(|(sum, slots)| sum + slots),
                None => once.push((name, slots)),
            }
        }
        if matches!(reach, Reach::Ssh(_)) && env(HOSTS_OF_GRID_ENGINE).is_none() {
            // PBS Pro writes one line for each chunk, of which NCPUS says how many processors one has.
            let n_cpus = env("NCPUS").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            once.iter_mut().for_each(|(_, slots)| *slots = slots.filter(|n| *n > 1).max(n_cpus));
        }
        let (names, slots): (Vec<_>, Vec<_>) = once.into_iter().unzip();
        match names.is_empty() {
            true => Err("this allocation has no nodes".into()),
            false => Ok(Hosts { names, slots, reach }),
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
        let mut launch = launch.clone();
        // What the user says of slots wins.
        if let (Some(n), false) = (self.slots[number as usize - 1], launch.has_argument("--slots")) {
            launch.node_args.extend(["--slots".into(), n.to_string()]);
        }
        let script = launch.script("-", &node, true);
        let (program, args) = match &self.reach {
            Reach::Qrsh if number == 1 => ("/bin/sh".to_string(), vec!["-c".into(), script, "sh".into()]),
            Reach::Qrsh => {
                let line = format!("exec /bin/sh -c {} sh", super::launch::quoted(&script));
                ("qrsh".to_string(), vec!["-inherit".into(), host.clone(), line])
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
        let allocation = |variable: &str, text: &str, more: &str| {
            std::fs::write(&path, text).unwrap();
            let value = path.display().to_string();
            let get = |name: &str| match name {
                "NCPUS" => Some(more.to_string()),
                _ => (name == variable).then(|| value.clone()),
            };
            let found = Hosts::of_allocation(&get, None)?;
            let slots = found.slots.iter().map(|n| n.map_or("?".into(), |n| n.to_string()));
            let words: Vec<String> =
                found.names.iter().zip(slots).map(|(name, n)| format!("{name}:{n}")).collect();
            Ok::<_, String>((words.join(" "), found.reach))
        };
        let ssh = Reach::Ssh(vec!["ssh".into()]);
        // Torque: a line for each processor. PBS Pro: one for each chunk.
        assert_eq!(
            allocation(HOSTS_OF_PBS, "n1\nn1\nn2\nn1\nn2\n", "").unwrap(),
            ("n1:3 n2:2".into(), ssh.clone())
        );
        assert_eq!(allocation(HOSTS_OF_PBS, "n1\nn2\n", "").unwrap(), ("n1:? n2:?".into(), ssh.clone()));
        assert_eq!(allocation(HOSTS_OF_PBS, "n1\nn2\n", "8").unwrap(), ("n1:8 n2:8".into(), ssh));
        assert_eq!(
            allocation(
                HOSTS_OF_GRID_ENGINE,
                "g1 2 all.q@g1 UNDEFINED\ng2 1 all.q@g2 <NULL>\ng1 3 x.q@g1 UNDEFINED\n",
                ""
            )
            .unwrap(),
            ("g1:5 g2:1".into(), Reach::Qrsh)
        );
        assert!(allocation("OTHER", "", "").unwrap_err().starts_with("this is no allocation"));
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
        let hosts = Hosts { names, slots: vec![None; 2], reach: Reach::Ssh(vec!["ssh".into(), "-4".into()]) };
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

    #[test]
    fn a_job_of_grid_engine_starts_here_without_qrsh_and_says_slots() {
        let launch = Launch {
            exe: "/bin/eyas".into(),
            node_args: vec![],
            node_dir: None,
            scratch_age: std::time::Duration::ZERO,
            setup: vec![],
            walltime: None,
        };
        let hosts =
            Hosts { names: vec!["g1".into(), "g2".into()], slots: vec![Some(2), None], reach: Reach::Qrsh };
        let first = hosts.start("node1", 1, &launch).unwrap();
        assert_eq!((first.program, first.args[0].as_str()), (PathBuf::from("/bin/sh"), "-c"));
        assert!(first.args[1].contains(" --slots 2"), "{:?}", first.args);
        let second = hosts.start("node2", 2, &launch).unwrap();
        assert_eq!(
            (second.program, &second.args[..2]),
            (PathBuf::from("qrsh"), &["-inherit".to_string(), "g2".into()][..])
        );
        assert!(!second.args[2].contains("--slots"), "{:?}", second.args);
        let asked = Launch { node_args: vec!["--slots".into(), "7".into()], ..launch };
        let first = hosts.start("node1", 1, &asked).unwrap();
        assert!(
            first.args[1].contains(" --slots 7") && !first.args[1].contains("--slots 2"),
            "{:?}",
            first.args
        );
    }
}
