//! Writes to a selection, appends and changes of shape.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::{Durability, Lock};
use serde_json::json;

use super::{Array, ArrayState, ZarrSource};
use crate::error::{Error, ErrorKind, Result};
use crate::log::commit::enlarge;
use crate::plan::geometry::Geometry;
use crate::store::{Freshness, Shared, Snapshot, Store, check_key, commit, publish};
use crate::threads::check::{Check, concurrent_check};
use crate::write::elements::Input;
use crate::zarr::WriteStatistics;
use crate::zarr::object::{ObjectWrite, WriteResources};
use crate::zarr::region::{Way, write_plan};

/// Elements to write, in C order.
#[derive(Debug, Clone, Copy)]
pub enum Elements<'a> {
    /// Fixed-size elements in the machine's byte order.
    Bytes(&'a [u8]),
    /// Texts.
    Text(&'a [&'a str]),
}

impl Array {
    /// Writes `elements` to `selection`. Atomic per shard, durable on return; merges with what other
    /// writers put into the same shards meanwhile.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` by the selection or the number of elements; `ReadOnly`,
    /// `NoSpace`, `Conflict` (also if a writer has died that may have promised commits: they come first,
    /// see [`Store::recover`](crate::Store::recover)), `Corrupt` if a chunk to merge with is damaged.
    /// Shards written before the error stay written.
    pub fn write(
        &self,
        selection: &Selection,
        elements: Elements<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<WriteStatistics> {
        self.shared.check_writable()?;
        let write = |check: Option<&Check>| {
            self.shared.in_one_snapshot(|| {
                let (state, snapshot) = self.state_to_write()?;
                let source = self.source_in(&state, snapshot);
                let way = Way { valid: None, check };
                let written = self.write_to(&source, selection, elements, way, interrupted)?;
                self.check_still_settled(&source)?;
                Ok(written)
            })
        };
        if self.shared.threads_asking() == 1 {
            self.check_promises_kept()?;
            return write(None);
        }
        // A promise counts from when it was made: it is enough to have looked since this call began, and
        // before anything of it is there.
        concurrent_check(|| self.check_promises_kept(), |check| write(Some(check)))
    }

    /// As [`Shared::check_promises_kept`]; for a growth that was done when it began, and for the blocks of
    /// a draft it is done once.
    fn check_promises_kept(&self) -> Result<()> {
        if self.growing || self.draft.as_ref().is_some_and(|draft| draft.are_promises_kept()) {
            return Ok(());
        }
        self.shared.check_promises_kept()?;
        if let Some(draft) = &self.draft {
            draft.note_promises_kept();
        }
        Ok(())
    }

    /// Fails if somebody has committed since a write found all settled: whole shards were put in place
    /// whatever was there, as those of a time before that commit, and are to be written again.
    fn check_still_settled(&self, source: &ZarrSource<'_>) -> Result<()> {
        if source.snapshot.view.is_some() {
            return Ok(());
        }
        self.shared.look_again()?;
        let now = self.shared.snapshot()?;
        if now.view.is_none() && now.number == source.snapshot.number {
            return Ok(());
        }
        let text = format!("{} was committed to while it was written to", self.name());
        Err(Error::new(ErrorKind::SnapshotMoved, text))
    }

    /// As [`Array::state_in_snapshot`], however seldom this handle looks for changes: what commits have
    /// behind an end that is known no more would be lost with the shard that is merged with them.
    fn state_to_write(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        let found = self.state_in_snapshot()?;
        let looks_always = self.shared.options.freshness == Freshness::Read;
        if looks_always || self.growing || found.1.view.is_none() {
            return Ok(found);
        }
        self.shared.documents.read_root(&self.shared)?;
        self.reload()?;
        self.state_in_snapshot()
    }

    fn write_to(
        &self,
        source: &ZarrSource<'_>,
        selection: &Selection,
        elements: Elements<'_>,
        way: Way<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<WriteStatistics> {
        let state = source.state;
        if state.metadata.zarr_format != 3 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is Zarr v2, which Bedform only reads", self.name()),
            ));
        }
        let plan = super::read::plan(state, selection).map_err(|error| error.at(&self.path))?;
        let mut numbers = Vec::new();
        let input = match (elements, state.is_text()) {
            (Elements::Bytes(bytes), false) => Input::Bytes(bytes),
            (Elements::Text(texts), true) => {
                numbers.extend((1..=texts.len() as u64).flat_map(u64::to_le_bytes));
                Input::Text(texts, &numbers)
            }
            _ => {
                return Err(Error::invalid(format!(
                    "{} holds {}, and was given something else",
                    self.name(),
                    state.metadata.data_type
                )));
            }
        };
        check_count(&plan, &input, &self.path)?;
        write_plan(source, &plan, input, way, interrupted)
    }

    /// Appends `elements`, an array of `shape`, behind the last element along `axis`. Readers see
    /// all of it or nothing; durable on return. Returns where the new elements start along `axis`.
    ///
    /// # Errors
    /// As [`Array::write`]; after an error the array is as before.
    pub fn append(
        &self,
        axis: usize,
        shape: &[u64],
        elements: Elements<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<u64> {
        let part = Append { array: self, axis, shape, elements };
        let starts = append(std::slice::from_ref(&part), interrupted)?;
        Ok(starts.first().copied().unwrap_or(0))
    }

    /// Changes the shape. New elements are the fill value, also where the array once was larger.
    /// Readers see the old shape or the new one; durable on return.
    ///
    /// # Errors
    /// `InvalidArgument` for another rank; `ReadOnly`, those of storage.
    pub fn resize(&self, shape: &[u64]) -> Result<()> {
        self.shared.check_writable()?;
        self.shared.check_promises_kept()?;
        self.shared.in_one_snapshot(|| {
            settle_first(&self.shared)?;
            self.resize_settled(shape)
        })
    }

    /// As [`Array::resize`]; `SnapshotMoved` if somebody has committed meanwhile.
    fn resize_settled(&self, shape: &[u64]) -> Result<()> {
        let _lock = self.lock()?;
        check_not_grown(&self.shared, &[self])?;
        let state = self.reload()?;
        let old = &state.metadata.shape;
        if shape.len() != old.len() {
            return Err(Error::invalid(format!(
                "{} has {} axes, the new shape {shape:?} has {}",
                self.name(),
                old.len(),
                shape.len()
            )));
        }
        let grown = self.with_shape(&state, shape)?;
        let grows = shape.iter().zip(old).any(|(new, old)| new > old);
        if grows {
            // What crashed appends or earlier shrinking left behind must not come to light.
            self.clean_outside(&state, old)?;
        }
        commit_shapes(&self.shared, &[(&self.path, &grown)])?;
        if !grows {
            // What cannot be removed now is, before the array grows again.
            let _ = self.clean_outside(&grown, shape);
        }
        self.advance(grown);
        Ok(())
    }

    /// A handle on the array as it will be with `shape`: see [`Store::grown`](crate::Store::grown).
    pub(crate) fn grown(&self, shape: &[u64]) -> Result<Self> {
        let state = self.state()?;
        let old = &state.metadata.shape;
        let fits = shape.len() == old.len() && old.iter().zip(shape).all(|(old, new)| old <= new);
        if !fits {
            return Err(Error::invalid(format!(
                "{} of shape {old:?} does not grow to {shape:?}",
                self.name()
            )));
        }
        let grown = Arc::new(self.with_shape(&state, shape)?);
        let state = Arc::new(RwLock::new(grown));
        let Self { shared, path, larger, draft, .. } = self.clone();
        Ok(Self { shared, path, state, larger, draft, growing: true })
    }

    /// The lock under which the array's shape changes.
    fn lock(&self) -> Result<Box<dyn Lock>> {
        if self.draft.as_ref().is_some_and(|draft| draft.is_live()) {
            return Err(Error::invalid(format!(
                "{} is a draft, whose shape does not change; commit it first",
                self.name()
            )));
        }
        self.shared.lock(&self.path)
    }

    /// The array as it would be with another shape.
    pub(super) fn with_shape(&self, state: &ArrayState, shape: &[u64]) -> Result<ArrayState> {
        let mut document = state.document.clone();
        document["shape"] = json!(shape);
        let metadata =
            bedform_format::metadata::parse_array(&document, &self.shared.options.limits)
                .map_err(|error| Error::invalid(format!("{}: {error}", self.name())))?;
        ArrayState::new(&self.shared, metadata, document, None)
    }

    /// Removes objects outside `shape`, and makes fill values of stored elements outside it.
    fn clean_outside(&self, state: &ArrayState, shape: &[u64]) -> Result<()> {
        let source = self.source(state)?;
        let object_shape = &state.metadata.chunk_shape;
        let (existing, directories) = source.walk()?;
        if self.shared.options.durability == Durability::Disk {
            // What somebody has deleted before us, and perhaps did not live to sync, must not come
            // back either.
            directories.iter().try_for_each(|directory| self.shared.storage.sync(directory))?;
        }
        for coordinates in existing {
            let spans = || coordinates.iter().zip(object_shape).zip(shape);
            if spans().any(|((at, length), valid)| at.saturating_mul(*length) >= *valid) {
                let path = source.object_path(&coordinates)?;
                self.shared.storage.delete(
                    &path,
                    self.shared.options.durability,
                    bedform_storage::Condition::None,
                )?;
            } else if spans().any(|((at, length), valid)| (at + 1) * length > *valid) {
                let write = ObjectWrite {
                    source: &source,
                    plan: None,
                    input: if state.is_text() { Input::Text(&[], &[]) } else { Input::Bytes(&[]) },
                    coordinates: coordinates.clone(),
                    valid: Some(shape),
                    share: WriteResources::whole(&self.shared),
                    check: None,
                };
                write.run()?;
            }
        }
        Ok(())
    }
}

