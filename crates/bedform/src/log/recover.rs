//! Recovery of the data that dead writers left behind.
//!
//! Recovery never touches committed data: they are in the log, and readers see them. It has three
//! steps:
//!
//! - Segments of dead writers are copied from the burst tier to the log.
//! - Promised commits become visible, in order. The first damaged one stops the later ones of its
//!   session.
//! - Uncommitted writes are listed. They stay until the caller commits or discards them
//!   ([`LeftoverPolicy`]).

mod bring;
mod promised;
mod scan;

use crate::log::opened::OpenedStore;
use crate::threads::workers::check_cancelled;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::{
    CommitId, Directory, GrownArray, SectionArray, SectionPlace, SegmentName,
};
use bedform_format::metadata::hex;
use bedform_storage::Lock;
use serde_json::{Value, json};

use self::bring::{DrainedSegment, check_is_ours, drain, remove};
use self::promised::{Examiner, PromiseOutcome, PromisedCommit, claims};
use self::scan::{FoundDirectory, FoundSection, Scan, known_epoch_now, scan};
pub(super) use self::scan::{has_leftover, has_more};
use super::burst::{Burst, BurstPlace};
use super::coordinator::{AppendedAxes, PreparedCommit};
use super::place::LogPlace;
use super::promises::SegmentPromises;
use super::session::{Session, SessionOptions};
use super::shapes::enlarge;
use crate::comm::Alone;
use crate::error::{Error, ErrorKind, Result};

/// The treatment of uncommitted writes in a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeftoverPolicy {
    /// The writes stay, and the next recovery lists them again.
    #[default]
    Keep,
    /// The writes become visible: one commit for each session that left some.
    Commit,
    /// The writes are removed by the next settling or garbage collection.
    Discard,
}

impl FromStr for LeftoverPolicy {
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

/// The findings and changes of one call of [`Store::recover`](crate::Store::recover).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Bytes copied from the burst tier.
    pub drained_bytes: u64,
    /// Promised commits that this call made visible.
    pub completed: u64,
    /// Segments with a live writer.
    pub live: u64,
    /// Uncommitted writes, by session and rank.
    pub found: Vec<UncommittedWrites>,
    /// Commits that this call made of uncommitted writes.
    pub committed: u64,
    /// Promised commits that were given up, later ones of their sessions included.
    pub given_up: u64,
    /// One line for each session with damaged promises: the first damaged commit, and the place of
    /// the damage. Earlier commits are visible. The damaged commit and the later ones wait. New
    /// writers of the store get `Conflict` until the commits are given up or the damaged bytes are
    /// restored.
    pub damaged: Vec<String>,
    /// Burst tiers, with their nodes, through which dead writers may have promised commits that
    /// have not reached the log. This call did not look at the tier, or the tier has nothing of
    /// such a writer any more.
    pub tiers: Vec<String>,
}

impl Recovered {
    /// Returns a JSON object with the names of the fields, for the Python and C interfaces.
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
            "given_up": self.given_up,
            "damaged": self.damaged,
            "tiers": self.tiers,
        })
    }
}

/// Uncommitted writes of one rank of a session, or of several ranks that their node merged into one
/// section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncommittedWrites {
    /// Identity of the session, in hexadecimal digits.
    pub session: String,
    /// The rank; the lowest one if there are several.
    pub rank: u32,
    /// Number of readable writes.
    pub writes: u64,
    /// Bytes of these writes.
    pub bytes: u64,
    /// Names of the arrays written to, without arrays that no longer exist.
    pub arrays: Vec<String>,
}

/// A segment whose writer is dead, with the records in it that no root knows.
struct Orphan {
    name: String,
    session: [u8; 16],
    sections: Vec<FoundSection>,
    directories: Vec<FoundDirectory>,
    /// Epochs of the commits that directories promise before the first gap or damaged record,
    /// commits known to a root included.
    epochs: Vec<u32>,
    /// The damage of the segment's header, if any.
    header: Option<String>,
    /// Contents of the promise files beside the segment in the log; `None` without such files.
    promised: Option<SegmentPromises>,
    /// The burst tier that may have more of the segment; `None` if this call looked at it.
    tier: Option<String>,
    /// Keeps other processes from writing to the segment or removing it.
    _lock: Option<Box<dyn Lock>>,
}

