//! The queue of advice, and the thread that gives it to the kernel.
//!
//! `posix_fadvise` blocks while the kernel's request queue is full, so a thread of its own calls
//! it, never the program's. The thread starts with the first advice and ends after some idle time:
//! a program ends only when all its threads have ended.
//!
//! The queue has one producer, the thread with the lock, and one consumer. A piece of advice names
//! a descriptor and its state. It is dropped if that state or the pattern has changed since. If the
//! descriptor changes between the check and the call, the kernel gets a useless hint about another
//! file.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::descriptors::{self, DescriptorState};
use crate::follow::FileRange;
use crate::inside::{self, Inside};
use crate::record::FILES;

/// The most queued pieces of advice.
const QUEUE: usize = 8192;
/// The idle time in milliseconds after which the thread ends.
const IDLE_MS: i64 = 200;
const STACK_BYTES: usize = 256 << 10;
/// Attempts to start the thread; the program may lack the right to.
const FAILURES_MAX: u32 = 3;

/// A piece of advice: a byte range that the kernel should read.
#[derive(Clone, Copy)]
pub(crate) struct ReadaheadAdvice {
    /// The descriptor of the file.
    pub(crate) descriptor: i32,
    /// The state of the descriptor when the advice was made.
    pub(crate) known: DescriptorState,
    /// The slot of the file.
    pub(crate) slot: u16,
    /// The epoch of the slot when the advice was made.
    pub(crate) epoch: u32,
    /// The byte range.
    pub(crate) run: FileRange,
    /// Bytes of one hint.
    pub(crate) hint_bytes: u64,
}

impl ReadaheadAdvice {
    const NONE: Self = Self {
        descriptor: -1,
        known: DescriptorState::No,
        slot: 0,
        epoch: 0,
        run: FileRange { start: 0, end: 0 },
        hint_bytes: 1,
    };

    fn is_valid(&self) -> bool {
        inside::is_on()
            && descriptors::known(self.descriptor) == self.known
            && epoch(self.slot) == self.epoch
    }
}

struct AdviceQueue {
    items: UnsafeCell<[ReadaheadAdvice; QUEUE]>,
    /// The numbers of pieces ever taken and ever put.
    taken: AtomicUsize,
    put: AtomicUsize,
}

// SAFETY: the producer writes an item before `put` counts it, and the consumer reads it before
// `taken` does.
unsafe impl Sync for AdviceQueue {}

static ADVICE: AdviceQueue = AdviceQueue {
    items: UnsafeCell::new([ReadaheadAdvice::NONE; QUEUE]),
    taken: AtomicUsize::new(0),
    put: AtomicUsize::new(0),
};
/// 1 while the thread exists.
static IS_RUNNING: AtomicU32 = AtomicU32::new(0);
/// A futex that changes with each new advice; the thread sleeps on it.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// 1 while the thread sleeps.
static IS_ASLEEP: AtomicU32 = AtomicU32::new(0);
static FAILURES: AtomicU32 = AtomicU32::new(0);
/// The number of wrong patterns of each slot.
static EPOCHS: [AtomicU32; FILES] = [const { AtomicU32::new(0) }; FILES];

/// Returns the number of times that advice for a slot was cancelled.
pub(crate) fn epoch(slot: u16) -> u32 {
    EPOCHS[usize::from(slot)].load(Ordering::Acquire)
}

/// Cancels the queued advice for a slot.
pub(crate) fn cancel(slot: u16) {
    EPOCHS[usize::from(slot)].fetch_add(1, Ordering::AcqRel);
}

/// Queues a piece of advice; false if the queue is full. The caller has the lock.
pub(crate) fn put(advice: ReadaheadAdvice) -> bool {
    let put = ADVICE.put.load(Ordering::Relaxed);
    if put.wrapping_sub(ADVICE.taken.load(Ordering::Acquire)) >= QUEUE {
        return false;
    }
    // SAFETY: the thread reads this item only after it is counted.
    unsafe { (*ADVICE.items.get())[put % QUEUE] = advice };
    ADVICE.put.store(put.wrapping_add(1), Ordering::Release);
    true
}

fn take() -> Option<ReadaheadAdvice> {
    let taken = ADVICE.taken.load(Ordering::Relaxed);
    if taken == ADVICE.put.load(Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the item is written again only after it is counted as taken.
    let advice = unsafe { (*ADVICE.items.get())[taken % QUEUE] };
    ADVICE.taken.store(taken.wrapping_add(1), Ordering::Release);
    Some(advice)
}

/// Wakes or starts the thread. Called without the lock, since starting a thread takes time.
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

/// Drops the parent's queue and thread in a forked child.
pub(crate) fn leave() {
    ADVICE.taken.store(ADVICE.put.load(Ordering::Relaxed), Ordering::Relaxed);
    IS_RUNNING.store(0, Ordering::Relaxed);
    IS_ASLEEP.store(0, Ordering::Relaxed);
    FAILURES.store(0, Ordering::Relaxed);
}

/// Starts the thread with all signals blocked.
fn start() -> bool {
    // SAFETY: the calls initialize all values whose addresses they take, in this order; the
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
    // Calls of this thread are not the program's.
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
        // An item put before this store found the thread running, and did not wake it.
        let is_empty = ADVICE.taken.load(Ordering::Relaxed) == ADVICE.put.load(Ordering::SeqCst);
        let goes_on = !is_empty
            && IS_RUNNING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if !goes_on {
            return ptr::null_mut();
        }
    }
}

/// Sleeps until there is new advice; false after the idle time.
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

fn give(advice: &ReadaheadAdvice) {
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
