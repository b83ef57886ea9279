//! The encoding of a section.
//!
//! Numbers are varints; each column is preceded by its length in bytes ([`varint`](super::varint)).
//!
//! ```text
//! version 2
//! 16 bytes: session; epoch                               the commit that it is part of
//! counts: arrays, shapes, selections, entries, blocks
//! shapes      column of ranks, column of all lengths     each shape once, whoever has it
//! arrays      16 bytes each: key; columns: item size, shape, base (a shape; not in version 1,
//!             where it is the shape)
//! selections  columns: shape in which it is encoded, number of boxes; then the boxes of each
//! entries     columns: array, record (0 for none, else + 1), selection, epoch, rank
//! blocks      columns: distance of its offset from the end of the block before, stored bytes,
//!             bytes, codec; 4 bytes each: CRC-32C
//! ```

use std::collections::HashMap;

use super::boxes::Summary;
use super::varint::{Column, ColumnReader, write_column, write_varint};
use super::{
    Block, Boxes, CommitId, DecodeBudget, Entry, Result, Section, SectionArray, check_limit,
    check_version, invalid, list_bytes, size_of,
};
use crate::Limits;

const VERSION: u64 = 2;
/// The first version that stores `base`, the shape before the appends of a session.
const VERSION_OF_BASES: u64 = 2;
const WHAT: &str = "a section";
const ARRAYS: &str = "the arrays of a section";
const SHAPES: &str = "the shapes of a section";
const SELECTIONS: &str = "the selections of a section";
const ENTRIES: &str = "the entries of a section";
const BLOCKS: &str = "the blocks of a section";

impl Section {
    /// Encodes the section; the header of `section_wire.rs` has the layout.
    ///
    /// # Errors
    /// As [`Section::check`], and [`LogError::Limit`](super::LogError::Limit) if it exceeds the
    /// limits of readers.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let mut shapes = DistinctShapes::default();
        let of_arrays: Vec<u64> = self.arrays.iter().map(|a| shapes.number(&a.shape)).collect();
        let of_bases: Vec<u64> = self.arrays.iter().map(|a| shapes.number(&a.base)).collect();
        let frames = self.frames()?;
        let of_selections: Vec<u64> = frames.iter().map(|shape| shapes.number(shape)).collect();
        let mut bytes = Vec::new();
        write_varint(VERSION, &mut bytes);
        self.commit.write(&mut bytes);
        for count in [
            self.arrays.len(),
            shapes.list.len(),
            self.selections.len(),
            self.entries.len(),
            self.blocks.len(),
        ] {
            write_varint(count as u64, &mut bytes);
        }
        shapes.write(&mut bytes);
        self.arrays.iter().for_each(|array| bytes.extend_from_slice(&array.key));
        write_column(self.arrays.iter().map(|array| u64::from(array.item_size)), &mut bytes);
        write_column(of_arrays.into_iter(), &mut bytes);
        write_column(of_bases.into_iter(), &mut bytes);
        write_column(of_selections.into_iter(), &mut bytes);
        write_column(self.selections.iter().map(|boxes| boxes.count() as u64), &mut bytes);
        for (boxes, shape) in self.selections.iter().zip(&frames) {
            boxes.write(shape, &mut bytes)?;
        }
        self.write_entries(&mut bytes);
        self.write_blocks(&mut bytes);
        check_limit("bytes in a section", bytes.len() as u64, limits.index_bytes_max)?;
        DecodeBudget::new(bytes.len())
            .charge(1, self.memory_bytes().saturating_add(shapes.memory))?;
        Ok(bytes)
    }

    /// Decodes a section.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the bytes are damaged, of a newer version, over the limits,
    /// or fail [`Section::check`].
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut reader = ColumnReader::new(bytes);
        let version = reader.number(WHAT)?;
        check_version(WHAT, version, VERSION)?;
        check_limit("bytes in a section", bytes.len() as u64, limits.index_bytes_max)?;
        let commit = CommitId::read(&mut reader)?;
        let mut counts = [0; 5];
        for count in &mut counts {
            *count = reader.number(WHAT)?;
        }
        let [arrays, shapes, selections, entries, blocks] = counts;
        check_limit("entries", entries, limits.section_entries_max)?;
        let mut budget = DecodeBudget::new(bytes.len());
        budget.charge(entries, size_of::<Entry>())?;
        budget.charge(blocks, size_of::<Block>())?;
        let shapes = read_shapes(&mut reader, shapes, limits, &mut budget)?;
        let section = Self {
            commit,
            arrays: read_arrays(&mut reader, version, arrays, &shapes, &mut budget)?,
            selections: read_selections(&mut reader, selections, &shapes, limits, &mut budget)?,
            entries: read_entries(&mut reader, entries)?,
            blocks: read_blocks(&mut reader, blocks)?,
        };
        reader.finish(WHAT)?;
        section.check(limits)?;
        Ok(section)
    }

    /// Returns for each selection the shape that encodes its boxes: the shape of the first entry
    /// with the selection, or the selection's end if no entry has it.
    fn frames(&self) -> Result<Vec<Vec<u64>>> {
        let mut frames = vec![None; self.selections.len()];
        for entry in &self.entries {
            let frame = frames.get_mut(entry.selection as usize);
            let Some(frame) = frame.filter(|frame| frame.is_none()) else { continue };
            let array = self.arrays.get(entry.array as usize);
            let array = array.ok_or_else(|| invalid(ENTRIES, "an array that is not there"))?;
            *frame = Some(array.inner_shape(entry.record)?.to_vec());
        }
        let bounds = |boxes: &Boxes| boxes.bounds().unwrap_or_default().1;
        let known = frames.into_iter().zip(&self.selections);
        Ok(known.map(|(frame, boxes)| frame.unwrap_or_else(|| bounds(boxes))).collect())
    }

    fn write_entries(&self, bytes: &mut Vec<u8>) {
        // Adding 1 cannot overflow: a record is below the length of its axis.
        let record = |entry: &Entry| entry.record.map_or(0, |record| record + 1);
        let columns: [&dyn Fn(&Entry) -> u64; 5] = [
            &|entry| u64::from(entry.array),
            &record,
            &|entry| u64::from(entry.selection),
            &|entry| u64::from(entry.epoch),
            &|entry| u64::from(entry.rank),
        ];
        columns.iter().for_each(|column| write_column(self.entries.iter().map(column), bytes));
    }

    fn write_blocks(&self, bytes: &mut Vec<u8>) {
        let mut end = 0_u64;
        let distances = self.blocks.iter().map(|block| {
            let distance = block.offset.wrapping_sub(end);
            end = block.offset + block.stored_bytes;
            distance
        });
        write_column(distances, bytes);
        write_column(self.blocks.iter().map(|block| block.stored_bytes), bytes);
        write_column(self.blocks.iter().map(|block| block.bytes), bytes);
        write_column(self.blocks.iter().map(|block| u64::from(block.codec)), bytes);
        for block in &self.blocks {
            bytes.extend_from_slice(&block.checksum.to_le_bytes());
        }
    }
}

