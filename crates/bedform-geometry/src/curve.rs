//! Z and Hilbert curves through boxes whose sides are powers of two, possibly different ones.
//!
//! A curve visits the cells of every block into which it descends without a gap. A Hilbert curve
//! moves to a neighbouring cell at every step.
//!
//! A box has `bits[axis]` bits per axis. The key of a cell is built from the highest bit down.
//! Level `l` takes bit `l` of the axes that have it. So a box of 1024 x 4 x 4 is a chain of 256
//! cubes of 4 x 4 x 4 and not a thin slice of a cube of 1024. The Z curve takes the bits unchanged,
//! axis 0 highest. The Hilbert curve rotates and mirrors them by a state: the corner at which it
//! enters the block, and the axis along which it exits (C. Hamilton, "Compact Hilbert indices",
//! 2006). Axes join from the longest to the shortest and keep their position in the state. The exit
//! always lies along an axis that has joined, so the curve stays unbroken where axes join.

use crate::error::{GeometryError, check_ranks_equal};
use crate::limits::CURVE_RANK_MAX;

/// Number of bits of a key.
const KEY_BITS: u32 = u128::BITS;

/// The kind of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurveKind {
    Z,
    Hilbert,
}

/// The state of a Hilbert curve in a block: the corner of entry, one bit per axis that has joined,
/// and the axis of the exit. The exit is the entry with that bit flipped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CurveState {
    entry: u32,
    direction: u32,
}

/// A curve through a box with given bits per axis.
#[derive(Debug)]
pub(crate) struct Curve {
    kind: CurveKind,
    /// For each level, the axes that have a bit there; the lowest bit of a step is first.
    levels: Vec<Vec<usize>>,
}

impl Curve {
    /// Makes the curve through a box with `bits[axis]` bits on each axis.
    pub(crate) fn new(kind: CurveKind, bits: &[u32]) -> Result<Self, GeometryError> {
        let rank = bits.iter().filter(|&&bits| bits > 0).count();
        if rank > CURVE_RANK_MAX {
            return Err(GeometryError::CurveRankTooLarge { rank });
        }
        let total = bits.iter().fold(0_u32, |total, &bits| total.saturating_add(bits));
        if total > KEY_BITS || bits.iter().any(|&bits| bits > u64::BITS) {
            return Err(GeometryError::CurveTooFine { bits: bits.to_vec() });
        }
        // The last axis is first and so the fastest, as in C order.
        let mut axes: Vec<usize> = (0..bits.len()).rev().collect();
        if kind == CurveKind::Hilbert {
            axes.sort_by_key(|&axis| std::cmp::Reverse(bits[axis]));
        }
        let level_count = bits.iter().copied().max().unwrap_or(0);
        let joined = |level| axes.iter().copied().filter(|&axis| bits[axis] > level).collect();
        Ok(Self { kind, levels: (0..level_count).map(joined).collect() })
    }

    /// Returns for each level, from the lowest, the axes that have a bit there.
    pub(crate) fn levels(&self) -> &[Vec<usize>] {
        &self.levels
    }

    /// Returns the key of a cell in the box.
    pub(crate) fn index(&self, point: &[u64]) -> u128 {
        let mut state = CurveState::default();
        let mut key = 0;
        for (level, axes) in self.levels.iter().enumerate().rev() {
            let corner = axes.iter().rev().fold(0_u32, |corner, &axis| {
                corner << 1 | u32::from(point[axis] >> level & 1 == 1)
            });
            let (step, next) = self.step_of(axes.len(), state, corner);
            key = key << axes.len() | u128::from(step);
            state = next;
        }
        key
    }

    /// Returns the cell of a key in the box.
    fn point(&self, key: u128, rank: usize) -> Vec<u64> {
        let mut state = CurveState::default();
        let mut point = vec![0_u64; rank];
        let mut bits_left: usize = self.levels.iter().map(Vec::len).sum();
        for (level, axes) in self.levels.iter().enumerate().rev() {
            bits_left -= axes.len();
            let step = (0..axes.len()).fold(0_u32, |step, bit| {
                step | u32::from(key >> (bits_left + bit) & 1 == 1) << bit
            });
            let (corner, next) = self.corner_of(axes.len(), state, step);
            for (bit, &axis) in axes.iter().enumerate() {
                point[axis] |= u64::from(corner >> bit & 1) << level;
            }
            state = next;
        }
        point
    }

    /// Returns the corner of a block that the curve visits at `step`, and the state of the
    /// sub-block there.
    pub(crate) fn corner_of(&self, axes: usize, state: CurveState, step: u32) -> (u32, CurveState) {
        match self.kind {
            CurveKind::Z => (step, state),
            CurveKind::Hilbert => {
                let corner = rotate_left(gray(step), state.direction + 1, axes) ^ state.entry;
                (corner, state.after(axes, step))
            }
        }
    }

    /// Returns the step at which the curve visits a corner; reverses [`Curve::corner_of`].
    fn step_of(&self, axes: usize, state: CurveState, corner: u32) -> (u32, CurveState) {
        match self.kind {
            CurveKind::Z => (corner, state),
            CurveKind::Hilbert => {
                let turned = corner ^ state.entry;
                let step = gray_inverse(rotate_right(turned, state.direction + 1, axes));
                (step, state.after(axes, step))
            }
        }
    }
}

