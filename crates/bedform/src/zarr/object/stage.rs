//! An object written without a name: its chunks in the array's order, then its stamp and index.

use std::sync::{Mutex, PoisonError};

use bedform_format::shard::{Extent, ShardIndex, Stamp};
use bedform_storage::{ObjectWriter, WriteHint};

use super::chunk::{ChunkOutcome, DecideChunk, EncodeBuffers};
use super::publication::UnpublishedObject;
use super::{ExistingObject, ObjectWrite, moved_if_gone};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::ordered::in_order;
use crate::threads::permits::CpuPermits;
use crate::zarr::tally::{EncodedChunks, is_predicted};

/// Bytes of decoded chunks that may be encoded ahead of the chunk that is appended next.
const WINDOW_BYTES: usize = 16 << 20;

impl<'a> ObjectWrite<'a> {
    /// Writes the object without a name; `fate` decides about the chunk at a position.
    pub(super) fn stage(
        &self,
        existing: &ExistingObject<'_>,
        fate: &DecideChunk<'_>,
    ) -> Result<UnpublishedObject<'a>> {
        let state = self.state();
        let hierarchy = self.source.hierarchy;
        if state.is_open {
            let name = hierarchy.name_of(self.source.path);
            let text = format!("internal error: {name} has no codecs, and was to be written");
            return Err(Error::new(ErrorKind::Io, text));
        }
        let order = state.order.sequence(&state.layout.per_object)?;
        let expected: u64 = order.len() as u64 * state.layout.codec.decoded_bytes() as u64;
        let hint = WriteHint { bytes: Some(expected), at_once: self.resources.at_once };
        let path = self.source.object_path(&self.coordinates)?;
        hierarchy.sweep_once(&path.parent());
        let created = hierarchy.storage.create(&path, hierarchy.options.durability, hint);
        let mut writer = created.map_err(moved_if_gone)?;
        let mut extents = vec![None; order.len()];
        // Named codecs have no prediction to compare with.
        let mut made = is_predicted(&state.metadata).then(EncodedChunks::default);
        // An upload keeps its bytes in memory until the server has them.
        let (is_remote, mut rooms) = (hierarchy.storage.is_remote(), Vec::new());
        // Buffers are reused: zeroing new memory costs as much as filling it.
        let spare: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
        let window = (WINDOW_BYTES / state.layout.codec.decoded_bytes().max(1)).clamp(2, 1 << 12);
        // Merging waits for reads of the stored object; a new object is CPU work only and takes a
        // permit.
        let permits = self.resources.permits.as_deref().filter(|_| existing.stored.is_none());
        let turn = permits.map(CpuPermits::take);
        in_order(
            order.len(),
            self.resources.threads,
            window,
            EncodeBuffers::default,
            |at, worker| {
                let position = order[at];
                let output = spare().pop().unwrap_or_default();
                fate(position, worker, output).map(|fate| (position, fate))
            },
            |(position, fate)| {
                let (bytes, room) = match fate {
                    ChunkOutcome::Made { encoded, room, is_complete } => {
                        if let Some(made) = &mut made {
                            let chunk = self.chunk_coordinates(position);
                            made.add(&encoded, state.layout.bytes_inside(&chunk), is_complete);
                        }
                        (Some(encoded), room)
                    }
                    ChunkOutcome::Kept(bytes) => (Some(bytes), None),
                    ChunkOutcome::Dropped => (None, None),
                };
                if let Some(bytes) = bytes {
                    let place = usize::try_from(position).unwrap_or(usize::MAX);
                    extents[place] =
                        Some(Extent { offset: writer.position(), length: bytes.len() as u64 });
                    let bytes = match &room {
                        Some(room) => {
                            writer.append_owned(bytes)?.and_then(|bytes| room.reuse(bytes))
                        }
                        // Chunks without reserved memory use the spare buffers.
                        None => writer.append(&bytes).map(|()| Some(bytes))?,
                    };
                    spare().extend(bytes);
                }
                rooms.extend(room.filter(|_| is_remote));
                Ok(())
            },
        )?;
        drop(turn);
        if let Some(made) = made {
            made.count(self.source);
        }
        // For an object of one chunk, `fate` has decided this already when it dropped the chunk.
        let is_chunk = state.shard().is_none();
        if extents.iter().all(Option::is_none) && (is_chunk || self.may_be_absent(existing)?) {
            return Ok(UnpublishedObject { writer: None, path, rooms });
        }
        if !is_chunk {
            self.append_tail(&mut *writer, extents)?;
        }
        Ok(UnpublishedObject { writer: Some(writer), path, rooms })
    }

    /// Appends the stamp and the index of a shard.
    fn append_tail(
        &self,
        writer: &mut dyn ObjectWriter,
        extents: Vec<Option<Extent>>,
    ) -> Result<()> {
        let state = self.state();
        let Some(shard) = state.shard() else { return Ok(()) };
        if shard.index_at_start {
            let text = "shards with their index at the start are only read; convert the array";
            return Err(Error::new(ErrorKind::Unsupported, format!("{}: {text}", self.name())));
        }
        if let Some(identity) = state.identity() {
            let stamp = Stamp {
                identity: *identity,
                commit: self.commit(),
                data_bytes: writer.position(),
                coordinates: self.coordinates.clone(),
            };
            writer.append(&stamp.encode())?;
        }
        let index = ShardIndex::new(extents).encode(shard.index_checked);
        writer.append(&index)?;
        Ok(())
    }
}
