//! What a killed slot process leaves behind. A file of its own: the test's process becomes a reaper, and ends all its
//! children but those that it names.

mod lab;

use eyas_runner::reaper;
use lab::*;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Whether it runs; a zombie does not.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn pid_in(path: &Path) -> i32 {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Ok(pid) = fs::read_to_string(path).unwrap_or_default().trim().parse() {
            return pid;
        }
        assert!(Instant::now() < deadline, "{} is not written", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_of_a_killed_slot_process_are_ended() {
    reaper::become_reaper().unwrap();
    let mut lab = Lab::new();
    let mut other = Lab::new();
    let pid_dir = lab.base.path().to_path_buf();
    // One in the group, one in a session of its own, one that forked twice, and one that would start another when it is ended.
    let line = format!(
        "cd {}; sleep 1000 & echo $! > group; \
         setsid sh -c 'echo $$ > session; exec sleep 1000' & \
         (setsid sh -c 'sh -c \"echo \\$\\$ > twice; exec sleep 1000\" & exit' &) ; \
         echo $$ > self; wait",
        pid_dir.display()
    );
    let spec = lab.shell(&line);
    lab.start(&spec);
    let survivor = other.shell("echo started; exec sleep 1000");
    other.start(&survivor);
    let other_pid = other.started(survivor.key);
    let pids: Vec<i32> =
        ["group", "session", "twice", "self"].map(|name| pid_in(&pid_dir.join(name))).to_vec();
    assert!(pids.iter().all(|pid| is_alive(*pid)));

    lab.slot.process.kill().unwrap();
    lab.slot.process.wait().unwrap();
    assert_eq!(reaper::end_strays(&[other.slot.pid], DEADLINE), 0);
    assert_eq!(pids.iter().filter(|pid| is_alive(**pid)).count(), 0, "{pids:?}");
    assert!(is_alive(other_pid), "what another slot process runs goes on");
    other.close();

    // With both gone, the sandbox in the environment identifies the processes.
    let mut lab = Lab::new();
    let path = lab.base.path().join("left");
    let spec = lab.shell(&format!("setsid sh -c 'echo $$ > {}; exec sleep 1000' & wait", path.display()));
    lab.start(&spec);
    let left = pid_in(&path);
    lab.slot.process.kill().unwrap();
    lab.slot.process.wait().unwrap();
    assert_eq!(reaper::end_inhabitants(&lab.base.path().join("elsewhere")), 0);
    assert!(is_alive(left));
    assert!(reaper::end_inhabitants(&lab.root()) >= 1);
    let deadline = Instant::now() + DEADLINE;
    while is_alive(left) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_alive(left));
}
