//! Replicas of refined meshes: which to make of a plotfile, a file of Chombo, or the steps of a store,
//! and their making.
//!
//! A replica has one component of the mesh in other sub-boxes. Their shapes follow the reads: cubes
//! for boxes, flat ones for planes, long ones for pencils. Every shape is ordered along both curves
//! and as the boxes are, and the predicted seconds of the reads decide, as between replicas of
//! arrays (`choose`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use bedform_format::ObjectPath;
use bedform_format::mesh_replica::{
    ExpectedMeshReads, HeldCells, MeshCatalogue, MeshFile, MeshReplica,
};
use bedform_geometry::{AxisSelection, BoxOrder, Selection};
use bedform_storage::{ProfileOrigin, Storage};
use serde::Serialize;
use serde_json::Map;

use super::building::{
    ReplicaDirectory, bytes_of, directory_of, in_place, is_made_here, locked, note_of_place,
    note_of_size, remove,
};
use super::candidates::{CandidateReplica, PlannedHelper, Worth};
use super::choose::choose;
use super::reads::{PricedReadKind, expected_kinds_of, learnt_kinds_of};
use super::{ExpectedRead, PlannedIndexes, PlannedQuery, PlannedRead, ReplicaBudget, SourcePlace};
use crate::error::{Error, ErrorKind, Result};
use crate::mesh::{
    CellRegion, GAIN_MIN, MESH_CATALOGUE, Mesh, MeshForecast, MeshOrder, MeshStorage,
    OpenMeshReplica, mesh_replicas_in,
};
use crate::opening::add_kept_profile;
use crate::options::{OpenOptions, ProgressCallback};
use crate::plan::tuning::Tuning;
use crate::replica::{ExpectedReads, meaning_of};
use crate::sidecar::{REPLICAS, Sidecar, SidecarName, source_version};
use crate::store::StagedStore;
use crate::threads::workers::check_cancelled;
use crate::trace::newest_knowledge;

/// Attempts to save the catalogue while other processes change it.
const ATTEMPTS_MAX: usize = 16;
/// Hexadecimal digits of the name of a replica.
const ID_DIGITS: usize = 16;
/// Shapes of sub-boxes that are compared, beside the default one.
const SHAPES_MAX: usize = 3;
/// Cells of a sub-box.
const SUB_BOX_CELLS: u64 = 4096;
/// The share of the cells of a mesh up to which a region of it counts as a part.
const PART_MAX: f64 = 0.8;
/// The share of the reads of a kind that lie in its hot region.
const HOT_SHARE: f64 = 0.9;
/// The longest step of a file system's clock.
const CLOCK_STEP: Duration = Duration::from_millis(20);
/// The bytes that making a replica moves for each of its bytes: read, written, and encoded.
const BUILDING_BYTES: f64 = 3.0;

/// Settings of [`plan_meshes`] and [`optimize_meshes`].
#[derive(Debug, Clone)]
pub struct MeshOptimizeOptions {
    /// The limit on the bytes of all replicas of the mesh together.
    pub budget: ReplicaBudget,
    /// Expected reads of all components at the finest level; without them the learned reads count.
    pub reads: Vec<ExpectedRead>,
    /// The directory of the sidecars; it overrides `BEDFORM_SIDECAR`.
    pub sidecars: Option<PathBuf>,
}

/// The replicas of a mesh to make, keep and drop, with predicted times. Its JSON has the names of
/// that of [`OptimizePlan`](super::OptimizePlan).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshOptimizePlan {
    /// The mesh as the user named it.
    pub source: String,
    /// Bytes of the files of the mesh.
    pub source_bytes: u64,
    /// The profile by which seconds are predicted.
    pub profile: ProfileOrigin,
    /// Bytes that replicas may take.
    pub budget_bytes: u64,
    /// Predicted bytes of all replicas after the plan.
    pub bytes: u64,
    /// Kinds of reads, with their predicted seconds before and after the plan.
    pub reads: Vec<PlannedRead>,
    /// Always empty: queries are for arrays.
    pub queries: Vec<PlannedQuery>,
    /// Always empty.
    pub indexes: PlannedIndexes,
    /// Replicas to make.
    pub make: Vec<PlannedMeshReplica>,
    /// Names of the replicas that stay.
    pub keep: Vec<String>,
    /// Names of the replicas to remove.
    pub drop: Vec<String>,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// A replica of a component that is to be made. Its JSON has the names of that of
