//! Reads of an array that replicas serve better.
//!
//! Beneath [`Array`](super::Array), so that every door has it. The candidates are the array itself and all ways to
//! take parts of the selection from replicas: those that hold all of it, more, or a part, the rest of which then
//! comes from others or from the array (Tang, *Dynamic data prefetching and layout optimizations*, section 3.2.2).
//! Replicas whose bounds do not meet the selection are left out first. Of the others the one is added that makes the
//! read cheapest, as long as one does. What is read of the array itself is priced as it would be run, what replicas
//! give by its geometry alone: to ask for their indexes would cost what they save.
//!
//! What was chosen counts for all reads of the same lengths of which the replicas hold as much, and is remembered by
//! the kind of the read, which is known before the read is cut into parts: a read that no replica serves better costs
//! the look at its kind. A read of a kind that a replica was made for is not priced at all: that was done when it was
//! made.
//!
//! | module | holds |
//! |---|---|
//! | `kinds` | kinds of reads, as numbers |
//! | `objects` | what replicas were made of, and whether that is as it was |
//! | `points` | points that replicas of points have |

mod kinds;
mod objects;
mod points;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_format::chunk_map::SourceVersion;
use bedform_format::metadata::hex;
use bedform_geometry::{AxisSelection, PlacedAxis, PlacedBox, Selection, split};

use self::kinds::{Kind, kind_of};
use self::objects::{Objects, StoredObjects};
use self::points::asks_for_points;
use super::known::Known;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::archive::{FileRead, JoinedVariable, Member};
use crate::foreign::facts::Sources;
use crate::options::Freshness;
use crate::plan::geometry::Geometry;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::replica::{OpenReplica, ReplicaSource, Replicas};
use crate::run::RedirectedRead;
use crate::run::chunks::ChunkCache;
use crate::run::explain::priced;
use crate::run::plan::{Piece, ReadPlan};
use crate::source::{Moment, OpenCell, PendingCell, Settled, Source, StoredLayout};

/// Replicas that a read takes something from.
const TAKEN_MAX: usize = 8;
/// Parts that a read is cut into.
const PARTS_MAX: usize = 64;
/// Objects that a plan may touch and be resolved for its price; of more the geometry alone decides.
const RESOLVED_MAX: u64 = 64;
/// The share of its time that a read must gain by a replica.
const GAIN_MIN: f64 = 0.05;
/// Objects that are asked whether they have changed.
const CELLS_MAX: u64 = 1 << 12;
/// A read is of a kind that a replica was made for if it is so many times as long along no axis, and as short.
const ALIKE: u64 = 2;

/// An array as its reads begin: where it lies itself.
pub(super) struct Base<'a> {
    /// Nothing for an array that lies in many files.
    pub(super) source: Option<&'a dyn Source>,
    /// The same, for prices.
    pub(super) priced: Option<OpenedOnce<'a>>,
    pub(super) moment: &'a dyn Moment,
    pub(super) layout: &'a StoredLayout,
    pub(super) meaning: u64,
    pub(super) cache: Option<ChunkCache<'a>>,
    pub(super) tuning: &'a Tuning,
    pub(super) objects: Objects<'a>,
}

/// A source whose objects are opened once for all plans that are compared: a look at each is a wait.
pub(super) struct OpenedOnce<'a> {
    source: &'a dyn Source,
    opened: Mutex<BTreeMap<Vec<u64>, Option<OpenCell>>>,
}

impl<'a> OpenedOnce<'a> {
    fn new(source: &'a dyn Source) -> Self {
        Self { source, opened: Mutex::default() }
    }
}

impl Source for OpenedOnce<'_> {
    fn open(
        &self,
        coordinates: &[u64],
        need: Need,
        asked: Option<PendingCell>,
        waits: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened().get(coordinates) {
            return Ok(known.clone());
        }
        let found = self.source.open(coordinates, need, asked, waits)?;
        opened().insert(coordinates.to_vec(), found.clone());
        Ok(found)
    }

    fn comes_whole(&self, need: Need) -> bool {
        self.source.comes_whole(need)
    }

    fn object_name(&self, coordinates: &[u64]) -> String {
        self.source.object_name(coordinates)
    }

    fn makes_chunks(&self) -> bool {
        self.source.makes_chunks()
    }

    fn has_names(&self) -> bool {
        self.source.has_names()
    }

    fn is_remote(&self) -> bool {
        self.source.is_remote()
    }
}

