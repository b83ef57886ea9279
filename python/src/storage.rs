//! Storage backed by Python callbacks: reads another library's store.
//!
//! The Python object has three methods. `size(key)` returns the bytes of an object, or `None`;
//! `read(key, start, length)` returns bytes; `list(path)` returns the names directly below a path,
//! each with whether it is a directory. Threads of the engine call them, and hold the interpreter
//! only for the call. Objects never change: a version consists of the opened state of the store and
//! the key.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_storage::implement::unsupported;
use bedform_storage::{
    ListedEntry, Lock, Object, Storage, StorageError, StorageErrorKind, Version, lacks,
};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::signals;

type Result<T> = std::result::Result<T, StorageError>;

/// A read-only storage over Python callbacks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PythonStorage {
    calls: Arc<Py<PyAny>>,
    name: Arc<str>,
    /// The immutable state of the store that the objects belong to.
    state: Arc<str>,
    is_remote: bool,
    /// The directory that is the root of this storage.
    root: ObjectPath,
}

impl PythonStorage {
    pub(crate) fn new(name: &str, calls: Py<PyAny>, state: &str, is_remote: bool) -> Self {
        let root = ObjectPath::root();
        Self { calls: Arc::new(calls), name: name.into(), state: state.into(), is_remote, root }
    }

    fn key(&self, path: &ObjectPath) -> Result<ObjectPath> {
        if path.is_root() {
            return Ok(self.root.clone());
        }
        let key = self.root.join(path.as_str());
        key.map_err(|_| StorageError::new(StorageErrorKind::NotFound, "open", path))
    }

    fn version(&self, operation: &'static str, path: &ObjectPath) -> Result<Version> {
        let key = self.key(path)?;
        let size = called(operation, path, |py| {
            self.calls.bind(py).call_method1("size", (key.as_str(),))?.extract::<Option<u64>>()
        })?;
        let missing = || StorageError::new(StorageErrorKind::NotFound, operation, path);
        let size = size.ok_or_else(missing)?;
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(self.state.as_bytes());
        fingerprint.update(&[0]);
        fingerprint.update(key.as_str().as_bytes());
        Ok(Version { size, identity: fingerprint.halves(), ..Version::default() })
    }
}

/// Calls `act` with the interpreter; its exception becomes the error of the operation.
fn called<T>(
    operation: &'static str,
    path: &ObjectPath,
    act: impl FnOnce(Python<'_>) -> PyResult<T>,
) -> Result<T> {
    // In a daemon thread the interpreter may have ended.
    Python::try_attach(|py| act(py).map_err(|error| failed(py, operation, path, error)))
        .unwrap_or_else(|| Err(StorageError::new(StorageErrorKind::Interrupted, operation, path)))
}

/// Converts an exception to an error of storage. One that is not an `Exception`, such as Ctrl-C, is
/// stored and ends the work. A `CorruptError` of ours means invalid objects; every other exception
/// is an error of the other library's server.
fn failed(
    py: Python<'_>,
    operation: &'static str,
    path: &ObjectPath,
    error: PyErr,
) -> StorageError {
    if !error.is_instance_of::<PyException>(py) {
        signals::keep(error);
        return StorageError::new(StorageErrorKind::Interrupted, operation, path);
    }
    let class = py.import("bedform._errors").and_then(|errors| errors.getattr("CorruptError"));
    let is_corrupt = class.is_ok_and(|class| error.is_instance(py, &class));
    let kind = if is_corrupt { StorageErrorKind::Dangling } else { StorageErrorKind::Server };
    let source = Some(io::Error::other(error.to_string()));
    StorageError { kind, operation, path: path.to_string(), source }
}

#[derive(Debug)]
struct PythonObject {
    calls: Arc<Py<PyAny>>,
    key: ObjectPath,
    version: Version,
}

impl Object for PythonObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let truncated =
            || StorageError::new(StorageErrorKind::Truncated, "read", self.key.as_str());
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.version.size) {
            return Err(truncated());
        }
        if buffer.is_empty() {
            return Ok(());
        }
        let is_whole = called("read", &self.key, |py| {
            let request = (self.key.as_str(), offset, buffer.len());
            let given = self.calls.bind(py).call_method1("read", request)?;
            let bytes = given.cast::<PyBytes>()?.as_bytes();
            let is_whole = bytes.len() == buffer.len();
            if is_whole {
                buffer.copy_from_slice(bytes);
            }
            Ok(is_whole)
        })?;
        if is_whole { Ok(()) } else { Err(truncated()) }
    }

    fn is_current(&self) -> Result<bool> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}

impl Storage for PythonStorage {
    fn name(&self) -> String {
        match self.root.is_root() {
            true => self.name.to_string(),
            false => format!("{}/{}", self.name, self.root),
        }
    }

    fn identity(&self) -> Option<String> {
        // Two handles may have different credentials.
        None
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let version = self.version("open", path)?;
        Ok(Box::new(PythonObject { calls: self.calls.clone(), key: self.key(path)?, version }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        self.version("stat", path)
    }

    fn modified_ns(&self, _: &ObjectPath) -> Result<i64> {
        Ok(0)
    }

    fn now(&self) -> Result<i64> {
        Ok(0)
    }

    fn is_current(&self, _: &ObjectPath, _: &Version) -> Result<bool> {
        Ok(true)
    }

    fn sibling(&self, _: &str) -> Result<Arc<dyn Storage>> {
        let none = "nothing lies beside a store of another library";
        Err(StorageError::from_io("open", self.name(), io::Error::other(none)))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self { root: self.key(path)?, ..self.clone() }))
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        let key = self.key(path)?;
        let found = called("list", path, |py| {
            let found = self.calls.bind(py).call_method1("list", (key.as_str(),))?;
            found.extract::<Vec<(String, bool)>>()
        })?;
        let entry = |(name, is_directory)| ListedEntry { name, is_directory };
        let mut found: Vec<_> = found.into_iter().map(entry).collect();
        found.sort();
        Ok(found)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        Err(unsupported("lock", path, "a store of another library has no locks"))
    }

    lacks!(open_end, request_end, sync, sweep, try_lock, try_lock_of_dead);
    lacks!(workspace, publish_tree, publish_object, can_sync_all, sync_all);
    lacks!(create, put, grow, grow_lane, delete, delete_tree);
}
