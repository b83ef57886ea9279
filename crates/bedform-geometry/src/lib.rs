//! Index space without data: regions, selections, chunk grids and curves.
//!
//! Pure: no I/O, no clock, no `unsafe`. Shapes and coordinates come from files and users, so
//! nothing here panics, wraps or allocates more than the answer needs because of a number that is
//! too large; functions that take validated values say so.
//!
//! | module | what |
//! |---|---|
//! | [`linearize`] and others | shapes, C order |
//! | [`Region`] | a half-open box |
//! | [`AxisRange`], [`Positions`] | positions along one axis |
//! | [`Selection`] | the elements that a read or write asks for |
//! | [`ChunkGrid`] | an array cut into chunks, and which parts of them a selection touches |
//! | [`Order`], [`hilbert_index`] and others | how the cells of a grid follow each other |
//! | [`spread_placement`], [`Spread`] | which storage target holds which cell of a grid |
//! | [`GridReaders`] | the same, by the processes that read the cells |
//! | [`PlacedAxis`], [`split`] | selections in parts, each with its place in the result |
//! | [`RegionSet`] | the union of regions |
#![forbid(unsafe_code)]

mod coverage;
mod curve;
mod error;
mod grid;
mod limits;
mod order;
mod overlap;
mod placement;
mod positions;
mod project;
mod readers;
mod region;
mod selection;
mod shape;
mod split;

pub use coverage::RegionSet;
pub use curve::{hilbert_index, hilbert_point, z_index, z_point};
pub use error::GeometryError;
pub use grid::ChunkGrid;
pub use limits::{
    CURVE_RANK_MAX, PLACED_CELLS_MAX, PLACED_READS_MAX, RANK_MAX, SEQUENCE_CELLS_MAX,
};
pub use order::Order;
pub use placement::{Spread, spread_placement};
pub use positions::{AxisRange, Positions, PositionsIter};
pub use project::{AxisPiece, AxisProjection, PointMove, PointPiece};
pub use readers::{AccessCosts, GridReaders, TargetReaders};
pub use region::Region;
pub use selection::{AxisSelection, Points, Selection, bounds_of};
pub use shape::{delinearize, element_count, linearize, strides};
pub use split::{PlacedAxis, PlacedBox, split, split_by};
