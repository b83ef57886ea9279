//! Tests of cuts, packings, predicted costs and choices of orders against simple models.

use std::collections::HashMap;

use bedform_geometry::{
    BOXES_MAX, BoxExtents, BoxList, BoxOrder, ChoiceOptions, CutBoxes, GeometryError, OrderChoice,
    PackedBoxes, RegionSampler, StepCosts, StripedTargets, TARGETS_MAX, TargetSteps,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{boxes, cells_of_box, extreme_boxes};

const COSTS: StepCosts = StepCosts {
    bulk_bytes: 256,
    byte_seconds: 0.0,
    small_seconds: 1.0,
    medium_seconds: 2.0,
    large_seconds: 4.0,
};

const OPTIONS: ChoiceOptions = ChoiceOptions {
    cell_bytes: 1,
    chunk_cells: None,
    targets: StripedTargets::ONE_DEVICE,
    costs: COSTS,
    seed: 46,
    samples_max: 1000,
};

/// Boxes of 4 x 4 cells on a square, in the order of `place`.
fn square(side: i64, place: impl Fn(i64) -> i64) -> BoxList {
    let mut boxes = BoxList::new(2).unwrap();
    for number in 0..side * side {
        let start = [place(number) / side * 4, place(number) % side * 4];
        boxes.push(&start, &start.map(|start| start + 4)).unwrap();
    }
    boxes
}

/// Boxes along one axis with the given numbers of cells.
fn row(cells: &[i64]) -> BoxList {
    let mut boxes = BoxList::new(1).unwrap();
    for &cells in cells {
        boxes.push(&[0], &[cells]).unwrap();
    }
    boxes
}

/// Numbers of boxes in an order that the words decide.
fn order_by(words: &[u8]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(words.len()).unwrap()).collect();
    order.sort_by_key(|&number| (words[number as usize], number));
    order
}

/// Counts the bytes and steps on each target with a look at every byte.
fn steps_by_byte(
    ranges: &[(u64, u64)],
    wanted: &[u32],
    (targets, stripe): (u64, u64),
    bulk: u64,
) -> Vec<TargetSteps> {
    let end = ranges.iter().map(|range| range.1).max().unwrap_or(0);
    let is_read = |byte: &u64| {
        wanted.iter().any(|&number| {
            let (start, stop) = ranges[number as usize];
            (start..stop).contains(byte)
        })
    };
    let of_target = |target: u64| {
        let own = (0..end).filter(|byte| byte / stripe % targets == target);
        let read = own.enumerate().filter(|(_, byte)| is_read(byte)).map(|(at, _)| at as u64);
        let read: Vec<u64> = read.collect();
        let mut steps = TargetSteps { bytes: read.len() as u64, ..TargetSteps::default() };
        for pair in read.windows(2) {
            match pair[1] - pair[0] - 1 {
                0 => {}
                small if small <= bulk => steps.small += 1,
                medium if medium <= 10 * bulk => steps.medium += 1,
                _ => steps.large += 1,
            }
        }
        steps
    };
    (0..targets).map(of_target).collect()
}

