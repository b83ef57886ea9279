//! A mesh, written to a store.
//!
//! The boxes of a level are cut into sub-boxes, these are ordered so that near ones lie together,
//! and packed into chunks so that none lies in two (dissertation of Tang, chapter 4). All arrays of
//! a mesh become visible by one commit.

use bedform_format::mesh::{
    BOXES_ARRAY, MESH_ATTRIBUTE, MeshComponentRecord, MeshLevelRecord, MeshRecord, SUB_BOXES_ARRAY,
};
use bedform_format::{DataType, ObjectPath};
use bedform_geometry::{
    AxisRange, AxisSelection, BoxList, BoxOrder, CellBox, ChoiceOptions, CutBoxes, OrderChoice,
    PackedBoxes, Selection, StepCosts, StripedTargets,
};
use bedform_storage::Profile;
use serde_json::{Map, Value, json};

use super::pieces::pieces_within;
use super::replicas::MeshReading;
use super::stored::{level_path, shown};
use super::{CellRegion, Mesh, MeshLevel};
use crate::array::{Array, Elements};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::zarr::new_array::NewArray;

const MIB: u64 = 1 << 20;
/// The cells of a sub-box along each axis, by the number of axes.
const SUB_BOX: [u64; 3] = [4096, 64, 16];
/// The bytes of a shard: the elements that are in memory at once.
const SHARD_BYTES: u64 = 64 << 20;
/// The most samples by which an order is chosen.
const SAMPLES_MAX: usize = 256;
/// Boxes in a chunk of the arrays of boxes.
const BOXES_IN_CHUNK: u64 = 1 << 16;

/// The order of sub-boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MeshOrder {
    /// That with the least predicted time of sampled reads.
    #[default]
    Auto,
    /// A given one.
    Fixed(BoxOrder),
}

impl MeshOrder {
    /// Returns the order with a name: `auto`, `given`, `z`, `hilbert` or `clusters`. A cluster is
    /// full with the cells of a bulk request of 1 MiB of float64.
    ///
    /// # Errors
    /// `InvalidArgument` for another name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "auto" => Self::Auto,
            "given" => Self::Fixed(BoxOrder::Given),
            "z" => Self::Fixed(BoxOrder::Z),
            "hilbert" => Self::Fixed(BoxOrder::Hilbert),
            "clusters" => Self::Fixed(BoxOrder::Clusters { bulk_cells: MIB / 8 }),
            _ => {
                return Err(Error::invalid(format!(
                    "order {name:?}: 'auto', 'hilbert', 'z', 'clusters' or 'given'"
                )));
            }
        })
    }
}

/// How a mesh is stored.
#[derive(Debug, Clone, Default)]
pub struct MeshStorage {
    /// The order of sub-boxes.
    pub order: MeshOrder,
    /// The most cells of a sub-box along each axis; by default 16 of three, 64 of two, 4,096 of one.
    pub sub_box: Option<Vec<u64>>,
    /// The numbers of the components to store; all by default.
    pub components: Option<Vec<usize>>,
    /// The number of levels to store, from the coarsest on; all by default.
    pub levels: Option<usize>,
    /// The cells to store of all boxes, as a level and a region of it; all by default. Of coarser
    /// levels the cells that have a cell of the region are stored.
    pub held: Option<(usize, CellRegion)>,
    /// The members `codecs` and `codecs_beyond_zarr` of [`NewArray::from_json`].
    pub codecs: Map<String, Value>,
}

/// The sub-boxes of a level, and their places.
#[derive(Debug)]
pub(super) struct LevelLayout {
    pub(super) cut: CutBoxes,
    permutation: Vec<u32>,
    pub(super) packed: PackedBoxes,
    order: BoxOrder,
    pub(super) chunk_cells: u64,
}

impl Mesh {
    /// Writes the mesh into the group `path` of a store, where no node may be. It becomes visible as
    /// a whole, durable on return. `progress` is told the bytes that are written, and those of all
    /// elements.
    ///
    /// # Errors
    /// `Exists` for a node at the path; `InvalidArgument` for sub-boxes of another rank, or codecs
    /// that do not fit; those of reading the mesh and of storage. The store is then as before.
    pub fn store_in(
        &self,
        store: &Store,
        path: &ObjectPath,
        storage: &MeshStorage,
        progress: &dyn Fn(u64, u64),
    ) -> Result<()> {
        check_free(store, path)?;
        // A component of a level is a small file or two: one call makes all of them durable.
        let together = store.synced_together()?;
        let drafting = together.as_ref().map_or(store, |(drafting, _)| drafting);
        let mut drafts = Vec::new();
        let written = self
            .write_drafts(drafting, path, storage, progress, &mut drafts)
            .and_then(|groups| {
                together.as_ref().map_or(Ok(()), |(_, sync)| Ok(sync()?)).map(|()| groups)
            })
            .and_then(|groups| store.commit_drafts_of(drafting, &drafts, &groups));
        if written.is_err() {
            // The first error counts.
            let _ = drafting.discard_drafts(&drafts);
        }
        written
    }

