//! Sidecars: the helper files of a source, which make reads of it faster and can be made again.
//!
//! # Promises
//!
//! - Losing a helper file, or a whole sidecar, loses nothing but time. It may be deleted at any time.
//! - An error of a sidecar never fails a read: what cannot be read is absent, what cannot be kept is not kept.
//! - A helper file is believed only if it belongs to this user, is no link, is not larger than its kind may be,
//!   passes the checks of its kind, and was made of the source as it is now.
//! - A reader sees a helper file whole or not at all.
//! - Reading creates nothing beside the data.
//!
//! # Place
//!
//! The sidecar of the source `/data/era5.nc` is the first of these directories:
//!
//! 1. `$BEDFORM_SIDECAR/<key>`, if that variable is set;
//! 2. `/data/era5.nc.bedform`, if it exists and belongs to this user;
//! 3. `$XDG_CACHE_HOME/bedform/sidecars/<key>`, or `~/.cache/bedform/sidecars/<key>`.
//!
//! The key is the [fingerprint](bedform_format::checksum::Fingerprint) of the source's resolved path. Many files
//! that are read as one have the sidecar of `/data/era5-2001.nc.archive`, if that is the first of them: files that
//! come later find it. A read-only open of the source may write its sidecar: a directory of the first or third kind is made when
//! something is kept in it, for this user alone.
//!
//! # How
//!
//! - **Kinds.** A [`Helper`] says how large it may be, how it becomes bytes and back, and which version of the
//!   source it was made of. It carries its own checksum. Most kinds are one file, replaced in one step
//!   ([`Sidecar::load`], [`Sidecar::save`]).
//! - **Generations.** A kind that grows by versions has immutable files numbered from 1. The newest valid one
//!   counts. The next number is created only if it is absent, so that of two writers one has to look again;
//!   generations before the last are then removed ([`Sidecar::load_newest`], [`Sidecar::save_next`]).
//! - **Budget.** All sidecars below one directory with keys share a budget of bytes: `BEDFORM_SIDECAR_BYTES`,
//!   1 GiB without it, without those that have replicas. Whoever keeps something removes the sidecars that were used least recently until the
//!   rest fits. A reader notes its use in the object `used`, at most once an hour.
//! - **Trust.** The owner is asked of the name, and the object that is opened must be the file that was asked
//!   about. Sizes are compared before memory is taken.
//!
//! | module | holds |
//! |---|---|
//! | `place` | which directory it is, and whose files lie there |
//! | `generations` | numbered files |
//! | `budget` | what is kept in all, and what goes first |

mod budget;
mod generations;
mod place;
#[cfg(test)]
mod tests;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bedform_format::chunk_map::SourceVersion;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Condition, Durability, Storage, Version};

use crate::error::{Error, ErrorKind, Result};
use place::{Holder, TrustedStorage};

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
///     fn source(&self) -> &SourceVersion {
///         &self.0
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

    /// The version of the source that it was made of.
    fn source(&self) -> &SourceVersion;
}

/// The place of the helper files of one source. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sidecar {
    holder: Arc<dyn Holder>,
    directory: ObjectPath,
    /// What all sidecars of the holder may take together; nothing for one that has its place to itself.
    budget_bytes: Option<u64>,
    /// The resolved path of what it is the sidecar of, where it was found by that.
    source: Option<Arc<Path>>,
}

impl Sidecar {
    /// The sidecar of the file or directory at `path`; nothing where the environment names no place. Makes
    /// nothing.
    ///
    /// # Errors
    /// `InvalidArgument` for a `BEDFORM_SIDECAR_BYTES` that is no size.
    pub fn of_path(path: &Path) -> Result<Option<Self>> {
        place::of_path(path)
    }

    /// The sidecar of many files that are read as one, by the path of the first one with links resolved: that of
    /// all lists of files that begin with it. Makes nothing.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`].
    pub fn of_archive(first: &Path) -> Result<Option<Self>> {
        place::of_archive(first)
    }

    /// As [`Sidecar::make_of_path`], of many files; see [`Sidecar::of_archive`].
    ///
    /// # Errors
    /// As [`Sidecar::make_of_path`].
    pub fn make_of_archive(first: &Path) -> Result<Option<PathBuf>> {
        place::make_beside_archive(first);
        Self::of_archive(first)?.map_or(Ok(None), |sidecar| sidecar.make())
    }

    /// The directory of the sidecar of the file or directory at `path`, made if it is missing: beside the source
    /// where that can be done, else as in [`Sidecar::of_path`]. Nothing where there is no place for it.
    ///
    /// # Errors
    /// As [`Sidecar::of_path`]; those of making the directory.
    pub fn make_of_path(path: &Path) -> Result<Option<PathBuf>> {
        place::make_beside(path);
        Self::of_path(path)?.map_or(Ok(None), |sidecar| sidecar.make())
    }

    /// The directory of the sidecar, made if it is missing; nothing if it is none of this machine.
    ///
    /// # Errors
    /// Those of making the directory.
    pub fn make(&self) -> Result<Option<PathBuf>> {
        let Some(directory) = self.own_directory() else { return Ok(None) };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| {
            Error::new(ErrorKind::Io, format!("{}: {error}", directory.display()))
        })?;
        Ok(Some(directory))
    }

    /// The directory of the sidecar, there or not, if it is one of this machine.
    pub fn own_directory(&self) -> Option<PathBuf> {
        let local = self.holder.local()?;
        Some(match self.directory.is_root() {
            true => local.to_owned(),
            false => local.join(self.directory.as_str()),
        })
    }

    /// The resolved path of the source, where the sidecar was found by it.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// The sidecar in the directory `directory` of `storage`, all of which is trusted; with a budget for all
    /// directories of that storage.
    pub fn in_storage(
        storage: Arc<dyn Storage>,
        directory: ObjectPath,
        budget_bytes: Option<u64>,
    ) -> Self {
        let holder = Arc::new(TrustedStorage(storage));
        Self { holder, directory, budget_bytes, source: None }
    }

    /// The helper file `name`, if it is there, may be trusted, and was made of `source`.
    pub fn load<H: Helper>(
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
        if version.size > H::BYTES_MAX || !self.holder.is_own(&path, version) {
            return None;
        }
        let length = usize::try_from(version.size).ok()?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.resize(length, 0);
        object.read(0, &mut bytes).ok()?;
        H::decode(&bytes, limits).filter(|helper| helper.source() == source)
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