/// What a read takes of something.
#[derive(Debug)]
pub(super) struct Part {
    of: PartOf,
    geometry: Geometry,
}

/// What has the elements of a part.
#[derive(Debug)]
enum PartOf {
    Replica(Arc<OpenReplica>),
    /// The array itself.
    Array,
    /// A file of an array that lies in many.
    File(FileRead),
}

/// What has the elements of a part, opened.
enum PartSource<'a> {
    Replica(ReplicaSource<'a>),
    Array(&'a dyn Source),
    File { joined: &'a JoinedVariable, read: &'a FileRead, member: Member<'a> },
}

/// A read in parts, some of which come from replicas.
#[derive(Debug)]
pub(super) struct Redirected {
    parts: Vec<Part>,
}

/// The replicas that gave something of a read, by their names, and the bytes that each gave.
pub(super) type Taken = Vec<(String, u64)>;

/// Which replicas a kind of read takes, by their numbers, in the order in which they take parts.
pub(crate) type Choice = Vec<usize>;

/// In what way replicas may help a read.
struct Hope {
    /// Replicas of points may have some of its elements.
    of_points: bool,
    /// The kind of the read; nothing if no other replica has any of it, or all are known not to help.
    kind: Option<Kind>,
}

impl Hope {
    /// How replicas may help a read, as far as a look tells; nothing if they do not.
    fn of(
        selection: &Selection,
        (replicas, of_array): (&Replicas, &[Arc<OpenReplica>]),
        array: &str,
    ) -> Option<Self> {
        let of_points = asks_for_points(selection, of_array);
        let kind = kind_of(array, selection, of_array).filter(|kind| !replicas.are_no_help(*kind));
        (of_points || kind.is_some()).then_some(Self { of_points, kind })
    }
}

impl Base<'_> {
    /// True if a replica can be of the array as it is.
    fn may_have(&self, replica: &OpenReplica) -> bool {
        replica.may_be_of(self.layout.grid.array_shape(), self.layout, self.objects.key())
    }

    /// True if nothing was written to an object of the array since the replica was made of it.
    fn is_still(&self, replica: &OpenReplica, coordinates: &[u64]) -> Result<bool> {
        let version = || self.objects.version(coordinates);
        let pieces = |state: &SourceVersion| self.objects.pieces(coordinates, state);
        let asks_again = self.objects.asks_again();
        let is_still = replica.is_still_of(coordinates, asks_again, version, pieces)?;
        let name = || self.source.map_or_else(String::new, |own| own.object_name(coordinates));
        // What is committed and not settled lies over what the replica was made of.
        Ok(is_still
            && (self.moment.is_settled() || self.moment.cover(coordinates, 0, &name)?.is_none()))
    }

    /// What of a part that a replica has is as it was, and what has changed; nothing if that cannot be told.
    fn parts_that_are_still(
        &self,
        replica: &OpenReplica,
        part: PlacedBox,
    ) -> Option<(Vec<PlacedBox>, Vec<PlacedBox>)> {
        if replica.record.of.is_none() {
            return Some((vec![part], Vec::new()));
        }
        let objects = self.objects_in(&part, CELLS_MAX)?;
        let (mut valid, mut changed) = (vec![part], Vec::new());
        for coordinates in objects {
            if self.is_still(replica, &coordinates).ok()? {
                continue;
            }
            let region = self.object_region(&coordinates)?;
            let mut still = Vec::with_capacity(valid.len());
            for part in valid {
                let (inside, rest) = split(&part, &region);
                match inside {
                    Some(inside) => {
                        changed.push(inside);
                        still.extend(rest);
                    }
                    None => still.push(part),
                }
            }
            valid = still;
            if valid.len() + changed.len() > PARTS_MAX {
                return None;
            }
        }
        Some((valid, changed))
    }

    fn priced(&self) -> Option<&dyn Source> {
        self.priced.as_ref().map(|source| source as &dyn Source)
    }

    fn price(&self, parts: &[Part]) -> Option<f64> {
        let (own, others): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.is_own());
        let mut seconds = 0.0;
        for group in [own, others].iter().filter(|group| !group.is_empty()) {
            let is_own = group.iter().all(|part| part.is_own());
            // To resolve what is perhaps not taken would ask its storage for every index.
            seconds += self
                .with_pieces(group, self.priced(), |plan| {
                    match !is_own || plan.cell_count() > RESOLVED_MAX {
                        true => Ok(plan.estimate().seconds),
                        false => priced(plan).map(|(_, price)| price.seconds),
                    }
                })?
                .ok()?;
        }
        Some(seconds)
    }

    /// Calls `act` with the plan of these parts; nothing if a replica cannot be opened.
    fn with_pieces<T>(
        &self,
        parts: &[&Part],
        own: Option<&dyn Source>,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let mut sources: Vec<PartSource<'_>> = Vec::with_capacity(parts.len());
        for part in parts {
            sources.push(match (&part.of, &self.objects) {
                (PartOf::Replica(replica), _) => PartSource::Replica(replica.source()?),
                (PartOf::File(read), Objects::Archive(joined)) => {
                    PartSource::File { joined, read, member: joined.member(read) }
                }
                (PartOf::Array | PartOf::File(_), _) => PartSource::Array(own?),
            });
        }
        let piece = |(part, source)| self.piece(part, source);
        let mut pieces: Vec<Piece<'_>> = parts.iter().copied().zip(&sources).map(piece).collect();
        Piece::number(&mut pieces);
        let all_of_replicas = sources.iter().all(|of| matches!(of, PartSource::Replica(_)));
        let tuning = match sources.first() {
            Some(PartSource::Replica(first)) if all_of_replicas => first.tuning(),
            _ => self.tuning,
        };
        Some(act(ReadPlan::new(&pieces, tuning)))
    }

    fn piece<'p>(&'p self, part: &'p Part, source: &'p PartSource<'p>) -> Piece<'p> {
        let geometry = &part.geometry;
        match source {
            PartSource::File { joined, read, member } => joined.piece(read, member, geometry),
            PartSource::Replica(source) => Piece {
                source,
                moment: &Settled,
                layout: source.layout(),
                meaning: source.meaning(),
                geometry,
                cache: source.cache(),
                begins: None,
                cells_before: 0,
            },
            PartSource::Array(source) => Piece {
                source: *source,
                moment: self.moment,
                layout: self.layout,
                meaning: self.meaning,
                geometry,
                cache: self.cache,
                begins: None,
                cells_before: 0,
            },
        }
    }

    /// What a part of a read takes of the array itself.
    fn own_parts(&self, part: &[PlacedAxis], shape: &[u64]) -> Result<Vec<Part>> {
        match &self.objects {
            Objects::Archive(joined) => Ok(of_files(joined.parts_of(part, shape)?)),
            _ => Ok(vec![Part { of: PartOf::Array, geometry: self.geometry(part, shape)? }]),
        }
    }

    fn geometry(&self, part: &[PlacedAxis], shape: &[u64]) -> Result<Geometry> {
        let StoredLayout { grid, per_object, item_size, .. } = self.layout;
        Geometry::placed(grid, per_object, part, shape, *item_size)
    }
}

