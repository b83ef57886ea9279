//! Promises: the promised commits of a segment, noted in files outside the segment.
//!
//! The writer keeps these files beside its parts in the burst tier; recovery copies them to the
//! log. A promise is written durably after the directory of its commit is durable in the tier, and
//! before the commit returns. So each commit that has returned has a promise, and damage to a part
//! can be told from data that were never promised. A file has at most [`PROMISES_MAX`] promises,
//! and is removed once a root knows the last of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bedform_format::log::{
    CommitId, LogError, Promise, PromiseFile, PromisesHeader, SegmentHeader, SegmentName,
};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{
    Condition, Durability, GrowingObject, SYNC_ALIGNMENT, Storage, StorageExt as _,
};

use super::segment::RecordLocation;
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of promises in a file.
const PROMISES_MAX: u64 = 63;
/// The content of a file in the log that stands for promise files missing from the tier.
const LOST: &[u8] = b"\n";

/// The promise files of a segment, as its writer keeps them.
pub(super) struct Promises {
    storage: Arc<dyn Storage>,
    directory: ObjectPath,
    segment: SegmentHeader,
    /// The newest file.
    object: Box<dyn GrowingObject>,
    /// The number of the newest file.
    file: u32,
    /// Number of promises in the newest file.
    count: u64,
    /// Number of the next promise.
    next: u64,
    /// The epoch of the last promise.
    epoch: u32,
    /// The numbers of earlier files, each with the epoch of its last promise.
    before: VecDeque<(u32, u32)>,
}

impl Promises {
    /// Begins the first file in `directory`, durably: if it is missing later, it was lost.
    ///
    /// # Errors
    /// Of storage.
    pub(super) fn create(
        storage: &Arc<dyn Storage>,
        directory: &ObjectPath,
        segment: SegmentHeader,
    ) -> Result<Self> {
        let header = PromisesHeader { segment, file: 0, first: 0 };
        let mut object = begin(&**storage, directory, header)?;
        object.sync()?;
        Ok(Self {
            storage: storage.clone(),
            directory: directory.clone(),
            segment,
            object,
            file: 0,
            count: 0,
            next: 0,
            epoch: 0,
            before: VecDeque::new(),
        })
    }

    /// Notes durably the promise of a commit whose directory lies durably at `place`. Removes files
    /// whose promises a root knows: those up to the epoch `known`.
    ///
    /// # Errors
    /// Of storage. Another call tries again in a new file.
    pub(super) fn add(
        &mut self,
        commit: CommitId,
        place: &RecordLocation,
        known: u32,
    ) -> Result<()> {
        if self.count >= PROMISES_MAX {
            self.begin_file()?;
        }
        let promise = Promise {
            commit,
            number: self.next,
            address: place.offset,
            stored_bytes: place.stored_bytes,
            checksum: place.checksum,
        };
        let added = self.object.append(&promise.encode()).and_then(|()| self.object.sync());
        // Nothing can be appended after a failed write.
        added.inspect_err(|_| self.count = PROMISES_MAX)?;
        (self.count, self.next, self.epoch) = (self.count + 1, self.next + 1, commit.epoch);
        self.remove_known(known);
        Ok(())
    }

    /// Begins the next file; the sync of its first promise makes it durable.
    fn begin_file(&mut self) -> Result<()> {
        self.before.push_back((self.file, self.epoch));
        // A failed attempt keeps its number; the next one takes another.
        self.file += 1;
        let header = PromisesHeader { segment: self.segment, file: self.file, first: self.next };
        self.object = begin(&*self.storage, &self.directory, header)?;
        self.count = 0;
        Ok(())
    }

    /// Removes the files whose promises a root knows, the oldest first and durably, so that the
    /// remaining ones have no gap. Files that cannot be removed go with the tier.
    fn remove_known(&mut self, known: u32) {
        while let Some((file, _)) = self.before.front().filter(|(_, epoch)| *epoch <= known) {
            let removed = file_path(&self.directory, *file).and_then(|path| {
                Ok(self.storage.delete(&path, Durability::Disk, Condition::None)?)
            });
            if removed.is_err() {
                break;
            }
            self.before.pop_front();
        }
    }
}

/// Begins a file with its header.
fn begin(
    storage: &dyn Storage,
    directory: &ObjectPath,
    header: PromisesHeader,
) -> Result<Box<dyn GrowingObject>> {
    let hint = Some((1 + PROMISES_MAX) * SYNC_ALIGNMENT);
    let path = file_path(directory, header.file)?;
    let mut object = storage.grow(&path, Durability::Disk, hint)?;
    let mut block = header.encode().to_vec();
    block.resize(usize::try_from(SYNC_ALIGNMENT).unwrap_or(block.len()), 0);
    object.append(&block)?;
    Ok(object)
}

fn file_path(directory: &ObjectPath, file: u32) -> Result<ObjectPath> {
    Ok(directory.join(&PromiseFile::name(file))?)
}

/// Returns the numbers of the promise files in a directory.
fn files(storage: &dyn Storage, directory: &ObjectPath) -> Result<Vec<u32>> {
    let entries = storage.list(directory)?;
    Ok(entries.iter().filter_map(|entry| PromiseFile::parse_name(&entry.name)).collect())
}

