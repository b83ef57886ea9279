//! Meshes that a session writes: each member of it the boxes that it has.
//!
//! The members exchange the boxes of a level once. Each then cuts, orders and packs all of them
//! alike, and writes the sub-boxes of its own boxes where these lie in the arrays. So no member
//! sends elements to another one.

use std::collections::BTreeMap;

use bedform_format::mesh::{BOXES_ARRAY, MESH_ATTRIBUTE, MeshRecord, SUB_BOXES_ARRAY};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{BoxList, BoxOrder, CellBox, Region, Selection, overlapping_pair};
use serde_json::{Map, Value};

use super::level::{MeshLevel, is_inside};
use super::pieces::{FastestAxis, PieceList, copy_of};
use super::stored::{level_path, record_at, shown};
use super::storing::{
    LevelLayout, MeshOrder, aligned, box_array, box_rows, check_free, component_records,
    element_array, elements_of, sub_box_of, sub_box_rows,
};
use crate::array::Elements;
use crate::error::{Error, ErrorKind, Result};
use crate::log::session::Session;
use crate::store::Store;

/// A mesh without boxes, to be created.
#[derive(Debug, Clone)]
pub struct NewMesh {
    /// The record. An empty `sub_box` stands for the default; `order` names the order of sub-boxes,
    /// of which `auto` is the Hilbert curve. The names of arrays are made from those of components.
    pub record: MeshRecord,
    /// The type of the elements: float32 or float64.
    pub data_type: DataType,
    /// The members `codecs` and `codecs_beyond_zarr` of
    /// [`NewArray::from_json`](crate::NewArray::from_json).
    pub codecs: Map<String, Value>,
}

impl NewMesh {
    /// Creates the mesh in the group `path` of a store, where no node may be, or in a root without
    /// nodes. Atomic, durable on return.
    ///
    /// # Errors
    /// `Exists`; `InvalidArgument` for a record that no mesh has; those of storage.
    pub fn create(&self, store: &Store, path: &ObjectPath) -> Result<()> {
        let mut record = self.record.clone();
        record.sub_box =
            sub_box_of(Some(&record.sub_box).filter(|it| !it.is_empty()), record.rank())?;
        let names: Vec<String> = record.components.into_iter().map(|one| one.name).collect();
        record.components = component_records(&names);
        record.order = fixed_order(&record.order)?.name().to_owned();
        MeshRecord::decode(&record.encode(), &store.options().limits)
            .map_err(|error| Error::invalid(error.to_string()))?;
        if !matches!(self.data_type, DataType::Float32 | DataType::Float64) {
            let text = format!("meshes hold float32 or float64, not {:?}", self.data_type);
            return Err(Error::invalid(text));
        }
        check_free(store, path)?;
        let mut drafts = Vec::new();
        let made = self.draft_arrays(store, path, &record, &mut drafts).and_then(|mut groups| {
            groups[0].1.insert(MESH_ATTRIBUTE.to_owned(), record.encode());
            store.commit_drafts_with(&drafts, &groups)
        });
        if made.is_err() {
            // The first error counts.
            let _ = store.discard_drafts(&drafts);
        }
        made
    }

    fn draft_arrays(
        &self,
        store: &Store,
        path: &ObjectPath,
        record: &MeshRecord,
        drafts: &mut Vec<ObjectPath>,
    ) -> Result<Vec<(ObjectPath, Map<String, Value>)>> {
        let root = if path.is_root() { store.group_attributes(path)? } else { Map::new() };
        let (rank, mut groups) = (record.rank(), vec![(path.clone(), root)]);
        for number in 0..record.levels.len() {
            let group = level_path(path, number)?;
            for (name, width) in [(BOXES_ARRAY, 2 * rank), (SUB_BOXES_ARRAY, 2 * rank + 2)] {
                let at = group.join(name)?;
                store.draft_array(&at, &box_array(0, (name, width), store)?)?;
                drafts.push(at);
            }
            for component in &record.components {
                let at = group.join(&component.array)?;
                let cells =
                    sub_box_at(record, number).iter().fold(1, |all: u64, n| all.saturating_mul(*n));
                let new = element_array(store, (0, cells), self.data_type, &self.codecs)?;
                store.draft_array(&at, &new)?;
                drafts.push(at);
            }
            groups.push((group, Map::new()));
        }
        Ok(groups)
    }
}

