//! Replicas without being asked: after so many recorded reads a process of its own learns and optimises.
//!
//! The directory `policy` of a sidecar has what was asked for (`settings`), how many reads were recorded since (`reads`,
//! to which each process appends what it has written), and what came of it (`outcome`). Once they are enough, the
//! process that notices renames `reads` to `claimed`: of many processes one succeeds, and starts
//! `bedform optimize --by-policy` in the background. What is claimed is removed by that process when it has ended. So
//! where it was killed, or could not be started, `claimed` is still there, and the next process that records reads
//! starts it again.
//!
//! Nothing of this ever fails a read, or waits for more than the start of a process.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use bedform_format::chunk_map::SourceVersion;
use bedform_format::{Limits, ObjectPath};
use bedform_storage::{LocalStorage, Lock, Mode, Storage as _};
use serde::{Deserialize, Serialize};

use super::append;
use crate::error::Result;
use crate::sidecar::{Helper, Sidecar};

/// The directory of the policy, in a sidecar.
const DIRECTORY: &str = "policy";
const SETTINGS: &str = "policy/settings";
const OUTCOME: &str = "policy/outcome";
const READS: &str = "reads";
const CLAIMED: &str = "claimed";
const VERSION: u64 = 1;
/// Bytes of a helper file.
const BYTES_MAX: u64 = 64 << 10;
/// Bytes of counts that are added up; more are enough for whatever was asked.
const COUNTS_BYTES_MAX: u64 = 1 << 20;
/// Set for processes that this starts, whose reads are nobody's.
const VARIABLE: &str = "BEDFORM_TRACE";

/// What to run, with what comes before `optimize`.
static PROGRAM: OnceLock<Vec<String>> = OnceLock::new();

/// When to make replicas, and how much they may take.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicySettings {
    version: u64,
    /// After so many reads.
    pub optimize_after: u64,
    /// A share of the source, or a size.
    pub budget: String,
    /// The source, as it was named.
    pub path: String,
}

/// What came of a policy the last time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyOutcome {
    version: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// When it ended; 0 while it has not, or was killed.
    pub ended: u64,
    /// The share of the time of the reads that the plan saves, as predicted.
    pub gain: f64,
    /// Names of replicas that were made.
    pub made: Vec<String>,
    /// Names of replicas that are gone.
    pub dropped: Vec<String>,
    /// Bytes of all replicas then.
    pub bytes: u64,
    /// What was done, in words.
    pub verdict: String,
    /// What went wrong; empty if nothing did.
    pub error: String,
}

impl PolicyOutcome {
    /// What is known once it begins, at a time in seconds since 1970.
    pub(crate) fn begun(at: u64) -> Self {
        let verdict = "it runs, or was stopped".to_owned();
        Self { began: at, verdict, ..Self::default() }
    }
}

/// A policy as it stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PolicyState {
    /// True if reads are recorded.
    pub is_watched: bool,
    /// What was asked for.
    pub settings: Option<PolicySettings>,
    /// Reads that were recorded since the last time.
    pub reads: u64,
    /// True while a process learns and optimises.
    pub is_running: bool,
    /// What came of it the last time.
    pub outcome: Option<PolicyOutcome>,
}

fn decoded<T: for<'a> Deserialize<'a>>(bytes: &[u8], version: impl Fn(&T) -> u64) -> Option<T> {
    serde_json::from_slice(bytes).ok().filter(|found| version(found) == VERSION)
}

impl Helper for PolicySettings {
    const BYTES_MAX: u64 = BYTES_MAX;

    fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn decode(bytes: &[u8], _: &Limits) -> Option<Self> {
        decoded(bytes, |found: &Self| found.version)
            .filter(|found| found.optimize_after > 0 && !found.path.is_empty())
    }
}

