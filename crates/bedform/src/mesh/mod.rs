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
//! | `level` | a level: its boxes and an index of them |
//! | `plotfile` | plotfiles of AMReX: opening, and the elements of a level as a source |
//! | `pieces` | the parts of boxes that a region takes, and the plan that reads them |
//! | `uniform` | levels, laid over each other as one array |

mod level;
mod pieces;
mod plotfile;
mod uniform;

use std::path::Path;
use std::sync::Arc;

use bedform_format::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;

pub use level::MeshLevel;
pub use pieces::{LevelPiece, LevelPieces};
use plotfile::Plotfile;

/// A refined mesh: a plotfile of AMReX. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Mesh {
    plotfile: Arc<Plotfile>,
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
        Ok(Self { plotfile: Arc::new(Plotfile::open(path, options)?) })
    }

    /// The path, for messages.
    pub fn name(&self) -> &str {
        &self.plotfile.name
    }

    /// The names of the components.
    pub fn components(&self) -> &[String] {
        &self.plotfile.components
    }

    /// The time of the simulation.
    pub fn time(&self) -> f64 {
        self.plotfile.time
    }

    /// The lower bound of the domain along each axis, in the units of the simulation.
    pub fn lower(&self) -> &[f64] {
        &self.plotfile.lower
    }

    /// The upper bound of the domain along each axis.
    pub fn upper(&self) -> &[f64] {
        &self.plotfile.upper
    }

    /// The type of the elements: float32 or float64.
    pub fn data_type(&self) -> DataType {
        self.plotfile.data_type
    }

    /// The levels, coarsest first.
    pub fn levels(&self) -> &[MeshLevel] {
        &self.plotfile.levels
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
                let pieces =
                    self.plotfile.pieces(number, at, &self.coarse(region, level, at), bytes_max)?;
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
        target.chunks_exact_mut(item).for_each(|element| element.copy_from_slice(fill));
        for at in 0..=level {
            let coarse = self.coarse(region, level, at);
            let pieces = self.plotfile.pieces(number, at, &coarse, u64::MAX)?;
            let ratio = self.ratio(at, level);
            for piece in &pieces.pieces {
                uniform::lay(piece, &pieces.data, (&ratio, item), region, target);
            }
        }
        Ok(())
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
        let start = region.start.iter().zip(&ratio).map(|(start, ratio)| start / ratio);
        let stop = region.stop.iter().zip(&ratio).map(|(stop, ratio)| {
            // Neither is negative.
            stop / ratio + i64::from(stop % ratio > 0)
        });
        CellRegion { start: start.collect(), stop: stop.collect() }
    }
}
