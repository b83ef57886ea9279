//! An object on its way: kept in memory until it is published, with one request.

use ::bytes::Bytes;
use ::object_store::PutPayload;
use ::object_store::path::Path;
use bedform_format::ObjectPath;
use tokio::task::JoinHandle;

use super::put::{Known, look};
use super::{RemoteStorage, Result, runtime};
use crate::{Condition, ObjectWriter, StorageError, StorageErrorKind, Version};

/// What one request can bring: what all stores take. There are no conditions for more than one.
const OBJECT_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a piece of what is kept.
const PIECE_BYTES: usize = 4 << 20;

type Look = JoinHandle<std::result::Result<Option<Known>, ::object_store::Error>>;

pub(super) struct RemoteWriter {
    storage: RemoteStorage,
    path: ObjectPath,
    name: Path,
    /// What was there when it was begun, asked for while it is made.
    there: Option<Look>,
    pieces: Vec<Bytes>,
    last: Vec<u8>,
    position: u64,
}

impl RemoteWriter {
    pub(super) fn create(storage: &RemoteStorage, path: &ObjectPath) -> Result<Self> {
        let name = storage.name_to_write("create", path)?;
        let (store, looked) = (storage.shared.client.store()?.clone(), name.clone());
        let there = runtime::spawn(async move { look(&*store, &looked, true).await })?;
        Ok(Self {
            storage: storage.clone(),
            path: path.clone(),
            name,
            there: Some(there),
            pieces: Vec::new(),
            last: Vec::new(),
            position: 0,
        })
    }
}

impl ObjectWriter for RemoteWriter {
    fn position(&self) -> u64 {
        self.position
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.position += bytes.len() as u64;
        if self.position > OBJECT_BYTES_MAX {
            let reason =
                "objects of more than 4 GiB cannot be written here: make the shards smaller";
            let source = std::io::Error::other(reason);
            return Err(StorageError {
                kind: StorageErrorKind::Io,
                operation: "write",
                path: self.path.to_string(),
                source: Some(source),
            });
        }
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.last.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last.extend_from_slice(now);
            if self.last.len() == PIECE_BYTES {
                self.pieces.push(std::mem::take(&mut self.last).into());
            }
            bytes = later;
        }
        Ok(())
    }

    fn publish(mut self: Box<Self>, condition: Condition<'_>) -> Result<Version> {
        let there = self.there.take().and_then(|look| runtime::wait(look).ok()?.ok()?.ok());
        self.pieces.push(std::mem::take(&mut self.last).into());
        let payload: PutPayload = std::mem::take(&mut self.pieces).into_iter().collect();
        self.storage.publish(&self.path, &self.name, payload, condition, there)
    }
}
