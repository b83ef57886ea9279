//! Boxes of the log become elements of chunks.
//!
//! In two levels: a box whose elements lie in one chunk as they lie in the log is one copy; only what
//! crosses chunks, or lies otherwise there, is taken apart into rows.

use std::collections::HashMap;
use std::sync::Arc;

use bedform_geometry::delinearize;
use bedform_storage::Object;

use super::plan::ArrayPlan;
use crate::array::source::ZarrSource;
use crate::codec::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::read::locate::Places;
use crate::read::scatter::{Axis, Copy, Target};
use crate::write::elements::{ChunkElements, Input, is_outside};

/// The chunks of one array's objects that a round builds.
pub(super) struct Building<'a> {
    pub(super) plan: &'a ArrayPlan,
    pub(super) source: &'a ZarrSource<'a>,
    pub(super) objects: Vec<BuildingObject>,
    places: HashMap<u64, usize>,
    /// The object found last: the next box is likely to lie there, too.
    last: Option<(u64, usize)>,
    pub(super) reach: Reach,
    /// Elements lie in chunks as in the log: in C order, their bytes in the same order.
    is_plain: bool,
    scratch: Scratch,
    walk: Walk,
}

/// Which elements of an array a round may need.
#[derive(Debug, Clone)]
pub(super) struct Reach {
    pub(super) key: [u8; 16],
    pub(super) item_size: usize,
    /// Commits up to this one are in all objects.
    pub(super) contained: u64,
    /// First element along each axis that an object of the round may hold, and the end.
    low: Vec<u64>,
    high: Vec<u64>,
}

/// One object on its way.
pub(super) struct BuildingObject {
    /// Which of the plans it is of, and its number there.
    pub(super) plan: usize,
    pub(super) number: u64,
    pub(super) coordinates: Vec<u64>,
    pub(super) stored: Option<(Arc<dyn Object>, Places)>,
    /// The last commit that it contains as it is stored.
    pub(super) contained: u64,
    /// Its bytes in the plan.
    pub(super) bytes: u64,
    pub(super) chunks: HashMap<u64, ChunkElements>,
}

/// Where a walk over the chunks of a box is; kept, since there are many boxes.
#[derive(Default)]
struct Walk {
    chunk: Vec<u64>,
    /// The share of the box in the chunk: first element and count along each axis.
    start: Vec<u64>,
    count: Vec<u64>,
    row: Vec<u64>,
}

impl<'a> Building<'a> {
    pub(super) fn new(
        plan: &'a ArrayPlan,
        source: &'a ZarrSource<'a>,
        objects: Vec<BuildingObject>,
    ) -> Self {
        let places = objects.iter().enumerate().map(|(at, object)| (object.number, at)).collect();
        let codec = &plan.state.codec;
        let mut step = plan.state.item_size as u64;
        let mut is_plain = codec.swap_size() == 1;
        for (stride, length) in codec.strides().iter().zip(plan.state.grid.chunk_shape()).rev() {
            is_plain &= u64::try_from(*stride) == Ok(step);
            step = step.saturating_mul(*length);
        }
        Self {
            plan,
            source,
            reach: Reach::new(plan, &objects),
            objects,
            places,
            last: None,
            is_plain,
            scratch: Scratch::default(),
            walk: Walk::default(),
        }
    }

    /// Lays a box that `commit` wrote over the chunks. `data` are its elements in C order.
    ///
    /// # Errors
    /// `Corrupt` for a stored chunk that is damaged; those of storage.
    pub(super) fn lay(
        &mut self,
        commit: u64,
        start: &[u64],
        lengths: &[u64],
        data: &[u8],
    ) -> Result<()> {
        let shape = self.plan.state.grid.chunk_shape();
        let mut walk = std::mem::take(&mut self.walk);
        walk.chunk.clear();
        walk.chunk.extend(start.iter().zip(shape).map(|(at, length)| at / length));
        let outcome = loop {
            if let Err(error) = self.lay_chunk(commit, &mut walk, start, lengths, data) {
                break Err(error);
            }
            let next = (0..shape.len()).rev().find(|axis| {
                let axis = *axis;
                walk.chunk[axis] += 1;
                let more = walk.chunk[axis] * shape[axis] < start[axis] + lengths[axis];
                if !more {
                    walk.chunk[axis] = start[axis] / shape[axis];
                }
                more
            });
            if next.is_none() {
                break Ok(());
            }
        };
        self.walk = walk;
        outcome
    }

