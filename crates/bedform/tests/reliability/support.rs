//! How much is tried, with which seeds, and where.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bedform_format::ObjectPath;

fn effort_is(one_of: &[&str]) -> bool {
    std::env::var("BEDFORM_EFFORT").is_ok_and(|effort| one_of.contains(&effort.as_str()))
}

/// True in `make reliability`; a small share of it is tried in `cargo test`.
pub(crate) fn is_gate() -> bool {
    effort_is(&["gate", "night"])
}

/// `night` if `BEDFORM_EFFORT` is that: what takes hours; `gate` and `quick` as in [`effort`].
pub(crate) fn effort_at_night<T>(night: T, gate: T, quick: T) -> T {
    if effort_is(&["night"]) { night } else { effort(gate, quick) }
}

/// `gate` at the gate, `quick` otherwise.
pub(crate) fn effort<T>(gate: T, quick: T) -> T {
    if is_gate() { gate } else { quick }
}

/// Prints a count for the floors of the stage.
pub(crate) fn count(name: &str, number: u64) {
    println!("\nCOUNT {name} {number}");
}

/// The seed that differs from run to run, printed with the command that repeats it.
pub(crate) fn random_seed(test: &str) -> u64 {
    let given = std::env::var("BEDFORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64 % 1_000_000_007
    });
    let effort = if is_gate() { "BEDFORM_EFFORT=gate " } else { "" };
    println!(
        "\nseed {seed}; to repeat: {effort}BEDFORM_SEED={seed} cargo test --release -p bedform \
         --test reliability -- --nocapture {test}"
    );
    seed
}

/// A small generator whose numbers depend on the seed alone.
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

/// A directory that goes away with the test.
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

/// Runs `work` on every item, on two threads, and gives the results in the order of the items.
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
