//! What keeps a sidecar from being read: said once in a process, to whoever asks.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// Lines that are remembered as said; more are not said.
const LINES_MAX: usize = 64;

/// Lines that were said, or wait to be.
static LINES: Mutex<Lines> = Mutex::new(Lines { all: BTreeSet::new(), waiting: Vec::new() });

struct Lines {
    all: BTreeSet<String>,
    waiting: Vec<String>,
}

/// Says a line, if it is new.
pub(super) fn tell(line: String) {
    // A forked child may find the lock held by a thread that it does not have.
    let Ok(mut lines) = LINES.try_lock() else { return };
    if lines.all.len() < LINES_MAX && lines.all.insert(line.clone()) {
        lines.waiting.push(line);
    }
}

/// Forgets what was said of a sidecar that counts from now on.
pub(super) fn forget(path: &Path) {
    let Ok(mut lines) = LINES.try_lock() else { return };
    let beginning = format!("{} ", path.display());
    lines.all.retain(|line| !line.starts_with(&beginning));
    lines.waiting.retain(|line| !line.starts_with(&beginning));
}

/// What was not read of sidecars and why, a line each, since this was asked last. A door shows it after it has opened
/// something.
pub fn take_warnings() -> Vec<String> {
    LINES.try_lock().map(|mut lines| std::mem::take(&mut lines.waiting)).unwrap_or_default()
}
