//! The choice of codecs for an array, by a sample of its elements.
//!
//! Every candidate encodes some chunks, as they will be stored. The choice is
//! the candidate with the fastest predicted read of the array:
//!
//! ```text
//! seconds for a byte of elements = encoded size / bandwidth of the storage + decoding / cores
//! ```
//!
//! It is made among the candidates that are at most 2 % larger than `zstd` alone: a faster choice
//! never makes a store noticeably larger. All candidates are lossless. Every Zarr library reads
//! those of Zarr's core; others are candidates only where the user allows them.
//!
//! **The choice is a pure function** of the sample, the options and the profile. The profile gives
//! the bandwidth, the cores and the speed of each codec; the encoded sample gives the work of
//! decoding it ([`super::work`]). No clock is read, and predictions that are nearly equal are
//! decided by the order of the candidates.
//!
//! This module does no I/O. `write::sample` takes the blocks from the elements of a write, and
//! `zarr::choosing` decides when an array gets its codecs.

use bedform_codec::{ChunkCodec, Result, Scratch};
use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, PcodecConfiguration, PcodecDelta, PcodecMode,
};
use bedform_format::metadata::{CodecComparison, ComparedCodec};
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, Serializer};
use bedform_storage::Profile;

use super::cost::{CodecSpeeds, encoding_seconds};
use super::work::DecodingWork;

/// The default level of the Zstandard tools.
pub(crate) const ZSTD_LEVEL: i32 = 3;
/// Blosc's level. It runs Zstandard at level 5; Blosc's default level would run it at 9, and slow
/// down writers.
const BLOSC_LEVEL: u8 = 3;
/// The largest size of a candidate relative to `zstd` alone.
const LARGER_MAX: f64 = 1.02;
/// Predicted times that differ by less than this part count as equal.
const SAME_TIME: f64 = 0.015;
/// Bytes of the first blocks that every candidate encodes, at most half of them from one block.
const FIRST_BYTES: usize = 128 << 10;
/// After them a candidate continues only if its size is at most so many times the limit, because
/// codecs with large blocks do worse on less data, ...
const HOPELESS_SIZE: f64 = 1.25;
/// ... and its predicted time at most so many times the best.
const HOPELESS_TIME: f64 = 1.3;
/// The limit of the encoding of the rest of the sample, in predicted seconds per byte of the sample
/// on the assumed machine; ...
const ENCODING_BYTE: f64 = 7e-9;
/// ... and the least number of bytes that is encoded.
const ENCODED_BYTES_MIN: usize = 256 << 10;
/// The most bytes of an element whose bytes are shuffled: larger ones are no numbers.
const SHUFFLED_BYTES_MAX: usize = 16;
/// Bytes of the blocks that Blosc makes at [`BLOSC_LEVEL`] for Zstandard, and for LZ4 per byte of
/// an element.
const BLOSC_ZSTD_BLOCK: usize = 128 << 10;
const BLOSC_LZ4_BLOCK: usize = 64 << 10;
/// The least and the most bytes of blocks that Blosc splits by the bytes of elements.
const BLOSC_SPLIT_BLOCK_MIN: usize = 64 << 10;
const BLOSC_SPLIT_BLOCK_MAX: usize = 1 << 20;
/// The least bytes of a sample; with fewer the array gets `zstd`.
pub(crate) const SAMPLE_BYTES_MIN: usize = 16 << 10;

/// Elements to encode: a chunk as it is stored, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SampleBlock {
    /// The elements in their stored order and byte order.
    pub(crate) elements: Vec<u8>,
    /// Bytes of these that lie inside the array; the rest is padding.
    pub(crate) valid_bytes: usize,
}

/// A part of a block, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SamplePart<'a> {
    elements: &'a [u8],
    valid_bytes: usize,
}

impl SampleBlock {
    /// At most `bytes` from the middle, in groups of eight elements: a field often has fill values
    /// at its edges.
    fn middle(&self, bytes: usize, data_type: DataType) -> SamplePart<'_> {
        if self.elements.len() <= bytes {
            return SamplePart { elements: &self.elements, valid_bytes: self.valid_bytes };
        }
        let unit = 8 * data_type.item_size().unwrap_or(1).max(1);
        let length = bytes / unit * unit;
        let start = (self.elements.len() - length) / 2 / unit * unit;
        let elements = self.elements.get(start..start + length).unwrap_or_default();
        let valid_bytes = length * self.valid_bytes / self.elements.len();
        SamplePart { elements, valid_bytes }
    }
}

