//! One root and what it refers to: what readers pin.
//!
//! Nothing is loaded before a read asks for it: of a commit its directory, of its sections those that
//! touch what is read, of these the blocks that hold it. All of it is kept within bounds and shared by
//! the readers of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bedform_format::Limits;
use bedform_format::log::{
    CommitRecord, Directory, Lanes, RecordKind, Root, Section, SectionPlace, SettledRecord,
    SettledShards,
};
use bedform_format::metadata::hex;
use bedform_geometry::Region;
use bedform_storage::Object;

use super::lanes::OpenedSegment;
use super::overlay::{Held, Overlay};
use super::place::LogPlace;
use super::record::{check_header, read_record};
use super::section::LoadedSection;
use crate::cache::{CacheHandle, Key, Kind, ObjectKey, Scope};
use crate::error::{Error, ErrorKind, Result};
use crate::source::StoredLayout;

/// Bytes of directories and sections that a store's readers may keep, even if the cap of its handle is
/// smaller, or 0: every shard of a read needs them again.
const METADATA_BYTES: u64 = 64 << 20;

/// A root, and what was loaded of what it refers to.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) root: Arc<Root>,
    pub(super) place: LogPlace,
    limits: Limits,
    loaded: Arc<Loaded>,
    /// What keeps the blocks that are read; nothing keeps none.
    pub(super) blocks: Option<Arc<CacheHandle>>,
    /// What all that is in the log has in common in the cache.
    scope: Arc<Scope>,
    /// The key of the directory of each commit: every shard of a read looks at all of them.
    keys: Vec<Key>,
}

/// What views of one store share: all of it is immutable.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The list of settled shards of the root that was asked last.
    pub(super) settled: Mutex<Option<(SettledRecord, Arc<SettledShards>)>>,
    segments: Mutex<HashMap<String, Arc<LogSegment>>>,
    /// The store's handle; nothing keeps none.
    cache: Option<Arc<CacheHandle>>,
    /// That for directories and sections, made when the first is loaded.
    metadata: OnceLock<Arc<CacheHandle>>,
}

/// A segment that was opened.
#[derive(Debug)]
pub(crate) struct LogSegment {
    /// Its name in the log, which no other segment of this store ever has.
    pub(crate) name: Arc<str>,
    pub(crate) object: Arc<dyn Object>,
    /// Where it is, for messages.
    shown: String,
    opened: OpenedSegment,
    /// What all that is in the log has in common in the cache.
    pub(super) scope: Arc<Scope>,
    /// The root that was pinned by who opened it: what that refers to is there.
    root: u64,
}

impl LogSegment {
    /// What lies at an address, for messages: the log, the segment, and the byte.
    pub(super) fn place_of(&self, address: u64) -> String {
        format!("{} at byte {address}", self.shown)
    }

    /// True if these bytes were in it when it was opened.
    pub(super) fn holds(&self, address: u64, length: u64) -> bool {
        self.opened.holds(address, length)
    }
}

/// The directory of a commit, and which of its sections touch an array.
#[derive(Debug)]
struct LoadedDirectory {
    directory: Arc<Directory>,
    by_key: HashMap<[u8; 16], Vec<u32>>,
}

impl Loaded {
    /// Segments are opened anew: others have taken their places.
    pub(crate) fn forget_segments(&self) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Nothing yet; `cache` is the store's handle. (`Loaded::default()` shares nothing with anybody.)
    pub(crate) fn new(cache: Arc<CacheHandle>) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }

    /// The handle for directories and sections.
    fn metadata(&self) -> &CacheHandle {
        self.metadata.get_or_init(|| match &self.cache {
            Some(cache) if cache.cap() >= METADATA_BYTES => cache.clone(),
            Some(cache) if !cache.is_bypass() => Arc::new(cache.with_cap(METADATA_BYTES)),
            _ => Arc::new(CacheHandle::new(METADATA_BYTES, None)),
        })
    }
}

impl LoadedDirectory {
    fn new(directory: Directory) -> Self {
        let mut by_key = HashMap::<[u8; 16], Vec<u32>>::new();
        for (number, section) in (0..).zip(&directory.sections) {
            for touched in &section.arrays {
                let sections = by_key.entry(touched.key).or_default();
                if sections.last() != Some(&number) {
                    sections.push(number);
                }
            }
        }
        Self { directory: Arc::new(directory), by_key }
    }

