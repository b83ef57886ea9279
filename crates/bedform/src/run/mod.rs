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
//! | `execute` | the threads of a read and the steps that they take |
//! | `thread_policy` | how many threads a read has |
//! | `queue` | objects still to open, units still to run, requests in flight; waits and failure |
//! | `collected` | payloads of covers, collected over many cells |
//! | `statistics` | counts of the work of a read |
//! | `unit` | decodes and delivers one unit |
//! | `fetch` | fetches bytes of an object |
//! | `deliver` | destinations of decoded chunks: a buffer, a visitor, the cache alone |
//! | `caching` | which decoded chunks a read caches |
//! | `chunks` | decoded chunks in the cache of the process |
//! | `buffers` | memory that threads reuse |

mod buffers;
mod caching;
pub(crate) mod chunks;
mod collected;
pub(crate) mod deliver;
pub(crate) mod execute;
pub(crate) mod explain;
mod fetch;
mod names;
pub(crate) mod plan;
mod queue;
mod raw;
pub(crate) mod read_source;
pub(crate) mod resolve;
mod statistics;
#[cfg(test)]
mod tests;
mod thread_policy;
mod unit;
pub(crate) mod workload;

pub use explain::{Explanation, FollowedReads, PlaceReads, ReadsExplanation, RedirectedRead};
pub use statistics::ReadStatistics;