impl Part {
    /// What is read of a replica, in its own positions.
    fn of_replica(
        replica: &Arc<OpenReplica>,
        part: &[PlacedAxis],
        result_shape: &[u64],
    ) -> Result<Self> {
        let gone = || Error::new(ErrorKind::NotFound, replica.name());
        let StoredLayout { grid, per_object, item_size, .. } =
            replica.source().ok_or_else(gone)?.layout();
        let geometry = Geometry::placed(grid, per_object, part, result_shape, *item_size)?;
        Ok(Self { of: PartOf::Replica(replica.clone()), geometry })
    }

    /// True if it is read of the array itself.
    fn is_own(&self) -> bool {
        !matches!(self.of, PartOf::Replica(_))
    }
}

fn of_files(parts: Vec<(FileRead, Geometry)>) -> Vec<Part> {
    let part = |(read, geometry)| Part { of: PartOf::File(read), geometry };
    parts.into_iter().map(part).collect()
}

/// A selection on its way into parts.
struct Cutting<'c> {
    base: &'c Base<'c>,
    replicas: &'c [Arc<OpenReplica>],
    result_shape: Vec<u64>,
    /// True once some replica had something that has changed since: other reads of the kind may find it as it was.
    has_changed: Cell<bool>,
}

/// The parts of a selection: of replicas, by their numbers, and those that are left.
#[derive(Clone, Default)]
struct Cut {
    taken: Vec<(usize, PlacedBox)>,
    left: Vec<PlacedBox>,
}

