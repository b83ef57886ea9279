//! Measurement of cold requests, by reads of the engine: small and large ones, one at a time and
//! many at once.
//!
//! Arrays of raw chunks with a checksum, one array for each size, are written and removed from the
//! page cache. A read of one element from each of several distant chunks requests each of these
//! chunks separately. So the measurement contains everything that a read does: readahead, waiting
//! threads, the page cache or direct reads.
//!
//! ```text
//! open        = a read of one chunk, cached
//! one(size)   = a read of one chunk, cold - open - index_wait - processor
//! many(size)  = (a read of n chunks, cold - open - index_wait) / n
//! ```
//!
//! The wait for the index, which is a small request, comes from the smallest size.

#![allow(clippy::disallowed_methods, reason = "it writes a directory of its own")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::calibrate::{SampleRandom, check_cancelled};
use bedform_storage::{
    CalibrateOptions, ColdRequest, Processor, Profile, StorageError, open_without_waiting,
};
use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, json};

use super::OtherWork;
use crate::array::{Array, Elements};
use crate::error::Result;
use crate::options::OpenOptions;
use crate::store::Store;
use crate::zarr::NewArray;

/// Bytes of a chunk, number of chunks that are read, and distance between them in chunks. Small
/// chunks are far apart, as those of a series are. Reads of more than 256 KiB take another path:
/// they bypass the page cache.
const SIZES: [(u64, u64, u64); 6] = [
    (4 << 10, 64, 64),
    (16 << 10, 64, 16),
    (64 << 10, 48, 4),
    (192 << 10, 32, 2),
    (256 << 10, 32, 2),
    (2 << 20, 8, 1),
];
/// The number of sizes that are measured even on a slow place.
const SIZES_MIN: usize = 2;
/// The part of the total time that writing the arrays may take.
const WRITE_SHARE: f64 = 0.1;
const ROUNDS: usize = 5;
const DIRECTORY_START: &str = ".bedform-calibrate-";
const LOCK: &str = "lock";

