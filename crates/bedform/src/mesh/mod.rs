//! Refined meshes: levels of boxes, each finer than the one before, read as uniform arrays.
//!
//! A level divides the domain into cells; boxes of it hold elements. Cells are counted from the
//! lower corner of the domain, along x, y, z. A cell of a level holds `ratio` cells of the next one
//! along each axis.
//!
//! # Reads
//!
//! A read of a region finds, on each level, the boxes that the region touches, and reads their
//! common cells by one plan a level: neighbours in a file share requests. So no box is read whole.
//! The cells of a level follow each other in a buffer, box after box ([`LevelPieces`]).
//! [`Mesh::read`] lays those of finer levels over those of coarser ones, each repeated as
//! often as the result has cells in it.
//!
//! | module | holds |
//! |---|---|
//! | `forecast` | the predicted cost of reads of a replica that is not made yet |
//! | `kept` | plotfiles that this process has opened before |
//! | `level` | a level: its boxes, the grids that hold its elements, and an index of them |
//! | `plotfile` | plotfiles of AMReX: opening, and the elements of a level as a source |
//! | `replicas` | copies of components in the sidecar, which serve reads that they make cheaper |
//! | `rows` | meshes whose levels are arrays of one axis, as in HDF5 files of Chombo |
//! | `stored` | meshes in stores: opening, and their reads |
//! | `storing` | a mesh written to a store: boxes cut, ordered and packed |
//! | `writing` | meshes that sessions write |
//! | `pieces` | the parts of boxes that a region takes, and the plan that reads them |
//! | `uniform` | levels, laid over each other as one array |

mod forecast;
mod kept;
mod level;
mod pieces;
mod plotfile;
mod replicas;
mod rows;
mod stored;
mod storing;
mod uniform;
mod writing;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bedform_format::mesh::MeshRecord;
use bedform_format::mesh_replica::MeshFile;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{AxisRange, AxisSelection, CellBox, Selection};
use bedform_machine::Workload;
use bedform_storage::Processor;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::opening::{add_kept_profile, check_local};
use crate::options::{OpenOptions, Prefetch};
use crate::plan::copy::CopyTarget;
use crate::prefetch::HandleReads;
use crate::run::ReadsExplanation;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::plan::ReadPlan;
use crate::run::workload::read_workload;
use crate::store::Store;
use crate::trace::MadeRead;

pub(crate) use forecast::MeshForecast;
pub use level::MeshLevel;
pub use pieces::{LevelPiece, LevelPieces};
use pieces::{PieceList, pieces_of, pieces_within};
use plotfile::Plotfile;
pub(crate) use replicas::{GAIN_MIN, MESH_CATALOGUE, OpenMeshReplica, mesh_replicas_in};
use replicas::{MeshReading, MeshReplicas};
pub use rows::RowLevel;
use rows::RowMesh;
use stored::StoredMesh;
pub use stored::{MeshStep, steps_of};
pub(crate) use storing::default_sub_box;
pub use storing::{MeshOrder, MeshStorage};
use uniform::UniformTarget;
pub use writing::{MeshWriter, NewMesh};

/// A refined mesh: a plotfile of AMReX, an HDF5 file of Chombo, or a group of a store. Cheap to
/// clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Mesh {
    facts: Arc<MeshFacts>,
    source: Arc<dyn MeshSource>,
    /// The path of the mesh in its store; empty for a file.
    step: String,
    /// Replicas of its components, if there may be some.
    replicas: Option<Arc<MeshReplicas>>,
    /// The recorder of its reads.
    recorder: Option<Arc<HandleReads>>,
}

/// The facts of a mesh without its elements.
#[derive(Debug)]
struct MeshFacts {
    name: String,
    components: Vec<String>,
    time: f64,
    lower: Vec<f64>,
    upper: Vec<f64>,
    coordinates: String,
    data_type: DataType,
    levels: Vec<MeshLevel>,
    /// Threads that lay levels over each other.
    threads: usize,
}