impl Cutting<'_> {
    /// What replica `number` takes of what is left; nothing if it has none of it.
    fn with(&self, cut: &Cut, number: usize) -> Option<Cut> {
        let held = &self.replicas[number].record.held;
        let mut next = Cut { taken: cut.taken.clone(), left: Vec::new() };
        for part in &cut.left {
            let (inside, rest) = held.split(part);
            next.left.extend(rest);
            let Some(inside) = inside else { continue };
            let still = self.base.parts_that_are_still(&self.replicas[number], inside);
            if still.as_ref().is_none_or(|(_, changed)| !changed.is_empty()) {
                self.has_changed.set(true);
            }
            let (valid, changed) = still?;
            next.left.extend(changed);
            next.taken.extend(valid.iter().map(|part| (number, held.inner(part))));
        }
        let is_more = next.taken.len() > cut.taken.len();
        (is_more && next.taken.len() + next.left.len() <= PARTS_MAX).then_some(next)
    }

    fn parts(&self, cut: &Cut) -> Result<Vec<Part>> {
        let mut parts = Vec::with_capacity(cut.taken.len() + cut.left.len());
        for (number, part) in &cut.taken {
            parts.push(Part::of_replica(&self.replicas[*number], part, &self.result_shape)?);
        }
        for part in &cut.left {
            parts.extend(self.base.own_parts(part, &self.result_shape)?);
        }
        Ok(parts)
    }

    fn price(&self, cut: &Cut) -> Option<f64> {
        self.base.price(&self.parts(cut).ok()?)
    }

    /// What these replicas take of a read, one after the other.
    fn by(&self, whole: Cut, choice: &[usize]) -> Cut {
        choice.iter().fold(whole, |cut, number| self.with(&cut, *number).unwrap_or(cut))
    }

    /// True if what a replica gives takes less time than all of the read can take of the array itself: told by
    /// geometry alone, before an object of the array is opened for its price.
    fn may_gain(&self, whole: &Cut, number: usize) -> Option<bool> {
        // What lies over the objects of an array has a price of its own.
        if !self.base.moment.is_settled() {
            return Some(true);
        }
        let seconds = |cut: &Cut, of: fn(&ReadPlan<'_>) -> f64| {
            let parts = self.parts(cut).ok()?;
            let parts: Vec<&Part> = parts.iter().collect();
            self.base.with_pieces(&parts, self.base.priced(), |plan| Ok(of(&plan)))?.ok()
        };
        let cut = Cut { left: Vec::new(), ..self.with(whole, number)? };
        let least = seconds(&cut, |plan| plan.estimate().seconds)?;
        let most = seconds(whole, |plan| plan.estimate_at_most().seconds)?;
        Some(least < most * (1.0 - GAIN_MIN))
    }

    /// The replicas that make the read cheapest, one after the other.
    fn choose(&self, whole: &Cut, among: &[usize]) -> Choice {
        let may_gain = |number: &usize| self.may_gain(whole, *number).unwrap_or(false);
        let among: Vec<usize> = among.iter().copied().filter(may_gain).collect();
        if among.is_empty() {
            return Choice::new();
        }
        let Some(mut seconds) = self.price(whole) else { return Choice::new() };
        let (mut cut, mut choice) = (whole.clone(), Choice::new());
        while choice.len() < TAKEN_MAX {
            let others = among.iter().filter(|number| !choice.contains(number));
            let tried = others.filter_map(|number| {
                let cut = self.with(&cut, *number)?;
                Some((self.price(&cut)?, *number, cut))
            });
            let best = tried.min_by(|a, b| a.0.total_cmp(&b.0));
            match best.filter(|best| best.0 < seconds * (1.0 - GAIN_MIN)) {
                Some(best) => {
                    (seconds, cut) = (best.0, best.2);
                    choice.push(best.1);
                }
                None => break,
            }
        }
        choice
    }
}

