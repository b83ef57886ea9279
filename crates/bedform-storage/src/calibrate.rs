//! Measures the [`Profile`] of a storage system in seconds.
//!
//! A file of incompressible bytes is written and synced, then read once for each term of the cost
//! model. The reads are: one stream and many; one small request at a time and many in flight; two
//! near extents, apart and as one. The file loses its name as soon as it is open, so that even a
//! killed process leaves no file. Before every measurement the page cache is emptied and checked.
//! If it stays full, the reads bypass it. If that fails too, the profile says that memory was
//! measured.
//!
//! Measurements of other places, such as object stores, use the public parts: [`TimedSource`] for
//! the extents to read, [`Timer`] for the times.

mod date;
mod random;
mod sample;
mod timing;

use std::path::Path;
use std::time::SystemTime;

use self::date::date_of;
pub use self::random::SampleRandom;
use self::sample::SampleFile;
pub use self::timing::{
    ReadTimes, TimedExtent, TimedSource, Timer, derived_gap, subtract_transfer,
};
use crate::cancellation::{interrupted, is_cancelled};
use crate::{Processor, Profile, ProfileError, StorageError};

/// Bytes of a large request, as the engine makes it.
const BLOCK: u64 = 2 << 20;
/// Bytes of a small request: a small chunk, which starts anywhere in a page. Single pages would
/// flatter devices whose time grows with the pages of a request.
pub const SMALL_REQUEST: u64 = 16 << 10;
/// The least bytes that say anything about a device.
const BYTES_MIN: u64 = 8 << 20;
/// Concurrent readers of large extents.
const STREAMS: usize = 8;
/// The most time of a stage, as a share of the whole.
const STREAM_SHARE: f64 = 0.08;
const LATENCY_SHARE: f64 = 0.05;
const IN_FLIGHT_SHARE: f64 = 0.03;
const GAP_SHARE: f64 = 0.012;

/// The size and duration of a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrateOptions {
    /// Bytes to write, if the place has no objects to read: more is more accurate and slower. At
    /// least 8 MiB; a small device gets less, an object store at most 64 MiB.
    pub bytes: u64,
    /// The most seconds of the whole measurement; a slow device gets a smaller file.
    pub seconds_max: f64,
    /// The name of the storage system; empty for its path.
    pub name: String,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20, seconds_max: 10.0, name: String::new() }
    }
}

/// The progress of a calibration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrateProgress {
    /// The current stage, as a phrase for the user.
    pub stage: &'static str,
    /// The finished share of the whole, from 0 to 1.
    pub done: f64,
}