impl MeshFacts {
    /// Makes the facts of a mesh from its record in `store`.
    fn of_record(
        store: &Store,
        name: String,
        record: MeshRecord,
        levels: Vec<MeshLevel>,
        data_type: DataType,
    ) -> Self {
        Self {
            name,
            components: record.components.into_iter().map(|one| one.name).collect(),
            time: record.time,
            lower: record.lower,
            upper: record.upper,
            coordinates: record.coordinates,
            data_type,
            levels,
            threads: store.tuning().threads,
        }
    }

    /// The bytes of an element.
    fn item(&self) -> usize {
        self.data_type.item_size().unwrap_or(8)
    }
}

/// The elements of a mesh.
trait MeshSource: std::fmt::Debug + Send + Sync {
    /// Returns the files that were read when the mesh was opened, with their versions then.
    fn texts(&self) -> Vec<MeshFile> {
        Vec::new()
    }

    /// Returns the present versions of the files with elements of a component in these pieces of a
    /// level; `None` while they are being written, and where they have no versions.
    ///
    /// # Errors
    /// Those of storage.
    fn versions(
        &self,
        component: usize,
        level: usize,
        pieces: &[LevelPiece],
    ) -> Result<Option<Vec<MeshFile>>>;

    /// Calls `act` with the plan that reads parts of the grids of a level, each to its place among
    /// `bytes` bytes of elements in the machine's byte order. It is called again if the data move
    /// on meanwhile.
    ///
    /// # Errors
    /// `Conflict` for a file that has changed; `Corrupt`, `Unsupported` by the elements; those of
    /// storage and of `act`.
    fn with_plan(
        &self,
        facts: &MeshFacts,
        component: usize,
        level: usize,
        pieces: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()>;
}

/// The use of a plan.
type PlanAct<'a> = &'a mut dyn FnMut(ReadPlan<'_>) -> Result<()>;

/// Parts of the grids of a level, with their places among `bytes` bytes.
#[derive(Clone, Copy)]
struct LevelParts<'a> {
    pieces: &'a [LevelPiece],
    bytes: u64,
}

/// The reads of a region, planned: one for each level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshExplanation {
    /// The bytes of the result.
    pub result_bytes: u64,
    /// The levels, coarsest first.
    pub levels: Vec<LevelExplanation>,
    /// Predicted seconds to fill the result and to lay coarser levels into it.
    pub composing_seconds: f64,
    /// The replica that serves the read, if one does.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub served: Option<ServedMeshRead>,
}

/// The read of one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelExplanation {
    /// The level.
    pub level: usize,
    /// The grids of which the read takes cells.
    pub grids: usize,
    /// The grids that it leaves out, because the next level has all cells that it would take.
    pub covered_grids: usize,
    /// The bytes of the elements that it takes.
    pub needed_bytes: u64,
    /// The plan: requests, bytes, predicted seconds.
    pub reads: ReadsExplanation,
}

/// The predicted seconds of a read without its replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServedMeshRead {
    /// The name of the replica that serves the read.
    pub replica: String,
    /// Predicted seconds of a cold read of the mesh itself.
    pub predicted_cold_seconds_without: f64,
}

/// A region of a level: the first cell and the cell after the last along each axis, counted from
/// the lower corner of the domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRegion {
    /// The first cell.
    pub start: Vec<i64>,
    /// The cell after the last.
    pub stop: Vec<i64>,
}

