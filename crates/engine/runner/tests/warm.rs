//! Programs that stay for several tasks of a slot.

mod lab;

use eyas_runner::*;
use lab::*;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Does what a task says: prints its process id and the words, fails, ends, starts a process that stays, or waits.
const PROGRAM: &str = r#"
import os, socket, struct, subprocess, sys, time
def do(word):
    if word == "die":
        os._exit(0)
    if word == "kill":
        os.kill(os.getpid(), 9)
    if word == "hang up":
        os.closerange(0, 100)
        time.sleep(1000)
    if word == "leave":
        left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print(left.pid, flush=True)
    elif word == "wait":
        time.sleep(1000)
    elif word == "make":
        open("made", "w").write("by a task")
    else:
        print(os.getpid(), os.getcwd(), word, flush=True)
    return 3 if word == "fail" else 0
number = os.environ.get("EYAS_WARM_SOCKET")
if number is None:
    sys.exit(do(sys.argv[1]))
with socket.socket(fileno=int(number)) as connection:
    while head := connection.recv(4):
        sandbox, n, word, *_ = connection.recv(*struct.unpack("<I", head)).decode().split("\0")
        os.chdir(sandbox)
        status = do(word)
        os.chdir("/")
        said = b"said last" if word.startswith("say") and "EYAS_WARM_SAYS" in os.environ else b""
        status += 512 if said else 0
        connection.sendall(struct.pack("<i", status) + (struct.pack("<I", len(said)) + said if said else b""))
"#;

impl Lab {
    fn call(&mut self, word: &str) -> RunSpec {
        let mut spec = self.exec(&["python3", "-c", PROGRAM, word]);
        spec.env = vec![(warm::NAME.to_vec().into(), "3".into())];
        spec
    }

    fn run_call(&mut self, word: &str) -> RunReport {
        let spec = self.call(word);
        self.run(spec)
    }
}

/// The process id, and the rest of what a call printed.
fn said(report: &RunReport) -> (i32, String) {
    let text = String::from_utf8(report.stdout.head.0.clone()).unwrap();
    let (pid, rest) = text.trim_end().split_once(' ').unwrap_or((text.trim_end(), ""));
    (pid.parse().unwrap(), rest.to_owned())
}

fn is_there(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn one_process_does_several_tasks_each_in_its_sandbox() {
    let mut lab = Lab::new();
    let first = lab.run_call("one");
    let second = lab.run_call("two");
    assert_eq!((&first.exit, &second.exit), (&ExitKind::Exited(0), &ExitKind::Exited(0)));
    let ((pid, place), (again, _)) = (said(&first), said(&second));
    assert_eq!(pid, again);
    assert!(place.starts_with(&format!("{}/s", lab.root().display())) && place.ends_with(" one"), "{place}");
    assert_eq!(lab.run_call("fail").exit, ExitKind::Exited(3));
    let mut makes = lab.call("make");
    makes.outputs = vec!["made".into()];
    let report = lab.run(makes);
    assert!(report.outputs[0].is_there());
    assert_eq!(fs::read_to_string(report.sandbox.unwrap().as_path().join("made")).unwrap(), "by a task");
    assert_eq!(said(&lab.run_call("three")).0, pid);
    // A task of another kind ends it, and so does one with other variables.
    assert_eq!(lab.output_of("echo usual"), "usual\n");
    assert!(!is_there(pid));
    let fresh = said(&lab.run_call("four")).0;
    let mut other = lab.call("five");
    other.env.push(("A".into(), "b".into()));
    assert_ne!(said(&lab.run(other)).0, fresh);
    assert!(!is_there(fresh));
    lab.close();
}

#[test]
fn an_answer_may_have_what_its_task_prints_last() {
    let mut lab = Lab::new();
    for word in ["say one", "two", "say three"] {
        let report = lab.run_call(word);
        assert_eq!(report.exit, ExitKind::Exited(0));
        let printed = String::from_utf8(report.stdout.head.0.clone()).unwrap();
        let last = if word == "two" { "two\n".to_owned() } else { format!("{word}\nsaid last") };
        assert!(printed.ends_with(&format!(" {last}")), "{printed}");
        assert_eq!(report.stdout.total_bytes, printed.len() as u64);
    }
    lab.close();
}

#[test]
fn a_program_that_ends_fails_its_task_and_the_next_one_has_another() {
    let mut lab = Lab::new();
    let pid = said(&lab.run_call("one")).0;
    // Though it ends with 0: it has not said that the task is done.
    assert_eq!(lab.run_call("die").exit, ExitKind::Unanswered { status: 0 });
    let next = said(&lab.run_call("two")).0;
    assert_ne!(next, pid);
    assert_eq!(lab.run_call("kill").exit, ExitKind::Signaled { signal: 9, core: false });
    assert_ne!(said(&lab.run_call("three")).0, next);
    assert_eq!(lab.run_call("hang up").exit, ExitKind::HungUp);
    // One that is killed while it waits is replaced, too.
    let idle = said(&lab.run_call("four")).0;
    // SAFETY: a signal to a process of this test.
    unsafe { libc::kill(idle, libc::SIGKILL) };
    let deadline = Instant::now() + DEADLINE;
    while is_there(idle) {
        assert!(Instant::now() < deadline, "the slot process does not reap it");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_ne!(said(&lab.run_call("five")).0, idle);
    lab.close();
}

#[test]
fn limits_and_cancellations_end_the_program_and_what_tasks_leave_is_ended() {
    let mut lab = Lab::new();
    let pid = said(&lab.run_call("one")).0;
    let report = lab.run_call("leave");
    let left = said(&report).0;
    assert_eq!((report.exit, report.n_leftovers_killed), (ExitKind::Exited(0), 1));
    assert_eq!(said(&lab.run_call("two")).0, pid);
    assert!(!is_there(left) || fs::read_to_string(format!("/proc/{left}/stat")).unwrap().contains(") Z"));
    let mut waits = lab.call("wait");
    waits.walltime_ns = Some(20 * MS);
    assert_eq!(lab.run(waits).exit, ExitKind::OverWalltime);
    let waits = lab.call("wait");
    lab.start(&waits);
    lab.started(waits.key);
    lab.send(&[SlotCommand::Cancel { key: waits.key }]);
    assert_eq!(lab.ended().exit, ExitKind::Cancelled);
    let last = said(&lab.run_call("three")).0;
    assert_ne!(last, pid);
    lab.close();
    assert!(!is_there(last));
}
