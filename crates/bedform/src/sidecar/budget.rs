//! The bytes that all sidecars of one directory use, and the removal of the least recently used
//! ones.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bedform_format::ObjectPath;
use bedform_storage::{Condition, Durability, Storage};

use super::place::is_key;
use super::{INDEX, REPLICAS};

/// The name of an empty object whose modification time is that of the last use.
const USED: &str = "used";
/// The shortest time between two notes of a use.
const NOTE_AFTER: Duration = Duration::from_secs(3600);
/// The least that a sidecar counts for, in bytes, which bounds their number.
const SIDECAR_BYTES_MIN: u64 = 64 << 10;
/// The depth of nested directories, and the number of objects of one sidecar, that are counted.
const DEPTH_MAX: usize = 8;
const OBJECTS_MAX: usize = 1 << 16;

/// Notes that the sidecar in `directory` was used.
pub(super) fn note_use(storage: &dyn Storage, directory: &ObjectPath) {
    let Ok(path) = directory.join(USED) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let noted = storage.modified_ns(&path).ok().and_then(|time| u64::try_from(time).ok());
    let is_recent = noted.is_some_and(|noted| {
        let noted = Duration::from_nanos(noted);
        noted <= now && now - noted < NOTE_AFTER
    });
    if !is_recent {
        let _ = storage.put(&path, b"", Durability::Process, Condition::None);
    }
}

/// Removes sidecars, the least recently used first, until the rest has at most `bytes` bytes. The
/// sidecar in `newest` is removed last.
pub(super) fn keep_within(storage: &dyn Storage, bytes: u64, newest: &ObjectPath) {
    let mut sidecars = sidecars(storage);
    sidecars.sort_by_key(|sidecar| (sidecar.path == *newest, sidecar.used_ns));
    let mut sum: u128 = sidecars.iter().map(|sidecar| u128::from(sidecar.bytes)).sum();
    for sidecar in sidecars {
        if sum <= u128::from(bytes) {
            return;
        }
        // A reader or writer of the sidecar loses no more than time.
        let _ = storage.delete_tree(&sidecar.path, Durability::Process);
        sum -= u128::from(sidecar.bytes);
    }
}

/// The place of a sidecar in a shared directory, its bytes, and the time of its last use.
struct KeptSidecar {
    path: ObjectPath,
    bytes: u64,
    used_ns: i64,
}

fn sidecars(storage: &dyn Storage) -> Vec<KeptSidecar> {
    let entries = storage.list(&ObjectPath::root()).unwrap_or_default().into_iter();
    // Other entries are not sidecars, and stay.
    let names = entries.filter(|entry| entry.is_directory && is_key(&entry.name));
    names.filter_map(|entry| measured(storage, ObjectPath::parse(&entry.name).ok()?)).collect()
}

/// Measures the sidecar in `path`. `None` for a directory without a note of its use, and for one
/// with replicas or indexes: the user has asked for those.
fn measured(storage: &dyn Storage, path: ObjectPath) -> Option<KeptSidecar> {
    let used_ns = storage.modified_ns(&path.join(USED).ok()?).ok()?;
    for asked_for in [REPLICAS, INDEX] {
        let entries = storage.list(&path.join(asked_for).ok()?).unwrap_or_default();
        if entries.iter().any(|entry| entry.is_directory) {
            return None;
        }
    }
    let (mut bytes, mut objects) = (0_u64, 0);
    let mut directories = vec![(path.clone(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in storage.list(&directory).unwrap_or_default() {
            let Ok(inner) = directory.join(&entry.name) else { continue };
            objects += 1;
            if objects > OBJECTS_MAX {
                // A directory with so many objects is not small.
                return Some(KeptSidecar { path, bytes: u64::MAX, used_ns });
            }
            if entry.is_directory && depth < DEPTH_MAX {
                directories.push((inner, depth + 1));
            } else if let Ok(version) = storage.stat(&inner) {
                bytes = bytes.saturating_add(version.size);
            }
        }
    }
    Some(KeptSidecar { path, bytes: bytes.max(SIDECAR_BYTES_MIN), used_ns })
}
