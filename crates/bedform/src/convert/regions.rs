//! Regions: the parts of an array that are converted one at a time. Pure arithmetic on lengths.
//!
//! A region is a block of whole shards, so that every shard is written once. It grows within the
//! memory until it covers whole chunks of the source where it can. So a chunk of the source is
//! decoded once, and not again for every shard that it touches.

use bedform_geometry::Region;

use crate::error::Result;

/// Copies of a region in memory: its values, and its encoded shards.
const BUFFERS: u64 = 2;

/// The lengths of one array that decide its regions.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegionSizing<'a> {
    /// Elements along each axis.
    pub(super) shape: &'a [u64],
    /// Elements of a chunk of the source along each axis; `None` for a source without chunks.
    pub(super) source_chunks: Option<&'a [u64]>,
    /// Bytes of an element.
    pub(super) item_size: u64,
    /// Threads that each hold a chunk of the source.
    pub(super) threads: u64,
}

impl RegionSizing<'_> {
    /// Bytes in memory while a region of `shape` is copied: its values, its encoded shards, and for
    /// each thread a chunk of the source, encoded and decoded.
    pub(super) fn memory_needed(&self, shape: &[u64]) -> u64 {
        let clipped = shape.iter().zip(self.shape).map(|(extent, length)| *extent.min(length));
        let values = product(clipped).saturating_mul(self.item_size);
        let chunk = self
            .source_chunks
            .map_or(0, |chunks| product(chunks.iter().copied()).saturating_mul(self.item_size));
        let chunks = chunk.saturating_mul(2).saturating_mul(self.threads);
        values.saturating_mul(BUFFERS).saturating_add(chunks)
    }

    /// Shrinks shards until they fit `memory` bytes: halves them along the axis with the most
    /// chunks. They stay whole chunks, at least one, even if that does not fit.
    pub(super) fn fit_shards(&self, chunks: &[u64], shards: &[u64], memory: u64) -> Vec<u64> {
        let mut counts: Vec<u64> = shards
            .iter()
            .zip(chunks)
            .map(|(shard, chunk)| (shard / chunk.max(&1)).max(1))
            .collect();
        loop {
            let fitted: Vec<u64> = counts
                .iter()
                .zip(chunks)
                .map(|(count, chunk)| count.saturating_mul(*chunk))
                .collect();
            let largest = counts.iter().copied().max().unwrap_or(1);
            if largest <= 1 || self.memory_needed(&fitted) <= memory {
                return fitted;
            }
            // The first of equal axes.
            if let Some(count) = counts.iter_mut().find(|count| **count == largest) {
                *count = count.div_ceil(2);
            }
        }
    }

    /// Grows a block of whole shards of `unit` elements until few chunks of the source are decoded
    /// twice.
    ///
    /// It starts as one shard. The axis along which most elements are decoded in vain doubles,
    /// while the block fits `memory` bytes. It is at least one shard, even if that does not fit,
    /// and passes the end of an axis by less than a shard.
    pub(super) fn grow_region(&self, unit: &[u64], memory: u64) -> Vec<u64> {
        let mut region: Vec<u64> = unit.iter().map(|length| (*length).max(1)).collect();
        let Some(chunks) = self.source_chunks else { return region };
        loop {
            let mut wasted: Vec<(f64, usize)> = (0..region.len())
                .filter(|axis| region[*axis] < self.shape[*axis])
                .map(|axis| {
                    let length = self.shape[axis];
                    (overread(region[axis].min(length), chunks[axis].max(1), length), axis)
                })
                .filter(|(factor, _)| *factor > 1.0)
                .collect();
            wasted.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
            let grown = wasted.iter().map(|(_, axis)| self.doubled(&region, unit, *axis));
            match grown.into_iter().find(|grown| self.memory_needed(grown) <= memory) {
                Some(grown) => region = grown,
                None => return region,
            }
        }
    }

    /// Returns `region` twice as long along `axis`, or as long as all shards there.
    fn doubled(&self, region: &[u64], unit: &[u64], axis: usize) -> Vec<u64> {
        let step = unit[axis].max(1);
        let whole = self.shape[axis].div_ceil(step).saturating_mul(step);
        let mut grown = region.to_vec();
        grown[axis] = region[axis].saturating_mul(2).min(whole);
        grown
    }
}

fn product(lengths: impl Iterator<Item = u64>) -> u64 {
    lengths.fold(1, u64::saturating_mul)
}

