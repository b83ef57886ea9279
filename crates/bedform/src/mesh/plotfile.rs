//! Plotfiles of AMReX: opening, and the elements of a level as a source.
//!
//! The FABs of one level lie in a few files. A FAB of version 1 begins with a header, whose length
//! only the file says: the headers of the boxes that a read touches are read before it, once, and
//! checked against the texts. A file that has changed since is refused.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_codec::ChunkCodec;
use bedform_format::amr::{
    CellHeader, CoordinateSystem, FAB_HEADER_BYTES_MAX, FabHeader, PlotfileHeader,
};
use bedform_format::mesh_replica::MeshFile;
use bedform_format::metadata::FillValue;
use bedform_format::shard::Extent;
use bedform_format::{CodecChain, DataType, Endian, Limits, ObjectPath, Serializer};
use bedform_geometry::{BoxList, CellBox, ChunkGrid};
use bedform_storage::{Mode, Object, Storage, Version};

use super::kept::ParsedPlotfile;
use super::level::MeshLevel;
use super::pieces::{FastestAxis, LevelPiece, copy_of};
use super::{LevelParts, MeshFacts, MeshSource, PlanAct};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_of;
use crate::options::OpenOptions;
use crate::plan::geometry::{ChunkBox, Geometry};
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::read_source::ReadSource;
use crate::sidecar::source_version;
use crate::source::{
    ChunkLocations, LocateChunk, Location, OpenCell, PendingCell, Source, StoredLayout,
};

const HEADER: &str = "Header";
/// The bytes of a file that hold most headers of FABs.
const FAB_HEADER_BYTES: usize = 192;

/// The most files whose versions are noted when a plotfile is opened.
const FILES_NOTED_MAX: usize = 4096;

/// An opened plotfile.
#[derive(Debug)]
pub(super) struct Plotfile {
    name: String,
    stored: Vec<StoredLevel>,
    /// The texts that were read.
    texts: Vec<MeshFile>,
    storage: Arc<dyn Storage>,
    tuning: Tuning,
    limits: Limits,
}

/// The places of the elements of a level.
#[derive(Debug)]
struct StoredLevel {
    of: Arc<LevelText>,
    state: Mutex<FoundFabs>,
}

/// The text of a level, parsed.
#[derive(Debug)]
pub(super) struct LevelText {
    text: CellHeader,
    /// The cells of each FAB, with ghost cells, counted from the lower corner of the domain.
    cells: BoxList,
    /// The path of each file.
    files: Vec<ObjectPath>,
}

/// The FABs whose headers were read so far.
#[derive(Debug, Default)]
struct FoundFabs {
    /// The place of the elements of each FAB whose header was read.
    fabs: HashMap<usize, StoredFab>,
    /// The version of each file in which headers were read.
    versions: HashMap<u32, Version>,
}

/// The place of the elements of a FAB.
#[derive(Debug, Clone, Copy)]
struct StoredFab {
    offset: u64,
    component_bytes: u64,
    data_type: DataType,
    endian: Endian,
}

impl Plotfile {
    pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<(Arc<MeshFacts>, Self)> {
        let storage = storage_of(path, Mode::ReadOnly, options)?;
        let name = path.display().to_string();
        let opened = Self::open_in(storage, &name, options);
        opened.map_err(|error| error.at(name))
    }

    fn open_in(
        storage: Arc<dyn Storage>,
        name: &str,
        options: &OpenOptions,
    ) -> Result<(Arc<MeshFacts>, Self)> {
        let (tuning, limits) = (Tuning::with(options), options.limits.clone());
        let opened = |levels: &[Arc<LevelText>], texts: &[MeshFile]| {
            let opened = Self {
                name: name.to_owned(),
                stored: levels.iter().map(StoredLevel::of).collect(),
                texts: texts.to_vec(),
                storage: Arc::clone(&storage),
                tuning: tuning.clone(),
                limits: limits.clone(),
            };
            opened.note_versions();
            let first = opened.fabs(0, &[0])?;
            Ok::<_, Error>((first.first().map_or(DataType::Float64, |fab| fab.data_type), opened))
        };
        // Without a cache nothing is kept.
        let keeps = options.cache_bytes > 0;
        let known = keeps.then(|| ParsedPlotfile::find(name, tuning.threads, &*storage)).flatten();
        if let Some(ParsedPlotfile { facts, levels, texts }) = known {
            let (data_type, opened) = opened(&levels, &texts)?;
            if data_type == facts.data_type {
                return Ok((facts, opened));
            }
        }
        let mut texts = Vec::new();
        let text = text_of(&*storage, &ObjectPath::parse(HEADER)?, &limits, &mut texts)?;
        let header = PlotfileHeader::parse(&text, &limits)?;
        let (levels, stored) = parsed_levels(&header, &*storage, &limits, &mut texts)?;
        let (data_type, opened) = opened(&stored, &texts)?;
        let facts = Arc::new(MeshFacts {
            name: name.to_owned(),
            components: header.components,
            time: header.time,
            lower: header.lower,
            upper: header.upper,
            coordinates: coordinates_of(header.coordinate_system).to_owned(),
            data_type,
            levels,
            threads: tuning.threads,
        });
        if keeps {
            ParsedPlotfile { facts: Arc::clone(&facts), levels: stored, texts }.keep();
        }
        Ok((facts, opened))
    }

