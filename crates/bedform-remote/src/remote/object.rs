//! An opened object: its version, and its last bytes.

use std::ops::Range;
use std::sync::Arc;

use ::bytes::Bytes;
use ::object_store::path::Path;
use ::object_store::{
    Attributes, Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
};
use futures_util::TryStreamExt as _;

use super::error::{is_beyond_end, is_out_of_range, lacks_length, strict, to_error};
use super::put::{ObjectState, head, look};
use super::transport::{call, failure_of};
use super::{RemoteShared, Result, runtime, version_of};
use bedform_storage::{Answer, Bell, Object, StorageError, StorageErrorKind, Version, lacks};

/// Bytes from the end of an object that its opening fetches by default: enough for whole documents.
pub(super) const TAIL_BYTES: u64 = 64 << 10;
/// The most bytes of an object that is read whole, from a server without range requests.
pub(super) const WHOLE_BYTES_MAX: u64 = 256 << 20;
/// The most replacements of an object during its opening.
const REPLACED_MAX: usize = 16;

/// An opened object with a fixed version.
#[derive(Debug, Clone)]
pub(super) struct RemoteObject {
    shared: Arc<RemoteShared>,
    name: Path,
    shown: String,
    version: Version,
    /// The ETag of the version, if the server sent one.
    tag: Option<String>,
    /// Bytes that came with the opening, and their offset.
    known: Bytes,
    known_start: u64,
}

impl RemoteObject {
    /// Opens an object together with its last `tail` bytes, by one request. Also returns its state
    /// for later writes.
    pub(super) async fn open(
        shared: Arc<RemoteShared>,
        name: Path,
        shown: String,
        tail: u64,
    ) -> Result<(Self, ObjectState)> {
        let store = shared.client.store()?.clone();
        let opened = runtime::request(|| open(&*store, &name, tail.max(1))).await;
        let opened = opened.map_err(|error| {
            let error = if shared.lists { strict(error) } else { error };
            to_error("open", &shown, error)
        })?;
        let OpenedTail { meta, attributes, start, bytes: known } = opened;
        let version = version_of(&meta);
        if start.saturating_add(known.len() as u64) != version.size {
            // The answer is shorter than its header said.
            return Err(StorageError::new(StorageErrorKind::Truncated, "open", &shown));
        }
        let (told, tag) = (ObjectState::new(&meta, &attributes), meta.e_tag);
        Ok((Self { shared, name, shown, version, tag, known, known_start: start }, told))
    }

    /// Copies bytes that came with the opening to the front of `buffer`, and returns their number.
    fn copy_known(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(start) = offset.checked_sub(self.known_start) else { return 0 };
        let from = usize::try_from(start).unwrap_or(usize::MAX).min(self.known.len());
        let known = &self.known[from..];
        let count = known.len().min(buffer.len());
        buffer[..count].copy_from_slice(&known[..count]);
        count
    }

    /// Fetches `missing` bytes from `offset` on, and appends bytes that came with the opening,
    /// `length` in all.
    async fn fetch_before(self, offset: u64, length: usize, missing: usize) -> Result<Bytes> {
        let mut bytes = vec![0; length];
        let (front, rest) = bytes.split_at_mut(missing);
        self.copy_known(offset + missing as u64, rest);
        let store = self.shared.client.store()?.clone();
        judge(self.fetch(&*store, offset, front).await, &self.shown)?;
        Ok(bytes.into())
    }

    /// Returns how many of `length` bytes from `offset` on did not come with the opening. `None`
    /// past the object's end.
    fn missing(&self, offset: u64, length: usize) -> Option<usize> {
        let length = length as u64;
        offset.checked_add(length).filter(|end| *end <= self.version.size)?;
        usize::try_from(self.known_start.saturating_sub(offset).min(length)).ok()
    }

