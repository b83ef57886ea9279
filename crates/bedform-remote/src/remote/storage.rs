//! [`Storage`] for a place of an object store.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use ::object_store::path::Path;
use ::object_store::{Error, ObjectStoreExt, PutPayload};
use bedform_format::ObjectPath;
use bedform_format::log::Lane;
use bedform_storage::implement::{self, checked_suffix};
use bedform_storage::storage::if_found;
use bedform_storage::{
    Bell, Condition, Durability, GrowingObject, ListedEntry, Lock, Object, ObjectWriter,
    PendingObject, Storage, StorageError, StorageErrorKind, Version, WriteHint, forward, lacks,
};

use super::error::to_error;
use super::growing::{self, RemoteGrowing};
use super::lease::LeaseWait;
use super::put::look;
use super::remove::{remove, remove_below};
use super::writer::RemoteWriter;
use super::{OWN_PREFIX, RemoteStorage, Result, object, runtime, transport};

impl Storage for RemoteStorage {
    fn name(&self) -> String {
        self.shown.clone()
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{}:{}:{}", self.system, self.rights, self.prefix))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        self.open_end(path, object::TAIL_BYTES)
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let name = self.name_of("open", path)?;
        let shown = self.shown_of(path);
        let opening = self.shared.clone().open(name, shown.clone(), bytes);
        runtime::run("open", &shown, opening)
    }

    fn request_end(
        &self,
        path: &ObjectPath,
        bytes: u64,
        bell: &Arc<Bell>,
    ) -> Option<PendingObject> {
        let name = self.name_of("open", path).ok()?;
        let opening = self.shared.clone().open(name, self.shown_of(path), bytes);
        runtime::answer(bell, async { if_found(opening.await) })
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let name = self.name_of("stat", path)?;
        let store = &**self.shared.client.store()?;
        let found = runtime::wait("stat", path, async {
            match look(store, &name, self.shared.lists).await? {
                Some(known) => growing::version(store, &name, &known).await.map(Some),
                None => Ok(None),
            }
        })?;
        let found = found.map_err(|error| to_error("stat", &path.to_string(), error))?;
        found.ok_or_else(|| StorageError::new(StorageErrorKind::NotFound, "stat", path))
    }

    fn modified_ns(&self, path: &ObjectPath) -> Result<i64> {
        let name = self.name_of("stat", path)?;
        let meta =
            runtime::wait("stat", path, transport::call(self.shared.client.store()?.head(&name)))?;
        let meta = meta.map_err(|error| to_error("stat", path.as_str(), error))?;
        Ok(meta.last_modified.timestamp_nanos_opt().unwrap_or(0))
    }

    fn now(&self) -> Result<i64> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
    }

    fn create(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        hint: WriteHint,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        Ok(Box::new(RemoteWriter::create(self, path, hint)?))
    }

    fn put(
        &self,
        path: &ObjectPath,
        bytes: &[u8],
        _durability: Durability,
        condition: Condition<'_>,
    ) -> Result<Version> {
        let name = self.name_to_write("create", path)?;
        let seen = self.shared.seen(&name);
        self.publish(path, &name, PutPayload::from(bytes.to_vec()), condition, seen)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        let name = self.name_to_write("create", path)?;
        Ok(Box::new(RemoteGrowing::create(&self.shared, &name, path)?))
    }

    fn grow_lane(
        &self,
        path: &ObjectPath,
        lane: Lane,
        durability: Durability,
    ) -> Result<Box<dyn GrowingObject>> {
        if lane.is_alone() {
            return self.grow(path, durability, None);
        }
        Err(implement::unsupported("create", path, "an object of a server grows for one writer"))
    }

    fn sibling(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let suffix = checked_suffix(suffix)?;
        if self.prefix.is_empty() {
            let reason = io::Error::other("nothing can lie beside a whole bucket");
            return Err(StorageError::from_io("open", suffix, reason));
        }
        Ok(Arc::new(Self {
            prefix: format!("{}{suffix}", self.prefix),
            shown: format!("{}{suffix}", self.shown),
            ..self.clone()
        }))
    }

    fn within(&self, path: &ObjectPath) -> Result<Arc<dyn Storage>> {
        let below = |text: &str| match (path.as_str(), text) {
            ("", text) => text.to_owned(),
            (path, "") => path.to_owned(),
            (path, text) => format!("{text}/{path}"),
        };
        Ok(Arc::new(Self {
            prefix: below(&self.prefix),
            shown: below(&self.shown),
            ..self.clone()
        }))
    }

    /// Deletes without a condition only: servers cannot check one here.
    fn delete(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        condition: Condition<'_>,
    ) -> Result<()> {
        let name = self.name_to_write("delete", path)?;
        if !matches!(condition, Condition::None) {
            let reason = io::Error::other("object stores delete nothing on condition");
            return Err(StorageError::from_io("delete", path, reason));
        }
        let store = &**self.shared.client.store()?;
        let deleted = runtime::wait("delete", path, async {
            let Some(known) = look(store, &name, true).await? else { return Ok(()) };
            remove(store, &name).await?;
            match known.parts {
                Some(parts) => growing::remove(store, &name, &parts).await,
                None => Ok(()),
            }
        })?;
        self.shared.forget(&name);
        deleted.map_err(|error| to_error("delete", &path.to_string(), error))?;
        self.shared.check_leases("delete", path)
    }

    fn delete_tree(&self, path: &ObjectPath, _durability: Durability) -> Result<()> {
        self.shared.check_writable("delete", path)?;
        let name = self.name_of("delete", path)?;
        // A lock below it needs no more heartbeats: the objects that it protects are deleted.
        self.shared.leases.end_below(&name);
        let store = &**self.shared.client.store()?;
        let deleted = runtime::wait("delete", path, remove_below(store, &name))?;
        deleted.map_err(|error| to_error("delete", &path.to_string(), error))
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<ListedEntry>> {
        if !self.shared.lists {
            let reason = "HTTP servers do not tell what they have";
            let reason = io::Error::new(io::ErrorKind::PermissionDenied, reason);
            return Err(StorageError::from_io("list", path, reason));
        }
        let name = self.name_of("list", path)?;
        let store = &**self.shared.client.store()?;
        let ask = || store.list_with_delimiter(Some(&name));
        let listed = runtime::wait("list", path, runtime::request(ask))?;
        let listed = match listed {
            Ok(listed) => listed,
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(to_error("list", &path.to_string(), error)),
        };
        let entry = |path: &Path, is_directory| {
            let name = path.filename().filter(|name| !name.starts_with(OWN_PREFIX));
            name.map(|name| ListedEntry { name: name.to_owned(), is_directory })
        };
        let directories = listed.common_prefixes.iter().filter_map(|path| entry(path, true));
        let objects = listed.objects.iter().filter_map(|meta| entry(&meta.location, false));
        let mut entries: Vec<ListedEntry> = directories.chain(objects).collect();
        entries.sort_unstable();
        entries.dedup();
        Ok(entries)
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        let held = self.take_lock(path, LeaseWait::Endless)?;
        held.ok_or_else(|| StorageError::new(StorageErrorKind::Conflict, "lock", path))
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.take_lock(path, LeaseWait::None)
    }

    fn try_lock_of_dead(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        self.take_lock(path, LeaseWait::ToTell)
    }

    lacks!(workspace, publish_tree, publish_object, sync, can_sync_all, sync_all, sweep);
    forward!(implement as Storage: is_current);
}
