//! Columns: the stored elements of one array over the blocks of a batch.
//!
//! The boxes that the blocks need of an array are read at once, as a union of regions, so that
//! neighbouring chunks come in one request and each chunk is decoded once. The elements of a box
//! lie in C order, one box behind the other. An array that spans fewer dimensions than the frame,
//! or the same in another order, is spread over a block by strides.

use std::collections::HashMap;
use std::ops::Range;

use bedform_geometry::{AxisRange, AxisSelection, Region, Selection, element_count, strides};
use bedform_query::{ValueSlice, ValueType};
use zerocopy::IntoBytes;

use super::frame::{BlockBox, Frame};
use super::operand::QueryOperand;
use crate::error::{Error, ErrorKind, Result};

/// Elements of an array, boxes behind each other.
#[derive(Debug)]
pub(super) struct QueryColumn {
    value_type: ValueType,
    /// For each axis of the frame, the axis of the array; `None` where the array repeats.
    axes: Vec<Option<usize>>,
    /// The start of the part of the array that the query sees.
    first: Vec<u64>,
    /// Bytes of the array in the whole region.
    pass_bytes: u64,
    /// The elements, in memory that is aligned to each type.
    words: Vec<u64>,
    /// Bytes of the elements in `words`.
    bytes: usize,
    /// By start and shape.
    boxes: HashMap<(Vec<u64>, Vec<u64>), StoredBox>,
}

/// The place of a box of elements in a column.
#[derive(Debug, Clone)]
struct StoredBox {
    offset: usize,
    shape: Vec<u64>,
    /// The start of the box in the array.
    start: Vec<u64>,
}

/// The elements of a column that a block takes: an offset, and a distance for each axis of the
/// block, in elements.
#[derive(Debug, Clone)]
pub(super) struct BlockColumn<'c> {
    column: &'c QueryColumn,
    offset: usize,
    steps: Vec<usize>,
    /// True if the block's elements lie in its C order.
    is_dense: bool,
    shape: Vec<usize>,
}

impl QueryColumn {
    /// Makes an empty column of an array in a frame.
    pub(super) fn new(operand: &QueryOperand, frame: &Frame) -> Self {
        let axis = |dim: &String| operand.dims.iter().position(|known| known == dim);
        let axes = frame.dims.iter().map(axis).collect();
        let value_type = operand.decoding.stored();
        let first = operand.start.clone();
        let region =
            BlockBox { start: frame.region.start().to_vec(), shape: frame.region.shape().to_vec() };
        let (_, shape) = operand.region_in(frame, &region);
        let elements = element_count(&shape).unwrap_or(u64::MAX);
        let pass_bytes = elements.saturating_mul(value_type.bytes() as u64);
        Self {
            value_type,
            axes,
            first,
            pass_bytes,
            words: Vec::new(),
            bytes: 0,
            boxes: HashMap::new(),
        }
    }

    /// Reads the elements of the array that these blocks need, in place of the earlier ones.
    ///
    /// # Errors
    /// Those of reads; `LimitExceeded` if memory lacks.
    pub(super) fn read<'b>(
        &mut self,
        operand: &QueryOperand,
        blocks: impl Iterator<Item = &'b BlockBox>,
    ) -> Result<()> {
        self.boxes.clear();
        let (mut regions, mut elements) = (Vec::new(), 0_usize);
        for block in blocks {
            let region = self.region_of(block)?;
            let key = (region.start().to_vec(), region.shape().to_vec());
            if self.boxes.contains_key(&key) {
                continue;
            }
            let count = region.len().and_then(|count| usize::try_from(count).ok());
            let place = StoredBox {
                offset: elements,
                shape: region.shape().to_vec(),
                start: region.start().to_vec(),
            };
            self.boxes.insert(key, place);
            elements = count.and_then(|count| elements.checked_add(count)).ok_or_else(too_large)?;
            push_region(&mut regions, region)?;
        }
        let bytes = elements.checked_mul(self.value_type.bytes()).ok_or_else(too_large)?;
        let missing = bytes.div_ceil(8).saturating_sub(self.words.len());
        self.words.try_reserve_exact(missing).map_err(|_| too_large())?;
        // Earlier elements stay below: the read overwrites them.
        self.words.resize(self.words.len() + missing, 0);
        self.bytes = bytes;
        if bytes > 0 {
            let buffer = &mut self.words.as_mut_bytes()[..bytes];
            operand.array.read_part(&selection_of(regions)?, buffer, self.pass_bytes)?;
        }
        Ok(())
    }

    /// Bytes of the elements that the last read took.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns the region of the array that a block takes.
    fn region_of(&self, block: &BlockBox) -> Result<Region> {
        let (mut start, mut shape) = (self.first.clone(), vec![0; self.first.len()]);
        for (axis, own) in self.axes.iter().enumerate() {
            if let Some(own) = own {
                start[*own] += block.start[axis];
                shape[*own] = block.shape[axis];
            }
        }
        Ok(Region::new(start, shape)?)
    }

    /// Cuts a block to one element along each dimension in which the array repeats.
    pub(super) fn reduce(&self, block: &mut BlockBox) {
        let repeats = self.axes.iter().zip(&mut block.shape).filter(|(own, _)| own.is_none());
        repeats.for_each(|(_, length)| *length = 1);
    }

    /// Returns the elements that a block takes: of the box that was read for it, or of the one box
    /// that contains it.
    pub(super) fn of_block(&self, block: &BlockBox) -> Result<BlockColumn<'_>> {
        let region = self.region_of(block)?;
        let missing = || Error::new(ErrorKind::Internal, "a block of a query was not read");
        let found = self.boxes.get(&(region.start().to_vec(), region.shape().to_vec()));
        let found = found.or_else(|| self.boxes.values().next()).ok_or_else(missing)?;
        let steps_of_box = strides(&found.shape);
        let mut offset = found.offset;
        for (axis, step) in steps_of_box.iter().enumerate() {
            let inside = region.start()[axis].checked_sub(found.start[axis]).ok_or_else(missing)?;
            if inside + region.shape()[axis] > found.shape[axis] {
                return Err(missing());
            }
            offset += index(inside * step);
        }
        let step = |own: &Option<usize>| own.map_or(0, |own| index(steps_of_box[own]));
        let steps: Vec<usize> = self.axes.iter().map(step).collect();
        let dense = strides(&block.shape);
        let is_dense = (0..steps.len())
            .all(|axis| block.shape[axis] == 1 || steps[axis] as u64 == dense[axis]);
        let shape = block.shape.iter().map(|length| index(*length)).collect();
        Ok(BlockColumn { column: self, offset, steps, is_dense, shape })
    }

    /// Returns all elements of the column.
    fn elements(&self) -> Result<ValueSlice<'_>> {
        ValueSlice::of_bytes(self.value_type, &self.words.as_bytes()[..self.bytes])
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a column of a query has another type"))
    }
}

