//! Attributes in the form in which xarray reads them from Zarr: an encoded `_FillValue`, or, for text,
//! the `missing_value` that means the same.

use bedform_format::chunk_map::ForeignArray as MapArray;
use bedform_format::json::marked_number;
use bedform_format::{DataType, base64};
use serde_json::{Map, Value, json};

use crate::foreign::attributes::{self as stored, AttributeStyle};

const FILL_VALUE: &str = "_FillValue";
const MISSING_VALUE: &str = "missing_value";
const UNSIGNED: &str = "_Unsigned";

/// The attributes of a variable of a foreign file.
pub(crate) fn variable_attributes(array: &MapArray, style: AttributeStyle) -> Map<String, Value> {
    let attributes = stored::variable_attributes(array, style);
    match array.data_type {
        Some(data_type) => with_encoded_fill(attributes, data_type),
        None => attributes,
    }
}

/// The attributes of an array of a store.
pub(super) fn array_attributes(
    mut attributes: Map<String, Value>,
    data_type: DataType,
) -> Map<String, Value> {
    if let (DataType::FixedBytes(_), Some(Value::String(text))) =
        (data_type, attributes.get(FILL_VALUE))
        && let Some(plain) = plain_text(text)
    {
        attributes.insert(FILL_VALUE.to_owned(), json!(plain));
    }
    with_encoded_fill(attributes, data_type)
}

/// Decodes a `_FillValue` of bytes as xarray writes it; `None` if it is none.
fn plain_text(text: &str) -> Option<String> {
    let bytes = base64::decode(text).filter(|bytes| base64::encode(bytes) == text)?;
    String::from_utf8(bytes).ok()
}

/// Encodes `_FillValue` for xarray, which cannot decode one of text from Zarr v3.
fn with_encoded_fill(
    mut attributes: Map<String, Value>,
    data_type: DataType,
) -> Map<String, Value> {
    use DataType as T;
    let Some(value) = attributes.get(FILL_VALUE) else { return attributes };
    if matches!(data_type, T::FixedBytes(_) | T::FixedUnicode(_) | T::String) {
        name_as_missing(&mut attributes);
        return attributes;
    }
    if let Some(encoded) = encode_fill(value, data_type) {
        let encoded = signed(encoded, data_type, attributes.get(UNSIGNED));
        attributes.insert(FILL_VALUE.to_owned(), encoded);
    }
    attributes
}

/// Renames `_FillValue` to `missing_value`, which keeps other values that it has.
fn name_as_missing(attributes: &mut Map<String, Value>) {
    let Some(fill) = attributes.shift_remove(FILL_VALUE) else { return };
    let missing = match attributes.remove(MISSING_VALUE) {
        Some(Value::Array(mut values)) if !values.contains(&fill) => {
            values.push(fill);
            Value::Array(values)
        }
        Some(value) if value != fill && !value.is_array() => json!([value, fill]),
        Some(value) => value,
        None => fill,
    };
    attributes.insert(MISSING_VALUE.to_owned(), missing);
}

/// Returns the fill value of integers that `_Unsigned` gives the other sign as a signed number.
/// xarray takes no other, since it converts the value to the signed type.
fn signed(value: Value, data_type: DataType, unsigned: Option<&Value>) -> Value {
    use DataType as T;
    let changes_sign = matches!(
        (data_type, unsigned.and_then(Value::as_str)),
        (T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64, Some("false"))
            | (T::Int8 | T::Int16 | T::Int32 | T::Int64, Some("true"))
    );
    let Some(number) = value.as_u64().filter(|_| changes_sign) else { return value };
    let unused = 64 - 8 * u32::try_from(data_type.item_size().unwrap_or(8)).unwrap_or(8);
    // Shifting up and back fills the upper bits with the sign.
    let number_signed = number.wrapping_shl(unused).cast_signed().wrapping_shr(unused);
    let is_in_range = unused == 0 || number >> (64 - unused) == 0;
    if is_in_range { json!(number_signed) } else { value }
}