/// Returns the bytes of a promise file, up to the limit: a valid file has no more, even if its size
/// says so.
fn bytes_of(
    storage: &dyn Storage,
    directory: &ObjectPath,
    file: u32,
    limits: &Limits,
) -> Result<Vec<u8>> {
    let Some(object) = storage.find(&file_path(directory, file)?)? else { return Ok(Vec::new()) };
    let size = object.version().size.min(limits.metadata_bytes_max);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    object.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The promises of a segment, as far as its promise files can be read.
#[derive(Debug, Default)]
pub(super) struct SegmentPromises {
    /// The promises, by number.
    pub(super) promises: Vec<Promise>,
    /// Index in `promises` of each promise that follows a gap of unreadable ones.
    pub(super) behind_gaps: Vec<usize>,
    /// True if unreadable bytes follow the last promise.
    pub(super) has_torn_end: bool,
    /// True if no file can be read.
    pub(super) is_lost: bool,
}

impl SegmentPromises {
    /// Reads the promises of segment `name`, of the store with the key `store`, in `directory` of
    /// the tier or the log; `None` without files.
    ///
    /// # Errors
    /// `Unsupported` for files of a newer version; those of storage.
    pub(super) fn read(
        storage: &dyn Storage,
        directory: &ObjectPath,
        (store, name): (&[u8; 16], &str),
        limits: &Limits,
    ) -> Result<Option<Self>> {
        let Some(SegmentName { session, rank, .. }) = SegmentName::parse(name) else {
            return Ok(None);
        };
        let own = SegmentHeader { store: *store, session, rank };
        let numbers = files(storage, directory)?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let mut found = BTreeMap::new();
        let (mut first, mut has_torn_end) = (None, false);
        for number in numbers {
            let bytes = bytes_of(storage, directory, number, limits)?;
            let at = || format!("{}/{directory}/{}", storage.name(), PromiseFile::name(number));
            match decode(&bytes, (own, number), limits, &at)? {
                Some(file) => {
                    first = first.or(Some(file.header.first));
                    found
                        .extend(file.promises.into_iter().map(|promise| (promise.number, promise)));
                    has_torn_end = file.has_torn_end;
                }
                // A file that was just begun, or a damaged one.
                None => has_torn_end |= has_content(&bytes),
            }
        }
        let Some(mut next) = first else {
            return Ok(Some(Self { is_lost: true, ..Self::default() }));
        };
        let mut behind_gaps = Vec::new();
        for (at, number) in found.keys().enumerate() {
            if *number != next {
                behind_gaps.push(at);
            }
            next = number.saturating_add(1);
        }
        let promises = found.into_values().collect();
        Ok(Some(Self { promises, behind_gaps, has_torn_end, is_lost: false }))
    }

    /// True if it says nothing about any commit.
    pub(super) fn is_empty(&self) -> bool {
        self.promises.is_empty() && !self.has_torn_end && !self.is_lost
    }
}

/// Decodes a file; `None` unless it is the one with this number of the segment `own`.
fn decode(
    bytes: &[u8],
    (own, number): (SegmentHeader, u32),
    limits: &Limits,
    at: &dyn Fn() -> String,
) -> Result<Option<PromiseFile>> {
    match PromiseFile::decode(bytes, limits) {
        Ok(file) => {
            let is_own = file.header.segment == own && file.header.file == number;
            Ok(Some(file).filter(|_| is_own))
        }
        Err(error @ LogError::NewerVersion { .. }) => {
            Err(Error::new(ErrorKind::Unsupported, error.to_string()).at(at()))
        }
        Err(_) => Ok(None),
    }
}

/// True if the file has more than a header.
fn has_content(bytes: &[u8]) -> bool {
    let behind = bytes.get(usize::try_from(SYNC_ALIGNMENT).unwrap_or(usize::MAX)..);
    behind.is_some_and(|behind| behind.iter().any(|byte| *byte != 0))
}

/// Copies the promise files of segment `name` durably from `tier` to `log`, each given as a storage
/// and a directory in it. If the tier `should` have promises and none can be read, the log notes
/// that they are lost. Files in the log that have more promises, from an earlier copy, stay.
/// Returns true if the log says anything about the segment's promises.
///
/// # Errors
/// As [`SegmentPromises::read`]. Another call copies the rest.
pub(super) fn copy_promises(
    (tier, from): (&dyn Storage, &ObjectPath),
    (log, to): (&dyn Storage, &ObjectPath),
    segment: (&[u8; 16], &str),
    should: bool,
    limits: &Limits,
) -> Result<bool> {
    let there = SegmentPromises::read(log, to, segment, limits)?;
    let found = SegmentPromises::read(tier, from, segment, limits)?;
    let found = found.unwrap_or(SegmentPromises { is_lost: true, ..SegmentPromises::default() });
    let put = |file, bytes: &[u8]| -> Result<()> {
        log.put(&file_path(to, file)?, bytes, Durability::Disk, Condition::None)?;
        Ok(())
    };
    if found.is_lost && should && there.is_none() {
        put(0, LOST)?;
        return Ok(true);
    }
    if found.is_lost || found.is_empty() {
        return Ok(there.is_some());
    }
    if there.is_none_or(|there| there.promises.len() <= found.promises.len()) {
        for file in files(tier, from)? {
            put(file, &bytes_of(tier, from, file, limits)?)?;
        }
    }
    Ok(true)
}
