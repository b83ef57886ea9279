//! One object: which of its chunks are new, merged or kept, in which order they follow each other,
//! and the tail behind them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_codec::Scratch;
use bedform_format::ObjectPath;
use bedform_format::shard::{Extent, ShardIndex, Stamp};
use bedform_geometry::{ChunkGrid, Region, delinearize};
use bedform_storage::{Condition, Durability, Hint, Object, ObjectWriter, StorageError};

use super::hierarchy::Hierarchy;
use super::kept::keep;
use super::source::{ZarrSource, contained_commit};
use super::state::ArrayState;
use super::tally::{EncodedChunks, is_predicted};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::source::{ChunkLocations, Cover, Moment};
use crate::threads::budget::Reservation;
use crate::threads::check::Check;
use crate::threads::ordered::in_order;
use crate::threads::permits::CpuPermits;
use crate::write::elements::{ChunkElements, Input, is_outside};
use crate::write::sink::{BuiltChunk, BuiltUnit, StagedUnit, StoredUnit, WriteResources};

/// Merges that are tried again because another writer was faster.
const ATTEMPTS_MAX: usize = 1000;
/// Refusals in a row of a write to an object that is the same each time.
const UNMOVED_MAX: usize = 8;

/// Bytes of encoded chunks that wait for their turn.
const WINDOW_BYTES: usize = 16 << 20;

/// All of the machine, for one object.
pub(crate) fn whole_machine(hierarchy: &Hierarchy) -> WriteResources {
    WriteResources { threads: hierarchy.tuning.threads, permits: None, at_once: 1 }
}

/// A change of one object.
#[derive(Clone)]
pub(crate) struct ObjectWrite<'a> {
    pub(crate) source: &'a ZarrSource<'a>,
    /// Which commits the object contains once it is written, and what those that it does not contain yet
    /// lay over it.
    pub(crate) moment: &'a dyn Moment,
    /// Which elements are new, and where they are in `input`; `None` if none are.
    pub(crate) plan: Option<(&'a Geometry, u64)>,
    pub(crate) input: Input<'a>,
    /// The object's place in the grid of objects.
    pub(crate) coordinates: Vec<u64>,
    /// Stored elements outside this shape are not to be kept.
    pub(crate) valid: Option<&'a [u64]>,
    pub(crate) resources: WriteResources,
    /// What has to have ended well before anything is put in place.
    pub(crate) check: Option<&'a Check>,
    /// Behind which suffix the place lies that keeps the object that is replaced; nothing if none does.
    pub(crate) kept_beside: Option<&'static str>,
}

/// What an object is before it is written.
struct Existing<'a> {
    stored: Option<&'a StoredUnit>,
    /// True if it is replaced whatever it is by then: it was not looked at.
    alone: bool,
    /// What commits that are not settled lay over it.
    cover: Option<Arc<dyn Cover>>,
}

impl<'a> Existing<'a> {
    /// What was stored when the chunks of `built` were.
    fn of(built: &'a BuiltUnit) -> Self {
        Self { stored: built.stored.as_ref(), alone: false, cover: None }
    }
}

/// The object at `coordinates` and the places of its chunks; `None` if there is none.
///
/// # Errors
/// `Corrupt` by its tail; those of storage.
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

/// The error of a write into directories that are gone: the array was deleted meanwhile, and who looks again finds that
/// out.
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

/// An object that is written, and has no name yet.
struct Staged<'a> {
    /// Nothing for an object without chunks that need not be there.
    writer: Option<Box<dyn ObjectWriter + 'a>>,
    path: ObjectPath,
    /// What a server gets stays in memory until it has it.
    rooms: Vec<Reservation>,
}

impl Staged<'_> {
    /// As [`StagedUnit::hand_over`].
    fn hand_over(&mut self) -> Result<()> {
        Ok(self.writer.as_mut().map_or(Ok(()), |writer| writer.hand_over())?)
    }
}

/// An object of chunks that were built, written and without a name yet.
struct StagedObject<'a> {
    write: ObjectWrite<'a>,
    built: &'a BuiltUnit,
    staged: Staged<'a>,
}

