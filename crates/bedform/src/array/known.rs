//! An array as of the start of a read: the handle, and the state and snapshot of its lookup.
//!
//! Each attempt of a read makes a [`ReadSource`](crate::run::read_source::ReadSource) of them, from
//! which the pieces of its plan are made. All reads pass through `ArrayAtRead::read`: it takes elements that
//! were read ahead, else asks replicas, else plans the read of the array itself, and records the
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bedform_geometry::Selection;

use super::redirect::{Redirected, ReplicaBytes};
use super::{Array, ArrayBacking};
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::facts::{ForeignVariable, Sources};
use crate::log::array::ArrayHandle;
use crate::log::snapshot::Snapshot;
use crate::plan::copy::Copy;
use crate::plan::geometry::{ChunkBox, Geometry};
use crate::plan::tuning::Tuning;
use crate::run::chunks::ChunkCache;
use crate::run::deliver::Deliver;
use crate::run::execute::{ReadStatistics, execute};
use crate::run::plan::ReadPlan;
use crate::source::StoredLayout;
use crate::zarr::state::ArrayState;

/// An array as of the start of a read.
pub(super) enum ArrayAtRead<'a> {
    /// The snapshot is that of the lookup, if it took one; the first attempt of a read uses it.
    Stored(&'a ArrayHandle, Arc<ArrayState>, Option<Snapshot>),
    Foreign(&'a Arc<dyn ForeignVariable>),
}

/// A read of an array: the elements, and their destination.
#[derive(Clone, Copy)]
pub(super) struct ArrayRead<'r> {
    pub(super) selection: &'r Selection,
    pub(super) deliver: Deliver<'r>,
    /// Once this is true, the read is not planned again when the data move on.
    pub(super) once_begun: Option<&'r AtomicBool>,
    /// True if elements that were read ahead are to stay in their own buffer.
    pub(super) takes_buffers: bool,
    /// For a part of a pass over the array, the bytes of the pass. It is no read of its own: it is
    /// neither followed nor recorded.
    pub(super) pass_bytes: Option<u64>,
}

impl<'r> ArrayRead<'r> {
    pub(super) fn new(selection: &'r Selection, deliver: Deliver<'r>) -> Self {
        Self { selection, deliver, once_begun: None, takes_buffers: false, pass_bytes: None }
    }
}

/// A finished read.
pub(super) struct ReadOutcome {
    pub(super) statistics: ReadStatistics,
    /// The bytes that each replica supplied, where reads are recorded.
    pub(super) replicas: ReplicaBytes,
    /// True if the elements had been read ahead.
    pub(super) was_ahead: bool,
    /// Elements that were read ahead, in their own buffer, if the read takes it; the destination is
    /// unchanged then.
    pub(super) taken: Option<Vec<u8>>,
}

impl Array {
    /// The array as of now, looked up again if the store's freshness requires it.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(super) fn known(&self) -> Result<ArrayAtRead<'_>> {
        Ok(match &self.backing {
            ArrayBacking::Stored(handle) => {
                let (state, snapshot) = handle.state_as_of()?;
                ArrayAtRead::Stored(handle, state, snapshot)
            }
            ArrayBacking::Foreign(variable) => ArrayAtRead::Foreign(variable),
        })
    }

    /// The array as of its last lookup.
    pub(super) fn last_known(&self) -> ArrayAtRead<'_> {
        match &self.backing {
            ArrayBacking::Stored(handle) => ArrayAtRead::Stored(handle, handle.last_state(), None),
            ArrayBacking::Foreign(variable) => ArrayAtRead::Foreign(variable),
        }
    }
}

