//! The parent process, for a process that has to end together with its parent.
//!
//! The standard input of such a process is a pipe, and only its parent holds the other end. However the parent ends,
//! the pipe is closed then, and the process sees that.

use std::io::Read;

/// Blocks until standard input is closed by the other end.
fn wait_for_stdin_to_close() {
    let mut sink = [0; 64];
    let mut stdin = std::io::stdin().lock();
    while !matches!(stdin.read(&mut sink), Ok(0) | Err(_)) {}
}

/// Calls `then` on a thread of its own when the parent is gone.
pub fn when_gone(then: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        wait_for_stdin_to_close();
        then();
    });
}
