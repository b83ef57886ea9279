//! Segments as their writers see them: the file, or lane of a file, that one writer appends to.
//!
//! The writer sends orders through a bounded channel. A background thread computes checksums and
//! appends, so that computing and writing overlap; without that thread the caller carries out its
//! orders itself. `docs/log-explained.md` explains the order of writes.

mod file;

use crate::log::opened::OpenedStore;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_format::log::{CommitId, Lane, Section, SectionBuilder, SegmentHeader, SegmentName};
use bedform_storage::{ASK_EVERY, GracePeriod, GrowingObject, Lock, StorageError, stopped_by};

pub(super) use self::file::{RecordLocation, SyncOutcome};
use self::file::{SegmentWriter, WriteOrder};
use super::buffer::{Buffer, BufferFactory};
use super::burst::{Burst, BurstPlace};
use super::drain::Drain;
use super::place::LogPlace;
use super::session::prepare_log_early;
use super::staged::{BurstSegment, CommitReach, SegmentSink};
use crate::comm::COORDINATOR;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::threads::workers;

/// Time between attempts to send an order to a busy thread, where waits poll for cancellation.
const FULL: Duration = Duration::from_millis(1);

/// Data that the caller lends until they are written.
pub type LentData = Box<dyn AsRef<[u8]> + Send>;

/// The pending answer to [`Segment::directory`].
pub(super) struct PendingDirectory(Receiver<Result<RecordLocation>>);

/// The pending answer to [`Segment::begin_finish`] or [`Segment::begin_hand_over`].
pub(super) struct PendingSync(Receiver<Result<SyncOutcome>>);

/// A segment that one writer appends to.
pub(super) struct Segment {
    name: String,
    orders: Option<SyncSender<WriteOrder>>,
    /// The file, if the caller carries out its orders itself, without a background thread.
    own: Option<Box<SegmentWriter>>,
    /// Number of orders given so far.
    given: u64,
    spare: Receiver<Buffer>,
    buffers: BufferFactory,
    progress: Arc<OrderCounter>,
    /// Progress of draining from the burst tier; `None` without one.
    drain: Option<Arc<Drain>>,
    thread: Option<JoinHandle<()>>,
    /// Ends the waits of that thread.
    stop: Arc<AtomicBool>,
    /// True for remote storage: waits poll for cancellation.
    listens: bool,
    /// Device and inode number of the file; zeros where the drain creates it.
    identity: (u64, u64),
    /// The lock that tells others that the segment is in use. The writer of the first lane holds
    /// it, or the drain.
    _lock: Option<Box<dyn Lock>>,
}

/// Progress of the background thread, and the condition variable for waits.
#[derive(Default)]
struct OrderCounter {
    state: Mutex<OrderProgress>,
    changed: Condvar,
}

#[derive(Default)]
struct OrderProgress {
    orders: u64,
    ended: bool,
    failure: Option<Error>,
}

impl OrderCounter {
    fn lock(&self) -> MutexGuard<'_, OrderProgress> {
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

/// Parameters of a new segment.
pub(super) struct SegmentOptions {
    pub(super) header: SegmentHeader,
    pub(super) share: LaneShare,
    /// Bytes of blocks that may wait to be written.
    pub(super) buffer_bytes: usize,
    /// The burst tier that the segment goes through.
    pub(super) burst: Option<Burst>,
    /// How far data have to get before a commit returns.
    pub(super) reach: CommitReach,
    /// The store, whose lock is held while the segment begins.
    pub(super) store: Arc<OpenedStore>,
    /// True if a background thread does the work.
    pub(super) in_background: bool,
}

/// The segment and lane that a writer appends to.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneShare {
    pub(super) name: SegmentName,
    pub(super) lane: Lane,
    /// Device and inode number of the file as the writer of the first lane knows it; `None` for
    /// that writer.
    pub(super) identity: Option<(u64, u64)>,
}

/// A segment's object in the log, with the log's name for messages: storage only knows paths within
/// the log.
pub(super) struct LogObject {
    object: Box<dyn GrowingObject>,
    log: String,
}

