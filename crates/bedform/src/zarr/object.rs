//! Writes of one object of an array: a shard, or a chunk where the array has no shards.
//!
//! Each chunk of the object is encoded anew, merged with stored elements, copied as it is stored,
//! or left out. The chunks follow each other in the array's order; a shard ends with its stamp and
//! index. The object is written without a name and published in one step, on condition that the
//! stored object has not changed. If it has, the write merges again with the newer object, up to
//! `ATTEMPTS_MAX` times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_codec::Scratch;
use bedform_format::ObjectPath;
use bedform_format::shard::{Extent, ShardIndex, Stamp};
use bedform_geometry::{ChunkGrid, Region, delinearize};
use bedform_storage::{Condition, Durability, Object, ObjectWriter, StorageError, WriteHint};

use super::hierarchy::Hierarchy;
use super::kept::keep;
use super::source::{ZarrSource, contained_commit};
use super::state::ArrayState;
use super::tally::{EncodedChunks, is_predicted};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::source::{ChunkLocations, Cover, Moment};
use crate::threads::budget::MemoryReservation;
use crate::threads::check::RunningCheck;
use crate::threads::ordered::in_order;
use crate::threads::permits::CpuPermits;
use crate::write::elements::{ChunkElements, WriteInput, is_outside};
use crate::write::sink::{BuiltChunk, BuiltUnit, StagedUnit, StoredUnit, WriteResources};

/// Attempts to merge and publish while other writers replace the object.
const ATTEMPTS_MAX: usize = 1000;
/// Consecutive refusals after which a write gives up, if the stored object had the same version
/// each time.
const UNMOVED_MAX: usize = 8;

/// Bytes of decoded chunks that may be encoded ahead of the chunk that is appended next.
const WINDOW_BYTES: usize = 16 << 20;

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

/// An object that is written and not yet published.
struct UnpublishedObject<'a> {
    /// `None` for an object without chunks that may be absent.
    writer: Option<Box<dyn ObjectWriter + 'a>>,
    path: ObjectPath,
    /// Memory of the chunks in an upload: held until the server has received the object.
    rooms: Vec<MemoryReservation>,
}

impl UnpublishedObject<'_> {
    /// As [`StagedUnit::hand_over`].
    fn hand_over(&mut self) -> Result<()> {
        Ok(self.writer.as_mut().map_or(Ok(()), |writer| writer.hand_over())?)
    }
}

/// An object of built chunks, written and not yet published.
struct StagedObject<'a> {
    write: ObjectWrite<'a>,
    built: &'a BuiltUnit,
    staged: UnpublishedObject<'a>,
}

impl StagedUnit for StagedObject<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.staged.hand_over()
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        let Self { write, built, staged } = *self;
        match write.put(built.stored.as_ref(), false, staged) {
            // `valid` was computed for the earlier object. The object stored now may contain
            // commits that made the array larger; its cover supplies the elements that do not
            // count.
            Err(error) if is_lost_race(&error) => ObjectWrite { valid: None, ..write }.run(),
            outcome => outcome,
        }
    }
}

/// An object of new, merged and kept chunks, written and not yet published.
struct StagedChange<'a> {
    write: ObjectWrite<'a>,
    /// The stored object that was merged.
    stored: Option<StoredUnit>,
    alone: bool,
    staged: UnpublishedObject<'a>,
}

impl StagedUnit for StagedChange<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.staged.hand_over()
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        let Self { write, stored, alone, staged } = *self;
        match write.put(stored.as_ref(), alone, staged) {
            Err(error) if is_lost_race(&error) => write.run(),
            outcome => outcome,
        }
    }
}

