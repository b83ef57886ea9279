//! Plans of reads: lazy values that can be printed, priced, simulated, and run.
//!
//! A [`ReadPlan`] is made without I/O, in time and memory of the order of the axes and points of its
//! selection; no chunk of it is listed before its cell is resolved (see [`super::resolve`]). Its pieces
//! are of one source each, with a geometry, a decoding and a moment of its own; together they fill the
//! result, no element of it twice.

use super::chunks::ChunkCache;
use crate::codec::ChunkCodec;
use crate::plan::geometry::{ChunkTask, Geometry};
use crate::plan::opening::Need;
use crate::plan::price::{Cost, Price};
use crate::plan::tuning::{Merging, Tuning};
use crate::source::{Moment, Source, StoredLayout};

/// What is read of one source.
pub(crate) struct Piece<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) moment: &'a dyn Moment,
    pub(crate) layout: &'a StoredLayout,
    /// Which chunks are touched, and where their elements go in the result.
    pub(crate) geometry: &'a Geometry,
    /// Where its decoded chunks are kept, if at all.
    pub(crate) cache: Option<ChunkCache<'a>>,
}

impl Piece<'_> {
    /// True if chunks are stored as their elements and nothing else, so that parts of them can be read
    /// alone.
    pub(crate) fn is_raw(&self) -> bool {
        self.layout.codec.is_raw() && !self.source.makes_chunks()
    }
}

/// A read, planned.
#[derive(Clone, Copy)]
pub(crate) struct ReadPlan<'a> {
    pieces: &'a [Piece<'a>],
    tuning: &'a Tuning,
}

/// A cell of a plan: an object that a piece touches.
#[derive(Clone, Copy)]
pub(crate) struct PlannedCell<'a> {
    pub(crate) piece: &'a Piece<'a>,
    /// Its number among the cells of the piece.
    pub(crate) number: u64,
}

impl<'a> ReadPlan<'a> {
    /// The plan of these pieces, of one result each part of which is in one of them.
    pub(crate) fn new(pieces: &'a [Piece<'a>], tuning: &'a Tuning) -> Self {
        Self { pieces, tuning }
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
        self.pieces.iter().map(|piece| piece.geometry.cell_count()).sum()
    }

    /// How many chunks are touched.
    pub(crate) fn chunk_count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.geometry.chunk_count()).sum()
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
        let mut number = number;
        for piece in self.pieces {
            let cells = piece.geometry.cell_count();
            if number < cells {
                return Some(PlannedCell { piece, number });
            }
            number -= cells;
        }
        None
    }

    /// How extents of the plan's objects become requests.
    pub(crate) fn merging(&self) -> Merging<'a> {
        self.tuning.merging(self.chunk_count(), self.cell_count())
    }

    /// The price by the geometry alone, without I/O: as if no chunk were compressed or missing.
    pub(crate) fn estimate(&self) -> Price {
        let objects = self.cell_count();
        let decoded = self.pieces.iter().map(|piece| {
            piece.geometry.chunk_count().saturating_mul(piece.layout.codec.decoded_bytes() as u64)
        });
        let decoded = decoded.fold(0, u64::saturating_add);
        let bytes = if self.is_raw() { decoded.min(self.result_bytes()) } else { decoded };
        let largest = self.most(|codec| codec.decoded_bytes() as u64).min(bytes);
        let requests = self.chunk_count().min(bytes.div_ceil(self.merging().request_bytes(bytes)));
        let index_requests = objects;
        let cost = Cost {
            objects,
            index_requests,
            requests,
            bytes,
            largest,
            chunks: self.chunk_count(),
            decoded_bytes: decoded,
            result_bytes: self.result_bytes(),
            ..Cost::default()
        };
        Price { exact: false, ..self.price(&cost) }
    }

    /// The price of a plan of which all cells were resolved to `cost`.
    pub(crate) fn price(&self, cost: &Cost) -> Price {
        cost.price(self.tuning, self.most(ChunkCodec::scratch_bytes))
    }
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
