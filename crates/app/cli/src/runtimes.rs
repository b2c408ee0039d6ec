//! The runtimes of tokio that commands and services run on.

use crate::{Exit, Fault};

/// For a command that asks and waits.
pub fn client_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime can be made")
}

/// Threads that a service needs to begin: those of its runtime, and a few that wait for disks and connections.
const THREADS_MIN: usize = 6;

/// For a dispatcher or an executor. Errors: the system gives it no threads.
pub fn service_runtime() -> Result<tokio::runtime::Runtime, Fault> {
    // The runtime would panic where it cannot have its threads, and wait for itself for ever.
    let trial = |_| std::thread::Builder::new().spawn(std::thread::park);
    let threads: Result<Vec<_>, _> = (0..THREADS_MIN).map(trial).collect();
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    threads
        .and_then(|threads| {
            threads.iter().for_each(|thread| thread.thread().unpark());
            threads.into_iter().for_each(|thread| drop(thread.join()));
            build()
        })
        .map_err(|error| {
            let message = format!("cannot start {THREADS_MIN} threads: {}", crate::print::reason(&error));
            Fault::new(Exit::Other, message).hint(
                "the limit of processes and threads of this user is too low; `ulimit -u` shows it, and \
                 `pids.max` of the cgroup may be another one",
            )
        })
}

/// Runs the loop of a dispatcher or an executor on a thread of the runtime, where what wakes it wakes no other thread for it.
pub fn serve<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    service: impl Future<Output = T> + Send + 'static,
) -> T {
    match runtime.block_on(runtime.spawn(service)) {
        Ok(result) => result,
        Err(ended) => std::panic::resume_unwind(ended.into_panic()),
    }
}