/// The outcome for one chunk of an object.
enum ChunkOutcome {
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
type DecideChunk<'a> = dyn Fn(u64, &mut EncodeBuffers, Vec<u8>) -> Result<ChunkOutcome> + Sync + 'a;

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
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "{} cannot be replaced: others are said to have changed it, {UNMOVED_MAX} times, \
                         and it is as it was; retry, and ask who runs the storage if that does not help",
                        self.source.object_name_of(&self.coordinates)
                    ),
                ));
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
        Error::new(
            ErrorKind::Conflict,
            format!(
                "{} was changed by other writers {ATTEMPTS_MAX} times while it was merged; retry",
                self.source.object_name_of(&self.coordinates)
            ),
        )
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
                Err(Error::new(
                    ErrorKind::SnapshotMoved,
                    format!(
                        "{} contains commits that this write has not seen",
                        self.source.object_name_of(&self.coordinates)
                    ),
                ))
            }
            existing => Ok((existing?, false)),
        }
    }

    /// The cover of the object, which contains the commits up to `contained`.
    fn cover(&self, contained: u64) -> Result<Option<Arc<dyn Cover>>> {
        let name = || self.source.object_name_of(&self.coordinates);
        self.moment.cover(&self.coordinates, contained, &name)
    }

    fn open_existing(&self) -> Result<Option<StoredUnit>> {
        open_stored(self.source, &self.coordinates)
    }

    /// Writes the object without a name; `fate` decides about the chunk at a position.
    fn stage(
        &self,
        existing: &ExistingObject<'_>,
        fate: &DecideChunk<'_>,
    ) -> Result<UnpublishedObject<'a>> {
        let state = self.state();
        let hierarchy = self.source.hierarchy;
        if state.is_open {
            let name = hierarchy.name_of(self.source.path);
            let text = format!("internal error: {name} has no codecs, and was to be written");
            return Err(Error::new(ErrorKind::Io, text));
        }
        let order = state.order.sequence(&state.layout.per_object)?;
        let expected: u64 = order.len() as u64 * state.layout.codec.decoded_bytes() as u64;
        let hint = WriteHint { bytes: Some(expected), at_once: self.resources.at_once };
        let path = self.source.object_path(&self.coordinates)?;
        hierarchy.sweep_once(&path.parent());
        let created = hierarchy.storage.create(&path, hierarchy.options.durability, hint);
        let mut writer = created.map_err(moved_if_gone)?;
        let mut extents = vec![None; order.len()];
        // Named codecs have no prediction to compare with.
        let mut made = is_predicted(&state.metadata).then(EncodedChunks::default);
        // An upload keeps its bytes in memory until the server has them.
        let (is_remote, mut rooms) = (hierarchy.storage.is_remote(), Vec::new());
        // Buffers are reused: zeroing new memory costs as much as filling it.
        let spare: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let window = (WINDOW_BYTES / state.layout.codec.decoded_bytes().max(1)).clamp(2, 1 << 12);
        // Merging waits for reads of the stored object; a new object is CPU work only and takes a
        // permit.
        let turn = self
            .resources
            .permits
            .as_deref()
            .filter(|_| existing.stored.is_none())
            .map(CpuPermits::take);
        in_order(
            order.len(),
            self.resources.threads,
            window,
            EncodeBuffers::default,
            |at, worker| {
                let position = order[at];
                let output = spare().pop().unwrap_or_default();
                fate(position, worker, output).map(|fate| (position, fate))
            },
            |(position, fate)| {
                let (bytes, room) = match fate {
                    ChunkOutcome::Made { encoded, room, is_complete } => {
                        if let Some(made) = &mut made {
                            let chunk = self.chunk_coordinates(position);
                            made.add(&encoded, state.layout.bytes_inside(&chunk), is_complete);
                        }
                        (Some(encoded), room)
                    }
                    ChunkOutcome::Kept(bytes) => (Some(bytes), None),
                    ChunkOutcome::Dropped => (None, None),
                };
                if let Some(bytes) = bytes {
                    let place = usize::try_from(position).unwrap_or(usize::MAX);
                    extents[place] =
                        Some(Extent { offset: writer.position(), length: bytes.len() as u64 });
                    let bytes = match &room {
                        Some(room) => {
                            writer.append_owned(bytes)?.and_then(|bytes| room.reuse(bytes))
                        }
                        // Chunks without reserved memory use the spare buffers.
                        None => writer.append(&bytes).map(|()| Some(bytes))?,
                    };
                    spare().extend(bytes);
                }
                rooms.extend(room.filter(|_| is_remote));
                Ok(())
            },
        )?;
        drop(turn);
        if let Some(made) = made {
            made.count(self.source);
        }
        // For an object of one chunk, `fate` has decided this already when it dropped the chunk.
        let is_chunk = state.shard().is_none();
        if extents.iter().all(Option::is_none) && (is_chunk || self.may_be_absent(existing)?) {
            return Ok(UnpublishedObject { writer: None, path, rooms });
        }
        if !is_chunk {
            self.append_tail(&mut *writer, extents)?;
        }
        Ok(UnpublishedObject { writer: Some(writer), path, rooms })
    }

    /// Publishes a written object under its name; returns its bytes.
    fn put(
        &self,
        stored: Option<&StoredUnit>,
        alone: bool,
        staged: UnpublishedObject<'_>,
    ) -> Result<u64> {
        let UnpublishedObject { writer, path, rooms } = staged;
        let Some(mut writer) = writer else { return self.leave_absent(&path).map(|()| 0) };
        let bytes = writer.position();
        let condition = match (alone, stored) {
            (true, _) => Condition::None,
            (false, Some(stored)) => Condition::Unchanged(&*stored.object),
            (false, None) => Condition::Absent,
        };
        self.wait_for_check()?;
        if let Some(suffix) = self.kept_beside {
            let stored = stored.map(|stored| stored.object.version());
            // Without the kept object, snapshots report that the data have moved on.
            let _ = keep(self.source, &self.coordinates, stored, (&mut *writer, suffix));
        }
        if stored.is_none() {
            // For a stored object its stamp has been checked already.
            self.source.check_is_there()?;
        }
        writer.publish(condition).map_err(moved_if_gone)?;
        drop(rooms);
        Ok(bytes)
    }

    /// True if an object without chunks may be absent. With a log it may not: its stamp says which
    /// commits it contains. It also may not where it replaces an object: a snapshot takes absence
    /// to mean that the object was absent at the snapshot's moment.
    fn may_be_absent(&self, existing: &ExistingObject<'_>) -> Result<bool> {
        if !self.moment.is_settled() {
            return Ok(false);
        }
        if !existing.alone {
            return Ok(existing.stored.is_none());
        }
        match self.source.hierarchy.storage.stat(&self.source.object_path(&self.coordinates)?) {
            Err(error) if error.is_not_found() => Ok(true),
            there => there.map(|_| false).map_err(Error::from),
        }
    }

    /// True if a chunk of fill values must be written: the object is one chunk, and lies on a
    /// server or may not be absent.
    fn keeps_fill(&self, existing: &ExistingObject<'_>) -> Result<bool> {
        let is_chunk = self.state().shard().is_none();
        Ok(is_chunk
            && (self.source.hierarchy.storage.is_remote() || !self.may_be_absent(existing)?))
    }

    fn wait_for_check(&self) -> Result<()> {
        self.check.map_or(Ok(()), RunningCheck::wait)
    }

    /// Leaves an object without chunks absent, durably.
    fn leave_absent(&self, path: &ObjectPath) -> Result<()> {
        self.wait_for_check()?;
        let hierarchy = self.source.hierarchy;
        // The writer that deleted it may have crashed before it synced the directory.
        if hierarchy.options.durability == Durability::Disk {
            hierarchy.storage.sync(&path.parent())?;
        }
        Ok(())
    }

    /// Decides about the chunk at `position`, whose new elements `task` names; encodes it into
    /// `output`.
    fn fate(
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
                let place = locations.locate(position).map_err(|error| {
                    Error::corrupt(self.source.object_name_of(&self.coordinates), error)
                })?;
                place.map(|location| (&**object, location.extent))
            }
            None => None,
        };
        let outside =
            self.valid.is_some_and(|valid| is_outside(&state.layout.grid, &coordinates, valid));
        let stored = stored.filter(|_| !outside);
        let crosses = self.valid.is_some_and(|valid| {
            let region = state.layout.grid.chunk_region(&coordinates);
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
        let covered = is_complete && self.is_whole(&state.layout.grid.chunk_region(&coordinates));
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
            _ if covered && self.is_inside(&state.layout.grid.chunk_region(&coordinates)) => {
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

    fn chunk_coordinates(&self, position: u64) -> Vec<u64> {
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
            return Err(Error::corrupt(
                self.source.object_name_of(&self.coordinates),
                format!("a chunk of {} bytes is larger than any can be", extent.length),
            ));
        }
        let mut bytes = vec![0; usize::try_from(extent.length).unwrap_or(usize::MAX)];
        object.read(extent.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn at_chunk(&self, coordinates: &[u64], error: Error) -> Error {
        let name = self.source.object_name_of(&self.coordinates);
        error.at(format!("cannot merge with chunk {coordinates:?} of {name}"))
    }

    /// Appends the stamp and the index of a shard.
    fn append_tail(
        &self,
        writer: &mut dyn ObjectWriter,
        extents: Vec<Option<Extent>>,
    ) -> Result<()> {
        let state = self.state();
        let Some(shard) = state.shard() else { return Ok(()) };
        if shard.index_at_start {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{}: shards with their index at the start are only read; convert the array",
                    self.source.object_name_of(&self.coordinates)
                ),
            ));
        }
        if let Some(identity) = state.identity() {
            let stamp = Stamp {
                identity: *identity,
                commit: self.commit(),
                data_bytes: writer.position(),
                coordinates: self.coordinates.clone(),
            };
            writer.append(&stamp.encode())?;
        }
        let index = ShardIndex::new(extents).encode(shard.index_checked);
        writer.append(&index)?;
        Ok(())
    }
}

/// Memory that one encoding thread reuses from chunk to chunk.
#[derive(Default)]
struct EncodeBuffers {
    chunk: ChunkElements,
    scratch: Scratch,
    /// Buffer of an encoded chunk, before it is moved into the memory of its elements.
    encoded: Vec<u8>,
}
