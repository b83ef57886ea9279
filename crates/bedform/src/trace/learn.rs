//! Traces into knowledge.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use bedform_format::trace::{TraceBlock, TracedAxis, TracedRead, blocks, whole_bytes};
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_patterns::{Analyzer, Pattern};
use serde::Serialize;

use super::TRACES;
use super::form::{Form, place_of};
use super::knowledge::{ARRAYS_MAX, Explained, Knowledge, LIST, LearnedArray, PATTERNS_MAX};
use super::record::FILE_BYTES_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Progress;
use crate::sidecar::Sidecar;
use crate::threads::workers::check_goes_on;

/// Traces that are looked at in one call, oldest first.
const FILES_MAX: usize = 20_000;
/// A trace may be larger than its writer meant by what it wrote last.
const SLACK: u64 = 8 << 20;
/// Arrays of one trace that are followed at a time.
const FOLLOWED_MAX: usize = 1024;

/// What [`learn`] has found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Learned {
    /// Traces that had something new.
    pub traces: u64,
    /// Traces that could not be read, were of somebody else, or held nothing that is valid.
    pub left_out: u64,
    /// What is known now, of these and earlier traces.
    pub knowledge: Knowledge,
}

/// Merges the traces of the store or file at `path` into what is known of its reads, and keeps that in the sidecar.
/// Traces stay where they are; what was merged before is not merged again. `progress` is told traces that are done,
/// of how many.
///
/// # Errors
/// `NotFound` if there is no sidecar, and nothing was recorded; `Conflict` if others learn at the same time;
/// `Interrupted`: what is known then is as before.
pub fn learn(path: &Path, progress: Progress<'_>) -> Result<Learned> {
    let none = || {
        let shown = path.display();
        let text = format!("{shown}: no reads were recorded: 'bedform watch {shown}' turns it on");
        Error::new(ErrorKind::NotFound, text)
    };
    let sidecar = Sidecar::of_path(path)?.ok_or_else(none)?;
    let directory = sidecar.own_directory().ok_or_else(none)?.join(TRACES);
    let number = sidecar.last_number(LIST);
    let knowledge = Knowledge::newest(&sidecar).unwrap_or_default();
    let names = names_of(&directory);
    if names.is_empty() && knowledge.arrays.is_empty() {
        return Err(none());
    }
    let mut learned = Learned { traces: 0, left_out: 0, knowledge };
    let mut merged = BTreeMap::new();
    for (done, name) in names.iter().enumerate() {
        check_goes_on("learning was stopped")?;
        progress(done as u64, names.len() as u64);
        let before = learned.knowledge.traces.get(name).copied().unwrap_or(0);
        let whole = match read_own(&directory.join(name), before) {
            Some(bytes) => {
                let whole = whole_bytes(&bytes) as u64;
                learned.traces += u64::from(whole > 0);
                learned.left_out += u64::from(whole == 0 && before == 0);
                merge(&mut learned.knowledge.arrays, blocks(&bytes));
                before + whole
            }
            None => {
                learned.left_out += 1;
                before
            }
        };
        merged.insert(name.clone(), whole);
    }
    // Those that are gone are not asked for again.
    learned.knowledge.traces = merged;
    if learned.traces == 0 {
        return Ok(learned);
    }
    match sidecar.save_next(LIST, &learned.knowledge) {
        Some(saved) if saved == number + 1 => Ok(learned),
        Some(_) => {
            let text = format!("{}: others have learnt meanwhile; learn again", path.display());
            Err(Error::new(ErrorKind::Conflict, text))
        }
        None => {
            let text = format!("{}: what was learnt cannot be kept in the sidecar", path.display());
            Err(Error::new(ErrorKind::Io, text))
        }
    }
}

/// The names of the traces, the oldest first.
fn names_of(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.truncate(FILES_MAX);
    names
}

