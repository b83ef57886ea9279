//! An opened object: its version, and the bytes at its end.

use std::ops::Range;
use std::sync::Arc;

use ::bytes::Bytes;
use ::object_store::path::Path;
use ::object_store::{
    Attributes, Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
};
use futures_util::TryStreamExt as _;

use super::error::{is_beyond_end, is_out_of_range, lacks_length, strict, to_error};
use super::put::{Known, head, look};
use super::transport::{call, failure_of};
use super::{Result, Shared, runtime, version_of};
use bedform_storage::{Answer, Bell, Object, StorageError, StorageErrorKind, Version, lacks};

/// Bytes at the end that come with the first request, where nobody knows better: whole documents.
pub(super) const TAIL_BYTES: u64 = 64 << 10;
/// What a server that gives no parts of objects is asked for at most.
pub(super) const WHOLE_BYTES_MAX: u64 = 256 << 20;
/// Times that an object may be replaced while it is opened.
const REPLACED_MAX: usize = 16;

/// An object as it was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct RemoteObject {
    shared: Arc<Shared>,
    name: Path,
    shown: String,
    version: Version,
    /// What the object's version is called, if it has a name.
    tag: Option<String>,
    /// Bytes that came with the first request, and where they start.
    known: Bytes,
    known_start: u64,
}

impl RemoteObject {
    /// Opens an object, of which the last `tail` bytes come along: one request. Also says what is known
    /// of it for those who write.
    pub(super) async fn open(
        shared: Arc<Shared>,
        name: Path,
        shown: String,
        tail: u64,
    ) -> Result<(Self, Known)> {
        let store = shared.client.store()?.clone();
        let opened = runtime::request(|| open(&*store, &name, tail.max(1))).await;
        let opened = opened.map_err(|error| {
            let error = if shared.lists { strict(error) } else { error };
            to_error("open", &shown, error)
        })?;
        let Opened { meta, attributes, start, bytes: known } = opened;
        let version = version_of(&meta);
        if start.saturating_add(known.len() as u64) != version.size {
            // The server says less than it promised.
            return Err(StorageError::new(StorageErrorKind::Truncated, "open", &shown));
        }
        let (told, tag) = (Known::new(&meta, &attributes), meta.e_tag);
        Ok((Self { shared, name, shown, version, tag, known, known_start: start }, told))
    }

    /// Fills the front of `buffer` from what is known; gives the bytes that there were.
    fn copy_known(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(start) = offset.checked_sub(self.known_start) else { return 0 };
        let from = usize::try_from(start).unwrap_or(usize::MAX).min(self.known.len());
        let known = &self.known[from..];
        let count = known.len().min(buffer.len());
        buffer[..count].copy_from_slice(&known[..count]);
        count
    }

    /// The bytes from `offset` on, as many as there are before those that are known; those follow.
    async fn fetch_before(self, offset: u64, length: usize, missing: usize) -> Result<Bytes> {
        let mut bytes = vec![0; length];
        let (front, rest) = bytes.split_at_mut(missing);
        self.copy_known(offset + missing as u64, rest);
        let store = self.shared.client.store()?.clone();
        judge(self.fetch(&*store, offset, front).await, &self.shown)?;
        Ok(bytes.into())
    }

    /// How many of the bytes from `offset` on lie before those that are known; nothing if the object has
    /// not as many.
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
    ) -> std::result::Result<Changed, Error> {
        let range = offset..offset + buffer.len() as u64;
        call(async {
            let answer = store.get_opts(&self.name, self.asking_for(range.clone())).await?;
            // Servers that know no conditions answer anyway.
            if version_of(&answer.meta) != self.version || answer.range != range {
                return Ok(Changed(true));
            }
            fill(answer, buffer).await
        })
        .await
    }

    fn asking_for(&self, range: Range<u64>) -> GetOptions {
        // A weak name matches nothing: what it names may be other bytes.
        let tag = self.tag.clone().filter(|tag| !tag.starts_with("W/"));
        GetOptions { range: Some(range.into()), if_match: tag, ..GetOptions::default() }
    }

    fn error(&self, kind: StorageErrorKind) -> StorageError {
        StorageError::new(kind, "read", &self.shown)
    }
}

/// True if an answer was not of the version that was asked for.
pub(super) struct Changed(pub(super) bool);

/// Fills `buffer` with the body of an answer as it comes, so that it is in memory once; says that the
/// object has changed if there are more bytes or less.
///
/// # Errors
/// Of the server.
pub(super) async fn fill(
    answer: GetResult,
    buffer: &mut [u8],
) -> std::result::Result<Changed, Error> {
    let mut at = 0;
    let mut stream = answer.into_stream();
    while let Some(piece) = stream.try_next().await? {
        let Some(room) = buffer.get_mut(at..at + piece.len()) else { return Ok(Changed(true)) };
        room.copy_from_slice(&piece);
        at += piece.len();
    }
    Ok(Changed(at != buffer.len()))
}

