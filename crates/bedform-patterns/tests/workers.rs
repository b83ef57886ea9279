//! Accesses whose order is disturbed by several workers.
#![allow(clippy::unwrap_used)]

use bedform_patterns::{Analyzer, PatternKind, Place};

/// A tile of an array of two axes.
fn tile(row: i64, column: i64) -> Place {
    Place::new([(row * 64, row * 64 + 64), (column * 32, column * 32 + 32)])
}

/// Returns a generator of pseudo-random numbers.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    }
}

/// Delays each place by up to `by` positions.
fn disturbed<T>(places: impl IntoIterator<Item = T>, by: usize, seed: u64) -> Vec<T> {
    let mut random = random(seed);
    let mut all: Vec<(usize, T)> =
        places.into_iter().enumerate().map(|(at, place)| (at + random(by), place)).collect();
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, place)| place).collect()
}

/// Interleaves walks at random until all have ended.
fn interleaved(mut walks: Vec<std::vec::IntoIter<Place>>, seed: u64) -> Vec<Place> {
    let (mut random, mut all) = (random(seed), Vec::new());
    while !walks.is_empty() {
        let which = random(walks.len());
        match walks[which].next() {
            Some(place) => all.push(place),
            None => drop(walks.remove(which)),
        }
    }
    all
}

/// Rows of tiles, each taken by the first free worker.
fn dynamic(rows: i64, columns: i64, workers: usize, seed: u64) -> Vec<Place> {
    let (mut random, mut all, mut row) = (random(seed), Vec::new(), 0);
    let mut at: Vec<(i64, i64)> = vec![(-1, columns); workers];
    loop {
        let own = &mut at[random(workers)];
        if own.1 == columns {
            if row == rows {
                return all;
            }
            *own = (row, 0);
            row += 1;
        }
        all.push(tile(own.0, own.1));
        own.1 += 1;
    }
}

/// One block of `rows` rows per worker, who walks it in order.
fn blocks(workers: i64, rows: i64, columns: i64) -> Vec<std::vec::IntoIter<Place>> {
    let block = |worker: i64| {
        (worker * rows..(worker + 1) * rows).flat_map(move |row| raster_row(row, columns))
    };
    (0..workers).map(|worker| block(worker).collect::<Vec<_>>().into_iter()).collect()
}

/// Interleaved rows: worker `i` of `n` takes every `n`-th row from row `i` on.
fn every(workers: i64, rows: i64, columns: i64) -> Vec<std::vec::IntoIter<Place>> {
    let own =
        |worker: i64| (0..rows).flat_map(move |row| raster_row(row * workers + worker, columns));
    (0..workers).map(|worker| own(worker).collect::<Vec<_>>().into_iter()).collect()
}

fn raster_row(row: i64, columns: i64) -> impl Iterator<Item = Place> {
    (0..columns).map(move |column| tile(row, column))
}

fn raster(rows: i64, columns: i64) -> impl Iterator<Item = Place> {
    raster_rows(0, rows, columns)
}

/// The rows of a raster from `from` up to and excluding `to`.
fn raster_rows(from: i64, to: i64, columns: i64) -> impl Iterator<Item = Place> {
    (from..to).flat_map(move |row| raster_row(row, columns))
}

/// Returns, in percent, the predicted accesses, and the predictions that were still to come.
fn shares(places: &[Place]) -> (usize, usize) {
    let mut analyzer = Analyzer::default();
    let (mut predicted, mut ahead, mut right) = (0, 0, 0);
    for (number, place) in places.iter().enumerate() {
        if number % 16 == 0 {
            let next: Vec<Place> = analyzer.ahead().take(8).collect();
            ahead += next.len();
            right += next.iter().filter(|next| places[number..].contains(next)).count();
        }
        predicted += usize::from(analyzer.push(place.clone()).predicted.is_some());
    }
    (100 * predicted / places.len(), 100 * right / ahead.max(1))
}

#[track_caller]
fn assert_shares(places: &[Place], predicted: usize, right: usize) {
    let shares = shares(places);
    assert!(shares.0 >= predicted && shares.1 >= right, "{shares:?}");
}

