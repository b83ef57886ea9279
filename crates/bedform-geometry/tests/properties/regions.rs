//! Tests that regions behave like sets of points.

use std::collections::HashSet;

use bedform_geometry::Region;
use proptest::prelude::*;

use crate::strategies::{points_of, regions};

fn set(region: &Region) -> HashSet<Vec<u64>> {
    points_of(region).into_iter().collect()
}

proptest! {
    #[test]
    fn regions_intersect_as_sets_of_points_do(pair in regions(2..3)) {
        let (a, b) = (&pair[0], &pair[1]);
        let common: HashSet<_> = set(a).intersection(&set(b)).cloned().collect();
        prop_assert_eq!(a.intersection(b).map_or(HashSet::new(), |both| set(&both)), common);
        prop_assert!(a.intersection(b).is_none_or(|both| !both.is_empty()));
        prop_assert_eq!(a.contains_region(b), set(a).is_superset(&set(b)));
        prop_assert_eq!(a.len(), Some(set(a).len() as u64));
        prop_assert!(points_of(b).iter().all(|point| a.contains(point) == set(a).contains(point)));
    }

    #[test]
    fn what_is_left_after_a_subtraction_is_disjoint_and_complete(pair in regions(2..3)) {
        let (a, b) = (&pair[0], &pair[1]);
        let pieces = a.subtract(b);
        let left: Vec<_> = pieces.iter().flat_map(points_of).collect();
        let expected: HashSet<_> = set(a).difference(&set(b)).cloned().collect();
        prop_assert_eq!(left.len(), expected.len());
        prop_assert_eq!(left.into_iter().collect::<HashSet<_>>(), expected);
        prop_assert!(pieces.len() <= 2 * a.rank().max(1));
        prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
    }

    #[test]
    fn a_bounding_box_is_the_smallest_that_holds_both(pair in regions(2..3)) {
        let (a, b) = (&pair[0], &pair[1]);
        let bounding = a.bounding(b).unwrap();
        prop_assert!(bounding.contains_region(a) && bounding.contains_region(b));
        let points: Vec<_> = [points_of(a), points_of(b)].concat();
        for axis in (0..a.rank()).filter(|_| !points.is_empty()) {
            let along = || points.iter().map(|point| point[axis]);
            prop_assert_eq!(along().min(), Some(bounding.start()[axis]));
            prop_assert_eq!(along().max(), Some(bounding.end(axis) - 1));
        }
    }

    #[test]
    fn a_translation_there_and_back_changes_nothing(
        one in regions(1..2),
        by in prop::collection::vec(0..1_000_i64, 3),
    ) {
        let by = &by[..one[0].rank()];
        let there = one[0].translated(by).unwrap();
        let back: Vec<i64> = by.iter().map(|by| -by).collect();
        let origin: Vec<u64> = by.iter().map(|by| by.unsigned_abs()).collect();
        prop_assert_eq!(&there.translated(&back).unwrap(), &one[0]);
        prop_assert_eq!(&there.relative_to(&origin).unwrap(), &one[0]);
    }
}