/// Returns the most cells of a sub-box of a level along each axis.
fn sub_box_at(record: &MeshRecord, level: usize) -> Vec<u64> {
    let coarser = level.checked_sub(1).map_or(&[][..], |at| &record.levels[at].ratio);
    aligned(&record.sub_box, coarser)
}

/// Returns the order with a name, without a choice: members of a session may know different
/// profiles.
fn fixed_order(name: &str) -> Result<BoxOrder> {
    Ok(match MeshOrder::named(name)? {
        MeshOrder::Fixed(order) => order,
        MeshOrder::Auto => BoxOrder::Hilbert,
    })
}

/// A mesh that a session writes.
#[derive(Debug)]
pub struct MeshWriter {
    store: Store,
    path: ObjectPath,
    record: MeshRecord,
    item: usize,
    /// The levels of which boxes were exchanged.
    levels: BTreeMap<usize, WrittenLevel>,
}

/// The boxes of a level that a session writes.
#[derive(Debug)]
struct WrittenLevel {
    layout: LevelLayout,
    /// The number of this member's first box.
    first: u32,
    /// This member's boxes.
    own: BoxList,
}

impl MeshWriter {
    /// Opens the mesh in the group `path` of a store.
    ///
    /// # Errors
    /// `NotFound` if the group is no mesh; those of reading its record.
    pub fn open(store: &Store, path: &ObjectPath) -> Result<Self> {
        let record = record_at(store, path, &store.options().limits)?.ok_or_else(|| {
            let name = shown(store, path);
            let text = format!("{name} is no refined mesh: create it with create_mesh");
            Error::new(ErrorKind::NotFound, text)
        })?;
        let item = match record.components.first() {
            None => 8,
            Some(first) => {
                let array = store.array(&level_path(path, 0)?.join(&first.array)?)?;
                array.data_type()?.item_size().unwrap_or(8)
            }
        };
        Ok(Self { store: store.clone(), path: path.clone(), record, item, levels: BTreeMap::new() })
    }

    /// Writes boxes of a component of a level. `bounds` has the start and the stop of each box;
    /// `elements` has the boxes one after the other, each in C order. They become visible with the
    /// session's commit.
    ///
    /// The first call for a level is collective: each member calls with its boxes, which may be
    /// none. Later calls, for other components, have the same boxes.
    ///
    /// # Errors
    /// `NotFound` for a component that the mesh lacks; `Exists` for a level that has boxes;
    /// `InvalidArgument` for boxes that overlap or leave the domain, and for other numbers of
    /// elements; as [`Session::write`].
    pub fn write(
        &mut self,
        session: &mut Session,
        component: &str,
        level: usize,
        bounds: &[i64],
        elements: &[u8],
    ) -> Result<()> {
        let mut checked = self.checked(component, level, bounds, elements.len());
        if !self.levels.contains_key(&level) {
            checked = checked.and_then(|found| self.check_new(level).map(|()| found));
            // All members learn of an error of one.
            match checked {
                Ok(_) => self.exchange(session, level, Ok(bounds))?,
                Err(error) => return self.exchange(session, level, Err(error)),
            }
        }
        let (array, own) = checked?;
        let known = &self.levels[&level];
        if known.own != own {
            let text = format!("level {level}: other boxes than those of the components before");
            return Err(Error::invalid(text));
        }
        let path = level_path(&self.path, level)?.join(&array)?;
        session.resize(&path, &[known.layout.packed.cells])?;
        let (regions, data) = known.placed(elements, self.item)?;
        if !regions.is_empty() {
            session.write(&path, &Selection::Union(regions), Elements::Bytes(&data))?;
        }
        Ok(())
    }

