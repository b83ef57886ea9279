//! The space of chunk shapes, and a downhill search in it that gives the same answer each time.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::cost::bytes_of;

/// Divisors up to this are found by trial; a length without smaller ones has few useful divisors.
const DIVISOR_MAX: u64 = 1 << 12;
/// A length is also cut into up to this many even pieces.
const EVEN_PIECES_MAX: u64 = 8;
/// The constraint of a growing dimension: shards along `axis` must divide `unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppendUnit {
    pub(crate) axis: usize,
    pub(crate) unit: u64,
}

/// The chunk shapes to choose from: a list of lengths for each axis, and bounds on the bytes.
#[derive(Debug)]
pub(crate) struct ShapeSpace {
    pub(crate) extents: Vec<u64>,
    pub(crate) item_size: u64,
    pub(crate) bytes_min: f64,
    pub(crate) bytes_max: f64,
    unit: Option<AppendUnit>,
    choices: Vec<Vec<u64>>,
}

/// The order of layouts: first the excess over the bound of other readers, then the cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// Steps beyond the bound of the other readers; 0 within it.
    pub(crate) excess: f64,
    pub(crate) cost: f64,
}

impl Score {
    pub(crate) const WORST: Self = Self { excess: f64::INFINITY, cost: f64::INFINITY };

    pub(crate) fn total_cmp(&self, other: &Self) -> Ordering {
        self.excess.total_cmp(&other.excess).then(self.cost.total_cmp(&other.cost))
    }

    pub(crate) fn is_less(&self, other: &Self) -> bool {
        self.total_cmp(other).is_lt()
    }
}

/// Scores of shapes, some of them without a cost.
#[derive(Debug, Default)]
struct ScoreCache {
    scores: HashMap<Vec<usize>, Score>,
    /// The number of shapes with a cost.
    priced: usize,
}

impl ScoreCache {
    /// Returns the score of a shape. A cached score without a cost suffices if its excess is more
    /// than `excess`.
    fn score(&mut self, point: &[usize], excess: f64, price: impl FnOnce(f64) -> Score) -> Score {
        if let Some(known) = self.scores.get(point)
            && (known.cost.is_finite() || known.excess > excess)
        {
            return *known;
        }
        let score = price(excess);
        self.priced += usize::from(score.cost.is_finite());
        self.scores.insert(point.to_vec(), score);
        score
    }
}

/// The way in which a shard grows.
#[derive(Debug, Clone)]
pub(crate) struct ShardGrowth {
    pub(crate) along: GrowthOrder,
    /// True if shards tile the array, so that none has room for a chunk beyond its end.
    pub(crate) fills: bool,
}

/// The axis along which a shard grows first.
#[derive(Debug, Clone)]
pub(crate) enum GrowthOrder {
    /// The axis with the most shards.
    Balanced,
    /// The last axes, as far as they go, then those before them.
    LastFirst,
    /// The axes of the largest weight, as far as they go.
    Weighted(Vec<f64>),
}

impl ShapeSpace {
    /// Makes the space of an array of `extents`, none of them 0. The lengths of the `familiar`
    /// chunks are among the choices.
    pub(crate) fn new(
        extents: &[u64],
        item_size: u64,
        unit: Option<AppendUnit>,
        (bytes_min, bytes_max): (f64, f64),
        familiar: &[Vec<u64>],
    ) -> Self {
        let choices: Vec<Vec<u64>> = extents
            .iter()
            .enumerate()
            .map(|(axis, &extent)| match unit {
                Some(unit) if unit.axis == axis => divisors(unit.unit, extent),
                _ => lengths(extent, familiar.iter().filter_map(|chunk| chunk.get(axis).copied())),
            })
            .collect();
        // An array, or the part of it that one append writes, can be smaller than the least chunk.
        let largest: Vec<_> =
            choices.iter().map(|axis| axis.last().copied().unwrap_or(1)).collect();
        let bytes_min = bytes_min.min(bytes_of(&largest, item_size));
        Self { extents: extents.to_vec(), item_size, bytes_min, bytes_max, unit, choices }
    }

    fn shape(&self, point: &[usize]) -> Vec<u64> {
        self.choices.iter().zip(point).map(|(choices, &at)| choices[at]).collect()
    }

    /// Returns true for shapes within the bounds.
    fn allows(&self, shape: &[u64]) -> bool {
        let bytes = bytes_of(shape, self.item_size);
        (self.bytes_min..=self.bytes_max).contains(&bytes)
    }

    /// Returns the chunk of at most `bytes` bytes, unless the least is more, that comes closest to
    /// a cube.
    pub(crate) fn cube(&self, bytes: f64) -> Vec<usize> {
        let all: Vec<_> = (0..self.extents.len()).collect();
        let cube = self.grow(vec![0; self.extents.len()], &all, bytes);
        self.grow_to_least(cube, &all)
    }

