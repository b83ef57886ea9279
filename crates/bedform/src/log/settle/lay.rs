//! Copies of boxes from the log into chunks.
//!
//! A box that lies in one chunk, in the same order as in the log, is one copy. A box that crosses
//! chunks, or has another order there, is copied row by row. Scattered elements are very many boxes
//! of a few bytes, each mostly in the chunk of the box before: [`ArrayBuilder::lay_near`] copies those.

use std::collections::HashMap;

use bedform_codec::Scratch;
use bedform_format::log::Boxes;
use bedform_geometry::delinearize;

use super::plan::SettlePlan;
use super::walk::ChunkWalk;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::budget::BudgetRound;
use crate::write::elements::{ChunkElements, WriteInput, is_outside};
use crate::write::sink::{BuiltChunk, Sink, StoredUnit};

/// The chunks of one array's objects that a round builds.
pub(super) struct ArrayBuilder<'a> {
    pub(super) plan: &'a SettlePlan,
    pub(super) sink: &'a dyn Sink,
    pub(super) objects: Vec<ObjectBuilder>,
    places: HashMap<u64, usize>,
    /// The chunk of the last box, taken out of its object: the next box is likely to lie there,
    /// too.
    near: Option<CurrentChunk>,
    pub(super) reach: RoundBounds,
    /// True if elements and their bytes have the same order in chunks as in the log, which is C
    /// order.
    is_plain: bool,
    scratch: Scratch,
    walk: ChunkWalk,
}

/// The elements of an array that a round may need: a bounding box.
#[derive(Debug, Clone)]
pub(super) struct RoundBounds {
    pub(super) key: [u8; 16],
    pub(super) item_size: usize,
    /// All objects of the round contain the commits up to this one.
    pub(super) contained: u64,
    /// First element along each axis that an object of the round may hold, and the end.
    low: Vec<u64>,
    high: Vec<u64>,
}

/// The relation of a box to another one: wholly inside, wholly outside, or neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BoxRelation {
    Inside,
    Outside,
    Across,
}

/// One object of a round.
pub(super) struct ObjectBuilder {
    /// Index of its plan, and its number in that plan.
    pub(super) plan: usize,
    pub(super) number: u64,
    pub(super) coordinates: Vec<u64>,
    pub(super) stored: Option<StoredUnit>,
    /// The last commit that the stored object contains.
    pub(super) contained: u64,
    /// Its bytes in the plan.
    pub(super) bytes: u64,
    pub(super) chunks: HashMap<u64, BuiltChunk>,
}

/// A chunk in memory, taken out of its object while boxes are copied into it.
struct CurrentChunk {
    /// Its coordinates in the grid of chunks; its first element along each axis, and the end.
    coordinates: Vec<u64>,
    low: Vec<u64>,
    high: Vec<u64>,
    /// Index of its object, its position there, and the last commit that the stored object
    /// contains.
    object: usize,
    position: u64,
    contained: u64,
    chunk: BuiltChunk,
}

/// The boxes of one write, with the commit that wrote them.
#[derive(Clone, Copy)]
pub(super) struct EntryBoxes<'b> {
    pub(super) commit: u64,
    pub(super) record: Option<u64>,
    pub(super) boxes: &'b Boxes,
}

impl<'a> ArrayBuilder<'a> {
    pub(super) fn new(
        plan: &'a SettlePlan,
        sink: &'a dyn Sink,
        objects: Vec<ObjectBuilder>,
    ) -> Self {
        let places = objects.iter().enumerate().map(|(at, object)| (object.number, at)).collect();
        let codec = &plan.state.layout.codec;
        let mut step = plan.state.layout.item_size as u64;
        let mut is_plain = codec.swap_size() == 1;
        for (stride, length) in
            codec.strides().iter().zip(plan.state.layout.grid.chunk_shape()).rev()
        {
            is_plain &= u64::try_from(*stride) == Ok(step);
            step = step.saturating_mul(*length);
        }
        Self {
            plan,
            sink,
            reach: RoundBounds::new(plan, &objects),
            objects,
            places,
            near: None,
            is_plain,
            scratch: Scratch::default(),
            walk: ChunkWalk::default(),
        }
    }

