//! Writing of an object before publication. A small object is kept in memory and published by one
//! request. A large one is sent in parts while it is made, and published by the last request.

use std::sync::Arc;

use ::bytes::Bytes;
use ::object_store::multipart::PartId;
use ::object_store::path::Path;
use ::object_store::{Error, MultipartId, PutPayload};
use bedform_format::ObjectPath;
use futures_util::future::join;
use tokio::task::JoinHandle;

use super::parts::MultipartClient;
use super::pieces::UploadBuffers;
use super::put::{Completion, ObjectState, WriteError, WriteNames, given_up, look};
use super::{RemoteStorage, Result, runtime};
use bedform_storage::{
    Condition, ObjectWriter, StorageError, StorageErrorKind, Version, WriteHint,
};

/// The most bytes of an object: all stores take so many in one request, and some take no more on a
/// condition.
const OBJECT_BYTES_MAX: u64 = 4 << 30;
/// The number of objects in flight from which each is sent whole: there are enough streams, and
/// parts cost the server more.
const OBJECTS_AT_ONCE: usize = 6;
/// Bytes of a buffer.
const PIECE_BYTES: usize = 4 << 20;

/// The least bytes of memory that is kept without a copy. Fewer are copied, because each piece is
/// one write to the connection.
const KEPT_BYTES_MIN: usize = 64 << 10;

type PendingLookup = JoinHandle<std::result::Result<Option<ObjectState>, Error>>;

pub(super) struct RemoteWriter {
    storage: RemoteStorage,
    path: ObjectPath,
    name: Path,
    /// The lookup of the present object, which runs while the new one is made.
    there: Option<PendingLookup>,
    /// The multipart upload, if the object is sent in parts.
    upload: Option<UploadInProgress>,
    pieces: Vec<Bytes>,
    memory: Arc<UploadBuffers>,
    piece_bytes: usize,
    last: Vec<u8>,
    /// The expected size in bytes; 0 if unknown.
    announced: u64,
    position: u64,
}

/// A multipart upload in progress.
struct UploadInProgress {
    parts: [Arc<dyn MultipartClient>; 2],
    opening: Option<JoinHandle<std::result::Result<OpenedUpload, Error>>>,
    opened: Option<Arc<OpenedUpload>>,
    sent: Vec<JoinHandle<std::result::Result<PartId, Error>>>,
    /// Bytes in sent parts.
    sent_bytes: u64,
    part_bytes: u64,
    /// Bytes held back until the end, so that the last part is not smaller.
    kept_bytes: u64,
}

/// An opened upload, with the object that its metadata follow.
struct OpenedUpload {
    name: Path,
    upload: MultipartId,
    names: WriteNames,
    there: Option<ObjectState>,
}

impl RemoteWriter {
    pub(super) fn create(
        storage: &RemoteStorage,
        path: &ObjectPath,
        hint: WriteHint,
    ) -> Result<Self> {
        let name = storage.name_to_write("create", path)?;
        let part_bytes = storage.shared.options.part_bytes.max(1);
        let piece_bytes = PIECE_BYTES.min(part_bytes);
        let is_large = hint.bytes.is_some_and(|bytes| bytes / 2 >= part_bytes as u64);
        let wants_streams = hint.at_once < OBJECTS_AT_ONCE;
        let parts = if is_large && wants_streams { storage.parts(path)? } else { None };
        let (store, looked) = (storage.shared.client.store()?.clone(), name.clone());
        let there = runtime::spawn(async move { look(&*store, &looked, true).await })?;
        let upload = parts.map(|parts| UploadInProgress {
            parts,
            opening: None,
            opened: None,
            sent: Vec::new(),
            sent_bytes: 0,
            part_bytes: (part_bytes.div_ceil(piece_bytes) * piece_bytes) as u64,
            kept_bytes: piece_bytes as u64,
        });
        Ok(Self {
            storage: storage.clone(),
            path: path.clone(),
            name,
            there: Some(there),
            upload,
            pieces: Vec::new(),
            memory: storage.shared.pieces.get(),
            piece_bytes,
            last: Vec::new(),
            announced: hint.bytes.unwrap_or(0),
            position: 0,
        })
    }

