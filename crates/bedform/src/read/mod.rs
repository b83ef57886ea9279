//! Reading: selection, plan, merged fetches, decoding, scatter.
//!
//! | module | step |
//! |---|---|
//! | `plan` | selection to chunks and copies, object by object |
//! | `part`, `mask` | what a selection takes of a chunk, and which of it is taken already |
//! | `locate` | where the chunks of an opened object lie |
//! | `opening` | whether a server's shard comes whole |
//! | `fetch` | extents to fetch, merged |
//! | `execute`, `queue` | threads, and what they have still to do; what a server is asked for |
//! | `unit` | a unit: fetched, decoded and copied |
//! | `tuning`, `extra`, `buffers` | their limits, in number, too; their memory |
//! | `scatter` | the copies |

mod buffers;
pub(crate) mod execute;
mod extra;
pub(crate) mod fetch;
pub(crate) mod locate;
pub(crate) mod mask;
pub(crate) mod opening;
pub(crate) mod part;
pub(crate) mod plan;
mod queue;
pub(crate) mod scatter;
pub(crate) mod tuning;
mod unit;

pub use execute::ReadStatistics;
