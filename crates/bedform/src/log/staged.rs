//! A segment that goes through the burst tier: appended there, and drained to its place behind that.
//!
//! The stream of bytes is the same in both. In the burst tier it is cut into parts, so that what has
//! been drained can be removed while the segment grows: the tier may be smaller than what is written.
//! A part is removed when its bytes are durable in the log. A writer that finds the tier full waits for
//! that; what the tier cannot take at all goes to the log directly.
//!
//! Who waits for the tier alone gets all of the node: what no commit has yet is not drained while the
//! writer is busy and half of the tier is free; nor is what a commit has, before it has returned: other
//! processes of the node may still be writing their parts of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use bedform_format::log::CommitId;
use bedform_storage::{Durability, GrowingObject, Lock, StorageErrorKind};

use super::burst::{Burst, BurstPlace};
use super::drain::{Create, Done, Drain, Drainer, Run};
use super::promises::Promises;
use super::segment::{LogObject, Place};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a part that are set aside at once: the tier is everybody's.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// How far data have to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Reach {
    /// Durable where all nodes can read them.
    #[default]
    Shared,
    /// Durable in this node's burst tier; visible, and safe from the loss of the node, when they are
    /// drained.
    Node,
}

/// What a writer appends its segment to.
pub(super) enum Sink {
    Direct(LogObject),
    Staged(Box<Staged>),
}

impl Sink {
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Direct(object) => object.position(),
            Self::Staged(staged) => staged.position(),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Direct(object) => object.append(bytes),
            Self::Staged(staged) => staged.append(bytes),
        }
    }

    /// Makes everything appended durable, as far as `reach` says.
    pub(super) fn sync(&mut self, reach: Reach) -> Result<()> {
        match (self, reach) {
            (Self::Direct(object), _) => object.sync(),
            (Self::Staged(staged), Reach::Node) => staged.sync_part(),
            (Self::Staged(staged), Reach::Shared) => staged.drain_all(),
        }
    }

    /// Has all that a promise needs but its own bytes, so that little can fail when the directory of the commit
    /// is written.
    pub(super) fn prepare_promise(&mut self) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Staged(staged) => staged.prepare_promise(),
        }
    }

    /// Notes durably that a commit is promised whose directory lies durably at `place`.
    pub(super) fn promise(&mut self, commit: CommitId, place: &Place) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Staged(staged) => staged.promise(commit, place),
        }
    }

    /// Hands everything appended to the system.
    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Self::Direct(object) => object.flush(),
            Self::Staged(staged) => staged.flush(),
        }
    }

    /// Fails if what was appended before cannot become visible any more. What a sync makes durable
    /// after that is as good as promised, whatever happens meanwhile.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Staged(staged) => staged.drain.check(),
        }
    }

    /// What says how much has been drained; nothing without a burst tier.
    pub(super) fn drain(&self) -> Option<Arc<Drain>> {
        match self {
            Self::Direct(_) => None,
            Self::Staged(staged) => Some(staged.drain.clone()),
        }
    }
}

/// A segment on its way through the burst tier.
pub(super) struct Staged {
    place: BurstPlace,
    durability: Durability,
    /// The part that is appended to, and where it starts; nothing at the start of one.
    part: Option<Box<dyn GrowingObject>>,
    start: u64,
    /// Where the parts end that may still be in the tier.
    ends: VecDeque<u64>,
    /// The first byte that the drain has not been told of.
    told: u64,
    drain: Arc<Drain>,
    part_bytes: u64,
    capacity: u64,
    hands: Hands,
    /// What notes promises; nothing before the first.
    promises: Option<Promises>,
    _lock: Box<dyn Lock>,
}

/// Who drains.
enum Hands {
    Thread(JoinHandle<()>),
    /// The writer itself, when it waits for it.
    Own(Box<Drainer>),
    Nobody,
}

