//! Kinds of reads that count in a plan, with their predicted cost without replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bedform_format::ObjectPath;
use bedform_geometry::{AxisRange, AxisSelection, Region, Selection};

use super::choose::PricedUse;
use super::{OptimizeOptions, OptimizedSource, PlannedRead, SourcePlace};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::replica::{AxisRuns, ReplicaElements};
use crate::sidecar::Sidecar;
use crate::trace::{
    Knowledge, LearnedArray, LearnedReadKind, bounds, hot_box, kept_selection, newest_knowledge,
    newest_read_ns, runs_of,
};
use crate::zarr::nodes::NodeKind;

/// The most kinds that a plan of replicas considers: those with the largest total seconds.
pub(super) const KINDS_MAX: usize = 64;
/// The most kinds of each array when its own layout is chosen.
const KINDS_OF_ARRAY_MAX: usize = 16;
/// Places at which a kind is priced, as shares of its hot region along each axis.
const PLACES: [f64; 3] = [0.17, 0.5, 0.83];
/// The total number of reads that all expected reads stand for: an afternoon's work.
const READS_EXPECTED: f64 = 1000.0;

/// The most positions of all learned lists and points together; further lists are skipped.
const POSITIONS_MAX: u64 = 1 << 26;
/// The number of days after which a read counts half, relative to the newest read.
const HALF_LIFE_DAYS: i32 = 30;
const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// The least mean length of runs, in positions, at which they are kept as runs and not as points.
const RUN_PLACES_MIN: usize = 8;

/// A kind of reads that the caller expects.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExpectedRead {
    /// The array's path; `None` for all arrays that have the axes.
    pub array: Option<String>,
    /// Names of the axes that a read spans; along the others it has one position.
    pub spanned: Vec<String>,
    /// Its weight relative to the other expected reads.
    pub weight: f64,
    /// The bounds of such reads, by axis: name, first position, end.
    pub region: Vec<(String, u64, u64)>,
}

/// A selection that will be read exactly as given.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedRead {
    /// The array's path.
    pub array: String,
    /// The selection.
    pub selection: Selection,
    /// Its weight relative to the other listed reads.
    pub weight: f64,
}

/// A kind of reads of one array: a box of a shape at varying places, or an exact selection.
#[derive(Debug, Clone)]
pub(super) struct PricedReadKind {
    pub(super) array: String,
    pub(super) dims: Vec<String>,
    /// Elements of the array along each axis, and bytes per element.
    pub(super) array_shape: Vec<u64>,
    pub(super) item_size: u64,
    /// Positions of a read along each axis, and the step between them.
    pub(super) counts: Vec<u64>,
    pub(super) steps: Vec<u64>,
    /// The weight of such reads: their number, older ones counting less.
    pub(super) reads: f64,
    /// The box around all of them.
    pub(super) bounds: Region,
    /// The box that holds nine of ten of them.
    pub(super) hot: Region,
    /// Predicted seconds of one cold read without replicas.
    pub(super) seconds: f64,
    /// The elements, if every such read takes the same.
    pub(super) exact: Option<ExactElements>,
}

/// The decision that kinds of reads are collected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadsFor {
    /// Replicas: reads of whole arrays do not count, because no replica speeds them up.
    Replicas,
    /// The layout of each array: all reads count.
    Layouts,
}

/// The elements of a listed read.
#[derive(Debug, Clone)]
pub(super) enum ExactElements {
    /// All combinations of positions in these runs, one list of runs per axis.
    AxisRuns(Vec<AxisRuns>),
    /// Elements at these places in the C order of the array, ascending.
    Points(Arc<Vec<u64>>),
}

impl PricedReadKind {
    /// Describes this kind in a plan, with the predicted seconds of a read before and after it.
    pub(super) fn planned(&self, seconds_now: f64, seconds_then: f64) -> PlannedRead {
        PlannedRead {
            array: self.array.clone(),
            dims: self.dims.clone(),
            shape: self.counts.clone(),
            start: self.bounds.start().to_vec(),
            end: (0..self.bounds.rank()).map(|axis| self.bounds.end(axis)).collect(),
            reads: self.reads,
            seconds_of_source: self.seconds,
            seconds_now,
            seconds_then,
        }
    }