fn encode_fill(value: &Value, data_type: DataType) -> Option<Value> {
    use DataType as T;
    let first = match value {
        Value::Array(values) => values.first()?,
        value => value,
    };
    match data_type {
        T::Bool => Some(json!(number_of(first)? != 0.0)),
        T::Float16 | T::Float32 | T::Float64 => Some(json!(float_text(number_of(first)?))),
        T::Complex64 | T::Complex128 => {
            let Value::Array(parts) = value else { return None };
            let [real, imaginary] = parts.as_slice() else { return None };
            Some(json!([float_text(number_of(real)?), float_text(number_of(imaginary)?)]))
        }
        // Integers.
        _ if first.is_i64() || first.is_u64() => Some(first.clone()),
        _ => {
            let number = number_of(first).filter(|number| number.abs() < 9e15)?;
            #[allow(clippy::cast_possible_truncation)]
            Some(json!(number as i64))
        }
    }
}

fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => marked_number(text),
        _ => None,
    }
}

fn float_text(number: f64) -> String {
    base64::encode(&number.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values_are_encoded_as_xarray_does() {
        let encoded = |value: Value, data_type| {
            let attributes = Map::from_iter([(FILL_VALUE.to_owned(), value)]);
            with_encoded_fill(attributes, data_type)[FILL_VALUE].clone()
        };
        assert_eq!(encoded(json!(-9999.0), DataType::Float32), json!("AAAAAICHw8A="));
        assert_eq!(encoded(json!("\u{e000}NaN"), DataType::Float64), json!("AAAAAAAA+H8="));
        assert_eq!(encoded(json!([7.0]), DataType::Int16), json!(7));
        assert_eq!(encoded(json!(1), DataType::Bool), json!(true));
        // Values that xarray has written.
        assert_eq!(encoded(json!("AAAAAICHw8A="), DataType::Float32), json!("AAAAAICHw8A="));
    }

    #[test]
    fn a_fill_value_of_text_becomes_a_missing_value() {
        let encoded = |attributes: Value, data_type| {
            let Value::Object(attributes) = attributes else { unreachable!() };
            Value::Object(array_attributes(attributes, data_type))
        };
        for data_type in [DataType::String, DataType::FixedUnicode(3), DataType::FixedBytes(3)] {
            let found = encoded(json!({"_FillValue": "none", "units": "1"}), data_type);
            assert_eq!(found, json!({"units": "1", "missing_value": "none"}));
        }
        let found = encoded(json!({"_FillValue": "bm9uZQ=="}), DataType::FixedBytes(4));
        assert_eq!(found, json!({"missing_value": "none"}), "as xarray has written it");
        for (missing, both) in [
            (json!("a"), json!("a")),
            (json!("b"), json!(["b", "a"])),
            (json!(["b", "c"]), json!(["b", "c", "a"])),
            (json!(["b", "a"]), json!(["b", "a"])),
        ] {
            let found =
                encoded(json!({"_FillValue": "a", "missing_value": missing}), DataType::String);
            assert_eq!(found, json!({"missing_value": both}));
        }
    }

    #[test]
    fn a_fill_value_of_integers_of_the_other_sign_is_signed() {
        let encoded = |value: u64, unsigned: &str, data_type| {
            let attributes = Map::from_iter([
                (FILL_VALUE.to_owned(), json!(value)),
                (UNSIGNED.to_owned(), json!(unsigned)),
            ]);
            with_encoded_fill(attributes, data_type)[FILL_VALUE].clone()
        };
        assert_eq!(encoded(255, "false", DataType::UInt8), json!(-1));
        assert_eq!(encoded(127, "false", DataType::UInt8), json!(127));
        assert_eq!(encoded(255, "true", DataType::UInt8), json!(255));
        assert_eq!(encoded(255, "true", DataType::Int8), json!(-1));
        assert_eq!(encoded(40_000, "false", DataType::UInt16), json!(40_000 - 65_536));
        assert_eq!(encoded(u64::MAX, "false", DataType::UInt64), json!(-1));
        assert_eq!(encoded(300, "false", DataType::UInt8), json!(300), "no value of the type");
    }
}
