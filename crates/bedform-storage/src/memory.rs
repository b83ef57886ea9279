//! Objects in memory: the plainest storage, and the model that others are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;

use crate::{
    Condition, Durability, Entry, Lock, Object, ObjectWriter, Storage, StorageError,
    StorageErrorKind, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// A storage whose objects are gone with it; clones are further views of the same one.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, MemoryStorage, Storage};
///
/// let storage = MemoryStorage::new();
/// let path = ObjectPath::parse("a/b").unwrap();
/// let mut writer = storage.create(&path, Durability::Disk, None)?;
/// writer.append(b"abc")?;
/// let version = writer.publish(Condition::Absent)?;
/// assert_eq!(storage.stat(&path)?, version);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    unlocked: Condvar,
    cold: bool,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<ObjectPath, Arc<Content>>,
    /// Directories other than the root.
    directories: BTreeSet<ObjectPath>,
    locked: BTreeSet<ObjectPath>,
    published: u64,
}

#[derive(Debug)]
struct Content {
    bytes: Vec<u8>,
    version: Version,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty storage of which no byte is ever at hand, as on a device that was not read before.
    pub fn cold() -> Self {
        Self { shared: Arc::new(Shared { cold: true, ..Shared::default() }) }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&self, operation: &'static str, path: &ObjectPath) -> Result<Arc<Content>> {
        let kind = match self.objects.get(path) {
            Some(content) => return Ok(Arc::clone(content)),
            None if self.is_directory(path) => StorageErrorKind::NotAnObject,
            None => StorageErrorKind::NotFound,
        };
        Err(StorageError::new(kind, operation, path))
    }

    fn is_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || self.directories.contains(path)
    }

    fn make_directories(&mut self, path: &ObjectPath) -> Result<()> {
        let mut at = path.clone();
        while !at.is_root() {
            if self.objects.contains_key(&at) {
                return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
            }
            self.directories.insert(at.clone());
            at = at.parent();
        }
        Ok(())
    }

    fn check(
        &self,
        operation: &'static str,
        path: &ObjectPath,
        condition: Condition<'_>,
    ) -> Result<()> {
        let current = self.objects.get(path).map(|content| &content.version);
        let kind = match condition {
            Condition::Absent if current.is_some() => StorageErrorKind::Exists,
            Condition::Unchanged(object) if current != Some(object.version()) => {
                StorageErrorKind::Conflict
            }
            _ if self.is_directory(path) => StorageErrorKind::NotAnObject,
            _ => return Ok(()),
        };
        Err(StorageError::new(kind, operation, path))
    }
}

#[derive(Debug)]
struct MemoryObject {
    shared: Arc<Shared>,
    path: ObjectPath,
    content: Arc<Content>,
}

impl MemoryObject {
    /// Copies what there is to the front of `buffer` and says how many bytes that were.
    fn copy_to(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.content.bytes.get(start..).unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }
}

impl Object for MemoryObject {
    fn version(&self) -> &Version {
        &self.content.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.copy_to(offset, buffer) < buffer.len() {
            return Err(StorageError::new(StorageErrorKind::Truncated, "read", &self.path));
        }
        Ok(())
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(if self.shared.cold { 0 } else { self.copy_to(offset, buffer) })
    }

    fn is_current(&self) -> Result<bool> {
        let state = self.shared.state();
        Ok(state.objects.get(&self.path).is_some_and(|now| now.version == self.content.version))
    }
}

struct MemoryWriter {
    shared: Arc<Shared>,
    path: ObjectPath,
    bytes: Vec<u8>,
}

impl ObjectWriter for MemoryWriter {
    fn position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { shared, path, bytes } = *self;
        let mut state = shared.state();
        state.check("publish", &path, condition)?;
        state.make_directories(&path.parent())?;
        state.published += 1;
        let number = state.published;
        let time = i64::try_from(number).unwrap_or(i64::MAX);
        let version = Version {
            size: bytes.len() as u64,
            modified_ns: time,
            changed_ns: time,
            identity: (0, number),
        };
        let content = Content { bytes, version: version.clone() };
        state.objects.insert(path, Arc::new(content));
        Ok(version)
    }
}

struct MemoryLock {
    shared: Arc<Shared>,
    path: ObjectPath,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.shared.state().locked.remove(&self.path);
        self.shared.unlocked.notify_all();
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let content = self.shared.state().find("open", path)?;
        Ok(Box::new(MemoryObject { shared: Arc::clone(&self.shared), path: path.clone(), content }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        Ok(self.shared.state().find("stat", path)?.version.clone())
    }

    fn create(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
        }
        self.shared.state().make_directories(&path.parent())?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemoryWriter { shared, path: path.clone(), bytes: Vec::new() }))
    }

    fn delete(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        let mut state = self.shared.state();
        state.check("delete", path, condition)?;
        state.objects.remove(path);
        Ok(())
    }

    fn delete_tree(&self, path: &ObjectPath, _durability: Durability) -> Result<()> {
        let mut state = self.shared.state();
        if state.is_directory(path) {
            state.objects.retain(|other, _| !other.is_within(path));
            state.directories.retain(|other| !other.is_within(path));
        } else if state.objects.contains_key(path) {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "delete", path));
        }
        Ok(())
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        let state = self.shared.state();
        let is_below = |other: &&ObjectPath| !other.is_root() && other.parent() == *path;
        let entry = |other: &ObjectPath, is_directory| Entry {
            name: other.name().to_owned(),
            is_directory,
        };
        let objects = state.objects.keys().filter(is_below).map(|other| entry(other, false));
        let directories = state.directories.iter().filter(is_below).map(|other| entry(other, true));
        let mut entries: Vec<Entry> = objects.chain(directories).collect();
        entries.sort_unstable();
        Ok(entries)
    }

    fn sync(&self, _path: &ObjectPath) -> Result<()> {
        Ok(())
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let mut state = self.shared.state();
        loop {
            if !state.is_directory(path) {
                return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
            }
            if state.locked.insert(path.clone()) {
                let shared = Arc::clone(&self.shared);
                return Ok(Box::new(MemoryLock { shared, path: path.clone() }));
            }
            state = self.shared.unlocked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        let mut state = self.shared.state();
        if !state.is_directory(path) {
            return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
        }
        if !state.locked.insert(path.clone()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { shared: Arc::clone(&self.shared), path: path.clone() })))
    }

    fn sweep(&self, _path: &ObjectPath) -> Result<u64> {
        Ok(0)
    }
}
