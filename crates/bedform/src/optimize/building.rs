//! Makes the replicas of a plan one after the other; the catalogue names each once it is complete.
//! Value indexes follow them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bedform_format::metadata::FillValue;
use bedform_format::{Limits, ObjectPath};
use bedform_geometry::{Points, Region, Selection};
use bedform_storage::{Lock, Mode, Storage};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::choose::room_for;
use super::named_budget::text_up;
use super::queries::{index_id, indexed_array};
use super::targets::placement_of;
use super::{
    OptimizeOptions, OptimizePlan, OptimizedSource, PlannedIndex, PlannedReplica, SourcePlace,
    by_kind,
};
use crate::array::{BoundObjects, Elements};
use crate::convert::{
    ArrayLayoutChoice, ConvertOptions, ConvertSource, ConvertTarget, TaskExchange, plan, run,
    run_on_workers,
};
use crate::error::{Error, ErrorKind, Result};
use crate::indexing::{
    BinChoice, IndexCondition, IndexMaker, IndexOptions, MadeIndexes, remove_planned,
};
use crate::layout::Reader;
use crate::opening::storage_in_sidecar;
use crate::options::{OpenOptions, ProgressCallback};
use crate::replica::{
    CATALOGUE, Catalogue, PLACES, Replica, ReplicaObject, ReplicaPositions, fingerprint_of,
    replicas_in,
};
use crate::sidecar::{Helper, REPLICAS, Sidecar};
use crate::size::bytes_text;
use crate::store::{StagedStore, Store};
use crate::threads::workers::check_cancelled;
use crate::zarr::NewArray;

/// Attempts to save the catalogue while other processes change it.
const ATTEMPTS_MAX: usize = 16;
/// Hexadecimal digits of the name of a replica.
const ID_DIGITS: usize = 16;
/// Points that are copied at a time.
const POINTS_AT_ONCE: u64 = 1 << 21;

/// The outcome of [`build`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Optimized {
    /// The replicas that were made.
    pub made: Vec<Replica>,
    /// Names of resting replicas that were compared with the source.
    pub compared: Vec<String>,
    /// Names of resting replicas that were compared with the source and are read again.
    pub woken: Vec<String>,
    /// Names of removed replicas.
    pub dropped: Vec<String>,
    /// The value indexes that were made and removed.
    pub indexes: OptimizedIndexes,
    /// Stored bytes of all replicas and planned indexes now.
    pub bytes: u64,
    /// Remarks for the user.
    pub warnings: Vec<String>,
}

/// The value indexes that [`build`] made and removed.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OptimizedIndexes {
    /// The indexes that were made or renewed.
    pub made: Vec<MadeIndexes>,
    /// Paths of the arrays whose index was removed.
    pub dropped: Vec<String>,
}

/// Makes and drops the replicas and value indexes that `planned` lists; [`plan`](super::plan) made
/// it of the same source. `progress` receives the decoded bytes copied so far and in all. After an
/// interruption, the same call resumes.
///
/// Existing replicas that the plan drops are removed last; until then the sidecar may hold more
/// than the budget. A new replica that takes more bytes than predicted and passes the budget is
/// removed. The dropped ones that then fit stay.
///
/// # Errors
/// `Conflict` if another process makes replicas of the source, or the source has changed since it
/// was planned; `NoSpace`, `PermissionDenied`, `Interrupted`; errors of reading and writing.
/// Replicas that were made before the error stay.
pub fn build(
    place: &SourcePlace,
    planned: &OptimizePlan,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
) -> Result<Optimized> {
    build_by(place, planned, options, progress, None)
}

