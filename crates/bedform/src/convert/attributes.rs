//! Attributes in the form in which xarray writes them into Zarr, with an encoded `_FillValue`.

use bedform_format::chunk_map::ForeignArray as MapArray;
use bedform_format::json::marked_number;
use bedform_format::{DataType, base64};
use serde_json::{Map, Value, json};

use crate::foreign::attributes::{self as stored, AttributeStyle};

const FILL_VALUE: &str = "_FillValue";

/// The attributes of a variable of a foreign file.
pub(crate) fn variable_attributes(array: &MapArray, style: AttributeStyle) -> Map<String, Value> {
    let mut attributes = stored::variable_attributes(array, style);
    if let (Some(DataType::FixedBytes(_)), Some(Value::String(text))) =
        (array.data_type, attributes.get(FILL_VALUE))
    {
        // Libraries store the fill value of characters as text.
        let encoded = base64::encode(text.trim_end_matches('\0').as_bytes());
        attributes.insert(FILL_VALUE.to_owned(), json!(encoded));
        return attributes;
    }
    match array.data_type {
        Some(data_type) => with_encoded_fill(attributes, data_type),
        None => attributes,
    }
}

/// Encodes `_FillValue` as xarray writes it into Zarr; text stays unchanged.
pub(super) fn with_encoded_fill(
    mut attributes: Map<String, Value>,
    data_type: DataType,
) -> Map<String, Value> {
    let encoded = attributes.get(FILL_VALUE).and_then(|value| encode_fill(value, data_type));
    if let Some(encoded) = encoded {
        attributes.insert(FILL_VALUE.to_owned(), encoded);
    }
    attributes
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
        T::FixedBytes(_) | T::FixedUnicode(_) | T::String => None,
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
}
