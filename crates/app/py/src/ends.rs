//! Tasks of a run, each when it has ended.

use crate::cluster::Cluster;
use crate::error::{of, of_part_end};
use crate::wait::{runtime, wait_for};
use eyas_client::{Client, JoinFile};
use eyas_cluster::reach::reach;
use eyas_cluster::watch::{LOOK_AGAIN, LOOKS_MAX, WATCH_PARTS};
use eyas_net::NetError;
use eyas_terms::{FailureKind, RunId};
use eyas_wire::message::{PrintedState, ReplyBody, TaskPrinted};
use pyo3::prelude::*;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// A task that has ended, for Python.
#[derive(IntoPyObject)]
pub struct EndedTask {
    pub id: String,
    /// `done`, `failed` or `cancelled`.
    pub state: &'static str,
    pub reason: Option<String>,
    /// The task failed because its program ended by itself, with an exit status or by a signal that eyas did not send.
    pub ended_itself: bool,
    pub n_attempts: u64,
    pub attempt: u32,
    /// What the last attempt printed: what is kept of the beginning, what is kept of the end, and how many bytes there were.
    pub stdout: (Vec<u8>, Vec<u8>, u64),
    pub stderr: (Vec<u8>, Vec<u8>, u64),
}

impl EndedTask {
    pub fn of(task: TaskPrinted) -> EndedTask {
        let state = match task.state {
            PrintedState::Done => "done",
            PrintedState::Cancelled => "cancelled",
            _ => "failed",
        };
        let n_attempts = task.attempts.len() as u64;
        let last = task.attempts.into_iter().max_by_key(|printed| printed.attempt).unwrap_or_default();
        let bytes = |of: eyas_wire::message::Captured| (of.head, of.tail, of.total_bytes);
        EndedTask {
            id: task.user_id,
            state,
            reason: task.reason,
            ended_itself: matches!(task.failure, Some(FailureKind::ExitCode(_) | FailureKind::Signal(_))),
            n_attempts,
            attempt: last.attempt.0,
            stdout: bytes(last.stdout),
            stderr: bytes(last.stderr),
        }
    }
}

/// What a thread that waits for ends is told meanwhile.
enum Told {
    Follow(RunId),
    Stop,
}

/// A connection on which the tasks of runs are told, each when it has ended. One thread waits; others may say what to follow.
#[pyclass(frozen)]
pub struct Ends {
    runtime: Runtime,
    connection: Mutex<(Client, UnboundedReceiver<Told>)>,
    tell: UnboundedSender<Told>,
}

#[pymethods]
impl Ends {
    /// `listener`: the number under which runs are submitted that it hears of without [`Self::follow`].
    #[new]
    fn new(py: Python<'_>, join: PathBuf, listener: u64) -> PyResult<Ends> {
        let runtime = runtime();
        let file = JoinFile::named(join);
        let reached = async {
            let mut client = reach(&file, |_| ()).await.map_err(|unreached| unreached.error)?;
            if !client.is_to_several() {
                client.listen(listener).await?;
            }
            Ok::<_, NetError>(client)
        };
        let client = wait_for(py, &runtime, reached)?.map_err(of)?;
        let (tell, told) = unbounded_channel();
        Ok(Ends { connection: Mutex::new((client, told)), runtime, tell })
    }

    /// Also tells of the tasks of this run from now on, and of those that have ended already.
    fn follow(&self, run: u32) {
        let _ = self.tell.send(Told::Follow(RunId(run)));
    }

    /// Nobody wants to hear more: [`Self::next`] gives `None`.
    fn stop(&self) {
        let _ = self.tell.send(Told::Stop);
    }

    /// Waits for what comes next: the number of a run, tasks of it that have ended, and whether these were its last. `cluster`: the
    /// cluster of this process that the runs are on: it is looked after where nothing comes for a moment, and run 0 is told then. Errors:
    /// `PartEnded`, the cluster cannot go on.
    #[pyo3(signature = (cluster))]
    fn next(
        &self,
        py: Python<'_>,
        cluster: Option<&Cluster>,
    ) -> PyResult<Option<(u32, Vec<EndedTask>, bool)>> {
        let next = async {
            let (client, told) = &mut *self.connection.lock().await;
            let look = Instant::now() + WATCH_PARTS;
            loop {
                let reply = tokio::select! {
                    reply = client.next() => match reply {
                        Ok(reply) => reply,
                        Err(error) => return Err(why_lost(error, cluster).await),
                    },
                    told = told.recv() => match told {
                        Some(Told::Follow(run)) => {
                            client.follow_ends(run).map_err(of)?;
                            continue;
                        }
                        Some(Told::Stop) | None => return Ok(None),
                    },
                    () = tokio::time::sleep_until(look), if cluster.is_some() => {
                        cluster.map_or(Ok(()), Cluster::look_after).map_err(of_part_end)?;
                        return Ok(Some((0, vec![], false)));
                    }
                };
                match reply.body {
                    ReplyBody::Prints { run, tasks, next, .. } => {
                        let tasks = tasks.into_iter().map(EndedTask::of).collect();
                        return Ok(Some((run.0, tasks, next.is_none())));
                    }
                    ReplyBody::Refused { reason } => return Err(of(NetError::Refused(reason))),
                    _ => {}
                }
            }
        };
        wait_for(py, &self.runtime, next)?
    }
}

/// The error where a connection was lost. A dispatcher of this process that has ended is seen a moment after its connection.
async fn why_lost(error: NetError, cluster: Option<&Cluster>) -> PyErr {
    for _ in 0..cluster.map_or(0, |_| LOOKS_MAX) {
        if let Err(ended) = cluster.map_or(Ok(()), Cluster::look_after) {
            return of_part_end(ended);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    of(error)
}
