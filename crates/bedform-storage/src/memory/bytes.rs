//! The contents of an object in memory.

use bedform_format::log::STRIPE_BYTES;

/// The bytes of an object: one run, or the stripes of several writers. Stripes without writes take
/// no memory.
#[derive(Debug)]
pub(super) enum MemoryBytes {
    Run(Vec<u8>),
    Stripes { length: usize, stripes: Vec<Vec<u8>> },
}

impl MemoryBytes {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run(bytes) => bytes.len(),
            Self::Stripes { length, .. } => *length,
        }
    }

    /// Writes `bytes` at `start`, with zeros before them if needed. In a striped object they lie in
    /// one stripe.
    pub(super) fn put(&mut self, start: usize, bytes: &[u8]) {
        let (all, start) = match self {
            Self::Run(all) => (all, start),
            Self::Stripes { length, stripes } => {
                *length = (*length).max(start + bytes.len());
                let number = start / STRIPE;
                if stripes.len() <= number {
                    stripes.resize(number + 1, Vec::new());
                }
                (&mut stripes[number], start % STRIPE)
            }
        };
        let end = start + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[start..end].copy_from_slice(bytes);
    }

    /// Fills `buffer` with bytes from `start` on, all of which must exist.
    pub(super) fn copy_to(&self, start: usize, buffer: &mut [u8]) {
        match self {
            Self::Run(all) => buffer.copy_from_slice(&all[start..start + buffer.len()]),
            Self::Stripes { stripes, .. } => {
                let mut at = start;
                let mut rest = buffer;
                while !rest.is_empty() {
                    let (now, later) = rest.split_at_mut((STRIPE - at % STRIPE).min(rest.len()));
                    let known = stripes.get(at / STRIPE).and_then(|own| own.get(at % STRIPE..));
                    let known = known.unwrap_or_default();
                    let count = known.len().min(now.len());
                    now[..count].copy_from_slice(&known[..count]);
                    now[count..].fill(0);
                    at += now.len();
                    rest = later;
                }
            }
        }
    }
}

/// Bytes of a stripe, as a length in memory.
#[allow(clippy::cast_possible_truncation)]
const STRIPE: usize = STRIPE_BYTES as usize;
