//! Writes to a selection, appends and changes of shape.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::{Durability, Lock};

use super::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::log::array::ArrayHandle;
use crate::log::opened::OpenedStore;
use crate::log::settle::SettleOptions;
use crate::log::shapes::{check_not_grown, commit_shapes};
use crate::log::snapshot::{PinnedArray, Snapshot};
use crate::memory;
use crate::options::Freshness;
use crate::plan::geometry::Geometry;
use crate::source::Moment;
use crate::threads::check::{RunningCheck, concurrent_check};
use crate::write::elements::{Elements, WriteInput, consists_of};
use crate::write::sample::sample;
use crate::zarr::WriteStatistics;
use crate::zarr::object::{ObjectWrite, whole_machine};
use crate::zarr::region::{PlannedWrite, WriteConditions, write_plan, write_plans};
use crate::zarr::state::ArrayState;

impl Array {
    /// Writes `elements` to `selection`. Atomic per shard, durable on return; merges with the
    /// elements that other writers put into the same shards meanwhile.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` by the selection or the number of elements; `ReadOnly`,
    /// `NoSpace`; `Conflict` after lost races, and if a dead writer may have promised commits,
    /// which must be recovered first ([`Store::recover`](crate::Store::recover)); `Corrupt` if a
    /// chunk to merge with is damaged. Shards written before the error stay written.
    pub fn write(&self, selection: &Selection, elements: Elements<'_>) -> Result<WriteStatistics> {
        self.stored()?.write(selection, elements)
    }

    /// Appends `elements`, an array of `shape`, behind the last element along `axis`. Readers see
    /// all of it or nothing; durable on return. Returns the start of the new elements along `axis`.
    ///
    /// # Errors
    /// As [`Array::write`]; after an error the array has its old shape.
    pub fn append(&self, axis: usize, shape: &[u64], elements: Elements<'_>) -> Result<u64> {
        let part = Append { array: self, axis, shape, elements };
        let starts = append(std::slice::from_ref(&part))?;
        Ok(starts.first().copied().unwrap_or(0))
    }

    /// Changes the shape. New elements are the fill value, even where the array was larger before.
    /// Readers see the old shape or the new one; durable on return.
    ///
    /// # Errors
    /// `InvalidArgument` for another rank; `ReadOnly`, those of storage.
    pub fn resize(&self, shape: &[u64]) -> Result<()> {
        self.stored()?.resize(shape)
    }
}

impl ArrayHandle {
    fn write(&self, selection: &Selection, elements: Elements<'_>) -> Result<WriteStatistics> {
        self.store.check_writable()?;
        memory::check()?;
        let write = |check: Option<&RunningCheck>| {
            self.store.in_one_snapshot(|| {
                let Some((state, snapshot)) = self.state_to_write(selection, elements)? else {
                    return Ok(WriteStatistics::default());
                };
                let pinned = self.pinned_to(&state, snapshot);
                let way = WriteConditions { moment: &pinned.moment, valid: None, check };
                let written = self.write_to(&pinned, selection, elements, way)?;
                self.check_still_settled(&pinned)?;
                Ok(written)
            })
        };
        if self.store.threads_asking() == 1 {
            self.check_promises_kept()?;
            return write(None);
        }
        // A promise counts from the moment that it was made. So it suffices to have looked since
        // this call began, before any shard of it is visible.
        concurrent_check(|| self.check_promises_kept(), |check| write(Some(check)))
    }

    /// As [`OpenedStore::check_promises_kept`]. A growing array was checked when its growth began;
    /// a draft is checked once.
    fn check_promises_kept(&self) -> Result<()> {
        if self.growing || self.draft.as_ref().is_some_and(|draft| draft.are_promises_kept()) {
            return Ok(());
        }
        self.store.check_promises_kept()?;
        if let Some(draft) = &self.draft {
            draft.note_promises_kept();
        }
        Ok(())
    }

