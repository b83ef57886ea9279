//! Knowledge: the merged traces of a store or file, as a JSON document.
//!
//! [`Knowledge::decode`] bounds the numbers of arrays and replicas; `bedform_patterns` bounds
//! patterns. Missing members get defaults, so that documents of earlier releases can be read.

use std::collections::BTreeMap;

use bedform_patterns::{Globals, Patterns};
use serde::{Deserialize, Serialize};

use crate::Limits;

const VERSION: u64 = 1;
/// Largest number of arrays in a document.
pub const ARRAYS_MAX: usize = 4096;
/// Largest number of replicas in a document.
pub const REPLICAS_MAX: usize = 4096;
/// Number of equal parts of each axis, for histograms of reads.
pub const STRETCHES: u64 = 64;

/// A number of reads, and the bytes of their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explained {
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
}

impl Explained {
    /// Adds `reads` reads of `bytes` bytes in all.
    pub fn add(&mut self, reads: u64, bytes: u64) {
        self.reads = self.reads.saturating_add(reads);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Reads with equal counts and steps along each axis, at any position.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LearnedReadKind {
    /// Number of positions along each axis.
    pub counts: Vec<u64>,
    /// Step between positions along each axis.
    pub steps: Vec<u64>,
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Total duration of the reads in seconds.
    pub seconds: f64,
    /// Start of the last read, in nanoseconds since 1970.
    pub last_ns: u64,
    /// Start of the bounding box of all reads.
    pub start: Vec<u64>,
    /// End of that box, exclusive.
    pub end: Vec<u64>,
    /// For each axis, the number of reads in each of its 64 parts.
    pub bins: Vec<Vec<u64>>,
}

/// The kinds of reads of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LearnedReadKinds(pub Vec<LearnedReadKind>);

/// A selection of an array that was read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedSelection {
    /// Its content hash, in 16 hexadecimal digits.
    pub hash: String,
    /// Shape of the array at the last read.
    pub shape: Vec<u64>,
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Total duration of the reads in seconds.
    pub seconds: f64,
    /// Start of the last read, in nanoseconds since 1970.
    pub last_ns: u64,
    /// Start of the bounding box of the positions.
    pub start: Vec<u64>,
    /// End of that box, exclusive.
    pub end: Vec<u64>,
    /// True if the sidecar holds the positions; otherwise only the box is known.
    pub is_kept: bool,
    /// Content hashes of other selections that count as this one: equal elements in another order,
    /// or nearly equal ones.
    pub alike: Vec<String>,
}

/// The selections of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LearnedSelections {
    /// All selections, sorted by the total duration of their reads, longest first.
    pub all: Vec<LearnedSelection>,
}

/// Queries with one condition over regions of one shape, at any position.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedCondition {
    /// The condition in Python's form, with paths of arrays as names; empty if it was too long to
    /// be recorded.
    pub condition: String,
    /// True if stored values were compared, and not decoded ones.
    pub is_stored: bool,
    /// Lengths of the region along each axis of the array.
    pub shape: Vec<u64>,
    /// Start of the bounding box of all regions.
    pub start: Vec<u64>,
    /// End of that box, exclusive.
    pub end: Vec<u64>,
    /// The number of queries, by kind of result.
    pub results: BTreeMap<String, u64>,
    /// The number of queries.
    pub queries: u64,
    /// Bytes of the array's elements that they read.
    pub bytes: u64,
    /// The number of matching elements.
    pub matched: u64,
    /// The number of blocks of their regions.
    pub blocks: u64,
    /// The number of blocks whose elements the condition did not read.
    pub blocks_left_out: u64,
    /// Total duration of the queries in seconds.
    pub seconds: f64,
    /// Start of the last query, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// The queries with conditions on one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedQueries {
    /// The number of queries.
    pub queries: u64,
    /// Bytes of the array's elements that they read.
    pub bytes: u64,
    /// Total duration of the queries in seconds.
    pub seconds: f64,
    /// Their conditions, at most 64.
    pub conditions: Vec<LearnedCondition>,
}

/// The reads of one array, with their patterns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedArray {
    /// The shape of the array at the last read.
    pub shape: Vec<u64>,
    /// Length of an element in bytes.
    pub item_size: u64,
    /// All reads.
    pub read: Explained,
    /// Total duration of the reads in seconds.
    pub seconds: f64,
    /// Reads whose elements were already prefetched.
    pub was_ahead: Explained,
    /// Reads of lists of positions and of points, which have no pattern.
    pub lists: Explained,
    /// The selections of these reads.
    pub selections: LearnedSelections,
    /// Queries with conditions on the array. Their reads are not among the reads above.
    pub queries: LearnedQueries,
    /// Reads that a pattern of earlier reads predicted, by kind of pattern.
    pub predicted: BTreeMap<String, Explained>,
    /// Kinds of reads, with their positions and durations.
    pub kinds: LearnedReadKinds,
    /// The patterns, newest last.
    pub patterns: Patterns,
    /// The patterns merged over the processes of one run, newest last.
    pub global: Globals,
}

/// The use of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaUse {
    /// Reads that took elements from it.
    pub reads: u64,
    /// Bytes taken from it.
    pub bytes: u64,
    /// Total duration of these reads in seconds.
    pub seconds: f64,
    /// Start of the last of these reads, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// The merged reads of a store or file, across all of its versions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    version: u64,
    /// Merged traces by name, with the number of merged bytes of each.
    pub traces: BTreeMap<String, u64>,
    /// The key of the store, in hexadecimal digits; empty if there is none.
    pub store: String,
    /// Arrays by path.
    pub arrays: BTreeMap<String, LearnedArray>,
    /// The use of each replica, by name.
    pub replicas: BTreeMap<String, ReplicaUse>,
}

impl Knowledge {
    /// Encodes the document.
    pub fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&Self { version: VERSION, ..self.clone() }).ok()
    }

    /// Decodes untrusted bytes; `None` if they are damaged or of an unknown version.
    pub fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let found: Self = serde_json::from_slice(bytes).ok()?;
        let is_valid = found.version == VERSION
            && found.arrays.len() <= ARRAYS_MAX
            && found.replicas.len() <= REPLICAS_MAX;
        is_valid.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knowledge_without_selections_queries_and_replicas_is_that_of_an_earlier_version() {
        let text = br#"{"version": 1, "arrays": {"t": {"shape": [4], "lists": {"reads": 1, "bytes": 8}}}}"#;
        let known = Knowledge::decode(text, &Limits::default()).unwrap();
        assert!(known.arrays["t"].selections.all.is_empty() && known.replicas.is_empty());
        assert_eq!(known.arrays["t"].queries, LearnedQueries::default());
        let again = Knowledge::decode(&known.encode().unwrap(), &Limits::default());
        assert_eq!(again, Some(known));
        assert!(Knowledge::decode(br#"{"version": 2}"#, &Limits::default()).is_none());
    }
}
