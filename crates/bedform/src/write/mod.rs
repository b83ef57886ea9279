//! Writes: chunks as elements in memory, merged with stored ones and encoded, and their sinks.
//!
//! | module | holds |
//! |---|---|
//! | `elements` | a chunk as elements: new, merged, trimmed |
//! | `sample` | blocks of the elements of a write, by which codecs are chosen |
//! | `sink` | the trait of the targets of settled data |
//! | `together` | units that become durable together |

pub(crate) mod elements;
pub(crate) mod sample;
pub(crate) mod sink;
pub(crate) mod together;
