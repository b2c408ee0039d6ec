//! What a node finds when `eyas provider check` starts an executor there that only looks around, and what that means in words.
//!
//! The node writes a line for each thing that it has looked at into the output of its job ([`MARK`]). Whoever asked reads that
//! output with [`judge`], which also knows what shells and loaders say when the program does not start at all.

use crate::args::NodeArgs;
use crate::print::reason;
use crate::runtimes::client_runtime;
use crate::{Exit, Fault, provide};
use eyas_at_data::program::Temporary;
use eyas_client::{Client, JoinFile};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// What a node's lines begin with.
const MARK: &str = "eyas-probe: ";
/// How long the dispatcher may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// A clock that is so far off confuses people who read logs, and programs that compare times of files.
const CLOCK_OFF_MAX_S: f64 = 5.0;
/// So much is written to see whether there is room.
const SCRATCH_BYTES: usize = 1 << 20;

/// Something that a node has looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "saw")]
pub enum Sight {
    /// The program runs.
    Program {
        host: String,
        processors: u32,
        memory_bytes: u64,
    },
    Scratch {
        dir: String,
        free_bytes: u64,
        wrong: Option<String>,
    },
    Dispatcher {
        address: String,
        ms: u64,
        wrong: Option<String>,
    },
    /// How far this node's clock is ahead of the dispatcher's.
    Clock {
        ahead_s: f64,
    },
    /// Nothing more follows.
    Done,
}

/// What the executor does on the node in place of its work. It has to end well whatever it finds.
pub fn look_around(
    node: &NodeArgs,
    scratch: Option<&Path>,
    dir: Option<&Path>,
    join: Option<&Path>,
) -> Result<Exit, Fault> {
    let say = |sight: &Sight| {
        let line = serde_json::to_string(sight).expect("texts and numbers can be written");
        eyas_text::say!("{MARK}{line}");
    };
    say(&Sight::Program {
        host: eyas_host::host_name(),
        processors: node.slots.unwrap_or_else(provide::processors),
        memory_bytes: node.memory.unwrap_or_else(eyas_runtime::machine::memory_bytes),
    });
    let scratch_dir = scratch.map(|root| root.join(format!("eyas-probe-{}", std::process::id())));
    let dir = scratch_dir.or(dir.map(Path::to_path_buf)).unwrap_or_else(std::env::temp_dir);
    let wrong = try_scratch(&dir).err().map(|e| reason(&e).to_string());
    let free_bytes = free_bytes(dir.parent().unwrap_or(&dir));
    say(&Sight::Scratch { dir: dir.display().to_string(), free_bytes, wrong });
    // A key that comes by standard input lies in a folder of its own for this moment.
    let key_dir = (join == Some(Path::new("-"))).then(|| Temporary::new("probe-key")).transpose()?;
    let join = match &key_dir {
        Some(key_dir) => Some(provide::join_from_stdin(Some(&key_dir.path))?),
        None => join.map(Path::to_path_buf),
    };
    if let Some(path) = &join {
        let (mut address, mut ahead_s) = (String::new(), None);
        let begun = Instant::now();
        let answer = JoinFile::named(path.clone()).read().map_err(|e| e.to_string()).and_then(|target| {
            address.clone_from(&target.join().address);
            client_runtime().block_on(async {
                let ask = async {
                    let mut client = Client::connect(&target).await.map_err(|e| e.to_string())?;
                    let before = SystemTime::now();
                    let status = client.status().await.map_err(|e| e.to_string())?;
                    // The dispatcher looked at its clock half-way, as far as one can say.
                    let middle = before + before.elapsed().unwrap_or_default() / 2;
                    let here =
                        middle.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                    Ok(here - status.now.0 as f64 / 1e9)
                };
                match tokio::time::timeout(ANSWER_MAX, ask).await {
                    Ok(found) => found,
                    Err(_) => Err(format!("there was no answer within {} s", ANSWER_MAX.as_secs())),
                }
            })
        });
        let wrong = match answer {
            Ok(ahead) => {
                ahead_s = Some(ahead);
                None
            }
            Err(why) => Some(why),
        };
        say(&Sight::Dispatcher { address, ms: begun.elapsed().as_millis() as u64, wrong });
        if let Some(ahead_s) = ahead_s {
            say(&Sight::Clock { ahead_s });
        }
    }
    drop(key_dir);
    say(&Sight::Done);
    Ok(Exit::Good)
}