impl CurveState {
    /// Returns the state of the sub-block that a Hilbert curve visits at `step` of a block in this
    /// state.
    fn after(self, axes: usize, step: u32) -> Self {
        let entry = if step == 0 { 0 } else { gray((step - 1) & !1) };
        let turn = match step {
            0 => 0,
            odd if odd & 1 == 1 => odd.trailing_ones(),
            even => (even - 1).trailing_ones(),
        };
        Self {
            entry: self.entry ^ rotate_left(entry, self.direction + 1, axes),
            direction: (self.direction + turn + 1) % modulus(axes),
        }
    }
}

/// Returns the key of a cell on the Z curve through a box of `bits[axis]` bits per axis. The key
/// interleaves the bits of the coordinates, from the highest down, axis 0 first; at each level,
/// axes without a bit there are left out.
///
/// ```
/// assert_eq!(bedform_geometry::z_index(&[0b11, 0b01], &[2, 2])?, 0b10_11);
/// assert_eq!(bedform_geometry::z_index(&[0b101, 0b0], &[3, 1])?, 0b1_0_10);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
///
/// # Errors
/// [`GeometryError::CurveRankTooLarge`], [`GeometryError::CurveTooFine`] for more than 64 bits on
/// an axis or 128 in all, [`GeometryError::RankMismatch`], or [`GeometryError::IndexOutOfBounds`].
pub fn z_index(point: &[u64], bits: &[u32]) -> Result<u128, GeometryError> {
    checked_index(CurveKind::Z, point, bits)
}

/// Returns the cell of a key on the Z curve; reverses [`z_index`].
///
/// # Errors
/// [`GeometryError::CurveRankTooLarge`], [`GeometryError::CurveTooFine`], or
/// [`GeometryError::KeyOutOfBounds`].
pub fn z_point(key: u128, bits: &[u32]) -> Result<Vec<u64>, GeometryError> {
    checked_point(CurveKind::Z, key, bits)
}

/// Returns the key of a cell on the Hilbert curve through a box of `bits[axis]` bits per axis.
/// Cells with consecutive keys are neighbours, for any lengths of the axes.
///
/// ```
/// use bedform_geometry::hilbert_index;
/// assert_eq!(hilbert_index(&[0, 0], &[1, 1])?, 0);
/// assert_eq!(hilbert_index(&[1, 1], &[1, 1])?, 2);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
///
/// # Errors
/// As [`z_index`].
pub fn hilbert_index(point: &[u64], bits: &[u32]) -> Result<u128, GeometryError> {
    checked_index(CurveKind::Hilbert, point, bits)
}

/// Returns the cell of a key on the Hilbert curve; reverses [`hilbert_index`].
///
/// # Errors
/// As [`z_point`].
pub fn hilbert_point(key: u128, bits: &[u32]) -> Result<Vec<u64>, GeometryError> {
    checked_point(CurveKind::Hilbert, key, bits)
}

/// Checks the arguments of the public functions and returns the key.
fn checked_index(kind: CurveKind, point: &[u64], bits: &[u32]) -> Result<u128, GeometryError> {
    check_ranks_equal(bits.len(), point.len())?;
    let curve = Curve::new(kind, bits)?;
    for (axis, (&index, &bits)) in point.iter().zip(bits).enumerate() {
        // A shift by 64 is undefined, and no index is too large for 64 bits.
        if let Some(size) = 1_u64.checked_shl(bits)
            && index >= size
        {
            return Err(GeometryError::IndexOutOfBounds { axis, index, size });
        }
    }
    Ok(curve.index(point))
}

/// Checks the arguments of the public functions and returns the cell.
fn checked_point(kind: CurveKind, key: u128, bits: &[u32]) -> Result<Vec<u64>, GeometryError> {
    let curve = Curve::new(kind, bits)?;
    let total: u32 = bits.iter().sum();
    if key.checked_shr(total).is_some_and(|rest| rest != 0) {
        return Err(GeometryError::KeyOutOfBounds { key, bits: total });
    }
    Ok(curve.point(key, bits.len()))
}

/// Returns the Gray code of a step; codes of consecutive steps differ in one bit.
fn gray(step: u32) -> u32 {
    step ^ step >> 1
}

/// Returns the step with a Gray code of at most eight bits.
fn gray_inverse(code: u32) -> u32 {
    let code = code ^ code >> 1;
    let code = code ^ code >> 2;
    code ^ code >> 4
}

/// Returns the number of axes as the modulus of rotations, at least 1.
#[expect(clippy::cast_possible_truncation, reason = "at most CURVE_RANK_MAX axes")]
fn modulus(axes: usize) -> u32 {
    axes.max(1) as u32
}

/// Rotates the lowest `axes` bits towards the higher ones.
fn rotate_left(word: u32, by: u32, axes: usize) -> u32 {
    let width = modulus(axes);
    let by = by % width;
    (word << by | word >> (width - by)) & ((1 << width) - 1)
}

/// Rotates the lowest `axes` bits towards the lower ones.
fn rotate_right(word: u32, by: u32, axes: usize) -> u32 {
    let width = modulus(axes);
    rotate_left(word, width - by % width, axes)
}
