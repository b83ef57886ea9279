//! The optimized chunk size of Smart-IO: one number from three measurements, and its consequences.
//!
//! A chunk is best if its request costs as much as its transfer: `OCS = BW * (CC + T_s)`. Chunks
//! inside the decision window `[OCS / 2, OCS * 2^(n-1)]` stay as they are. Larger ones are divided
//! along every dimension but the slowest (dynamic subchunking). Smaller ones are merged with their
//! neighbours, `2^n` at a time, until they are inside (hierarchical spatial aggregation). The
//! factors of the window are such that neither step overshoots to the other side.

use serde::{Deserialize, Serialize};

use crate::plan::opening::whole_number;

/// Returns the optimized chunk size in bytes. It is the bandwidth of one stream in bytes per
/// second, times the seconds to send a request plus those to seek.
///
/// ```
/// // Lustre with 250 MB/s, 1.9 ms to ask and 8 ms to seek: 2.5 MB.
/// let bytes = bedform::layout::ocs::optimized_chunk_bytes(250e6, 1.9e-3, 8e-3);
/// assert_eq!(bytes.round(), 2_475_000.0);
/// ```
pub fn optimized_chunk_bytes(
    bytes_per_second: f64,
    request_seconds: f64,
    seek_seconds: f64,
) -> f64 {
    bytes_per_second * (request_seconds + seek_seconds)
}

/// The chunk sizes, in bytes, that are stored as they are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DecisionWindow {
    /// Bytes below which chunks are aggregated.
    pub least: f64,
    /// Bytes above which chunks are divided.
    pub most: f64,
}

impl DecisionWindow {
    /// Returns the window around an optimized chunk size for arrays of `rank` dimensions.
    ///
    /// ```
    /// let window = bedform::layout::ocs::DecisionWindow::new(2.5e6, 3);
    /// assert_eq!((window.least, window.most), (1.25e6, 10e6));
    /// ```
    pub fn new(optimized_bytes: f64, rank: usize) -> Self {
        // Beyond a thousand dimensions the upper bound is infinite in any case.
        let dividable = i32::try_from(rank.saturating_sub(1)).unwrap_or(1000).min(1000);
        Self { least: optimized_bytes / 2.0, most: optimized_bytes * 2_f64.powi(dividable) }
    }
}

/// The treatment of the chunk that one process holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Organization {
    /// It is stored as it is.
    Keep,
    /// It is cut into this many pieces along each dimension, the slowest first.
    Divide {
        /// Pieces per dimension.
        pieces: Vec<u64>,
    },
    /// It is merged with its neighbours.
    Aggregate(Aggregation),
}

/// The grouping of neighbouring processes whose chunks become one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregation {
    /// The number of merge levels; each merges two neighbours along each dimension.
    pub levels: u32,
    /// Processes of an aggregated chunk along each dimension.
    pub group: Vec<u64>,
    /// The shape of an aggregated chunk away from the edge of the array.
    pub chunk_shape: Vec<u64>,
}

impl Aggregation {
    /// Returns the process of a group, counted in C order, that gathers variable number `variable`.
    /// The processes take turns, so that the work is shared.
    pub fn aggregator(&self, variable: u64) -> u64 {
        variable % self.group.iter().product::<u64>().max(1)
    }
}

/// Returns the treatment by Smart-IO of `grid_shape` chunks of `chunk_shape`, with items of
/// `item_size` bytes. The slowest dimension comes first.
///
/// ```
/// use bedform::layout::ocs::{Organization, organize};
///
/// let pieces = vec![1, 7, 7]; // the slowest dimension stays whole
/// assert_eq!(organize(&[256; 3], &[16; 3], 8, 2.5e6), Organization::Divide { pieces });
/// assert_eq!(organize(&[64; 3], &[16; 3], 8, 2.5e6), Organization::Keep);
/// ```
pub fn organize(
    chunk_shape: &[u64],
    grid_shape: &[u64],
    item_size: u64,
    optimized_bytes: f64,
) -> Organization {
    let bytes = bytes_of(chunk_shape, item_size);
    let window = DecisionWindow::new(optimized_bytes, chunk_shape.len());
    if bytes > window.most {
        let pieces = subchunks(chunk_shape, item_size, optimized_bytes);
        if pieces.iter().any(|&count| count > 1) {
            return Organization::Divide { pieces };
        }
    } else if bytes < window.least {
        let aggregation = aggregate(chunk_shape, grid_shape, item_size, optimized_bytes);
        if aggregation.levels > 0 {
            return Organization::Aggregate(aggregation);
        }
    }
    Organization::Keep
}

/// Returns the pieces to make along each dimension so that a piece is near `optimized_bytes`
/// (dynamic subchunking). The first, slowest dimension stays whole, except in a one-dimensional
/// chunk. The others are divided alike, as far as they are long enough. Of two counts the one whose
/// pieces are nearer by ratio is used.
pub fn subchunks(chunk_shape: &[u64], item_size: u64, optimized_bytes: f64) -> Vec<u64> {
    let mut pieces = vec![1; chunk_shape.len()];
    let excess = bytes_of(chunk_shape, item_size) / optimized_bytes;
    if !excess.is_finite() || excess <= 1.0 {
        return pieces;
    }
    let mut open: Vec<usize> = (1..chunk_shape.len()).collect();
    if chunk_shape.len() == 1 {
        open.push(0);
    }
    // A dimension that is too short is cut into single elements, and the others share the rest.
    let mut wanted = excess;
    while !open.is_empty() {
        let each = wanted.powf(1.0 / open.len() as f64);
        let (short, long): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&axis| chunk_shape[axis] as f64 <= each);
        if short.is_empty() {
            let count = nearest_by_ratio(each);
            open.iter().for_each(|&axis| pieces[axis] = count.min(chunk_shape[axis].max(1)));
            break;
        }
        for axis in short {
            pieces[axis] = chunk_shape[axis].max(1);
            wanted /= pieces[axis] as f64;
        }
        open = long;
    }
    pieces
}