    /// The sections that may have something of the box from `start` to `end`, in their order.
    fn sections_of(
        &self,
        key: &[u8; 16],
        start: &[u64],
        end: &[u64],
    ) -> impl Iterator<Item = &SectionPlace> {
        let numbers = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let sections = numbers.iter().filter_map(|at| self.directory.sections.get(*at as usize));
        sections.filter(move |section| {
            let mut arrays = section.arrays.iter();
            arrays.any(|touched| touched.key == *key && touched.intersects(start, end))
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

/// What the directory of a commit is known by in the cache. Segments are named once and for all; the number
/// of a commit is another one's if an older copy of the store was put in its place.
fn directory_key(commit: &CommitRecord, loaded: &Loaded, scope: &Arc<Scope>) -> Key {
    let object = ObjectKey::Name(commit.segment.as_str().into());
    loaded.metadata().key_of_immutable(Kind::Directory, scope, object, commit.offset)
}

impl View {
    pub(crate) fn new(
        root: Arc<Root>,
        place: LogPlace,
        limits: &Limits,
        loaded: Arc<Loaded>,
    ) -> Self {
        let path = format!("{} {}", place.name(), hex(&place.store));
        let scope = loaded.metadata().scope(&path, 0);
        let keys =
            root.commits.iter().map(|commit| directory_key(commit, &loaded, &scope)).collect();
        let blocks = loaded.cache.clone();
        Self { root, place, limits: limits.clone(), loaded, blocks, scope, keys }
    }

    /// The same view, which keeps no more than `cap` bytes of the blocks that it reads.
    pub(super) fn with_cap(&self, cap: u64) -> Self {
        let capped = |cache: &Arc<CacheHandle>| Arc::new(cache.with_cap(cap.min(cache.cap())));
        Self { blocks: self.blocks.as_ref().map(capped), ..self.clone() }
    }

    /// The commits of the root, in their order, each with the key of its directory.
    fn commits(&self) -> impl DoubleEndedIterator<Item = (&CommitRecord, &Key)> {
        self.root.commits.iter().zip(&self.keys)
    }

    /// The same root with nothing loaded but what goes to `loaded`.
    pub(super) fn with(&self, loaded: Arc<Loaded>) -> Self {
        Self::new(self.root.clone(), self.place.clone(), &self.limits, loaded)
    }

    /// What views of this store share.
    pub(super) fn loaded(&self) -> &Arc<Loaded> {
        &self.loaded
    }

    /// What commits later than `after` lay over `region` of the array with `key`; `None` if nothing.
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
        if layout.is_text() {
            return Ok(None);
        }
        let end: Vec<u64> = (0..region.rank()).map(|axis| region.end(axis)).collect();
        let (mut base, mut commits) = (None, Vec::new());
        for (commit, key_of_directory) in self.commits().rev() {
            if commit.number <= after {
                continue;
            }
            let directory = self.directory_of(commit, key_of_directory)?;
            let grown = directory.directory.grown.iter().rev().find(|grown| grown.key == *key);
            if let Some(grown) = grown.filter(|grown| grown.base.len() == end.len()) {
                base = Some(grown.base.clone());
            }
            // The box that the directory gives may have holes: what is in it is found out by who
            // needs elements there.
            let sections = directory
                .sections_of(key, region.start(), &end)
                .map(|place| self.held(&directory.directory, place, key))
                .collect::<Result<Vec<_>>>()?;
            if !sections.is_empty() {
                commits.push(sections);
            }
        }
        let base = base.filter(|base| end.iter().zip(base).any(|(end, base)| end > base));
        if commits.is_empty() && base.is_none() {
            return Ok(None);
        }
        Ok(Some(Overlay::new(self.clone(), *key, commits, base, layout)))
    }

    /// A section of a directory, which is not loaded yet.
    fn held(&self, directory: &Directory, place: &SectionPlace, key: &[u8; 16]) -> Result<Held> {
        let touched = place.arrays.iter().filter(|touched| touched.key == *key);
        Ok(Held {
            segment: self.segment_name(directory, place)?.to_owned(),
            offset: place.offset,
            stored_bytes: place.stored_bytes,
            touched: touched.cloned().collect(),
            section: Mutex::default(),
        })
    }

    fn segment_name<'d>(&self, directory: &'d Directory, place: &SectionPlace) -> Result<&'d str> {
        let name = directory.segments.get(place.segment as usize).map(String::as_str);
        name.ok_or_else(|| Error::corrupt(self.place.name(), "a directory names no segment"))
    }

    /// The names of all segments that the commits refer to.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(crate) fn segments(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for (commit, key) in self.commits() {
            names.insert(commit.segment.clone());
            names.extend(self.directory_of(commit, key)?.directory.segments.iter().cloned());
        }
        Ok(names)
    }

    /// Of all segments that the commits refer to the addresses at which their records end.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(crate) fn record_ends(&self) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut ends = BTreeMap::<String, Vec<u64>>::new();
        for (commit, key) in self.commits() {
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

    /// True if commits have something of the array with `key`.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(crate) fn names(&self, key: &[u8; 16]) -> Result<bool> {
        for (commit, key_of_directory) in self.commits() {
            let directory = self.directory_of(commit, key_of_directory)?;
            let mut grown = directory.directory.grown.iter();
            if directory.by_key.contains_key(key) || grown.any(|array| array.key == *key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory of a commit.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(crate) fn directory(&self, commit: &CommitRecord) -> Result<Arc<Directory>> {
        let key = directory_key(commit, &self.loaded, &self.scope);
        Ok(self.directory_of(commit, &key)?.directory.clone())
    }

    fn directory_of(&self, commit: &CommitRecord, key: &Key) -> Result<Arc<LoadedDirectory>> {
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

    /// A segment as it was when it had a record of `bytes` bytes at an address, or later: what was opened
    /// earlier may not have what came after. Of several lanes one says nothing about the others.
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
                // Settled and removed since this root was read; or lost, which the next look says.
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

    /// The section of a directory at `place`.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(super) fn section_of(
        &self,
        directory: &Directory,
        place: &SectionPlace,
    ) -> Result<Arc<LoadedSection>> {
        let name = self.segment_name(directory, place)?;
        self.section(name, place.offset, place.stored_bytes)
    }

    /// The section at `offset` of a segment.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(super) fn section(
        &self,
        name: &str,
        offset: u64,
        stored_bytes: u64,
    ) -> Result<Arc<LoadedSection>> {
        // Of this handle alone, because it has the segment as this handle has opened it.
        let cache = self.loaded.metadata();
        let key = cache.own_key(Kind::Section, &self.scope, ObjectKey::Name(name.into()), offset);
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
