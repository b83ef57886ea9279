//! Sources: where the chunks of an array lie, what lies over them, and as of when.
//!
//! The seam between an array and whatever keeps it. A reader knows three things alone:
//!
//! 1. A [`StoredLayout`]: how the elements are cut into chunks and objects, and how a chunk is encoded.
//! 2. A [`Source`]: opens one *cell*, the object that holds some of the chunks (a shard, a file), and
//!    says which commits it contains. From then on no virtual call is made: [`ChunkLocations`] gives the
//!    parts of each chunk, one to a few extents of that object.
//! 3. A [`Moment`], where commits are not all in the objects: it gives what lies over a cell, a
//!    [`Cover`], and refuses an object that is not of the moment it was pinned to. A cover takes
//!    elements before the source does, and brings [`Payload`]s of its own, which the reader fetches
//!    together for many cells.
//!
//! | module | holds |
//! |---|---|
//! | `stored` | how an array is cut and encoded |
//! | `cell` | a source, an opened cell, and where its chunks lie |
//! | `moment` | moments, covers, and their payloads |

pub(crate) mod cell;
pub(crate) mod moment;
pub(crate) mod stored;

pub(crate) use cell::{ChunkLocations, LocateChunk, Location, OpenCell, PendingCell, Source};
pub(crate) use moment::{
    Cover, CoverBatch, Destination, Moment, Payload, Payloads, Rest, Settled, Uncovered,
};
pub(crate) use stored::StoredLayout;
