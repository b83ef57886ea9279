//! A bounded queue of reads to be followed.
//!
//! One thread at a time follows reads, with the lock ([`crate::inside::LibraryLock`]). The others queue
//! their reads and continue. The present or next holder of the lock follows all of them in the
//! order of arrival.
//!
//! Each cell has a turn, which is even while the cell is empty and odd while it is full. A thread
//! claims a cell with one atomic exchange; the holder of the lock empties it. A thread that dies
//! between its exchange and its write leaves a cell that stays empty: then the queue fills up, and
//! later reads are dropped. A forked child makes a queue of its own.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::arena::map_pages;
use crate::follow::FileRange;

/// The most queued reads: enough for the other threads while the holder of the lock is off its core
/// for some milliseconds.
const CELLS: usize = 4096;

/// A read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatchedRead {
    /// The descriptor.
    pub(crate) descriptor: i32,
    /// The slot of the file.
    pub(crate) slot: u16,
    /// The generation of the slot when the read was made.
    pub(crate) generation: u32,
    /// A number that no other living thread has.
    pub(crate) thread: usize,
    /// The byte range.
    pub(crate) run: FileRange,
}

struct Cell {
    turn: AtomicUsize,
    read: UnsafeCell<WatchedRead>,
}

/// A queue of reads, with the numbers of reads ever put in and taken out.
struct WatchedReadQueue {
    cells: [Cell; CELLS],
    put: AtomicUsize,
    taken: AtomicUsize,
}

// SAFETY: the thread that claimed a cell by its exchange writes it; the thread with the lock reads
// it once its turn is odd.
unsafe impl Sync for WatchedReadQueue {}

/// The queue of this process; null until the first read is queued.
static READS: AtomicPtr<WatchedReadQueue> = AtomicPtr::new(ptr::null_mut());

impl WatchedReadQueue {
    fn put(&self, read: WatchedRead) -> bool {
        let mut at = self.put.load(Ordering::Relaxed);
        loop {
            let cell = &self.cells[at % CELLS];
            let empty = at / CELLS * 2;
            let turn = cell.turn.load(Ordering::Acquire);
            if turn < empty {
                // The read of the previous round is still in the cell.
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

    fn take(&self) -> Option<WatchedRead> {
        let at = self.taken.load(Ordering::Relaxed);
        let cell = &self.cells[at % CELLS];
        let full = at / CELLS * 2 + 1;
        if cell.turn.load(Ordering::Acquire) != full {
            return None;
        }
        // SAFETY: the cell is full, and only one thread takes.
        let read = unsafe { *cell.read.get() };
        cell.turn.store(full + 1, Ordering::Release);
        self.taken.store(at.wrapping_add(1), Ordering::Relaxed);
        Some(read)
    }

    fn is_empty(&self) -> bool {
        self.put.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed)
    }
}

/// Returns the queue; makes it if `may_make`.
fn queue(may_make: bool) -> Option<&'static WatchedReadQueue> {
    let mut queue = READS.load(Ordering::Acquire);
    if queue.is_null() && may_make {
        let made = map_pages(size_of::<WatchedReadQueue>()).cast();
        match READS.compare_exchange(queue, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => queue = made,
            // Another thread was first; these pages stay unused, once per process.
            Err(other) => queue = other,
        }
    }
    // SAFETY: a queue is never unmapped, and zeros are an empty one.
    unsafe { queue.as_ref() }
}

/// Queues a read; false if the queue is full.
pub(crate) fn put(read: WatchedRead) -> bool {
    queue(true).is_some_and(|queue| queue.put(read))
}

/// Takes the oldest read out of the queue. The caller has the lock.
pub(crate) fn take() -> Option<WatchedRead> {
    queue(false)?.take()
}

/// True if the queue is empty.
pub(crate) fn is_empty() -> bool {
    queue(false).is_none_or(WatchedReadQueue::is_empty)
}

/// Drops the queue in a forked child: it is the parent's, and a read in it may be half written.
pub(crate) fn leave() {
    READS.store(ptr::null_mut(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> &'static WatchedReadQueue {
        // SAFETY: zeros are an empty queue.
        unsafe { map_pages(size_of::<WatchedReadQueue>()).cast::<WatchedReadQueue>().as_ref() }
            .unwrap()
    }

    fn read(thread: usize, number: u64) -> WatchedRead {
        let run = FileRange { start: number, end: number + 1 };
        WatchedRead { descriptor: 3, slot: 1, generation: 2, thread, run }
    }

    #[test]
    fn reads_come_out_as_they_came_and_not_more_than_there_is_room_for() {
        let queue = new();
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
        let queue = new();
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
