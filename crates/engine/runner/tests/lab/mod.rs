//! A slot process of our own and words for talking to it. Nothing here waits without a deadline.
#![allow(dead_code)] // each test file uses its part

use eyas_runner::*;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(60);
pub const MS: u64 = 1_000_000;

pub struct Lab {
    pub base: tempfile::TempDir,
    pub slot: SlotHandle,
    decoder: Decoder,
    next_key: u64,
}

pub fn config(root: &Path) -> SlotConfig {
    SlotConfig { term_grace_ns: 100 * MS, memory_poll_ns: 10 * MS, ..SlotConfig::new(root) }
}

pub fn spawn(config: SlotConfig) -> SlotHandle {
    let none: [&str; 0] = [];
    let slot = spawn_slot(Path::new(env!("CARGO_BIN_EXE_eyas-slot")), &none, config).unwrap();
    slot.stream.set_read_timeout(Some(DEADLINE)).unwrap();
    slot
}

impl Lab {
    pub fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), |_| {})
    }

    /// Sandboxes in `boxes`, cached objects in `cache`, both below the temporary directory `base`.
    pub fn with(base: tempfile::TempDir, change: impl FnOnce(&mut SlotConfig)) -> Self {
        let root = base.path().join("boxes");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(base.path().join("cache")).unwrap();
        let mut config = config(&root);
        change(&mut config);
        let mut lab = Self { base, slot: spawn(config), decoder: Decoder::new(), next_key: 0 };
        let first = lab.report();
        assert!(matches!(first, SlotReport::Ready { pid } if pid as u32 == lab.slot.pid), "{first:?}");
        lab
    }

    pub fn root(&self) -> PathBuf {
        self.base.path().join("boxes").canonicalize().unwrap()
    }

    /// A read-only cached object.
    pub fn object(&self, name: &str, content: &[u8]) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.base.path().join("cache").join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        path
    }

    pub fn spec(&mut self, program: Program) -> RunSpec {
        self.next_key += 1;
        RunSpec {
            key: self.next_key,
            program,
            env: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
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

    pub fn shell(&mut self, line: &str) -> RunSpec {
        self.spec(Program::Shell(line.into()))
    }

    pub fn exec(&mut self, argv: &[&str]) -> RunSpec {
        self.spec(Program::Exec(argv.iter().map(|a| (*a).into()).collect()))
    }

    pub fn send(&mut self, commands: &[SlotCommand]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| protocol::encode_frame(command, &mut bytes).unwrap());
        self.slot.stream.write_all(&bytes).unwrap();
    }

    pub fn start(&mut self, spec: &RunSpec) {
        self.send(&[SlotCommand::Start(Box::new(spec.clone()))]);
    }

    pub fn report(&mut self) -> SlotReport {
        let mut buffer = [0; 4096];
        loop {
            if let Some(report) = self.decoder.next_message().unwrap() {
                return report;
            }
            let n = self.slot.stream.read(&mut buffer).expect("a report before the deadline");
            assert!(n > 0, "the slot process closed its socket");
            self.decoder.extend(&buffer[..n]);
        }
    }

    pub fn ended(&mut self) -> RunReport {
        loop {
            match self.report() {
                SlotReport::Ended(report) => return *report,
                SlotReport::Started { .. } | SlotReport::Printed { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub fn started(&mut self, key: u64) -> i32 {
        match self.report() {
            SlotReport::Started { key: started, pid, .. } if started == key => pid,
            other => panic!("expected the start of {key}, got {other:?}"),
        }
    }

    pub fn run(&mut self, spec: RunSpec) -> RunReport {
        self.start(&spec);
        let report = self.ended();
        assert_eq!(report.key, spec.key);
        report
    }

    /// Runs a line for the shell that has to succeed; its output.
    pub fn output_of(&mut self, line: &str) -> String {
        let spec = self.shell(line);
        let report = self.run(spec);
        assert_eq!(report.exit, ExitKind::Exited(0), "{line}: {}", report.stderr.head);
        report.stdout.head.to_string()
    }

    /// Ends the slot process as an executor does, and checks that it leaves nothing.
    pub fn close(mut self) {
        let root = self.root();
        drop(self.slot.stream);
        assert!(self.slot.process.wait().unwrap().success());
        assert_eq!(fs::read_dir(root).unwrap().count(), 0, "sandboxes are left");
    }
}

pub fn link(name: &str, source: &Path) -> Input {
    Input {
        name: name.into(),
        source: source.into(),
        mode: InputMode::Link,
        executable: false,
        permissions: None,
        modified_ns: None,
        times: vec![],
        at_home: false,
        digest: None,
    }
}

/// A number of seconds to sleep that no other process on this machine sleeps for.
pub fn unique_sleep() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("86400.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Living (not zombie) processes with `text` in their command line.
pub fn n_living_with(text: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
        })
        .count()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}
