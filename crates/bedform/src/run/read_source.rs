//! An array as of a moment, as reads see it: made once, then the source of all pieces of a plan.
//!
//! A [`ReadSource`] holds everything about an array that a plan needs beside the selection: source,
//! moment, layout, meaning, cache, tuning. It borrows them, costs no I/O, and is copied freely. An
//! array has one. A variable that is joined from many files has one for each file, with the place
//! in the array at which the file begins.
//!
//! **Made** by one function for each backing, once for each attempt of a read:
//!
//! | backing | function |
//! |---|---|
//! | array of a store | `PinnedArray::read_source`, from handle, state and snapshot |
//! | foreign variable, callback | `VariableFacts::read_source` |
//! | file of a joined variable | `JoinedVariable::read_source` |
//! | replica | `PartSource::read_source` of `array::redirect` |
//! | one read without log and cache | [`ReadSource::settled`] |
//!
//! For an array of a store the order matters: first the snapshot, then the state
//! (`ArrayHandle::state_to_read`). So the state can decode every shard that the snapshot refers to.
//!
//! **Used** for everything that belongs to one result. [`ReadSource::piece`] makes a piece of a
//! plan from a geometry, and one `ReadSource` serves any number of them: parts of a selection, a
//! price and then the read, an index and then the chunks that it names. A result that takes several
//! passes takes them all from one `ReadSource`: two of them may be of two moments.
//!
//! **Valid** as long as its borrows, which is one attempt. It holds no lock and keeps no object
//! alive. Later commits are not seen. The moment orders commits alone: a write without a session is
//! atomic for each object, so a read at the same time may see it in some objects and not in others.
//!
//! **When the data move on**, a read fails and never mixes two moments. Opening a cell checks its
//! object against the moment: an object that contains a later commit, because that was settled
//! meanwhile, is the error `SnapshotMoved`. The attempt is then over. Its maker drops the
//! `ReadSource` and the delivered elements, takes the newest snapshot, and makes another one, as
//! `ArrayAtRead::with_plan` does; a handle that stays at its snapshot returns the error. A foreign
//! file has no moments: a changed file is the error `Conflict`, and ends the read.

use super::chunks::ChunkCache;
use super::plan::{PlanPiece, ReadPlan};
use crate::error::Result;
use crate::plan::geometry::Geometry;
use crate::plan::tuning::Tuning;
use crate::source::{Moment, Settled, Source, StoredLayout};

/// An array, or one file of it, as of a moment.
#[derive(Clone, Copy)]
pub(crate) struct ReadSource<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) moment: &'a dyn Moment,
    pub(crate) layout: &'a StoredLayout,
    /// A number for everything beside the objects and commits that decides the elements.
    pub(crate) meaning: u64,
    /// The cache of the decoded chunks, if they are cached.
    pub(crate) cache: Option<ChunkCache<'a>>,
    pub(crate) tuning: &'a Tuning,
    /// The axis along which the source is a part of the array, and the index in the array at which
    /// it begins.
    pub(crate) begins: Option<(usize, u64)>,
}

impl<'a> ReadSource<'a> {
    /// Makes the source of objects without commits over them, whose chunks are not cached.
    pub(crate) fn settled(
        source: &'a dyn Source,
        layout: &'a StoredLayout,
        tuning: &'a Tuning,
    ) -> Self {
        Self { source, moment: &Settled, layout, meaning: 0, cache: None, tuning, begins: None }
    }

    /// Returns the piece of a plan that reads the elements of `geometry`, which was made for this
    /// layout. Several pieces of one plan must be [numbered](PlanPiece::number).
    pub(crate) fn piece(&self, geometry: &'a Geometry) -> PlanPiece<'a> {
        let Self { source, moment, layout, meaning, cache, begins, .. } = *self;
        PlanPiece { source, moment, layout, meaning, geometry, cache, begins, cells_before: 0 }
    }

    /// Calls `act` with the plan that reads the elements of `geometry`.
    pub(crate) fn with_plan<T>(
        &self,
        geometry: &Geometry,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        let piece = self.piece(geometry);
        act(ReadPlan::new(std::slice::from_ref(&piece), self.tuning))
    }
}
