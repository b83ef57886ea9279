//! Plans: the geometry of reads and writes, tuning, prices. No I/O.
//!
//! | module | holds |
//! |---|---|
//! | `geometry` | which chunks a selection touches, cell by cell, and the copies between them and memory |
//! | `part`, `mask` | what a selection takes of a chunk, and which of it is taken already |
//! | `copy` | copies between a decoded chunk and a buffer |
//! | `tuning` | limits of a read: threads, gaps, memory |
//! | `opening` | whether a server's shard comes whole |
//! | `price` | what a read asks for, and its price in seconds |

pub(crate) mod copy;
pub(crate) mod experience;
pub(crate) mod geometry;
pub(crate) mod mask;
pub(crate) mod opening;
pub(crate) mod part;
pub(crate) mod price;
pub(crate) mod tuning;
