//! The choice of codecs for an array, by a sample of its elements.
//!
//! A few blocks are encoded by every candidate, and decoded again against the clock. The candidate is taken by
//! which a read of the array is predicted to be fastest:
//!
//! ```text
//! seconds for a byte of elements = encoded size / bandwidth of the storage + decoding / cores
//! ```
//!
//! among the candidates that are at most 2 % larger than `zstd` alone: speed is never paid for with a store
//! that is larger than it was without a choice. All candidates are lossless; those of Zarr's core are read by
//! every Zarr library, others are candidates only where the user allows them.
//!
//! The sizes of a sample are the same each time, the times are not: what is nearly as fast is taken in the
//! order of the candidates, so that noise seldom decides.
//!
//! Nothing here reads or writes. `write::sample` takes the blocks from what is written, and `zarr::choosing`
//! says when an array gets its codecs.

use std::time::{Duration, Instant};

use bedform_codec::{ChunkCodec, CodecError, Result, Scratch};
use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, PcodecConfiguration, PcodecDelta, PcodecMode,
};
use bedform_format::metadata::{CodecComparison, ComparedCodec};
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, Serializer};
use bedform_storage::Profile;

/// The level that the Zstandard tools take.
pub(crate) const ZSTD_LEVEL: i32 = 3;
/// Blosc's level. Of Zstandard it makes 5 of it, and 9 of its own default: writers would wait for that.
const BLOSC_LEVEL: u8 = 3;
/// What a candidate may be larger than `zstd` alone.
const LARGER_MAX: f64 = 1.02;
/// Predicted times that differ by less than this part are the same.
const SAME_TIME: f64 = 0.015;
/// Blocks that every candidate gets: the parts of an array may differ.
const BLOCKS_FOR_ALL: usize = 2;
/// After them a candidate goes on only if its size is within this of the limit, ...
const HOPELESS_SIZE: f64 = 1.1;
/// ... and its predicted time within this of the best.
const HOPELESS_TIME: f64 = 1.3;
/// Elements of more bytes are not numbers whose bytes are alike by their place.
const SHUFFLED_BYTES_MAX: usize = 16;
/// Decoding a block is timed so many times; the fastest counts.
const TIMED: usize = 2;
/// Blocks of less say nothing: their array takes `zstd`.
pub(crate) const SAMPLE_BYTES_MIN: usize = 16 << 10;

/// Codecs that an array may get.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    /// Nothing for elements one after another.
    pub(crate) serializer: Option<Serializer>,
    pub(crate) codecs: Vec<BytesCodec>,
}

/// Codecs that were chosen, and what was compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) serializer: Option<Serializer>,
    pub(crate) codecs: Vec<BytesCodec>,
    pub(crate) comparison: CodecComparison,
}

impl Chosen {
    /// What an array gets where there is nothing to compare.
    pub(crate) fn without_sample() -> Self {
        let Candidate { serializer, codecs, .. } = zstd();
        Self { serializer, codecs, comparison: CodecComparison::default() }
    }
}

/// The storage and the machine that reads are predicted for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReadRates {
    /// Encoded bytes that arrive in a second.
    pub(crate) bytes_per_second: f64,
    /// How many times one core's work those that decode do together.
    pub(crate) cores: f64,
}

impl ReadRates {
    /// Those of a storage, and of so many threads.
    pub(crate) fn of(profile: &Profile, threads: usize) -> Self {
        let threads = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        let cores = profile.processor.gain_of(threads);
        Self { bytes_per_second: profile.read_bytes_per_second_many, cores }
    }

    /// Seconds for a byte of elements.
    fn seconds(self, measured: &Measured) -> f64 {
        measured.size() / self.bytes_per_second + measured.seconds_per_byte() / self.cores
    }
}

/// What a sample gave for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Measured {
    pub(crate) decoded_bytes: u64,
    pub(crate) encoded_bytes: u64,
    pub(crate) decoding: Duration,
}

#[allow(clippy::cast_precision_loss)]
impl Measured {
    /// Encoded bytes for a byte of elements.
    fn size(&self) -> f64 {
        self.encoded_bytes as f64 / self.decoded_bytes.max(1) as f64
    }