impl LogObject {
    pub(super) fn position(&self) -> u64 {
        self.object.position()
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let outcome = self.object.append(bytes);
        self.named(outcome)
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        let outcome = self.object.sync();
        self.named(outcome)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        let outcome = self.object.flush();
        self.named(outcome)
    }

    fn named(&self, outcome: std::result::Result<(), StorageError>) -> Result<()> {
        outcome.map_err(|error| Error::from(error).at(&self.log))
    }
}

/// A segment's file in the log, as one writer opened it.
pub(super) struct LogFile {
    pub(super) object: LogObject,
    /// Device and inode number of the file.
    identity: (u64, u64),
    /// The lock that tells others that the segment is in use; only for the writer of the first
    /// lane.
    lock: Option<Box<dyn Lock>>,
}

impl LogFile {
    /// Creates the segment, or opens it to write to a lane other than the first. Commits may be
    /// promised through `tier`.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if the file is not the one that the writer of the first lane
    /// created.
    fn create(
        store: &OpenedStore,
        place: &LogPlace,
        share: LaneShare,
        tier: Option<&str>,
    ) -> Result<Self> {
        let LaneShare { name, lane, identity: expected } = share;
        let name = name.to_string();
        let path = LogPlace::segment_path(&name)?;
        // The removal of the log takes the same lock; otherwise it could remove a segment that just
        // begins.
        let _lock = match expected {
            None => Some(store.lock(&ObjectPath::root())?),
            // The leader of the node has created the segment.
            Some(_) => None,
        };
        if expected.is_none() {
            store.remove_stale_roots(place)?;
        }
        if let Some(tier) = tier {
            // Noted before the segment exists: without the note recovery expects no promises in the
            // tier.
            place.note_tier(&name, tier)?;
        }
        let object = place.named(place.storage.grow_lane(&path, lane, store.options.durability))?;
        let lock = match expected {
            None => Some(place.named(place.storage.lock(&LogPlace::segment_directory(&name)?))?),
            Some(_) => None,
        };
        // Before it was locked, another process may have removed it as abandoned: then `stat`
        // fails.
        let identity = place.named(place.storage.stat(&path))?.identity;
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
        let object = LogObject { object, log: place.name() };
        Ok(Self { object, identity, lock })
    }
}

