//! Objects in memory: the simplest storage, and the model for comparison with others.

mod bytes;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use crate::implement::{checked_suffix, next_lane_run, padding};
use crate::{
    Condition, Durability, GrowingObject, ListedEntry, Lock, Object, ObjectWriter, Storage,
    StorageError, StorageErrorKind, TreePublication, Version, Workspace, WorkspaceName, WriteHint,
    forward, lacks,
};

use bytes::MemoryBytes;

type Result<T> = std::result::Result<T, StorageError>;

/// A storage in memory; clones are views of the same one, and the objects live as long as the last
/// view.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, WriteHint, MemoryStorage, Storage};
///
/// let storage = MemoryStorage::new();
/// let path = ObjectPath::parse("a/b").unwrap();
/// let mut writer = storage.create(&path, Durability::Disk, WriteHint::default())?;
/// writer.append(b"abc")?;
/// let version = writer.publish(Condition::Absent)?;
/// assert_eq!(storage.stat(&path)?, version);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryStorage {
    shared: Arc<MemoryShared>,
    /// The key of the root: the first directory, a sibling of another root, or a directory within
    /// one.
    place: String,
}

/// State that a storage shares with its siblings and clones.
#[derive(Debug, Default)]
struct MemoryShared {
    state: Mutex<MemoryState>,
    unlocked: Condvar,
    cold: bool,
    /// Unique in this process.
    number: u64,
}

/// The key of the first root.
const FIRST: &str = "memory";
/// The prefix of names of unique workspaces, which listings hide.
const STAGED_PREFIX: &str = ".bedform-temp-";

#[derive(Debug, Default)]
struct MemoryState {
    /// By key: the root's key followed by the path in it.
    objects: BTreeMap<String, Arc<Content>>,
    /// Directories, except the roots that lie in no other root.
    directories: BTreeSet<String>,
    /// The time at which an entry of a directory was last added or removed, by the directory's key.
    named: BTreeMap<String, i64>,
    locked: BTreeSet<String>,
    published: u64,
}

#[derive(Debug)]
struct Content {
    /// The bytes; those of a growing object may be more than this version has.
    bytes: Arc<RwLock<MemoryBytes>>,
    version: Version,
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStorage {
    /// Returns an empty storage.
    pub fn new() -> Self {
        Self::of(false)
    }

    /// Returns an empty storage whose bytes are never resident, as on a device that was not read
    /// before.
    pub fn cold() -> Self {
        Self::of(true)
    }

    fn of(cold: bool) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let shared = MemoryShared { cold, number, ..MemoryShared::default() };
        Self { shared: Arc::new(shared), place: FIRST.to_owned() }
    }

    fn key(&self, path: &ObjectPath) -> String {
        match path.as_str() {
            "" => self.place.clone(),
            path => format!("{}/{path}", self.place),
        }
    }

    /// True if `path` is a directory; the root always is one.
    fn is_directory(&self, state: &MemoryState, path: &ObjectPath) -> bool {
        path.is_root() || state.directories.contains(&self.key(path))
    }

    fn find(
        &self,
        state: &MemoryState,
        operation: &'static str,
        path: &ObjectPath,
    ) -> Result<Arc<Content>> {
        let kind = match state.objects.get(&self.key(path)) {
            Some(content) => return Ok(Arc::clone(content)),
            None if self.is_directory(state, path) => StorageErrorKind::NotAnObject,
            None => StorageErrorKind::NotFound,
        };
        Err(StorageError::new(kind, operation, path))
    }

    /// Takes the lock of a directory; `None` if it is held.
    fn lock_free(&self, state: &mut MemoryState, path: &ObjectPath) -> Option<Box<dyn Lock>> {
        let (shared, key) = (Arc::clone(&self.shared), self.key(path));
        let is_free = state.locked.insert(key.clone());
        is_free.then(|| Box::new(MemoryLock { shared, key }) as Box<dyn Lock>)
    }

    fn make_directories(&self, state: &mut MemoryState, path: &ObjectPath) -> Result<()> {
        let key = self.key(path);
        let mut at = &*key;
        while let Some((parent, _)) = at.rsplit_once('/') {
            if state.objects.contains_key(at) {
                return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
            }
            state.directories.insert(at.to_owned());
            at = parent;
        }
        Ok(())
    }

    fn check(
        &self,
        state: &MemoryState,
        operation: &'static str,
        path: &ObjectPath,
        condition: Condition<'_>,
    ) -> Result<()> {
        let current = state.objects.get(&self.key(path)).map(|content| &content.version);
        let kind = match condition {
            Condition::Absent if current.is_some() => StorageErrorKind::Exists,
            Condition::Unchanged(object) if current != Some(object.version()) => {
                StorageErrorKind::Conflict
            }
            _ if self.is_directory(state, path) => StorageErrorKind::NotAnObject,
            _ => return Ok(()),
        };
        Err(StorageError::new(kind, operation, path))
    }
}

