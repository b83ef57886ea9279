//! The cost model of a read with a layout: chunks, requests, bytes and seconds, before anything is
//! stored.
//!
//! The counts are exact for a region. The chunks of a shard lie one after the other in the order of
//! the layout, without those beyond the edge of the array. Neighbours are one request, also over a
//! gap that is cheaper to read than to skip. Each shard costs one more request for its index,
//! unless the reader would fetch it whole from a server. Row-major and column-major orders are
//! counted in closed form, curves on the shard's inner grid.
//!
//! The seconds are those of [`Profile::read_seconds`], as for the plans of reads. Its terms of
//! requests and of bytes are added. On the devices measured, random requests of 4 KiB to 1 MiB with
//! 16 in flight take the sum of the two. The larger of the two is off by up to 1.7 times where they
//! are equal, exactly where advice is sought.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use bedform_geometry::{Order, Region, Selection};
use bedform_storage::{CodecTimes, ProcessorWork, Profile, ReadWork, StorageDemand};
use serde::{Serialize, Serializer};
use smallvec::smallvec;

use crate::plan::opening::{
    Need, SERVER_BUFFER_BYTES, ShardSize, requests_at_once, whole_bytes_max, whole_is_sooner,
    whole_number,
};

use super::count::{
    ChunkRuns, PerAxis, STRETCHES_MAX, ShardPattern, Stretches, cells_in, coarsen,
    for_each_combination, patterns_of, places_of, runs_in_rows, runs_on_curve, stretches_of,
};

/// The most chunks of a shard for which a curve is walked; larger shards get no curve.
pub(crate) const CURVE_CELLS_MAX: u64 = 1 << 15;
/// Bytes of one entry of a shard index.
const INDEX_ENTRY_BYTES: f64 = 16.0;
/// Positions over which the cost of a read is averaged.
const POSITIONS: u64 = 8;
const POSITIONS_ON_CURVE: u64 = 3;

/// The layout of an array: chunks in an order inside shards.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Layout {
    /// Elements of a chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// Elements of a shard along each axis: a multiple of `chunk_shape`.
    pub shard_shape: Vec<u64>,
    /// How chunks follow each other in a shard.
    #[serde(serialize_with = "order_name")]
    pub order: Order,
}

pub(crate) fn order_name<S: Serializer>(order: &Order, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(order.name())
}

/// The elements that a read takes, by kind or exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// All of these axes, at any one position of the others: a map spans latitude and longitude, a
    /// series spans time.
    Axes {
        /// The axes that are read in full.
        spanned: Vec<usize>,
    },
    /// A box of this shape at any position, cut to the array where it is longer.
    Box {
        /// Elements along each axis.
        shape: Vec<u64>,
    },
    /// The whole array.
    Everything,
    /// Exactly these elements. Of a selection with more than some thousand separate stretches along
    /// an axis, or of more points, a sample is priced.
    Selection(Selection),
}

/// The cost of one read. Counts are averages if the position of the read is open.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ReadCost {
    /// Chunks that the read touches.
    pub chunks: f64,
    /// Shards that the read touches; opening each is one of the requests.
    pub objects: f64,
    /// Shards that one request fetches whole.
    pub whole_objects: f64,
    /// Requests to the storage system, including those for indexes.
    pub requests: f64,
    /// Bytes that are transferred.
    pub bytes: f64,
    /// Bytes of decoded chunks.
    pub decoded_bytes: f64,
    /// Bytes of the result.
    pub result_bytes: f64,
    /// Runs that are contiguous both in a chunk and in the result.
    pub runs: f64,
    /// Predicted seconds of a cold read, or of a cached one if the model is [`CostModel::cached`].
    pub seconds: f64,
}

impl ReadCost {
    fn add(&mut self, other: &Self, weight: f64) {
        self.chunks += weight * other.chunks;
        self.objects += weight * other.objects;
        self.whole_objects += weight * other.whole_objects;
        self.requests += weight * other.requests;
        self.bytes += weight * other.bytes;
        self.decoded_bytes += weight * other.decoded_bytes;
        self.result_bytes += weight * other.result_bytes;
        self.runs += weight * other.runs;
        self.seconds += weight * other.seconds;
    }
}

/// The elements that a read takes of its chunks.
#[derive(Debug, Clone, Copy)]
struct ResultRuns {
    bytes: f64,
    /// Runs that are contiguous both in a chunk and in the result.
    runs: f64,
}

