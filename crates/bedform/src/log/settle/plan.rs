//! The plan of a settling: the objects of each array that commits may touch. Planning reads no
//! data.

use crate::log::array::ArrayHandle;
use crate::log::array::replaced;
use crate::log::opened::OpenedStore;
use crate::log::shapes::enlarge;
use crate::log::snapshot::{PinnedArray, Snapshot};
use crate::zarr::nodes::NodeKind;
use crate::zarr::state::ArrayState;
use std::collections::BTreeMap;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::Section;
use bedform_geometry::{delinearize, element_count, linearize};

use crate::error::{Error, ErrorKind, Result};
use crate::log::view::RootView;

/// Objects that the bounding box of a section may touch before its boxes are looked at one by one.
const OBJECTS_BY_BOUNDS: u64 = 1024;

/// An array with commits that may not be settled, and its objects to settle.
pub(super) struct SettlePlan {
    pub(super) path: ObjectPath,
    pub(super) key: [u8; 16],
    pub(super) state: Arc<ArrayState>,
    /// Objects along each axis.
    pub(super) grid: Vec<u64>,
    /// The objects that commits may touch, in the C order of the grid.
    pub(super) objects: Vec<ObjectPlan>,
    /// The commits that made the array larger, in order, each with the shape before it.
    growths: Vec<(u64, Vec<u64>)>,
}

/// An object that commits may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectPlan {
    /// Its index in the C order of the grid of objects.
    pub(super) number: u64,
    /// Upper bound for the bytes of its touched chunks when decoded.
    pub(super) bytes: u64,
}

impl SettlePlan {
    /// Returns the coordinates of an object in the grid of objects.
    pub(super) fn coordinates(&self, number: u64) -> Vec<u64> {
        delinearize(number, &self.grid)
    }

    /// Returns the directories whose entries lead to an object, from the array's own directory
    /// down.
    pub(super) fn directories(&self, number: u64) -> Result<Vec<ObjectPath>> {
        let name = self.state.metadata.keys.name(&self.coordinates(number));
        let mut directory = self.path.join(&name)?.parent();
        let mut above = Vec::new();
        while directory != self.path && !directory.is_root() {
            let parent = directory.parent();
            above.push(std::mem::replace(&mut directory, parent));
        }
        above.push(directory);
        above.reverse();
        Ok(above)
    }

    /// Returns the shape within which the stored elements of an object count, if the object
    /// contains the commits up to `contained`. Elements outside were left by an append that was cut
    /// off. `None` if all elements count.
    pub(super) fn valid(&self, contained: u64) -> Option<&[u64]> {
        let growth = self.growths.iter().find(|(commit, _)| *commit > contained);
        growth.map(|(_, base)| base.as_slice())
    }

    /// Returns the array as of the snapshot of `view`.
    pub(super) fn pinned<'a>(
        &'a self,
        store: &'a OpenedStore,
        view: &Arc<RootView>,
    ) -> PinnedArray<'a> {
        PinnedArray::new(store, &self.path, &self.state, Snapshot::of(view.clone()))
    }
}

/// Plans the settling of `arrays`, or of all: finds the objects that the commits of `view` touch.
///
/// # Errors
/// `NotFound` for a name that is no array; `Corrupt` for damaged records; those of storage.
pub(super) fn plan(
    store: &Arc<OpenedStore>,
    view: &Arc<RootView>,
    arrays: Option<&[ObjectPath]>,
) -> Result<Vec<SettlePlan>> {
    let nodes = store.documents.nodes(store)?;
    let is_array = |path: &ObjectPath| nodes.get(path) == Some(&NodeKind::Array);
    if let Some(missing) = arrays.and_then(|all| all.iter().find(|path| !is_array(path))) {
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{} has no array {missing}", store.storage.name()),
        ));
    }
    let mut plans = Vec::new();
    for path in nodes.keys().filter(|path| is_array(path)) {
        if arrays.is_some_and(|chosen| !chosen.contains(path)) {
            continue;
        }
        let state =
            match ArrayHandle::open(store.clone(), path.clone()).and_then(|array| array.state()) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    check_unneeded(store, view, path)?;
                    continue;
                }
                state => state?,
            };
        let Some(identity) = state.identity() else { continue };
        let key = identity.array;
        let grid = grid_of(view, &key, &state)?;
        let mut growths = Vec::new();
        view.growths(&key, 0, grid.len(), &mut |commit, base| {
            growths.push((commit, base.to_vec()));
            true
        })?;
        let path = path.clone();
        let mut plan = SettlePlan { path, key, state, grid, objects: Vec::new(), growths };
        plan.objects = objects(store, view, &plan)?;
        if !plan.objects.is_empty() {
            plans.push(plan);
        }
    }
    Ok(plans)
}

/// Fails if commits name the array at `path`, whose document another program has removed.
fn check_unneeded(store: &Arc<OpenedStore>, view: &RootView, path: &ObjectPath) -> Result<()> {
    match store.documents.key_of(store, path)? {
        Some(key) if view.names(&key)? => Err(replaced(&store.name_of(path), "removed")),
        _ => Ok(()),
    }
}

