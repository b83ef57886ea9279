//! Boxes of a selection, and their encoding.
//!
//! The encoding of one box is its starts and its lengths, each a number. Boxes of rank 0 are
//! encoded as their count. Several boxes are two columns with one number per box each. The first is
//! the position of the box's first element in C order of the surrounding shape; the second is the
//! distance from there to its last element.
//!
//! This encoding is unique. Let a box start at `s` with lengths `l`, and let `place`, the position
//! in C order, be the sum of `x[k] * stride[k]`. Then `place(s + l - 1) - place(s) = place(l - 1)`,
//! since `place` is linear. The box is not empty and lies in the shape, so `0 <= l[k] - 1 <
//! shape[k]`: `l - 1` is a point of the shape. Points and positions correspond one to one. So both
//! numbers are below the number of elements, and decode to `s` and `l - 1`. Boxes with equal
//! lengths have equal second numbers, wherever they lie.
//!
//! If 64 bits cannot count the elements of the shape, each axis has its own columns instead.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::varint::{ColumnReader, write_column, write_varint};
use super::{
    ALLOCATION_BYTES, DecodeBudget, LogError, Result, check_limit, invalid, list_bytes, size_of,
};
use crate::Limits;

const WHAT: &str = "a selection";

/// A list of boxes of the same rank, in the order of their data.
///
/// ```
/// use bedform_format::{Limits, log::Boxes};
/// let boxes = Boxes::new(2, vec![0, 0, 4, 6], vec![2, 3, 1, 1])?;
/// assert_eq!((boxes.count(), boxes.elements()?), (2, 7));
/// assert_eq!(boxes.get(1), Some((&[4, 6][..], &[1, 1][..])));
/// let bytes = boxes.encode(&[10, 10])?;
/// assert_eq!(Boxes::decode(&bytes, &[10, 10], &Limits::default())?, boxes);
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
///
/// Clones share the coordinates, of which there may be millions.
#[derive(Debug, Clone)]
pub struct Boxes {
    rank: usize,
    /// Stored, because boxes of rank 0 have no coordinates to count.
    count: usize,
    shared: Arc<SharedBoxes>,
}

#[derive(Debug, Default)]
struct SharedBoxes {
    starts: Vec<u64>,
    shapes: Vec<u64>,
    /// Computed on first use.
    summary: OnceLock<Summary>,
    fingerprint: OnceLock<u64>,
}

/// Totals of boxes that are not empty and whose ends fit 64 bits.
#[derive(Debug, Clone)]
pub(super) struct Summary {
    /// Elements of all boxes.
    pub(super) elements: u64,
    /// The bounding box of all: start, and exclusive end.
    pub(super) low: Box<[u64]>,
    pub(super) high: Box<[u64]>,
}

impl Summary {
    pub(super) fn memory_bytes(rank: usize) -> u64 {
        size_of::<Self>() + 2 * list_bytes(rank)
    }

    /// Returns true if all boxes lie in `shape`.
    pub(super) fn fits(&self, shape: &[u64]) -> bool {
        self.high.len() == shape.len()
            && self.high.iter().zip(shape).all(|(end, length)| end <= length)
    }
}

impl PartialEq for Boxes {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (&self.shared, &other.shared);
        (self.rank, self.count) == (other.rank, other.count)
            && (Arc::ptr_eq(own, others)
                || (own.starts == others.starts && own.shapes == others.shapes))
    }
}

impl Eq for Boxes {}

impl Hash for Boxes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

/// The encoding of boxes, which follows from their number and the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BoxesEncoding {
    One = 0,
    Flattened = 1,
    ByAxis = 2,
}

impl BoxesEncoding {
    fn of(count: usize, shape: &[u64]) -> Self {
        let is_countable = shape.iter().try_fold(1_u64, |all, &length| all.checked_mul(length));
        match is_countable {
            _ if count == 1 || shape.is_empty() => Self::One,
            Some(_) => Self::Flattened,
            None => Self::ByAxis,
        }
    }
}

impl Boxes {
    /// Makes boxes of `rank` axes, at least one; each list has `rank` numbers per box.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if the lists differ in length or are not a multiple of the rank.
    pub fn new(rank: usize, starts: Vec<u64>, shapes: Vec<u64>) -> Result<Self> {
        if rank == 0 || starts.len() != shapes.len() || !starts.len().is_multiple_of(rank) {
            let lengths = (starts.len(), shapes.len());
            return Err(invalid(WHAT, format!("{lengths:?} numbers for boxes of rank {rank}")));
        }
        Ok(Self::of(rank, starts.len() / rank, starts, shapes))
    }

