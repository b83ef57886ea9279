//! Files whose front is fetched once, and those at URLs: whether a URL names one.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bedform_format::ObjectPath;
use bedform_format::hdf5::{BLOCK_BYTES, ManyRead, ReadAt, ReadError};
use bedform_storage::cancellation::interrupted;
use bedform_storage::{
    ASK_EVERY, Answer, Bell, Bytes, Object, REQUESTS_MAX, Storage, StorageError, goes_on,
};

use super::detect::{PlaceKind, kind_of_bytes};
use super::remote_file_of;
use crate::cache::was_too_young;
use crate::error::{ErrorKind, Result};
use crate::options::OpenOptions;

/// What comes with the opening, from the end of the file.
const TAIL_BYTES: u64 = 1 << 20;
/// What the first read brings: metadata mostly lie at the front. The signature of HDF5 may lie at its end.
const FRONT_BYTES: u64 = (1 << 20) + 8;
/// The same on this machine: more than many headers, and what a disk brings in the time of two requests.
const LOCAL_FRONT_BYTES: usize = 16 << 10;
/// How names of files end that are opened as files first; all else is looked for as a store before.
const SUFFIXES: [&str; 10] =
    ["nc", "nc4", "cdf", "netcdf", "h5", "hdf5", "he5", "hdf", "h4", "json"];

/// True for a URL that ends as the names of NetCDF and HDF5 files do, or can be that of a file alone.
pub(crate) fn names_file(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    has_query(url) || SUFFIXES.iter().any(|other| suffix.eq_ignore_ascii_case(other))
}

/// True for a URL with a query, as no store has.
pub(crate) fn has_query(url: &str) -> bool {
    let address = url.split('#').next().unwrap_or_default();
    address.split_once('?').is_some_and(|(_, query)| !query.is_empty())
}

/// An opened file whose front is fetched once.
#[derive(Debug)]
pub(crate) struct Fronted {
    pub(crate) object: Box<dyn Object>,
    front_bytes: u64,
    front: OnceLock<Vec<u8>>,
    /// True if a later state of the file could look the same.
    is_young: bool,
}

impl Fronted {
    /// A file at a URL.
    pub(crate) fn remote(object: Box<dyn Object>) -> Self {
        Self { object, front_bytes: FRONT_BYTES, front: OnceLock::new(), is_young: false }
    }

    /// The file at `path` of a storage of this machine. By the profile of the options as much comes at once as
    /// takes no longer than a request.
    ///
    /// # Errors
    /// Of storage.
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

    /// What the parser asks for at once: the front is its first block.
    pub(crate) fn block_bytes(&self) -> usize {
        usize::try_from(self.front_bytes).unwrap_or(BLOCK_BYTES)
    }

    /// What has come of the file, for who has its lock only now: nothing that might be of an earlier state which
    /// its version does not tell from this one.
    pub(crate) fn if_settled(&self) -> Option<&Self> {
        (!self.is_young).then_some(self)
    }

    /// What lies at the front, in bytes.
    fn front_bytes(&self) -> u64 {
        self.object.version().size.min(self.front_bytes)
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
        let end = offset.saturating_add(buffer.len() as u64);
        let front_bytes = self.front_bytes();
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

/// The bytes of `extents` of an object. Those that `is_asked` holds for are requested at once, where the
/// place can do that; all others are read by `read`.
///
/// # Errors
/// `Interrupted`; of storage.
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
            is_asked.then(|| object.ask(*offset, *length as u64, &bell)).flatten()
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

/// What is answered, waited for as long as the call goes on.
fn taken(answer: Answer<Bytes>, bell: &Bell) -> std::result::Result<Bytes, StorageError> {
    loop {
        let heard = bell.count();
        if answer.is_here() {
            return answer.take();
        }
        if !goes_on() {
            return Err(interrupted("read", "the metadata of a file"));
        }
        bell.wait(heard, Some(ASK_EVERY));
    }
}

/// The file at a URL.
#[derive(Debug)]
pub(crate) struct FileAtUrl {
    /// The place that it lies in.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) name: ObjectPath,
    pub(crate) file: Fronted,
}

impl FileAtUrl {
    /// Opens it; the options get the profile and the sidecar that are kept for it.
    ///
    /// # Errors
    /// `NotFound`; others of storage; `InvalidArgument` for a URL that is none.
    pub(crate) fn open(url: &str, options: &mut OpenOptions) -> Result<Self> {
        let (storage, name) = remote_file_of(url, options)?;
        let file = Fronted::remote(storage.open_end(&name, TAIL_BYTES)?);
        Ok(Self { storage, name, file })
    }

    /// The file's name for messages.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}", self.storage.name(), self.name)
    }
}

/// What the object at a URL is, if there is one.
///
/// # Errors
/// Of storage; `InvalidArgument` for a URL that is none.
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
