//! The definition of every codec: its names and configuration in Zarr v3, Zarr v2 and chunk maps.
//!
//! Filters, which map elements to elements, are in `filters`; further numcodecs codecs are in
//! `numcodecs`.
//!
//! To add a codec from bytes to bytes, add a variant of [`BytesCodec`], a [`Definition`], and its
//! line in [`BYTES_CODECS`]. If foreign files use it, add a variant of [`ChunkMapCodec`]. A codec
//! from elements to bytes needs the same with [`Serializer`] and [`SERIALIZERS`]. The
//! implementation of a codec is a file of the engine.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::filters::{FILTERS, Real, StoredNumber};
use super::numcodecs::{ADLER32, BZ2, CHECKSUM_32C, CRC32, LZ4, LZMA};
use super::{BloscCompressor, BloscConfiguration, BloscShuffle};
use crate::fields::{MetadataError, Named, invalid, unsupported};
use crate::{DataType, Endian};

type Result<T> = std::result::Result<T, MetadataError>;

/// The encoding of elements as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Serializer {
    /// Fixed-size elements, concatenated, in this byte order.
    Bytes(Endian),
    /// UTF-8 text: a u32 count, then for each element a u32 length in bytes and the text.
    VlenUtf8,
    /// A standalone Pco file of the elements (numcodecs' pcodec).
    Pcodec(PcodecConfiguration),
}

/// A codec from bytes to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BytesCodec {
    /// Zstandard frames.
    Zstd {
        /// -131072 to 22.
        level: i32,
        /// True if the frame ends with a checksum.
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
    /// The bytes, followed by their CRC-32C (4 bytes, little-endian).
    Crc32c,
    /// Byte shuffle of elements of this size (HDF5, numcodecs).
    Shuffle {
        /// Length of an element in bytes.
        element_size: u32,
    },
    /// The bytes, followed by HDF5's Fletcher-32 (4 bytes).
    Fletcher32,
    /// A numcodecs checksum, 4 bytes little-endian.
    Checksum {
        /// The checksum algorithm.
        kind: ChecksumKind,
        /// True if the checksum precedes the data.
        is_first: bool,
    },
    /// numcodecs' LZ4: the decoded length (u32, little-endian), then a block.
    Lz4,
    /// A bzip2 stream.
    Bz2,
    /// An LZMA stream, in the xz format or the older .lzma format.
    Lzma {
        /// True for the older format.
        is_alone: bool,
    },
    /// Differences between neighbouring elements (numcodecs).
    Delta {
        /// Type of the elements.
        decoded: StoredNumber,
        /// Type of the stored differences.
        encoded: StoredNumber,
    },
    /// `(element - offset) * scale`, rounded (numcodecs).
    FixedScaleOffset {
        /// Type of the elements.
        decoded: StoredNumber,
        /// Type of the stored numbers.
        encoded: StoredNumber,
        /// The factor.
        scale: Real,
        /// The number that is subtracted.
        offset: Real,
    },
    /// Elements rounded to decimal digits, stored as another type (numcodecs).
    Quantize {
        /// Type of the elements.
        decoded: StoredNumber,
        /// Type of the stored numbers.
        encoded: StoredNumber,
        /// Digits after the decimal point.
        digits: u32,
    },
    /// Elements stored as another type (numcodecs).
    AsType {
        /// Type of the elements.
        decoded: StoredNumber,
        /// Type of the stored numbers.
        encoded: StoredNumber,
    },
    /// Floats whose last mantissa bits are zero (numcodecs).
    BitRound {
        /// Number of mantissa bits that are kept.
        keep_bits: u32,
    },
    /// Booleans, eight to a byte, after a byte with the number of padding bits (numcodecs).
    PackBits,
}

/// The algorithm of a numcodecs checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksumKind {
    /// CRC-32, as in zlib.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// Adler-32, as in zlib.
    Adler32,
}

impl BytesCodec {
    /// Returns the types of decoded and encoded elements, for filters that have both.
    pub(crate) fn types(&self) -> Option<(StoredNumber, StoredNumber)> {
        match *self {
            Self::Delta { decoded, encoded }
            | Self::FixedScaleOffset { decoded, encoded, .. }
            | Self::Quantize { decoded, encoded, .. }
            | Self::AsType { decoded, encoded } => Some((decoded, encoded)),
            _ => None,
        }
    }

    /// Returns true for a codec from elements to elements; Zarr v3 documents list these before the
    /// serializer.
    pub fn is_filter(&self) -> bool {
        self.types().is_some() || matches!(self, Self::BitRound { .. } | Self::PackBits)
    }