    /// Makes one box, of any rank.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if the ranks differ.
    pub fn one(start: &[u64], shape: &[u64]) -> Result<Self> {
        match start.len() {
            0 if shape.is_empty() => Ok(Self::without_axes(1)),
            rank => Self::new(rank, start.to_vec(), shape.to_vec()),
        }
    }

    /// Makes `count` boxes of rank 0, with one element each.
    pub fn without_axes(count: usize) -> Self {
        Self::of(0, count, Vec::new(), Vec::new())
    }

    fn of(rank: usize, count: usize, starts: Vec<u64>, shapes: Vec<u64>) -> Self {
        Self {
            rank,
            count,
            shared: Arc::new(SharedBoxes { starts, shapes, ..SharedBoxes::default() }),
        }
    }

    /// Returns the number of axes of every box.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of boxes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the starts of the boxes, box by box.
    pub fn starts(&self) -> &[u64] {
        &self.shared.starts
    }

    /// Returns the lengths of the boxes, box by box.
    pub fn shapes(&self) -> &[u64] {
        &self.shared.shapes
    }

    /// Returns the start and shape of box `index`.
    pub fn get(&self, index: usize) -> Option<(&[u64], &[u64])> {
        if index >= self.count {
            return None;
        }
        let numbers = index * self.rank..(index + 1) * self.rank;
        Some((self.starts().get(numbers.clone())?, self.shapes().get(numbers)?))
    }

    /// Returns the start and shape of every box.
    pub fn iter(&self) -> impl Iterator<Item = (&[u64], &[u64])> {
        (0..self.count).filter_map(|index| self.get(index))
    }

    /// Returns the number of elements of all boxes; elements of two boxes count twice.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if 64 bits cannot count the elements.
    pub fn elements(&self) -> Result<u64> {
        if let Some(known) = self.shared.summary.get() {
            return Ok(known.elements);
        }
        let over = || invalid(WHAT, "more elements than 64 bits count");
        if self.rank == 0 {
            return Ok(self.count as u64);
        }
        self.shapes().chunks_exact(self.rank).try_fold(0_u64, |sum, shape| {
            let elements = shape.iter().try_fold(1_u64, |all, &length| all.checked_mul(length));
            elements.and_then(|elements| sum.checked_add(elements)).ok_or_else(over)
        })
    }

    /// Returns the start and exclusive end of the bounding box; `None` if there are no boxes. Ends
    /// beyond 64 bits, which [`Boxes::validate`] refuses, saturate.
    pub fn bounds(&self) -> Option<(Vec<u64>, Vec<u64>)> {
        if let Some(known) = self.shared.summary.get() {
            return Some((known.low.to_vec(), known.high.to_vec()));
        }
        if self.rank == 0 {
            return (self.count > 0).then(Default::default);
        }
        let mut boxes = self.iter();
        let (start, shape) = boxes.next()?;
        let end_of = |start: u64, length: u64| start.saturating_add(length);
        let mut low = start.to_vec();
        let mut high: Vec<u64> = start.iter().zip(shape).map(|(&at, &by)| end_of(at, by)).collect();
        for (start, shape) in boxes {
            for axis in 0..self.rank {
                low[axis] = low[axis].min(start[axis]);
                high[axis] = high[axis].max(end_of(start[axis], shape[axis]));
            }
        }
        Some((low, high))
    }

    /// Checks that there is a box, that no box is empty, and that all lie in `shape`.
    ///
    /// # Errors
    /// [`LogError::Invalid`] names the box that breaks the rule.
    pub fn validate(&self, shape: &[u64]) -> Result<()> {
        if self.rank != shape.len() {
            let (rank, found) = (shape.len(), self.rank);
            return Err(invalid(WHAT, format!("boxes of rank {found} in a shape of {rank}")));
        }
        if self.count == 0 {
            return Err(invalid(WHAT, "no boxes"));
        }
        if self.rank == 0 {
            // All are the same element, and checking each of millions would be slow.
            return Ok(());
        }
        if self.summary().is_ok_and(|summary| summary.fits(shape)) {
            return Ok(());
        }
        let is_inside = |((&at, &length), &of): ((&u64, &u64), &u64)| {
            length > 0 && at.checked_add(length).is_some_and(|end| end <= of)
        };
        for (index, (start, lengths)) in self.iter().enumerate() {
            if !start.iter().zip(lengths).zip(shape).all(is_inside) {
                let found = format!("{start:?} + {lengths:?}");
                let problem = format!("box {index}, {found}, is empty or not inside {shape:?}");
                return Err(invalid(WHAT, problem));
            }
        }
        Ok(())
    }

