//! Merges the blocks of a computation into the one read that its user made.
//!
//! Dask reads `ds.t[3].mean()` chunk by chunk, on several threads or processes. The user repeats
//! the plane, not the chunk. So blocks of one array with the same computation number become the
//! smallest box that they fill. If they fill none, each side of a gap is tried separately, such as
//! two planes that a program compares. Blocks that fill no box stay single reads.
//!
//! A graph that is computed twice may read each block twice under the same number. Then the first
//! reads of all blocks form one read of the user, and the second reads another.
//!
//! Only blocks on a grid are merged. The blocks of Dask are: they come from chunks cut by a
//! selection.

use std::collections::{BTreeMap, HashMap};

use bedform_format::trace::{TracedAxis, TracedRead};

use crate::error::Result;
use crate::threads::workers::check_cancelled;

/// The most blocks that wait for others of their computation; more are merged at once.
pub(super) const BLOCKS_MAX: usize = 1 << 20;
/// The most levels at which blocks are divided at gaps.
const PARTS_DEPTH_MAX: usize = 8;

/// The blocks of all computations, by array and computation number.
#[derive(Debug, Default)]
pub(super) struct Computations {
    blocks: BTreeMap<String, BTreeMap<u64, Vec<TracedRead>>>,
    count: usize,
}

impl Computations {
    /// Adds a block of the array at `path`.
    pub(super) fn add(&mut self, path: &str, block: TracedRead) {
        let numbered = match self.blocks.get_mut(path) {
            Some(numbered) => numbered,
            None => self.blocks.entry(path.to_owned()).or_default(),
        };
        numbered.entry(block.computation).or_default().push(block);
        self.count += 1;
    }

    /// True once [`BLOCKS_MAX`] blocks wait.
    pub(super) fn is_full(&self) -> bool {
        self.count >= BLOCKS_MAX
    }

    /// Merges all waiting blocks, and returns the reads of each array in the order of their begin.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn take(&mut self) -> Result<Vec<(String, Vec<TracedRead>)>> {
        self.count = 0;
        let mut all = Vec::new();
        for (path, numbered) in std::mem::take(&mut self.blocks) {
            let mut reads = Vec::new();
            for blocks in numbered.into_values() {
                check_cancelled("learning was stopped")?;
                reads.extend(reads_of(blocks));
            }
            reads.sort_by_key(|read: &TracedRead| read.began_ns);
            all.push((path, reads));
        }
        Ok(all)
    }
}

/// Returns the reads that the blocks of one computation form.
fn reads_of(mut blocks: Vec<TracedRead>) -> Vec<TracedRead> {
    blocks.sort_by_key(|block| block.began_ns);
    let mut times: HashMap<Vec<TracedAxis>, usize> = HashMap::new();
    let mut rounds: Vec<Vec<TracedRead>> = Vec::new();
    for block in blocks {
        let before = times.entry(block.axes.clone()).or_default();
        if rounds.len() == *before {
            rounds.push(Vec::new());
        }
        rounds[*before].push(block);
        *before += 1;
    }
    rounds.into_iter().flat_map(|round| parts_of(round, PARTS_DEPTH_MAX)).collect()
}

/// Returns the boxes that different blocks form; blocks that form none stay single.
fn parts_of(blocks: Vec<TracedRead>, depth: usize) -> Vec<TracedRead> {
    if let Some(read) = together(&blocks) {
        return vec![read];
    }
    let rank = blocks.iter().map(|block| block.axes.len()).min().unwrap_or(0);
    let Some(below) = depth.checked_sub(1) else { return blocks };
    match (0..rank).find_map(|axis| at_gaps(&blocks, axis)) {
        Some(parts) => parts.into_iter().flat_map(|part| parts_of(part, below)).collect(),
        None => blocks,
    }
}

