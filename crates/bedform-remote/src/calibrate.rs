//! Calibration of an object store by reads of objects.

use std::sync::Arc;

use bedform_storage::calibrate::{
    ReadTimes, SMALL_REQUEST, SampleRandom, TimedExtent, TimedSource, Timer, check_options,
    derived_gap, now, subtract_transfer,
};
use bedform_storage::{
    Answer, Bell, Bytes, CalibrateOptions, CalibrateProgress, Coldness, Profile, ProfileError,
    REQUESTS_MAX, Storage as _, StorageError,
};

use crate::remote::RemoteStorage;
use crate::remote::probe::Probe;

/// Bytes of a large request: its transfer takes as long as the wait for the first byte.
const BLOCK: u64 = 4 << 20;
/// The most readers of large extents: their buffers take memory.
const STREAMS_MAX: usize = 32;
/// The most bytes of own objects: storing them may cost money.
const OWN_BYTES_MAX: u64 = 64 << 20;
/// The most time of a stage, as a share of the whole.
const STREAM_SHARE: f64 = 0.1;
const LATENCY_SHARE: f64 = 0.08;
const IN_FLIGHT_SHARE: f64 = 0.04;
const GAP_SHARE: f64 = 0.012;
/// The most bytes of a gap in a merged request.
const GAP_MAX: u64 = 2 << 20;

/// Measures the object store of `storage` by reads. It measures the time to the first byte, and the
/// bandwidth of one stream and of many. Then it measures the useful number of concurrent requests,
/// the cost of each, and the gap up to which merging two reads pays.
///
/// It reads the object that the URL names, or objects of 1 MiB or more below it. If there are none,
/// it writes objects of 8 MiB with names that begin with `.bedform-calibrate-`, and reads them. It
/// deletes them again, also after an error or a cancellation.
///
/// ```no_run
/// use bedform_remote::{RemoteOptions, RemoteStorage, calibrate};
/// use bedform_storage::{CalibrateOptions, Mode};
///
/// let storage =
///     RemoteStorage::open("s3://bucket/prefix", Mode::ReadOnly, &RemoteOptions::default())?;
/// let profile = calibrate(&storage, &CalibrateOptions::default(), &mut |_| {})?;
/// println!("{} s to the first byte", profile.request_seconds_one);
/// profile.save_for_system(storage.system())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Implausible` for options out of range; the errors of reading. `Io` without an object to read if
/// none may be written. `Interrupted` if the call was cancelled.
pub fn calibrate(
    storage: &RemoteStorage,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(CalibrateProgress),
) -> Result<Profile, ProfileError> {
    check_options(options)?;
    let place = storage.name();
    let mut report = |stage, done| progress(CalibrateProgress { stage, done });
    report("looking for objects to read", 0.0);
    let mut step = || report("writing objects to read", 0.05);
    let probe = Probe::new(storage, options.bytes.min(OWN_BYTES_MAX), &mut step)?;
    let mut sample = ProbedObjects { place: place.clone(), probe };
    let profile = measure(&sample, options, &mut report)?;
    let mut notes = sample.notes();
    let left = sample.probe.remove();
    if !left.is_empty() {
        notes.push(format!("these could not be deleted again: {}", left.join(", ")));
    }
    report("done", 1.0);
    let name = if options.name.is_empty() { place.clone() } else { options.name.clone() };
    let profile = Profile { name, path: place, notes, ..profile };
    profile.check()?;
    Ok(profile)
}

