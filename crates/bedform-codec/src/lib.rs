//! Chunks to bytes and back: thin adapters over the codec libraries.
//!
//! A chunk's elements go through one `ArrayToBytes` and then through any number of `BytesToBytes`;
//! decoding goes back. [`ChunkCodec`] runs the chain. `bedform_format::codec` reads and writes the names and
//! configurations of codecs; this crate encodes and decodes.
//!
//! Nothing here opens a file, starts a thread or reads a clock, so that every decoder can be fuzzed.
//!
//! **The contract of a codec.**
//!
//! 1. Encoded bytes are not trusted. A decoder returns exactly the bytes it is asked for, or at most that
//!    many, and writes none beyond. The number comes from the array's metadata, which were held against the
//!    limits. The output takes no more memory than that; a decoder's other memory is bounded by a
//!    constant, whatever its input claims. Bad input is an error, never a panic.
//! 2. An encoder adds at most as many bytes as it is given, and 64 KiB, or says so
//!    (`ArrayToBytes::encoded_bytes_max`): longer extents are refused before they are fetched.
//! 3. A codec is made once per array and shared by threads. State kept from chunk to chunk is a type in
//!    `Contexts`, of which each thread has one. Buffers belong to the caller and are reused: the chain
//!    allocates nothing per chunk.
//! 4. A chain makes one virtual call per codec and chunk. It reads a codec's properties when the array is
//!    opened.
//! 5. A decoder may stop early where the front of a chunk suffices (`Wanted::front`), if damage behind the
//!    front is still noticed: by a checksum that was verified, or by the decoder.
//!
//! To add a codec: its entry in `bedform_format::codec::definitions`, its file here, its line in
//! `BYTES_TO_BYTES` or `ARRAY_TO_BYTES`.

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

/// Makes the codec of a configuration; nothing for those of other codecs.
type OpenBytesToBytes = fn(&BytesCodec) -> Option<Arc<dyn BytesToBytes>>;
type OpenArrayToBytes = fn(&Serializer, &ChunkOf<'_>) -> Option<Arc<dyn ArrayToBytes>>;

/// The codecs from bytes to bytes.
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

/// The codecs from elements to bytes.
const ARRAY_TO_BYTES: &[OpenArrayToBytes] = &[bytes::open, pcodec::open, text::open];

/// Why a chunk could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes do not match the checksum that is stored with them.
    #[error("{codec} checksum mismatch: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// The codec that keeps the checksum.
        codec: &'static str,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The chunk does not decode to the number of bytes that its array asks for.
    #[error("{codec} data decode to {found} bytes, expected {expected}")]
    Length {
        /// The codec at fault.
        codec: &'static str,
        /// Bytes by the array's metadata.
        expected: usize,
        /// Bytes that the data decode to, or the least that they can decode to.
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
    /// The system gives no memory for the decoded data or for the codec's own state.
    #[error("the system gives no memory for its {bytes} bytes")]
    Memory {
        /// Bytes of the elements.
        bytes: usize,
    },
    /// The codec cannot do this.
    #[error("{0}")]
    Unsupported(String),
}

/// The result of encoding or decoding.
pub type Result<T> = std::result::Result<T, CodecError>;

/// Refuses to encode with a codec that is read and not written.
fn only_read(name: &str) -> Result<()> {
    Err(CodecError::Unsupported(format!("writing the codec {name}")))
}

/// Text is held as the 64-bit number of each text.
const TEXT_ITEM_BYTES: usize = 8;

/// The chunks that a codec from elements to bytes is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkOf<'a> {
    pub(crate) data_type: DataType,
    /// Elements along each axis, as they are stored.
    pub(crate) shape: &'a [usize],
}

impl ChunkOf<'_> {
    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> usize {
        let item_size = self.data_type.item_size().unwrap_or(TEXT_ITEM_BYTES);
        self.shape.iter().fold(item_size, |size, length| size.saturating_mul(*length))
    }
}

/// The size of decoded data, as far as metadata say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeBound {
    Exactly(usize),
    AtMost(usize),
}

/// A request to a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The size of the decoded data.
    pub(crate) size: SizeBound,
    /// Set if the first bytes suffice; the decoder may return more, up to all.
    pub(crate) front: Option<Front>,
}

/// The front of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    /// Bytes that are needed.
    pub(crate) bytes: usize,
    /// True if a checksum of the input was verified. Without one, only a decoder that notices any damage
    /// behind the front may stop.
    pub(crate) is_checked: bool,
}

/// Where decoded bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// In the output.
    Output,
    /// They are the first so many bytes of the input. The output is as it was.
    Front(usize),
}

