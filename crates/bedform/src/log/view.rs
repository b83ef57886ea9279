//! Views of the log: one root, and the tables, directories and sections that it leads to.
//!
//! Readers pin a view. It loads on demand: the directory of a commit, the sections that touch the
//! read, the blocks of these sections that hold the elements. Loaded objects are cached within
//! bounds, and shared by the readers of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bedform_format::Limits;
use bedform_format::log::{
    BlockKind, CommitRecord, Directory, Lanes, RecordKind, Root, Section, SectionPlace,
    SettledRecord, SettledShards, boxes_meet,
};
use bedform_format::metadata::hex;
use bedform_geometry::Region;
use bedform_storage::Object;

use super::lanes::OpenedSegment;
use super::overlay::{CoveredObject, Overlay, OverlayLayer, SectionSlot};
use super::place::LogPlace;
use super::record::{check_header, read_record};
use super::section::LoadedSection;
use crate::cache::{CacheHandle, CacheKey, EntryKind, ObjectKey, Scope};
use crate::error::{Error, ErrorKind, Result};
use crate::source::StoredLayout;

/// Bytes of directories and sections that a store's readers may cache, even if the cap of its
/// handle is smaller, or 0. Every shard of a read needs them again.
const METADATA_BYTES: u64 = 64 << 20;

/// One root with the log objects loaded for it.
#[derive(Debug, Clone)]
pub(crate) struct RootView {
    pub(crate) root: Arc<Root>,
    pub(super) place: LogPlace,
    limits: Limits,
    loaded: Arc<LogObjects>,
    /// The cache of blocks; `None` if blocks are not cached.
    pub(super) blocks: Option<Arc<CacheHandle>>,
    /// The part that the cache keys of all objects in this log share.
    scope: Arc<Scope>,
    /// The cache key of the directory of each commit that the root names: every shard of a read
    /// looks at all of them.
    keys: Vec<CacheKey>,
    /// Cached shapes that tables give to arrays: every read of an array asks for its own.
    shapes: Arc<Mutex<TableShapes>>,
}

/// The shape that tables give to an array, by its key; `None` if they do not enlarge it.
type TableShapes = HashMap<[u8; 16], Option<Vec<u64>>>;

/// A section of a commit that touches an array.
#[derive(Debug)]
pub(crate) struct ArraySection {
    /// The number of the commit.
    pub(super) commit: u64,
    /// The index of the section within its commit, in the order in which sections apply.
    pub(super) order: u32,
    pub(super) segment: String,
    pub(super) offset: u64,
    pub(super) stored_bytes: u64,
    /// The bounding boxes of its elements of the array: starts and exclusive ends.
    pub(super) boxes: Vec<(Vec<u64>, Vec<u64>)>,
}

impl ArraySection {
    /// True if the section may have elements of the box from `low` to `high`, exclusive. Always
    /// true if the ranks differ: the array is then not the expected one, which reading the section
    /// finds out.
    pub(super) fn may_have(&self, low: &[u64], high: &[u64]) -> bool {
        self.boxes.iter().any(|(start, end)| boxes_meet((start, end), (low, high)))
    }
}

/// Immutable objects of the log, shared by the views of one store.
#[derive(Debug, Default)]
pub(crate) struct LogObjects {
    /// The lists of settled shards of the root for which they were read last.
    pub(super) settled: Mutex<Vec<(SettledRecord, Arc<SettledShards>)>>,
    segments: Mutex<HashMap<String, Arc<LogSegment>>>,
    pub(super) tables: Mutex<HashMap<String, Arc<dyn Object>>>,
    /// The cache handle of the store; `None` if blocks are not cached.
    cache: Option<Arc<CacheHandle>>,
    /// The cache handle for directories and sections, created when the first is loaded.
    metadata: OnceLock<Arc<CacheHandle>>,
}

/// An opened segment.
#[derive(Debug)]
pub(crate) struct LogSegment {
    /// Its name in the log, which no other segment of this store ever has.
    pub(crate) name: Arc<str>,
    pub(crate) object: Arc<dyn Object>,
    /// The log and the segment, for messages.
    shown: String,
    opened: OpenedSegment,
    /// The part that the cache keys of all objects in this log share.
    pub(super) scope: Arc<Scope>,
    /// The number of the root for which the segment was opened: all records that this root names
    /// are in it.
    root: u64,
}

