//! Explanations: the requests, bytes, decoding and predicted seconds of a read, without fetching a
//! chunk.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Instant;

use bedform_storage::{Dominant, Object};
use serde::Serialize;

use super::caching::ChunkCaching;
use super::names::LookupWaits;
use super::plan::{PlannedCell, ReadPlan, in_nanos};
use super::resolve::{CellOpening, ResolveHooks, ResolvedCell, Unit, open_cell, payload_units};
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::Result;
use crate::plan::opening::Need;
use crate::plan::price::{Cost, Price};
use crate::source::{Payloads, Source};
use crate::threads::workers::check_cancelled;

/// A description of a read before it runs: objects, requests, bytes, decoding and price.
///
/// Serialised by serde, it has a key for each field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The array's name, as messages show it.
    pub array: String,
    /// Bytes of the result.
    pub result_bytes: u64,
    /// Objects that exist.
    pub objects: u64,
    /// Those of the objects that one request fetches as a whole when they are opened.
    pub objects_in_one_request: u64,
    /// Requests, including those for indexes.
    pub requests: u64,
    /// Bytes of all these requests.
    pub bytes: u64,
    /// Bytes of the indexes among them.
    pub index_bytes: u64,
    /// The largest gap in bytes that is read over.
    pub gap_bytes: u64,
    /// Chunks decoded or read in part.
    pub chunks: u64,
    /// Chunks that were never written.
    pub chunks_never_written: u64,
    /// Bytes of all decoded chunks and blocks; chunks that are stored as their elements are not
    /// decoded.
    pub decoded_bytes: u64,
    /// Bytes of the decoded blocks of a log among them.
    pub log_bytes: u64,
    /// True if a callback reads the chunks: each request is then a call of it.
    pub read_by_callback: bool,
    /// The name of the profile that the price is computed from.
    pub profile: String,
    /// The time of the profile's measurement; empty if nothing was measured.
    pub profile_measured_at: String,
    /// Predicted seconds of a cold read by that profile; see [`Price`].
    pub predicted_cold_seconds: f64,
    /// Predicted seconds of a read whose objects are in the page cache; those of a cold read where
    /// there is no page cache.
    pub predicted_cached_seconds: f64,
    /// The dominant part of a cold read: requests, bytes, decoding or copying.
    pub mostly: Option<Dominant>,
    /// The dominant part of a cached read.
    pub mostly_cached: Option<Dominant>,
    /// Seconds that resolving the plan took.
    pub planning_seconds: f64,
    /// The share of replicas in the read, if they serve a part of it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub redirected: Option<RedirectedRead>,
    /// The state of the follower of this array's reads, if reads are followed and there were any.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedReads>,
}

/// The reads of a computation before they run: the sums of their explanations.
///
/// Serialised by serde, it has a key for each field.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct ReadsExplanation {
    /// The number of reads.
    pub reads: u64,
    /// Bytes of their results.
    pub result_bytes: u64,
    /// Requests, including those for indexes.
    pub requests: u64,
    /// Bytes of all these requests.
    pub bytes: u64,
    /// Chunks that the reads touch, once for each read, written or not.
    pub chunks: u64,
    /// Bytes of all chunks that are decoded or read in part.
    pub decoded_bytes: u64,
    /// The sum of the predicted seconds of cold reads.
    pub predicted_cold_seconds: f64,
    /// The sum of the predicted seconds of reads whose objects are in the page cache.
    pub predicted_cached_seconds: f64,
    /// Reads that put all their chunks into the cache of decoded chunks where another read takes a
    /// part of them.
    pub cached_reads: u64,
    /// The most bytes of decoded chunks that the handle may keep.
    pub cache_bytes: u64,
    /// The name of the profile that the prices are computed from.
    pub profile: String,
    /// The files and stores that the bytes come from, replicas among them.
    pub places: Vec<PlaceReads>,
}

/// The requests of reads to one file or store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct PlaceReads {
    /// The name of the file or store.
    pub place: String,
    /// Requests, including those for indexes.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
}