/// [`PlannedReplica`](super::PlannedReplica).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedMeshReplica {
    /// Its name.
    pub id: String,
    /// Its finest level and its component, as records name them.
    pub array: String,
    /// The path of the mesh in its store; empty for a file.
    pub step: String,
    /// The name of the component.
    pub component: String,
    /// The number of levels, from the coarsest on.
    pub levels: usize,
    /// Names of the axes.
    pub dims: Vec<String>,
    /// The part of the domain that it has, in cells of its finest level.
    pub held: HeldDomainPart,
    /// True if it has all cells of the boxes.
    pub is_whole: bool,
    /// The cells of that part along each axis.
    pub shape: Vec<u64>,
    /// The most cells of a sub-box along each axis.
    pub chunks: Vec<u64>,
    /// The order of the sub-boxes.
    pub order: String,
    /// Bytes of its elements.
    pub raw_bytes: u64,
    /// Predicted bytes on storage, at most.
    pub bytes: u64,
    /// Predicted seconds to make it.
    pub building_seconds: f64,
    /// The kinds of reads that it serves.
    pub expected: Vec<ExpectedReads>,
}

/// A part of a domain: along each axis one run, its first cell and its length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldDomainPart {
    /// The runs of each axis.
    pub runs: Vec<[(u64, u64); 1]>,
}

impl PlannedMeshReplica {
    /// Returns the part that it has; `None` for all cells.
    fn part(&self) -> Option<CellRegion> {
        let side = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        let bounds =
            self.held.runs.iter().map(|[(first, length)]| {
                (side(*first), side(*first).saturating_add(side(*length)))
            });
        let (start, stop) = bounds.unzip();
        (!self.is_whole).then_some(CellRegion { start, stop })
    }
}

/// The outcome of [`optimize_meshes`].
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct MeshOptimized {
    /// The replicas that were made.
    pub made: Vec<MadeMeshReplica>,
    /// Names of removed replicas.
    pub dropped: Vec<String>,
    /// Always empty.
    pub compared: Vec<String>,
    /// Always empty.
    pub woken: Vec<String>,
    /// Always empty.
    pub indexes: super::OptimizedIndexes,
    /// Stored bytes of all replicas now.
    pub bytes: u64,
    /// Remarks for the user.
    pub warnings: Vec<String>,
}

/// A replica that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeMeshReplica {
    /// Its name.
    pub id: String,
    /// Its finest level and its component, as records name them.
    pub array: String,
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Bytes of its elements.
    pub raw_bytes: u64,
    /// Seconds that its making took.
    pub building_seconds: f64,
}

/// An opened mesh with its sidecar.
struct OptimizedMesh<'a> {
    mesh: &'a Mesh,
    place: SourcePlace,
    sidecar: Option<Sidecar>,
    /// The profile of the mesh's storage.
    tuning: Tuning,
    bytes: u64,
    /// The replicas that reads can use, opened.
    replicas: Vec<(MeshReplica, Arc<OpenMeshReplica>)>,
    /// Names of the replicas that no read can use again.
    dead: Vec<String>,
}

impl<'a> OptimizedMesh<'a> {
    /// Looks at a mesh; `None` for one that is being written, or whose commits are not settled.
    fn open(mesh: &'a Mesh, path: &Path, options: &MeshOptimizeOptions) -> Result<Option<Self>> {
        let place = SourcePlace::One(path.to_owned());
        let Some(bytes) = bytes_of_files(mesh)? else { return Ok(None) };
        let sidecar = Sidecar::find(&SidecarName::of_path(path), options.sidecars.as_deref())?;
        let (mut replicas, mut dead) = (Vec::new(), Vec::new());
        for (sidecar, record) in sidecar.iter().flat_map(|sidecar| {
            mesh_replicas_in(sidecar).into_iter().map(move |record| (sidecar, record))
        }) {
            if record.step != mesh.step() {
                continue;
            }
            let own = OpenMeshReplica::new(record.clone(), sidecar, &reading_options());
            // A component may be gone.
            match own.is_current(mesh).unwrap_or(false) {
                true => replicas.push((record, Arc::new(own))),
                false => dead.push(record.id),
            }
        }
        let mut opening = OpenOptions::default();
        add_kept_profile(&mut opening, path);
        let tuning = Tuning::with(&opening);
        Ok(Some(Self { mesh, place, sidecar, tuning, bytes, replicas, dead }))
    }

    /// Returns the kinds of reads that count.
    fn kinds(&self, expected: &[ExpectedRead]) -> Result<Vec<MeshKind>> {
        let mesh = self.mesh;
        let dims = axes_of(mesh);
        let mut found = Vec::new();
        let finest = mesh.levels().len() - 1;
        if expected.is_empty() {
            let knowledge = self.sidecar.as_ref().and_then(newest_knowledge);
            let knowledge = knowledge.ok_or_else(|| {
                let text = format!(
                    "{}: no reads were learnt: turn recording on with {}, read, then {}; or say what will be \
                     read, as --reads y,z=1",
                    self.place.shown(),
                    self.place.command("watch"),
                    self.place.command("learn")
                );
                Error::new(ErrorKind::NotFound, text)
            })?;
            for (path, kind) in learnt_kinds_of(&knowledge, |path, learned| {
                let (level, component) = mesh.traced_component(path)?;
                let known =
                    mesh.levels().get(level).filter(|_| mesh.component(component).is_ok())?;
                (known.shape == learned).then(|| known.shape.clone())
            }) {
                let Some((level, component)) = mesh.traced_component(&path) else { continue };
                found.push(MeshKind::new(mesh, (component, level), kind, &dims));
            }
        } else {
            let shape = &mesh.levels()[finest].shape;
            for kind in expected_kinds_of(expected, (shape, &dims), &self.place)? {
                for component in mesh.components() {
                    found.push(MeshKind::new(mesh, (component, finest), kind.clone(), &dims));
                }
            }
        }
        for kind in &mut found {
            check_cancelled("the plan was stopped")?;
            kind.priced.seconds = kind
                .seconds(|region| mesh.cold_seconds(&kind.component, (region, kind.level), None))?;
        }
        Ok(found)
    }

