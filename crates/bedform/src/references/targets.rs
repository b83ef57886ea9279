//! The files that references name: opened once, few at a time, and checked against the version that
//! was read first.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::references::References;
use bedform_format::shown::printable;
use bedform_remote::RemoteStorage;
use bedform_storage::{Mode, Object, Storage, StorageError, Version, open_files_max};

use super::object::{dangling, named};
use super::roots::{AllowedRoots, PermittedPlace};
use crate::opening::{has_query, storage_of};
use crate::options::OpenOptions;

type Stored<T> = std::result::Result<T, StorageError>;

/// The most open files, and the divisor of the files that the process may open.
const OPEN_MAX: u64 = 256;
const OPEN_SHARE: u64 = 8;
/// The most characters of a path in a message.
const SHOWN_CHARS: usize = 300;

/// The files of a set of references.
#[derive(Debug)]
pub(super) struct ReferenceTargets {
    set: Arc<References>,
    roots: AllowedRoots,
    options: OpenOptions,
    open_max: usize,
    state: Mutex<TargetsState>,
}

/// Storages, versions and open files, under one lock.
#[derive(Debug, Default)]
struct TargetsState {
    /// Storages by root directory or server: at most as many as open files, since each may hold a
    /// descriptor.
    storages: HashMap<String, Arc<dyn Storage>>,
    /// Locations in `storages`, by target.
    locations: HashMap<u32, TargetLocation>,
    /// The version of each file when it was first seen.
    versions: HashMap<u32, Version>,
    open: HashMap<u32, OpenTarget>,
    uses: u64,
}

/// The storage that holds a target, and the target's path in it.
#[derive(Debug, Clone)]
struct TargetLocation {
    storage: Arc<dyn Storage>,
    path: ObjectPath,
}

/// An open file, and the count of uses at its last use.
#[derive(Debug)]
struct OpenTarget {
    file: Arc<dyn Object>,
    last_use: u64,
    /// True if the file's own reads detect a change.
    is_checked: bool,
}

impl ReferenceTargets {
    pub(super) fn new(set: Arc<References>, roots: AllowedRoots, options: OpenOptions) -> Self {
        let open_max = (open_files_max() / OPEN_SHARE).clamp(1, OPEN_MAX);
        let open_max = usize::try_from(open_max).unwrap_or(1);
        Self { set, roots, options, open_max, state: Mutex::default() }
    }

    /// Returns a file's name for messages, without a query, which may hold a secret.
    pub(super) fn shown(&self, target: u32) -> Arc<str> {
        let name = self.set.target(target);
        let is_web = name.contains("://") && has_query(name);
        let name = if is_web { name.split('?').next().unwrap_or_default() } else { name };
        printable(name, SHOWN_CHARS).into()
    }

    /// Opens the file, to read a range of it or all of it.
    ///
    /// # Errors
    /// `Dangling`, with its name, if it is missing or has changed; `PermissionDenied` if it must
    /// not be read; those of storage.
    pub(super) fn open(&self, target: u32, is_whole: bool) -> Stored<Arc<dyn Object>> {
        let shown = self.shown(target);
        if let Some((file, is_checked)) = self.held(target) {
            if is_checked || file.is_current().map_err(|error| named(error, &shown))? {
                return Ok(file);
            }
            self.state().open.remove(&target);
        }
        let TargetLocation { storage, path } = self.location(target)?;
        // The end of a file, which may come with its opening, is useless for a range elsewhere.
        let opened = if is_whole { storage.open(&path) } else { storage.open_end(&path, 1) };
        let opened: Arc<dyn Object> = opened.map_err(|error| named(error, &shown))?.into();
        self.check(target, opened.version(), &shown)?;
        if !storage.is_remote() {
            self.hold(target, &opened, false);
        } else if let Some(kept) = opened.kept() {
            self.hold(target, &kept, true);
        }
        Ok(opened)
    }

    /// Returns the version of the file.
    ///
    /// # Errors
    /// As [`ReferenceTargets::open`].
    pub(super) fn stat(&self, target: u32) -> Stored<Version> {
        let (shown, location) = (self.shown(target), self.location(target)?);
        let version = location.storage.stat(&location.path);
        let version = version.map_err(|error| named(error, &shown))?;
        self.check(target, &version, &shown)?;
        Ok(version)
    }

