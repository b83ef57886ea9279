//! Reasons why sidecars were not read, each reported once in a process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// The most lines that are remembered; further ones are dropped.
const LINES_MAX: usize = 64;

/// Lines that were reported, or wait to be.
static LINES: Mutex<WarningLines> =
    Mutex::new(WarningLines { all: BTreeSet::new(), waiting: Vec::new() });

/// All lines of this process, and those that were not reported yet.
struct WarningLines {
    all: BTreeSet<String>,
    waiting: Vec<String>,
}

/// Adds a line to report, if it is new.
pub(super) fn tell(line: String) {
    // A forked child may inherit the lock as held by a thread that it lacks.
    let Ok(mut lines) = LINES.try_lock() else { return };
    if lines.all.len() < LINES_MAX && lines.all.insert(line.clone()) {
        lines.waiting.push(line);
    }
}

/// Drops the lines about a sidecar that counts from now on.
pub(super) fn forget(path: &Path) {
    let Ok(mut lines) = LINES.try_lock() else { return };
    let beginning = format!("{} ", path.display());
    lines.all.retain(|line| !line.starts_with(&beginning));
    lines.waiting.retain(|line| !line.starts_with(&beginning));
}

/// Returns, one line each, the sidecars that were not read since the last call, with the reasons.
/// Python, C and the command line show the lines after they have opened a store or file.
pub fn take_warnings() -> Vec<String> {
    LINES.try_lock().map(|mut lines| std::mem::take(&mut lines.waiting)).unwrap_or_default()
}
