//! The common dimensions of the arrays of a query, the region in them, and its blocks.

use bedform_geometry::{Region, delinearize, element_count};

use super::operand::QueryOperand;
use crate::error::{Error, ErrorKind, Result};

/// The most elements of a block: its truth values are held in memory.
const BLOCK_ELEMENTS_MAX: u64 = 4 << 20;
/// The most blocks of a query.
const BLOCKS_MAX: u64 = 1 << 27;

/// The dimensions that the arrays of a query span together, and a grid of blocks over a region of
/// them. An array lies in the frame by the names of its dimensions; along others it repeats.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) dims: Vec<String>,
    pub(super) region: Region,
    /// Lengths of a block.
    block: Vec<u64>,
    /// Blocks begin at multiples of their lengths, less this: a part of an array begins anywhere in
    /// a chunk.
    offset: Vec<u64>,
    /// Blocks of the region along each dimension.
    counts: Vec<u64>,
}

impl Frame {
    /// Makes the frame of these operands. The dimensions of the operand with most of them come
    /// first, then others in the order of the operands.
    ///
    /// # Errors
    /// `InvalidArgument` if a dimension has two lengths, or an array has one twice.
    pub(super) fn new(
        operands: &[QueryOperand],
        region: &[(String, std::ops::Range<u64>)],
    ) -> Result<Self> {
        let mut dims: Vec<String> = Vec::new();
        let mut lengths: Vec<(u64, &str)> = Vec::new();
        for operand in by_rank(operands) {
            for (axis, (dim, &length)) in operand.dims.iter().zip(&operand.shape).enumerate() {
                if operand.dims[..axis].contains(dim) {
                    let name = &operand.name;
                    return Err(Error::invalid(format!("{name} has the dimension {dim} twice")));
                }
                let Some(known) = dims.iter().position(|known| known == dim) else {
                    dims.push(dim.clone());
                    lengths.push((length, &operand.name));
                    continue;
                };
                let (other, of) = lengths[known];
                if other != length {
                    let name = &operand.name;
                    return Err(Error::invalid(format!(
                        "{dim} has {other} elements in {of} and {length} in {name}: their \
                         dimensions do not fit"
                    )));
                }
            }
        }
        let shape: Vec<u64> = lengths.iter().map(|(length, _)| *length).collect();
        let region = region_of(&dims, &shape, region)?;
        let (block, offset) = block_of(&dims, &shape, operands);
        let counts: Vec<u64> = (0..dims.len())
            .map(|axis| {
                let (start, end) = (region.start()[axis], region.end(axis));
                (end + offset[axis]).div_ceil(block[axis]) - (start + offset[axis]) / block[axis]
            })
            .collect();
        let frame = Self { dims, region, block, offset, counts };
        if frame.block_count() > BLOCKS_MAX {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("the query has more than {BLOCKS_MAX} blocks; ask for a smaller region"),
            ));
        }
        Ok(frame)
    }

    /// Returns the number of blocks of the region.
    pub(super) fn block_count(&self) -> u64 {
        match self.region.is_empty() {
            true => 0,
            false => element_count(&self.counts).unwrap_or(u64::MAX),
        }
    }

    /// Returns the elements of block `number` that lie in the region; blocks are counted in C
    /// order.
    pub(super) fn block(&self, number: u64) -> BlockBox {
        let at = delinearize(number, &self.counts);
        let (mut start, mut shape) = (at, Vec::with_capacity(self.dims.len()));
        for (axis, first) in start.iter_mut().enumerate() {
            let (block, offset) = (self.block[axis], self.offset[axis]);
            let from = ((self.region.start()[axis] + offset) / block + *first) * block;
            let begin = from.max(self.region.start()[axis] + offset) - offset;
            let end = from.saturating_add(block) - offset;
            shape.push(end.min(self.region.end(axis)) - begin);
            *first = begin;
        }
        BlockBox { start, shape }
    }

    /// Returns the place of an element in the C order of the region.
    pub(super) fn place(&self, position: &[u64]) -> u64 {
        let axes = position.iter().zip(self.region.start()).zip(self.region.shape());
        axes.fold(0, |place, ((at, start), length)| place * length + (at - start))
    }

    /// Returns the number of the dimension with this name.
    ///
    /// # Errors
    /// `InvalidArgument` if the query has none.
    pub(super) fn axis(&self, dim: &str) -> Result<usize> {
        self.dims.iter().position(|known| known == dim).ok_or_else(|| {
            let known = self.dims.join(", ");
            Error::invalid(format!("the query has no dimension {dim:?}: it has {known}"))
        })
    }
}

/// A box of elements of the frame, which are evaluated together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockBox {
    pub(super) start: Vec<u64>,
    pub(super) shape: Vec<u64>,
}

impl BlockBox {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        // A block has at most `BLOCK_ELEMENTS_MAX` elements.
        element_count(&self.shape).and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
    }
}

fn by_rank(operands: &[QueryOperand]) -> Vec<&QueryOperand> {
    let mut sorted: Vec<&QueryOperand> = operands.iter().collect();
    // The sort is stable: of equal ranks, the first named comes first.
    sorted.sort_by_key(|operand| std::cmp::Reverse(operand.dims.len()));
    sorted
}

fn region_of(
    dims: &[String],
    shape: &[u64],
    given: &[(String, std::ops::Range<u64>)],
) -> Result<Region> {
    let (mut start, mut end) = (vec![0; dims.len()], shape.to_vec());
    for (dim, range) in given {
        let Some(axis) = dims.iter().position(|known| known == dim) else {
            let known = dims.join(", ");
            return Err(Error::invalid(format!(
                "the region names {dim:?}, which no array of the query has: they have {known}"
            )));
        };
        start[axis] = range.start.min(shape[axis]);
        end[axis] = range.end.min(shape[axis]).max(start[axis]);
    }
    let lengths: Vec<u64> = start.iter().zip(&end).map(|(start, end)| end - start).collect();
    Ok(Region::new(start, lengths)?)
}

/// Returns the shape of blocks, and the offset of their grid. Along each dimension they are those of
/// the largest array with that dimension, so that its chunks are read once.
fn block_of(dims: &[String], shape: &[u64], operands: &[QueryOperand]) -> (Vec<u64>, Vec<u64>) {
    let mut sorted: Vec<&QueryOperand> = operands.iter().collect();
    sorted.sort_by_key(|operand| std::cmp::Reverse(operand.bytes()));
    let along = dims.iter().map(|dim| {
        let of = |operand: &&QueryOperand| {
            let axis = operand.dims.iter().position(|known| known == dim)?;
            let length = (*operand.block.get(axis)?).max(1);
            Some((length, operand.start[axis] % length))
        };
        sorted.iter().find_map(of).unwrap_or((1, 0))
    });
    let (mut block, mut offset): (Vec<u64>, Vec<u64>) = along.unzip();
    for axis in 0..block.len() {
        let whole = shape[axis].max(1);
        if offset[axis] == 0 {
            block[axis] = block[axis].min(whole);
        }
    }
    // Blocks of arrays that share no dimension multiply.
    for axis in 0..block.len() {
        let elements = element_count(&block).unwrap_or(u64::MAX);
        if elements <= BLOCK_ELEMENTS_MAX {
            break;
        }
        let rest = (elements / block[axis]).max(1);
        block[axis] = (BLOCK_ELEMENTS_MAX / rest).clamp(1, block[axis]);
        offset[axis] = 0;
    }
    (block, offset)
}
