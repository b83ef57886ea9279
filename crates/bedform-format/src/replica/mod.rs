//! Catalogues: the replicas of a source, and the elements that each has.
//!
//! A catalogue is a [sealed](crate::sealed) JSON object. Nothing that [`Catalogue::decode`] returns names a place
//! outside the replica's directory or an element outside its array.

mod held;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Limits;
use crate::checksum::Fingerprint;
use crate::chunk_map::SourceVersion;
use crate::sealed::{from_sealed, to_sealed};

pub use held::{Held, Runs};

const VERSION: u64 = 3;
/// Replicas of a source.
const REPLICAS_MAX: usize = 1024;
/// Bytes of a replica's name.
const ID_BYTES_MAX: usize = 64;
/// Bytes that a replica may claim: sums of them fit 64 bits.
const CLAIMED_BYTES_MAX: u64 = 1 << 53;
/// Kinds of reads that one replica was made for.
const EXPECTED_MAX: usize = 1 << 10;

/// A kind of read that a replica was made for, and its predicted time without and with the replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// Elements along each axis of such a read.
    pub shape: Vec<u64>,
    /// The number of such reads, as recorded or by their weight.
    pub reads: f64,
    /// Seconds of one, cold, without the replica.
    pub seconds_without: f64,
    /// Seconds of one, cold, with it.
    pub seconds_with: f64,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// The name of the replica and of its directory.
    pub id: String,
    /// The path of the array in the source.
    pub array: String,
    /// Elements along each axis of the array when the replica was made.
    pub array_shape: Vec<u64>,
    /// The elements that it has.
    pub held: Held,
    /// Bytes that it takes in storage, documents and indexes among them.
    pub stored_bytes: u64,
    /// Bytes of its elements.
    pub raw_bytes: u64,
    /// Every object that holds its chunks: one that is absent or another makes the replica unreadable.
    pub objects: Vec<OwnObject>,
    /// The document of its array: a reader need not fetch it.
    pub document: Value,
    /// The time when it was made, in seconds since 1970.
    pub made: u64,
    /// Seconds that making it took.
    pub building_seconds: f64,
    /// A fingerprint of the type, grid, codecs and fill value of the array: the objects of the source mean the same
    /// elements only under the same.
    pub meaning: String,
    /// The objects of the source that it was made of.
    pub of: ObjectsOf,
    /// The places of its elements, if it has single ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<PlacesOf>,
    /// The reads that it was made for.
    pub expected: Vec<Expected>,
}

/// The places of a replica's elements, without reading them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacesOf {
    /// Their fingerprint: a read of just these places does not load them, and replicas of several arrays that
    /// have the same places share them in memory.
    pub fingerprint: String,
    /// The document of the array that holds the places: a reader need not fetch it.
    pub document: Value,
    /// Every object that holds chunks of that array.
    pub objects: Vec<OwnObject>,
}

/// An object of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnObject {
    /// Its coordinates.
    pub at: Vec<u64>,
    /// Its version, which no archive that is unpacked can forge: the time of the last change of attributes and the
    /// file number are the system's.
    pub version: SourceVersion,
}

/// The fingerprint of a list of places.
pub fn fingerprint_of(places: &[u64]) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update_numbers(places);
    format!("{:032x}", fingerprint.finish())
}

/// The fingerprint of a text that says how an array is stored: see [`Replica::meaning`].
pub fn meaning_of(text: &str) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(text.as_bytes());
    format!("{:032x}", fingerprint.finish())
}

/// The objects of an array that a replica was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsOf {
    /// The random key of the array, in hexadecimal digits; of an archive the joined dimension; empty for a file, and
    /// for an array that Bedform has not made.
    pub key: String,
    /// The objects. An object that is not listed counts as changed.
    pub objects: Vec<SourceObject>,
}

/// An object of the source, as it was when a replica was made of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceObject {
    /// Its coordinates: of a file of an archive its first position and its end along the joined axis; none for a
    /// source that is one file.
    pub at: Vec<u64>,
    /// Its version; `None` for an object that was absent.
    pub version: Option<SourceVersion>,
    /// The last commit that it contained; 0 where objects contain no commits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub commit: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The most objects that one replica is made of, and the most that it has.
pub const OBJECTS_MAX: usize = 1 << 16;

/// The replicas of a source, each with the states of the objects that it was made of.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Catalogue {
    version: u64,
    /// The source as the user named it: the name of a sidecar among many does not say whose it is. Only people read
    /// this.
    #[serde(default)]
    pub source: String,
    /// All replicas.
    pub replicas: Vec<Replica>,
}

impl Catalogue {
    /// The catalogue of these replicas of `source`.
    pub fn new(source: impl Into<String>, replicas: Vec<Replica>) -> Self {
        Self { version: VERSION, source: source.into(), replicas }
    }

    /// The bytes of the catalogue.
    pub fn encode(&self) -> Option<Vec<u8>> {
        to_sealed(self)
    }

    /// The catalogue of bytes that nobody has checked; `None` for damaged ones, for replicas that cannot be believed,
    /// and for an unknown version.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        // A changed digit of a run would be a replica of other elements.
        let found: Self = from_sealed(bytes)?;
        let is_valid = found.version == VERSION
            && found.replicas.len() <= REPLICAS_MAX
            && found.replicas.iter().all(|replica| replica.is_valid(limits));
        is_valid.then_some(found)
    }
}

impl Replica {
    /// True for a replica that can be believed: above all, its name leads out of no directory.
    fn is_valid(&self, limits: &Limits) -> bool {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let rank = self.array_shape.len();
        let is_time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        // Objects of an archive have the begin and the end of a file; a file has no coordinates.
        let is_at = |object: &SourceObject| [0, 2, rank].contains(&object.at.len());
        let are_own = |objects: &[OwnObject], rank: usize| {
            objects.len() <= OBJECTS_MAX && objects.iter().all(|object| object.at.len() == rank)
        };
        let is_read = |read: &Expected| {
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
            held: Held::of_runs(vec![vec![(0, 8)], vec![(1, 2)]], &[8, 4]).unwrap(),
            stored_bytes: 100,
            raw_bytes: 64,
            objects: vec![OwnObject { at: vec![0, 0], version: SourceVersion::default() }],
            document: Value::Null,
            made: 0,
            building_seconds: 0.5,
            meaning: String::new(),
            of: ObjectsOf { key: String::new(), objects: Vec::new() },
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
        let of = ObjectsOf { key: String::new(), objects };
        assert!(decoded(Replica { of, ..replica("r") }).is_none());
        let objects = vec![OwnObject { at: vec![0], version: SourceVersion::default() }];
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
