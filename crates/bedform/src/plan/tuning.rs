//! Limits of a read: threads, gaps, units, memory.

use std::sync::Arc;

use bedform_storage::{Profile, REQUESTS_MAX};

use super::experience::ProfileRefinement;
use crate::options::OpenOptions;
use crate::plan::opening::{SERVER_BUFFER_BYTES, requests_at_once, whole_number};

/// The most bytes into which chunks are merged. A thread's buffer has this size, unless one chunk
/// alone is larger.
pub(crate) const UNIT_BYTES_MAX: u64 = 2 << 20;

/// The fewest bytes of a unit when a read is cut evenly for its threads: below that, the cost of
/// requests dominates.
const UNIT_BYTES_MIN: u64 = 512 << 10;

/// From so many units for each thread on, all threads get about equal shares without further cuts.
const EVEN_UNITS: u64 = 4;

/// Reads of at most this many decoded bytes stay on the caller's thread. Reads of many places of a
/// log are an exception: each place is a wait.
const ALONE_BYTES: u64 = 256 << 10;

/// Storage whose requests take at least so many seconds gets several threads even for small reads.
const SHARED_SECONDS: f64 = 1e-3;

/// The most extents of a unit, which a thread fetches one after the other. They are enough to be
/// worth a step of the thread, and few enough to leave some for other threads.
const EXTENTS_MAX: f64 = 32.0;
/// Seconds that the requests of a unit of several extents may wait together.
const UNIT_SECONDS: f64 = 5e-3;

/// The limits by which a plan is run.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    /// Threads as long as no request waits for the device.
    pub(crate) threads: usize,
    /// Threads once a request waits for the device.
    pub(crate) threads_waiting: usize,
    /// Requests that a server gets at a time.
    pub(crate) requests_in_flight: usize,
    /// The largest gap in bytes between two extents that is read over.
    pub(crate) gap_bytes: u64,
    /// Bytes that all buffers of one read may use together.
    pub(crate) buffer_bytes: u64,
    /// True where each stream has a bandwidth of its own, so that contiguous bytes arrive sooner in
    /// several requests.
    spreads: bool,
    /// The storage's parameters, for prices.
    pub(crate) profile: Profile,
    /// The refinement of the profile by reads, if the profile is stored in a file.
    pub(crate) experience: Option<Arc<ProfileRefinement>>,
}

/// The rules by which extents of an object become requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeRules<'t> {
    /// The largest gap in bytes between two extents that is read over.
    pub(crate) gap_bytes: u64,
    /// The most extents that a thread fetches one after the other.
    pub(crate) extents_max: usize,
    /// Threads that share the read.
    threads: u64,
    /// The number of objects, of which the read needs about as much each, and the profile that
    /// spreads their bytes over requests.
    spread: Option<(u64, &'t Profile)>,
}

impl MergeRules<'_> {
    /// Returns the most bytes of a request, for extents of one object that have `bytes` bytes
    /// together.
    pub(crate) fn request_bytes(&self, bytes: u64) -> u64 {
        let Some((objects, profile)) = self.spread else { return self.shared_bytes(bytes) };
        #[allow(clippy::cast_precision_loss)]
        let (all, objects) = (bytes.saturating_mul(objects) as f64, objects as f64);
        let requests = whole_number((profile.streams_for(all) / objects).round()).max(1);
        bytes.div_ceil(requests).min(UNIT_BYTES_MAX)
    }

    /// Returns the same for storage where large requests are best: each thread gets as many as the
    /// others.
    fn shared_bytes(&self, bytes: u64) -> u64 {
        let units = bytes.div_ceil(UNIT_BYTES_MAX);
        if units >= EVEN_UNITS * self.threads {
            return UNIT_BYTES_MAX;
        }
        let units = units.max(1).next_multiple_of(self.threads);
        bytes.div_ceil(units).clamp(UNIT_BYTES_MIN, UNIT_BYTES_MAX)
    }
}

impl Tuning {
    /// Returns the defaults for storage of this machine, changed by the options of an open.
    pub(crate) fn with(options: &OpenOptions) -> Self {
        Self::default().adapted(options)
    }

    /// Returns the defaults for a server, changed by the options. A server needs many requests in
    /// flight, and memory for their answers, to be kept busy.
    pub(crate) fn of_server(options: &OpenOptions) -> Self {
        Self { buffer_bytes: SERVER_BUFFER_BYTES, spreads: true, ..Self::default() }
            .adapted(options)
    }

    fn adapted(self, options: &OpenOptions) -> Self {
        let mut tuning = self;
        if let Some(threads) = options.threads {
            tuning.threads = threads.max(1);
            tuning.threads_waiting = tuning.threads_waiting.min(threads.max(1) * 8);
        }
        if let Some(profile) = &options.profile {
            tuning.gap_bytes = profile.merge_gap_bytes;
            tuning.requests_in_flight = usize::try_from(profile.requests_in_flight)
                .unwrap_or(tuning.requests_in_flight)
                .clamp(1, REQUESTS_MAX);
            tuning.threads_waiting = tuning.requests_in_flight.clamp(tuning.threads, 64);
            tuning.profile = profile.clone();
            let place = options.refines.as_deref();
            tuning.experience = place.and_then(|place| ProfileRefinement::of(place, profile));
        }
        if let Some(gap) = options.gap_bytes {
            tuning.gap_bytes = gap;
        }
        // A thread works on one object at a time, and opens another only when no work is left. So
        // each keeps at most two open: the one that it reads, and one that it has opened for all.
        let objects = (options.limits.objects_open_max / 2).max(1);
        tuning.threads = tuning.threads.min(objects);
        tuning.threads_waiting = tuning.threads_waiting.min(objects);
        tuning.requests_in_flight = tuning.requests_in_flight.min(objects);
        tuning
    }