    /// The object and the position in it of a chunk, if `commit` is news for it.
    fn find(&mut self, commit: u64, chunk: &[u64]) -> Option<(usize, u64)> {
        let (mut number, mut position) = (0, 0);
        for (axis, at) in chunk.iter().enumerate() {
            let per_object = self.plan.state.per_object[axis];
            let object = at / per_object;
            if object >= self.plan.grid[axis] {
                return None;
            }
            number = number * self.plan.grid[axis] + object;
            position = position * per_object + at % per_object;
        }
        let place = match self.last {
            Some((last, place)) if last == number => place,
            _ => *self.places.get(&number)?,
        };
        self.last = Some((number, place));
        (self.objects[place].contained < commit).then_some((place, position))
    }

    fn lay_chunk(
        &mut self,
        commit: u64,
        walk: &mut Walk,
        start: &[u64],
        lengths: &[u64],
        data: &[u8],
    ) -> Result<()> {
        let Some((place, position)) = self.find(commit, &walk.chunk) else { return Ok(()) };
        let shape = self.plan.state.grid.chunk_shape();
        walk.start.clear();
        walk.count.clear();
        let mut is_whole = true;
        for axis in 0..shape.len() {
            let corner = walk.chunk[axis] * shape[axis];
            let low = start[axis].max(corner);
            let count = (start[axis] + lengths[axis]).min(corner + shape[axis]) - low;
            is_whole &= count == shape[axis];
            walk.start.push(low);
            walk.count.push(count);
        }
        self.make_chunk(place, position, is_whole)?;
        let chunk = self.objects[place].chunks.get_mut(&position).map(ChunkElements::bytes_mut);
        let chunk = chunk.unwrap_or_default();
        let copied = match self.is_plain {
            true => walk.copy_rows(start, lengths, shape, self.plan.state.item_size, data, chunk),
            false => walk.copy_any(start, lengths, self.plan, data, chunk)?,
        };
        // Sections are checked when they are decoded: this would be a defect of ours.
        copied.ok_or_else(|| Error::new(ErrorKind::Io, "internal error: a box leaves its chunk"))
    }

    /// Makes sure that a chunk is there: with what is stored, unless all of it `is_replaced`.
    fn make_chunk(&mut self, place: usize, position: u64, is_replaced: bool) -> Result<()> {
        let state = &*self.plan.state;
        let object = &mut self.objects[place];
        if object.chunks.contains_key(&position) {
            return Ok(());
        }
        let mut chunk = ChunkElements::default();
        let name = || self.source.object_name_of(&object.coordinates);
        let at = delinearize(position, &state.per_object);
        let coordinates: Vec<u64> = (0..at.len())
            .map(|axis| object.coordinates[axis] * state.per_object[axis] + at[axis])
            .collect();
        let valid = self.plan.valid(object.contained);
        let is_outside = valid.is_some_and(|valid| is_outside(&state.grid, &coordinates, valid));
        let stored = match &object.stored {
            _ if is_outside => None,
            Some((stored, places)) if !is_replaced => {
                let extent =
                    places.find(position).map_err(|error| Error::corrupt(name(), error))?;
                extent.map(|(extent, _)| (stored, extent))
            }
            _ => None,
        };
        match stored {
            Some((_, extent)) if extent.length > state.codec.encoded_bytes_max() => {
                let text = format!("a chunk of {} bytes is larger than any can be", extent.length);
                return Err(Error::corrupt(name(), text));
            }
            Some((stored, extent)) => {
                let mut encoded = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
                stored.read(extent.offset, &mut encoded)?;
                let loaded = chunk.load(state, &encoded, &mut self.scratch, &Input::Bytes(&[]));
                loaded.map_err(|error| error.at(format!("{}, chunk {position}", name())))?;
                if let Some(valid) = valid {
                    chunk.trim(state, &coordinates, valid)?;
                }
            }
            None if is_replaced => chunk.make_room(state),
            None => chunk.clear(state),
        }
        object.chunks.insert(position, chunk);
        Ok(())
    }
}

