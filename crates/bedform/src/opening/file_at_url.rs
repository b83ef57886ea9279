//! Foreign files as objects whose front is fetched once, and the detection of files at URLs.
//!
//! A parser reads mostly at the front of a file. So the first read fetches the front as a whole,
//! and later reads of it take the bytes from memory. A file at a URL brings its end along when it
//! is opened.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bedform_format::ObjectPath;
use bedform_format::hdf5::{BLOCK_BYTES, ManyRead, ReadAt, ReadError};
use bedform_storage::cancellation::interrupted;
use bedform_storage::{
    ASK_EVERY, Answer, Bell, Bytes, Object, REQUESTS_MAX, Storage, StorageError, is_cancelled,
};

use super::detect::{PlaceKind, kind_of_bytes};
use super::remote_file_of;
use crate::cache::was_too_young;
use crate::error::{ErrorKind, Result};
use crate::options::OpenOptions;

/// Bytes at the end of a file that are fetched when it is opened.
const TAIL_BYTES: u64 = 1 << 20;
/// Bytes of the first read: metadata mostly lie at the front. The last 8 bytes may be the signature
/// of HDF5.
const FRONT_BYTES: u64 = (1 << 20) + 8;
/// The same for local files: more than many headers, and as much as a disk reads in the time of two
/// requests.
const LOCAL_FRONT_BYTES: usize = 16 << 10;
/// Suffixes of names that are opened as files first; other names are looked up as stores first.
const SUFFIXES: [&str; 10] =
    ["nc", "nc4", "cdf", "netcdf", "h5", "hdf5", "he5", "hdf", "h4", "json"];

/// True for a URL with a suffix of NetCDF, HDF5 or references, or with a query, which only files
/// have.
pub(crate) fn names_file(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    has_query(url) || SUFFIXES.iter().any(|other| suffix.eq_ignore_ascii_case(other))
}

/// True for a URL with a query: no store has one.
pub(crate) fn has_query(url: &str) -> bool {
    let address = url.split('#').next().unwrap_or_default();
    address.split_once('?').is_some_and(|(_, query)| !query.is_empty())
}

/// An opened file whose front is fetched once.
#[derive(Debug)]
pub(crate) struct FrontCachedFile {
    pub(crate) object: Box<dyn Object>,
    front_bytes: u64,
    front: OnceLock<Vec<u8>>,
    /// True if a later state of the file could have the same version.
    is_young: bool,
}

impl FrontCachedFile {
    /// Wraps a file at a URL.
    pub(crate) fn remote(object: Box<dyn Object>) -> Self {
        Self { object, front_bytes: FRONT_BYTES, front: OnceLock::new(), is_young: false }
    }

    /// Opens the file at `path` of a local storage. The front has the bytes that the options'
    /// profile reads in the time of one request.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn local(
        storage: &dyn Storage,
        path: &ObjectPath,
        options: &OpenOptions,
    ) -> std::result::Result<Self, StorageError> {
        let before = SystemTime::now();
        let object = storage.open(path)?;
        let is_young = was_too_young(object.version(), before);
        let gap_bytes = options.profile.as_ref().map_or(0, |profile| profile.merge_gap_bytes);
        let front_bytes = gap_bytes.clamp(LOCAL_FRONT_BYTES as u64, BLOCK_BYTES as u64);
        Ok(Self { object, front_bytes, front: OnceLock::new(), is_young })
    }

    /// Bytes that the parser reads at a time: the front is its first block.
    pub(crate) fn block_bytes(&self) -> usize {
        usize::try_from(self.front_bytes).unwrap_or(BLOCK_BYTES)
    }

    /// Returns the file unless a later state of it could have the same version: a caller that
    /// waited for the file's lock may otherwise use bytes of an earlier state.
    pub(crate) fn if_settled(&self) -> Option<&Self> {
        (!self.is_young).then_some(self)
    }

    /// Bytes of the front of this file.
    fn front_bytes(&self) -> u64 {
        self.object.version().size.min(self.front_bytes)
    }

    /// Fills a buffer with the bytes from an offset on.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn read(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), StorageError> {
        let end = offset.saturating_add(buffer.len() as u64);
        let front_bytes = self.front_bytes();
        if end > front_bytes || self.object.buffered_range().contains(&offset) {
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

    /// Detects the kind of the file by its first bytes.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn kind(&self) -> Result<PlaceKind> {
        let read = |offset, buffer: &mut [u8]| Ok(self.read(offset, buffer)?);
        kind_of_bytes(self.object.version().size, &read)
    }
}

