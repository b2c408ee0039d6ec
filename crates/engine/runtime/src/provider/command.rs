//! Nodes that the user's own commands start, list and stop, for systems that eyas does not know.
//!
//! | command | when it is given | what it has to do |
//! |---|---|---|
//! | start | a block is wanted | request the block and print one line with its id, a single word |
//! | list | eyas wants to know all blocks | print a line for each block: its id, its name, its state ([`STATES`]), then anything |
//! | stop | a block has to end | end the block; the command is given again for a block that is still listed |
//!
//! A command is a line for the shell. [`HOLES`] in it are filled in and quoted for the shell. A command fails when its
//! exit status is not 0; the last line that it printed is the reason. A command that takes longer than [`COMMAND_MAX`] is
//! killed and counts as failed.
//!
//! `{script}` is a file that starts the block's executor and waits until the executor ends. The script begins with the
//! user's lines of set-up, writes what it prints into a file beside it, and ends at once when the cluster has ended.

use super::calls::{CallCount, Purpose};
use super::launch::{Launch, quoted};
use super::script::{self, last_line, prefix};
use super::{Haste, Share, Source};
use eyas_core::provisioning::blocks::{BlockState, Listed};
use eyas_text::{line_of, nearest, shown};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take.
pub const COMMAND_MAX: Duration = Duration::from_secs(60);
/// So many commands that stop a block run at once at the end.
const STOPS_AT_ONCE: usize = 8;
/// How much of what a command printed is looked at.
const OUTPUT_MAX: u64 = 16 << 20;
/// What is waited between tries to end a block at the end of the cluster.
const STOP_PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// What a command that stops a block may take longer, when nobody wants to wait any longer.
const STOP_IN_HASTE: Duration = Duration::from_secs(3);

/// What is filled in, by command.
pub const HOLES: [(&str, &[&str]); 3] =
    [("start", &["name", "join", "script", "walltime"]), ("list", &[]), ("stop", &["id", "name"])];

/// Words of a listing, in lower case, for how far a block is: eyas's own and those of common batch systems.
pub const STATES: [(&str, Stage); 54] = [
    ("queued", Stage::Queued),
    ("pending", Stage::Queued),
    ("pd", Stage::Queued),
    ("configuring", Stage::Queued),
    ("cf", Stage::Queued),
    ("requeued", Stage::Queued),
    ("held", Stage::Queued),
    ("waiting", Stage::Queued),
    ("qw", Stage::Queued),
    ("requeue_fed", Stage::Queued),
    ("power_up_node", Stage::Queued),
    ("running", Stage::Running),
    ("r", Stage::Running),
    ("up", Stage::Running),
    ("suspended", Stage::Running),
    ("completing", Stage::Running),
    ("cg", Stage::Running),
    ("stopping", Stage::Running),
    ("stopped", Stage::Running),
    ("stage_out", Stage::Running),
    ("signaling", Stage::Running),
    ("resizing", Stage::Running),
    ("expediting", Stage::Running),
    ("stuck", Stage::Stuck),
    ("requeue_hold", Stage::Stuck),
    ("resv_del_hold", Stage::Stuck),
    ("special_exit", Stage::Stuck),
    ("eqw", Stage::Stuck),
    ("ended", Stage::Ended),
    ("deadline", Stage::Ended),
    ("dl", Stage::Ended),
    ("boot_fail", Stage::Ended),
    ("bf", Stage::Ended),
    ("revoked", Stage::Ended),
    ("rv", Stage::Ended),
    ("launch_failed", Stage::Ended),
    ("reconfig_fail", Stage::Ended),
    ("power_down", Stage::Ended),
    ("exited", Stage::Ended),
    ("done", Stage::Ended),
    ("completed", Stage::Ended),
    ("cd", Stage::Ended),
    ("failed", Stage::Ended),
    ("f", Stage::Ended),
    ("cancelled", Stage::Ended),
    ("ca", Stage::Ended),
    ("timeout", Stage::Ended),
    ("to", Stage::Ended),
    ("node_fail", Stage::Ended),
    ("nf", Stage::Ended),
    ("preempted", Stage::Ended),
    ("pr", Stage::Ended),
    ("out_of_memory", Stage::Ended),
    ("oom", Stage::Ended),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    Queued,
    Running,
    /// It does not start until a person does something about it.
    Stuck,
    Ended,
}

/// The three commands.
#[derive(Clone, Debug)]
pub struct CommandLines {
    pub start: String,
    pub list: String,
    pub stop: String,
}

