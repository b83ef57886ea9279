//! Sets of references: Zarr stores whose values lie in other files, as kerchunk writes them.
//!
//! A value is inline bytes, a whole file, or a byte range of one. A set has many keys and few
//! files. It is stored as a [table](References) with 24 bytes per key plus the key's name.
//!
//! The [parser](parse) reads JSON of version 0 (an object of keys) and version 1 (`refs`, and
//! `templates` that stand for parts of paths as `{{name}}`). It refuses expressions in templates
//! and the generator `gen`, which are programs. It also refuses keys that are not valid object
//! names, duplicate keys, and invalid ranges.
//!
//! | module | content |
//! |---|---|
//! | `json` | the parser of kerchunk's documents |
//! | `table` | [`References`], and its builder |

mod json;
mod table;
#[cfg(test)]
mod tests;

use crate::PathError;
use crate::shown::printable;

pub use json::{looks_like_references, parse};
pub use table::{Reference, References, ReferencesBuilder, ReferencesEntry};

/// Largest length of a file's path or URL in bytes.
pub const TARGET_BYTES_MAX: usize = 8192;
/// Largest number of characters of a key in a message.
const SHOWN_CHARS: usize = 80;

/// The reason why a set of references was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferencesError {
    /// More bytes than [`Limits::references_bytes_max`](crate::Limits::references_bytes_max), or
    /// another count over its limit.
    #[error("the references have {what}, over the limit of {limit}")]
    TooLarge {
        /// The items whose number exceeds the limit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// The document is not a set of references.
    #[error("it is no set of references: {0}")]
    NotReferences(&'static str),
    /// An unknown version.
    #[error("version {0} of kerchunk's references is not known: 0 and 1 are")]
    Version(String),
    /// A key that is not a valid object name.
    #[error("the key of a reference is refused: {0}")]
    Key(#[from] PathError),
    /// A duplicate key.
    #[error("the key {0:?} appears twice")]
    Twice(String),
    /// A value that is not a reference.
    #[error("the reference {key:?} is refused: {reason}")]
    Value {
        /// The key, shortened to fit a message.
        key: String,
        /// The broken rule.
        reason: &'static str,
    },
    /// An expression in place of a template's name.
    #[error(
        "{0:?} has an expression or names no template: only {{{{name}}}} is read; expand the references with \
         fsspec first"
    )]
    Expression(String),
    /// References that a program generates.
    #[error(
        "the references are generated (`gen`), which is not read: expand them with fsspec first"
    )]
    Generated,
}

impl ReferencesError {
    fn value(key: &str, reason: &'static str) -> Self {
        Self::Value { key: shown(key), reason }
    }
}

fn shown(text: &str) -> String {
    printable(text, SHOWN_CHARS).into_owned()
}
