//! Catalogues of the replicas of a refined mesh.
//!
//! Such a replica is a store with one component of the mesh, in other sub-boxes and another order. A
//! catalogue is a [sealed](crate::sealed) JSON object. [`MeshCatalogue::decode`] refuses names
//! outside the directory of replicas, and paths outside the source.

use serde::{Deserialize, Serialize};

use crate::chunk_map::SourceVersion;
use crate::sealed::{from_sealed, to_sealed};
use crate::{Limits, ObjectPath};

const VERSION: u64 = 1;
/// Largest number of replicas of a mesh.
const REPLICAS_MAX: usize = 1024;
/// Largest length of a replica's name in bytes.
const ID_BYTES_MAX: usize = 64;
/// Largest number of files of a replica, and of the files that it was made of.
const FILES_MAX: usize = 1 << 16;
/// Largest number of kinds of reads that one replica was made for.
const EXPECTED_MAX: usize = 1 << 10;
/// Largest number of axes of a mesh.
const RANK_MAX: usize = 3;
/// Largest size that a replica may claim, in bytes; sums of such sizes fit 64 bits.
const CLAIMED_BYTES_MAX: u64 = 1 << 53;

/// The replicas of a mesh, each with the versions of the files that it was made of.
///
/// ```
/// use bedform_format::Limits;
/// use bedform_format::mesh_replica::MeshCatalogue;
/// let catalogue = MeshCatalogue::new("plt00010", Vec::new());
/// let bytes = catalogue.encode().unwrap();
/// assert_eq!(MeshCatalogue::decode(&bytes, &Limits::default()), Some(catalogue));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MeshCatalogue {
    version: u64,
    /// The source as the user named it, for people who look at one sidecar among many.
    #[serde(default)]
    pub source: String,
    /// All replicas.
    pub replicas: Vec<MeshReplica>,
}

/// A replica of a component of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshReplica {
    /// The name of the replica and of its directory.
    pub id: String,
    /// The path of the mesh in its store; empty for a plotfile or an HDF5 file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The name of the component.
    pub component: String,
    /// The number of levels that it has, from the coarsest on.
    pub levels: u64,
    /// The cells that it has of all boxes; all if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldCells>,
    /// The most cells of a sub-box along each axis.
    pub sub_box: Vec<u64>,
    /// The name of the order of the sub-boxes.
    pub order: String,
    /// Size in storage in bytes.
    pub stored_bytes: u64,
    /// Size of its elements in bytes.
    pub raw_bytes: u64,
    /// Time of its creation, in seconds since 1970.
    pub made: u64,
    /// Seconds that its creation took.
    pub building_seconds: f64,
    /// The files of the source with its texts and elements: if one has another version, a read of
    /// that file's elements does not use the replica.
    pub of: Vec<MeshFile>,
    /// The files of the replica: if one has another version, it is not read.
    pub objects: Vec<MeshFile>,
    /// The reads for which it was made.
    pub expected: Vec<ExpectedMeshReads>,
}

/// A region of a level: the first cell and the cell after the last along each axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCells {
    /// The level.
    pub level: u64,
    /// The first cell.
    pub start: Vec<i64>,
    /// The cell after the last.
    pub stop: Vec<i64>,
}

/// A file, by its path below the source or the replica; the path of a source of one file is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshFile {
    /// The path.
    pub path: String,
    /// The version that it had.
    pub version: SourceVersion,
}

/// A kind of read for which a replica was made, with its predicted time without and with the
/// replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectedMeshReads {
    /// The level of such a read.
    pub level: u64,
    /// Its cells along each axis, in cells of the level.
    pub shape: Vec<u64>,
    /// The weight of such reads: their number, older ones counting less.
    pub reads: f64,
    /// Predicted seconds of one cold read without the replica.
    pub seconds_without: f64,
    /// Predicted seconds of one cold read with the replica.
    pub seconds_with: f64,
}

impl MeshCatalogue {
    /// Makes the catalogue of these replicas of `source`.
    pub fn new(source: impl Into<String>, replicas: Vec<MeshReplica>) -> Self {
        Self { version: VERSION, source: source.into(), replicas }
    }

