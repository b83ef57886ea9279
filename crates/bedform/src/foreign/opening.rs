//! Foreign files by their paths, and the chunk maps that are kept of them.
//!
//! The header of a classic file holds the places of its variables. For an HDF5 file our parser
//! finds them at each open. If the parser does not know the file, the library finds them once. The
//! [chunk map](ChunkMap) is then a helper file in the [sidecar](crate::sidecar) of the file, as are
//! the chunk tables of variables with many chunks. Every process of the same user opens the file by
//! it.

use std::path::Path;
use std::time::SystemTime;

use bedform_format::Limits;
use bedform_format::chunk_map::{ChunkMap, SourceVersion};
use bedform_format::shown::shell_path;
use bedform_storage::StorageErrorKind;

use super::ForeignFile;
use super::hdf5::{self, ParsedFile};
use super::tables::LazyTables;
use crate::cache::is_coarsely_young;
use crate::error::{Error, ErrorKind, Result};
use crate::opening::{
    FrontCachedFile, NO_FILE, PlaceKind, REFERENCES, file_of, url_of, with_kept_profile,
};
use crate::options::OpenOptions;
use crate::sidecar::{Helper, Sidecar, source_version};

impl Helper for ChunkMap {
    const BYTES_MAX: u64 = 256 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self).ok()
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits).ok()
    }

    fn source(&self) -> Option<&SourceVersion> {
        Some(&self.source)
    }
}

/// Returns the name of a chunk map in its sidecar. Two may be kept: one without the other files
/// that the source names, and one with them.
fn name_of_map(allow_external: bool) -> &'static str {
    if allow_external { "chunk-map-external" } else { "chunk-map" }
}

/// Returns the chunk map that is kept of the file at `path`, if it was made from this state.
///
/// # Errors
/// As [`Sidecar::of_path`].
pub(super) fn kept_map(
    path: &Path,
    source: &SourceVersion,
    limits: &Limits,
) -> Result<Option<ChunkMap>> {
    let sidecar = Sidecar::of_path(path)?;
    Ok(sidecar.and_then(|sidecar| sidecar.load(name_of_map(false), source, limits)))
}

/// Returns the error for a file that only its library understands and of which no chunk map is
/// kept.
pub(super) fn unknown_map(path: &Path) -> Error {
    let shown = path.display();
    let text = format!(
        "{shown}: its chunk map is not known: run 'bedform info {}' once as this user, which makes it, and again \
         whenever the file has changed",
        shell_path(&path.to_string_lossy())
    );
    Error::new(ErrorKind::Unsupported, text)
}

impl ForeignFile {
    /// Opens the file at `path`: a NetCDF classic file by its header, an HDF5 file by its kept
    /// chunk map or by our parser. `None` if only the HDF5 library understands the file: a caller
    /// that has the library then makes a chunk map for [`ForeignFile::open_with_map`].
    /// `allow_external` allows a map that the library made with other files that the file names. A
    /// URL is opened as [`ForeignFile::open_url`] does. The file gets the profile that is kept for
    /// the storage, unless the options have one.
    /// have one.
    ///
    /// `NotFound`; `Unsupported` for a file of another kind, naming the kind that it looks like;
    /// `Corrupt` by a header; `LimitExceeded` for metadata over a limit; those of storage.
    pub fn find(path: &Path, allow_external: bool, options: &OpenOptions) -> Result<Option<Self>> {
        if let Some(url) = url_of(path) {
            return Self::open_url(url, options).map(Some);
        }
        // Errors of the sidecar matter only for files that need one.
        let sidecar = Sidecar::of_path(path);
        let own = sidecar.as_ref().ok().and_then(Option::as_ref);
        let options = &with_kept_profile(options, path, own);
        let (storage, name) = file_of(path, options)?;
        let other = |looks: &str| {
            let shown = path.display();
            let text = format!("{shown}: not a NetCDF or HDF5 file; it is {looks}");
            Error::new(ErrorKind::Unsupported, text)
        };
        let time = SystemTime::now();
        let opened =
            FrontCachedFile::local(&*storage, &name, options).map_err(|error| {
                match error.kind {
                    StorageErrorKind::NotAnObject => other(NO_FILE),
                    _ => error.into(),
                }
            })?;
        match opened.kind()? {
            PlaceKind::WithHeader(_) => Self::by_header(storage, name, &opened, options).map(Some),
            PlaceKind::Hdf5 => {
                let (sidecar, source) = (sidecar?, source_version(opened.object.version()));
                let load = |sidecar: &Sidecar| {
                    sidecar.load(name_of_map(allow_external), &source, &options.limits)
                };
                if let Some(kept) = sidecar.as_ref().and_then(load) {
                    return Self::new(storage, name, kept, options).map(Some);
                }
                // Only the library follows references to other files.
                let parse = || hdf5::parse(path, &opened, options);
                let parsed = (!allow_external).then(parse).transpose()?.flatten();
                let Some(ParsedFile { map, datasets }) = parsed else { return Ok(None) };
                // A file this young may be another file later, with the same version.
                let sidecar = sidecar.filter(|_| !is_coarsely_young(&source, time));
                let tables = LazyTables::new(datasets, sidecar, options.limits.clone());
                Ok(Some(Self::new(storage, name, map, options)?.with_tables(tables)))
            }
            PlaceKind::OtherFile(looks) => Err(other(&looks)),
            PlaceKind::References => Err(other(REFERENCES)),
            _ => Err(other(NO_FILE)),
        }
    }

    /// Opens the file at `path` as [`ForeignFile::find`] does, without other files that it names.
    ///
    /// # Errors
    /// As [`ForeignFile::find`]; `Unsupported` if no chunk map is kept, with the remedy.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        Self::find(path, false, options)?.ok_or_else(|| unknown_map(path))
    }

    /// Opens the file at `path` by `map`, which its library has just made, and keeps the map for
    /// later opens.
    ///
    /// # Errors
    /// `Conflict` if the file has changed since the map was made; those of storage.
    pub fn open_with_map(
        path: &Path,
        map: ChunkMap,
        allow_external: bool,
        options: &OpenOptions,
    ) -> Result<Self> {
        let sidecar = Sidecar::of_path(path);
        let own = sidecar.as_ref().ok().and_then(Option::as_ref);
        let options = &with_kept_profile(options, path, own);
        let (storage, name) = file_of(path, options)?;
        let time = SystemTime::now();
        let file = Self::new(storage, name, map, options)?;
        if let Some(sidecar) = sidecar?.filter(|_| !is_coarsely_young(&file.map().source, time)) {
            sidecar.save(name_of_map(allow_external), file.map());
        }
        Ok(file)
    }
}
