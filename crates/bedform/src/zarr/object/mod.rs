//! Writes of one object of an array: a shard, or a chunk where the array has no shards.
//!
//! Each chunk of the object is encoded anew, merged with stored elements, copied as it is stored,
//! or left out. The chunks follow each other in the array's order; a shard ends with its stamp and
//! index. The object is written without a name and published in one step, on condition that the
//! stored object has not changed. If it has, the write merges again with the newer object, up to
//! `ATTEMPTS_MAX` times.
//!
//! | module | holds |
//! |---|---|
//! | `chunk` | the decision about one chunk, and its encoding |
//! | `stage` | the object written without a name |
//! | `publication` | its publication, and the units that await theirs |

mod chunk;
mod publication;
mod stage;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use bedform_format::shard::Stamp;
use bedform_geometry::{ChunkGrid, Region};
use bedform_storage::StorageError;

use super::hierarchy::Hierarchy;
use super::source::{ZarrSource, contained_commit};
use super::state::ArrayState;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::source::{ChunkLocations, Cover, Moment};
use crate::threads::check::RunningCheck;
use crate::write::elements::WriteInput;
use crate::write::sink::{BuiltChunk, BuiltUnit, StagedUnit, StoredUnit, WriteResources};

use chunk::{ChunkOutcome, EncodeBuffers};
use publication::{StagedChange, StagedObject, UnpublishedObject};

/// Attempts to merge and publish while other writers replace the object.
const ATTEMPTS_MAX: usize = 1000;
/// Consecutive refusals after which a write gives up, if the stored object had the same version
/// each time.
const UNMOVED_MAX: usize = 8;

/// Gives one object all threads of the machine.
pub(crate) fn whole_machine(hierarchy: &Hierarchy) -> WriteResources {
    WriteResources { threads: hierarchy.tuning.threads, permits: None, at_once: 1 }
}

/// A change of one object.
#[derive(Clone)]
pub(crate) struct ObjectWrite<'a> {
    pub(crate) source: &'a ZarrSource<'a>,
    /// The commits that the object contains once it is written, and the cover of those that it does
    /// not contain yet.
    pub(crate) moment: &'a dyn Moment,
    /// The read geometry and the number of its cell: which elements are new, and their places in
    /// `input`. `None` if none are.
    pub(crate) plan: Option<(&'a Geometry, u64)>,
    pub(crate) input: WriteInput<'a>,
    /// The object's coordinates in the grid of objects.
    pub(crate) coordinates: Vec<u64>,
    /// Stored elements outside this shape are discarded.
    pub(crate) valid: Option<&'a [u64]>,
    pub(crate) resources: WriteResources,
    /// A check that must have passed before the object is published.
    pub(crate) check: Option<&'a RunningCheck>,
    /// The suffix of the place beside the store in which the replaced object is kept; `None` to
    /// keep none.
    pub(crate) kept_beside: Option<&'static str>,
}

/// The object as it was found before the write.
struct ExistingObject<'a> {
    stored: Option<&'a StoredUnit>,
    /// True if the object is replaced unconditionally: the stored one was not opened, or is
    /// damaged.
    alone: bool,
    /// The elements of unsettled commits over the object.
    cover: Option<Arc<dyn Cover>>,
}

impl<'a> ExistingObject<'a> {
    /// Takes the object that was stored when the chunks of `built` were made.
    fn of(built: &'a BuiltUnit) -> Self {
        Self { stored: built.stored.as_ref(), alone: false, cover: None }
    }
}

/// Opens the object at `coordinates` and locates its chunks; `None` if there is no object.
///
/// # Errors
/// `Corrupt` if its tail is damaged; those of storage.
pub(crate) fn open_stored(
    source: &ZarrSource<'_>,
    coordinates: &[u64],
) -> Result<Option<StoredUnit>> {
    let Some(object) = source.open_object(coordinates)? else { return Ok(None) };
    if source.state.shard().is_none() {
        let locations = ChunkLocations::Whole(object.version().size);
        return Ok(Some(StoredUnit { object, locations, contained: 0, is_ours: false }));
    }
    let (index, _) = source.read_index(coordinates, &*object, &|| ())?;
    let (contained, is_ours) = (contained_commit(&index), Stamp::decode(index.before()).is_ok());
    let locations = ChunkLocations::Index(Arc::new(index));
    Ok(Some(StoredUnit { object, locations, contained, is_ours }))
}

