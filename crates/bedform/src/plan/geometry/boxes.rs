//! Boxes that lie in chunks with shapes of their own, as those of refined meshes do.

use bedform_geometry::ChunkGrid;

use super::ChunkTask;
use crate::plan::copy::{Axis, Copy};
use crate::plan::numbers::{index, signed};
use crate::plan::part::ChunkPart;

/// A box to read: the object and the chunk that hold it, and the copy from there to the result.
#[derive(Debug)]
pub(crate) struct ChunkBox {
    pub(crate) object: u64,
    /// The chunk's position in the object.
    pub(crate) position: u64,
    /// The chunk's number among all chunks.
    pub(crate) chunk: u64,
    pub(crate) copy: Copy,
}

impl ChunkBox {
    /// Cuts copies of an array of one axis at the bounds of its chunks, of which each object holds
    /// `per_object`. The copies begin at bytes of the array, and no step of theirs in it is
    /// negative; `item` is the bytes of an element.
    pub(crate) fn of_row(
        grid: &ChunkGrid,
        per_object: u64,
        item: usize,
        copies: Vec<Copy>,
    ) -> Vec<Self> {
        let chunk_bytes = signed(grid.chunk_shape()[0].max(1).saturating_mul(item as u64));
        let mut boxes = Vec::with_capacity(copies.len());
        for copy in copies {
            cut(copy, chunk_bytes, item, &mut |chunk, copy| {
                let (object, position) = (chunk / per_object, chunk % per_object);
                boxes.push(Self { object, position, chunk, copy });
            });
        }
        boxes
    }
}

/// Visits the parts of a copy in each chunk, counted from the chunk's first byte. A copy across two
/// chunks is cut along its slowest axis.
fn cut(copy: Copy, chunk_bytes: i64, item: usize, visit: &mut impl FnMut(u64, Copy)) {
    let range = copy.source_range(item);
    if range.is_empty() {
        return;
    }
    let chunk_of = |byte: i64| byte / chunk_bytes;
    let chunk = chunk_of(copy.source_start);
    let slowest = (0..copy.axes.len()).max_by_key(|axis| source_step(&copy.axes[*axis]));
    let (true, Some(slowest)) = (chunk_of(signed(range.end as u64 - 1)) > chunk, slowest) else {
        let source_start = copy.source_start - chunk * chunk_bytes;
        visit(chunk.cast_unsigned(), Copy { source_start, ..copy });
        return;
    };
    let axis = &copy.axes[slowest];
    let (step, mut done) = (source_step(axis).max(1), 0);
    while done < axis.count() {
        let (source, target) = axis.offset(done);
        let source_start = copy.source_start + source;
        let mut part = copy.clone();
        // One row is cut at the bounds of the chunks, others position by position.
        let count = if copy.axes.len() == 1 {
            let left = (chunk_of(source_start) + 1) * chunk_bytes - source_start;
            let inside = ((left + step - 1) / step).cast_unsigned().min(axis.count() - done);
            part.axes = vec![axis.slice(done..done + inside)];
            inside
        } else {
            part.axes.remove(slowest);
            1
        };
        part.source_start = source_start;
        part.target_start += target;
        cut(part, chunk_bytes, item, visit);
        done += count;
    }
}

fn source_step(axis: &Axis) -> i64 {
    axis.offset(1).0
}

/// Boxes by the chunks that hold them, and those by object.
#[derive(Debug)]
pub(super) struct BoxCells {
    boxes: Vec<ChunkBox>,
    /// The first box of each chunk, and the number of all.
    chunks: Vec<usize>,
    /// The first chunk of each object, and the number of all.
    objects: Vec<usize>,
}

impl BoxCells {
    pub(super) fn new(mut boxes: Vec<ChunkBox>) -> Self {
        boxes.sort_by_key(|one| (one.object, one.position));
        let chunks = starts(boxes.len(), |one, other| {
            (boxes[one].object, boxes[one].position) == (boxes[other].object, boxes[other].position)
        });
        let object = |chunk: usize| boxes[chunks[chunk]].object;
        let objects = starts(chunks.len() - 1, |one, other| object(one) == object(other));
        Self { boxes, chunks, objects }
    }

    pub(super) fn cell_count(&self) -> u64 {
        self.objects.len() as u64 - 1
    }

    pub(super) fn chunk_count(&self) -> u64 {
        self.chunks.len() as u64 - 1
    }

    /// Returns the first box of each chunk of an object.
    fn chunks_of(&self, cell: u64) -> &[usize] {
        &self.chunks[self.objects[index(cell)]..self.objects[index(cell) + 1]]
    }

    pub(super) fn object(&self, cell: u64) -> u64 {
        self.boxes[self.chunks_of(cell)[0]].object
    }

    pub(super) fn tasks(&self, cell: u64) -> Vec<ChunkTask> {
        let chunks = self.chunks_of(cell).iter().zip(0..);
        chunks
            .map(|(first, number)| ChunkTask { position: self.boxes[*first].position, number })
            .collect()
    }

