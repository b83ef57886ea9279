//! Sections in memory, and an index of their boxes by array.
//!
//! Two trees lead to a box: one over the writes of an array, and one over the boxes of a selection.
//! All writes of a selection share the second one, for any variable and record.

use std::collections::HashMap;
use std::sync::Arc;

use bedform_format::log::{Block, Boxes, Entry, LogError, Section, SectionArray};
use bedform_geometry::{Region, strides};

use super::tree::BoxTree;
use super::view::LogSegment;
use crate::plan::part::Origin;

/// A section, and the positions of its entries' data.
#[derive(Debug)]
pub(crate) struct LoadedSection {
    pub(super) section: Section,
    pub(super) segment: Arc<LogSegment>,
    /// For each entry, its first byte in the section's data.
    pub(super) starts: Vec<u64>,
    /// For each block, the first byte behind it in the section's data.
    pub(super) ends: Vec<u64>,
    selections: Vec<SelectionIndex>,
    /// Entries by array key; an array may have been written under several shapes.
    entries: HashMap<[u8; 16], Vec<ArrayEntries>>,
}

/// The index of the boxes of a selection.
#[derive(Debug)]
struct SelectionIndex {
    tree: BoxTree,
    /// For each box, the number of elements in the boxes before it; empty if there is only one box.
    before: Vec<u64>,
    /// The bounding box: start and exclusive end along each axis.
    bounds: Vec<(u64, u64)>,
}

/// The entries of one array under one shape, in order.
#[derive(Debug)]
struct ArrayEntries {
    array: u32,
    entries: Vec<u32>,
    tree: BoxTree,
}

/// A written box.
#[derive(Debug, Clone, Copy)]
pub(super) struct WrittenBox<'s> {
    /// The index along the first axis, if the box itself lacks that axis.
    record: Option<u64>,
    corner: &'s [u64],
    lengths: &'s [u64],
    /// The first byte of its elements in the section's data; they are in C order.
    pub(super) data_start: u64,
    item_size: u32,
}

impl SelectionIndex {
    fn new(boxes: &Boxes) -> Self {
        let (low, high) = boxes.bounds().unwrap_or_default();
        let tree = BoxTree::new(boxes.rank(), boxes.count(), &bounds_of(boxes));
        let elements = |(_, lengths): (&[u64], &[u64])| lengths.iter().product::<u64>();
        let before = boxes.iter().map(elements).scan(0_u64, |sum, count| {
            let before = *sum;
            *sum = sum.saturating_add(count);
            Some(before)
        });
        let before = if boxes.count() > 1 { before.collect() } else { Vec::new() };
        Self { tree, before, bounds: low.into_iter().zip(high).collect() }
    }
}

/// Returns a function that gives the start and exclusive end of a box of a selection along an axis.
fn bounds_of(boxes: &Boxes) -> impl Fn(usize, usize) -> (u64, u64) {
    let (rank, starts, shapes) = (boxes.rank(), boxes.starts(), boxes.shapes());
    move |number, axis| {
        let at = number * rank + axis;
        (starts[at], starts[at].saturating_add(shapes[at]))
    }
}

