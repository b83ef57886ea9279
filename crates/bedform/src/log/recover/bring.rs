//! Moves the segments of dead writers from a burst tier to the log.
//!
//! The parts of a segment are copied behind its sound bytes in the log, and its promise files are
//! copied beside it. Then the segment leaves the tier. If a part is missing and promises exist, it
//! stays in the tier until the damage is decided. An interrupted move can be repeated.

use crate::log::opened::OpenedStore;
use crate::options::OpenOptions;
use crate::threads::workers::check_cancelled;
use std::path::Path;

use bedform_format::ObjectPath;
use bedform_format::log::SegmentName;
use bedform_format::shown::shell_path;
use bedform_storage::{Condition, Durability, Object, StorageExt as _, WriteHint};

use super::scan::{Scan, known_epoch_now, scan};
use crate::comm::COORDINATOR;
use crate::error::{Error, ErrorKind, Result};
use crate::log::burst::BurstPlace;
use crate::log::place::{LogPlace, SUFFIX};
use crate::log::promises::copy_promises;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 8 << 20;

/// Fails if the tier holds promises made to another store, of which this store is a copy: both have
/// the same identity. If no other store is at the path that the tier names, this store was moved.
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
             'bedform recover {}' first; nothing was taken",
            log.name(),
            shell_path(store)
        ),
    ))
}

/// The result of [`drain`] for one segment.
pub(super) struct DrainedSegment {
    pub(super) bytes: u64,
    /// Starts of its parts, in bytes of the segment, and the directory that messages show.
    parts: Vec<u64>,
    shown: String,
    /// False if a part is missing before the last one: all stay in the tier until somebody decides.
    pub(super) is_all: bool,
}

impl Default for DrainedSegment {
    fn default() -> Self {
        Self { bytes: 0, parts: Vec::new(), shown: String::new(), is_all: true }
    }
}

impl DrainedSegment {
    /// Returns the part, and the byte in it, that had `address` of the segment; `None` if the log
    /// had it.
    pub(super) fn part_of(&self, address: u64) -> Option<String> {
        let before = self.parts.partition_point(|start| *start <= address);
        let start = self.parts.get(before.checked_sub(1)?)?;
        let byte = address - start;
        Some(format!("{}/{} at byte {byte}", self.shown, BurstPlace::part_name(*start)))
    }
}

/// Brings a segment and its promise files from the burst tier to the log. Returns `None` if its
/// writer is alive. Idempotent: a call after an interruption brings the same bytes.
pub(super) fn drain(
    store: &OpenedStore,
    log: &LogPlace,
    name: &str,
    place: &BurstPlace,
) -> Result<Option<DrainedSegment>> {
    let _lock = match place.storage.try_lock(&place.directory) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(None),
        // Another process has brought it since it was listed.
        Err(error) if error.is_not_found() => return Ok(Some(DrainedSegment::default())),
        Err(error) => return Err(error.into()),
    };
    let mut parts = Vec::new();
    for start in place.parts()? {
        parts.push((start, place.storage.open(&place.part(start)?)?));
    }
    // The segment was closed, given up, or is visible: its parts are not needed.
    if place.is_past(log, name)? {
        remove(log, name, place)?;
        return Ok(Some(DrainedSegment::default()));
    }
    let mut brought = DrainedSegment {
        parts: parts.iter().map(|(start, _)| *start).collect(),
        shown: format!("{}/{}", place.storage.name(), place.directory),
        ..DrainedSegment::default()
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

/// Copies the promise files to the log, so that neither damage nor a decision is lost with the
/// tier. Returns true if the log has promise files of the segment.
fn carry_promises(log: &LogPlace, name: &str, place: &BurstPlace) -> Result<bool> {
    // A promise file is durable in the tier before the first promise, and stays until the log drops
    // its note of the tier. So a file must be there if the log has a note and the tier's text names
    // files.
    let is_expected = log.tier_of(name)?.is_some_and(|tier| !tier.is_empty());
    let promises = SegmentName::parse(name).is_some_and(|name| name.rank == COORDINATOR);
    let should = is_expected && promises && place.keeps_promises()?;
    let to = LogPlace::segment_directory(name)?;
    let (from, segment) = (&place.directory, (&log.store, name));
    copy_promises((&*place.storage, from), (&*log.storage, &to), segment, should, &log.limits)
}

/// Copies parts of a segment to the log, behind its sound bytes there. Returns the number of bytes
/// copied from the tier, and the end of the segment in bytes.
fn copy(
    store: &OpenedStore,
    log: &LogPlace,
    name: &str,
    parts: &[(u64, Box<dyn Object>)],
) -> Result<(u64, u64)> {
    let path = LogPlace::segment_path(name)?;
    let drained = log.named(log.storage.find(&path))?;
    let sound = sound_bytes(store, log, name)?;
    let mut writer =
        log.named(log.storage.create(&path, Durability::Disk, WriteHint::default()))?;
    let mut buffer = vec![0; COPY_BYTES];
    let (mut at, mut brought) = (0, 0);
    while let Some((object, offset, bytes, is_part)) = run_at(at, sound, &drained, parts) {
        check_cancelled("stopped; call it again to go on")?;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPY_BYTES);
        object.read(offset, &mut buffer[..length])?;
        log.named(writer.append(&buffer[..length]))?;
        at += length as u64;
        brought += if is_part { length as u64 } else { 0 };
    }
    log.named(writer.publish(Condition::None))?;
    // The writer may have failed to make the segment's name durable.
    log.named(log.storage.sync(&LogPlace::segments()?))?;
    log.named(log.storage.sync(&ObjectPath::root()))?;
    Ok((brought, at))
}

/// Removes a segment from the tier. Empties the log's note of the tier first, so that a later
/// recovery does not take the removed parts for lost.
pub(super) fn remove(log: &LogPlace, name: &str, place: &BurstPlace) -> Result<()> {
    if log.tier_of(name)?.is_some() {
        log.note_tier(name, "")?;
    }
    place.remove()
}

/// Returns the source of a segment's bytes from `at` on: object, offset, number of bytes, and
/// whether it is a part of the burst tier.
///
/// Committed and undamaged bytes come from the log; the tier may not have them any more. Behind
/// them the log's bytes may be torn, and the tier has the promised ones. A part is removed once its
/// bytes are durable in the log, and a power cut may bring back any of them. So the log has the
/// bytes of each part that is missing.
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
        // Bytes past the start of the next part do not belong to this one.
        let left = object.version().size.min(end - start).checked_sub(at - start)?;
        (left > 0).then_some((&**object, at - start, left, true))
    };
    in_log(sound).or_else(in_part).or_else(|| in_log(end))
}

/// Returns the number of bytes at the segment's start, in the log, that are committed or undamaged.
fn sound_bytes(store: &OpenedStore, log: &LogPlace, name: &str) -> Result<u64> {
    let Some(SegmentName { session, .. }) = SegmentName::parse(name) else { return Ok(0) };
    let known = known_epoch_now(store, log, &session)?;
    let Scan { committed, sound, .. } = scan(log, name, known, &store.options.limits)?;
    Ok(committed.max(sound))
}
