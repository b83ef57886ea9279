//! The predicted cost of a read of boxes (dissertation of Tang, section 4.2.2, "Performance
//! Model", equation 4.1).
//!
//! `T = T_contiguous + max over targets (small * C_s + medium * C_m + large * C_l)`. The counts are
//! of the steps between pieces that do not touch, on each target, by their distance: up to one
//! bulk request, up to ten, and more.
//!
//! The dissertation does not say in which space distances are measured. Here it is the object of
//! the target: stripes of the same target follow each other without a gap. Its `T_contiguous` is
//! the time of a contiguous read of as many bytes; here it is proportional to the bytes.

use super::pack::{PackedBoxes, cells_of, check_permutation};
use crate::boxes::BoxList;
use crate::error::GeometryError;
use crate::limits::TARGETS_MAX;

/// The distance in bulk requests up to which a step is medium.
const MEDIUM_BULKS: u64 = 10;

/// The placement of the bytes of a file on targets: stripes, round-robin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripedTargets {
    targets: u32,
    stripe_bytes: u64,
}

impl StripedTargets {
    /// One device with all bytes.
    pub const ONE_DEVICE: Self = Self { targets: 1, stripe_bytes: u64::MAX };

    /// Places stripes of `stripe_bytes` bytes on `targets` targets in turn.
    ///
    /// ```
    /// use bedform_geometry::StripedTargets;
    /// assert!(StripedTargets::new(8, 1 << 20).is_ok());
    /// assert!(StripedTargets::new(0, 1 << 20).is_err());
    /// ```
    ///
    /// # Errors
    /// [`GeometryError::StripingInvalid`] for no targets, more than
    /// [`TARGETS_MAX`](crate::TARGETS_MAX), or stripes without bytes.
    pub fn new(targets: u32, stripe_bytes: u64) -> Result<Self, GeometryError> {
        if targets == 0 || targets > TARGETS_MAX || stripe_bytes == 0 {
            return Err(GeometryError::StripingInvalid { targets, stripe_bytes });
        }
        Ok(Self { targets, stripe_bytes })
    }

    /// Returns the bytes that a target has of the first `end` bytes of the file.
    fn bytes_before(self, end: u64, target: u64) -> u64 {
        let stripe = u128::from(self.stripe_bytes);
        let round = stripe * u128::from(self.targets);
        let (full, rest) = (u128::from(end) / round, u128::from(end) % round);
        let of_rest = rest.saturating_sub(u128::from(target) * stripe).min(stripe);
        // Not more than `end`.
        u64::try_from(full * stripe + of_rest).unwrap_or(u64::MAX)
    }

    /// Returns the targets with a byte of a range that is not empty.
    fn targets_of(self, start: u64, end: u64) -> impl Iterator<Item = u64> {
        let (first, last) = (start / self.stripe_bytes, (end - 1) / self.stripe_bytes);
        let targets = u64::from(self.targets);
        let touched = (last - first).saturating_add(1).min(targets);
        (0..touched).map(move |at| (first % targets + at) % targets)
    }
}

/// The bytes that a read takes from one target, and its steps between pieces that do not touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetSteps {
    /// The bytes of the pieces.
    pub bytes: u64,
    /// The number of steps over at most one bulk request.
    pub small: u64,
    /// The number of steps over more than one and at most ten bulk requests.
    pub medium: u64,
    /// The number of steps over more than ten bulk requests.
    pub large: u64,
}

/// The costs of a read: its bytes, and its steps by their distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCosts {
    /// The bytes of a bulk request of the storage; 1 MiB for Lustre.
    pub bulk_bytes: u64,
    /// The seconds for each byte of a contiguous read from all targets together. With 0, only steps
    /// count, as where the dissertation compares orders.
    pub byte_seconds: f64,
    /// The seconds of a step over at most one bulk request.
    pub small_seconds: f64,
    /// The seconds of a step over more than one and at most ten bulk requests.
    pub medium_seconds: f64,
    /// The seconds of a step over more than ten bulk requests.
    pub large_seconds: f64,
}

impl StepCosts {
    /// Returns the predicted seconds of a read with the given steps on each target.
    ///
    /// ```
    /// use bedform_geometry::{StepCosts, TargetSteps};
    /// let costs = StepCosts {
    ///     bulk_bytes: 1 << 20,
    ///     byte_seconds: 0.5,
    ///     small_seconds: 1.0,
    ///     medium_seconds: 2.0,
    ///     large_seconds: 4.0,
    /// };
    /// let one = TargetSteps { bytes: 4, small: 3, ..TargetSteps::default() };
    /// let other = TargetSteps { bytes: 2, large: 1, ..TargetSteps::default() };
    /// assert_eq!(costs.seconds(&[one, other]), 3.0 + 4.0);
    /// ```
    pub fn seconds(&self, targets: &[TargetSteps]) -> f64 {
        let bytes: f64 = targets.iter().map(|target| target.bytes as f64).sum();
        let steps = targets.iter().map(|target| {
            target.small as f64 * self.small_seconds
                + target.medium as f64 * self.medium_seconds
                + target.large as f64 * self.large_seconds
        });
        bytes * self.byte_seconds + steps.fold(0.0, f64::max)
    }

    /// Checks that the seconds are finite and not negative.
    ///
    /// # Errors
    /// [`GeometryError::CostsInvalid`].
    pub(super) fn check(&self) -> Result<(), GeometryError> {
        let Self { bulk_bytes: _, byte_seconds, small_seconds, medium_seconds, large_seconds } =
            *self;
        let is_valid = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if [byte_seconds, small_seconds, medium_seconds, large_seconds].into_iter().all(is_valid) {
            Ok(())
        } else {
            Err(GeometryError::CostsInvalid)
        }
    }
}

