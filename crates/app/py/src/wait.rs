//! Waiting for what is asynchronous, with other threads of Python going on and ^C heard.

use pyo3::prelude::*;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Python hears of a signal at most so late.
const MOMENT: Duration = Duration::from_millis(50);

/// A runtime without threads of its own.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a small runtime can be made")
}

/// Waits for `work`. Errors: what a signal's handler raised; `work` is then dropped.
pub fn wait_for<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    work: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let done = wait_until(py, runtime, None, work)?;
    Ok(done.expect("nothing limits the wait"))
}

/// The same until `deadline`; `None`: it came first.
pub fn wait_until<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    deadline: Option<Instant>,
    work: impl Future<Output = T> + Send,
) -> PyResult<Option<T>> {
    let mut work = pin!(work);
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let moment = left.map_or(MOMENT, |left| left.min(MOMENT));
        let done =
            py.detach(|| runtime.block_on(async { tokio::time::timeout(moment, &mut work).await.ok() }));
        py.check_signals()?;
        if done.is_some() || left.is_some_and(|left| left.is_zero()) {
            return Ok(done);
        }
    }
}

/// The moment in so many seconds; `None`: never.
pub fn deadline(seconds: Option<f64>) -> Option<Instant> {
    seconds.and_then(|s| Instant::now().checked_add(Duration::try_from_secs_f64(s.max(0.0)).ok()?))
}
