//! The limits of a set: chunks, and bytes of stored elements.

use bedform_format::chunk_map::ForeignStorage;

use super::table::grid_shape;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;

/// The largest variable in bytes that a set stores.
pub(super) const VARIABLE_BYTES_MAX: u64 = 16 << 20;
/// The most bytes of elements that a set stores, of all variables together.
const STORED_BYTES_MAX: u64 = 1 << 30;
/// The most chunks of a set, as for readers of sets.
const CHUNKS_MAX: u64 = 1 << 25;

/// The chunks and bytes that a set may still take.
#[derive(Debug)]
pub(super) struct SetLimits {
    /// The name of the source, for messages.
    source: String,
    chunks_left: u64,
    bytes_left: u64,
}

impl SetLimits {
    pub(super) fn of(file: &ForeignFile) -> Self {
        Self { source: file.name(), chunks_left: CHUNKS_MAX, bytes_left: STORED_BYTES_MAX }
    }

    /// Fails for variables with more chunks than a set may have, before their tables are read.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn check_chunks(&self, file: &ForeignFile, paths: &[&str]) -> Result<()> {
        let arrays = paths.iter().filter_map(|path| file.described(path));
        let count = arrays.fold(0_u64, |count, array| {
            let ForeignStorage::Chunked { chunk_shape, .. } = &array.storage else { return count };
            count.saturating_add(chunk_count(&grid_shape(&array.shape, chunk_shape)))
        });
        if count > self.chunks_left { Err(self.too_many_chunks()) } else { Ok(()) }
    }

    /// Takes the chunks of one array.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn take_chunks(&mut self, count: u64) -> Result<()> {
        let left = self.chunks_left.checked_sub(count);
        self.chunks_left = left.ok_or_else(|| self.too_many_chunks())?;
        Ok(())
    }

    /// Takes the bytes of one array that is stored.
    ///
    /// # Errors
    /// `LimitExceeded`.
    pub(super) fn take_bytes(&mut self, bytes: u64) -> Result<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            let text = format!(
                "{}: more than {} MiB of elements would be stored in the set: lower inline, or exclude variables",
                self.source,
                STORED_BYTES_MAX >> 20
            );
            Error::new(ErrorKind::LimitExceeded, text)
        })?;
        Ok(())
    }

    fn too_many_chunks(&self) -> Error {
        let text = format!(
            "{}: more than {CHUNKS_MAX} chunks: make references to fewer files or variables",
            self.source
        );
        Error::new(ErrorKind::LimitExceeded, text)
    }
}

/// Returns the number of chunks of a grid.
pub(super) fn chunk_count(grid: &[u64]) -> u64 {
    grid.iter().fold(1, |count, length| count.saturating_mul(*length))
}
