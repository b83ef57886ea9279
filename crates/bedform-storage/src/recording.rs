//! A log of what is done to a storage, to prove what was and what was not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;

use crate::{
    Condition, Durability, Entry, Lock, Object, ObjectWriter, Storage, StorageError, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// What can be done to a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Operation {
    Open,
    Stat,
    Read,
    ReadResident,
    ReadAhead,
    IsCurrent,
    Create,
    Append,
    Publish,
    Delete,
    DeleteTree,
    List,
    Sync,
    Lock,
    Sweep,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 15] = [
        Self::Open,
        Self::Stat,
        Self::Read,
        Self::ReadResident,
        Self::ReadAhead,
        Self::IsCurrent,
        Self::Create,
        Self::Append,
        Self::Publish,
        Self::Delete,
        Self::DeleteTree,
        Self::List,
        Self::Sync,
        Self::Lock,
        Self::Sweep,
    ];

    /// The operation as a verb, as errors name it.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stat | Self::IsCurrent => "stat",
            Self::Read | Self::ReadResident | Self::ReadAhead => "read",
            Self::Create => "create",
            Self::Append => "write",
            Self::Publish => "publish",
            Self::Delete | Self::DeleteTree => "delete",
            Self::List => "list",
            Self::Sync => "sync",
            Self::Lock => "lock",
            Self::Sweep => "sweep",
        }
    }
}

/// One operation that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub operation: Operation,
    /// To which object or directory.
    pub path: ObjectPath,
    /// From which byte on, for reads and appends.
    pub offset: u64,
    /// How many bytes, for reads, appends and published objects.
    pub bytes: u64,
    /// True if the operation was to survive a power cut.
    pub is_durable: bool,
    /// Which bytes were read or published.
    pub identity: (u64, u64),
}

/// A storage that keeps a log; clones of it share the log.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, MemoryStorage, Operation, Recording, Storage};
///
/// let storage = Recording::new(MemoryStorage::new());
/// let path = ObjectPath::parse("a").unwrap();
/// storage.create(&path, Durability::Disk, None)?.publish(Condition::None)?;
/// assert_eq!(storage.events().last().unwrap().operation, Operation::Publish);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recording<S> {
    inner: S,
    log: Arc<Mutex<Vec<Event>>>,
}

impl<S> Recording<S> {
    /// Records what is done to `inner` through this value.
    pub fn new(inner: S) -> Self {
        Self { inner, log: Arc::default() }
    }

    /// The storage below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The log so far, in the order in which operations ended.
    pub fn events(&self) -> Vec<Event> {
        locked(&self.log).clone()
    }

    /// Empties the log.
    pub fn clear(&self) {
        locked(&self.log).clear();
    }

    /// How often `operation` was done.
    pub fn count(&self, operation: Operation) -> usize {
        locked(&self.log).iter().filter(|event| event.operation == operation).count()
    }

    /// Bytes that were read, each as often as it was.
    pub fn bytes_read(&self) -> u64 {
        locked(&self.log).iter().filter(|event| is_read(event)).map(|event| event.bytes).sum()
    }

