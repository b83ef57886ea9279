//! Tests that no sequence of accesses fails or exceeds the memory bounds.
#![allow(clippy::unwrap_used)]

use bedform_patterns::{
    Analyzer, ContiguousAccesses, FollowedPlace, Global, Level, Pattern, Patterns, Place, Rows,
    Sequence, Settings, Walk, merge,
};
use proptest::prelude::*;

/// More memory than regular accesses may take; a few times as much is the bound for any accesses.
const MIB: usize = 1 << 20;

fn tile(at: &[i64]) -> Place {
    Place::new(at.iter().map(|first| (*first, first + 10)))
}

fn random() -> impl FnMut(u64) -> i64 {
    let mut state = 7_u64;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 20) % below).cast_signed()
    }
}

fn heap_bytes_after(places: impl Iterator<Item = Place>) -> usize {
    let mut analyzer = Analyzer::default();
    for place in places {
        analyzer.push(place);
    }
    analyzer.heap_bytes()
}

#[test]
fn a_million_regular_accesses_take_less_than_a_mebibyte() {
    let count = 1_000_000;
    let digits =
        |number: i64| [number / 10_000, number / 100 % 100, number % 100].map(|at| 10 * at);
    assert!(heap_bytes_after((0..count).map(|number| tile(&digits(number)))) < MIB);
    assert!(heap_bytes_after((0..count).map(|number| tile(&[30 * number, 5, 5, 7]))) < MIB);
    let hours = (0..count / 4)
        .flat_map(|day| [5, 6, 14, 15].map(|hour| tile(&[10 * (24 * day + hour), 0])));
    assert!(heap_bytes_after(hours) < MIB);
    let mut random = random();
    let mut order: Vec<(i64, i64)> =
        (0..count / 5).map(|number| (number + random(32), number)).collect();
    order.sort_unstable();
    assert!(heap_bytes_after(order.into_iter().map(|(_, number)| tile(&digits(number)))) < MIB);
}

#[test]
fn hostile_accesses_take_bounded_memory() {
    let mut random = random();
    let far = |random: &mut dyn FnMut(u64) -> i64| random(u64::MAX >> 2);
    let anywhere = (0..200_000).map(|_| tile(&[far(&mut random), far(&mut random)]));
    assert!(heap_bytes_after(anywhere) < 2 * MIB);
    // Repeats every place, so that all are counted with all their followers.
    let again = (0..200_000).map(|_| tile(&[10 * random(3000)]));
    assert!(heap_bytes_after(again) < 4 * MIB);
    // Places of 32 axes, whose bounds are not stored inline.
    let wide = (0..50_000).map(|_| tile(&[random(3000); 32]));
    assert!(heap_bytes_after(wide) < 8 * MIB);
    // Sequences that almost repeat.
    let nearly = (0..200_000).scan(0, |at, number| {
        *at += if number % 511 == random(511) { 3 } else { i64::from(number % 511 == 0) + 1 };
        Some(tile(&[*at]))
    });
    assert!(heap_bytes_after(nearly) < 2 * MIB);
}

#[test]
fn known_patterns_that_nobody_checked_end_where_they_are_none() {
    let step = |rank: usize| tile(&vec![0; rank]).step_to(&tile(&vec![1; rank])).unwrap();
    for (rank, count) in [(1, 0), (1, 1), (2, 5), (2, u64::MAX)] {
        let row = Walk { start: tile(&[0]), levels: vec![Level { step: step(rank), count }] };
        let mut analyzer = Analyzer::knowing([
            Pattern::Walk(row.clone()),
            Pattern::Rows(Rows { row, steps: vec![step(1)] }),
            Pattern::Sequence(Sequence { start: tile(&[0]), steps: vec![step(rank); 600] }),
            Pattern::Contiguous(ContiguousAccesses {
                start: tile(&[0]),
                axis: 7,
                size: i64::MAX,
                accesses: 0,
            }),
            Pattern::Correlated(FollowedPlace {
                entry: tile(&[0]),
                followers: vec![tile(&[0; 9]); 99],
            }),
        ]);
        for at in [0, 1, 2, 0, 5] {
            analyzer.push(tile(&[at]));
            assert!(analyzer.ahead().take(100).count() <= 100);
        }
        assert!(analyzer.patterns().len() < 20);
    }
}

