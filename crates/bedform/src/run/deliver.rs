//! Delivery: the destination of a read's decoded chunks.
//!
//! A read delivers to one of three destinations. They are a closed enum, so that a buffer costs a
//! branch for each chunk and no virtual call:
//!
//! 1. **A buffer.** Elements are copied to their places in the result. A read may need less than a
//!    whole chunk: raw elements are fetched in parts, a codec may decode only the front, and a
//!    cover's elements are copied over it one by one.
//! 2. **A visitor** ([`ChunkVisitor`]) sees whole chunks. It gets each chunk that the selection
//!    touches exactly once, with its cover applied, or as `None` if the chunk was never written.
//!    Several threads call it at once, in no order. Its first error ends the read and is the read's
//!    error, unchanged.
//! 3. **The cache alone** ([`Admission`]). Chunks and blocks of a log are decoded and kept, and
//!    nothing is delivered. A read fetches no more than the cache of the handle may keep; chunks
//!    that are cached already count. Raw elements are not cached, because the page cache has them.
//!    Texts are not cached, because their memory use is unknown.
//!
//! A read is planned again if the data moved on under it. A visitor may then see a chunk of the
//! first attempt and again of the second.

use std::sync::atomic::{AtomicU64, Ordering};

use super::execute::ReadExecution;
use super::plan::PlannedCell;
use super::resolve::{NeededCell, NeededChunk};
use crate::cache::{ENTRY_BYTES, ObjectKey};
use crate::error::Result;
use crate::plan::copy::CopyTarget;
use crate::plan::geometry::ChunkTask;
use crate::source::{Cover, Payload};

/// The destination of decoded chunks.
#[derive(Clone, Copy)]
pub(crate) enum Deliver<'a> {
    /// The buffer of the result.
    Buffer(CopyTarget<'a>),
    /// A visitor of whole chunks.
    Visitor(&'a dyn ChunkVisitor),
    /// The cache of the process, and no other destination.
    Cache(&'a Admission),
}

impl<'a> Deliver<'a> {
    /// Returns true if chunks are delivered whole, with their cover applied.
    pub(crate) fn takes_whole(self) -> bool {
        matches!(self, Self::Visitor(_))
    }

    /// Returns the buffer of the result, if that is the destination.
    pub(crate) fn target(self) -> Option<CopyTarget<'a>> {
        match self {
            Self::Buffer(target) => Some(target),
            Self::Visitor(_) | Self::Cache(_) => None,
        }
    }
}

/// A visitor of decoded chunks.
pub(crate) trait ChunkVisitor: Sync {
    /// Takes one chunk.
    ///
    /// # Errors
    /// The visitor's own errors, which end the read.
    fn take(&self, chunk: DecodedChunk<'_>) -> Result<()>;
}

/// A decoded chunk as a visitor sees it.
#[derive(Clone, Copy)]
pub(crate) struct DecodedChunk<'a> {
    pub(crate) cell: PlannedCell<'a>,
    pub(crate) task: ChunkTask,
    /// The elements, in the layout of the codec of the chunk's piece; `None` if all are fill
    /// values.
    pub(crate) elements: Option<&'a [u8]>,
}

/// A budget in bytes for chunks that a read puts into the cache, and counts of admitted and refused
/// entries.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    bytes: u64,
    /// Bytes of the budget that are still free.
    room: AtomicU64,
    present: AtomicU64,
    left_out: AtomicU64,
}

