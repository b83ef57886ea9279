//! Runs a due policy in the background: learns, plans, and makes replicas that save enough.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use bedform_format::shown::shell_path;
use bedform_storage::Lock;

use super::building::directory_of;
use super::queries::index_id;
use super::waking::wake;
use super::{OptimizeOptions, OptimizePlan, Optimized, ReplicaBudget, SourcePlace, build, plan};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::url_of;
use crate::panics::caught;
use crate::sidecar::Sidecar;
use crate::trace::{PolicyOutcome, PolicyPlace, PolicySettings, PolicyState, is_watched, learn};

/// The least predicted share of the reads' seconds that replicas must save to be made unasked.
const GAIN_MIN: f64 = 0.1;
/// Attempts to lock the policy: a reader that checks for a running process holds the lock briefly.
const LOOKS: u32 = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

fn place_of(path: &Path) -> Result<PolicyPlace> {
    let none = || {
        let text = format!(
            "{}: no place for replicas: set BEDFORM_SIDECAR to a directory",
            path.display()
        );
        Error::new(ErrorKind::NotFound, text)
    };
    Sidecar::of_path(path)?.as_ref().and_then(PolicyPlace::new).ok_or_else(none)
}

/// Sets the policy of the store or file at `path`. After every `after` recorded reads, a background
/// process makes and renews replicas within `budget`, or within [`ReplicaBudget::Default`]. An
/// `after` of 0 removes the policy.
///
/// # Errors
/// `InvalidArgument` for a malformed budget; `PermissionDenied` if replicas cannot lie beside the
/// source; `Io` if the policy cannot be saved.
pub fn set_policy(path: &Path, after: u64, budget: Option<&str>) -> Result<()> {
    if after == 0 {
        place_of(path)?.unset();
        return Ok(());
    }
    budget_of(budget)?;
    directory_of(&path.into(), None)?;
    let place = place_of(path)?;
    let named = match url_of(path) {
        Some(_) => path.to_owned(),
        None => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    };
    let budget = budget.map(str::to_owned);
    let settings = PolicySettings::new(after, budget, named.display().to_string());
    match place.set(&settings) {
        true => Ok(()),
        false => {
            let text = format!("{}: the policy cannot be kept in the sidecar", path.display());
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

/// Returns the budget of a policy, as the user named it or by default.
fn budget_of(named: Option<&str>) -> Result<ReplicaBudget> {
    named.map_or(Ok(ReplicaBudget::Default), ReplicaBudget::parse)
}

/// Returns the policy of the source at a place, its progress, and whether its reads are recorded.
///
/// # Errors
/// Errors of finding the sidecar.
pub fn policy_state(place: &SourcePlace) -> Result<PolicyState> {
    let found = Sidecar::find(&place.sidecar_name()?, None)?;
    let Some(sidecar) = found else { return Ok(PolicyState::default()) };
    let state = PolicyPlace::new(&sidecar).map(|place| place.state(is_watched(&sidecar)));
    Ok(state.unwrap_or_default())
}

/// Carries out the policy of the store or file at `path`; returns `None` if another process is
/// doing so. The outcome, also an error, is saved with the policy.
///
/// # Errors
/// `NotFound` without a policy; errors of the lock; `Interrupted`. Other errors of learning and
/// optimizing are part of the outcome.
pub fn run_policy(path: &Path) -> Result<Option<PolicyOutcome>> {
    let place = place_of(path)?;
    let none = || {
        let shown = path.display();
        let text = format!(
            "{shown}: nothing says when to optimise it: 'bedform watch {} --optimize-after 1000' does",
            shell_path(&path.to_string_lossy())
        );
        Error::new(ErrorKind::NotFound, text)
    };
    let settings = place.settings().ok_or_else(none)?;
    let Some(_lock) = locked(&place)? else { return Ok(None) };
    let mut outcome = PolicyOutcome::begun(now());
    place.keep_outcome(&outcome);
    // A panic is an outcome as well: no user watches this process.
    match caught(|| follow(path, &settings)).and_then(|outcome| outcome) {
        Ok((planned, done)) => {
            outcome.gain = gain_of(&planned);
            outcome.verdict = verdict_of(outcome.gain, done.as_ref());
            let done = done.unwrap_or_default();
            let indexes = done.indexes.made.iter().map(|index| index_id(&index.array));
            outcome.made =
                done.made.iter().map(|replica| replica.id.clone()).chain(indexes).collect();
            let indexes = done.indexes.dropped.iter().map(|array| index_id(array));
            outcome.dropped = done.dropped.iter().cloned().chain(indexes).collect();
            outcome.bytes = done.bytes;
            outcome.error = done.warnings.join("; ");
        }
        Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
        Err(error) => {
            outcome.verdict = "nothing was made".to_owned();
            outcome.error = error.to_string();
        }
    }
    outcome.ended = now();
    place.keep_outcome(&outcome);
    // After an error, the next attempt waits for as many reads again.
    place.settle();
    Ok(Some(outcome))
}

/// Returns the lock of the policy; `None` if another process holds it for longer than a brief
/// check.
fn locked(place: &PolicyPlace) -> Result<Option<Box<dyn Lock>>> {
    for _ in 1..LOOKS {
        if let Some(lock) = place.try_lock()? {
            return Ok(Some(lock));
        }
        sleep(LOOK_AGAIN);
    }
    place.try_lock()
}

fn follow(path: &Path, settings: &PolicySettings) -> Result<(OptimizePlan, Option<Optimized>)> {
    learn(path, &|_, _| {})?;
    let options = OptimizeOptions {
        budget: budget_of(settings.budget.as_deref())?,
        ..OptimizeOptions::default()
    };
    let source = path.into();
    wake(&source, &options, &|_, _| {})?;
    let planned = plan(&source, &options)?;
    let is_worth_it = planned.makes_something() && gain_of(&planned) >= GAIN_MIN;
    let done = is_worth_it.then(|| build(&source, &planned, &options, &|_, _| {})).transpose()?;
    Ok((planned, done))
}

/// Returns the share of the seconds of all reads that a plan saves, as predicted.
fn gain_of(planned: &OptimizePlan) -> f64 {
    let reads = planned.reads.iter().map(|read| (read.reads, read.seconds_now, read.seconds_then));
    let queries = planned.queries.iter();
    let queries = queries.map(|query| (query.queries, query.seconds_now, query.seconds_then));
    let (mut now, mut then) = (0.0, 0.0);
    for (count, seconds_now, seconds_then) in reads.chain(queries) {
        now += count * seconds_now;
        then += count * seconds_then;
    }
    if now > 0.0 { ((now - then) / now).max(0.0) } else { 0.0 }
}

fn verdict_of(gain: f64, done: Option<&Optimized>) -> String {
    let percent = 100.0 * gain;
    match done {
        Some(done) => {
            let indexes = match done.indexes.made.len() {
                0 => String::new(),
                count => format!("{count} indexes made, "),
            };
            format!(
                "{} replicas made, {indexes}{} dropped, {:.1} MiB in all; reads take {percent:.0}% less, as predicted",
                done.made.len(),
                done.dropped.len() + done.indexes.dropped.len(),
                done.bytes as f64 / f64::from(1 << 20)
            )
        }
        None => format!("nothing was made: reads would take {percent:.0}% less"),
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs()
}

/// Gives the process the lowest CPU and disk priority that the system allows.
pub fn run_at_low_priority() {
    // 19 is the lowest priority.
    let _ = rustix::process::nice(19);
    lower_disk_priority();
}

/// Puts the process into the idle class of disk priorities; no library wraps this system call.
#[allow(unsafe_code)]
fn lower_disk_priority() {
    const WHO_PROCESS: libc::c_long = 1;
    const IDLE: libc::c_long = 3 << 13;
    // SAFETY: three numbers, none of them an address; it changes the priority of this process
    // alone.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0 as libc::c_long, IDLE) };
}