    /// Returns the chunk that is as long as possible along the `spanned` axes. Along the others it
    /// is only as long as the least bytes demand.
    pub(crate) fn spanning(&self, spanned: &[usize]) -> Vec<usize> {
        let along = self.grow(vec![0; self.extents.len()], spanned, self.bytes_max);
        let all: Vec<_> = (0..self.extents.len()).collect();
        self.grow_to_least(along, &all)
    }

    fn grow(&self, mut point: Vec<usize>, axes: &[usize], bytes: f64) -> Vec<usize> {
        let mut open = axes.to_vec();
        // The shortest axis first; of equal ones the first, across which row-major runs are
        // longest.
        while let Some(&axis) =
            open.iter().min_by_key(|&&axis| (self.choices[axis][point[axis]], axis))
        {
            point[axis] += 1;
            let fits = point[axis] < self.choices[axis].len()
                && bytes_of(&self.shape(&point), self.item_size) <= bytes.min(self.bytes_max);
            if !fits {
                point[axis] -= 1;
                open.retain(|&other| other != axis);
            }
        }
        point
    }

    fn grow_to_least(&self, mut point: Vec<usize>, axes: &[usize]) -> Vec<usize> {
        while bytes_of(&self.shape(&point), self.item_size) < self.bytes_min {
            let open = axes.iter().filter(|&&axis| point[axis] + 1 < self.choices[axis].len());
            let next = open.min_by_key(|&&axis| (self.choices[axis][point[axis]], axis));
            let Some(&axis) = next else { break };
            point[axis] += 1;
        }
        point
    }

    /// Returns the chunk whose lengths come closest to those of `shape` without passing them. It is
    /// grown to the least bytes, or cut along its longest axis to the most.
    pub(crate) fn near(&self, shape: &[u64]) -> Vec<usize> {
        let below = |(choices, &length): (&Vec<u64>, &u64)| {
            choices.partition_point(|&choice| choice <= length).saturating_sub(1)
        };
        let mut point: Vec<usize> = self.choices.iter().zip(shape).map(below).collect();
        while bytes_of(&self.shape(&point), self.item_size) > self.bytes_max {
            let open = (0..point.len()).filter(|&axis| point[axis] > 0);
            let longest = open.max_by_key(|&axis| (self.choices[axis][point[axis]], axis));
            let Some(axis) = longest else { break };
            point[axis] -= 1;
        }
        let all: Vec<_> = (0..point.len()).collect();
        self.grow_to_least(point, &all)
    }

    /// Returns the shape at `point`.
    pub(crate) fn shape_at(&self, point: &[usize]) -> Vec<u64> {
        self.shape(point)
    }

    /// Goes downhill from each of `starts`, to the cheapest neighbour: one axis longer or shorter,
    /// or one longer and another shorter. Returns all priced shapes, the cheapest first; among
    /// equals, the larger chunk first. `price` may omit the cost of a shape whose excess is more
    /// than the given one.
    pub(crate) fn descend(
        &self,
        starts: &[Vec<usize>],
        mut price: impl FnMut(&[u64], f64) -> Score,
    ) -> Vec<(Vec<u64>, Score)> {
        let mut known = ScoreCache::default();
        let priced_max = priced_max(self.extents.len());
        // The best starts come first, before the limit on priced shapes is reached.
        let mut ranked: Vec<(Vec<usize>, Score)> = Vec::with_capacity(starts.len());
        for start in starts {
            let price = |excess| price(&self.shape(start), excess);
            ranked.push((start.clone(), known.score(start, f64::INFINITY, price)));
        }
        ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (mut here, mut cost) in ranked {
            loop {
                let mut best: Option<(Vec<usize>, Score)> = None;
                for near in self.neighbours(&here) {
                    if known.priced >= priced_max && !known.scores.contains_key(&near) {
                        continue;
                    }
                    let score =
                        known.score(&near, cost.excess, |excess| price(&self.shape(&near), excess));
                    if best.as_ref().is_none_or(|best| score.is_less(&best.1)) {
                        best = Some((near, score));
                    }
                }
                match best {
                    Some((near, lower)) if lower.is_less(&cost) => (here, cost) = (near, lower),
                    _ => break,
                }
            }
        }
        let mut priced: Vec<_> =
            known.scores.into_iter().map(|(point, cost)| (self.shape(&point), cost)).collect();
        priced.sort_by(|a, b| {
            let larger = bytes_of(&b.0, 1).total_cmp(&bytes_of(&a.0, 1));
            a.1.total_cmp(&b.1).then(larger).then_with(|| a.0.cmp(&b.0))
        });
        priced
    }

