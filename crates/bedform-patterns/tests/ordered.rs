//! Ordered accesses: the number of misses before each kind of pattern makes predictions, new and
//! loaded.
#![allow(clippy::unwrap_used)]

use bedform_patterns::{Analyzer, Level, Pattern, PatternKind, Patterns, Place, Walk};
use proptest::prelude::*;

fn at(offset: i64) -> Place {
    Place::new([(offset, offset + 1)])
}

fn walk(start: i64, levels: &[(i64, u64)]) -> Walk {
    let level = |&(by, count): &(i64, u64)| Level { step: at(0).step_to(&at(by)).unwrap(), count };
    Walk { start: at(start), levels: levels.iter().map(level).collect() }
}

fn missed(analyzer: &mut Analyzer, places: &[Place]) -> usize {
    places.iter().filter(|place| analyzer.push((*place).clone()).predicted.is_none()).count()
}

/// Returns an analyzer that knows the saved patterns of another one.
fn loaded(analyzer: &Analyzer) -> Analyzer {
    let saved = serde_json::to_string(&Patterns(analyzer.patterns())).unwrap();
    let Patterns(patterns) = serde_json::from_str(&saved).unwrap();
    assert_eq!(patterns, analyzer.patterns());
    Analyzer::knowing(patterns)
}

/// Returns the misses of a new analyzer, and of one that has loaded the patterns of the first.
fn misses(places: &[Place]) -> (usize, usize) {
    let mut analyzer = Analyzer::default();
    let new = missed(&mut analyzer, places);
    (new, missed(&mut loaded(&analyzer), places))
}

/// Steps that leave the level below, so that a walk has one description only.
fn apart(levels: &[(i64, u64)]) -> Vec<(i64, u64)> {
    let mut span = 1;
    let level = |&(more, count): &(i64, u64)| {
        let by = span + more;
        span = by * i64::try_from(count).unwrap();
        (by, count)
    };
    levels.iter().map(level).collect()
}

#[test]
fn boxes_that_wander_grow_and_shrink_are_served_after_three() {
    let boxes = |bounds: fn(i64) -> (i64, i64)| -> Vec<Place> {
        (0..20).map(|number| Place::new([(0, 90), bounds(number), (3, 4)])).collect()
    };
    for bounds in [
        |number| (10 * number, 10 * number + 5),
        |number| (0, 10 * number + 5),
        |number| (number, 100 - 2 * number),
        |number| (500 - 20 * number, 500),
        |number| (-number, 3 * number),
    ] as [fn(i64) -> (i64, i64); 5]
    {
        assert_eq!(misses(&boxes(bounds)), (3, 1));
    }
}

#[test]
fn contiguous_accesses_of_any_size_are_served_after_three() {
    let sizes = [4, 8, 4, 8, 9, 100, 7, 8, 8, 8, 8, 8, 3, 1, 70];
    let ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some((*end - size, *end))
    });
    let places: Vec<Place> = ends.map(|bounds| Place::new([(2, 3), bounds])).collect();
    assert_eq!(misses(&places), (3, 1));
    let mut analyzer = Analyzer::default();
    missed(&mut analyzer, &places[..6]);
    assert_eq!(analyzer.push(places[6].clone()).predicted, Some(PatternKind::Contiguous));
    let ahead: Vec<Place> = analyzer.ahead().take(2).collect();
    assert_eq!(ahead, [(140, 148), (148, 156)].map(|bounds| Place::new([(2, 3), bounds])));
}

#[test]
fn hours_of_days_are_served_after_two_days_and_at_once_when_loaded() {
    let hours = |days: i64| -> Vec<Place> {
        (0..days).flat_map(|day| [5, 6, 14, 15].map(|hour| at(24 * day + hour))).collect()
    };
    assert_eq!(misses(&hours(30)), (9, 1));
}

#[test]
fn any_order_of_steps_is_served_after_two_of_it_and_loaded_at_once() {
    let mut state = 1_u64;
    for round in 0..2000 {
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % 999).cast_signed() + 1
        };
        let steps: Vec<i64> = (0..round % 18 + 2).map(|_| random()).collect();
        let all = steps.iter().cycle().take(5 * steps.len());
        let offsets = all.scan(round, |at, step| {
            *at += step;
            Some(*at)
        });
        let places: Vec<Place> = std::iter::once(round).chain(offsets).map(at).collect();
        let (new, loaded) = misses(&places);
        // Equal steps may form rows, which are predicted earlier.
        let are_different = (1..steps.len()).all(|at| !steps[..at].contains(&steps[at]));
        let most = 2 * steps.len() + 1;
        assert!(new == most || new < most && !are_different, "{steps:?}: {new}");
        assert_eq!(loaded, 1, "{steps:?}");
    }
}

#[test]
fn hours_of_which_some_follow_each_other_are_served_all_the_same() {
    let hours: Vec<Place> =
        (0..30).flat_map(|day| [5, 6, 7, 8, 14, 15].map(|hour| at(24 * day + hour))).collect();
    let (new, loaded) = misses(&hours);
    assert!(new <= 2 * 6 + 1 && loaded == 1, "{new}, {loaded}");
}

