//! The file, or lane of one, that one writer appends to.
//!
//! A thread of its own checks and appends, so that computing and writing overlap: `docs/log.md`.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use bedform_format::checksum::crc32c;
use bedform_format::log::{
    Block, CommitId, Lane, RecordHead, RecordKind, Sealed, SealedCodec, Section, SectionBuilder,
    SectionPlace, SegmentHeader, SegmentName,
};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Durability, GrowingObject, Lock};

use super::buffer::{Buffer, Buffers};
use super::burst::{Burst, BurstPlace};
use super::drain::Drain;
use super::place::LogPlace;
use super::session::prepare_log_early;
use super::staged::{Reach, Sink, Staged};
use crate::comm::COORDINATOR;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Shared;

/// Bytes of a block of data that somebody holds.
const BLOCK_BYTES: usize = 1 << 20;
/// Bytes that have a checksum of their own: what a reader of a few bytes fetches and checks.
const CHECKED_BYTES: usize = 32 << 10;
/// Descriptions from this size on are worth a request of their own: putting them together with others
/// would save nothing, and keep the leader of the node busy while everybody waits.
const OWN_SECTION_BYTES: usize = 256 << 10;
/// Zstandard's level for sections and directories: they are small, and read often.
const LEVEL: i32 = 3;

/// Data that somebody holds until they are written.
pub type Held = Box<dyn AsRef<[u8]> + Send>;

/// What the thread is to do next.
enum Order {
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
    /// Hand everything to the system, and say what there is.
    HandOver(Sender<Result<Finished>>),
    /// Append a directory, durably, and say where its head is.
    Directory(Vec<u8>, Reach, Sender<Result<Place>>),
}

/// What is durable of a segment.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// The sections since the last time.
    pub(super) sections: Vec<SectionPlace>,
    /// Sections that were kept, encoded.
    pub(super) kept: Vec<Vec<u8>>,
    /// Bytes of the segment.
    pub(super) position: u64,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The address of the record's head.
    pub(super) offset: u64,
    /// Bytes of the record.
    pub(super) stored_bytes: u64,
    /// Bytes of the body when it is decompressed.
    pub(super) bytes: u64,
    pub(super) codec: SealedCodec,
}

/// A directory on its way.
pub(super) struct Placing(Receiver<Result<Place>>);

/// What is becoming durable.
pub(super) struct Finishing(Receiver<Result<Finished>>);

/// A segment that is written.
pub(super) struct Segment {
    name: String,
    orders: Option<SyncSender<Order>>,
    /// What carries out orders where no thread does.
    own: Option<Box<File>>,
    /// Orders given so far.
    given: u64,
    spare: Receiver<Buffer>,
    buffers: Buffers,
    progress: Arc<Progress>,
    /// What the burst tier has passed on; nothing without one.
    drain: Option<Arc<Drain>>,
    thread: Option<JoinHandle<()>>,
    /// The file as the system knows it; nothing of it where the drain makes it.
    identity: (u64, u64),
    /// Tells others that somebody still writes here; held by the writer of the first lane, or by the
    /// drain.
    _lock: Option<Box<dyn Lock>>,
}

/// What the thread has done.
#[derive(Default)]
struct Progress {
    state: Mutex<Done>,
    changed: Condvar,
}

#[derive(Default)]
struct Done {
    orders: u64,
    ended: bool,
    failure: Option<Error>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Done> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) {
        self.lock().orders += 1;
        self.changed.notify_all();
    }

    fn end(&self, failure: Option<Error>) {
        let mut done = self.lock();
        (done.ended, done.failure) = (true, failure);
        self.changed.notify_all();
    }
}

/// What a segment is, and how it is written.
pub(super) struct SegmentOptions {
    pub(super) header: SegmentHeader,
    pub(super) share: Share,
    pub(super) durability: Durability,
    /// Bounds the blocks that wait to be written.
    pub(super) buffer_bytes: usize,
    pub(super) limits: Limits,
    /// What it goes through, and how far data have to get before a commit.
    pub(super) burst: Option<Burst>,
    pub(super) reach: Reach,
    /// Of the store, whose lock is held while the segment begins.
    pub(super) shared: Arc<Shared>,
    /// A thread of its own does the work.
    pub(super) in_background: bool,
}

