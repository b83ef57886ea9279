//! Sets of references as storages: a kerchunk document is a read-only place whose objects are inline bytes, or
//! ranges of other files. The Zarr store in it is then opened as any other.
//!
//! # Promises
//!
//! - A file is read only if it lies below the directory of the references, or below what the caller allows
//!   ([`ExternalFiles`](crate::ExternalFiles)). Links are resolved first. Of protocols there are files and those
//!   of `bedform-remote`; the references choose no credentials and no server options.
//! - A file that is missing, too short, or has changed since this storage read it first is an error that names it:
//!   never a missing chunk, which would read as the fill value, and never bytes of another version. Kerchunk's
//!   references do not say which version of a file they were made of: what changed before is not noticed.
//! - Few files are open at a time, however many there are.
//!
//! # How
//!
//! A reference's [version](bedform_storage::Version) is that of its file with the range, an inline one's that of
//! its bytes: caches, freshness and replicas work on it as on other objects.
//!
//! | module | holds |
//! |---|---|
//! | `object` | opened references |
//! | `roots` | which files may be read |
//! | `targets` | the files: their storages, versions and open handles |

mod object;
mod roots;
mod targets;

use std::path::Path;
use std::sync::Arc;

use bedform_format::references::{Reference, References, ReferencesError};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::implement::{self, unsupported};
use bedform_storage::{
    ListedEntry, Lock, Object, Storage, StorageError, StorageErrorKind, Version, lacks,
};

use crate::error::{Error, ErrorKind, Result};
use crate::opening::{Fronted, file_of};
use crate::options::OpenOptions;
use object::{InlineObject, RangeObject};
use roots::{Base, Roots};
use targets::Targets;

type Stored<T> = std::result::Result<T, StorageError>;

/// A set of references as a storage, or a directory of one. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReferenceStorage {
    shared: Arc<Shared>,
    /// The directory that is the root of this place.
    root: ObjectPath,
}

#[derive(Debug)]
struct Shared {
    name: String,
    set: Arc<References>,
    targets: Targets,
    /// As in [`Storage::identity`].
    identity: Option<String>,
    /// When the references were written, in nanoseconds since 1970; 0 where that is unknown.
    modified_ns: i64,
    is_remote: bool,
}

impl ReferenceStorage {
    /// The references in the file at `path`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `LimitExceeded` by what is in it; of storage; `InvalidArgument` for roots that are
    /// none.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let (storage, name) = file_of(path, options)?;
        let object = storage.open(&name)?;
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let parent = real.parent().unwrap_or(Path::new("/")).to_owned();
        let (size, shown) = (object.version().size, path.display().to_string());
        let set = read(size, &|buffer| object.read(0, buffer), &shown, &options.limits)?;
        let identity = storage.identity().map(|identity| {
            let allowed = &options.external;
            format!("references\n{identity}\n{name}\n{:?}\n{allowed:?}", object.version())
        });
        let modified_ns = object.version().modified_ns;
        Self::of(shown, set, Base::Directory(parent), options)
            .map(|made| made.known_as(identity, modified_ns))
    }

    /// The references in the opened file at `url`.
    ///
    /// # Errors
    /// As [`ReferenceStorage::open`].
    pub(crate) fn at_url(url: &str, file: &Fronted, options: &OpenOptions) -> Result<Self> {
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let size = file.object.version().size;
        let set = read(size, &|buffer| file.read(0, buffer), shown, &options.limits)?;
        let parent = shown.rsplit_once('/').map_or(shown, |(parent, _)| parent);
        Self::of(shown.to_owned(), set, Base::Url(parent.to_owned()), options)
    }

    /// References in memory, called `name`. Relative paths are those of the directory `base`.
    ///
    /// # Errors
    /// `InvalidArgument` for roots that are none.
    pub fn in_memory(
        name: String,
        set: References,
        base: &Path,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::of(name, set, Base::Directory(base.to_owned()), options)
    }

    fn of(name: String, set: References, base: Base, options: &OpenOptions) -> Result<Self> {
        let set = Arc::new(set);
        let roots = Roots::new(base, &options.external)?;
        let is_remote = set.targets().iter().any(|target| roots.is_url(target));
        let targets = Targets::new(Arc::clone(&set), roots, options.clone());
        let shared = Shared { name, set, targets, identity: None, modified_ns: 0, is_remote };
        Ok(Self { shared: Arc::new(shared), root: ObjectPath::root() })
    }

    fn known_as(mut self, identity: Option<String>, modified_ns: i64) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            (shared.identity, shared.modified_ns) = (identity, modified_ns);
        }
        self
    }

    /// The path in the set of references.
    fn path_of(&self, path: &ObjectPath) -> Stored<ObjectPath> {
        let bad = |_| StorageError::new(StorageErrorKind::NotFound, "open", path);
        if path.is_root() {
            Ok(self.root.clone())
        } else {
            self.root.join(path.as_str()).map_err(bad)
        }
    }

    fn find(&self, operation: &'static str, path: &ObjectPath) -> Stored<Reference<'_>> {
        let full = self.path_of(path)?;
        let kind = match self.shared.set.find(&full) {
            Some(found) => return Ok(found),
            None if self.shared.set.is_directory(&full) => StorageErrorKind::NotAnObject,
            None => StorageErrorKind::NotFound,
        };
        Err(StorageError::new(kind, operation, path))
    }

    fn inline(&self, path: &ObjectPath, bytes: &[u8]) -> InlineObject {
        InlineObject::new(path.to_string(), bytes, self.shared.modified_ns)
    }
}

