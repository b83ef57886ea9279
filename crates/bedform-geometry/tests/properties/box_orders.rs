//! Tests of orders and indexes of boxes against models that look at every cell.

use std::collections::HashMap;

use bedform_geometry::{
    BoxIndex, BoxList, BoxOrder, GeometryError, hilbert_index, overlapping_pair, z_index,
};
use proptest::prelude::*;

use crate::strategies::{boxes, cells_of_box, extreme_boxes};

/// The orders, with clusters of two sizes.
const ORDERS: [BoxOrder; 5] = [
    BoxOrder::Given,
    BoxOrder::Z,
    BoxOrder::Hilbert,
    BoxOrder::Clusters { bulk_cells: 50 },
    BoxOrder::Clusters { bulk_cells: u64::MAX },
];

fn list<const RANK: usize>(boxes: &[([i64; RANK], [i64; RANK])]) -> BoxList {
    let mut found = BoxList::new(RANK).unwrap();
    for (start, stop) in boxes {
        found.push(start, stop).unwrap();
    }
    found
}

fn assert_each_box_once(order: &[u32], boxes: &BoxList) {
    let mut numbers = order.to_vec();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..u32::try_from(boxes.len()).unwrap()), "{order:?}");
}

/// The virtual grid of the dissertation, with a look at every cell.
struct Model {
    rank: usize,
    origin: Vec<i64>,
    unit: Vec<i64>,
    last: Vec<i64>,
}

impl Model {
    fn new(boxes: &BoxList) -> Self {
        let rank = boxes.rank();
        let least = |axis: usize| boxes.iter().map(|cells| cells.start[axis]).min().unwrap();
        let most = |axis: usize| boxes.iter().map(|cells| cells.stop[axis]).max().unwrap();
        let mean = |axis: usize| {
            let sum: i64 = boxes.iter().map(|cells| cells.stop[axis] - cells.start[axis]).sum();
            let count = i64::try_from(boxes.len()).unwrap();
            (sum + count / 2) / count
        };
        let origin: Vec<i64> = (0..rank).map(least).collect();
        let unit: Vec<i64> = (0..rank).map(mean).collect();
        let last = (0..rank).map(|axis| (most(axis) - 1 - origin[axis]) / unit[axis]).collect();
        Self { rank, origin, unit, last }
    }

    /// The units that tie for the most cells of a box, in C order.
    fn tied(&self, start: &[i64], stop: &[i64]) -> Vec<Vec<i64>> {
        let mut counts: HashMap<Vec<i64>, usize> = HashMap::new();
        for cell in cells_of_box(start, stop) {
            let unit =
                (0..self.rank).map(|axis| (cell[axis] - self.origin[axis]) / self.unit[axis]);
            *counts.entry(unit.collect()).or_default() += 1;
        }
        let most = *counts.values().max().unwrap();
        let mut tied: Vec<_> =
            counts.into_iter().filter(|(_, count)| *count == most).map(|(unit, _)| unit).collect();
        tied.sort();
        tied
    }

    /// The unit of each box; `None` if more units tie than are compared.
    fn units(&self, boxes: &BoxList) -> Option<Vec<Vec<i64>>> {
        let tied: Vec<_> = boxes.iter().map(|cells| self.tied(cells.start, cells.stop)).collect();
        let middle: Vec<Vec<i64>> = tied
            .iter()
            .map(|tied| {
                let (first, last) = (&tied[0], &tied[tied.len() - 1]);
                first.iter().zip(last).map(|(a, b)| a + (b - a) / 2).collect()
            })
            .collect();
        let best = |number: usize| {
            let near = |unit: &[i64]| {
                let apart = |other: &[i64]| -> i64 {
                    unit.iter().zip(other).map(|(a, b)| (a - b).abs()).sum()
                };
                let others = (0..middle.len()).filter(|&other| other != number);
                others.filter(|&other| apart(&middle[other]) <= 1).count()
            };
            let most = tied[number].iter().map(|unit| near(unit)).max().unwrap();
            tied[number].iter().find(|unit| near(unit) == most).unwrap().clone()
        };
        let is_compared = tied.iter().all(|tied| tied.len() <= 64);
        is_compared.then(|| (0..boxes.len()).map(best).collect())
    }

