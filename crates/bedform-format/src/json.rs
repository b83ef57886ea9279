//! JSON documents: those that come from outside, read strictly, and the bytes of our own.
//!
//! Refused: documents over the limits of size and depth, keys that appear twice in an object (two
//! readers would disagree on which counts), anything behind the document but white space, and values that
//! would take far more memory than the document has bytes. Taken,
//! although JSON has no such tokens: bare `NaN`, `Infinity` and `-Infinity`, which zarr-python
//! writes into attributes. They, and integers that 64 bits do not hold, become strings that start with
//! [`NUMBER`]; see [`marked_number`]. [`write()`] makes of such strings what they stand for: zarr-python and
//! xarray read the same numbers. Nothing but an attribute has them.
//!
//! Escapes of halves of UTF-16 pairs that stand alone, which Python writes, are taken and written again, too:
//! [`codes_of`] has the codes of such a text.
//!
//! What is rarely looked at, and may be much, can stay text: members of an object (those of consolidated
//! metadata) as [`JsonText`], the attributes of a document in their place, see [`parse_keeping`],
//! [`object_text`] and [`write_with`].

mod compact;
mod scan;
mod strict;
mod surrogates;
mod texts;

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

use crate::Limits;
use scan::scan;
use strict::{Budget, Slot, Strict};

pub use compact::ObjectText;
pub use surrogates::{codes_of, text_of_bytes, text_of_codes};
pub use texts::{JsonText, Kept, Texts, write_with};

/// First character of the string that stands for a bare `NaN`, `Infinity` or `-Infinity`, or for an integer that
/// 64 bits do not hold. It is of the private use area, so no text of a user starts with it.
pub const NUMBER: char = '\u{e000}';

/// Digits of the least integer that 64 bits may not hold.
const LARGE_DIGITS: usize = 19;
/// Digits of the integers that other readers take: Python's.
const DIGITS_MAX: usize = 4300;

/// First character of the string that stands for the attributes of a document that stay text; of the private
/// use area, too. No document from outside has it there: see [`parse_keeping`].
const TEXT: char = '\u{e001}';

/// The member of a document that stays text where [`parse_keeping`] reads it.
const ATTRIBUTES: &str = "attributes";

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
    /// More memory than [`Limits::values_bytes_max`].
    #[error(
        "the document's {bytes} bytes hold so many values that they would take more than {limit} bytes of \
         memory"
    )]
    TooManyValues {
        /// Bytes of the document.
        bytes: u64,
        /// The limit.
        limit: u64,
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
    parse_within(bytes, limits, limits.values_bytes_max(bytes.len() as u64), &[], None)
}

/// The JSON object that a user gives as `text`. (The library's own parser takes one of its keys for a sign, and the
/// last of two equal keys for both.)
///
/// # Errors
/// As [`parse`]; `Syntax` for any other value.
pub fn parse_object(text: &str, limits: &Limits) -> Result<Map<String, Value>, JsonError> {
    match parse(text.as_bytes(), limits)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError::Syntax("expected an object".to_owned())),
    }
}

/// Fails for a document that is nested deeper than readers allow.
///
/// # Errors
/// `TooDeep`.
pub fn check_depth(bytes: &[u8], limits: &Limits) -> Result<(), JsonError> {
    scan(bytes, limits.metadata_depth_max).map(drop)
}

/// As [`parse`]; the members of the objects at the paths `kept` stay text, and the objects are empty in the
/// document. `None` where a path leads to no object. If `attributes` of the document is an object, it stays
/// text in its place: [`object_text`] has it.
///
/// ```
/// use bedform_format::{json, Limits};
/// let document = br#"{"a": {"b": {"x": [1, 2]}}}"#;
/// let (document, [texts]) = json::parse_keeping(document, &Limits::default(), [&["a", "b"]])?;
/// assert_eq!(document.to_string(), r#"{"a":{"b":{}}}"#);
/// assert_eq!(texts.unwrap()["x"].as_str(), "[1, 2]");
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
/// As [`parse`]. Of the texts only the syntax is checked: [`JsonText::parse`] does the rest.
pub fn parse_keeping<const N: usize>(
    bytes: &[u8],
    limits: &Limits,
    kept: [&[&str]; N],
) -> Result<(Value, [Option<Texts>; N]), JsonError> {
    let texts = [const { std::cell::RefCell::new(None) }; N];
    let slots: Vec<Slot<'_>> =
        kept.iter().zip(&texts).map(|(path, texts)| Slot { path, texts }).collect();
    let limit = limits.values_bytes_max(bytes.len() as u64);
    let document = parse_within(bytes, limits, limit, &slots, Some(ATTRIBUTES))?;
    Ok((document, texts.map(std::cell::RefCell::into_inner)))
}

/// The document with the values of its attributes, if they stayed text.
///
/// # Errors
/// As [`ObjectText::parse`].
pub fn with_values(mut document: Value, limits: &Limits) -> Result<Value, JsonError> {
    if let Some(attributes) = document.get_mut(ATTRIBUTES)
        && let Some(text) = object_text(attributes)
    {
        *attributes = Value::Object(text.parse(limits)?);
    }
    Ok(document)
}

/// The text of attributes that [`parse_keeping`] left in their place, which is that of `value`.
pub fn object_text(value: &Value) -> Option<ObjectText> {
    Some(ObjectText::from_compact(value.as_str()?.strip_prefix(TEXT)?))
}