    /// Copies a box that `commit` wrote into the chunks. `data` are its elements in C order; `wait`
    /// reserves memory for new chunks.
    ///
    /// # Errors
    /// `Corrupt` for a stored chunk that is damaged; those of storage and of `wait`.
    pub(super) fn lay(
        &mut self,
        commit: u64,
        (start, lengths): (&[u64], &[u64]),
        data: &[u8],
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        let shape = self.plan.state.layout.grid.chunk_shape();
        let mut walk = std::mem::take(&mut self.walk);
        walk.chunk.clear();
        walk.chunk.extend(start.iter().zip(shape).map(|(at, length)| at / length));
        let outcome = loop {
            if let Err(error) = self.lay_chunk(commit, &mut walk, (start, lengths), data, wait) {
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

    /// Copies the boxes of `written` from index `first` on into the chunk of the last box. `data`
    /// begins with the first of them. Stops at a box that is not one run of elements there and in
    /// `data`. Returns the number of copied boxes, and of copied bytes.
    pub(super) fn lay_near(
        &mut self,
        written: EntryBoxes<'_>,
        first: usize,
        data: &[u8],
    ) -> (usize, usize) {
        let is_news = |near: &&mut CurrentChunk| near.contained < written.commit;
        let Some(near) = self.near.as_mut().filter(|_| self.is_plain).filter(is_news) else {
            return (0, 0);
        };
        let item = self.plan.state.layout.item_size as u64;
        let (boxes, rank) = (written.boxes, written.boxes.rank());
        let (mut base, mut low, mut high) = (0, near.low.as_slice(), near.high.as_slice());
        if let Some(record) = written.record {
            let is_inside = low[0] <= record && record < high[0];
            if !is_inside {
                return (0, 0);
            }
            base = record - low[0];
            (low, high) = (&low[1..], &high[1..]);
        }
        let chunk = near.chunk.elements.bytes_mut();
        let (mut count, mut done) = (0, 0);
        // At rank 0 the boxes have no coordinates, so none is copied here; they are rare.
        let starts = boxes.starts().chunks_exact(rank.max(1)).skip(first);
        for (start, shape) in starts.zip(boxes.shapes().chunks_exact(rank.max(1)).skip(first)) {
            let Some((to, run)) = run_in(base, low, high, start, shape) else { break };
            let (to, length) = (index(to * item), index(run * item));
            let target = to.checked_add(length).and_then(|end| chunk.get_mut(to..end));
            let source = data.get(done..).and_then(|rest| rest.get(..length));
            let (Some(target), Some(source)) = (target, source) else { break };
            match (<&mut [u8; 8]>::try_from(&mut *target), <&[u8; 8]>::try_from(source)) {
                // Mostly one element of eight bytes, which is copied without a call.
                (Ok(target), Ok(source)) => *target = *source,
                _ => target.copy_from_slice(source),
            }
            done += length;
            count += 1;
        }
        (count, done)
    }

    /// Returns the object of a chunk, and the position in it, if the object lacks `commit`.
    fn find(&self, commit: u64, chunk: &[u64]) -> Option<(usize, u64)> {
        let (mut number, mut position) = (0, 0);
        for (axis, at) in chunk.iter().enumerate() {
            let per_object = self.plan.state.layout.per_object[axis];
            let object = at / per_object;
            if object >= self.plan.grid[axis] {
                return None;
            }
            number = number * self.plan.grid[axis] + object;
            position = position * per_object + at % per_object;
        }
        let place = *self.places.get(&number)?;
        (self.objects[place].contained < commit).then_some((place, position))
    }

    fn lay_chunk(
        &mut self,
        commit: u64,
        walk: &mut ChunkWalk,
        (start, lengths): (&[u64], &[u64]),
        data: &[u8],
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        let known = self.near.as_ref().filter(|near| near.coordinates == walk.chunk);
        let known = known.map(|near| (near.object, near.position, near.contained));
        let found = match known {
            Some((_, _, contained)) if contained >= commit => None,
            Some((object, position, _)) => Some((object, position)),
            None => self.find(commit, &walk.chunk),
        };
        let Some((object, position)) = found else { return Ok(()) };
        let shape = self.plan.state.layout.grid.chunk_shape();
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
        if known.is_none() {
            self.go_to(object, position, &walk.chunk, is_whole, wait)?;
        }
        let chunk = self.near.as_mut().map(|near| near.chunk.elements.bytes_mut());
        let chunk = chunk.unwrap_or_default();
        let copied = match self.is_plain {
            true => {
                walk.copy_rows(start, lengths, shape, self.plan.state.layout.item_size, data, chunk)
            }
            false => walk.copy_any(start, lengths, self.plan, data, chunk)?,
        };
        // Sections are checked when they are decoded, so this would be a bug of Bedform.
        copied.ok_or_else(|| Error::new(ErrorKind::Io, "internal error: a box leaves its chunk"))
    }

    /// Takes a chunk out of its object for copies; `is_replaced` as in [`ArrayBuilder::make_chunk`].
    fn go_to(
        &mut self,
        object: usize,
        position: u64,
        coordinates: &[u64],
        is_replaced: bool,
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        self.put_back();
        let chunk = match self.objects[object].chunks.remove(&position) {
            Some(chunk) => chunk,
            None => self.make_chunk(object, position, is_replaced, wait)?,
        };
        let shape = self.plan.state.layout.grid.chunk_shape();
        let low: Vec<u64> = coordinates.iter().zip(shape).map(|(at, length)| at * length).collect();
        self.near = Some(CurrentChunk {
            coordinates: coordinates.to_vec(),
            high: low.iter().zip(shape).map(|(low, length)| low + length).collect(),
            low,
            object,
            position,
            contained: self.objects[object].contained,
            chunk,
        });
        Ok(())
    }

    /// Puts the chunk of the last box back into its object.
    pub(super) fn put_back(&mut self) {
        if let Some(near) = self.near.take() {
            self.objects[near.object].chunks.insert(near.position, near.chunk);
        }
    }

    /// Makes a new chunk with its stored elements; without them if all of it `is_replaced`.
    fn make_chunk(
        &mut self,
        object: usize,
        position: u64,
        is_replaced: bool,
        wait: &BudgetRound<'_>,
    ) -> Result<BuiltChunk> {
        let layout = &self.plan.state.layout;
        let object = &self.objects[object];
        let mut room = wait.room(layout.codec.decoded_bytes() as u64)?;
        let mut chunk = ChunkElements::in_memory(room.memory());
        let name = || self.sink.unit_name(&object.coordinates);
        let at = delinearize(position, &layout.per_object);
        let coordinates: Vec<u64> = (0..at.len())
            .map(|axis| object.coordinates[axis] * layout.per_object[axis] + at[axis])
            .collect();
        let valid = self.plan.valid(object.contained);
        let is_outside = valid.is_some_and(|valid| is_outside(&layout.grid, &coordinates, valid));
        let stored = match &object.stored {
            _ if is_outside => None,
            Some(stored) if !is_replaced => {
                let location = stored
                    .locations
                    .locate(position)
                    .map_err(|error| Error::corrupt(name(), error))?;
                location.map(|location| (&stored.object, location.extent))
            }
            _ => None,
        };
        match stored {
            Some((_, extent)) if extent.length > layout.codec.encoded_bytes_max() => {
                let text = format!("a chunk of {} bytes is larger than any can be", extent.length);
                return Err(Error::corrupt(name(), text));
            }
            Some((stored, extent)) => {
                let mut encoded = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
                stored.read(extent.offset, &mut encoded)?;
                let loaded =
                    chunk.load(layout, &encoded, &mut self.scratch, &WriteInput::Bytes(&[]));
                loaded.map_err(|error| error.at(format!("{}, chunk {position}", name())))?;
                if let Some(valid) = valid {
                    chunk.trim(layout, &coordinates, valid)?;
                }
            }
            None if is_replaced => chunk.make_room(layout),
            None => chunk.clear(layout),
        }
        Ok(BuiltChunk { elements: chunk, room: Some(room) })
    }
}

impl RoundBounds {
    fn new(plan: &SettlePlan, objects: &[ObjectBuilder]) -> Self {
        let shape = &plan.state.metadata.chunk_shape;
        let edge = |fold: fn(u64, u64) -> u64, from: u64, axis: usize| {
            objects.iter().fold(from, |edge, object| fold(edge, object.coordinates[axis]))
        };
        let low = (0..shape.len()).map(|axis| edge(u64::min, u64::MAX, axis) * shape[axis]);
        let high = (0..shape.len()).map(|axis| (edge(u64::max, 0, axis) + 1) * shape[axis]);
        Self {
            key: plan.key,
            item_size: plan.state.layout.item_size,
            contained: objects.iter().map(|object| object.contained).min().unwrap_or(u64::MAX),
            low: low.collect(),
            high: high.collect(),
        }
    }

    /// Returns the number of axes of the array.
    pub(super) fn rank(&self) -> usize {
        self.low.len()
    }

    /// True if the box may have elements in an object of the round.
    pub(super) fn touches(&self, start: &[u64], lengths: &[u64]) -> bool {
        (0..start.len()).all(|axis| {
            start[axis] < self.high[axis] && start[axis] + lengths[axis] > self.low[axis]
        })
    }

    /// Returns the relation of the box from `low` to `high` to the bounding box of the round.
    pub(super) fn position_of(&self, low: &[u64], high: &[u64]) -> BoxRelation {
        let axes = || (0..low.len().min(self.low.len())).map(|axis| (axis, self.low[axis]));
        if axes().all(|(axis, own)| own <= low[axis] && high[axis] <= self.high[axis]) {
            return BoxRelation::Inside;
        }
        let is_outside = |(axis, own)| high[axis] <= own || self.high[axis] <= low[axis];
        if axes().any(is_outside) { BoxRelation::Outside } else { BoxRelation::Across }
    }

    /// Returns the first and the last element of the box, in its C order, that an object of the
    /// round may hold. The box must [touch](Self::touches) the round.
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

/// Returns a box as a run of elements in a chunk of C order from `low` to `high`: first element,
/// and count. `base` is the row along the axes before. `None` if the box is more than one run or
/// leaves the chunk.
fn run_in(
    base: u64,
    low: &[u64],
    high: &[u64],
    start: &[u64],
    shape: &[u64],
) -> Option<(u64, u64)> {
    let (mut to, mut run, mut is_run) = (base, 1, true);
    let axes = low.iter().zip(high).zip(start.iter().zip(shape));
    for ((low, high), (start, length)) in axes {
        let is_inside = low <= start && start + length <= *high;
        // After an axis of more than one element, every axis has to be whole.
        is_run &= run == 1 || *length == high - low;
        if !is_inside || !is_run {
            return None;
        }
        to = to * (high - low) + (start - low);
        run *= length;
    }
    Some((to, run))
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // The value is a size in memory, so it fits.
    value as usize
}
