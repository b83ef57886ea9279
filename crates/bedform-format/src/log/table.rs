//! Tables: an index, by array, of the parts of arrays that many commits touch.
//!
//! A root names a few tables instead of many commits, so that a root stays small. A table is a file
//! of blocks, followed by an index that gives the content of each block. Numbers are varints; each
//! column is preceded by its length in bytes ([`varint`](super::varint)).
//!
//! ```text
//! index
//!   version 1
//!   counts: commits, segments, ends, blocks
//!   commits   column of numbers
//!   segments  column of lengths; the names; column: last commit that needs it
//!   ends      columns: segment, address at which its last record of a lane ends
//!   blocks    16 bytes each: first key; 16 bytes each: last key
//!             columns: kind (0 rows, 1 growths), items, first commit, last commit, bytes, CRC-32C
//!             column: rank + 1 of the box around all rows, 0 without one; for each axis columns: start, length
//! block of rows
//!   counts: arrays, rows
//!   arrays    16 bytes each: key; columns: rank, rows
//!   rows      columns: commit, order, segment, offset, stored bytes; for each axis columns: start, length
//! block of growths
//!   counts: arrays, growths
//!   arrays    16 bytes each: key; columns: rank, growths
//!   growths   column: commit; columns of all lengths before and after
//! ```
//!
//! Rows are sorted by key, then commit, then the order of their sections within the commit. A block
//! has at most [`BLOCK_ITEMS_MAX`] rows, so that a reader of one array reads few rows of others.

use std::collections::BTreeSet;

use super::directory::{boxes_meet, read_names};
use super::varint::{ColumnReader, write_column, write_varint};
use super::{
    CommitRecord, DecodeBudget, Directory, GrownArray, LANE_BYTES, Result, TouchedArray,
    check_limit, check_place, check_segment_name, check_version, invalid, list_bytes, size_of,
};
use crate::Limits;
use crate::checksum::crc32c;
use crate::shard::Extent;

const VERSION: u64 = 1;
const WHAT: &str = "a table";
const BLOCK: &str = "a block of a table";

/// The largest number of rows, or growths, in a block.
pub const BLOCK_ITEMS_MAX: usize = 256;
/// An array with at least this many rows shares no block, so that the block's bounding box
/// describes it.
const ALONE: usize = 32;

/// The parts of arrays that a range of commits touches, ready to encode or just decoded.
///
/// ```
/// use bedform_format::{Limits, log::{BlockKind, Table, TableIndex, TableRow, TableSegment}};
/// let (key, start, end) = ([1; 16], vec![0, 4], vec![2, 8]);
/// let row = TableRow { key, commit: 7, order: 0, segment: 0, offset: 4096, stored_bytes: 50, start, end };
/// let segment = TableSegment { name: "a-0".into(), last: 7, ends: vec![4146] };
/// let table = Table { commits: vec![7], segments: vec![segment], rows: vec![row], growths: vec![] };
/// let limits = Limits::default();
/// let (bytes, index_bytes) = table.encode(&limits)?;
/// let index = TableIndex::decode(&bytes[bytes.len() - index_bytes..], &limits)?;
/// let block = index.blocks_of(BlockKind::Rows, &key).next().expect("there is one");
/// let stored = &bytes[block.offset as usize..][..block.bytes as usize];
/// assert_eq!(block.rows(stored, &index, &limits)?, table.rows);
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The numbers of the commits, ascending.
    pub commits: Vec<u64>,
    /// The segments that hold the data of the commits.
    pub segments: Vec<TableSegment>,
    /// The parts of arrays that the commits touch, sorted by key, commit and order.
    pub rows: Vec<TableRow>,
    /// The arrays that the commits make larger, sorted by key and commit.
    pub growths: Vec<TableGrowth>,
}

/// A segment that holds data of a table's commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSegment {
    /// The name of the segment.
    pub name: String,
    /// The last commit of the table with data in the segment.
    pub last: u64,
    /// For each lane, the address at which the last record of the table's commits ends.
    pub ends: Vec<u64>,
}

/// The bounding box of one section's writes to one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRow {
    /// Identity of the array.
    pub key: [u8; 16],
    /// Number of the commit.
    pub commit: u64,
    /// Index of the section, in the order in which the sections of the commit apply.
    pub order: u32,
    /// Index of the segment in the table.
    pub segment: u32,
    /// Address of the section's record in the segment.
    pub offset: u64,
    /// Bytes of that record.
    pub stored_bytes: u64,
    /// Start of the box around the writes.
    pub start: Vec<u64>,
    /// End of that box, exclusive.
    pub end: Vec<u64>,
}