    /// Returns all candidates: replicas that there are, then new ones.
    fn candidates(&self, kinds: &[MeshKind]) -> Result<Vec<CandidateReplica>> {
        let mut all = Vec::new();
        for (record, own) in &self.replicas {
            let serves = kinds.iter().map(|kind| {
                if kind.component != record.component || kind.level as u64 >= record.levels {
                    return Ok(None);
                }
                let seconds = kind.seconds(|region| {
                    self.mesh.cold_seconds(&kind.component, (region, kind.level), Some(own))
                })?;
                Ok(kind.is_served_in(seconds).then_some((1.0, seconds)))
            });
            all.push(CandidateReplica {
                planned: None,
                is_of_site: false,
                id: record.id.clone(),
                bytes: record.stored_bytes,
                building_seconds: 0.0,
                serves: serves.collect::<Result<_>>()?,
                is_counted: true,
                worth: Worth::default(),
            });
        }
        let components: BTreeSet<&str> = kinds.iter().map(|kind| kind.component.as_str()).collect();
        let mut forecasts = Forecasts { source: self, made: BTreeMap::new() };
        for component in components {
            let own: Vec<&MeshKind> =
                kinds.iter().filter(|kind| kind.component == component).collect();
            let levels = own.iter().map(|kind| kind.level + 1).max().unwrap_or(1);
            let mut regions = vec![None];
            regions.extend(self.hot_region(&own, levels - 1).map(Some));
            for held in &regions {
                for sub_box in sub_boxes(self.mesh, &own, levels - 1) {
                    for order in [BoxOrder::Hilbert, BoxOrder::Z, BoxOrder::Given] {
                        check_cancelled("the plan was stopped")?;
                        let layout = ReplicaLayout {
                            levels,
                            held: held.clone(),
                            sub_box: sub_box.clone(),
                            order,
                        };
                        let forecast = forecasts.of(&layout)?;
                        all.extend(self.candidate(component, &layout, &forecast, kinds)?);
                    }
                }
            }
        }
        Ok(all)
    }

    fn candidate(
        &self,
        component: &str,
        layout: &ReplicaLayout,
        forecast: &MeshForecast,
        kinds: &[MeshKind],
    ) -> Result<Option<CandidateReplica>> {
        let serves = kinds.iter().map(|kind| {
            if kind.component != component || kind.level >= layout.levels {
                return Ok(None);
            }
            let seconds = kind.seconds(|region| {
                forecast.seconds(self.mesh, (region, kind.level), &self.tuning)
            })?;
            let share = if layout.held.is_none() { 1.0 } else { HOT_SHARE };
            Ok(kind.is_served_in(seconds).then_some((share, seconds)))
        });
        let serves = serves.collect::<Result<Vec<_>>>()?;
        if serves.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (bytes, id) = (forecast.bytes(), self.id_of(component, layout)?);
        let Some(id) = id else { return Ok(None) };
        if self.replicas.iter().any(|(record, _)| record.id == id) {
            return Ok(None);
        }
        let building_seconds =
            bytes as f64 * BUILDING_BYTES / self.tuning.profile.read_bytes_per_second_many.max(1.0);
        let whole = &self.mesh.levels()[layout.levels - 1].shape;
        let held: Vec<[(u64, u64); 1]> = match &layout.held {
            None => whole.iter().map(|length| [(0, *length)]).collect(),
            Some((_, region)) => {
                let starts = region.start.iter().map(|at| u64::try_from(*at).unwrap_or(0));
                starts.zip(region.shape()).map(|run| [run]).collect()
            }
        };
        let expected = kinds.iter().zip(&serves).filter_map(|(kind, served)| {
            Some(ExpectedReads {
                shape: kind.priced.counts.clone(),
                reads: kind.priced.reads,
                seconds_without: kind.priced.seconds,
                seconds_with: (*served)?.1,
            })
        });
        let planned = PlannedMeshReplica {
            id: id.clone(),
            array: self.mesh.traced_path(layout.levels - 1, component),
            step: self.mesh.step().to_owned(),
            component: component.to_owned(),
            levels: layout.levels,
            dims: kinds.first().map(|kind| kind.priced.dims.clone()).unwrap_or_default(),
            shape: held.iter().map(|[(_, length)]| *length).collect(),
            held: HeldDomainPart { runs: held },
            is_whole: layout.held.is_none(),
            chunks: layout.sub_box.clone(),
            order: layout.order.name().to_owned(),
            raw_bytes: bytes,
            bytes,
            building_seconds,
            expected: expected.collect(),
        };
        Ok(Some(CandidateReplica {
            planned: Some(PlannedHelper::OfMesh(Box::new(planned))),
            is_of_site: false,
            id,
            bytes,
            building_seconds,
            serves,
            is_counted: false,
            worth: Worth::default(),
        }))
    }