impl ResultRuns {
    fn of(self, cost: ReadCost) -> ReadCost {
        ReadCost { result_bytes: self.bytes, runs: self.runs, ..cost }
    }
}

/// A model that prices reads of one array on one storage system.
#[derive(Debug, Clone)]
pub struct CostModel {
    /// Elements of the array along each axis.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_size: u64,
    /// The storage system.
    pub profile: Profile,
    /// Raw bytes over stored bytes: 1 for raw data, 4 if a quarter is left.
    pub compression_ratio: f64,
    /// The decoding times of one core, checksums included.
    pub codec: CodecTimes,
    /// Cores that decode.
    pub cores: u32,
    /// True if a chunk must be read whole, because its checksum covers the whole. Without a
    /// checksum and without compression, parts of chunks are read where that is cheaper.
    pub checksummed: bool,
    /// True if seconds are those of reads whose data are in the page cache.
    pub cached: bool,
    /// True if each shard has an index, which is read first.
    pub indexed: bool,
    curves: RefCell<CurveCache>,
}

/// The place on storage of each chunk of an inner grid, in C order; `u64::MAX` for an absent chunk.
type CurveCache = HashMap<(Order, Vec<u64>, Vec<u64>), Option<Rc<Vec<u64>>>>;

impl CostModel {
    /// Makes a model for an array of `shape` with items of `item_size` bytes: raw, checksummed, on
    /// `cores` cores.
    pub fn new(shape: &[u64], item_size: u64, profile: Profile, cores: u32) -> Self {
        Self {
            shape: shape.to_vec(),
            item_size,
            codec: profile.processor.codec("crc32c"),
            profile,
            compression_ratio: 1.0,
            cores,
            checksummed: true,
            cached: false,
            indexed: true,
            curves: RefCell::default(),
        }
    }

    /// Returns the cost of `read` with `layout`, averaged over a few positions if the position is
    /// open.
    ///
    /// ```
    /// use bedform::layout::{CostModel, Layout, Read};
    /// use bedform_geometry::Order;
    /// use bedform_storage::{CodecTimes, StorageDemand, ProcessorWork, Profile, ReadWork};
    ///
    /// let model = CostModel::new(&[512, 512, 512], 8, Profile::default_local(), 2);
    /// let layout = Layout {
    ///     chunk_shape: vec![64; 3],
    ///     shard_shape: vec![256; 3],
    ///     order: Order::RowMajor,
    /// };
    /// let plane = model.price(&layout, &Read::Axes { spanned: vec![1, 2] });
    /// assert_eq!((plane.chunks, plane.objects), (64.0, 4.0));
    /// assert_eq!(plane.requests, 4.0 + 4.0); // one run and one index in each shard
    /// ```
    pub fn price(&self, layout: &Layout, read: &Read) -> ReadCost {
        let [cost] = self.price_orders(layout, [layout.order], read);
        cost
    }

    /// Returns the costs of `read` with `layout` for each of `orders`, which share most of the
    /// counting.
    pub(super) fn price_orders<const N: usize>(
        &self,
        layout: &Layout,
        orders: [Order; N],
        read: &Read,
    ) -> [ReadCost; N] {
        match read {
            Read::Everything => self.price_placed(layout, orders, &self.shape),
            Read::Box { shape } => {
                let cut = |axis: usize| shape.get(axis).copied().unwrap_or(1);
                let widths: PerAxis<_> =
                    (0..self.shape.len()).map(|axis| cut(axis).min(self.shape[axis])).collect();
                self.price_placed(layout, orders, &widths)
            }
            Read::Axes { spanned } => {
                let width = |(axis, &size): (usize, &u64)| {
                    if spanned.contains(&axis) { size } else { size.min(1) }
                };
                let widths: PerAxis<_> = self.shape.iter().enumerate().map(width).collect();
                self.price_placed(layout, orders, &widths)
            }
            Read::Selection(selection) => orders.map(|order| {
                let layout = Layout { order, ..layout.clone() };
                self.price_selection(&layout, selection)
            }),
        }
    }

