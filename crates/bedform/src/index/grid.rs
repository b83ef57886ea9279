//! The division of an array into blocks.

use bedform_geometry::ChunkGrid;

use crate::plan::tuning::block_shape;
use crate::source::StoredLayout;

/// A chunk with so many decoded bytes is a block.
const WHOLE_BYTES: std::ops::RangeInclusive<u64> = (32 << 10)..=(4 << 20);
/// Bytes of a block that is a part of a larger chunk.
const PART_BYTES: u64 = 1 << 20;
/// Bytes of a block of several smaller chunks.
const SEVERAL_BYTES: u64 = 128 << 10;

/// The blocks of an array: a regular grid over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockGrid {
    grid: ChunkGrid,
}

impl BlockGrid {
    /// Cuts an array into blocks. A block is a chunk of fitting size, a part of a larger chunk, or
    /// a box of smaller chunks, of one shard if that is large enough. A variable whose chunks are
    /// large and raw, so that a read fetches any part of them, is cut into boxes of consecutive
    /// rows.
    pub(crate) fn of(layout: &StoredLayout, raw_contiguous: bool) -> Self {
        let (shape, chunk) = (layout.grid.array_shape(), layout.grid.chunk_shape());
        let item = layout.item_size as u64;
        let bytes = bytes_of(chunk, item);
        let block = if raw_contiguous {
            let inside = chunk.iter().zip(shape).map(|(chunk, whole)| (*chunk).min(*whole));
            let inside: Vec<u64> = inside.collect();
            block_shape(&inside, &vec![1; inside.len()], item, PART_BYTES)
        } else if bytes > *WHOLE_BYTES.end() {
            part_of(chunk, item)
        } else if bytes < *WHOLE_BYTES.start() {
            several(layout, bytes)
        } else {
            chunk.to_vec()
        };
        let grid = ChunkGrid::new(shape.to_vec(), block).unwrap_or_else(|_| layout.grid.clone());
        Self { grid }
    }

    pub(crate) fn grid(&self) -> &ChunkGrid {
        &self.grid
    }
}

fn bytes_of(shape: &[u64], item: u64) -> u64 {
    shape.iter().fold(item.max(1), |bytes, length| bytes.saturating_mul(*length))
}

/// The largest divisor of `number` that is at most `most`.
fn divisor(number: u64, most: u64) -> u64 {
    let most = most.clamp(1, number.max(1));
    // The smaller of two divisors with this product is at most the square root.
    let small = (1..).take_while(|at: &u64| at.saturating_mul(*at) <= number);
    let pairs = small.filter(|at| number.is_multiple_of(*at)).flat_map(|at| [at, number / at]);
    pairs.filter(|at| *at <= most).max().unwrap_or(1)
}

/// The shape of equal parts of a chunk: along the slowest axes first it is cut by divisors of its
/// lengths, so that no part lies in two chunks.
fn part_of(chunk: &[u64], item: u64) -> Vec<u64> {
    let mut block = chunk.to_vec();
    for axis in 0..block.len() {
        let bytes = bytes_of(&block, item);
        if bytes <= PART_BYTES {
            break;
        }
        let row = bytes / block[axis].max(1);
        let length = divisor(block[axis], PART_BYTES / row.max(1));
        // A chunk with few divisors stays larger rather than in crumbs.
        if row.saturating_mul(length) >= *WHOLE_BYTES.start() {
            block[axis] = length;
        }
    }
    block
}

/// The shape of a box of whole chunks of `bytes` bytes each, along the fastest axis first.
fn several(layout: &StoredLayout, bytes: u64) -> Vec<u64> {
    let grid = &layout.grid;
    let mut room = SEVERAL_BYTES / bytes.max(1);
    let stays_inside = layout.object_bytes() >= *WHOLE_BYTES.start();
    let mut block = grid.chunk_shape().to_vec();
    for (axis, length) in block.iter_mut().enumerate().rev() {
        let all = grid.grid_shape()[axis].max(1);
        let of_object = layout.per_object[axis];
        // One object along the whole axis needs no division that fits it.
        let count = match stays_inside && of_object != all {
            true => divisor(of_object, room),
            false => all.min(room.max(1)),
        };
        *length = length.saturating_mul(count);
        room /= count;
    }
    block
}

#[cfg(test)]
mod tests {
    use bedform_codec::ChunkCodec;
    use bedform_format::metadata::FillValue;
    use bedform_format::{CodecChain, DataType, Endian, Serializer};

    use super::*;

    fn blocks(shape: &[u64], chunk: &[u64], per_object: &[u64], is_raw: bool) -> Vec<u64> {
        let serializer = Serializer::Bytes(Endian::Little);
        let chain = CodecChain { transpose: None, serializer, bytes: Vec::new() };
        let layout = StoredLayout {
            grid: ChunkGrid::new(shape, chunk).unwrap(),
            per_object: per_object.to_vec(),
            codec: ChunkCodec::new(&chain, DataType::Float32, chunk),
            item_size: 4,
            fill: FillValue::Bytes(vec![0; 4]),
        };
        BlockGrid::of(&layout, is_raw).grid().chunk_shape().to_vec()
    }

    #[test]
    fn a_chunk_of_fitting_size_is_a_block() {
        assert_eq!(blocks(&[100, 721, 1440], &[1, 721, 1440], &[10, 1, 1], false), [1, 721, 1440]);
        assert_eq!(blocks(&[100, 100], &[90, 100], &[1, 1], false), [90, 100]);
    }

    #[test]
    fn a_larger_chunk_is_cut_into_equal_parts() {
        let chunk = [24, 721, 1440];
        assert_eq!(blocks(&[240, 721, 1440], &chunk, &[1, 1, 1], false), [1, 103, 1440]);
        // A length without divisors stays whole; the next axis is cut.
        assert_eq!(blocks(&[2018, 2048], &[1009, 2048], &[1, 1], false), [1009, 256]);
        assert_eq!(blocks(&[1 << 30], &[1 << 26], &[1], false), [1 << 18]);
    }

    #[test]
    fn smaller_chunks_are_joined_within_their_shard() {
        assert_eq!(blocks(&[1 << 20], &[1024], &[48], false), [24 << 10]);
        // A shard below the least size does not bound a block.
        assert_eq!(blocks(&[1 << 20], &[1024], &[2], false), [32 << 10]);
        // One file is one object, whatever the number of its chunks.
        assert_eq!(blocks(&[1009, 1024], &[1, 1024], &[1009, 1], false), [32, 1024]);
        assert_eq!(blocks(&[5], &[1], &[5], false), [5]);
    }

    #[test]
    fn a_contiguous_variable_is_cut_into_rows() {
        let shape = [365, 721, 1440];
        assert_eq!(blocks(&shape, &shape, &[1, 1, 1], true), [1, 182, 1440]);
        // Records are chunks of their own.
        assert_eq!(blocks(&shape, &[1, 721, 1440], &[365, 1, 1], true), [1, 182, 1440]);
    }

    #[test]
    fn arrays_without_elements_or_axes_have_blocks_too() {
        assert_eq!(blocks(&[], &[], &[], false), [0_u64; 0]);
        assert_eq!(blocks(&[0, 10], &[1, 10], &[1, 1], false), [1, 10]);
    }
}