    /// Returns the name of a replica: the same of the same files in the same layout. `None` while the
    /// files are being written.
    fn id_of(&self, component: &str, layout: &ReplicaLayout) -> Result<Option<String>> {
        let ReplicaLayout { levels, held, sub_box, order } = layout;
        let files = self.mesh.files(self.mesh.component(component)?, *levels)?;
        let of = |files| {
            let path = self.mesh.traced_path(*levels, component);
            let text = format!("{path} {held:?} {sub_box:?} {} {files:?}", order.name());
            let mut id = meaning_of(&text);
            id.truncate(ID_DIGITS);
            id
        };
        Ok(files.map(of))
    }

    /// Returns the smallest region of a level that has nine of ten of all reads, with that level, if
    /// it is a small part of the domain.
    fn hot_region(&self, kinds: &[&MeshKind], level: usize) -> Option<(usize, CellRegion)> {
        let mesh = self.mesh;
        let mut around: Option<CellRegion> = None;
        for kind in kinds {
            let hot = &kind.priced.hot;
            let side = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
            let start = hot.start().iter().copied().map(side).collect();
            let stop = (0..hot.rank()).map(|axis| side(hot.end(axis))).collect();
            let fine = CellRegion { start, stop }.refined(&mesh.ratio(kind.level, level));
            around.get_or_insert_with(|| fine.clone()).extend_to(&fine);
        }
        let around = around?;
        let cells = |shape: &[u64]| shape.iter().map(|length| *length as f64).product::<f64>();
        let share = cells(&around.shape()) / cells(&mesh.levels()[level].shape);
        (share < PART_MAX).then_some((level, around))
    }
}

/// Returns shapes of sub-boxes: the default one, and those that the dearest reads suggest.
fn sub_boxes(mesh: &Mesh, kinds: &[&MeshKind], level: usize) -> Vec<Vec<u64>> {
    let boxes = &mesh.levels()[level].boxes;
    let rank = boxes.rank();
    let side = |axis: usize| {
        let lengths = boxes.iter().filter_map(|one| one.shape().nth(axis));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(1).max(1)
    };
    let sides: Vec<u64> = (0..rank).map(side).collect();
    let mut found = vec![crate::mesh::default_sub_box(rank)];
    for kind in kinds {
        let shape = sub_box_for(&kind.priced.counts, &sides);
        if found.len() <= SHAPES_MAX && !found.contains(&shape) {
            found.push(shape);
        }
    }
    found
}

/// Returns the shape of sub-boxes for reads of `counts` cells, in boxes with these sides: no longer
/// than a read or a box, and of few cells.
fn sub_box_for(counts: &[u64], sides: &[u64]) -> Vec<u64> {
    let along = |(count, side): (&u64, &u64)| (*count).min(*side).max(1);
    let mut shape: Vec<u64> = counts.iter().zip(sides).map(along).collect();
    while shape.iter().product::<u64>() > SUB_BOX_CELLS {
        if let Some(longest) = shape.iter_mut().max() {
            *longest = longest.div_ceil(2);
        }
    }
    shape
}

/// The layout of a replica.
#[derive(Debug, Clone, PartialEq)]
struct ReplicaLayout {
    levels: usize,
    held: Option<(usize, CellRegion)>,
    sub_box: Vec<u64>,
    order: BoxOrder,
}

/// The forecasts of layouts, which do not depend on the component.
struct Forecasts<'a> {
    source: &'a OptimizedMesh<'a>,
    made: BTreeMap<String, Rc<MeshForecast>>,
}

impl Forecasts<'_> {
    fn of(&mut self, layout: &ReplicaLayout) -> Result<Rc<MeshForecast>> {
        let key = format!("{layout:?}");
        if let Some(known) = self.made.get(&key) {
            return Ok(Rc::clone(known));
        }
        let ReplicaLayout { levels, held, sub_box, order } = layout;
        let made = Rc::new(MeshForecast::new(
            self.source.mesh,
            (*levels, held.as_ref()),
            (sub_box, MeshOrder::Fixed(*order)),
            &self.source.tuning.profile,
        )?);
        self.made.insert(key, Rc::clone(&made));
        Ok(made)
    }
}

/// A kind of reads of a component up to a level.
struct MeshKind {
    component: String,
    level: usize,
    priced: PricedReadKind,
}

