//! Snapshots: the state of a store that a read or write sees, and of one array in it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform_format::ObjectPath;

use super::view::RootView;
use crate::error::{Error, ErrorKind, Result};
use crate::run::chunks::ChunkCache;
use crate::run::read_source::ReadSource;
use crate::source::{Cover, Moment, StoredLayout};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::sink::ShardSink;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::ArrayState;

/// The state of a store that a read or write sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// The number of the last commit.
    pub(crate) number: u64,
    /// The identifier of the store whose commits have these numbers. Stamps in arrays from other
    /// stores have the numbers of those stores.
    pub(crate) store: Option<[u8; 16]>,
    /// The root, with the commits that are not settled and the list of settled shards; `None`
    /// without a log.
    pub(crate) view: Option<Arc<RootView>>,
    /// True if it stays while the data move on.
    pub(crate) is_held: bool,
}

impl Snapshot {
    /// Returns the snapshot of a store without a log.
    pub(super) fn all_settled(number: u64, store: Option<[u8; 16]>) -> Self {
        Self { number, store, ..Self::default() }
    }

    pub(super) fn of(view: Arc<RootView>) -> Self {
        let (number, store) = (view.root.number, Some(view.root.store));
        Self { number, store, view: Some(view), is_held: false }
    }
}

/// An array as of a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct ArrayMoment<'a> {
    pub(crate) snapshot: Snapshot,
    /// The key of the array in the commits of the snapshot. `None` for an array that came from
    /// another store with its shards: their stamps name commits of that store.
    key: Option<[u8; 16]>,
    layout: &'a StoredLayout,
}

impl<'a> ArrayMoment<'a> {
    /// Returns the array with `state` as of `snapshot`.
    pub(crate) fn new(snapshot: Snapshot, state: &'a ArrayState) -> Self {
        let identity = state.identity().filter(|own| snapshot.store == Some(own.store));
        let key = identity.map(|own| own.array);
        Self { snapshot, key, layout: &state.layout }
    }

    /// Returns the key of the array in the commits of the snapshot, if it belongs to their store.
    pub(crate) fn key(&self) -> Option<[u8; 16]> {
        self.key
    }

    /// Returns the coordinates of the objects that must exist, by the lists of settled shards.
    ///
    /// # Errors
    /// `Corrupt` for a damaged list; those of storage.
    pub(crate) fn settled_objects(&self) -> Result<Vec<Vec<u64>>> {
        match (&self.snapshot.view, &self.key) {
            (Some(view), Some(key)) => view.settled_objects(key),
            _ => Ok(Vec::new()),
        }
    }
}

impl Moment for ArrayMoment<'_> {
    fn number(&self) -> u64 {
        self.snapshot.number
    }

    fn is_settled(&self) -> bool {
        self.snapshot.view.is_none()
    }

    fn contained(&self, contained: u64) -> u64 {
        self.key.map_or(0, |_| contained)
    }

    fn check(&self, coordinates: &[u64], contained: u64, name: &dyn Fn() -> String) -> Result<()> {
        let Some(key) = &self.key else { return Ok(()) };
        let number = self.snapshot.number;
        if contained > number {
            return Err(Error::new(
                ErrorKind::SnapshotMoved,
                format!(
                    "{} contains commit {contained}, and the snapshot ends with {number}; read again",
                    name()
                ),
            ));
        }
        let Some(view) = &self.snapshot.view else { return Ok(()) };
        view.check_contained(key, coordinates, contained, name).map_err(|error| {
            match self.snapshot.is_held && error.kind() == ErrorKind::Corrupt {
                // It may have been settled while the snapshot was taken. (If it is lost, the next
                // snapshot says so.)
                true => Error::new(ErrorKind::SnapshotMoved, error.to_string()),
                false => error,
            }
        })
    }

    fn cover(
        &self,
        coordinates: &[u64],
        contained: u64,
        name: &dyn Fn() -> String,
    ) -> Result<Option<Arc<dyn Cover>>> {
        self.check(coordinates, contained, name)?;
        let Some((view, key)) = self.snapshot.view.as_ref().zip(self.key) else {
            return Ok(None);
        };
        let region = self.layout.object_region(coordinates)?;
        let overlay = view.overlay(&key, &region, contained, self.layout)?;
        Ok(overlay.map(|overlay| Arc::new(overlay) as Arc<dyn Cover>))
    }
}

/// An array of a store as of a snapshot, for writers, settling and checks, which name its objects:
/// their source, and the commits over them. Reads take its [`ReadSource`].
pub(crate) struct PinnedArray<'a> {
    pub(crate) source: ZarrSource<'a>,
    pub(crate) moment: ArrayMoment<'a>,
}

impl<'a> PinnedArray<'a> {
    /// Returns the array at `path` with `state`, as of `snapshot`.
    pub(crate) fn new(
        hierarchy: &'a Hierarchy,
        path: &'a ObjectPath,
        state: &'a ArrayState,
        snapshot: Snapshot,
    ) -> Self {
        let source = ZarrSource { hierarchy, path, state };
        Self { source, moment: ArrayMoment::new(snapshot, state) }
    }

    /// Returns the array as reads see it.
    pub(crate) fn read_source(&self) -> ReadSource<'_> {
        let ZarrSource { hierarchy, state, .. } = self.source;
        ReadSource {
            moment: &self.moment,
            meaning: state.meaning,
            cache: ChunkCache::new(&hierarchy.cache, &state.scope),
            ..ReadSource::settled(&self.source, &state.layout, &hierarchy.tuning)
        }
    }

    /// Returns the sink into which the commits of the snapshot are settled. Replaced shards stay in
    /// the place `kept_beside` the store.
    pub(crate) fn sink(&self, kept_beside: Option<&'static str>) -> ShardSink<'_> {
        ShardSink { source: &self.source, moment: &self.moment, kept_beside }
    }

    /// Returns the coordinates of the objects that exist or must exist.
    ///
    /// # Errors
    /// `Interrupted`; `Corrupt` for a damaged list of settled shards; those of storage.
    pub(crate) fn expected(&self) -> Result<BTreeSet<Vec<u64>>> {
        let existing = self.source.existing_or_asked()?;
        let mut all: BTreeSet<Vec<u64>> = existing.into_iter().collect();
        let metadata = &self.source.state.metadata;
        let ends = || metadata.chunk_shape.iter().zip(&metadata.shape);
        // The list may still name objects outside an array that was made smaller.
        all.extend(self.moment.settled_objects()?.into_iter().filter(|coordinates| {
            coordinates
                .iter()
                .zip(ends())
                .all(|(at, (length, end))| at.saturating_mul(*length) < *end)
        }));
        Ok(all)
    }
}
