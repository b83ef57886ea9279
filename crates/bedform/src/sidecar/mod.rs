//! Sidecars: the helper files of a source, which make reads of it faster and can be made again.
//!
//! # Promises
//!
//! - Losing a helper file, or a whole sidecar, loses nothing but time. It may be deleted at any time.
//! - An error of a sidecar never fails a read: what cannot be read is absent, what cannot be kept is not kept.
//! - A helper file is believed only if it belongs to this user, in a sidecar that this user has made, or to an owner of the site in a sidecar of the site;
//!   is no link; is not larger than its kind may be; passes the checks of its kind; and was made of the source as it
//!   is now.
//! - A reader sees a helper file whole or not at all.
//! - Reading creates nothing beside the data.
//!
//! # Place
//!
//! The sidecar of the source `/data/era5.nc` is the first of these directories:
//!
//! 1. `$BEDFORM_SIDECAR/<key>`, if that variable is set;
//! 2. the place that the site file names, for those who keep the sidecars of the site, if it exists;
//! 3. `/data/era5.nc.bedform`, if this user has made it here, or accepted it: the `registry` says so;
//! 4. `$XDG_CACHE_HOME/bedform/sidecars/<key>`, or `~/.cache/bedform/sidecars/<key>`.
//!
//! All other users read that of the site ([`Sidecar::site`]) beside their own, and write nothing there. The key is
//! the [fingerprint](bedform_format::checksum::Fingerprint) of the source's resolved path. Many files that are read
//! as one have the sidecar of `/data/era5-2001.nc.archive`, if that is the first of them: files that come later find
//! it. A read-only open of the source may write its sidecar: a directory of the first or last kind is made when
//! something is kept in it, for this user alone.
//!
//! # How
//!
//! - **Kinds.** A [`Helper`] says how large it may be, how it becomes bytes and back, and which version of the
//!   source it was made of, if it counts for that alone. It carries its own checksum. Most kinds are one file,
//!   replaced in one step ([`Sidecar::load`], [`Sidecar::save`]).
//! - **Generations.** A kind that grows by versions has immutable files numbered from 1. The newest valid one
//!   counts. The next number is created only if it is absent, so that of two writers one has to look again;
//!   generations before the last are then removed ([`Sidecar::load_newest`], [`Sidecar::save_next`]).
//! - **Budget.** All sidecars below one directory with keys share a budget of bytes: `BEDFORM_SIDECAR_BYTES`,
//!   1 GiB without it. Whoever keeps something removes the sidecars that were used least recently until the
//!   rest fits. A reader notes its use in the object `used`, at most once an hour. A sidecar with replicas, which
//!   somebody has asked for with a budget of their own, neither counts nor goes.
//! - **Renewal.** There is none: a helper file of another state of the source counts for nothing, and is made anew.
//!   Replicas, which are large, rest until they were compared: `optimize/waking`.
//! - **Trust.** All files are opened beneath the directory that holds the sidecar, through no link, and the opened file
//!   is asked for its owner. Sizes are compared before memory is taken. Only names that we made are removed.
//!
//! | module | holds |
//! |---|---|
//! | `place` | which directory it is, and whose files lie there |
//! | `registry` | sidecars beside data that this user has made |
//! | `accepting` | sidecars beside data that this user accepts |
//! | `files` | markers, traces, counts and replicas, reached as helper files are |
//! | `site` | sidecars that all users of an archive read |
//! | `warnings` | what keeps one from being read |
//! | `generations` | numbered files |
//! | `budget` | what is kept in all, and what goes first |

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
use place::{Holder, SidecarCandidates, TrustedStorage};
use site::{Look, look_at, open_to_readers};

pub use place::SidecarName;
pub use warnings::take_warnings;

