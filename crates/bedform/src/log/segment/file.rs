//! The thread's side of a segment: it checks, describes and appends what it is told to.

use std::sync::mpsc::{Receiver, Sender};

use bedform_codec::compress_zstd;
use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    Block, CommitId, Lane, RecordHead, RecordKind, Sealed, SealedCodec, Section, SectionBuilder,
    SectionPlace, SegmentHeader,
};

use super::{Held, Progress, ended, to_error};
use crate::error::{Error, ErrorKind, Result};
use crate::log::buffer::Buffer;
use crate::log::staged::{Reach, Sink};

/// Bytes of a block of data that somebody holds.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that have a checksum of their own: what a reader of a few bytes fetches and checks.
const CHECKED_BYTES: usize = 32 << 10;
/// Records begin at multiples of so many bytes.
const PADDED_TO: usize = 8;
/// Descriptions from this size on are worth a request of their own: putting them together with others
/// would save nothing, and keep the leader of the node busy while everybody waits.
const OWN_SECTION_BYTES: usize = 256 << 10;
/// Zstandard's level for sections and directories: they are small, and read often.
const LEVEL: i32 = 3;

/// What the thread is to do next.
pub(super) enum Order {
    /// Append a block of data.
    Block(Buffer),
    /// Append data as blocks, and let go of them.
    Held(Held),
    /// Say what the blocks since the last section mean.
    Section(Box<SectionBuilder>, CommitId),
    /// Keep that, for others to write, unless it is large.
    Keep(Box<SectionBuilder>, CommitId),
    /// Append what others have kept, put together.
    Whole(Box<Section>),
    /// Hand everything to the system.
    Flush(Sender<Result<()>>),
    /// Make everything durable, and say what there is.
    Finish(Reach, Sender<Result<Finished>>),
    /// Hand everything to the system, sync it if that is asked for, and say what there is.
    HandOver(bool, Sender<Result<Finished>>),
    /// Append a directory, durably, and say where its head is; with a commit, promise that.
    Directory(Vec<u8>, Reach, Option<CommitId>, Sender<Result<Place>>),
}

/// What is durable of a segment.
#[derive(Debug, Default)]
pub(in crate::log) struct Finished {
    /// The sections since the last time.
    pub(in crate::log) sections: Vec<SectionPlace>,
    /// Sections that were kept, encoded.
    pub(in crate::log) kept: Vec<Vec<u8>>,
    /// Bytes of the segment.
    pub(in crate::log) position: u64,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Place {
    /// The address of the record's head.
    pub(in crate::log) offset: u64,
    /// Bytes of the record.
    pub(in crate::log) stored_bytes: u64,
    /// Bytes of the body when it is decompressed.
    pub(in crate::log) bytes: u64,
    pub(in crate::log) codec: SealedCodec,
    /// CRC-32C of the body as it is stored.
    pub(in crate::log) checksum: u32,
}

/// A segment's file, or lane of one, or what a burst tier has for it.
pub(super) struct File {
    object: Sink,
    lane: Lane,
    sequence: u64,
    limits: Limits,
    /// Blocks since the last section.
    blocks: Vec<Block>,
    /// Sections that nobody has been told of.
    sections: Vec<SectionPlace>,
    /// Sections that somebody else is to write.
    kept: Vec<Vec<u8>>,
    /// Where buffers go that are empty again.
    back: Sender<Buffer>,
}

impl File {
    pub(super) fn new(object: Sink, lane: Lane, limits: Limits, back: Sender<Buffer>) -> Self {
        let (blocks, sections, kept) = (Vec::new(), Vec::new(), Vec::new());
        Self { object, lane, sequence: 0, limits, blocks, sections, kept, back }
    }

    /// Begins the segment.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn begin(&mut self, header: &SegmentHeader) -> Result<()> {
        self.append_record(RecordKind::Header, &header.encode()).map(drop)
    }

    /// Begins the segment, and carries out orders until there are no more, or one fails.
    pub(super) fn run(
        mut self,
        header: &SegmentHeader,
        todo: &Receiver<Order>,
        progress: &Progress,
    ) {
        let mut outcome = self.begin(header);
        while let (Ok(()), Ok(order)) = (&outcome, todo.recv()) {
            outcome = self.carry_out(order);
            if outcome.is_ok() {
                progress.count();
            }
        }
        // Set before the channel closes: whoever waits for an answer then looks here.
        progress.end(outcome.err());
    }

