//! Policies: after a number of recorded reads, a background process learns and optimizes unasked.
//!
//! The directory `policy` of a sidecar holds the settings (`settings`), the counts of recorded
//! reads (`reads`, to which each process appends), and the outcome of the last run (`outcome`).
//! When the count reaches the limit, a recording process takes the lock, renames `reads` to
//! `claimed`, and starts `bedform optimize --by-policy` in the background. That run takes the lock
//! later, and removes `claimed` at its end. While `claimed` exists, no process starts another run,
//! unless the run is lost: it began and was killed, or did not begin within a minute. Then the next
//! process that records reads starts it again.
//!
//! Settings may change while a process reads: it loads them after each write of reads.
//!
//! A policy never fails a read, and delays it at most by the start of a process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_storage::Lock;
use serde::{Deserialize, Serialize};

use super::VARIABLE;
use crate::error::Result;
use crate::sidecar::{Helper, Sidecar};

/// The directory of the policy in a sidecar.
const DIRECTORY: &str = "policy";
const SETTINGS: &str = "policy/settings";
const OUTCOME: &str = "policy/outcome";
const READS: &str = "policy/reads";
const CLAIMED: &str = "policy/claimed";
const VERSION: u64 = 1;
/// The most bytes of a helper file.
const BYTES_MAX: u64 = 64 << 10;
/// Bytes of counts that are read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The most bytes of counts that are added up; a larger file reaches any limit.
const COUNTS_BYTES_MAX: u64 = 64 << 20;
/// A run that has not begun within this time of its start is lost.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);

/// The program to run, with its arguments before `optimize`.
static PROGRAM: OnceLock<Vec<OsString>> = OnceLock::new();

/// The settings of a policy: the number of reads, and the budget.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicySettings {
    version: u64,
    /// The number of recorded reads after which a run is due.
    pub optimize_after: u64,
    /// A share of the source, or a size; `None` for the default budget.
    pub budget: Option<String>,
    /// The path or URL of the source, as the user named it.
    pub path: String,
}

/// The outcome of the last run of a policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyOutcome {
    version: u64,
    /// The begin, in seconds since 1970.
    pub began: u64,
    /// The end, in seconds since 1970; 0 while it runs, or if it was killed.
    pub ended: u64,
    /// The share of the reads' seconds that the plan saves, as predicted.
    pub gain: f64,
    /// Names of the replicas that were made.
    pub made: Vec<String>,
    /// Names of removed replicas.
    pub dropped: Vec<String>,
    /// Stored bytes of all replicas after the run.
    pub bytes: u64,
    /// A sentence about the result, for the user.
    pub verdict: String,
    /// The error or the warnings; empty without one.
    pub error: String,
}

impl PolicyOutcome {
    /// Returns the outcome of a run that begins at `at`, in seconds since 1970.
    pub(crate) fn begun(at: u64) -> Self {
        let verdict = "it runs, or was stopped".to_owned();
        Self { began: at, verdict, ..Self::default() }
    }
}

/// A policy, its progress and its last outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PolicyState {
    /// True if reads are recorded.
    pub is_watched: bool,
    /// The settings, if there are any.
    pub settings: Option<PolicySettings>,
    /// Reads recorded since the last run.
    pub reads: u64,
    /// True while a process learns and optimizes.
    pub is_running: bool,
    /// The outcome of the last run.
    pub outcome: Option<PolicyOutcome>,
}

fn decoded<T: for<'a> Deserialize<'a>>(bytes: &[u8], version: impl Fn(&T) -> u64) -> Option<T> {
    serde_json::from_slice(bytes).ok().filter(|found| version(found) == VERSION)
}

impl PolicySettings {
    /// Makes the settings for a run after `optimize_after` reads of the source at `path`, within a
    /// budget.
    pub fn new(optimize_after: u64, budget: Option<String>, path: String) -> Self {
        Self { version: VERSION, optimize_after, budget, path }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        decoded(bytes, |found: &Self| found.version)
            .filter(|found| found.optimize_after > 0 && !found.path.is_empty())
    }
}

