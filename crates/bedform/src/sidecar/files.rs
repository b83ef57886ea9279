//! Files of a sidecar other than its helper files: markers, traces, counts, replicas.
//!
//! All of them are opened beneath the root that holds the sidecar, through no link. An unpacked
//! archive may contain a link, a FIFO, or a hard link to another file in place of each. A file of
//! another owner counts as missing.

use bedform_format::ObjectPath;
use bedform_storage::{
    Condition, Durability, ListedEntry, Lock, Object, OwnedRoot, Storage as _, StorageError,
    StorageErrorKind, Version,
};

use super::{Sidecar, registry};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a setting.
const SETTING_BYTES_MAX: u64 = 28 << 10;

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
    pub(crate) fn entries(&self, directory: &str) -> Vec<ListedEntry> {
        let found = self.holder.to_read().zip(self.path_of(directory).ok());
        found.and_then(|(storage, path)| storage.list(&path).ok()).unwrap_or_default()
    }

    /// Returns the plain files of a directory, sorted by name, each with its size in bytes.
    pub(crate) fn files(&self, directory: &str) -> Vec<(String, u64)> {
        let Some(storage) = self.holder.to_read() else { return Vec::new() };
        let sized = |entry: ListedEntry| {
            let path = self.path_of(directory).ok()?.join(&entry.name).ok()?;
            Some((entry.name, storage.stat(&path).ok()?.size))
        };
        self.entries(directory).into_iter().filter_map(sized).collect()
    }

    /// Returns the version of a plain file.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        self.holder.to_read()?.stat(&self.path_of(name).ok()?).ok()
    }

    /// Returns the bytes of a setting of this user: a watch or a policy, in a small file. A file of
    /// another owner of the site does not count. Beside the data the registry must hold the same
    /// bytes: an archive that is unpacked over a sidecar can bring a file, but no setting.
    pub(crate) fn setting(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path_of(name).ok()?;
        let object = self.holder.to_read_own()?.open(&path).ok()?;
        let bytes = bytes_of(&*object, 0, SETTING_BYTES_MAX)?;
        let is_set = |directory| registry::has_setting(directory, name, &bytes);
        self.holder.registered().is_none_or(is_set).then_some(bytes)
    }

    /// Writes a setting, which [`Sidecar::setting`] then returns.
    ///
    /// # Errors
    /// As [`Sidecar::put`]; those of the registry.
    pub(crate) fn set(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if let Some(directory) = self.holder.registered() {
            registry::set(directory, name, Some(bytes)).map_err(|error| {
                let text = format!("{error}; {}", registry::remedy());
                Error::new(ErrorKind::PermissionDenied, text)
            })?;
        }
        // First, because the budget only removes sidecars with a note of their last use.
        self.note_use();
        self.put(name, bytes)
    }

    /// Removes a setting; a missing one is no error.
    ///
    /// # Errors
    /// As [`Sidecar::put`].
    pub(crate) fn unset(&self, name: &str) -> Result<()> {
        if let Some(directory) = self.holder.registered() {
            // A failure is harmless: without the file the registry's bytes set nothing.
            let _ = registry::set(directory, name, None);
        }
        self.remove(name)
    }

    /// Opens a plain file.
    pub(crate) fn open(&self, name: &str) -> Option<Box<dyn Object>> {
        self.holder.to_read()?.open(&self.path_of(name).ok()?).ok()
    }

    /// Returns the bytes of a plain file from `offset` on; `None` for a file of more than
    /// `bytes_max` bytes.
    pub(crate) fn bytes_from(&self, name: &str, offset: u64, bytes_max: u64) -> Option<Vec<u8>> {
        bytes_of(&*self.open(name)?, offset, bytes_max)
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

/// The bytes of an object from `offset` on; nothing for an object of more than `bytes_max`.
pub(super) fn bytes_of(object: &dyn Object, offset: u64, bytes_max: u64) -> Option<Vec<u8>> {
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

fn unwritable(operation: &'static str, path: &ObjectPath) -> StorageError {
    StorageError::new(StorageErrorKind::PermissionDenied, operation, path)
}