impl LogSegment {
    /// Describes an address for messages: the log, the segment, and the byte.
    pub(super) fn place_of(&self, address: u64) -> String {
        format!("{} at byte {address}", self.shown)
    }

    /// True if these bytes were in the segment when it was opened.
    pub(super) fn holds(&self, address: u64, length: u64) -> bool {
        self.opened.holds(address, length)
    }
}

/// The directory of a commit, with an index of its sections by array.
#[derive(Debug)]
struct LoadedDirectory {
    directory: Arc<Directory>,
    /// For each array key, in section order: the index of a section, and the index of the array
    /// among those that the section touches.
    by_key: HashMap<[u8; 16], Vec<(u32, u32)>>,
}

impl LogObjects {
    /// Closes all segments and tables, so that they are opened again after other ones have replaced
    /// them.
    pub(crate) fn forget_segments(&self) {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Creates an empty set; `cache` is the store's handle. (`LogObjects::default()` shares no
    /// cache.)
    pub(crate) fn new(cache: Arc<CacheHandle>) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// Returns the cache handle for directories and sections.
    pub(super) fn metadata(&self) -> &CacheHandle {
        self.metadata.get_or_init(|| match &self.cache {
            Some(cache) if cache.cap() >= METADATA_BYTES => cache.clone(),
            Some(cache) if !cache.is_bypass() => Arc::new(cache.with_cap(METADATA_BYTES)),
            _ => Arc::new(CacheHandle::new(METADATA_BYTES, None)),
        })
    }
}

impl LoadedDirectory {
    fn new(directory: Directory) -> Self {
        let mut by_key = HashMap::<[u8; 16], Vec<(u32, u32)>>::new();
        for (number, section) in (0..).zip(&directory.sections) {
            for (at, touched) in (0..).zip(&section.arrays) {
                by_key.entry(touched.key).or_default().push((number, at));
            }
        }
        Self { directory: Arc::new(directory), by_key }
    }

    /// Returns the sections of commit `commit` that touch an array, in their order.
    fn sections_of(&self, key: &[u8; 16], commit: u64) -> impl Iterator<Item = ArraySection> {
        let places = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let of_sections = places.chunk_by(|(one, _), (next, _)| one == next);
        of_sections.filter_map(move |places| {
            let (order, _) = *places.first()?;
            let section = self.directory.sections.get(order as usize)?;
            let touched = places.iter().filter_map(|(_, at)| section.arrays.get(*at as usize));
            Some(ArraySection {
                commit,
                order,
                segment: self.directory.segments.get(section.segment as usize)?.clone(),
                offset: section.offset,
                stored_bytes: section.stored_bytes,
                boxes: touched.map(|part| (part.start.clone(), part.end.clone())).collect(),
            })
        })
    }

    fn memory_bytes(&self) -> u64 {
        let touched = |section: &SectionPlace| {
            let arrays = section.arrays.iter();
            arrays.map(|touched| 136 + 16 * touched.start.len() as u64).sum::<u64>()
        };
        let sections = self.directory.sections.iter().map(|section| 64 + touched(section));
        96 * self.directory.segments.len() as u64 + sections.sum::<u64>() + 256
    }
}

/// Returns the cache key of a commit's directory: its segment and offset. Segment names are unique,
/// but the number of a commit may be reused after an older copy of the store was put in its place.
fn directory_key(commit: &CommitRecord, loaded: &LogObjects, scope: &Arc<Scope>) -> CacheKey {
    let object = ObjectKey::Name(commit.segment.as_str().into());
    loaded.metadata().key_of_immutable(EntryKind::Directory, scope, object, commit.offset)
}

impl RootView {
    pub(crate) fn new(
        root: Arc<Root>,
        place: LogPlace,
        limits: &Limits,
        loaded: Arc<LogObjects>,
    ) -> Self {
        let path = format!("{} {}", place.name(), hex(&place.store));
        let scope = loaded.metadata().scope(&path, 0);
        let keys =
            root.commits.iter().map(|commit| directory_key(commit, &loaded, &scope)).collect();
        let blocks = loaded.cache.clone();
        let shapes = Arc::default();
        Self { root, place, limits: limits.clone(), loaded, blocks, scope, keys, shapes }
    }