/// The directory of the replicas in a sidecar.
pub(crate) const REPLICAS: &str = "replicas";

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

    /// The bytes to keep, with whatever tells that they are whole; nothing for a value that has none.
    fn encode(&self) -> Option<Vec<u8>>;

    /// The value of bytes that nobody has checked; nothing for damaged ones, and for those of a version that
    /// is not known. Takes no memory that `limits` or the length of `bytes` do not bound.
    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self>;

    /// The version of the source that it was made of; nothing for what counts whatever the source is now.
    fn source(&self) -> Option<&SourceVersion> {
        None
    }
}

/// The place of the helper files of one source. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sidecar {
    holder: Arc<dyn Holder>,
    directory: ObjectPath,
    /// What all sidecars of the holder may take together; nothing for one that has its place to itself.
    budget_bytes: Option<u64>,
    /// What it was found by.
    name: Option<Arc<SidecarName>>,
    /// True for one that nobody has named a place for.
    is_in_cache: bool,
    /// That of the site, which is only read.
    site: Option<Arc<Sidecar>>,
}

impl Sidecar {
    /// The sidecar of the file or directory at `path`; nothing where the environment names no place. Makes
    /// nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for a `BEDFORM_SIDECAR_BYTES` that is no size.
    pub fn of_path(path: &Path) -> Result<Option<Self>> {
        Self::of_path_in(path, None)
    }

