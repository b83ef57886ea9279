//! The stored values that mean that an element is missing, as xarray decides.
//!
//! Those are the values of the attributes `_FillValue` and `missing_value`, each a number or a list
//! of numbers, and in Zarr v2 the fill value of the array, unless it is null. A value counts if the
//! type of the elements has exactly this number: others equal no element. NaN is always missing.
//!
//! xarray compares 64-bit integers as floating-point numbers. A value of 2^53 or more would then
//! stand for its neighbours too, and does not count here.

use bedform_format::DataType;
use bedform_format::base64;
use bedform_format::json::NUMBER;
use bedform_format::metadata::FillValue;
use serde_json::{Map, Number, Value};

use crate::array::{Array, ArrayBacking};
use crate::error::Result;

/// The attributes that hold missing values.
const FILL_VALUE: &str = "_FillValue";
const MISSING_VALUE: &str = "missing_value";
/// The attribute by which integers are decoded with the other sign.
const UNSIGNED: &str = "_Unsigned";
/// The most values of an attribute that are looked at.
const VALUES_MAX: usize = 256;
/// Whole numbers below this are distinct as 64-bit floating-point numbers.
const EXACT_BELOW: i128 = 1 << 53;

impl Array {
    /// The stored values that mean that an element is missing, in the machine's byte order,
    /// ascending by their bytes.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn missing_values(&self) -> Result<Vec<Vec<u8>>> {
        let (data_type, mut attributes) = (self.data_type()?, self.attributes()?);
        if let Some(fill) = self.missing_fill_value()? {
            attributes.insert(FILL_VALUE.to_owned(), fill.to_json(data_type));
        } else if let ArrayBacking::Stored(_) = &self.backing
            && let Some(value) = attributes.get(FILL_VALUE).and_then(fill_in_base64)
        {
            attributes.insert(FILL_VALUE.to_owned(), value);
        }
        Ok(stored_values(data_type, &attributes))
    }

    /// The fill value of the array if it means that an element is missing: in Zarr v2 it does,
    /// unless it is null; in v3 attributes alone do.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn missing_fill_value(&self) -> Result<Option<FillValue>> {
        let ArrayBacking::Stored(handle) = &self.backing else { return Ok(None) };
        let state = handle.state()?;
        let is_marking = state.metadata.zarr_format == 2 && !state.document["fill_value"].is_null();
        Ok(is_marking.then(|| state.metadata.fill_value.clone()))
    }
}

/// Decodes the attribute `_FillValue` as xarray writes it for floating-point numbers in Zarr v3:
/// the little-endian bytes of a 64-bit number, in base64.
fn fill_in_base64(value: &Value) -> Option<Value> {
    let bytes = base64::decode(value.as_str()?)?;
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    Some(match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => Value::Null,
        None => Value::from(format!("{NUMBER}{}Infinity", if number > 0.0 { "" } else { "-" })),
    })
}

fn stored_values(data_type: DataType, attributes: &Map<String, Value>) -> Vec<Vec<u8>> {
    let other = other_sign(data_type, attributes.get(UNSIGNED));
    let mut found = Vec::new();
    for (name, compared_as) in [(FILL_VALUE, data_type), (MISSING_VALUE, other)] {
        for value in flattened(attributes.get(name)) {
            found.extend(element(&value, compared_as));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The type as which integers with the attribute `_Unsigned` are decoded, which has the same bits.
fn other_sign(data_type: DataType, unsigned: Option<&Value>) -> DataType {
    use DataType as T;
    let pairs =
        [(T::Int8, T::UInt8), (T::Int16, T::UInt16), (T::Int32, T::UInt32), (T::Int64, T::UInt64)];
    let said = unsigned.and_then(Value::as_str);
    for (signed, unsigned) in pairs {
        match said {
            Some("true") if data_type == signed => return unsigned,
            Some("false") if data_type == unsigned => return signed,
            _ => {}
        }
    }
    data_type
}

/// The numbers of an attribute: one, or a list.
fn flattened(value: Option<&Value>) -> Vec<Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => values.iter().take(VALUES_MAX).cloned().collect(),
        Some(one) => vec![one.clone()],
    }
}

/// Returns the element of a type that is exactly this number; `None` if there is none.
#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
fn element(value: &Value, data_type: DataType) -> Option<Vec<u8>> {
    use DataType as T;
    let whole = whole_number(value);
    macro_rules! integer {
        ($type:ty) => {{
            let whole = whole.filter(|whole| size_of::<$type>() < 8 || whole.abs() < EXACT_BELOW);
            Some(<$type>::try_from(whole?).ok()?.to_ne_bytes().to_vec())
        }};
    }
    match data_type {
        T::Int8 => integer!(i8),
        T::Int16 => integer!(i16),
        T::Int32 => integer!(i32),
        T::Int64 => integer!(i64),
        T::UInt8 => integer!(u8),
        T::UInt16 => integer!(u16),
        T::UInt32 => integer!(u32),
        T::UInt64 => integer!(u64),
        T::Float16 => half(number(value)?).map(|bits| bits.to_ne_bytes().to_vec()),
        T::Float32 => {
            let wide = number(value)?;
            #[allow(clippy::cast_possible_truncation, reason = "compared below")]
            let narrow = wide as f32;
            (f64::from(narrow) == wide).then(|| narrow.to_ne_bytes().to_vec())
        }
        T::Float64 => Some(number(value)?.to_ne_bytes().to_vec()),
        _ => None,
    }
}

/// Returns a value as a whole number, if it is one.
fn whole_number(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = value.as_u64() {
        return Some(number.into());
    }
    let number = number(value)?;
    #[allow(clippy::cast_possible_truncation, reason = "whole and below 2^100")]
    (number.fract() == 0.0 && number.abs() < 2_f64.powi(100)).then_some(number as i128)
}

/// Returns a value as a floating-point number that is not NaN.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => match text.strip_prefix(NUMBER).unwrap_or(text) {
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return None,
        },
        other => other.as_f64()?,
    };
    (!number.is_nan()).then_some(number)
}

