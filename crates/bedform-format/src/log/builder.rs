//! Builds a section write by write.

use std::collections::HashMap;

use super::boxes::Summary;
use super::{
    Block, Boxes, CommitId, Entry, LogError, MEMORY_BASE, Result, Section, SectionArray, invalid,
    size_of,
};
use crate::Limits;

const WHAT: &str = "a write";
/// Memory that arrays, selections and entries may take in a reader, in bytes. The remaining quarter
/// of the fixed allowance is for blocks: enough for those of 64 GiB of data, or more if the blocks
/// are large.
const MEMORY_MAX: u64 = MEMORY_BASE / 4 * 3;

/// The largest number of blocks in a section merged from several; they fit the remaining memory.
const ABSORBED_BLOCKS_MAX: usize = 1 << 18;

/// A builder of a [`Section`]. It stores equal arrays and selections once, and the record index of
/// a write apart from its box.
#[derive(Debug, Default)]
pub struct SectionBuilder {
    section: Section,
    /// Indexes of the arrays with a key.
    arrays: HashMap<[u8; 16], Vec<u32>>,
    /// Indexes of the selections with a fingerprint.
    selections: HashMap<u64, Vec<u32>>,
    /// Bytes of memory that a reader will need, without blocks.
    memory: u64,
}

impl SectionBuilder {
    /// Returns the index of the array with this key, item size and shape, and adds it if it is new.
    ///
    /// # Errors
    /// [`LogError::Invalid`] or [`LogError::Limit`] for an impossible item size or rank, and
    /// [`LogError::SectionFull`].
    pub fn array(&mut self, key: [u8; 16], item_size: u32, shape: &[u64]) -> Result<u32> {
        self.array_from(key, item_size, shape, shape)
    }

    /// As [`SectionBuilder::array`], for an array to which the session has appended. `base` is the
    /// shape before: equal to `shape` except along the axes of the appends.
    ///
    /// # Errors
    /// As [`SectionBuilder::array`]; [`LogError::Invalid`] for a base larger than the shape.
    pub fn array_from(
        &mut self,
        key: [u8; 16],
        item_size: u32,
        shape: &[u64],
        base: &[u64],
    ) -> Result<u32> {
        let array = SectionArray { key, item_size, shape: shape.to_vec(), base: base.to_vec() };
        if let Some(number) = self.known_array(&array) {
            return Ok(number);
        }
        array.check(&Limits::default())?;
        self.take(array_memory_bytes(&array))?;
        self.add_array(array)
    }

    fn known_array(&self, array: &SectionArray) -> Option<u32> {
        let known = self.arrays.get(&array.key).map_or(&[][..], Vec::as_slice);
        let is_same = |number: &&u32| self.section.arrays.get(**number as usize) == Some(array);
        known.iter().find(is_same).copied()
    }

    fn add_array(&mut self, array: SectionArray) -> Result<u32> {
        let number = next_number(self.section.arrays.len())?;
        self.arrays.entry(array.key).or_default().push(number);
        self.section.arrays.push(array);
        Ok(number)
    }

    /// Adds a write of `boxes` over all axes of array number `array`, and returns the number of
    /// bytes that its data must have.
    ///
    /// `epoch` and `rank` say which of two overlapping writes of a commit counts: the later epoch,
    /// then the higher rank, then the later in this section.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if there are no boxes, or one is empty or lies outside the array;
    /// [`LogError::SectionFull`] if the write must go to another section. The section is unchanged
    /// then.
    pub fn write(&mut self, array: u32, mut boxes: Boxes, epoch: u32, rank: u32) -> Result<u64> {
        let shape = &self.array_of(array)?.shape;
        boxes.validate(shape)?;
        let record = boxes.split_record();
        let before = self.section.selections.len();
        let selection = self.declare(boxes)?;
        let written = self.write_declared(Entry { array, record, selection, epoch, rank });
        if written.is_err() && self.section.selections.len() > before {
            self.forget_last_selection();
        }
        written
    }

    /// Returns the index of a selection, for [`SectionBuilder::write_declared`], and adds it if it
    /// is new.
    ///
    /// # Errors
    /// As [`SectionBuilder::write`], except for the checks against an array.
    pub fn declare(&mut self, boxes: Boxes) -> Result<u32> {
        let fingerprint = boxes.fingerprint();
        if let Some(number) = self.known_selection(&boxes, fingerprint) {
            return Ok(number);
        }
        boxes.summary()?;
        self.take(selection_memory_bytes(&boxes))?;
        self.add_selection(boxes, fingerprint)
    }

    fn known_selection(&self, boxes: &Boxes, fingerprint: u64) -> Option<u32> {
        let known = self.selections.get(&fingerprint).map_or(&[][..], Vec::as_slice);
        let is_same = |number: &&u32| self.section.selections.get(**number as usize) == Some(boxes);
        known.iter().find(is_same).copied()
    }

    fn add_selection(&mut self, boxes: Boxes, fingerprint: u64) -> Result<u32> {
        let number = next_number(self.section.selections.len())?;
        self.section.selections.push(boxes);
        self.selections.entry(fingerprint).or_default().push(number);
        Ok(number)
    }

    /// Adds a write of a declared selection without reading its boxes, and returns the number of
    /// bytes that its data must have. With a record, the selection has one axis less than the
    /// array.
    ///
    /// # Errors
    /// As [`SectionBuilder::write`].
    pub fn write_declared(&mut self, entry: Entry) -> Result<u64> {
        let array = self.array_of(entry.array)?;
        let boxes = self.section.selections.get(entry.selection as usize).ok_or_else(|| {
            invalid(WHAT, format!("selection {} has not been declared", entry.selection))
        })?;
        let bytes = array.bytes_of(entry.record, boxes.summary()?)?;
        if self.section.entries.len() as u64 >= Limits::default().section_entries_max {
            return Err(LogError::SectionFull);
        }
        self.take(size_of::<Entry>())?;
        self.section.entries.push(entry);
        Ok(bytes)
    }

