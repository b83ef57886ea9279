//! What was read ahead, and what was used of it.

use serde::Serialize;

/// Reads of a store, and how many were read ahead of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PrefetchStatistics {
    /// Reads that were followed.
    pub reads: u64,
    /// Bytes of the results of all reads that were followed.
    pub read_bytes: u64,
    /// Reads that a pattern, or a list, had said before.
    pub foreseen: u64,
    /// Reads that took their elements from a buffer that was read ahead.
    pub used: u64,
    /// Bytes of those.
    pub used_bytes: u64,
    /// Bytes that were read ahead, used or not.
    pub prefetched_bytes: u64,
    /// Bytes that were read ahead and dropped unused.
    pub wasted_bytes: u64,
    /// Reads that had to wait for one that was under way.
    pub waited: u64,
    /// Reads ahead that are there now, or to be made.
    pub ahead: u64,
    /// Those of them that nobody has to wait for.
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
