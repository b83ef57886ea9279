//! Zarr stores: documents, drafts, locks, the order of publication, shards.
//!
//! A store is a Zarr v3 group (or, read-only, a v2 one). This module reads and writes stores that
//! any Zarr library can read and write. It does not know the log: it sees unsettled commits only as
//! a [`Moment`](crate::source::Moment).
//!
//! | module | holds |
//! |---|---|
//! | `hierarchy` | the state of an opened store that its arrays share, apart from the log |
//! | `documents` | metadata documents: reading, deciding between copies, publication |
//! | `held` | the moment of a snapshot: documents and time |
//! | `kept` | shards that settling replaced, kept for snapshots |
//! | `nodes` | the list of arrays and groups |
//! | `publish` | the order of publication; checks before a name is taken |
//! | `replacing` | atomic replacement of a group by a new one |
//! | `choosing` | arrays whose codecs the first write chooses |
//! | `new_array`, `description`, `together` | new arrays: documents, from JSON, many at once |
//! | `outer` | groups and arrays that are opened by their own paths |
//! | `rewritten` | stores whose document another program has rewritten |
//! | `state` | an array as of one version of its documents |
//! | `source` | the paths of an array's objects, and their tails: stamp and index |
//! | `object`, `region` | writes of one object, and of all objects of a selection |
//! | `tally` | sizes of encoded chunks, compared with the sample that chose the codecs |
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
