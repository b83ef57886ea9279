//! Definitions of the numcodecs codecs from bytes to bytes that no other format has.

use serde_json::{Value, json};

use super::definitions::Definition;
use super::{BytesCodec, ChecksumKind};
use crate::fields::{Fields, MetadataError, Named, invalid, unsupported};

type Result<T> = std::result::Result<T, MetadataError>;

/// numcodecs' CRC-32C, which may precede the data.
pub(super) const CHECKSUM_32C: Definition<BytesCodec> = Definition {
    name: "numcodecs.crc32c",
    v3: &["numcodecs.crc32c"],
    v2: Some("crc32c"),
    parse: |named, _| match is_first(&named.fields()?, "end")? {
        false => Ok(BytesCodec::Crc32c),
        is_first => Ok(BytesCodec::Checksum { kind: ChecksumKind::Crc32c, is_first }),
    },
    write: |codec, _| write_checksum(codec, ChecksumKind::Crc32c),
};

pub(super) const CRC32: Definition<BytesCodec> = Definition {
    name: "numcodecs.crc32",
    v3: &["numcodecs.crc32"],
    v2: Some("crc32"),
    parse: |named, _| parse_checksum(named, ChecksumKind::Crc32),
    write: |codec, _| write_checksum(codec, ChecksumKind::Crc32),
};

pub(super) const ADLER32: Definition<BytesCodec> = Definition {
    name: "numcodecs.adler32",
    v3: &["numcodecs.adler32"],
    v2: Some("adler32"),
    parse: |named, _| parse_checksum(named, ChecksumKind::Adler32),
    write: |codec, _| write_checksum(codec, ChecksumKind::Adler32),
};

fn parse_checksum(named: &Named<'_>, kind: ChecksumKind) -> Result<BytesCodec> {
    Ok(BytesCodec::Checksum { kind, is_first: is_first(&named.fields()?, "start")? })
}

fn write_checksum(codec: &BytesCodec, of: ChecksumKind) -> Option<Value> {
    match *codec {
        BytesCodec::Checksum { kind, is_first } if kind == of => {
            Some(json!({"location": if is_first { "start" } else { "end" }}))
        }
        _ => None,
    }
}

/// Returns true if a numcodecs checksum precedes the data.
fn is_first(fields: &Fields<'_, '_>, usual: &str) -> Result<bool> {
    let location = match fields.get("location") {
        None | Some(Value::Null) => usual,
        Some(_) => fields.text("location")?,
    };
    match location {
        "start" => Ok(true),
        "end" => Ok(false),
        _ => Err(invalid(fields.at("location"), "expected 'start' or 'end'")),
    }
}

pub(super) const LZ4: Definition<BytesCodec> = Definition {
    name: "numcodecs.lz4",
    v3: &["numcodecs.lz4"],
    v2: Some("lz4"),
    parse: |named, _| named.fields().map(|_| BytesCodec::Lz4),
    write: |codec, _| (*codec == BytesCodec::Lz4).then(|| json!({})),
};

pub(super) const BZ2: Definition<BytesCodec> = Definition {
    name: "numcodecs.bz2",
    v3: &["numcodecs.bz2"],
    v2: Some("bz2"),
    parse: |named, _| named.fields().map(|_| BytesCodec::Bz2),
    write: |codec, _| (*codec == BytesCodec::Bz2).then(|| json!({})),
};

/// FORMAT_XZ and FORMAT_ALONE of Python's `lzma` module.
const XZ: i64 = 1;
const ALONE: i64 = 2;

pub(super) const LZMA: Definition<BytesCodec> = Definition {
    name: "numcodecs.lzma",
    v3: &["numcodecs.lzma"],
    v2: Some("lzma"),
    parse: |named, context| match named.fields()?.integer("format", 0..=3, Some(XZ))? {
        XZ => Ok(BytesCodec::Lzma { is_alone: false }),
        ALONE => Ok(BytesCodec::Lzma { is_alone: true }),
        other => Err(unsupported(context.at, format!("LZMA of the format {other}"))),
    },
    write: |codec, _| match codec {
        BytesCodec::Lzma { is_alone } => {
            Some(json!({"format": if *is_alone { ALONE } else { XZ }}))
        }
        _ => None,
    },
};
