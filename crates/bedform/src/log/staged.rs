//! Segments that go through a burst tier: written there, and drained to the log.
//!
//! Both places get the same stream of bytes. In the tier it is cut into parts, so that drained
//! bytes can be removed while the segment grows: the tier may be smaller than the segment. A part
//! is removed once its bytes are durable in the log. A writer that finds the tier full waits for
//! that.
//!
//! At [`CommitReach::Node`] draining leaves the node's devices and cores to the writers. Data
//! without a commit are not drained while the writer is busy and half of the tier is free. Data of
//! a commit are not drained before it has returned, since other processes of the node may still be
//! writing theirs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use bedform_format::log::CommitId;
use bedform_storage::{Durability, GrowingObject, Lock, StorageErrorKind};

use super::burst::{Burst, BurstPlace};
use super::drain::{Create, Drain, DrainProgress, Drainer, PartRun};
use super::promises::Promises;
use super::segment::{LogObject, RecordLocation};
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of bytes of a part that are allocated ahead: other processes use the tier, too.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// The place in which data have to be durable before a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CommitReach {
    /// Durable where all nodes can read them.
    #[default]
    Shared,
    /// Durable in this node's burst tier. Once drained they are visible, and safe from the loss of
    /// the node.
    Node,
}

/// The target of a writer's appends: the log itself, or a burst tier.
pub(super) enum SegmentSink {
    Direct(LogObject),
    Burst(Box<BurstSegment>),
}

impl SegmentSink {
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Direct(object) => object.position(),
            Self::Burst(staged) => staged.position(),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Direct(object) => object.append(bytes),
            Self::Burst(staged) => staged.append(bytes),
        }
    }

    /// Makes all appended bytes durable, as far as `reach` demands.
    pub(super) fn sync(&mut self, reach: CommitReach) -> Result<()> {
        match (self, reach) {
            (Self::Direct(object), _) => object.sync(),
            (Self::Burst(staged), CommitReach::Node) => staged.sync_part(),
            (Self::Burst(staged), CommitReach::Shared) => staged.drain_all(),
        }
    }

    /// Prepares a promise except for its own bytes, so that little can fail once the directory of
    /// the commit is written.
    pub(super) fn prepare_promise(&mut self) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Burst(staged) => staged.prepare_promise(),
        }
    }

    /// Notes durably the promise of a commit whose directory lies durably at `place`.
    pub(super) fn promise(&mut self, commit: CommitId, place: &RecordLocation) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Burst(staged) => staged.promise(commit, place),
        }
    }

    /// Hands all appended bytes to the operating system.
    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Self::Direct(object) => object.flush(),
            Self::Burst(staged) => staged.flush(),
        }
    }

    /// Fails if earlier appends can no longer become visible. Bytes that a sync makes durable after
    /// this check are as good as promised.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Burst(staged) => staged.drain.check(),
        }
    }

    /// Returns the drain, which knows how much has been drained; `None` without a burst tier.
    pub(super) fn drain(&self) -> Option<Arc<Drain>> {
        match self {
            Self::Direct(_) => None,
            Self::Burst(staged) => Some(staged.drain.clone()),
        }
    }
}

/// A segment that goes through the burst tier.
pub(super) struct BurstSegment {
    place: BurstPlace,
    durability: Durability,
    /// The part that is appended to; `None` before its first byte.
    part: Option<Box<dyn GrowingObject>>,
    /// The position in the segment at which that part starts.
    start: u64,
    /// The ends of the parts that may still be in the tier.
    ends: VecDeque<u64>,
    /// The position of the first byte that the drain does not know yet.
    told: u64,
    drain: Arc<Drain>,
    part_bytes: u64,
    capacity: u64,
    hands: DrainExecutor,
    /// The writer's promises; `None` before the first.
    promises: Option<Promises>,
    _lock: Box<dyn Lock>,
}

/// The thread that drains.
enum DrainExecutor {
    Thread(JoinHandle<()>),
    /// The writer's own, when it waits for the drain.
    Own(Box<Drainer>),
    Nobody,
}

impl BurstSegment {
    /// Stages a segment; `create` creates it in the log.
    ///
    /// # Errors
    /// Those of the burst tier; `Io` if the system cannot start a thread.
    pub(super) fn new(
        burst: &Burst,
        place: BurstPlace,
        create: Create,
        reach: CommitReach,
    ) -> Result<Self> {
        // Not durable before something is promised, so that the first byte does not wait: a sync
        // may wait for all that other processes are writing.
        place.in_tier(place.name())?;
        let lock = place.in_tier(place.storage.lock(&place.directory))?;
        // Data that count only once they are drained need not survive a power cut here.
        let durability = match reach {
            CommitReach::Node => Durability::Disk,
            CommitReach::Shared => Durability::Process,
        };
        let drain = Drain::new(reach);
        let drainer = Drainer::new(place.clone(), create, drain.clone());
        let hands = if burst.in_background {
            let thread = Builder::new().name("bedform-drain".to_owned());
            let started = thread.spawn(move || drainer.run());
            DrainExecutor::Thread(started.map_err(|error| Error::no_thread(&error))?)
        } else {
            DrainExecutor::Own(Box::new(drainer))
        };
        Ok(Self {
            place,
            durability,
            part: None,
            start: 0,
            ends: VecDeque::new(),
            told: 0,
            drain,
            part_bytes: burst.part_bytes,
            capacity: burst.capacity_bytes.max(2 * burst.part_bytes),
            hands,
            promises: None,
            _lock: lock,
        })
    }

