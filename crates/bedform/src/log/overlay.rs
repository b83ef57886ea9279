//! The pieces that lie over an object's chunks.
//!
//! A chunk is built whole: as it is stored, or of fill values, and then every piece that touches it in
//! the order of the commits. So every selection, codec and order of axes works as without a log.

use std::sync::Arc;

use bedform_geometry::{ChunkGrid, Region, strides};

use super::view::LoadedSection;
use crate::array::ArrayState;
use crate::error::Result;
use crate::read::scatter::{Axis, Copy, Target};
use crate::write::elements::stored_fill;

/// One box that a commit wrote.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) region: Region,
    pub(crate) epoch: u32,
    pub(crate) rank: u32,
    pub(crate) section: Arc<LoadedSection>,
    /// The first byte of its elements, which are in C order, in the section's data.
    pub(crate) start: u64,
    pub(crate) item_size: usize,
}

/// What is laid over an object: pieces, later ones over earlier ones.
#[derive(Debug)]
pub(crate) struct Overlay {
    pieces: Vec<Piece>,
    form: Form,
}

/// How the elements of a chunk lie in memory: as they are stored (order of axes, byte order).
#[derive(Debug)]
struct Form {
    grid: ChunkGrid,
    strides: Vec<i64>,
    bytes: usize,
    item_size: usize,
    swap_size: usize,
    fill: Vec<u8>,
}

impl Overlay {
    /// The `pieces` of an object of the array with `state`.
    pub(crate) fn new(mut pieces: Vec<Piece>, state: &ArrayState) -> Self {
        pieces.retain(|piece| piece.item_size == state.item_size);
        let form = Form {
            grid: state.grid.clone(),
            strides: state.codec.strides().to_vec(),
            bytes: state.codec.decoded_bytes(),
            item_size: state.item_size,
            swap_size: state.codec.swap_size(),
            fill: stored_fill(state),
        };
        Self { pieces, form }
    }

    /// The pieces with a share in a region, and their shares.
    fn shares<'a>(&'a self, chunk: &'a Region) -> impl Iterator<Item = (&'a Piece, Region)> {
        let shares = self.pieces.iter();
        shares.filter_map(|piece| Some((piece, piece.region.intersection(chunk)?)))
    }

    /// True if some piece has a share in the chunk at `coordinates`.
    pub(crate) fn touches(&self, coordinates: &[u64]) -> bool {
        self.shares(&self.form.grid.chunk_region(coordinates)).next().is_some()
    }

    /// True if one piece has all of a chunk, so that what is stored of it does not matter.
    pub(crate) fn covers(&self, coordinates: &[u64]) -> bool {
        let chunk = self.form.grid.chunk_region(coordinates);
        self.shares(&chunk).any(|(_, share)| share.shape() == chunk.shape())
    }

    /// Makes every element of a chunk the fill value.
    pub(crate) fn fill(&self, elements: &mut Vec<u8>) {
        elements.clear();
        while elements.len() < self.form.bytes {
            elements.extend_from_slice(&self.form.fill);
        }
    }

    /// Lays the pieces over the elements of the chunk at `coordinates`.
    ///
    /// # Errors
    /// `Corrupt` for damaged data; those of storage.
    pub(crate) fn lay(&self, coordinates: &[u64], elements: &mut [u8]) -> Result<()> {
        let chunk = self.form.grid.chunk_region(coordinates);
        let mut bytes = Vec::new();
        for (piece, share) in self.shares(&chunk) {
            piece.lay(&self.form, &chunk, &share, elements, &mut bytes)?;
        }
        Ok(())
    }
}

impl Piece {
    /// Copies the elements of `shared`, a part of this piece and of `chunk`.
    fn lay(
        &self,
        form: &Form,
        chunk: &Region,
        shared: &Region,
        elements: &mut [u8],
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let item = self.item_size as u64;
        let steps = strides(self.region.shape());
        let place = |at: &dyn Fn(usize) -> u64| -> u64 {
            (0..steps.len()).map(|axis| (at(axis) - self.region.start()[axis]) * steps[axis]).sum()
        };
        let first = place(&|axis| shared.start()[axis]);
        let last = place(&|axis| shared.end(axis) - 1);
        let (from, to) = (self.start + first * item, self.start + (last + 1) * item);
        self.section.read(from, to, bytes)?;
        let mut copy = Copy::default();
        for (axis, target_step) in form.strides.iter().enumerate() {
            let inside = shared.start()[axis] - chunk.start()[axis];
            copy.target_start += signed(inside) * target_step;
            copy.axes.push(Axis::Even {
                source_step: signed(steps[axis] * item),
                target_step: *target_step,
                count: shared.shape()[axis],
            });
        }
        copy.tidy();
        let target = Target::new(elements);
        // SAFETY: this thread alone has the chunk.
        unsafe { copy.run(bytes, target, form.item_size, form.swap_size) }
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
