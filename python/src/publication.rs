//! Stores, groups and files that are built under a hidden name and published as a whole.
//!
//! An object can be published once. A dropped or discarded one is removed completely.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bedform::publication::{HiddenDirectory, StagedFile as EngineFile};
use bedform::store::{StagedGroup as EngineGroup, StagedStore as EngineStore};
use bedform::{Error, NewArray};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::arguments::{json_of, options, path_of};
use crate::array::{Array, BufferBytes};
use crate::error::raise;
use crate::signals::detached;
use crate::store::Store;

/// A staged object until it is published or discarded.
struct StagedValue<T>(Mutex<Option<T>>);

impl<T: Send> StagedValue<T> {
    fn new(staged: T) -> Self {
        Self(Mutex::new(Some(staged)))
    }

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn publish(
        &self,
        py: Python<'_>,
        publish: impl FnOnce(T) -> bedform::Result<()> + Send,
    ) -> PyResult<()> {
        let staged = self.take().ok_or_else(ended)?;
        detached(py, || publish(staged)).map_err(raise)
    }

    fn discard(&self, py: Python<'_>) {
        let staged = self.take();
        detached(py, || drop(staged));
    }
}

fn ended() -> PyErr {
    raise(Error::invalid("it was published or discarded before"))
}

/// A store that is built under a hidden name beside its target.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct StagedStore {
    staged: StagedValue<EngineStore>,
    store: Py<Store>,
    path: PathBuf,
}

#[pymethods]
impl StagedStore {
    /// Begins a store for the directory `target`; with `replaces` it may replace an existing store.
    #[new]
    fn new(py: Python<'_>, target: PathBuf, replaces: bool, opening: &str) -> PyResult<Self> {
        let options = options(opening)?;
        let created = detached(py, || EngineStore::create(&target, replaces, &Map::new(), options));
        let staged = created.map_err(raise)?;
        let store = Py::new(py, Store { inner: staged.store().clone() })?;
        Ok(Self { path: staged.path(), staged: StagedValue::new(staged), store })
    }

    /// The path of the store until it is published.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Returns the opened store.
    fn store(&self, py: Python<'_>) -> Py<Store> {
        self.store.clone_ref(py)
    }

    /// Renames the finished store to its target.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.staged.publish(py, EngineStore::publish)
    }

    /// Removes the store, unless it was published.
    fn discard(&self, py: Python<'_>) {
        self.staged.discard(py);
    }
}

/// A group that is built in its store, and replaces an existing one.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct StagedGroup(StagedValue<EngineGroup>);

#[pymethods]
impl StagedGroup {
    #[new]
    fn new(py: Python<'_>, store: &Store, path: &str) -> PyResult<Self> {
        let path = path_of(path)?;
        let staged = detached(py, || store.inner.stage_group(&path)).map_err(raise)?;
        Ok(Self(StagedValue::new(staged)))
    }

    /// Creates an array of the new group from its description in JSON.
    #[pyo3(signature = (name, description, elements=None))]
    fn draft_array(
        &self,
        py: Python<'_>,
        name: &str,
        description: &str,
        elements: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Array> {
        let description = Value::Object(json_of(description)?);
        let elements = elements.map(|elements| BufferBytes::of(elements, false)).transpose()?;
        let draft = || {
            let mut staged = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            let staged = staged.as_mut()?;
            let new = NewArray::from_json_with(&description, staged.options());
            Some(new.and_then(|new| match &elements {
                Some(elements) => staged.draft_array_of(name, &new, elements.get()),
                None => staged.draft_array(name, &new),
            }))
        };
        let array = detached(py, draft).ok_or_else(ended)?;
        array.map(|inner| Array { inner }).map_err(raise)
    }

    /// Moves the group to its path, with these attributes.
    fn publish(&self, py: Python<'_>, attributes: &str) -> PyResult<()> {
        let attributes = json_of(attributes)?;
        self.0.publish(py, |staged| staged.publish(&attributes))
    }

    /// Removes the group, unless it was published.
    fn discard(&self, py: Python<'_>) {
        self.0.discard(py);
    }
}

/// A file that another library writes under a hidden name.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct StagedFile {
    staged: StagedValue<EngineFile>,
    path: PathBuf,
}

#[pymethods]
impl StagedFile {
    #[new]
    fn new(py: Python<'_>, target: PathBuf) -> PyResult<Self> {
        let staged = detached(py, || EngineFile::create(&target)).map_err(raise)?;
        Ok(Self { path: staged.path().to_owned(), staged: StagedValue::new(staged) })
    }

    /// The path to write the file to.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Makes the finished file durable and renames it to its target.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.staged.publish(py, EngineFile::publish)
    }

    /// Removes the file, unless it was published.
    fn discard(&self, py: Python<'_>) {
        self.staged.discard(py);
    }
}

/// A directory that another library fills under a hidden name.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct StagedDirectory {
    staged: StagedValue<HiddenDirectory>,
    path: PathBuf,
}

#[pymethods]
impl StagedDirectory {
    #[new]
    fn new(py: Python<'_>, target: PathBuf, replaces: bool) -> PyResult<Self> {
        let staged = detached(py, || HiddenDirectory::create(&target, replaces)).map_err(raise)?;
        Ok(Self { path: staged.path().to_owned(), staged: StagedValue::new(staged) })
    }

    /// The path at which to make the directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Makes the finished directory durable and renames it to its target.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.staged.publish(py, HiddenDirectory::publish)
    }

    /// Removes the directory, unless it was published.
    fn discard(&self, py: Python<'_>) {
        self.staged.discard(py);
    }
}
