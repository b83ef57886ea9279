//! Stores learned selections, each in a file of the sidecar named by its content hash.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::trace::knowledge::{LearnedArray, LearnedSelection};
use bedform_format::trace::selection::{SELECTION_BYTES_MAX, TracedSelection, selection_blocks};
use bedform_geometry::Selection;
use bedform_storage::ListedEntry;

use super::recorded::{ARRAY_BYTES_MAX, RECORDED, SELECTIONS_BYTES_MAX, selection_of};
use super::selections::{CountedSelections, SELECTIONS_MAX, join};
use crate::error::Result;
use crate::sidecar::{Helper, Sidecar};
use crate::threads::workers::check_cancelled;

/// The directory of the learned selections in a sidecar.
pub(super) const KEPT: &str = "learned-selections";
/// The most selections of an array that are stored before similar ones are merged.
const TRIED_MAX: usize = 2 * SELECTIONS_MAX;
/// The most files of recorded selections that are searched, newest first.
const FILES_MAX: usize = 10_000;
/// The most names in the directory that are examined.
const NAMES_MAX: usize = 1 << 16;

/// A stored selection, in the form in which it was recorded. It does not depend on the state of the
/// source.
pub(super) struct KeptSelection {
    hash: u64,
    selection: TracedSelection<'static>,
}

impl Helper for KeptSelection {
    const BYTES_MAX: u64 = SELECTION_BYTES_MAX as u64;

    fn encode(&self) -> Option<Vec<u8>> {
        self.selection.encode(self.hash)
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        let block = selection_blocks(bytes).next()?;
        let selection = block.decode().filter(|_| block.bytes.len() == bytes.len())?;
        Some(Self { hash: block.hash, selection })
    }
}

fn name_of(digits: &str) -> String {
    format!("{KEPT}/{digits}")
}

fn hash_of(digits: &str) -> Option<u64> {
    let is_hash = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hash.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// Returns the selection of a learned one; `None` if its positions are not stored, or damaged.
pub(crate) fn kept_selection(sidecar: &Sidecar, known: &LearnedSelection) -> Option<Selection> {
    let hash = hash_of(&known.hash).filter(|_| known.is_kept)?;
    let limits = Limits::default();
    let kept: KeptSelection =
        sidecar.load_own(&name_of(&known.hash), &SourceVersion::default(), &limits)?;
    if kept.hash == hash { selection_of(kept.selection) } else { None }
}

/// Returns the content hashes of the stored selections.
pub(super) fn kept_hashes(sidecar: &Sidecar) -> HashSet<u64> {
    let entries = sidecar.entries(KEPT).into_iter().take(NAMES_MAX);
    entries.filter_map(|entry| hash_of(&entry.name)).collect()
}

/// Stores the recorded selections with the most seconds, and merges nearly equal ones.
///
/// # Errors
/// `Interrupted`.
pub(super) fn keep_selections(
    sidecar: &Sidecar,
    mut counted: BTreeMap<String, CountedSelections>,
    arrays: &mut BTreeMap<String, LearnedArray>,
) -> Result<()> {
    let mut changed = BTreeSet::new();
    for (path, array) in arrays.iter_mut() {
        if counted.remove(path).unwrap_or_default().settle(&mut array.selections) {
            changed.insert(path.clone());
        }
    }
    let mut kept = kept_hashes(sidecar);
    let missing: HashSet<u64> = arrays
        .values()
        .flat_map(|array| array.selections.all.iter().take(TRIED_MAX))
        .filter_map(|one| hash_of(&one.hash))
        .filter(|hash| !kept.contains(hash))
        .collect();
    take_recorded(sidecar, missing, &mut kept)?;
    note_kept(sidecar, &kept, arrays);
    for path in changed {
        check_cancelled("learning was stopped")?;
        if let Some(array) = arrays.get_mut(&path) {
            join(&mut array.selections, |one| kept_selection(sidecar, one));
        }
    }
    arrays.values_mut().for_each(|array| array.selections.all.truncate(SELECTIONS_MAX));
    Ok(())
}

/// Stores the missing selections, given by content hash, that processes have recorded.
fn take_recorded(
    sidecar: &Sidecar,
    mut missing: HashSet<u64>,
    kept: &mut HashSet<u64>,
) -> Result<()> {
    let recorded = sidecar.entries(RECORDED);
    for entry in recorded.iter().rev().take(FILES_MAX) {
        if missing.is_empty() {
            break;
        }
        check_cancelled("learning was stopped")?;
        let name = format!("{RECORDED}/{}", entry.name);
        let bytes = sidecar.bytes_from(&name, 0, SELECTIONS_BYTES_MAX).unwrap_or_default();
        for block in selection_blocks(&bytes) {
            let hash = block.hash;
            let wanted = missing.contains(&hash).then(|| block.decode()).flatten();
            let Some(selection) = wanted else { continue };
            missing.remove(&hash);
            let name = name_of(&super::selections::digits_of(hash));
            if sidecar.save(&name, &KeptSelection { hash, selection }) {
                kept.insert(hash);
            }
        }
    }
    Ok(())
}

/// Marks the stored selections, up to the limits of bytes per array and in all.
fn note_kept(sidecar: &Sidecar, kept: &HashSet<u64>, arrays: &mut BTreeMap<String, LearnedArray>) {
    let are_all = kept.len() < NAMES_MAX;
    let mut sorted: Vec<(f64, &mut LearnedSelection, &str)> = Vec::new();
    for (path, array) in arrays.iter_mut() {
        let of_array = array.selections.all.iter_mut().enumerate();
        for (at, one) in of_array {
            one.is_kept = false;
            if at < TRIED_MAX {
                sorted.push((one.seconds, one, path));
            }
        }
    }
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut bytes, mut of_arrays) = (0_u64, BTreeMap::<&str, u64>::new());
    let mut counted = HashSet::new();
    for (_, one, path) in sorted {
        let may_be_kept = |hash: &u64| !are_all || kept.contains(hash);
        let Some(hash) = hash_of(&one.hash).filter(may_be_kept) else { continue };
        // Arrays that are read by the same list share its file.
        let found = match counted.contains(&hash) {
            true => Some(0),
            false => sidecar.version_of(&name_of(&one.hash)).map(|version| version.size),
        };
        let Some(length) = found else { continue };
        let of_array = of_arrays.entry(path).or_default();
        if *of_array + length <= ARRAY_BYTES_MAX && bytes + length <= SELECTIONS_BYTES_MAX {
            counted.insert(hash);
            *of_array += length;
            bytes += length;
            one.is_kept = true;
        }
    }
}

/// Removes the stored selections that no array names.
pub(super) fn remove_unnamed(sidecar: &Sidecar, arrays: &BTreeMap<String, LearnedArray>) {
    let known = arrays.values().flat_map(|array| &array.selections.all);
    let kept: HashSet<&str> =
        known.filter(|one| one.is_kept).map(|one| one.hash.as_str()).collect();
    for ListedEntry { name, .. } in sidecar.entries(KEPT).into_iter().take(NAMES_MAX) {
        if hash_of(&name).is_some() && !kept.contains(name.as_str()) {
            let _ = sidecar.remove(&name_of(&name));
        }
    }
}