/// Distinct shapes, numbered in the order of their first use.
#[derive(Debug, Default)]
struct DistinctShapes {
    list: Vec<Vec<u64>>,
    numbers: HashMap<Vec<u64>, u64>,
    /// Memory of the list in a reader, in bytes.
    memory: u64,
}

fn shape_memory_bytes(rank: usize) -> u64 {
    size_of::<Vec<u64>>() + list_bytes(rank)
}

impl DistinctShapes {
    fn number(&mut self, shape: &[u64]) -> u64 {
        if let Some(number) = self.numbers.get(shape) {
            return *number;
        }
        let number = self.list.len() as u64;
        self.list.push(shape.to_vec());
        self.numbers.insert(shape.to_vec(), number);
        self.memory = self.memory.saturating_add(shape_memory_bytes(shape.len()));
        number
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        write_column(self.list.iter().map(|shape| shape.len() as u64), bytes);
        write_column(self.list.iter().flatten().copied(), bytes);
    }
}

fn read_shapes(
    reader: &mut ColumnReader<'_>,
    count: u64,
    limits: &Limits,
    budget: &mut DecodeBudget,
) -> Result<Vec<Vec<u64>>> {
    let capacity = budget.charge(count, shape_memory_bytes(0))?;
    let mut ranks = reader.column(count, SHAPES)?;
    let mut shapes = Vec::with_capacity(capacity);
    let mut lengths_count = 0;
    for _ in 0..count {
        let rank = ranks.next()?;
        check_limit("axes", rank, limits.rank_max as u64)?;
        shapes.push(vec![0; budget.charge(rank, 8)?]);
        lengths_count += rank;
    }
    ranks.finish()?;
    let mut lengths = reader.column(lengths_count, SHAPES)?;
    for length in shapes.iter_mut().flatten() {
        *length = lengths.next()?;
    }
    lengths.finish()?;
    Ok(shapes)
}

