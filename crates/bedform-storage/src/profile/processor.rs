//! Processor and memory times of a machine, for the parts of a read.
//!
//! ```text
//! seconds = read_seconds + (work / gain + threads_started * thread_seconds)
//! work    = objects * object_seconds + requests * request_seconds + bytes / cached_bytes_per_second
//!         + chunks * chunk_seconds + decoding
//!         + runs * (run or far_run)_seconds + copied bytes / (copy or fresh)_bytes_per_second
//! decoding, for each codec of the chain
//!         = chunks * chunk_seconds + encoded bytes * encoded_byte_seconds + decoded bytes * decoded_byte_seconds
//! ```
//!
//! A codec has two terms of bytes because data differ. For a Zstandard frame of noise the
//! entropy-coded bytes count, for one of zeros the decoded bytes.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::{ENTRIES_MAX, ProfileError, RATE_RANGE, TEXT_BYTES_MAX, malformed, within};

/// Seconds: between nothing and an hour.
const SECONDS_RANGE: (f64, f64) = (0.0, 3600.0);
const CORES_MAX: u32 = 1 << 16;
/// The most bytes that the C library's allocator keeps after `free`: the next read gets mapped
/// pages.
const KEPT_BYTES_MAX: f64 = 32e6;
/// The most bytes of a result that stay in the core's own cache while it is filled.
const NEAR_BYTES_MAX: f64 = 1e6;

/// The times of a codec on one core.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecTimes {
    /// Seconds to decode a chunk, in addition to its bytes.
    pub chunk_seconds: f64,
    /// Seconds of decoding per encoded byte.
    pub encoded_byte_seconds: f64,
    /// Seconds of decoding per decoded byte.
    pub decoded_byte_seconds: f64,
    /// Bytes per second of encoding.
    pub encode_bytes_per_second: f64,
}

impl CodecTimes {
    /// Returns the seconds of one core to decode `chunks` chunks with these bytes in total.
    pub fn decoding(&self, chunks: f64, encoded_bytes: f64, decoded_bytes: f64) -> f64 {
        chunks * self.chunk_seconds
            + encoded_bytes * self.encoded_byte_seconds
            + decoded_bytes * self.decoded_byte_seconds
    }
}

/// The processor and memory times of a machine for the parts of a read.
///
/// ```
/// use bedform_storage::{Processor, ProcessorWork};
///
/// let usual = Processor::default();
/// let map = ProcessorWork { chunks: 64.0, copied_bytes: 4e6, decoding_seconds: 2e-3, ..Default::default() };
/// let work = usual.parts_of(&map).sum();
/// assert!(usual.shared(work, 2) < usual.shared(work, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// The model, as the system reports it; empty if nothing was measured.
    pub name: String,
    /// The number of cores that the process may use.
    pub cores: u32,
    /// The speed-up of all cores over one core: less than `cores` where cores share units or
    /// memory.
    pub gain: f64,
    /// Seconds of a read without chunks: planning and the call.
    pub read_seconds: f64,
    /// Seconds to start and join a thread.
    pub thread_seconds: f64,
    /// Seconds to open an object whose pages are in memory, and to look up its index.
    pub object_seconds: f64,
    /// Seconds of a request whose bytes are in memory.
    pub request_seconds: f64,
    /// Bytes per second of such requests.
    pub cached_bytes_per_second: f64,
    /// Seconds to find and deliver a chunk, in addition to decoding and copying.
    pub chunk_seconds: f64,
    /// Seconds per run of bytes that is contiguous both in a chunk and in the result.
    pub run_seconds: f64,
    /// The same where the result is larger than a core's own cache: each run waits for memory.
    #[serde(default = "far_run_seconds")]
    pub far_run_seconds: f64,
    /// Bytes per second of copying to memory that the process has already.
    pub copy_bytes_per_second: f64,
    /// Bytes per second of copying to fresh pages from the system.
    pub fresh_bytes_per_second: f64,
    /// Times by codec; a codec without a measurement uses `"other"`.
    pub codecs: BTreeMap<String, CodecTimes>,
}

