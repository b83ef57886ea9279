//! What writers that died left behind: brought from the burst tier, kept where it was promised, found
//! where it was not.
//!
//! Nothing here is needed for what was committed: that is in the log, and readers see it. A commit
//! that was promised by a burst tier becomes visible; writes that no commit had are found, and stay
//! until somebody says what is to become of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use bedform_format::log::{
    CommitId, CommitRecord, Directory, GrownArray, Lane, RecordHead, RecordKind, Root, Section,
    SectionPlace, SegmentName,
};
use bedform_format::metadata::{LogState, hex};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Lock, Object, SYNC_ALIGNMENT};
use serde_json::{Value, json};

use super::burst::{Burst, BurstPlace};
use super::commit::enlarge;
use super::lanes::OpenedSegment;
use super::place::{LogPlace, SUFFIX};
use super::record::{decode_body, read_record, read_sealed};
use super::session::{Session, SessionOptions};
use crate::comm::Alone;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{OpenOptions, Store};

/// Bytes that are moved at a time.
const COPY_BYTES: usize = 8 << 20;

/// What is to become of writes that no commit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Leftover {
    /// They stay, and are found again.
    #[default]
    Keep,
    /// They become visible: one commit for each session that left some.
    Commit,
    /// They are removed, with the next settling or collection of garbage.
    Discard,
}

impl FromStr for Leftover {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "keep" => Ok(Self::Keep),
            "commit" => Ok(Self::Commit),
            "discard" => Ok(Self::Discard),
            _ => Err(Error::invalid(format!("expected keep, commit or discard, not {text:?}"))),
        }
    }
}

/// What [`Store::recover`] found and did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Bytes that came from the burst tier.
    pub drained_bytes: u64,
    /// Commits that had been promised, and are visible now.
    pub completed: u64,
    /// Segments that somebody still writes to.
    pub live: u64,
    /// Writes that no commit has, by session and rank.
    pub found: Vec<Found>,
    /// Commits that were made of them.
    pub committed: u64,
    /// Burst tiers, and their nodes, through which writers that died may have promised more: others
    /// than the one that was looked at.
    pub tiers: Vec<String>,
}

impl Recovered {
    /// For doors: an object with these names.
    pub fn to_json(&self) -> Value {
        let found = self.found.iter().map(|found| {
            json!({
                "session": found.session,
                "rank": found.rank,
                "writes": found.writes,
                "bytes": found.bytes,
                "arrays": found.arrays,
            })
        });
        json!({
            "drained_bytes": self.drained_bytes,
            "completed": self.completed,
            "live": self.live,
            "found": found.collect::<Vec<_>>(),
            "committed": self.committed,
            "tiers": self.tiers,
        })
    }
}

/// Writes of one rank of a session that no commit has; or of several, whose node had put them together
/// for a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Identity of the session, in hexadecimal digits.
    pub session: String,
    /// The rank, or the lowest.
    pub rank: u32,
    /// The number of writes that can be read.
    pub writes: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The arrays that they are for; those that are gone have no name.
    pub arrays: Vec<String>,
}

