//! Errors for Python: the sentence, what to do about it, and the exit status that the command line would give.

use eyas_cli::Fault;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    eyas._ffi,
    FfiError,
    PyException,
    "Its arguments: the message, the hint or None, the exit status of the command line."
);

pub fn of_fault(fault: Fault) -> PyErr {
    FfiError::new_err((fault.message, fault.hint, fault.exit.code()))
}

pub fn of(error: impl Into<Fault>) -> PyErr {
    of_fault(error.into())
}
