//! Encoding and decoding of chunks: thin adapters over the codec libraries.
//!
//! The elements of a chunk pass through one `ArrayToBytes`, then any number of `BytesToBytes`;
//! decoding reverses the order. [`ChunkCodec`] runs the chain. `bedform_format::codec` parses and
//! writes the names and configurations of codecs; this crate encodes and decodes.
//!
//! Nothing here opens a file, starts a thread or reads a clock, so that every decoder can be
//! fuzzed.
//!
//! **The contract of a codec.**
//!
//! 1. Encoded bytes are untrusted. A decoder returns exactly the requested number of bytes, or at
//!    most that many, and writes none beyond. The number comes from the array's metadata, which the
//!    parser has checked against the limits. The output takes no more memory than that; a constant
//!    bounds a decoder's other memory, regardless of its input. Bad input is an error, never a
//!    panic.
//! 2. An encoder adds at most as many bytes as it receives plus 64 KiB, or declares more
//!    (`ArrayToBytes::encoded_bytes_max`): longer extents are refused before they are fetched.
//! 3. A codec is made once per array and shared by threads. State that persists between chunks is a
//!    type in `Contexts`; each thread has its own. The caller owns and reuses buffers, so the chain
//!    allocates nothing per chunk.
//! 4. A chain makes one virtual call per codec and chunk. It reads a codec's properties when the
//!    array is opened.
//! 5. A decoder may stop early if the front of a chunk suffices (`DecodeRequest::front`) and damage after
//!    the front is still detected: by a verified checksum, or by the decoder.
//!
//! To add a codec: its entry in `bedform_format::codec::definitions`, its file here, and its line
//! in `BYTES_TO_BYTES` or `ARRAY_TO_BYTES`.

mod bitround;
mod blosc;
mod bytes;
mod bz2;
mod checksum;
mod chunk;
mod crc32c;
mod filters;
mod fletcher32;
mod gzip;
mod lz4;
mod lzma;
mod memory;
mod numbers;
mod packbits;
mod pcodec;
mod shuffle;
pub mod text;
mod transpose;
mod zlib;
mod zstd;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bedform_format::{BytesCodec, DataType, Serializer};

pub use chunk::ChunkCodec;
pub use zstd::{compress as compress_zstd, decompress as decompress_zstd};

/// Makes the codec of a configuration; `None` if it is another codec's.
type OpenBytesToBytes = fn(&BytesCodec) -> Option<Arc<dyn BytesToBytes>>;
type OpenArrayToBytes = fn(&Serializer, &ChunkOf<'_>) -> Option<Arc<dyn ArrayToBytes>>;

/// All codecs from bytes to bytes.
const BYTES_TO_BYTES: &[OpenBytesToBytes] = &[
    bitround::open,
    blosc::open,
    bz2::open,
    checksum::open,
    crc32c::open,
    filters::open,
    fletcher32::open,
    gzip::open,
    lz4::open,
    lzma::open,
    packbits::open,
    shuffle::open,
    zlib::open,
    zstd::open,
];

/// All codecs from elements to bytes.
const ARRAY_TO_BYTES: &[OpenArrayToBytes] = &[bytes::open, pcodec::open, text::open];

/// The reason why a chunk could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes do not match the stored checksum.
    #[error("{codec} checksum mismatch: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// The codec with the checksum.
        codec: &'static str,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The chunk decodes to another length than its array requires.
    #[error("{codec} data decode to {found} bytes, expected {expected}")]
    Length {
        /// The codec at fault.
        codec: &'static str,
        /// Length in bytes by the array's metadata.
        expected: usize,
        /// Decoded length in bytes, or a lower bound of it.
        found: usize,
    },
    /// No encoder of the codec writes such data.
    #[error("not valid {codec} data{detail}")]
    Invalid {
        /// The codec at fault.
        codec: &'static str,
        /// The codec's own message, with a leading colon; it may be empty.
        detail: String,
    },
    /// The system has no memory for the decoded data or for the codec's state.
    #[error("the system gives no memory for its {bytes} bytes")]
    Memory {
        /// Length of the elements in bytes.
        bytes: usize,
    },
    /// The codec does not support the operation.
    #[error("{0}")]
    Unsupported(String),
}

/// The result of encoding or decoding.
pub type Result<T> = std::result::Result<T, CodecError>;

/// Returns the error for encoding with a read-only codec.
fn only_read(name: &str) -> Result<()> {
    Err(CodecError::Unsupported(format!("writing the codec {name}")))
}

/// Memory of one text of a chunk, in bytes: a 64-bit number.
const TEXT_ITEM_BYTES: usize = 8;

/// The data type and shape of the chunks for which a codec from elements to bytes is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkOf<'a> {
    pub(crate) data_type: DataType,
    /// Shape in elements, in the stored axis order.
    pub(crate) shape: &'a [usize],
}

impl ChunkOf<'_> {
    /// Returns the length of the elements in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let item_size = self.data_type.item_size().unwrap_or(TEXT_ITEM_BYTES);
        self.shape.iter().fold(item_size, |size, length| size.saturating_mul(*length))
    }
}

/// The size of decoded data, as far as the metadata determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeBound {
    Exactly(usize),
    AtMost(usize),
}

/// A request to a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeRequest {
    /// The size of the decoded data.
    pub(crate) size: SizeBound,
    /// Set if the first bytes suffice; the decoder may return more, up to all.
    pub(crate) front: Option<Front>,
}

/// The required first bytes of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    /// Number of required bytes.
    pub(crate) bytes: usize,
    /// True if a checksum of the input was verified. Otherwise only a decoder that detects any
    /// damage after the front may stop early.
    pub(crate) is_checked: bool,
}

