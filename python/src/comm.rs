//! The communicator of a session, over `bedform._comm.MpiMessages`.

use bedform::comm::{Members, Messages, ReceivedMessage, SentMessage};
use bedform::{Error, ErrorKind, Result};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::BufferBytes;
use crate::signals::{detached, warn};

/// Reports a wait of `seconds` for the processes with the ranks `missing`: logs a due warning, and
/// returns true to end the wait.
#[pyfunction]
pub(crate) fn wait_on(py: Python<'_>, seconds: f64, missing: Vec<u32>) -> PyResult<bool> {
    let due = bedform::comm::wait_on(seconds, &missing);
    if let Some(warning) = due.warning {
        warn(py, "%s", &warning)?;
    }
    Ok(due.gives_up)
}

/// Tells the other processes of a collective call that this process cannot take part, with the kind
/// and text of its error.
#[pyfunction]
pub(crate) fn decline(comm: &Bound<'_, PyAny>, kind: &str, text: String) -> PyResult<()> {
    let members = Box::new(Members::new(Box::new(PythonMessages::of(comm)?)));
    let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind);
    let error = Error::new(kind.unwrap_or(ErrorKind::InvalidArgument), text);
    detached(comm.py(), || drop(bedform::log::session::decline(members, error)));
    Ok(())
}

/// The messages of a session, passed by a Python object.
#[derive(Debug)]
pub(crate) struct PythonMessages {
    object: Py<PyAny>,
    rank: u32,
    size: u32,
}

impl PythonMessages {
    /// Wraps `object`, which the caller frees.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (rank, size) = (object.getattr("rank")?.extract()?, object.getattr("size")?.extract()?);
        Ok(Self { object: object.clone().unbind(), rank, size })
    }

    /// Calls a method; its exception becomes an error of the engine.
    fn call<T>(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T> {
        Python::attach(|py| act(self.object.bind(py)).map_err(|error| lost(py, &error)))
    }
}

fn lost(py: Python<'_>, error: &PyErr) -> Error {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Error::new(ErrorKind::Interrupted, "stopped while waiting for other processes");
    }
    let text = format!("the processes of the session lost each other: {error}");
    Error::new(ErrorKind::Io, text.replace('\n', " "))
}

/// Copies the bytes that Python returned into `to`, which must have the same length.
fn copy(given: &Bound<'_, PyAny>, to: &mut [u8]) -> PyResult<()> {
    let mut given = BufferBytes::of(given, true)?;
    let given = given.get_mut();
    if given.len() != to.len() {
        let text = format!("{} bytes arrived in place of {}", given.len(), to.len());
        return Err(pyo3::exceptions::PyValueError::new_err(text));
    }
    to.copy_from_slice(given);
    Ok(())
}

impl Messages for PythonMessages {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn barrier(&self) -> Result<()> {
        self.call(|object| object.call_method0("barrier").map(drop))
    }

    fn broadcast(&self, bytes: &mut [u8], root: u32) -> Result<()> {
        self.call(|object| {
            let given = PyBytes::new(object.py(), bytes);
            copy(&object.call_method1("broadcast", (given, root))?, bytes)
        })
    }

    fn gather(&self, bytes: &[u8], all: &mut [u8], root: u32) -> Result<()> {
        self.call(|object| {
            let given = PyBytes::new(object.py(), bytes);
            copy(&object.call_method1("gather", (given, root))?, all)
        })
    }

    fn exchange(
        &self,
        sent: &[SentMessage<'_>],
        received: &mut [ReceivedMessage<'_>],
    ) -> Result<()> {
        self.call(|object| {
            let py = object.py();
            let sent: Vec<_> =
                sent.iter().map(|message| (message.to, PyBytes::new(py, message.bytes))).collect();
            let wanted: Vec<_> =
                received.iter().map(|message| (message.from, message.bytes.len())).collect();
            let given = object.call_method1("exchange", (sent, wanted))?;
            for (message, given) in received.iter_mut().zip(given.try_iter()?) {
                copy(&given?, message.bytes)?;
            }
            Ok(())
        })
    }
}
