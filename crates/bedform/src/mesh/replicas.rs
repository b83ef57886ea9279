//! Replicas of a mesh: stores in its sidecar, each with one component in other sub-boxes.
//!
//! A replica serves a read that it makes cheaper: one that it was made for, or one whose predicted
//! seconds are fewer. It is read only where each file of the mesh that has elements of the read is
//! the one that the replica was made of; else, and where it fails, the mesh itself is read.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bedform_format::chunk_map::SourceVersion;
use bedform_format::mesh_replica::{MeshCatalogue, MeshFile, MeshReplica};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Mode, Profile};

use super::pieces::{LevelPiece, cut};
use super::{CellRegion, LevelParts, Mesh, PlanAct};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_in_sidecar;
use crate::options::{Freshness, OpenOptions, Prefetch};
use crate::plan::copy::CopyTarget;
use crate::replica::{Standing, are_off};
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::explain::priced;
use crate::sidecar::{Helper, REPLICAS, Sidecar, source_version};
use crate::store::Store;

/// The directory of the catalogue's generations in a sidecar.
pub(crate) const MESH_CATALOGUE: &str = "mesh-catalogue";
/// The time between looks for newer catalogues.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The least share of the seconds of a read that a replica must save.
pub(crate) const GAIN_MIN: f64 = 0.1;
/// The most that a length of a read may differ, as a factor, from that which a replica was made for.
const ALIKE: u64 = 2;
/// The most choices that a handle remembers.
const CHOICES_MAX: usize = 4096;

// Valid for every state of the source: each replica records the versions of its files.
impl Helper for MeshCatalogue {
    const BYTES_MAX: u64 = 64 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self)
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits)
    }
}

/// Returns the replicas that the newest catalogue of a sidecar names, current or not.
pub(crate) fn mesh_replicas_in(sidecar: &Sidecar) -> Vec<MeshReplica> {
    let newest = sidecar.load_newest(MESH_CATALOGUE, &SourceVersion::default(), &Limits::default());
    newest.map(|(_, MeshCatalogue { replicas, .. })| replicas).unwrap_or_default()
}

/// The replicas of one opened mesh. An open handle also uses replicas that are made later.
#[derive(Debug)]
pub(super) struct MeshReplicas {
    sidecar: Sidecar,
    options: OpenOptions,
    seen: Mutex<SeenReplicas>,
}

/// The replicas of the newest catalogue, and the choices among them.
#[derive(Debug, Default)]
struct SeenReplicas {
    looked: Option<Instant>,
    generation: u64,
    all: Vec<Arc<OpenMeshReplica>>,
    /// The replica that serves reads of a kind, `None` for the mesh itself.
    choices: HashMap<ReadKind, Option<Arc<OpenMeshReplica>>>,
}

/// Reads of one component up to one level, with lengths that round up to the same powers of two, in the
/// parts of the same replicas, by their numbers.
type ReadKind = (usize, usize, Vec<u32>, Vec<usize>);

/// A replica, opened at its first use.
#[derive(Debug)]
pub(crate) struct OpenMeshReplica {
    record: MeshReplica,
    /// The version that each file of the source had.
    of: HashMap<String, SourceVersion>,
    sidecar: Sidecar,
    options: OpenOptions,
    opened: OnceLock<Option<Mesh>>,
    /// True once a read of it failed.
    is_broken: AtomicBool,
}

/// A read of a mesh: its component, the replica that serves it, and the bytes taken from that.
#[derive(Debug)]
pub(super) struct MeshReading {
    pub(super) component: usize,
    pub(super) replica: Option<Arc<OpenMeshReplica>>,
    /// True once a plan of the replica was made: its files, and those of the mesh, are the recorded
    /// ones.
    is_served: AtomicBool,
    taken: AtomicU64,
}

impl MeshReading {
    /// A read of the mesh itself.
    pub(super) fn of_mesh(component: usize) -> Self {
        Self {
            component,
            replica: None,
            is_served: AtomicBool::new(false),
            taken: AtomicU64::new(0),
        }
    }

    /// Returns the replica, if the read can be planned by it.
    pub(super) fn served(&self) -> Option<&OpenMeshReplica> {
        self.replica.as_deref().filter(|_| self.is_served.load(Ordering::Relaxed))
    }

    /// Returns the name of the replica that has supplied elements, and their bytes.
    pub(super) fn taken(&self) -> Option<(String, u64)> {
        let bytes = self.taken.load(Ordering::Relaxed);
        self.replica.as_ref().filter(|_| bytes > 0).map(|one| (one.record.id.clone(), bytes))
    }
}

