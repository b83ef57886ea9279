//! Opened files, for reading.

use std::io;
use std::sync::{Arc, OnceLock};

use bedform_format::ObjectPath;

use super::{LocalShared, Result};
use crate::file_system::{FileKind, FileStatus, FileSystem, Residency, uninterrupted};
use crate::{Object, ReadBlock, StorageError, StorageErrorKind, Version, lacks};

/// An opened file. Its handle keeps the bytes, and keeps the system from reusing the file number.
#[derive(Debug)]
pub(super) struct LocalObject<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    path: ObjectPath,
    file: F::Handle,
    version: Version,
    /// A second handle for reads past the page cache, opened on first use; `None` if the system
    /// refuses it.
    direct: OnceLock<Option<F::Handle>>,
}

/// Returns the version if `status` is that of a plain file.
pub(super) fn plain(
    status: FileStatus,
    operation: &'static str,
    path: &ObjectPath,
) -> Result<Version> {
    if status.kind == FileKind::File {
        Ok(status.version)
    } else {
        Err(StorageError::new(StorageErrorKind::NotAnObject, operation, path))
    }
}

impl<F: FileSystem> LocalObject<F> {
    pub(super) fn open(shared: &Arc<LocalShared<F>>, path: &ObjectPath) -> Result<Self> {
        let (file, status) = uninterrupted(|| shared.system.open_file(path.as_str()))
            .map_err(|error| StorageError::from_io("open", path, error))?;
        let version = plain(status, "open", path)?;
        let direct = OnceLock::new();
        Ok(Self { shared: Arc::clone(shared), path: path.clone(), file, version, direct })
    }

    /// Returns the handle for direct reads. It is separate, because other threads may use the first
    /// one.
    fn direct(&self) -> Option<&F::Handle> {
        let open = || {
            let system = &self.shared.system;
            match uninterrupted(|| system.open_direct(self.path.as_str())) {
                // The name may stand for another file by now.
                Ok((file, status)) => {
                    // Readahead of other reads would look like pages that a reader asked for.
                    system.refuse_read_ahead(&self.file);
                    (status.version.identity == self.version.identity
                        && status.kind == FileKind::File)
                        .then_some(file)
                }
                Err(error) => {
                    // A missing name says nothing about the place.
                    if error.kind() != io::ErrorKind::NotFound {
                        self.shared.direct_reads.give_up();
                    }
                    None
                }
            }
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// True if these bytes are read past the page cache: the range is large enough, and no recent
    /// read left pages of it there.
    fn goes_past(&self, offset: u64, length: usize, is_scattered: bool) -> bool {
        let residency = || self.shared.system.residency(&self.file, offset, length as u64);
        let reads = &self.shared.direct_reads;
        let wants = reads.wants(length) || (is_scattered && reads.wants_scattered(length));
        wants && matches!(residency(), Ok(Residency::Nothing))
    }

    fn fail(&self, error: io::Error) -> StorageError {
        StorageError::from_io("read", &self.path, error)
    }
}

impl<F: FileSystem> Object for LocalObject<F> {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let truncated = || StorageError::new(StorageErrorKind::Truncated, "read", &self.path);
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            let at = offset.checked_add(filled as u64).ok_or_else(truncated)?;
            match uninterrupted(|| self.shared.system.read_at(&self.file, at, rest)) {
                Ok(0) => return Err(truncated()),
                Ok(count) => filled += count,
                // The system has no bytes at offsets beyond its range.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return Err(truncated());
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
        Ok(())
    }

    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let (reads, system) = (&self.shared.direct_reads, &self.shared.system);
        if !self.goes_past(offset, length, block.is_for_scattered()) {
            reads.passed(length);
            return Ok(None);
        }
        let Some(file) = self.direct() else { return Ok(None) };
        let read = |at, part: &mut [u8]| uninterrupted(|| system.read_at(file, at, &mut *part));
        match reads.read(offset, length, block, read) {
            Ok(bytes) => {
                if reads.marks(length) {
                    // In a page that holds no bytes of neighbouring requests.
                    system.read_ahead(&self.file, offset + length as u64 / 2, 1);
                }
                Ok(bytes)
            }
            // The system accepted the flag but not the read.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                reads.give_up();
                Ok(None)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let past =
            usize::try_from(length).is_ok_and(|length| self.goes_past(offset, length, false));
        !past && self.shared.system.read_ahead(&self.file, offset, length)
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let reads = &self.shared.direct_reads;
        if reads.wants(buffer.len()) {
            // Asking for the bytes would bring missing ones into the page cache.
            match self.shared.system.residency(&self.file, offset, buffer.len() as u64) {
                Ok(Residency::Whole) => {}
                Ok(Residency::Part | Residency::Nothing) => return Ok(0),
                Err(_) => reads.give_up(),
            }
        }
        uninterrupted(|| self.shared.system.read_resident(&self.file, offset, buffer))
            .map_err(|error| self.fail(error))
    }

    fn is_current(&self) -> Result<bool> {
        is_current(&self.shared.system, &self.path, &self.version)
    }

    lacks!(request, buffered_range, buffered_bytes, kept);
}

/// True if `path` still stands for `version`.
pub(super) fn is_current<F: FileSystem>(
    system: &F,
    path: &ObjectPath,
    version: &Version,
) -> Result<bool> {
    // Following a link out of the store does no harm here: only the file that was read can equal
    // the version.
    match uninterrupted(|| system.peek(path.as_str())) {
        Ok(status) => Ok(status.version == *version),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StorageError::from_io("stat", path, error)),
    }
}
