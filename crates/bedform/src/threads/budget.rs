//! Memory that stages of one piece of work share: who makes chunks waits until who writes earlier ones
//! has given theirs back, and gets theirs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Result;

/// How often who waits looks whether it is to go on waiting.
const LOOK: Duration = Duration::from_millis(10);

/// Memory that goes round is of pieces of at least this size: smaller ones cost nothing to make anew.
const SPARE_PIECE_MIN: usize = 64 << 10;

/// So many bytes for all stages together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes: u64,
    use_of: Mutex<Use>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Use {
    /// Bytes that somebody has.
    used: u64,
    spare: SpareMemory,
}

/// Memory that was given back, by its size: what is new has to be filled with zeros first, which costs
/// as much as to write it.
#[derive(Debug, Default)]
struct SpareMemory {
    bytes: u64,
    pieces: BTreeMap<usize, Vec<Vec<u8>>>,
}

/// Bytes that somebody has; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    rooms: Arc<MemoryBudget>,
    bytes: u64,
    /// What somebody had before.
    memory: Vec<u8>,
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
        Arc::new(Self { bytes, use_of: Mutex::default(), freed: Condvar::new() })
    }

    fn use_of(&self) -> MutexGuard<'_, Use> {
        self.use_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpareMemory {
    /// Memory for `bytes`, and not for more than twice as many; without any if there is none.
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

    /// Takes out what is more than `bytes`, the largest pieces first.
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

    /// Reservation for `bytes`, as soon as there is some.
    ///
    /// # Errors
    /// Those of the check, while it waits.
    pub(crate) fn room(&self, bytes: u64) -> Result<Reservation> {
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
        // What waits counts, too.
        let left = all.saturating_sub(now.used);
        let rest = now.spare.shrink(left);
        drop(now);
        drop(rest);
        Ok(Reservation { rooms: self.rooms.clone(), bytes, memory })
    }
}

impl Reservation {
    /// Memory for the bytes that somebody had before, with whatever lies in it; without any if there is none.
    pub(crate) fn memory(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory)
    }

    /// Gives memory of these bytes to who comes next; what is of another size comes back.
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

impl Drop for Reservation {
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
