//! Plans of reads and writes: geometry, tuning, prices.
//!
//! Modules here compute with numbers and memory only. They open no data; `experience` alone reads
//! and writes a file, the profile.
//!
//! | module | holds |
//! |---|---|
//! | `geometry` | the chunks that a selection touches, cell by cell, and their copies |
//! | `part` | the elements that a selection takes of one chunk, as an index space |
//! | `mask` | a bit for each of these elements: taken by a cover, or free |
//! | `copy` | copies between a decoded chunk and a buffer |
//! | `numbers` | counts as offsets and indexes |
//! | `tuning` | limits of a read: threads, gaps, units, memory |
//! | `opening` | the choice between fetching a shard whole and fetching its index first |
//! | `price` | the work of a read, and its predicted seconds |
//! | `spread` | places of samples |
//! | `experience` | refinement of a profile by the reads of this process |

pub(crate) mod copy;
pub(crate) mod experience;
pub(crate) mod geometry;
pub(crate) mod mask;
mod numbers;
pub(crate) mod opening;
pub(crate) mod part;
pub(crate) mod price;
pub(crate) mod spread;
pub(crate) mod tuning;
