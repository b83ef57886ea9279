//! The burst tier: a fast place, perhaps of this node alone, that takes what is appended to logs.
//!
//! ```text
//! <burst>/<store>/<segment>/
//!   STORE.txt                 the name of the store, for people
//!   00000000000000000000      parts, by the byte of the segment with which they start
//!   00000000000033554432
//!   promises-000000           of the writer that promises commits: which ones, see `promises`
//! ```

use std::path::Path;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::log::SegmentHeader;
use bedform_format::metadata::hex;
use bedform_storage::{Condition, Durability, LocalStorage, Mode, Storage, StorageExt as _};

use super::place::{LogPlace, lock_of_dead};
use super::promises::{Promised, Promises};
use crate::config::{BurstConfiguration, Size};
use crate::error::{Error, ErrorKind, Result};

/// See [`Burst::part_bytes`].
const PART_BYTES: u64 = 32 << 20;
/// See [`Burst::lengthen_parts`].
const LONG_PART_BYTES_MAX: u64 = 256 << 20;
/// How many long parts fill the tier.
const LONG_PARTS: u64 = 16;
/// Bytes that a writer may have in the tier where nothing else is said.
const CAPACITY_BYTES: u64 = 4 << 30;
/// One of so many parts of what is free in the tier is left to others.
const FREE_PARTS: u64 = 16;
/// Parts that a writer has at least where little is free, and the bytes of each.
const FEW_PARTS: u64 = 4;
const PART_BYTES_MIN: u64 = 256 << 10;
const NAME: &str = "STORE.txt";
/// What it says before and behind the name of the log.
const TEXT: (&str, &str) =
    ("This directory holds data of the Bedform log ", " that are not yet there.\n");
/// What it says at its end if commits are promised as soon as they are here.
const PROMISES: &str = "Commits of it may have been promised.\n";
/// What it says before that if it is said beside it which ones. Earlier versions, which know only the line
/// behind it, still see that there are promises.
const PROMISES_KEPT: &str = "Which ones stands in the files 'promises-*'; one is always there.\n";
const TEXT_BYTES_MAX: u64 = 64 << 10;
const PART_DIGITS: usize = 20;

/// A burst tier.
#[derive(Debug, Clone)]
pub struct Burst {
    /// The place.
    pub storage: Arc<dyn Storage>,
    /// Bytes that a writer may have there: beyond it, writing waits for draining.
    pub capacity_bytes: u64,
    /// Bytes that were free there; nothing where that is not known.
    pub free_bytes: Option<u64>,
    /// Bytes of a part: large enough for the slow tier, small enough that draining begins early.
    pub part_bytes: u64,
    /// True to drain all the time, in a thread of its own; otherwise it is done by whoever waits for it,
    /// at the latest at the end of a session, in the same order in every run.
    pub in_background: bool,
}

impl Burst {
    /// The tier in `storage`, with parts of 32 MiB.
    pub fn new(storage: Arc<dyn Storage>, capacity_bytes: Option<u64>) -> Self {
        let capacity_bytes = capacity_bytes.unwrap_or(CAPACITY_BYTES);
        Self {
            storage,
            capacity_bytes,
            free_bytes: None,
            part_bytes: PART_BYTES,
            in_background: true,
        }
    }

    /// What the log notes of a writer that promises commits through the tier.
    pub(super) fn note(&self) -> String {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{} on node {node}", self.storage.name())
    }

