//! Programs that stay for several tasks of a slot: an interpreter that has loaded its modules once, say.
//!
//! A task whose variable [`NAME`] is a number N says that the first N words of its command are such a program. The slot process
//! starts it with these words and a socket, whose number is in [`SOCKET_NAME`], and then gives it a task:
//!
//! ```text
//! to the program:  the length of what follows (u32, little endian), then texts that each end in a NUL byte:
//!                  the path of the task's sandbox, how many words there are behind the first N, these words,
//!                  NAME=VALUE for each variable of the task that begins with EYAS_, an empty text, and
//!                  for each input whose bytes are known its name and their digest (hexadecimal)
//! from it:         the exit status of the task (i32, little endian), with 256 added where the program ends behind it, and with 512
//!                  where it says here what the task prints last: its length (u32, little endian), 64 KiB at most, and the bytes
//! ```
//!
//! The last is for programs whose environment has [`SAYS_NAME`]: the slot process then wakes once for the whole answer, and need not read
//! the pipe of what the task prints, too.
//!
//! The program changes into the sandbox, does what the words say, prints to its standard output and error, leaves the sandbox, and
//! answers. Then it waits for the next task with the same first words, the same user, and the same other variables. A slot process that gets a task of another
//! kind ends it. Where the socket is closed, the program ends. A program that is started without a socket does the one task that all
//! of its words say, so that a node which does not know this module runs the same command.

use crate::protocol::{Account, ByteString, Program, RunSpec};
use crate::{sys, tree};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The variable of a task that says how many words its program has.
pub const NAME: &[u8] = b"EYAS_WARM";
/// The variable of the program that says which descriptor is its socket.
pub const SOCKET_NAME: &[u8] = b"EYAS_WARM_SOCKET";

/// The variable of the program that says that its answer may have what the task prints.
pub const SAYS_NAME: &[u8] = b"EYAS_WARM_SAYS";

/// Added to the exit status of a task where the program ends behind it.
const ENDS: i32 = 256;
/// Added to it where what the task prints follows.
const SAYS: i32 = 512;
const SAID_BYTES_MAX: usize = 64 << 10;

/// How often it is looked whether killed processes are gone.
const PAUSE: Duration = Duration::from_millis(1);

/// What has to be the same for a task to be given to a program that is there.
#[derive(Clone, PartialEq, Eq)]
struct Kind {
    words: Vec<ByteString>,
    /// The objects that inputs named by these words are made of: a program that has changed is another one.
    sources: Vec<ByteString>,
    /// Without those that are told with each task.
    env: Vec<(ByteString, ByteString)>,
    account: Option<Account>,
}

/// How many words of the task's command are the program; `None`: it is a usual task.
fn n_words(spec: &RunSpec) -> Option<usize> {
    let (_, n) = spec.env.iter().rev().find(|(name, _)| name[..] == *NAME)?;
    let Program::Exec(argv) = &spec.program else { return None };
    let n: usize = std::str::from_utf8(n).ok()?.parse().ok()?;
    // What gives a program another root ends with it.
    (1..=argv.len()).contains(&n).then_some(n).filter(|_| spec.container.is_none())
}

fn kind_of(spec: &RunSpec) -> Option<Kind> {
    let n = n_words(spec)?;
    let Program::Exec(argv) = &spec.program else { return None };
    let env = spec.env.iter().filter(|(name, _)| !is_told(name)).cloned().collect();
    let sources = sources_of(spec, &argv[..n]).cloned().collect();
    Some(Kind { words: argv[..n].to_vec(), sources, env, account: spec.account.clone() })
}

fn sources_of<'a>(spec: &'a RunSpec, words: &'a [ByteString]) -> impl Iterator<Item = &'a ByteString> {
    let named = |word: &'a ByteString| spec.inputs.iter().find(|input| input.name == *word);
    words.iter().filter_map(named).map(|input| &input.source)
}

/// Whether a variable may differ from task to task, such as `EYAS_TASK`.
fn is_told(name: &[u8]) -> bool {
    name.starts_with(b"EYAS_")
}

/// A number that tasks have in common which one program that stays can do; `None`: it is a usual task.
pub fn kind_number(spec: &RunSpec) -> Option<u64> {
    let n = n_words(spec)?;
    let Program::Exec(argv) = &spec.program else { return None };
    let mut hasher = DefaultHasher::new();
    argv[..n].hash(&mut hasher);
    sources_of(spec, &argv[..n]).for_each(|source| source.hash(&mut hasher));
    spec.env.iter().filter(|(name, _)| !is_told(name)).for_each(|variable| variable.hash(&mut hasher));
    Some(hasher.finish())
}

/// Whether the task is for a program that stays.
pub fn is_warm(spec: &RunSpec) -> bool {
    n_words(spec).is_some()
}

/// The task as the program is started for it: without the words that are the task's own, and with the socket.
pub fn starting(spec: &RunSpec, socket: RawFd) -> RunSpec {
    let mut start = spec.clone();
    if let (Some(n), Program::Exec(argv)) = (n_words(spec), &mut start.program) {
        argv.truncate(n);
    }
    start.env.push((SOCKET_NAME.to_vec().into(), socket.to_string().into_bytes().into()));
    start.env.push((SAYS_NAME.to_vec().into(), b"1".to_vec().into()));
    start
}

