//! The distinct selections of reads of lists and points, identified by content hash.
//!
//! A file of selections is a sequence of **blocks**:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `BfSe` |
//! | 4 | length of the rest, without the checksum, little-endian |
//! | 4 | CRC-32C of the rest |
//! | rest | version 1; 8 bytes: the content hash; 1 for points, else 0; rank; each axis |
//!
//! An axis is a range (0, first position, count, step) or a list (1, count, bytes of the column, a
//! [column](crate::log::varint)). An ascending list takes one or two bytes per position; a run of
//! neighbours takes a few bytes in all. Points have one list for each axis, of equal length.
//!
//! The content hash is CRC-64/NVME, which is as fast as memory. It is not collision-resistant; a
//! collision only adds up the counts of two selections.

use std::borrow::Cow;

use super::{HEAD, RANK_MAX, TraceReader, TracedAxis, framed, split};
use crate::checksum::Crc64;
use crate::log::varint::{encode_column, unzigzag, write_varint, zigzag};

const MAGIC: &[u8; 4] = b"BfSe";
const VERSION: u64 = 1;
/// Largest length of a block in bytes.
pub const SELECTION_BYTES_MAX: usize = 64 << 20;
/// Largest number of positions of a selection, over all axes.
pub const POSITIONS_MAX: usize = 1 << 25;
const RANGE: u64 = 0;
const LIST: u64 = 1;

/// The selected positions along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectedAxis<'a> {
    /// Evenly spaced positions.
    Range(TracedAxis),
    /// A list of positions in any order, with duplicates allowed.
    List(Cow<'a, [u64]>),
}

/// The selection of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedSelection<'a> {
    /// True for single points, whose coordinates are the lists of the axes. Otherwise the selection
    /// is the product of the axes.
    pub is_points: bool,
    /// Positions along each axis.
    pub axes: Vec<SelectedAxis<'a>>,
}

impl TracedSelection<'_> {
    /// Returns the number of positions in all lists.
    pub fn positions(&self) -> usize {
        let of_axis = |axis: &SelectedAxis<'_>| match axis {
            SelectedAxis::Range(_) => 0,
            SelectedAxis::List(positions) => positions.len(),
        };
        self.axes.iter().map(of_axis).fold(0, usize::saturating_add)
    }

    /// Returns the content hash; never 0.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use bedform_format::trace::selection::{SelectedAxis, TracedSelection};
    ///
    /// let rows = |positions: &'static [u64]| TracedSelection {
    ///     is_points: false,
    ///     axes: vec![SelectedAxis::List(Cow::Borrowed(positions))],
    /// };
    /// assert_eq!(rows(&[3, 9, 4]).hash(), rows(&[3, 9, 4]).hash());
    /// assert_ne!(rows(&[3, 9, 4]).hash(), rows(&[3, 4, 9]).hash());
    /// ```
    pub fn hash(&self) -> u64 {
        let mut sum = Crc64::new();
        sum.update(&[u8::from(self.is_points)]);
        for axis in &self.axes {
            match axis {
                SelectedAxis::Range(TracedAxis { first, count, step }) => {
                    sum.update_numbers(&[RANGE, *first, *count, zigzag(*step)]);
                }
                SelectedAxis::List(positions) => {
                    sum.update_numbers(&[LIST, positions.len() as u64]);
                    sum.update_numbers(positions);
                }
            }
        }
        sum.finish().max(1)
    }

    /// Encodes the selection, with this content hash, as a block; `None` if it exceeds a limit.
    pub fn encode(&self, hash: u64) -> Option<Vec<u8>> {
        if self.axes.len() > RANK_MAX || self.positions() > POSITIONS_MAX || !self.is_valid() {
            return None;
        }
        let mut bytes = [MAGIC.as_slice(), &[0; HEAD - 4]].concat();
        write_varint(VERSION, &mut bytes);
        bytes.extend(hash.to_le_bytes());
        for number in [u64::from(self.is_points), self.axes.len() as u64] {
            write_varint(number, &mut bytes);
        }
        for axis in &self.axes {
            match axis {
                SelectedAxis::Range(TracedAxis { first, count, step }) => {
                    for number in [RANGE, *first, *count, zigzag(*step)] {
                        write_varint(number, &mut bytes);
                    }
                }
                SelectedAxis::List(positions) => {
                    let column = encode_column(positions);
                    for number in [LIST, positions.len() as u64, column.len() as u64] {
                        write_varint(number, &mut bytes);
                    }
                    bytes.extend(column);
                }
            }
        }
        framed(bytes, SELECTION_BYTES_MAX)
    }

    /// Returns false for points without a list of the same length for each axis.
    fn is_valid(&self) -> bool {
        let length = |axis: &SelectedAxis<'_>| match axis {
            SelectedAxis::Range(_) => None,
            SelectedAxis::List(positions) => Some(positions.len()),
        };
        let first = self.axes.first().and_then(length);
        let are_points = first.is_some() && self.axes.iter().all(|axis| length(axis) == first);
        !self.is_points || are_points
    }
}

