//! The place of a store's log, and the roots, segments and notes in it.
//!
//! The log lies beside the store, under the store's name with [`SUFFIX`]. Roots have consecutive
//! numbers, and the highest one is the newest. [`LogPlace::publish`] creates a root only if its
//! number is free, so that each commit gets a number of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform_format::log::{Root, SegmentName};
use bedform_format::metadata::LogState;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{
    Condition, Durability, Lock, Storage, StorageError, StorageErrorKind, StorageExt as _,
};

use crate::error::{Error, ErrorKind, Result};

/// The end of a log's name, after the store's name.
pub(crate) const SUFFIX: &str = ".bedform-log";
const ROOTS: &str = "roots";
const SEGMENTS: &str = "segments";
/// The name of a segment in its directory.
const DATA: &str = "data";
/// The name of the mark that a writer leaves beside its data when it ends in good order.
const CLOSED: &str = "closed";
/// The directory of notes by writers that promise commits in a burst tier. It is one place, so that
/// a new session sees all notes at once.
const TIERS: &str = "tiers";
const TIER_BYTES_MAX: u64 = 64 << 10;
const README: &str = "README.txt";
const README_TEXT: &str = "\
This directory belongs to the Bedform store of the same name, without '.bedform-log'.
It holds data that are committed and not yet part of that store.
Do not delete it. 'bedform settle STORE' moves its data into the store; after that it is gone.
If you move or copy the store, move or copy this directory with it.
";

/// The log of one store.
#[derive(Debug, Clone)]
pub(crate) struct LogPlace {
    pub(crate) storage: Arc<dyn Storage>,
    /// Identifier of the store.
    pub(crate) store: [u8; 16],
    pub(super) limits: Limits,
}

impl LogPlace {
    /// Returns the place of the log of the store in `storage` with this key, whether or not a log
    /// exists.
    ///
    /// # Errors
    /// If nothing can lie beside the store.
    pub(crate) fn of_store(storage: &dyn Storage, key: [u8; 16], limits: &Limits) -> Result<Self> {
        Ok(Self { storage: storage.sibling(SUFFIX)?, store: key, limits: limits.clone() })
    }

    /// Returns the name of the place for users.
    pub(crate) fn name(&self) -> String {
        self.storage.name()
    }

    /// Adds the log's name to an error of storage, which only knows paths within the log.
    ///
    /// # Errors
    /// That of `outcome`.
    pub(super) fn named<T>(&self, outcome: std::result::Result<T, StorageError>) -> Result<T> {
        outcome.map_err(|error| Error::from(error).at(self.name()))
    }

    /// Makes the log: writes its README, and publishes `first`, a root without commits. Durable on
    /// return. A store whose document names a log always has a root, so lost roots are not mistaken
    /// for a log without commits.
    pub(crate) fn prepare(&self, first: Option<&Root>) -> Result<()> {
        let path = ObjectPath::root().join(README)?;
        if !self.is_there(&path)? {
            let text = README_TEXT.as_bytes();
            match self.storage.put(&path, text, Durability::Disk, Condition::Absent) {
                Err(error) if error.kind == StorageErrorKind::Exists => {}
                outcome => {
                    self.named(outcome)?;
                }
            }
        }
        first.map_or(Ok(()), |first| self.publish(first))
    }

    /// Removes a log without segments; `roots` are the numbers of its roots.
    ///
    /// # Errors
    /// Of storage. The next removal of a log removes the rest.
    pub(super) fn remove_rest(&self, roots: &[u64]) -> Result<()> {
        if !self.storage.is_remote() {
            return self.named(self.storage.delete_tree(&ObjectPath::root(), Durability::Disk));
        }
        // The segment of a writer that has just begun, which the server may not list yet, stays.
        let settled = self.settled_numbers()?.into_iter().map(Self::settled_path);
        let roots = roots.iter().map(|number| Self::root_path(*number));
        self.table_names()?.iter().try_for_each(|name| self.remove_table(name))?;
        let readme = ObjectPath::root().join(README)?;
        for path in roots.chain(settled).chain([Ok(readme)]) {
            self.named(self.storage.delete(&path?, Durability::Process, Condition::None))?;
        }
        Ok(())
    }

    /// Returns the directory of all segments.
    ///
    /// # Errors
    /// None.
    pub(super) fn segments() -> Result<ObjectPath> {
        Ok(ObjectPath::root().join(SEGMENTS)?)
    }

    /// Returns the directory of a segment; the segment's writer holds its lock.
    ///
    /// # Errors
    /// If `name` is not a valid name.
    pub(crate) fn segment_directory(name: &str) -> Result<ObjectPath> {
        Ok(Self::segments()?.join(name)?)
    }

