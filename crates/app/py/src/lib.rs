//! eyas-py: what the Python package `eyas` is made of below its Python: connections, clusters of this process, runs.
//!
//! Python gets plain values: text, bytes, numbers, lists, and JSON where a value has many fields. What users see is in
//! `python/src/eyas`, and only `eyas._ffi` is this module.
//!
//! While this module waits, other threads of Python go on, and ^C is heard: a wait is cut into moments, between which Python
//! may raise what a signal's handler raises.
//!
//! Each connection and each cluster has a runtime of its own without threads, so that a process that forks leaves none behind.

#![forbid(unsafe_code)]

mod calls;
mod cluster;
mod connection;
mod ends;
mod error;
mod homes;
mod options;
mod wait;

use pyo3::prelude::*;

#[pymodule]
mod _ffi {
    #[pymodule_export]
    use super::cluster::Cluster;
    #[pymodule_export]
    use super::connection::Connection;
    #[pymodule_export]
    use super::ends::Ends;
    #[pymodule_export]
    use super::error::{FfiError, PartEnded};
    #[pymodule_export]
    use super::homes::{Homes, location_of};
    #[pymodule_export]
    use super::{files_of, prepare};
}

/// Has this process know the homes that the command line knows. `program`: the program `eyas`.
#[pyfunction]
fn prepare(program: std::path::PathBuf) -> PyResult<()> {
    eyas_cli::words::prepare(program).map_err(error::of_fault)
}

/// The files that a word of the command line stands for.
#[pyfunction]
fn files_of(word: &str) -> PyResult<Vec<String>> {
    eyas_cli::words::files_of(word).map_err(error::of_fault)
}
