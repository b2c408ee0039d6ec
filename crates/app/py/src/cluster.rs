//! A cluster of this process.

use crate::error::{of, of_fault};
use crate::wait::{runtime, wait_for};
use eyas_cli::words::OwnCluster;
use pyo3::prelude::*;
use std::path::PathBuf;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

#[pyclass(frozen)]
pub struct Cluster {
    runtime: Runtime,
    pub(crate) own: Mutex<Option<OwnCluster>>,
    join: PathBuf,
    dir: PathBuf,
}

#[pymethods]
impl Cluster {
    /// Starts a cluster as `eyas run` does with these options.
    #[staticmethod]
    fn start(py: Python<'_>, options: Vec<String>) -> PyResult<Cluster> {
        let own = py.detach(|| OwnCluster::start(&options)).map_err(of_fault)?;
        let (join, dir) = (own.cluster.target().path().to_path_buf(), own.cluster.dir().to_path_buf());
        Ok(Cluster { runtime: runtime(), own: Mutex::new(Some(own)), join, dir })
    }

    /// The path of the join file.
    fn join(&self) -> PathBuf {
        self.join.clone()
    }

    /// The cluster's folder.
    fn dir(&self) -> PathBuf {
        self.dir.clone()
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
