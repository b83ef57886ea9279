//! Copies that move bytes: the loops over raw pointers, and the checks that make them sound.
//!
//! [`Copy::run`] and [`ContiguousRun::run`] check every byte of a copy against both buffers before
//! the first moves. The loops below them check nothing. They are generic over the element size, so
//! that an element of 1, 2, 4, 8 or 16 bytes is one load and one store.

use super::{Axis, ContiguousRun, Copy, CopyTarget, SharedPositions};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::numbers::{index, signed};

impl ContiguousRun {
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
        match fits(bounds[0], source) && fits(bounds[1], target) {
            true => Ok(()),
            false => Err(leaves_buffers(&bounds, source, target)),
        }
    }
}

/// Elements in memory, `strides` bytes apart along each axis.
pub(crate) struct Strided<'a, B> {
    pub(crate) bytes: B,
    pub(crate) strides: &'a [i64],
}

/// Copies a box of `shape` elements of `item` bytes between two buffers. `swap` is the size in bytes
/// of the numbers to reverse, 1 for none.
///
/// # Errors
/// If the box leaves one of the buffers: nothing was copied.
pub(crate) fn copy_box(
    shape: &[u64],
    source: Strided<'_, &[u8]>,
    target: Strided<'_, &mut [u8]>,
    item: usize,
    swap: usize,
) -> Result<()> {
    let axes = shape.iter().zip(source.strides.iter().zip(target.strides));
    let axes = axes.map(|(count, (source_step, target_step))| Axis::Even {
        source_step: *source_step,
        target_step: *target_step,
        count: *count,
    });
    let mut copy = Copy { source_start: 0, target_start: 0, axes: axes.collect() };
    copy.tidy();
    // SAFETY: the target is borrowed for this call alone.
    unsafe { copy.run(source.bytes, CopyTarget::new(target.bytes), item, swap) }
}

fn leaves_buffers(what: &dyn std::fmt::Debug, source: usize, target: usize) -> Error {
    let text = format!(
        "internal error: a copy of {what:?} leaves its buffers of {source} and {target} bytes; \
         please report it"
    );
    Error::new(ErrorKind::Io, text)
}

#[allow(clippy::cast_possible_truncation)]
fn isize_of(offset: i64) -> isize {
    // Offsets were checked against buffers in memory, so they fit.
    offset as isize
}

/// The steps in bytes between the elements of an innermost axis.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ByteSteps {
    source: isize,
    target: isize,
}

impl ByteSteps {
    fn of(source: i64, target: i64) -> Self {
        Self { source: isize_of(source), target: isize_of(target) }
    }

    /// The steps between elements of `item` bytes that follow each other.
    fn of_items(item: usize) -> Self {
        Self { source: item.cast_signed(), target: item.cast_signed() }
    }
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
                let steps = ByteSteps::of(*source_step, *target_step);
                let count = index(*count);
                if rest.is_empty() && steps == ByteSteps::of_items(item) {
                    return copy_run(source, target, item * count, swap);
                }
                if rest.is_empty() && swap == 1 && N > 0 {
                    return copy_steps::<N>(source, target, steps, count);
                }
                for at in 0..count.cast_signed() {
                    let (from, to) = (at * steps.source, at * steps.target);
                    walk::<N>(rest, source.offset(from), target.offset(to), item, swap);
                }
            }
            Axis::List { positions, source_step, target_step } => {
                let steps = ByteSteps::of(*source_step, *target_step);
                if rest.is_empty() && N > 0 && (swap == 1 || swap == N) {
                    return copy_listed::<N>(positions, source, target, steps, swap);
                }
                let base = isize_of(signed(positions.first()));
                for (place, at) in positions.as_slice().iter().zip(0_isize..) {
                    let from = (isize_of(signed(*place)) - base) * steps.source;
                    walk::<N>(
                        rest,
                        source.offset(from),
                        target.offset(at * steps.target),
                        item,
                        swap,
                    );
                }
            }
            Axis::Table { offsets, .. } => {
                for (from, to) in offsets {
                    let (from, to) = (isize_of(*from), isize_of(*to));
                    walk::<N>(rest, source.offset(from), target.offset(to), item, swap);
                }
            }
        }
    }
}

/// # Safety
/// As [`walk`].
unsafe fn copy_steps<const N: usize>(
    source: *const u8,
    target: *mut u8,
    steps: ByteSteps,
    count: usize,
) {
    for at in 0..count.cast_signed() {
        // SAFETY: by the contract; arrays of bytes have no alignment.
        unsafe {
            let value = source.offset(at * steps.source).cast::<[u8; N]>().read();
            target.offset(at * steps.target).cast::<[u8; N]>().write(value);
        }
    }
}

/// # Safety
/// As [`walk`].
unsafe fn copy_listed<const N: usize>(
    positions: &SharedPositions,
    source: *const u8,
    target: *mut u8,
    steps: ByteSteps,
    swap: usize,
) {
    let base = isize_of(signed(positions.first()));
    for (place, at) in positions.as_slice().iter().zip(0_isize..) {
        // SAFETY: by the contract; arrays of bytes have no alignment.
        unsafe {
            let from = (isize_of(signed(*place)) - base) * steps.source;
            let mut value = source.offset(from).cast::<[u8; N]>().read();
            if swap > 1 {
                value.reverse();
            }
            target.offset(at * steps.target).cast::<[u8; N]>().write(value);
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
    use super::*;
    use bedform_geometry::{AxisRange, Positions};

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
