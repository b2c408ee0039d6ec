//! A connection to a cluster: work is given, asked about and cancelled.

use crate::calls::{Call, tasks_of};
use crate::cluster::Cluster;
use crate::ends::EndedTask;
use crate::error::{of, of_fault, of_options, sentence};
use crate::wait::{deadline, runtime, wait_for, wait_until};
use eyas_cli::words::{self, Room};
use eyas_cli::{Exit, Fault};
use eyas_client::{Client, JoinFile};
use eyas_cluster::reach::reach;
use eyas_cluster::users::let_in;
use eyas_cluster::watch::{Event, Watch};
use eyas_net::NetError;
use eyas_tasklist::TaskList;
use eyas_terms::{AttemptNo, RunId};
use eyas_wire::message::{Addition, Keep, RunStatus, TaskName, WhichTasks};
use eyas_wire::users::ClusterRights;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// How often a run that is waited for is reported.
const INTERVAL_NS: u64 = 200_000_000;

#[pyclass(frozen)]
pub struct Connection {
    runtime: Runtime,
    client: Mutex<Option<Client>>,
    file: JoinFile,
    /// What a node of the cluster has for one task, where that is known.
    room: Option<Arc<Room>>,
}

fn as_json(status: &RunStatus) -> String {
    serde_json::to_string(status).expect("it has a form in JSON")
}

/// Does something with the client of a connection. A connection that broke is made again for the next question.
macro_rules! ask {
    ($self:ident, $py:ident, |$client:ident| $work:expr) => {
        wait_for($py, &$self.runtime, async {
            let mut held = $self.client.lock().await;
            let $client = match &mut *held {
                Some(client) => client,
                none => none.insert(reach(&$self.file, |_| ()).await.map_err(|unreached| unreached.error)?),
            };
            let result = $work.await;
            if matches!(result, Err(NetError::Closed | NetError::Broken(_))) {
                *held = None;
            }
            result
        })?
        .map_err(of)
    };
}

fn rights_of(text: Option<&str>) -> PyResult<Option<ClusterRights>> {
    text.map(|text| text.parse().map_err(|why| of_fault(Fault::new(Exit::BadInput, why)))).transpose()
}

impl Connection {
    /// Gives tasks to the cluster as a new run.
    fn submit(&self, py: Python<'_>, name: &str, keep: Keep, list: TaskList) -> PyResult<u32> {
        self.check(&list)?;
        let run = ask!(self, py, |client| client.submit(name, keep, list.shared_arrays(), |_| ()))?;
        Ok(run.0)
    }

    /// Refuses tasks that no node will have room for.
    fn check(&self, list: &TaskList) -> PyResult<()> {
        self.room.as_ref().map_or(Ok(()), |room| room.check(list)).map_err(of_options)
    }
}

#[pymethods]
impl Connection {
    /// `own`: the cluster of this process that it is to.
    #[new]
    #[pyo3(signature = (join, own))]
    fn new(py: Python<'_>, join: PathBuf, own: Option<&Cluster>) -> PyResult<Connection> {
        let (runtime, file) = (runtime(), JoinFile::named(join));
        let client =
            wait_for(py, &runtime, reach(&file, |_| ()))?.map_err(|unreached| of(unreached.error))?;
        let room = own.and_then(|own| own.room.clone());
        Ok(Connection { client: Mutex::new(Some(client)), file, runtime, room })
    }

    /// The path of the join file.
    fn join(&self) -> PathBuf {
        self.file.path().to_path_buf()
    }

    /// Gives the tasks of a map. Gives the number of the run, and how many tasks it has.
    fn submit_map(
        &self,
        py: Python<'_>,
        name: &str,
        options: Vec<String>,
        files: Vec<String>,
        command: Vec<String>,
    ) -> PyResult<(u32, u64)> {
        let list = py.detach(|| words::map_tasks(&options, files, &command)).map_err(of_options)?;
        let n_tasks = list.n_tasks;
        Ok((self.submit(py, name, Keep::default(), list)?, n_tasks))
    }

    /// Has files of home brought to nodes; none named: to all. Gives the number of the run.
    fn push(&self, py: Python<'_>, name: &str, places: Vec<String>, nodes: Vec<String>) -> PyResult<u32> {
        let files = py.detach(|| words::pushed_files(&places)).map_err(of_fault)?;
        let run = ask!(self, py, |client| client.push(name, &files, &nodes, |_| ()))?;
        Ok(run.0)
    }