fn read_arrays(
    reader: &mut ColumnReader<'_>,
    version: u64,
    count: u64,
    shapes: &[Vec<u64>],
    budget: &mut DecodeBudget,
) -> Result<Vec<SectionArray>> {
    let capacity = budget.charge(count, SectionArray::memory_bytes(0))?;
    let keys = reader.pieces::<16>(count, ARRAYS)?;
    let mut item_sizes = reader.column(count, ARRAYS)?;
    let mut of_shapes = reader.column(count, ARRAYS)?;
    let has_bases = version >= VERSION_OF_BASES;
    let mut of_bases = has_bases.then(|| reader.column(count, ARRAYS)).transpose()?;
    let mut arrays = Vec::with_capacity(capacity);
    for key in keys {
        let shape = of_shapes.next_of(shapes)?;
        let base = of_bases.as_mut().map_or(Ok(shape), |column| column.next_of(shapes))?;
        budget.charge(shape.len().saturating_add(base.len()) as u64, 8)?;
        let item_size = item_sizes.next_u32()?;
        arrays.push(SectionArray {
            key: *key,
            item_size,
            shape: shape.clone(),
            base: base.clone(),
        });
    }
    item_sizes.finish()?;
    of_shapes.finish()?;
    of_bases.map_or(Ok(()), Column::finish)?;
    Ok(arrays)
}

fn read_selections(
    reader: &mut ColumnReader<'_>,
    count: u64,
    shapes: &[Vec<u64>],
    limits: &Limits,
    budget: &mut DecodeBudget,
) -> Result<Vec<Boxes>> {
    let each = Boxes::memory_bytes(0, 0) + Summary::memory_bytes(0);
    let capacity = budget.charge(count, each)?;
    let mut numbers = reader.column(count, SELECTIONS)?;
    let mut counts = reader.column(count, SELECTIONS)?;
    let mut selections = Vec::with_capacity(capacity);
    let mut boxes_count = 0_u64;
    for _ in 0..count {
        let (shape, count) = (numbers.next_of(shapes)?, counts.next()?);
        boxes_count = boxes_count.saturating_add(count);
        check_limit("boxes", boxes_count, limits.section_boxes_max)?;
        // Charges the starts and lengths of each box, and the bounds of all.
        budget.charge(count.saturating_mul(2).saturating_add(2), 8 * shape.len() as u64)?;
        selections.push(Boxes::read(reader, shape, count)?);
    }
    numbers.finish()?;
    counts.finish()?;
    Ok(selections)
}

fn read_entries(reader: &mut ColumnReader<'_>, count: u64) -> Result<Vec<Entry>> {
    let mut column = || reader.column(count, ENTRIES);
    let (mut array, mut record, mut selection) = (column()?, column()?, column()?);
    let (mut epoch, mut rank) = (column()?, column()?);
    let mut entries = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        entries.push(Entry {
            array: array.next_u32()?,
            record: record.next()?.checked_sub(1),
            selection: selection.next_u32()?,
            epoch: epoch.next_u32()?,
            rank: rank.next_u32()?,
        });
    }
    for column in [array, record, selection, epoch, rank] {
        column.finish()?;
    }
    Ok(entries)
}

fn read_blocks(reader: &mut ColumnReader<'_>, count: u64) -> Result<Vec<Block>> {
    let mut distances = reader.column(count, BLOCKS)?;
    let mut stored = reader.column(count, BLOCKS)?;
    let mut decoded = reader.column(count, BLOCKS)?;
    let mut codecs = reader.column(count, BLOCKS)?;
    let checksums = reader.pieces::<4>(count, BLOCKS)?;
    let mut blocks = Vec::with_capacity(checksums.len());
    let mut end = 0_u64;
    for checksum in checksums {
        let (offset, stored_bytes) = (end.wrapping_add(distances.next()?), stored.next()?);
        // The check of the block detects an overflow.
        end = offset.wrapping_add(stored_bytes);
        let codec = codecs.next()?;
        blocks.push(Block {
            offset,
            stored_bytes,
            bytes: decoded.next()?,
            checksum: u32::from_le_bytes(*checksum),
            codec: u8::try_from(codec).map_err(|_| invalid(BLOCKS, format!("codec {codec}")))?,
        });
    }
    for column in [distances, stored, decoded, codecs] {
        column.finish()?;
    }
    Ok(blocks)
}
