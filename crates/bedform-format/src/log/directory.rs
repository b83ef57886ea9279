//! Directories: the sections of one commit, and the part of each array that each section touches.
//!
//! Numbers are varints; each column is preceded by its length in bytes ([`varint`](super::varint)).
//!
//! ```text
//! version 1
//! 16 bytes: session; epoch; 1 if the commit was promised before its root, else 0
//! counts: segments, sections, arrays, touched, grown
//! segments  column of lengths; the names
//! arrays    16 bytes each: key; column of ranks         each key once, whichever section has it
//! sections  columns: segment, offset, stored bytes, bytes, first rank, number of arrays touched
//! touched   columns: array, entries, bytes; for each axis two columns: start, length,
//!           of those that have the axis
//! grown     16 bytes each: key; column of ranks; columns of all lengths before and after
//! ```

use std::collections::HashMap;

use super::varint::{Column, ColumnReader, write_column, write_varint};
use super::{
    CommitId, DecodeBudget, LogError, Result, check_limit, check_place, check_segment_name,
    check_version, invalid, list_bytes, size_of,
};
use crate::Limits;
use crate::shard::Extent;

const VERSION: u64 = 1;
const WHAT: &str = "a directory";
const SECTION: &str = "a section of a directory";
const TOUCHED: &str = "the part of an array in a directory";
const GROWN: &str = "an array that a commit makes larger";

/// The content of a commit: its sections, and the arrays that it makes larger.
///
/// ```
/// use bedform_format::{Limits, log::{CommitId, Directory, SectionPlace, TouchedArray}};
/// let part = TouchedArray { key: [1; 16], start: vec![0, 4], end: vec![2, 8], entries: 2, bytes: 64 };
/// let place = SectionPlace {
///     segment: 0,
///     offset: 4096,
///     stored_bytes: 50,
///     bytes: 80,
///     rank_first: 0,
///     arrays: vec![part],
/// };
/// let directory = Directory {
///     commit: CommitId { session: [2; 16], epoch: 1 },
///     is_promised: false,
///     segments: vec!["a-0".into()],
///     sections: vec![place],
///     grown: Vec::new(),
/// };
/// let limits = Limits::default();
/// assert_eq!(Directory::decode(&directory.encode(&limits)?, &limits)?, directory);
/// assert_eq!(directory.sections_of(&[1; 16], &[1, 0], &[9, 5]).count(), 1);
/// assert_eq!(directory.sections_of(&[1; 16], &[1, 0], &[9, 4]).count(), 0);
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directory {
    /// Identity of the commit.
    pub commit: CommitId,
    /// True if the writers promised the commit before a root named it. A process that finds it
    /// later must then create that root.
    pub is_promised: bool,
    /// Names of the segments in which the sections lie.
    pub segments: Vec<String>,
    /// The sections.
    pub sections: Vec<SectionPlace>,
    /// The arrays that the commit makes larger.
    pub grown: Vec<GrownArray>,
}

/// An array that a commit makes larger. New elements that the commit does not write have the fill
/// value, even if shards of earlier commits hold other values there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownArray {
    /// Identity of the array.
    pub key: [u8; 16],
    /// The shape before the commit.
    pub base: Vec<u64>,
    /// The shape after it.
    pub shape: Vec<u64>,
}

/// The location of a section, and the parts of arrays that it touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionPlace {
    /// Index of the segment in the directory's list.
    pub segment: u32,
    /// Offset of the section in the segment, in bytes.
    pub offset: u64,
    /// Length in the segment, in bytes.
    pub stored_bytes: u64,
    /// Length when decompressed, in bytes.
    pub bytes: u64,
    /// The lowest rank with writes in the section.
    pub rank_first: u32,
    /// The parts of arrays that the section touches, one for each array.
    pub arrays: Vec<TouchedArray>,
}

