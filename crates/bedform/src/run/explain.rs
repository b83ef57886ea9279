//! What a read would do, and at what price.

use std::sync::Arc;
use std::time::Instant;

use bedform_storage::{Dominant, Object};
use serde::Serialize;

use super::names::Names;
use super::plan::{PlannedCell, ReadPlan, in_nanos};
use super::resolve::{
    Opening, ResolvedCell, Resolving, Unit, payload_cost, payload_units, resolve,
};
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::Result;
use crate::plan::opening::Need;
use crate::plan::price::{Cost, Price};
use crate::source::Payloads;
use crate::threads::workers::check_goes_on;

/// What a read would do: which objects, how many requests and bytes, what is decoded, and its price.
///
/// As JSON, by serde, it has a key for each field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The array as a user knows it.
    pub array: String,
    /// Bytes of the result.
    pub result_bytes: u64,
    /// Objects that are there.
    pub objects: u64,
    /// Those of them that come as a whole when they are opened.
    pub objects_in_one_request: u64,
    /// Requests, those for indexes included.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Bytes of indexes among them.
    pub index_bytes: u64,
    /// The largest gap in bytes that is read over.
    pub gap_bytes: u64,
    /// Chunks decoded, or read in part.
    pub chunks: u64,
    /// Chunks that were never written.
    pub chunks_never_written: u64,
    /// Bytes that decoding gives.
    pub decoded_bytes: u64,
    /// Bytes of decoded blocks of a log among them.
    pub log_bytes: u64,
    /// True if a callback reads the chunks: each of the requests is a call.
    pub read_by_callback: bool,
    /// The profile that the price is by.
    pub profile: String,
    /// Seconds of a cold read by that profile; see [`Price`].
    pub predicted_cold_seconds: f64,
    /// Seconds of a read whose objects are in the page cache; as cold where there is none.
    pub predicted_cached_seconds: f64,
    /// What most of a cold read is: requests, bytes, decoding or copying.
    pub mostly: Option<Dominant>,
    /// What most of a cached read is.
    pub mostly_cached: Option<Dominant>,
    /// Seconds that resolving the plan took.
    pub planning_seconds: f64,
    /// What replicas do for the read, where they do something.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub redirected: Option<RedirectedRead>,
    /// What is known of the reads of the array, where they are followed and there were any.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub followed: Option<FollowedReads>,
}

/// What replicas do for a read.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RedirectedRead {
    /// Names of the replicas that give something.
    pub replicas: Vec<String>,
    /// Bytes of the result that they give.
    pub replica_bytes: u64,
    /// Seconds of a cold read of the array itself.
    pub predicted_seconds_without: f64,
}

/// What is known of the reads of one array so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FollowedReads {
    /// Reads that were followed.
    pub reads_followed: u64,
    /// Reads of them that a pattern, or a list, had said before.
    pub reads_foreseen: u64,
    /// Reads that took their elements from a buffer that was read ahead.
    pub reads_used: u64,
    /// Bytes that were read ahead, used or not.
    pub prefetched_bytes: u64,
    /// Bytes that were read ahead and dropped unused.
    pub wasted_bytes: u64,
    /// What says which read comes next: the kind of a pattern, or a list that was handed over.
    pub foreseen_by: Option<&'static str>,
    /// True if the selection that is explained is read ahead now.
    pub is_read_ahead: bool,
}

/// What a plan would do; opens its objects and reads their indexes.
///
/// # Errors
/// As a read, but for what only the chunks can show.
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
        decoded_bytes: match plan.is_raw() {
            true => cost.bytes,
            false => cost.decoded_bytes + cost.log_bytes,
        },
        log_bytes: cost.log_bytes,
        read_by_callback: plan.calls_back(),
        profile: tuning.profile.name.clone(),
        predicted_cold_seconds: price.seconds,
        predicted_cached_seconds: price.cached_seconds,
        mostly: price.dominant,
        mostly_cached: price.cached_dominant,
        planning_seconds: began.elapsed().as_secs_f64(),
        redirected: None,
        followed: None,
    })
}