    /// Writes all arrays as drafts, and returns the groups with their attributes.
    fn write_drafts(
        &self,
        store: &Store,
        path: &ObjectPath,
        storage: &MeshStorage,
        progress: &dyn Fn(u64, u64),
        drafts: &mut Vec<ObjectPath>,
    ) -> Result<Vec<(ObjectPath, Map<String, Value>)>> {
        let rank = self.lower().len();
        let sub_box = sub_box_of(storage.sub_box.as_ref(), rank)?;
        let names = self.components();
        let numbers = match &storage.components {
            None => (0..names.len()).collect(),
            Some(given) => given.clone(),
        };
        if let Some(other) = numbers.iter().find(|number| **number >= names.len()) {
            let text = format!("{}: component {other} of {}", self.name(), names.len());
            return Err(Error::invalid(text));
        }
        let names: Vec<String> = numbers.iter().map(|number| names[*number].clone()).collect();
        let components = component_records(&names);
        let levels =
            &self.levels()[..storage.levels.unwrap_or(usize::MAX).min(self.levels().len())];
        let boxes = (0..levels.len()).map(|number| self.held_boxes(number, storage.held.as_ref()));
        let boxes = boxes.collect::<Result<Vec<_>>>()?;
        let cells: u64 = boxes.iter().flat_map(|boxes| boxes.iter()).map(CellBox::cells).sum();
        let item = self.facts.item() as u64;
        let total = cells.saturating_mul(item).saturating_mul(components.len() as u64);
        let mut done = 0;
        let mut tell = |bytes: u64| {
            done += bytes;
            progress(done, total);
        };
        let (mut groups, mut orders) = (vec![(path.clone(), Map::new())], Vec::new());
        for (number, boxes) in boxes.iter().enumerate() {
            let coarser = number.checked_sub(1).map_or(&[][..], |at| &self.levels()[at].ratio);
            let cut = aligned(&sub_box, coarser);
            let layout = LevelLayout::new(boxes, storage.order, &cut, item, store.profile())?;
            orders.push(layout.order.name());
            let group = level_path(path, number)?;
            let writer = LevelWriter { mesh: self, number, boxes, layout, item };
            writer.write_boxes(store, &group, drafts)?;
            for (component, record) in numbers.iter().zip(&components) {
                let at = group.join(&record.array)?;
                writer.write_component(
                    store,
                    &at,
                    *component,
                    &storage.codecs,
                    drafts,
                    &mut tell,
                )?;
            }
            groups.push((group, Map::new()));
        }
        orders.dedup();
        let record = self.record(orders.join(", "), sub_box, components, levels);
        groups[0].1.insert(MESH_ATTRIBUTE.to_owned(), record.encode());
        MeshRecord::decode(&record.encode(), &store.options().limits)
            .map_err(|error| Error::invalid(format!("{}: {error}", self.name())))?;
        if path.is_root() {
            for (name, value) in store.group_attributes(path)? {
                groups[0].1.entry(name).or_insert(value);
            }
        }
        Ok(groups)
    }

    /// Returns the boxes of a level, as far as they lie in a region of a level.
    ///
    /// # Errors
    /// `OutOfBounds` for cells that the domain lacks.
    pub(super) fn held_boxes(
        &self,
        number: usize,
        held: Option<&(usize, CellRegion)>,
    ) -> Result<BoxList> {
        let boxes = &self.level(number)?.boxes;
        let Some((level, region)) = held else { return Ok(boxes.clone()) };
        self.check(region, *level)?;
        let region = match number <= *level {
            true => self.coarse(region, *level, number),
            false => region.refined(&self.ratio(*level, number)),
        };
        let mut found = BoxList::new(boxes.rank())?;
        for one in boxes.iter() {
            let start: Vec<i64> =
                one.start.iter().zip(&region.start).map(|(a, b)| *a.max(b)).collect();
            let stop: Vec<i64> =
                one.stop.iter().zip(&region.stop).map(|(a, b)| *a.min(b)).collect();
            if start.iter().zip(&stop).all(|(from, to)| from < to) {
                found.push(&start, &stop)?;
            }
        }
        Ok(found)
    }