impl Reach {
    fn new(plan: &ArrayPlan, objects: &[BuildingObject]) -> Self {
        let shape = &plan.state.metadata.chunk_shape;
        let edge = |fold: fn(u64, u64) -> u64, from: u64, axis: usize| {
            objects.iter().fold(from, |edge, object| fold(edge, object.coordinates[axis]))
        };
        let low = (0..shape.len()).map(|axis| edge(u64::min, u64::MAX, axis) * shape[axis]);
        let high = (0..shape.len()).map(|axis| (edge(u64::max, 0, axis) + 1) * shape[axis]);
        Self {
            key: plan.key,
            item_size: plan.state.item_size,
            contained: objects.iter().map(|object| object.contained).min().unwrap_or(u64::MAX),
            low: low.collect(),
            high: high.collect(),
        }
    }

    /// Axes of the array.
    pub(super) fn rank(&self) -> usize {
        self.low.len()
    }

    /// True if the box may have elements in an object of the round.
    pub(super) fn touches(&self, start: &[u64], lengths: &[u64]) -> bool {
        (0..start.len()).all(|axis| {
            start[axis] < self.high[axis] && start[axis] + lengths[axis] > self.low[axis]
        })
    }

    /// The first and the last element of the box, in its C order, that an object of the round may
    /// hold; the box [`touches`](Self::touches) the round.
    pub(super) fn span(&self, start: &[u64], lengths: &[u64]) -> (u64, u64) {
        let (mut first, mut last) = (0, 0);
        for axis in 0..start.len() {
            let low = self.low[axis].max(start[axis]) - start[axis];
            let high = self.high[axis].min(start[axis] + lengths[axis]) - start[axis] - 1;
            first = first * lengths[axis] + low;
            last = last * lengths[axis] + high;
        }
        (first, last)
    }
}

impl Walk {
    /// Copies the share of a box in a chunk, both in C order; `None` if it would leave one of them.
    fn copy_rows(
        &mut self,
        start: &[u64],
        lengths: &[u64],
        shape: &[u64],
        item: usize,
        data: &[u8],
        chunk: &mut [u8],
    ) -> Option<()> {
        let rank = shape.len();
        // Rows that follow each other in both are one.
        let mut run = item as u64;
        let mut outer = rank;
        while outer > 0 {
            outer -= 1;
            run *= self.count[outer];
            if self.count[outer] != lengths[outer] || self.count[outer] != shape[outer] {
                break;
            }
        }
        self.row.clear();
        self.row.resize(outer, 0);
        let run = usize::try_from(run).ok()?;
        loop {
            let (mut from, mut to) = (0, 0);
            for axis in 0..rank {
                let inside = self.row.get(axis).copied().unwrap_or(0) + self.start[axis];
                from = from * lengths[axis] + (inside - start[axis]);
                to = to * shape[axis] + (inside - self.chunk[axis] * shape[axis]);
            }
            let from = usize::try_from(from).ok()?.checked_mul(item)?;
            let to = usize::try_from(to).ok()?.checked_mul(item)?;
            let target = chunk.get_mut(to..to.checked_add(run)?)?;
            target.copy_from_slice(data.get(from..from.checked_add(run)?)?);
            let next = (0..outer).rev().find(|axis| {
                self.row[*axis] += 1;
                let more = self.row[*axis] < self.count[*axis];
                if !more {
                    self.row[*axis] = 0;
                }
                more
            });
            if next.is_none() {
                return Some(());
            }
        }
    }

