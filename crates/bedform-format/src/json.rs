//! JSON: a strict parser for documents from outside, and the writer of our own.
//!
//! The parser refuses documents over the limits of size and depth, and text after the document. It
//! refuses duplicate keys in an object, since readers would disagree on the value. It also refuses
//! values that would take far more memory than the document has bytes. It accepts bare `NaN`,
//! `Infinity` and `-Infinity`, which JSON lacks but zarr-python writes into attributes.
//!
//! Such numbers, and integers beyond 64 bits, become strings that start with [`NUMBER`]; see
//! [`marked_number`]. [`write()`] turns these strings back into bare numbers, which zarr-python and
//! xarray can read. Only attributes have them.
//!
//! Escapes of unpaired UTF-16 surrogates, which Python writes, survive reading and writing, too:
//! [`codes_of`] returns their codes.
//!
//! Large, rarely used parts can stay text. Members of an object, such as consolidated metadata,
//! become [`JsonText`]; attributes of a document stay in their place. See [`parse_keeping`],
//! [`object_text`] and [`write_with`].

mod compact;
mod scan;
mod strict;
mod surrogates;
mod texts;

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

use crate::{Limits, web_page};
use scan::scan;
use strict::{StrictBuilder, TextSlot, ValuesBudget};

pub use compact::ObjectText;
pub use surrogates::{codes_of, text_of_bytes, text_of_codes};
pub use texts::{JsonText, KeptTexts, Texts, write_with};

/// First character of a string that stands for a bare `NaN`, `Infinity` or `-Infinity`, or for an
/// integer beyond 64 bits. It is in the private use area, so that no user's text starts with it.
pub const NUMBER: char = '\u{e000}';

/// Number of digits of the smallest integer beyond 64 bits.
const LARGE_DIGITS: usize = 19;
/// Largest number of digits of an integer that other readers accept: Python's limit.
const DIGITS_MAX: usize = 4300;

/// First character of a string that stands for attributes kept as text; also in the private use
/// area. The parser removes it from documents: see [`parse_keeping`].
const TEXT: char = '\u{e001}';

/// The member of a document that [`parse_keeping`] keeps as text.
const ATTRIBUTES: &str = "attributes";

/// The reason why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// More bytes than [`Limits::metadata_bytes_max`].
    #[error("the document has {bytes} bytes, over the limit of {limit}")]
    TooLarge {
        /// Length of the document in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Nested deeper than [`Limits::metadata_depth_max`].
    #[error("the document is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The values need more memory than [`Limits::values_bytes_max`].
    #[error(
        "the document's {bytes} bytes hold so many values that they would take more than {limit} bytes of \
         memory"
    )]
    TooManyValues {
        /// Length of the document in bytes.
        bytes: u64,
        /// The limit in bytes of memory.
        limit: u64,
    },
    /// Not JSON, or a duplicate key.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// A web page, by its description.
    #[error("it is {0}")]
    WebPage(String),
}

/// Parses a document.
///
/// ```
/// use bedform_format::{json, Limits};
/// let limits = Limits::default();
/// assert!(json::parse(br#"{"a": [1, NaN]}"#, &limits).is_ok());
/// assert!(json::parse(br#"{"a": 1, "a": 2}"#, &limits).is_err());
/// ```
///
/// # Errors
/// [`JsonError`] for all documents that the module header excludes.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Value, JsonError> {
    parse_within(bytes, limits, limits.values_bytes_max(bytes.len() as u64), &[], None)
}

/// Parses a JSON object that a user gives as `text`. serde_json's own map would give a meaning to the
/// key that it uses for long numbers, and take the last of two equal keys.
///
/// # Errors
/// As [`parse`]; `Syntax` for a value that is not an object.
pub fn parse_object(text: &str, limits: &Limits) -> Result<Map<String, Value>, JsonError> {
    match parse(text.as_bytes(), limits)? {
        Value::Object(object) => Ok(object),
        _ => Err(JsonError::Syntax("expected an object".to_owned())),
    }
}