/// An array that a commit makes larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableGrowth {
    /// Number of the commit.
    pub commit: u64,
    /// The array, with its shapes before and after the commit.
    pub grown: GrownArray,
}

/// The kind of the items in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// Of [`TableRow`]s.
    Rows,
    /// Of [`TableGrowth`]s.
    Growths,
}

/// The entry of the index for one block: its extent, and bounds on its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableBlock {
    /// The kind of its items.
    pub kind: BlockKind,
    /// Keys of its first and its last array.
    pub keys: ([u8; 16], [u8; 16]),
    /// The number of its rows or growths.
    pub items: u64,
    /// Numbers of its first and its last commit.
    pub commits: (u64, u64),
    /// Start and end of the box around all rows, if all belong to one array.
    pub bounds: Option<(Vec<u64>, Vec<u64>)>,
    /// Offset of the block in the file, in bytes.
    pub offset: u64,
    /// Length of the block in bytes.
    pub bytes: u64,
    /// CRC-32C of these bytes.
    pub checksum: u32,
}

/// The decoded index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableIndex {
    /// The numbers of the commits, ascending.
    pub commits: Vec<u64>,
    /// The segments that hold the data of the commits.
    pub segments: Vec<TableSegment>,
    /// The blocks, sorted by kind and key, and by commit within a key.
    pub blocks: Vec<TableBlock>,
}

impl TableRow {
    fn memory_bytes() -> u64 {
        size_of::<Self>() + 2 * list_bytes(0)
    }

    fn touched(&self) -> TouchedArray {
        let (start, end) = (self.start.clone(), self.end.clone());
        TouchedArray { key: self.key, start, end, entries: 0, bytes: 0 }
    }

    fn place(&self) -> ([u8; 16], u64, u32) {
        (self.key, self.commit, self.order)
    }
}

impl TableSegment {
    /// Records that the segment has a record of commit `commit` that ends at address `end`.
    fn note(&mut self, commit: u64, end: u64) {
        self.last = self.last.max(commit);
        match self.ends.iter_mut().find(|known| lane_of(**known) == lane_of(end)) {
            Some(known) => *known = end.max(*known),
            None => self.ends.push(end),
        }
    }
}

/// Returns the number of the lane with the record that ends at address `end`.
fn lane_of(end: u64) -> u64 {
    end.saturating_sub(1) / LANE_BYTES
}

impl Table {
    /// Adds a commit that is later than all present ones; `record` locates its `directory`.
    pub fn add(&mut self, record: &CommitRecord, directory: &Directory) {
        let own = self.segment(&record.segment);
        let end = record.offset.saturating_add(record.stored_bytes);
        self.segments[own as usize].note(record.number, end);
        self.commits.push(record.number);
        for (order, section) in (0..).zip(&directory.sections) {
            let Some(name) = directory.segments.get(section.segment as usize) else { continue };
            let segment = self.segment(name);
            let end = section.offset.saturating_add(section.stored_bytes);
            self.segments[segment as usize].note(record.number, end);
            self.rows.extend(section.arrays.iter().map(|touched| TableRow {
                key: touched.key,
                commit: record.number,
                order,
                segment,
                offset: section.offset,
                stored_bytes: section.stored_bytes,
                start: touched.start.clone(),
                end: touched.end.clone(),
            }));
        }
        let grown = directory.grown.iter().cloned();
        self.growths.extend(grown.map(|grown| TableGrowth { commit: record.number, grown }));
    }

