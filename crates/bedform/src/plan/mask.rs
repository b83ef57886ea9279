//! A bit for each element of a part: taken by a cover, or free.
//!
//! Entries of a log that lie over a chunk are visited from the newest to the oldest. An entry whose
//! elements are all taken is never read, and the elements that stay free are read from the source.
//! The bits use memory only once an entry takes a part of the elements. They then use a bit for
//! each element: at most an eighth of the bytes of the chunk.

use crate::plan::numbers::index;
use crate::plan::part::Ranges;

/// A set of elements of a part, each taken or free.
#[derive(Debug, Clone)]
pub(crate) struct Mask {
    shape: Vec<u64>,
    /// A bit for each element in C order; empty before the first is taken, or if all were taken at
    /// once.
    words: Vec<u64>,
    free: u64,
}

impl Mask {
    /// Makes a mask in which all elements of an index space are free.
    pub(crate) fn new(shape: Vec<u64>) -> Self {
        let free = shape.iter().product();
        Self { shape, words: Vec::new(), free }
    }

    /// Makes a mask in which all elements of an index space are taken.
    pub(crate) fn full(shape: Vec<u64>) -> Self {
        Self { shape, words: Vec::new(), free: 0 }
    }

    /// Returns true if every element is taken.
    pub(crate) fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Returns true if no element is taken. A mask without elements is untouched and full.
    pub(crate) fn is_untouched(&self) -> bool {
        self.words.is_empty() && (self.free > 0 || self.shape.contains(&0))
    }

    /// Takes the elements of `ranges`, and visits those that were free, as ranges.
    pub(crate) fn take(&mut self, ranges: &Ranges, visit: &mut impl FnMut(&Ranges)) {
        let count: u64 = ranges.iter().map(|(_, count)| count).product();
        if count == 0 || self.free == 0 {
            return;
        }
        if self.words.is_empty() {
            if count == self.free {
                self.free = 0;
                return visit(ranges);
            }
            self.words = vec![0; index(self.free.div_ceil(64))];
        }
        let mut taken = 0;
        for_each_row(&self.shape, ranges, |start, length| {
            taken += count_ones(&self.words, start, length);
        });
        if taken == count {
            return;
        }
        match taken {
            0 => visit(ranges),
            _ => self.for_each_free_of(ranges, visit),
        }
        let words = &mut self.words;
        for_each_row(&self.shape, ranges, |start, length| set(words, start, length));
        self.free -= count - taken;
    }

    /// Takes `count` elements from index `start` on in C order, and visits those that were free, as
    /// runs.
    pub(crate) fn take_run(&mut self, start: u64, count: u64, visit: &mut impl FnMut(u64, u64)) {
        if self.free == 0 || count == 0 {
            return;
        }
        if self.words.is_empty() {
            if count == self.free {
                self.free = 0;
                return visit(start, count);
            }
            self.words = vec![0; index(self.free.div_ceil(64))];
        }
        let taken = count_ones(&self.words, start, count);
        match taken {
            0 => visit(start, count),
            _ if taken == count => return,
            _ => for_each_free_run(&self.words, start, count, visit),
        }
        set(&mut self.words, start, count);
        self.free -= count - taken;
    }

    /// Visits the free elements, as ranges, each element once.
    pub(crate) fn for_each_free(&self, visit: &mut impl FnMut(&Ranges)) {
        let all: Ranges = self.shape.iter().map(|length| (0, *length)).collect();
        if self.is_untouched() {
            return visit(&all);
        }
        if self.free > 0 {
            self.for_each_free_of(&all, visit);
        }
    }

    /// Visits the free elements of `ranges`, row by row along the last axis that has more than one
    /// element.
    fn for_each_free_of(&self, ranges: &Ranges, visit: &mut impl FnMut(&Ranges)) {
        let Some(axis) = self.shape.iter().rposition(|length| *length > 1) else {
            return visit(ranges);
        };
        let (low, count) = ranges[axis];
        let mut row = ranges.clone();
        row.iter_mut().for_each(|range| range.1 = 1);
        loop {
            row[axis].0 = 0;
            let start = row.iter().zip(&self.shape).fold(0, |at, (range, n)| at * n + range.0);
            for_each_free_run(&self.words, start + low, count, &mut |at, count| {
                row[axis] = (at - start, count);
                visit(&row);
            });
            row[axis] = (0, 1);
            let mut outer = axis;
            loop {
                if outer == 0 {
                    return;
                }
                outer -= 1;
                row[outer].0 += 1;
                if row[outer].0 < ranges[outer].0 + ranges[outer].1 {
                    break;
                }
                row[outer].0 = ranges[outer].0;
            }
        }
    }
}

