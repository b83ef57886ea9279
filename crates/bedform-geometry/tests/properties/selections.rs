//! Tests the number of elements of selections, their bounds checks, and their overlaps.

use std::collections::HashSet;

use bedform_geometry::{AxisRange, AxisSelection, GeometryError, Points, Region, Selection};
use proptest::prelude::*;

use crate::strategies::{axis_selection, points_selected, region_in, selection_in, shape};

/// The distinct elements of a selection.
fn distinct(selection: &Selection) -> HashSet<Vec<u64>> {
    points_selected(selection).into_iter().collect()
}

/// A selection drawn for one shape, and another shape that may or may not contain it.
fn selection_and_shape() -> impl Strategy<Value = (Selection, Vec<u64>)> {
    shape().prop_flat_map(|drawn| {
        let other: Vec<_> = drawn.iter().map(|&size| 0..=size + 1).collect();
        (selection_in(&drawn), other)
    })
}

proptest! {
    #[test]
    fn a_selection_is_valid_where_each_axis_holds_its_positions(
        (selection, shape) in selection_and_shape()
    ) {
        // Checks each axis separately: an axis without positions does not excuse the others.
        let inside = match &selection {
            Selection::Orthogonal(axes) => axes.iter().zip(&shape).all(|(axis, &size)| {
                let alone = Selection::Orthogonal(vec![axis.clone()]);
                points_selected(&alone).iter().all(|point| point[0] < size)
            }),
            other => points_selected(other)
                .iter()
                .all(|point| point.iter().zip(&shape).all(|(at, size)| at < size)),
        };
        prop_assert_eq!(selection.validate(&shape).is_ok(), inside);
    }

    #[test]
    fn the_result_has_as_many_elements_as_are_selected(
        (selection, _) in selection_and_shape()
    ) {
        let count = points_selected(&selection).len() as u64;
        prop_assert_eq!(selection.len(), Some(count));
        prop_assert_eq!(selection.result_shape().iter().product::<u64>(), count);
        prop_assert_eq!(selection.is_empty(), count == 0);
    }

    #[test]
    fn a_region_and_its_selection_are_the_same_points(
        region in shape().prop_flat_map(|shape| region_in(&shape))
    ) {
        let union = Selection::Union(vec![region.clone()]);
        prop_assert_eq!(points_selected(&Selection::from(&region)), points_selected(&union));
    }

    #[test]
    fn two_selections_share_the_elements_that_both_hold(
        (a, b) in shape().prop_flat_map(|shape| (selection_in(&shape), selection_in(&shape)))
    ) {
        let common = distinct(&a).intersection(&distinct(&b)).count() as u64;
        prop_assert_eq!((a.overlap(&b), b.overlap(&a)), (Some(common), Some(common)));
        prop_assert_eq!(a.overlap(&a), Some(distinct(&a).len() as u64));
    }

    #[test]
    fn two_selections_along_an_axis_share_the_positions_that_both_hold(
        a in axis_selection(200), b in axis_selection(200), far in 0..u64::MAX - 400
    ) {
        // Near the origin, and elsewhere.
        let along = |one: &AxisSelection| distinct(&Selection::Orthogonal(vec![one.clone()]));
        let common = along(&a).intersection(&along(&b)).count() as u64;
        prop_assert_eq!((a.overlap(&b), b.overlap(&a)), (common, common));
        let moved = |one: &AxisSelection| match one {
            AxisSelection::Range(range) => {
                let start = range.start() + far;
                AxisSelection::Range(AxisRange::new(start, range.step(), range.len()).unwrap())
            }
            AxisSelection::Coords(coords) => {
                AxisSelection::Coords(coords.iter().map(|at| at + far).collect())
            }
        };
        prop_assert_eq!(moved(&a).overlap(&moved(&b)), common);
    }

    #[test]
    fn a_range_is_taken_where_all_its_positions_fit(
        start in prop_oneof![0..20_u64, u64::MAX - 20..=u64::MAX],
        step in prop_oneof![-9..9_i64, any::<i64>()],
        len in prop_oneof![0..9_u64, any::<u64>()],
    ) {
        let range = AxisRange::new(start, step, len);
        let fits = |at: Option<i128>| at.is_some_and(|at| (0..i128::from(u64::MAX)).contains(&at));
        let last = || i128::from(step).checked_mul(i128::from(len) - 1)?.checked_add(start.into());
        let expected = step != 0 && (len == 0 || fits(Some(start.into())) && fits(last()));
        prop_assert_eq!(range.is_ok(), expected);
        if let Ok(range) = range {
            prop_assert_eq!(range.iter().take(9).count() as u64, len.min(9));
            for (i, at) in (0_i128..).zip(range.iter().take(9)) {
                prop_assert_eq!(i128::from(at), i128::from(start) + i * i128::from(step));
            }
        }
    }
}

