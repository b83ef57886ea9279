//! Writing: chunks as elements in memory, merged with what is stored, encoded.

pub(crate) mod elements;