    /// Opens the upload at the first piece, and once it is open sends full parts. The last `later`
    /// counted bytes are not yet in pieces.
    fn send_parts(&mut self, later: usize) -> Result<()> {
        let end = self.in_pieces() - later as u64;
        let Some(upload) = &mut self.upload else { return Ok(()) };
        if let Some(there) = self.there.take() {
            // Most objects are new; for a known one the names of its writes are awaited.
            let is_new = self.storage.shared.seen(&self.name).flatten().is_none();
            let (parts, name) = (upload.parts[0].clone(), self.name.clone());
            upload.opening = Some(runtime::spawn(open(parts, name, there, is_new))?);
        }
        if upload.opening.as_ref().is_some_and(JoinHandle::is_finished) {
            upload.wait_until_open(&self.path)?;
        }
        if let Some(opened) = upload.opened.clone() {
            upload.send_full_parts(&opened, &self.pieces, end)?;
        }
        Ok(())
    }

    /// Returns the number of bytes in pieces.
    fn in_pieces(&self) -> u64 {
        self.position - self.last.len() as u64
    }

    /// Adds `bytes` to the position, and fails past the size limit.
    fn grow(&mut self, bytes: usize) -> Result<()> {
        self.position += bytes as u64;
        if self.position <= OBJECT_BYTES_MAX {
            return Ok(());
        }
        let reason = "objects of more than 4 GiB cannot be written here: make the shards smaller";
        Err(StorageError {
            kind: StorageErrorKind::Io,
            operation: "write",
            path: self.path.to_string(),
            source: Some(std::io::Error::other(reason)),
        })
    }

    /// True if at least half a piece is expected, from `bytes` or the announced size: less does not
    /// pay for a whole buffer.
    fn is_half_a_piece_to_come(&self, bytes: &[u8]) -> bool {
        let announced = self.announced.saturating_sub(self.position);
        announced.max(bytes.len() as u64) >= self.piece_bytes as u64 / 2
    }

    /// Sends the rest as the last part and completes the upload. `None` if the object has to be
    /// sent whole.
    fn publish_parts(
        &mut self,
        condition: Condition<'_>,
    ) -> Result<Option<std::result::Result<Option<ObjectState>, WriteError>>> {
        let Some(mut upload) = self.upload.take() else { return Ok(None) };
        upload.wait_until_open(&self.path)?;
        let Some(opened) = upload.opened.clone() else { return Ok(None) };
        let expected = match (condition, &opened.there) {
            (Condition::Absent, None) => None,
            (Condition::None, there) => there.as_ref(),
            (Condition::Unchanged(object), Some(known)) if known.version == *object.version() => {
                Some(known)
            }
            // The lookup was perhaps too early.
            _ => {
                upload.give_up();
                return Ok(None);
            }
        };
        upload.send_full_parts(&opened, &self.pieces, self.position)?;
        upload.send(&opened, &self.pieces, self.position)?;
        let completing = upload.complete(&self.storage, &opened, expected, self.position);
        let outcome = runtime::write("publish", &self.path, completing)?;
        Ok(match outcome.unwrap_or_else(|| Err(given_up())) {
            // The newest writer wins.
            Err(WriteError::Refused) if matches!(condition, Condition::None) => None,
            // The server has forgotten the upload.
            Err(WriteError::Failed(Error::NotFound { .. })) => None,
            outcome => Some(outcome),
        })
    }
}