    /// Returns true for a codec that can be read but not used for new arrays.
    pub fn is_only_read(&self) -> bool {
        self.is_filter()
            || matches!(
                self,
                Self::Fletcher32
                    | Self::Checksum { .. }
                    | Self::Lz4
                    | Self::Bz2
                    | Self::Lzma { .. }
            )
    }
}

/// All codecs from bytes to bytes.
pub(crate) const BYTES_CODECS: &[Definition<BytesCodec>] = &[
    ZSTD,
    GZIP,
    ZLIB,
    BLOSC,
    CRC32C,
    CHECKSUM_32C,
    SHUFFLE,
    FLETCHER32,
    CRC32,
    ADLER32,
    LZ4,
    BZ2,
    LZMA,
];

/// All codecs from elements to bytes.
pub(crate) const SERIALIZERS: &[Definition<Serializer>] = &[BYTES, VLEN_UTF8, PCODEC];

/// The names of a codec in documents, with its parser and writer.
pub(crate) struct Definition<C> {
    /// The name that is written to Zarr v3 documents.
    pub(super) name: &'static str,
    /// All names that are accepted in Zarr v3 documents.
    pub(super) v3: &'static [&'static str],
    /// The numcodecs id in Zarr v2 documents.
    pub(super) v2: Option<&'static str>,
    /// Parses a configuration.
    pub(super) parse: fn(&Named<'_>, &Context<'_>) -> Result<C>,
    /// Returns the configuration for Zarr v3, null for none; `None` if this is another codec.
    pub(super) write: fn(&C, DataType) -> Option<Value>,
}

/// The array whose codecs are parsed, and the position of the codec.
pub(crate) struct Context<'a> {
    /// The path of the codec in its document.
    pub(crate) at: &'a str,
    pub(crate) data_type: DataType,
    /// The byte order of the elements, if the data type defines it.
    pub(crate) endian: Option<Endian>,
    /// 2 or 3.
    pub(crate) zarr_format: u8,
}

/// Parses a codec of a Zarr v3 or v2 document; `None` if `definitions` lacks it.
pub(crate) fn parse<C>(
    definitions: &[Definition<C>],
    named: &Named<'_>,
    context: &Context<'_>,
) -> Result<Option<C>> {
    let is_named = |definition: &&Definition<C>| match context.zarr_format {
        2 => definition.v2 == Some(named.name),
        _ => definition.v3.contains(&named.name),
    };
    definitions
        .iter()
        .find(is_named)
        .map(|definition| (definition.parse)(named, context))
        .transpose()
}

/// Returns a codec in its Zarr v3 form.
pub(crate) fn write<C>(definitions: &[Definition<C>], codec: &C, data_type: DataType) -> Value {
    let written = definitions.iter().find_map(|definition| {
        (definition.write)(codec, data_type).map(|configuration| (definition.name, configuration))
    });
    match written {
        Some((name, Value::Null)) => json!({"name": name}),
        Some((name, configuration)) => json!({"name": name, "configuration": configuration}),
        // A test checks that every codec has a definition.
        None => Value::Null,
    }
}

/// Returns a filter, or a codec from bytes to bytes, in its Zarr v3 form.
pub(crate) fn write_bytes_codec(codec: &BytesCodec, data_type: DataType) -> Value {
    write(if codec.is_filter() { FILTERS } else { BYTES_CODECS }, codec, data_type)
}

/// Returns a codec from bytes to bytes as numcodecs configures it, for Zarr v2; null for one that
/// numcodecs lacks.
pub(crate) fn write_numcodec(codec: &BytesCodec, data_type: DataType) -> Value {
    let written = BYTES_CODECS.iter().find_map(|definition| {
        let (id, configuration) = (definition.v2?, (definition.write)(codec, data_type)?);
        let mut numcodec = json!({"id": id});
        for (key, value) in configuration.as_object()? {
            numcodec[key] = value.clone();
        }
        Some(numcodec)
    });
    let mut numcodec = written.unwrap_or_default();
    if let (BytesCodec::Blosc(blosc), Value::Object(fields)) = (codec, &mut numcodec) {
        fields.insert("shuffle".to_owned(), json!(blosc.shuffle.number()));
        // The container itself has it; older numcodecs refuse the key.
        fields.remove("typesize");
    }
    numcodec
}

/// Returns true for the Zarr v3 name of a filter.
pub(crate) fn is_filter_name(name: &str) -> bool {
    FILTERS.iter().any(|definition| definition.v3.contains(&name))
}