/// Measures the storage system that holds the directory `path`.
///
/// A call that is cancelled ([`cancelled_by`](crate::cancelled_by)) stops within one request. No
/// file stays in `path`, even if the process is killed.
///
/// ```
/// use bedform_storage::{CalibrateOptions, calibrate};
///
/// let options = CalibrateOptions { bytes: 8 << 20, seconds_max: 0.5, ..Default::default() };
/// let profile = calibrate(&std::env::temp_dir(), &options, &mut |_| {})?;
/// assert!(profile.read_bytes_per_second_many > 0.0);
/// # Ok::<(), bedform_storage::ProfileError>(())
/// ```
///
/// # Errors
/// `Implausible` for options out of range. `NoSpace` before anything is written if the file would
/// take more than half of the free space. `NotFound`, `PermissionDenied`, `ReadOnly`, `Io` of the
/// storage. `Interrupted` if the call was cancelled.
pub fn calibrate(
    path: &Path,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(CalibrateProgress),
) -> Result<Profile, ProfileError> {
    check_options(options)?;
    let mut report = |stage, done| progress(CalibrateProgress { stage, done });
    let budget = options.seconds_max;
    report("writing", 0.0);
    let (mut sample, write_rate) = SampleFile::write(path, options)?;
    report("checking that reads are cold", 0.4);
    sample.choose_way()?;

    report("reading with one stream", 0.45);
    let blocks = sample.shuffled(BLOCK);
    let one = sample.measure_streams(1, &blocks, budget * STREAM_SHARE)?;
    report("reading with many streams", 0.55);
    let many = sample.measure_streams(STREAMS, &blocks, budget * STREAM_SHARE)?;
    report("asking for one small chunk at a time", 0.65);
    let chunks = sample.shuffled(SMALL_REQUEST);
    let timer = Timer { source: &sample };
    let single = timer.measure(1, &chunks, budget * LATENCY_SHARE)?;
    report("asking for many small chunks at once", 0.7);
    let (in_flight, crowd) = timer.saturate(&chunks, budget * IN_FLIGHT_SHARE)?;

    report("comparing merged and separate requests", 0.9);
    // One stream can be faster where many disturb each other; the engine may use either.
    let read_many = many.bytes_per_second().max(one.bytes_per_second());
    let request_seconds_one =
        subtract_transfer(SMALL_REQUEST, single.median_seconds, one.bytes_per_second());
    let request_seconds_many =
        subtract_transfer(SMALL_REQUEST, crowd.seconds_per_request(), read_many)
            .min(request_seconds_one);
    let derived = derived_gap(read_many, request_seconds_many);
    let (merge_gap_bytes, merge_gap_check) =
        timer.check_gap(derived, in_flight, budget * GAP_SHARE)?;
    report("done", 1.0);

    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let place = absolute.to_string_lossy().into_owned();
    let profile = Profile {
        name: if options.name.is_empty() { place.clone() } else { options.name.clone() },
        path: place,
        measured_at: now(),
        is_remote: false,
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
        open_seconds: 0.0,
        cold_requests: Vec::new(),
        refinement: std::collections::BTreeMap::new(),
        processor: Processor::default(),
        notes: sample.notes,
    };
    profile.check()?;
    Ok(profile)
}

/// Checks the options of a calibration of any kind of place.
///
/// # Errors
/// `Implausible`.
pub fn check_options(options: &CalibrateOptions) -> Result<(), ProfileError> {
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

/// Returns the present date and time, in the format of profiles.
pub fn now() -> String {
    date_of(SystemTime::now())
}

/// Returns incompressible bytes that differ for each `seed`.
pub fn random_block(bytes: usize, seed: u64) -> Vec<u8> {
    let mut block = vec![0; bytes];
    SampleRandom(seed).fill(&mut block);
    block
}

/// Fails once the call was cancelled.
///
/// # Errors
/// `Interrupted`.
pub fn check_cancelled(place: &str) -> Result<(), StorageError> {
    if is_cancelled() { Err(interrupted("calibrate", place)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coldness, StorageErrorKind, stopped_by};
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        let profile = calibrate(&place, &quick(), &mut |step| stages.push(step.done)).unwrap();
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
            let cancel = Arc::new(AtomicBool::new(false));
            let mut seen = 0;
            let error = stopped_by(&cancel, || {
                calibrate(&place, &quick(), &mut |_| {
                    cancel.store(seen == stop_at, Ordering::Relaxed);
                    seen += 1;
                })
            })
            .unwrap_err();
            assert_eq!(seen, stop_at + 1, "no stage begins after the one that was stopped");
            let ProfileError::Storage(error) = error else { panic!("{error}") };
            assert_eq!(error.kind, StorageErrorKind::Interrupted);
            assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        }
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn memory_is_not_taken_for_a_device() {
        let place = Path::new("/dev/shm");
        let in_memory = rustix::fs::statfs(place).is_ok_and(|system| sample::is_memory(&system));
        match calibrate(place, &quick(), &mut |_| {}) {
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
        let missing = Path::new("/nonexistent/bedform");
        let error = calibrate(missing, &quick(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bedform"), "{error}");
        let place = scratch("full");
        let options = CalibrateOptions { bytes: 1_000_000_000_000, ..quick() };
        let error = calibrate(&place, &options, &mut |_| {}).unwrap_err();
        let ProfileError::Storage(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, StorageErrorKind::NoSpace);
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let small = CalibrateOptions { bytes: 1, ..quick() };
        let endless = CalibrateOptions { seconds_max: f64::NAN, ..quick() };
        for options in [small, endless] {
            let error = calibrate(Path::new("."), &options, &mut |_| {}).unwrap_err();
            assert!(matches!(error, ProfileError::Implausible { .. }), "{error}");
        }
    }
}
