//! Sets of references as storages: a kerchunk document is a read-only storage whose objects are
//! inline bytes or ranges of other files. The Zarr store in it is then opened like any other.
//!
//! # Promises
//!
//! - A file is read only if it lies below the directory of the references, or below a root that the
//!   caller allows ([`ExternalFiles`](crate::ExternalFiles)). Links are resolved first. The
//!   protocols are files and those of `bedform-remote`; the references choose no credentials and no
//!   server options.
//! - A file that is missing, too short, or changed since this storage read it first is an error
//!   that names it. It is never a missing chunk, which would read as the fill value, and never
//!   bytes of another version. Kerchunk's references do not record the version of a file; earlier
//!   changes go unnoticed.
//! - Few files are open at a time, however many the references name.
//!
//! # How
//!
//! The [version](bedform_storage::Version) of a reference is that of its file combined with the
//! range; that of an inline one is computed from its bytes. Caches, freshness and replicas use it
//! as for other objects.
//!
//! | module | holds |
//! |---|---|
//! | `object` | opened references |
//! | `roots` | the rules for files that may be read |
//! | `targets` | the files: their storages, versions and open handles |

mod object;
mod roots;
mod targets;

use std::path::Path;
use std::sync::Arc;

use bedform_format::references::{Reference, References, ReferencesError};
use bedform_format::{Limits, ObjectPath};
use bedform_storage::implement::unsupported;
use bedform_storage::{
    ListedEntry, Lock, Object, Storage, StorageError, StorageErrorKind, Version, forward, lacks,
};

use crate::error::{Error, ErrorKind, Result};
use crate::opening::{FrontCachedFile, file_of};
use crate::options::OpenOptions;
use object::{InlineObject, RangeObject};
use roots::{AllowedRoots, ReferenceBase};
use targets::ReferenceTargets;

type Stored<T> = std::result::Result<T, StorageError>;

/// A set of references as a storage, or a directory of one. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReferenceStorage {
    shared: Arc<SharedReferences>,
    /// The directory of the set that is the root of this storage.
    root: ObjectPath,
}

/// The parts of a [`ReferenceStorage`] that its clones share.
#[derive(Debug)]
struct SharedReferences {
    name: String,
    set: Arc<References>,
    targets: ReferenceTargets,
    /// As in [`Storage::identity`].
    identity: Option<String>,
    /// The time at which the references were written, in nanoseconds since 1970; 0 if it is
    /// unknown.
    modified_ns: i64,
    is_remote: bool,
}

impl ReferenceStorage {
    /// Opens the references in the file at `path`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `LimitExceeded` by the document; those of storage;
    /// `InvalidArgument` for invalid roots.
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
        Self::of(shown, set, ReferenceBase::Directory(parent), options)
            .map(|made| made.known_as(identity, modified_ns))
    }

    /// Reads the references in the opened file at `url`.
    ///
    /// # Errors
    /// As [`ReferenceStorage::open`].
    pub(crate) fn at_url(url: &str, file: &FrontCachedFile, options: &OpenOptions) -> Result<Self> {
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let size = file.object.version().size;
        let set = read(size, &|buffer| file.read(0, buffer), shown, &options.limits)?;
        let parent = shown.rsplit_once('/').map_or(shown, |(parent, _)| parent);
        Self::of(shown.to_owned(), set, ReferenceBase::Url(parent.to_owned()), options)
    }

    /// Makes a storage of references in memory, with the name `name`. Relative paths are relative
    /// to the directory `base`.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid roots.
    pub fn in_memory(
        name: String,
        set: References,
        base: &Path,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::of(name, set, ReferenceBase::Directory(base.to_owned()), options)
    }

    fn of(
        name: String,
        set: References,
        base: ReferenceBase,
        options: &OpenOptions,
    ) -> Result<Self> {
        let set = Arc::new(set);
        let roots = AllowedRoots::new(base, &options.external)?;
        let is_remote = set.targets().iter().any(|target| roots.is_url(target));
        let targets = ReferenceTargets::new(Arc::clone(&set), roots, options.clone());
        let shared =
            SharedReferences { name, set, targets, identity: None, modified_ns: 0, is_remote };
        Ok(Self { shared: Arc::new(shared), root: ObjectPath::root() })
    }

    fn known_as(mut self, identity: Option<String>, modified_ns: i64) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            (shared.identity, shared.modified_ns) = (identity, modified_ns);
        }
        self
    }

    /// Returns the path in the set of references.
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

/// Parses the references in a file of `size` bytes, which `fill` reads.
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

/// Parses a document of references; errors name it `name`.
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
        // The storage is read-only, so this time dates nothing.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(now.ok().and_then(|now| i64::try_from(now.as_nanos()).ok()).unwrap_or_default())
    }

    fn sibling(&self, _: &str) -> Stored<Arc<dyn Storage>> {
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

    lacks!(open_end, request_end, sync, sweep, try_lock, try_lock_of_dead);
    lacks!(workspace, publish_tree, publish_object, can_sync_all, sync_all);
    lacks!(create, put, grow, grow_lane, delete, delete_tree);
    forward!(implement as Storage: is_current);
}