    /// Returns the index of the segment with this name, and adds it if it is new.
    fn segment(&mut self, name: &str) -> u32 {
        let known = self.segments.iter().position(|segment| segment.name == name);
        let number = known.unwrap_or_else(|| {
            self.segments.push(TableSegment { name: name.to_owned(), last: 0, ends: Vec::new() });
            self.segments.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Appends a table of later commits.
    pub fn extend(&mut self, later: Self) {
        self.commits.extend(later.commits);
        let mut numbers = Vec::with_capacity(later.segments.len());
        for TableSegment { name, last, ends } in later.segments {
            let number = self.segment(&name);
            ends.into_iter().for_each(|end| self.segments[number as usize].note(last, end));
            numbers.push(number);
        }
        self.rows.extend(later.rows.into_iter().map(|row| {
            let segment = numbers.get(row.segment as usize).copied().unwrap_or(u32::MAX);
            TableRow { segment, ..row }
        }));
        self.growths.extend(later.growths);
    }

    /// Removes the commits up to and including `settled`.
    pub fn drop_settled(&mut self, settled: u64) {
        self.commits.retain(|commit| *commit > settled);
        self.rows.retain(|row| row.commit > settled);
        self.growths.retain(|growth| growth.commit > settled);
        let is_needed = |segment: &TableSegment| segment.last > settled;
        let mut numbers = vec![0; self.segments.len()];
        let mut next = 0;
        for (number, segment) in numbers.iter_mut().zip(&self.segments) {
            *number = next;
            next += u32::from(is_needed(segment));
        }
        self.segments.retain(is_needed);
        for row in &mut self.rows {
            row.segment = numbers.get(row.segment as usize).copied().unwrap_or(u32::MAX);
        }
    }

    /// Sorts rows and growths into the order of the format.
    pub fn sort(&mut self) {
        self.rows.sort_by_key(TableRow::place);
        self.growths.sort_by_key(|growth| (growth.grown.key, growth.commit));
    }

    /// Encodes the table; the second value is the length in bytes of the index at its end.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the table is invalid or over the limits.
    pub fn encode(&self, limits: &Limits) -> Result<(Vec<u8>, usize)> {
        let mut bytes = Vec::new();
        let mut blocks = Vec::new();
        check_limit("rows", self.rows.len() as u64, limits.section_entries_max)?;
        for rows in cut(&self.rows, |row| row.key) {
            rows.iter().try_for_each(|row| check_row(row, self.segments.len(), limits))?;
            blocks.push(append(&mut bytes, BlockKind::Rows, rows, &encode_rows(rows)));
        }
        for growths in cut(&self.growths, |growth| growth.grown.key) {
            growths.iter().try_for_each(|growth| growth.grown.check(limits))?;
            blocks.push(append(&mut bytes, BlockKind::Growths, growths, &encode_growths(growths)));
        }
        let index =
            TableIndex { commits: self.commits.clone(), segments: self.segments.clone(), blocks };
        let index = index.encode(limits)?;
        bytes.extend_from_slice(&index);
        check_limit("bytes in a table", bytes.len() as u64, limits.index_bytes_max)?;
        Ok((bytes, index.len()))
    }
}

/// A row or growth, as the blocks store them.
trait Item {
    fn key(&self) -> [u8; 16];
    fn rank(&self) -> usize;
    fn commit(&self) -> u64;
    fn bounds(items: &[Self]) -> Option<(Vec<u64>, Vec<u64>)>
    where
        Self: Sized;
}

impl Item for TableRow {
    fn key(&self) -> [u8; 16] {
        self.key
    }

    fn rank(&self) -> usize {
        self.start.len()
    }

    fn commit(&self) -> u64 {
        self.commit
    }

    fn bounds(rows: &[Self]) -> Option<(Vec<u64>, Vec<u64>)> {
        let (first, rest) = rows.split_first()?;
        let (mut start, mut end) = (first.start.clone(), first.end.clone());
        for row in rest {
            if row.key != first.key || row.start.len() != start.len() {
                return None;
            }
            start.iter_mut().zip(&row.start).for_each(|(low, at)| *low = (*low).min(*at));
            end.iter_mut().zip(&row.end).for_each(|(high, at)| *high = (*high).max(*at));
        }
        Some((start, end))
    }
}

impl Item for TableGrowth {
    fn key(&self) -> [u8; 16] {
        self.grown.key
    }

    fn rank(&self) -> usize {
        self.grown.shape.len()
    }

    fn commit(&self) -> u64 {
        self.commit
    }

    fn bounds(_: &[Self]) -> Option<(Vec<u64>, Vec<u64>)> {
        None
    }
}

/// Cuts items, sorted by key, into blocks.
fn cut<T>(items: &[T], key: impl Fn(&T) -> [u8; 16]) -> Vec<&[T]> {
    let mut ends = Vec::new();
    let mut begin = 0;
    let mut at = 0;
    for run in items.chunk_by(|one, next| key(one) == key(next)) {
        let is_alone = run.len() >= ALONE;
        let is_full = at - begin + run.len() > BLOCK_ITEMS_MAX;
        if at > begin && (is_alone || is_full) {
            ends.push(at);
            begin = at;
        }
        let end = at + run.len();
        while end - begin > BLOCK_ITEMS_MAX {
            begin += BLOCK_ITEMS_MAX;
            ends.push(begin);
        }
        at = end;
        if is_alone && at > begin {
            ends.push(at);
            begin = at;
        }
    }
    if at > begin {
        ends.push(at);
    }
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, end)| &items[start..*end]).collect()
}

/// Appends `block`, the encoding of `items`, and returns its entry of the index.
fn append<T: Item>(bytes: &mut Vec<u8>, kind: BlockKind, items: &[T], block: &[u8]) -> TableBlock {
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(block);
    let commits = || items.iter().map(Item::commit);
    let key = |item: Option<&T>| item.map_or([0; 16], Item::key);
    TableBlock {
        kind,
        keys: (key(items.first()), key(items.last())),
        items: items.len() as u64,
        commits: (commits().min().unwrap_or(0), commits().max().unwrap_or(0)),
        bounds: T::bounds(items),
        offset,
        bytes: block.len() as u64,
        checksum: crc32c(block),
    }
}

/// Writes the arrays of the items and the number of items of each.
fn write_arrays<T: Item>(items: &[T], bytes: &mut Vec<u8>) {
    let arrays: Vec<&[T]> =
        items.chunk_by(|one, next| (one.key(), one.rank()) == (next.key(), next.rank())).collect();
    write_varint(arrays.len() as u64, bytes);
    write_varint(items.len() as u64, bytes);
    arrays.iter().for_each(|array| bytes.extend_from_slice(&array[0].key()));
    write_column(arrays.iter().map(|array| array[0].rank() as u64), bytes);
    write_column(arrays.iter().map(|array| array.len() as u64), bytes);
}

fn encode_rows(rows: &[TableRow]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_arrays(rows, &mut bytes);
    let columns: [&dyn Fn(&TableRow) -> u64; 5] = [
        &|row| row.commit,
        &|row| u64::from(row.order),
        &|row| u64::from(row.segment),
        &|row| row.offset,
        &|row| row.stored_bytes,
    ];
    columns.iter().for_each(|column| write_column(rows.iter().map(column), &mut bytes));
    write_boxes(rows.iter().map(|row| (row.start.as_slice(), row.end.as_slice())), &mut bytes);
    bytes
}

fn encode_growths(growths: &[TableGrowth]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_arrays(growths, &mut bytes);
    write_column(growths.iter().map(|growth| growth.commit), &mut bytes);
    let lengths = |of: fn(&GrownArray) -> &Vec<u64>| {
        growths.iter().flat_map(move |growth| of(&growth.grown).iter().copied())
    };
    write_column(lengths(|grown| &grown.base), &mut bytes);
    write_column(lengths(|grown| &grown.shape), &mut bytes);
    bytes
}

/// Writes two columns for each axis, starts and lengths, of the boxes that have the axis.
fn write_boxes<'a>(
    boxes: impl Iterator<Item = (&'a [u64], &'a [u64])> + Clone,
    bytes: &mut Vec<u8>,
) {
    let rank = boxes.clone().map(|(start, _)| start.len()).max().unwrap_or(0);
    for axis in 0..rank {
        let sides =
            boxes.clone().filter_map(|(start, end)| Some((start.get(axis)?, end.get(axis)?)));
        write_column(sides.clone().map(|(start, _)| *start), bytes);
        write_column(sides.map(|(start, end)| end - start), bytes);
    }
}

