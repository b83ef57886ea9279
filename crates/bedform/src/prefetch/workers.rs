//! The background threads that read ahead, their queue and the memory budget of the process.
//!
//! The threads belong to the process, not to a handle: few reads ahead keep a device busy, whatever
//! the handle. An idle thread frees unused buffers, and ends when none are left.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::HandleReads;
use super::ahead::ReadAheadTask;
use super::follower::Follower;
use super::statistics::PrefetchStatistics;
use crate::threads::extra::ExtraThread;
use crate::threads::per_process::{PerProcess, generation};

/// The time that a thread waits for work before it frees unused buffers or ends.
const IDLE: Duration = Duration::from_secs(10);
/// The age at which an unused buffer is dropped.
const UNUSED_MAX: Duration = Duration::from_secs(120);
/// The least time between two attempts to make room.
const LOOK: Duration = Duration::from_millis(100);
/// The most arrays that are followed of one handle; one more drops the followers of all of them.
const ARRAYS_MAX: usize = 1024;

static PROCESS: PerProcess<ProcessReadsAhead> = PerProcess::new();

/// The reads ahead of a process: budget, followers, queue.
#[derive(Debug, Default)]
pub(super) struct ProcessReadsAhead {
    /// Bytes that buffers of reads ahead take, with the buffers of queued reads.
    bytes: AtomicU64,
    followers: Mutex<HashMap<u64, Followers>>,
    queue: Mutex<ReadAheadQueue>,
    bell: Condvar,
    /// The time of the last attempt to make room.
    looked: Mutex<Option<Instant>>,
}

/// The followers of the arrays of one handle.
#[derive(Debug, Default)]
struct Followers {
    by_path: HashMap<Box<str>, Arc<Follower>>,
    /// The statistics of dropped followers.
    forgotten: PrefetchStatistics,
}

#[derive(Debug, Default)]
struct ReadAheadQueue {
    waiting: VecDeque<Arc<ReadAheadTask>>,
    threads: usize,
    idle: usize,
}

/// Bytes of the memory budget, given back on drop.
#[derive(Debug)]
pub(super) struct ReservedBytes {
    process: &'static ProcessReadsAhead,
    bytes: u64,
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.process.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn process() -> &'static ProcessReadsAhead {
    PROCESS.get(|_| ProcessReadsAhead::default())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves `bytes` of the memory budget. If they exceed `limit`, it drops abandoned buffers of
/// other arrays and tries again; `None` if that is not enough. Waits for no lock: the caller holds
/// that of a follower.
pub(super) fn reserve(bytes: u64, limit: u64) -> Option<ReservedBytes> {
    let process = process();
    let taken = take_bytes(process, bytes, limit);
    if taken.is_some() || bytes > limit || !process.makes_room() {
        return taken;
    }
    take_bytes(process, bytes, limit)
}

fn take_bytes(
    process: &'static ProcessReadsAhead,
    bytes: u64,
    limit: u64,
) -> Option<ReservedBytes> {
    let take = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= limit);
    let is_taken = process.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
    // Not `then_some`: it would build a `ReservedBytes` in any case, whose drop gives back bytes that
    // were not taken.
    is_taken.then(|| ReservedBytes { process, bytes })
}

/// Returns the follower of an array; makes it at the first call.
pub(super) fn follower(follows: &HandleReads, path: &str) -> Arc<Follower> {
    let followers = lock(&process().followers);
    let of_handle = followers.get(&follows.id);
    if let Some(known) = of_handle.and_then(|of_handle| of_handle.by_path.get(path)) {
        return known.clone();
    }
    drop(followers);
    let new = Arc::new(Follower::new(follows.limit, follows.known(path)));
    let mut followers = lock(&process().followers);
    let of_handle = followers.entry(follows.id).or_default();
    if of_handle.by_path.len() >= ARRAYS_MAX {
        let Followers { by_path, forgotten } = of_handle;
        by_path.drain().for_each(|(_, follower)| {
            follower.forget();
            *forgotten += follower.statistics();
        });
    }
    of_handle.by_path.entry(path.into()).or_insert(new).clone()
}

/// Returns the follower of an array, if it has one.
pub(super) fn follower_so_far(follows: &HandleReads, path: &str) -> Option<Arc<Follower>> {
    let followers = lock(&PROCESS.existing()?.followers);
    followers.get(&follows.id)?.by_path.get(path).cloned()
}

/// Drops all reads ahead of a handle.
pub(super) fn forget(follows: &HandleReads) {
    let Some(process) = PROCESS.existing() else { return };
    let gone = lock(&process.followers).remove(&follows.id);
    gone.iter().flat_map(|gone| gone.by_path.values()).for_each(|follower| follower.forget());
}