/// Turns `NotFound` into `SnapshotMoved`: the directories are gone, so the array was deleted
/// meanwhile and must be looked up again.
pub(crate) fn moved_if_gone(error: StorageError) -> Error {
    match error.is_not_found() {
        true => Error::new(ErrorKind::SnapshotMoved, error.to_string()),
        false => error.into(),
    }
}

/// True if another writer was faster.
fn is_lost_race(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Exists)
}

impl<'a> ObjectWrite<'a> {
    /// Writes the object of built chunks, unpublished. If the stored object differs from that of
    /// `built` when this is published, the object is written again by [`ObjectWrite::run`].
    ///
    /// # Errors
    /// As [`ObjectWrite::run`].
    pub(crate) fn stage_built(self, built: &'a BuiltUnit) -> Result<Box<dyn StagedUnit + 'a>> {
        let staged = self.write_built(built)?;
        Ok(Box::new(StagedObject { write: self, built, staged }))
    }

    fn write_built(&self, built: &BuiltUnit) -> Result<UnpublishedObject<'a>> {
        let existing = ExistingObject::of(built);
        // An upload keeps its bytes in memory until the server has them: they are moved into the
        // memory of the elements.
        let is_remote = self.source.hierarchy.storage.is_remote();
        let fate = |position: u64, worker: &mut EncodeBuffers, mut output: Vec<u8>| {
            let mut chunks = built.chunks.lock().unwrap_or_else(PoisonError::into_inner);
            let chunk = chunks.remove(&position);
            drop(chunks);
            let Some(BuiltChunk { mut elements, room }) = chunk else {
                return self.fate(position, None, &existing, worker, output);
            };
            if elements.is_fill(&self.state().layout) && !self.keeps_fill(&existing)? {
                return Ok(ChunkOutcome::Dropped);
            }
            if is_remote {
                output = std::mem::take(&mut worker.encoded);
            }
            elements.encode(&self.state().layout, &self.input, &mut worker.scratch, &mut output)?;
            if is_remote {
                worker.encoded = elements.carry(&mut output);
            } else if let Some(room) = &room {
                room.reuse(elements.into_memory());
            }
            Ok(ChunkOutcome::Made { encoded: output, room, is_complete: false })
        };
        self.stage(&existing, &fate)
    }

    /// Writes and publishes the object; returns its bytes.
    ///
    /// # Errors
    /// Those of storage; `Corrupt` if a stored chunk to merge with is damaged; `Conflict` if other
    /// writers were faster `ATTEMPTS_MAX` times.
    pub(crate) fn run(&self) -> Result<u64> {
        let tasks = self.tasks();
        let covers = self.covers_object(&tasks);
        let (mut last, mut unmoved) = (None, 0);
        for _ in 0..ATTEMPTS_MAX {
            let (stored, alone) = self.open_before(covers)?;
            let staged = self.stage_over(&tasks, covers, stored.as_ref(), alone);
            match staged.and_then(|staged| self.put(stored.as_ref(), alone, staged)) {
                Err(error) if is_lost_race(&error) => {}
                outcome => return outcome,
            }
            let there = stored.map(|stored| stored.object.version().clone());
            unmoved = if last.as_ref() == Some(&there) { unmoved + 1 } else { 0 };
            if unmoved == UNMOVED_MAX {
                let text = format!(
                    "{} cannot be replaced: others are said to have changed it, {UNMOVED_MAX} times, \
                     and it is as it was; retry, and ask who runs the storage if that does not help",
                    self.name()
                );
                return Err(Error::new(ErrorKind::Conflict, text));
            }
            last = Some(there);
        }
        Err(self.lost_for_ever())
    }

