//! Definitions of numcodecs' filters, which map elements to elements.
//!
//! A filter maps bytes of elements of one type to bytes of elements of another. So a chain holds
//! its filters before its codecs from bytes to bytes.

use serde_json::{Map, Value, json};

use super::BytesCodec;
use super::definitions::{Context, Definition};
use crate::fields::{Fields, MetadataError, Named, invalid, unsupported};
use crate::{DataType, Endian};

type Result<T> = std::result::Result<T, MetadataError>;

/// All filters. Zarr v3 documents list them before the codec from elements to bytes.
pub(crate) const FILTERS: &[Definition<BytesCodec>] =
    &[DELTA, FIXED_SCALE_OFFSET, QUANTIZE, AS_TYPE, BIT_ROUND, PACK_BITS];

/// The data type and byte order of stored numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredNumber {
    /// An integer or a float.
    pub data_type: DataType,
    /// Byte order.
    pub endian: Endian,
}

impl StoredNumber {
    /// Returns the length of a number in bytes.
    pub fn size(self) -> usize {
        self.data_type.item_size().unwrap_or(1)
    }

    /// Returns true for floats.
    pub fn is_float(self) -> bool {
        matches!(self.data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
    }

    /// Parses a NumPy type name, with or without byte order.
    fn parse(name: &str) -> Option<Self> {
        use DataType::{Bool, Complex64, Complex128};
        let bare = !name.starts_with(['<', '>', '|', '=']);
        let (data_type, endian) = match DataType::parse_v3(name) {
            Some(data_type) => (data_type, None),
            None if bare => DataType::parse_numpy(&format!("={name}"))?,
            None => DataType::parse_numpy(name)?,
        };
        let is_number = data_type.v3_name().is_some() && data_type.item_size().is_some();
        (is_number && !matches!(data_type, Bool | Complex64 | Complex128))
            .then_some(Self { data_type, endian: endian.unwrap_or(Endian::Little) })
    }

    fn name(self) -> String {
        let order = match (self.size(), self.endian) {
            (1, _) => '|',
            (_, Endian::Little) => '<',
            (_, Endian::Big) => '>',
        };
        format!("{order}{}", self.data_type.numpy())
    }
}

/// A float stored as its bits, so that codecs can be compared for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Real(u64);

impl Real {
    /// Returns the float.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    fn parse(fields: &Fields<'_, '_>, key: &str) -> Result<Self> {
        let number = fields.need(key)?.as_f64();
        let number = number.ok_or_else(|| invalid(fields.at(key), "expected a number"))?;
        Ok(Self(number.to_bits()))
    }
}

/// Parses the type under `key`; a missing key gives `default`, or else the type of the array.
fn number(
    fields: &Fields<'_, '_>,
    key: &str,
    default: Option<StoredNumber>,
    context: &Context<'_>,
) -> Result<StoredNumber> {
    if matches!(fields.get(key), None | Some(Value::Null)) {
        let endian = context.endian.unwrap_or(Endian::Little);
        let of_array = || StoredNumber { data_type: context.data_type, endian };
        return Ok(default.unwrap_or_else(of_array));
    }
    let name = fields.text(key)?;
    StoredNumber::parse(name)
        .ok_or_else(|| unsupported(fields.at(key), format!("a filter of {name:?}")))
}

/// Parses the types of decoded and encoded elements under two keys.
fn numbers(
    named: &Named<'_>,
    context: &Context<'_>,
    [decoded, encoded]: [&str; 2],
) -> Result<(StoredNumber, StoredNumber)> {
    let fields = named.fields()?;
    let decoded = number(&fields, decoded, None, context)?;
    Ok((decoded, number(&fields, encoded, Some(decoded), context)?))
}

