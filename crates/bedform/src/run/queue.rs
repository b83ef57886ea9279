//! The steps that a read has still to do: objects to open, and units of the opened objects.
//!
//! A thread that takes a unit or cell of a local file reads it itself. Requests to a server are
//! sent ahead, as far as the limits allow, and a thread takes a step only once its answer has come.
//! So a few threads keep many requests in flight.
//!
//! A thread that finds no step waits for the bell. The count of the bell is read before the queue,
//! so that no ring is missed. After the first error no thread takes another step; an interruption
//! also cancels the waits of the other threads. The caller's thread waits for a short time only,
//! and polls for cancellation in between.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::shard::Extent;
use bedform_storage::{ASK_EVERY, Answer, Bell, Bytes, Object, stopped_by};

use super::resolve::Unit;
use super::thread_policy::ThreadPolicy;
use crate::error::{Error, ErrorKind, Result};
use crate::source::PendingCell;
use crate::threads::workers::check_cancelled;

/// The most units that get readahead hints before they are read.
const AHEAD_MAX: usize = 256;
/// The most bytes of those units together.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// The queue of a read as its threads share it.
#[derive(Default)]
pub(super) struct SharedQueue {
    queue: Mutex<ReadQueue>,
    /// Rung when units were added, a planner finished, an answer came, a thread ended, or the read
    /// failed.
    pub(super) bell: Arc<Bell>,
    stopped: AtomicBool,
    /// Cancels the waits of the other threads.
    cut: Arc<AtomicBool>,
}

/// The queue of a read's remaining steps.
#[derive(Default)]
pub(super) struct ReadQueue {
    /// The number of cells of the plan, and of those taken or requested so far.
    cells: u64,
    next_cell: u64,
    units: VecDeque<QueuedUnit>,
    /// The number of units, from the front, that were hinted to the storage or requested from the
    /// server.
    ahead: usize,
    /// Cells whose objects were requested, or `None` if the thread that takes the cell opens it.
    openings: VecDeque<(u64, Option<PendingCell>)>,
    /// Bytes that were requested by the steps still in the queue.
    asked_bytes: u64,
    /// Threads that are opening an object and will add its units.
    planning: usize,
    error: Option<Error>,
}

/// A unit of the object of a cell.
pub(super) struct QueuedUnit {
    pub(super) object: Arc<dyn Object>,
    pub(super) cell: u64,
    pub(super) unit: Unit,
    /// The answers to the requests for its extents; empty if none was sent.
    pub(super) answers: Vec<Option<Answer<Bytes>>>,
}

/// One step of a read.
pub(super) enum ReadStep {
    Cell(u64, Option<PendingCell>),
    Unit(QueuedUnit),
}

/// Limits of the requests in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestLimits {
    pub(super) requests: usize,
    pub(super) bytes: u64,
}

impl QueuedUnit {
    pub(super) fn new(object: Arc<dyn Object>, cell: u64, unit: Unit) -> Self {
        Self { object, cell, unit, answers: Vec::new() }
    }

    /// Requests the extents that are not at hand; returns the number of requests.
    fn ask(&mut self, bell: &Arc<Bell>) -> usize {
        if self.unit.requests(&*self.object).0 == 0 {
            return 0;
        }
        let ask = |extent: &Extent| self.object.request(extent.offset, extent.length, bell);
        self.answers = self.unit.extents.iter().map(ask).collect();
        let asked = self.answers.iter().flatten().count();
        if asked == 0 {
            self.answers.clear();
        }
        asked
    }

    fn is_here(&self) -> bool {
        self.answers.iter().flatten().all(Answer::is_here)
    }

    /// Returns the bytes that were requested.
    fn asked_bytes(&self) -> u64 {
        if self.answers.is_empty() { 0 } else { self.unit.bytes() }
    }
}

impl ReadQueue {
    /// Returns true if the queue is empty and no thread will add to it.
    fn is_done(&self) -> bool {
        self.planning == 0 && self.openings.is_empty() && self.left() == 0
    }

