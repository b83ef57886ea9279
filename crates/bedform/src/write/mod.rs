//! Writing: selection, plan, merge with what is there, encode, one sequential write per object.
//!
//! An object (a shard, or the chunk of an array without shards) is written whole, under a temporary
//! name, and gets its own name only if it still is what was merged; if another writer was faster the
//! merge starts again from what that writer left. So writers of any alignment, in any number of
//! threads and processes, lose nothing of each other's work.
//!
//! | module | step |
//! |---|---|
//! | `beside` | what is checked while a write is made |
//! | `elements` | chunks as elements in memory: new, merged, trimmed |
//! | `object` | one object: its chunks in order, its tail, its name |
//! | `pipeline` | many encoders, one sequence |
//! | `region` | all objects of a selection |
//! | `room` | memory that stages share |

pub(crate) mod beside;
pub(crate) mod elements;
pub(crate) mod object;
pub(crate) mod pipeline;
pub(crate) mod region;
pub(crate) mod room;

pub use region::WriteStatistics;
