//! The search behind [`advise`](super::advise()): shapes are proposed, priced and compared.

use bedform_geometry::{Order, Selection};

use super::advise::{AdviseRequest, Candidate, NamedRead};
use super::cost::{CURVE_CELLS_MAX, CostModel, Layout, Read, ReadCost, bytes_of};
use super::readers::{Reader, ReaderCost, ZarrPython};
use super::report;
use super::search::{AppendUnit, GrowthOrder, Score, ShapeSpace, ShardGrowth};
use crate::size::bytes_text;

/// More shards than this make listings and backups slow.
const SHARDS_MAX: f64 = 100_000.0;
/// A shard is encoded in memory: beyond this size, too many shards are the lesser evil.
const SHARD_BYTES_MAX: f64 = (4_u64 << 30) as f64;
/// Chunk shapes of the search that are priced with other shards too.
const FINALISTS: usize = 6;
/// The relative cost that a chunk may add for each halving of its shortest length below its
/// longest. It counts along axes that the reads treat alike.
const EVENNESS_WORTH: f64 = 0.06;
/// The relative saving that justifies an order other than row-major, which every writer produces.
const ROW_MAJOR_WORTH: f64 = 0.005;
/// Axes are alike if the mean shares that reads span of them differ by less.
const ALIKE: f64 = 0.02;
/// The smallest share of the shard size that is tried.
const SHARD_SHARE: f64 = 0.5;
/// The relative saving that justifies shards of one chunk each, which are very many objects to
/// write and to list.
const ALONE_WORTH: f64 = 0.1;
/// More shards along a growing axis than this make reads along it worth a note.
const GROWN_SHARDS_MAX: f64 = 1000.0;

/// Multiples of the source's chunk along one axis from which the search starts.
const SOURCE_MULTIPLES: [u64; 4] = [1, 2, 4, 8];

/// The most such starts.
const SOURCE_STARTS_MAX: usize = 12;

/// A layout with its costs.
#[derive(Debug, Clone)]
pub(super) struct Priced {
    name: String,
    pub(super) layout: Layout,
    pub(super) costs: Vec<ReadCost>,
    score: Score,
}

/// The state of one search for a layout: the model, the reads, and the space of shapes.
pub(super) struct Search {
    model: CostModel,
    pub(super) reads: Vec<(Read, f64)>,
    space: ShapeSpace,
    shard_bytes: f64,
    /// Groups of reads with one weight and about one size, as planes in the directions of a cube.
    alike: Vec<Vec<usize>>,
    /// For each axis, the mean share that a read spans.
    spans: Vec<f64>,
    growths: Vec<ShardGrowth>,
    /// The number of growths that the search of chunk shapes prices; finalists are priced with all.
    quick_growths: usize,
    names: Vec<String>,
    readers: Vec<Reader>,
    zarr_python: Option<ZarrPython>,
    source_chunks: Vec<Vec<u64>>,
    /// The chunk shape and cost of the cheapest layout, if it is not the chosen one.
    cheapest: Option<(Vec<u64>, f64)>,
}

impl Search {
    pub(super) fn new(
        request: &AdviseRequest,
        extents: &[u64],
        model: CostModel,
        reads: Vec<(Read, f64)>,
    ) -> Self {
        // Doubling may leave a shard at half the limit, along one axis or another.
        let total = bytes_of(extents, request.item_size);
        let shard_bytes =
            (4.0 * total / SHARDS_MAX).min(SHARD_BYTES_MAX).max(request.shard_bytes as f64);
        let (least, most) = (request.chunk_bytes_min as f64, request.chunk_bytes_max as f64);
        let least = match model.indexed {
            true => least.max(2.0 * shard_bytes / CURVE_CELLS_MAX as f64).min(most),
            false => least,
        };
        let unit = request.appendable.map(|append| AppendUnit {
            axis: append.axis,
            unit: greatest_common_divisor(append.append_len, request.shape[append.axis]),
        });
        let spans = spans_of(extents, &reads);
        let alike = alike_reads(extents, &reads);
        let zarr_python = request.readers.contains(&Reader::ZarrPython).then(|| {
            ZarrPython::new(
                &model,
                &reads,
                &request.dimension_names,
                request.reads.reads.is_empty(),
            )
        });
        let source_chunks = source_starts(request.source_chunks.as_deref(), extents);
        let own = zarr_python.iter().map(|reader| reader.own_chunks.clone());
        let familiar: Vec<_> = source_chunks.iter().cloned().chain(own).collect();
        Self {
            model,
            reads,
            space: ShapeSpace::new(extents, request.item_size, unit, (least, most), &familiar),
            shard_bytes,
            quick_growths: if zarr_python.is_some() { 4 } else { 2 },
            growths: growths(&spans, zarr_python.is_some()),
            alike,
            spans,
            names: request.dimension_names.clone(),
            readers: request.readers.clone(),
            zarr_python,
            source_chunks,
            cheapest: None,
        }
    }

