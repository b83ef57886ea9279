//! Sidecars: the helper files of a source, which make reads of it faster and can be made again.
//!
//! # Promises
//!
//! - Losing a helper file, or a whole sidecar, loses nothing but time. It may be deleted at any
//!   time.
//! - An error of a sidecar never fails a read: an unreadable helper file counts as absent, and a
//!   failed write is dropped.
//! - A helper file is used only if all of this holds. It belongs to this user, in a sidecar that
//!   this user has made, or to an owner of the site in a sidecar of the site. It is no link and not
//!   larger than its kind may be. It passes the checks of its kind, and was made of the source's
//!   present state.
//! - A reader sees a helper file whole or not at all.
//! - Reading creates nothing beside the data.
//!
//! # Place
//!
//! The sidecar of the source `/data/era5.nc` is the first of these directories:
//!
//! 1. `$BEDFORM_SIDECAR/<key>`, if that variable is set;
//! 2. the place that the site file names, for users who keep the sidecars of the site, if it
//!    exists;
//! 3. `/data/era5.nc.bedform`, if this user has made it here or accepted it, by the `registry`;
//! 4. `$XDG_CACHE_HOME/bedform/sidecars/<key>`, or `~/.cache/bedform/sidecars/<key>`.
//!
//! All other users read the sidecar of the site ([`Sidecar::site`]) in addition to their own, and
//! write nothing there. The key is the [fingerprint](bedform_format::checksum::Fingerprint) of the
//! source's resolved path. Many files that are read as one have the sidecar of the path
//! `/data/era5-2001.nc.archive` if their first file is `/data/era5-2001.nc`. A longer list of files
//! that begins with the same file finds it too. A read-only open of the source may write its
//! sidecar. A directory of the first or last kind is made, for this user alone, when a helper file
//! is first kept in it.
//!
//! # How
//!
//! - **Kinds.** A [`Helper`] defines its largest size, its encoding, and the version of the source
//!   that it was made of, if it is bound to one. It carries its own checksum. Most kinds are one
//!   file, replaced atomically ([`Sidecar::load`], [`Sidecar::save`]).
//! - **Generations.** A kind that grows by versions has immutable files numbered from 1. The newest
//!   valid one counts. The next number is created only if it is absent, so that the slower of two
//!   writers must read again. Generations before the last are then removed
//!   ([`Sidecar::load_newest`], [`Sidecar::save_next`]).
//! - **Budget.** All sidecars below one directory with keys share a budget of bytes:
//!   `BEDFORM_SIDECAR_BYTES`, 1 GiB by default. After each write, the least recently used sidecars
//!   are removed until the rest fits. A reader notes its use in the object `used`, at most once an
//!   hour. A sidecar with replicas or a value index was made by a call of the user's; it neither
//!   counts nor is removed.
//! - **Renewal.** A helper file of another state of the source is never renewed: it is ignored, and
//!   made again. Replicas, which are large, rest until they have been compared: `optimize/waking`.
//! - **Trust.** All files are opened beneath the directory that holds the sidecar, through no link,
//!   and the owner of the opened file is checked. Sizes are checked before memory is allocated.
//!   Only files with names of Bedform are removed.
//!
//! | module | holds |
//! |---|---|
//! | `place` | the choice of the directory, and the owners of its files |
//! | `registry` | sidecars beside data that this user has made |
//! | `accepting` | sidecars beside data that this user accepts |
//! | `files` | markers, traces, counts and replicas, opened under the same rules as helper files |
//! | `site` | sidecars that all users of an archive read |
//! | `warnings` | reasons why sidecars were not read |
//! | `generations` | numbered files |
//! | `budget` | the bytes of all sidecars of one directory, and the removal of old ones |

mod accepting;
mod budget;
mod files;
mod generations;
mod place;
mod registry;
mod site;
#[cfg(test)]
mod tests;
mod warnings;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::chunk_map::SourceVersion;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Storage, Version};

use crate::error::Result;
use place::{SidecarCandidates, SidecarHolder, TrustedStorage};
use site::{SiteCheck, look_at, open_to_readers};