/// A block with a valid checksum, not yet decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionBlock<'a> {
    /// The content hash that the block names.
    pub hash: u64,
    /// The bytes of the whole block.
    pub bytes: &'a [u8],
    rest: &'a [u8],
}

impl SelectionBlock<'_> {
    /// Decodes the selection; `None` if it exceeds a limit, or if its content has another hash.
    pub fn decode(&self) -> Option<TracedSelection<'static>> {
        self.content().filter(|found| found.hash() == self.hash)
    }

    /// Returns the hash of the content, not the hash that the block names; `None` if the content
    /// exceeds a limit.
    pub fn hash_of_content(&self) -> Option<u64> {
        self.content().map(|found| found.hash())
    }

    fn content(&self) -> Option<TracedSelection<'static>> {
        let mut rest = TraceReader(self.rest);
        let is_points = rest.count(1)? == 1;
        let rank = rest.count(RANK_MAX)?;
        let mut left = POSITIONS_MAX;
        let mut axis = |_| match rest.number()? {
            RANGE => {
                let (first, count, step) = (rest.number()?, rest.number()?, rest.number()?);
                Some(SelectedAxis::Range(TracedAxis { first, count, step: unzigzag(step) }))
            }
            LIST => {
                let count = rest.count(left)?;
                left -= count;
                rest.column(count).map(|positions| SelectedAxis::List(Cow::Owned(positions)))
            }
            _ => None,
        };
        let axes = (0..rank).map(&mut axis).collect::<Option<Vec<_>>>()?;
        let found = TracedSelection { is_points, axes };
        (rest.0.is_empty() && found.is_valid()).then_some(found)
    }
}