proptest! {
    #[test]
    fn pieces_hold_each_cell_of_their_box_once_and_lie_in_one_cell_of_the_grid(
        boxes in boxes(), size in vec(1..9_u64, 3),
    ) {
        let size = &size[..boxes.rank()];
        // A hundred thousand cells are enough.
        prop_assume!(boxes.iter().map(|cells| cells.cells()).sum::<u64>() < 100_000);
        let cut = CutBoxes::new(&boxes, size).unwrap();
        prop_assert_eq!(cut.boxes.len(), cut.sources.len());
        prop_assert!(cut.sources.is_sorted());
        let mut covered: HashMap<(u32, Vec<i64>), u32> = HashMap::new();
        for (piece, &source) in cut.boxes.iter().zip(&cut.sources) {
            for (axis, &side) in size.iter().enumerate() {
                let side = i64::try_from(side).unwrap();
                let cell = |at: i64| at.div_euclid(side);
                prop_assert_eq!(cell(piece.start[axis]), cell(piece.stop[axis] - 1));
            }
            for cell in cells_of_box(piece.start, piece.stop) {
                *covered.entry((source, cell)).or_default() += 1;
            }
        }
        prop_assert!(covered.values().all(|&count| count == 1));
        let mut count = 0;
        for (source, cells) in (0..).zip(boxes.iter()) {
            for cell in cells_of_box(cells.start, cells.stop) {
                prop_assert!(covered.contains_key(&(source, cell)));
                count += 1;
            }
        }
        prop_assert_eq!(count, covered.len());
    }

    #[test]
    fn packed_boxes_keep_their_order_and_lie_in_one_chunk_each(
        boxes in vec((1..=12_i64, any::<u8>()), 0..30), chunk in 1..30_u64,
    ) {
        let (cells, words): (Vec<i64>, Vec<u8>) = boxes.into_iter().unzip();
        let (list, order) = (row(&cells), order_by(&words));
        let packed = PackedBoxes::new(&list, &order, chunk);
        let most = cells.iter().max().map_or(0, |&most| most.unsigned_abs());
        if most > chunk {
            let is_refused = matches!(packed, Err(GeometryError::BoxLargerThanChunk { .. }));
            prop_assert!(is_refused);
            return Ok(());
        }
        let packed = packed.unwrap();
        let (mut chunks, mut used) = (u64::from(!cells.is_empty()), 0);
        for number in order {
            let cells = cells[number as usize].unsigned_abs();
            if used + cells > chunk {
                (chunks, used) = (chunks + 1, 0);
            }
            prop_assert_eq!(packed.offsets[number as usize], (chunks - 1) * chunk + used);
            used += cells;
        }
        prop_assert_eq!(packed.cells, chunks * chunk);
        let filled: u64 = cells.iter().map(|cells| cells.unsigned_abs()).sum();
        prop_assert_eq!(packed.hole_cells, packed.cells - filled);
        prop_assert!((0.0..1.0).contains(&packed.hole_share()));
    }

    #[test]
    fn steps_are_those_of_a_look_at_every_byte(
        boxes in vec((1..=20_i64, any::<u8>(), any::<bool>()), 0..30),
        targets in 1..5_u32, stripe in 1..40_u64, bulk in 1..9_u64, chunk in 20..50_u64,
    ) {
        let cells: Vec<i64> = boxes.iter().map(|boxes| boxes.0).collect();
        let words: Vec<u8> = boxes.iter().map(|boxes| boxes.1).collect();
        let wanted: Vec<u32> = (0..).zip(&boxes).filter(|(_, boxes)| boxes.2).map(|(n, _)| n).collect();
        let list = row(&cells);
        let packed = PackedBoxes::new(&list, &order_by(&words), chunk).unwrap();
        let extents = BoxExtents::packed(&list, &packed, 2).unwrap();
        let range = |(&cells, &offset): (&i64, &u64)| (2 * offset, 2 * (offset + cells.unsigned_abs()));
        let ranges: Vec<_> = cells.iter().zip(&packed.offsets).map(range).collect();
        let striping = StripedTargets::new(targets, stripe).unwrap();
        let twice: Vec<u32> = wanted.iter().chain(&wanted).rev().copied().collect();
        let expected = steps_by_byte(&ranges, &wanted, (targets.into(), stripe), bulk);
        prop_assert_eq!(extents.steps(&twice, striping, bulk).unwrap(), expected);
        let one = extents.steps(&wanted, StripedTargets::ONE_DEVICE, bulk).unwrap();
        prop_assert_eq!(one, steps_by_byte(&ranges, &wanted, (1, u64::MAX), bulk));
    }

    #[test]
    fn boxes_at_the_ends_of_index_space_are_cut_packed_and_sampled_or_refused(
        boxes in extreme_boxes(), size in 1..u64::MAX, chunk in any::<u64>(),
    ) {
        if let Ok(cut) = CutBoxes::new(&boxes, &vec![size; boxes.rank()]) {
            prop_assert!(cut.boxes.iter().all(|piece| piece.shape().all(|side| side <= size)));
        }
        let order = BoxOrder::Given.permutation(&boxes).unwrap();
        if let Ok(packed) = PackedBoxes::new(&boxes, &order, chunk) {
            prop_assert!(packed.hole_cells <= packed.cells);
        }
        let sampler = RegionSampler::new(&boxes, size, 20).unwrap();
        // Each sample touches the box around which it lies.
        prop_assert!(sampler.samples().all(|touched| !touched.is_empty()));
        let options = ChoiceOptions { samples_max: 3, ..OPTIONS };
        if let Ok(choice) = OrderChoice::new(&boxes, &options) {
            prop_assert_eq!(choice.permutation.len(), boxes.len());
        }
    }

    #[test]
    fn a_choice_is_the_cheapest_of_its_candidates_within_the_margins(boxes in boxes(), seed in 0..9_u64) {
        let options = ChoiceOptions { seed, ..OPTIONS };
        let choice = OrderChoice::new(&boxes, &options).unwrap();
        prop_assert_eq!(&choice, &OrderChoice::new(&boxes, &options).unwrap());
        let seconds = |name| {
            let candidate = choice.candidates.iter().find(|(order, _)| order.name() == name);
            candidate.unwrap().1
        };
        let curve = seconds("z").min(seconds("hilbert"));
        let chosen = seconds(choice.order.name());
        prop_assert!(chosen <= seconds("given"));
        match choice.order {
            BoxOrder::Given => prop_assert!(curve.min(seconds("clusters") / 0.9) >= chosen),
            BoxOrder::Clusters { .. } => prop_assert!(chosen < 0.9 * curve),
            _ => prop_assert!(chosen == curve && seconds("clusters") >= 0.9 * curve),
        }
    }
}