/// The processor work of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessorWork {
    /// Number of opened objects.
    pub objects: f64,
    /// Number of requests.
    pub requests: f64,
    /// Bytes of the requests.
    pub bytes: f64,
    /// Number of chunks.
    pub chunks: f64,
    /// Seconds of one core to decode the chunks: see [`Processor::codec`].
    pub decoding_seconds: f64,
    /// Number of runs that are contiguous both in a chunk and in the result.
    pub runs: f64,
    /// Bytes of the result.
    pub copied_bytes: f64,
}

/// Seconds of one core, by part of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessorSeconds {
    /// Seconds of opening objects and of requests whose bytes are in memory.
    pub requests: f64,
    /// Seconds of copying the requested bytes from memory.
    pub bytes: f64,
    /// Seconds of finding and decoding chunks.
    pub decoding: f64,
    /// Seconds of filling the result.
    pub copying: f64,
}

impl ProcessorSeconds {
    /// Returns the sum of the parts.
    pub fn sum(&self) -> f64 {
        self.requests + self.bytes + self.decoding + self.copying
    }
}

impl Processor {
    /// Returns the times of a codec; those of `"other"` if it was not measured.
    pub fn codec(&self, name: &str) -> CodecTimes {
        let known = self.codecs.get(name).or_else(|| self.codecs.get("other"));
        known.copied().unwrap_or(OTHER)
    }

    /// Returns the speed-up of `threads` threads over one core.
    pub fn gain_of(&self, threads: u32) -> f64 {
        let (cores, threads) = (f64::from(self.cores.max(1)), f64::from(threads.max(1)));
        match cores > 1.0 {
            true => 1.0 + (threads.min(cores) - 1.0) * (self.gain - 1.0).max(0.0) / (cores - 1.0),
            false => 1.0,
        }
    }

    /// Returns the seconds of one core for each part of `work`.
    pub fn parts_of(&self, work: &ProcessorWork) -> ProcessorSeconds {
        let copy = match work.copied_bytes > KEPT_BYTES_MAX {
            true => self.fresh_bytes_per_second,
            false => self.copy_bytes_per_second,
        };
        let run = match work.copied_bytes > NEAR_BYTES_MAX {
            true => self.far_run_seconds,
            false => self.run_seconds,
        };
        ProcessorSeconds {
            requests: work.objects * self.object_seconds + work.requests * self.request_seconds,
            bytes: work.bytes / self.cached_bytes_per_second,
            decoding: work.chunks * self.chunk_seconds + work.decoding_seconds,
            copying: work.runs * run + work.copied_bytes / copy,
        }
    }

    /// Returns the seconds of a read with `seconds` of one core's work, shared by `threads`
    /// threads. The first thread is running already.
    pub fn shared(&self, seconds: f64, threads: u32) -> f64 {
        let started = f64::from(threads.saturating_sub(1)) * self.thread_seconds;
        self.read_seconds + seconds / self.gain_of(threads) + started
    }

    /// Checks that every field is plausible for a machine.
    ///
    /// # Errors
    /// As [`Profile::check`](super::Profile::check).
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let seconds = [
            ("read_seconds", self.read_seconds),
            ("thread_seconds", self.thread_seconds),
            ("object_seconds", self.object_seconds),
            ("request_seconds", self.request_seconds),
            ("chunk_seconds", self.chunk_seconds),
            ("run_seconds", self.run_seconds),
            ("far_run_seconds", self.far_run_seconds),
        ];
        let rates = [
            ("cached_bytes_per_second", self.cached_bytes_per_second),
            ("copy_bytes_per_second", self.copy_bytes_per_second),
            ("fresh_bytes_per_second", self.fresh_bytes_per_second),
        ];
        for (field, value) in seconds {
            within(field, value, SECONDS_RANGE)?;
        }
        for (field, value) in rates {
            within(field, value, RATE_RANGE)?;
        }
        within("cores", f64::from(self.cores), (1.0, f64::from(CORES_MAX)))?;
        within("gain", self.gain, (0.1, f64::from(CORES_MAX)))?;
        for (codec, times) in &self.codecs {
            let CodecTimes { chunk_seconds, encoded_byte_seconds, decoded_byte_seconds, .. } =
                times;
            for value in [chunk_seconds, encoded_byte_seconds, decoded_byte_seconds] {
                within(&format!("decoding time of {codec:?}"), *value, SECONDS_RANGE)?;
            }
            within(
                &format!("encoding rate of {codec:?}"),
                times.encode_bytes_per_second,
                RATE_RANGE,
            )?;
        }
        let is_long = |text: &String| text.len() > TEXT_BYTES_MAX;
        if is_long(&self.name) || self.codecs.len() > ENTRIES_MAX || self.codecs.keys().any(is_long)
        {
            return Err(malformed(
                "the profile",
                "its processor has too many codecs or a long text".into(),
            ));
        }
        Ok(())
    }
}