    /// Returns the exact cost of reading `region`; zeros if it lies outside the array.
    pub fn price_region(&self, layout: &Layout, region: &Region) -> ReadCost {
        let whole = Region::whole(self.shape.as_slice()).ok();
        match whole.and_then(|whole| whole.intersection(region)) {
            Some(inside) if !inside.is_empty() => {
                let ends: Vec<_> = (0..inside.rank()).map(|axis| inside.end(axis)).collect();
                let [cost] = self.price_box(layout, [layout.order], inside.start(), &ends);
                cost
            }
            _ => ReadCost::default(),
        }
    }

    /// Returns the mean cost of boxes of `widths`. The positions are spread evenly, and alike for
    /// every layout.
    fn price_placed<const N: usize>(
        &self,
        layout: &Layout,
        orders: [Order; N],
        widths: &[u64],
    ) -> [ReadCost; N] {
        let mut mean = [ReadCost::default(); N];
        if widths.contains(&0) {
            return mean;
        }
        let free = self.shape.iter().zip(widths).any(|(size, width)| size > width);
        let is_curved = orders.iter().any(|order| matches!(order, Order::Z | Order::Hilbert));
        let positions = match () {
            () if !free => 1,
            () if is_curved => POSITIONS_ON_CURVE,
            () if widths
                .iter()
                .zip(&self.shape)
                .all(|(&width, &size)| width == 1 || width == size) =>
            {
                2
            }
            () => POSITIONS,
        };
        for position in 0..positions {
            let start = |(axis, (&size, &width)): (usize, (&u64, &u64))| {
                spread(size - width, axis, position, positions)
            };
            let starts: PerAxis<_> = self.shape.iter().zip(widths).enumerate().map(start).collect();
            let ends: PerAxis<_> =
                starts.iter().zip(widths).map(|(start, width)| start + width).collect();
            let costs = self.price_box(layout, orders, &starts, &ends);
            for (mean, cost) in mean.iter_mut().zip(&costs) {
                mean.add(cost, 1.0 / positions as f64);
            }
        }
        mean
    }

    fn price_box<const N: usize>(
        &self,
        layout: &Layout,
        orders: [Order; N],
        starts: &[u64],
        ends: &[u64],
    ) -> [ReadCost; N] {
        let spans: PerAxis<Stretches> =
            starts.iter().zip(ends).map(|(&start, &end)| smallvec![(start, end)]).collect();
        self.price_elements(layout, orders, &spans)
    }

    /// Returns the cost of all combinations of the elements in `spans`, one list of stretches for
    /// each axis.
    fn price_elements<const N: usize>(
        &self,
        layout: &Layout,
        orders: [Order; N],
        spans: &[Stretches],
    ) -> [ReadCost; N] {
        let mut touched = PerAxis::with_capacity(spans.len());
        for (stretches, &size) in spans.iter().zip(&layout.chunk_shape) {
            touched.push(coarsen(stretches, size));
        }
        let result = self.result_of(layout, spans, &touched);
        let (costs, present) = self.count_chunks(layout, orders, &touched);
        // Whole chunks, of which the read takes `result`.
        let whole = costs.map(|cost| self.finish(result.of(self.opened(layout, cost, present))));
        let partial = !self.checksummed && self.compression_ratio == 1.0;
        if !partial {
            return whole;
        }
        whole.map(|whole| {
            let part = self.price_parts(layout, spans, &whole);
            if part.seconds < whole.seconds { part } else { whole }
        })
    }

    /// Returns the elements that a read takes of its chunks, and their contiguous runs.
    fn result_of(&self, layout: &Layout, spans: &[Stretches], touched: &[Stretches]) -> ResultRuns {
        let (mut elements, mut cells, mut run, mut goes_on) = (1.0, 1.0, 1.0, true);
        for (axis, (stretches, chunks)) in spans.iter().zip(touched).enumerate().rev() {
            let (width, chunks) = (cells_in(stretches), cells_in(chunks));
            let in_chunk = width / chunks.max(1.0);
            elements *= width;
            cells *= chunks;
            if goes_on {
                run *= in_chunk.max(1.0);
            }
            goes_on &= chunks == 1.0 && in_chunk >= layout.chunk_shape[axis] as f64;
        }
        ResultRuns { bytes: elements * self.item_size as f64, runs: (elements / run).max(cells) }
    }