/// Returns the objects along each axis, for the array as it is or as the last commit leaves it.
fn grid_of(view: &RootView, key: &[u8; 16], state: &ArrayState) -> Result<Vec<u64>> {
    let mut shape = state.metadata.shape.clone();
    if let Some(later) = view.shape_of(key)?.filter(|later| later.len() == shape.len()) {
        enlarge(&mut shape, &later);
    }
    let objects = shape.iter().zip(&state.metadata.chunk_shape);
    Ok(objects.map(|(length, object)| length.div_ceil(*object)).collect())
}

/// Adds the stored objects that have elements outside the array's shape before it became larger.
fn add_left_behind(
    store: &Arc<OpenedStore>,
    view: &Arc<RootView>,
    plan: &SettlePlan,
    chunks: &mut BTreeMap<u64, u64>,
) -> Result<()> {
    let Some((_, base)) = plan.growths.first() else { return Ok(()) };
    let shape = &plan.state.metadata.chunk_shape;
    for at in plan.pinned(store, view).source.existing()? {
        let is_inside = (0..at.len()).all(|axis| at[axis] < plan.grid[axis]);
        if is_inside && (0..at.len()).any(|axis| (at[axis] + 1) * shape[axis] > base[axis]) {
            chunks.entry(linearize(&at, &plan.grid)).or_default();
        }
    }
    Ok(())
}

/// Returns the objects of an array that commits touch, each with the bytes of its touched chunks.
fn objects(
    store: &Arc<OpenedStore>,
    view: &Arc<RootView>,
    plan: &SettlePlan,
) -> Result<Vec<ObjectPlan>> {
    let rank = plan.grid.len();
    let mut chunks: BTreeMap<u64, u64> = BTreeMap::new();
    view.sections(&plan.key, 0, &mut |place| {
        let boxes = place.boxes.iter().filter(|(start, _)| start.len() == rank);
        for (start, end) in boxes {
            if object_count(plan, start, end) <= OBJECTS_BY_BOUNDS {
                add(plan, start, end, &mut chunks);
                continue;
            }
            let section = view.section_of(&place)?;
            each_box(&section.section, plan, &mut |start, end| {
                add(plan, start, end, &mut chunks);
            });
        }
        Ok(())
    })?;
    add_left_behind(store, view, plan, &mut chunks)?;
    let per_object: u64 = plan.state.layout.per_object.iter().product();
    let chunk_bytes = plan.state.layout.codec.decoded_bytes() as u64;
    let planned = chunks.into_iter().map(|(number, chunks)| ObjectPlan {
        number,
        bytes: chunks.min(per_object).saturating_mul(chunk_bytes),
    });
    Ok(planned.collect())
}

/// Returns the number of objects that the box from `start` to `end` touches.
fn object_count(plan: &SettlePlan, start: &[u64], end: &[u64]) -> u64 {
    let shape = &plan.state.metadata.chunk_shape;
    let counts: Vec<u64> = (0..shape.len())
        .map(|axis| end[axis].div_ceil(shape[axis]).saturating_sub(start[axis] / shape[axis]))
        .collect();
    element_count(&counts).unwrap_or(u64::MAX)
}

/// Calls `visit` with the start and the end of every box of the array in the section.
fn each_box(section: &Section, plan: &SettlePlan, visit: &mut dyn FnMut(&[u64], &[u64])) {
    let rank = plan.grid.len();
    let (mut low, mut high) = (Vec::with_capacity(rank), Vec::with_capacity(rank));
    for entry in &section.entries {
        let array = &section.arrays[entry.array as usize];
        if array.key != plan.key || array.shape.len() != rank {
            continue;
        }
        for (start, lengths) in section.selections[entry.selection as usize].iter() {
            low.clear();
            low.extend(entry.record.iter().chain(start));
            high.clear();
            high.extend(entry.record.iter().map(|record| record + 1));
            high.extend(start.iter().zip(lengths).map(|(start, length)| start + length));
            visit(&low, &high);
        }
    }
}

/// Adds, for every object that the box touches, the number of its touched chunks.
fn add(plan: &SettlePlan, start: &[u64], end: &[u64], chunks: &mut BTreeMap<u64, u64>) {
    let shape = &plan.state.metadata.chunk_shape;
    let inner = plan.state.layout.grid.chunk_shape();
    let first: Vec<u64> = start.iter().zip(shape).map(|(at, length)| at / length).collect();
    let counts: Vec<u64> = (0..shape.len())
        .map(|axis| {
            let behind = end[axis].div_ceil(shape[axis]).min(plan.grid[axis]);
            behind.saturating_sub(first[axis])
        })
        .collect();
    for number in 0..element_count(&counts).unwrap_or(0) {
        let inside = delinearize(number, &counts);
        let at: Vec<u64> =
            inside.iter().zip(&first).map(|(inside, first)| inside + first).collect();
        let touched = (0..shape.len()).map(|axis| {
            let low = start[axis].max(at[axis] * shape[axis]);
            let high = end[axis].min((at[axis] + 1) * shape[axis]);
            high.div_ceil(inner[axis]) - low / inner[axis]
        });
        let touched = touched.fold(1, u64::saturating_mul);
        let all = chunks.entry(linearize(&at, &plan.grid)).or_default();
        *all = all.saturating_add(touched);
    }
}
