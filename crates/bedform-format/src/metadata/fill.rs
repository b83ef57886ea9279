//! Fill values: the values of elements that were never written.

use half::f16;
use serde_json::{Number, Value};

use super::MetadataError;
use crate::fields::{invalid, shown};
use crate::{DataType, base64, json};

/// A fill value: the bytes of one element in the machine's byte order, or a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillValue {
    /// The bytes of one fixed-size element.
    Bytes(Vec<u8>),
    /// The fill value of a `string` array.
    Text(String),
}

impl FillValue {
    /// Returns zero, false or the empty text.
    pub fn zero(data_type: DataType) -> Self {
        match data_type.item_size() {
            Some(size) => Self::Bytes(vec![0; size]),
            None => Self::Text(String::new()),
        }
    }

    /// Returns the element's bytes; empty for text.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(_) => &[],
        }
    }

    /// Returns true if every byte is zero.
    pub fn is_zero(&self) -> bool {
        self.bytes().iter().all(|byte| *byte == 0)
    }

    /// Parses a fill value of Zarr v3, or of v2 (a subset plus `null`).
    ///
    /// # Errors
    /// [`MetadataError::Field`] if `value` does not fit `data_type`.
    pub fn parse(value: &Value, data_type: DataType) -> Result<Self, MetadataError> {
        let refuse = || {
            invalid(
                "fill_value",
                format!("expected a value of {data_type}, found {}", shown(value)),
            )
        };
        if data_type == DataType::String {
            return match value {
                Value::String(text) => Ok(Self::Text(text.clone())),
                Value::Null => Ok(Self::zero(data_type)),
                // zarr-python wrote 0 for text in v2.
                Value::Number(number) if number.as_u64() == Some(0) => Ok(Self::zero(data_type)),
                _ => Err(refuse()),
            };
        }
        if value.is_null() {
            return Ok(match data_type {
                // zarr-python has the same default.
                DataType::DateTime(_) | DataType::TimeDelta(_) => Self::Bytes(nat()),
                _ => Self::zero(data_type),
            });
        }
        element(value, data_type).map(Self::Bytes).ok_or_else(refuse)
    }

    /// Parses a fill value of Zarr v2, in which some writers quote numbers. These are read as
    /// zarr-python reads them; where its reading is not what the text says, as `true` for
    /// `"false"`, the value is refused.
    ///
    /// # Errors
    /// As [`FillValue::parse`].
    pub fn parse_v2(value: &Value, data_type: DataType) -> Result<Self, MetadataError> {
        let plain = value.as_str().and_then(|text| unquoted(text, data_type));
        Self::parse(plain.as_ref().unwrap_or(value), data_type)
    }

    /// Returns the fill value in its Zarr v3 form. NaNs with unusual bits keep them.
    pub fn to_json(&self, data_type: DataType) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::Bytes(bytes) => element_json(bytes, data_type),
        }
    }
}

/// Returns the number or truth value that a text holds.
fn unquoted(text: &str, data_type: DataType) -> Option<Value> {
    use DataType as T;
    let text = text.trim_ascii();
    match data_type {
        T::Bool => matches!(text, "true" | "True" | "1").then_some(Value::Bool(true)),
        T::Int8 | T::Int16 | T::Int32 | T::Int64 => text.parse::<i64>().ok().map(Value::from),
        T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => text.parse::<u64>().ok().map(Value::from),
        T::Float16 | T::Float32 | T::Float64 => {
            let number: f64 = text.parse().ok()?;
            Some(match Number::from_f64(number) {
                Some(number) => Value::Number(number),
                None if number.is_nan() => Value::from("NaN"),
                None => Value::from(if number > 0.0 { "Infinity" } else { "-Infinity" }),
            })
        }
        _ => None,
    }
}

