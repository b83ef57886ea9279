//! The choice of an order by sampled reads (dissertation of Tang, section 4.2.2, "Target Layout
//! Decision Making").
//!
//! Each sample is a region around the centre of a random box, along each axis of a random length
//! from five lengths of the box to half of the domain. The domain is the smallest box that holds
//! all boxes. The cheaper of the two curves is taken unless clusters cost over 10 % less, and the
//! order of the list stays unless the other costs less.
//!
//! Departures: samples are as many as boxes only up to [`ChoiceOptions::samples_max`], and they end
//! early when they have touched [`TOUCHED_BOXES_MAX`] boxes; a sum over both would grow with the
//! square of the number of boxes. The dissertation prefers the curve that is faster to compute; the
//! two differ little here, so their predicted costs decide.

use super::cost::{BoxExtents, StepCosts, StripedTargets};
use super::pack::PackedBoxes;
use crate::box_index::BoxIndex;
use crate::box_order::BoxOrder;
use crate::boxes::BoxList;
use crate::error::GeometryError;

/// The number of boxes that all samples may touch before they end.
const TOUCHED_BOXES_MAX: usize = 1 << 22;

/// The share of the costs of a curve that clusters may have at most.
const CLUSTER_COST_SHARE: f64 = 0.9;

/// The lengths of its box that a sampled region has at least.
const BOX_LENGTHS_MIN: u128 = 5;

/// The boxes that sampled regions touch.
///
/// The same boxes and seed give the same samples.
///
/// ```
/// use bedform_geometry::{BoxList, RegionSampler};
/// let mut boxes = BoxList::new(1)?;
/// for start in 0..100 {
///     boxes.push(&[start], &[start + 1])?;
/// }
/// let sampler = RegionSampler::new(&boxes, 7, 10)?;
/// assert_eq!(sampler.samples().len(), 10);
/// assert!(sampler.samples().all(|touched| (5..=51).contains(&touched.len()) || touched.len() < 5));
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSampler {
    /// The boxes that each sample touches, in ascending order.
    touched: Vec<Vec<u32>>,
}

impl RegionSampler {
    /// Draws as many samples as there are boxes, at most `samples_max`.
    ///
    /// # Errors
    /// [`GeometryError::TooManyBoxes`] for more than [`BOXES_MAX`](crate::BOXES_MAX) boxes.
    pub fn new(boxes: &BoxList, seed: u64, samples_max: usize) -> Result<Self, GeometryError> {
        let index = BoxIndex::new(boxes)?;
        let domain = domain_lengths(boxes);
        let mut random = RegionDraws(seed);
        let (mut touched, mut total) = (Vec::new(), 0_usize);
        while touched.len() < boxes.len().min(samples_max) && total < TOUCHED_BOXES_MAX {
            let (start, stop) = sample(boxes, &domain, &mut random);
            let found = index.touching(&start, &stop)?;
            total += found.len();
            touched.push(found);
        }
        Ok(Self { touched })
    }

    /// Visits the numbers of the boxes that each sample touches, in ascending order.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        self.touched.iter().map(Vec::as_slice)
    }

    /// Returns the predicted seconds of the reads of all samples, one after the other.
    ///
    /// ```
    /// use bedform_geometry::{BoxExtents, BoxList, RegionSampler, StepCosts, StripedTargets};
    /// let mut boxes = BoxList::new(1)?;
    /// boxes.push(&[0], &[64])?;
    /// let extents = BoxExtents::in_order(&boxes, &[0], 8)?;
    /// let costs = StepCosts {
    ///     bulk_bytes: 1 << 20,
    ///     byte_seconds: 0.5,
    ///     small_seconds: 1.0,
    ///     medium_seconds: 2.0,
    ///     large_seconds: 4.0,
    /// };
    /// let sampler = RegionSampler::new(&boxes, 0, 100)?;
    /// assert_eq!(sampler.seconds(&extents, StripedTargets::ONE_DEVICE, &costs)?, 256.0);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// [`GeometryError::BoxOutOfBounds`] if the extents are of fewer boxes;
    /// [`GeometryError::CostsInvalid`].
    pub fn seconds(
        &self,
        extents: &BoxExtents,
        targets: StripedTargets,
        costs: &StepCosts,
    ) -> Result<f64, GeometryError> {
        costs.check()?;
        let mut total = 0.0;
        for touched in &self.touched {
            total += costs.seconds(&extents.steps(touched, targets, costs.bulk_bytes)?);
        }
        Ok(total)
    }
}

/// The settings of [`OrderChoice::new`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChoiceOptions {
    /// The bytes of a cell; at least 1 is assumed.
    pub cell_bytes: u64,
    /// The cells of the chunks into which boxes are packed; `None` if they follow each other
    /// without holes.
    pub chunk_cells: Option<u64>,
    /// The placement of the bytes on targets.
    pub targets: StripedTargets,
    /// The costs of a read.
    pub costs: StepCosts,
    /// The seed of the samples.
    pub seed: u64,
    /// The largest number of samples; 1,024 take about a second for each order of a million boxes.
    pub samples_max: usize,
}