impl StagedUnit for StagedObject<'_> {
    fn hand_over(&mut self) -> Result<()> {
        self.staged.hand_over()
    }

    fn publish(self: Box<Self>) -> Result<u64> {
        let Self { write, built, staged } = *self;
        match write.put(built.stored.as_ref(), false, staged) {
            // What is stored now may contain commits that made the array larger: what it does not
            // contain says by itself what of it does not count.
            Err(error) if is_lost_race(&error) => ObjectWrite { valid: None, ..write }.run(),
            outcome => outcome,
        }
    }
}

/// An object of new, merged and kept chunks, written and without a name yet.
struct StagedChange<'a> {
    write: ObjectWrite<'a>,
    /// What it was merged with.
    stored: Option<StoredUnit>,
    alone: bool,
    staged: Staged<'a>,
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

/// What becomes of one chunk.
enum Fate {
    /// Encoded anew.
    Made {
        encoded: Vec<u8>,
        /// That of the elements.
        room: Option<Reservation>,
        /// Whether this write gives all elements of the chunk.
        is_complete: bool,
    },
    /// Copied as it is stored.
    Kept(Vec<u8>),
    /// Not stored: every element is the fill value.
    Dropped,
}

/// What becomes of the chunk at a position; takes memory for the encoded chunk.
type FateOf<'a> = dyn Fn(u64, &mut Worker, Vec<u8>) -> Result<Fate> + Sync + 'a;

impl<'a> ObjectWrite<'a> {
    /// Writes the object of chunks that were built from what `built` says is stored. If that has changed when it
    /// is published they are built again.
    ///
    /// # Errors
    /// As [`ObjectWrite::run`].
    pub(crate) fn stage_built(self, built: &'a BuiltUnit) -> Result<Box<dyn StagedUnit + 'a>> {
        let staged = self.write_built(built)?;
        Ok(Box::new(StagedObject { write: self, built, staged }))
    }

    fn write_built(&self, built: &BuiltUnit) -> Result<Staged<'a>> {
        let existing = Existing::of(built);
        // What a server gets stays in memory until it has it: in that of the elements.
        let is_remote = self.source.hierarchy.storage.is_remote();
        let fate = |position: u64, worker: &mut Worker, mut output: Vec<u8>| {
            let mut chunks = built.chunks.lock().unwrap_or_else(PoisonError::into_inner);
            let chunk = chunks.remove(&position);
            drop(chunks);
            let Some(BuiltChunk { mut elements, room }) = chunk else {
                return self.fate(position, None, &existing, worker, output);
            };
            if elements.is_fill(&self.state().layout) && !self.keeps_fill(&existing)? {
                return Ok(Fate::Dropped);
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
            Ok(Fate::Made { encoded: output, room, is_complete: false })
        };
        self.stage(&existing, &fate)
    }

    /// Writes the object; gives its bytes.
    ///
    /// # Errors
    /// Those of storage; `Corrupt` if a chunk to merge with is damaged; `Conflict` if other writers
    /// were faster for ever.
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

    /// Writes the object, seen by nobody. If what it was merged with has changed when it is published it is
    /// written again.
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

    /// What is new of the object, by the positions of its chunks.
    fn tasks(&self) -> HashMap<u64, ChunkTask> {
        let Some((plan, cell)) = self.plan else { return HashMap::new() };
        plan.tasks(cell).into_iter().map(|task| (task.position, task)).collect()
    }

    /// The object before the change, which `covers` all of it or does not, and whether it is replaced whatever it
    /// is by then.
    fn open_before(&self, covers: bool) -> Result<(Option<StoredUnit>, bool)> {
        match covers {
            true => self.open_covered(),
            false => Ok((self.open_existing()?, false)),
        }
    }

    /// Writes the object as the change makes it of what is stored.
    fn stage_over(
        &self,
        tasks: &HashMap<u64, ChunkTask>,
        covers: bool,
        stored: Option<&StoredUnit>,
        alone: bool,
    ) -> Result<Staged<'a>> {
        let cover = match covers {
            true => None,
            false => self.cover(stored.map_or(0, |stored| stored.contained))?,
        };
        let existing = Existing { stored, alone, cover };
        let fate = |position: u64, worker: &mut Worker, output: Vec<u8>| {
            let task = tasks.get(&position).copied();
            self.fate(position, task, &existing, worker, output)
        };
        self.stage(&existing, &fate)
    }