/// A list of codecs that an array may get.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CodecCandidate {
    pub(crate) name: &'static str,
    /// The codec from elements to bytes; `None` for elements one after another.
    pub(crate) serializer: Option<Serializer>,
    pub(crate) codecs: Vec<BytesCodec>,
}

/// Chosen codecs, and the comparison behind them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChosenCodecs {
    pub(crate) serializer: Option<Serializer>,
    pub(crate) codecs: Vec<BytesCodec>,
    pub(crate) comparison: CodecComparison,
}

impl ChosenCodecs {
    /// The codecs of an array without a sample.
    pub(crate) fn without_sample() -> Self {
        let CodecCandidate { serializer, codecs, .. } = zstd();
        Self { serializer, codecs, comparison: CodecComparison::default() }
    }
}

/// The rates of the storage and the machine for which reads are predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReadRates {
    /// Encoded bytes that storage delivers per second.
    pub(crate) bytes_per_second: f64,
    /// The throughput of all cores of the profile over that of one core.
    pub(crate) cores: f64,
    /// The decoding speed of each codec.
    pub(crate) speeds: CodecSpeeds,
}

impl ReadRates {
    /// Takes the rates from a profile without its refinement, which depends on measured times of
    /// reads.
    pub(crate) fn of(profile: &Profile) -> Self {
        let processor = &profile.processor;
        Self {
            bytes_per_second: profile.read_bytes_per_second_many,
            cores: processor.gain_of(processor.cores),
            speeds: CodecSpeeds::of(processor),
        }
    }

    /// Predicted seconds of a read per byte of elements.
    fn seconds(self, measured: &CodecMeasurement) -> f64 {
        let decoding = measured.decoding_seconds / measured.valid_bytes.max(1) as f64;
        measured.size() / self.bytes_per_second + decoding / self.cores
    }
}

/// The encoded size of a sample with one candidate, and the predicted time of decoding it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct CodecMeasurement {
    /// Bytes of elements, without padding.
    pub(crate) valid_bytes: u64,
    pub(crate) encoded_bytes: u64,
    /// Predicted seconds of one core.
    pub(crate) decoding_seconds: f64,
}

#[allow(clippy::cast_precision_loss)]
impl CodecMeasurement {
    /// Encoded bytes per byte of elements.
    fn size(&self) -> f64 {
        self.encoded_bytes as f64 / self.valid_bytes.max(1) as f64
    }

    fn decode_bytes_per_second(&self) -> f64 {
        self.valid_bytes as f64 / self.decoding_seconds.max(1e-9)
    }
}

fn zstd() -> CodecCandidate {
    let codec = BytesCodec::Zstd { level: ZSTD_LEVEL, checksum: false };
    CodecCandidate { name: "zstd", serializer: None, codecs: vec![codec] }
}

