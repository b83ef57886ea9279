//! What a read goes by: how an array is stored, where its chunks lie, and as of when.

use std::sync::Arc;

use super::{Array, Backing};
use crate::error::Result;
use crate::foreign::variable::Variable;
use crate::log::array::ArrayHandle;
use crate::plan::geometry::Geometry;
use crate::run::chunks::ChunkCache;
use crate::run::execute::MakeElements;
use crate::run::plan::{Piece, ReadPlan};
use crate::source::{Settled, StoredLayout};
use crate::zarr::state::ArrayState;

/// An array as it is known when a read begins.
pub(super) enum Known<'a> {
    Stored(&'a ArrayHandle, Arc<ArrayState>),
    Foreign(&'a Variable),
}

impl Array {
    /// The array as it is now, looked up again if the store's freshness asks for it.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub(super) fn known(&self) -> Result<Known<'_>> {
        Ok(match &self.backing {
            Backing::Stored(handle) => Known::Stored(handle, handle.state()?),
            Backing::Foreign(variable) => Known::Foreign(variable),
        })
    }

    /// The array as it was when it was last looked up.
    pub(super) fn last_known(&self) -> Known<'_> {
        match &self.backing {
            Backing::Stored(handle) => Known::Stored(handle, handle.last_state()),
            Backing::Foreign(variable) => Known::Foreign(variable),
        }
    }
}

impl Known<'_> {
    /// How the array is stored.
    pub(super) fn layout(&self) -> &StoredLayout {
        match self {
            Self::Stored(_, state) => &state.layout,
            Self::Foreign(variable) => &variable.layout,
        }
    }

    /// Calls `act` with the plan that reads what `geometry` touches; again, with the newest moment, as long as the data move on under it.
    ///
    /// # Errors
    /// Those of `act`, and of looking up the moment.
    pub(super) fn with_plan<T>(
        &self,
        geometry: &Geometry,
        elements: Option<&MakeElements<'_>>,
        mut act: impl FnMut(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Stored(handle, state) => handle.store.in_one_snapshot(|| {
                let pinned = handle.pinned(state)?;
                let piece = Piece {
                    source: &pinned.source,
                    moment: &pinned.moment,
                    layout: &state.layout,
                    geometry,
                    elements,
                    cache: ChunkCache::new(&handle.store.cache, &state.scope),
                };
                act(ReadPlan::new(std::slice::from_ref(&piece), &handle.store.tuning))
            }),
            Self::Foreign(variable) => {
                let piece = Piece {
                    source: *variable,
                    moment: &Settled,
                    layout: &variable.layout,
                    geometry,
                    elements,
                    cache: ChunkCache::new(&variable.file.cache, &variable.scope),
                };
                act(ReadPlan::new(std::slice::from_ref(&piece), &variable.file.tuning))
            }
        }
    }
}
