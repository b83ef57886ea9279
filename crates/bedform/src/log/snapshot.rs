//! Snapshots: the state of a store that a read or write goes by, and what it means for one array.

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform_format::ObjectPath;

use super::view::View;
use crate::error::{Error, ErrorKind, Result};
use crate::source::{Cover, Moment, StoredLayout};
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::sink::ShardSink;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::ArrayState;

/// The state of a store that a read or write goes by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// The last commit.
    pub(crate) number: u64,
    /// The identity of the store, whose commits these numbers count: stamps of arrays that came from
    /// other stores count those of theirs.
    pub(crate) store: Option<[u8; 16]>,
    /// The commits that are not settled, and the list of shards that others were settled into; nothing without
    /// a log.
    pub(crate) view: Option<Arc<View>>,
    /// True if it stays while the data move on.
    pub(crate) is_held: bool,
}

impl Snapshot {
    /// Of a store that has no log.
    pub(super) fn all_settled(number: u64, store: Option<[u8; 16]>) -> Self {
        Self { number, store, ..Self::default() }
    }

    pub(super) fn of(view: Arc<View>) -> Self {
        let (number, store) = (view.root.number, Some(view.root.store));
        Self { number, store, view: Some(view), is_held: false }
    }
}

/// An array as of a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct ArrayMoment<'a> {
    pub(crate) snapshot: Snapshot,
    /// What the commits of the snapshot know the array by; nothing for one that came from another store
    /// with its shards: their stamps name commits of that one.
    key: Option<[u8; 16]>,
    layout: &'a StoredLayout,
}

impl<'a> ArrayMoment<'a> {
    /// The array with `state` as of `snapshot`.
    pub(crate) fn new(snapshot: Snapshot, state: &'a ArrayState) -> Self {
        let identity = state.identity().filter(|own| snapshot.store == Some(own.store));
        let key = identity.map(|own| own.array);
        Self { snapshot, key, layout: &state.layout }
    }

    /// What the commits of the snapshot know the array by, if it is one of their store.
    pub(crate) fn key(&self) -> Option<[u8; 16]> {
        self.key
    }

    /// The coordinates of the objects that must be there, by the lists of settled shards.
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
                // It may have been settled while the snapshot was taken. (If it is lost, the next one says so.)
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

/// An array as of a snapshot: where its objects are, and what lies over them.
#[derive(Clone)]
pub(crate) struct PinnedArray<'a> {
    pub(crate) source: ZarrSource<'a>,
    pub(crate) moment: ArrayMoment<'a>,
}

impl<'a> PinnedArray<'a> {
    /// The array at `path` with `state`, as of `snapshot`.
    pub(crate) fn new(
        hierarchy: &'a Hierarchy,
        path: &'a ObjectPath,
        state: &'a ArrayState,
        snapshot: Snapshot,
    ) -> Self {
        let source = ZarrSource { hierarchy, path, state };
        Self { source, moment: ArrayMoment::new(snapshot, state) }
    }

    /// Where the commits of the snapshot are settled into. The shards that are replaced stay in the place
    /// `kept_beside` the store.
    pub(crate) fn sink(&self, kept_beside: Option<&'static str>) -> ShardSink<'_> {
        ShardSink { source: &self.source, moment: &self.moment, kept_beside }
    }

    /// The coordinates of the objects that are there, and of those that must be.
    ///
    /// # Errors
    /// `Interrupted`; `Corrupt` for a damaged list of settled shards; those of storage.
    pub(crate) fn expected(&self) -> Result<BTreeSet<Vec<u64>>> {
        let existing = self.source.existing_or_asked()?;
        let mut all: BTreeSet<Vec<u64>> = existing.into_iter().collect();
        let metadata = &self.source.state.metadata;
        let ends = || metadata.chunk_shape.iter().zip(&metadata.shape);
        // An array that was made smaller may not have been taken off the list yet.
        all.extend(self.moment.settled_objects()?.into_iter().filter(|coordinates| {
            coordinates
                .iter()
                .zip(ends())
                .all(|(at, (length, end))| at.saturating_mul(*length) < *end)
        }));
        Ok(all)
    }
}
