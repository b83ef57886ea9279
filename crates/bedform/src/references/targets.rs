//! The files that references name: opened once, few at a time, and held to the version that was read first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::references::References;
use bedform_format::shown::printable;
use bedform_remote::RemoteStorage;
use bedform_storage::{Mode, Object, Storage, StorageError, Version, open_files_max};

use super::object::{dangling, named};
use super::roots::{Located, Roots};
use crate::error::Error;
use crate::opening::{has_query, storage_of};
use crate::options::OpenOptions;

type Stored<T> = std::result::Result<T, StorageError>;

/// Files that are open at most, and the share that they take of what the system allows.
const OPEN_MAX: u64 = 256;
const OPEN_SHARE: u64 = 8;
/// Characters of a path in a message.
const SHOWN_CHARS: usize = 300;

/// The files of a set of references.
#[derive(Debug)]
pub(super) struct Targets {
    set: Arc<References>,
    roots: Roots,
    options: OpenOptions,
    open_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By root directory or server.
    storages: HashMap<String, Arc<dyn Storage>>,
    places: HashMap<u32, Place>,
    /// What each file was when it was first seen.
    versions: HashMap<u32, Version>,
    open: HashMap<u32, Open>,
    uses: u64,
}

#[derive(Debug, Clone)]
struct Place {
    storage: Arc<dyn Storage>,
    path: ObjectPath,
}

#[derive(Debug)]
struct Open {
    file: Arc<dyn Object>,
    last_use: u64,
    /// Its reads find out whether it has changed.
    is_checked: bool,
}

impl Targets {
    pub(super) fn new(set: Arc<References>, roots: Roots, options: OpenOptions) -> Self {
        let open_max = (open_files_max() / OPEN_SHARE).clamp(1, OPEN_MAX);
        let open_max = usize::try_from(open_max).unwrap_or(1);
        Self { set, roots, options, open_max, state: Mutex::default() }
    }

    /// A file's name for messages, without a query, which may be a secret.
    pub(super) fn shown(&self, target: u32) -> Arc<str> {
        let name = self.set.target(target);
        let is_web = name.contains("://") && has_query(name);
        let name = if is_web { name.split('?').next().unwrap_or_default() } else { name };
        printable(name, SHOWN_CHARS).into()
    }

    /// The file, opened.
    ///
    /// # Errors
    /// `Dangling`, with its name, if it is missing or has changed; `PermissionDenied` if it may not be read; of
    /// storage.
    pub(super) fn open(&self, target: u32) -> Stored<Arc<dyn Object>> {
        let shown = self.shown(target);
        if let Some((file, is_checked)) = self.held(target) {
            if is_checked || file.is_current().map_err(|error| named(error, &shown))? {
                return Ok(file);
            }
            self.state().open.remove(&target);
        }
        let place = self.place(target)?;
        let opened = place.storage.open(&place.path).map_err(|error| named(error, &shown))?;
        let opened: Arc<dyn Object> = opened.into();
        self.check(target, opened.version(), &shown)?;
        if !place.storage.is_remote() {
            self.hold(target, &opened, false);
        } else if let Some(kept) = opened.kept() {
            self.hold(target, &kept, true);
        }
        Ok(opened)
    }

    /// The version of the file.
    ///
    /// # Errors
    /// As [`Targets::open`].
    pub(super) fn stat(&self, target: u32) -> Stored<Version> {
        let (shown, place) = (self.shown(target), self.place(target)?);
        let version = place.storage.stat(&place.path).map_err(|error| named(error, &shown))?;
        self.check(target, &version, &shown)?;
        Ok(version)
    }

    /// Fails for a version that is not the one that was seen first.
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

    /// Keeps a file open, in the place of the one that was used least recently.
    fn hold(&self, target: u32, file: &Arc<dyn Object>, is_checked: bool) {
        let mut state = self.state();
        if state.open.len() >= self.open_max
            && let Some(oldest) =
                state.open.iter().min_by_key(|(_, open)| open.last_use).map(|(target, _)| *target)
        {
            state.open.remove(&oldest);
        }
        let (file, last_use) = (Arc::clone(file), state.uses);
        state.open.insert(target, Open { file, last_use, is_checked });
    }

    /// Where the file is.
    fn place(&self, target: u32) -> Stored<Place> {
        if let Some(place) = self.state().places.get(&target) {
            return Ok(place.clone());
        }
        let name = self.set.target(target);
        let shown = self.shown(target);
        let located = self.roots.locate(name).map_err(|mut error| {
            shown.as_ref().clone_into(&mut error.path);
            error
        })?;
        let place = self.place_of(located, name, &shown)?;
        self.state().places.insert(target, place.clone());
        Ok(place)
    }

    fn place_of(&self, located: Located, name: &str, shown: &str) -> Stored<Place> {
        let unusable = |_| dangling("open", shown, "its name is not one that is read".to_owned());
        match located {
            Located::Local { root, path } => {
                let path = ObjectPath::parse(&path).map_err(unusable)?;
                let open = || storage_of(&root, Mode::ReadOnly, &self.options);
                let storage = self.storage(&root.to_string_lossy(), shown, &open)?;
                Ok(Place { storage, path })
            }
            // Escapes and queries are the server's business.
            Located::Remote { server, path } if path.contains(['%', '?', '#']) => {
                let url = format!("{server}/{path}");
                let opened = RemoteStorage::open_parent(&url, &self.options.remote);
                let (storage, path) =
                    opened.map_err(|error| dangling("open", shown_of(name), error.to_string()))?;
                Ok(Place { storage: Arc::new(storage), path })
            }
            Located::Remote { server, path } => {
                let path = ObjectPath::parse(&path).map_err(unusable)?;
                let open = || {
                    let opened = RemoteStorage::open(&server, Mode::ReadOnly, &self.options.remote);
                    let opened = opened.map_err(|error| Error::invalid(error.to_string()))?;
                    Ok(Arc::new(opened) as Arc<dyn Storage>)
                };
                Ok(Place { storage: self.storage(&server, shown, &open)?, path })
            }
        }
    }

    /// The storage of a root directory or server.
    fn storage(
        &self,
        key: &str,
        shown: &str,
        open: &dyn Fn() -> crate::error::Result<Arc<dyn Storage>>,
    ) -> Stored<Arc<dyn Storage>> {
        if let Some(storage) = self.state().storages.get(key) {
            return Ok(Arc::clone(storage));
        }
        let storage = open().map_err(|error| dangling("open", shown, error.to_string()))?;
        Ok(Arc::clone(self.state().storages.entry(key.to_owned()).or_insert(storage)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown_of(name: &str) -> &str {
    name.split('?').next().unwrap_or_default()
}
