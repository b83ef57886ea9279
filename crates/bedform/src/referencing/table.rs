//! The chunk references of a variable.

use bedform_format::chunk_map::{ForeignArray, ForeignStorage};

use super::grid::{block_shape, bytes_of, item_size};
use crate::foreign::stored::{StoredBlocks, StoredPart, StoredVariable};

/// The bytes of one chunk in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkReference {
    /// Position in the chunk grid of the array, in C order.
    pub(super) position: u64,
    /// Offset in the file, in bytes.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) length: u64,
    /// Index of the file.
    pub(super) file: u32,
}

/// Returns the number of chunks along each axis.
pub(super) fn grid_shape(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(length, chunk)| length.div_ceil((*chunk).max(1))).collect()
}

/// Returns the references of all stored chunks, sorted by position. `chunk` is a shape that fits
/// all parts.
pub(super) fn chunk_references(
    variable: &StoredVariable<'_>,
    chunk: &[u64],
) -> Vec<ChunkReference> {
    let cutting = Cutting {
        grid: grid_shape(&variable.array.shape, chunk),
        axis: variable.axis,
        item_size: item_size(variable),
        chunk,
    };
    let mut references = Vec::new();
    for part in &variable.parts {
        cutting.add_part(part, &mut references);
    }
    if !references.is_sorted_by_key(|found| found.position) {
        references.sort_unstable_by_key(|found| found.position);
    }
    references
}

/// The cut of stored blocks into chunks of one array.
struct Cutting<'c> {
    grid: Vec<u64>,
    axis: Option<usize>,
    item_size: u64,
    chunk: &'c [u64],
}

/// A stored block: its position in the block grid of its part, its offset and length in bytes.
type StoredBlock = (u64, u64, u64);

impl Cutting<'_> {
    fn add_part(&self, part: &StoredPart<'_>, references: &mut Vec<ChunkReference>) {
        if part.array.shape.contains(&0) {
            return;
        }
        let block = block_shape(part);
        let blocks = grid_shape(&part.array.shape, &block);
        let pieces = grid_shape(&block, self.chunk);
        let piece_count = pieces.iter().product::<u64>();
        let piece_bytes = bytes_of(self.chunk, self.item_size);
        let file = u32::try_from(part.file).unwrap_or(u32::MAX);
        let rank = block.len();
        let (mut corner, mut inside, mut at) = (vec![0; rank], vec![0; rank], vec![0; rank]);
        each_block(part.array, &part.blocks, &mut |(number, offset, length)| {
            set_coordinates(&mut corner, number, &blocks);
            for piece in 0..piece_count {
                set_coordinates(&mut inside, piece, &pieces);
                for (axis, at) in at.iter_mut().enumerate() {
                    *at = corner[axis] * block[axis] + inside[axis] * self.chunk[axis];
                }
                // The rest of an edge block lies outside of the part.
                if at.iter().zip(&part.array.shape).any(|(at, length)| at >= length) {
                    continue;
                }
                let position = self.position(&at, part.start);
                // Pieces follow each other in a block: see `grid`.
                let (offset, length) = match piece_count {
                    1 => (offset, length),
                    _ => (offset + piece * piece_bytes, piece_bytes),
                };
                references.push(ChunkReference { position, offset, length, file });
            }
        });
    }

    /// Returns the position in the array's grid of the chunk whose first element is at `at` of a
    /// part that begins at `start` of the joined axis.
    fn position(&self, at: &[u64], start: u64) -> u64 {
        let axes = at.iter().zip(self.chunk).zip(&self.grid).enumerate();
        axes.fold(0, |position, (axis, ((at, chunk), count))| {
            let at = if self.axis == Some(axis) { at + start } else { *at };
            position * count + at / chunk
        })
    }
}

/// Calls `act` for each stored block of a part.
fn each_block(array: &ForeignArray, blocks: &StoredBlocks, act: &mut dyn FnMut(StoredBlock)) {
    match (blocks, &array.storage) {
        (StoredBlocks::Table(table), _) => {
            let columns = table.indexes.iter().zip(&table.offsets).zip(&table.lengths);
            columns.for_each(|((number, offset), length)| act((*number, *offset, *length)));
        }
        (StoredBlocks::At(offset), ForeignStorage::Records { stride, length, .. }) => {
            let count = array.shape.first().copied().unwrap_or(0);
            (0..count).for_each(|number| act((number, offset + number * stride, *length)));
        }
        (StoredBlocks::At(offset), _) => {
            let size = array.data_type.and_then(|data_type| data_type.item_size());
            act((0, *offset, bytes_of(&array.shape, size.unwrap_or(1).max(1) as u64)));
        }
        (StoredBlocks::Absent | StoredBlocks::Inside, _) => {}
    }
}

/// Sets `at` to the coordinates of a position of a grid in C order.
pub(super) fn set_coordinates(at: &mut [u64], position: u64, grid: &[u64]) {
    let mut rest = position;
    for (at, count) in at.iter_mut().zip(grid).rev() {
        *at = rest % (*count).max(1);
        rest /= (*count).max(1);
    }
}
