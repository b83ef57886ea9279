//! The log of a store: its committed data that are not yet settled into shards.
//!
//! Writers append data to segments. A commit creates the next numbered root, which names all
//! commits since the last settle. A reader pins one root and lays its commits over the stored
//! chunks. `docs/format.md` describes the bytes on disk. `docs/log-explained.md` argues that no
//! commit is lost or half visible.
//!
//! | module | holds |
//! |---|---|
//! | `opened` | an opened store: its hierarchy, and the log over it |
//! | `snapshot` | snapshots of a store, and of one array |
//! | `held` | stores pinned to one moment |
//! | `array` | a handle on an array, and its state as of a snapshot |
//! | `shapes` | shapes that commits give to arrays, and their publication |
//! | `place` | the location of a store's log, and its roots |
//! | `view` | one root with its commits, as readers pin it |
//! | `table` | tables, which replace the directories of many commits; how tables merge |
//! | `section` | a section in memory, and the positions of an array's boxes in it |
//! | `tree` | packed trees that find the boxes that meet a region |
//! | `overlay` | the boxes of commits that lie over an object's chunks |
//! | `blocks` | copies from the blocks of segments |
//! | `fetch` | blocks that are fetched together |
//! | `check` | a check of every object that a root names |
//! | `boxes` | selections as boxes |
//! | `buffer` | memory in which elements wait until they are appended |
//! | [`burst`], `staged`, `drain` | the fast tier that takes segments first, and its draining |
//! | `promises` | files that list the commits promised through the tier |
//! | `segment` | the file, or lane of one, that one writer appends to |
//! | `record` | records of a segment, read back and checked |
//! | `lanes` | opened segments, and the lanes of the writers that share one |
//! | `stream` | the output of one writer: data, and the sections that describe them |
//! | [`session`] | sessions: the writes and declarations of the members of a job |
//! | `member` | one member of a session: its segment, and whether it can go on |
//! | `commit` | the collective steps of a commit |
//! | `coordinator` | the steps of a commit that the coordinator takes for all |
//! | `node` | one segment and one section for all members of a node |
//! | `parts` | segments that were copied away from an object store, as files |
//! | [`recover`] | recovery of the data of dead writers |
//! | [`mod@settle`] | conversion of commits into shards |

pub(crate) mod array;
mod blocks;
mod boxes;
mod buffer;
pub mod burst;
pub(crate) mod check;
mod commit;
mod coordinator;
mod drain;
mod fetch;
mod held;
mod lanes;
mod member;
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