/// The part of an array that a section touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchedArray {
    /// Identity of the array.
    pub key: [u8; 16],
    /// Start of the box around all writes.
    pub start: Vec<u64>,
    /// End of that box, exclusive.
    pub end: Vec<u64>,
    /// The number of writes.
    pub entries: u64,
    /// The bytes of all writes.
    pub bytes: u64,
}

impl TouchedArray {
    /// Memory of a part of rank 0 in bytes; each axis adds 16.
    const MEMORY_BYTES: u64 = 2 * 16 + size_of::<Self>();

    /// Returns true if the box intersects the box from `start` to `end`. Boxes of different rank
    /// always intersect: the caller then expects another array, and only reading the section shows
    /// that.
    pub fn intersects(&self, start: &[u64], end: &[u64]) -> bool {
        boxes_meet((&self.start, &self.end), (start, end))
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("axes", self.start.len() as u64, limits.rank_max as u64)?;
        let is_box = self.start.iter().zip(&self.end).all(|(start, end)| start < end);
        if !is_box || self.start.len() != self.end.len() {
            let problem = format!("from {:?} to {:?}", self.start, self.end);
            return Err(invalid(TOUCHED, problem));
        }
        Ok(())
    }
}

/// Returns true if two boxes, each given by start and exclusive end, intersect or differ in rank:
/// see [`TouchedArray::intersects`].
pub fn boxes_meet(own: (&[u64], &[u64]), other: (&[u64], &[u64])) -> bool {
    if own.0.len() != other.0.len() || own.1.len() != other.1.len() {
        return true;
    }
    let mut axes = own.0.iter().zip(own.1).zip(other.0.iter().zip(other.1));
    axes.all(|((own_start, own_end), (start, end))| own_start.max(start) < own_end.min(end))
}

impl SectionPlace {
    fn check(&self, segments: usize, limits: &Limits) -> Result<()> {
        if self.segment as usize >= segments {
            let problem = format!("in segment {} of {segments}", self.segment);
            return Err(invalid(SECTION, problem));
        }
        check_place(SECTION, Extent { offset: self.offset, length: self.stored_bytes })?;
        check_limit("stored bytes in a section", self.stored_bytes, limits.index_bytes_max)?;
        check_limit("bytes in a section", self.bytes, limits.index_bytes_max)?;
        self.arrays.iter().try_for_each(|touched| touched.check(limits))
    }
}

