//! Writing side: an object that has its name from the start, and grows.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use super::staging::Stream;
use super::{Result, Shared};
use crate::file_system::{FileSystem, Links, uninterrupted};
use crate::implement::{padding, place_in};
use crate::{Durability, GrowingObject, StorageError, StorageErrorKind};

/// A file under its own name, or a lane of one. A sync costs one of the file; the first one, one of its directory, too,
/// and of those above that this handle has not seen to.
pub(super) struct LocalGrowing<F: FileSystem> {
    shared: Arc<Shared<F>>,
    path: ObjectPath,
    lane: Lane,
    durability: Durability,
    /// Where the name is, until that is durable.
    directory: Option<F::Handle>,
    position: u64,
    /// Bytes up to the last sync; nothing before the first.
    synced: Option<u64>,
    /// Nothing once a write or sync has failed.
    stream: Option<Stream<F>>,
}

impl<F: FileSystem> LocalGrowing<F> {
    pub(super) fn create(
        shared: &Arc<Shared<F>>,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
        size_hint: Option<u64>,
    ) -> Result<Self> {
        let system = &shared.system;
        let (file, directory) = if lane.number() == 0 {
            let directory = shared.make_directories(&path.parent())?;
            let file = uninterrupted(|| system.create_file(&directory, path.name()));
            (file, Some(directory))
        } else {
            // Who has created it sees to its name.
            let open = || {
                let directory = system.open_directory(path.parent().as_str(), Links::Refuse)?;
                system.open_to_write(&directory, path.name())
            };
            (uninterrupted(open), None)
        };
        let file = file.map_err(|error| StorageError::from_io("create", path, error))?;
        let direct = durability == Durability::Disk;
        Ok(Self {
            shared: Arc::clone(shared),
            path: path.clone(),
            lane,
            durability,
            directory,
            position: 0,
            synced: None,
            stream: Some(Stream::new(shared, file, lane, direct, size_hint)),
        })
    }

    /// Does `work` with the stream, which a failure ends.
    fn write(&mut self, work: impl FnOnce(&mut Stream<F>) -> io::Result<()>) -> Result<()> {
        self.shared.check_writable("write", &self.path)?;
        let Some(stream) = &mut self.stream else {
            return Err(StorageError::new(StorageErrorKind::Io, "write", &self.path));
        };
        work(stream).map_err(|error| {
            self.stream = None;
            StorageError::from_io("write", &self.path, error)
        })
    }

    /// Makes the bytes that were written durable, and the name, unless it is.
    fn make_durable(&mut self) -> Result<()> {
        let Self { shared, path, .. } = self;
        if let Some(stream) = &self.stream {
            let outcome = shared.system.sync_file(stream.file());
            outcome.map_err(|error| shared.poison(path, error))?;
        }
        if let Some(directory) = &self.directory {
            shared.make_path_durable(&path.parent(), directory)?;
            let outcome = shared.system.sync_directory(directory);
            outcome.map_err(|error| shared.poison(path, error))?;
            self.directory = None;
        }
        Ok(())
    }
}

impl<F: FileSystem> GrowingObject for LocalGrowing<F> {
    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        place_in(self.lane, self.position, bytes.len(), &self.path)?;
        self.write(|stream| stream.append(bytes))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.append(padding(self.position))?;
        self.write(Stream::flush)
    }

    fn sync(&mut self) -> Result<()> {
        self.write(|_| Ok(()))?;
        // What others have written to their lanes is not known here.
        if self.synced == Some(self.position) && self.lane.is_alone() {
            return Ok(());
        }
        self.flush()?;
        if self.durability == Durability::Disk {
            self.make_durable().inspect_err(|_| self.stream = None)?;
        }
        self.synced = Some(self.position);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hint, LocalStorage, Mode, SimulatedFileSystem, Staging, Storage};

    #[test]
    fn no_thread_stays_behind_a_sync_or_a_drop() {
        let system = SimulatedFileSystem::new().with_threads();
        let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
        let path = ObjectPath::parse("a").unwrap();
        let mut growing =
            LocalGrowing::create(&storage.shared, &path, Lane::ONLY, Durability::Disk, None)
                .unwrap();
        let has_thread = |growing: &LocalGrowing<SimulatedFileSystem>| {
            growing.stream.as_ref().is_some_and(Stream::has_thread)
        };
        for _ in 0..3 {
            growing.append(&vec![1; 9 << 20]).unwrap();
            assert!(has_thread(&growing));
            growing.sync().unwrap();
            assert!(!has_thread(&growing));
        }
        growing.append(&vec![1; 9 << 20]).unwrap();
        drop(growing);
        // A thread would have a share of it.
        assert_eq!(Arc::strong_count(&storage.shared), 1);
        let mut writer = storage.create(&path, Durability::Disk, Hint::default()).unwrap();
        writer.append(&vec![1; 9 << 20]).unwrap();
        drop(writer);
        assert_eq!(Arc::strong_count(&storage.shared), 1);
    }
}
