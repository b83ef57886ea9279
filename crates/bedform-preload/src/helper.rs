//! The queue of advice, and the thread that gives it.
//!
//! `posix_fadvise` waits while the kernel's queue of requests is full: a thread of its own waits for it,
//! never the program's. The thread begins with the first advice and ends when it has had none for a while:
//! a program whose last thread has ended must end, too.
//!
//! The queue has one producer, the thread with the lock, and one consumer. A piece of advice names a
//! descriptor and what was known of it. When that has changed, or the pattern has, the advice is dropped.
//! If the descriptor changes in the instant between, the kernel gets a useless hint about another file.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::descriptors::{self, Known};
use crate::follow::Run;
use crate::inside::{self, Inside};
use crate::record::FILES;

/// Pieces of advice that wait.
const QUEUE: usize = 8192;
/// Milliseconds after which the thread ends.
const IDLE_MS: i64 = 200;
const STACK_BYTES: usize = 256 << 10;
/// Attempts to start the thread, of a program that may have none.
const FAILURES_MAX: u32 = 3;

/// A piece of advice.
#[derive(Clone, Copy)]
pub(crate) struct Advice {
    /// The descriptor of the file.
    pub(crate) descriptor: i32,
    /// What it was when the advice was made.
    pub(crate) known: Known,
    /// The slot of the file.
    pub(crate) slot: u16,
    /// That of the slot when the advice was made.
    pub(crate) epoch: u32,
    /// What comes next.
    pub(crate) run: Run,
    /// Bytes of which the kernel is advised at a time.
    pub(crate) hint_bytes: u64,
}

impl Advice {
    const NONE: Self = Self {
        descriptor: -1,
        known: Known::No,
        slot: 0,
        epoch: 0,
        run: Run { start: 0, end: 0 },
        hint_bytes: 1,
    };

    fn is_valid(&self) -> bool {
        inside::is_on()
            && descriptors::known(self.descriptor) == self.known
            && epoch(self.slot) == self.epoch
    }
}

struct Queue {
    items: UnsafeCell<[Advice; QUEUE]>,
    /// Pieces that were ever taken and ever put.
    taken: AtomicUsize,
    put: AtomicUsize,
}

// SAFETY: an item is written before `put` counts it, and read before `taken` does, by one thread each.
unsafe impl Sync for Queue {}

static ADVICE: Queue = Queue {
    items: UnsafeCell::new([Advice::NONE; QUEUE]),
    taken: AtomicUsize::new(0),
    put: AtomicUsize::new(0),
};
/// 1 while the thread is there.
static IS_RUNNING: AtomicU32 = AtomicU32::new(0);
/// Changes when there is something to do; the thread sleeps on it.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// 1 while the thread sleeps.
static IS_ASLEEP: AtomicU32 = AtomicU32::new(0);
static FAILURES: AtomicU32 = AtomicU32::new(0);
/// Patterns of each slot that turned out wrong.
static EPOCHS: [AtomicU32; FILES] = [const { AtomicU32::new(0) }; FILES];

/// How often advice for a slot turned out wrong.
pub(crate) fn epoch(slot: u16) -> u32 {
    EPOCHS[usize::from(slot)].load(Ordering::Acquire)
}

/// Drops the advice for a slot that is not given yet.
pub(crate) fn cancel(slot: u16) {
    EPOCHS[usize::from(slot)].fetch_add(1, Ordering::AcqRel);
}

/// Queues a piece of advice; false if there is no room. The caller has the lock.
pub(crate) fn put(advice: Advice) -> bool {
    let put = ADVICE.put.load(Ordering::Relaxed);
    if put.wrapping_sub(ADVICE.taken.load(Ordering::Acquire)) >= QUEUE {
        return false;
    }
    // SAFETY: the thread does not read this item before it is counted.
    unsafe { (*ADVICE.items.get())[put % QUEUE] = advice };
    ADVICE.put.store(put.wrapping_add(1), Ordering::Release);
    true
}

fn take() -> Option<Advice> {
    let taken = ADVICE.taken.load(Ordering::Relaxed);
    if taken == ADVICE.put.load(Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the item is not written again before it is counted as taken.
    let advice = unsafe { (*ADVICE.items.get())[taken % QUEUE] };
    ADVICE.taken.store(taken.wrapping_add(1), Ordering::Release);
    Some(advice)
}

/// Sees to it that what is queued will be given. Without the lock: starting a thread takes a while.
pub(crate) fn wake(_inside: &Inside) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    if IS_RUNNING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        if FAILURES.load(Ordering::Relaxed) >= FAILURES_MAX || !start() {
            FAILURES.fetch_add(1, Ordering::Relaxed);
            IS_RUNNING.store(0, Ordering::SeqCst);
        }
    } else if IS_ASLEEP.load(Ordering::SeqCst) == 1 {
        // SAFETY: the address is that of a static.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                CALLS.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
    }
}

/// In a forked child: there is no thread, and what is queued is the parent's.
pub(crate) fn leave() {
    ADVICE.taken.store(ADVICE.put.load(Ordering::Relaxed), Ordering::Relaxed);
    IS_RUNNING.store(0, Ordering::Relaxed);
    IS_ASLEEP.store(0, Ordering::Relaxed);
    FAILURES.store(0, Ordering::Relaxed);
}

/// Starts the thread, which gets no signal of the program's.
fn start() -> bool {
    // SAFETY: all values are initialised by the calls that take their addresses, in this order; the
    // attributes are destroyed once.
    unsafe {
        let mut attributes = std::mem::zeroed();
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        let mut thread = std::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let code =
            libc::pthread_create(&raw mut thread, &raw const attributes, run, ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        code == 0
    }
}

extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
    // Nothing that the thread does is the program's.
    let _inside = Inside::enter();
    // SAFETY: the name ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"bedform-ahead".as_ptr()) };
    loop {
        let calls = CALLS.load(Ordering::SeqCst);
        while let Some(advice) = take() {
            give(&advice);
        }
        if inside::is_on() && sleep(calls) {
            continue;
        }
        IS_RUNNING.store(0, Ordering::SeqCst);
        // Whoever put something before that saw a thread that was there.
        let is_empty = ADVICE.taken.load(Ordering::Relaxed) == ADVICE.put.load(Ordering::SeqCst);
        let goes_on = !is_empty
            && IS_RUNNING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !goes_on {
            return ptr::null_mut();
        }
    }
}

/// Sleeps until there is something to do; false if there was nothing for long.
fn sleep(calls: u32) -> bool {
    let time = libc::timespec { tv_sec: IDLE_MS / 1000, tv_nsec: IDLE_MS % 1000 * 1_000_000 };
    IS_ASLEEP.store(1, Ordering::SeqCst);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the addresses are those of a static and of a value that outlives the call.
    let slept =
        unsafe { libc::syscall(libc::SYS_futex, CALLS.as_ptr(), wait, calls, &raw const time) };
    // SAFETY: the address of this thread's `errno` is always valid.
    let is_late = slept != 0 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT;
    IS_ASLEEP.store(0, Ordering::SeqCst);
    !is_late
}

fn give(advice: &Advice) {
    let mut start = advice.run.start;
    while start < advice.run.end && advice.is_valid() {
        let bytes = advice.hint_bytes.max(1).min(advice.run.end - start);
        let (Ok(at), Ok(count)) = (libc::off_t::try_from(start), libc::off_t::try_from(bytes))
        else {
            return;
        };
        // SAFETY: a hint about bytes of a file.
        unsafe { libc::posix_fadvise(advice.descriptor, at, count, libc::POSIX_FADV_WILLNEED) };
        start += bytes;
    }
}
