//! The objects of a Zarr array as a source: their paths, and their tails (stamp and index).
//!
//! Opening a shard reads its index, checks the stamp before it, and caches both. A snapshot gets
//! the objects of its moment: replaced shards come from the log's kept ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bedform_format::ObjectPath;
use bedform_format::shard::{ShardError, ShardIndex, Stamp};
use bedform_geometry::delinearize;
use bedform_storage::{Bell, Object, StorageExt as _, Version};

use super::documents::ZARR_JSON;
use super::held::SnapshotMoment;
use super::hierarchy::Hierarchy;
use super::kept::{Predecessor, predecessor};
use super::state::ArrayState;
use crate::cache::{CacheKey, EntryKind, ObjectKey};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Freshness;
use crate::plan::opening::{Need, ShardSize, WHOLE_BYTES_MAX, whole_bytes_max, whole_is_sooner};
use crate::source::{ChunkLocations, OpenCell, PendingCell, Source};
use crate::threads::ordered::map_in_threads;
use crate::threads::workers::check_cancelled;

/// Bytes that add no noticeable time to a request.
const SMALL_BYTES: u64 = 64 << 10;
/// Approximate bytes in memory of an opened object, without the index that it shares.
const KEPT_BYTES: u64 = 512;
/// Objects that are asked for between two polls for cancellation.
const ASKED_TOGETHER: usize = 1 << 12;

/// The sizes of the parts at the end of an array's shards: index and stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardEnd {
    chunks: u64,
    index_bytes: u64,
    stamp_bytes: u64,
}

impl ShardEnd {
    /// Computes the sizes for shards of `chunks` chunks in an array of `rank` axes.
    pub(crate) fn new(chunks: u64, is_checked: bool, rank: usize) -> Self {
        let index_bytes = ShardIndex::encoded_bytes(chunks, is_checked);
        Self { chunks, index_bytes, stamp_bytes: Stamp::encoded_bytes(rank) }
    }

    fn bytes(self) -> u64 {
        self.index_bytes.saturating_add(self.stamp_bytes)
    }
}

/// An opened shard and its index, which the handle may use again without asking storage.
#[derive(Debug)]
struct KeptShard {
    object: Arc<dyn Object>,
    index: Arc<ShardIndex>,
}

/// The objects of one array, as of one state of its metadata.
#[derive(Clone, Copy)]
pub(crate) struct ZarrSource<'a> {
    pub(crate) hierarchy: &'a Hierarchy,
    pub(crate) path: &'a ObjectPath,
    pub(crate) state: &'a ArrayState,
}

