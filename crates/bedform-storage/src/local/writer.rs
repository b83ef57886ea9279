//! Writing of an object before publication.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use super::staging::StagedStream;
use super::{LocalShared, Result, names, publish};
use crate::file_system::{FileSystem, uninterrupted};
use crate::{
    Condition, Durability, ObjectWriter, StorageError, StorageErrorKind, Version, WriteHint,
    forward,
};

/// A file under a temporary name. Dropping it removes the name; directories created for it stay.
pub(super) struct LocalWriter<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    path: ObjectPath,
    durability: Durability,
    position: u64,
    temporary: TemporaryName<F>,
    bytes: StagedBytes<F>,
    /// The suffix of the sibling storage, and the path there, for the replaced object.
    kept: Option<(&'static str, ObjectPath)>,
}

/// The stage of the bytes on their way to the system.
enum StagedBytes<F: FileSystem> {
    /// Being appended and written.
    Appended(StagedStream<F>),
    /// Handed to the system; the caller makes them durable.
    HandedOver(F::Handle),
    /// Lost by a failed write.
    Lost,
}

/// A temporary name, removed on drop unless it was renamed.
struct TemporaryName<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    directory: F::Handle,
    name: String,
    is_ours: bool,
}

impl<F: FileSystem> Drop for TemporaryName<F> {
    fn drop(&mut self) {
        if self.is_ours {
            // If this fails, a hidden name stays until a sweep removes it.
            let _ = uninterrupted(|| self.shared.system.unlink(&self.directory, &self.name));
        }
    }
}

impl<F: FileSystem> LocalWriter<F> {
    pub(super) fn create(
        shared: &Arc<LocalShared<F>>,
        path: &ObjectPath,
        durability: Durability,
        hint: WriteHint,
    ) -> Result<Self> {
        let directory = shared.make_directories(&path.parent())?;
        let target = shared.placement.as_ref().and_then(|placement| placement.target(path));
        let (name, file) = names::create_temporary(&shared.system, &directory, target)
            .map_err(|error| StorageError::from_io("create", path, error))?;
        let temporary =
            TemporaryName { shared: Arc::clone(shared), directory, name, is_ours: true };
        let direct = durability == Durability::Disk;
        Ok(Self {
            shared: Arc::clone(shared),
            path: path.clone(),
            durability,
            position: 0,
            temporary,
            bytes: StagedBytes::Appended(StagedStream::new(
                shared,
                file,
                Lane::ONLY,
                direct,
                hint.bytes,
            )),
            kept: None,
        })
    }

    fn fail(&self, operation: &'static str, error: io::Error) -> StorageError {
        StorageError::from_io(operation, &self.path, error)
    }

    /// Returns the file with all appended bytes.
    fn take_file(&mut self) -> Result<F::Handle> {
        match std::mem::replace(&mut self.bytes, StagedBytes::Lost) {
            StagedBytes::Appended(stream) => {
                stream.finish().map_err(|error| self.fail("write", error))
            }
            StagedBytes::HandedOver(file) => Ok(file),
            StagedBytes::Lost => Err(StorageError::new(StorageErrorKind::Io, "write", &self.path)),
        }
    }

    /// Makes the bytes of `file`, and the names of its directories, durable.
    fn sync(&self, file: &F::Handle) -> Result<()> {
        self.shared
            .system
            .sync_file(file)
            .map_err(|error| self.shared.poison(&self.path, error))?;
        self.shared.make_path_durable(&self.path.parent(), &self.temporary.directory)
    }

    /// Closes `file` and gives it its name, both under the naming lock. Closing releases the lock
    /// that keeps sweepers away from the temporary name.
    fn name(&mut self, file: F::Handle, condition: Condition<'_>) -> Result<Version> {
        let shared = &*self.shared;
        let system = &shared.system;
        let directory = &self.temporary.directory;
        let written =
            uninterrupted(|| system.status(&file)).map_err(|error| self.fail("publish", error))?;
        let lock =
            publish::naming_lock(system, directory).map_err(|error| self.fail("publish", error))?;
        match system.close(file) {
            // A signal came during the close, which closes the file all the same.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => outcome.map_err(|error| self.fail("close", error))?,
        }
        publish::check_condition(
            shared,
            directory,
            "publish",
            &self.path,
            condition,
            lock.is_some(),
        )?;
        // If this fails, the later reader of the kept object finds it missing.
        let kept = self.kept.as_ref().and_then(|(suffix, kept)| {
            publish::keep(shared, (directory, self.path.name()), suffix, kept).ok()
        });
        let outcome = publish::name_object(
            shared,
            directory,
            &self.temporary.name,
            &self.path,
            condition,
            written.version,
        );
        if outcome.is_ok() {
            self.temporary.is_ours = false;
        } else if let Some((directory, name)) = kept {
            // The object was not replaced.
            let _ = uninterrupted(|| system.unlink(&directory, name));
        }
        outcome
    }
}

impl<F: FileSystem> ObjectWriter for LocalWriter<F> {
    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let StagedBytes::Appended(stream) = &mut self.bytes else {
            return Err(StorageError::new(StorageErrorKind::Io, "write", &self.path));
        };
        if let Err(error) = stream.append(bytes) {
            self.bytes = StagedBytes::Lost;
            return Err(self.fail("write", error));
        }
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn keep_replaced(&mut self, suffix: &'static str, path: ObjectPath) {
        self.kept = Some((suffix, path));
    }

    fn hand_over(&mut self) -> Result<()> {
        self.shared.check_writable("write", &self.path)?;
        self.durability = Durability::Process;
        self.bytes = StagedBytes::HandedOver(self.take_file()?);
        Ok(())
    }

    fn publish(mut self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        self.shared.check_writable("publish", &self.path)?;
        let file = self.take_file()?;
        if self.durability == Durability::Disk {
            self.sync(&file)?;
        }
        let version = self.name(file, condition)?;
        if self.durability == Durability::Disk {
            let outcome = self.shared.system.sync_directory(&self.temporary.directory);
            outcome.map_err(|error| self.shared.poison(&self.path, error))?;
        }
        Ok(version)
    }

    forward!(implement as ObjectWriter: append_owned);
}
