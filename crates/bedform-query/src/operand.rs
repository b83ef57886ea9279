//! The arrays of an expression.

use crate::decode::ValueDecoding;

/// An array of an expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The name of the array, for messages.
    pub name: String,
    /// How its stored elements become values.
    pub decoding: ValueDecoding,
}
