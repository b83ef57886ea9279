//! Index space without data: regions, selections, chunk grids and curves.
//!
//! Pure: no I/O, no clock, no `unsafe`. Shapes and coordinates come from files and users. So no
//! number, however large, makes a function panic, wrap, or allocate more memory than the result
//! needs; functions that require validated values say so.
//!
//! | item | content |
//! |---|---|
//! | [`linearize`] and others | shapes, C order |
//! | [`Region`] | a half-open box |
//! | [`BoxList`], [`CellBox`] | boxes of cells, as levels of refined meshes have them |
//! | [`BoxIndex`], [`overlapping_pair`] | boxes by place: those in a region, and overlapping ones |
//! | [`BoxOrder`] | the order of boxes on storage: given, along a curve, or by clusters |
//! | [`CutBoxes`], [`PackedBoxes`] | boxes cut into smaller ones, and placed in a row of chunks |
//! | [`BoxExtents`], [`StepCosts`] | the predicted cost of a read of boxes |
//! | [`OrderChoice`], [`RegionSampler`] | the order that makes sampled reads cheapest |
//! | [`AxisRange`], [`Positions`] | positions along one axis |
//! | [`Selection`] | the elements that a read or write asks for |
//! | [`ChunkGrid`] | the chunks of an array, and the parts of them that a selection touches |
//! | [`Order`], [`hilbert_index`] and others | orders of the cells of a grid |
//! | [`spread_placement`], [`Spread`] | the storage target of each cell of a grid |
//! | [`GridReaders`] | the storage target of each cell, chosen by the processes that read it |
//! | [`PlacedAxis`], [`split`] | selections in parts, each with its position in the result |
//! | [`RegionSet`] | the union of regions |
#![forbid(unsafe_code)]

mod box_index;
mod box_layout;
mod box_order;
mod box_tiles;
mod boxes;
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

pub use box_index::{BoxIndex, overlapping_pair};
pub use box_layout::{
    BoxExtents, ChoiceOptions, CutBoxes, OrderChoice, PackedBoxes, RegionSampler, StepCosts,
    StripedTargets, TargetSteps,
};
pub use box_order::BoxOrder;
pub use boxes::{BoxList, CellBox};
pub use coverage::RegionSet;
pub use curve::{hilbert_index, hilbert_point, z_index, z_point};
pub use error::GeometryError;
pub use grid::ChunkGrid;
pub use limits::{
    BOXES_MAX, CURVE_RANK_MAX, PLACED_CELLS_MAX, PLACED_READS_MAX, RANK_MAX, SEQUENCE_CELLS_MAX,
    TARGETS_MAX,
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
