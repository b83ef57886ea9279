//! Copies of the part of a box that lies in one chunk, row by row.

use super::plan::SettlePlan;
use crate::error::Result;
use crate::plan::copy::{Axis, Copy, CopyTarget};

/// The position in a walk over the chunks of a box; reused, since there are many boxes.
#[derive(Default)]
pub(super) struct ChunkWalk {
    pub(super) chunk: Vec<u64>,
    /// The part of the box in the chunk: first element and count along each axis.
    pub(super) start: Vec<u64>,
    pub(super) count: Vec<u64>,
    row: Vec<u64>,
}

impl ChunkWalk {
    /// Copies the part of a box in a chunk, both in C order; `None` if the copy would leave one of
    /// them.
    pub(super) fn copy_rows(
        &mut self,
        start: &[u64],
        lengths: &[u64],
        shape: &[u64],
        item: usize,
        data: &[u8],
        chunk: &mut [u8],
    ) -> Option<()> {
        let rank = shape.len();
        // Rows that are adjacent in both are copied as one.
        let mut run = item as u64;
        let mut outer = rank;
        while outer > 0 {
            outer -= 1;
            run *= self.count[outer];
            if self.count[outer] != lengths[outer] || self.count[outer] != shape[outer] {
                break;
            }
        }
        self.row.clear();
        self.row.resize(outer, 0);
        let run = usize::try_from(run).ok()?;
        loop {
            let (mut from, mut to) = (0, 0);
            for axis in 0..rank {
                let inside = self.row.get(axis).copied().unwrap_or(0) + self.start[axis];
                from = from * lengths[axis] + (inside - start[axis]);
                to = to * shape[axis] + (inside - self.chunk[axis] * shape[axis]);
            }
            let from = usize::try_from(from).ok()?.checked_mul(item)?;
            let to = usize::try_from(to).ok()?.checked_mul(item)?;
            let target = chunk.get_mut(to..to.checked_add(run)?)?;
            target.copy_from_slice(data.get(from..from.checked_add(run)?)?);
            let next = (0..outer).rev().find(|axis| {
                self.row[*axis] += 1;
                let more = self.row[*axis] < self.count[*axis];
                if !more {
                    self.row[*axis] = 0;
                }
                more
            });
            if next.is_none() {
                return Some(());
            }
        }
    }

    /// Copies as [`ChunkWalk::copy_rows`], into a chunk with another order of axes or bytes.
    pub(super) fn copy_any(
        &self,
        start: &[u64],
        lengths: &[u64],
        plan: &SettlePlan,
        data: &[u8],
        chunk: &mut [u8],
    ) -> Result<Option<()>> {
        let state = &*plan.state;
        let shape = state.layout.grid.chunk_shape();
        let mut copy = Copy::default();
        let mut step = signed(state.layout.item_size as u64);
        for axis in (0..shape.len()).rev() {
            let target_step = state.layout.codec.strides()[axis];
            let inside = self.start[axis] - self.chunk[axis] * shape[axis];
            copy.source_start += signed(self.start[axis] - start[axis]) * step;
            copy.target_start += signed(inside) * target_step;
            let count = self.count[axis];
            copy.axes.push(Axis::Even { source_step: step, target_step, count });
            step *= signed(lengths[axis]);
        }
        copy.tidy();
        let target = CopyTarget::new(chunk);
        // SAFETY: no other thread accesses the chunk.
        unsafe { copy.run(data, target, state.layout.item_size, state.layout.codec.swap_size())? };
        Ok(Some(()))
    }
}

fn signed(value: u64) -> i64 {
    // The value is a size in memory, so it fits.
    i64::try_from(value).unwrap_or(i64::MAX)
}