    fn record(
        &self,
        order: String,
        sub_box: Vec<u64>,
        components: Vec<MeshComponentRecord>,
        levels: &[MeshLevel],
    ) -> MeshRecord {
        let last = levels.len().saturating_sub(1);
        let level = |(number, level): (usize, &MeshLevel)| MeshLevelRecord {
            shape: level.shape.clone(),
            ratio: if number == last { Vec::new() } else { level.ratio.clone() },
            spacing: level.spacing.clone(),
            step: level.step,
        };
        MeshRecord {
            version: 1,
            time: self.time(),
            lower: self.lower().to_vec(),
            upper: self.upper().to_vec(),
            coordinates: self.coordinates().to_owned(),
            order,
            sub_box,
            components,
            levels: levels.iter().enumerate().map(level).collect(),
        }
    }
}

/// Fails unless a mesh may be created at `path`. Of a writer that was killed just before its commit
/// the documents of groups may be left, which no commit names.
pub(super) fn check_free(store: &Store, path: &ObjectPath) -> Result<()> {
    let nodes = store.nodes()?;
    let is_taken = if path.is_root() {
        !nodes.is_empty() || store.group_attributes(path)?.contains_key(MESH_ATTRIBUTE)
    } else if nodes.contains_key(path) {
        true
    } else {
        store.kind(path)?.is_some() && !store.group_attributes(path)?.contains_key(MESH_ATTRIBUTE)
    };
    if !is_taken {
        return Ok(());
    }
    let text = format!("{} exists already: choose another name", shown(store, path));
    Err(Error::new(ErrorKind::Exists, text))
}

/// Returns the most cells of a sub-box along each of `rank` axes, where no other number is given.
pub(crate) fn default_sub_box(rank: usize) -> Vec<u64> {
    vec![SUB_BOX[rank.clamp(1, SUB_BOX.len()) - 1]; rank]
}

/// Returns the most cells of a sub-box along each of `rank` axes.
pub(super) fn sub_box_of(given: Option<&Vec<u64>>, rank: usize) -> Result<Vec<u64>> {
    match given {
        None => Ok(default_sub_box(rank)),
        Some(given) if given.len() == rank => Ok(given.clone()),
        Some(given) => {
            let text = format!("sub-boxes of {} axes for a mesh of {rank}", given.len());
            Err(Error::invalid(text))
        }
    }
}

/// Returns the cells of a sub-box of a level, of which a cell of the level before has `ratio`: whole
/// cells of that level, so that no cell of it lies in two sub-boxes of this one.
pub(super) fn aligned(sub_box: &[u64], ratio: &[u32]) -> Vec<u64> {
    let ratios = ratio.iter().map(|ratio| u64::from(*ratio).max(1)).chain(std::iter::repeat(1));
    sub_box.iter().zip(ratios).map(|(length, ratio)| (length / ratio).max(1) * ratio).collect()
}

/// Names an array for each component: as the component, where an array can have that name.
pub(super) fn component_records(names: &[String]) -> Vec<MeshComponentRecord> {
    let is_free = |name: &str| {
        let is_plain = !name.contains('/') && !name.starts_with(['.', '_']);
        let is_own = [BOXES_ARRAY, SUB_BOXES_ARRAY].contains(&name)
            || name.starts_with("component_")
            || name.eq_ignore_ascii_case("zarr.json");
        let is_alone = names.iter().filter(|one| one.eq_ignore_ascii_case(name)).count() == 1;
        is_plain && !is_own && is_alone && ObjectPath::parse(name).is_ok_and(|at| !at.is_root())
    };
    let record = |(number, name): (usize, &String)| MeshComponentRecord {
        name: name.clone(),
        array: if is_free(name) { name.clone() } else { format!("component_{number}") },
    };
    names.iter().enumerate().map(record).collect()
}

