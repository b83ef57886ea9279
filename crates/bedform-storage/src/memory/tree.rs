//! Staged and published trees in memory.

use bedform_format::ObjectPath;

use super::{MemoryState, MemoryStorage, Result, STAGED_PREFIX, is_within};
use crate::{
    Durability, Lock, Storage, StorageError, StorageErrorKind, TreePublication, Workspace,
    WorkspaceName, implement,
};

/// A workspace in memory.
struct MemoryWorkspace {
    storage: MemoryStorage,
    path: ObjectPath,
    is_unique: bool,
    _lock: Box<dyn Lock>,
}

impl Workspace for MemoryWorkspace {
    fn path(&self) -> &ObjectPath {
        &self.path
    }

    fn remove(self: Box<Self>) -> Result<()> {
        self.storage.delete_tree(&self.path, Durability::Process)
    }
}

impl Drop for MemoryWorkspace {
    fn drop(&mut self) {
        if self.is_unique {
            let _ = self.storage.delete_tree(&self.path, Durability::Process);
        }
    }
}

impl MemoryState {
    fn has_entries(&self, directory: &str) -> bool {
        let is_below = |key: &String| key != directory && is_within(key, directory);
        self.objects.keys().any(is_below) || self.directories.iter().any(is_below)
    }

    /// Exchanges the names of two directories, with everything below them.
    fn exchange(&mut self, one: &str, other: &str) {
        let renamed = |key: String| {
            let swapped = [(one, other), (other, one)].into_iter().find_map(|(from, to)| {
                Some(format!("{to}{}", key.strip_prefix(from).filter(|_| is_within(&key, from))?))
            });
            swapped.unwrap_or(key)
        };
        let objects = std::mem::take(&mut self.objects).into_iter();
        self.objects = objects.map(|(key, content)| (renamed(key), content)).collect();
        self.directories = std::mem::take(&mut self.directories).into_iter().map(renamed).collect();
    }
}

/// Implements [`Storage::workspace`].
pub(super) fn workspace(
    storage: &MemoryStorage,
    directory: &ObjectPath,
    name: WorkspaceName<'_>,
) -> Result<Option<Box<dyn Workspace>>> {
    let mut state = storage.shared.state();
    state.published += 1;
    let (name, is_unique) = match name {
        WorkspaceName::Unique => (format!("{STAGED_PREFIX}{:016x}", state.published), true),
        WorkspaceName::Resumable(name) => (name.to_owned(), false),
    };
    let unfit = |_| StorageError::new(StorageErrorKind::NotAnObject, "create", directory);
    let path = directory.join(&name).map_err(unfit)?;
    storage.make_directories(&mut state, &path)?;
    let Some(lock) = storage.lock_free(&mut state, &path) else { return Ok(None) };
    let storage = storage.clone();
    Ok(Some(Box::new(MemoryWorkspace { storage, path, is_unique, _lock: lock })))
}

/// Implements [`Storage::publish_tree`].
pub(super) fn publish_tree(
    storage: &MemoryStorage,
    staged: &ObjectPath,
    target: &ObjectPath,
    how: TreePublication,
) -> Result<()> {
    let error = |kind, path| Err(StorageError::new(kind, "publish", path));
    let mut state = storage.shared.state();
    let [from, to] = [storage.key(staged), storage.key(target)];
    if staged.is_root() || target.is_root() || state.objects.contains_key(&from) {
        return error(StorageErrorKind::NotAnObject, staged);
    }
    if is_within(&from, &to) || is_within(&to, &from) {
        let reason = "one of the two directories lies in the other";
        return Err(implement::unsupported("publish", target, reason));
    }
    if !state.directories.contains(&from) {
        return error(StorageErrorKind::NotFound, staged);
    }
    let is_object = state.objects.contains_key(&to);
    match how {
        TreePublication::Absent if is_object || state.has_entries(&to) => {
            return error(StorageErrorKind::Exists, target);
        }
        TreePublication::Exchange if is_object => {
            return error(StorageErrorKind::NotAnObject, target);
        }
        TreePublication::Exchange if !state.directories.contains(&to) => {
            return error(StorageErrorKind::NotFound, target);
        }
        TreePublication::Absent => {
            storage.make_directories(&mut state, &target.parent())?;
            state.directories.remove(&to);
        }
        TreePublication::Exchange => {}
    }
    state.exchange(&from, &to);
    Ok(())
}

/// Implements [`Storage::publish_object`].
pub(super) fn publish_object(
    storage: &MemoryStorage,
    staged: &ObjectPath,
    target: &ObjectPath,
) -> Result<()> {
    let error = |kind, path| Err(StorageError::new(kind, "publish", path));
    let mut state = storage.shared.state();
    let [from, to] = [storage.key(staged), storage.key(target)];
    if staged.is_root() || target.is_root() || state.directories.contains(&from) {
        return error(StorageErrorKind::NotAnObject, staged);
    }
    if state.objects.contains_key(&to) || state.directories.contains(&to) {
        return error(StorageErrorKind::Exists, target);
    }
    if !state.objects.contains_key(&from) {
        return error(StorageErrorKind::NotFound, staged);
    }
    storage.make_directories(&mut state, &target.parent())?;
    if let Some(content) = state.objects.remove(&from) {
        state.objects.insert(to, content);
    }
    Ok(())
}
