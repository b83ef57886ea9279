//! Measures the orders and the index of boxes: `box_times [BOXES] [ROUNDS] [CASE]`.
//!
//! Cases: `level` is a level of a refined mesh in 3-D, boxes of 8 to 32 cells around shells;
//! `shuffled` is the same in random order; `loose` has equal boxes at random places; `sticks` has
//! boxes of 1 x 1 x 4096 cells; `islands` has groups of 5 x 5 x 2 boxes of 16 cells, far apart. Prints the median CPU seconds of each step and the peak memory of the
//! process in MiB, then the predicted seconds of sampled reads in each order.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::hint::black_box;

use bedform_geometry::{
    BoxIndex, BoxList, BoxOrder, ChoiceOptions, OrderChoice, StepCosts, StripedTargets,
    overlapping_pair,
};

/// A reproducible sequence of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % limit
    }
}

fn add(boxes: &mut BoxList, start: [i64; 3], shape: [i64; 3]) {
    let stop = [0, 1, 2].map(|axis| start[axis] + shape[axis]);
    boxes.push(&start, &stop).unwrap();
}

/// Tiles of 32 cells near spherical shells, each whole or cut into halves along some axes.
fn level(count: usize, numbers: &mut Numbers) -> BoxList {
    let mut boxes = BoxList::new(3).unwrap();
    let side = ((count as f64 * 1.5).cbrt() as i64).max(2);
    for tile in 0..side * side * side {
        let at = [tile / side / side, tile / side % side, tile % side];
        let from_middle = at.map(|at| (at - side / 2) as f64 / side as f64);
        let radius = from_middle.iter().map(|at| at * at).sum::<f64>().sqrt();
        if (radius * 12.0).fract() > 0.5 {
            continue;
        }
        let parts = [0; 3].map(|_| 1 + numbers.below(3) as i64 / 2);
        let shape = parts.map(|parts| 32 / parts);
        for part in 0..parts.iter().product() {
            let place = [part % parts[0], part / parts[0] % parts[1], part / parts[0] / parts[1]];
            add(&mut boxes, [0, 1, 2].map(|axis| at[axis] * 32 + place[axis] * shape[axis]), shape);
            if boxes.len() == count {
                return boxes;
            }
        }
    }
    boxes
}

fn shuffled(boxes: &BoxList, numbers: &mut Numbers) -> BoxList {
    let mut order: Vec<usize> = (0..boxes.len()).collect();
    for place in (1..order.len()).rev() {
        order.swap(place, numbers.below(place as u64 + 1) as usize);
    }
    let mut result = BoxList::new(boxes.rank()).unwrap();
    for number in order {
        let cells = boxes.get(number).unwrap();
        result.push(cells.start, cells.stop).unwrap();
    }
    result
}

fn at_random(count: usize, shape: [i64; 3], numbers: &mut Numbers) -> BoxList {
    let mut boxes = BoxList::new(3).unwrap();
    let side = ((count as f64).cbrt() * 64.0) as u64;
    for _ in 0..count {
        let start = shape.map(|length| numbers.below(side) as i64 / length * length);
        add(&mut boxes, start, shape);
    }
    boxes
}

/// Returns the seconds that the only thread has run on a processor.
fn cpu_seconds() -> f64 {
    let times = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    let nanoseconds: u64 = times.split_whitespace().next().unwrap().parse().unwrap();
    nanoseconds as f64 * 1e-9
}

/// Groups of 5 x 5 x 2 boxes at random places in a sparse domain.
fn islands(count: usize, numbers: &mut Numbers) -> BoxList {
    let mut boxes = BoxList::new(3).unwrap();
    let side = ((count as f64).cbrt() * 60.0) as u64;
    while boxes.len() < count {
        let corner = [0; 3].map(|_| numbers.below(side) as i64);
        for place in 0..50 {
            let at = [place / 10, place / 2 % 5, place % 2];
            add(&mut boxes, [0, 1, 2].map(|axis| corner[axis] + 16 * at[axis]), [16; 3]);
        }
    }
    boxes
}

fn report<T>(step: &str, rounds: usize, mut run: impl FnMut() -> T) {
    let mut seconds: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = cpu_seconds();
            black_box(run());
            cpu_seconds() - start
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    println!("{step:30} {:8.3} s {:6} MiB", seconds[rounds / 2], kib >> 10);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(1_000_000, |count| count.parse().unwrap());
    let rounds = arguments.next().map_or(3, |rounds| rounds.parse().unwrap());
    let case = arguments.next().unwrap_or_else(|| "level".to_owned());
    let numbers = &mut Numbers(46);
    let boxes = match case.as_str() {
        "shuffled" => {
            let ordered = level(count, numbers);
            shuffled(&ordered, numbers)
        }
        "islands" => islands(count, numbers),
        "loose" => at_random(count, [16; 3], numbers),
        "sticks" => at_random(count, [1, 1, 4096], numbers),
        _ => level(count, numbers),
    };
    println!("{case}: {} boxes", boxes.len());
    report("index", rounds, || BoxIndex::new(&boxes).unwrap());
    report("overlapping pair", rounds, || overlapping_pair(&boxes).unwrap());
    let orders = [BoxOrder::Z, BoxOrder::Hilbert];
    let clusters = [1 << 17, 1].map(|bulk_cells| BoxOrder::Clusters { bulk_cells });
    for order in orders.into_iter().chain(clusters) {
        report(&format!("{order:?}"), rounds, || order.permutation(&boxes).unwrap());
    }
    let options = ChoiceOptions {
        cell_bytes: 8,
        chunk_cells: None,
        targets: StripedTargets::ONE_DEVICE,
        costs: StepCosts {
            bulk_bytes: 1 << 20,
            byte_seconds: 0.0,
            small_seconds: 1e-4,
            medium_seconds: 1e-3,
            large_seconds: 4e-3,
        },
        seed: 46,
        samples_max: 1024,
    };
    report("choice", 1, || {
        let choice = OrderChoice::new(&boxes, &options).unwrap();
        for (order, seconds) in choice.candidates {
            println!("{order:?}: {seconds:.1} s");
        }
    });
}
