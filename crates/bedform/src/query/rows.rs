//! Collectors of matching elements: their places, with values, and masks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bedform_query::{ValueSlice, Values};

use super::frame::{BlockBox, Frame};
use super::scan::{Collector, MatchedBlock};
use crate::error::{Error, ErrorKind, Result};

/// Elements of a mask that are looked at together.
const WORD: usize = 16;

/// Matching elements: the places in the C order of the region, and values.
#[derive(Debug, Default)]
pub(super) struct MatchedRows {
    pub(super) places: Vec<u64>,
    pub(super) values: Vec<Values>,
}

/// Collects matching elements, all or the first in C order.
pub(super) struct RowCollector<'f> {
    frame: &'f Frame,
    /// The most rows to return.
    limit: Option<u64>,
    /// The most bytes that rows may take.
    memory: u64,
    row_bytes: u64,
    rows: Mutex<MatchedRows>,
    /// Rows behind this place do not count: so many before it are known as the limit allows.
    last: AtomicU64,
}

impl<'f> RowCollector<'f> {
    pub(super) fn new(
        frame: &'f Frame,
        values: Vec<Values>,
        row_bytes: u64,
        limit: Option<u64>,
        memory: u64,
    ) -> Self {
        let rows = Mutex::new(MatchedRows { places: Vec::new(), values });
        Self { frame, limit, memory, row_bytes, rows, last: AtomicU64::new(u64::MAX) }
    }

    /// Returns the rows in C order of the region.
    pub(super) fn finish(self) -> MatchedRows {
        let mut rows = self.rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.sort(self.limit);
        rows
    }

    fn rows(&self) -> MutexGuard<'_, MatchedRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for RowCollector<'_> {
    type Part = MatchedRows;

    fn collect(&self, block: &MatchedBlock<'_>) -> Result<MatchedRows> {
        let mut rows = MatchedRows { places: Vec::new(), values: Vec::new() };
        let count = usize::try_from(block.count).unwrap_or(usize::MAX);
        rows.places.try_reserve_exact(count).map_err(|_| no_room(self.memory))?;
        for_each_match(block, self.frame, |_, place| rows.places.push(place));
        rows.values = block.values.iter().map(|values| chosen(values.as_slice(), block)).collect();
        Ok(rows)
    }

    fn merge(&self, part: MatchedRows) -> Result<()> {
        let mut rows = self.rows();
        rows.append(part);
        let is_too_much = |rows: &MatchedRows| {
            (rows.places.len() as u64).saturating_mul(self.row_bytes) > self.memory
        };
        let count = rows.places.len() as u64;
        if let Some(limit) = self.limit
            && count > limit
            && (is_too_much(&rows) || count > limit.saturating_mul(2).saturating_add(1 << 16))
        {
            rows.sort(self.limit);
            let last = rows.places.last().copied().unwrap_or(u64::MAX);
            self.last.store(last, Ordering::Relaxed);
        }
        if is_too_much(&rows) { Err(no_room(self.memory)) } else { Ok(()) }
    }

    fn is_done(&self) -> bool {
        self.limit == Some(0)
    }

    fn can_skip(&self, bounds: &BlockBox) -> bool {
        self.frame.place(&bounds.start) > self.last.load(Ordering::Relaxed)
    }
}

fn no_room(memory: u64) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!(
            "the matching elements take more than {memory} bytes, the memory of the query: ask for \
             fewer by a limit, for those of a smaller region, or raise it"
        ),
    )
}

impl MatchedRows {
    fn append(&mut self, part: Self) {
        self.places.extend(part.places);
        for (values, more) in self.values.iter_mut().zip(part.values) {
            values.append(more);
        }
    }

    /// Sorts the rows by place, and drops those beyond the limit.
    fn sort(&mut self, limit: Option<u64>) {
        let kept = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        if self.places.is_sorted() {
            self.places.truncate(kept);
            self.values.iter_mut().for_each(|values| values.truncate(kept));
            return;
        }
        if self.values.is_empty() {
            // The places of a block are sorted: a stable sort merges such runs.
            self.places.sort();
            self.places.truncate(kept);
            return;
        }
        let mut order: Vec<usize> = (0..self.places.len()).collect();
        order.sort_by_key(|at| self.places[*at]);
        order.truncate(kept);
        self.places = order.iter().map(|at| self.places[*at]).collect();
        self.values.iter_mut().for_each(|values| *values = values.taken(&order));
    }
}

/// Calls `act` with the index in the block and the place in the region of each matching element, in
/// C order of the block.
pub(super) fn for_each_match(
    block: &MatchedBlock<'_>,
    frame: &Frame,
    mut act: impl FnMut(usize, u64),
) {
    for_each_row(block.bounds, |at, position| {
        let place = frame.place(position);
        let length = row_length(block.bounds);
        match block.mask {
            None => (0..length).for_each(|inside| act(at + inside, place + inside as u64)),
            Some(mask) => {
                // Matches are rare: most words have none.
                for (number, word) in mask[at..at + length].chunks(WORD).enumerate() {
                    if word == &[0; WORD][..word.len()] {
                        continue;
                    }
                    let first = number * WORD;
                    let matching = (first..).zip(word).filter(|(_, matches)| **matches != 0);
                    matching.for_each(|(inside, _)| act(at + inside, place + inside as u64));
                }
            }
        }
    });
}

/// Calls `act` for each row of a block along the last dimension, with the index of its first element
/// in the block and the position of that.
pub(super) fn for_each_row(bounds: &BlockBox, mut act: impl FnMut(usize, &[u64])) {
    let length = row_length(bounds);
    if bounds.len() == 0 {
        return;
    }
    let mut position = bounds.start.clone();
    let mut at = 0;
    loop {
        act(at, &position);
        at += length;
        let mut axis = position.len().saturating_sub(1);
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            position[axis] += 1;
            if position[axis] < bounds.start[axis] + bounds.shape[axis] {
                break;
            }
            position[axis] = bounds.start[axis];
        }
    }
}

/// Returns the length of a block along the last dimension.
pub(super) fn row_length(bounds: &BlockBox) -> usize {
    bounds.shape.last().map_or(1, |length| usize::try_from(*length).unwrap_or(usize::MAX))
}

/// Returns the values of the matching elements.
fn chosen(values: ValueSlice<'_>, block: &MatchedBlock<'_>) -> Values {
    match block.mask {
        None => values.to_values(),
        Some(mask) => values.chosen(mask),
    }
}

/// Fills a mask of the region: a byte for each element, 1 where it matches.
pub(super) struct MaskCollector<'f> {
    pub(super) frame: &'f Frame,
    pub(super) mask: Mutex<&'f mut [u8]>,
}

impl Collector for MaskCollector<'_> {
    type Part = (BlockBox, Option<Vec<u8>>);

    fn collect(&self, block: &MatchedBlock<'_>) -> Result<Self::Part> {
        Ok((block.bounds.clone(), block.mask.map(<[u8]>::to_vec)))
    }

    fn merge(&self, (bounds, found): Self::Part) -> Result<()> {
        let mut mask = self.mask.lock().unwrap_or_else(PoisonError::into_inner);
        let length = row_length(&bounds);
        for_each_row(&bounds, |at, position| {
            let place = usize::try_from(self.frame.place(position)).unwrap_or(usize::MAX);
            let Some(row) = mask.get_mut(place..place.saturating_add(length)) else { return };
            match &found {
                None => row.fill(1),
                Some(found) => row.copy_from_slice(&found[at..at + length]),
            }
        });
        Ok(())
    }
}