/// See the module.
pub struct Commands {
    /// What the names of this cluster's blocks begin with.
    prefix: String,
    lines: CommandLines,
    launch: Launch,
    share: Share,
    /// Where the output of blocks goes that failed.
    log_dir: PathBuf,
    haste: Haste,
    calls: CallCount,
}

/// Checks the holes of a command; `which` is `start`, `list` or `stop`. `Err`: one sentence and perhaps a hint on a line of its own.
pub fn check_line(which: &str, line: &str) -> Result<(), String> {
    let known = HOLES.iter().find(|(name, _)| *name == which).map_or(&[][..], |(_, holes)| holes);
    for hole in holes(line) {
        if !known.contains(&hole.name) {
            let there_are: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
            let hint = match (nearest(hole.name, known), there_are.is_empty()) {
                (Some(near), _) => format!("did you mean {{{near}}}?"),
                (None, true) => format!("--{which} has no holes"),
                (None, false) => format!("--{which} has {}", there_are.join(", ")),
            };
            let hole = format!("{{{}}}", hole.name);
            return Err(format!("an unknown hole {} in --{which}\nhint: {hint}", shown(&hole)));
        }
    }
    if line.trim().is_empty() {
        return Err(format!("--{which} is empty"));
    }
    if which == "stop" && !has_hole(line, "id") && !has_hole(line, "name") {
        let hint = "{id} is what --start printed, and {name} the node's name";
        return Err(format!(
            "--stop has neither {{id}} nor {{name}}, so it cannot end one node\nhint: {hint}"
        ));
    }
    Ok(())
}

/// Whether the line has that hole.
pub fn has_hole(line: &str, name: &str) -> bool {
    holes(line).iter().any(|hole| hole.name == name)
}

struct Hole<'a> {
    start: usize,
    end: usize,
    name: &'a str,
}

/// `{name}`, but not `${name}`, which is the shell's.
fn holes(line: &str) -> Vec<Hole<'_>> {
    let mut found = vec![];
    let mut from = 0;
    while let Some(start) = line[from..].find('{').map(|at| from + at) {
        from = start + 1;
        let Some(end) = line[from..].find('}').map(|at| from + at) else { break };
        let name = &line[from..end];
        let is_word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
        if is_word && !line[..start].ends_with('$') {
            found.push(Hole { start, end: end + 1, name });
            from = end + 1;
        }
    }
    found
}

fn filled(line: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut from = 0;
    for hole in holes(line) {
        let value = values.iter().find(|(name, _)| *name == hole.name).map_or("", |(_, value)| value);
        out += &line[from..hole.start];
        out += &quoted(value);
        from = hole.end;
    }
    out + &line[from..]
}

