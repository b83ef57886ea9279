//! Candidate replicas: boxes, runs or points of an array, in layouts that fit kinds of its reads.

use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_format::checksum::Fingerprint;
use bedform_geometry::{AxisSelection, PlacedAxis, Points, Positions, Region, Selection};
use bedform_storage::Profile;

use super::conditions::{ReplicaJudgement, ReplicaState, open_own, places_in};
use super::reads::{ExactElements, PricedReadKind, recency};
use super::{OptimizedSource, PlannedReplica};
use crate::array::Array;
use crate::codec::choice::{ReadRates, SampleBlock, choose};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{AdviseRequest, CostModel, Layout, Read, Reader, advise};
use crate::replica::{AxisRuns, ExpectedReads, Replica, ReplicaElements, SourceObject};
use crate::sidecar::Sidecar;
use crate::trace::{ReplicaUse, positions_in, shared};

/// The most kinds of one array for which one replica is laid out together.
const TOGETHER_MAX: usize = 8;
/// Bytes of the documents of a replica and of its shards' parts other than chunks.
const BESIDE_BYTES: u64 = 16 << 10;
/// Bytes of a shard. A read needs the shard's index first, so larger shards delay it. Shards are
/// larger only where there would be more than [`OBJECTS_MAX`].
const SHARD_BYTES: u64 = 8 << 20;
const OBJECTS_MAX: f64 = 4096.0;
/// The most bytes of a sample block, which is encoded to measure its compression.
const SAMPLE_BYTES: f64 = 32e3;
/// The number of sample blocks.
const SAMPLES: u32 = 12;
/// A margin over the bytes that the sample predicts, so that the replica stays within the budget.
const LARGER: f64 = 1.1;
/// Encoded bytes of padding beyond the end of an array, relative to as many real elements.
const BEYOND: f64 = 0.15;
/// Bytes of an index entry of a chunk, with its share of the rest of a shard.
const CHUNK_BYTES: f64 = 24.0;
/// Compressed bytes of a point's place, and the seconds to decode it and to look another up.
const PLACE_BYTES: f64 = 1.2;
const PLACE_SECONDS: f64 = 6e-9;

/// Runs or points that a replica could hold: with the places of points, and the numbers of the
/// kinds that it would be laid out for.
type ListedCandidate = (ReplicaElements, Option<Arc<Vec<u64>>>, Vec<usize>);

/// The least share of a listed read's elements that a replica must hold to be read for it; the
/// array supplies the rest.
const PART_MIN: f64 = 0.25;
/// Bytes of the array that a read fetches around a point.
const BLOCK_BYTES: u64 = 64 << 10;
/// The most places of a replica of points that are loaded.
const PLACES_MAX: u64 = 1 << 26;

/// The most times that one read is longer than another along an axis if one replica serves both
/// alike.
const NEAR: f64 = 2.0;

/// Bytes per second of writing a replica: an assumption.
const WRITTEN_PER_SECOND: f64 = 200e6;

/// A replica that exists or could be made, with its benefit for each kind of read.
#[derive(Debug, Clone)]
pub(super) struct CandidateReplica {
    /// The plan for making it; `None` for an existing replica.
    pub(super) planned: Option<PlannedReplica>,
    /// True for a replica of the site: it exists whatever is chosen, and counts in no user's
    /// budget.
    pub(super) is_of_site: bool,
    pub(super) id: String,
    pub(super) bytes: u64,
    pub(super) building_seconds: f64,
    /// For each kind of read, the share of the reads that it holds completely, and the seconds of
    /// one of them. For a listed read, the share of its elements, and the seconds of the whole read
    /// at that rate.
    pub(super) serves: Vec<Option<(f64, f64)>>,
    /// True for an existing replica if all reads that it was made for are counted, and it serves
    /// them.
    pub(super) is_counted: bool,
    /// The past benefit of an existing replica.
    pub(super) worth: Worth,
}

/// The past benefit of an existing replica.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Worth {
    /// Predicted seconds that it saved in the recorded reads that used it; older reads count less.
    pub(super) seconds: f64,
    /// The start of the last such read, or the time of its making, in nanoseconds since 1970.
    pub(super) last_ns: u64,
}