impl Admission {
    /// Makes a budget of `bytes` bytes; the cache's overhead for each entry counts.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, room: AtomicU64::new(bytes), ..Self::default() }
    }

    /// Resets the budget and the counts when a plan is executed.
    pub(super) fn begin(&self) {
        self.room.store(self.bytes, Ordering::Relaxed);
        self.present.store(0, Ordering::Relaxed);
        self.left_out.store(0, Ordering::Relaxed);
    }

    /// Returns the number of chunks that the cache had before the read.
    pub(crate) fn present(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    /// Returns the number of chunks and blocks of a log that were not fetched because the budget
    /// was spent.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Reserves the budget for `count` entries of `bytes` bytes together. Returns false and counts
    /// them as refused if the budget is too small, or if they are not cached.
    fn admit(&self, count: u64, bytes: u64, are_cached: bool) -> bool {
        let bytes = bytes.saturating_add(count.saturating_mul(ENTRY_BYTES));
        let take = |room: u64| room.checked_sub(bytes).filter(|_| are_cached);
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.left_out.fetch_add(count, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Counts a cached chunk of `bytes` bytes, which is to stay in the cache, against the budget.
    fn count_present(&self, bytes: u64) {
        self.present.fetch_add(1, Ordering::Relaxed);
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        let take = |room: u64| Some(room.saturating_sub(bytes));
        // The closure always returns a value, so the update cannot fail.
        let _ = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }
}

impl ReadExecution<'_> {
    /// Delivers a chunk: all elements to a visitor, the selected elements to a buffer. `elements`
    /// is `None` for a chunk that was never written; its elements are fill values. A visitor gets
    /// the chunk with `cover` laid over it, in the memory `laid`.
    pub(super) fn deliver_chunk(
        &self,
        cell: PlannedCell<'_>,
        wanted: &NeededChunk,
        elements: Option<&[u8]>,
        cover: Option<&dyn Cover>,
        laid: &mut Vec<u8>,
    ) -> Result<()> {
        match (self.deliver, elements) {
            (Deliver::Buffer(_), Some(elements)) => self.copy_chunk(cell, wanted, elements, 0),
            (Deliver::Buffer(target), None) => self.fill_chunk(cell, wanted, target),
            (Deliver::Visitor(visitor), _) => {
                let chunk = DecodedChunk { cell, task: wanted.task, elements };
                visit(visitor, chunk, cover, laid)
            }
            (Deliver::Cache(_), _) => Ok(()),
        }
    }

    /// Delivers the chunks of an opened cell that the cache has, and removes them from those to
    /// fetch. A read for the cache alone counts them before it admits others. One chunk at a time
    /// is held, because the cache may evict it meanwhile.
    pub(super) fn deliver_cached(&self, open: &mut NeededCell<'_>) -> Result<()> {
        let Some(cache) = self.caching.cache_of(open.cell) else { return Ok(()) };
        let (object, version) =
            (ObjectKey::at(&open.cell.coordinates()), open.opened.object.version());
        let (mut laid, mut outcome) = (Vec::new(), Ok(()));
        open.stored.retain(|wanted| {
            let kept = || cache.get(&object, version, wanted.task.position);
            let Some(elements) = outcome.is_ok().then(kept).flatten() else { return true };
            if let Deliver::Cache(admission) = self.deliver {
                admission.count_present(elements.len() as u64);
            }
            let cover = open.cover.as_deref();
            outcome = self.deliver_chunk(open.cell, wanted, Some(&elements), cover, &mut laid);
            false
        });
        outcome
    }

    /// Returns true if a stored chunk of a cell may be fetched. A read for the cache alone refuses
    /// chunks beyond its budget.
    pub(super) fn admits(&self, cell: PlannedCell<'_>) -> bool {
        let Deliver::Cache(admission) = self.deliver else { return true };
        let are_cached = self.caching.cache_of(cell).is_some();
        admission.admit(1, cell.codec().decoded_bytes() as u64, are_cached)
    }

    /// Returns true if blocks of a log may be fetched. A read for the cache alone refuses blocks
    /// beyond its budget.
    pub(super) fn admits_payload(&self, payload: &dyn Payload) -> bool {
        let Deliver::Cache(admission) = self.deliver else { return true };
        admission.admit(payload.block_count(), payload.decoded_bytes(), payload.keeps())
    }
}

/// Passes a chunk to a visitor, with its cover laid over it.
fn visit(
    visitor: &dyn ChunkVisitor,
    chunk: DecodedChunk<'_>,
    cover: Option<&dyn Cover>,
    laid: &mut Vec<u8>,
) -> Result<()> {
    let (cell, Some(cover)) = (chunk.cell, cover) else { return visitor.take(chunk) };
    let coordinates = cell.piece.geometry.chunk_coordinates(cell.number, chunk.task);
    if !cover.touches(&coordinates) {
        return visitor.take(chunk);
    }
    laid.clear();
    match chunk.elements {
        Some(elements) => laid.extend_from_slice(elements),
        None => {
            let (fill, bytes) = (cell.piece.layout.stored_fill(), cell.codec().decoded_bytes());
            laid.extend(fill.iter().copied().cycle().take(bytes));
        }
    }
    cover.lay(&coordinates, laid)?;
    visitor.take(DecodedChunk { elements: Some(laid), ..chunk })
}