/// Which lane of which segment is a writer's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) name: SegmentName,
    pub(super) lane: Lane,
    /// The file as the writer of the first lane knows it; nothing on that one.
    pub(super) identity: Option<(u64, u64)>,
}

/// A segment in the log, as one writer has it.
pub(super) struct LogFile {
    pub(super) object: Box<dyn GrowingObject>,
    /// The file as the system knows it.
    identity: (u64, u64),
    /// Tells others that somebody still writes here; of the writer of the first lane.
    lock: Option<Box<dyn Lock>>,
}

impl LogFile {
    /// Creates the segment, or opens it to write to another lane than the first.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if it is not the file that the writer of the first lane made.
    fn create(
        shared: &Shared,
        place: &LogPlace,
        share: Share,
        durability: Durability,
    ) -> Result<Self> {
        let Share { name, lane, identity: expected } = share;
        let name = name.to_string();
        let path = LogPlace::segment_path(&name)?;
        // Who removes the log holds it, too, and would take a segment that just begins with it.
        let _lock = match expected {
            None => Some(shared.lock(&ObjectPath::root())?),
            // The leader of the node has begun it.
            Some(_) => None,
        };
        if expected.is_none() {
            shared.remove_stale_roots(place)?;
        }
        let object = place.storage.grow_lane(&path, lane, durability)?;
        let lock = match expected {
            None => Some(place.storage.lock(&LogPlace::segment_directory(&name)?)?),
            Some(_) => None,
        };
        // Between these two calls it may have been taken for a segment that nobody writes.
        let identity = place.storage.stat(&path)?.identity;
        if expected.is_some_and(|expected| expected != identity) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the processes of this node see {} through different mounts, and one cannot sync \
                     what the other wrote: give them the same mount, or host names of their own",
                    place.name()
                ),
            ));
        }
        Ok(Self { object, identity, lock })
    }
}