    /// Fails if another writer has committed since this write found all settled. Whole shards were
    /// published unconditionally, as of a moment before that commit, and have to be written again.
    fn check_still_settled(&self, pinned: &PinnedArray<'_>) -> Result<()> {
        if !pinned.moment.is_settled() {
            return Ok(());
        }
        self.store.refresh()?;
        let now = self.store.snapshot()?;
        if now.view.is_none() && now.number == pinned.moment.number() {
            return Ok(());
        }
        let text = format!("{} was committed to while it was written to", self.name());
        Err(Error::new(ErrorKind::SnapshotMoved, text))
    }

    /// The state with codecs, and a snapshot, for a write of `elements`; `None` if the write
    /// changes nothing.
    fn state_to_write(
        &self,
        selection: &Selection,
        elements: Elements<'_>,
    ) -> Result<Option<(Arc<ArrayState>, Snapshot)>> {
        let (state, snapshot) = self.state_in_newest_snapshot()?;
        if !state.is_open {
            return Ok(Some((state, snapshot)));
        }
        let given = self.given(&state, selection, elements)?;
        if self.is_nothing(&self.pinned_to(&state, snapshot), &given) {
            return Ok(None);
        }
        self.close_by(&state, &given)?;
        Ok(Some(self.state_in_newest_snapshot()?))
    }

    /// True for fill values that are written to an open array without any data. They say nothing
    /// about later elements, so the array stays open: for example, the first region of a field may
    /// be land.
    fn is_nothing(&self, pinned: &PinnedArray<'_>, given: &WriteElements<'_>) -> bool {
        let fill = pinned.source.state.layout.fill.bytes();
        pinned.moment.is_settled()
            && matches!(given.elements, Elements::Bytes(elements) if consists_of(elements, fill))
            // Where listing is denied, data are assumed to exist.
            && pinned.source.existing().is_ok_and(|existing| existing.is_empty())
    }

    /// Closes the array, which is open in `state`, with codecs chosen by the elements about to be
    /// written.
    fn close_by(&self, state: &ArrayState, given: &WriteElements<'_>) -> Result<()> {
        self.close(state, Some(&|| sample(&state.layout, &given.plan, &given.input())))
    }