impl ReadsExplanation {
    /// Returns the explanation of one read, without chunks that earlier reads have `seen`.
    ///
    /// # Errors
    /// As [`explain`].
    pub(crate) fn of(plan: ReadPlan<'_>, seen: Option<&mut SeenChunks>) -> Result<Self> {
        let uses_caches = ChunkCaching::new(&plan, false).uses_caches();
        let mut places: Vec<(*const (), PlaceReads)> = Vec::new();
        let seen = seen.filter(|_| uses_caches);
        let (cost, price) = priced_by(plan, seen, &mut |source, cost| {
            let source = source.or_else(|| plan.pieces().first().map(|piece| piece.source));
            let Some(source) = source else { return };
            let key = std::ptr::from_ref(source).cast::<()>();
            // The cells of a source follow each other.
            if places.last().is_none_or(|(known, _)| *known != key) {
                places.push((key, PlaceReads { place: source.place_name(), ..Default::default() }));
            }
            if let Some((_, place)) = places.last_mut() {
                place.requests += cost.requests + cost.index_requests;
                place.bytes += cost.bytes + cost.index_bytes;
            }
        })?;
        let mut own = Self {
            reads: 1,
            result_bytes: cost.result_bytes,
            requests: cost.requests + cost.index_requests,
            bytes: cost.bytes + cost.index_bytes,
            chunks: cost.chunks + cost.missing,
            decoded_bytes: cost.decoded_bytes,
            predicted_cold_seconds: price.seconds,
            predicted_cached_seconds: price.cached_seconds,
            cached_reads: u64::from(uses_caches),
            cache_bytes: 0,
            profile: plan.tuning().profile.name.clone(),
            places: Vec::new(),
        };
        places.into_iter().for_each(|(_, place)| own.add_place(place));
        Ok(own)
    }

    fn add_place(&mut self, place: PlaceReads) {
        match self.places.iter_mut().find(|known| known.place == place.place) {
            Some(known) => {
                known.requests += place.requests;
                known.bytes += place.bytes;
            }
            None => self.places.push(place),
        }
    }
}

impl AddAssign for ReadsExplanation {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.result_bytes += other.result_bytes;
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.chunks += other.chunks;
        self.decoded_bytes += other.decoded_bytes;
        self.predicted_cold_seconds += other.predicted_cold_seconds;
        self.predicted_cached_seconds += other.predicted_cached_seconds;
        self.cached_reads += other.cached_reads;
        self.cache_bytes = self.cache_bytes.max(other.cache_bytes);
        self.profile = other.profile;
        other.places.into_iter().for_each(|place| self.add_place(place));
    }
}

/// The share of replicas in a read.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RedirectedRead {
    /// Names of the replicas that serve a part of the read.
    pub replicas: Vec<String>,
    /// Bytes of the result that come from replicas.
    pub replica_bytes: u64,
    /// Predicted seconds of a cold read of the array alone.
    pub predicted_seconds_without: f64,
}

/// Counts of the follower that predicts the reads of one array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FollowedReads {
    /// Reads that were followed.
    pub reads_followed: u64,
    /// Followed reads that a pattern or a list had predicted.
    pub reads_foreseen: u64,
    /// Reads that took their elements from a buffer that was read ahead.
    pub reads_used: u64,
    /// Bytes that were read ahead, used or not.
    pub prefetched_bytes: u64,
    /// Bytes that were read ahead and dropped unused.
    pub wasted_bytes: u64,
    /// The origin of the prediction of the next read: the kind of a pattern, or a list that the
    /// program handed over.
    pub foreseen_by: Option<&'static str>,
    /// True if the explained selection is being read ahead now.
    pub is_read_ahead: bool,
}

/// Returns the explanation of a plan; opens the objects of the plan and reads their indexes.
///
/// # Errors
/// Those of a read, except errors that only the contents of chunks can show.
pub(crate) fn explain(name: String, plan: ReadPlan<'_>) -> Result<Explanation> {
    let began = Instant::now();
    let (cost, price) = priced(plan)?;
    let tuning = plan.tuning();
    Ok(Explanation {
        array: name,
        result_bytes: plan.result_bytes(),
        objects: cost.objects,
        objects_in_one_request: cost.whole_objects,
        requests: cost.requests + cost.index_requests,
        bytes: cost.bytes + cost.index_bytes,
        index_bytes: cost.index_bytes,
        gap_bytes: plan.merging().gap_bytes,
        chunks: cost.chunks,
        chunks_never_written: cost.missing,
        decoded_bytes: cost.decoded_bytes - cost.raw_bytes + cost.log_bytes,
        log_bytes: cost.log_bytes,
        read_by_callback: plan.calls_back(),
        profile: tuning.profile.name.clone(),
        profile_measured_at: tuning.profile.measured_at.clone(),
        predicted_cold_seconds: price.seconds,
        predicted_cached_seconds: price.cached_seconds,
        mostly: price.dominant,
        mostly_cached: price.cached_dominant,
        planning_seconds: began.elapsed().as_secs_f64(),
        redirected: None,
        followed: None,
    })
}

