//! Foreign files at URLs.
//!
//! Each request takes long there, and each byte little. The end of the file is fetched when it is
//! opened, its front by the next request, and the parts that the parser reads between them in large
//! blocks. The opened object is kept: reads ask for the version that was opened.

use std::sync::Arc;

use bedform_format::hdf5::{Hdf5Error, Hdf5File, chunk_map_without_tables};
use bedform_storage::Object;

use super::hdf5::error_of;
use super::tables::LazyTables;
use super::{ForeignFile, read_header, source_version};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{FileAtUrl, FrontCachedFile, PlaceKind, REFERENCES};
use crate::options::OpenOptions;

/// Bytes of the blocks in which the parser reads the middle of a file.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

/// An opened file that can be read again without opening it.
#[derive(Debug, Clone)]
pub(super) struct OpenedUrl {
    pub(super) object: Arc<dyn Object>,
    /// The bytes of it that were fetched already, for the parser.
    pub(super) front: Arc<FrontCachedFile>,
}

impl ForeignFile {
    /// Opens the NetCDF or HDF5 file at a URL. A file that only the HDF5 library understands is
    /// refused.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a file of another kind, naming the kind that it looks like,
    /// and for one that needs the library; `Corrupt`, `LimitExceeded` by its metadata; those of
    /// storage; `InvalidArgument` for an invalid URL.
    pub fn open_url(url: &str, options: &OpenOptions) -> Result<Self> {
        let mut options = options.clone();
        Self::at_url(FileAtUrl::open(url, &mut options)?, &options)
    }

    /// As [`ForeignFile::open_url`], of the opened file.
    pub(crate) fn at_url(opened: FileAtUrl, options: &OpenOptions) -> Result<Self> {
        let shown = opened.shown();
        let FileAtUrl { storage, name, file } = opened;
        let version = file.object.version().clone();
        let (source, limits) = (source_version(&version), &options.limits);
        let mut datasets = Vec::new();
        let map = match file.kind()? {
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
            PlaceKind::OtherFile(looks) => return Err(other(&shown, &looks)),
            PlaceKind::References => return Err(other(&shown, REFERENCES)),
            _ => return Err(Error::new(ErrorKind::NotFound, format!("{shown}: no such file"))),
        };
        let tables = LazyTables::new(datasets, None, options.limits.clone());
        let kept = file.object.kept().map(|object| OpenedUrl { object, front: Arc::new(file) });
        let opened = Self::opened(storage, name, map, options)?.with_tables(tables);
        Ok(Self { kept, ..opened })
    }
}

/// Returns the error for a file of another kind.
fn other(shown: &str, looks: &str) -> Error {
    let text = format!("{shown}: not a NetCDF or HDF5 file; it is {looks}");
    Error::new(ErrorKind::Unsupported, text)
}

/// Returns the error for a file that the parser does not read.
fn refusal(error: Hdf5Error, shown: &str) -> Error {
    let Hdf5Error::Unknown { what } = error else { return error_of(error, shown) };
    let text = format!(
        "{shown}: it has {what}, which only the HDF5 library reads, from files: copy it to this machine"
    );
    Error::new(ErrorKind::Unsupported, text)
}
