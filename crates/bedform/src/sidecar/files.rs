//! Files of a sidecar other than its helper files: markers, traces, counts, replicas.
//!
//! All of them are opened beneath the root that holds the sidecar, through no link. An unpacked
//! archive may contain a link, a FIFO, or a hard link to another file in place of each. A file of
//! another owner counts as missing.

use bedform_format::ObjectPath;
use bedform_storage::{
    Condition, Durability, Entry, Lock, Object, OwnedRoot, Storage as _, StorageError,
    StorageErrorKind, Version,
};

use super::Sidecar;
use crate::error::Result;

impl Sidecar {
    /// Returns the directory that holds the sidecar, if it lies on this machine. Files are opened
    /// beneath it.
    pub(crate) fn root(&self) -> Option<OwnedRoot<'_>> {
        self.holder.root()
    }

    /// Returns the path of `name` beneath the [root](Sidecar::root); for an empty name, that of the
    /// sidecar.
    ///
    /// # Errors
    /// If the path is too long.
    pub(crate) fn path_of(&self, name: &str) -> Result<ObjectPath> {
        match name {
            "" => Ok(self.directory.clone()),
            name => Ok(self.directory.join(name)?),
        }
    }

    /// Returns the entries of a directory, sorted by name.
    pub(crate) fn entries(&self, directory: &str) -> Vec<Entry> {
        let found = self.holder.to_read().zip(self.path_of(directory).ok());
        found.and_then(|(storage, path)| storage.list(&path).ok()).unwrap_or_default()
    }

    /// Returns the plain files of a directory, sorted by name, each with its size in bytes.
    pub(crate) fn files(&self, directory: &str) -> Vec<(String, u64)> {
        let Some(storage) = self.holder.to_read() else { return Vec::new() };
        let sized = |entry: Entry| {
            let path = self.path_of(directory).ok()?.join(&entry.name).ok()?;
            Some((entry.name, storage.stat(&path).ok()?.size))
        };
        self.entries(directory).into_iter().filter_map(sized).collect()
    }

    /// Returns the version of a plain file.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        self.holder.to_read()?.stat(&self.path_of(name).ok()?).ok()
    }

    /// Returns true for a plain file that this user has written, not another owner of the site.
    pub(crate) fn is_of_user(&self, name: &str) -> bool {
        let found = self.holder.to_read_own().zip(self.path_of(name).ok());
        found.is_some_and(|(storage, path)| storage.stat(&path).is_ok())
    }

    /// Opens a plain file.
    pub(crate) fn open(&self, name: &str) -> Option<Box<dyn Object>> {
        self.holder.to_read()?.open(&self.path_of(name).ok()?).ok()
    }

    /// Returns the bytes of a plain file from `offset` on; `None` for a file of more than
    /// `bytes_max` bytes.
    pub(crate) fn bytes_from(&self, name: &str, offset: u64, bytes_max: u64) -> Option<Vec<u8>> {
        let object = self.open(name)?;
        let size = object.version().size;
        if size > bytes_max {
            return None;
        }
        let length = usize::try_from(size.saturating_sub(offset)).ok()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        object.read(offset, &mut bytes).ok()?;
        Some(bytes)
    }

    /// Puts a small file in place of any file or link of this name.
    ///
    /// # Errors
    /// Those of storage; `PermissionDenied` if the sidecar cannot be written.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path_of(name)?;
        let storage = self.holder.to_write().ok_or_else(|| unwritable("create", &path))?;
        storage.put(&path, bytes, Durability::Process, Condition::None)?;
        Ok(())
    }

    /// Appends to a file to which other processes append as well. The file is made for this user
    /// alone if it is missing. Returns false if the bytes are not kept.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) -> bool {
        self.path_of(name).is_ok_and(|path| self.holder.append(&path, bytes))
    }

    /// Removes a file, or a link in its place; a missing one is no error.
    ///
    /// # Errors
    /// As [`Sidecar::put`].
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path_of(name)?;
        let storage = self.holder.to_write().ok_or_else(|| unwritable("delete", &path))?;
        Ok(storage.delete(&path, Durability::Process, Condition::None)?)
    }

    /// Removes a directory with all below it. A failure costs only space.
    pub(crate) fn remove_directory(&self, name: &str) {
        if let (Some(storage), Ok(path)) = (self.holder.to_write(), self.path_of(name)) {
            let _ = storage.delete_tree(&path, Durability::Process);
        }
    }

    /// Removes temporary files of crashed writers from a directory.
    pub(crate) fn sweep(&self, directory: &str) {
        if let (Some(storage), Ok(path)) = (self.holder.to_write(), self.path_of(directory)) {
            let _ = storage.sweep(&path);
        }
    }

    /// Renames a plain file to a name that does not exist. Returns true on success.
    pub(crate) fn rename(&self, from: &str, to: &str) -> bool {
        let (Some(storage), Ok(from), Ok(to)) =
            (self.holder.to_write(), self.path_of(from), self.path_of(to))
        else {
            return false;
        };
        storage.publish_object(&from, &to, Durability::Process).is_ok()
    }

    /// Returns the lock of a directory; `None` while another process holds it.
    ///
    /// # Errors
    /// As [`Sidecar::put`]; `NotFound` without the directory.
    pub(crate) fn try_lock(&self, directory: &str) -> Result<Option<Box<dyn Lock>>> {
        let path = self.path_of(directory)?;
        let storage = self.holder.to_write().ok_or_else(|| unwritable("lock", &path))?;
        Ok(storage.try_lock(&path)?)
    }
}

fn unwritable(operation: &'static str, path: &ObjectPath) -> StorageError {
    StorageError::new(StorageErrorKind::PermissionDenied, operation, path)
}
