//! Resolution of a plan: one cell becomes units and their cost.
//!
//! Executions, explanations, simulations and comparisons of plans all resolve cells here, alone or
//! in parallel, in two steps. [`open_cell`] opens the object, and its cover takes the elements that
//! it has. [`NeededCell::resolve`] locates the remaining chunks and merges them into units where a
//! gap is cheaper to read than to skip. No chunk is read. Between the steps, an execution delivers
//! the chunks that the cache has.

use std::sync::Arc;

use bedform_codec::ChunkCodec;
use bedform_format::shard::Extent;
use bedform_storage::Object;

use super::plan::PlannedCell;
use super::raw::gather_raw;
use crate::error::{Error, Result};
use crate::plan::copy::Copy;
use crate::plan::geometry::ChunkTask;
use crate::plan::mask::Mask;
use crate::plan::opening::Need;
use crate::plan::part::Origin;
use crate::plan::price::Cost;
use crate::plan::tuning::MergeRules;
use crate::source::{
    ChunkLocations, Cover, Location, OpenCell, Payload, Payloads, PendingCell, Uncovered,
};

/// Smaller extents are better read ahead into the page cache than waited for one by one. A block of
/// a log that was cut at the end of a record still counts as large.
pub(crate) const SCATTERED_BYTES_MIN: u64 = 24 << 10;

/// The extents that one thread fetches at a time, with the chunks to decode and the copies to make.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// Byte ranges to read; they are concatenated in the buffer.
    pub(crate) extents: Vec<Extent>,
    /// Encoded chunks in the buffer.
    pub(crate) chunks: Vec<FetchedChunk>,
    /// Copies of raw elements from the buffer to the result.
    pub(crate) raw: Vec<Copy>,
    /// Chunks that were never written.
    pub(crate) missing: Vec<NeededChunk>,
    /// The payload of covers that the extents hold.
    pub(crate) payload: Option<Box<dyn Payload>>,
    /// The cover of the chunks, if chunks are delivered whole.
    pub(crate) cover: Option<Arc<dyn Cover>>,
}

/// A chunk that the read needs, and the elements that it needs of it.
#[derive(Debug)]
pub(crate) struct NeededChunk {
    pub(crate) task: ChunkTask,
    /// The free elements of each part, if a cover supplies the rest; `None` if all are needed.
    pub(super) free: Option<Vec<Mask>>,
}

/// An encoded chunk in a unit's buffer.
#[derive(Debug)]
pub(crate) struct FetchedChunk {
    pub(crate) wanted: NeededChunk,
    /// The chunk's start in the buffer, in bytes.
    pub(crate) start: usize,
    /// Bytes of the encoded chunk.
    pub(crate) length: usize,
    /// The place of its first part in the object, for messages.
    pub(crate) extent: Extent,
    /// A bit for each codec that was skipped when the chunk was written.
    pub(crate) skip: u32,
}

impl Unit {
    /// Returns the bytes of the buffer.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.length).sum()
    }

    /// Returns the requests of the unit and their bytes, beyond the bytes that came when the object
    /// was opened.
    pub(crate) fn requests(&self, object: &dyn Object) -> (u64, u64) {
        let known = object.buffered_range();
        let missing = |extent: &Extent| {
            let from = extent.offset.max(known.start);
            extent.length - extent.end().min(known.end).saturating_sub(from)
        };
        let asked = self.extents.iter().map(missing).filter(|bytes| *bytes > 0);
        asked.fold((0, 0), |(requests, bytes), more| (requests + 1, bytes + more))
    }

    /// Returns true for a payload of several extents of at least [`SCATTERED_BYTES_MIN`] bytes on
    /// average. A box of an array has its elements in many places of a log. Such extents are worth
    /// a read past the page cache, one by one.
    pub(crate) fn is_scattered(&self) -> bool {
        let count = self.extents.len() as u64;
        let has_parts = self.payload.as_ref().is_some_and(|payload| payload.has_parts());
        has_parts && count > 1 && self.bytes() / count >= SCATTERED_BYTES_MIN
    }

    /// Returns the cost of fetching and decoding the unit. `object` is `None` if the whole object
    /// came when it was opened; the unit then makes no requests. A payload has no codec.
    pub(super) fn cost(&self, object: Option<&dyn Object>, codec: Option<&ChunkCodec>) -> Cost {
        let (requests, bytes) = object.map_or((0, 0), |object| self.requests(object));
        let largest = match requests {
            0 => 0,
            _ => self.extents.iter().map(|extent| extent.length.min(bytes)).max().unwrap_or(0),
        };
        let chunks = self.chunks.len() as u64 + u64::from(!self.raw.is_empty());
        let decoded_bytes = match codec {
            Some(codec) if !codec.is_raw() => chunks * codec.decoded_bytes() as u64,
            Some(_) => bytes,
            None => 0,
        };
        Cost {
            requests,
            bytes,
            largest,
            chunks,
            decoded_bytes,
            missing: self.missing.len() as u64,
            log_bytes: self.payload.as_ref().map_or(0, |payload| payload.decoded_bytes()),
            ..Cost::default()
        }
    }
}

