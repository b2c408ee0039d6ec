//! A limit for worlds: a world that panics or hangs is a violation, reported with its last events.

use super::{LOOK, Violation};
use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};

/// The last lines of a world's trace, which the thread that waits for the world can read while it lives.
pub(super) type Lines = Arc<Mutex<VecDeque<String>>>;

fn kept(lines: &Lines) -> Vec<String> {
    lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

pub(super) fn watch<T: Send + 'static>(
    lines: Lines,
    cpu_s_max: f64,
    live: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<Violation>> {
    let violation = |message| Err(Box::new(Violation { message, tail: kept(&lines) }));
    let (ended, end) = mpsc::channel();
    let (told_id, id) = mpsc::channel();
    let body = move || {
        let _ = told_id.send(thread_id());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(live));
        let _ = ended.send(result);
    };
    let thread = std::thread::Builder::new().name("world".into()).stack_size(64 << 20);
    thread.spawn(body).expect("a thread can be started");
    let id = id.recv().ok().flatten();
    loop {
        match end.recv_timeout(LOOK) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
                return violation(text.unwrap_or_default());
            }
            Err(RecvTimeoutError::Disconnected) => return violation("the world's thread is gone".into()),
            Err(RecvTimeoutError::Timeout) => {
                let used_s = id.as_deref().and_then(cpu_s).unwrap_or(0.0);
                if used_s > cpu_s_max {
                    return violation(format!(
                        "promise 4: the world hangs: it has used {used_s:.0} s of processor time, and the last event of \
                         its trace is not over"
                    ));
                }
            }
        }
    }
}

/// The calling thread, as Linux numbers it.
fn thread_id() -> Option<String> {
    let path = std::fs::read_link("/proc/thread-self").ok()?;
    Some(path.file_name()?.to_str()?.to_string())
}

/// Processor time that a thread of this process has used.
fn cpu_s(thread: &str) -> Option<f64> {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name of the thread, in brackets, may contain anything. User and system time are the fields 14 and
    // 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_that_hangs_is_a_violation_with_its_trace() {
        let lines = Lines::default();
        lines.lock().unwrap().push_back("the last event".into());
        let hangs = || {
            let mut n = 0u64;
            loop {
                n = std::hint::black_box(n.wrapping_add(1));
            }
        };
        let violation = watch::<()>(lines, 0.2, hangs).expect_err("it hangs");
        assert!(violation.message.contains("hangs"), "{}", violation.message);
        assert_eq!(violation.tail, ["the last event"]);
    }

    #[test]
    fn a_world_that_panics_is_a_violation_with_its_trace() {
        let lines = Lines::default();
        lines.lock().unwrap().push_back("the last event".into());
        let violation = watch::<()>(lines, 60.0, || panic!("a promise")).expect_err("it panics");
        assert_eq!((violation.message.as_str(), violation.tail.len()), ("a promise", 1));
    }
}
