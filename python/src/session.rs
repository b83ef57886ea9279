//! Writing sessions.

use std::sync::{Mutex, PoisonError};

use bedform::ErrorKind;
use bedform::comm::Alone;
use bedform::log::session::SessionOptions;
use bedform_format::ObjectPath;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::Data;
use crate::error::raise;
use crate::selection::parse;

/// A writing session; used up by `close`.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Session {
    inner: Mutex<Option<bedform::log::session::Session>>,
}

impl Session {
    /// A session of this process alone.
    pub(crate) fn alone(
        store: &bedform::Store,
        buffer_bytes: Option<usize>,
    ) -> bedform::Result<Self> {
        let mut options = SessionOptions::default();
        if let Some(bytes) = buffer_bytes {
            options.buffer_bytes = bytes;
        }
        let session = store.session(Box::new(Alone), options)?;
        Ok(Self { inner: Mutex::new(Some(session)) })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut bedform::log::session::Session) -> bedform::Result<T>,
    ) -> bedform::Result<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.as_mut() {
            Some(session) => act(session),
            None => Err(bedform::Error::new(
                ErrorKind::InvalidArgument,
                "the session is closed; start a new one",
            )),
        }
    }
}

#[pymethods]
impl Session {
    /// Takes the elements of `buffer` for `selection` of the array at `path`.
    fn write(
        &self,
        py: Python<'_>,
        path: &str,
        selection: &Bound<'_, PyTuple>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let path = ObjectPath::parse(path).map_err(|error| raise(error.into()))?;
        let selection = parse(selection)?;
        let data = Data::of(buffer)?;
        py.detach(|| {
            self.with(|session| {
                data.with(|elements| session.write(&path, &selection, elements).map(drop))
            })
        })
        .map_err(raise)
    }

    /// Makes what was written visible; gives the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.with(bedform::log::session::Session::commit)).map_err(raise)
    }

    /// Ends the session. What was not committed is gone.
    fn close(&self, py: Python<'_>) {
        let session = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(session));
    }
}