    /// The byte ranges that were read more than once, by object.
    pub fn bytes_read_again(&self) -> Vec<(ObjectPath, Range<u64>)> {
        let mut reads = BTreeMap::<_, Vec<Range<u64>>>::new();
        for event in locked(&self.log).iter().filter(|event| is_read(event)) {
            let range = event.offset..event.offset + event.bytes;
            reads.entry((event.path.clone(), event.identity)).or_default().push(range);
        }
        let mut again = Vec::new();
        for ((path, _), mut ranges) in reads {
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

    fn event(&self, operation: Operation, path: &ObjectPath, durability: Option<Durability>) {
        let is_durable = durability == Some(Durability::Disk);
        record(&self.log, operation, path, 0..0, is_durable, (0, 0));
    }
}

fn is_read(event: &Event) -> bool {
    matches!(event.operation, Operation::Read | Operation::ReadResident)
}

fn locked(log: &Mutex<Vec<Event>>) -> MutexGuard<'_, Vec<Event>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record(
    log: &Mutex<Vec<Event>>,
    operation: Operation,
    path: &ObjectPath,
    range: Range<u64>,
    is_durable: bool,
    identity: (u64, u64),
) {
    let (offset, bytes) = (range.start, range.end - range.start);
    let path = path.clone();
    locked(log).push(Event { operation, path, offset, bytes, is_durable, identity });
}

#[derive(Debug)]
struct RecordedObject {
    inner: Box<dyn Object>,
    path: ObjectPath,
    log: Arc<Mutex<Vec<Event>>>,
}

impl RecordedObject {
    fn event(&self, operation: Operation, offset: u64, bytes: usize) {
        let range = offset..offset + bytes as u64;
        let identity = self.inner.version().identity;
        record(&self.log, operation, &self.path, range, false, identity);
    }
}

impl Object for RecordedObject {
    fn version(&self) -> &Version {
        self.inner.version()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buffer)?;
        self.event(Operation::Read, offset, buffer.len());
        Ok(())
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_resident(offset, buffer)?;
        self.event(Operation::ReadResident, offset, count);
        Ok(count)
    }

    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let range = offset..offset.saturating_add(length);
        let identity = self.inner.version().identity;
        record(&self.log, Operation::ReadAhead, &self.path, range, false, identity);
        self.inner.read_ahead(offset, length)
    }

    fn is_current(&self) -> Result<bool> {
        let is_current = self.inner.is_current()?;
        self.event(Operation::IsCurrent, 0, 0);
        Ok(is_current)
    }
}

struct RecordedWriter<'a> {
    inner: Box<dyn ObjectWriter + 'a>,
    path: ObjectPath,
    is_durable: bool,
    log: Arc<Mutex<Vec<Event>>>,
}

impl ObjectWriter for RecordedWriter<'_> {
    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let start = self.inner.position();
        self.inner.append(bytes)?;
        let range = start..self.inner.position();
        record(&self.log, Operation::Append, &self.path, range, false, (0, 0));
        Ok(())
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { inner, path, is_durable, log } = *self;
        let version = inner.publish(condition)?;
        let range = 0..version.size;
        record(&log, Operation::Publish, &path, range, is_durable, version.identity);
        Ok(version)
    }
}

impl<S: Storage> Storage for Recording<S> {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let inner = self.inner.open(path)?;
        self.event(Operation::Open, path, None);
        Ok(Box::new(RecordedObject { inner, path: path.clone(), log: Arc::clone(&self.log) }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let version = self.inner.stat(path)?;
        self.event(Operation::Stat, path, None);
        Ok(version)
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        let inner = self.inner.create(path, durability, size_hint)?;
        self.event(Operation::Create, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let log = Arc::clone(&self.log);
        Ok(Box::new(RecordedWriter { inner, path: path.clone(), is_durable, log }))
    }

    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        self.inner.delete(path, durability, condition)?;
        self.event(Operation::Delete, path, Some(durability));
        Ok(())
    }

    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()> {
        self.inner.delete_tree(path, durability)?;
        self.event(Operation::DeleteTree, path, Some(durability));
        Ok(())
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        let entries = self.inner.list(path)?;
        self.event(Operation::List, path, None);
        Ok(entries)
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        self.inner.sync(path)?;
        self.event(Operation::Sync, path, None);
        Ok(())
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let lock = self.inner.lock(path)?;
        self.event(Operation::Lock, path, None);
        Ok(lock)
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        let lock = self.inner.try_lock(path)?;
        self.event(Operation::Lock, path, None);
        Ok(lock)
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        let count = self.inner.sweep(path)?;
        self.event(Operation::Sweep, path, None);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStorage;

    #[test]
    fn bytes_read_again_are_found_however_the_reads_overlap() {
        let storage = Recording::new(MemoryStorage::new());
        let path = ObjectPath::parse("a").unwrap();
        let mut writer = storage.create(&path, Durability::Disk, None).unwrap();
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
