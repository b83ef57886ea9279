//! Advice on the chunks of a NetCDF-4 or HDF5 file that another tool is to write: nccopy, h5repack,
//! xarray.
//!
//! Such a file has chunks with deflate and shuffle, which those tools write everywhere, in row-major
//! order. Reads of the file that is not there yet are planned and priced as those of any other
//! file, by a source of chunks of the sampled size.
//!
//! Candidates are the shapes that [`advise`](crate::layout::advise()) compares, those of the array
//! as it is, and that of cmip7-repack: the array's own chunks, longer along the first axis, of 4 MiB
//! at least.
//!
//! | module | holds |
//! |---|---|
//! | `planned` | a file that is not written yet, as a source |
//! | `sample` | the encoded size of chunks of a shape |
//! | `reads` | the reads of a mix at a few places |

mod planned;
mod reads;
mod sample;

use bedform_format::CodecChain;
use bedform_format::codec::BytesCodec;
use serde::Serialize;

use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{AdviseRequest, ReadMix, Reader, advise as best_layout};
use crate::plan::tuning::Tuning;
use planned::PlannedFile;
use reads::PlacedRead;
use sample::encoded_share;

/// The level of deflate, as xarray and most producers have it. Decoding takes the same time at all.
const LEVEL: u32 = 4;
/// Data that deflate leaves at more than this share are stored as they are, unless they are
/// compressed already.
const SHARE_MAX: f64 = 0.95;
/// The most raw bytes of a chunk: several fit into the chunk caches of the libraries.
const CHUNK_BYTES_MAX: u64 = 4 << 20;
/// The fewest raw bytes of a chunk in a small array.
const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// The most chunks of an array: their table is read before the first of them.
const CHUNKS_MAX: u64 = 1 << 18;
/// The fewest bytes of a chunk of cmip7-repack.
const CMIP7_BYTES: u64 = 4 << 20;
/// The bytes of netCDF's cache of chunks.
const CACHED_BYTES: u64 = 16 << 20;
/// The relative saving that justifies other chunks than those of [`best_layout`], which also suit
/// reads that nobody named.
const OTHER_WORTH: f64 = 0.05;

/// The advised chunks of an array, and the predicted times of its reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RepackAdvice {
    /// Elements of a chunk along each axis, as it is; all elements for an array without chunks.
    pub chunks_now: Vec<u64>,
    /// The advised chunk.
    pub chunks: Vec<u64>,
    /// The advised level of deflate, behind shuffle; 0 for neither, because the elements do not
    /// compress.
    pub level: u32,
    /// Bytes of all chunks as they are.
    pub bytes_now: u64,
    /// Predicted bytes of all chunks with the advice.
    pub bytes_then: u64,
    /// The reads that were priced.
    pub reads: Vec<RepackedRead>,
}

/// A kind of read, and its predicted seconds, in the mean of a few places.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RepackedRead {
    /// The axes or elements that are read, as "lat,lon".
    pub name: String,
    /// Its share of all reads.
    pub weight: f64,
    /// Seconds of a cold read of the array as it is.
    pub cold_now: f64,
    /// Seconds of a cold read with the advice.
    pub cold_then: f64,
    /// Seconds of a read of the array as it is, if the page cache has the file.
    pub cached_now: f64,
    /// The same with the advice.
    pub cached_then: f64,
}