impl NeededChunk {
    /// A chunk with all elements that the plan takes of it.
    pub(crate) fn all(task: ChunkTask) -> Self {
        Self { task, free: None }
    }

    /// Returns the elements of a chunk that its cover does not supply; `None` if there are none.
    fn rest(task: ChunkTask, rest: Uncovered) -> Option<Self> {
        match rest {
            Uncovered::All => Some(Self::all(task)),
            Uncovered::Some(masks) => Some(Self { task, free: Some(masks) }),
            Uncovered::None => None,
        }
    }

    /// Calls `visit` with each copy that the read needs from the chunk, whose axes are `strides`
    /// bytes apart.
    pub(crate) fn for_each_copy(
        &self,
        cell: PlannedCell<'_>,
        strides: &[i64],
        mut visit: impl FnMut(Copy) -> Result<()>,
    ) -> Result<()> {
        let (geometry, number) = (cell.piece.geometry, cell.number);
        let Some(free) = &self.free else {
            return geometry.for_each_copy(number, self.task, strides, visit);
        };
        let mut masks = free.iter();
        geometry.for_each_part(number, self.task, |part| {
            let mut outcome = Ok(());
            if let Some(mask) = masks.next() {
                mask.for_each_free(&mut |ranges| {
                    if outcome.is_ok() {
                        outcome = visit(part.copy(ranges, Origin { start: 0, strides }));
                    }
                });
            }
            outcome
        })
    }
}

/// Hooks of the resolution of a cell: admission, payloads, and counts of waits and missing objects.
pub(crate) trait ResolveHooks {
    /// Called before a wait for the device.
    fn waits(&self) {}

    /// Called for a cell whose object does not exist, so that the read gets fill values.
    fn note_absent(&self) {}

    /// May take the payloads that covers have added so far.
    ///
    /// # Errors
    /// The hook's own errors, which end the resolution.
    fn take_payloads(&self, payloads: &mut Payloads) -> Result<()> {
        let _ = payloads;
        Ok(())
    }

    /// Returns true if chunks are delivered whole. The cover then takes nothing and is laid over
    /// them.
    fn takes_whole(&self) -> bool {
        false
    }

    /// Returns true if a stored chunk of the cell may be fetched.
    fn admits(&self, cell: PlannedCell<'_>) -> bool {
        let _ = cell;
        true
    }
}

/// A resolved cell: its opened object and the units to fetch from it.
pub(crate) struct ResolvedCell {
    /// The object, or a stand-in for a missing object with a cover.
    pub(crate) opened: OpenCell,
    /// The units to fetch from the object.
    pub(crate) units: Vec<Unit>,
}

/// The need for an object, and a request for it that is already in flight.
pub(crate) struct CellOpening {
    pub(crate) need: Need,
    /// The answer to an earlier request for the object.
    pub(crate) asked: Option<PendingCell>,
}

/// An opened cell, and the chunks that the read needs of it beyond the elements of its cover.
pub(crate) struct NeededCell<'p> {
    pub(super) cell: PlannedCell<'p>,
    pub(super) opened: OpenCell,
    is_absent: bool,
    /// The cover, if chunks are delivered whole. It is then laid over them.
    pub(super) cover: Option<Arc<dyn Cover>>,
    /// Chunks whose stored elements count.
    pub(super) stored: Vec<NeededChunk>,
    /// Chunks whose elements are fill values, whatever is stored.
    fill: Vec<NeededChunk>,
}