    /// Fails for a version other than the one that was seen first.
    fn check(&self, target: u32, version: &Version, shown: &str) -> Stored<()> {
        let mut state = self.state();
        if state.versions.entry(target).or_insert_with(|| version.clone()) == version {
            return Ok(());
        }
        let why = "it has changed since it was first read: make the references again";
        Err(dangling("open", shown, why.to_owned()))
    }

    fn held(&self, target: u32) -> Option<(Arc<dyn Object>, bool)> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let open = state.open.get_mut(&target)?;
        open.last_use = uses;
        Some((Arc::clone(&open.file), open.is_checked))
    }

    /// Keeps a file open, in place of the least recently used one.
    fn hold(&self, target: u32, file: &Arc<dyn Object>, is_checked: bool) {
        let mut state = self.state();
        if state.open.len() >= self.open_max
            && let Some(oldest) =
                state.open.iter().min_by_key(|(_, open)| open.last_use).map(|(target, _)| *target)
        {
            state.open.remove(&oldest);
        }
        let (file, last_use) = (Arc::clone(file), state.uses);
        state.open.insert(target, OpenTarget { file, last_use, is_checked });
    }

    /// Returns the location of the file.
    fn location(&self, target: u32) -> Stored<TargetLocation> {
        if let Some(location) = self.state().locations.get(&target) {
            return Ok(location.clone());
        }
        let name = self.set.target(target);
        let shown = self.shown(target);
        let located = self.roots.locate(name).map_err(|mut error| {
            shown.as_ref().clone_into(&mut error.path);
            error
        })?;
        let location = self.location_of(located, &shown)?;
        self.state().locations.insert(target, location.clone());
        Ok(location)
    }

    fn location_of(&self, located: PermittedPlace, shown: &str) -> Stored<TargetLocation> {
        let unusable = |_| dangling("open", shown, "its name is not one that is read".to_owned());
        let failed = |error: &dyn Display| dangling("open", shown, error.to_string());
        match located {
            PermittedPlace::Local { root, path } => {
                let path = ObjectPath::parse(&path).map_err(unusable)?;
                let open = || storage_of(&root, Mode::ReadOnly, &self.options);
                let storage = self
                    .storage(&root.to_string_lossy(), || open().map_err(|error| failed(&error)))?;
                Ok(TargetLocation { storage, path })
            }
            // The server interprets escapes and queries.
            PermittedPlace::Remote { server, path } if path.contains(['%', '?', '#']) => {
                let url = format!("{server}/{path}");
                let opened = RemoteStorage::open_parent(&url, &self.options.remote);
                let (storage, path) = opened.map_err(|error| failed(&error))?;
                let storage = self.storage(&parent_of(&url), || Ok(Arc::new(storage)))?;
                Ok(TargetLocation { storage, path })
            }
            PermittedPlace::Remote { server, path } => {
                let path = ObjectPath::parse(&path).map_err(unusable)?;
                let open = || RemoteStorage::open(&server, Mode::ReadOnly, &self.options.remote);
                let storage = self
                    .storage(&server, || Ok(Arc::new(open().map_err(|error| failed(&error))?)))?;
                Ok(TargetLocation { storage, path })
            }
        }
    }

    /// Returns the storage of a root directory or server; `open` opens it if it is not open yet.
    fn storage(
        &self,
        key: &str,
        open: impl FnOnce() -> Stored<Arc<dyn Storage>>,
    ) -> Stored<Arc<dyn Storage>> {
        if let Some(storage) = self.state().storages.get(key) {
            return Ok(Arc::clone(storage));
        }
        let storage = open()?;
        let mut state = self.state();
        if state.storages.len() >= self.open_max {
            state.storages.clear();
            state.locations.clear();
        }
        Ok(Arc::clone(state.storages.entry(key.to_owned()).or_insert(storage)))
    }

    fn state(&self) -> MutexGuard<'_, TargetsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the common part of URLs whose files lie in one storage: all but the name of the file. It
/// ends with a slash or has a query, which distinguishes it from a server.
fn parent_of(url: &str) -> String {
    let (path, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let parent = path.rsplit_once('/').map_or(path, |(parent, _)| parent);
    format!("{parent}/{query}")
}
