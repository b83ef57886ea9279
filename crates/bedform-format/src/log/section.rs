//! Sections: the writes of one writer in one commit, readable without other sections.
//!
//! The data of a section are one stream of bytes: the entries in order, the boxes of each entry in
//! order, the elements of each box in C order. Blocks divide the stream regardless of entries, so
//! entries and boxes store no location. `section_wire.rs` has the encoding.

use std::collections::BTreeMap;

use super::boxes::Summary;
use super::{
    ALLOCATION_BYTES, Boxes, CommitId, Result, TouchedArray, check_limit, check_place, invalid,
    list_bytes, size_of,
};
use crate::Limits;
use crate::shard::Extent;

const ARRAY: &str = "an array of a section";
const ENTRY: &str = "an entry of a section";
const BLOCK: &str = "a block of a section";
const SECTION: &str = "a section";

/// An array, as it was when the section was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SectionArray {
    /// Identity of the array.
    pub key: [u8; 16],
    /// Bytes of one element.
    pub item_size: u32,
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// The shape before the appends of the session: equal to `shape` except along the axes of
    /// appends. The writes are valid only while no other writer has appended along these axes.
    pub base: Vec<u64>,
}

/// The extent of one piece of the section's data, with checksum and compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Offset of its first byte in the segment.
    pub offset: u64,
    /// Length in the segment, in bytes.
    pub stored_bytes: u64,
    /// Length when decoded, in bytes.
    pub bytes: u64,
    /// CRC-32C of the stored bytes.
    pub checksum: u32,
    /// Number of its codec; 0 if it is not compressed.
    pub codec: u8,
}

/// One write: a selection of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Index of the array in the section.
    pub array: u32,
    /// Index along the first axis, if the selection lacks that axis.
    pub record: Option<u64>,
    /// Index of the selection in the section.
    pub selection: u32,
    /// Of two overlapping writes, the one with the later epoch counts.
    pub epoch: u32,
    /// Of two overlapping writes in one epoch, the one with the higher rank counts.
    pub rank: u32,
}

/// The writes of one writer in one commit, with the location of their data.
///
/// ```
/// use bedform_format::Limits;
/// use bedform_format::log::{Block, Boxes, CommitId, Section, SectionBuilder};
/// let mut builder = SectionBuilder::default();
/// let array = builder.array([1; 16], 4, &[10, 6, 8])?;
/// for step in 0..10 {
///     let bytes = builder.write(array, Boxes::one(&[step, 0, 4], &[1, 3, 4])?, 0, 0)?;
///     assert_eq!(bytes, 3 * 4 * 4);
/// }
/// builder.block(Block { offset: 96, stored_bytes: 480, bytes: 480, checksum: 7, codec: 0 });
/// let section = builder.finish(CommitId { session: [2; 16], epoch: 1 });
/// // All ten write the same box of another record.
/// assert_eq!((section.entries.len(), section.selections.len()), (10, 1));
/// let limits = Limits::default();
/// assert_eq!(Section::decode(&section.encode(&limits)?, &limits)?, section);
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    /// Identity of the commit.
    pub commit: CommitId,
    /// The arrays that the entries name.
    pub arrays: Vec<SectionArray>,
    /// The distinct selections that the entries name.
    pub selections: Vec<Boxes>,
    /// The writes, in order.
    pub entries: Vec<Entry>,
    /// The blocks of the data, in the order of the writes.
    pub blocks: Vec<Block>,
}

impl SectionArray {
    pub(super) fn memory_bytes(rank: usize) -> u64 {
        size_of::<Self>() + 2 * list_bytes(rank)
    }

    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        if self.item_size == 0 {
            return Err(invalid(ARRAY, "elements of no bytes"));
        }
        let mut axes = self.base.iter().zip(&self.shape);
        if self.base.len() != self.shape.len() || axes.any(|(base, length)| base > length) {
            let problem = format!("of {:?}, appended to from {:?} on", self.shape, self.base);
            return Err(invalid(ARRAY, problem));
        }
        check_limit("axes of an array", self.shape.len() as u64, limits.rank_max as u64)
    }

    /// Returns the shape that contains the boxes of an entry with this `record`.
    pub(super) fn inner_shape(&self, record: Option<u64>) -> Result<&[u64]> {
        let Some(record) = record else { return Ok(&self.shape) };
        match self.shape.split_first() {
            Some((&records, inner)) if record < records => Ok(inner),
            _ => Err(invalid(ENTRY, format!("record {record} of an array of {:?}", self.shape))),
        }
    }

    /// Returns the bytes of a write of the selection with this `summary`.
    pub(super) fn bytes_of(&self, record: Option<u64>, summary: &Summary) -> Result<u64> {
        let shape = self.inner_shape(record)?;
        if !summary.fits(shape) {
            return Err(invalid(ENTRY, format!("its selection does not lie in {shape:?}")));
        }
        let bytes = summary.elements.checked_mul(u64::from(self.item_size));
        bytes.ok_or_else(|| invalid(ENTRY, "more bytes than 64 bits count"))
    }
}