/// Opens a cell and lets its cover take elements, whose payloads are added to `payloads`. `None` if
/// the cell has neither object nor cover: all its chunks are fill values.
///
/// # Errors
/// `Corrupt` by an index or a log; `SnapshotMoved`; those of storage and of `resolving`.
pub(crate) fn open_cell<'p>(
    cell: PlannedCell<'p>,
    tasks: &[ChunkTask],
    opening: CellOpening,
    payloads: &mut Payloads,
    resolving: &dyn ResolveHooks,
) -> Result<Option<NeededCell<'p>>> {
    let coordinates = cell.coordinates();
    let source = cell.piece.source;
    let opened = source.open(&coordinates, opening.need, opening.asked, &|| resolving.waits())?;
    let is_absent = opened.is_none();
    let contained = opened.as_ref().map_or(0, |opened| opened.contained);
    let name = || source.object_name(&coordinates);
    let cover = cell.piece.moment.cover(&coordinates, contained, &name)?;
    let Some(opened) = opened.or_else(|| cover.as_ref().map(|_| OpenCell::absent())) else {
        resolving.note_absent();
        return Ok(None);
    };
    let (over, cover) = match resolving.takes_whole() {
        true => (None, cover),
        false => (cover, None),
    };
    let (mut stored, mut fill) = (Vec::new(), Vec::new());
    match over {
        None => stored.extend(tasks.iter().map(|task| NeededChunk::all(*task))),
        Some(over) => {
            for &task in tasks {
                let rest = over.take(cell.piece.geometry, cell.number, task, payloads)?;
                stored.extend(NeededChunk::rest(task, rest.stored));
                fill.extend(NeededChunk::rest(task, rest.fill));
                resolving.take_payloads(payloads)?;
            }
        }
    }
    Ok(Some(NeededCell { cell, opened, is_absent, cover, stored, fill }))
}

impl NeededCell<'_> {
    /// Locates the needed chunks and returns the units to fetch.
    ///
    /// # Errors
    /// `Corrupt` by an index, also if an extent is larger than a chunk of the array can be.
    pub(crate) fn resolve(
        mut self,
        merging: MergeRules<'_>,
        resolving: &dyn ResolveHooks,
    ) -> Result<ResolvedCell> {
        let units = self.take_units(merging, resolving);
        let mut units = units.map_err(|error| error.at(self.cell.object_name()))?;
        if self.is_absent && units.iter().any(|unit| !unit.missing.is_empty()) {
            resolving.note_absent();
        }
        if self.cover.is_some() {
            units.iter_mut().for_each(|unit| unit.cover.clone_from(&self.cover));
        }
        Ok(ResolvedCell { opened: self.opened, units })
    }

    fn take_units(
        &mut self,
        merging: MergeRules<'_>,
        resolving: &dyn ResolveHooks,
    ) -> Result<Vec<Unit>> {
        let (cell, codec, mut units) = (self.cell, self.cell.codec(), Vec::new());
        let stored = std::mem::take(&mut self.stored);
        let (mut found, mut missing) = locate_all(stored, &self.opened.locations)?;
        found.retain(|_| resolving.admits(cell));
        let is_whole = resolving.takes_whole();
        if is_whole && codec.is_raw() {
            // Padding that a format adds behind a chunk is no part of it.
            let decoded = codec.decoded_bytes() as u64;
            found.iter_mut().for_each(|(at, _)| at.extent.length = at.extent.length.min(decoded));
        }
        let needed = found.iter().map(|(at, _)| at.bytes()).fold(0, u64::saturating_add);
        let bytes_max = merging.request_bytes(needed);
        missing.append(&mut self.fill);
        if !missing.is_empty() {
            units.push(Unit { missing, ..Unit::default() });
        }
        found.sort_by_key(|(at, _)| at.extent);
        if cell.piece.is_raw() && !is_whole {
            let (whole, parts): (Vec<_>, Vec<_>) = found
                .into_iter()
                .partition(|(at, wanted)| wanted.free.is_none() && at.rest.is_empty());
            merge_chunks(parts, codec, merging, bytes_max, &mut units)?;
            return gather_raw(cell, whole, merging, units);
        }
        merge_chunks(found, codec, merging, bytes_max, &mut units)?;
        Ok(units)
    }
}

