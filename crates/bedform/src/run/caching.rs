//! The choice of the decoded chunks that a read takes from the cache and puts there.
//!
//! Not cached are raw elements, which the page cache has, texts, and chunks of a read, or of a pass
//! of many reads, that would evict most of the cache. A large read caches only chunks that are dear to decode, and chunks
//! that it takes in part.

use bedform_codec::ChunkCodec;
use bedform_storage::Processor;

use super::chunks::ChunkCache;
use super::plan::{PlannedCell, ReadPlan};
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::Result;

/// The most decoded bytes of a read that caches all its chunks: copying them takes a millisecond or
/// two.
const WHOLE_KEPT_BYTES_MAX: u64 = 8 << 20;
/// Decoding counts as dear if it takes so many times as long as copying the chunk into the cache.
/// Cheaper chunks of which a large read takes every element are not cached: few of them are read
/// again.
const DEAR: f64 = 3.0;

/// The use of the cache by one read.
pub(super) struct ChunkCaching<'a> {
    processor: &'a Processor,
    /// True if the read looks up decoded chunks in the pieces' caches and puts its own there.
    uses_caches: bool,
    /// True for a large read that does not cache chunks of which it takes every element: they are
    /// soon decoded again.
    leaves_whole: bool,
}

impl<'a> ChunkCaching<'a> {
    /// Makes the choice for a plan. `is_admitted` says that the read is made for the cache, with a
    /// budget of its own.
    pub(super) fn new(plan: &ReadPlan<'a>, is_admitted: bool) -> Self {
        let decoded = plan.decoded_bytes().max(plan.pass_bytes());
        let is_text = plan.pieces().iter().any(|piece| piece.layout.is_text());
        let mut caches = plan.pieces().iter().filter_map(|piece| piece.cache);
        let mut is_small = || caches.all(|cache| decoded <= cache.limit() / 2);
        let is_large = decoded > WHOLE_KEPT_BYTES_MAX && !plan.is_remote() && !plan.calls_back();
        Self {
            processor: &plan.tuning().profile.processor,
            uses_caches: !plan.is_raw() && !is_text && (is_admitted || is_small()),
            leaves_whole: is_large && !is_admitted,
        }
    }

    /// Returns true if the read looks up chunks in the caches of its pieces and puts its own there.
    pub(super) fn uses_caches(&self) -> bool {
        self.uses_caches
    }

    /// Returns the cache for the decoded chunks of a cell, if the read uses it.
    pub(super) fn cache_of<'p>(&self, cell: PlannedCell<'p>) -> Option<ChunkCache<'p>> {
        cell.piece.cache.filter(|_| self.uses_caches)
    }

    /// Returns true if a chunk that was decoded from `encoded_bytes` bytes is to be cached.
    /// `is_whole` says whether the read takes all of its elements.
    pub(super) fn keeps(
        &self,
        codec: &ChunkCodec,
        encoded_bytes: usize,
        is_whole: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        if !self.leaves_whole {
            return Ok(true);
        }
        let of = Decoding::of(1, encoded_bytes as u64, codec.decoded_bytes() as u64);
        let keeping = of.decoded_bytes / self.processor.fresh_bytes_per_second;
        let is_dear = decoding_seconds(codec.chain(), self.processor, of) > DEAR * keeping;
        Ok(is_dear || !is_whole()?)
    }
}