    fn key(&self, order: BoxOrder, unit: &[i64]) -> u128 {
        let bits: Vec<u32> = self.last.iter().map(|last| 64 - last.leading_zeros()).collect();
        let unit: Vec<u64> = unit.iter().map(|&at| u64::try_from(at).unwrap()).collect();
        match order {
            BoxOrder::Z => z_index(&unit, &bits).unwrap(),
            _ => hilbert_index(&unit, &bits).unwrap(),
        }
    }
}

proptest! {
    #[test]
    fn every_order_lists_each_box_once_and_again_the_same(boxes in boxes()) {
        for order in ORDERS {
            let permutation = order.permutation(&boxes).unwrap();
            assert_each_box_once(&permutation, &boxes);
            prop_assert_eq!(order.permutation(&boxes).unwrap(), permutation);
        }
    }

    #[test]
    fn boxes_at_the_ends_of_index_space_are_ordered_and_found(boxes in extreme_boxes()) {
        for order in ORDERS {
            match order.permutation(&boxes) {
                Ok(permutation) => assert_each_box_once(&permutation, &boxes),
                Err(error) => {
                    let is_refusal = matches!(error, GeometryError::CurveRankTooLarge { rank: 9 });
                    prop_assert!(is_refusal, "{error}");
                }
            }
        }
        let index = BoxIndex::new(&boxes).unwrap();
        for (number, cells) in (0..).zip(boxes.iter()) {
            prop_assert!(index.touching(cells.start, cells.stop).unwrap().contains(&number));
        }
        overlapping_pair(&boxes).unwrap();
    }

    #[test]
    fn curves_follow_the_units_that_boxes_overlap_most(boxes in boxes()) {
        prop_assume!(!boxes.is_empty());
        let model = Model::new(&boxes);
        let Some(units) = model.units(&boxes) else { return Ok(()) };
        for order in [BoxOrder::Z, BoxOrder::Hilbert] {
            let mut expected: Vec<u32> = (0..u32::try_from(boxes.len()).unwrap()).collect();
            expected.sort_by_key(|&number| {
                let cells = boxes.get(number as usize).unwrap();
                (model.key(order, &units[number as usize]), cells.start, cells.stop, number)
            });
            prop_assert_eq!(order.permutation(&boxes).unwrap(), expected);
        }
    }

    #[test]
    fn an_index_finds_the_boxes_that_a_look_at_each_finds(boxes in boxes(), query in boxes()) {
        let index = BoxIndex::new(&boxes).unwrap();
        prop_assert_eq!(index.len(), boxes.len());
        for region in query.iter().filter(|_| query.rank() == boxes.rank()) {
            let touched = (0..).zip(boxes.iter()).filter(|(_, cells)| cells.overlaps(region));
            let expected: Vec<u32> = touched.map(|(number, _)| number).collect();
            prop_assert_eq!(index.touching(region.start, region.stop).unwrap(), expected);
        }
    }

    #[test]
    fn a_pair_overlaps_if_a_look_at_all_pairs_finds_one(boxes in boxes(), kept in 0..9_usize) {
        // Few boxes often lie apart.
        let mut few = BoxList::new(boxes.rank()).unwrap();
        for cells in boxes.iter().take(kept) {
            few.push(cells.start, cells.stop).unwrap();
        }
        for boxes in [boxes, few] {
            let all: Vec<_> = boxes.iter().collect();
            let pairs = (0..all.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            let is_overlapping = pairs.into_iter().any(|(a, b)| all[a].overlaps(all[b]));
            let found = overlapping_pair(&boxes).unwrap();
            prop_assert_eq!(found.is_some(), is_overlapping);
            prop_assert!(found.is_none_or(|(a, b)| a < b && all[a].overlaps(all[b])));
        }
    }
}

#[test]
fn no_boxes_and_one_box_have_an_order_and_an_index() {
    for order in ORDERS {
        assert_eq!(order.permutation(&BoxList::new(3).unwrap()), Ok(vec![]));
        assert_eq!(order.permutation(&list(&[([-5; 3], [7; 3])])), Ok(vec![0]));
    }
    let empty = BoxIndex::new(&BoxList::new(3).unwrap()).unwrap();
    assert!(empty.is_empty() && empty.touching(&[i64::MIN; 3], &[i64::MAX; 3]).unwrap().is_empty());
    assert!(empty.touching(&[0; 2], &[1; 2]).is_err());
}

#[test]
fn a_region_without_cells_touches_no_box() {
    let index = BoxIndex::new(&list(&[([0, 0], [9, 9])])).unwrap();
    assert_eq!(index.touching(&[3, 3], &[3, 9]), Ok(vec![]));
    assert_eq!(index.touching(&[3, 5], &[9, 4]), Ok(vec![]));
    assert_eq!(index.touching(&[8, 8], &[9, 9]), Ok(vec![0]));
}

#[test]
fn many_boxes_of_one_unit_follow_each_other_by_their_starts() {
    let mut boxes = BoxList::new(2).unwrap();
    boxes.push(&[0, 0], &[4000, 4000]).unwrap();
    for place in (0..16).rev() {
        boxes.push(&[place / 4, place % 4], &[place / 4 + 1, place % 4 + 1]).unwrap();
    }
    // The large box has many units in which it is alone, and none with more boxes.
    let order = BoxOrder::Hilbert.permutation(&boxes).unwrap();
    assert_eq!(order[..16], (1..17).rev().collect::<Vec<u32>>());
}

#[test]
fn a_long_box_among_small_ones_takes_few_comparisons() {
    let mut boxes = BoxList::new(3).unwrap();
    boxes.push(&[i64::MIN / 2, 0, 0], &[i64::MAX / 2, 1, 1]).unwrap();
    boxes.push(&[0, i64::MIN / 2, 1], &[1, i64::MAX / 2, 2]).unwrap();
    for at in 2..50 {
        boxes.push(&[at; 3], &[at + 1; 3]).unwrap();
    }
    for order in ORDERS {
        assert_each_box_once(&order.permutation(&boxes).unwrap(), &boxes);
    }
}

#[test]
fn equal_boxes_are_ordered_by_number_and_end_the_search_for_a_pair_at_once() {
    let boxes = list(&[([0, 0], [4, 4]); 20_000]);
    for order in [BoxOrder::Z, BoxOrder::Hilbert] {
        assert!(order.permutation(&boxes).unwrap().into_iter().eq(0..20_000));
    }
    let clusters = BoxOrder::Clusters { bulk_cells: 64 }.permutation(&boxes).unwrap();
    assert_each_box_once(&clusters, &boxes);
    assert!(overlapping_pair(&boxes).unwrap().is_some());
}

#[test]
fn separate_groups_of_boxes_stay_together_in_clusters() {
    // Two groups, listed by turns, far apart: the order changes between them once.
    let mut boxes = BoxList::new(2).unwrap();
    for place in 0..64 {
        for group in [0, 1000] {
            let start = [group + place / 8 * 4, place % 8 * 4];
            boxes.push(&start, &start.map(|start| start + 4)).unwrap();
        }
    }
    let order = BoxOrder::Clusters { bulk_cells: 256 }.permutation(&boxes).unwrap();
    let changes = order.windows(2).filter(|pair| pair[0] % 2 != pair[1] % 2).count();
    assert_eq!(changes, 1);
}