/// A segment without a writer, and what no root knows of it.
struct Orphan {
    name: String,
    session: [u8; 16],
    sections: Vec<(CommitId, SectionPlace)>,
    directories: Vec<(Directory, CommitRecord)>,
    has_promises: bool,
    /// The burst tier that may have more of it, and was not looked at.
    tier: Option<String>,
    /// The shapes under which the sections were written.
    shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// Nobody begins to write here, or removes it, meanwhile.
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Finds what writers that died left behind, and brings about what they had promised. Writers that
    /// live are not touched. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `Conflict` where a promise cannot be kept because an array was deleted, or was made to
    /// the store of which this is a copy; those of storage.
    pub fn recover(
        &self,
        burst: Option<&Burst>,
        leftover: Leftover,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Recovered> {
        self.shared.check_writable()?;
        let log = self.shared.log_place()?;
        {
            let _lock = self.shared.lock(&ObjectPath::root())?;
            self.shared.remove_stale_roots(&log)?;
            let document = self.shared.documents.read_root(&self.shared)?;
            let state = document.map_or_else(LogState::default, |document| document.group.log);
            match log.newest(None)? {
                Some(newest) => log.check_age(&newest, state)?,
                // What lies there would be taken for what nobody has committed.
                None if state.pending => return Err(log.missing()),
                None => {}
            }
        }
        let mut recovered = Recovered::default();
        let mut brought = BTreeSet::new();
        if let Some(burst) = burst {
            let places = BurstPlace::all(burst, &log)?;
            places.iter().try_for_each(|(_, place)| check_is_ours(&log, place))?;
            for (name, place) in places {
                brought.insert(name.clone());
                match drain(&log, &name, &place, &self.options().limits, interrupted)? {
                    Some(bytes) => recovered.drained_bytes += bytes,
                    None => recovered.live += 1,
                }
            }
        }
        let mut orphans = self.orphans(&log, &mut recovered, interrupted)?;
        let seen = burst.map(Burst::note);
        for orphan in &mut orphans {
            let tier = log.tier_of(&orphan.name)?.filter(|tier| seen.as_ref() != Some(tier));
            // It may have more than one name.
            orphan.tier = tier.filter(|_| !brought.contains(&orphan.name));
        }
        let tiers: BTreeSet<_> = orphans.iter().filter_map(|orphan| orphan.tier.clone()).collect();
        recovered.tiers = tiers.into_iter().collect();
        let mut session = self.session(Box::new(Alone), SessionOptions::default())?;
        recovered.completed = complete_promised(&mut session, &log, &mut orphans)?;
        recovered.found = self.describe(&orphans)?;
        if leftover == Leftover::Commit {
            recovered.committed = commit_leftover(&mut session, &orphans)?;
        }
        for orphan in &orphans {
            let is_decided = match leftover {
                Leftover::Discard => true,
                // The burst tier may still have them, or what follows, and another call bring it.
                _ if orphan.has_promises && burst.is_none() || orphan.tier.is_some() => false,
                Leftover::Commit => true,
                Leftover::Keep => orphan.sections.is_empty(),
            };
            if is_decided {
                log.mark_closed(&orphan.name)?;
            }
        }
        Ok(recovered)
    }

    /// The segments whose writers are gone, with what no root knows of them.
    fn orphans(
        &self,
        log: &LogPlace,
        recovered: &mut Recovered,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<Orphan>> {
        let mut orphans = Vec::new();
        for name in log.segment_names()? {
            let Some(SegmentName { session, .. }) = SegmentName::parse(&name) else { continue };
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "stopped; call it again to go on"));
            }
            let directory = LogPlace::segment_directory(&name)?;
            let lock = match log.storage.try_lock(&directory) {
                Ok(Some(lock)) => lock,
                Ok(None) => {
                    recovered.live += 1;
                    continue;
                }
                // Its writer has ended, and others have settled and removed it, since it was listed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            if log.is_closed(&name)? {
                continue;
            }
            // Read after the lock was taken: its writer has published whatever it has.
            let known = known_epoch(log.newest(None)?.as_deref(), &session);
            let Scan { sections, directories, shapes, has_promises, .. } =
                scan(log, &name, known, &self.options().limits)?;
            orphans.push(Orphan {
                name,
                session,
                sections,
                directories,
                has_promises,
                tier: None,
                shapes,
                _lock: lock,
            });
        }
        Ok(orphans)
    }

    fn describe(&self, orphans: &[Orphan]) -> Result<Vec<Found>> {
        let by_key = self.shared.shapes_by_key()?;
        let name = |key: &[u8; 16]| by_key.get(key).map(|(path, _)| path.to_string());
        let mut by_rank = BTreeMap::<([u8; 16], u32), Vec<&SectionPlace>>::new();
        for orphan in orphans {
            for (_, place) in &orphan.sections {
                by_rank.entry((orphan.session, place.rank_first)).or_default().push(place);
            }
        }
        Ok(by_rank
            .into_iter()
            .map(|((session, rank), places)| {
                let touched = || places.iter().flat_map(|place| &place.arrays);
                let arrays: BTreeSet<_> = touched().filter_map(|part| name(&part.key)).collect();
                Found {
                    session: hex(&session),
                    rank,
                    writes: touched().map(|part| part.entries).sum(),
                    bytes: touched().map(|part| part.bytes).sum(),
                    arrays: arrays.into_iter().collect(),
                }
            })
            .collect())
    }
}

/// What a segment has that no root knows of.
#[derive(Default)]
struct Scan {
    sections: Vec<(CommitId, SectionPlace)>,
    directories: Vec<(Directory, CommitRecord)>,
    shapes: BTreeMap<[u8; 16], Vec<u64>>,
    /// Where the last record of earlier commits ends.
    committed: u64,
    /// True if commits were promised here, kept or not.
    has_promises: bool,
}

/// The last epoch of a session that a root knows to be committed; 0 for none.
fn known_epoch(root: Option<&Root>, session: &[u8; 16]) -> u32 {
    root.and_then(|root| root.sessions.get(session).copied()).unwrap_or(0)
}

