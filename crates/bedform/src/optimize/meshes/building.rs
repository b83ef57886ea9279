//! The making of the replicas of a plan, and the catalogue that names them.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use bedform_format::ObjectPath;
use bedform_format::mesh_replica::{
    ExpectedMeshReads, HeldCells, MeshCatalogue, MeshFile, MeshReplica,
};
use bedform_storage::Storage;
use serde_json::Map;

use super::candidates::reading_options;
use super::{MeshOptimizePlan, PlannedMeshReplica};
use crate::error::{Error, ErrorKind, Result};
use crate::mesh::{
    CellRegion, MESH_CATALOGUE, Mesh, MeshOrder, MeshStorage, OpenMeshReplica, mesh_replicas_in,
};
use crate::optimize::SourcePlace;
use crate::optimize::building::{ReplicaDirectory, bytes_of, change_catalogue, remove};
use crate::options::{OpenOptions, ProgressCallback};
use crate::sidecar::{REPLICAS, Sidecar, source_version};
use crate::store::StagedStore;

/// The longest step of a file system's clock.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// The making of the replicas of a plan.
pub(super) struct MeshBuilding<'a> {
    pub(super) into: &'a ReplicaDirectory,
    pub(super) planned: &'a MeshOptimizePlan,
}

impl MeshBuilding<'_> {
    /// Makes one replica, and describes it for the catalogue.
    pub(super) fn make(
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
            let lengths: Vec<i64> = read.shape.iter().map(side).collect();
            if let Some(held) = record.held.as_ref().filter(|held| held.level == level as u64) {
                // It serves no read that is longer than its part.
                let fits = held.start.iter().zip(&held.stop).zip(&lengths);
                if fits.into_iter().any(|((from, to), length)| to - from < *length) {
                    continue;
                }
                start.clone_from(&held.start);
            }
            let stop = start.iter().zip(&lengths).map(|(at, length)| at.saturating_add(*length));
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
pub(super) struct NamedMeshCatalogue<'a> {
    pub(super) sidecar: &'a Sidecar,
    pub(super) place: &'a SourcePlace,
}

impl NamedMeshCatalogue<'_> {
    /// Applies `act` to the list of replicas, and saves it as the next catalogue.
    ///
    /// # Errors
    /// Those of [`change_catalogue`].
    pub(super) fn change(&self, act: impl Fn(&mut Vec<MeshReplica>)) -> Result<Vec<MeshReplica>> {
        let list: (&str, &dyn Fn() -> _) = (MESH_CATALOGUE, &|| mesh_replicas_in(self.sidecar));
        change_catalogue(self.sidecar, self.place, list, act, |replicas| {
            MeshCatalogue::new(self.place.shown(), replicas)
        })
    }
}
