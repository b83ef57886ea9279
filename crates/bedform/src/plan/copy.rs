//! Copies between a decoded chunk and the caller's buffer.
//!
//! A copy is a box of positions: each axis is a list of offsets in the source and in the target.
//! Axes of one position are dropped, and axes that continue each other are fused. The axis with the
//! shortest step in the target runs innermost, so that most copies end as a few long `memcpy`s.
//!
//! Many threads fill one buffer at once, each thread different bytes of it. [`CopyTarget`] is therefore
//! a raw pointer, and the only `unsafe` code in the read path is here. Every copy is checked
//! against both buffers before its first byte moves.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use bedform_geometry::Positions;

use crate::error::{Error, ErrorKind, Result};

/// A buffer that several threads fill, each thread different bytes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopyTarget<'a> {
    pointer: *mut u8,
    length: usize,
    /// False for uninitialised memory.
    has_bytes: bool,
    marker: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `CopyTarget` is a borrowed buffer; the threads that share it write disjoint parts, which is
// the contract of `Copy::run`.
unsafe impl Send for CopyTarget<'_> {}
// SAFETY: as above.
unsafe impl Sync for CopyTarget<'_> {}

impl<'a> CopyTarget<'a> {
    /// Makes a target of an initialised buffer.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        let pointer = buffer.as_mut_ptr();
        Self { pointer, length: buffer.len(), has_bytes: true, marker: PhantomData }
    }

    /// Makes a target of uninitialised memory.
    pub(crate) fn of_room(room: &'a mut [MaybeUninit<u8>]) -> Self {
        let pointer = room.as_mut_ptr().cast();
        Self { pointer, length: room.len(), has_bytes: false, marker: PhantomData }
    }

    /// Fills the whole target with `elements`.
    ///
    /// # Panics
    /// If `elements` has another length than the target.
    pub(crate) fn fill(self, elements: &[u8]) {
        assert_eq!(elements.len(), self.length, "elements for another buffer");
        // SAFETY: the buffer is borrowed for writing as long as this lives, and has as many bytes.
        // Its caller shares it with no other thread meanwhile, which is the contract of `Copy::run`
        // as well.
        unsafe { self.pointer.copy_from_nonoverlapping(elements.as_ptr(), self.length) };
    }

    /// Returns the slice of the target for a run, to be filled in place; `None` if it lies outside,
    /// or if the target is uninitialised.
    ///
    /// # Safety
    /// No other thread reads or writes these bytes while the slice lives, and no other slice of
    /// them exists.
    pub(crate) unsafe fn room_of(self, run: &ContiguousRun) -> Option<&'a mut [u8]> {
        let fits = run.target.checked_add(run.bytes).is_some_and(|end| end <= self.length);
        // SAFETY: the bytes lie in the buffer, which is borrowed for writing for 'a.
        let room =
            || unsafe { std::slice::from_raw_parts_mut(self.pointer.add(run.target), run.bytes) };
        (fits && self.has_bytes).then(room)
    }

    /// Returns the bytes of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.length
    }
}

/// One axis of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Evenly spaced in source and target.
    Even { source_step: i64, target_step: i64, count: u64 },
    /// Listed positions in the source, counted from the first of them, and evenly spaced in the
    /// target.
    List { positions: SharedPositions, source_step: i64, target_step: i64 },
    /// Offsets in bytes from the start, in source and target.
    Table { offsets: Vec<(i64, i64)>, target_step: i64 },
}

/// A non-empty run of entries of a list of positions. The list is shared, so that the copies of a
/// read of millions of listed elements use no memory for each element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedPositions {
    list: Arc<Vec<u64>>,
    numbers: Range<usize>,
    /// The lowest and the highest position.
    bounds: (u64, u64),
    ascends: bool,
}

impl SharedPositions {
    /// Takes all positions of a list; `None` for an empty list.
    fn new(list: &Arc<Vec<u64>>) -> Option<Self> {
        let (ascends, numbers) = (list.is_sorted(), 0..list.len());
        Self { list: list.clone(), numbers, bounds: (0, 0), ascends }.bounded()
    }

    fn bounded(mut self) -> Option<Self> {
        let all = self.as_slice();
        let (low, high) = match self.ascends {
            true => (all.first()?, all.last()?),
            false => (all.iter().min()?, all.iter().max()?),
        };
        self.bounds = (*low, *high);
        Some(self)
    }