/// Returns the units of the payloads of covers, each with the object that it reads.
///
/// # Errors
/// `Corrupt` if a block lies outside its object.
pub(crate) fn payload_units(payloads: Payloads) -> Result<Vec<(Arc<dyn Object>, Unit)>> {
    let payloads = payloads.into_payloads()?.into_iter();
    let unit_of = |payload: Box<dyn Payload>| {
        let (object, extents) = (payload.object(), payload.extents().to_vec());
        (object, Unit { extents, payload: Some(payload), ..Unit::default() })
    };
    Ok(payloads.map(unit_of).collect())
}

impl ResolvedCell {
    /// Returns the cost of opening the cell and fetching its units. `comes_whole` says whether the
    /// first request fetches the whole object.
    pub(crate) fn cost(&self, cell: PlannedCell<'_>, comes_whole: bool) -> Cost {
        let size = self.opened.object.version().size;
        let mut cost = Cost {
            objects: 1,
            whole_objects: u64::from(comes_whole),
            index_requests: self.opened.index_requests,
            index_bytes: if comes_whole { size } else { self.opened.index_bytes },
            largest: if comes_whole { size } else { 0 },
            ..Cost::default()
        };
        let object = Some(&*self.opened.object).filter(|_| !comes_whole);
        let units = self.units.iter().map(|unit| unit.cost(object, Some(cell.codec())));
        units.for_each(|unit| cost += unit);
        cost
    }
}

/// Chunks with their locations, and chunks that were never written.
type LocatedChunks = (Vec<(Location, NeededChunk)>, Vec<NeededChunk>);

fn locate_all(all: Vec<NeededChunk>, locations: &ChunkLocations) -> Result<LocatedChunks> {
    let mut found = Vec::with_capacity(all.len());
    let mut missing = Vec::new();
    for wanted in all {
        let position = wanted.task.position;
        let place = locations.locate(position);
        match place.map_err(|error| Error::corrupt(format!("chunk {position}"), error))? {
            Some(location) => found.push((location, wanted)),
            None => missing.push(wanted),
        }
    }
    Ok((found, missing))
}

/// Merges neighbouring chunks into units. A chunk of several parts gets a unit of its own, with the
/// parts in their order, so that the encoded chunk is contiguous in the buffer.
fn merge_chunks(
    found: Vec<(Location, NeededChunk)>,
    codec: &ChunkCodec,
    merging: MergeRules<'_>,
    bytes_max: u64,
    units: &mut Vec<Unit>,
) -> Result<()> {
    let mut current = Unit::default();
    for (location, wanted) in found {
        let bytes = location.bytes();
        if bytes > codec.encoded_bytes_max() {
            let decoded = codec.decoded_bytes();
            let message = format!("{bytes} bytes are more than a chunk of {decoded} can have");
            return Err(Error::corrupt(format!("chunk {}", wanted.task.position), message));
        }
        let (extent, skip, length) = (location.extent, location.skip, index(bytes));
        if !location.rest.is_empty() {
            let extents = location.parts().collect();
            let chunks = vec![FetchedChunk { wanted, start: 0, length, extent, skip }];
            units.push(Unit { extents, chunks, ..Unit::default() });
            continue;
        }
        let start = match current.extents.last_mut() {
            Some(last)
                if extent.offset >= last.offset
                    && extent.offset <= last.end().saturating_add(merging.gap_bytes)
                    && extent.end().saturating_sub(last.offset) <= bytes_max =>
            {
                let start = extent.offset - last.offset;
                last.length = last.length.max(extent.end() - last.offset);
                start
            }
            last => {
                if last.is_some() {
                    units.push(std::mem::take(&mut current));
                }
                current.extents.push(extent);
                0
            }
        };
        current.chunks.push(FetchedChunk { wanted, start: index(start), length, extent, skip });
    }
    if !current.chunks.is_empty() {
        units.push(current);
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Lengths were checked against the largest encoded chunk.
    value as usize
}