/// One array's part of an append.
pub struct Append<'a> {
    /// The array to append to.
    pub array: &'a Array,
    /// The axis that grows.
    pub axis: usize,
    /// The shape of the new elements.
    pub shape: &'a [u64],
    /// The new elements.
    pub elements: Elements<'a>,
}

/// Appends to several arrays of one store: readers see all of it or nothing. Returns where the new
/// elements start in each.
///
/// # Errors
/// As [`Array::append`]; after an error the arrays are as before.
pub fn append(parts: &[Append<'_>], interrupted: &dyn Fn() -> bool) -> Result<Vec<u64>> {
    let arrays: Vec<&Array> = parts.iter().map(|part| part.array).collect();
    let Some((shared, _locks)) = lock_all(&arrays)? else { return Ok(Vec::new()) };
    let mut grown = Vec::with_capacity(parts.len());
    let mut starts = Vec::with_capacity(parts.len());
    for part in parts {
        // Nobody makes the array larger now; what others commit to it, and write directly, is merged.
        let (start, state) = shared.in_one_snapshot(|| write_appended(part, interrupted))?;
        starts.push(start);
        grown.push((&part.array.path, state));
    }
    let changes: Vec<(&ObjectPath, &ArrayState)> =
        grown.iter().map(|(path, state)| (*path, state)).collect();
    commit_shapes(&shared, &changes)?;
    for (part, (_, state)) in parts.iter().zip(grown) {
        part.array.advance(state);
    }
    Ok(starts)
}

/// How one array grows in [`append_with`].
pub struct Growth<'a> {
    /// The array that grows.
    pub array: &'a Array,
    /// The axis that grows.
    pub axis: usize,
    /// How many elements come to it.
    pub length: u64,
}

