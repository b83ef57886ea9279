//! Growing objects, made of immutable parts.
//!
//! The name stands for a small object whose metadata name the directory of the parts, with a random
//! name of its own. Each part is an object that is written once. Its name is its offset, so that a
//! reader finds the next part without a list. A part has 8 MiB, or fewer bytes if a sync ends it.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use ::bytes::Bytes;
use ::object_store::path::Path;
use ::object_store::{Error, GetOptions, ObjectStore, PutPayload};
use bedform_format::ObjectPath;
use futures_util::TryStreamExt as _;
use tokio::task::JoinHandle;

use super::error::to_error;
use super::object::{VersionChanged, fill, judge};
use super::put::{ObjectState, WriteError, given_up, look, random_name};
use super::remove::remove_below;
use super::transport::call;
use super::{RemoteShared, Result, runtime};
use bedform_storage::implement::padding;
use bedform_storage::{
    Answer, Bell, GrowingObject, Object, StorageError, StorageErrorKind, Version, lacks,
};

/// The prefix of a directory of parts; a random name follows.
const PARTS_PREFIX: &str = ".bedform-parts-";
/// Bytes of a part, unless a sync ends it.
const PART_BYTES: usize = 8 << 20;
/// The most parts in flight.
const IN_FLIGHT_MAX: usize = 8;
/// The most parts of an object; a server that lists more is not believed.
const PARTS_MAX: usize = 1 << 20;

type PendingPart = JoinHandle<std::result::Result<Option<ObjectState>, WriteError>>;

/// A growing object, for its writer.
pub(super) struct RemoteGrowing {
    shared: Arc<RemoteShared>,
    path: ObjectPath,
    parts: Path,
    /// Bytes appended, and how many of them are in parts.
    position: u64,
    begun: u64,
    /// The bytes after those.
    rest: Vec<u8>,
    uploads: VecDeque<PendingPart>,
    has_failed: bool,
}

impl RemoteGrowing {
    pub(super) fn create(
        shared: &Arc<RemoteShared>,
        name: &Path,
        path: &ObjectPath,
    ) -> Result<Self> {
        let parts = format!("{PARTS_PREFIX}{}", random_name());
        // The random name makes this version differ from all earlier objects of the name.
        let body = PutPayload::from(format!("bedform-parts 1\n{parts}\n"));
        let writes = shared.writes()?;
        let created =
            runtime::write("create", path, writes.put_if(name, body, None, Some(&parts)))?;
        created.unwrap_or_else(|| Err(given_up())).map_err(|unwritten| match unwritten {
            WriteError::Refused => StorageError::new(StorageErrorKind::Exists, "create", path),
            unwritten => shared.error("create", path, unwritten),
        })?;
        Ok(Self {
            shared: shared.clone(),
            path: path.clone(),
            parts: directory_of(name, &parts),
            position: 0,
            begun: 0,
            rest: Vec::new(),
            uploads: VecDeque::new(),
            has_failed: false,
        })
    }

    /// Starts the upload of the first `length` bytes in `rest`.
    fn begin(&mut self, length: usize) -> Result<()> {
        while self.uploads.len() >= IN_FLIGHT_MAX {
            self.finish_one()?;
        }
        let later = self.rest.split_off(length);
        let bytes = Bytes::from(std::mem::replace(&mut self.rest, later));
        let name = part_name(&self.parts, self.begun);
        self.begun += length as u64;
        let writes = self.shared.writes()?;
        let upload = async move { writes.put_if(&name, bytes.into(), None, None).await };
        self.uploads.push_back(runtime::spawn(upload)?);
        Ok(())
    }

    fn finish_one(&mut self) -> Result<()> {
        let Some(upload) = self.uploads.pop_front() else { return Ok(()) };
        let outcome = runtime::wait("write", &self.path, upload)?;
        let ended = |error| {
            let source = Some(std::io::Error::other(error));
            let (kind, path) = (StorageErrorKind::Poisoned, self.path.to_string());
            StorageError { kind, operation: "write", path, source }
        };
        let outcome = outcome.map_err(ended)?;
        outcome.map_err(|unwritten| self.shared.error("write", &self.path, unwritten))?;
        Ok(())
    }

    fn all(&mut self, bytes: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        while self.rest.len() >= PART_BYTES {
            self.begin(PART_BYTES)?;
        }
        Ok(())
    }

    /// Runs `work`; after a failure nothing more can be appended.
    fn write(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.shared.check_writable("write", &self.path)?;
        if self.has_failed {
            return Err(StorageError::new(StorageErrorKind::Io, "write", &self.path));
        }
        work(self).inspect_err(|_| self.has_failed = true)
    }
}

