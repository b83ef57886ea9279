//! Boxes that lie in chunks with shapes of their own, as those of refined meshes do.

use super::ChunkTask;
use crate::plan::copy::Copy;

/// A box to read: the object and the chunk that hold it, and the copy from there to the result.
#[derive(Debug)]
pub(crate) struct ChunkBox {
    pub(crate) object: u64,
    /// The chunk's position in the object.
    pub(crate) position: u64,
    pub(crate) copy: Copy,
}

/// Boxes by the objects that hold them.
#[derive(Debug)]
pub(super) struct BoxCells {
    boxes: Vec<ChunkBox>,
    /// The first box of each object, and the number of all.
    starts: Vec<usize>,
}

impl BoxCells {
    pub(super) fn new(mut boxes: Vec<ChunkBox>) -> Self {
        boxes.sort_by_key(|one| (one.object, one.position));
        let is_first = |at: &usize| *at == 0 || boxes[at - 1].object != boxes[*at].object;
        let mut starts: Vec<usize> = (0..boxes.len()).filter(is_first).collect();
        starts.push(boxes.len());
        Self { boxes, starts }
    }

    pub(super) fn cell_count(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    pub(super) fn chunk_count(&self) -> u64 {
        self.boxes.len() as u64
    }

    /// Returns the boxes of an object that is touched.
    fn of_cell(&self, cell: u64) -> &[ChunkBox] {
        #[allow(clippy::cast_possible_truncation)]
        let cell = cell as usize;
        &self.boxes[self.starts[cell]..self.starts[cell + 1]]
    }

    pub(super) fn object(&self, cell: u64) -> u64 {
        self.of_cell(cell)[0].object
    }

    pub(super) fn tasks(&self, cell: u64) -> Vec<ChunkTask> {
        let boxes = self.of_cell(cell).iter().zip(0..);
        boxes.map(|(one, number)| ChunkTask { position: one.position, number }).collect()
    }

    /// Returns a copy by the number of its task in the cell.
    pub(super) fn copy(&self, cell: u64, number: u64) -> &Copy {
        #[allow(clippy::cast_possible_truncation)]
        let number = number as usize;
        &self.of_cell(cell)[number].copy
    }

    pub(super) fn move_by(&mut self, bytes: i64) {
        self.boxes.iter_mut().for_each(|one| one.copy.target_start += bytes);
    }
}
