//! The search behind [`advise`](super::advise()): shapes are proposed, priced and compared.

use bedform_geometry::{Order, Selection};

use super::advise::{AdviseRequest, Candidate, NamedRead};
use super::cost::{CURVE_CELLS_MAX, CostModel, Layout, Read, ReadCost, bytes_of};
use super::report;
use super::search::{Growth, Space, Unit};

/// More shards than this make listings and backups slow.
const SHARDS_MAX: f64 = 100_000.0;
/// A shard is encoded in memory: many shards are the lesser evil beyond this.
const SHARD_BYTES_MAX: f64 = (4_u64 << 30) as f64;
/// Chunk shapes of the search that are priced with other shards too.
const FINALISTS: usize = 6;
/// What a chunk may cost more for each halving of its longest over its shortest length along axes
/// that the reads treat alike.
const EVENNESS_WORTH: f64 = 0.06;
/// What an order other than row-major, which every writer produces, must be cheaper by.
const ROW_MAJOR_WORTH: f64 = 0.005;
/// Axes are alike if the mean shares that reads span of them differ by less.
const ALIKE: f64 = 0.02;
/// The least share of the shard size that is tried.
const SHARD_SHARE: f64 = 0.5;
/// What shards of one chunk each must be cheaper by, for they are very many objects to write and to list.
const ALONE_WORTH: f64 = 0.1;
/// Shards along a growing axis beyond which a read along it is worth a remark.
const GROWN_SHARDS_MAX: f64 = 1000.0;

/// A layout with what it costs.
#[derive(Debug, Clone)]
pub(super) struct Priced {
    name: String,
    layout: Layout,
    costs: Vec<ReadCost>,
    cost: f64,
}

pub(super) struct Search {
    model: CostModel,
    pub(super) reads: Vec<(Read, f64)>,
    space: Space,
    shard_bytes: f64,
    /// Reads of one weight and about one size: planes in the three directions of a cube.
    alike: Vec<Vec<usize>>,
    /// How much of each axis a read spans, in the mean.
    spans: Vec<f64>,
    growths: Vec<Growth>,
    names: Vec<String>,
    /// The cheapest of all, if it is not the chosen one.
    cheapest: Option<(Vec<u64>, f64)>,
}

impl Search {
    pub(super) fn new(
        request: &AdviseRequest,
        extents: &[u64],
        model: CostModel,
        reads: Vec<(Read, f64)>,
    ) -> Self {
        // Doubling may leave a shard at half of what is allowed, along one axis or another.
        let total = bytes_of(extents, request.item_size);
        let shard_bytes =
            (4.0 * total / SHARDS_MAX).min(SHARD_BYTES_MAX).max(request.shard_bytes as f64);
        let (least, most) = (request.chunk_bytes_min as f64, request.chunk_bytes_max as f64);
        let least = least.max(2.0 * shard_bytes / CURVE_CELLS_MAX as f64).min(most);
        let unit = request.appendable.map(|append| Unit {
            axis: append.axis,
            unit: greatest_common_divisor(append.append_len, request.shape[append.axis]),
        });
        let spans = spans_of(extents, &reads);
        let alike = alike_reads(extents, &reads);
        Self {
            model,
            reads,
            space: Space::new(extents, request.item_size, unit, (least, most)),
            shard_bytes,
            growths: vec![Growth::Balanced, Growth::Weighted(spans.clone()), Growth::LastFirst],
            alike,
            spans,
            names: request.dimension_names.clone(),
            cheapest: None,
        }
    }