    fn neighbours(&self, point: &[usize]) -> Vec<Vec<usize>> {
        let longer = |point: &[usize], axis: usize| {
            let mut near = point.to_vec();
            near[axis] += 1;
            (near[axis] < self.choices[axis].len()).then_some(near)
        };
        let shorter = |point: &[usize], axis: usize| {
            let mut near = point.to_vec();
            near[axis] = near[axis].checked_sub(1)?;
            Some(near)
        };
        let axes = 0..point.len();
        let mut near: Vec<_> = axes.clone().filter_map(|axis| longer(point, axis)).collect();
        let grown = near.len();
        near.extend(axes.clone().filter_map(|axis| shorter(point, axis)));
        for number in 0..grown {
            let Some(from) = near.get(number).cloned() else { break };
            for axis in axes.clone().filter(|&axis| from[axis] == point[axis]) {
                near.extend(shorter(&from, axis));
            }
        }
        near.retain(|point| self.allows(&self.shape(point)));
        near
    }

    /// Returns the shard of at most `bytes` bytes and `chunks_max` chunks of `chunk`, evened out
    /// over the array.
    pub(crate) fn shard(
        &self,
        chunk: &[u64],
        bytes: f64,
        chunks_max: u64,
        growth: &ShardGrowth,
    ) -> Vec<u64> {
        let cells: Vec<_> =
            self.extents.iter().zip(chunk).map(|(extent, size)| extent.div_ceil(*size)).collect();
        let mut times = vec![1_u64; chunk.len()];
        let mut open: Vec<usize> = (0..chunk.len()).collect();
        let chunk_bytes = bytes_of(chunk, self.item_size);
        while let Some(axis) = growth.along.next(&open, &cells, &times) {
            let before = times[axis];
            times[axis] = self.next_times(axis, chunk[axis], before, cells[axis]);
            let chunks = bytes_of(&times, 1);
            if times[axis] == before || chunks * chunk_bytes > bytes || chunks > chunks_max as f64 {
                times[axis] = before;
                open.retain(|&other| other != axis);
            }
        }
        for (axis, times) in times.iter_mut().enumerate() {
            if self.unit.is_none_or(|unit| unit.axis != axis) {
                *times = match growth.fills {
                    true => divisor_up_to(cells[axis], *times),
                    false => cells[axis].div_ceil(cells[axis].div_ceil(*times)),
                };
            }
        }
        times.iter().zip(chunk).map(|(times, size)| times.saturating_mul(*size)).collect()
    }

    /// Returns the next larger number of chunks along an axis of a shard.
    fn next_times(&self, axis: usize, chunk: u64, times: u64, cells: u64) -> u64 {
        match self.unit {
            Some(unit) if unit.axis == axis => {
                let rest = unit.unit / (chunk * times);
                let factor =
                    (2..=rest.min(DIVISOR_MAX)).find(|factor| rest.is_multiple_of(*factor));
                times * factor.unwrap_or(1)
            }
            _ => times.saturating_mul(2).min(cells),
        }
    }
}

impl GrowthOrder {
    fn next(&self, open: &[usize], cells: &[u64], times: &[u64]) -> Option<usize> {
        let missing = |axis: usize| cells[axis] as f64 / times[axis] as f64;
        let open = open.iter().copied();
        match self {
            Self::Balanced => open.max_by(|&a, &b| missing(a).total_cmp(&missing(b))),
            Self::LastFirst => open.max(),
            Self::Weighted(weights) => open.max_by(|&a, &b| {
                weights[a].total_cmp(&weights[b]).then(missing(a).total_cmp(&missing(b)))
            }),
        }
    }
}

