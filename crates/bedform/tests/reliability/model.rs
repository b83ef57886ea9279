//! A store as plain vectors, the effect of operations on it, and the comparison with the engine's
//! store.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bedform::comm::Alone;
use bedform::convert::{
    ArrayLayoutChoice, ConvertOptions, ConvertSource, ConvertTarget, plan, run,
};
use bedform::log::recover::LeftoverPolicy;
use bedform::log::session::{Burst, CommitReach, Session, SessionOptions, SettleLimits};
use bedform::log::settle::{CollectOptions, SettleOptions};
use bedform::store::StagedStore;
use bedform::{Append, Array, Elements, ErrorKind, NewArray, NodeKind, OpenOptions, Store, append};
use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::{FileSystem, SimulatedFileSystem, Storage};
use serde_json::{Map, Value, json};

use crate::support::path;

pub(crate) const FILL: i32 = -9;

/// Commits of a session with background settling.
const BACKGROUND_COMMITS: usize = 3;
/// The directory of conversions beside the store, and the prefix of their arrays in a model.
const CONVERTED: &str = ".converted";
const COPY: &str = "copy";
const COPIED: &str = "copy of ";
/// The directory of new stores beside the store, and the prefix of their arrays in a model.
pub(crate) const DATASETS: &str = ".datasets";
pub(crate) const DATASET: &str = "data";
const OF_DATASET: &str = "data set: ";
/// A group that is replaced as a whole.
pub(crate) const REPLACED: &str = "r";
/// The layout of converted arrays.
const COPY_CHUNK: [u64; 2] = [2, 3];
const COPY_SHARD: [u64; 2] = [6, 6];

/// An array as a plain vector in C order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayModel {
    pub(crate) shape: Vec<u64>,
    pub(crate) chunk: Vec<u64>,
    pub(crate) shard: Vec<u64>,
    pub(crate) codec: &'static str,
    pub(crate) values: Vec<i32>,
    pub(crate) attributes: Map<String, Value>,
}

/// A store as plain vectors.
pub(crate) type StoreModel = BTreeMap<String, ArrayModel>;

