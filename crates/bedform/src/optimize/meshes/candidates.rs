//! The reads of a mesh that count, and the replicas that could serve them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bedform_format::mesh_replica::MeshReplica;
use bedform_geometry::{AxisSelection, BoxOrder, Selection};

use super::{HeldDomainPart, MeshOptimizeOptions, PlannedMeshReplica};
use crate::error::{Error, ErrorKind, Result};
use crate::mesh::{
    CellRegion, GAIN_MIN, Mesh, MeshForecast, MeshOrder, OpenMeshReplica, default_sub_box,
    mesh_replicas_in,
};
use crate::opening::add_kept_profile;
use crate::optimize::candidates::{CandidateReplica, PlannedHelper, Worth};
use crate::optimize::reads::{PricedReadKind, expected_kinds_of, learnt_kinds_of};
use crate::optimize::{ExpectedRead, SourcePlace};
use crate::options::OpenOptions;
use crate::plan::tuning::Tuning;
use crate::replica::{ExpectedReads, meaning_of};
use crate::sidecar::{Sidecar, SidecarName};
use crate::threads::workers::check_cancelled;
use crate::trace::newest_knowledge;

/// Hexadecimal digits of the name of a replica.
const ID_DIGITS: usize = 16;
/// Shapes of sub-boxes that are compared, beside the default one.
const SHAPES_MAX: usize = 3;
/// Cells of a sub-box.
const SUB_BOX_CELLS: u64 = 4096;
/// The share of the cells of a mesh up to which a region of it counts as a part.
const PART_MAX: f64 = 0.8;
/// Kinds of reads whose regions are compared.
const REGIONS_MAX: usize = 3;
/// The orders that are compared for each shape.
pub(super) const ORDERS: [BoxOrder; 3] = [BoxOrder::Hilbert, BoxOrder::Z, BoxOrder::Given];
/// The bytes that making a replica moves for each of its bytes: read, written, and encoded.
const BUILDING_BYTES: f64 = 3.0;

/// An opened mesh with its sidecar.
pub(super) struct OptimizedMesh<'a> {
    mesh: &'a Mesh,
    place: SourcePlace,
    sidecar: Option<Sidecar>,
    /// The profile of the mesh's storage.
    tuning: Tuning,
    pub(super) bytes: u64,
    /// The replicas that reads can use, opened.
    pub(super) replicas: Vec<(MeshReplica, Arc<OpenMeshReplica>)>,
    /// The replicas that no read can use again.
    pub(super) dead: Vec<MeshReplica>,
}

impl<'a> OptimizedMesh<'a> {
    /// Looks at a mesh; `None` for one that is being written, or whose commits are not settled.
    pub(super) fn open(
        mesh: &'a Mesh,
        path: &Path,
        options: &MeshOptimizeOptions,
    ) -> Result<Option<Self>> {
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
                false => dead.push(record),
            }
        }
        let mut opening = OpenOptions::default();
        add_kept_profile(&mut opening, path);
        let tuning = Tuning::with(&opening);
        Ok(Some(Self { mesh, place, sidecar, tuning, bytes, replicas, dead }))
    }

    /// Returns the kinds of reads that count.
    pub(super) fn kinds(&self, expected: &[ExpectedRead]) -> Result<Vec<MeshKind>> {
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
    pub(super) fn candidates(&self, kinds: &[MeshKind]) -> Result<Vec<CandidateReplica>> {
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
            regions.extend(self.hot_regions(&own, levels - 1).into_iter().map(Some));
            for held in &regions {
                for sub_box in sub_boxes(self.mesh, &own, levels - 1) {
                    for order in ORDERS {
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
            let is_of = kind.component == component && kind.level < layout.levels;
            if !is_of || !self.has(layout.held.as_ref(), kind) {
                return Ok(None);
            }
            let seconds = kind.seconds(|region| {
                forecast.seconds(self.mesh, (region, kind.level), &self.tuning)
            })?;
            // Replicas of one region do not add up: each counts for all reads.
            Ok(kind.is_served_in(seconds).then_some((1.0, seconds)))
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

    /// Returns regions of a level, each a small part of the domain, that have nine of ten reads of a
    /// kind, or of all kinds: of the dearest reads first.
    fn hot_regions(&self, kinds: &[&MeshKind], level: usize) -> Vec<(usize, CellRegion)> {
        let mesh = self.mesh;
        let domain: f64 = mesh.levels()[level].shape.iter().map(|n| *n as f64).product();
        let fine = |kind: &&MeshKind| kind.hot_region().refined(&mesh.ratio(kind.level, level));
        let mut regions: Vec<CellRegion> = kinds.iter().map(fine).collect();
        let around = regions.iter().cloned().reduce(|mut around, one| {
            around.extend_to(&one);
            around
        });
        regions.truncate(REGIONS_MAX);
        regions.extend(around);
        let mut found: Vec<(usize, CellRegion)> = Vec::new();
        for region in regions {
            let cells: f64 = region.shape().iter().map(|n| *n as f64).product();
            let is_known = found.iter().any(|(_, known)| *known == region);
            if cells / domain < PART_MAX && !is_known {
                found.push((level, region));
            }
        }
        found
    }

    /// True if a replica of a part of the mesh has nine of ten reads of a kind.
    fn has(&self, held: Option<&(usize, CellRegion)>, kind: &MeshKind) -> bool {
        held.is_none_or(|(level, region)| {
            region.has(&kind.hot_region().refined(&self.mesh.ratio(kind.level, *level)))
        })
    }
}

/// Returns shapes of sub-boxes: the default one, and those that the dearest reads suggest.
pub(super) fn sub_boxes(mesh: &Mesh, kinds: &[&MeshKind], level: usize) -> Vec<Vec<u64>> {
    let boxes = &mesh.levels()[level].boxes;
    let rank = boxes.rank();
    let side = |axis: usize| {
        let lengths = boxes.iter().filter_map(|one| one.shape().nth(axis));
        let mut lengths: Vec<u64> = lengths.collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied().unwrap_or(1).max(1)
    };
    let sides: Vec<u64> = (0..rank).map(side).collect();
    let mut found = vec![default_sub_box(rank)];
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
pub(super) struct MeshKind {
    component: String,
    level: usize,
    pub(super) priced: PricedReadKind,
}

impl MeshKind {
    pub(super) fn new(
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
    pub(super) fn seconds(&self, price: impl Fn(&CellRegion) -> Result<f64>) -> Result<f64> {
        let places = self.priced.places();
        let mut seconds = 0.0;
        for place in &places {
            seconds += price(&region_of(place))?;
        }
        Ok(seconds / places.len().max(1) as f64)
    }

    /// Returns the box that has nine of ten of such reads.
    fn hot_region(&self) -> CellRegion {
        let (hot, side) = (&self.priced.hot, |at: u64| i64::try_from(at).unwrap_or(i64::MAX));
        CellRegion {
            start: hot.start().iter().copied().map(side).collect(),
            stop: (0..hot.rank()).map(|axis| side(hot.end(axis))).collect(),
        }
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
pub(super) fn reading_options() -> OpenOptions {
    OpenOptions { replicas: false, records: false, ..OpenOptions::default() }
}

/// Returns the names of the axes of a mesh.
pub(super) fn axes_of(mesh: &Mesh) -> Vec<String> {
    ["x", "y", "z"].iter().take(mesh.lower().len()).map(|&name| name.to_owned()).collect()
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
