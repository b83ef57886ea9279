//! Collects the reads and queries of a process, and appends them to its trace: one file per source,
//! shared by all handles.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bedform_format::trace::query::{
    BLOCK_QUERIES_MAX, CONDITION_BYTES_MAX, QueryTally, TracedCondition, TracedQuery,
};
use bedform_format::trace::{
    BLOCK_READS_MAX, BLOCK_REPLICAS_MAX, TraceBlock, TracedArray, TracedAxis, TracedRead,
    TracedReplica,
};
use bedform_geometry::{AxisSelection, Selection};

use super::form::traced_range;
use super::recorded::{SelectionRecorder, traced};
use super::{TRACES, identity, make_room, policy};
use crate::sidecar::Sidecar;
use crate::threads::per_process::{PerProcess, generation};

/// The most bytes of one process's trace; later reads are not recorded.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of all traces of a source; beyond it the oldest are removed.
pub const ALL_BYTES_MAX: u64 = 1 << 30;
/// The most traces of a source; beyond it the oldest are removed.
const FILES_MAX: usize = 10_000;
/// The longest time that a read waits in memory.
const WAITING_MAX: Duration = Duration::from_secs(10);
/// The most sources with an open trace; one more starts new trace files for all of them.
const SOURCES_MAX: usize = 256;
/// The most arrays with waiting reads.
const ARRAYS_MAX: usize = 256;
/// The number of positions at each end of a list that the box around it is computed from.
const POINTS_MAX: usize = 1 << 15;

/// Returns the computation number of the calling thread's last read; 0 for none.
static COMPUTATION: OnceLock<fn() -> u64> = OnceLock::new();
static PROCESS: PerProcess<Mutex<Traces>> = PerProcess::new();

/// The target of the recorded reads of a handle and its snapshots: the sidecar. Waiting reads are
/// written when it is dropped.
#[derive(Debug)]
pub(crate) struct TraceTarget {
    /// Its number in this process.
    id: u64,
    /// The directory of the sidecar.
    directory: PathBuf,
    sidecar: Sidecar,
}

impl TraceTarget {
    /// Makes the target of a handle whose source has this sidecar; `None` if the sidecar is not
    /// writable here.
    pub(crate) fn new(sidecar: &Sidecar) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self { id, directory: sidecar.own_directory()?, sidecar: sidecar.clone() })
    }
}

impl Drop for TraceTarget {
    fn drop(&mut self) {
        let Some(traces) = PROCESS.existing() else { return };
        let mut traces = traces.lock().unwrap_or_else(PoisonError::into_inner);
        let number = traces.handles.remove(&self.id);
        if let Some((_, trace)) = number.and_then(|number| traces.all.get_mut(number)) {
            trace.flush();
        }
    }
}

/// The traces of this process.
#[derive(Debug, Default)]
struct Traces {
    /// Traces with the directories of their sidecars.
    all: Vec<(PathBuf, Trace)>,
    /// The index of each handle's trace, so that a read looks up no path.
    handles: BTreeMap<u64, usize>,
}

/// The trace of one source: its file and its waiting reads.
#[derive(Debug)]
struct Trace {
    sidecar: Sidecar,
    /// The path of the trace in the sidecar.
    file: String,
    /// The key of the store; zeros where there is none.
    source: [u8; 16],
    written: u64,
    /// Reads since the last recorded one.
    skipped: u64,
    /// Waiting reads, by path of the array.
    waiting: HashMap<Box<str>, WaitingReads>,
    selections: SelectionRecorder,
    /// The policy of the source, if it has one.
    policy: Option<policy::PolicyFollower>,
    /// Recorded reads that the policy does not know of yet.
    unnoted: u64,
    flushed: Instant,
}

/// Waiting reads and queries of one array; each read has its weight: the number of reads that it
/// stands for.
#[derive(Debug)]
struct WaitingReads {
    array: TracedArray,
    reads: Vec<(u64, TracedRead)>,
    replicas: BTreeMap<String, TracedReplica>,
    queries: BTreeMap<TracedCondition, QueryTally>,
}

