//! The number of threads of a read.
//!
//! The caller's thread is the first. While the data are in the page cache, there are as many
//! threads as cores. The first request that would wait for the device starts more: enough to keep
//! the device busy, or only a few where the kernel honours readahead hints. The buffers of all
//! threads together fit the memory bound of the read.
//!
//! Requests to a server are sent ahead of the threads that consume them (see `queue`). The threads
//! are then no more than the cores, because a thread for each request would cost more than the
//! request. Only objects that do not support asynchronous requests start threads that wait.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bedform_codec::ChunkCodec;
use bedform_storage::ReadBlock;

use super::plan::ReadPlan;
use crate::plan::tuning::{Tuning, UNIT_BYTES_MAX};
use crate::threads::extra::ExtraThread;

/// Units of fewer bytes are never read past the page cache.
const SMALL_UNIT_BYTES: u64 = 128 << 10;

/// Decides how many threads a read has, by its plan and by the waits and units of its threads.
pub(super) struct ThreadPolicy<'a> {
    tuning: &'a Tuning,
    /// True if opening an object waits for a server.
    is_remote: bool,
    /// Bytes for the buffers of all threads, without memory that they share to decode.
    pub(super) buffer_bytes: u64,
    /// Bytes of them that a thread takes to decode its unit.
    decoding_bytes: u64,
    /// The bytes of a unit, as long as there was none.
    expected_unit: u64,
    /// The threads of the read, its caller's included.
    threads: AtomicUsize,
    /// The threads that have found nothing to do.
    idle: AtomicUsize,
    /// Bytes of the largest unit so far; 0 before the first.
    largest_unit: AtomicU64,
    /// True if the read is worth more threads than its caller's.
    is_shared: AtomicBool,
    /// True once a request has waited for the device.
    has_waited: AtomicBool,
    /// True once the storage has honoured a readahead hint.
    fetched_ahead: AtomicBool,
    /// True once some requests cannot be read ahead, so that a thread must wait for them.
    fetched_late: AtomicBool,
}

impl<'a> ThreadPolicy<'a> {
    pub(super) fn new(plan: &ReadPlan<'a>) -> Self {
        let (tuning, is_remote) = (plan.tuning(), plan.is_remote());
        let scratch = plan.most(ChunkCodec::scratch_bytes);
        // A thread that waits for the server, or for a decoding permit, holds fetched bytes alone.
        let (shared, decoding_bytes) = match is_remote {
            true => (scratch.saturating_mul(tuning.threads as u64), 0),
            false => (0, scratch),
        };
        let chunk = |codec: &ChunkCodec| codec.decoded_bytes() as u64;
        Self {
            tuning,
            is_remote,
            buffer_bytes: tuning.buffer_bytes.saturating_sub(shared),
            decoding_bytes,
            expected_unit: UNIT_BYTES_MAX.max(if plan.is_raw() { 0 } else { plan.most(chunk) }),
            threads: AtomicUsize::new(1),
            idle: AtomicUsize::new(0),
            largest_unit: AtomicU64::new(0),
            is_shared: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            fetched_ahead: AtomicBool::new(false),
            fetched_late: AtomicBool::new(false),
        }
    }

    /// Allows more threads than the caller's.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Notes that a request is about to wait for the device.
    pub(super) fn note_wait(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Relaxed)
    }

    /// Notes whether the storage fetches bytes before a thread waits for them.
    pub(super) fn note_hint(&self, is_honoured: bool) {
        let noted = if is_honoured { &self.fetched_ahead } else { &self.fetched_late };
        noted.store(true, Ordering::Relaxed);
    }

    /// Notes the bytes of a unit that threads will fetch.
    pub(super) fn note_unit(&self, bytes: u64) {
        self.largest_unit.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Counts one more thread. Returns `None` if the limits of the read or of the process allow
    /// none. [`Self::end`] must follow in either case.
    pub(super) fn begin(&self) -> Option<ExtraThread> {
        let before = self.threads.fetch_add(1, Ordering::Relaxed);
        if before < self.limit() { ExtraThread::begin() } else { None }
    }

    /// Counts a thread out.
    pub(super) fn end(&self) {
        self.threads.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if no thread but the caller's is left.
    pub(super) fn is_alone(&self) -> bool {
        self.threads.load(Ordering::Acquire) <= 1
    }

    /// Returns true if a thread should end, because units have turned out larger than they were
    /// when it started.
    pub(super) fn are_too_many(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > self.limit()
    }

    /// Counts the calling thread as idle during `wait`.
    pub(super) fn while_idle(&self, wait: impl FnOnce()) {
        self.idle.fetch_add(1, Ordering::Relaxed);
        wait();
        self.idle.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of threads to start to keep the device busy while requests wait for it.
    /// `left` returns the units and cells that no thread has taken.
    pub(super) fn missing(&self, left: impl FnOnce() -> u64) -> usize {
        if !self.is_shared.load(Ordering::Relaxed) {
            return 0;
        }
        let left = usize::try_from(left()).unwrap_or(usize::MAX);
        let threads = self.threads.load(Ordering::Relaxed);
        // A thread with work, as a rule a wait, takes nothing of the rest.
        let busy = threads.saturating_sub(self.idle.load(Ordering::Relaxed));
        self.limit().min(busy.saturating_add(left)).saturating_sub(threads)
    }

    /// Returns the most threads whose buffers together fit the memory bound of the read.
    fn limit(&self) -> usize {
        let fetched = match self.largest_unit.load(Ordering::Relaxed) {
            0 => self.expected_unit,
            largest => largest,
        };
        // Only large requests to a device use an aligned block.
        let has_block = fetched >= SMALL_UNIT_BYTES && !self.is_remote;
        let block = if has_block { ReadBlock::BYTES as u64 } else { 0 };
        let each = self.decoding_bytes.saturating_add(fetched).saturating_add(block);
        let fit = usize::try_from(self.buffer_bytes / each.max(1)).unwrap_or(usize::MAX);
        let ahead = self.fetched_ahead.load(Ordering::Relaxed);
        let useful = match ahead && !self.fetched_late.load(Ordering::Relaxed) {
            true => self.tuning.threads_ahead(),
            false => self.tuning.threads_waiting,
        };
        fit.clamp(1, useful.max(self.tuning.threads))
    }
}
