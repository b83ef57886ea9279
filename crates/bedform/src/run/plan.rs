//! Plans of reads: lazy values that can be printed, priced, simulated and run.
//!
//! A [`ReadPlan`] is made without I/O. Time and memory are of the order of the axes and points of
//! its selection: no chunk is listed before its cell is resolved (see [`super::resolve`]). Each
//! piece serves one source, with its own geometry, decoding and moment. Together the pieces fill
//! the result, and no element is in two of them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bedform_codec::ChunkCodec;
use bedform_storage::{FactorKind, Refined, Version};

use super::chunks::ChunkCache;
use super::names::{DOCUMENT_WAITS, LookupWaits};
use super::statistics::ReadStatistics;
use crate::cache::was_too_young;
use crate::codec::cost::{Decoding, chain_name, decoding_seconds};
use crate::error::Result;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::opening::Need;
use crate::plan::price::{Cost, Price};
use crate::plan::tuning::{MergeRules, Tuning};
use crate::source::{Moment, Source, StoredLayout};

/// The versions of all objects and commits that a read took its elements from. Two reads of one
/// selection by one handle with equal values return the same elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadVersion {
    /// For each piece: its meaning, the last commit, and whether that commit is in the objects.
    moments: Vec<(u64, u64, bool)>,
    objects: OpenedVersions,
}

/// The versions of the opened objects by the number of their cell; `None` for an object that does
/// not exist.
pub(crate) type OpenedVersions = BTreeMap<u64, Option<Version>>;

/// The part of a plan that one source serves.
pub(crate) struct PlanPiece<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) moment: &'a dyn Moment,
    pub(crate) layout: &'a StoredLayout,
    /// A number for everything beside the objects and commits that decides the elements.
    pub(crate) meaning: u64,
    /// The touched chunks, and the places of their elements in the result.
    pub(crate) geometry: &'a Geometry,
    /// The cache of the decoded chunks, if they are cached.
    pub(crate) cache: Option<ChunkCache<'a>>,
    /// The axis along which the source is a part of the array, and the index in the array at which
    /// it begins.
    pub(crate) begins: Option<(usize, u64)>,
    /// The number of cells of the pieces before this one; see [`PlanPiece::number`].
    pub(crate) cells_before: u64,
}

impl PlanPiece<'_> {
    /// Sets `cells_before` of the pieces of one plan.
    pub(crate) fn number(pieces: &mut [Self]) {
        let mut cells = 0;
        for piece in pieces {
            piece.cells_before = cells;
            cells += piece.geometry.cell_count();
        }
    }

    /// Estimates the runs that are contiguous both in a chunk and in the result, as if all chunks
    /// were like one.
    fn estimated_runs(&self) -> u64 {
        if self.geometry.cell_count() == 0 {
            return 0;
        }
        let (mut runs, tasks) = (0, self.geometry.tasks(0));
        if let Some(task) = tasks.get(1).or(tasks.first()) {
            let strides = self.layout.codec.strides();
            let _ = self.geometry.for_each_copy(0, *task, strides, |mut copy| {
                copy.tidy();
                runs += copy.run_count(self.geometry.item_size());
                Ok(())
            });
        }
        self.geometry.chunk_count().saturating_mul(runs)
    }

    /// Returns true if chunks are stored as their elements and nothing else, so that parts of them
    /// can be read alone.
    pub(crate) fn is_raw(&self) -> bool {
        self.layout.codec.is_raw() && !self.source.makes_chunks()
    }
}

/// The most objects whose path lookups are counted when a read is learnt from. The lookups of
/// further objects are a small part of the time.
const NAMED_MAX: u64 = 1 << 10;
/// The most objects of a read that are opened again to compare their versions.
const OPENED_MAX: u64 = 1 << 8;

