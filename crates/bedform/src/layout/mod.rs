//! Which layout fits which reads, as numbers.
//!
//! Nothing here touches a disk: a layout, a read and a calibrated
//! [`Profile`](bedform_storage::Profile) go in, predicted seconds come out.
//!
//! | module | holds |
//! |---|---|
//! | [`ocs`] | the optimized chunk size of Smart-IO, its decision window, subchunks and aggregation |
//! | [`cost`] | [`CostModel`]: requests, bytes and seconds of a read with a layout |
//! | [`advise`](mod@advise) | [`advise()`]: the chunk shape, shard shape and order that cost least |
//! | [`kinds`] | what each kind of read costs in a layout of its own |
//! | [`readers`] | what other readers take for a layout, and the bound that a layout keeps for them |
//! | `automatic` | the layout of a new array that leaves it to Bedform |

pub mod advise;
pub(crate) mod automatic;
mod choose;
pub mod cost;
mod count;
pub mod kinds;
pub mod ocs;
mod question;
pub mod readers;
mod report;
mod search;

pub use advise::{
    Advice, AdviseError, AdviseRequest, Appendable, Candidate, NamedRead, ReadMix, advise,
};
pub use cost::{CostModel, Layout, Read, ReadCost};
pub use readers::{Reader, ReaderCost};
