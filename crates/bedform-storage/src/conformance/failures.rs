//! Failures of every call, in every way.

use rustix::io::Errno;

use super::crash::CrashCounts;
use super::script::{
    AcknowledgedSteps, Local, ObjectView, SCRIPTS, Script, has_temporary, storage, sweep_all, view,
};
use super::{kind_of, put};
use crate::{CallFailure, CallKind, Condition, SimulatedFileSystem, StorageErrorKind};

const ERRORS: [Errno; 6] =
    [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::ACCESS, Errno::INTR];

/// Runs every workload with each call of each kind failing in each way. An error leaves the old
/// state, or is `Poisoned` and stops further writes. Interruptions and short reads and writes have
/// no effect. Acknowledged objects survive a power cut.
///
/// # Panics
/// If one of these promises is broken.
pub fn fail_calls() -> CrashCounts {
    let mut counts = CrashCounts::default();
    for script in SCRIPTS {
        let (before, after) = script.views();
        for (kind, calls) in script.calls() {
            for k in 0..calls {
                for failure in failures(kind) {
                    let trial =
                        FailureTrial { script, before: &before, after: &after, kind, k, failure };
                    counts += trial.run(&SimulatedFileSystem::new());
                    counts += trial.run(&SimulatedFileSystem::new().with_threads());
                }
            }
        }
    }
    counts
}

fn failures(kind: CallKind) -> Vec<CallFailure> {
    let mut failures: Vec<CallFailure> =
        ERRORS.iter().map(|errno| CallFailure::Error(errno.raw_os_error())).collect();
    if matches!(kind, CallKind::Read | CallKind::Write) {
        failures.push(CallFailure::Short);
    }
    if !matches!(kind, CallKind::Read | CallKind::Write | CallKind::Stat) {
        failures.push(CallFailure::ErrorAfter(Errno::IO.raw_os_error()));
    }
    failures
}

struct FailureTrial<'a> {
    script: &'a Script,
    before: &'a ObjectView,
    after: &'a ObjectView,
    kind: CallKind,
    k: u64,
    failure: CallFailure,
}

impl FailureTrial<'_> {
    fn story(&self) -> String {
        format!("{}: {:?} {} fails with {:?}", self.script.name, self.kind, self.k, self.failure)
    }

    fn run(&self, system: &SimulatedFileSystem) -> CrashCounts {
        let storage = self.script.prepared_on(system);
        storage.system().fail_at(self.kind, self.k, self.failure);
        let mut progress = AcknowledgedSteps::default();
        let outcome = (self.script.act)(&storage, &mut progress.synced);
        storage.system().heal();
        let is_done = outcome.is_ok();
        progress.is_done = is_done;
        let kind = kind_of(outcome);
        let is_sync = self.kind.is_sync();
        let is_poisoned = kind == Some(StorageErrorKind::Poisoned);
        assert!(is_poisoned || !is_sync, "{}: a failed sync is no success", self.story());
        let is_harmless = self.failure == CallFailure::Short
            || self.failure == CallFailure::Error(Errno::INTR.raw_os_error());
        assert!(is_sync || is_done || !is_harmless, "{}: got {kind:?}", self.story());

        let seen = view(&storage);
        self.script.judge(&seen, (self.before, self.after), &progress, &|| self.story());
        if is_poisoned {
            let write = put(&storage, "other", b"", Condition::None);
            assert_eq!(kind_of(write), Some(StorageErrorKind::Poisoned), "{}", self.story());
        } else if !is_done {
            self.check_old_and_repeat(&storage, &seen);
        }
        progress.is_done |= !is_poisoned && self.script.is_same(&view(&storage), self.after);
        self.reopen(&storage, progress)
    }

    /// Checks that an error with a known outcome left the old state, and that the workload then
    /// succeeds.
    fn check_old_and_repeat(&self, storage: &Local, seen: &ObjectView) {
        let is_lost_answer = matches!(self.failure, CallFailure::ErrorAfter(_));
        if self.script.order.is_none() && !is_lost_answer {
            let is_old = self.script.is_same(seen, self.before);
            assert!(is_old, "{}: an error, and not the old state", self.story());
        }
        if self.script.is_same(seen, self.before) {
            let again = (self.script.act)(storage, &mut ObjectView::new());
            assert_eq!(kind_of(again), None, "{}: work does not go on", self.story());
            assert!(self.script.is_same(&view(storage), self.after), "{}", self.story());
        }
    }

    /// Opens the store anew, in its present state and after a power cut.
    fn reopen(&self, old: &Local, mut progress: AcknowledgedSteps) -> CrashCounts {
        let mut counts = CrashCounts { failures: 1, ..CrashCounts::default() };
        progress.is_done &= !matches!(self.failure, CallFailure::ErrorAfter(_));
        if let Some(images) = old.system().exhaustive_crash_images(8) {
            for image in images {
                let seen = view(&storage(&image));
                self.script.judge(&seen, (self.before, self.after), &progress, &|| self.story());
                counts.images += 1;
                counts.exhaustive_images += 1;
            }
        }
        let is_excused = matches!(self.kind, CallKind::Unlink | CallKind::Create | CallKind::Lock);
        // Removing a workspace takes many calls; a sweep removes the files that a failed one
        // leaves.
        let is_excused = is_excused || !self.script.tree.is_empty();
        assert!(
            is_excused || !has_temporary(old.system()),
            "{}: a temporary name is left",
            self.story()
        );
        sweep_all(&storage(old.system()));
        counts
    }
}