impl MeshKind {
    fn new(
        mesh: &Mesh,
        (component, level): (&str, usize),
        mut priced: PricedReadKind,
        dims: &[String],
    ) -> Self {
        priced.array = mesh.traced_path(level, component);
        priced.dims = dims.to_vec();
        Self { component: component.to_owned(), level, priced }
    }

    /// Returns the mean seconds of such a read at several places.
    fn seconds(&self, price: impl Fn(&CellRegion) -> Result<f64>) -> Result<f64> {
        let places = self.priced.places();
        let mut seconds = 0.0;
        for place in &places {
            seconds += price(&region_of(place))?;
        }
        Ok(seconds / places.len().max(1) as f64)
    }

    /// True if a replica with these seconds of such a read would serve it.
    fn is_served_in(&self, seconds: f64) -> bool {
        seconds < self.priced.seconds * (1.0 - GAIN_MIN)
    }
}

/// Returns the smallest region with the cells of a box selection.
fn region_of(selection: &Selection) -> CellRegion {
    let Selection::Orthogonal(axes) = selection else {
        return CellRegion { start: Vec::new(), stop: Vec::new() };
    };
    let side = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let bounds = |axis: &AxisSelection| {
        let (low, high) = axis.bounds().unwrap_or((0, 0));
        (side(low), side(high).saturating_add(1))
    };
    let (start, stop) = axes.iter().map(bounds).unzip();
    CellRegion { start, stop }
}

/// The options of the replicas of a mesh that is optimized.
fn reading_options() -> OpenOptions {
    OpenOptions { replicas: false, records: false, ..OpenOptions::default() }
}

/// The sub-boxes of a store that suit expected reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshLayout {
    /// The most cells of a sub-box along each axis.
    pub sub_box: Vec<u64>,
    /// The name of their order.
    pub order: String,
    /// Predicted seconds of the reads, by their weights.
    pub seconds: f64,
}

/// Chooses the sub-boxes and the order in which a store of `mesh` takes the fewest predicted seconds
/// for reads of its finest level.
///
/// # Errors
/// `InvalidArgument` for reads that no component can have; those of finding boxes.
pub fn layout_for_reads(mesh: &Mesh, reads: &[ExpectedRead]) -> Result<MeshLayout> {
    let tuning = Tuning::with(&OpenOptions::default());
    let (levels, place) = (mesh.levels().len(), SourcePlace::One(mesh.name().into()));
    let dims = axes_of(mesh);
    let kinds = expected_kinds_of(reads, (&mesh.levels()[levels - 1].shape, &dims), &place)?;
    let component = mesh.components().first().map_or("", String::as_str);
    let kinds: Vec<MeshKind> = kinds
        .into_iter()
        .map(|kind| MeshKind::new(mesh, (component, levels - 1), kind, &dims))
        .collect();
    let mut best: Option<MeshLayout> = None;
    for sub_box in sub_boxes(mesh, &kinds.iter().collect::<Vec<_>>(), levels - 1) {
        for order in [BoxOrder::Hilbert, BoxOrder::Z, BoxOrder::Given] {
            check_cancelled("the choice was stopped")?;
            let of = (&sub_box[..], MeshOrder::Fixed(order));
            let forecast = MeshForecast::new(mesh, (levels, None), of, &tuning.profile)?;
            let mut seconds = 0.0;
            for kind in &kinds {
                let one =
                    kind.seconds(|region| forecast.seconds(mesh, (region, levels - 1), &tuning))?;
                seconds += kind.priced.reads * one;
            }
            if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                let (sub_box, order) = (sub_box.clone(), order.name().to_owned());
                best = Some(MeshLayout { sub_box, order, seconds });
            }
        }
    }
    best.ok_or_else(|| Error::invalid("no reads are given"))
}

/// Returns the names of the axes of a mesh.
fn axes_of(mesh: &Mesh) -> Vec<String> {
    ["x", "y", "z"].iter().take(mesh.lower().len()).map(|&name| name.to_owned()).collect()
}