/// Reads the columns of [`write_boxes`] into boxes whose ranks are set.
fn read_boxes<'a>(
    reader: &mut ColumnReader<'_>,
    boxes: &mut [(&'a mut Vec<u64>, &'a mut Vec<u64>)],
) -> Result<()> {
    let rank = boxes.iter().map(|(start, _)| start.len()).max().unwrap_or(0);
    for axis in 0..rank {
        let count = boxes.iter().filter(|(start, _)| start.len() > axis).count() as u64;
        let (mut starts, mut lengths) =
            (reader.column(count, BLOCK)?, reader.column(count, BLOCK)?);
        for (start, end) in boxes.iter_mut() {
            if let (Some(start), Some(end)) = (start.get_mut(axis), end.get_mut(axis)) {
                *start = starts.next()?;
                let behind = start.checked_add(lengths.next()?);
                *end = behind.ok_or_else(|| invalid(BLOCK, "an end of more than 64 bits"))?;
            }
        }
        starts.finish()?;
        lengths.finish()?;
    }
    Ok(())
}

fn check_row(row: &TableRow, segments: usize, limits: &Limits) -> Result<()> {
    if row.segment as usize >= segments {
        return Err(invalid(BLOCK, format!("a row in segment {} of {segments}", row.segment)));
    }
    check_place(BLOCK, Extent { offset: row.offset, length: row.stored_bytes })?;
    check_limit("stored bytes in a section", row.stored_bytes, limits.index_bytes_max)?;
    row.touched().check(limits)
}

