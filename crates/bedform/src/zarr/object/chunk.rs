//! The chunks of an object that is written: new, merged with stored elements, kept as stored, or left
//! out.

use bedform_codec::Scratch;
use bedform_format::shard::Extent;
use bedform_geometry::delinearize;
use bedform_storage::Object;

use super::{ExistingObject, ObjectWrite};
use crate::error::{Error, Result};
use crate::plan::geometry::ChunkTask;
use crate::threads::budget::MemoryReservation;
use crate::write::elements::{ChunkElements, is_outside};
use crate::write::sink::StoredUnit;

/// The outcome for one chunk of an object.
pub(super) enum ChunkOutcome {
    /// Encoded anew.
    Made {
        encoded: Vec<u8>,
        /// Memory of the elements, out of the shared budget.
        room: Option<MemoryReservation>,
        /// True if this write supplies all elements of the chunk.
        is_complete: bool,
    },
    /// Copied as stored.
    Kept(Vec<u8>),
    /// Not stored: every element is the fill value.
    Dropped,
}

/// Decides about the chunk at a position. The last argument is a buffer for the encoded chunk.
pub(super) type DecideChunk<'a> =
    dyn Fn(u64, &mut EncodeBuffers, Vec<u8>) -> Result<ChunkOutcome> + Sync + 'a;

/// Memory that one encoding thread reuses from chunk to chunk.
#[derive(Default)]
pub(super) struct EncodeBuffers {
    chunk: ChunkElements,
    pub(super) scratch: Scratch,
    /// Buffer of an encoded chunk, before it is moved into the memory of its elements.
    pub(super) encoded: Vec<u8>,
}

impl ObjectWrite<'_> {
    /// Decides about the chunk at `position`, whose new elements `task` names; encodes it into
    /// `output`.
    pub(super) fn fate(
        &self,
        position: u64,
        task: Option<ChunkTask>,
        existing: &ExistingObject<'_>,
        worker: &mut EncodeBuffers,
        mut output: Vec<u8>,
    ) -> Result<ChunkOutcome> {
        let state = self.state();
        let coordinates = self.chunk_coordinates(position);
        let stored = match existing.stored {
            Some(StoredUnit { object, locations, .. }) => {
                let place = locations.locate(position);
                let place = place.map_err(|error| Error::corrupt(self.name(), error))?;
                place.map(|location| (&**object, location.extent))
            }
            None => None,
        };
        let region = || state.layout.grid.chunk_region(&coordinates);
        let outside =
            self.valid.is_some_and(|valid| is_outside(&state.layout.grid, &coordinates, valid));
        let stored = stored.filter(|_| !outside);
        let crosses = self.valid.is_some_and(|valid| {
            let region = region();
            (0..valid.len()).any(|axis| region.end(axis) > valid[axis])
        });
        let cover = existing.cover.as_deref().filter(|cover| cover.touches(&coordinates));
        match (task, stored) {
            (None, None) if cover.is_none() => return Ok(ChunkOutcome::Dropped),
            (None, Some((object, extent))) if !crosses && cover.is_none() => {
                return Ok(ChunkOutcome::Kept(self.read_stored(object, extent)?));
            }
            _ => {}
        }
        let is_complete = match (task, self.plan) {
            (Some(task), Some((plan, cell))) => plan.covers_chunk(cell, task),
            _ => false,
        };
        let covered = is_complete && self.is_whole(&region());
        match stored {
            Some((object, extent)) if !covered => {
                let encoded = self.read_stored(object, extent)?;
                worker
                    .chunk
                    .load(&state.layout, &encoded, &mut worker.scratch, &self.input)
                    .map_err(|error| self.at_chunk(&coordinates, error))?;
                if let (true, Some(valid)) = (crosses, self.valid) {
                    worker.chunk.trim(&state.layout, &coordinates, valid)?;
                }
            }
            // A covered chunk inside the array has no element that needs the fill value.
            _ if covered && self.is_inside(&region()) => {
                worker.chunk.make_room(&state.layout);
            }
            _ => worker.chunk.clear(&state.layout),
        }
        if let (Some(cover), false) = (cover, covered) {
            worker.chunk.lay(&coordinates, cover)?;
        }
        if let (Some(task), Some((plan, cell))) = (task, self.plan) {
            plan.for_each_copy(cell, task, state.layout.codec.strides(), |copy| {
                worker.chunk.put(&state.layout, copy, &self.input)
            })?;
        }
        if worker.chunk.is_fill(&state.layout) && !self.keeps_fill(existing)? {
            return Ok(ChunkOutcome::Dropped);
        }
        worker.chunk.encode(&state.layout, &self.input, &mut worker.scratch, &mut output)?;
        Ok(ChunkOutcome::Made { encoded: output, room: None, is_complete })
    }

    pub(super) fn chunk_coordinates(&self, position: u64) -> Vec<u64> {
        let per_object = &self.state().layout.per_object;
        delinearize(position, per_object)
            .iter()
            .zip(&self.coordinates)
            .zip(per_object)
            .map(|((inside, object), count)| object * count + inside)
            .collect()
    }

    fn read_stored(&self, object: &dyn Object, extent: Extent) -> Result<Vec<u8>> {
        if extent.length > self.state().layout.codec.encoded_bytes_max() {
            let text = format!("a chunk of {} bytes is larger than any can be", extent.length);
            return Err(Error::corrupt(self.name(), text));
        }
        let mut bytes = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
        object.read(extent.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn at_chunk(&self, coordinates: &[u64], error: Error) -> Error {
        error.at(format!("cannot merge with chunk {coordinates:?} of {}", self.name()))
    }
}
