//! Errors of the engine as one Python exception that carries the kind; `bedform._errors` maps kinds
//! to classes.

use std::ffi::CString;

use bedform::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyUserWarning};
use pyo3::prelude::*;
use serde::Serialize;

use crate::signals;

create_exception!(
    bedform._internal,
    EngineError,
    PyException,
    "A failed operation of the engine: `args` are the kind's name and the message."
);

/// Converts an error of the engine to a Python exception.
pub(crate) fn raise(error: Error) -> PyErr {
    let raised = signals::take();
    if error.kind() == ErrorKind::Interrupted {
        return raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(()));
    }
    let error = EngineError::new_err((error.kind().name(), error.to_string()));
    let Some(raised) = raised else { return error };
    // The engine's error becomes the cause: an interrupted write, for example, may have an unknown
    // outcome.
    let _ = Python::try_attach(|py| raised.set_cause(py, Some(error)));
    raised
}

/// Returns the result of work, unless a signal's handler or a callback has raised an exception
/// meanwhile.
pub(crate) fn ended<T>(outcome: Result<T, Error>) -> PyResult<T> {
    let done = outcome.map_err(raise)?;
    signals::take().map_or(Ok(done), Err)
}

/// Returns a value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> bedform::Result<String> {
    serde_json::to_string(value).map_err(|error| Error::invalid(error.to_string()))
}

/// Returns the names of all kinds of errors, for a test that compares them with Python's classes.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<&'static str> {
    ErrorKind::ALL.iter().map(|kind| kind.name()).collect()
}

/// Shows each line as a `UserWarning`.
pub(crate) fn warn(py: Python<'_>, lines: Vec<String>) -> PyResult<()> {
    for line in lines {
        let line = CString::new(line.replace('\0', "?")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &line, 3)?;
    }
    Ok(())
}
