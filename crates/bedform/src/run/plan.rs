//! Plans of reads: lazy values that can be printed, priced, simulated, and run.
//!
//! A [`ReadPlan`] is made without I/O, in time and memory of the order of the axes and points of its
//! selection; no chunk of it is listed before its cell is resolved (see [`super::resolve`]). Its pieces
//! are of one source each, with a geometry, a decoding and a moment of its own; together they fill the
//! result, no element of it twice.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bedform_codec::ChunkCodec;
use bedform_storage::{FactorKind, Refined, Version};

use super::chunks::ChunkCache;
use super::execute::ReadStatistics;
use super::names::{DOCUMENT_WAITS, Names};
use crate::cache::was_too_young;
use crate::codec::cost::{Decoding, chain_name, decoding_seconds};
use crate::error::Result;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::opening::Need;
use crate::plan::price::{Cost, Price};
use crate::plan::tuning::{Merging, Tuning};
use crate::source::{Moment, Source, StoredLayout};

/// What a read gave the elements of. Two reads of one selection by one handle with the same value give the same
/// elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AsOf {
    /// For each piece its meaning, the last commit, and whether that is in the objects.
    moments: Vec<(u64, u64, bool)>,
    objects: Opened,
}

/// The objects of the cells of a plan, as they were opened; nothing for those that are not there.
pub(crate) type Opened = BTreeMap<u64, Option<Version>>;

/// What is read of one source.
pub(crate) struct Piece<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) moment: &'a dyn Moment,
    pub(crate) layout: &'a StoredLayout,
    /// Tells what decides, beside the objects and commits, which elements there are.
    pub(crate) meaning: u64,
    /// Which chunks are touched, and where their elements go in the result.
    pub(crate) geometry: &'a Geometry,
    /// Where its decoded chunks are kept, if at all.
    pub(crate) cache: Option<ChunkCache<'a>>,
    /// The axis along which the source is a part of the array, and where in the array it begins.
    pub(crate) begins: Option<(usize, u64)>,
    /// Cells of the pieces before it; see [`Piece::number`].
    pub(crate) cells_before: u64,
}

impl Piece<'_> {
    /// Counts the cells before each of several pieces of one plan.
    pub(crate) fn number(pieces: &mut [Self]) {
        let mut cells = 0;
        for piece in pieces {
            piece.cells_before = cells;
            cells += piece.geometry.cell_count();
        }
    }

    /// Stretches that lie together in a chunk and in the result, as if all chunks were like one.
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

    /// True if chunks are stored as their elements and nothing else, so that parts of them can be read
    /// alone.
    pub(crate) fn is_raw(&self) -> bool {
        self.layout.codec.is_raw() && !self.source.makes_chunks()
    }
}

/// Objects whose names are counted where a read is learnt from: of more they are a small part.
const NAMED_MAX: u64 = 1 << 10;
/// Objects of a read that are opened to see whether it would give the same.
const OPENED_MAX: u64 = 1 << 8;

/// A read, planned.
#[derive(Clone, Copy)]
pub(crate) struct ReadPlan<'a> {
    pieces: &'a [Piece<'a>],
    tuning: &'a Tuning,
    /// Of all pieces, which may be thousands.
    cells: u64,
    chunks: u64,
}

/// A cell of a plan: an object that a piece touches.
#[derive(Clone, Copy)]
pub(crate) struct PlannedCell<'a> {
    pub(crate) piece: &'a Piece<'a>,
    /// Its number among the cells of the piece.
    pub(crate) number: u64,
}