/// Returns true for the Zarr v3 name of a codec from elements to bytes.
///
/// ```
/// assert!(bedform_format::codec::is_serializer("pcodec"));
/// assert!(!bedform_format::codec::is_serializer("zstd"));
/// ```
pub fn is_serializer(name: &str) -> bool {
    SERIALIZERS.iter().any(|definition| definition.v3.contains(&name))
}

const ZSTD: Definition<BytesCodec> = Definition {
    name: "zstd",
    v3: &["zstd", "numcodecs.zstd"],
    v2: Some("zstd"),
    parse: |named, _| {
        let fields = named.fields()?;
        Ok(BytesCodec::Zstd {
            level: fields.number("level", -131_072..=22, Some(0))?,
            checksum: fields.boolean("checksum", false)?,
        })
    },
    write: |codec, _| match codec {
        BytesCodec::Zstd { level, checksum } => Some(json!({"level": level, "checksum": checksum})),
        _ => None,
    },
};

const GZIP: Definition<BytesCodec> = Definition {
    name: "gzip",
    v3: &["gzip", "numcodecs.gzip"],
    v2: Some("gzip"),
    parse: |named, context| Ok(BytesCodec::Gzip { level: deflate_level(named, context, 5)? }),
    write: |codec, _| match codec {
        BytesCodec::Gzip { level } => Some(json!({"level": level})),
        _ => None,
    },
};

const ZLIB: Definition<BytesCodec> = Definition {
    name: "numcodecs.zlib",
    v3: &["zlib", "numcodecs.zlib"],
    v2: Some("zlib"),
    parse: |named, context| Ok(BytesCodec::Zlib { level: deflate_level(named, context, 1)? }),
    write: |codec, _| match codec {
        BytesCodec::Zlib { level } => Some(json!({"level": level})),
        _ => None,
    },
};

/// Parses the level of gzip or zlib. In Zarr v2, -1 stands for the library's default; readers
/// ignore the level.
fn deflate_level(named: &Named<'_>, context: &Context<'_>, default: i64) -> Result<u32> {
    let least = if context.zarr_format == 2 { -1 } else { 0 };
    let level: i32 = named.fields()?.number("level", least..=9, Some(default))?;
    Ok(level.max(0).unsigned_abs())
}

const BLOSC: Definition<BytesCodec> = Definition {
    name: "blosc",
    v3: &["blosc", "numcodecs.blosc"],
    v2: Some("blosc"),
    parse: |named, context| {
        let configuration = BloscConfiguration::parse(&named.fields()?, context.data_type)?;
        Ok(BytesCodec::Blosc(configuration))
    },
    write: |codec, _| match codec {
        BytesCodec::Blosc(configuration) => Some(configuration.write()),
        _ => None,
    },
};

const CRC32C: Definition<BytesCodec> = Definition {
    name: "crc32c",
    v3: &["crc32c"],
    v2: None,
    parse: |named, _| named.fields().map(|_| BytesCodec::Crc32c),
    write: |codec, _| (*codec == BytesCodec::Crc32c).then_some(Value::Null),
};

const SHUFFLE: Definition<BytesCodec> = Definition {
    name: "numcodecs.shuffle",
    v3: &["numcodecs.shuffle"],
    v2: Some("shuffle"),
    parse: |named, context| {
        let bytes = 1..=i64::from(u16::MAX);
        let item_size = || context.data_type.item_size().and_then(|size| i64::try_from(size).ok());
        let usual = if context.zarr_format == 2 { None } else { item_size() };
        let fields = named.fields()?;
        let element_size = match fields.get("elementsize") {
            Some(Value::Null) | None => usual.unwrap_or(4).try_into().unwrap_or(1),
            Some(_) => fields.number("elementsize", bytes, None)?,
        };
        Ok(BytesCodec::Shuffle { element_size })
    },
    write: |codec, _| match codec {
        BytesCodec::Shuffle { element_size } => Some(json!({"elementsize": element_size})),
        _ => None,
    },
};

const FLETCHER32: Definition<BytesCodec> = Definition {
    name: "numcodecs.fletcher32",
    v3: &["numcodecs.fletcher32"],
    v2: Some("fletcher32"),
    parse: |named, _| named.fields().map(|_| BytesCodec::Fletcher32),
    write: |codec, _| (*codec == BytesCodec::Fletcher32).then(|| json!({})),
};