impl Directory {
    /// Returns the sections that touch the box of the array `key` from `start` to `end`, exclusive.
    pub fn sections_of<'a>(
        &'a self,
        key: &[u8; 16],
        start: &[u64],
        end: &[u64],
    ) -> impl Iterator<Item = &'a SectionPlace> {
        self.sections.iter().filter(move |section| {
            let mut arrays = section.arrays.iter();
            arrays.any(|touched| touched.key == *key && touched.intersects(start, end))
        })
    }

    /// Checks that names of segments are safe, and that indexes, extents and boxes are valid.
    /// [`Directory::decode`] returns only directories that pass.
    ///
    /// # Errors
    /// [`LogError`] names the broken rule.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        self.segments.iter().try_for_each(|name| check_segment_name(name))?;
        let touched = self.sections.iter().map(|section| section.arrays.len() as u64).sum();
        check_limit("arrays touched", touched, limits.section_entries_max)?;
        self.sections.iter().try_for_each(|section| section.check(self.segments.len(), limits))?;
        self.grown.iter().try_for_each(|array| array.check(limits))
    }

    /// Encodes the directory; the module header has the layout.
    ///
    /// # Errors
    /// As [`Directory::check`], and [`LogError::Limit`] if it exceeds the limits of readers.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let touched: Vec<&TouchedArray> =
            self.sections.iter().flat_map(|section| &section.arrays).collect();
        let (arrays, numbers) = distinct_arrays(&touched);
        let mut bytes = Vec::new();
        write_varint(VERSION, &mut bytes);
        self.commit.write(&mut bytes);
        write_varint(u64::from(self.is_promised), &mut bytes);
        let counts = [self.segments.len(), self.sections.len(), arrays.len(), touched.len()];
        for count in counts.into_iter().chain([self.grown.len()]) {
            write_varint(count as u64, &mut bytes);
        }
        write_column(self.segments.iter().map(|name| name.len() as u64), &mut bytes);
        self.segments.iter().for_each(|name| bytes.extend_from_slice(name.as_bytes()));
        arrays.iter().for_each(|(key, _)| bytes.extend_from_slice(key));
        write_column(arrays.iter().map(|(_, rank)| *rank as u64), &mut bytes);
        self.write_places(&mut bytes);
        write_column(numbers.into_iter(), &mut bytes);
        write_column(touched.iter().map(|touched| touched.entries), &mut bytes);
        write_column(touched.iter().map(|touched| touched.bytes), &mut bytes);
        for axis in 0..rank_max(&arrays) {
            let sides = touched.iter().filter_map(|touched| {
                let (start, end) = (touched.start.get(axis)?, touched.end.get(axis)?);
                Some((*start, end - start))
            });
            write_column(sides.clone().map(|(start, _)| start), &mut bytes);
            write_column(sides.map(|(_, length)| length), &mut bytes);
        }
        self.grown.iter().for_each(|array| bytes.extend_from_slice(&array.key));
        write_column(self.grown.iter().map(|array| array.shape.len() as u64), &mut bytes);
        write_column(self.grown.iter().flat_map(|array| array.base.iter().copied()), &mut bytes);
        write_column(self.grown.iter().flat_map(|array| array.shape.iter().copied()), &mut bytes);
        check_limit("bytes in a directory", bytes.len() as u64, limits.index_bytes_max)?;
        DecodeBudget::new(bytes.len()).charge(1, self.memory_bytes(&arrays))?;
        Ok(bytes)
    }

    fn write_places(&self, bytes: &mut Vec<u8>) {
        let columns: [&dyn Fn(&SectionPlace) -> u64; 6] = [
            &|section| u64::from(section.segment),
            &|section| section.offset,
            &|section| section.stored_bytes,
            &|section| section.bytes,
            &|section| u64::from(section.rank_first),
            &|section| section.arrays.len() as u64,
        ];
        columns.iter().for_each(|column| write_column(self.sections.iter().map(column), bytes));
    }

    /// Memory that decoding charges to its budget, in bytes.
    fn memory_bytes(&self, arrays: &[([u8; 16], usize)]) -> u64 {
        let names = self.segments.iter().map(|name| name_bytes() + name.len() as u64);
        let touched = self.sections.iter().flat_map(|section| &section.arrays);
        let touched = touched.map(|part| TouchedArray::MEMORY_BYTES + 16 * part.start.len() as u64);
        let grown = self.grown.iter().map(|array| GrownArray::memory_bytes(array.shape.len()));
        names.chain(touched).chain(grown).fold(0, u64::saturating_add)
            + self.sections.len() as u64 * (size_of::<SectionPlace>() + list_bytes(0))
            + size_of_val(arrays) as u64
    }

    /// Decodes a directory.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged, of a newer version, over the limits, or fail
    /// [`Directory::check`].
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut reader = ColumnReader::new(bytes);
        check_version(WHAT, reader.number(WHAT)?, VERSION)?;
        check_limit("bytes in a directory", bytes.len() as u64, limits.index_bytes_max)?;
        let commit = CommitId::read(&mut reader)?;
        let is_promised = match reader.number(WHAT)? {
            0 => false,
            1 => true,
            other => return Err(invalid(WHAT, format!("a promise of {other}"))),
        };
        let mut counts = [0; 5];
        for count in &mut counts {
            *count = reader.number(WHAT)?;
        }
        let [segments, sections, arrays, touched, grown] = counts;
        check_limit("arrays touched", touched, limits.section_entries_max)?;
        let mut budget = DecodeBudget::new(bytes.len());
        let segments = read_names(&mut reader, segments, &mut budget)?;
        let arrays = read_arrays(&mut reader, arrays, limits, &mut budget)?;
        let (mut sections, of_sections) = read_places(&mut reader, sections, &mut budget)?;
        read_touched(&mut reader, touched, &arrays, &mut sections, of_sections, &mut budget)?;
        let grown = read_grown(&mut reader, grown, limits, &mut budget)?;
        reader.finish(WHAT)?;
        let directory = Self { commit, is_promised, segments, sections, grown };
        directory.check(limits)?;
        Ok(directory)
    }
}