/// Memory for the elements of a tile that do not lie in its order.
#[derive(Debug, Default)]
pub(super) struct SpreadBuffer {
    words: Vec<u64>,
}

impl<'c> BlockColumn<'c> {
    /// Returns the elements `range` of the block, in its C order; `room` takes them if they lie in
    /// another.
    pub(super) fn tile<'t>(
        &self,
        range: Range<usize>,
        room: &'t mut SpreadBuffer,
    ) -> Result<ValueSlice<'t>>
    where
        'c: 't,
    {
        let all = self.column.elements()?;
        if self.is_dense {
            return Ok(all.slice(self.offset + range.start, self.offset + range.end));
        }
        let item = self.column.value_type.bytes();
        let bytes = range.len() * item;
        room.words.resize(bytes.div_ceil(8), 0);
        let target = &mut room.words.as_mut_bytes()[..bytes];
        let source = self.column.words.as_bytes();
        match item {
            1 => self.spread::<1>(source, range, target),
            2 => self.spread::<2>(source, range, target),
            4 => self.spread::<4>(source, range, target),
            _ => self.spread::<8>(source, range, target),
        }
        ValueSlice::of_bytes(self.column.value_type, target)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a column of a query has another type"))
    }

    /// Copies the elements `range` of the block, of `SIZE` bytes each, row by row.
    fn spread<const SIZE: usize>(&self, source: &[u8], range: Range<usize>, target: &mut [u8]) {
        let (source, target) = (source.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
        let row = self.shape.last().copied().unwrap_or(1).max(1);
        let step = self.steps.last().copied().unwrap_or(0);
        let mut at = range.start;
        let mut rest = target;
        while !rest.is_empty() {
            let inside = at % row;
            let count = (row - inside).min(rest.len());
            let (part, more) = rest.split_at_mut(count);
            let from = self.row_offset(at / row) + inside * step;
            match step {
                0 => part.fill(source[from]),
                1 => part.copy_from_slice(&source[from..from + count]),
                _ => {
                    let elements = source[from..].iter().step_by(step);
                    part.iter_mut().zip(elements).for_each(|(to, element)| *to = *element);
                }
            }
            at += count;
            rest = more;
        }
    }

    /// Returns the place of the first element of row `number` of the block.
    fn row_offset(&self, number: usize) -> usize {
        let outer = self.shape.len().saturating_sub(1);
        let mut number = number;
        let mut offset = self.offset;
        for axis in (0..outer).rev() {
            let length = self.shape[axis].max(1);
            offset += number % length * self.steps[axis];
            number /= length;
        }
        offset
    }
}

/// Adds a region; one that continues the last in C order becomes a part of it.
pub(super) fn push_region(regions: &mut Vec<Region>, region: Region) -> Result<()> {
    if let Some(last) = regions.last_mut()
        && let Some(joined) = joined(last, &region)?
    {
        *last = joined;
    } else {
        regions.push(region);
    }
    Ok(())
}

/// Returns the region of both, if `next` follows `first` along one axis and the elements of the
/// whole lie in C order as those of the parts, one behind the other.
fn joined(first: &Region, next: &Region) -> Result<Option<Region>> {
    let differs = |axis: &usize| {
        let axis = *axis;
        first.start()[axis] != next.start()[axis] || first.shape()[axis] != next.shape()[axis]
    };
    let mut different = (0..first.rank()).filter(differs);
    let (Some(axis), None) = (different.next(), different.next()) else { return Ok(None) };
    let is_single = first.shape()[..axis].iter().all(|length| *length == 1);
    if !is_single || first.end(axis) != next.start()[axis] {
        return Ok(None);
    }
    let mut shape = first.shape().to_vec();
    shape[axis] += next.shape()[axis];
    Ok(Some(Region::new(first.start().to_vec(), shape)?))
}

fn selection_of(mut regions: Vec<Region>) -> Result<Selection> {
    if regions.len() > 1 {
        return Ok(Selection::Union(regions));
    }
    let Some(only) = regions.pop() else { return Ok(Selection::Union(Vec::new())) };
    let axes = only.start().iter().zip(only.shape());
    let axes = axes
        .map(|(start, length)| Ok(AxisSelection::Range(AxisRange::contiguous(*start, *length)?)));
    Ok(Selection::Orthogonal(axes.collect::<Result<_>>()?))
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Counts of elements in memory.
    value as usize
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "the query needs more memory than there is")
}
