//! The ranges of a box of blocks, by a read of their elements.
//!
//! The read is neither followed nor recorded, and no replica serves it: an index describes the
//! objects of the array itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bedform_geometry::{ChunkGrid, Region, Selection, delinearize, element_count, linearize};

use crate::array::Array;
use crate::array::visit::VisitedChunk;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{
    BinEdges, BlockFold, BlockTails, FoldedPart, ITEM_MAX, RangeFold, TAILED_BLOCK_MAX,
    UNKNOWN_BIN, put_box,
};

/// Tails of blocks are left out, for the sake of memory, once one of so many elements of all blocks
/// that are folded at once is in them.
const BOX_TAIL_SHARE: u64 = 8;
/// Attempts to read a box while the store is settled.
const ATTEMPTS_MAX: usize = 8;

/// The elements of a block, folded.
#[derive(Debug, Default)]
pub(crate) struct FoldedBlock {
    pub(crate) range: BlockFold,
    /// With bins, the number of the bin of each element of the block in C order.
    pub(crate) numbers: Vec<u8>,
    /// With tails, positions and values of the elements in the outermost bins; `None` for too many.
    tails: Option<Vec<(u16, [u8; ITEM_MAX])>>,
}

/// The folds of the blocks of a box, which several threads fill.
struct BoxFolds<'a> {
    fold: &'a RangeFold,
    edges: Option<&'a BinEdges>,
    grid: &'a ChunkGrid,
    /// The box, in blocks.
    blocks: &'a Region,
    folds: Vec<Mutex<FoldedBlock>>,
    /// Elements of tails for which there is room.
    tail_room: AtomicU64,
}

impl Array {
    /// Returns the ranges of a box of blocks of `grid`, in C order, and with `edges` the bins of
    /// their elements.
    ///
    /// # Errors
    /// As [`Array::visit`]; `Conflict` if the store is settled all the time, or the array has
    /// become smaller.
    pub(crate) fn fold_blocks(
        &self,
        fold: &RangeFold,
        edges: Option<&BinEdges>,
        grid: &ChunkGrid,
        blocks: &Region,
    ) -> Result<Vec<FoldedBlock>> {
        let elements = elements_of(grid, blocks)?;
        let selection = Selection::from(elements);
        for _ in 0..ATTEMPTS_MAX {
            let folds = BoxFolds::new(fold, edges, grid, blocks)?;
            match self.visit_unrecorded(&selection, &|chunk| folds.add(chunk)) {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => {}
                outcome => {
                    outcome?;
                    return folds.finished();
                }
            }
        }
        let text = "its store is settled again and again: try again later";
        Err(Error::new(ErrorKind::Conflict, text).at(self.name()))
    }
}

/// Returns the elements of a box of blocks.
pub(crate) fn elements_of(grid: &ChunkGrid, blocks: &Region) -> Result<Region> {
    let mut last = Vec::with_capacity(blocks.rank());
    for axis in 0..blocks.rank() {
        last.push(blocks.end(axis).saturating_sub(1));
    }
    let first = grid.chunk_region_clipped(blocks.start());
    let last = grid.chunk_region_clipped(&last);
    let axes = 0..blocks.rank();
    let shape: Vec<u64> =
        axes.map(|axis| last.end(axis).saturating_sub(first.start()[axis])).collect();
    Ok(Region::new(first.start().to_vec(), shape)?)
}

impl FoldedBlock {
    /// The tails of the block, of elements with `item` bytes; `None` if they have too many.
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    pub(crate) fn tails(&self, item: usize) -> Option<BlockTails> {
        let mut sorted: Vec<&(u16, [u8; ITEM_MAX])> = self.tails.as_ref()?.iter().collect();
        sorted.sort_unstable_by_key(|(position, _)| *position);
        let values = sorted.iter().flat_map(|(_, value)| &value[..item.min(ITEM_MAX)]);
        Some(BlockTails {
            positions: sorted.iter().flat_map(|(position, _)| position.to_ne_bytes()).collect(),
            values: values.copied().collect(),
        })
    }

    /// Adds the elements of the outermost bins in a part of the block, with these numbers of bins.
    fn add_tails(
        &mut self,
        edges: &BinEdges,
        numbers: &[u8],
        elements: &[u8],
        part: &BlockPart<'_>,
    ) {
        let Some(tails) = &mut self.tails else { return };
        let item = elements.len() / numbers.len().max(1);
        let outermost = numbers.iter().enumerate().filter(|(_, bin)| edges.is_outermost(**bin));
        for (at, _) in outermost {
            // The record bounds the elements of a block with tails.
            let Ok(position) = u16::try_from(part.position(at as u64)) else { continue };
            let mut value = [0; ITEM_MAX];
            value[..item].copy_from_slice(&elements[at * item..(at + 1) * item]);
            tails.push((position, value));
        }
    }

    /// Puts the numbers of a part of the block into their places.
    fn place(&mut self, numbers: Vec<u8>, part: &BlockPart<'_>) {
        if part.block == part.shape {
            self.numbers = numbers;
            return;
        }
        let elements = element_count(part.block).and_then(|count| usize::try_from(count).ok());
        self.numbers.resize(elements.unwrap_or(0), UNKNOWN_BIN);
        put_box(&mut self.numbers, part.block, part.start, part.shape, &numbers);
    }
}

