//! Measures the [`Profile`] of a storage system in seconds.
//!
//! A file of incompressible bytes is written and synced, then read in the ways that the cost model
//! has terms for: one stream and many, one small request at a time and many in flight, two near
//! extents apart and as one. The file loses its name as soon as it is open, so that nothing is left
//! behind however the measurement ends. Before every measurement the page cache is emptied and then
//! asked whether it is empty; where it stays full the reads go past it, and where that fails too
//! the profile says that memory was measured.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    Coldness, GapCheck, LargeMemory, Profile, ProfileError, StorageError, StorageErrorKind,
};

const PAGE_BYTES: usize = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
/// A large request, as the engine makes it.
const BLOCK: u64 = 2 << 20;
/// A small request: a small chunk, which starts anywhere in a page. Single pages would flatter
/// devices whose time grows with the pages of a request.
const SMALL: u64 = 16 << 10;
const WRITE_BYTES: usize = 8 << 20;
/// Less than this says nothing about a device.
const BYTES_MIN: u64 = 8 << 20;
const IN_FLIGHT: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Readers of large extents.
const STREAMS: usize = 8;
/// The extents of which pairs are read to check the merging gap.
const GAP_EXTENT: u64 = 16 << 10;
/// The magic numbers of file systems that are memory.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
/// The most time that a stage may take, as a share of the whole.
const WRITE_SHARE: f64 = 0.4;
const STREAM_SHARE: f64 = 0.08;
const LATENCY_SHARE: f64 = 0.05;
const IN_FLIGHT_SHARE: f64 = 0.03;
const GAP_SHARE: f64 = 0.012;

/// How much to write and how long to take.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrateOptions {
    /// Bytes of the file: more is truer and slower. At least 8 MiB; a small device gets less.
    pub bytes: u64,
    /// Seconds that the measurement may take in all; a slow device gets a smaller file.
    pub seconds_max: f64,
    /// What to call the storage system; empty for its path.
    pub name: String,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20, seconds_max: 10.0, name: String::new() }
    }
}

/// How far a calibration is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrateProgress {
    /// What is being measured, as a phrase for the user.
    pub stage: &'static str,
    /// The share of the whole that is done, from 0 to 1.
    pub done: f64,
}

/// Measures the storage system that holds the directory `path`.
///
/// Set `cancel` from another thread or a signal handler to stop within one request. Whatever
/// happens, the killing of the process included, no file stays in `path`.
///
/// ```
/// use bedform_storage::{CalibrateOptions, calibrate};
/// use std::sync::atomic::AtomicBool;
///
/// let options = CalibrateOptions { bytes: 8 << 20, seconds_max: 0.5, ..Default::default() };
/// let cancel = AtomicBool::new(false);
/// let profile = calibrate(&std::env::temp_dir(), &options, &cancel, &mut |_| {})?;
/// assert!(profile.read_bytes_per_second_many > 0.0);
/// # Ok::<(), bedform_storage::ProfileError>(())
/// ```
///
/// # Errors
/// `Implausible` for options out of range; of storage: `NoSpace` before anything is written if the
/// file would take more than half of what is free, `NotFound`, `PermissionDenied`, `ReadOnly`, `Io`,
/// and `Io` with the source `Interrupted` if `cancel` was set.
pub fn calibrate(
    path: &Path,
    options: &CalibrateOptions,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(CalibrateProgress),
) -> Result<Profile, ProfileError> {
    check_options(options)?;
    let mut report = |stage, done| progress(CalibrateProgress { stage, done });
    let budget = options.seconds_max;
    report("writing", 0.0);
    let (mut sample, write_rate) = Sample::write(path, options, cancel)?;
    report("checking that reads are cold", 0.4);
    sample.choose_way()?;

    report("reading with one stream", 0.45);
    let blocks = sample.shuffled(BLOCK);
    let one = sample.measure_streams(1, &blocks, budget * STREAM_SHARE)?;
    report("reading with many streams", 0.55);
    let many = sample.measure_streams(STREAMS, &blocks, budget * STREAM_SHARE)?;
    report("asking for one small chunk at a time", 0.65);
    let chunks = sample.shuffled(SMALL);
    let single = sample.measure(1, &chunks, budget * LATENCY_SHARE)?;
    report("asking for many small chunks at once", 0.7);
    let (in_flight, crowd) = sample.saturate(&chunks, budget * IN_FLIGHT_SHARE)?;

    report("comparing merged and separate requests", 0.9);
    // One stream can be the faster one where many disturb each other; the engine may use either.
    let read_many = many.bytes_per_second().max(one.bytes_per_second());
    // What a request costs beside the time for its bytes, which is at most half of it.
    let beside = |seconds: f64, rate: f64| (seconds - SMALL as f64 / rate).max(seconds / 2.0);
    let request_seconds_one = beside(single.median_seconds, one.bytes_per_second());
    let request_seconds_many =
        beside(crowd.seconds_per_request(), read_many).min(request_seconds_one);
    let derived = round_to_page(read_many * request_seconds_many);
    let (merge_gap_bytes, merge_gap_check) =
        sample.check_gap(derived, in_flight, budget * GAP_SHARE)?;
    report("done", 1.0);

    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let place = absolute.to_string_lossy().into_owned();
    let profile = Profile {
        name: if options.name.is_empty() { place.clone() } else { options.name.clone() },
        path: place,
        measured_at: date_of(SystemTime::now()),
        coldness: sample.coldness,
        read_bytes_per_second_one: one.bytes_per_second(),
        read_bytes_per_second_many: read_many,
        write_bytes_per_second: write_rate,
        request_seconds_one,
        request_seconds_many,
        requests_in_flight: u32::try_from(in_flight).unwrap_or(1),
        request_cpu_seconds: crowd.cpu_seconds_per_request(),
        merge_gap_bytes,
        merge_gap_check,
        decode_bytes_per_second: Default::default(),
        notes: sample.notes,
    };
    profile.check()?;
    Ok(profile)
}

