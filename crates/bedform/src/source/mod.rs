//! Sources: the places of an array's chunks, the commits that lie over them, and the moment of a
//! read.
//!
//! They separate the reader of an array from its storage format. A reader knows three things alone:
//!
//! 1. A [`StoredLayout`]: the division of the elements into chunks and objects, and the encoding of
//!    a chunk.
//! 2. A [`Source`]: opens one *cell*, the object that holds some of the chunks (a shard, a file),
//!    and names the last commit in it. From then on no virtual call is made, except for chunk maps:
//!    [`ChunkLocations`] returns the parts of each chunk, one to a few extents of that object.
//! 3. A [`Moment`], for commits that are not all in the objects. It returns the [`Cover`] of a
//!    cell, and refuses an object that is not of the pinned moment. A cover takes elements before
//!    the source does, and adds [`Payload`]s of its own, which the reader fetches together for many
//!    cells.
//!
//! | module | holds |
//! |---|---|
//! | `stored` | the division of an array into chunks and objects, and its encoding |
//! | `cell` | a source, an opened cell, and the locations of its chunks |
//! | `moment` | moments, covers, and their payloads |

pub(crate) mod cell;
pub(crate) mod moment;
pub(crate) mod stored;

pub(crate) use cell::{ChunkLocations, LocateChunk, Location, OpenCell, PendingCell, Source};
pub(crate) use moment::{
    Cover, CoverBatch, Destination, Moment, Payload, Payloads, Settled, Uncovered, UncoveredRest,
};
pub(crate) use stored::StoredLayout;