/// The byte ranges of boxes in a file.
///
/// ```
/// use bedform_geometry::{BoxExtents, BoxList, StripedTargets, TargetSteps};
/// let mut boxes = BoxList::new(1)?;
/// for start in [0, 8, 16, 24] {
///     boxes.push(&[start], &[start + 8])?;
/// }
/// let extents = BoxExtents::in_order(&boxes, &[0, 1, 2, 3], 4)?;
/// let steps = extents.steps(&[3, 0, 1], StripedTargets::ONE_DEVICE, 32)?;
/// assert_eq!(steps, [TargetSteps { bytes: 96, small: 1, ..TargetSteps::default() }]);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxExtents {
    /// For each box its first byte and the byte after its last one.
    ranges: Vec<(u64, u64)>,
}

impl BoxExtents {
    /// Places boxes one after the other in an order, which lists the number of each box once. A
    /// cell takes `cell_bytes` bytes.
    ///
    /// # Errors
    /// [`GeometryError::NotAPermutation`]; [`GeometryError::PackingTooLong`] if 64 bits cannot hold
    /// the positions.
    pub fn in_order(
        boxes: &BoxList,
        order: &[u32],
        cell_bytes: u64,
    ) -> Result<Self, GeometryError> {
        check_permutation(boxes, order)?;
        let mut ranges = vec![(0, 0); boxes.len()];
        let mut end = 0_u64;
        for &number in order {
            let bytes = cells_of(boxes, number)?.checked_mul(cell_bytes);
            let start = end;
            end = bytes
                .and_then(|bytes| start.checked_add(bytes))
                .ok_or(GeometryError::PackingTooLong)?;
            ranges[number as usize] = (start, end);
        }
        Ok(Self { ranges })
    }

    /// Returns the byte ranges of packed boxes. A cell takes `cell_bytes` bytes.
    ///
    /// ```
    /// use bedform_geometry::{BoxExtents, BoxList, PackedBoxes};
    /// let mut boxes = BoxList::new(1)?;
    /// boxes.push(&[0], &[8])?;
    /// let packed = PackedBoxes::new(&boxes, &[0], 10)?;
    /// let extents = BoxExtents::packed(&boxes, &packed, 4)?;
    /// assert_eq!(extents, BoxExtents::in_order(&boxes, &[0], 4)?);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// [`GeometryError::NotAPermutation`] if the packing is of another number of boxes;
    /// [`GeometryError::PackingTooLong`] if 64 bits cannot hold the positions.
    pub fn packed(
        boxes: &BoxList,
        packed: &PackedBoxes,
        cell_bytes: u64,
    ) -> Result<Self, GeometryError> {
        if packed.offsets.len() != boxes.len() {
            return Err(GeometryError::NotAPermutation { boxes: boxes.len() });
        }
        let range = |(cells, &offset): (u64, &u64)| {
            let end = offset.checked_add(cells).and_then(|end| end.checked_mul(cell_bytes));
            end.map(|end| (offset * cell_bytes, end)).ok_or(GeometryError::PackingTooLong)
        };
        let cells = boxes.iter().map(|cells| cells.cells());
        let ranges = cells.zip(&packed.offsets).map(range).collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }

    /// Counts the bytes and steps of a read of the wanted boxes on each target. The boxes may be
    /// listed in any order; boxes listed twice are read once. Boxes that follow each other in the
    /// file are one piece.
    ///
    /// # Errors
    /// [`GeometryError::BoxOutOfBounds`].
    pub fn steps(
        &self,
        wanted: &[u32],
        targets: StripedTargets,
        bulk_bytes: u64,
    ) -> Result<Vec<TargetSteps>, GeometryError> {
        let mut pieces = Vec::with_capacity(wanted.len());
        for &number in wanted {
            let range = self.ranges.get(number as usize).copied();
            let boxes = self.ranges.len();
            pieces.push(range.ok_or(GeometryError::BoxOutOfBounds { number, boxes })?);
        }
        pieces.sort_unstable();
        pieces.dedup();
        let mut steps = vec![TargetSteps::default(); targets.targets as usize];
        // For each target the end of its last piece.
        let mut ends: Vec<Option<u64>> = vec![None; steps.len()];
        for run in pieces.chunk_by(|before, after| before.1 == after.0) {
            let (Some(&(start, _)), Some(&(_, end))) = (run.first(), run.last()) else { continue };
            if start == end {
                continue;
            }
            for target in targets.targets_of(start, end) {
                let own = [start, end].map(|at| targets.bytes_before(at, target));
                // A target is numbered by 32 bits.
                let at = usize::try_from(target).unwrap_or(usize::MAX);
                if let (Some(steps), Some(last)) = (steps.get_mut(at), ends.get_mut(at)) {
                    // Ranges given by hand may overlap.
                    steps.bytes = steps.bytes.saturating_add(own[1] - own[0]);
                    if let Some(last) = *last {
                        steps.count(own[0].saturating_sub(last), bulk_bytes);
                    }
                    *last = Some(own[1]);
                }
            }
        }
        Ok(steps)
    }
}

impl TargetSteps {
    /// Counts a step over a number of bytes; one over no bytes is none.
    fn count(&mut self, distance: u64, bulk_bytes: u64) {
        let class = match distance {
            0 => return,
            small if small <= bulk_bytes => &mut self.small,
            medium if medium <= bulk_bytes.saturating_mul(MEDIUM_BULKS) => &mut self.medium,
            _ => &mut self.large,
        };
        *class += 1;
    }
}
