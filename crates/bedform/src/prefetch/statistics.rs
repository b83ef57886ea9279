//! Counts of reads ahead and of their use.

use serde::Serialize;

/// Counts of a store's reads, and of its reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PrefetchStatistics {
    /// Reads that were followed.
    pub reads: u64,
    /// Bytes of the results of all reads that were followed.
    pub read_bytes: u64,
    /// Reads that a pattern or a list predicted.
    pub foreseen: u64,
    /// Reads that took their elements from a buffer of a read ahead.
    pub used: u64,
    /// Bytes of those reads.
    pub used_bytes: u64,
    /// Bytes read ahead, used or not.
    pub prefetched_bytes: u64,
    /// Bytes read ahead and dropped unused.
    pub wasted_bytes: u64,
    /// Reads that waited for a running read ahead.
    pub waited: u64,
    /// Reads ahead that are queued, running or ready.
    pub ahead: u64,
    /// Reads ahead whose buffer is ready.
    pub ready: u64,
}

impl std::ops::AddAssign for PrefetchStatistics {
    fn add_assign(&mut self, other: Self) {
        let Self {
            reads,
            read_bytes,
            foreseen,
            used,
            used_bytes,
            prefetched_bytes,
            wasted_bytes,
            waited,
            ahead,
            ready,
        } = other;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.foreseen += foreseen;
        self.used += used;
        self.used_bytes += used_bytes;
        self.prefetched_bytes += prefetched_bytes;
        self.wasted_bytes += wasted_bytes;
        self.waited += waited;
        self.ahead += ahead;
        self.ready += ready;
    }
}