/// The references in a file of `size` bytes, which `fill` reads.
fn read(
    size: u64,
    fill: &dyn Fn(&mut [u8]) -> Stored<()>,
    name: &str,
    limits: &Limits,
) -> Result<References> {
    if size > limits.references_bytes_max {
        let limit = limits.references_bytes_max;
        let text = format!("{name}: the references have {size} bytes, over the limit of {limit}");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let no_memory =
        || Error::new(ErrorKind::LimitExceeded, format!("{name}: no memory for {size} bytes"));
    let mut bytes = Vec::new();
    let length = usize::try_from(size).map_err(|_| no_memory())?;
    bytes.try_reserve_exact(length).map_err(|_| no_memory())?;
    bytes.resize(length, 0);
    fill(&mut bytes)?;
    parse(&bytes, name, limits)
}

/// The references of a document that is called `name`.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `LimitExceeded`.
pub fn parse(bytes: &[u8], name: &str, limits: &Limits) -> Result<References> {
    bedform_format::references::parse(bytes, limits).map_err(|error| refused(name, &error))
}

fn refused(name: &str, error: &ReferencesError) -> Error {
    let kind = match error {
        ReferencesError::TooLarge { .. } => ErrorKind::LimitExceeded,
        ReferencesError::Generated
        | ReferencesError::Expression(_)
        | ReferencesError::Version(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("{name}: {error}"))
}

impl Storage for ReferenceStorage {
    fn name(&self) -> String {
        match self.root.is_root() {
            true => self.shared.name.clone(),
            false => format!("{}/{}", self.shared.name, self.root),
        }
    }

    fn identity(&self) -> Option<String> {
        Some(format!("{}\n{}", self.shared.identity.as_ref()?, self.root))
    }

    fn is_remote(&self) -> bool {
        self.shared.is_remote
    }

    fn open(&self, path: &ObjectPath) -> Stored<Box<dyn Object>> {
        match self.find("open", path)? {
            Reference::Inline(bytes) => Ok(Box::new(self.inline(path, bytes))),
            Reference::Range { target, offset, length } => {
                let file = self.shared.targets.open(target, length.is_none())?;
                let shown = self.shared.targets.shown(target);
                Ok(Box::new(RangeObject::new(file, shown, offset, length)?))
            }
        }
    }

    fn stat(&self, path: &ObjectPath) -> Stored<Version> {
        match self.find("stat", path)? {
            Reference::Inline(bytes) => Ok(self.inline(path, bytes).version().clone()),
            Reference::Range { target, offset, length } => {
                let file = self.shared.targets.stat(target)?;
                let shown = self.shared.targets.shown(target);
                object::version_of(&file, &shown, offset, length)
            }
        }
    }

    fn modified_ns(&self, path: &ObjectPath) -> Stored<i64> {
        match self.stat(path) {
            Err(error) if error.kind == StorageErrorKind::NotAnObject => {
                Ok(self.shared.modified_ns)
            }
            found => found.map(|version| version.modified_ns),
        }
    }

    fn now(&self) -> Stored<i64> {
        // Nothing is written here that would have to be dated.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok()).unwrap_or_default())
    }

    fn is_current(&self, path: &ObjectPath, version: &Version) -> Stored<bool> {
        implement::is_current(self, path, version)
    }

    fn beside(&self, _: &str) -> Stored<Arc<dyn Storage>> {
        let none = "nothing lies beside a set of references";
        Err(StorageError::from_io("open", self.name(), std::io::Error::other(none)))
    }

    fn within(&self, path: &ObjectPath) -> Stored<Arc<dyn Storage>> {
        let root = self.path_of(path)?;
        if !self.shared.set.is_directory(&root) {
            return Err(StorageError::new(StorageErrorKind::NotFound, "open", path));
        }
        Ok(Arc::new(Self { shared: Arc::clone(&self.shared), root }))
    }

    fn list(&self, path: &ObjectPath) -> Stored<Vec<ListedEntry>> {
        let found = self.shared.set.list(&self.path_of(path)?).into_iter();
        Ok(found
            .map(|found| ListedEntry { name: found.name, is_directory: found.is_directory })
            .collect())
    }

    fn lock(&self, path: &ObjectPath) -> Stored<Box<dyn Lock>> {
        Err(unsupported("lock", path, "a set of references has no locks"))
    }

    lacks!(open_end, ask_end, sync, sweep, try_lock, try_lock_of_dead);
    lacks!(workspace, publish_tree, publish_object, can_sync_all, sync_all);
    lacks!(create, put, grow, grow_lane, delete, delete_tree);
}
