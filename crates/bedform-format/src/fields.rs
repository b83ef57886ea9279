//! Typed access to the fields of a document; errors name the path of the field.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::json::JsonError;
use crate::shown::{NAME_CHARS_MAX, printable};

type Result<T> = std::result::Result<T, MetadataError>;

/// The reason why a metadata document was refused, with the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// Not a JSON document.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// A field is missing or has an invalid value.
    #[error("{field}: {problem}")]
    Field {
        /// The field, as a path such as `codecs[1].configuration.level`.
        field: String,
        /// The broken rule.
        problem: String,
    },
    /// The document is valid but needs a feature that this version lacks.
    #[error("{field}: {feature} is not supported")]
    Unsupported {
        /// The field that needs the feature.
        field: String,
        /// The feature.
        feature: String,
    },
    /// A document that Bedform wrote, and whose bytes have changed since.
    #[error("checksum mismatch: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// The checksum in the document.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
}

/// An object of a document, with its path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'p, 'a> {
    path: &'p str,
    map: &'a Map<String, Value>,
}

pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> MetadataError {
    MetadataError::Field { field: short(field), problem: short(problem) }
}

pub(crate) fn unsupported(field: impl Into<String>, feature: impl Into<String>) -> MetadataError {
    MetadataError::Unsupported { field: short(field), feature: short(feature) }
}

/// Shortens text for an error; it may contain a name from a document, of any length.
fn short(text: impl Into<String>) -> String {
    let text = text.into();
    match printable(&text, NAME_CHARS_MAX) {
        Cow::Owned(shown) => shown,
        Cow::Borrowed(_) => text,
    }
}

/// Returns a value for a message, shortened to 60 bytes.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 60 {
        return text;
    }
    text.chars().take(57).collect::<String>() + "..."
}

/// A `{name, configuration}` object, or its short form, a string.
pub(crate) struct Named<'a> {
    /// Path of the configuration.
    pub(crate) path: String,
    pub(crate) name: &'a str,
    configuration: Option<&'a Value>,
}

static EMPTY: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| Value::Object(Map::new()));

impl<'a> Named<'a> {
    pub(crate) fn parse(path: &str, value: &'a Value) -> Result<Self> {
        if let Value::String(name) = value {
            return Ok(Self { path: format!("{path}.configuration"), name, configuration: None });
        }
        let fields = Fields::new(path, value)?;
        Ok(Self {
            path: format!("{path}.configuration"),
            name: fields.text("name")?,
            configuration: fields.get("configuration"),
        })
    }

    /// Parses the form of numcodecs: `id` and the configuration in one object.
    pub(crate) fn parse_v2(path: &str, value: &'a Value) -> Result<Self> {
        let name = Fields::new(path, value)?.text("id")?;
        Ok(Self { path: path.to_owned(), name, configuration: Some(value) })
    }

    pub(crate) fn fields(&self) -> Result<Fields<'_, '_>> {
        Fields::new(&self.path, self.configuration.unwrap_or(&EMPTY))
    }
}

impl<'p, 'a> Fields<'p, 'a> {
    pub(crate) fn new(path: &'p str, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { path, map }),
            other => Err(invalid(path, format!("expected an object, found {}", shown(other)))),
        }
    }

    /// Returns the path of a field of this object.
    pub(crate) fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a String> {
        self.map.keys()
    }

    pub(crate) fn need(&self, key: &str) -> Result<&'a Value> {
        self.get(key).ok_or_else(|| invalid(self.at(key), "missing"))
    }

    pub(crate) fn text(&self, key: &str) -> Result<&'a str> {
        let value = self.need(key)?;
        value.as_str().ok_or_else(|| {
            invalid(self.at(key), format!("expected a string, found {}", shown(value)))
        })
    }

    /// Returns an integer in `range`, or `default` if the key is missing.
    pub(crate) fn integer(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<i64>,
        default: Option<i64>,
    ) -> Result<i64> {
        let value = match (self.get(key), default) {
            (None, Some(default)) => return Ok(default),
            _ => self.need(key)?,
        };
        value.as_i64().filter(|number| range.contains(number)).ok_or_else(|| {
            invalid(
                self.at(key),
                format!(
                    "expected an integer from {} to {}, found {}",
                    range.start(),
                    range.end(),
                    shown(value)
                ),
            )
        })
    }

    /// As [`Fields::integer`], in a type that holds the whole range.
    pub(crate) fn number<T: TryFrom<i64>>(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<i64>,
        default: Option<i64>,
    ) -> Result<T> {
        let number = self.integer(key, range, default)?;
        T::try_from(number).map_err(|_| invalid(self.at(key), format!("{number} is out of range")))
    }

    pub(crate) fn boolean(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(invalid(
                self.at(key),
                format!("expected true or false, found {}", shown(other)),
            )),
        }
    }

    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value]> {
        match self.need(key)? {
            Value::Array(list) => Ok(list),
            other => Err(invalid(self.at(key), format!("expected a list, found {}", shown(other)))),
        }
    }

    /// Returns a list of at most `rank_max` lengths, each at least `least`.
    pub(crate) fn lengths(&self, key: &str, rank_max: usize, least: u64) -> Result<Vec<u64>> {
        let list = self.list(key)?;
        if list.len() > rank_max {
            return Err(invalid(
                self.at(key),
                format!("{} dimensions, over the limit of {rank_max}", list.len()),
            ));
        }
        let mut lengths = Vec::with_capacity(list.len());
        for (axis, value) in list.iter().enumerate() {
            // Some readers would take lengths beyond 63 bits for negative numbers.
            let length = value
                .as_u64()
                .filter(|length| *length >= least && i64::try_from(*length).is_ok())
                .ok_or_else(|| {
                    invalid(
                        format!("{}[{axis}]", self.at(key)),
                        format!("expected a length of at least {least}, found {}", shown(value)),
                    )
                })?;
            lengths.push(length);
        }
        Ok(lengths)
    }
}