    /// Returns the positions.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.list[self.numbers.clone()]
    }

    /// Returns true if no position is below the one before.
    pub(crate) fn ascends(&self) -> bool {
        self.ascends
    }

    fn first(&self) -> u64 {
        self.as_slice().first().copied().unwrap_or(0)
    }

    /// Returns the entries with these numbers; `None` if there are none.
    pub(crate) fn slice(&self, numbers: Range<usize>) -> Option<Self> {
        let (from, end) = (self.numbers.start + numbers.start, self.numbers.start + numbers.end);
        let numbers = from.min(self.numbers.end)..end.min(self.numbers.end);
        Self { numbers, ..self.clone() }.bounded()
    }

    /// Returns the lowest and highest offset from the first position.
    fn reach(&self, step: i64) -> (i64, i64) {
        let first = signed(self.first());
        let place = |at: u64| (signed(at) - first).saturating_mul(step);
        let (one, other) = (place(self.bounds.0), place(self.bounds.1));
        (one.min(other), one.max(other))
    }
}

impl Axis {
    /// Returns the number of positions.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Even { count, .. } => *count,
            Self::List { positions, .. } => positions.as_slice().len() as u64,
            Self::Table { offsets, .. } => offsets.len() as u64,
        }
    }

    /// Returns the offsets of position number `at` in source and target.
    pub(crate) fn offset(&self, at: u64) -> (i64, i64) {
        match self {
            Self::Even { source_step, target_step, .. } => {
                (source_step * signed(at), target_step * signed(at))
            }
            Self::List { positions, source_step, target_step } => {
                let all = positions.as_slice();
                let place = all.get(index(at)).copied().unwrap_or(positions.first());
                let from = signed(place) - signed(positions.first());
                (from * source_step, target_step * signed(at))
            }
            Self::Table { offsets, .. } => offsets.get(index(at)).copied().unwrap_or_default(),
        }
    }

    /// Returns the axis of the positions with these numbers, counted from the first of them.
    pub(crate) fn slice(&self, numbers: Range<u64>) -> Self {
        let count = numbers.end.saturating_sub(numbers.start);
        match self {
            Self::Even { source_step, target_step, .. } => {
                Self::Even { source_step: *source_step, target_step: *target_step, count }
            }
            Self::List { positions, source_step, target_step } => {
                let (source_step, target_step) = (*source_step, *target_step);
                match positions.slice(index(numbers.start)..index(numbers.end)) {
                    Some(positions) => Self::List { positions, source_step, target_step },
                    None => Self::Even { source_step, target_step, count: 0 },
                }
            }
            Self::Table { offsets, target_step } => {
                let part = &offsets[index(numbers.start)..index(numbers.end)];
                let (from, to) = part.first().copied().unwrap_or_default();
                let offsets = part.iter().map(|pair| (pair.0 - from, pair.1 - to)).collect();
                Self::Table { offsets, target_step: *target_step }
            }
        }
    }

    /// Converts a list into a table; other axes stay as they are.
    pub(crate) fn into_table(self) -> Self {
        match self {
            Self::List { target_step, .. } => Self::Table {
                offsets: (0..self.count()).map(|at| self.offset(at)).collect(),
                target_step,
            },
            other => other,
        }
    }

    /// Returns true if the elements are contiguous in source and target.
    fn is_contiguous(&self, item: usize) -> bool {
        let item = i64::try_from(item).unwrap_or(i64::MAX);
        matches!(self, Self::Even { source_step, target_step, .. } if (*source_step, *target_step) == (item, item))
    }

    fn target_step(&self) -> i64 {
        match self {
            Self::Even { target_step, .. }
            | Self::List { target_step, .. }
            | Self::Table { target_step, .. } => *target_step,
        }
    }

    /// Returns the lowest and highest offset in the source, and in the target.
    pub(crate) fn reach(&self) -> [(i64, i64); 2] {
        match self {
            Self::Even { source_step, target_step, count } => {
                let last = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
                [*source_step, *target_step].map(|step| {
                    let end = step.saturating_mul(last);
                    (end.min(0), end.max(0))
                })
            }
            Self::List { positions, source_step, target_step } => {
                let end = target_step.saturating_mul(signed(self.count().saturating_sub(1)));
                [positions.reach(*source_step), (end.min(0), end.max(0))]
            }
            Self::Table { offsets, .. } => {
                let range = |pick: fn(&(i64, i64)) -> i64| {
                    let low = offsets.iter().map(pick).min().unwrap_or(0);
                    (low, offsets.iter().map(pick).max().unwrap_or(0))
                };
                [range(|pair| pair.0), range(|pair| pair.1)]
            }
        }
    }
}

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

    /// Copies the bytes. `swap` is the size in bytes of the numbers to reverse, 1 for none.
    ///
    /// # Safety
    /// As [`Copy::run`].
    ///
    /// # Errors
    /// As [`Copy::run`].
    pub(crate) unsafe fn run(
        &self,
        source: &[u8],
        target: CopyTarget<'_>,
        swap: usize,
    ) -> Result<()> {
        let fits = |start: usize, length: usize| {
            start.checked_add(self.bytes).is_some_and(|end| end <= length)
        };
        if !fits(self.source, source.len()) || !fits(self.target, target.len()) {
            let (from, to) = (self.source as u64, self.target as u64);
            return Err(leaves_buffers(&[from, to], source.len(), target.len()));
        }
        // SAFETY: both runs lie in their buffers.
        unsafe {
            let source = source.as_ptr().add(self.source);
            copy_run(source, target.pointer.add(self.target), self.bytes, swap);
        }
        Ok(())
    }
}

