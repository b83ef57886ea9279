//! Foreign files, read as they are: NetCDF classic, NetCDF-4, HDF5.
//!
//! A [`ChunkMap`] holds the places of the bytes of every variable; plans, fetches and codecs are
//! those of Zarr arrays. A whole file is one object here. A variable without chunks is one chunk of
//! raw elements, from which a read fetches just the bytes that it needs. A record variable has one
//! such chunk for each record.
//!
//! | module | holds |
//! |---|---|
//! | `variable` | a variable of a file: its stored form, as a source |
//! | `chunks` | the places of a variable's chunks in its file |
//! | `callback` | variables that only a foreign library can decode, read by a callback |
//! | `facts` | facts of a variable that all its readers need |
//! | `hdf5` | chunk maps of HDF5 files by our own parser |
//! | `tables` | chunk tables of HDF5 files, read when they are needed |
//! | `texts` | variables of texts of any length |
//! | `writers` | programs that have a file open for writing |
//! | `stored` | the stored blocks of variables, file by file |
//! | `inline` | variables whose bytes lie in the chunk map itself |
//! | `attributes` | attributes and dimension names as JSON |
//! | `lookup` | groups and variables by their paths |
//! | `opening` | files by their paths, and the chunk maps that are kept of them |
//! | `url` | files at URLs |
//! | `archive` | many files, read as one |

pub(crate) mod archive;
pub(crate) mod attributes;
pub(crate) mod callback;
mod chunks;
pub(crate) mod facts;
mod hdf5;
mod inline;
mod lookup;
mod opening;
pub(crate) mod stored;
mod tables;
mod texts;
mod url;
pub(crate) mod variable;
mod writers;

use std::sync::Arc;

use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignGroup, ParsedHeader};
use bedform_format::header::format_of;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{Object, Profile, Storage, Version};

use self::archive::Archive;
use self::hdf5::Hdf5Access;
use self::lookup::Lookup;
use self::tables::LazyTables;
use self::url::OpenedUrl;
use self::variable::FileVariable;
use crate::cache::{CacheHandle, PlaceId, take_budget_of_environment};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{FrontCachedFile, ReadBytes};
use crate::options::{Freshness, OpenOptions};
use crate::plan::tuning::Tuning;
use crate::prefetch::{HandleReads, PrefetchStatistics};
use crate::replica::{ReplicaStatistics, Replicas};
use crate::sidecar::Sidecar;

pub use crate::sidecar::source_version;
pub use archive::{
    ArchiveOptions, Compat, FileOrder, JoinOptions, MakeMap, archive_sidecar, list_files,
};
pub(crate) use archive::{ListedFiles, archives_beside};
pub use bedform_format::chunk_map::SourceVersion;
pub use bedform_format::hdf5::StoredTexts;
pub use callback::{Callback, CallbackArray, ReadElements};
pub use stored::SourceFile;

/// Bytes of the first read of a header.
const HEADER_BYTES: u64 = 64 << 10;

/// An opened foreign file with its chunk map, or an archive of many files. An archive has the map
/// and place of its first file, with the shapes of all.
#[derive(Debug, Clone)]
pub struct ForeignFile {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) path: ObjectPath,
    pub(super) map: Arc<ChunkMap>,
    lookup: Arc<Lookup>,
    tables: Arc<LazyTables>,
    pub(crate) tuning: Tuning,
    /// The follower of its reads, if reads may be made ahead.
    pub(crate) follows: Option<Arc<HandleReads>>,
    /// Replicas of its variables, if there may be some.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// Its sidecar, if it has one.
    pub(crate) sidecar: Option<Sidecar>,
    pub(crate) cache: Arc<CacheHandle>,
    /// True if every read checks whether the file has changed.
    pub(super) checks: bool,
    /// The opened file, if it can be read again without opening it.
    kept: Option<OpenedUrl>,
    /// The files of an archive; `None` for a single file.
    archive: Option<Arc<Archive>>,
}

/// The variables of an HDF5 file, by the addresses of their datasets.
#[derive(Debug, Clone)]
pub(crate) struct DatasetAddresses {
    map: Arc<ChunkMap>,
    tables: Arc<LazyTables>,
}

impl DatasetAddresses {
    /// Returns the variable whose dataset is at `address`; `None` if there is none, and for a file
    /// that only the library understands.
    pub(crate) fn described_at(&self, address: u64) -> Option<&ForeignArray> {
        self.map.arrays.get(self.tables.variable_at(address)?)
    }
}

impl ForeignFile {
    /// Returns counts of the bytes that were read ahead for this handle, and of those that reads
    /// used.
    pub fn prefetch_statistics(&self) -> PrefetchStatistics {
        self.follows.as_deref().map(HandleReads::statistics).unwrap_or_default()
    }