    /// Returns the totals of the boxes, computed once for all clones.
    ///
    /// # Errors
    /// [`LogError::Invalid`] if there are no boxes, if one is empty, or if 64 bits cannot hold its
    /// end or the number of elements.
    pub(super) fn summary(&self) -> Result<&Summary> {
        if self.shared.summary.get().is_none() {
            let summary = self.summed_up()?;
            return Ok(self.shared.summary.get_or_init(|| summary));
        }
        self.shared.summary.get().ok_or_else(|| invalid(WHAT, "no boxes"))
    }

    fn summed_up(&self) -> Result<Summary> {
        if self.count == 0 {
            return Err(invalid(WHAT, "no boxes"));
        }
        let (mut low, mut high) = (vec![u64::MAX; self.rank], vec![0; self.rank]);
        let wrong = || invalid(WHAT, "a box that is empty, or more than 64 bits count");
        // Boxes of rank 0 have one element each; millions need no loop.
        let mut all = if self.rank == 0 { self.count as u64 } else { 0 };
        let (starts, shapes) = (self.starts(), self.shapes());
        let boxes =
            starts.chunks_exact(self.rank.max(1)).zip(shapes.chunks_exact(self.rank.max(1)));
        for (start, shape) in boxes {
            let mut elements = Some(1_u64);
            for axis in 0..self.rank {
                let (at, length) = (start[axis], shape[axis]);
                let end = at.checked_add(length).filter(|_| length > 0).ok_or_else(wrong)?;
                low[axis] = low[axis].min(at);
                high[axis] = high[axis].max(end);
                elements = elements.and_then(|elements| elements.checked_mul(length));
            }
            all = elements.and_then(|elements| all.checked_add(elements)).ok_or_else(wrong)?;
        }
        Ok(Summary { elements: all, low: low.into(), high: high.into() })
    }

    /// Memory of `count` boxes of `rank` axes, in bytes.
    pub(super) fn memory_bytes(rank: usize, count: u64) -> u64 {
        let numbers = count.saturating_mul(16).saturating_mul(rank as u64);
        numbers.saturating_add(size_of::<Self>() + size_of::<SharedBoxes>() + 4 * ALLOCATION_BYTES)
    }

    /// Removes the first axis if all boxes have length 1 and the same start along it, and returns
    /// that start.
    pub(super) fn split_record(&mut self) -> Option<u64> {
        let rank = self.rank;
        if rank < 2 {
            return None;
        }
        let Summary { elements, low, high } = self.summary().ok()?;
        let record = *low.first()?;
        if high.first() != Some(&(record + 1)) {
            return None;
        }
        let rest = |numbers: &[u64]| -> Vec<u64> {
            numbers.chunks_exact(rank).flat_map(|one| &one[1..]).copied().collect()
        };
        let summary = Summary { elements: *elements, low: low[1..].into(), high: high[1..].into() };
        let (starts, shapes) = (rest(self.starts()), rest(self.shapes()));
        *self = Self::of(rank - 1, self.count, starts, shapes);
        let _ = self.shared.summary.set(summary);
        Some(record)
    }

    /// Returns a hash: equal for equal boxes, rarely equal for others.
    pub(super) fn fingerprint(&self) -> u64 {
        *self.shared.fingerprint.get_or_init(|| self.mixed())
    }

    fn mixed(&self) -> u64 {
        // Two independent chains of multiplications. Collisions are harmless, since callers also
        // compare the boxes.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, value: u64| (hash.rotate_left(5) ^ value).wrapping_mul(ODD);
        let seed = (self.rank as u64, self.count as u64);
        let (starts, shapes) = self
            .starts()
            .iter()
            .zip(self.shapes())
            .fold(seed, |(left, right), (&start, &length)| (mix(left, start), mix(right, length)));
        mix(starts, shapes)
    }

    /// Encodes the boxes; the module header has the layout.
    ///
    /// # Errors
    /// As [`Boxes::validate`].
    pub fn encode(&self, shape: &[u64]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        write_varint(self.count as u64, &mut bytes);
        self.write(shape, &mut bytes)?;
        Ok(bytes)
    }

    /// Decodes boxes that were encoded with this `shape`.
    ///
    /// # Errors
    /// [`LogError`] if the bytes are damaged, over the limits, or name a box outside `shape`.
    pub fn decode(bytes: &[u8], shape: &[u64], limits: &Limits) -> Result<Self> {
        let mut reader = ColumnReader::new(bytes);
        let count = reader.number(WHAT)?;
        check_limit("axes", shape.len() as u64, limits.rank_max as u64)?;
        check_limit("boxes", count, limits.section_boxes_max)?;
        DecodeBudget::new(bytes.len()).charge(1, Self::memory_bytes(shape.len(), count))?;
        let boxes = Self::read(&mut reader, shape, count)?;
        reader.finish(WHAT)?;
        Ok(boxes)
    }