/// As [`append`], for elements that do not fit into memory: `fill` writes them, piece by piece and
/// from any process, through [`Store::grown`](crate::Store::grown) arrays of the shapes that it is
/// given. Nobody else can append meanwhile. Readers see all of it or nothing.
///
/// # Errors
/// As [`append`], and what `fill` returns; after an error the arrays are as before.
pub fn append_with(
    parts: &[Growth<'_>],
    fill: &mut dyn FnMut(&[Vec<u64>]) -> Result<()>,
) -> Result<()> {
    let arrays: Vec<&Array> = parts.iter().map(|part| part.array).collect();
    let Some((shared, _locks)) = lock_all(&arrays)? else { return fill(&[]) };
    let mut shapes = Vec::with_capacity(parts.len());
    for Growth { array, axis, length } in parts {
        let state = array.reload()?;
        let mut shape = state.metadata.shape.clone();
        let old = shape.get(*axis).ok_or_else(|| Error::invalid("no such axis"))?;
        shape[*axis] = old.checked_add(*length).ok_or_else(|| Error::invalid("too large"))?;
        array.with_shape(&state, &shape)?;
        // What a crashed append left behind the end must not come to light.
        shared.in_one_snapshot(|| array.clean_outside(&state, &state.metadata.shape))?;
        shapes.push(shape);
    }
    fill(&shapes)?;
    let mut grown = Vec::with_capacity(parts.len());
    for (Growth { array, .. }, shape) in parts.iter().zip(&shapes) {
        // Attributes may have changed meanwhile, the shape not.
        let state = array.reload()?;
        grown.push((&array.path, array.with_shape(&state, shape)?));
    }
    let changes: Vec<(&ObjectPath, &ArrayState)> =
        grown.iter().map(|(path, state)| (*path, state)).collect();
    commit_shapes(&shared, &changes)?;
    for (part, (_, state)) in parts.iter().zip(grown) {
        part.array.advance(state);
    }
    Ok(())
}

/// What arrays have in common, and their locks.
type Locked = (Arc<Shared>, Vec<Box<dyn Lock>>);

/// Commits become shards before a shape changes, so that none of them lies outside the new one and
/// comes to light when the array grows again.
fn settle_first(shared: &Arc<Shared>) -> Result<()> {
    if shared.snapshot()?.view.is_some() {
        Store { shared: shared.clone() }.settle(&|| false)?;
    }
    Ok(())
}

/// Fails if there are commits that are not settled: they may lie where the array will end. While the
/// caller holds the store's lock nobody makes the first one.
fn check_no_commits(shared: &Shared) -> Result<()> {
    shared.look_again()?;
    match shared.snapshot()?.view {
        Some(view) if !view.root.commits.is_empty() => Err(Error::new(
            ErrorKind::SnapshotMoved,
            format!("{} was written to while an array was made smaller", shared.storage.name()),
        )),
        _ => Ok(()),
    }
}

/// The locks of arrays whose shapes are to change together; `None` without arrays.
fn lock_all(arrays: &[&Array]) -> Result<Option<Locked>> {
    let Some(first) = arrays.first() else { return Ok(None) };
    let shared = first.shared.clone();
    shared.check_writable()?;
    shared.check_promises_kept()?;
    if arrays.iter().any(|array| !Arc::ptr_eq(&array.shared, &shared)) {
        return Err(Error::invalid("an append goes to arrays of one opened store"));
    }
    let mut sorted = arrays.to_vec();
    sorted.sort_by_key(|array| &array.path);
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(Error::invalid(format!("{} is given twice", twice[0].name())));
    }
    shared.in_one_snapshot(|| {
        settle_first(&shared)?;
        // Always in the order of paths, so that two appends cannot wait for each other.
        let locks = sorted.iter().map(|array| array.lock()).collect::<Result<_>>()?;
        check_not_grown(&shared, &sorted)?;
        Ok(Some((shared.clone(), locks)))
    })
}

