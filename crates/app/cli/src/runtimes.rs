//! The runtimes of tokio that commands and services run on.

/// For a command that asks and waits.
pub fn client_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime can be made")
}

/// For a dispatcher or an executor.
pub fn service_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime with two threads can be made")
}
