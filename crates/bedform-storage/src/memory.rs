//! Objects in memory: the plainest storage, and the model that others are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use bedform_format::ObjectPath;
use bedform_format::log::{Lane, STRIPE_BYTES};

use crate::implement::{self, checked_suffix, padding, place_in};
use crate::{
    Condition, Durability, Entry, GrowingObject, Hint, Lock, Object, ObjectWriter, Storage,
    StorageError, StorageErrorKind, Version, lacks,
};

type Result<T> = std::result::Result<T, StorageError>;

/// A storage whose objects are gone with it; clones are further views of the same one.
///
/// ```
/// use bedform_format::ObjectPath;
/// use bedform_storage::{Condition, Durability, Hint, MemoryStorage, Storage};
///
/// let storage = MemoryStorage::new();
/// let path = ObjectPath::parse("a/b").unwrap();
/// let mut writer = storage.create(&path, Durability::Disk, Hint::default())?;
/// writer.append(b"abc")?;
/// let version = writer.publish(Condition::Absent)?;
/// assert_eq!(storage.stat(&path)?, version);
/// # Ok::<(), bedform_storage::StorageError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
    /// What this place's name has behind that of the first.
    suffix: String,
    /// The other places, by their suffixes.
    places: Arc<Mutex<BTreeMap<String, Arc<Shared>>>>,
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

/// The bytes of an object: one run, or of several writers stripe by stripe, so that what nobody has
/// written takes no memory.
#[derive(Debug)]
enum Bytes {
    Run(Vec<u8>),
    Stripes { length: usize, stripes: Vec<Vec<u8>> },
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Self::Run(bytes) => bytes.len(),
            Self::Stripes { length, .. } => *length,
        }
    }

    /// Puts `bytes` at `start`, with zeros before them where there was nothing. Those of stripes lie in
    /// one of them.
    fn put(&mut self, start: usize, bytes: &[u8]) {
        let (all, start) = match self {
            Self::Run(all) => (all, start),
            Self::Stripes { length, stripes } => {
                *length = (*length).max(start + bytes.len());
                let number = start / STRIPE;
                if stripes.len() <= number {
                    stripes.resize(number + 1, Vec::new());
                }
                (&mut stripes[number], start % STRIPE)
            }
        };
        let end = start + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[start..end].copy_from_slice(bytes);
    }

    /// Fills `buffer`, all of which there is.
    fn copy_to(&self, start: usize, buffer: &mut [u8]) {
        match self {
            Self::Run(all) => buffer.copy_from_slice(&all[start..start + buffer.len()]),
            Self::Stripes { stripes, .. } => {
                let mut at = start;
                let mut rest = buffer;
                while !rest.is_empty() {
                    let (now, later) = rest.split_at_mut((STRIPE - at % STRIPE).min(rest.len()));
                    let known = stripes.get(at / STRIPE).and_then(|own| own.get(at % STRIPE..));
                    let known = known.unwrap_or_default();
                    let count = known.len().min(now.len());
                    now[..count].copy_from_slice(&known[..count]);
                    now[count..].fill(0);
                    at += now.len();
                    rest = later;
                }
            }
        }
    }
}

/// Bytes of a stripe.
#[allow(clippy::cast_possible_truncation)]
const STRIPE: usize = STRIPE_BYTES as usize;

#[derive(Debug)]
struct Content {
    /// The bytes, and of an object that grows perhaps more.
    bytes: Arc<RwLock<Bytes>>,
    version: Version,
}

impl MemoryStorage {
    /// An empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty storage of which no byte is ever at hand, as on a device that was not read before.
    pub fn cold() -> Self {
        let shared = Arc::new(Shared { cold: true, ..Shared::default() });
        Self { shared, ..Self::default() }
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

    /// Puts `bytes` under `path`: as a new object, or as what `identity` has become.
    fn insert(
        &mut self,
        path: &ObjectPath,
        bytes: Arc<RwLock<Bytes>>,
        identity: Option<(u64, u64)>,
    ) -> Version {
        self.published += 1;
        let time = i64::try_from(self.published).unwrap_or(i64::MAX);
        let version = Version {
            size: bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
            modified_ns: time,
            changed_ns: time,
            identity: identity.unwrap_or((0, self.published)),
        };
        let content = Content { bytes, version: version.clone() };
        self.objects.insert(path.clone(), Arc::new(content));
        version
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
        Ok(state.objects.get(&self.path).is_some_and(|now| now.version == self.content.version))
    }

    lacks!(read_past, read_ahead, ask, at_hand, known, kept);
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

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        implement::append_owned(self, bytes)
    }