impl Section {
    /// Checks that the section is consistent; [`Section::decode`] returns only sections that pass.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if an index is out of range, a box is empty or lies outside
    /// its array, the entries and the blocks differ in bytes, or a limit is exceeded.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("entries", self.entries.len() as u64, limits.section_entries_max)?;
        let boxes = self.selections.iter().map(|boxes| boxes.count() as u64);
        check_limit("boxes", boxes.fold(0, u64::saturating_add), limits.section_boxes_max)?;
        let ranks = self.selections.iter().map(|boxes| boxes.rank() as u64);
        check_limit("axes of a selection", ranks.max().unwrap_or(0), limits.rank_max as u64)?;
        self.arrays.iter().try_for_each(|array| array.check(limits))?;
        self.blocks.iter().try_for_each(|block| block.check(limits))?;
        let summaries = self.summaries()?;
        let mut data_bytes = 0_u64;
        for entry in &self.entries {
            let (array, summary) = self.parts(&summaries, entry)?;
            data_bytes = data_bytes.saturating_add(array.bytes_of(entry.record, summary)?);
        }
        let block_bytes = self.blocks.iter().map(|block| block.bytes);
        let block_bytes = block_bytes.fold(0, u64::saturating_add);
        if data_bytes != block_bytes || data_bytes == u64::MAX {
            let problem = format!("entries of {data_bytes} bytes, blocks of {block_bytes}");
            return Err(invalid(SECTION, problem));
        }
        Ok(())
    }

    fn summaries(&self) -> Result<Vec<&Summary>> {
        self.selections.iter().map(Boxes::summary).collect()
    }

    fn parts<'a>(
        &'a self,
        summaries: &[&'a Summary],
        entry: &Entry,
    ) -> Result<(&'a SectionArray, &'a Summary)> {
        let array = self.arrays.get(entry.array as usize);
        let selection = summaries.get(entry.selection as usize).copied();
        array.zip(selection).ok_or_else(|| {
            let Entry { array, selection, .. } = entry;
            invalid(ENTRY, format!("array {array} or selection {selection} is not there"))
        })
    }

    /// Returns the part of each array that the section touches, sorted by key: the bounding box,
    /// number and bytes of its writes. A directory stores these.
    ///
    /// # Errors
    /// As [`Section::check`], for an index out of range or a number of bytes beyond 64 bits.
    pub fn touched(&self) -> Result<Vec<TouchedArray>> {
        let summaries = self.summaries()?;
        // Keyed by rank, too: an array that was made anew may have another rank, and no part may be
        // lost.
        let mut touched = BTreeMap::<([u8; 16], usize), TouchedArray>::new();
        for entry in &self.entries {
            let (array, summary) = self.parts(&summaries, entry)?;
            let bytes = array.bytes_of(entry.record, summary)?;
            let Summary { low, high, .. } = summary;
            let start = || entry.record.iter().chain(low.iter()).copied();
            let end = || entry.record.iter().map(|&record| record + 1).chain(high.iter().copied());
            let of_array = touched.entry((array.key, array.shape.len())).or_insert_with(|| {
                let (start, end) = (start().collect(), end().collect());
                TouchedArray { key: array.key, start, end, entries: 0, bytes: 0 }
            });
            of_array.start.iter_mut().zip(start()).for_each(|(old, new)| *old = new.min(*old));
            of_array.end.iter_mut().zip(end()).for_each(|(old, new)| *old = new.max(*old));
            of_array.entries += 1;
            of_array.bytes = of_array.bytes.saturating_add(bytes);
        }
        Ok(touched.into_values().collect())
    }

    /// Memory that [`Section::decode`] charges to its budget for this section, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let arrays = self.arrays.iter().map(|array| SectionArray::memory_bytes(array.shape.len()));
        let selections = self.selections.iter().map(|boxes| {
            Boxes::memory_bytes(boxes.rank(), boxes.count() as u64)
                + Summary::memory_bytes(boxes.rank())
        });
        arrays.chain(selections).fold(0, u64::saturating_add)
            + self.entries.len() as u64 * size_of::<Entry>()
            + self.blocks.len() as u64 * size_of::<Block>()
            + 4 * ALLOCATION_BYTES
    }
}

impl Block {
    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        check_place(BLOCK, Extent { offset: self.offset, length: self.stored_bytes })?;
        check_limit("bytes in a block", self.bytes, limits.chunk_bytes_max)?;
        check_limit("stored bytes in a block", self.stored_bytes, limits.chunk_bytes_max)?;
        if self.codec == 0 && self.bytes != self.stored_bytes {
            return Err(invalid(BLOCK, "another length than is stored, uncompressed"));
        }
        Ok(())
    }
}
