//! What lies in a burst tier, brought to the log.

use crate::log::opened::OpenedStore;
use crate::options::OpenOptions;
use crate::threads::workers::check_goes_on;
use std::path::Path;

use bedform_format::ObjectPath;
use bedform_format::log::SegmentName;
use bedform_storage::{Condition, Durability, Hint, Object, StorageExt as _};

use super::scan::{Scan, known_epoch_now, scan};
use crate::comm::COORDINATOR;
use crate::error::{Error, ErrorKind, Result};
use crate::log::burst::BurstPlace;
use crate::log::place::{LogPlace, SUFFIX};
use crate::log::promises::carry;

/// Bytes that are moved at a time.
const COPY_BYTES: usize = 8 << 20;

/// Fails if the tier holds what was promised to another store, of which this one is a copy: they have one
/// identity, and the other is still where it was. Where it is not, it was moved here.
pub(super) fn check_is_ours(log: &LogPlace, place: &BurstPlace) -> Result<()> {
    let Some(origin) = place.origin()?.filter(|origin| *origin != log.name()) else {
        return Ok(());
    };
    let Some(store) = origin.strip_suffix(SUFFIX) else { return Ok(()) };
    let other = OpenedStore::open_path(Path::new(store), OpenOptions::default());
    let is_there = match other.and_then(|other| other.log_place()) {
        Ok(other) => other.store == log.store && other.name() != log.name(),
        Err(error) => error.kind() == ErrorKind::Corrupt,
    };
    if !is_there {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "the burst tier holds what was promised to {store}, of which {} is the log of a copy: run \
             'bedform recover {store}' first; nothing was taken",
            log.name()
        ),
    ))
}

/// What came of a segment from the burst tier.
pub(super) struct Brought {
    pub(super) bytes: u64,
    /// The starts of its parts, and what messages put before their names.
    parts: Vec<u64>,
    shown: String,
    /// False if a part is missing before others: all stay in the tier until somebody decides.
    pub(super) is_all: bool,
}

impl Default for Brought {
    fn default() -> Self {
        Self { bytes: 0, parts: Vec::new(), shown: String::new(), is_all: true }
    }
}

impl Brought {
    /// Where the byte at `address` of the segment lay in the tier; nothing if it came from the log.
    pub(super) fn part_of(&self, address: u64) -> Option<String> {
        let before = self.parts.partition_point(|start| *start <= address);
        let start = self.parts.get(before.checked_sub(1)?)?;
        let byte = address - start;
        Some(format!("{}/{} at byte {byte}", self.shown, BurstPlace::part_name(*start)))
    }
}

/// Brings a segment from the burst tier to the log, and what says which commits of it were promised. `None`
/// if somebody still writes to it. Whatever cuts it off, calling it again brings the same.
pub(super) fn drain(
    store: &OpenedStore,
    log: &LogPlace,
    name: &str,
    place: &BurstPlace,
) -> Result<Option<Brought>> {
    let _lock = match place.storage.try_lock(&place.directory) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(None),
        // Somebody else has brought it since it was listed.
        Err(error) if error.is_not_found() => return Ok(Some(Brought::default())),
        Err(error) => return Err(error.into()),
    };
    let mut parts = Vec::new();
    for start in place.parts()? {
        parts.push((start, place.storage.open(&place.part(start)?)?));
    }
    // What was given up, or ended in good order, is nobody's.
    if place.is_past(log, name)? {
        remove(log, name, place)?;
        return Ok(Some(Brought::default()));
    }
    let mut brought = Brought {
        parts: parts.iter().map(|(start, _)| *start).collect(),
        shown: format!("{}/{}", place.storage.name(), place.directory),
        ..Brought::default()
    };
    if !parts.is_empty() {
        let (bytes, end) = copy(store, log, name, &parts)?;
        brought.bytes = bytes;
        brought.is_all = parts.last().is_none_or(|(start, _)| *start <= end);
    }
    let has_proof = carry_promises(log, name, place)?;
    if brought.is_all || !has_proof {
        brought.is_all = true;
        remove(log, name, place)?;
    }
    Ok(Some(brought))
}

