//! Writing sessions.

use std::sync::{Mutex, PoisonError};

use bedform::ErrorKind;
use bedform::comm::{Alone, Communicator, Members};
use bedform::log::session::{AtEnd, SessionOptions};
use bedform_format::ObjectPath;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Data, interrupted, stopped};
use crate::comm::PythonMessages;
use crate::error::raise;
use crate::selection::parse;

/// A writing session; used up by `close`.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Session {
    inner: Mutex<Option<bedform::log::session::Session>>,
}

impl Session {
    /// A session of the processes that `messages` reaches, or of this one alone.
    pub(crate) fn begin(
        store: &bedform::Store,
        buffer_bytes: Option<usize>,
        messages: Option<PythonMessages>,
    ) -> bedform::Result<Self> {
        let mut options = SessionOptions::default();
        if let Some(bytes) = buffer_bytes {
            options.buffer_bytes = bytes;
        }
        let members: Box<dyn Communicator> = match messages {
            None => Box::new(Alone),
            Some(messages) => Box::new(Members::new(Box::new(messages))),
        };
        let session = store.session(members, options)?;
        Ok(Self { inner: Mutex::new(Some(session)) })
    }

    fn take(&self) -> Option<bedform::log::session::Session> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take()
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

    /// Commits what is left, settles if told to, and ends the session.
    fn end(&self, py: Python<'_>, settle: bool) -> PyResult<()> {
        let Some(session) = self.take() else { return Ok(()) };
        let at_end = if settle { AtEnd::Settle } else { AtEnd::Leave };
        py.detach(|| session.close(at_end, &interrupted())).map_err(|error| stopped(py, error))
    }

    /// Ends the session. What was not committed is gone.
    fn close(&self, py: Python<'_>) {
        if let Some(session) = self.take() {
            py.detach(|| session.leave());
        }
    }
}