/// Returns the blocks at the start of `bytes`, up to the first that is damaged, cut off or of an
/// unknown version. Blocks are decoded on demand.
///
/// ```
/// use std::borrow::Cow;
/// use bedform_format::trace::selection::{SelectedAxis, TracedSelection, selection_blocks};
///
/// let list = SelectedAxis::List(Cow::Owned((0..4000).map(|at| 7 * at).collect()));
/// let selection = TracedSelection { is_points: false, axes: vec![list] };
/// let bytes = selection.encode(selection.hash()).unwrap();
/// assert!(bytes.len() < 50);
/// let blocks: Vec<_> = selection_blocks(&bytes).collect();
/// assert_eq!(blocks[0].hash, selection.hash());
/// assert_eq!(blocks[0].decode().unwrap(), selection);
/// ```
pub fn selection_blocks(bytes: &[u8]) -> impl Iterator<Item = SelectionBlock<'_>> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        let (payload, behind) = split(left, MAGIC, SELECTION_BYTES_MAX)?;
        let bytes = &left[..left.len() - behind.len()];
        left = behind;
        let mut rest = TraceReader(payload);
        let version = rest.number()?;
        let hash = u64::from_le_bytes(rest.bytes(8)?.try_into().ok()?);
        (version == VERSION && hash != 0).then_some(SelectionBlock { hash, bytes, rest: rest.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::varint::write_varint;

    fn list(positions: &[u64]) -> SelectedAxis<'static> {
        SelectedAxis::List(Cow::Owned(positions.to_vec()))
    }

    fn range(first: u64, count: u64, step: i64) -> SelectedAxis<'static> {
        SelectedAxis::Range(TracedAxis { first, count, step })
    }

    fn encoded(selection: &TracedSelection<'_>) -> Vec<u8> {
        selection.encode(selection.hash()).unwrap()
    }

    #[test]
    fn rows_and_points_come_back_and_each_has_a_hash_of_its_own() {
        let all = [
            TracedSelection { is_points: false, axes: vec![list(&[5, 1, 1]), range(9, 4, -2)] },
            TracedSelection { is_points: false, axes: vec![list(&[5, 1, 1]), range(9, 4, 2)] },
            TracedSelection { is_points: false, axes: vec![list(&[5, 1]), list(&[1, 9])] },
            TracedSelection { is_points: true, axes: vec![list(&[5, 1]), list(&[1, 9])] },
            TracedSelection { is_points: false, axes: vec![list(&[5, 1, 1, 9]), list(&[])] },
            TracedSelection { is_points: false, axes: vec![list(&[u64::MAX, 0])] },
            TracedSelection { is_points: false, axes: Vec::new() },
        ];
        let bytes: Vec<u8> = all.iter().flat_map(encoded).collect();
        let found: Vec<_> = selection_blocks(&bytes).map(|block| block.decode().unwrap()).collect();
        assert_eq!(found, all);
        let mut hashes: Vec<u64> = selection_blocks(&bytes).map(|block| block.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), all.len());
        let lengths: usize = selection_blocks(&bytes).map(|block| block.bytes.len()).sum();
        assert_eq!(lengths, bytes.len());
    }

    #[test]
    fn what_is_cut_off_or_damaged_ends_a_file_and_what_is_before_counts() {
        let one = encoded(&TracedSelection { is_points: false, axes: vec![list(&[7, 9, 100])] });
        let both = [one.clone(), one.clone()].concat();
        for cut in 0..both.len() {
            let expected = usize::from(cut >= one.len());
            assert_eq!(selection_blocks(&both[..cut]).count(), expected, "{cut}");
        }
        for at in 0..one.len() {
            let mut damaged = both.clone();
            damaged[at] ^= 0x10;
            assert_eq!(selection_blocks(&damaged).count(), 0, "{at}");
        }
    }

    #[test]
    fn a_count_that_no_column_fills_and_content_of_another_hash_are_not_believed() {
        let decoded = |payload: &[u8]| {
            let head = [MAGIC.as_slice(), &[0; HEAD - 4]].concat();
            let bytes = framed([head.as_slice(), payload].concat(), SELECTION_BYTES_MAX).unwrap();
            selection_blocks(&bytes).next().and_then(|block| block.decode())
        };
        let payload = |version: u64, hash: u64, tail: &[u64]| {
            let mut bytes = Vec::new();
            write_varint(version, &mut bytes);
            bytes.extend(hash.to_le_bytes());
            tail.iter().for_each(|number| write_varint(*number, &mut bytes));
            bytes
        };
        let rows = TracedSelection { is_points: false, axes: vec![list(&[4])] };
        // One axis: a list of one position; its column has one byte, 4 zigzag-coded.
        let tail = [0, 1, LIST, 1, 1, 8];
        assert_eq!(decoded(&payload(VERSION, rows.hash(), &tail)), Some(rows.clone()));
        assert_eq!(decoded(&payload(VERSION, rows.hash() ^ 1, &tail)), None);
        assert_eq!(decoded(&payload(VERSION + 1, rows.hash(), &tail)), None);
        assert_eq!(decoded(&payload(VERSION, 0, &tail)), None);
        for tail in [
            &[0, 1, LIST, u64::MAX, 1, 8][..],
            &[0, 1, LIST, POSITIONS_MAX as u64 + 1, 1, 8],
            &[0, 1, LIST, 1, u64::MAX, 8],
            &[0, u64::MAX, LIST, 1, 1, 8],
            &[0, 1, 2, 1, 1, 8],
            &[2, 1, LIST, 1, 1, 8],
            &[1, 1, RANGE, 4, 1, 2],
            &[0, 1, LIST, 1, 1, 8, 8],
        ] {
            assert_eq!(decoded(&payload(VERSION, rows.hash(), tail)), None, "{tail:?}");
        }
        let uneven = TracedSelection { is_points: true, axes: vec![list(&[4]), list(&[])] };
        assert!(uneven.encode(1).is_none());
    }
}