#[test]
fn selections_of_another_rank_are_refused() {
    let wrong = [
        Selection::all(&[1, 1]),
        Selection::Points(Points::of_rank_zero(1)),
        Selection::Union(vec![Region::whole([1]).unwrap(), Region::whole([1, 1]).unwrap()]),
    ];
    for selection in wrong {
        let refused = selection.validate(&[1]);
        assert!(matches!(refused, Err(GeometryError::RankMismatch { expected: 1, .. })));
    }
    let too_many = Selection::all(&[1; 33]).validate(&[1; 33]);
    assert_eq!(too_many, Err(GeometryError::RankTooLarge { rank: 33 }));
}

#[test]
fn an_index_out_of_bounds_is_named_with_its_axis_and_size() {
    let union = Selection::Union(vec![Region::new([0, 8], [1, 5]).unwrap()]);
    let points = Selection::Points(Points::new(vec![vec![0, 0], vec![12, 3]]).unwrap());
    for selection in [union, points] {
        assert_eq!(
            selection.validate(&[1, 10]).unwrap_err().to_string(),
            "index 12 is out of bounds for axis 1 of size 10"
        );
    }
    let region = Selection::from(Region::new([0, 8], [1, 5]).unwrap());
    assert_eq!(
        region.validate(&[1, 10]).unwrap_err().to_string(),
        "start 8 + count 5 passes the end of axis 1 (size 10)"
    );
}

#[test]
fn results_that_cannot_be_counted_have_no_length() {
    let side = AxisSelection::Range(AxisRange::whole(1 << 40));
    let selection = Selection::Orthogonal(vec![side.clone(), side]);
    assert_eq!(selection.len(), None);
    let region = Region::whole([1_u64 << 63]).unwrap();
    let union = Selection::Union(vec![region.clone(), region]);
    assert_eq!((union.len(), union.result_shape()), (None, vec![u64::MAX]));
}

#[test]
fn coordinate_lists_of_points_have_one_length() {
    let error = Points::new(vec![vec![1, 2], vec![1]]).unwrap_err();
    assert_eq!(error.to_string(), "axis 1 has 1 point coordinates where axis 0 has 2");
    assert_eq!(Points::new(vec![]).unwrap().count(), 0);
}

#[test]
fn ranges_of_the_largest_steps_share_positions_without_overflow() {
    let range = |start, step, len| AxisSelection::Range(AxisRange::new(start, step, len).unwrap());
    let down = range(1 << 63, i64::MIN, 2); // 2^63 and 0
    assert_eq!(down.overlap(&range(0, i64::MAX, 3)), 1);
    assert_eq!(down.overlap(&range(1, i64::MAX, 2)), 1);
    assert_eq!(down.overlap(&down), 2);
    assert_eq!(range(0, 1, u64::MAX).overlap(&range(3, i64::MAX, 2)), 2);
    assert_eq!(range(0, 1, u64::MAX).overlap(&range(0, 1, u64::MAX)), u64::MAX);
    assert_eq!(Selection::all(&[1 << 40; 2]).overlap(&Selection::all(&[1 << 40; 2])), None);
}

#[test]
fn selections_of_different_rank_share_nothing() {
    let (one, two) = (Selection::all(&[3]), Selection::all(&[3, 3]));
    assert_eq!(one.overlap(&two), Some(0));
    assert_eq!(one.overlap(&Selection::Union(vec![])), Some(0));
}
