//! The burst tier: fast storage, perhaps local to the node, that takes appended segments first.
//!
//! A writer appends a segment in parts. Each part is drained to the log, and removed once its bytes
//! are durable there. If commits are promised, a commit counts once it is durable in the tier.
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
use bedform_format::shown::shell_path;
use bedform_storage::{Condition, Durability, LocalStorage, Mode, Storage, StorageExt as _};

use super::place::{LogPlace, lock_of_dead};
use super::promises::{Promises, SegmentPromises};
use crate::config::{BurstConfiguration, Size};
use crate::error::{Error, ErrorKind, Result};

/// The default of [`Burst::part_bytes`].
const PART_BYTES: u64 = 32 << 20;
/// The largest part that [`Burst::lengthen_parts`] makes.
const LONG_PART_BYTES_MAX: u64 = 256 << 20;
/// Number of long parts that fill the tier.
const LONG_PARTS: u64 = 16;
/// The default of [`Burst::capacity_bytes`].
const CAPACITY_BYTES: u64 = 4 << 30;
/// Writers leave one of this many shares of the free bytes to other programs.
const FREE_PARTS: u64 = 16;
/// Least number of parts for each writer where little is free, and their least size in bytes.
const FEW_PARTS: u64 = 4;
const PART_BYTES_MIN: u64 = 256 << 10;
const NAME: &str = "STORE.txt";
/// Text of `STORE.txt` before and behind the name of the log.
const TEXT: (&str, &str) =
    ("This directory holds data of the Bedform log ", " that are not yet there.\n");
/// Last line of `STORE.txt` if commits are promised once they are durable in the tier.
const PROMISES: &str = "Commits of it may have been promised.\n";
/// The line before [`PROMISES`] if promise files lie beside it. Earlier versions know only the last
/// line, and still see that there are promises.
const PROMISES_KEPT: &str = "Which ones stands in the files 'promises-*'; one is always there.\n";
const TEXT_BYTES_MAX: u64 = 64 << 10;
const PART_DIGITS: usize = 20;

/// A burst tier, with the limits of one writer in it.
#[derive(Debug, Clone)]
pub struct Burst {
    /// The storage that holds the parts.
    pub storage: Arc<dyn Storage>,
    /// Bytes that one writer may have there; at this limit, writing waits for draining.
    pub capacity_bytes: u64,
    /// Bytes that were free when the tier was opened; `None` if unknown.
    pub free_bytes: Option<u64>,
    /// Bytes of a part: large enough for the slow tier, small enough that draining begins early.
    pub part_bytes: u64,
    /// True to drain continuously in a background thread. Otherwise the writer drains when it waits
    /// for the tier, and at the end of a session: the order is the same in every run.
    pub in_background: bool,
}

impl Burst {
    /// Makes the tier in `storage`, with parts of 32 MiB.
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

    /// Returns the log's note for a writer that promises commits: the names of the tier and the
    /// node.
    pub(super) fn note(&self) -> String {
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        format!("{} on node {node}", self.storage.name())
    }

    /// Returns the tier with the limits of one of `writers` that begin at the same time. Each takes
    /// at most its share of the free bytes, and its parts are small enough that several fit into
    /// that share.
    ///
    /// # Errors
    /// `NoSpace` if the share is below 1 MiB.
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

    /// Lengthens the parts, for a writer that waits for the tier alone. Each part costs two syncs,
    /// and draining begins only when half of the tier is in use.
    pub(super) fn lengthen_parts(&mut self) {
        let long = (self.capacity_bytes / LONG_PARTS).min(LONG_PART_BYTES_MAX);
        self.part_bytes = self.part_bytes.max(long);
    }

    /// Adds the option's name and value to an `InvalidArgument` error.
    pub(super) fn named(path: &Path, error: Error) -> Error {
        match error.kind() {
            ErrorKind::InvalidArgument => Error::invalid(format!("burst {path:?}: {error}")),
            _ => error,
        }
    }

    /// Opens the tier in the existing directory `path`.
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

    /// Opens the tier in the directory `path`, and creates the directory if it is missing.
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

/// Fails if `path` cannot be a directory.
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

/// The directory of one segment in the burst tier.
#[derive(Debug, Clone)]
pub(super) struct BurstPlace {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: ObjectPath,
    /// The name of the store's log, for people.
    store: String,
    promising: PromiseWriter,
}

/// The writer that promises commits once they are durable in the tier, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromiseWriter {
    No,
    /// The coordinator, in another segment: its directories name the sections of this one.
    Elsewhere,
    /// The writer of this segment.
    Here(SegmentHeader),
}

impl BurstPlace {
    /// Returns the place of segment `name` of a log.
    ///
    /// # Errors
    /// If `name` is not a valid name.
    pub(super) fn of(burst: &Burst, log: &LogPlace, name: &str) -> Result<Self> {
        let directory = store_directory(log)?.join(name)?;
        let (storage, promising) = (burst.storage.clone(), PromiseWriter::No);
        Ok(Self { storage, directory, store: log.name(), promising })
    }

    /// Adds the tier's name to an error, as errors of the log carry the log's name.
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

    /// Returns the place for a writer that promises commits: here if it `coordinates`, else
    /// elsewhere.
    pub(super) fn with_promises(self, segment: SegmentHeader, coordinates: bool) -> Self {
        let promising =
            if coordinates { PromiseWriter::Here(segment) } else { PromiseWriter::Elsewhere };
        Self { promising, ..self }
    }

    /// True if commits are promised once they are durable here.
    pub(super) fn has_promising_writer(&self) -> bool {
        self.promising != PromiseWriter::No
    }