    fn seconds_per_byte(&self) -> f64 {
        self.decoding.as_secs_f64() / self.decoded_bytes.max(1) as f64
    }

    fn decode_bytes_per_second(&self) -> f64 {
        self.decoded_bytes as f64 / self.decoding.as_secs_f64().max(1e-9)
    }
}

fn zstd() -> Candidate {
    let codec = BytesCodec::Zstd { level: ZSTD_LEVEL, checksum: false };
    Candidate { name: "zstd", serializer: None, codecs: vec![codec] }
}

/// The codecs that an array of `data_type` may get: `zstd` first, which the others are held against.
pub(crate) fn candidates(data_type: DataType, beyond_zarr: bool) -> Vec<Candidate> {
    let mut all = vec![zstd()];
    let Some(item_size) = data_type.item_size() else { return all };
    let type_size = if item_size <= SHUFFLED_BYTES_MAX { item_size.max(1) } else { 1 };
    let blosc = |name, compressor, shuffle| {
        let codec = BytesCodec::Blosc(BloscConfiguration {
            compressor,
            level: BLOSC_LEVEL,
            shuffle,
            type_size: u8::try_from(type_size).unwrap_or(1),
            block_size: 0,
        });
        Candidate { name, serializer: None, codecs: vec![codec] }
    };
    let (zstd, lz4) = (BloscCompressor::Zstd, BloscCompressor::Lz4);
    if type_size > 1 {
        all.push(blosc("blosc-zstd-shuffle", zstd, BloscShuffle::Byte));
        all.push(blosc("blosc-lz4-shuffle", lz4, BloscShuffle::Byte));
    } else {
        all.push(blosc("blosc-lz4", lz4, BloscShuffle::None));
    }
    all.push(blosc("blosc-zstd-bitshuffle", zstd, BloscShuffle::Bit));
    all.push(blosc("blosc-lz4-bitshuffle", lz4, BloscShuffle::Bit));
    all.push(Candidate { name: "none", serializer: None, codecs: Vec::new() });
    if beyond_zarr && PcodecConfiguration::takes(data_type) {
        let pcodec = PcodecConfiguration {
            level: 8,
            mode: PcodecMode::Auto,
            delta: PcodecDelta::Auto,
            page_elements: 1 << 18,
        };
        let serializer = Some(Serializer::Pcodec(pcodec));
        all.push(Candidate { name: "pcodec", serializer, codecs: Vec::new() });
    }
    all
}

/// The number of the candidate by which reads are fastest, of those that are small enough. The first one is what
/// the others are held against; candidates that were given up have no measurement.
pub(crate) fn cheapest(measured: &[Option<Measured>], rates: ReadRates) -> usize {
    let Some(Some(first)) = measured.first() else { return 0 };
    let largest = first.size() * LARGER_MAX;
    let mut best = (0, rates.seconds(first));
    for (at, measured) in measured.iter().enumerate().skip(1) {
        let Some(measured) = measured.filter(|measured| measured.size() <= largest) else {
            continue;
        };
        let seconds = rates.seconds(&measured);
        if seconds < best.1 * (1.0 - SAME_TIME) {
            best = (at, seconds);
        }
    }
    best.0
}

/// A candidate and what the sample gave for it.
struct Trial {
    candidate: Candidate,
    measured: Measured,
    /// False once it cannot be taken any more: the blocks that are left are not tried.
    goes_on: bool,
}

impl Trial {
    fn of(candidate: Candidate) -> Self {
        Self { candidate, measured: Measured::default(), goes_on: true }
    }

