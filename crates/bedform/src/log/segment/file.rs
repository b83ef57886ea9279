//! The background side of a segment: it checks, describes and appends data by order of the writer.

use std::sync::mpsc::{Receiver, Sender};

use bedform_codec::compress_zstd;
use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    Block, CommitId, Lane, RecordHead, RecordKind, Sealed, SealedCodec, Section, SectionBuilder,
    SectionPlace, SegmentHeader,
};

use super::{LentData, OrderCounter, ended, to_error};
use crate::error::{Error, ErrorKind, Result};
use crate::log::buffer::Buffer;
use crate::log::staged::{CommitReach, SegmentSink};

/// Bytes of a block that is cut from lent data.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that share a checksum: the least that a reader fetches and checks.
const CHECKED_BYTES: usize = 32 << 10;
/// Records begin at multiples of this many bytes.
const PADDED_TO: usize = 8;
/// Descriptions of at least this many bytes are worth a request of their own. To merge them with
/// others would save nothing, and keep the leader of the node busy while the other members wait.
const OWN_SECTION_BYTES: usize = 256 << 10;
/// Zstandard level for sections and directories, which are small and read often.
const LEVEL: i32 = 3;

/// An order of the writer.
pub(super) enum WriteOrder {
    /// Append a block of data.
    Block(Buffer),
    /// Append lent data as blocks, then drop them.
    Lent(LentData),
    /// Append the section of the blocks since the last one.
    Section(Box<SectionBuilder>, CommitId),
    /// Encode that section for another writer to append; append it here if it is large.
    Keep(Box<SectionBuilder>, CommitId),
    /// Append a section that joins kept ones.
    Whole(Box<Section>),
    /// Hand all data to the operating system.
    Flush(Sender<Result<()>>),
    /// Make all data durable, and return the new sections.
    Finish(CommitReach, Sender<Result<SyncOutcome>>),
    /// Hand all data to the operating system, sync them if true, and return the new sections.
    HandOver(bool, Sender<Result<SyncOutcome>>),
    /// Append a directory durably, and return its place; with a commit, promise that.
    Directory(Vec<u8>, CommitReach, Option<CommitId>, Sender<Result<RecordLocation>>),
}

/// The new sections of a segment after a sync or flush.
#[derive(Debug, Default)]
pub(in crate::log) struct SyncOutcome {
    /// The sections since the last answer.
    pub(in crate::log) sections: Vec<SectionPlace>,
    /// Encoded sections that another writer appends.
    pub(in crate::log) kept: Vec<Vec<u8>>,
    /// Bytes appended so far.
    pub(in crate::log) position: u64,
}

/// The location of a record in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct RecordLocation {
    /// The byte address of the record's head.
    pub(in crate::log) offset: u64,
    /// Bytes of the record.
    pub(in crate::log) stored_bytes: u64,
    /// Bytes of the body after decompression.
    pub(in crate::log) bytes: u64,
    pub(in crate::log) codec: SealedCodec,
    /// CRC-32C of the body as it is stored.
    pub(in crate::log) checksum: u32,
}

/// The file or lane of a segment, or its parts in a burst tier, with the writer's state.
pub(super) struct SegmentWriter {
    object: SegmentSink,
    lane: Lane,
    sequence: u64,
    limits: Limits,
    /// Blocks since the last section.
    blocks: Vec<Block>,
    /// Sections that no answer has named yet.
    sections: Vec<SectionPlace>,
    /// Encoded sections that another writer appends.
    kept: Vec<Vec<u8>>,
    /// Returns empty buffers to the writer.
    back: Sender<Buffer>,
}

impl SegmentWriter {
    pub(super) fn new(
        object: SegmentSink,
        lane: Lane,
        limits: Limits,
        back: Sender<Buffer>,
    ) -> Self {
        let (blocks, sections, kept) = (Vec::new(), Vec::new(), Vec::new());
        Self { object, lane, sequence: 0, limits, blocks, sections, kept, back }
    }

