//! A log of what is done to a storage, to prove what was and what was not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::{
    Answer, Bell, Bytes, Condition, Durability, Entry, GrowingObject, Hint, Lock, Object,
    ObjectWriter, PendingObject, ReadBlock, Storage, StorageError, TreePublication, Version,
    Workspace, WorkspaceName,
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
    Grow,
    AppendGrowing,
    SyncGrowing,
    Stage,
    PublishTree,
    Delete,
    DeleteTree,
    List,
    Sync,
    Lock,
    Sweep,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 20] = [
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
            Self::Create | Self::Grow | Self::Stage => "create",
            Self::Append | Self::AppendGrowing => "write",
            Self::Publish | Self::PublishTree => "publish",
            Self::Delete | Self::DeleteTree => "delete",
            Self::List => "list",
            Self::Sync | Self::SyncGrowing => "sync",
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
    /// In which place: what its name has behind that of the storage that is recorded.
    pub place: Arc<str>,
    /// To which object or directory.
    pub path: ObjectPath,
    /// From which byte on, for reads, appends and what a sync made durable of a growing object.
    pub offset: u64,
    /// How many bytes, for these and published objects.
    pub bytes: u64,
    /// True if the operation was to survive a power cut.
    pub is_durable: bool,
    /// Which bytes were read or published.
    pub identity: (u64, u64),
}

/// A storage that keeps a log; clones of it, and the places beside it, share the log.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, Hint, MemoryStorage, Operation, Recording, Storage};
///
/// let storage = Recording::new(MemoryStorage::new());
/// let path = ObjectPath::parse("a").unwrap();
/// storage.create(&path, Durability::Disk, Hint::default())?.publish(Condition::None)?;
/// assert_eq!(storage.events().last().unwrap().operation, Operation::Publish);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recording<S> {
    inner: S,
    log: Log,
}

/// The log, as the objects of one place write to it.
#[derive(Debug, Clone)]
struct Log {
    events: Arc<Mutex<Vec<Event>>>,
    place: Arc<str>,
}

impl Log {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(
        &self,
        operation: Operation,
        path: &ObjectPath,
        range: Range<u64>,
        is_durable: bool,
        identity: (u64, u64),
    ) {
        let (offset, bytes) = (range.start, range.end - range.start);
        let (path, place) = (path.clone(), Arc::clone(&self.place));
        self.events().push(Event { operation, place, path, offset, bytes, is_durable, identity });
    }
}

impl<S> Recording<S> {
    /// Records what is done to `inner` through this value.
    pub fn new(inner: S) -> Self {
        Self { inner, log: Log { events: Arc::default(), place: Arc::from("") } }
    }

    /// The storage below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The log so far, in the order in which operations ended.
    pub fn events(&self) -> Vec<Event> {
        self.log.events().clone()
    }

    /// Empties the log.
    pub fn clear(&self) {
        self.log.events().clear();
    }

    /// How often `operation` was done.
    pub fn count(&self, operation: Operation) -> usize {
        self.log.events().iter().filter(|event| event.operation == operation).count()
    }

    /// Bytes that were read, each as often as it was.
    pub fn bytes_read(&self) -> u64 {
        self.log.events().iter().filter(|event| is_read(event)).map(|event| event.bytes).sum()
    }

    /// The byte ranges that were read more than once, by object.
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
        self.event(Operation::Open, path, None);
        RecordedObject::boxed(inner, path.clone(), self.log.clone())
    }

    fn event(&self, operation: Operation, path: &ObjectPath, durability: Option<Durability>) {
        let is_durable = durability == Some(Durability::Disk);
        self.log.record(operation, path, 0..0, is_durable, (0, 0));
    }
}

fn is_read(event: &Event) -> bool {
    matches!(event.operation, Operation::Read | Operation::ReadResident)
}

#[derive(Debug, Clone)]
struct RecordedObject {
    inner: Arc<dyn Object>,
    path: ObjectPath,
    log: Log,
}

impl RecordedObject {
    fn event(&self, operation: Operation, offset: u64, bytes: usize) {
        let range = offset..offset + bytes as u64;
        let identity = self.inner.version().identity;
        self.log.record(operation, &self.path, range, false, identity);
    }
}

impl RecordedObject {
    fn boxed(inner: Box<dyn Object>, path: ObjectPath, log: Log) -> Box<dyn Object> {
        Box::new(Self { inner: Arc::from(inner), path, log })
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

    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let bytes = self.inner.read_past(offset, length, block)?;
        if bytes.is_some() {
            self.event(Operation::Read, offset, length);
        }
        Ok(bytes)
    }

    fn ask(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let this = self.clone();
        Some(self.inner.ask(offset, length, bell)?.then(move |outcome| {
            let bytes = outcome?;
            this.event(Operation::Read, offset, bytes.len());
            Ok(bytes)
        }))
    }

    fn at_hand(&self) -> Range<u64> {
        self.inner.at_hand()
    }