fn check_options(options: &CalibrateOptions) -> Result<(), ProfileError> {
    let implausible = |field: &str, value, least, most| {
        Err(ProfileError::Implausible { field: field.into(), value, least, most })
    };
    let bytes = options.bytes as f64;
    if !(BYTES_MIN as f64..=1e12).contains(&bytes) {
        return implausible("bytes", bytes, BYTES_MIN as f64, 1e12);
    }
    if !(0.1..=3600.0).contains(&options.seconds_max) {
        return implausible("seconds_max", options.seconds_max, 0.1, 3600.0);
    }
    Ok(())
}

/// The file that is measured. It has no name.
struct Sample<'a> {
    place: String,
    buffered: File,
    direct: Option<File>,
    bytes: u64,
    past_cache: bool,
    coldness: Coldness,
    notes: Vec<String>,
    cancel: &'a AtomicBool,
}

/// What reading a list of extents took.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    requests: f64,
    bytes: f64,
    seconds: f64,
    cpu_seconds: f64,
    median_seconds: f64,
}

/// One extent of the file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    offset: u64,
    bytes: u64,
}

impl Measured {
    fn bytes_per_second(&self) -> f64 {
        self.bytes / self.seconds.max(1e-9)
    }

    fn seconds_per_request(&self) -> f64 {
        (self.seconds / self.requests.max(1.0)).max(1e-9)
    }

    fn cpu_seconds_per_request(&self) -> f64 {
        (self.cpu_seconds / self.requests.max(1.0)).max(1e-9)
    }
}

impl<'a> Sample<'a> {
    /// Writes and syncs the file; returns it with the bytes per second that this took.
    fn write(
        path: &Path,
        options: &CalibrateOptions,
        cancel: &'a AtomicBool,
    ) -> Result<(Self, f64), ProfileError> {
        let place = path.display().to_string();
        let failed = |operation, error| StorageError::from_io(operation, &place, error);
        let system = rustix::fs::statvfs(path).map_err(|error| failed("open", error.into()))?;
        if system.f_bavail.saturating_mul(system.f_frsize) / 2 < options.bytes {
            return Err(StorageError::new(StorageErrorKind::NoSpace, "calibrate", &place).into());
        }
        let (mut buffered, direct) = open_nameless(path).map_err(|e| failed("create", e))?;

        let limit = Duration::from_secs_f64(options.seconds_max * WRITE_SHARE);
        let mut block = vec![0; WRITE_BYTES];
        let mut random = Random(0x5eed);
        block
            .chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        let started = Instant::now();
        let mut bytes = 0;
        while bytes < options.bytes && (bytes < BYTES_MIN || started.elapsed() < limit) {
            check_cancel(cancel, &place)?;
            // Pages must differ, or a device that deduplicates would store one block.
            for page in block.chunks_exact_mut(PAGE_BYTES) {
                page[..8].copy_from_slice(&random.next().to_le_bytes());
            }
            let length = (options.bytes - bytes).min(WRITE_BYTES as u64);
            let length = usize::try_from(length).unwrap_or(WRITE_BYTES);
            buffered.write_all(&block[..length]).map_err(|error| failed("write", error))?;
            bytes += length as u64;
            // A slow device shows itself at the sync, not at the write.
            if started.elapsed() > limit / 4 {
                buffered.sync_data().map_err(|error| failed("sync", error))?;
            }
        }
        buffered.sync_all().map_err(|error| failed("sync", error))?;
        let rate = bytes as f64 / started.elapsed().as_secs_f64().max(1e-9);
        let mut notes = Vec::new();
        if bytes < options.bytes {
            notes.push(format!("the device is slow: {} MiB were written, not more", bytes >> 20));
        }
        let bytes = bytes / BLOCK * BLOCK;
        let coldness = Coldness::Unverified;
        let past_cache = false;
        Ok((Self { place, buffered, direct, bytes, past_cache, coldness, notes, cancel }, rate))
    }