/// A finished read, as it is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeRead<'a> {
    /// Bytes of the result.
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    /// True if the elements had been read ahead.
    pub(crate) was_ahead: bool,
    /// Names of the replicas that supplied elements, with their bytes.
    pub(crate) replicas: &'a [(String, u64)],
}

fn lock() -> MutexGuard<'static, Traces> {
    let traces = PROCESS.get(|_| Mutex::default());
    traces.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers `ask`, which returns the computation number of a recorded read, 0 for none. It is
/// called on the reading thread. Only the first call has an effect.
pub fn ask_for_computations(ask: fn() -> u64) {
    let _ = COMPUTATION.set(ask);
}

/// Records a read of `array`, given by path, shape and item size, that has just ended.
pub(crate) fn record(
    place: &TraceTarget,
    array: (&str, &[u64], u64),
    selection: &Selection,
    made: &MadeRead<'_>,
) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began_ns = nanoseconds(now.saturating_sub(made.took));
    let noted = lock().of(place).and_then(|trace| {
        trace.note_replicas(array, made, began_ns);
        trace.next_weight()
    });
    let Some(weight) = noted else { return };
    // Outside the lock: `ask` may wait for other reading threads, and a long list takes time to
    // hash.
    let computation = COMPUTATION.get().map_or(0, |ask| ask());
    let listed = traced(selection);
    let hash = listed.as_ref().map_or(0, |listed| listed.hash());
    let (axes, is_list) = axes_of(selection, array.1.len());
    let read = TracedRead {
        stream: thread_number(),
        computation,
        began_ns,
        took_ns: nanoseconds(made.took),
        bytes: made.bytes,
        was_ahead: made.was_ahead,
        is_list,
        selection: hash,
        axes,
    };
    let mut traces = lock();
    let Some(trace) = traces.of(place) else { return };
    trace.keep(array, (weight, read));
    let Some(listed) = listed else { return };
    if trace.selections.wants(array.0, hash, listed.positions()) {
        drop(traces);
        let block = listed.encode(hash).unwrap_or_default();
        if let Some(trace) = lock().of(place) {
            trace.selections.keep(array.0, &block);
        }
    }
}

/// Records a query that has just ended, by its use of `array`, given by path, shape and item size.
/// A condition that is too long to record counts as one without text.
pub(crate) fn record_query(
    place: &TraceTarget,
    array: (&str, &[u64], u64),
    mut condition: TracedCondition,
    tally: &QueryTally,
) {
    if condition.text.len() > CONDITION_BYTES_MAX {
        condition.text.clear();
    }
    if let Some(trace) = lock().of(place) {
        trace.note_query(array, condition, tally);
    }
}

impl Traces {
    /// Returns the trace of the source of a handle.
    fn of(&mut self, place: &TraceTarget) -> Option<&mut Trace> {
        let number = match self.handles.get(&place.id) {
            Some(number) => *number,
            None => self.add_handle(place),
        };
        self.all.get_mut(number).map(|(_, trace)| trace)
    }

    fn add_handle(&mut self, place: &TraceTarget) -> usize {
        let known = self.all.iter().position(|(directory, _)| *directory == place.directory);
        let number = known.unwrap_or_else(|| {
            if self.all.len() >= SOURCES_MAX {
                self.all.drain(..).for_each(|(_, mut trace)| trace.flush());
                self.handles.clear();
            }
            self.all.push((place.directory.clone(), Trace::new(place)));
            self.all.len() - 1
        });
        self.handles.insert(place.id, number);
        number
    }
}

/// Returns the system's number of this thread; one system call per thread.
fn thread_number() -> u64 {
    thread_local! {
        /// With the generation of the process: a forked child has another number.
        static KNOWN: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    }
    let now = generation();
    let known = KNOWN.get().filter(|(generation, _)| *generation == now);
    let (_, number) = known.unwrap_or_else(|| {
        (now, u64::try_from(rustix::thread::gettid().as_raw_pid()).unwrap_or(0))
    });
    KNOWN.set(Some((now, number)));
    number
}