#[test]
fn boxes_that_touch_are_cut_at_the_same_places() {
    let mut boxes = BoxList::new(2).unwrap();
    boxes.push(&[-7, 0], &[9, 3]).unwrap();
    boxes.push(&[-5, 3], &[9, 4]).unwrap();
    let cut = CutBoxes::new(&boxes, &[4, 4]).unwrap();
    let starts = |source: u32| -> Vec<i64> {
        let pieces = cut.boxes.iter().zip(&cut.sources).filter(|(_, from)| **from == source);
        pieces.map(|(piece, _)| piece.start[0]).collect()
    };
    assert_eq!(starts(0), [-7, -4, 0, 4, 8]);
    assert_eq!(starts(1), [-5, -4, 0, 4, 8]);
}

#[test]
fn cuts_into_nothing_or_into_too_many_pieces_are_refused() {
    let boxes = row(&[i64::MAX]);
    assert_eq!(CutBoxes::new(&boxes, &[0]), Err(GeometryError::CutSizeZero { axis: 0 }));
    assert!(matches!(CutBoxes::new(&boxes, &[9]), Err(GeometryError::TooManyBoxes { .. })));
    assert!(matches!(CutBoxes::new(&boxes, &[9, 9]), Err(GeometryError::RankMismatch { .. })));
    assert_eq!(CutBoxes::new(&boxes, &[u64::MAX]).unwrap().boxes, boxes);
    let few = u64::try_from(BOXES_MAX).unwrap() >> 10;
    assert_eq!(CutBoxes::new(&boxes, &[1 << 62]).unwrap().boxes.len(), 2);
    assert_eq!(CutBoxes::new(&row(&[1 << 16]), &[1]).unwrap().boxes.len() as u64, few);
}