fn element(value: &Value, data_type: DataType) -> Option<Vec<u8>> {
    use DataType as T;
    macro_rules! integer {
        ($type:ty, $number:expr) => {
            <$type>::try_from($number).ok()?.to_ne_bytes().to_vec()
        };
    }
    // Some writers write 0.0 for 0.
    let signed = || {
        value.as_i64().or_else(|| {
            let number = value.as_f64()?;
            #[allow(clippy::cast_possible_truncation)]
            (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
        })
    };
    #[allow(clippy::cast_possible_truncation, clippy::host_endian_bytes)]
    let bytes = match data_type {
        T::Bool => vec![u8::from(value.as_bool().or_else(|| match value.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        })?)],
        T::Int8 => integer!(i8, signed()?),
        T::Int16 => integer!(i16, signed()?),
        T::Int32 => integer!(i32, signed()?),
        T::Int64 => integer!(i64, signed()?),
        T::UInt8 => integer!(u8, signed()?),
        T::UInt16 => integer!(u16, signed()?),
        T::UInt32 => integer!(u32, signed()?),
        T::UInt64 => match value.as_u64() {
            Some(number) => number.to_ne_bytes().to_vec(),
            None => integer!(u64, signed()?),
        },
        T::Float16 => {
            bits(value, 2).or_else(|| Some(f16::from_f64(float(value)?).to_ne_bytes().to_vec()))?
        }
        T::Float32 => {
            bits(value, 4).or_else(|| Some((float(value)? as f32).to_ne_bytes().to_vec()))?
        }
        T::Float64 => bits(value, 8).or_else(|| Some(float(value)?.to_ne_bytes().to_vec()))?,
        T::Complex64 | T::Complex128 => {
            let part = if data_type == T::Complex64 { T::Float32 } else { T::Float64 };
            match value {
                Value::Array(parts) => {
                    let [real, imaginary] = parts.as_slice() else { return None };
                    [element(real, part)?, element(imaginary, part)?].concat()
                }
                real => [element(real, part)?, vec![0; part.item_size()?]].concat(),
            }
        }
        T::DateTime(_) | T::TimeDelta(_) if value.as_str() == Some("NaT") => nat(),
        T::DateTime(_) | T::TimeDelta(_) => integer!(i64, signed()?),
        T::FixedBytes(size) | T::Raw(size) => text_element(value, size as usize)?,
        T::FixedUnicode(count) => unicode_element(value, count as usize)?,
        T::String => return None,
    };
    Some(bytes)
}

/// Returns NaT ("not a time"): the smallest 64-bit integer.
#[allow(clippy::host_endian_bytes)]
fn nat() -> Vec<u8> {
    i64::MIN.to_ne_bytes().to_vec()
}

/// Parses fixed-size text: a string, or 0 for the empty text.
#[allow(clippy::host_endian_bytes)]
fn unicode_element(value: &Value, count: usize) -> Option<Vec<u8>> {
    let text = match value {
        Value::String(text) => text.as_str(),
        other if other.as_u64() == Some(0) => "",
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(count * 4);
    for code in json::codes_of(text) {
        bytes.extend(code.to_ne_bytes());
    }
    (bytes.len() <= count * 4).then(|| {
        bytes.resize(count * 4, 0);
        bytes
    })
}

/// Reverses [`unicode_element`], without padding.
#[allow(clippy::host_endian_bytes)]
fn unicode_text(bytes: &[u8]) -> String {
    let (codes, _) = bytes.as_chunks::<4>();
    let codes = codes.iter().map(|code| u32::from_ne_bytes(*code));
    json::text_of_codes(codes).trim_end_matches('\0').to_owned()
}

/// Parses fixed-size bytes: base64 in Zarr v2; "" or 0 for no bytes.
fn text_element(value: &Value, size: usize) -> Option<Vec<u8>> {
    let mut bytes = match value {
        Value::String(text) => base64::decode(text)?,
        other => {
            if other.as_u64() != Some(0) {
                return None;
            }
            Vec::new()
        }
    };
    if bytes.len() > size {
        return None;
    }
    bytes.resize(size, 0);
    Some(bytes)
}

/// Parses the bits of a float, `0x...`, into the machine's byte order.
fn bits(value: &Value, size: usize) -> Option<Vec<u8>> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    if digits.len() != size * 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let bits = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
    let mut bytes = bits[8 - size..].to_vec();
    if cfg!(target_endian = "little") {
        bytes.reverse();
    }
    Some(bytes)
}