    fn position(&self) -> u64 {
        self.start + self.part.as_ref().map_or(0, |part| part.position())
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = self.part_bytes - (self.position() - self.start);
            let length = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at(length);
            let appended = self.part()?.append(now);
            self.place.in_tier(appended)?;
            bytes = later;
            if self.position() - self.start >= self.part_bytes {
                self.end_part()?;
            }
        }
        self.drain.count_appended(self.position());
        Ok(())
    }

    /// Returns the part that is appended to; a new one begins when there is room for it.
    fn part(&mut self) -> Result<&mut Box<dyn GrowingObject>> {
        if self.part.is_none() {
            self.make_room()?;
            let path = self.place.part(self.start)?;
            let storage = self.place.storage.clone();
            let hint = Some(self.part_bytes.min(AHEAD_BYTES_MAX));
            let mut part = storage.grow(&path, self.durability, hint);
            if part.as_ref().is_err_and(|error| error.kind == StorageErrorKind::NoSpace) {
                // Other processes may have filled the tier; draining frees this writer's own parts.
                self.wait_until_free(self.start)?;
                part = storage.grow(&path, self.durability, hint);
            }
            self.part = Some(self.place.in_tier(part)?);
        }
        self.part.as_mut().ok_or_else(|| Error::new(ErrorKind::Io, "no part"))
    }

    /// Waits until the tier has room for another part.
    fn make_room(&mut self) -> Result<()> {
        let free = self.capacity.saturating_sub(self.part_bytes);
        self.wait_until_free(self.start.saturating_sub(free))
    }

    /// Waits until the parts with the first `bytes` bytes, all of which have ended, are removed.
    fn wait_until_free(&mut self, bytes: u64) -> Result<()> {
        let before = self.ends.partition_point(|end| *end < bytes);
        let Some(end) = self.ends.get(before).copied().filter(|_| bytes > 0) else { return Ok(()) };
        self.drained(end, |done| done.freed)?;
        self.ends.drain(..=before);
        Ok(())
    }

    /// Ends the current part, as durably as the reach demands, and hands it to the drain.
    fn end_part(&mut self) -> Result<()> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        self.place.in_tier(part.sync())?;
        let end = self.start + part.position();
        let waits = end - self.drain.durable_bytes();
        self.tell(end, true, waits > self.capacity / 2);
        self.ends.push_back(end);
        self.start = end;
        Ok(())
    }

    /// Syncs the appended bytes, as durably as the reach demands, and hands them to the drain.
    fn sync_part(&mut self) -> Result<()> {
        let synced = self.part.as_mut().map_or(Ok(()), |part| part.sync());
        self.place.in_tier(synced)?;
        self.wait_for_name()?;
        let releases = !self.drain.is_held();
        self.tell(self.position(), false, releases);
        Ok(())
    }

    /// Waits until the tier durably names the store of the parts: without that, promises would be
    /// unknown.
    fn wait_for_name(&mut self) -> Result<()> {
        match &mut self.hands {
            DrainExecutor::Own(drainer) => drainer.name(),
            _ => self.drain.wait_for_name(),
        }
    }

    fn prepare_promise(&mut self) -> Result<()> {
        self.wait_for_name()?;
        self.promises = self.promises.take().or_else(|| self.drain.take_promises());
        Ok(())
    }

    /// Notes the promise of a commit, which [was prepared](Self::prepare_promise). The commit's
    /// directory is durable, so the commit may become visible even if this fails. A failed attempt
    /// is repeated once, in another file, when there is room.
    fn promise(&mut self, commit: CommitId, place: &RecordLocation) -> Result<()> {
        let known = self.drain.known();
        let Some(promises) = &mut self.promises else { return Ok(()) };
        let Err(error) = promises.add(commit, place, known) else { return Ok(()) };
        if error.kind() == ErrorKind::Poisoned {
            return self.place.in_tier(Err(error));
        }
        self.wait_until_free(self.start)?;
        let Some(promises) = &mut self.promises else { return Ok(()) };
        self.place.in_tier(promises.add(commit, place, known))
    }

    /// Waits until everything is durable in the log.
    fn drain_all(&mut self) -> Result<()> {
        match self.durability {
            // Little more data come soon: the part is drained while the caller goes on.
            Durability::Disk => self.end_part()?,
            Durability::Process => self.sync_part()?,
        }
        self.drained(self.position(), |done| done.durable)
    }

    fn flush(&mut self) -> Result<()> {
        self.drain.check()?;
        let flushed = self.part.as_mut().map_or(Ok(()), |part| part.flush());
        self.place.in_tier(flushed)
    }

    /// Hands the bytes up to `end` to the drain; with `releases` it drains them at once.
    fn tell(&mut self, end: u64, is_last: bool, releases: bool) {
        let run = PartRun { part: self.start, start: self.told, end, is_last };
        self.told = end;
        self.drain.tell(run, releases);
    }

    /// Waits until `reached` returns at least `bytes` for the progress of the drain.
    fn drained(&mut self, bytes: u64, reached: fn(&DrainProgress) -> u64) -> Result<()> {
        self.drain.check()?;
        if let DrainExecutor::Own(drainer) = &mut self.hands {
            drainer.run_waiting();
        }
        self.drain.wait_for(bytes, reached)
    }
}

impl Drop for BurstSegment {
    fn drop(&mut self) {
        self.part = None;
        self.drain.close();
        match std::mem::replace(&mut self.hands, DrainExecutor::Nobody) {
            DrainExecutor::Thread(thread) => {
                // Callers of `check` get the error of the thread; a panic there is ignored.
                let _ = thread.join();
            }
            DrainExecutor::Own(drainer) => {
                if self.drain.check().is_ok() {
                    drainer.run();
                }
            }
            DrainExecutor::Nobody => {}
        }
    }
}
