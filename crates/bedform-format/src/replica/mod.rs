//! Catalogues: the replicas of a source, and the elements that each holds.
//!
//! A catalogue is a [sealed](crate::sealed) JSON object. [`Catalogue::decode`] refuses paths
//! outside the replica's directory and elements outside its array.

mod held;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Limits;
use crate::checksum::Fingerprint;
use crate::chunk_map::SourceVersion;
use crate::sealed::{from_sealed, to_sealed};

pub use held::{AxisRuns, ReplicaElements};

const VERSION: u64 = 3;
/// Largest number of replicas of a source.
const REPLICAS_MAX: usize = 1024;
/// Largest length of a replica's name in bytes.
const ID_BYTES_MAX: usize = 64;
/// Largest size that a replica may claim, in bytes; sums of such sizes fit 64 bits.
const CLAIMED_BYTES_MAX: u64 = 1 << 53;
/// Largest number of kinds of reads for which one replica was made.
const EXPECTED_MAX: usize = 1 << 10;

/// A kind of read for which a replica was made, with its predicted time without and with the
/// replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpectedReads {
    /// Shape of such a read in elements.
    pub shape: Vec<u64>,
    /// Number of such reads: as recorded, or weighted.
    pub reads: f64,
    /// Predicted seconds of one cold read without the replica.
    pub seconds_without: f64,
    /// Predicted seconds of one cold read with the replica.
    pub seconds_with: f64,
}

/// A replica, as its catalogue describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Name of the replica and of its directory.
    pub id: String,
    /// Path of the array in the source.
    pub array: String,
    /// Shape of the array when the replica was made.
    pub array_shape: Vec<u64>,
    /// The elements that the replica holds.
    pub held: ReplicaElements,
    /// Size in storage in bytes, with documents and indexes.
    pub stored_bytes: u64,
    /// Size of its elements in bytes.
    pub raw_bytes: u64,
    /// Every object with its chunks. If one is absent or has another version, the replica cannot be
    /// read.
    pub objects: Vec<ReplicaObject>,
    /// The document of its array, so that a reader need not fetch it.
    pub document: Value,
    /// Time of its creation, in seconds since 1970.
    pub made: u64,
    /// Seconds that its creation took.
    pub building_seconds: f64,
    /// Fingerprint of the array's type, grid, codecs and fill value. The source's objects hold the
    /// same elements only if it matches.
    pub meaning: String,
    /// The objects of the source from which it was made.
    pub of: SourceObjects,
    /// The positions of its elements, if it holds single elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<ReplicaPositions>,
    /// The reads for which it was made.
    pub expected: Vec<ExpectedReads>,
}

/// The location and fingerprint of a list of positions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaPositions {
    /// Fingerprint of the positions. A read of exactly these positions need not load them, and
    /// replicas of several arrays with equal positions share them in memory.
    pub fingerprint: String,
    /// The document of the array with the positions, so that a reader need not fetch it.
    pub document: Value,
    /// Every object with chunks of that array.
    pub objects: Vec<ReplicaObject>,
}

/// An object of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaObject {
    /// Coordinates of the object.
    pub at: Vec<u64>,
    /// Its version. An unpacked archive cannot forge it: the operating system sets the time of
    /// attribute changes and the file number.
    pub version: SourceVersion,
}

/// Returns the fingerprint of a list of positions.
pub fn fingerprint_of(places: &[u64]) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update_numbers(places);
    format!("{:032x}", fingerprint.finish())
}

/// Returns the fingerprint of a text that describes an array's storage: see [`Replica::meaning`].
pub fn meaning_of(text: &str) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(text.as_bytes());
    format!("{:032x}", fingerprint.finish())
}

/// The objects of an array from which a replica was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceObjects {
    /// The random key of the array, in hexadecimal digits; for an archive, the joined dimension.
    /// Empty for a file, and for an array that Bedform did not make.
    pub key: String,
    /// The objects. An unlisted object counts as changed.
    pub objects: Vec<SourceObject>,
}

/// An object of the source when a replica was made from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceObject {
    /// Coordinates of the object. A file of an archive has its first position and its end along the
    /// joined axis; a source of one file has none.
    pub at: Vec<u64>,
    /// Its version; `None` for an object that was absent.
    pub version: Option<SourceVersion>,
    /// The last commit in the object; 0 if objects contain no commits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub commit: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Largest number of objects from which a replica is made, and of its own objects.
pub const OBJECTS_MAX: usize = 1 << 16;

/// The replicas of a source, each with the versions of the objects from which it was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Catalogue {
    version: u64,
    /// The source as the user named it, for people who look at one sidecar among many. No program
    /// reads it.
    #[serde(default)]
    pub source: String,
    /// All replicas.
    pub replicas: Vec<Replica>,
}