/// Opens an upload after the lookup of the present object, whose writes the metadata name. `is_new`
/// is a guess that there is none.
async fn open(
    parts: Arc<dyn MultipartClient>,
    name: Path,
    there: PendingLookup,
    is_new: bool,
) -> std::result::Result<OpenedUpload, Error> {
    let (there, guessed) = match is_new {
        true => {
            let names = WriteNames::following(None);
            let (there, upload) = join(there, parts.begin(&name, names.attributes())).await;
            (there, Some((upload?, names)))
        }
        false => (there.await, None),
    };
    let there = there.map_err(runtime::ended).and_then(|there| there);
    match (there, guessed) {
        (Ok(None), Some((upload, names))) => Ok(OpenedUpload { name, upload, names, there: None }),
        (Ok(there), guessed) => {
            if let Some((upload, _)) = guessed {
                let _ = parts.abort(&name, &upload).await;
            }
            let names = WriteNames::following(there.as_ref());
            let upload = parts.begin(&name, names.attributes()).await?;
            Ok(OpenedUpload { name, upload, names, there })
        }
        (Err(error), guessed) => {
            if let Some((upload, _)) = guessed {
                let _ = parts.abort(&name, &upload).await;
            }
            Err(error)
        }
    }
}

impl UploadInProgress {
    /// Waits until the upload is open. If that fails, the object is sent whole.
    fn wait_until_open(&mut self, path: &ObjectPath) -> Result<()> {
        if let Some(opening) = self.opening.take() {
            let opened = runtime::wait("create", path, opening)?;
            self.opened = opened.ok().and_then(std::result::Result::ok).map(Arc::new);
        }
        Ok(())
    }

    /// Sends the full parts of the bytes before `end`. Some bytes are held back, so that the last
    /// part is not small.
    fn send_full_parts(
        &mut self,
        opened: &Arc<OpenedUpload>,
        pieces: &[Bytes],
        end: u64,
    ) -> Result<()> {
        while end - self.sent_bytes >= self.part_bytes + self.kept_bytes {
            self.send(opened, pieces, self.sent_bytes + self.part_bytes)?;
        }
        Ok(())
    }

    /// Sends the unsent bytes before `end` as one part.
    fn send(&mut self, opened: &Arc<OpenedUpload>, pieces: &[Bytes], end: u64) -> Result<()> {
        let payload: PutPayload = between(pieces, self.sent_bytes, end).collect();
        self.sent_bytes = end;
        let (parts, opened, number) = (self.parts[0].clone(), opened.clone(), self.sent.len());
        let part = async move { parts.part(&opened.name, &opened.upload, number, payload).await };
        self.sent.push(runtime::spawn(part)?);
        Ok(())
    }

    async fn complete(
        mut self,
        storage: &RemoteStorage,
        opened: &OpenedUpload,
        expected: Option<&ObjectState>,
        size: u64,
    ) -> std::result::Result<Option<ObjectState>, WriteError> {
        let mut ids = Ok(Vec::with_capacity(self.sent.len()));
        // Waits for all parts: one that arrives after the upload was removed would stay.
        for sent in std::mem::take(&mut self.sent) {
            match (sent.await.map_err(runtime::ended).and_then(|sent| sent), &mut ids) {
                (Ok(id), Ok(ids)) => ids.push(id),
                (Err(error), Ok(_)) => ids = Err(WriteError::Failed(error)),
                (_, Err(_)) => {}
            }
        }
        let [repeating, plain] = self.parts.clone();
        let outcome = match (ids, storage.shared.writes()) {
            (Ok(ids), Ok(writes)) => {
                let completion = Completion { parts: plain, upload: opened.upload.clone(), ids };
                writes.complete_if(&opened.name, expected, &opened.names, size, completion).await
            }
            (Err(unwritten), _) => Err(unwritten),
            // There was a client at the start.
            (_, Err(_)) => Err(WriteError::Refused),
        };
        if outcome.is_err() {
            let _ = repeating.abort(&opened.name, &opened.upload).await;
        }
        outcome
    }

