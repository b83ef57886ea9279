//! The steps that a read has still to do: objects to open, and units of the opened objects.
//!
//! A thread that takes a unit or cell of a local file reads it itself. Requests to a server are
//! sent ahead, as far as the limits allow, and a thread takes a step only once its answer has come.
//! So a few threads keep many requests in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use bedform_format::shard::Extent;
use bedform_storage::{Answer, Bell, Bytes, Object};

use crate::error::Error;
use crate::run::resolve::Unit;
use crate::source::PendingCell;

/// The queue of a read's remaining steps.
#[derive(Default)]
pub(crate) struct ReadQueue {
    pub(crate) next_cell: u64,
    pub(crate) units: VecDeque<QueuedUnit>,
    /// The number of units, from the front, that were hinted to the storage or requested from the
    /// server.
    pub(crate) ahead: usize,
    /// Cells whose objects were requested, or `None` if the thread that takes the cell opens it.
    openings: VecDeque<(u64, Option<PendingCell>)>,
    /// Bytes that were requested by the steps still in the queue.
    asked_bytes: u64,
    /// Threads that are opening an object and will add its units.
    pub(crate) planning: usize,
    pub(crate) error: Option<Error>,
}

/// A unit of the object of a cell.
pub(crate) struct QueuedUnit {
    pub(crate) object: Arc<dyn Object>,
    pub(crate) cell: u64,
    pub(crate) unit: Unit,
    /// The answers to the requests for its extents; empty if none was sent.
    pub(crate) answers: Vec<Option<Answer<Bytes>>>,
}

/// One step of a read.
pub(crate) enum ReadStep {
    Cell(u64, Option<PendingCell>),
    Unit(QueuedUnit),
    /// A chance to poll for cancellation.
    Nothing,
    Done,
}

/// Limits of the requests in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) requests: usize,
    pub(crate) bytes: u64,
}

impl QueuedUnit {
    pub(crate) fn new(object: Arc<dyn Object>, cell: u64, unit: Unit) -> Self {
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
    pub(crate) fn is_done(&self, cells: u64) -> bool {
        self.planning == 0
            && self.units.is_empty()
            && self.openings.is_empty()
            && self.next_cell >= cells
    }

    /// Sends requests for the next steps, as far as the limits allow: for units first, which are
    /// nearer to delivery. `open` requests the object of a cell. Returns the number of requests.
    pub(crate) fn ask(
        &mut self,
        limits: RequestLimits,
        cells: u64,
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
            if self.next_cell >= cells {
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
    pub(crate) fn take_asked(&mut self) -> Option<ReadStep> {
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
    pub(crate) fn take_next(&mut self, cells: u64) -> Option<ReadStep> {
        if let Some(unit) = self.units.pop_front() {
            self.ahead = self.ahead.saturating_sub(1);
            return Some(ReadStep::Unit(unit));
        }
        if self.next_cell >= cells {
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
        assert_eq!(queue.ask(limits, 0, &bell, &none), 3);
        assert_eq!(queue.ask(limits, 0, &bell, &none), 0);
        assert!(queue.take_asked().is_none());
        object.keep(20);
        assert_eq!(queue.ask(limits, 0, &bell, &none), 1, "one is no longer on its way");
        assert_eq!(offset_of(queue.take_asked()), Some(20));
        assert!(queue.take_asked().is_none());
        for offset in [30, 10, 0] {
            object.keep(offset);
        }
        let taken: Vec<_> = std::iter::from_fn(|| offset_of(queue.take_asked())).collect();
        assert_eq!(taken, [0, 10, 30]);
        assert!(!queue.is_done(0));
        assert_eq!(queue.ask(limits, 0, &bell, &none), 2);
        object.keep(40);
        object.keep(50);
        assert_eq!([0; 2].map(|_| offset_of(queue.take_asked())), [Some(40), Some(50)]);
        assert!(queue.is_done(0));
    }

    #[test]
    fn what_has_come_and_was_not_taken_counts_as_memory() {
        let (object, bell) = (Arc::<Promising>::default(), Arc::default());
        let mut queue = queue_of(&object, 6);
        let limits = RequestLimits { requests: 100, bytes: 20 };
        let none = |_| unreachable!("no cells");
        assert_eq!(queue.ask(limits, 0, &bell, &none), 2);
        object.keep(0);
        object.keep(10);
        assert_eq!(queue.ask(limits, 0, &bell, &none), 0);
        assert!(queue.take_asked().is_some());
        assert_eq!(queue.ask(limits, 0, &bell, &none), 1);
        // One unit is requested, however large it is.
        let mut queue = queue_of(&object, 2);
        assert_eq!(queue.ask(RequestLimits { requests: 9, bytes: 1 }, 0, &bell, &none), 1);
    }

    #[test]
    fn an_object_that_somebody_can_open_at_once_is_opened_before_more_are_asked_for() {
        let bell = Arc::default();
        let mut queue = ReadQueue::default();
        let promises = Mutex::new(Vec::new());
        let open = |cell| {
            let (answer, promise) = Answer::new(Arc::clone(&bell));
            promises.lock().unwrap().push(promise);
            (cell != 2).then_some(PendingCell { answer, bytes: 1 })
        };
        let limits = RequestLimits { requests: 100, bytes: 1000 };
        assert_eq!(queue.ask(limits, 5, &bell, &open), 2);
        assert!(matches!(queue.take_asked(), Some(ReadStep::Cell(2, None))));
        assert!(queue.take_asked().is_none());
        assert_eq!(queue.ask(limits, 5, &bell, &open), 2);
        promises.lock().unwrap().pop().unwrap().keep(Ok(None));
        assert!(matches!(queue.take_asked(), Some(ReadStep::Cell(4, Some(_)))));
        assert!(!queue.is_done(5));
    }
}
