//! A memory budget that encoders and writers share. An encoder blocks until the writers of earlier
//! chunks have released their memory, and reuses that memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Result;

/// The period at which a blocked thread polls for cancellation.
const LOOK: Duration = Duration::from_millis(10);

/// The smallest buffer that is reused: smaller ones cost nothing to allocate.
const SPARE_PIECE_MIN: usize = 64 << 10;

/// A number of bytes for all stages together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes: u64,
    use_of: Mutex<BudgetUse>,
    freed: Condvar,
}

/// The reserved bytes of a budget, and its spare buffers.
#[derive(Debug, Default)]
struct BudgetUse {
    /// Bytes that are reserved.
    used: u64,
    spare: SpareMemory,
}

/// Released buffers, by their size in bytes. The system fills new memory with zeros first, which
/// costs as much as to write it.
#[derive(Debug, Default)]
struct SpareMemory {
    bytes: u64,
    pieces: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// Reserved bytes of a budget, released on drop.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    rooms: Arc<MemoryBudget>,
    bytes: u64,
    /// The buffer of an earlier reservation.
    memory: Vec<u8>,
}

/// The reservations of one round of the work. A round never waits for its own reservations: if it
/// needs more than the budget, it gets that once no other round has any.
pub(crate) struct BudgetRound<'a> {
    rooms: &'a Arc<MemoryBudget>,
    own: Cell<u64>,
    /// Fails if the wait is to end.
    check: &'a dyn Fn() -> Result<()>,
}

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bytes, use_of: Mutex::default(), freed: Condvar::new() })
    }

    fn use_of(&self) -> MutexGuard<'_, BudgetUse> {
        self.use_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpareMemory {
    /// Takes a buffer of at least `bytes` bytes and at most twice as many; an empty one if there is
    /// none.
    fn take(&mut self, bytes: u64) -> Vec<u8> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let most = if bytes < SPARE_PIECE_MIN { bytes } else { bytes.saturating_mul(2) };
        let size = self.pieces.range(bytes..=most).next().map(|(size, _)| *size);
        size.map(|size| self.take_of(size)).unwrap_or_default()
    }

    fn take_of(&mut self, size: usize) -> Vec<u8> {
        let Some(pieces) = self.pieces.get_mut(&size) else { return Vec::new() };
        let piece = pieces.pop().unwrap_or_default();
        if pieces.is_empty() {
            self.pieces.remove(&size);
        }
        self.bytes -= piece.capacity() as u64;
        piece
    }

    fn put(&mut self, memory: Vec<u8>) {
        self.bytes += memory.capacity() as u64;
        self.pieces.entry(memory.capacity()).or_default().push(memory);
    }

    /// Removes buffers until at most `bytes` bytes are left, the largest first.
    fn shrink(&mut self, bytes: u64) -> Vec<Vec<u8>> {
        let mut rest = Vec::new();
        while self.bytes > bytes {
            let Some(size) = self.pieces.keys().next_back().copied() else { break };
            rest.push(self.take_of(size));
        }
        rest
    }
}

impl<'a> BudgetRound<'a> {
    pub(crate) fn new(rooms: &'a Arc<MemoryBudget>, check: &'a dyn Fn() -> Result<()>) -> Self {
        Self { rooms, own: Cell::new(0), check }
    }

    /// Reserves `bytes` bytes, as soon as they are free.
    ///
    /// # Errors
    /// Those of `check`, which is polled during the wait.
    pub(crate) fn room(&self, bytes: u64) -> Result<MemoryReservation> {
        let MemoryBudget { bytes: all, freed, .. } = &**self.rooms;
        let mut now = self.rooms.use_of();
        let own = self.own.get();
        while now.used.saturating_add(bytes) > *all && now.used > own {
            let (guard, waited) =
                freed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner);
            now = guard;
            if waited.timed_out() {
                drop(now);
                (self.check)()?;
                now = self.rooms.use_of();
            }
        }
        now.used = now.used.saturating_add(bytes);
        self.own.set(own.saturating_add(bytes));
        let memory = now.spare.take(bytes);
        // Spare buffers count against the budget, too.
        let left = all.saturating_sub(now.used);
        let rest = now.spare.shrink(left);
        drop(now);
        drop(rest);
        Ok(MemoryReservation { rooms: self.rooms.clone(), bytes, memory })
    }
}

impl MemoryReservation {
    /// Takes the buffer of an earlier reservation, with arbitrary contents; an empty one if there
    /// is none.
    pub(crate) fn memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }

    /// Passes a buffer of this reservation's size on to the next reservation. Returns a buffer of
    /// another size.
    pub(crate) fn reuse(&self, memory: Vec<u8>) -> Option<Vec<u8>> {
        let size = memory.capacity() as u64;
        let fits =
            memory.capacity() >= SPARE_PIECE_MIN && self.bytes <= size && size / 2 <= self.bytes;
        if !fits {
            return Some(memory);
        }
        self.rooms.use_of().spare.put(memory);
        None
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut now = self.rooms.use_of();
        now.used = now.used.saturating_sub(self.bytes);
        let left = self.rooms.bytes.saturating_sub(now.used);
        let rest = now.spare.shrink(left);
        drop(now);
        self.rooms.freed.notify_one();
        drop(rest);
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::threads::budget::*;

    #[test]
    fn memory_goes_round_among_those_who_need_as_much_and_counts() {
        const PIECE: u64 = 1 << 18;
        let rooms = MemoryBudget::new(4 * PIECE + 100);
        let go_on = || Ok(());
        let round = BudgetRound::new(&rooms, &go_on);
        let mut room = round.room(PIECE).unwrap();
        assert_eq!(room.memory().capacity(), 0, "there was none");
        assert!(room.reuse(vec![7; (1 << 18) + 4]).is_none());
        for other in [PIECE / 2 + 1, PIECE + 5, PIECE * 2] {
            assert_eq!(round.room(other).unwrap().memory().capacity(), 0, "{other}");
        }
        let memory = round.room(PIECE).unwrap().memory();
        assert_eq!(memory, vec![7; (1 << 18) + 4]);
        assert_eq!(round.room(PIECE).unwrap().memory().capacity(), 0, "it is taken");
        for size in [0, 1 << 17, 1 << 20] {
            assert!(room.reuse(Vec::with_capacity(size)).is_some(), "{size}");
        }
        drop(room);
        for _ in 0..9 {
            let room = round.room(PIECE).unwrap();
            assert!(room.reuse(Vec::with_capacity(1 << 18)).is_none());
        }
        let waits = || rooms.use_of().spare.bytes;
        assert_eq!(waits(), PIECE, "each takes what the one before gave");
        let others: Vec<_> = (0..4).map(|_| round.room(PIECE).unwrap()).collect();
        for room in others {
            assert!(room.reuse(Vec::with_capacity(1 << 18)).is_none());
        }
        assert_eq!(waits(), 4 * PIECE);
        let _large = round.room(2 * PIECE).unwrap();
        assert_eq!(waits(), 2 * PIECE, "what others need goes");
    }

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
        assert_eq!(rooms.use_of().used, 0);
    }
}
