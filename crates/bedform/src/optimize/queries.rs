//! Queries that count in a plan, and the value indexes that would serve them.
//!
//! A learned condition is planned as a query of the source, over the box around its regions: a scan
//! of it, and the scan with the indexes that there are. A forecast of the blocks that another index
//! would leave out prices that index. The index of an array is one candidate with bins, if the bins
//! of `auto` pay, and one without. An index that a user built is left alone, and so is its array.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bedform_format::ObjectPath;
use bedform_geometry::{Selection, element_count};

use super::candidates::{CandidateReplica, PlannedHelper, Worth};
use super::choose::PricedUse;
use super::reads::recency;
use super::{OptimizedSource, PlannedIndex, PlannedQuery};
use crate::array::Array;
use crate::error::Result;
use crate::indexing::{IndexCondition, IndexSize, raw_bytes};
use crate::query::{BinUse, IndexForecast, QueryArray, QueryExplanation, QueryOptions, ValueQuery};
use crate::trace::{Knowledge, LearnedCondition, newest_read_ns};

/// The most conditions that a plan considers: those with the largest total seconds.
const CONDITIONS_MAX: usize = 16;
/// Bytes of elements of which an index is made in a second, reading apart.
const INDEXED_BYTES_PER_SECOND: f64 = 400e6;
const INDEX_PREFIX: &str = "index of ";

/// Returns the name of the index of an array among candidates; names of replicas have digits alone.
pub(super) fn index_id(array: &str) -> String {
    format!("{INDEX_PREFIX}{array}")
}

/// Returns the array of the index with this name; `None` for a replica.
pub(super) fn indexed_array(id: &str) -> Option<&str> {
    id.strip_prefix(INDEX_PREFIX)
}

/// Queries with one condition over regions of one shape.
pub(super) struct PricedQuery {
    learned: LearnedCondition,
    dims: Vec<String>,
    /// Paths of the arrays of the condition.
    arrays: Vec<String>,
    query: ValueQuery,
    /// Their number, older ones counting less.
    queries: f64,
    /// Bytes of a scan of one region.
    scan_bytes: f64,
    /// Predicted seconds of one cold query: a scan; with the indexes that stay whatever is chosen;
    /// with all that there are.
    seconds_of_source: f64,
    seconds: f64,
    seconds_now: f64,
}

impl PricedQuery {
    /// Describes these queries in a plan, with the predicted seconds of one before and after it.
    pub(super) fn planned(&self, seconds_now: f64, seconds_then: f64) -> PlannedQuery {
        let LearnedCondition { condition, is_stored, shape, start, end, .. } = self.learned.clone();
        PlannedQuery {
            condition,
            is_stored,
            arrays: self.arrays.clone(),
            dims: self.dims.clone(),
            shape,
            start,
            end,
            queries: self.queries,
            seconds_of_source: self.seconds_of_source,
            seconds_now,
            seconds_then,
        }
    }

    pub(super) fn priced_use(&self) -> PricedUse {
        PricedUse { reads: self.queries, seconds: self.seconds, is_exact: false }
    }

    /// Returns the predicted seconds of one query that reads this share of the blocks of a scan, and
    /// these bytes of an index for the whole region.
    fn seconds_of(&self, share: f64, index_bytes: f64) -> f64 {
        let read = share + index_bytes / self.scan_bytes.max(1.0);
        (self.seconds_of_source * read).min(self.seconds)
    }
}

/// Returns the learned conditions that cost most, with their prices.
///
/// # Errors
/// Errors of planning queries.
pub(super) fn queries_of(
    source: &OptimizedSource,
    knowledge: &Knowledge,
    notes: &mut Vec<String>,
) -> Result<Vec<PricedQuery>> {
    let newest_ns = newest_read_ns(knowledge);
    let mut found = conditions_of(knowledge);
    found.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    found.truncate(CONDITIONS_MAX);
    let mut queries = Vec::with_capacity(found.len());
    for (name, condition) in found {
        match priced(source, name, condition, newest_ns)? {
            Some(query) => queries.push(query),
            None => notes.push(format!(
                "{name}: the query {:?} is left out: it no longer fits its arrays",
                condition.condition
            )),
        }
    }
    Ok(queries)
}

/// Returns the conditions of all arrays. Each array of a condition has it: the one with most axes
/// says where.
fn conditions_of(knowledge: &Knowledge) -> Vec<(&String, &LearnedCondition)> {
    let all = || {
        knowledge.arrays.iter().flat_map(|(name, learned)| {
            let conditions = learned.queries.conditions.iter();
            conditions.filter(|one| !one.condition.is_empty()).map(move |one| (name, one))
        })
    };
    let key = |one: &LearnedCondition| (one.condition.clone(), one.is_stored);
    let mut owners: BTreeMap<_, (usize, &String)> = BTreeMap::new();
    for (name, one) in all() {
        let owner = owners.entry(key(one)).or_insert((one.shape.len(), name));
        if owner.0 < one.shape.len() {
            *owner = (one.shape.len(), name);
        }
    }
    all()
        .filter(|(name, one)| owners.get(&key(one)).is_some_and(|owner| owner.1 == *name))
        .collect()
}