/// Builds like [`build`]; `exchange` hands the copying to workers, as in
/// [`run_on_workers`](crate::convert::run_on_workers). This process makes replicas of points.
///
/// # Errors
/// Those of [`build`], and those of `exchange`.
pub fn build_by(
    place: &SourcePlace,
    planned: &OptimizePlan,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
    exchange: Option<TaskExchange<'_>>,
) -> Result<Optimized> {
    let mut done = Optimized::default();
    if planned.changes_nothing() {
        let source = OptimizedSource::open(place, options)?;
        remove_leftovers(&source);
        done.bytes = source.existing_bytes();
        return Ok(done);
    }
    let into = directory_of(place, options.sidecars.as_deref())?;
    let directory = into.directory.clone();
    let _lock = locked(place, &into)?;
    let mut source = OptimizedSource::open(place, options)?;
    if source.state != planned.state {
        let text = format!("{} has changed since it was planned: plan again", place.shown());
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    let none = || {
        let text = format!("{}: its sidecar is gone", place.shown());
        Error::new(ErrorKind::NotFound, text)
    };
    let sidecar = &source.sidecar.clone().ok_or_else(none)?;
    let catalogue = NamedCatalogue { sidecar, place };
    catalogue.remove(&source.dead, &mut done)?;
    let of_indexes: u64 = planned.indexes.make.iter().map(|index| index.raw_bytes).sum();
    let all = planned.make.iter().map(|replica| replica.raw_bytes).sum::<u64>() + of_indexes;
    let mut before = 0;
    for replica in &planned.make {
        let telling = |bytes: u64, _: u64| progress(before + bytes, all);
        let made = make(&source, place, &into, replica, options, (&telling, exchange))
            .map_err(|error| in_place(error, &directory))?;
        before += replica.raw_bytes;
        let named = catalogue.change(|replicas| replicas.retain(|one| one.id != made.id))?;
        let bytes = made.stored_bytes + bytes_needed(&stored_by_id(&source, &named)?, planned);
        if bytes > planned.budget_bytes {
            // Its stored bytes exceed the prediction.
            remove(sidecar, &made.id);
            let (array, sizes) = (&made.array, (replica.bytes, made.stored_bytes, bytes));
            done.warnings.push(note_of_size(A_REPLICA, array, sizes, planned.budget_bytes));
            continue;
        }
        catalogue.change(|replicas| {
            replicas.retain(|one| one.id != made.id);
            replicas.push(made.clone());
        })?;
        done.made.push(made);
    }
    let named = catalogue.change(|_| ())?;
    for index in &planned.indexes.make {
        // Renewed, it counts in the budget again.
        source.dead_indexes.retain(|path| *path != index.array);
        let telling = |bytes: u64, _: u64| progress(before + bytes, all);
        make_index(&source, planned, index, &named, (&mut done, &telling))?;
        before += index.raw_bytes;
    }
    drop_unneeded(&source, planned, &catalogue, &named, &mut done)?;
    let named = catalogue.change(|_| ())?;
    done.bytes = stored_by_id(&source, &named)?.iter().map(|(_, bytes)| bytes).sum();
    remove_unnamed(sidecar, named.iter().map(|one| &one.id));
    sidecar.open_to_readers(&[REPLICAS, CATALOGUE]);
    done.warnings.extend(note_of_place(sidecar, options.sidecars.as_deref()));
    Ok(done)
}

/// Removes the replicas and value indexes that have to go, and notes them in `done`.
///
/// # Errors
/// Those of the catalogue, and of locking an index.
fn drop_unneeded(
    source: &OptimizedSource,
    planned: &OptimizePlan,
    catalogue: &NamedCatalogue<'_>,
    named: &[Replica],
    done: &mut Optimized,
) -> Result<()> {
    let made = done.made.len() + done.indexes.made.len();
    let stored = stored_by_id(source, named)?;
    let (replicas, indexes) = by_kind(to_drop(&stored, planned, made));
    catalogue.remove(&replicas, done)?;
    let dead = planned.indexes.drop.iter().filter(|path| source.dead_indexes.contains(path));
    for path in indexes.iter().chain(dead) {
        if remove_planned(&source.store.array(&ObjectPath::parse(path)?)?)? {
            done.indexes.dropped.push(path.clone());
        }
    }
    Ok(())
}

/// Makes or renews a value index, and removes it if it takes more bytes than there are.
///
/// # Errors
/// Those of [`Array::index`](crate::Array::index).
fn make_index(
    source: &OptimizedSource,
    planned: &OptimizePlan,
    index: &PlannedIndex,
    named: &[Replica],
    (done, progress): (&mut Optimized, ProgressCallback<'_>),
) -> Result<()> {
    let array = source.store.array(&ObjectPath::parse(&index.array)?)?;
    let bins = if index.has_bins { BinChoice::Auto } else { BinChoice::None };
    let maker = IndexMaker::Optimize;
    let made = array.index(&IndexOptions { bins, maker, anew: false }, progress)?;
    let bytes = bytes_needed(&stored_by_id(source, named)?, planned);
    if bytes > planned.budget_bytes && remove_planned(&array)? {
        let sizes = (index.bytes, made.bytes, bytes);
        done.warnings.push(note_of_size(AN_INDEX, &index.array, sizes, planned.budget_bytes));
    } else {
        done.indexes.made.push(made);
    }
    Ok(())
}

/// Returns the names and stored bytes of these replicas and of the planned indexes that there are.
fn stored_by_id(source: &OptimizedSource, named: &[Replica]) -> Result<Vec<(String, u64)>> {
    let replicas = named.iter().map(|one| (one.id.clone(), one.stored_bytes));
    let is_alive =
        |one: &IndexCondition| one.is_planned && !source.dead_indexes.contains(&one.array);
    let indexes = source.index_conditions()?.into_iter().filter(is_alive);
    Ok(replicas.chain(indexes.map(|one| (index_id(&one.array), one.bytes))).collect())
}

/// Returns the bytes of the replicas and indexes that reads need.
fn bytes_needed(stored: &[(String, u64)], planned: &OptimizePlan) -> u64 {
    let needed = stored.iter().filter(|(id, _)| !planned.unused.contains(id));
    needed.map(|(_, bytes)| bytes).sum()
}

/// Returns the names of the replicas and indexes to drop, once `made` of the planned ones are made:
/// those of the plan, or if fewer were made than planned, those that have no room beside the others.
fn to_drop(stored: &[(String, u64)], planned: &OptimizePlan, made: usize) -> Vec<String> {
    let sized = planned.unused.iter().filter_map(|id| stored.iter().find(|one| one.0 == *id));
    let sized = sized.cloned();
    let is_dropped = |id: &String| match indexed_array(id) {
        None => planned.drop.contains(id),
        Some(array) => planned.indexes.drop.iter().any(|path| path == array),
    };
    // The order of value: a kept one goes only if the new ones leave it no room.
    let (stay, drop) = match made == planned.make.len() + planned.indexes.make.len() {
        true => sized.partition(|(id, _)| !is_dropped(id)),
        false => (sized.collect::<Vec<_>>(), Vec::new()),
    };
    let (_, without_room) = room_for(&stay, bytes_needed(stored, planned), planned.budget_bytes);
    drop.into_iter().map(|(id, _)| id).chain(without_room).collect()
}

/// The words of a note on a replica: itself, and all that counts in the budget beside it.
const A_REPLICA: (&str, &str) = ("a replica", "the needed replicas");
/// The same of a note on an index.
const AN_INDEX: (&str, &str) = ("an index", "all that is needed");

/// Says that a replica or an index was removed since it is larger than predicted. `sizes` are its
/// predicted and stored bytes, and those of all that reads need.
pub(super) fn note_of_size(
    (what, needed): (&str, &str),
    array: &str,
    (planned, made, bytes): (u64, u64, u64),
    budget_bytes: u64,
) -> String {
    format!(
        "{what} of {array} took {} instead of {}, and was removed: with it {needed} take {}, more than the \
         budget of {}; a budget of {} keeps it",
        bytes_text(made as f64),
        bytes_text(planned as f64),
        bytes_text(bytes as f64),
        bytes_text(budget_bytes as f64),
        text_up(bytes),
    )
}

/// Locks the directory of replicas of a source, so that one process at a time makes replicas.
///
/// # Errors
/// `Conflict` if another process holds the lock; errors of storage.
pub(super) fn locked(place: &SourcePlace, into: &ReplicaDirectory) -> Result<Box<dyn Lock>> {
    let made = into.storage(&OpenOptions::default());
    let lock = made.and_then(|_| into.sidecar.try_lock(REPLICAS));
    lock.map_err(|error| in_place(error, &into.directory))?.ok_or_else(|| {
        let text = format!("{}: another process makes replicas of it: wait for it", place.shown());
        Error::new(ErrorKind::Conflict, text)
    })
}

/// The directory of the replicas of a source.
pub(super) struct ReplicaDirectory {
    sidecar: Sidecar,
    directory: PathBuf,
}

impl ReplicaDirectory {
    pub(super) fn sidecar(&self) -> &Sidecar {
        &self.sidecar
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens the directory as storage, and makes it if it is missing.
    ///
    /// # Errors
    /// Errors of storage, also for a symbolic link in its place.
    pub(super) fn storage(&self, options: &OpenOptions) -> Result<Arc<dyn Storage>> {
        let opened = storage_in_sidecar(&self.sidecar, REPLICAS, Mode::ReadWrite, options);
        opened.map_err(|error| error.at(self.directory.display().to_string()))
    }
}

/// Finds or makes the directory for the replicas. It is that of `sidecars` or the environment, that
/// of the site for the users who keep its sidecars, or else one beside the source. A home directory
/// takes replicas only if the user names it.
pub(super) fn directory_of(
    place: &SourcePlace,
    sidecars: Option<&Path>,
) -> Result<ReplicaDirectory> {
    let made = Sidecar::make_for_replicas(&place.sidecar_name()?, sidecars)?;
    let made = made.and_then(|sidecar| Some((sidecar.own_directory()?, sidecar)));
    let Some((directory, sidecar)) = made else {
        let text = format!(
            "{}: replicas cannot lie beside it, where this user may not write, and go to no home directory \
             unasked: set BEDFORM_SIDECAR to a directory for them, or give --sidecar DIR",
            place.shown()
        );
        return Err(Error::new(ErrorKind::PermissionDenied, text));
    };
    if sidecars.is_none() {
        place.list()?;
    }
    Ok(ReplicaDirectory { sidecar, directory: directory.join(REPLICAS) })
}

/// Adds the name of the replicas' directory and a remedy to an error of writing there. Storage
/// names objects relative to itself, and the source is not the device that is full.
pub(super) fn in_place(error: Error, directory: &Path) -> Error {
    let remedy = match error.kind() {
        ErrorKind::NoSpace => "free some, or take a smaller budget, and run the same command again",
        ErrorKind::ReadOnly => "choose another place with --sidecar DIR",
        _ => return error,
    };
    error.at(format!("replicas in {}", directory.display())).followed_by(remedy)
}

/// Says how programs find the replicas, if they lie elsewhere than beside the source.
pub(super) fn note_of_place(sidecar: &Sidecar, named: Option<&Path>) -> Option<String> {
    if let Some(named) = named {
        return Some(format!(
            "programs read these replicas with BEDFORM_SIDECAR={}",
            named.display()
        ));
    }
    let directory = sidecar.own_directory().filter(|_| sidecar.is_of_site())?;
    Some(format!("replicas are in {}, and all users of the site read them", directory.display()))
}

/// Makes one replica, and describes it for the catalogue.
fn make(
    source: &OptimizedSource,
    from: &SourcePlace,
    into: &ReplicaDirectory,
    replica: &PlannedReplica,
    options: &OptimizeOptions,
    (progress, exchange): (ProgressCallback<'_>, Option<TaskExchange<'_>>),
) -> Result<Replica> {
    let began = Instant::now();
    let whole = source.store.array(&ObjectPath::parse(&replica.array)?)?;
    let selection = selection_of(replica, &whole.shape()?)?;
    let placement = placement_of(source, from, replica, options)?;
    let opening = OpenOptions { placement, ..OpenOptions::default() };
    // No catalogue names it, so an earlier state of the source may have made it.
    remove(&into.sidecar, &replica.id);
    let parent = into.storage(&opening)?;
    let BoundObjects { meaning, of } =
        whole.bound(&selection, replica.places.is_some(), || match &replica.places {
            Some(places) => make_points(source, &parent, replica, places, progress),
            None => {
                let place = (into, parent.clone(), opening);
                make_runs(source, from, place, replica, options, (progress, exchange))
            }
        })?;
    if let Some(sidecar) = &source.sidecar {
        // Before their versions are noted: a change of the mode also changes a version.
        sidecar.open_to_readers(&[REPLICAS]);
    }
    let place = parent.within(&ObjectPath::parse(&replica.id)?)?;
    let stored_bytes = bytes_of(&*place)?;
    let (document, objects) = stored(&place, &replica.array)?;
    let places = replica.places.as_ref().map(|places| {
        let (document, objects) = stored(&place, PLACES)?;
        Ok::<_, Error>(ReplicaPositions { fingerprint: fingerprint_of(places), document, objects })
    });
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Replica {
        id: replica.id.clone(),
        array: replica.array.clone(),
        array_shape: whole.shape()?,
        held: replica.held.clone(),
        stored_bytes,
        raw_bytes: replica.raw_bytes,
        objects,
        document,
        made: made.as_secs(),
        building_seconds: began.elapsed().as_secs_f64(),
        meaning,
        of,
        places: places.transpose()?,
        expected: replica.expected.clone(),
    })
}

/// Makes a replica of a product of runs, by a conversion of that part of the source.
fn make_runs(
    source: &OptimizedSource,
    from: &SourcePlace,
    (into, parent, opening): (&ReplicaDirectory, Arc<dyn Storage>, OpenOptions),
    replica: &PlannedReplica,
    options: &OptimizeOptions,
    (progress, exchange): (ProgressCallback<'_>, Option<TaskExchange<'_>>),
) -> Result<()> {
    let part = ConvertSource::store(from.shown(), &source.store)?;
    let part = part.part(&replica.array, replica.held.clone());
    let target = ConvertTarget::in_directory(parent, &into.directory, &replica.id, opening)?;
    let order = replica.order.parse();
    let layout = ArrayLayoutChoice {
        chunks: replica.chunks.clone(),
        shards: Some(replica.shards.clone()),
        order: order.map_err(|_| Error::invalid(format!("no order: {}", replica.order)))?,
    };
    let converting = ConvertOptions {
        layout: Some(layout),
        readers: vec![Reader::Bedform],
        memory_bytes: options.memory_bytes,
        flat_keys: true,
        ..ConvertOptions::default()
    };
    let decided = plan(&part, &target, &converting)?;
    match exchange {
        None => run(&decided, &part, &target, &converting, progress)?,
        Some(exchange) => {
            run_on_workers(&decided, &part, &target, &converting, progress, exchange)?
        }
    };
    Ok(())
}

/// Makes a replica of single elements, with a second array of their places.
fn make_points(
    source: &OptimizedSource,
    parent: &Arc<dyn Storage>,
    replica: &PlannedReplica,
    places: &[u64],
    progress: ProgressCallback<'_>,
) -> Result<()> {
    let array = source.store.array(&ObjectPath::parse(&replica.array)?)?;
    let shape = array.shape()?;
    let options = OpenOptions { writable: true, ..OpenOptions::default() };
    let id = ObjectPath::parse(&replica.id)?;
    let staged = StagedStore::create_in(parent, &id, false, &Map::new(), options)?;
    let described = |dtype: String, codecs: Value| {
        let described = json!({
            "shape": replica.shape, "dtype": dtype, "chunks": replica.chunks,
            "shards": replica.shards, "codecs": codecs,
        });
        let mut new = NewArray::from_json(&described, &Limits::default())?;
        new.layout.keys.separator = '.';
        Ok::<_, Error>(new)
    };
    let own = ObjectPath::parse(&replica.array)?;
    let mut outer = own.parent();
    while !outer.is_root() {
        staged.store().create_group(&outer, &Map::new())?;
        outer = outer.parent();
    }
    let mut values = described(array.data_type()?.to_string(), json!("auto"))?;
    // A replica must have the fill value of its array.
    let fill = array.fill_bytes()?;
    if matches!(&values.fill_value, FillValue::Bytes(own) if own.len() == fill.len()) {
        values.fill_value = FillValue::Bytes(fill);
    }
    let values = staged.store().create_array(&own, &values)?;
    let placed = described("uint64".to_owned(), json!(["pcodec"]))?;
    let placed = staged.store().create_array(&ObjectPath::parse(PLACES)?, &placed)?;
    let shard = replica.shards.first().copied().unwrap_or(1).max(1);
    let step = POINTS_AT_ONCE.div_ceil(shard).max(1).saturating_mul(shard);
    let (mut done, mut done_bytes, mut buffer) = (0_u64, 0_u64, Vec::new());
    for places in places.chunks(usize::try_from(step).unwrap_or(usize::MAX)) {
        check_cancelled("making replicas was stopped")?;
        let count = places.len() as u64;
        let selection = Selection::Points(Points::at_places(places, &shape)?);
        let bytes = usize::try_from(array.result_bytes(&selection)?).unwrap_or(usize::MAX);
        buffer.clear();
        buffer.resize(bytes, 0);
        array.read(&selection, &mut buffer)?;
        let at = Region::new([done], [count])?.into();
        values.write(&at, Elements::Bytes(&buffer))?;
        #[allow(clippy::host_endian_bytes)]
        let numbers: Vec<u8> = places.iter().flat_map(|place| place.to_ne_bytes()).collect();
        placed.write(&at, Elements::Bytes(&numbers))?;
        done += count;
        done_bytes += buffer.len() as u64;
        progress(done_bytes, replica.raw_bytes);
    }
    drop((values, placed));
    staged.publish()
}

/// Returns the document of an array of a replica, and all its objects that hold chunks.
fn stored(place: &Arc<dyn Storage>, array: &str) -> Result<(Value, Vec<ReplicaObject>)> {
    let store = Store::open(place.clone(), OpenOptions::default())?;
    let array = store.array(&ObjectPath::parse(array)?)?;
    Ok((array.document()?, array.own_objects()?))
}

/// Returns the part of its array that a replica holds.
fn selection_of(replica: &PlannedReplica, shape: &[u64]) -> Result<Selection> {
    match &replica.places {
        Some(places) => Ok(Selection::Points(Points::at_places(places, shape)?)),
        None => Ok(replica.held.outer(&Region::whole(replica.held.shape())?)),
    }
}

/// Returns the bytes of all files of a replica.
pub(super) fn bytes_of(place: &dyn Storage) -> Result<u64> {
    let (mut bytes, mut directories) = (0, vec![ObjectPath::root()]);
    while let Some(directory) = directories.pop() {
        for entry in place.list(&directory)? {
            let path = directory.join(&entry.name)?;
            match entry.is_directory {
                true => directories.push(path),
                false => bytes += place.stat(&path)?.size,
            }
        }
    }
    Ok(bytes)
}

/// Removes the directory of a replica that no catalogue names. A failure is ignored: the directory
/// then only costs space.
pub(super) fn remove(sidecar: &Sidecar, id: &str) {
    sidecar.remove_directory(&format!("{REPLICAS}/{id}"));
}

/// True for the directory of a replica, complete or partial.
fn is_made_here(name: &str) -> bool {
    let id = name.strip_prefix('.').and_then(|name| name.strip_suffix(".bedform-partial"));
    let id = id.unwrap_or(name);
    id.len() == ID_DIGITS && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Removes replicas that no catalogue names, which has `named`: of earlier states of the source,
/// dropped, or interrupted. Directories with other names stay.
pub(super) fn remove_unnamed<'a>(sidecar: &Sidecar, named: impl Iterator<Item = &'a String>) {
    let named: Vec<&String> = named.collect();
    sidecar.sweep(REPLICAS);
    for entry in sidecar.entries(REPLICAS) {
        let is_named = named.iter().any(|id| entry.name == **id);
        if entry.is_directory && is_made_here(&entry.name) && !is_named {
            remove(sidecar, &entry.name);
        }
    }
}

/// Removes the leftovers of killed processes where there is nothing to make, as [`remove_unnamed`]
/// does. Does nothing while another process makes replicas.
fn remove_leftovers(source: &OptimizedSource) {
    let Some(sidecar) = &source.sidecar else { return };
    let Ok(Some(_lock)) = sidecar.try_lock(REPLICAS) else { return };
    // Another process may have made replicas since this plan.
    let named = replicas_in(sidecar, &Limits::default());
    remove_unnamed(sidecar, named.iter().map(|one| &one.id));
}

/// Removes the replicas of replaced arrays, and returns their names. Does nothing while another
/// process makes replicas: the next call removes them.
///
/// # Errors
/// Errors of opening the source, and of changing the catalogue.
pub(super) fn drop_of_replaced(
    place: &SourcePlace,
    options: &OptimizeOptions,
) -> Result<Vec<String>> {
    let source = OptimizedSource::open_with_all(place, options)?;
    let key_of = |path: &str| source.store.array(&ObjectPath::parse(path)?)?.key();
    let is_replaced = |one: &Replica| key_of(&one.array).is_ok_and(|key| key != one.of.key);
    let replaced = source.replicas.iter().filter(|(one, _)| is_replaced(one));
    let replaced: Vec<String> = replaced.map(|(one, _)| one.id.clone()).collect();
    let Some(sidecar) = source.sidecar.as_ref().filter(|_| !replaced.is_empty()) else {
        return Ok(Vec::new());
    };
    let Some(_lock) = sidecar.try_lock(REPLICAS)? else { return Ok(Vec::new()) };
    let catalogue = NamedCatalogue { sidecar, place };
    catalogue.change(|replicas| replicas.retain(|one| !replaced.contains(&one.id)))?;
    replaced.iter().for_each(|id| remove(sidecar, id));
    Ok(replaced)
}

/// The catalogue of a source, which names its replicas.
pub(super) struct NamedCatalogue<'a> {
    pub(super) sidecar: &'a Sidecar,
    pub(super) place: &'a SourcePlace,
}

impl NamedCatalogue<'_> {
    /// Removes the replicas with these names, first from the catalogue, and notes them in `done`.
    ///
    /// # Errors
    /// Those of [`NamedCatalogue::change`].
    fn remove(&self, names: &[String], done: &mut Optimized) -> Result<()> {
        self.change(|replicas| replicas.retain(|one| !names.contains(&one.id)))?;
        names.iter().for_each(|id| remove(self.sidecar, id));
        done.dropped.extend_from_slice(names);
        Ok(())
    }

    /// Applies `act` to the list of replicas, saves it as the next catalogue, and returns it.
    ///
    /// # Errors
    /// Those of [`change_catalogue`].
    pub(super) fn change(&self, act: impl Fn(&mut Vec<Replica>)) -> Result<Vec<Replica>> {
        let list: (&str, &dyn Fn() -> _) =
            (CATALOGUE, &|| replicas_in(self.sidecar, &Limits::default()));
        change_catalogue(self.sidecar, self.place, list, act, |replicas| {
            Catalogue::new(self.place.shown(), replicas)
        })
    }
}