impl Segment {
    /// Creates the segment of a writer, or opens it to write to another lane than the first.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if it is not the file that the writer of the first lane made;
    /// `Io` if the system has no thread to give.
    pub(super) fn create(place: &LogPlace, options: SegmentOptions) -> Result<Self> {
        let (share, lane) = (options.share, options.share.lane);
        let name = share.name.to_string();
        let (shared, durability) = (options.shared, options.durability);
        let (sink, identity, lock) = match &options.burst {
            None => {
                let file = LogFile::create(&shared, place, share, durability)?;
                (Sink::Direct(file.object), file.identity, file.lock)
            }
            Some(burst) => {
                let staging = BurstPlace::of(burst, place, &name)?;
                let staging = match options.reach {
                    Reach::Node => staging.with_promises(),
                    Reach::Shared => staging,
                };
                let log = place.clone();
                let coordinates = options.header.rank == COORDINATOR;
                let promises = (options.reach == Reach::Node).then(|| (name.clone(), burst.note()));
                // The writer does not wait for the slow tier.
                let create = move || {
                    let file = LogFile::create(&shared, &log, share, durability)?;
                    if let Some((name, tier)) = promises {
                        log.note_tier(&name, &tier)?;
                    }
                    if coordinates {
                        prepare_log_early(&shared, &log)?;
                    }
                    Ok(file)
                };
                let staged = Staged::new(burst, staging, Box::new(create), options.reach)?;
                (Sink::Staged(Box::new(staged)), (0, 0), None)
            }
        };
        let drain = sink.drain();
        let buffers = Buffers::new(options.buffer_bytes);
        let (orders, todo) = sync_channel(buffers.count(options.buffer_bytes));
        let (back, spare) = channel();
        let progress = Arc::<Progress>::default();
        let file = File {
            object: sink,
            lane,
            sequence: 0,
            limits: options.limits,
            blocks: Vec::new(),
            sections: Vec::new(),
            kept: Vec::new(),
            back,
        };
        let (header, done) = (options.header, progress.clone());
        let mut segment = Self {
            name,
            orders: None,
            own: None,
            given: 0,
            spare,
            buffers,
            progress,
            drain,
            thread: None,
            identity,
            _lock: lock,
        };
        if !options.in_background {
            let mut own = Box::new(file);
            own.append_record(RecordKind::Header, &header.encode())?;
            segment.own = Some(own);
            return Ok(segment);
        }
        let thread = Builder::new()
            .name("bedform-log".to_owned())
            .spawn(move || file.run(&header, &todo, &done))
            .map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot start a thread: {error}"))
            })?;
        (segment.orders, segment.thread) = (Some(orders), Some(thread));
        Ok(segment)
    }

    /// The file as the system knows it.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// The name of the segment.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Orders given so far: what [`Segment::wait`] counts in.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Memory for a block, empty.
    pub(super) fn buffer(&mut self) -> Buffer {
        let spare = self.spare.try_recv();
        let mut buffer = spare.unwrap_or_else(|_| self.buffers.make());
        buffer.clear();
        buffer
    }

    /// Appends a block of data, in the background: waits only while too many others do.
    ///
    /// # Errors
    /// What an earlier order failed with.
    pub(super) fn append(&mut self, block: Buffer) -> Result<()> {
        self.send(Order::Block(block))
    }

    /// As [`Segment::append`], for data of any size that are let go when they are written.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn append_held(&mut self, data: Held) -> Result<()> {
        self.send(Order::Held(data))
    }

    /// Appends what the blocks since the last section mean, in the background.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn section(&mut self, builder: SectionBuilder, commit: CommitId) -> Result<()> {
        self.send(Order::Section(Box::new(builder), commit))
    }

    /// Keeps what the blocks since the last section mean, for [`Segment::hand_over`].
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn keep(&mut self, builder: SectionBuilder, commit: CommitId) -> Result<()> {
        self.send(Order::Keep(Box::new(builder), commit))
    }

    /// Appends a section whose data lie anywhere in the segment, in the background.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn whole(&mut self, section: Section) -> Result<()> {
        self.send(Order::Whole(Box::new(section)))
    }

    /// Waits until everything is handed to the system, and says what there is, with what was kept.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn hand_over(&mut self) -> Result<Finished> {
        let (reply, answer) = channel();
        self.send(Order::HandOver(reply))?;
        answer.recv().unwrap_or_else(|_| Err(self.failure()))
    }

    /// Waits until everything is handed to the system.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn flush(&mut self) -> Result<()> {
        let (reply, answer) = channel();
        self.send(Order::Flush(reply))?;
        answer.recv().unwrap_or_else(|_| Err(self.failure()))
    }

    /// Bytes that have reached the log itself, durably.
    pub(super) fn drained_bytes(&self) -> u64 {
        self.drain.as_ref().map_or(u64::MAX, |drain| drain.durable_bytes())
    }

    /// What takes the segment through the burst tier; nothing without one.
    pub(super) fn drain(&self) -> Option<&Arc<Drain>> {
        self.drain.as_ref()
    }

    /// Waits until everything is durable, as far as `reach` says, and says what there is.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn finish(&mut self, reach: Reach) -> Result<Finished> {
        let finishing = self.begin_finish(reach)?;
        self.finished(&finishing)
    }

    /// As [`Segment::finish`], in the background: [`Segment::finished`] waits.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn begin_finish(&mut self, reach: Reach) -> Result<Finishing> {
        let (reply, answer) = channel();
        self.send(Order::Finish(reach, reply))?;
        Ok(Finishing(answer))
    }

    /// Waits until what was to be durable is, and says what there is.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn finished(&self, finishing: &Finishing) -> Result<Finished> {
        finishing.0.recv().unwrap_or_else(|_| Err(self.failure()))
    }

    /// Appends a directory, in the background: [`Segment::placed`] waits until it is durable, as far
    /// as `reach` says.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn directory(&mut self, body: Vec<u8>, reach: Reach) -> Result<Placing> {
        let (reply, answer) = channel();
        self.send(Order::Directory(body, reach, reply))?;
        Ok(Placing(answer))
    }

    /// Waits until a directory is durable, and says where it is.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn placed(&self, placing: &Placing) -> Result<Place> {
        placing.0.recv().unwrap_or_else(|_| Err(self.failure()))
    }

    /// Waits until the first `count` orders are carried out.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn wait(&self, count: u64) -> Result<()> {
        let mut done = self.progress.lock();
        while done.orders < count {
            if done.ended {
                return Err(done.failure.take().unwrap_or_else(ended));
            }
            done = self.progress.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn send(&mut self, order: Order) -> Result<()> {
        match (&self.orders, &mut self.own) {
            (Some(orders), _) => orders.send(order).map_err(|_| self.failure())?,
            (None, Some(own)) => {
                let outcome = own.carry_out(order);
                if let Err(error) = outcome {
                    // Whoever waits for an answer has it, and nothing more is written.
                    self.own = None;
                    self.progress.end(Some(error));
                } else {
                    self.progress.count();
                }
            }
            (None, None) => return Err(self.failure()),
        }
        self.given += 1;
        Ok(())
    }

    /// Why the thread has stopped: said in full once.
    fn failure(&self) -> Error {
        self.progress.lock().failure.take().unwrap_or_else(ended)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has nobody to tell: what was not committed is gone either way.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct File {
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
    back: Sender<Buffer>,
}

impl File {
    fn run(mut self, header: &SegmentHeader, todo: &Receiver<Order>, progress: &Progress) {
        let mut outcome = self.append_record(RecordKind::Header, &header.encode()).map(drop);
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
    fn carry_out(&mut self, order: Order) -> Result<()> {
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
            Order::HandOver(reply) => {
                let outcome = self.object.flush();
                answer(&reply, outcome.map(|()| self.finished()))
            }
            Order::Directory(body, reach, reply) => {
                let place = self.append_sealed(RecordKind::Directory, &body);
                let synced = place.and_then(|place| {
                    self.object.sync(reach)?;
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
        let packed = zstd_safe_compress(body)?;
        let (stored, codec) = match packed.len() < body.len() {
            true => (packed.as_slice(), SealedCodec::Zstd),
            false => (body, SealedCodec::None),
        };
        let bytes = body.len() as u64;
        let mut whole = Sealed::new(stored, bytes, codec).encode_head().to_vec();
        whole.extend_from_slice(stored);
        let before = self.object.position();
        let offset = self.append_record(kind, &whole)?;
        Ok(Place { offset, stored_bytes: self.object.position() - before, bytes, codec })
    }

    /// Appends a record; gives the address of its head.
    fn append_record(&mut self, kind: RecordKind, body: &[u8]) -> Result<u64> {
        const ZEROS: [u8; 8] = [0; 8];
        let head = RecordHead { kind, body_bytes: body.len() as u64, sequence: self.sequence };
        self.sequence += 1;
        let position = self.object.position();
        self.object.append(&head.encode())?;
        self.object.append(body)?;
        self.object.append(&ZEROS[..(8 - body.len() % 8) % 8])?;
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

/// What everybody but the first hears of a failure.
fn ended() -> Error {
    Error::new(
        ErrorKind::Poisoned,
        "an earlier write to the log failed; what was committed before stands: start a new session",
    )
}

/// The error of something that cannot become bytes of a log.
pub(super) fn to_error(error: bedform_format::log::LogError) -> Error {
    Error::invalid(error.to_string())
}

fn zstd_safe_compress(body: &[u8]) -> Result<Vec<u8>> {
    let mut packed = vec![0; zstd_safe::compress_bound(body.len())];
    let count = zstd_safe::compress(packed.as_mut_slice(), body, LEVEL)
        .map_err(|code| Error::invalid(zstd_safe::get_error_name(code)))?;
    packed.truncate(count);
    Ok(packed)
}