/// Names of segments that stay in the burst tier, with their places there.
type UndrainedSegments = Vec<(String, BurstPlace)>;

impl OpenedStore {
    /// Makes the promised commits of dead writers visible, and treats their uncommitted writes as
    /// `leftover` says. Segments with a live writer are not touched. An interrupted call can be
    /// repeated.
    ///
    /// # Errors
    /// - `ReadOnly`; those of storage.
    /// - `Conflict` if the burst tier holds promises made to another store, of which this one is a
    ///   copy.
    /// - `Conflict` if an undamaged promise cannot be kept, unless `leftover` is
    ///   [`LeftoverPolicy::Discard`]. For example an array was deleted or made larger by others.
    /// - `Conflict` if uncommitted writes cannot be committed any more: another session has
    ///   appended along the same axis, or an array was deleted.
    pub(crate) fn recover(
        self: &Arc<Self>,
        burst: Option<&Burst>,
        leftover: LeftoverPolicy,
    ) -> Result<Recovered> {
        self.check_writable()?;
        let log = self.log_place()?;
        {
            let _lock = self.lock(&ObjectPath::root())?;
            self.remove_stale_roots(&log)?;
            match self.newest_root(&log)? {
                (Some(newest), state) => log.check_age(&newest, state)?,
                // Without a root, the segments of commits would look like uncommitted writes.
                (None, state) => log.check_log_present(state)?,
            }
        }
        let mut recovered = Recovered::default();
        let (brought, kept) = self.bring(burst, &log, &mut recovered)?;
        self.forget_segments();
        let mut orphans = self.orphans(&log, &mut recovered)?;
        for orphan in &mut orphans {
            let tier = log.tier_of(&orphan.name)?.filter(|tier| !tier.is_empty());
            orphan.tier = tier.filter(|_| !brought.contains_key(&orphan.name));
        }
        let tiers: BTreeSet<_> = orphans.iter().filter_map(|orphan| orphan.tier.clone()).collect();
        recovered.tiers = tiers.into_iter().collect();
        let mut session = self.session(Box::new(Alone), SessionOptions::default())?;
        let gives_up = leftover == LeftoverPolicy::Discard;
        let undecided = complete_promised(
            &mut session,
            &log,
            &mut orphans,
            &brought,
            gives_up,
            &mut recovered,
        )?;
        recovered.found = self.describe(&orphans)?;
        // The burst tier may hold earlier writes of the session, which a later call brings.
        let mut waiting: BTreeSet<[u8; 16]> = orphans
            .iter()
            .filter(|orphan| orphan.tier.is_some())
            .map(|orphan| orphan.session)
            .collect();
        waiting.extend(&undecided);
        if leftover == LeftoverPolicy::Commit {
            recovered.committed = commit_leftover(&mut session, &orphans, &waiting)?;
        }
        for orphan in &orphans {
            let is_decided = match leftover {
                LeftoverPolicy::Discard => true,
                _ if waiting.contains(&orphan.session) => false,
                LeftoverPolicy::Commit => true,
                LeftoverPolicy::Keep => orphan.sections.is_empty(),
            };
            if is_decided {
                log.mark_closed(&orphan.name)?;
            } else if undecided.contains(&orphan.session) && log.tier_of(&orphan.name)?.is_none() {
                // An empty note makes new writers fail with `Conflict` until the damage is decided.
                log.note_tier(&orphan.name, "")?;
            }
        }
        let waits = |name: &str| {
            let waiting = |orphan: &&Orphan| undecided.contains(&orphan.session);
            !gives_up && orphans.iter().filter(waiting).any(|orphan| orphan.name == name)
        };
        for (name, place) in kept.iter().filter(|(name, _)| !waits(name)) {
            remove(&log, name, place)?;
        }
        let brought = |orphan: &Orphan| burst.is_some() && orphan.tier.is_none();
        for name in log.noted_names()?.into_iter().filter(|name| !waits(name)) {
            let is_brought = orphans.iter().any(|orphan| orphan.name == name && brought(orphan));
            // Nothing more comes from the segment's tier: new sessions may begin.
            if is_brought || log.is_closed(&name)? {
                log.forget_tier(&name)?;
            }
        }
        Ok(recovered)
    }