/// The candidates for an array of `data_type` in chunks of `chunk_bytes`. The first is `zstd`, with
/// which the others are compared.
pub(crate) fn candidates(
    data_type: DataType,
    chunk_bytes: usize,
    beyond_zarr: bool,
) -> Vec<CodecCandidate> {
    let mut all = vec![zstd()];
    let Some(item_size) = data_type.item_size() else { return all };
    let type_size = if item_size <= SHUFFLED_BYTES_MAX { item_size.max(1) } else { 1 };
    let blosc = |name, compressor, shuffle| {
        let codec = BytesCodec::Blosc(BloscConfiguration {
            compressor,
            level: BLOSC_LEVEL,
            shuffle,
            type_size: u8::try_from(type_size).unwrap_or(1),
            block_size: blosc_block(compressor, shuffle, type_size, chunk_bytes),
        });
        CodecCandidate { name, serializer: None, codecs: vec![codec] }
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
    all.push(CodecCandidate { name: "none", serializer: None, codecs: Vec::new() });
    if beyond_zarr && PcodecConfiguration::takes(data_type) {
        let pcodec = PcodecConfiguration {
            level: 8,
            mode: PcodecMode::Auto,
            delta: PcodecDelta::Auto,
            page_elements: 1 << 18,
        };
        let serializer = Some(Serializer::Pcodec(pcodec));
        all.push(CodecCandidate { name: "pcodec", serializer, codecs: Vec::new() });
    }
    all
}

/// Computes the setting `blocksize` of Blosc for chunks of `chunk_bytes`; 0 for Blosc's own choice.
///
/// Blosc divides a chunk into blocks of a round size, and compresses the last, shorter one worse.
/// For LZ4 it does not split that by the bytes of its elements. Its bits are not shuffled unless it
/// holds a multiple of eight elements. A chunk of 25 x 30 x 70 elements is one such block as a
/// whole. So the chunk is divided evenly, and fewer than eight elements per block are left over.
fn blosc_block(
    compressor: BloscCompressor,
    shuffle: BloscShuffle,
    type_size: usize,
    chunk_bytes: usize,
) -> u32 {
    // For LZ4 the setting is the size of one of the parts into which Blosc splits a block.
    let is_split = compressor == BloscCompressor::Lz4;
    let natural = match is_split {
        true => (BLOSC_LZ4_BLOCK * type_size).min(BLOSC_SPLIT_BLOCK_MAX),
        false => BLOSC_ZSTD_BLOCK,
    };
    let (elements, unit) =
        (chunk_bytes / type_size, if shuffle == BloscShuffle::Bit { 8 } else { 1 });
    let is_even = chunk_bytes <= natural || chunk_bytes.is_multiple_of(natural);
    if elements.is_multiple_of(unit) && (is_even || !is_split) {
        return 0;
    }
    let cut_into = |count: usize| elements / count.max(1) / unit * unit;
    let is_too_small = |cut: usize| is_split && cut * type_size < BLOSC_SPLIT_BLOCK_MIN;
    let mut cut = cut_into(chunk_bytes.div_ceil(natural));
    if is_too_small(cut) {
        cut = cut_into(chunk_bytes / natural);
    }
    if is_too_small(cut) {
        return 0;
    }
    u32::try_from(if is_split { cut } else { cut * type_size }).unwrap_or(0)
}

/// The index of the candidate with the fastest predicted reads, among those that are small enough.
/// Sizes are compared with the first one's; candidates that were given up have no measurement.
pub(crate) fn cheapest(measured: &[Option<CodecMeasurement>], rates: ReadRates) -> usize {
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

/// A candidate and its measurements.
struct CodecTrial {
    candidate: CodecCandidate,
    chain: CodecChain,
    measured: CodecMeasurement,
    /// Approximate seconds that encoding has taken.
    encoding_seconds: f64,
    /// False once it cannot be chosen any more: it skips the remaining blocks.
    goes_on: bool,
}

impl CodecTrial {
    fn of(candidate: CodecCandidate) -> Self {
        // With the checksum that arrays have, which takes longer for more bytes.
        let bytes = candidate.codecs.iter().copied().chain([BytesCodec::Crc32c]).collect();
        let serializer = candidate.serializer.unwrap_or(Serializer::Bytes(Endian::Little));
        let chain = CodecChain { transpose: None, serializer, bytes };
        Self {
            candidate,
            chain,
            measured: CodecMeasurement::default(),
            encoding_seconds: 0.0,
            goes_on: true,
        }
    }

    /// Encodes elements, and adds the work of decoding them.
    fn take(
        &mut self,
        part: SamplePart<'_>,
        data_type: DataType,
        speeds: &CodecSpeeds,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let item_size = data_type.item_size().unwrap_or(1).max(1);
        let count = (part.elements.len() / item_size) as u64;
        let codec = ChunkCodec::new(&self.chain, data_type, &[count]);
        let mut encoded = Vec::new();
        codec.encode(part.elements, scratch, &mut encoded)?;
        let work = DecodingWork::of(&self.chain, &encoded, part.elements.len());
        self.measured.valid_bytes += part.valid_bytes as u64;
        self.measured.encoded_bytes += encoded.len() as u64;
        self.measured.decoding_seconds += speeds.decoding_seconds(&work);
        self.encoding_seconds += encoding_seconds(&work);
        Ok(())
    }
}

/// Encodes parts of `blocks` with every candidate, and then more of them with those that may still
/// be chosen.
///
/// # Errors
/// `Memory`.
fn measure(
    blocks: &[SampleBlock],
    data_type: DataType,
    candidates: Vec<CodecCandidate>,
    rates: &ReadRates,
) -> Result<Vec<CodecTrial>> {
    let mut trials: Vec<CodecTrial> = candidates.into_iter().map(CodecTrial::of).collect();
    let mut scratch = Scratch::default();
    let mut take = |trials: &mut [CodecTrial], part: SamplePart<'_>| {
        let mut going = trials.iter_mut().filter(|trial| trial.goes_on);
        going.try_for_each(|trial| trial.take(part, data_type, &rates.speeds, &mut scratch))
    };
    let first = first_parts(blocks, data_type);
    for part in &first {
        take(&mut trials, *part)?;
    }
    let (encoded, all) = (bytes_of(&first), blocks.iter().map(|block| block.elements.len()).sum());
    if encoded == all {
        return Ok(trials);
    }
    give_up(&mut trials, *rates);
    let mut left = bytes_to_encode(all, encoded, &trials);
    for trial in trials.iter_mut().filter(|trial| trial.goes_on) {
        trial.measured = CodecMeasurement::default();
    }
    for block in blocks {
        if left == 0 {
            break;
        }
        let part = block.middle(left.max(FIRST_BYTES / 2), data_type);
        take(&mut trials, part)?;
        left = left.saturating_sub(part.elements.len());
    }
    Ok(trials)
}

/// The parts of `blocks` that every candidate encodes.
fn first_parts(blocks: &[SampleBlock], data_type: DataType) -> Vec<SamplePart<'_>> {
    let most = if blocks.len() == 1 { FIRST_BYTES } else { FIRST_BYTES / 2 };
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for block in blocks {
        if bytes >= FIRST_BYTES {
            break;
        }
        let part = block.middle(most, data_type);
        bytes += part.elements.len();
        parts.push(part);
    }
    parts
}