/// Returns the bits of the half-precision number that is exactly this one; `None` if there is none.
fn half(number: f64) -> Option<u16> {
    let value = |bits: u16| {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
        sign * match exponent {
            0 => fraction * 2_f64.powi(-14),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction) * 2_f64.powi(exponent - 15),
        }
    };
    (0..=u16::MAX).find(|bits| value(*bits) == number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(data_type: DataType, attributes: Value) -> Vec<Vec<u8>> {
        stored_values(data_type, attributes.as_object().unwrap())
    }

    #[test]
    #[allow(clippy::host_endian_bytes)]
    fn a_value_counts_if_the_type_has_exactly_this_number() {
        let f4 = |value: f32| value.to_ne_bytes().to_vec();
        assert_eq!(of(DataType::Float32, json!({"_FillValue": -999.0})), [f4(-999.0)]);
        // The 32-bit number next to 1e20 is another number.
        assert!(of(DataType::Float32, json!({"missing_value": 1e20})).is_empty());
        let near = f64::from(1e20_f32);
        assert_eq!(of(DataType::Float32, json!({"missing_value": near})), [f4(1e20)]);
        let both = json!({"_FillValue": -32768, "missing_value": [-32767, -32768, 40000, 0.5]});
        let i2 = |value: i16| value.to_ne_bytes().to_vec();
        let mut expected = vec![i2(-32768), i2(-32767)];
        expected.sort();
        assert_eq!(of(DataType::Int16, both), expected);
        assert_eq!(of(DataType::Float16, json!({"_FillValue": -2})), [0xc000_u16.to_ne_bytes()]);
        let infinite = json!({"_FillValue": format!("{NUMBER}-Infinity"), "missing_value": "x"});
        assert_eq!(of(DataType::Float32, infinite), [f4(f32::NEG_INFINITY)]);
        assert!(of(DataType::Float32, json!({"_FillValue": format!("{NUMBER}NaN")})).is_empty());
        assert!(of(DataType::Bool, json!({"_FillValue": 1})).is_empty());
    }

    #[test]
    #[allow(clippy::host_endian_bytes)]
    fn large_whole_numbers_do_not_stand_for_their_neighbours() {
        let large = json!({"_FillValue": i64::MIN, "missing_value": 1_i64 << 53});
        assert!(of(DataType::Int64, large).is_empty());
        let small = json!({"_FillValue": (1_i64 << 53) - 1});
        assert_eq!(of(DataType::Int64, small), [((1_i64 << 53) - 1).to_ne_bytes()]);
    }

    #[test]
    fn integers_of_the_other_sign_have_missing_values_of_that_sign() {
        let given = json!({"_FillValue": -1, "missing_value": 254, "_Unsigned": "true"});
        assert_eq!(of(DataType::Int8, given), [[254_u8], [255]]);
        let given = json!({"missing_value": -1, "_Unsigned": "true"});
        assert!(of(DataType::Int8, given).is_empty());
    }

    #[test]
    fn a_fill_value_of_zarr_v3_is_decoded() {
        let encoded = json!("AAAAAAAA+H8=");
        assert_eq!(fill_in_base64(&encoded), Some(Value::Null));
        assert_eq!(fill_in_base64(&json!("AAAAAAAAOMA=")), Some(json!(-24.0)));
        assert_eq!(fill_in_base64(&json!("-24")), None);
        assert_eq!(fill_in_base64(&json!(-24)), None);
    }
}
