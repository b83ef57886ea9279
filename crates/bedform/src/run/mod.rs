//! Execution of read plans: opens objects, fetches extents, checks and decodes chunks, delivers
//! elements.
//!
//! A [`plan::ReadPlan`] is made without I/O. `resolve` turns each of its cells into units, and
//! `execute` runs the units. Explanations, prices and simulations use the same `resolve`, so they
//! predict the requests that a read makes.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | a read as a plain value: pieces, moment, price |
//! | `read_source` | an array as of a moment, from which the pieces of a plan are made |
//! | `resolve`, `raw` | an opened cell becomes units and their cost: extents to fetch, merged |
//! | `explain` | a plan as figures and a price |
//! | `workload` | a plan as requests of simulated clients |
//! | `names` | waits for path lookups of objects that no cache knows |
//! | `execute` | the threads of a read and their shared state |
//! | `queue` | objects still to open, units still to run, requests in flight to a server |
//! | `unit` | fetches, decodes and delivers one unit |
//! | `deliver` | destinations of decoded chunks: a buffer, a visitor, the cache alone |
//! | `chunks` | decoded chunks in the cache of the process |
//! | `buffers` | memory that threads reuse |

mod buffers;
pub(crate) mod chunks;
pub(crate) mod deliver;
pub(crate) mod execute;
pub(crate) mod explain;
mod names;
pub(crate) mod plan;
mod queue;
mod raw;
pub(crate) mod read_source;
pub(crate) mod resolve;
#[cfg(test)]
mod tests;
mod unit;
pub(crate) mod workload;

pub use execute::ReadStatistics;
pub use explain::{Explanation, FollowedReads, RedirectedRead};