/// Returns the arrays of a condition, by their paths.
fn arrays_of(source: &OptimizedSource, condition: &str) -> Option<Vec<QueryArray>> {
    let array = |name: String| {
        let path = match source.store.is_array() {
            true => ObjectPath::root(),
            false => ObjectPath::parse(&name).ok()?,
        };
        Some(QueryArray::new(name, source.store.array(&path).ok()?))
    };
    ValueQuery::names(condition).ok()?.into_iter().map(array).collect()
}

/// Prices a condition; `None` if it does not fit the arrays as they are.
fn priced(
    source: &OptimizedSource,
    name: &str,
    learned: &LearnedCondition,
    newest_ns: u64,
) -> Result<Option<PricedQuery>> {
    let Some(arrays) = arrays_of(source, &learned.condition) else { return Ok(None) };
    let Some((dims, region)) = region_of(&arrays, name, learned) else { return Ok(None) };
    let paths: Vec<String> = arrays.iter().map(|one| one.array.path().to_owned()).collect();
    let mut options = QueryOptions { region, ..QueryOptions::default() };
    options.decode = !learned.is_stored;
    let Ok(query) = ValueQuery::new(&learned.condition, &arrays, options) else { return Ok(None) };
    let QueryExplanation {
        bytes_of_scan,
        predicted_cold_seconds,
        predicted_cold_seconds_of_scan,
        shape,
        ..
    } = query.explain()?;
    // The plan is of the box around all regions.
    let boxed = learned.end.iter().zip(&learned.start).map(|(end, start)| end - start);
    let boxed = element_count(&boxed.collect::<Vec<_>>()).unwrap_or(u64::MAX);
    let one = element_count(&learned.shape).unwrap_or(0);
    if one == 0 || element_count(&shape) == Some(0) {
        return Ok(None);
    }
    let share = one as f64 / boxed.max(1) as f64;
    let (scan, now) = (share * predicted_cold_seconds_of_scan, share * predicted_cold_seconds);
    let is_ours = |path: &String| source.indexes.iter().any(|one| one.array == *path);
    Ok(Some(PricedQuery {
        learned: learned.clone(),
        dims,
        queries: learned.queries as f64 * recency(learned.last_ns, newest_ns),
        scan_bytes: share * bytes_of_scan as f64,
        seconds_of_source: scan,
        seconds: if paths.iter().any(is_ours) { scan } else { now },
        seconds_now: now,
        arrays: paths,
        query,
    }))
}

/// The names of dimensions, and a range of positions for each.
type NamedRegion = (Vec<String>, Vec<(String, Range<u64>)>);

/// Returns the box around the regions of a condition; `None` if it does not fit the array with this
/// name.
fn region_of(arrays: &[QueryArray], name: &str, learned: &LearnedCondition) -> Option<NamedRegion> {
    let array = &arrays.iter().find(|one| one.array.path() == name)?.array;
    let (shape, names) = (array.shape().ok()?, array.dimension_names().ok()?);
    let name = |(axis, name): (usize, Option<String>)| name.unwrap_or(format!("dim_{axis}"));
    let dims: Vec<String> = names.into_iter().enumerate().map(name).collect();
    let LearnedCondition { start, end, .. } = learned;
    let lengths = [start.len(), end.len(), learned.shape.len(), dims.len()];
    let is_inside = || {
        let axes = start.iter().zip(end).zip(&shape);
        axes.into_iter().all(|((start, end), length)| start <= end && end <= length)
    };
    if lengths.iter().any(|length| *length != shape.len()) || !is_inside() {
        return None;
    }
    let ranges = start.iter().zip(end).map(|(start, end)| *start..*end);
    let region = dims.iter().cloned().zip(ranges).collect();
    Some((dims, region))
}

/// Returns the indexes that exist by an earlier plan or could be made, as candidates. Their `serves`
/// follow those of `kinds` kinds of reads.
///
/// # Errors
/// Errors of sampling the arrays.
pub(super) fn index_candidates(
    source: &OptimizedSource,
    queries: &[PricedQuery],
    kinds: usize,
) -> Result<Vec<CandidateReplica>> {
    let paths: BTreeSet<&String> = queries.iter().flat_map(|query| &query.arrays).collect();
    let serving = |of: &dyn Fn(usize, &PricedQuery) -> Option<f64>| {
        let served = |(number, query): (usize, &PricedQuery)| {
            let seconds = of(number, query).filter(|seconds| *seconds < query.seconds);
            seconds.map(|seconds| (1.0, seconds))
        };
        let none = std::iter::repeat_n(None, kinds);
        none.chain(queries.iter().enumerate().map(served)).collect::<Vec<_>>()
    };
    let mut candidates = Vec::new();
    for index in &source.indexes {
        let serves =
            serving(&|_, query| query.arrays.contains(&index.array).then_some(query.seconds_now));
        candidates.push(existing(index, serves, queries));
    }
    for path in paths {
        if source.users_indexes.contains(path)
            || source.indexes.iter().any(|one| one.array == *path)
        {
            continue;
        }
        let array = source.store.array(&ObjectPath::parse(path)?)?;
        let Some(new) = IndexedArray::new(&array, queries)? else { continue };
        for has_bins in [false, true] {
            let serves = serving(&|number, query| new.seconds(number, query, has_bins));
            candidates.extend(new.candidate(has_bins, serves));
        }
    }
    Ok(candidates)
}