/// The assumed seconds per run for documents without a measurement.
const fn far_run_seconds() -> f64 {
    20e-9
}

/// The assumed times of an unknown codec.
const OTHER: CodecTimes = times(2e-6, 1e-9, 1e-9, 2e8);

const fn times(chunk: f64, encoded: f64, decoded: f64, encode: f64) -> CodecTimes {
    CodecTimes {
        chunk_seconds: chunk,
        encoded_byte_seconds: encoded,
        decoded_byte_seconds: decoded,
        encode_bytes_per_second: encode,
    }
}

/// Returns the number of cores that this process may use, counted once: counting reads several
/// files, and each opening of a store needs the number.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Processor {
    /// Returns the assumed times of codecs that were not measured.
    pub fn assumed_codecs() -> BTreeMap<String, CodecTimes> {
        let codecs = [
            ("blosc-lz4-bit", times(2e-6, 0.1e-9, 0.20e-9, 6e8)),
            ("blosc-lz4-byte", times(2e-6, 0.1e-9, 0.15e-9, 9e8)),
            ("blosc-zstd-bit", times(4e-6, 0.6e-9, 0.25e-9, 2e8)),
            ("blosc-zstd-byte", times(4e-6, 0.6e-9, 0.20e-9, 2e8)),
            ("crc32c", times(0.1e-6, 0.04e-9, 0.0, 2.5e10)),
            ("other", OTHER),
            ("pcodec", times(10e-6, 0.3e-9, 0.3e-9, 2e8)),
            ("shuffle", times(0.2e-6, 0.0, 0.15e-9, 4e9)),
            ("zlib", times(5e-6, 2.5e-9, 0.6e-9, 6e7)),
            ("zstd", times(2e-6, 0.8e-9, 0.15e-9, 3e8)),
        ];
        codecs.map(|(name, times)| (name.to_owned(), times)).into()
    }
}

impl Default for Processor {
    /// Assumes two cores of a server of 2024 on every machine without a measurement. The choice of
    /// codecs and layouts depends on these values, so they are the same everywhere.
    fn default() -> Self {
        Self {
            name: String::new(),
            cores: 2,
            gain: 1.6,
            read_seconds: 12e-6,
            thread_seconds: 40e-6,
            object_seconds: 20e-6,
            request_seconds: 1.5e-6,
            cached_bytes_per_second: 8e9,
            chunk_seconds: 1.5e-6,
            run_seconds: 3e-9,
            far_run_seconds: far_run_seconds(),
            copy_bytes_per_second: 8e9,
            fresh_bytes_per_second: 2.5e9,
            codecs: Self::assumed_codecs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_than_cores_do_no_more() {
        let machine = Processor { cores: 4, gain: 3.0, ..Processor::default() };
        assert_eq!(
            [1, 2, 4, 9].map(|threads| machine.gain_of(threads).round()),
            [1.0, 2.0, 3.0, 3.0]
        );
        let alone = Processor { cores: 1, gain: 1.6, ..Processor::default() };
        assert_eq!(alone.gain_of(3), 1.0);
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        Processor::default().check().unwrap();
        type Set = fn(&mut Processor, f64);
        let fields: [Set; 4] = [
            |machine, value| machine.gain = value,
            |machine, value| machine.run_seconds = value,
            |machine, value| machine.copy_bytes_per_second = value,
            |machine, value| machine.codecs.get_mut("zstd").unwrap().encoded_byte_seconds = value,
        ];
        for set in fields {
            for value in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
                let mut machine = Processor::default();
                set(&mut machine, value);
                assert!(machine.check().is_err(), "{value}");
            }
        }
    }
}
