//! One replica: opened at its first use, compared with the objects that it was made of, and counted.
//!
//! A replica that cannot be opened, or failed once, is broken for its handle: reads go on without it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::parse_array;
use bedform_format::replica::{Replica, ReplicaElements, SourceObject};
use bedform_geometry::{AxisSelection, Region, Selection};
use bedform_storage::{Mode, Profile};
use serde::Serialize;
use serde_json::Value;

use super::catalogue::Standing;
use super::places::SharedPlaces;
use super::source::{OwnVersions, ReplicaSource, versions_of};
use crate::error::{Error, Result};
use crate::opening::storage_in_sidecar;
use crate::options::OpenOptions;
use crate::sidecar::{REPLICAS, Sidecar};
use crate::source::StoredLayout;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::source::ZarrSource;
use crate::zarr::state::ArrayState;

/// The use of a replica by the reads of a handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReplicaStatistics {
    /// Its name.
    pub id: String,
    /// The path of the array that it is a copy of.
    pub array: String,
    /// Reads that took elements from it.
    pub reads: u64,
    /// Bytes that they took from it.
    pub bytes: u64,
    /// True once a read of it failed: the handle then reads the array itself.
    pub is_broken: bool,
}

/// A replica, opened at its first use.
#[derive(Debug)]
pub(crate) struct OpenReplica {
    pub(crate) record: Replica,
    /// The smallest box around its elements; `None` for points.
    bounds: Option<Region>,
    directory: PathBuf,
    sidecar: Sidecar,
    options: OpenOptions,
    opened: OnceLock<Option<OpenedReplica>>,
    /// The places of its elements, for a replica of points.
    pub(super) places: SharedPlaces,
    /// Indexes into the objects that it was made of, by their coordinates.
    objects: OnceLock<HashMap<Vec<u64>, usize>>,
    /// For each object, the moment at which a read compared its version, and whether it was the
    /// recorded one. Later reads of the same moment need not compare again.
    looked: Mutex<HashMap<Vec<u64>, (u64, bool)>>,
    /// True once a read of it failed.
    is_broken: AtomicBool,
    /// Reads that took elements from it, and their bytes.
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// Returns the directory of a replica in a sidecar.
fn directory_of(record: &Replica, sidecar: &Sidecar) -> Option<PathBuf> {
    Some(sidecar.own_directory()?.join(REPLICAS).join(&record.id))
}

/// The store of a replica, and the state of its array.
#[derive(Debug)]
pub(super) struct OpenedReplica {
    pub(super) hierarchy: Hierarchy,
    path: ObjectPath,
    state: ArrayState,
    own: OwnVersions,
}

impl OpenReplica {
    /// Makes the replica of a record, unopened; `None` where the sidecar has no directory.
    pub(super) fn new(
        record: Replica,
        sidecar: &Sidecar,
        options: &OpenOptions,
        places: SharedPlaces,
    ) -> Option<Self> {
        Some(Self {
            directory: directory_of(&record, sidecar)?,
            sidecar: sidecar.clone(),
            bounds: record.held.bounds(),
            options: options.clone(),
            record,
            opened: OnceLock::new(),
            places,
            objects: OnceLock::new(),
            looked: Mutex::default(),
            is_broken: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// True if it is the replica in `sidecar` with this record.
    pub(super) fn is_of(&self, record: &Replica, sidecar: &Sidecar) -> bool {
        self.record == *record && directory_of(record, sidecar).as_ref() == Some(&self.directory)
    }

    /// Returns the opened replica as a source of chunks; `None` if it is broken or differs from its
    /// record.
    pub(crate) fn source(&self) -> Option<ReplicaSource<'_>> {
        if self.is_broken() {
            return None;
        }
        let opened = self.opened();
        if opened.is_none() {
            self.distrust();
        }
        let OpenedReplica { hierarchy, path, state, own } = opened?;
        Some(ReplicaSource { source: ZarrSource { hierarchy, path, state }, own })
    }

    /// Returns the opened replica; `None` if it cannot be opened.
    pub(super) fn opened(&self) -> Option<&OpenedReplica> {
        self.opened.get_or_init(|| self.open().ok()).as_ref()
    }

    fn open(&self) -> Result<OpenedReplica> {
        let mut options = self.options.clone();
        options.profile = Profile::for_path(&self.directory).ok().flatten();
        if !self.sidecar.is_trusted_at(&[REPLICAS, &self.record.id]) {
            return Err(Error::corrupt(self.name(), "others than its owner may write it"));
        }
        let place = format!("{REPLICAS}/{}", self.record.id);
        let storage = storage_in_sidecar(&self.sidecar, &place, Mode::ReadOnly, &options)?;
        let hierarchy = Hierarchy::new(storage, options, |_, _| Ok(None));
        let path = ObjectPath::parse(&self.record.array)?;
        let state = self.state_of(&hierarchy, &path, self.record.document.clone())?;
        if state.metadata.shape != self.record.held.shape() {
            return Err(Error::corrupt(self.name(), "it is not the replica of the catalogue"));
        }
        let own = versions_of(&self.record.objects);
        Ok(OpenedReplica { hierarchy, path, state, own })
    }

    /// Returns the state of one of its arrays, from a document.
    pub(super) fn state_of(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        document: Value,
    ) -> Result<ArrayState> {
        let metadata = parse_array(&document, &hierarchy.options.limits)
            .map_err(|error| Error::metadata(self.name(), error))?;
        ArrayState::new(hierarchy, path, metadata, document, None)
    }

    /// Returns the last commit in the object at `coordinates`, if its version, which `now` returns,
    /// is the recorded one. With `looked_at`, the number of a moment, one comparison serves all
    /// reads of that moment.
    ///
    /// # Errors
    /// Those of `now`.
    pub(crate) fn commit_if_same(
        &self,
        coordinates: &[u64],
        looked_at: Option<u64>,
        now: impl FnOnce() -> Result<Option<SourceVersion>>,
    ) -> Result<Option<u64>> {
        let of = &self.record.of.objects;
        let index = || of.iter().map(|object| object.at.clone()).zip(0..).collect();
        let Some(number) = self.objects.get_or_init(index).get(coordinates) else {
            return Ok(None);
        };
        let SourceObject { version, commit, .. } = &of[*number];
        let looked = || self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moment) = looked_at
            && let Some((of_moment, is_same)) = looked().get(coordinates)
            && *of_moment == moment
        {
            return Ok(is_same.then_some(*commit));
        }
        let is_same = Standing::of(version.as_ref(), now()?.as_ref()) == Standing::Same;
        if let Some(moment) = looked_at {
            looked().insert(coordinates.to_vec(), (moment, is_same));
        }
        Ok(is_same.then_some(*commit))
    }

    /// True if it can be a replica of an array with this shape, layout, key in its store, and
    /// meaning of its objects.
    pub(crate) fn may_be_of(
        &self,
        shape: &[u64],
        layout: &StoredLayout,
        (key, meaning): (&str, &str),
    ) -> bool {
        let Replica { array_shape, held, of, .. } = &self.record;
        let grows = array_shape.len() == shape.len()
            && array_shape.iter().zip(shape).all(|(then, now)| then <= now);
        // The number of a place depends on the length of every axis but the first.
        let fits = match held {
            ReplicaElements::Runs(_) => grows,
            ReplicaElements::Points { .. } => grows && array_shape.get(1..) == shape.get(1..),
        };
        fits && of.key == key
            && self.record.meaning == meaning
            && self.source().is_some_and(|source| {
                let own = source.layout();
                own.item_size == layout.item_size && own.fill_element() == layout.fill_element()
            })
    }

    /// Returns the path of the replica's directory, for messages.
    pub(crate) fn name(&self) -> String {
        self.directory.display().to_string()
    }

    /// False if a quick check shows that it holds no element of a selection.
    pub(crate) fn may_have(&self, selection: &Selection) -> bool {
        if self.is_broken() {
            return false;
        }
        match (&self.bounds, selection) {
            (Some(held), Selection::Orthogonal(axes)) => {
                axes.len() == held.rank()
                    && axes.iter().enumerate().all(|(at, axis)| {
                        axis.bounds().is_some_and(|bounds| self.meets(at, bounds))
                    })
            }
            (Some(held), Selection::Points(points)) => held.rank() == 1 && points.rank() == 1,
            (None, Selection::Orthogonal(axes)) => {
                matches!(axes.as_slice(), [AxisSelection::Coords(_)])
            }
            (None, Selection::Points(_)) => true,
            (_, Selection::Union(_)) => false,
        }
    }

    /// False if its bounds along an axis exclude all positions from `low` to `high`, inclusive.
    pub(crate) fn meets(&self, axis: usize, (low, high): (u64, u64)) -> bool {
        let held = self.bounds.as_ref();
        held.is_none_or(|held| low < held.end(axis) && held.start()[axis] <= high)
    }

    /// True once a read of it failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Excludes it from further reads of this handle.
    pub(crate) fn distrust(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Counts a read that took `bytes` bytes from it.
    pub(crate) fn count(&self, bytes: u64) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns its use by the reads of this handle.
    pub(super) fn statistics(&self) -> ReplicaStatistics {
        ReplicaStatistics {
            id: self.record.id.clone(),
            array: self.record.array.clone(),
            reads: self.reads.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            is_broken: self.is_broken(),
        }
    }
}
