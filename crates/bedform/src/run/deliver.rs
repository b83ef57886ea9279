//! Delivery: where the decoded chunks of a read go.
//!
//! The seam between a read and whatever takes its chunks. There are three takers, a closed set, so that
//! a buffer costs a branch for each chunk and no virtual call:
//!
//! 1. **A buffer.** Elements are copied to their places in the result. What a read needs of a chunk may
//!    be less than the chunk: raw elements are fetched in parts, fronts are decoded alone, and what lies
//!    over a chunk is copied over it, element by element.
//! 2. **A visitor** ([`TakeChunk`]) sees whole chunks: each chunk that the selection touches exactly
//!    once, with everything that lies over it applied, or the word that it was never written. It is
//!    called from several threads at once, in no order. Its first error ends the read and is the read's
//!    error, unchanged.
//! 3. **The cache alone** ([`Admission`]): chunks are decoded and kept, blocks of a log likewise, and
//!    nothing is delivered. No more is fetched than the cache of the handle may keep; what is kept
//!    already counts. Elements that are stored as they are stay where they are: the page cache has them.
//!    Texts are not kept: nothing says how much memory they take.
//!
//! A read that is planned anew, because the data moved on under it, begins again: a visitor may then see
//! a chunk of the first attempt and of the second.

use std::sync::atomic::{AtomicU64, Ordering};

use super::execute::Run;
use super::plan::PlannedCell;
use super::resolve::Wanted;
use crate::cache::ENTRY_BYTES;
use crate::error::Result;
use crate::plan::copy::Target;
use crate::plan::geometry::ChunkTask;
use crate::source::{Cover, Payload};

/// A taker of decoded chunks.
#[derive(Clone, Copy)]
pub(crate) enum Deliver<'a> {
    /// The result of a read, to fill.
    Buffer(Target<'a>),
    /// A visitor of whole chunks.
    Visitor(&'a dyn TakeChunk),
    /// The cache of the process, and nobody else.
    Cache(&'a Admission),
}

impl<'a> Deliver<'a> {
    /// True if chunks are delivered whole, with what lies over them.
    pub(crate) fn takes_whole(self) -> bool {
        matches!(self, Self::Visitor(_))
    }

    /// The buffer to fill, if one is.
    pub(crate) fn target(self) -> Option<Target<'a>> {
        match self {
            Self::Buffer(target) => Some(target),
            Self::Visitor(_) | Self::Cache(_) => None,
        }
    }
}

/// A visitor of decoded chunks.
pub(crate) trait TakeChunk: Sync {
    /// Takes one chunk.
    ///
    /// # Errors
    /// Its own, which end the read.
    fn take(&self, chunk: DecodedChunk<'_>) -> Result<()>;
}

/// A chunk as a visitor sees it.
#[derive(Clone, Copy)]
pub(crate) struct DecodedChunk<'a> {
    pub(crate) cell: PlannedCell<'a>,
    pub(crate) task: ChunkTask,
    /// Its elements, laid out as the codec of its piece says; `None` if all are fill values.
    pub(crate) elements: Option<&'a [u8]>,
}

/// Which chunks may go into the cache, and how many did not.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    bytes: u64,
    /// Bytes of them that may still be kept.
    room: AtomicU64,
    present: AtomicU64,
    left_out: AtomicU64,
}

impl Admission {
    /// Room for `bytes` bytes, entries of the cache included.
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes, room: AtomicU64::new(bytes), ..Self::default() }
    }

    /// Begins anew: a plan is executed.
    pub(super) fn begin(&self) {
        self.room.store(self.bytes, Ordering::Relaxed);
        self.present.store(0, Ordering::Relaxed);
        self.left_out.store(0, Ordering::Relaxed);
    }

    /// Chunks that were in the cache before.
    pub(crate) fn present(&self) -> u64 {
        self.present.load(Ordering::Relaxed)
    }

    /// Chunks and blocks of a log that were not fetched because there was no room for them.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Takes the room of `count` entries with `bytes` bytes together; false, and counted as left out, if
    /// there is not so much.
    pub(crate) fn admit(&self, count: u64, bytes: u64) -> bool {
        let bytes = bytes.saturating_add(count.saturating_mul(ENTRY_BYTES));
        let take = |room: u64| room.checked_sub(bytes);
        let is_admitted =
            self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if !is_admitted {
            self.leave_out(count);
        }
        is_admitted
    }

    /// Counts entries that are not fetched.
    pub(crate) fn leave_out(&self, count: u64) {
        self.left_out.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a chunk of `bytes` bytes that is kept already and is to stay.
    fn count_present(&self, bytes: u64) {
        self.present.fetch_add(1, Ordering::Relaxed);
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        let take = |room: u64| Some(room.saturating_sub(bytes));
        // Never fails: the closure always gives a value.
        let _ = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }
}