impl Helper for PolicyOutcome {
    const BYTES_MAX: u64 = BYTES_MAX;

    fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&Self { version: VERSION, ..self.clone() }).ok()
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        decoded(bytes, |found: &Self| found.version)
    }
}

/// Access to the policy files of a source.
#[derive(Debug, Clone)]
pub(crate) struct PolicyPlace {
    sidecar: Sidecar,
}

impl PolicyPlace {
    /// Makes the access for the source with this sidecar; `None` if the sidecar is not on this
    /// machine.
    pub(crate) fn new(sidecar: &Sidecar) -> Option<Self> {
        sidecar.root().map(|_| Self { sidecar: sidecar.clone() })
    }

    /// Returns the settings of this user. Those of the site's owner do not count: a policy starts a
    /// process of this user.
    pub(crate) fn settings(&self) -> Option<PolicySettings> {
        PolicySettings::decode(&self.sidecar.setting(SETTINGS)?)
    }

    /// Saves the settings; true on success.
    pub(crate) fn set(&self, settings: &PolicySettings) -> bool {
        let bytes = serde_json::to_vec(settings);
        bytes.is_ok_and(|bytes| self.sidecar.set(SETTINGS, &bytes).is_ok())
    }

    /// Removes the settings and counts; the outcome stays.
    pub(crate) fn unset(&self) {
        let _ = self.sidecar.unset(SETTINGS);
        for name in [READS, CLAIMED] {
            let _ = self.sidecar.remove(name);
        }
    }

    pub(crate) fn outcome(&self) -> Option<PolicyOutcome> {
        self.sidecar.load_own(OUTCOME, &SourceVersion::default(), &Limits::default())
    }

    pub(crate) fn keep_outcome(&self, outcome: &PolicyOutcome) {
        self.sidecar.save(OUTCOME, outcome);
    }

    /// Returns the reads recorded since the last run; only a part of them if
    /// [`PolicyPlace::is_full`].
    pub(crate) fn reads(&self) -> u64 {
        let Some(file) = self.sidecar.open(READS) else { return 0 };
        let end = file.version().size.min(COUNTS_BYTES_MAX);
        let (mut sum, mut start, mut piece) = (0_u64, 0_u64, vec![0; PIECE_BYTES]);
        while start < end {
            let length = usize::try_from(end - start).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            if file.read(start, &mut piece[..length]).is_err() {
                break;
            }
            let counts = piece[..length].as_chunks::<8>().0;
            sum = counts
                .iter()
                .fold(sum, |sum, count| sum.saturating_add(u64::from_le_bytes(*count)));
            start += length as u64;
        }
        sum
    }

    /// True if the file of counts exceeds [`COUNTS_BYTES_MAX`].
    fn is_full(&self) -> bool {
        self.sidecar.version_of(READS).is_some_and(|version| version.size > COUNTS_BYTES_MAX)
    }

    /// True once enough reads were recorded.
    fn has_read(&self, settings: &PolicySettings) -> bool {
        self.is_full() || self.reads() >= settings.optimize_after
    }

    /// Tries to lock the policy for learning and optimizing; `None` if another process holds the
    /// lock.
    ///
    /// # Errors
    /// Errors of storage.
    pub(crate) fn try_lock(&self) -> Result<Option<Box<dyn Lock>>> {
        self.sidecar.try_lock(DIRECTORY)
    }

    fn is_running(&self) -> bool {
        matches!(self.try_lock(), Ok(None))
    }

    /// Returns the time at which a run was claimed; `None` if no run is claimed.
    fn claimed_at(&self) -> Option<SystemTime> {
        self.changed_at(CLAIMED)
    }

    /// Returns the time of a file's last modification.
    fn changed_at(&self, name: &str) -> Option<SystemTime> {
        let version = self.sidecar.version_of(name)?;
        Some(UNIX_EPOCH + Duration::from_nanos(u64::try_from(version.modified_ns).ok()?))
    }

