//! How the codecs of an array were chosen, as our own key in its document keeps it.
//!
//! An array whose codecs are **open** has no shard yet: its document names codecs that other programs can
//! read an empty array by, and the first write replaces them. Such a document has version 2 of our own
//! key, so that a program that does not know this refuses the array and writes no shard by them. Once the
//! codecs are chosen the version is 1 again, and a note says what was compared.

use serde_json::{Map, Value, json};

/// Codecs that are compared at most: a note of more is none of ours.
const COMPARED_MAX: usize = 16;
/// Bytes of the name of a candidate.
const NAME_BYTES_MAX: usize = 64;

/// How the codecs of an array were chosen, or that they are not yet.
#[derive(Debug, Clone, PartialEq)]
pub enum CodecChoice {
    /// The first write chooses.
    Open {
        /// Whether codecs that are not in Zarr's core may be taken.
        beyond_zarr: bool,
    },
    /// They were chosen; what was compared.
    Made(CodecComparison),
}

/// What was compared when codecs were chosen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CodecComparison {
    /// Bytes of elements that were encoded by each candidate; 0 where none were.
    pub sampled_bytes: u64,
    /// Bytes a second of the storage that reads were predicted for.
    pub read_bytes_per_second: f64,
    /// The candidates: first the one that was taken.
    pub compared: Vec<ComparedCodec>,
}

/// One candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCodec {
    /// Its name, as `info` shows it.
    pub name: String,
    /// Encoded bytes for each byte of elements.
    pub size: f64,
    /// Bytes of elements that one core decodes in a second.
    pub decode_bytes_per_second: f64,
}

impl CodecChoice {
    /// True if the first write is to choose.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// As it stands in the document.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Open { beyond_zarr } => json!({"open": true, "beyond_zarr": beyond_zarr}),
            Self::Made(comparison) => comparison.to_value(),
        }
    }

    /// What `value` says; nothing for a note that is none of ours: it is for people.
    pub(super) fn parse(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        if object.get("open").and_then(Value::as_bool) == Some(true) {
            let beyond_zarr = object.get("beyond_zarr").and_then(Value::as_bool).unwrap_or(false);
            return Some(Self::Open { beyond_zarr });
        }
        CodecComparison::parse(object).map(Self::Made)
    }
}

impl CodecComparison {
    /// As it stands in the document.
    pub fn to_value(&self) -> Value {
        let one = |codec: &ComparedCodec| {
            json!({
                "name": codec.name,
                "size": rounded(codec.size),
                "decode_bytes_per_second": rounded(codec.decode_bytes_per_second),
            })
        };
        json!({
            "sampled_bytes": self.sampled_bytes,
            "read_bytes_per_second": rounded(self.read_bytes_per_second),
            "compared": self.compared.iter().map(one).collect::<Vec<_>>(),
        })
    }

    fn parse(object: &Map<String, Value>) -> Option<Self> {
        let listed = object.get("compared")?.as_array()?;
        if listed.len() > COMPARED_MAX {
            return None;
        }
        Some(Self {
            sampled_bytes: object.get("sampled_bytes")?.as_u64()?,
            read_bytes_per_second: positive(object.get("read_bytes_per_second"))?,
            compared: listed.iter().map(ComparedCodec::parse).collect::<Option<_>>()?,
        })
    }

    /// Encoded bytes for each byte of elements, as the sample had it.
    pub fn size(&self) -> Option<f64> {
        self.compared.first().map(|taken| taken.size)
    }
}

impl ComparedCodec {
    fn parse(value: &Value) -> Option<Self> {
        let name = value.get("name")?.as_str().filter(|name| name.len() <= NAME_BYTES_MAX)?;
        Some(Self {
            name: name.to_owned(),
            size: positive(value.get("size"))?,
            decode_bytes_per_second: positive(value.get("decode_bytes_per_second"))?,
        })
    }
}

fn positive(value: Option<&Value>) -> Option<f64> {
    value?.as_f64().filter(|number| number.is_finite() && *number >= 0.0)
}

/// Four digits: more are noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_was_written() {
        let comparison = CodecComparison {
            sampled_bytes: 1 << 20,
            read_bytes_per_second: 1.5e9,
            compared: vec![ComparedCodec {
                name: "zstd".to_owned(),
                size: 0.25,
                decode_bytes_per_second: 1.25e9,
            }],
        };
        for choice in [
            CodecChoice::Open { beyond_zarr: false },
            CodecChoice::Open { beyond_zarr: true },
            CodecChoice::Made(CodecComparison::default()),
            CodecChoice::Made(comparison),
        ] {
            assert_eq!(CodecChoice::parse(&choice.to_value()), Some(choice));
        }
    }

    #[test]
    fn a_note_that_is_none_of_ours_is_left_alone() {
        let many = vec![json!({"name": "zstd", "size": 1, "decode_bytes_per_second": 1}); 17];
        for value in [
            json!(null),
            json!("open"),
            json!({"open": 1}),
            json!({"sampled_bytes": -1, "read_bytes_per_second": 1, "compared": []}),
            json!({"sampled_bytes": 1, "read_bytes_per_second": 1, "compared": [{"name": "zstd"}]}),
            json!({"sampled_bytes": 1, "read_bytes_per_second": 1, "compared": many}),
        ] {
            assert_eq!(CodecChoice::parse(&value), None, "{value}");
        }
    }
}
