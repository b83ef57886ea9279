//! Errors of the engine as one Python exception that carries the kind; `bedform._errors` maps kinds to
//! classes.

use bedform::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;

create_exception!(
    bedform._internal,
    EngineError,
    PyException,
    "A failed operation of the engine: `args` are the kind's name and the message."
);

/// The Python exception for an error of the engine.
pub(crate) fn raise(error: Error) -> PyErr {
    if error.kind() == ErrorKind::Interrupted {
        // What a signal handler raised, if it did.
        let raised = Python::try_attach(PyErr::take).flatten();
        return raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(()));
    }
    EngineError::new_err((error.kind().name(), error.to_string()))
}

/// The names of all kinds of errors, for the test that holds Python's classes against them.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<&'static str> {
    ErrorKind::ALL.iter().map(|kind| kind.name()).collect()
}