    /// Encodes a block of elements and decodes it.
    fn take(&mut self, block: &[u8], data_type: DataType, scratch: &mut Scratch) -> Result<()> {
        // With the checksum that arrays carry: it takes longer where there are more bytes.
        let bytes = self.candidate.codecs.iter().copied().chain([BytesCodec::Crc32c]).collect();
        let serializer = self.candidate.serializer.unwrap_or(Serializer::Bytes(Endian::Little));
        let chain = CodecChain { transpose: None, serializer, bytes };
        let item_size = data_type.item_size().unwrap_or(1).max(1);
        let codec = ChunkCodec::new(&chain, data_type, &[(block.len() / item_size) as u64]);
        let mut encoded = Vec::new();
        codec.encode(block, scratch, &mut encoded)?;
        self.measured.decoded_bytes += block.len() as u64;
        self.measured.encoded_bytes += encoded.len() as u64;
        self.measured.decoding += time_decoding(&codec, &encoded, block, scratch)?;
        Ok(())
    }
}

/// Encodes and decodes `blocks` of elements, as they are stored, by every candidate that may still be taken.
///
/// # Errors
/// `Memory`.
fn measure(
    blocks: &[Vec<u8>],
    data_type: DataType,
    candidates: Vec<Candidate>,
    rates: ReadRates,
) -> Result<Vec<Trial>> {
    let mut trials: Vec<Trial> = candidates.into_iter().map(Trial::of).collect();
    let mut scratch = Scratch::default();
    for (number, block) in blocks.iter().enumerate() {
        for trial in trials.iter_mut().filter(|trial| trial.goes_on) {
            trial.take(block, data_type, &mut scratch)?;
        }
        if number + 1 >= BLOCKS_FOR_ALL {
            give_up(&mut trials, rates);
        }
    }
    Ok(trials)
}

/// The time of decoding a block; what comes out is held against what went in.
fn time_decoding(
    codec: &ChunkCodec,
    encoded: &[u8],
    block: &[u8],
    scratch: &mut Scratch,
) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..TIMED {
        let begin = Instant::now();
        let decoded = codec.decode(encoded, 0, scratch)?;
        let taken = begin.elapsed();
        if decoded != block {
            let found = decoded.len();
            return Err(CodecError::Length { codec: "chosen", expected: block.len(), found });
        }
        fastest = fastest.min(taken);
    }
    Ok(fastest)
}

/// Gives up candidates that are much larger than they may be, or much slower than the best.
fn give_up(trials: &mut [Trial], rates: ReadRates) {
    let best = trials.get(cheapest(&results(trials), rates)).map(|best| best.measured);
    let (Some(best), Some((first, others))) = (best, trials.split_first_mut()) else { return };
    for trial in others {
        let is_small = trial.measured.size() <= first.measured.size() * LARGER_MAX * HOPELESS_SIZE;
        let is_fast = rates.seconds(&trial.measured) <= rates.seconds(&best) * HOPELESS_TIME;
        trial.goes_on &= is_small && is_fast;
    }
}

/// What was measured of the candidates that may be taken.
fn results(trials: &[Trial]) -> Vec<Option<Measured>> {
    trials.iter().map(|trial| trial.goes_on.then_some(trial.measured)).collect()
}

/// The codecs for an array of which `blocks` are a sample: elements as they are stored.
///
/// # Errors
/// `Memory`.
pub(crate) fn choose(
    blocks: &[Vec<u8>],
    data_type: DataType,
    beyond_zarr: bool,
    rates: ReadRates,
) -> Result<Chosen> {
    let sampled: usize = blocks.iter().map(Vec::len).sum();
    if data_type.item_size().is_none() || sampled < SAMPLE_BYTES_MIN {
        return Ok(Chosen::without_sample());
    }
    let mut trials = measure(blocks, data_type, candidates(data_type, beyond_zarr), rates)?;
    let taken = cheapest(&results(&trials), rates);
    trials[..=taken].rotate_right(1);
    let compared = trials.iter().map(|trial| ComparedCodec {
        name: trial.candidate.name.to_owned(),
        size: trial.measured.size(),
        decode_bytes_per_second: trial.measured.decode_bytes_per_second(),
    });
    let comparison = CodecComparison {
        sampled_bytes: sampled as u64,
        read_bytes_per_second: rates.bytes_per_second,
        compared: compared.collect(),
    };
    let Candidate { serializer, codecs, .. } = trials.swap_remove(0).candidate;
    Ok(Chosen { serializer, codecs, comparison })
}

#[cfg(test)]
mod tests;