fn measure(
    sample: &ProbedObjects<'_>,
    options: &CalibrateOptions,
    report: &mut dyn FnMut(&'static str, f64),
) -> Result<Profile, ProfileError> {
    let (timer, budget) = (Timer { source: sample }, options.seconds_max);
    report("asking for one small part at a time", 0.2);
    let parts = sample.shuffled(SMALL_REQUEST);
    // The first request opens a connection.
    timer.measure(1, &parts[..1], budget)?;
    let single = timer.measure(1, &parts, budget * LATENCY_SHARE)?;
    report("reading with one stream", 0.3);
    let blocks = sample.shuffled(BLOCK.min(sample.largest()));
    let one = timer.measure(1, &blocks, budget * STREAM_SHARE)?;
    let one_rate = rate_without_waits(&one, single.median_seconds, 1.0);
    report("asking for many small parts at once", 0.45);
    let (in_flight, crowd) = timer.saturate(&parts, budget * IN_FLIGHT_SHARE)?;
    report("reading with many streams", 0.75);
    let streams = in_flight.min(STREAMS_MAX);
    let many = timer.measure(streams, &blocks, budget * STREAM_SHARE)?;
    let many_rate = rate_without_waits(&many, single.median_seconds, streams as f64).max(one_rate);
    let request_seconds_one = subtract_transfer(SMALL_REQUEST, single.median_seconds, one_rate);
    let request_seconds_many =
        subtract_transfer(SMALL_REQUEST, crowd.seconds_per_request(), many_rate)
            .min(request_seconds_one);
    report("comparing merged and separate requests", 0.85);
    let derived = derived_gap(many_rate, request_seconds_many).min(GAP_MAX);
    let (gap, check) = timer.check_gap(derived, in_flight, budget * GAP_SHARE)?;
    Ok(Profile {
        measured_at: now(),
        coldness: Coldness::Unverified,
        read_bytes_per_second_one: one_rate,
        read_bytes_per_second_many: many_rate,
        write_bytes_per_second: sample.probe.write_rate.unwrap_or(one_rate),
        request_seconds_one,
        request_seconds_many,
        requests_in_flight: u32::try_from(in_flight).unwrap_or(1),
        request_cpu_seconds: crowd.cpu_seconds_per_request(),
        merge_gap_bytes: gap.min(GAP_MAX),
        merge_gap_check: check,
        open_seconds: 0.0,
        cold_requests: Vec::new(),
        refinement: std::collections::BTreeMap::new(),
        ..Profile::default_remote()
    })
}

/// Returns the bytes per second without the waits for first bytes, which are at most half of the
/// time.
fn rate_without_waits(measured: &ReadTimes, first_byte_seconds: f64, streams: f64) -> f64 {
    let waited = measured.requests / streams * first_byte_seconds;
    measured.bytes / (measured.seconds - waited).max(measured.seconds / 2.0).max(1e-9)
}

/// The objects that the calibration reads.
struct ProbedObjects<'a> {
    place: String,
    probe: Probe<'a>,
}

impl ProbedObjects<'_> {
    fn largest(&self) -> u64 {
        (0..self.probe.objects.len()).map(|at| self.probe.bytes_of(at)).max().unwrap_or(0)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec!["the server may have answered from its own cache".to_owned()];
        if self.probe.write_rate.is_none() {
            notes.push("writing was not measured: it is taken for as fast as reading".to_owned());
        }
        notes
    }
}

impl TimedSource for ProbedObjects<'_> {
    fn place(&self) -> &str {
        &self.place
    }

    fn bytes(&self) -> u64 {
        (0..self.probe.objects.len()).map(|at| self.probe.bytes_of(at)).sum()
    }

    fn read(&self, piece: TimedExtent, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.probe.objects[piece.object].read(piece.offset, buffer)
    }

    fn request(&self, piece: TimedExtent, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        self.probe.objects[piece.object].request(piece.offset, piece.bytes, bell)
    }

    fn in_flight_max(&self) -> usize {
        REQUESTS_MAX
    }

    fn shuffled(&self, bytes: u64) -> Vec<TimedExtent> {
        let mut pieces = Vec::new();
        for object in 0..self.probe.objects.len() {
            // The last byte came when the object was opened.
            let count = self.probe.bytes_of(object).saturating_sub(1) / bytes.max(1);
            let piece = |number| TimedExtent { object, offset: number * bytes, bytes };
            pieces.extend((0..count).map(piece));
        }
        if pieces.is_empty() {
            let bytes = bytes.min(self.probe.bytes_of(0).saturating_sub(1)).max(1);
            pieces.push(TimedExtent { object: 0, offset: 0, bytes });
        }
        SampleRandom(bytes).shuffle(&mut pieces);
        // The list repeats: a server can answer any number of requests.
        pieces.iter().copied().cycle().take(pieces.len().max(PIECES)).collect()
    }

    fn has_helpers(&self) -> bool {
        true
    }
}