impl TableBlock {
    /// Decodes the rows of a block that is stored as `bytes`.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the bytes are damaged, over the limits, or contradict the
    /// index.
    pub fn rows(&self, bytes: &[u8], index: &TableIndex, limits: &Limits) -> Result<Vec<TableRow>> {
        let mut reader = self.open(bytes)?;
        let mut budget = DecodeBudget::new(bytes.len());
        let mut rows = self.items(
            &mut reader,
            (limits, &mut budget),
            TableRow::memory_bytes(),
            |key, rank| {
                let (start, end) = (vec![0; rank], vec![0; rank]);
                let (commit, order, segment, offset, stored_bytes) = (0, 0, 0, 0, 0);
                TableRow { key, commit, order, segment, offset, stored_bytes, start, end }
            },
        )?;
        fill(&mut reader, &mut rows, |row, value| row.commit = value)?;
        fill_u32(&mut reader, &mut rows, |row, value| row.order = value)?;
        fill_u32(&mut reader, &mut rows, |row, value| row.segment = value)?;
        fill(&mut reader, &mut rows, |row, value| row.offset = value)?;
        fill(&mut reader, &mut rows, |row, value| row.stored_bytes = value)?;
        let mut boxes: Vec<_> = rows.iter_mut().map(|row| (&mut row.start, &mut row.end)).collect();
        read_boxes(&mut reader, &mut boxes)?;
        reader.finish(BLOCK)?;
        rows.iter().try_for_each(|row| check_row(row, index.segments.len(), limits))?;
        self.check(&rows, TableRow::place)?;
        Ok(rows)
    }

    /// Decodes the growths of a block that is stored as `bytes`.
    ///
    /// # Errors
    /// As [`TableBlock::rows`].
    pub fn growths(&self, bytes: &[u8], limits: &Limits) -> Result<Vec<TableGrowth>> {
        let mut reader = self.open(bytes)?;
        let mut budget = DecodeBudget::new(bytes.len());
        let memory = size_of::<TableGrowth>() + 2 * list_bytes(0);
        let mut growths =
            self.items(&mut reader, (limits, &mut budget), memory, |key, rank| TableGrowth {
                commit: 0,
                grown: GrownArray { key, base: vec![0; rank], shape: vec![0; rank] },
            })?;
        fill(&mut reader, &mut growths, |growth, value| growth.commit = value)?;
        let count = growths.iter().map(|growth| growth.grown.base.len() as u64).sum();
        let shapes: [fn(&mut GrownArray) -> &mut Vec<u64>; 2] =
            [|array| &mut array.base, |array| &mut array.shape];
        for shape in shapes {
            let mut lengths = reader.column(count, BLOCK)?;
            for length in growths.iter_mut().flat_map(|growth| shape(&mut growth.grown)) {
                *length = lengths.next()?;
            }
            lengths.finish()?;
        }
        reader.finish(BLOCK)?;
        growths.iter().try_for_each(|growth| growth.grown.check(limits))?;
        self.check(&growths, |growth| (growth.grown.key, growth.commit, 0))?;
        Ok(growths)
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<ColumnReader<'a>> {
        let (found, expected) = (crc32c(bytes), self.checksum);
        if found != expected || bytes.len() as u64 != self.bytes {
            return Err(super::LogError::Checksum { what: BLOCK, expected, found });
        }
        Ok(ColumnReader::new(bytes))
    }

