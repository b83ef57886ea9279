//! Merges the blocks of traces into the knowledge of arrays.

use std::collections::{BTreeMap, HashMap};

use bedform_format::trace::knowledge::{ARRAYS_MAX, Explained, LearnedArray, ReplicaUse};
use bedform_format::trace::{TraceBlock, TracedRead, TracedReplica};
use bedform_geometry::Selection;
use bedform_patterns::{Analyzer, Pattern, Walk};

use super::computations::Computations;
use super::form::{SelectionSteps, place_of, range_of};
use super::identity::{StoreKey, is_other};
use super::kinds::count_read;
use super::knowledge::PATTERNS_MAX;
use super::processes::{GLOBALS_MAX, PARTS_MAX, ProcessWalk, globals};
use super::queries::count_queries;
use super::selections::CountedSelections;
use crate::error::Result;
use crate::threads::workers::check_cancelled;

/// The most bytes of memory for the unfinished patterns of one trace.
const FOLLOWED_BYTES_MAX: usize = 256 << 20;
/// Bytes of memory for a followed array, without its patterns.
const FOLLOWED_BYTES: usize = 1 << 10;
/// The most encoded bytes of new patterns in one call.
const PATTERN_BYTES_MAX: usize = 64 << 20;
/// The most replicas with counted use; the use of further ones is ignored.
const REPLICAS_COUNTED_MAX: usize = 1 << 16;
/// The most reads of one trace that are merged.
const READS_MAX: usize = 1 << 24;
/// Small reads that belong to the loading of a whole array: before it loads a coordinate, xarray
/// reads its first and its last element.
const READS_OF_LOADING: u64 = 2;

/// The knowledge of a source while traces are added.
pub(super) struct TraceMerger<'a> {
    arrays: &'a mut BTreeMap<String, LearnedArray>,
    replicas: &'a mut BTreeMap<String, ReplicaUse>,
    /// Counted selections, by path of the array.
    selections: BTreeMap<String, CountedSelections>,
    computations: Computations,
    source: StoreKey,
    /// The walk of each process over each array, if its reads are one walk.
    parts: BTreeMap<String, Vec<ProcessWalk>>,
    parts_count: usize,
    /// Encoded bytes of the new patterns.
    pattern_bytes: usize,
    /// Reads of other sources.
    ignored: u64,
}

/// Results of merging that are not part of the knowledge yet.
pub(super) struct MergedTraces {
    /// Counted selections, by path of the array.
    pub(super) selections: BTreeMap<String, CountedSelections>,
    /// Reads of other sources.
    pub(super) ignored: u64,
}

/// The reads of one array by one process, in order.
#[derive(Clone, Default)]
struct FollowedArray {
    analyzer: Analyzer,
    form: SelectionSteps,
    /// The number of reads other than those of the whole array, and the times at which the first
    /// and the last began.
    reads: u64,
    times_ns: Option<(u64, u64)>,
    /// The number of reads of the whole array.
    whole_reads: u64,
    /// True if the analyzer has not seen all of these reads.
    is_part: bool,
    /// Predicted reads, by kind of pattern.
    predicted: BTreeMap<&'static str, Explained>,
    /// The analyzer's memory at the last check, in bytes.
    bytes: usize,
}

impl<'a> TraceMerger<'a> {
    /// Starts to merge into the knowledge of `source`.
    pub(super) fn new(
        arrays: &'a mut BTreeMap<String, LearnedArray>,
        replicas: &'a mut BTreeMap<String, ReplicaUse>,
        source: StoreKey,
    ) -> Self {
        Self {
            arrays,
            replicas,
            selections: BTreeMap::new(),
            computations: Computations::default(),
            source,
            parts: BTreeMap::new(),
            parts_count: 0,
            pattern_bytes: 0,
            ignored: 0,
        }
    }

