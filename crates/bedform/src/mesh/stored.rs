//! Meshes in stores: groups with the attribute [`MESH_ATTRIBUTE`], and their reads.
//!
//! The elements of a component of a level are an array of one axis, with the sub-boxes one after the
//! other. A read makes one plan of all parts of sub-boxes in it, as of one moment.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bedform_format::chunk_map::SourceVersion;
use bedform_format::mesh::{BOXES_ARRAY, MESH_ATTRIBUTE, MeshRecord, SUB_BOXES_ARRAY};
use bedform_format::mesh_replica::MeshFile;
use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::{BoxList, CellBox, Selection};

use super::level::MeshLevel;
use super::pieces::{FastestAxis, LevelPiece, copy_of};
use super::{LevelParts, MeshFacts, MeshSource, PlanAct};
use crate::array::{Array, BoundObjects};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::zarr::nodes::NodeKind;

/// The elements of a mesh in a store.
#[derive(Debug)]
pub(super) struct StoredMesh {
    store: Store,
    path: ObjectPath,
    /// The name of the array of each component.
    arrays: Vec<String>,
    /// For each level the first element of each sub-box in the arrays.
    offsets: Vec<Vec<u64>>,
    /// The arrays that were read, by level and component.
    opened: Mutex<HashMap<(usize, usize), Array>>,
}

/// A refined mesh in a store: a time step.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshStep {
    /// The path of its group; empty for the root.
    pub path: ObjectPath,
    /// The time of the simulation.
    pub time: f64,
}

/// Lists the meshes of a store: its root, or the groups in its root, by time and then by name.
///
/// # Errors
/// Those of reading the store's documents; `Corrupt` by the record of a mesh.
pub fn steps_of(store: &Store) -> Result<Vec<MeshStep>> {
    let limits = &store.options().limits;
    let root = ObjectPath::root();
    if store.is_array() {
        return Ok(Vec::new());
    }
    if let Some(record) = record_at(store, &root, limits)? {
        return Ok(vec![MeshStep { path: root, time: record.time }]);
    }
    let mut steps = Vec::new();
    for (path, kind) in store.nodes()? {
        if kind == NodeKind::Group
            && path.parent().is_root()
            && let Some(record) = record_at(store, &path, limits)?
        {
            steps.push(MeshStep { path, time: record.time });
        }
    }
    steps.sort_by(|one, other| {
        one.time.total_cmp(&other.time).then_with(|| one.path.as_str().cmp(other.path.as_str()))
    });
    Ok(steps)
}

/// Returns the record of the mesh in a group, if the group is a mesh.
pub(super) fn record_at(
    store: &Store,
    path: &ObjectPath,
    limits: &Limits,
) -> Result<Option<MeshRecord>> {
    let attributes = store.group_attributes(path)?;
    let Some(value) = attributes.get(MESH_ATTRIBUTE) else { return Ok(None) };
    let record = MeshRecord::decode(value, limits);
    record.map(Some).map_err(|error| Error::corrupt(shown(store, path), error.to_string()))
}

/// Returns the name of a mesh for messages.
pub(super) fn shown(store: &Store, path: &ObjectPath) -> String {
    match (store.storage().name(), path.is_root()) {
        (name, true) => name,
        (name, false) => format!("{name}/{path}"),
    }
}

/// Returns the path of the group of a level.
pub(super) fn level_path(mesh: &ObjectPath, level: usize) -> Result<ObjectPath> {
    Ok(mesh.join(&format!("level_{level}"))?)
}

impl StoredMesh {
    pub(super) fn open(store: &Store, path: &ObjectPath) -> Result<(MeshFacts, Self)> {
        let name = shown(store, path);
        let limits = store.options().limits.clone();
        let record = record_at(store, path, &limits)?.ok_or_else(|| {
            let text = format!("{name} is no refined mesh: the group has no {MESH_ATTRIBUTE}");
            Error::new(ErrorKind::NotFound, text)
        })?;
        let (mut levels, mut offsets) = (Vec::new(), Vec::new());
        for (number, level) in record.levels.iter().enumerate() {
            let group = level_path(path, number)?;
            let open = || {
                let rank = record.rank();
                let boxes = box_list(store, &group.join(BOXES_ARRAY)?, (rank, 0), &limits)?.0;
                let sub_path = group.join(SUB_BOXES_ARRAY)?;
                let (sub_boxes, columns) = box_list(store, &sub_path, (rank, 2), &limits)?;
                let sources: Vec<usize> = columns.iter().map(|row| row[1]).collect();
                let shape = (level.shape.clone(), level.ratio.clone());
                let spacing = level.spacing.clone();
                let cut = Some((sub_boxes, &sources[..]));
                let made = MeshLevel::new(shape, spacing, level.step, boxes, cut)?;
                let offsets: Vec<u64> = columns.iter().map(|row| row[0] as u64).collect();
                Ok((made, offsets))
            };
            let (made, first) =
                open().map_err(|error: Error| error.at(format!("{name}: {group}")))?;
            levels.push(made);
            offsets.push(first);
        }
        let stored = Self {
            store: store.clone(),
            path: path.clone(),
            arrays: record.components.iter().map(|one| one.array.clone()).collect(),
            offsets,
            opened: Mutex::default(),
        };
        let data_type = match stored.arrays.first() {
            Some(_) => stored.array(0, 0)?.data_type()?,
            None => DataType::Float64,
        };
        let facts = MeshFacts::of_record(store, name, record, levels, data_type);
        Ok((facts, stored))
    }