/// Elements decoded per element needed along one axis, by a block of `extent` elements at an
/// aligned start.
fn overread(extent: u64, chunk: u64, length: u64) -> f64 {
    if extent.is_multiple_of(chunk) {
        return 1.0;
    }
    let torn = u64::from(!chunk.is_multiple_of(extent));
    let decoded = (extent.div_ceil(chunk) + torn).saturating_mul(chunk).min(length);
    decoded as f64 / extent as f64
}

/// The regions of `step` elements that tile an array of `shape`, in C order.
#[derive(Debug, Clone)]
pub(super) struct Regions<'a> {
    shape: &'a [u64],
    step: &'a [u64],
    /// The corner of the next region; `None` at the end.
    next: Option<Vec<u64>>,
}

impl<'a> Regions<'a> {
    pub(super) fn new(shape: &'a [u64], step: &'a [u64]) -> Self {
        let next = (!shape.contains(&0)).then(|| vec![0; shape.len()]);
        Self { shape, step, next }
    }
}

impl Iterator for Regions<'_> {
    type Item = Result<Region>;

    fn next(&mut self) -> Option<Self::Item> {
        let corner = self.next.take()?;
        let ends = corner.iter().zip(self.step).zip(self.shape);
        let lengths: Vec<u64> =
            ends.map(|((at, step), length)| (*step).max(1).min(length - at)).collect();
        let mut following = corner.clone();
        for axis in (0..following.len()).rev() {
            following[axis] = following[axis].saturating_add(self.step[axis].max(1));
            if following[axis] < self.shape[axis] {
                self.next = Some(following);
                break;
            }
            following[axis] = 0;
        }
        Some(Region::new(corner, lengths).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn extent<'a>(shape: &'a [u64], source_chunks: Option<&'a [u64]>) -> RegionSizing<'a> {
        RegionSizing { shape, source_chunks, item_size: 4, threads: 2 }
    }

    #[test]
    fn shards_are_halved_along_the_axis_of_most_chunks_until_they_fit() {
        let extent = extent(&[400, 384], None);
        assert_eq!(extent.fit_shards(&[10, 32], &[400, 384], 256 << 10), [100, 192]);
        assert_eq!(extent.fit_shards(&[10, 32], &[400, 384], 0), [10, 32]);
        assert_eq!(extent.fit_shards(&[10, 32], &[400, 384], u64::MAX), [400, 384]);
    }

    #[test]
    fn a_region_grows_to_whole_chunks_of_the_source() {
        // Shards that are long in time, of a file whose chunks are whole maps.
        let extent = extent(&[2000, 330, 360], Some(&[1, 330, 360]));
        assert_eq!(extent.grow_region(&[500, 66, 72], 512 << 20), [500, 330, 360]);
        assert_eq!(extent.grow_region(&[500, 66, 72], 0), [500, 66, 72]);
    }

    #[test]
    fn an_array_without_axes_is_one_region_and_an_empty_one_none() {
        assert_eq!(Regions::new(&[], &[]).count(), 1);
        assert_eq!(Regions::new(&[4, 0], &[2, 2]).count(), 0);
    }

    proptest! {
        #[test]
        fn regions_tile_the_array_in_whole_shards_within_the_memory(
            axes in vec((0_u64..17, 1_u64..7, 1_u64..13), 0..5),
            memory in 1_u64..5000,
        ) {
            let take = |at: fn(&(u64, u64, u64)) -> u64| axes.iter().map(at).collect::<Vec<_>>();
            let (shape, unit, chunks) = (take(|a| a.0), take(|a| a.1), take(|a| a.2));
            let extent = RegionSizing {
                shape: &shape, source_chunks: Some(&chunks), item_size: 1, threads: 1,
            };
            let region = extent.grow_region(&unit, memory);
            for (extent, step) in region.iter().zip(&unit) {
                prop_assert_eq!(extent % step, 0);
            }
            prop_assert!(
                extent.memory_needed(&region) <= memory.max(extent.memory_needed(&unit))
            );
            let regions: Vec<Region> = Regions::new(&shape, &region).collect::<Result<_>>().unwrap();
            let covered: u64 = regions.iter().map(|part| part.len().unwrap()).sum();
            prop_assert_eq!(covered, shape.iter().product::<u64>());
            // Different corners that are multiples of the step belong to disjoint regions.
            let mut corners = HashSet::new();
            for part in &regions {
                let starts = part.start().iter().zip(&region);
                prop_assert!(starts.clone().all(|(start, step)| start % step == 0));
                let lengths = part.shape().iter().zip(&region);
                prop_assert!(lengths.clone().all(|(length, step)| length <= step));
                prop_assert!((0..part.rank()).all(|axis| part.end(axis) <= shape[axis]));
                prop_assert!(corners.insert(part.start()));
            }
        }
    }
}
