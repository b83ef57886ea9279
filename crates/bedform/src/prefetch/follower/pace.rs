//! The pace of a program's reads of one array: the time of a read, the time between two, and the
//! resource that a read spends its time on.

use std::time::{Duration, Instant};

use super::settings::SETTINGS;

/// The pace of reads: mean times, and the last read.
#[derive(Debug, Default)]
pub(super) struct ReadPace {
    /// Bytes of the last read.
    bytes: u64,
    /// The end of the last read, until the next one begins.
    ended: Option<Instant>,
    /// Mean times: between two reads, and of a read without a buffer ahead.
    gap: MeanTime,
    took: MeanTime,
    /// True if the last such read waited for a device.
    waits: bool,
    /// True if the last such read kept its thread busy. Such reads gain nothing from running in
    /// parallel, and would delay the first one.
    computes: bool,
}

/// An exponential mean: each new value weighs half.
#[derive(Debug, Clone, Copy, Default)]
struct MeanTime(Option<f64>);

impl MeanTime {
    fn add(&mut self, value: Duration) {
        let value = value.as_secs_f64();
        // The first value of a new kind weighs as much as later ones: half.
        self.0 = Some(self.0.map_or(value, |mean| 0.5 * (mean + value)));
    }

    fn seconds(self) -> f64 {
        self.0.unwrap_or(0.0)
    }
}

impl ReadPace {
    /// Notes the begin of a read of `bytes` bytes.
    pub(super) fn begin(&mut self, bytes: u64) {
        self.bytes = bytes;
        if let Some(ended) = self.ended.take() {
            self.gap.add(ended.elapsed());
        }
    }

    /// Notes the end of a read.
    pub(super) fn end(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Adds the time of a read without a buffer ahead.
    pub(super) fn add(&mut self, took: Duration) {
        self.took.add(took);
    }

    /// Adds the time of a direct read. It waited for a device if `waits`, or if its thread `idled`,
    /// which short reads do not measure.
    pub(super) fn add_direct(&mut self, took: Duration, waits: bool, idled: Option<bool>) {
        self.took.add(took);
        self.waits = waits || idled == Some(true);
        self.computes = idled == Some(false);
    }

    /// True if reads are so short that analyzing them costs more than reading ahead saves.
    pub(super) fn is_short(&self) -> bool {
        2.0 * self.took.seconds() < SETTINGS.read_min.as_secs_f64()
    }

    /// True if a read may be long enough for a thread to begin meanwhile.
    pub(super) fn may_be_long(&self) -> bool {
        self.took.0.is_none_or(|took| took >= SETTINGS.read_min.as_secs_f64())
    }

    /// True if the overlap saves more than reading ahead costs.
    pub(super) fn is_worth_it(&self) -> bool {
        let (took, gap) = (self.took.seconds(), self.gap.seconds());
        let is_large = self.bytes >= SETTINGS.large_bytes;
        let share = if is_large { SETTINGS.gap_share_large } else { SETTINGS.gap_share };
        took >= SETTINGS.read_min.as_secs_f64() && (self.waits || gap >= share * took)
    }

    /// Returns the number of parallel reads ahead: enough to finish one per read of the program, or
    /// one if reads compute.
    pub(super) fn at_once(&self) -> usize {
        if self.computes {
            return 1;
        }
        let (took, gap) = (self.took.seconds(), self.gap.seconds());
        let wanted = (1..SETTINGS.threads_max).find(|count| took <= *count as f64 * gap);
        wanted.unwrap_or(SETTINGS.threads_max)
    }

    /// Returns the longest wait for a running read ahead.
    pub(super) fn patience(&self) -> Duration {
        let patience = Duration::try_from_secs_f64(SETTINGS.patience_reads * self.took.seconds());
        patience.unwrap_or(SETTINGS.patience_min).max(SETTINGS.patience_min)
    }

    /// True if the program has stopped reading this array.
    pub(super) fn has_stopped(&self) -> bool {
        self.ended.is_some_and(|ended| {
            let idle = ended.elapsed();
            idle > SETTINGS.left_min && idle.as_secs_f64() > SETTINGS.left_gaps * self.gap.seconds()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(ms: u32) -> MeanTime {
        MeanTime(Some(f64::from(ms) * 1e-3))
    }

    #[test]
    fn large_reads_that_wait_for_nothing_are_left_alone_unless_much_is_computed_between_them() {
        let pace = |bytes, gap_ms, waits| {
            let (gap, took) = (mean(gap_ms), mean(6));
            ReadPace { bytes, gap, took, waits, ..ReadPace::default() }
        };
        assert!(pace(1 << 20, 1, false).is_worth_it());
        assert!(!pace(64 << 20, 1, false).is_worth_it());
        assert!(pace(64 << 20, 4, false).is_worth_it());
        assert!(pace(64 << 20, 1, true).is_worth_it());
    }

    #[test]
    fn reads_that_compute_are_made_one_after_the_other_and_those_that_wait_at_once() {
        let pace =
            |computes| ReadPace { gap: mean(2), took: mean(6), computes, ..ReadPace::default() };
        assert_eq!((pace(true).at_once(), pace(false).at_once()), (1, 3));
    }
}
