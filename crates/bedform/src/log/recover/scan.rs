//! The scan of a segment for records that no root knows.
//!
//! A scan reads each lane record by record, up to the first record that is damaged. It collects the
//! sections and directories of commits after the last epoch that a root knows. It also finds the
//! byte up to which the segment is sound.

use crate::log::opened::OpenedStore;
use bedform_format::Limits;
use bedform_format::log::{
    CommitId, CommitRecord, Directory, Lane, LogError, RecordHead, RecordKind, Root, Section,
    SectionArray, SectionPlace, SegmentName,
};
use bedform_storage::{Object, SYNC_ALIGNMENT};

use crate::error::{Error, ErrorKind, Result};
use crate::log::lanes::OpenedSegment;
use crate::log::place::LogPlace;
use crate::log::record::{check_header, decode_body, read_record, read_sealed};

/// The result of [`scan`].
#[derive(Default)]
pub(super) struct Scan {
    pub(super) sections: Vec<FoundSection>,
    pub(super) directories: Vec<FoundDirectory>,
    /// End of the last record that belongs to a commit known to a root, in bytes of the segment.
    pub(super) committed: u64,
    /// End of the last record up to which all bytes are undamaged; only for a segment of one lane.
    pub(super) sound: u64,
    /// True if a directory in the segment promises a commit, even one that a root knows.
    pub(super) has_promises: bool,
    /// Epochs of the promised commits before the first gap or damaged record.
    pub(super) epochs: Vec<u32>,
    /// The damage of the segment's header, if any; readers need the header.
    pub(super) header: Option<String>,
}

/// A section that no root knows of.
pub(super) struct FoundSection {
    pub(super) commit: CommitId,
    pub(super) place: SectionPlace,
    /// The arrays, with their shapes when the section was written.
    pub(super) arrays: Vec<SectionArray>,
}

/// A directory that no root knows of.
pub(super) struct FoundDirectory {
    pub(super) directory: Directory,
    pub(super) record: CommitRecord,
    /// True if the directory is of the segment's own session, and no record before it is damaged or
    /// foreign.
    pub(super) is_in_place: bool,
}

/// Returns the last epoch of `session` that `root` knows to be committed; 0 for none.
pub(super) fn known_epoch(root: Option<&Root>, session: &[u8; 16]) -> u32 {
    root.and_then(|root| root.sessions.get(session).copied()).unwrap_or(0)
}

/// Returns [`known_epoch`] of the newest root.
///
/// # Errors
/// Of storage.
pub(super) fn known_epoch_now(
    store: &OpenedStore,
    log: &LogPlace,
    session: &[u8; 16],
) -> Result<u32> {
    let (newest, _) = store.newest_root(log)?;
    Ok(known_epoch(newest.as_deref(), session))
}