/// Merges two neighbours along each dimension, level by level (hierarchical spatial aggregation).
/// It ends once a chunk reaches half of `optimized_bytes` or the whole grid is one chunk.
pub fn aggregate(
    chunk_shape: &[u64],
    grid_shape: &[u64],
    item_size: u64,
    optimized_bytes: f64,
) -> Aggregation {
    let mut group = vec![1_u64; chunk_shape.len()];
    let mut levels = 0;
    let merged = |group: &[u64]| -> Vec<u64> {
        chunk_shape.iter().zip(group).map(|(size, by)| size.saturating_mul(*by)).collect()
    };
    let too_small = |group: &[u64]| {
        let bytes = bytes_of(&merged(group), item_size);
        bytes > 0.0 && bytes < optimized_bytes / 2.0
    };
    let can_grow = |group: &[u64]| group.iter().zip(grid_shape).any(|(have, all)| have < all);
    while too_small(&group) && can_grow(&group) {
        levels += 1;
        for (have, &all) in group.iter_mut().zip(grid_shape) {
            *have = have.saturating_mul(2).min(all.max(1));
        }
    }
    Aggregation { levels, chunk_shape: merged(&group), group }
}

fn bytes_of(shape: &[u64], item_size: u64) -> f64 {
    shape.iter().map(|&size| size as f64).product::<f64>() * item_size as f64
}

/// Returns the integer that is nearest to `value` by ratio, at least 1.
fn nearest_by_ratio(value: f64) -> u64 {
    let below = value.floor().max(1.0);
    let above = below + 1.0;
    whole_number(if value / below <= above / value { below } else { above })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OCS: f64 = 2.475e6;

    #[test]
    fn the_variables_of_the_paper_are_organized_as_in_its_table() {
        let organization = |side: u64| organize(&[side; 3], &[16; 3], 8, OCS);
        // 128 MB: 7-7-1 subchunks.
        assert_eq!(organization(256), Organization::Divide { pieces: vec![1, 7, 7] });
        // 16 MB: over the window of [1.25, 10] MB.
        assert!(matches!(organization(128), Organization::Divide { .. }));
        // 2 MB: inside.
        assert_eq!(organization(64), Organization::Keep);
        // 256 KB: one level, to 2 MB.
        let aggregated = Aggregation { levels: 1, group: vec![2; 3], chunk_shape: vec![64; 3] };
        assert_eq!(organization(32), Organization::Aggregate(aggregated));
    }

    #[test]
    fn another_threshold_gives_the_levels_that_the_paper_tried() {
        // A threshold of 4 MB leads to two levels and 16 MB, one of 256 KB to none.
        let levels = |threshold: f64| aggregate(&[32; 3], &[16; 3], 8, 2.0 * threshold);
        assert_eq!(levels(4e6).levels, 2);
        assert_eq!(levels(4e6).chunk_shape, [128; 3]);
        assert_eq!(levels(256.0 * 1024.0).levels, 0);
    }

    #[test]
    fn aggregators_take_turns_within_a_group() {
        let aggregation = aggregate(&[32; 2], &[4; 2], 1, 4e3);
        assert_eq!(aggregation.group, [2, 2]);
        let turns: Vec<_> = (0..6).map(|variable| aggregation.aggregator(variable)).collect();
        assert_eq!(turns, [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn a_short_dimension_leaves_its_share_of_the_cuts_to_the_others() {
        assert_eq!(subchunks(&[10, 2, 1000], 8, 8.0 * 200.0), [1, 2, 50]);
        assert_eq!(subchunks(&[1000], 8, 800.0), [10]);
        assert_eq!(subchunks(&[1000, 1], 8, 800.0), [1, 1]);
    }

    #[test]
    fn aggregation_ends_at_the_edge_of_the_grid() {
        let aggregation = aggregate(&[2, 2], &[3, 1], 1, 1e9);
        assert_eq!((aggregation.levels, aggregation.group), (2, vec![3, 1]));
        assert_eq!(aggregate(&[], &[], 8, 1e9).levels, 0);
        assert_eq!(aggregate(&[0, 5], &[4, 4], 8, 1e9).levels, 0);
    }

    proptest! {
        #[test]
        fn what_is_divided_or_merged_is_never_beyond_the_other_side_of_the_window(
            chunk in prop::collection::vec(1_u64..2000, 1..5),
            item_size in 1_u64..17,
            optimized in 1e3_f64..1e8,
            side in 1_u64..1 << 28,
        ) {
            let window = DecisionWindow::new(optimized, chunk.len());
            let grid = vec![side; chunk.len()];
            match organize(&chunk, &grid, item_size, optimized) {
                Organization::Keep => {}
                Organization::Divide { pieces } => {
                    let size = |(&size, &by): (&u64, &u64)| size.div_ceil(by);
                    let piece: Vec<_> = chunk.iter().zip(&pieces).map(size).collect();
                    prop_assert!(bytes_of(&piece, item_size) >= window.least * 0.99);
                    prop_assert!(chunk.len() == 1 || pieces[0] == 1);
                }
                Organization::Aggregate(aggregation) => {
                    let bytes = bytes_of(&aggregation.chunk_shape, item_size);
                    // A grid that is one chunk at the end has no more to merge.
                    let all_merged = aggregation.group == grid;
                    prop_assert!(bytes >= window.least || all_merged);
                    prop_assert!(bytes <= window.most);
                }
            }
        }
    }
}