    /// Decides how to read so that the device answers, and notes how sure that is.
    fn choose_way(&mut self) -> Result<(), ProfileError> {
        let memory = rustix::fs::fstatfs(&self.buffered)
            .is_ok_and(|system| matches!(u64::try_from(system.f_type), Ok(TMPFS | RAMFS)));
        self.forget();
        self.coldness = match (memory, self.resident_share()) {
            (true, _) => Coldness::Warm,
            (false, Some(share)) if share < 0.05 => Coldness::Emptied,
            (false, residency) if self.direct.is_some() => {
                self.past_cache = true;
                let said = if residency.is_some() { "stays full" } else { "cannot be asked" };
                self.notes.push(format!("the page cache {said}; reads went past it"));
                Coldness::Bypassed
            }
            (false, Some(_)) => Coldness::Warm,
            (false, None) => Coldness::Unverified,
        };
        match self.coldness {
            Coldness::Warm => self.notes.push("reads came from memory, not from a device".into()),
            Coldness::Unverified => {
                self.notes.push("the system cannot say whether reads came from memory".into());
            }
            _ => {}
        }
        Ok(check_cancel(self.cancel, &self.place)?)
    }

    /// Asks the system to drop the file from the page cache. It is a request: see
    /// [`Sample::resident_share`].
    fn forget(&self) {
        for advice in [Advice::DontNeed, Advice::Random] {
            let _ = rustix::fs::fadvise(&self.buffered, 0, None, advice);
        }
    }

    /// The share of a few pages that is in the page cache; none if the system cannot say.
    fn resident_share(&self) -> Option<f64> {
        let mut page = vec![0; PAGE_BYTES];
        let probes = self.shuffled(PAGE);
        let probes = &probes[..probes.len().min(64)];
        let mut resident = 0;
        for probe in probes {
            let mut slices = [IoSliceMut::new(&mut page)];
            let flags = ReadWriteFlags::NOWAIT;
            match rustix::io::preadv2(&self.buffered, &mut slices, probe.offset, flags) {
                Ok(_) => resident += 1,
                Err(Errno::AGAIN) => {}
                Err(_) => return None,
            }
        }
        // To ask for a page may have fetched it.
        self.forget();
        Some(f64::from(resident) / probes.len().max(1) as f64)
    }

    /// All extents of `bytes` each, in an order that no read-ahead guesses.
    fn shuffled(&self, bytes: u64) -> Vec<Piece> {
        let mut pieces: Vec<_> =
            (0..self.bytes / bytes).map(|i| Piece { offset: i * bytes, bytes }).collect();
        Random(bytes).shuffle(&mut pieces);
        pieces
    }

    /// As [`Sample::measure`], for large extents: the better of reads through the page cache and past
    /// it, since the engine reads these as local storage does.
    fn measure_streams(
        &self,
        in_flight: usize,
        pieces: &[Piece],
        seconds_max: f64,
    ) -> Result<Measured, StorageError> {
        let through = self.measure(in_flight, pieces, seconds_max / 2.0)?;
        let Some(direct) = &self.direct else { return Ok(through) };
        let past = self.measure_from(direct, in_flight, pieces, seconds_max / 2.0)?;
        Ok(if past.bytes_per_second() > through.bytes_per_second() { past } else { through })
    }

    /// Reads `pieces` with `in_flight` readers until all are read or the time is up.
    fn measure(
        &self,
        in_flight: usize,
        pieces: &[Piece],
        seconds_max: f64,
    ) -> Result<Measured, StorageError> {
        let file = self.direct.as_ref().filter(|_| self.past_cache).unwrap_or(&self.buffered);
        self.measure_from(file, in_flight, pieces, seconds_max)
    }