    /// Gives the tasks of a list in JSON Lines. Gives the number of the run, and how many tasks it has.
    fn submit_list(&self, py: Python<'_>, name: &str, lines: &str, origin: &str) -> PyResult<(u32, u64)> {
        let list = py.detach(|| words::listed_tasks(lines, origin)).map_err(of_fault)?;
        let n_tasks = list.n_tasks;
        Ok((self.submit(py, name, Keep::default(), list)?, n_tasks))
    }

    /// Gives the tasks of a file: a list of tasks or commands, or a workflow. Gives the number of the run, and how many tasks it has.
    fn submit_file(&self, py: Python<'_>, name: &str, path: PathBuf) -> PyResult<(u32, u64)> {
        let list = py.detach(|| words::tasks_in(&path)).map_err(of_fault)?;
        let n_tasks = list.n_tasks;
        Ok((self.submit(py, name, Keep::default(), list)?, n_tasks))
    }

    /// Gives calls of functions: to the run `into`, as long as it goes on, or as a new run. `token`: calls that were added under it are
    /// not added again. Gives the number of the run; `None`: `into` takes no more, as no run takes more where several dispatchers have
    /// its calls: they tell of the ends of their own parts, and a part may have ended. `listener`: whose [`crate::ends::Ends`] are to
    /// hear of them; also says whether these do, as long as they are the same, or have to follow the run.
    #[pyo3(signature = (name, calls, into, token, listener))]
    fn submit_calls(
        &self,
        py: Python<'_>,
        name: &str,
        calls: Vec<Call>,
        into: Option<u32>,
        token: &str,
        listener: u64,
    ) -> PyResult<(Option<u32>, bool)> {
        let list = tasks_of(calls, "/".as_ref()).map_err(|e| of(Fault::from(e)))?;
        self.check(&list)?;
        let Some(run) = into.map(RunId) else {
            // Answers of functions are read to their last byte.
            let keep = Keep { files: false, printed: true };
            let arrays = list.shared_arrays();
            let (run, is_heard) =
                ask!(self, py, |client| client.submit_for(listener, name, keep, arrays, |_| ()))?;
            return Ok((Some(run.0), is_heard));
        };
        let addition =
            Addition { run, token: token.into(), digest: words::digest_of(&list).map_err(of_fault)? };
        let added = wait_for(py, &self.runtime, async {
            let mut held = self.client.lock().await;
            let client = match &mut *held {
                Some(client) => client,
                none => none.insert(reach(&self.file, |_| ()).await.map_err(|unreached| unreached.error)?),
            };
            match client.is_to_several() {
                true => Ok(None),
                false => client.add(name, addition, list.shared_arrays(), |_| ()).await.map(Some),
            }
        })?;
        match added {
            Ok(accepted) => Ok((accepted.map(|accepted| accepted.run.0), true)),
            Err(NetError::Refused(_)) => Ok((None, false)),
            Err(error) => Err(of(error)),
        }
    }

    /// How a run is, as JSON.
    fn run_status(&self, py: Python<'_>, run: u32) -> PyResult<Option<String>> {
        let status = ask!(self, py, |client| client.status())?;
        Ok(status.runs.iter().find(|of| of.run == RunId(run)).map(as_json))
    }

