//! Chunks to bytes and back: thin adapters over the codec libraries.
//!
//! Decoding takes the exact number of bytes that a chunk must give, and writes no byte more: the
//! size comes from the array's metadata, which were held against the limits, never from the encoded
//! data. Encoding and decoding keep their buffers in a [`Scratch`], one per thread.
//!
//! | module | codecs |
//! |---|---|
//! | `bytes` | crc32c, fletcher32, shuffle |
//! | `compress` | zstd, gzip, zlib |
//! | `blosc` | blosc |
//! | `text` | vlen-utf8 |

mod blosc;
mod bytes;
mod compress;
pub mod text;

use bedform_format::{BytesCodec, CodecChain, DataType, Endian, Serializer};

/// Why a chunk could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes do not match the checksum that is stored with them.
    #[error("{codec} checksum mismatch: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// The codec that keeps the checksum.
        codec: &'static str,
        /// As stored.
        expected: u32,
        /// Of the bytes.
        found: u32,
    },
    /// The chunk decodes to another number of bytes than it must.
    #[error("{codec} data decode to {found} bytes, expected {expected}")]
    Length {
        /// The codec at fault.
        codec: &'static str,
        /// What the array's metadata say.
        expected: usize,
        /// What the data gave, or would give at least.
        found: usize,
    },
    /// The data are not what the codec writes.
    #[error("not valid {codec} data{detail}")]
    Invalid {
        /// The codec at fault.
        codec: &'static str,
        /// What it says, with a leading colon, or nothing.
        detail: String,
    },
    /// The codec cannot do this.
    #[error("{0}")]
    Unsupported(String),
}

type Result<T> = std::result::Result<T, CodecError>;

/// Buffers and contexts that one thread uses again for chunk after chunk.
#[derive(Default)]
pub struct Scratch {
    front: Vec<u8>,
    back: Vec<u8>,
    zstd: compress::ZstdContexts,
}

impl Scratch {
    /// Bytes that the buffers take.
    pub(crate) fn bytes(&self) -> usize {
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

/// How the elements of one chunk shape become bytes, worked out once per array.
#[derive(Debug, Clone)]
pub struct ChunkCodec {
    chain: CodecChain,
    decoded_bytes: usize,
    strides: Vec<i64>,
    swap_size: usize,
    fixed: bool,
}

/// Bytes that the decoded blocks of a Zstandard frame are multiples of, as encoders cut them.
const BLOCK_UNIT: usize = 1 << 10;

impl ChunkCodec {
    /// The codec of chunks of `chunk_shape` elements. Shapes were held against the limits when the
    /// metadata were read, so sizes fit.
    pub fn new(chain: &CodecChain, data_type: DataType, chunk_shape: &[u64]) -> Self {
        // Text is held as the 64-bit number of each text.
        let item_size = data_type.item_size().unwrap_or(8);
        let shape: Vec<usize> = chunk_shape
            .iter()
            .map(|length| usize::try_from(*length).unwrap_or(usize::MAX))
            .collect();
        let decoded_bytes =
            shape.iter().fold(item_size, |size, length| size.saturating_mul(*length));
        let swap_size = match chain.serializer {
            Serializer::Bytes(endian) if endian != Endian::NATIVE => data_type.swap_size(),
            _ => 1,
        };
        let strides = stored_strides(&shape, chain.transpose.as_deref(), item_size);
        let fixed = data_type.item_size().is_some();
        Self { chain: chain.clone(), decoded_bytes, strides, swap_size, fixed }
    }

    /// Bytes of a decoded chunk.
    pub fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Bytes that decoding a chunk takes beside those that come and those that are wanted.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let chunk = self.decoded_bytes as u64;
        match self.chain.bytes.len() {
            0 => 0,
            1 => chunk,
            _ => chunk.saturating_mul(2),
        }
    }

    /// For each axis of the array, the bytes from an element of a decoded chunk to the next.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Bytes of the numbers to reverse in a decoded chunk; 1 if there are none.
    pub fn swap_size(&self) -> usize {
        self.swap_size
    }

    /// The chain that this codec runs.
    pub fn chain(&self) -> &CodecChain {
        &self.chain
    }

    /// True if stored bytes are elements and nothing else, so that parts can be read alone.
    pub fn is_raw(&self) -> bool {
        self.fixed && self.chain.is_raw()
    }

    /// True if the front of a chunk can be decoded alone without giving up that what is wrong with it is
    /// noticed: a checksum vouches for all of it, or there is none, and its frame is whole.
    fn can_stop(&self, encoded: &[u8]) -> bool {
        self.fixed
            && match self.chain.bytes.as_slice() {
                [BytesCodec::Zstd { .. }, BytesCodec::Crc32c] => true,
                [BytesCodec::Zstd { .. }] => compress::is_whole_frame(encoded, self.decoded_bytes),
                _ => false,
            }
    }

    /// True if a checksum of the encoded bytes vouches for them.
    fn is_checked(&self) -> bool {
        matches!(self.chain.bytes.last(), Some(BytesCodec::Crc32c))
    }

    /// An upper bound on the bytes that a chunk has when encoded, to refuse absurd extents.
    pub fn encoded_bytes_max(&self) -> u64 {
        // Every codec here adds less than this to what it cannot compress.
        (self.decoded_bytes as u64).saturating_mul(2).saturating_add(1 << 20)
    }

    /// Decodes `encoded` into exactly [`ChunkCodec::decoded_bytes`] bytes, in the order and byte
    /// order in which they were stored. `skip` has a bit set for each codec that this chunk was
    /// written without (HDF5's filter mask).
    ///
    /// # Errors
    /// [`CodecError`]; nothing is known of the data then.
    pub fn decode<'a>(
        &self,
        encoded: &'a [u8],
        skip: u32,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8]> {
        self.decode_front(encoded, skip, self.decoded_bytes, scratch)
    }

