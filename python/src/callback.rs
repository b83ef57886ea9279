//! Python functions that read regions for the engine.
//!
//! A call holds the interpreter only as long as it runs. An exception is stored on the reading
//! thread; it ends the work, and is raised unchanged in place of the work's error.

use std::sync::Arc;

use bedform::foreign::ReadElements;
use bedform::{Error, ErrorKind};
use bedform_geometry::Region;
use pyo3::prelude::*;

use crate::array::BufferBytes;
use crate::error::raise;
use crate::signals;

/// Calls a function with a region, and converts its result. An exception is stored and ends the
/// work.
pub(crate) fn called<T>(
    read: &Py<PyAny>,
    region: &Region,
    take: impl FnOnce(Bound<'_, PyAny>) -> PyResult<T>,
) -> bedform::Result<T> {
    kept_from("a function that reads elements has failed", |py| {
        let given = read.bind(py).call1((region.start().to_vec(), region.shape().to_vec()))?;
        take(given)
    })
}

/// Calls `act` with the interpreter. An exception is stored, and ends the work with the message
/// `failure`.
pub(crate) fn kept_from<T>(
    failure: &str,
    act: impl FnOnce(Python<'_>) -> PyResult<T>,
) -> bedform::Result<T> {
    Python::attach(act).map_err(|error| {
        signals::keep(error);
        Error::new(ErrorKind::Interrupted, failure)
    })
}

/// Wraps a Python function that returns the elements of a region as a buffer, for calls by the
/// engine.
pub(crate) fn elements_by(read: Py<PyAny>) -> Arc<ReadElements> {
    Arc::new(move |region, buffer| {
        called(&read, region, |given| {
            let elements = BufferBytes::of(&given, false)?;
            let elements = elements.get();
            if elements.len() != buffer.len() {
                return Err(raise(Error::invalid("the elements of a region have another size")));
            }
            buffer.copy_from_slice(elements);
            Ok(())
        })
    })
}