    /// Merges the blocks of one trace.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn add(&mut self, blocks: impl Iterator<Item = TraceBlock>) -> Result<()> {
        let mut followed: HashMap<String, FollowedArray> = HashMap::new();
        let (mut reads, mut bytes) = (0, 0);
        for block in blocks {
            check_cancelled("learning was stopped")?;
            reads += block.reads.len();
            if reads > READS_MAX {
                break;
            }
            let path = block.array.path.clone();
            if is_other(&block.source, &self.source) {
                let all = block.weight.saturating_mul(block.reads.len() as u64);
                self.ignored = self.ignored.saturating_add(all);
                continue;
            }
            if !self.arrays.contains_key(&path) && self.arrays.len() >= ARRAYS_MAX {
                continue;
            }
            let one = followed.entry(path).or_default();
            self.add_block(one, block);
            let now = FOLLOWED_BYTES + one.analyzer.heap_bytes();
            bytes = bytes + now - std::mem::replace(&mut one.bytes, now);
            if bytes > FOLLOWED_BYTES_MAX {
                let ended = FollowedArray { is_part: true, ..FollowedArray::default() };
                for (path, one) in &mut followed {
                    self.keep([(path.clone(), std::mem::replace(one, ended.clone()))]);
                }
                bytes = 0;
            }
            if self.computations.is_full() {
                self.add_computations()?;
            }
        }
        followed.iter().for_each(|(path, one)| self.note_part(path, one));
        self.keep(followed);
        Ok(())
    }

    /// Merges the waiting blocks of computations, and the walks of processes.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn finish(mut self) -> Result<MergedTraces> {
        self.add_computations()?;
        for (path, parts) in self.parts {
            let Some(array) = self.arrays.get_mut(&path) else { continue };
            let known = &mut array.global.0;
            for global in globals(parts) {
                known.retain(|other| !other.is_of_same_reads(&global));
                known.push(global);
            }
            known.drain(..known.len().saturating_sub(GLOBALS_MAX));
        }
        Ok(MergedTraces { selections: self.selections, ignored: self.ignored })
    }

    /// Notes the walk of a process over an array, if all its reads are one walk.
    fn note_part(&mut self, path: &str, one: &FollowedArray) {
        let is_complete = !one.is_part && !one.is_loaded();
        let Some((began_ns, ended_ns)) = one.times_ns.filter(|_| is_complete) else { return };
        let walk = one.analyzer.walks().find(|walk| walk.count() == one.reads);
        if let Some(walk) = walk.filter(|_| self.parts_count < PARTS_MAX) {
            self.parts_count += 1;
            self.parts.entry(path.to_owned()).or_default().push(ProcessWalk {
                began_ns,
                ended_ns,
                walk,
            });
        }
    }

    fn add_block(&mut self, one: &mut FollowedArray, block: TraceBlock) {
        let TraceBlock { weight, array: traced, mut reads, replicas, queries, .. } = block;
        replicas.iter().for_each(|replica| self.add_use(replica));
        let array = self.arrays.entry(traced.path.clone()).or_default();
        let selections = self.selections.entry(traced.path.clone()).or_default();
        (array.shape, array.item_size) = (traced.shape, traced.item_size);
        count_queries(&mut array.queries, &array.shape, &queries);
        order(&mut reads);
        for read in reads {
            // An empty read: Dask reads an empty selection to learn the type of the result.
            if !read.is_list && read.axes.iter().any(|axis| axis.count == 0) {
                continue;
            }
            // A weighted block lacks the reads that it stands for, so its computations are
            // incomplete.
            match read.computation {
                1.. if weight == 1 => self.computations.add(&traced.path, read),
                _ => {
                    one.is_part |= weight > 1;
                    add_read(array, selections, one, &read, weight);
                }
            }
        }
    }

    /// Adds the use of a replica by recorded reads.
    fn add_use(&mut self, traced: &TracedReplica) {
        if !self.replicas.contains_key(&traced.id) && self.replicas.len() >= REPLICAS_COUNTED_MAX {
            return;
        }
        let used = self.replicas.entry(traced.id.clone()).or_default();
        used.reads = used.reads.saturating_add(traced.reads);
        used.bytes = used.bytes.saturating_add(traced.bytes);
        used.seconds += traced.took_ns as f64 * 1e-9;
        used.last_ns = used.last_ns.max(traced.last_ns);
    }

    fn add_computations(&mut self) -> Result<()> {
        for (path, reads) in self.computations.take()? {
            let mut one = FollowedArray::default();
            if let Some(array) = self.arrays.get_mut(&path) {
                let selections = self.selections.entry(path.clone()).or_default();
                reads.iter().for_each(|read| add_read(array, selections, &mut one, read, 1));
            }
            self.keep([(path, one)]);
        }
        Ok(())
    }

    /// Adds the patterns of these reads to the knowledge.
    fn keep(&mut self, followed: impl IntoIterator<Item = (String, FollowedArray)>) {
        for (path, one) in followed {
            let Some(array) = self.arrays.get_mut(&path).filter(|_| !one.is_loaded()) else {
                continue;
            };
            for (kind, Explained { reads, bytes }) in one.predicted {
                array.predicted.entry(kind.to_owned()).or_default().add(reads, bytes);
            }
            let known = &mut array.patterns.0;
            for pattern in one.analyzer.patterns() {
                let before = known.len();
                known.retain(|other| !is_same(other, &pattern));
                if known.len() == before {
                    self.pattern_bytes += serde_json::to_vec(&pattern).map_or(0, |json| json.len());
                }
                if self.pattern_bytes <= PATTERN_BYTES_MAX {
                    known.push(pattern);
                }
            }
            known.drain(..known.len().saturating_sub(PATTERNS_MAX));
        }
    }
}