    pub(super) fn priced_use(&self) -> PricedUse {
        PricedUse { reads: self.reads, seconds: self.seconds, is_exact: self.exact.is_some() }
    }

    /// Returns the elements between the first and the last position of such a read, along each
    /// axis.
    pub(super) fn lengths(&self) -> Vec<u64> {
        let length = |(count, step): (&u64, &u64)| match count {
            0 => 0,
            count => (count - 1).saturating_mul(*step).saturating_add(1),
        };
        self.counts.iter().zip(&self.steps).map(length).collect()
    }

    /// True if such reads take elements and lie inside the array; kinds without exact elements must
    /// also fit their hot region.
    fn has_elements(&self) -> bool {
        let rank = self.array_shape.len();
        let is_inside = |region: &Region| {
            let ends = (0..rank).map(|axis| region.end(axis));
            region.rank() == rank && ends.zip(&self.array_shape).all(|(end, length)| end <= *length)
        };
        let has_axes = [&self.counts, &self.steps].iter().all(|axes| axes.len() == rank);
        let fits = || {
            let lengths = self.lengths().into_iter().zip(self.hot.shape());
            lengths.into_iter().all(|(length, room)| (1..=*room).contains(&length))
        };
        is_inside(&self.bounds)
            && is_inside(&self.hot)
            && !self.hot.is_empty()
            && (self.exact.is_some() || (has_axes && fits()))
    }

    /// Returns this kind in an array of another shape: bounds that spanned an axis span it again,
    /// others are clipped. `None` if it no longer fits.
    fn in_shape(mut self, then: &[u64], now: &[u64]) -> Option<Self> {
        let boxed = |region: &Region| {
            let along = |axis: usize| {
                let (start, end) = (region.start()[axis], region.end(axis));
                match (start, end == then[axis]) {
                    (0, true) => (0, now[axis]),
                    _ => (start.min(now[axis]), end.min(now[axis])),
                }
            };
            let ends: Vec<_> = (0..region.rank()).map(along).collect();
            let lengths = ends.iter().map(|(start, end)| end.checked_sub(*start));
            let lengths: Vec<u64> = lengths.collect::<Option<_>>()?;
            Region::new(ends.iter().map(|(start, _)| *start).collect::<Vec<_>>(), lengths).ok()
        };
        (self.bounds, self.hot) = (boxed(&self.bounds)?, boxed(&self.hot)?);
        for (axis, count) in self.counts.iter_mut().enumerate() {
            if *count == then[axis] {
                *count = now[axis];
            }
        }
        let lengths = self.lengths();
        let fits = lengths.iter().zip(self.hot.shape()).all(|(length, room)| length <= room);
        (fits && !self.hot.is_empty()).then_some(self)
    }

    /// Returns such a read at a place in the hot region, given as a share from 0 to 1.
    fn at(&self, share: f64) -> Option<Selection> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let axis = |axis: usize| {
            let room = self.hot.shape()[axis].saturating_sub(self.lengths()[axis]);
            let start = self.hot.start()[axis] + (room as f64 * share) as u64;
            let step = i64::try_from(self.steps[axis]).ok()?;
            AxisRange::new(start, step, self.counts[axis]).ok().map(AxisSelection::Range)
        };
        (0..self.counts.len()).map(axis).collect::<Option<_>>().map(Selection::Orthogonal)
    }

    /// Returns such reads at several places.
    pub(super) fn places(&self) -> Vec<Selection> {
        PLACES.iter().filter_map(|share| self.at(*share)).collect()
    }

    /// Returns the mean predicted seconds of such a read of the array itself.
    fn priced(&self, array: &Array) -> Result<f64> {
        let mut seconds = 0.0;
        let selections = self.places();
        for selection in &selections {
            seconds += array.price(selection)?.seconds;
        }
        Ok(seconds / selections.len().max(1) as f64)
    }
}

