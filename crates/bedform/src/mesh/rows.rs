//! Meshes of which each level is an array of one axis, box after box, as in HDF5 files of Chombo.
//!
//! A box has all its components, one after the other, each with x as the fastest axis. Ghost cells
//! may lie around it.

use bedform_format::mesh::MeshRecord;
use bedform_format::mesh_replica::MeshFile;
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{BoxList, CellBox};

use super::level::MeshLevel;
use super::pieces::{FastestAxis, LevelPiece, copy_of};
use super::{LevelParts, MeshFacts, MeshSource, PlanAct};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::store::Store;

/// The array of a level, and the places of its boxes.
#[derive(Debug)]
pub struct RowLevel {
    /// The path of the array.
    pub path: ObjectPath,
    /// The boxes without ghost cells, counted from the lower corner of the domain.
    pub boxes: BoxList,
    /// The number of ghost cells around each box, along each axis.
    pub ghosts: Vec<u32>,
    /// The index of the first element of each box.
    pub offsets: Vec<u64>,
}

/// The elements of a mesh in arrays of one axis.
#[derive(Debug)]
pub(super) struct RowMesh {
    levels: Vec<StoredRow>,
    /// The file that holds the arrays, if they lie in one.
    file: Option<ForeignFile>,
}

#[derive(Debug)]
struct StoredRow {
    array: Array,
    /// The boxes with their ghost cells.
    cells: BoxList,
    offsets: Vec<u64>,
}

impl RowMesh {
    pub(super) fn open(
        store: &Store,
        name: String,
        mut record: MeshRecord,
        levels: Vec<RowLevel>,
    ) -> Result<(MeshFacts, Self)> {
        if record.levels.len() != levels.len() {
            return Err(Error::corrupt(name, "another number of levels"));
        }
        let components = record.components.len() as u64;
        let (mut made, mut stored, mut data_type) = (Vec::new(), Vec::new(), None);
        for (facts, level) in std::mem::take(&mut record.levels).into_iter().zip(levels) {
            let path = level.path.clone();
            let open = || {
                let row = StoredRow::new(store, &level, components, record.lower.len())?;
                let shape = (facts.shape, facts.ratio);
                let made = MeshLevel::new(shape, facts.spacing, facts.step, level.boxes, None)?;
                Ok((made, row))
            };
            let (level, row) =
                open().map_err(|error: Error| error.at(format!("{name}: {path}")))?;
            let own = row.array.data_type()?;
            if *data_type.get_or_insert(own) != own {
                let text = format!("{name}: levels of several types");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            made.push(level);
            stored.push(row);
        }
        let data_type = data_type.unwrap_or(DataType::Float64);
        let facts = MeshFacts::of_record(store, name, record, made, data_type);
        Ok((facts, Self { levels: stored, file: store.file().cloned() }))
    }
}

impl StoredRow {
    /// Opens the array, and checks that all boxes lie in it.
    fn new(store: &Store, level: &RowLevel, components: u64, rank: usize) -> Result<Self> {
        let array = store.array(&level.path)?;
        let shape = array.shape()?;
        let [length] = shape[..] else {
            return Err(Error::corrupt("elements", format!("an array of {} axes", shape.len())));
        };
        if !matches!(array.data_type()?, DataType::Float32 | DataType::Float64) {
            return Err(Error::new(ErrorKind::Unsupported, "elements that are no real numbers"));
        }
        if [level.boxes.rank(), level.ghosts.len()] != [rank; 2]
            || level.offsets.len() != level.boxes.len()
        {
            return Err(Error::corrupt("boxes", "counts disagree"));
        }
        let mut cells = BoxList::new(rank)?;
        for (number, (one, offset)) in level.boxes.iter().zip(&level.offsets).enumerate() {
            let grown =
                |at: &i64, ghosts: &u32, by: i64| at.saturating_add(by * i64::from(*ghosts));
            let sides = [(one.start, -1), (one.stop, 1)].map(|(side, by)| -> Vec<i64> {
                side.iter().zip(&level.ghosts).map(|(at, ghosts)| grown(at, ghosts, by)).collect()
            });
            cells.push(&sides[0], &sides[1])?;
            let count = cells.get(number).map_or(0, CellBox::cells).checked_mul(components);
            let end = count.and_then(|count| count.checked_add(*offset));
            if end.is_none_or(|end| end > length) {
                let text = format!("box {number} lies behind the {length} elements");
                return Err(Error::corrupt("boxes", text));
            }
        }
        Ok(Self { array, cells, offsets: level.offsets.clone() })
    }
}

impl MeshSource for RowMesh {
    fn versions(&self, _: usize, _: usize, _: &[LevelPiece]) -> Result<Option<Vec<MeshFile>>> {
        let Some(file) = &self.file else { return Ok(None) };
        Ok(Some(vec![MeshFile { path: String::new(), version: file.present_version()? }]))
    }

    fn with_plan(
        &self,
        facts: &MeshFacts,
        component: usize,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()> {
        let StoredRow { array, cells, offsets } = &self.levels[level];
        let item = facts.item();
        let mut copies = Vec::with_capacity(parts.pieces.len());
        for piece in parts.pieces {
            let Some(own) = cells.get(piece.number) else { continue };
            let first = offsets[piece.number] + component as u64 * own.cells();
            let origin = i64::try_from(first.saturating_mul(item as u64)).unwrap_or(i64::MAX);
            copies.push(copy_of(piece, own, (FastestAxis::First, origin), item));
        }
        array.with_row_plan(copies, parts.bytes, act)
    }
}