const BYTES: Definition<Serializer> = Definition {
    name: "bytes",
    v3: &["bytes"],
    v2: None,
    parse: |named, context| {
        if context.data_type == DataType::String {
            return Err(invalid(&named.path, "text needs the codec 'vlen-utf8'"));
        }
        let fields = named.fields()?;
        match fields.get("endian").map(|value| value.as_str()) {
            Some(Some("little")) => Ok(Serializer::Bytes(Endian::Little)),
            Some(Some("big")) => Ok(Serializer::Bytes(Endian::Big)),
            None if context.data_type.swap_size() == 1 => Ok(Serializer::Bytes(Endian::NATIVE)),
            _ => Err(invalid(fields.at("endian"), "expected 'little' or 'big'")),
        }
    },
    write: |serializer, data_type| match serializer {
        Serializer::Bytes(_) if data_type.swap_size() == 1 => Some(Value::Null),
        Serializer::Bytes(Endian::Little) => Some(json!({"endian": "little"})),
        Serializer::Bytes(Endian::Big) => Some(json!({"endian": "big"})),
        _ => None,
    },
};

const VLEN_UTF8: Definition<Serializer> = Definition {
    name: "vlen-utf8",
    v3: &["vlen-utf8"],
    v2: Some("vlen-utf8"),
    parse: |named, context| match context.data_type {
        // For Zarr v2 a later check reports the filter that does not fit the data type.
        DataType::String => Ok(Serializer::VlenUtf8),
        _ if context.zarr_format == 2 => Ok(Serializer::VlenUtf8),
        _ => Err(unsupported(context.at, format!("the codec {:?}", named.name))),
    },
    write: |serializer, _| (*serializer == Serializer::VlenUtf8).then_some(Value::Null),
};

/// The settings of Pco; only writers need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcodecConfiguration {
    /// Compression level, 0 to 12.
    pub level: u8,
    /// Detection of structure in the numbers.
    pub mode: PcodecMode,
    /// Delta encoding.
    pub delta: PcodecDelta,
    /// Largest number of elements in a page, 64 to 2^24.
    pub page_elements: u32,
}

/// Pco's detection of structure, such as multiples of 0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcodecMode {
    /// Chosen from a sample of the numbers.
    Auto,
    /// No detection.
    Classic,
}

/// Pco's delta encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcodecDelta {
    /// Chosen from a sample of the numbers.
    Auto,
    /// No delta encoding.
    None,
    /// Differences between neighbours, of order 0 to 7.
    Consecutive(u8),
    /// Differences from an earlier number, found as LZ77 finds matches.
    Lookback,
}

/// Elements per page: the default of numcodecs.
const PCODEC_PAGE_ELEMENTS: i64 = 1 << 18;
/// Smaller pages cost the decoder more memory than they hold data.
const PCODEC_PAGE_ELEMENTS_MIN: i64 = 64;
const PCODEC_PAGE_ELEMENTS_MAX: i64 = 1 << 24;

const PCODEC: Definition<Serializer> = Definition {
    name: "numcodecs.pcodec",
    v3: &["numcodecs.pcodec", "pcodec"],
    v2: Some("pcodec"),
    parse: |named, context| PcodecConfiguration::parse(named, context).map(Serializer::Pcodec),
    write: |serializer, _| match serializer {
        Serializer::Pcodec(configuration) => Some(configuration.write()),
        _ => None,
    },
};

impl PcodecConfiguration {
    /// Returns true for integers and floats of 16, 32 and 64 bits.
    pub fn takes(data_type: DataType) -> bool {
        use DataType::{Float16, Float32, Float64, Int16, Int32, Int64, UInt16, UInt32, UInt64};
        matches!(
            data_type,
            Int16 | Int32 | Int64 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64
        )
    }

