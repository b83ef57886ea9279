//! Members of objects kept as text; they are parsed on demand.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::scan::scan;
use super::{ATTRIBUTES, JsonError, object_text, parse, unmarked};
use crate::Limits;

/// Members of an object, by key.
pub type Texts = BTreeMap<String, JsonText>;

/// Members of one object of a document, with the keys that lead to the object.
pub type KeptTexts<'a> = (&'a [&'a str], &'a Texts);

/// A syntactically valid JSON value as text; it takes no more memory than its bytes.
#[derive(Debug, Clone)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    pub(super) fn from_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }

    /// Returns the text of a value, with the line breaks and indentation of nesting level `depth`
    /// in the output of [`write`](super::write).
    pub fn of(value: &Value, depth: usize) -> Self {
        let document = DocumentWithTexts { value, kept: Vec::new(), is_root: true };
        let text = String::from_utf8(indented(&document)).unwrap_or_default();
        // String literals contain no bare line breaks.
        let text = text.replace('\n', &format!("\n{}", " ".repeat(depth)));
        Self(RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// Returns the text. As in values, strings stand for numbers that JSON lacks.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Parses the value.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse(&self, limits: &Limits) -> Result<Value, JsonError> {
        parse(self.as_str().as_bytes(), limits)
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// As [`write`](super::write), with the members `kept` of objects that are empty in the document.
pub fn write_with(document: &Value, kept: &[KeptTexts<'_>]) -> Vec<u8> {
    unmarked(indented(&DocumentWithTexts { value: document, kept: kept.to_vec(), is_root: true }))
}

fn indented(document: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Serializing a value with string keys into memory cannot fail.
    let _ = document.serialize(&mut serializer);
    bytes
}

/// A value together with the kept members of its objects.
struct DocumentWithTexts<'a> {
    value: &'a Value,
    kept: Vec<KeptTexts<'a>>,
    /// True for the document itself, whose attributes may be text.
    is_root: bool,
}

impl Serialize for DocumentWithTexts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some((_, texts)) = self.kept.iter().find(|(path, _)| path.is_empty()) {
            return serializer.collect_map(texts.iter().map(|(key, text)| (key, &text.0)));
        }
        match self.value {
            Value::Object(members) if self.is_root || !self.kept.is_empty() => serializer
                .collect_map(members.iter().map(|(key, value)| (key, self.member(key, value)))),
            value => value.serialize(serializer),
        }
    }
}

impl<'a> DocumentWithTexts<'a> {
    fn member(&self, key: &str, value: &'a Value) -> DocumentMember<'a> {
        if self.is_root
            && key == ATTRIBUTES
            && let Some(text) = object_text(value)
            && let Some(raw) = raw(text.indented(1))
        {
            return DocumentMember::Text(raw);
        }
        let below = self.kept.iter().filter_map(|(path, texts)| {
            let (first, path) = path.split_first()?;
            (*first == key).then_some((path, *texts))
        });
        DocumentMember::DocumentWithTexts(DocumentWithTexts {
            value,
            kept: below.collect(),
            is_root: false,
        })
    }
}

/// Returns a text with strings for numbers that JSON lacks; [`unmarked`] makes them bare again.
fn raw(text: String) -> Option<Box<RawValue>> {
    // The depth was checked when the text was read.
    let quoted = scan(text.as_bytes(), usize::MAX).ok()?;
    let text = quoted.map_or(Some(text), |quoted| String::from_utf8(quoted).ok());
    RawValue::from_string(text?).ok()
}

/// A member of a document, ready to serialize.
enum DocumentMember<'a> {
    Text(Box<RawValue>),
    DocumentWithTexts(DocumentWithTexts<'a>),
}

impl Serialize for DocumentMember<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(raw) => raw.serialize(serializer),
            Self::DocumentWithTexts(filled) => filled.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{parse_keeping, write};
    use super::*;

    const PATHS: [&[&str]; 2] = [&["a", "b"], &["a", "c", "b"]];

    #[test]
    fn what_is_kept_as_text_is_written_as_it_was_read() {
        let document = json!({
            "x": {"b": [1]},
            "a": {"b": {"g": {"k": [1, {"n": "\u{e000}NaN"}], "l": {}}, "h": 2}, "c": {"b": {"": {"m": []}}}},
        });
        let bytes = write(&document);
        let limits = Limits::default();
        let (emptied, [first, second]) = parse_keeping(&bytes, &limits, PATHS).unwrap();
        assert_eq!(emptied, json!({"x": {"b": [1]}, "a": {"b": {}, "c": {"b": {}}}}));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first["g"].parse(&limits).unwrap(), document["a"]["b"]["g"]);
        let kept = [(PATHS[0], &first), (PATHS[1], &second)];
        assert_eq!(String::from_utf8(write_with(&emptied, &kept)), String::from_utf8(bytes));
        // A text made from a value equals the text that was read.
        assert_eq!(JsonText::of(&document["a"]["b"]["g"], 3), first["g"]);
    }

    #[test]
    fn texts_have_valid_syntax_and_no_key_twice() {
        let limits = Limits::default();
        for refused in [
            r#"{"a": {"b": {"t": [1,]}}}"#,
            r#"{"a": {"b": {"t": 1, "t": 1}}}"#,
            r#"{"a": {"b": {"t": 1}"#,
        ] {
            assert!(parse_keeping(refused.as_bytes(), &limits, PATHS).is_err(), "{refused}");
        }
        let text = br#"{"a": {"b": {"t": {"k": 1, "k": 2}}}}"#;
        let (_, [texts, none]) = parse_keeping(text, &limits, PATHS).unwrap();
        assert!(texts.unwrap()["t"].parse(&limits).is_err());
        assert!(none.is_none());
        let (document, [texts, _]) =
            parse_keeping(br#"{"a": {"b": [{}]}}"#, &limits, PATHS).unwrap();
        assert_eq!((document, texts), (json!({"a": {"b": [{}]}}), None));
    }
}
