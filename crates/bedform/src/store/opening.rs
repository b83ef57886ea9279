//! Stores in directories, and options from JSON, as the doors hand them over.

use std::path::Path;
use std::sync::Arc;

use bedform_storage::{
    Durability, FileSystem, LocalStorage, Mode, Placement, Profile, RemoteStorage, Storage,
};
use serde_json::{Map, Value};

use super::{Freshness, OpenOptions, Store};
use crate::config;
use crate::error::{Error, ErrorKind, Result};
use crate::placement::ShardTargets;
use crate::size;
use crate::zarr::outer::Outer;

impl OpenOptions {
    /// Reads options: `writable`, `cache_bytes`, `freshness` (`"read"`, `"open"`, `"never"`),
    /// `durability` (`"disk"`, `"process"`), `threads`, `gap_bytes`, `profile` (a document of
    /// `calibrate`), `direct_reads`, and for object stores `anonymous`, `endpoint`, `region` and
    /// `single_writer`, each optional; null stands for the default.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault.
    ///
    /// ```
    /// let given = serde_json::json!({"cache_bytes": 0, "durability": "process"});
    /// let options = bedform::OpenOptions::from_json(given.as_object().unwrap())?;
    /// assert_eq!(options.cache_bytes, 0);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn from_json(given: &Map<String, Value>) -> Result<Self> {
        let mut options = Self::default();
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || Error::invalid(format!("not a value of {key}: {value}"));
            match (key.as_str(), value.as_str()) {
                ("writable", _) => options.writable = value.as_bool().ok_or_else(bad)?,
                ("direct_reads", _) => options.direct_reads = value.as_bool().ok_or_else(bad)?,
                ("anonymous", _) => {
                    options.remote.anonymous = value.as_bool().ok_or_else(bad)?;
                }
                ("single_writer", _) => {
                    options.remote.single_writer = value.as_bool().ok_or_else(bad)?;
                }
                ("endpoint", Some(text)) => options.remote.endpoint = Some(text.to_owned()),
                ("region", Some(text)) => options.remote.region = Some(text.to_owned()),
                ("cache_bytes", _) => options.cache_bytes = size::from_json(key, value)?,
                ("gap_bytes", _) => options.gap_bytes = Some(size::from_json(key, value)?),
                ("threads", _) => {
                    let threads = value.as_u64().and_then(|n| usize::try_from(n).ok());
                    options.threads = Some(threads.ok_or_else(bad)?);
                }
                ("profile", _) => {
                    let profile = Profile::from_json("the profile", &value.to_string());
                    let profile = profile.map_err(|error| Error::invalid(error.to_string()))?;
                    options.profile = Some(profile);
                }
                ("freshness", Some("read")) => options.freshness = Freshness::Read,
                ("freshness", Some("open")) => options.freshness = Freshness::Open,
                ("freshness", Some("never")) => options.freshness = Freshness::Never,
                ("durability", Some("disk")) => options.durability = Durability::Disk,
                ("durability", Some("process")) => options.durability = Durability::Process,
                ("freshness" | "durability" | "endpoint" | "region", _) => return Err(bad()),
                _ => return Err(Error::invalid(format!("there is no option {key:?}"))),
            }
        }
        Ok(options)
    }
}

impl Store {
    /// Opens the store at `path`, a directory, or the URL of one in an object store: see
    /// [`RemoteStorage::open`]. It comes with the profile that is kept for its storage unless the options
    /// have one. A group or an array of a store can be opened by its own path, to be read
    /// while everything is settled.
    ///
    /// # Errors
    /// As [`Store::open`]; `Unsupported` for what is no path of this machine; `InvalidArgument` for a
    /// part of a store that is to be written to, or that has commits which are not settled.
    pub fn open_path(path: &Path, mut options: OpenOptions) -> Result<Self> {
        if let Some(url) = url_of(path) {
            return Self::open_url(url, options);
        }
        check_local(path)?;
        add_kept_profile(&mut options, path);
        let outer = Outer::of(path, &options);
        if let Some(outer) = outer.as_ref().filter(|_| options.writable) {
            return Err(outer.refuse_writing());
        }
        let mode = if options.writable { Mode::ReadWrite } else { Mode::ReadOnly };
        Self::open_in(storage_of(path, mode, &options)?, options, outer)
    }

    fn open_url(url: &str, mut options: OpenOptions) -> Result<Self> {
        let mode = if options.writable { Mode::ReadWrite } else { Mode::ReadOnly };
        let storage = remote_of(url, mode, &mut options)?;
        Self::open_in(storage, options, None)
    }

    /// Creates an empty store in the directory `path`, which is missing or empty; missing parents are
    /// made; or at a URL of an object store. It comes with a profile as in [`Store::open_path`]. Durable on
    /// return.
    ///
    /// # Errors
    /// As [`Store::create`]; `Unsupported` for what is no path of this machine; `InvalidArgument` for a
    /// URL that cannot be written to.
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
        let storage = storage_of(path, Mode::Create, &options)?;
        add_kept_profile(&mut options, path);
        Self::create(storage, attributes, options)
    }
}

/// Gives the options the profile that is kept for the storage of `path`, unless they have one.
fn add_kept_profile(options: &mut OpenOptions, path: &Path) {
    if options.profile.is_none() {
        // A kept profile that cannot be read must not keep data from being read.
        options.profile = Profile::for_path(path).ok().flatten();
    }
}

/// The directory `path` as storage, as slow as `BEDFORM_THROTTLE` says if it is set, with shards on the targets
/// of `BEDFORM_LUSTRE_TARGETS`.
///
/// # Errors
/// As [`config::pace`], [`ShardTargets::configured`] and [`LocalStorage::open`].
pub fn storage_of(path: &Path, mode: Mode, options: &OpenOptions) -> Result<Arc<dyn Storage>> {
    let targets = ShardTargets::configured()?;
    Ok(match config::pace()? {
        None => shared(LocalStorage::open(path, mode)?, targets, options),
        Some(pace) => shared(LocalStorage::open_throttled(path, mode, pace)?, targets, options),
    })
}

/// The place at a URL; the options get the profile that is kept for it.
fn remote_of(url: &str, mode: Mode, options: &mut OpenOptions) -> Result<Arc<dyn Storage>> {
    let storage = RemoteStorage::open(url, mode, &options.remote);
    let storage = storage.map_err(|error| Error::invalid(error.to_string()))?;
    if options.profile.is_none() {
        // As for a path.
        options.profile = Profile::for_remote(&storage).ok().flatten();
    }
    Ok(Arc::new(storage))
}

fn shared<F: FileSystem>(
    local: LocalStorage<F>,
    targets: Option<Arc<dyn Placement>>,
    options: &OpenOptions,
) -> Arc<dyn Storage> {
    let local = local.placed(targets);
    Arc::new(if options.direct_reads { local } else { local.through_page_cache() })
}

/// The URL that `path` is, if it is one.
fn url_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

fn check_local(path: &Path) -> Result<()> {
    if path.as_os_str().is_empty() {
        return Err(Error::invalid("the path is empty: give a store"));
    }
    if path.to_string_lossy().contains("://") {
        let text = format!("{}: only directories of this machine can be opened", path.display());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}
