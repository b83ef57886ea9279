//! The codec chain for the chunks of one array.

use std::sync::Arc;

use bedform_format::{BytesCodec, CodecChain, DataType};

use super::transpose::stored_strides;
use super::{
    ArrayToBytes, BytesToBytes, ChunkOf, CodecError, DecodeRequest, Decoded, Front, Result,
    Scratch, SizeBound, TEXT_ITEM_BYTES, array_to_bytes, bytes_to_bytes,
};

/// The codecs of an array's chunks, set up once per array and chunk shape.
#[derive(Debug, Clone)]
pub struct ChunkCodec {
    chain: CodecChain,
    decoded_bytes: usize,
    strides: Vec<i64>,
    swap_size: usize,
    fixed: bool,
    array: Arc<dyn ArrayToBytes>,
    /// True if the serializer leaves elements unchanged.
    is_identity: bool,
    stages: Vec<CodecStage>,
    /// `Some` if the front of a chunk can be decoded alone: true if a checksum verifies the whole
    /// chunk.
    front: Option<bool>,
}

/// A codec from bytes to bytes, with its properties in this chain.
#[derive(Debug, Clone)]
struct CodecStage {
    codec: Arc<dyn BytesToBytes>,
    appends: bool,
    /// Size of the data that the encoder receives, if no codec is skipped.
    size: SizeBound,
}

impl ChunkCodec {
    /// Makes the codec for chunks of `chunk_shape` elements. The metadata parser has checked the
    /// shapes against the limits, so that sizes fit.
    pub fn new(chain: &CodecChain, data_type: DataType, chunk_shape: &[u64]) -> Self {
        let shape: Vec<usize> = chunk_shape
            .iter()
            .map(|length| usize::try_from(*length).unwrap_or(usize::MAX))
            .collect();
        let order = chain.transpose.as_deref();
        let item_size = data_type.item_size().unwrap_or(TEXT_ITEM_BYTES);
        let strides = stored_strides(&shape, order, item_size);
        let stored: Vec<usize> = match order {
            Some(order) => order.iter().filter_map(|axis| shape.get(*axis)).copied().collect(),
            None => shape,
        };
        let chunk = ChunkOf { data_type, shape: &stored };
        let decoded_bytes = chunk.bytes();
        let array = array_to_bytes(&chain.serializer, &chunk);
        let stages = chain.bytes.iter().map(|codec| {
            let codec = bytes_to_bytes(codec);
            CodecStage { appends: codec.appends(), codec, size: SizeBound::AtMost(0) }
        });
        let mut codec = Self {
            chain: chain.clone(),
            decoded_bytes,
            strides,
            swap_size: array.swap_size(),
            fixed: data_type.item_size().is_some(),
            is_identity: array.is_identity(),
            stages: stages.collect(),
            array,
            front: None,
        };
        codec.front = codec.front_rule();
        for index in 0..codec.stages.len() {
            codec.stages[index].size = codec.size_before(index, 0, 0);
        }
        codec
    }

    /// Returns the length of a decoded chunk in bytes.
    pub fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Returns the bytes of memory that decoding a chunk takes, in addition to the encoded and
    /// decoded bytes.
    pub fn scratch_bytes(&self) -> u64 {
        let chunk = self.largest_bytes() as u64;
        match self.stages.len() + usize::from(!self.is_identity) {
            0 => 0,
            1 => chunk,
            _ => chunk.saturating_mul(2),
        }
    }

    /// Returns for each axis of the array the distance in bytes between neighbouring elements of a
    /// decoded chunk.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Returns the length in bytes of the numbers to reverse in a decoded chunk; 1 if none.
    pub fn swap_size(&self) -> usize {
        self.swap_size
    }

    /// Returns the codec chain.
    pub fn chain(&self) -> &CodecChain {
        &self.chain
    }

    /// Returns true if stored bytes are elements and nothing else, so that parts can be read alone.
    pub fn is_raw(&self) -> bool {
        self.fixed && self.is_identity && self.stages.is_empty()
    }

    /// Returns true if stored bytes are elements followed by a CRC-32C.
    pub fn is_checksummed_raw(&self) -> bool {
        self.is_identity && matches!(self.chain.bytes.as_slice(), [BytesCodec::Crc32c])
    }