/// The order that sampled reads choose.
///
/// ```
/// use bedform_geometry::{BoxList, BoxOrder, ChoiceOptions, OrderChoice, StepCosts, StripedTargets};
/// let mut boxes = BoxList::new(2)?;
/// for place in 0..1024 {
///     let start = [place % 32, place / 32 * 11 % 32].map(|at| at * 16);
///     boxes.push(&start, &start.map(|start| start + 16))?;
/// }
/// let options = ChoiceOptions {
///     cell_bytes: 8,
///     chunk_cells: None,
///     targets: StripedTargets::ONE_DEVICE,
///     costs: StepCosts {
///         bulk_bytes: 1 << 16,
///         byte_seconds: 0.0,
///         small_seconds: 1e-3,
///         medium_seconds: 2e-3,
///         large_seconds: 4e-3,
///     },
///     seed: 0,
///     samples_max: 64,
/// };
/// let choice = OrderChoice::new(&boxes, &options)?;
/// assert_ne!(choice.order, BoxOrder::Given);
/// assert_eq!(choice.permutation, choice.order.permutation(&boxes)?);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OrderChoice {
    /// The order.
    pub order: BoxOrder,
    /// The numbers of the boxes in this order.
    pub permutation: Vec<u32>,
    /// The orders that were compared, each with the predicted seconds of all samples.
    pub candidates: Vec<(BoxOrder, f64)>,
}

impl OrderChoice {
    /// Compares the order of the list, both curves and clusters by the predicted seconds of sampled
    /// reads. A cluster is full with the cells of a bulk request.
    ///
    /// # Errors
    /// [`GeometryError::CostsInvalid`], and the errors of [`BoxOrder::permutation`],
    /// [`PackedBoxes::new`] and [`BoxExtents::in_order`].
    pub fn new(boxes: &BoxList, options: &ChoiceOptions) -> Result<Self, GeometryError> {
        let ChoiceOptions { cell_bytes, chunk_cells, targets, costs, seed, samples_max } = *options;
        let cell_bytes = cell_bytes.max(1);
        let sampler = RegionSampler::new(boxes, seed, samples_max)?;
        let clusters = BoxOrder::Clusters { bulk_cells: costs.bulk_bytes / cell_bytes };
        let orders = [BoxOrder::Given, BoxOrder::Hilbert, BoxOrder::Z, clusters];
        let mut judged = Vec::with_capacity(orders.len());
        for order in orders {
            let permutation = order.permutation(boxes)?;
            let extents = match chunk_cells {
                None => BoxExtents::in_order(boxes, &permutation, cell_bytes)?,
                Some(chunk_cells) => {
                    let packed = PackedBoxes::new(boxes, &permutation, chunk_cells)?;
                    BoxExtents::packed(boxes, &packed, cell_bytes)?
                }
            };
            judged.push((order, sampler.seconds(&extents, targets, &costs)?, permutation));
        }
        let candidates: Vec<_> =
            judged.iter().map(|&(order, seconds, _)| (order, seconds)).collect();
        let order = cheapest(&candidates);
        let chosen = judged.into_iter().find(|(candidate, _, _)| *candidate == order);
        let permutation = chosen.map(|(_, _, permutation)| permutation).unwrap_or_default();
        Ok(Self { order, permutation, candidates })
    }
}

/// Returns the order that the seconds of all orders choose: those of the given one, the curves, and
/// clusters.
fn cheapest(candidates: &[(BoxOrder, f64)]) -> BoxOrder {
    let mut given = f64::INFINITY;
    let mut best = (BoxOrder::Given, f64::INFINITY);
    for &(order, seconds) in candidates {
        match order {
            BoxOrder::Given => given = seconds,
            BoxOrder::Z | BoxOrder::Hilbert if seconds < best.1 => best = (order, seconds),
            BoxOrder::Clusters { .. } if seconds < CLUSTER_COST_SHARE * best.1 => {
                best = (order, seconds);
            }
            _ => {}
        }
    }
    if best.1 < given { best.0 } else { BoxOrder::Given }
}

/// Returns the lengths of the smallest box that holds all boxes.
fn domain_lengths(boxes: &BoxList) -> Vec<u64> {
    let mut domain = vec![(i64::MAX, i64::MIN); boxes.rank()];
    for cells in boxes.iter() {
        for (domain, (&start, &stop)) in domain.iter_mut().zip(cells.start.iter().zip(cells.stop)) {
            *domain = (domain.0.min(start), domain.1.max(stop));
        }
    }
    domain.into_iter().map(|(start, stop)| stop.abs_diff(start)).collect()
}

/// Draws a region around a random box of a list that is not empty. It is cut off at the ends of
/// index space.
fn sample(boxes: &BoxList, domain: &[u64], random: &mut RegionDraws) -> (Vec<i64>, Vec<i64>) {
    let number = random.up_to(boxes.len() as u128 - 1);
    let (mut region_start, mut region_stop) = (Vec::new(), Vec::new());
    let Some(cells) = usize::try_from(number).ok().and_then(|number| boxes.get(number)) else {
        return (region_start, region_stop);
    };
    for ((&start, &stop), &domain) in cells.start.iter().zip(cells.stop).zip(domain) {
        let most = u128::from(domain.div_ceil(2));
        let least = (u128::from(stop.abs_diff(start)) * BOX_LENGTHS_MIN).min(most);
        let length = i128::try_from(least + random.up_to(most - least)).unwrap_or(i128::MAX);
        let from = (i128::from(start) + i128::from(stop) - length).div_euclid(2);
        let limited =
            |at: i128| i64::try_from(at).unwrap_or(if at < 0 { i64::MIN } else { i64::MAX });
        region_start.push(limited(from));
        region_stop.push(limited(from + length));
    }
    (region_start, region_stop)
}

/// A sequence of numbers that looks random and depends on the seed alone (SplitMix64; Steele, Lea
/// and Flood, "Fast splittable pseudorandom number generators", 2014).
struct RegionDraws(u64);

impl RegionDraws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to `most`, which fits into 64 bits, both included.
    fn up_to(&mut self, most: u128) -> u128 {
        (u128::from(self.next()) * (most + 1)) >> 64
    }
}