    /// Returns the number of units and cells that no thread has taken, without requested cells.
    fn left(&self) -> u64 {
        self.units.len() as u64 + (self.cells - self.next_cell)
    }

    /// Sends requests for the next steps, as far as the limits allow: for units first, which are
    /// nearer to delivery. `open` requests the object of a cell. Returns the number of requests.
    pub(super) fn ask(
        &mut self,
        limits: RequestLimits,
        bell: &Arc<Bell>,
        open: &dyn Fn(u64) -> Option<PendingCell>,
    ) -> usize {
        let room = limits.requests.saturating_sub(self.on_their_way());
        let mut made = 0;
        while made < room && (self.asked_bytes == 0 || self.asked_bytes < limits.bytes) {
            if let Some(unit) = self.units.get_mut(self.ahead) {
                made += unit.ask(bell);
                self.asked_bytes += unit.asked_bytes();
                self.ahead += 1;
                continue;
            }
            if self.next_cell >= self.cells {
                break;
            }
            let opening = open(self.next_cell);
            made += usize::from(opening.is_some());
            let bytes = opening.as_ref().map(|opening| opening.bytes);
            self.asked_bytes += bytes.unwrap_or(0);
            self.openings.push_back((self.next_cell, opening));
            self.next_cell += 1;
            // A cell that a thread can open at once has units, which go first.
            if bytes.is_none() {
                break;
            }
        }
        made
    }

    /// Takes a unit or cell whose answers have come.
    pub(super) fn take_asked(&mut self) -> Option<ReadStep> {
        let mut units = self.units.iter().take(self.ahead);
        if let Some(at) = units.position(QueuedUnit::is_here) {
            self.ahead -= 1;
            let unit = self.units.remove(at)?;
            self.asked_bytes -= unit.asked_bytes();
            return Some(ReadStep::Unit(unit));
        }
        let is_here = |opening: &Option<PendingCell>| {
            opening.as_ref().is_none_or(|opening| opening.answer.is_here())
        };
        let at = self.openings.iter().position(|(_, opening)| is_here(opening))?;
        let (cell, opening) = self.openings.remove(at)?;
        self.asked_bytes -= opening.as_ref().map_or(0, |opening| opening.bytes);
        self.planning += 1;
        Some(ReadStep::Cell(cell, opening))
    }

    /// Takes the next unit or cell.
    pub(super) fn take_next(&mut self) -> Option<ReadStep> {
        if let Some(unit) = self.units.pop_front() {
            self.ahead = self.ahead.saturating_sub(1);
            return Some(ReadStep::Unit(unit));
        }
        if self.next_cell >= self.cells {
            return None;
        }
        self.next_cell += 1;
        self.planning += 1;
        Some(ReadStep::Cell(self.next_cell - 1, None))
    }

    fn on_their_way(&self) -> usize {
        let asked =
            self.units.iter().take(self.ahead).flat_map(|unit| unit.answers.iter().flatten());
        let openings = self.openings.iter().filter_map(|(_, opening)| opening.as_ref());
        asked.filter(|answer| !answer.is_here()).count()
            + openings.filter(|opening| !opening.answer.is_here()).count()
    }
}

