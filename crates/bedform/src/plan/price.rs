//! The work of a read in requests, bytes and chunks, and its predicted seconds.

use std::cmp::Ordering;
use std::ops::AddAssign;

use bedform_storage::{Dominant, ProcessorWork, ReadSeconds, ReadWork, Refined, StorageDemand};
use serde::Serialize;

use super::tuning::Tuning;

/// Predicted seconds of a read, by the profile of its storage and of the machine. Prices of
/// different plans compare by the seconds of a cold read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Price {
    /// Seconds of a cold read.
    pub seconds: f64,
    /// Seconds of a read whose objects are in the page cache.
    pub cached_seconds: f64,
    /// The dominant part of the cold read; `None` for an empty read.
    pub dominant: Option<Dominant>,
    /// The dominant part of the cached read; `None` for an empty read.
    pub cached_dominant: Option<Dominant>,
    /// True if the objects were opened and their indexes read; false for an estimate from the
    /// geometry alone.
    pub exact: bool,
}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.seconds.partial_cmp(&other.seconds)
    }
}

/// The work of a read, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// Objects opened.
    pub(crate) objects: u64,
    /// Waits for path lookups, if no cache knows the objects.
    pub(crate) names: u64,
    /// Objects that one request fetches as a whole when they are opened.
    pub(crate) whole_objects: u64,
    /// Requests for indexes.
    pub(crate) index_requests: u64,
    /// Bytes of the requests for indexes.
    pub(crate) index_bytes: u64,
    /// Requests for chunks.
    pub(crate) requests: u64,
    /// Bytes of the requests for chunks.
    pub(crate) bytes: u64,
    /// Bytes of the largest request.
    pub(crate) largest: u64,
    /// Chunks decoded or read in part.
    pub(crate) chunks: u64,
    /// Chunks that were never written.
    pub(crate) missing: u64,
    /// Bytes of the decoded chunks of objects, and of chunks that are stored as their elements.
    pub(crate) decoded_bytes: u64,
    /// Bytes among them of chunks that are stored as their elements.
    pub(crate) raw_bytes: u64,
    /// Bytes of the decoded blocks of a log.
    pub(crate) log_bytes: u64,
    /// Nanoseconds that one core takes to decode the chunks.
    pub(crate) decoding_nanos: u64,
    /// Runs that are contiguous both in a chunk and in the result.
    pub(crate) runs: u64,
    /// Bytes of the result.
    pub(crate) result_bytes: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.names += other.names;
        self.whole_objects += other.whole_objects;
        self.index_requests += other.index_requests;
        self.index_bytes += other.index_bytes;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.largest = self.largest.max(other.largest);
        self.chunks += other.chunks;
        self.missing += other.missing;
        self.decoded_bytes += other.decoded_bytes;
        self.raw_bytes += other.raw_bytes;
        self.log_bytes += other.log_bytes;
        self.decoding_nanos += other.decoding_nanos;
        self.runs += other.runs;
        self.result_bytes += other.result_bytes;
    }
}

impl Cost {
    /// Returns the predicted seconds, by the terms of [`CostModel`](crate::layout::CostModel). They
    /// are one wait for the first index, one for the first chunk, then requests and bytes, and
    /// meanwhile the CPU work. The memory of the read limits the requests in flight;
    /// `scratch_bytes` of it for each core are for decoding.
    ///
    /// `refined` holds the correction factors that earlier reads of the codec gave.
    pub(crate) fn seconds(
        &self,
        tuning: &Tuning,
        scratch_bytes: u64,
        refined: Refined,
    ) -> ReadSeconds {
        let read = ReadWork {
            demand: self.demand(tuning, scratch_bytes),
            work: self.work(),
            threads: self.threads(tuning),
            threads_waiting: self.at_most(tuning.threads_waiting),
        };
        tuning.profile.refined_seconds(&read, refined)
    }

    /// Returns the same prediction as a price.
    pub(crate) fn price(&self, tuning: &Tuning, scratch_bytes: u64, refined: Refined) -> Price {
        let seconds = self.seconds(tuning, scratch_bytes, refined);
        let is_some = self.objects > 0 || self.result_bytes > 0;
        Price {
            seconds: seconds.cold,
            cached_seconds: seconds.cached,
            dominant: is_some.then_some(seconds.dominant),
            cached_dominant: is_some.then_some(seconds.cached_dominant),
            exact: true,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn demand(&self, tuning: &Tuning, scratch_bytes: u64) -> StorageDemand {
        if self.objects == 0 {
            return StorageDemand::default();
        }
        let Self { index_requests, requests, .. } = *self;
        let waits = if index_requests > 0 && requests > 0 { 2.0 } else { 1.0 };
        let bytes = (self.bytes + self.index_bytes) as f64;
        let streams = requests.max(index_requests) as f64;
        let room = match tuning.profile.is_remote {
            true => tuning.at_once(bytes / streams.max(1.0), scratch_bytes),
            false => tuning.threads_waiting as f64,
        };
        StorageDemand {
            waits,
            requests: (requests + index_requests) as f64,
            bytes,
            streams: streams.min(room),
            // Files are read ahead, in pieces.
            largest: if tuning.profile.is_remote { self.largest as f64 } else { 0.0 },
            index_requests: index_requests as f64,
            index_bytes: self.index_bytes as f64,
            names: self.names as f64,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn work(&self) -> ProcessorWork {
        ProcessorWork {
            objects: self.objects as f64,
            requests: (self.requests + self.index_requests) as f64,
            bytes: (self.bytes + self.index_bytes) as f64,
            chunks: (self.chunks + self.missing) as f64,
            decoding_seconds: self.decoding_nanos as f64 * 1e-9,
            runs: self.runs as f64,
            copied_bytes: self.result_bytes as f64,
        }
    }

    /// Returns the number of threads that will share the work.
    pub(crate) fn threads(&self, tuning: &Tuning) -> u32 {
        match tuning.shares(self.decoded_bytes.max(self.result_bytes)) {
            true => self.at_most(tuning.threads),
            false => 1,
        }
    }

    /// Returns `threads`, or fewer if there are fewer chunks: one thread decodes a chunk.
    fn at_most(&self, threads: usize) -> u32 {
        u32::try_from(self.chunks.min(threads as u64)).unwrap_or(u32::MAX).max(1)
    }
}