/// Divides blocks at the gaps along an axis; `None` without a gap.
fn at_gaps(blocks: &[TracedRead], axis: usize) -> Option<Vec<Vec<TracedRead>>> {
    let span = |block: &TracedRead| {
        let TracedAxis { first, count, step } = block.axes[axis];
        let length = count.saturating_sub(1).saturating_mul(step.unsigned_abs());
        if step < 0 {
            (first.saturating_sub(length), first)
        } else {
            (first, first.saturating_add(length))
        }
    };
    let step = |block: &TracedRead| match block.axes[axis] {
        TracedAxis { count: 2.., step, .. } => step.unsigned_abs(),
        _ => 1,
    };
    let widest = blocks.iter().map(step).max()?;
    let mut sorted: Vec<_> = blocks.iter().map(|block| (span(block), block)).collect();
    sorted.sort_by_key(|(span, _)| *span);
    let mut parts: Vec<Vec<TracedRead>> = Vec::new();
    let mut end = 0_u64;
    for ((low, high), block) in sorted {
        match parts.last_mut() {
            Some(part) if low <= end.saturating_add(widest) => part.push(block.clone()),
            _ => parts.push(vec![block.clone()]),
        }
        end = end.max(high);
    }
    (parts.len() > 1).then_some(parts)
}

/// Returns the read that different blocks form; `None` if they fill no box.
fn together(blocks: &[TracedRead]) -> Option<TracedRead> {
    let first = blocks.first()?;
    if blocks.iter().any(|block| block.is_list || block.axes.len() != first.axes.len()) {
        return None;
    }
    let mut cells: usize = 1;
    let mut axes = Vec::with_capacity(first.axes.len());
    for axis in 0..first.axes.len() {
        let (whole, pieces) = tiled(blocks.iter().map(|block| block.axes[axis]).collect())?;
        cells = cells.checked_mul(pieces)?;
        axes.push(whole);
    }
    if cells != blocks.len() {
        return None;
    }
    let sum = |of: fn(&TracedRead) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
    let began_ns = blocks.iter().map(|block| block.began_ns).min()?;
    let end = blocks.iter().map(|block| block.began_ns.saturating_add(block.took_ns)).max()?;
    Some(TracedRead {
        bytes: sum(|block| block.bytes),
        // Parallel blocks take no longer together than the elapsed time.
        took_ns: sum(|block| block.took_ns).min(end.saturating_sub(began_ns)),
        began_ns,
        was_ahead: blocks.iter().all(|block| block.was_ahead),
        axes,
        ..first.clone()
    })
}

