//! The predicted cost of reads of a replica that is not made yet.

use std::collections::BTreeSet;

use bedform_format::CodecChain;
use bedform_format::codec::BytesCodec;
use bedform_geometry::BoxIndex;
use bedform_storage::{Profile, Refined};

use super::storing::{LevelLayout, MeshOrder, aligned, shard_chunks};
use super::{CellRegion, Mesh};
use crate::codec::cost::{Decoding, decoding_seconds};
use crate::error::Result;
use crate::plan::price::Cost;
use crate::plan::tuning::Tuning;

/// A component of the coarsest levels of a mesh in new sub-boxes: their places on storage.
#[derive(Debug)]
pub(crate) struct MeshForecast {
    levels: Vec<ForecastLevel>,
    /// The bytes of an element.
    item: u64,
    codec: CodecChain,
}

#[derive(Debug)]
struct ForecastLevel {
    layout: LevelLayout,
    index: BoxIndex,
}

impl MeshForecast {
    /// Cuts and orders the boxes of the first `levels` levels of a mesh, as far as they lie in `held`,
    /// a region of a level.
    ///
    /// # Errors
    /// Those of cutting and ordering.
    pub(crate) fn new(
        mesh: &Mesh,
        (levels, held): (usize, Option<&(usize, CellRegion)>),
        (sub_box, order): (&[u64], MeshOrder),
        profile: &Profile,
    ) -> Result<Self> {
        let item = mesh.facts.item() as u64;
        let levels = (0..levels.min(mesh.levels().len())).map(|number| {
            let coarser = number.checked_sub(1).map_or(&[][..], |at| &mesh.levels()[at].ratio);
            let cut = aligned(sub_box, coarser);
            let boxes = mesh.held_boxes(number, held)?;
            let layout = LevelLayout::new(&boxes, order, &cut, item, profile)?;
            let index = BoxIndex::new(&layout.cut.boxes)?;
            Ok(ForecastLevel { layout, index })
        });
        // Elements of simulations hardly shrink: they are decoded and checked, at their full size.
        let bytes = vec![BytesCodec::Zstd { level: 1, checksum: false }, BytesCodec::Crc32c];
        let codec = CodecChain { bytes, ..CodecChain::raw() };
        Ok(Self { levels: levels.collect::<Result<_>>()?, item, codec })
    }

    /// Returns the bytes of its elements, with holes.
    pub(crate) fn bytes(&self) -> u64 {
        let cells = self.levels.iter().map(|level| level.layout.packed.cells);
        cells.fold(0, u64::saturating_add).saturating_mul(self.item)
    }

    /// Returns the predicted seconds of a cold read of a region of `mesh` up to `level`.
    ///
    /// # Errors
    /// Those of finding boxes.
    pub(crate) fn seconds(
        &self,
        mesh: &Mesh,
        (region, level): (&CellRegion, usize),
        tuning: &Tuning,
    ) -> Result<f64> {
        let (mut seconds, mut laid_bytes) = (0.0, 0.0);
        for (at, own) in self.levels.iter().enumerate().take(level + 1) {
            let (list, _) = mesh.visible_pieces(region, level, at)?;
            laid_bytes += mesh.laid_bytes(&list, at, level);
            if list.pieces.is_empty() {
                continue;
            }
            let mut chunks = BTreeSet::new();
            let mut cost = Cost { result_bytes: list.bytes, ..Cost::default() };
            for piece in &list.pieces {
                let row = piece.shape.last().copied().unwrap_or(1).max(1);
                cost.runs += piece.cells() / row;
                let touched = own.index.touching(&piece.start, &piece.stop())?;
                chunks.extend(touched.into_iter().filter_map(|number| own.chunk_of(number)));
            }
            own.add_requests(&chunks, self.item, tuning, &mut cost);
            let of = Decoding::of(cost.chunks, cost.bytes, cost.decoded_bytes);
            let nanos = decoding_seconds(&self.codec, &tuning.profile.processor, of) * 1e9;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let nanos = nanos.max(0.0) as u64;
            cost.decoding_nanos = nanos;
            let scratch = own.layout.chunk_cells.saturating_mul(self.item);
            seconds += cost.seconds(tuning, scratch, Refined::default()).cold;
        }
        let (processor, bytes) = (&tuning.profile.processor, region.cells() * self.item as f64);
        Ok(seconds + mesh.composing_seconds(processor, bytes, laid_bytes))
    }
}

impl ForecastLevel {
    /// Returns the number of the chunk that holds a sub-box.
    fn chunk_of(&self, number: u32) -> Option<u64> {
        let offset = self.layout.packed.offsets.get(number as usize)?;
        Some(offset / self.layout.chunk_cells.max(1))
    }

    /// Adds the requests for chunks: one for those that follow each other in a shard with gaps that
    /// are read over.
    fn add_requests(&self, chunks: &BTreeSet<u64>, item: u64, tuning: &Tuning, cost: &mut Cost) {
        let chunk_bytes = self.layout.chunk_cells.saturating_mul(item);
        let in_shard = shard_chunks((self.layout.packed.cells, self.layout.chunk_cells), item);
        let gap_bytes = tuning.merging(chunks.len() as u64, 1).gap_bytes;
        let (mut last, mut length): (Option<u64>, u64) = (None, 0);
        for chunk in chunks.iter().copied() {
            let is_new_shard = last.is_none_or(|last| last / in_shard != chunk / in_shard);
            let gap = last.map_or(0, |last| (chunk - last - 1).saturating_mul(chunk_bytes));
            if is_new_shard {
                // Its index stays in memory from the first read on.
                cost.objects += 1;
            }
            if is_new_shard || gap > gap_bytes {
                cost.requests += 1;
                length = 0;
            } else {
                cost.bytes += gap;
                length += gap;
            }
            cost.bytes += chunk_bytes;
            length += chunk_bytes;
            cost.largest = cost.largest.max(length);
            last = Some(chunk);
        }
        cost.chunks += chunks.len() as u64;
        cost.decoded_bytes += chunks.len() as u64 * chunk_bytes;
    }
}