    /// How the cluster is, as JSON.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let status = ask!(self, py, |client| client.status())?;
        Ok(serde_json::to_string(&status).expect("it has a form in JSON"))
    }

    /// All users of the cluster, as JSON.
    fn users(&self, py: Python<'_>) -> PyResult<String> {
        Ok(words::users_in_json(&ask!(self, py, |client| client.users())?))
    }

    /// Lets a user in: writes the join file that is their key. Gives the user, in a list in JSON.
    #[pyo3(signature = (name, out, rights, weight))]
    fn add_user(
        &self,
        py: Python<'_>,
        name: &str,
        out: PathBuf,
        rights: Option<&str>,
        weight: Option<u32>,
    ) -> PyResult<String> {
        let rights = rights_of(rights)?;
        let target = self.file.read().map_err(of)?;
        let user = wait_for(py, &runtime(), let_in(&target, name, &out, rights, weight))?.map_err(of)?;
        Ok(words::users_in_json(&[user]))
    }

    /// Changes what a user may do, or their part of the cluster. Gives all users, as JSON.
    #[pyo3(signature = (name, rights, weight))]
    fn set_user(
        &self,
        py: Python<'_>,
        name: &str,
        rights: Option<&str>,
        weight: Option<u32>,
    ) -> PyResult<String> {
        let rights = rights_of(rights)?;
        let users = ask!(self, py, |client| client.set_user(name, None, rights, weight))?;
        Ok(words::users_in_json(&users))
    }

    /// Takes a user's key back.
    fn remove_user(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        ask!(self, py, |client| client.remove_user(name)).map(drop)
    }

    /// Cancels a task of a run, or all of them. Gives how many had not ended.
    #[pyo3(signature = (run, task))]
    fn cancel(&self, py: Python<'_>, run: u32, task: Option<String>) -> PyResult<u64> {
        let task = task.map(TaskName::User);
        ask!(self, py, |client| client.cancel(Some(RunId(run)), task))
    }

    /// Tasks of a run that have ended, from a position on: these, and the position to continue from.
    fn tasks(&self, py: Python<'_>, run: u32, from: u64) -> PyResult<(Vec<EndedTask>, Option<u64>)> {
        let prints = ask!(self, py, |client| client.prints(Some(RunId(run)), WhichTasks::Ended, from))?;
        let next = prints.next.filter(|_| !prints.is_early);
        Ok((prints.tasks.into_iter().map(EndedTask::of).collect(), next))
    }

    /// The first tasks of a run that failed.
    fn failed(&self, py: Python<'_>, run: u32) -> PyResult<Vec<EndedTask>> {
        let prints = ask!(self, py, |client| client.prints(Some(RunId(run)), WhichTasks::Failed, 0))?;
        Ok(prints.tasks.into_iter().map(EndedTask::of).collect())
    }

    /// All that an attempt of a task printed to standard output; nothing more is kept of it then.
    fn printed_whole(&self, py: Python<'_>, run: u32, task: String, attempt: u32) -> PyResult<Vec<u8>> {
        ask!(self, py, |client| async {
            let asked = client.printed(Some(RunId(run)), TaskName::User(task)).await?;
            let mut whole = vec![];
            loop {
                let at = whole.len() as u64;
                let part = client.printed_part(&asked, AttemptNo(attempt), at, false).await?;
                if part.is_empty() {
                    client.printed_part(&asked, AttemptNo(attempt), at, true).await?;
                    return Ok(whole);
                }
                whole.extend(part);
            }
        })
    }

    /// The story of a task in lines.
    fn explain(&self, py: Python<'_>, run: u32, task: String) -> PyResult<String> {
        let explained = ask!(self, py, |client| client.explain(Some(RunId(run)), TaskName::User(task)))?;
        Ok(words::story_lines(explained))
    }

    /// The page of `eyas report` on a run, and the same as JSON; `None`: its dispatcher is on another machine.
    fn report(&self, py: Python<'_>, run: u32) -> PyResult<Option<(String, String)>> {
        let target = self.file.read().map_err(of)?;
        let Some(dir) = target.dir_here() else { return Ok(None) };
        py.detach(|| words::report_page(dir, RunId(run))).map(Some).map_err(of_fault)
    }

    /// Waits for a run, for at most so many seconds: how it is then, as JSON, and the lines that `eyas run` ends with. `cluster`: the
    /// cluster of this process that the run is on. `shown` is called with how the run is, as JSON, again and again.
    #[pyo3(signature = (run, cluster, seconds, shown))]
    fn wait(
        &self,
        py: Python<'_>,
        run: u32,
        cluster: Option<&Cluster>,
        seconds: Option<f64>,
        shown: Option<Py<PyAny>>,
    ) -> PyResult<Option<(String, Vec<String>)>> {
        let work = async {
            // Another wait may be looking after the cluster already.
            let mut own = cluster.and_then(|cluster| cluster.own.try_lock().ok());
            let own = own.as_mut().and_then(|own| own.as_mut()).map(|own| &mut own.cluster);
            let client = reach(&self.file, |_| ()).await.map_err(|unreached| of(unreached.error))?;
            let mut watch = Watch::begin(client, RunId(run), INTERVAL_NS, own).map_err(of)?;
            loop {
                match watch.next().await.map_err(|broken| of_fault(sentence(broken)))? {
                    Event::Run(status) if status.ended.is_some() => return Ok(status),
                    Event::Run(status) => {
                        if let Some(shown) = &shown {
                            Python::attach(|py| shown.call1(py, (as_json(&status),)))?;
                        }
                    }
                    _ => {}
                }
            }
        };
        // The connection's own runtime may be in use by another thread.
        let ended: Option<PyResult<Box<RunStatus>>> = wait_until(py, &runtime(), deadline(seconds), work)?;
        let ended = ended.transpose()?;
        Ok(ended.map(|status| (as_json(&status), words::closing_lines(&status))))
    }
}
