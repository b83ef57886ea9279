//! Foreign files at URLs.
//!
//! Each request takes long there, and its bytes little: the end of the file comes with its opening, its front
//! with the next request, and what the parser reads between in large blocks. The opened object is kept: reads
//! ask for the version that was opened.

use std::sync::{Arc, OnceLock};

use bedform_format::hdf5::{Hdf5Error, Hdf5File, ReadAt, ReadError, chunk_map_without_tables};
use bedform_storage::{Object, StorageError};

use super::tables::Tables;
use super::{ForeignFile, read_header, source_version};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{PlaceKind, kind_of_bytes, remote_file_of};
use crate::options::OpenOptions;

/// What comes with the opening, from the end of the file.
const TAIL_BYTES: u64 = 1 << 20;
/// What the first read brings: metadata mostly lie at the front. The signature of HDF5 may lie at its end.
const FRONT_BYTES: u64 = (1 << 20) + 8;
/// What the parser asks for at once elsewhere.
pub(super) const BLOCK_BYTES: usize = 256 << 10;
/// How names of files end that are opened as files first; all else is looked for as a store before.
const SUFFIXES: [&str; 9] = ["nc", "nc4", "cdf", "netcdf", "h5", "hdf5", "he5", "hdf", "h4"];

/// True for a URL that ends as the names of NetCDF and HDF5 files do.
pub fn names_file(url: &str) -> bool {
    let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    SUFFIXES.iter().any(|other| suffix.eq_ignore_ascii_case(other))
}

/// An opened file whose front is fetched once.
#[derive(Debug)]
pub(super) struct Fronted {
    object: Box<dyn Object>,
    front: OnceLock<Vec<u8>>,
}

/// A file as it was opened, which can be read again without opening it.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) object: Arc<dyn Object>,
    /// What has come of it already, for the parser.
    pub(super) front: Arc<Fronted>,
}

impl Fronted {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        let size = self.object.version().size;
        let end = offset.saturating_add(buffer.len() as u64);
        let front_bytes = size.min(FRONT_BYTES);
        if end > front_bytes || self.object.at_hand().contains(&offset) {
            return self.object.read(offset, buffer);
        }
        let front = match self.front.get() {
            Some(front) => front,
            None => {
                let mut front = vec![0; usize::try_from(front_bytes).unwrap_or(0)];
                self.object.read(0, &mut front)?;
                self.front.get_or_init(|| front)
            }
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = front.get(start..).and_then(|rest| rest.get(..buffer.len()));
        match found {
            Some(found) => buffer.copy_from_slice(found),
            None => self.object.read(offset, buffer)?,
        }
        Ok(())
    }
}

impl ReadAt for Fronted {
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }
}

/// What the object at a URL is, if there is one.
///
/// # Errors
/// Of storage; `InvalidArgument` for a URL that is none.
pub(crate) fn kind_at(url: &str, options: &OpenOptions) -> Result<PlaceKind> {
    let (storage, name) = remote_file_of(url, &mut options.clone())?;
    match storage.open_end(&name, TAIL_BYTES) {
        Ok(object) => kind_of(&Fronted { object, front: OnceLock::new() }),
        Err(error) if error.is_not_found() => Ok(PlaceKind::Missing),
        Err(error) => Err(error.into()),
    }
}

fn kind_of(file: &Fronted) -> Result<PlaceKind> {
    kind_of_bytes(file.object.version().size, &|offset, buffer| Ok(file.read(offset, buffer)?))
}

impl ForeignFile {
    /// Opens the NetCDF or HDF5 file at a URL. What only the library of HDF5 understands is not to be had there.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a file of another kind, with what it looks like, and for one that the
    /// library is needed for; `Corrupt`, `LimitExceeded` by its metadata; those of storage; `InvalidArgument`
    /// for a URL that is none.
    pub fn open_url(url: &str, options: &OpenOptions) -> Result<Self> {
        let mut options = options.clone();
        let (storage, name) = remote_file_of(url, &mut options)?;
        let shown = format!("{}/{name}", storage.name());
        let object = storage
            .open_end(&name, TAIL_BYTES)
            .map_err(|error| Error::from(error).at(storage.name()))?;
        let file = Fronted { object, front: OnceLock::new() };
        let version = file.object.version().clone();
        let (source, limits) = (source_version(&version), &options.limits);
        let mut datasets = Vec::new();
        let map = match kind_of(&file)? {
            PlaceKind::WithHeader(_) => {
                read_header(&|offset, buffer| Ok(file.read(offset, buffer)?), &source, limits)
                    .map_err(|error| error.at(shown))?
            }
            PlaceKind::Hdf5 => {
                let parsed = Hdf5File::open(&file, version.size, BLOCK_BYTES, limits)
                    .and_then(|opened| chunk_map_without_tables(&opened, &source, limits));
                let (map, found) = parsed.map_err(|error| refusal(error, &shown))?;
                datasets = found;
                map
            }
            PlaceKind::OtherFile(looks) => {
                let text = format!("{shown}: not a NetCDF or HDF5 file; it is {looks}");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            _ => return Err(Error::new(ErrorKind::NotFound, format!("{shown}: no such file"))),
        };
        let tables = Tables::new(datasets, None, options.limits.clone());
        let kept = file.object.kept().map(|object| Kept { object, front: Arc::new(file) });
        let opened = Self::opened(storage, name, map, &options)?.with_tables(tables);
        Ok(Self { kept, ..opened })
    }
}

/// The error for a file that the parser does not read.
fn refusal(error: Hdf5Error, shown: &str) -> Error {
    let kind = match error {
        Hdf5Error::Read(source) => {
            return match source.downcast::<StorageError>() {
                Ok(error) => (*error).into(),
                Err(source) => Error::new(ErrorKind::Io, format!("{shown}: {source}")),
            };
        }
        Hdf5Error::Unknown { what } => {
            let text = format!(
                "{shown}: it has {what}, which only the HDF5 library reads, from files: copy it to this machine"
            );
            return Error::new(ErrorKind::Unsupported, text);
        }
        Hdf5Error::Limit { .. } | Hdf5Error::FileLimit { .. } => ErrorKind::LimitExceeded,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, format!("{shown}: {error}"))
}