/// Returns the exact cost and price of a plan.
///
/// # Errors
/// As [`explain`].
pub(crate) fn priced(plan: ReadPlan<'_>) -> Result<(Cost, Price)> {
    priced_by(plan, None, &mut |_, _| ())
}

/// As [`priced`], without the chunks that earlier reads have `seen`; calls `each` with the cost of each part, and with its source. The payloads of a
/// log have none.
///
/// # Errors
/// As [`explain`].
fn priced_by<'a>(
    plan: ReadPlan<'a>,
    seen: Option<&mut SeenChunks>,
    each: &mut dyn FnMut(Option<&'a dyn Source>, &Cost),
) -> Result<(Cost, Price)> {
    let mut cost = Cost { result_bytes: plan.result_bytes(), ..Cost::default() };
    let mut names = LookupWaits::default();
    for_each_unseen_fetch(plan, seen, &mut |fetch| {
        let (source, own) = match fetch {
            Fetch::Nothing { chunks } => (None, Cost { missing: chunks, ..Cost::default() }),
            Fetch::Object { cell, resolved, comes_whole } => {
                let mut own = resolved.cost(cell, comes_whole);
                own.raw_bytes = if cell.piece.is_raw() { own.decoded_bytes } else { 0 };
                own.decoding_nanos = decoding_nanos(plan, cell, resolved, own.decoded_bytes);
                own.runs = runs(cell, resolved)?;
                if cell.piece.source.needs_lookups() {
                    own.names = names.waits_for(&cell.coordinates());
                }
                (Some(cell.piece.source), own)
            }
            Fetch::Payload { object, unit } => (None, unit.cost(Some(&**object), None)),
        };
        each(source, &own);
        cost += own;
        Ok(())
    })?;
    Ok((cost, plan.price(&cost)))
}

/// Returns the nanoseconds that one core takes to decode the chunks of a cell.
fn decoding_nanos(
    plan: ReadPlan<'_>,
    cell: PlannedCell<'_>,
    resolved: &ResolvedCell,
    decoded_bytes: u64,
) -> u64 {
    if cell.codec().is_raw() {
        return 0;
    }
    let (chunks, encoded) = resolved.units.iter().fold((0, 0), |(chunks, bytes), unit| {
        let encoded: usize = unit.chunks.iter().map(|chunk| chunk.length).sum();
        (chunks + unit.chunks.len(), bytes + encoded)
    });
    let of = Decoding::of(chunks as u64, encoded as u64, decoded_bytes);
    in_nanos(decoding_seconds(cell.codec().chain(), &plan.tuning().profile.processor, of))
}

/// Chunks of a cell that are sampled to estimate the number of contiguous runs of all of them.
const SAMPLED_CHUNKS: usize = 4;

/// Returns the number of runs that are contiguous both in a chunk and in the result, over all
/// chunks of a cell.
///
/// # Errors
/// Those of the geometry.
fn runs(cell: PlannedCell<'_>, resolved: &ResolvedCell) -> Result<u64> {
    let chunks = || resolved.units.iter().flat_map(|unit| &unit.chunks);
    let count = chunks().count();
    let (geometry, strides) = (cell.piece.geometry, cell.codec().strides());
    let (mut sampled, mut runs) = (0, 0);
    for chunk in chunks().step_by(count.div_ceil(SAMPLED_CHUNKS).max(1)) {
        chunk.wanted.for_each_copy(cell, strides, |mut copy| {
            copy.tidy();
            runs += copy.run_count(geometry.item_size());
            Ok(())
        })?;
        sampled += 1;
    }
    let raw = resolved.units.iter().flat_map(|unit| &unit.raw);
    let raw: u64 = raw.map(|copy| copy.run_count(geometry.item_size())).sum();
    Ok(raw + runs * count as u64 / sampled.max(1))
}