impl SharedQueue {
    pub(super) fn new(cells: u64) -> Self {
        let queue = Mutex::new(ReadQueue { cells, ..ReadQueue::default() });
        Self { queue, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        // The scope reports a thread that panicked; the queue is always consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next step, which `take` takes from the queue; waits until there is one. Returns
    /// `None` once the calling thread is to end.
    pub(super) fn next(
        &self,
        is_caller: bool,
        threads: &ThreadPolicy<'_>,
        take: impl Fn(&mut ReadQueue) -> Option<ReadStep>,
    ) -> Option<ReadStep> {
        loop {
            if is_caller {
                self.poll();
            }
            let heard = self.bell.count();
            {
                let mut queue = self.lock();
                if self.stopped.load(Ordering::Relaxed) || (!is_caller && threads.are_too_many()) {
                    return None;
                }
                let step = take(&mut queue);
                if step.is_some() || queue.is_done() {
                    return step;
                }
            }
            threads.while_idle(|| self.bell.wait(heard, is_caller.then_some(ASK_EVERY)));
        }
    }

    /// Runs the work of a thread beyond the caller's, whose waits an interruption cancels.
    pub(super) fn interruptible(&self, work: impl FnOnce()) {
        stopped_by(&self.cut, work);
    }

    /// Polls for cancellation; a cancelled read fails.
    fn poll(&self) {
        if let Err(error) = check_cancelled("the read was stopped") {
            self.fail(error);
        }
    }

    /// Polls for cancellation while the other threads end.
    pub(super) fn wait_for_others(&self, threads: &ThreadPolicy<'_>) {
        loop {
            let heard = self.bell.count();
            if threads.is_alone() {
                return;
            }
            self.bell.wait(heard, Some(ASK_EVERY));
            self.poll();
        }
    }

    /// Ends the read with `error`, unless another error was first.
    pub(super) fn fail(&self, error: Error) {
        if error.kind() == ErrorKind::Interrupted {
            self.cut.store(true, Ordering::Relaxed);
        }
        let mut queue = self.lock();
        queue.error.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
        drop(queue);
        self.bell.ring();
    }

    /// Returns the first error of the read.
    pub(super) fn finish(self) -> Result<()> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        queue.error.map_or(Ok(()), Err)
    }

    pub(super) fn add(&self, units: Vec<QueuedUnit>, threads: &ThreadPolicy<'_>) {
        threads.note_unit(units.iter().map(|queued| queued.unit.bytes()).max().unwrap_or(0));
        self.lock().units.extend(units);
        self.bell.ring();
    }

    /// Returns the number of units and cells that no thread has taken.
    pub(super) fn left(&self) -> u64 {
        self.lock().left()
    }

    /// Returns the extents of the next units, to read ahead. Scattered units are read past the page
    /// cache.
    pub(super) fn next_extents(
        &self,
        threads: &ThreadPolicy<'_>,
    ) -> Vec<(Arc<dyn Object>, Vec<Extent>)> {
        let mut queue = self.lock();
        let mut left = AHEAD_BYTES_MAX;
        let within = |queued: &&QueuedUnit| {
            let fits = left > 0;
            left = left.saturating_sub(queued.unit.bytes());
            fits
        };
        let end = queue.units.iter().take(AHEAD_MAX).take_while(within).count();
        // In large steps, because each one walks the queue.
        if queue.ahead > end / 2 {
            return Vec::new();
        }
        let start = std::mem::replace(&mut queue.ahead, end);
        let units = queue.units.range(start..end);
        if units.clone().any(|queued| queued.unit.is_scattered()) {
            threads.note_hint(false);
        }
        let units = units.filter(|queued| !queued.unit.is_scattered());
        units.map(|queued| (queued.object.clone(), queued.unit.extents.clone())).collect()
    }
}

/// A guard that counts a planner out and wakes the threads that wait for its units, even after a
/// failure or panic.
pub(super) struct PlanningGuard<'q>(pub(super) &'q SharedQueue);