/// Applies `act` to the replicas that a catalogue lists, saves it as the next one, and returns the
/// replicas. Retries if another process saved one in between. `list` is the directory of the
/// catalogues, with a function that reads the newest.
///
/// # Errors
/// `Io` if it cannot be saved; `Conflict` after [`ATTEMPTS_MAX`] attempts.
pub(super) fn change_catalogue<T: Clone + PartialEq, H: Helper>(
    sidecar: &Sidecar,
    place: &SourcePlace,
    (list, load): (&str, &dyn Fn() -> Vec<T>),
    act: impl Fn(&mut Vec<T>),
    make: impl Fn(Vec<T>) -> H,
) -> Result<Vec<T>> {
    for _ in 0..ATTEMPTS_MAX {
        let number = sidecar.last_number(list);
        let before = load();
        let mut replicas = before.clone();
        act(&mut replicas);
        if replicas == before {
            return Ok(replicas);
        }
        match sidecar.save_next(list, &make(replicas.clone())) {
            Some(saved) if saved == number + 1 => return Ok(replicas),
            Some(_) => {}
            None => {
                let directory = sidecar.own_directory().unwrap_or_default().join(list);
                let text = format!(
                    "{}: the catalogue of its replicas cannot be kept in {}: is the disk full, or \
                     something else there under a number?",
                    place.shown(),
                    directory.display()
                );
                return Err(Error::new(ErrorKind::Io, text));
            }
        }
    }
    let text = format!("{}: others change the catalogue all the time", place.shown());
    Err(Error::new(ErrorKind::Conflict, text))
}
