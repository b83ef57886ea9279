//! What was learnt of the reads of a store or file: a helper file of its sidecar, in generations.

use std::collections::BTreeMap;

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_patterns::{Pattern, Patterns};
use serde::{Deserialize, Serialize};

use crate::sidecar::{Helper, Sidecar};

const VERSION: u64 = 1;
/// The directory of the generations.
pub(super) const LIST: &str = "knowledge";
/// Arrays that are known.
pub(super) const ARRAYS_MAX: usize = 4096;
/// Patterns of an array that are kept, the newest.
pub(super) const PATTERNS_MAX: usize = 64;

/// Reads, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Explained {
    /// How many.
    pub reads: u64,
    /// Bytes of their results.
    pub bytes: u64,
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
    /// Those that a pattern of the reads before them had said, by kind.
    pub predicted: BTreeMap<String, Explained>,
    /// The patterns, those that were found last at the end.
    pub patterns: Patterns,
}

/// What is known of the reads of a store or file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Knowledge {
    version: u64,
    /// Traces that are part of it, with the bytes that are.
    pub traces: BTreeMap<String, u64>,
    /// By path.
    pub arrays: BTreeMap<String, LearnedArray>,
    #[serde(skip)]
    source: SourceVersion,
}

impl Helper for Knowledge {
    const BYTES_MAX: u64 = 16 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&Self { version: VERSION, ..self.clone() }).ok()
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let found: Self = serde_json::from_slice(bytes).ok()?;
        (found.version == VERSION && found.arrays.len() <= ARRAYS_MAX).then_some(found)
    }

    // It is of whatever the source was when it was read.
    fn source(&self) -> &SourceVersion {
        &self.source
    }
}

impl Knowledge {
    /// The newest valid one of a sidecar.
    pub(super) fn newest(sidecar: &Sidecar) -> Option<Self> {
        let newest = sidecar.load_newest(LIST, &SourceVersion::default(), &Limits::default());
        newest.map(|(_, known)| known)
    }
}

/// The patterns of the arrays of a source, by their paths.
pub(crate) type KnownPatterns = BTreeMap<String, Vec<Pattern>>;

/// What a sidecar knows of the reads of its source.
pub(crate) fn known_patterns(sidecar: &Sidecar) -> KnownPatterns {
    let newest = Knowledge::newest(sidecar).map(|known| known.arrays).unwrap_or_default();
    newest.into_iter().map(|(path, array)| (path, array.patterns.0)).collect()
}