    /// The tier as one of so many `writers` has it, who begin at once: none takes more than its share of
    /// what is free, and its parts are small enough that it always has several.
    ///
    /// # Errors
    /// `NoSpace` if that is next to nothing.
    pub(super) fn shared_by(mut self, writers: u32) -> Result<Self> {
        let Some(free) = self.free_bytes else { return Ok(self) };
        let share = free / FREE_PARTS * (FREE_PARTS - 1) / u64::from(writers.max(1));
        if share < FEW_PARTS * PART_BYTES_MIN {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the burst tier {} has only {free} bytes free, for {writers} writers; free some, \
                     or name another one",
                    self.storage.name()
                ),
            ));
        }
        if share < self.capacity_bytes {
            self.capacity_bytes = share;
            self.part_bytes = self.part_bytes.min(share / FEW_PARTS);
        }
        Ok(self)
    }

    /// Makes parts as long as suits who waits for the tier alone: each costs two syncs, and nothing is
    /// drained before half of the tier is taken.
    pub(super) fn lengthen_parts(&mut self) {
        let long = (self.capacity_bytes / LONG_PARTS).min(LONG_PART_BYTES_MAX);
        self.part_bytes = self.part_bytes.max(long);
    }

    /// An error of the option `burst`, if it is one of its value.
    pub(super) fn named(path: &Path, error: Error) -> Error {
        match error.kind() {
            ErrorKind::InvalidArgument => Error::invalid(format!("burst {path:?}: {error}")),
            _ => error,
        }
    }

    /// The tier in the directory `path`, which is there.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` if it is no directory; those of storage.
    pub fn existing(path: &Path) -> Result<Self> {
        check_directory(path).map_err(|error| Self::named(path, error))?;
        if !path.is_dir() {
            let text = format!("there is no burst tier {}", path.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(Self::new(Arc::new(LocalStorage::open(path, Mode::ReadWrite)?), None))
    }

    /// The tier in the directory `path`, which is made if it is not there.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be a directory; those of storage.
    pub fn in_directory(path: &Path, capacity_bytes: Option<u64>) -> Result<Self> {
        check_directory(path)?;
        let storage = LocalStorage::open(path, Mode::Create)?;
        let free = rustix::fs::statvfs(path).ok();
        let free_bytes = free.map(|free| free.f_bavail.saturating_mul(free.f_frsize));
        Ok(Self { free_bytes, ..Self::new(Arc::new(storage), capacity_bytes) })
    }
}

/// Fails if there can be no directory `path`.
fn check_directory(path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid("the path is empty; name a directory"));
    }
    match path.ancestors().find(|above| above.symlink_metadata().is_ok()) {
        Some(file) if !file.is_dir() => Err(Error::invalid(format!(
            "{file:?} is not a directory; name one that is there, or can be made"
        ))),
        _ => Ok(()),
    }
}

/// Where a segment lies in the burst tier.
#[derive(Debug, Clone)]
pub(super) struct BurstPlace {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: ObjectPath,
    /// The store as a user knows it.
    store: String,
    promising: Promising,
}

/// Whether commits are promised as soon as they are in the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promising {
    No,
    /// By the coordinator, whose directories name what is here.
    Elsewhere,
    /// By the writer of this segment.
    Here(SegmentHeader),
}

impl BurstPlace {
    /// The place of the segment `name` of a log.
    ///
    /// # Errors
    /// For what is no name.
    pub(super) fn of(burst: &Burst, log: &LogPlace, name: &str) -> Result<Self> {
        let directory = store_directory(log)?.join(name)?;
        let (storage, promising) = (burst.storage.clone(), Promising::No);
        Ok(Self { storage, directory, store: log.name(), promising })
    }

    /// Says of an error of the tier that it is one: what the log does is told with the log's name.
    ///
    /// # Errors
    /// That of `outcome`.
    pub(super) fn in_tier<T, E: Into<Error>>(
        &self,
        outcome: std::result::Result<T, E>,
    ) -> Result<T> {
        let tier = || format!("the burst tier {}", self.storage.name());
        outcome.map_err(|error| error.into().at(tier()))
    }

    /// The same, of a writer whose commits are promised as soon as they are here: by itself if it `coordinates`.
    pub(super) fn with_promises(self, segment: SegmentHeader, coordinates: bool) -> Self {
        let promising = if coordinates { Promising::Here(segment) } else { Promising::Elsewhere };
        Self { promising, ..self }
    }

    /// True if commits are promised as soon as they are here.
    pub(super) fn has_promising_writer(&self) -> bool {
        self.promising != Promising::No
    }

