//! Errors for Python: the sentence, what to do about it, and the exit status that the command line would give.

use eyas_cli::{Exit, Fault};
use eyas_cluster::watch::Broken;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    eyas._ffi,
    FfiError,
    PyException,
    "Its arguments: the message, the hint or None, the exit status of the command line."
);

create_exception!(
    eyas._ffi,
    PartEnded,
    FfiError,
    "A part of a cluster of this process ended without which it cannot go on."
);

/// The same of a cluster that cannot go on.
pub fn of_part_end(fault: Fault) -> PyErr {
    PartEnded::new_err((fault.message, fault.hint, fault.exit.code()))
}

pub fn of_fault(fault: Fault) -> PyErr {
    FfiError::new_err((fault.message, fault.hint, fault.exit.code()))
}

/// The same of options that stand in a message as `--home-wait`, and are arguments of Python: `home_wait`.
pub fn of_options(fault: Fault) -> PyErr {
    let hint = fault.hint.as_deref().map(arguments_of);
    of_fault(Fault { message: arguments_of(&fault.message), hint, ..fault })
}

/// The text with options of the command line as arguments of Python. What stands between backticks is a command, and stays.
fn arguments_of(text: &str) -> String {
    let (mut made, mut is_command) = (String::new(), false);
    let mut left = text;
    while let Some(sign) = left.chars().next() {
        let option =
            left.strip_prefix("--").filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        if let (false, Some(rest)) = (is_command, option) {
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
            made.push_str(&rest[..end].replace('-', "_"));
            left = &rest[end..];
            continue;
        }
        is_command ^= sign == '`';
        made.push(sign);
        left = &left[sign.len_utf8()..];
    }
    made
}

pub fn of(error: impl Into<Fault>) -> PyErr {
    of_fault(error.into())
}

/// Why a run cannot be waited for any longer, in a sentence.
pub fn sentence(broken: Broken) -> Fault {
    let lost = |what: String| Fault::new(Exit::Cluster, what);
    match broken {
        Broken::Lost(error) => lost(format!("lost the dispatcher: {error}")),
        Broken::OwnLost { ended: Some((name, why)), .. } | Broken::PartEnded { name, why, .. } => {
            lost(format!("{name} ended: {why}"))
        }
        Broken::OwnLost { error, ended: None } => lost(format!("lost the dispatcher: {error}")),
        Broken::Unreached(unreached) => unreached.error.into(),
        Broken::Refused(reason) => Fault::new(Exit::BadInput, reason),
        Broken::NoNode { last } => lost(format!("no node is left; {last} was the last")),
        Broken::Process(error) => error.into(),
    }
}
