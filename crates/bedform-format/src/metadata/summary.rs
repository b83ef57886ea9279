//! Summaries of documents in consolidated metadata, for listings; much cheaper than parsing the
//! documents.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::parse_hex;
use crate::Limits;
use crate::json::{JsonError, JsonText};

/// The properties of a node in a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSummary {
    /// True for an array, false for a group.
    pub is_array: bool,
    /// The identity of an array that Bedform made.
    pub key: Option<[u8; 16]>,
    /// Length of each axis, for an array.
    pub shape: Option<Vec<u64>>,
}

/// The fields of a document that a summary needs.
#[derive(Deserialize)]
struct SummaryFields<'a> {
    #[serde(borrow)]
    node_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    bedform: Option<Own<'a>>,
    shape: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct Own<'a> {
    #[serde(borrow)]
    array: Option<Cow<'a, str>>,
}

impl NodeSummary {
    /// Returns the summary of the document `text`.
    ///
    /// # Errors
    /// As [`JsonText::parse`], if these fields have unexpected types.
    pub fn of(text: &JsonText, limits: &Limits) -> Result<Self, JsonError> {
        let Ok(fields) = serde_json::from_str::<SummaryFields<'_>>(text.as_str()) else {
            return Ok(Self::of_value(&text.parse(limits)?));
        };
        let key = fields.bedform.and_then(|own| parse_hex(&own.array?));
        Ok(Self {
            is_array: fields.node_type.is_some_and(|kind| kind == "array"),
            key,
            shape: fields.shape,
        })
    }

    /// Returns the summary of a parsed document.
    pub fn of_value(document: &Value) -> Self {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let key = document.get("bedform").and_then(|own| text(own.get("array")));
        let shape = document.get("shape").and_then(Value::as_array);
        Self {
            is_array: text(document.get("node_type")).is_some_and(|kind| kind == "array"),
            key: key.and_then(|key| parse_hex(&key)),
            shape: shape.and_then(|shape| shape.iter().map(Value::as_u64).collect()),
        }
    }

    /// Returns identity and shape, if Bedform made the array.
    pub fn key_and_shape(self) -> Option<([u8; 16], Vec<u64>)> {
        Some((self.key?, self.shape?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_is_what_the_built_document_says() {
        let key = "0123456789abcdef0123456789abcdef";
        for document in [
            json!({"node_type": "array", "shape": [1, 2], "bedform": {"array": key}, "x": [{"shape": 1}]}),
            json!({"node_type": "group", "attributes": {"node_type": "array"}}),
            json!({"node_type": "array", "shape": [-1], "bedform": {"array": key}}),
            json!({"node_type": "array", "shape": "1", "bedform": {"array": "no key"}}),
            json!({"node_type": 1, "shape": [1.5], "bedform": 3}),
            json!({"node_type": "\u{61}rray", "shape": null, "bedform": null}),
            json!([]),
            json!("array"),
        ] {
            let summary = NodeSummary::of(&JsonText::of(&document, 0), &Limits::default());
            assert_eq!(summary, Ok(NodeSummary::of_value(&document)), "{document}");
        }
    }
}