impl PolicySettings {
    /// After so many reads of the source at `path`, within a budget.
    pub fn new(optimize_after: u64, budget: String, path: String) -> Self {
        Self { version: VERSION, optimize_after, budget, path }
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

/// The policy of a source.
#[derive(Debug, Clone)]
pub(crate) struct PolicyPlace {
    sidecar: Sidecar,
    directory: PathBuf,
}

impl PolicyPlace {
    /// That of the source with this sidecar; nothing where it is not on this machine.
    pub(crate) fn new(sidecar: &Sidecar) -> Option<Self> {
        let directory = sidecar.own_directory()?.join(DIRECTORY);
        Some(Self { sidecar: sidecar.clone(), directory })
    }

    pub(crate) fn settings(&self) -> Option<PolicySettings> {
        self.sidecar.load_own(SETTINGS, &SourceVersion::default(), &Limits::default())
    }

    /// True if they are kept now.
    pub(crate) fn set(&self, settings: &PolicySettings) -> bool {
        self.sidecar.save(SETTINGS, settings)
    }

    /// Forgets what was asked for; what came of it stays.
    pub(crate) fn unset(&self) {
        for name in ["settings", READS, CLAIMED] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }

    pub(crate) fn outcome(&self) -> Option<PolicyOutcome> {
        self.sidecar.load_own(OUTCOME, &SourceVersion::default(), &Limits::default())
    }

    pub(crate) fn keep_outcome(&self, outcome: &PolicyOutcome) {
        self.sidecar.save(OUTCOME, outcome);
    }

    /// Reads that were recorded since the last time.
    pub(crate) fn reads(&self) -> u64 {
        let Ok(file) = File::open(self.directory.join(READS)) else { return 0 };
        let mut bytes = Vec::new();
        let is_read = file.take(COUNTS_BYTES_MAX).read_to_end(&mut bytes).is_ok();
        if !is_read || bytes.len() as u64 >= COUNTS_BYTES_MAX {
            return u64::MAX;
        }
        let counts = bytes.as_chunks::<8>().0.iter().map(|count| u64::from_le_bytes(*count));
        counts.fold(0, u64::saturating_add)
    }

    /// The lock of the process that learns and optimises; nothing while another has it.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn try_lock(&self) -> Result<Option<Box<dyn Lock>>> {
        let storage = LocalStorage::open(&self.directory, Mode::ReadWrite)?;
        Ok(storage.try_lock(&ObjectPath::root())?)
    }

    fn is_running(&self) -> bool {
        self.directory.is_dir() && matches!(self.try_lock(), Ok(None))
    }

    fn is_claimed(&self) -> bool {
        fs::symlink_metadata(self.directory.join(CLAIMED)).is_ok()
    }

    /// Says that what was claimed is done.
    pub(crate) fn settle(&self) {
        let _ = fs::remove_file(self.directory.join(CLAIMED));
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

/// Says how this process starts `bedform`: the program, and what comes before the command. The first call counts;
/// without one it is found by its name.
pub fn start_bedform_by(program: Vec<String>) {
    let _ = PROGRAM.set(program);
}

/// A policy as a process that records reads follows it.
#[derive(Debug)]
pub(super) struct Followed {
    place: PolicyPlace,
    settings: PolicySettings,
    /// True once it was looked at whether an earlier start came to nothing.
    has_looked: bool,
    child: Option<Child>,
}

impl Followed {
    pub(super) fn new(sidecar: &Sidecar) -> Option<Self> {
        let place = PolicyPlace::new(sidecar)?;
        let settings = place.settings()?;
        Some(Self { place, settings, has_looked: false, child: None })
    }

    /// So many more reads were recorded.
    pub(super) fn note_reads(&mut self, count: u64) {
        // A child that has ended is let go of.
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
        let _ = append(&self.place.directory.join(READS), &count.to_le_bytes());
        let was_claimed = !std::mem::replace(&mut self.has_looked, true) && self.place.is_claimed();
        let is_due = was_claimed || self.place.reads() >= self.settings.optimize_after;
        // While one runs reads are counted for the next time.
        if is_due && !self.place.is_running() && (was_claimed || self.claim()) {
            self.start();
        }
    }

    /// True for one of all processes that try.
    fn claim(&self) -> bool {
        let of = |name: &str| self.place.directory.join(name);
        fs::rename(of(READS), of(CLAIMED)).is_ok()
    }

    fn start(&mut self) {
        let named = vec!["bedform".to_owned()];
        let program = PROGRAM.get().unwrap_or(&named);
        let Some((program, before)) = program.split_first() else { return };
        let source = self.place.sidecar.source().filter(|source| source.exists());
        let path = source.map_or_else(|| PathBuf::from(&self.settings.path), Path::to_owned);
        let started = Command::new(program)
            .args(before)
            .args(["optimize", "--by-policy", "--json", "--"])
            .arg(path)
            .env(VARIABLE, "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What stops this program by a key of the terminal is not meant for it.
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => self.child = Some(child),
            Err(error) => self.place.keep_outcome(&PolicyOutcome {
                error: format!("{program} could not be started: {error}"),
                ..PolicyOutcome::default()
            }),
        }
    }
}
