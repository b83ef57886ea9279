//! Objects of an object store: S3, Google Cloud Storage, Azure, and plain HTTP servers.
//!
//! Requests go through the crate `object_store`, whose asynchronous runtime stays in here: calls of
//! [`Storage`] block, and many are in flight because many threads call.
//!
//! An object store keeps no bytes for who has opened an object: what was replaced meanwhile is a
//! `Conflict` for all later reads of it, so that an index and the chunks that it names belong together.
//! Each request asks for the version that was opened (`If-Match`), and each answer is compared with it.

mod aws;
mod error;
mod object;
pub(crate) mod probe;
mod runtime;
mod url;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use bedform_format::ObjectPath;

use self::error::to_error;
use self::object::RemoteObject;
#[cfg(test)]
pub(crate) use self::runtime::wait;
use self::url::Place;
pub use self::url::{RemoteOptions, UrlError};
use crate::storage::checked_suffix;
use crate::{
    Condition, Durability, Entry, GrowingObject, Lock, Object, ObjectWriter, Storage, StorageError,
    StorageErrorKind, Version,
};

type Result<T> = std::result::Result<T, StorageError>;

/// A prefix of an object store, by its URL. Read only.
///
/// ```no_run
/// use bedform_format::ObjectPath;
/// use bedform_storage::{RemoteOptions, RemoteStorage, Storage};
///
/// let options = RemoteOptions { anonymous: true, ..RemoteOptions::default() };
/// let storage = RemoteStorage::open("s3://bucket/run42.zarr", &options)?;
/// let document = storage.open(&ObjectPath::parse("zarr.json").unwrap())?;
/// let mut bytes = vec![0; document.version().size as usize];
/// document.read(0, &mut bytes)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RemoteStorage {
    store: Arc<dyn ObjectStore>,
    /// What all names begin with; empty for a whole bucket.
    prefix: String,
    /// The URL as users may see it.
    shown: String,
    /// What all places have in common that are read alike, as the name of a file.
    system: String,
    /// True if the server tells what it has: plain HTTP servers do not.
    lists: bool,
}

impl RemoteStorage {
    /// The place at `url`: `s3://bucket/path`, `gs://bucket/path`, `az://container/path` or
    /// `http(s)://host/path`. Asks nothing of the server.
    ///
    /// # Errors
    /// For a URL that is none of these, or has secrets in it, or options that make no client.
    pub fn open(url: &str, options: &RemoteOptions) -> std::result::Result<Self, UrlError> {
        let Place { store, prefix, shown, system, lists } = Place::of(url, options)?;
        Ok(Self { store, prefix, shown, system, lists })
    }

    /// A prefix of `store`, called `shown`.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, shown: &str) -> Self {
        let (prefix, shown) = (prefix.to_owned(), shown.to_owned());
        Self { store, prefix, shown, system: "other".to_owned(), lists: true }
    }

    /// What all places have in common that are read alike: scheme, server and bucket, as the name of a
    /// file. No secrets and no names of users are in it.
    pub(crate) fn system(&self) -> &str {
        &self.system
    }

    /// The name of an object in the object store.
    fn name_of(&self, operation: &'static str, path: &ObjectPath) -> Result<Path> {
        let separator = if self.prefix.is_empty() || path.is_root() { "" } else { "/" };
        let name = format!("{}{separator}{path}", self.prefix);
        Path::parse(name).map_err(|error| to_error(operation, &path.to_string(), error.into()))
    }

    fn refuse<T>(operation: &'static str, path: &ObjectPath) -> Result<T> {
        Err(StorageError::new(StorageErrorKind::ReadOnly, operation, path))
    }
}

/// The version that an object store tells of.
fn version_of(meta: &ObjectMeta) -> Version {
    let hash = |text: &Option<String>| {
        let Some(text) = text else { return 0 };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    Version {
        size: meta.size,
        modified_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or(0),
        changed_ns: 0,
        identity: (hash(&meta.e_tag), hash(&meta.version)),
    }
}

impl Storage for RemoteStorage {
    fn name(&self) -> String {
        self.shown.clone()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn open(&self, path: &ObjectPath) -> Result<Box<dyn Object>> {
        self.open_end(path, object::TAIL_BYTES)
    }

    fn open_end(&self, path: &ObjectPath, bytes: u64) -> Result<Box<dyn Object>> {
        let name = self.name_of("open", path)?;
        let shown = path.to_string();
        Ok(Box::new(RemoteObject::open(self.store.clone(), name, shown, bytes)?))
    }

    fn find_end(&self, path: &ObjectPath, bytes: u64) -> Result<Option<Box<dyn Object>>> {
        match self.open_end(path, bytes) {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn stat(&self, path: &ObjectPath) -> Result<Version> {
        let name = self.name_of("stat", path)?;
        let meta = runtime::wait(self.store.head(&name))?;
        Ok(version_of(&meta.map_err(|error| to_error("stat", &path.to_string(), error))?))
    }

    fn create(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn ObjectWriter + '_>> {
        Self::refuse("create", path)
    }

    fn grow(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _size_hint: Option<u64>,
    ) -> Result<Box<dyn GrowingObject>> {
        Self::refuse("create", path)
    }

    fn beside(&self, suffix: &str) -> Result<Arc<dyn Storage>> {
        let suffix = checked_suffix(suffix)?;
        if self.prefix.is_empty() {
            let reason = io::Error::other("nothing can lie beside a whole bucket");
            return Err(StorageError::from_io("open", suffix, reason));
        }
        Ok(Arc::new(Self {
            store: self.store.clone(),
            prefix: format!("{}{suffix}", self.prefix),
            shown: format!("{}{suffix}", self.shown),
            system: self.system.clone(),
            lists: self.lists,
        }))
    }

    fn delete(
        &self,
        path: &ObjectPath,
        _durability: Durability,
        _condition: Condition<'_>,
    ) -> Result<()> {
        Self::refuse("delete", path)
    }

    fn delete_tree(&self, path: &ObjectPath, _durability: Durability) -> Result<()> {
        Self::refuse("delete", path)
    }

    fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        if !self.lists {
            let reason = io::Error::other("HTTP servers do not tell what they have");
            return Err(StorageError::from_io("list", path, reason));
        }
        let name = self.name_of("list", path)?;
        let listed = runtime::wait(self.store.list_with_delimiter(Some(&name)))?;
        let listed = match listed {
            Ok(listed) => listed,
            Err(::object_store::Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(to_error("list", &path.to_string(), error)),
        };
        let entry = |path: &Path, is_directory| {
            path.filename().map(|name| Entry { name: name.to_owned(), is_directory })
        };
        let directories = listed.common_prefixes.iter().filter_map(|path| entry(path, true));
        let objects = listed.objects.iter().filter_map(|meta| entry(&meta.location, false));
        let mut entries: Vec<Entry> = directories.chain(objects).collect();
        entries.sort_unstable();
        entries.dedup();
        Ok(entries)
    }

    fn sync(&self, _path: &ObjectPath) -> Result<()> {
        Ok(())
    }

    fn lock(&self, path: &ObjectPath) -> Result<Box<dyn Lock>> {
        Self::refuse("lock", path)
    }

    fn try_lock(&self, path: &ObjectPath) -> Result<Option<Box<dyn Lock>>> {
        Self::refuse("lock", path)
    }

    fn sweep(&self, _path: &ObjectPath) -> Result<u64> {
        Ok(0)
    }
}
