//! Timing of reads: one or many at a time, near extents apart and as one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::check_cancelled;
use crate::cancellation::{ASK_EVERY, is_cancelled, stopped_by};
use crate::{Answer, Bell, Bytes, GapCheck, LargeMemory, StorageError};

const IN_FLIGHT: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The multiple of bytes for gaps.
pub(super) const PAGE: u64 = 4096;
/// Bytes of each extent of the pairs that check the merging gap.
const GAP_EXTENT: u64 = 16 << 10;
/// The largest request in bytes that the engine makes without need.
const GAP_BYTES_MAX: u64 = 16 << 20;
const GAPS_MAX: usize = 8;

/// One extent to read.
#[derive(Debug, Clone, Copy)]
pub struct TimedExtent {
    /// The index of its object.
    pub object: usize,
    /// Its offset in the object, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The total times of reading a list of extents.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadTimes {
    /// Number of extents.
    pub requests: f64,
    /// Bytes of all extents.
    pub bytes: f64,
    /// Seconds from the start of the first to the end of the last.
    pub seconds: f64,
    /// Processor seconds of all threads.
    pub cpu_seconds: f64,
    /// The median of the seconds of one extent.
    pub median_seconds: f64,
}

impl ReadTimes {
    /// Returns the bandwidth in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }

    /// Returns the elapsed seconds per request.
    pub fn seconds_per_request(&self) -> f64 {
        (self.seconds / self.requests.max(1.0)).max(1e-9)
    }

    /// Returns the processor seconds per request.
    pub fn cpu_seconds_per_request(&self) -> f64 {
        (self.cpu_seconds / self.requests.max(1.0)).max(1e-9)
    }
}

/// A place whose reads are timed.
pub trait TimedSource: Sync {
    /// Returns the name for errors.
    fn place(&self) -> &str;

    /// Returns the number of readable bytes.
    fn bytes(&self) -> u64;

    /// Makes the next reads cold, as far as possible.
    fn forget(&self) {}

    /// Fills `buffer` with the bytes of `piece`.
    fn read(&self, piece: TimedExtent, buffer: &mut [u8]) -> Result<(), StorageError>;

    /// Requests the bytes of `piece` without waiting, where one thread can keep many requests in
    /// flight.
    fn request(&self, piece: TimedExtent, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let _ = (piece, bell);
        None
    }

    /// Returns the most requests in flight.
    fn in_flight_max(&self) -> usize {
        64
    }

    /// Returns all extents of `bytes` bytes each, in an order that defeats readahead.
    fn shuffled(&self, bytes: u64) -> Vec<TimedExtent>;

    /// True if threads that do not wait for requests do a part of the work.
    fn has_helpers(&self) -> bool {
        false
    }
}

/// A timer of the reads of one place, which stops when the call is cancelled.
pub struct Timer<'a, R: TimedSource> {
    /// The place.
    pub source: &'a R,
}

