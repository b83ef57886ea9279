//! Measurement of a profile, by which reads are priced: of the storage, of the machine, and of cold
//! reads by the engine.

mod cold;
mod processor;

use std::path::Path;

use bedform_remote::RemoteStorage;
use bedform_storage::{
    CalibrateOptions, CalibrateProgress, Coldness, Profile, ProfileError, Throttle,
};

use crate::config;
use crate::error::{Error, ErrorKind, Result};

/// The parts of the progress that end with the storage, and with the cold reads.
const STORAGE_DONE: f64 = 0.7;
const COLD_DONE: f64 = 0.85;
/// Requests in flight to a throttled place.
const SLOWED_IN_FLIGHT: u32 = 32;

/// Measures the storage system that holds the directory `path`, and this machine; takes about ten
/// seconds by default. A place that `BEDFORM_THROTTLE` throttles is measured with the throttle.
///
/// Where the page cache can be emptied for a file, a store of at most 64 MiB is written to a
/// directory `.bedform-calibrate-...` there and read cold. It is removed before the call returns.
/// The directory of a killed process is removed by the next calibration.
///
/// ```
/// use bedform_storage::CalibrateOptions;
///
/// let options = CalibrateOptions { bytes: 8 << 20, seconds_max: 0.5, ..Default::default() };
/// let profile = bedform::calibrate(&std::env::temp_dir(), &options, &mut |_| {})?;
/// assert!(profile.processor.codecs.contains_key("zstd"));
/// # Ok::<(), bedform::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument` for options out of range; `Interrupted` if the call was cancelled; those of
/// storage.
pub fn calibrate(
    path: &Path,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(CalibrateProgress),
) -> Result<Profile> {
    let pace = config::pace()?;
    let mut profile =
        bedform_storage::calibrate(path, options, &mut part(progress, 0.0, STORAGE_DONE))
            .map_err(profile_error)?;
    if let Some(pace) = pace {
        slow_down(&mut profile, pace.throttle());
    }
    processor::measure_processor(&mut profile, &mut stages(progress, COLD_DONE, 1.0))?;
    if matches!(profile.coldness, Coldness::Emptied) {
        cold::measure(&mut profile, path, options, &mut stages(progress, STORAGE_DONE, COLD_DONE))?;
    }
    progress(CalibrateProgress { stage: "done", done: 1.0 });
    profile.check().map_err(profile_error)?;
    Ok(profile)
}

/// As [`calibrate()`], for the place at a URL; see [`bedform_remote::calibrate`].
///
/// # Errors
/// As [`calibrate()`]; those of the server.
pub fn calibrate_url(
    storage: &RemoteStorage,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(CalibrateProgress),
) -> Result<Profile> {
    let mut profile =
        bedform_remote::calibrate(storage, options, &mut part(progress, 0.0, COLD_DONE))
            .map_err(profile_error)?;
    processor::measure_processor(&mut profile, &mut stages(progress, COLD_DONE, 1.0))?;
    Ok(profile)
}

/// Work between two reads, as in a program: it empties the core's own caches.
struct OtherWork(Vec<u8>);

impl Default for OtherWork {
    fn default() -> Self {
        Self(vec![0; 8 << 20])
    }
}

impl OtherWork {
    fn compute(&mut self) {
        self.0.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
    }
}

fn profile_error(error: ProfileError) -> Error {
    match error {
        ProfileError::Storage(error) => error.into(),
        other => Error::new(ErrorKind::InvalidArgument, other.to_string()),
    }
}

/// Maps the progress of a part to that of the whole.
fn part(
    progress: &mut dyn FnMut(CalibrateProgress),
    from: f64,
    to: f64,
) -> impl FnMut(CalibrateProgress) + '_ {
    move |step| {
        progress(CalibrateProgress { done: from + (to - from) * step.done, ..step });
    }
}

fn stages(
    progress: &mut dyn FnMut(CalibrateProgress),
    from: f64,
    to: f64,
) -> impl FnMut(&'static str, f64) + '_ {
    let mut progress = part(progress, from, to);
    move |stage, done| progress(CalibrateProgress { stage, done })
}

/// Applies a throttle to the measured figures of a place.
fn slow_down(profile: &mut Profile, throttle: Throttle) {
    let (rate, latency) = (throttle.bytes_per_second() as f64, throttle.latency().as_secs_f64());
    for bytes in [
        &mut profile.read_bytes_per_second_one,
        &mut profile.read_bytes_per_second_many,
        &mut profile.write_bytes_per_second,
    ] {
        *bytes = bytes.min(rate);
    }
    let in_flight = profile.requests_in_flight.max(SLOWED_IN_FLIGHT);
    profile.requests_in_flight = in_flight;
    profile.request_seconds_one += latency;
    profile.request_seconds_many =
        profile.request_seconds_many.max(profile.request_seconds_one / f64::from(in_flight));
    let worth = profile.request_seconds_many * profile.read_bytes_per_second_many;
    profile.merge_gap_bytes = bedform_storage::calibrate::derived_gap(worth, 1.0);
    profile.merge_gap_check = None;
    profile.notes.push("slowed down by BEDFORM_THROTTLE".into());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_that_is_slowed_down_is_no_faster_than_it_is_let() {
        let mut profile = Profile::default_local();
        slow_down(&mut profile, Throttle::new(50_000_000, Duration::from_millis(4)));
        assert_eq!(profile.read_bytes_per_second_many, 5e7);
        assert!(profile.request_seconds_one >= 4e-3);
        assert!(profile.request_seconds_many >= 4e-3 / 32.0);
        profile.check().unwrap();
    }
}
