//! The steps after each read: identify the file, count, queue, follow, advise.
//!
//! The reads of a file are followed as one sequence. Once a second thread reads it, each thread's
//! reads are also followed separately. A thread's own sequence gives the advice if it predicts,
//! else the common one.

use std::cell::UnsafeCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use libc::FILE;

use crate::descriptors::{self, DescriptorState};
use crate::files::{self, identify};
use crate::follow::{FileRange, PredictionOutcome, ReadSequence, WindowLimits};
use crate::helper::{self, ReadaheadAdvice};
use crate::inside::{self, Inside, LibraryLock};
use crate::pending::{self, WatchedRead};
use crate::record::{self, FILES, ProcessNumber};
use crate::{arena, settings};

/// The most threads whose reads of a file are followed separately.
const THREADS_MAX: usize = 16;
/// Bytes of the arena that one read can take, with a margin.
const ARENA_BYTES_LEFT: usize = 8 << 20;
/// The most reads that a thread follows at a time, its own and others'.
const READS_AT_ONCE: usize = 64;

/// The place at which a read began.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadStart {
    /// At the descriptor's position, which has advanced by the bytes of the read.
    Position,
    /// At an offset in bytes.
    Offset(i64),
}

impl ReadStart {
    /// Returns the place for `preadv2`, where an offset of -1 stands for the position.
    pub(crate) fn of_preadv2(offset: i64) -> Self {
        if offset == -1 { Self::Position } else { Self::Offset(offset) }
    }
}

/// The reads of the file in a slot.
struct SlotReads {
    /// The generation of the slot at the first read; if it has changed, the slot has another file.
    generation: u32,
    /// The thread and byte range of its only read so far: many files are read once.
    first: Option<(usize, FileRange)>,
    followed: Option<Box<FileSequences>>,
}

/// The sequences of reads of a file: of all threads, and of each.
struct FileSequences {
    whole: ReadSequence,
    first_thread: usize,
    threads: Vec<(usize, ReadSequence)>,
}

struct LockedSlots(UnsafeCell<[SlotReads; FILES]>);

// SAFETY: only the thread with the lock uses it.
unsafe impl Sync for LockedSlots {}

static SLOTS: LockedSlots = LockedSlots(UnsafeCell::new(
    [const { SlotReads { generation: 0, first: None, followed: None } }; FILES],
));

/// Returns the slots, for the thread with the lock.
#[allow(clippy::mut_from_ref)]
fn slots<'a>(_locked: &'a mut LibraryLock<'_>) -> &'a mut [SlotReads; FILES] {
    // SAFETY: there is one lock, borrowed as long as the slots are.
    unsafe { &mut *SLOTS.0.get() }
}

/// Forgets all patterns in a forked child. Frees nothing, since another thread may have been
/// changing it.
pub(crate) fn leave() {
    // SAFETY: the child has one thread.
    for slot in unsafe { &mut *SLOTS.0.get() } {
        mem::forget(slot.followed.take());
        slot.first = None;
    }
}

/// Examines a call that read `count` bytes, or failed.
#[inline]
pub(crate) fn after(descriptor: i32, at: ReadStart, count: isize) {
    if count > 0 && inside::is_on() && descriptors::known(descriptor) != DescriptorState::Ignored {
        watch(descriptor, at, count.unsigned_abs() as u64);
    }
}

/// Examines a call that mapped a file.
pub(crate) fn after_map(descriptor: i32) {
    if !inside::is_on() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    guarded(|| match identify(&inside, descriptor, u64::MAX) {
        DescriptorState::File { slot, .. } => {
            if let Some(record) = record::of_slot(slot) {
                record.maps.fetch_add(1, Ordering::Relaxed);
            }
        }
        _ if is_ring(descriptor) => record::count_of_process(ProcessNumber::Rings),
        _ => {}
    });
}