    /// Fills `buffer` with the bytes from `offset` on, all of which the object has.
    async fn fetch(
        &self,
        store: &dyn ObjectStore,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<VersionChanged, Error> {
        let range = offset..offset + buffer.len() as u64;
        call(async {
            let answer = store.get_opts(&self.name, self.asking_for(range.clone())).await?;
            // A server that ignores conditions answers anyway.
            if version_of(&answer.meta) != self.version || answer.range != range {
                return Ok(VersionChanged(true));
            }
            fill(answer, buffer).await
        })
        .await
    }

    fn asking_for(&self, range: Range<u64>) -> GetOptions {
        // A weak ETag matches nothing: it may stand for other bytes.
        let tag = self.tag.clone().filter(|tag| !tag.starts_with("W/"));
        GetOptions { range: Some(range.into()), if_match: tag, ..GetOptions::default() }
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError::new(kind, "read", &self.shown)
    }
}

/// True if an answer had another version than was requested.
pub(super) struct VersionChanged(pub(super) bool);

/// Fills `buffer` with the body of an answer as it arrives, without a second copy. The object has
/// changed if the length differs.
///
/// # Errors
/// Of the server.
pub(super) async fn fill(
    answer: GetResult,
    buffer: &mut [u8],
) -> std::result::Result<VersionChanged, Error> {
    let mut at = 0;
    let mut stream = answer.into_stream();
    while let Some(piece) = stream.try_next().await? {
        let Some(room) = buffer.get_mut(at..at + piece.len()) else {
            return Ok(VersionChanged(true));
        };
        room.copy_from_slice(&piece);
        at += piece.len();
    }
    Ok(VersionChanged(at != buffer.len()))
}

/// Turns the outcome of a fetch into an error of a read.
///
/// # Errors
/// `Conflict` if the object has changed; of the server.
pub(super) fn judge(
    fetched: std::result::Result<VersionChanged, Error>,
    shown: &str,
) -> Result<()> {
    match fetched {
        Ok(VersionChanged(false)) => Ok(()),
        Ok(VersionChanged(true)) | Err(Error::NotFound { .. } | Error::Precondition { .. }) => {
            Err(StorageError::new(StorageErrorKind::Conflict, "read", shown))
        }
        // It had these bytes when it was opened.
        Err(error) if is_beyond_end(&error) => {
            Err(StorageError::new(StorageErrorKind::Conflict, "read", shown))
        }
        Err(error) => Err(to_error("read", shown, error)),
    }
}

/// The metadata of an object, with its last bytes and their offset.
struct OpenedTail {
    meta: ObjectMeta,
    attributes: Attributes,
    start: u64,
    bytes: Bytes,
}

async fn open(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
) -> std::result::Result<OpenedTail, Error> {
    let range = Some(GetRange::Suffix(tail));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(answer) => tail_of(answer).await,
        Err(
            error @ (Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }),
        ) => Err(error),
        // The next request to this server would fail alike.
        Err(error) if failure_of(&error).is_some() => Err(error),
        // No request was sent: Azure has no ranges that count from the end.
        Err(Error::NotSupported { .. }) => open_by_front(store, name, tail).await,
        // An empty object has no last byte, and not all servers support such ranges, or any.
        Err(error) => open_by_size(store, name, tail, None, error).await,
    }
}

/// As [`open`], for a server without ranges from the end: most objects are small documents, which
/// the first range contains whole.
async fn open_by_front(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
) -> std::result::Result<OpenedTail, Error> {
    let range = Some(GetRange::Bounded(0..tail.min(TAIL_BYTES)));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(answer) if answer.range.end == answer.meta.size => tail_of(answer).await,
        Ok(answer) => {
            let found = Some((answer.meta.clone(), answer.attributes.clone()));
            // The connection can be reused after the body was read.
            let _ = answer.bytes().await;
            let source = "it is replaced again and again".into();
            open_by_size(store, name, tail, found, Error::Generic { store: "server", source }).await
        }
        // The object is empty, or the server has no ranges at all.
        Err(error) if is_out_of_range(&error) || matches!(error, Error::NotSupported { .. }) => {
            open_by_size(store, name, tail, None, error).await
        }
        Err(error) => Err(error),
    }
}

