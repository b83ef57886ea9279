//! Zarr stores: documents, drafts, locks, the order of publication, shards.
//!
//! A store is a Zarr v3 group (or, read-only, a v2 one). This module reads and writes what any Zarr
//! library could, and does not know the log: what is committed and not settled reaches it as a
//! [`Moment`](crate::source::Moment).
//!
//! | module | holds |
//! |---|---|
//! | `hierarchy` | what all arrays of an opened store have in common, the log apart |
//! | `documents` | metadata documents: reading, trust, publication |
//! | `held` | the moment that a snapshot holds |
//! | `kept` | shards that settling has replaced, for snapshots |
//! | `nodes` | which arrays and groups there are |
//! | `publish` | the order of publication; what is checked before a name is taken |
//! | `replacing` | a group that takes another one's place in one step |
//! | `choosing` | arrays whose codecs the first write chooses |
//! | `new_array`, `description`, `together` | new arrays, also from JSON, and many at once |
//! | `outer` | groups and arrays that are opened by their own paths |
//! | `rewritten` | stores whose document another program has rewritten |
//! | `state` | an array as of one version of its documents |
//! | `source` | where the objects of an array are, and what their tails say |
//! | `object`, `region` | objects that are written: one, and all of a selection |
//! | `tally` | what chosen codecs make of what is written |
//! | `sink` | the shards of an array as a sink of settled data |

pub(crate) mod choosing;
pub(crate) mod description;
pub(crate) mod documents;
pub(crate) mod held;
pub(crate) mod hierarchy;
pub(crate) mod kept;
pub(crate) mod new_array;
pub(crate) mod nodes;
pub(crate) mod object;
pub(crate) mod outer;
pub(crate) mod publish;
pub(crate) mod region;
pub(crate) mod replacing;
pub(crate) mod rewritten;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod state;
pub(crate) mod tally;
pub(crate) mod together;

pub use new_array::{ArrayLayout, NewArray};
pub use nodes::NodeKind;
pub use region::WriteStatistics;