    /// Fails if the tier holds what a writer of the log promised before it died: it comes before
    /// whatever is written now, so it has to be visible before.
    ///
    /// # Errors
    /// `Conflict`; those of storage.
    pub(super) fn check_kept(burst: &Burst, log: &LogPlace) -> Result<()> {
        for (name, place) in Self::all(burst, log)? {
            if log.is_closed(&name)? {
                place.remove_if_dead()?;
            } else if place.is_abandoned(log, &name)? && !place.is_past(log, &name)? {
                let tier = burst.storage.name();
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "the burst tier {tier} may hold commits that a writer of this store promised \
                         before it died; 'bedform recover --burst {tier}' makes them visible: they \
                         come before what is written now"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The segments of a log that lie in the tier.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn all(burst: &Burst, log: &LogPlace) -> Result<Vec<(String, Self)>> {
        let entries = burst.storage.list(&store_directory(log)?)?;
        let names = entries.into_iter().filter(|entry| entry.is_directory).map(|entry| entry.name);
        names.map(|name| Ok((name.clone(), Self::of(burst, log, &name)?))).collect()
    }

    /// Makes the segment's directory, which says whose it is. Nothing is promised yet: it need not outlive
    /// a power cut.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn name(&self) -> Result<()> {
        self.say("", Durability::Process)
    }

    /// Says durably whose the directory is, and that commits may be promised. Before that the first file of
    /// promises is there, durably, if they are kept here: gives what writes them.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn name_promises(&self) -> Result<Option<Promises>> {
        let (promises, said) = match self.promising {
            Promising::No => return Ok(None),
            Promising::Elsewhere => (None, PROMISES.to_owned()),
            Promising::Here(segment) => {
                let promises = Promises::create(&self.storage, &self.directory, segment)?;
                (Some(promises), [PROMISES_KEPT, PROMISES].concat())
            }
        };
        self.say(&said, Durability::Disk)?;
        Ok(promises)
    }

    fn say(&self, promises: &str, durability: Durability) -> Result<()> {
        let (before, behind) = TEXT;
        let text = format!(
            "{before}{}{behind}\
             Do not delete it. If no program writes to that store any more, \
             'bedform recover' brings them there.\n{promises}",
            self.store,
        );
        let path = self.directory.join(NAME)?;
        self.storage.put(&path, text.as_bytes(), durability, Condition::None)?;
        Ok(())
    }

    /// The log that the segment is of, as it was called when its writer began; nothing where that cannot
    /// be told.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn origin(&self) -> Result<Option<String>> {
        let text = self.text()?;
        let name = text.as_deref().and_then(|text| text.strip_prefix(TEXT.0)?.split_once(TEXT.1));
        Ok(name.map(|(name, _)| name.to_owned()))
    }

    /// What the segment's directory says of itself; nothing where it says nothing that can be read.
    fn text(&self) -> Result<Option<String>> {
        let Some(object) = self.storage.find(&self.directory.join(NAME)?)? else { return Ok(None) };
        let size = object.version().size;
        if size > TEXT_BYTES_MAX {
            return Ok(None);
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        object.read(0, &mut text)?;
        Ok(String::from_utf8(text).ok())
    }

    /// Removes what was given up, and is nobody's, unless its writer is about to do so.
    fn remove_if_dead(&self) -> Result<()> {
        match lock_of_dead(&*self.storage, &self.directory)? {
            Some(_lock) => self.remove(),
            None => Ok(()),
        }
    }

    /// True if commits that were promised may lie here, or only what says which, and nobody brings them on.
    fn is_abandoned(&self, log: &LogPlace, name: &str) -> Result<bool> {
        let Some(_lock) = lock_of_dead(&*self.storage, &self.directory)? else { return Ok(false) };
        let is_empty = self.parts()?.is_empty() && self.promised(log, name)?.is_none();
        Ok(!is_empty && self.has_promises()?)
    }

    /// What the files of promises here say; nothing if they say nothing of any commit.
    ///
    /// # Errors
    /// As [`Promised::read`].
    pub(super) fn promised(&self, log: &LogPlace, name: &str) -> Result<Option<Promised>> {
        let segment = (&log.store, name);
        let found = Promised::read(&*self.storage, &self.directory, segment, &log.limits)?;
        Ok(found.filter(|found| !found.is_empty()))
    }

    /// True if a file of promises has to be here.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn keeps_promises(&self) -> Result<bool> {
        Ok(self.text()?.is_some_and(|text| text.ends_with(&[PROMISES_KEPT, PROMISES].concat())))
    }

    fn has_promises(&self) -> Result<bool> {
        Ok(self.text()?.is_some_and(|text| text.ends_with(PROMISES)))
    }

