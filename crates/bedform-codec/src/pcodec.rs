//! `pcodec` of numcodecs: standalone Pco files of numbers.
//!
//! Pco models the structure of numbers (differences, multiples, few significant bits) and
//! entropy-codes the residue. Bedform writes standalone version 2 with format version 3. The Pco
//! that numcodecs requires (pcodec 0.3) writes the same, and every later release reads it. Bedform
//! reads all versions that the library supports, up to those of Pco 1.
//!
//! A file is a header, Pco chunks with one page each, and a zero byte. No count in it is trusted.
//! The count in the header is skipped. Each chunk's count is checked against the elements still
//! missing, and the sizes of its dictionary and window against its count, before the library
//! allocates memory for them.

use std::marker::PhantomData;
use std::sync::Arc;

use bedform_format::codec::{PcodecConfiguration, PcodecDelta, PcodecMode};
use bedform_format::{DataType, Endian, Serializer};
use half::f16;
use pco::data_types::{Number, NumberType};
use pco::errors::PcoError;
use pco::metadata::{ChunkMeta, DeltaEncoding, Mode};
use pco::standalone::FileCompressor;
use pco::wrapped::{ChunkDecompressor, FileDecompressor};
use pco::{ChunkConfig, DecompressorScratch, DeltaSpec, ModeSpec, PagingSpec};

use super::bytes::swap_size;
use super::memory::{invalid, resize};
use super::{ArrayToBytes, ChunkOf, CodecError, Contexts, DecodeRequest, Result, SizeBound};

const NAME: &str = "pcodec";
const MAGIC: &[u8] = b"pco!";
/// The version that is written; the largest version that is read follows.
const STANDALONE_VERSION: u8 = 2;
const STANDALONE_VERSION_MAX: u8 = 3;
const FORMAT_VERSION: u8 = 3;
/// The byte after the last chunk, in place of a chunk's number type.
const END: u8 = 0;
/// Number of numbers decoded at once: they fit the L1 cache, and are a multiple of Pco's batch.
const BATCH: usize = 2048;
/// Largest page, in numbers, whose memory a thread keeps: the default size of a page.
const KEPT_NUMBERS_MAX: usize = 1 << 18;
/// A file may have this many Pco chunks, plus one per `PAGE_ELEMENTS_MIN` elements: each chunk
/// costs the decoder tables.
const PAGES_FREE: usize = 1024;
const PAGE_ELEMENTS_MIN: usize = 64;
/// A lookback window of up to this many numbers is accepted for a chunk of any size.
const WINDOW_FREE: usize = 1 << 16;

pub(super) fn open(serializer: &Serializer, chunk: &ChunkOf<'_>) -> Option<Arc<dyn ArrayToBytes>> {
    let Serializer::Pcodec(configuration) = serializer else { return None };
    Some(match chunk.data_type {
        DataType::Int16 => of::<i16>(configuration, chunk),
        DataType::Int32 => of::<i32>(configuration, chunk),
        DataType::Int64 => of::<i64>(configuration, chunk),
        DataType::UInt16 => of::<u16>(configuration, chunk),
        DataType::UInt32 => of::<u32>(configuration, chunk),
        DataType::UInt64 => of::<u64>(configuration, chunk),
        DataType::Float16 => of::<f16>(configuration, chunk),
        DataType::Float32 => of::<f32>(configuration, chunk),
        DataType::Float64 => of::<f64>(configuration, chunk),
        _ => return None,
    })
}

fn of<T: Element>(
    configuration: &PcodecConfiguration,
    chunk: &ChunkOf<'_>,
) -> Arc<dyn ArrayToBytes> {
    Arc::new(Pcodec::<T> {
        config: config(configuration),
        decoded_bytes: chunk.bytes(),
        swap_size: swap_size(Endian::Little, chunk.data_type),
        element: PhantomData,
    })
}

fn config(configuration: &PcodecConfiguration) -> ChunkConfig {
    ChunkConfig::default()
        .with_compression_level(usize::from(configuration.level))
        .with_mode_spec(match configuration.mode {
            PcodecMode::Auto => ModeSpec::Auto,
            PcodecMode::Classic => ModeSpec::Classic,
        })
        .with_delta_spec(match configuration.delta {
            PcodecDelta::Auto => DeltaSpec::Auto,
            PcodecDelta::None => DeltaSpec::NoOp,
            PcodecDelta::Consecutive(order) => DeltaSpec::TryConsecutive(usize::from(order)),
            PcodecDelta::Lookback => DeltaSpec::TryLookback,
        })
        .with_paging_spec(PagingSpec::EqualPagesUpTo(configuration.page_elements as usize))
}