    fn measure_from(
        &self,
        file: &File,
        in_flight: usize,
        pieces: &[Piece],
        seconds_max: f64,
    ) -> Result<Measured, StorageError> {
        self.forget();
        let largest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or(PAGE);
        let limit = Duration::from_secs_f64(seconds_max);
        let (next, start) = (AtomicUsize::new(0), Barrier::new(in_flight));
        let total = Mutex::new((Measured::default(), Vec::new()));
        let read_some = || -> io::Result<()> {
            // Large pages, and touched before the clock starts.
            let mut buffer = LargeMemory::new(usize::try_from(largest).map_err(io::Error::other)?)?;
            buffer.fill(1);
            let mut mine = Measured::default();
            let mut times = Vec::new();
            start.wait();
            let (started, cpu_started) = (Instant::now(), thread_seconds());
            let mut before = started;
            let mut outcome = Ok(());
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                let length = usize::try_from(piece.bytes).unwrap_or(PAGE_BYTES);
                outcome = file.read_exact_at(&mut buffer[..length], piece.offset);
                let now = Instant::now();
                times.push((now - before).as_secs_f64());
                before = now;
                mine.requests += 1.0;
                mine.bytes += piece.bytes as f64;
                let over = now - started > limit || self.cancel.load(Ordering::Relaxed);
                if outcome.is_err() || over {
                    break;
                }
            }
            mine.cpu_seconds = thread_seconds() - cpu_started;
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0.requests += mine.requests;
            total.0.bytes += mine.bytes;
            total.0.cpu_seconds += mine.cpu_seconds;
            total.0.seconds = total.0.seconds.max((before - started).as_secs_f64());
            total.1.append(&mut times);
            outcome
        };
        let outcome = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..in_flight).map(|_| scope.spawn(read_some)).collect();
            let stopped = || Err(io::Error::other("a reader stopped"));
            let outcomes =
                readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| stopped()));
            outcomes.collect::<io::Result<()>>()
        });
        outcome.map_err(|error| StorageError::from_io("read", &self.place, error))?;
        check_cancel(self.cancel, &self.place)?;
        let (mut measured, mut times) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        times.sort_by(f64::total_cmp);
        measured.median_seconds = times.get(times.len() / 2).copied().unwrap_or(0.0).max(1e-9);
        Ok(measured)
    }

    /// The least number in flight within a seventh of the best rate of small requests, and that rate.
    fn saturate(
        &self,
        pages: &[Piece],
        seconds_each: f64,
    ) -> Result<(usize, Measured), StorageError> {
        let mut found = Vec::new();
        for in_flight in IN_FLIGHT {
            found.push((in_flight, self.measure(in_flight, pages, seconds_each)?));
        }
        let rate = |measured: &Measured| measured.requests / measured.seconds.max(1e-9);
        let best = found.iter().map(|(_, measured)| rate(measured)).fold(0.0, f64::max);
        let enough = found.into_iter().find(|(_, measured)| rate(measured) >= 0.86 * best);
        Ok(enough.unwrap_or((1, Measured::default())))
    }

    /// Moves from the gap that was derived, by doubling or halving, to the largest at which one
    /// request is at least as fast as two.
    fn check_gap(
        &self,
        derived: u64,
        in_flight: usize,
        seconds_each: f64,
    ) -> Result<(u64, Option<GapCheck>), StorageError> {
        let largest = (self.bytes / 64).min(16 << 20);
        let mut gap = derived.clamp(PAGE, largest);
        let mut best = None;
        let mut rising = None;
        for _ in 0..8 {
            let check = self.compare_gap(gap, derived, in_flight, seconds_each)?;
            let pays = check.merged_seconds <= check.separate_seconds;
            if pays {
                best = Some((gap, check));
            }
            // One direction only: to turn round would find what is known.
            if *rising.get_or_insert(pays) != pays {
                break;
            }
            gap = if pays { gap * 2 } else { gap / 2 / PAGE * PAGE };
            if !(PAGE..=largest).contains(&gap) {
                break;
            }
        }
        Ok(best.map_or((0, None), |(gap, check)| (gap, Some(check))))
    }

    /// Times pairs of extents with `gap` between them, apart and as one, in two rounds each.
    fn compare_gap(
        &self,
        gap: u64,
        derived_bytes: u64,
        in_flight: usize,
        seconds: f64,
    ) -> Result<GapCheck, StorageError> {
        let span = 2 * GAP_EXTENT + gap;
        let merged = self.shuffled(span);
        let pair = |piece: &Piece| {
            let second = piece.offset + GAP_EXTENT + gap;
            [piece.offset, second].map(|offset| Piece { offset, bytes: GAP_EXTENT })
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

/// A new file in `directory` without a name, opened through the page cache and, if the system lets
/// us, past it.
fn open_nameless(directory: &Path) -> io::Result<(File, Option<File>)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".bedform-calibrate-{}-{number}.tmp", std::process::id());
    let path = directory.join(name);
    let buffered =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    let past = OFlags::DIRECT.bits().cast_signed();
    let direct = OpenOptions::new().read(true).custom_flags(past).open(&path).ok();
    fs::remove_file(&path)?;
    Ok((buffered, direct))
}