pub use place::SidecarName;
pub use warnings::take_warnings;

/// The directory of the replicas in a sidecar.
pub(crate) const REPLICAS: &str = "replicas";
/// The directory of the value indexes in a sidecar.
pub(crate) const INDEX: &str = "index";

/// A kind of helper file.
///
/// ```
/// use bedform::sidecar::{Helper, Sidecar};
/// use bedform_format::chunk_map::SourceVersion;
/// use bedform_format::{Limits, ObjectPath};
/// use bedform_storage::MemoryStorage;
///
/// /// How often a file was read: the size that it had, and a number.
/// struct Reads(SourceVersion, u64);
///
/// impl Helper for Reads {
///     const BYTES_MAX: u64 = 16;
///
///     fn encode(&self) -> Option<Vec<u8>> {
///         Some([self.0.size.to_le_bytes(), self.1.to_le_bytes()].concat())
///     }
///
///     fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
///         let (size, reads) = bytes.split_first_chunk()?;
///         let source = SourceVersion { size: u64::from_le_bytes(*size), ..SourceVersion::default() };
///         Some(Self(source, u64::from_le_bytes(reads.try_into().ok()?)))
///     }
///
///     fn source(&self) -> Option<&SourceVersion> {
///         Some(&self.0)
///     }
/// }
///
/// let storage = std::sync::Arc::new(MemoryStorage::new());
/// let sidecar = Sidecar::in_storage(storage, ObjectPath::parse("era5.nc")?, None);
/// let source = SourceVersion { size: 100, ..SourceVersion::default() };
/// assert!(sidecar.save("reads", &Reads(source.clone(), 7)));
/// assert_eq!(sidecar.load::<Reads>("reads", &source, &Limits::default()).unwrap().1, 7);
/// // The source has changed:
/// let source = SourceVersion { size: 101, ..source };
/// assert!(sidecar.load::<Reads>("reads", &source, &Limits::default()).is_none());
/// # Ok::<(), bedform_format::PathError>(())
/// ```
pub trait Helper: Sized {
    /// The largest file of this kind, in bytes: a larger one is neither read nor kept.
    const BYTES_MAX: u64;

    /// Returns the bytes to keep, with a checksum of their own; `None` for a value that cannot be
    /// encoded.
    fn encode(&self) -> Option<Vec<u8>>;

    /// Decodes bytes that nothing has checked yet; `None` for damaged ones, and for those of an
    /// unknown version. Allocates no memory that `limits` or the length of `bytes` do not bound.
    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self>;

    /// Returns the version of the source that the value was made of; `None` if it counts for any
    /// version.
    fn source(&self) -> Option<&SourceVersion> {
        None
    }
}

/// The place of the helper files of one source. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sidecar {
    holder: Arc<dyn SidecarHolder>,
    directory: ObjectPath,
    /// The budget in bytes of all sidecars of the holder; `None` for a sidecar with a place of its
    /// own.
    budget_bytes: Option<u64>,
    /// The name by which it was found.
    name: Option<Arc<SidecarName>>,
    /// True for a sidecar in the user's cache, whose place was not chosen by the user.
    is_in_cache: bool,
    /// The sidecar of the site, which is only read.
    site: Option<Arc<Sidecar>>,
}

impl Sidecar {
    /// Returns the sidecar of the file or directory at `path`; `None` if the environment names no
    /// place. Creates no directory.
    ///
    /// # Errors
    /// `InvalidArgument` for a `BEDFORM_SIDECAR_BYTES` that is not a size.
    pub fn of_path(path: &Path) -> Result<Option<Self>> {
        Self::of_path_in(path, None)
    }

