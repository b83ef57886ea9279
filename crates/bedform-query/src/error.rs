//! Errors of expressions and decodings.

use std::fmt;

/// An error in an expression: one line, and the column that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// Says what is wrong and what to do, in one line.
    pub message: String,
    /// The column in characters, from 0; `None` if the whole expression is meant.
    pub column: Option<usize>,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for ExpressionError {}

impl ExpressionError {
    pub(crate) fn at(column: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), column: Some(column) }
    }

    pub(crate) fn of_whole(message: impl Into<String>) -> Self {
        Self { message: message.into(), column: None }
    }
}
