//! The choice of an array's codecs, stored under the key `bedform` of its document.
//!
//! An array with **open** codecs has no shard yet. Its document names codecs with which other
//! programs can read an empty array; the first write replaces them. The `bedform` key of such a
//! document has version 2. A program that does not know version 2 refuses the array and so cannot
//! write shards with the wrong codecs. Once the codecs are chosen, the version is 1, and a note
//! lists the comparison.

use serde_json::{Map, Value, json};

/// Largest number of compared codecs; a note with more is not from Bedform.
const COMPARED_MAX: usize = 16;
/// Largest length of a candidate's name in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The state of an array's codec choice.
#[derive(Debug, Clone, PartialEq)]
pub enum CodecChoice {
    /// The first write will choose.
    Open {
        /// True if codecs outside of Zarr's core are allowed.
        beyond_zarr: bool,
    },
    /// The first write has chosen, by this comparison.
    Made(CodecComparison),
}

/// The measurements that decided the choice of codecs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CodecComparison {
    /// Bytes of elements that each candidate encoded; 0 if there was no sample.
    pub sampled_bytes: u64,
    /// Bandwidth of the storage for which reads were predicted, in bytes per second.
    pub read_bytes_per_second: f64,
    /// The candidates; the chosen one is first.
    pub compared: Vec<ComparedCodec>,
}

/// One candidate of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCodec {
    /// Its name, as `bedform info` shows it.
    pub name: String,
    /// Encoded bytes per byte of elements.
    pub size: f64,
    /// Bytes of elements per second that one core decodes.
    pub decode_bytes_per_second: f64,
}

impl CodecChoice {
    /// Returns true if the first write will choose.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Returns the choice in its JSON form.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Open { beyond_zarr } => json!({"open": true, "beyond_zarr": beyond_zarr}),
            Self::Made(comparison) => comparison.to_value(),
        }
    }

    /// Parses a choice; `None` for a note that Bedform did not write, which is for people.
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
    /// Returns the comparison in its JSON form.
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

    /// Returns the encoded bytes per byte of elements of the chosen codecs, as sampled.
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

/// Rounds to four digits; more are noise.
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