pub(super) fn statistics_of(follows: &HandleReads) -> PrefetchStatistics {
    let mut all = PrefetchStatistics::default();
    let Some(process) = PROCESS.existing() else { return all };
    let followers = lock(&process.followers);
    let Some(of_handle) = followers.get(&follows.id) else { return all };
    all += of_handle.forgotten;
    of_handle.by_path.values().for_each(|follower| all += follower.statistics());
    all
}

/// Queues a read ahead, and starts a thread if none is idle and fewer than `threads` run. False if
/// there is no thread and none can be started: a queued read without a thread would keep its store
/// and its bytes of the budget.
pub(super) fn submit(ahead: Arc<ReadAheadTask>, threads: usize) -> bool {
    let process = process();
    let mut queue = lock(&process.queue);
    if queue.idle == 0 && queue.threads < threads.max(1) {
        queue.threads += usize::from(process.start_thread());
    }
    if queue.threads == 0 {
        return false;
    }
    queue.waiting.push_back(ahead);
    drop(queue);
    process.bell.notify_one();
    true
}

impl ProcessReadsAhead {
    /// Starts a thread; false if that fails.
    fn start_thread(&'static self) -> bool {
        let Some(extra) = ExtraThread::begin() else { return false };
        let work = move || {
            let _extra = extra;
            self.work();
        };
        Builder::new().name("bedform-ahead".to_owned()).spawn(work).is_ok()
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(next) = queue.waiting.pop_front() {
                drop(queue);
                // A read that waits for it is woken even if a codec panics.
                let run = std::panic::AssertUnwindSafe(|| next.run());
                let _ = std::panic::catch_unwind(run);
                drop(next);
                queue = lock(&self.queue);
                continue;
            }
            queue.idle += 1;
            let (woken, waited) =
                self.bell.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if !waited.timed_out() || !queue.waiting.is_empty() {
                continue;
            }
            let is_last = queue.threads == 1;
            if is_last && self.bytes.load(Ordering::Relaxed) > 0 {
                drop(queue);
                self.drop_unused();
                queue = lock(&self.queue);
                continue;
            }
            queue.threads -= 1;
            return;
        }
    }

    /// Drops buffers that no read has used for [`UNUSED_MAX`].
    fn drop_unused(&self) {
        let followers = lock(&self.followers);
        let of_handles = followers.values();
        let all: Vec<_> = of_handles.flat_map(|of| of.by_path.values().cloned()).collect();
        drop(followers);
        all.iter().for_each(|follower| follower.drop_older_than(UNUSED_MAX));
    }

    /// Drops the abandoned buffers of all followers that are not in use. False if the last attempt
    /// was less than [`LOOK`] ago.
    fn makes_room(&self) -> bool {
        let Ok(mut looked) = self.looked.try_lock() else { return false };
        if looked.is_some_and(|at| at.elapsed() < LOOK) {
            return false;
        }
        *looked = Some(Instant::now());
        let Ok(followers) = self.followers.try_lock() else { return false };
        let all = followers.values().flat_map(|of| of.by_path.values());
        all.for_each(|follower| follower.try_drop_left());
        true
    }
}

/// Returns the CPU time of the calling thread.
pub(super) fn computed() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// True on the main thread of the process; in a forked child, that is the thread that forked.
pub(super) fn is_main_thread() -> bool {
    thread_local! {
        static KNOWN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
    }
    let now = generation();
    match KNOWN.get() {
        Some((generation, is_main)) if generation == now => is_main,
        _ => {
            let is_main =
                rustix::thread::gettid().as_raw_pid() == rustix::process::getpid().as_raw_pid();
            KNOWN.set(Some((now, is_main)));
            is_main
        }
    }
}

#[cfg(test)]
mod tests {
    use bedform_geometry::Selection;

    use super::*;
    use crate::options::{OpenOptions, Prefetch};

    #[test]
    fn reads_of_more_arrays_than_are_followed_are_counted_all_the_same() {
        let options = OpenOptions { prefetch: Prefetch::Bytes(1), ..OpenOptions::default() };
        let follows = HandleReads::new(&options).unwrap();
        let count = ARRAYS_MAX as u64 + 10;
        for number in 0..count {
            let read = (&Selection::Orthogonal(Vec::new()), 8);
            follows.begin(&number.to_string(), &[], read, &|| unreachable!());
        }
        let found = follows.statistics();
        assert_eq!((found.reads, found.read_bytes), (count, 8 * count));
    }
}