impl LevelLayout {
    pub(super) fn new(
        boxes: &BoxList,
        order: MeshOrder,
        sub_box: &[u64],
        item: u64,
        profile: &Profile,
    ) -> Result<Self> {
        let cut = CutBoxes::new(boxes, sub_box)?;
        let chunk_cells = sub_box.iter().fold(1, |all: u64, one| all.saturating_mul(*one));
        let (order, permutation) = match order {
            MeshOrder::Fixed(order) => (order, order.permutation(&cut.boxes)?),
            MeshOrder::Auto => {
                let choice = OrderChoice::new(
                    &cut.boxes,
                    &ChoiceOptions {
                        cell_bytes: item,
                        chunk_cells: Some(chunk_cells),
                        targets: StripedTargets::ONE_DEVICE,
                        costs: step_costs(profile),
                        seed: 0,
                        samples_max: SAMPLES_MAX,
                    },
                )?;
                (choice.order, choice.permutation)
            }
        };
        let packed = PackedBoxes::new(&cut.boxes, &permutation, chunk_cells)?;
        Ok(Self { cut, permutation, packed, order, chunk_cells })
    }
}

/// Returns the costs of steps between pieces on the storage of a profile. A step of at most a bulk
/// request is read through where that is cheaper than a request of its own.
fn step_costs(profile: &Profile) -> StepCosts {
    let byte_seconds = 1.0 / profile.read_bytes_per_second_many.max(1.0);
    let request = profile.request_seconds_many.max(0.0);
    let bulk_bytes = MIB;
    #[allow(clippy::cast_precision_loss)]
    let through = bulk_bytes as f64 / 2.0 * byte_seconds;
    StepCosts {
        bulk_bytes,
        byte_seconds,
        small_seconds: request.min(through),
        medium_seconds: request,
        large_seconds: request,
    }
}

/// The writer of the arrays of a level.
struct LevelWriter<'a> {
    mesh: &'a Mesh,
    number: usize,
    boxes: &'a BoxList,
    layout: LevelLayout,
    /// The bytes of an element.
    item: u64,
}

impl LevelWriter<'_> {
    fn write_boxes(
        &self,
        store: &Store,
        group: &ObjectPath,
        drafts: &mut Vec<ObjectPath>,
    ) -> Result<()> {
        let boxes = self.boxes;
        let (rank, path) = (boxes.rank(), group.join(BOXES_ARRAY)?);
        write_table(store, &path, &box_rows(boxes), 2 * rank, drafts)?;
        let path = group.join(SUB_BOXES_ARRAY)?;
        write_table(store, &path, &sub_box_rows(&self.layout), 2 * rank + 2, drafts)
    }

    /// Writes the elements of a component, shard by shard.
    fn write_component(
        &self,
        store: &Store,
        path: &ObjectPath,
        component: usize,
        codecs: &Map<String, Value>,
        drafts: &mut Vec<ObjectPath>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let LevelLayout { packed, chunk_cells, .. } = &self.layout;
        let data_type = self.mesh.data_type();
        let new = element_array(store, (packed.cells, *chunk_cells), data_type, codecs)?;
        let shard = new.layout.shard_shape[0];
        let array = store.draft_array(path, &new)?;
        drafts.push(path.clone());
        let mut rest = &self.layout.permutation[..];
        let mut start = 0;
        while start < packed.cells {
            let end = (start + shard).min(packed.cells);
            let inside = |number: &u32| packed.offsets[*number as usize] < end;
            let (here, after) = rest.split_at(rest.partition_point(inside));
            let bytes = self.write_shard(&array, component, (start, end), here)?;
            tell(bytes);
            (rest, start) = (after, end);
        }
        Ok(())
    }

    /// Writes the elements from `start` up to `end` of an array, which are those of the sub-boxes
    /// `numbers`, and returns their bytes without holes.
    fn write_shard(
        &self,
        array: &Array,
        component: usize,
        (start, end): (u64, u64),
        numbers: &[u32],
    ) -> Result<u64> {
        let LevelLayout { cut, packed, .. } = &self.layout;
        let level = &self.mesh.levels()[self.number];
        let (mut bytes, mut pieces) = (0, Vec::with_capacity(numbers.len()));
        for number in numbers {
            let at = *number as usize;
            let Some(cells) = cut.boxes.get(at) else { continue };
            let place = usize::try_from((packed.offsets[at] - start) * self.item);
            let place = place.unwrap_or(usize::MAX);
            pieces.extend(pieces_within(level, cells, place, self.item)?);
            bytes += cells.cells() * self.item;
        }
        let length = usize::try_from((end - start) * self.item).unwrap_or(usize::MAX);
        let mut data = holes(self.item, length);
        let reading = MeshReading::of_mesh(component);
        self.mesh.read_parts_into(&reading, self.number, &pieces, &mut data)?;
        let range = AxisSelection::Range(AxisRange::contiguous(start, end - start)?);
        array.write(&Selection::Orthogonal(vec![range]), Elements::Bytes(&data))?;
        Ok(bytes)
    }
}

