//! Files of a sidecar beside its helper files: markers, traces, counts, replicas.
//!
//! All of them are reached beneath the root that holds the sidecar, through no link: an archive that somebody has
//! unpacked may have put a link, a FIFO, or a second name of another file in the place of each. A file of another owner
//! is as if it were not there.

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
    /// The directory that holds the sidecar, if it is one of this machine. Files are opened beneath it.
    pub(crate) fn root(&self) -> Option<OwnedRoot<'_>> {
        self.holder.root()
    }

    /// The path of `name` beneath the [root](Sidecar::root); of nothing that of the sidecar.
    ///
    /// # Errors
    /// For a path that is too long.
    pub(crate) fn path_of(&self, name: &str) -> Result<ObjectPath> {
        match name {
            "" => Ok(self.directory.clone()),
            name => Ok(self.directory.join(name)?),
        }
    }

    /// The entries of a directory, sorted by name.
    pub(crate) fn entries(&self, directory: &str) -> Vec<ListedEntry> {
        let found = self.holder.to_read().zip(self.path_of(directory).ok());
        found.and_then(|(storage, path)| storage.list(&path).ok()).unwrap_or_default()
    }

    /// The plain files of a directory, sorted by name, each with its size in bytes.
    pub(crate) fn files(&self, directory: &str) -> Vec<(String, u64)> {
        let Some(storage) = self.holder.to_read() else { return Vec::new() };
        let sized = |entry: ListedEntry| {
            let path = self.path_of(directory).ok()?.join(&entry.name).ok()?;
            Some((entry.name, storage.stat(&path).ok()?.size))
        };
        self.entries(directory).into_iter().filter_map(sized).collect()
    }

    /// The version of a plain file.
    pub(crate) fn version_of(&self, name: &str) -> Option<Version> {
        self.holder.to_read()?.stat(&self.path_of(name).ok()?).ok()
    }

    /// The bytes of a setting: a small file by which this user asks for something here, a watch or a policy. A file of
    /// another owner of the site is none. Beside the data the registry must hold the same bytes: an archive that is
    /// unpacked over a sidecar can bring a file, but it cannot set anything.
    pub(crate) fn setting(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path_of(name).ok()?;
        let object = self.holder.to_read_own()?.open(&path).ok()?;
        let bytes = bytes_of(&*object, 0, SETTING_BYTES_MAX)?;
        let is_set = |directory| registry::has_setting(directory, name, &bytes);
        self.holder.registered().is_none_or(is_set).then_some(bytes)
    }

    /// Sets what [`Sidecar::setting`] gives.
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
        // First of all: without it no budget knows of the sidecar.
        self.note_use();
        self.put(name, bytes)
    }

    /// Removes a setting; a missing one is no error.
    ///
    /// # Errors
    /// As [`Sidecar::put`].
    pub(crate) fn unset(&self, name: &str) -> Result<()> {
        if let Some(directory) = self.holder.registered() {
            // A file that is gone sets nothing; the entry only grows by it.
            let _ = registry::set(directory, name, None);
        }
        self.remove(name)
    }

    /// Opens a plain file.
    pub(crate) fn open(&self, name: &str) -> Option<Box<dyn Object>> {
        self.holder.to_read()?.open(&self.path_of(name).ok()?).ok()
    }

    /// The bytes of a plain file from `offset` on; nothing for a file of more than `bytes_max`.
    pub(crate) fn bytes_from(&self, name: &str, offset: u64, bytes_max: u64) -> Option<Vec<u8>> {
        bytes_of(&*self.open(name)?, offset, bytes_max)
    }

    /// Puts a small file in the place of any file or link of this name.
    ///
    /// # Errors
    /// Those of storage; `PermissionDenied` where nothing can be written.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path_of(name)?;
        let storage = self.holder.to_write().ok_or_else(|| unwritable("create", &path))?;
        storage.put(&path, bytes, Durability::Process, Condition::None)?;
        Ok(())
    }

    /// Appends to a file that other processes append to as well, made for this user alone if it is missing. False if
    /// the bytes are not kept.
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

    /// Removes a directory with all below it. A failure costs its space.
    pub(crate) fn remove_directory(&self, name: &str) {
        if let (Some(storage), Ok(path)) = (self.holder.to_write(), self.path_of(name)) {
            let _ = storage.delete_tree(&path, Durability::Process);
        }
    }

    /// Removes what crashed writers have left in a directory.
    pub(crate) fn sweep(&self, directory: &str) {
        if let (Some(storage), Ok(path)) = (self.holder.to_write(), self.path_of(directory)) {
            let _ = storage.sweep(&path);
        }
    }

    /// Gives a plain file another name, which nothing has. True if it has it now.
    pub(crate) fn rename(&self, from: &str, to: &str) -> bool {
        let (Some(storage), Ok(from), Ok(to)) =
            (self.holder.to_write(), self.path_of(from), self.path_of(to))
        else {
            return false;
        };
        storage.publish_object(&from, &to, Durability::Process).is_ok()
    }

    /// The lock of a directory; nothing while another holds it.
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
fn bytes_of(object: &dyn Object, offset: u64, bytes_max: u64) -> Option<Vec<u8>> {
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
