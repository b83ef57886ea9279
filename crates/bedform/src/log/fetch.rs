//! Blocks of a segment that are fetched together: read, checked, decoded, and copied from.

use std::sync::Arc;

use bedform_codec::Scratch;
use bedform_format::log::Block;
use bedform_format::shard::Extent;
use bedform_storage::Object;

use super::blocks::{BlockCopies, BlockMove};
use super::record::decode_block;
use super::view::LogSegment;
use crate::cache::{CacheHandle, CacheKey, EntryKind, ObjectKey};
use crate::error::Result;
use crate::source::{Destination, Payload};

/// Maximum number of bytes of blocks that are fetched together.
const FETCH_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of extents that are fetched together.
const EXTENTS_MAX: usize = 32;
/// Bytes of the largest gap between blocks that is read over: a record's head, and the body of a
/// small record.
const GAP_BYTES: u64 = 4 << 10;

/// Blocks of one segment that are fetched together, and the copies from them.
#[derive(Debug)]
pub(crate) struct LogFetch {
    segment: Arc<LogSegment>,
    /// The cache for decoded blocks; `None` if they are not cached.
    cache: Option<Arc<CacheHandle>>,
    /// Byte ranges to read; they follow each other in the buffer.
    extents: Vec<Extent>,
    blocks: Vec<FetchedBlock>,
}

#[derive(Debug)]
struct FetchedBlock {
    block: Block,
    /// Position of the block in the buffer, in bytes.
    start: usize,
    /// True if the block is decoded together with the next one.
    joins_next: bool,
    moves: Vec<BlockMove>,
}

impl LogFetch {
    pub(super) fn new(segment: Arc<LogSegment>) -> Self {
        Self { segment, cache: None, extents: Vec::new(), blocks: Vec::new() }
    }

    /// Sets the cache for decoded blocks.
    pub(super) fn keep_in(&mut self, cache: Option<&Arc<CacheHandle>>) {
        self.cache = cache.cloned();
    }

    /// Returns the cache key of a decoded block.
    fn key(&self, cache: &CacheHandle, block: &Block) -> CacheKey {
        let name = ObjectKey::Name(self.segment.name.clone());
        cache.key_of_immutable(EntryKind::Block, &self.segment.scope, name, block.offset)
    }

    /// Returns the length of the buffer in bytes.
    fn bytes(&self) -> usize {
        self.extents.iter().map(|extent| index(extent.length)).sum()
    }

    pub(super) fn has_room(&self, block: &Block) -> bool {
        self.bytes() as u64 + block.stored_bytes <= FETCH_BYTES_MAX
            && self.extents.len() < EXTENTS_MAX
            && self.blocks.last().is_none_or(|last| last.block.offset < block.offset)
    }

    pub(super) fn add_blocks(&mut self, own: BlockCopies) {
        self.add_block(own.block);
        for block in own.more {
            if let Some(last) = self.blocks.last_mut() {
                last.joins_next = true;
            }
            self.add_block(block);
        }
        if let Some(last) = self.blocks.last_mut() {
            last.moves = own.moves;
        }
    }

    fn add_block(&mut self, block: Block) {
        let before = self.bytes() as u64;
        let end = block.offset + block.stored_bytes;
        let start = match self.extents.last_mut() {
            Some(last) if block.offset >= last.end() && block.offset <= last.end() + GAP_BYTES => {
                let start = before + (block.offset - last.end());
                last.length = end - last.offset;
                start
            }
            _ => {
                let (offset, length) = (block.offset, block.stored_bytes);
                self.extents.push(Extent { offset, length });
                before
            }
        };
        let (start, moves) = (index(start), Vec::new());
        self.blocks.push(FetchedBlock { block, start, joins_next: false, moves });
    }

    /// Fetches the blocks one after the other, and makes the copies. `bytes` and `scratch` are
    /// memory to reuse.
    ///
    /// # Errors
    /// As [`Payload::run_part`]; those of storage.
    pub(super) fn fetch_and_run(
        &self,
        bytes: &mut Vec<u8>,
        scratch: &mut Scratch,
        to: &Destination<'_>,
    ) -> Result<()> {
        if self.take_kept(to)? {
            return Ok(());
        }
        bytes.resize(self.bytes(), 0);
        let mut rest = bytes.as_mut_slice();
        for extent in &self.extents {
            let (now, later) = rest.split_at_mut(index(extent.length));
            self.segment.object.read(extent.offset, now)?;
            rest = later;
        }
        self.run_part(0, bytes, scratch, to)
    }
}

impl Payload for LogFetch {
    fn object(&self) -> Arc<dyn Object> {
        self.segment.object.clone()
    }

    fn extents(&self) -> &[Extent] {
        &self.extents
    }

    fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn decoded_bytes(&self) -> u64 {
        self.blocks.iter().map(|fetched| fetched.block.bytes).sum()
    }

    fn keeps(&self) -> bool {
        self.cache.is_some()
    }

    fn has_parts(&self) -> bool {
        self.blocks.iter().all(|fetched| !fetched.joins_next)
    }

    fn take_kept(&self, to: &Destination<'_>) -> Result<bool> {
        let Some(cache) = self.cache.as_deref() else { return Ok(false) };
        // All or nothing: the layout of the buffer is fixed.
        let mut kept: Vec<Arc<[u8]>> = Vec::with_capacity(self.blocks.len());
        for fetched in &self.blocks {
            match cache.get(&self.key(cache, &fetched.block)) {
                Some(bytes) if !fetched.joins_next => kept.push(bytes),
                _ => return Ok(false),
            }
        }
        for (fetched, bytes) in self.blocks.iter().zip(kept) {
            fetched.move_all(&bytes, to)?;
        }
        Ok(true)
    }

    fn run_part(
        &self,
        start: usize,
        bytes: &[u8],
        scratch: &mut Scratch,
        to: &Destination<'_>,
    ) -> Result<()> {
        let mut joined = Vec::new();
        let first = self.blocks.partition_point(|fetched| fetched.start < start);
        let end = start + bytes.len();
        for fetched in self.blocks[first..].iter().take_while(|fetched| fetched.start < end) {
            let block = &fetched.block;
            let at = fetched.start - start;
            let stored = bytes.get(at..at + index(block.stored_bytes));
            let decoded = decode_block(block, stored.unwrap_or_default(), scratch)
                .map_err(|error| error.of(place(&self.segment, block)))?;
            if fetched.joins_next || !joined.is_empty() {
                joined.extend_from_slice(decoded);
                if !fetched.joins_next {
                    fetched.move_all(&joined, to)?;
                    joined.clear();
                }
                continue;
            }
            if let Some(cache) = &self.cache {
                let make = || Arc::<[u8]>::from(decoded);
                cache.put(self.key(cache, block), block.bytes, make);
            }
            fetched.move_all(decoded, to)?;
        }
        Ok(())
    }
}

impl FetchedBlock {
    fn move_all(&self, bytes: &[u8], to: &Destination<'_>) -> Result<()> {
        let Some(target) = to.target else { return Ok(()) };
        for one in &self.moves {
            // SAFETY: no element of a target is in two copies. An element over a chunk is taken
            // from one box alone, and the parts of a plan go to different elements.
            unsafe {
                match one {
                    BlockMove::Run(run) => run.run(bytes, target, to.swap)?,
                    BlockMove::Copy(copy) => copy.run(bytes, target, to.item, to.swap)?,
                }
            }
        }
        Ok(())
    }
}

pub(super) fn place(segment: &LogSegment, block: &Block) -> String {
    segment.place_of(block.offset)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Sizes of data in memory; decoding has checked sections against the limits.
    value as usize
}