impl<'a> ReadPlan<'a> {
    /// The plan of these pieces, of one result each part of which is in one of them. Several are
    /// [numbered](Piece::number).
    pub(crate) fn new(pieces: &'a [Piece<'a>], tuning: &'a Tuning) -> Self {
        let cells = pieces.iter().map(|piece| piece.geometry.cell_count()).sum();
        let chunks = pieces.iter().map(|piece| piece.geometry.chunk_count()).sum();
        Self { pieces, tuning, cells, chunks }
    }

    pub(crate) fn pieces(&self) -> &'a [Piece<'a>] {
        self.pieces
    }

    pub(crate) fn tuning(&self) -> &'a Tuning {
        self.tuning
    }

    /// Bytes of the result.
    pub(crate) fn result_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.geometry.result_bytes()).sum()
    }

    /// Bytes of an element.
    pub(crate) fn item_size(&self) -> usize {
        self.pieces.first().map_or(1, |piece| piece.geometry.item_size())
    }

    /// How many objects are touched.
    pub(crate) fn cell_count(&self) -> u64 {
        self.cells
    }

    /// How many chunks are touched.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.chunks
    }

    /// The most that `measure` gives of a piece's codec.
    pub(crate) fn most(&self, measure: impl Fn(&ChunkCodec) -> u64) -> u64 {
        self.pieces.iter().map(|piece| measure(&piece.layout.codec)).max().unwrap_or(0)
    }

    /// True if every chunk is stored as its elements and nothing else.
    pub(crate) fn is_raw(&self) -> bool {
        self.pieces.iter().all(Piece::is_raw)
    }

    /// True if a callback makes the chunks of a piece.
    pub(crate) fn calls_back(&self) -> bool {
        self.pieces.iter().any(|piece| piece.source.makes_chunks())
    }

    /// True if opening an object is a wait for a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.pieces.iter().any(|piece| piece.source.is_remote())
    }

    /// The cell of a number below [`ReadPlan::cell_count`].
    pub(crate) fn cell(&self, number: u64) -> Option<PlannedCell<'a>> {
        if number >= self.cells {
            return None;
        }
        // Of pieces without cells, too, the last one that begins so early has it.
        let behind = self.pieces.partition_point(|piece| piece.cells_before <= number);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        Some(PlannedCell { piece, number: number - piece.cells_before })
    }

    /// How extents of the plan's objects become requests.
    pub(crate) fn merging(&self) -> Merging<'a> {
        self.tuning.merging(self.chunk_count(), self.cell_count())
    }

    /// The price by the geometry alone, without I/O: as if no chunk were compressed or missing.
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

    /// The most that the price can be, without I/O: as if no chunk were compressed, and no request had more than a
    /// chunk, or a stretch that lies together where parts of chunks are read.
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

    /// Bytes of all chunks when they are decoded.
    fn decoded_bytes(&self) -> u64 {
        let decoded = self.pieces.iter().map(|piece| {
            piece.geometry.chunk_count().saturating_mul(piece.layout.codec.decoded_bytes() as u64)
        });
        decoded.fold(0, u64::saturating_add)
    }

    /// What the processor does by the geometry alone, of chunks that have `encoded_bytes` together.
    fn processing(&self, encoded_bytes: u64) -> Cost {
        let (chunks, decoded_bytes) = (self.chunk_count(), self.decoded_bytes());
        let codec = self.pieces.first().map(|piece| &piece.layout.codec);
        let of = Decoding::of(chunks, encoded_bytes, decoded_bytes);
        let decoding_nanos = codec.filter(|codec| !codec.is_raw()).map_or(0, |codec| {
            in_nanos(decoding_seconds(codec.chain(), &self.tuning.profile.processor, of))
        });
        let runs = self.pieces.iter().map(Piece::estimated_runs).fold(0, u64::saturating_add);
        let result_bytes = self.result_bytes();
        Cost { chunks, decoded_bytes, decoding_nanos, runs, result_bytes, ..Cost::default() }
    }

    /// The price of a plan of which all cells were resolved to `cost`.
    pub(crate) fn price(&self, cost: &Cost) -> Price {
        let name = self.experience_name();
        let refined = match &self.tuning.experience {
            Some(experience) => experience.refined(&name),
            None => self.tuning.profile.refinement.get(&name).copied().unwrap_or_default(),
        };
        cost.price(self.tuning, self.most(ChunkCodec::scratch_bytes), refined)
    }

    /// What reads like this one are learnt about by.
    fn experience_name(&self) -> String {
        self.pieces.first().map_or_else(String::new, |piece| chain_name(piece.layout.codec.chain()))
    }

    /// Learns from a read of this plan that did `done` in so many seconds.
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

    /// What a read of this plan that began at `time` and opened `objects` gave the elements of; nothing where they
    /// are too many, or one could be another since and look the same.
    pub(crate) fn as_of(&self, objects: Opened, time: SystemTime) -> Option<AsOf> {
        let is_certain = self.cell_count() <= OPENED_MAX
            && objects.len() as u64 == self.cell_count()
            && !objects.values().flatten().any(|version| was_too_young(version, time));
        is_certain.then(|| AsOf { moments: self.moments(), objects })
    }

    /// True if a read of this plan would give now what another one has given.
    ///
    /// # Errors
    /// Those of storage.
    pub(crate) fn is_still(&self, as_of: &AsOf) -> Result<bool> {
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
        let moment =
            |piece: &Piece<'_>| (piece.meaning, piece.moment.number(), piece.moment.is_settled());
        self.pieces.iter().map(moment).collect()
    }

    /// Waits for the names of its objects, where nothing is in memory but the array's document, which was looked
    /// at before.
    fn names(&self) -> u64 {
        let mut names = Names::default();
        let cells = (0..self.cell_count().min(NAMED_MAX)).filter_map(|number| self.cell(number));
        let named = cells.filter(|cell| cell.piece.source.has_names());
        let waits: u64 = named.map(|cell| names.waits_for(&cell.coordinates())).sum();
        waits.saturating_sub(DOCUMENT_WAITS)
    }

    /// True if a read found nothing in memory, false if all; nothing if some were here and some there, or the read
    /// was another than the one that is priced.
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
            // What is fetched ahead is waited for by nobody.
            waits => (waits >= done.objects).then_some(true),
        }
    }
}

/// A time, as costs are added up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn in_nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl<'a> PlannedCell<'a> {
    /// The chunks of the object that are touched.
    pub(crate) fn tasks(&self) -> Vec<ChunkTask> {
        self.piece.geometry.tasks(self.number)
    }

    /// The coordinates of the object in the grid of objects.
    pub(crate) fn coordinates(&self) -> Vec<u64> {
        self.piece.geometry.cell_coordinates(self.number)
    }

    /// What the read needs of the object that it has so many tasks for.
    pub(crate) fn need(&self, tasks: usize) -> Need {
        Need { chunks: tasks as u64, objects: self.piece.geometry.cell_count() }
    }

    /// The codec of the object's chunks.
    pub(crate) fn codec(&self) -> &'a ChunkCodec {
        &self.piece.layout.codec
    }

    /// The object's name, for messages.
    pub(crate) fn object_name(&self) -> String {
        self.piece.source.object_name(&self.coordinates())
    }
}