    /// Returns the cost of a read of whole chunks if indexes come first, and the number of chunks
    /// in its shards.
    fn count_chunks<const N: usize>(
        &self,
        layout: &Layout,
        orders: [Order; N],
        touched: &[Stretches],
    ) -> ([ReadCost; N], f64) {
        let mut patterns = PerAxis::with_capacity(touched.len());
        let mut chunks = 1.0;
        for (axis, stretches) in touched.iter().enumerate() {
            let chunk = layout.chunk_shape[axis];
            let inner = (layout.shard_shape[axis] / chunk).max(1);
            let total = self.shape[axis].div_ceil(chunk);
            chunks *= cells_in(stretches);
            patterns.push(patterns_of(stretches, inner, total));
        }
        let gap_max =
            whole_number(self.profile.merge_gap_bytes as f64 / self.stored_chunk_bytes(layout));
        let grid = inner_grid(layout);
        let stored = self.stored_chunk_bytes(layout);
        let (mut costs, mut present) = ([ReadCost { chunks, ..ReadCost::default() }; N], 0.0);
        for_each_combination(&patterns, |combination, shards| {
            present += shards * combination.iter().map(|one| one.present as f64).product::<f64>();
            for (cost, order) in costs.iter_mut().zip(orders) {
                let runs = self.runs(order, &grid, combination, gap_max);
                cost.objects += shards;
                cost.requests += shards * (self.index_requests() + runs.count);
                cost.bytes += shards * runs.cells * stored;
            }
        });
        for cost in &mut costs {
            cost.bytes += cost.objects * self.index_bytes(&grid);
            cost.decoded_bytes = chunks * self.raw_chunk_bytes(layout);
        }
        (costs, present)
    }

    /// Returns the cost of the same read if the reader would fetch its shards whole. They have
    /// `present` chunks together.
    fn opened(&self, layout: &Layout, cost: ReadCost, present: f64) -> ReadCost {
        if !self.profile.is_remote || cost.chunks == 0.0 || !self.indexed {
            return cost;
        }
        let (grid, stored) = (inner_grid(layout), self.stored_chunk_bytes(layout));
        let (chunks, end_bytes) = (bytes_of(&grid, 1), self.index_bytes(&grid));
        let shard = ShardSize { chunks, bytes: chunks * stored + end_bytes, end_bytes };
        let need = Need {
            chunks: whole_number((cost.chunks / cost.objects).round()),
            objects: whole_number(cost.objects.round()),
        };
        // Until a shard is opened, its compression is unknown.
        let bytes = chunks * self.raw_chunk_bytes(layout) + end_bytes;
        let bytes_max = whole_bytes_max(&self.profile, SERVER_BUFFER_BYTES, need.objects);
        if bytes > bytes_max as f64 || !whole_is_sooner(&self.profile, need, shard) {
            return cost;
        }
        ReadCost {
            whole_objects: cost.objects,
            requests: cost.objects,
            bytes: present * stored + cost.objects * end_bytes,
            ..cost
        }
    }

    /// Returns the cost of reading only the needed parts of chunks, each chunk for itself.
    fn price_parts(&self, layout: &Layout, spans: &[Stretches], whole: &ReadCost) -> ReadCost {
        let patterns: PerAxis<_> = spans
            .iter()
            .zip(&layout.chunk_shape)
            // Chunks at the edge of the array are stored in full.
            .map(|(stretches, &size)| patterns_of(stretches, size, u64::MAX))
            .collect();
        let gap_max = self.profile.merge_gap_bytes / self.item_size.max(1);
        let mut cost = ReadCost { chunks: whole.chunks, ..ReadCost::default() };
        for_each_combination(&patterns, |combination, chunks| {
            let runs = runs_in_rows(combination, gap_max, false);
            cost.requests += chunks * runs.count;
            cost.decoded_bytes += chunks * runs.cells * self.item_size as f64;
        });
        cost.bytes = cost.decoded_bytes + whole.objects * self.index_bytes(&inner_grid(layout));
        cost.objects = whole.objects;
        cost.requests += whole.objects * self.index_requests();
        (cost.result_bytes, cost.runs) = (whole.result_bytes, whole.runs);
        // Where shards are fetched whole, the price of whole chunks applies, and it is the smaller
        // one.
        self.finish(cost)
    }