    /// Returns `Some` if the front of a chunk can be decoded while damage to the rest is still
    /// detected: true by a checksum of the whole chunk, false by the codec.
    fn front_rule(&self) -> Option<bool> {
        let (checksum, stages) = match self.stages.split_last() {
            Some((last, rest)) if last.codec.checks() => (true, rest),
            _ => (false, self.stages.as_slice()),
        };
        let decodes_fronts = match stages {
            [] => !self.is_identity && checksum && self.array.decodes_fronts(),
            [only] => self.is_identity && only.codec.decodes_fronts(),
            _ => false,
        };
        (self.fixed && decodes_fronts).then_some(checksum)
    }

    /// Returns an upper bound on the length of an encoded chunk in bytes, to refuse absurd extents.
    pub fn encoded_bytes_max(&self) -> u64 {
        // Every codec from bytes to bytes adds less than this to incompressible data.
        let least = (self.largest_bytes() as u64).saturating_mul(2).saturating_add(1 << 20);
        least.max(self.array.encoded_bytes_max(self.decoded_bytes) as u64)
    }

    /// Returns the largest length of a chunk between codecs of known lengths; filters may lengthen
    /// elements.
    fn largest_bytes(&self) -> usize {
        let mut largest = self.decoded_bytes;
        if self.is_identity {
            let mut length = Some(self.decoded_bytes);
            for stage in &self.stages {
                length = length.and_then(|length| stage.codec.encoded_length(length));
                largest = largest.max(length.unwrap_or(0));
            }
        }
        largest
    }

