//! The engine: stores, arrays, layouts, reading and writing.

pub mod codec;
pub mod error;
pub mod read;

pub use error::{Error, ErrorKind, Result};
