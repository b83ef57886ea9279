//! The files that are read, and what happens at each read.
//!
//! A file is its device and inode, whatever descriptors it has. Its reads are followed as one sequence; once a
//! second thread reads it, each thread's are followed beside. The first sequence that predicts is the one that
//! advises.

use std::cell::UnsafeCell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::FILE;

use crate::descriptors::{self, Known};
use crate::follow::{Bounds, Follow, Outcome, Run};
use crate::helper::{self, Advice};
use crate::inside::{self, Inside, Locked};
use crate::record::{self, FILES, ProcessNumber};
use crate::{arena, settings};

/// Threads whose reads of a file are followed one by one.
const THREADS_MAX: usize = 16;
/// Bytes of the arena that one read can take, with room to spare.
const ARENA_BYTES_LEFT: usize = 8 << 20;

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

/// A file that is read.
struct Slot {
    is_used: bool,
    device: u64,
    inode: u64,
    /// Bytes of the file when it was looked at last.
    bytes: u64,
    /// When it was read last, in reads of the process.
    used_at: u64,
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

struct Files {
    slots: [Slot; FILES],
    is_used: bool,
    reads: u64,
}

struct Shared(UnsafeCell<Files>);

// SAFETY: used by the thread with the lock alone.
unsafe impl Sync for Shared {}

static ALL: Shared = Shared(UnsafeCell::new(Files {
    slots: [const {
        Slot {
            is_used: false,
            device: 0,
            inode: 0,
            bytes: 0,
            used_at: 0,
            first: None,
            followed: None,
        }
    }; FILES],
    is_used: false,
    reads: 0,
}));
/// How many files each slot has had. What a descriptor is known as is true for one of them.
static GENERATIONS: [AtomicU32; FILES] = [const { AtomicU32::new(0) }; FILES];

fn is_current(slot: u16, generation: u32) -> bool {
    GENERATIONS[usize::from(slot)].load(Ordering::Acquire) == generation
}

/// The files, for the thread with the lock.
#[allow(clippy::mut_from_ref)]
fn files<'a>(_locked: &'a mut Locked<'_>) -> &'a mut Files {
    // SAFETY: there is one lock, and it is borrowed as long as the files are.
    unsafe { &mut *ALL.0.get() }
}

/// In a forked child: forgets all files, without freeing what another thread may have been changing. False if
/// there were none.
pub(crate) fn leave_all() -> bool {
    // SAFETY: the child has one thread.
    let files = unsafe { &mut *ALL.0.get() };
    if !mem::replace(&mut files.is_used, false) {
        return false;
    }
    for (number, slot) in files.slots.iter_mut().enumerate() {
        mem::forget(slot.followed.take());
        slot.first = None;
        slot.is_used = false;
        GENERATIONS[number].fetch_add(1, Ordering::AcqRel);
    }
    true
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
    let Some(mut locked) = inside.lock() else {
        if let Some(record) = record {
            record.left_out.fetch_add(1, Ordering::Relaxed);
        }
        return;
    };
    if !is_current(slot, generation) {
        return;
    }
    let has_advice = follow(files(&mut locked), slot, generation, descriptor, run);
    drop(locked);
    if has_advice {
        helper::wake(inside);
    }
}

/// Follows a read of the file in a slot; true if there is advice to give.
fn follow(files: &mut Files, slot: u16, generation: u32, descriptor: i32, run: Run) -> bool {
    if arena::untouched_bytes() < ARENA_BYTES_LEFT {
        forget_patterns(files);
    }
    files.reads += 1;
    let file = &mut files.slots[usize::from(slot)];
    file.used_at = files.reads;
    let thread = inside::thread_mark();
    let outcome = match (&mut file.followed, file.first.take()) {
        (Some(followed), _) => followed.push(thread, run),
        (None, None) => {
            file.first = Some((thread, run));
            Outcome::default()
        }
        (followed, Some((first_thread, first))) => {
            let mut whole = Follow::default();
            whole.push(first);
            let new = Followed { whole, first_thread, threads: Vec::new() };
            followed.insert(Box::new(new)).push(thread, run)
        }
    };
    count(slot, run, outcome);
    if outcome.is_stale {
        helper::cancel(slot);
    }
    let Some(followed) = &mut file.followed else { return false };
    if !settings::ADVISES.load(Ordering::Relaxed) {
        return false;
    }
    if run.end > file.bytes {
        file.bytes = bytes_of(descriptor).unwrap_or(0).max(run.end);
    }
    let bounds = Bounds {
        ahead: settings::AHEAD.load(Ordering::Relaxed),
        ahead_max: settings::AHEAD_MAX.load(Ordering::Relaxed),
        file_bytes: file.bytes,
    };
    let epoch = helper::epoch(slot);
    let known = Known::File { slot, generation };
    let advised = followed
        .refill(thread, &bounds, |run| helper::put(Advice { descriptor, known, slot, epoch, run }));
    if let Some(record) = record::of_slot(slot) {
        record.advised_bytes.fetch_add(advised, Ordering::Relaxed);
    }
    advised > 0
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
fn forget_patterns(files: &mut Files) {
    for (number, slot) in (0_u16..).zip(&mut files.slots) {
        if let Some(followed) = slot.followed.take() {
            // Freed with the whole arena, below.
            mem::forget(followed);
            helper::cancel(number);
        }
    }
    arena::empty();
}

/// What a descriptor is; looked at if it is not known yet. A file without bytes of which some were read is none of
/// a disk: those of `/proc` say that they are regular.
fn identify(inside: &Inside, descriptor: i32, bytes: u64) -> Known {
    match descriptors::known(descriptor) {
        Known::File { slot, generation } if is_current(slot, generation) => {
            return Known::File { slot, generation };
        }
        Known::Ignored => return Known::Ignored,
        _ => {}
    }
    let Some(status) = status_of(descriptor) else { return Known::No };
    // SAFETY: asks for flags.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let is_direct = flags & libc::O_DIRECT != 0;
    let is_regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !is_regular || is_direct || (status.st_size == 0 && bytes > 0) {
        if is_regular && is_direct {
            record::count_of_process(ProcessNumber::Direct);
        }
        descriptors::keep(descriptor, Known::Ignored);
        return Known::Ignored;
    }
    let Some(mut locked) = inside.lock() else {
        record::count_of_process(ProcessNumber::LeftOut);
        return Known::No;
    };
    let known = files(&mut locked).slot_for(descriptor, &status);
    descriptors::keep(descriptor, known);
    known
}

impl Files {
    /// The slot of a file: its own, a free one, or that which was used longest ago.
    fn slot_for(&mut self, descriptor: i32, status: &libc::stat) -> Known {
        record::make();
        self.is_used = true;
        let of_file = |slot: &Slot| {
            slot.is_used && slot.device == status.st_dev && slot.inode == status.st_ino
        };
        let found = self.slots.iter().position(of_file);
        let number = found
            .or_else(|| self.slots.iter().position(|slot| !slot.is_used))
            .or_else(|| (0..FILES).min_by_key(|number| self.slots[*number].used_at))
            .unwrap_or(0);
        let Ok(slot) = u16::try_from(number) else { return Known::No };
        if found.is_none() {
            self.begin(slot, descriptor, status);
        }
        Known::File { slot, generation: GENERATIONS[number].load(Ordering::Acquire) }
    }

    fn begin(&mut self, number: u16, descriptor: i32, status: &libc::stat) {
        let slot = &mut self.slots[usize::from(number)];
        if slot.is_used {
            record::fold(number);
        }
        self.reads += 1;
        *slot = Slot {
            is_used: true,
            device: status.st_dev,
            inode: status.st_ino,
            bytes: u64::try_from(status.st_size).unwrap_or(0),
            used_at: self.reads,
            first: None,
            followed: None,
        };
        GENERATIONS[usize::from(number)].fetch_add(1, Ordering::AcqRel);
        helper::cancel(number);
        record::begin(number, descriptor);
    }
}

fn status_of(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: a value of integers may be zero, and the call writes one of this type.
    unsafe {
        let mut status: libc::stat = mem::zeroed();
        (libc::fstat(descriptor, &raw mut status) == 0).then_some(status)
    }
}

fn bytes_of(descriptor: i32) -> Option<u64> {
    u64::try_from(status_of(descriptor)?.st_size).ok()
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