    /// Removes the sent parts, in the background.
    fn give_up(self) {
        let Self { parts: [parts, _], opening, opened, sent, .. } = self;
        // If this fails, they stay invisible.
        let _ = runtime::spawn(async move {
            let opened = match opening {
                Some(opening) => opening.await.ok().and_then(std::result::Result::ok).map(Arc::new),
                None => opened,
            };
            for sent in sent {
                let _ = sent.await;
            }
            if let Some(opened) = opened {
                let _ = parts.abort(&opened.name, &opened.upload).await;
            }
        });
    }
}

/// Returns the bytes of `pieces` from `start` on before `end`, without a copy.
fn between(pieces: &[Bytes], start: u64, end: u64) -> impl Iterator<Item = Bytes> {
    let mut next = 0_u64;
    pieces.iter().filter_map(move |piece| {
        let first = next;
        next += piece.len() as u64;
        // Both are in the piece then.
        let inside = |at: u64| usize::try_from(at.clamp(first, next) - first).unwrap_or(0);
        let range = inside(start)..inside(end);
        (!range.is_empty()).then(|| piece.slice(range))
    })
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take()
            && (upload.opening.is_some() || upload.opened.is_some())
        {
            upload.give_up();
        }
    }
}

impl ObjectWriter for RemoteWriter {
    /// Does nothing: an object of a store has one name.
    fn keep_replaced(&mut self, _suffix: &'static str, _path: ObjectPath) {}

    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.grow(bytes.len())?;
        while !bytes.is_empty() {
            if self.last.capacity() == 0 && self.is_half_a_piece_to_come(bytes) {
                self.last = self.memory.take(self.piece_bytes);
            }
            let room = self.piece_bytes - self.last.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last.extend_from_slice(now);
            if self.last.len() == self.piece_bytes {
                self.pieces.push(self.memory.fill(std::mem::take(&mut self.last)));
                self.send_parts(later.len())?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn append_owned(&mut self, bytes: Vec<u8>) -> Result<Option<Vec<u8>>> {
        // A buffer that is nearly empty would be kept as it is.
        let is_begun = !self.last.is_empty() && self.last.len() < self.last.capacity() / 2;
        if is_begun || bytes.len() < KEPT_BYTES_MIN {
            self.append(&bytes)?;
            return Ok(Some(bytes));
        }
        self.grow(bytes.len())?;
        if !self.last.is_empty() {
            self.pieces.push(self.memory.fill(std::mem::take(&mut self.last)));
        }
        self.pieces.push(bytes.into());
        self.send_parts(0)?;
        Ok(None)
    }

    /// Does nothing: acknowledged bytes are durable.
    fn hand_over(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(mut self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let end = self.in_pieces();
        self.pieces.push(Bytes::from(std::mem::take(&mut self.last)));
        let has_parts = self.upload.as_ref().is_some_and(|upload| {
            // Parts that were sent are not sent again.
            let is_large = end >= 2 * upload.part_bytes;
            self.there.is_none() && (is_large || upload.sent_bytes > 0)
        });
        if has_parts {
            self.storage.shared.check_writable("publish", &self.path)?;
            if let Some(outcome) = self.publish_parts(condition)? {
                return self.storage.published(&self.path, &self.name, condition, outcome);
            }
        }
        let mut there = None;
        if let Some(look) = self.there.take() {
            there = runtime::wait("publish", &self.path, look)?.ok().and_then(|look| look.ok());
        }
        let payload: PutPayload = std::mem::take(&mut self.pieces).into_iter().collect();
        self.storage.publish(&self.path, &self.name, payload, condition, there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_anywhere_out_of_pieces_of_any_length() {
        let bytes: Vec<u8> = (0..20).collect();
        let all = Bytes::from(bytes.clone());
        let pieces = [all.slice(..3), all.slice(3..3), all.slice(3..4), all.slice(4..)];
        for start in 0..=20 {
            for end in start..=20 {
                let cut: Vec<Bytes> = between(&pieces, start as u64, end as u64).collect();
                assert_eq!(cut.concat(), bytes[start..end], "{start} {end}");
                assert!(cut.iter().all(|piece| !piece.is_empty()), "{start} {end}");
            }
        }
    }
}