impl Redirected {
    /// What replicas take of a read of `selection`; nothing where none makes it cheaper. `array` names it.
    fn find(
        base: &Base<'_>,
        (selection, hope): (&Selection, &Hope),
        (replicas, of_array): (&Replicas, &[Arc<OpenReplica>]),
        array: &str,
    ) -> Option<Self> {
        if hope.of_points
            && let Some(found) = Self::find_points(base, selection, (replicas, of_array), array)
        {
            return Some(found);
        }
        let (kind, axes) = (hope.kind?, &axes_of(selection)?[..]);
        let whole: PlacedBox = axes.iter().map(PlacedAxis::whole).collect();
        let (result_shape, has_changed) = (selection.result_shape(), Cell::new(false));
        let cutting = Cutting { base, replicas: of_array, result_shape, has_changed };
        let whole = Cut { left: vec![whole], ..Cut::default() };
        if let Some((choice, left)) = replicas.remembered(kind)
            && choice.iter().all(|number| base.may_have(&of_array[*number]))
        {
            // What has changed since may leave more.
            let cut = cutting.by(whole.clone(), &choice);
            if eighths(axes, &cut.left) == left {
                return Self::of_cut(&cutting, &cut);
            }
        }
        let choice = Self::decide(&cutting, (&whole, axes), (selection, replicas), array);
        let cut = cutting.by(whole, &choice);
        if !cutting.has_changed.get() {
            replicas.remember(kind, (choice, eighths(axes, &cut.left)));
        }
        Self::of_cut(&cutting, &cut)
    }

    fn of_cut(cutting: &Cutting<'_>, cut: &Cut) -> Option<Self> {
        let parts = (!cut.taken.is_empty()).then(|| cutting.parts(cut).ok()).flatten()?;
        Some(Self { parts })
    }

    /// Which replicas a read takes that takes `axes`.
    fn decide(
        cutting: &Cutting<'_>,
        (whole, axes): (&Cut, &[AxisSelection]),
        (selection, replicas): (&Selection, &Replicas),
        array: &str,
    ) -> Choice {
        let (base, of_array) = (cutting.base, cutting.replicas);
        let meets = |number: &usize| {
            let replica = &of_array[*number];
            let has_runs = replica.record.held.runs().is_some();
            has_runs && replica.may_have(selection) && base.may_have(replica)
        };
        let among: Vec<usize> = (0..of_array.len()).filter(meets).collect();
        let cuts: Vec<(usize, Cut)> = among
            .iter()
            .filter_map(|number| Some((*number, cutting.with(whole, *number)?)))
            .collect();
        match made_for(&cuts, of_array, &cutting.result_shape) {
            Some(number) => vec![number],
            None => {
                let among: Vec<usize> = cuts.iter().map(|(number, _)| *number).collect();
                let key = key_of(axes, &cuts);
                replicas.choice(array, key, || cutting.choose(whole, &among))
            }
        }
    }

    /// Calls `act` with the plan of the read; nothing if a replica is gone.
    pub(super) fn with_plan<T>(
        &self,
        base: &Base<'_>,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let parts: Vec<&Part> = self.parts.iter().collect();
        base.with_pieces(&parts, base.source, act)
    }

    /// The names of the replicas, and the bytes of the result that each gives.
    pub(super) fn taken(&self) -> Vec<(&Arc<OpenReplica>, u64)> {
        let of_replicas = self.parts.iter().filter_map(|part| match &part.of {
            PartOf::Replica(replica) => Some((replica, part.geometry.result_bytes())),
            PartOf::Array | PartOf::File(_) => None,
        });
        of_replicas.collect()
    }