    /// As [`ArrayHandle::state_in_snapshot`], regardless of the handle's freshness. With an
    /// outdated shape, a merge of the last shard would lose the elements that commits added behind
    /// it.
    fn state_in_newest_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        let found = self.state_in_snapshot()?;
        let looks_always = self.store.options.freshness == Freshness::Read;
        if looks_always || self.growing || found.1.view.is_none() {
            return Ok(found);
        }
        // Later commits than the known ones would cover the written elements.
        self.store.refresh()?;
        self.reload()?;
        self.state_in_snapshot()
    }

    fn write_to(
        &self,
        pinned: &PinnedArray<'_>,
        selection: &Selection,
        elements: Elements<'_>,
        way: WriteConditions<'_>,
    ) -> Result<WriteStatistics> {
        let given = self.given(pinned.source.state, selection, elements)?;
        write_plan(&pinned.source, &given.plan, given.input(), way)
    }

    /// Plans a write of elements to a selection of the array in `state`, and checks their number.
    fn given<'e>(
        &self,
        state: &ArrayState,
        selection: &Selection,
        elements: Elements<'e>,
    ) -> Result<WriteElements<'e>> {
        if state.metadata.zarr_format != 3 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is Zarr v2, which Bedform only reads", self.name()),
            ));
        }
        let plan = state.layout.geometry(selection).map_err(|error| error.at(&self.path))?;
        let numbers = match (elements, state.is_text()) {
            (Elements::Bytes(_), false) => Vec::new(),
            (Elements::Text(texts), true) => {
                (1..=texts.len() as u64).flat_map(u64::to_le_bytes).collect()
            }
            _ => {
                return Err(Error::invalid(format!(
                    "{} holds {}, and was given something else",
                    self.name(),
                    state.metadata.data_type
                )));
            }
        };
        let given = WriteElements { plan, elements, numbers };
        check_count(&given.plan, &given.input(), &self.path)?;
        Ok(given)
    }

    fn resize(&self, shape: &[u64]) -> Result<()> {
        self.store.check_writable()?;
        self.store.check_promises_kept()?;
        self.store.in_one_snapshot(|| {
            settle_first(&self.store)?;
            self.resize_settled(shape)
        })
    }

    /// As [`Array::resize`]; `SnapshotMoved` if another writer has committed meanwhile.
    fn resize_settled(&self, shape: &[u64]) -> Result<()> {
        let _lock = self.lock()?;
        check_not_grown(&self.store, &[self])?;
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
        let axes = |of: fn(&u64, &u64) -> bool| -> Vec<usize> {
            (0..old.len()).filter(|axis| of(&shape[*axis], &old[*axis])).collect()
        };
        let growing = axes(u64::gt);
        if !growing.is_empty() {
            // The remains of crashed appends or earlier shrinking must not become visible.
            self.clean_outside(&state, old, &growing)?;
        }
        commit_shapes(&self.store, &[(&self.path, &grown)])?;
        if growing.is_empty() {
            // Objects that cannot be removed now are removed before the array grows again.
            let _ = self.clean_outside(&grown, shape, &axes(u64::lt));
        }
        self.advance(grown);
        Ok(())
    }

    /// Removes objects outside `shape`, and sets stored elements behind its ends along `axes` to
    /// the fill value. Behind the ends of other axes lies only the padding of objects.
    fn clean_outside(&self, state: &ArrayState, shape: &[u64], axes: &[usize]) -> Result<()> {
        let pinned = self.pinned(state)?;
        let source = pinned.source;
        let object_shape = &state.metadata.chunk_shape;
        if let Some(key) = pinned.moment.key() {
            let spans = shape.iter().zip(object_shape);
            let grid: Vec<u64> = spans.map(|(end, length)| end.div_ceil(*length)).collect();
            self.store.unlist_outside(&key, &grid)?;
        }
        let (existing, directories) = source.walk()?;
        if state.is_open && !existing.is_empty() {
            self.close(state, None)?;
            let now = self.reload()?;
            let closed = self.with_shape(&now, &state.metadata.shape)?;
            return self.clean_outside(&closed, shape, axes);
        }
        if self.store.options.durability == Durability::Disk {
            // The deleter of an object may have crashed before it synced the directory; the object
            // must not reappear.
            directories.iter().try_for_each(|directory| self.store.storage.sync(directory))?;
        }
        for coordinates in existing {
            let spans = || coordinates.iter().zip(object_shape).zip(shape);
            if spans().any(|((at, length), valid)| at.saturating_mul(*length) >= *valid) {
                let path = source.object_path(&coordinates)?;
                self.store.storage.delete(
                    &path,
                    self.store.options.durability,
                    bedform_storage::Condition::None,
                )?;
            } else if axes.iter().any(|axis| {
                (coordinates[*axis] + 1).saturating_mul(object_shape[*axis]) > shape[*axis]
            }) {
                let write = ObjectWrite {
                    kept_beside: None,
                    source: &source,
                    moment: &pinned.moment,
                    plan: None,
                    input: if state.is_text() {
                        WriteInput::Text(&[], &[])
                    } else {
                        WriteInput::Bytes(&[])
                    },
                    coordinates: coordinates.clone(),
                    valid: Some(shape),
                    resources: whole_machine(&self.store),
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

/// Appends to several arrays of one store: readers see all of it or nothing. Returns the start of
/// the new elements in each.
///
/// # Errors
/// As [`Array::append`]; after an error the arrays have their old shapes.
pub fn append(parts: &[Append<'_>]) -> Result<Vec<u64>> {
    let arrays = parts.iter().map(|part| part.array.stored()).collect::<Result<Vec<_>>>()?;
    memory::check()?;
    let Some((store, _locks)) = lock_all(&arrays)? else { return Ok(Vec::new()) };
    // The locks exclude other appends; commits and direct writes by others are merged.
    let grown = store.in_one_snapshot(|| write_appended(&store, &arrays, parts))?;
    let starts = grown.iter().map(|grown| grown.start).collect();
    commit_grown(&store, &arrays, grown.into_iter().map(|grown| grown.state).collect())?;
    Ok(starts)
}

/// Publishes the new shapes of arrays whose elements are written, all at once.
fn commit_grown(
    store: &OpenedStore,
    arrays: &[&ArrayHandle],
    grown: Vec<ArrayState>,
) -> Result<()> {
    let changes: Vec<(&ObjectPath, &ArrayState)> =
        arrays.iter().map(|array| &array.path).zip(&grown).collect();
    commit_shapes(store, &changes)?;
    arrays.iter().zip(grown).for_each(|(array, state)| array.advance(state));
    Ok(())
}

/// The growth of one array in [`append_with`].
pub struct Growth<'a> {
    /// The array that grows.
    pub array: &'a Array,
    /// The axis that grows.
    pub axis: usize,
    /// The number of new elements along the axis.
    pub length: u64,
}

/// As [`append`], for elements that do not fit into memory: `fill` writes them in parts, from any
/// process, through [`Store::grown`](crate::Store::grown) arrays of the shapes that it is called
/// with. Other appends wait until it has ended. Readers see all of it or nothing.
///
/// # Errors
/// As [`append`], and the error of `fill`; after an error the arrays have their old shapes.
pub fn append_with(
    parts: &[Growth<'_>],
    fill: &mut dyn FnMut(&[Vec<u64>]) -> Result<()>,
) -> Result<()> {
    let arrays = parts.iter().map(|part| part.array.stored()).collect::<Result<Vec<_>>>()?;
    let Some((store, _locks)) = lock_all(&arrays)? else { return fill(&[]) };
    let mut shapes = Vec::with_capacity(parts.len());
    for (Growth { axis, length, .. }, array) in parts.iter().zip(&arrays) {
        let state = array.reload()?;
        let mut shape = state.metadata.shape.clone();
        let old = shape.get(*axis).ok_or_else(|| Error::invalid("no such axis"))?;
        shape[*axis] = old.checked_add(*length).ok_or_else(|| Error::invalid("too large"))?;
        array.with_shape(&state, &shape)?;
        // The remains of a crashed append behind the end must not become visible.
        let clean = || array.clean_outside(&state, &state.metadata.shape, &[*axis]);
        store.in_one_snapshot(clean)?;
        shapes.push(shape);
    }
    fill(&shapes)?;
    let mut grown = Vec::with_capacity(parts.len());
    for (array, shape) in arrays.iter().zip(&shapes) {
        // Attributes may have changed meanwhile, but not the shape.
        let state = array.reload()?;
        grown.push(array.with_shape(&state, shape)?);
    }
    commit_grown(&store, &arrays, grown)
}

/// The store of several arrays, and the arrays' locks.
type LockedArrays = (Arc<OpenedStore>, Vec<Box<dyn Lock>>);

/// Settles all commits before a shape changes, so that no commit lies outside the new shape and
/// reappears when the array grows again.
fn settle_first(store: &Arc<OpenedStore>) -> Result<()> {
    if store.snapshot()?.view.is_some_and(|view| view.root.has_commits()) {
        store.settle_with(&SettleOptions::default(), &|_, _| ())?;
    }
    Ok(())
}

/// Locks arrays whose shapes are to change together; `None` without arrays.
fn lock_all(arrays: &[&ArrayHandle]) -> Result<Option<LockedArrays>> {
    let Some(first) = arrays.first() else { return Ok(None) };
    let store = first.store.clone();
    store.check_writable()?;
    store.check_promises_kept()?;
    if arrays.iter().any(|array| !Arc::ptr_eq(&array.store, &store)) {
        return Err(Error::invalid("an append goes to arrays of one opened store"));
    }
    let mut sorted = arrays.to_vec();
    sorted.sort_by_key(|array| &array.path);
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(Error::invalid(format!("{} is given twice", twice[0].name())));
    }
    store.in_one_snapshot(|| {
        settle_first(&store)?;
        // Always in the order of paths, so that two appends never wait for each other.
        let locks = sorted.iter().map(|array| array.lock()).collect::<Result<_>>()?;
        check_not_grown(&store, &sorted)?;
        Ok(Some((store.clone(), locks)))
    })
}

/// An array that grows along one axis.
struct AppendedArray {
    old: Vec<u64>,
    /// The region of the new elements.
    selection: Selection,
    start: u64,
    state: ArrayState,
    /// True if nothing has to be written: see [`ArrayHandle::is_nothing`].
    is_nothing: bool,
}

/// Writes the elements of an append behind the arrays' ends, where no reader looks yet.
fn write_appended(
    store: &OpenedStore,
    arrays: &[&ArrayHandle],
    parts: &[Append<'_>],
) -> Result<Vec<AppendedArray>> {
    let grown: Vec<AppendedArray> =
        arrays.iter().zip(parts).map(|(array, part)| grown(array, part)).collect::<Result<_>>()?;
    let pinned = arrays.iter().zip(&grown).map(|(array, grown)| array.pinned(&grown.state));
    let pinned: Vec<PinnedArray<'_>> = pinned.collect::<Result<_>>()?;
    let given = arrays.iter().zip(parts).zip(&grown);
    let given = given.map(|((array, part), AppendedArray { selection, state, .. })| {
        array.given(state, selection, part.elements)
    });
    let given: Vec<WriteElements<'_>> = given.collect::<Result<_>>()?;
    let planned = pinned.iter().zip(&given).zip(&grown);
    let planned = planned.filter(|(_, grown)| !grown.is_nothing).map(|((pinned, given), grown)| {
        PlannedWrite {
            source: &pinned.source,
            plan: &given.plan,
            input: given.input(),
            way: WriteConditions { moment: &pinned.moment, valid: Some(&grown.old), check: None },
        }
    });
    write_plans(store, &planned.collect::<Vec<_>>())?;
    Ok(grown)
}

/// The array with its new shape, and the place of an append's elements.
fn grown(array: &ArrayHandle, part: &Append<'_>) -> Result<AppendedArray> {
    let Append { axis, shape, .. } = part;
    let state = array.reload()?;
    let old = state.metadata.shape.clone();
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
    let ranges: Vec<AxisSelection> = larger
        .iter()
        .enumerate()
        .map(|(other, length)| {
            let start = if other == *axis { start } else { 0 };
            AxisRange::contiguous(start, length - start).map(AxisSelection::Range)
        })
        .collect::<std::result::Result<_, _>>()?;
    let selection = Selection::Orthogonal(ranges);
    let mut state = array.with_shape(&state, &larger)?;
    let mut is_nothing = false;
    if state.is_open {
        let given = array.given(&state, &selection, part.elements)?;
        is_nothing = array.is_nothing(&array.pinned(&state)?, &given);
        if !is_nothing {
            array.close_by(&state, &given)?;
            let now = array.reload()?;
            state = array.with_shape(&now, &larger)?;
        }
    }
    Ok(AppendedArray { old, selection, start, state, is_nothing })
}

/// Elements of a write, and their places.
struct WriteElements<'a> {
    plan: Geometry,
    elements: Elements<'a>,
    /// The numbers of the texts, from 1; empty for elements of fixed size.
    numbers: Vec<u8>,
}

impl WriteElements<'_> {
    fn input(&self) -> WriteInput<'_> {
        match self.elements {
            Elements::Bytes(bytes) => WriteInput::Bytes(bytes),
            Elements::Text(texts) => WriteInput::Text(texts, &self.numbers),
        }
    }
}

fn check_count(plan: &Geometry, input: &WriteInput<'_>, path: &ObjectPath) -> Result<()> {
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
