//! The file, or lane of one, that one writer appends to.
//!
//! A thread of its own checks and appends, so that computing and writing overlap: `docs/log-explained.md`.

mod file;

use crate::log::opened::OpenedStore;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bedform_format::log::{CommitId, Lane, Section, SectionBuilder, SegmentHeader, SegmentName};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{
    ASK_EVERY, Durability, Grace, GrowingObject, Lock, StorageError, stopped_by,
};

use self::file::{File, Order};
pub(super) use self::file::{Finished, Place};
use super::buffer::{Buffer, Buffers};
use super::burst::{Burst, BurstPlace};
use super::drain::Drain;
use super::place::LogPlace;
use super::session::prepare_log_early;
use super::staged::{Reach, Sink, Staged};
use crate::comm::COORDINATOR;
use crate::error::{Error, ErrorKind, Result};
use crate::memory;
use crate::threads::workers;

/// How often the thread is asked whether it takes more, where that is listened to.
const FULL: Duration = Duration::from_millis(1);

/// Data that somebody holds until they are written.
pub type Held = Box<dyn AsRef<[u8]> + Send>;

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
    /// Ends the waits of that thread.
    stop: Arc<AtomicBool>,
    /// A server takes what is written: who waits for that is asked whether it is to go on.
    listens: bool,
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
    pub(super) store: Arc<OpenedStore>,
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

/// What is appended to in the log, with the log's name: storage knows objects as the log does.
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

/// A segment in the log, as one writer has it.
pub(super) struct LogFile {
    pub(super) object: LogObject,
    /// The file as the system knows it.
    identity: (u64, u64),
    /// Tells others that somebody still writes here; of the writer of the first lane.
    lock: Option<Box<dyn Lock>>,
}