    /// As [`Redirected::taken`], each replica once.
    pub(super) fn taken_by_name(&self) -> Taken {
        let mut named = Taken::new();
        for (replica, bytes) in self.taken() {
            let id = &replica.record.id;
            match named.iter_mut().find(|(known, _)| known == id) {
                Some((_, sum)) => *sum += bytes,
                None => named.push((id.clone(), bytes)),
            }
        }
        named
    }

    /// Counts a read that was made.
    pub(super) fn count(&self) {
        let mut counted: Vec<(&Arc<OpenReplica>, u64)> = Vec::new();
        for (replica, bytes) in self.taken() {
            match counted.iter_mut().find(|(known, _)| Arc::ptr_eq(known, replica)) {
                Some((_, sum)) => *sum += bytes,
                None => counted.push((replica, bytes)),
            }
        }
        counted.into_iter().for_each(|(replica, bytes)| replica.count(bytes));
    }

    /// Does not read the replicas any more of which something could not be read.
    pub(super) fn distrust(&self) {
        for (replica, _) in self.taken() {
            replica.distrust();
        }
    }
}

/// What a selection takes along each axis, if that is all that it is.
fn axes_of(selection: &Selection) -> Option<Cow<'_, [AxisSelection]>> {
    match selection {
        Selection::Orthogonal(axes) => Some(Cow::Borrowed(axes)),
        Selection::Points(points) => match points.coords() {
            [list] => Some(Cow::Owned(vec![AxisSelection::Coords(list.clone())])),
            _ => None,
        },
        Selection::Union(_) => None,
    }
}

/// The replica that has all of a read of such lengths and was made for reads like it, if there is one: that which
/// is expected to make it fastest.
fn made_for(cuts: &[(usize, Cut)], replicas: &[Arc<OpenReplica>], shape: &[u64]) -> Option<usize> {
    let is_alike = |wanted: &[u64]| {
        let is_alike = |(one, other): (&u64, &u64)| {
            let (least, most) = (one.min(other), one.max(other));
            *most <= least.saturating_mul(ALIKE)
        };
        wanted.len() == shape.len() && wanted.iter().zip(shape).all(is_alike)
    };
    let whole = cuts.iter().filter(|(_, cut)| cut.left.is_empty());
    let expected = whole.flat_map(|(number, _)| {
        let expected = replicas[*number].record.expected.iter();
        let alike = expected.filter(|expected| is_alike(&expected.shape));
        alike.map(|expected| (*number, expected.seconds_with, expected.seconds_without))
    });
    let gains = expected.filter(|(_, with, without)| *with < without * (1.0 - GAIN_MIN));
    gains.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(number, ..)| number)
}

/// What reads have in common for which the same replicas are chosen: lengths and steps, and how much of them,
/// in eighths, each replica holds.
fn key_of(axes: &[AxisSelection], cuts: &[(usize, Cut)]) -> Vec<u64> {
    let axis = |axis: &AxisSelection| match axis {
        AxisSelection::Range(range) => [range.len(), range.step().unsigned_abs()],
        AxisSelection::Coords(list) => [list.len() as u64, 0],
    };
    let share = |(number, cut): &(usize, Cut)| [*number as u64, 8 - eighths(axes, &cut.left)];
    axes.iter().flat_map(axis).chain(cuts.iter().flat_map(share)).collect()
}

/// How many whole eighths of a read that takes `axes` are left.
fn eighths(axes: &[AxisSelection], left: &[PlacedBox]) -> u64 {
    let elements = |part: &PlacedBox| part.iter().map(|axis| axis.len() as f64).product::<f64>();
    let whole: f64 = axes.iter().map(|axis| axis.len() as f64).product();
    let left: f64 = left.iter().map(elements).sum();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let eighths = (8.0 * left / whole.max(1.0)).floor() as u64;
    eighths.min(8)
}

/// Replicas that may have something of the array at `path`.
fn may_help<'r>(replicas: Option<&'r Replicas>, path: &str) -> Option<&'r Replicas> {
    replicas.filter(|replicas| replicas.may_have(path))
}

