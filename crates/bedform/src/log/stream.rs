//! The stream of one writer: data in the order of the calls, and sections that describe them.
//!
//! Data are collected in blocks; a full block is sent to the segment. A section ends with a commit,
//! with a flush, or after [`SECTION_DATA_BYTES`] bytes of data.

use bedform_format::log::{Boxes, CommitId, Entry, SectionBuilder};

use super::buffer::Buffer;
use super::segment::{LentData, PendingSync, Segment, to_error};
use super::staged::CommitReach;
use crate::error::Result;

/// Lent data of at least this many bytes are appended separately; fewer are copied into a block
/// with others.
const HELD_BYTES_MIN: usize = 256 << 10;
/// Bytes of data after which a section ends: a writer that dies leaves at most this many without a
/// description.
const SECTION_DATA_BYTES: u64 = 256 << 20;

/// An array that a session writes to, with the shape that the session gives it.
#[derive(Debug, Clone)]
pub(super) struct WriteTarget {
    pub(super) key: [u8; 16],
    pub(super) item_size: usize,
    pub(super) shape: Vec<u64>,
    /// As `shape`, except along the axes of appends: the length before the append.
    pub(super) base: Vec<u64>,
}

impl WriteTarget {
    pub(super) fn new(key: [u8; 16], item_size: usize, shape: Vec<u64>) -> Self {
        Self { key, item_size, base: shape.clone(), shape }
    }

    /// Enlarges the array to `shape`, which is not smaller.
    pub(super) fn resize(&mut self, shape: &[u64]) {
        for ((length, base), new) in self.shape.iter_mut().zip(&mut self.base).zip(shape) {
            // An append keeps its start.
            if base == length {
                *base = *new;
            }
            *length = *new;
        }
    }
}

/// The precedence of overlapping writes in a commit: the later epoch wins, then the higher rank,
/// then the later write.
#[derive(Debug, Clone, Copy)]
pub(super) struct WritePrecedence {
    pub(super) epoch: u32,
    pub(super) rank: u32,
}

/// Boxes that were declared once, for many writes.
#[derive(Debug)]
pub(super) struct DeclaredBoxes {
    pub(super) boxes: Boxes,
    /// The section that has them, and their number there.
    known: Option<(u64, u32)>,
}

impl DeclaredBoxes {
    pub(super) fn new(boxes: Boxes) -> Self {
        Self { boxes, known: None }
    }

    /// Forgets the section: a new stream does not know the boxes.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}

/// The data of a write.
pub(super) enum WriteData<'a> {
    /// Bytes that are copied.
    Copied(&'a [u8]),
    /// Lent bytes, kept until they are written.
    Lent(LentData),
}

impl WriteData<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Lent(data) => held(data),
        }
    }
}

fn held(data: &LentData) -> &[u8] {
    let data: &(dyn AsRef<[u8]> + Send) = &**data;
    data.as_ref()
}

/// The stream of data and sections of one writer.
pub(super) struct SectionStream {
    segment: Segment,
    /// Data that do not fill a block yet.
    block: Option<Buffer>,
    builder: SectionBuilder,
    /// Number of finished sections, which is the number of the current one.
    section: u64,
    section_bytes: u64,
}

impl SectionStream {
    pub(super) fn new(segment: Segment) -> Self {
        Self {
            segment,
            block: None,
            builder: SectionBuilder::default(),
            section: 0,
            section_bytes: 0,
        }
    }

    pub(super) fn segment(&mut self) -> &mut Segment {
        &mut self.segment
    }

    /// Begins a write of `boxes` of `target`; its data follow.
    ///
    /// # Errors
    /// `InvalidArgument` for boxes outside the array, or too many; those of storage. Nothing is
    /// written then.
    pub(super) fn begin(
        &mut self,
        target: &WriteTarget,
        boxes: Boxes,
        turn: WritePrecedence,
        commit: CommitId,
    ) -> Result<()> {
        if !self.builder.is_empty() && !self.builder.has_room_for(&boxes) {
            self.cut(commit)?;
        }
        let array = self.array(target)?;
        let bytes = self.builder.write(array, boxes, turn.epoch, turn.rank).map_err(to_error)?;
        self.section_bytes = self.section_bytes.saturating_add(bytes);
        Ok(())
    }