/// True if the segment of a dead writer has sections that `root` does not know, or promises.
/// Promises count even if a root knows their commits. A burst tier may still hold them, and the
/// next recovery has to find that they were kept.
///
/// # Errors
/// Of storage.
pub(in crate::log) fn has_leftover(
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

/// True if the segment has a section or a directory behind the records of commits, which end at the
/// addresses `ends`. Costs a small read for each record behind them.
///
/// # Errors
/// Of storage.
pub(in crate::log) fn has_more(log: &LogPlace, name: &str, ends: &[u64]) -> Result<bool> {
    let segment = match OpenedSegment::open(log, name) {
        Ok(segment) => segment,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for lane in segment.lanes.all() {
        let Some(start) = lane.address(0) else { continue };
        let end = start.saturating_add(lane.bytes_max());
        let own = ends.iter().copied().filter(|at| (start..end).contains(at));
        let mut heads = Heads { segment: &*segment.object, at: own.max().unwrap_or(start) };
        let is_more = |kind| matches!(kind, RecordKind::Section | RecordKind::Directory);
        if heads.any(|head| head.is_ok_and(|(_, head)| is_more(head.kind))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Scans segment `name` for records of commits after epoch `known`.
pub(super) fn scan(log: &LogPlace, name: &str, known: u32, limits: &Limits) -> Result<Scan> {
    let mut scan = Scan::default();
    let segment = match OpenedSegment::open(log, name) {
        Ok(segment) => segment,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(scan),
        Err(error) => return Err(error),
    };
    let shown = || segment_shown(log, name);
    let header = damage_of(check_header(&segment, 0, &log.store, name, &shown))?;
    scan.header = header.err().map(|error| error.to_string());
    let session = SegmentName::parse(name).map(|name| name.session);
    let mut scanner = Scanner { log, name, session, segment: &*segment.object, known, limits };
    // The first lane comes last: it has the sections that the node's leader made, which follow the
    // sections that members wrote to their own lanes.
    let mut lanes: Vec<Lane> = segment.lanes.all().collect();
    lanes.rotate_left(1);
    for lane in lanes {
        scanner.scan(lane, &mut scan)?;
    }
    scan.sections.sort_by_key(|section| section.commit);
    Ok(scan)
}

/// The state of one scan.
struct Scanner<'a> {
    log: &'a LogPlace,
    name: &'a str,
    session: Option<[u8; 16]>,
    segment: &'a dyn Object,
    known: u32,
    limits: &'a Limits,
}

impl Scanner<'_> {
    fn shown(&self) -> String {
        segment_shown(self.log, self.name)
    }

    /// Scans one lane, and adds its records to `scan`.
    fn scan(&mut self, lane: Lane, scan: &mut Scan) -> Result<()> {
        let mut is_sound = scan.header.is_none();
        // Whether no record was skipped so far, and the end of the last record.
        let (mut is_gapless, mut end) = (true, lane.address(0).unwrap_or(u64::MAX));
        for (next, number) in Heads::new(self.segment, lane).zip(0..) {
            let (offset, head) = next?;
            // A part in the place of another one has records with other sequence numbers.
            is_gapless = is_gapless && head.sequence == number && self.is_padding(end, offset)?;
            is_sound &= is_gapless;
            end = offset.saturating_add(head.record_bytes());
            let sections = scan.sections.len();
            let is_known = match head.kind {
                RecordKind::Section => self.section(offset, head, scan)?,
                RecordKind::Directory => self.directory(offset, head, &mut is_gapless, scan)?,
                RecordKind::Header | RecordKind::Data => Some(false),
            };
            match is_known {
                Some(true) if is_gapless => scan.committed = end,
                Some(true) => {}
                Some(false) => {
                    // A section that was not added has damaged blocks.
                    is_sound &= head.kind != RecordKind::Section || scan.sections.len() > sections;
                    if is_sound && head.kind != RecordKind::Data {
                        scan.sound = end;
                    }
                }
                None => break,
            }
        }
        Ok(())
    }

    /// True if only zeros lie between the end of a record and the next record.
    fn is_padding(&self, end: u64, next: u64) -> Result<bool> {
        let length = usize::try_from(next.saturating_sub(end)).unwrap_or(usize::MAX);
        let mut between = vec![0; length];
        self.segment.read(end, &mut between)?;
        Ok(between.iter().all(|byte| *byte == 0))
    }

    /// Adds a section. Returns true if a root knows its commit, and `None` if the record is
    /// damaged.
    fn section(&self, offset: u64, head: RecordHead, scan: &mut Scan) -> Result<Option<bool>> {
        let shown = || self.shown();
        let read = read_record(self.segment, offset, head.kind, self.limits, &shown);
        let Some(body) = undamaged(read)? else { return Ok(None) };
        let Ok(section) = Section::decode(&body, self.limits) else { return Ok(None) };
        // A section of another session came with a part of another segment.
        if self.session.is_some_and(|session| session != section.commit.session) {
            return Ok(None);
        }
        if section.commit.epoch <= self.known {
            return Ok(Some(true));
        }
        if bad_block(self.segment, &section, &shown)?.is_some() {
            return Ok(Some(false));
        }
        let place = place_of(&section, offset, head.record_bytes(), body.len() as u64);
        let place = place.map_err(|error| Error::corrupt(shown(), error))?;
        let Section { commit, arrays, .. } = section;
        scan.sections.push(FoundSection { commit, place, arrays });
        Ok(Some(false))
    }

    /// Adds a directory; returns as [`Scanner::section`]. One of another session clears
    /// `is_gapless`.
    fn directory(
        &self,
        offset: u64,
        head: RecordHead,
        is_gapless: &mut bool,
        scan: &mut Scan,
    ) -> Result<Option<bool>> {
        let read = read_sealed(self.segment, offset, head.kind, self.limits, &|| self.shown());
        let Some((body, codec)) = undamaged(read)? else { return Ok(None) };
        let Ok(directory) = Directory::decode(&body, self.limits) else { return Ok(None) };
        // A directory of another session was written by a recovery, or is out of place.
        *is_gapless &= self.session == Some(directory.commit.session);
        scan.has_promises |= directory.is_promised;
        if directory.is_promised && *is_gapless {
            scan.epochs.push(directory.commit.epoch);
        }
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
        scan.directories.push(FoundDirectory { directory, record, is_in_place: *is_gapless });
        Ok(Some(false))
    }
}

/// Iterator over the record heads of a lane, with their addresses. It ends at the first damaged
/// head: after a crash no record behind that one was durable.
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
        // After a sync, padding fills the lane up to the next multiple of `SYNC_ALIGNMENT` bytes.
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

/// Returns the name of a segment for messages.
pub(super) fn segment_shown(log: &LogPlace, name: &str) -> String {
    format!("{}/segments/{name}", log.name())
}

/// Returns the entry of a directory for a section at `offset`.
pub(super) fn place_of(
    section: &Section,
    offset: u64,
    stored_bytes: u64,
    bytes: u64,
) -> std::result::Result<SectionPlace, LogError> {
    let rank_first = section.entries.iter().map(|entry| entry.rank).min().unwrap_or(0);
    let arrays = section.touched()?;
    Ok(SectionPlace { segment: 0, offset, stored_bytes, bytes, rank_first, arrays })
}

/// Returns the value that was read; `None` for damage, such as a record that a crash cut off.
fn undamaged<T>(read: Result<T>) -> Result<Option<T>> {
    damage_of(read).map(std::result::Result::ok)
}

/// Returns damage as the inner error, and any other error as the outer one. Bytes that cannot be
/// read now may still be intact, and must not be given up.
pub(super) fn damage_of<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if !is_damage(&error) => Err(error),
        read => Ok(read),
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::LimitExceeded) && !error.is_of_memory()
}

/// Returns the address of the first missing or damaged block of a section, and its damage; `None`
/// if all blocks are whole.
pub(super) fn bad_block(
    segment: &dyn Object,
    section: &Section,
    shown: &dyn Fn() -> String,
) -> Result<Option<(u64, String)>> {
    for block in &section.blocks {
        let mut stored = vec![0; usize::try_from(block.stored_bytes).unwrap_or(usize::MAX)];
        let read = segment.read(block.offset, &mut stored).map_err(Error::from);
        let problem = match damage_of(read)? {
            Ok(()) => decode_body(stored, block.codec, block.checksum, block.bytes)
                .err()
                .map(|error| error.damage_at(format!("{} at byte {}", shown(), block.offset)))
                .transpose()?,
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            return Ok(Some((block.offset, problem)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_was_too_short_to_look_at_is_not_given_up_as_damaged() {
        let limit = Error::new(ErrorKind::LimitExceeded, "a record is over the limit");
        for damage in [Error::corrupt("segments/a", "cut off"), limit] {
            assert!(damage_of::<()>(Err(damage)).is_ok());
        }
        assert!(damage_of::<()>(Err(Error::no_memory("no memory"))).is_err());
    }
}