    fn state(&self) -> &ArrayState {
        self.source.state
    }

    /// The last commit that the object contains once it is written; 0 before the first one of all.
    fn commit(&self) -> u64 {
        self.moment.number()
    }

    /// True if every stored element is replaced, so that nothing has to be read.
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

    /// True if nobody else can be writing elements of `region` that we do not know of. An append that
    /// is under way writes behind the array's end as we know it; who appends holds the lock.
    fn is_whole(&self, region: &Region) -> bool {
        self.valid.is_some() || self.is_inside(region)
    }

    /// True if the region does not overhang the array.
    fn is_inside(&self, region: &Region) -> bool {
        let shape = &self.state().metadata.shape;
        (0..shape.len()).all(|axis| region.end(axis) <= shape[axis])
    }

    /// The object before all of it is replaced, and whether it is replaced whatever it is by then. While
    /// there are commits that are not settled it is not: who settles may be ahead of our snapshot, and
    /// what the object contains by its stamp must not become less.
    fn open_covered(&self) -> Result<(Option<StoredUnit>, bool)> {
        if self.moment.is_settled() {
            return Ok((None, true));
        }
        match self.open_existing() {
            // To write all of it anew is the remedy.
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

    /// What lies over the object, which contains the commits up to `contained`.
    fn cover(&self, contained: u64) -> Result<Option<Arc<dyn Cover>>> {
        let name = || self.source.object_name_of(&self.coordinates);
        self.moment.cover(&self.coordinates, contained, &name)
    }

    fn open_existing(&self) -> Result<Option<StoredUnit>> {
        open_stored(self.source, &self.coordinates)
    }

    /// Writes the object; `fate` says what becomes of the chunk at a position.
    fn stage(&self, existing: &Existing<'_>, fate: &FateOf<'_>) -> Result<Staged<'a>> {
        let state = self.state();
        let hierarchy = self.source.hierarchy;
        if state.is_open {
            let name = hierarchy.name_of(self.source.path);
            let text = format!("internal error: {name} has no codecs, and was to be written");
            return Err(Error::new(ErrorKind::Io, text));
        }
        let order = state.order.sequence(&state.layout.per_object)?;
        let expected: u64 = order.len() as u64 * state.layout.codec.decoded_bytes() as u64;
        let hint = Hint { bytes: Some(expected), at_once: self.resources.at_once };
        let path = self.source.object_path(&self.coordinates)?;
        hierarchy.sweep_once(&path.parent());
        let created = hierarchy.storage.create(&path, hierarchy.options.durability, hint);
        let mut writer = created.map_err(moved_if_gone)?;
        let mut extents = vec![None; order.len()];
        // Of named codecs nothing was predicted.
        let mut made = is_predicted(&state.metadata).then(EncodedChunks::default);
        // What a server gets stays in memory until it has it.
        let (is_remote, mut rooms) = (hierarchy.storage.is_remote(), Vec::new());
        // Buffers go round: memory that is new costs as much as to fill it.
        let spare: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let window = (WINDOW_BYTES / state.layout.codec.decoded_bytes().max(1)).clamp(2, 1 << 12);
        // What is stored is waited for; an object that is new only takes a processor.
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
            Worker::default,
            |at, worker| {
                let position = order[at];
                let output = spare().pop().unwrap_or_default();
                fate(position, worker, output).map(|fate| (position, fate))
            },
            |(position, fate)| {
                let (bytes, room) = match fate {
                    Fate::Made { encoded, room, is_complete } => {
                        if let Some(made) = &mut made {
                            let chunk = self.chunk_coordinates(position);
                            made.add(&encoded, state.layout.bytes_inside(&chunk), is_complete);
                        }
                        (Some(encoded), room)
                    }
                    Fate::Kept(bytes) => (Some(bytes), None),
                    Fate::Dropped => (None, None),
                };
                if let Some(bytes) = bytes {
                    let place = usize::try_from(position).unwrap_or(usize::MAX);
                    extents[place] =
                        Some(Extent { offset: writer.position(), length: bytes.len() as u64 });
                    let bytes = match &room {
                        Some(room) => {
                            writer.append_owned(bytes)?.and_then(|bytes| room.reuse(bytes))
                        }
                        // Others have no memory of their own, which goes round.
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
        // Of an object that is one chunk this was asked when the chunk was dropped.
        let is_chunk = state.shard().is_none();
        if extents.iter().all(Option::is_none) && (is_chunk || self.may_be_absent(existing)?) {
            return Ok(Staged { writer: None, path, rooms });
        }
        if !is_chunk {
            self.append_tail(&mut *writer, extents)?;
        }
        Ok(Staged { writer: Some(writer), path, rooms })
    }

    /// Gives what was written the object's name; gives its bytes.
    fn put(&self, stored: Option<&StoredUnit>, alone: bool, staged: Staged<'_>) -> Result<u64> {
        let Staged { writer, path, rooms } = staged;
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
            // Snapshots say that the data have moved on where nothing was kept.
            let _ = keep(self.source, &self.coordinates, stored, (&mut *writer, suffix));
        }
        if stored.is_none() {
            // Of what is there the stamp has said so.
            self.source.check_is_there()?;
        }
        writer.publish(condition).map_err(moved_if_gone)?;
        drop(rooms);
        Ok(bytes)
    }

    /// True if an object without chunks need not be there. While there is a log it still says which commits it
    /// contains; and it has to take the place of what is there: to who holds a snapshot an object that is absent
    /// was so at its moment.
    fn may_be_absent(&self, existing: &Existing<'_>) -> Result<bool> {
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

    /// True if a chunk of fill values is kept: an object that is one chunk, and has to be there.
    fn keeps_fill(&self, existing: &Existing<'_>) -> Result<bool> {
        let is_chunk = self.state().shard().is_none();
        Ok(is_chunk
            && (self.source.hierarchy.storage.is_remote() || !self.may_be_absent(existing)?))
    }

    fn wait_for_check(&self) -> Result<()> {
        self.check.map_or(Ok(()), Check::wait)
    }

    /// Leaves an object without chunks as it is: absent.
    fn leave_absent(&self, path: &ObjectPath) -> Result<()> {
        self.wait_for_check()?;
        let hierarchy = self.source.hierarchy;
        // Whoever deleted it before us may not have lived to sync that.
        if hierarchy.options.durability == Durability::Disk {
            hierarchy.storage.sync(&path.parent())?;
        }
        Ok(())
    }

    /// What becomes of the chunk at `position`.
    fn fate(
        &self,
        position: u64,
        task: Option<ChunkTask>,
        existing: &Existing<'_>,
        worker: &mut Worker,
        mut output: Vec<u8>,
    ) -> Result<Fate> {
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
            (None, None) if cover.is_none() => return Ok(Fate::Dropped),
            (None, Some((object, extent))) if !crosses && cover.is_none() => {
                return Ok(Fate::Kept(self.read_stored(object, extent)?));
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
            // A covered chunk that does not overhang has no element left to be the fill value.
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
            return Ok(Fate::Dropped);
        }
        worker.chunk.encode(&state.layout, &self.input, &mut worker.scratch, &mut output)?;
        Ok(Fate::Made { encoded: output, room: None, is_complete })
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

    /// Stamp and index.
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

/// What one encoding thread uses again from chunk to chunk.
#[derive(Default)]
struct Worker {
    chunk: ChunkElements,
    scratch: Scratch,
    /// What a chunk is encoded into before it is moved into its elements' memory.
    encoded: Vec<u8>,
}