impl Copy {
    /// Returns this copy as a run, if it is one. Call it after [`Copy::tidy`].
    pub(crate) fn as_run(&self, item: usize) -> Option<ContiguousRun> {
        let step = i64::try_from(item).ok()?;
        let count = match self.axes.as_slice() {
            [] => 1,
            [Axis::Even { source_step, target_step, count }]
                if (*source_step, *target_step) == (step, step) =>
            {
                usize::try_from(*count).ok()?
            }
            _ => return None,
        };
        let source = usize::try_from(self.source_start).ok()?;
        let target = usize::try_from(self.target_start).ok()?;
        Some(ContiguousRun { source, target, bytes: count.checked_mul(item)? })
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
            let melted = match (&self.axes[at - 1], &self.axes[at]) {
                (
                    Axis::Even {
                        source_step: outer_source,
                        target_step: outer_target,
                        count: outer,
                    },
                    Axis::Even { source_step, target_step, count },
                ) => {
                    let length = i64::try_from(*count).unwrap_or(i64::MAX);
                    (source_step.checked_mul(length) == Some(*outer_source)
                        && target_step.checked_mul(length) == Some(*outer_target))
                    .then(|| Axis::Even {
                        source_step: *source_step,
                        target_step: *target_step,
                        count: outer * count,
                    })
                }
                _ => None,
            };
            match melted {
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
        let outer = match self.axes.split_last() {
            Some((axis, outer)) if axis.is_contiguous(item) => outer,
            _ => self.axes.as_slice(),
        };
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
        let step = i64::try_from(item).unwrap_or(i64::MAX);
        let (outer, count) = match self.axes.split_last() {
            Some((Axis::Even { source_step, target_step, count }, outer))
                if (*source_step, *target_step) == (step, step) =>
            {
                (outer, usize::try_from(*count).unwrap_or(usize::MAX))
            }
            _ => (self.axes.as_slice(), 1),
        };
        let bytes = count.saturating_mul(item);
        let mut run = |source, target| act(ContiguousRun::new(place(source), place(target), bytes));
        for_each_place(outer, self.source_start, self.target_start, &mut run)
    }

    /// Copies the elements. `swap` is the size in bytes of the numbers to reverse, 1 for none.
    ///
    /// # Safety
    /// No other thread reads or writes the same elements of `target` meanwhile.
    ///
    /// # Errors
    /// If any element lies outside `source` or `target`: nothing was copied. That is a bug of the
    /// planner, which is reported and not trusted.
    pub(crate) unsafe fn run(
        &self,
        source: &[u8],
        target: CopyTarget<'_>,
        item: usize,
        swap: usize,
    ) -> Result<()> {
        if self.axes.iter().any(|axis| axis.count() == 0) {
            return Ok(());
        }
        self.check(source.len(), target.len(), item)?;
        // SAFETY: every offset that the walk reaches was checked against both buffers just now.
        unsafe {
            let source = source.as_ptr().offset(isize_of(self.source_start));
            let target = target.pointer.offset(isize_of(self.target_start));
            match item {
                1 => walk::<1>(&self.axes, source, target, item, swap),
                2 => walk::<2>(&self.axes, source, target, item, swap),
                4 => walk::<4>(&self.axes, source, target, item, swap),
                8 => walk::<8>(&self.axes, source, target, item, swap),
                16 => walk::<16>(&self.axes, source, target, item, swap),
                _ => walk::<0>(&self.axes, source, target, item, swap),
            }
        }
        Ok(())
    }

    fn check(&self, source: usize, target: usize, item: usize) -> Result<()> {
        let mut bounds =
            [(self.source_start, self.source_start), (self.target_start, self.target_start)];
        for axis in &self.axes {
            for (bound, reach) in bounds.iter_mut().zip(axis.reach()) {
                *bound = (bound.0.saturating_add(reach.0), bound.1.saturating_add(reach.1));
            }
        }
        let fits = |(low, high): (i64, i64), length: usize| {
            low >= 0
                && usize::try_from(high)
                    .ok()
                    .and_then(|high| high.checked_add(item))
                    .is_some_and(|end| end <= length)
        };
        if fits(bounds[0], source) && fits(bounds[1], target) {
            Ok(())
        } else {
            Err(leaves_buffers(&bounds, source, target))
        }
    }
}

/// Calls `act` with the offsets in source and target of each position of `axes`.
fn for_each_place(
    axes: &[Axis],
    source: i64,
    target: i64,
    act: &mut dyn FnMut(i64, i64) -> Result<()>,
) -> Result<()> {
    let Some((first, rest)) = axes.split_first() else { return act(source, target) };
    match first {
        Axis::Even { source_step, target_step, count } => {
            let (mut source, mut target) = (source, target);
            for _ in 0..*count {
                for_each_place(rest, source, target, act)?;
                source = source.saturating_add(*source_step);
                target = target.saturating_add(*target_step);
            }
        }
        Axis::List { .. } => {
            for (from, to) in (0..first.count()).map(|at| first.offset(at)) {
                for_each_place(rest, source + from, target + to, act)?;
            }
        }
        Axis::Table { offsets, .. } => {
            for (from, to) in offsets {
                for_each_place(rest, source + from, target + to, act)?;
            }
        }
    }
    Ok(())
}

/// Copies a box of `shape` elements of `item` bytes between two buffers with the given strides in
/// bytes. `swap` is the size in bytes of the numbers to reverse, 1 for none.
///
/// # Errors
/// If the box leaves one of the buffers: nothing was copied.
pub(crate) fn copy_box(
    shape: &[u64],
    (source, source_strides): (&[u8], &[i64]),
    (target, target_strides): (&mut [u8], &[i64]),
    (item, swap): (usize, usize),
) -> Result<()> {
    let axes = shape.iter().zip(source_strides.iter().zip(target_strides));
    let axes = axes.map(|(count, (source_step, target_step))| Axis::Even {
        source_step: *source_step,
        target_step: *target_step,
        count: *count,
    });
    let mut copy = Copy { source_start: 0, target_start: 0, axes: axes.collect() };
    copy.tidy();
    // SAFETY: the target is borrowed for this call alone.
    unsafe { copy.run(source, CopyTarget::new(target), item, swap) }
}

fn leaves_buffers(what: &dyn std::fmt::Debug, source: usize, target: usize) -> Error {
    Error::new(
        ErrorKind::Io,
        format!(
            "internal error: a copy of {what:?} leaves its buffers of {source} and {target} bytes; \
             please report it"
        ),
    )
}

fn signed(value: u64) -> i64 {
    // Positions in a chunk and a result, whose bytes were counted when the geometry was made.
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation)]
fn index(value: u64) -> usize {
    // Counts of things that are in memory.
    value as usize
}

