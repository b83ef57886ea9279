//! Garbage collection of a log. Settled commits leave the newest root, then unneeded objects are
//! removed.
//!
//! The newest root and the stamps of the shards decide which bytes are data; this module does not.
//! If a segment is removed too early, its readers take the newest root and start again, or report
//! `SnapshotMoved`. So a wrong clock costs time or disk space, and nothing else.

use crate::log::opened::OpenedStore;
use crate::zarr::publish::set_log_state;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bedform_format::ObjectPath;
use bedform_format::log::{Root, SegmentName, SettledArray, SettledShards, TableRecord};
use bedform_format::metadata::LogState;
use bedform_storage::{Condition, Durability};
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::log::coordinator::first_root;
use crate::log::place::LogPlace;
use crate::log::recover::{has_leftover, has_more};
use crate::log::view::RootView;
use crate::zarr::kept::KEPT;

/// Attempts to publish a root while other commits are faster.
const ATTEMPTS_MAX: usize = 1000;
/// Number of newest roots that always stay.
const ROOTS_KEPT: usize = 2;
/// Shown in place of a burst tier whose promised data were all brought to the log.
const BROUGHT: &str = "the log itself";
/// Time that replaced roots stay on a server, unless the whole log goes. It is much longer than a
/// request is in flight, and than clocks differ.
const REMOTE_ROOTS_AGE: Duration = Duration::from_secs(3600);

/// Options of the garbage collection of a log.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CollectOptions {
    /// Time for which a replaced root, and the objects that it needs, stay. Reads that began before
    /// it was replaced need not start again.
    pub grace: Duration,
    /// Only report the objects; remove nothing.
    pub dry_run: bool,
}

/// Objects that were removed from a log, or that a dry run would remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CollectStatistics {
    /// Removed segments.
    pub segments: u64,
    /// Bytes of the removed segments.
    pub bytes: u64,
    /// Segments that stay: commits or readers within the grace period need them, a writer is alive,
    /// or a dead writer left uncommitted data.
    pub segments_kept: u64,
    /// Removed roots.
    pub roots: u64,
    /// True if nothing is left of the log.
    pub is_gone: bool,
}

/// The contents of a log: commits that are not settled, and segments that may have more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogSummary {
    /// Commits that are not settled.
    pub commits: u64,
    /// Segments that have data of these commits.
    pub segments: u64,
    /// Bytes of those segments.
    pub bytes: u64,
    /// Segments that their writers have not closed, except those with nothing but commits. The
    /// writers are at work, or died and left data that [`Store::recover`](crate::Store::recover)
    /// finds. `None` if the server does not permit listing.
    pub segments_open: Option<u64>,
    /// Burst tiers, with their nodes, through which the writers of open segments may have promised
    /// commits that are not visible.
    pub tiers: Vec<String>,
}

impl Default for LogSummary {
    fn default() -> Self {
        Self { commits: 0, segments: 0, bytes: 0, segments_open: Some(0), tiers: Vec::new() }
    }
}

impl LogSummary {
    /// Returns a JSON object with the names of the fields, for the Python and C interfaces.
    pub fn to_json(&self) -> Value {
        json!({
            "commits": self.commits,
            "segments": self.segments,
            "bytes": self.bytes,
            "segments_open": self.segments_open,
            "tiers": self.tiers,
        })
    }
}

impl OpenedStore {
    /// Returns counts of the commits that are not settled, of their segments, and of open segments.
    ///
    /// # Errors
    /// `Corrupt` for a damaged or missing log; those of storage.
    pub(crate) fn log_summary(&self) -> Result<LogSummary> {
        self.in_one_snapshot(|| {
            let view = self.snapshot()?.view;
            // Foreign files, and groups of stores, have no log of their own.
            let Ok(place) = self.log_place() else { return Ok(LogSummary::default()) };
            let needed = view.as_ref().map(|view| view.record_ends()).transpose()?;
            let needed = needed.unwrap_or_default();
            let mut found = LogSummary {
                commits: view.map_or(Ok(0), |view| view.commit_count())?,
                segments: needed.len() as u64,
                ..LogSummary::default()
            };
            for name in needed.keys() {
                found.bytes += segment_bytes(&place, name)?;
            }
            found.segments_open = match place.segment_names() {
                Err(error) if place.storage.is_remote() && error.is_of_list() => None,
                names => {
                    found.tiers = open_tiers(&place)?;
                    Some(open_segments(&place, &names?, &needed)?)
                }
            };
            Ok(found)
        })
    }

