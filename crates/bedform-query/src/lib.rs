//! Expressions over the values of arrays: `t2m > 310 and lsm > 0.5`.
//!
//! A text is parsed into an [`Expression`], which knows the names of its arrays. Binding gives each
//! name the type and decoding of its array, and makes a [`Predicate`]: a tree of typed operations,
//! one truth value for each element. A predicate is evaluated over runs of stored elements, or
//! decided for a whole block from the least and greatest stored value in it.
//!
//! | module | holds |
//! |---|---|
//! | `error` | errors of one line, with their column |
//! | `values` | the types of elements; scalars, slices and vectors of them |
//! | `keys` | values as integers in the same order |
//! | `lexer`, `syntax`, `parse` | texts into syntax trees, with limits on their length and depth |
//! | `types` | NumPy's rules of promotion |
//! | `numeric`, `elementwise` | operations on one element, on runs of elements |
//! | `decode` | the decoding of stored values: missing values, scale and offset, as xarray does it |
//! | `operand`, `bind`, `tree` | syntax trees into typed trees |
//! | `stored_set`, `packed` | comparisons of one array with a constant, as sets of its stored values |
//! | `evaluate` | predicates over runs of elements, in tiles that fit a core's cache |
//! | `interval` | predicates over ranges of stored values |
//! | `range` | the range of the stored values of a run |
//! | `select` | runs of elements, joined and chosen from |
//!
//! The rules are NumPy's (NEP 50): the type of a Python number is weak, integers wrap, each
//! operation rounds to its own type. The oracle is `xarray.Dataset.eval`.
//!
//! Pure: no I/O, no clock, no threads, no `unsafe`. Texts and ranges are untrusted: none of them
//! makes a function panic or exceed its limits.
#![forbid(unsafe_code)]
// The rules of NumPy are those of C: conversions truncate, wrap and round.
#![allow(clippy::cast_possible_truncation)]

mod bind;
mod decode;
mod elementwise;
mod error;
mod evaluate;
mod interval;
mod keys;
mod lexer;
mod numeric;
mod operand;
mod packed;
mod parse;
mod range;
mod select;
mod stored_set;
mod syntax;
mod tree;
mod types;
mod values;

pub use decode::{AttributeNumber, Packing, ValueDecoding};
pub use error::ExpressionError;
pub use evaluate::{Predicate, PredicateScratch};
pub use interval::{Decision, ValueRange};
pub use operand::Operand;
pub use parse::Expression;
pub use range::range_of;
pub use values::{ScalarValue, ValueSlice, ValueType, Values};
