//! Advice on layouts: the predicted cost of reads with a layout, and the search for the cheapest
//! one.
//!
//! Nothing here touches a disk. The inputs are a layout, reads and a calibrated
//! [`Profile`](bedform_storage::Profile); the outputs are predicted seconds and an advised layout.
//! The same question always gets the same answer.
//!
//! | module | holds |
//! |---|---|
//! | [`advise`](mod@advise) | [`advise()`]: the question, the answer, and the way between them |
//! | `question` | questions from JSON |
//! | `choose` | shapes that are proposed, priced and compared |
//! | `search` | the space of chunk shapes, and the downhill search in it |
//! | [`cost`] | [`CostModel`]: requests, bytes and seconds of a read with a layout |
//! | `count` | the chunks that a read touches in a shard, and their runs |
//! | [`readers`] | the time that other readers need for a layout, and its bound |
//! | [`kinds`] | the cost of each kind of read in a layout of its own |
//! | [`ocs`] | the optimized chunk size of Smart-IO, its decision window, its two steps |
//! | `report` | advice as text |
//! | `automatic` | layouts of new arrays that ask for no particular one |

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