    /// Returns the best layout, and the simple ones that it was compared with.
    pub(super) fn run(&mut self) -> (Priced, Vec<Priced>) {
        let simple = self.simple_shapes();
        let starts: Vec<_> = simple.iter().map(|(_, point)| point.clone()).collect();
        let shapes = self.space.descend(&starts, |chunk, excess| {
            let least = self.least_score(chunk, excess, |_, score| score);
            Score { cost: least.cost * self.unevenness(chunk), ..least }
        });
        let mut compared: Vec<Priced> = Vec::new();
        for (name, point) in simple {
            let chunk = self.space.shape_at(&point);
            if compared.iter().all(|known| known.layout.chunk_shape != chunk) {
                compared.push(self.best_of_shards(&name, &chunk));
            }
        }
        // Chunks that are best as shards of their own differ much from the others: they get a
        // search of their own.
        let alone = match self.model.profile.is_remote {
            true => self.space.descend(&starts, |chunk, _| self.score_alone(chunk)),
            false => Vec::new(),
        };
        let finalists = shapes.iter().take(FINALISTS).chain(alone.iter().take(FINALISTS));
        let mut all: Vec<_> =
            finalists.map(|(chunk, _)| self.best_of_shards("searched", chunk)).collect();
        all.extend(compared.iter().cloned());
        let score = |priced: &Priced| {
            let familiar = priced.layout.order == Order::RowMajor;
            let order = if familiar { 1.0 } else { 1.0 + ROW_MAJOR_WORTH };
            let cost = priced.score.cost * order * self.unevenness(&priced.layout.chunk_shape);
            Score { cost, ..priced.score }
        };
        let mut best = least_of(&all, score).unwrap_or_else(|| {
            // There is always a shape, if only that of one element.
            self.best_of_shards("one element", &vec![1; self.space.extents.len()])
        });
        // A plain layout that is cheaper is no worse for other reads either.
        let plain = least_of(&compared, |priced| priced.score);
        best = plain.filter(|plain| plain.score.is_less(&best.score)).unwrap_or(best);
        self.cheapest = least_of(&all, |priced| priced.score)
            .filter(|cheapest| cheapest.score.excess <= best.score.excess)
            .filter(|cheapest| cheapest.score.cost < 0.99 * best.score.cost)
            .map(|cheapest| (cheapest.layout.chunk_shape, cheapest.score.cost));
        for order in [Order::Z, Order::Hilbert] {
            let Some(curved) = self.along_curve(&best.layout, order) else { continue };
            if curved.score.cost < best.score.cost * (1.0 - 1e-9) {
                compared.push(std::mem::replace(&mut best, curved));
            } else {
                compared.push(curved);
            }
        }
        for order in self.orders() {
            let layout = Layout { order, ..best.layout.clone() };
            if compared.iter().all(|known| known.layout != layout) && layout != best.layout {
                compared.push(self.priced("", layout));
            }
        }
        (best, compared)
    }

    /// Returns the chunk shape that comes nearest to the best layouts for each read, whose seconds
    /// are `alone`. The ratio to these seconds counts for the read that the shape serves worst; it
    /// is returned too.
    pub(super) fn nearest_to(&self, alone: &[f64]) -> (Vec<u64>, f64) {
        let starts: Vec<_> = self.simple_shapes().into_iter().map(|(_, point)| point).collect();
        let shapes = self.space.descend(&starts, |chunk, excess| {
            self.least_score(chunk, excess, |costs, score| {
                let ratios =
                    costs.iter().zip(alone).map(|(cost, best)| cost.seconds / best.max(1e-12));
                Score { cost: ratios.fold(1.0, f64::max), ..score }
            })
        });
        shapes.into_iter().next().map_or((Vec::new(), 1.0), |(chunk, score)| (chunk, score.cost))
    }