/// Returns the range that the pieces along one axis form, and their number; `None` if they have
/// gaps or overlaps.
fn tiled(pieces: Vec<TracedAxis>) -> Option<(TracedAxis, usize)> {
    let mut step = None;
    let mut runs = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let last = piece.count.checked_sub(1)?.checked_mul(piece.step.unsigned_abs())?;
        if piece.count > 1
            && *step.get_or_insert(piece.step.unsigned_abs()) != piece.step.unsigned_abs()
        {
            return None;
        }
        let low = if piece.step < 0 { piece.first.checked_sub(last)? } else { piece.first };
        runs.push((low, piece.count));
    }
    runs.sort_unstable();
    runs.dedup();
    let (first, _) = *runs.first()?;
    // Single positions give the step by their distance, but two alone do not: they may be
    // unrelated.
    let distance = (runs.len() > 2).then(|| runs[1].0 - first);
    let step = step.or(distance).unwrap_or(1);
    let mut count: u64 = 0;
    for (low, own) in &runs {
        if step.checked_mul(count)?.checked_add(first)? != *low {
            return None;
        }
        count = count.checked_add(*own)?;
    }
    Some((TracedAxis { first, count, step: i64::try_from(step).ok()? }, runs.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(began_ns: u64, computation: u64, axes: &[(u64, u64, i64)]) -> TracedRead {
        let axis = |&(first, count, step): &(u64, u64, i64)| TracedAxis { first, count, step };
        TracedRead {
            stream: 1,
            computation,
            began_ns,
            took_ns: 10,
            bytes: axes.iter().map(|axis| axis.1).fold(8, u64::saturating_mul),
            was_ahead: false,
            is_list: false,
            selection: 0,
            axes: axes.iter().map(axis).collect(),
        }
    }

    fn boxes(blocks: Vec<TracedRead>) -> Vec<Vec<(u64, u64, i64)>> {
        let mut computations = Computations::default();
        blocks.into_iter().for_each(|block| computations.add("t", block));
        let (_, reads) = computations.take().unwrap().remove(0);
        let axes = |read: TracedRead| {
            read.axes.iter().map(|axis| (axis.first, axis.count, axis.step)).collect()
        };
        reads.into_iter().map(axes).collect()
    }

    #[test]
    fn blocks_of_a_plane_are_one_read_of_it_in_whichever_order_they_were_read() {
        let plane = |at: u64| {
            [(0, 8), (8, 2)].into_iter().flat_map(move |(y, rows)| {
                [(4, 4), (0, 4)].map(|(x, columns)| {
                    block(50 - y, 7 + at, &[(at, 1, 1), (y, rows, 1), (x, columns, 1)])
                })
            })
        };
        assert_eq!(
            boxes((0..2).flat_map(plane).collect()),
            [[(0, 1, 1), (0, 10, 1), (0, 8, 1)], [(1, 1, 1), (0, 10, 1), (0, 8, 1)]]
        );
        let whole = together(&plane(3).collect::<Vec<_>>()).unwrap();
        assert_eq!((whole.bytes, whole.took_ns), (640, 18));
    }

    #[test]
    fn a_graph_that_is_computed_twice_is_two_reads() {
        let half = |began, y| block(began, 7, &[(y, 5, 1)]);
        let twice = vec![half(0, 0), half(1, 5), half(9, 5), half(8, 0)];
        assert_eq!(boxes(twice), [[(0, 10, 1)], [(0, 10, 1)]]);
        // The second computation was stopped.
        assert_eq!(boxes(vec![half(0, 0), half(1, 5), half(9, 5)]), [[(0, 10, 1)], [(5, 5, 1)]]);
    }

    #[test]
    fn planes_that_one_computation_compares_are_a_read_each() {
        let plane = |at: u64| [0, 4].map(|x| block(at + x, 7, &[(at, 1, 1), (x, 4, 1)]));
        assert_eq!(
            boxes([plane(0), plane(5)].concat()),
            [[(0, 1, 1), (0, 8, 1)], [(5, 1, 1), (0, 8, 1)]]
        );
        assert_eq!(boxes([plane(0), plane(1)].concat()), [[(0, 2, 1), (0, 8, 1)]]);
    }

    #[test]
    fn blocks_that_fill_no_box_stay_what_they_are() {
        for hollow in [
            vec![block(0, 7, &[(0, 2, 1), (0, 2, 1)]), block(1, 7, &[(2, 2, 1), (2, 2, 1)])],
            vec![block(0, 7, &[(0, 2, 1)]), block(1, 7, &[(3, 2, 1)])],
            vec![block(0, 7, &[(0, 3, 1)]), block(1, 7, &[(2, 2, 1)])],
            vec![block(0, 7, &[(0, 3, 2)]), block(1, 7, &[(6, 3, 3)])],
            vec![block(0, 7, &[(u64::MAX, 2, 1)]), block(1, 7, &[(0, u64::MAX, i64::MIN)])],
            vec![block(0, 7, &[(0, 0, 1)]), block(1, 7, &[(0, 4, 1)])],
            vec![block(0, 7, &[(0, 2, 1)]), block(1, 7, &[(2, 2, 1), (0, 1, 1)])],
        ] {
            let mut reads = reads_of(hollow.clone());
            reads.sort_by_key(|read| read.began_ns);
            assert_eq!(reads, hollow);
        }
        let list = TracedRead { is_list: true, ..block(1, 7, &[(2, 2, 1)]) };
        assert_eq!(reads_of(vec![block(0, 7, &[(0, 2, 1)]), list]).len(), 2);
    }

    #[test]
    fn blocks_of_every_third_element_are_one_read_forwards_and_backwards() {
        let parts = |began, first, count, step| block(began, 7, &[(first, count, step)]);
        assert_eq!(boxes(vec![parts(0, 1, 3, 3), parts(1, 10, 2, 3)]), [[(1, 5, 3)]]);
        assert_eq!(boxes(vec![parts(0, 13, 2, -3), parts(1, 7, 3, -3)]), [[(1, 5, 3)]]);
        assert_eq!(
            boxes(vec![parts(0, 4, 1, 1), parts(1, 14, 1, 1), parts(1, 24, 1, 1)]),
            [[(4, 3, 10)]]
        );
        // One piece has one element, the other more.
        assert_eq!(boxes(vec![parts(0, 1, 3, 3), parts(1, 10, 1, 1)]), [[(1, 4, 3)]]);
    }
}