    fn parse(named: &Named<'_>, context: &Context<'_>) -> Result<Self> {
        if !Self::takes(context.data_type) {
            let problem = format!(
                "{:?} takes integers and floats of 16, 32 and 64 bits, not {}",
                named.name, context.data_type
            );
            return Err(invalid(context.at, problem));
        }
        if context.endian == Some(Endian::Big) {
            let feature = format!("{:?} of big-endian elements", named.name);
            return Err(unsupported(context.at, feature));
        }
        let fields = named.fields()?;
        let choice = |key: &str, default| match fields.get(key) {
            None => Ok(default),
            Some(_) => fields.text(key),
        };
        let unknown = |key: &str| invalid(fields.at(key), "not a choice of pcodec");
        let mode = match choice("mode_spec", "auto")? {
            "auto" => PcodecMode::Auto,
            "classic" => PcodecMode::Classic,
            _ => return Err(unknown("mode_spec")),
        };
        if choice("paging_spec", "equal_pages_up_to")? != "equal_pages_up_to" {
            return Err(unknown("paging_spec"));
        }
        let order = match fields.get("delta_encoding_order") {
            None | Some(Value::Null) => None,
            Some(_) => Some(fields.number("delta_encoding_order", 0..=7, None)?),
        };
        let delta = match (choice("delta_spec", "auto")?, order) {
            ("auto", None) => PcodecDelta::Auto,
            ("none", None) => PcodecDelta::None,
            ("try_lookback", None) => PcodecDelta::Lookback,
            ("auto" | "try_consecutive", Some(order)) => PcodecDelta::Consecutive(order),
            ("none" | "try_lookback", Some(_)) | ("try_consecutive", None) => {
                let problem = "given with 'try_consecutive', and with nothing else";
                return Err(invalid(fields.at("delta_encoding_order"), problem));
            }
            _ => return Err(unknown("delta_spec")),
        };
        let elements = PCODEC_PAGE_ELEMENTS_MIN..=PCODEC_PAGE_ELEMENTS_MAX;
        Ok(Self {
            level: fields.number("level", 0..=12, Some(8))?,
            mode,
            delta,
            page_elements: fields.number(
                "equal_pages_up_to",
                elements,
                Some(PCODEC_PAGE_ELEMENTS),
            )?,
        })
    }

    fn write(&self) -> Value {
        let (delta, order) = match self.delta {
            PcodecDelta::Auto => ("auto", None),
            PcodecDelta::None => ("none", None),
            PcodecDelta::Consecutive(order) => ("try_consecutive", Some(order)),
            PcodecDelta::Lookback => ("try_lookback", None),
        };
        json!({
            "level": self.level,
            "mode_spec": match self.mode {
                PcodecMode::Auto => "auto",
                PcodecMode::Classic => "classic",
            },
            "delta_spec": delta,
            "paging_spec": "equal_pages_up_to",
            "delta_encoding_order": order,
            "equal_pages_up_to": self.page_elements,
        })
    }
}

/// A filter of a foreign file, in the form of a chunk map's description.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ChunkMapCodec {
    Zlib { level: u32 },
    Zstd { level: i32 },
    Shuffle { element_size: u32 },
    Fletcher32,
    Blosc { compressor: String, level: u8, shuffle: u8, type_size: u8, block_size: u32 },
}

impl ChunkMapCodec {
    /// Returns the chunk map form of `codec`; `None` for codecs that foreign files do not use.
    pub(crate) fn of(codec: &BytesCodec) -> Option<Self> {
        Some(match *codec {
            BytesCodec::Zlib { level } => Self::Zlib { level },
            BytesCodec::Zstd { level, checksum: false } => Self::Zstd { level },
            BytesCodec::Shuffle { element_size } => Self::Shuffle { element_size },
            BytesCodec::Fletcher32 => Self::Fletcher32,
            BytesCodec::Blosc(blosc) => Self::Blosc {
                compressor: blosc.compressor.name().to_owned(),
                level: blosc.level,
                shuffle: blosc.shuffle.number(),
                type_size: blosc.type_size,
                block_size: blosc.block_size,
            },
            _ => return None,
        })
    }

    /// Returns the codec.
    pub(crate) fn codec(self) -> std::result::Result<BytesCodec, String> {
        Ok(match self {
            Self::Zlib { level } => BytesCodec::Zlib { level },
            Self::Zstd { level } => BytesCodec::Zstd { level, checksum: false },
            Self::Shuffle { element_size: 0 } => {
                return Err("shuffle of elements of 0 bytes".into());
            }
            Self::Shuffle { element_size } => BytesCodec::Shuffle { element_size },
            Self::Fletcher32 => BytesCodec::Fletcher32,
            Self::Blosc { compressor, level, shuffle, type_size, block_size } => {
                BytesCodec::Blosc(BloscConfiguration {
                    compressor: BloscCompressor::parse(&compressor)
                        .ok_or_else(|| format!("unknown Blosc compressor {compressor:?}"))?,
                    level,
                    shuffle: match shuffle {
                        0 => BloscShuffle::None,
                        1 => BloscShuffle::Byte,
                        2 => BloscShuffle::Bit,
                        other => return Err(format!("unknown Blosc shuffle {other}")),
                    },
                    type_size,
                    block_size,
                })
            }
        })
    }
}