    /// Returns the factor by which a chunk shape costs more for cutting alike axes differently. An
    /// axis that is not cut at all may be shorter.
    fn unevenness(&self, chunk: &[u64]) -> f64 {
        let mut doublings = 0.0;
        for axis in 0..chunk.len() {
            let alike = |&other: &usize| (self.spans[other] - self.spans[axis]).abs() < ALIKE;
            let longest = (0..chunk.len()).filter(alike).map(|other| chunk[other]).max();
            if chunk[axis] < self.space.extents[axis] {
                let ratio = longest.unwrap_or(1) as f64 / chunk[axis] as f64;
                doublings = ratio.log2().max(doublings);
            }
        }
        1.0 + EVENNESS_WORTH * doublings
    }

    /// Returns the shapes that a person would try first, with their names.
    fn simple_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (least, most) = (self.space.bytes_min, self.space.bytes_max);
        let ocs = self.model.profile.optimized_chunk_bytes().clamp(least, most);
        let mut simple = vec![("cube of Smart-IO's size".to_string(), self.space.cube(ocs))];
        for bytes in [least, 65_536.0, 1_048_576.0, most] {
            if (least..=most).contains(&bytes) {
                let name = format!("cube of {}", bytes_text(bytes));
                simple.push((name, self.space.cube(bytes)));
            }
        }
        let rank = self.space.extents.len();
        let mut axes: Vec<Vec<usize>> = Vec::new();
        for (read, _) in &self.reads {
            if let Read::Axes { spanned } = read {
                axes.push(spanned.clone());
            }
        }
        axes.push((rank.saturating_sub(2)..rank).collect());
        axes.push((1.min(rank)..rank).collect());
        axes.truncate(8);
        for spanned in axes {
            let name = format!("whole {}", report::axes_text(&spanned, &self.names));
            simple.push((name, self.space.spanning(&spanned)));
        }
        let own = self.zarr_python.iter().map(|reader| ("as zarr-python cuts", &reader.own_chunks));
        let source = self.source_chunks.iter().map(|chunk| ("as the source", chunk));
        simple.extend(own.chain(source).map(|(name, chunk)| (name.into(), self.space.near(chunk))));
        simple
    }

    /// Returns the straight orders of chunks that are priced: a file has its writer's.
    fn orders(&self) -> [Order; 2] {
        [Order::RowMajor, if self.model.indexed { Order::ColumnMajor } else { Order::RowMajor }]
    }

    fn shard(&self, chunk: &[u64], growth: &ShardGrowth, share: f64) -> Vec<u64> {
        if !self.model.indexed {
            let whole = self.space.extents.iter().zip(chunk);
            return whole.map(|(extent, length)| extent.next_multiple_of(*length)).collect();
        }
        self.space.shard(chunk, self.shard_bytes * share, CURVE_CELLS_MAX, growth)
    }

    fn price(&self, layout: &Layout) -> Vec<ReadCost> {
        self.reads.iter().map(|(read, _)| self.model.price(layout, read)).collect()
    }

    /// Returns the least score of a chunk shape over the quick growths of shards and the straight
    /// orders. `adapt` may change each score. A shape gets no cost if it exceeds the readers' bound
    /// by more than `excess` steps.
    fn least_score(
        &self,
        chunk: &[u64],
        excess: f64,
        adapt: impl Fn(&[ReadCost], Score) -> Score,
    ) -> Score {
        let mut least = Score::WORST;
        let mut seen: Vec<Vec<u64>> = Vec::new();
        for growth in &self.growths[..self.quick_growths] {
            let shard_shape = self.shard(chunk, growth, 1.0);
            if seen.contains(&shard_shape) {
                continue;
            }
            seen.push(shard_shape.clone());
            let chunk_shape = chunk.to_vec();
            let mut layout = Layout { chunk_shape, shard_shape, order: Order::RowMajor };
            // A layout beyond the readers' bound is not worth an exact price.
            let known =
                self.zarr_python.as_ref().and_then(|reader| reader.excess_of_boxes(&layout));
            if let Some(known) = known.filter(|known| *known > least.excess.min(excess)) {
                let without = Score { excess: known, cost: f64::INFINITY };
                least = if without.is_less(&least) { without } else { least };
                continue;
            }
            let orders = self.orders();
            let reads = self.reads.iter();
            let costs = reads.map(|(read, _)| self.model.price_orders(&layout, orders, read));
            let (rows, columns): (Vec<_>, Vec<_>) =
                costs.map(|[row, column]| (row, column)).unzip();
            for (order, costs) in std::iter::zip(orders, [rows, columns]) {
                layout.order = order;
                let score = match known {
                    Some(excess) => Score { excess, cost: self.seconds(&layout, &costs) },
                    None => self.score(&layout, &costs),
                };
                let found = adapt(&costs, score);
                least = if found.is_less(&least) { found } else { least };
            }
        }
        least
    }

    /// Returns the score to minimise: the cost for Bedform, and the excess over the bound of
    /// zarr-python. Without Bedform among the readers the cost is that for zarr-python.
    fn score(&self, layout: &Layout, costs: &[ReadCost]) -> Score {
        let excess = self.zarr_python.as_ref().map_or(0.0, |reader| reader.excess(layout, costs));
        Score { excess, cost: self.seconds(layout, costs) }
    }

    fn seconds(&self, layout: &Layout, costs: &[ReadCost]) -> f64 {
        match &self.zarr_python {
            Some(reader) if !self.readers.contains(&Reader::Bedform) => {
                reader.weighted_seconds(layout, costs)
            }
            _ => self.cost(costs),
        }
    }

    /// Returns the weighted sum of the seconds, in which alike reads all count as the slowest of
    /// them.
    fn cost(&self, costs: &[ReadCost]) -> f64 {
        let slowest = |group: &[usize]| {
            let weighted = group.iter().map(|&read| costs[read].seconds * self.reads[read].1);
            weighted.fold(0.0, f64::max) * group.len() as f64
        };
        self.alike.iter().map(|group| slowest(group)).sum()
    }

    fn priced(&self, name: &str, layout: Layout) -> Priced {
        let costs = self.price(&layout);
        Priced { name: name.into(), score: self.score(&layout, &costs), layout, costs }
    }

    /// Returns the chunk shape with the shard shape and straight order that cost least.
    fn best_of_shards(&self, name: &str, chunk: &[u64]) -> Priced {
        let mut best: Option<Priced> = None;
        let mut seen: Vec<Vec<u64>> = Vec::new();
        for (growth, share) in
            self.growths.iter().flat_map(|growth| [(growth, 1.0), (growth, SHARD_SHARE)])
        {
            let shard_shape = self.shard(chunk, growth, share);
            if seen.contains(&shard_shape) || self.too_many(&shard_shape) && !seen.is_empty() {
                continue;
            }
            for order in self.orders() {
                let chunk_shape = chunk.to_vec();
                let layout = Layout { chunk_shape, shard_shape: shard_shape.clone(), order };
                let priced = self.priced(name, layout);
                let is_less = |best: &Priced| {
                    let cost = best.score.cost * (1.0 - 1e-9);
                    priced.score.is_less(&Score { cost, ..best.score })
                };
                if best.as_ref().is_none_or(is_less) {
                    best = Some(priced);
                }
            }
            seen.push(shard_shape);
        }
        let alone = || {
            let chunk_shape = chunk.to_vec();
            let shard_shape = chunk_shape.clone();
            self.priced(name, Layout { chunk_shape, shard_shape, order: Order::RowMajor })
        };
        match best {
            Some(best) if self.may_be_alone(chunk) => {
                let alone = alone();
                let cost = alone.score.cost * (1.0 + ALONE_WORTH);
                let is_less = Score { cost, ..alone.score }.is_less(&best.score);
                if is_less { alone } else { best }
            }
            Some(best) => best,
            None => alone(),
        }
    }

    /// Returns the score of chunks that are each a shard of their own.
    fn score_alone(&self, chunk: &[u64]) -> Score {
        if !self.may_be_alone(chunk) {
            return Score::WORST;
        }
        let (chunk_shape, shard_shape) = (chunk.to_vec(), chunk.to_vec());
        let layout = Layout { chunk_shape, shard_shape, order: Order::RowMajor };
        let score = self.score(&layout, &self.price(&layout));
        Score { cost: score.cost * self.unevenness(chunk), ..score }
    }

    /// Returns true if shards of one chunk may pay off: a server returns all of one in a single
    /// request.
    fn may_be_alone(&self, chunk: &[u64]) -> bool {
        self.model.profile.is_remote && self.model.indexed && !self.too_many(chunk)
    }

    fn shards(&self, shard: &[u64]) -> f64 {
        let along = self.space.extents.iter().zip(shard);
        along.map(|(extent, size)| extent.div_ceil(*size) as f64).product()
    }

    fn too_many(&self, shard: &[u64]) -> bool {
        self.shards(shard) > SHARDS_MAX
    }

    /// Returns the layout with its chunks along a curve, if the curve can be walked.
    fn along_curve(&self, layout: &Layout, order: Order) -> Option<Priced> {
        let inner = layout.shard_shape.iter().zip(&layout.chunk_shape);
        let inner: Vec<u64> = inner.map(|(shard, chunk)| shard / chunk).collect();
        let long = inner.iter().filter(|&&size| size > 1).count();
        let walkable = bytes_of(&inner, 1) <= CURVE_CELLS_MAX as f64;
        // Along fewer than two axes every order is the same.
        (self.model.indexed && long > 1 && long <= bedform_geometry::CURVE_RANK_MAX && walkable)
            .then(|| self.priced("", Layout { order, ..layout.clone() }))
    }

    pub(super) fn note_limits(&self, chosen: &Priced, notes: &mut Vec<String>) {
        let shards = self.shards(&chosen.layout.shard_shape);
        if shards > SHARDS_MAX {
            notes.push(format!("{shards:.0} shards: larger chunks or shards would be fewer"));
        }
        if let Some((chunk, cost)) = &self.cheapest {
            notes.push(format!(
                "chunks of {} would cost {:.0} % less for these reads, and much more for others",
                report::shape_text(chunk),
                100.0 * (1.0 - cost / chosen.score.cost),
            ));
        }
    }

    pub(super) fn note_appends(
        &self,
        request: &AdviseRequest,
        chosen: &Priced,
        notes: &mut Vec<String>,
    ) {
        let Some(append) = request.appendable else { return };
        let size = chosen.layout.shard_shape[append.axis];
        let shards = self.space.extents[append.axis].div_ceil(size) as f64;
        if shards > GROWN_SHARDS_MAX && self.spans[append.axis] > 0.1 {
            notes.push(format!(
                "a read along the growing axis opens {shards:.0} shards of {size}: appending more \
                 at a time would make them fewer"
            ));
        }
    }

    /// Returns the cost of a layout for each reader.
    fn reader_costs(&self, priced: &Priced) -> Vec<ReaderCost> {
        let cost = |&reader: &Reader| match (reader, &self.zarr_python) {
            (Reader::ZarrPython, Some(zarr_python)) => {
                zarr_python.cost(&priced.layout, &priced.costs)
            }
            _ => {
                let weighted = priced.costs.iter().zip(&self.reads);
                let seconds = weighted.map(|(cost, (_, weight))| cost.seconds * weight).sum();
                ReaderCost { reader, seconds, worst_ratio: None, worst_read: None }
            }
        };
        self.readers.iter().map(cost).collect()
    }

    /// Returns the reason why a layout lost to the chosen one.
    fn verdict(&self, other: &Priced, chosen: &Priced, names: &[NamedRead]) -> String {
        match &self.zarr_python {
            Some(reader) if other.score.excess > chosen.score.excess => {
                report::beyond_text(&reader.cost(&other.layout, &other.costs))
            }
            _ => report::verdict(&other.costs, &chosen.costs, names),
        }
    }

    /// Adds a note if the chosen layout is beyond the bound of zarr-python.
    pub(super) fn note_readers(&self, chosen: &Priced, notes: &mut Vec<String>) {
        let Some(reader) = self.zarr_python.as_ref().filter(|_| chosen.score.excess > 0.0) else {
            return;
        };
        let cost = reader.cost(&chosen.layout, &chosen.costs);
        notes.push(format!(
            "no layout within these limits suits zarr-python better: {}",
            report::beyond_text(&cost)
        ));
    }

    /// Returns the reason why a layout was chosen among those that were compared.
    fn reason(&self, chosen: &Priced, others: &[Priced]) -> String {
        let is_least = others.iter().all(|other| chosen.score.cost <= other.score.cost);
        let is_bound = self.is_bound() && self.readers.contains(&Reader::Bedform);
        match is_bound && !is_least {
            true => "chosen: the least that zarr-python reads well".into(),
            false => "chosen: the least weighted cost".into(),
        }
    }

    /// Returns true if the time of another reader bounds the choice.
    pub(super) fn is_bound(&self) -> bool {
        self.zarr_python.is_some()
    }

    pub(super) fn table(
        &self,
        chosen: Priced,
        mut others: Vec<Priced>,
        names: &[NamedRead],
    ) -> Vec<Candidate> {
        let mut seen = vec![chosen.layout.clone()];
        others.retain(|other| {
            let new = !seen.contains(&other.layout);
            seen.push(other.layout.clone());
            new
        });
        others.sort_by(|a, b| a.score.cost.total_cmp(&b.score.cost));
        let mut rows = Vec::with_capacity(others.len() + 1);
        for other in std::iter::once(&chosen).chain(&others) {
            let same = other.layout.chunk_shape == chosen.layout.chunk_shape;
            let (name, verdict) = match rows.is_empty() {
                true => ("advised".into(), self.reason(&chosen, &others)),
                false => {
                    let name = match same {
                        true => format!("advised, {}", other.layout.order),
                        false => other.name.clone(),
                    };
                    (name, self.verdict(other, &chosen, names))
                }
            };
            rows.push(Candidate {
                name,
                readers: self.reader_costs(other),
                layout: other.layout.clone(),
                costs: other.costs.clone(),
                cost_seconds: other.score.cost,
                verdict,
            });
        }
        rows
    }
}

