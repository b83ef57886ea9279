//! The class `Session`.

use std::sync::{Mutex, PoisonError};

use bedform::Elements;
use bedform::ErrorKind;
use bedform::comm::{Alone, Communicator, Members};
use bedform::log::session::{Decomposition, LentData, SessionOptions, Token, decline};
use bedform::panics::session_panicked;
use bedform_format::log::Boxes;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Map, Value};

use crate::arguments::{new_arrays, path_of};
use crate::array::GivenElements;
use crate::comm::PythonMessages;
use crate::error::raise;
use crate::selection::parse;
use crate::signals::detached;

/// A writing session; `end` or `close` ends it.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Session {
    inner: Mutex<Option<bedform::log::session::Session>>,
    /// Borrowed buffers, with the tokens of their writes. Dropped after `inner`, whose thread reads
    /// them.
    lent: Mutex<Vec<(u64, GivenElements)>>,
    /// The process that began the session: `bedform._session` rejects others.
    process: u32,
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A fork may have copied the session while a thread was changing it.
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(inner.take());
        }
    }
}

/// The bytes of a buffer that `Session::lent` keeps alive.
struct Lent {
    pointer: *const u8,
    length: usize,
}

// SAFETY: the buffer stays alive and unchanged until the session drops this.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as above; the pointer and the length are those of a slice.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }
}

impl Session {
    /// Begins a session of the processes that `messages` reaches, or of this process alone.
    pub(crate) fn begin(
        store: &bedform::Store,
        options: &Map<String, Value>,
        messages: Option<PythonMessages>,
    ) -> bedform::Result<Self> {
        let members: Box<dyn Communicator> = match messages {
            None => Box::new(Alone),
            Some(messages) => Box::new(Members::new(Box::new(messages))),
        };
        let options = match SessionOptions::from_json(options, &**store.storage()) {
            Ok(options) => options,
            // The other processes wait in this collective call.
            Err(error) => return Err(decline(members, error)),
        };
        let session = store.session(members, options)?;
        let (inner, lent) = (Mutex::new(Some(session)), Mutex::default());
        Ok(Self { inner, lent, process: std::process::id() })
    }

    /// Takes the session; later calls of it fail.
    fn take(&self) -> Option<bedform::log::session::Session> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Calls `write` with the elements of `buffer` in place, and keeps the buffer alive.
    fn keep_lent(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        write: impl FnOnce(&mut bedform::log::session::Session, LentData) -> bedform::Result<Token>
        + Send,
    ) -> PyResult<u64> {
        let data = GivenElements::of(buffer)?;
        let bytes = bytes_of(&data)?;
        let lent = Lent { pointer: bytes.as_ptr(), length: bytes.len() };
        let taken = detached(py, || self.with(|session| write(session, Box::new(lent))));
        // After an error the buffer is kept to the end: a thread may still be writing some of it.
        let token = taken.as_ref().map_or(u64::MAX, |token| token.number());
        self.lent.lock().unwrap_or_else(PoisonError::into_inner).push((token, data));
        taken.map(Token::number).map_err(raise)
    }

    /// Releases the borrowed buffers of writes up to `token`.
    fn give_back(&self, token: u64) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|(number, _)| *number > token);
    }

    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&mut bedform::log::session::Session) -> bedform::Result<T>,
    ) -> bedform::Result<T> {
        let mut inner = self.inner.lock().map_err(|_| session_panicked())?;
        match inner.as_mut() {
            Some(session) => act(session),
            None => Err(bedform::Error::new(
                ErrorKind::InvalidArgument,
                "the session is closed; start a new one",
            )),
        }
    }
}

/// Makes boxes of `rank` axes from their concatenated starts and shapes.
fn boxes_of(rank: usize, starts: Vec<u64>, shapes: Vec<u64>) -> PyResult<Boxes> {
    Boxes::new(rank, starts, shapes)
        .map_err(|error| raise(bedform::Error::invalid(error.to_string())))
}

pub(crate) fn bytes_of(data: &GivenElements) -> PyResult<&[u8]> {
    match data {
        GivenElements::Bytes(owner) => Ok(owner.get()),
        GivenElements::Text(_) => {
            let text = "sessions do not take text";
            Err(raise(bedform::Error::new(ErrorKind::Unsupported, text)))
        }
    }
}

#[pymethods]
impl Session {
    /// Writes the elements of `buffer` to `selection` of the array at `path`; they become visible
    /// with the commit.
    fn write(
        &self,
        py: Python<'_>,
        path: &str,
        selection: &Bound<'_, PyTuple>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (path, selection) = (path_of(path)?, parse(selection)?);
        let data = GivenElements::of(buffer)?;
        detached(py, || {
            self.with(|session| {
                data.with(|elements| session.write(&path, &selection, elements).map(drop))
            })
        })
        .map_err(raise)
    }

    /// Writes as `write` does, without a copy: the elements must stay unchanged until `wait` for
    /// the returned token, or the next commit.
    fn lend(
        &self,
        py: Python<'_>,
        path: &str,
        selection: &Bound<'_, PyTuple>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let (path, selection) = (path_of(path)?, parse(selection)?);
        self.keep_lent(py, buffer, |session, lent| session.write_held(&path, &selection, lent))
    }