/// A codec from bytes to bytes, as one array has configured it. The module has the contract.
pub(crate) trait BytesToBytes: fmt::Debug + Send + Sync {
    /// Decodes `input` into `output`, replacing its content.
    fn decode(
        &self,
        input: &[u8],
        wanted: Wanted,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<Decoded>;

    /// Encodes `input` into `output`, replacing its content.
    fn encode(&self, input: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()>;

    /// True for a codec that appends to the bytes and changes none: it encodes by
    /// [`BytesToBytes::append`].
    fn appends(&self) -> bool {
        false
    }

    /// Encodes `bytes` where they are.
    fn append(&self, bytes: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        let mut output = Vec::new();
        self.encode(bytes, &mut output, contexts)?;
        *bytes = output;
        Ok(())
    }

    /// The encoded length of `decoded` bytes, if it does not depend on their values.
    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        let _ = decoded;
        None
    }

    /// True if decoding notices every changed bit of the encoded bytes.
    fn checks(&self) -> bool {
        false
    }

    /// True if [`Wanted::front`] makes a difference.
    fn decodes_fronts(&self) -> bool {
        false
    }
}

/// A codec from the elements of a chunk to bytes, made for a data type and a chunk shape. The module has
/// the contract. Decoded elements lie in the order of axes in which they are stored.
pub(crate) trait ArrayToBytes: fmt::Debug + Send + Sync {
    /// True if the bytes are the elements: they are neither encoded nor decoded.
    fn is_identity(&self) -> bool {
        false
    }

    /// The decoded size of a chunk that is stored in `encoded` bytes.
    fn decoded_length(&self, encoded: usize) -> SizeBound;

    /// An upper bound on the encoded length of a chunk of `decoded` bytes.
    fn encoded_bytes_max(&self, decoded: usize) -> usize {
        decoded.saturating_mul(2).saturating_add(1 << 16)
    }

    /// Bytes of the numbers to reverse in decoded elements; 1 if there are none.
    fn swap_size(&self) -> usize {
        1
    }

    /// Decodes `input` into `output`, replacing its content.
    fn decode(
        &self,
        input: &[u8],
        wanted: Wanted,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let _ = (wanted, contexts);
        output.clear();
        output.extend_from_slice(input);
        Ok(())
    }

    /// Encodes `elements` into `output`, replacing its content.
    fn encode(&self, elements: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        let _ = contexts;
        output.clear();
        output.extend_from_slice(elements);
        Ok(())
    }

    /// True if [`Wanted::front`] makes a difference where a checksum was verified.
    fn decodes_fronts(&self) -> bool {
        false
    }
}

/// State that codecs keep from chunk to chunk in one thread: one value of each type.
#[derive(Default)]
pub(crate) struct Contexts(Vec<Box<dyn Any + Send>>);

impl Contexts {
    /// The value of this type, made where there is none.
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

/// Buffers and contexts that one thread uses again for chunk after chunk.
#[derive(Default)]
pub struct Scratch {
    front: Vec<u8>,
    back: Vec<u8>,
    contexts: Contexts,
}

impl Scratch {
    /// Decodes a frame of Zstandard, which must have exactly `length` bytes.
    ///
    /// # Errors
    /// [`CodecError`].
    pub fn decompress_zstd(&mut self, input: &[u8], length: usize) -> Result<&[u8]> {
        zstd::decompress_into(input, length, &mut self.front, &mut self.contexts)?;
        Ok(&self.front)
    }

    /// Bytes that the buffers take.
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

/// The codec of a configuration.
fn bytes_to_bytes(codec: &BytesCodec) -> Arc<dyn BytesToBytes> {
    let found = BYTES_TO_BYTES.iter().find_map(|open| open(codec));
    found.unwrap_or_else(|| Arc::new(Missing(format!("the codec {codec:?}"))))
}

/// The codec of a configuration for such chunks.
fn array_to_bytes(serializer: &Serializer, chunk: &ChunkOf<'_>) -> Arc<dyn ArrayToBytes> {
    let found = ARRAY_TO_BYTES.iter().find_map(|open| open(serializer, chunk));
    let missing = || format!("the codec {serializer:?} of {} elements", chunk.data_type);
    found.unwrap_or_else(|| Arc::new(Missing(missing())))
}

/// A codec that this build has no code for.
#[derive(Debug)]
struct Missing(String);

impl Missing {
    fn refuse<T>(&self) -> Result<T> {
        Err(CodecError::Unsupported(self.0.clone()))
    }
}

impl BytesToBytes for Missing {
    fn decode(&self, _: &[u8], _: Wanted, _: &mut Vec<u8>, _: &mut Contexts) -> Result<Decoded> {
        self.refuse()
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }
}

impl ArrayToBytes for Missing {
    fn decoded_length(&self, _: usize) -> SizeBound {
        SizeBound::AtMost(0)
    }

    fn decode(&self, _: &[u8], _: Wanted, _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        self.refuse()
    }
}

#[cfg(test)]
mod tests;
