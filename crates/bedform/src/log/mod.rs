//! The log: what is committed and not yet settled.
//!
//! `docs/format.md` says what is on disk, `docs/log-explained.md` argues that nothing is lost or half seen.
//!
//! | module | holds |
//! |---|---|
//! | `opened` | an opened store: its hierarchy, and the log over it |
//! | `snapshot` | snapshots, and what they mean for one array |
//! | `held` | stores that are held at one moment |
//! | `array` | a handle on an array: what it is as of a snapshot |
//! | `shapes` | shapes that commits give to arrays, and their publication |
//! | `place` | where a store's log is, and its roots |
//! | `view` | one root and what it refers to: what readers pin |
//! | `table` | what many commits touch, in the place of their directories; how tables merge |
//! | `section` | a section, and where the boxes of an array lie in it |
//! | `tree` | which of many boxes have a share in a region |
//! | `overlay` | what lies over an object's chunks |
//! | `blocks` | copies from the blocks of segments |
//! | `fetch` | blocks that are fetched together |
//! | `check` | everything that a root names, read and checked |
//! | `boxes` | selections as boxes |
//! | `buffer` | memory in which elements wait until they are appended |
//! | [`burst`], `staged`, `drain` | the fast tier that takes segments first, and how they are drained |
//! | `promises` | which commits were promised through the tier, kept outside their segments |
//! | `segment` | the file, or lane of one, that one writer appends to |
//! | `record` | records of a segment, read back and checked |
//! | `lanes` | what lies in a segment, whoever of several writers put it there |
//! | `stream` | what one writer writes: data, and sections that say what they mean |
//! | [`session`] | writing: what the members of a job take and declare |
//! | `commit` | what the members do together to commit |
//! | `node` | what those of a node do together: one segment, one section |
//! | `parts` | segments that were copied away from an object store, as files |
//! | [`recover`] | what writers that died left behind |
//! | [`mod@settle`] | commits become shards |

pub(crate) mod array;
mod blocks;
mod boxes;
mod buffer;
pub mod burst;
pub(crate) mod check;
mod commit;
mod drain;
mod fetch;
mod held;
mod lanes;
mod node;
pub(crate) mod opened;
mod overlay;
mod parts;
pub(crate) mod place;
mod promises;
mod record;
pub mod recover;
mod section;
mod segment;
pub mod session;
pub mod settle;
pub(crate) mod shapes;
pub(crate) mod snapshot;
mod staged;
mod stream;
mod table;
mod tree;
pub(crate) mod view;
