//! A cluster of this process.

use crate::error::{of, of_options, sentence};
use crate::options::{Value, cluster_args};
use crate::wait::{runtime, wait_for};
use eyas_cli::Fault;
use eyas_cli::words::{OwnCluster, Room};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

#[pyclass(frozen, weakref)]
pub struct Cluster {
    runtime: Runtime,
    pub(crate) own: Mutex<Option<OwnCluster>>,
    pub(crate) room: Option<Arc<Room>>,
    join: PathBuf,
    dir: PathBuf,
    spool: PathBuf,
}

#[pymethods]
impl Cluster {
    /// Starts a cluster as `eyas run` does with these options, whose names are those of Python. `python`: the Python that asks.
    #[staticmethod]
    fn start(py: Python<'_>, options: Vec<(String, Value)>, python: PathBuf) -> PyResult<Cluster> {
        let start = || OwnCluster::start(&cluster_args(options, python)?);
        let mut own = py.detach(start).map_err(of_options)?;
        let (join, dir) = (own.cluster.target().path().to_path_buf(), own.cluster.dir().to_path_buf());
        let (spool, room) = (own.spool(), own.room.take().map(Arc::new));
        Ok(Cluster { runtime: runtime(), own: Mutex::new(Some(own)), room, join, dir, spool })
    }

    /// The path of the join file.
    fn join(&self) -> PathBuf {
        self.join.clone()
    }

    /// The cluster's folder.
    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    /// A folder for files that go with the cluster, which is not made yet: all nodes can read it.
    fn spool(&self) -> PathBuf {
        self.spool.clone()
    }

    /// The parts and their process ids.
    fn processes(&self, py: Python<'_>) -> PyResult<Vec<(String, u32)>> {
        wait_for(py, &self.runtime, async {
            let own = self.own.lock().await;
            own.as_ref().map_or(vec![], |own| own.cluster.processes().pids())
        })
    }

    /// Ends all parts, once. Gives a sentence for each thing that may be left.
    fn end(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let ended = wait_for(py, &self.runtime, async {
            match self.own.lock().await.take() {
                Some(own) => own.end().await,
                None => Ok(vec![]),
            }
        })?;
        ended.map_err(of)
    }
}

impl Cluster {
    /// Looks after the parts, unless somebody does already. Errors: one ended without which the cluster cannot go on.
    pub(crate) fn look_after(&self) -> Result<(), Fault> {
        let Ok(mut own) = self.own.try_lock() else { return Ok(()) };
        let looked = own.as_mut().map_or(Ok(()), |own| own.cluster.look_after_parts(drop));
        looked.map_err(sentence)
    }
}
