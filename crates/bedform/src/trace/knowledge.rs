//! What was learnt of the reads of a store or file: a helper file of its sidecar, in generations.

use std::collections::BTreeMap;

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::parse_hex;
use bedform_patterns::{Globals, Pattern, Patterns};
use serde::{Deserialize, Serialize};

use super::identity::{Key, is_other};
use super::kinds::ReadKinds;
use super::processes::own_parts;
use super::selections::LearnedSelections;
use crate::sidecar::{Helper, Sidecar};

const VERSION: u64 = 1;
/// The directory of the generations.
pub(super) const LIST: &str = "knowledge";
/// Arrays that are known.
pub(super) const ARRAYS_MAX: usize = 4096;
/// Patterns of an array that are kept, the newest.
pub(super) const PATTERNS_MAX: usize = 64;
/// Replicas whose use is known, those that were used last.
const REPLICAS_MAX: usize = 4096;

/// Reads, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explained {
    /// How many.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
}

impl Explained {
    /// So many more.
    pub(super) fn add(&mut self, reads: u64, bytes: u64) {
        self.reads = self.reads.saturating_add(reads);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What is known of the reads of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedArray {
    /// Its shape when it was read last.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_size: u64,
    /// All reads.
    pub read: Explained,
    /// Seconds that they took together.
    pub seconds: f64,
    /// Those whose elements had been read ahead.
    pub was_ahead: Explained,
    /// Those of lists of positions and points, which have no pattern.
    pub lists: Explained,
    /// What these selected.
    pub selections: LearnedSelections,
    /// Those that a pattern of the reads before them had said, by kind.
    pub predicted: BTreeMap<String, Explained>,
    /// Kinds of reads: where they were, and how long they took.
    pub kinds: ReadKinds,
    /// The patterns, those that were found last at the end.
    pub patterns: Patterns,
    /// What the processes of a run read together, those that were found last at the end.
    pub global: Globals,
}

/// What reads took from a replica.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaUse {
    /// Reads that took something of it.
    pub reads: u64,
    /// Bytes that they took.
    pub bytes: u64,
    /// Seconds that these reads took together.
    pub seconds: f64,
    /// When the last of them began, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// What is known of the reads of a store or file, whatever it was when it was read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    version: u64,
    /// Traces that are part of it, with the bytes that are.
    pub traces: BTreeMap<String, u64>,
    /// The key of the store whose reads these are, in hexadecimal digits; empty where there is none.
    pub store: String,
    /// By path.
    pub arrays: BTreeMap<String, LearnedArray>,
    /// What reads took from replicas, by their names.
    pub replicas: BTreeMap<String, ReplicaUse>,
}

impl Helper for Knowledge {
    const BYTES_MAX: u64 = 16 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&Self { version: VERSION, ..self.clone() }).ok()
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let found: Self = serde_json::from_slice(bytes).ok()?;
        let is_valid = found.version == VERSION
            && found.arrays.len() <= ARRAYS_MAX
            && found.replicas.len() <= REPLICAS_MAX;
        is_valid.then_some(found)
    }
}

impl Knowledge {
    /// This, if it is of the store with `key`; of another store that lay there before nothing but which traces were
    /// read.
    pub(super) fn of_store(self, key: &Key) -> Self {
        let known = parse_hex(&self.store).unwrap_or_default();
        let (arrays, replicas) = match is_other(&known, key) {
            true => (BTreeMap::new(), BTreeMap::new()),
            false => (self.arrays, self.replicas),
        };
        let store = match *key == Key::default() {
            true => self.store,
            false => format!("{:032x}", u128::from_be_bytes(*key)),
        };
        Self { arrays, replicas, store, ..self }
    }

    /// This, as small as it must be to be kept: with fewer patterns, then with fewer arrays.
    pub(super) fn fitted(mut self) -> Self {
        self.forget_replicas();
        let length = |array: &LearnedArray| array.patterns.0.len().max(array.selections.all.len());
        let mut most = self.arrays.values().map(length).max().unwrap_or(0);
        while !self.arrays.is_empty() && !self.fits() {
            if most == 0 {
                self.forget_half();
                continue;
            }
            most /= 2;
            for LearnedArray { patterns, global, selections, .. } in self.arrays.values_mut() {
                selections.all.truncate(most);
                patterns.0.drain(..patterns.0.len().saturating_sub(most));
                global.0.drain(..global.0.len().saturating_sub(most));
            }
        }
        self
    }

    fn fits(&self) -> bool {
        self.encode().is_some_and(|bytes| bytes.len() as u64 <= Self::BYTES_MAX)
    }

    /// Forgets the replicas that were used least recently, where there are too many.
    fn forget_replicas(&mut self) {
        let Some(excess) = self.replicas.len().checked_sub(REPLICAS_MAX).filter(|more| *more > 0)
        else {
            return;
        };
        let mut sorted: Vec<_> = std::mem::take(&mut self.replicas).into_iter().collect();
        sorted.sort_by_key(|(_, used)| used.last_ns);
        self.replicas = sorted.into_iter().skip(excess).collect();
    }

    /// Forgets the arrays of which the least was read.
    fn forget_half(&mut self) {
        let mut sorted: Vec<_> = std::mem::take(&mut self.arrays).into_iter().collect();
        sorted.sort_by_key(|(_, array)| std::cmp::Reverse(array.read.bytes));
        sorted.truncate(sorted.len() / 2);
        self.arrays = sorted.into_iter().collect();
    }

    /// When the last read began that has a kind or a selection, in nanoseconds since 1970.
    pub(crate) fn newest_ns(&self) -> u64 {
        let of_array = |array: &LearnedArray| {
            let kinds = array.kinds.0.iter().map(|kind| kind.last_ns);
            kinds.chain(array.selections.all.iter().map(|one| one.last_ns)).max()
        };
        self.arrays.values().filter_map(of_array).max().unwrap_or(0)
    }

    /// The newest valid one of a sidecar.
    pub(crate) fn newest(sidecar: &Sidecar) -> Option<Self> {
        let newest = sidecar.load_newest(LIST, &SourceVersion::default(), &Limits::default());
        newest.map(|(_, known)| known)
    }
}

/// The patterns of the arrays of a source, by their paths.
pub(crate) type KnownPatterns = BTreeMap<String, Vec<Pattern>>;

/// What a sidecar knows of the reads of its source: by this process, if it is one of many, or by any.
pub(crate) fn known_patterns(sidecar: &Sidecar) -> KnownPatterns {
    let newest = Knowledge::newest(sidecar).map(|known| known.arrays).unwrap_or_default();
    let patterns = |array: LearnedArray| {
        let own = own_parts(&array.global.0);
        // The newest of those that begin alike counts.
        array.patterns.0.into_iter().chain(own).collect()
    };
    newest.into_iter().map(|(path, array)| (path, patterns(array))).collect()
}