impl MeshReplicas {
    /// Makes the replicas of a mesh opened with these options; `None` without a sidecar on this
    /// machine, and where replicas are off.
    pub(super) fn new(sidecar: Option<&Sidecar>, options: &OpenOptions) -> Option<Self> {
        let sidecar = sidecar.filter(|one| one.own_directory().is_some() && !are_off(options))?;
        let options = OpenOptions {
            writable: false,
            // The files of a replica never change.
            freshness: Freshness::Open,
            sidecar: None,
            prefetch: Prefetch::Off,
            replicas: false,
            records: false,
            profile: None,
            refines: None,
            ..options.clone()
        };
        Some(Self { sidecar: sidecar.clone(), options, seen: Mutex::default() })
    }

    fn seen(&self) -> MutexGuard<'_, SeenReplicas> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return seen;
        }
        // A mesh may get its first sidecar while it is open.
        let sidecar = self.sidecar.found_again().unwrap_or_else(|| self.sidecar.clone());
        let generation = sidecar.last_number(MESH_CATALOGUE);
        if generation != seen.generation && sidecar.is_trusted_at(&[REPLICAS]) {
            let open = |record| Arc::new(OpenMeshReplica::new(record, &sidecar, &self.options));
            seen.all = mesh_replicas_in(&sidecar).into_iter().map(open).collect();
            seen.choices.clear();
            seen.generation = generation;
        }
        seen.looked = Some(Instant::now());
        seen
    }
}

impl OpenMeshReplica {
    /// Makes the replica of a record in a sidecar, unopened. `options` are those of the mesh.
    pub(crate) fn new(record: MeshReplica, sidecar: &Sidecar, options: &OpenOptions) -> Self {
        let of = record.of.iter().map(|file| (file.path.clone(), file.version.clone())).collect();
        let (opened, is_broken) = (OnceLock::new(), AtomicBool::new(false));
        Self { record, of, sidecar: sidecar.clone(), options: options.clone(), opened, is_broken }
    }

    /// True if it can be read, and every file of the mesh is the one that it was made of.
    ///
    /// # Errors
    /// Those of looking up the files.
    pub(crate) fn is_current(&self, mesh: &Mesh) -> Result<bool> {
        let levels = usize::try_from(self.record.levels).unwrap_or(usize::MAX);
        let files = mesh.files(mesh.component(&self.record.component)?, levels)?;
        let are_same = files.is_some_and(|files| files.iter().all(|file| self.is_of(file)));
        Ok(are_same && self.opened(mesh).is_some())
    }

