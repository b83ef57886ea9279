//! Shards that settling has replaced, kept for snapshots of an earlier moment.
//!
//! A settle with a grace period keeps each replaced shard beside the log's roots, under a second
//! name: `kept/<array>/<coordinates>/<time>`, with the time of the shard's last change. It was
//! current from then until the file system dates the loss of its first name. Where no shard was
//! replaced, an empty object `absent-<time>` is written, with the time of the array's document.
//! While that document is unchanged no shard is removed, and none existed when `absent` was made.
//! Both are optional: a reader that finds neither reports that the data have moved on.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::metadata::hex;
use bedform_storage::{Object, ObjectWriter, Storage, Version};

use super::source::ZarrSource;
use crate::error::Result;

/// The directory of all kept shards.
pub(crate) const KEPT: &str = "kept";
const ABSENT: &str = "absent-";

/// Keeps the object that `writer` replaces at `coordinates`, in the place beside the store with the
/// suffix: the shard in version `stored`, or a note of its absence.
///
/// # Errors
/// Those of storage: then nothing is kept.
pub(super) fn keep(
    source: &ZarrSource<'_>,
    coordinates: &[u64],
    stored: Option<&Version>,
    (writer, suffix): (&mut dyn ObjectWriter, &'static str),
) -> Result<()> {
    let Some(identity) = source.state.identity() else { return Ok(()) };
    let name = match stored {
        Some(Version { changed_ns: 0, .. }) => return Ok(()),
        Some(version) => version.changed_ns.to_string(),
        None => {
            let since = source.hierarchy.storage.stat(&source.document()?)?.changed_ns;
            format!("{ABSENT}{since}")
        }
    };
    writer.keep_replaced(suffix, place(&identity.array, coordinates)?.join(&name)?);
    Ok(())
}

/// The earlier state of a shard's place.
pub(super) enum Predecessor {
    Absent,
    Shard(Arc<dyn Object>),
}

/// The object at `coordinates` of an array as of `since_ns`, if `log` has kept one. Commits that it
/// lacks are not necessarily in the log that the reader knows: the list of settled shards says
/// which are.
///
/// # Errors
/// Those of storage.
pub(super) fn predecessor(
    log: &dyn Storage,
    array: &[u8; 16],
    coordinates: &[u64],
    since_ns: i64,
) -> Result<Option<Predecessor>> {
    let place = place(array, coordinates)?;
    let (mut shards, mut notes) = (Vec::new(), Vec::new());
    for entry in log.list(&place)? {
        let (list, time) = match entry.name.strip_prefix(ABSENT) {
            Some(time) => (&mut notes, time),
            None => (&mut shards, &*entry.name),
        };
        list.extend(time.parse::<i64>().ok().filter(|time| *time <= since_ns));
    }
    shards.sort_unstable();
    for time in shards.iter().rev() {
        // It may be deleted at any time.
        let Ok(object) = log.open(&place.join(&time.to_string())?) else { continue };
        if object.version().changed_ns > since_ns {
            return Ok(Some(Predecessor::Shard(object.into())));
        }
    }
    for time in &notes {
        let note = log.stat(&place.join(&format!("{ABSENT}{time}"))?);
        if note.is_ok_and(|note| note.modified_ns > since_ns) {
            return Ok(Some(Predecessor::Absent));
        }
    }
    Ok(None)
}

fn place(array: &[u8; 16], coordinates: &[u64]) -> Result<ObjectPath> {
    let coordinates: Vec<String> = coordinates.iter().map(u64::to_string).collect();
    // An array without axes has one shard.
    let name = if coordinates.is_empty() { "all".to_owned() } else { coordinates.join(".") };
    Ok(ObjectPath::root().join(KEPT)?.join(&hex(array))?.join(&name)?)
}
