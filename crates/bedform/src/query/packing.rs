//! The attributes of an array that say how its stored elements become values.
//!
//! Types of numbers matter to xarray's rules, so those of a foreign file are taken from its chunk
//! map, which keeps them. JSON knows integers and reals.

use bedform_format::DataType;
use bedform_format::chunk_map::{AttributeValues, ForeignArray, ForeignAttribute};
use bedform_format::metadata::FillValue;
use bedform_format::{Endian, base64, json};
use bedform_query::{AttributeNumber, Packing, ValueType, Values};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Returns the type in which expressions see elements of this type; `None` if they cannot.
pub(super) fn value_type(data_type: DataType) -> Option<ValueType> {
    Some(match data_type {
        DataType::Bool => ValueType::Bool,
        DataType::Int8 => ValueType::Int8,
        DataType::Int16 => ValueType::Int16,
        DataType::Int32 => ValueType::Int32,
        DataType::Int64 => ValueType::Int64,
        DataType::UInt8 => ValueType::UInt8,
        DataType::UInt16 => ValueType::UInt16,
        DataType::UInt32 => ValueType::UInt32,
        DataType::UInt64 => ValueType::UInt64,
        DataType::Float16 => ValueType::Float16,
        DataType::Float32 => ValueType::Float32,
        DataType::Float64 => ValueType::Float64,
        _ => return None,
    })
}

/// The packing of an array, and the units that make its numbers times.
#[derive(Debug, Default)]
pub(super) struct PackedMeaning {
    pub(super) packing: Packing,
    /// `units` that count time since a date.
    pub(super) time_units: Option<String>,
}

/// Returns the packing of a variable of a foreign file.
///
/// # Errors
/// `InvalidArgument` for a `scale_factor` or `add_offset` that is no number.
pub(super) fn of_foreign(array: &ForeignArray) -> Result<PackedMeaning> {
    let find = |name: &str| array.attributes.iter().find(|(known, _)| known == name);
    let numbers = |name: &str| match find(name) {
        Some((_, ForeignAttribute::Values(values))) => numbers_of(values),
        _ => Vec::new(),
    };
    let text = |name: &str| match find(name) {
        Some((_, ForeignAttribute::Text(text))) => Some(text.as_str()),
        _ => None,
    };
    let one = |name: &'static str| match find(name) {
        None => Ok(None),
        Some(_) => numbers(name).first().copied().map(Some).ok_or_else(|| no_number(name)),
    };
    let packing = Packing {
        fill_value: numbers("_FillValue"),
        missing_value: numbers("missing_value"),
        scale_factor: one("scale_factor")?,
        add_offset: one("add_offset")?,
        unsigned: text("_Unsigned").and_then(unsigned),
        boolean: text("dtype") == Some("bool"),
    };
    Ok(PackedMeaning { packing, time_units: time_units(text("units")) })
}

/// Returns the packing of an array of a store. `fill` is its fill value where that marks missing
/// values, as in Zarr v2.
///
/// # Errors
/// As [`of_foreign`].
pub(super) fn of_stored(
    attributes: &Map<String, Value>,
    stored: ValueType,
    fill: Option<&FillValue>,
) -> Result<PackedMeaning> {
    let text = |name: &str| attributes.get(name).and_then(Value::as_str);
    let one = |name: &'static str| match attributes.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            json_numbers(value).first().copied().map(Some).ok_or_else(|| no_number(name))
        }
    };
    let fill_value = match (fill, attributes.get("_FillValue")) {
        (Some(FillValue::Bytes(bytes)), _) => numbers_of_bytes(stored, bytes),
        (_, Some(Value::String(encoded))) if stored.is_float() => {
            decoded_fill(encoded).into_iter().collect()
        }
        (_, Some(value)) => json_numbers(value),
        _ => Vec::new(),
    };
    let packing = Packing {
        fill_value,
        missing_value: attributes.get("missing_value").map(json_numbers).unwrap_or_default(),
        scale_factor: one("scale_factor")?,
        add_offset: one("add_offset")?,
        unsigned: text("_Unsigned").and_then(unsigned),
        boolean: text("dtype") == Some("bool"),
    };
    Ok(PackedMeaning { packing, time_units: time_units(text("units")) })
}

fn no_number(name: &str) -> Error {
    Error::invalid(format!("its attribute {name} is no number, so that its values are unknown"))
}

fn unsigned(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Returns units such as "hours since 1900-01-01", by which xarray decodes times.
fn time_units(units: Option<&str>) -> Option<String> {
    units.filter(|units| units.contains("since")).map(str::to_owned)
}

/// Decodes the fill value of a float as xarray writes it into Zarr v3: eight bytes in base64.
fn decoded_fill(text: &str) -> Option<AttributeNumber> {
    let bytes: [u8; 8] = base64::decode(text)?.try_into().ok()?;
    Some(AttributeNumber::Real(f64::from_le_bytes(bytes)))
}

fn json_numbers(value: &Value) -> Vec<AttributeNumber> {
    let number = |value: &Value| match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Some(AttributeNumber::Integer(integer.into())),
            (_, Some(integer)) => Some(AttributeNumber::Integer(integer.into())),
            _ => number.as_f64().map(AttributeNumber::Real),
        },
        Value::String(text) => match text.strip_prefix(json::NUMBER).unwrap_or(text) {
            "NaN" => Some(AttributeNumber::Real(f64::NAN)),
            "Infinity" => Some(AttributeNumber::Real(f64::INFINITY)),
            "-Infinity" => Some(AttributeNumber::Real(f64::NEG_INFINITY)),
            _ => None,
        },
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().filter_map(number).collect(),
        one => number(one).into_iter().collect(),
    }
}

fn numbers_of(values: &AttributeValues) -> Vec<AttributeNumber> {
    let Some(value_type) = value_type(values.data_type) else { return Vec::new() };
    let mut data = values.data.clone();
    if values.endian != Endian::NATIVE {
        data.chunks_mut(value_type.bytes()).for_each(<[u8]>::reverse);
    }
    numbers_of_bytes(value_type, &data)
}

/// Returns elements in native byte order as numbers of their type.
fn numbers_of_bytes(value_type: ValueType, bytes: &[u8]) -> Vec<AttributeNumber> {
    let whole = bytes.len() - bytes.len() % value_type.bytes();
    let Some(values) = Values::of_bytes(value_type, &bytes[..whole]) else { return Vec::new() };
    let values = values.as_slice();
    (0..values.len()).filter_map(|at| values.get(at)).map(AttributeNumber::Typed).collect()
}
