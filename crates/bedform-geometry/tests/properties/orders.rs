//! Tests that orders are permutations, and that curves preserve locality.

use bedform_geometry::{
    Order, delinearize, element_count, hilbert_index, hilbert_point, linearize, strides, z_index,
    z_point,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Grids of any shape of rank 0 to 8, with at most 4096 cells.
fn grid() -> impl Strategy<Value = Vec<u64>> {
    (vec(prop_oneof![1 => Just(0), 10 => 1..=5_u64, 20 => 1..=40_u64], 0..=8)).prop_map(
        |mut shape| {
            while element_count(&shape).is_none_or(|count| count > 4096) {
                let longest = shape.iter_mut().max().unwrap();
                *longest = longest.div_ceil(2);
            }
            shape
        },
    )
}

/// Bits of each axis of a box with at most 2^13 cells; some axes have no bits.
fn small_box() -> impl Strategy<Value = Vec<u32>> {
    vec(0..=6_u32, 1..=8).prop_map(|mut bits| {
        while bits.iter().sum::<u32>() > 13 {
            *bits.iter_mut().max().unwrap() -= 1;
        }
        bits
    })
}

/// Bits of each axis of any box that has keys, and one of its keys.
fn large_box() -> impl Strategy<Value = (Vec<u32>, u128)> {
    let bits = vec(0..=64_u32, 1..=8).prop_map(|mut bits| {
        while bits.iter().sum::<u32>() > 128 {
            *bits.iter_mut().max().unwrap() -= 1;
        }
        bits
    });
    (bits, any::<u128>()).prop_map(|(bits, key)| {
        let total = bits.iter().sum::<u32>();
        (bits, if total == 128 { key } else { key & ((1 << total) - 1) })
    })
}

fn bits_of(shape: &[u64]) -> Vec<u32> {
    shape.iter().map(|size| size.next_power_of_two().trailing_zeros()).collect()
}

fn distance(a: &[u64], b: &[u64]) -> u64 {
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).sum()
}

fn assert_neighbours_follow_each_other(bits: &[u32]) {
    let total = bits.iter().sum::<u32>();
    let mut before = hilbert_point(0, bits).unwrap();
    assert_eq!(before, vec![0; bits.len()], "a curve starts at the origin");
    for key in 1..1_u128 << total {
        let next = hilbert_point(key, bits).unwrap();
        assert_eq!(distance(&before, &next), 1, "keys {} and {key} of {bits:?}", key - 1);
        before = next;
    }
}

/// Interleaves bits by way of text.
fn interleaved(point: &[u64], bits: &[u32]) -> u128 {
    let mut text = String::from("0");
    for level in (0..bits.iter().copied().max().unwrap_or(0)).rev() {
        for (at, &bits) in point.iter().zip(bits) {
            if bits > level {
                text.push(if at >> level & 1 == 1 { '1' } else { '0' });
            }
        }
    }
    u128::from_str_radix(&text, 2).unwrap()
}

#[test]
fn neighbours_on_the_hilbert_curve_are_neighbours_in_cubes_of_every_rank() {
    for (rank, side_bits) in
        [(1, 12), (2, 6), (3, 4), (4, 3), (5, 2), (6, 2), (7, 2), (8, 2), (1, 1), (2, 1), (8, 1)]
    {
        assert_neighbours_follow_each_other(&vec![side_bits; rank]);
    }
}