impl LoadedSection {
    /// Indexes a decoded section for readers.
    ///
    /// # Errors
    /// If its sizes overflow, which decoding rules out.
    pub(super) fn new(
        section: Section,
        segment: Arc<LogSegment>,
    ) -> std::result::Result<Self, LogError> {
        let counts: Vec<u64> = section
            .selections
            .iter()
            .map(Boxes::elements)
            .collect::<std::result::Result<_, _>>()?;
        let starts = section.entries.iter().scan(0_u64, |end, entry| {
            let start = *end;
            let item = section.arrays[entry.array as usize].item_size;
            *end += counts[entry.selection as usize] * u64::from(item);
            Some(start)
        });
        let starts = starts.collect();
        let ends = section.blocks.iter().scan(0_u64, |end, block| {
            *end += block.bytes;
            Some(*end)
        });
        let ends = ends.collect();
        let selections: Vec<SelectionIndex> =
            section.selections.iter().map(SelectionIndex::new).collect();
        let mut of_arrays: Vec<Vec<u32>> = vec![Vec::new(); section.arrays.len()];
        for (number, entry) in (0..).zip(&section.entries) {
            of_arrays[entry.array as usize].push(number);
        }
        let mut entries = HashMap::<_, Vec<ArrayEntries>>::new();
        for ((number, array), of_array) in (0..).zip(&section.arrays).zip(of_arrays) {
            let bounds = entry_bounds(&section.entries, &selections, &of_array);
            let tree = BoxTree::new(array.shape.len(), of_array.len(), &bounds);
            drop(bounds);
            let of_array = ArrayEntries { array: number, entries: of_array, tree };
            entries.entry(array.key).or_default().push(of_array);
        }
        Ok(Self { section, segment, starts, ends, selections, entries })
    }

    /// Returns the bytes that it takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let selections =
            self.section.selections.iter().zip(&self.selections).map(|(boxes, own)| {
                let numbers = 16 * (boxes.rank() * (boxes.count() + 1)) as u64;
                numbers + 8 * own.before.len() as u64 + own.tree.memory_bytes() + 256
            });
        let entries = self
            .entries
            .values()
            .flatten()
            .map(|own| 4 * own.entries.len() as u64 + own.tree.memory_bytes() + 256);
        let each = (size_of::<Entry>() + size_of::<u64>()) as u64;
        let each_block = (size_of::<Block>() + size_of::<u64>()) as u64;
        selections.chain(entries).sum::<u64>()
            + each * self.starts.len() as u64
            + each_block * self.ends.len() as u64
            + 512
    }

    /// Visits the boxes of the array with `key` that overlap the region from `low` to `high`,
    /// exclusive, with the numbers of entry and box. Stops when `visit` returns false.
    pub(super) fn visit(
        &self,
        key: &[u8; 16],
        low: &[u64],
        high: &[u64],
        visit: &mut impl FnMut(u32, usize) -> bool,
    ) {
        for of_array in self.entries.get(key).into_iter().flatten() {
            if self.section.arrays[of_array.array as usize].shape.len() != low.len() {
                continue;
            }
            let bounds = entry_bounds(&self.section.entries, &self.selections, &of_array.entries);
            let goes_on = of_array.tree.visit(low, high, &bounds, &mut |at| {
                let number = of_array.entries[at];
                let entry = &self.section.entries[number as usize];
                // The boxes lack the axis of the record.
                let skip = usize::from(entry.record.is_some());
                let (low, high) = (&low[skip..], &high[skip..]);
                let boxes = &self.section.selections[entry.selection as usize];
                let tree = &self.selections[entry.selection as usize].tree;
                tree.visit(low, high, &bounds_of(boxes), &mut |at| visit(number, at))
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Returns the bounding box of an entry: start and exclusive end.
    pub(super) fn bounds(&self, number: usize) -> (Vec<u64>, Vec<u64>) {
        let entry = &self.section.entries[number];
        let bounds = &self.selections[entry.selection as usize].bounds;
        let record = entry.record.map(|record| (record, record + 1));
        record.into_iter().chain(bounds.iter().copied()).unzip()
    }

    /// Returns the number of bytes of an entry's data.
    pub(super) fn bytes_of(&self, number: usize) -> u64 {
        let all = || self.ends.last().copied().unwrap_or(0);
        let end = self.starts.get(number + 1).copied().unwrap_or_else(all);
        end.saturating_sub(self.starts[number])
    }

    /// Returns the position of its first data byte in the segment, for messages.
    pub(super) fn offset(&self) -> u64 {
        self.section.blocks.first().map_or(0, |block| block.offset)
    }

    /// Returns one of the entries.
    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.section.entries[number as usize]
    }

    /// Returns the blocks and, for each, the first byte behind it in the section's data.
    pub(super) fn blocks(&self) -> (&[Block], &[u64]) {
        (&self.section.blocks, &self.ends)
    }

    /// Returns a box of an entry; `None` if its elements do not have `item_size` bytes.
    pub(super) fn piece(
        &self,
        entry: u32,
        number: usize,
        item_size: usize,
    ) -> Option<WrittenBox<'_>> {
        let start_of_entry = self.starts[entry as usize];
        let entry = &self.section.entries[entry as usize];
        let SectionArray { item_size: item, .. } = &self.section.arrays[entry.array as usize];
        if *item as usize != item_size {
            return None;
        }
        let boxes = &self.section.selections[entry.selection as usize];
        let (corner, lengths) = boxes.get(number)?;
        let before = &self.selections[entry.selection as usize].before;
        let before = before.get(number).copied().unwrap_or(0);
        Some(WrittenBox {
            record: entry.record,
            corner,
            lengths,
            data_start: start_of_entry + before * u64::from(*item),
            item_size: *item,
        })
    }
}

/// Returns a function that gives the start and exclusive end of one of `entries` along an axis.
fn entry_bounds<'s>(
    all: &'s [Entry],
    selections: &'s [SelectionIndex],
    entries: &'s [u32],
) -> impl Fn(usize, usize) -> (u64, u64) + 's {
    move |at, axis| {
        let entry = &all[entries[at] as usize];
        let bounds = &selections[entry.selection as usize].bounds;
        match (entry.record, axis) {
            (Some(record), 0) => (record, record + 1),
            (Some(_), axis) => bounds[axis - 1],
            (None, axis) => bounds[axis],
        }
    }
}

