//! Attributes kept as text; they are parsed on demand.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::scan::{scan, string_end};
use super::{JsonError, NUMBER, TEXT, is_marked_word, parse_within, utf8};
use crate::Limits;

/// A JSON object as text without white space, syntactically valid; it takes no more memory than its
/// bytes. Numbers that JSON lacks are bare. Duplicate keys are detected when it is
/// [parsed](Self::parse).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectText(Arc<str>);

impl Default for ObjectText {
    fn default() -> Self {
        Self::from_compact("{}")
    }
}

impl From<&Map<String, Value>> for ObjectText {
    fn from(members: &Map<String, Value>) -> Self {
        // Serializing a value with string keys into memory cannot fail.
        let text = serde_json::to_string(members).unwrap_or_else(|_| "{}".to_owned());
        match text.contains(NUMBER) {
            true => Self(compact(&text, String::new()).into()),
            false => Self(text.into()),
        }
    }
}

impl ObjectText {
    pub(super) fn from_compact(text: &str) -> Self {
        Self(text.into())
    }

    /// Reads a document that is one object.
    ///
    /// # Errors
    /// As [`parse`](super::parse), except for duplicate keys; `Syntax` for a value that is not an
    /// object.
    pub fn from_bytes(bytes: &[u8], limits: &Limits) -> Result<Self, JsonError> {
        let size = bytes.len() as u64;
        if size > limits.metadata_bytes_max {
            return Err(JsonError::TooLarge { bytes: size, limit: limits.metadata_bytes_max });
        }
        let quoted = scan(bytes, limits.metadata_depth_max)?;
        let text = utf8(quoted.as_deref().unwrap_or(bytes))?;
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(text).map_err(|error| JsonError::Syntax(error.to_string()))?;
        match raw.get().starts_with('{') {
            true => Ok(Self(compact(raw.get(), String::new()).into())),
            false => Err(JsonError::Syntax("expected an object".to_owned())),
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a string that stands for the object in a document for
    /// [`write_with`](super::write_with).
    pub fn to_value(&self) -> Value {
        Value::String(format!("{TEXT}{}", self.0))
    }

    /// Parses the members.
    ///
    /// # Errors
    /// As [`parse`](super::parse), with [`Limits::attributes_values_bytes_max`].
    pub fn parse(&self, limits: &Limits) -> Result<Map<String, Value>, JsonError> {
        let limit = limits.attributes_values_bytes_max(self.0.len() as u64);
        match parse_within(self.0.as_bytes(), limits, limit, &[], None)? {
            Value::Object(members) => Ok(members),
            _ => Err(JsonError::Syntax("expected an object".to_owned())),
        }
    }

    /// Returns the length of the object in bytes, without white space and unnecessary escapes.
    pub fn written_bytes(&self) -> u64 {
        let mut bytes = self.0.len() as u64;
        let mut rest = self.0.as_bytes();
        while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
            rest = &rest[at..];
            let code = match rest {
                [_, b'u', digits @ ..] => digits.first_chunk().and_then(hexadecimal),
                _ => None,
            };
            // An escape has six bytes; a surrogate encodes two of the four bytes of a character.
            bytes -= match code {
                None => u64::from(rest.get(1) == Some(&b'/')),
                Some(0x08..=0x0a | 0x0c | 0x0d | 0x22 | 0x5c) => 4,
                Some(..0x20) => 0,
                Some(..0x80) => 5,
                Some(..0x800 | 0xd800..0xe000) => 4,
                Some(_) => 3,
            };
            rest = rest.get(if code.is_some() { 6 } else { 2 }..).unwrap_or_default();
        }
        bytes
    }

    /// Returns the text with the line breaks and indentation of nesting level `depth`.
    pub(super) fn indented(&self, depth: usize) -> String {
        let bytes = self.0.as_bytes();
        let mut output = String::with_capacity(bytes.len() * 2);
        let mut depth = depth;
        let mut at = 0;
        let line = |output: &mut String, depth: usize| {
            output.push('\n');
            output.extend(std::iter::repeat_n(' ', depth));
        };
        while let Some(byte) = bytes.get(at) {
            let start = at;
            at = if *byte == b'"' { string_end(bytes, at + 1) } else { at + 1 };
            if matches!(byte, b']' | b'}') {
                depth = depth.saturating_sub(1);
                line(&mut output, depth);
            }
            output.push_str(self.0.get(start..at).unwrap_or_default());
            match (byte, bytes.get(at)) {
                (b'[', Some(b']')) | (b'{', Some(b'}')) => {
                    output.push(char::from(bytes[at]));
                    at += 1;
                }
                (b'[' | b'{', _) => {
                    depth += 1;
                    line(&mut output, depth);
                }
                (b',', _) => line(&mut output, depth),
                (b':', _) => output.push(' '),
                _ => {}
            }
        }
        output
    }
}

fn hexadecimal(digits: &[u8; 4]) -> Option<u32> {
    digits.iter().try_fold(0, |code, digit| Some(code * 16 + char::from(*digit).to_digit(16)?))
}

/// Appends the text to `output`, without white space between tokens, and with bare numbers in place
/// of the strings that stand for them.
pub(super) fn compact(text: &str, mut output: String) -> String {
    let bytes = text.as_bytes();
    output.reserve_exact(bytes.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at + 1);
                if let Some(word) = text.get(at..end).and_then(bare)
                    && !is_key(&bytes[end..])
                {
                    output.push_str(text.get(copied..at).unwrap_or_default());
                    output.push_str(word);
                    copied = end;
                }
                at = end;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {
                output.push_str(text.get(copied..at).unwrap_or_default());
                let blanks = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace());
                at += blanks.count();
                copied = at;
            }
            _ => at += 1,
        }
    }
    output.push_str(text.get(copied..).unwrap_or_default());
    output
}