/// A program that stays.
pub struct WarmProgram {
    kind: Kind,
    pub pid: libc::pid_t,
    /// `None`: it was gone at once.
    files: Option<tree::ChildFiles>,
    socket: UnixStream,
    /// What the program has said of its task so far.
    answer: Vec<u8>,
    /// It has said more than an answer.
    is_talking: bool,
    /// What the program has yet to be told of its task: it may read slowly, or never.
    unsent: Vec<u8>,
    /// Processor time in clock ticks, in user and in system mode, when the task began.
    ticks: (u64, u64),
}

/// What a program that stays has said.
pub enum WarmAnswer {
    /// The task's exit status, whether the program ends behind it, and what the task prints last.
    Ended(i32, bool, Vec<u8>),
    /// Nothing yet.
    None,
    /// The program has closed its socket.
    Gone,
}

/// Both ends of a socket: ours, and that of the program.
pub fn sockets() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, its) = UnixStream::pair()?;
    Ok((ours, its.into()))
}

impl WarmProgram {
    /// A program that was started for a task, `None` where the task is no such one.
    pub fn new(spec: &RunSpec, pid: libc::pid_t, socket: UnixStream) -> Option<WarmProgram> {
        socket.set_nonblocking(true).ok()?;
        Some(WarmProgram {
            kind: kind_of(spec)?,
            pid,
            files: tree::ChildFiles::open(pid),
            socket,
            answer: vec![],
            is_talking: false,
            unsent: vec![],
            ticks: (0, 0),
        })
    }

    pub fn is_for(&self, spec: &RunSpec) -> bool {
        kind_of(spec).as_ref() == Some(&self.kind)
    }

