//! Reusable buffers for uploads: allocating one costs as much as filling it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ::bytes::Bytes;

/// Free buffers, kept while a writer exists.
#[derive(Debug, Default)]
pub(super) struct UploadBuffers {
    free: Mutex<Vec<Vec<u8>>>,
}

/// The buffers that the writers of a store share; freed with the last writer.
#[derive(Debug, Default)]
pub(super) struct SharedUploadBuffers(Mutex<Weak<UploadBuffers>>);

/// A filled buffer, which becomes free again after it was sent.
struct FilledBuffer {
    bytes: Vec<u8>,
    pieces: Arc<UploadBuffers>,
}

impl SharedUploadBuffers {
    pub(super) fn get(&self) -> Arc<UploadBuffers> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let pieces = Arc::default();
            *shared = Arc::downgrade(&pieces);
            pieces
        })
    }
}

impl UploadBuffers {
    /// Returns an empty buffer; a new one has a capacity of `bytes`.
    pub(super) fn take(&self, bytes: usize) -> Vec<u8> {
        self.free().pop().unwrap_or_else(|| Vec::with_capacity(bytes))
    }

    /// Returns `bytes` for sending; afterwards their memory becomes a free buffer.
    pub(super) fn fill(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(FilledBuffer { bytes, pieces: self.clone() })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for FilledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for FilledBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        self.pieces.free().push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_round_while_there_are_writers_and_is_given_back_behind_the_last() {
        let shared = SharedUploadBuffers::default();
        let (first, second) = (shared.get(), shared.get());
        let mut piece = first.take(10);
        piece.extend_from_slice(b"some bytes");
        let memory = piece.as_ptr();
        let sent = first.fill(piece);
        let (again, part) = (sent.clone(), sent.slice(5..));
        drop((sent, again));
        assert_eq!((&*part, second.free().len()), (&b"bytes"[..], 0));
        drop(part);
        let piece = second.take(10);
        assert_eq!((piece.as_ptr(), piece.len()), (memory, 0));
        let last = second.fill(piece);
        drop((first, second));
        assert!(shared.get().free().is_empty());
        drop(last);
        assert!(shared.0.lock().unwrap().upgrade().is_none());
    }
}