    /// Reads the arrays of a block, and makes its items with `new` from their key and rank.
    fn items<T>(
        &self,
        reader: &mut ColumnReader<'_>,
        (limits, budget): (&Limits, &mut DecodeBudget),
        memory_bytes: u64,
        new: impl Fn([u8; 16], usize) -> T,
    ) -> Result<Vec<T>> {
        let (arrays, count) = (reader.number(BLOCK)?, reader.number(BLOCK)?);
        check_limit("items in a block", arrays.max(count), BLOCK_ITEMS_MAX as u64)?;
        if count != self.items {
            return Err(invalid(BLOCK, format!("{count} items, not {}", self.items)));
        }
        let keys = reader.pieces::<16>(arrays, BLOCK)?;
        let (mut ranks, mut counts) =
            (reader.column(arrays, BLOCK)?, reader.column(arrays, BLOCK)?);
        let mut items = Vec::with_capacity(budget.charge(count, memory_bytes)?);
        for key in keys {
            let (rank, own) = (ranks.next()?, counts.next()?);
            check_limit("axes", rank, limits.rank_max as u64)?;
            check_limit("items of an array", own, count - items.len() as u64)?;
            let rank = budget.charge(rank.saturating_mul(own), 16).map(|_| rank)?;
            let rank =
                usize::try_from(rank).map_err(|_| invalid(BLOCK, "a rank of many digits"))?;
            items.extend((0..own).map(|_| new(*key, rank)));
        }
        ranks.finish()?;
        counts.finish()?;
        if items.len() as u64 != count {
            return Err(super::LogError::CutShort { what: BLOCK });
        }
        Ok(items)
    }

    /// Checks that the items are sorted and agree with the index.
    fn check<T: Item>(
        &self,
        items: &[T],
        place: impl Fn(&T) -> ([u8; 16], u64, u32),
    ) -> Result<()> {
        let is_ordered = items.is_sorted_by(|one, next| place(one) <= place(next));
        let keys = (items.first().map(Item::key), items.last().map(Item::key));
        let commits = || items.iter().map(Item::commit);
        let is_said = keys == (Some(self.keys.0), Some(self.keys.1))
            && (commits().min(), commits().max()) == (Some(self.commits.0), Some(self.commits.1))
            && T::bounds(items) == self.bounds;
        if is_ordered && is_said { Ok(()) } else { Err(invalid(BLOCK, "not what its index says")) }
    }

    /// Returns true if the block may have items of the array `key`.
    pub fn may_have(&self, key: &[u8; 16]) -> bool {
        (self.keys.0..=self.keys.1).contains(key)
    }

    /// Returns true if the block's rows may intersect the box from `start` to `end`.
    pub fn intersects(&self, start: &[u64], end: &[u64]) -> bool {
        let own = self.bounds.as_ref();
        own.is_none_or(|(low, high)| boxes_meet((low, high), (start, end)))
    }
}

/// Sets a field of each item from the next column.
fn fill<T>(
    reader: &mut ColumnReader<'_>,
    items: &mut [T],
    set: impl Fn(&mut T, u64),
) -> Result<()> {
    let mut column = reader.column(items.len() as u64, BLOCK)?;
    for item in items {
        set(item, column.next()?);
    }
    column.finish()
}

/// Sets a field of each item from the next column, whose numbers fit 32 bits.
fn fill_u32<T>(
    reader: &mut ColumnReader<'_>,
    items: &mut [T],
    set: impl Fn(&mut T, u32),
) -> Result<()> {
    let mut column = reader.column(items.len() as u64, BLOCK)?;
    for item in items {
        set(item, column.next_u32()?);
    }
    column.finish()
}

impl TableIndex {
    /// Returns the blocks of a kind that may have items of the array `key`, in order.
    pub fn blocks_of(
        &self,
        kind: BlockKind,
        key: &[u8; 16],
    ) -> impl DoubleEndedIterator<Item = &TableBlock> {
        let first = self.blocks.partition_point(|block| (block.kind, &block.keys.1) < (kind, key));
        let behind =
            self.blocks.partition_point(|block| (block.kind, &block.keys.0) <= (kind, key));
        self.blocks[first..behind.max(first)].iter()
    }

