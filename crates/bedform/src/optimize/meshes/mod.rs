//! Replicas of refined meshes: which to make of a plotfile, a file of Chombo, or the steps of a store,
//! and their making.
//!
//! A replica has one component of the mesh in other sub-boxes. Their shapes follow the reads: cubes
//! for boxes, flat ones for planes, long ones for pencils. Every shape is ordered along both curves
//! and as the boxes are, and the predicted seconds of the reads decide, as between replicas of
//! arrays (`choose`).
//!
//! | module | holds |
//! |---|---|
//! | `candidates` | the reads of a mesh that count, and the replicas that could serve them |
//! | `building` | the making of replicas, and the catalogue that names them |

mod building;
mod candidates;

use std::path::{Path, PathBuf};

use bedform_storage::ProfileOrigin;
use serde::Serialize;

use self::building::{MeshBuilding, NamedMeshCatalogue};
use self::candidates::{MeshKind, ORDERS, OptimizedMesh, axes_of, sub_boxes};
use super::building::{
    directory_of, in_place, locked, note_of_place, note_of_size, remove, remove_unnamed,
};
use super::candidates::{CandidateReplica, PlannedHelper};
use super::choose::choose;
use super::named_budget::text_up;
use super::reads::{KINDS_MAX, expected_kinds_of};
use super::{ExpectedRead, PlannedIndexes, PlannedQuery, PlannedRead, ReplicaBudget, SourcePlace};
use crate::error::{Error, Result};
use crate::mesh::{CellRegion, MESH_CATALOGUE, Mesh, MeshForecast, MeshOrder, mesh_replicas_in};
use crate::opening::add_kept_profile;
use crate::options::{OpenOptions, ProgressCallback};
use crate::plan::tuning::Tuning;
use crate::replica::ExpectedReads;
use crate::sidecar::{REPLICAS, Sidecar};
use crate::size::bytes_text;
use crate::threads::workers::check_cancelled;

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
        for order in ORDERS {
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

/// Returns the names of the replicas of meshes that reads can use: each file that they were made of is
/// the same, and so is each file of the replica.
///
/// # Errors
/// Those of looking up the files.
pub fn current_mesh_replicas(meshes: &[Mesh], path: &Path) -> Result<Vec<String>> {
    let options =
        MeshOptimizeOptions { budget: ReplicaBudget::Default, reads: Vec::new(), sidecars: None };
    let mut found = Vec::new();
    for mesh in meshes {
        if let Some(source) = OptimizedMesh::open(mesh, path, &options)? {
            found.extend(source.replicas.iter().map(|(one, _)| one.id.clone()));
        }
    }
    Ok(found)
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
    kinds.truncate(KINDS_MAX);
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
    // Those of an earlier state of the mesh are made anew, which is planned without compression.
    let before = sources.iter().flat_map(|source| &source.dead);
    let existing =
        before.map(|one| one.raw_bytes.max(one.stored_bytes)).fold(existing, u64::saturating_add);
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
                bytes_text(budget_bytes as f64),
                text_up(least)
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
    let dead = sources.iter().flat_map(|source| source.dead.iter().map(|one| one.id.clone()));
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
    let sidecar = into.sidecar();
    let catalogue = NamedMeshCatalogue { sidecar, place: &place };
    let all: u64 = planned.make.iter().map(|one| one.raw_bytes).sum();
    let mut before = 0;
    let building = MeshBuilding { into: &into, planned: &planned };
    for replica in &planned.make {
        let Some(mesh) = meshes.iter().find(|mesh| mesh.step() == replica.step) else { continue };
        let made = building.make(mesh, replica, &|bytes, _| progress(before + bytes, all));
        let made = made.map_err(|error| in_place(error, into.directory()))?;
        before += replica.raw_bytes;
        let named = mesh_replicas_in(sidecar);
        let others =
            named.iter().filter(|one| one.id != made.id && !planned.drop.contains(&one.id));
        let bytes = made.stored_bytes + others.map(|one| one.stored_bytes).sum::<u64>();
        if bytes > planned.budget_bytes {
            remove(sidecar, &made.id);
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
    planned.drop.iter().for_each(|id| remove(sidecar, id));
    catalogue.change(|replicas| replicas.retain(|one| !planned.drop.contains(&one.id)))?;
    done.dropped.clone_from(&planned.drop);
    let named = mesh_replicas_in(sidecar);
    remove_unnamed(sidecar, named.iter().map(|one| &one.id));
    done.bytes = named.iter().map(|one| one.stored_bytes).sum();
    sidecar.open_to_readers(&[REPLICAS, MESH_CATALOGUE]);
    done.warnings.extend(note_of_place(sidecar, options.sidecars.as_deref()));
    Ok((planned, done))
}