/// Checks that readers allow the depth of a document.
///
/// # Errors
/// `TooDeep`.
pub fn check_depth(bytes: &[u8], limits: &Limits) -> Result<(), JsonError> {
    scan(bytes, limits.metadata_depth_max).map(drop)
}

/// As [`parse`], but keeps the members of the objects at the paths `kept` as text; the objects are
/// empty in the document. The texts are `None` if no object lies at the path. If `attributes` of
/// the document is an object, it also stays text, in its place: [`object_text`] returns it.
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
/// As [`parse`]. Only the syntax of the texts is checked; [`JsonText::parse`] checks the rest.
pub fn parse_keeping<const N: usize>(
    bytes: &[u8],
    limits: &Limits,
    kept: [&[&str]; N],
) -> Result<(Value, [Option<Texts>; N]), JsonError> {
    let texts = [const { std::cell::RefCell::new(None) }; N];
    let slots: Vec<TextSlot<'_>> =
        kept.iter().zip(&texts).map(|(path, texts)| TextSlot { path, texts }).collect();
    let limit = limits.values_bytes_max(bytes.len() as u64);
    let document = parse_within(bytes, limits, limit, &slots, Some(ATTRIBUTES))?;
    Ok((document, texts.map(std::cell::RefCell::into_inner)))
}

/// Returns the document with its attributes parsed, if they were kept as text.
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

/// Returns the text of attributes that [`parse_keeping`] kept in place of a value.
pub fn object_text(value: &Value) -> Option<ObjectText> {
    Some(ObjectText::from_compact(value.as_str()?.strip_prefix(TEXT)?))
}

/// As [`parse`], with at most `values_max` bytes of memory for values.
fn parse_within(
    bytes: &[u8],
    limits: &Limits,
    values_max: u64,
    kept: &[TextSlot<'_>],
    as_text: Option<&str>,
) -> Result<Value, JsonError> {
    let size = bytes.len() as u64;
    if size > limits.metadata_bytes_max {
        return Err(JsonError::TooLarge { bytes: size, limit: limits.metadata_bytes_max });
    }
    if let Some(page) = web_page::description(bytes) {
        return Err(JsonError::WebPage(page));
    }
    let quoted = scan(bytes, limits.metadata_depth_max)?;
    let text = utf8(quoted.as_deref().unwrap_or(bytes))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let budget = ValuesBudget::new(values_max);
    let value = StrictBuilder { budget: &budget, kept, as_text }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| match budget.is_spent() {
        true => JsonError::TooManyValues { bytes: size, limit: values_max },
        false => JsonError::Syntax(error.to_string()),
    })
}

/// Checks the whole document once; otherwise each string would be checked separately.
fn utf8(bytes: &[u8]) -> Result<&str, JsonError> {
    std::str::from_utf8(bytes).map_err(|error| JsonError::Syntax(error.to_string()))
}

/// Returns the number for which a string of [`parse`] stands, if any; an integer becomes the
/// nearest float.
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

/// Returns true for a bare word of a number that a value cannot hold.
fn is_marked_word(word: &[u8]) -> bool {
    matches!(word, b"NaN" | b"Infinity" | b"-Infinity") || is_large_integer(word)
}

/// Returns true for a JSON integer beyond 64 bits.
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

/// Writes a document as it is stored: indented by one space per level, with bare numbers in place
/// of the strings that stand for them.
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

/// Replaces strings that stand for numbers by bare numbers.
fn unmarked(bytes: Vec<u8>) -> Vec<u8> {
    let bytes = surrogates::unmarked(bytes);
    let mut mark = [0; 4];
    let mark = NUMBER.encode_utf8(&mut mark).as_bytes();
    match bytes.windows(mark.len()).any(|window| window == mark) {
        true => with_bare_numbers(&bytes, mark),
        false => bytes,
    }
}

/// Replaces strings that consist of `mark` and a number; keys stay.
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

/// Returns the length in bytes of the string literal at the start of `bytes`, with its quotes.
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
        // A string with the mark and no number, one that ends like a number's string, and a key.
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
