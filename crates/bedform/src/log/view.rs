//! One root and what it refers to: what readers pin.
//!
//! Nothing is loaded before a read asks for it: of a commit its directory, of its sections those that
//! touch what is read, of these the blocks that hold it. All of it is kept within bounds and shared by
//! the readers of a store.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::Limits;
use bedform_format::log::{
    Block, Boxes, CommitRecord, Directory, LogError, RecordKind, Root, Section, SectionPlace,
    SettledRecord, SettledShards,
};
use bedform_geometry::Region;
use bedform_storage::Object;

use super::overlay::{Overlay, Piece};
use super::place::LogPlace;
use super::segment::{decode_body, read_record};
use crate::array::ArrayState;
use crate::cache::ByteCache;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of decoded sections and directories that a store's readers keep.
const SECTIONS_BYTES: u64 = 64 << 20;
/// Bytes of blocks that they keep.
const BLOCKS_BYTES: u64 = 64 << 20;

/// A root, and what was loaded of what it refers to.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) root: Arc<Root>,
    pub(super) place: LogPlace,
    limits: Limits,
    pub(super) loaded: Arc<Loaded>,
}

/// What views of one store share: all of it is immutable.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The list of settled shards of the last root that was asked.
    pub(super) settled: Mutex<Option<(SettledRecord, Arc<SettledShards>)>>,
    segments: Mutex<HashMap<String, Arc<dyn Object>>>,
    directories: ByteCache<u64, Arc<Directory>>,
    sections: ByteCache<(String, u64), Arc<LoadedSection>>,
    blocks: ByteCache<(String, u64), Arc<[u8]>>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            settled: Mutex::default(),
            segments: Mutex::default(),
            directories: ByteCache::new(SECTIONS_BYTES),
            sections: ByteCache::new(SECTIONS_BYTES),
            blocks: ByteCache::new(BLOCKS_BYTES),
        }
    }
}

/// A section, and where the data of its entries lie.
#[derive(Debug)]
pub(crate) struct LoadedSection {
    pub(super) section: Section,
    pub(super) segment: Arc<dyn Object>,
    pub(super) name: String,
    loaded: Arc<Loaded>,
    /// Of each entry the first byte in the section's data.
    pub(super) starts: Vec<u64>,
    /// Of each block the first byte behind it in the section's data.
    pub(super) ends: Vec<u64>,
}

impl View {
    pub(crate) fn new(
        root: Arc<Root>,
        place: LogPlace,
        limits: &Limits,
        loaded: Arc<Loaded>,
    ) -> Self {
        Self { root, place, limits: limits.clone(), loaded }
    }

    /// What commits later than `after` lay over `region` of the array with `key`; `None` if nothing.
    ///
    /// # Errors
    /// `Corrupt` for damaged records; those of storage.
    pub(crate) fn overlay(
        &self,
        key: &[u8; 16],
        region: &Region,
        after: u64,
        state: &ArrayState,
    ) -> Result<Option<Overlay>> {
        let mut pieces = Vec::new();
        for commit in self.root.commits.iter().filter(|commit| commit.number > after) {
            let directory = self.directory(commit)?;
            let first = pieces.len();
            let end: Vec<u64> = (0..region.rank()).map(|axis| region.end(axis)).collect();
            for place in directory.sections_of(key, region.start(), &end) {
                self.section(&directory, place)?.add_pieces(key, region, &mut pieces)?;
            }
            // Sections are those of different writers; within one the order is that of writing.
            pieces[first..].sort_by_key(|piece: &Piece| (piece.epoch, piece.rank));
        }
        Ok((!pieces.is_empty()).then(|| Overlay::new(pieces, state)))
    }

    /// The names of all segments that the commits refer to.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(crate) fn segments(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for commit in &self.root.commits {
            names.insert(commit.segment.clone());
            names.extend(self.directory(commit)?.segments.iter().cloned());
        }
        Ok(names)
    }

    /// The directory of a commit.
    pub(crate) fn directory(&self, commit: &CommitRecord) -> Result<Arc<Directory>> {
        if let Some(directory) = self.loaded.directories.get(&commit.number, |_| true) {
            return Ok(directory);
        }
        let end = commit.offset.saturating_add(commit.stored_bytes);
        let segment = self.segment(&commit.segment, end)?;
        let name = || format!("{}/segments/{}", self.place.name(), commit.segment);
        let kind = RecordKind::Directory;
        let body = read_record(&*segment, commit.offset, kind, &self.limits, &name)?;
        let directory = Directory::decode(&body, &self.limits)
            .map_err(|error| Error::corrupt(name(), error))?;
        let directory = Arc::new(directory);
        self.loaded.directories.put(commit.number, directory.clone(), 4 * body.len() as u64 + 256);
        Ok(directory)
    }

    /// A segment as it was when it had `bytes` bytes, or later: what was opened earlier may not have
    /// what came after.
    fn segment(&self, name: &str, bytes: u64) -> Result<Arc<dyn Object>> {
        let segments = || self.loaded.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = segments().get(name).filter(|known| known.version().size >= bytes) {
            return Ok(segment.clone());
        }
        let object = self.place.storage.open(&LogPlace::segment_path(name)?).map_err(|error| {
            match error.is_not_found() {
                // Settled and removed since this root was read; or lost, which the next look says.
                true => Error::new(
                    ErrorKind::SnapshotMoved,
                    format!("segment {name} of {} is gone", self.place.name()),
                ),
                false => error.into(),
            }
        })?;
        let object: Arc<dyn Object> = Arc::from(object);
        let mut all = segments();
        if all.len() >= self.limits.objects_open_max {
            all.clear();
        }
        all.insert(name.to_owned(), object.clone());
        Ok(object)
    }

    /// The section of a directory at `place`.
    ///
    /// # Errors
    /// As [`View::overlay`].
    pub(super) fn section(
        &self,
        directory: &Directory,
        place: &SectionPlace,
    ) -> Result<Arc<LoadedSection>> {
        let name = directory
            .segments
            .get(place.segment as usize)
            .ok_or_else(|| Error::corrupt(self.place.name(), "a directory names no segment"))?;
        let offset = place.offset;
        let key = (name.clone(), offset);
        if let Some(section) = self.loaded.sections.get(&key, |_| true) {
            return Ok(section);
        }
        let segment = self.segment(name, offset.saturating_add(place.stored_bytes))?;
        let shown = || format!("{}/segments/{name}", self.place.name());
        let body = read_record(&*segment, offset, RecordKind::Section, &self.limits, &shown)?;
        let section =
            Section::decode(&body, &self.limits).map_err(|error| Error::corrupt(shown(), error))?;
        let bytes = 4 * body.len() as u64 + 256;
        let loaded = LoadedSection::new(section, segment, name, self.loaded.clone());
        let section = Arc::new(loaded.map_err(|error| Error::corrupt(shown(), error))?);
        self.loaded.sections.put(key, section.clone(), bytes);
        Ok(section)
    }
}