    /// Writes the object, unpublished. If the merged object has changed when this is published, it
    /// is merged again.
    ///
    /// # Errors
    /// As [`ObjectWrite::run`].
    pub(crate) fn stage_change(self) -> Result<Box<dyn StagedUnit + 'a>> {
        let tasks = self.tasks();
        let covers = self.covers_object(&tasks);
        for _ in 0..ATTEMPTS_MAX {
            let (stored, alone) = self.open_before(covers)?;
            match self.stage_over(&tasks, covers, stored.as_ref(), alone) {
                Err(error) if is_lost_race(&error) => {}
                Err(error) => return Err(error),
                Ok(staged) => {
                    return Ok(Box::new(StagedChange { write: self, stored, alone, staged }));
                }
            }
        }
        Err(self.lost_for_ever())
    }

    fn lost_for_ever(&self) -> Error {
        let text = format!(
            "{} was changed by other writers {ATTEMPTS_MAX} times while it was merged; retry",
            self.name()
        );
        Error::new(ErrorKind::Conflict, text)
    }

    /// Maps the positions of chunks with new elements to those elements.
    fn tasks(&self) -> HashMap<u64, ChunkTask> {
        let Some((plan, cell)) = self.plan else { return HashMap::new() };
        plan.tasks(cell).into_iter().map(|task| (task.position, task)).collect()
    }

    /// Opens the object before the change. `covers`: the change replaces all of it. The second
    /// result is true if it may be replaced unconditionally.
    fn open_before(&self, covers: bool) -> Result<(Option<StoredUnit>, bool)> {
        match covers {
            true => self.open_covered(),
            false => Ok((self.open_existing()?, false)),
        }
    }

    /// Writes the change merged with the object as it is stored.
    fn stage_over(
        &self,
        tasks: &HashMap<u64, ChunkTask>,
        covers: bool,
        stored: Option<&StoredUnit>,
        alone: bool,
    ) -> Result<UnpublishedObject<'a>> {
        let cover = match covers {
            true => None,
            false => self.cover(stored.map_or(0, |stored| stored.contained))?,
        };
        let existing = ExistingObject { stored, alone, cover };
        let fate = |position: u64, worker: &mut EncodeBuffers, output: Vec<u8>| {
            let task = tasks.get(&position).copied();
            self.fate(position, task, &existing, worker, output)
        };
        self.stage(&existing, &fate)
    }

    fn state(&self) -> &ArrayState {
        self.source.state
    }

    /// The name of the object, for messages.
    fn name(&self) -> String {
        self.source.object_name_of(&self.coordinates)
    }

    /// The last commit that the object contains once it is written; 0 if it contains none.
    fn commit(&self) -> u64 {
        self.moment.number()
    }

    /// True if the change replaces every stored element, so that nothing has to be read.
    fn covers_object(&self, tasks: &HashMap<u64, ChunkTask>) -> bool {
        let Some((plan, cell)) = self.plan else { return false };
        let state = self.state();
        let inside: u64 = self
            .coordinates
            .iter()
            .zip(&state.layout.per_object)
            .zip(state.layout.grid.grid_shape())
            .map(|((at, count), chunks)| chunks.saturating_sub(at * count).min(*count))
            .product();
        let region =
            ChunkGrid::new(state.metadata.shape.clone(), state.metadata.chunk_shape.clone())
                .map(|objects| objects.chunk_region(&self.coordinates));
        region.is_ok_and(|region| self.is_whole(&region))
            && tasks.len() as u64 == inside
            && tasks.values().all(|task| plan.covers_chunk(cell, *task))
    }

    /// True if no other writer can be adding elements to `region` that this write does not know. An
    /// append writes behind the known end of the array, and holds the array's lock meanwhile.
    fn is_whole(&self, region: &Region) -> bool {
        self.valid.is_some() || self.is_inside(region)
    }

    /// True if the region does not pass the end of the array.
    fn is_inside(&self, region: &Region) -> bool {
        let shape = &self.state().metadata.shape;
        (0..shape.len()).all(|axis| region.end(axis) <= shape[axis])
    }

    /// Opens an object that is replaced as a whole; the second result is true if it may be replaced
    /// unconditionally. With unsettled commits it may not: a concurrent settle may be ahead of our
    /// snapshot, and the commit number in the stamp must never decrease.
    fn open_covered(&self) -> Result<(Option<StoredUnit>, bool)> {
        if self.moment.is_settled() {
            return Ok((None, true));
        }
        match self.open_existing() {
            // Writing all of it anew is the remedy.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok((None, true)),
            Ok(Some(stored)) if self.moment.contained(stored.contained) > self.commit() => {
                let text = format!("{} contains commits that this write has not seen", self.name());
                Err(Error::new(ErrorKind::SnapshotMoved, text))
            }
            existing => Ok((existing?, false)),
        }
    }

    /// The cover of the object, which contains the commits up to `contained`.
    fn cover(&self, contained: u64) -> Result<Option<Arc<dyn Cover>>> {
        self.moment.cover(&self.coordinates, contained, &|| self.name())
    }

    fn open_existing(&self) -> Result<Option<StoredUnit>> {
        open_stored(self.source, &self.coordinates)
    }
}
