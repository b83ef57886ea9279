//! What a read would do, and at what price.

use std::sync::Arc;
use std::time::Instant;

use bedform_geometry::Selection;
use bedform_storage::{Demand, Object};
use serde_json::{Value, json};

use super::Array;
use crate::codec::ChunkCodec;
use crate::error::Result;
use crate::log::blocks::LogCopies;
use crate::log::fetch::LogFetch;
use crate::plan::geometry::Geometry;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::resolve::{Unit, WantedChunks, log_units, units};
use crate::source::locate::{OpenCell, Source};

impl Array {
    /// The plan of a read of `selection`, without reading chunks: which objects, how many requests
    /// and bytes, what is decoded, how long it takes by the profile. Opens the objects and reads
    /// their indexes.
    ///
    /// # Errors
    /// As a read, but for what only the chunks can show.
    pub fn explain(&self, selection: &Selection) -> Result<Value> {
        let state = self.state()?;
        let plan = super::read::plan(&state, selection).map_err(|error| error.at(&self.path))?;
        let source = self.source(&state)?;
        explain_plan(&self.name(), &plan, &source, &state.codec, &self.shared.tuning)
    }
}

/// The facts of [`Array::explain`].
pub(crate) fn explain_plan(
    name: &str,
    plan: &Geometry,
    source: &dyn Source,
    codec: &ChunkCodec,
    tuning: &Tuning,
) -> Result<Value> {
    let began = Instant::now();
    let (mut objects, mut whole_objects, mut index_requests, mut index_bytes) =
        (0_u64, 0_u64, 0, 0);
    let mut work = Work::default();
    for_each_object(plan, source, codec, tuning, &mut |found| {
        match found {
            Found::Nothing { chunks } => work.missing += chunks,
            Found::Object { opened, units, comes_whole } => {
                objects += 1;
                index_requests += opened.index_requests;
                whole_objects += u64::from(comes_whole);
                index_bytes += match comes_whole {
                    true => opened.object.version().size,
                    false => opened.index_bytes,
                };
                if comes_whole {
                    work.largest = work.largest.max(opened.object.version().size);
                }
                let object = Some(&*opened.object).filter(|_| !comes_whole);
                units.iter().for_each(|unit| work.add(unit, object));
            }
            Found::Segment { object, unit } => work.add(unit, Some(&**object)),
        }
        Ok(())
    })?;
    let Work { requests, bytes, chunks, missing, log_bytes, largest } = work;
    let decoded = match codec.is_raw() {
        true => bytes,
        false => chunks * codec.decoded_bytes() as u64 + log_bytes,
    };
    let asked = Asked { index_requests, requests, bytes: bytes + index_bytes, largest };
    let price = if objects == 0 { 0.0 } else { price(tuning, codec, &asked) };
    let merging = tuning.merging(plan.chunk_count(), plan.cell_count());
    Ok(json!({
        "array": name,
        "result_bytes": plan.result_bytes(),
        "objects": objects,
        "objects_in_one_request": whole_objects,
        "requests": requests + index_requests,
        "bytes": bytes + index_bytes,
        "index_bytes": index_bytes,
        "gap_bytes": merging.gap_bytes,
        "chunks": chunks,
        "chunks_never_written": missing,
        "decoded_bytes": decoded,
        "log_bytes": log_bytes,
        "profile": tuning.profile.name,
        "predicted_cold_seconds": price,
        "planning_seconds": began.elapsed().as_secs_f64(),
    }))
}

/// What a read finds, object by object.
pub(crate) enum Found<'a> {
    /// Chunks of an object that was never written.
    Nothing { chunks: u64 },
    /// An object, and what is fetched of it.
    Object {
        opened: &'a OpenCell,
        units: &'a [Unit],
        /// All of it comes when it is opened, the units, too.
        comes_whole: bool,
    },
    /// A segment of the log, and what is fetched of it.
    Segment { object: &'a Arc<dyn Object>, unit: &'a Unit },
}

/// Calls `visit` with all that a read would fetch, without fetching it. Opens the objects and reads
/// their indexes.
pub(crate) fn for_each_object(
    plan: &Geometry,
    source: &dyn Source,
    codec: &ChunkCodec,
    tuning: &Tuning,
    visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
) -> Result<()> {
    let mut copies = LogCopies::default();
    for cell in 0..plan.cell_count() {
        let tasks = plan.tasks(cell);
        let need = Need { chunks: tasks.len() as u64, objects: plan.cell_count() };
        // Its index is all that is fetched here.
        let index_alone = Need { chunks: 0, ..need };
        let Some(opened) = source.open(&plan.cell_coordinates(cell), index_alone, None, &|| ())?
        else {
            visit(Found::Nothing { chunks: tasks.len() as u64 })?;
            continue;
        };
        let mut wanted = WantedChunks::default();
        for task in tasks {
            wanted.add(plan, cell, task, opened.overlay.as_deref(), &mut copies)?;
        }
        let merging = tuning.merging(plan.chunk_count(), plan.cell_count());
        let units = units(plan, cell, wanted, &opened.places, codec, merging)?;
        let comes_whole = opened.index_requests > 0 && source.comes_whole(need);
        visit(Found::Object { opened: &opened, units: &units, comes_whole })?;
    }
    for (object, unit) in &log_units(copies)? {
        visit(Found::Segment { object, unit })?;
    }
    Ok(())
}

/// What the units of a read come to.
#[derive(Default)]
struct Work {
    requests: u64,
    bytes: u64,
    chunks: u64,
    missing: u64,
    /// Decoded bytes of blocks of a log.
    log_bytes: u64,
    /// Bytes of the largest request.
    largest: u64,
}

impl Work {
    /// Adds a unit of `object`; of none, where all of it is there already.
    fn add(&mut self, unit: &Unit, object: Option<&dyn Object>) {
        let (requests, bytes) = object.map_or((0, 0), |object| unit.asks(object));
        self.requests += requests;
        self.bytes += bytes;
        if requests > 0 {
            let extents = unit.extents.iter().map(|extent| extent.length.min(bytes));
            self.largest = extents.fold(self.largest, u64::max);
        }
        self.chunks += unit.chunks.len() as u64 + u64::from(!unit.raw.is_empty());
        self.missing += unit.missing.len() as u64;
        self.log_bytes += unit.log.as_ref().map_or(0, LogFetch::decoded_bytes);
    }
}

/// What is asked of the storage.
struct Asked {
    index_requests: u64,
    requests: u64,
    bytes: u64,
    /// Bytes of the largest request.
    largest: u64,
}

/// Seconds that the storage takes for a cold read, by the terms of
/// [`CostModel`](crate::layout::CostModel): a wait for the first index and one for the first chunk,
/// then requests and bytes. Of those there are on their way at once what there is room for.
#[allow(clippy::cast_precision_loss)]
fn price(tuning: &Tuning, codec: &ChunkCodec, asked: &Asked) -> f64 {
    let Asked { index_requests, requests, bytes, largest } = *asked;
    let waits = if index_requests > 0 && requests > 0 { 2.0 } else { 1.0 };
    let [all, bytes, streams, largest] =
        [requests + index_requests, bytes, requests.max(index_requests), largest]
            .map(|count| count as f64);
    let room = tuning.at_once(bytes / streams.max(1.0), codec.scratch_bytes());
    // Files are fetched in pieces, ahead.
    let largest = if tuning.profile.is_remote { largest } else { 0.0 };
    let demand = Demand { waits, requests: all, bytes, streams: streams.min(room), largest };
    tuning.profile.seconds_of(demand)
}