    /// Returns counts, for each replica that the reads of this handle have looked for.
    pub fn replica_statistics(&self) -> Vec<ReplicaStatistics> {
        self.replicas.as_deref().map(Replicas::statistics).unwrap_or_default()
    }

    /// Drops buffers that were read ahead, for a program that reads no more.
    pub fn drop_prefetched(&self) {
        self.follows.as_deref().into_iter().for_each(HandleReads::forget);
    }

    /// Makes the file at `path` of `storage`, whose chunk map is `map`.
    ///
    /// # Errors
    /// `Conflict` if the map was made from another file, or the file has changed.
    pub fn new(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        map: ChunkMap,
        options: &OpenOptions,
    ) -> Result<Self> {
        let file = Self::opened(storage, path, map, options)?;
        let version = file.storage.stat(&file.path)?;
        file.check_version(&version)?;
        Ok(file)
    }

    /// As [`ForeignFile::new`], for a caller that has just opened the file of the map.
    pub(super) fn opened(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        map: ChunkMap,
        options: &OpenOptions,
    ) -> Result<Self> {
        take_budget_of_environment()?;
        let checks = options.freshness == Freshness::Read;
        let tuning = if storage.is_remote() {
            let profile = options.profile.clone().unwrap_or_else(Profile::default_remote);
            Tuning::of_server(&OpenOptions { profile: Some(profile), ..options.clone() })
        } else {
            Tuning::with(options)
        };
        let place = storage.identity().map(|identity| PlaceId::new(&identity));
        let cache = Arc::new(CacheHandle::new(options.cache_bytes, place));
        let (map, lookup, tables) = (Arc::new(map), Arc::default(), Arc::default());
        let (follows, replicas) = (HandleReads::new(options), Replicas::new(options));
        Ok(Self {
            storage,
            path,
            map,
            lookup,
            tables,
            tuning,
            follows,
            replicas,
            sidecar: options.sidecar.clone(),
            cache,
            checks,
            kept: None,
            archive: None,
        })
    }

    /// Opens a file whose [header](bedform_format::header) is its chunk map.
    ///
    /// # Errors
    /// `Unsupported` for a file of another kind; `Corrupt` by the header; those of storage.
    pub fn open_by_header(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        options: &OpenOptions,
    ) -> Result<Self> {
        let opened = FrontCachedFile::local(&*storage, &path, options)?;
        Self::by_header(storage, path, &opened, options)
    }

    /// As [`ForeignFile::open_by_header`], of the opened file.
    fn by_header(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        opened: &FrontCachedFile,
        options: &OpenOptions,
    ) -> Result<Self> {
        let version = opened.object.version();
        let read = |offset, buffer: &mut [u8]| Ok(opened.read(offset, buffer)?);
        let map = read_header(&read, &source_version(version), &options.limits)
            .map_err(|error| error.at(format!("{}/{path}", storage.name())))?;
        Self::new(storage, path, map, options)
    }

    /// Returns the chunk map.
    pub fn map(&self) -> &ChunkMap {
        &self.map
    }

    /// Returns the states of all its files when they were opened.
    pub(crate) fn states(&self) -> impl Iterator<Item = &SourceVersion> {
        let archive = self.archive.as_deref();
        let one = archive.is_none().then_some(&self.map.source);
        archive.into_iter().flat_map(Archive::states).chain(one)
    }

    /// Returns the directory that holds the file.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Returns the file's name for users and messages.
    pub fn name(&self) -> String {
        match &self.archive {
            Some(archive) => archive.name().to_owned(),
            None => self.own_name(),
        }
    }

    /// Returns the name of the file itself; of an archive, that of its first file.
    pub(crate) fn own_name(&self) -> String {
        format!("{}/{}", self.storage.name(), self.path)
    }

    /// Returns the error with the file's name in front, unless storage has put it there.
    fn located(&self, error: Error) -> Error {
        let name = self.name();
        if error.to_string().contains(&name) { error } else { error.at(name) }
    }

    /// Returns the variable at `path` of a single file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that only its native library reads.
    fn variable(&self, path: &str) -> Result<FileVariable> {
        FileVariable::new(self.clone(), self.position(path)?)
    }