impl Catalogue {
    /// Makes the catalogue of these replicas of `source`.
    pub fn new(source: impl Into<String>, replicas: Vec<Replica>) -> Self {
        Self { version: VERSION, source: source.into(), replicas }
    }

    /// Encodes the catalogue.
    pub fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    /// Decodes untrusted bytes; `None` if they are damaged, have an unknown version, or describe an
    /// invalid replica.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        // The seal detects a changed digit of a run, which would describe other elements.
        let found: Self = from_sealed(bytes)?;
        let is_valid = found.version == VERSION
            && found.replicas.len() <= REPLICAS_MAX
            && found.replicas.iter().all(|replica| replica.is_valid(limits));
        is_valid.then_some(found)
    }
}

impl Replica {
    /// Returns true for a valid replica; above all, its name must stay within its directory.
    fn is_valid(&self, limits: &Limits) -> bool {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let rank = self.array_shape.len();
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        // An object of an archive has the start and end of a file; a source of one file has no
        // coordinates.
        let is_at = |object: &SourceObject| [0, 2, rank].contains(&object.at.len());
        let are_own = |objects: &[ReplicaObject], rank: usize| {
            objects.len() <= OBJECTS_MAX && objects.iter().all(|object| object.at.len() == rank)
        };
        let is_read = |read: &ExpectedReads| {
            read.shape.len() <= limits.rank_max
                && [read.reads, read.seconds_without, read.seconds_with].into_iter().all(is_time)
        };
        (1..=ID_BYTES_MAX).contains(&self.id.len())
            && self.id.bytes().all(is_name)
            && rank <= limits.rank_max
            && self.held.fits(&self.array_shape)
            && self.stored_bytes.max(self.raw_bytes) <= CLAIMED_BYTES_MAX
            && is_time(self.building_seconds)
            && self.of.objects.len() <= OBJECTS_MAX
            && self.of.objects.iter().all(is_at)
            && are_own(&self.objects, self.held.shape().len())
            && self.places.as_ref().is_none_or(|places| are_own(&places.objects, 1))
            && self.expected.len() <= EXPECTED_MAX
            && self.expected.iter().all(is_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(id: &str) -> Replica {
        Replica {
            id: id.to_owned(),
            array: "t".to_owned(),
            array_shape: vec![8, 4],
            held: ReplicaElements::of_runs(vec![vec![(0, 8)], vec![(1, 2)]], &[8, 4]).unwrap(),
            stored_bytes: 100,
            raw_bytes: 64,
            objects: vec![ReplicaObject { at: vec![0, 0], version: SourceVersion::default() }],
            document: Value::Null,
            made: 0,
            building_seconds: 0.5,
            meaning: String::new(),
            of: SourceObjects { key: String::new(), objects: Vec::new() },
            places: None,
            expected: Vec::new(),
        }
    }

    #[test]
    fn a_catalogue_that_could_lead_elsewhere_or_does_not_fit_its_array_is_none() {
        let decoded = |replica| {
            let bytes = Catalogue::new("t.nc", vec![replica]).encode().unwrap();
            Catalogue::decode(&bytes, &Limits::default())
        };
        assert_eq!(decoded(replica("r-1")).unwrap().replicas, [replica("r-1")]);
        for id in ["", "..", "a/b", ".hidden"] {
            assert!(decoded(replica(id)).is_none(), "{id:?}");
        }
        assert!(decoded(Replica { array_shape: vec![8, 2], ..replica("r") }).is_none());
        assert!(decoded(Replica { stored_bytes: u64::MAX, ..replica("r") }).is_none());
        assert!(decoded(Replica { building_seconds: -1.0, ..replica("r") }).is_none());
        let objects = vec![SourceObject { at: vec![0], version: None, commit: 0 }];
        let of = SourceObjects { key: String::new(), objects };
        assert!(decoded(Replica { of, ..replica("r") }).is_none());
        let objects = vec![ReplicaObject { at: vec![0], version: SourceVersion::default() }];
        assert!(decoded(Replica { objects, ..replica("r") }).is_none());
        assert!(Catalogue::decode(b"{}", &Limits::default()).is_none());
    }

    #[test]
    fn a_catalogue_with_a_changed_bit_is_none() {
        let whole = Catalogue::new("t.nc", vec![replica("r-1")]);
        let bytes = whole.encode().unwrap();
        assert_eq!(Catalogue::decode(&bytes, &Limits::default()), Some(whole));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Catalogue::decode(&changed, &Limits::default()).is_none(), "bit {bit}");
        }
    }
}