    /// Removes all objects of the log that nobody needs: segments without commits whose writers are
    /// gone, old roots, lists and tables. Removes the whole log if nothing is left in it.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt` for a damaged root; those of storage. An interrupted call can be
    /// repeated.
    pub(crate) fn collect_log(&self, options: &CollectOptions) -> Result<CollectStatistics> {
        let store = self;
        store.check_writable()?;
        let _lock = store.lock(&ObjectPath::root())?;
        let place = store.log_place()?;
        store.remove_stale_roots(&place)?;
        let (newest, log) = store.newest_root(&place)?;
        let newest = match newest {
            Some(newest) => {
                place.check_age(&newest, log)?;
                newest
            }
            // There is no log, or the store's document names a log that has no root.
            None if log.has_log() || place.segment_names()?.is_empty() => {
                place.check_log_present(log)?;
                if !options.dry_run {
                    self.say_settled(log, log.settled, false)?;
                }
                return Ok(CollectStatistics { is_gone: true, ..CollectStatistics::default() });
            }
            // Writers have begun segments, and nobody has committed yet.
            None => Arc::new(first_root(&place, 0)),
        };
        // Settling holds the same lock: a segment that is missing now was lost.
        let needed = self.segments_of(&newest, &place);
        let mut needed = needed.map_err(|error| match error.kind() {
            ErrorKind::SnapshotMoved => Error::new(
                ErrorKind::Corrupt,
                format!("{error}, and it has commits that are not settled: put it back; nothing was removed"),
            ),
            _ => error,
        })?;
        let numbers = place.root_numbers()?;
        let recent = recent_roots(&place, &numbers, options.grace)?;
        for number in &recent {
            // A collection that was cut off may have left a root without its segments.
            let root = place.root(*number)?.map(Arc::new);
            let segments = root.map(|root| self.segments_of(&root, &place)).transpose();
            match segments {
                Err(error) if error.kind() == ErrorKind::SnapshotMoved => {}
                segments => needed.extend(segments?.unwrap_or_default()),
            }
        }
        let is_leftover = |name: &str| has_leftover(&place, name, &newest, &store.options.limits);
        let lists = recent_lists(&place, &newest, &recent)?;
        // Shards are replaced before the newest root is published. Without a recent root, their
        // grace period has passed.
        let grace = if recent.is_empty() { Duration::ZERO } else { options.grace };
        let keeps = remove_kept(&place, grace, options.dry_run)?;
        let mut done = remove_segments(&place, &needed, &is_leftover, options.dry_run)?;
        done.is_gone =
            !keeps && done.segments_kept == 0 && !newest.has_commits() && recent.is_empty();
        if done.is_gone {
            done.roots = numbers.len() as u64;
            if !options.dry_run {
                // All roots are stale from here on. If the removal is cut off, no writer continues
                // from the newest one, and no reader looks for its list.
                self.say_settled(log, newest.number + 1, false)?;
                place.remove_rest(&numbers)?;
            }
            return Ok(done);
        }
        if !options.dry_run && !newest.has_commits() {
            self.say_settled(log, newest.number, !newest.settled_shards.is_empty())?;
        }
        done.roots = remove_roots(&place, &numbers, &recent, options.dry_run)?;
        // Later lists may belong to roots that are about to be published.
        let is_old = |number: &u64| *number <= newest.number && !lists.contains(number);
        for number in place.settled_numbers()?.into_iter().filter(is_old) {
            if !options.dry_run {
                let path = LogPlace::settled_path(number)?;
                place.named(place.storage.delete(&path, Durability::Process, Condition::None))?;
            }
        }
        if !options.dry_run {
            remove_tables(&place, &newest, &recent)?;
        }
        Ok(done)
    }

    /// Writes into the store's document that all commits up to `settled` are in shards. `kept` says
    /// whether a log stays that lists the shards; `log` is the document's present state.
    ///
    /// The caller holds the store's lock. A writer takes the same lock for the next commit and
    /// first sets `pending` again, so no commit is acknowledged without that mark.
    fn say_settled(&self, log: LogState, settled: u64, kept: bool) -> Result<()> {
        if !log.has_log() && !kept {
            return Ok(());
        }
        let settled = settled.max(log.settled);
        set_log_state(self, LogState { pending: false, kept, settled })
    }

