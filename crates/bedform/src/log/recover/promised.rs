//! Promised commits of dead writers: their list, a check of each, and their publication in order.
//!
//! A commit was promised if a promise file lists it, or if a readable directory says so. The scan
//! of a segment ends at the first damaged record; promises tell which commits lie behind that
//! record. The first damaged commit of a session stops the later ones, since they may build on it.

use std::collections::{BTreeMap, BTreeSet};

use bedform_format::Limits;
use bedform_format::checksum::crc32c;
use bedform_format::log::{
    CommitId, CommitRecord, Directory, Promise, RecordHead, RecordKind, Section, SectionPlace,
};
use bedform_format::metadata::hex;

use super::Orphan;
use super::bring::DrainedSegment;
use super::scan::{FoundDirectory, FoundSection, bad_block, damage_of, place_of, segment_shown};
use crate::error::{Error, ErrorKind, Result};
use crate::log::lanes::OpenedSegment;
use crate::log::place::LogPlace;
use crate::log::promises::SegmentPromises;
use crate::log::record::{read_record, read_sealed};

/// The evidence for one promised commit: its directory, its promise, or both.
#[derive(Default)]
pub(super) struct PromisedCommit {
    /// The directory that the scan found, and its position in the segment.
    found: Option<(Directory, CommitRecord)>,
    /// The promise, and the index of its segment among the orphans.
    promise: Option<(usize, Promise)>,
}

/// Returns the promised commits of all orphans in commit order; moves their directories out of
/// `orphans`.
pub(super) fn claims(orphans: &mut [Orphan]) -> BTreeMap<CommitId, PromisedCommit> {
    let mut claims = BTreeMap::<CommitId, PromisedCommit>::new();
    for (number, orphan) in orphans.iter_mut().enumerate() {
        for found in std::mem::take(&mut orphan.directories) {
            let FoundDirectory { directory, record, is_in_place } = found;
            // A directory of another session came with a part of another segment, or an earlier
            // recovery wrote it; the session's own segment has its copy. With promise files, a
            // directory that is out of place is located by its promise.
            let is_own = directory.commit.session == orphan.session;
            if directory.is_promised && is_own && (is_in_place || orphan.promised.is_none()) {
                // If a directory was written twice, the later copy has the final growth of the
                // arrays.
                let claim = claims.entry(directory.commit).or_default();
                claim.found = Some((directory, record));
            }
        }
        for promise in orphan.promised.iter().flat_map(|promised| &promised.promises) {
            claims.entry(promise.commit).or_default().promise = Some((number, *promise));
        }
    }
    claims
}

/// The result of [`Examiner::publish`].
#[derive(Default)]
pub(super) struct PromiseOutcome {
    /// The last epoch that became visible, by session.
    pub(super) completed: BTreeMap<[u8; 16], u32>,
    pub(super) completed_count: u64,
    pub(super) given_up: u64,
    /// One line for each session with damage.
    pub(super) damaged: Vec<String>,
    /// The sessions with damage.
    pub(super) undecided: BTreeSet<[u8; 16]>,
}

/// Damage to a record that a promised commit needs.
struct RecordDamage {
    segment: String,
    address: u64,
    /// The damaged object, and the kind of damage.
    text: String,
}

/// The result of the check of one promised commit.
enum CommitCheck {
    Whole(Directory, CommitRecord),
    Damaged(String),
    /// Its directory is in a burst tier that this recovery has not looked at.
    NotCome,
}

/// The end of a session's publication: the damage, and the number of commits that wait.
#[derive(Default)]
struct SessionStop {
    damage: Option<String>,
    count: u64,
}

/// Damage to the list of promises: it may lack commits after the epoch `after`.
struct PromiseGap {
    after: u32,
    text: String,
}

/// Checks promised commits, and publishes the intact ones.
pub(super) struct Examiner<'a> {
    pub(super) log: &'a LogPlace,
    pub(super) limits: &'a Limits,
    pub(super) orphans: &'a [Orphan],
    pub(super) brought: &'a BTreeMap<String, DrainedSegment>,
}

