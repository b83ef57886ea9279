//! The values of one page of blocks, and the boxes of its blocks that are still to be read.

use bedform_format::DataType;
use bedform_format::checksum::crc32c;
use bedform_geometry::{ChunkGrid, Region, delinearize, linearize};

use crate::array::index::{FoldedBlock, ValueIndex};
use crate::index::{BinEdges, BlockBins, BlockTails, MISSING_BIN, UNKNOWN_BIN, put_box};

/// The values of a page, in the machine's byte order.
pub(super) struct PageValues {
    /// The page, in blocks.
    blocks: Region,
    item_size: usize,
    pub(super) least: Vec<u8>,
    pub(super) greatest: Vec<u8>,
    pub(super) missing: Vec<u8>,
    /// True for blocks that have their values.
    known: Vec<bool>,
    pub(super) bins: Option<PageBins>,
}

/// Level two of a page.
pub(super) struct PageBins {
    /// The number of bins.
    bins: usize,
    /// The elements of the page.
    pub(super) elements: Region,
    /// The number of elements in each bin of each block, the missing ones last, as 32-bit numbers
    /// in the machine's byte order.
    pub(super) counts: Vec<u8>,
    /// The CRC-32C of the numbers of each block, likewise.
    pub(super) checksums: Vec<u8>,
    /// The number of the bin of each element, in C order of the page; empty if the stored ones are
    /// still right.
    pub(super) numbers: Vec<u8>,
    /// With tails, their checksum for each block.
    pub(super) tail_checksums: Vec<u8>,
    /// The tails of the blocks; empty if the stored ones are still right, `None` for more elements
    /// than a page has room for.
    tails: Option<Vec<BlockTails>>,
    /// Elements of the tails of all blocks, and those that a page has room for.
    tail_count: u64,
    tail_room: u64,
}

/// Returns the value of a block without values: NaN, or zero for a type without it.
pub(super) fn absent(data_type: DataType) -> Vec<u8> {
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    match data_type {
        DataType::Float16 => 0x7e00_u16.to_ne_bytes().to_vec(),
        DataType::Float32 => f32::NAN.to_ne_bytes().to_vec(),
        DataType::Float64 => f64::NAN.to_ne_bytes().to_vec(),
        other => vec![0; other.item_size().unwrap_or(0)],
    }
}

impl PageValues {
    pub(super) fn new(data_type: DataType, blocks: &Region) -> Self {
        let count = blocks.len().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let absent = absent(data_type);
        let empty = absent.repeat(count);
        Self {
            blocks: blocks.clone(),
            item_size: absent.len(),
            least: empty.clone(),
            greatest: empty,
            missing: vec![0; count * size_of::<u32>()],
            known: vec![false; count],
            bins: None,
        }
    }