fn float(value: &Value) -> Option<f64> {
    if let Some(text) = value.as_str() {
        return match text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => json::marked_number(text),
        };
    }
    value.as_f64().or_else(|| value.as_bool().map(|flag| f64::from(u8::from(flag))))
}

#[allow(clippy::host_endian_bytes)]
fn element_json(bytes: &[u8], data_type: DataType) -> Value {
    use DataType as T;
    macro_rules! number {
        ($type:ty) => {
            <[u8; size_of::<$type>()]>::try_from(bytes)
                .map_or(Value::Null, |raw| Value::from(<$type>::from_ne_bytes(raw)))
        };
    }
    match data_type {
        T::Bool => Value::Bool(bytes.iter().any(|byte| *byte != 0)),
        T::Int8 => number!(i8),
        T::Int16 => number!(i16),
        T::Int32 => number!(i32),
        T::Int64 => number!(i64),
        T::UInt8 => number!(u8),
        T::UInt16 => number!(u16),
        T::UInt32 => number!(u32),
        T::UInt64 => number!(u64),
        T::Float16 | T::Float32 | T::Float64 => float_json(bytes),
        T::Complex64 | T::Complex128 => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            Value::Array(vec![float_json(real), float_json(imaginary)])
        }
        // Padding is not part of the value.
        T::DateTime(_) | T::TimeDelta(_) => number!(i64),
        T::Raw(_) => Value::from(base64::encode(bytes)),
        T::FixedBytes(_) => {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            Value::from(base64::encode(&bytes[..end]))
        }
        T::FixedUnicode(_) => Value::from(unicode_text(bytes)),
        T::String => Value::Null,
    }
}

