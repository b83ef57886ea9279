//! An array as of the start of a read: its layout, its source and its snapshot.
//!
//! All reads pass through `ArrayAtRead::read`: it takes elements that were read ahead, else asks
//! replicas, else plans the read of the array itself, and records the read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bedform_geometry::Selection;

use super::redirect::{Redirected, ReplicaBytes};
use super::{Array, ArrayBacking};
use crate::error::{ErrorKind, Result};
use crate::foreign::facts::{ForeignVariable, Sources};
use crate::log::array::ArrayHandle;
use crate::log::snapshot::Snapshot;
use crate::plan::geometry::Geometry;
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

    /// Reads `selection` and passes the elements on as `deliver` says. Every read of an array,
    /// through any door, comes here. Once `once_begun` is true, the read is not planned again when
    /// the data move on.
    ///
    /// # Errors
    /// Those of reading; those of looking up the moment.
    pub(super) fn read(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        once_begun: Option<&AtomicBool>,
    ) -> Result<ReadStatistics> {
        self.read_or_take(selection, deliver, once_begun, None)
    }

    /// As [`ArrayAtRead::read`]. With `own`, elements that were read ahead are returned there in their
    /// own buffer, instead of as `deliver` says.
    pub(super) fn read_or_take(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        once_begun: Option<&AtomicBool>,
        own: Option<&mut Option<Vec<u8>>>,
    ) -> Result<ReadStatistics> {
        let reader = || self.reader();
        let (began, mut was_ahead) = (Instant::now(), true);
        let mut followed = self.followed(selection, deliver, &reader);
        let (done, taken) = match self.read_before(selection, deliver, followed.as_mut(), own)? {
            Some(done) => done,
            None => {
                was_ahead = false;
                let began = Instant::now();
                let (done, taken) = self.read_now(selection, deliver, once_begun)?;
                if let Some(followed) = followed {
                    followed.was_made(began.elapsed(), done.waits > 0);
                }
                (done, taken)
            }
        };
        self.record(selection, deliver, (began.elapsed(), was_ahead, &taken));
        // A missing object was never written, or was deleted with its array.
        if let Self::Stored(handle, state, _) = self
            && done.absent > 0
        {
            handle.check_is_there(state)?;
        }
        Ok(done)
    }

    /// As [`ArrayAtRead::read`], without readahead; returns also the bytes that replicas supplied.
    fn read_now(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        once_begun: Option<&AtomicBool>,
    ) -> Result<(ReadStatistics, ReplicaBytes)> {
        let is_whole = matches!(deliver, Deliver::Buffer(_));
        if is_whole && let Some(done) = self.read_of_replicas(selection, deliver)? {
            return Ok(done);
        }
        let began = Instant::now();
        let done = self.with_plan(selection, |plan| match execute(plan, deliver) {
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
        Ok((done?, ReplicaBytes::new()))
    }

    /// As [`ArrayAtRead::read_now`], from replicas where they make the read cheaper; `None` where they do
    /// not, or one cannot be read.
    fn read_of_replicas(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
    ) -> Result<Option<(ReadStatistics, ReplicaBytes)>> {
        let outcome = self.redirected(selection, |base, redirected| {
            match redirected.with_plan(base, |plan| execute(plan, deliver)) {
                Some(Ok(done)) => {
                    redirected.count();
                    Ok(Some((done, self.taken(redirected))))
                }
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
                // The array's own objects have changed, so it is planned again.
                Some(Err(error)) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                // Errors of the array's own objects show up again in a read without replicas.
                _ => {
                    redirected.distrust();
                    Ok(None)
                }
            }
        });
        Ok(outcome?.flatten())
    }

    /// Calls `act` with the cheapest plan of a read of `selection`, which may read parts from
    /// replicas.
    ///
    /// # Errors
    /// As [`ArrayAtRead::with_plan`].
    pub(super) fn with_best_plan<T>(
        &self,
        selection: &Selection,
        mut act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_best_plan_of(selection, |plan, _| act(plan))
    }

    /// As [`ArrayAtRead::with_best_plan`]; `act` also gets the replicas' part in the plan, if they have
    /// one.
    pub(super) fn with_best_plan_of<T>(
        &self,
        selection: &Selection,
        mut act: impl FnMut(ReadPlan<'_>, Option<&Redirected>) -> Result<T>,
    ) -> Result<T> {
        let of_replicas = self.redirected(selection, |base, redirected| {
            match redirected.with_plan(base, |plan| act(plan, Some(redirected))) {
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
                Some(Err(error)) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                // As in reads: errors of the array's own objects show up again without replicas.
                Some(Err(_)) => {
                    redirected.distrust();
                    Ok(None)
                }
                planned => planned.transpose(),
            }
        });
        match of_replicas {
            Ok(Some(Some(done))) => Ok(done),
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
        mut act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Stored(handle, state, snapshot) => {
                let geometry = &self.geometry(selection)?;
                let mut first = snapshot.clone();
                let outcome = handle.store.in_one_snapshot(|| {
                    let (state, snapshot) = handle.state_to_read(state, first.take())?;
                    handle.pinned_to(&state, snapshot).read_source().with_plan(geometry, &mut act)
                });
                outcome.map_err(|error| handle.changed_or(state, error))
            }
            Self::Foreign(variable) => match variable.sources() {
                Sources::One(own) => own.with_plan(&self.geometry(selection)?, act),
                Sources::Joined(joined) => joined.with_plan(selection, act),
            },
        }
    }
}