impl Run<'_> {
    /// Delivers a decoded chunk: all of its elements for a visitor, what the read wants of them for a
    /// buffer. `cover` lies over it where it is delivered whole, and `laid` is memory for that.
    pub(super) fn deliver_chunk(
        &self,
        cell: PlannedCell<'_>,
        wanted: &Wanted,
        elements: &[u8],
        cover: Option<&dyn Cover>,
        laid: &mut Vec<u8>,
    ) -> Result<()> {
        match self.deliver {
            Deliver::Buffer(_) => self.copy_chunk(cell, wanted, elements),
            Deliver::Visitor(visitor) => {
                visit(visitor, (cell, wanted.task), Some(elements), cover, laid)
            }
            Deliver::Cache(_) => Ok(()),
        }
    }

    /// Delivers a chunk that was never written.
    pub(super) fn deliver_missing(
        &self,
        cell: PlannedCell<'_>,
        wanted: &Wanted,
        cover: Option<&dyn Cover>,
    ) -> Result<()> {
        match self.deliver {
            Deliver::Buffer(target) => self.fill_chunk(cell, wanted, target),
            Deliver::Visitor(visitor) => {
                visit(visitor, (cell, wanted.task), None, cover, &mut Vec::new())
            }
            Deliver::Cache(_) => Ok(()),
        }
    }

    /// Delivers a chunk that the cache has, if it has it.
    pub(super) fn deliver_kept(
        &self,
        cell: PlannedCell<'_>,
        wanted: &Wanted,
        kept: Option<&[u8]>,
        cover: Option<&dyn Cover>,
    ) -> Result<bool> {
        let Some(elements) = kept else { return Ok(false) };
        if let Deliver::Cache(admission) = self.deliver {
            admission.count_present(elements.len() as u64);
        }
        self.deliver_chunk(cell, wanted, elements, cover, &mut Vec::new()).map(|()| true)
    }

    /// True if a stored chunk of a cell is to be fetched: the cache alone refuses what it cannot keep.
    pub(super) fn admits(&self, cell: PlannedCell<'_>) -> bool {
        let Deliver::Cache(admission) = self.deliver else { return true };
        if self.cache_of(cell).is_none() {
            admission.leave_out(1);
            return false;
        }
        admission.admit(1, cell.codec().decoded_bytes() as u64)
    }

    /// True if blocks of a log are to be fetched: the cache alone refuses what it cannot keep.
    pub(super) fn admits_payload(&self, payload: &dyn Payload) -> bool {
        let Deliver::Cache(admission) = self.deliver else { return true };
        let count = payload.block_count();
        if !payload.keeps() {
            admission.leave_out(count);
            return false;
        }
        admission.admit(count, payload.decoded_bytes())
    }
}

/// Shows a chunk to a visitor, with what lies over it.
fn visit(
    visitor: &dyn TakeChunk,
    (cell, task): (PlannedCell<'_>, ChunkTask),
    elements: Option<&[u8]>,
    cover: Option<&dyn Cover>,
    laid: &mut Vec<u8>,
) -> Result<()> {
    let Some(cover) = cover else {
        return visitor.take(DecodedChunk { cell, task, elements });
    };
    let coordinates = cell.piece.geometry.chunk_coordinates(cell.number, task);
    if !cover.touches(&coordinates) {
        return visitor.take(DecodedChunk { cell, task, elements });
    }
    laid.clear();
    match elements {
        Some(elements) => laid.extend_from_slice(elements),
        None => {
            let (fill, bytes) = (cell.piece.layout.stored_fill(), cell.codec().decoded_bytes());
            laid.extend(fill.iter().copied().cycle().take(bytes));
        }
    }
    cover.lay(&coordinates, laid)?;
    visitor.take(DecodedChunk { cell, task, elements: Some(laid) })
}