#[test]
fn a_raster_whose_order_is_disturbed_is_predicted() {
    for seed in 1..4 {
        for by in [2, 4, 8, 16] {
            assert_shares(&disturbed(raster(50, 40), by, seed), 95, 90);
            assert_shares(&disturbed(raster(100, 10), by, seed), 88, 90);
        }
        assert_shares(&disturbed(raster(100, 40), 32, seed), 90, 85);
        assert_shares(&disturbed(raster(1, 1000), 32, seed), 95, 95);
    }
}

#[test]
fn order_may_be_disturbed_after_it_was_not() {
    let mut places: Vec<Place> = raster(30, 40).collect();
    places.extend(disturbed(raster_rows(30, 60, 40), 16, 1));
    assert_shares(&places, 97, 95);
}

#[test]
fn workers_that_each_walk_a_block_of_rows_are_predicted() {
    for seed in 1..4 {
        for workers in [2, 4, 8, 16] {
            assert_shares(&interleaved(blocks(workers, 20, 40), seed), 85, 85);
            // One row each, which never ends.
            assert_shares(&interleaved(blocks(workers, 1, 200), seed), 92, 90);
        }
    }
}

#[test]
fn workers_that_each_take_every_so_many_th_row_are_predicted() {
    for seed in 1..4 {
        for workers in [2, 4, 8, 16] {
            assert_shares(&interleaved(every(workers, 20, 40), seed), 85, 85);
        }
    }
}

#[test]
fn workers_that_take_the_next_free_row_are_predicted() {
    for seed in 1..4 {
        for workers in [2, 4, 8, 16] {
            assert_shares(&dynamic(100, 40, workers, seed), 85, 85);
        }
    }
}

#[test]
fn interleaved_walks_are_told_from_others_by_their_kind() {
    let mut analyzer = Analyzer::default();
    let kinds: Vec<_> = interleaved(blocks(4, 10, 40), 1)
        .into_iter()
        .map(|place| analyzer.push(place).predicted)
        .collect();
    assert!(
        kinds[500..].iter().filter(|kind| **kind == Some(PatternKind::Interleaved)).count() > 900
    );
    let rows = analyzer.walks().filter(|walk| walk.levels.len() == 2 && walk.levels[0].count == 40);
    // The four blocks are adjacent.
    let rows: Vec<_> = rows.map(|walk| (walk.start, walk.levels[1].count)).collect();
    assert_eq!(rows, [(tile(0, 0), 40)]);
}

#[test]
fn what_was_seen_is_not_ahead() {
    let mut analyzer = Analyzer::default();
    let places = disturbed(raster(60, 40), 16, 5);
    for (number, place) in places.iter().enumerate() {
        analyzer.push(place.clone());
        if number > 1000 && number % 50 == 0 {
            let seen = &places[number - 100..=number];
            assert!(analyzer.ahead().take(32).all(|next| !seen.contains(&next)), "{number}");
        }
    }
}

#[test]
fn shuffled_tiles_are_hardly_ever_predicted() {
    for seed in 1..4 {
        let mut random = random(seed);
        let mut places: Vec<Place> = raster(100, 50).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, random(at + 1));
        }
        let mut analyzer = Analyzer::default();
        let ahead = places.into_iter().filter(|place| {
            analyzer.push(place.clone());
            analyzer.ahead().next().is_some()
        });
        assert!(ahead.count() < 500);
    }
}

#[test]
fn interleaved_walks_that_are_known_miss_fewer() {
    let mut analyzer = Analyzer::default();
    let first = interleaved(blocks(4, 10, 40), 1);
    let missed = |analyzer: &mut Analyzer, places: &[Place]| {
        places.iter().filter(|place| analyzer.push((*place).clone()).predicted.is_none()).count()
    };
    let new = missed(&mut analyzer, &first);
    let mut loaded = Analyzer::knowing(analyzer.patterns());
    let again = missed(&mut loaded, &interleaved(blocks(4, 10, 40), 2));
    assert!(3 * again < 2 * new, "{again} of {new}");
}

#[test]
fn what_interleaved_walks_predict_is_near_ahead() {
    let mut analyzer = Analyzer::default();
    let places = dynamic(60, 40, 4, 3);
    for (number, place) in places.iter().enumerate() {
        let ahead: Vec<Place> =
            if number % 7 == 0 { analyzer.ahead().take(400).collect() } else { Vec::new() };
        let predicted = analyzer.push(place.clone()).predicted;
        if number % 7 == 0 && predicted == Some(PatternKind::Interleaved) {
            assert!(ahead.contains(place), "{number}");
        }
    }
}
