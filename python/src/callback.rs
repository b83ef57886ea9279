//! Python functions that read regions, as the engine calls them.
//!
//! The interpreter is taken for the call alone. What a function raises is kept on the thread that reads
//! and ends the work, whose error it becomes, as it was raised.

use std::sync::Arc;

use bedform::foreign::ReadElements;
use bedform::{Error, ErrorKind};
use bedform_geometry::Region;
use pyo3::prelude::*;

use crate::array::Bytes;
use crate::error::raise;
use crate::signals;

/// What a function gives for a region; what it raises is kept, and ends the work.
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

/// What `act` gives; what it raises is kept, and ends the work, in which `failure` says what has happened.
pub(crate) fn kept_from<T>(
    failure: &str,
    act: impl FnOnce(Python<'_>) -> PyResult<T>,
) -> bedform::Result<T> {
    Python::attach(act).map_err(|error| {
        signals::keep(error);
        Error::new(ErrorKind::Interrupted, failure)
    })
}

/// A function that gives the elements of a region as a buffer, as the engine calls it: on the thread that
/// reads, which keeps what the function raises.
pub(crate) fn elements_by(read: Py<PyAny>) -> Arc<ReadElements> {
    Arc::new(move |region, buffer| {
        called(&read, region, |given| {
            let elements = Bytes::of(&given, false)?;
            let elements = elements.get();
            if elements.len() != buffer.len() {
                return Err(raise(Error::invalid("the elements of a region have another size")));
            }
            buffer.copy_from_slice(elements);
            Ok(())
        })
    })
}
