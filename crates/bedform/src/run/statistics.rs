//! Counts of the work that a read does.
//!
//! All threads of a read add to one [`ReadCounters`], which has an atomic for each count. Once the
//! threads have ended, the counters become the [`ReadStatistics`] that the read returns.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the work that a read did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStatistics {
    /// Objects opened.
    pub objects: u64,
    /// Requests for bytes, including those for indexes.
    pub requests: u64,
    /// Bytes requested, including those of indexes.
    pub bytes: u64,
    /// Chunks decoded or read in part.
    pub chunks: u64,
    /// Requests that waited for the device.
    pub waits: u64,
    /// Objects that do not exist; the read gets fill values for them.
    pub absent: u64,
}

impl std::ops::AddAssign for ReadStatistics {
    fn add_assign(&mut self, other: Self) {
        let Self { objects, requests, bytes, chunks, waits, absent } = other;
        self.objects += objects;
        self.requests += requests;
        self.bytes += bytes;
        self.chunks += chunks;
        self.waits += waits;
        self.absent += absent;
    }
}

/// One count of a running read.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

/// The counts of a running read; see [`ReadStatistics`].
#[derive(Debug, Default)]
pub(super) struct ReadCounters {
    pub(super) objects: Counter,
    pub(super) requests: Counter,
    pub(super) bytes: Counter,
    pub(super) chunks: Counter,
    pub(super) waits: Counter,
    pub(super) absent: Counter,
}

impl ReadCounters {
    pub(super) fn into_statistics(self) -> ReadStatistics {
        ReadStatistics {
            objects: self.objects.0.into_inner(),
            requests: self.requests.0.into_inner(),
            bytes: self.bytes.0.into_inner(),
            chunks: self.chunks.0.into_inner(),
            waits: self.waits.0.into_inner(),
            absent: self.absent.0.into_inner(),
        }
    }
}