    /// Notes the versions of the files with elements, so that a file that is replaced before its first
    /// read is refused, too. A file that is missing fails where it is read.
    fn note_versions(&self) {
        let mut room = FILES_NOTED_MAX;
        for stored in &self.stored {
            let mut state = stored.state();
            for (number, path) in (0..).zip(&stored.of.files).take(room) {
                if let Ok(version) = self.storage.stat(path) {
                    state.versions.insert(number, version);
                }
            }
            room = room.saturating_sub(stored.of.files.len());
        }
    }

    /// Returns the places of the elements of boxes of a level. Reads headers the first time, file by
    /// file.
    fn fabs(&self, level: usize, boxes: &[usize]) -> Result<Vec<StoredFab>> {
        let stored = &self.stored[level];
        let mut unknown = stored.unknown(boxes);
        unknown.sort_by_key(|number| {
            let location = stored.of.text.locations[*number];
            (location.file, location.offset)
        });
        let file_of = |number: &usize| stored.of.text.locations[*number].file;
        for of_file in unknown.chunk_by(|one, other| file_of(one) == file_of(other)) {
            let file = file_of(&of_file[0]);
            let path = &stored.of.files[file as usize];
            let object = self.storage.open(path)?;
            let version = object.version();
            let mut found = Vec::with_capacity(of_file.len());
            for number in of_file {
                let fab = self.fab_in(level, *number, &*object);
                found.push(fab.map_err(|error| error.at(format!("{path}, box {number}")))?);
            }
            let mut state = stored.state();
            if state.versions.entry(file).or_insert_with(|| version.clone()) != version {
                return Err(changed(path));
            }
            state.fabs.extend(of_file.iter().copied().zip(found));
        }
        let state = stored.state();
        Ok(boxes.iter().filter_map(|number| state.fabs.get(number).copied()).collect())
    }

    /// Reads the header of the FAB at an offset, of which `left` bytes of the file are left: few bytes
    /// first, which most have.
    fn fab_header(&self, object: &dyn Object, offset: u64, left: u64) -> Result<FabHeader> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let most = left.min(FAB_HEADER_BYTES_MAX);
        let mut front = vec![0; most.min(FAB_HEADER_BYTES)];
        object.read(offset, &mut front)?;
        if front.len() < most && !front.contains(&b'\n') {
            front.resize(most, 0);
            object.read(offset, &mut front)?;
        }
        Ok(FabHeader::parse(&front, &self.limits)?)
    }

    fn fab_in(&self, level: usize, number: usize, object: &dyn Object) -> Result<StoredFab> {
        let LevelText { text, cells, .. } = &*self.stored[level].of;
        let (location, size) = (text.locations[number], object.version().size);
        let left = size.saturating_sub(location.offset);
        let count = cells.get(number).map_or(0, CellBox::cells);
        let found = match text.descriptor {
            Some(descriptor) => {
                let item = descriptor.data_type.item_size().unwrap_or(8) as u64;
                StoredFab {
                    offset: location.offset,
                    component_bytes: count.saturating_mul(item),
                    data_type: descriptor.data_type,
                    endian: descriptor.endian,
                }
            }
            None => {
                let header = self.fab_header(object, location.offset, left)?;
                header.check(text, number)?;
                StoredFab {
                    offset: location.offset.saturating_add(header.header_bytes as u64),
                    component_bytes: header.component_bytes,
                    data_type: header.data_type,
                    endian: header.endian,
                }
            }
        };
        let bytes = found.component_bytes.saturating_mul(text.components);
        if found.offset.saturating_add(bytes) > size {
            return Err(Error::corrupt("FAB", "its elements lie outside of the file"));
        }
        Ok(found)
    }
}

impl MeshSource for Plotfile {
    fn texts(&self) -> Vec<MeshFile> {
        self.texts.clone()
    }

