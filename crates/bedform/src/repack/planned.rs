//! A file that is not written yet, as a source: its chunks have one size and lie in row-major order.

use std::sync::Arc;

use bedform_format::CodecChain;
use bedform_format::shard::Extent;
use bedform_storage::{Object, StorageError, StorageErrorKind, Version, lacks};

use super::reads::PlacedRead;
use crate::array::Array;
use crate::error::Result;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::explain::priced;
use crate::run::read_source::ReadSource;
use crate::source::{
    ChunkLocations, LocateChunk, Location, OpenCell, PendingCell, Source, StoredLayout,
};

/// A variable of a file that is not written yet.
pub(super) struct PlannedFile {
    layout: StoredLayout,
    /// Bytes of an encoded chunk.
    chunk_bytes: u64,
    chunks: u64,
}

impl PlannedFile {
    /// Plans a file for the elements of `array`. Encoded chunks have `share` of their raw bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape that no array has; those of looking up the array again.
    pub(super) fn of(
        array: &Array,
        chunks: &[u64],
        chain: &CodecChain,
        share: f64,
    ) -> Result<Self> {
        let layout = array.layout_in(chunks, chain)?;
        let raw = layout.codec.decoded_bytes() as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let encoded = (raw * share).ceil().max(1.0) as u64;
        let chunk_bytes =
            if layout.codec.is_raw() { layout.codec.decoded_bytes() as u64 } else { encoded };
        let chunks = layout.per_object.iter().copied().fold(1, u64::saturating_mul);
        Ok(Self { layout, chunk_bytes, chunks })
    }

    /// Returns the predicted seconds of a read, cold and cached.
    ///
    /// # Errors
    /// `OutOfBounds` if the read does not fit the array.
    pub(super) fn price(&self, read: &PlacedRead, tuning: &Tuning) -> Result<(f64, f64)> {
        read.mean(|selection| {
            let geometry = self.layout.geometry(selection)?;
            let source = ReadSource::settled(self, &self.layout, tuning);
            source.with_plan(&geometry, |plan| Ok(priced(plan)?.1))
        })
    }

    /// Returns the bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.saturating_mul(self.chunk_bytes)
    }
}

impl Source for PlannedFile {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let version = Version { size: self.bytes(), ..Version::default() };
        Ok(Some(OpenCell {
            object: Arc::new(PlannedObject(version)),
            locations: ChunkLocations::Table(Arc::new(EqualChunks(self.chunk_bytes))),
            contained: 0,
            index_requests: 0,
            index_bytes: 0,
        }))
    }

    fn object_name(&self, _: &[u64]) -> String {
        self.place_name()
    }

    fn place_name(&self) -> String {
        "a file that is not written yet".to_owned()
    }

    fn needs_lookups(&self) -> bool {
        false
    }
}

/// Chunks of so many bytes, one after the other.
#[derive(Debug)]
struct EqualChunks(u64);

impl LocateChunk for EqualChunks {
    fn locate(&self, position: u64) -> Option<Location> {
        let offset = position.checked_mul(self.0)?;
        Some(Location::of(Extent { offset, length: self.0 }))
    }
}

/// The object of such a file, of which no byte is ever read.
#[derive(Debug)]
struct PlannedObject(Version);

impl Object for PlannedObject {
    fn version(&self) -> &Version {
        &self.0
    }

    fn read(&self, _offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        match buffer.is_empty() {
            true => Ok(()),
            false => Err(StorageError::new(StorageErrorKind::Truncated, "read", "")),
        }
    }

    fn is_current(&self) -> std::result::Result<bool, StorageError> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}
