//! Copies windows of the log into chunks, in the order of the windows.
//!
//! A window may begin and end anywhere: in the middle of a box, or of an element.

use std::sync::Arc;

use super::lay::{ArrayBuilder, EntryBoxes};
use super::read::{SectionRead, Window, index, whole_box};
use super::split::split;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::budget::BudgetRound;

/// The position in the log that is kept from one window to the next.
#[derive(Default)]
pub(super) struct WindowCursor {
    job: Option<Arc<SectionRead>>,
    /// Index of the next entry in the job, index of its next box, and where the box begins in the
    /// section's data.
    entry: usize,
    part: usize,
    at: u64,
    /// The front of an element that ends in the next window, and where that window begins.
    carry: Vec<u8>,
    carried_to: u64,
    start: Vec<u64>,
    lengths: Vec<u64>,
}

impl WindowCursor {
    /// Copies the elements of a window into the chunks of `round`.
    ///
    /// # Errors
    /// As [`ArrayBuilder::lay`].
    pub(super) fn lay(
        &mut self,
        window: &Window,
        round: &mut [ArrayBuilder<'_>],
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        if !self.job.as_ref().is_some_and(|job| Arc::ptr_eq(job, &window.job)) {
            *self = Self { job: Some(window.job.clone()), ..Self::default() };
            self.at =
                window.job.entries.first().map_or(0, |entry| window.job.section.starts[*entry]);
        }
        let job = &*window.job;
        let section = &job.section.section;
        let end = window.start + window.length as u64;
        let (mut start, mut lengths) =
            (std::mem::take(&mut self.start), std::mem::take(&mut self.lengths));
        while let Some(number) = job.entries.get(self.entry) {
            let entry = &section.entries[*number];
            let boxes = &section.selections[entry.selection as usize];
            let item = job.item(entry);
            let building = job.arrays[entry.array as usize].and_then(|at| round.get_mut(at));
            let Some(building) = building else {
                return Err(Error::new(ErrorKind::Io, "internal error: an entry of no array"));
            };
            let written = EntryBoxes { commit: job.commit, record: entry.record, boxes };
            loop {
                if self.at >= window.start && self.at < end {
                    let data = &window.bytes[index(self.at - window.start)..window.length];
                    let (count, bytes) = building.lay_near(written, self.part, data);
                    self.part += count;
                    self.at += bytes as u64;
                }
                let Some((corner, count)) = boxes.get(self.part) else { break };
                let bytes = count.iter().product::<u64>() * item;
                if self.at >= end {
                    (self.start, self.lengths) = (start, lengths);
                    return Ok(());
                }
                if self.at + bytes > window.start {
                    whole_box(entry, corner, count, &mut start, &mut lengths);
                    if building.reach.touches(&start, &lengths) {
                        let place = (start.as_slice(), lengths.as_slice());
                        self.lay_box(window, building, place, (item, bytes), wait)?;
                    }
                    if self.at + bytes > end {
                        (self.start, self.lengths) = (start, lengths);
                        return Ok(());
                    }
                }
                self.at += bytes;
                self.part += 1;
            }
            self.part = 0;
            self.entry += 1;
            self.at = job.entries.get(self.entry).map_or(0, |entry| job.section.starts[*entry]);
        }
        (self.start, self.lengths) = (start, lengths);
        Ok(())
    }

    /// Copies the part of a box that lies in the window; the box begins at `self.at`.
    fn lay_box(
        &mut self,
        window: &Window,
        building: &mut ArrayBuilder<'_>,
        (start, lengths): (&[u64], &[u64]),
        (item, bytes): (u64, u64),
        wait: &BudgetRound<'_>,
    ) -> Result<()> {
        let (data, commit) = (&window.bytes[..window.length], window.job.commit);
        let end = window.start + window.length as u64;
        let behind = self.at + bytes;
        if self.at >= window.start && behind <= end {
            let from = index(self.at - window.start);
            let part = &data[from..from + index(bytes)];
            return building.lay(commit, (start, lengths), part, wait);
        }
        let mut first = window.start.saturating_sub(self.at).div_ceil(item);
        let last = (end.min(behind) - self.at) / item;
        let mut from = index((self.at + first * item).saturating_sub(window.start));
        if !self.carry.is_empty() && self.carried_to == window.start && self.at < window.start {
            // The front of this element was in the window before.
            let missing = index(item).saturating_sub(self.carry.len());
            self.carry.extend_from_slice(&data[..missing.min(data.len())]);
            self.carried_to = end;
            if missing > data.len() {
                return Ok(());
            }
            let one = std::mem::take(&mut self.carry);
            split(start, lengths, (first - 1, first), &mut |corner, count| {
                building.lay(commit, (corner, count), &one, wait)
            })?;
        }
        // An element whose front was in no window before is skipped: the round does not need it.
        first = first.min(last);
        split(start, lengths, (first, last), &mut |corner, count| {
            let length = index(count.iter().product::<u64>() * item);
            let part = &data[from..from + length];
            from += length;
            match building.reach.touches(corner, count) {
                true => building.lay(commit, (corner, count), part, wait),
                false => Ok(()),
            }
        })?;
        self.carry.clear();
        let whole = self.at + last * item;
        if behind > end && whole >= window.start {
            self.carry.extend_from_slice(&data[index(whole - window.start)..]);
            self.carried_to = end;
        }
        Ok(())
    }
}