/// Bounds at the limits of 64-bit integers, and a few small ones.
fn bound() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0_i64..6, 1 => any::<i64>(), 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn place() -> impl Strategy<Value = Place> {
    let rank = prop_oneof![6 => 1_usize..3, 1 => 0_usize..33];
    rank.prop_flat_map(|rank| prop::collection::vec((bound(), bound()), rank)).prop_map(Place::new)
}

fn walks() -> impl Strategy<Value = Vec<Walk>> {
    prop::collection::vec(prop::collection::vec(place(), 2..20), 1..5).prop_map(|all| {
        let analyzer = |places: Vec<Place>| {
            let mut analyzer = Analyzer::default();
            for place in places {
                analyzer.push(place);
            }
            analyzer.walks().last().unwrap_or_default()
        };
        all.into_iter().map(analyzer).collect()
    })
}

/// Text in the form of saved patterns, with arbitrary numbers.
fn saved() -> impl Strategy<Value = String> {
    let numbers = |count| {
        prop::collection::vec(bound(), count).prop_map(|numbers| {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            format!("[{}]", numbers.join(","))
        })
    };
    let kind =
        prop::sample::select(vec!["walk", "sequence", "rows", "correlated", "contiguous", "other"]);
    let all =
        (kind, numbers(0..5), prop::collection::vec(numbers(0..5), 0..4), any::<u64>(), bound());
    all.prop_map(|(kind, start, steps, count, size)| {
        let levels: Vec<String> =
            steps.iter().map(|step| format!(r#"{{"step":{step},"count":{count}}}"#)).collect();
        let (levels, steps) = (levels.join(","), steps.join(","));
        format!(
            r#"{{"kind":"{kind}","start":{start},"entry":{start},"levels":[{levels}],"steps":[{steps}],
            "row":{{"start":{start},"levels":[{levels}]}},"followers":[{steps}],"axis":{},"size":{size},
            "accesses":{count}}}"#,
            count % 3,
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_that_comes_makes_it_fail(places in prop::collection::vec(place(), 0..200), batch in 0_u32..5) {
        let mut analyzer = Analyzer::with(Settings { batch, often: batch, next: 9 * batch as usize });
        for place in places {
            analyzer.push(place);
            prop_assert!(analyzer.ahead().take(50).count() <= 50);
        }
        prop_assert!(analyzer.patterns().len() < 200);
        Analyzer::knowing(analyzer.patterns());
    }

    #[test]
    fn no_saved_text_makes_it_fail(
        saved in prop::collection::vec(saved(), 0..6),
        places in prop::collection::vec(place(), 0..40),
    ) {
        let Patterns(patterns) = serde_json::from_str(&format!("[{}]", saved.join(","))).unwrap();
        let mut analyzer = Analyzer::knowing(patterns.clone());
        let known: Vec<Place> = analyzer.walks().map(|walk| walk.start).collect();
        for place in known.into_iter().chain(places) {
            analyzer.push(place);
            prop_assert!(analyzer.ahead().take(50).count() <= 50);
        }
        let again = serde_json::to_string(&Patterns(patterns.clone())).unwrap();
        prop_assert_eq!(serde_json::from_str::<Patterns>(&again).unwrap().0, patterns);
    }

    #[test]
    fn any_walks_are_merged_and_split_without_fault(walks in walks(), processes in 0_usize..40) {
        if let Some(global) = merge(&walks) {
            prop_assert!(global.split(processes).len() <= processes);
            let all: u64 = walks.iter().map(Walk::count).sum();
            prop_assert_eq!(global.walk().count(), all);
            let split = global.split(processes.max(1));
            prop_assert_eq!(split.iter().map(Walk::count).sum::<u64>(), all);
            prop_assert_eq!(merge(&split).as_ref().map(Global::walk).map(Walk::count).unwrap_or(all), all);
        }
    }
}
