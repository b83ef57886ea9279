//! Objects that a calibration reads: existing ones, or its own.

use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ::object_store::path::Path;
use ::object_store::{Error, ObjectMeta, ObjectStoreExt};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::error::to_error;
use super::object::RemoteObject;
use super::transport::call;
use super::{RemoteStorage, Result, runtime};
use bedform_storage::calibrate::{check_cancelled, random_block};
use bedform_storage::cancellation::interrupted;
use bedform_storage::{Object, StorageError, StorageErrorKind};

/// The most objects to consider: the entries of one page of a list.
const LISTED_MAX: usize = 1000;
/// The most objects to read; the largest are taken.
const OBJECTS_MAX: usize = 16;
/// Bytes of an own object; below, the least bytes of an existing one that give a useful rate.
const OWN_BYTES: usize = 8 << 20;
const OBJECT_BYTES_MIN: u64 = 1 << 20;
/// Bytes of existing objects that are enough.
const ENOUGH_BYTES: u64 = 8 << 20;
/// The prefix of the names of own objects.
const OWN_NAME: &str = ".bedform-calibrate-";

/// Readable objects of a calibration. Own objects are deleted on drop.
pub(crate) struct Probe<'a> {
    place: &'a RemoteStorage,
    pub(crate) objects: Vec<Box<dyn Object>>,
    own: Vec<Path>,
    /// True if the credentials do not allow listing.
    is_unlisted: bool,
    /// Bytes per second of writing, if objects were written.
    pub(crate) write_rate: Option<f64>,
}

impl<'a> Probe<'a> {
    /// Finds objects below the place, or writes `own_bytes` bytes in own objects; calls `step`
    /// before each.
    ///
    /// # Errors
    /// `Io` if there are none and none can be written; errors of the storage; as [`check_cancelled`].
    pub(crate) fn new(
        place: &'a RemoteStorage,
        own_bytes: u64,
        step: &mut dyn FnMut(),
    ) -> Result<Self> {
        let (objects, own) = (Vec::new(), Vec::new());
        let mut probe = Self { place, objects, own, is_unlisted: false, write_rate: None };
        let mut found = probe.find()?;
        found.retain(|meta| meta.size >= OBJECT_BYTES_MIN);
        found.sort_by_key(|meta| std::cmp::Reverse(meta.size));
        found.truncate(OBJECTS_MAX);
        let bytes: u64 = found.iter().map(|meta| meta.size).sum();
        let mut names: Vec<Path> = found.into_iter().map(|meta| meta.location).collect();
        if bytes < ENOUGH_BYTES {
            match probe.write(own_bytes, step) {
                Ok(()) => names.clone_from(&probe.own),
                Err(error) if names.is_empty() || is_cancelled(&error) => {
                    return Err(probe.nothing(error));
                }
                // A few bytes are better than none.
                Err(_) => {}
            }
        }
        for name in names {
            check_cancelled(&place.shown)?;
            let shown = name.to_string();
            let opening = RemoteObject::open(place.shared.clone(), name, shown.clone(), 1);
            let (object, _) = runtime::run("open", &shown, opening)?;
            probe.objects.push(Box::new(object));
        }
        Ok(probe)
    }