/// Examines an `fread` of `bytes` bytes.
///
/// # Safety
///
/// The stream is open.
pub(crate) unsafe fn after_stream(stream: *mut FILE, bytes: usize) {
    if bytes == 0 || !inside::is_on() {
        return;
    }
    let Some(inside) = Inside::enter() else { return };
    // SAFETY: the stream is open, as the caller guarantees.
    let descriptor = unsafe { libc::fileno(stream) };
    if descriptor < 0 || descriptors::known(descriptor) == DescriptorState::Ignored {
        return;
    }
    let bytes = bytes as u64;
    guarded(|| {
        let position = || {
            // Another thread may hold the stream's lock for long.
            // SAFETY: the stream is open, and each successful lock is released.
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
fn watch(descriptor: i32, at: ReadStart, bytes: u64) {
    let Some(inside) = Inside::enter() else { return };
    guarded(|| {
        let start = || match at {
            ReadStart::Offset(offset) => u64::try_from(offset).ok(),
            ReadStart::Position => {
                // SAFETY: returns the position without changing it.
                let position = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
                u64::try_from(position).ok()?.checked_sub(bytes)
            }
        };
        access(&inside, descriptor, bytes, start);
    });
}

/// Runs `act`, and turns the watching off if it panics.
fn guarded(act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        inside::set_on(false);
    }
}

/// Counts a read of `bytes` bytes, and queues it if it is large enough; only then calls `start`.
fn access(inside: &Inside, descriptor: i32, bytes: u64, start: impl FnOnce() -> Option<u64>) {
    let DescriptorState::File { slot, generation } = identify(inside, descriptor, bytes) else {
        return;
    };
    let record = record::of_slot(slot);
    if let Some(record) = record {
        record.reads.fetch_add(1, Ordering::Relaxed);
        record.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    if bytes < settings::MIN.load(Ordering::Relaxed) {
        return;
    }
    let Some(run) =
        start().and_then(|start| Some(FileRange { start, end: start.checked_add(bytes)? }))
    else {
        return;
    };
    let read = WatchedRead { descriptor, slot, generation, thread: inside::thread_mark(), run };
    if !pending::put(read)
        && let Some(record) = record
    {
        record.left_out.fetch_add(1, Ordering::Relaxed);
    }
    follow_pending(inside);
}

/// Follows the queued reads, unless another thread does.
fn follow_pending(inside: &Inside) {
    // Twice, for a read that was queued while the lock was released.
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

/// Follows a read; true if it gave advice.
fn follow(slots: &mut [SlotReads; FILES], read: &WatchedRead) -> bool {
    if arena::untouched_bytes() < ARENA_BYTES_LEFT {
        forget_patterns(slots);
    }
    let WatchedRead { descriptor, slot, generation, thread, run } = *read;
    files::touch(slot);
    let file = &mut slots[usize::from(slot)];
    if file.generation != generation {
        *file = SlotReads { generation, first: None, followed: None };
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
    let bounds = WindowLimits {
        ahead: settings::AHEAD.load(Ordering::Relaxed),
        ahead_max: settings::AHEAD_MAX.load(Ordering::Relaxed),
        file_bytes: files::bytes(slot, descriptor, run.end),
    };
    let epoch = helper::epoch(slot);
    let known = DescriptorState::File { slot, generation };
    let hint_bytes = files::hint_bytes(slot);
    let advised = followed.refill(thread, &bounds, |run| {
        helper::put(ReadaheadAdvice { descriptor, known, slot, epoch, run, hint_bytes })
    });
    if let Some(record) = record::of_slot(slot) {
        record.advised_bytes.fetch_add(advised, Ordering::Relaxed);
    }
    advised > 0
}

impl SlotReads {
    fn push(&mut self, thread: usize, run: FileRange) -> PredictionOutcome {
        match (&mut self.followed, self.first.take()) {
            (Some(followed), _) => followed.push(thread, run),
            (None, None) => {
                self.first = Some((thread, run));
                PredictionOutcome::default()
            }
            (followed, Some((first_thread, first))) => {
                let mut whole = ReadSequence::default();
                whole.push(first);
                let new = FileSequences { whole, first_thread, threads: Vec::new() };
                followed.insert(Box::new(new)).push(thread, run)
            }
        }
    }
}

impl FileSequences {
    fn push(&mut self, thread: usize, run: FileRange) -> PredictionOutcome {
        let whole = self.whole.push(run);
        if self.threads.is_empty() && thread == self.first_thread {
            return whole;
        }
        if !self.threads.iter().any(|(mark, _)| *mark == thread) {
            if self.threads.len() >= THREADS_MAX {
                self.threads.remove(0);
            }
            self.threads.push((thread, ReadSequence::default()));
        }
        let Some(own) = self.of_thread(thread) else { return whole };
        let own = own.push(run);
        PredictionOutcome {
            kind: own.kind.or(whole.kind),
            was_advised: own.was_advised || whole.was_advised,
            // One thread's wrong prediction does not affect other threads' advice.
            is_stale: false,
        }
    }

    fn of_thread(&mut self, thread: usize) -> Option<&mut ReadSequence> {
        self.threads.iter_mut().find(|(mark, _)| *mark == thread).map(|(_, own)| own)
    }

    /// Advises by the thread's own sequence, or by the common one if that predicts nothing.
    fn refill(
        &mut self,
        thread: usize,
        bounds: &WindowLimits,
        mut advise: impl FnMut(FileRange) -> bool,
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

/// Counts a followed read.
fn count(slot: u16, run: FileRange, outcome: PredictionOutcome) {
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

/// Forgets the patterns of all files, because the arena is full.
fn forget_patterns(slots: &mut [SlotReads; FILES]) {
    for (number, slot) in (0_u16..).zip(slots) {
        if let Some(followed) = slot.followed.take() {
            // The whole arena is freed below.
            mem::forget(followed);
            helper::cancel(number);
        }
    }
    arena::empty();
}

/// True for a ring of `io_uring`, whose reads bypass the library.
fn is_ring(descriptor: i32) -> bool {
    let mut name = [0_u8; 32];
    let mut link = [0_u8; 32];
    if std::io::Write::write_fmt(&mut &mut name[..31], format_args!("/proc/self/fd/{descriptor}"))
        .is_err()
    {
        return false;
    }
    // SAFETY: the name ends with a zero, and the buffer has the given length.
    let count =
        unsafe { libc::readlink(name.as_ptr().cast(), link.as_mut_ptr().cast(), link.len()) };
    usize::try_from(count).is_ok_and(|count| &link[..count] == b"anon_inode:[io_uring]")
}
