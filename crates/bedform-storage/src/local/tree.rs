//! Trees that are staged in a directory and published as a whole.
//!
//! - A workspace is a directory whose [lock](crate::Storage::lock) its owner holds. A unique
//!   workspace has a temporary name, so that listings hide it, and a sweep removes it once the lock
//!   is free. An owner creates the directory before it takes the lock. If a sweeper removes or
//!   locks the directory in between, the owner makes another one.
//! - Publication is one rename of a directory, which may replace an empty directory on every POSIX
//!   system, or one exchange of two names. Both parent directories are then synced. A journal has
//!   the change in one transaction, which the first sync makes durable; other file systems need
//!   both syncs.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;

use super::names::{ATTEMPTS_MAX, is_missing_feature, temporary_name};
use super::publish::{current, lock, naming_lock};
use super::{LocalShared, Result, check_name};
use crate::file_system::{FileKind, FileStatus, FileSystem, LinkPolicy, LockWait, uninterrupted};
use crate::implement::unsupported;
use crate::{
    Durability, Lock, StorageError, StorageErrorKind, TreePublication, Workspace, WorkspaceName,
};

/// A workspace that its owner holds.
pub(super) struct LocalWorkspace<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    path: ObjectPath,
    is_unique: bool,
    /// `None` where the system has no locks.
    lock: Option<Box<dyn Lock>>,
    /// The process number of the owner; a forked child does not own the workspace.
    process: u32,
}

/// Implements [`Storage::workspace`](crate::Storage::workspace).
pub(super) fn workspace<F: FileSystem>(
    shared: &Arc<LocalShared<F>>,
    directory: &ObjectPath,
    name: WorkspaceName<'_>,
) -> Result<Option<LocalWorkspace<F>>> {
    let unfit = |_| StorageError::new(StorageErrorKind::NotAnObject, "create", directory);
    let own = |path, lock, is_unique| {
        let (shared, process) = (Arc::clone(shared), std::process::id());
        LocalWorkspace { shared, path, is_unique, lock, process }
    };
    let WorkspaceName::Resumable(name) = name else {
        for _ in 0..ATTEMPTS_MAX {
            let path = directory.join(&temporary_name(&shared.system)).map_err(unfit)?;
            if let Some(lock) = make_and_lock(shared, &path)? {
                return Ok(Some(own(path, lock, true)));
            }
        }
        let reason = io::Error::other("no free temporary name");
        return Err(StorageError::from_io("create", directory, reason));
    };
    let path = directory.join(name).map_err(unfit)?;
    check_name("create", &path)?;
    for _ in 0..ATTEMPTS_MAX {
        let made = shared.make_directories(&path)?;
        shared.make_path_durable(&path, &made)?;
        match lock(shared, &path, LockWait::Never) {
            // Its last owner has just removed it.
            Err(error) if error.is_not_found() => {}
            outcome => return Ok(outcome?.map(|lock| own(path, Some(lock), false))),
        }
    }
    Err(StorageError::new(StorageErrorKind::NotFound, "create", &path))
}

/// Creates the directory `path` and takes its lock; `None` if the name was taken, or a sweeper got
/// the lock.
fn make_and_lock<F: FileSystem>(
    shared: &Arc<LocalShared<F>>,
    path: &ObjectPath,
) -> Result<Option<Option<Box<dyn Lock>>>> {
    let parent = shared.make_directories(&path.parent())?;
    match uninterrupted(|| shared.system.make_directory(&parent, path.name())) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        made => made.map_err(|error| StorageError::from_io("create", path, error))?,
    }
    match lock(shared, path, LockWait::Never) {
        Ok(lock) => Ok(lock.map(Some)),
        Err(error) if error.is_not_found() => Ok(None),
        // A sweeper cannot take a lock either, and so removes nothing.
        Err(error) if error.source.as_ref().is_some_and(is_missing_feature) => Ok(Some(None)),
        Err(error) => {
            let _ = uninterrupted(|| shared.system.remove_directory(&parent, path.name()));
            Err(error)
        }
    }
}

impl<F: FileSystem> LocalWorkspace<F> {
    /// Deletes the whole tree, and returns the directory that had its name.
    fn delete(&self) -> Result<Option<F::Handle>> {
        let (shared, path) = (&self.shared, &self.path);
        let Some(directory) = shared.find_directory("delete", path, LinkPolicy::Refuse)? else {
            return Ok(None);
        };
        shared.forget_durable(path);
        shared.empty(&directory, path, 0)?;
        let Some(parent) = shared.find_directory("delete", &path.parent(), LinkPolicy::Refuse)?
        else {
            return Ok(None);
        };
        match uninterrupted(|| shared.system.remove_directory(&parent, path.name())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StorageError::from_io("delete", path, error))
            }
            _ => Ok(Some(parent)),
        }
    }
}

impl<F: FileSystem> Workspace for LocalWorkspace<F> {
    fn path(&self) -> &ObjectPath {
        &self.path
    }

    fn remove(mut self: Box<Self>) -> Result<()> {
        let parent = self.delete();
        // After a failure, dropping does not try again to delete the rest.
        self.is_unique = false;
        match parent? {
            Some(parent) => {
                let outcome = self.shared.system.sync_directory(&parent);
                outcome.map_err(|error| self.shared.poison(&self.path, error))
            }
            None => Ok(()),
        }
    }
}