/// True if the segment of a writer that died has what `root` does not know of; or promises, which may
/// still lie in a burst tier: who brings them again has to find that they were kept.
///
/// # Errors
/// Of storage.
pub(super) fn has_leftover(
    log: &LogPlace,
    name: &str,
    root: &Root,
    limits: &Limits,
) -> Result<bool> {
    let Some(SegmentName { session, .. }) = SegmentName::parse(name) else { return Ok(false) };
    if log.is_closed(name)? {
        return Ok(false);
    }
    if log.tier_of(name)?.is_some() {
        return Ok(true);
    }
    let scan = scan(log, name, known_epoch(Some(root), &session), limits)?;
    Ok(!scan.sections.is_empty() || scan.has_promises)
}

/// What the segment has of commits after epoch `known`.
fn scan(log: &LogPlace, name: &str, known: u32, limits: &Limits) -> Result<Scan> {
    let mut scan = Scan::default();
    let segment = match OpenedSegment::open(log, name) {
        Ok(segment) => segment,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(scan),
        Err(error) => return Err(error),
    };
    let mut scanner = Scanner { log, name, segment: &*segment.object, known, limits };
    // Sections that a member cut by itself come before those that its node made of the rest, in the
    // first lane.
    let mut lanes: Vec<Lane> = segment.lanes.all().collect();
    lanes.rotate_left(1);
    for lane in lanes {
        scanner.scan(lane, &mut scan)?;
    }
    scan.sections.sort_by_key(|(commit, _)| *commit);
    Ok(scan)
}

/// Who looks through a segment.
struct Scanner<'a> {
    log: &'a LogPlace,
    name: &'a str,
    segment: &'a dyn Object,
    known: u32,
    limits: &'a Limits,
}

impl Scanner<'_> {
    fn shown(&self) -> String {
        format!("{}/segments/{}", self.log.name(), self.name)
    }

    /// Adds what a lane has to `scan`.
    fn scan(&mut self, lane: Lane, scan: &mut Scan) -> Result<()> {
        for next in Heads::new(self.segment, lane) {
            let (offset, head) = next?;
            let is_known = match head.kind {
                RecordKind::Section => self.section(offset, head, scan)?,
                RecordKind::Directory => self.directory(offset, head, scan)?,
                RecordKind::Header | RecordKind::Data => Some(false),
            };
            match is_known {
                Some(true) => scan.committed = offset.saturating_add(head.record_bytes()),
                Some(false) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Adds a section; true if it is known to be committed, nothing if it is damaged.
    fn section(&self, offset: u64, head: RecordHead, scan: &mut Scan) -> Result<Option<bool>> {
        let shown = || self.shown();
        let read = read_record(self.segment, offset, head.kind, self.limits, &shown);
        let Some(body) = undamaged(read)? else { return Ok(None) };
        let Ok(section) = Section::decode(&body, self.limits) else { return Ok(None) };
        if section.commit.epoch <= self.known {
            return Ok(Some(true));
        }
        if !is_whole(self.segment, &section)? {
            return Ok(Some(false));
        }
        let place = SectionPlace {
            segment: 0,
            offset,
            stored_bytes: head.record_bytes(),
            bytes: body.len() as u64,
            rank_first: section.entries.iter().map(|entry| entry.rank).min().unwrap_or(0),
            arrays: section.touched().map_err(|error| Error::corrupt(shown(), error))?,
        };
        for array in section.arrays {
            let shape = scan.shapes.entry(array.key);
            enlarge(shape.or_insert_with(|| array.shape.clone()), &array.shape);
        }
        scan.sections.push((section.commit, place));
        Ok(Some(false))
    }

    /// As [`Scanner::section`], of a directory.
    fn directory(&self, offset: u64, head: RecordHead, scan: &mut Scan) -> Result<Option<bool>> {
        let read = read_sealed(self.segment, offset, head.kind, self.limits, &|| self.shown());
        let Some((body, codec)) = undamaged(read)? else { return Ok(None) };
        let Ok(directory) = Directory::decode(&body, self.limits) else { return Ok(None) };
        scan.has_promises |= directory.is_promised;
        if directory.commit.epoch <= self.known {
            return Ok(Some(true));
        }
        let record = CommitRecord {
            number: 0,
            segment: self.name.to_owned(),
            offset,
            stored_bytes: head.record_bytes(),
            bytes: body.len() as u64,
            codec,
        };
        scan.directories.push((directory, record));
        Ok(Some(false))
    }
}

/// The heads of a lane's records, with their places, up to the first that is damaged: nothing behind
/// that was durable.
struct Heads<'a> {
    segment: &'a dyn Object,
    at: u64,
}

impl<'a> Heads<'a> {
    fn new(segment: &'a dyn Object, lane: Lane) -> Self {
        Self { segment, at: lane.address(0).unwrap_or(u64::MAX) }
    }

    fn read(&self, at: u64) -> Result<Option<RecordHead>> {
        let mut head = [0; RecordHead::BYTES];
        let read = undamaged(self.segment.read(at, &mut head).map_err(Error::from))?;
        Ok(read.and_then(|()| RecordHead::decode(&head).ok()))
    }

    fn next_head(&self) -> Result<Option<(u64, RecordHead)>> {
        // Behind a sync there is padding.
        for at in [Some(self.at), self.at.checked_next_multiple_of(SYNC_ALIGNMENT)] {
            let Some(at) = at else { break };
            if let Some(head) = self.read(at)? {
                return Ok(Some((at, head)));
            }
        }
        Ok(None)
    }
}

impl Iterator for Heads<'_> {
    type Item = Result<(u64, RecordHead)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, head) = match self.next_head() {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        self.at = at.checked_add(head.record_bytes())?;
        Some(Ok((at, head)))
    }
}

