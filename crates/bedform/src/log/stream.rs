//! What one writer writes: data in the order in which they come, and sections that say what they mean.

use bedform_format::log::{Boxes, CommitId, Entry, SectionBuilder};

use super::buffer::Buffer;
use super::segment::{Finishing, Held, Segment, to_error};
use super::staged::Reach;
use crate::error::Result;

/// Data that are held are appended by themselves from this size on; fewer are copied, to go with others.
const HELD_BYTES_MIN: usize = 256 << 10;
/// Data of a section: what a writer that dies leaves without a description is no more than this.
const SECTION_DATA_BYTES: u64 = 256 << 20;

/// An array as it is written to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) key: [u8; 16],
    pub(super) item_size: usize,
    pub(super) shape: Vec<u64>,
    /// As `shape`, but for the axes along which the session appends: the length before.
    pub(super) base: Vec<u64>,
}

impl Target {
    pub(super) fn new(key: [u8; 16], item_size: usize, shape: Vec<u64>) -> Self {
        Self { key, item_size, base: shape.clone(), shape }
    }

    /// Makes it as large as `shape`, which is not smaller.
    pub(super) fn resize(&mut self, shape: &[u64]) {
        for ((length, base), new) in self.shape.iter_mut().zip(&mut self.base).zip(shape) {
            // What is appended begins where it did.
            if base == length {
                *base = *new;
            }
            *length = *new;
        }
    }
}

/// Which of two overlapping writes of a commit counts: that of the later epoch, then of the higher
/// rank, then the later one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) epoch: u32,
    pub(super) rank: u32,
}

/// Boxes that were declared once, to be written many times.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) boxes: Boxes,
    /// Their number in a section, and which section that is.
    known: Option<(u64, u32)>,
}

impl Declared {
    pub(super) fn new(boxes: Boxes) -> Self {
        Self { boxes, known: None }
    }

    /// Another stream knows nothing of them.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}

/// The data of a write.
pub(super) enum Data<'a> {
    /// Copied.
    Copied(&'a [u8]),
    /// Held until they are written.
    Held(Held),
}

impl Data<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Held(data) => held(data).len(),
        }
    }
}

pub(super) fn held(data: &Held) -> &[u8] {
    let data: &(dyn AsRef<[u8]> + Send) = &**data;
    data.as_ref()
}

/// One writer's stream of data and sections.
pub(super) struct Stream {
    segment: Segment,
    /// What waits to become a block.
    block: Option<Buffer>,
    builder: SectionBuilder,
    /// Sections cut so far: the number of the one that is being written.
    section: u64,
    section_bytes: u64,
}

impl Stream {
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
    /// `InvalidArgument` for boxes outside the array or too many; those of storage. Nothing has been
    /// written then.
    pub(super) fn begin(
        &mut self,
        target: &Target,
        boxes: Boxes,
        turn: Turn,
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

    /// As [`Stream::begin`], of declared boxes, which lack the first axis if there is a `record`.
    ///
    /// # Errors
    /// As [`Stream::begin`].
    pub(super) fn begin_declared(
        &mut self,
        target: &Target,
        record: Option<u64>,
        declared: &mut Declared,
        turn: Turn,
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
        let Turn { epoch, rank } = turn;
        let entry = Entry { array, record, selection, epoch, rank };
        let bytes = self.builder.write_declared(entry).map_err(to_error)?;
        self.section_bytes = self.section_bytes.saturating_add(bytes);
        Ok(())
    }

    fn array(&mut self, target: &Target) -> Result<u32> {
        let item = u32::try_from(target.item_size).unwrap_or(u32::MAX);
        let Target { key, shape, base, .. } = target;
        self.builder.array_from(*key, item, shape, base).map_err(to_error)
    }

    /// Adds data, and sends full blocks on their way.
    ///
    /// # Errors
    /// What writing in the background failed with.
    pub(super) fn add(&mut self, data: Data<'_>) -> Result<()> {
        match data {
            Data::Held(data) if held(&data).len() >= HELD_BYTES_MIN => {
                self.send_block()?;
                self.segment.append_held(data)
            }
            Data::Held(data) => self.copy(held(&data)),
            Data::Copied(bytes) => self.copy(bytes),
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

    /// Ends a section that has many data. To be called between writes.
    ///
    /// # Errors
    /// What writing in the background failed with.
    pub(super) fn cut_if_large(&mut self, commit: CommitId) -> Result<()> {
        if self.section_bytes >= SECTION_DATA_BYTES { self.cut(commit) } else { Ok(()) }
    }

    /// Ends the section, if it has anything.
    ///
    /// # Errors
    /// As [`Stream::cut_if_large`].
    pub(super) fn cut(&mut self, commit: CommitId) -> Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        self.send_block()?;
        let builder = self.next_section();
        self.segment.section(builder, commit)
    }

    /// A number for [`Stream::wait`]: everything added so far.
    pub(super) fn position(&self) -> u64 {
        self.segment.given() + u64::from(self.block.is_some())
    }

    /// Waits until everything up to `position` is written: what was held is let go then.
    ///
    /// # Errors
    /// As [`Stream::cut_if_large`].
    pub(super) fn wait(&mut self, position: u64) -> Result<()> {
        if position > self.segment.given() {
            self.send_block()?;
        }
        self.segment.wait(position.min(self.segment.given()))
    }

    /// Ends the section, which somebody else is to write, and has everything handed to the system, and synced if it
    /// is `ahead` of the sync of who puts sections together: the segment tells when that is done.
    ///
    /// # Errors
    /// As [`Stream::cut_if_large`].
    pub(super) fn begin_hand_over(&mut self, commit: CommitId, ahead: bool) -> Result<Finishing> {
        if !self.builder.is_empty() {
            self.send_block()?;
            let builder = self.next_section();
            self.segment.keep(builder, commit)?;
        }
        self.segment.begin_hand_over(ahead)
    }

    /// The description of the section that ends here.
    fn next_section(&mut self) -> SectionBuilder {
        self.section += 1;
        self.section_bytes = 0;
        std::mem::take(&mut self.builder)
    }

    /// Ends the section and has everything made durable, as far as `reach` says: the segment tells when
    /// that is done.
    ///
    /// # Errors
    /// As [`Stream::cut_if_large`].
    pub(super) fn begin_finish(&mut self, commit: CommitId, reach: Reach) -> Result<Finishing> {
        self.cut(commit)?;
        self.segment.begin_finish(reach)
    }
}
