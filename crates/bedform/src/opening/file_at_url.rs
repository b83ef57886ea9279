//! Files at URLs: whether a URL names one, and what lies at their front.

use std::sync::OnceLock;

use bedform_format::hdf5::{ReadAt, ReadError};
use bedform_storage::{Object, StorageError};

use super::detect::{PlaceKind, kind_of_bytes};
use super::remote_file_of;
use crate::error::Result;
use crate::options::OpenOptions;

/// What comes with the opening, from the end of the file.
pub(crate) const TAIL_BYTES: u64 = 1 << 20;
/// What the first read brings: metadata mostly lie at the front. The signature of HDF5 may lie at its end.
const FRONT_BYTES: u64 = (1 << 20) + 8;
/// How names of files end that are opened as files first; all else is looked for as a store before.
const SUFFIXES: [&str; 9] = ["nc", "nc4", "cdf", "netcdf", "h5", "hdf5", "he5", "hdf", "h4"];

/// True for a URL that ends as the names of NetCDF and HDF5 files do.
pub(crate) fn names_file(url: &str) -> bool {
    let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    SUFFIXES.iter().any(|other| suffix.eq_ignore_ascii_case(other))
}

/// An opened file whose front is fetched once.
#[derive(Debug)]
pub(crate) struct Fronted {
    pub(crate) object: Box<dyn Object>,
    front: OnceLock<Vec<u8>>,
}

impl Fronted {
    pub(crate) fn new(object: Box<dyn Object>) -> Self {
        Self { object, front: OnceLock::new() }
    }

    /// Fills a buffer with the bytes from an offset on.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn read(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), StorageError> {
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

    /// What the file begins with.
    ///
    /// # Errors
    /// Of storage.
    pub(crate) fn kind(&self) -> Result<PlaceKind> {
        let read = |offset, buffer: &mut [u8]| Ok(self.read(offset, buffer)?);
        kind_of_bytes(self.object.version().size, &read)
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
        Ok(object) => Fronted::new(object).kind(),
        Err(error) if error.is_not_found() => Ok(PlaceKind::Missing),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::names_file;

    #[test]
    fn files_are_told_by_their_suffix_whatever_its_case() {
        assert!(names_file("s3://bucket/run.NC") && !names_file("s3://bucket/run.zarr"));
    }
}