/// As [`open`], for a server that answered with `error`: asks for the size first, unless `found`
/// holds it.
async fn open_by_size(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
    mut found: Option<(ObjectMeta, Attributes)>,
    error: Error,
) -> std::result::Result<OpenedTail, Error> {
    for _ in 0..REPLACED_MAX {
        let (meta, attributes) = match found.take() {
            Some(found) => found,
            None => match head(store, name).await {
                Ok(found) => found,
                // A body tells what is missing.
                Err(missing @ Error::NotFound { .. }) => {
                    let range = Some(GetRange::Bounded(0..1));
                    let get = GetOptions { range, ..GetOptions::default() };
                    return Err(store.get_opts(name, get).await.err().unwrap_or(missing));
                }
                Err(lacking) if lacks_length(&lacking) => return Err(lacking),
                Err(_) => return Err(error),
            },
        };
        if meta.size == 0 {
            return Ok(OpenedTail { meta, attributes, start: 0, bytes: Bytes::new() });
        }
        let range = Some(GetRange::Bounded(meta.size.saturating_sub(tail)..meta.size));
        match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
            // The object was replaced, so these are not its last bytes.
            Ok(answer) if answer.meta.size != meta.size => {}
            Err(error) if is_out_of_range(&error) => {}
            Ok(answer) => return tail_of(answer).await,
            Err(Error::NotSupported { .. }) if meta.size <= WHOLE_BYTES_MAX => {
                let answer = store.get(name).await?;
                if answer.meta.size == meta.size {
                    return tail_of(answer).await;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(error)
}

async fn tail_of(answer: GetResult) -> std::result::Result<OpenedTail, Error> {
    let (meta, attributes, start) =
        (answer.meta.clone(), answer.attributes.clone(), answer.range.start);
    Ok(OpenedTail { meta, attributes, start, bytes: answer.bytes().await? })
}

impl Object for RemoteObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // Bytes that came with the opening are not fetched again.
        let missing = self.missing(offset, buffer.len());
        let missing = missing.ok_or_else(|| self.error(StorageErrorKind::Truncated))?;
        let (missing, rest) = buffer.split_at_mut(missing);
        self.copy_known(offset + missing.len() as u64, rest);
        if missing.is_empty() {
            return Ok(());
        }
        let store = &**self.shared.client.store()?;
        let fetched = runtime::wait("read", &self.shown, self.fetch(store, offset, missing))?;
        judge(fetched, &self.shown)
    }

    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let length = usize::try_from(length).ok()?;
        let missing = self.missing(offset, length).filter(|missing| *missing > 0)?;
        runtime::answer(bell, self.clone().fetch_before(offset, length, missing))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.copy_known(offset, buffer))
    }

    fn buffered_range(&self) -> Range<u64> {
        self.known_start..self.known_start + self.known.len() as u64
    }

    fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.known_start)?).ok()?;
        self.known.get(start..start.checked_add(length)?)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        // Only an ETag makes sure that later bytes are of this version: another one may have the
        // same size and time.
        self.tag.as_ref().filter(|tag| !tag.starts_with("W/"))?;
        Some(Arc::new(Self { known: Bytes::new(), known_start: self.version.size, ..self.clone() }))
    }

    fn is_current(&self) -> Result<bool> {
        let look = look(&**self.shared.client.store()?, &self.name, self.shared.lists);
        let found = runtime::wait("stat", &self.shown, look)?;
        let found = found.map_err(|error| to_error("stat", &self.shown, error))?;
        Ok(found.is_some_and(|found| found.version == self.version))
    }

    lacks!(read_past, read_ahead);
}