/// Returns the ways in which shards grow. zarr-python reads a shard with one request only if the
/// shard has no room beyond the end of the array.
fn growths(spans: &[f64], for_zarr_python: bool) -> Vec<ShardGrowth> {
    let weighted = || GrowthOrder::Weighted(spans.to_vec());
    let mut ways = vec![(GrowthOrder::Balanced, false), (weighted(), false)];
    if for_zarr_python {
        ways.extend([
            (weighted(), true),
            (GrowthOrder::LastFirst, true),
            (GrowthOrder::Balanced, true),
        ]);
    }
    ways.push((GrowthOrder::LastFirst, false));
    ways.into_iter().map(|(along, fills)| ShardGrowth { along, fills }).collect()
}

/// Returns the chunk shapes from which the search starts for a source with `chunks`: that shape,
/// and a few multiples of it along each axis.
fn source_starts(chunks: Option<&[u64]>, extents: &[u64]) -> Vec<Vec<u64>> {
    let Some(chunks) = chunks.filter(|chunks| chunks.len() == extents.len()) else {
        return Vec::new();
    };
    let mut starts: Vec<Vec<u64>> = Vec::new();
    for axis in 0..chunks.len() {
        for times in SOURCE_MULTIPLES {
            let mut start: Vec<u64> = chunks
                .iter()
                .zip(extents)
                .map(|(&length, &extent)| length.clamp(1, extent))
                .collect();
            start[axis] = start[axis].saturating_mul(times).min(extents[axis]);
            if !starts.contains(&start) && starts.len() < SOURCE_STARTS_MAX {
                starts.push(start);
            }
        }
    }
    starts
}

