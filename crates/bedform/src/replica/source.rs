//! A replica as a source of chunks, whose objects must be those that the catalogue lists.

use std::collections::HashMap;
use std::sync::Arc;

use bedform_format::chunk_map::SourceVersion;
use bedform_format::replica::ReplicaObject;
use bedform_storage::{Bell, Version};

use crate::error::{Error, Result};
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::chunks::ChunkCache;
use crate::sidecar::source_version;
use crate::source::{OpenCell, PendingCell, Source, StoredLayout};
use crate::zarr::source::ZarrSource;

/// The recorded versions of a replica's objects, by their coordinates.
pub(super) type OwnVersions = HashMap<Vec<u64>, SourceVersion>;

pub(super) fn versions_of(objects: &[ReplicaObject]) -> OwnVersions {
    objects.iter().map(|object| (object.at.clone(), object.version.clone())).collect()
}

/// A replica as a source of chunks. Each object that a read opens must have the version that the
/// catalogue lists: the elements of a missing object would read as the fill value.
#[derive(Clone, Copy)]
pub(crate) struct ReplicaSource<'a> {
    pub(super) source: ZarrSource<'a>,
    pub(super) own: &'a OwnVersions,
}

impl<'a> ReplicaSource<'a> {
    /// Returns its layout on storage.
    pub(crate) fn layout(&self) -> &'a StoredLayout {
        &self.source.state.layout
    }

    /// Returns the hash of the metadata that its chunks depend on.
    pub(crate) fn meaning(&self) -> u64 {
        self.source.state.meaning
    }

    /// Returns the cache of its decoded chunks.
    pub(crate) fn cache(&self) -> Option<ChunkCache<'a>> {
        ChunkCache::new(&self.source.hierarchy.cache, &self.source.state.scope)
    }

    /// Returns the parameters for planning its reads.
    pub(crate) fn tuning(&self) -> &'a Tuning {
        &self.source.hierarchy.tuning
    }
}

impl Source for ReplicaSource<'_> {
    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<PendingCell> {
        self.source.ask(coordinates, need, bell)
    }

    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let opened = self.source.open(coordinates, need, asked, waits)?;
        let now = opened.as_ref().map(|cell| source_version(cell.object.version()));
        if now.as_ref() == self.own.get(coordinates) {
            return Ok(opened);
        }
        let problem = match now {
            None => "it is gone",
            Some(_) => "it is not the file that the catalogue lists",
        };
        Err(Error::corrupt(self.object_name(coordinates), problem))
    }

    fn is_still(&self, coordinates: &[u64], version: Option<&Version>) -> Result<bool> {
        self.source.is_still(coordinates, version)
    }

    fn comes_whole(&self, need: Need) -> bool {
        self.source.comes_whole(need)
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        self.source.object_name(coordinates)
    }

    fn place_name(&self) -> String {
        self.source.place_name()
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }
}