/// Returns each distinct pair of key and rank once, and for each part the index of its pair.
fn distinct_arrays(touched: &[&TouchedArray]) -> (Vec<([u8; 16], usize)>, Vec<u64>) {
    let mut arrays = Vec::new();
    let mut known = HashMap::new();
    let numbers = touched.iter().map(|touched| {
        let array = (touched.key, touched.start.len());
        *known.entry(array).or_insert_with(|| {
            arrays.push(array);
            arrays.len() as u64 - 1
        })
    });
    let numbers = numbers.collect();
    (arrays, numbers)
}

fn rank_max(arrays: &[([u8; 16], usize)]) -> usize {
    arrays.iter().map(|(_, rank)| *rank).max().unwrap_or(0)
}

fn name_bytes() -> u64 {
    size_of::<String>() + list_bytes(0)
}

pub(super) fn read_names(
    reader: &mut ColumnReader<'_>,
    count: u64,
    budget: &mut DecodeBudget,
) -> Result<Vec<String>> {
    let capacity = budget.charge(count, name_bytes())?;
    let mut lengths = reader.column(count, WHAT)?;
    let mut names = Vec::with_capacity(capacity);
    for _ in 0..count {
        let name = reader.take(lengths.next()?, WHAT)?;
        budget.charge(name.len() as u64, 1)?;
        let name = std::str::from_utf8(name).map_err(|error| invalid(WHAT, error.to_string()))?;
        names.push(name.to_owned());
    }
    lengths.finish()?;
    Ok(names)
}

/// Reads keys and ranks.
fn read_arrays(
    reader: &mut ColumnReader<'_>,
    count: u64,
    limits: &Limits,
    budget: &mut DecodeBudget,
) -> Result<Vec<([u8; 16], usize)>> {
    let capacity = budget.charge(count, size_of::<([u8; 16], usize)>())?;
    let keys = reader.pieces::<16>(count, WHAT)?;
    let mut ranks = reader.column(count, WHAT)?;
    let mut arrays = Vec::with_capacity(capacity);
    for key in keys {
        let rank = ranks.next()?;
        check_limit("axes", rank, limits.rank_max as u64)?;
        let rank = usize::try_from(rank).map_err(|_| invalid(WHAT, "a rank of many digits"))?;
        arrays.push((*key, rank));
    }
    ranks.finish()?;
    Ok(arrays)
}

/// Reads the sections without the parts that they touch, and the column of the number of parts of
/// each.
fn read_places<'a>(
    reader: &mut ColumnReader<'a>,
    count: u64,
    budget: &mut DecodeBudget,
) -> Result<(Vec<SectionPlace>, Column<'a>)> {
    let capacity = budget.charge(count, size_of::<SectionPlace>() + list_bytes(0))?;
    let mut segments = reader.column(count, SECTION)?;
    let mut offsets = reader.column(count, SECTION)?;
    let mut stored = reader.column(count, SECTION)?;
    let mut decoded = reader.column(count, SECTION)?;
    let mut ranks = reader.column(count, SECTION)?;
    let touched = reader.column(count, SECTION)?;
    let mut places = Vec::with_capacity(capacity);
    for _ in 0..count {
        places.push(SectionPlace {
            segment: segments.next_u32()?,
            offset: offsets.next()?,
            stored_bytes: stored.next()?,
            bytes: decoded.next()?,
            rank_first: ranks.next_u32()?,
            arrays: Vec::new(),
        });
    }
    for column in [segments, offsets, stored, decoded, ranks] {
        column.finish()?;
    }
    Ok((places, touched))
}