/// Makes the folder, writes a file in it, and removes both.
fn try_scratch(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("probe");
    let mut file = std::fs::File::create(&path)?;
    file.write_all(&vec![1; SCRATCH_BYTES])?;
    file.sync_all()?;
    std::fs::remove_file(&path)?;
    std::fs::remove_dir(dir)
}

fn free_bytes(dir: &Path) -> u64 {
    std::fs::File::open(dir).ok().and_then(|folder| eyas_storage::free_bytes(&folder)).unwrap_or(0)
}

/// What is wrong with a node: one sentence, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    pub message: String,
    pub hint: Option<String>,
}

fn wrong(message: impl Into<String>, hint: impl Into<String>) -> Wrong {
    Wrong { message: message.into(), hint: Some(hint.into()) }
}

/// What a probe should have found.
pub struct Wanted<'a> {
    /// The program on the node.
    pub program: &'a str,
    pub cache_bytes: u64,
    /// The folder that the node keeps its cache in, as the user said it.
    pub node_dir: Option<&'a str>,
}

/// All that a node has seen, if its job's output tells of the end.
pub fn sights(output: &str) -> Vec<Sight> {
    output
        .lines()
        .filter_map(|line| serde_json::from_slice(line.split_once(MARK)?.1.as_bytes()).ok())
        .collect()
}

/// What the output of a job that is over, or of a node that is done, says is wrong. An empty list: nothing.
pub fn judge(output: &str, wanted: &Wanted) -> Vec<Wrong> {
    let seen = sights(output);
    let mut found = vec![];
    for sight in &seen {
        match sight {
            Sight::Program { .. } | Sight::Done => {}
            Sight::Scratch { dir, wrong: Some(why), .. } => {
                let message = format!("the folder for caches on the node cannot be written: {dir}: {why}");
                found.push(wrong(message, "--node-dir names another one, such as '$TMPDIR' or /local/$USER"));
            }
            Sight::Scratch { dir, free_bytes, .. } if *free_bytes < wanted.cache_bytes => {
                let (free, cache) = (crate::print::size(*free_bytes), crate::print::size(wanted.cache_bytes));
                let message = format!("the disk of {dir} has {free} free, and --cache is {cache}");
                found.push(wrong(message, "give a smaller --cache, or another disk by --node-dir"));
            }
            Sight::Scratch { .. } => {}
            Sight::Dispatcher { address, wrong: Some(why), .. } => {
                let message = format!("the dispatcher at {address} cannot be reached from the node: {why}");
                let hint = "--advertise HOST:PORT gives nodes another name or address of this machine, and --listen \
                            HOST:PORT another port; a firewall may stand between";
                found.push(wrong(message, hint));
            }
            Sight::Dispatcher { .. } => {}
            Sight::Clock { ahead_s } if ahead_s.abs() > CLOCK_OFF_MAX_S => {
                let (how_far, way) = (ahead_s.abs(), if *ahead_s > 0.0 { "ahead of" } else { "behind" });
                let message = format!("the node's clock is {how_far:.0} s {way} this machine's");
                found.push(wrong(message, "somebody should set both by NTP"));
            }
            Sight::Clock { .. } => {}
        }
    }
    if seen.is_empty() {
        found.push(not_started(output, wanted));
    } else if !seen.contains(&Sight::Done) && found.is_empty() {
        found.push(Wrong { message: "the program ended on the node before it was done".into(), hint: None });
    }
    found
}