/// Returns an index that an earlier plan made as a candidate.
fn existing(
    index: &IndexCondition,
    serves: Vec<Option<(f64, f64)>>,
    queries: &[PricedQuery],
) -> CandidateReplica {
    let own = queries.iter().filter(|query| query.arrays.contains(&index.array));
    let last_ns = own.map(|query| query.learned.last_ns).max().unwrap_or(0);
    let made_ns = index.made.saturating_mul(1_000_000_000);
    CandidateReplica {
        planned: None,
        is_of_site: false,
        id: index_id(&index.array),
        bytes: index.bytes,
        building_seconds: 0.0,
        serves,
        is_counted: false,
        worth: Worth { seconds: 0.0, last_ns: last_ns.max(made_ns) },
    }
}

/// An array that could have an index, with its use by each query.
struct IndexedArray<'a> {
    array: &'a Array,
    size: IndexSize,
    raw_bytes: u64,
    /// For each query the share of the array's elements in one region, and the effect of an index;
    /// `None` if the index has none.
    forecasts: Vec<Option<(f64, IndexForecast)>>,
}

impl<'a> IndexedArray<'a> {
    fn new(array: &'a Array, queries: &[PricedQuery]) -> Result<Option<Self>> {
        let Some(size) = IndexSize::of(array)? else { return Ok(None) };
        let edges = size.bins.as_ref().map(|bins| &bins.edges);
        let elements = element_count(size.grid.array_shape()).unwrap_or(u64::MAX).max(1);
        let forecast = |query: &PricedQuery| {
            if !query.arrays.iter().any(|path| path == array.path()) {
                return Ok(None);
            }
            let found = query.query.forecast(array.path(), &size.grid, edges)?;
            let region = element_count(&query.learned.shape).unwrap_or(u64::MAX);
            let share = (region as f64 / elements as f64).min(1.0);
            Ok(found.map(|forecast| (share, forecast)))
        };
        let forecasts = queries.iter().map(forecast).collect::<Result<Vec<_>>>()?;
        let raw_bytes = raw_bytes(array)?;
        let is_used = forecasts.iter().any(Option::is_some);
        Ok(is_used.then_some(Self { array, size, raw_bytes, forecasts }))
    }

    /// Returns the predicted seconds of one query with the index, with or without bins; `None` if it
    /// does not serve the query.
    fn seconds(&self, number: usize, query: &PricedQuery, has_bins: bool) -> Option<f64> {
        let (share, IndexForecast { undecided, bins }) = self.forecasts[number]?;
        let of_region = |bytes: u64| share * bytes as f64;
        let sizes = self.size.bins.as_ref().filter(|_| has_bins && bins != BinUse::None);
        let Some(sizes) = sizes else {
            return Some(query.seconds_of(undecided, of_region(self.size.ranges)));
        };
        let of_blocks = if bins == BinUse::Tails { sizes.tails } else { sizes.numbers };
        let of_all = self.size.ranges.saturating_add(sizes.counts);
        Some(query.seconds_of(0.0, of_region(of_all) + undecided * of_region(of_blocks)))
    }

    /// Returns the index as a candidate; `None` if it serves no query, or bins do not pay.
    fn candidate(
        &self,
        has_bins: bool,
        serves: Vec<Option<(f64, f64)>>,
    ) -> Option<CandidateReplica> {
        let bins = self.size.bins.as_ref().filter(|_| has_bins);
        if serves.iter().all(Option::is_none) || (has_bins && bins.is_none()) {
            return None;
        }
        let more = bins.map_or(0, |bins| bins.bytes());
        let bytes = self.size.ranges.saturating_add(more);
        let whole = Selection::all(self.size.grid.array_shape());
        let reading = self.array.price(&whole).map_or(0.0, |price| price.seconds);
        let building_seconds = reading + self.raw_bytes as f64 / INDEXED_BYTES_PER_SECOND;
        let planned = PlannedHelper::Index(PlannedIndex {
            array: self.array.path().to_owned(),
            has_bins,
            raw_bytes: self.raw_bytes,
            bytes,
            building_seconds,
        });
        Some(CandidateReplica {
            id: planned.id(),
            planned: Some(planned),
            is_of_site: false,
            bytes,
            building_seconds,
            serves,
            is_counted: false,
            worth: Worth::default(),
        })
    }
}
