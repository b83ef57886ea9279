//! What a codec chain is, as metadata name it. The engine's `codec` module does the work.

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

/// How elements become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Serializer {
    /// Fixed-size elements one after another in this byte order.
    Bytes(Endian),
    /// UTF-8 text: a u32 count, then for each element a u32 length and its bytes.
    VlenUtf8,
}

/// A codec from bytes to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BytesCodec {
    /// Zstandard frames.
    Zstd {
        /// -131072 to 22.
        level: i32,
        /// Whether the frame ends with a checksum of its own.
        checksum: bool,
    },
    /// A gzip member.
    Gzip {
        /// 0 to 9.
        level: u32,
    },
    /// A zlib stream (HDF5's deflate, numcodecs' zlib).
    Zlib {
        /// 0 to 9.
        level: u32,
    },
    /// A Blosc 1 container.
    Blosc(BloscConfiguration),
    /// CRC-32C of the bytes, 4 bytes little-endian behind them.
    Crc32c,
    /// Byte shuffle of elements of this size (HDF5, numcodecs).
    Shuffle {
        /// Bytes of an element.
        element_size: u32,
    },
    /// HDF5's Fletcher-32, 4 bytes behind the data.
    Fletcher32,
}

/// The settings of a Blosc container; only writing needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloscConfiguration {
    /// The compressor inside.
    pub compressor: BloscCompressor,
    /// 0 to 9.
    pub level: u8,
    /// The filter before it.
    pub shuffle: BloscShuffle,
    /// Bytes of an element, 1 to 255.
    pub type_size: u8,
    /// Bytes of a block; 0 lets Blosc choose.
    pub block_size: u32,
}

/// A compressor inside Blosc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BloscCompressor {
    /// BloscLZ.
    BloscLz,
    /// LZ4.
    Lz4,
    /// LZ4 at high compression.
    Lz4Hc,
    /// Zlib.
    Zlib,
    /// Zstandard.
    Zstd,
    /// Snappy; this build cannot write or read it.
    Snappy,
}

impl BloscCompressor {
    /// (compressor, its name in metadata)
    pub const NAMES: [(Self, &'static str); 6] = [
        (Self::BloscLz, "blosclz"),
        (Self::Lz4, "lz4"),
        (Self::Lz4Hc, "lz4hc"),
        (Self::Zlib, "zlib"),
        (Self::Zstd, "zstd"),
        (Self::Snappy, "snappy"),
    ];

    /// The name in metadata.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(compressor, _)| *compressor == self).map_or("", |(_, name)| name)
    }

    /// The compressor with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(compressor, _)| *compressor)
    }
}

/// A filter inside Blosc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BloscShuffle {
    /// None.
    None,
    /// By bytes.
    Byte,
    /// By bits.
    Bit,
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
