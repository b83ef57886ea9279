//! Publishing and deleting under conditions.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;

use super::names::{LOCK_NAME, is_missing_feature};
use super::{LocalShared, Result};
use crate::cancellation::{LockPoll, may_be_cancelled};
use crate::error::NO_LOCKS;
use crate::file_system::{
    FileKind, FileStatus, FileSystem, LinkPolicy, LockWait, Replace, uninterrupted,
};
use crate::{Condition, Durability, Lock, StorageError, StorageErrorKind, Version};

/// The lock of a directory under which names are given and deleted; held while the value lives.
pub(super) struct NamingLock<F: FileSystem> {
    _directory: F::Handle,
}

/// Waits for the naming lock of `directory`. `None` where the system has no such locks; conditions
/// that need it then fail.
pub(super) fn naming_lock<F: FileSystem>(
    system: &F,
    directory: &F::Handle,
) -> io::Result<Option<NamingLock<F>>> {
    // A separate handle, so that two threads exclude each other.
    let directory = uninterrupted(|| system.open_child(directory, "."))?;
    match uninterrupted(|| system.lock(&directory, LockWait::Forever)) {
        Ok(()) => Ok(Some(NamingLock { _directory: directory })),
        Err(error) if is_missing_feature(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the status of the file or directory `name`, if there is one.
pub(super) fn current<F: FileSystem>(
    system: &F,
    directory: &F::Handle,
    name: &str,
) -> io::Result<Option<FileStatus>> {
    match uninterrupted(|| system.stat_child(directory, name)) {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks `condition` under the naming lock. The call that gives the name checks `Absent`.
pub(super) fn check_condition<F: FileSystem>(
    shared: &LocalShared<F>,
    directory: &F::Handle,
    operation: &'static str,
    path: &ObjectPath,
    condition: Condition<'_>,
    is_locked: bool,
) -> Result<()> {
    let Condition::Unchanged(object) = condition else { return Ok(()) };
    let fail = |error| StorageError::from_io(operation, path, error);
    if !is_locked {
        return Err(fail(io::Error::other(NO_LOCKS)));
    }
    let status = current(&shared.system, directory, path.name()).map_err(fail)?;
    if status.is_none_or(|status| status.version != *object.version()) {
        return Err(StorageError::new(StorageErrorKind::Conflict, operation, path));
    }
    Ok(())
}

/// Renames the file `from` in the first directory to `to` in the second, atomically.
fn give_name<F: FileSystem>(
    system: &F,
    from: (&F::Handle, &str),
    to: (&F::Handle, &str),
    replace: Replace,
) -> io::Result<()> {
    match uninterrupted(|| system.rename(from, to, replace)) {
        Err(error) if replace == Replace::Refuse && is_missing_feature(&error) => {
            uninterrupted(|| system.link(from, to))?;
            // If this fails, a second, hidden name stays until a sweep removes it.
            let _ = uninterrupted(|| system.unlink(from.0, from.1));
            Ok(())
        }
        outcome => outcome,
    }
}

/// Implements [`Storage::publish_object`](crate::Storage::publish_object).
pub(super) fn publish_object<F: FileSystem>(
    shared: &LocalShared<F>,
    staged: &ObjectPath,
    target: &ObjectPath,
    durability: Durability,
) -> Result<()> {
    let system = &shared.system;
    let fail = |error| StorageError::from_io("publish", target, error);
    let missing = || StorageError::new(StorageErrorKind::NotFound, "publish", staged);
    if staged.is_root() {
        return Err(StorageError::new(StorageErrorKind::NotAnObject, "publish", staged));
    }
    let from = shared.find_directory("publish", &staged.parent(), LinkPolicy::Refuse)?;
    let from = from.ok_or_else(missing)?;
    let status = current(system, &from, staged.name()).map_err(fail)?.ok_or_else(missing)?;
    if status.kind != FileKind::File {
        return Err(StorageError::new(StorageErrorKind::NotAnObject, "publish", staged));
    }
    let to = shared.make_directories(&target.parent())?;
    if durability == Durability::Disk {
        shared.make_path_durable(&target.parent(), &to)?;
        let file = uninterrupted(|| system.open_child(&from, staged.name())).map_err(fail)?;
        system.sync_file(&file).map_err(|error| shared.poison(staged, error))?;
    }
    {
        let _lock = naming_lock(system, &to).map_err(fail)?;
        let names = ((&from, staged.name()), (&to, target.name()));
        give_name_once(shared, names.0, names.1, &status, target)?;
    }
    if durability == Durability::Disk {
        for directory in [&to, &from] {
            let outcome = system.sync_directory(directory);
            outcome.map_err(|error| shared.poison(target, error))?;
        }
    }
    Ok(())
}

/// Gives a file with the status `file` a free name. The caller holds the naming lock.
fn give_name_once<F: FileSystem>(
    shared: &LocalShared<F>,
    from: (&F::Handle, &str),
    to: (&F::Handle, &str),
    file: &FileStatus,
    target: &ObjectPath,
) -> Result<()> {
    let system = &shared.system;
    let mut outcome = give_name(system, from, to, Replace::Refuse);
    let has_no_links = |error: &io::Error| {
        is_missing_feature(error) || error.kind() == io::ErrorKind::PermissionDenied
    };
    if outcome.as_ref().is_err_and(has_no_links) && matches!(current(system, to.0, to.1), Ok(None))
    {
        // Neither call that refuses to replace exists: a writer without the naming lock could lose
        // its object.
        outcome = give_name(system, from, to, Replace::Allow);
    }
    let Err(error) = outcome else { return Ok(()) };
    // A network file system may report a failure of a call that its server has carried out.
    match current(system, to.0, to.1) {
        Ok(Some(now)) if now.version.identity == file.version.identity => {
            // The old name is gone after a rename, but not after a link.
            let _ = uninterrupted(|| system.unlink(from.0, from.1));
            Ok(())
        }
        Ok(_) => Err(StorageError::from_io("publish", target, error)),
        Err(_) => Err(shared.poison(target, error)),
    }
}

/// Renames the closed file `temporary`, whose version was `written`, to `path` as `condition` asks,
/// and returns its version.
pub(super) fn name_object<F: FileSystem>(
    shared: &LocalShared<F>,
    directory: &F::Handle,
    temporary: &str,
    path: &ObjectPath,
    condition: Condition<'_>,
    written: Version,
) -> Result<Version> {
    let fail = |error| StorageError::from_io("publish", path, error);
    let replace = match condition {
        Condition::Absent => Replace::Refuse,
        _ => Replace::Allow,
    };
    let (from, to) = ((directory, temporary), (directory, path.name()));
    let outcome = give_name(&shared.system, from, to, replace);
    let status = current(&shared.system, directory, path.name());
    match (outcome, status) {
        (Ok(()), Ok(Some(status))) => Ok(status.version),
        // A network file system may report a failure of a call that its server has carried out.
        (Err(_), Ok(Some(status))) if status.version.identity == written.identity => {
            // The old name is gone after a rename, but not after a link.
            let _ = uninterrupted(|| shared.system.unlink(directory, temporary));
            Ok(status.version)
        }
        (Err(error), Ok(_)) => Err(fail(error)),
        (Err(error), Err(_)) => Err(shared.poison(path, error)),
        // Published. The unknown change time only makes the next comparison fail.
        (Ok(()), _) => Ok(written),
    }
}

/// Gives a file the second name `path` in the sibling storage with `suffix`; a missing file becomes
/// an empty one there. The caller holds the naming lock. Returns the directory and the name.
pub(super) fn keep<'a, F: FileSystem>(
    shared: &LocalShared<F>,
    file: (&F::Handle, &str),
    suffix: &str,
    path: &'a ObjectPath,
) -> Result<(F::Handle, &'a str)> {
    let fail = |error| StorageError::from_io("keep", path, error);
    let sibling = uninterrupted(|| shared.system.sibling(suffix)).map_err(fail)?;
    let directory = shared.elsewhere(sibling).make_directories(&path.parent())?;
    let outcome = match current(&shared.system, file.0, file.1).map_err(fail)? {
        Some(_) => uninterrupted(|| shared.system.link(file, (&directory, path.name()))),
        None => shared.system.create_file(&directory, path.name()).map(drop),
    };
    outcome.map_err(fail)?;
    Ok((directory, path.name()))
}

/// Implements [`Storage::delete`](crate::Storage::delete).
pub(super) fn delete<F: FileSystem>(
    shared: &LocalShared<F>,
    path: &ObjectPath,
    durability: Durability,
    condition: Condition<'_>,
) -> Result<()> {
    let parent = path.parent();
    let fail = |error| StorageError::from_io("delete", path, error);
    let missing = || match condition {
        Condition::Unchanged(_) => {
            Err(StorageError::new(StorageErrorKind::Conflict, "delete", path))
        }
        _ => Ok(()),
    };
    let directory = match shared.find_directory("delete", &parent, LinkPolicy::Refuse) {
        Ok(Some(directory)) => directory,
        Ok(None) => return missing(),
        Err(error) if error.is_not_found() => return missing(),
        Err(error) => return Err(error),
    };
    {
        let lock = naming_lock(&shared.system, &directory).map_err(fail)?;
        check_condition(shared, &directory, "delete", path, condition, lock.is_some())?;
        match uninterrupted(|| shared.system.unlink(&directory, path.name())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
    }
    // Also if the object was missing: the process that deleted it may not have synced yet.
    if durability == Durability::Disk {
        shared.system.sync_directory(&directory).map_err(|error| shared.poison(path, error))?;
    }
    Ok(())
}

/// A guard of a directory's lock file, which it removes when it is dropped.
struct LocalLock<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    directory: F::Handle,
    file: F::Handle,
    keeps_file: bool,
}

impl<F: FileSystem> Lock for LocalLock<F> {
    fn keep_lock_file(&mut self) {
        self.keeps_file = true;
    }
}

impl<F: FileSystem> Drop for LocalLock<F> {
    fn drop(&mut self) {
        if self.keeps_file {
            return;
        }
        // Removed while the lock is held: a waiting process gets a file without a name, notices,
        // and starts again. If removal fails, a hidden, unlocked file stays.
        let _ = remove_lock_file(&self.shared.system, &self.directory, &self.file);
    }
}

/// Removes the lock file of `directory` if it is the file locked by `held`: only the holder of a
/// file's lock may remove its name.
pub(super) fn remove_lock_file<F: FileSystem>(
    system: &F,
    directory: &F::Handle,
    held: &F::Handle,
) -> io::Result<()> {
    let ours = uninterrupted(|| system.status(held))?.version.identity;
    match current(system, directory, LOCK_NAME)? {
        Some(named) if named.version.identity == ours => {
            uninterrupted(|| system.unlink(directory, LOCK_NAME))
        }
        _ => Ok(()),
    }
}

/// Implements [`Storage::lock`](crate::Storage::lock). A hidden file in the directory is locked,
/// not the directory, so that the holder can publish there.
pub(super) fn lock<F: FileSystem>(
    shared: &Arc<LocalShared<F>>,
    path: &ObjectPath,
    wait: LockWait,
) -> Result<Option<Box<dyn Lock>>> {
    let fail = |error| StorageError::from_io("lock", path, error);
    let system = &shared.system;
    let mut waiting = LockPoll::new(path.as_str());
    // The system's own wait ends only by a signal, which a single thread receives.
    let is_polled = may_be_cancelled();
    loop {
        let directory = uninterrupted(|| system.open_directory(path.as_str(), LinkPolicy::Refuse))
            .map_err(fail)?;
        let file = uninterrupted(|| system.open_lock_file(&directory, LOCK_NAME)).map_err(fail)?;
        match system.lock(&file, if is_polled { LockWait::Never } else { wait }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match wait {
                LockWait::Never => return Ok(None),
                LockWait::Forever => {
                    waiting.pause()?;
                    continue;
                }
            },
            // A signal arrived and may have cancelled the call.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if waiting.is_cancelled() {
                    return Err(waiting.interrupted());
                }
                continue;
            }
            outcome => outcome.map_err(fail)?,
        }
        // During the wait the last holder has removed the file, and the directory may have been
        // deleted and created again.
        let held = uninterrupted(|| system.status(&file)).map_err(fail)?.version.identity;
        let Some(directory) = shared.find_directory("lock", path, LinkPolicy::Refuse)? else {
            return Err(StorageError::new(StorageErrorKind::NotFound, "lock", path));
        };
        let named = current(system, &directory, LOCK_NAME).map_err(fail)?;
        if named.is_some_and(|status| status.version.identity == held) {
            let shared = Arc::clone(shared);
            return Ok(Some(Box::new(LocalLock { shared, directory, file, keeps_file: false })));
        }
    }
}