    /// Decodes `encoded` into exactly [`ChunkCodec::decoded_bytes`] bytes, in the stored axis order
    /// and byte order. `skip` has a bit set for each codec that the writer skipped for this chunk
    /// (HDF5's filter mask).
    ///
    /// # Errors
    /// [`CodecError`]; the result is then unusable.
    pub fn decode<'a>(
        &self,
        encoded: &'a [u8],
        skip: u32,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8]> {
        self.decode_front(encoded, skip, self.decoded_bytes, scratch)
    }

    /// As [`ChunkCodec::decode`], but needs only the first `needed` bytes. Decoding stops after
    /// them if damage to the rest is still detected: by a checksum of the encoded bytes, or block
    /// by block. The result has at least `needed` bytes.
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
        let front = self
            .front
            .filter(|_| skip == 0 && needed <= self.decoded_bytes / 4 * 3)
            .map(|is_checked| Front { bytes: needed, is_checked });
        let Scratch { front: first, back: second, contexts } = scratch;
        let mut place = StepBuffer::Input(encoded.len());
        for (index, stage) in self.stages.iter().enumerate().rev() {
            if is_skipped(skip, index) {
                continue;
            }
            let size = match skip {
                0 if self.fixed => stage.size,
                _ => self.size_before(index, skip, encoded.len()),
            };
            let front = front.filter(|_| index == 0 && self.is_identity);
            let wanted = DecodeRequest { size, front };
            let (input, output, next) = place.step(encoded, first, second);
            place = match stage.codec.decode(input, wanted, output, contexts)? {
                Decoded::Output => next,
                Decoded::Front(length) => place.shortened(length, first, second),
            };
        }
        if !self.is_identity {
            let size = match self.fixed {
                true => SizeBound::Exactly(self.decoded_bytes),
                false => self.array.decoded_length(encoded.len()),
            };
            let wanted = DecodeRequest { size, front };
            let (input, output, next) = place.step(encoded, first, second);
            self.array.decode(input, wanted, output, contexts)?;
            place = next;
        }
        let bytes: &[u8] = match place {
            StepBuffer::Input(length) => encoded.get(..length).unwrap_or_default(),
            StepBuffer::Front => first,
            StepBuffer::Back => second,
        };
        let is_enough = front.is_some() && bytes.len() >= needed;
        if self.fixed && bytes.len() != self.decoded_bytes && !is_enough {
            return Err(CodecError::Length {
                codec: "bytes",
                expected: self.decoded_bytes,
                found: bytes.len(),
            });
        }
        Ok(bytes)
    }

    /// Returns the size, or a bound on the size, of the data that the encoder of codec `index`
    /// received.
    fn size_before(&self, index: usize, skip: u32, encoded: usize) -> SizeBound {
        let SizeBound::Exactly(decoded) = self.array.decoded_length(encoded) else {
            return self.array.decoded_length(encoded);
        };
        let mut exact = self.is_identity.then_some(decoded);
        for (position, stage) in self.stages.iter().enumerate().take(index) {
            if !is_skipped(skip, position) {
                exact = exact.and_then(|length| stage.codec.encoded_length(length));
            }
        }
        let least = decoded.max(self.largest_bytes()).saturating_mul(2).saturating_add(1 << 16);
        let most = || SizeBound::AtMost(least.max(self.array.encoded_bytes_max(decoded)));
        exact.map_or_else(most, SizeBound::Exactly)
    }

    /// Encodes a chunk into `output`. The elements in `decoded` are in the stored axis order and
    /// byte order.
    ///
    /// # Errors
    /// [`CodecError::Unsupported`] for a codec that this build can only read, and for chunks of
    /// text that are too large and too repetitive for the reader's bound.
    pub fn encode(
        &self,
        decoded: &[u8],
        scratch: &mut Scratch,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        output.clear();
        let Scratch { front, back, contexts } = scratch;
        let mut started = !self.is_identity;
        if started {
            self.array.encode(decoded, front, contexts)?;
        }
        for stage in &self.stages {
            if stage.appends {
                if !started {
                    front.clear();
                    front.extend_from_slice(decoded);
                }
                stage.codec.append(front, contexts)?;
            } else {
                let input: &[u8] = if started { front } else { decoded };
                stage.codec.encode(input, back, contexts)?;
                std::mem::swap(front, back);
            }
            started = true;
        }
        if started {
            std::mem::swap(output, front);
        } else {
            output.extend_from_slice(decoded);
        }
        if !self.fixed
            && let SizeBound::AtMost(most) = self.array.decoded_length(output.len())
            && decoded.len() > most
        {
            return Err(CodecError::Unsupported(
                "the texts of one chunk are too large to be read back; choose smaller chunks"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// As [`ChunkCodec::encode`], for elements that the caller no longer needs. If the chain only
    /// appends checksums, the elements move to `output` without a copy, and the old memory of
    /// `output` moves to `decoded`.
    ///
    /// # Errors
    /// As [`ChunkCodec::encode`].
    pub fn encode_owned(
        &self,
        decoded: &mut Vec<u8>,
        scratch: &mut Scratch,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        if !self.is_identity || !self.stages.iter().all(|stage| stage.appends) {
            return self.encode(decoded, scratch, output);
        }
        std::mem::swap(decoded, output);
        for stage in &self.stages {
            stage.codec.append(output, &mut scratch.contexts)?;
        }
        Ok(())
    }
}

/// Returns true if the codec at `index` was skipped for a chunk.
fn is_skipped(skip: u32, index: usize) -> bool {
    index < 32 && skip & (1 << index) != 0
}

/// The location of the bytes after a decoding step.
#[derive(Debug, Clone, Copy)]
enum StepBuffer {
    /// The first bytes of the input.
    Input(usize),
    Front,
    Back,
}

impl StepBuffer {
    /// Returns the bytes at this location, a buffer for the decoded bytes, and the location of that
    /// buffer.
    fn step<'a>(
        self,
        encoded: &'a [u8],
        front: &'a mut Vec<u8>,
        back: &'a mut Vec<u8>,
    ) -> (&'a [u8], &'a mut Vec<u8>, Self) {
        match self {
            Self::Input(length) => (encoded.get(..length).unwrap_or_default(), front, Self::Front),
            Self::Front => (front, back, Self::Back),
            Self::Back => (back, front, Self::Front),
        }
    }

    /// Shortens the bytes to `length`.
    fn shortened(self, length: usize, front: &mut Vec<u8>, back: &mut Vec<u8>) -> Self {
        match self {
            Self::Input(_) => return Self::Input(length),
            Self::Front => front.truncate(length),
            Self::Back => back.truncate(length),
        }
        self
    }
}