/// Returns the number for which the string literal stands, if any.
fn bare(string: &str) -> Option<&str> {
    let word = string.strip_prefix('"')?.strip_prefix(NUMBER)?.strip_suffix('"')?;
    is_marked_word(word.as_bytes()).then_some(word)
}

/// Returns true if the string before `rest` is a key.
fn is_key(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{object_text, parse_keeping, with_values, write};
    use super::*;

    #[test]
    fn an_object_as_text_has_its_values_and_is_written_like_them() {
        let limits = Limits::default();
        for members in [
            json!({}),
            json!({"a": 1}),
            json!({"a": [], "b": {}, "c": [1, [2.5, "x, [y]"], {"d": null}], "": {"e": {"f": [[]]}}}),
            json!({"q\"{\\": "\" : \\", "n": "\u{e000}NaN", "\u{e000}NaN": ["\u{e000}nan"], "u": "\u{1f30a}\u{e9}\n\u{1}"}),
        ] {
            let Value::Object(map) = &members else { unreachable!() };
            let text = ObjectText::from(map);
            assert_eq!(text.parse(&limits).as_ref(), Ok(map));
            assert_eq!(text.written_bytes(), text.as_str().len() as u64, "{members}");
            for depth in 0..3 {
                let read = ObjectText::from_bytes(text.indented(depth).as_bytes(), &limits);
                assert_eq!(read, Ok(text.clone()));
            }
            let document = json!({"x": 1, "attributes": members});
            let packed = json!({"x": 1, "attributes": text.to_value()});
            let (whole, packed) = (write(&document), write(&packed));
            assert_eq!(String::from_utf8(whole), String::from_utf8(packed));
        }
    }

    #[test]
    fn bytes_are_counted_as_they_are_written() {
        let limits = Limits::default();
        for text in [
            r#"{"b":"\u0000\u0008\u000A\u001f\u007f\u0080\u07ff\u0800\uffff"}"#,
            r#"{"a": "\u00e9\u0041\u0022\u005c\u0001\ud83c\udf0a\u2603\n\\u0041", "\/": 1 }"#,
            r#"{"\\": "\\u"}"#,
        ] {
            let read = ObjectText::from_bytes(text.as_bytes(), &limits).unwrap();
            let written = ObjectText::from(&read.parse(&limits).unwrap());
            assert_eq!(read.written_bytes(), written.as_str().len() as u64, "{written:?}");
        }
        let nan = ObjectText::from_bytes(br#"{"a": [NaN, -Infinity]}"#, &limits).unwrap();
        assert_eq!(nan.as_str(), r#"{"a":[NaN,-Infinity]}"#);
        assert_eq!(nan.parse(&limits).unwrap()["a"][0], "\u{e000}NaN");
    }

    #[test]
    fn many_small_objects_are_read_and_values_that_outweigh_their_text_are_not() {
        let limits = Limits::default();
        let read = |item: &str, count: usize| {
            let text = format!(r#"{{"a": [{}]}}"#, vec![item; count].join(", "));
            ObjectText::from_bytes(text.as_bytes(), &limits).unwrap().parse(&limits)
        };
        let label = r#"{"label-value": 12, "rgba": [255, 0, 0, 255]}"#;
        assert_eq!(read(label, 100_000).unwrap()["a"].as_array().unwrap().len(), 100_000);
        assert!(read("12.3456", 1 << 19).is_ok());
        for dense in ["1", "[]", "{}", "[[0]]", r#"{"a":0}"#, r#""""#, "NaN"] {
            let refused = read(dense, 4 << 20);
            assert!(matches!(refused, Err(JsonError::TooManyValues { .. })), "{dense}");
        }
    }

    #[test]
    fn attributes_of_a_document_stay_text_if_they_are_an_object() {
        let limits = Limits::default();
        let read = |text: &str| parse_keeping(text.as_bytes(), &limits, []).unwrap().0;
        let document = read(r#"{"b": {"attributes": {"x": 1}}, "attributes": { "k": [NaN, {}] }}"#);
        let text = object_text(&document["attributes"]).unwrap();
        assert_eq!(text.as_str(), r#"{"k":[NaN,{}]}"#);
        assert_eq!(document["b"], json!({"attributes": {"x": 1}}));
        let values = with_values(document.clone(), &limits).unwrap();
        assert_eq!(values["attributes"], json!({"k": ["\u{e000}NaN", {}]}));
        assert_eq!(write(&document), write(&values));
        for other in ["[1]", "null", "1", "\"\u{e001}{}\"", r#""\ue001{\"a\":1}""#] {
            let document = read(&format!(r#"{{"attributes": {other}}}"#));
            assert_eq!(object_text(&document["attributes"]), None, "{other}");
        }
        assert!(parse_keeping(br#"{"attributes": {}, "attributes": {}}"#, &limits, []).is_err());
    }

    #[test]
    fn what_is_no_object_is_none() {
        let limits = Limits::default();
        for text in ["", "[]", "1", "{", "{} {}", "{\"a\":}", "\"{}\""] {
            assert!(ObjectText::from_bytes(text.as_bytes(), &limits).is_err(), "{text}");
        }
        let twice = ObjectText::from_bytes(br#"{"a": {"b": 1, "b": 2}}"#, &limits).unwrap();
        assert!(twice.parse(&limits).is_err());
    }
}