/// Decides which replicas the meshes at `path` should have: the one of a file, or steps of a store;
/// writes nothing. They are opened without replicas, and without recording.
///
/// # Errors
/// `NotFound` if no reads were learned and none are given; `InvalidArgument` for reads that no
/// component can have; those of planning reads.
pub fn plan_meshes(
    meshes: &[Mesh],
    path: &Path,
    options: &MeshOptimizeOptions,
) -> Result<MeshOptimizePlan> {
    let (mut sources, mut notes) = (Vec::new(), Vec::new());
    for mesh in meshes {
        match OptimizedMesh::open(mesh, path, options)? {
            Some(source) => sources.push(source),
            None => notes.push(format!(
                "{}: no replica is made of it: it is being written, or its commits are not settled",
                mesh.name()
            )),
        }
    }
    let mut kinds = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        kinds.extend(source.kinds(&options.reads)?.into_iter().map(|kind| (number, kind)));
    }
    let cost = |kind: &MeshKind| kind.priced.seconds * kind.priced.reads;
    kinds.sort_by(|(_, a), (_, b)| cost(b).total_cmp(&cost(a)));
    kinds.truncate(super::reads::KINDS_MAX);
    // Those of a mesh follow each other.
    kinds.sort_by_key(|(number, _)| *number);
    let (numbers, kinds): (Vec<usize>, Vec<MeshKind>) = kinds.into_iter().unzip();
    if kinds.is_empty() && !sources.is_empty() {
        let what = if options.reads.is_empty() { "learnt" } else { "expected" };
        notes.push(format!("no {what} read is of a part of a component: replicas help no other"));
    }
    let mut candidates = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let first = numbers.partition_point(|at| *at < number);
        let count = numbers.partition_point(|at| *at <= number) - first;
        for mut one in source.candidates(&kinds[first..first + count])? {
            let mut serves = vec![None; kinds.len()];
            serves[first..first + count].copy_from_slice(&one.serves);
            one.serves = serves;
            candidates.push(one);
        }
    }
    planned((&sources, path), options, (&kinds, candidates), notes)
}