/// Fails if commits that are not settled have made an array larger than its metadata say. The caller
/// holds the locks of the arrays: nobody makes them larger now.
fn check_not_grown(shared: &Shared, arrays: &[&Array]) -> Result<()> {
    shared.look_again()?;
    let Some(view) = shared.snapshot()?.view else { return Ok(()) };
    for array in arrays {
        let state = array.reload()?;
        let grown = state.identity().and_then(|identity| view.root.shapes.get(&identity.array));
        let is_larger = grown.is_some_and(|grown| {
            grown.iter().zip(&state.metadata.shape).any(|(grown, stored)| grown > stored)
        });
        if is_larger {
            return Err(Error::new(
                ErrorKind::SnapshotMoved,
                format!("a commit has made {} larger meanwhile", array.name()),
            ));
        }
    }
    Ok(())
}

/// Makes the metadata of arrays say the shapes that commits gave them; by keys. To be called when
/// these commits are in the shards.
///
/// # Errors
/// Those of storage. What was published stays.
pub(crate) fn publish_grown(store: &Store, shapes: &BTreeMap<[u8; 16], Vec<u64>>) -> Result<()> {
    if shapes.is_empty() {
        return Ok(());
    }
    let shared = &store.shared;
    let by_key = shared.shapes_by_key()?;
    let mut arrays = BTreeMap::new();
    for (key, shape) in shapes {
        let Some((path, stored)) = by_key.get(key) else { continue };
        if stored.iter().zip(shape).any(|(stored, shape)| stored < shape) {
            arrays.insert(path.clone(), (store.array(path)?, shape));
        }
    }
    let _locks = arrays.values().map(|(array, _)| array.lock()).collect::<Result<Vec<_>>>()?;
    let mut changes = Vec::with_capacity(arrays.len());
    for (path, (array, shape)) in &arrays {
        let state = array.reload()?;
        let mut larger = state.metadata.shape.clone();
        enlarge(&mut larger, shape);
        changes.push((path, array.with_shape(&state, &larger)?));
    }
    let changes: Vec<_> = changes.iter().map(|(path, state)| (*path, state)).collect();
    if changes.is_empty() { Ok(()) } else { commit_shapes(shared, &changes) }
}

