//! What happens at each read.
//!
//! The reads of a file are followed as one sequence; once a second thread reads it, each thread's are
//! followed beside. The first sequence that predicts is the one that advises.

use std::cell::UnsafeCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use libc::FILE;

use crate::descriptors::{self, Known};
use crate::files::{self, identify};
use crate::follow::{Bounds, Follow, Outcome, Run};
use crate::helper::{self, Advice};
use crate::inside::{self, Inside, Locked};
use crate::pending::{self, Read};
use crate::record::{self, FILES, ProcessNumber};
use crate::{arena, settings};

/// Threads whose reads of a file are followed one by one.
const THREADS_MAX: usize = 16;
/// Bytes of the arena that one read can take, with room to spare.
const ARENA_BYTES_LEFT: usize = 8 << 20;
/// Reads that a thread follows at a time: its own, and those of others.
const READS_AT_ONCE: usize = 64;

/// Where a read began.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    /// At the position of the descriptor, which is behind it now.
    Position,
    /// At an offset.
    Offset(i64),
}

impl At {
    /// For `preadv2` an offset of -1 is the position.
    pub(crate) fn of_preadv2(offset: i64) -> Self {
        if offset == -1 { Self::Position } else { Self::Offset(offset) }
    }
}

/// What is known of the reads of the file in a slot.
struct Slot {
    /// That of the slot when this was learned: another file has it since, if it has changed.
    generation: u32,
    /// Its only read so far: many files are read once.
    first: Option<(usize, Run)>,
    followed: Option<Box<Followed>>,
}

/// The sequences of reads of a file.
struct Followed {
    whole: Follow,
    first_thread: usize,
    threads: Vec<(usize, Follow)>,
}

struct Shared(UnsafeCell<[Slot; FILES]>);

// SAFETY: used by the thread with the lock alone.
unsafe impl Sync for Shared {}

static SLOTS: Shared =
    Shared(UnsafeCell::new([const { Slot { generation: 0, first: None, followed: None } }; FILES]));

/// The slots, for the thread with the lock.
#[allow(clippy::mut_from_ref)]
fn slots<'a>(_locked: &'a mut Locked<'_>) -> &'a mut [Slot; FILES] {
    // SAFETY: there is one lock, and it is borrowed as long as the slots are.
    unsafe { &mut *SLOTS.0.get() }
}

/// In a forked child: forgets all patterns, without freeing what another thread may have been changing.
pub(crate) fn leave() {
    // SAFETY: the child has one thread.
    for slot in unsafe { &mut *SLOTS.0.get() } {
        mem::forget(slot.followed.take());
        slot.first = None;
    }
}

/// After a call that read `count` bytes, or failed.
#[inline]
pub(crate) fn after(descriptor: i32, at: At, count: isize) {
    if count > 0 && inside::is_on() && descriptors::known(descriptor) != Known::Ignored {
        watch(descriptor, at, count.unsigned_abs() as u64);
    }
}

/// After a call that mapped a file.
pub(crate) fn after_map(descriptor: i32) {
    if !inside::is_on() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    guarded(|| match identify(&inside, descriptor, u64::MAX) {
        Known::File { slot, .. } => {
            if let Some(record) = record::of_slot(slot) {
                record.maps.fetch_add(1, Ordering::Relaxed);
            }
        }
        _ if is_ring(descriptor) => record::count_of_process(ProcessNumber::Rings),
        _ => {}
    });
}

/// After `fread` of so many bytes.
///
/// # Safety
///
/// The stream is open.
pub(crate) unsafe fn after_stream(stream: *mut FILE, bytes: usize) {
    if bytes == 0 || !inside::is_on() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    // SAFETY: the stream is open, by the caller's word.
    let descriptor = unsafe { libc::fileno(stream) };
    if descriptor < 0 || descriptors::known(descriptor) == Known::Ignored {
        return;
    }
    let bytes = bytes as u64;
    guarded(|| {
        let position = || {
            // Another thread may have the stream, and keep it.
            // SAFETY: as above; what is locked is unlocked.
            unsafe {
                if ftrylockfile(stream) != 0 {
                    return None;
                }
                let position = libc::ftello(stream);
                funlockfile(stream);
                u64::try_from(position).ok()?.checked_sub(bytes)
            }
        };
        access(&inside, descriptor, bytes, position);
    });
}