/// Returns the weight of reads of which the last began at `last_ns`, relative to reads at
/// `newest_ns`.
pub(super) fn recency(last_ns: u64, newest_ns: u64) -> f64 {
    let days = newest_ns.saturating_sub(last_ns) / DAY_NS;
    0.5_f64.powf(days as f64 / f64::from(HALF_LIFE_DAYS))
}

/// Returns the kinds of reads that count: the caller's expected ones, else the learned ones.
///
/// # Errors
/// `NotFound` without any; `InvalidArgument` for expected reads that no array has; errors of
/// pricing.
pub(super) fn kinds_of(
    source: &OptimizedSource,
    place: &SourcePlace,
    options: &OptimizeOptions,
    deciding: ReadsFor,
    notes: &mut Vec<String>,
) -> Result<Vec<PricedReadKind>> {
    let OptimizeOptions { reads, selections, .. } = options;
    let mut kinds = match (reads.is_empty(), selections.is_empty()) {
        (true, true) => learnt(source, place, options.like.as_ref(), deciding, notes)?,
        (true, false) => Vec::new(),
        (false, _) => expected_kinds(source, place, reads, deciding)?,
    };
    kinds.extend(listed_kinds(source, place, selections)?);
    // Drops malformed kinds: the file of learned reads may be damaged, and an expected read may
    // span an axis without elements.
    kinds.retain(PricedReadKind::has_elements);
    kinds.sort_by(|a, b| (b.seconds * b.reads).total_cmp(&(a.seconds * a.reads)));
    match deciding {
        ReadsFor::Replicas => kinds.truncate(KINDS_MAX),
        ReadsFor::Layouts => {
            let mut counts = BTreeMap::new();
            kinds.retain(|kind| {
                let count = counts.entry(kind.array.clone()).or_insert(0_usize);
                *count += 1;
                *count <= KINDS_OF_ARRAY_MAX
            });
        }
    }
    Ok(kinds)
}

/// An array, its shape, the bytes per element, and the names of its axes.
type OpenedArray = (Array, Vec<u64>, u64, Vec<String>);

/// Opens an array of the source; `None` if its elements have no fixed size.
fn opened(source: &OptimizedSource, path: &str) -> Option<OpenedArray> {
    let array = source.store.array(&ObjectPath::parse(path).ok()?).ok()?;
    let item_size = array.data_type().ok()?.item_size()? as u64;
    let (shape, names) = (array.shape().ok()?, array.dimension_names().ok()?);
    let name =
        |(axis, name): (usize, Option<String>)| name.unwrap_or_else(|| format!("dim_{axis}"));
    let dims: Vec<String> = names.into_iter().enumerate().map(name).collect();
    // Arrays of an archive without the joined dimension lie in its first file.
    let is_joined = source.joined().is_none_or(|joined| dims.iter().any(|name| name == joined));
    is_joined.then_some((array, shape, item_size, dims))
}

/// Returns the learned reads of the source at a place, with their sidecar.
fn knowledge_of(place: &SourcePlace) -> Result<Option<(Sidecar, Knowledge)>> {
    Ok(Sidecar::find(&place.sidecar_name()?, None)?.and_then(known_in))
}

/// Returns the learned reads of the source, or of the source `like`, with their sidecar.
///
/// # Errors
/// Errors of finding the sidecars.
pub(super) fn known_reads(
    source: &OptimizedSource,
    place: &SourcePlace,
    like: Option<&SourcePlace>,
) -> Result<Option<(Sidecar, Knowledge)>> {
    match like {
        Some(like) => knowledge_of(like),
        // The sidecar of the replicas may be another one than that of the traces.
        None => match source.sidecar.clone().and_then(known_in) {
            Some(known) => Ok(Some(known)),
            None => knowledge_of(place),
        },
    }
}

