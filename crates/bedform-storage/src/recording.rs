//! A storage that logs its operations, so that tests can check which were made.

mod objects;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Bell, Condition, Durability, GrowingObject, Object, ObjectWriter, PendingObject, Storage,
    StorageError, SyncAll, Version, WriteHint, forward,
};
use objects::{RecordedGrowing, RecordedObject, RecordedWriter};

type Result<T> = std::result::Result<T, StorageError>;

/// The kinds of operations on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StorageOperation {
    Open,
    Stat,
    Read,
    ReadResident,
    ReadAhead,
    IsCurrent,
    Create,
    Append,
    Publish,
    Grow,
    AppendGrowing,
    SyncGrowing,
    Stage,
    PublishTree,
    PublishObject,
    Delete,
    DeleteTree,
    List,
    Sync,
    Lock,
    Sweep,
}

impl StorageOperation {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Open,
        Self::Stat,
        Self::Read,
        Self::ReadResident,
        Self::ReadAhead,
        Self::IsCurrent,
        Self::Create,
        Self::Append,
        Self::Publish,
        Self::Grow,
        Self::AppendGrowing,
        Self::SyncGrowing,
        Self::Stage,
        Self::PublishTree,
        Self::PublishObject,
        Self::Delete,
        Self::DeleteTree,
        Self::List,
        Self::Sync,
        Self::Lock,
        Self::Sweep,
    ];

    /// Returns the operation as a verb, as errors name it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat | Self::IsCurrent => "stat",
            Self::Read | Self::ReadResident | Self::ReadAhead => "read",
            Self::Create | Self::Grow | Self::Stage => "create",
            Self::Append | Self::AppendGrowing => "write",
            Self::Publish | Self::PublishTree | Self::PublishObject => "publish",
            Self::Delete | Self::DeleteTree => "delete",
            Self::List => "list",
            Self::Sync | Self::SyncGrowing => "sync",
            Self::Lock => "lock",
            Self::Sweep => "sweep",
        }
    }
}

/// A successful operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOperation {
    /// The kind of operation.
    pub operation: StorageOperation,
    /// The place: the suffix or path that was added to the name of the recorded storage, or an
    /// empty text.
    pub place: Arc<str>,
    /// The object or directory.
    pub path: ObjectPath,
    /// The offset of the first byte, for reads, appends and syncs of a growing object.
    pub offset: u64,
    /// The number of bytes, for these and for published objects.
    pub bytes: u64,
    /// True if the operation is to survive a power cut.
    pub is_durable: bool,
    /// The identity of the version that was read or published.
    pub identity: (u64, u64),
}

/// A storage that keeps a log, which its clones and sibling storages share.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{
///     Condition, Durability, MemoryStorage, Recording, Storage, StorageOperation, WriteHint,
/// };
///
/// let storage = Recording::new(MemoryStorage::new());
/// let path = ObjectPath::parse("a").unwrap();
/// storage.create(&path, Durability::Disk, WriteHint::default())?.publish(Condition::None)?;
/// assert_eq!(storage.events().last().unwrap().operation, StorageOperation::Publish);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recording<S> {
    inner: S,
    log: Log,
}

/// The log, as the objects of one place append to it.
#[derive(Debug, Clone)]
struct Log {
    events: Arc<Mutex<Vec<RecordedOperation>>>,
    place: Arc<str>,
}

impl Log {
    fn events(&self) -> MutexGuard<'_, Vec<RecordedOperation>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        range: Range<u64>,
        is_durable: bool,
        identity: (u64, u64),
    ) {
        let (offset, bytes) = (range.start, range.end - range.start);
        let (path, place) = (path.clone(), Arc::clone(&self.place));
        self.events().push(RecordedOperation {
            operation,
            place,
            path,
            offset,
            bytes,
            is_durable,
            identity,
        });
    }
}

impl<S> Recording<S> {
    /// Returns `inner` with an empty log of the operations through this value.
    pub fn new(inner: S) -> Self {
        Self { inner, log: Log { events: Arc::default(), place: Arc::from("") } }
    }

    /// Returns the underlying storage.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the log so far, in the order in which operations ended.
    pub fn events(&self) -> Vec<RecordedOperation> {
        self.log.events().clone()
    }

    /// Empties the log.
    pub fn clear(&self) {
        self.log.events().clear();
    }

    /// Returns the number of times that `operation` succeeded.
    pub fn count(&self, operation: StorageOperation) -> usize {
        self.log.events().iter().filter(|event| event.operation == operation).count()
    }

    /// Returns the number of bytes read; a byte read twice counts twice.
    pub fn bytes_read(&self) -> u64 {
        self.log.events().iter().filter(|event| is_read(event)).map(|event| event.bytes).sum()
    }

    /// Returns the byte ranges that were read more than once, by object.
    pub fn bytes_read_again(&self) -> Vec<(ObjectPath, Range<u64>)> {
        let mut reads = BTreeMap::<_, Vec<Range<u64>>>::new();
        for event in self.log.events().iter().filter(|event| is_read(event)) {
            let range = event.offset..event.offset + event.bytes;
            reads
                .entry((event.path.clone(), event.place.clone(), event.identity))
                .or_default()
                .push(range);
        }
        let mut again = Vec::new();
        for ((path, ..), mut ranges) in reads {
            ranges.sort_unstable_by_key(|range| range.start);
            let mut end = 0;
            for range in ranges {
                let overlap = range.start..range.end.min(end);
                if !overlap.is_empty() {
                    again.push((path.clone(), overlap));
                }
                end = end.max(range.end);
            }
        }
        again
    }

