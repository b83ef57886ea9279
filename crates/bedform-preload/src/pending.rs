//! Reads that wait to be followed.
//!
//! One thread at a time follows reads, with the lock ([`crate::inside::Locked`]). The others leave theirs here and go
//! on: whoever has the lock, or gets it next, follows all of them in the order in which they came.
//!
//! A bounded queue: a cell has a turn, which is even while it is empty and odd while it is full. Threads put reads
//! in with one exchange; the thread with the lock takes them out. A thread that dies between its exchange and the end
//! of its write leaves a cell that stays empty: then the queue fills up, and reads are left out.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::follow::Run;

/// Reads that wait at most: those that others make while the thread with the lock has lost its core for some
/// milliseconds.
const CELLS: usize = 4096;

/// A read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Read {
    /// The descriptor.
    pub(crate) descriptor: i32,
    /// The slot of the file.
    pub(crate) slot: u16,
    /// That of the slot when the read was made.
    pub(crate) generation: u32,
    /// A mark of the thread.
    pub(crate) thread: usize,
    /// What was read.
    pub(crate) run: Run,
}

struct Cell {
    turn: AtomicUsize,
    read: UnsafeCell<Read>,
}

/// A queue of reads, and how many were ever put in and taken out.
struct Queue {
    cells: [Cell; CELLS],
    put: AtomicUsize,
    taken: AtomicUsize,
}

// SAFETY: a cell is written by the thread whose exchange got it, and read once its turn says that it is full, by the
// thread with the lock.
unsafe impl Sync for Queue {}

static READS: Queue = Queue::new();

impl Queue {
    const fn new() -> Self {
        const NONE: Read = Read {
            descriptor: -1,
            slot: 0,
            generation: 0,
            thread: 0,
            run: Run { start: 0, end: 0 },
        };
        Self {
            cells: [const { Cell { turn: AtomicUsize::new(0), read: UnsafeCell::new(NONE) } };
                CELLS],
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    fn put(&self, read: Read) -> bool {
        let mut at = self.put.load(Ordering::Relaxed);
        loop {
            let cell = &self.cells[at % CELLS];
            let empty = at / CELLS * 2;
            let turn = cell.turn.load(Ordering::Acquire);
            if turn < empty {
                // What was put in a whole round ago is still there.
                return false;
            }
            if turn > empty {
                at = self.put.load(Ordering::Relaxed);
                continue;
            }
            let next = at.wrapping_add(1);
            match self.put.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // SAFETY: the exchange gave this cell to this thread, until its turn changes.
                    unsafe { *cell.read.get() = read };
                    cell.turn.store(empty + 1, Ordering::Release);
                    return true;
                }
                Err(now) => at = now,
            }
        }
    }

    fn take(&self) -> Option<Read> {
        let at = self.taken.load(Ordering::Relaxed);
        let cell = &self.cells[at % CELLS];
        let full = at / CELLS * 2 + 1;
        if cell.turn.load(Ordering::Acquire) != full {
            return None;
        }
        // SAFETY: the cell is full, and one thread takes.
        let read = unsafe { *cell.read.get() };
        cell.turn.store(full + 1, Ordering::Release);
        self.taken.store(at.wrapping_add(1), Ordering::Relaxed);
        Some(read)
    }

    fn is_empty(&self) -> bool {
        self.put.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed)
    }
}

/// Leaves a read; false if there is no room.
pub(crate) fn put(read: Read) -> bool {
    READS.put(read)
}

/// The read that waits longest. The caller has the lock.
pub(crate) fn take() -> Option<Read> {
    READS.take()
}

/// True if no read waits.
pub(crate) fn is_empty() -> bool {
    READS.is_empty()
}

/// In a forked child: the reads are the parent's, and may be half written.
pub(crate) fn leave() {
    if READS.put.swap(0, Ordering::Relaxed) == 0 {
        return;
    }
    READS.taken.store(0, Ordering::Relaxed);
    for cell in &READS.cells {
        cell.turn.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(thread: usize, number: u64) -> Read {
        let run = Run { start: number, end: number + 1 };
        Read { descriptor: 3, slot: 1, generation: 2, thread, run }
    }

    #[test]
    fn reads_come_out_as_they_came_and_not_more_than_there_is_room_for() {
        let queue = Queue::new();
        for round in 0..5_u64 {
            let count = (0..u64::MAX).take_while(|number| queue.put(read(0, round + number)));
            assert_eq!(count.count(), CELLS);
            for number in 0..CELLS as u64 {
                assert_eq!(queue.take(), Some(read(0, round + number)));
            }
            assert_eq!(queue.take(), None);
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn reads_of_each_thread_come_out_in_their_order_and_none_is_lost() {
        let queue = Queue::new();
        let queue = &queue;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for number in 0..5000 {
                        while !queue.put(read(thread, number)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 4];
            while next != [5000; 4] {
                let Some(found) = queue.take() else {
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!(found.run.start, next[found.thread]);
                next[found.thread] += 1;
            }
        });
    }
}