/// The least pieces of a list.
const PIECES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use ::object_store::memory::InMemory;
    use ::object_store::{ObjectStore as _, ObjectStoreExt as _};
    use futures_util::TryStreamExt as _;

    use bedform_storage::calibrate::random_block;
    use bedform_storage::{Mode, StorageErrorKind, stopped_by};

    use super::*;
    use crate::RemoteOptions;

    fn quick() -> CalibrateOptions {
        CalibrateOptions { bytes: 16 << 20, seconds_max: 0.2, ..Default::default() }
    }

    /// Returns the names of all objects, hidden ones included.
    fn names(memory: &InMemory, prefix: &str) -> Vec<String> {
        let prefix = ::object_store::path::Path::parse(prefix).unwrap();
        let listed = memory.list(Some(&prefix)).try_collect::<Vec<_>>();
        let listed = crate::remote::wait("list", "", listed).unwrap().unwrap();
        listed.iter().filter_map(|meta| meta.location.filename().map(str::to_owned)).collect()
    }

    fn place(store: Arc<InMemory>, prefix: &str, shown: &str) -> RemoteStorage {
        RemoteStorage::new(store, prefix, shown, Mode::ReadOnly, &RemoteOptions::default())
    }

    #[test]
    fn an_empty_place_is_measured_by_objects_that_are_gone_afterwards() {
        let memory = Arc::new(InMemory::new());
        let storage = place(memory.clone(), "a/b", "s3://bucket/a/b");
        let mut most = 0;
        let profile = calibrate(&storage, &quick(), &mut |_| {
            most = names(&memory, "").len().max(most);
        });
        let profile = profile.unwrap();
        profile.check().unwrap();
        assert_eq!((most, names(&memory, "")), (2, vec![]));
        assert_eq!(
            (profile.path.as_str(), profile.coldness),
            ("s3://bucket/a/b", Coldness::Unverified)
        );
        assert!(profile.request_seconds_many <= profile.request_seconds_one);
        assert!(profile.read_bytes_per_second_one <= profile.read_bytes_per_second_many);
    }

    #[test]
    fn a_calibration_that_is_stopped_leaves_no_object() {
        let memory = Arc::new(InMemory::new());
        let storage = place(memory.clone(), "", "s3://bucket");
        for stop_at in 0..8 {
            let cancel = Arc::new(AtomicBool::new(false));
            let mut seen = 0;
            let outcome = stopped_by(&cancel, || {
                calibrate(&storage, &quick(), &mut |_| {
                    cancel.fetch_or(seen == stop_at, Ordering::Relaxed);
                    seen += 1;
                })
            });
            let Err(ProfileError::Storage(error)) = outcome else { panic!("stage {stop_at}") };
            assert_eq!(error.kind, StorageErrorKind::Interrupted);
            assert_eq!(names(&memory, ""), Vec::<String>::new(), "stage {stop_at}");
        }
    }

    #[test]
    fn objects_that_are_there_are_read_and_nothing_is_written() {
        let memory = Arc::new(InMemory::new());
        let put = |name: &str, bytes| {
            let block = random_block(bytes, 1).into();
            let name = ::object_store::path::Path::parse(name).unwrap();
            crate::remote::wait("put", "", memory.put(&name, block)).unwrap().unwrap();
        };
        put("a/large", 9 << 20);
        put("a/small", 1 << 10);
        put("b/other", 9 << 20);
        let storage = place(memory.clone(), "a", "s3://bucket/a");
        let mut seen = Vec::new();
        calibrate(&storage, &quick(), &mut |_| seen.push(names(&memory, "a"))).unwrap();
        assert!(seen.iter().all(|names| names[..] == ["large", "small"]), "{seen:?}");
    }
}