#[test]
fn rows_at_hours_are_served_at_once_when_loaded() {
    let rows = (0..20).flat_map(|day| [5, 6, 14, 15].map(|hour| 24 * day + hour));
    let places: Vec<Place> =
        rows.flat_map(|hour| (0..4).map(move |slice| at(1000 * hour + 10 * slice))).collect();
    let (new, loaded) = misses(&places);
    assert!(new <= 3 + 2 * 4 && loaded == 1, "{new}, {loaded}");
}

#[test]
fn what_follows_a_place_often_is_known_when_loaded() {
    let mut analyzer = Analyzer::default();
    missed(&mut analyzer, &[10, 20, 91, 30, 10, 20, 55, 77, 10, 20, 8, 3].map(at));
    let mut loaded = loaded(&analyzer);
    assert_eq!(loaded.push(at(10)).predicted, None);
    assert_eq!(loaded.ahead().collect::<Vec<_>>(), [at(20)]);
    assert_eq!(loaded.push(at(20)).predicted, Some(PatternKind::Correlated));
}

#[test]
fn a_loaded_pattern_that_does_not_come_costs_no_more_than_the_first_miss() {
    let mut analyzer = Analyzer::default();
    missed(&mut analyzer, &(0..30).map(|number| at(7 * number)).collect::<Vec<_>>());
    let other: Vec<Place> = (0..30).map(|number| at(9 * number)).collect();
    assert_eq!(missed(&mut loaded(&analyzer), &other), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_walk_misses_three_and_two_more_for_each_level(
        start in -1000_i64..1000,
        levels in prop::collection::vec((1_i64..4, 3_u64..6), 1..5),
    ) {
        let places: Vec<Place> = walk(start, &apart(&levels)).places().collect();
        prop_assert_eq!(misses(&places), (3 + 2 * (levels.len() - 1), 1));
    }

    #[test]
    fn what_was_predicted_was_ahead(
        parts in prop::collection::vec((0_i64..60, 1_i64..5, 1_i64..12, 0_usize..3), 1..30),
    ) {
        let mut analyzer = Analyzer::default();
        let places = parts.iter().flat_map(|&(start, step, count, axis)| (0..count).map(move |number| {
            let mut bounds = [(start, start + 2), (0, 1)];
            let by = step * number;
            match axis {
                0 => bounds[0] = (start + by, start + by + 2),
                1 => bounds[1] = (by, by + 1),
                _ => bounds[0] = (start * by % 50, start * by % 50 + step),
            }
            Place::new(bounds)
        }));
        for place in places {
            let ahead: Vec<Place> = analyzer.ahead().take(3000).collect();
            match analyzer.push(place.clone()).predicted {
                Some(PatternKind::Strided | PatternKind::Composed | PatternKind::ComposedRows) => {
                    prop_assert_eq!(ahead.first(), Some(&place));
                }
                Some(PatternKind::Contiguous) => {
                    let begins = |next: &Place| next.bounds().zip(place.bounds()).all(|(next, own)| next.0 == own.0);
                    prop_assert!(ahead.first().is_some_and(begins));
                }
                Some(_) => prop_assert!(ahead.contains(&place)),
                None => prop_assert!(ahead.first() != Some(&place)),
            }
        }
    }
}

#[test]
fn patterns_of_other_kinds_and_broken_ones_are_left_out() {
    let good = Pattern::Walk(walk(3, &[(2, 5)]));
    let good = serde_json::to_string(&good).unwrap();
    let step = "[1,1]";
    let saved = [
        r#"{"kind":"of-later","what":[1,2,{"x":null}]}"#.to_owned(),
        good.clone(),
        "7".to_owned(),
        r#"{"kind":"walk","start":[1],"levels":[]}"#.to_owned(),
        r#"{"kind":"walk","start":[0,1],"levels":[{"step":[1,1],"count":1}]}"#.to_owned(),
        r#"{"kind":"walk","start":[0,1],"levels":[{"step":[1,1,1,1],"count":4}]}"#.to_owned(),
        format!(
            r#"{{"kind":"walk","start":[0,1],"levels":[{}]}}"#,
            [r#"{"step":[1,1],"count":9}"#; 9].join(",")
        ),
        format!(r#"{{"kind":"sequence","start":[0,1],"steps":[{}]}}"#, vec![step; 513].join(",")),
        r#"{"kind":"sequence","start":[0,1],"steps":[]}"#.to_owned(),
        r#"{"kind":"contiguous","start":[0,1],"axis":1,"size":1,"accesses":3}"#.to_owned(),
        format!(
            r#"{{"kind":"correlated","entry":[0,1],"followers":[{}]}}"#,
            vec![step; 17].join(",")
        ),
        format!(r#"{{"kind":"correlated","entry":[{}],"followers":[]}}"#, vec!["0"; 66].join(",")),
    ];
    let Patterns(patterns) = serde_json::from_str(&format!("[{}]", saved.join(","))).unwrap();
    assert_eq!(serde_json::to_string(&patterns).unwrap(), format!("[{good}]"));
    let many = format!("[{}]", vec![good; 5000].join(","));
    assert_eq!(
        serde_json::from_str::<Patterns>(&many).unwrap().0.len(),
        bedform_patterns::PATTERNS_MAX
    );
}