/// Writes the elements of an append behind the array's end, where no reader looks yet.
fn write_appended(part: &Append<'_>, interrupted: &dyn Fn() -> bool) -> Result<(u64, ArrayState)> {
    let Append { array, axis, shape, elements } = part;
    let state = array.reload()?;
    let old = &state.metadata.shape;
    let fits = shape.len() == old.len()
        && *axis < old.len()
        && (0..old.len()).all(|other| other == *axis || shape[other] == old[other]);
    if !fits {
        return Err(Error::invalid(format!(
            "elements of shape {shape:?} cannot be appended to {} of shape {old:?} along axis {axis}",
            array.name()
        )));
    }
    let start = old[*axis];
    let mut larger = old.clone();
    larger[*axis] = start.checked_add(shape[*axis]).ok_or_else(|| Error::invalid("too large"))?;
    let grown = array.with_shape(&state, &larger)?;
    let ranges: Vec<AxisSelection> = larger
        .iter()
        .enumerate()
        .map(|(other, length)| {
            let start = if other == *axis { start } else { 0 };
            AxisRange::contiguous(start, length - start).map(AxisSelection::Range)
        })
        .collect::<std::result::Result<_, _>>()?;
    let selection = Selection::Orthogonal(ranges);
    let way = Way { valid: Some(old), check: None };
    array.write_to(&array.source(&grown)?, &selection, *elements, way, interrupted)?;
    Ok((start, grown))
}

/// Publishes new shapes: the arrays' documents, then the store's, which is the commit.
fn commit_shapes(shared: &Shared, changes: &[(&ObjectPath, &ArrayState)]) -> Result<()> {
    let root = ObjectPath::root();
    let is_alone = changes.iter().any(|(path, _)| path.is_root());
    let _lock = if is_alone { None } else { Some(shared.lock(&root)?) };
    // Attributes may have changed since the arrays were read, and arrays may have been deleted: only
    // the shapes are ours to say.
    let mut documents = Vec::with_capacity(changes.len());
    for (path, state) in changes {
        let known = shared.documents.array(shared, path)?;
        let mut document = known.document;
        let old = known.metadata.shape.iter();
        if old.zip(&state.metadata.shape).any(|(old, new)| new < old) {
            check_no_commits(shared)?;
        }
        if let Some(identity) = state.identity() {
            check_key(shared, path, &document, &identity.array)?;
        }
        document["shape"] = json!(state.metadata.shape);
        documents.push(document);
    }
    let mut paths = Vec::with_capacity(changes.len());
    for ((path, _), document) in changes.iter().zip(&documents) {
        publish(shared, path, document.clone())?;
        paths.push((*path).clone());
    }
    if is_alone { Ok(()) } else { commit(shared, &paths, &[]) }
}

fn check_count(plan: &Geometry, input: &Input<'_>, path: &ObjectPath) -> Result<()> {
    let (given, needed) = (input.elements().len() as u64, plan.result_bytes());
    if given == needed {
        return Ok(());
    }
    let item = plan.item_size().max(1) as u64;
    Err(Error::invalid(format!(
        "{path}: {} elements were given for a selection of {}",
        given / item,
        needed / item
    )))
}
