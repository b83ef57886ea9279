//! The sizes of encoded chunks, compared with the sample that chose their codecs.
//!
//! A sample can mislead: the first blocks of an array are constant, and noise follows. So a handle
//! counts the bytes of the chunks that it encodes. A door that asks after a write gets one line for
//! each array whose chunks differ from the sample by more than a tenth, once per array. Sizes are
//! compared after the write that chose the codecs, and again after later writes once 8 MiB of
//! elements are counted.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bedform_format::ObjectPath;
use bedform_format::metadata::{ArrayMetadata, CodecChoice};

use super::source::ZarrSource;

/// Bytes of elements from which chunks are compared: after the write that chose the codecs, and
/// after later ones.
const FIRST_BYTES_MIN: u64 = 512 << 10;
const COUNTED_BYTES_MIN: u64 = 8 << 20;
/// The tolerated difference as a part of the predicted size, ...
const OFF_MAX: f64 = 0.1;
/// ... and as a part of the elements' bytes, which matters for arrays that compress to nearly
/// nothing.
const OFF_OF_ELEMENTS: f64 = 0.005;
/// The most arrays that are counted; at this number all counts restart.
const ARRAYS_MAX: usize = 1 << 12;

/// Sizes of encoded chunks.
#[derive(Debug, Default, Clone, Copy)]
struct EncodedSizes {
    /// Bytes of their elements inside the array.
    valid_bytes: u64,
    encoded_bytes: u64,
}

impl EncodedSizes {
    fn add(&mut self, other: Self) {
        self.valid_bytes = self.valid_bytes.saturating_add(other.valid_bytes);
        self.encoded_bytes = self.encoded_bytes.saturating_add(other.encoded_bytes);
    }

    /// Encoded bytes per byte of elements; `None` before `least` bytes of elements are counted.
    #[allow(clippy::cast_precision_loss)]
    fn size(self, least: u64) -> Option<f64> {
        let is_enough = self.valid_bytes >= least.max(1);
        is_enough.then(|| self.encoded_bytes as f64 / self.valid_bytes as f64)
    }
}

#[derive(Debug)]
struct Tally {
    /// The array's name, and the codec that was chosen.
    name: String,
    codec: String,
    predicted: f64,
    /// True if this handle chose the codecs and has not compared any chunks yet.
    is_first: bool,
    all: EncodedSizes,
    /// Only chunks that one write covered: partly written chunks encode smaller than they will be
    /// once complete.
    complete: EncodedSizes,
    is_told: bool,
}

impl Tally {
    /// The line about an array whose chunks are larger or smaller than predicted.
    fn line(&mut self) -> Option<String> {
        let is_first = std::mem::replace(&mut self.is_first, false);
        let (all, least) = match is_first {
            true => (self.complete, FIRST_BYTES_MIN),
            false => (self.all, COUNTED_BYTES_MIN),
        };
        let is_off = |size: f64| {
            let off = (size - self.predicted).abs();
            off > self.predicted * OFF_MAX && off > OFF_OF_ELEMENTS
        };
        let larger = all.size(least).filter(|size| *size > self.predicted);
        let smaller = self.complete.size(least).filter(|size| *size < self.predicted);
        let size = larger.or(smaller).filter(|size| is_off(*size))?;
        self.is_told = true;
        let Self { name, codec, predicted, .. } = self;
        Some(format!(
            "{name}: the blocks that chose the codecs ({codec}) took {predicted:.3} of their bytes, all chunks \
             so far take {size:.3}; name codecs, or convert the store to choose again"
        ))
    }
}

/// The counts of a handle, by the keys of arrays.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    state: Mutex<TallyState>,
    /// True if a count has changed since the lines were taken.
    has_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct TallyState {
    arrays: HashMap<[u8; 16], Tally>,
    changed: HashSet<[u8; 16]>,
    /// Arrays whose codecs this handle chose, until their first chunks are counted.
    chosen: HashSet<ObjectPath>,
}

impl Tallies {
    fn state(&self) -> MutexGuard<'_, TallyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this handle has chosen the codecs of an array.
    pub(super) fn note_chosen(&self, path: &ObjectPath) {
        let mut state = self.state();
        if state.chosen.len() >= ARRAYS_MAX {
            state.chosen.clear();
        }
        state.chosen.insert(path.clone());
    }

    /// Returns the lines about arrays that have changed since the last call.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        if !self.has_changed.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut state = self.state();
        let TallyState { arrays, changed, .. } = &mut *state;
        let mut lines = Vec::new();
        for key in changed.drain() {
            lines.extend(arrays.get_mut(&key).and_then(Tally::line));
        }
        lines.sort();
        lines
    }
}

/// True if a sample chose the codecs of an array.
pub(super) fn is_predicted(metadata: &ArrayMetadata) -> bool {
    matches!(&metadata.choice, Some(CodecChoice::Made(made)) if !made.compared.is_empty())
}

/// Sizes of the chunks of one object.
#[derive(Debug, Default)]
pub(super) struct EncodedChunks {
    all: EncodedSizes,
    complete: EncodedSizes,
}

impl EncodedChunks {
    /// Counts an encoded chunk with `valid_bytes` of elements inside the array. `is_complete`: one
    /// write covered all of the chunk.
    pub(super) fn add(&mut self, encoded: &[u8], valid_bytes: u64, is_complete: bool) {
        let sizes = EncodedSizes { valid_bytes, encoded_bytes: encoded.len() as u64 };
        self.all.add(sizes);
        if is_complete {
            self.complete.add(sizes);
        }
    }

    /// Adds the sizes to those of the array, if a sample chose its codecs.
    pub(super) fn count(&self, source: &ZarrSource<'_>) {
        let metadata = &source.state.metadata;
        let Some(CodecChoice::Made(comparison)) = &metadata.choice else { return };
        let (Some(taken), Some(identity)) = (comparison.compared.first(), &metadata.identity)
        else {
            return;
        };
        let tallies = &source.hierarchy.tallies;
        let mut state = tallies.state();
        if state.arrays.len() >= ARRAYS_MAX {
            state.arrays.clear();
        }
        let is_first = state.chosen.remove(source.path);
        let tally = state.arrays.entry(identity.array).or_insert_with(|| Tally {
            name: source.hierarchy.name_of(source.path),
            codec: taken.name.clone(),
            predicted: taken.size,
            is_first,
            all: EncodedSizes::default(),
            complete: EncodedSizes::default(),
            is_told: false,
        });
        tally.all.add(self.all);
        tally.complete.add(self.complete);
        if !tally.is_told {
            state.changed.insert(identity.array);
            tallies.has_changed.store(true, Ordering::Release);
        }
    }
}