    /// Opens the array of a component of a level, once.
    fn array(&self, level: usize, component: usize) -> Result<Array> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(array) = opened.get(&(level, component)) {
            return Ok(array.clone());
        }
        let path = level_path(&self.path, level)?.join(&self.arrays[component])?;
        let array = self.store.array(&path)?;
        opened.insert((level, component), array.clone());
        Ok(array)
    }
}

impl MeshSource for StoredMesh {
    fn versions(
        &self,
        component: usize,
        level: usize,
        _: &[LevelPiece],
    ) -> Result<Option<Vec<MeshFile>>> {
        let array = self.array(level, component)?;
        let objects = array.settled_versions(&Selection::all(&array.shape()?))?;
        let Some(BoundObjects { meaning, of }) = objects else { return Ok(None) };
        let path = format!("level_{level}/{}", self.arrays[component]);
        // The array itself: another one at its path has another key.
        let always = SourceVersion { size: 1, modified_ns: 1, ..SourceVersion::default() };
        let own = MeshFile { path: format!("{path}/{}-{meaning}", of.key), version: always };
        let shards = of.objects.into_iter().map(|object| {
            let at: Vec<String> = object.at.iter().map(u64::to_string).collect();
            let version = object.version.unwrap_or_default();
            let commit = object.commit;
            MeshFile { path: format!("{path}/{}-{commit}", at.join(".")), version }
        });
        Ok(Some(std::iter::once(own).chain(shards).collect()))
    }

    fn with_plan(
        &self,
        facts: &MeshFacts,
        component: usize,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()> {
        let array = self.array(level, component)?;
        if array.data_type()? != facts.data_type {
            let text = format!("{}: arrays of several types in one mesh", array.name());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let item = facts.item();
        let length = array.shape()?.first().copied().unwrap_or(0);
        if length == 0 {
            let text = format!("{}: the component was never written on this level", array.name());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let mut copies = Vec::with_capacity(parts.pieces.len());
        for piece in parts.pieces {
            let Some(cells) = facts.levels[level].grids().get(piece.number) else { continue };
            let offset = self.offsets[level][piece.number];
            if offset.checked_add(CellBox::cells(cells)).is_none_or(|end| end > length) {
                let text = format!("sub-box {} lies behind its {length} elements", piece.number);
                return Err(Error::corrupt(array.name(), text));
            }
            let origin = i64::try_from(offset.saturating_mul(item as u64)).unwrap_or(i64::MAX);
            copies.push(copy_of(piece, cells, (FastestAxis::Last, origin), item));
        }
        array.with_row_plan(copies, parts.bytes, act)
    }
}

/// Reads the array of boxes at `path`: rows of the start and the stop along `rank` axes, followed by
/// `further` numbers of which none is negative.
fn box_list(
    store: &Store,
    path: &ObjectPath,
    (rank, further): (usize, usize),
    limits: &Limits,
) -> Result<(BoxList, Vec<[usize; 2]>)> {
    let array = store.array(path)?;
    let (shape, width) = (array.shape()?, 2 * rank + further);
    if array.data_type()? != DataType::Int64 || shape.len() != 2 || shape[1] != width as u64 {
        let text = format!("not an array of int64 with {width} columns");
        return Err(Error::corrupt(array.name(), text));
    }
    if shape[0] > limits.mesh_boxes_max {
        let text = format!("{}: {} boxes, over the limit", array.name(), shape[0]);
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let count = usize::try_from(shape[0]).unwrap_or(usize::MAX);
    let mut bytes = vec![0; count * width * 8];
    array.read_unrecorded(&Selection::all(&shape), &mut bytes)?;
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    let numbers: Vec<i64> =
        bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect();
    let (mut boxes, mut rest) = (BoxList::new(rank)?, Vec::with_capacity(count));
    for row in numbers.chunks_exact(width) {
        let (bounds, after) = row.split_at(2 * rank);
        boxes.push(&bounds[..rank], &bounds[rank..])?;
        let mut own = [0; 2];
        for (own, number) in own.iter_mut().zip(after) {
            *own = usize::try_from(*number)
                .map_err(|_| Error::corrupt(array.name(), "a negative offset or number"))?;
        }
        rest.push(own);
    }
    Ok((boxes, rest))
}