impl MemoryShared {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if `key` is `directory` or lies below it.
fn is_within(key: &str, directory: &str) -> bool {
    key.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl MemoryState {
    /// Stores `bytes` under `key`: as a new object, or as the newer version of the growing object
    /// `identity`.
    fn insert(
        &mut self,
        key: &str,
        bytes: Arc<RwLock<MemoryBytes>>,
        identity: Option<(u64, u64)>,
    ) -> Version {
        let time = self.next_time();
        let version = Version {
            size: bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
            modified_ns: time,
            changed_ns: time,
            identity: identity.unwrap_or((0, self.published)),
        };
        let content = Content { bytes, version: version.clone() };
        if self.objects.insert(key.to_owned(), Arc::new(content)).is_none() {
            self.note_name(key, time);
        }
        version
    }

    fn next_time(&mut self) -> i64 {
        self.published += 1;
        i64::try_from(self.published).unwrap_or(i64::MAX)
    }

    /// Notes that a name was added or removed.
    fn note_name(&mut self, key: &str, time: i64) {
        if let Some((directory, _)) = key.rsplit_once('/') {
            self.named.insert(directory.to_owned(), time);
        }
    }

    /// Removes the object with this key.
    fn remove(&mut self, key: &str) {
        if self.objects.remove(key).is_some() {
            let time = self.next_time();
            self.note_name(key, time);
        }
    }
}

#[derive(Debug)]
struct MemoryObject {
    shared: Arc<MemoryShared>,
    path: ObjectPath,
    key: String,
    content: Arc<Content>,
}

impl MemoryObject {
    /// Copies the available bytes to the front of `buffer` and returns their number.
    fn copy_to(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = usize::try_from(self.content.version.size).unwrap_or(usize::MAX);
        let bytes = self.content.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let count = end.saturating_sub(start).min(buffer.len());
        if count > 0 {
            bytes.copy_to(start, &mut buffer[..count]);
        }
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
        Ok(state.objects.get(&self.key).is_some_and(|now| now.version == self.content.version))
    }

    lacks!(read_past, read_ahead, request, buffered_range, buffered_bytes, kept);
}

struct MemoryWriter {
    storage: MemoryStorage,
    path: ObjectPath,
    bytes: Vec<u8>,
}

impl ObjectWriter for MemoryWriter {
    /// Does nothing: an object in memory has one name.
    fn keep_replaced(&mut self, _suffix: &'static str, _path: ObjectPath) {}

    fn position(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { storage, path, bytes } = *self;
        let mut state = storage.shared.state();
        storage.check(&state, "publish", &path, condition)?;
        storage.make_directories(&mut state, &path.parent())?;
        Ok(state.insert(&storage.key(&path), Arc::new(RwLock::new(MemoryBytes::Run(bytes))), None))
    }

    forward!(implement as ObjectWriter: append_owned);
}

/// A growing object in memory: appended bytes are visible at once.
struct MemoryGrowing {
    shared: Arc<MemoryShared>,
    path: ObjectPath,
    key: String,
    lane: Lane,
    bytes: Arc<RwLock<MemoryBytes>>,
    position: u64,
    identity: (u64, u64),
}

impl MemoryGrowing {
    /// Writes `bytes` at their offsets in the lane, with zeros before them where nothing was
    /// written.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut all = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            let (offset, length) =
                next_lane_run(self.lane, self.position, bytes.len(), &self.path)?;
            let (now, later) = bytes.split_at(length);
            all.put(usize::try_from(offset).unwrap_or(usize::MAX), now);
            self.position += length as u64;
            bytes = later;
        }
        Ok(())
    }
}

impl GrowingObject for MemoryGrowing {
    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        self.put(bytes)?;
        // The name may have been deleted, or stand for another object.
        let is_named = |found: &Arc<Content>| found.version.identity == self.identity;
        if state.objects.get(&self.key).is_some_and(is_named) {
            state.insert(&self.key, Arc::clone(&self.bytes), Some(self.identity));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.sync()
    }

    fn sync(&mut self) -> Result<()> {
        self.append(padding(self.position))
    }
}

struct MemoryLock {
    shared: Arc<MemoryShared>,
    key: String,
}

impl Lock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.shared.state().locked.remove(&self.key);
        self.shared.unlocked.notify_all();
    }
}

impl MemoryStorage {
    fn create_growing(&self, path: &ObjectPath, empty: MemoryBytes) -> Result<MemoryGrowing> {
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
        }
        let mut state = self.shared.state();
        self.make_directories(&mut state, &path.parent())?;
        let key = self.key(path);
        if state.objects.contains_key(&key) || self.is_directory(&state, path) {
            return Err(StorageError::new(StorageErrorKind::Exists, "create", path));
        }
        let bytes = Arc::new(RwLock::new(empty));
        let identity = state.insert(&key, Arc::clone(&bytes), None).identity;
        let (shared, path) = (Arc::clone(&self.shared), path.clone());
        let lane = Lane::ONLY;
        Ok(MemoryGrowing { shared, path, key, lane, bytes, position: 0, identity })
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> String {
        self.place.clone()
    }