/// The location of decoded bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// In the output buffer.
    Output,
    /// The first bytes of the input, of this length. The output buffer is unchanged.
    Front(usize),
}

/// A codec from bytes to bytes, configured for one array. The module header has the contract.
pub(crate) trait BytesToBytes: fmt::Debug + Send + Sync {
    /// Decodes `input` into `output`, and replaces the content of `output`.
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<Decoded>;

    /// Encodes `input` into `output`, and replaces the content of `output`.
    fn encode(&self, input: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()>;

    /// Returns true if the codec only appends to the bytes; it then encodes by
    /// [`BytesToBytes::append`].
    fn appends(&self) -> bool {
        false
    }

    /// Encodes `bytes` in place.
    fn append(&self, bytes: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        let mut output = Vec::new();
        self.encode(bytes, &mut output, contexts)?;
        *bytes = output;
        Ok(())
    }

    /// Returns the encoded length of `decoded` bytes, if it does not depend on their values.
    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        let _ = decoded;
        None
    }

    /// Returns true if decoding detects every changed bit of the encoded bytes.
    fn checks(&self) -> bool {
        false
    }

    /// Returns true if the codec uses [`DecodeRequest::front`].
    fn decodes_fronts(&self) -> bool {
        false
    }
}

/// A codec from the elements of a chunk to bytes, made for one data type and chunk shape. The
/// module header has the contract. Decoded elements are in the stored axis order.
pub(crate) trait ArrayToBytes: fmt::Debug + Send + Sync {
    /// Returns true if the bytes are the elements, without encoding.
    fn is_identity(&self) -> bool {
        false
    }

    /// Returns the decoded size of a chunk that is stored in `encoded` bytes.
    fn decoded_length(&self, encoded: usize) -> SizeBound;

    /// Returns an upper bound on the encoded length of a chunk of `decoded` bytes.
    fn encoded_bytes_max(&self, decoded: usize) -> usize {
        decoded.saturating_mul(2).saturating_add(1 << 16)
    }

    /// Returns the length in bytes of the numbers to reverse in decoded elements; 1 if none.
    fn swap_size(&self) -> usize {
        1
    }

    /// Decodes `input` into `output`, and replaces the content of `output`.
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let _ = (wanted, contexts);
        output.clear();
        output.extend_from_slice(input);
        Ok(())
    }

    /// Encodes `elements` into `output`, and replaces the content of `output`.
    fn encode(&self, elements: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        let _ = contexts;
        output.clear();
        output.extend_from_slice(elements);
        Ok(())
    }

    /// Returns true if the codec uses [`DecodeRequest::front`] after a checksum was verified.
    fn decodes_fronts(&self) -> bool {
        false
    }
}

/// State that codecs keep between chunks in one thread: one value of each type.
#[derive(Default)]
pub(crate) struct Contexts(Vec<Box<dyn Any + Send>>);

impl Contexts {
    /// Returns the value of this type, made on first use.
    pub(crate) fn of<T: Any + Send + Default>(&mut self) -> &mut T {
        let at = match self.0.iter().position(|kept| kept.as_ref().is::<T>()) {
            Some(at) => at,
            None => {
                self.0.push(Box::new(T::default()));
                self.0.len() - 1
            }
        };
        match self.0[at].as_mut().downcast_mut() {
            Some(kept) => kept,
            None => unreachable!("found by its type"),
        }
    }
}

/// Buffers and contexts that one thread reuses for all chunks.
#[derive(Default)]
pub struct Scratch {
    front: Vec<u8>,
    back: Vec<u8>,
    contexts: Contexts,
}

impl Scratch {
    /// Decodes a Zstandard frame, which must decode to exactly `length` bytes.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decompress_zstd(&mut self, input: &[u8], length: usize) -> Result<&[u8]> {
        zstd::decompress_into(input, length, &mut self.front, &mut self.contexts)?;
        Ok(&self.front)
    }

    /// Returns the capacity of the buffers in bytes.
    pub fn bytes(&self) -> usize {
        self.front.capacity() + self.back.capacity()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Scratch")
            .field("front", &self.front.capacity())
            .field("back", &self.back.capacity())
            .finish_non_exhaustive()
    }
}

/// Makes the codec of a configuration.
fn bytes_to_bytes(codec: &BytesCodec) -> Arc<dyn BytesToBytes> {
    let found = BYTES_TO_BYTES.iter().find_map(|open| open(codec));
    found.unwrap_or_else(|| Arc::new(MissingCodec(format!("the codec {codec:?}"))))
}

/// Makes the codec of a configuration for these chunks.
fn array_to_bytes(serializer: &Serializer, chunk: &ChunkOf<'_>) -> Arc<dyn ArrayToBytes> {
    let found = ARRAY_TO_BYTES.iter().find_map(|open| open(serializer, chunk));
    let missing = || format!("the codec {serializer:?} of {} elements", chunk.data_type);
    found.unwrap_or_else(|| Arc::new(MissingCodec(missing())))
}

/// A codec that this build does not include.
#[derive(Debug)]
struct MissingCodec(String);

impl MissingCodec {
    fn refuse<T>(&self) -> Result<T> {
        Err(CodecError::Unsupported(self.0.clone()))
    }
}

impl BytesToBytes for MissingCodec {
    fn decode(
        &self,
        _: &[u8],
        _: DecodeRequest,
        _: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        self.refuse()
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }
}

impl ArrayToBytes for MissingCodec {
    fn decoded_length(&self, _: usize) -> SizeBound {
        SizeBound::AtMost(0)
    }

    fn decode(&self, _: &[u8], _: DecodeRequest, _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests;