/// Sorts reads by their begin; they were recorded at their end. The order of one thread's reads
/// stays, even if the clock was set back.
fn order(reads: &mut Vec<TracedRead>) {
    let mut newest: HashMap<u64, u64> = HashMap::new();
    let times = reads.iter().map(|read| {
        let newest = newest.entry(read.stream).or_default();
        *newest = (*newest).max(read.began_ns);
        *newest
    });
    let mut timed: Vec<(u64, TracedRead)> =
        times.collect::<Vec<_>>().into_iter().zip(reads.drain(..)).collect();
    timed.sort_by_key(|(time, _)| *time);
    reads.extend(timed.into_iter().map(|(_, read)| read));
}

/// True for patterns with the same start and steps, of any length.
fn is_same<'a>(one: &'a Pattern, other: &'a Pattern) -> bool {
    match (one, other) {
        (Pattern::Walk(one), Pattern::Walk(other)) => {
            let steps = |walk: &'a Walk| walk.levels.iter().map(|level| &level.step);
            one.start == other.start && steps(one).eq(steps(other))
        }
        (Pattern::Contiguous(one), Pattern::Contiguous(other)) => one.start == other.start,
        (one, other) => one == other,
    }
}

impl FollowedArray {
    /// True for an array that is only loaded, such as an index coordinate of a data set: it has no
    /// more reads than those that belong to its loadings.
    fn is_loaded(&self) -> bool {
        self.whole_reads > 0 && self.reads <= READS_OF_LOADING.saturating_mul(self.whole_reads)
    }
}

/// Adds a read, which stands for `weight` reads, to an array, its selections and its followed
/// reads.
fn add_read(
    array: &mut LearnedArray,
    selections: &mut CountedSelections,
    followed: &mut FollowedArray,
    read: &TracedRead,
    weight: u64,
) {
    let bytes = read.bytes.saturating_mul(weight);
    let count = |explained: &mut Explained| explained.add(weight, bytes);
    count(&mut array.read);
    #[allow(clippy::cast_precision_loss)]
    let seconds = read.took_ns as f64 * 1e-9 * weight as f64;
    array.seconds += seconds;
    if read.was_ahead {
        count(&mut array.was_ahead);
    }
    count_read(&mut array.kinds, &array.shape, read, weight);
    selections.count(&array.shape, read, weight);
    let Some((form, place)) = box_of(read).as_ref().and_then(place_of) else {
        followed.is_part = true;
        count(&mut array.lists);
        return;
    };
    if is_whole(read, &array.shape) {
        // The patterns of the other reads continue after it.
        followed.whole_reads = followed.whole_reads.saturating_add(1);
        return;
    }
    if form != followed.form {
        followed.is_part |= followed.reads > 0;
        followed.analyzer = Analyzer::default();
        followed.form = form;
    }
    followed.reads = followed.reads.saturating_add(1);
    let (first, last) = followed.times_ns.unwrap_or((read.began_ns, read.began_ns));
    followed.times_ns = Some((first.min(read.began_ns), last.max(read.began_ns)));
    if let Some(kind) = followed.analyzer.push(place).predicted {
        count(followed.predicted.entry(kind.name()).or_default());
    }
}

/// True for a read of all elements of an array of `shape`.
fn is_whole(read: &TracedRead, shape: &[u64]) -> bool {
    read.axes.len() == shape.len()
        && read.axes.iter().zip(shape).all(|(axis, length)| axis.count == *length)
}

/// Returns the box that a read took; `None` for lists and malformed axes.
fn box_of(read: &TracedRead) -> Option<Selection> {
    let axes = read.axes.iter().copied().map(range_of).collect::<Option<_>>();
    axes.filter(|_| !read.is_list).map(Selection::Orthogonal)
}

#[cfg(test)]
mod tests {
    use bedform_format::trace::TracedAxis;

    use super::*;

    fn read(stream: u64, began_ns: u64, first: u64) -> TracedRead {
        TracedRead {
            stream,
            computation: 0,
            began_ns,
            took_ns: 1,
            bytes: 8,
            was_ahead: false,
            is_list: false,
            selection: 0,
            axes: vec![TracedAxis { first, count: 1, step: 1 }],
        }
    }

    #[test]
    fn a_clock_that_jumps_back_leaves_the_reads_of_a_thread_in_order() {
        let mut reads =
            vec![read(1, 10, 0), read(2, 9, 0), read(1, 20, 1), read(1, 3, 2), read(2, 15, 1)];
        order(&mut reads);
        let seen: Vec<_> = reads.iter().map(|read| (read.stream, read.axes[0].first)).collect();
        assert_eq!(seen, [(2, 0), (1, 0), (2, 1), (1, 1), (1, 2)]);
    }
}
