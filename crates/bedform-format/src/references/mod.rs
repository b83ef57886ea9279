//! Sets of references: the keys of a Zarr store whose values lie in other files, as kerchunk writes them.
//!
//! A value is bytes of its own ("inline"), a whole file, or a range of one. A set has many keys and few files,
//! so that it is kept as a [table](References) of 24 bytes for each key beside the bytes of its name.
//!
//! What is read of [JSON](parse): version 0 (an object of keys) and version 1 (`refs`, and `templates` that stand
//! for parts of paths as `{{name}}`). Refused are expressions in templates and the generator `gen`: they are
//! programs. So are keys that no object of a store can have, keys that appear twice, and ranges that are none.
//!
//! | module | holds |
//! |---|---|
//! | `json` | documents of kerchunk |
//! | `table` | [`References`], and what makes them |

mod json;
mod table;
#[cfg(test)]
mod tests;

use crate::PathError;
use crate::shown::printable;

pub use json::{looks_like_references, parse};
pub use table::{Reference, References, ReferencesBuilder, ReferencesEntry};

/// Bytes of a path or URL of a file.
pub const TARGET_BYTES_MAX: usize = 8192;
/// Characters of a key in a message.
const SHOWN_CHARS: usize = 80;

/// Why a set of references is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferencesError {
    /// More bytes than [`Limits::references_bytes_max`](crate::Limits::references_bytes_max), or other counts that
    /// are beyond what is taken.
    #[error("the references have {what}, over the limit of {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Not JSON.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    /// No set of references.
    #[error("it is no set of references: {0}")]
    NotReferences(&'static str),
    /// A version that is not known.
    #[error("version {0} of kerchunk's references is not known: 0 and 1 are")]
    Version(String),
    /// A key that no object has.
    #[error("the key of a reference is refused: {0}")]
    Key(#[from] PathError),
    /// A key that is there twice.
    #[error("the key {0:?} appears twice")]
    Twice(String),
    /// A value that is no reference.
    #[error("the reference {key:?} is refused: {reason}")]
    Value {
        /// The key, cut to a length that fits a message.
        key: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// An expression, where only names of templates are taken.
    #[error(
        "{0:?} has an expression or names no template: only {{{{name}}}} is read; expand the references with \
         fsspec first"
    )]
    Expression(String),
    /// References that are made by a program.
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