    /// Approximate memory of the index, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let segments = self.segments.iter().map(|segment| {
            size_of::<TableSegment>() + segment.name.len() as u64 + list_bytes(segment.ends.len())
        });
        let axes = |block: &TableBlock| block.bounds.as_ref().map_or(0, |(start, _)| start.len());
        let blocks =
            self.blocks.iter().map(|block| size_of::<TableBlock>() + 2 * list_bytes(axes(block)));
        list_bytes(self.commits.len()) + segments.sum::<u64>() + blocks.sum::<u64>() + 256
    }

    fn check(&self, limits: &Limits) -> Result<()> {
        if self.commits.is_empty() || !self.commits.is_sorted_by(|one, next| one < next) {
            return Err(invalid(WHAT, "its commits do not ascend"));
        }
        let mut names = BTreeSet::new();
        for segment in &self.segments {
            check_segment_name(&segment.name)?;
            if !names.insert(&segment.name) {
                return Err(invalid(WHAT, format!("segment {} twice", segment.name)));
            }
        }
        let place = |block: &TableBlock| (block.kind, block.keys.0);
        let follows = |one: &TableBlock, next: &TableBlock| {
            place(one) <= place(next) && (one.kind != next.kind || one.keys.1 <= next.keys.0)
        };
        if !self.blocks.is_sorted_by(follows) {
            return Err(invalid(WHAT, "its blocks are not in the order of their keys"));
        }
        for block in &self.blocks {
            check_limit("items in a block", block.items, BLOCK_ITEMS_MAX as u64)?;
            check_limit("bytes in a block", block.bytes, limits.index_bytes_max)?;
            let is_counted = self.commits.binary_search(&block.commits.0).is_ok()
                && self.commits.binary_search(&block.commits.1).is_ok();
            let is_box = block.bounds.as_ref().is_none_or(|(start, end)| {
                start.len() <= limits.rank_max
                    && start.iter().zip(end).all(|(start, end)| start < end)
            });
            if block.items == 0 || !is_counted || !is_box || block.keys.0 > block.keys.1 {
                return Err(invalid(WHAT, "a block that cannot be"));
            }
        }
        Ok(())
    }

    /// Encodes the index; the module header has the layout.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the index is invalid.
    fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let Self { commits, segments, blocks } = self;
        let mut bytes = Vec::new();
        write_varint(VERSION, &mut bytes);
        let ends = segments.iter().map(|segment| segment.ends.len()).sum();
        for count in [commits.len(), segments.len(), ends, blocks.len()] {
            write_varint(count as u64, &mut bytes);
        }
        write_column(commits.iter().copied(), &mut bytes);
        write_column(segments.iter().map(|segment| segment.name.len() as u64), &mut bytes);
        segments.iter().for_each(|segment| bytes.extend_from_slice(segment.name.as_bytes()));
        write_column(segments.iter().map(|segment| segment.last), &mut bytes);
        let numbered = || (0_u64..).zip(segments);
        let of_end =
            numbered().flat_map(|(number, segment)| segment.ends.iter().map(move |_| number));
        write_column(of_end, &mut bytes);
        write_column(segments.iter().flat_map(|segment| segment.ends.iter().copied()), &mut bytes);
        blocks.iter().for_each(|block| bytes.extend_from_slice(&block.keys.0));
        blocks.iter().for_each(|block| bytes.extend_from_slice(&block.keys.1));
        let rank = |block: &TableBlock| {
            block.bounds.as_ref().map_or(0, |(start, _)| 1 + start.len() as u64)
        };
        let columns: [&dyn Fn(&TableBlock) -> u64; 7] = [
            &|block| u64::from(block.kind == BlockKind::Growths),
            &|block| block.items,
            &|block| block.commits.0,
            &|block| block.commits.1,
            &|block| block.bytes,
            &|block| u64::from(block.checksum),
            &rank,
        ];
        columns.iter().for_each(|column| write_column(blocks.iter().map(column), &mut bytes));
        let bounds = blocks.iter().filter_map(|block| block.bounds.as_ref());
        write_boxes(bounds.map(|(start, end)| (start.as_slice(), end.as_slice())), &mut bytes);
        check_limit("bytes in the index of a table", bytes.len() as u64, limits.index_bytes_max)?;
        Ok(bytes)
    }

    /// Decodes an index; the caller has verified the checksum of `bytes`.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the bytes are damaged, of a newer version, over the limits,
    /// or invalid.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut reader = ColumnReader::new(bytes);
        check_version(WHAT, reader.number(WHAT)?, VERSION)?;
        check_limit("bytes in the index of a table", bytes.len() as u64, limits.index_bytes_max)?;
        let mut budget = DecodeBudget::new(bytes.len());
        let mut counts = [0; 4];
        for count in &mut counts {
            *count = reader.number(WHAT)?;
        }
        let [commits, segments, ends, blocks] = counts;
        let mut numbers = Vec::with_capacity(budget.charge(commits, 8)?);
        let mut column = reader.column(commits, WHAT)?;
        for _ in 0..commits {
            numbers.push(column.next()?);
        }
        column.finish()?;
        let segments = read_segments(&mut reader, segments, ends, &mut budget)?;
        let blocks = read_blocks(&mut reader, blocks, limits, &mut budget)?;
        reader.finish(WHAT)?;
        let index = Self { commits: numbers, segments, blocks };
        index.check(limits)?;
        Ok(index)
    }

    /// The length of all blocks in bytes; the index follows them.
    pub fn blocks_bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |all, block| all.saturating_add(block.bytes))
    }

    /// Returns the segments with data of commits after `settled`.
    pub fn segments_after(&self, settled: u64) -> impl Iterator<Item = &TableSegment> {
        self.segments.iter().filter(move |segment| segment.last > settled)
    }
}

