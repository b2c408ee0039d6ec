//! eyas-runtime: the live driver of `eyas-core`.
//!
//! It turns sockets, processes, files and time into events, and actions into sockets, processes and
//! files. It decides nothing: no placement, eviction or retry of a task is chosen here.
//!
//! | module | |
//! |---|---|
//! | [`dispatcher`] | the dispatcher's process: connections, journal, event log around the core |
//! | [`executor`] | an executor's process: slots, cache directory, transfers around the core |
//! | [`relay`] | a relay's process: executors on one side, one connection to the dispatcher on the other |
//! | [`provider`] | nodes of a local cluster that come and go |
//! | [`eventlog`] | the event log and what programs printed, written and read |
//! | [`locks`], [`parent`], `own_folder`, [`part`] | which process uses a directory; a process that ends with the one that started it or with its folder, and how it is started |
//! | [`clock`], [`descriptors`], [`files`], [`machine`] | what they share |

pub mod address;
pub mod clock;
pub mod descriptors;
pub mod dispatcher;
pub mod eventlog;
pub mod executor;
mod files;
pub mod locks;
pub mod machine;
mod own_folder;
pub mod parent;
pub mod part;
pub mod provider;
pub mod relay;

/// Runs a loop on the threads that also read and write its connections. The tasks that wake the loop then
/// mostly run on the same thread. The thread that waits for the whole program would have to be woken by the
/// system.
async fn run_beside_io<T: Send + 'static>(body: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(body).await {
        Ok(result) => result,
        Err(e) => std::panic::resume_unwind(e.into_panic()),
    }
}