impl Known<'_> {
    /// What replicas do for a read of `selection`.
    ///
    /// # Errors
    /// As [`Known::with_plan`].
    pub(super) fn redirected_read(&self, selection: &Selection) -> Result<Option<RedirectedRead>> {
        let taken = self.redirected(selection, |_, redirected| {
            let taken = redirected.taken();
            let mut replicas: Vec<String> =
                taken.iter().map(|(replica, _)| replica.record.id.clone()).collect();
            replicas.dedup();
            Ok((replicas, taken.iter().map(|(_, bytes)| bytes).sum()))
        })?;
        let Some((replicas, replica_bytes)) = taken else { return Ok(None) };
        let price = self.with_plan(selection, |plan| priced(plan).map(|(_, price)| price))?;
        let predicted_seconds_without = price.seconds;
        Ok(Some(RedirectedRead { replicas, replica_bytes, predicted_seconds_without }))
    }

    /// Where the array lies itself, and what replicas take of a read; nothing where none does.
    ///
    /// # Errors
    /// Those of storage, asked whether the source has changed.
    pub(super) fn redirected<T>(
        &self,
        selection: &Selection,
        act: impl FnOnce(&Base<'_>, &Redirected) -> Result<T>,
    ) -> Result<Option<T>> {
        match self {
            Self::Foreign(variable) => {
                let facts = variable.facts();
                let Some(replicas) = may_help(facts.replicas.as_deref(), &facts.path) else {
                    return Ok(None);
                };
                let Some(state) = variable.state() else { return Ok(None) };
                let of_array = replicas.of_array(&facts.path, state);
                // What cannot help costs a read no look at the file.
                let hope = Hope::of(selection, (replicas, of_array), &facts.path);
                let Some(hope) = hope else { return Ok(None) };
                if !variable.is_as_opened()? {
                    return Ok(None);
                }
                let (source, objects) = match variable.sources() {
                    Sources::One(source) => (Some(source), Objects::File),
                    Sources::Joined(joined) => (None, Objects::Archive(joined)),
                };
                let base = Base {
                    source,
                    priced: source.map(OpenedOnce::new),
                    moment: &Settled,
                    layout: &facts.layout,
                    meaning: 0,
                    cache: ChunkCache::new(&facts.cache, &facts.scope),
                    tuning: &facts.tuning,
                    objects,
                };
                let wanted = (selection, &hope);
                let found = Redirected::find(&base, wanted, (replicas, of_array), &facts.path);
                found.map(|redirected| act(&base, &redirected)).transpose()
            }
            Self::Stored(handle, state, snapshot) => {
                let (store, path) = (&handle.store, handle.path.as_str());
                let Some(replicas) = may_help(store.replicas.as_deref(), path) else {
                    return Ok(None);
                };
                let of_array = replicas.of_array(path, &SourceVersion::default());
                // What is held at a moment may be older than what replicas were made of.
                if store.held.is_some() {
                    return Ok(None);
                }
                let hope = Hope::of(selection, (replicas, of_array), path);
                let Some(hope) = hope else { return Ok(None) };
                let snapshot = snapshot.clone().map_or_else(|| store.snapshot(), Ok)?;
                let state = &handle.closed_by_now(state)?;
                let pinned = handle.pinned_to(state, snapshot);
                let key = state.identity().map_or_else(String::new, |own| hex(&own.array));
                let asks_again = store.options.freshness == Freshness::Read;
                let base = Base {
                    source: Some(&pinned.source),
                    priced: Some(OpenedOnce::new(&pinned.source)),
                    moment: &pinned.moment,
                    layout: &state.layout,
                    meaning: state.meaning,
                    cache: ChunkCache::new(&store.cache, &state.scope),
                    tuning: &store.tuning,
                    objects: Objects::Store(StoredObjects {
                        source: pinned.source,
                        key,
                        asks_again,
                    }),
                };
                let wanted = (selection, &hope);
                let found = Redirected::find(&base, wanted, (replicas, of_array), path);
                found.map(|redirected| act(&base, &redirected)).transpose()
            }
        }
    }
}
