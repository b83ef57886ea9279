//! Knowledge: the merged traces of a store or file, as a JSON document.
//!
//! [`Knowledge::decode`] bounds the numbers of arrays and replicas; patterns have limits of their own in
//! `bedform_patterns`. Missing members have their defaults, so that documents of earlier releases are read.

use std::collections::BTreeMap;

use bedform_patterns::{Globals, Patterns};
use serde::{Deserialize, Serialize};

use crate::Limits;

const VERSION: u64 = 1;
/// The most arrays of a document.
pub const ARRAYS_MAX: usize = 4096;
/// The most replicas of a document.
pub const REPLICAS_MAX: usize = 4096;
/// Equal stretches that each axis is cut into to count reads.
pub const STRETCHES: u64 = 64;

/// A number of reads, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explained {
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
}

impl Explained {
    /// Adds `reads` reads with `bytes` bytes.
    pub fn add(&mut self, reads: u64, bytes: u64) {
        self.reads = self.reads.saturating_add(reads);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Reads of one kind: of the same lengths and steps, at any place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReadKind {
    /// Positions along each axis.
    pub counts: Vec<u64>,
    /// From one position to the next.
    pub steps: Vec<u64>,
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Seconds that they took together.
    pub seconds: f64,
    /// The time when the last one began, in nanoseconds since 1970.
    pub last_ns: u64,
    /// The smallest box around all of them: first positions.
    pub start: Vec<u64>,
    /// The box's ends, exclusive.
    pub end: Vec<u64>,
    /// For each axis the number of reads in each of its 64 stretches.
    pub bins: Vec<Vec<u64>>,
}

/// Kinds of reads of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadKinds(pub Vec<ReadKind>);

/// A selection that was read of an array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedSelection {
    /// Its content hash, in 16 hexadecimal digits.
    pub hash: String,
    /// The lengths of the axes of the array at the last read.
    pub shape: Vec<u64>,
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
    /// Seconds that they took together.
    pub seconds: f64,
    /// The time when the last one began, in nanoseconds since 1970.
    pub last_ns: u64,
    /// The box around the positions: first ones.
    pub start: Vec<u64>,
    /// The box's ends, exclusive.
    pub end: Vec<u64>,
    /// True if the sidecar has the positions; else only the box is known.
    pub is_kept: bool,
    /// Content hashes of other selections that count as this one: of the same elements in another order, or of
    /// nearly the same.
    pub alike: Vec<String>,
}

/// Selections of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LearnedSelections {
    /// All of them, sorted by the time that their reads took, the longest first.
    pub all: Vec<LearnedSelection>,
}

/// The reads of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedArray {
    /// The shape of the array at the last read.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_size: u64,
    /// All reads.
    pub read: Explained,
    /// Seconds that they took together.
    pub seconds: f64,
    /// Reads whose elements had been read ahead.
    pub was_ahead: Explained,
    /// Reads of lists of positions and points, which have no pattern.
    pub lists: Explained,
    /// The selections of these.
    pub selections: LearnedSelections,
    /// Reads that a pattern of the reads before them had predicted, by kind of pattern.
    pub predicted: BTreeMap<String, Explained>,
    /// Kinds of reads, with their places and times.
    pub kinds: ReadKinds,
    /// The patterns, the newest at the end.
    pub patterns: Patterns,
    /// The merged patterns of the processes of one run, the newest at the end.
    pub global: Globals,
}

/// The use of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaUse {
    /// Reads that took some of their elements from it.
    pub reads: u64,
    /// Bytes that they took.
    pub bytes: u64,
    /// Seconds that these reads took together.
    pub seconds: f64,
    /// The time when the last of them began, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// The reads of a store or file, in all of its states.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    version: u64,
    /// Merged traces by name, each with the number of its merged bytes.
    pub traces: BTreeMap<String, u64>,
    /// The key of the store, in hexadecimal digits; empty where there is none.
    pub store: String,
    /// Arrays by path.
    pub arrays: BTreeMap<String, LearnedArray>,
    /// The use of replicas, by their names.
    pub replicas: BTreeMap<String, ReplicaUse>,
}

impl Knowledge {
    /// The bytes of the document.
    pub fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&Self { version: VERSION, ..self.clone() }).ok()
    }

    /// The knowledge of bytes that nobody has checked; `None` for damaged ones and for an unknown version.
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
    fn knowledge_without_selections_and_replicas_is_that_of_an_earlier_version() {
        let text = br#"{"version": 1, "arrays": {"t": {"shape": [4], "lists": {"reads": 1, "bytes": 8}}}}"#;
        let known = Knowledge::decode(text, &Limits::default()).unwrap();
        assert!(known.arrays["t"].selections.all.is_empty() && known.replicas.is_empty());
        let again = Knowledge::decode(&known.encode().unwrap(), &Limits::default());
        assert_eq!(again, Some(known));
        assert!(Knowledge::decode(br#"{"version": 2}"#, &Limits::default()).is_none());
    }
}