/// As [`parse`], with `values_max` bytes of memory for values.
fn parse_within(
    bytes: &[u8],
    limits: &Limits,
    values_max: u64,
    kept: &[Slot<'_>],
    as_text: Option<&str>,
) -> Result<Value, JsonError> {
    let size = bytes.len() as u64;
    if size > limits.metadata_bytes_max {
        return Err(JsonError::TooLarge { bytes: size, limit: limits.metadata_bytes_max });
    }
    let quoted = scan(bytes, limits.metadata_depth_max)?;
    let text = utf8(quoted.as_deref().unwrap_or(bytes))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let budget = Budget::new(values_max);
    let value = Strict { budget: &budget, kept, as_text }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| match budget.is_spent() {
        true => JsonError::TooManyValues { bytes: size, limit: values_max },
        false => JsonError::Syntax(error.to_string()),
    })
}

/// Checked at once: each string would be checked by itself otherwise.
fn utf8(bytes: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(bytes).map_err(|error| JsonError::Syntax(error.to_string()))
}

/// The number that a string of [`parse`] stands for, if it stands for one; the nearest one to an integer.
///
/// ```
/// use bedform_format::{json, Limits};
/// let document = json::parse(br#"{"a": 18446744073709551616}"#, &Limits::default())?;
/// assert_eq!(json::marked_number(document["a"].as_str().unwrap()), Some(18_446_744_073_709_551_616.0));
/// # Ok::<(), json::JsonError>(())
/// ```
pub fn marked_number(text: &str) -> Option<f64> {
    match text.strip_prefix(NUMBER)? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        word if is_large_integer(word.as_bytes()) => word.parse().ok(),
        _ => None,
    }
}

/// True for a bare word that stands for a number which a value does not hold.
fn is_marked_word(word: &[u8]) -> bool {
    matches!(word, b"NaN" | b"Infinity" | b"-Infinity") || is_large_integer(word)
}

/// True for an integer of JSON that 64 bits do not hold.
fn is_large_integer(word: &[u8]) -> bool {
    if word.len() < LARGE_DIGITS {
        return false;
    }
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_integer = digits.iter().all(u8::is_ascii_digit) && digits.first() != Some(&b'0');
    let holds = |text: &str| text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    (LARGE_DIGITS..=DIGITS_MAX).contains(&digits.len())
        && is_integer
        && !std::str::from_utf8(word).is_ok_and(holds)
}

/// The bytes of a document, as they are stored: indented by one, and with bare numbers in the place of the
/// strings that stand for them.
///
/// ```
/// use bedform_format::{json, Limits};
/// let document = json::parse(br#"{"a": [1, NaN]}"#, &Limits::default())?;
/// assert_eq!(json::write(&document), b"{\n \"a\": [\n  1,\n  NaN\n ]\n}");
/// # Ok::<(), json::JsonError>(())
/// ```
pub fn write(document: &Value) -> Vec<u8> {
    write_with(document, &[])
}

/// `bytes` with bare numbers in the place of the strings that stand for them.
fn unmarked(bytes: Vec<u8>) -> Vec<u8> {
    let bytes = surrogates::unmarked(bytes);
    let mut mark = [0; 4];
    let mark = NUMBER.encode_utf8(&mut mark).as_bytes();
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
            Some(word) if !is_key && is_marked_word(word) => {
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
        assert!(marked_number(value["a"].as_str().unwrap()).unwrap().is_nan());
        assert_eq!(marked_number(value["b"][0].as_str().unwrap()), Some(f64::NEG_INFINITY));
        assert_eq!(value["c"], "NaN \" NaN");
        assert_eq!(marked_number("NaN"), None);
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
    fn a_document_whose_values_outweigh_it_is_refused_and_one_whose_values_do_not_is_not() {
        let limits = Limits::default();
        let many = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        let keys = |count: usize| {
            let entries: Vec<_> = (0..count).map(|key| format!("\"k{key}\":0")).collect();
            format!("{{{}}}", entries.join(","))
        };
        for dense in [
            many("1", 4 << 20),
            many("[]", 4 << 20),
            many("{}", 1 << 20),
            many("{\"a\":0}", 1 << 20),
            many("[[0]]", 1 << 20),
            many("\"\"", 4 << 20),
            keys(3_000_000),
        ] {
            let refused = parse_text(&dense);
            assert!(matches!(refused, Err(JsonError::TooManyValues { .. })), "{:.40}", dense);
            assert!(!refused.unwrap_err().to_string().contains("line"));
        }
        for usual in [
            many("12.3456", 1 << 19),
            many("\"some words of a sentence\"", 1 << 19),
            many("{\"label-value\": 12, \"rgba\": [255, 0, 0, 255]}", 20_000),
            format!("\"{}\"", "x".repeat(40 << 20)),
        ] {
            assert!(parse(usual.as_bytes(), &limits).is_ok(), "{:.40}", usual);
        }
        let less = Limits { values_bytes_free: 0, ..Limits::default() };
        assert!(parse(many("12.3456", 10).as_bytes(), &less).is_err());
    }

    #[test]
    fn text_behind_the_document_is_refused() {
        assert!(parse_text("{} x").is_err());
        assert!(parse_text("{} \n").is_ok());
        assert!(parse_text("{}\0\0").is_err());
        assert!(parse_text("").is_err());
    }
}