/// Chooses among candidates, and describes the choice.
fn planned(
    (sources, path): (&[OptimizedMesh<'_>], &Path),
    options: &MeshOptimizeOptions,
    (kinds, candidates): (&[MeshKind], Vec<CandidateReplica>),
    mut notes: Vec<String>,
) -> Result<MeshOptimizePlan> {
    let existing = sources.iter().flat_map(|source| &source.replicas);
    let existing: u64 = existing.map(|(one, _)| one.stored_bytes).sum();
    let source_bytes = sources.iter().map(|source| source.bytes).sum();
    let budget_bytes = options.budget.bytes(source_bytes, existing);
    let uses: Vec<_> = kinds.iter().map(|kind| kind.priced.priced_use()).collect();
    let least = candidates.iter().filter(|one| one.planned.is_some()).map(|one| one.bytes).min();
    let chosen = choose(&uses, candidates, budget_bytes);
    let make = chosen.make.into_iter().filter_map(|one| match one {
        PlannedHelper::OfMesh(planned) => Some(*planned),
        _ => None,
    });
    let make: Vec<PlannedMeshReplica> = make.collect();
    if make.is_empty() && chosen.keep.is_empty() && !kinds.is_empty() {
        notes.push(match least.filter(|least| *least > budget_bytes) {
            None => {
                "no replica saves more time than it takes to make, whatever the budget".to_owned()
            }
            Some(least) => format!(
                "no replica fits the budget of {}: the smallest that helps takes up to {}",
                crate::size::bytes_text(budget_bytes as f64),
                super::named_budget::text_up(least)
            ),
        });
    }
    let seconds = chosen.seconds_now.iter().zip(&chosen.seconds_then);
    let reads =
        kinds.iter().zip(seconds).map(|(kind, (now, then))| kind.priced.planned(*now, *then));
    let mut opening = OpenOptions::default();
    add_kept_profile(&mut opening, path);
    // A damaged one may be made again under its name.
    let is_made = |id: &String| make.iter().any(|one| one.id == *id);
    let dead = sources.iter().flat_map(|source| source.dead.iter().cloned());
    let dead: Vec<String> = dead.filter(|id| !is_made(id)).collect();
    Ok(MeshOptimizePlan {
        source: SourcePlace::One(path.to_owned()).shown(),
        source_bytes,
        profile: (&Tuning::with(&opening).profile).into(),
        budget_bytes,
        bytes: chosen.bytes,
        reads: reads.collect(),
        queries: Vec::new(),
        indexes: PlannedIndexes::default(),
        make,
        keep: chosen.keep,
        drop: dead.into_iter().chain(chosen.drop).collect(),
        notes,
    })
}

/// Returns the bytes of all files of a mesh; `None` while they are being written.
fn bytes_of_files(mesh: &Mesh) -> Result<Option<u64>> {
    let mut sizes = BTreeMap::new();
    for component in 0..mesh.components().len() {
        let Some(files) = mesh.files(component, usize::MAX)? else { return Ok(None) };
        let before = sizes.len();
        sizes.extend(files.into_iter().map(|file| (file.path, file.version.size)));
        // In a plotfile all components share their files.
        if component > 0 && sizes.len() == before {
            break;
        }
    }
    Ok(Some(sizes.into_values().sum()))
}

/// Chooses the replicas of the meshes at `path`, and makes them. Each appears when all of it is
/// durable; later reads use it where that is faster. `progress` receives the bytes of elements
/// copied, and in all. The meshes are opened as for [`plan_meshes`].
///
/// # Errors
/// Those of [`plan_meshes`]; `Conflict` if another process makes replicas of it, or its files change
/// meanwhile; `NoSpace`, `PermissionDenied`, `Interrupted`. Replicas that were made before stay.
pub fn optimize_meshes(
    meshes: &[Mesh],
    path: &Path,
    options: &MeshOptimizeOptions,
    progress: ProgressCallback<'_>,
) -> Result<(MeshOptimizePlan, MeshOptimized)> {
    let planned = plan_meshes(meshes, path, options)?;
    let mut done = MeshOptimized::default();
    let place = SourcePlace::One(path.to_owned());
    if planned.make.is_empty() && planned.drop.is_empty() {
        let sidecar = Sidecar::find(&place.sidecar_name()?, options.sidecars.as_deref())?;
        let named = sidecar.as_ref().map(mesh_replicas_in).unwrap_or_default();
        done.bytes = named.iter().map(|one| one.stored_bytes).sum();
        return Ok((planned, done));
    }
    let into = directory_of(&place, options.sidecars.as_deref())?;
    let _lock = locked(&place, &into)?;
    let catalogue = NamedMeshCatalogue { sidecar: into.sidecar().clone(), place: &place };
    let all: u64 = planned.make.iter().map(|one| one.raw_bytes).sum();
    let mut before = 0;
    let building = MeshBuilding { into: &into, planned: &planned };
    for replica in &planned.make {
        let Some(mesh) = meshes.iter().find(|mesh| mesh.step() == replica.step) else { continue };
        let made = building.make(mesh, replica, &|bytes, _| progress(before + bytes, all));
        let made = made.map_err(|error| in_place(error, into.directory()))?;
        before += replica.raw_bytes;
        let named = mesh_replicas_in(&catalogue.sidecar);
        let others =
            named.iter().filter(|one| one.id != made.id && !planned.drop.contains(&one.id));
        let bytes = made.stored_bytes + others.map(|one| one.stored_bytes).sum::<u64>();
        if bytes > planned.budget_bytes {
            remove(&catalogue.sidecar, &made.id);
            let sizes = (replica.bytes, made.stored_bytes, bytes);
            let note = note_of_size(
                ("a replica", "the needed replicas"),
                &replica.array,
                sizes,
                planned.budget_bytes,
            );
            done.warnings.push(note);
            continue;
        }
        catalogue.change(|replicas| {
            replicas.retain(|one| one.id != made.id);
            replicas.push(made.clone());
        })?;
        done.made.push(MadeMeshReplica {
            id: made.id,
            array: replica.array.clone(),
            stored_bytes: made.stored_bytes,
            raw_bytes: made.raw_bytes,
            building_seconds: made.building_seconds,
        });
    }
    // First their bytes: on a full disk no catalogue can be kept before. Reads of a replica that is
    // gone go to the mesh itself.
    planned.drop.iter().for_each(|id| remove(&catalogue.sidecar, id));
    catalogue.change(|replicas| replicas.retain(|one| !planned.drop.contains(&one.id)))?;
    done.dropped.clone_from(&planned.drop);
    let named = mesh_replicas_in(&catalogue.sidecar);
    remove_unnamed(&catalogue.sidecar, &named);
    done.bytes = named.iter().map(|one| one.stored_bytes).sum();
    catalogue.sidecar.open_to_readers(&[REPLICAS, MESH_CATALOGUE]);
    done.warnings.extend(note_of_place(&catalogue.sidecar, options.sidecars.as_deref()));
    Ok((planned, done))
}

/// Removes the directories of replicas that no catalogue of the mesh names.
fn remove_unnamed(sidecar: &Sidecar, named: &[MeshReplica]) {
    sidecar.sweep(REPLICAS);
    for entry in sidecar.entries(REPLICAS) {
        let is_named = named.iter().any(|one| entry.name == one.id);
        if entry.is_directory && is_made_here(&entry.name) && !is_named {
            remove(sidecar, &entry.name);
        }
    }
}

/// The making of the replicas of a plan.
struct MeshBuilding<'a> {
    into: &'a ReplicaDirectory,
    planned: &'a MeshOptimizePlan,
}

impl MeshBuilding<'_> {
    /// Makes one replica, and describes it for the catalogue.
    fn make(
        &self,
        mesh: &Mesh,
        replica: &PlannedMeshReplica,
        progress: ProgressCallback<'_>,
    ) -> Result<MeshReplica> {
        let (began, component) = (Instant::now(), mesh.component(&replica.component)?);
        let changed = || {
            let text = format!("{} is being written: plan again", mesh.name());
            Error::new(ErrorKind::Conflict, text)
        };
        // Two writes in one step of the clock may leave the same time.
        sleep(CLOCK_STEP);
        let of = mesh.files(component, replica.levels)?.ok_or_else(changed)?;
        // No catalogue names it: an interrupted call has left it.
        remove(self.into.sidecar(), &replica.id);
        let parent = self.into.storage(&OpenOptions::default())?;
        let id = ObjectPath::parse(&replica.id)?;
        let held = replica.part();
        let storage = MeshStorage {
            order: MeshOrder::named(&replica.order)?,
            sub_box: Some(replica.chunks.clone()),
            components: Some(vec![component]),
            levels: Some(replica.levels),
            held: held.clone().map(|region| (replica.levels - 1, region)),
            codecs: Map::new(),
        };
        let writable = OpenOptions { writable: true, ..OpenOptions::default() };
        let staged = StagedStore::create_in(&parent, &id, false, &Map::new(), writable)?;
        mesh.store_in(staged.store(), &ObjectPath::root(), &storage, progress)?;
        staged.publish()?;
        if mesh.files(component, replica.levels)?.as_ref() != Some(&of) {
            remove(self.into.sidecar(), &replica.id);
            return Err(changed());
        }
        self.into.sidecar().open_to_readers(&[REPLICAS]);
        let place = parent.within(&id)?;
        let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut record = MeshReplica {
            id: replica.id.clone(),
            step: replica.step.clone(),
            component: replica.component.clone(),
            levels: replica.levels as u64,
            held: held.map(|CellRegion { start, stop }| HeldCells {
                level: replica.levels as u64 - 1,
                start,
                stop,
            }),
            sub_box: replica.chunks.clone(),
            order: replica.order.clone(),
            stored_bytes: bytes_of(&*place)?,
            raw_bytes: replica.raw_bytes,
            made: made.as_secs(),
            building_seconds: began.elapsed().as_secs_f64(),
            of,
            objects: files_in(&*place)?,
            expected: Vec::new(),
        };
        record.expected = self.expected(mesh, &record)?;
        Ok(record)
    }

    /// Returns the reads that a replica serves, priced by the replica itself.
    fn expected(&self, mesh: &Mesh, record: &MeshReplica) -> Result<Vec<ExpectedMeshReads>> {
        let own = OpenMeshReplica::new(record.clone(), self.into.sidecar(), &reading_options());
        let own = Arc::new(own);
        let mut found = Vec::new();
        for read in &self.planned.reads {
            let Some((level, component)) = mesh.traced_component(&read.array) else { continue };
            if component != record.component || level as u64 >= record.levels {
                continue;
            }
            let side = |at: &u64| i64::try_from(*at).unwrap_or(i64::MAX);
            let mut start: Vec<i64> = read.start.iter().map(side).collect();
            if let Some(held) = record.held.as_ref().filter(|held| held.level == level as u64) {
                start.clone_from(&held.start);
            }
            let stop = start.iter().zip(&read.shape).map(|(at, n)| at.saturating_add(side(n)));
            let region = CellRegion { stop: stop.collect(), start };
            found.push(ExpectedMeshReads {
                level: level as u64,
                shape: read.shape.clone(),
                reads: read.reads,
                seconds_without: read.seconds_of_source,
                seconds_with: mesh.cold_seconds(component, (&region, level), Some(&own))?,
            });
        }
        Ok(found)
    }
}

