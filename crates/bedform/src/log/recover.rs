//! What writers that died left behind: brought from the burst tier, kept where it was promised, found
//! where it was not.
//!
//! Nothing here is needed for what was committed: that is in the log, and readers see it. A commit
//! that was promised by a burst tier becomes visible; writes that no commit had are found, and stay
//! until somebody says what is to become of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bedform_format::ObjectPath;
use bedform_format::log::{
    CommitId, CommitRecord, Directory, GrownArray, RecordHead, RecordKind, Section, SectionPlace,
};
use bedform_format::metadata::hex;
use bedform_storage::{Condition, Durability, Lock, Object, SYNC_ALIGNMENT};

use super::burst::{Burst, BurstPlace};
use super::commit::enlarge;
use super::place::LogPlace;
use super::segment::{decode_body, read_record};
use super::session::{Session, SessionOptions};
use crate::comm::Alone;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

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
}

/// Writes of one rank of a session that no commit has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Identity of the session, in hexadecimal digits.
    pub session: String,
    /// The rank.
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
    rank: u32,
    sections: Vec<(CommitId, SectionPlace)>,
    directories: Vec<(Directory, CommitRecord)>,
    /// Nobody begins to write here, or removes it, meanwhile.
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Finds what writers that died left behind, and brings about what they had promised. Writers that
    /// live are not touched. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `Conflict` where a promise cannot be kept because an array was deleted; those of
    /// storage.
    pub fn recover(
        &self,
        burst: Option<&Burst>,
        leftover: Leftover,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Recovered> {
        self.shared.check_writable()?;
        let log = self.shared.log_place()?;
        let mut recovered = Recovered::default();
        if let Some(burst) = burst {
            for (name, place) in BurstPlace::all(burst, &log)? {
                match drain(&log, &name, &place, interrupted)? {
                    Some(bytes) => recovered.drained_bytes += bytes,
                    None => recovered.live += 1,
                }
            }
        }
        let mut orphans = self.orphans(&log, &mut recovered, interrupted)?;
        let mut session = self.session(Box::new(Alone), SessionOptions::default())?;
        recovered.completed = complete_promised(&mut session, &log, &mut orphans)?;
        recovered.found = self.describe(&orphans)?;
        if leftover == Leftover::Commit {
            recovered.committed = commit_leftover(&mut session, &orphans)?;
        }
        for orphan in &orphans {
            if leftover != Leftover::Keep || orphan.sections.is_empty() {
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
        for (name, session, rank) in log.segments()? {
            if interrupted() {
                return Err(Error::new(ErrorKind::Interrupted, "stopped; call it again to go on"));
            }
            let directory = LogPlace::segment_directory(&name)?;
            let Some(lock) = log.storage.try_lock(&directory)? else {
                recovered.live += 1;
                continue;
            };
            if log.is_closed(&name)? {
                continue;
            }
            // Read after the lock was taken: its writer has published whatever it has.
            let newest = log.newest(None)?;
            let known = newest.and_then(|root| root.sessions.get(&session).copied()).unwrap_or(0);
            let scan = self.scan(log, &name, known)?;
            let Scan { sections, directories } = scan;
            orphans.push(Orphan { name, session, rank, sections, directories, _lock: lock });
        }
        Ok(orphans)
    }

    /// What the segment has of commits after epoch `known`.
    fn scan(&self, log: &LogPlace, name: &str, known: u32) -> Result<Scan> {
        let limits = &self.options().limits;
        let mut scan = Scan::default();
        let segment = match log.storage.open(&LogPlace::segment_path(name)?) {
            Ok(segment) => segment,
            Err(error) if error.is_not_found() => return Ok(scan),
            Err(error) => return Err(error.into()),
        };
        let shown = || format!("{}/segments/{name}", log.name());
        for (offset, head) in Heads::new(&*segment) {
            let place = |body: &[u8]| (head.record_bytes(), body.len() as u64);
            match head.kind {
                RecordKind::Section => {
                    let read = read_record(&*segment, offset, head.kind, limits, &shown);
                    let Ok(body) = read else { break };
                    let Ok(section) = Section::decode(&body, limits) else { break };
                    if section.commit.epoch <= known || !is_whole(&*segment, &section) {
                        continue;
                    }
                    let (stored_bytes, bytes) = place(&body);
                    let arrays = section.touched().map_err(|e| Error::corrupt(shown(), e))?;
                    let rank_first = section.entries.first().map_or(0, |entry| entry.rank);
                    let place = SectionPlace {
                        segment: 0,
                        offset,
                        stored_bytes,
                        bytes,
                        rank_first,
                        arrays,
                    };
                    scan.shapes_of(&section);
                    scan.sections.push((section.commit, place));
                }
                RecordKind::Directory => {
                    let read = read_record(&*segment, offset, head.kind, limits, &shown);
                    let Ok(body) = read else { break };
                    let Ok(directory) = Directory::decode(&body, limits) else { break };
                    if directory.commit.epoch <= known {
                        continue;
                    }
                    let (stored_bytes, bytes) = place(&body);
                    let record = CommitRecord {
                        number: 0,
                        segment: name.to_owned(),
                        offset,
                        stored_bytes,
                        bytes,
                        codec: bedform_format::log::SealedCodec::Zstd,
                    };
                    scan.directories.push((directory, record));
                }
                RecordKind::Header | RecordKind::Data => {}
            }
        }
        Ok(scan)
    }

    fn describe(&self, orphans: &[Orphan]) -> Result<Vec<Found>> {
        let by_key = self.shared.shapes_by_key()?;
        let name = |key: &[u8; 16]| by_key.get(key).map(|(path, _)| path.to_string());
        let with_writes = orphans.iter().filter(|orphan| !orphan.sections.is_empty());
        Ok(with_writes
            .map(|orphan| {
                let touched = || orphan.sections.iter().flat_map(|(_, place)| &place.arrays);
                let arrays: BTreeSet<_> = touched().filter_map(|part| name(&part.key)).collect();
                Found {
                    session: hex(&orphan.session),
                    rank: orphan.rank,
                    writes: touched().map(|part| part.entries).sum(),
                    bytes: touched().map(|part| part.bytes).sum(),
                    arrays: arrays.into_iter().collect(),
                }
            })
            .collect())
    }
}