    /// True if what lies here of segment `name`, unless somebody still writes it, was given up, or is
    /// visible. A tier may be away until the log has forgotten the segment: what is promised through a
    /// tier is noted there before, and as long as it may still come.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn is_past(&self, log: &LogPlace, name: &str) -> Result<bool> {
        if log.is_closed(name)? {
            return Ok(true);
        }
        Ok(self.has_promises()?
            && log.tier_of(name)?.is_none()
            && !log.is_there(&LogPlace::segment_path(name)?)?)
    }

    /// The part that starts at byte `start` of the segment.
    ///
    /// # Errors
    /// None that a number can give.
    pub(super) fn part(&self, start: u64) -> Result<ObjectPath> {
        Ok(self.directory.join(&Self::part_name(start))?)
    }

    /// The name of that part.
    pub(super) fn part_name(start: u64) -> String {
        format!("{start:0PART_DIGITS$}")
    }

    /// The starts of all parts that are there, in order.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn parts(&self) -> Result<Vec<u64>> {
        let entries = self.storage.list(&self.directory)?;
        let is_part = |name: &str| name.len() == PART_DIGITS;
        let names = entries.iter().filter(|entry| is_part(&entry.name));
        let mut starts: Vec<u64> = names.filter_map(|entry| entry.name.parse().ok()).collect();
        starts.sort_unstable();
        Ok(starts)
    }

    /// Removes the parts, of which all that counts is durable in the log; what was promised is still said here.
    ///
    /// # Errors
    /// Of storage. Calling again goes on.
    pub(super) fn remove_parts(&self) -> Result<()> {
        for start in self.parts()? {
            self.storage.delete(&self.part(start)?, Durability::Process, Condition::None)?;
        }
        Ok(())
    }

    /// Removes the segment from the tier. Durably: what came back after a power cut might be promised
    /// again when the log has long forgotten it.
    ///
    /// # Errors
    /// Of storage. Calling again goes on.
    pub(super) fn remove(&self) -> Result<()> {
        Ok(self.storage.delete_tree(&self.directory, Durability::Disk)?)
    }
}

fn store_directory(log: &LogPlace) -> Result<ObjectPath> {
    ObjectPath::root()
        .join(&hex(&log.store))
        .map_err(|error| Error::new(ErrorKind::InvalidArgument, error.to_string()))
}

impl Burst {
    /// The burst tier that is configured for the store in the directory `store`, if that is one: see
    /// [`BurstConfiguration::of_store`].
    ///
    /// # Errors
    /// As there; those of the tier's directory, which is made if it is missing.
    pub fn configured(store: Option<&Path>) -> Result<Option<Self>> {
        let Some(own) = BurstConfiguration::of_store(store)? else { return Ok(None) };
        let BurstConfiguration { path, capacity } = own;
        Self::in_directory(&path, capacity.map(Size::bytes)).map(Some).map_err(|error| {
            Error::new(error.kind(), format!("the burst tier {}: {error}", path.display()))
        })
    }

    /// As [`Burst::configured`], for the store in `storage`; only directories have a configuration beside
    /// them.
    ///
    /// # Errors
    /// As [`Burst::configured`].
    pub fn of_store(storage: &dyn Storage) -> Result<Option<Self>> {
        let name = storage.name();
        Self::configured(Some(Path::new(&name)).filter(|path| path.is_dir()))
    }
}

#[cfg(test)]
mod tests {
    use bedform_storage::MemoryStorage;

    use super::*;

    #[test]
    fn writers_share_what_is_free_in_several_parts_each() {
        let with = |free: u64| Burst {
            free_bytes: Some(free),
            ..Burst::new(Arc::new(MemoryStorage::new()), Some(1 << 30))
        };
        let whole = with(1 << 40).shared_by(4).unwrap();
        assert_eq!((whole.capacity_bytes, whole.part_bytes), (1 << 30, PART_BYTES));
        for writers in [1, 3] {
            let own = with(64 << 20).shared_by(writers).unwrap();
            assert!(own.capacity_bytes * u64::from(writers) <= 60 << 20);
            assert_eq!(own.part_bytes, own.capacity_bytes / FEW_PARTS);
        }
        let error = with(1 << 20).shared_by(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("burst tier"), "{error}");
    }

    #[test]
    fn who_waits_for_the_tier_alone_has_parts_that_are_long_but_far_from_fill_it() {
        for (capacity, expected) in [
            (None, LONG_PART_BYTES_MAX),
            (Some(u64::MAX), LONG_PART_BYTES_MAX),
            (Some(1 << 30), 64 << 20),
            (Some(8 << 20), PART_BYTES),
        ] {
            let mut burst = Burst::new(Arc::new(MemoryStorage::new()), capacity);
            burst.lengthen_parts();
            assert_eq!(burst.part_bytes, expected);
        }
    }
}
