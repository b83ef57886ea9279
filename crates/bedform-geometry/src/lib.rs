//! Index space without data: regions, selections and chunk grids.
//!
//! Pure: no I/O, no clock, no `unsafe`. Shapes and coordinates come from files and users, so nothing
//! here panics, wraps or allocates more than the answer needs because of a number that is too large;
//! functions that take validated values say so.
//!
//! | module | what |
//! |---|---|
//! | [`linearize`] and others | shapes, C order |
//! | [`Region`] | a half-open box |
//! | [`AxisRange`], [`Positions`] | positions along one axis |
//! | [`Selection`] | what a read asks for |
//! | [`ChunkGrid`] | an array cut into chunks, and which parts of them a selection touches |
#![forbid(unsafe_code)]

mod error;
mod grid;
mod positions;
mod project;
mod region;
mod selection;
mod shape;

pub use error::GeometryError;
pub use grid::ChunkGrid;
pub use positions::{AxisRange, Positions, PositionsIter};
pub use project::{AxisPiece, AxisProjection, PointMove, PointPiece};
pub use region::Region;
pub use selection::{AxisSelection, Points, Selection};
pub use shape::{RANK_MAX, delinearize, element_count, linearize, strides};