    /// Does what is asked. An error goes to whoever asked, if somebody waits for an answer, and ends
    /// the thread.
    pub(super) fn carry_out(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Block(buffer) => {
                self.append_block(buffer.bytes())?;
                // Nobody may want it any more.
                let _ = self.back.send(buffer);
                Ok(())
            }
            Order::Held(data) => {
                let data: &(dyn AsRef<[u8]> + Send) = &*data;
                data.as_ref().chunks(BLOCK_BYTES).try_for_each(|bytes| self.append_block(bytes))
            }
            Order::Section(builder, commit) => {
                let section = self.describe(*builder, commit);
                self.append_section(&section)
            }
            Order::Keep(builder, commit) => {
                let section = self.describe(*builder, commit);
                let body = section.encode(&self.limits).map_err(to_error)?;
                if body.len() >= OWN_SECTION_BYTES {
                    return self.append_encoded(&section, &body);
                }
                self.kept.push(body);
                Ok(())
            }
            Order::Whole(section) => self.append_section(&section),
            Order::Flush(reply) => answer(&reply, self.object.flush()),
            Order::Finish(reach, reply) => {
                let outcome = self.object.check().and_then(|()| self.object.sync(reach));
                answer(&reply, outcome.map(|()| self.finished()))
            }
            Order::HandOver(ahead, reply) => {
                let outcome = match ahead {
                    true => self.object.sync(Reach::Shared),
                    false => self.object.flush(),
                };
                answer(&reply, outcome.map(|()| self.finished()))
            }
            Order::Directory(body, reach, promised, reply) => {
                // Once a directory is written, whoever recovers finds it: what may refuse a promise comes before.
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

    fn finished(&mut self) -> Finished {
        Finished {
            sections: std::mem::take(&mut self.sections),
            kept: std::mem::take(&mut self.kept),
            position: self.object.position(),
        }
    }

    /// What the blocks since the last section mean.
    fn describe(&mut self, mut builder: SectionBuilder, commit: CommitId) -> Section {
        self.blocks.drain(..).for_each(|block| builder.block(block));
        builder.finish(commit)
    }

    fn append_section(&mut self, section: &Section) -> Result<()> {
        let body = section.encode(&self.limits).map_err(to_error)?;
        self.append_encoded(section, &body)
    }

    /// Appends a section, of which `body` are the bytes.
    fn append_encoded(&mut self, section: &Section, body: &[u8]) -> Result<()> {
        let arrays = section.touched().map_err(to_error)?;
        let Place { offset, stored_bytes, bytes, .. } =
            self.append_sealed(RecordKind::Section, body)?;
        let rank_first = section.entries.iter().map(|entry| entry.rank).min().unwrap_or(0);
        let place = SectionPlace { segment: 0, offset, stored_bytes, bytes, rank_first, arrays };
        self.sections.push(place);
        Ok(())
    }

    fn append_sealed(&mut self, kind: RecordKind, body: &[u8]) -> Result<Place> {
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
        // With its padding, whether it needs any or not: into how many bytes something is compressed depends
        // on keys that were drawn by lot, and in how many calls it is appended must not.
        whole.resize(whole.len().next_multiple_of(PADDED_TO), 0);
        self.object.append(&whole)?;
        let stored_bytes = self.object.position() - before;
        Ok(Place { offset, stored_bytes, bytes, codec, checksum })
    }

    /// Appends a record; gives the address of its head.
    fn append_record(&mut self, kind: RecordKind, body: &[u8]) -> Result<u64> {
        const ZEROS: [u8; PADDED_TO] = [0; PADDED_TO];
        let offset = self.begin_record(kind, body.len())?;
        self.object.append(body)?;
        let padding = body.len().next_multiple_of(PADDED_TO) - body.len();
        self.object.append(&ZEROS[..padding])?;
        Ok(offset)
    }

    /// Appends the head of a record, whose padded body is to follow; gives its address.
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

/// Gives an answer, and says whether to go on.
fn answer<T>(reply: &Sender<Result<T>>, outcome: Result<T>) -> Result<()> {
    let failed = outcome.is_err();
    let _ = reply.send(outcome);
    if failed { Err(ended()) } else { Ok(()) }
}

fn compress(body: &[u8]) -> Result<Vec<u8>> {
    compress_zstd(body, LEVEL).map_err(Error::encoding)
}