impl ZarrSource<'_> {
    /// The path of the object at `coordinates` in the grid of objects.
    pub(crate) fn object_path(&self, coordinates: &[u64]) -> Result<ObjectPath> {
        Ok(self.path.join(&self.state.metadata.keys.name(coordinates))?)
    }

    /// Opens the object at `coordinates`; `None` if there is none.
    pub(crate) fn open_object(&self, coordinates: &[u64]) -> Result<Option<Arc<dyn Object>>> {
        self.open_for(&self.object_path(coordinates)?, Need::default())
    }

    fn open_for(&self, path: &ObjectPath, need: Need) -> Result<Option<Arc<dyn Object>>> {
        Ok(self.hierarchy.storage.find_end(path, self.opening_bytes(need))?.map(Arc::from))
    }

    /// Bytes at the end of an object that are fetched when it is opened.
    fn opening_bytes(&self, need: Need) -> u64 {
        if self.comes_whole(need) { self.whole_bytes() } else { self.end_bytes(need) }
    }

    /// Bytes at the end of an object that every read of it needs: the index of a shard, or a chunk.
    fn end_bytes(&self, need: Need) -> u64 {
        match self.state.shard_end {
            // A caller without a stated need may read all of the index and more.
            Some(end) if need == Need::default() => end.bytes().max(SMALL_BYTES),
            Some(end) => end.bytes(),
            None => self.chunk_bytes().min(WHOLE_BYTES_MAX),
        }
    }

    /// An estimate of the bytes of an encoded chunk: its elements plus 1/64 and 1 KiB for codecs
    /// that lengthen them.
    fn chunk_bytes(&self) -> u64 {
        let bytes = self.state.layout.codec.decoded_bytes() as u64;
        bytes + bytes / 64 + 1024
    }

    /// The most bytes that an object without gaps has.
    fn whole_bytes(&self) -> u64 {
        let Some(end) = self.state.shard_end else { return self.chunk_bytes() };
        self.chunk_bytes().saturating_mul(end.chunks).saturating_add(end.bytes())
    }

    /// The estimated size of a shard: the largest that was seen of the array, else the most
    /// possible.
    fn shard_size(&self, end: ShardEnd) -> ShardSize {
        let bytes = match self.state.object_bytes.load(Ordering::Relaxed) {
            0 => self.whole_bytes(),
            seen => seen,
        };
        #[allow(clippy::cast_precision_loss)]
        let [chunks, bytes, end_bytes] = [end.chunks, bytes, end.bytes()].map(|count| count as f64);
        ShardSize { chunks, bytes, end_bytes }
    }

    /// The object's name, for messages.
    pub(crate) fn object_name_of(&self, coordinates: &[u64]) -> String {
        match self.object_path(coordinates) {
            Ok(path) => self.hierarchy.name_of(&path),
            Err(_) => format!("{} {coordinates:?}", self.hierarchy.name_of(self.path)),
        }
    }

    /// Lists the coordinates of every object, inside the array's shape or not.
    pub(crate) fn existing(&self) -> Result<Vec<Vec<u64>>> {
        Ok(self.walk()?.0)
    }

    /// As [`ZarrSource::existing`]. Where listing is denied, asks for each object inside the
    /// array's shape by its name.
    pub(crate) fn existing_or_asked(&self) -> Result<Vec<Vec<u64>>> {
        match self.existing() {
            Err(denied) if self.hierarchy.storage.is_remote() && denied.is_of_list() => {
                match self.asked() {
                    // Without the right to list, a server reports a missing object as denied.
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                        Err(denied.at(self.hierarchy.name_of(self.path)))
                    }
                    asked => asked,
                }
            }
            listed => listed,
        }
    }

    /// The coordinates of the objects that exist inside the array's shape, by one request for each.
    fn asked(&self) -> Result<Vec<Vec<u64>>> {
        let grid = self.object_grid();
        let count = grid.iter().fold(1, |all, length| u64::saturating_mul(all, *length));
        let mut found = Vec::new();
        for start in (0..count).step_by(ASKED_TOGETHER) {
            check_cancelled("the check was stopped")?;
            let end = count.min(start + ASKED_TOGETHER as u64);
            let places: Vec<_> = (start..end).map(|at| delinearize(at, &grid)).collect();
            let is_there =
                map_in_threads(self.hierarchy.threads_asking(), &places, |at| {
                    match self.hierarchy.storage.stat(&self.object_path(at)?) {
                        Ok(_) => Ok(true),
                        Err(error) if error.is_not_found() => Ok(false),
                        Err(error) => Err(error.into()),
                    }
                })?;
            let there = places.into_iter().zip(is_there).filter(|(_, is_there)| *is_there);
            found.extend(there.map(|(place, _)| place));
        }
        Ok(found)
    }

    /// The number of objects along each axis of the array's shape.
    pub(crate) fn object_grid(&self) -> Vec<u64> {
        let chunks = self.state.layout.grid.grid_shape();
        chunks
            .iter()
            .zip(&self.state.layout.per_object)
            .map(|(all, each)| all.div_ceil(*each))
            .collect()
    }

    /// As [`ZarrSource::existing`], with the directories that hold objects or have held some.
    pub(crate) fn walk(&self) -> Result<(Vec<Vec<u64>>, Vec<ObjectPath>)> {
        let mut directories = Vec::new();
        let keys = self.state.metadata.keys;
        let rank = self.state.metadata.rank();
        let mut found = Vec::new();
        // Names of one segment lie in the array's directory, the others `rank` levels deep.
        let mut level = vec![(self.path.clone(), String::new())];
        while !level.is_empty() {
            let list = |(directory, _): &(ObjectPath, String)| {
                Ok(self.hierarchy.storage.list(directory)?)
            };
            let listed = map_in_threads(self.hierarchy.threads_asking(), &level, list)?;
            let mut next = Vec::new();
            for ((directory, prefix), entries) in level.into_iter().zip(listed) {
                for entry in entries {
                    let name = if prefix.is_empty() {
                        entry.name.clone()
                    } else {
                        format!("{prefix}/{}", entry.name)
                    };
                    // A directory with the name of an object is reported: opening it fails.
                    if let Some(coordinates) = keys.parse(&name, rank) {
                        found.push(coordinates);
                    } else if entry.is_directory && name.split('/').count() <= rank {
                        next.push((directory.join(&entry.name)?, name));
                    }
                }
                directories.push(directory);
            }
            level = next;
        }
        found.sort_unstable();
        // In an object store one name may be both an object and a prefix.
        found.dedup();
        Ok((found, directories))
    }

    /// True if this handle may reuse opened shards. A handle that checks freshness before every
    /// read, or writes, opens them anew; decoded chunks are cached in both cases.
    pub(crate) fn keeps_shards(&self) -> bool {
        let options = &self.hierarchy.options;
        options.freshness != Freshness::Read && !options.writable
    }

    /// The cache key of a shard that this handle has opened.
    fn kept_key(&self, coordinates: &[u64]) -> CacheKey {
        let object = ObjectKey::at(coordinates);
        self.hierarchy.cache.own_key(EntryKind::Index, &self.state.scope, object, 0)
    }

    /// The shard at `coordinates` as this handle opened it, if it may be reused. A read from a
    /// shard that was replaced since fails.
    fn kept_shard(&self, coordinates: &[u64]) -> Option<Arc<KeptShard>> {
        match self.keeps_shards() {
            true => self.hierarchy.cache.get(&self.kept_key(coordinates)),
            false => None,
        }
    }

    /// The index of an opened shard, from the cache if possible, with the bytes that were read for
    /// it.
    fn index(
        &self,
        coordinates: &[u64],
        object: &dyn Object,
        waits: &dyn Fn(),
    ) -> Result<(Arc<ShardIndex>, Option<u64>)> {
        let (cache, version) = (&self.hierarchy.cache, object.version());
        let place = ObjectKey::at(coordinates);
        let key = cache.key(EntryKind::Index, &self.state.scope, place, version, 0);
        if let Some(index) = cache.get(&key) {
            return Ok((index, None));
        }
        let (index, bytes) = self.read_index(coordinates, object, waits)?;
        let index = Arc::new(index);
        let memory = index.memory_bytes() as u64;
        match object.kept().filter(|_| self.keeps_shards()) {
            Some(object) => {
                let shard = || Arc::new(KeptShard { object, index: index.clone() });
                cache.put(self.kept_key(coordinates), memory + KEPT_BYTES, shard);
            }
            None => cache.put(key, memory, || index.clone()),
        }
        Ok((index, Some(bytes)))
    }

    /// Fails if a missing object of a snapshot may have existed at its moment. The array's document
    /// is checked too: it changes when the array shrinks, is deleted or is replaced.
    fn check_was_absent(&self, coordinates: &[u64]) -> Result<()> {
        let Some(held) = &self.hierarchy.held else { return Ok(()) };
        if self.may_have_lost(coordinates, held.since_ns)? {
            return Err(SnapshotMoment::moved(
                &self.object_name_of(coordinates),
                "may have been deleted",
            ));
        }
        let name = || self.hierarchy.name_of(self.path);
        match self.hierarchy.storage.stat(&self.document()?) {
            Ok(found) => held.check(&found, name),
            Err(error) if error.is_not_found() => Err(SnapshotMoment::gone(&name())),
            Err(error) => Err(error.into()),
        }
    }

    /// True if another program may have deleted a missing object after `since_ns`: the directory of
    /// the object was modified since.
    fn may_have_lost(&self, coordinates: &[u64], since_ns: i64) -> Result<bool> {
        let storage = &self.hierarchy.storage;
        let mut directory = self.object_path(coordinates)?.parent();
        // The array's own directory changes with its document, and with locks.
        while !storage.is_remote() && directory != *self.path && !directory.is_root() {
            match storage.modified_ns(&directory) {
                Ok(changed) => return Ok(changed > since_ns),
                Err(error) if error.is_not_found() => directory = directory.parent(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// The path of the array's own document. (An array that commits have made larger has no own
    /// document with that shape.)
    pub(super) fn document(&self) -> Result<ObjectPath> {
        match &self.state.source {
            Some(source) => Ok(source.own().0.clone()),
            None => Ok(self.path.join(ZARR_JSON)?),
        }
    }

    /// The object at `coordinates` as of the snapshot's moment: `object`, found there now, or its
    /// kept predecessor.
    fn as_held(
        &self,
        coordinates: &[u64],
        object: Option<Arc<dyn Object>>,
    ) -> Result<Option<Arc<dyn Object>>> {
        let Some(found) = object else { return self.check_was_absent(coordinates).map(|()| None) };
        let Some(held) = &self.hierarchy.held else { return Ok(Some(found)) };
        let Err(moved) = held.check(found.version(), || self.object_name_of(coordinates)) else {
            return Ok(Some(found));
        };
        let (Some(log), Some(identity)) = (&held.kept, self.state.identity()) else {
            return Err(moved);
        };
        match predecessor(&**log, &identity.array, coordinates, held.since_ns) {
            Ok(Some(Predecessor::Shard(object))) => Ok(Some(object)),
            Ok(Some(Predecessor::Absent)) => Ok(None),
            _ => Err(moved),
        }
    }

    /// Fails if another array has taken this one's place, so that none of its objects may be
    /// written there. Meanwhile others may have settled this array, deleted it and created another
    /// one.
    ///
    /// # Errors
    /// `SnapshotMoved`; those of reading the store's document.
    pub(super) fn check_is_there(&self) -> Result<()> {
        let own = self.state.identity().map(|identity| identity.array);
        match self.hierarchy.documents.key_of(self.hierarchy, self.path)? {
            Some(key) if own.is_some_and(|own| own != key) => Err(Error::new(
                ErrorKind::SnapshotMoved,
                format!("{} was replaced by another array", self.hierarchy.name_of(self.path)),
            )),
            _ => Ok(()),
        }
    }

    /// Fails if another array has taken the place of this one since its documents were read.
    fn check_not_replaced(&self) -> Result<()> {
        let Some(source) = &self.state.source else { return Ok(()) };
        if self.hierarchy.documents.is_current(self.hierarchy, source)? {
            return Ok(());
        }
        let name = self.hierarchy.name_of(self.path);
        let text = format!("{name} was replaced by another writer; open it again");
        Err(Error::new(ErrorKind::Conflict, text))
    }

    /// Reads the index of a shard and checks the stamp before it; returns the bytes read, too.
    pub(crate) fn read_index(
        &self,
        coordinates: &[u64],
        object: &dyn Object,
        waits: &dyn Fn(),
    ) -> Result<(ShardIndex, u64)> {
        let damaged = |error| Error::corrupt(self.object_name_of(coordinates), error);
        let Some((shard, end)) = self.state.shard().zip(self.state.shard_end) else {
            return Err(Error::invalid("the array has no shards"));
        };
        let index_bytes = end.index_bytes;
        let size = object.version().size;
        if size < index_bytes {
            return Err(damaged(ShardError::TooSmall { size, needed: index_bytes }));
        }
        let stamped = self.state.identity().filter(|_| !shard.index_at_start);
        let stamp_bytes = stamped.map_or(0, |_| end.stamp_bytes);
        let tail_bytes = (index_bytes + stamp_bytes).min(size);
        let offset = if shard.index_at_start { 0 } else { size - tail_bytes };
        let mut tail = vec![0; usize::try_from(tail_bytes).unwrap_or(usize::MAX)];
        let at_hand = object.read_resident(offset, &mut tail)?;
        if at_hand < tail.len() {
            waits();
            object.read(offset + at_hand as u64, &mut tail[at_hand..])?;
        }
        let split = usize::try_from(tail_bytes - index_bytes).unwrap_or(usize::MAX);
        let index = ShardIndex::decode_behind(tail, split, shard.index_checked, size);
        let index = index.map_err(damaged)?;
        if let Some(identity) = stamped {
            let index_start = size - index_bytes;
            match Stamp::decode(index.before()) {
                Ok(stamp) => {
                    if let Err(error) = stamp.check(identity, coordinates) {
                        self.check_not_replaced()?;
                        return Err(damaged(error));
                    }
                    if self.state.is_open {
                        return Err(self.is_closed_by_now(coordinates));
                    }
                    let end = stamp.data_bytes.saturating_add(stamp_bytes);
                    self.check_gap(coordinates, index_start.saturating_sub(end))?;
                }
                // Other writers leave no bytes before the index.
                Err(error) => match index_start.saturating_sub(index.data_end()) {
                    0 => {}
                    gap if gap == stamp_bytes => return Err(damaged(error)),
                    gap => self.check_gap(coordinates, gap)?,
                },
            }
        }
        Ok((index, tail_bytes))
    }

    /// The error of an open state that finds a stamped shard: another writer has closed the array
    /// since.
    fn is_closed_by_now(&self, coordinates: &[u64]) -> Error {
        let name = self.object_name_of(coordinates);
        let text = format!("{name} was written after the array was looked up; read again");
        Error::new(ErrorKind::SnapshotMoved, text)
    }

    fn check_gap(&self, coordinates: &[u64], bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let reason = format!("{bytes} bytes before the index belong to nothing");
        Err(Error::corrupt(self.object_name_of(coordinates), reason))
    }
}

/// The last commit that a shard contains; 0 for none.
pub(crate) fn contained_commit(index: &ShardIndex) -> u64 {
    Stamp::decode(index.before()).map_or(0, |stamp| stamp.commit)
}

impl Source for ZarrSource<'_> {
    fn is_still(&self, coordinates: &[u64], version: Option<&Version>) -> Result<bool> {
        if self.hierarchy.held.is_some() || self.keeps_shards() {
            // A held store, or a handle that keeps its shards, has checked this when it was opened.
            return Ok(true);
        }
        let (storage, path) = (&self.hierarchy.storage, self.object_path(coordinates)?);
        Ok(match version {
            Some(version) => storage.is_current(&path, version)?,
            None => storage.stat(&path).is_err_and(|error| error.is_not_found()),
        })
    }

    fn ask(&self, coordinates: &[u64], need: Need, bell: &Arc<Bell>) -> Option<PendingCell> {
        if self.kept_shard(coordinates).is_some() {
            return None;
        }
        let path = self.object_path(coordinates).ok()?;
        let bytes = self.opening_bytes(need);
        let answer = self.hierarchy.storage.request_end(&path, bytes, bell)?;
        Some(PendingCell { answer, bytes })
    }

    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        if asked.is_none()
            && let Some(kept) = self.kept_shard(coordinates)
        {
            let KeptShard { object, index } = &*kept;
            return Ok(Some(OpenCell {
                object: object.clone(),
                contained: contained_commit(index),
                locations: ChunkLocations::Index(index.clone()),
                index_requests: 0,
                index_bytes: 0,
            }));
        }
        let is_remote = self.is_remote();
        let object = match asked {
            Some(opening) => opening.answer.take()?.map(Arc::from),
            None => {
                if is_remote {
                    waits();
                }
                self.open_for(&self.object_path(coordinates)?, need)?
            }
        };
        let Some(object) = self.as_held(coordinates, object)? else { return Ok(None) };
        let (locations, mut index_bytes, contained) = if self.state.shard().is_some() {
            let (index, bytes) = self.index(coordinates, &*object, waits)?;
            self.state.object_bytes.fetch_max(object.version().size, Ordering::Relaxed);
            let contained = contained_commit(&index);
            (ChunkLocations::Index(index), bytes, contained)
        } else {
            (ChunkLocations::Whole(object.version().size), None, 0)
        };
        if is_remote {
            // Opening is one request, whichever bytes it returned.
            let known = object.buffered_range();
            index_bytes = Some(known.end - known.start);
        }
        Ok(Some(OpenCell {
            object,
            locations,
            contained,
            index_requests: u64::from(index_bytes.is_some()),
            index_bytes: index_bytes.unwrap_or(0),
        }))
    }

    fn comes_whole(&self, need: Need) -> bool {
        let Some(end) = self.state.shard_end.filter(|_| need.chunks > 0 && self.is_remote()) else {
            return false;
        };
        let tuning = &self.hierarchy.tuning;
        let bytes_max = whole_bytes_max(&tuning.profile, tuning.buffer_bytes, need.objects);
        self.whole_bytes() <= bytes_max
            && whole_is_sooner(&tuning.profile, need, self.shard_size(end))
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        self.object_name_of(coordinates)
    }

    fn place_name(&self) -> String {
        self.hierarchy.storage.name()
    }

    fn is_remote(&self) -> bool {
        self.hierarchy.storage.is_remote()
    }
}
