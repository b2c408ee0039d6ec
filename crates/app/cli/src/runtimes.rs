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