    fn identity(&self) -> Option<String> {
        Some(format!("memory:{}:{}", self.shared.number, self.place))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let content = self.find(&self.shared.state(), "open", path)?;
        let (shared, path, key) = (Arc::clone(&self.shared), path.clone(), self.key(path));
        Ok(Box::new(MemoryObject { shared, path, key, content }))
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        Ok(self.find(&self.shared.state(), "stat", path)?.version.clone())
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        let state = self.shared.state();
        match self.find(&state, "stat", path) {
            Err(error) if error.kind == StorageErrorKind::NotAnObject => {
                Ok(state.named.get(&self.key(path)).copied().unwrap_or(0))
            }
            found => Ok(found?.version.modified_ns),
        }
    }

    fn now(&self) -> Result<i64> {
        Ok(i64::try_from(self.shared.state().published).unwrap_or(i64::MAX))
    }

    fn create(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
        }
        self.make_directories(&mut self.shared.state(), &path.parent())?;
        let (storage, path) = (self.clone(), path.clone());
        Ok(Box::new(MemoryWriter { storage, path, bytes: Vec::new() }))
    }

    fn grow(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        Ok(Box::new(self.create_growing(path, MemoryBytes::Run(Vec::new()))?))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        if lane.is_alone() {
            return self.grow(path, durability, None);
        }
        if lane.number() == 0 {
            let stripes = MemoryBytes::Stripes { length: 0, stripes: Vec::new() };
            let growing = self.create_growing(path, stripes)?;
            return Ok(Box::new(MemoryGrowing { lane, ..growing }));
        }
        let content = self.find(&self.shared.state(), "create", path)?;
        let (bytes, identity) = (Arc::clone(&content.bytes), content.version.identity);
        let (shared, path, key) = (Arc::clone(&self.shared), path.clone(), self.key(path));
        Ok(Box::new(MemoryGrowing { shared, path, key, lane, bytes, position: 0, identity }))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let place = format!("{}{}", self.place, checked_suffix(suffix)?);
        Ok(Arc::new(Self { shared: Arc::clone(&self.shared), place }))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        self.make_directories(&mut self.shared.state(), path)?;
        Ok(Arc::new(Self { shared: Arc::clone(&self.shared), place: self.key(path) }))
    }

    fn workspace(
        &self,
        directory: &ObjectPath,
        name: WorkspaceName<'_>,
    ) -> Result<Option<Box<dyn Workspace>>> {
        tree::workspace(self, directory, name)
    }

    fn publish_tree(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        how: TreePublication,
        _durability: Durability,
    ) -> Result<()> {
        tree::publish_tree(self, staged, target, how)
    }

    fn publish_object(
        &self,
        staged: &ObjectPath,
        target: &ObjectPath,
        _durability: Durability,
    ) -> Result<()> {
        tree::publish_object(self, staged, target)
    }

    fn delete(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        let mut state = self.shared.state();
        self.check(&state, "delete", path, condition)?;
        state.remove(&self.key(path));
        Ok(())
    }

    fn delete_tree(&self, path: &ObjectPath, _durability: Durability) -> Result<()> {
        let mut state = self.shared.state();
        let key = self.key(path);
        if self.is_directory(&state, path) {
            state.objects.retain(|other, _| !is_within(other, &key));
            state.directories.retain(|other| !is_within(other, &key));
            state.named.retain(|other, _| !is_within(other, &key));
        } else if state.objects.contains_key(&key) {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "delete", path));
        }
        Ok(())
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        let state = self.shared.state();
        let directory = format!("{}/", self.key(path));
        let entry = |key: &String, is_directory| {
            let name = key
                .strip_prefix(&directory)
                .filter(|name| !name.contains('/') && !name.starts_with(STAGED_PREFIX))?;
            Some(ListedEntry { name: name.to_owned(), is_directory })
        };
        let objects = state.objects.keys().filter_map(|key| entry(key, false));
        let directories = state.directories.iter().filter_map(|key| entry(key, true));
        let mut entries: Vec<ListedEntry> = objects.chain(directories).collect();
        entries.sort_unstable();
        Ok(entries)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let mut state = self.shared.state();
        loop {
            if !self.is_directory(&state, path) {
                return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
            }
            if let Some(lock) = self.lock_free(&mut state, path) {
                return Ok(lock);
            }
            state = self.shared.unlocked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        let mut state = self.shared.state();
        if !self.is_directory(&state, path) {
            return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
        }
        Ok(self.lock_free(&mut state, path))
    }

    lacks!(open_end, request_end, sync, can_sync_all, sync_all, try_lock_of_dead, sweep);
    forward!(implement as Storage: is_current, put);
}