/// Why the program did not start, by what the shell or the loader said.
fn not_started(output: &str, wanted: &Wanted) -> Wrong {
    let program = wanted.program;
    let line = |part: &str| output.lines().rev().find(|line| line.contains(part)).map(str::trim);
    if let Some(said) = line("version `GLIBC_") {
        let version = said.split("`GLIBC_").nth(1).and_then(|rest| rest.split('\'').next()).unwrap_or("?");
        let message = format!("the node's C library is too old for {program}, which needs glibc {version}");
        return wrong(
            message,
            "use the static program of `make release`, or build eyas on a node; --program names it",
        );
    }
    let about_program = output.lines().rev().find(|line| line.contains(program)).unwrap_or_default();
    if about_program.contains("not found") || about_program.contains("No such file") {
        let message = format!("the node has no program {program}");
        return wrong(
            message,
            "--program names the path that it has there; a shared folder is the simplest place",
        );
    }
    if about_program.contains("Permission denied") {
        return wrong(
            format!("the node may not run {program}"),
            "look at the rights of the file and its folders",
        );
    }
    if let Some(said) = line("Exec format error") {
        return wrong(
            format!("{program} is not for the node's kind of processor: {said}"),
            "build eyas on a node",
        );
    }
    if let Some(said) = line("--node-dir needs it") {
        let said = said.rsplit(": ").take(2).collect::<Vec<_>>();
        let message = format!("the variable {} {}", said.get(1).unwrap_or(&"?"), said[0]);
        return wrong(message, "--node-dir names another folder of the node's own disk");
    }
    if let Some(said) = line("mkdir:") {
        let folder = wanted.node_dir.unwrap_or("the folder for temporary files");
        let message = format!("the folder for caches on the node cannot be made: {folder}: {said}");
        return wrong(message, "--node-dir names another one, such as '$TMPDIR' or /local/$USER");
    }
    if line("the cluster has ended").is_some() {
        let message = "the node does not see this machine's folder ~/.local/state/eyas, which holds the key";
        return wrong(message, "set XDG_STATE_HOME to a folder that nodes mount under the same path");
    }
    match output.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(last) => wrong(
            format!("the job ended before the program started; it said last: {}", eyas_text::line_of(last)),
            "the lines of --setup run first",
        ),
        None => wrong(
            "the job ended before the program started, and said nothing",
            "the lines of --setup run first, and the first one that fails ends the job",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted { program: "/opt/eyas", cache_bytes: 4 << 30, node_dir: Some("/scratch") };

    fn said(sights: &[Sight]) -> String {
        sights.iter().map(|s| format!("{MARK}{}\n", serde_json::to_string(s).unwrap())).collect()
    }

    fn good() -> Vec<Sight> {
        vec![
            Sight::Program { host: "n1".into(), processors: 4, memory_bytes: 1 << 30 },
            Sight::Scratch { dir: "/scratch/x".into(), free_bytes: 1 << 40, wrong: None },
            Sight::Dispatcher { address: "head:7700".into(), ms: 3, wrong: None },
            Sight::Clock { ahead_s: -0.2 },
            Sight::Done,
        ]
    }

    #[test]
    fn a_node_without_fault_has_none() {
        assert_eq!(judge(&format!("module loaded\n{}", said(&good())), &WANTED), []);
    }

    #[test]
    fn each_fault_has_its_words() {
        let mut all = good();
        all[1] = Sight::Scratch { dir: "/scratch/x".into(), free_bytes: 0, wrong: Some("read-only".into()) };
        all[2] = Sight::Dispatcher { address: "head:7700".into(), ms: 9, wrong: Some("no route".into()) };
        all[3] = Sight::Clock { ahead_s: -600.4 };
        let words: Vec<String> = judge(&said(&all), &WANTED).into_iter().map(|w| w.message).collect();
        assert_eq!(
            words,
            [
                "the folder for caches on the node cannot be written: /scratch/x: read-only",
                "the dispatcher at head:7700 cannot be reached from the node: no route",
                "the node's clock is 600 s behind this machine's",
            ]
        );
        let small = [Sight::Scratch { dir: "/s".into(), free_bytes: 1 << 30, wrong: None }, Sight::Done];
        assert!(judge(&said(&small), &WANTED)[0].message.contains("--cache is"));
    }

    #[test]
    fn what_keeps_the_program_from_starting_is_told_by_the_words_of_shells_and_loaders() {
        for (output, expect) in [
            ("x.sh: 7: exec: /opt/eyas: not found\n", "the node has no program /opt/eyas"),
            ("x.sh: line 7: /opt/eyas: No such file or directory\n", "the node has no program /opt/eyas"),
            ("x.sh: 7: exec: /opt/eyas: Permission denied\n", "the node may not run /opt/eyas"),
            (
                "/opt/eyas: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/eyas)\n",
                "the node's C library is too old for /opt/eyas, which needs glibc 2.38",
            ),
            (
                "mkdir: cannot create directory '/scratch': Permission denied\n",
                "the folder for caches on the node cannot be made: /scratch: mkdir: cannot create directory '/scratch': \
                 Permission denied",
            ),
            (
                "x.sh: 6: TMPDIR: is empty on this node, and --node-dir needs it\n",
                "the variable TMPDIR is empty on this node, and --node-dir needs it",
            ),
            (
                "a\nmodule: no such module: blast\n\n",
                "the job ended before the program started; it said last: module: no such module: blast",
            ),
            ("", "the job ended before the program started, and said nothing"),
        ] {
            let found = judge(output, &WANTED);
            assert_eq!(found.iter().map(|w| w.message.as_str()).collect::<Vec<_>>(), [expect]);
        }
    }
}
