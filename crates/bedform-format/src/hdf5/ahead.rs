//! Readahead: announced extents of the file, fetched with many concurrent requests.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::error::{Hdf5Error, Result};
use super::source::ReadAt;

/// Largest number of fetched bytes that stay in memory.
const KEPT_BYTES: u64 = 8 << 20;
/// Largest number of bytes in one batch of requests.
const FETCHED_BYTES: u64 = 4 << 20;
/// Requests are merged over gaps of up to this many bytes, since another request costs more.
const GAP_BYTES: u64 = 16 << 10;

/// The announced and fetched pieces of the file, by offset.
#[derive(Default)]
pub(super) struct ReadaheadCache {
    pieces: BTreeMap<u64, Rc<Vec<u8>>>,
    oldest_first: VecDeque<u64>,
    bytes: u64,
    /// Set when the reader reports that concurrent requests gain nothing.
    is_useless: bool,
}

impl ReadaheadCache {
    pub(super) fn is_useless(&self) -> bool {
        self.is_useless
    }

    /// Returns the piece with the byte at `offset`, and the position of the byte in it.
    pub(super) fn at(&self, offset: u64) -> Option<(Rc<Vec<u8>>, usize)> {
        let (start, piece) = self.pieces.range(..=offset).next_back()?;
        let within = usize::try_from(offset.checked_sub(*start)?).ok()?;
        (within < piece.len()).then(|| (Rc::clone(piece), within))
    }

    /// Fetches extents of the file in pieces of at most `piece_bytes`. A single piece is not
    /// fetched: a plain read costs the same.
    pub(super) fn fetch(
        &mut self,
        reader: &dyn ReadAt,
        mut wanted: Vec<(u64, u64)>,
        piece_bytes: u64,
    ) -> Result {
        wanted.retain(|(offset, _)| self.at(*offset).is_none());
        let extents = pieces_of(wanted, piece_bytes);
        if extents.len() < 2 {
            return Ok(());
        }
        let Some(found) = reader.read_many(&extents).map_err(Hdf5Error::Read)? else {
            self.is_useless = true;
            return Ok(());
        };
        for ((offset, length), bytes) in extents.into_iter().zip(found) {
            if bytes.len() != length {
                let what = format!("{} bytes read at {offset}, {length} asked for", bytes.len());
                return Err(Hdf5Error::Read(what.into()));
            }
            self.keep(offset, bytes);
        }
        Ok(())
    }

    fn keep(&mut self, offset: u64, bytes: Vec<u8>) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if let Some(replaced) = self.pieces.insert(offset, Rc::new(bytes)) {
            self.bytes = self.bytes.saturating_sub(replaced.len() as u64);
        } else {
            self.oldest_first.push_back(offset);
        }
        while self.bytes > KEPT_BYTES {
            let Some(oldest) = self.oldest_first.pop_front() else { return };
            let bytes = self.pieces.remove(&oldest).map_or(0, |piece| piece.len() as u64);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

/// Returns the pieces to request: neighbouring extents merged, long ones split, at most
/// [`FETCHED_BYTES`] in all.
fn pieces_of(wanted: Vec<(u64, u64)>, piece_bytes: u64) -> Vec<(u64, usize)> {
    let mut left = FETCHED_BYTES;
    let in_parts = |(offset, length): (u64, u64)| {
        let step = usize::try_from(piece_bytes.max(1)).unwrap_or(usize::MAX);
        let ends = offset.saturating_add(length.min(FETCHED_BYTES));
        (offset..ends)
            .step_by(step)
            .map(move |start| (start, ends.saturating_sub(start).min(piece_bytes)))
    };
    let mut parts: Vec<(u64, u64)> = wanted
        .into_iter()
        .flat_map(in_parts)
        .take_while(|(_, length)| {
            left = left.saturating_sub(*length);
            left > 0
        })
        .collect();
    parts.sort_unstable();
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for (offset, length) in parts {
        let end = offset.saturating_add(length);
        if let Some((start, joined)) = pieces.last_mut() {
            let whole = end.saturating_sub(*start).max(*joined);
            let is_near = offset <= start.saturating_add(*joined).saturating_add(GAP_BYTES);
            if is_near && whole <= piece_bytes {
                *joined = whole;
                continue;
            }
        }
        pieces.push((offset, length));
    }
    let sized = |(offset, length)| Some((offset, usize::try_from(length).ok()?));
    pieces.into_iter().filter_map(sized).collect()
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_piece_and_long_extents_several() {
        let far = 3 * GAP_BYTES;
        assert_eq!(pieces_of(vec![(0, 100), (200, 100), (far, 9)], 1 << 20), [(0, 300), (far, 9),]);
        assert_eq!(pieces_of(vec![(10, 250)], 100), [(10, 100), (110, 100), (210, 50)]);
        assert_eq!(pieces_of(vec![(5, 100), (5, 100), (5, 20)], 1000), [(5, 100)]);
    }

    #[test]
    fn no_more_is_requested_at_once_than_the_limit() {
        let many = (0..1000).map(|number| (number << 20, 1 << 19)).collect();
        let bytes: usize = pieces_of(many, 1 << 18).iter().map(|(_, length)| length).sum();
        assert!(bytes as u64 <= FETCHED_BYTES);
        let long = pieces_of(vec![(0, u64::MAX)], 1 << 18);
        assert!(long.len() <= 16 && !long.is_empty());
    }
}