    /// As [`Sidecar::of_path`]; `base` replaces the directory of sidecars that `BEDFORM_SIDECAR`
    /// names.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub fn of_path_in(path: &Path, base: Option<&Path>) -> Result<Option<Self>> {
        Self::find(&SidecarName::of_path(path), base)
    }

    /// Returns the sidecar of this name, with `base` as in [`Sidecar::of_path_in`].
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub fn find(name: &SidecarName, base: Option<&Path>) -> Result<Option<Self>> {
        Ok(SidecarCandidates::of(name, base)?.find())
    }

    /// Searches the sidecar again: a program may have made one in another place since.
    pub(crate) fn found_again(&self) -> Option<Self> {
        Self::find(self.name.as_deref()?, None).ok().flatten()
    }

    /// As [`Sidecar::make_for_replicas`], for the source that this sidecar was found by.
    ///
    /// # Errors
    /// As [`Sidecar::make`].
    pub(crate) fn made_for_contents(&self) -> Result<Option<Self>> {
        self.name.as_deref().map_or(Ok(None), |name| Self::make_for_replicas(name, None))
    }

    /// Returns this user's sidecar of this name, and makes its directory if it is missing. The
    /// directory lies at the site for users who keep its sidecars, else beside the source where
    /// possible, else as in [`Sidecar::of_path`]. `None` if there is no place for it.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`]; those of the site file and of making the directory.
    pub fn make(name: &SidecarName) -> Result<Option<Self>> {
        SidecarCandidates::of(name, None)?.make(true)
    }

    /// As [`Sidecar::make`] for large contents, with `base` as in [`Sidecar::of_path_in`]. `None`
    /// if the sidecar would lie in the user's cache, because the user has not asked for that.
    ///
    /// # Errors
    /// As [`Sidecar::make`].
    pub fn make_for_replicas(name: &SidecarName, base: Option<&Path>) -> Result<Option<Self>> {
        SidecarCandidates::of(name, base)?.make(false)
    }

    /// Returns the sidecar of the site, which this user reads and does not write; `None` if this is
    /// that sidecar.
    pub fn site(&self) -> Option<&Self> {
        self.site.as_deref()
    }

    /// Returns true for a sidecar of the site.
    pub fn is_of_site(&self) -> bool {
        self.holder.site().is_some()
    }

    /// Returns the users whose files count in a sidecar on this machine.
    pub(crate) fn owners(&self) -> &[u32] {
        self.holder.owners()
    }

    /// Returns true if only the owners can have put files into a directory of the sidecar. The
    /// sidecar of this user is assumed to be so.
    pub(crate) fn is_trusted_at(&self, names: &[&str]) -> bool {
        let (Some(directory), Some(site)) = (self.own_directory(), self.holder.site()) else {
            return true;
        };
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        match look_at(&directory, &names, &site.owners, site.file()) {
            SiteCheck::Trusted(_) | SiteCheck::Missing => true,
            SiteCheck::Refused(why) => {
                warnings::tell(why);
                false
            }
        }
    }

    /// Lets all users who may read the source read these directories, if this is a sidecar of the
    /// site.
    pub(crate) fn open_to_readers(&self, names: &[&str]) {
        if let (true, Some(directory)) = (self.is_of_site(), self.own_directory()) {
            names.iter().for_each(|name| open_to_readers(&directory.join(name)));
        }
    }

    /// Returns the directory of the sidecar, whether or not it exists, if it lies on this machine.
    pub fn own_directory(&self) -> Option<PathBuf> {
        let local = self.holder.local()?;
        Some(match self.directory.is_root() {
            true => local.to_owned(),
            false => local.join(self.directory.as_str()),
        })
    }

    /// Returns true if the sidecar exists because a user asked for it: no reader makes one beside
    /// its data.
    pub(crate) fn is_asked_for(&self) -> bool {
        !self.is_in_cache && self.own_directory().is_some_and(|directory| directory.is_dir())
    }

    /// Returns the resolved path of the source, if the sidecar was found by it.
    pub fn source(&self) -> Option<&Path> {
        self.name.as_deref().map(SidecarName::source)
    }

    /// Makes the sidecar in the directory `directory` of `storage`, all of which is trusted. The
    /// budget is for all directories of that storage.
    pub fn in_storage(
        storage: Arc<dyn Storage>,
        directory: ObjectPath,
        budget_bytes: Option<u64>,
    ) -> Self {
        let holder = Arc::new(TrustedStorage(storage));
        Self { holder, directory, budget_bytes, name: None, is_in_cache: false, site: None }
    }

    /// Loads the helper file `name`, if it exists, is trusted, and was made of `source`; else that
    /// of the site.
    pub fn load<H: Helper>(
        &self,
        name: &str,
        source: &SourceVersion,
        limits: &Limits,
    ) -> Option<H> {
        let own = self.load_own(name, source, limits);
        own.or_else(|| self.site()?.load_own(name, source, limits))
    }

    /// As [`Sidecar::load`] without the site, for files that belong to one user, such as a policy.
    pub(crate) fn load_own<H: Helper>(
        &self,
        name: &str,
        source: &SourceVersion,
        limits: &Limits,
    ) -> Option<H> {
        let helper = self.read(&*self.holder.to_read()?, name, source, limits)?;
        self.note_use();
        Some(helper)
    }

    fn read<H: Helper>(
        &self,
        storage: &dyn Storage,
        name: &str,
        source: &SourceVersion,
        limits: &Limits,
    ) -> Option<H> {
        let path = self.directory.join(name).ok()?;
        let bytes = files::bytes_of(&*storage.open(&path).ok()?, 0, H::BYTES_MAX)?;
        let helper = H::decode(&bytes, limits)?;
        helper.source().is_none_or(|then| then == source).then_some(helper)
    }

    /// Keeps a helper file under `name`, in place of any file or link with that name. Returns true
    /// if it was kept.
    pub fn save<H: Helper>(&self, name: &str, helper: &H) -> bool {
        let Some((storage, bytes)) = self.ready_to_write(helper) else { return false };
        let Ok(path) = self.directory.join(name) else { return false };
        let put = storage.put(&path, &bytes, Durability::Process, Condition::None);
        self.keep_within(&*storage);
        put.is_ok()
    }

    /// Returns the storage to write to and the encoded bytes; `None` if the helper file cannot be
    /// kept.
    fn ready_to_write<H: Helper>(&self, helper: &H) -> Option<(Arc<dyn Storage>, Vec<u8>)> {
        let bytes = helper.encode()?;
        let most = H::BYTES_MAX.min(self.budget_bytes.unwrap_or(u64::MAX));
        if bytes.len() as u64 > most {
            return None;
        }
        let storage = self.holder.to_write()?;
        // Removes temporary files of crashed writers.
        let _ = storage.sweep(&self.directory);
        if self.budget_bytes.is_some() {
            // Comes before the first file: without it no budget counts the sidecar.
            budget::note_use(&*storage, &self.directory);
        }
        Some((storage, bytes))
    }

    /// Notes that the sidecar was used, if a budget depends on that.
    fn note_use(&self) {
        if self.budget_bytes.is_none() {
            return;
        }
        if let Some(storage) = self.holder.to_write() {
            budget::note_use(&*storage, &self.directory);
        }
    }

    /// Removes sidecars over the budget, after a file was kept.
    fn keep_within(&self, storage: &dyn Storage) {
        if let Some(bytes) = self.budget_bytes {
            budget::keep_within(storage, bytes, &self.directory);
        }
    }
}

/// Removes the entries of the registry that this machine has made for sidecars beside data, if the
/// sidecar or its data are certainly gone: their directory exists, has other names, and not theirs.
/// Data must be gone for a day. Returns the number of entries; with `dry_run` only counts them.
pub fn prune_registry(dry_run: bool) -> u64 {
    registry::prune(dry_run)
}

/// Returns the version of a storage object as helper files record it.
pub fn source_version(version: &Version) -> SourceVersion {
    SourceVersion {
        size: version.size,
        modified_ns: version.modified_ns,
        changed_ns: version.changed_ns,
        identity: version.identity,
    }
}

/// Returns the same for the metadata of a local file.
pub(crate) fn source_version_of(found: &Metadata) -> SourceVersion {
    let time = |seconds: i64, nanoseconds: i64| {
        seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
    };
    SourceVersion {
        size: found.len(),
        modified_ns: time(found.mtime(), found.mtime_nsec()),
        changed_ns: time(found.ctime(), found.ctime_nsec()),
        identity: (found.dev(), found.ino()),
    }
}