    /// Adds level two, with these edges, for these elements, and with room for so many elements of
    /// tails.
    pub(super) fn with_bins(mut self, edges: &BinEdges, elements: Region, tail_room: u64) -> Self {
        let (blocks, bins) = (self.known.len(), edges.bins());
        let tailed = if edges.has_tails() { blocks } else { 0 };
        self.bins = Some(PageBins {
            bins,
            elements,
            counts: vec![0; blocks * 4 * (bins + 1)],
            checksums: vec![0; blocks * 4],
            numbers: Vec::new(),
            tail_checksums: vec![0; tailed * 4],
            tails: Some(Vec::new()),
            tail_count: 0,
            tail_room,
        });
        self
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> u64 {
        self.known.len() as u64
    }

    /// The number of blocks that do not have their values yet.
    pub(super) fn unread(&self) -> u64 {
        self.known.iter().filter(|known| !**known).count() as u64
    }

    /// Takes the values of all blocks that an index knows. With bins it takes all or none: a page of
    /// numbers is written as a whole.
    pub(super) fn copy_from(&mut self, old: &ValueIndex) {
        for number in 0..self.known.len() {
            let mut block = delinearize(number as u64, self.blocks.shape());
            block.iter_mut().zip(self.blocks.start()).for_each(|(at, start)| *at += start);
            let Some(range) = old.range(&block) else { continue };
            if let Some(bins) = &mut self.bins {
                let Some(known) = old.bins(&block) else { continue };
                bins.put(number, &known);
            }
            let values = range.least_and_greatest.as_ref();
            let values = values.map(|(least, greatest)| (least.as_slice(), greatest.as_slice()));
            self.put(number, values, range.missing);
        }
        if self.bins.is_some() && self.unread() > 0 {
            self.known.fill(false);
        }
    }

    /// Sets the values of a box of blocks of the page.
    pub(super) fn set(&mut self, part: &Region, grid: &ChunkGrid, folds: &[FoldedBlock]) {
        for (number, fold) in (0..).zip(folds) {
            let mut within = delinearize(number, part.shape());
            let starts = part.start().iter().zip(self.blocks.start());
            within.iter_mut().zip(starts).for_each(|(at, (part, page))| *at += part - page);
            let number = linearize(&within, self.blocks.shape());
            let Ok(number) = usize::try_from(number) else { continue };
            self.put(number, fold.range.values(self.item_size), fold.range.missing);
            if let Some(bins) = &mut self.bins {
                let block = within.iter().zip(self.blocks.start()).map(|(at, start)| at + start);
                let block = grid.chunk_region_clipped(&block.collect::<Vec<_>>());
                bins.set(number, &block, &fold.numbers);
                bins.set_tails(number, self.known.len(), fold.tails(self.item_size));
            }
        }
    }

    fn put(&mut self, number: usize, values: Option<(&[u8], &[u8])>, missing: u64) {
        let place = number * self.item_size..(number + 1) * self.item_size;
        if let Some((least, greatest)) = values {
            self.least[place.clone()].copy_from_slice(least);
            self.greatest[place].copy_from_slice(greatest);
        }
        #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
        let missing = u32::try_from(missing).unwrap_or(u32::MAX).to_ne_bytes();
        self.missing[number * missing.len()..(number + 1) * missing.len()]
            .copy_from_slice(&missing);
        self.known[number] = true;
    }

    /// Divides the blocks without values into boxes of at most about `most` blocks each, cut
    /// between chunks of `unit` blocks where that is possible.
    pub(super) fn unread_boxes(&self, unit: &[u64], most: u64) -> Vec<Region> {
        let (shape, start) = (self.blocks.shape(), self.blocks.start());
        let mut left: Vec<bool> = self.known.iter().map(|known| !known).collect();
        let mut boxes = Vec::new();
        for first in 0..left.len() {
            if !left[first] {
                continue;
            }
            let from = delinearize(first as u64, shape);
            let length = largest_box(&left, shape, &from);
            each_of(&from, &length, shape, &mut |number| left[number] = false);
            let begin = from.iter().zip(start).map(|(at, start)| at + start);
            if let Ok(whole) = Region::new(begin.collect::<Vec<_>>(), length) {
                cut(whole, unit, most, &mut boxes);
            }
        }
        boxes
    }
}

impl PageBins {
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    fn put(&mut self, number: usize, known: &BlockBins) {
        let counts: Vec<u8> = known.counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        let size = 4 * (self.bins + 1);
        if let Some(place) = self.counts.get_mut(number * size..(number + 1) * size) {
            place.copy_from_slice(&counts);
        }
        let place = number * 4..(number + 1) * 4;
        self.checksums[place.clone()].copy_from_slice(&known.checksum.to_ne_bytes());
        if let Some(tail) = self.tail_checksums.get_mut(place) {
            tail.copy_from_slice(&known.tail_checksum.to_ne_bytes());
        }
    }

    /// Sets the tail of one of so many blocks; `None` if it has too many elements.
    #[allow(clippy::host_endian_bytes, reason = "elements in memory")]
    fn set_tails(&mut self, number: usize, blocks: usize, tails: Option<BlockTails>) {
        let place = number * 4..(number + 1) * 4;
        let Some(checksum) = self.tail_checksums.get_mut(place) else { return };
        self.tail_count += tails.as_ref().map_or(0, BlockTails::len);
        let (Some(tails), Some(all)) = (tails, &mut self.tails) else { return self.tails = None };
        checksum.copy_from_slice(&tails.checksum().to_ne_bytes());
        all.resize_with(blocks, BlockTails::default);
        all[number] = tails;
        if self.tail_count > self.tail_room {
            self.tails = None;
        }
    }

    /// The tails of all blocks, one behind the other; `None` for more than a page has room for.
    pub(super) fn tails(&self) -> Option<BlockTails> {
        let mut all = BlockTails::default();
        for tails in self.tails.as_ref()? {
            all.positions.extend_from_slice(&tails.positions);
            all.values.extend_from_slice(&tails.values);
        }
        Some(all)
    }

