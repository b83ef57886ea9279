//! Stores in directories, at URLs, and in foreign files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::references::References;
use bedform_storage::{Mode, NewDirectories, Storage};
use serde_json::{Map, Value};

use super::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::{ArchiveOptions, ForeignFile};
use crate::log::opened::OpenedStore;
use crate::opening::{
    FileAtUrl, PlaceKind, add_kept_profile, add_sidecar, check_local, detect, has_query, is_file,
    names_file, remote_of, storage_of, url_of,
};
use crate::options::OpenOptions;
use crate::references::ReferenceStorage;

impl Store {
    /// Opens the store at `path`, a directory, or the URL of one in an object store: see
    /// [`RemoteStorage::open`](bedform_remote::RemoteStorage::open). The stored profile of its
    /// storage is used unless the options have one. A group or an array of a store can be opened by
    /// its own path, for reading while everything is settled. A file is opened as by
    /// [`ForeignFile::open`] and [`ForeignFile::open_url`]: its variables are the arrays of the
    /// store.
    ///
    /// # Errors
    /// As [`Store::open`]; `Unsupported` for anything but a path of this machine or a URL;
    /// `InvalidArgument` for a part of a store that is opened for writing, or whose store has
    /// unsettled commits. For a file those of [`ForeignFile::open`], and `ReadOnly` if it is opened
    /// for writing.
    pub fn open_path(path: &Path, options: OpenOptions) -> Result<Self> {
        match url_of(path) {
            Some(url) => Self::open_url(url, options),
            None if is_file(path) => Self::open_file(path, options),
            None => OpenedStore::open_path(path, options).map(Self::of),
        }
    }

    /// Opens a file if the URL ends like one, else a store if there is one.
    fn open_url(url: &str, options: OpenOptions) -> Result<Self> {
        let file = || {
            let mut own = options.clone();
            let opened = FileAtUrl::open(url, &mut own)?;
            if opened.file.kind()? == PlaceKind::References {
                let storage = ReferenceStorage::at_url(url, &opened.file, &own)?;
                return Self::open(Arc::new(storage), own);
            }
            Ok(Self::of_file(ForeignFile::at_url(opened, &own)?, options.clone()))
        };
        let store = || OpenedStore::open_path(Path::new(url), options.clone()).map(Self::of);
        let (first, second): (&dyn Fn() -> Result<Self>, &dyn Fn() -> Result<Self>) =
            if names_file(url) { (&file, &store) } else { (&store, &file) };
        if options.writable {
            return store();
        }
        if has_query(url) {
            return file();
        }
        first().or_else(|error| match error.kind() {
            // If neither exists, report the absence of the more likely one.
            ErrorKind::NotFound => second().map_err(|other| match other.kind() {
                ErrorKind::NotFound => error,
                _ => other,
            }),
            _ => Err(error),
        })
    }

    fn open_file(path: &Path, options: OpenOptions) -> Result<Self> {
        if options.writable {
            return Err(never_written(&path.display().to_string()));
        }
        let mut own = options.clone();
        add_kept_profile(&mut own, path);
        match ForeignFile::open(path, &own) {
            // Checked only after a failure: few files are sets of references.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                if detect(path, &options)? != PlaceKind::References {
                    return Err(error);
                }
                let storage = Arc::new(ReferenceStorage::open(path, &options)?);
                Self::open_in_place(storage, Some(path), options)
            }
            opened => Ok(Self::of_file(opened?, own)),
        }
    }

    /// Opens NetCDF and HDF5 files as one, read-only. Variables with the dimension that `how` names
    /// are joined along it, in the order of `paths`; other variables come from the first file.
    ///
    /// # Errors
    /// As [`ForeignFile::open_archive`]; `ReadOnly` if it is opened for writing.
    pub fn open_archive(
        paths: &[PathBuf],
        how: &ArchiveOptions<'_>,
        options: OpenOptions,
    ) -> Result<Self> {
        if options.writable {
            let text = "foreign files are never written; open them with mode \"r\"";
            return Err(Error::new(ErrorKind::ReadOnly, text));
        }
        Ok(Self::of_file(ForeignFile::open_archive(paths, how, &options)?, options))
    }

    /// Opens a set of references in memory as a store. Messages call it `name`, relative paths of
    /// files start at `base`, and `place` is the path that has the sidecar, if the references come
    /// from a file.
    ///
    /// # Errors
    /// As [`Store::open`]; `ReadOnly` if it is opened for writing.
    pub fn open_references(
        name: &str,
        set: References,
        base: &Path,
        place: Option<&Path>,
        options: OpenOptions,
    ) -> Result<Self> {
        if options.writable {
            return Err(never_written(name));
        }
        let storage = ReferenceStorage::in_memory(name.to_owned(), set, base, &options)?;
        Self::open_in_place(Arc::new(storage), place, options)
    }

    /// As [`Store::open`], for storage made from the path `place`: with its sidecar, and with its
    /// stored profile unless the bytes are on a server.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_in_place(
        storage: Arc<dyn Storage>,
        place: Option<&Path>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        match place {
            Some(place) if storage.is_remote() => add_sidecar(&mut options, place),
            Some(place) => add_kept_profile(&mut options, place),
            None => {}
        }
        Self::open(storage, options)
    }

    /// Creates an empty store in the directory `path`, which is missing or empty, with its missing
    /// parents; or at a URL of an object store. A stored profile is used as in
    /// [`Store::open_path`]. Durable on return.
    ///
    /// # Errors
    /// As [`Store::create`]; `Unsupported` for anything but a path of this machine or a URL;
    /// `InvalidArgument` for a URL that cannot be written to.
    pub fn create_path(
        path: &Path,
        attributes: &Map<String, Value>,
        mut options: OpenOptions,
    ) -> Result<Self> {
        if let Some(url) = url_of(path) {
            let storage = remote_of(url, Mode::Create, &mut options)?;
            return Self::create(storage, attributes, options);
        }
        check_local(path)?;
        let new = NewDirectories::of(path);
        let create = || {
            let storage = storage_of(path, Mode::Create, &options)?;
            add_kept_profile(&mut options, path);
            Self::create(storage, attributes, options)
        };
        // Without this a refused store would leave an empty directory.
        create().inspect_err(|_| new.remove())
    }
}

/// Makes the error of opening foreign files for writing.
fn never_written(name: &str) -> Error {
    let text = format!("{name}: foreign files are never written; open it with mode \"r\"");
    Error::new(ErrorKind::ReadOnly, text)
}