    /// True if a run that was claimed at this time is lost. The caller holds the lock, so no run is
    /// active.
    fn is_abandoned(&self, claimed_at: SystemTime) -> bool {
        let age = claimed_at.elapsed().unwrap_or_else(|ahead| ahead.duration());
        age > BEGINS_WITHIN || self.has_been_stopped(claimed_at)
    }

    /// True if a run began after this claim and did not end.
    fn has_been_stopped(&self, claimed_at: SystemTime) -> bool {
        let is_newer = self.changed_at(OUTCOME).is_some_and(|written| written > claimed_at);
        let is_stopped = |outcome: PolicyOutcome| outcome.ended == 0 && outcome.error.is_empty();
        is_newer && self.outcome().is_some_and(is_stopped)
    }

    /// Claims a run, with the reads counted so far; false if another process did, or there are
    /// none.
    fn claim(&self) -> bool {
        self.sidecar.rename(READS, CLAIMED) && self.touch_claimed()
    }

    /// Sets the time of the claim. The file server gives the time: its clock may differ from this
    /// machine's.
    fn touch_claimed(&self) -> bool {
        self.sidecar.put(CLAIMED, b"").is_ok()
    }

    /// Removes the claim of a finished run.
    pub(crate) fn settle(&self) {
        let _ = self.sidecar.remove(CLAIMED);
    }

    pub(crate) fn state(&self, is_watched: bool) -> PolicyState {
        PolicyState {
            is_watched,
            settings: self.settings(),
            reads: self.reads(),
            is_running: self.is_running(),
            outcome: self.outcome(),
        }
    }
}

/// Sets the program that this process starts as `bedform`, with its arguments before the command.
/// Only the first call has an effect; without one, the program is looked up by name.
pub fn start_bedform_by(program: Vec<OsString>) {
    let _ = PROGRAM.set(program);
}

/// The policy of a source in a process that records its reads.
#[derive(Debug)]
pub(super) struct PolicyFollower {
    place: PolicyPlace,
    child: Option<Child>,
}

impl PolicyFollower {
    pub(super) fn new(sidecar: &Sidecar) -> Option<Self> {
        let place = PolicyPlace::new(sidecar)?;
        place.settings()?;
        Some(Self { place, child: None })
    }

    /// Adds `count` recorded reads, and starts a run if it is due.
    pub(super) fn note_reads(&mut self, count: u64) {
        // Reaps a finished child.
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
        // The settings may have changed or gone.
        let Some(settings) = self.place.settings() else { return };
        self.place.sidecar.append(READS, &count.to_le_bytes());
        let is_due = self.place.claimed_at().is_some() || self.place.has_read(&settings);
        if is_due && self.may_start(&settings) {
            self.start(&settings);
        }
    }

    /// True in one of the processes that ask, if no run is active or starting. Further reads count
    /// for the next run.
    fn may_start(&self, settings: &PolicySettings) -> bool {
        let Ok(Some(_lock)) = self.place.try_lock() else { return false };
        match self.place.claimed_at() {
            Some(at) => self.place.is_abandoned(at) && self.place.touch_claimed(),
            None => self.place.has_read(settings) && self.place.claim(),
        }
    }