/// What a trace of this user has from `offset` on; nothing for what is none.
fn read_own(path: &Path, offset: u64) -> Option<Vec<u8>> {
    use std::io::{Seek as _, SeekFrom};
    let mut file = fs::OpenOptions::new()
        .read(true)
        // A FIFO is not waited for.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let is_own = found.is_file() && found.uid() == rustix::process::geteuid().as_raw();
    if !is_own || found.len() > FILE_BYTES_MAX + SLACK {
        return None;
    }
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + SLACK).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The reads of one array of one trace, while they are followed.
#[derive(Default)]
struct Followed {
    analyzer: Analyzer,
    form: Form,
}

/// Adds the blocks of one trace.
fn merge(arrays: &mut BTreeMap<String, LearnedArray>, blocks: impl Iterator<Item = TraceBlock>) {
    let mut followed: HashMap<String, Followed> = HashMap::new();
    for block in blocks {
        let path = &block.array.path;
        if !arrays.contains_key(path) && arrays.len() >= ARRAYS_MAX {
            continue;
        }
        if followed.len() >= FOLLOWED_MAX && !followed.contains_key(path) {
            followed.drain().for_each(|(path, one)| keep_patterns(arrays, &path, &one.analyzer));
        }
        let array = arrays.entry(path.clone()).or_default();
        array.shape.clone_from(&block.array.shape);
        array.item_size = block.array.item_size;
        let one = followed.entry(path.clone()).or_default();
        // Reads of several threads are in the order in which they ended.
        let mut reads: Vec<&TracedRead> = block.reads.iter().collect();
        reads.sort_by_key(|read| read.began_ns);
        reads.into_iter().for_each(|read| array.add(one, read, block.weight));
    }
    followed.into_iter().for_each(|(path, one)| keep_patterns(arrays, &path, &one.analyzer));
}

fn keep_patterns(arrays: &mut BTreeMap<String, LearnedArray>, path: &str, analyzer: &Analyzer) {
    let Some(array) = arrays.get_mut(path) else { return };
    let known = &mut array.patterns.0;
    for pattern in analyzer.patterns() {
        known.retain(|other| !is_same(other, &pattern));
        known.push(pattern);
    }
    known.drain(..known.len().saturating_sub(PATTERNS_MAX));
}

/// True for a pattern that begins at the same place and goes on in the same way, however far.
fn is_same(one: &Pattern, other: &Pattern) -> bool {
    match (one, other) {
        (Pattern::Walk(one), Pattern::Walk(other)) => {
            let steps = |walk: &bedform_patterns::Walk| {
                walk.levels.iter().map(|level| level.step.clone()).collect::<Vec<_>>()
            };
            one.start == other.start && steps(one) == steps(other)
        }
        (Pattern::Contiguous(one), Pattern::Contiguous(other)) => one.start == other.start,
        (one, other) => one == other,
    }
}

impl LearnedArray {
    fn add(&mut self, followed: &mut Followed, read: &TracedRead, weight: u64) {
        let count = |explained: &mut Explained| {
            explained.reads = explained.reads.saturating_add(weight);
            explained.bytes = explained.bytes.saturating_add(read.bytes.saturating_mul(weight));
        };
        count(&mut self.read);
        #[allow(clippy::cast_precision_loss)]
        let seconds = read.took_ns as f64 * 1e-9 * weight as f64;
        self.seconds += seconds;
        if read.was_ahead {
            count(&mut self.was_ahead);
        }
        let Some((form, place)) = box_of(read).as_ref().and_then(place_of) else {
            count(&mut self.lists);
            return;
        };
        if form != followed.form {
            *followed = Followed { analyzer: Analyzer::default(), form };
        }
        if let Some(kind) = followed.analyzer.push(place).predicted {
            count(self.predicted.entry(kind.name().to_owned()).or_default());
        }
    }
}

/// The box that a read took; nothing for lists, and for what is none.
fn box_of(read: &TracedRead) -> Option<Selection> {
    let axis = |axis: &TracedAxis| {
        AxisRange::new(axis.first, axis.step, axis.count).ok().map(AxisSelection::Range)
    };
    let axes = read.axes.iter().map(axis).collect::<Option<_>>();
    axes.filter(|_| !read.is_list).map(Selection::Orthogonal)
}