/// A read, planned.
#[derive(Clone, Copy)]
pub(crate) struct ReadPlan<'a> {
    pieces: &'a [PlanPiece<'a>],
    tuning: &'a Tuning,
    /// Cells and chunks of all pieces, which may be thousands.
    cells: u64,
    chunks: u64,
    /// Bytes of the pass over the array that this read is a part of; 0 for a read of its own.
    pass_bytes: u64,
}

/// A cell of a plan: an object that a piece touches.
#[derive(Clone, Copy)]
pub(crate) struct PlannedCell<'a> {
    pub(crate) piece: &'a PlanPiece<'a>,
    /// The number of the cell among the cells of its piece.
    pub(crate) number: u64,
}

impl<'a> ReadPlan<'a> {
    /// Makes the plan of these pieces, which share one result without overlap. Several pieces must
    /// be [numbered](Piece::number).
    pub(crate) fn new(pieces: &'a [PlanPiece<'a>], tuning: &'a Tuning) -> Self {
        let cells = pieces.iter().map(|piece| piece.geometry.cell_count()).sum();
        let chunks = pieces.iter().map(|piece| piece.geometry.chunk_count()).sum();
        Self { pieces, tuning, cells, chunks, pass_bytes: 0 }
    }

    /// Returns the plan as a part of a pass that reads so many bytes.
    pub(crate) fn of_pass(self, bytes: u64) -> Self {
        Self { pass_bytes: bytes, ..self }
    }

    /// Returns the bytes of the pass that this read is a part of; 0 for a read of its own.
    pub(crate) fn pass_bytes(&self) -> u64 {
        self.pass_bytes
    }

    pub(crate) fn pieces(&self) -> &'a [PlanPiece<'a>] {
        self.pieces
    }

    pub(crate) fn tuning(&self) -> &'a Tuning {
        self.tuning
    }

    /// Returns the bytes of the result.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.geometry.result_bytes()).sum()
    }

    /// Returns the bytes of an element.
    pub(crate) fn item_size(&self) -> usize {
        self.pieces.first().map_or(1, |piece| piece.geometry.item_size())
    }

    /// Returns the number of objects that are touched.
    pub(crate) fn cell_count(&self) -> u64 {
        self.cells
    }

    /// Returns the number of chunks that are touched.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chunks
    }

    /// Returns the largest value of `measure` over the codecs of the pieces.
    pub(crate) fn most(&self, measure: impl Fn(&ChunkCodec) -> u64) -> u64 {
        self.pieces.iter().map(|piece| measure(&piece.layout.codec)).max().unwrap_or(0)
    }

    /// Returns true if every chunk is stored as its elements and nothing else.
    pub(crate) fn is_raw(&self) -> bool {
        self.pieces.iter().all(PlanPiece::is_raw)
    }

    /// Returns true if a callback makes the chunks of a piece.
    pub(crate) fn calls_back(&self) -> bool {
        self.pieces.iter().any(|piece| piece.source.makes_chunks())
    }

    /// Returns true if opening an object waits for a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.pieces.iter().any(|piece| piece.source.is_remote())
    }

    /// Returns the cell with this number, which must be below [`ReadPlan::cell_count`].
    pub(crate) fn cell(&self, number: u64) -> Option<PlannedCell<'a>> {
        if number >= self.cells {
            return None;
        }
        // Pieces without cells share the number of the piece behind them, so the last match holds
        // the cell.
        let behind = self.pieces.partition_point(|piece| piece.cells_before <= number);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        Some(PlannedCell { piece, number: number - piece.cells_before })
    }

    /// Returns the rules by which extents of the plan's objects become requests.
    pub(crate) fn merging(&self) -> MergeRules<'a> {
        self.tuning.merging(self.chunk_count(), self.cell_count())
    }

    /// Estimates the price from the geometry alone, without I/O, as if no chunk were compressed or
    /// missing.
    pub(crate) fn estimate(&self) -> Price {
        let objects = self.cell_count();
        let decoded = self.decoded_bytes();
        let bytes = if self.is_raw() { decoded.min(self.result_bytes()) } else { decoded };
        let cost = Cost {
            objects,
            index_requests: objects,
            requests: self.chunk_count().min(bytes.div_ceil(self.merging().request_bytes(bytes))),
            bytes,
            largest: self.most(|codec| codec.decoded_bytes() as u64).min(bytes),
            ..self.processing(bytes)
        };
        Price { exact: false, ..self.price(&cost) }
    }

    /// Estimates the highest price, without I/O, as if no chunk were compressed. Each request has
    /// one chunk, or one contiguous run where parts of chunks are read.
    pub(crate) fn estimate_at_most(&self) -> Price {
        let objects = self.cell_count();
        let (decoded, result) = (self.decoded_bytes(), self.result_bytes());
        let cost = Cost { objects, index_requests: objects, ..self.processing(decoded) };
        let (requests, bytes) = match self.is_raw() {
            true => (cost.runs, decoded.min(result)),
            false => (cost.chunks, decoded),
        };
        let largest = self.most(|codec| codec.decoded_bytes() as u64).min(bytes);
        Price { exact: false, ..self.price(&Cost { requests, bytes, largest, ..cost }) }
    }

    /// Returns the bytes of all chunks once they are decoded.
    pub(super) fn decoded_bytes(&self) -> u64 {
        let decoded = self.pieces.iter().map(|piece| {
            piece.geometry.chunk_count().saturating_mul(piece.layout.codec.decoded_bytes() as u64)
        });
        decoded.fold(0, u64::saturating_add)
    }

    /// Estimates the CPU work from the geometry alone, for chunks of `encoded_bytes` bytes
    /// together.
    fn processing(&self, encoded_bytes: u64) -> Cost {
        let (chunks, decoded_bytes) = (self.chunk_count(), self.decoded_bytes());
        let codec = self.pieces.first().map(|piece| &piece.layout.codec);
        let of = Decoding::of(chunks, encoded_bytes, decoded_bytes);
        let decoding_nanos = codec.filter(|codec| !codec.is_raw()).map_or(0, |codec| {
            in_nanos(decoding_seconds(codec.chain(), &self.tuning.profile.processor, of))
        });
        let runs = self.pieces.iter().map(PlanPiece::estimated_runs).fold(0, u64::saturating_add);
        let result_bytes = self.result_bytes();
        Cost { chunks, decoded_bytes, decoding_nanos, runs, result_bytes, ..Cost::default() }
    }

    /// Returns the price of a plan whose cells were all resolved to `cost`.
    pub(crate) fn price(&self, cost: &Cost) -> Price {
        let name = self.experience_name();
        let refined = match &self.tuning.experience {
            Some(experience) => experience.refined(&name),
            None => self.tuning.profile.refinement.get(&name).copied().unwrap_or_default(),
        };
        cost.price(self.tuning, self.most(ChunkCodec::scratch_bytes), refined)
    }

    /// Returns the key under which reads like this one are learnt about: the name of the codec
    /// chain.
    fn experience_name(&self) -> String {
        self.pieces.first().map_or_else(String::new, |piece| chain_name(piece.layout.codec.chain()))
    }

    /// Refines the profile by a read of this plan that did the work `done` in `seconds`.
    pub(crate) fn learn(&self, done: &ReadStatistics, seconds: f64) {
        let Some(experience) = &self.tuning.experience else { return };
        let Some(is_cold) = self.was_cold(done).filter(|_| experience.is_due(seconds)) else {
            return;
        };
        let index_requests = done.objects.min(done.requests.saturating_sub(1));
        let cost = Cost {
            objects: done.objects,
            index_requests,
            requests: done.requests - index_requests,
            bytes: done.bytes,
            names: if is_cold { self.names() } else { 0 },
            ..self.processing(done.bytes)
        };
        let scratch_bytes = self.most(ChunkCodec::scratch_bytes);
        let predicted = cost.seconds(self.tuning, scratch_bytes, Refined::default());
        let (kind, predicted) = match is_cold {
            true => (Some(FactorKind::cold(predicted.dominant)), predicted.cold),
            false => {
                let threads = cost.threads(self.tuning);
                (FactorKind::cached(predicted.cached_dominant, threads), predicted.cached)
            }
        };
        if let Some(kind) = kind {
            experience.learn(&self.experience_name(), kind, seconds / predicted);
        }
    }

    /// Returns the versions that a read of this plan took its elements from. The read began at
    /// `time` and opened `objects`.
    /// `None` if there are too many objects, or if one is so young that a later change could leave
    /// its version the same.
    pub(crate) fn as_of(&self, objects: OpenedVersions, time: SystemTime) -> Option<ReadVersion> {
        let is_certain = self.cell_count() <= OPENED_MAX
            && objects.len() as u64 == self.cell_count()
            && !objects.values().flatten().any(|version| was_too_young(version, time));
        is_certain.then(|| ReadVersion { moments: self.moments(), objects })
    }

    /// Returns true if a read of this plan would now return the elements of the read that
    /// `as_of` records.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn is_still(&self, as_of: &ReadVersion) -> Result<bool> {
        if self.moments() != as_of.moments {
            return Ok(false);
        }
        for (number, version) in &as_of.objects {
            let Some(cell) = self.cell(*number) else { return Ok(false) };
            if !cell.piece.source.is_still(&cell.coordinates(), version.as_ref())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn moments(&self) -> Vec<(u64, u64, bool)> {
        let moment = |piece: &PlanPiece<'_>| {
            (piece.meaning, piece.moment.number(), piece.moment.is_settled())
        };
        self.pieces.iter().map(moment).collect()
    }

    /// Returns the waits for path lookups of the plan's objects, where no cache knows them. The
    /// lookup of the array's document does not count: it was made before.
    fn names(&self) -> u64 {
        let mut names = LookupWaits::default();
        let cells = (0..self.cell_count().min(NAMED_MAX)).filter_map(|number| self.cell(number));
        let named = cells.filter(|cell| cell.piece.source.needs_lookups());
        let waits: u64 = named.map(|cell| names.waits_for(&cell.coordinates())).sum();
        waits.saturating_sub(DOCUMENT_WAITS)
    }

    /// Returns true if the read found nothing in memory, and false if it found everything there.
    /// `None` if it found some, or if it did other work than the price assumes.
    fn was_cold(&self, done: &ReadStatistics) -> Option<bool> {
        let [piece] = self.pieces else { return None };
        let is_whole = piece.moment.is_settled()
            && !piece.source.makes_chunks()
            && done.absent == 0
            && done.chunks == self.chunk_count()
            && done.objects == self.cell_count();
        if !is_whole {
            return None;
        }
        match done.waits {
            _ if self.is_remote() => Some(true),
            0 => Some(false),
            // No thread waits for bytes that were read ahead.
            waits => (waits >= done.objects).then_some(true),
        }
    }
}

/// Returns seconds as nanoseconds, the unit of costs.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn in_nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl<'a> PlannedCell<'a> {
    /// Returns the touched chunks of the object.
    pub(crate) fn tasks(&self) -> Vec<ChunkTask> {
        self.piece.geometry.tasks(self.number)
    }

    /// Returns the coordinates of the object in the grid of objects.
    pub(crate) fn coordinates(&self) -> Vec<u64> {
        self.piece.geometry.cell_coordinates(self.number)
    }

    /// Returns the need of the read for an object with so many tasks.
    pub(crate) fn need(&self, tasks: usize) -> Need {
        Need { chunks: tasks as u64, objects: self.piece.geometry.cell_count() }
    }

    /// Returns the codec of the object's chunks.
    pub(crate) fn codec(&self) -> &'a ChunkCodec {
        &self.piece.layout.codec
    }

    /// Returns the object's name for messages.
    pub(crate) fn object_name(&self) -> String {
        self.piece.source.object_name(&self.coordinates())
    }
}
