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
//! | `level` | a level: its boxes, the grids that hold its elements, and an index of them |
//! | `plotfile` | plotfiles of AMReX: opening, and the elements of a level as a source |
//! | `rows` | meshes whose levels are arrays of one axis, as in HDF5 files of Chombo |
//! | `stored` | meshes in stores: opening, and their reads |
//! | `storing` | a mesh written to a store: boxes cut, ordered and packed |
//! | `writing` | meshes that sessions write |
//! | `pieces` | the parts of boxes that a region takes, and the plan that reads them |
//! | `uniform` | levels, laid over each other as one array |

mod level;
mod pieces;
mod plotfile;
mod rows;
mod stored;
mod storing;
mod uniform;
mod writing;

use std::path::Path;
use std::sync::Arc;

use bedform_format::mesh::MeshRecord;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::CellBox;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::plan::copy::CopyTarget;
use crate::run::ReadsExplanation;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::plan::ReadPlan;
use crate::store::Store;

pub use level::MeshLevel;
pub use pieces::{LevelPiece, LevelPieces};
use pieces::{PieceList, pieces_of, pieces_within};
use plotfile::Plotfile;
pub use rows::RowLevel;
use rows::RowMesh;
use stored::StoredMesh;
pub use stored::{MeshStep, steps_of};
pub use storing::{MeshOrder, MeshStorage};
use uniform::UniformTarget;
pub use writing::{MeshWriter, NewMesh};

/// A refined mesh: a plotfile of AMReX, an HDF5 file of Chombo, or a group of a store. Cheap to
/// clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Mesh {
    facts: Arc<MeshFacts>,
    source: Arc<dyn MeshSource>,
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

/// A region of a level: the first cell and the cell after the last along each axis, counted from
/// the lower corner of the domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRegion {
    /// The first cell.
    pub start: Vec<i64>,
    /// The cell after the last.
    pub stop: Vec<i64>,
}

impl Mesh {
    /// Opens the plotfile at `path`. Reads its texts, and no elements.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`, `LimitExceeded` by its texts; those of storage.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let (facts, plotfile) = Plotfile::open(path, options)?;
        Ok(Self { facts: Arc::new(facts), source: Arc::new(plotfile) })
    }

    /// Opens the mesh in the group `path` of a store. Reads its boxes, and no elements.
    ///
    /// # Errors
    /// `NotFound` if the group is no mesh; `Corrupt`, `LimitExceeded` by its record and boxes; those
    /// of reading arrays.
    pub fn of_store(store: &Store, path: &ObjectPath) -> Result<Self> {
        let (facts, stored) = StoredMesh::open(store, path)?;
        Ok(Self { facts: Arc::new(facts), source: Arc::new(stored) })
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
        Ok(Self { facts: Arc::new(facts), source: Arc::new(rows) })
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
        let mut bytes = 0_u64;
        (0..=level)
            .map(|at| {
                let mut pieces =
                    self.level_pieces(number, at, &self.coarse(region, level, at), bytes_max)?;
                if at < level {
                    pieces.covered = self.covered(at, level, &pieces)?;
                }
                bytes = bytes.saturating_add(pieces.data.len() as u64);
                pieces::check_bytes(bytes, bytes_max)?;
                Ok(pieces)
            })
            .collect()
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
        let mut target = UniformTarget::new(region, item, self.facts.threads, target);
        target.fill(fill)?;
        for at in 0..level {
            let (list, _) = self.visible_pieces(region, level, at)?;
            target.lay(&self.read_list(number, at, list)?, &self.ratio(at, level))?;
        }
        // The finest level needs no second copy.
        let cells = CellBox { start: &region.start, stop: &region.stop };
        let pieces = pieces_within(self.level(level)?, cells, 0, item as u64)?;
        match pieces.is_empty() {
            true => Ok(()),
            false => self.read_parts_into(number, level, &pieces, target.bytes()),
        }
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
        for (grid, CellRegion { start, stop }) in parts {
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
        }
        self.read_list(number, level, pieces)
    }

    /// Returns the cells of a level that lie in a region of it.
    fn level_pieces(
        &self,
        component: usize,
        level: usize,
        region: &CellRegion,
        bytes_max: u64,
    ) -> Result<LevelPieces> {
        let item = self.facts.item();
        let pieces = pieces_of(self.level(level)?, region, item, bytes_max)?;
        self.read_list(component, level, pieces)
    }

    fn read_list(&self, component: usize, level: usize, list: PieceList) -> Result<LevelPieces> {
        let mut data = vec![0; usize::try_from(list.bytes).unwrap_or(usize::MAX)];
        if !data.is_empty() {
            self.read_parts_into(component, level, &list.pieces, &mut data)?;
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

    /// Reads parts of grids to their places in `data`.
    fn read_parts_into(
        &self,
        component: usize,
        level: usize,
        pieces: &[LevelPiece],
        data: &mut [u8],
    ) -> Result<()> {
        let parts = LevelParts { pieces, bytes: data.len() as u64 };
        self.with_plan(component, level, parts, &mut |plan| {
            execute(plan, Deliver::Buffer(CopyTarget::new(data))).map(drop)
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
        let mut levels = Vec::with_capacity(level + 1);
        for at in 0..=level {
            let (list, covered_grids) = self.visible_pieces(region, level, at)?;
            let mut reads = ReadsExplanation::default();
            if !list.pieces.is_empty() {
                self.with_plan(number, at, list.parts(), &mut |plan| {
                    reads = ReadsExplanation::of(plan, None)?;
                    Ok(())
                })?;
            }
            let (grids, needed_bytes) = (list.pieces.len(), list.bytes);
            levels.push(LevelExplanation { level: at, grids, covered_grids, needed_bytes, reads });
        }
        Ok(MeshExplanation { result_bytes: cells.fold(item, u64::saturating_mul), levels })
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

    fn component(&self, name: &str) -> Result<usize> {
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

    /// Returns how many cells of level `to` a cell of level `from` has along each axis.
    fn ratio(&self, from: usize, to: usize) -> Vec<i64> {
        let mut ratio = vec![1; self.lower().len()];
        for level in &self.levels()[from..to] {
            for (all, one) in ratio.iter_mut().zip(&level.ratio) {
                *all *= i64::from(*one);
            }
        }
        ratio
    }

    /// Returns the cells of level `at` that have a cell of a region of `level`.
    fn coarse(&self, region: &CellRegion, level: usize, at: usize) -> CellRegion {
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