#[allow(clippy::cast_possible_truncation)]
fn isize_of(offset: i64) -> isize {
    // Offsets were checked against buffers in memory, so they fit.
    offset as isize
}

/// Copies the box of `axes` from `source` to `target`. `N` is the item size in bytes, or 0 for any
/// other size.
///
/// # Safety
/// Every offset reachable over `axes`, plus `item` bytes, lies in both buffers.
unsafe fn walk<const N: usize>(
    axes: &[Axis],
    source: *const u8,
    target: *mut u8,
    item: usize,
    swap: usize,
) {
    // SAFETY: by the contract of this function, for every pointer below.
    unsafe {
        let Some((first, rest)) = axes.split_first() else {
            return copy_run(source, target, item, swap);
        };
        match first {
            Axis::Even { source_step, target_step, count } => {
                let (source_step, target_step) = (isize_of(*source_step), isize_of(*target_step));
                #[allow(clippy::cast_possible_truncation)]
                let count = *count as usize;
                let signed_item = item.cast_signed();
                if rest.is_empty() && source_step == signed_item && target_step == signed_item {
                    return copy_run(source, target, item * count, swap);
                }
                if rest.is_empty() && swap == 1 && N > 0 {
                    return copy_steps::<N>(source, source_step, target, target_step, count);
                }
                for index in 0..count.cast_signed() {
                    walk::<N>(
                        rest,
                        source.offset(index * source_step),
                        target.offset(index * target_step),
                        item,
                        swap,
                    );
                }
            }
            Axis::List { positions, source_step, target_step } => {
                let steps = (isize_of(*source_step), isize_of(*target_step));
                if rest.is_empty() && N > 0 && (swap == 1 || swap == N) {
                    return copy_listed::<N>(positions, (source, target), steps, swap);
                }
                let base = isize_of(signed(positions.first()));
                for (place, at) in positions.as_slice().iter().zip(0_isize..) {
                    walk::<N>(
                        rest,
                        source.offset((isize_of(signed(*place)) - base) * steps.0),
                        target.offset(at * steps.1),
                        item,
                        swap,
                    );
                }
            }
            Axis::Table { offsets, .. } => {
                for (from, to) in offsets {
                    walk::<N>(
                        rest,
                        source.offset(isize_of(*from)),
                        target.offset(isize_of(*to)),
                        item,
                        swap,
                    );
                }
            }
        }
    }
}

