//! Chunk maps of HDF5 files by our own parser, without the library.
//!
//! A file that the parser does not know, or finds damaged, is left to a caller with the HDF5
//! library, which decides.

#![allow(clippy::disallowed_methods, reason = "it reads the file that the user named")]

use std::fs::File;
use std::path::Path;

use bedform_format::Limits;
use bedform_format::chunk_map::{ChunkMap, ChunkTable, ForeignArray};
use bedform_format::hdf5::{
    BLOCK_BYTES, Hdf5Error, Hdf5File, ManyRead, ReadAt, ReadError, StoredTexts,
    chunk_map_without_tables, chunk_table, stored_texts,
};
use bedform_storage::{Object, StorageError, Version};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{source_version, url, writers};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{FrontCachedFile, read_many};
use crate::options::OpenOptions;

/// The environment variable that tells the HDF5 library whether to lock files.
const LOCKING: &str = "HDF5_USE_FILE_LOCKING";

/// The parser's access to an opened file.
pub(super) struct Hdf5Access<'a> {
    object: &'a dyn Object,
    /// The bytes that came with opening the file, if they are kept.
    front: Option<&'a FrontCachedFile>,
    is_remote: bool,
}

impl<'a> Hdf5Access<'a> {
    pub(super) fn new(
        object: &'a dyn Object,
        front: Option<&'a FrontCachedFile>,
        is_remote: bool,
    ) -> Self {
        Self { object, front, is_remote }
    }

    fn file(&self, limits: &Limits) -> std::result::Result<Hdf5File<'_>, Hdf5Error> {
        let block_bytes = if self.is_remote { url::BLOCK_BYTES } else { BLOCK_BYTES };
        Hdf5File::open(self, self.version().size, block_bytes, limits)
    }

    pub(super) fn version(&self) -> &Version {
        self.object.version()
    }
}

impl ReadAt for Hdf5Access<'_> {
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError> {
        if let Some(front) = self.front {
            return front.read_at(offset, length);
        }
        let mut bytes = vec![0; length];
        self.object.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_many(&self, extents: &[(u64, usize)]) -> ManyRead {
        if !self.is_remote {
            return Ok(None);
        }
        if let Some(front) = self.front {
            return front.read_many(extents);
        }
        let read = |offset, buffer: &mut [u8]| self.object.read(offset, buffer);
        Ok(Some(read_many(self.object, extents, &|_, _| true, &read)?))
    }
}

/// The result of parsing a file.
pub(super) struct ParsedFile {
    /// Its chunk map, with empty chunk tables.
    pub(super) map: ChunkMap,
    /// The address of each variable's dataset.
    pub(super) datasets: Vec<Option<u64>>,
}

/// Parses the HDF5 file at `path`, which is opened as `opened`; `None` if only the library can read
/// it.
///
/// # Errors
/// `LimitExceeded` for a file whose metadata are over a limit, since the library would take no less
/// time.
pub(super) fn parse(
    path: &Path,
    opened: &FrontCachedFile,
    options: &OpenOptions,
) -> Result<Option<ParsedFile>> {
    // The library holds this lock while it writes. If the lock is taken, the library reports the
    // error; on systems without locks neither has one.
    let Ok(file) = File::open(path) else { return Ok(None) };
    let lock = || flock(&file, FlockOperation::NonBlockingLockShared);
    if uses_locks() && lock() == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    let reader = Hdf5Access::new(&*opened.object, opened.if_settled(), false);
    let version = reader.version();
    let limits = &options.limits;
    let blocks = opened.block_bytes();
    let parsed = Hdf5File::open(&reader, version.size, blocks, limits).and_then(|opened| {
        if opened.superblock().single_writer && writers::has_writer(&file) {
            return Ok(None);
        }
        chunk_map_without_tables(&opened, &source_version(version), limits).map(Some)
    });
    match parsed {
        Ok(parsed) => Ok(parsed.map(|(map, datasets)| ParsedFile { map, datasets })),
        Err(error @ (Hdf5Error::Limit { .. } | Hdf5Error::FileLimit { .. })) => {
            let text = format!("{}: {error}; read it with h5py", path.display());
            Err(Error::new(ErrorKind::LimitExceeded, text))
        }
        Err(_) => Ok(None),
    }
}

/// Reads the chunk table of a variable, whose dataset is at `address` of the file.
///
/// # Errors
/// `Conflict` if another dataset lies there now; those of the parser.
pub(super) fn read_table(
    reader: &Hdf5Access<'_>,
    address: u64,
    array: &ForeignArray,
    limits: &Limits,
) -> Result<ChunkTable> {
    let table = reader.file(limits).and_then(|file| chunk_table(&file, address, array, limits));
    chunks_of(array, table)
}

/// Returns an array of texts, whose dataset is at `address` of the file, as one of raw elements.
///
/// # Errors
/// `Conflict` if another dataset lies there now; those of the parser.
pub(super) fn read_stored_texts(
    reader: &Hdf5Access<'_>,
    address: u64,
    array: &ForeignArray,
    limits: &Limits,
) -> Result<ForeignArray> {
    let stored = reader.file(limits).and_then(|file| stored_texts(&file, address, array, limits));
    chunks_of(array, stored)
}

/// Returns the texts that elements of such an array refer to.
///
/// # Errors
/// Those of the parser.
pub(super) fn read_texts(
    reader: &Hdf5Access<'_>,
    elements: &[u8],
    path: &str,
    limits: &Limits,
) -> Result<StoredTexts> {
    reader
        .file(limits)
        .and_then(|file| file.texts(elements))
        .map_err(|error| error_of(error, &format!("the texts of {path:?}")))
}

/// Returns the parser's result for the chunks of a variable. `None` from the parser, for another
/// dataset at the address, becomes a `Conflict`.
fn chunks_of<T>(
    array: &ForeignArray,
    found: std::result::Result<Option<T>, Hdf5Error>,
) -> Result<T> {
    let found = found.map_err(|error| error_of(error, &format!("the chunks of {:?}", array.path)));
    found?.ok_or_else(|| {
        let text = "has changed since the file was opened; open it again";
        Error::new(ErrorKind::Conflict, format!("{:?} {text}", array.path))
    })
}

/// Returns the error for a parser error about `place`; an error of the reader is passed on.
pub(super) fn error_of(error: Hdf5Error, place: &str) -> Error {
    let kind = match error {
        Hdf5Error::Read(source) => {
            return match source.downcast::<StorageError>() {
                Ok(error) => (*error).into(),
                Err(source) => Error::new(ErrorKind::Io, format!("{place}: {source}")),
            };
        }
        Hdf5Error::Limit { .. } | Hdf5Error::FileLimit { .. } => ErrorKind::LimitExceeded,
        Hdf5Error::Unknown { .. } => ErrorKind::Unsupported,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("{place}: {error}"))
}

/// Returns true if files are locked, by the rule of the library.
fn uses_locks() -> bool {
    !std::env::var_os(LOCKING).is_some_and(|value| value == "FALSE" || value == "0")
}