    fn price_selection(&self, layout: &Layout, selection: &Selection) -> ReadCost {
        if selection.is_empty() || selection.validate(&self.shape).is_err() {
            return ReadCost::default();
        }
        match selection {
            Selection::Orthogonal(axes) => {
                let spans: Vec<_> = axes.iter().map(stretches_of).collect();
                let [cost] = self.price_elements(layout, [layout.order], &spans);
                cost
            }
            Selection::Union(regions) => {
                let mut sum = ReadCost::default();
                regions.iter().for_each(|region| sum.add(&self.price_region(layout, region), 1.0));
                self.one_read(sum)
            }
            Selection::Points(points) => {
                let count = points.count();
                let step = count.div_ceil(STRETCHES_MAX as u64).max(1);
                let mut chunks: Vec<Vec<u64>> = (0..count)
                    .step_by(usize::try_from(step).unwrap_or(usize::MAX))
                    .map(|point| chunk_of_point(points.coords(), &layout.chunk_shape, point))
                    .collect();
                chunks.sort_unstable();
                chunks.dedup();
                let mut sum = ReadCost::default();
                let mut present = 0.0;
                for chunk in &chunks {
                    let touched: PerAxis<_> =
                        chunk.iter().map(|&at| smallvec![(at, at + 1)]).collect();
                    let ([cost], all) = self.count_chunks(layout, [layout.order], &touched);
                    sum.add(&cost, step as f64);
                    present += step as f64 * all;
                }
                let inner = inner_grid(layout);
                let shard = |chunk: Vec<u64>| -> Vec<u64> {
                    chunk.iter().zip(&inner).map(|(at, size)| at / size).collect()
                };
                let mut shards: Vec<_> = chunks.into_iter().map(shard).collect();
                shards.dedup();
                shards.sort_unstable();
                shards.dedup();
                let again = sum.objects - shards.len() as f64;
                let present = present * shards.len() as f64 / sum.objects;
                sum.objects -= again;
                sum.requests -= again * self.index_requests();
                sum.bytes -= again * self.index_bytes(&inner);
                let taken =
                    ResultRuns { bytes: count as f64 * self.item_size as f64, runs: count as f64 };
                self.finish(taken.of(self.opened(layout, sum, present)))
            }
        }
    }

    /// Returns the sum of several reads as one read, in which they wait for each other only once.
    fn one_read(&self, sum: ReadCost) -> ReadCost {
        self.finish(ReadCost { seconds: 0.0, ..sum })
    }

    fn finish(&self, mut cost: ReadCost) -> ReadCost {
        if cost.chunks == 0.0 {
            return ReadCost::default();
        }
        let (waits, streams) = self.streams(&cost);
        let at_once = self.at_once(&cost, streams).min(streams);
        // A server gets one request for each of those parts.
        let requests = match self.profile.is_remote {
            true => cost.requests.max(cost.objects - cost.whole_objects + streams),
            false => cost.requests,
        };
        let demand = StorageDemand {
            waits,
            requests,
            bytes: cost.bytes,
            streams: at_once,
            index_requests: (cost.objects - cost.whole_objects).max(0.0) * self.index_requests(),
            ..StorageDemand::default()
        };
        let encoded = cost.decoded_bytes / self.compression_ratio;
        let work = ProcessorWork {
            objects: cost.objects,
            requests: cost.requests,
            bytes: cost.bytes,
            chunks: cost.chunks,
            decoding_seconds: self.codec.decoding(cost.chunks, encoded, cost.decoded_bytes),
            runs: cost.runs,
            copied_bytes: cost.result_bytes,
        };
        // One thread decodes a chunk.
        let threads = u32::try_from(whole_number(cost.chunks)).unwrap_or(u32::MAX);
        let threads = threads.clamp(1, self.cores.max(1));
        let read = ReadWork { demand, work, threads, threads_waiting: threads };
        let seconds = self.profile.read_seconds(&read);
        cost.seconds = if self.cached { seconds.cached } else { seconds.cold };
        cost
    }

    /// Returns the number of waits of a read, and the number of requests that fetch most of its
    /// bytes.
    fn streams(&self, cost: &ReadCost) -> (f64, f64) {
        if cost.whole_objects == cost.objects {
            return (1.0, cost.whole_objects);
        }
        // A contiguous range is split over several requests where that is faster. A shard that is
        // fetched whole is not split, nor is a chunk.
        let runs = cost.requests - cost.objects * self.index_requests();
        let most = if self.profile.is_remote { cost.chunks } else { f64::INFINITY };
        let parts = self.profile.streams_for(cost.bytes).min(most);
        (1.0 + self.index_requests(), cost.whole_objects + runs.max(parts))
    }

