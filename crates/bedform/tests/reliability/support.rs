//! The effort, seeds and scratch directories of the reliability tests.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bedform_format::ObjectPath;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// Returns `night` in `EFFORT=night make reliability`, `gate` otherwise.
pub(crate) fn effort<T>(gate: T, night: T) -> T {
    let is_night = variable::<String>("BEDFORM_EFFORT").is_some_and(|effort| effort == "night");
    if is_night { night } else { gate }
}

/// Prints a count for the floors of the stage.
pub(crate) fn count(name: &str, number: u64) {
    println!("\nCOUNT {name} {number}");
}

/// Returns the command that repeats a test with a seed, from a case on.
fn repeat(test: &str, seed: u64, from: u64) -> String {
    format!(
        "BEDFORM_SEED={seed} BEDFORM_FROM={from} cargo test --release --workspace \
         --test reliability -- --ignored --nocapture {test}"
    )
}

/// Returns a seed that differs between runs, and prints it with the command that repeats it.
pub(crate) fn random_seed(test: &str) -> u64 {
    let seed = variable("BEDFORM_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 % 1_000_000_007
    });
    println!("\nseed {seed}; to repeat: {}", repeat(test, seed, 0));
    seed
}

/// The random cases of a test, in an order that follows from a seed, until the test's time is over.
///
/// `BEDFORM_STAGE_SECONDS` is the time of the stage; its tests share it. `BEDFORM_SEED` and
/// `BEDFORM_FROM` continue an earlier run. The clock is read only between cases.
pub(crate) struct Cases {
    test: &'static str,
    seed: u64,
    first: u64,
    /// The number of cases that are tried in any time.
    least: u64,
    /// The number after the last case.
    last: u64,
    end: Instant,
    next: AtomicU64,
    has_failed: AtomicBool,
}

/// A case: its number in the order, and a seed of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    of_order: u64,
}

impl Case {
    /// Returns the kind of the case, of `kinds` kinds in turn.
    pub(crate) fn kind(&self, kinds: usize) -> usize {
        let kinds = kinds as u64;
        ((self.number % kinds + self.of_order % kinds) % kinds) as usize
    }
}

impl Cases {
    /// Makes the cases of a test: `percent` of the stage's seconds, and at least `least` cases. The
    /// minimum covers each kind and the floors of the stage on a slow machine. A test that runs
    /// alone has 5 s.
    pub(crate) fn new(test: &'static str, percent: u32, least: u64) -> Self {
        let seed = random_seed(test);
        let seconds = variable("BEDFORM_STAGE_SECONDS").unwrap_or(5.0);
        let first = variable("BEDFORM_FROM").unwrap_or(0);
        let share = Duration::from_secs_f64(seconds) * percent / 100;
        Self {
            test,
            seed,
            first,
            least,
            last: u64::MAX,
            end: Instant::now() + share,
            next: AtomicU64::new(first),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Ends after `number` cases, if there is time for all.
    pub(crate) fn at_most(mut self, number: usize) -> Self {
        self.last = number as u64;
        self
    }

    /// Shuffles a list into an order that follows from the seed.
    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        let mut random = Random(self.seed);
        for at in (1..items.len()).rev() {
            items.swap(at, random.below(at as u64 + 1) as usize);
        }
    }

    fn next(&self) -> Option<Case> {
        let is_over = Instant::now() >= self.end;
        let wants_more = |next: u64| {
            let goes_on = !is_over || next < self.first + self.least;
            (goes_on && next < self.last).then_some(next + 1)
        };
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let order = Ordering::Relaxed;
        let number = self.next.fetch_update(order, order, wants_more).ok()?;
        let mixed = Random(self.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95)).next();
        // Shifted, so that tests can calculate with seeds.
        Some(Case { number, seed: mixed >> 16, of_order: self.seed })
    }

    /// Tries cases on two threads, and returns the results in the order of the cases.
    pub(crate) fn run<R: Send>(&self, work: impl Fn(Case) -> R + Sync) -> Vec<R> {
        self.run_on(2, work)
    }

    /// Tries cases on `threads` threads.
    pub(crate) fn run_on<R: Send>(
        &self,
        threads: usize,
        work: impl Fn(Case) -> R + Sync,
    ) -> Vec<R> {
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(case) = self.next() {
                        let failure = Failure { cases: self, number: case.number };
                        let result = work(case);
                        std::mem::forget(failure);
                        results.lock().unwrap().push((case.number, result));
                    }
                });
            }
        });
        let next = self.next.load(Ordering::Relaxed);
        let (test, done) = (self.test, next - self.first);
        println!("\n{test}: {done} cases; to continue: {}", repeat(test, self.seed, next));
        let mut results = results.into_inner().unwrap();
        results.sort_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Prints the command that repeats a panicking case, and stops the others, on drop.
struct Failure<'a> {
    cases: &'a Cases,
    number: u64,
}

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        let Cases { test, seed, has_failed, .. } = self.cases;
        has_failed.store(true, Ordering::Relaxed);
        println!("\ncase {} failed; to repeat: {}", self.number, repeat(test, *seed, self.number));
    }
}

/// A small generator of numbers that depend only on the seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count.max(1)
    }
}

pub(crate) fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

/// A directory that is removed after the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bedform-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `work` on every item, on two threads, and returns the results in the order of the items.
pub(crate) fn in_parallel<I: Sync, R: Send>(items: &[I], work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((at, item)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    let result = work(item);
                    results.lock().unwrap().push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
