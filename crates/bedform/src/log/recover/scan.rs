//! What a segment has that no root knows of.

use crate::log::opened::OpenedStore;
use bedform_format::Limits;
use bedform_format::log::{
    CommitId, CommitRecord, Directory, Lane, RecordHead, RecordKind, Root, Section, SectionArray,
    SectionPlace, SegmentName,
};
use bedform_storage::{Object, SYNC_ALIGNMENT};

use crate::error::{Error, ErrorKind, Result};
use crate::log::lanes::OpenedSegment;
use crate::log::place::LogPlace;
use crate::log::record::{decode_body, read_record, read_sealed};

/// The result of [`scan`].
#[derive(Default)]
pub(super) struct Scan {
    pub(super) sections: Vec<FoundSection>,
    pub(super) directories: Vec<(Directory, CommitRecord)>,
    /// Where the last record of earlier commits ends.
    pub(super) committed: u64,
    /// True if commits were promised here, kept or not.
    pub(super) has_promises: bool,
}

/// A section that no root knows of.
pub(super) struct FoundSection {
    pub(super) commit: CommitId,
    pub(super) place: SectionPlace,
    /// The arrays as they were when it was written.
    pub(super) arrays: Vec<SectionArray>,
}

/// The last epoch of a session that a root knows to be committed; 0 for none.
pub(super) fn known_epoch(root: Option<&Root>, session: &[u8; 16]) -> u32 {
    root.and_then(|root| root.sessions.get(session).copied()).unwrap_or(0)
}

/// As [`known_epoch`], of the newest root.
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

/// True if the segment of a writer that died has what `root` does not know of; or promises, which may
/// still lie in a burst tier: who brings them again has to find that they were kept.
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

/// What the segment has of commits after epoch `known`.
pub(super) fn scan(log: &LogPlace, name: &str, known: u32, limits: &Limits) -> Result<Scan> {
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
    scan.sections.sort_by_key(|section| section.commit);
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
        let Section { commit, arrays, .. } = section;
        scan.sections.push(FoundSection { commit, place, arrays });
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