    fn versions(
        &self,
        _: usize,
        level: usize,
        pieces: &[LevelPiece],
    ) -> Result<Option<Vec<MeshFile>>> {
        let LevelText { text, files, .. } = &*self.stored[level].of;
        let files = pieces.iter().map(|piece| &files[text.locations[piece.number].file as usize]);
        let files: BTreeSet<&ObjectPath> = files.collect();
        let file = |path: &ObjectPath| {
            let version = source_version(&self.storage.stat(path)?);
            Ok(MeshFile { path: path.to_string(), version })
        };
        files.into_iter().map(file).collect::<Result<_>>().map(Some)
    }

    fn with_plan(
        &self,
        facts: &MeshFacts,
        component: usize,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()> {
        let item = facts.item();
        let stored = &self.stored[level];
        let (mut boxes, mut extents, mut order) = (Vec::new(), HashMap::new(), Endian::NATIVE);
        let numbers: Vec<usize> = parts.pieces.iter().map(|piece| piece.number).collect();
        for (piece, fab) in parts.pieces.iter().zip(self.fabs(level, &numbers)?) {
            if fab.data_type != facts.data_type {
                let text = "boxes of float32 and of float64 in one plotfile";
                return Err(Error::new(ErrorKind::Unsupported, text).at(&self.name));
            }
            if !extents.is_empty() && fab.endian != order {
                let text = "boxes of both byte orders in one level";
                return Err(Error::new(ErrorKind::Unsupported, text).at(&self.name));
            }
            order = fab.endian;
            let length = fab.component_bytes;
            let before = length.saturating_mul(component as u64);
            extents.insert(
                piece.number as u64,
                Extent { offset: fab.offset.saturating_add(before), length },
            );
            let Some(cells) = stored.of.cells.get(piece.number) else { continue };
            let location = stored.of.text.locations[piece.number];
            boxes.push(ChunkBox {
                object: u64::from(location.file),
                position: piece.number as u64,
                chunk: piece.number as u64,
                copy: copy_of(piece, cells, (FastestAxis::First, 0), item),
            });
        }
        // Chunks of one element stand for the boxes, whose shapes the copies know.
        let count = (facts.levels[level].boxes.len() as u64).max(1);
        let grid = ChunkGrid::new(vec![count], vec![1])?;
        let chain =
            CodecChain { transpose: None, serializer: Serializer::Bytes(order), bytes: Vec::new() };
        let layout = StoredLayout {
            per_object: vec![count],
            codec: ChunkCodec::new(&chain, facts.data_type, &[1]),
            item_size: item,
            fill: FillValue::Bytes(vec![0; item]),
            grid,
        };
        let (bytes, per_object) = (parts.bytes, &layout.per_object);
        let geometry = Geometry::of_boxes(&layout.grid, per_object, boxes, item, bytes);
        let source = LevelSource { plotfile: self, level, table: Arc::new(BoxPlaces(extents)) };
        ReadSource::settled(&source, &layout, &self.tuning)
            .with_plan(&geometry, act)
            .map_err(|error| error.at(&self.name))
    }
}

/// Reads and parses the text of each level, and adds it to the list of those that were read.
fn parsed_levels(
    header: &PlotfileHeader,
    storage: &dyn Storage,
    limits: &Limits,
    texts: &mut Vec<MeshFile>,
) -> Result<(Vec<MeshLevel>, Vec<Arc<LevelText>>)> {
    let Some(coarsest) = header.domains.get(0) else {
        return Err(Error::corrupt(HEADER, "no levels"));
    };
    let (mut levels, mut stored, mut scale) = (Vec::new(), Vec::new(), vec![1_i64; header.rank()]);
    for (number, level) in header.levels.iter().enumerate() {
        let path = level.cell_header_path()?;
        let mut open = || {
            let text = text_of(storage, &path, limits, texts)?;
            let text = CellHeader::parse(&text, limits)?;
            text.check(header, number)?;
            let files = text.files.iter().map(|file| level.data_path(file));
            let files = files.collect::<std::result::Result<Vec<_>, _>>()?;
            let refined = |bounds: &[i64]| -> Vec<i64> {
                bounds.iter().zip(&scale).map(|(at, by)| at.saturating_mul(*by)).collect()
            };
            let corner = refined(coarsest.start);
            let is_refined =
                |it: &CellBox<'_>| it.start == corner && it.stop == refined(coarsest.stop);
            let Some(domain) = header.domains.get(number).filter(is_refined) else {
                let text = "a domain that is not the refined one of the level before";
                return Err(Error::new(ErrorKind::Unsupported, text));
            };
            let boxes = placed(&text.boxes, &corner, &vec![0; header.rank()])?;
            let cells = placed(&text.boxes, &corner, &text.ghost_cells)?;
            let shape = (domain.shape().collect(), level.refinement_ratio.clone());
            let made = MeshLevel::new(shape, level.spacing.clone(), level.step, boxes, None)?;
            Ok((made, LevelText { text, cells, files }))
        };
        let (made, text) = open().map_err(|error: Error| error.at(&path))?;
        levels.push(made);
        stored.push(Arc::new(text));
        for (all, one) in scale.iter_mut().zip(&level.refinement_ratio) {
            *all = all.saturating_mul(i64::from(*one));
        }
    }
    Ok((levels, stored))
}

impl StoredLevel {
    fn of(text: &Arc<LevelText>) -> Self {
        Self { of: Arc::clone(text), state: Mutex::default() }
    }