/// # Safety
/// As [`walk`].
unsafe fn copy_steps<const N: usize>(
    source: *const u8,
    source_step: isize,
    target: *mut u8,
    target_step: isize,
    count: usize,
) {
    for index in 0..count.cast_signed() {
        // SAFETY: by the contract; arrays of bytes have no alignment.
        unsafe {
            let value = source.offset(index * source_step).cast::<[u8; N]>().read();
            target.offset(index * target_step).cast::<[u8; N]>().write(value);
        }
    }
}

/// # Safety
/// As [`walk`].
unsafe fn copy_listed<const N: usize>(
    positions: &SharedPositions,
    (source, target): (*const u8, *mut u8),
    (source_step, target_step): (isize, isize),
    swap: usize,
) {
    let base = isize_of(signed(positions.first()));
    for (place, at) in positions.as_slice().iter().zip(0_isize..) {
        // SAFETY: by the contract; arrays of bytes have no alignment.
        unsafe {
            let from = (isize_of(signed(*place)) - base) * source_step;
            let mut value = source.offset(from).cast::<[u8; N]>().read();
            if swap > 1 {
                value.reverse();
            }
            target.offset(at * target_step).cast::<[u8; N]>().write(value);
        }
    }
}

/// # Safety
/// `length` bytes are valid at both pointers, and they do not overlap.
unsafe fn copy_run(source: *const u8, target: *mut u8, length: usize, swap: usize) {
    // SAFETY: by the contract.
    unsafe {
        std::ptr::copy_nonoverlapping(source, target, length);
        if swap > 1 {
            let bytes = std::slice::from_raw_parts_mut(target, length);
            swap_bytes(bytes, swap);
        }
    }
}