    /// Returns true if there is room for a write of `boxes` to a new array. If even an empty
    /// section has no room, the caller must cut the write into several.
    pub fn has_room_for(&self, boxes: &Boxes) -> bool {
        let array = 2 * SectionArray::memory_bytes(boxes.rank() + 1);
        let needed = selection_memory_bytes(boxes).saturating_add(array + size_of::<Entry>());
        let entries = self.section.entries.len() as u64;
        self.memory.saturating_add(needed) <= MEMORY_MAX
            && entries < Limits::default().section_entries_max
    }

    /// Appends the location of the next piece of the data.
    pub fn block(&mut self, block: Block) {
        self.section.blocks.push(block);
    }

    /// Appends all writes of another section, as the leader of a node does with those of its members;
    /// arrays and selections that both have are stored once. Returns `other` if it does not fit. An
    /// empty builder takes any decoded section, since decoding has bounded it.
    ///
    /// # Errors
    /// [`LogError::Invalid`] for a section that [`Section::check`] would refuse.
    pub fn absorb(&mut self, other: Section) -> Result<Option<Section>> {
        if !self.is_empty() && !self.has_room_for_section(&other) {
            return Ok(Some(other));
        }
        let renumbered = |list: &[u32], number: u32| list.get(number as usize).copied();
        let outside = || invalid(WHAT, "an array or selection that is not there");
        let mut arrays = Vec::with_capacity(other.arrays.len());
        for array in other.arrays {
            arrays.push(match self.known_array(&array) {
                Some(number) => number,
                None => {
                    self.memory = self.memory.saturating_add(array_memory_bytes(&array));
                    self.add_array(array)?
                }
            });
        }
        let mut selections = Vec::with_capacity(other.selections.len());
        for boxes in other.selections {
            let fingerprint = boxes.fingerprint();
            selections.push(match self.known_selection(&boxes, fingerprint) {
                Some(number) => number,
                None => {
                    let needed = selection_memory_bytes(&boxes);
                    self.memory = self.memory.saturating_add(needed);
                    boxes.summary()?;
                    self.add_selection(boxes, fingerprint)?
                }
            });
        }
        for entry in other.entries {
            let array = renumbered(&arrays, entry.array).ok_or_else(outside)?;
            let selection = renumbered(&selections, entry.selection).ok_or_else(outside)?;
            self.memory = self.memory.saturating_add(size_of::<Entry>());
            self.section.entries.push(Entry { array, selection, ..entry });
        }
        self.section.blocks.extend(other.blocks);
        Ok(None)
    }

    /// Returns true if the other section fits, by an upper bound of its memory.
    fn has_room_for_section(&self, other: &Section) -> bool {
        let is_new = |boxes: &&Boxes| self.known_selection(boxes, boxes.fingerprint()).is_none();
        let selections = other.selections.iter().filter(is_new).map(selection_memory_bytes);
        let is_new = |array: &&SectionArray| self.known_array(array).is_none();
        let arrays = other.arrays.iter().filter(is_new).map(array_memory_bytes);
        let entries = other.entries.len() as u64;
        let needed = selections.chain(arrays).fold(0, u64::saturating_add);
        let needed = needed.saturating_add(entries.saturating_mul(size_of::<Entry>()));
        let boxes = |section: &Section| -> u64 {
            section.selections.iter().map(|boxes| boxes.count() as u64).sum()
        };
        let limits = Limits::default();
        let blocks = self.section.blocks.len() + other.blocks.len();
        self.memory.saturating_add(needed) <= MEMORY_MAX
            && self.section.entries.len() as u64 + entries <= limits.section_entries_max
            && boxes(&self.section).saturating_add(boxes(other)) <= limits.section_boxes_max
            && blocks <= ABSORBED_BLOCKS_MAX
    }

    /// Returns true if there are no writes.
    pub fn is_empty(&self) -> bool {
        self.section.entries.is_empty()
    }

    /// Returns the section as a part of `commit`. Encoding checks that its blocks have as many
    /// bytes as its entries.
    pub fn finish(self, commit: CommitId) -> Section {
        Section { commit, ..self.section }
    }

    fn array_of(&self, number: u32) -> Result<&SectionArray> {
        let array = self.section.arrays.get(number as usize);
        array.ok_or_else(|| invalid(WHAT, format!("the section has no array {number}")))
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let memory = self.memory.saturating_add(bytes);
        if memory > MEMORY_MAX {
            return Err(LogError::SectionFull);
        }
        self.memory = memory;
        Ok(())
    }

    fn forget_last_selection(&mut self) {
        let Some(boxes) = self.section.selections.pop() else { return };
        self.memory = self.memory.saturating_sub(selection_memory_bytes(&boxes));
        if let Some(numbers) = self.selections.get_mut(&boxes.fingerprint()) {
            numbers.pop();
        }
    }
}

/// Memory of an array in a reader: at most two copies of its shape, one in the array and one in the
/// list of shapes.
fn array_memory_bytes(array: &SectionArray) -> u64 {
    2 * SectionArray::memory_bytes(array.shape.len())
}

/// Memory of a selection in a reader: its boxes, their summary, and the shape that encodes them.
fn selection_memory_bytes(boxes: &Boxes) -> u64 {
    let boxes_bytes = Boxes::memory_bytes(boxes.rank(), boxes.count() as u64);
    boxes_bytes.saturating_add(2 * Summary::memory_bytes(boxes.rank()))
}

fn next_number(length: usize) -> Result<u32> {
    u32::try_from(length).map_err(|_| LogError::SectionFull)
}
