//! A sample of the elements of a write: chunks as they will be encoded, spread over the write.
//!
//! A block is a whole chunk, with the padding of one that extends beyond the array, because the
//! size of an encoded chunk depends on its shape. Of a chunk over [`BLOCK_BYTES_MAX`] bytes it is a
//! part, each from another place in its chunk, because chunks may be alike. Chunks that the write
//! covers come first. A chunk of only fill values is left out, because it is not stored. Appends of
//! single steps cover a chunk in part. Of such a chunk the block is the part from its first written
//! element to its last, because later writes fill the rest.

use crate::codec::choice::SampleBlock;
use crate::error::Result;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::source::StoredLayout;
use crate::write::elements::{ChunkElements, WriteInput};

/// The most blocks of a sample, and of a sample of small chunks.
pub(crate) const BLOCKS_MAX: usize = 8;
const BLOCKS_SMALL_MAX: usize = 64;
/// Bytes of the sample of a small write, and of any write. Between them the sample grows with the
/// write, whose encoding takes longer, too.
const SAMPLE_BYTES: usize = 1 << 20;
const SAMPLE_BYTES_MAX: usize = 4 << 20;
const WRITTEN_FOR_SAMPLED_BYTE: u64 = 256;
/// The fewest bytes of a sample, if the write has as many: small chunks make more blocks.
const SAMPLE_BYTES_LEAST: usize = 1 << 18;
/// Chunks that are examined for each block, because some hold only fill values.
const TASKS_FOR_BLOCK: usize = 2;
/// Bytes of a whole chunk that is a block, and of the part of a larger one.
const BLOCK_BYTES_MAX: usize = 1 << 19;
const PART_BYTES: usize = 1 << 18;
/// The most bytes of chunks that are built for a sample, unless one chunk alone has more.
const BUILT_BYTES_MAX: usize = 16 << 20;

/// Returns a sample of the elements that `plan` takes from `input`.
///
/// # Errors
/// Those of the geometry.
pub(crate) fn sample(
    layout: &StoredLayout,
    plan: &Geometry,
    input: &WriteInput<'_>,
) -> Result<Vec<SampleBlock>> {
    let mut blocks = SampleBlocks::new(layout, plan.result_bytes());
    if layout.is_text() || plan.result_bytes() == 0 {
        return Ok(Vec::new());
    }
    let tasks = spread_tasks(plan, TASKS_FOR_BLOCK * blocks.count_max());
    // Every second chunk comes first, so that the rest is spread as well.
    let turns =
        (0..TASKS_FOR_BLOCK).flat_map(|turn| tasks.iter().skip(turn).step_by(TASKS_FOR_BLOCK));
    for &(cell, task) in turns {
        if blocks.are_enough() {
            break;
        }
        let mut chunk = ChunkElements::default();
        let is_partial = !plan.covers_chunk(cell, task);
        if is_partial {
            chunk.clear(layout);
        } else {
            chunk.make_room(layout);
        }
        plan.for_each_copy(cell, task, layout.codec.strides(), |copy| {
            chunk.put(layout, copy, input)
        })?;
        blocks.add(&mut chunk, &plan.chunk_coordinates(cell, task), is_partial);
    }
    Ok(blocks.found)
}

/// Returns up to `count` chunks of a plan, spread over it.
fn spread_tasks(plan: &Geometry, count: usize) -> Vec<(u64, ChunkTask)> {
    let cells = spread(plan.cell_count(), count);
    let per_cell = count.div_ceil(cells.len().max(1));
    let mut chosen = Vec::new();
    for cell in cells {
        let mut tasks = plan.tasks(cell);
        let covered = tasks.iter().filter(|task| plan.covers_chunk(cell, **task)).count();
        if covered > 0 {
            tasks.retain(|task| plan.covers_chunk(cell, *task));
        }
        for at in spread(tasks.len() as u64, per_cell) {
            let task = usize::try_from(at).ok().and_then(|at| tasks.get(at));
            chosen.extend(task.map(|task| (cell, *task)));
        }
    }
    chosen.truncate(count);
    chosen
}

/// Returns up to `count` of the numbers below `length`, as far from each other as possible.
pub(crate) fn spread(length: u64, count: usize) -> Vec<u64> {
    let count = (count as u64).min(length);
    (0..count)
        .map(|at| {
            let middle = (2 * u128::from(at) + 1) * u128::from(length) / (2 * u128::from(count));
            u64::try_from(middle).unwrap_or(0)
        })
        .collect()
}

/// A builder of the blocks of a sample.
pub(crate) struct SampleBlocks<'a> {
    layout: &'a StoredLayout,
    pub(crate) found: Vec<SampleBlock>,
    bytes: usize,
    bytes_max: usize,
}