impl<R: TimedSource> Timer<'_, R> {
    /// Reads `pieces` by `in_flight` concurrent readers until all are read or the time is up.
    pub fn measure(
        &self,
        in_flight: usize,
        pieces: &[TimedExtent],
        seconds_max: f64,
    ) -> Result<ReadTimes, StorageError> {
        if in_flight > 1
            && let Some(measured) = self.measure_asked(in_flight, pieces, seconds_max)?
        {
            return Ok(measured);
        }
        self.source.forget();
        let largest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or(PAGE);
        let limit = Duration::from_secs_f64(seconds_max);
        let (next, start) = (AtomicUsize::new(0), Barrier::new(in_flight));
        let total = Mutex::new((ReadTimes::default(), Vec::new()));
        let failed = |error| StorageError::from_io("read", self.source.place(), error);
        let read_some = || -> Result<(), StorageError> {
            // Large pages, touched before the clock starts.
            let length = usize::try_from(largest).map_err(io::Error::other).map_err(failed)?;
            let buffer = LargeMemory::new(length).map_err(failed);
            start.wait();
            let mut buffer = buffer?;
            buffer.fill(1);
            let mut mine = ReadTimes::default();
            let mut times = Vec::new();
            let (started, cpu_started) = (Instant::now(), seconds_of(ClockId::ThreadCPUTime));
            let mut before = started;
            let mut outcome = Ok(());
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                let length = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
                outcome = self.source.read(*piece, &mut buffer[..length]);
                let now = Instant::now();
                times.push((now - before).as_secs_f64());
                before = now;
                mine.requests += 1.0;
                mine.bytes += piece.bytes as f64;
                let over = now - started > limit || is_cancelled();
                if outcome.is_err() || over {
                    break;
                }
            }
            mine.cpu_seconds = seconds_of(ClockId::ThreadCPUTime) - cpu_started;
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0.requests += mine.requests;
            total.0.bytes += mine.bytes;
            total.0.cpu_seconds += mine.cpu_seconds;
            total.0.seconds = total.0.seconds.max((before - started).as_secs_f64());
            total.1.append(&mut times);
            outcome
        };
        let process_started = seconds_of(ClockId::ProcessCPUTime);
        let stop = Arc::new(AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (read_some, stop) = (&read_some, &stop);
            let other = || scope.spawn(move || stopped_by(stop, read_some));
            let others: Vec<_> = (1..in_flight).map(|_| other()).collect();
            // Only this thread notices a cancellation.
            let own = read_some();
            stop.store(is_cancelled(), Ordering::Relaxed);
            let stopped = |_| Err(failed(io::Error::other("a reader stopped")));
            let outcomes = others.into_iter().map(|other| other.join().unwrap_or_else(stopped));
            outcomes.fold(own, Result::and)
        })?;
        check_cancelled(self.source.place())?;
        let (mut measured, times) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        if self.source.has_helpers() {
            measured.cpu_seconds = seconds_of(ClockId::ProcessCPUTime) - process_started;
        }
        measured.median_seconds = median(times);
        Ok(measured)
    }

    /// As [`Timer::measure`], by one thread with many requests in flight; `None` where the place
    /// has no such requests.
    fn measure_asked(
        &self,
        in_flight: usize,
        pieces: &[TimedExtent],
        seconds_max: f64,
    ) -> Result<Option<ReadTimes>, StorageError> {
        let bell = Arc::new(Bell::default());
        let limit = Duration::from_secs_f64(seconds_max);
        let (started, cpu_started) = (Instant::now(), seconds_of(ClockId::ProcessCPUTime));
        let (mut pieces, mut asked, mut times) = (pieces.iter(), Vec::new(), Vec::new());
        let mut measured = ReadTimes::default();
        loop {
            let heard = bell.count();
            while started.elapsed() <= limit
                && !is_cancelled()
                && asked.len() < in_flight
                && let Some(piece) = pieces.next()
            {
                let Some(answer) = self.source.request(*piece, &bell) else { return Ok(None) };
                asked.push((Instant::now(), piece.bytes, answer));
            }
            if asked.is_empty() {
                break;
            }
            let Some(at) = asked.iter().position(|(.., answer)| answer.is_here()) else {
                bell.wait(heard, Some(ASK_EVERY));
                check_cancelled(self.source.place())?;
                continue;
            };
            let (begun, bytes, answer) = asked.swap_remove(at);
            answer.take()?;
            times.push(begun.elapsed().as_secs_f64());
            measured.requests += 1.0;
            measured.bytes += bytes as f64;
        }
        check_cancelled(self.source.place())?;
        measured.seconds = started.elapsed().as_secs_f64();
        measured.cpu_seconds = seconds_of(ClockId::ProcessCPUTime) - cpu_started;
        measured.median_seconds = median(times);
        Ok(Some(measured))
    }

    /// Returns the least number in flight whose rate of small requests is within a seventh of the
    /// best, with its times.
    pub fn saturate(
        &self,
        pieces: &[TimedExtent],
        seconds_each: f64,
    ) -> Result<(usize, ReadTimes), StorageError> {
        let mut found = Vec::new();
        let most = self.source.in_flight_max();
        for in_flight in IN_FLIGHT.into_iter().filter(|in_flight| *in_flight <= most) {
            found.push((in_flight, self.measure(in_flight, pieces, seconds_each)?));
        }
        let rate = |measured: &ReadTimes| measured.requests / measured.seconds.max(1e-9);
        let best = found.iter().map(|(_, measured)| rate(measured)).fold(0.0, f64::max);
        let enough = found.into_iter().find(|(_, measured)| rate(measured) >= 0.86 * best);
        Ok(enough.unwrap_or((1, ReadTimes::default())))
    }

    /// Searches, from the derived gap on by doubling or halving, the largest gap at which one
    /// request is at least as fast as two.
    pub fn check_gap(
        &self,
        derived: u64,
        in_flight: usize,
        seconds_each: f64,
    ) -> Result<(u64, Option<GapCheck>), StorageError> {
        let largest = (self.source.bytes() / 64).clamp(PAGE, GAP_BYTES_MAX);
        let mut gap = derived.clamp(PAGE, largest);
        let mut best = None;
        let mut rising = None;
        for _ in 0..GAPS_MAX {
            let check = self.compare_gap(gap, derived, in_flight, seconds_each)?;
            let pays = check.merged_seconds <= check.separate_seconds;
            if pays {
                best = Some((gap, check));
            }
            // One direction only: turning back would repeat measurements.
            if *rising.get_or_insert(pays) != pays {
                break;
            }
            gap = if pays { gap * 2 } else { gap / 2 / PAGE * PAGE };
            if !(PAGE..=largest).contains(&gap) {
                break;
            }
        }
        // Extents less than a page apart arrive with the same pages.
        Ok(best.map_or((PAGE, None), |(gap, check)| (gap, Some(check))))
    }

    /// Times pairs of extents with `gap` bytes between them, apart and as one, in two rounds each.
    fn compare_gap(
        &self,
        gap: u64,
        derived_bytes: u64,
        in_flight: usize,
        seconds: f64,
    ) -> Result<GapCheck, StorageError> {
        let span = 2 * GAP_EXTENT + gap;
        let merged = self.source.shuffled(span);
        let pair = |piece: &TimedExtent| {
            let second = piece.offset + GAP_EXTENT + gap;
            [piece.offset, second].map(|offset| TimedExtent { offset, bytes: GAP_EXTENT, ..*piece })
        };
        let separate: Vec<_> = merged.iter().flat_map(pair).collect();
        let (mut apart, mut together) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..2 {
            let measured = self.measure(in_flight, &separate, seconds)?;
            apart = apart.min(2.0 * measured.seconds_per_request());
            let measured = self.measure(in_flight, &merged, seconds)?;
            together = together.min(measured.seconds_per_request());
        }
        Ok(GapCheck { derived_bytes, separate_seconds: apart, merged_seconds: together })
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0).max(1e-9)
}

fn seconds_of(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Subtracts from the seconds of a request the transfer of its `bytes`, at most half of them.
pub fn subtract_transfer(bytes: u64, seconds: f64, bytes_per_second: f64) -> f64 {
    (seconds - bytes as f64 / bytes_per_second).max(seconds / 2.0)
}

/// Returns the gap in bytes that takes as long to read as a request takes.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
#[expect(clippy::cast_sign_loss, reason = "a float cast saturates")]
pub fn derived_gap(bytes_per_second: f64, request_seconds: f64) -> u64 {
    ((bytes_per_second * request_seconds / PAGE as f64).round() as u64).saturating_mul(PAGE)
}
