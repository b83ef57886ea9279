//! What a read would do, and at what price.

use std::time::Instant;

use bedform_geometry::Selection;
use serde_json::{Value, json};

use super::Array;
use super::source::ZarrSource;
use crate::error::Result;
use crate::read::fetch::units;
use crate::read::locate::ChunkSource;

impl Array {
    /// The plan of a read of `selection`, without reading chunks: which objects, how many requests
    /// and bytes, what is decoded. Opens the objects and reads their indexes.
    ///
    /// # Errors
    /// As a read, but for what only the chunks can show.
    pub fn explain(&self, selection: &Selection) -> Result<Value> {
        let began = Instant::now();
        let state = self.state()?;
        let plan = super::read::plan(&state, selection).map_err(|error| error.at(&self.path))?;
        let source = ZarrSource { shared: &self.shared, path: &self.path, state: &state };
        let (mut objects, mut requests, mut bytes, mut chunks, mut missing) = (0_u64, 0, 0, 0, 0);
        let (mut index_requests, mut index_bytes) = (0, 0);
        for cell in 0..plan.cell_count() {
            let Some(opened) = source.open(&plan.cell_coordinates(cell))? else {
                missing += plan.tasks(cell).len() as u64;
                continue;
            };
            objects += 1;
            index_requests += opened.index_requests;
            index_bytes += opened.index_bytes;
            let gap = self.shared.tuning.gap_bytes;
            for unit in units(&plan, cell, &opened.places, &state.codec, gap)? {
                requests += unit.extents.len() as u64;
                bytes += unit.bytes();
                chunks += unit.chunks.len() as u64 + u64::from(!unit.raw.is_empty());
                missing += unit.missing.len() as u64;
            }
        }
        Ok(json!({
            "array": self.name(),
            "result_bytes": plan.result_bytes(),
            "objects": objects,
            "requests": requests + index_requests,
            "bytes": bytes + index_bytes,
            "index_bytes": index_bytes,
            "chunks": chunks,
            "chunks_never_written": missing,
            "decoded_bytes": if state.codec.is_raw() {
                bytes
            } else {
                chunks * state.codec.decoded_bytes() as u64
            },
            "planning_seconds": began.elapsed().as_secs_f64(),
        }))
    }
}