/// Returns the learned reads in a sidecar, with it.
fn known_in(sidecar: Sidecar) -> Option<(Sidecar, Knowledge)> {
    let knowledge = newest_knowledge(&sidecar)?;
    Some((sidecar, knowledge))
}

fn learnt(
    source: &OptimizedSource,
    place: &SourcePlace,
    like: Option<&SourcePlace>,
    deciding: ReadsFor,
    notes: &mut Vec<String>,
) -> Result<Vec<PricedReadKind>> {
    let known = known_reads(source, place, like)?;
    let (sidecar, knowledge) = known.ok_or_else(|| {
        let from = like.unwrap_or(place);
        let text = format!(
            "{}: no reads were learnt: turn recording on with {}, read, then {}; or say what will be read, as \
             --reads time=1",
            from.shown(),
            from.command("watch"),
            from.command("learn")
        );
        Error::new(ErrorKind::NotFound, text)
    })?;
    let newest_ns = newest_read_ns(&knowledge);
    let mut lists = LearntLists { sidecar: &sidecar, newest_ns, room: POSITIONS_MAX };
    let mut kinds = Vec::new();
    for (name, learned) in &knowledge.arrays {
        let Some(opened) = opened(source, name) else { continue };
        let (array, shape, item_size, dims) = &opened;
        // The archive may have got more files since.
        let may_differ = like.is_some() || source.joined().is_some();
        if learned.shape.len() != shape.len() || (!may_differ && learned.shape != *shape) {
            notes.push(format!("{name}: its shape has changed since its reads were learnt"));
            continue;
        }
        for kind in &learned.kinds.0 {
            let last_ns = kind.last_ns;
            let Some(found) = of_learnt(kind, &learned.shape, deciding) else { continue };
            let Some(mut kind) = found.in_shape(&learned.shape, shape) else { continue };
            kind.array.clone_from(name);
            (kind.dims, kind.array_shape, kind.item_size) =
                (dims.clone(), shape.clone(), *item_size);
            kind.reads *= recency(last_ns, newest_ns);
            kind.seconds = kind.priced(array)?;
            kinds.push(kind);
        }
        kinds.extend(lists.kinds(name, learned, &opened, notes)?);
    }
    Ok(kinds)
}

/// Loads learned lists and points, up to a number of positions.
struct LearntLists<'a> {
    sidecar: &'a Sidecar,
    /// The start of the last read of the source, in nanoseconds since 1970.
    newest_ns: u64,
    /// Positions that may still be loaded.
    room: u64,
}

impl LearntLists<'_> {
    /// Returns the kinds of reads of an array's learned lists and points. Notes tell about lists
    /// that are unknown or no longer valid.
    fn kinds(
        &mut self,
        name: &str,
        learned: &LearnedArray,
        opened: &OpenedArray,
        notes: &mut Vec<String>,
    ) -> Result<Vec<PricedReadKind>> {
        let mut kinds = Vec::new();
        let (mut unknown, mut elsewhere) = (learned.lists.reads, 0_u64);
        for one in &learned.selections.all {
            let Some(selection) = kept_selection(self.sidecar, one) else { continue };
            let shape = &opened.1;
            let Some(selection) = in_shape(selection, &one.shape, shape) else {
                elsewhere += one.reads;
                unknown = unknown.saturating_sub(one.reads);
                continue;
            };
            let positions = selection.result_shape().iter().sum::<u64>();
            if selection.validate(shape).is_err() || positions > self.room {
                continue;
            }
            self.room -= positions;
            unknown = unknown.saturating_sub(one.reads);
            let reads = one.reads as f64 * recency(one.last_ns, self.newest_ns);
            kinds.extend(listed_kind(name, &selection, opened, reads)?);
        }
        if elsewhere > 0 {
            notes.push(format!(
                "{name}: {elsewhere} reads of lists or points are left out: its shape is another one, where their \
                 positions do not mean the same"
            ));
        }
        if unknown > learned.read.reads / 2 {
            notes.push(format!(
                "{name}: most of its reads are lists of positions or points of which only the box is known: say \
                 which by --selections"
            ));
        }
        Ok(kinds)
    }
}