    /// Removes closed segments of dead writers. Fails if the tier holds promised commits of a dead
    /// writer of the log. They come before all new writes, so they have to become visible first.
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
                         before it died; 'bedform recover --burst {}' makes them visible: they \
                         come before what is written now",
                        shell_path(&tier)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Returns the segments of a log that lie in the tier, with their names.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn all(burst: &Burst, log: &LogPlace) -> Result<Vec<(String, Self)>> {
        let entries = burst.storage.list(&store_directory(log)?)?;
        let names = entries.into_iter().filter(|entry| entry.is_directory).map(|entry| entry.name);
        names.map(|name| Ok((name.clone(), Self::of(burst, log, &name)?))).collect()
    }

    /// Creates the segment's directory, with a text that names its store. Nothing is promised yet,
    /// so the text need not survive a power cut.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn name(&self) -> Result<()> {
        self.say("", Durability::Process)
    }

    /// Rewrites the text durably: it says that commits may be promised. The coordinator's first
    /// promise file is durable before the text, and is returned.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn name_promises(&self) -> Result<Option<Promises>> {
        let (promises, said) = match self.promising {
            PromiseWriter::No => return Ok(None),
            PromiseWriter::Elsewhere => (None, PROMISES.to_owned()),
            PromiseWriter::Here(segment) => {
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

    /// Returns the name that the segment's log had when the writer began; `None` if the text does
    /// not tell.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn origin(&self) -> Result<Option<String>> {
        let text = self.text()?;
        let name = text.as_deref().and_then(|text| text.strip_prefix(TEXT.0)?.split_once(TEXT.1));
        Ok(name.map(|(name, _)| name.to_owned()))
    }

    /// Returns the text of `STORE.txt`; `None` if it is missing, too large, or not UTF-8.
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

    /// Removes a segment that was given up, unless its writer is alive.
    fn remove_if_dead(&self) -> Result<()> {
        match lock_of_dead(&*self.storage, &self.directory)? {
            Some(_lock) => self.remove(),
            None => Ok(()),
        }
    }

    /// True if the writer is dead, and promised commits or promise files may lie here.
    fn is_abandoned(&self, log: &LogPlace, name: &str) -> Result<bool> {
        let Some(_lock) = lock_of_dead(&*self.storage, &self.directory)? else { return Ok(false) };
        let is_empty = self.parts()?.is_empty() && self.promised(log, name)?.is_none();
        Ok(!is_empty && self.has_promises()?)
    }

    /// Returns the contents of the promise files here; `None` if they mention no commit.
    ///
    /// # Errors
    /// As [`SegmentPromises::read`].
    pub(super) fn promised(&self, log: &LogPlace, name: &str) -> Result<Option<SegmentPromises>> {
        let segment = (&log.store, name);
        let found = SegmentPromises::read(&*self.storage, &self.directory, segment, &log.limits)?;
        Ok(found.filter(|found| !found.is_empty()))
    }

    /// True if the text says that promise files are here.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn keeps_promises(&self) -> Result<bool> {
        Ok(self.text()?.is_some_and(|text| text.ends_with(&[PROMISES_KEPT, PROMISES].concat())))
    }

    fn has_promises(&self) -> Result<bool> {
        Ok(self.text()?.is_some_and(|text| text.ends_with(PROMISES)))
    }

    /// True if the parts of segment `name` are not needed: it was closed or given up, or its
    /// commits are visible. The caller makes sure that no writer is alive.
    ///
    /// The log notes the tier before the first promise, and keeps the note while promises may still
    /// come. So a tier that was out of reach can be compared with the log. Without a note and
    /// without the segment there, the log has forgotten it.
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

    /// Returns the path of the part that starts at byte `start` of the segment.
    ///
    /// # Errors
    /// None for any number.
    pub(super) fn part(&self, start: u64) -> Result<ObjectPath> {
        Ok(self.directory.join(&Self::part_name(start))?)
    }

    /// Returns the file name of the part that starts at byte `start` of the segment.
    pub(super) fn part_name(start: u64) -> String {
        format!("{start:0PART_DIGITS$}")
    }

    /// Returns the start bytes of all parts in the tier, in ascending order.
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

    /// Removes the parts; all their bytes that count are durable in the log. The promise files
    /// stay.
    ///
    /// # Errors
    /// Of storage. The call can be repeated.
    pub(super) fn remove_parts(&self) -> Result<()> {
        for start in self.parts()? {
            self.storage.delete(&self.part(start)?, Durability::Process, Condition::None)?;
        }
        Ok(())
    }

    /// Removes the segment from the tier, durably. A directory that came back after a power cut
    /// might be taken for new promises, since the log may have forgotten the segment.
    ///
    /// # Errors
    /// Of storage. The call can be repeated.
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
    /// Opens the burst tier that is configured for the store in the directory `store`, if there is
    /// one: see [`BurstConfiguration::of_store`].
    ///
    /// # Errors
    /// As there; those of the tier's directory, which is created if it is missing.
    pub fn configured(store: Option<&Path>) -> Result<Option<Self>> {
        let Some(own) = BurstConfiguration::of_store(store)? else { return Ok(None) };
        let BurstConfiguration { path, capacity } = own;
        Self::in_directory(&path, capacity.map(Size::bytes)).map(Some).map_err(|error| {
            Error::new(error.kind(), format!("the burst tier {}: {error}", path.display()))
        })
    }

    /// Opens the tier for the store in `storage`, as [`Burst::configured`]. Only a directory has a
    /// configuration beside it.
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