fn read_touched(
    reader: &mut ColumnReader<'_>,
    count: u64,
    arrays: &[([u8; 16], usize)],
    sections: &mut [SectionPlace],
    mut of_sections: Column<'_>,
    budget: &mut DecodeBudget,
) -> Result<()> {
    budget.charge(count, TouchedArray::MEMORY_BYTES)?;
    let mut numbers = reader.column(count, TOUCHED)?;
    let mut entries = reader.column(count, TOUCHED)?;
    let mut bytes = reader.column(count, TOUCHED)?;
    // The number of parts with each axis.
    let mut with_axis = vec![0_u64; rank_max(arrays)];
    let mut left = count;
    for section in sections.iter_mut() {
        let own = of_sections.next()?;
        left = left.checked_sub(own).ok_or(LogError::CutShort { what: TOUCHED })?;
        section.arrays.reserve_exact(usize::try_from(own).unwrap_or(0));
        for _ in 0..own {
            let (key, rank) = *numbers.next_of(arrays)?;
            budget.charge(rank as u64, 16)?;
            with_axis[..rank].iter_mut().for_each(|count| *count += 1);
            let (start, end) = (vec![0; rank], vec![0; rank]);
            let (entries, bytes) = (entries.next()?, bytes.next()?);
            section.arrays.push(TouchedArray { key, start, end, entries, bytes });
        }
    }
    for column in [of_sections, numbers, entries, bytes] {
        column.finish()?;
    }
    for (axis, count) in with_axis.into_iter().enumerate() {
        let mut starts = reader.column(count, TOUCHED)?;
        let mut lengths = reader.column(count, TOUCHED)?;
        for part in sections.iter_mut().flat_map(|section| &mut section.arrays) {
            if let (Some(start), Some(end)) = (part.start.get_mut(axis), part.end.get_mut(axis)) {
                *start = starts.next()?;
                let behind = start.checked_add(lengths.next()?);
                *end = behind.ok_or_else(|| invalid(TOUCHED, "an end of more than 64 bits"))?;
            }
        }
        starts.finish()?;
        lengths.finish()?;
    }
    Ok(())
}

impl GrownArray {
    fn memory_bytes(rank: usize) -> u64 {
        size_of::<Self>() + 2 * list_bytes(rank)
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("axes", self.shape.len() as u64, limits.rank_max as u64)?;
        let grows = self.base.len() == self.shape.len()
            && self.base.iter().zip(&self.shape).all(|(base, length)| base <= length);
        let is_counted = self.shape.iter().all(|length| i64::try_from(*length).is_ok());
        if grows && is_counted {
            return Ok(());
        }
        Err(invalid(GROWN, format!("from {:?} to {:?}", self.base, self.shape)))
    }
}

fn read_grown(
    reader: &mut ColumnReader<'_>,
    count: u64,
    limits: &Limits,
    budget: &mut DecodeBudget,
) -> Result<Vec<GrownArray>> {
    let capacity = budget.charge(count, GrownArray::memory_bytes(0))?;
    let keys = reader.pieces::<16>(count, GROWN)?;
    let mut ranks = reader.column(count, GROWN)?;
    let mut grown = Vec::with_capacity(capacity);
    let mut lengths_count = 0;
    for key in keys {
        let rank = ranks.next()?;
        check_limit("axes", rank, limits.rank_max as u64)?;
        let axes = budget.charge(rank, 16)?;
        grown.push(GrownArray { key: *key, base: vec![0; axes], shape: vec![0; axes] });
        lengths_count += rank;
    }
    ranks.finish()?;
    let shapes: [fn(&mut GrownArray) -> &mut Vec<u64>; 2] =
        [|array| &mut array.base, |array| &mut array.shape];
    for shape in shapes {
        let mut lengths = reader.column(lengths_count, GROWN)?;
        for length in grown.iter_mut().flat_map(shape) {
            *length = lengths.next()?;
        }
        lengths.finish()?;
    }
    Ok(grown)
}