/// Returns the lengths to consider along an axis. They are powers of two, the midpoints between
/// them where the next power does not divide the axis, even cuts, and the `familiar` ones.
fn lengths(extent: u64, familiar: impl Iterator<Item = u64>) -> Vec<u64> {
    let powers = (0..63).map(|power| 1_u64 << power);
    let between =
        (0..61).filter(|&power| !extent.is_multiple_of(4_u64 << power)).map(|power| 3_u64 << power);
    let even = (1..=EVEN_PIECES_MAX).map(|pieces| extent.div_ceil(pieces));
    let mut lengths: Vec<_> = powers.chain(between).chain(even).chain(familiar).collect();
    lengths.retain(|&length| (1..=extent).contains(&length));
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Returns the most shapes to price in one search, which then takes some 30 ms. A shape of many
/// axes takes long to price, and has many neighbours.
fn priced_max(axes: usize) -> usize {
    match axes {
        0..=3 => 500,
        4 => 190,
        _ => 300 / axes.div_ceil(4).pow(2),
    }
}

/// Returns the largest divisor of `number` up to `most`.
fn divisor_up_to(number: u64, most: u64) -> u64 {
    let fits = |divisor: &u64| (1..=most).contains(divisor);
    let small = (1..=number.isqrt().min(DIVISOR_MAX)).filter(|small| number.is_multiple_of(*small));
    small.flat_map(|small| [small, number / small]).filter(fits).max().unwrap_or(1)
}

/// Returns the divisors of `number` up to `extent`, as far as they or their cofactors are small.
fn divisors(number: u64, extent: u64) -> Vec<u64> {
    let small = (1..=number.min(DIVISOR_MAX)).filter(|small| number.is_multiple_of(*small));
    let mut divisors: Vec<_> = small
        .flat_map(|small| [small, number / small])
        .filter(|&length| length <= extent)
        .collect();
    divisors.sort_unstable();
    divisors.dedup();
    divisors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_never_exceed_the_axis_and_hold_it() {
        let lengths = |extent| lengths(extent, std::iter::empty());
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(5), [1, 2, 3, 4, 5]);
        assert_eq!(lengths(64), [1, 2, 4, 8, 10, 11, 13, 16, 22, 32, 64]);
        for extent in [721, 1440, 1 << 40] {
            let lengths = lengths(extent);
            assert!(lengths.is_sorted() && lengths.last() == Some(&extent));
        }
    }

    #[test]
    fn familiar_lengths_are_among_the_choices() {
        assert_eq!(lengths(5, [0, 5, 9].into_iter()), [1, 2, 3, 4, 5]);
        assert!(lengths(1460, [183, 1461].into_iter()).contains(&183));
        let familiar = [vec![183, 23, 90]];
        let space = ShapeSpace::new(&[1460, 181, 360], 4, None, (1.0, 1e9), &familiar);
        assert_eq!(space.shape_at(&space.near(&familiar[0])), familiar[0]);
        let small = ShapeSpace::new(&[1460, 181, 360], 4, None, (1.0, 1e6), &familiar);
        assert!(bytes_of(&small.shape_at(&small.near(&familiar[0])), 4) <= 1e6);
    }

    #[test]
    fn divisors_of_large_units_come_in_pairs() {
        assert_eq!(divisors(24, 100), [1, 2, 3, 4, 6, 8, 12, 24]);
        assert_eq!(divisors(24, 5), [1, 2, 3, 4]);
        assert_eq!(divisors(1 << 40, u64::MAX).len(), 26);
    }

    #[test]
    fn shards_are_evened_out_so_that_none_is_nearly_empty() {
        let space = ShapeSpace::new(&[1000], 1, None, (1.0, 1e6), &[]);
        let balanced = ShardGrowth { along: GrowthOrder::Balanced, fills: false };
        // 63 chunks of 16: not 32 and 31, and not 48 and 15.
        assert_eq!(space.shard(&[16], 800.0, 1 << 15, &balanced), [512]);
        assert_eq!(space.shard(&[16], 1e9, 1 << 15, &balanced), [1008]);
    }

    #[test]
    fn shards_that_fill_the_array_have_no_room_beyond_its_end() {
        let space = ShapeSpace::new(&[1000, 90], 1, None, (1.0, 1e6), &[]);
        let growth = ShardGrowth { along: GrowthOrder::Balanced, fills: true };
        for bytes in [1e3, 1e4, 5e4, 1e9] {
            let shard = space.shard(&[16, 10], bytes, 1 << 15, &growth);
            // 63 and 9 chunks.
            assert_eq!((63 % (shard[0] / 16), 9 % (shard[1] / 10)), (0, 0), "{shard:?}");
        }
        assert_eq!(
            [divisor_up_to(63, 32), divisor_up_to(63, 63), divisor_up_to(63, 2)],
            [21, 63, 1]
        );
        assert_eq!(divisor_up_to(23, 22), 1);
    }

    #[test]
    fn shards_along_a_growing_axis_divide_the_unit() {
        let unit = AppendUnit { axis: 0, unit: 24 };
        let balanced = ShardGrowth { along: GrowthOrder::Balanced, fills: false };
        let space = ShapeSpace::new(&[8760, 10], 1, Some(unit), (1.0, 1e6), &[]);
        for chunk in [1, 2, 3, 4, 6, 8, 12, 24] {
            for bytes in [1.0, 100.0, 1e3, 1e9] {
                let shard = space.shard(&[chunk, 5], bytes, 1 << 15, &balanced);
                assert_eq!((24 % shard[0], shard[0] % chunk), (0, 0));
            }
        }
    }
}