    /// As [`Walk::copy_rows`], into chunks with another order of axes or bytes.
    fn copy_any(
        &self,
        start: &[u64],
        lengths: &[u64],
        plan: &ArrayPlan,
        data: &[u8],
        chunk: &mut [u8],
    ) -> Result<Option<()>> {
        let state = &*plan.state;
        let shape = state.grid.chunk_shape();
        let mut copy = Copy::default();
        let mut step = signed(state.item_size as u64);
        for axis in (0..shape.len()).rev() {
            let target_step = state.codec.strides()[axis];
            let inside = self.start[axis] - self.chunk[axis] * shape[axis];
            copy.source_start += signed(self.start[axis] - start[axis]) * step;
            copy.target_start += signed(inside) * target_step;
            let count = self.count[axis];
            copy.axes.push(Axis::Even { source_step: step, target_step, count });
            step *= signed(lengths[axis]);
        }
        copy.tidy();
        let target = Target::new(chunk);
        // SAFETY: this thread alone has the chunk.
        unsafe { copy.run(data, target, state.item_size, state.codec.swap_size())? };
        Ok(Some(()))
    }
}

/// What is called with start and lengths of a box.
type Visit<'a> = dyn FnMut(&[u64], &[u64]) -> Result<()> + 'a;

/// Calls `visit` with boxes that together are the elements `first..end` of a box, in C order, and with
/// how many elements each has.
///
/// # Errors
/// Those of `visit`.
pub(super) fn split(
    start: &[u64],
    lengths: &[u64],
    (first, end): (u64, u64),
    visit: &mut Visit<'_>,
) -> Result<()> {
    let (mut corner, mut count) = (start.to_vec(), lengths.to_vec());
    split_axis(0, lengths, (first, end), (&mut corner, &mut count), visit)
}

fn split_axis(
    axis: usize,
    lengths: &[u64],
    (mut first, end): (u64, u64),
    (corner, count): (&mut Vec<u64>, &mut Vec<u64>),
    visit: &mut Visit<'_>,
) -> Result<()> {
    if first >= end {
        return Ok(());
    }
    if axis == lengths.len() {
        return visit(corner, count);
    }
    let step: u64 = lengths[axis + 1..].iter().product();
    let begin = corner[axis];
    // Parts of the first and of the last row, and all rows between.
    while first < end {
        let row = first / step;
        let rows = if first.is_multiple_of(step) { end / step - row } else { 0 };
        corner[axis] = begin + row;
        if rows > 0 {
            count[axis] = rows;
            visit(corner, count)?;
            first += rows * step;
        } else {
            count[axis] = 1;
            let inner = (first - row * step, (end - row * step).min(step));
            split_axis(axis + 1, lengths, inner, (corner, count), visit)?;
            first = row * step + inner.1;
        }
    }
    corner[axis] = begin;
    count[axis] = lengths[axis];
    Ok(())
}

fn signed(value: u64) -> i64 {
    // Sizes of what is in memory.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bedform_geometry::{element_count, linearize};

    #[test]
    fn the_parts_of_a_box_are_its_elements_in_their_order() {
        for lengths in [vec![], vec![5], vec![3, 4], vec![2, 3, 4], vec![2, 1, 3]] {
            let start: Vec<u64> = (0..lengths.len() as u64).map(|axis| 10 * axis).collect();
            let all = element_count(&lengths).unwrap();
            for first in 0..all {
                for end in first..=all {
                    let mut found = Vec::new();
                    split(&start, &lengths, (first, end), &mut |corner, count| {
                        let inside: Vec<u64> = corner
                            .iter()
                            .zip(&start)
                            .map(|(corner, start)| corner - start)
                            .collect();
                        let from = linearize(&inside, &lengths);
                        found.extend(from..from + count.iter().product::<u64>());
                        Ok(())
                    })
                    .unwrap();
                    assert!(found.into_iter().eq(first..end), "{lengths:?} {first}..{end}");
                }
            }
        }
    }
}