    /// The best layout of all, and the simple ones that it was compared with.
    pub(super) fn run(&mut self) -> (Priced, Vec<Priced>) {
        let simple = self.simple_shapes();
        let starts: Vec<_> = simple.iter().map(|(_, point)| point.clone()).collect();
        let shapes = self.space.descend(&starts, |chunk| {
            let mut least = f64::INFINITY;
            for growth in &self.growths[..2] {
                let shard = self.shard(chunk, growth, 1.0);
                for order in [Order::RowMajor, Order::ColumnMajor] {
                    least = least.min(self.cost(&self.price(chunk, &shard, order)));
                }
            }
            least * self.unevenness(chunk)
        });
        let mut compared: Vec<Priced> = Vec::new();
        for (name, point) in simple {
            let chunk = self.space.shape_at(&point);
            if compared.iter().all(|known| known.layout.chunk_shape != chunk) {
                compared.push(self.best_of_shards(&name, &chunk));
            }
        }
        // Chunks that are good alone are far from those that are good together: a search of their own.
        let alone = match self.model.profile.is_remote {
            true => self.space.descend(&starts, |chunk| self.cost_alone(chunk)),
            false => Vec::new(),
        };
        let finalists = shapes.iter().take(FINALISTS).chain(alone.iter().take(FINALISTS));
        let mut all: Vec<_> =
            finalists.map(|(chunk, _)| self.best_of_shards("searched", chunk)).collect();
        all.extend(compared.iter().cloned());
        let score = |priced: &Priced| {
            let familiar = priced.layout.order == Order::RowMajor;
            let order = if familiar { 1.0 } else { 1.0 + ROW_MAJOR_WORTH };
            priced.cost * order * self.unevenness(&priced.layout.chunk_shape)
        };
        let mut best = least_of(&all, score).unwrap_or_else(|| {
            // There is always a shape, if only that of one element.
            self.best_of_shards("one element", &vec![1; self.space.extents.len()])
        });
        // A plain layout that is cheaper is no worse for other reads either.
        let plain = least_of(&compared, |priced| priced.cost);
        best = plain.filter(|plain| plain.cost < best.cost).unwrap_or(best);
        self.cheapest = least_of(&all, |priced| priced.cost)
            .filter(|cheapest| cheapest.cost < 0.99 * best.cost)
            .map(|cheapest| (cheapest.layout.chunk_shape, cheapest.cost));
        for order in [Order::Z, Order::Hilbert] {
            let Some(curved) = self.along_curve(&best.layout, order) else { continue };
            if curved.cost < best.cost * (1.0 - 1e-9) {
                compared.push(std::mem::replace(&mut best, curved));
            } else {
                compared.push(curved);
            }
        }
        for order in [Order::RowMajor, Order::ColumnMajor] {
            let layout = Layout { order, ..best.layout.clone() };
            if compared.iter().all(|known| known.layout != layout) && layout != best.layout {
                compared.push(self.priced("", layout));
            }
        }
        (best, compared)
    }

    /// What a chunk shape is marked up by for cutting alike axes differently. An axis that is not cut
    /// at all may be shorter.
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

    /// The shapes that one would think of first.
    fn simple_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let (least, most) = (self.space.bytes_min, self.space.bytes_max);
        let ocs = self.model.profile.optimized_chunk_bytes().clamp(least, most);
        let mut simple = vec![("cube of Smart-IO's size".to_string(), self.space.cube(ocs))];
        for bytes in [least, 65_536.0, 1_048_576.0, most] {
            if (least..=most).contains(&bytes) {
                let name = format!("cube of {}", report::bytes_text(bytes));
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
        simple
    }

    fn shard(&self, chunk: &[u64], growth: &Growth, share: f64) -> Vec<u64> {
        self.space.shard(chunk, self.shard_bytes * share, CURVE_CELLS_MAX, growth)
    }

    fn price(&self, chunk: &[u64], shard: &[u64], order: Order) -> Vec<ReadCost> {
        let layout = Layout { chunk_shape: chunk.to_vec(), shard_shape: shard.to_vec(), order };
        self.reads.iter().map(|(read, _)| self.model.price(&layout, read)).collect()
    }

    /// The weighted sum of the seconds, in which alike reads all count as the slowest of them.
    fn cost(&self, costs: &[ReadCost]) -> f64 {
        let slowest = |group: &[usize]| {
            let weighted = group.iter().map(|&read| costs[read].seconds * self.reads[read].1);
            weighted.fold(0.0, f64::max) * group.len() as f64
        };
        self.alike.iter().map(|group| slowest(group)).sum()
    }

    fn priced(&self, name: &str, layout: Layout) -> Priced {
        let costs = self.price(&layout.chunk_shape, &layout.shard_shape, layout.order);
        Priced { name: name.into(), cost: self.cost(&costs), layout, costs }
    }

    /// The chunk in the shard and straight order that cost least.
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
            for order in [Order::RowMajor, Order::ColumnMajor] {
                let chunk_shape = chunk.to_vec();
                let layout = Layout { chunk_shape, shard_shape: shard_shape.clone(), order };
                let priced = self.priced(name, layout);
                if best.as_ref().is_none_or(|best| priced.cost < best.cost * (1.0 - 1e-9)) {
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
                if alone.cost * (1.0 + ALONE_WORTH) < best.cost { alone } else { best }
            }
            Some(best) => best,
            None => alone(),
        }
    }