    /// Returns the boxes whose headers were not read yet.
    fn unknown(&self, boxes: &[usize]) -> Vec<usize> {
        let state = self.state();
        boxes.iter().copied().filter(|number| !state.fabs.contains_key(number)).collect()
    }

    fn state(&self) -> MutexGuard<'_, FoundFabs> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of coordinates; those of writers that name none are Cartesian.
fn coordinates_of(given: CoordinateSystem) -> &'static str {
    match given {
        CoordinateSystem::Cylindrical => "cylindrical",
        CoordinateSystem::Spherical => "spherical",
        _ => "cartesian",
    }
}

/// Returns boxes with the ghost cells around them, in cells that are counted from the lower corner of
/// the domain.
fn placed(boxes: &BoxList, corner: &[i64], ghosts: &[u32]) -> Result<BoxList> {
    let mut found = BoxList::new(boxes.rank())?;
    let by: Vec<(i64, i64)> =
        corner.iter().copied().zip(ghosts.iter().map(|n| i64::from(*n))).collect();
    for one in boxes.iter() {
        let start = one.start.iter().zip(&by).map(|(at, (from, around))| at - from - around);
        let stop = one.stop.iter().zip(&by).map(|(at, (from, around))| at - from + around);
        found.push(&start.collect::<Vec<_>>(), &stop.collect::<Vec<_>>())?;
    }
    Ok(found)
}

/// Reads a text, and adds it to the list of those that were read.
fn text_of(
    storage: &dyn Storage,
    path: &ObjectPath,
    limits: &Limits,
    texts: &mut Vec<MeshFile>,
) -> Result<Vec<u8>> {
    let object = storage.open(path)?;
    let version = source_version(object.version());
    texts.push(MeshFile { path: path.to_string(), version });
    let size = object.version().size;
    if size > limits.index_bytes_max {
        let text = format!("{path} has {size} bytes, over the limit of {}", limits.index_bytes_max);
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    object.read(0, &mut text)?;
    Ok(text)
}

fn changed(path: &ObjectPath) -> Error {
    let text = format!("{path} has changed since it was opened: open the plotfile again");
    Error::new(ErrorKind::Conflict, text)
}

/// A component of a level as a source: each file is an object, each box a chunk.
struct LevelSource<'a> {
    plotfile: &'a Plotfile,
    level: usize,
    table: Arc<BoxPlaces>,
}

/// The place of each box that a read touches.
#[derive(Debug)]
struct BoxPlaces(HashMap<u64, Extent>);

impl LocateChunk for BoxPlaces {
    fn locate(&self, position: u64) -> Option<Location> {
        self.0.get(&position).copied().map(Location::of)
    }
}

impl Source for LevelSource<'_> {
    fn open(
        &self,
        coordinates: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let stored = &self.plotfile.stored[self.level];
        let file = u32::try_from(coordinates[0]).unwrap_or(u32::MAX);
        let path = &stored.of.files[file as usize];
        let object = self.plotfile.storage.open(path)?;
        if stored.state().versions.get(&file) != Some(object.version()) {
            return Err(changed(path));
        }
        Ok(Some(OpenCell {
            object: object.into(),
            locations: ChunkLocations::Table(self.table.clone()),
            contained: 0,
            index_requests: 0,
            index_bytes: 0,
        }))
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        let files = &self.plotfile.stored[self.level].of.files;
        usize::try_from(coordinates[0])
            .ok()
            .and_then(|file| files.get(file))
            .map_or_else(String::new, ToString::to_string)
    }

    fn place_name(&self) -> String {
        self.plotfile.name.clone()
    }
}