impl Staged {
    /// Stages a segment that will lie in the log where `create` makes it.
    ///
    /// # Errors
    /// Those of the burst tier; `Io` if the system has no thread to give.
    pub(super) fn new(
        burst: &Burst,
        place: BurstPlace,
        create: Create,
        reach: Reach,
    ) -> Result<Self> {
        // Durably when something is promised, and not before the first byte: a sync of it may wait for
        // all that other processes are writing.
        place.in_tier(place.name())?;
        let lock = place.in_tier(place.storage.lock(&place.directory))?;
        // What counts only when it is drained need not survive a power cut here.
        let durability = match reach {
            Reach::Node => Durability::Disk,
            Reach::Shared => Durability::Process,
        };
        let drain = Drain::new(reach);
        let drainer = Drainer::new(place.clone(), create, drain.clone());
        let hands = if burst.in_background {
            let thread = Builder::new().name("bedform-drain".to_owned());
            let started = thread.spawn(move || drainer.run());
            Hands::Thread(started.map_err(|error| Error::no_thread(&error))?)
        } else {
            Hands::Own(Box::new(drainer))
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

    /// The part that is appended to; a new one begins when there is room for it.
    fn part(&mut self) -> Result<&mut Box<dyn GrowingObject>> {
        if self.part.is_none() {
            self.make_room()?;
            let path = self.place.part(self.start)?;
            let storage = self.place.storage.clone();
            let hint = Some(self.part_bytes.min(AHEAD_BYTES_MAX));
            let mut part = storage.grow(&path, self.durability, hint);
            if part.as_ref().is_err_and(|error| error.kind == StorageErrorKind::NoSpace) {
                // Others may have filled it; our own share comes free when it is drained.
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

    /// Waits until the parts that have the first `bytes` bytes, all of which have ended, are gone.
    fn wait_until_free(&mut self, bytes: u64) -> Result<()> {
        let before = self.ends.partition_point(|end| *end < bytes);
        let Some(end) = self.ends.get(before).copied().filter(|_| bytes > 0) else { return Ok(()) };
        self.drained(end, |done| done.freed)?;
        self.ends.drain(..=before);
        Ok(())
    }

    /// Ends the part that is appended to, durably where that counts.
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

    /// Hands what was appended to the system, durably where that counts, and to the drain.
    fn sync_part(&mut self) -> Result<()> {
        let synced = self.part.as_mut().map_or(Ok(()), |part| part.sync());
        self.place.in_tier(synced)?;
        self.wait_for_name()?;
        let releases = !self.drain.is_held();
        self.tell(self.position(), false, releases);
        Ok(())
    }

    /// What is promised here has to be known as that of its store.
    fn wait_for_name(&mut self) -> Result<()> {
        match &mut self.hands {
            Hands::Own(drainer) => drainer.name(),
            _ => self.drain.wait_for_name(),
        }
    }

    fn prepare_promise(&mut self) -> Result<()> {
        self.wait_for_name()?;
        self.promises = self.promises.take().or_else(|| self.drain.take_promises());
        Ok(())
    }

    /// Notes that a commit is promised, which [was prepared](Self::prepare_promise). Its directory is durable,
    /// so it may become visible whatever this says: what fails is tried once more, in another file, when
    /// there is room.
    fn promise(&mut self, commit: CommitId, place: &Place) -> Result<()> {
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
            // Little more comes soon: the part goes while the caller goes on.
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

    /// Tells the drain of the bytes up to `end`, and whether it is to begin with them.
    fn tell(&mut self, end: u64, is_last: bool, releases: bool) {
        let run = Run { part: self.start, start: self.told, end, is_last };
        self.told = end;
        self.drain.tell(run, releases);
    }

    /// Waits until the drain has `reached` the first `bytes` bytes.
    fn drained(&mut self, bytes: u64, reached: fn(&Done) -> u64) -> Result<()> {
        self.drain.check()?;
        if let Hands::Own(drainer) = &mut self.hands {
            drainer.run_waiting();
        }
        self.drain.wait_for(bytes, reached)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.part = None;
        self.drain.close();
        match std::mem::replace(&mut self.hands, Hands::Nobody) {
            Hands::Thread(thread) => {
                // It says what it failed with to whoever asks; a panic there has nobody to tell.
                let _ = thread.join();
            }
            Hands::Own(drainer) => {
                if self.drain.check().is_ok() {
                    drainer.run();
                }
            }
            Hands::Nobody => {}
        }
    }
}