    /// Clears `kept` in the store's document if the log was left behind. A new log there has no
    /// root at first.
    ///
    /// # Errors
    /// `Corrupt` if a part of it is there; those of storage.
    pub(crate) fn forget_kept_log(&self, place: &LogPlace) -> Result<()> {
        if !self.documents.read_root(self)?.is_some_and(|root| root.group.log.kept) {
            return Ok(());
        }
        let _lock = self.lock(&ObjectPath::root())?;
        let (None, log) = self.newest_root(place)? else { return Ok(()) };
        place.check_log_present(log)?;
        self.say_settled(log, log.settled, false)
    }

    fn segments_of(&self, root: &Arc<Root>, place: &LogPlace) -> Result<BTreeSet<String>> {
        let limits = &self.options.limits;
        RootView::new(root.clone(), place.clone(), limits, Arc::default()).segments()
    }

    /// Publishes a root without the commits of `settled`, which are in `shards` now. The store's
    /// document says `pending` until [`OpenedStore::collect_log`] clears it, even if the root has
    /// no commits.
    pub(super) fn drop_commits(&self, settled: &RootView, shards: &SettledShards) -> Result<()> {
        let log = self.log_place()?;
        let number = settled.root.number;
        let shapes = settled.shapes()?;
        self.publish_next(&log, shards, false, |root, _| {
            // Another process has settled all commits, and has listed their shards.
            if !root.has_commits() {
                return Ok(false);
            }
            root.since = root.number;
            root.commits.retain(|commit| commit.number > number);
            root.tables.retain(|table| table.last > number);
            for table in root.tables.iter_mut().filter(|table| table.first <= number) {
                table.first = log.first_after(table, number)?;
            }
            // The arrays' documents have these shapes now. A shape that has grown since stays.
            root.shapes.retain(|key, shape| shapes.get(key) != Some(shape));
            // A server may not yet list the segment of a session that has just committed.
            let mut writers = log.sessions()?;
            writers.extend(sessions_of(root));
            root.sessions.retain(|session, _| writers.contains(session));
            // Without commits, the store's document will name the number of this root.
            let number = if root.has_commits() { number } else { root.number };
            root.settled = root.settled.max(number);
            Ok(true)
        })
    }

    /// Publishes a root that also lists `shards`. Their commits stay, since they have data of other
    /// arrays.
    pub(super) fn list_settled(&self, shards: &SettledShards) -> Result<()> {
        match shards.arrays.is_empty() {
            true => Ok(()),
            false => self.publish_next(&self.log_place()?, shards, false, |root, _| {
                root.since = root.number;
                Ok(root.has_commits())
            }),
        }
    }

    /// Removes the shards of the array `key` outside `grid` from the list of settled shards. `grid`
    /// is the number of objects along each axis: the array ends there, and these shards are about
    /// to be deleted.
    ///
    /// # Errors
    /// `Corrupt` for a damaged log; those of storage.
    pub(crate) fn unlist_outside(&self, key: &[u8; 16], grid: &[u64]) -> Result<()> {
        let Some(view) = self.snapshot()?.view else { return Ok(()) };
        let is_outside = |at: &Vec<u64>| at.iter().zip(grid).any(|(at, length)| at >= length);
        if !view.settled_objects(key)?.iter().any(is_outside) {
            return Ok(());
        }
        let log = self.log_place()?;
        let fewer = SettledShards { arrays: vec![SettledArray::new(*key, grid.to_vec())] };
        self.publish_next(&log, &fewer, true, |root, said| {
            root.since = root.number;
            if !root.has_commits() {
                // As for a commit: roots are created only while the document says `pending`.
                root.settled = root.number;
                set_log_state(self, LogState { pending: true, kept: false, ..said })?;
            }
            Ok(true)
        })?;
        let _lock = self.lock(&ObjectPath::root())?;
        match self.newest_root(&log)? {
            (Some(newest), said) if !newest.has_commits() => {
                self.say_settled(said, newest.number, !newest.settled_shards.is_empty())
            }
            _ => Ok(()),
        }
    }

