//! Copies between a decoded chunk and the caller's buffer.
//!
//! A copy is a box of positions: each axis is a list of offsets in the source and in the target.
//! Axes of one position are dropped, and axes that continue each other are fused. The axis with the
//! shortest step in the target runs innermost, so that most copies end as a few long `memcpy`s.
//!
//! Many threads fill one buffer at once, each thread different bytes of it. [`CopyTarget`] is therefore
//! a raw pointer, and `target` and `kernels` have the only `unsafe` code of the read path. Every copy
//! is checked against both buffers before its first byte moves.
//!
//! | module | holds |
//! |---|---|
//! | `axis` | one axis of a copy: even steps, listed positions, or a table of offsets |
//! | `target` | the buffer that many threads fill |
//! | `kernels` | the loops that move bytes, and the checks before them |

mod axis;
mod kernels;
mod target;

use std::ops::Range;

use bedform_geometry::Positions;

use crate::error::Result;
use crate::plan::numbers::{index, signed};

pub(crate) use axis::{Axis, SharedPositions};
pub(crate) use kernels::{Strided, copy_box, swap_bytes};
pub(crate) use target::CopyTarget;

use axis::for_each_place;

/// A copy of a box of elements from a source to a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Copy {
    /// Offset in bytes of the first element in the source.
    pub(crate) source_start: i64,
    /// Offset in bytes of the first element in the target.
    pub(crate) target_start: i64,
    /// The axes, innermost last once [`Copy::tidy`] has run.
    pub(crate) axes: Vec<Axis>,
}

/// Bytes that are contiguous in the source and in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContiguousRun {
    source: usize,
    target: usize,
    bytes: usize,
}

impl ContiguousRun {
    /// Makes a run of `bytes` bytes from offset `source` to offset `target`.
    pub(crate) fn new(source: usize, target: usize, bytes: usize) -> Self {
        Self { source, target, bytes }
    }

    /// Returns the offset in the source, the offset in the target, and the bytes.
    pub(crate) fn parts(&self) -> (usize, usize, usize) {
        (self.source, self.target, self.bytes)
    }
}

impl Copy {
    /// Returns this copy as a run, if it is one. Call it after [`Copy::tidy`].
    pub(crate) fn as_run(&self, item: usize) -> Option<ContiguousRun> {
        let (outer, bytes) = self.split_run(item);
        let source = usize::try_from(self.source_start).ok().filter(|_| outer.is_empty())?;
        let target = usize::try_from(self.target_start).ok()?;
        Some(ContiguousRun { source, target, bytes })
    }

    /// Returns the axes over the runs that are contiguous in source and target, and the bytes of one
    /// run.
    fn split_run(&self, item: usize) -> (&[Axis], usize) {
        let (outer, count) = match self.axes.split_last() {
            Some((axis, outer)) if axis.is_contiguous(item) => (outer, index(axis.count())),
            _ => (self.axes.as_slice(), 1),
        };
        (outer, count.saturating_mul(item))
    }

    /// Adds an axis: positions `inside` of the source, `source_stride` bytes apart, go to positions
    /// `result` of the target, `target_stride` bytes apart.
    pub(crate) fn push(
        &mut self,
        inside: &Positions,
        source_stride: i64,
        result: &Positions,
        target_stride: i64,
    ) {
        if let (Positions::List(list), Positions::Range(result)) = (inside, result)
            && let Some(positions) = SharedPositions::new(list)
        {
            self.source_start += signed(positions.first()) * source_stride;
            self.target_start += signed(result.start()) * target_stride;
            let target_step = result.step() * target_stride;
            self.axes.push(Axis::List { positions, source_step: source_stride, target_step });
            return;
        }
        match (inside, result) {
            (Positions::Range(inside), Positions::Range(result)) => {
                self.source_start += signed(inside.start()) * source_stride;
                self.target_start += signed(result.start()) * target_stride;
                if inside.len() != 1 {
                    self.axes.push(Axis::Even {
                        source_step: inside.step() * source_stride,
                        target_step: result.step() * target_stride,
                        count: inside.len(),
                    });
                }
            }
            _ => self.axes.push(Axis::Table {
                offsets: inside
                    .iter()
                    .zip(result.iter())
                    .map(|(from, to)| (signed(from) * source_stride, signed(to) * target_stride))
                    .collect(),
                target_step: target_stride,
            }),
        }
    }

    /// Returns the reverse copy: from the target to the source.
    pub(crate) fn reversed(self) -> Self {
        let axes = self
            .axes
            .into_iter()
            .map(|axis| match axis.into_table() {
                Axis::Even { source_step, target_step, count } => {
                    Axis::Even { source_step: target_step, target_step: source_step, count }
                }
                list @ Axis::List { .. } => list,
                Axis::Table { offsets, .. } => {
                    let target_step = offsets.windows(2).map(|pair| pair[1].0 - pair[0].0).min();
                    Axis::Table {
                        offsets: offsets.into_iter().map(|(from, to)| (to, from)).collect(),
                        target_step: target_step.unwrap_or(0),
                    }
                }
            })
            .collect();
        Self { source_start: self.target_start, target_start: self.source_start, axes }
    }

    /// Returns the byte range of the source from the first to the last byte that the copy takes;
    /// empty if it takes none.
    pub(crate) fn source_range(&self, item: usize) -> Range<usize> {
        if self.axes.iter().any(|axis| axis.count() == 0) {
            return 0..0;
        }
        let (low, high) =
            self.axes.iter().fold((self.source_start, self.source_start), |(low, high), axis| {
                let (axis_low, axis_high) = axis.reach()[0];
                (low.saturating_add(axis_low), high.saturating_add(axis_high))
            });
        let place = |offset: i64| usize::try_from(offset).unwrap_or(0);
        place(low)..place(high).saturating_add(item)
    }

    /// Sorts the axes by the order in which the target is filled, and fuses those that continue
    /// each other.
    pub(crate) fn tidy(&mut self) {
        self.axes.sort_by_key(|axis| std::cmp::Reverse(axis.target_step().unsigned_abs()));
        let mut at = 1;
        while at < self.axes.len() {
            match self.axes[at - 1].fused(&self.axes[at]) {
                Some(axis) => {
                    self.axes[at - 1] = axis;
                    self.axes.remove(at);
                }
                None => at += 1,
            }
        }
    }

    /// Returns the number of runs that are contiguous in source and target. Call it after
    /// [`Copy::tidy`].
    pub(crate) fn run_count(&self, item: usize) -> u64 {
        let (outer, _) = self.split_run(item);
        outer.iter().fold(1, |count, axis| count.saturating_mul(axis.count()))
    }

    /// Calls `act` with each run of elements that is contiguous in source and target.
    ///
    /// # Errors
    /// Those of `act`.
    pub(crate) fn for_each_run(
        &self,
        item: usize,
        act: &mut dyn FnMut(ContiguousRun) -> Result<()>,
    ) -> Result<()> {
        let place = |offset: i64| usize::try_from(offset).unwrap_or(usize::MAX);
        let (outer, bytes) = self.split_run(item);
        let mut run = |source, target| act(ContiguousRun::new(place(source), place(target), bytes));
        for_each_place(outer, self.source_start, self.target_start, &mut run)
    }

    /// Calls `act` with the offsets of each element in source and target.
    pub(crate) fn for_each_place(&self, mut act: impl FnMut(i64, i64)) {
        let mut place = |source, target| {
            act(source, target);
            Ok(())
        };
        // `place` does not fail.
        let _ = for_each_place(&self.axes, self.source_start, self.target_start, &mut place);
    }
}