impl Segment {
    /// Creates the segment of a writer, or opens it to write to a lane other than the first.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if the file is not the one that the writer of the first lane
    /// created; `Io` if the system cannot start a thread.
    pub(super) fn create(place: &LogPlace, options: SegmentOptions) -> Result<Self> {
        let (share, lane) = (options.share, options.share.lane);
        let name = share.name.to_string();
        let store = options.store;
        let limits = store.options.limits.clone();
        let (sink, identity, lock) = match &options.burst {
            None => {
                let file = LogFile::create(&store, place, share, None)?;
                (SegmentSink::Direct(file.object), file.identity, file.lock)
            }
            Some(burst) => {
                let staging = BurstPlace::of(burst, place, &name)?;
                let coordinates = options.header.rank == COORDINATOR;
                let (staging, tier) = match options.reach {
                    CommitReach::Node => {
                        (staging.with_promises(options.header, coordinates), Some(burst.note()))
                    }
                    CommitReach::Shared => (staging, None),
                };
                let log = place.clone();
                // The drain calls this, so that the writer does not wait for the slow tier.
                let create = move || {
                    let tier = tier.as_deref();
                    let file = LogFile::create(&store, &log, share, tier)?;
                    if coordinates {
                        prepare_log_early(&store, &log)?;
                    }
                    Ok(file)
                };
                let staged = BurstSegment::new(burst, staging, Box::new(create), options.reach)?;
                (SegmentSink::Burst(Box::new(staged)), (0, 0), None)
            }
        };
        let drain = sink.drain();
        let buffer_bytes =
            memory::granted(options.buffer_bytes as u64, BufferFactory::LEAST_BYTES)?;
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(options.buffer_bytes);
        let buffers = BufferFactory::new(buffer_bytes);
        let (orders, todo) = sync_channel(buffers.count(buffer_bytes));
        let (back, spare) = channel();
        let progress = Arc::<OrderCounter>::default();
        let file = SegmentWriter::new(sink, lane, limits, back);
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
            stop: Arc::default(),
            listens: place.storage.is_remote(),
            identity,
            _lock: lock,
        };
        if !options.in_background {
            let mut own = Box::new(file);
            own.begin(&header)?;
            segment.own = Some(own);
            return Ok(segment);
        }
        let stop = segment.stop.clone();
        let thread = Builder::new()
            .name("bedform-log".to_owned())
            .spawn(move || stopped_by(&stop, || file.run(&header, &todo, &done)))
            .map_err(|error| Error::no_thread(&error))?;
        (segment.orders, segment.thread) = (Some(orders), Some(thread));
        Ok(segment)
    }

    /// Returns the device and inode number of the file.
    pub(super) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns the name of the segment.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of orders given so far: [`Segment::wait`] counts in orders.
    pub(super) fn given(&self) -> u64 {
        self.given
    }

    /// Returns an empty buffer for a block. If the process may use no more memory, it waits for a
    /// block that is being written.
    ///
    /// # Errors
    /// `LimitExceeded` if no block is being written either; `Interrupted`.
    pub(super) fn buffer(&mut self) -> Result<Buffer> {
        let spare = self.spare.try_recv();
        let mut buffer = match spare.or_else(|_| self.buffers.make()) {
            Err(error) if self.buffers.are_many() => workers::answer(&self.spare)?.ok_or(error)?,
            made => made?,
        };
        buffer.clear();
        Ok(buffer)
    }

    /// Appends a block of data in the background. Waits only while too many orders are queued.
    ///
    /// # Errors
    /// The error of an earlier order.
    pub(super) fn append(&mut self, block: Buffer) -> Result<()> {
        self.send(WriteOrder::Block(block))
    }

    /// As [`Segment::append`], for lent data of any size, which are dropped once they are written.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn append_held(&mut self, data: LentData) -> Result<()> {
        self.send(WriteOrder::Lent(data))
    }

    /// Appends the section of the blocks since the last one, in the background.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn section(&mut self, builder: SectionBuilder, commit: CommitId) -> Result<()> {
        self.send(WriteOrder::Section(Box::new(builder), commit))
    }

    /// Keeps the section of the blocks since the last one, for [`Segment::hand_over`].
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn keep(&mut self, builder: SectionBuilder, commit: CommitId) -> Result<()> {
        self.send(WriteOrder::Keep(Box::new(builder), commit))
    }

    /// Appends a section whose data lie anywhere in the segment, in the background.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn whole(&mut self, section: Section) -> Result<()> {
        self.send(WriteOrder::Whole(Box::new(section)))
    }

    /// Waits until all data are handed to the operating system. Returns the new sections, with
    /// those that were kept.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn hand_over(&mut self) -> Result<SyncOutcome> {
        let finishing = self.begin_hand_over(false)?;
        self.finished(&finishing)
    }

    /// As [`Segment::hand_over`], in the background: [`Segment::finished`] waits. With `ahead` the
    /// data are also synced, so that the later sync of another writer finds little to do.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn begin_hand_over(&mut self, ahead: bool) -> Result<PendingSync> {
        let (reply, answer) = channel();
        self.send(WriteOrder::HandOver(ahead, reply))?;
        Ok(PendingSync(answer))
    }

    /// Waits until all data are handed to the operating system.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn flush(&mut self) -> Result<()> {
        let (reply, answer) = channel();
        self.send(WriteOrder::Flush(reply))?;
        self.answer(&answer)
    }

    /// Returns how many bytes are durable in the log itself; `u64::MAX` without a burst tier.
    pub(super) fn drained_bytes(&self) -> u64 {
        self.drain.as_ref().map_or(u64::MAX, |drain| drain.durable_bytes())
    }

    /// Returns the drain from the burst tier; `None` without one.
    pub(super) fn drain(&self) -> Option<&Arc<Drain>> {
        self.drain.as_ref()
    }

    /// Waits until all data are durable as far as `reach` demands, and returns the new sections.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn finish(&mut self, reach: CommitReach) -> Result<SyncOutcome> {
        let finishing = self.begin_finish(reach)?;
        self.finished(&finishing)
    }

    /// As [`Segment::finish`], in the background: [`Segment::finished`] waits.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn begin_finish(&mut self, reach: CommitReach) -> Result<PendingSync> {
        let (reply, answer) = channel();
        self.send(WriteOrder::Finish(reach, reply))?;
        Ok(PendingSync(answer))
    }

    /// Waits for a pending answer, and returns the new sections.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn finished(&self, finishing: &PendingSync) -> Result<SyncOutcome> {
        self.answer(&finishing.0)
    }

    /// Appends a directory in the background. [`Segment::placed`] waits until it is durable as far
    /// as `reach` demands and, with `promised`, until that commit is promised.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn directory(
        &mut self,
        body: Vec<u8>,
        reach: CommitReach,
        promised: Option<CommitId>,
    ) -> Result<PendingDirectory> {
        let (reply, answer) = channel();
        self.send(WriteOrder::Directory(body, reach, promised, reply))?;
        Ok(PendingDirectory(answer))
    }

    /// Waits until a directory is durable, and returns its place.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn placed(&self, placing: &PendingDirectory) -> Result<RecordLocation> {
        self.answer(&placing.0)
    }

    /// Waits until the first `count` orders are carried out.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn wait(&self, count: u64) -> Result<()> {
        let (mut done, mut grace) = (self.progress.lock(), GracePeriod::default());
        while done.orders < count {
            if done.ended {
                return Err(done.failure.take().unwrap_or_else(ended));
            }
            let waited = self.progress.changed.wait_timeout(done, ASK_EVERY);
            let (now, is_late) = waited.unwrap_or_else(PoisonError::into_inner);
            done = now;
            if self.listens && is_late.timed_out() {
                drop(done);
                if grace.is_over() {
                    return Err(workers::stopped());
                }
                done = self.progress.lock();
            }
        }
        Ok(())
    }

    /// Waits for an answer of the thread.
    fn answer<T>(&self, answers: &Receiver<Result<T>>) -> Result<T> {
        let answer = match self.listens {
            true => workers::answer(answers)?,
            false => answers.recv().ok(),
        };
        answer.unwrap_or_else(|| Err(self.failure()))
    }

    /// Sends an order to the thread; waits while too many are queued.
    fn enqueue(&self, orders: &SyncSender<WriteOrder>, mut order: WriteOrder) -> Result<()> {
        if !self.listens {
            return orders.send(order).map_err(|_| self.failure());
        }
        let mut grace = GracePeriod::default();
        loop {
            order = match orders.try_send(order) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(self.failure()),
                Err(TrySendError::Full(order)) => order,
            };
            std::thread::sleep(FULL);
            if grace.is_over() {
                return Err(workers::stopped());
            }
        }
    }

    fn send(&mut self, order: WriteOrder) -> Result<()> {
        match (&self.orders, &mut self.own) {
            (Some(orders), _) => self.enqueue(orders, order)?,
            (None, Some(own)) => {
                let outcome = own.carry_out(order);
                if let Err(error) = outcome {
                    // A caller that waits for an answer has got the error; nothing more is written.
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

    /// Returns the reason why the thread has stopped; the full error only once.
    fn failure(&self) -> Error {
        self.progress.lock().failure.take().unwrap_or_else(ended)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.orders = None;
        // The remaining orders belong to no commit.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is ignored: data without a commit are lost either way.
            let _ = thread.join();
        }
    }
}

/// Returns the error of all calls after the one that reported the failure.
fn ended() -> Error {
    Error::new(
        ErrorKind::Poisoned,
        "an earlier write to the log failed; what was committed before stands: start a new session",
    )
}

/// Returns the error of a value that cannot be encoded for the log.
pub(super) fn to_error(error: bedform_format::log::LogError) -> Error {
    Error::invalid(error.to_string())
}