    /// Publishes the next root: the newest one, modified by `change`, with `shards` in its lists,
    /// or in `one` merged list. `change` also gets the state in the store's document. If it returns
    /// false, nothing is published.
    fn publish_next(
        &self,
        log: &LogPlace,
        shards: &SettledShards,
        one: bool,
        change: impl Fn(&mut Root, LogState) -> Result<bool>,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            // As for a commit: under the lock, no number becomes free again.
            let _lock = self.lock(&ObjectPath::root())?;
            let (Some(newest), said) = self.newest_root(log)? else { return Ok(()) };
            let mut root = Root::clone(&newest);
            root.number += 1;
            if !change(&mut root, said)? {
                return Ok(());
            }
            log.add_settled(&mut root, shards, one)?;
            match log.publish(&root) {
                Err(error) if error.kind() == ErrorKind::Exists => {}
                outcome => return outcome,
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("writers of {} were faster {ATTEMPTS_MAX} times; settle again", log.name()),
        ))
    }
}

impl OpenedStore {
    /// Removes the roots that an interrupted removal of a whole log has left. The caller holds the
    /// store's lock.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn remove_stale_roots(&self, place: &LogPlace) -> Result<()> {
        match self.documents.read_root(self)?.map(|root| root.group.log) {
            Some(log) if !log.has_log() => place.remove_stale_roots(log.settled),
            _ => Ok(()),
        }
    }
}

/// Returns the roots before the newest that were replaced less than `grace` ago. Unknown and future
/// times count as recent.
fn recent_roots(place: &LogPlace, numbers: &[u64], grace: Duration) -> Result<BTreeSet<u64>> {
    let mut recent = BTreeSet::new();
    if grace.is_zero() {
        return Ok(recent);
    }
    for pair in numbers.windows(2) {
        if is_younger(place, pair[1], grace)? {
            recent.insert(pair[0]);
        }
    }
    Ok(recent)
}

/// True if root `number` was published less than `age` ago, or at an unknown or future time; false
/// if it is gone.
fn is_younger(place: &LogPlace, number: u64, age: Duration) -> Result<bool> {
    match place.storage.modified_ns(&LogPlace::root_path(number)?) {
        Err(error) if error.is_not_found() => Ok(false),
        published => Ok(is_since(published?, age)),
    }
}

/// True for a time less than `age` ago, for an unknown one (0), and for one in the future.
fn is_since(time_ns: i64, age: Duration) -> bool {
    let time = Duration::from_nanos(time_ns.try_into().unwrap_or(0));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time.is_zero() || now.checked_sub(time).is_none_or(|since| since < age)
}

/// Removes the roots of `numbers` that are neither `recent` nor among the newest [`ROOTS_KEPT`];
/// returns their number. The oldest goes first, so an interruption leaves no gap between the
/// remaining ones.
fn remove_roots(
    place: &LogPlace,
    numbers: &[u64],
    recent: &BTreeSet<u64>,
    dry_run: bool,
) -> Result<u64> {
    let mut removed = 0;
    let old = numbers.len().saturating_sub(ROOTS_KEPT);
    for (number, next) in numbers.iter().zip(numbers.iter().skip(1)).take(old) {
        // By that age a server has finished late deletions and lists all roots. So no removed root
        // comes back, and none is missing after the newest one in a listing.
        if place.storage.is_remote() && is_younger(place, *next, REMOTE_ROOTS_AGE)? {
            break;
        }
        if recent.contains(number) {
            continue;
        }
        removed += 1;
        if !dry_run {
            let path = LogPlace::root_path(*number)?;
            place.named(place.storage.delete(&path, Durability::Process, Condition::None))?;
        }
    }
    Ok(removed)
}

/// Returns the sessions of a root's commits.
fn sessions_of(root: &Root) -> impl Iterator<Item = [u8; 16]> {
    let names = root.commits.iter().filter_map(|commit| SegmentName::parse(&commit.segment));
    names.map(|name| name.session)
}

/// Returns the numbers of the lists of settled shards that the newest and the recent roots name.
fn recent_lists(place: &LogPlace, newest: &Root, recent: &BTreeSet<u64>) -> Result<BTreeSet<u64>> {
    let mut lists: BTreeSet<u64> =
        newest.settled_shards.iter().map(|record| record.number).collect();
    for number in recent {
        let records = place.root(*number)?.map(|root| root.settled_shards);
        lists.extend(records.iter().flatten().map(|record| record.number));
    }
    Ok(lists)
}