/// Returns all files of a replica with their versions.
fn files_in(place: &dyn Storage) -> Result<Vec<MeshFile>> {
    let (mut files, mut directories) = (Vec::new(), vec![ObjectPath::root()]);
    while let Some(directory) = directories.pop() {
        for entry in place.list(&directory)? {
            let path = directory.join(&entry.name)?;
            match entry.is_directory {
                true => directories.push(path),
                false => {
                    let version = source_version(&place.stat(&path)?);
                    files.push(MeshFile { path: path.to_string(), version });
                }
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The catalogue of a mesh, which names its replicas.
struct NamedMeshCatalogue<'a> {
    sidecar: Sidecar,
    place: &'a SourcePlace,
}

impl NamedMeshCatalogue<'_> {
    /// Applies `act` to the list of replicas, and saves it as the next catalogue. Retries if another
    /// process saved one in between.
    ///
    /// # Errors
    /// `Io` if it cannot be saved; `Conflict` after [`ATTEMPTS_MAX`] attempts.
    fn change(&self, act: impl Fn(&mut Vec<MeshReplica>)) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let number = self.sidecar.last_number(MESH_CATALOGUE);
            let before = mesh_replicas_in(&self.sidecar);
            let mut replicas = before.clone();
            act(&mut replicas);
            if replicas == before {
                return Ok(());
            }
            let catalogue = MeshCatalogue::new(self.place.shown(), replicas);
            match self.sidecar.save_next(MESH_CATALOGUE, &catalogue) {
                Some(saved) if saved == number + 1 => return Ok(()),
                Some(_) => {}
                None => {
                    let place = self.sidecar.own_directory().unwrap_or_default();
                    let text = format!(
                        "{}: the catalogue of its replicas cannot be kept in {}: is the disk full, or \
                         something else there under a number?",
                        self.place.shown(),
                        place.join(MESH_CATALOGUE).display()
                    );
                    return Err(Error::new(ErrorKind::Io, text));
                }
            }
        }
        let text = format!("{}: others change the catalogue all the time", self.place.shown());
        Err(Error::new(ErrorKind::Conflict, text))
    }
}