/// Reverses the bytes of each number of `size` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    match size {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|number| number.reverse()),
        0 | 1 => {}
        _ => bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse),
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use crate::plan::copy::*;
    use bedform_geometry::AxisRange;

    fn range(start: u64, step: i64, len: u64) -> Positions {
        Positions::Range(AxisRange::new(start, step, len).unwrap())
    }

    fn run(copy: &Copy, source: &[u8], length: usize, item: usize, swap: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0xee; length];
        // SAFETY: this thread alone has the buffer.
        unsafe { copy.run(source, CopyTarget::new(&mut buffer), item, swap) }.map(|()| buffer)
    }

    #[test]
    fn a_whole_box_melts_into_one_run() {
        let mut copy = Copy::default();
        copy.push(&range(0, 1, 4), 60, &range(0, 1, 4), 60);
        copy.push(&range(0, 1, 3), 20, &range(0, 1, 3), 20);
        copy.push(&range(0, 1, 5), 4, &range(0, 1, 5), 4);
        copy.tidy();
        assert_eq!(copy.axes, [Axis::Even { source_step: 4, target_step: 4, count: 60 }]);
        let source: Vec<u8> = (0..240).collect();
        assert_eq!(run(&copy, &source, 240, 4, 1).unwrap(), source);
    }

    #[test]
    fn steps_tables_and_reversals_go_where_a_naive_loop_puts_them() {
        let source: Vec<u8> = (0..6 * 7 * 2).map(|i| i as u8).collect();
        let rows = range(5, -2, 3);
        let columns = Positions::List(vec![6, 0, 0, 3].into());
        let mut copy = Copy::default();
        copy.push(&rows, 14, &range(0, 1, 3), 8);
        copy.push(&columns, 2, &range(0, 1, 4), 2);
        copy.tidy();
        for swap in [1, 2] {
            let mut expected = Vec::new();
            for row in rows.iter() {
                for column in columns.iter() {
                    let at = (row * 14 + column * 2) as usize;
                    let mut element = [source[at], source[at + 1]];
                    if swap == 2 {
                        element.reverse();
                    }
                    expected.extend(element);
                }
            }
            assert_eq!(run(&copy, &source, 24, 2, swap).unwrap(), expected);
        }
    }

    #[test]
    fn a_part_of_a_list_counts_from_its_own_first_position() {
        let source: Vec<u8> = (0..40).collect();
        let mut copy = Copy::default();
        copy.push(&Positions::List(vec![1, 2, 6, 9].into()), 4, &range(0, 1, 4), 4);
        assert_eq!((copy.source_start, copy.source_range(4)), (4, 4..40));
        let Axis::List { positions, source_step, target_step } = copy.axes.remove(0) else {
            panic!("not a list")
        };
        let positions = positions.slice(1..3).unwrap();
        assert!(positions.slice(2..2).is_none());
        let axes = vec![Axis::List { positions, source_step, target_step }];
        let part = Copy { source_start: 8, target_start: 0, axes };
        assert_eq!(part.source_range(4), 8..28);
        assert_eq!(run(&part, &source, 8, 4, 1).unwrap(), [8, 9, 10, 11, 24, 25, 26, 27]);
        assert_eq!(run(&part, &source, 8, 4, 4).unwrap(), [11, 10, 9, 8, 27, 26, 25, 24]);
        assert!(run(&part, &source[..24], 8, 4, 1).is_err());
        let table = Copy { axes: vec![part.axes[0].clone().into_table()], ..part.clone() };
        let of_table = run(&table, &source, 8, 4, 1).unwrap();
        assert_eq!(of_table, run(&part, &source, 8, 4, 1).unwrap());
        let back = part.reversed();
        assert_eq!(run(&back, &source, 28, 4, 1).unwrap()[24..], source[4..8]);
    }

    #[test]
    fn a_copy_that_would_leave_a_buffer_moves_nothing() {
        let source = [1_u8; 16];
        let mut copy = Copy::default();
        copy.push(&range(0, 1, 5), 4, &range(0, 1, 5), 4);
        assert!(run(&copy, &source, 20, 4, 1).is_err());
        let mut copy = Copy::default();
        copy.push(&range(0, 1, 4), 4, &range(1, 1, 4), 4);
        assert!(run(&copy, &source, 16, 4, 1).is_err());
        let mut copy = Copy::default();
        copy.push(&range(0, 1, 4), -4, &range(0, 1, 4), 4);
        assert!(run(&copy, &source, 16, 4, 1).is_err());
    }

    #[test]
    fn axes_are_walked_in_the_order_of_the_target() {
        // A transposed source: the innermost axis of the target is the slowest of the source.
        let source: Vec<u8> = (0..12).collect();
        let mut copy = Copy::default();
        copy.push(&range(0, 1, 3), 1, &range(0, 1, 3), 4);
        copy.push(&range(0, 1, 4), 3, &range(0, 1, 4), 1);
        copy.tidy();
        let expected = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11];
        assert_eq!(run(&copy, &source, 12, 1, 1).unwrap(), expected);
    }
}