    /// Waits until the buffers lent up to `token` may change.
    fn wait(&self, py: Python<'_>, token: u64) -> PyResult<()> {
        let outcome = detached(py, || self.with(|session| session.wait(Token::from_number(token))));
        outcome.map_err(raise)?;
        self.give_back(token);
        Ok(())
    }

    /// Passes all data written so far to the operating system.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.with(bedform::log::session::Session::flush)).map_err(raise)
    }

    /// Writes boxes, as `write` does.
    fn write_boxes(
        &self,
        py: Python<'_>,
        path: &str,
        starts: Vec<u64>,
        shapes: Vec<u64>,
        rank: usize,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (path, boxes) = (path_of(path)?, boxes_of(rank, starts, shapes)?);
        let data = GivenElements::of(buffer)?;
        let bytes = bytes_of(&data)?;
        detached(py, || self.with(|session| session.write_boxes(&path, boxes, bytes).map(drop)))
            .map_err(raise)
    }

    /// Declares boxes, and returns their number; forgets earlier ones by their numbers.
    fn declare(
        &self,
        py: Python<'_>,
        starts: Vec<u64>,
        shapes: Vec<u64>,
        rank: usize,
        forgotten: Vec<u64>,
    ) -> PyResult<u64> {
        let boxes = boxes_of(rank, starts, shapes)?;
        let declare = |session: &mut bedform::log::session::Session| {
            forgotten
                .into_iter()
                .map(Decomposition::from_number)
                .for_each(|one| session.forget(one));
            session.declare(boxes).map(Decomposition::number)
        };
        detached(py, || self.with(declare)).map_err(raise)
    }

    /// Writes declared boxes, as `write_boxes` does, at index `record` along the first axis if it
    /// is given.
    #[pyo3(signature = (path, record, decomposition, buffer))]
    fn write_declared(
        &self,
        py: Python<'_>,
        path: &str,
        record: Option<u64>,
        decomposition: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (path, data) = (path_of(path)?, GivenElements::of(buffer)?);
        let bytes = bytes_of(&data)?;
        let parts = Decomposition::from_number(decomposition);
        let write = |session: &mut bedform::log::session::Session| {
            session.write_declared(&path, record, parts, bytes).map(drop)
        };
        detached(py, || self.with(write)).map_err(raise)
    }

    /// Writes as `write_declared` does, without a copy: see `lend`.
    #[pyo3(signature = (path, record, decomposition, buffer))]
    fn lend_declared(
        &self,
        py: Python<'_>,
        path: &str,
        record: Option<u64>,
        decomposition: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let path = path_of(path)?;
        let parts = Decomposition::from_number(decomposition);
        self.keep_lent(py, buffer, |session, lent| {
            session.write_declared_held(&path, record, parts, lent)
        })
    }

    /// Creates arrays, each given by a path and a description in JSON, that become visible with the
    /// next commit.
    fn create_arrays(&self, py: Python<'_>, arrays: Vec<(String, String)>) -> PyResult<()> {
        let options = self.with(|session| Ok(session.options().clone()));
        let new = new_arrays(&arrays, &options.map_err(raise)?)?;
        detached(py, || self.with(|session| session.create_arrays(&new))).map_err(raise)
    }

    /// Looks an array up. If another array replaces it later, the next commit is a conflict.
    fn look_up(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let path = path_of(path)?;
        detached(py, || self.with(|session| session.look_up(&path))).map_err(raise)
    }

    /// Makes an array larger with the next commit.
    fn resize(&self, py: Python<'_>, path: &str, shape: Vec<u64>) -> PyResult<()> {
        let path = path_of(path)?;
        detached(py, || self.with(|session| session.resize(&path, &shape))).map_err(raise)
    }

    /// Appends along an axis; returns the index of this process's first element.
    fn append(
        &self,
        py: Python<'_>,
        path: &str,
        axis: usize,
        shape: Vec<u64>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let (path, data) = (path_of(path)?, GivenElements::of(buffer)?);
        let elements = Elements::Bytes(bytes_of(&data)?);
        detached(py, || self.with(|session| session.append(&path, axis, &shape, elements)))
            .map_err(raise)
    }

    /// Makes the writes visible; returns the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let outcome = detached(py, || self.with(bedform::log::session::Session::commit));
        let number = outcome.map_err(raise)?;
        self.give_back(u64::MAX);
        Ok(number)
    }

    /// Begins a commit, which [`commit`] completes.
    fn commit_begin(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.with(bedform::log::session::Session::commit_begin)).map_err(raise)
    }

    /// Waits until all commits are visible; returns the number of the last one.
    fn drain(&self, py: Python<'_>) -> PyResult<u64> {
        detached(py, || self.with(bedform::log::session::Session::drain)).map_err(raise)
    }

    /// Commits the remaining writes, settles if configured, and ends the session.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let has_panicked = self.inner.is_poisoned();
        let Some(session) = self.take() else { return Ok(()) };
        let outcome = detached(py, || match has_panicked {
            true => {
                session.leave();
                Err(session_panicked())
            }
            false => session.close(),
        });
        self.give_back(u64::MAX);
        outcome.map_err(raise)
    }

    /// Ends the session without a commit; uncommitted writes are lost.
    fn close(&self, py: Python<'_>) {
        if let Some(session) = self.take() {
            detached(py, || session.leave());
        }
        self.give_back(u64::MAX);
    }
}
