//! Fetches bytes of an object for one thread: from memory, the page cache, an answer of a server, or
//! the device.
//!
//! Bytes that came with the object's opening are not copied. Before a thread waits for the device,
//! it notes the wait, so that the read gets readahead and more threads. Where the storage can, the
//! device puts the bytes into an aligned block past the page cache.

use bedform_format::shard::Extent;
use bedform_storage::{Answer, Bytes, Object, ReadBlock};

use super::buffers::resize_discarding;
use super::execute::{ReadExecution, ThreadStarter};
use super::resolve::Unit;
use crate::error::Result;

/// A reader of one object with the block of its thread.
pub(super) struct ObjectReader<'r, 'a> {
    pub(super) run: &'r ReadExecution<'a>,
    pub(super) object: &'r dyn Object,
    pub(super) block: &'r mut ReadBlock,
    pub(super) helpers: ThreadStarter<'r>,
}

impl ObjectReader<'_, '_> {
    /// Returns the bytes of a unit, its extents concatenated. They lie in the object's own memory
    /// if they came with its opening, in the block if the device put them there, and else in
    /// `fetched`. Extents with an answer are taken from it.
    pub(super) fn fetch_unit<'b>(
        &'b mut self,
        unit: &Unit,
        answers: impl IntoIterator<Item = Option<Answer<Bytes>>>,
        fetched: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let length = usize::try_from(unit.bytes()).unwrap_or(usize::MAX);
        if let [extent] = unit.extents.as_slice() {
            if let Some(known) = self.object.buffered_bytes(extent.offset, length) {
                return Ok(known);
            }
            resize_discarding(fetched, length);
            let bytes = self.fetch(extent.offset, &mut fetched[..length])?;
            return Ok(bytes.unwrap_or(&fetched[..length]));
        }
        resize_discarding(fetched, length);
        let mut left = &mut fetched[..length];
        let rooms = unit.extents.iter().map(|extent| {
            let (room, rest) = std::mem::take(&mut left).split_at_mut(length_of(extent));
            left = rest;
            room
        });
        self.fill_all(unit, rooms, answers)?;
        Ok(&fetched[..length])
    }

    /// Fills one slice for each extent of a unit, from the extent's answer if it has one. Before
    /// the first wait, the storage gets readahead hints for the others, so that the device serves
    /// them at the same time.
    pub(super) fn fill_all<'s>(
        &mut self,
        unit: &Unit,
        rooms: impl IntoIterator<Item = &'s mut [u8]>,
        answers: impl IntoIterator<Item = Option<Answer<Bytes>>>,
    ) -> Result<()> {
        let (mut answers, mut is_told) = (answers.into_iter(), false);
        for ((extent, room), next) in unit.extents.iter().zip(rooms).zip(1..) {
            if let Some(answer) = answers.next().flatten() {
                room.copy_from_slice(&answer.take()?);
                continue;
            }
            let at_hand = self.object.read_resident(extent.offset, room)?;
            if at_hand == room.len() {
                continue;
            }
            if !std::mem::replace(&mut is_told, true) {
                for other in &unit.extents[next..] {
                    self.object.read_ahead(other.offset, other.length);
                }
            }
            if let Some(bytes) = self.wait_for(extent.offset, room, at_hand)? {
                room.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes from `offset` on.
    pub(super) fn fill(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some(bytes) = self.fetch(offset, buffer)? {
            buffer.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes from `offset` on and returns `None`, or returns a slice of the
    /// block if the device put the bytes there.
    fn fetch(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Option<&[u8]>> {
        let at_hand = self.object.read_resident(offset, buffer)?;
        match at_hand == buffer.len() {
            true => Ok(None),
            false => self.wait_for(offset, buffer, at_hand),
        }
    }

    /// Waits for the bytes from `offset` on, as [`Self::fetch`] does. The first `at_hand` bytes are
    /// in the buffer already.
    fn wait_for(
        &mut self,
        offset: u64,
        buffer: &mut [u8],
        at_hand: usize,
    ) -> Result<Option<&[u8]>> {
        self.run.waits(self.helpers);
        if let Some(bytes) = self.object.read_past(offset, buffer.len(), self.block)? {
            return Ok(Some(bytes));
        }
        self.object.read(offset + at_hand as u64, &mut buffer[at_hand..])?;
        Ok(None)
    }
}

/// Returns the length of an extent in memory.
pub(super) fn length_of(extent: &Extent) -> usize {
    usize::try_from(extent.length).unwrap_or(usize::MAX)
}
