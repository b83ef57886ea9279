//! The file that a calibration reads on a file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::random::SampleRandom;
use super::timing::{PAGE, ReadTimes, TimedExtent, TimedSource, Timer};
use super::{BLOCK, BYTES_MIN, CalibrateOptions, check_cancelled};
use crate::{Coldness, ProfileError, StorageError, StorageErrorKind};

const PAGE_BYTES: usize = 4096;
const WRITE_BYTES: usize = 8 << 20;
/// The most time for writing, as a share of the whole.
const WRITE_SHARE: f64 = 0.4;
/// The magic numbers of file systems in memory.
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// The nameless file that a calibration reads.
pub(super) struct SampleFile {
    place: String,
    buffered: File,
    direct: Option<File>,
    bytes: u64,
    past_cache: bool,
    pub(super) coldness: Coldness,
    pub(super) notes: Vec<String>,
}

impl SampleFile {
    /// Writes and syncs the file; returns it with the bytes per second of doing so.
    pub(super) fn write(
        path: &Path,
        options: &CalibrateOptions,
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
        let mut random = SampleRandom(0x5eed);
        random.fill(&mut block);
        let started = Instant::now();
        let mut bytes = 0;
        while bytes < options.bytes && (bytes < BYTES_MIN || started.elapsed() < limit) {
            check_cancelled(&place)?;
            // Pages must differ, or a device that deduplicates would store one block.
            for page in block.chunks_exact_mut(PAGE_BYTES) {
                page[..8].copy_from_slice(&random.next().to_le_bytes());
            }
            let length = (options.bytes - bytes).min(WRITE_BYTES as u64);
            let length = usize::try_from(length).unwrap_or(WRITE_BYTES);
            buffered.write_all(&block[..length]).map_err(|error| failed("write", error))?;
            bytes += length as u64;
            // The slowness of a device shows at the sync, not at the write.
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
        Ok((Self { place, buffered, direct, bytes, past_cache, coldness, notes }, rate))
    }

    /// Chooses reads that reach the device, and notes the evidence.
    pub(super) fn choose_way(&mut self) -> Result<(), ProfileError> {
        let memory = rustix::fs::fstatfs(&self.buffered).is_ok_and(|system| is_memory(&system));
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
        Ok(check_cancelled(&self.place)?)
    }

    /// Returns the share of a few pages that is in the page cache; `None` if the system cannot
    /// tell.
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
        // The question may have fetched the page.
        self.forget();
        Some(f64::from(resident) / probes.len().max(1) as f64)
    }

    /// As [`Timer::measure`], for large extents: the faster of reads through the page cache and
    /// past it, because local storage chooses the same way.
    pub(super) fn measure_streams(
        &self,
        in_flight: usize,
        pieces: &[TimedExtent],
        seconds_max: f64,
    ) -> Result<ReadTimes, StorageError> {
        let half = seconds_max / 2.0;
        let through = Timer { source: self }.measure(in_flight, pieces, half)?;
        let Some(direct) = &self.direct else { return Ok(through) };
        let past = DirectSample { sample: self, direct };
        let past = Timer { source: &past }.measure(in_flight, pieces, half)?;
        Ok(if past.bytes_per_second() > through.bytes_per_second() { past } else { through })
    }

    fn read_from(
        &self,
        file: &File,
        piece: TimedExtent,
        buffer: &mut [u8],
    ) -> Result<(), StorageError> {
        let failed = |error| StorageError::from_io("read", &self.place, error);
        file.read_exact_at(buffer, piece.offset).map_err(failed)
    }
}

impl TimedSource for SampleFile {
    fn place(&self) -> &str {
        &self.place
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Asks the system to drop the file from the page cache. It may refuse: see
    /// [`SampleFile::resident_share`].
    fn forget(&self) {
        for advice in [Advice::DontNeed, Advice::Random] {
            let _ = rustix::fs::fadvise(&self.buffered, 0, None, advice);
        }
    }

    fn read(&self, piece: TimedExtent, buffer: &mut [u8]) -> Result<(), StorageError> {
        let file = self.direct.as_ref().filter(|_| self.past_cache).unwrap_or(&self.buffered);
        self.read_from(file, piece, buffer)
    }

    fn shuffled(&self, bytes: u64) -> Vec<TimedExtent> {
        let piece = |number| TimedExtent { object: 0, offset: number * bytes, bytes };
        let mut pieces: Vec<_> = (0..self.bytes / bytes).map(piece).collect();
        SampleRandom(bytes).shuffle(&mut pieces);
        pieces
    }
}

/// The same file, read past the page cache.
struct DirectSample<'a> {
    sample: &'a SampleFile,
    direct: &'a File,
}

impl TimedSource for DirectSample<'_> {
    fn place(&self) -> &str {
        self.sample.place()
    }

    fn bytes(&self) -> u64 {
        self.sample.bytes()
    }

    fn forget(&self) {
        self.sample.forget();
    }

    fn read(&self, piece: TimedExtent, buffer: &mut [u8]) -> Result<(), StorageError> {
        self.sample.read_from(self.direct, piece, buffer)
    }

    fn shuffled(&self, bytes: u64) -> Vec<TimedExtent> {
        self.sample.shuffled(bytes)
    }
}

/// Creates a nameless file in `directory`, opened through the page cache and, if the system allows
/// it, past it.
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

/// True for a file system in memory.
pub(super) fn is_memory(system: &rustix::fs::StatFs) -> bool {
    matches!(u64::try_from(system.f_type), Ok(TMPFS | RAMFS))
}