impl LoadedSection {
    fn new(
        section: Section,
        segment: Arc<dyn Object>,
        name: &str,
        loaded: Arc<Loaded>,
    ) -> std::result::Result<Self, LogError> {
        let counts: Vec<u64> = section
            .selections
            .iter()
            .map(Boxes::elements)
            .collect::<std::result::Result<_, _>>()?;
        let mut starts = Vec::with_capacity(section.entries.len());
        let mut start = 0_u64;
        for entry in &section.entries {
            starts.push(start);
            let item = section.arrays[entry.array as usize].item_size;
            start += counts[entry.selection as usize] * u64::from(item);
        }
        let ends = section.blocks.iter().scan(0_u64, |end, block| {
            *end += block.bytes;
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Self { section, segment, name: name.to_owned(), loaded, starts, ends })
    }

    /// Adds what this section has of `region` of the array with `key`, in the order of writing.
    fn add_pieces(
        self: &Arc<Self>,
        key: &[u8; 16],
        region: &Region,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let arrays: Vec<bool> = self.section.arrays.iter().map(|array| array.key == *key).collect();
        for (entry, start) in self.section.entries.iter().zip(&self.starts) {
            if !arrays[entry.array as usize] {
                continue;
            }
            let array = &self.section.arrays[entry.array as usize];
            if array.shape.len() != region.rank() {
                continue;
            }
            if entry.record.is_some_and(|at| at < region.start()[0] || at >= region.end(0)) {
                continue;
            }
            let boxes = &self.section.selections[entry.selection as usize];
            let mut from = *start;
            for (corner, lengths) in boxes.iter() {
                let bytes = lengths.iter().product::<u64>() * u64::from(array.item_size);
                let record = entry.record.map(|record| (record, 1));
                if let Some(piece) = touching(record, corner, lengths, region)? {
                    pieces.push(Piece {
                        region: piece,
                        epoch: entry.epoch,
                        rank: entry.rank,
                        section: self.clone(),
                        start: from,
                        item_size: array.item_size as usize,
                    });
                }
                from += bytes;
            }
        }
        Ok(())
    }

    /// The bytes from `start` to `end` of the section's data, in `output`.
    ///
    /// # Errors
    /// `Corrupt` for a damaged block; those of storage.
    pub(crate) fn read(&self, start: u64, end: u64, output: &mut Vec<u8>) -> Result<()> {
        output.clear();
        let first = self.ends.partition_point(|block_end| *block_end <= start);
        let mut at = if first == 0 { 0 } else { self.ends[first - 1] };
        for block in &self.section.blocks[first..] {
            if at >= end {
                break;
            }
            let bytes = self.block(block)?;
            let from = index(start.max(at) - at);
            let to = index(end.min(at + block.bytes) - at);
            output.extend_from_slice(bytes.get(from..to).unwrap_or_default());
            at += block.bytes;
        }
        Ok(())
    }

    fn block(&self, block: &Block) -> Result<Arc<[u8]>> {
        let key = (self.name.clone(), block.offset);
        if let Some(bytes) = self.loaded.blocks.get(&key, |_| true) {
            return Ok(bytes);
        }
        let place = || format!("segment {} at byte {}", self.name, block.offset);
        let mut stored = vec![0; index(block.stored_bytes)];
        self.segment.read(block.offset, &mut stored)?;
        let decoded = decode_body(stored, block.codec, block.checksum, block.bytes)
            .map_err(|problem| Error::corrupt(place(), problem))?;
        let bytes: Arc<[u8]> = Arc::from(decoded);
        self.loaded.blocks.put(key, bytes.clone(), block.bytes + 128);
        Ok(bytes)
    }
}

/// The box, if it has a share in `region`.
fn touching(
    record: Option<(u64, u64)>,
    corner: &[u64],
    lengths: &[u64],
    region: &Region,
) -> Result<Option<Region>> {
    let axes = record.into_iter().chain(corner.iter().copied().zip(lengths.iter().copied()));
    let apart = axes.clone().enumerate().any(|(axis, (start, length))| {
        length == 0 || start >= region.end(axis) || start + length <= region.start()[axis]
    });
    if apart {
        return Ok(None);
    }
    let (start, shape): (Vec<u64>, Vec<u64>) = axes.unzip();
    Ok(Some(Region::new(start, shape)?))
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Sizes of what is in memory; sections were held against the limits when they were decoded.
    value as usize
}