    fn known(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let bytes = self.inner.known(offset, length)?;
        self.event(Operation::ReadResident, offset, length);
        Some(bytes)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        let inner = self.inner.kept()?;
        Some(Arc::new(Self { inner, ..self.clone() }))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.inner.read_resident(offset, buffer)?;
        self.event(Operation::ReadResident, offset, count);
        Ok(count)
    }

    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let range = offset..offset.saturating_add(length);
        let identity = self.inner.version().identity;
        self.log.record(Operation::ReadAhead, &self.path, range, false, identity);
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
    log: Log,
}

impl ObjectWriter for RecordedWriter<'_> {
    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let start = self.inner.position();
        self.inner.append(bytes)?;
        let range = start..self.inner.position();
        self.log.record(Operation::Append, &self.path, range, false, (0, 0));
        Ok(())
    }

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        let start = self.inner.position();
        let left = self.inner.append_owned(bytes)?;
        let range = start..self.inner.position();
        self.log.record(Operation::Append, &self.path, range, false, (0, 0));
        Ok(left)
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { inner, path, is_durable, log } = *self;
        let version = inner.publish(condition)?;
        let range = 0..version.size;
        log.record(Operation::Publish, &path, range, is_durable, version.identity);
        Ok(version)
    }
}

struct RecordedGrowing {
    inner: Box<dyn GrowingObject>,
    path: ObjectPath,
    lane: Lane,
    is_durable: bool,
    synced: u64,
    log: Log,
}

impl GrowingObject for RecordedGrowing {
    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut start = self.inner.position();
        self.inner.append(bytes)?;
        let end = self.inner.position();
        while start < end {
            let run = self.lane.run(start);
            let length = run.length.min(end - start);
            let range = run.offset..run.offset + length;
            self.log.record(Operation::AppendGrowing, &self.path, range, false, (0, 0));
            start += length;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()?;
        let end = self.inner.position();
        // Of a shared object whatever was written before.
        let range =
            if self.lane.is_alone() { self.synced..end } else { 0..self.lane.run(end).offset };
        self.synced = end;
        self.log.record(Operation::SyncGrowing, &self.path, range, self.is_durable, (0, 0));
        Ok(())
    }
}

impl<S: Storage> Storage for Recording<S> {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let inner = self.inner.open(path)?;
        Ok(self.opened(path, inner))
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let inner = self.inner.open_end(path, bytes)?;
        Ok(self.opened(path, inner))
    }

    fn ask_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>) -> Option<PendingObject> {
        let (path, log) = (path.clone(), self.log.clone());
        Some(self.inner.ask_end(&path.clone(), bytes, bell)?.then(move |outcome| {
            let Some(inner) = outcome? else { return Ok(None) };
            log.record(Operation::Open, &path, 0..0, false, (0, 0));
            Ok(Some(RecordedObject::boxed(inner, path, log)))
        }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let version = self.inner.stat(path)?;
        self.event(Operation::Stat, path, None);
        Ok(version)
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        let time = self.inner.modified_ns(path)?;
        self.event(Operation::Stat, path, None);
        Ok(time)
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        let is_current = self.inner.is_current(path, version)?;
        self.event(Operation::IsCurrent, path, None);
        Ok(is_current)
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: Hint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        let inner = self.inner.create(path, durability, hint)?;
        self.event(Operation::Create, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let log = self.log.clone();
        Ok(Box::new(RecordedWriter { inner, path: path.clone(), is_durable, log }))
    }

    /// In the log as the steps that it stands for.
    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        let version = self.inner.put(path, bytes, durability, condition)?;
        let (range, is_durable) = (0..bytes.len() as u64, durability == Durability::Disk);
        self.event(Operation::Create, path, Some(durability));
        self.log.record(Operation::Append, path, range.clone(), false, (0, 0));
        self.log.record(Operation::Publish, path, range, is_durable, version.identity);
        Ok(version)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        let inner = self.inner.grow(path, durability, size_hint)?;
        self.event(Operation::Grow, path, Some(durability));
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
        let operation = if lane.number() == 0 { Operation::Grow } else { Operation::Open };
        self.event(operation, path, Some(durability));
        let is_durable = durability == Durability::Disk;
        let (path, log) = (path.clone(), self.log.clone());
        Ok(Box::new(RecordedGrowing { inner, path, lane, is_durable, synced: 0, log }))
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let inner = self.inner.beside(suffix)?;
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

    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>> {
        let workspace = self.inner.workspace(directory, name)?;
        self.event(Operation::Stage, directory, None);
        Ok(workspace)
    }

    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        durability: Durability,
    ) -> Result<()> {
        self.inner.publish_tree(staged, target, how, durability)?;
        self.event(Operation::PublishTree, target, Some(durability));
        Ok(())
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

    fn can_sync_all(&self) -> bool {
        self.inner.can_sync_all()
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<()> {
        self.inner.sync_all(directories)?;
        self.event(Operation::Sync, &ObjectPath::root(), None);
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

    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        let lock = self.inner.try_lock_of_dead(path)?;
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
        let mut writer = storage.create(&path, Durability::Disk, Hint::default()).unwrap();
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