impl Examiner<'_> {
    /// Publishes the intact commits in order. The first commit of a session that cannot be
    /// published stops the session: it and the later ones wait, or are given up if `gives_up`.
    /// `known` returns the last epoch of a session that a root knows.
    ///
    /// # Errors
    /// `Conflict` if an undamaged commit cannot be published, unless `gives_up`; those of storage.
    pub(super) fn publish(
        &self,
        claims: BTreeMap<CommitId, PromisedCommit>,
        gives_up: bool,
        known: &dyn Fn(&[u8; 16]) -> Result<u32>,
        publish: &mut dyn FnMut(Directory, CommitRecord) -> Result<()>,
    ) -> Result<PromiseOutcome> {
        let mut outcome = PromiseOutcome::default();
        let mut stopped = BTreeMap::<[u8; 16], SessionStop>::new();
        let doubts = self.doubts(known)?;
        for (commit, claim) in claims {
            let session = commit.session;
            if known(&session)? >= commit.epoch {
                continue;
            }
            if let Some(stop) = stopped.get_mut(&session) {
                stop.count += 1;
                continue;
            }
            let doubt = doubts.get(&session).filter(|doubt| doubt.after < commit.epoch);
            let verdict = match doubt {
                Some(doubt) => Ok(CommitCheck::Damaged(doubt.text.clone())),
                None => self.examine(commit, claim),
            };
            let damage = match verdict {
                Ok(CommitCheck::Whole(directory, record)) => match publish(directory, record) {
                    Ok(()) => {
                        outcome.completed_count += 1;
                        outcome.completed.insert(session, commit.epoch);
                        continue;
                    }
                    Err(error) => given_up_or(error, gives_up)?,
                },
                Ok(CommitCheck::Damaged(text)) => Some(text),
                Ok(CommitCheck::NotCome) => None,
                Err(error) => given_up_or(error, gives_up)?,
            };
            stopped.insert(session, SessionStop { damage, count: 1 });
        }
        for (session, PromiseGap { text, .. }) in doubts {
            let nothing = SessionStop { damage: Some(text), count: 0 };
            stopped.entry(session).or_insert(nothing);
        }
        for (session, SessionStop { damage, count }) in stopped {
            outcome.given_up += if gives_up { count } else { 0 };
            if let Some(text) = damage {
                outcome.damaged.push(with_later(text, count));
                outcome.undecided.insert(session);
            }
        }
        Ok(outcome)
    }

    /// Returns, for each session with damaged promise files, the epoch after which promises may be
    /// missing.
    fn doubts(
        &self,
        known: &dyn Fn(&[u8; 16]) -> Result<u32>,
    ) -> Result<BTreeMap<[u8; 16], PromiseGap>> {
        let mut doubts = BTreeMap::<[u8; 16], PromiseGap>::new();
        for orphan in self.orphans.iter().filter(|orphan| orphan.tier.is_none()) {
            let Some(promised) = &orphan.promised else { continue };
            let known = known(&orphan.session)?;
            let Some(doubt) = self.doubt(orphan, promised, known) else { continue };
            let first =
                doubts.entry(orphan.session).or_insert(PromiseGap { after: u32::MAX, ..doubt });
            first.after = first.after.min(doubt.after);
        }
        Ok(doubts)
    }

    fn doubt(&self, orphan: &Orphan, promised: &SegmentPromises, known: u32) -> Option<PromiseGap> {
        let SegmentPromises { promises, behind_gaps, has_torn_end, is_lost } = promised;
        let said = |what: &str| {
            let session = short(&orphan.session);
            format!("what says which commits of session {session} were promised {what}")
        };
        if *is_lost {
            let place = segment_shown(self.log, &orphan.name);
            let text = said(&format!("is lost, or damaged: the files 'promises-*' of {place}"));
            return Some(PromiseGap { after: u32::MAX, text });
        }
        // A directory that the scan reached proves that no commit before it was missed.
        let is_reached = |epoch: u32| epoch <= known || orphan.epochs.contains(&epoch);
        let epoch = |at: usize| promises.get(at).map_or(0, |promise| promise.commit.epoch);
        if let Some(at) = behind_gaps.iter().find(|at| !is_reached(epoch(**at))) {
            let after = at.checked_sub(1).map_or(0, epoch);
            let text = said(&format!("is damaged before epoch {}", epoch(*at)));
            return Some(PromiseGap { after, text });
        }
        // A crash may have cut off the last promise; its directory was durable before it.
        let last = promises.last().map_or(0, |promise| promise.commit.epoch);
        let has_more = known > last || orphan.epochs.iter().any(|epoch| *epoch > last);
        if *has_torn_end && !has_more {
            let text = said(&format!("is damaged behind epoch {last}"));
            return Some(PromiseGap { after: last, text });
        }
        None
    }

    fn orphan(&self, name: &str) -> Option<&Orphan> {
        self.orphans.iter().find(|orphan| orphan.name == name)
    }

    /// Checks that all records that a commit needs are present and undamaged.
    fn examine(&self, commit: CommitId, claim: PromisedCommit) -> Result<CommitCheck> {
        let (directory, record) = match (claim.found, claim.promise) {
            (Some(found), _) => found,
            (None, None) => return Ok(CommitCheck::NotCome),
            (None, Some((number, promise))) => {
                let orphan = &self.orphans[number];
                match self.directory(orphan, &promise)? {
                    Ok(found) => found,
                    Err(_) if orphan.tier.is_some() => return Ok(CommitCheck::NotCome),
                    Err(damage) => return Ok(CommitCheck::Damaged(self.say(commit, &damage))),
                }
            }
        };
        let mut damage = self.orphan(&record.segment).and_then(Orphan::header_damage);
        for place in &directory.sections {
            if damage.is_some() {
                break;
            }
            damage = self.section(&directory, place)?;
        }
        Ok(match damage {
            Some(damage) => CommitCheck::Damaged(self.say(commit, &damage)),
            None => CommitCheck::Whole(directory, record),
        })
    }

    fn say(&self, commit: CommitId, damage: &RecordDamage) -> String {
        let brought = self.brought.get(&damage.segment);
        let part = brought.and_then(|brought| brought.part_of(damage.address));
        let part = part.map(|part| format!(" (in the burst tier: {part})")).unwrap_or_default();
        let CommitId { session, epoch } = commit;
        let session = short(&session);
        let text = &damage.text;
        format!("the commit of epoch {epoch} of session {session} was promised, and {text}{part}")
    }

    /// Reads the directory that `promise` names; the scan of its segment has not found it.
    fn directory(
        &self,
        orphan: &Orphan,
        promise: &Promise,
    ) -> Result<std::result::Result<(Directory, CommitRecord), RecordDamage>> {
        let (name, address) = (&orphan.name, promise.address);
        let damaged = |text: String| Ok(Err(RecordDamage { segment: name.clone(), address, text }));
        let segment = match self.open(name)? {
            Ok(segment) => segment,
            Err(text) => return damaged(text),
        };
        let shown = || segment_shown(self.log, name);
        let kind = RecordKind::Directory;
        let read = read_sealed(&*segment.object, address, kind, self.limits, &shown);
        let (body, codec) = match damage_of(read)? {
            Ok(read) => read,
            Err(error) => return damaged(format!("its directory at byte {address}: {error}")),
        };
        let decoded = Directory::decode(&body, self.limits).ok();
        let is_own = |directory: &Directory| directory.commit == promise.commit;
        let is_same = stored_checksum(&segment, promise)? == promise.checksum;
        let Some(directory) = decoded.filter(is_own).filter(|_| is_same) else {
            let text = format!("{} at byte {address} has not the directory of it", shown());
            return damaged(text);
        };
        let record = CommitRecord {
            number: 0,
            segment: name.clone(),
            offset: address,
            stored_bytes: promise.stored_bytes,
            bytes: body.len() as u64,
            codec,
        };
        Ok(Ok((directory, record)))
    }

    /// Returns the damage of one section of a commit, if any.
    ///
    /// # Errors
    /// `Conflict` if its segment is still in a burst tier, perhaps of another node.
    fn section(&self, directory: &Directory, place: &SectionPlace) -> Result<Option<RecordDamage>> {
        let name = directory.segments.get(place.segment as usize).map_or("", String::as_str);
        let Some(orphan) = self.orphan(name) else { return Err(self.not_come(name)) };
        let is_it = |found: &FoundSection| {
            found.place.offset == place.offset
                && is_named(directory, place, found.commit, &found.place)
        };
        let damage = match orphan.header_damage() {
            None if orphan.sections.iter().any(is_it) => return Ok(None),
            None => self.read_section(name, directory, place)?,
            header => header,
        };
        match damage {
            Some(_) if orphan.tier.is_some() => Err(self.not_come(name)),
            damage => Ok(damage),
        }
    }

    fn not_come(&self, name: &str) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!(
                "segment {name} of {} has not come from its burst tier: run 'bedform recover' on \
                 the node that has it, then here again",
                self.log.name()
            ),
        )
    }

    /// Reads a section that the scan of its segment has not found; returns its damage, if any.
    fn read_section(
        &self,
        name: &str,
        directory: &Directory,
        place: &SectionPlace,
    ) -> Result<Option<RecordDamage>> {
        let damaged = |address: u64, text: String| {
            Ok(Some(RecordDamage { segment: name.to_owned(), address, text }))
        };
        let address = place.offset;
        let segment = match self.open(name)? {
            Ok(segment) => segment,
            Err(text) => return damaged(address, text),
        };
        let shown = || segment_shown(self.log, name);
        let kind = RecordKind::Section;
        let read = read_record(&*segment.object, address, kind, self.limits, &shown);
        let body = match damage_of(read)? {
            Ok(body) => body,
            Err(error) => {
                return damaged(address, format!("its data at byte {address}: {error}"));
            }
        };
        let section = Section::decode(&body, self.limits).ok();
        let section = section.filter(|section| {
            let found = place_of(section, address, place.stored_bytes, body.len() as u64);
            found.is_ok_and(|found| is_named(directory, place, section.commit, &found))
        });
        let Some(section) = section else {
            let text = format!("{} at byte {address} has not the data of it", shown());
            return damaged(address, text);
        };
        match bad_block(&*segment.object, &section, &shown)? {
            Some((at, problem)) => {
                damaged(at, format!("{} at byte {at} is damaged: {problem}", shown()))
            }
            None => Ok(None),
        }
    }

    fn open(&self, name: &str) -> Result<std::result::Result<OpenedSegment, String>> {
        match OpenedSegment::open(self.log, name) {
            Ok(segment) => Ok(Ok(segment)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Err(format!("{} is not there", segment_shown(self.log, name))))
            }
            Err(error) => Err(error),
        }
    }
}

