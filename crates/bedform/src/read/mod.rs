//! Reading: selection, plan, merged fetches, decoding, scatter.
//!
//! | module | step |
//! |---|---|
//! | `plan` | selection to chunks and copies, object by object |
//! | `locate` | where the chunks of an opened object lie |
//! | `fetch` | extents to fetch, merged |
//! | `execute` | threads that fetch, decode and copy |
//! | `tuning`, `buffers` | their limits, their memory |
//! | `scatter` | the copies |

mod buffers;
pub(crate) mod execute;
pub(crate) mod fetch;
pub(crate) mod locate;
pub(crate) mod plan;
pub(crate) mod scatter;
pub(crate) mod tuning;

pub use execute::ReadStatistics;
