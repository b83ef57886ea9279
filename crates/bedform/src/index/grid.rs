//! The division of an array into blocks.

use bedform_geometry::ChunkGrid;

use crate::plan::tuning::block_shape;
use crate::source::StoredLayout;

/// A chunk with so many decoded bytes is read as a whole.
const WHOLE_BYTES: std::ops::RangeInclusive<u64> = (32 << 10)..=(4 << 20);
/// Bytes of a read of a part of a larger chunk.
const PART_BYTES: u64 = 1 << 20;
/// Bytes of a read of several smaller chunks, and of a block of an index. Smaller blocks leave out
/// more elements: a block of a smooth field has a range that grows with its edges.
const BLOCK_BYTES: u64 = 64 << 10;

/// A division of an array into boxes: a regular grid over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockGrid {
    grid: ChunkGrid,
}

impl BlockGrid {
    /// Cuts an array into boxes that are read at once: a chunk of fitting size, a part of a larger
    /// chunk, or a box of smaller chunks, of one shard if that is large enough. A variable whose
    /// chunks are large and raw, so that a read fetches any part of them, is cut into boxes of
    /// consecutive rows.
    pub(crate) fn of_reads(layout: &StoredLayout, raw_contiguous: bool) -> Self {
        let chunk = layout.grid.chunk_shape();
        let item = layout.item_size as u64;
        let bytes = bytes_of(chunk, item);
        Self::over(
            layout,
            match raw_contiguous {
                true => rows(layout),
                false if bytes > *WHOLE_BYTES.end() => part_of(chunk, item),
                false if bytes < *WHOLE_BYTES.start() => several(layout, bytes),
                false => chunk.to_vec(),
            },
        )
    }

    /// Cuts an array into the blocks of its index: equal parts of the boxes in which it is read, of
    /// at most about [`BLOCK_BYTES`].
    pub(crate) fn of_index(layout: &StoredLayout, raw_contiguous: bool) -> Self {
        let reads = Self::of_reads(layout, raw_contiguous).grid;
        Self::over(layout, compact_part(&reads, layout.item_size as u64))
    }

    fn over(layout: &StoredLayout, block: Vec<u64>) -> Self {
        let shape = layout.grid.array_shape().to_vec();
        Self { grid: ChunkGrid::new(shape, block).unwrap_or_else(|_| layout.grid.clone()) }
    }

    pub(crate) fn grid(&self) -> &ChunkGrid {
        &self.grid
    }
}

fn bytes_of(shape: &[u64], item: u64) -> u64 {
    shape.iter().fold(item.max(1), |bytes, length| bytes.saturating_mul(*length))
}

