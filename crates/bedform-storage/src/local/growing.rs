//! Writing of an object that has its name from the start, and grows.

use std::io;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Lane;

use super::staging::StagedStream;
use super::{LocalShared, Result};
use crate::file_system::{FileSystem, LinkPolicy, uninterrupted};
use crate::implement::{next_lane_run, padding};
use crate::{Durability, GrowingObject, StorageError, StorageErrorKind};

/// A growing file, or one lane of it. A sync costs one of the file. The first sync also costs one
/// of the directory, and of each parent that this handle has not made durable.
pub(super) struct LocalGrowing<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    path: ObjectPath,
    lane: Lane,
    durability: Durability,
    /// The directory of the file, until the name is durable.
    directory: Option<F::Handle>,
    position: u64,
    /// Bytes up to the last sync; `None` before the first.
    synced: Option<u64>,
    /// `None` after a failed write or sync.
    stream: Option<StagedStream<F>>,
}

impl<F: FileSystem> LocalGrowing<F> {
    pub(super) fn create(
        shared: &Arc<LocalShared<F>>,
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
            // The creator of the file makes the name durable.
            let open = || {
                let directory =
                    system.open_directory(path.parent().as_str(), LinkPolicy::Refuse)?;
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
            stream: Some(StagedStream::new(shared, file, lane, direct, size_hint)),
        })
    }

    /// Runs `work` with the stream; a failure closes it.
    fn write(&mut self, work: impl FnOnce(&mut StagedStream<F>) -> io::Result<()>) -> Result<()> {
        self.shared.check_writable("write", &self.path)?;
        let Some(stream) = &mut self.stream else {
            return Err(StorageError::new(StorageErrorKind::Io, "write", &self.path));
        };
        work(stream).map_err(|error| {
            self.stream = None;
            StorageError::from_io("write", &self.path, error)
        })
    }

    /// Makes the written bytes durable, and once the name.
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
        next_lane_run(self.lane, self.position, bytes.len(), &self.path)?;
        self.write(|stream| stream.append(bytes))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.append(padding(self.position))?;
        self.write(StagedStream::flush)
    }

    fn sync(&mut self) -> Result<()> {
        self.write(|_| Ok(()))?;
        // The writes to other lanes are unknown here.
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
    use crate::{LocalStorage, Mode, SimulatedFileSystem, Staging, Storage, WriteHint};

    #[test]
    fn no_thread_stays_behind_a_sync_or_a_drop() {
        let system = SimulatedFileSystem::new().with_threads();
        let storage = LocalStorage::over(system, Mode::ReadWrite, Staging::default());
        let path = ObjectPath::parse("a").unwrap();
        let mut growing =
            LocalGrowing::create(&storage.shared, &path, Lane::ONLY, Durability::Disk, None)
                .unwrap();
        let has_thread = |growing: &LocalGrowing<SimulatedFileSystem>| {
            growing.stream.as_ref().is_some_and(StagedStream::has_thread)
        };
        for _ in 0..3 {
            growing.append(&vec![1; 9 << 20]).unwrap();
            assert!(has_thread(&growing));
            growing.sync().unwrap();
            assert!(!has_thread(&growing));
        }
        growing.append(&vec![1; 9 << 20]).unwrap();
        drop(growing);
        // A thread would hold a reference.
        assert_eq!(Arc::strong_count(&storage.shared), 1);
        let mut writer = storage.create(&path, Durability::Disk, WriteHint::default()).unwrap();
        writer.append(&vec![1; 9 << 20]).unwrap();
        drop(writer);
        assert_eq!(Arc::strong_count(&storage.shared), 1);
    }
}