    /// The name of the mesh for messages.
    fn name(&self) -> String {
        shown(&self.store, &self.path)
    }

    /// Returns the name of the array of a component, and the boxes.
    fn checked(
        &self,
        component: &str,
        level: usize,
        bounds: &[i64],
        bytes: usize,
    ) -> Result<(String, BoxList)> {
        let mut components = self.record.components.iter();
        let found = components.find(|one| one.name == component).ok_or_else(|| {
            let text = format!("{}: no component {component:?}", self.name());
            Error::new(ErrorKind::NotFound, text)
        })?;
        if level >= self.record.levels.len() {
            let text = format!("level {level} of {} levels", self.record.levels.len());
            return Err(Error::invalid(text));
        }
        let boxes = boxes_of(self.record.rank(), bounds)?;
        self.check_boxes(level, &boxes)?;
        let cells: u64 = boxes.iter().map(CellBox::cells).sum();
        if cells.saturating_mul(self.item as u64) != bytes as u64 {
            let text = format!("{component}: {bytes} bytes for boxes of {cells} cells");
            return Err(Error::invalid(text));
        }
        Ok((found.array.clone(), boxes))
    }

    /// Fails for a box that leaves the domain, or that has a part of a cell of the level before.
    fn check_boxes(&self, level: usize, boxes: &BoxList) -> Result<()> {
        let shape = &self.record.levels[level].shape;
        let coarser = level.checked_sub(1).map_or(&[][..], |at| &self.record.levels[at].ratio);
        let is_whole = |side: &[i64]| {
            side.iter().zip(coarser).all(|(at, ratio)| at % i64::from((*ratio).max(1)) == 0)
        };
        for (number, CellBox { start, stop }) in boxes.iter().enumerate() {
            let refuse = |what: &str| {
                let text =
                    format!("level {level}: box {number}, cells {start:?} to {stop:?}, {what}");
                Err(Error::new(ErrorKind::InvalidArgument, text))
            };
            if !is_inside(start, stop, shape) {
                return refuse(&format!("lies outside of the domain of {shape:?} cells"));
            }
            if !(is_whole(start) && is_whole(stop)) {
                return refuse(&format!("cuts cells of level {}: ratio {coarser:?}", level - 1));
            }
        }
        Ok(())
    }

    /// Fails if the level has boxes.
    fn check_new(&self, level: usize) -> Result<()> {
        let boxes = self.store.array(&level_path(&self.path, level)?.join(BOXES_ARRAY)?)?;
        if boxes.shape()?.first() == Some(&0) {
            return Ok(());
        }
        let text = format!("{}: level {level} has boxes already", self.name());
        Err(Error::new(ErrorKind::Exists, text))
    }

    /// Exchanges the boxes of a level, and writes them.
    fn exchange(&mut self, session: &mut Session, level: usize, own: Result<&[i64]>) -> Result<()> {
        let call = format!("write_boxes({:?}, level {level})", self.path.as_str());
        let bytes =
            own.map(|bounds| bounds.iter().flat_map(|at| at.to_le_bytes()).collect::<Vec<u8>>());
        let all = session.exchange(call, bytes)?;
        let rank = self.record.rank();
        let (mut boxes, mut first, mut mine) = (BoxList::new(rank)?, 0, BoxList::new(rank)?);
        for (member, bytes) in all.iter().enumerate() {
            let numbers: Vec<i64> =
                bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
            let of_member = boxes_of(rank, &numbers)?;
            if member == session.rank() {
                first = boxes.len();
            }
            for one in of_member.iter() {
                boxes.push(one.start, one.stop)?;
            }
            if member == session.rank() {
                mine = of_member;
            }
        }
        let facts = &self.record.levels[level];
        let shape = (facts.shape.clone(), facts.ratio.clone());
        if let Some((one, other)) = overlapping_pair(&boxes)? {
            let text = format!("level {level}: boxes {one} and {other} of all processes overlap");
            return Err(Error::invalid(text));
        }
        let made = MeshLevel::new(shape, facts.spacing.clone(), facts.step, boxes, None)?;
        let order = MeshOrder::Fixed(fixed_order(&self.record.order)?);
        let (cut, item) = (sub_box_at(&self.record, level), self.item as u64);
        let layout = LevelLayout::new(&made.boxes, order, &cut, item, self.store.profile())?;
        let group = level_path(&self.path, level)?;
        let tables = [
            (BOXES_ARRAY, box_rows(&made.boxes), 2 * rank),
            (SUB_BOXES_ARRAY, sub_box_rows(&layout), 2 * rank + 2),
        ];
        for (name, rows, width) in tables {
            let (path, shape) = (group.join(name)?, [(rows.len() / width) as u64, width as u64]);
            session.resize(&path, &shape)?;
            if session.rank() == 0 && !rows.is_empty() {
                let bytes = elements_of(&rows);
                session.write(&path, &Selection::all(&shape), Elements::Bytes(&bytes))?;
            }
        }
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        self.levels.insert(level, WrittenLevel { layout, first, own: mine });
        Ok(())
    }
}