    fn publish(self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let Self { shared, path, bytes } = *self;
        let mut state = shared.state();
        state.check("publish", &path, condition)?;
        state.make_directories(&path.parent())?;
        Ok(state.insert(&path, Arc::new(RwLock::new(Bytes::Run(bytes))), None))
    }
}

/// An object that grows: what is appended is seen at once.
struct MemoryGrowing {
    shared: Arc<Shared>,
    path: ObjectPath,
    lane: Lane,
    bytes: Arc<RwLock<Bytes>>,
    position: u64,
    identity: (u64, u64),
}

impl MemoryGrowing {
    /// Puts `bytes` where they belong, with zeros before them where nobody has written.
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut all = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            let (offset, length) = place_in(self.lane, self.position, bytes.len(), &self.path)?;
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
        // The name may be gone by now, or stand for another object.
        let is_named = |found: &Arc<Content>| found.version.identity == self.identity;
        if state.objects.get(&self.path).is_some_and(is_named) {
            state.insert(&self.path, Arc::clone(&self.bytes), Some(self.identity));
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

impl MemoryStorage {
    fn create_growing(&self, path: &ObjectPath, empty: Bytes) -> Result<MemoryGrowing> {
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
        }
        let mut state = self.shared.state();
        state.make_directories(&path.parent())?;
        if state.objects.contains_key(path) || state.is_directory(path) {
            return Err(StorageError::new(StorageErrorKind::Exists, "create", path));
        }
        let bytes = Arc::new(RwLock::new(empty));
        let identity = state.insert(path, Arc::clone(&bytes), None).identity;
        let (shared, path) = (Arc::clone(&self.shared), path.clone());
        let lane = Lane::ONLY;
        Ok(MemoryGrowing { shared, path, lane, bytes, position: 0, identity })
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> String {
        format!("memory{}", self.suffix)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        let content = self.shared.state().find("open", path)?;
        Ok(Box::new(MemoryObject { shared: Arc::clone(&self.shared), path: path.clone(), content }))
    }

    fn open_end(&self, path: &ObjectPath, _bytes: u64) -> Result<Box<dyn Object>> {
        self.open(path)
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        Ok(self.shared.state().find("stat", path)?.version.clone())
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        implement::modified_ns(self, path)
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        implement::is_current(self, path, version)
    }

    fn create(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _hint: Hint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        if path.is_root() {
            return Err(StorageError::new(StorageErrorKind::NotAnObject, "create", path));
        }
        self.shared.state().make_directories(&path.parent())?;
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemoryWriter { shared, path: path.clone(), bytes: Vec::new() }))
    }

    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        implement::put(self, path, bytes, durability, condition)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        Ok(Box::new(self.create_growing(path, Bytes::Run(Vec::new()))?))
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
            let stripes = Bytes::Stripes { length: 0, stripes: Vec::new() };
            let growing = self.create_growing(path, stripes)?;
            return Ok(Box::new(MemoryGrowing { lane, ..growing }));
        }
        let content = self.shared.state().find("create", path)?;
        let (bytes, identity) = (Arc::clone(&content.bytes), content.version.identity);
        let (shared, path) = (Arc::clone(&self.shared), path.clone());
        Ok(Box::new(MemoryGrowing { shared, path, lane, bytes, position: 0, identity }))
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let suffix = format!("{}{}", self.suffix, checked_suffix(suffix)?);
        let mut known = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Shared { cold: self.shared.cold, ..Shared::default() });
        let shared = Arc::clone(known.entry(suffix.clone()).or_insert_with(new));
        Ok(Arc::new(Self { shared, suffix, places: Arc::clone(&self.places) }))
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

    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.try_lock(path)
    }

    fn sweep(&self, _path: &ObjectPath) -> Result<u64> {
        Ok(0)
    }

    lacks!(ask_end, can_sync_all, sync_all);
}
