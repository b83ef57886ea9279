//! A directory of a place as a place of its own.
//!
//! A conversion keeps its store in its work directory until it is complete. All calls on that store go
//! to the storage of the directory above, under longer paths: what poisons one poisons both, and whoever
//! watches or disturbs that storage sees all of it.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;
use bedform_storage::{
    Bell, Condition, Durability, Entry, Found, GrowingObject, Hint, Lock, Object, ObjectWriter,
    Storage, StorageError, StorageErrorKind, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// The objects of `inner` at and below `prefix`.
#[derive(Debug, Clone)]
pub(super) struct Subtree {
    inner: Arc<dyn Storage>,
    prefix: ObjectPath,
}

impl Subtree {
    pub(super) fn new(inner: Arc<dyn Storage>, prefix: ObjectPath) -> Self {
        Self { inner, prefix }
    }

    fn at(&self, path: &ObjectPath) -> Result<ObjectPath> {
        if path.is_root() {
            return Ok(self.prefix.clone());
        }
        self.prefix
            .join(path.as_str())
            .map_err(|_| StorageError::new(StorageErrorKind::NotAnObject, "open", path))
    }
}

impl Storage for Subtree {
    fn name(&self) -> String {
        format!("{}/{}", self.inner.name(), self.prefix)
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        self.inner.open(&self.at(path)?)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        self.inner.open_end(&self.at(path)?, bytes)
    }

    fn ask_end(&self, path: &ObjectPath, bytes: u64, bell: &Arc<Bell>) -> Option<Found> {
        self.inner.ask_end(&self.at(path).ok()?, bytes, bell)
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        self.inner.stat(&self.at(path)?)
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        self.inner.modified_ns(&self.at(path)?)
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Result<bool> {
        self.inner.is_current(&self.at(path)?, version)
    }

    fn create(
        &self,
        path: &ObjectPath,
        durability: Durability,
        hint: Hint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        self.inner.create(&self.at(path)?, durability, hint)
    }

    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        self.inner.put(&self.at(path)?, bytes, durability, condition)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        self.inner.grow(&self.at(path)?, durability, size_hint)
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        self.inner.grow_lane(&self.at(path)?, lane, durability)
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let refuse = || StorageError::new(StorageErrorKind::NotAnObject, "open", suffix);
        if suffix.is_empty() || suffix.contains('/') {
            return Err(refuse());
        }
        let prefix = ObjectPath::parse(&format!("{}{suffix}", self.prefix));
        Ok(Arc::new(Self::new(self.inner.clone(), prefix.map_err(|_| refuse())?)))
    }

    fn delete(
        &self,
        path: &ObjectPath,
        durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        self.inner.delete(&self.at(path)?, durability, condition)
    }

    fn delete_tree(&self, path: &ObjectPath, durability: Durability) -> Result<()> {
        self.inner.delete_tree(&self.at(path)?, durability)
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        self.inner.list(&self.at(path)?)
    }

    fn sync(&self, path: &ObjectPath) -> Result<()> {
        self.inner.sync(&self.at(path)?)
    }

    fn can_sync_all(&self) -> bool {
        self.inner.can_sync_all()
    }

    fn sync_all(&self, directories: &[ObjectPath]) -> Result<()> {
        let all: Vec<ObjectPath> =
            directories.iter().map(|path| self.at(path)).collect::<Result<_>>()?;
        self.inner.sync_all(&all)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        self.inner.lock(&self.at(path)?)
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.inner.try_lock(&self.at(path)?)
    }

    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.inner.try_lock_of_dead(&self.at(path)?)
    }

    fn sweep(&self, path: &ObjectPath) -> Result<u64> {
        self.inner.sweep(&self.at(path)?)
    }
}
