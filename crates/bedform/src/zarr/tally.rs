//! What chosen codecs make of the chunks that are written, against the sample that they were chosen by.
//!
//! A sample can mislead: the first blocks of an array are constant, and noise follows. A writer counts the bytes
//! of the chunks that it encodes. Once there are enough, and they are much larger than the sample promised, it
//! keeps a line for the door to show, once for each array.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bedform_format::metadata::{ArrayMetadata, CodecChoice};

use super::source::ZarrSource;

/// Bytes of elements that are encoded before they are held against the sample.
const COUNTED_BYTES_MIN: u64 = 8 << 20;
/// Chunks are larger than the sample promised where they are so many times its size, ...
const TIMES: f64 = 1.5;
/// ... and this part of their elements more.
const MORE: f64 = 0.1;
/// Arrays that are counted; beyond it all begin again.
const ARRAYS_MAX: usize = 1 << 12;
/// Lines that wait for somebody to show them.
const LINES_MAX: usize = 64;

#[derive(Debug, Default)]
struct Tally {
    decoded_bytes: u64,
    encoded_bytes: u64,
    is_told: bool,
}

/// The tallies of a handle, by the keys of arrays.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    arrays: Mutex<HashMap<[u8; 16], Tally>>,
    lines: Mutex<Vec<String>>,
    has_lines: AtomicBool,
}

impl Tallies {
    /// Counts chunks of an array that were encoded. `name` gives the array's name.
    fn count(
        &self,
        metadata: &ArrayMetadata,
        decoded_bytes: u64,
        encoded_bytes: u64,
        name: &dyn Fn() -> String,
    ) {
        let Some(CodecChoice::Made(comparison)) = &metadata.choice else { return };
        let (Some(taken), Some(identity)) = (comparison.compared.first(), &metadata.identity)
        else {
            return;
        };
        let mut arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        if arrays.len() >= ARRAYS_MAX {
            arrays.clear();
        }
        let tally = arrays.entry(identity.array).or_default();
        tally.decoded_bytes = tally.decoded_bytes.saturating_add(decoded_bytes);
        tally.encoded_bytes = tally.encoded_bytes.saturating_add(encoded_bytes);
        if tally.is_told || tally.decoded_bytes < COUNTED_BYTES_MIN {
            return;
        }
        #[allow(clippy::cast_precision_loss)]
        let size = tally.encoded_bytes as f64 / tally.decoded_bytes as f64;
        if size > taken.size * TIMES + MORE {
            tally.is_told = true;
            drop(arrays);
            self.keep(format!(
                "{}: the blocks that chose the codecs ({}) took {:.2} of their bytes, what was written takes {size:.2}: \
                 the sample was not like the rest; name codecs, or convert the store to choose again",
                name(),
                taken.name,
                taken.size
            ));
        }
    }

    fn keep(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(line);
            self.has_lines.store(true, Ordering::Release);
        }
    }

    /// The lines since the last call.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        if !self.has_lines.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Chunks of an object that were encoded.
#[derive(Debug, Default)]
pub(super) struct EncodedChunks {
    chunks: u64,
    bytes: u64,
}

impl EncodedChunks {
    pub(super) fn add(&mut self, encoded: &[u8]) {
        self.chunks += 1;
        self.bytes += encoded.len() as u64;
    }

    /// Counts them for their array.
    pub(super) fn count(&self, source: &ZarrSource<'_>) {
        let state = source.state;
        let decoded_bytes = self.chunks * state.layout.codec.decoded_bytes() as u64;
        let name = || source.hierarchy.name_of(source.path);
        source.hierarchy.tallies.count(&state.metadata, decoded_bytes, self.bytes, &name);
    }
}