/// Returns the same selection in an array of another shape: a range that spans an axis spans it
/// again. `None` where the positions of `then` differ in meaning from those of `now`.
fn in_shape(selection: Selection, then: &[u64], now: &[u64]) -> Option<Selection> {
    if then == now {
        return Some(selection);
    }
    let Selection::Orthogonal(axes) = selection else { return None };
    let axis = |(at, axis): (usize, AxisSelection)| {
        let (then, now) = (*then.get(at)?, *now.get(at)?);
        match axis {
            axis if then == now => Some(axis),
            AxisSelection::Range(range) if range == AxisRange::whole(then) => {
                Some(AxisSelection::Range(AxisRange::whole(now)))
            }
            _ => None,
        }
    };
    let axes = axes.into_iter().enumerate().map(axis).collect::<Option<Vec<_>>>()?;
    (axes.len() == now.len()).then_some(Selection::Orthogonal(axes))
}

/// Converts a learned kind of reads; `None` if it does not count for the decision, or does not fit
/// the array.
fn of_learnt(kind: &LearnedReadKind, shape: &[u64], deciding: ReadsFor) -> Option<PricedReadKind> {
    let is_whole = deciding == ReadsFor::Replicas && kind.counts.iter().eq(shape);
    let fits = kind.counts.len() == shape.len() && kind.steps.len() == shape.len();
    if is_whole || !fits || kind.reads == 0 {
        return None;
    }
    let found = PricedReadKind {
        array: String::new(),
        dims: Vec::new(),
        array_shape: Vec::new(),
        item_size: 0,
        counts: kind.counts.clone(),
        steps: kind.steps.clone(),
        reads: kind.reads as f64,
        bounds: bounds(kind, shape)?,
        hot: hot_box(kind, shape, 0.9)?,
        seconds: 0.0,
        exact: None,
    };
    let lengths = found.lengths();
    let fits = lengths.iter().zip(found.hot.shape()).all(|(length, room)| length <= room);
    // Reads longer than their hot region use the box around all reads.
    Some(if fits { found } else { PricedReadKind { hot: found.bounds.clone(), ..found } })
}

fn listed_kinds(
    source: &OptimizedSource,
    place: &SourcePlace,
    listed: &[ListedRead],
) -> Result<Vec<PricedReadKind>> {
    let total: f64 = listed.iter().map(|read| read.weight).sum();
    let mut kinds = Vec::with_capacity(listed.len());
    for read in listed {
        let unknown = || {
            let text = format!("{}: no array {:?} of numbers", place.shown(), read.array);
            Error::new(ErrorKind::NotFound, text)
        };
        let opened = opened(source, &read.array).ok_or_else(unknown)?;
        read.selection.validate(&opened.1)?;
        let reads = READS_EXPECTED * read.weight / total;
        kinds.extend(listed_kind(&read.array, &read.selection, &opened, reads)?);
    }
    Ok(kinds)
}

/// Makes a kind of `reads` reads of a selection; `None` for one without elements.
fn listed_kind(
    name: &str,
    selection: &Selection,
    (array, shape, item_size, dims): &OpenedArray,
    reads: f64,
) -> Result<Option<PricedReadKind>> {
    let Some((exact, bounds)) = exact_of(selection, shape)? else { return Ok(None) };
    Ok(Some(PricedReadKind {
        array: name.to_owned(),
        dims: dims.clone(),
        array_shape: shape.clone(),
        item_size: *item_size,
        counts: selection.result_shape(),
        steps: vec![1; selection.result_shape().len()],
        reads,
        hot: bounds.clone(),
        bounds,
        seconds: array.price(selection)?.seconds,
        exact: Some(exact),
    }))
}