impl ArrayAtRead<'_> {
    /// Grid, codecs and fill value.
    pub(super) fn layout(&self) -> &StoredLayout {
        match self {
            Self::Stored(_, state, _) => &state.layout,
            Self::Foreign(variable) => &variable.facts().layout,
        }
    }

    /// The limits by which its reads are planned.
    pub(super) fn tuning(&self) -> &Tuning {
        match self {
            Self::Stored(handle, ..) => &handle.store.tuning,
            Self::Foreign(variable) => &variable.facts().tuning,
        }
    }

    /// True for a foreign variable with raw chunks of more than `bytes` bytes, of which a read
    /// fetches only the bytes that it needs.
    pub(super) fn has_large_raw_chunks(&self, bytes: u64) -> bool {
        let Self::Foreign(variable) = self else { return false };
        match variable.sources() {
            Sources::Joined(joined) => joined.has_large_raw_chunks(bytes),
            Sources::One(own) => {
                let codec = &own.layout.codec;
                codec.is_raw() && !own.source.makes_chunks() && codec.decoded_bytes() as u64 > bytes
            }
        }
    }

    /// The most bytes of decoded chunks that the array's handle may keep.
    pub(super) fn cache_limit(&self) -> u64 {
        let (cache, scope) = match self {
            Self::Stored(handle, state, _) => (&handle.store.cache, &state.scope),
            Self::Foreign(variable) => (&variable.facts().cache, &variable.facts().scope),
        };
        ChunkCache::new(cache, scope).map_or(0, |cache| cache.limit())
    }

    /// The chunks of the array that `selection` touches.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub(super) fn geometry(&self, selection: &Selection) -> Result<Geometry> {
        self.layout().geometry(selection).map_err(|error| error.at(self.path()))
    }

    /// The array's path in its store or file.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Stored(handle, ..) => handle.path.as_str(),
            Self::Foreign(variable) => &variable.facts().path,
        }
    }

    /// Makes a read. Every read of an array, through any door, comes here: elements that were read
    /// ahead are taken, else replicas serve parts of it where that is cheaper, else the array does.
    ///
    /// # Errors
    /// Those of reading; those of looking up the moment.
    pub(super) fn read(&self, read: ArrayRead<'_>) -> Result<ReadOutcome> {
        let (began, reader) = (Instant::now(), || self.reader());
        let mut followed = self.followed(read, &reader);
        let outcome = match self.read_before(read, followed.as_mut())? {
            Some(outcome) => outcome,
            None => {
                let began = Instant::now();
                let outcome = self.read_now(read)?;
                if let Some(followed) = followed {
                    followed.was_made(began.elapsed(), outcome.statistics.waits > 0);
                }
                outcome
            }
        };
        self.record(read, began.elapsed(), &outcome);
        // A missing object was never written, or was deleted with its array.
        if let Self::Stored(handle, state, _) = self
            && outcome.statistics.absent > 0
        {
            handle.check_is_there(state)?;
        }
        Ok(outcome)
    }

    /// As [`ArrayAtRead::read`], without readahead.
    fn read_now(&self, read: ArrayRead<'_>) -> Result<ReadOutcome> {
        let ArrayRead { selection, deliver, once_begun, .. } = read;
        let is_whole = matches!(deliver, Deliver::Buffer(_));
        let pass_bytes = read.pass_bytes.unwrap_or_default();
        if is_whole && let Some(outcome) = self.read_by_replicas(read)? {
            return Ok(outcome);
        }
        let began = Instant::now();
        let done =
            self.with_plan(selection, |plan| match execute(plan.of_pass(pass_bytes), deliver) {
                Err(error) if once_begun.is_some_and(|begun| begun.load(Ordering::Relaxed)) => {
                    Ok(Err(error))
                }
                outcome => {
                    if let (true, Ok(done)) = (is_whole, &outcome) {
                        plan.learn(done, began.elapsed().as_secs_f64());
                    }
                    outcome.map(Ok)
                }
            })?;
        Ok(self.outcome(done?, None))
    }

    /// Makes a read of which replicas supply parts; `None` as [`Self::with_plan_of_replicas`].
    pub(super) fn read_by_replicas(&self, read: ArrayRead<'_>) -> Result<Option<ReadOutcome>> {
        let pass_bytes = read.pass_bytes.unwrap_or_default();
        self.with_plan_of_replicas(read.selection, |plan, redirected| {
            Ok(self.outcome(execute(plan.of_pass(pass_bytes), read.deliver)?, Some(redirected)))
        })
    }

    /// Calls `act` with the plan of a read of `selection` that takes parts from replicas. `None` if
    /// no replica makes the read cheaper, or if `act` fails: errors of the array's own objects show
    /// up again in a read without replicas.
    fn with_plan_of_replicas<T>(
        &self,
        selection: &Selection,
        act: impl FnOnce(ReadPlan<'_>, &Redirected) -> Result<T>,
    ) -> Result<Option<T>> {
        let outcome = self.redirected(selection, |base, redirected| {
            match redirected.with_plan(base, |plan| act(plan, redirected)) {
                Some(Ok(done)) => Ok(Some(done)),
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
                // The array's own objects have changed, so it is planned again.
                Some(Err(error)) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                _ => {
                    redirected.distrust();
                    Ok(None)
                }
            }
        });
        Ok(outcome?.flatten())
    }

    /// Calls `act` with the cheapest plan of a read of `selection`, and with the replicas' part in
    /// it, if they have one.
    ///
    /// # Errors
    /// As [`ArrayAtRead::with_plan`].
    pub(super) fn with_best_plan<T>(
        &self,
        selection: &Selection,
        mut act: impl FnMut(ReadPlan<'_>, Option<&Redirected>) -> Result<T>,
    ) -> Result<T> {
        let of_replicas = |plan: ReadPlan<'_>, redirected: &Redirected| act(plan, Some(redirected));
        match self.with_plan_of_replicas(selection, of_replicas) {
            Ok(Some(done)) => Ok(done),
            Err(error) if error.kind() != ErrorKind::SnapshotMoved => Err(error),
            _ => self.with_plan(selection, |plan| act(plan, None)),
        }
    }

    /// Calls `act` with the plan of a read of `selection` from the array itself; again, with the
    /// newest snapshot, while the data move on meanwhile.
    ///
    /// # Errors
    /// As [`Self::geometry`]; those of `act`, and of looking up the moment.
    pub(super) fn with_plan<T>(
        &self,
        selection: &Selection,
        act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Self::Foreign(variable) = self
            && let Sources::Joined(joined) = variable.sources()
        {
            return joined.with_plan(selection, act);
        }
        self.with_plan_of(&self.geometry(selection)?, act)
    }

    /// As [`ArrayAtRead::with_plan`], for a geometry that was made by [`ArrayAtRead::layout`].
    ///
    /// # Errors
    /// `Unsupported` for a variable that is joined from several files; as
    /// [`ArrayAtRead::with_plan`].
    fn with_plan_of<T>(
        &self,
        geometry: &Geometry,
        mut act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Stored(handle, state, snapshot) => {
                let mut first = snapshot.clone();
                let outcome = handle.store.in_one_snapshot(|| {
                    let (state, snapshot) = handle.state_to_read(state, first.take())?;
                    handle.pinned_to(&state, snapshot).read_source().with_plan(geometry, &mut act)
                });
                outcome.map_err(|error| handle.changed_or(state, error))
            }
            Self::Foreign(variable) => match variable.sources() {
                Sources::One(own) => own.with_plan(geometry, act),
                Sources::Joined(_) => {
                    let text = "boxes of a variable that is joined from several files";
                    Err(Error::new(ErrorKind::Unsupported, text).at(self.path()))
                }
            },
        }
    }

    /// Calls `act` with the plan that makes `copies` from an array of one axis, whose offsets in the
    /// source are bytes from its first element. They fill `bytes` bytes of the result.
    ///
    /// # Errors
    /// `InvalidArgument` for an array of another rank; as [`ArrayAtRead::with_plan`].
    pub(super) fn with_row_plan<T>(
        &self,
        copies: Vec<Copy>,
        bytes: u64,
        act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        let layout = self.layout();
        let item = layout.item_size;
        let [per_object] = layout.per_object[..] else {
            return Err(Error::invalid("an array of several axes has no rows").at(self.path()));
        };
        let boxes = ChunkBox::of_row(&layout.grid, per_object, item, copies);
        let geometry = Geometry::of_boxes(&layout.grid, &layout.per_object, boxes, item, bytes);
        self.with_plan_of(&geometry, act)
    }
}
