//! Running plans: open, fetch, check, decode, deliver.
//!
//! | module | step |
//! |---|---|
//! | `plan` | a read as a plain value: pieces, moment, price |
//! | `resolve`, `raw` | one opened cell becomes units and their cost: extents to fetch, merged |
//! | `explain`, `workload` | a plan as facts and a price; as requests of a simulated machine |
//! | `names` | waits for objects of which nothing is in memory |
//! | `execute`, `queue` | threads, and what they have still to do; what a server is asked for |
//! | `unit` | a unit: fetched, decoded and delivered |
//! | `deliver` | where decoded chunks go: a buffer, a visitor, the cache alone |
//! | `chunks` | decoded chunks that are kept |
//! | `buffers` | memory that threads use again |

mod buffers;
pub(crate) mod chunks;
pub(crate) mod deliver;
pub(crate) mod execute;
pub(crate) mod explain;
mod names;
pub(crate) mod plan;
mod queue;
mod raw;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
mod unit;
pub(crate) mod workload;

pub use execute::ReadStatistics;
pub use explain::{Explanation, FollowedReads, RedirectedRead};
