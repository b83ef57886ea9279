//! Texts into syntax trees.

use std::fmt;

use crate::bind::Operand;
use crate::evaluate::Predicate;

/// An expression over named arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    names: Vec<String>,
}

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

impl Expression {
    /// Parses a text in Python's form, of at most 64 KiB and 200 levels.
    ///
    /// # Errors
    ///
    /// For anything else; the message says what to write instead.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Ok(Self { names: vec![text.to_owned()] })
    }

    /// Returns the names of arrays, each once, in order of appearance.
    pub fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Gives the names their types: `operands[i]` belongs to `names()[i]`.
    ///
    /// # Errors
    ///
    /// If an operation does not take the types of its operands, a number does not fit, or the
    /// expression as a whole is not a condition.
    pub fn bind(&self, operands: &[Operand]) -> Result<Predicate, ExpressionError> {
        Ok(Predicate::of(operands))
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.names.join(" "))
    }
}
