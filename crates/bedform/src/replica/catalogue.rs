//! Which replicas a source has, and what each is of.

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::held::Held;
use crate::sidecar::Helper;

/// The directory of the catalogue's generations in a sidecar.
pub(crate) const CATALOGUE: &str = "catalogue";
/// The array of a replica of points that says where its elements are.
pub(crate) const PLACES: &str = "places";
const VERSION: u64 = 1;
/// Replicas of a source.
const REPLICAS_MAX: usize = 1024;
/// Bytes of a replica's name.
const ID_BYTES_MAX: usize = 64;

/// What a replica was made for: a kind of read, and its predicted time without and with the replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// Elements along each axis of such a read.
    pub shape: Vec<u64>,
    /// How many such reads count, of those that were recorded or by their weight.
    pub reads: f64,
    /// Seconds of one, cold, without the replica.
    pub seconds_without: f64,
    /// Seconds of one, cold, with it.
    pub seconds_with: f64,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replica {
    /// Its name, that of its directory.
    pub id: String,
    /// The path of the array in the source.
    pub array: String,
    /// Elements along each axis of the array when it was made.
    pub array_shape: Vec<u64>,
    /// Which elements it has.
    pub held: Held,
    /// Bytes that it takes in storage, documents and indexes among them.
    pub stored_bytes: u64,
    /// Bytes of its elements.
    pub raw_bytes: u64,
    /// Objects that hold its chunks.
    pub objects: u64,
    /// The document of its array, so that nobody has to look for that.
    pub document: Value,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// Seconds that it took to make it.
    pub building_seconds: f64,
    /// The objects that it was made of, where the source is a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<ObjectsOf>,
    /// What it was made for.
    pub expected: Vec<Expected>,
}

/// The objects of an array that a replica was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsOf {
    /// The random key of the array, in hexadecimal digits; empty for one that Bedform has not made.
    pub key: String,
    /// Each with its coordinates, and its version; nothing for one that is not there. Of what is not named it is
    /// not known whether it is as it was.
    pub objects: Vec<(Vec<u64>, Option<SourceVersion>)>,
}

/// Objects that one replica is made of.
pub(crate) const OBJECTS_MAX: usize = 1 << 16;

/// The replicas of a source as it was in one state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Catalogue {
    version: u64,
    source: SourceVersion,
    /// All of them.
    pub replicas: Vec<Replica>,
}

impl Catalogue {
    /// The replicas of a source in the state `source`.
    pub fn new(source: &SourceVersion, replicas: Vec<Replica>) -> Self {
        Self { version: VERSION, source: source.clone(), replicas }
    }
}

impl Helper for Catalogue {
    const BYTES_MAX: u64 = 64 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let found: Self = serde_json::from_slice(bytes).ok()?;
        let is_valid = found.version == VERSION
            && found.replicas.len() <= REPLICAS_MAX
            && found.replicas.iter().all(Replica::is_valid);
        is_valid.then_some(found)
    }

    fn source(&self) -> &SourceVersion {
        &self.source
    }
}

impl Replica {
    /// True for what can be believed: above all, a name that leads nowhere else.
    fn is_valid(&self) -> bool {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=ID_BYTES_MAX).contains(&self.id.len())
            && self.id.bytes().all(is_name)
            && self.held.fits(&self.array_shape)
            && self.of.as_ref().is_none_or(|of| of.objects.len() <= OBJECTS_MAX)
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
            objects: 1,
            document: Value::Null,
            made: 0,
            building_seconds: 0.5,
            of: None,
            expected: Vec::new(),
        }
    }

    #[test]
    fn a_catalogue_that_could_lead_elsewhere_or_does_not_fit_its_array_is_none() {
        let decoded = |replica| {
            let bytes = Catalogue::new(&SourceVersion::default(), vec![replica]).encode().unwrap();
            Catalogue::decode(&bytes, &Limits::default())
        };
        assert_eq!(decoded(replica("r-1")).unwrap().replicas, [replica("r-1")]);
        for id in ["", "..", "a/b", ".hidden"] {
            assert!(decoded(replica(id)).is_none(), "{id:?}");
        }
        assert!(decoded(Replica { array_shape: vec![8, 2], ..replica("r") }).is_none());
        assert!(Catalogue::decode(b"{}", &Limits::default()).is_none());
    }
}
