//! Power cuts after every call, and again during recovery.

use super::script::{AcknowledgedSteps, ObjectView, SCRIPTS, Script, storage, sweep_all, view};
use crate::{SimulatedFileSystem, Storage, StorageErrorKind};

/// The number of states to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashBudget {
    /// The seed of the decisions of each sampled crash.
    pub seed: u64,
    /// Sampled images per cut, in addition to all images where few changes are unconfirmed.
    pub images_per_cut: u64,
    /// The most unconfirmed changes for which all images are tried.
    pub pending_max: u32,
}

impl Default for CrashBudget {
    fn default() -> Self {
        Self { seed: 1, images_per_cut: 100, pending_max: 12 }
    }
}

/// Counts of the tried states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CrashCounts {
    /// Power cuts.
    pub cuts: u64,
    /// States after a power cut that were opened and read.
    pub images: u64,
    /// Those from a complete enumeration of the possible states.
    pub exhaustive_images: u64,
    /// Calls that were made to fail.
    pub failures: u64,
}

impl std::ops::AddAssign for CrashCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { cuts, images, exhaustive_images, failures } = other;
        self.cuts += cuts;
        self.images += images;
        self.exhaustive_images += exhaustive_images;
        self.failures += failures;
    }
}

/// Runs every workload with a power cut after each of its calls, and reads every state that may be
/// left. An acknowledged object is there and whole, every other object is old or new, and nothing
/// hidden is visible.
///
/// # Panics
/// If an image breaks a promise; the message says how to reproduce the image.
pub fn cut_power(budget: CrashBudget) -> CrashCounts {
    let mut counts = CrashCounts::default();
    for script in SCRIPTS {
        let (before, after) = script.views();
        for cut in 0.. {
            let (system, progress) = run_until(script, cut);
            counts.cuts += 1;
            for_images(&system, budget, &mut counts, |image, number| {
                let story = || format!("power cut after call {cut}, image {number}, {budget:?}");
                let seen = view(&storage(&image));
                script.judge(&seen, (&before, &after), &progress, &story);
            });
            if progress.is_done {
                break;
            }
        }
    }
    counts
}

/// As [`cut_power`], with further power cuts while the state is swept and the workload repeated,
/// `depth` cuts in all.
///
/// # Panics
/// As [`cut_power`].
pub fn cut_power_again(budget: CrashBudget, depth: u32) -> CrashCounts {
    let mut counts = CrashCounts::default();
    for script in SCRIPTS {
        let (before, after) = script.views();
        let calls = script.calls().into_iter().map(|(_, calls)| calls).sum();
        for cut in 0.. {
            let (system, progress) = run_until(script, cut);
            counts.cuts += 1;
            let recovery = Recovery { script, before: &before, after: &after, calls, budget };
            for (number, image) in system.crash_images(budget.seed ^ cut, 4).enumerate() {
                let story = format!("power cut after call {cut}, image {number}");
                recovery.run(&image, &progress, depth.saturating_sub(1), &story, &mut counts);
            }
            if progress.is_done {
                break;
            }
        }
    }
    counts
}

/// Runs a prepared workload with a power cut after `cut` calls. Returns the system and the
/// acknowledged steps.
fn run_until(script: &Script, cut: u64) -> (SimulatedFileSystem, AcknowledgedSteps) {
    let storage = script.prepared();
    storage.system().fail_power_after(cut);
    let mut progress = AcknowledgedSteps::default();
    progress.is_done = (script.act)(&storage, &mut progress.synced).is_ok();
    (storage.system().clone(), progress)
}

fn for_images(
    system: &SimulatedFileSystem,
    budget: CrashBudget,
    counts: &mut CrashCounts,
    mut look: impl FnMut(SimulatedFileSystem, u64),
) {
    if let Some(images) = system.exhaustive_crash_images(budget.pending_max) {
        for (image, number) in images.zip(0..) {
            look(image, number);
            counts.images += 1;
            counts.exhaustive_images += 1;
        }
    }
    for (image, number) in system.crash_images(budget.seed, budget.images_per_cut).zip(0..) {
        look(image, number);
        counts.images += 1;
    }
}

struct Recovery<'a> {
    script: &'a Script,
    before: &'a ObjectView,
    after: &'a ObjectView,
    /// The number of calls of the workload.
    calls: u64,
    budget: CrashBudget,
}

impl Recovery<'_> {
    /// Checks `system`, then sweeps it and repeats the workload, with a power cut after some of the
    /// calls.
    fn run(
        &self,
        system: &SimulatedFileSystem,
        progress: &AcknowledgedSteps,
        depth: u32,
        story: &str,
        counts: &mut CrashCounts,
    ) {
        let seen = view(&storage(system));
        self.script.judge(&seen, (self.before, self.after), progress, &|| story.to_owned());
        counts.images += 1;
        if depth == 0 {
            return;
        }
        let step = usize::try_from(self.calls / 5).unwrap().max(3);
        for cut in (0..self.calls + 40).step_by(step) {
            let again = system.fork();
            again.fail_power_after(cut);
            let storage = storage(&again);
            let swept = storage.sweep(&super::path("")).is_ok();
            let mut progress = progress.clone();
            let outcome = (self.script.act)(&storage, &mut progress.synced);
            progress.is_done |= outcome.is_ok();
            counts.cuts += 1;
            let seed = self.budget.seed ^ (u64::from(depth) << 32) ^ cut;
            for (number, image) in again.crash_images(seed, 2).enumerate() {
                let story = format!("{story}; in recovery after call {cut}, image {number}");
                self.run(&image, &progress, depth - 1, &story, counts);
            }
            if swept && outcome.is_ok() {
                again.heal();
                sweep_all(&storage);
                break;
            }
            let kind = outcome.err().map(|error| error.kind);
            if matches!(kind, Some(StorageErrorKind::Exists | StorageErrorKind::Conflict)) {
                break;
            }
        }
    }
}
