//! A storage whose operations fail when told to, to see what those above make of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Condition, Durability, Entry, GrowingObject, Hint, Lock, Object, ObjectWriter, Operation,
    Storage, StorageError, StorageErrorKind, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With an error of this kind, having done nothing.
    Error(StorageErrorKind),
    /// With an error of this kind, having done its work: the answer is lost.
    ErrorAfter(StorageErrorKind),
}

/// A storage with faults; clones of it share them, and so do the places beside it.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Failing, Fault, MemoryStorage, Operation, Storage, StorageErrorKind};
///
/// let storage = Failing::new(MemoryStorage::new());
/// storage.fail_at(Operation::List, 0, Fault::Error(StorageErrorKind::Io));
/// assert_eq!(storage.list(&ObjectPath::root()).unwrap_err().kind, StorageErrorKind::Io);
/// assert!(storage.list(&ObjectPath::root()).is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Failing<S> {
    inner: S,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults(Mutex<Schedule>);

#[derive(Debug, Default)]
struct Schedule {
    counts: BTreeMap<Operation, u64>,
    faults: BTreeMap<(Operation, u64), Fault>,
}

impl Faults {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        operation: Operation,
        path: &ObjectPath,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let fault = {
            let Schedule { counts, faults } = &mut *self.schedule();
            let count = counts.entry(operation).or_default();
            *count += 1;
            faults.remove(&(operation, *count - 1))
        };
        let error = |kind| StorageError::new(kind, operation.verb(), path);
        match fault {
            None => work(),
            Some(Fault::Error(kind)) => Err(error(kind)),
            Some(Fault::ErrorAfter(kind)) => work().and(Err(error(kind))),
        }
    }
}

impl<S> Failing<S> {
    /// `inner`, with no faults as yet.
    pub fn new(inner: S) -> Self {
        Self { inner, faults: Arc::default() }
    }

    /// The storage below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the `k`-th `operation` from now (0 is the next) fail.
    pub fn fail_at(&self, operation: Operation, k: u64, fault: Fault) {
        let Schedule { counts, faults } = &mut *self.faults.schedule();
        let number = counts.get(&operation).copied().unwrap_or(0).saturating_add(k);
        faults.insert((operation, number), fault);
    }

    /// How often `operation` was called so far.
    pub fn count(&self, operation: Operation) -> u64 {
        self.faults.schedule().counts.get(&operation).copied().unwrap_or(0)
    }
}

#[derive(Debug)]
struct FailingObject {
    inner: Box<dyn Object>,
    path: ObjectPath,
    faults: Arc<Faults>,
}

impl Object for FailingObject {
    fn version(&self) -> &Version {
        self.inner.version()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.faults.call(Operation::Read, &self.path, || self.inner.read(offset, buffer))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = || self.inner.read_resident(offset, buffer);
        self.faults.call(Operation::ReadResident, &self.path, read)
    }

    fn is_current(&self) -> Result<bool> {
        self.faults.call(Operation::IsCurrent, &self.path, || self.inner.is_current())
    }
}

struct FailingWriter<'a> {
    inner: Box<dyn ObjectWriter + 'a>,
    path: ObjectPath,
    faults: Arc<Faults>,
}

impl ObjectWriter for FailingWriter<'_> {
    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.faults.call(Operation::Append, &self.path, || self.inner.append(bytes))
    }

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.faults.call(Operation::Append, &self.path, || self.inner.append_owned(bytes))
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { inner, path, faults } = *self;
        faults.call(Operation::Publish, &path, || inner.publish(condition))
    }
}

struct FailingGrowing {
    inner: Box<dyn GrowingObject>,
    path: ObjectPath,
    faults: Arc<Faults>,
    failed: Option<StorageErrorKind>,
}

impl FailingGrowing {
    /// Calls `work`; once something has failed, everything does.
    fn call(
        &mut self,
        operation: Operation,
        work: impl FnOnce(&mut dyn GrowingObject) -> Result<()>,
    ) -> Result<()> {
        if let Some(kind) = self.failed {
            return Err(StorageError::new(kind, operation.verb(), &self.path));
        }
        let inner = &mut *self.inner;
        let outcome = self.faults.call(operation, &self.path, || work(inner));
        self.failed = outcome.as_ref().err().map(|error| error.kind);
        outcome
    }
}

impl GrowingObject for FailingGrowing {
    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.call(Operation::AppendGrowing, |inner| inner.append(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.call(Operation::AppendGrowing, |inner| inner.flush())
    }

    fn sync(&mut self) -> Result<()> {
        self.call(Operation::SyncGrowing, |inner| inner.sync())
    }
}

impl<S: Storage> Storage for Failing<S> {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let inner = self.faults.call(Operation::Open, path, || self.inner.open(path))?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingObject { inner, path: path.clone(), faults }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        self.faults.call(Operation::Stat, path, || self.inner.stat(path))
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: Hint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        let create = || self.inner.create(path, durability, hint);
        let inner = self.faults.call(Operation::Create, path, create)?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingWriter { inner, path: path.clone(), faults }))
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        let grow = || self.inner.grow(path, durability, size_hint);
        let inner = self.faults.call(Operation::Grow, path, grow)?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingGrowing { inner, path: path.clone(), faults, failed: None }))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        let grow = || self.inner.grow_lane(path, lane, durability);
        let inner = self.faults.call(Operation::Grow, path, grow)?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingGrowing { inner, path: path.clone(), faults, failed: None }))
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.beside(suffix)?;
        Ok(Arc::new(Failing { inner, faults: Arc::clone(&self.faults) }))
    }

    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        let delete = || self.inner.delete(path, durability, condition);
        self.faults.call(Operation::Delete, path, delete)
    }

    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()> {
        let delete = || self.inner.delete_tree(path, durability);
        self.faults.call(Operation::DeleteTree, path, delete)
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        self.faults.call(Operation::List, path, || self.inner.list(path))
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        self.faults.call(Operation::Sync, path, || self.inner.sync(path))
    }

    fn can_sync_all(&self) -> bool {
        self.inner.can_sync_all()
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<()> {
        let root = ObjectPath::root();
        self.faults.call(Operation::Sync, &root, || self.inner.sync_all(directories))
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        self.faults.call(Operation::Lock, path, || self.inner.lock(path))
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.faults.call(Operation::Lock, path, || self.inner.try_lock(path))
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        self.faults.call(Operation::Sweep, path, || self.inner.sweep(path))
    }
}
