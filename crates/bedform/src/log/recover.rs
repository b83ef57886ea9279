//! What writers that died left behind: brought from the burst tier, kept where it was promised, found
//! where it was not.
//!
//! Nothing here is needed for what was committed: that is in the log, and readers see it. A commit
//! that was promised by a burst tier becomes visible; writes that no commit had are found, and stay
//! until somebody says what is to become of them.

mod bring;
mod promised;
mod scan;

use crate::log::opened::OpenedStore;
use crate::threads::workers::check_goes_on;
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

use self::bring::{Brought, check_is_ours, drain, remove};
use self::promised::{Claim, Examiner, Outcome, claims};
use self::scan::{FoundDirectory, FoundSection, Scan, known_epoch_now, scan};
pub(super) use self::scan::{has_leftover, has_more};
use super::burst::{Burst, BurstPlace};
use super::commit::{Appended, note_appended};
use super::place::LogPlace;
use super::promises::Promised;
use super::session::{Session, SessionOptions};
use super::shapes::enlarge;
use crate::comm::Alone;
use crate::error::{Error, ErrorKind, Result};

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

/// What [`Store::recover`](crate::Store::recover) found and did.
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
    /// Promised commits that were given up, with all later ones of their sessions.
    pub given_up: u64,
    /// What is damaged of what was promised, a line for each session: the commit, and where. The commits before
    /// it are visible. It and the later ones wait, and nothing else is written before they are given up, or
    /// what is damaged came back to its place.
    pub damaged: Vec<String>,
    /// Burst tiers, and their nodes, through which writers that died may have promised more, and of
    /// which that has not come: others than the one that was looked at, or that one, if it has nothing of
    /// such a writer any more.
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
            "given_up": self.given_up,
            "damaged": self.damaged,
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
    sections: Vec<FoundSection>,
    directories: Vec<FoundDirectory>,
    /// The epochs of the commits that directories promise before the first damage, those that a root knows
    /// included.
    epochs: Vec<u32>,
    /// What is wrong with the header.
    header: Option<String>,
    /// What files of promises say; nothing where there are none.
    promised: Option<Promised>,
    /// The burst tier that may have more of it, and was not looked at.
    tier: Option<String>,
    /// Nobody begins to write here, or removes it, meanwhile.
    _lock: Option<Box<dyn Lock>>,
}

/// Segments that stay in the burst tier, by their names.
type Kept = Vec<(String, BurstPlace)>;