    /// Encodes the catalogue.
    pub fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    /// Decodes untrusted bytes; `None` if they are damaged, have an unknown version, or describe an
    /// invalid replica.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        let found: Self = from_sealed(bytes)?;
        let is_valid = found.version == VERSION
            && found.replicas.len() <= REPLICAS_MAX
            && found.replicas.iter().all(|replica| replica.is_valid(limits));
        is_valid.then_some(found)
    }
}

impl MeshReplica {
    fn is_valid(&self, limits: &Limits) -> bool {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        let rank = self.sub_box.len();
        let are_files = |files: &[MeshFile]| {
            files.len() <= FILES_MAX
                && files.iter().all(|file| ObjectPath::parse(&file.path).is_ok())
        };
        let is_read = |read: &ExpectedMeshReads| {
            read.shape.len() == rank
                && [read.reads, read.seconds_without, read.seconds_with].into_iter().all(is_time)
        };
        let is_region = |held: &HeldCells| {
            held.level < self.levels && [held.start.len(), held.stop.len()] == [rank; 2]
        };
        (1..=ID_BYTES_MAX).contains(&self.id.len())
            && self.id.bytes().all(is_name)
            && (1..=RANK_MAX).contains(&rank)
            && (1..=limits.mesh_levels_max as u64).contains(&self.levels)
            && self.stored_bytes.max(self.raw_bytes) <= CLAIMED_BYTES_MAX
            && is_time(self.building_seconds)
            && self.held.as_ref().is_none_or(is_region)
            && are_files(&self.of)
            && are_files(&self.objects)
            && self.expected.len() <= EXPECTED_MAX
            && self.expected.iter().all(is_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> MeshReplica {
        let file =
            |path: &str| MeshFile { path: path.to_owned(), version: SourceVersion::default() };
        MeshReplica {
            id: "0a1b".to_owned(),
            step: "plt00010".to_owned(),
            component: "density, g/cm^3".to_owned(),
            levels: 2,
            held: Some(HeldCells { level: 1, start: vec![0; 3], stop: vec![8, 64, 64] }),
            sub_box: vec![1, 32, 32],
            order: "hilbert".to_owned(),
            stored_bytes: 100,
            raw_bytes: 200,
            made: 1,
            building_seconds: 0.5,
            of: vec![file("Header"), file("")],
            objects: vec![file("zarr.json")],
            expected: vec![ExpectedMeshReads {
                level: 1,
                shape: vec![1, 64, 64],
                reads: 3.0,
                seconds_without: 2.0,
                seconds_with: 1.0,
            }],
        }
    }

    fn decoded(change: impl FnOnce(&mut MeshReplica)) -> Option<MeshCatalogue> {
        let mut replica = replica();
        change(&mut replica);
        let bytes = MeshCatalogue::new("plt", vec![replica]).encode()?;
        MeshCatalogue::decode(&bytes, &Limits::default())
    }

    #[test]
    fn names_paths_and_counts_that_no_replica_has_are_refused() {
        assert_eq!(decoded(|_| ()).unwrap().replicas, [replica()]);
        assert!(decoded(|one| one.id = "../x".to_owned()).is_none());
        assert!(decoded(|one| one.id.clear()).is_none());
        assert!(decoded(|one| one.of[0].path = "../Header".to_owned()).is_none());
        assert!(decoded(|one| one.objects[0].path = "/etc".to_owned()).is_none());
        assert!(decoded(|one| one.levels = 0).is_none());
        assert!(decoded(|one| one.sub_box.clear()).is_none());
        assert!(decoded(|one| one.held.as_mut().unwrap().level = 2).is_none());
        assert!(decoded(|one| one.held.as_mut().unwrap().start.clear()).is_none());
        assert!(decoded(|one| one.expected[0].shape.clear()).is_none());
        assert!(decoded(|one| one.building_seconds = -1.0).is_none());
        assert!(decoded(|one| one.stored_bytes = u64::MAX).is_none());
    }
}