/// One part of a read's fetches: a missing object, an object, or a payload of the log.
pub(crate) enum Fetch<'p, 'a> {
    /// Chunks of an object that was never written.
    Nothing { chunks: u64 },
    /// An object and the units to fetch from it.
    Object {
        cell: PlannedCell<'p>,
        resolved: &'a ResolvedCell,
        /// True if the request that opens the object fetches all of it, including the units.
        comes_whole: bool,
    },
    /// A payload of covers in one object: a segment of the log.
    Payload { object: &'a Arc<dyn Object>, unit: &'a Unit },
}

/// The chunks that reads would have put into the cache: the latest ones, up to its size.
pub(crate) struct SeenChunks {
    bytes_max: u64,
    bytes: u64,
    /// The number of each object, by its name.
    objects: HashMap<String, u64>,
    chunks: HashSet<(u64, u64)>,
    /// The same chunks with their bytes, the oldest first.
    oldest: VecDeque<((u64, u64), u64)>,
}

impl SeenChunks {
    /// Makes the record of a cache of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            objects: HashMap::new(),
            chunks: HashSet::new(),
            oldest: VecDeque::new(),
        }
    }

    /// Adds a chunk of `bytes` decoded bytes; returns true if it was not there.
    fn add(&mut self, object: &str, position: u64, bytes: u64) -> bool {
        let next = self.objects.len() as u64;
        let known = self.objects.get(object).copied();
        let object =
            known.unwrap_or_else(|| *self.objects.entry(object.to_owned()).or_insert(next));
        if !self.chunks.insert((object, position)) {
            return false;
        }
        self.oldest.push_back(((object, position), bytes));
        self.bytes += bytes;
        while self.bytes > self.bytes_max {
            let Some((chunk, bytes)) = self.oldest.pop_front() else { break };
            self.chunks.remove(&chunk);
            self.bytes -= bytes;
        }
        true
    }
}

/// The hooks of a resolve that neither caches nor fetches anything.
struct DryRun;

impl ResolveHooks for DryRun {}

/// Calls `visit` with every fetch that a read would make, without fetching any chunk. Opens the
/// objects and reads their indexes.
///
/// # Errors
/// As [`explain`], and those of `visit`.
pub(crate) fn for_each_fetch<'p>(
    plan: ReadPlan<'p>,
    visit: &mut dyn FnMut(Fetch<'p, '_>) -> Result<()>,
) -> Result<()> {
    for_each_unseen_fetch(plan, None, visit)
}

/// As [`for_each_fetch`], without the chunks that earlier reads have `seen`.
///
/// # Errors
/// As [`for_each_fetch`].
fn for_each_unseen_fetch<'p>(
    plan: ReadPlan<'p>,
    mut seen: Option<&mut SeenChunks>,
    visit: &mut dyn FnMut(Fetch<'p, '_>) -> Result<()>,
) -> Result<()> {
    let mut payloads = Payloads::default();
    for number in 0..plan.cell_count() {
        // A plan may have millions of cells, so cancellation is polled for each.
        check_cancelled("the plan was stopped")?;
        let Some(cell) = plan.cell(number) else { break };
        let tasks = cell.tasks();
        let need = cell.need(tasks.len());
        // Only the index is fetched here.
        let opening = CellOpening { need: Need { chunks: 0, ..need }, asked: None };
        let Some(mut open) = open_cell(cell, &tasks, opening, &mut payloads, &DryRun)? else {
            visit(Fetch::Nothing { chunks: tasks.len() as u64 })?;
            continue;
        };
        if let Some(seen) = &mut seen {
            let (object, bytes) = (cell.object_name(), cell.codec().decoded_bytes() as u64);
            open.stored.retain(|wanted| seen.add(&object, wanted.task.position, bytes));
        }
        let resolved = open.resolve(plan.merging(), &DryRun)?;
        let source = cell.piece.source;
        let comes_whole = resolved.opened.index_requests > 0 && source.comes_whole(need);
        visit(Fetch::Object { cell, resolved: &resolved, comes_whole })?;
    }
    for (object, unit) in &payload_units(payloads)? {
        visit(Fetch::Payload { object, unit })?;
    }
    Ok(())
}
