//! Bytes of a chunk map as an object.

use bedform_storage::{Object, StorageError, StorageErrorKind, Version, lacks};

/// The bytes of a variable that lie in the chunk map itself.
#[derive(Debug)]
pub(super) struct CompactObject {
    bytes: Vec<u8>,
    version: Version,
}

impl CompactObject {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let version = Version { size: bytes.len() as u64, ..Version::default() };
        Self { bytes, version }
    }
}

impl Object for CompactObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buffer.len());
        let bytes = end.and_then(|end| self.bytes.get(start..end)).ok_or_else(|| {
            StorageError::new(StorageErrorKind::Truncated, "read", "a compact variable")
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn read_resident(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, StorageError> {
        self.read(offset, buffer).map(|()| buffer.len())
    }

    fn is_current(&self) -> std::result::Result<bool, StorageError> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, buffered_range, buffered_bytes, kept);
}