impl<'a> SampleBlocks<'a> {
    /// Makes the empty sample of a write of so many bytes.
    pub(crate) fn new(layout: &'a StoredLayout, written_bytes: u64) -> Self {
        let more = written_bytes / WRITTEN_FOR_SAMPLED_BYTE;
        let bytes_max = SAMPLE_BYTES.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
        Self { layout, found: Vec::new(), bytes: 0, bytes_max: bytes_max.min(SAMPLE_BYTES_MAX) }
    }

    /// Returns the number of chunks that are worth building.
    pub(crate) fn count_max(&self) -> usize {
        let chunk = self.layout.codec.decoded_bytes().max(1);
        (BUILT_BYTES_MAX / chunk)
            .clamp(1, BLOCKS_MAX.max(SAMPLE_BYTES_LEAST / chunk).min(BLOCKS_SMALL_MAX))
    }

    /// Returns true once the sample is full.
    pub(crate) fn are_enough(&self) -> bool {
        self.found.len() >= self.count_max() || self.bytes >= self.bytes_max
    }

    /// Adds a block of the chunk at `coordinates`, unless the sample is full, or the chunk has only
    /// fill values. A chunk that is `is_partial` has fill values in its unwritten places.
    pub(crate) fn add(&mut self, chunk: &mut ChunkElements, coordinates: &[u64], is_partial: bool) {
        if self.are_enough() || chunk.is_fill(self.layout) {
            return;
        }
        let all: &[u8] = chunk.bytes_mut();
        let all_bytes = all.len();
        let bytes = if is_partial { written(all, &self.layout.stored_fill()) } else { all };
        let item_size = self.layout.item_size.max(1);
        // Parts hold groups of eight elements, as do the blocks of codecs that shuffle bits.
        let length = match bytes.len() <= BLOCK_BYTES_MAX && bytes.len() == all_bytes {
            true => bytes.len(),
            false => bytes.len().min(PART_BYTES) / (8 * item_size) * (8 * item_size),
        };
        let start = self.part(bytes.len() - length) / item_size * item_size;
        let Some(block) = bytes.get(start..start + length).filter(|block| !block.is_empty()) else {
            return;
        };
        self.bytes += block.len();
        let inside = self.layout.bytes_inside(coordinates);
        let inside = usize::try_from(inside).unwrap_or(usize::MAX);
        let valid_bytes = match is_partial {
            true => length.min(inside),
            false => usize::try_from(length as u128 * inside as u128 / all_bytes.max(1) as u128)
                .unwrap_or(length),
        };
        self.found.push(SampleBlock { elements: block.to_vec(), valid_bytes });
    }

    /// Returns a place below `length` for the next block, far from those of the blocks before.
    fn part(&self, length: usize) -> usize {
        // Multiples of the golden ratio have fractions that lie apart, however many there are.
        let fraction = ((self.found.len() as u128 * 40_503) & 0xffff) ^ 0x8000;
        usize::try_from((length as u128 * fraction) >> 16).unwrap_or(0)
    }
}

/// Returns the elements from the first to the last that is not the fill value.
fn written<'b>(bytes: &'b [u8], fill: &[u8]) -> &'b [u8] {
    if fill.is_empty() {
        return bytes;
    }
    let mut elements = bytes.chunks_exact(fill.len());
    let Some(first) = elements.clone().position(|element| element != fill) else { return bytes };
    let last = elements.rposition(|element| element != fill).unwrap_or(first);
    bytes.get(first * fill.len()..(last + 1) * fill.len()).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_chunk_that_is_written_in_part_the_part_counts() {
        let elements = |values: &[u16]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let fill = 7_u16.to_le_bytes();
        let of = |values: &[u16]| written(&elements(values), &fill).to_vec();
        assert_eq!(of(&[7, 7, 1, 7, 2, 7]), elements(&[1, 7, 2]));
        assert_eq!(of(&[1, 7]), elements(&[1]));
        assert_eq!(of(&[7, 7]), elements(&[7, 7]));
        assert_eq!(written(&[7, 0, 7, 0], &[]), [7, 0, 7, 0]);
    }

    #[test]
    fn numbers_are_spread_over_all_of_the_range() {
        assert_eq!(spread(100, 4), [12, 37, 62, 87]);
        assert_eq!(spread(3, 8), [0, 1, 2]);
        assert_eq!(spread(1, 1), [0]);
        assert!(spread(0, 4).is_empty());
        assert_eq!(spread(u64::MAX, 2).len(), 2);
    }
}