impl CellRegion {
    /// Returns the number of cells along each axis; 0 where it has none.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let lengths = self.start.iter().zip(&self.stop).map(|(from, to)| to.saturating_sub(*from));
        lengths.map(|length| u64::try_from(length).unwrap_or(0)).collect()
    }

    /// Returns the number of cells.
    fn cells(&self) -> f64 {
        self.shape().iter().map(|length| *length as f64).product()
    }

    /// True if a region of the same level lies within.
    pub(crate) fn has(&self, other: &Self) -> bool {
        let starts = self.start.iter().zip(&other.start).all(|(own, at)| own <= at);
        starts && self.stop.iter().zip(&other.stop).all(|(own, at)| at <= own)
    }

    /// Returns the region in cells of a finer level, of which a cell has `ratio` cells.
    pub(crate) fn refined(&self, ratio: &[i64]) -> Self {
        let side = |side: &[i64]| {
            side.iter().zip(ratio).map(|(at, ratio)| at.saturating_mul(*ratio)).collect()
        };
        Self { start: side(&self.start), stop: side(&self.stop) }
    }

    /// Grows to the smallest region that also has another one.
    pub(crate) fn extend_to(&mut self, other: &Self) {
        for axis in 0..self.start.len().min(other.start.len()) {
            self.start[axis] = self.start[axis].min(other.start[axis]);
            self.stop[axis] = self.stop[axis].max(other.stop[axis]);
        }
    }

    /// Returns the region as a selection of an array of the level's cells; `None` without cells.
    fn selection(&self) -> Option<Selection> {
        let axes = self.start.iter().zip(self.shape()).map(|(from, length)| {
            let from = u64::try_from(*from).ok().filter(|_| length > 0)?;
            AxisRange::contiguous(from, length).ok().map(AxisSelection::Range)
        });
        axes.collect::<Option<_>>().map(Selection::Orthogonal)
    }
}