    fn opened(&self, path: &ObjectPath, inner: Box<dyn Object>) -> Box<dyn Object> {
        self.event(StorageOperation::Open, path, None);
        RecordedObject::boxed(inner, path.clone(), self.log.clone())
    }

    fn event(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        durability: Option<Durability>,
    ) {
        let is_durable = durability == Some(Durability::Disk);
        self.log.record(operation, path, 0..0, is_durable, (0, 0));
    }

    /// Runs an operation and logs it if it succeeds.
    fn call<T>(
        &self,
        operation: StorageOperation,
        path: &ObjectPath,
        durability: Option<Durability>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let value = work()?;
        self.event(operation, path, durability);
        Ok(value)
    }
}

fn is_read(event: &RecordedOperation) -> bool {
    matches!(event.operation, StorageOperation::Read | StorageOperation::ReadResident)
}

impl<S: Storage> Storage for Recording<S> {
    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let inner = self.inner.open(path)?;
        Ok(self.opened(path, inner))
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let inner = self.inner.open_end(path, bytes)?;
        Ok(self.opened(path, inner))
    }

    fn request_end(
        &self,
        path: &ObjectPath,
        bytes: u64,
        bell: &Arc<Bell>,
    ) -> Option<PendingObject> {
        let (path, log) = (path.clone(), self.log.clone());
        Some(self.inner.request_end(&path.clone(), bytes, bell)?.then(move |outcome| {
            let Some(inner) = outcome? else { return Ok(None) };
            log.record(StorageOperation::Open, &path, 0..0, false, (0, 0));
            Ok(Some(RecordedObject::boxed(inner, path, log)))
        }))
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        let inner = self.inner.create(path, durability, hint)?;
        self.event(StorageOperation::Create, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let log = self.log.clone();
        Ok(Box::new(RecordedWriter { inner, path: path.clone(), is_durable, log }))
    }

    /// Logged as its steps: create, append, publish.
    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        let version = self.inner.put(path, bytes, durability, condition)?;
        let (range, is_durable) = (0..bytes.len() as u64, durability == Durability::Disk);
        self.event(StorageOperation::Create, path, Some(durability));
        self.log.record(StorageOperation::Append, path, range.clone(), false, (0, 0));
        self.log.record(StorageOperation::Publish, path, range, is_durable, version.identity);
        Ok(version)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        let inner = self.inner.grow(path, durability, size_hint)?;
        self.event(StorageOperation::Grow, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let (path, log) = (path.clone(), self.log.clone());
        let lane = Lane::ONLY;
        Ok(Box::new(RecordedGrowing { inner, path, lane, is_durable, synced: 0, log }))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        let inner = self.inner.grow_lane(path, lane, durability)?;
        let operation =
            if lane.number() == 0 { StorageOperation::Grow } else { StorageOperation::Open };
        self.event(operation, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let (path, log) = (path.clone(), self.log.clone());
        Ok(Box::new(RecordedGrowing { inner, path, lane, is_durable, synced: 0, log }))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.sibling(suffix)?;
        let place = format!("{}{suffix}", self.log.place).into();
        let log = Log { events: Arc::clone(&self.log.events), place };
        Ok(Arc::new(Recording { inner, log }))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.within(path)?;
        let place = match path.as_str() {
            "" => Arc::clone(&self.log.place),
            path => format!("{}/{path}", self.log.place).into(),
        };
        let log = Log { events: Arc::clone(&self.log.events), place };
        Ok(Arc::new(Recording { inner, log }))
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<SyncAll<'_>> {
        let sync = self.inner.sync_all(directories)?;
        Ok(Box::new(move || {
            sync()?;
            self.event(StorageOperation::Sync, &ObjectPath::root(), None);
            Ok(())
        }))
    }

    forward!(self.inner as Storage: name, identity, is_remote, now, can_sync_all);
    forward!(self.inner as Storage through call: stat, modified_ns, is_current, list, sync, sweep);
    forward!(self.inner as Storage through call: workspace, publish_tree, publish_object);
    forward!(self.inner as Storage through call: delete, delete_tree);
    forward!(self.inner as Storage through call: lock, try_lock, try_lock_of_dead);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    #[test]
    fn bytes_read_again_are_found_however_the_reads_overlap() {
        let storage = Recording::new(MemoryStorage::new());
        let path = ObjectPath::parse("a").unwrap();
        let mut writer = storage.create(&path, Durability::Disk, WriteHint::default()).unwrap();
        writer.append(&[7; 100]).unwrap();
        writer.publish(Condition::Absent).unwrap();
        let object = storage.open(&path).unwrap();
        for (start, length) in [(0, 10), (10, 10), (40, 20), (90, 10)] {
            object.read(start, &mut vec![0; length]).unwrap();
        }
        assert_eq!(storage.bytes_read_again(), []);
        object.read(15, &mut [0; 30]).unwrap();
        assert_eq!(storage.bytes_read_again(), [(path.clone(), 15..20), (path, 40..45)]);
        assert_eq!(storage.bytes_read(), 80);
    }
}