impl ReadAt for FrontCachedFile {
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_many(&self, extents: &[(u64, usize)]) -> ManyRead {
        let front_bytes = self.front_bytes();
        let is_elsewhere = |offset: u64, length: usize| offset + length as u64 > front_bytes;
        let read = |offset, buffer: &mut [u8]| self.read(offset, buffer);
        Ok(Some(read_many(&*self.object, extents, &is_elsewhere, &read)?))
    }
}

/// Fills a buffer with the bytes from an offset on.
pub(crate) type ReadExtent<'a> =
    &'a dyn Fn(u64, &mut [u8]) -> std::result::Result<(), StorageError>;

/// Reads the bytes of `extents` of an object. Extents for which `is_asked` holds are requested
/// concurrently, where the storage can; all others are read by `read`.
///
/// # Errors
/// `Interrupted`; those of storage.
pub(crate) fn read_many(
    object: &dyn Object,
    extents: &[(u64, usize)],
    is_asked: &dyn Fn(u64, usize) -> bool,
    read: ReadExtent<'_>,
) -> std::result::Result<Vec<Vec<u8>>, StorageError> {
    let bell = Arc::new(Bell::default());
    let mut found = Vec::with_capacity(extents.len());
    for batch in extents.chunks(REQUESTS_MAX) {
        let ask = |(offset, length): &(u64, usize)| {
            let is_asked = is_asked(*offset, *length);
            is_asked.then(|| object.request(*offset, *length as u64, &bell)).flatten()
        };
        let answers: Vec<_> = batch.iter().map(ask).collect();
        for (answer, (offset, length)) in answers.into_iter().zip(batch) {
            found.push(match answer {
                Some(answer) => taken(answer, &bell)?.into(),
                None => {
                    let mut bytes = vec![0; *length];
                    read(*offset, &mut bytes)?;
                    bytes
                }
            });
        }
    }
    Ok(found)
}

/// Waits for an answer, and polls for cancellation meanwhile.
fn taken(answer: Answer<Bytes>, bell: &Bell) -> std::result::Result<Bytes, StorageError> {
    loop {
        let heard = bell.count();
        if answer.is_here() {
            return answer.take();
        }
        if is_cancelled() {
            return Err(interrupted("read", "the metadata of a file"));
        }
        bell.wait(heard, Some(ASK_EVERY));
    }
}

/// An opened file at a URL.
#[derive(Debug)]
pub(crate) struct FileAtUrl {
    /// The place that contains the file.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) name: ObjectPath,
    pub(crate) file: FrontCachedFile,
}

impl FileAtUrl {
    /// Opens the file; adds its stored profile and its sidecar to the options.
    ///
    /// # Errors
    /// `NotFound`; others of storage; `InvalidArgument` for an invalid URL.
    pub(crate) fn open(url: &str, options: &mut OpenOptions) -> Result<Self> {
        let (storage, name) = remote_file_of(url, options)?;
        let file = FrontCachedFile::remote(storage.open_end(&name, TAIL_BYTES)?);
        Ok(Self { storage, name, file })
    }

    /// The file's name for messages.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}", self.storage.name(), self.name)
    }
}

/// Detects the kind of the object at a URL, or its absence.
///
/// # Errors
/// Those of storage; `InvalidArgument` for an invalid URL.
pub(crate) fn kind_at(url: &str, options: &OpenOptions) -> Result<PlaceKind> {
    match FileAtUrl::open(url, &mut options.clone()) {
        Ok(opened) => opened.file.kind(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(PlaceKind::Missing),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::names_file;

    #[test]
    fn files_are_told_by_their_suffix_whatever_its_case_and_by_a_query() {
        assert!(names_file("s3://bucket/run.NC") && !names_file("s3://bucket/run.zarr"));
        assert!(names_file("https://host/run.nc#mode=bytes") && names_file("https://host/get?a=b"));
        assert!(!names_file("https://host/run.zarr#a"));
    }
}
