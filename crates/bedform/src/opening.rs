//! Opens the storage at a path or URL, and detects the kind of the data there (`detect`).

mod detect;
mod file_at_url;

use std::path::Path;
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_remote::RemoteStorage;
use bedform_storage::{
    FileSystem, LocalStorage, Mode, PAGE_CACHE_BYTES_PER_SECOND, Placement, Profile, Storage,
};

use crate::config;
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::placement::ShardTargets;
use crate::sidecar::Sidecar;

pub(crate) use detect::{NO_FILE, REFERENCES, ReadBytes, file_of, is_file};
pub use detect::{PlaceKind, detect};
pub(crate) use file_at_url::{FileAtUrl, FrontCachedFile, has_query, names_file, read_many};

/// Opens the directory `path` as storage, throttled by `BEDFORM_THROTTLE` if that is set. New
/// shards go to the targets of the options, else to those of `BEDFORM_LUSTRE_TARGETS`.
///
/// # Errors
/// As [`config::pace`], [`ShardTargets::configured`] and [`LocalStorage::open`].
pub fn storage_of(path: &Path, mode: Mode, options: &OpenOptions) -> Result<Arc<dyn Storage>> {
    let targets = match &options.placement {
        Some(placement) => Some(placement.clone()),
        None => ShardTargets::configured()?.map(|targets| targets as Arc<dyn Placement>),
    };
    Ok(match config::pace()? {
        None => shared(LocalStorage::open(path, mode)?, targets, options),
        Some(pace) => shared(LocalStorage::open_throttled(path, mode, pace)?, targets, options),
    })
}

/// Opens the directory `name` of a sidecar as storage, with new shards on the targets of the
/// options. For writing it is created if it is missing.
///
/// # Errors
/// As [`storage_of`]; `NotFound` for a sidecar that is not on a disk of this machine.
pub(crate) fn storage_in_sidecar(
    sidecar: &Sidecar,
    name: &str,
    mode: Mode,
    options: &OpenOptions,
) -> Result<Arc<dyn Storage>> {
    let none = || Error::new(ErrorKind::NotFound, "the sidecar lies on no disk of this machine");
    let (root, owners) = (sidecar.root().ok_or_else(none)?, sidecar.owners());
    let targets = options.placement.clone();
    let storage = match config::pace()? {
        None => shared(LocalStorage::open_of_owners(root, mode, owners)?, targets, options),
        Some(pace) => {
            let opened = LocalStorage::open_of_owners_throttled(root, mode, owners, pace)?;
            shared(opened, targets, options)
        }
    };
    Ok(storage.within(&sidecar.path_of(name)?)?)
}

/// Opens the place at a URL; adds its stored profile and its sidecar to the options.
pub(crate) fn remote_of(
    url: &str,
    mode: Mode,
    options: &mut OpenOptions,
) -> Result<Arc<dyn Storage>> {
    let storage = RemoteStorage::open(url, mode, &options.remote);
    let storage = storage.map_err(|error| Error::invalid(error.to_string()))?;
    add_kept_profile_of(&storage, options);
    add_sidecar(options, Path::new(url));
    Ok(Arc::new(storage))
}

/// As [`remote_of`], for the place that contains the file at a URL; returns the name of the file
/// there, too.
fn remote_file_of(url: &str, options: &mut OpenOptions) -> Result<(Arc<dyn Storage>, ObjectPath)> {
    let opened = RemoteStorage::open_parent(url, &options.remote);
    let (storage, name) = opened.map_err(|error| Error::invalid(error.to_string()))?;
    add_kept_profile_of(&storage, options);
    add_sidecar(options, Path::new(url));
    Ok((Arc::new(storage), name))
}

/// As [`add_kept_profile`], for a URL.
fn add_kept_profile_of(storage: &RemoteStorage, options: &mut OpenOptions) {
    if options.profile.is_none() {
        options.profile = Profile::for_system(storage.system()).ok().flatten();
        options.refines = Profile::place_for_system(storage.system()).ok();
    }
}

fn shared<F: FileSystem>(
    local: LocalStorage<F>,
    targets: Option<Arc<dyn Placement>>,
    options: &OpenOptions,
) -> Arc<dyn Storage> {
    let local = local.placed(targets);
    // A slower device gains nothing from direct reads, and opening an object a second time costs a
    // wait.
    let is_slow = options
        .profile
        .as_ref()
        .is_some_and(|profile| profile.read_bytes_per_second_many < PAGE_CACHE_BYTES_PER_SECOND);
    let goes_past = options.direct_reads && !is_slow;
    Arc::new(if goes_past { local } else { local.through_page_cache() })
}

/// Adds the stored profile for the storage of `path`, unless the options have one, and its sidecar.
pub(crate) fn add_kept_profile(options: &mut OpenOptions, path: &Path) {
    add_profile(options, path);
    add_sidecar(options, path);
}

fn add_profile(options: &mut OpenOptions, path: &Path) {
    // Looked up once, even if there is none.
    if options.profile.is_none() && options.refines.is_none() {
        // An unreadable profile must not prevent reading the data.
        options.profile = Profile::for_path(path).ok().flatten();
        options.refines = Profile::place_for_path(path).ok();
    }
}

/// Sets the sidecar of the store or file at `path`, unless the options have one.
pub(crate) fn add_sidecar(options: &mut OpenOptions, path: &Path) {
    if options.sidecar.is_none() {
        options.sidecar = Sidecar::of_path(path).ok().flatten();
    }
}

/// Copies the options for the file at `path`, with its profile, and `own` as the sidecar unless
/// they have one.
pub(crate) fn with_kept_profile(
    options: &OpenOptions,
    path: &Path,
    own: Option<&Sidecar>,
) -> OpenOptions {
    let sidecar = options.sidecar.as_ref().or(own).cloned();
    let mut own = OpenOptions { sidecar, ..options.clone() };
    add_profile(&mut own, path);
    own
}

/// The URL in `path`, if it is one.
pub(crate) fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

pub(crate) fn check_local(path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid("the path is empty: give a store"));
    }
    if path.to_string_lossy().contains("://") {
        let text = format!("{}: only directories of this machine can be opened", path.display());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}
