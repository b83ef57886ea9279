//! The configuration of a Blosc container.

use serde_json::{Value, json};

use crate::DataType;
use crate::fields::{Fields, MetadataError, invalid};

/// The settings of a Blosc container; only writers need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloscConfiguration {
    /// The compressor inside.
    pub compressor: BloscCompressor,
    /// Compression level, 0 to 9.
    pub level: u8,
    /// The filter before the compressor.
    pub shuffle: BloscShuffle,
    /// Length of an element in bytes, 1 to 255.
    pub type_size: u8,
    /// Length of a block in bytes; 0 lets Blosc choose.
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
    /// Each compressor with its name in metadata.
    pub const NAMES: [(Self, &'static str); 6] = [
        (Self::BloscLz, "blosclz"),
        (Self::Lz4, "lz4"),
        (Self::Lz4Hc, "lz4hc"),
        (Self::Zlib, "zlib"),
        (Self::Zstd, "zstd"),
        (Self::Snappy, "snappy"),
    ];

    /// Returns the name in metadata.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(compressor, _)| *compressor == self).map_or("", |(_, name)| name)
    }

    /// Returns the compressor with this name.
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

impl BloscShuffle {
    /// Returns the number of the filter in Blosc and numcodecs.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Byte => 1,
            Self::Bit => 2,
        }
    }
}

impl BloscConfiguration {
    /// Parses the configuration of Zarr v3 or v2.
    pub(crate) fn parse(
        fields: &Fields<'_, '_>,
        data_type: DataType,
    ) -> Result<Self, MetadataError> {
        let compressor = match fields.get("cname") {
            None => BloscCompressor::Lz4,
            Some(_) => BloscCompressor::parse(fields.text("cname")?)
                .ok_or_else(|| invalid(fields.at("cname"), "not a compressor of Blosc"))?,
        };
        let item_size = data_type.item_size().unwrap_or(1).clamp(1, 255) as i64;
        let shuffle = match fields.get("shuffle") {
            None => BloscShuffle::Byte,
            Some(Value::String(text)) if text == "noshuffle" => BloscShuffle::None,
            Some(Value::String(text)) if text == "shuffle" => BloscShuffle::Byte,
            Some(Value::String(text)) if text == "bitshuffle" => BloscShuffle::Bit,
            // Zarr v2: 0 none, 1 bytes, 2 bits, -1 bits for elements of one byte and bytes for
            // others.
            Some(value) => match (value.as_i64(), item_size) {
                (Some(0), _) => BloscShuffle::None,
                (Some(2), _) | (Some(-1), 1) => BloscShuffle::Bit,
                (Some(1 | -1), _) => BloscShuffle::Byte,
                _ => return Err(invalid(fields.at("shuffle"), "not a shuffle of Blosc")),
            },
        };
        Ok(Self {
            compressor,
            level: fields.number("clevel", 0..=9, Some(5))?,
            shuffle,
            type_size: fields.number("typesize", 1..=255, Some(item_size))?,
            block_size: fields.number("blocksize", 0..=i64::from(u32::MAX), Some(0))?,
        })
    }

    /// Returns the configuration of Zarr v3.
    pub(crate) fn write(&self) -> Value {
        json!({
            "cname": self.compressor.name(),
            "clevel": self.level,
            "shuffle": match self.shuffle {
                BloscShuffle::None => "noshuffle",
                BloscShuffle::Byte => "shuffle",
                BloscShuffle::Bit => "bitshuffle",
            },
            "typesize": self.type_size,
            "blocksize": self.block_size,
        })
    }
}