/// A box in a block of the index.
struct BlockPart<'a> {
    /// The shape of the block.
    block: &'a [u64],
    start: &'a [u64],
    shape: &'a [u64],
}

impl BlockPart<'_> {
    /// Returns the place, in the C order of the block, of an element by that in the C order of the
    /// part.
    fn position(&self, at: u64) -> u64 {
        if self.block == self.shape {
            return at;
        }
        let within = delinearize(at, self.shape);
        let within: Vec<u64> =
            within.iter().zip(self.start).map(|(at, first)| at + first).collect();
        linearize(&within, self.block)
    }
}

impl<'a> BoxFolds<'a> {
    fn new(
        fold: &'a RangeFold,
        edges: Option<&'a BinEdges>,
        grid: &'a ChunkGrid,
        blocks: &'a Region,
    ) -> Result<Self> {
        let count = blocks.len().and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| Error::invalid("a box of too many blocks"))?;
        let empty = || FoldedBlock { tails: Some(Vec::new()), ..FoldedBlock::default() };
        let folds = (0..count).map(|_| Mutex::new(empty())).collect();
        let elements = elements_of(grid, blocks)?.len().unwrap_or(u64::MAX);
        let tail_room = AtomicU64::new((elements / BOX_TAIL_SHARE).max(TAILED_BLOCK_MAX));
        Ok(Self { fold, edges, grid, blocks, folds, tail_room })
    }

    /// Adds the elements of a chunk to the blocks that it touches.
    fn add(&self, chunk: &VisitedChunk<'_>) -> Result<()> {
        let region = chunk.region();
        let touched = self.grid.chunks_of_region(region);
        let Some(touched) = touched.and_then(|touched| touched.intersection(self.blocks)) else {
            return Ok(());
        };
        let mut at = touched.start().to_vec();
        loop {
            self.add_part(chunk, &at);
            let axes = (0..at.len()).rev();
            let Some(axis) = axes.into_iter().find(|axis| at[*axis] + 1 < touched.end(*axis))
            else {
                return Ok(());
            };
            at[axis] += 1;
            at[axis + 1..].copy_from_slice(&touched.start()[axis + 1..]);
        }
    }

    /// Adds the elements of a chunk in the block at `block`.
    fn add_part(&self, chunk: &VisitedChunk<'_>, block: &[u64]) {
        let region = chunk.region();
        let whole = self.grid.chunk_region_clipped(block);
        let Some(common) = whole.intersection(region) else { return };
        let within = |outer: &Region| -> Vec<u64> {
            common.start().iter().zip(outer.start()).map(|(at, first)| at - first).collect()
        };
        let (start, elements) = (within(region), chunk.bytes());
        let part =
            FoldedPart { elements, chunk: region.shape(), start: &start, shape: common.shape() };
        let item = self.fold.data_type().item_size().unwrap_or(0);
        let (found, binned) = match self.edges {
            None => {
                let mut found = BlockFold::default();
                self.fold.add(&part, &mut found);
                (found, None)
            }
            Some(edges) => {
                let elements = part.gathered(item);
                let found = self.fold.of(&elements);
                let numbers = edges.number(self.fold, &elements, &found);
                (found, Some((edges, elements, numbers)))
            }
        };
        let place = block.iter().zip(self.blocks.start()).map(|(at, start)| at - start);
        let number = linearize(&place.collect::<Vec<_>>(), self.blocks.shape());
        let Some(fold) = usize::try_from(number).ok().and_then(|number| self.folds.get(number))
        else {
            return;
        };
        let mut fold = fold.lock().unwrap_or_else(PoisonError::into_inner);
        self.fold.merge(&found, &mut fold.range);
        let Some((edges, elements, numbers)) = binned else { return };
        let place =
            BlockPart { block: whole.shape(), start: &within(&whole), shape: common.shape() };
        if edges.has_tails() {
            match self.has_tail_room(edges, &numbers) {
                true => fold.add_tails(edges, &numbers, &elements, &place),
                false => fold.tails = None,
            }
        }
        fold.place(numbers, &place);
    }

    /// True if there is room for the elements in the outermost bins among these numbers of bins.
    fn has_tail_room(&self, edges: &BinEdges, numbers: &[u8]) -> bool {
        let count = numbers.iter().filter(|bin| edges.is_outermost(**bin)).count() as u64;
        let take = |room: u64| room.checked_sub(count);
        self.tail_room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Returns the folds, each of which must have all elements of its block.
    fn finished(self) -> Result<Vec<FoldedBlock>> {
        let mut folds = Vec::with_capacity(self.folds.len());
        for (number, fold) in (0..).zip(self.folds) {
            let fold = fold.into_inner().unwrap_or_else(PoisonError::into_inner);
            let mut block = bedform_geometry::delinearize(number, self.blocks.shape());
            block.iter_mut().zip(self.blocks.start()).for_each(|(at, start)| *at += start);
            if self.grid.chunk_region_clipped(&block).len() != Some(fold.range.count) {
                let text = format!("block {block:?} has other elements than were read");
                return Err(Error::new(ErrorKind::Conflict, text));
            }
            folds.push(fold);
        }
        Ok(folds)
    }
}
