//! A storage whose operations fail on request, to test error handling in the layers above.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Answer, Bell, Bytes, Condition, Durability, GrowingObject, Object, ObjectWriter, PendingObject,
    ReadBlock, Storage, StorageError, StorageErrorKind, StorageOperation, SyncAll, Version,
    WriteHint, forward,
};

type Result<T> = std::result::Result<T, StorageError>;

/// The way in which an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With an error of this kind, before any work.
    Error(StorageErrorKind),
    /// With an error of this kind, after the work is done: the answer is lost.
    ErrorAfter(StorageErrorKind),
}

/// A storage with scheduled faults, which its clones and sibling storages share.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{
///     Failing, Fault, MemoryStorage, Storage, StorageErrorKind, StorageOperation,
/// };
///
/// let storage = Failing::new(MemoryStorage::new());
/// storage.fail_at(StorageOperation::List, 0, Fault::Error(StorageErrorKind::Io));
/// assert_eq!(storage.list(&ObjectPath::root()).unwrap_err().kind, StorageErrorKind::Io);
/// assert!(storage.list(&ObjectPath::root()).is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Failing<S> {
    inner: S,
    faults: Arc<OperationFaults>,
}

#[derive(Debug, Default)]
struct OperationFaults(Mutex<Schedule>);

#[derive(Debug, Default)]
struct Schedule {
    counts: BTreeMap<StorageOperation, u64>,
    faults: BTreeMap<(StorageOperation, u64), Fault>,
}

impl OperationFaults {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation and returns its fault, if one is scheduled.
    fn next(&self, operation: StorageOperation) -> Option<Fault> {
        let Schedule { counts, faults } = &mut *self.schedule();
        let count = counts.entry(operation).or_default();
        *count += 1;
        faults.remove(&(operation, *count - 1))
    }

    fn call<T>(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let error = |kind| StorageError::new(kind, operation.verb(), path);
        match self.next(operation) {
            None => work(),
            Some(Fault::Error(kind)) => Err(error(kind)),
            Some(Fault::ErrorAfter(kind)) => work().and(Err(error(kind))),
        }
    }

    /// As [`OperationFaults::call`], for a pending answer. Without a pending answer nothing is
    /// counted, because the caller then uses another operation.
    fn call_later<T: Send + 'static>(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        asked: Option<Answer<T>>,
    ) -> Option<Answer<T>> {
        let asked = asked?;
        let Some(Fault::Error(kind) | Fault::ErrorAfter(kind)) = self.next(operation) else {
            return Some(asked);
        };
        let path = path.clone();
        Some(
            asked.then(move |outcome| {
                outcome.and(Err(StorageError::new(kind, operation.verb(), path)))
            }),
        )
    }
}

impl<S> Failing<S> {
    /// Returns `inner` without scheduled faults.
    pub fn new(inner: S) -> Self {
        Self { inner, faults: Arc::default() }
    }

    /// Returns the underlying storage.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Makes the `k`-th `operation` from now on (0 is the next) fail.
    pub fn fail_at(&self, operation: StorageOperation, k: u64, fault: Fault) {
        let Schedule { counts, faults } = &mut *self.faults.schedule();
        let number = counts.get(&operation).copied().unwrap_or(0).saturating_add(k);
        faults.insert((operation, number), fault);
    }

    /// Returns the number of calls of `operation` so far.
    pub fn count(&self, operation: StorageOperation) -> u64 {
        self.faults.schedule().counts.get(&operation).copied().unwrap_or(0)
    }
}

#[derive(Debug, Clone)]
struct FailingObject {
    inner: Arc<dyn Object>,
    path: ObjectPath,
    faults: Arc<OperationFaults>,
}

impl FailingObject {
    fn boxed(
        inner: Box<dyn Object>,
        path: ObjectPath,
        faults: Arc<OperationFaults>,
    ) -> Box<dyn Object> {
        Box::new(Self { inner: Arc::from(inner), path, faults })
    }
}

impl Object for FailingObject {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.faults.call(StorageOperation::Read, &self.path, || self.inner.read(offset, buffer))
    }

    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let Some(bytes) = self.inner.read_past(offset, length, block)? else { return Ok(None) };
        self.faults.call(StorageOperation::Read, &self.path, || Ok(Some(bytes)))
    }

    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let asked = self.inner.request(offset, length, bell);
        self.faults.call_later(StorageOperation::Read, &self.path, asked)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        let inner = self.inner.kept()?;
        Some(Arc::new(Self { inner, ..self.clone() }))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = || self.inner.read_resident(offset, buffer);
        self.faults.call(StorageOperation::ReadResident, &self.path, read)
    }

    fn is_current(&self) -> Result<bool> {
        self.faults.call(StorageOperation::IsCurrent, &self.path, || self.inner.is_current())
    }

    // A hint does not fail.
    forward!(self.inner as Object: version, read_ahead, buffered_range, buffered_bytes);
}