impl Drop for PlanningGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().planning -= 1;
        self.0.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::result::Result;

    use bedform_storage::{AnswerSender, StorageError, Version, lacks};

    use crate::run::queue::*;

    /// An object of 1000 bytes that keeps the senders of its answers.
    #[derive(Default)]
    struct Promising {
        version: Version,
        promises: Mutex<Vec<(u64, AnswerSender<Bytes>)>>,
    }

    impl std::fmt::Debug for Promising {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("Promising")
        }
    }

    impl Object for Promising {
        fn version(&self) -> &Version {
            &self.version
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), StorageError> {
            unreachable!("nobody waits")
        }

        fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
            assert_eq!(length, 10);
            let (answer, promise) = Answer::new(bell.clone());
            self.promises.lock().unwrap().push((offset, promise));
            Some(answer)
        }

        fn is_current(&self) -> Result<bool, StorageError> {
            Ok(true)
        }

        lacks!(read_past, read_ahead, read_resident, buffered_range, buffered_bytes, kept);
    }

    impl Promising {
        fn keep(&self, offset: u64) {
            let mut promises = self.promises.lock().unwrap();
            let at = promises.iter().position(|(of, _)| *of == offset).unwrap();
            promises.remove(at).1.keep(Ok(Bytes::from(vec![0; 10])));
        }
    }

    fn queue_of(object: &Arc<Promising>, units: u64) -> ReadQueue {
        let unit = |number: u64| {
            let extents = vec![Extent { offset: number * 10, length: 10 }];
            QueuedUnit::new(object.clone(), 0, Unit { extents, ..Unit::default() })
        };
        ReadQueue { units: (0..units).map(unit).collect(), ..ReadQueue::default() }
    }

    fn offset_of(work: Option<ReadStep>) -> Option<u64> {
        match work? {
            ReadStep::Unit(unit) => Some(unit.unit.extents[0].offset),
            _ => panic!("a cell"),
        }
    }

    #[test]
    fn what_has_come_is_taken_and_no_more_is_asked_for_than_the_limits_allow() {
        let (object, bell) = (Arc::<Promising>::default(), Arc::default());
        let mut queue = queue_of(&object, 6);
        let limits = RequestLimits { requests: 3, bytes: 1000 };
        let none = |_| unreachable!("no cells");
        assert_eq!(queue.ask(limits, &bell, &none), 3);
        assert_eq!(queue.ask(limits, &bell, &none), 0);
        assert!(queue.take_asked().is_none());
        object.keep(20);
        assert_eq!(queue.ask(limits, &bell, &none), 1, "one is no longer on its way");
        assert_eq!(offset_of(queue.take_asked()), Some(20));
        assert!(queue.take_asked().is_none());
        for offset in [30, 10, 0] {
            object.keep(offset);
        }
        let taken: Vec<_> = std::iter::from_fn(|| offset_of(queue.take_asked())).collect();
        assert_eq!(taken, [0, 10, 30]);
        assert!(!queue.is_done());
        assert_eq!(queue.ask(limits, &bell, &none), 2);
        object.keep(40);
        object.keep(50);
        assert_eq!([0; 2].map(|_| offset_of(queue.take_asked())), [Some(40), Some(50)]);
        assert!(queue.is_done());
    }

    #[test]
    fn what_has_come_and_was_not_taken_counts_as_memory() {
        let (object, bell) = (Arc::<Promising>::default(), Arc::default());
        let mut queue = queue_of(&object, 6);
        let limits = RequestLimits { requests: 100, bytes: 20 };
        let none = |_| unreachable!("no cells");
        assert_eq!(queue.ask(limits, &bell, &none), 2);
        object.keep(0);
        object.keep(10);
        assert_eq!(queue.ask(limits, &bell, &none), 0);
        assert!(queue.take_asked().is_some());
        assert_eq!(queue.ask(limits, &bell, &none), 1);
        // One unit is requested, however large it is.
        let mut queue = queue_of(&object, 2);
        assert_eq!(queue.ask(RequestLimits { requests: 9, bytes: 1 }, &bell, &none), 1);
    }

    #[test]
    fn an_object_that_somebody_can_open_at_once_is_opened_before_more_are_asked_for() {
        let bell = Arc::default();
        let mut queue = ReadQueue { cells: 5, ..ReadQueue::default() };
        let promises = Mutex::new(Vec::new());
        let open = |cell| {
            let (answer, promise) = Answer::new(Arc::clone(&bell));
            promises.lock().unwrap().push(promise);
            (cell != 2).then_some(PendingCell { answer, bytes: 1 })
        };
        let limits = RequestLimits { requests: 100, bytes: 1000 };
        assert_eq!(queue.ask(limits, &bell, &open), 2);
        assert!(matches!(queue.take_asked(), Some(ReadStep::Cell(2, None))));
        assert!(queue.take_asked().is_none());
        assert_eq!(queue.ask(limits, &bell, &open), 2);
        promises.lock().unwrap().pop().unwrap().keep(Ok(None));
        assert!(matches!(queue.take_asked(), Some(ReadStep::Cell(4, Some(_)))));
        assert!(!queue.is_done());
    }
}