/// Returns the start and the stop of a box.
fn bounds_of(cells: CellBox<'_>) -> impl Iterator<Item = i64> {
    cells.start.iter().chain(cells.stop).copied()
}

/// Returns `bytes` bytes of elements of `item` bytes that are not a number.
#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
fn holes(item: u64, bytes: usize) -> Vec<u8> {
    match item {
        4 => f32::NAN.to_ne_bytes().repeat(bytes / 4),
        _ => f64::NAN.to_ne_bytes().repeat(bytes / 8),
    }
}

/// Returns the chunks of a shard of an array of `cells` elements in chunks of `chunk`.
pub(super) fn shard_chunks((cells, chunk): (u64, u64), item: u64) -> u64 {
    let most = (SHARD_BYTES / chunk.saturating_mul(item).max(1)).max(1);
    // An array that is empty now will grow.
    if cells == 0 { most } else { most.min((cells / chunk.max(1)).max(1)) }
}

/// Describes the array of a component of a level, of `cells` elements in chunks of `chunk`.
pub(super) fn element_array(
    store: &Store,
    (cells, chunk): (u64, u64),
    data_type: DataType,
    codecs: &Map<String, Value>,
) -> Result<NewArray> {
    let item = data_type.item_size().unwrap_or(8) as u64;
    let chunks = shard_chunks((cells, chunk), item);
    let mut described = json!({
        "shape": [cells], "dtype": data_type.v3_name(), "chunks": [chunk],
        "shards": [chunk.saturating_mul(chunks)], "dims": ["cell"], "fill_value": "NaN",
        "codecs": "auto",
    });
    if let Value::Object(described) = &mut described {
        described.extend(codecs.clone());
    }
    NewArray::from_json(&described, &store.options().limits)
}

/// Describes an array of `rows` boxes, each of `width` numbers.
pub(super) fn box_array(
    rows: u64,
    (name, width): (&str, usize),
    store: &Store,
) -> Result<NewArray> {
    let chunk = if rows == 0 { BOXES_IN_CHUNK } else { rows.min(BOXES_IN_CHUNK) };
    // xarray takes dimensions of one name in a group for one of one length.
    let dims = if name == BOXES_ARRAY { ["box", "bound"] } else { ["sub_box", "field"] };
    let described = json!({
        "shape": [rows, width], "dtype": "int64", "chunks": [chunk, width],
        "shards": [rows.max(1).next_multiple_of(chunk), width],
        "dims": dims, "codecs": ["zstd"],
    });
    NewArray::from_json(&described, &store.options().limits)
}

/// Returns the rows of the array of boxes.
pub(super) fn box_rows(boxes: &BoxList) -> Vec<i64> {
    boxes.iter().flat_map(bounds_of).collect()
}

/// Returns the rows of the array of sub-boxes, by their places.
pub(super) fn sub_box_rows(layout: &LevelLayout) -> Vec<i64> {
    let LevelLayout { cut, permutation, packed, .. } = layout;
    let mut rows = Vec::new();
    for number in permutation {
        let at = *number as usize;
        let Some(cells) = cut.boxes.get(at) else { continue };
        rows.extend(bounds_of(cells));
        rows.extend([packed.offsets[at].cast_signed(), i64::from(cut.sources[at])]);
    }
    rows
}

/// Returns numbers as elements in memory.
#[allow(clippy::host_endian_bytes, reason = "elements in memory")]
pub(super) fn elements_of(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Writes rows of `width` numbers as a draft.
fn write_table(
    store: &Store,
    path: &ObjectPath,
    numbers: &[i64],
    width: usize,
    drafts: &mut Vec<ObjectPath>,
) -> Result<()> {
    let shape = [(numbers.len() / width) as u64, width as u64];
    let new = box_array(shape[0], (path.name(), width), store)?;
    let array = store.draft_array(path, &new)?;
    drafts.push(path.clone());
    if !numbers.is_empty() {
        array.write(&Selection::all(&shape), Elements::Bytes(&elements_of(numbers)))?;
    }
    Ok(())
}