    /// Returns the number of requests that fit the read's memory, if `streams` requests fetch most
    /// of its bytes.
    fn at_once(&self, cost: &ReadCost, streams: f64) -> f64 {
        if !self.profile.is_remote {
            return f64::INFINITY;
        }
        let decoded = whole_number(cost.decoded_bytes / cost.chunks);
        let scratch = decoded.saturating_mul(u64::from(self.cores));
        requests_at_once(SERVER_BUFFER_BYTES, scratch, cost.bytes / streams.max(1.0))
    }

    /// Returns the requests for the index of a shard.
    fn index_requests(&self) -> f64 {
        f64::from(u8::from(self.indexed))
    }

    /// Returns the bytes of the index of a shard with this grid of chunks.
    fn index_bytes(&self, grid: &[u64]) -> f64 {
        self.index_requests() * (bytes_of(grid, 1) * INDEX_ENTRY_BYTES + 4.0)
    }

    fn raw_chunk_bytes(&self, layout: &Layout) -> f64 {
        bytes_of(&layout.chunk_shape, self.item_size)
    }

    fn stored_chunk_bytes(&self, layout: &Layout) -> f64 {
        (self.raw_chunk_bytes(layout) / self.compression_ratio).max(1.0)
    }

    /// Returns the runs of the chunks that `combination` touches in a shard.
    fn runs(
        &self,
        order: Order,
        grid: &[u64],
        combination: &[&ShardPattern],
        gap_max: u64,
    ) -> ChunkRuns {
        match order {
            Order::RowMajor => runs_in_rows(combination, gap_max, false),
            Order::ColumnMajor => runs_in_rows(combination, gap_max, true),
            Order::Z | Order::Hilbert => {
                let present: Vec<_> = combination.iter().map(|pattern| pattern.present).collect();
                match self.places(order, grid, present) {
                    Some(places) => runs_on_curve(&places, grid, combination, gap_max),
                    // The closest estimate if the curve is too long to walk.
                    None => runs_in_rows(combination, gap_max, false),
                }
            }
        }
    }

    /// Returns the place on storage of each chunk of a shard; chunks beyond `present` are absent.
    fn places(&self, order: Order, grid: &[u64], present: Vec<u64>) -> Option<Rc<Vec<u64>>> {
        let key = (order, grid.to_vec(), present);
        if let Some(known) = self.curves.borrow().get(&key) {
            return known.clone();
        }
        let cells = grid.iter().try_fold(1_u64, |count, &size| count.checked_mul(size));
        let small = cells.is_some_and(|cells| cells <= CURVE_CELLS_MAX);
        let sequence = if small { order.sequence(grid).ok() } else { None };
        let places = sequence.map(|sequence| Rc::new(places_of(&sequence, grid, &key.2)));
        self.curves.borrow_mut().insert(key, places.clone());
        places
    }
}

/// Returns position number `position` of `positions` between 0 and `last`. The steps have an
/// irrational length, different for each axis, so that few positions are spread well and never in
/// step with chunks.
fn spread(last: u64, axis: usize, position: u64, positions: u64) -> u64 {
    const PRIMES: [f64; 8] = [2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0];
    let step = PRIMES[axis % PRIMES.len()].sqrt().fract();
    let even = (position as f64 + 0.5) / positions as f64;
    let share = (even + (axis as f64 + position as f64) * step).fract();
    whole_number((last as f64 * share).round()).min(last)
}

fn chunk_of_point(coords: &[Vec<u64>], chunk_shape: &[u64], point: u64) -> Vec<u64> {
    let at = |axis: &Vec<u64>| {
        usize::try_from(point).ok().and_then(|point| axis.get(point).copied()).unwrap_or(0)
    };
    coords.iter().zip(chunk_shape).map(|(axis, chunk)| at(axis) / chunk).collect()
}

fn inner_grid(layout: &Layout) -> PerAxis<u64> {
    let sizes = layout.shard_shape.iter().zip(&layout.chunk_shape);
    sizes.map(|(shard, chunk)| (shard / chunk).max(1)).collect()
}

pub(crate) fn bytes_of(shape: &[u64], item_size: u64) -> f64 {
    shape.iter().map(|&size| size as f64).product::<f64>() * item_size as f64
}