/// Writes the waiting reads of all handles; called at the end of a process.
pub fn keep_traces() {
    let Some(traces) = PROCESS.existing() else { return };
    let mut traces = traces.lock().unwrap_or_else(PoisonError::into_inner);
    traces.all.iter_mut().for_each(|(_, trace)| trace.flush());
}

impl Trace {
    fn new(place: &TraceTarget) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut random = [0_u8; 4];
        // If this fails, names still differ by time and process.
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let name = format!(
            "{:016x}-{:08x}-{:08x}",
            nanoseconds(now),
            std::process::id(),
            u32::from_le_bytes(random),
        );
        Self {
            file: format!("{TRACES}/{name}"),
            selections: SelectionRecorder::new(place.sidecar.clone(), &name),
            sidecar: place.sidecar.clone(),
            source: place.sidecar.source().map(identity::key_of).unwrap_or_default(),
            policy: policy::PolicyFollower::new(&place.sidecar),
            unnoted: 0,
            written: 0,
            skipped: 0,
            waiting: HashMap::new(),
            flushed: Instant::now(),
        }
    }

    /// Returns the number of reads that the next recorded one stands for; 0 once the trace is full.
    /// It is four times as large in each quarter of the file: 1, 4, 16, 64.
    fn weight(&self) -> u64 {
        match 4 * self.written / FILE_BYTES_MAX {
            quarter @ 0..4 => 1 << (2 * quarter),
            _ => 0,
        }
    }

    /// Returns the weight of a read that has just ended; `None` if another read stands for it.
    fn next_weight(&mut self) -> Option<u64> {
        let weight = self.weight();
        self.skipped += 1;
        if weight == 0 || self.skipped < weight {
            return None;
        }
        self.skipped = 0;
        Some(weight)
    }

    fn keep(&mut self, array: (&str, &[u64], u64), read: (u64, TracedRead)) {
        self.unnoted += read.0;
        let Some(waiting) = self.waiting_of(array) else { return };
        waiting.reads.push(read);
        if waiting.reads.len() >= BLOCK_READS_MAX || self.flushed.elapsed() >= WAITING_MAX {
            self.flush();
        }
    }

    /// Returns the entry for an array's waiting reads; makes it if needed.
    fn waiting_of(
        &mut self,
        (path, shape, item_size): (&str, &[u64], u64),
    ) -> Option<&mut WaitingReads> {
        let has_this_shape = self.waiting.get(path).map(|known| known.array.shape == shape);
        if has_this_shape != Some(true) {
            if has_this_shape.is_some() || self.waiting.len() >= ARRAYS_MAX {
                self.flush();
            }
            let array = TracedArray { path: path.into(), shape: shape.to_vec(), item_size };
            let (replicas, queries) = (BTreeMap::new(), BTreeMap::new());
            let waiting = WaitingReads { array, reads: Vec::new(), replicas, queries };
            self.waiting.insert(path.into(), waiting);
        }
        self.waiting.get_mut(path)
    }

    /// Adds the elements that replicas supplied to a read to their use.
    fn note_replicas(&mut self, array: (&str, &[u64], u64), made: &MadeRead<'_>, began_ns: u64) {
        if made.replicas.is_empty() || self.weight() == 0 {
            return;
        }
        let Some(WaitingReads { replicas, .. }) = self.waiting_of(array) else { return };
        for (id, bytes) in made.replicas {
            let is_full = replicas.len() >= BLOCK_REPLICAS_MAX;
            let used = match replicas.get_mut(id) {
                Some(used) => used,
                None if is_full => continue,
                None => replicas
                    .entry(id.clone())
                    .or_insert_with(|| TracedReplica { id: id.clone(), ..Default::default() }),
            };
            used.reads += 1;
            used.bytes = used.bytes.saturating_add(*bytes);
            used.took_ns = used.took_ns.saturating_add(nanoseconds(made.took));
            used.last_ns = used.last_ns.max(began_ns);
        }
    }

    /// Adds a query to those with the same condition. Beyond the limit of different conditions, it
    /// is written after those before it.
    fn note_query(
        &mut self,
        array: (&str, &[u64], u64),
        condition: TracedCondition,
        tally: &QueryTally,
    ) {
        if self.weight() == 0 {
            return;
        }
        self.unnoted += tally.queries;
        let Some(WaitingReads { queries, .. }) = self.waiting_of(array) else { return };
        queries.entry(condition).or_default().add(tally);
        if queries.len() >= BLOCK_QUERIES_MAX || self.flushed.elapsed() >= WAITING_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.flushed = Instant::now();
        self.selections.flush();
        let mut bytes = Vec::new();
        for (_, WaitingReads { array, reads, replicas, queries }) in self.waiting.drain() {
            let mut replicas: Vec<TracedReplica> = replicas.into_values().collect();
            let query = |(condition, tally)| TracedQuery { condition, tally };
            let mut queries: Vec<TracedQuery> = queries.into_iter().map(query).collect();
            let mut reads = reads.into_iter().peekable();
            loop {
                let next = reads.next();
                if next.is_none() && replicas.is_empty() && queries.is_empty() {
                    break;
                }
                let weight = next.as_ref().map_or(1, |(weight, _)| *weight);
                let mut block: Vec<TracedRead> = next.into_iter().map(|(_, read)| read).collect();
                while let Some((_, read)) = reads.next_if(|(next, _)| *next == weight) {
                    block.push(read);
                }
                let (source, array) = (self.source, array.clone());
                let (replicas, queries) =
                    (std::mem::take(&mut replicas), std::mem::take(&mut queries));
                let block = TraceBlock { source, weight, array, reads: block, replicas, queries };
                bytes.extend(block.encode().unwrap_or_default());
            }
        }
        if bytes.is_empty() {
            return;
        }
        if self.written == 0 {
            make_room(&self.sidecar, TRACES, ALL_BYTES_MAX, FILES_MAX);
        }
        if self.sidecar.append(&self.file, &bytes) {
            self.written += bytes.len() as u64;
        }
        let noted = std::mem::take(&mut self.unnoted);
        if let Some(policy) = self.policy.as_mut().filter(|_| noted > 0) {
            policy.note_reads(noted);
        }
    }
}