impl WrittenBox<'_> {
    /// Returns the start and length along an axis.
    pub(super) fn axis(&self, axis: usize) -> (u64, u64) {
        match (self.record, axis) {
            (Some(record), 0) => (record, 1),
            (Some(_), axis) => (self.corner[axis - 1], self.lengths[axis - 1]),
            (None, axis) => (self.corner[axis], self.lengths[axis]),
        }
    }

    /// Returns the distance of neighbouring elements along each axis, in bytes; `None` on overflow.
    pub(super) fn strides(&self) -> Option<Vec<i64>> {
        let shape: Vec<u64> = self.record.iter().map(|_| &1).chain(self.lengths).copied().collect();
        let item = i64::from(self.item_size);
        let steps = strides(&shape);
        steps.iter().map(|step| i64::try_from(*step).ok()?.checked_mul(item)).collect()
    }

    /// Returns the position of elements in the section's data by their position in `chunk`; `None`
    /// on overflow.
    pub(super) fn origin<'s>(&self, chunk: &Region, strides: &'s [i64]) -> Option<Origin<'s>> {
        let mut start = i64::try_from(self.data_start).ok()?;
        for (axis, stride) in strides.iter().enumerate() {
            // No position in the chunk leads further than this.
            i64::try_from(chunk.shape()[axis]).ok()?.checked_mul(*stride)?;
            let ahead = i64::try_from(self.axis(axis).0).ok()?;
            let ahead = ahead.checked_sub(i64::try_from(chunk.start()[axis]).ok()?)?;
            start = start.checked_sub(ahead.checked_mul(*stride)?)?;
        }
        Some(Origin { start, strides })
    }

    /// Returns the part of the box in `chunk` along an axis: start and exclusive end, from the
    /// chunk's start.
    pub(super) fn within(&self, chunk: &Region, axis: usize) -> (u64, u64) {
        let (start, length) = self.axis(axis);
        let from = chunk.start()[axis];
        let end = start.saturating_add(length).min(chunk.end(axis));
        (start.saturating_sub(from), end.saturating_sub(from))
    }
}