/// As a batch system takes it.
fn hours_minutes_seconds(time: Duration) -> String {
    let s = time.as_secs();
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

impl Commands {
    /// `cluster`: its id, which is in the names of its blocks.
    pub fn new(
        cluster: &str,
        lines: CommandLines,
        launch: Launch,
        share: Share,
        log_dir: PathBuf,
    ) -> Commands {
        let calls = CallCount::of(&log_dir);
        let (prefix, haste) = (prefix(cluster), Haste::default());
        Commands { prefix, lines, launch, share, log_dir, haste, calls }
    }

    fn write_script(&self, name: &str) -> Result<(), String> {
        let written = self.share.write(&format!("{name}.sh"), self.script(name).as_bytes(), 0o700);
        written.map_err(|e| format!("cannot write {}: {e}", eyas_text::shown_path(&self.share.script(name))))
    }

    /// The command that starts a block of that name, whose script is written.
    pub fn describe(&mut self, name: &str) -> Result<String, String> {
        self.write_script(name)?;
        Ok(self.start_line(name))
    }

    fn start_line(&self, name: &str) -> String {
        let (join, script) = (self.share.join(), self.share.script(name));
        let (join, script) = (join.to_string_lossy(), script.to_string_lossy());
        let walltime = self.launch.walltime.map_or(String::new(), hours_minutes_seconds);
        let values = [("name", name), ("join", &*join), ("script", &*script), ("walltime", &*walltime)];
        filled(&self.lines.start, &values)
    }

    /// What starts the executor of the block with that name.
    fn script(&self, name: &str) -> String {
        script::text(&self.launch, &self.share, name, false)
    }
}

impl Source for Commands {
    fn submit(&mut self, name: &str, _: u32) -> Result<String, String> {
        self.write_script(name)?;
        let line = self.start_line(name);
        self.calls.add(Purpose::Submit, 1);
        id_of(&shell("start", &line, COMMAND_MAX, || self.haste.has_begun())?)
    }

    fn list(&mut self) -> Result<Vec<Listed>, String> {
        self.calls.add(Purpose::List, 1);
        let printed = shell("list", &self.lines.list, COMMAND_MAX, || self.haste.has_begun())?;
        parse_listing(&printed, &self.prefix)
    }

    fn cancel(&mut self, id: &str, name: &str) -> Result<(), String> {
        stop(&self.lines.stop, id, name, &self.haste, &self.calls)
    }

    /// Whoever swept the folder when this cluster was dead has removed the script, which a block in the queue still needs.
    fn adopt(&mut self, name: &str) {
        if !self.share.script(name).exists()
            && let Err(why) = self.write_script(name)
        {
            eyas_text::say!("{why}");
        }
    }

    fn haste(&self) -> Haste {
        self.haste.clone()
    }

    fn calls(&self) -> Option<CallCount> {
        Some(self.calls.clone())
    }

    fn last_words(&mut self, name: &str) -> Option<String> {
        let log = self.share.log(name);
        let words = last_line(&log)?;
        // The folder of blocks goes when they do.
        let kept = self.log_dir.join(format!("{name}.log"));
        match std::fs::copy(&log, &kept) {
            Ok(_) => Some(format!("{words} (all of it: {})", kept.display())),
            Err(_) => Some(words),
        }
    }

    fn forget(&mut self, name: &str) {
        self.share.forget(name);
    }

    fn end_all(&mut self, blocks: &[(Option<String>, String)], deadline: Instant) -> Vec<String> {
        let left = std::sync::Mutex::new(vec![]);
        let blocks: Vec<_> = blocks.iter().filter_map(|(id, name)| Some((id.as_ref()?, name))).collect();
        for some in blocks.chunks(STOPS_AT_ONCE) {
            std::thread::scope(|scope| {
                for (id, name) in some {
                    let (line, haste, calls, left) = (&self.lines.stop, &self.haste, &self.calls, &left);
                    scope.spawn(move || {
                        let mut pauses = STOP_PAUSES.into_iter();
                        while let Err(why) = stop(line, id, name, haste, calls) {
                            let may_wait =
                                |pause: &Duration| Instant::now() + *pause < deadline && !haste.has_begun();
                            let Some(pause) = pauses.next().filter(may_wait) else {
                                let sentence = format!("{name} ({id}) could not be ended and is left: {why}");
                                left.lock().expect("nobody panics with it").push(sentence);
                                break;
                            };
                            haste.sleep(pause);
                        }
                    });
                }
            });
        }
        left.into_inner().expect("nobody panics with it")
    }
}

fn stop(line: &str, id: &str, name: &str, haste: &Haste, calls: &CallCount) -> Result<(), String> {
    calls.add(Purpose::Cancel, 1);
    let line = filled(line, &[("id", id), ("name", name)]);
    shell("stop", &line, COMMAND_MAX, || haste.is_older_than(STOP_IN_HASTE)).map(drop)
}

/// The id in what `--start` printed. `Err`: one sentence.
fn id_of(printed: &str) -> Result<String, String> {
    let mut lines = printed.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        // In a federation `sbatch --parsable` adds the cluster, which `squeue` and `scancel` do not know as part of the id.
        (Some(id), None) if !id.contains(char::is_whitespace) => Ok(match id.split_once(';') {
            Some((number, _)) if number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty() => {
                number.into()
            }
            _ => id.into(),
        }),
        (Some(first), _) => {
            Err(format!("--start has to print one line, the block's id, and printed {}", shown(first)))
        }
        (None, _) => Err("--start has to print one line, the block's id, and printed nothing".into()),
    }
}

/// The lines of what `--list` printed whose names begin with `prefix`. All others are jobs of somebody else, whose names may have
/// spaces, or headings, and are not looked at. `Err`: one sentence.
fn parse_listing(text: &str, prefix: &str) -> Result<Vec<Listed>, String> {
    let mut all = vec![];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(id), Some(name)) = (words.next(), words.next()) else { continue };
        if !name.starts_with(prefix) {
            continue;
        }
        let word = words.next().unwrap_or("running").to_lowercase();
        let Some((_, stage)) = STATES.iter().find(|(known, _)| *known == word) else {
            return Err(format!(
                "--list printed the state {} of {}, which is not known; queued, running and ended are",
                shown(&word),
                shown(name)
            ));
        };
        // Slurm's reason, for example.
        let rest = words.collect::<Vec<_>>().join(" ");
        let state = match stage {
            Stage::Queued => BlockState::Queued,
            Stage::Running => BlockState::Running,
            Stage::Stuck => BlockState::Stuck(format!("{word} {rest}").trim_end().into()),
            Stage::Ended => BlockState::Ended(format!("{word} {rest}").trim_end().into()),
        };
        all.push(Listed { id: id.into(), name: name.into(), state, n_nodes: None, why: rest });
    }
    Ok(all)
}

