//! Tests that a set of regions behaves like a set of points.

use std::collections::HashSet;

use bedform_geometry::{Region, RegionSet};
use proptest::prelude::*;

use crate::strategies::{points_of, regions};

/// Splits regions into the ones to add and a last one for queries.
fn set_and_query(mut regions: Vec<Region>) -> (RegionSet, HashSet<Vec<u64>>, Region) {
    let query = regions.pop().unwrap();
    let mut set = RegionSet::new(query.rank()).unwrap();
    for region in &regions {
        set.insert(region).unwrap();
    }
    (set, regions.iter().flat_map(points_of).collect(), query)
}

proptest! {
    #[test]
    fn the_boxes_of_a_set_are_disjoint_and_hold_what_was_added(regions in regions(1..10)) {
        let (set, model, _) = set_and_query(regions);
        let held: Vec<_> = set.regions().iter().flat_map(points_of).collect();
        prop_assert_eq!(held.len(), model.len(), "a point is in two boxes");
        prop_assert_eq!(set.len(), Some(model.len() as u64));
        prop_assert_eq!(set.is_empty(), model.is_empty());
        prop_assert_eq!(held.into_iter().collect::<HashSet<_>>(), model);
        prop_assert!(set.regions().iter().all(|region| !region.is_empty()));
    }

    #[test]
    fn a_set_knows_what_it_covers_and_what_is_missing(regions in regions(1..10)) {
        let (set, model, query) = set_and_query(regions);
        let asked: HashSet<_> = points_of(&query).into_iter().collect();
        let common = asked.intersection(&model).count();
        prop_assert_eq!(set.overlap(&query), Some(common as u64));
        prop_assert_eq!(set.covers(&query), common == asked.len());
        let missing: Vec<_> = set.missing(&query).iter().flat_map(points_of).collect();
        prop_assert_eq!(missing.len(), asked.len() - common);
        let expected: HashSet<_> = asked.difference(&model).cloned().collect();
        prop_assert_eq!(missing.into_iter().collect::<HashSet<_>>(), expected);
    }

    #[test]
    fn two_sets_overlap_as_sets_of_points_do(regions in regions(2..10)) {
        let (front, back) = regions.split_at(regions.len() / 2);
        let with_query = |part: &[Region]| set_and_query([part, &part[..1]].concat());
        let (a, a_points, _) = with_query(front);
        let (b, b_points, _) = with_query(back);
        let common = a_points.intersection(&b_points).count() as u64;
        prop_assert_eq!((a.overlap_set(&b), b.overlap_set(&a)), (Some(common), Some(common)));
    }
}