/// What was read; nothing where a writer that died left a piece. Any other error is one: what cannot be
/// read now may be there all the same, and must not be given up.
fn undamaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::LimitExceeded) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// True if all data of a section are there and undamaged.
fn is_whole(segment: &dyn Object, section: &Section) -> Result<bool> {
    for block in &section.blocks {
        let mut stored = vec![0; usize::try_from(block.stored_bytes).unwrap_or(usize::MAX)];
        let read = undamaged(segment.read(block.offset, &mut stored).map_err(Error::from))?;
        let is_good =
            read.is_some() && decode_body(stored, block.codec, block.checksum, block.bytes).is_ok();
        if !is_good {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fails if the tier holds what was promised to another store, of which this one is a copy: they have one
/// identity, and the other is still where it was. Where it is not, it was moved here.
fn check_is_ours(log: &LogPlace, place: &BurstPlace) -> Result<()> {
    let Some(origin) = place.origin()?.filter(|origin| *origin != log.name()) else {
        return Ok(());
    };
    let Some(store) = origin.strip_suffix(SUFFIX) else { return Ok(()) };
    let other = Store::open_path(Path::new(store), OpenOptions::default());
    let is_there = match other.and_then(|other| other.shared.log_place()) {
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

/// Brings a segment from the burst tier to the log. Gives the bytes that came; `None` if somebody
/// still writes to it. Whatever cuts it off, calling it again brings the same.
fn drain(
    log: &LogPlace,
    name: &str,
    place: &BurstPlace,
    limits: &Limits,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<u64>> {
    let _lock = match place.storage.try_lock(&place.directory) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(None),
        // Somebody else has brought it since it was listed.
        Err(error) if error.is_not_found() => return Ok(Some(0)),
        Err(error) => return Err(error.into()),
    };
    let mut parts = Vec::new();
    for start in place.parts()? {
        parts.push((start, place.storage.open(&place.part(start)?)?));
    }
    if parts.is_empty() {
        place.remove()?;
        return Ok(Some(0));
    }
    let path = LogPlace::segment_path(name)?;
    let drained = match log.storage.open(&path) {
        Ok(object) => Some(object),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error.into()),
    };
    let committed = committed_bytes(log, name, limits)?;
    let mut writer = log.storage.create(&path, Durability::Disk, None)?;
    let mut buffer = vec![0; COPY_BYTES];
    let (mut at, mut brought) = (0, 0);
    while let Some((object, offset, bytes, is_part)) = run_at(at, committed, &drained, &parts) {
        if interrupted() {
            return Err(Error::new(ErrorKind::Interrupted, "stopped; call it again to go on"));
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX).min(COPY_BYTES);
        object.read(offset, &mut buffer[..length])?;
        writer.append(&buffer[..length])?;
        at += length as u64;
        brought += if is_part { length as u64 } else { 0 };
    }
    writer.publish(Condition::None)?;
    // Its writer may have failed to make durable that the segment is there at all.
    log.storage.sync(&LogPlace::segments()?)?;
    log.storage.sync(&ObjectPath::root())?;
    place.remove()?;
    Ok(Some(brought))
}

/// Where the bytes of a segment from `at` on are taken from: the object, the place in it, how many, and
/// whether it is a part of the burst tier.
///
/// What is committed is durable in the log, and perhaps not in the tier. Behind that the log's bytes
/// may be torn, and the tier's are those that were promised. Parts are removed, in any order that a
/// power cut leaves, once their bytes are durable in the log: where there is none, the log has them.
fn run_at<'a>(
    at: u64,
    committed: u64,
    drained: &'a Option<Box<dyn Object>>,
    parts: &'a [(u64, Box<dyn Object>)],
) -> Option<(&'a dyn Object, u64, u64, bool)> {
    let in_log = |end: u64| {
        let object = drained.as_deref()?;
        let end = end.min(object.version().size);
        (at < end).then(|| (object, at, end - at, false))
    };
    let next = parts.partition_point(|(start, _)| *start <= at);
    let in_part = || {
        let (start, object) = parts.get(next.checked_sub(1)?)?;
        let left = object.version().size.checked_sub(at - start).filter(|left| *left > 0)?;
        Some((&**object, at - start, left, true))
    };
    let end = parts.get(next).map_or(u64::MAX, |(start, _)| *start);
    in_log(committed).or_else(in_part).or_else(|| in_log(end))
}

/// The first bytes of a segment, as it lies in the log, that belong to commits.
fn committed_bytes(log: &LogPlace, name: &str, limits: &Limits) -> Result<u64> {
    let Some(SegmentName { session, .. }) = SegmentName::parse(name) else { return Ok(0) };
    let known = known_epoch(log.newest(None)?.as_deref(), &session);
    let Scan { committed, .. } = scan(log, name, known, limits)?;
    Ok(committed)
}

/// Publishes the commits that were promised, in order. Gives their number.
fn complete_promised(session: &mut Session, log: &LogPlace, orphans: &mut [Orphan]) -> Result<u64> {
    let mut promised: Vec<(Directory, CommitRecord)> = orphans
        .iter_mut()
        .flat_map(|orphan| std::mem::take(&mut orphan.directories))
        .filter(|(directory, _)| directory.is_promised)
        .collect();
    promised.sort_by_key(|(directory, _)| directory.commit);
    let mut completed = 0;
    for (directory, record) in promised {
        // Of a commit whose directory was written twice the first is as good.
        let known = known_epoch(log.newest(None)?.as_deref(), &directory.commit.session);
        if known >= directory.commit.epoch {
            continue;
        }
        check_complete(log, &directory, orphans)?;
        let commit = directory.commit;
        session.complete_of(directory, record)?;
        completed += 1;
        for orphan in orphans.iter_mut().filter(|orphan| orphan.session == commit.session) {
            orphan.sections.retain(|(of, _)| of.epoch > commit.epoch);
        }
    }
    Ok(completed)
}

/// Fails unless all sections of a promised commit are in the log: other nodes may have to bring theirs.
fn check_complete(log: &LogPlace, directory: &Directory, orphans: &[Orphan]) -> Result<()> {
    for section in &directory.sections {
        let name = directory.segments.get(section.segment as usize).map_or("", String::as_str);
        let is_there = orphans
            .iter()
            .filter(|orphan| orphan.name == name)
            .any(|orphan| orphan.sections.iter().any(|(_, place)| place.offset == section.offset));
        if !is_there {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "segment {name} of {} has not come from its burst tier: run 'bedform recover' on \
                     the node that has it, then here again",
                    log.name()
                ),
            ));
        }
    }
    Ok(())
}

/// Makes a commit of what each session left. Gives their number.
fn commit_leftover(session: &mut Session, orphans: &[Orphan]) -> Result<u64> {
    let mut by_session = BTreeMap::<[u8; 16], Vec<&Orphan>>::new();
    for orphan in orphans.iter().filter(|orphan| !orphan.sections.is_empty()) {
        by_session.entry(orphan.session).or_default().push(orphan);
    }
    let mut committed = 0;
    for (id, parts) in by_session {
        let mut directory = Directory::default();
        let mut shapes = BTreeMap::<[u8; 16], Vec<u64>>::new();
        for (number, orphan) in (0..).zip(&parts) {
            directory.segments.push(orphan.name.clone());
            for (commit, place) in &orphan.sections {
                directory.commit.epoch = directory.commit.epoch.max(commit.epoch);
                directory.sections.push(SectionPlace { segment: number, ..place.clone() });
            }
            for (key, shape) in &orphan.shapes {
                enlarge(shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
            }
        }
        directory.commit.session = id;
        directory.grown = shapes
            .into_iter()
            .map(|(key, shape)| GrownArray { key, base: vec![0; shape.len()], shape })
            .collect();
        session.commit_directory(directory)?;
        committed += 1;
    }
    Ok(committed)
}