/// Advises chunks for `array` and the reads of a request; of the other parts of the request its
/// names and its profile count. Reads a few blocks of the array to measure their compression.
///
/// # Errors
/// `Unsupported` for elements without a fixed size; `InvalidArgument` for an array without
/// elements, and for a wrong request; those of reading.
pub fn advise(array: &Array, request: &AdviseRequest) -> Result<RepackAdvice> {
    let shape = array.shape()?;
    let item_size = array.data_type()?.item_size().ok_or_else(|| {
        let text = "its elements have no fixed size: its chunks are chosen by their writer";
        Error::new(ErrorKind::Unsupported, text).at(array.name())
    })? as u64;
    if shape.is_empty() || shape.contains(&0) {
        return Err(Error::invalid("it has no elements to cut into chunks").at(array.name()));
    }
    let tuning = array.tuning_by(&request.profile)?;
    let (chunks_now, chain_now) = array.stored_form()?;
    let compressed = chain(LEVEL, item_size);
    let share = encoded_share(array, &chunks_now, &compressed, &tuning)?;
    let is_worth = share < SHARE_MAX || !chain_now.bytes.is_empty();
    let (level, chain) = if is_worth { (LEVEL, compressed) } else { (0, chain(0, item_size)) };
    let question = AdviseRequest {
        shape: shape.clone(),
        item_size,
        compression_ratio: if level > 0 { 1.0 / share.min(1.0) } else { 1.0 },
        source_chunks: Some(chunks_now.clone()),
        ..in_one_file(request, shape.iter().copied().fold(item_size, u64::saturating_mul))
    };
    let advice = best_layout(&question).map_err(|error| Error::invalid(error.to_string()))?;
    let mix = match question.reads.reads.is_empty() {
        true => ReadMix::default_for(&shape),
        false => question.reads,
    };
    let reads = reads::placed(&mix, &shape);
    let seconds = |chunks: &[u64], share: f64| -> Result<f64> {
        let file = PlannedFile::of(array, chunks, &chain, share)?;
        let prices = reads.iter().map(|read| Ok(read.weight * file.price(read, &tuning)?.0));
        prices.sum()
    };
    let mut shapes: Vec<Vec<u64>> =
        advice.predicted.iter().map(|one| one.layout.chunk_shape.clone()).collect();
    shapes.extend(of_cmip7(&chunks_now, &shape, item_size));
    let chunks = cheapest(shapes, |chunks| seconds(chunks, share))?;
    // The compression of the advised chunks themselves.
    let share = if level > 0 { encoded_share(array, &chunks, &chain, &tuning)? } else { 1.0 };
    let file = PlannedFile::of(array, &chunks, &chain, share)?;
    let names = advice.reads.iter().map(|read| read.name.clone());
    let priced = reads.iter().zip(names).map(|(read, name)| {
        let (cold_now, cached_now) = now(array, read, &tuning)?;
        let (cold_then, cached_then) = file.price(read, &tuning)?;
        let weight = read.weight;
        Ok(RepackedRead { name, weight, cold_now, cold_then, cached_now, cached_then })
    });
    Ok(RepackAdvice {
        reads: priced.collect::<Result<_>>()?,
        bytes_now: array.stored_bytes()?,
        bytes_then: file.bytes(),
        chunks_now,
        chunks,
        level,
    })
}

/// Returns the request for chunks in one file of `total` bytes of elements, read by Bedform.
fn in_one_file(request: &AdviseRequest, total: u64) -> AdviseRequest {
    let chunk_bytes_min = CHUNK_BYTES_MIN.max(total / CHUNKS_MAX);
    AdviseRequest {
        chunk_bytes_min,
        chunk_bytes_max: CHUNK_BYTES_MAX.max(chunk_bytes_min),
        readers: vec![Reader::Bedform],
        appendable: None,
        checksummed: false,
        in_one_file: true,
        compare_alone: false,
        ..request.clone()
    }
}

/// Returns the first of the shapes, unless another one takes enough less time.
///
/// # Errors
/// Those of `seconds`.
fn cheapest(shapes: Vec<Vec<u64>>, seconds: impl Fn(&[u64]) -> Result<f64>) -> Result<Vec<u64>> {
    let (mut chunks, mut least) = (Vec::new(), f64::INFINITY);
    for candidate in shapes {
        let cost = seconds(&candidate)?;
        if cost < least * (1.0 - OTHER_WORTH) {
            (chunks, least) = (candidate, cost);
        }
    }
    Ok(chunks)
}

/// Returns the codecs that every tool writes: shuffle and deflate of `level`, or none.
fn chain(level: u32, item_size: u64) -> CodecChain {
    let mut chain = CodecChain::raw();
    if level > 0 {
        let element_size = u32::try_from(item_size).unwrap_or(u32::MAX);
        // Shuffling single bytes changes nothing, and the tools leave it out.
        if element_size > 1 {
            chain.bytes.push(BytesCodec::Shuffle { element_size });
        }
        chain.bytes.push(BytesCodec::Zlib { level });
    }
    chain
}

/// Returns the chunks that cmip7-repack writes: those of the file, longer along the first axis.
/// `None` if they are too large, as for a variable without chunks.
fn of_cmip7(chunks: &[u64], shape: &[u64], item_size: u64) -> Option<Vec<u64>> {
    let mut chunks: Vec<u64> =
        chunks.iter().zip(shape).map(|(chunk, length)| (*chunk).clamp(1, *length)).collect();
    let bytes = chunks.iter().copied().fold(item_size, u64::saturating_mul).max(1);
    if let (Some(first), Some(length)) = (chunks.first_mut(), shape.first()) {
        *first = first.saturating_mul(CMIP7_BYTES.div_ceil(bytes)).min(*length);
    }
    let bytes = chunks.iter().copied().fold(item_size, u64::saturating_mul);
    (bytes <= CACHED_BYTES).then_some(chunks)
}

/// Returns the predicted seconds of a read of the array as it is, cold and cached.
fn now(array: &Array, read: &PlacedRead, tuning: &Tuning) -> Result<(f64, f64)> {
    read.mean(|selection| Ok(array.priced_by(selection, tuning)?.1))
}