    /// Finds objects of the place: the one that it names, or those below it.
    fn find(&mut self) -> Result<Vec<ObjectMeta>> {
        let place = self.place;
        let failed = |error| to_error("calibrate", &place.shown, error);
        let prefix = Path::parse(&place.prefix).map_err(|error| failed(error.into()))?;
        if place.shared.lists {
            let listed = place.shared.client.store()?.list(Some(&prefix)).take(LISTED_MAX);
            let is_own = |name: &Path| name.filename().is_some_and(|n| n.starts_with(OWN_NAME));
            let listed = listed.try_filter(|meta| std::future::ready(!is_own(&meta.location)));
            let found = runtime::wait("calibrate", &place.shown, listed.try_collect::<Vec<_>>())?;
            match found.map_err(failed) {
                Err(error) if error.kind == StorageErrorKind::PermissionDenied => {
                    self.is_unlisted = true;
                }
                found => {
                    let found = found?;
                    if !found.is_empty() || place.prefix.is_empty() {
                        return Ok(found);
                    }
                }
            }
            if place.prefix.is_empty() {
                return Ok(Vec::new());
            }
        }
        match runtime::wait(
            "calibrate",
            &place.shown,
            call(place.shared.client.store()?.head(&prefix)),
        )? {
            Ok(meta) => Ok(vec![meta]),
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            // Servers refuse access to a missing object if the credentials do not allow listing.
            Err(error) => match failed(error) {
                error if error.kind != StorageErrorKind::PermissionDenied => Err(error),
                _ if self.is_unlisted => Ok(Vec::new()),
                error => Err(error),
            },
        }
    }

    /// Writes own objects.
    fn write(&mut self, bytes: u64, step: &mut dyn FnMut()) -> Result<()> {
        if !self.place.shared.lists {
            let reason = io::Error::other("servers of files are not written to");
            return Err(StorageError::from_io("calibrate", &self.place.shown, reason));
        }
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(OWN_BYTES);
        let begun =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let begun_writing = Instant::now();
        for number in 0..count.clamp(1, OBJECTS_MAX) {
            step();
            check_cancelled(&self.place.shown)?;
            let separator = if self.place.prefix.is_empty() { "" } else { "/" };
            let id = format!("{}-{begun}-{number}", std::process::id());
            let name = format!("{}{separator}{OWN_NAME}{id}.tmp", self.place.prefix);
            let failed = |error| to_error("calibrate", &self.place.shown, error);
            let name = Path::parse(name).map_err(|error| failed(error.into()))?;
            let block = random_block(OWN_BYTES, number as u64);
            // After a lost answer the object may exist.
            self.own.push(name.clone());
            let store = self.place.shared.client.store()?;
            let put =
                runtime::write("calibrate", &self.place.shown, store.put(&name, block.into()))?;
            let stopped = || interrupted("calibrate", &self.place.shown);
            put.ok_or_else(stopped)?.map_err(failed)?;
        }
        let seconds = begun_writing.elapsed().as_secs_f64().max(1e-9);
        self.write_rate = Some((self.own.len() * OWN_BYTES) as f64 / seconds);
        Ok(())
    }

    fn nothing(&self, error: StorageError) -> StorageError {
        if is_cancelled(&error) || error.kind == StorageErrorKind::Server {
            return error;
        }
        let (kind, reason) = if self.is_unlisted {
            let reason = "these credentials may not list it, which takes s3:ListBucket, or its like, and not \
                          write to it: give the URL of an object of 1 MiB or more";
            (StorageErrorKind::PermissionDenied, reason)
        } else {
            let reason = "there is no object of 1 MiB or more to read, and none may be written: name a \
                          prefix, or an object, that has some";
            (StorageErrorKind::Io, reason)
        };
        let (operation, path) = ("calibrate", self.place.shown.clone());
        StorageError { kind, operation, path, source: Some(io::Error::other(reason)) }
    }

    /// Deletes the own objects, and returns the names of those that are still there.
    pub(crate) fn remove(&mut self) -> Vec<String> {
        let own = std::mem::take(&mut self.own);
        let is_left = |name: &Path| {
            let deleted = self.place.shared.client.store();
            let deleted = deleted.and_then(|store| runtime::give_back(store.delete(name)));
            !matches!(deleted, Ok(Some(Ok(()) | Err(Error::NotFound { .. }))))
        };
        own.iter().filter(|name| is_left(name)).map(Path::to_string).collect()
    }

    /// Returns the size in bytes of the object with this index.
    pub(crate) fn bytes_of(&self, number: usize) -> u64 {
        self.objects.get(number).map_or(0, |object| object.version().size)
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

fn is_cancelled(error: &StorageError) -> bool {
    error.kind == StorageErrorKind::Interrupted
}
