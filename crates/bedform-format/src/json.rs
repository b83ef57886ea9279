//! JSON documents: those that come from outside, read strictly, and the bytes of our own.
//!
//! Refused: documents over the limits of size and depth, keys that appear twice in an object (two
//! readers would disagree on which counts), anything behind the document but white space. Taken,
//! although JSON has no such tokens: bare `NaN`, `Infinity` and `-Infinity`, which zarr-python
//! writes into attributes. They become strings that start with [`NON_FINITE`]; see
//! [`non_finite`]. [`write()`] makes of such strings what they stand for: zarr-python and xarray
//! read the same numbers. Nothing but an attribute has them.

use serde::Serialize;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Limits;

/// First character of the string that stands for a bare `NaN`, `Infinity` or `-Infinity`. It is of
/// the private use area, so no text of a user starts with it.
pub const NON_FINITE: char = '\u{e000}';

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// More bytes than [`Limits::metadata_bytes_max`].
    #[error("the document has {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// Bytes of the document.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Nested deeper than [`Limits::metadata_depth_max`].
    #[error("the document is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// Not JSON, or a key twice.
    #[error("not valid JSON: {0}")]
    Syntax(String),
}

/// Reads a document.
///
/// ```
/// use bedform_format::{json, Limits};
/// let limits = Limits::default();
/// assert!(json::parse(br#"{"a": [1, NaN]}"#, &limits).is_ok());
/// assert!(json::parse(br#"{"a": 1, "a": 2}"#, &limits).is_err());
/// ```
///
/// # Errors
/// [`JsonError`] for everything that the module header refuses.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Value, JsonError> {
    let size = bytes.len() as u64;
    if size > limits.metadata_bytes_max {
        return Err(JsonError::TooLarge { bytes: size, limit: limits.metadata_bytes_max });
    }
    let quoted = scan(bytes, limits.metadata_depth_max)?;
    let text = quoted.as_deref().unwrap_or(bytes);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| JsonError::Syntax(error.to_string()))?;
    Ok(value)
}

/// The number that a string of [`parse`] stands for, if it stands for one that JSON lacks.
pub fn non_finite(text: &str) -> Option<f64> {
    match text.strip_prefix(NON_FINITE)? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Checks the depth, and gives the document with bare non-finite numbers as strings if it has any.
fn scan(bytes: &[u8], depth_max: usize) -> Result<Option<Vec<u8>>, JsonError> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut output: Option<Vec<u8>> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return Err(JsonError::TooDeep { limit: depth_max });
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            b'N' | b'I' | b'-' if !in_string => {
                let rest = &bytes[at..];
                let words: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
                if let Some(word) = words.iter().find(|word| rest.starts_with(word)) {
                    let output = output.get_or_insert_with(|| Vec::with_capacity(bytes.len() + 64));
                    output.extend_from_slice(&bytes[copied..at]);
                    output.push(b'"');
                    output.extend_from_slice(NON_FINITE.encode_utf8(&mut [0; 4]).as_bytes());
                    output.extend_from_slice(word);
                    output.push(b'"');
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(output.map(|mut output| {
        output.extend_from_slice(&bytes[copied..]);
        output
    }))
}

/// The bytes of a document, as they are stored: indented by one, strings that stand for numbers which
/// JSON lacks as bare `NaN`, `Infinity` and `-Infinity`.
///
/// ```
/// use bedform_format::{json, Limits};
/// let document = json::parse(br#"{"a": [1, NaN]}"#, &Limits::default())?;
/// assert_eq!(json::write(&document), b"{\n \"a\": [\n  1,\n  NaN\n ]\n}");
/// # Ok::<(), json::JsonError>(())
/// ```
pub fn write(document: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing a value with string keys into memory cannot fail.
    let _ = document.serialize(&mut serializer);
    let mut mark = [0; 4];
    let mark = NON_FINITE.encode_utf8(&mut mark).as_bytes();
    match bytes.windows(mark.len()).any(|window| window == mark) {
        true => with_bare_numbers(&bytes, mark),
        false => bytes,
    }
}

/// Replaces the strings, but not the keys, that are a `mark` and the word for a number.
fn with_bare_numbers(bytes: &[u8], mark: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let length = if *first == b'"' { string_length(rest) } else { 1 };
        let inner = rest.get(1..length.saturating_sub(1)).unwrap_or_default();
        let is_key = rest.get(length) == Some(&b':');
        match inner.strip_prefix(mark) {
            Some(word @ (b"NaN" | b"Infinity" | b"-Infinity")) if !is_key => {
                output.extend_from_slice(word);
            }
            _ => output.extend_from_slice(rest.get(..length).unwrap_or(rest)),
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    output
}

/// Bytes of the string that `bytes` start with, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Builds a [`Value`] and refuses a key that an object has already.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if map.contains_key(&key) {
                let short: String = key.chars().take(80).collect();
                return Err(de::Error::custom(format!("the key {short:?} appears twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Value, JsonError> {
        parse(text.as_bytes(), &Limits::default())
    }

    #[test]
    fn bare_non_finite_numbers_are_told_from_the_same_words_in_strings() {
        let value = parse_text(r#"{"a": NaN, "b": [-Infinity, Infinity], "c": "NaN \" NaN"}"#);
        let value = value.unwrap();
        assert!(non_finite(value["a"].as_str().unwrap()).unwrap().is_nan());
        assert_eq!(non_finite(value["b"][0].as_str().unwrap()), Some(f64::NEG_INFINITY));
        assert_eq!(value["c"], "NaN \" NaN");
        assert_eq!(non_finite("NaN"), None);
    }

    #[test]
    fn what_stands_for_a_number_is_written_as_one_and_nothing_else_is() {
        let text = r#"{"a": [NaN, -Infinity, {"b": Infinity}], "NaN": "NaN", "q": "\"\\"}"#;
        let mut value = parse_text(text).unwrap();
        // Another text that has the mark, one that ends in what stands for a number, and a key.
        for (key, other) in [("c", "\u{e000}x"), ("d", "\"\u{e000}NaN"), ("e", "\u{e000}NaN\"")] {
            value[key] = Value::String(other.to_owned());
        }
        value["\u{e000}NaN"] = Value::from(1);
        let written = String::from_utf8(write(&value)).unwrap();
        assert_eq!(parse_text(&written), Ok(value), "{written}");
        assert_eq!(written.matches('\u{e000}').count(), 4, "{written}");
    }

    #[test]
    fn a_document_a_million_levels_deep_is_refused_by_its_depth() {
        let text = "[".repeat(1_000_000);
        assert_eq!(parse_text(&text), Err(JsonError::TooDeep { limit: 64 }));
        let nested = format!("{}{}", "[".repeat(64), "]".repeat(64));
        assert!(parse_text(&nested).is_ok());
    }

    #[test]
    fn a_key_twice_is_refused_at_any_level() {
        assert!(parse_text(r#"{"a": {"b": 1, "b": 1}}"#).is_err());
        assert!(parse_text(r#"{"a": {"b": 1}, "c": {"b": 1}}"#).is_ok());
    }

    #[test]
    fn text_behind_the_document_is_refused() {
        assert!(parse_text("{} x").is_err());
        assert!(parse_text("{} \n").is_ok());
        assert!(parse_text("{}\0\0").is_err());
        assert!(parse_text("").is_err());
    }
}