/// A number in Pco's form and as little-endian bytes.
trait Element: Number + Default {
    /// Pco's code of the number type in a file.
    const TYPE: u8;
    fn put(self, bytes: &mut [u8]);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($type:ty, $name:ident;)*) => {$(
        impl Element for $type {
            const TYPE: u8 = NumberType::$name as u8;

            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or_else(Self::default, |bytes| Self::from_le_bytes(*bytes))
            }
        }
    )*};
}

elements! {
    i16, I16; i32, I32; i64, I64;
    u16, U16; u32, U32; u64, U64;
    f16, F16; f32, F32; f64, F64;
}

#[derive(Debug)]
struct Pcodec<T> {
    config: ChunkConfig,
    decoded_bytes: usize,
    swap_size: usize,
    element: PhantomData<T>,
}

/// The numbers of a page during encoding, reused between chunks.
#[derive(Default)]
struct Numbers<T>(Vec<T>);

impl<T: Element> ArrayToBytes for Pcodec<T> {
    fn decoded_length(&self, _: usize) -> SizeBound {
        SizeBound::Exactly(self.decoded_bytes)
    }

    fn swap_size(&self) -> usize {
        self.swap_size
    }

    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let needed = match wanted.front {
            Some(front) if front.is_checked => front.bytes,
            _ => usize::MAX,
        };
        resize(output, self.decoded_bytes)?;
        let found = decode::<T>(input, output, needed, contexts)?;
        if found < self.decoded_bytes && found < needed {
            return Err(self.length(found));
        }
        output.truncate(found);
        Ok(())
    }

    fn encode(&self, elements: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        let size = size_of::<T>();
        if elements.len() != self.decoded_bytes {
            return Err(self.length(elements.len()));
        }
        let count = elements.len() / size;
        output.clear();
        write_header(count as u64, output);
        let numbers = &mut contexts.of::<Numbers<T>>().0;
        let mut rest = elements;
        for length in self.config.paging_spec.n_per_page(count).map_err(refused)? {
            let (page, behind) = rest.split_at(length * size);
            rest = behind;
            numbers.clear();
            numbers.extend(page.chunks_exact(size).map(T::get));
            write_chunk(numbers, &self.config, output).map_err(refused)?;
        }
        output.push(END);
        if numbers.capacity() > KEPT_NUMBERS_MAX {
            *numbers = Vec::new();
        }
        Ok(())
    }

    fn decodes_fronts(&self) -> bool {
        true
    }
}

impl<T> Pcodec<T> {
    fn length(&self, found: usize) -> CodecError {
        CodecError::Length { codec: NAME, expected: self.decoded_bytes, found }
    }
}

/// Decodes a file into `output`, up to the end of the page with byte `needed`, or to the end.
/// Returns the number of decoded bytes.
fn decode<T: Element>(
    input: &[u8],
    output: &mut [u8],
    needed: usize,
    contexts: &mut Contexts,
) -> Result<usize> {
    let size = size_of::<T>();
    let count = output.len() / size;
    let scratch = contexts.of::<DecompressorScratch>();
    let (file, mut rest) = FileDecompressor::new(skip_header(input)?).map_err(refused)?;
    let (mut found, mut pages) = (0, 0);
    loop {
        let Some((kind, behind)) = rest.split_first() else { return Err(too_short()) };
        if *kind == END {
            return if behind.is_empty() {
                Ok(found * size)
            } else {
                Err(invalid(NAME, "bytes behind its end"))
            };
        }
        pages += 1;
        if *kind != T::TYPE {
            return Err(invalid(NAME, &format!("numbers of type {kind}, not {}", T::TYPE)));
        }
        if pages > PAGES_FREE + count / PAGE_ELEMENTS_MIN {
            return Err(invalid(NAME, "too many pages"));
        }
        let (head, body) = behind.split_first_chunk::<3>().ok_or_else(too_short)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize + 1;
        if length > count - found {
            let (expected, found) = (output.len(), (found + length) * size);
            return Err(CodecError::Length { codec: NAME, expected, found });
        }
        check_dictionary(body, length, size)?;
        let (chunk, body) = file.chunk_decompressor::<T, _>(body).map_err(refused)?;
        check_window(&chunk, length)?;
        let page = chunk.page_decompressor_with_scratch(body, length, scratch).map_err(refused)?;
        let output = &mut output[found * size..(found + length) * size];
        rest = copy_page(page, output).map_err(refused)?;
        found += length;
        if found * size >= needed {
            return Ok(found * size);
        }
    }
}