struct FailingWriter<'a> {
    inner: Box<dyn ObjectWriter + 'a>,
    path: ObjectPath,
    faults: Arc<OperationFaults>,
}

impl ObjectWriter for FailingWriter<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.faults.call(StorageOperation::Append, &self.path, || self.inner.append(bytes))
    }

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        self.faults.call(StorageOperation::Append, &self.path, || self.inner.append_owned(bytes))
    }

    fn hand_over(&mut self) -> Result<()> {
        self.faults.call(StorageOperation::Append, &self.path, || self.inner.hand_over())
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { inner, path, faults } = *self;
        faults.call(StorageOperation::Publish, &path, || inner.publish(condition))
    }

    forward!(self.inner as ObjectWriter: position, keep_replaced);
}

struct FailingGrowing {
    inner: Box<dyn GrowingObject>,
    path: ObjectPath,
    faults: Arc<OperationFaults>,
    failed: Option<StorageErrorKind>,
}

impl FailingGrowing {
    /// Runs `work`; after one failure every call fails.
    fn call(
        &mut self,
        operation: StorageOperation,
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
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.call(StorageOperation::AppendGrowing, |inner| inner.append(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.call(StorageOperation::AppendGrowing, |inner| inner.flush())
    }

    fn sync(&mut self) -> Result<()> {
        self.call(StorageOperation::SyncGrowing, |inner| inner.sync())
    }

    forward!(self.inner as GrowingObject: position);
}

impl<S: Storage> Failing<S> {
    /// Runs a forwarded operation, with its fault if one is scheduled.
    fn call<T>(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        _: Option<Durability>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.faults.call(operation, path, work)
    }
}

impl<S: Storage> Storage for Failing<S> {
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let inner = self.faults.call(StorageOperation::Open, path, || self.inner.open(path))?;
        Ok(FailingObject::boxed(inner, path.clone(), Arc::clone(&self.faults)))
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let open = || self.inner.open_end(path, bytes);
        let inner = self.faults.call(StorageOperation::Open, path, open)?;
        Ok(FailingObject::boxed(inner, path.clone(), Arc::clone(&self.faults)))
    }

    fn request_end(
        &self,
        path: &ObjectPath,
        bytes: u64,
        bell: &Arc<Bell>,
    ) -> Option<PendingObject> {
        let asked = self.inner.request_end(path, bytes, bell);
        let asked = self.faults.call_later(StorageOperation::Open, path, asked)?;
        let (path, faults) = (path.clone(), Arc::clone(&self.faults));
        Some(asked.then(|found| Ok(found?.map(|inner| FailingObject::boxed(inner, path, faults)))))
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        let create = || self.inner.create(path, durability, hint);
        let inner = self.faults.call(StorageOperation::Create, path, create)?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingWriter { inner, path: path.clone(), faults }))
    }

    /// Fails as its steps do: create, append, publish.
    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        // A writer that fails before publication leaves nothing.
        for step in [StorageOperation::Create, StorageOperation::Append] {
            self.faults.call(step, path, || Ok(()))?;
        }
        let put = || self.inner.put(path, bytes, durability, condition);
        self.faults.call(StorageOperation::Publish, path, put)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        let grow = || self.inner.grow(path, durability, size_hint);
        let inner = self.faults.call(StorageOperation::Grow, path, grow)?;
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
        let inner = self.faults.call(StorageOperation::Grow, path, grow)?;
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(FailingGrowing { inner, path: path.clone(), faults, failed: None }))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.sibling(suffix)?;
        Ok(Arc::new(Failing { inner, faults: Arc::clone(&self.faults) }))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.within(path)?;
        Ok(Arc::new(Failing { inner, faults: Arc::clone(&self.faults) }))
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>> {
        let sync = self.inner.sync_all(directories)?;
        Ok(Box::new(move || self.faults.call(StorageOperation::Sync, &ObjectPath::root(), &sync)))
    }

    forward!(self.inner as Storage: name, identity, is_remote, now, can_sync_all);
    forward!(self.inner as Storage through call: stat, modified_ns, is_current, list, sync, sweep);
    forward!(self.inner as Storage through call: workspace, publish_tree, publish_object);
    forward!(self.inner as Storage through call: delete, delete_tree);
    forward!(self.inner as Storage through call: lock, try_lock, try_lock_of_dead);
}
