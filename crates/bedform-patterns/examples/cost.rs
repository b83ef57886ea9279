//! Measures the analyzer: CPU nanoseconds per access, regular and irregular, and per request of the
//! next eight places; and the memory after a million accesses. An argument restricts the run to
//! kinds whose names contain it:
//!
//! ```text
//! cargo run --release -p bedform-patterns --example cost -- [WORD]
//! ```
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use bedform_patterns::{Analyzer, Place};

const COUNT: usize = 1_000_000;
/// Number of requests of the next places.
const LOOKS: u64 = 20_000;

/// Returns a box of 10 positions per axis, at the given first positions.
fn tile(at: &[i64]) -> Place {
    Place::new(at.iter().map(|first| (*first, first + 10)))
}

/// Returns the digits of a number, slowest first.
fn digits(number: usize, base: usize, rank: usize) -> Vec<i64> {
    let digit = |axis: usize| number / base.pow(u32::try_from(rank - 1 - axis).unwrap_or(0)) % base;
    (0..rank).map(|axis| 10 * i64::try_from(digit(axis)).unwrap_or(0)).collect()
}

/// Returns a generator of pseudo-random numbers.
fn random() -> impl FnMut(u64) -> i64 {
    let mut state = 1_u64;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below).cast_signed()
    }
}

/// Interleaves several walks at random.
fn interleaved(workers: u64) -> Vec<Place> {
    let (mut random, mut at) = (random(), vec![0; usize::try_from(workers).unwrap_or(1)]);
    let next = |_| {
        let worker = random(workers);
        let own = &mut at[usize::try_from(worker).unwrap_or(0)];
        *own += 1;
        tile(&[10 * (worker * 10_000 + *own / 100), 10 * (*own % 100)])
    };
    (0..COUNT).map(next).collect()
}

/// Returns a raster whose order is disturbed by up to `by` positions.
fn disturbed(by: u64) -> Vec<Place> {
    let mut random = random();
    let mut order: Vec<(i64, usize)> = (0..COUNT)
        .map(|number| (i64::try_from(number).unwrap_or(0) + random(by), number))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, number)| tile(&digits(number, 100, 3))).collect()
}

fn kinds() -> Vec<(&'static str, Vec<Place>)> {
    let all = |place: &mut dyn FnMut(usize) -> Place| (0..COUNT).map(place).collect::<Vec<_>>();
    let signed = |number: usize| i64::try_from(number).unwrap_or(0);
    let (mut anywhere, mut sizes, mut few) = (random(), random(), random());
    let mut end = 0;
    vec![
        ("contiguous", all(&mut |at| Place::new([(10 * signed(at), 10 * signed(at) + 10)]))),
        (
            "contiguous, any size",
            all(&mut |_| {
                let first = end;
                end += 1 + sizes(1000);
                Place::new([(first, end)])
            }),
        ),
        ("strided, rank 1", all(&mut |at| tile(&[30 * signed(at)]))),
        ("strided, rank 4", all(&mut |at| tile(&[30 * signed(at), 0, 0, 7]))),
        ("kd, rank 2", all(&mut |at| tile(&digits(at, 1000, 2)))),
        ("kd, rank 3", all(&mut |at| tile(&digits(at, 100, 3)))),
        ("kd, rank 4", all(&mut |at| tile(&digits(at, 32, 4)))),
        (
            "hours of days, rank 3",
            all(&mut |at| tile(&[10 * (24 * signed(at / 4) + [5, 6, 14, 15][at % 4]), 0, 0])),
        ),
        (
            "rows at hours, rank 2",
            all(&mut |at| {
                tile(&[
                    10 * (24 * signed(at / 32) + [5, 6, 14, 15][at / 8 % 4]),
                    10 * signed(at % 8),
                ])
            }),
        ),
        ("8 interleaved walks", interleaved(8)),
        ("16 interleaved walks", interleaved(16)),
        ("raster disturbed by 32", disturbed(32)),
        ("random, rank 1", all(&mut |_| tile(&[anywhere(1 << 31)]))),
        ("random, rank 4", all(&mut |_| tile(&[few(1000), few(1000), few(1000), few(1000)]))),
        ("random of 1000 tiles", all(&mut |_| tile(&[10 * few(40), 10 * few(25)]))),
        (
            "random of 3 steps",
            all(&mut |_| {
                end += few(3);
                Place::new([(end, end + 5)])
            }),
        ),
    ]
}

fn main() {
    println!("{:24} {:>8} {:>8} {:>10} {:>10}", "accesses", "ns", "8 ahead", "predicted", "KiB");
    let word = std::env::args().nth(1).unwrap_or_default();
    for (name, places) in kinds().into_iter().filter(|(name, _)| name.contains(&word)) {
        let mut analyzer = Analyzer::default();
        let copies = places.clone();
        let (start, had) = (
            processor_time(),
            copies.into_iter().filter(|place| {
                // Includes making the place of each access.
                black_box(&mut analyzer).push(place.clone()).predicted.is_some()
            }),
        );
        let share = 100 * had.count() / COUNT;
        let each = (processor_time() - start) / COUNT as u64;
        let start = processor_time();
        for _ in 0..LOOKS {
            black_box(analyzer.ahead().take(8).count());
        }
        let ahead = (processor_time() - start) / LOOKS;
        println!("{name:24} {each:8} {ahead:8} {share:8} % {:10}", analyzer.heap_bytes() / 1024);
    }
}

/// Returns the CPU time of this thread in nanoseconds, or else the elapsed time.
fn processor_time() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed().as_nanos();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let run = text.split_whitespace().next().and_then(|run| run.parse().ok());
    run.unwrap_or(u64::try_from(passed).unwrap_or(u64::MAX))
}