/// Copies the numbers of a page into `output`, and returns the input after the page.
fn copy_page<'a, T: Element>(
    mut page: pco::wrapped::PageDecompressor<'_, T, &'a [u8]>,
    output: &mut [u8],
) -> std::result::Result<&'a [u8], PcoError> {
    let size = size_of::<T>();
    let mut batch = [T::default(); BATCH];
    for part in output.chunks_mut(BATCH * size) {
        let numbers = &mut batch[..part.len() / size];
        page.read(numbers)?;
        for (bytes, number) in part.chunks_exact_mut(size).zip(numbers) {
            number.put(bytes);
        }
    }
    Ok(page.into_src())
}

fn write_header(count: u64, output: &mut Vec<u8>) {
    output.extend_from_slice(MAGIC);
    output.push(STANDALONE_VERSION);
    // Six bits for the bit length of the count, less one, then the count.
    let bits = (u64::BITS - count.leading_zeros()).max(1);
    let word = u128::from(count) << 6 | u128::from(bits - 1);
    let bytes = (6 + bits).div_ceil(8) as usize;
    output.extend_from_slice(&word.to_le_bytes()[..bytes]);
    output.push(FORMAT_VERSION);
}

/// Appends one Pco chunk, restricted to the modes of format version 3.
fn write_chunk<T: Element>(
    numbers: &[T],
    config: &ChunkConfig,
    output: &mut Vec<u8>,
) -> std::result::Result<(), PcoError> {
    let file = FileCompressor::default();
    let mut chunk = file.chunk_compressor(numbers, config)?;
    if !is_of_format_3(chunk.meta()) {
        // No current release chooses another mode. These two plain choices are part of every
        // version.
        let config = config.clone().with_mode_spec(ModeSpec::Classic);
        chunk = file.chunk_compressor(numbers, &config.with_delta_spec(DeltaSpec::NoOp))?;
    }
    chunk.write(output).map(drop)
}

fn is_of_format_3(meta: &ChunkMeta) -> bool {
    let mode = matches!(
        meta.mode,
        Mode::Classic | Mode::IntMult(_) | Mode::FloatMult(_) | Mode::FloatQuant(_)
    );
    let delta = matches!(
        meta.delta_encoding,
        DeltaEncoding::NoOp | DeltaEncoding::Consecutive { .. } | DeltaEncoding::Lookback { .. }
    );
    mode && delta
}

/// Returns the bytes after the header of a standalone file. The count in the header is a hint and
/// is skipped.
fn skip_header(input: &[u8]) -> Result<&[u8]> {
    let rest = input.strip_prefix(MAGIC).ok_or_else(|| invalid(NAME, "no file of Pco"))?;
    let (version, behind) = rest.split_first().ok_or_else(too_short)?;
    let hint = match *version {
        // The header of these versions is only the version of their format.
        0 | 1 => return Ok(rest),
        2 => behind,
        STANDALONE_VERSION_MAX => behind.get(1..).ok_or_else(too_short)?,
        newer => return Err(invalid(NAME, &format!("version {newer}, which is newer"))),
    };
    let bits = usize::from(hint.first().ok_or_else(too_short)? & 0x3f) + 1;
    hint.get((6 + bits).div_ceil(8)..).ok_or_else(too_short)
}

/// Checks the dictionary size that a Pco chunk claims against its numbers and bytes.
fn check_dictionary(body: &[u8], length: usize, size: usize) -> Result<()> {
    const DICTIONARY: u32 = 4;
    let head = body.first_chunk::<4>().map_or(0, |head| u32::from_le_bytes(*head));
    let entries = (head >> 4 & 0x1ff_ffff) as usize;
    if head & 0xf == DICTIONARY && (entries > length || entries > body.len() / size) {
        return Err(invalid(NAME, "a dictionary that is larger than its chunk"));
    }
    Ok(())
}

/// Checks the lookback window that a Pco chunk claims against its number of elements.
fn check_window<T: Element>(chunk: &ChunkDecompressor<T>, length: usize) -> Result<()> {
    match &chunk.meta().delta_encoding {
        DeltaEncoding::Lookback { config, .. }
            if 1_usize
                .checked_shl(config.window_n_log)
                .is_none_or(|window| window > length.saturating_mul(2).max(WINDOW_FREE)) =>
        {
            Err(invalid(NAME, "a window that is larger than its chunk"))
        }
        _ => Ok(()),
    }
}

fn too_short() -> CodecError {
    invalid(NAME, "the file ends too early")
}

fn refused(error: PcoError) -> CodecError {
    invalid(NAME, &error.message)
}

#[cfg(test)]
mod tests;