    /// Returns the same limits with the prices of `profile`, as it is stored.
    pub(crate) fn priced_by(&self, profile: &Profile) -> Self {
        let gap_bytes = profile.merge_gap_bytes;
        Self { profile: profile.clone(), gap_bytes, experience: None, ..self.clone() }
    }

    /// Returns the rules by which a read of `chunks` chunks in `objects` objects merges them into
    /// requests.
    pub(crate) fn merging(&self, chunks: u64, objects: u64) -> MergeRules<'_> {
        let (gap_bytes, extents_max) = (self.gap_bytes, self.extents_max());
        let threads = self.threads.max(1) as u64;
        if !self.spreads {
            return MergeRules { gap_bytes, extents_max, threads, spread: None };
        }
        #[allow(clippy::cast_precision_loss)]
        let worth = self.profile.gap_for(chunks as f64);
        let spread = Some((objects.max(1), &self.profile));
        MergeRules { gap_bytes: gap_bytes.min(worth), extents_max, threads, spread }
    }

    /// Returns the most extents that a thread fetches one after the other: few where each is a long
    /// wait.
    fn extents_max(&self) -> usize {
        let fit = UNIT_SECONDS / self.profile.request_seconds_one.max(1e-9);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = fit.clamp(1.0, EXTENTS_MAX) as usize;
        whole
    }

    /// Returns true if a read of `decoded_bytes` bytes is worth more threads than its caller's.
    /// Where each request waits, even a small read is, because it takes as long as a large one.
    pub(crate) fn shares(&self, decoded_bytes: u64) -> bool {
        let waits = self.profile.is_remote || self.profile.request_seconds_one >= SHARED_SECONDS;
        decoded_bytes > ALONE_BYTES || waits
    }

    /// Returns the number of requests of `request_bytes` each that fit the memory of the read,
    /// beside `scratch_bytes` for each core.
    pub(crate) fn at_once(&self, request_bytes: f64, scratch_bytes: u64) -> f64 {
        if !self.spreads {
            return f64::INFINITY;
        }
        let scratch = scratch_bytes.saturating_mul(self.threads as u64);
        requests_at_once(self.buffer_bytes, scratch, request_bytes)
    }

    /// Returns the number of threads while the kernel honours readahead hints. It is twice the
    /// cores, because some threads wait for bytes that were hinted late.
    pub(crate) fn threads_ahead(&self) -> usize {
        (2 * self.threads).min(self.threads_waiting)
    }
}

impl Default for Tuning {
    fn default() -> Self {
        let cores = bedform_storage::cores();
        Self {
            threads: cores,
            threads_waiting: 32.max(cores),
            requests_in_flight: 32,
            gap_bytes: 16 << 10,
            buffer_bytes: 44 << 20,
            spreads: false,
            profile: Profile::default_local(),
            experience: None,
        }
    }
}

/// Returns the shape of blocks of about `bytes_max` bytes that divide an array of `shape`. A block
/// is whole chunks of `chunk_shape`, as many as fit, along the fastest axis first. It is one chunk
/// if that is larger.
pub(crate) fn block_shape(
    shape: &[u64],
    chunk_shape: &[u64],
    item_size: u64,
    bytes_max: u64,
) -> Vec<u64> {
    let mut block: Vec<u64> = chunk_shape.iter().map(|length| (*length).max(1)).collect();
    let bytes = block.iter().fold(item_size.max(1), |bytes, length| bytes.saturating_mul(*length));
    let mut room = bytes_max / bytes;
    for (length, whole) in block.iter_mut().zip(shape).rev() {
        // An axis that is not covered leaves no room for the slower ones.
        let chunks = whole.div_ceil(*length).clamp(1, room.max(1));
        *length = length.saturating_mul(chunks);
        room /= chunks;
    }
    block
}

#[cfg(test)]
mod tests {
    use crate::plan::tuning::*;
    use bedform_format::Limits;

    #[test]
    fn blocks_are_whole_chunks_and_whole_rows_as_far_as_they_fit() {
        let block = |shape: &[u64], chunk: &[u64], bytes| block_shape(shape, chunk, 4, bytes);
        assert_eq!(block(&[100, 10, 10], &[1, 1, 1], 1000), [2, 10, 10]);
        assert_eq!(block(&[100, 10, 1000], &[1, 1, 1], 1000), [1, 1, 250]);
        assert_eq!(block(&[100, 10], &[3, 4], 200), [3, 12]);
        assert_eq!(block(&[100, 10], &[30, 4], 200), [30, 4]);
        assert_eq!(block(&[0, 10], &[1, 1], 200), [1, 10]);
        assert_eq!(block(&[], &[], 200), [0_u64; 0]);
    }

    #[test]
    fn no_read_holds_more_objects_open_than_the_limit() {
        for (limit, threads) in [(1, 1), (2, 1), (3, 1), (8, 4)] {
            let mut limits = Limits::default();
            limits.objects_open_max = limit;
            let options = OpenOptions { limits, threads: Some(16), ..OpenOptions::default() };
            let tuning = Tuning::with(&options);
            assert_eq!((tuning.threads, tuning.threads_waiting), (threads, threads), "{limit}");
            assert!(tuning.threads_ahead() <= threads, "{limit}");
        }
    }
}
