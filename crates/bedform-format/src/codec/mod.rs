//! Codec chains: their structure, and their names and configurations in documents. The engine's
//! `codec` module implements them.
//!
//! This module uses no codec library. `definitions` lists every codec; a new one needs an entry
//! there and a file of the engine.

mod blosc;
pub(crate) mod definitions;
pub(crate) mod filters;
mod numcodecs;

pub use blosc::{BloscCompressor, BloscConfiguration, BloscShuffle};
pub use definitions::{
    BytesCodec, ChecksumKind, PcodecConfiguration, PcodecDelta, PcodecMode, Serializer,
    is_serializer,
};
pub use filters::{Real, StoredNumber};

use crate::Endian;

/// The codecs between the elements of a chunk and its stored bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecChain {
    /// Storage order of the array's axes, slowest first; `None` for the order of the array.
    pub transpose: Option<Vec<usize>>,
    /// The encoding of elements as bytes.
    pub serializer: Serializer,
    /// The codecs from bytes to bytes, in the order in which a writer applies them.
    pub bytes: Vec<BytesCodec>,
}

impl CodecChain {
    /// Returns the chain that stores elements unchanged, in the machine's byte order.
    pub fn raw() -> Self {
        Self { transpose: None, serializer: Serializer::Bytes(Endian::NATIVE), bytes: Vec::new() }
    }

    /// Returns true if stored bytes are the elements' bytes, so that a part of a chunk can be read.
    pub fn is_raw(&self) -> bool {
        self.bytes.is_empty() && matches!(self.serializer, Serializer::Bytes(_))
    }

    /// Returns true if the chain detects every changed bit of the stored bytes.
    pub fn is_checked(&self) -> bool {
        matches!(self.bytes.last(), Some(BytesCodec::Crc32c))
    }
}

#[cfg(test)]
mod tests;
