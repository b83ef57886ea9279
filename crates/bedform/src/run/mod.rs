//! Running plans: open, fetch, check, decode, deliver.
//!
//! | module | step |
//! |---|---|
//! | `resolve` | one opened cell becomes units: extents to fetch, merged |
//! | `execute`, `queue` | threads, and what they have still to do; what a server is asked for |
//! | `unit` | a unit: fetched, decoded and copied |
//! | `buffers` | memory that threads use again |

mod buffers;
pub(crate) mod execute;
mod queue;
pub(crate) mod resolve;
mod unit;

pub use execute::ReadStatistics;