/// What fetching bytes of an opened object came to.
///
/// # Errors
/// `Conflict` if the object has changed; of the server.
pub(super) fn judge(fetched: std::result::Result<Changed, Error>, shown: &str) -> Result<()> {
    match fetched {
        Ok(Changed(false)) => Ok(()),
        Ok(Changed(true)) | Err(Error::NotFound { .. } | Error::Precondition { .. }) => {
            Err(StorageError::new(StorageErrorKind::Conflict, "read", shown))
        }
        // It had these bytes when it was opened.
        Err(error) if is_beyond_end(&error) => {
            Err(StorageError::new(StorageErrorKind::Conflict, "read", shown))
        }
        Err(error) => Err(to_error("read", shown, error)),
    }
}

/// What is there, and its last bytes with the place where they start.
struct Opened {
    meta: ObjectMeta,
    attributes: Attributes,
    start: u64,
    bytes: Bytes,
}

async fn open(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
) -> std::result::Result<Opened, Error> {
    let range = Some(GetRange::Suffix(tail));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(answer) => tail_of(answer).await,
        Err(
            error @ (Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }),
        ) => Err(error),
        // Another request to it would end alike.
        Err(error) if failure_of(&error).is_some() => Err(error),
        // What nobody was asked for, where no server counts from the end: Azure.
        Err(Error::NotSupported { .. }) => open_by_front(store, name, tail).await,
        // An object of no bytes has no last ones; and not all servers count from the end, or know parts.
        Err(error) => open_by_size(store, name, tail, None, error).await,
    }
}

/// As [`open`], of a server that gives no last bytes: most objects are documents, which come whole with
/// their first ones.
async fn open_by_front(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
) -> std::result::Result<Opened, Error> {
    let range = Some(GetRange::Bounded(0..tail.min(TAIL_BYTES)));
    match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
        Ok(answer) if answer.range.end == answer.meta.size => tail_of(answer).await,
        Ok(answer) => {
            let found = Some((answer.meta.clone(), answer.attributes.clone()));
            // The connection is good for more once its answer was taken.
            let _ = answer.bytes().await;
            let source = "it is replaced again and again".into();
            open_by_size(store, name, tail, found, Error::Generic { store: "server", source }).await
        }
        // It has no bytes, or the server knows no parts at all.
        Err(error) if is_out_of_range(&error) || matches!(error, Error::NotSupported { .. }) => {
            open_by_size(store, name, tail, None, error).await
        }
        Err(error) => Err(error),
    }
}

/// As [`open`], of a server that answered with `error`, and may say how large the object is, or has
/// `found` it.
async fn open_by_size(
    store: &dyn ObjectStore,
    name: &Path,
    tail: u64,
    mut found: Option<(ObjectMeta, Attributes)>,
    error: Error,
) -> std::result::Result<Opened, Error> {
    for _ in 0..REPLACED_MAX {
        let (meta, attributes) = match found.take() {
            Some(found) => found,
            None => match head(store, name).await {
                Ok(found) => found,
                // A body says what is missing.
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
            return Ok(Opened { meta, attributes, start: 0, bytes: Bytes::new() });
        }
        let range = Some(GetRange::Bounded(meta.size.saturating_sub(tail)..meta.size));
        match store.get_opts(name, GetOptions { range, ..GetOptions::default() }).await {
            // Those are not the last bytes of what has taken its place meanwhile.
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

async fn tail_of(answer: GetResult) -> std::result::Result<Opened, Error> {
    let (meta, attributes, start) =
        (answer.meta.clone(), answer.attributes.clone(), answer.range.start);
    Ok(Opened { meta, attributes, start, bytes: answer.bytes().await? })
}

impl Object for RemoteObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // What is known at the end need not come again.
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

    fn ask(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let length = usize::try_from(length).ok()?;
        let missing = self.missing(offset, length).filter(|missing| *missing > 0)?;
        runtime::answer(bell, self.clone().fetch_before(offset, length, missing))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.copy_known(offset, buffer))
    }

    fn at_hand(&self) -> Range<u64> {
        self.known_start..self.known_start + self.known.len() as u64
    }

    fn known(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.known_start)?).ok()?;
        self.known.get(start..start.checked_add(length)?)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        // Only a name of the version makes sure that the bytes are of it: size and time may be those of
        // another.
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