    /// Returns the number of the variable at `path` in the chunk map.
    ///
    /// # Errors
    /// `NotFound`.
    pub(super) fn position(&self, path: &str) -> Result<usize> {
        self.lookup.array(&self.map, path).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no variable {path:?} in {}", self.name()))
        })
    }

    /// Returns the file with `tables`, which read the chunk tables that its map lacks.
    fn with_tables(mut self, tables: LazyTables) -> Self {
        self.tables = Arc::new(tables);
        self
    }

    /// Returns the variable at `path` in the chunk map.
    pub(crate) fn described(&self, path: &str) -> Option<&ForeignArray> {
        self.map.arrays.get(self.lookup.array(&self.map, path)?)
    }

    /// Returns the variables by the addresses of their datasets, which keep no file open.
    pub(crate) fn dataset_addresses(&self) -> DatasetAddresses {
        DatasetAddresses { map: self.map.clone(), tables: self.tables.clone() }
    }

    /// Returns the group at `path` in the chunk map.
    pub(crate) fn group(&self, path: &str) -> Option<&ForeignGroup> {
        self.lookup.group(&self.map, path)
    }

    /// Opens the file that the chunk map describes. With `has_chunks` it must be unchanged, for each
    /// freshness: a program that writes in place moves encoded chunks, and the chunk map still has
    /// their old places.
    ///
    /// # Errors
    /// `Conflict` if another file has taken its place, or it was changed; those of storage.
    fn object(&self, has_chunks: bool) -> Result<Arc<dyn Object>> {
        if let Some(kept) = self.kept.as_ref().filter(|_| !self.checks) {
            return Ok(kept.object.clone());
        }
        // No index lies at the end of the file, so one byte of it is enough.
        let object = self.storage.open_end(&self.path, 1)?;
        // A server without strong ETags identifies files by their times at best.
        match self.checks || has_chunks || self.storage.is_remote() {
            true => self.check_version(object.version())?,
            false => self.check_is_there(object.version())?,
        }
        Ok(Arc::from(object))
    }

    /// Returns true if a read would now open the file with this version.
    ///
    /// # Errors
    /// Those of storage.
    fn is_still(&self, version: &Version) -> Result<bool> {
        if self.kept.is_some() && !self.checks {
            return Ok(true);
        }
        Ok(self.storage.is_current(&self.path, version)?)
    }

    /// Returns true if the file is as it was opened: see
    /// [`ForeignVariable::is_as_opened`](facts::ForeignVariable). On a disk the check costs little
    /// compared with a read. A handle without checks also reads elements without chunks that other
    /// programs write in place.
    ///
    /// # Errors
    /// Those of storage.
    fn is_as_opened(&self, anew: bool) -> Result<bool> {
        let looks = anew || self.checks || !self.storage.is_remote();
        Ok(!looks || source_version(&self.storage.stat(&self.path)?) == self.map.source)
    }

    /// Returns the parser's access to the file, which is opened as `object`.
    fn reader<'a>(&'a self, object: &'a dyn Object) -> Hdf5Access<'a> {
        let front = self.kept.as_ref().filter(|_| !self.checks).map(|kept| &*kept.front);
        Hdf5Access::new(object, front, self.storage.is_remote())
    }

    pub(super) fn check_version(&self, version: &Version) -> Result<()> {
        if source_version(version) == self.map.source {
            return Ok(());
        }
        Err(self.changed())
    }

    /// Returns the version that the file has now.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn present_version(&self) -> Result<SourceVersion> {
        Ok(source_version(&self.storage.stat(&self.path)?))
    }

    /// Fails if another file has taken the place of the opened one, or if it is shorter: the places
    /// of the chunk map then hold other bytes.
    pub(super) fn check_is_there(&self, version: &Version) -> Result<()> {
        let (now, then) = (source_version(version), &self.map.source);
        if now.identity == then.identity && now.size >= then.size {
            return Ok(());
        }
        Err(self.changed())
    }

    fn changed(&self) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!("{} has changed since it was opened; open it again", self.name()),
        )
    }
}

fn read_header(read: ReadBytes<'_>, source: &SourceVersion, limits: &Limits) -> Result<ChunkMap> {
    let mut start = vec![0; usize::try_from(source.size.min(16)).unwrap_or(0)];
    read(0, &mut start)?;
    let (format, _) = format_of(&start).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "no format that is known by its header")
    })?;
    let mut wanted = HEADER_BYTES;
    loop {
        let length = wanted.min(source.size).min(limits.metadata_bytes_max);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        read(0, &mut bytes)?;
        let parsed = (format.parse)(&bytes, source, limits)
            .map_err(|error| Error::new(ErrorKind::Corrupt, error))?;
        match parsed {
            ParsedHeader::Complete(map) => return Ok(*map),
            ParsedHeader::Incomplete { bytes_needed }
                if bytes_needed > length && length < source.size =>
            {
                if length == limits.metadata_bytes_max {
                    return Err(Error::new(
                        ErrorKind::LimitExceeded,
                        format!("a header of more than {length} bytes is over the limit"),
                    ));
                }
                wanted = bytes_needed.max(length.saturating_mul(2));
            }
            ParsedHeader::Incomplete { .. } => {
                return Err(Error::new(ErrorKind::Corrupt, "the file ends inside its header"));
            }
        }
    }
}
