//! Shards that settling has replaced, for who holds a snapshot of the time before.
//!
//! A settle with a grace period leaves what it replaces beside the log's roots, under a second name:
//! `kept/<array>/<coordinates>/<time>`, the time at which the shard became what it is. From then until the file
//! system dates the loss of its first name it was the shard. Where there was none, `absent-<time>` says so, an
//! object without bytes, with the time of the array's document: no shard goes while that stays as it is, and none
//! was there when `absent` was made. Both are in vain at worst: who does not find what it needs says that the
//! data have moved on.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::metadata::hex;
use bedform_storage::{Object, ObjectWriter, Storage, Version};

use super::source::ZarrSource;
use crate::error::Result;

/// The directory of all of them.
pub(crate) const KEPT: &str = "kept";
const ABSENT: &str = "absent-";

/// Sees to it that what `writer` replaces at `coordinates` stays in the place beside the store with
/// the suffix: `stored`, or nothing.
///
/// # Errors
/// Of storage: then nothing is kept.
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

/// What was in the place of a shard.
pub(super) enum Predecessor {
    Absent,
    Shard(Arc<dyn Object>),
}

/// What was at `coordinates` of an array at `since_ns`, if `log` has it. Commits that it should contain and does
/// not have to be in what the reader knows of the log: that is what the list of settled shards says.
///
/// # Errors
/// Of storage.
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
        // It may go at any time.
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