fn check_cancel(cancel: &AtomicBool, place: &str) -> Result<(), StorageError> {
    if cancel.load(Ordering::Relaxed) {
        let source = io::Error::new(io::ErrorKind::Interrupted, "cancelled");
        return Err(StorageError::from_io("calibrate", place, source));
    }
    Ok(())
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
#[expect(clippy::cast_sign_loss, reason = "a float cast saturates")]
fn round_to_page(bytes: f64) -> u64 {
    ((bytes / PAGE as f64).round() as u64).saturating_mul(PAGE)
}

/// `2026-01-31T12:00:00Z`.
fn date_of(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

/// A small generator of incompressible bytes (SplitMix64): fixed seed, fixed sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("bedform-calibrate-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        place
    }

    fn quick() -> CalibrateOptions {
        CalibrateOptions { bytes: 16 << 20, seconds_max: 1.0, ..Default::default() }
    }

    #[test]
    fn a_calibration_measures_every_field_and_leaves_no_file() {
        let place = scratch("whole");
        let mut stages = Vec::new();
        let never = AtomicBool::new(false);
        let profile =
            calibrate(&place, &quick(), &never, &mut |step| stages.push(step.done)).unwrap();
        profile.check().unwrap();
        assert_ne!(profile.coldness, Coldness::Assumed);
        assert!(profile.request_seconds_many <= profile.request_seconds_one);
        assert!(profile.measured_at.ends_with('Z'));
        assert!(stages.is_sorted() && stages.first() == Some(&0.0) && stages.last() == Some(&1.0));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn a_cancelled_calibration_stops_and_leaves_no_file() {
        let place = scratch("cancelled");
        for stop_at in 0..5 {
            let cancel = AtomicBool::new(false);
            let mut seen = 0;
            let error = calibrate(&place, &quick(), &cancel, &mut |_| {
                cancel.store(seen == stop_at, Ordering::Relaxed);
                seen += 1;
            })
            .unwrap_err();
            assert_eq!(seen, stop_at + 1, "no stage begins after the one that was stopped");
            let ProfileError::Storage(error) = error else { panic!("{error}") };
            let source = error.source.expect("the cause");
            assert_eq!(source.kind(), io::ErrorKind::Interrupted);
            assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn memory_is_not_taken_for_a_device() {
        let place = Path::new("/dev/shm");
        let in_memory = rustix::fs::statfs(place)
            .is_ok_and(|system| matches!(u64::try_from(system.f_type), Ok(TMPFS | RAMFS)));
        let never = AtomicBool::new(false);
        match calibrate(place, &quick(), &never, &mut |_| {}) {
            Ok(profile) if in_memory => {
                assert_eq!(profile.coldness, Coldness::Warm);
                assert!(profile.notes.iter().any(|note| note.contains("memory")));
            }
            // No such place here, or no room in it.
            _ => {}
        }
    }

    #[test]
    fn a_place_that_cannot_be_measured_is_named() {
        let never = AtomicBool::new(false);
        let missing = Path::new("/nonexistent/bedform");
        let error = calibrate(missing, &quick(), &never, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bedform"), "{error}");
        let place = scratch("full");
        let options = CalibrateOptions { bytes: 1_000_000_000_000, ..quick() };
        let error = calibrate(&place, &options, &never, &mut |_| {}).unwrap_err();
        let ProfileError::Storage(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, StorageErrorKind::NoSpace);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let never = AtomicBool::new(false);
        let small = CalibrateOptions { bytes: 1, ..quick() };
        let endless = CalibrateOptions { seconds_max: f64::NAN, ..quick() };
        for options in [small, endless] {
            let error = calibrate(Path::new("."), &options, &never, &mut |_| {}).unwrap_err();
            assert!(matches!(error, ProfileError::Implausible { .. }), "{error}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |seconds| date_of(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(date(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
