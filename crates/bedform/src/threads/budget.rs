//! Memory that stages of one piece of work share: who makes chunks waits until who writes earlier ones
//! has given theirs back.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;

/// How often who waits looks whether it is to go on waiting.
const LOOK: Duration = Duration::from_millis(10);

/// So many bytes for all stages together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Bytes that somebody has; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    rooms: Arc<MemoryBudget>,
    bytes: u64,
}

/// Who takes room for one round of the work. It never waits for what it has itself: a round that
/// needs more than there is gets it, once nobody else has any.
pub(crate) struct BudgetRound<'a> {
    rooms: &'a Arc<MemoryBudget>,
    own: Cell<u64>,
    /// Fails if waiting is to end.
    check: &'a dyn Fn() -> Result<()>,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, used: Mutex::default(), freed: Condvar::new() })
    }
}

impl<'a> BudgetRound<'a> {
    pub(crate) fn new(rooms: &'a Arc<MemoryBudget>, check: &'a dyn Fn() -> Result<()>) -> Self {
        Self { rooms, own: Cell::new(0), check }
    }

    /// Reservation for `bytes`, as soon as there is some.
    ///
    /// # Errors
    /// Those of the check, while it waits.
    pub(crate) fn room(&self, bytes: u64) -> Result<Reservation> {
        let MemoryBudget { bytes: all, used, freed } = &**self.rooms;
        let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.own.get();
        while used.saturating_add(bytes) > *all && *used > own {
            let (guard, waited) =
                freed.wait_timeout(used, LOOK).unwrap_or_else(PoisonError::into_inner);
            used = guard;
            if waited.timed_out() {
                drop(used);
                (self.check)()?;
                used = self.rooms.used.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        *used = used.saturating_add(bytes);
        self.own.set(own.saturating_add(bytes));
        Ok(Reservation { rooms: self.rooms.clone(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = self.rooms.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(self.bytes);
        drop(used);
        self.rooms.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::threads::budget::*;

    #[test]
    fn a_round_waits_for_the_one_before_and_not_for_itself() {
        let rooms = MemoryBudget::new(100);
        let go_on = || Ok(());
        let first = BudgetRound::new(&rooms, &go_on);
        let mut held: Vec<_> = (0..3).map(|_| first.room(50).unwrap()).collect();
        let stop = || Err(Error::invalid("stopped"));
        let second = BudgetRound::new(&rooms, &stop);
        assert_eq!(second.room(1).unwrap_err().to_string(), "stopped");
        held.truncate(1);
        let all = second.room(50).unwrap();
        assert!(second.room(1).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LOOK);
                held.clear();
            });
            let third = BudgetRound::new(&rooms, &go_on);
            drop(third.room(20).unwrap());
        });
        drop(all);
        assert_eq!(*rooms.used.lock().unwrap(), 0);
    }
}