impl Mesh {
    /// Opens the plotfile at `path`. Reads its texts, and no elements.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`, `LimitExceeded` by its texts; those of storage.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        check_local(path)?;
        let mut options = options.clone();
        add_kept_profile(&mut options, path);
        let (facts, plotfile) = Plotfile::open(path, &options)?;
        let replicas = MeshReplicas::new(options.sidecar.as_ref(), &options).map(Arc::new);
        // Nothing is read ahead of a mesh.
        options.prefetch = Prefetch::Off;
        let recorder = HandleReads::new(&options);
        Ok(Self { facts, source: Arc::new(plotfile), step: String::new(), replicas, recorder })
    }

    /// Opens the mesh in the group `path` of a store. Reads its boxes, and no elements.
    ///
    /// # Errors
    /// `NotFound` if the group is no mesh; `Corrupt`, `LimitExceeded` by its record and boxes; those
    /// of reading arrays.
    pub fn of_store(store: &Store, path: &ObjectPath) -> Result<Self> {
        let (facts, stored) = StoredMesh::open(store, path)?;
        let options = store.options();
        let replicas = MeshReplicas::new(options.sidecar.as_ref(), options).map(Arc::new);
        let (facts, source) = (Arc::new(facts), Arc::new(stored));
        let (step, recorder) = (path.to_string(), store.recorder());
        Ok(Self { facts, source, step, replicas, recorder })
    }

    /// Makes a mesh of arrays of one axis in a store or foreign file, one for each level, in which
    /// each box has all components. Of the record, order and sub-boxes do not count.
    ///
    /// # Errors
    /// `Corrupt` for boxes that overlap, or lie outside of the domain or the arrays; `Unsupported`
    /// for elements other than float32 and float64; those of opening the arrays.
    pub fn of_rows(
        store: &Store,
        name: String,
        record: MeshRecord,
        levels: Vec<RowLevel>,
    ) -> Result<Self> {
        let (facts, rows) = RowMesh::open(store, name, record, levels)?;
        let (step, recorder) = (String::new(), store.recorder());
        let file = store.file().filter(|file| file.replicas.is_some());
        let sidecar = file.and_then(|file| file.sidecar.as_ref());
        let replicas = MeshReplicas::new(sidecar, store.options()).map(Arc::new);
        Ok(Self { facts: Arc::new(facts), source: Arc::new(rows), step, replicas, recorder })
    }

    /// The path, for messages.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The names of the components.
    pub fn components(&self) -> &[String] {
        &self.facts.components
    }

    /// The time of the simulation.
    pub fn time(&self) -> f64 {
        self.facts.time
    }

    /// The lower bound of the domain along each axis, in the units of the simulation.
    pub fn lower(&self) -> &[f64] {
        &self.facts.lower
    }

    /// The upper bound of the domain along each axis.
    pub fn upper(&self) -> &[f64] {
        &self.facts.upper
    }

    /// The coordinates that the axes have: `cartesian`, `cylindrical` or `spherical`.
    pub fn coordinates(&self) -> &str {
        &self.facts.coordinates
    }

    /// The type of the elements: float32 or float64.
    pub fn data_type(&self) -> DataType {
        self.facts.data_type
    }

    /// The levels, coarsest first.
    pub fn levels(&self) -> &[MeshLevel] {
        &self.facts.levels
    }

    /// Returns a level.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none with this number.
    pub fn level(&self, number: usize) -> Result<&MeshLevel> {
        let levels = self.levels();
        levels.get(number).ok_or_else(|| {
            let text = format!("{}: level {number} of {} levels", self.name(), levels.len());
            Error::new(ErrorKind::InvalidArgument, text)
        })
    }

    /// Returns the cells of each level up to `level` that lie in a region of that level.
    ///
    /// # Errors
    /// `NotFound` for a component that is missing; `InvalidArgument` for a level or region that the
    /// mesh does not have; `LimitExceeded` for more than `bytes_max` bytes; `Conflict` for a file
    /// that has changed; those of storage.
    pub fn pieces(
        &self,
        component: &str,
        region: &CellRegion,
        level: usize,
        bytes_max: u64,
    ) -> Result<Vec<LevelPieces>> {
        let number = self.component(component)?;
        self.check(region, level)?;
        let (began, reading) = (Instant::now(), self.reading(number, region, level));
        let (mut bytes, item) = (0_u64, self.facts.item());
        let read = |at: usize| {
            let coarse = self.coarse(region, level, at);
            let list = pieces_of(self.level(at)?, &coarse, item, bytes_max)?;
            let mut pieces = self.read_list(&reading, at, list)?;
            if at < level {
                pieces.covered = self.covered(at, level, &pieces)?;
            }
            bytes = bytes.saturating_add(pieces.data.len() as u64);
            pieces::check_bytes(bytes, bytes_max)?;
            Ok(pieces)
        };
        let found = (0..=level).map(read).collect::<Result<Vec<_>>>()?;
        self.note(&reading, (level, region), bytes, began.elapsed());
        Ok(found)
    }

    /// Reads a region of `level` into `target`: the elements in C order, those of the finest level
    /// up to `level` that has the cell, and `fill` where none has. `fill` is an element in the
    /// machine's byte order.
    ///
    /// # Errors
    /// As [`Mesh::pieces`]; `InvalidArgument` for a target or element of another size.
    pub fn read(
        &self,
        component: &str,
        region: &CellRegion,
        level: usize,
        fill: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        let number = self.component(component)?;
        self.check(region, level)?;
        let item = fill.len();
        let cells = region.start.iter().zip(&region.stop).map(|(from, to)| to.abs_diff(*from));
        let bytes = cells.fold(item as u64, u64::saturating_mul);
        if Some(item) != self.data_type().item_size() || bytes != target.len() as u64 {
            return Err(Error::invalid(format!("{} bytes for a region of {bytes}", target.len())));
        }
        if target.is_empty() {
            return Ok(());
        }
        let (began, reading) = (Instant::now(), self.reading(number, region, level));
        let mut target = UniformTarget::new(region, item, self.facts.threads, target);
        target.fill(fill)?;
        for at in 0..level {
            let (list, _) = self.visible_pieces(region, level, at)?;
            target.lay(&self.read_list(&reading, at, list)?, &self.ratio(at, level))?;
        }
        // The finest level needs no second copy.
        let cells = CellBox { start: &region.start, stop: &region.stop };
        let pieces = pieces_within(self.level(level)?, cells, 0, item as u64)?;
        if !pieces.is_empty() {
            self.read_parts_into(&reading, level, &pieces, target.bytes())?;
        }
        self.note(&reading, (level, region), bytes, began.elapsed());
        Ok(())
    }

    /// Records a read that has been made, where reads are recorded: as one of an array of the cells
    /// of its level.
    fn note(
        &self,
        reading: &MeshReading,
        (level, region): (usize, &CellRegion),
        bytes: u64,
        took: Duration,
    ) {
        let recorder = self.recorder.as_ref().filter(|recorder| recorder.records());
        let (Some(recorder), Some(selection)) = (recorder, region.selection()) else { return };
        let path = self.traced_path(level, &self.components()[reading.component]);
        let array = (path.as_str(), &self.levels()[level].shape[..], self.facts.item() as u64);
        let replicas: Vec<_> = reading.taken().into_iter().collect();
        let made = MadeRead { bytes, took, was_ahead: false, replicas: &replicas };
        recorder.record(array, &selection, &made);
    }

    /// Reads parts of the grids of one level: of grid `numbers[i]` the cells from `starts[i]` up to
    /// and excluding `stops[i]`, one after the other, each in C order.
    ///
    /// # Errors
    /// `OutOfBounds` for a grid that the level lacks, or cells outside of it; as [`Mesh::pieces`].
    pub fn read_parts(
        &self,
        component: &str,
        level: usize,
        parts: &[(usize, CellRegion)],
        bytes_max: u64,
    ) -> Result<LevelPieces> {
        let number = self.component(component)?;
        let grids = self.level(level)?.grids();
        let item = self.facts.item();
        let mut pieces = PieceList::new(item, bytes_max);
        let mut around: Option<CellRegion> = None;
        for (grid, part) in parts {
            let CellRegion { start, stop } = part;
            let outside = || {
                let text = format!("{}: grid {grid} of level {level}", self.name());
                Error::new(ErrorKind::OutOfBounds, text)
            };
            let cells = grids.get(*grid).ok_or_else(outside)?;
            let is_inside = |axis: usize| {
                cells.start[axis] <= start[axis]
                    && start[axis] <= stop[axis]
                    && stop[axis] <= cells.stop[axis]
            };
            if start.len() != grids.rank()
                || stop.len() != grids.rank()
                || !(0..grids.rank()).all(is_inside)
            {
                return Err(outside());
            }
            pieces.push(*grid, start.clone(), stop)?;
            around.get_or_insert_with(|| part.clone()).extend_to(part);
        }
        let Some(around) = around else {
            return self.read_list(&MeshReading::of_mesh(number), level, pieces);
        };
        let (began, reading) = (Instant::now(), self.reading(number, &around, level));
        let found = self.read_list(&reading, level, pieces)?;
        self.note(&reading, (level, &around), found.data.len() as u64, began.elapsed());
        Ok(found)
    }

    fn read_list(
        &self,
        reading: &MeshReading,
        level: usize,
        list: PieceList,
    ) -> Result<LevelPieces> {
        let mut data = vec![0; usize::try_from(list.bytes).unwrap_or(usize::MAX)];
        if !data.is_empty() {
            self.read_parts_into(reading, level, &list.pieces, &mut data)?;
        }
        Ok(LevelPieces { level, pieces: list.pieces, data, covered: Vec::new() })
    }

    /// Marks the cells of pieces of level `at` that a finer level up to `level` has.
    fn covered(&self, at: usize, level: usize, pieces: &LevelPieces) -> Result<Vec<u8>> {
        let item = self.facts.item();
        let mut marks = vec![0; pieces.data.len() / item];
        for piece in &pieces.pieces {
            let first = piece.place / item;
            let cells: usize =
                piece.shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).product();
            for finer in at + 1..=level {
                let (boxes, ratio) = (self.level(finer)?, self.ratio(at, finer));
                boxes.mark_covered(piece, &ratio, &mut marks[first..first + cells])?;
            }
        }
        Ok(marks)
    }

    /// Reads parts of grids to their places in `data`, from the replica of the reading where it may.
    fn read_parts_into(
        &self,
        reading: &MeshReading,
        level: usize,
        pieces: &[LevelPiece],
        data: &mut [u8],
    ) -> Result<()> {
        if let Some(replica) = &reading.replica
            && replica.read(self, (reading, level), pieces, data)?
        {
            return Ok(());
        }
        let parts = LevelParts { pieces, bytes: data.len() as u64 };
        self.with_plan(reading.component, level, parts, &mut |plan| {
            let began = Instant::now();
            let done = execute(plan, Deliver::Buffer(CopyTarget::new(data)))?;
            plan.learn(&done, began.elapsed().as_secs_f64());
            Ok(())
        })
    }

    fn with_plan(
        &self,
        component: usize,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()> {
        self.source.with_plan(&self.facts, component, level, parts, act)
    }

    /// Explains [`Mesh::read`] without reading elements.
    ///
    /// # Errors
    /// As [`Mesh::read`].
    pub fn explain(
        &self,
        component: &str,
        region: &CellRegion,
        level: usize,
    ) -> Result<MeshExplanation> {
        let number = self.component(component)?;
        self.check(region, level)?;
        let item = self.facts.item() as u64;
        let cells = region.start.iter().zip(&region.stop).map(|(from, to)| to.abs_diff(*from));
        let reading = self.reading(number, region, level);
        let mut levels = Vec::with_capacity(level + 1);
        let (mut laid_bytes, mut processor) = (0.0, None);
        for at in 0..=level {
            let (list, covered_grids) = self.visible_pieces(region, level, at)?;
            laid_bytes += self.laid_bytes(&list, at, level);
            let mut reads = ReadsExplanation::default();
            if !list.pieces.is_empty() {
                self.with_plan_of(&reading, at, list.parts(), &mut |plan| {
                    processor.get_or_insert_with(|| plan.tuning().profile.processor.clone());
                    reads = ReadsExplanation::of(plan, None)?;
                    Ok(())
                })?;
            }
            let (grids, needed_bytes) = (list.pieces.len(), list.bytes);
            levels.push(LevelExplanation { level: at, grids, covered_grids, needed_bytes, reads });
        }
        let served = match reading.served() {
            None => None,
            Some(replica) => Some(ServedMeshRead {
                replica: replica.id().to_owned(),
                predicted_cold_seconds_without: self.seconds(
                    &MeshReading::of_mesh(number),
                    region,
                    level,
                )?,
            }),
        };
        let result_bytes = cells.fold(item, u64::saturating_mul);
        let composing_seconds = processor.map_or(0.0, |processor| {
            self.composing_seconds(&processor, result_bytes as f64, laid_bytes)
        });
        Ok(MeshExplanation { result_bytes, levels, composing_seconds, served })
    }

    /// Returns the bytes that the elements of a level take in a result of a finer one, in which each
    /// is repeated; nothing for the level of the result, which is read into it.
    fn laid_bytes(&self, list: &PieceList, at: usize, level: usize) -> f64 {
        let repeats: f64 = self.ratio(at, level).iter().map(|ratio| *ratio as f64).product();
        if at < level { list.bytes as f64 * repeats } else { 0.0 }
    }

    /// Returns the predicted seconds to fill a result and to lay elements of coarser levels into it.
    fn composing_seconds(&self, processor: &Processor, result_bytes: f64, laid_bytes: f64) -> f64 {
        let laying = laid_bytes / processor.copy_bytes_per_second.max(1.0);
        result_bytes / processor.fresh_bytes_per_second.max(1.0)
            + laying / self.facts.threads.max(1) as f64
    }

    /// Returns the requests of [`Mesh::read`], shared by `clients`, for a simulated machine: those of
    /// one level after those of the level before. Each object of a level is a file.
    ///
    /// # Errors
    /// As [`Mesh::read`]; `LimitExceeded` for more requests or clients than the simulation allows.
    pub fn workload(
        &self,
        component: &str,
        region: &CellRegion,
        level: usize,
        clients: u32,
    ) -> Result<Workload> {
        let number = self.component(component)?;
        self.check(region, level)?;
        let reading = self.reading(number, region, level);
        let mut all = Workload::default();
        for at in 0..=level {
            let (list, _) = self.visible_pieces(region, level, at)?;
            if list.pieces.is_empty() {
                continue;
            }
            self.with_plan_of(&reading, at, list.parts(), &mut |plan| {
                all.append(read_workload(plan, clients)?);
                Ok(())
            })?;
        }
        Ok(all)
    }

    /// Returns the pieces of level `at` for a region of `level`, without those of which the next
    /// level has all cells, and the number of these.
    fn visible_pieces(
        &self,
        region: &CellRegion,
        level: usize,
        at: usize,
    ) -> Result<(PieceList, usize)> {
        let item = self.facts.item();
        let all = pieces_of(self.level(at)?, &self.coarse(region, level, at), item, u64::MAX)?;
        if at == level {
            return Ok((all, 0));
        }
        let (finer, ratio) = (self.level(at + 1)?, self.ratio(at, at + 1));
        let mut visible = PieceList::new(item, u64::MAX);
        let count = all.pieces.len();
        for piece in all.pieces {
            let stop = piece.stop();
            if !finer.has_all(&piece.start, &stop, &ratio)? {
                visible.push(piece.number, piece.start, &stop)?;
            }
        }
        let covered = count - visible.pieces.len();
        Ok((visible, covered))
    }

    /// Returns the number of a component.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn component(&self, name: &str) -> Result<usize> {
        let found = self.components().iter().position(|one| one == name);
        found.ok_or_else(|| {
            let text = format!("{}: no component {name:?}", self.name());
            Error::new(ErrorKind::NotFound, text)
        })
    }

    fn check(&self, region: &CellRegion, number: usize) -> Result<()> {
        let shape = &self.level(number)?.shape;
        let fits = level::is_inside(&region.start, &region.stop, shape);
        fits.then_some(()).ok_or_else(|| {
            let text = format!(
                "{}: the cells {:?} to {:?} of level {number}, which has {shape:?}",
                self.name(),
                region.start,
                region.stop
            );
            Error::new(ErrorKind::OutOfBounds, text)
        })
    }

    /// Returns the path by which records and plans name a component of a level.
    pub(crate) fn traced_path(&self, level: usize, component: &str) -> String {
        let path = format!("level_{level}/{component}");
        if self.step.is_empty() { path } else { format!("{}/{path}", self.step) }
    }

    /// Returns the level and the component that such a path names; `None` for the path of another
    /// mesh.
    pub(crate) fn traced_component<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let own = match self.step.as_str() {
            "" => path,
            step => path.strip_prefix(step)?.strip_prefix('/')?,
        };
        let (level, component) = own.strip_prefix("level_")?.split_once('/')?;
        let level = level.parse().ok().filter(|level| *level < self.levels().len())?;
        Some((level, component))
    }

    /// The path of the mesh in its store; empty for a file.
    pub(crate) fn step(&self) -> &str {
        &self.step
    }

    /// Returns all files of a component of the first `levels` levels, with their versions: those of
    /// the texts as they were read, the others as they are. `None` while they are being written.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn files(&self, component: usize, levels: usize) -> Result<Option<Vec<MeshFile>>> {
        let mut files = self.source.texts();
        let mut known = HashSet::new();
        for (number, level) in self.levels().iter().enumerate().take(levels) {
            let stop = level.shape.iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX));
            let all = CellRegion { start: vec![0; level.shape.len()], stop: stop.collect() };
            let pieces = pieces_of(level, &all, 1, u64::MAX)?.pieces;
            let found = self.source.versions(component, number, &pieces)?;
            let Some(found) = found else { return Ok(None) };
            // Levels may share a file.
            files.extend(found.into_iter().filter(|file| known.insert(file.path.clone())));
        }
        Ok(Some(files))
    }

    /// Returns how many cells of level `to` a cell of level `from` has along each axis.
    pub(crate) fn ratio(&self, from: usize, to: usize) -> Vec<i64> {
        let mut ratio = vec![1; self.lower().len()];
        for level in &self.levels()[from..to] {
            for (all, one) in ratio.iter_mut().zip(&level.ratio) {
                *all *= i64::from(*one);
            }
        }
        ratio
    }

    /// Returns the cells of level `at` that have a cell of a region of `level`.
    pub(crate) fn coarse(&self, region: &CellRegion, level: usize, at: usize) -> CellRegion {
        let ratio = self.ratio(at, level);
        let sides = region.start.iter().zip(&region.stop).zip(&ratio);
        let (start, stop) = sides
            .map(|((start, stop), ratio)| {
                // Neither is negative. No cell has a cell of an empty region.
                let end = stop / ratio + i64::from(stop % ratio > 0);
                (start / ratio, if start < stop { end } else { start / ratio })
            })
            .unzip();
        CellRegion { start, stop }
    }
}
