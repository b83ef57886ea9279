//! The policy of reading ahead: when a read is worth it, how many, and how long unused ones stay.
//!
//! The strategy is that of Tang, *Dynamic data prefetching and layout optimizations*, section 2.3.6;
//! the numbers are measurements of this engine, the same on every machine.

use std::time::Duration;

/// Limits and thresholds for the reads ahead of one array.
pub(super) struct FollowerSettings {
    /// Smaller results, in bytes, are not read ahead (section 2.3.6).
    pub(super) result_bytes_min: u64,
    /// The time below which a read ends before a thread would have begun. An assumption: the
    /// `thread_seconds` of a profile is the time to start a thread, and these threads are woken.
    pub(super) read_min: Duration,
    /// The least time between reads, as a share of a read's time, if reads do not wait for a device.
    pub(super) gap_share: f64,
    /// The same share for reads of `large_bytes` or more, which keep all cores and the memory busy:
    /// allocating and copying a buffer costs more than the overlap saves.
    pub(super) gap_share_large: f64,
    /// Bytes of a large read.
    pub(super) large_bytes: u64,

    /// The number of first reads of an array that are always analyzed.
    pub(super) first_analyzed: u64,
    /// Reads in a row without a prediction after which the analyzer gets `analyzed_together` reads at
    /// a time. Analyzing one read costs 20 us while the processor's caches are cold, and 1 us for
    /// each further one.
    pub(super) unpredicted_min: usize,
    /// Reads that the analyzer gets at a time.
    pub(super) analyzed_together: usize,
    /// Reads that are analyzed singly again after a correct prediction. Single predictions happen by
    /// chance: a few reads show whether they continue.
    pub(super) analyzed_singly: usize,

    /// The most background threads of the process.
    pub(super) threads_max: usize,
    /// The depth for a newly found pattern, in reads.
    pub(super) first_depth: usize,
    /// Correct predictions in a row for each further read ahead: the waste at the end of a run is at
    /// most a twentieth of it.
    pub(super) run_for_one: u64,
    /// The most wasted reads ahead that count against the next pattern.
    pub(super) in_vain_max: u64,
    /// Reads that may overtake a predicted one before it is dropped.
    pub(super) overtaken_max: u64,

    /// Reads ahead of a list beyond the running ones; a list is certain.
    pub(super) listed_beyond: usize,
    /// Further reads ahead where the program reads a list in another order.
    pub(super) listed_spread_max: usize,
    /// List entries that are searched for a read out of order.
    pub(super) listed_look: usize,
    /// Reads in a row outside a list, before the list is given up.
    pub(super) unlisted_max: u64,

    /// The longest wait for a running read ahead, in mean times of a read. A server may not answer;
    /// the direct read has all of its own time.
    pub(super) patience_reads: f64,
    /// The least value of that longest wait.
    pub(super) patience_min: Duration,
    /// The least age at which abandoned buffers are dropped if others need the room.
    pub(super) left_min: Duration,
    /// That age in the program's mean times between two reads, if that is longer.
    pub(super) left_gaps: f64,
}

pub(super) const SETTINGS: FollowerSettings = FollowerSettings {
    result_bytes_min: 1 << 10,
    read_min: Duration::from_micros(150),
    gap_share: 0.1,
    gap_share_large: 0.5,
    large_bytes: 8 << 20,

    first_analyzed: 8,
    unpredicted_min: 32,
    analyzed_together: 8,
    analyzed_singly: 4,

    threads_max: 8,
    first_depth: 2,
    run_for_one: 40,
    in_vain_max: 16,
    overtaken_max: 16,

    listed_beyond: 2,
    listed_spread_max: 16,
    listed_look: 256,
    unlisted_max: 64,

    patience_reads: 4.0,
    patience_min: Duration::from_secs(2),
    left_min: Duration::from_secs(1),
    left_gaps: 8.0,
};