impl Worth {
    fn of(replica: &Replica, used: Option<&ReplicaUse>, newest_ns: u64) -> Self {
        let made_ns = replica.made.saturating_mul(1_000_000_000);
        let Some(used) = used else { return Self { seconds: 0.0, last_ns: made_ns } };
        let (mut reads, mut saved) = (0.0, 0.0);
        for expected in &replica.expected {
            reads += expected.reads;
            saved += expected.reads * (expected.seconds_without - expected.seconds_with).max(0.0);
        }
        let each = if reads > 0.0 { saved / reads } else { 0.0 };
        let seconds = each * used.reads as f64 * recency(used.last_ns, newest_ns);
        Self { seconds, last_ns: used.last_ns.max(made_ns) }
    }
}

/// Returns the share of the places of a read of `kind` at which it lies inside the box of a
/// replica.
fn share_within(kind: &PricedReadKind, held: &Region) -> f64 {
    let lengths = kind.lengths();
    let along = |axis: usize| {
        let (start, end) = (kind.hot.start()[axis], kind.hot.end(axis));
        let places = (end - start).saturating_sub(lengths[axis]) + 1;
        let low = start.max(held.start()[axis]);
        let high = end.min(held.end(axis));
        let inside = high.saturating_sub(low);
        let fitting = (inside + 1).saturating_sub(lengths[axis]).min(places);
        fitting as f64 / places as f64
    };
    (0..lengths.len()).map(along).product()
}