impl WrittenLevel {
    /// Returns the places of this member's sub-boxes in the arrays, in ascending order, and their
    /// elements.
    fn placed(&self, elements: &[u8], item: usize) -> Result<(Vec<Region>, Vec<u8>)> {
        let LevelLayout { cut, packed, .. } = &self.layout;
        let (mut starts, mut bytes) = (Vec::with_capacity(self.own.len()), 0);
        for one in self.own.iter() {
            starts.push(bytes);
            bytes += usize::try_from(one.cells()).unwrap_or(usize::MAX) * item;
        }
        // The parts of a box follow those of the boxes before it.
        let end = self.first + u32::try_from(self.own.len()).unwrap_or(u32::MAX);
        let from = cut.sources.partition_point(|source| *source < self.first);
        let to = cut.sources.partition_point(|source| *source < end);
        let mut parts: Vec<usize> = (from..to).collect();
        parts.sort_unstable_by_key(|at| packed.offsets[*at]);
        let mut regions = Vec::<(u64, u64)>::new();
        let (mut list, mut copies) = (PieceList::new(item, u64::MAX), Vec::new());
        for at in parts {
            let number = (cut.sources[at] - self.first) as usize;
            let (Some(own), Some(part)) = (self.own.get(number), cut.boxes.get(at)) else {
                continue;
            };
            list.push(number, part.start.to_vec(), part.stop)?;
            if let Some(piece) = list.pieces.last() {
                let origin = starts[number].cast_signed() as i64;
                copies.push(copy_of(piece, own, (FastestAxis::Last, origin), item));
            }
            let (offset, cells) = (packed.offsets[at], part.cells());
            match regions.last_mut() {
                Some((start, length)) if *start + *length == offset => *length += cells,
                _ => regions.push((offset, cells)),
            }
        }
        let mut data = vec![0; bytes];
        for mut copy in copies {
            copy.tidy();
            copy.for_each_run(item, &mut |run| {
                let (from, to, length) = run.parts();
                data[to..to + length].copy_from_slice(&elements[from..from + length]);
                Ok(())
            })?;
        }
        let regions =
            regions.into_iter().map(|(start, length)| Region::new(vec![start], vec![length]));
        Ok((regions.collect::<std::result::Result<_, _>>()?, data))
    }
}

/// Makes boxes of the start and the stop of each.
fn boxes_of(rank: usize, bounds: &[i64]) -> Result<BoxList> {
    let mut boxes = BoxList::new(rank)?;
    if !bounds.len().is_multiple_of(2 * rank) {
        return Err(Error::invalid(format!("{} bounds for boxes of {rank} axes", bounds.len())));
    }
    for one in bounds.chunks_exact(2 * rank) {
        boxes.push(&one[..rank], &one[rank..])?;
    }
    Ok(boxes)
}