proptest! {
    #[test]
    fn neighbours_on_the_hilbert_curve_are_neighbours_in_boxes_of_any_sides(bits in small_box()) {
        assert_neighbours_follow_each_other(&bits);
    }

    #[test]
    fn neighbours_on_the_hilbert_curve_are_neighbours_in_the_largest_boxes(
        (bits, key) in large_box()
    ) {
        let last = bits.iter().fold(0_u128, |last, &bits| last << bits | ((1_u128 << bits) - 1));
        let key = key.min(last.saturating_sub(1));
        if key < last {
            let at = |key| hilbert_point(key, &bits).unwrap();
            prop_assert_eq!(distance(&at(key), &at(key + 1)), 1);
        }
    }

    #[test]
    fn a_cell_and_its_key_find_each_other((bits, key) in large_box()) {
        let point = hilbert_point(key, &bits).unwrap();
        prop_assert_eq!(hilbert_index(&point, &bits), Ok(key));
        let point = z_point(key, &bits).unwrap();
        prop_assert_eq!(z_index(&point, &bits), Ok(key));
        prop_assert_eq!(interleaved(&point, &bits), key);
    }

    #[test]
    fn every_order_is_a_permutation_of_any_grid(shape in grid()) {
        let count = element_count(&shape).unwrap();
        for order in Order::ALL {
            let sequence = order.sequence(&shape).unwrap();
            let ranks = order.ranks(&shape).unwrap();
            let mut sorted = sequence.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            for (rank, &cell) in (0_u64..).zip(&sequence) {
                prop_assert_eq!(ranks[usize::try_from(cell).unwrap()], rank);
            }
        }
    }

    #[test]
    fn every_order_sorts_the_cells_by_its_key(shape in grid()) {
        let bits = bits_of(&shape);
        let reversed = |point: &[u64]| point.iter().rev().copied().collect::<Vec<u64>>();
        let reversed_shape = reversed(&shape);
        let key = |order: Order, point: &[u64]| match order {
            Order::RowMajor => u128::from(linearize(point, &shape)),
            Order::ColumnMajor => u128::from(linearize(&reversed(point), &reversed_shape)),
            Order::Z => z_index(point, &bits).unwrap(),
            Order::Hilbert => hilbert_index(point, &bits).unwrap(),
        };
        for order in Order::ALL {
            let mut cells: Vec<u64> = (0..element_count(&shape).unwrap()).collect();
            cells.sort_by_key(|&cell| key(order, &delinearize(cell, &shape)));
            prop_assert_eq!(order.sequence(&shape).unwrap(), cells, "{}", order);
        }
    }

    #[test]
    fn aligned_cubes_follow_each_other_without_a_gap(bits in small_box(), level in 0..4_u32) {
        // All cells of a block with sides of at most 2^level share the leading bits of their keys.
        let shape: Vec<u64> = bits.iter().map(|bits| 1 << bits).collect();
        let block_bits: u32 = bits.iter().map(|&bits| bits.min(level)).sum();
        for order in [Order::Z, Order::Hilbert] {
            for block in order.sequence(&shape).unwrap().chunks(1 << block_bits) {
                let corner = |cell: u64| -> Vec<u64> {
                    delinearize(cell, &shape).iter().map(|at| at >> level).collect()
                };
                prop_assert!(block.iter().all(|&cell| corner(cell) == corner(block[0])));
            }
        }
    }
}

#[test]
fn keys_and_cells_outside_the_box_are_refused() {
    let message = |result: Result<_, bedform_geometry::GeometryError>| {
        result.map(|_: Vec<u64>| ()).unwrap_err().to_string()
    };
    assert_eq!(
        message(hilbert_point(16, &[2, 2])),
        "key 16 lies beyond the end of a curve of 2^4 cells"
    );
    assert!(message(z_point(0, &[65])).contains("too long"));
    assert!(message(z_point(0, &[64, 64, 1])).contains("too long"));
    assert!(message(z_point(0, &[1; 9])).contains("at most 8 axes"));
    assert_eq!(
        hilbert_index(&[0, 4], &[2, 2]).unwrap_err().to_string(),
        "index 4 is out of bounds for axis 1 of size 4"
    );
    assert!(hilbert_index(&[0], &[2, 2]).is_err());
    assert_eq!(z_index(&[u64::MAX, u64::MAX], &[64, 64]), Ok(u128::MAX));
    assert_eq!(hilbert_index(&[], &[]), Ok(0));
}

#[test]
fn a_box_of_cells_lies_in_fewer_runs_along_hilbert_than_in_row_major_order() {
    // The reason for the curve: boxes of 6 x 6 of 32 x 32 cells, at all positions.
    let shape = [32, 32];
    let runs = |order: Order| {
        let ranks = order.ranks(&shape).unwrap();
        let mut total = 0;
        for corner in 0..26 * 26 {
            let corner = delinearize(corner, &[26, 26]);
            let cell = |i: u64| (corner[0] + i / 6) * strides(&shape)[0] + corner[1] + i % 6;
            let mut places: Vec<u64> =
                (0..36).map(|i| ranks[usize::try_from(cell(i)).unwrap()]).collect();
            places.sort_unstable();
            total += 1 + places.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        }
        total
    };
    assert!(runs(Order::Hilbert) < runs(Order::RowMajor));
    assert!(runs(Order::Hilbert) < runs(Order::Z));
}
