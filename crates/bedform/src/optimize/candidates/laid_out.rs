//! Replicas in the cheapest layouts for their reads: bytes, seconds, names.

use bedform_format::checksum::Fingerprint;
use bedform_geometry::{AxisSelection, PlacedAxis, Points, Positions, Region, Selection};

use super::elements::{ArrayKinds, CandidateElements};
use super::held::part_of;
use super::settings::SETTINGS;
use super::{CandidateReplica, PlannedHelper, Worth, bytes_of};
use crate::error::{Error, Result};
use crate::layout::{Advice, AdviseRequest, CostModel, Layout, Read, Reader, advise};
use crate::optimize::PlannedReplica;
use crate::optimize::reads::{ExactElements, PricedReadKind};
use crate::replica::{AxisRuns, ExpectedReads, ReplicaElements};
use crate::trace::shared;

impl ArrayKinds<'_> {
    /// Returns the cheapest layout of such a replica for these kinds of reads, and its cost model.
    fn advised(&self, of: &CandidateElements) -> Option<(Layout, CostModel)> {
        let shape = of.held.shape();
        let raw = bytes_of(&shape, self.item_size);
        let reads = of.numbers.iter().map(|number| {
            let kind = &self.kinds[*number];
            (read_of(kind, &of.held), kind.reads)
        });
        let mut request = self.request(&shape, reads.collect());
        request.readers = vec![Reader::Bedform];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let shard_bytes = (raw / SETTINGS.shards_max) as u64;
        request.shard_bytes = shard_bytes.max(SETTINGS.shard_bytes);
        let advice = advise(&request).ok()?;
        Some((layout_of(advice), self.model(&shape, request.cores)))
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
    pub(in crate::optimize) fn best_layout(
        &self,
        now: &Layout,
        readers: &[Reader],
    ) -> Result<BestLayout> {
        let reads = self.own.iter().map(|number| {
            let kind = &self.kinds[*number];
            Ok((read_of_whole(kind)?, kind.reads))
        });
        let reads = reads.collect::<Result<Vec<_>>>()?;
        let mut request = self.request(&self.shape, reads.clone());
        request.readers = readers.to_vec();
        let advice = advise(&request).map_err(|error| Error::invalid(error.to_string()))?;
        let layout = layout_of(advice);
        let model = self.model(&self.shape, request.cores);
        let priced = reads
            .iter()
            .map(|(read, _)| (model.price(now, read).seconds, model.price(&layout, read).seconds));
        let seconds = self.own.iter().copied().zip(priced);
        let seconds = seconds.map(|(number, (now, then))| (number, now, then)).collect();
        Ok(BestLayout { layout, seconds })
    }

    /// Returns a replica of these elements in the cheapest layout for its kinds of reads; `None` for
    /// one that is larger than the budget, or serves no kind.
    pub(super) fn laid_out(
        &self,
        of: CandidateElements,
        budget_bytes: u64,
    ) -> Result<Option<CandidateReplica>> {
        // Without padding, margin and index: advice takes longer than this sum.
        let raw = bytes_of(&of.held.shape(), self.item_size);
        if self.bytes_with(&of, raw / self.ratio) > budget_bytes {
            return Ok(None);
        }
        let Some((layout, model)) = self.advised(&of) else { return Ok(None) };
        let serves: Vec<_> =
            (0..self.kinds.len()).map(|number| self.serves(number, &of, &model, &layout)).collect();
        let bytes = self.bytes_with(&of, self.chunk_bytes(&of, &layout));
        if serves.iter().all(Option::is_none) || bytes > budget_bytes {
            return Ok(None);
        }
        let seconds_per_byte = self.seconds_per_byte + 1.0 / SETTINGS.written_bytes_per_second;
        let (id, building_seconds) = (self.id_of(&of, &layout)?, raw * seconds_per_byte);
        let shape = of.held.shape();
        let planned = PlannedReplica {
            id: id.clone(),
            array: self.array.to_owned(),
            dims: self.dims.clone(),
            raw_bytes: shape.iter().copied().fold(self.item_size, u64::saturating_mul),
            shape,
            held: of.held,
            places: of.places,
            chunks: layout.chunk_shape,
            shards: layout.shard_shape,
            order: layout.order.name().to_owned(),
            bytes,
            building_seconds,
            expected: self.expected(&serves),
        };
        Ok(Some(CandidateReplica {
            planned: Some(PlannedHelper::Replica(Box::new(planned))),
            is_of_site: false,
            id,
            bytes,
            building_seconds,
            is_counted: false,
            serves,
            worth: Worth::default(),
        }))
    }

    /// Returns the bytes of a replica whose chunks take `chunks` bytes.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn bytes_with(&self, of: &CandidateElements, chunks: f64) -> u64 {
        let places = of.places.as_ref().map_or(0, |places| places.len());
        (chunks + SETTINGS.place_bytes * places as f64) as u64 + SETTINGS.document_bytes
    }

    /// Returns the predicted bytes of the chunks of these elements, with their entries in indexes.
    fn chunk_bytes(&self, of: &CandidateElements, layout: &Layout) -> f64 {
        let (shape, chunk) = (of.held.shape(), &layout.chunk_shape);
        let raw = bytes_of(&shape, self.item_size);
        let padded = padded_bytes(&shape, chunk, self.item_size);
        let elements = raw + SETTINGS.padding_share * (padded - raw);
        let chunks = padded / bytes_of(chunk, self.item_size).max(1.0);
        SETTINGS.size_margin * elements / self.ratio + SETTINGS.chunk_entry_bytes * chunks
    }

    /// Returns the reads that a replica is to serve, with their predicted seconds.
    fn expected(&self, serves: &[Option<(f64, f64)>]) -> Vec<ExpectedReads> {
        let served = self.kinds.iter().zip(serves);
        let served = served.filter_map(|(kind, served)| Some((kind, (*served)?)));
        // For a listed read that the replica holds in part, each read computes the price.
        let served = served.filter(|(kind, (share, _))| kind.exact.is_none() || *share >= 1.0);
        let expected = served.map(|(kind, (share, seconds))| ExpectedReads {
            shape: kind.counts.clone(),
            reads: kind.reads * share,
            seconds_without: kind.seconds,
            seconds_with: seconds,
        });
        expected.collect()
    }

    /// Returns the share of the reads of a kind that a replica holds completely, and the seconds of
    /// one; `None` if the replica is not faster.
    fn serves(
        &self,
        number: usize,
        CandidateElements { held, places, .. }: &CandidateElements,
        model: &CostModel,
        layout: &Layout,
    ) -> Option<(f64, f64)> {
        let kind = &self.kinds[number];
        // A read of another array has other positions, perhaps other axes.
        if kind.array != self.array {
            return None;
        }
        let part = part_of(kind, held, places.as_ref().map(|places| places.as_slice()))?;
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
            seconds += whole * SETTINGS.place_bytes / self.item_size as f64
                + *count as f64 * SETTINGS.place_seconds;
        }
        if kind.exact.is_some() {
            seconds = part.seconds_of_all(seconds, kind.seconds);
        }
        (seconds < kind.seconds).then_some((part.share, seconds))
    }

    /// Returns a name that depends only on the replica's description and the state of the source.
    fn id_of(&self, of: &CandidateElements, layout: &Layout) -> Result<String> {
        let described = serde_json::to_vec(&(self.array, &self.shape, &of.held, layout));
        let state = serde_json::to_vec(&(&self.source.state, &self.objects));
        let (Ok(described), Ok(state)) = (described, state) else {
            return Err(Error::invalid("a replica that cannot be described"));
        };
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(&described);
        fingerprint.update(&state);
        let places = of.places.iter().flat_map(|places| places.iter());
        places.for_each(|place| fingerprint.update(&place.to_le_bytes()));
        Ok(format!("{:016x}", fingerprint.finish() >> 64))
    }
}

/// The cheapest layout of an array for its reads.
#[derive(Debug, Clone)]
pub(in crate::optimize) struct BestLayout {
    pub(in crate::optimize) layout: Layout,
    /// For each kind, its number and the predicted seconds of one read, now and in this layout.
    pub(in crate::optimize) seconds: Vec<(usize, f64, f64)>,
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

fn layout_of(advice: Advice) -> Layout {
    let Advice { chunk_shape, shard_shape, order, .. } = advice;
    Layout { chunk_shape, shard_shape, order }
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

fn clipped(lengths: &[u64], shape: &[u64]) -> Vec<u64> {
    lengths.iter().zip(shape).map(|(length, most)| *length.min(most)).collect()
}

/// Returns the bytes of all chunks, with the padding of those at the end of an axis.
fn padded_bytes(shape: &[u64], chunk: &[u64], item_size: u64) -> f64 {
    let along = |(length, chunk): (&u64, &u64)| length.div_ceil(*chunk.max(&1)) * chunk;
    let padded: Vec<u64> = shape.iter().zip(chunk).map(along).collect();
    bytes_of(&padded, item_size)
}