/// Returns the elements of a selection, and the box around them; `None` for one without elements.
fn exact_of(selection: &Selection, shape: &[u64]) -> Result<Option<(ExactElements, Region)>> {
    if selection.is_empty() {
        return Ok(None);
    }
    let sorted = |positions: &mut Vec<u64>| {
        positions.sort_unstable();
        positions.dedup();
    };
    let places = match selection {
        Selection::Points(points) => Some(points.places(shape)),
        Selection::Orthogonal(axes) => match axes.as_slice() {
            [AxisSelection::Coords(list)] => Some(list.clone()),
            _ => None,
        },
        Selection::Union(_) => None,
    };
    let bounds = |runs: &[Vec<(u64, u64)>]| {
        let held = ReplicaElements::Runs(runs.to_vec());
        held.bounds().ok_or_else(|| Error::invalid("a selection without elements"))
    };
    if let Some(mut places) = places {
        sorted(&mut places);
        let runs = runs_of(&places);
        // A lookup in few long runs is faster than in a list of places.
        if shape.len() == 1 && runs.len() * RUN_PLACES_MIN <= places.len() {
            let runs = vec![runs];
            return Ok(Some((ExactElements::AxisRuns(runs.clone()), bounds(&runs)?)));
        }
        let whole = Region::whole(shape.to_vec())?;
        return Ok(Some((ExactElements::Points(Arc::new(places)), whole)));
    }
    let Selection::Orthogonal(axes) = selection else {
        let text = "a union of boxes: give its boxes one by one";
        return Err(Error::new(ErrorKind::Unsupported, text));
    };
    let runs = axes.iter().map(|axis| {
        let mut positions: Vec<u64> = (0..axis.len()).filter_map(|at| axis.get(at)).collect();
        sorted(&mut positions);
        runs_of(&positions)
    });
    let runs: Vec<_> = runs.collect();
    let bounds = bounds(&runs)?;
    Ok(Some((ExactElements::AxisRuns(runs), bounds)))
}

/// Returns the expected reads as kinds of reads of an array with this shape and these axes. A read of
/// the whole array does not count.
///
/// # Errors
/// `InvalidArgument` for a read that the array cannot have.
pub(super) fn expected_kinds_of(
    expected: &[ExpectedRead],
    (shape, dims): (&[u64], &[String]),
    place: &SourcePlace,
) -> Result<Vec<PricedReadKind>> {
    let total: f64 = expected.iter().map(|read| read.weight).sum();
    let mut kinds = Vec::new();
    for read in expected {
        let Some(kind) = of_expected(read, shape, dims)? else {
            return Err(not_in(read, &dims.iter().cloned().collect(), place));
        };
        if kind.counts != shape && !kind.bounds.is_empty() {
            let reads = READS_EXPECTED * read.weight / total;
            kinds.push(PricedReadKind { array_shape: shape.to_vec(), reads, ..kind });
        }
    }
    Ok(kinds)
}

/// Returns the learned kinds of reads of the arrays for which `shape_of` returns a shape, by their
/// path and the shape that they had, each with its path.
pub(super) fn learnt_kinds_of(
    knowledge: &Knowledge,
    shape_of: impl Fn(&str, &[u64]) -> Option<Vec<u64>>,
) -> Vec<(String, PricedReadKind)> {
    let newest_ns = newest_read_ns(knowledge);
    let mut kinds = Vec::new();
    for (name, learned) in &knowledge.arrays {
        let Some(shape) = shape_of(name, &learned.shape) else { continue };
        for kind in &learned.kinds.0 {
            let Some(mut found) = of_learnt(kind, &shape, ReadsFor::Replicas) else { continue };
            found.array_shape.clone_from(&shape);
            found.reads *= recency(kind.last_ns, newest_ns);
            if found.has_elements() {
                kinds.push((name.clone(), found));
            }
        }
    }
    kinds
}