    /// As [`Sidecar::of_path`], where `base` is the directory of sidecars that `BEDFORM_SIDECAR` would name.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub fn of_path_in(path: &Path, base: Option<&Path>) -> Result<Option<Self>> {
        Self::find(&SidecarName::of_path(path), base)
    }

    /// The sidecar of this name, with `base` as in [`Sidecar::of_path_in`].
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub fn find(name: &SidecarName, base: Option<&Path>) -> Result<Option<Self>> {
        Ok(SidecarCandidates::of(name, base)?.find())
    }

    /// The same, as it would be found now: somebody may have made one elsewhere.
    pub(crate) fn found_again(&self) -> Option<Self> {
        Self::find(self.name.as_deref()?, None).ok().flatten()
    }

    /// This user's sidecar of this name, its directory made if it is missing: at the site for those who keep its
    /// sidecars, beside the source where that can be done, else as in [`Sidecar::of_path`]. Nothing where there is no
    /// place for it.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`]; those of the site file and of making the directory.
    pub fn make(name: &SidecarName) -> Result<Option<Self>> {
        SidecarCandidates::of(name, None)?.make(true)
    }

    /// As [`Sidecar::make`] for what takes space, with `base` as in [`Sidecar::of_path_in`]: nothing where it
    /// would lie in the cache of the user, whom nobody has asked.
    ///
    /// # Errors
    /// As [`Sidecar::make`].
    pub fn make_for_replicas(name: &SidecarName, base: Option<&Path>) -> Result<Option<Self>> {
        SidecarCandidates::of(name, base)?.make(false)
    }

    /// That of the site, which this user reads and does not write; nothing where this is it.
    pub fn site(&self) -> Option<&Self> {
        self.site.as_deref()
    }

    /// True for a sidecar of the site.
    pub fn is_of_site(&self) -> bool {
        self.holder.site().is_some()
    }

    /// The users whose files count in a sidecar on this machine.
    pub(crate) fn owners(&self) -> &[u32] {
        self.holder.owners()
    }

    /// True if nobody but the owners can have put anything into a directory of the sidecar. Of the sidecar of this
    /// user that is taken to be so.
    pub(crate) fn is_trusted_at(&self, names: &[&str]) -> bool {
        let (Some(directory), Some(site)) = (self.own_directory(), self.holder.site()) else {
            return true;
        };
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        match look_at(&directory, &names, &site.owners, site.file()) {
            Look::Trusted(_) | Look::Missing => true,
            Look::Refused(why) => {
                warnings::tell(why);
                false
            }
        }
    }

    /// Lets all who may read the source read what lies in these directories, if this is a sidecar of the site.
    pub(crate) fn open_to_readers(&self, names: &[&str]) {
        if let (true, Some(directory)) = (self.is_of_site(), self.own_directory()) {
            names.iter().for_each(|name| open_to_readers(&directory.join(name)));
        }
    }

    /// The directory of the sidecar, there or not, if it is one of this machine.
    pub fn own_directory(&self) -> Option<PathBuf> {
        let local = self.holder.local()?;
        Some(match self.directory.is_root() {
            true => local.to_owned(),
            false => local.join(self.directory.as_str()),
        })
    }

    /// True if it is there because somebody asked for it: no reader makes one beside its data.
    pub(crate) fn is_asked_for(&self) -> bool {
        !self.is_in_cache && self.own_directory().is_some_and(|directory| directory.is_dir())
    }

    /// The resolved path of the source, where the sidecar was found by it.
    pub fn source(&self) -> Option<&Path> {
        self.name.as_deref().map(SidecarName::source)
    }

    /// The sidecar in the directory `directory` of `storage`, all of which is trusted; with a budget for all
    /// directories of that storage.
    pub fn in_storage(
        storage: Arc<dyn Storage>,
        directory: ObjectPath,
        budget_bytes: Option<u64>,
    ) -> Self {
        let holder = Arc::new(TrustedStorage(storage));
        Self { holder, directory, budget_bytes, name: None, is_in_cache: false, site: None }
    }

    /// The helper file `name`, if it is there, may be trusted, and was made of `source`; that of the site where this
    /// has none.
    pub fn load<H: Helper>(
        &self,
        name: &str,
        source: &SourceVersion,
        limits: &Limits,
    ) -> Option<H> {
        let own = self.load_own(name, source, limits);
        own.or_else(|| self.site()?.load_own(name, source, limits))
    }

    /// As [`Sidecar::load`], without that of the site: of what is one user's, such as a policy.
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
        let object = storage.open(&path).ok()?;
        let version = object.version();
        if version.size > H::BYTES_MAX {
            return None;
        }
        let length = usize::try_from(version.size).ok()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        object.read(0, &mut bytes).ok()?;
        let helper = H::decode(&bytes, limits)?;
        helper.source().is_none_or(|then| then == source).then_some(helper)
    }

    /// Keeps a helper file under `name`, in the place of whatever has that name. True if it is kept now.
    pub fn save<H: Helper>(&self, name: &str, helper: &H) -> bool {
        let Some((storage, bytes)) = self.ready_to_write(helper) else { return false };
        let Ok(path) = self.directory.join(name) else { return false };
        let put = storage.put(&path, &bytes, Durability::Process, Condition::None);
        self.keep_within(&*storage);
        put.is_ok()
    }

    /// Where to write, and what; nothing if it cannot be kept.
    fn ready_to_write<H: Helper>(&self, helper: &H) -> Option<(Arc<dyn Storage>, Vec<u8>)> {
        let bytes = helper.encode()?;
        let most = H::BYTES_MAX.min(self.budget_bytes.unwrap_or(u64::MAX));
        if bytes.len() as u64 > most {
            return None;
        }
        let storage = self.holder.to_write()?;
        // What a crash has left.
        let _ = storage.sweep(&self.directory);
        if self.budget_bytes.is_some() {
            // First of all: without it no budget knows of the sidecar.
            budget::note_use(&*storage, &self.directory);
        }
        Some((storage, bytes))
    }

    /// Notes that the sidecar was used, where a budget decides by that.
    fn note_use(&self) {
        if self.budget_bytes.is_none() {
            return;
        }
        if let Some(storage) = self.holder.to_write() {
            budget::note_use(&*storage, &self.directory);
        }
    }

    /// Removes what the budget has no room for, after something was kept.
    fn keep_within(&self, storage: &dyn Storage) {
        if let Some(bytes) = self.budget_bytes {
            budget::keep_within(storage, bytes, &self.directory);
        }
    }
}

/// A helper file's word for a version of storage.
pub fn source_version(version: &Version) -> SourceVersion {
    SourceVersion {
        size: version.size,
        modified_ns: version.modified_ns,
        changed_ns: version.changed_ns,
        identity: version.identity,
    }
}

/// The same of a file of this machine that was asked about.
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