    /// What chunks cost, each in a shard of its own.
    fn cost_alone(&self, chunk: &[u64]) -> f64 {
        match self.may_be_alone(chunk) {
            true => self.cost(&self.price(chunk, chunk, Order::RowMajor)) * self.unevenness(chunk),
            false => f64::INFINITY,
        }
    }

    /// True where a shard of one chunk may be worth it: a server gives all of it with one request.
    fn may_be_alone(&self, chunk: &[u64]) -> bool {
        self.model.profile.is_remote && !self.too_many(chunk)
    }

    fn shards(&self, shard: &[u64]) -> f64 {
        let along = self.space.extents.iter().zip(shard);
        along.map(|(extent, size)| extent.div_ceil(*size) as f64).product()
    }

    fn too_many(&self, shard: &[u64]) -> bool {
        self.shards(shard) > SHARDS_MAX
    }

    /// The layout with its chunks along a curve, if the curve can be walked.
    fn along_curve(&self, layout: &Layout, order: Order) -> Option<Priced> {
        let inner = layout.shard_shape.iter().zip(&layout.chunk_shape);
        let inner: Vec<u64> = inner.map(|(shard, chunk)| shard / chunk).collect();
        let long = inner.iter().filter(|&&size| size > 1).count();
        let walkable = bytes_of(&inner, 1) <= CURVE_CELLS_MAX as f64;
        // On fewer than two axes every order is the same.
        (long > 1 && long <= bedform_geometry::CURVE_RANK_MAX && walkable)
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
                100.0 * (1.0 - cost / chosen.cost),
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
        others.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let mut rows = Vec::with_capacity(others.len() + 1);
        for other in std::iter::once(&chosen).chain(&others) {
            let same = other.layout.chunk_shape == chosen.layout.chunk_shape;
            let (name, verdict) = match rows.is_empty() {
                true => ("advised".into(), "chosen: the least weighted cost".into()),
                false => {
                    let name = match same {
                        true => format!("advised, {}", other.layout.order),
                        false => other.name.clone(),
                    };
                    (name, report::verdict(&other.costs, &chosen.costs, names))
                }
            };
            rows.push(Candidate {
                name,
                layout: other.layout.clone(),
                costs: other.costs.clone(),
                cost_seconds: other.cost,
                verdict,
            });
        }
        rows
    }
}

/// How many elements `read` takes along `axis`.
fn width_along(read: &Read, axis: usize, extent: u64) -> u64 {
    match read {
        Read::Axes { spanned } if spanned.contains(&axis) => extent,
        Read::Everything => extent,
        Read::Box { shape } => shape[axis].min(extent),
        Read::Selection(Selection::Orthogonal(axes)) => axes[axis].len().min(extent),
        Read::Axes { .. } | Read::Selection(_) => 1,
    }
}

/// The share of each axis that a read spans, in the weighted mean.
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

/// The first of those for which `score` is least.
fn least_of(all: &[Priced], score: impl Fn(&Priced) -> f64) -> Option<Priced> {
    let first = all.iter().min_by(|a, b| score(a).total_cmp(&score(b)));
    first.cloned()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