fn expected_kinds(
    source: &OptimizedSource,
    place: &SourcePlace,
    expected: &[ExpectedRead],
    deciding: ReadsFor,
) -> Result<Vec<PricedReadKind>> {
    let total: f64 = expected.iter().map(|read| read.weight).sum();
    let nodes = source.store.nodes()?;
    let arrays = nodes.into_iter().filter(|(_, kind)| *kind == NodeKind::Array);
    let (mut kinds, mut matched) = (Vec::new(), vec![false; expected.len()]);
    let mut known = BTreeSet::new();
    for (path, _) in arrays {
        let Some((array, shape, item_size, dims)) = opened(source, path.as_str()) else { continue };
        known.extend(dims.iter().cloned());
        for (number, read) in expected.iter().enumerate() {
            if read.array.as_ref().is_some_and(|name| name != path.as_str()) {
                continue;
            }
            let Some(mut kind) = of_expected(read, &shape, &dims)? else { continue };
            matched[number] = true;
            let is_whole = deciding == ReadsFor::Replicas && kind.counts == shape;
            if is_whole || kind.bounds.is_empty() {
                continue;
            }
            kind.array = path.as_str().to_owned();
            (kind.dims, kind.array_shape, kind.item_size) =
                (dims.clone(), shape.clone(), item_size);
            kind.reads = READS_EXPECTED * read.weight / total;
            kind.seconds = kind.priced(&array)?;
            kinds.push(kind);
        }
    }
    match matched.iter().position(|matched| !matched) {
        Some(number) => Err(not_in(&expected[number], &known, place)),
        None => Ok(kinds),
    }
}

/// Returns the error for an expected read that no array can have; `known` are the dimensions of all
/// arrays.
fn not_in(read: &ExpectedRead, known: &BTreeSet<String>, place: &SourcePlace) -> Error {
    let shown = place.shown();
    let dimensions = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let spanned = read.spanned.join(", ");
    let names: Vec<&str> = read.region.iter().map(|(name, ..)| name.as_str()).collect();
    let unknown = names.iter().find(|name| !known.contains(**name));
    Error::invalid(match unknown {
        _ if read.spanned.iter().any(|name| !known.contains(name)) || names.is_empty() => format!(
            "no array of {shown} has reads that span ({spanned}): the dimensions are {dimensions}"
        ),
        Some(name) => {
            format!("region: no array of {shown} has {name:?}: the dimensions are {dimensions}")
        }
        None => format!(
            "no array of {shown} has reads that span ({spanned}) in a region of ({}): the dimensions are {dimensions}",
            names.join(", ")
        ),
    })
}

/// Converts an expected read to a kind of reads of this array; `None` for an array that lacks an
/// axis. The kind is empty where the array has no elements.
fn of_expected(
    read: &ExpectedRead,
    shape: &[u64],
    dims: &[String],
) -> Result<Option<PricedReadKind>> {
    let has = |name: &String| dims.contains(name);
    if !read.spanned.iter().all(has) || !read.region.iter().all(|(name, ..)| has(name)) {
        return Ok(None);
    }
    let (mut start, mut lengths) = (vec![0; shape.len()], shape.to_vec());
    for (name, first, end) in &read.region {
        let axis = dims.iter().position(|known| known == name).unwrap_or(0);
        if shape[axis] == 0 {
            continue;
        }
        let end = (*end).min(shape[axis]);
        if *first >= end {
            let text = format!("{first}:{end} of {name} has no elements");
            return Err(Error::invalid(text));
        }
        (start[axis], lengths[axis]) = (*first, end - first);
    }
    let count = |(axis, name): (usize, &String)| match read.spanned.contains(name) {
        true => lengths[axis],
        false => lengths[axis].min(1),
    };
    let bounds = Region::new(start, lengths.clone())?;
    Ok(Some(PricedReadKind {
        array: String::new(),
        dims: Vec::new(),
        array_shape: Vec::new(),
        item_size: 0,
        counts: dims.iter().enumerate().map(count).collect(),
        steps: vec![1; shape.len()],
        reads: 0.0,
        hot: bounds.clone(),
        bounds,
        seconds: 0.0,
        exact: None,
    }))
}