/// Removes the tables whose commits are all settled, as the newest root and each `recent` one say.
/// A table that a larger one replaced stays until then, for readers that have pinned an older root.
fn remove_tables(place: &LogPlace, newest: &Root, recent: &BTreeSet<u64>) -> Result<()> {
    let mut settled = newest.settled;
    for number in recent {
        settled = settled.min(place.root(*number)?.map_or(settled, |root| root.settled));
    }
    let is_settled =
        |name: &String| TableRecord::parse_name(name).is_some_and(|last| last <= settled);
    place
        .table_names()?
        .iter()
        .filter(|name| is_settled(name))
        .try_for_each(|name| place.remove_table(name))
}

/// Removes replaced shards whose grace period has passed. Returns true if others stay.
fn remove_kept(place: &LogPlace, grace: Duration, dry_run: bool) -> Result<bool> {
    let storage = &place.storage;
    let kept = ObjectPath::root().join(KEPT)?;
    let mut stays = false;
    let below = |path: &ObjectPath| -> Result<Vec<ObjectPath>> {
        let entries = place.named(storage.list(path))?.into_iter();
        Ok(entries.map(|entry| path.join(&entry.name)).collect::<std::result::Result<_, _>>()?)
    };
    for array in below(&kept)? {
        for shard in below(&array)? {
            let mut is_needed = false;
            for one in below(&shard)? {
                is_needed |= match storage.stat(&one) {
                    Ok(version) => is_since(version.changed_ns, grace),
                    Err(_) => false,
                };
            }
            if !is_needed && !dry_run {
                place.named(storage.delete_tree(&shard, Durability::Process))?;
            }
            stays |= is_needed;
        }
    }
    Ok(stays)
}

/// Removes the segments that are not `needed`, whose writers are gone, and that have no uncommitted
/// data.
fn remove_segments(
    place: &LogPlace,
    needed: &BTreeSet<String>,
    is_leftover: &dyn Fn(&str) -> Result<bool>,
    dry_run: bool,
) -> Result<CollectStatistics> {
    let mut done = CollectStatistics::default();
    // Listed before the segments, so that the segment of each note is seen if it exists.
    let mut noted: BTreeSet<_> = place.noted_names()?.into_iter().collect();
    for name in place.segment_names()? {
        let directory = LogPlace::segment_directory(&name)?;
        // The lock is held until the segment is gone.
        let lock = match needed.contains(&name) {
            true => None,
            false => place.storage.try_lock(&directory).unwrap_or(None),
        };
        // Uncommitted data of a dead writer wait for `Store::recover`.
        if lock.is_none() || is_leftover(&name)? {
            done.segments_kept += 1;
            noted.remove(&name);
            continue;
        }
        done.segments += 1;
        done.bytes += segment_bytes(place, &name)?;
        if !dry_run {
            place.named(place.storage.delete_tree(&directory, Durability::Process))?;
        }
    }
    if !dry_run {
        // Durable before roots go, since roots tell which commits of a session exist. If a segment
        // came back after that, in a power cut, its promised commits would be published again.
        place.named(place.storage.sync(&LogPlace::segments()?))?;
        // Notes go after their segments: no segment may come back without its note.
        noted.iter().try_for_each(|name| place.forget_tier(name))?;
    }
    Ok(done)
}

/// Returns the number of segments that are not closed and have records behind those of commits,
/// which end at the addresses `needed`.
fn open_segments(
    place: &LogPlace,
    names: &[String],
    needed: &BTreeMap<String, Vec<u64>>,
) -> Result<u64> {
    let mut open = 0;
    for name in names {
        let is_open = !place.is_closed(name)?
            && needed.get(name).map_or(Ok(true), |ends| has_more(place, name, ends))?;
        open += u64::from(is_open);
    }
    Ok(open)
}

/// Returns the burst tiers that the log notes for segments that are not closed.
fn open_tiers(place: &LogPlace) -> Result<Vec<String>> {
    let mut tiers = BTreeSet::new();
    for name in place.noted_names()? {
        if !place.is_closed(&name)? {
            let tier = place.tier_of(&name)?;
            // An empty note: the promised data are in the log, and wait for a decision.
            tiers.extend(tier.map(|tier| if tier.is_empty() { BROUGHT.to_owned() } else { tier }));
        }
    }
    Ok(tiers.into_iter().collect())
}

fn segment_bytes(place: &LogPlace, name: &str) -> Result<u64> {
    match place.storage.stat(&LogPlace::segment_path(name)?) {
        Ok(version) => Ok(version.size),
        Err(error) if error.is_not_found() => Ok(0),
        Err(error) => place.named(Err(error)),
    }
}
