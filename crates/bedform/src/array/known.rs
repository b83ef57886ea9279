//! What a read goes by: how an array is stored, where its chunks lie, and as of when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bedform_geometry::Selection;

use super::redirect::{Redirected, Taken};
use super::{Array, Backing};
use crate::error::{ErrorKind, Result};
use crate::foreign::facts::{ForeignVariable, Sources};
use crate::log::array::ArrayHandle;
use crate::log::snapshot::Snapshot;
use crate::plan::geometry::Geometry;
use crate::run::chunks::ChunkCache;
use crate::run::deliver::Deliver;
use crate::run::execute::{ReadStatistics, execute};
use crate::run::plan::{Piece, ReadPlan};
use crate::source::{Settled, StoredLayout};
use crate::zarr::state::ArrayState;

/// An array as it is known when a read begins.
pub(super) enum Known<'a> {
    /// The snapshot is the one that the array was looked up in, if it took one: the first attempt of a read
    /// goes by it.
    Stored(&'a ArrayHandle, Arc<ArrayState>, Option<Snapshot>),
    Foreign(&'a Arc<dyn ForeignVariable>),
}

impl Array {
    /// The array as it is now, looked up again if the store's freshness asks for it.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub(super) fn known(&self) -> Result<Known<'_>> {
        Ok(match &self.backing {
            Backing::Stored(handle) => {
                let (state, snapshot) = handle.state_as_of()?;
                Known::Stored(handle, state, snapshot)
            }
            Backing::Foreign(variable) => Known::Foreign(variable),
        })
    }

    /// The array as it was when it was last looked up.
    pub(super) fn last_known(&self) -> Known<'_> {
        match &self.backing {
            Backing::Stored(handle) => Known::Stored(handle, handle.last_state(), None),
            Backing::Foreign(variable) => Known::Foreign(variable),
        }
    }
}

impl Known<'_> {
    /// How the array is stored.
    pub(super) fn layout(&self) -> &StoredLayout {
        match self {
            Self::Stored(_, state, _) => &state.layout,
            Self::Foreign(variable) => &variable.facts().layout,
        }
    }

    /// True for a variable of a foreign file whose elements are stored as they are in chunks of more than
    /// `bytes` bytes, of which a read fetches what it needs.
    pub(super) fn has_large_raw_chunks(&self, bytes: u64) -> bool {
        let Self::Foreign(variable) = self else { return false };
        match variable.sources() {
            Sources::Joined(joined) => joined.has_large_raw_chunks(bytes),
            Sources::One(source) => {
                let codec = &variable.facts().layout.codec;
                codec.is_raw() && !source.makes_chunks() && codec.decoded_bytes() as u64 > bytes
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

    /// Which chunks of the array `selection` touches.
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

    /// Reads `selection`; `deliver` says where it goes. Every read of an array, through any door, comes here.
    /// What `once_begun` says has begun is not planned anew when the data move on.
    ///
    /// # Errors
    /// Those of reading; of looking up the moment.
    pub(super) fn read(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        once_begun: Option<&AtomicBool>,
    ) -> Result<ReadStatistics> {
        self.read_or_take(selection, deliver, once_begun, None)
    }

    /// As [`Known::read`]. With `own`, what was read ahead comes there in a buffer of its own, and not where
    /// `deliver` says.
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
        // What is not there was never written, or is gone with its array.
        if let Self::Stored(handle, state, _) = self
            && done.absent > 0
        {
            handle.check_is_there(state)?;
        }
        Ok(done)
    }

    /// As [`Known::read`], of what nobody has read ahead; and what replicas gave of it.
    fn read_now(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
        once_begun: Option<&AtomicBool>,
    ) -> Result<(ReadStatistics, Taken)> {
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
        Ok((done?, Taken::new()))
    }

    /// As [`Known::read_now`], by replicas, where they serve the read better; nothing where they do not, or
    /// something of one cannot be read.
    fn read_of_replicas(
        &self,
        selection: &Selection,
        deliver: Deliver<'_>,
    ) -> Result<Option<(ReadStatistics, Taken)>> {
        let outcome = self.redirected(selection, |base, redirected| {
            match redirected.with_plan(base, |plan| execute(plan, deliver)) {
                Some(Ok(done)) => {
                    redirected.count();
                    Ok(Some((done, self.taken(redirected))))
                }
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
                // Of the array itself, which is planned again.
                Some(Err(error)) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                // Whatever of the array itself cannot be read is found again without them.
                _ => {
                    redirected.distrust();
                    Ok(None)
                }
            }
        });
        Ok(outcome?.flatten())
    }

    /// Calls `act` with the plan of a read of `selection` that takes what replicas serve better from them.
    ///
    /// # Errors
    /// As [`Known::with_plan`].
    pub(super) fn with_best_plan<T>(
        &self,
        selection: &Selection,
        mut act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_best_plan_of(selection, |plan, _| act(plan))
    }

    /// As [`Known::with_best_plan`]; `act` sees as well what replicas take, if they take something.
    pub(super) fn with_best_plan_of<T>(
        &self,
        selection: &Selection,
        mut act: impl FnMut(ReadPlan<'_>, Option<&Redirected>) -> Result<T>,
    ) -> Result<T> {
        let of_replicas = self.redirected(selection, |base, redirected| {
            match redirected.with_plan(base, |plan| act(plan, Some(redirected))) {
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
                Some(Err(error)) if error.kind() == ErrorKind::SnapshotMoved => Ok(None),
                // As reads do: what cannot be read of the array itself is found again without replicas.
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

    /// Calls `act` with the plan that reads `selection` of the array itself; again, with the newest moment, as
    /// long as the data move on under it.
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
                    let snapshot = first.take().map_or_else(|| handle.store.snapshot(), Ok)?;
                    // In this order: what the snapshot has as shards this state can decode.
                    let state = &handle.closed_by_now(state)?;
                    let pinned = handle.pinned_to(state, snapshot);
                    let piece = Piece {
                        source: &pinned.source,
                        moment: &pinned.moment,
                        layout: &state.layout,
                        meaning: state.meaning,
                        geometry,
                        cache: ChunkCache::new(&handle.store.cache, &state.scope),
                        begins: None,
                        cells_before: 0,
                    };
                    act(ReadPlan::new(std::slice::from_ref(&piece), &handle.store.tuning))
                });
                outcome.map_err(|error| handle.changed_or(state, error))
            }
            Self::Foreign(variable) => {
                let facts = variable.facts();
                let source = match variable.sources() {
                    Sources::One(source) => source,
                    Sources::Joined(joined) => return joined.with_plan(selection, act),
                };
                let geometry = &self.geometry(selection)?;
                let piece = Piece {
                    source,
                    moment: &Settled,
                    layout: &facts.layout,
                    meaning: 0,
                    geometry,
                    cache: ChunkCache::new(&facts.cache, &facts.scope),
                    begins: None,
                    cells_before: 0,
                };
                act(ReadPlan::new(std::slice::from_ref(&piece), &facts.tuning))
            }
        }
    }
}