/// Returns the selected range along each axis, and whether the ranges are only the box around a
/// list.
fn axes_of(selection: &Selection, rank: usize) -> (Vec<TracedAxis>, bool) {
    let span =
        |first: u64, end: u64| TracedAxis { first, count: end.saturating_sub(first), step: 1 };
    let around = |positions: &[u64]| {
        let (begin, rest) = positions.split_at(positions.len().min(POINTS_MAX));
        let some = begin.iter().chain(rest.iter().rev().take(POINTS_MAX));
        let first = some.clone().min().copied().unwrap_or(0);
        span(first, some.max().map_or(first, |last| last.saturating_add(1)))
    };
    match selection {
        Selection::Orthogonal(axes) => {
            let is_list = axes.iter().any(|axis| matches!(axis, AxisSelection::Coords(_)));
            let axis = |axis: &AxisSelection| match axis {
                AxisSelection::Range(range) => traced_range(range),
                AxisSelection::Coords(positions) => around(positions),
            };
            (axes.iter().map(axis).collect(), is_list)
        }
        Selection::Points(points) if points.rank() == rank => {
            (points.coords().iter().map(|positions| around(positions)).collect(), true)
        }
        Selection::Union(regions) => {
            let axis = |axis: usize| {
                let first = regions.iter().map(|region| region.start()[axis]).min().unwrap_or(0);
                span(first, regions.iter().map(|region| region.end(axis)).max().unwrap_or(first))
            };
            ((0..rank).map(axis).collect(), true)
        }
        Selection::Points(_) => (vec![span(0, 0); rank], true),
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
