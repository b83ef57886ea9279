//! Directories of local storage: creating, syncing and emptying them; and poisoning of a handle.

use std::io;
use std::sync::PoisonError;

use bedform_format::ObjectPath;

use super::{LocalShared, Mode, Result};
use crate::file_system::{FileKind, FileSystem, LinkPolicy, uninterrupted};
use crate::{StorageError, StorageErrorKind};

/// The most nested directories that one call enters: as many as a path can have.
const DEPTH_MAX: usize = 512;
/// Directories that a handle remembers as durable. When it has more, it forgets all and syncs them
/// again.
const DURABLE_MAX: usize = 1 << 16;

/// The most attempts to empty a directory into which other processes put files.
const EMPTIED_MAX: usize = 16;

impl<F: FileSystem> LocalShared<F> {
    /// Fails if this handle is read-only or poisoned.
    pub(super) fn check_writable(&self, operation: &'static str, path: &ObjectPath) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Err(StorageError::new(StorageErrorKind::ReadOnly, operation, path));
        }
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(StorageError {
                kind: StorageErrorKind::Poisoned,
                operation,
                path: path.to_string(),
                source: Some(io::Error::other(reason.clone())),
            }),
        }
    }

    /// Poisons the handle, which then writes nothing more, and returns the error of the failed
    /// sync.
    pub(super) fn poison(&self, path: &ObjectPath, error: io::Error) -> StorageError {
        let _ = self.poison.set(format!("cannot sync {:?}: {error}", path.as_str()));
        StorageError {
            kind: StorageErrorKind::Poisoned,
            operation: "sync",
            path: path.to_string(),
            source: Some(error),
        }
    }

    /// Opens the directory `path` for changes; `None` if it is missing.
    pub(super) fn find_directory(
        &self,
        operation: &'static str,
        path: &ObjectPath,
        links: LinkPolicy,
    ) -> Result<Option<F::Handle>> {
        match uninterrupted(|| self.system.open_directory(path.as_str(), links)) {
            Ok(directory) => Ok(Some(directory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::from_io(operation, path, error)),
        }
    }

    /// Opens the directory `path` for changes, creating missing directories.
    pub(super) fn make_directories(&self, path: &ObjectPath) -> Result<F::Handle> {
        let fail = |error| directory_error("create", path, error);
        let open = || self.system.open_directory(path.as_str(), LinkPolicy::Refuse);
        match uninterrupted(open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            outcome => return outcome.map_err(fail),
        }
        let (parent, name) = if path.is_root() {
            let above = uninterrupted(|| self.system.above()).map_err(fail)?;
            above.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?
        } else {
            (self.make_directories(&path.parent())?, path.name())
        };
        match uninterrupted(|| self.system.make_directory(&parent, name)) {
            // It may get the file number of a deleted directory that is remembered as durable.
            Ok(()) => {
                self.durable.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(fail(error)),
        }
        uninterrupted(open).map_err(fail)
    }

    /// Returns the parent of the directory `path`, and its name there; `None` for a root that was
    /// opened directly.
    pub(super) fn holder<'a>(
        &'a self,
        path: &'a ObjectPath,
    ) -> io::Result<Option<(F::Handle, &'a str)>> {
        if path.is_root() {
            return uninterrupted(|| self.system.above());
        }
        let parent = path.parent();
        let open = || self.system.open_directory(parent.as_str(), LinkPolicy::Refuse);
        Ok(Some((uninterrupted(open)?, path.name())))
    }

    /// Makes the names of the directory `path` and of all its parents durable, unless this handle
    /// has done so. Other processes may have created them without a sync, or before their own sync.
    pub(super) fn make_path_durable(&self, path: &ObjectPath, directory: &F::Handle) -> Result<()> {
        let fail = |error| directory_error("create", path, error);
        if path.is_root() && uninterrupted(|| self.system.above()).map_err(fail)?.is_none() {
            return Ok(());
        }
        let identity =
            uninterrupted(|| self.system.status(directory)).map_err(fail)?.version.identity;
        let durable = || self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable().get(path) == Some(&identity) {
            return Ok(());
        }
        let Some((parent, _)) = self.holder(path).map_err(fail)? else { return Ok(()) };
        if !path.is_root() {
            self.make_path_durable(&path.parent(), &parent)?;
        }
        self.system.sync_directory(&parent).map_err(|error| self.poison(path, error))?;
        let mut known = durable();
        if known.len() >= DURABLE_MAX {
            known.clear();
        }
        known.insert(path.clone(), identity);
        Ok(())
    }

    pub(super) fn forget_durable(&self, path: &ObjectPath) {
        let mut known = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other, _| !other.is_within(path));
    }

    /// Deletes the contents of `directory`; returns at the first failure.
    pub(super) fn empty(
        &self,
        directory: &F::Handle,
        path: &ObjectPath,
        depth: usize,
    ) -> Result<()> {
        let fail = |error| StorageError::from_io("delete", path, error);
        if depth >= DEPTH_MAX {
            return Err(fail(io::Error::other("directories are nested too deeply")));
        }
        let system = &self.system;
        for (name, mut kind) in uninterrupted(|| system.list(directory)).map_err(fail)? {
            if kind == FileKind::Unknown {
                match uninterrupted(|| system.stat_child(directory, &name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    outcome => kind = outcome.map_err(fail)?.kind,
                }
            }
            let gone = if kind == FileKind::Directory {
                let child = match uninterrupted(|| system.open_child(directory, &name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    outcome => outcome.map_err(fail)?,
                };
                self.remove_tree((directory, &name), &child, path, depth + 1)?
            } else {
                uninterrupted(|| system.unlink(directory, &name))
            };
            match gone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Empties and removes the directory `name` of `parent`. Files that other processes add
    /// meanwhile are deleted too.
    ///
    /// # Errors
    /// Those of emptying the directory; the inner result is that of removing it.
    pub(super) fn remove_tree(
        &self,
        (parent, name): (&F::Handle, &str),
        directory: &F::Handle,
        path: &ObjectPath,
        depth: usize,
    ) -> Result<io::Result<()>> {
        for _ in 0..EMPTIED_MAX {
            self.empty(directory, path, depth)?;
            match uninterrupted(|| self.system.remove_directory(parent, name)) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(uninterrupted(|| self.system.remove_directory(parent, name)))
    }

    /// True if the entry is a directory, or a link to one inside the store.
    pub(super) fn is_directory(&self, directory: &ObjectPath, name: &str, kind: FileKind) -> bool {
        match kind {
            FileKind::File | FileKind::Special => false,
            FileKind::Directory => true,
            FileKind::Link | FileKind::Unknown => directory.join(name).is_ok_and(|path| {
                uninterrupted(|| self.system.stat(path.as_str()))
                    .is_ok_and(|status| status.kind == FileKind::Directory)
            }),
        }
    }
}

/// Returns the error of a failed lookup of a directory that is to be changed.
pub(super) fn directory_error(
    operation: &'static str,
    path: &ObjectPath,
    error: io::Error,
) -> StorageError {
    let not_a_directory = error.kind() == io::ErrorKind::NotADirectory;
    let mut failure = StorageError::from_io(operation, path, error);
    if not_a_directory {
        failure.kind = StorageErrorKind::NotAnObject;
    }
    failure
}