/// Visits the elements of `ranges` as runs in C order: first element and count.
fn for_each_row(shape: &[u64], ranges: &Ranges, mut visit: impl FnMut(u64, u64)) {
    // All axes behind this one are taken whole, so that a run covers them.
    let whole = |axis: usize| ranges[axis] == (0, shape[axis]);
    let inner = (0..shape.len()).rev().find(|axis| !whole(*axis)).unwrap_or(0);
    let below: u64 = shape.iter().skip(inner + 1).product();
    let (low, count) = ranges.get(inner).copied().unwrap_or((0, 1));
    let mut at: Vec<u64> = ranges.iter().take(inner).map(|range| range.0).collect();
    loop {
        let outer = at.iter().zip(shape).fold(0, |place, (at, length)| place * length + at);
        let length = shape.get(inner).copied().unwrap_or(1);
        visit((outer * length + low) * below, count * below);
        let mut axis = inner;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < ranges[axis].0 + ranges[axis].1 {
                break;
            }
            at[axis] = ranges[axis].0;
        }
    }
}

/// Visits the words of a run of bits: the index of the word, and a mask of its bits.
fn for_each_word(start: u64, length: u64, mut visit: impl FnMut(usize, u64)) {
    let (mut at, end) = (start, start + length);
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        visit(index(at / 64), (u64::MAX >> (64 - bits)) << (at % 64));
        at += bits;
    }
}

fn count_ones(words: &[u64], start: u64, length: u64) -> u64 {
    let mut count = 0;
    for_each_word(start, length, |word, bits| {
        count += u64::from((words[word] & bits).count_ones())
    });
    count
}

fn set(words: &mut [u64], start: u64, length: u64) {
    for_each_word(start, length, |word, bits| words[word] |= bits);
}

/// Visits the runs of clear bits: first bit and count.
fn for_each_free_run(words: &[u64], start: u64, length: u64, visit: &mut impl FnMut(u64, u64)) {
    // Returns the length of the run of equal bits from `at` on, at most to the end of its word.
    // `flip` selects the value of the bits.
    let run = |at: u64, flip: u64| {
        let bits = (words[index(at / 64)] ^ flip) >> (at % 64);
        u64::from(bits.trailing_ones()).min(64 - at % 64)
    };
    let (mut at, end) = (start, start + length);
    let skip = |mut at: u64, flip: u64| {
        while at < end {
            match run(at, flip) {
                0 => break,
                bits => at += bits,
            }
        }
        at.min(end)
    };
    while at < end {
        let first = skip(at, 0);
        at = skip(first, u64::MAX);
        if at > first {
            visit(first, at - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::mask::*;
    use std::collections::BTreeSet;

    fn points(ranges: &Ranges) -> Vec<Vec<u64>> {
        ranges.iter().fold(vec![vec![]], |points, (first, count)| {
            let longer = |point: &Vec<u64>| {
                (*first..first + count)
                    .map(|at| [point.as_slice(), &[at]].concat())
                    .collect::<Vec<_>>()
            };
            points.iter().flat_map(longer).collect()
        })
    }

    #[test]
    fn what_is_free_is_what_a_set_of_points_says() {
        let mut seed = 7_u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for shape in [vec![], vec![1], vec![130], vec![5, 7], vec![3, 70, 1], vec![4, 3, 2, 9]] {
            for _ in 0..50 {
                let mut mask = Mask::new(shape.clone());
                let mut free: BTreeSet<_> =
                    points(&shape.iter().map(|n| (0, *n)).collect()).into_iter().collect();
                for _ in 0..below(6) {
                    let ranges: Ranges = shape
                        .iter()
                        .map(|n| {
                            let first = below(*n);
                            (first, 1 + below(n - first))
                        })
                        .collect();
                    let mut found = Vec::new();
                    if shape.len() == 1 {
                        let (first, count) = ranges[0];
                        mask.take_run(first, count, &mut |at, count| {
                            found.extend(points(&vec![(at, count)]));
                        });
                    } else {
                        mask.take(&ranges, &mut |ranges| found.extend(points(ranges)));
                    }
                    let expected: Vec<_> =
                        points(&ranges).into_iter().filter(|point| free.remove(point)).collect();
                    found.sort();
                    assert_eq!(found, expected);
                }
                assert_eq!(mask.is_full(), free.is_empty());
                let mut left = Vec::new();
                mask.for_each_free(&mut |ranges| left.extend(points(ranges)));
                left.sort();
                assert!(left.iter().eq(&free), "{left:?} {free:?}");
            }
        }
    }
}