/// Measures cold requests in `place`, for a profile with measured storage and processor.
///
/// # Errors
/// Those of storage; `Interrupted`.
pub(super) fn measure(
    profile: &mut Profile,
    place: &Path,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(&'static str, f64),
) -> Result<()> {
    remove_left_over(place);
    progress("writing chunks", 0.0);
    let directory = ScratchStoreDirectory::new(place)?;
    let open = OpenOptions {
        cache_bytes: 0,
        gap_bytes: Some(0),
        profile: Some(profile.clone()),
        ..OpenOptions::default()
    };
    let store = Store::create_path(&directory.path.join("store"), &Map::new(), open)?;
    let worth = profile.write_bytes_per_second * options.seconds_max * WRITE_SHARE;
    let most = worth.min(options.bytes as f64 / 2.0);
    let mut written = 0;
    let mut samples = Vec::new();
    for (chunk, count, apart) in SIZES {
        written += chunk * count * apart;
        if samples.len() >= SIZES_MIN && written as f64 > most {
            break;
        }
        samples.push(ColdSample::write(&store, &directory.path, chunk, count, apart)?);
    }
    let mut figures = ColdFigures::default();
    for (number, sample) in samples.iter().enumerate() {
        progress("reading cold chunks", 0.4 + 0.6 * number as f64 / samples.len() as f64);
        figures.add(&mut profile.processor, sample)?;
    }
    profile.open_seconds = figures.open;
    profile.cold_requests = figures.requests;
    Ok(())
}

/// An array of chunks of one size.
struct ColdSample {
    array: Array,
    object: PathBuf,
    chunk: u64,
    count: u64,
    apart: u64,
}

/// Elapsed seconds and CPU seconds of a read.
#[derive(Clone, Copy)]
struct ColdReadTimes {
    seconds: f64,
    processor: f64,
}

impl ColdSample {
    fn write(store: &Store, directory: &Path, chunk: u64, count: u64, apart: u64) -> Result<Self> {
        let (name, length) = (format!("of{chunk}"), chunk * count * apart);
        let description = json!({
            "shape": [length], "dtype": "uint8", "chunks": [chunk], "shards": [length], "codecs": ["crc32c"],
        });
        let new = NewArray::from_json(&description, &Default::default())?;
        let array = store.create_array(&ObjectPath::parse(&name)?, &new)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        SampleRandom(chunk).fill(&mut bytes);
        array.write(&Selection::all(&[length]), Elements::Bytes(&bytes))?;
        let object = directory.join("store").join(&name).join("c/0");
        // Pages that are not on the device yet cannot be dropped.
        let failed = |error| StorageError::from_io("sync", object.display(), error);
        File::open(&object).and_then(|file| file.sync_all()).map_err(failed)?;
        Ok(Self { array, object, chunk, count, apart })
    }

    /// Asks the kernel to drop the pages of the chunks.
    fn forget(&self) -> Result<()> {
        check_cancelled(&self.object.to_string_lossy())?;
        let failed = |error| StorageError::from_io("open", self.object.display(), error);
        let file = File::open(&self.object).map_err(failed)?;
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        Ok(())
    }

    /// Reads one element of `count` chunks, starting with chunk `first` of those.
    fn read(&self, first: u64, count: u64) -> Result<ColdReadTimes> {
        let step = i64::try_from(self.chunk * self.apart).unwrap_or(1);
        let range = AxisRange::new(first * self.chunk * self.apart, step, count)?;
        let selection = Selection::Orthogonal(vec![AxisSelection::Range(range)]);
        let mut elements = vec![0; usize::try_from(count).unwrap_or(0)];
        let (began, processor) = (Instant::now(), processor_seconds());
        self.array.read(&selection, &mut elements)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(ColdReadTimes { seconds, processor: processor_seconds() - processor })
    }

    /// The median of several reads between other work, each of other chunks if it reads a single
    /// one; cold reads if `is_cold`.
    fn time(&self, count: u64, is_cold: bool) -> Result<ColdReadTimes> {
        let (mut all, mut other) = (Vec::with_capacity(ROUNDS), OtherWork::default());
        for round in 0..=ROUNDS as u64 {
            if is_cold {
                self.forget()?;
            }
            other.compute();
            let first = if count == 1 { (3 * round + 1) % self.count } else { 0 };
            all.push(self.read(first, count)?);
        }
        // The first read includes the first look at the document.
        all.remove(0);
        let middle = |figure: fn(&ColdReadTimes) -> f64| {
            let mut figures: Vec<f64> = all.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[ROUNDS / 2]
        };
        Ok(ColdReadTimes {
            seconds: middle(|taken| taken.seconds),
            processor: middle(|taken| taken.processor),
        })
    }
}

/// The figures so far.
#[derive(Default)]
struct ColdFigures {
    open: f64,
    index_wait: f64,
    requests: Vec<ColdRequest>,
}

impl ColdFigures {
    fn add(&mut self, machine: &mut Processor, sample: &ColdSample) -> Result<()> {
        let cached = sample.time(1, false)?;
        let one = sample.time(1, true)?;
        let many = sample.time(sample.count, true)?;
        let (bytes, count) = (sample.chunk as f64, sample.count as f64);
        let checked = machine.chunk_seconds + machine.codec("crc32c").decoding(1.0, bytes, bytes);
        let mut known = machine.read_seconds + machine.object_seconds;
        if self.requests.is_empty() {
            let more = cached.seconds - known - checked - bytes / machine.cached_bytes_per_second;
            // A large difference is a wait; a small one is the extra time of a read of a file over
            // one of memory.
            let is_wait = more > 10.0 * known;
            self.open = if is_wait { more } else { 0.0 };
            if !is_wait {
                machine.read_seconds += more.max(0.0);
                known += more.max(0.0);
            }
            self.index_wait = least((one.seconds - known - self.open) / 2.0);
        }
        let processor = (many.processor - known) / count - checked;
        let processor_seconds = processor.max(machine.request_seconds);
        let waited = known + self.open + self.index_wait;
        let seconds_many = least((many.seconds - waited) / count);
        let seconds_one = least(one.seconds - waited - processor_seconds).max(seconds_many);
        self.requests.push(ColdRequest { bytes, seconds_one, seconds_many, processor_seconds });
        Ok(())
    }
}

fn least(seconds: f64) -> f64 {
    seconds.max(1e-7)
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// A directory that is removed with its contents on drop.
struct ScratchStoreDirectory {
    path: PathBuf,
    /// Held while the directory is in use.
    _lock: File,
}

impl ScratchStoreDirectory {
    fn new(place: &Path) -> Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = place.join(format!("{DIRECTORY_START}{}-{number}", std::process::id()));
        let failed = |error: io::Error| StorageError::from_io("create", path.display(), error);
        fs::create_dir(&path).map_err(failed)?;
        let lock = File::create(path.join(LOCK)).map_err(failed)?;
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for ScratchStoreDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of killed processes.
fn remove_left_over(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_one = entry.file_name().to_string_lossy().starts_with(DIRECTORY_START)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        let lock = is_one.then(|| open_without_waiting(&entry.path().join(LOCK)));
        if let Some(Ok(lock)) = lock
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let place =
            std::env::temp_dir().join(format!("bedform-cold-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).unwrap();
        place
    }

    #[test]
    fn cold_requests_are_measured_by_size_and_nothing_is_left() {
        let place = scratch("whole");
        let left = place.join(".bedform-calibrate-1-0");
        fs::create_dir(&left).unwrap();
        File::create(left.join(LOCK)).unwrap();
        let mut profile = Profile::default_local();
        let options = CalibrateOptions { bytes: 32 << 20, ..CalibrateOptions::default() };
        measure(&mut profile, &place, &options, &mut |_, _| {}).unwrap();
        profile.check().unwrap();
        assert!(profile.cold_requests.len() >= SIZES_MIN);
        assert!(profile.cold_requests.iter().all(|one| one.seconds_many <= one.seconds_one));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
        fs::remove_dir_all(place).unwrap();
    }
}
