//! Writing: chunks as elements in memory, merged with what is stored, encoded; where they go.
//!
//! | module | holds |
//! |---|---|
//! | `elements` | a chunk as elements: new, merged, trimmed |
//! | `sample` | blocks of what is written, by which codecs are chosen |
//! | `sink` | the seam to whatever takes settled data |
//! | `together` | units that become durable together |

pub(crate) mod elements;
pub(crate) mod sample;
pub(crate) mod sink;
pub(crate) mod together;
