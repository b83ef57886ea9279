//! The value index of an array: the ranges of its blocks as of a moment, and the fold of blocks
//! that makes them.
//!
//! | module | holds |
//! |---|---|
//! | `value_index` | the opened index, whose ranges count only for unchanged objects |
//! | `missing` | the stored values that mean that an element is missing, from the attributes |
//! | `blocks` | the ranges of a box of blocks, read from the array |

mod blocks;
mod missing;
mod value_index;

use bedform_geometry::ChunkGrid;

use super::Array;
use crate::error::Result;
use crate::index::{BlockGrid, RangeFold};
use crate::sidecar::Sidecar;

pub(crate) use blocks::{FoldedBlock, elements_of};
pub(crate) use value_index::hexadecimal;
pub use value_index::{BlockRange, ValueIndex};

/// Raw chunks of a foreign file with more bytes are cut into blocks of rows.
const RAW_BYTES_MAX: u64 = 4 << 20;

/// The way in which an array is indexed.
#[derive(Debug, Clone)]
pub(crate) struct IndexForm {
    /// The blocks of the array.
    pub(crate) grid: ChunkGrid,
    /// The fold of its elements.
    pub(crate) fold: RangeFold,
    /// Blocks along each axis that share a chunk.
    pub(crate) blocks_of_chunk: Vec<u64>,
    /// Objects that a block touches, at most.
    pub(crate) objects_of_block: u64,
}

impl Array {
    /// The way in which the array is indexed; `None` for elements that are no numbers.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn index_form(&self) -> Result<Option<IndexForm>> {
        let Some(fold) = self.range_fold()? else { return Ok(None) };
        let known = self.known()?;
        let layout = known.layout();
        let is_raw = known.has_large_raw_chunks(RAW_BYTES_MAX);
        let grid = BlockGrid::of_index(layout, is_raw).grid().clone();
        let block = grid.chunk_shape().iter();
        let parts = layout.grid.chunk_shape().iter().zip(block.clone());
        // Reads of a raw chunk cut it where they like.
        let in_chunk =
            |(chunk, block): (&u64, &u64)| if is_raw { 1 } else { chunk.div_ceil(*block) };
        let blocks_of_chunk = parts.map(in_chunk).collect();
        let object = layout.grid.chunk_shape().iter().zip(&layout.per_object);
        let object = object.map(|(chunk, count)| chunk.saturating_mul(*count).max(1));
        let objects = block.zip(object).map(|(block, object)| block.div_ceil(object));
        let objects_of_block = objects.fold(1, u64::saturating_mul);
        Ok(Some(IndexForm { grid, fold, blocks_of_chunk, objects_of_block }))
    }

    /// The shape of the boxes in which a query reads the array.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn query_block(&self) -> Result<Vec<u64>> {
        let known = self.known()?;
        let is_raw = known.has_large_raw_chunks(RAW_BYTES_MAX);
        Ok(BlockGrid::of_reads(known.layout(), is_raw).grid().chunk_shape().to_vec())
    }

    /// The fold of the array's elements, by its type and its missing values; `None` for elements
    /// that are no numbers.
    ///
    /// # Errors
    /// Those of looking up the array again.
    fn range_fold(&self) -> Result<Option<RangeFold>> {
        Ok(RangeFold::new(self.data_type()?, &self.missing_values()?))
    }

    /// The sidecar of the array's source, if it has one.
    pub(crate) fn sidecar(&self) -> Option<&Sidecar> {
        match &self.backing {
            super::ArrayBacking::Stored(handle) => handle.store.options.sidecar.as_ref(),
            super::ArrayBacking::Foreign(variable) => variable.facts().sidecar.as_ref(),
        }
    }
}
