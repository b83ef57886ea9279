//! Orders of the boxes of one level of a refined mesh.
//!
//! Boxes that lie together in space should lie together on storage, so that the read of a region
//! needs few and long runs of bytes. The orders are those of chapter 4 of H. Tang's dissertation,
//! section 4.2.2: along a curve through a virtual grid (`virtual_grid`), and by clusters
//! (`clusters`, `spanning_tree`, `spiral`). Each of these modules says where it departs from the
//! dissertation.
//!
//! An order depends on the list of boxes alone: not on threads, on time, or on random numbers.

mod clusters;
mod extent_tree;
mod spanning_tree;
mod spiral;
mod virtual_grid;

use crate::box_tiles::ListedBounds;
use crate::boxes::BoxList;
use crate::curve::CurveKind;
use crate::error::GeometryError;

/// The order of the boxes of a list on storage.
///
/// ```
/// use bedform_geometry::{BoxList, BoxOrder};
/// let mut boxes = BoxList::new(2)?;
/// for start in [[8, 8], [0, 0], [8, 0], [0, 8]] {
///     boxes.push(&start, &start.map(|start| start + 8))?;
/// }
/// assert_eq!(BoxOrder::Given.permutation(&boxes)?, [0, 1, 2, 3]);
/// assert_eq!(BoxOrder::Z.permutation(&boxes)?, [1, 3, 2, 0]);
/// assert_eq!(BoxOrder::Hilbert.permutation(&boxes)?, [1, 2, 0, 3]);
/// let clusters = BoxOrder::Clusters { bulk_cells: 128 };
/// assert_eq!(clusters.permutation(&boxes)?.len(), 4);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BoxOrder {
    /// The order of the list.
    #[default]
    Given,
    /// Along the Z curve through a virtual grid.
    Z,
    /// Along the Hilbert curve through a virtual grid.
    Hilbert,
    /// By clusters of near boxes.
    Clusters {
        /// The number of cells at which a cluster is full: the bytes of a bulk request of the
        /// storage (1 MiB for Lustre), divided by the bytes of a cell.
        bulk_cells: u64,
    },
}

impl BoxOrder {
    /// Returns the order's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Z => "z",
            Self::Hilbert => "hilbert",
            Self::Clusters { .. } => "clusters",
        }
    }

    /// Returns the numbers of the boxes of a list in this order.
    ///
    /// A million boxes take under a second along a curve, and about 10 s by clusters.
    ///
    /// # Errors
    /// [`GeometryError::TooManyBoxes`] for more than [`BOXES_MAX`](crate::BOXES_MAX) boxes. For the
    /// curves, [`GeometryError::CurveRankTooLarge`] if the virtual grid has more than
    /// [`CURVE_RANK_MAX`](crate::CURVE_RANK_MAX) axes longer than one.
    pub fn permutation(self, boxes: &BoxList) -> Result<Vec<u32>, GeometryError> {
        let listed = ListedBounds::of(boxes)?;
        match self {
            Self::Given => Ok(listed.numbers().collect()),
            Self::Z => virtual_grid::curve_order(CurveKind::Z, listed),
            Self::Hilbert => virtual_grid::curve_order(CurveKind::Hilbert, listed),
            Self::Clusters { bulk_cells } => Ok(clusters::cluster_order(listed, bulk_cells)),
        }
    }
}