    /// Returns a view of the same root that caches at most `cap` bytes of blocks.
    pub(super) fn with_cap(&self, cap: u64) -> Self {
        let capped = |cache: &Arc<CacheHandle>| Arc::new(cache.with_cap(cap.min(cache.cap())));
        Self { blocks: self.blocks.as_ref().map(capped), ..self.clone() }
    }

    /// Returns the limits for decoding.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the part that the cache keys of all objects in this log share.
    pub(super) fn scope(&self) -> &Arc<Scope> {
        &self.scope
    }

    /// Returns the commits that the root names directly, in order, each with the cache key of its
    /// directory.
    fn tail(&self) -> impl DoubleEndedIterator<Item = (&CommitRecord, &CacheKey)> {
        self.root.commits.iter().zip(&self.keys)
    }

    /// Returns a view of the same root that loads into `loaded`.
    pub(super) fn with(&self, loaded: Arc<LogObjects>) -> Self {
        Self::new(self.root.clone(), self.place.clone(), &self.limits, loaded)
    }

    /// Returns the objects shared by the views of this store.
    pub(super) fn loaded(&self) -> &Arc<LogObjects> {
        &self.loaded
    }

    /// Returns the number of commits that are not settled.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn commit_count(&self) -> Result<u64> {
        let mut count = self.root.commits.len() as u64;
        for record in &self.root.tables {
            let index = self.index(record)?;
            let settled = index.commits.partition_point(|commit| *commit <= self.root.settled);
            count += (index.commits.len() - settled) as u64;
        }
        Ok(count)
    }

    /// Returns the overlay of the commits later than `after` over `region` of the array with `key`;
    /// `None` if they have nothing there.
    ///
    /// # Errors
    /// `Corrupt` for damaged records; those of storage.
    pub(crate) fn overlay(
        self: &Arc<Self>,
        key: &[u8; 16],
        region: &Region,
        after: u64,
        layout: &StoredLayout,
    ) -> Result<Option<Overlay>> {
        let after = after.max(self.root.settled);
        if layout.is_text() || self.root.last_commit().is_none_or(|last| last <= after) {
            return Ok(None);
        }
        let end: Vec<u64> = (0..region.rank()).map(|axis| region.end(axis)).collect();
        // The bounding boxes in directories may have holes; the overlay looks at a section's own
        // boxes when a read needs elements there.
        let mut layers = Vec::new();
        for (commit, key_of_directory) in self.tail().rev().take_while(|(c, _)| c.number > after) {
            let directory = self.directory_of(commit, key_of_directory)?;
            let sections = directory.sections_of(key, commit.number);
            let near = sections.filter(|section| section.may_have(region.start(), &end));
            let held: Vec<_> = near.map(SectionSlot::from).collect();
            if !held.is_empty() {
                layers.push(OverlayLayer::of_commit(held));
            }
        }
        for record in self.root.tables.iter().rev().take_while(|record| record.last > after) {
            let index = self.index(record)?;
            let blocks = index
                .blocks_of(BlockKind::Rows, key)
                .filter(|block| block.commits.1 > after && block.intersects(region.start(), &end));
            layers.extend(OverlayLayer::of_blocks(record, &index, blocks.rev()));
        }
        let mut base = None;
        self.growths(key, after, end.len(), &mut |_, before| {
            base = Some(before.to_vec());
            false
        })?;
        let base = base.filter(|base| end.iter().zip(base).any(|(end, base)| end > base));
        if layers.is_empty() && base.is_none() {
            return Ok(None);
        }
        let near = CoveredObject { key: *key, start: region.start().to_vec(), end, after };
        Ok(Some(Overlay::new(self.clone(), near, layers, base, layout)))
    }