impl Orphan {
    fn header_damage(&self) -> Option<RecordDamage> {
        let text = self.header.clone()?;
        Some(RecordDamage { segment: self.name.clone(), address: 0, text })
    }
}

/// Returns the CRC-32C of the stored body of a promised directory; its record must be readable.
fn stored_checksum(segment: &OpenedSegment, promise: &Promise) -> Result<u32> {
    let mut head = [0; RecordHead::BYTES];
    segment.object.read(promise.address, &mut head)?;
    let Ok(head) = RecordHead::decode(&head) else { return Ok(!promise.checksum) };
    let mut body = vec![0; usize::try_from(head.body_bytes).unwrap_or(usize::MAX)];
    segment.object.read(promise.address + RecordHead::BYTES as u64, &mut body)?;
    Ok(crc32c(&body))
}

/// True if the section of `commit` at `found` is the one that `directory` names at `place`. The
/// section may have been written for an earlier epoch of the session.
fn is_named(
    directory: &Directory,
    place: &SectionPlace,
    commit: CommitId,
    found: &SectionPlace,
) -> bool {
    let SectionPlace { segment: _, offset, stored_bytes, bytes, rank_first, arrays } = found;
    commit.session == directory.commit.session
        && commit.epoch <= directory.commit.epoch
        && (*offset, *stored_bytes, *bytes, *rank_first)
            == (place.offset, place.stored_bytes, place.bytes, place.rank_first)
        && *arrays == place.arrays
}

/// Returns `None` for a `Conflict` if `gives_up`; else returns the error, and names `--discard`.
fn given_up_or(error: Error, gives_up: bool) -> Result<Option<String>> {
    match error.kind() {
        ErrorKind::Conflict if gives_up => Ok(None),
        ErrorKind::Conflict => Err(Error::new(
            ErrorKind::Conflict,
            format!("a promise cannot be kept, unless --discard gives it up: {error}"),
        )),
        _ => Err(error),
    }
}

fn with_later(text: String, count: u64) -> String {
    match count.saturating_sub(1) {
        0 => text,
        1 => format!("{text}; 1 later commit of its session waits"),
        later => format!("{text}; {later} later commits of its session wait"),
    }
}

/// Returns the first eight hexadecimal digits of a session's identity, for messages.
fn short(session: &[u8; 16]) -> String {
    hex(session)[..8].to_owned()
}