    /// Appends the encoding without the number of boxes.
    pub(super) fn write(&self, shape: &[u64], bytes: &mut Vec<u8>) -> Result<()> {
        self.validate(shape)?;
        let form = BoxesEncoding::of(self.count, shape);
        bytes.push(form as u8);
        let axis = |numbers: &'_ [u64], axis: usize| -> Vec<u64> {
            numbers.iter().skip(axis).step_by(self.rank).copied().collect()
        };
        match form {
            BoxesEncoding::One => {
                let numbers = self.starts().iter().chain(self.shapes());
                numbers.for_each(|&number| write_varint(number, bytes));
            }
            BoxesEncoding::Flattened => {
                write_column(self.iter().map(|(start, _)| place(start, shape, 0)), bytes);
                // Stored less 1 along each axis: `lengths - 1` is a point of the shape, `lengths`
                // need not be.
                write_column(self.iter().map(|(_, lengths)| place(lengths, shape, 1)), bytes);
            }
            BoxesEncoding::ByAxis => {
                for numbers in [self.starts(), self.shapes()] {
                    (0..self.rank)
                        .for_each(|at| write_column(axis(numbers, at).into_iter(), bytes));
                }
            }
        }
        Ok(())
    }

    /// Reads `count` boxes; the caller has charged [`Boxes::memory_bytes`] to its budget.
    pub(super) fn read(reader: &mut ColumnReader<'_>, shape: &[u64], count: u64) -> Result<Self> {
        let short = LogError::CutShort { what: WHAT };
        let rank = shape.len();
        let boxes_count = usize::try_from(count).map_err(|_| short.clone())?;
        let form = BoxesEncoding::of(boxes_count, shape);
        let found = reader.take(1, WHAT)?.first().ok_or(short)?;
        if *found != form as u8 {
            return Err(invalid(WHAT, format!("form {found} where it must be {}", form as u8)));
        }
        let (starts, shapes) = match form {
            BoxesEncoding::One => {
                let mut numbers =
                    || -> Result<Vec<u64>> { shape.iter().map(|_| reader.number(WHAT)).collect() };
                (numbers()?, numbers()?)
            }
            BoxesEncoding::Flattened => {
                (read_places(reader, shape, count, 0)?, read_places(reader, shape, count, 1)?)
            }
            BoxesEncoding::ByAxis => {
                (read_axes(reader, rank, count)?, read_axes(reader, rank, count)?)
            }
        };
        let boxes = Self::of(rank, boxes_count, starts, shapes);
        boxes.validate(shape)?;
        Ok(boxes)
    }
}

/// Returns the C-order position, in `shape`, of the point that is `point - less` along each axis.
fn place(point: &[u64], shape: &[u64], less: u64) -> u64 {
    point.iter().zip(shape).fold(0, |place, (&at, &length)| place * length + (at - less))
}

/// Reads a column of C-order positions as points, with `more` added to each coordinate.
fn read_places(
    reader: &mut ColumnReader<'_>,
    shape: &[u64],
    count: u64,
    more: u64,
) -> Result<Vec<u64>> {
    let mut column = reader.column(count, WHAT)?;
    let elements: u64 = shape.iter().product();
    let mut points = Vec::new();
    for _ in 0..count {
        let mut rest = column.next()?;
        if rest >= elements {
            return Err(invalid(WHAT, format!("place {rest} of {elements}")));
        }
        reserve_once(&mut points, shape.len(), count);
        let from = points.len();
        points.resize(from + shape.len(), 0);
        for (at, &length) in points[from..].iter_mut().zip(shape).rev() {
            (rest, *at) = (rest / length, rest % length + more);
        }
    }
    column.finish()?;
    Ok(points)
}

/// Reserves memory for `count` points before the first; the caller has charged it to its budget.
fn reserve_once(points: &mut Vec<u64>, rank: usize, count: u64) {
    if points.is_empty() {
        points.reserve_exact(usize::try_from(count).unwrap_or(0).saturating_mul(rank));
    }
}

/// Reads one column for each axis, and interleaves them box by box.
fn read_axes(reader: &mut ColumnReader<'_>, rank: usize, count: u64) -> Result<Vec<u64>> {
    let mut columns = Vec::with_capacity(rank);
    for _ in 0..rank {
        columns.push(reader.column(count, WHAT)?);
    }
    let mut points = Vec::new();
    for _ in 0..count {
        reserve_once(&mut points, rank, count);
        for column in &mut columns {
            points.push(column.next()?);
        }
    }
    columns.into_iter().try_for_each(super::varint::Column::finish)?;
    Ok(points)
}