    /// As [`SectionStream::begin`], for declared boxes, which lack the first axis if there is a
    /// `record`.
    ///
    /// # Errors
    /// As [`SectionStream::begin`].
    pub(super) fn begin_declared(
        &mut self,
        target: &WriteTarget,
        record: Option<u64>,
        declared: &mut DeclaredBoxes,
        turn: WritePrecedence,
        commit: CommitId,
    ) -> Result<()> {
        if !self.builder.is_empty() && !self.builder.has_room_for(&declared.boxes) {
            self.cut(commit)?;
        }
        let array = self.array(target)?;
        let selection = match declared.known {
            Some((section, number)) if section == self.section => number,
            _ => {
                let number = self.builder.declare(declared.boxes.clone()).map_err(to_error)?;
                declared.known = Some((self.section, number));
                number
            }
        };
        let WritePrecedence { epoch, rank } = turn;
        let entry = Entry { array, record, selection, epoch, rank };
        let bytes = self.builder.write_declared(entry).map_err(to_error)?;
        self.section_bytes = self.section_bytes.saturating_add(bytes);
        Ok(())
    }

    fn array(&mut self, target: &WriteTarget) -> Result<u32> {
        let item = u32::try_from(target.item_size).unwrap_or(u32::MAX);
        let WriteTarget { key, shape, base, .. } = target;
        self.builder.array_from(*key, item, shape, base).map_err(to_error)
    }

    /// Adds data, and sends full blocks to the segment.
    ///
    /// # Errors
    /// The error of a write in the background.
    pub(super) fn add(&mut self, data: WriteData<'_>) -> Result<()> {
        match data {
            WriteData::Lent(data) if held(&data).len() >= HELD_BYTES_MIN => {
                self.send_block()?;
                self.segment.append_held(data)
            }
            WriteData::Lent(data) => self.copy(held(&data)),
            WriteData::Copied(bytes) => self.copy(bytes),
        }
    }

    fn copy(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let block = match &mut self.block {
                Some(block) => block,
                none => none.insert(self.segment.buffer()?),
            };
            bytes = &bytes[block.add(bytes)..];
            if block.is_full() {
                self.send_block()?;
            }
        }
        Ok(())
    }

    fn send_block(&mut self) -> Result<()> {
        match self.block.take() {
            Some(block) => self.segment.append(block),
            None => Ok(()),
        }
    }

    /// Ends a section that has much data. To be called between writes.
    ///
    /// # Errors
    /// The error of a write in the background.
    pub(super) fn cut_if_large(&mut self, commit: CommitId) -> Result<()> {
        if self.section_bytes >= SECTION_DATA_BYTES { self.cut(commit) } else { Ok(()) }
    }

    /// Ends the section, unless it is empty.
    ///
    /// # Errors
    /// As [`SectionStream::cut_if_large`].
    pub(super) fn cut(&mut self, commit: CommitId) -> Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        self.send_block()?;
        let builder = self.next_section();
        self.segment.section(builder, commit)
    }

    /// Returns the position of everything added so far, for [`SectionStream::wait`].
    pub(super) fn position(&self) -> u64 {
        self.segment.given() + u64::from(self.block.is_some())
    }

    /// Waits until everything up to `position` is written and lent data are released.
    ///
    /// # Errors
    /// As [`SectionStream::cut_if_large`].
    pub(super) fn wait(&mut self, position: u64) -> Result<()> {
        if position > self.segment.given() {
            self.send_block()?;
        }
        self.segment.wait(position.min(self.segment.given()))
    }

    /// Ends the section, which another writer is to append, and starts to hand all data to the
    /// operating system. With `ahead` they are also synced, before the sync of the writer that
    /// joins the sections. The segment reports when that is done.
    ///
    /// # Errors
    /// As [`SectionStream::cut_if_large`].
    pub(super) fn begin_hand_over(&mut self, commit: CommitId, ahead: bool) -> Result<PendingSync> {
        if !self.builder.is_empty() {
            self.send_block()?;
            let builder = self.next_section();
            self.segment.keep(builder, commit)?;
        }
        self.segment.begin_hand_over(ahead)
    }

    /// Returns the description of the section that ends here.
    fn next_section(&mut self) -> SectionBuilder {
        self.section += 1;
        self.section_bytes = 0;
        std::mem::take(&mut self.builder)
    }

    /// Ends the section, and starts to make all data durable as far as `reach` demands. The segment
    /// reports when that is done.
    ///
    /// # Errors
    /// As [`SectionStream::cut_if_large`].
    pub(super) fn begin_finish(
        &mut self,
        commit: CommitId,
        reach: CommitReach,
    ) -> Result<PendingSync> {
        self.cut(commit)?;
        self.segment.begin_finish(reach)
    }
}