    /// Copies the segments in the burst tier to the log. Returns the result for each segment name,
    /// and the segments that stay in the tier until their damage is decided.
    fn bring(
        &self,
        burst: Option<&Burst>,
        log: &LogPlace,
        recovered: &mut Recovered,
    ) -> Result<(BTreeMap<String, DrainedSegment>, UndrainedSegments)> {
        let (mut brought, mut kept) = (BTreeMap::new(), Vec::new());
        let Some(burst) = burst else { return Ok((brought, kept)) };
        let places = BurstPlace::all(burst, log)?;
        places.iter().try_for_each(|(_, place)| check_is_ours(log, place))?;
        for (name, place) in places {
            let came = drain(self, log, &name, &place)?;
            recovered.live += u64::from(came.is_none());
            let came = came.unwrap_or_default();
            recovered.drained_bytes += came.bytes;
            if !came.is_all {
                kept.push((name.clone(), place));
            }
            brought.insert(name, came);
        }
        Ok((brought, kept))
    }

    /// Returns one line for each session whose promised commits are damaged and wait for a
    /// decision.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn damaged_promises(&self, log: &LogPlace) -> Result<Vec<String>> {
        let mut orphans = Vec::new();
        let names = match log.noted_names() {
            Err(error) if error.is_of_list() => return Ok(Vec::new()),
            names => names?,
        };
        for name in names {
            if let Some(SegmentName { session, .. }) = SegmentName::parse(&name)
                && !log.is_closed(&name)?
            {
                let mut orphan = self.orphan(log, name, session, None)?;
                let tier = log.tier_of(&orphan.name)?.filter(|tier| !tier.is_empty());
                orphan.tier = tier.filter(|_| orphan.promised.is_none());
                orphans.push(orphan);
            }
        }
        // A segment has promise files in the log only if it was brought from a tier.
        let brought = orphans.iter().filter(|orphan| orphan.promised.is_some());
        let brought: BTreeSet<_> = brought.map(|orphan| orphan.session).collect();
        let mut claims = claims(&mut orphans);
        claims.retain(|commit, _| brought.contains(&commit.session));
        // A dry run: `publish` does nothing, and a segment that is still in its tier is no damage.
        let known = |session: &[u8; 16]| known_epoch_now(self, log, session);
        let all = BTreeMap::new();
        let limits = &self.options.limits;
        let examiner = Examiner { log, limits, orphans: &orphans, brought: &all };
        Ok(examiner.publish(claims, true, &known, &mut |_, _| Ok(()))?.damaged)
    }

    /// Scans segment `name` for records that no root knows.
    fn orphan(
        &self,
        log: &LogPlace,
        name: String,
        session: [u8; 16],
        lock: Option<Box<dyn Lock>>,
    ) -> Result<Orphan> {
        let limits = &self.options.limits;
        // Read after the lock was taken: by then the writer has published its last commit.
        let known = known_epoch_now(self, log, &session)?;
        let found = scan(log, &name, known, limits)?;
        let Scan { sections, directories, epochs, header, .. } = found;
        let directory = LogPlace::segment_directory(&name)?;
        let segment = (&log.store, name.as_str());
        let promised = SegmentPromises::read(&*log.storage, &directory, segment, limits)?;
        Ok(Orphan {
            name,
            session,
            sections,
            directories,
            epochs,
            header,
            promised,
            tier: None,
            _lock: lock,
        })
    }

    /// Returns the segments of dead writers that were not closed; counts the segments with a live
    /// writer.
    fn orphans(self: &Arc<Self>, log: &LogPlace, recovered: &mut Recovered) -> Result<Vec<Orphan>> {
        let mut orphans = Vec::new();
        for name in log.segment_names()? {
            let Some(SegmentName { session, .. }) = SegmentName::parse(&name) else { continue };
            check_cancelled("stopped; call it again to go on")?;
            let directory = LogPlace::segment_directory(&name)?;
            let lock = match log.storage.try_lock_of_dead(&directory) {
                Ok(Some(lock)) => lock,
                Ok(None) => {
                    recovered.live += 1;
                    continue;
                }
                // After it was listed, its writer ended, and other processes settled and removed
                // it.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            if log.is_closed(&name)? {
                continue;
            }
            orphans.push(self.orphan(log, name, session, Some(lock))?);
        }
        Ok(orphans)
    }

    fn describe(self: &Arc<Self>, orphans: &[Orphan]) -> Result<Vec<UncommittedWrites>> {
        let by_key = self.shapes_by_key()?;
        let name = |key: &[u8; 16]| by_key.get(key).map(|(path, _)| path.to_string());
        let mut by_rank = BTreeMap::<([u8; 16], u32), Vec<&SectionPlace>>::new();
        for orphan in orphans {
            for FoundSection { place, .. } in &orphan.sections {
                by_rank.entry((orphan.session, place.rank_first)).or_default().push(place);
            }
        }
        Ok(by_rank
            .into_iter()
            .map(|((session, rank), places)| {
                let touched = || places.iter().flat_map(|place| &place.arrays);
                let arrays: BTreeSet<_> = touched().filter_map(|part| name(&part.key)).collect();
                UncommittedWrites {
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

/// Publishes the promised commits in order, and counts them in `recovered`. The first commit that
/// cannot be published stops its session: it and the later ones wait, or are given up if
/// `gives_up`. Returns the sessions with damaged promises.
fn complete_promised(
    session: &mut Session,
    log: &LogPlace,
    orphans: &mut [Orphan],
    brought: &BTreeMap<String, DrainedSegment>,
    gives_up: bool,
    recovered: &mut Recovered,
) -> Result<BTreeSet<[u8; 16]>> {
    let claims: BTreeMap<CommitId, PromisedCommit> = claims(orphans);
    let mut coordinator = session.as_coordinator()?;
    let store = coordinator.member.store.clone();
    let known = |id: &[u8; 16]| known_epoch_now(&store, log, id);
    let limits = &store.options.limits;
    let examiner = Examiner { log, limits, orphans, brought };
    let outcome = examiner.publish(claims, gives_up, &known, &mut |directory, record| {
        coordinator.complete(PreparedCommit { directory, record, appended: None }).map(drop)
    })?;
    let PromiseOutcome { completed, completed_count, given_up, damaged, undecided } = outcome;
    for orphan in orphans {
        let last = completed.get(&orphan.session).copied().unwrap_or(0);
        orphan.sections.retain(|section| section.commit.epoch > last);
    }
    (recovered.completed, recovered.given_up) = (completed_count, given_up);
    recovered.damaged = damaged;
    Ok(undecided)
}

/// Makes one commit of the uncommitted writes of each session that is not `waiting`. Returns the
/// number of commits.
///
/// # Errors
/// `Conflict` if the writes of a session cannot be committed any more; the other sessions are
/// committed first.
fn commit_leftover(
    session: &mut Session,
    orphans: &[Orphan],
    waiting: &BTreeSet<[u8; 16]>,
) -> Result<u64> {
    let mut by_session = BTreeMap::<[u8; 16], Vec<&Orphan>>::new();
    let is_ready = |orphan: &&Orphan| !waiting.contains(&orphan.session);
    for orphan in orphans.iter().filter(is_ready).filter(|orphan| !orphan.sections.is_empty()) {
        by_session.entry(orphan.session).or_default().push(orphan);
    }
    let mut coordinator = session.as_coordinator()?;
    let mut committed = 0;
    let mut refused = None;
    for (id, parts) in by_session {
        let mut directory = Directory::default();
        let mut shapes = BTreeMap::<[u8; 16], Vec<u64>>::new();
        let mut appended = AppendedAxes::default();
        for (number, orphan) in (0..).zip(&parts) {
            directory.segments.push(orphan.name.clone());
            for FoundSection { commit, place, arrays } in &orphan.sections {
                directory.commit.epoch = directory.commit.epoch.max(commit.epoch);
                directory.sections.push(SectionPlace { segment: number, ..place.clone() });
                for SectionArray { key, shape, base, .. } in arrays {
                    enlarge(shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
                    appended.note(*key, shape, base);
                }
            }
        }
        directory.commit.session = id;
        directory.grown = shapes
            .into_iter()
            .map(|(key, shape)| GrownArray { key, base: vec![0; shape.len()], shape })
            .collect();
        match coordinator.commit_directory(directory, appended) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let text = format!("what session {} left can only be discarded: {error}", hex(&id));
                refused.get_or_insert(Error::new(ErrorKind::Conflict, text));
            }
            number => {
                number?;
                committed += 1;
            }
        }
    }
    refused.map_or(Ok(committed), Err)
}