/// Runs a line and gives what it printed to standard output; it is killed with its group when it takes longer than `time_max`, or
/// when `is_cut` says so. `Err`: one sentence.
///
/// Its streams are files: what it leaves running in the background may keep them open, and that is not waited for.
fn shell(which: &str, line: &str, time_max: Duration, is_cut: impl Fn() -> bool) -> Result<String, String> {
    if is_cut() {
        return Err(format!("--{which} was not run, as nobody wanted to wait"));
    }
    let fail = |e: std::io::Error| format!("cannot run --{which}: {e}");
    let (mut stdout, mut stderr) = (memory_file().map_err(fail)?, memory_file().map_err(fail)?);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null());
    command.stdout(stdout.try_clone().map_err(fail)?).stderr(stderr.try_clone().map_err(fail)?);
    let mut child = command.process_group(0).spawn().map_err(fail)?;
    let deadline = Instant::now() + time_max;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            break status;
        }
        let is_cut = is_cut();
        if is_cut || Instant::now() > deadline {
            // SAFETY: a signal to the group of a child that has not been waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            let _ = child.wait();
            return Err(match is_cut {
                true => format!("--{which} did not end, and was killed as nobody wanted to wait"),
                false => format!("--{which} took longer than {} s and was killed", time_max.as_secs()),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text_of = |file: &mut std::fs::File| -> String {
        let mut bytes = vec![];
        let _ = file.rewind();
        let _ = file.take(OUTPUT_MAX).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (printed, said) = (text_of(&mut stdout), text_of(&mut stderr));
    if status.success() {
        return Ok(printed);
    }
    let last = |text: &str| text.lines().rev().map(str::trim).find(|l| !l.is_empty()).map(str::to_string);
    let words = last(&said).or_else(|| last(&printed));
    let how = status.code().map_or(status.to_string(), |code| format!("exit status {code}"));
    Err(match words {
        Some(words) => format!("--{which} ended with {how}: {}", line_of(&words)),
        None => format!("--{which} ended with {how} and said nothing"),
    })
}

/// A file without a name, which is gone when nobody has it open.
fn memory_file() -> std::io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a C string, and the descriptor that is given is nobody else's.
    unsafe {
        match libc::memfd_create(c"eyas".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(std::io::Error::last_os_error()),
            fd => Ok(std::fs::File::from_raw_fd(fd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn holes_are_filled_with_words_for_the_shell_and_the_shells_own_are_left_alone() {
        let line = "a {name} {join} ${name} {print $1} {}{walltime} {a,b}";
        let values = [("name", "x"), ("join", "/it's here"), ("walltime", "")];
        assert_eq!(filled(line, &values), r"a x '/it'\''s here' ${name} {print $1} {}'' {a,b}");
        assert_eq!(check_line("start", "sbatch -J {name} {script} > ${HOME}"), Ok(()));
        assert_eq!(check_line("stop", "scancel --name {name}"), Ok(()));
        assert_eq!(check_line("stop", "scancel {id}"), Ok(()));
        for (which, line, expect) in [
            ("start", "x {nam}", "an unknown hole `{nam}` in --start\nhint: did you mean {name}?"),
            (
                "start",
                "x {zebra}",
                "an unknown hole `{zebra}` in --start\nhint: --start has {name}, {join}, {script}, {walltime}",
            ),
            ("stop", "x {script}", "an unknown hole `{script}` in --stop\nhint: --stop has {id}, {name}"),
            ("list", "x {id}", "an unknown hole `{id}` in --list\nhint: --list has no holes"),
            ("list", " ", "--list is empty"),
            (
                "stop",
                "scancel -u $USER",
                "--stop has neither {id} nor {name}, so it cannot end one node\n\
                 hint: {id} is what --start printed, and {name} the node's name",
            ),
        ] {
            assert_eq!(check_line(which, line).unwrap_err(), expect);
        }
    }

    #[test]
    fn of_a_listing_only_the_lines_with_names_of_this_cluster_are_looked_at() {
        let text = "JOBID NAME ST\n7 eyas-a-1 PENDING (Resources)\n\n 8 eyas-a-2\n9 eyas-a-3 TIMEOUT after 1h\n\
                    77 my analysis RUNNING\n78 eyas-b-1 odd\n79\n80 eyas-a-4 SPECIAL_EXIT\n";
        let all = parse_listing(text, "eyas-a-").unwrap();
        let states = all.iter().map(|line| (line.name.as_str(), line.id.as_str(), line.state.clone()));
        assert_eq!(
            states.collect::<Vec<_>>(),
            [
                ("eyas-a-1", "7", BlockState::Queued),
                ("eyas-a-2", "8", BlockState::Running),
                ("eyas-a-3", "9", BlockState::Ended("timeout after 1h".into())),
                ("eyas-a-4", "80", BlockState::Stuck("special_exit".into())),
            ]
        );
        assert_eq!(
            parse_listing("7 eyas-a-1 odd\n", "eyas-a-").unwrap_err(),
            "--list printed the state `odd` of `eyas-a-1`, which is not known; queued, running and ended are"
        );
    }

    #[test]
    fn a_command_that_fails_or_hangs_says_so_and_what_it_leaves_running_is_not_waited_for() {
        let run = |line: &str| shell("start", line, Duration::from_millis(300), || false);
        assert_eq!(run("echo 7; echo noise >&2"), Ok("7\n".into()));
        assert_eq!(
            run("echo a; echo no such queue >&2; exit 3").unwrap_err(),
            "--start ended with exit status 3: no such queue"
        );
        assert_eq!(run("exit 4").unwrap_err(), "--start ended with exit status 4 and said nothing");
        let begun = Instant::now();
        assert_eq!(run("sleep 2 & echo 8"), Ok("8\n".into()));
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!(run("sleep 5").unwrap_err().contains("took longer than 0 s and was killed"));
    }

    #[test]
    fn a_command_is_cut_off_with_its_group_when_nobody_wants_to_wait() {
        let haste = Haste::default();
        let (begun, cut) = (Instant::now(), haste.clone());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cut.begin();
        });
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let line = format!("(sleep 1; touch {}) & sleep 30", mark.display());
        let said = shell("start", &line, COMMAND_MAX, || haste.has_begun()).unwrap_err();
        assert_eq!(said, "--start did not end, and was killed as nobody wanted to wait");
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1200));
        assert!(!mark.exists(), "what it had begun went with it");
        let said = shell("list", "echo x", COMMAND_MAX, || haste.has_begun()).unwrap_err();
        assert_eq!(said, "--list was not run, as nobody wanted to wait");
    }

    #[test]
    fn an_id_is_one_word_and_the_cluster_that_slurm_adds_is_none_of_it() {
        assert_eq!(id_of("\n4711\n"), Ok("4711".into()));
        assert_eq!(id_of("4711;emmy\n"), Ok("4711".into()));
        assert_eq!(id_of("i-0a;b\n"), Ok("i-0a;b".into()));
        for (printed, word) in [("Submitted batch job 7\n", "`Submitted"), ("", "nothing"), ("1\n2\n", "`1`")]
        {
            assert!(id_of(printed).unwrap_err().contains(&format!("and printed {word}")), "{printed}");
        }
    }

    #[test]
    fn a_script_passes_quoted_words_and_leaves_variables_of_the_folder_to_the_node() {
        let share = Share::of(Path::new("/home/me/.local/state"), "c1");
        let launch = Launch {
            exe: "/opt/my eyas/eyas".into(),
            node_args: vec!["--home-local".into(), "/a b".into()],
            node_dir: Some("$TMPDIR/\"x\"".into()),
            scratch_age: Duration::from_secs(3600),
            setup: vec!["module load eyas".into()],
            walltime: Some(Duration::from_secs(3723)),
        };
        let lines = CommandLines { start: "x".into(), list: "x".into(), stop: "x".into() };
        let text = Commands::new("a", lines, launch.clone(), share, "/log".into()).script("eyas-c1-3");
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "exec >> /home/me/.local/state/eyas/c1/eyas-c1-3.log 2>&1",
                "[ -e /home/me/.local/state/eyas/c1/join.json ] || { echo 'the cluster has ended'; exit 0; }",
                "began=$(date +%s)",
                "set -e",
                "{",
                "module load eyas",
                "} < /dev/null",
                "set +e",
                ": \"${TMPDIR:?is empty on this node, and --node-dir needs it}\"",
                "mkdir -p -m 700 \"$TMPDIR/\\\"x\\\"\" || exit 1",
                "exec '/opt/my eyas/eyas' executor --join /home/me/.local/state/eyas/c1/join.json --name eyas-c1-3 \
                 --scratch \"$TMPDIR/\\\"x\\\"\" --scratch-age 3600000ms --home-local '/a b' \
                 --walltime 3723s --walltime-end $((began + 3723))",
            ]
        );
        assert_eq!(hours_minutes_seconds(launch.walltime.unwrap()), "01:02:03");
    }
}