    pub fn socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Gives the program a task. Errors: it has ended, or has said something that nobody had asked for.
    pub fn give(&mut self, spec: &RunSpec, sandbox: &[u8]) -> io::Result<()> {
        match self.socket.read(&mut [0; 1]) {
            _ if self.is_talking => return Err(io::ErrorKind::ConnectionAborted.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        let Program::Exec(argv) = &spec.program else { return Err(io::ErrorKind::InvalidInput.into()) };
        let words = &argv[self.kind.words.len()..];
        let n_words = words.len().to_string();
        let variables = spec.env.iter().filter(|(name, _)| is_told(name));
        let variables: Vec<Vec<u8>> =
            variables.map(|(name, value)| [&name[..], b"=", &value[..]].concat()).collect();
        let mut texts = vec![];
        let all = [sandbox, n_words.as_bytes()].into_iter().chain(words.iter().map(|word| &word[..]));
        for text in all.chain(variables.iter().map(|variable| &variable[..])).chain([&b""[..]]) {
            texts.extend_from_slice(text);
            texts.push(0);
        }
        for (input, digest) in spec.inputs.iter().filter_map(|input| Some((input, input.digest?))) {
            texts.extend_from_slice(&input.name);
            texts.push(0);
            digest.iter().for_each(|byte| texts.extend_from_slice(format!("{byte:02x}").as_bytes()));
            texts.push(0);
        }
        self.answer.clear();
        self.ticks = self.ticks_now().unwrap_or_default();
        let mut frame = (texts.len() as u32).to_le_bytes().to_vec();
        frame.append(&mut texts);
        self.unsent = frame;
        self.send()
    }

    /// Whether the program has yet to be told something.
    pub fn is_sending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Tells the program as much as it takes now. Errors: it has ended.
    pub fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what there is.
    pub fn read(&mut self) -> WarmAnswer {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => return WarmAnswer::Gone,
            Ok(n) => self.answer.extend_from_slice(&bytes[..n]),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => return WarmAnswer::Gone,
        }
        let Some((status, rest)) = self.answer.split_first_chunk() else { return WarmAnswer::None };
        let status = i32::from_le_bytes(*status);
        let (n_said, rest) = match rest.split_first_chunk() {
            _ if status & SAYS == 0 => (0, rest),
            Some((n, rest)) => (u32::from_le_bytes(*n) as usize, rest),
            None => return WarmAnswer::None,
        };
        if n_said > SAID_BYTES_MAX {
            return WarmAnswer::Gone;
        }
        let Some((said, more)) = rest.split_at_checked(n_said) else { return WarmAnswer::None };
        let (said, is_talking) = (said.to_vec(), !more.is_empty());
        self.answer.clear();
        self.is_talking = is_talking;
        WarmAnswer::Ended(status & 0xff, status & ENDS != 0, said)
    }

    /// Processor time of the program so far, in clock ticks.
    fn ticks_now(&self) -> Option<(u64, u64)> {
        self.files.as_ref()?.ticks()
    }

    /// Processor time of the program since it was given the task, in nanoseconds: in user and in system mode.
    pub fn cpu_ns(&self) -> (u64, u64) {
        let now = self.ticks_now().unwrap_or(self.ticks);
        // SAFETY: no memory is involved.
        let per_s = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as u64;
        let ns = |now: u64, then: u64| now.saturating_sub(then) * (1_000_000_000 / per_s);
        (ns(now.0, self.ticks.0), ns(now.1, self.ticks.1))
    }

    /// Kills the processes that the task left: those below the program, and those that became children of this process. Waits for their
    /// ends. Gives how many were killed, and how many did not go within `wait_ns`.
    pub fn end_leftovers(&self, own_pid: u32, wait_ns: u64) -> (u32, u32) {
        if self.files.as_ref().is_some_and(tree::ChildFiles::is_alone) {
            return (0, 0);
        }
        let below = || {
            let mut left = tree::all_below(self.pid as u32);
            left.extend(tree::children_of(own_pid).into_iter().filter(|pid| *pid != self.pid));
            left.retain(|pid| tree::runs(*pid));
            left
        };
        let mut killed: BTreeSet<i32> = BTreeSet::new();
        let give_up_ns = sys::monotonic_ns().saturating_add(wait_ns);
        loop {
            let left = below();
            for pid in &left {
                sys::kill(*pid, libc::SIGKILL);
            }
            killed.extend(&left);
            if left.is_empty() || sys::monotonic_ns() >= give_up_ns {
                return (killed.len() as u32, left.len() as u32);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Kills the program; it has yet to be reaped.
    pub fn kill(&self) {
        sys::kill(-self.pid, libc::SIGKILL);
        sys::kill(self.pid, libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{CaptureLimits, Input, InputMode};

    fn spec(words: &[&str], warm: &str) -> RunSpec {
        RunSpec {
            key: 1,
            program: Program::Exec(words.iter().map(|word| word.as_bytes().to_vec().into()).collect()),
            env: vec![(NAME.to_vec().into(), warm.as_bytes().to_vec().into())],
            inputs: vec![],
            outputs: vec![],
            walltime_ns: None,
            memory_bytes: None,
            capture: CaptureLimits::default(),
            keep_sandbox: false,
            tee: [None, None],
            prints_whole: false,
            account: None,
            container: None,
            watched: None,
        }
    }

    #[test]
    fn a_number_that_is_no_number_of_words_makes_a_usual_task() {
        for (warm, expect) in
            [("1", true), ("3", true), ("0", false), ("4", false), ("x", false), ("", false)]
        {
            assert_eq!(is_warm(&spec(&["a", "b", "c"], warm)), expect, "{warm}");
        }
    }

    #[test]
    fn a_program_is_for_tasks_with_its_words_and_gets_the_others() {
        let (ours, its) = sockets().unwrap();
        let mut program = WarmProgram::new(&spec(&["p", "one"], "1"), 1, ours).unwrap();
        assert!(program.is_for(&spec(&["p", "two", "three"], "1")));
        assert!(!program.is_for(&spec(&["q", "one"], "1")) && !program.is_for(&spec(&["p", "one"], "2")));
        let known = Input {
            name: "f".into(),
            source: "/cached".into(),
            mode: InputMode::Link,
            executable: false,
            permissions: None,
            modified_ns: None,
            times: vec![],
            at_home: false,
            digest: Some([0xab; 32]),
        };
        let unknown = Input { name: "g".into(), digest: None, ..known.clone() };
        let inputs = vec![known, unknown];
        program.give(&RunSpec { inputs, ..spec(&["p", "two", ""], "1") }, b"/box").unwrap();
        let mut its = UnixStream::from(its);
        let mut frame = [0; 96];
        its.read_exact(&mut frame).unwrap();
        let expect = format!("\x5c\0\0\0/box\x002\x00two\0\0EYAS_WARM=1\0\0f\0{}\0", "ab".repeat(32));
        assert_eq!(&frame[..], expect.as_bytes());
        its.write_all(&7i32.to_le_bytes()).unwrap();
        assert!(matches!(program.read(), WarmAnswer::Ended(7, false, said) if said.is_empty()));
        program.give(&spec(&["p", "three"], "1"), b"/box").unwrap();
        for byte in [&(7 + ENDS + SAYS).to_le_bytes()[..], &5u32.to_le_bytes(), b"said"].concat() {
            its.write_all(&[byte]).unwrap();
            assert!(matches!(program.read(), WarmAnswer::None), "its answer is not whole");
        }
        its.write_all(b"!").unwrap();
        assert!(matches!(program.read(), WarmAnswer::Ended(7, true, said) if said == b"said!"));
        let large = "x".repeat(4 << 20);
        program.give(&spec(&["p", &large], "1"), b"/box").unwrap();
        assert!(program.is_sending(), "a program that does not read is not waited for");
        let _ = its.write_all(&[3, 1, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(program.read(), WarmAnswer::Ended(3, true, _)));
        program.give(&spec(&["p", "three"], "1"), b"/box").expect_err("it has said more than it was asked");
        let _ = program.read();
        drop(its);
        assert!(matches!(program.read(), WarmAnswer::Gone));
    }
}