/// The exact cost and price of a plan.
///
/// # Errors
/// As [`explain`].
pub(crate) fn priced(plan: ReadPlan<'_>) -> Result<(Cost, Price)> {
    let mut cost = Cost { result_bytes: plan.result_bytes(), ..Cost::default() };
    let mut names = Names::default();
    for_each_fetch(plan, &mut |fetch| {
        cost += match fetch {
            Fetch::Nothing { chunks } => Cost { missing: chunks, ..Cost::default() },
            Fetch::Object { cell, resolved, comes_whole } => {
                let mut own = resolved.cost(cell, comes_whole);
                own.decoding_nanos = decoding_nanos(plan, cell, resolved, own.decoded_bytes);
                own.runs = runs(cell, resolved)?;
                if cell.piece.source.has_names() {
                    own.names = names.waits_for(&cell.coordinates());
                }
                own
            }
            Fetch::Payload { object, unit } => payload_cost(&**object, unit),
        };
        Ok(())
    })?;
    Ok((cost, plan.price(&cost)))
}

/// Time of one core for decoding what is read of a cell.
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

/// Chunks of a cell that are looked at for what all of them are taken to be like.
const SAMPLED_CHUNKS: usize = 4;

/// Stretches that lie together in a chunk and in the result, of all chunks of a cell.
///
/// # Errors
/// Of the geometry.
fn runs(cell: PlannedCell<'_>, resolved: &ResolvedCell) -> Result<u64> {
    let chunks = || resolved.units.iter().flat_map(|unit| &unit.chunks);
    let count = chunks().count();
    let (geometry, strides) = (cell.piece.geometry, cell.codec().strides());
    let (mut sampled, mut runs) = (0, 0);
    for chunk in chunks().step_by(count.div_ceil(SAMPLED_CHUNKS).max(1)) {
        chunk.wanted.for_each_copy(geometry, cell.number, strides, |mut copy| {
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

/// What a read would fetch, part by part.
pub(crate) enum Fetch<'a> {
    /// Chunks of an object that was never written.
    Nothing { chunks: u64 },
    /// An object, and what is fetched of it.
    Object {
        cell: PlannedCell<'a>,
        resolved: &'a ResolvedCell,
        /// All of it comes when it is opened, the units, too.
        comes_whole: bool,
    },
    /// What covers have in an object: a segment of the log.
    Payload { object: &'a Arc<dyn Object>, unit: &'a Unit },
}

/// A read that keeps nothing and fetches nothing.
struct DryRun;

impl Resolving for DryRun {}

/// Calls `visit` with all that a read would fetch, without fetching it. Opens the objects and reads
/// their indexes.
///
/// # Errors
/// As [`explain`], and those of `visit`.
pub(crate) fn for_each_fetch(
    plan: ReadPlan<'_>,
    visit: &mut dyn FnMut(Fetch<'_>) -> Result<()>,
) -> Result<()> {
    let mut payloads = Payloads::default();
    for number in 0..plan.cell_count() {
        // There may be more of them than anybody waits for.
        check_goes_on("the plan was stopped")?;
        let Some(cell) = plan.cell(number) else { break };
        let tasks = cell.tasks();
        let need = cell.need(tasks.len());
        // Its index is all that is fetched here.
        let opening = Opening { need: Need { chunks: 0, ..need }, asked: None };
        let resolved = resolve(plan, cell, &tasks, opening, &mut payloads, &DryRun)?;
        let Some(resolved) = resolved else {
            visit(Fetch::Nothing { chunks: tasks.len() as u64 })?;
            continue;
        };
        let source = cell.piece.source;
        let comes_whole = resolved.opened.index_requests > 0 && source.comes_whole(need);
        visit(Fetch::Object { cell, resolved: &resolved, comes_whole })?;
    }
    for (object, unit) in &payload_units(payloads)? {
        visit(Fetch::Payload { object, unit })?;
    }
    Ok(())
}
