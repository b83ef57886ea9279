//! Limits of a read: threads, gaps, memory.

use std::sync::Arc;

use bedform_storage::{Profile, REQUESTS_MAX};

use super::experience::Experience;
use crate::options::OpenOptions;
use crate::plan::opening::{SERVER_BUFFER_BYTES, requests_at_once, whole_number};

/// The most bytes that chunks are merged to. Also what a thread keeps as its buffer, unless one
/// chunk alone is larger.
pub(crate) const UNIT_BYTES_MAX: u64 = 2 << 20;

/// The fewest bytes that a read is cut to, for its threads to have as much of it each: below that requests count.
const UNIT_BYTES_MIN: u64 = 512 << 10;

/// From so many units for each thread on all have about as much of the read anyway.
const EVEN_UNITS: u64 = 4;

/// Reads below this many decoded bytes stay on the caller's thread, but for those that a log has in many
/// places, each of which is a wait.
const ALONE_BYTES: u64 = 256 << 10;

/// From how many seconds of a request on small reads are worth more threads than one, too.
const SHARED_SECONDS: f64 = 1e-3;

/// Extents of a unit, which a thread fetches one after the other: enough to make small requests worth its turn, few
/// enough that other threads get some.
const EXTENTS_MAX: f64 = 32.0;
/// Seconds that a unit may take for the waits of its requests alone, if it has more than one.
const UNIT_SECONDS: f64 = 5e-3;

/// How a plan is run.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    /// Threads while no request waits for the device.
    pub(crate) threads: usize,
    /// Threads once one does.
    pub(crate) threads_waiting: usize,
    /// Requests that a server is asked for at a time.
    pub(crate) requests_in_flight: usize,
    /// The largest gap between two extents that is read over.
    pub(crate) gap_bytes: u64,
    /// Bytes that all buffers of one read may take together.
    pub(crate) buffer_bytes: u64,
    /// True where a stream has a bandwidth of its own, so that what lies together comes sooner in parts.
    spreads: bool,
    /// The storage's parameters, for prices.
    pub(crate) profile: Profile,
    /// What reads refine, where the profile is a kept one.
    pub(crate) experience: Option<Arc<Experience>>,
}

/// How extents of an object become requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merging<'t> {
    /// The largest gap between two extents that is read over.
    pub(crate) gap_bytes: u64,
    /// Extents that a thread fetches one after the other.
    pub(crate) extents_max: usize,
    /// Threads that share the read.
    threads: u64,
    /// Objects that the read takes about as much of, and by which profile it is spread over requests.
    spread: Option<(u64, &'t Profile)>,
}

impl Merging<'_> {
    /// The most bytes that extents of one object, `bytes` together, are merged to.
    pub(crate) fn request_bytes(&self, bytes: u64) -> u64 {
        let Some((objects, profile)) = self.spread else { return self.shared_bytes(bytes) };
        #[allow(clippy::cast_precision_loss)]
        let (all, objects) = (bytes.saturating_mul(objects) as f64, objects as f64);
        let requests = whole_number((profile.streams_for(all) / objects).round()).max(1);
        bytes.div_ceil(requests).min(UNIT_BYTES_MAX)
    }

    /// The same where requests are as large as they may be: each thread gets as many as the others.
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
    /// The defaults of a place of this machine, with what the options of an open say otherwise.
    pub(crate) fn with(options: &OpenOptions) -> Self {
        Self::default().adapted(options)
    }

    /// The same where a server answers: it takes many requests in flight, and memory for their answers,
    /// to keep it busy.
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
            tuning.experience = place.and_then(|place| Experience::of(place, profile));
        }
        if let Some(gap) = options.gap_bytes {
            tuning.gap_bytes = gap;
        }
        // A thread works on one object at a time, and opens another only when no work is left: each
        // keeps at most the one that it reads and one that it has opened for all.
        let objects = (options.limits.objects_open_max / 2).max(1);
        tuning.threads = tuning.threads.min(objects);
        tuning.threads_waiting = tuning.threads_waiting.min(objects);
        tuning.requests_in_flight = tuning.requests_in_flight.min(objects);
        tuning
    }

    /// How a read of `chunks` in `objects` merges them to requests.
    pub(crate) fn merging(&self, chunks: u64, objects: u64) -> Merging<'_> {
        let (gap_bytes, extents_max) = (self.gap_bytes, self.extents_max());
        let threads = self.threads.max(1) as u64;
        if !self.spreads {
            return Merging { gap_bytes, extents_max, threads, spread: None };
        }
        #[allow(clippy::cast_precision_loss)]
        let worth = self.profile.gap_for(chunks as f64);
        let spread = Some((objects.max(1), &self.profile));
        Merging { gap_bytes: gap_bytes.min(worth), extents_max, threads, spread }
    }

    /// Extents that a thread fetches one after the other: few where each is waited for long.
    fn extents_max(&self) -> usize {
        let fit = UNIT_SECONDS / self.profile.request_seconds_one.max(1e-9);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = fit.clamp(1.0, EXTENTS_MAX) as usize;
        whole
    }

    /// True for a read of so many decoded bytes that more threads than its caller's are worth it: what is small
    /// takes as long as what is large where each request is waited for.
    pub(crate) fn shares(&self, decoded_bytes: u64) -> bool {
        let waits = self.profile.is_remote || self.profile.request_seconds_one >= SHARED_SECONDS;
        decoded_bytes > ALONE_BYTES || waits
    }

    /// Requests of `request_bytes` each that there is room for, beside what `scratch_bytes` for each core take.
    pub(crate) fn at_once(&self, request_bytes: f64, scratch_bytes: u64) -> f64 {
        if !self.spreads {
            return f64::INFINITY;
        }
        let scratch = scratch_bytes.saturating_mul(self.threads as u64);
        requests_at_once(self.buffer_bytes, scratch, request_bytes)
    }

    /// Threads while the storage fetches ahead what it is told of: twice the cores, since some wait
    /// for what it was told of late.
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

/// The shape of blocks of about `bytes_max` bytes that an array of `shape` is cut into: whole chunks of
/// `chunk_shape`, as many as fit along the fastest axis first. One chunk where that is larger.
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
