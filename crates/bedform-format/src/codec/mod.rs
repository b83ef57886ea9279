//! What a codec chain is, as documents name it. The engine's `codec` module does the work.
//!
//! This module knows names and configurations, and no codec library. `definitions` has every codec: a
//! new one is an entry there and a file of the engine.

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

/// How the elements of a chunk become bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecChain {
    /// The order in which the axes of the array are stored, slowest first; `None` as they are.
    pub transpose: Option<Vec<usize>>,
    /// How elements become bytes.
    pub serializer: Serializer,
    /// What is then done to the bytes, first to last when writing.
    pub bytes: Vec<BytesCodec>,
}

impl CodecChain {
    /// Elements as they are, in the machine's byte order.
    pub fn raw() -> Self {
        Self { transpose: None, serializer: Serializer::Bytes(Endian::NATIVE), bytes: Vec::new() }
    }

    /// True if every stored byte is an element's byte: part of a chunk can be read alone.
    pub fn is_raw(&self) -> bool {
        self.bytes.is_empty() && matches!(self.serializer, Serializer::Bytes(_))
    }

    /// True if a changed bit in the stored bytes is always noticed.
    pub fn is_checked(&self) -> bool {
        matches!(self.bytes.last(), Some(BytesCodec::Crc32c))
    }
}

#[cfg(test)]
mod tests;
