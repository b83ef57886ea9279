//! F6 to F8: every call of every workload fails in every way.
//!
//! After an error the old state is intact, and work continues once the cause is gone. Or the error
//! is `Poisoned`, and the handle writes no more. Interruptions and short reads and writes have no
//! effect. A failed sync is never a success.

use bedform::{ErrorKind, Store};
use bedform_storage::{CallFailure, CallKind, SimulatedFileSystem};
use rustix::io::Errno;

use crate::model::{Operation, StoreModel, options, recover};
use crate::support::{count, effort, in_parallel, random_seed};
use crate::workloads::{
    Progress, UnderWay, Workload, check_cancelled, go_on, run, storage, workloads,
};

const ERRORS: [Errno; 6] =
    [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::ACCESS, Errno::INTR];

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

struct Trial<'a> {
    workload: &'a Workload,
    base: &'a SimulatedFileSystem,
    model: &'a Option<StoreModel>,
    /// The final state of the workload.
    last: &'a StoreModel,
    kind: CallKind,
    k: u64,
    failure: CallFailure,
}

impl Trial<'_> {
    fn run(&self) -> Result<u64, String> {
        let system = self.base.fork();
        let storage = storage(&system);
        system.fail_at(self.kind, self.k, self.failure);
        let progress = run(&storage, self.model.clone(), &self.workload.act);
        system.heal();
        let error = progress.error.as_ref().map(bedform::Error::kind);
        let is_sync = self.kind.is_sync();
        let is_harmless = self.failure == CallFailure::Short
            || self.failure == CallFailure::Error(Errno::INTR.raw_os_error());
        if error.is_some() && is_harmless && !is_sync {
            return Err(format!("an interruption is an error: {:?}", progress.error));
        }
        // On a copy, because this check recovers promises. After a failed sync only the power cut
        // may show which data are lost: no later sync makes them durable.
        let found = progress.judge(&system.fork())?;
        let mut images = 0;
        let some = effort(1, 4);
        let all = system.exhaustive_crash_images(6).into_iter().flatten().take(some);
        for image in system.crash_images(self.k, 1).chain(all) {
            let fail = |error| format!("after a power cut: {error}");
            let found = progress.judge(&image).map_err(fail)?;
            if images == 0 {
                check_cancelled(&image, found).map_err(fail)?;
            }
            images += 1;
        }
        match error {
            None if found.as_ref() == Some(self.last) => {}
            None => return Err("no error, and not all is done".to_owned()),
            Some(ErrorKind::Poisoned) => self.check_poisoned(&storage)?,
            Some(_) => self.check_old_and_repeat(&storage, &system, &progress, found)?,
        }
        if error == Some(ErrorKind::Poisoned) {
            // A new handle can write again.
            let found = progress.judge(&system)?;
            check_cancelled(&system, found)?;
        }
        Ok(images)
    }

    fn check_poisoned(
        &self,
        storage: &std::sync::Arc<crate::workloads::Local>,
    ) -> Result<(), String> {
        let Ok(store) = Store::open(storage.clone(), options(true)) else { return Ok(()) };
        match store.create_group(&crate::support::path("after"), &serde_json::Map::new()) {
            Err(error) if error.kind() == ErrorKind::Poisoned => Ok(()),
            outcome => Err(format!("a poisoned handle writes: {outcome:?}")),
        }
    }

    fn check_old_and_repeat(
        &self,
        storage: &std::sync::Arc<crate::workloads::Local>,
        system: &SimulatedFileSystem,
        progress: &Progress,
        found: Option<StoreModel>,
    ) -> Result<(), String> {
        // The state may be partial here. Region writes are atomic per shard; a commit stays if
        // settling fails. The first of many commits already shows the state of all; arrays of a
        // session appear before their data.
        let in_parts = matches!(
            &progress.under_way,
            UnderWay::Operation(
                Operation::Write { .. }
                    | Operation::SettleUnder { .. }
                    | Operation::Background { .. }
                    | Operation::SessionArrays { .. }
            )
        );
        let is_lost_answer = matches!(self.failure, CallFailure::ErrorAfter(_));
        let is_new = found != progress.before;
        if is_new && !in_parts && !is_lost_answer {
            return Err(format!("an error ({:?}), and not the old state", progress.error));
        }
        // The same handle repeats the unfinished operations.
        let done = self.workload.act.iter().position(|operation| match &progress.under_way {
            UnderWay::Operation(other) => format!("{operation:?}") == format!("{other:?}"),
            _ => true,
        });
        let mut rest = &self.workload.act[done.unwrap_or(0)..];
        if is_new && !in_parts && matches!(progress.under_way, UnderWay::Operation(_)) {
            rest = &rest[1..];
        }
        let progress = match &found {
            Some(model) => {
                let store = Store::open(storage.clone(), options(true))
                    .map_err(|error| format!("cannot be opened again: {error}"))?;
                if progress.has_promises {
                    // Promises come before new writes: no session begins before they are recovered.
                    recover(&store).map_err(|error| format!("nothing is recovered: {error}"))?;
                }
                go_on(&store, model.clone(), rest)
            }
            None => run(storage, None, rest),
        };
        if let Some(error) = &progress.error {
            return Err(format!("work does not go on: {error}"));
        }
        match progress.judge(system)? {
            Some(found) if found == *self.last => Ok(()),
            _ => Err("work went on to something else".to_owned()),
        }
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn every_call_may_fail_in_every_way() {
    // The gate tries every second call, different ones in each run; the night tries all.
    let step = effort(2, 1);
    let first = random_seed("failures::every_call_may_fail_in_every_way") % step as u64;
    let counts = in_parallel(&workloads(), |workload| {
        let (base, model) = workload.prepared();
        let clean = base.fork();
        let last = run(&storage(&clean), model.clone(), &workload.act);
        assert!(last.error.is_none(), "{}: {:?}", workload.name, last.error);
        let last = last.before.unwrap();
        let (mut trials, mut images) = (0_u64, 0);
        for kind in CallKind::ALL {
            for k in (first..clean.count(kind)).step_by(step) {
                for failure in failures(kind) {
                    let trial = Trial {
                        workload,
                        base: &base,
                        model: &model,
                        last: &last,
                        kind,
                        k,
                        failure,
                    };
                    match trial.run() {
                        Ok(more) => images += more,
                        Err(problem) => {
                            panic!(
                                "{}: {kind:?} {k} fails with {failure:?}: {problem}",
                                workload.name
                            )
                        }
                    }
                    trials += 1;
                }
            }
        }
        (trials, images)
    });
    count("workloads", counts.len() as u64);
    count("failed-calls", counts.iter().map(|count| count.0).sum());
    count("images-after-failures", counts.iter().map(|count| count.1).sum());
}