    /// Returns the boxes of a task's chunk.
    fn of_task(&self, cell: u64, task: ChunkTask) -> &[ChunkBox] {
        let chunk = self.objects[index(cell)] + index(task.number);
        &self.boxes[self.chunks[chunk]..self.chunks[chunk + 1]]
    }

    pub(super) fn chunk(&self, cell: u64, task: ChunkTask) -> u64 {
        self.of_task(cell, task)[0].chunk
    }

    /// Returns the copies of a task's chunk.
    pub(super) fn copies(&self, cell: u64, task: ChunkTask) -> impl Iterator<Item = &Copy> {
        self.of_task(cell, task).iter().map(|one| &one.copy)
    }

    /// Returns the elements of each copy of a task's chunk, which is one of an array of one axis.
    pub(super) fn parts(
        &self,
        cell: u64,
        task: ChunkTask,
        item: i64,
    ) -> impl Iterator<Item = ChunkPart<'static>> {
        self.copies(cell, task).map(move |copy| {
            let (mut inside, mut targets) = (Vec::new(), Vec::new());
            copy.for_each_place(|source, target| {
                inside.push((source / item).cast_unsigned());
                targets.push(target);
            });
            ChunkPart::Points { inside: vec![inside], targets }
        })
    }

    pub(super) fn move_by(&mut self, bytes: i64) {
        self.boxes.iter_mut().for_each(|one| one.copy.target_start += bytes);
    }
}

/// Returns the first of each run of equal neighbours among `count`, and `count`.
fn starts(count: usize, is_equal: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let is_first = |at: &usize| *at == 0 || !is_equal(*at - 1, *at);
    (0..count).filter(is_first).chain([count]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: usize = 4;

    /// Returns the element of the array, and the byte of the target, of each element that boxes
    /// copy.
    fn moves(boxes: &[ChunkBox], length: i64) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        for one in boxes {
            one.copy.for_each_place(|source, target| {
                assert!((0..length * ITEM as i64).contains(&source), "inside of its chunk");
                found.push((one.chunk.cast_signed() * length + source / ITEM as i64, target));
            });
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn a_copy_that_is_cut_at_chunks_moves_the_same_elements() {
        for (length, per_object) in [(1, 1), (3, 2), (7, 3), (64, 1), (1000, 5)] {
            for shape in [vec![1], vec![9], vec![4, 5], vec![3, 4, 5], vec![5, 1, 6]] {
                for gap in [1, 2] {
                    let mut copy = Copy { source_start: 5 * ITEM as i64, ..Copy::default() };
                    let (mut step, mut target) = (ITEM as i64 * gap, ITEM as i64);
                    for count in &shape {
                        let axis =
                            Axis::Even { source_step: step, target_step: target, count: *count };
                        copy.axes.push(axis);
                        step *= count.cast_signed() + gap - 1;
                        target *= count.cast_signed();
                    }
                    let mut expected = Vec::new();
                    copy.for_each_place(|from, to| expected.push((from / ITEM as i64, to)));
                    expected.sort_unstable();
                    let grid = ChunkGrid::new(vec![1000], vec![length]).unwrap();
                    let boxes = ChunkBox::of_row(&grid, per_object, ITEM, vec![copy]);
                    assert_eq!(moves(&boxes, length.cast_signed()), expected, "{length} {shape:?}");
                    assert!(boxes.iter().all(|one| {
                        (one.object, one.position)
                            == (one.chunk / per_object, one.chunk % per_object)
                    }));
                }
            }
        }
    }

    #[test]
    fn boxes_of_one_chunk_are_one_task_with_their_elements() {
        let grid = ChunkGrid::new(vec![40], vec![10]).unwrap();
        let copy = |start: i64, target_start: i64, count| Copy {
            source_start: start * ITEM as i64,
            target_start,
            axes: vec![Axis::Even { source_step: 4, target_step: 4, count }],
        };
        let copies = vec![copy(31, 0, 2), copy(2, 8, 3), copy(6, 20, 6)];
        let cells = BoxCells::new(ChunkBox::of_row(&grid, 2, ITEM, copies));
        assert_eq!((cells.cell_count(), cells.chunk_count()), (2, 3));
        let tasks = cells.tasks(0);
        assert_eq!(tasks.iter().map(|task| task.position).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(cells.copies(0, tasks[0]).count(), 2);
        assert_eq!((cells.chunk(0, tasks[1]), cells.chunk(1, cells.tasks(1)[0])), (1, 3));
        let parts: Vec<_> = cells.parts(0, tasks[0], 4).collect();
        let ChunkPart::Points { inside, targets } = &parts[0] else { panic!("points") };
        assert_eq!((inside, targets), (&vec![vec![2, 3, 4]], &vec![8, 12, 16]));
    }
}