unsafe extern "C" {
    fn ftrylockfile(stream: *mut FILE) -> libc::c_int;
    fn funlockfile(stream: *mut FILE);
}

#[inline(never)]
fn watch(descriptor: i32, at: At, bytes: u64) {
    let Some(inside) = Inside::enter() else { return };
    guarded(|| {
        let start = || match at {
            At::Offset(offset) => u64::try_from(offset).ok(),
            At::Position => {
                // SAFETY: asks for the position, and leaves it.
                let position = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
                u64::try_from(position).ok()?.checked_sub(bytes)
            }
        };
        access(&inside, descriptor, bytes, start);
    });
}

/// Runs something that must not fail, and turns the watching off if it does.
fn guarded(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        inside::set_on(false);
    }
}

/// A read of so many bytes; where it began is asked only of those that are followed.
fn access(inside: &Inside, descriptor: i32, bytes: u64, start: impl FnOnce() -> Option<u64>) {
    let Known::File { slot, generation } = identify(inside, descriptor, bytes) else { return };
    let record = record::of_slot(slot);
    if let Some(record) = record {
        record.reads.fetch_add(1, Ordering::Relaxed);
        record.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    if bytes < settings::MIN.load(Ordering::Relaxed) {
        return;
    }
    let Some(run) = start().and_then(|start| Some(Run { start, end: start.checked_add(bytes)? }))
    else {
        return;
    };
    let read = Read { descriptor, slot, generation, thread: inside::thread_mark(), run };
    if !pending::put(read)
        && let Some(record) = record
    {
        record.left_out.fetch_add(1, Ordering::Relaxed);
    }
    follow_pending(inside);
}

/// Follows the reads that wait, unless another thread does.
fn follow_pending(inside: &Inside) {
    // Once more for a read that was left while the lock was being let go of.
    for _ in 0..2 {
        let Some(mut locked) = inside.lock() else { return };
        let slots = slots(&mut locked);
        let mut has_advice = false;
        for read in std::iter::from_fn(pending::take).take(READS_AT_ONCE) {
            if files::is_current(read.slot, read.generation) {
                has_advice |= follow(slots, &read);
            }
        }
        drop(locked);
        if has_advice {
            helper::wake(inside);
        }
        if pending::is_empty() {
            return;
        }
    }
}

/// Follows a read; true if there is advice to give.
fn follow(slots: &mut [Slot; FILES], read: &Read) -> bool {
    if arena::untouched_bytes() < ARENA_BYTES_LEFT {
        forget_patterns(slots);
    }
    let Read { descriptor, slot, generation, thread, run } = *read;
    files::touch(slot);
    let file = &mut slots[usize::from(slot)];
    if file.generation != generation {
        *file = Slot { generation, first: None, followed: None };
    }
    let outcome = file.push(thread, run);
    count(slot, run, outcome);
    if outcome.is_stale {
        helper::cancel(slot);
    }
    let Some(followed) = &mut file.followed else { return false };
    if !settings::ADVISES.load(Ordering::Relaxed) {
        return false;
    }
    let bounds = Bounds {
        ahead: settings::AHEAD.load(Ordering::Relaxed),
        ahead_max: settings::AHEAD_MAX.load(Ordering::Relaxed),
        file_bytes: files::bytes(slot, descriptor, run.end),
    };
    let epoch = helper::epoch(slot);
    let known = Known::File { slot, generation };
    let hint_bytes = files::hint_bytes(slot);
    let advised = followed.refill(thread, &bounds, |run| {
        helper::put(Advice { descriptor, known, slot, epoch, run, hint_bytes })
    });
    if let Some(record) = record::of_slot(slot) {
        record.advised_bytes.fetch_add(advised, Ordering::Relaxed);
    }
    advised > 0
}

impl Slot {
    fn push(&mut self, thread: usize, run: Run) -> Outcome {
        match (&mut self.followed, self.first.take()) {
            (Some(followed), _) => followed.push(thread, run),
            (None, None) => {
                self.first = Some((thread, run));
                Outcome::default()
            }
            (followed, Some((first_thread, first))) => {
                let mut whole = Follow::default();
                whole.push(first);
                let new = Followed { whole, first_thread, threads: Vec::new() };
                followed.insert(Box::new(new)).push(thread, run)
            }
        }
    }
}

impl Followed {
    fn push(&mut self, thread: usize, run: Run) -> Outcome {
        let whole = self.whole.push(run);
        if self.threads.is_empty() && thread == self.first_thread {
            return whole;
        }
        if !self.threads.iter().any(|(mark, _)| *mark == thread) {
            if self.threads.len() >= THREADS_MAX {
                self.threads.remove(0);
            }
            self.threads.push((thread, Follow::default()));
        }
        let Some(own) = self.of_thread(thread) else { return whole };
        let own = own.push(run);
        Outcome {
            kind: own.kind.or(whole.kind),
            was_advised: own.was_advised || whole.was_advised,
            // Others' advice is not wrong because one thread's is.
            is_stale: false,
        }
    }

    fn of_thread(&mut self, thread: usize) -> Option<&mut Follow> {
        self.threads.iter_mut().find(|(mark, _)| *mark == thread).map(|(_, own)| own)
    }

    /// Advises by the thread's own sequence, or by that of all threads where it says nothing.
    fn refill(
        &mut self,
        thread: usize,
        bounds: &Bounds,
        mut advise: impl FnMut(Run) -> bool,
    ) -> u64 {
        if let Some(own) = self.of_thread(thread) {
            let advised = own.refill(bounds, &mut advise);
            if own.is_ahead() {
                return advised;
            }
        }
        self.whole.refill(bounds, advise)
    }
}

/// Counts a read that was followed.
fn count(slot: u16, run: Run, outcome: Outcome) {
    let Some(record) = record::of_slot(slot) else { return };
    let bytes = run.end - run.start;
    record.followed_reads.fetch_add(1, Ordering::Relaxed);
    record.followed_bytes.fetch_add(bytes, Ordering::Relaxed);
    if let Some(kind) = outcome.kind {
        record.predicted_reads[kind].fetch_add(1, Ordering::Relaxed);
        record.predicted_bytes[kind].fetch_add(bytes, Ordering::Relaxed);
    }
    if outcome.was_advised {
        record.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The arena is full: what was learned of all files is forgotten.
fn forget_patterns(slots: &mut [Slot; FILES]) {
    for (number, slot) in (0_u16..).zip(slots) {
        if let Some(followed) = slot.followed.take() {
            // Freed with the whole arena, below.
            mem::forget(followed);
            helper::cancel(number);
        }
    }
    arena::empty();
}

/// True if the descriptor is a ring of `io_uring`, whose reads nobody sees.
fn is_ring(descriptor: i32) -> bool {
    let mut name = [0_u8; 32];
    let mut link = [0_u8; 32];
    if std::io::Write::write_fmt(&mut &mut name[..31], format_args!("/proc/self/fd/{descriptor}"))
        .is_err()
    {
        return false;
    }
    // SAFETY: the name ends with a zero, and the buffer has so many bytes.
    let count =
        unsafe { libc::readlink(name.as_ptr().cast(), link.as_mut_ptr().cast(), link.len()) };
    usize::try_from(count).is_ok_and(|count| &link[..count] == b"anon_inode:[io_uring]")
}