    /// The name of its directory.
    pub(super) fn id(&self) -> &str {
        &self.record.id
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Returns the replica as a mesh; `None` if it is broken, or no replica of `mesh` as opened.
    fn opened(&self, mesh: &Mesh) -> Option<&Mesh> {
        let opened = self.opened.get_or_init(|| self.open(mesh).ok()).as_ref();
        opened.filter(|_| !self.is_broken())
    }

    fn open(&self, mesh: &Mesh) -> Result<Mesh> {
        let other = || Error::corrupt(self.id(), "it is not the replica of the catalogue");
        let texts = mesh.source.texts();
        if !texts.iter().all(|file| self.is_of(file)) {
            return Err(other());
        }
        let place = format!("{REPLICAS}/{}", self.record.id);
        if !self.sidecar.is_trusted_at(&[REPLICAS, &self.record.id]) {
            return Err(Error::corrupt(self.id(), "others than its owner may write it"));
        }
        let mut options = self.options.clone();
        if let Some(directory) = self.sidecar.own_directory() {
            options.profile = Profile::for_path(&directory).ok().flatten();
        }
        let storage = storage_in_sidecar(&self.sidecar, &place, Mode::ReadOnly, &options)?;
        for file in &self.record.objects {
            let now = source_version(&storage.stat(&ObjectPath::parse(&file.path)?)?);
            if Standing::of(Some(&file.version), Some(&now)) != Standing::Same {
                return Err(other());
            }
        }
        let store = Store::open(storage, options)?;
        let opened = Mesh::of_store(&store, &ObjectPath::root())?;
        let levels = opened.levels();
        let is_same = levels.len() as u64 == self.record.levels
            && levels.len() <= mesh.levels().len()
            && levels.iter().zip(mesh.levels()).all(|(own, of)| own.shape == of.shape)
            && opened.data_type() == mesh.data_type()
            && opened.components() == [self.record.component.clone()];
        is_same.then_some(opened).ok_or_else(other)
    }

    /// True if it was made of a file with this version.
    fn is_of(&self, file: &MeshFile) -> bool {
        let then = self.of.get(&file.path);
        then.is_some() && Standing::of(then, Some(&file.version)) == Standing::Same
    }

    /// Calls `act` with the plan that reads parts of `mesh` from it, and returns true; false if it
    /// does not have all cells, or was made of other files.
    pub(super) fn with_plan(
        &self,
        mesh: &Mesh,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<bool> {
        let Some(own) = self.opened(mesh) else { return Ok(false) };
        let component = mesh.component(&self.record.component)?;
        let files = mesh.source.versions(component, level, parts.pieces)?;
        let Some(files) = files else { return Ok(false) };
        if level >= own.levels().len() || !files.iter().all(|file| self.is_of(file)) {
            return Ok(false);
        }
        let mut pieces = Vec::with_capacity(parts.pieces.len());
        for whole in parts.pieces {
            let cut = cut(whole, own.level(level)?)?;
            // Sub-boxes share no cell.
            if cut.iter().map(LevelPiece::cells).sum::<u64>() != whole.cells() {
                return Ok(false);
            }
            pieces.extend(cut);
        }
        own.with_plan(0, level, LevelParts { pieces: &pieces, ..parts }, act)?;
        Ok(true)
    }

    /// Reads parts of `mesh` from it to their places in `data`, and returns true; false if the mesh
    /// itself has to be read. After an error it is not read again by this handle.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn read(
        &self,
        mesh: &Mesh,
        (reading, level): (&MeshReading, usize),
        pieces: &[LevelPiece],
        data: &mut [u8],
    ) -> Result<bool> {
        let parts = LevelParts { pieces, bytes: data.len() as u64 };
        let read = self.with_plan(mesh, level, parts, &mut |plan| {
            execute(plan, Deliver::Buffer(CopyTarget::new(data))).map(drop)
        });
        match read {
            Ok(true) => {
                let item = mesh.facts.item() as u64;
                let bytes = pieces.iter().map(|piece| piece.cells() * item).sum();
                reading.taken.fetch_add(bytes, Ordering::Relaxed);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(error),
            Err(_) => {
                self.is_broken.store(true, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    /// True if it has the cells of a region of a level that the boxes of `mesh` have.
    fn holds(&self, mesh: &Mesh, region: &CellRegion, level: usize) -> bool {
        let Some(held) = &self.record.held else { return true };
        let Ok(of) = usize::try_from(held.level) else { return false };
        // A read of a finer level lies within, if its cells of that level do.
        let region = match level > of {
            true => mesh.coarse(region, level, of),
            false => region.refined(&mesh.ratio(level, of)),
        };
        CellRegion { start: held.start.clone(), stop: held.stop.clone() }.has(&region)
    }

    /// The predicted seconds that it was made to save of a read of `shape` up to `level`, if it was
    /// made for such reads.
    fn gain_for(&self, level: usize, shape: &[u64]) -> Option<f64> {
        let is_alike = |(one, other): (&u64, &u64)| {
            let (least, most) = (one.min(other), one.max(other));
            *most <= least.saturating_mul(ALIKE)
        };
        let expected = self.record.expected.iter().filter(|expected| {
            expected.level == level as u64
                && expected.shape.len() == shape.len()
                && expected.shape.iter().zip(shape).all(is_alike)
                && expected.seconds_with < expected.seconds_without * (1.0 - GAIN_MIN)
        });
        let gains = expected.map(|expected| expected.seconds_without - expected.seconds_with);
        gains.max_by(f64::total_cmp)
    }
}

impl Mesh {
    /// Starts a read of a region of a component up to a level: chooses the replica that serves it.
    pub(super) fn reading(
        &self,
        component: usize,
        region: &CellRegion,
        level: usize,
    ) -> MeshReading {
        let replica = self.replica_for(component, region, level);
        MeshReading { replica, ..MeshReading::of_mesh(component) }
    }

    fn replica_for(
        &self,
        component: usize,
        region: &CellRegion,
        level: usize,
    ) -> Option<Arc<OpenMeshReplica>> {
        let replicas = self.replicas.as_deref()?;
        let (name, shape) = (self.components().get(component)?, region.shape());
        if shape.contains(&0) {
            return None;
        }
        let may_serve = |one: &Arc<OpenMeshReplica>| {
            let record = &one.record;
            let is_of = record.step == self.step() && record.component == *name;
            is_of && (level as u64) < record.levels && !one.is_broken()
        };
        let all = replicas.seen().all.clone();
        let candidates = (0..).zip(&all).filter(|(_, one)| may_serve(one));
        let candidates = candidates.filter(|(_, one)| one.holds(self, region, level));
        let (numbers, candidates): (Vec<usize>, Vec<_>) = candidates.unzip();
        if candidates.is_empty() {
            return None;
        }
        // Only those are opened that may serve the read: opening reads all their sub-boxes.
        let made = candidates.iter().filter_map(|one| Some((one.gain_for(level, &shape)?, *one)));
        let mut made: Vec<_> = made.collect();
        made.sort_by(|a, b| b.0.total_cmp(&a.0));
        if let Some((_, found)) = made.into_iter().find(|(_, one)| one.opened(self).is_some()) {
            return Some(Arc::clone(found));
        }
        let lengths = shape.iter().map(|length| u64::BITS - length.leading_zeros()).collect();
        let kind = (component, level, lengths, numbers);
        if let Some(choice) = replicas.seen().choices.get(&kind) {
            return choice.clone().filter(|one| !one.is_broken());
        }
        let opened = candidates.into_iter().filter(|one| one.opened(self).is_some());
        let opened: Vec<_> = opened.cloned().collect();
        let choice = self.cheapest(component, region, level, &opened);
        let mut seen = replicas.seen();
        if seen.choices.len() < CHOICES_MAX {
            seen.choices.insert(kind, choice.clone());
        }
        choice
    }

    /// Returns the replica with the fewest predicted seconds of a read; `None` if the mesh itself
    /// takes not many more.
    fn cheapest(
        &self,
        component: usize,
        region: &CellRegion,
        level: usize,
        candidates: &[Arc<OpenMeshReplica>],
    ) -> Option<Arc<OpenMeshReplica>> {
        let own = MeshReading::of_mesh(component);
        let seconds_max = self.seconds(&own, region, level).ok()? * (1.0 - GAIN_MIN);
        let tried = candidates.iter().filter_map(|one| {
            let replica = Some(Arc::clone(one));
            let reading = MeshReading { replica, ..MeshReading::of_mesh(component) };
            Some((self.seconds(&reading, region, level).ok()?, one))
        });
        let best = tried.min_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(seconds, _)| *seconds < seconds_max).map(|(_, one)| Arc::clone(one))
    }

    /// Returns the predicted seconds of a cold read of a region up to a level, of a replica or of the
    /// mesh itself.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument` for a component or region that the mesh lacks; those of planning.
    pub(crate) fn cold_seconds(
        &self,
        component: &str,
        (region, level): (&CellRegion, usize),
        replica: Option<&Arc<OpenMeshReplica>>,
    ) -> Result<f64> {
        let number = self.component(component)?;
        self.check(region, level)?;
        let reading = MeshReading { replica: replica.cloned(), ..MeshReading::of_mesh(number) };
        self.seconds(&reading, region, level)
    }

    /// Returns the predicted seconds of a cold read of a region.
    ///
    /// # Errors
    /// Those of planning.
    pub(super) fn seconds(
        &self,
        reading: &MeshReading,
        region: &CellRegion,
        level: usize,
    ) -> Result<f64> {
        let (mut seconds, mut laid_bytes, mut processor) = (0.0, 0.0, None);
        for at in 0..=level {
            let (list, _) = self.visible_pieces(region, level, at)?;
            laid_bytes += self.laid_bytes(&list, at, level);
            if !list.pieces.is_empty() {
                self.with_plan_of(reading, at, list.parts(), &mut |plan| {
                    processor.get_or_insert_with(|| plan.tuning().profile.processor.clone());
                    seconds += priced(plan)?.1.seconds;
                    Ok(())
                })?;
            }
        }
        let result_bytes = region.cells() * self.facts.item() as f64;
        let composing = processor
            .map_or(0.0, |processor| self.composing_seconds(&processor, result_bytes, laid_bytes));
        Ok(seconds + composing)
    }

    /// Calls `act` with the plan of the replica that serves a read, or of the mesh itself.
    pub(super) fn with_plan_of(
        &self,
        reading: &MeshReading,
        level: usize,
        parts: LevelParts<'_>,
        act: PlanAct<'_>,
    ) -> Result<()> {
        let served = reading.replica.as_ref().map(|one| one.with_plan(self, level, parts, act));
        match served {
            Some(Ok(true)) => {
                reading.is_served.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Err(error),
            _ => self.with_plan(reading.component, level, parts, act),
        }
    }
}