fn read_segments(
    reader: &mut ColumnReader<'_>,
    count: u64,
    ends: u64,
    budget: &mut DecodeBudget,
) -> Result<Vec<TableSegment>> {
    let names = read_names(reader, count, budget)?;
    let mut last = reader.column(count, WHAT)?;
    budget.charge(count, size_of::<TableSegment>() + list_bytes(0))?;
    let mut segments = Vec::with_capacity(names.len());
    for name in names {
        segments.push(TableSegment { name, last: last.next()?, ends: Vec::new() });
    }
    last.finish()?;
    let (mut of, mut addresses) = (reader.column(ends, WHAT)?, reader.column(ends, WHAT)?);
    budget.charge(ends, 8)?;
    let mut before = 0;
    for _ in 0..ends {
        let number = usize::try_from(of.next()?).unwrap_or(usize::MAX);
        let segment = segments.get_mut(number).filter(|_| number >= before);
        let segment =
            segment.ok_or_else(|| invalid(WHAT, format!("an end in segment {number}")))?;
        segment.ends.push(addresses.next()?);
        before = number;
    }
    of.finish()?;
    addresses.finish()?;
    Ok(segments)
}

fn read_blocks(
    reader: &mut ColumnReader<'_>,
    count: u64,
    limits: &Limits,
    budget: &mut DecodeBudget,
) -> Result<Vec<TableBlock>> {
    let capacity = budget.charge(count, size_of::<TableBlock>())?;
    let (first, last) = (reader.pieces::<16>(count, WHAT)?, reader.pieces::<16>(count, WHAT)?);
    let mut blocks = Vec::with_capacity(capacity);
    for keys in first.iter().zip(last) {
        blocks.push(TableBlock {
            kind: BlockKind::Rows,
            keys: (*keys.0, *keys.1),
            items: 0,
            commits: (0, 0),
            bounds: None,
            offset: 0,
            bytes: 0,
            checksum: 0,
        });
    }
    let mut kinds = reader.column(count, WHAT)?;
    for block in &mut blocks {
        block.kind = *kinds.next_of(&[BlockKind::Rows, BlockKind::Growths])?;
    }
    kinds.finish()?;
    fill(reader, &mut blocks, |block, value| block.items = value)?;
    fill(reader, &mut blocks, |block, value| block.commits.0 = value)?;
    fill(reader, &mut blocks, |block, value| block.commits.1 = value)?;
    fill(reader, &mut blocks, |block, value| block.bytes = value)?;
    fill_u32(reader, &mut blocks, |block, value| block.checksum = value)?;
    let mut ranks = reader.column(count, WHAT)?;
    for block in &mut blocks {
        if let Some(rank) = ranks.next()?.checked_sub(1) {
            check_limit("axes", rank, limits.rank_max as u64)?;
            let rank = budget.charge(rank, 2 * list_bytes(1))?;
            block.bounds = Some((vec![0; rank], vec![0; rank]));
        }
    }
    ranks.finish()?;
    let with_bounds = blocks.iter_mut().filter_map(|block| block.bounds.as_mut());
    read_boxes(reader, &mut with_bounds.map(|(start, end)| (start, end)).collect::<Vec<_>>())?;
    let mut offset = 0_u64;
    for block in &mut blocks {
        block.offset = offset;
        offset =
            offset.checked_add(block.bytes).ok_or_else(|| invalid(WHAT, "blocks without end"))?;
    }
    Ok(blocks)
}