impl<F: FileSystem> Drop for LocalWorkspace<F> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.lock.take());
        } else if self.is_unique {
            // A sweep removes the rest.
            let _ = self.delete();
        }
    }
}

/// Removes the workspace with the temporary name `path` if its owner died, and returns whether it
/// did.
pub(super) fn remove_dead_workspace<F: FileSystem>(
    shared: &Arc<LocalShared<F>>,
    path: ObjectPath,
) -> Result<bool> {
    // Locked: the owner is alive. On any error its death is unproven.
    let Ok(Some(lock)) = lock(shared, &path, LockWait::Never) else { return Ok(false) };
    let (shared, process) = (Arc::clone(shared), std::process::id());
    let dead = LocalWorkspace { shared, path, is_unique: false, lock: Some(lock), process };
    Ok(dead.delete()?.is_some())
}

/// Implements [`Storage::publish_tree`](crate::Storage::publish_tree).
pub(super) fn publish_tree<F: FileSystem>(
    shared: &LocalShared<F>,
    staged: &ObjectPath,
    target: &ObjectPath,
    how: TreePublication,
    durability: Durability,
) -> Result<()> {
    let error = |kind, path: &ObjectPath| StorageError::new(kind, "publish", path);
    if staged.is_root() {
        return Err(error(StorageErrorKind::NotAnObject, staged));
    }
    check_name("publish", target)?;
    if staged.is_within(target) || target.is_within(staged) {
        return Err(unsupported("publish", target, "one of the two directories lies in the other"));
    }
    let from = shared.find_directory("publish", &staged.parent(), LinkPolicy::Refuse)?;
    let from = from.ok_or_else(|| error(StorageErrorKind::NotFound, staged))?;
    let to = match how {
        TreePublication::Absent => shared.make_directories(&target.parent())?,
        TreePublication::Exchange => {
            let to = shared.find_directory("publish", &target.parent(), LinkPolicy::Refuse)?;
            to.ok_or_else(|| error(StorageErrorKind::NotFound, target))?
        }
    };
    if durability == Durability::Disk {
        shared.make_path_durable(&target.parent(), &to)?;
    }
    give_tree_name(shared, (&from, staged), (&to, target), how)?;
    // The two names stand for other directories now.
    shared.forget_durable(staged);
    shared.forget_durable(target);
    if durability == Durability::Disk {
        for directory in [&to, &from] {
            let outcome = shared.system.sync_directory(directory);
            outcome.map_err(|error| shared.poison(target, error))?;
        }
    }
    Ok(())
}

/// Renames or exchanges, under the naming lock of the directory in which the tree appears.
fn give_tree_name<F: FileSystem>(
    shared: &LocalShared<F>,
    (from, staged): (&F::Handle, &ObjectPath),
    (to, target): (&F::Handle, &ObjectPath),
    how: TreePublication,
) -> Result<()> {
    let system = &shared.system;
    let fail = |error| StorageError::from_io("publish", target, error);
    let _lock = naming_lock(system, to).map_err(fail)?;
    let tree = directory_at(system, from, staged)?;
    let tree =
        tree.ok_or_else(|| StorageError::new(StorageErrorKind::NotFound, "publish", staged))?;
    let outcome = match how {
        TreePublication::Absent => {
            uninterrupted(|| system.rename_directory((from, staged.name()), (to, target.name())))
        }
        TreePublication::Exchange => {
            let there = directory_at(system, to, target)?;
            let missing = || StorageError::new(StorageErrorKind::NotFound, "publish", target);
            there.ok_or_else(missing)?;
            uninterrupted(|| system.exchange((from, staged.name()), (to, target.name())))
        }
    };
    let Err(error) = outcome else { return Ok(()) };
    // A network file system may report a failure of a call that its server has carried out.
    match current(system, to, target.name()) {
        Ok(Some(now)) if now.version.identity == tree.version.identity => Ok(()),
        Ok(_) => Err(refusal(target, how, error)),
        Err(_) => Err(shared.poison(target, error)),
    }
}

/// Returns the status of the directory `path` in its parent; `None` if there is nothing.
fn directory_at<F: FileSystem>(
    system: &F,
    parent: &F::Handle,
    path: &ObjectPath,
) -> Result<Option<FileStatus>> {
    let found = current(system, parent, path.name());
    match found.map_err(|error| StorageError::from_io("publish", path, error))? {
        Some(status) if status.kind != FileKind::Directory => {
            Err(StorageError::new(StorageErrorKind::NotAnObject, "publish", path))
        }
        found => Ok(found),
    }
}

/// Returns the error for a tree that did not get its name.
fn refusal(target: &ObjectPath, how: TreePublication, error: io::Error) -> StorageError {
    use io::ErrorKind as Kind;
    match (how, error.kind()) {
        (
            TreePublication::Absent,
            Kind::AlreadyExists | Kind::DirectoryNotEmpty | Kind::NotADirectory,
        ) => StorageError::new(StorageErrorKind::Exists, "publish", target),
        (_, Kind::CrossesDevices) => {
            unsupported("publish", target, "the two names are on different file systems")
        }
        (TreePublication::Exchange, _) if is_missing_feature(&error) => {
            unsupported("publish", target, "this file system exchanges no names")
        }
        _ => StorageError::from_io("publish", target, error),
    }
}