    /// Begins the segment with its header.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn begin(&mut self, header: &SegmentHeader) -> Result<()> {
        self.append_record(RecordKind::Header, &header.encode()).map(drop)
    }

    /// Begins the segment, and carries out orders until the writer ends or one fails.
    pub(super) fn run(
        mut self,
        header: &SegmentHeader,
        todo: &Receiver<WriteOrder>,
        progress: &OrderCounter,
    ) {
        let mut outcome = self.begin(header);
        while let (Ok(()), Ok(order)) = (&outcome, todo.recv()) {
            outcome = self.carry_out(order);
            if outcome.is_ok() {
                progress.count();
            }
        }
        // Set before the channel closes: a caller that waits for an answer reads it then.
        progress.end(outcome.err());
    }

    /// Carries out an order. An error goes to the caller if it waits for an answer, and ends the
    /// thread.
    pub(super) fn carry_out(&mut self, order: WriteOrder) -> Result<()> {
        match order {
            WriteOrder::Block(buffer) => {
                self.append_block(buffer.bytes())?;
                // The writer may have ended.
                let _ = self.back.send(buffer);
                Ok(())
            }
            WriteOrder::Lent(data) => {
                let data: &(dyn AsRef<[u8]> + Send) = &*data;
                data.as_ref().chunks(BLOCK_BYTES).try_for_each(|bytes| self.append_block(bytes))
            }
            WriteOrder::Section(builder, commit) => {
                let section = self.describe(*builder, commit);
                self.append_section(&section)
            }
            WriteOrder::Keep(builder, commit) => {
                let section = self.describe(*builder, commit);
                let body = section.encode(&self.limits).map_err(to_error)?;
                if body.len() >= OWN_SECTION_BYTES {
                    return self.append_encoded(&section, &body);
                }
                self.kept.push(body);
                Ok(())
            }
            WriteOrder::Whole(section) => self.append_section(&section),
            WriteOrder::Flush(reply) => answer(&reply, self.object.flush()),
            WriteOrder::Finish(reach, reply) => {
                let outcome = self.object.check().and_then(|()| self.object.sync(reach));
                answer(&reply, outcome.map(|()| self.finished()))
            }
            WriteOrder::HandOver(ahead, reply) => {
                let outcome = match ahead {
                    true => self.object.sync(CommitReach::Shared),
                    false => self.object.flush(),
                };
                answer(&reply, outcome.map(|()| self.finished()))
            }
            WriteOrder::Directory(body, reach, promised, reply) => {
                // A directory counts for recovery once it is written, so steps that may refuse the
                // promise come first.
                let ready = promised.map_or(Ok(()), |_| self.object.prepare_promise());
                let place = ready.and_then(|()| self.append_sealed(RecordKind::Directory, &body));
                let synced = place.and_then(|place| {
                    self.object.sync(reach)?;
                    promised.map_or(Ok(()), |commit| self.object.promise(commit, &place))?;
                    Ok(place)
                });
                answer(&reply, synced)
            }
        }
    }

    fn append_block(&mut self, bytes: &[u8]) -> Result<()> {
        let mut offset = self.append_record(RecordKind::Data, bytes)? + RecordHead::BYTES as u64;
        for part in bytes.chunks(CHECKED_BYTES) {
            let (length, checksum) = (part.len() as u64, crc32c(part));
            let block = Block { offset, stored_bytes: length, bytes: length, checksum, codec: 0 };
            self.blocks.push(block);
            offset += length;
        }
        Ok(())
    }

    fn finished(&mut self) -> SyncOutcome {
        SyncOutcome {
            sections: std::mem::take(&mut self.sections),
            kept: std::mem::take(&mut self.kept),
            position: self.object.position(),
        }
    }

    /// Returns the section of the blocks since the last one.
    fn describe(&mut self, mut builder: SectionBuilder, commit: CommitId) -> Section {
        self.blocks.drain(..).for_each(|block| builder.block(block));
        builder.finish(commit)
    }

    fn append_section(&mut self, section: &Section) -> Result<()> {
        let body = section.encode(&self.limits).map_err(to_error)?;
        self.append_encoded(section, &body)
    }

    /// Appends a section; `body` is its encoding.
    fn append_encoded(&mut self, section: &Section, body: &[u8]) -> Result<()> {
        let arrays = section.touched().map_err(to_error)?;
        let RecordLocation { offset, stored_bytes, bytes, .. } =
            self.append_sealed(RecordKind::Section, body)?;
        let rank_first = section.entries.iter().map(|entry| entry.rank).min().unwrap_or(0);
        let place = SectionPlace { segment: 0, offset, stored_bytes, bytes, rank_first, arrays };
        self.sections.push(place);
        Ok(())
    }

    fn append_sealed(&mut self, kind: RecordKind, body: &[u8]) -> Result<RecordLocation> {
        let packed = compress(body)?;
        let (stored, codec) = match packed.len() < body.len() {
            true => (packed.as_slice(), SealedCodec::Zstd),
            false => (body, SealedCodec::None),
        };
        let bytes = body.len() as u64;
        let mut whole = Sealed::new(stored, bytes, codec).encode_head().to_vec();
        whole.extend_from_slice(stored);
        let checksum = crc32c(&whole);
        let before = self.object.position();
        let offset = self.begin_record(kind, whole.len())?;
        // Padded even where no padding is needed, in the same call: the compressed length depends
        // on random keys, and the number of append calls must not.
        whole.resize(whole.len().next_multiple_of(PADDED_TO), 0);
        self.object.append(&whole)?;
        let stored_bytes = self.object.position() - before;
        Ok(RecordLocation { offset, stored_bytes, bytes, codec, checksum })
    }

    /// Appends a record, and returns the address of its head.
    fn append_record(&mut self, kind: RecordKind, body: &[u8]) -> Result<u64> {
        const ZEROS: [u8; PADDED_TO] = [0; PADDED_TO];
        let offset = self.begin_record(kind, body.len())?;
        self.object.append(body)?;
        let padding = body.len().next_multiple_of(PADDED_TO) - body.len();
        self.object.append(&ZEROS[..padding])?;
        Ok(offset)
    }

    /// Appends the head of a record, before its padded body, and returns its address.
    fn begin_record(&mut self, kind: RecordKind, body_bytes: usize) -> Result<u64> {
        let head = RecordHead { kind, body_bytes: body_bytes as u64, sequence: self.sequence };
        self.sequence += 1;
        let position = self.object.position();
        self.object.append(&head.encode())?;
        self.lane
            .address(position)
            .ok_or_else(|| Error::new(ErrorKind::NoSpace, "the lane of the segment is full"))
    }
}

/// Sends an answer; fails if it is an error, so that the thread ends.
fn answer<T>(reply: &Sender<Result<T>>, outcome: Result<T>) -> Result<()> {
    let failed = outcome.is_err();
    let _ = reply.send(outcome);
    if failed { Err(ended()) } else { Ok(()) }
}

fn compress(body: &[u8]) -> Result<Vec<u8>> {
    compress_zstd(body, LEVEL).map_err(Error::encoding)
}