    fn start(&mut self, settings: &PolicySettings) {
        let named = vec![OsString::from("bedform")];
        let program = PROGRAM.get().unwrap_or(&named);
        let Some((program, before)) = program.split_first() else { return };
        let source = self.place.sidecar.source().filter(|source| source.exists());
        let path = source.map_or_else(|| PathBuf::from(&settings.path), Path::to_owned);
        let started = Command::new(program)
            .args(before)
            .args(["optimize", "--by-policy", "--json", "--"])
            .arg(path)
            .env(VARIABLE, "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A process group of its own: the terminal's interrupt key must not stop it.
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => self.child = Some(child),
            Err(error) => self.place.keep_outcome(&PolicyOutcome {
                error: format!("{} could not be started: {error}", program.display()),
                ..PolicyOutcome::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// A source with a policy after 100 reads, and two processes that follow it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("bedform-{name}-{}", std::process::id()));
            fs::create_dir_all(place.join("s.zarr")).unwrap();
            Self(place)
        }

        fn follower(&self) -> PolicyFollower {
            let sidecar = Sidecar::of_path_in(&self.0.join("s.zarr"), Some(&self.0)).unwrap();
            let sidecar = sidecar.unwrap();
            let place = PolicyPlace::new(&sidecar).unwrap();
            assert!(place.set(&settings()));
            PolicyFollower::new(&sidecar).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn settings() -> PolicySettings {
        PolicySettings::new(100, None, "s".to_owned())
    }

    fn file(place: &PolicyPlace, name: &str) -> PathBuf {
        place.sidecar.own_directory().unwrap().join(name)
    }

    /// Sets a file's modification time back by `seconds`.
    fn age(place: &PolicyPlace, name: &str, seconds: u64) {
        let file = File::options().write(true).open(file(place, name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    fn count(place: &PolicyPlace, reads: u64) {
        assert!(place.sidecar.append(READS, &reads.to_le_bytes()));
    }

    #[test]
    fn a_run_that_is_due_is_started_once_and_again_only_where_it_is_lost() {
        let scratch = Scratch::new("policy-started-once");
        let (one, other) = (scratch.follower(), scratch.follower());
        assert!(!one.may_start(&settings()));
        count(&one.place, 99);
        assert!(!one.may_start(&settings()));
        count(&one.place, 1);
        assert!(one.may_start(&settings()));
        // The run has not begun, so no process holds the lock.
        assert!(!one.may_start(&settings()) && !other.may_start(&settings()));
        count(&one.place, 500);
        assert!(!other.may_start(&settings()));
        let lock = one.place.try_lock().unwrap().unwrap();
        age(&one.place, CLAIMED, 30);
        one.place.keep_outcome(&PolicyOutcome::begun(7));
        assert!(!other.may_start(&settings()));
        // The run was killed.
        drop(lock);
        assert!(other.may_start(&settings()));
        age(&one.place, OUTCOME, 1);
        assert!(!one.may_start(&settings()) && !other.may_start(&settings()));
        // The second run never began.
        age(&one.place, CLAIMED, 3600);
        assert!(one.may_start(&settings()));
        assert!(!other.may_start(&settings()));
        // Reads recorded during a run count after its end.
        one.place.settle();
        assert!(other.may_start(&settings()));
    }

    #[test]
    fn one_that_could_not_be_started_is_tried_again_a_minute_later() {
        let scratch = Scratch::new("policy-not-started");
        let follower = scratch.follower();
        count(&follower.place, 100);
        assert!(follower.may_start(&settings()));
        age(&follower.place, CLAIMED, 30);
        let error = "bedform could not be started".to_owned();
        follower.place.keep_outcome(&PolicyOutcome { error, ..PolicyOutcome::default() });
        assert!(!follower.may_start(&settings()));
        age(&follower.place, CLAIMED, 90);
        assert!(follower.may_start(&settings()));
    }

    #[test]
    fn counts_are_added_up_however_many_there_are_and_a_file_beyond_bounds_is_due() {
        let scratch = Scratch::new("policy-counts");
        let follower = scratch.follower();
        let reads = file(&follower.place, READS);
        fs::write(&reads, 3_u64.to_le_bytes().repeat(200_000)).unwrap();
        assert!(follower.place.sidecar.append(READS, &[1, 2, 3]));
        assert_eq!((follower.place.reads(), follower.place.is_full()), (600_000, false));
        fs::write(&reads, [0; 8]).unwrap();
        File::options().write(true).open(&reads).unwrap().set_len(1 << 40).unwrap();
        assert_eq!((follower.place.reads(), follower.place.is_full()), (0, true));
        assert!(follower.may_start(&settings()));
    }
}