    /// Returns the path of a segment.
    ///
    /// # Errors
    /// If `name` is not a valid name.
    pub(crate) fn segment_path(name: &str) -> Result<ObjectPath> {
        Ok(Self::segment_directory(name)?.join(DATA)?)
    }

    /// Returns the sessions of all existing segments.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn sessions(&self) -> Result<BTreeSet<[u8; 16]>> {
        let names = self.segment_names()?;
        let names = names.iter().filter_map(|name| SegmentName::parse(name));
        Ok(names.map(|name| name.session).collect())
    }

    /// Notes that the writer of a segment has ended and needs it no more: its data without a commit
    /// may be removed.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn mark_closed(&self, name: &str) -> Result<()> {
        let path = Self::segment_directory(name)?.join(CLOSED)?;
        // Servers tell more about an object that is not empty.
        self.named(self.storage.put(&path, b"\n", Durability::Process, Condition::None)).map(drop)
    }

    /// True if the segment is marked as closed.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn is_closed(&self, name: &str) -> Result<bool> {
        self.is_there(&Self::segment_directory(name)?.join(CLOSED)?)
    }

    /// Notes the burst tier through which the writer of a segment promises commits; an empty text
    /// says that it is no longer needed. The caller holds the store's lock if the segment does not
    /// exist yet.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn note_tier(&self, name: &str, tier: &str) -> Result<()> {
        let path = Self::tiers()?.join(name)?;
        let noted = self.storage.put(&path, tier.as_bytes(), Durability::Disk, Condition::None);
        self.named(noted).map(drop)
    }

    /// Returns the burst tier that is noted for a segment; `None` without a note.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn tier_of(&self, name: &str) -> Result<Option<String>> {
        let path = Self::tiers()?.join(name)?;
        let Some(object) = self.named(self.storage.find(&path))? else { return Ok(None) };
        let size = object.version().size.min(TIER_BYTES_MAX);
        let mut tier = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.named(object.read(0, &mut tier))?;
        Ok(Some(String::from_utf8_lossy(&tier).into_owned()))
    }

    /// Returns the names of the segments for which a burst tier is noted; some of them may be gone.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn noted_names(&self) -> Result<Vec<String>> {
        let entries = self.named(self.storage.list(&Self::tiers()?))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Removes the note of a segment's burst tier once the segment is gone or its promises are
    /// kept. Durable: a note that came back after a power cut would block new sessions without
    /// need.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn forget_tier(&self, name: &str) -> Result<()> {
        let path = Self::tiers()?.join(name)?;
        self.named(self.storage.delete(&path, Durability::Disk, Condition::None))
    }

    /// Fails if a dead writer may have promised commits through a burst tier: they have to become
    /// visible before any later write.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(crate) fn check_promises_kept(&self) -> Result<()> {
        for name in self.noted_names()? {
            let lock = lock_of_dead(&*self.storage, &Self::segment_directory(&name)?)?;
            if lock.is_none() || self.is_closed(&name)? {
                continue;
            }
            let (through, command) = match self.tier_of(&name)? {
                None => continue,
                Some(tier) if tier.is_empty() => (String::new(), "'bedform recover'"),
                Some(tier) => (
                    format!(" through the burst tier {tier}"),
                    "'bedform recover --burst', where that is,",
                ),
            };
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "a writer of {} that died may have promised commits{through}: {command} makes them \
                     visible, before what is written now; --discard gives them up",
                    self.name()
                ),
            ));
        }
        Ok(())
    }

    fn tiers() -> Result<ObjectPath> {
        Ok(ObjectPath::root().join(TIERS)?)
    }

    /// Returns the names of all existing segments.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn segment_names(&self) -> Result<Vec<String>> {
        let entries = self.named(self.storage.list(&Self::segments()?))?;
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Fails if the store's document, with the log state `log`, names a log that has no root. A log
    /// that is only `kept` may be missing as a whole.
    ///
    /// # Errors
    /// `Corrupt`; those of storage.
    pub(crate) fn check_log_present(&self, log: LogState) -> Result<()> {
        if !log.has_log() {
            return Ok(());
        }
        let is_there = !self.named(self.storage.list(&ObjectPath::root()))?.is_empty();
        if !log.pending && !is_there {
            return Ok(());
        }
        let what = if is_there { "has lost its roots" } else { "is missing" };
        let why = match log.pending {
            true => "the store has commits that are not settled, and they lie there",
            false => {
                "the store says that all is settled, and nothing else tells what of the log is"
            }
        };
        let or = if log.pending { "" } else { ", or move away what is left of it" };
        let name = self.name();
        let text = format!("{name} {what}: {why}; put it back beside the store, whole{or}");
        Err(Error::new(ErrorKind::Corrupt, text))
    }

    /// Fails if an older copy has replaced the log or the store. `newest` is the newest root, and
    /// `log` the log state in the store's document.
    ///
    /// # Errors
    /// `Corrupt`; the message says which one is older.
    pub(crate) fn check_age(&self, newest: &Root, log: LogState) -> Result<()> {
        let first = newest.first_commit();
        // While other commits remain, only the root notes the number up to which commits are
        // settled. The list of settled shards that remains after them has that number, too.
        let list = newest.settled_shards.last().map(|list| list.number);
        let is_first = first.is_some() && list.is_none_or(|list| list == newest.settled);
        let (older, newer) = match log {
            LogState { pending: false, settled, .. }
                if newest.number > settled && first.is_some() =>
            {
                ("store", "log")
            }
            LogState { kept: true, settled, .. } if newest.number < settled => ("log", "store"),
            LogState { kept: true, settled, .. } if newest.number > settled => ("store", "log"),
            LogState { pending: false, .. } => return Ok(()),
            LogState { settled, .. } if newest.number < settled => ("log", "store"),
            LogState { settled, .. } if is_first && newest.settled > settled => ("store", "log"),
            LogState { settled, .. } if is_first && first <= Some(settled) => ("log", "store"),
            LogState { .. } => return Ok(()),
        };
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} and its store are not of the same time: the {older} is older than the {newer}; \
                 put back both as they were together",
                self.name()
            ),
        ))
    }

    /// Returns the number of the newest root; `None` if there is none. `log` is the log state in
    /// the store's document.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn newest_number(&self, log: LogState) -> Result<Option<u64>> {
        let listed = self.root_numbers()?.pop();
        if !self.storage.is_remote() {
            return Ok(listed);
        }
        // A server's list may be outdated, and older roots may reappear if their requests arrive
        // late. From the newest listed root on, no number is missing: see `Store::collect_log`.
        let listed = listed.filter(|number| *number >= log.settled);
        let mut newest = listed.unwrap_or(log.settled);
        // Without a log there is no later root.
        while (log.has_log() || listed.is_some()) && self.exists(newest + 1)? {
            newest += 1;
        }
        let is_there = listed.is_some() || newest > log.settled;
        Ok((is_there || (newest > 0 && self.exists(newest)?)).then_some(newest))
    }

    /// Returns the path of root `number`.
    ///
    /// # Errors
    /// None for valid numbers.
    pub(super) fn root_path(number: u64) -> Result<ObjectPath> {
        Ok(ObjectPath::root().join(ROOTS)?.join(&Root::name(number))?)
    }

    /// Returns the numbers of the existing roots, in ascending order.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn root_numbers(&self) -> Result<Vec<u64>> {
        let entries = self.named(self.storage.list(&ObjectPath::root().join(ROOTS)?))?;
        let mut numbers: Vec<_> =
            entries.iter().filter_map(|entry| Root::parse_name(&entry.name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes roots before `settled` if there are no others: the removal of the log was
    /// interrupted, and one of them would count as the newest. The caller holds the store's lock,
    /// and the store's document names no log.
    ///
    /// # Errors
    /// Of storage. Another call removes the rest.
    pub(crate) fn remove_stale_roots(&self, settled: u64) -> Result<()> {
        let numbers = self.root_numbers()?;
        if numbers.last().is_none_or(|newest| *newest >= settled) {
            return Ok(());
        }
        for number in numbers {
            let path = Self::root_path(number)?;
            self.named(self.storage.delete(&path, Durability::Process, Condition::None))?;
        }
        self.named(self.storage.sync(&ObjectPath::root().join(ROOTS)?))
    }

    /// Returns the newest root from the time of the store, whose document has the log state `log`;
    /// `None` if there is none. `known` was the newest root earlier.
    /// [`OpenedStore::newest_root`](super::opened::OpenedStore::newest_root) reads the document,
    /// too.
    ///
    /// # Errors
    /// Of storage; `Corrupt` for a damaged root, also one of another store.
    pub(crate) fn newest(
        &self,
        log: LogState,
        known: Option<&Arc<Root>>,
    ) -> Result<Option<Arc<Root>>> {
        // Not on servers: lists may be late and answers lost, so an older root may outlive a newer
        // one. Not for the root numbered `since` either: it stays while the roots after it are
        // removed.
        if let Some(known) = known
            && !self.storage.is_remote()
            && known.since < known.number
            && !self.exists(known.number + 1)?
            && self.exists(known.number)?
        {
            return Ok(Some(known.clone()));
        }
        // A root may be removed between the listing and its opening: then there are newer ones.
        for _ in 0..ATTEMPTS_MAX {
            let Some(newest) = self.newest_number(log)? else { return Ok(None) };
            if let Some(root) = self.root(newest)? {
                return Ok(Self::current(Some(Arc::new(root)), log));
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("the roots of {} keep going", self.name())))
    }

    /// Returns `newest`, the newest root, if it is from the time of the store, whose document has
    /// the log state `log`. A root from before the log's removal does not count: its removal was
    /// interrupted, or the request that created it arrived late.
    pub(crate) fn current(newest: Option<Arc<Root>>, log: LogState) -> Option<Arc<Root>> {
        newest.filter(|root| log.has_log() || root.number >= log.settled)
    }

    /// Returns the newest root of the log beside the store in `storage`, even if the log is another
    /// store's; `None` without one.
    ///
    /// # Errors
    /// Of storage; `Corrupt` for a damaged root.
    pub(crate) fn newest_of_any_store(
        storage: &dyn Storage,
        limits: &Limits,
    ) -> Result<Option<Root>> {
        let Ok(place) = Self::of_store(storage, [0; 16], limits) else { return Ok(None) };
        for _ in 0..ATTEMPTS_MAX {
            let Some(newest) = place.newest_number(LogState::default())? else { return Ok(None) };
            if let Some(root) = place.root_of_any(newest)? {
                return Ok(Some(root));
            }
        }
        Err(Error::new(ErrorKind::Conflict, format!("the roots of {} keep going", place.name())))
    }

    fn exists(&self, number: u64) -> Result<bool> {
        self.is_there(&Self::root_path(number)?)
    }

    pub(super) fn is_there(&self, path: &ObjectPath) -> Result<bool> {
        match self.storage.stat(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => self.named(Err(error)),
        }
    }

    /// Returns root `number`; `None` if it does not exist.
    ///
    /// # Errors
    /// Of storage; `Corrupt` for a damaged root, also one of another store.
    pub(super) fn root(&self, number: u64) -> Result<Option<Root>> {
        let root = self.root_of_any(number)?;
        if root.as_ref().is_some_and(|root| root.store != self.store) {
            let name = format!("{}/{}", self.name(), Self::root_path(number)?);
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "{name} is of another store, whose log was left here: put that log beside its \
                     store again, or move it away"
                ),
            ));
        }
        Ok(root)
    }

    /// As [`LogPlace::root`], for a root of any store.
    fn root_of_any(&self, number: u64) -> Result<Option<Root>> {
        let path = Self::root_path(number)?;
        let Some(object) = self.named(self.storage.find(&path))? else { return Ok(None) };
        let name = || format!("{}/{path}", self.name());
        let size = object.version().size;
        if size > self.limits.metadata_bytes_max {
            let limit = self.limits.metadata_bytes_max;
            let text = format!("{} has {size} bytes, over the limit of {limit}", name());
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        self.named(object.read(0, &mut bytes))?;
        let root = Root::decode(&bytes, &self.limits).map_err(|e| Error::corrupt(name(), e))?;
        if root.number != number {
            return Err(Error::corrupt(name(), format!("it says that it is root {}", root.number)));
        }
        Ok(Some(root))
    }

    /// Removes the root two before `newest` if only commits were added since. The caller has just
    /// published `newest`, and holds the store's lock. If the removal fails, the next settling
    /// removes the root. On servers, which may list late, all roots stay until then.
    pub(super) fn remove_replaced(&self, newest: &Root) {
        let replaced = newest.number.checked_sub(2).filter(|number| *number > newest.since);
        if let Some(path) = replaced.and_then(|number| Self::root_path(number).ok())
            && !self.storage.is_remote()
        {
            let _ = self.storage.delete(&path, Durability::Process, Condition::None);
        }
    }

    /// Makes `root` the newest. Atomic, and durable on return.
    ///
    /// # Errors
    /// `Exists` if another root has its number; those of storage.
    pub(crate) fn publish(&self, root: &Root) -> Result<()> {
        let bytes = root.encode(&self.limits).map_err(|e| Error::invalid(e.to_string()))?;
        let path = Self::root_path(root.number)?;
        self.named(self.storage.put(&path, &bytes, Durability::Disk, Condition::Absent)).map(drop)
    }
}

/// Returns the lock of a directory whose writer is gone; `None` while the writer lives, or if the
/// directory does not exist.
///
/// # Errors
/// Of storage.
pub(super) fn lock_of_dead(
    storage: &dyn Storage,
    directory: &ObjectPath,
) -> Result<Option<Box<dyn Lock>>> {
    match storage.try_lock_of_dead(directory) {
        Err(error) if error.is_not_found() => Ok(None),
        lock => Ok(lock?),
    }
}

const ATTEMPTS_MAX: usize = 100;