#[allow(clippy::host_endian_bytes)]
fn float_json(bytes: &[u8]) -> Value {
    let (value, usual_nan) = match *bytes {
        [a, b] => (f16::from_ne_bytes([a, b]).to_f64(), 0x7e00),
        [a, b, c, d] => (f64::from(f32::from_ne_bytes([a, b, c, d])), 0x7fc0_0000),
        [a, b, c, d, e, f, g, h] => {
            (f64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0x7ff8_0000_0000_0000)
        }
        _ => return Value::Null,
    };
    if value.is_nan() {
        let mut raw = bytes.to_vec();
        if cfg!(target_endian = "little") {
            raw.reverse();
        }
        let bits = raw.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        return if bits == usual_nan {
            Value::from("NaN")
        } else {
            Value::from(format!("0x{bits:0width$x}", width = bytes.len() * 2))
        };
    }
    if value.is_infinite() {
        return Value::from(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    // Writes a 32-bit float with the fewest digits that restore it.
    if let [a, b, c, d] = *bytes {
        let short = f32::from_ne_bytes([a, b, c, d]).to_string().parse().unwrap_or(value);
        return Number::from_f64(short).map_or(Value::Null, Value::Number);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_type_writes_what_it_reads() {
        let cases = [
            (DataType::Bool, json!(true)),
            (DataType::Int8, json!(-128)),
            (DataType::UInt64, json!(u64::MAX)),
            (DataType::Int64, json!(i64::MIN)),
            (DataType::Float16, json!("NaN")),
            (DataType::Float32, json!(0.1)),
            (DataType::Float32, json!("0x7fc00001")),
            (DataType::Float64, json!("-Infinity")),
            (DataType::Float64, json!(1e300)),
            (DataType::Complex64, json!([1.5, "NaN"])),
            (DataType::Complex128, json!([0.25, -2.0])),
            (DataType::String, json!("none")),
            (DataType::FixedUnicode(4), json!("n/a")),
            (DataType::FixedUnicode(2), json!("\u{e9}\u{1f600}")),
            (DataType::Raw(3), json!("YWIA")),
            (parsed("<M8[ns]"), json!(-1)),
            (parsed("<m8[25s]"), json!(i64::MIN)),
        ];
        for (data_type, value) in cases {
            let fill = FillValue::parse(&value, data_type).unwrap();
            assert_eq!(fill.to_json(data_type), value, "{data_type}");
        }
    }

    fn parsed(name: &str) -> DataType {
        DataType::parse_numpy(name).unwrap().0
    }

    #[test]
    fn not_a_time_has_a_word_and_is_the_fill_value_where_none_is_given() {
        let least = FillValue::parse(&json!(i64::MIN), parsed("<M8[s]")).unwrap();
        for value in [json!("NaT"), json!(null)] {
            assert_eq!(FillValue::parse(&value, parsed("<M8[s]")).unwrap(), least);
            assert_eq!(FillValue::parse(&value, parsed("<m8[s]")).unwrap(), least);
        }
    }

    #[test]
    fn values_that_the_type_cannot_hold_are_refused() {
        for (data_type, value) in [
            (DataType::Int8, json!(128)),
            (DataType::UInt8, json!(-1)),
            (DataType::Int32, json!(1.5)),
            (DataType::Float32, json!("0x7fc0")),
            (DataType::Float64, json!("nan")),
            (DataType::Complex64, json!([1, 2, 3])),
            (DataType::Bool, json!("yes")),
            (DataType::String, json!(["a"])),
            (DataType::FixedUnicode(2), json!("n/a")),
            (DataType::Raw(2), json!("YWJj")),
            (parsed("<M8[s]"), json!("never")),
            (parsed("<M8[s]"), json!(1.5)),
        ] {
            assert!(FillValue::parse(&value, data_type).is_err(), "{data_type} {value}");
        }
    }

    #[test]
    fn quoted_numbers_of_v2_are_read_where_their_text_has_one_meaning() {
        for (data_type, quoted, plain) in [
            (DataType::Int32, "0", json!(0)),
            (DataType::Int32, " +7 ", json!(7)),
            (DataType::Int64, "-9223372036854775808", json!(i64::MIN)),
            (DataType::UInt64, "18446744073709551615", json!(u64::MAX)),
            (DataType::Float32, "1e20", json!(1e20)),
            (DataType::Float64, "nan", json!("NaN")),
            (DataType::Float64, "-inf", json!("-Infinity")),
            (DataType::Float32, "0x7fc00001", json!("0x7fc00001")),
            (DataType::Bool, "True", json!(true)),
            // Texts are no numbers.
            (DataType::String, "0", json!("0")),
            (DataType::FixedUnicode(2), "0", json!("0")),
        ] {
            let read = FillValue::parse_v2(&json!(quoted), data_type);
            assert_eq!(read, FillValue::parse(&plain, data_type), "{data_type} {quoted}");
        }
        for (data_type, quoted) in [
            (DataType::Int8, "128"),
            (DataType::Int32, "7.5"),
            (DataType::UInt8, "-1"),
            (DataType::Float64, ""),
            (DataType::Bool, "false"),
            (parsed("<M8[s]"), "5"),
        ] {
            assert!(
                FillValue::parse_v2(&json!(quoted), data_type).is_err(),
                "{data_type} {quoted}"
            );
        }
    }

    #[test]
    fn fixed_bytes_are_base64() {
        let fill = FillValue::parse(&json!("YWI="), DataType::FixedBytes(3)).unwrap();
        assert_eq!(fill.bytes(), b"ab\0");
        assert_eq!(fill.to_json(DataType::FixedBytes(3)), json!("YWI="));
        assert_eq!(
            FillValue::zero(DataType::FixedBytes(3)).to_json(DataType::FixedBytes(3)),
            json!("")
        );
        assert!(FillValue::parse(&json!("YWJjZA=="), DataType::FixedBytes(3)).is_err());
    }
}