/// Copies what says which commits were promised to the log, so that neither damage nor a decision is lost
/// with the tier. True if anything says so.
fn carry_promises(log: &LogPlace, name: &str, place: &BurstPlace) -> Result<bool> {
    // What the log expects from the tier has a file there, if the tier says so, from before the first promise
    // until the log expects nothing any more.
    let is_expected = log.tier_of(name)?.is_some_and(|tier| !tier.is_empty());
    let promises = SegmentName::parse(name).is_some_and(|name| name.rank == COORDINATOR);
    let should = is_expected && promises && place.keeps_promises()?;
    let to = LogPlace::segment_directory(name)?;
    let (from, segment) = (&place.directory, (&log.store, name));
    carry((&*place.storage, from), (&*log.storage, &to), segment, should, &log.limits)
}

/// Copies parts of a segment to the log, behind what is sound there. Gives the bytes that came, and where the
/// segment ends.
fn copy(
    store: &OpenedStore,
    log: &LogPlace,
    name: &str,
    parts: &[(u64, Box<dyn Object>)],
) -> Result<(u64, u64)> {
    let path = LogPlace::segment_path(name)?;
    let drained = log.named(log.storage.find(&path))?;
    let sound = sound_bytes(store, log, name)?;
    let mut writer = log.named(log.storage.create(&path, Durability::Disk, Hint::default()))?;
    let mut buffer = vec![0; COPY_BYTES];
    let (mut at, mut brought) = (0, 0);
    while let Some((object, offset, bytes, is_part)) = run_at(at, sound, &drained, parts) {
        check_goes_on("stopped; call it again to go on")?;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPY_BYTES);
        object.read(offset, &mut buffer[..length])?;
        log.named(writer.append(&buffer[..length]))?;
        at += length as u64;
        brought += if is_part { length as u64 } else { 0 };
    }
    log.named(writer.publish(Condition::None))?;
    // Its writer may have failed to make durable that the segment is there at all.
    log.named(log.storage.sync(&LogPlace::segments()?))?;
    log.named(log.storage.sync(&ObjectPath::root()))?;
    Ok((brought, at))
}

/// Removes what was brought from the tier. Noted before, so that who finds nothing there later does not
/// take it for lost.
pub(super) fn remove(log: &LogPlace, name: &str, place: &BurstPlace) -> Result<()> {
    if log.tier_of(name)?.is_some() {
        log.note_tier(name, "")?;
    }
    place.remove()
}

/// Where the bytes of a segment from `at` on are taken from: the object, the place in it, how many, and
/// whether it is a part of the burst tier.
///
/// What is committed, or undamaged, is in the log, and perhaps not in the tier. Behind that the log's bytes
/// may be torn, and the tier's are those that were promised. Parts are removed, in any order that a
/// power cut leaves, once their bytes are durable in the log: where there is none, the log has them.
fn run_at<'a>(
    at: u64,
    sound: u64,
    drained: &'a Option<Box<dyn Object>>,
    parts: &'a [(u64, Box<dyn Object>)],
) -> Option<(&'a dyn Object, u64, u64, bool)> {
    let in_log = |end: u64| {
        let object = drained.as_deref()?;
        let end = end.min(object.version().size);
        (at < end).then(|| (object, at, end - at, false))
    };
    let next = parts.partition_point(|(start, _)| *start <= at);
    let end = parts.get(next).map_or(u64::MAX, |(start, _)| *start);
    let in_part = || {
        let (start, object) = parts.get(next.checked_sub(1)?)?;
        // Bytes behind the start of the next part are none of this one.
        let left = object.version().size.min(end - start).checked_sub(at - start)?;
        (left > 0).then_some((&**object, at - start, left, true))
    };
    in_log(sound).or_else(in_part).or_else(|| in_log(end))
}

/// The first bytes of a segment, as it lies in the log, that belong to commits, or are undamaged.
fn sound_bytes(store: &OpenedStore, log: &LogPlace, name: &str) -> Result<u64> {
    let Some(SegmentName { session, .. }) = SegmentName::parse(name) else { return Ok(0) };
    let known = known_epoch_now(store, log, &session)?;
    let Scan { committed, sound, .. } = scan(log, name, known, &store.options.limits)?;
    Ok(committed.max(sound))
}