#[test]
fn orders_that_repeat_a_box_and_positions_past_64_bits_are_refused() {
    let boxes = row(&[3, 4]);
    for order in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 1]] {
        let refusal = GeometryError::NotAPermutation { boxes: 2 };
        assert_eq!(PackedBoxes::new(&boxes, order, 9), Err(refusal.clone()));
        assert_eq!(BoxExtents::in_order(&boxes, order, 9), Err(refusal));
    }
    let long = row(&[i64::MAX; 3]);
    let too_long = GeometryError::PackingTooLong;
    assert_eq!(PackedBoxes::new(&long, &[0, 1, 2], u64::MAX), Err(too_long.clone()));
    assert_eq!(BoxExtents::in_order(&long, &[0, 1, 2], 1), Err(too_long.clone()));
    assert_eq!(BoxExtents::in_order(&boxes, &[0, 1], u64::MAX), Err(too_long));
    assert_eq!(PackedBoxes::new(&row(&[]), &[], 0).unwrap().cells, 0);
}

#[test]
fn placements_without_targets_and_costs_below_zero_are_refused() {
    for (targets, stripe_bytes) in [(0, 1), (1, 0), (TARGETS_MAX + 1, 1)] {
        assert!(StripedTargets::new(targets, stripe_bytes).is_err());
    }
    let boxes = square(4, |number| number);
    for small_seconds in [-1.0, f64::NAN, f64::INFINITY] {
        let options = ChoiceOptions { costs: StepCosts { small_seconds, ..COSTS }, ..OPTIONS };
        assert_eq!(OrderChoice::new(&boxes, &options), Err(GeometryError::CostsInvalid));
    }
    let extents = BoxExtents::in_order(&row(&[1]), &[0], 1).unwrap();
    let refusal = GeometryError::BoxOutOfBounds { number: 1, boxes: 1 };
    assert_eq!(extents.steps(&[1], StripedTargets::ONE_DEVICE, 1), Err(refusal));
}

#[test]
fn a_shuffled_square_is_reordered_and_one_in_a_curve_stays() {
    let shuffled = square(32, |number| number * 397 % 1024);
    let choice = OrderChoice::new(&shuffled, &OPTIONS).unwrap();
    assert_ne!(choice.order, BoxOrder::Given);
    let mut ordered = BoxList::new(2).unwrap();
    for number in choice.permutation {
        let cells = shuffled.get(number as usize).unwrap();
        ordered.push(cells.start, cells.stop).unwrap();
    }
    let again = OrderChoice::new(&ordered, &OPTIONS).unwrap();
    assert_eq!(again.order, BoxOrder::Given, "{:?}", again.candidates);
}

#[test]
fn samples_depend_on_the_seed_alone_and_are_at_most_as_many_as_boxes() {
    let boxes = square(16, |number| number);
    let sampler = |seed, samples_max| RegionSampler::new(&boxes, seed, samples_max).unwrap();
    assert_eq!(sampler(1, 1000), sampler(1, 1000));
    assert_ne!(sampler(1, 1000), sampler(2, 1000));
    assert_eq!(sampler(1, 1000).samples().len(), 256);
    // At most half of each side: nine of sixteen boxes, cut or not.
    assert!(sampler(1, 1000).samples().all(|touched| touched.len() <= 81));
    assert!(RegionSampler::new(&row(&[]), 0, 9).unwrap().samples().next().is_none());
}

#[test]
fn one_chunk_for_each_box_leaves_holes_that_count_as_steps() {
    let boxes = square(8, |number| number);
    let options = ChoiceOptions { chunk_cells: Some(20), ..OPTIONS };
    let choice = OrderChoice::new(&boxes, &options).unwrap();
    // No two boxes touch on storage, so no order has fewer steps; only their lengths differ.
    let plain = OrderChoice::new(&boxes, &OPTIONS).unwrap();
    for ((order, with_holes), (_, without)) in choice.candidates.iter().zip(&plain.candidates) {
        assert!(with_holes > without, "{order:?}");
    }
}