fn written(more: Value, decoded: StoredNumber, encoded: StoredNumber) -> Value {
    let mut members = match more {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    members.insert("dtype".to_owned(), json!(decoded.name()));
    members.insert("astype".to_owned(), json!(encoded.name()));
    Value::Object(members)
}

const TYPES: [&str; 2] = ["dtype", "astype"];

const DELTA: Definition<BytesCodec> = Definition {
    name: "numcodecs.delta",
    v3: &["numcodecs.delta"],
    v2: Some("delta"),
    parse: |named, context| {
        let (decoded, encoded) = numbers(named, context, TYPES)?;
        if encoded.is_float() && !decoded.is_float() {
            return Err(unsupported(context.at, "differences of integers as floats"));
        }
        Ok(BytesCodec::Delta { decoded, encoded })
    },
    write: |codec, _| match *codec {
        BytesCodec::Delta { decoded, encoded } => Some(written(json!({}), decoded, encoded)),
        _ => None,
    },
};

const FIXED_SCALE_OFFSET: Definition<BytesCodec> = Definition {
    name: "numcodecs.fixedscaleoffset",
    v3: &["numcodecs.fixedscaleoffset"],
    v2: Some("fixedscaleoffset"),
    parse: |named, context| {
        let (decoded, encoded) = numbers(named, context, TYPES)?;
        let fields = named.fields()?;
        let (scale, offset) = (Real::parse(&fields, "scale")?, Real::parse(&fields, "offset")?);
        Ok(BytesCodec::FixedScaleOffset { decoded, encoded, scale, offset })
    },
    write: |codec, _| match *codec {
        BytesCodec::FixedScaleOffset { decoded, encoded, scale, offset } => {
            let factors = json!({"scale": scale.get(), "offset": offset.get()});
            Some(written(factors, decoded, encoded))
        }
        _ => None,
    },
};

const QUANTIZE: Definition<BytesCodec> = Definition {
    name: "numcodecs.quantize",
    v3: &["numcodecs.quantize"],
    v2: Some("quantize"),
    parse: |named, context| {
        let (decoded, encoded) = numbers(named, context, TYPES)?;
        let digits = named.fields()?.number("digits", 0..=400, None)?;
        Ok(BytesCodec::Quantize { decoded, encoded, digits })
    },
    write: |codec, _| match *codec {
        BytesCodec::Quantize { decoded, encoded, digits } => {
            Some(written(json!({"digits": digits}), decoded, encoded))
        }
        _ => None,
    },
};

const AS_TYPE: Definition<BytesCodec> = Definition {
    name: "numcodecs.astype",
    v3: &["numcodecs.astype"],
    v2: Some("astype"),
    parse: |named, context| {
        let (decoded, encoded) = numbers(named, context, ["decode_dtype", "encode_dtype"])?;
        Ok(BytesCodec::AsType { decoded, encoded })
    },
    write: |codec, _| match codec {
        BytesCodec::AsType { decoded, encoded } => {
            Some(json!({"encode_dtype": encoded.name(), "decode_dtype": decoded.name()}))
        }
        _ => None,
    },
};

const BIT_ROUND: Definition<BytesCodec> = Definition {
    name: "numcodecs.bitround",
    v3: &["numcodecs.bitround"],
    v2: Some("bitround"),
    parse: |named, _| {
        Ok(BytesCodec::BitRound { keep_bits: named.fields()?.number("keepbits", 0..=52, None)? })
    },
    write: |codec, _| match codec {
        BytesCodec::BitRound { keep_bits } => Some(json!({"keepbits": keep_bits})),
        _ => None,
    },
};

const PACK_BITS: Definition<BytesCodec> = Definition {
    name: "numcodecs.packbits",
    v3: &["numcodecs.packbits"],
    v2: Some("packbits"),
    parse: |named, context| {
        named.fields()?;
        match context.data_type {
            DataType::Bool => Ok(BytesCodec::PackBits),
            other => Err(unsupported(context.at, format!("packed bits of {other}"))),
        }
    },
    write: |codec, _| (*codec == BytesCodec::PackBits).then(|| json!({})),
};

/// Checks that filters before little-endian bytes in Zarr v3 fit the array and each other. Returns
/// the byte order of the elements that the chain decodes to.
///
/// # Errors
/// `Unsupported` for filters that do not fit the array or each other.
pub(crate) fn check_filters(
    path: &str,
    filters: &[BytesCodec],
    data_type: DataType,
    endian: Endian,
) -> Result<Endian> {
    let mut kind = StoredNumber { data_type, endian: Endian::Little };
    let mut order = None;
    for filter in filters {
        let Some((decoded, encoded)) = filter.types() else { continue };
        if decoded.data_type != kind.data_type {
            let what = format!("a filter of {} behind {}", decoded.data_type, kind.data_type);
            return Err(unsupported(path, what));
        }
        order.get_or_insert(decoded.endian);
        kind = encoded;
    }
    if kind.size() > 1 && order.is_some() && (endian != kind.endian || endian != Endian::Little) {
        return Err(unsupported(path, "big-endian bytes behind a filter"));
    }
    Ok(order.unwrap_or(endian))
}