impl GrowingObject for RemoteGrowing {
    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(|this| this.all(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        self.sync()
    }

    fn sync(&mut self) -> Result<()> {
        self.write(|this| {
            this.all(padding(this.position))?;
            if !this.rest.is_empty() {
                this.begin(this.rest.len())?;
            }
            while !this.uploads.is_empty() {
                this.finish_one()?;
            }
            this.shared.check_leases("write", &this.path)
        })
    }
}

fn directory_of(name: &Path, parts: &str) -> Path {
    let (directory, _) = name.as_ref().rsplit_once('/').unwrap_or(("", name.as_ref()));
    Path::from(directory).join(parts)
}

fn part_name(directory: &Path, offset: u64) -> Path {
    directory.clone().join(format!("{offset:016x}"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GrownPart {
    offset: u64,
    length: u64,
}

impl GrownPart {
    fn of(name: &str, length: u64) -> Option<Self> {
        let is_plain = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let offset = u64::from_str_radix(name, 16).ok().filter(|_| is_plain)?;
        offset.checked_add(length).map(|_| Self { offset, length })
    }

    fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// Lists the parts that are contiguous from the start on.
async fn list(
    store: &dyn ObjectStore,
    directory: &Path,
) -> std::result::Result<Vec<GrownPart>, Error> {
    let mut parts = Vec::new();
    let mut listed = store.list(Some(directory));
    while let Some(meta) = listed.try_next().await? {
        parts.extend(meta.location.filename().and_then(|name| GrownPart::of(name, meta.size)));
        if parts.len() > PARTS_MAX {
            let source = "an object of too many parts".into();
            return Err(Error::Generic { store: "parts", source });
        }
    }
    parts.sort_unstable_by_key(|part| part.offset);
    let mut end = 0;
    // A dead writer may have left parts after a missing one.
    let follow = parts.iter().take_while(|part| {
        let follows = part.offset == end && part.length > 0;
        end = part.end();
        follows
    });
    let count = follow.count();
    parts.truncate(count);
    Ok(parts)
}

/// As [`list`], and looks up further parts that the list does not show yet.
async fn find(
    store: &dyn ObjectStore,
    directory: &Path,
) -> std::result::Result<Vec<GrownPart>, Error> {
    let mut parts = runtime::request(|| list(store, directory)).await?;
    while parts.len() < PARTS_MAX {
        let offset = parts.last().map_or(0, GrownPart::end);
        let Some(known) = look(store, &part_name(directory, offset), true).await? else { break };
        let length = known.version.size;
        if length == 0 || offset.checked_add(length).is_none() {
            break;
        }
        parts.push(GrownPart { offset, length });
    }
    Ok(parts)
}

/// Returns the version of an object; that of a growing one includes the size of its parts.
///
/// # Errors
/// Of the server.
pub(super) async fn version(
    store: &dyn ObjectStore,
    name: &Path,
    known: &ObjectState,
) -> std::result::Result<Version, Error> {
    let Some(parts) = &known.parts else { return Ok(known.version.clone()) };
    let parts = find(store, &directory_of(name, parts)).await?;
    Ok(Version { size: parts.last().map_or(0, GrownPart::end), ..known.version.clone() })
}

/// Removes the parts of a deleted object.
///
/// # Errors
/// Of the server.
pub(super) async fn remove(
    store: &dyn ObjectStore,
    name: &Path,
    parts: &str,
) -> std::result::Result<(), Error> {
    remove_below(store, &directory_of(name, parts)).await
}

/// True if `name` is that of a part.
pub(super) fn is_part(name: &Path) -> bool {
    name.parts().rev().nth(1).is_some_and(|directory| directory.as_ref().starts_with(PARTS_PREFIX))
}

/// A growing object, for a reader.
#[derive(Debug)]
pub(super) struct GrownObject {
    shared: Arc<RemoteShared>,
    name: Path,
    shown: String,
    directory: Path,
    version: Version,
    parts: RwLock<Vec<GrownPart>>,
}

impl GrownObject {
    /// Opens the parts of the object.
    ///
    /// # Errors
    /// Of the server.
    pub(super) async fn open(
        shared: Arc<RemoteShared>,
        name: Path,
        shown: String,
        version: Version,
        parts: &str,
    ) -> Result<Self> {
        let directory = directory_of(&name, parts);
        let found = find(&**shared.client.store()?, &directory).await;
        let parts = found.map_err(|error| to_error("open", &shown, error))?;
        let version = Version { size: parts.last().map_or(0, GrownPart::end), ..version };
        Ok(Self { shared, name, shown, directory, version, parts: RwLock::new(parts) })
    }

    /// Looks for later parts, and returns their end.
    fn look_again(&self) -> Result<u64> {
        let store = &**self.shared.client.store()?;
        let parts = runtime::wait("open", &self.shown, find(store, &self.directory))?;
        let parts = parts.map_err(|error| to_error("open", &self.shown, error))?;
        let end = parts.last().map_or(0, GrownPart::end);
        *self.parts.write().unwrap_or_else(PoisonError::into_inner) = parts;
        Ok(end)
    }

    /// Returns the parts that contain the bytes up to `end`; `None` if some lie beyond the known
    /// parts.
    fn parts_of(&self, offset: u64, end: u64) -> Option<Vec<GrownPart>> {
        let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
        if parts.last().map_or(0, GrownPart::end) < end {
            return None;
        }
        let first = parts.partition_point(|part| part.end() <= offset);
        Some(parts[first..].iter().take_while(|part| part.offset < end).cloned().collect())
    }

    /// True if the name still stands for this object.
    fn has_its_name(&self) -> Result<bool> {
        let store = self.shared.client.store()?;
        let look = look(&**store, &self.name, self.shared.lists);
        let there = runtime::wait("read", &self.shown, look)?;
        let there = there.map_err(|error| to_error("read", &self.shown, error))?;
        let directory = |parts: &String| directory_of(&self.name, parts);
        Ok(there.and_then(|known| known.parts).as_ref().map(directory).as_ref()
            == Some(&self.directory))
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError::new(kind, "read", &self.shown)
    }
}

impl Object for GrownObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        let end = end.ok_or_else(|| self.error(StorageErrorKind::Truncated))?;
        if buffer.is_empty() {
            return Ok(());
        }
        let mut parts = self.parts_of(offset, end);
        if parts.is_none() && self.look_again()? >= end {
            parts = self.parts_of(offset, end);
        }
        let Some(parts) = parts else {
            // An object is deleted before its parts.
            let kind = match self.has_its_name()? {
                true => StorageErrorKind::Truncated,
                false => StorageErrorKind::Conflict,
            };
            return Err(self.error(kind));
        };
        let store = &**self.shared.client.store()?;
        let fetching = fetch(store, &self.directory, &parts, offset, buffer);
        judge(runtime::wait("read", &self.shown, fetching)?, &self.shown)
    }

    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let parts = self.parts_of(offset, offset.checked_add(length)?)?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        let store = self.shared.client.store().ok()?.clone();
        let (directory, shown) = (self.directory.clone(), self.shown.clone());
        runtime::answer(bell, async move {
            judge(fetch(&*store, &directory, &parts, offset, &mut bytes).await, &shown)?;
            Ok(bytes.into())
        })
    }

    fn is_current(&self) -> Result<bool> {
        let store = self.shared.client.store()?;
        let current = runtime::wait("stat", &self.shown, async {
            match look(&**store, &self.name, self.shared.lists).await? {
                Some(known) => Ok(version(&**store, &self.name, &known).await? == self.version),
                None => Ok(false),
            }
        })?;
        current.map_err(|error: Error| to_error("stat", &self.shown, error))
    }

    lacks!(read_past, read_ahead, read_resident, buffered_range, buffered_bytes, kept);
}

/// Fills `buffer` with the bytes from `offset` on, which lie in `parts`.
async fn fetch(
    store: &dyn ObjectStore,
    directory: &Path,
    parts: &[GrownPart],
    offset: u64,
    buffer: &mut [u8],
) -> std::result::Result<VersionChanged, Error> {
    let end = offset + buffer.len() as u64;
    let mut rest = buffer;
    for part in parts {
        let [from, to] = [offset.max(part.offset), end.min(part.end())];
        let range = from - part.offset..to - part.offset;
        let length = usize::try_from(to - from).unwrap_or(usize::MAX);
        let Some((own, others)) = rest.split_at_mut_checked(length) else {
            return Ok(VersionChanged(true));
        };
        let get = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
        let name = part_name(directory, part.offset);
        let VersionChanged(has_changed) = call(async {
            let answer = store.get_opts(&name, get).await?;
            if answer.range != range {
                return Ok(VersionChanged(true));
            }
            fill(answer, own).await
        })
        .await?;
        if has_changed {
            return Ok(VersionChanged(true));
        }
        rest = others;
    }
    Ok(VersionChanged(!rest.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_read_back_and_others_are_none() {
        let name = part_name(&Path::from("a"), 8 << 20);
        let part = GrownPart { offset: 8 << 20, length: 4096 };
        assert_eq!(name.filename().and_then(|name| GrownPart::of(name, 4096)), Some(part));
        for name in ["", "0", "000000000000000g", "+000000000000001", "ffffffffffffffff"] {
            assert_eq!(GrownPart::of(name, 4096), None, "{name}");
        }
    }
}