    /// Sets the numbers of the elements of a block, in C order.
    fn set(&mut self, number: usize, block: &Region, numbers: &[u8]) {
        let mut all = [0_u32; 256];
        numbers.iter().for_each(|number| all[usize::from(*number)] += 1);
        let missing = all[usize::from(MISSING_BIN)];
        let counts = all[..self.bins].iter().copied().chain([missing]).collect();
        // The tail follows.
        let tail_checksum = 0;
        self.put(number, &BlockBins { counts, checksum: crc32c(numbers), tail_checksum });
        let elements = self.elements.len().and_then(|count| usize::try_from(count).ok());
        self.numbers.resize(elements.unwrap_or(0), UNKNOWN_BIN);
        let start = block.start().iter().zip(self.elements.start()).map(|(at, page)| at - page);
        let (start, page): (Vec<u64>, _) = (start.collect(), self.elements.shape());
        put_box(&mut self.numbers, page, &start, block.shape(), numbers);
    }
}

/// Calls `act` with the number of each place of a box, until it has seen all.
fn each_of(from: &[u64], length: &[u64], shape: &[u64], act: &mut dyn FnMut(usize)) {
    let count: u64 = length.iter().product();
    for number in 0..count {
        let mut at = delinearize(number, length);
        at.iter_mut().zip(from).for_each(|(at, from)| *at += from);
        act(usize::try_from(linearize(&at, shape)).unwrap_or(usize::MAX));
    }
}

/// Returns the shape of a box that begins at `from` and has only places that are left, grown along
/// the fastest axis first.
fn largest_box(left: &[bool], shape: &[u64], from: &[u64]) -> Vec<u64> {
    let mut length = vec![1; from.len()];
    for axis in (0..from.len()).rev() {
        while from[axis] + length[axis] < shape[axis] {
            // The next layer of the box along this axis.
            let (mut next, mut layer) = (from.to_vec(), length.clone());
            (next[axis], layer[axis]) = (from[axis] + length[axis], 1);
            let mut is_left = true;
            each_of(&next, &layer, shape, &mut |number| is_left &= left[number]);
            if !is_left {
                break;
            }
            length[axis] += 1;
        }
    }
    length
}

/// Cuts a box into boxes of at most about `most` blocks, along the slowest axes first.
fn cut(whole: Region, unit: &[u64], most: u64, boxes: &mut Vec<Region>) {
    let count = whole.len().unwrap_or(u64::MAX);
    let long = (0..whole.rank()).find(|axis| whole.shape()[*axis] > unit[*axis].max(1));
    let Some(axis) = long.filter(|_| count > most) else { return boxes.push(whole) };
    let (length, unit_length) = (whole.shape()[axis], unit[axis].max(1));
    let layer = (count / length).max(1);
    let step = (most / layer / unit_length).max(1).saturating_mul(unit_length);
    let end = whole.end(axis);
    let mut begin = whole.start()[axis];
    while begin < end {
        // Cuts lie between chunks.
        let next = (begin / unit_length * unit_length).saturating_add(step).min(end);
        let (mut start, mut shape) = (whole.start().to_vec(), whole.shape().to_vec());
        (start[axis], shape[axis]) = (begin, next - begin);
        if let Ok(part) = Region::new(start, shape) {
            match step > unit_length || layer <= most {
                true => boxes.push(part),
                false => cut(part, unit, most, boxes),
            }
        }
        begin = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(shape: &[u64], known: &[u64]) -> PageValues {
        let start: Vec<u64> = shape.iter().map(|_| 10).collect();
        let region = Region::new(start, shape.to_vec()).unwrap();
        let mut page = PageValues::new(DataType::Float32, &region);
        for number in known {
            page.known[usize::try_from(*number).unwrap()] = true;
        }
        page
    }

    /// Every unread block lies in exactly one box, and no other.
    fn check(page: &PageValues, boxes: &[Region]) {
        let mut seen = vec![0; page.known.len()];
        for region in boxes {
            let from = region.start().iter().zip(page.blocks.start()).map(|(at, start)| at - start);
            let from: Vec<u64> = from.collect();
            each_of(&from, region.shape(), page.blocks.shape(), &mut |number| seen[number] += 1);
        }
        for (seen, known) in seen.iter().zip(&page.known) {
            assert_eq!(*seen, i32::from(!known));
        }
    }

    #[test]
    fn unread_blocks_are_divided_into_boxes_of_at_most_a_step() {
        let whole = page(&[6, 4, 5], &[]);
        assert_eq!(whole.unread_boxes(&[1, 1, 1], 1000).len(), 1);
        for (unit, most, count) in [([1, 1, 1], 20, 6), ([2, 1, 1], 20, 3), ([1, 1, 1], 10, 12)] {
            let boxes = whole.unread_boxes(&unit, most);
            check(&whole, &boxes);
            assert_eq!(boxes.len(), count, "{unit:?} {most}");
        }
        let some = page(&[6, 4, 5], &[0, 7, 41, 42, 43, 119]);
        check(&some, &some.unread_boxes(&[1, 1, 1], 1000));
        check(&some, &some.unread_boxes(&[1, 2, 1], 7));
        let one = page(&[], &[]);
        check(&one, &one.unread_boxes(&[], 1));
    }

    #[test]
    fn a_changed_row_alone_is_one_box() {
        let known: Vec<u64> = (0..120).filter(|number| number / 20 != 3).collect();
        let row = page(&[6, 4, 5], &known);
        let boxes = row.unread_boxes(&[1, 1, 1], 1000);
        assert_eq!(boxes, [Region::new([13, 10, 10], [1, 4, 5]).unwrap()]);
    }
}