impl LogFile {
    /// Creates the segment, or opens it to write to another lane than the first. Commits may be promised
    /// through `tier`.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if it is not the file that the writer of the first lane made.
    fn create(
        store: &OpenedStore,
        place: &LogPlace,
        share: Share,
        durability: Durability,
        tier: Option<&str>,
    ) -> Result<Self> {
        let Share { name, lane, identity: expected } = share;
        let name = name.to_string();
        let path = LogPlace::segment_path(&name)?;
        // Who removes the log holds it, too, and would take a segment that just begins with it.
        let _lock = match expected {
            None => Some(store.lock(&ObjectPath::root())?),
            // The leader of the node has begun it.
            Some(_) => None,
        };
        if expected.is_none() {
            store.remove_stale_roots(place)?;
        }
        if let Some(tier) = tier {
            // Before the segment is there: without the note nothing would be expected of it.
            place.note_tier(&name, tier)?;
        }
        let object = place.named(place.storage.grow_lane(&path, lane, durability))?;
        let lock = match expected {
            None => Some(place.named(place.storage.lock(&LogPlace::segment_directory(&name)?))?),
            Some(_) => None,
        };
        // Between these two calls it may have been taken for a segment that nobody writes.
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
    /// Creates the segment of a writer, or opens it to write to another lane than the first.
    ///
    /// # Errors
    /// Those of storage; `Unsupported` if it is not the file that the writer of the first lane made;
    /// `Io` if the system has no thread to give.
    pub(super) fn create(place: &LogPlace, options: SegmentOptions) -> Result<Self> {
        let (share, lane) = (options.share, options.share.lane);
        let name = share.name.to_string();
        let (store, durability) = (options.store, options.durability);
        let (sink, identity, lock) = match &options.burst {
            None => {
                let file = LogFile::create(&store, place, share, durability, None)?;
                (Sink::Direct(file.object), file.identity, file.lock)
            }
            Some(burst) => {
                let staging = BurstPlace::of(burst, place, &name)?;
                let coordinates = options.header.rank == COORDINATOR;
                let (staging, tier) = match options.reach {
                    Reach::Node => {
                        (staging.with_promises(options.header, coordinates), Some(burst.note()))
                    }
                    Reach::Shared => (staging, None),
                };
                let log = place.clone();
                // The writer does not wait for the slow tier.
                let create = move || {
                    let tier = tier.as_deref();
                    let file = LogFile::create(&store, &log, share, durability, tier)?;
                    if coordinates {
                        prepare_log_early(&store, &log)?;
                    }
                    Ok(file)
                };
                let staged = Staged::new(burst, staging, Box::new(create), options.reach)?;
                (Sink::Staged(Box::new(staged)), (0, 0), None)
            }
        };
        let drain = sink.drain();
        let buffer_bytes = memory::granted(options.buffer_bytes as u64, Buffers::LEAST_BYTES)?;
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(options.buffer_bytes);
        let buffers = Buffers::new(buffer_bytes);
        let (orders, todo) = sync_channel(buffers.count(buffer_bytes));
        let (back, spare) = channel();
        let progress = Arc::<Progress>::default();
        let file = File::new(sink, lane, options.limits, back);
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

    /// Memory for a block, empty. Waits for what is being written where the process may take no more.
    ///
    /// # Errors
    /// `LimitExceeded` if there is none to wait for either; `Interrupted`.
    pub(super) fn buffer(&mut self) -> Result<Buffer> {
        let spare = self.spare.try_recv();
        let mut buffer = match spare.or_else(|_| self.buffers.make()) {
            Err(error) if self.buffers.are_many() => workers::answer(&self.spare)?.ok_or(error)?,
            made => made?,
        };
        buffer.clear();
        Ok(buffer)
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
        let finishing = self.begin_hand_over(false)?;
        self.finished(&finishing)
    }

    /// As [`Segment::hand_over`], in the background: [`Segment::finished`] waits. What is `ahead` of the sync of
    /// another writer is synced, too, so that that one finds little to do.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn begin_hand_over(&mut self, ahead: bool) -> Result<Finishing> {
        let (reply, answer) = channel();
        self.send(Order::HandOver(ahead, reply))?;
        Ok(Finishing(answer))
    }

    /// Waits until everything is handed to the system.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn flush(&mut self) -> Result<()> {
        let (reply, answer) = channel();
        self.send(Order::Flush(reply))?;
        self.answer(&answer)
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
        self.answer(&finishing.0)
    }

    /// Appends a directory, in the background: [`Segment::placed`] waits until it is durable, as far
    /// as `reach` says, and the commit is promised, if one is to be.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn directory(
        &mut self,
        body: Vec<u8>,
        reach: Reach,
        promised: Option<CommitId>,
    ) -> Result<Placing> {
        let (reply, answer) = channel();
        self.send(Order::Directory(body, reach, promised, reply))?;
        Ok(Placing(answer))
    }

    /// Waits until a directory is durable, and says where it is.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn placed(&self, placing: &Placing) -> Result<Place> {
        self.answer(&placing.0)
    }

    /// Waits until the first `count` orders are carried out.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub(super) fn wait(&self, count: u64) -> Result<()> {
        let (mut done, mut grace) = (self.progress.lock(), Grace::default());
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

    /// What the thread answers.
    fn answer<T>(&self, answers: &Receiver<Result<T>>) -> Result<T> {
        let answer = match self.listens {
            true => workers::answer(answers)?,
            false => answers.recv().ok(),
        };
        answer.unwrap_or_else(|| Err(self.failure()))
    }

    /// Gives the thread something to do, as soon as it has not too much.
    fn hand_in(&self, orders: &SyncSender<Order>, mut order: Order) -> Result<()> {
        if !self.listens {
            return orders.send(order).map_err(|_| self.failure());
        }
        let mut grace = Grace::default();
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

    fn send(&mut self, order: Order) -> Result<()> {
        match (&self.orders, &mut self.own) {
            (Some(orders), _) => self.hand_in(orders, order)?,
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
        // What it still does was not committed.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has nobody to tell: what was not committed is gone either way.
            let _ = thread.join();
        }
    }
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