/// The shape of boxes of consecutive rows of a chunk.
fn rows(layout: &StoredLayout) -> Vec<u64> {
    let (shape, chunk) = (layout.grid.array_shape(), layout.grid.chunk_shape());
    let inside = chunk.iter().zip(shape).map(|(chunk, whole)| (*chunk).min(*whole));
    let inside: Vec<u64> = inside.collect();
    block_shape(&inside, &vec![1; inside.len()], layout.item_size as u64, BLOCK_BYTES)
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

/// The shape of equal parts of the boxes of a grid: again and again the longest axis is halved, of
/// equal ones the slowest, so that a part is as compact as it can be. Where a box does not span the
/// array, it is cut by divisors of its length, so that no part lies in two boxes.
fn compact_part(boxes: &ChunkGrid, item: u64) -> Vec<u64> {
    let (whole, shape) = (boxes.chunk_shape(), boxes.array_shape());
    let mut block = whole.to_vec();
    let mut is_final: Vec<bool> = block.iter().map(|length| *length <= 1).collect();
    while bytes_of(&block, item) > BLOCK_BYTES {
        let longer = |axis: &usize| (block[*axis], std::cmp::Reverse(*axis));
        let Some(axis) = (0..block.len()).filter(|axis| !is_final[*axis]).max_by_key(longer) else {
            break;
        };
        let half = block[axis].div_ceil(2);
        let length = match whole[axis] >= shape[axis] {
            true => half,
            false => divisor(whole[axis], half),
        };
        // A length with few divisors stays longer rather than in crumbs.
        if length.saturating_mul(4) >= block[axis] {
            block[axis] = length;
        } else {
            is_final[axis] = true;
        }
        is_final[axis] |= block[axis] <= 1;
    }
    block
}

/// The shape of a box of whole chunks of `bytes` bytes each, along the fastest axis first.
fn several(layout: &StoredLayout, bytes: u64) -> Vec<u64> {
    let grid = &layout.grid;
    let mut room = BLOCK_BYTES / bytes.max(1);
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

    fn layout(shape: &[u64], chunk: &[u64], per_object: &[u64]) -> StoredLayout {
        let serializer = Serializer::Bytes(Endian::Little);
        let chain = CodecChain { transpose: None, serializer, bytes: Vec::new() };
        StoredLayout {
            grid: ChunkGrid::new(shape, chunk).unwrap(),
            per_object: per_object.to_vec(),
            codec: ChunkCodec::new(&chain, DataType::Float32, chunk),
            item_size: 4,
            fill: FillValue::Bytes(vec![0; 4]),
        }
    }

    /// The boxes of reads, and the blocks of the index.
    fn both(shape: &[u64], chunk: &[u64], per_object: &[u64], is_raw: bool) -> [Vec<u64>; 2] {
        let layout = layout(shape, chunk, per_object);
        let shape_of = |grid: BlockGrid| grid.grid().chunk_shape().to_vec();
        [BlockGrid::of_reads(&layout, is_raw), BlockGrid::of_index(&layout, is_raw)].map(shape_of)
    }

    #[test]
    fn a_chunk_of_fitting_size_is_read_whole_and_indexed_in_compact_parts() {
        let [read, block] = both(&[100, 721, 1440], &[1, 721, 1440], &[10, 1, 1], false);
        assert_eq!((read, block), (vec![1, 721, 1440], vec![1, 91, 180]));
        let [read, block] = both(&[512, 512, 512], &[32, 64, 64], &[4, 4, 4], false);
        assert_eq!((read, block), (vec![32, 64, 64], vec![16, 32, 32]));
        let [read, block] = both(&[100, 100], &[90, 100], &[1, 1], false);
        assert_eq!((read, block), (vec![90, 100], vec![90, 100]));
    }

    #[test]
    fn a_larger_chunk_is_read_and_indexed_in_equal_parts() {
        let [read, block] = both(&[240, 721, 1440], &[24, 721, 1440], &[1, 1, 1], false);
        assert_eq!((read, block), (vec![1, 103, 1440], vec![1, 103, 90]));
        // A length without divisors stays whole; the next axis is cut.
        let [read, block] = both(&[2018, 2048], &[1009, 2048], &[1, 1], false);
        assert_eq!((read, block), (vec![1009, 256], vec![1009, 16]));
        let [read, block] = both(&[1 << 30], &[1 << 26], &[1], false);
        assert_eq!((read, block), (vec![1 << 18], vec![1 << 14]));
    }

    #[test]
    fn smaller_chunks_are_joined_within_their_shard() {
        let same = |shape: &[u64], chunk: &[u64], per_object: &[u64]| {
            let [read, block] = both(shape, chunk, per_object, false);
            assert_eq!(read, block);
            read
        };
        assert_eq!(same(&[1 << 20], &[1024], &[48]), [16 << 10]);
        // A shard below the least size does not bound a block.
        assert_eq!(same(&[1 << 20], &[1024], &[2]), [16 << 10]);
        // One file is one object, whatever the number of its chunks.
        assert_eq!(same(&[1009, 1024], &[1, 1024], &[1009, 1]), [16, 1024]);
        assert_eq!(same(&[5], &[1], &[5]), [5]);
    }

    #[test]
    fn a_contiguous_variable_is_cut_into_rows() {
        let shape = [365, 721, 1440];
        let rows = [vec![1, 11, 1440], vec![1, 11, 1440]];
        assert_eq!(both(&shape, &shape, &[1, 1, 1], true), rows);
        // Records are chunks of their own.
        assert_eq!(both(&shape, &[1, 721, 1440], &[365, 1, 1], true), rows);
    }

    #[test]
    fn arrays_without_elements_or_axes_have_blocks_too() {
        let scalar: [Vec<u64>; 2] = [vec![], vec![]];
        assert_eq!(both(&[], &[], &[], false), scalar);
        let [read, block] = both(&[0, 10], &[1, 10], &[1, 1], false);
        assert_eq!((read, block), (vec![1, 10], vec![1, 10]));
    }
}