    /// As [`ChunkCodec::decode`], but only the first `needed` bytes count: no more are decoded where the
    /// codec can stop and a checksum of the encoded bytes vouches for the rest, or nothing would: then
    /// they are all there, at least. The result has at least `needed` bytes.
    ///
    /// # Errors
    /// As [`ChunkCodec::decode`].
    pub fn decode_front<'a>(
        &self,
        encoded: &'a [u8],
        skip: u32,
        needed: usize,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8]> {
        let whole = skip != 0 || needed > self.decoded_bytes / 4 * 3 || !self.can_stop(encoded);
        let needed = if whole { self.decoded_bytes } else { needed };
        let mut front = std::mem::take(&mut scratch.front);
        let mut back = std::mem::take(&mut scratch.back);
        let outcome =
            self.decode_chain(encoded, skip, needed, &mut front, &mut back, &mut scratch.zstd);
        scratch.front = front;
        scratch.back = back;
        let bytes = match outcome? {
            Place::Input(length) => encoded.get(..length).unwrap_or_default(),
            Place::Front => &scratch.front,
            Place::Back => &scratch.back,
        };
        if self.fixed && whole && bytes.len() != self.decoded_bytes {
            return Err(CodecError::Length {
                codec: "bytes",
                expected: self.decoded_bytes,
                found: bytes.len(),
            });
        }
        Ok(bytes)
    }

    fn decode_chain(
        &self,
        encoded: &[u8],
        skip: u32,
        needed: usize,
        front: &mut Vec<u8>,
        back: &mut Vec<u8>,
        zstd: &mut compress::ZstdContexts,
    ) -> Result<Place> {
        let mut place = Place::Input(encoded.len());
        for (index, codec) in self.chain.bytes.iter().enumerate().rev() {
            if index < 32 && skip & (1 << index) != 0 {
                continue;
            }
            let bound = self.size_before(index, skip, encoded.len());
            let (input, output, next): (&[u8], &mut Vec<u8>, Place) = match place {
                Place::Input(length) => {
                    (encoded.get(..length).unwrap_or_default(), &mut *front, Place::Front)
                }
                Place::Front => (&*front, &mut *back, Place::Back),
                Place::Back => (&*back, &mut *front, Place::Front),
            };
            place = match codec {
                BytesCodec::Crc32c | BytesCodec::Fletcher32 => {
                    let length = bytes::checked_length(*codec, input)?;
                    place.shortened(length, front, back)
                }
                BytesCodec::Shuffle { element_size } => {
                    bytes::unshuffle(input, *element_size as usize, output);
                    next
                }
                BytesCodec::Zstd { .. } => {
                    let mut is_there = false;
                    if needed < self.decoded_bytes {
                        zstd.decode_front(input, self.decoded_bytes, needed, output)?;
                        // Encoders cut blocks at round numbers: damage that makes one longer or shorter
                        // shows, as it does at the end of the whole.
                        is_there = self.is_checked() || output.len().is_multiple_of(BLOCK_UNIT);
                    }
                    if !is_there {
                        zstd.decode(input, bound, output)?;
                    }
                    next
                }
                BytesCodec::Gzip { .. } => {
                    compress::decode_gzip(input, bound, output)?;
                    next
                }
                BytesCodec::Zlib { .. } => {
                    compress::decode_zlib(input, bound, output)?;
                    next
                }
                BytesCodec::Blosc(_) => {
                    blosc::decode(input, bound, output)?;
                    next
                }
                other => return Err(CodecError::Unsupported(format!("the codec {other:?}"))),
            };
        }
        Ok(place)
    }

    /// What is known of the size of the data before codec `index` was applied in writing.
    fn size_before(&self, index: usize, skip: u32, encoded: usize) -> SizeBound {
        if !self.fixed {
            return SizeBound::AtMost(text_bytes_max(encoded));
        }
        let mut exact = self.decoded_bytes;
        for (position, codec) in self.chain.bytes.iter().enumerate().take(index) {
            if position < 32 && skip & (1 << position) != 0 {
                continue;
            }
            match codec {
                BytesCodec::Shuffle { .. } => {}
                BytesCodec::Crc32c | BytesCodec::Fletcher32 => exact += 4,
                _ => return SizeBound::AtMost(self.decoded_bytes.saturating_mul(2) + (1 << 16)),
            }
        }
        SizeBound::Exactly(exact)
    }

    /// Encodes a chunk whose elements lie in `decoded` in the order and byte order in which they
    /// are stored, into `output`.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for a codec that this build can only read, and for chunks of text
    /// so large and so repetitive that reading refuses them.
    pub fn encode(
        &self,
        decoded: &[u8],
        scratch: &mut Scratch,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        output.clear();
        let mut current = std::mem::take(&mut scratch.front);
        let mut started = false;
        for codec in &self.chain.bytes {
            let input: &[u8] = if started { &current } else { decoded };
            match codec {
                BytesCodec::Crc32c if started => bytes::append_crc32c(&mut current),
                BytesCodec::Crc32c => {
                    current.clear();
                    current.extend_from_slice(decoded);
                    bytes::append_crc32c(&mut current);
                    started = true;
                }
                codec => {
                    encode_one(*codec, input, &mut scratch.back, &mut scratch.zstd)?;
                    std::mem::swap(&mut current, &mut scratch.back);
                    started = true;
                }
            }
        }
        if started {
            std::mem::swap(output, &mut current);
        } else {
            output.extend_from_slice(decoded);
        }
        scratch.front = current;
        if !self.fixed && decoded.len() > text_bytes_max(output.len()) {
            return Err(CodecError::Unsupported(
                "the texts of one chunk are too large to be read back; choose smaller chunks"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// As [`ChunkCodec::encode`], for elements that are not needed afterwards: where nothing but a
    /// checksum is behind them they move to `output` without a copy, and its old memory to `decoded`.
    ///
    /// # Errors
    /// As [`ChunkCodec::encode`].
    pub fn encode_owned(
        &self,
        decoded: &mut Vec<u8>,
        scratch: &mut Scratch,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let checked = match self.chain.bytes.as_slice() {
            [] => false,
            [BytesCodec::Crc32c] => true,
            _ => return self.encode(decoded, scratch, output),
        };
        std::mem::swap(decoded, output);
        if checked {
            bytes::append_crc32c(output);
        }
        Ok(())
    }
}

/// The most bytes that a chunk of text may decode to: nothing but its encoded size says how many are
/// to be expected.
fn text_bytes_max(encoded: usize) -> usize {
    const ALWAYS: usize = 64 << 20;
    const MOST: usize = 2 << 30;
    encoded.saturating_mul(16).saturating_add(ALWAYS).min(MOST)
}

fn encode_one(
    codec: BytesCodec,
    input: &[u8],
    output: &mut Vec<u8>,
    zstd: &mut compress::ZstdContexts,
) -> Result<()> {
    match codec {
        BytesCodec::Zstd { level, checksum } => zstd.encode(input, level, checksum, output),
        BytesCodec::Gzip { level } => compress::encode_gzip(input, level, output),
        BytesCodec::Zlib { level } => compress::encode_zlib(input, level, output),
        BytesCodec::Blosc(configuration) => blosc::encode(input, &configuration, output),
        BytesCodec::Shuffle { element_size } => {
            bytes::shuffle(input, element_size as usize, output);
            Ok(())
        }
        other => Err(CodecError::Unsupported(format!("writing the codec {other:?}"))),
    }
}

/// What is known of the size of decoded data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeBound {
    Exactly(usize),
    AtMost(usize),
}

/// Where the bytes are after a step of decoding.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// The front of the input.
    Input(usize),
    Front,
    Back,
}

impl Place {
    /// The same place without what lies behind `length`.
    fn shortened(self, length: usize, front: &mut Vec<u8>, back: &mut Vec<u8>) -> Self {
        match self {
            Self::Input(_) => Self::Input(length),
            Self::Front => {
                front.truncate(length);
                self
            }
            Self::Back => {
                back.truncate(length);
                self
            }
        }
    }
}

/// Strides in bytes of the array's axes in a chunk that is stored with its axes in `order`.
fn stored_strides(shape: &[usize], order: Option<&[usize]>, item_size: usize) -> Vec<i64> {
    let mut strides = vec![0_i64; shape.len()];
    let mut stride = item_size;
    for position in (0..shape.len()).rev() {
        let axis = order.map_or(position, |order| order[position]);
        strides[axis] = i64::try_from(stride).unwrap_or(i64::MAX);
        stride = stride.saturating_mul(shape[axis]);
    }
    strides
}

#[cfg(test)]
mod tests;