impl OpenedStore {
    /// Finds what writers that died left behind, and brings about what they had promised. Writers that
    /// live are not touched. Can be stopped and called again.
    ///
    /// # Errors
    /// `ReadOnly`; `Conflict` where a promise cannot be kept for another reason than damage, unless what is
    /// left over is discarded: because an array was deleted, or made larger by others, or the promise was made to the store of
    /// which this is a copy; or where what was left over cannot be committed any more, because others
    /// have appended where it was appended, or an array was deleted; those of storage.
    pub(crate) fn recover(
        self: &Arc<Self>,
        burst: Option<&Burst>,
        leftover: Leftover,
    ) -> Result<Recovered> {
        self.check_writable()?;
        let log = self.log_place()?;
        {
            let _lock = self.lock(&ObjectPath::root())?;
            self.remove_stale_roots(&log)?;
            match self.newest_root(&log)? {
                (Some(newest), state) => log.check_age(&newest, state)?,
                // What lies there would be taken for what nobody has committed.
                (None, state) => log.check_may_lack(state)?,
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
        let gives_up = leftover == Leftover::Discard;
        let undecided = complete_promised(
            &mut session,
            &log,
            &mut orphans,
            &brought,
            gives_up,
            &mut recovered,
        )?;
        recovered.found = self.describe(&orphans)?;
        // The burst tier may still have what comes before, and another call bring it.
        let mut waiting: BTreeSet<[u8; 16]> = orphans
            .iter()
            .filter(|orphan| orphan.tier.is_some())
            .map(|orphan| orphan.session)
            .collect();
        waiting.extend(&undecided);
        if leftover == Leftover::Commit {
            recovered.committed = commit_leftover(&mut session, &orphans, &waiting)?;
        }
        for orphan in &orphans {
            let is_decided = match leftover {
                Leftover::Discard => true,
                _ if waiting.contains(&orphan.session) => false,
                Leftover::Commit => true,
                Leftover::Keep => orphan.sections.is_empty(),
            };
            if is_decided {
                log.mark_closed(&orphan.name)?;
            } else if undecided.contains(&orphan.session) && log.tier_of(&orphan.name)?.is_none() {
                // Nothing is written before somebody decides.
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
            // Nothing more comes from its tier: other sessions may begin.
            if is_brought || log.is_closed(&name)? {
                log.forget_tier(&name)?;
            }
        }
        Ok(recovered)
    }

    /// Brings what the burst tier has. Gives what came, by segments, and those that stay there until somebody
    /// decides.
    fn bring(
        &self,
        burst: Option<&Burst>,
        log: &LogPlace,
        recovered: &mut Recovered,
    ) -> Result<(BTreeMap<String, Brought>, Kept)> {
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

    /// What is damaged of promised commits that somebody has to decide about, a line for each session.
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
        // Only what was brought from a tier has files of promises here.
        let brought = orphans.iter().filter(|orphan| orphan.promised.is_some());
        let brought: BTreeSet<_> = brought.map(|orphan| orphan.session).collect();
        let mut claims = claims(&mut orphans);
        claims.retain(|commit, _| brought.contains(&commit.session));
        // Nothing is given up: what has not come is no damage.
        let known = |session: &[u8; 16]| known_epoch_now(self, log, session);
        let all = BTreeMap::new();
        let limits = &self.options.limits;
        let examiner = Examiner { log, limits, orphans: &orphans, brought: &all };
        Ok(examiner.publish(claims, true, &known, &mut |_, _| Ok(()))?.damaged)
    }

    /// What segment `name` has that no root knows of.
    fn orphan(
        &self,
        log: &LogPlace,
        name: String,
        session: [u8; 16],
        lock: Option<Box<dyn Lock>>,
    ) -> Result<Orphan> {
        let limits = &self.options.limits;
        // Read after the lock was taken: its writer has published whatever it has.
        let known = known_epoch_now(self, log, &session)?;
        let found = scan(log, &name, known, limits)?;
        let Scan { sections, directories, epochs, header, .. } = found;
        let directory = LogPlace::segment_directory(&name)?;
        let segment = (&log.store, name.as_str());
        let promised = Promised::read(&*log.storage, &directory, segment, limits)?;
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

    /// The segments whose writers are gone, with what no root knows of them.
    fn orphans(self: &Arc<Self>, log: &LogPlace, recovered: &mut Recovered) -> Result<Vec<Orphan>> {
        let mut orphans = Vec::new();
        for name in log.segment_names()? {
            let Some(SegmentName { session, .. }) = SegmentName::parse(&name) else { continue };
            check_goes_on("stopped; call it again to go on")?;
            let directory = LogPlace::segment_directory(&name)?;
            let lock = match log.storage.try_lock_of_dead(&directory) {
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
            orphans.push(self.orphan(log, name, session, Some(lock))?);
        }
        Ok(orphans)
    }

    fn describe(self: &Arc<Self>, orphans: &[Orphan]) -> Result<Vec<Found>> {
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

/// Publishes the commits that were promised, in order, and counts them. Where one cannot be, it and all
/// later ones of its session are given up, or nothing more is done. Gives the sessions that wait for a decision.
fn complete_promised(
    session: &mut Session,
    log: &LogPlace,
    orphans: &mut [Orphan],
    brought: &BTreeMap<String, Brought>,
    gives_up: bool,
    recovered: &mut Recovered,
) -> Result<BTreeSet<[u8; 16]>> {
    let claims: BTreeMap<CommitId, Claim> = claims(orphans);
    let store = session.store.clone();
    let known = |id: &[u8; 16]| known_epoch_now(&store, log, id);
    let limits = &store.options.limits;
    let examiner = Examiner { log, limits, orphans, brought };
    let outcome = examiner.publish(claims, gives_up, &known, &mut |directory, record| {
        session.complete_promised_of(directory, record).map(drop)
    })?;
    let Outcome { completed, completed_count, given_up, damaged, undecided } = outcome;
    for orphan in orphans {
        let last = completed.get(&orphan.session).copied().unwrap_or(0);
        orphan.sections.retain(|section| section.commit.epoch > last);
    }
    (recovered.completed, recovered.given_up) = (completed_count, given_up);
    recovered.damaged = damaged;
    Ok(undecided)
}

/// Makes a commit of what each session left but those that are `waiting`. Gives their number.
///
/// # Errors
/// `Conflict`, after all others were committed, if what a session left cannot be any more.
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
    let mut committed = 0;
    let mut refused = None;
    for (id, parts) in by_session {
        let mut directory = Directory::default();
        let mut shapes = BTreeMap::<[u8; 16], Vec<u64>>::new();
        let mut appended = Appended::new();
        for (number, orphan) in (0..).zip(&parts) {
            directory.segments.push(orphan.name.clone());
            for FoundSection { commit, place, arrays } in &orphan.sections {
                directory.commit.epoch = directory.commit.epoch.max(commit.epoch);
                directory.sections.push(SectionPlace { segment: number, ..place.clone() });
                for SectionArray { key, shape, base, .. } in arrays {
                    enlarge(shapes.entry(*key).or_insert_with(|| shape.clone()), shape);
                    note_appended(&mut appended, *key, shape, base);
                }
            }
        }
        directory.commit.session = id;
        directory.grown = shapes
            .into_iter()
            .map(|(key, shape)| GrownArray { key, base: vec![0; shape.len()], shape })
            .collect();
        match session.commit_directory(directory, appended) {
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