/// An operation on a store.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create {
        name: &'static str,
        like: ArrayModel,
    },
    /// Several arrays that appear at once, with elements from a seed.
    Drafts {
        arrays: Vec<(&'static str, ArrayModel)>,
        seed: u64,
    },
    Write {
        name: String,
        start: Vec<u64>,
        shape: Vec<u64>,
        seed: u64,
    },
    /// Arrays that a session creates and fills, in one commit.
    SessionArrays {
        arrays: Vec<(&'static str, ArrayModel)>,
        seed: u64,
    },
    /// Boxes of one commit of a session.
    Session {
        boxes: Vec<(String, Vec<u64>, Vec<u64>)>,
        seed: u64,
    },
    /// The same boxes in many commits of one session, while a thread settles earlier ones. Every
    /// commit leaves the same state.
    Background {
        boxes: Vec<(String, Vec<u64>, Vec<u64>)>,
        seed: u64,
    },
    /// A session makes an array larger, fills it and appends rows, in one commit.
    Growth {
        name: String,
        shape: Vec<u64>,
        rows: u64,
        seed: u64,
        is_promise: bool,
    },
    /// Boxes of a promised commit in the burst tier; the end of the session drains them to the log.
    Promise {
        boxes: Vec<(String, Vec<u64>, Vec<u64>)>,
        seed: u64,
    },
    /// Recovers promised commits from the burst tier, and discards other writes.
    Recover,
    /// Settles commits into shards, in rounds of a memory budget; readers see no difference, and
    /// segments stay.
    Settle {
        memory_bytes: u64,
        grace: Duration,
    },
    /// A session's commit, while all earlier commits are settled.
    SettleUnder {
        name: String,
        start: Vec<u64>,
        shape: Vec<u64>,
        seed: u64,
    },
    /// Removes settled data from the log.
    Collect,
    Append {
        parts: Vec<(String, usize, u64)>,
        seed: u64,
    },
    Resize {
        name: String,
        shape: Vec<u64>,
    },
    Delete {
        name: &'static str,
    },
    Attributes {
        name: String,
        value: u64,
    },
    /// A copy in another layout, in a directory beside the store, which appears when it is
    /// complete.
    Convert,
    /// A store in a directory beside this one, which appears with all its arrays and may replace an
    /// existing one.
    NewStore {
        arrays: Vec<(&'static str, ArrayModel)>,
        seed: u64,
    },
    /// Arrays that replace all arrays of a group.
    ReplaceGroup {
        arrays: Vec<(&'static str, ArrayModel)>,
        seed: u64,
    },
}

/// Returns an empty array with this shape and layout.
pub(crate) fn form(shape: &[u64], chunk: &[u64], shard: &[u64], codec: &'static str) -> ArrayModel {
    let count: u64 = shape.iter().product();
    ArrayModel {
        shape: shape.to_vec(),
        chunk: chunk.to_vec(),
        shard: shard.to_vec(),
        codec,
        values: vec![FILL; count as usize],
        attributes: Map::new(),
    }
}

/// Returns values that identify their origin; for one random seed in eight the fill value, which is
/// not stored.
pub(crate) fn values(seed: u64, count: u64) -> Vec<i32> {
    if seed > 1 << 32 && seed.is_multiple_of(8) {
        return vec![FILL; count as usize];
    }
    let mix = |index: u64| (seed.wrapping_mul(0x9e37_79b9).wrapping_add(index * 31)) as i32 >> 3;
    (0..count).map(|index| mix(index).wrapping_abs() | 1).collect()
}

pub(crate) fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub(crate) fn region(start: &[u64], shape: &[u64]) -> Selection {
    let ranges = start.iter().zip(shape).map(|(start, length)| {
        AxisSelection::Range(AxisRange::contiguous(*start, *length).unwrap())
    });
    Selection::Orthogonal(ranges.collect())
}

pub(crate) fn whole(shape: &[u64]) -> Selection {
    region(&vec![0; shape.len()], shape)
}

pub(crate) fn read(array: &Array, selection: &Selection) -> bedform::Result<Vec<i32>> {
    let mut buffer = vec![0; array.result_bytes(selection)? as usize];
    array.read(selection, &mut buffer)?;
    let (items, _) = buffer.as_chunks::<4>();
    Ok(items.iter().map(|item| i32::from_ne_bytes(*item)).collect())
}

pub(crate) fn new_array(like: &ArrayModel) -> NewArray {
    let codecs = if like.codec.is_empty() { json!([]) } else { json!([like.codec]) };
    let description = json!({
        "shape": like.shape, "dtype": "int32", "chunks": like.chunk, "shards": like.shard,
        "fill_value": FILL, "codecs": codecs, "attributes": like.attributes,
    });
    NewArray::from_json(&description, &bedform_format::Limits::default()).unwrap()
}

impl ArrayModel {
    /// Returns the index of `at` in `values`, if it is inside.
    fn index(&self, at: &[u64]) -> Option<usize> {
        let mut index = 0;
        for (at, length) in at.iter().zip(&self.shape) {
            if at >= length {
                return None;
            }
            index = index * length + at;
        }
        Some(index as usize)
    }

    pub(crate) fn resized(&self, shape: &[u64]) -> Self {
        let mut new = form(shape, &self.chunk, &self.shard, self.codec);
        new.attributes = self.attributes.clone();
        each(shape, |at, index| {
            if let Some(old) = self.index(at) {
                new.values[index] = self.values[old];
            }
        });
        new
    }

    pub(crate) fn write(&mut self, start: &[u64], shape: &[u64], values: &[i32]) {
        each(shape, |at, index| {
            let at: Vec<u64> = at.iter().zip(start).map(|(at, start)| at + start).collect();
            let place = self.index(&at).expect("inside");
            self.values[place] = values[index];
        });
    }
}

/// Calls `visit` with every index of an array of `shape`, in C order.
pub(crate) fn each(shape: &[u64], mut visit: impl FnMut(&[u64], usize)) {
    let count: u64 = shape.iter().product();
    let mut at = vec![0; shape.len()];
    for index in 0..count as usize {
        visit(&at, index);
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

fn appended(array: &ArrayModel, axis: usize, count: u64) -> (Vec<u64>, Vec<u64>) {
    let mut start = vec![0; array.shape.len()];
    start[axis] = array.shape[axis];
    let mut shape = array.shape.clone();
    shape[axis] = count;
    (start, shape)
}

/// Opens the burst tier beside a store: parts of 4 KiB, drained only while a call waits for it.
pub(crate) fn burst(store: &Store) -> bedform::Result<Burst> {
    let mut burst = Burst::new(store.storage().sibling(".burst")?, None);
    (burst.part_bytes, burst.in_background) = (4096, false);
    Ok(burst)
}

/// Recovers promised commits from the burst tier, and discards other writes.
pub(crate) fn recover(store: &Store) -> bedform::Result<()> {
    store.recover(Some(&burst(store)?), LeftoverPolicy::Discard).map(drop)
}

fn settle_in_background(
    store: &Store,
    boxes: &[(String, Vec<u64>, Vec<u64>)],
    seed: u64,
) -> bedform::Result<()> {
    let mut options = SessionOptions::default();
    options.background = Some(SettleLimits { bytes: u64::MAX, commits: 3 });
    options.in_background = false;
    let mut session = store.session(Box::new(Alone), options)?;
    for _ in 0..BACKGROUND_COMMITS {
        write_boxes(&mut session, boxes, seed)?;
        session.commit()?;
    }
    Ok(())
}

fn write_boxes(
    session: &mut Session,
    boxes: &[(String, Vec<u64>, Vec<u64>)],
    seed: u64,
) -> bedform::Result<()> {
    for (name, start, shape) in boxes {
        let new = bytes(&values(seed, product(shape)));
        session.write(&path(name), &region(start, shape), Elements::Bytes(&new))?;
    }
    Ok(())
}

/// Settles, and calls `meanwhile` during that.
fn settle(
    store: &Store,
    memory_bytes: u64,
    grace: Duration,
    meanwhile: &dyn Fn(),
) -> bedform::Result<()> {
    let mut options = SettleOptions::default();
    (options.memory_bytes, options.grace) = (memory_bytes, grace);
    let progress = |_, _| meanwhile();
    store.settle_with(&options, &progress).map(drop)
}

/// Returns the arrays of the store itself.
fn originals(model: &StoreModel) -> impl Iterator<Item = (&String, &ArrayModel)> {
    let is_elsewhere = |name: &str| name.starts_with(COPIED) || name.starts_with(OF_DATASET);
    model.iter().filter(move |(name, _)| !is_elsewhere(name))
}

/// Converts the store, and resumes an interrupted conversion.
fn convert(store: &Store) -> bedform::Result<()> {
    let source = ConvertSource::store("the store", store)?;
    let place = store.storage().sibling(CONVERTED)?;
    let target = ConvertTarget::named(place, COPY, options(true))?;
    let mut wanted = ConvertOptions::default();
    (wanted.memory_bytes, wanted.verify) = (4096, true);
    wanted.layout = Some(ArrayLayoutChoice {
        chunks: COPY_CHUNK.to_vec(),
        shards: Some(COPY_SHARD.to_vec()),
        order: bedform_geometry::Order::RowMajor,
    });
    let plan = plan(&source, &target, &wanted)?;
    run(&plan, &source, &target, &wanted, &|_, _| ())?;
    Ok(())
}

/// Builds a store and publishes it.
fn new_store(
    store: &Store,
    arrays: &[(&'static str, ArrayModel)],
    seed: u64,
) -> bedform::Result<()> {
    let place = store.storage().sibling(DATASETS)?;
    let staged = StagedStore::create_in(&place, &path(DATASET), true, &Map::new(), options(true))?;
    let drafts = Operation::Drafts { arrays: arrays.to_vec(), seed };
    drafts.run(staged.store(), &StoreModel::new())?;
    staged.publish()
}

fn replace_group(
    store: &Store,
    arrays: &[(&'static str, ArrayModel)],
    seed: u64,
) -> bedform::Result<()> {
    let mut staged = store.stage_group(&path(REPLACED))?;
    for (name, like) in arrays {
        let array = staged.draft_array(name, &new_array(like))?;
        let new = bytes(&values(seed, product(&like.shape)));
        array.write(&whole(&like.shape), Elements::Bytes(&new))?;
    }
    staged.publish(&Map::from_iter([("seed".to_owned(), json!(seed))]))
}

/// Returns the files of new stores beside the store, also hidden ones.
pub(crate) fn dataset_files(system: &SimulatedFileSystem) -> Vec<String> {
    let files = system.sibling(DATASETS).unwrap().tree().into_keys();
    files.map(|name| format!("{DATASETS}/{name}")).collect()
}

/// True if an interrupted conversion beside the store in `storage` can be resumed.
pub(crate) fn has_unfinished_conversion(storage: &dyn Storage) -> bool {
    let listed = storage.sibling(CONVERTED).and_then(|place| place.list(&path("")));
    let names: Vec<String> = listed.unwrap().into_iter().map(|entry| entry.name).collect();
    !names.is_empty() && !names.iter().any(|name| name == COPY)
}

fn product(shape: &[u64]) -> u64 {
    shape.iter().product()
}

impl Operation {
    /// Applies the operation to the engine's store, which holds `model`.
    pub(crate) fn run(&self, store: &Store, model: &StoreModel) -> bedform::Result<()> {
        match self {
            Self::Create { name, like } => {
                store.create_array(&path(name), &new_array(like)).map(drop)
            }
            Self::Drafts { arrays, seed } => {
                let mut paths = Vec::new();
                for (name, like) in arrays {
                    let array = store.draft_array(&path(name), &new_array(like))?;
                    let new = bytes(&values(*seed, product(&like.shape)));
                    array.write(&whole(&like.shape), Elements::Bytes(&new))?;
                    paths.push(path(name));
                }
                store.commit_drafts(&paths)
            }
            Self::Write { name, start, shape, seed } => {
                let new = bytes(&values(*seed, product(shape)));
                let array = store.array(&path(name))?;
                array.write(&region(start, shape), Elements::Bytes(&new)).map(drop)
            }
            Self::SessionArrays { .. }
            | Self::Session { .. }
            | Self::Growth { .. }
            | Self::Promise { .. } => {
                // Dropping the session fulfils its promise; after a failure, `Recover` does.
                self.session(store, false).map(drop)
            }
            Self::Background { boxes, seed } => settle_in_background(store, boxes, *seed),
            Self::Recover => recover(store),
            Self::Settle { memory_bytes, grace } => settle(store, *memory_bytes, *grace, &|| ()),
            Self::SettleUnder { name, start, shape, seed } => {
                let committed = Cell::new(None);
                let commit = || {
                    let outcome = committed.take().unwrap_or_else(|| {
                        let boxes = vec![(name.clone(), start.clone(), shape.clone())];
                        Self::Session { boxes, seed: *seed }.run(store, model)
                    });
                    committed.set(Some(outcome));
                };
                let settled = settle(store, 1 << 20, Duration::ZERO, &commit);
                if settled.is_ok() {
                    // There may be nothing to settle.
                    commit();
                }
                committed.take().unwrap_or(Ok(())).and(settled)
            }
            Self::Collect => store.collect_log(&CollectOptions::default()).map(drop),
            Self::Append { parts, seed } => {
                let mut prepared = Vec::new();
                for (name, axis, count) in parts {
                    let (_, shape) = appended(&model[name], *axis, *count);
                    let new = bytes(&values(*seed, product(&shape)));
                    prepared.push((store.array(&path(name))?, *axis, shape, new));
                }
                let parts: Vec<Append<'_>> = prepared
                    .iter()
                    .map(|(array, axis, shape, new)| Append {
                        array,
                        axis: *axis,
                        shape,
                        elements: Elements::Bytes(new),
                    })
                    .collect();
                append(&parts).map(drop)
            }
            Self::Resize { name, shape } => store.array(&path(name))?.resize(shape),
            Self::Delete { name } => store.delete(&path(name)),
            Self::Attributes { name, value } => {
                let attributes = Map::from_iter([("version".to_owned(), json!(value))]);
                store.set_attributes(&path(name), attributes)
            }
            Self::Convert => convert(store),
            Self::NewStore { arrays, seed } => new_store(store, arrays, *seed),
            Self::ReplaceGroup { arrays, seed } => replace_group(store, arrays, *seed),
        }
    }

    /// True for commits that are acknowledged in the burst tier.
    pub(crate) fn is_promise(&self) -> bool {
        matches!(self, Self::Promise { .. } | Self::Growth { is_promise: true, .. })
    }

    /// Commits through a session, whose burst tier is drained `in_background` or not.
    pub(crate) fn session(&self, store: &Store, in_background: bool) -> bedform::Result<Session> {
        let mut options = SessionOptions::default();
        if self.is_promise() {
            let mut burst = burst(store)?;
            burst.in_background = in_background;
            (options.burst, options.reach) = (Some(burst), CommitReach::Node);
            // Without background work the calls have a fixed order. Otherwise a reader might or
            // might not find drained data, and the number of a failing call would not repeat the
            // failure.
            options.in_background = in_background;
        }
        let mut session = store.session(Box::new(Alone), options)?;
        match self {
            Self::SessionArrays { arrays, seed } => {
                let there = store.nodes()?;
                let missing = arrays.iter().filter(|(name, _)| !there.contains_key(&path(name)));
                let new: Vec<_> =
                    missing.map(|(name, like)| (path(name), new_array(like))).collect();
                session.create_arrays(&new)?;
                for (name, like) in arrays {
                    let new = bytes(&values(*seed, product(&like.shape)));
                    session.write(&path(name), &whole(&like.shape), Elements::Bytes(&new))?;
                }
            }
            Self::Session { boxes, seed } | Self::Promise { boxes, seed } => {
                write_boxes(&mut session, boxes, *seed)?;
            }
            Self::Growth { name, shape, rows, seed, .. } => {
                let name = path(name);
                session.resize(&name, shape)?;
                let new = bytes(&values(*seed, product(shape)));
                session.write(&name, &whole(shape), Elements::Bytes(&new))?;
                let mut part = shape.clone();
                part[0] = *rows;
                let new = bytes(&values(*seed, product(&part)));
                session.append(&name, 0, &part, Elements::Bytes(&new))?;
            }
            _ => unreachable!("no session"),
        }
        session.commit()?;
        Ok(session)
    }

    /// Applies the operation to a model.
    pub(crate) fn apply(&self, model: &StoreModel) -> StoreModel {
        let mut model = model.clone();
        let mut replace = |before: &str, arrays: &[(&str, ArrayModel)], seed: u64| {
            model.retain(|name, _| !name.starts_with(before));
            for (name, like) in arrays {
                let mut array = like.clone();
                array.values = values(seed, product(&like.shape));
                model.insert(format!("{before}{name}"), array);
            }
        };
        match self {
            Self::NewStore { arrays, seed } => replace(OF_DATASET, arrays, *seed),
            Self::ReplaceGroup { arrays, seed } => replace(&format!("{REPLACED}/"), arrays, *seed),
            Self::Create { name, like } => {
                model.insert((*name).to_owned(), like.clone());
            }
            Self::Drafts { arrays, seed } | Self::SessionArrays { arrays, seed } => {
                for (name, like) in arrays {
                    let mut array = like.clone();
                    array.values = values(*seed, product(&like.shape));
                    model.insert((*name).to_owned(), array);
                }
            }
            Self::Write { name, start, shape, seed } => {
                let new = values(*seed, product(shape));
                model.get_mut(name).unwrap().write(start, shape, &new);
            }
            Self::Session { boxes, seed }
            | Self::Background { boxes, seed }
            | Self::Promise { boxes, seed } => {
                for (name, start, shape) in boxes {
                    let new = values(*seed, product(shape));
                    model.get_mut(name).unwrap().write(start, shape, &new);
                }
            }
            Self::Growth { name, shape, rows, seed, .. } => {
                let mut larger = shape.clone();
                larger[0] += rows;
                let mut array = model[name].resized(&larger);
                array.write(&vec![0; shape.len()], shape, &values(*seed, product(shape)));
                let (mut corner, mut part) = (vec![0; shape.len()], shape.clone());
                (corner[0], part[0]) = (shape[0], *rows);
                array.write(&corner, &part, &values(*seed, product(&part)));
                model.insert(name.clone(), array);
            }
            Self::Settle { .. } | Self::Collect | Self::Recover => {}
            Self::SettleUnder { name, start, shape, seed } => {
                let new = values(*seed, product(shape));
                model.get_mut(name).unwrap().write(start, shape, &new);
            }
            Self::Append { parts, seed } => {
                for (name, axis, count) in parts {
                    let old = &model[name];
                    let (start, shape) = appended(old, *axis, *count);
                    let mut larger = old.shape.clone();
                    larger[*axis] += count;
                    let mut array = old.resized(&larger);
                    array.write(&start, &shape, &values(*seed, product(&shape)));
                    model.insert(name.clone(), array);
                }
            }
            Self::Resize { name, shape } => {
                let array = model[name].resized(shape);
                model.insert(name.clone(), array);
            }
            Self::Delete { name } => {
                model.remove(*name);
            }
            Self::Attributes { name, value } => {
                model.get_mut(name).unwrap().attributes =
                    Map::from_iter([("version".to_owned(), json!(value))]);
            }
            Self::Convert => {
                for (name, array) in originals(&model.clone()) {
                    let mut copy = array.clone();
                    (copy.chunk, copy.shard) = (COPY_CHUNK.to_vec(), COPY_SHARD.to_vec());
                    model.insert(format!("{COPIED}{name}"), copy);
                }
            }
        }
        model
    }
}

/// One thread and no cache, so that every run makes the same calls.
pub(crate) fn options(writable: bool) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = writable;
    options.threads = Some(1);
    options
}

/// Reads every array as a reader does; `None` if there is no store. The codec, which the engine
/// does not report, comes from `like`.
pub(crate) fn observe(
    storage: Arc<dyn Storage>,
    like: &StoreModel,
) -> Result<Option<StoreModel>, String> {
    let store = match Store::open(storage.clone(), options(false)) {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("the store cannot be opened: {error}")),
    };
    let mut found = observe_store(&store, like)?;
    if found.keys().any(|name| name.starts_with(&format!("{REPLACED}/"))) {
        check_undamaged(&store)?;
    }
    found.extend(observe_beside(&*storage, like, (CONVERTED, COPY, COPIED))?);
    found.extend(observe_beside(&*storage, like, (DATASETS, DATASET, OF_DATASET))?);
    Ok(Some(found))
}

/// Reads all stored data, and reports damage.
fn check_undamaged(store: &Store) -> Result<(), String> {
    let problems = store.verify(None, &|_, _| ()).map_err(|error| error.to_string())?.problems;
    if problems.is_empty() { Ok(()) } else { Err(format!("damaged: {problems:?}")) }
}

/// Returns the arrays of a store in a directory beside this one, if it exists.
fn observe_beside(
    storage: &dyn Storage,
    like: &StoreModel,
    (place, name, prefix): (&str, &str, &str),
) -> Result<StoreModel, String> {
    let fail = |error: bedform_storage::StorageError| format!("beside the store: {error}");
    let place = storage.sibling(place).map_err(fail)?;
    let listed = place.list(&path("")).map_err(fail)?;
    if !listed.iter().any(|entry| entry.name == name) {
        return Ok(StoreModel::new());
    }
    let other = Store::open(place.within(&path(name)).map_err(fail)?, options(false))
        .map_err(|error| format!("{name} cannot be opened: {error}"))?;
    check_undamaged(&other)?;
    let found = observe_store(&other, &StoreModel::new())?;
    let named = found.into_iter().map(|(name, mut array)| {
        let name = format!("{prefix}{name}");
        array.codec = like.get(&name).map_or("", |array| array.codec);
        (name, array)
    });
    Ok(named.collect())
}

pub(crate) fn observe_store(store: &Store, like: &StoreModel) -> Result<StoreModel, String> {
    let mut found = StoreModel::new();
    let nodes = store.nodes().map_err(|error| format!("cannot list: {error}"))?;
    let arrays = nodes.iter().filter(|(_, kind)| **kind == NodeKind::Array);
    for name in arrays.map(|(name, _)| name) {
        let codec = like.get(name.as_str()).map_or("", |array| array.codec);
        let array = observe_array(store, name, codec);
        let array = array.map_err(|error| format!("{name} cannot be read: {error}"))?;
        found.insert(name.to_string(), array);
    }
    Ok(found)
}

/// Reads a whole array as a reader does.
pub(crate) fn observe_array(
    store: &Store,
    name: &ObjectPath,
    codec: &'static str,
) -> bedform::Result<ArrayModel> {
    let array = store.array(name)?;
    let metadata = array.metadata()?;
    let values = read(&array, &whole(&metadata.shape))?;
    Ok(ArrayModel {
        chunk: metadata.inner_chunk_shape().to_vec(),
        shard: metadata.chunk_shape.clone(),
        codec,
        values,
        attributes: array.attributes()?,
        shape: metadata.shape,
    })
}

/// Compares the found state with the acknowledged one (`before`) and the unfinished `operation`.
/// Returns the state from now on.
pub(crate) fn judge(
    mut found: StoreModel,
    before: &StoreModel,
    operation: Option<&Operation>,
) -> Result<StoreModel, String> {
    if found == *before {
        return Ok(found);
    }
    let Some(operation) = operation else { return Err(difference(&found, before)) };
    let after = operation.apply(before);
    for (name, array) in &mut found {
        array.codec = after.get(name).map_or(array.codec, |array| array.codec);
    }
    if found == after {
        return Ok(found);
    }
    match operation {
        // The arrays appear before their data.
        Operation::SessionArrays { arrays, .. } => {
            let mut empty = before.clone();
            empty.extend(arrays.iter().map(|(name, like)| ((*name).to_owned(), like.clone())));
            if found == empty { Ok(found) } else { Err(difference(&found, &empty)) }
        }
        Operation::Write { name, start, shape, .. } => {
            mixed_by_shard(&found, before, &after, name, (start, shape)).map(|()| found)
        }
        _ => {
            Err(format!("{operation:?} is neither done nor undone: {}", difference(&found, before)))
        }
    }
}

/// Region writes are atomic per shard.
fn mixed_by_shard(
    found: &StoreModel,
    before: &StoreModel,
    after: &StoreModel,
    name: &str,
    (start, shape): (&[u64], &[u64]),
) -> Result<(), String> {
    let mut others = found.clone();
    let array = others.remove(name).ok_or("the array is gone")?;
    let mut old = before.clone();
    let old_array = old.remove(name).unwrap();
    if others != old {
        return Err("a write to one array has changed another".to_owned());
    }
    if array.shape != old_array.shape {
        return Err("a write has changed the shape".to_owned());
    }
    let new = &after[name];
    // For each shard: whether old and new elements were found.
    let mut shards: BTreeMap<Vec<u64>, (bool, bool)> = BTreeMap::new();
    let mut wrong = None;
    each(&array.shape, |at, index| {
        let (value, was, will) = (array.values[index], old_array.values[index], new.values[index]);
        let spans = || at.iter().zip(start).zip(shape);
        let is_inside = spans().all(|((at, start), length)| at >= start && *at < start + length);
        if value != was && (value != will || !is_inside) {
            wrong = Some(at.to_vec());
        }
        if was != will {
            let shard = at.iter().zip(&array.shard).map(|(at, length)| at / length).collect();
            let seen = shards.entry(shard).or_default();
            seen.0 |= value == was;
            seen.1 |= value == will;
        }
    });
    if let Some(at) = wrong {
        return Err(format!("element {at:?} is neither old nor new"));
    }
    match shards.iter().find(|(_, seen)| seen.0 && seen.1) {
        Some((shard, _)) => Err(format!("shard {shard:?} is half written")),
        None => Ok(()),
    }
}

fn difference(found: &StoreModel, expected: &StoreModel) -> String {
    for (name, array) in expected {
        let Some(other) = found.get(name) else { return format!("{name} is missing") };
        if array.shape != other.shape {
            return format!("{name} has shape {:?}, expected {:?}", other.shape, array.shape);
        }
        if array.values != other.values {
            let wrong = (0..array.values.len()).filter(|at| array.values[*at] != other.values[*at]);
            let wrong: Vec<usize> = wrong.collect();
            return format!(
                "{name} of shape {:?} has {} wrong elements, the first at {}: {} and not {}",
                array.shape,
                wrong.len(),
                wrong[0],
                other.values[wrong[0]],
                array.values[wrong[0]],
            );
        }
        if array != other {
            return format!("{name}: {:?} and not {:?}", other.attributes, array.attributes);
        }
    }
    let more = found.keys().find(|name| !expected.contains_key(*name));
    format!("{more:?} is visible")
}

/// Returns further operations on `model`: growth that must not reveal leftovers, appends, a merge,
/// and a reused name.
pub(crate) fn continuation(model: &StoreModel) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (name, array) in originals(model) {
        let rank = array.shape.len();
        if rank == 0 {
            continue;
        }
        let mut larger = array.shape.clone();
        larger.iter_mut().zip(&array.shard).for_each(|(length, shard)| *length += shard / 2 + 1);
        operations.push(Operation::Resize { name: name.clone(), shape: larger.clone() });
        operations.push(Operation::Append { parts: vec![(name.clone(), 0, 3)], seed: 77 });
        let shape: Vec<u64> = larger.iter().map(|length| length.div_ceil(2)).collect();
        operations.push(Operation::Write {
            name: name.clone(),
            start: vec![1; rank],
            shape: shape.clone(),
            seed: 78,
        });
        let boxes = vec![(name.clone(), vec![0; rank], shape)];
        operations.push(Operation::Session { boxes, seed: 80 });
    }
    for name in ["t", "g/u"] {
        if !model.contains_key(name) {
            operations.push(Operation::Drafts {
                arrays: vec![(name, form(&[5, 4], &[2, 2], &[4, 4], "zstd"))],
                seed: 79,
            });
        }
    }
    operations
}