/// Returns all candidates: existing replicas, and new ones that are not larger than the budget.
///
/// # Errors
/// Errors of opening and sampling the arrays.
pub(super) fn candidates_of(
    source: &OptimizedSource,
    kinds: &[PricedReadKind],
    budget_bytes: u64,
) -> Result<Vec<CandidateReplica>> {
    let mut all: Vec<CandidateReplica> = Vec::new();
    for replica in &source.of_site {
        all.push(CandidateReplica { is_of_site: true, ..existing(source, replica, kinds) });
    }
    for replica in &source.replicas {
        all.push(existing(source, replica, kinds));
    }
    let mut arrays: Vec<&str> = kinds.iter().map(|kind| kind.array.as_str()).collect();
    arrays.sort_unstable();
    arrays.dedup();
    for array in arrays {
        let of_array = ArrayKinds::new(source, array, kinds)?;
        let mut found = Vec::new();
        for (region, numbers) in of_array.boxes() {
            found.extend(of_array.laid_out(
                &ReplicaElements::region(&region),
                &numbers,
                None,
                budget_bytes,
            )?);
        }
        for (held, places, numbers) in of_array.lists() {
            found.extend(of_array.laid_out(&held, &numbers, places, budget_bytes)?);
        }
        for one in found {
            if all.iter().all(|other| other.id != one.id) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

/// Returns the compression ratio of the elements: zstd, on a few blocks where a kind of reads is.
fn sampled_ratio(array: &Array, kind: &PricedReadKind) -> Result<f64> {
    let mut blocks = Vec::new();
    for number in 0..SAMPLES {
        let region = block_at(kind, f64::from(number) / f64::from(SAMPLES - 1))?;
        let selection = Selection::from(&region);
        let bytes = usize::try_from(array.result_bytes(&selection)?).unwrap_or(usize::MAX);
        let mut block = vec![0; bytes];
        array.read(&selection, &mut block)?;
        blocks.push(SampleBlock { valid_bytes: block.len(), elements: block });
    }
    let rates = ReadRates::of(&Profile::default_local());
    let chosen = choose(&blocks, array.data_type()?, 0, false, rates);
    let chosen = chosen.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let compared = chosen.comparison.compared;
    let size = compared.iter().find(|codec| codec.name == "zstd").map_or(1.0, |codec| codec.size);
    Ok(if size > 0.0 { (1.0 / size).max(1.0) } else { 1.0 })
}

/// Returns a small box in the hot region of a kind, with sides as equal as possible. `share`, from
/// 0 to 1, places it in the region.
fn block_at(kind: &PricedReadKind, share: f64) -> Result<Region> {
    let mut shape = vec![1_u64; kind.hot.rank()];
    loop {
        let bytes = bytes_of(&shape, kind.item_size);
        let open = (0..shape.len()).filter(|axis| shape[*axis] < kind.hot.shape()[*axis]);
        let shortest = open.min_by_key(|axis| shape[*axis]);
        match shortest.filter(|_| bytes * 2.0 <= SAMPLE_BYTES) {
            Some(axis) => shape[axis] = (shape[axis] * 2).min(kind.hot.shape()[axis]),
            None => break,
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let start = |axis: usize| {
        let room = kind.hot.shape()[axis] - shape[axis];
        kind.hot.start()[axis] + (room as f64 * share) as u64
    };
    Ok(Region::new((0..shape.len()).map(start).collect::<Vec<_>>(), shape.clone())?)
}

fn existing(
    source: &OptimizedSource,
    (replica, condition): &(Replica, ReplicaJudgement),
    kinds: &[PricedReadKind],
) -> CandidateReplica {
    let still = if condition.state == ReplicaState::Broken { 0.0 } else { condition.share };
    // Loaded only for a listed read.
    let mut places = None;
    let serves = kinds.iter().map(|kind| {
        if kind.array != replica.array || kind.array_shape != replica.array_shape || still <= 0.0 {
            return None;
        }
        let is_of_points =
            matches!((&replica.held, &kind.exact), (ReplicaElements::Points { .. }, Some(_)));
        let places = match is_of_points {
            true => places.get_or_insert_with(|| places_of(source, replica)).as_ref(),
            false => None,
        };
        let part = part_of(kind, &replica.held, places.map(|places| places.as_slice()))?;
        let alike = replica.expected.iter().find(|expected| expected.shape == kind.counts);
        let seconds = match (alike.filter(|_| kind.exact.is_none() || part.share >= 1.0), kind) {
            (Some(alike), _) => alike.seconds_with,
            (None, kind) if kind.exact.is_none() => seconds_of_near(kind, replica)?,
            (None, kind) => part.seconds_of_all(seconds_of_whole(kind, replica)?, kind.seconds),
        };
        (seconds < kind.seconds).then_some((still * part.share, seconds))
    });
    let serves: Vec<_> = serves.collect();
    let is_served = |expected: &ExpectedReads| {
        kinds.iter().zip(&serves).any(|(kind, served)| match (served, &kind.exact) {
            (Some(_), None) => near_ratio(&kind.counts, &expected.shape).is_some(),
            (Some((share, _)), Some(_)) => *share >= 1.0 && kind.counts == expected.shape,
            (None, _) => false,
        })
    };
    CandidateReplica {
        planned: None,
        is_of_site: false,
        id: replica.id.clone(),
        bytes: replica.stored_bytes,
        building_seconds: 0.0,
        is_counted: !replica.expected.is_empty() && replica.expected.iter().all(is_served),
        serves,
        worth: Worth::of(replica, source.uses.get(&replica.id), source.newest_ns()),
    }
}

/// Returns the seconds of a read of a replica, by those of the nearest reads that it was made for;
/// `None` if none is near.
fn seconds_of_near(kind: &PricedReadKind, replica: &Replica) -> Option<f64> {
    let seconds = replica.expected.iter().filter_map(|expected| {
        Some(expected.seconds_with * near_ratio(&kind.counts, &expected.shape)?.max(1.0))
    });
    seconds.reduce(f64::min)
}

/// Returns the elements of a read of one shape per element of a read of another; `None` if their
/// lengths differ by more than [`NEAR`] along any axis.
fn near_ratio(shape: &[u64], than: &[u64]) -> Option<f64> {
    let along = |(length, than): (&u64, &u64)| {
        let ratio = *length as f64 / (*than).max(1) as f64;
        (1.0 / NEAR..=NEAR).contains(&ratio).then_some(ratio)
    };
    let ratios = shape.iter().zip(than).map(along).collect::<Option<Vec<_>>>();
    ratios.filter(|_| shape.len() == than.len()).map(|ratios| ratios.iter().product())
}

/// Returns the seconds to read all of a replica of listed elements, for a listed read.
fn seconds_of_whole(kind: &PricedReadKind, replica: &Replica) -> Option<f64> {
    let is_listed = kind.exact.is_some() && !is_box(&replica.held);
    let expected = replica.expected.iter().map(|expected| expected.seconds_with);
    expected.filter(|_| is_listed).reduce(f64::max)
}

/// Returns the places of the elements of a replica of points, ascending; `None` if they cannot be
/// read, or are too many.
fn places_of(source: &OptimizedSource, replica: &Replica) -> Option<Arc<Vec<u64>>> {
    let ReplicaElements::Points { count, .. } = replica.held else { return None };
    if count > PLACES_MAX {
        return None;
    }
    let own = open_own(source.sidecar.as_ref()?, replica).ok()?;
    let places = places_in(&own, count).ok()?;
    places.is_sorted_by(|a, b| a < b).then(|| Arc::new(places))
}

/// One array with the kinds of its reads: makes its candidates and chooses its layout.
pub(super) struct ArrayKinds<'a> {
    source: &'a OptimizedSource,
    array: &'a str,
    kinds: &'a [PricedReadKind],
    /// Numbers of the kinds that read this array.
    own: Vec<usize>,
    shape: Vec<u64>,
    item_size: u64,
    dims: Vec<String>,
    /// The versions of the array's objects; `None` if they are too many.
    objects: Option<Vec<SourceObject>>,
    /// The compression ratio: bytes of elements over encoded bytes, from a sample.
    ratio: f64,
    /// Predicted seconds per byte of reading the whole array.
    seconds_per_byte: f64,
    profile: Profile,
}

impl<'a> ArrayKinds<'a> {
    pub(super) fn new(
        source: &'a OptimizedSource,
        array: &'a str,
        kinds: &'a [PricedReadKind],
    ) -> Result<Self> {
        let own: Vec<usize> =
            (0..kinds.len()).filter(|number| kinds[*number].array == array).collect();
        let first = own.first().map(|number| &kinds[*number]);
        let first = first.ok_or_else(|| Error::invalid("an array without reads"))?;
        let opened = source.store.array(&ObjectPath::parse(array)?)?;
        let raw = bytes_of(&first.array_shape, first.item_size);
        let ratio = sampled_ratio(&opened, first)?;
        let whole = Selection::all(&first.array_shape);
        let seconds = opened.price(&whole)?.seconds;
        let directory = source.sidecar.as_ref().and_then(Sidecar::own_directory);
        let kept = directory.and_then(|directory| Profile::for_path(&directory).ok().flatten());
        Ok(Self {
            source,
            array,
            kinds,
            own,
            shape: first.array_shape.clone(),
            item_size: first.item_size,
            dims: first.dims.clone(),
            objects: opened.object_versions(&whole)?,
            ratio,
            seconds_per_byte: seconds / raw.max(1.0),
            profile: kept.unwrap_or_else(Profile::default_local),
        })
    }

    /// Returns the boxes that a replica could hold, each with the kinds that decide its layout. The
    /// boxes are the bounds and the hot region of each kind, and the boxes around several hot
    /// regions.
    fn boxes(&self) -> Vec<(Region, Vec<usize>)> {
        let mut all: Vec<(Region, Vec<usize>)> = Vec::new();
        for &number in &self.boxed() {
            let kind = &self.kinds[number];
            all.push((kind.bounds.clone(), vec![number]));
            all.push((kind.hot.clone(), vec![number]));
        }
        let most: Vec<usize> = self.boxed().into_iter().take(TOGETHER_MAX).collect();
        for (at, first) in most.iter().enumerate() {
            for second in &most[at + 1..] {
                all.extend(self.together(&[*first, *second]));
            }
        }
        if most.len() > 2 {
            all.extend(self.together(&most));
        }
        let mut seen = Vec::new();
        all.retain(|one| {
            let is_new = !seen.contains(one);
            if is_new {
                seen.push(one.clone());
            }
            is_new
        });
        all
    }

    /// Returns the kinds that may be anywhere in a region, unlike listed reads.
    fn boxed(&self) -> Vec<usize> {
        let own = self.own.iter().copied();
        own.filter(|number| self.kinds[*number].exact.is_none()).collect()
    }

    /// Returns the selections of the listed kinds, each alone and all together.
    fn lists(&self) -> Vec<ListedCandidate> {
        let own = self.own.iter();
        let exact = own.filter_map(|number| Some((*number, self.kinds[*number].exact.as_ref()?)));
        let (mut runs, mut points) = (Vec::new(), Vec::new());
        for (number, exact) in exact {
            match exact {
                ExactElements::AxisRuns(of_read) => runs.push((number, of_read)),
                ExactElements::Points(places) => points.push((number, places.clone())),
            }
        }
        let alone = runs.iter().filter_map(|(number, runs)| {
            Some((ReplicaElements::of_runs((*runs).clone(), &self.shape)?, None, vec![*number]))
        });
        let mut all: Vec<ListedCandidate> = alone.collect();
        all.extend(points.iter().filter_map(|(number, places)| {
            Some((ReplicaElements::points(places)?, Some(places.clone()), vec![*number]))
        }));
        all.extend(points_together(&points));
        all.extend(self.rows_together(&runs));
        all
    }

    /// Unites the rows of several reads that differ along a single axis.
    fn rows_together(&self, runs: &[(usize, &Vec<AxisRuns>)]) -> Option<ListedCandidate> {
        let (_, first) = runs.first().filter(|_| runs.len() > 1)?;
        let differs = |axis: &usize| runs.iter().any(|(_, runs)| runs[*axis] != first[*axis]);
        let along: Vec<usize> = (0..first.len()).filter(differs).collect();
        let &[axis] = along.as_slice() else { return None };
        let every = runs.iter().flat_map(|(_, runs)| runs[axis].iter().copied());
        let mut all = (*first).clone();
        all[axis] = union_of(every.collect());
        let numbers = runs.iter().map(|(number, _)| *number).collect();
        Some((ReplicaElements::of_runs(all, &self.shape)?, None, numbers))
    }

    fn together(&self, numbers: &[usize]) -> Option<(Region, Vec<usize>)> {
        let hot = numbers.iter().map(|number| self.kinds[*number].hot.clone());
        let around = hot.reduce(|one, other| one.bounding(&other).unwrap_or(one))?;
        Some((around, numbers.to_vec()))
    }

    /// Returns the cheapest layout of such a replica for these kinds of reads, and its cost model.
    fn advised(&self, held: &ReplicaElements, numbers: &[usize]) -> Option<(Layout, CostModel)> {
        let shape = held.shape();
        let raw = bytes_of(&shape, self.item_size);
        let reads = numbers.iter().map(|number| {
            let kind = &self.kinds[*number];
            (read_of(kind, held), kind.reads)
        });
        let mut request = self.request(&shape, reads.collect());
        request.readers = vec![Reader::Bedform];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let shard_bytes = (raw / OBJECTS_MAX) as u64;
        request.shard_bytes = shard_bytes.max(SHARD_BYTES);
        let advice = advise(&request).ok()?;
        let layout = Layout {
            chunk_shape: advice.chunk_shape.clone(),
            shard_shape: advice.shard_shape.clone(),
            order: advice.order,
        };
        Some((layout, self.model(&shape, request.cores)))
    }

    /// Returns the request for advice on a layout for an array of `shape` and these reads.
    fn request(&self, shape: &[u64], reads: Vec<(Read, f64)>) -> AdviseRequest {
        let mut request = AdviseRequest::new(shape, self.item_size, self.profile.clone());
        request.reads.reads = reads;
        if shape.len() == self.dims.len() {
            request.dimension_names.clone_from(&self.dims);
        }
        request.compression_ratio = self.ratio;
        request.compare_alone = false;
        request
    }

    fn model(&self, shape: &[u64], cores: u32) -> CostModel {
        let mut model = CostModel::new(shape, self.item_size, self.profile.clone(), cores);
        model.compression_ratio = self.ratio;
        model
    }

    /// Returns the cheapest layout of the array itself for all its kinds of reads that suits
    /// `readers`. With it come the predicted seconds of one read of each kind, in the layout `now`
    /// and in the new one.
    ///
    /// # Errors
    /// Errors of the places of points, and of advising.
    pub(super) fn best_layout(&self, now: &Layout, readers: &[Reader]) -> Result<BestLayout> {
        let reads = self.own.iter().map(|number| {
            let kind = &self.kinds[*number];
            Ok((read_of_whole(kind)?, kind.reads))
        });
        let reads = reads.collect::<Result<Vec<_>>>()?;
        let mut request = self.request(&self.shape, reads.clone());
        request.readers = readers.to_vec();
        let advice = advise(&request).map_err(|error| Error::invalid(error.to_string()))?;
        let layout = Layout {
            chunk_shape: advice.chunk_shape.clone(),
            shard_shape: advice.shard_shape.clone(),
            order: advice.order,
        };
        let model = self.model(&self.shape, request.cores);
        let priced = reads
            .iter()
            .map(|(read, _)| (model.price(now, read).seconds, model.price(&layout, read).seconds));
        let seconds = self.own.iter().copied().zip(priced);
        let seconds = seconds.map(|(number, (now, then))| (number, now, then)).collect();
        Ok(BestLayout { layout, seconds })
    }

    /// Returns the replica of `held` in the cheapest layout for these kinds of reads; `None` for
    /// one that is larger than the budget, or serves no kind.
    fn laid_out(
        &self,
        held: &ReplicaElements,
        numbers: &[usize],
        places: Option<Arc<Vec<u64>>>,
        budget_bytes: u64,
    ) -> Result<Option<CandidateReplica>> {
        let shape = held.shape();
        let raw = bytes_of(&shape, self.item_size);
        let of_places = places.as_ref().map_or(0.0, |places| PLACE_BYTES * places.len() as f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (raw / self.ratio + of_places) as u64 + BESIDE_BYTES;
        if bytes > budget_bytes {
            return Ok(None);
        }
        let Some((layout, model)) = self.advised(held, numbers) else { return Ok(None) };
        let serves: Vec<_> = (0..self.kinds.len())
            .map(|number| self.serves(number, (held, places.as_deref()), &model, &layout))
            .collect();
        if serves.iter().all(Option::is_none) {
            return Ok(None);
        }
        let id = self.id_of(held, places.as_deref(), &layout)?;
        let padded = padded_bytes(&shape, &layout.chunk_shape, self.item_size);
        let chunks = padded / bytes_of(&layout.chunk_shape, self.item_size).max(1.0);
        let encoded = LARGER * (raw + BEYOND * (padded - raw)) / self.ratio;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (encoded + of_places + CHUNK_BYTES * chunks) as u64 + BESIDE_BYTES;
        if bytes > budget_bytes {
            return Ok(None);
        }
        let building_seconds = raw * (self.seconds_per_byte + 1.0 / WRITTEN_PER_SECOND);
        let expected = serves.iter().enumerate().filter_map(|(number, served)| {
            let (kind, (share, seconds)) = (&self.kinds[number], (*served)?);
            // For a listed read that the replica holds in part, each read computes the price.
            if kind.exact.is_some() && share < 1.0 {
                return None;
            }
            Some(ExpectedReads {
                shape: kind.counts.clone(),
                reads: kind.reads * share,
                seconds_without: kind.seconds,
                seconds_with: seconds,
            })
        });
        let planned = PlannedReplica {
            id: id.clone(),
            array: self.array.to_owned(),
            dims: self.dims.clone(),
            raw_bytes: shape.iter().copied().fold(self.item_size, u64::saturating_mul),
            shape,
            held: held.clone(),
            places,
            chunks: layout.chunk_shape.clone(),
            shards: layout.shard_shape.clone(),
            order: layout.order.name().to_owned(),
            bytes,
            building_seconds,
            expected: expected.collect(),
        };
        let (planned, worth) = (Some(planned), Worth::default());
        let is_of_site = false;
        Ok(Some(CandidateReplica {
            planned,
            is_of_site,
            id,
            bytes,
            building_seconds,
            is_counted: false,
            serves,
            worth,
        }))
    }

    /// Returns the share of the reads of a kind that a replica holds completely, and the seconds of
    /// one; `None` if the replica is not faster.
    fn serves(
        &self,
        number: usize,
        (held, places): (&ReplicaElements, Option<&Vec<u64>>),
        model: &CostModel,
        layout: &Layout,
    ) -> Option<(f64, f64)> {
        let kind = &self.kinds[number];
        // A read of another array has other positions, perhaps other axes.
        if kind.array != self.array {
            return None;
        }
        let part = part_of(kind, held, places.map(Vec::as_slice))?;
        let mut seconds = model.price(layout, &read_of(kind, held)).seconds;
        let is_same = |exact: &ExactElements| match (exact, held) {
            (ExactElements::Points(places), ReplicaElements::Points { count, .. }) => {
                *count == places.len() as u64
            }
            _ => false,
        };
        if let ReplicaElements::Points { count, .. } = held
            && !kind.exact.as_ref().is_some_and(is_same)
        {
            // The read also loads the places and their index, except for exactly the replica's own
            // points.
            seconds += 2.0 * self.profile.request_seconds_one;
            let whole = model.price(layout, &Read::Everything).seconds;
            seconds += whole * PLACE_BYTES / self.item_size as f64 + *count as f64 * PLACE_SECONDS;
        }
        if kind.exact.is_some() {
            seconds = part.seconds_of_all(seconds, kind.seconds);
        }
        (seconds < kind.seconds).then_some((part.share, seconds))
    }

    /// Returns a name that depends only on the replica's description and the state of the source.
    fn id_of(
        &self,
        held: &ReplicaElements,
        places: Option<&Vec<u64>>,
        layout: &Layout,
    ) -> Result<String> {
        let described = serde_json::to_vec(&(self.array, &self.shape, held, layout));
        let state = serde_json::to_vec(&(&self.source.state, &self.objects));
        let (Ok(described), Ok(state)) = (described, state) else {
            return Err(Error::invalid("a replica that cannot be described"));
        };
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(&described);
        fingerprint.update(&state);
        places.into_iter().flatten().for_each(|place| fingerprint.update(&place.to_le_bytes()));
        Ok(format!("{:016x}", fingerprint.finish() >> 64))
    }
}

/// The cheapest layout of an array for its reads.
#[derive(Debug, Clone)]
pub(super) struct BestLayout {
    pub(super) layout: Layout,
    /// For each kind, its number and the predicted seconds of one read, now and in this layout.
    pub(super) seconds: Vec<(usize, f64, f64)>,
}

/// Returns a read of this kind, in the positions of the array.
fn read_of_whole(kind: &PricedReadKind) -> Result<Read> {
    let whole = ReplicaElements::region(&Region::whole(kind.array_shape.clone())?);
    Ok(match &kind.exact {
        None if kind.counts == kind.array_shape => Read::Everything,
        None => Read::Box { shape: kind.lengths() },
        Some(ExactElements::AxisRuns(runs)) => Read::Selection(inner_selection(runs, &whole)),
        Some(ExactElements::Points(places)) => {
            Read::Selection(Selection::Points(Points::at_places(places, &kind.array_shape)?))
        }
    })
}

/// The part of a kind of reads that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct HeldPart {
    /// The share of the reads that it holds completely; of a listed read, the share of its
    /// elements.
    share: f64,
    /// The share of the original seconds that reading the rest from the array takes.
    rest: f64,
}

impl HeldPart {
    fn of_reads(share: f64) -> Self {
        Self { share, rest: 1.0 - share }
    }

    /// Returns the seconds `x` of a whole listed read for [`CandidateReplica::serves`], so that
    /// `share * x + (1 - share) * of_array` is the actual cost. That is `seconds` for the replica's
    /// part, and `rest * of_array` for the remainder.
    fn seconds_of_all(self, seconds: f64, of_array: f64) -> f64 {
        (seconds + (self.rest - (1.0 - self.share)) * of_array) / self.share
    }
}

/// Returns the part of a kind of reads that a replica holds; `None` if it is empty, or too small to
/// be read separately. `places` are those of a replica of points.
fn part_of(
    kind: &PricedReadKind,
    held: &ReplicaElements,
    places: Option<&[u64]>,
) -> Option<HeldPart> {
    let part = match (&kind.exact, held) {
        (Some(ExactElements::AxisRuns(runs)), ReplicaElements::Runs(held)) => {
            let along = |(held, runs): (&AxisRuns, &AxisRuns)| {
                positions_in(&shared(held, runs)) as f64 / positions_in(runs).max(1) as f64
            };
            HeldPart::of_reads(held.iter().zip(runs).map(along).product())
        }
        (Some(ExactElements::Points(wanted)), ReplicaElements::Points { .. }) => {
            part_of_places(places?, wanted, kind.item_size)
        }
        (Some(_), _) => return None,
        // The bounds of a replica with gaps overstate its elements.
        (None, _) if is_box(held) => HeldPart::of_reads(share_within(kind, &held.bounds()?)),
        (None, _) => return None,
    };
    let least = if kind.exact.is_some() { PART_MIN } else { f64::MIN_POSITIVE };
    (part.share >= least).then_some(part)
}

/// Returns the part of the points `wanted` that a replica of points at `places` holds. The cost of
/// the rest is its number of blocks in the array; dense points leave almost every block to read.
fn part_of_places(places: &[u64], wanted: &[u64], item_size: u64) -> HeldPart {
    let block = (BLOCK_BYTES / item_size.max(1)).max(1);
    let (mut held, mut common) = (places, 0_usize);
    let (mut blocks, mut blocks_left) = (0_usize, 0_usize);
    let (mut last, mut last_left) = (u64::MAX, u64::MAX);
    for place in wanted {
        held = &held[held.partition_point(|other| other < place)..];
        let at = place / block;
        blocks += usize::from(at != last);
        last = at;
        if held.first() == Some(place) {
            common += 1;
        } else {
            blocks_left += usize::from(at != last_left);
            last_left = at;
        }
    }
    let share = common as f64 / wanted.len().max(1) as f64;
    HeldPart { share, rest: blocks_left as f64 / blocks.max(1) as f64 }
}

fn is_box(held: &ReplicaElements) -> bool {
    held.runs().is_some_and(|runs| runs.iter().all(|runs| runs.len() == 1))
}

/// Returns the part of a read of this kind that a replica holds, in the replica's positions.
fn read_of(kind: &PricedReadKind, held: &ReplicaElements) -> Read {
    match (&kind.exact, held.runs()) {
        (Some(ExactElements::AxisRuns(runs)), Some(own)) if own != runs => {
            let held_runs = own.iter().zip(runs).map(|(own, runs)| shared(own, runs));
            Read::Selection(inner_selection(&held_runs.collect::<Vec<_>>(), held))
        }
        // Wanted points are scattered over the whole replica.
        (Some(_), _) => Read::Everything,
        (None, _) => Read::Box { shape: clipped(&kind.lengths(), &held.shape()) },
    }
}

/// Converts positions of the array, in runs, to a selection of the replica that holds all of them.
fn inner_selection(runs: &[AxisRuns], held: &ReplicaElements) -> Selection {
    let axis = |runs: &AxisRuns| {
        let positions = runs.iter().flat_map(|(first, count)| *first..first + count);
        PlacedAxis::all(Positions::from_list(positions.collect()))
    };
    let part: Vec<PlacedAxis> = runs.iter().map(axis).collect();
    Selection::Orthogonal(
        held.inner(&part).into_iter().map(|axis| AxisSelection::from(&axis.positions)).collect(),
    )
}

/// Unites the points of several reads, each once.
fn points_together(points: &[(usize, Arc<Vec<u64>>)]) -> Option<ListedCandidate> {
    if points.len() < 2 {
        return None;
    }
    let mut every: Vec<u64> =
        points.iter().flat_map(|(_, places)| places.iter().copied()).collect();
    every.sort_unstable();
    every.dedup();
    let numbers = points.iter().map(|(number, _)| *number).collect();
    Some((ReplicaElements::points(&every)?, Some(Arc::new(every)), numbers))
}

/// Returns sorted, disjoint runs that cover every position of `runs`.
fn union_of(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (first, count) in runs {
        match all.last_mut() {
            Some((start, length)) if *start + *length >= first => {
                *length = (*length).max(first + count - *start);
            }
            _ => all.push((first, count)),
        }
    }
    all
}

fn clipped(lengths: &[u64], shape: &[u64]) -> Vec<u64> {
    lengths.iter().zip(shape).map(|(length, most)| *length.min(most)).collect()
}

/// Returns the bytes of all chunks, with the padding of those at the end of an axis.
fn padded_bytes(shape: &[u64], chunk: &[u64], item_size: u64) -> f64 {
    let along = |(length, chunk): (&u64, &u64)| length.div_ceil(*chunk.max(&1)) * chunk;
    let padded: Vec<u64> = shape.iter().zip(chunk).map(along).collect();
    bytes_of(&padded, item_size)
}

fn bytes_of(shape: &[u64], item_size: u64) -> f64 {
    shape.iter().map(|length| *length as f64).product::<f64>() * item_size as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_sparse_points_what_a_replica_lacks_takes_its_share_of_the_time_of_dense_ones_all_of_it() {
        let sparse: Vec<u64> = (0..100).map(|at| at * 1_000_000).collect();
        let part = part_of_places(&sparse[..75], &sparse, 8);
        assert_eq!(part, HeldPart { share: 0.75, rest: 0.25 });
        let dense: Vec<u64> = (0..100_000).map(|at| at * 10).collect();
        let held: Vec<u64> = dense.iter().copied().filter(|place| place % 40 != 0).collect();
        let part = part_of_places(&held, &dense, 8);
        assert_eq!(part, HeldPart { share: 0.75, rest: 1.0 });
        // The seconds of the replica's part add to those of the whole array.
        assert!(part.seconds_of_all(1.0, 10.0) > 10.0);
        assert_eq!(part_of_places(&[], &sparse, 8), HeldPart { share: 0.0, rest: 1.0 });
    }
}