/// Returns the number of elements that `read` takes along `axis`.
fn width_along(read: &Read, axis: usize, extent: u64) -> u64 {
    match read {
        Read::Axes { spanned } if spanned.contains(&axis) => extent,
        Read::Everything => extent,
        Read::Box { shape } => shape[axis].min(extent),
        Read::Selection(Selection::Orthogonal(axes)) => axes[axis].len().min(extent),
        Read::Axes { .. } | Read::Selection(_) => 1,
    }
}

/// Returns the share of each axis that a read spans, in the weighted mean.
fn spans_of(extents: &[u64], reads: &[(Read, f64)]) -> Vec<f64> {
    let share = |axis: usize, extent: u64| {
        let shares = reads
            .iter()
            .map(|(read, weight)| weight * width_along(read, axis, extent) as f64 / extent as f64);
        shares.sum()
    };
    extents.iter().enumerate().map(|(axis, &extent)| share(axis, extent)).collect()
}

/// Groups the reads of equal weight and, within a factor of two, equal size.
fn alike_reads(extents: &[u64], reads: &[(Read, f64)]) -> Vec<Vec<usize>> {
    let size = |read: &Read| -> f64 {
        let widths = extents.iter().enumerate();
        widths.map(|(axis, &extent)| width_along(read, axis, extent) as f64).product()
    };
    let mut groups: Vec<(f64, f64, Vec<usize>)> = Vec::new();
    for (number, (read, weight)) in reads.iter().enumerate() {
        let size = size(read);
        let fits = |group: &&mut (f64, f64, Vec<usize>)| {
            (group.0 - weight).abs() <= 1e-9 * weight && (0.5..=2.0).contains(&(group.1 / size))
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.2.push(number),
            None => groups.push((*weight, size, vec![number])),
        }
    }
    groups.into_iter().map(|(_, _, group)| group).collect()
}

/// Returns the first of the layouts for which `score` is least.
fn least_of(all: &[Priced], score: impl Fn(&Priced) -> Score) -> Option<Priced> {
    let first = all.iter().min_by(|a, b| score(a).total_cmp(&score(b)));
    first.cloned()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
