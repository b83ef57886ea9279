//! Knowledge as a helper file of a sidecar: its generations, its limits, and its patterns for a new
//! process.

use std::collections::BTreeMap;

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::parse_hex;
use bedform_format::trace::knowledge::{Knowledge, LearnedArray, REPLICAS_MAX};
use bedform_patterns::Pattern;

use super::identity::{StoreKey, is_other};
use super::processes::own_parts;
use crate::sidecar::{Helper, Sidecar};

/// The directory of the generations of knowledge.
pub(super) const LIST: &str = "knowledge";
/// The most patterns of an array; the newest stay.
pub(super) const PATTERNS_MAX: usize = 64;

impl Helper for Knowledge {
    const BYTES_MAX: u64 = 16 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self)
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits)
    }
}

/// Returns `known` for the store with `key`. The knowledge of another store that lay there before
/// is reduced to its list of merged traces.
pub(super) fn of_store(mut known: Knowledge, key: &StoreKey) -> Knowledge {
    if is_other(&parse_hex(&known.store).unwrap_or_default(), key) {
        known.arrays.clear();
        known.replicas.clear();
    }
    if *key != StoreKey::default() {
        known.store = format!("{:032x}", u128::from_be_bytes(*key));
    }
    known
}

/// Shrinks `known` until it fits a helper file: drops patterns, selections and conditions, then
/// arrays.
pub(super) fn fitted(mut known: Knowledge) -> Knowledge {
    forget_replicas(&mut known);
    let length = |array: &LearnedArray| {
        let LearnedArray { patterns, selections, queries, .. } = array;
        patterns.0.len().max(selections.all.len()).max(queries.conditions.len())
    };
    let mut most = known.arrays.values().map(length).max().unwrap_or(0);
    while !known.arrays.is_empty() && !fits(&known) {
        if most == 0 {
            forget_half(&mut known);
            continue;
        }
        most /= 2;
        for LearnedArray { patterns, global, selections, queries, .. } in known.arrays.values_mut()
        {
            selections.all.truncate(most);
            queries.conditions.truncate(most);
            patterns.0.drain(..patterns.0.len().saturating_sub(most));
            global.0.drain(..global.0.len().saturating_sub(most));
        }
    }
    known
}

fn fits(known: &Knowledge) -> bool {
    known.encode().is_some_and(|bytes| bytes.len() as u64 <= Knowledge::BYTES_MAX)
}

/// Drops the least recently used replicas beyond the limit.
fn forget_replicas(known: &mut Knowledge) {
    let Some(excess) = known.replicas.len().checked_sub(REPLICAS_MAX).filter(|more| *more > 0)
    else {
        return;
    };
    let mut sorted: Vec<_> = std::mem::take(&mut known.replicas).into_iter().collect();
    sorted.sort_by_key(|(_, used)| used.last_ns);
    known.replicas = sorted.into_iter().skip(excess).collect();
}

/// Drops the half of the arrays with the fewest bytes read.
fn forget_half(known: &mut Knowledge) {
    let mut sorted: Vec<_> = std::mem::take(&mut known.arrays).into_iter().collect();
    sorted.sort_by_key(|(_, array)| std::cmp::Reverse(array.read.bytes));
    sorted.truncate(sorted.len() / 2);
    known.arrays = sorted.into_iter().collect();
}

/// Returns the begin of the last read with a kind or a selection, or of the last query, in
/// nanoseconds since 1970.
pub(crate) fn newest_read_ns(known: &Knowledge) -> u64 {
    let of_array = |array: &LearnedArray| {
        let kinds = array.kinds.0.iter().map(|kind| kind.last_ns);
        let queries = array.queries.conditions.iter().map(|one| one.last_ns);
        kinds.chain(array.selections.all.iter().map(|one| one.last_ns)).chain(queries).max()
    };
    known.arrays.values().filter_map(of_array).max().unwrap_or(0)
}

/// Returns the newest valid knowledge of a sidecar.
pub(crate) fn newest_knowledge(sidecar: &Sidecar) -> Option<Knowledge> {
    let newest = sidecar.load_newest(LIST, &SourceVersion::default(), &Limits::default());
    newest.map(|(_, known)| known)
}

/// The patterns of a source's arrays, by path.
pub(crate) type KnownPatterns = BTreeMap<String, Vec<Pattern>>;

/// Returns the patterns in a sidecar: those of all processes, then this process's part of joint
/// ones.
pub(crate) fn known_patterns(sidecar: &Sidecar) -> KnownPatterns {
    let newest = newest_knowledge(sidecar).map(|known| known.arrays).unwrap_or_default();
    let patterns = |array: LearnedArray| {
        let own = own_parts(&array.global.0);
        // Of patterns with the same begin, the last in the list counts.
        array.patterns.0.into_iter().chain(own).collect()
    };
    newest.into_iter().map(|(path, array)| (path, patterns(array))).collect()
}