    /// Calls `visit` with every section of commits after `after` that touches the array `key`: by
    /// commit, and within a commit in section order.
    ///
    /// # Errors
    /// As [`RootView::overlay`]; those of `visit`.
    pub(super) fn sections(
        &self,
        key: &[u8; 16],
        after: u64,
        visit: &mut dyn FnMut(ArraySection) -> Result<()>,
    ) -> Result<()> {
        let after = after.max(self.root.settled);
        for record in self.root.tables.iter().filter(|record| record.last > after) {
            let index = self.index(record)?;
            let blocks = index.blocks_of(BlockKind::Rows, key);
            for block in blocks.filter(|block| block.commits.1 > after) {
                self.sections_of_block((record, &index, block), key, after, visit)?;
            }
        }
        for (commit, key_of_directory) in self.tail().filter(|(commit, _)| commit.number > after) {
            let directory = self.directory_of(commit, key_of_directory)?;
            directory.sections_of(key, commit.number).try_for_each(&mut *visit)?;
        }
        Ok(())
    }

    /// Calls `visit` with each commit after `after` that enlarges the array `key`, of rank `rank`,
    /// in order, and with the array's shape before it. Stops when `visit` returns false.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(super) fn growths(
        &self,
        key: &[u8; 16],
        after: u64,
        rank: usize,
        visit: &mut dyn FnMut(u64, &[u64]) -> bool,
    ) -> Result<()> {
        let after = after.max(self.root.settled);
        let mut goes_on = true;
        self.growths_in_tables(key, after, &mut |growth| {
            let base = &growth.grown.base;
            goes_on = base.len() != rank || visit(growth.commit, base);
            goes_on
        })?;
        // The root lists the shapes of all arrays that the commits in its tail enlarge.
        if !goes_on || !self.root.shapes.contains_key(key) {
            return Ok(());
        }
        for (commit, key_of_directory) in self.tail().filter(|(commit, _)| commit.number > after) {
            let directory = self.directory_of(commit, key_of_directory)?;
            let mut own = directory.directory.grown.iter().filter(|grown| grown.key == *key);
            if !own.all(|grown| grown.base.len() != rank || visit(commit.number, &grown.base)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the shape that commits give to the array `key`; `None` if they do not enlarge it.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn shape_of(&self, key: &[u8; 16]) -> Result<Option<Vec<u64>>> {
        if let Some(shape) = self.root.shapes.get(key) {
            return Ok(Some(shape.clone()));
        }
        if self.root.tables.is_empty() {
            return Ok(None);
        }
        let known = || self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shape) = known().get(key) {
            return Ok(shape.clone());
        }
        let shape = self.shape_in_tables(key)?;
        known().insert(*key, shape.clone());
        Ok(shape)
    }

    /// Returns the shapes of all arrays that commits enlarge.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(super) fn shapes(&self) -> Result<BTreeMap<[u8; 16], Vec<u64>>> {
        let mut shapes = self.shapes_in_tables()?;
        shapes.extend(self.root.shapes.iter().map(|(key, shape)| (*key, shape.clone())));
        Ok(shapes)
    }

    fn segment_name<'d>(&self, directory: &'d Directory, place: &SectionPlace) -> Result<&'d str> {
        let name = directory.segments.get(place.segment as usize).map(String::as_str);
        name.ok_or_else(|| Error::corrupt(self.place.name(), "a directory names no segment"))
    }

    /// Returns the names of all segments that the commits refer to.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn segments(&self) -> Result<BTreeSet<String>> {
        Ok(self.record_ends()?.into_keys().collect())
    }

    /// Returns, for each segment that the commits refer to, addresses at which their records end.
    /// The last end in each lane is among them.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn record_ends(&self) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut ends = BTreeMap::<String, Vec<u64>>::new();
        for record in &self.root.tables {
            for segment in self.index(record)?.segments_after(self.root.settled) {
                ends.entry(segment.name.clone()).or_default().extend(&segment.ends);
            }
        }
        for (commit, key) in self.tail() {
            let end = commit.offset.saturating_add(commit.stored_bytes);
            ends.entry(commit.segment.clone()).or_default().push(end);
            let loaded = self.directory_of(commit, key)?;
            for place in &loaded.directory.sections {
                let name = self.segment_name(&loaded.directory, place)?;
                let end = place.offset.saturating_add(place.stored_bytes);
                ends.entry(name.to_owned()).or_default().push(end);
            }
        }
        Ok(ends)
    }

    /// True if commits touch or enlarge the array with `key`.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn names(&self, key: &[u8; 16]) -> Result<bool> {
        if self.shape_of(key)?.is_some() || self.is_in_tables(key)? {
            return Ok(true);
        }
        for (commit, key_of_directory) in self.tail() {
            if self.directory_of(commit, key_of_directory)?.by_key.contains_key(key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the directory of a commit.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(crate) fn directory(&self, commit: &CommitRecord) -> Result<Arc<Directory>> {
        let key = directory_key(commit, &self.loaded, &self.scope);
        Ok(self.directory_of(commit, &key)?.directory.clone())
    }

    fn directory_of(&self, commit: &CommitRecord, key: &CacheKey) -> Result<Arc<LoadedDirectory>> {
        let cache = self.loaded.metadata();
        if let Some(directory) = cache.get(key) {
            return Ok(directory);
        }
        let segment = self.segment(&commit.segment, commit.offset, commit.stored_bytes)?;
        let name = || format!("{}/segments/{}", self.place.name(), commit.segment);
        let kind = RecordKind::Directory;
        let body = read_record(&*segment.object, commit.offset, kind, &self.limits, &name)?;
        let directory = Directory::decode(&body, &self.limits)
            .map_err(|error| Error::corrupt(name(), error))?;
        let directory = Arc::new(LoadedDirectory::new(directory));
        let bytes = directory.memory_bytes();
        cache.put(key.clone(), bytes, || directory.clone());
        Ok(directory)
    }

    /// Returns the opened segment with the record of `bytes` bytes at `address`. An object that was
    /// opened earlier may lack later records. In a segment with several lanes, one lane says
    /// nothing about the others.
    fn segment(&self, name: &str, address: u64, bytes: u64) -> Result<Arc<LogSegment>> {
        let segments = || self.loaded.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let has_all = |known: &&Arc<LogSegment>| {
            known.holds(address, bytes)
                && (known.opened.lanes == Lanes::ONE || known.root >= self.root.number)
        };
        if let Some(segment) = segments().get(name).filter(has_all) {
            return Ok(segment.clone());
        }
        let opened = OpenedSegment::open(&self.place, name).map_err(|error| {
            match error.kind() == ErrorKind::NotFound {
                // Settled and removed since this root was read; or lost, which the next lookup
                // reports.
                true => Error::new(
                    ErrorKind::SnapshotMoved,
                    format!("segment {name} of {} is gone", self.place.name()),
                ),
                false => error,
            }
        })?;
        let shown = || format!("{}/segments/{name}", self.place.name());
        check_header(&opened, address, &self.place.store, name, &shown)?;
        let (name_shared, object) = (name.into(), opened.object.clone());
        let root = self.root.number;
        let shown = shown();
        let segment = Arc::new(LogSegment {
            name: name_shared,
            object,
            shown,
            opened,
            scope: self.scope.clone(),
            root,
        });
        let mut all = segments();
        if all.len() >= self.limits.objects_open_max {
            all.clear();
        }
        all.insert(name.to_owned(), segment.clone());
        Ok(segment)
    }

    /// Returns the section at `place`.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(super) fn section_of(&self, place: &ArraySection) -> Result<Arc<LoadedSection>> {
        self.section(&place.segment, place.offset, place.stored_bytes)
    }

    /// Returns the section at `offset` of a segment.
    ///
    /// # Errors
    /// As [`RootView::overlay`].
    pub(super) fn section(
        &self,
        name: &str,
        offset: u64,
        stored_bytes: u64,
    ) -> Result<Arc<LoadedSection>> {
        // The key is of this handle alone: the section holds the segment as this handle opened it.
        let cache = self.loaded.metadata();
        let key =
            cache.own_key(EntryKind::Section, &self.scope, ObjectKey::Name(name.into()), offset);
        if let Some(section) = cache.get(&key) {
            return Ok(section);
        }
        let segment = self.segment(name, offset, stored_bytes)?;
        let shown = || format!("{}/segments/{name}", self.place.name());
        let kind = RecordKind::Section;
        let body = read_record(&*segment.object, offset, kind, &self.limits, &shown)?;
        let section = Section::decode(&body, &self.limits)
            .and_then(|section| LoadedSection::new(section, segment))
            .map_err(|error| Error::corrupt(shown(), error))?;
        let section = Arc::new(section);
        cache.put(key, section.memory_bytes(), || section.clone());
        Ok(section)
    }
}
