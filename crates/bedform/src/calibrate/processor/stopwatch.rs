//! Medians of repeatedly measured times.

use std::time::{Duration, Instant};

const LEAST: usize = 5;
const MOST: usize = 200;
/// The largest ratio of the third to the first quartile; above it the machine was busy.
const SPREAD_MAX: f64 = 1.3;

/// A stopwatch for repeated work.
#[derive(Debug)]
pub(super) struct Stopwatch {
    budget: Duration,
    taken: u32,
    disturbed: u32,
}

impl Stopwatch {
    /// Makes a stopwatch that spends `seconds` on each figure.
    pub(super) fn new(seconds: f64) -> Self {
        Self { budget: Duration::from_secs_f64(seconds), taken: 0, disturbed: 0 }
    }

    /// The median seconds of `work`; of the faster of two series if the first varies much.
    pub(super) fn seconds(&mut self, work: impl FnMut()) -> f64 {
        self.seconds_after(|| (), work)
    }

    /// As [`Stopwatch::seconds`], where `before` runs first each time and is not counted.
    pub(super) fn seconds_after(
        &mut self,
        mut before: impl FnMut(),
        mut work: impl FnMut(),
    ) -> f64 {
        work();
        let (first, spread) = self.series(&mut before, &mut work);
        if spread <= SPREAD_MAX {
            return first;
        }
        let (again, spread) = self.series(&mut before, &mut work);
        self.disturbed += u32::from(spread > SPREAD_MAX);
        // Other programs make work slower, never faster.
        first.min(again)
    }

    /// True if more than a quarter of all figures still varied much.
    pub(super) fn was_disturbed(&self) -> bool {
        self.disturbed * 4 > self.taken
    }

    fn series(&mut self, before: &mut impl FnMut(), work: &mut impl FnMut()) -> (f64, f64) {
        self.taken += 1;
        let began = Instant::now();
        let mut times = Vec::with_capacity(MOST);
        while times.len() < LEAST || (times.len() < MOST && began.elapsed() < self.budget) {
            before();
            let started = Instant::now();
            work();
            times.push(started.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let quarter = |quarters: usize| times[(times.len() - 1) * quarters / 4];
        (quarter(2), quarter(3) / quarter(1).max(1e-9))
    }
}