fn bytes_of(parts: &[SamplePart<'_>]) -> usize {
    parts.iter().map(|part| part.elements.len()).sum()
}

/// The bytes of a sample of `all` bytes that the remaining candidates encode, by their time for
/// `first`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn bytes_to_encode(all: usize, first: usize, trials: &[CodecTrial]) -> usize {
    let going = trials.iter().filter(|trial| trial.goes_on);
    let seconds: f64 = going.map(|trial| trial.encoding_seconds).sum();
    let part = ENCODING_BYTE * first as f64 / seconds.max(1e-12);
    ((all as f64 * part.min(1.0)) as usize).max(ENCODED_BYTES_MIN)
}

/// Gives up candidates that are much larger than allowed, or much slower than the best.
fn give_up(trials: &mut [CodecTrial], rates: ReadRates) {
    let best = trials.get(cheapest(&results(trials), rates)).map(|best| best.measured);
    let (Some(best), Some((first, others))) = (best, trials.split_first_mut()) else { return };
    for trial in others {
        let is_small = trial.measured.size() <= first.measured.size() * LARGER_MAX * HOPELESS_SIZE;
        let is_fast = rates.seconds(&trial.measured) <= rates.seconds(&best) * HOPELESS_TIME;
        trial.goes_on &= is_small && is_fast;
    }
}

/// The measurements of the candidates that may be chosen.
fn results(trials: &[CodecTrial]) -> Vec<Option<CodecMeasurement>> {
    trials.iter().map(|trial| trial.goes_on.then_some(trial.measured)).collect()
}

/// Chooses the codecs of an array in chunks of `chunk_bytes`, of which `blocks` are a sample.
///
/// # Errors
/// `Memory`.
pub(crate) fn choose(
    blocks: &[SampleBlock],
    data_type: DataType,
    chunk_bytes: usize,
    beyond_zarr: bool,
    rates: ReadRates,
) -> Result<ChosenCodecs> {
    let sampled: usize = blocks.iter().map(|block| block.valid_bytes).sum();
    if data_type.item_size().is_none() || sampled < SAMPLE_BYTES_MIN {
        return Ok(ChosenCodecs::without_sample());
    }
    let candidates = candidates(data_type, chunk_bytes, beyond_zarr);
    let mut trials = measure(blocks, data_type, candidates, &rates)?;
    let taken = cheapest(&results(&trials), rates);
    let encoded = trials.first().map_or(0, |zstd| zstd.measured.valid_bytes);
    trials[..=taken].rotate_right(1);
    let compared = trials.iter().map(|trial| ComparedCodec {
        name: trial.candidate.name.to_owned(),
        size: trial.measured.size(),
        decode_bytes_per_second: trial.measured.decode_bytes_per_second(),
    });
    let comparison = CodecComparison {
        sampled_bytes: encoded,
        read_bytes_per_second: rates.bytes_per_second,
        compared: compared.collect(),
    };
    let CodecCandidate { serializer, codecs, .. } = trials.swap_remove(0).candidate;
    Ok(ChosenCodecs { serializer, codecs, comparison })
}

#[cfg(test)]
mod tests;
