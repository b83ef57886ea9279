//! Which directory holds the sidecar of a source, and whose files lie in it.

use std::fmt::Debug;
use std::fs::{DirBuilder, Metadata, symlink_metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_storage::{LocalStorage, Mode, Storage, Version};

use super::Sidecar;
use crate::error::{Error, Result};
use crate::size;

const PLACE_VARIABLE: &str = "BEDFORM_SIDECAR";
const BYTES_VARIABLE: &str = "BEDFORM_SIDECAR_BYTES";
const BYTES: u64 = 1 << 30;
/// Behind the name of a source.
const SUFFIX: &str = ".bedform";
/// Between the name of the first file of many and that.
const ARCHIVE: &str = ".archive";

/// What holds sidecars: a place, and the word on whose files lie there.
pub(super) trait Holder: Send + Sync + Debug {
    /// The place, if it is there.
    fn to_read(&self) -> Option<Arc<dyn Storage>>;

    /// The place, made if it is missing; nothing where it cannot be written.
    fn to_write(&self) -> Option<Arc<dyn Storage>>;

    /// The directory of this machine that it is, if it is one.
    fn local(&self) -> Option<&Path> {
        None
    }

    /// True if the object at `path`, which was opened as `version`, may be believed.
    fn is_own(&self, path: &ObjectPath, version: &Version) -> bool;
}

/// A storage whose objects are all trusted.
#[derive(Debug)]
pub(super) struct TrustedStorage(pub(super) Arc<dyn Storage>);

impl Holder for TrustedStorage {
    fn to_read(&self) -> Option<Arc<dyn Storage>> {
        Some(self.0.clone())
    }

    fn to_write(&self) -> Option<Arc<dyn Storage>> {
        Some(self.0.clone())
    }

    fn is_own(&self, _: &ObjectPath, _: &Version) -> bool {
        true
    }
}

/// A directory of this machine, of whose files those of one user count.
#[derive(Debug)]
pub(super) struct OwnDirectory {
    pub(super) path: PathBuf,
    pub(super) user: u32,
    /// Whether it is made if it is missing.
    pub(super) makes: bool,
}

impl Holder for OwnDirectory {
    fn to_read(&self) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(LocalStorage::open(&self.path, Mode::ReadOnly).ok()?.through_page_cache()))
    }

    fn to_write(&self) -> Option<Arc<dyn Storage>> {
        if self.makes {
            // A helper file may hold what its source does, which perhaps nobody else may read.
            DirBuilder::new().recursive(true).mode(0o700).create(&self.path).ok()?;
        }
        Some(Arc::new(LocalStorage::open(&self.path, Mode::ReadWrite).ok()?))
    }

    fn local(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_own(&self, path: &ObjectPath, version: &Version) -> bool {
        // The name may stand for another file by now: what was opened has to be the one that is asked about.
        symlink_metadata(self.path.join(path.as_str())).is_ok_and(|found| {
            found.is_file()
                && found.uid() == self.user
                && (found.dev(), found.ino()) == version.identity
        })
    }
}

pub(super) fn of_path(path: &Path) -> Result<Option<Sidecar>> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    of_name(&path, &path)
}

/// The sidecar of many files together, the first of which is at this resolved path.
pub(super) fn of_archive(first: &Path) -> Result<Option<Sidecar>> {
    of_name(&archive_name(first), first)
}

/// What names the sidecar of an archive: more files may come, and others go.
fn archive_name(first: &Path) -> PathBuf {
    let mut name = first.to_owned().into_os_string();
    name.push(ARCHIVE);
    name.into()
}

/// The sidecar beside `name`, or among those of many by that name, of the source at the resolved path `source`.
fn of_name(name: &Path, source: &Path) -> Result<Option<Sidecar>> {
    let budget_bytes = Some(budget_of_environment()?);
    let user = rustix::process::geteuid().as_raw();
    let is_elsewhere = variable(PLACE_VARIABLE).is_some();
    let mut beside = name.to_owned().into_os_string();
    beside.push(SUFFIX);
    let is_own = |found: Metadata| found.is_dir() && found.uid() == user;
    if !is_elsewhere && symlink_metadata(&beside).is_ok_and(is_own) {
        let holder = OwnDirectory { path: beside.into(), user, makes: false };
        let directory = ObjectPath::root();
        let (holder, source) = (Arc::new(holder), Some(source.into()));
        return Ok(Some(Sidecar { holder, directory, budget_bytes: None, source }));
    }
    let found = base_of_keyed().and_then(|base| keyed(base, user, name, budget_bytes));
    Ok(found.map(|sidecar| Sidecar { source: Some(source.into()), ..sidecar }))
}

/// The directory that holds the sidecars of many sources; nothing where the environment names none.
fn base_of_keyed() -> Option<PathBuf> {
    variable(PLACE_VARIABLE).or_else(|| {
        // The XDG rules: a relative path there is to be ignored.
        let cache = variable("XDG_CACHE_HOME").filter(|place| place.is_absolute());
        let cache = cache.or_else(|| variable("HOME").map(|home| home.join(".cache")));
        cache.map(|cache| cache.join("bedform/sidecars"))
    })
}

/// Makes the sidecar beside the source at `path`, where that can be done and no variable names another place.
pub(super) fn make_beside(path: &Path) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    make_beside_name(&path, &path);
}

/// As [`make_beside`], of many files, the first of which is at this resolved path.
pub(super) fn make_beside_archive(first: &Path) {
    make_beside_name(&archive_name(first), first);
}

fn make_beside_name(name: &Path, source: &Path) {
    if variable(PLACE_VARIABLE).is_none() && symlink_metadata(source).is_ok() {
        let mut beside = name.to_owned().into_os_string();
        beside.push(SUFFIX);
        // One that is there, and one that cannot be made, are no errors: then it is in the cache.
        let _ = DirBuilder::new().mode(0o700).create(&beside);
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn budget_of_environment() -> Result<u64> {
    match variable(BYTES_VARIABLE) {
        None => Ok(BYTES),
        Some(text) => size::from_text(&text.to_string_lossy())
            .map_err(|error| Error::invalid(format!("{BYTES_VARIABLE}: {error}"))),
    }
}

/// The sidecar of `source` among those of many sources.
fn keyed(base: PathBuf, user: u32, source: &Path, budget_bytes: Option<u64>) -> Option<Sidecar> {
    let directory = ObjectPath::parse(&key_of(source)).ok()?;
    let holder = OwnDirectory { path: base, user, makes: true };
    Some(Sidecar { holder: Arc::new(holder), directory, budget_bytes, source: Some(source.into()) })
}

/// The name of a source's sidecar among those of many.
pub(super) fn key_of(source: &Path) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.update(source.as_os_str().as_bytes());
    format!("{:032x}", fingerprint.finish())
}

/// True for a name that [`key_of`] gives.
pub(super) fn is_key(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
