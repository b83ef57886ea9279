//! Bytes to types and back: the part of Bedform that meets bytes it cannot trust.
//!
//! Nothing here opens a file, starts a thread or reads a clock, so that every decoder can be fuzzed
//! and a second implementation could be written from this crate alone.
//!
//! | module | holds |
//! |---|---|
//! | [`path`] | [`ObjectPath`]: a name that cannot leave its store |
//! | [`limits`] | [`Limits`]: what a file may claim before it is refused |
//! | [`checksum`] | CRC-32C |

pub mod checksum;
pub mod limits;
pub mod path;

pub use limits::Limits;
pub use path::{ObjectPath, PathError};
