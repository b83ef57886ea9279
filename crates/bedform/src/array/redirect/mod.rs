//! Redirection: reads of an array that replicas make cheaper.
//!
//! It lies beneath [`Array`](super::Array), so that every door has it. The candidates are the array
//! itself and all ways to take parts of the selection from replicas. A replica may hold the whole
//! selection or a part; the rest comes from others or from the array (Tang, *Dynamic data
//! prefetching and layout optimizations*, section 3.2.2). Replicas whose bounds do not meet the
//! selection are excluded first. Then the replica that makes the read cheapest is added, until none
//! makes it cheaper. Parts of the array are priced as they would be run. Parts of replicas are
//! priced by geometry alone: requesting their indexes would cost more than it saves.
//!
//! A choice is shared by all reads of the same lengths of which the replicas hold as much. It is
//! remembered by the kind of the read, which is known before the read is divided: a read that no
//! replica serves costs only the computation of its kind. A read of a kind that a replica was made
//! for is not priced: it was when the replica was made.
//!
//! | module | holds |
//! |---|---|
//! | `base` | the array behind a read, and the parts of a read |
//! | `cutting` | the division of selections, and the choice of replicas |
//! | `kinds` | kinds of reads, as hashes |
//! | `objects` | the objects that replicas were made of, and checks that they are unchanged |
//! | `points` | points that replicas of points hold |

mod base;
mod cutting;
mod kinds;
mod objects;
mod points;

use std::cell::Cell;
use std::sync::Arc;

use bedform_geometry::{AxisSelection, PlacedAxis, PlacedBox, Selection};

use self::base::{BaseArray, OpenedOnce, ReadPart, ReadPartSource};
use self::cutting::{BoxDivision, Choice, DivisionContext, axes_of, eighths, key_of, made_for};
use self::kinds::{ReadKindHash, kind_of};
use self::objects::{ArrayObjects, StoredObjects};
pub(crate) use self::objects::{BoundObjects, Standings};
use self::points::asks_for_points;
use super::known::ArrayAtRead;
use crate::error::Result;
use crate::foreign::facts::Sources;
use crate::replica::{NamedReplicas, OpenReplica};
use crate::run::RedirectedRead;
use crate::run::chunks::ChunkCache;
use crate::run::explain::priced;
use crate::run::plan::ReadPlan;
use crate::source::Settled;

/// A read in parts, some of which replicas supply.
#[derive(Debug)]
pub(super) struct Redirected {
    parts: Vec<ReadPart>,
}

/// The names of the replicas that served a read, and the bytes that each supplied.
pub(super) type ReplicaBytes = Vec<(String, u64)>;

/// The ways in which replicas may help a read.
struct ReplicaProspect {
    /// True if replicas of points may have some of its elements.
    of_points: bool,
    /// The kind of the read; `None` if no other replica has any of it, or none is known to help.
    kind: Option<ReadKindHash>,
}

impl ReplicaProspect {
    /// Decides cheaply how replicas may help a read; `None` if they do not.
    fn of(
        selection: &Selection,
        (replicas, of_array): (&NamedReplicas, &[Arc<OpenReplica>]),
        array: &str,
    ) -> Option<Self> {
        let of_points = asks_for_points(selection, of_array);
        let kind = kind_of(array, selection, of_array).filter(|kind| !replicas.are_no_help(*kind));
        (of_points || kind.is_some()).then_some(Self { of_points, kind })
    }
}

impl Redirected {
    /// Finds the parts of a read of `selection` that replicas supply; `None` if they do not make it
    /// cheaper. `array` is its path.
    fn find(
        base: &BaseArray<'_>,
        (selection, hope): (&Selection, &ReplicaProspect),
        (replicas, of_array): (&NamedReplicas, &[Arc<OpenReplica>]),
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
        let cutting = DivisionContext { base, replicas: of_array, result_shape, has_changed };
        let whole = BoxDivision { left: vec![whole], ..BoxDivision::default() };
        if let Some((choice, left)) = replicas.remembered(kind)
            && choice.iter().all(|number| base.may_have(&of_array[*number]))
        {
            // Objects that have changed since may leave more to the array.
            let cut = cutting.by(whole.clone(), &choice);
            if eighths(axes, &cut.left) == left {
                return Self::of_cut(&cutting, &cut);
            }
        }
        let (choice, cut) = Self::decide(&cutting, (&whole, axes), (selection, replicas), array);
        if !cutting.has_changed.get() {
            replicas.remember(kind, (choice, eighths(axes, &cut.left)));
        }
        Self::of_cut(&cutting, &cut)
    }

    fn of_cut(cutting: &DivisionContext<'_>, cut: &BoxDivision) -> Option<Self> {
        let parts = (!cut.taken.is_empty()).then(|| cutting.parts(cut).ok()).flatten()?;
        Some(Self { parts })
    }

    /// Chooses replicas for a read of `axes`, and divides the read among them.
    fn decide(
        cutting: &DivisionContext<'_>,
        (whole, axes): (&BoxDivision, &[AxisSelection]),
        (selection, replicas): (&Selection, &NamedReplicas),
        array: &str,
    ) -> (Choice, BoxDivision) {
        let (base, of_array) = (cutting.base, cutting.replicas);
        let meets = |number: &usize| {
            let replica = &of_array[*number];
            let has_runs = replica.record.held.runs().is_some();
            has_runs && replica.may_have(selection) && base.may_have(replica)
        };
        let among: Vec<usize> = (0..of_array.len()).filter(meets).collect();
        let mut cuts: Vec<(usize, BoxDivision)> = among
            .iter()
            .filter_map(|number| Some((*number, cutting.with(whole, *number)?)))
            .collect();
        let choice = match made_for(&cuts, of_array, &cutting.result_shape) {
            Some(number) => vec![number],
            None => {
                let key = key_of(axes, &cuts);
                replicas.choice(array, key, || cutting.choose(whole, &cuts))
            }
        };
        let known = cuts.iter().position(|(number, _)| choice == [*number]);
        let cut = match known {
            Some(at) => cuts.swap_remove(at).1,
            None => cutting.by(whole.clone(), &choice),
        };
        (choice, cut)
    }

    /// Calls `act` with the plan of the read; `None` if a replica is gone.
    pub(super) fn with_plan<T>(
        &self,
        base: &BaseArray<'_>,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let parts: Vec<&ReadPart> = self.parts.iter().collect();
        base.with_pieces(&parts, base.source, act)
    }

    /// The replicas, and the bytes of the result that each supplies.
    fn taken(&self) -> Vec<(&Arc<OpenReplica>, u64)> {
        let mut taken: Vec<(&Arc<OpenReplica>, u64)> = Vec::new();
        for part in &self.parts {
            let ReadPartSource::Replica(replica) = &part.of else { continue };
            let bytes = part.geometry.result_bytes();
            match taken.iter_mut().find(|(known, _)| Arc::ptr_eq(known, replica)) {
                Some((_, sum)) => *sum += bytes,
                None => taken.push((replica, bytes)),
            }
        }
        taken
    }

    /// As [`Redirected::taken`], with the names of the replicas.
    pub(super) fn taken_by_name(&self) -> ReplicaBytes {
        let named = |(replica, bytes): (&Arc<OpenReplica>, u64)| (replica.record.id.clone(), bytes);
        self.taken().into_iter().map(named).collect()
    }

    /// Counts a read that was made.
    pub(super) fn count(&self) {
        self.taken().into_iter().for_each(|(replica, bytes)| replica.count(bytes));
    }

    /// Stops using the replicas of this read: one of them could not be read.
    pub(super) fn distrust(&self) {
        for (replica, _) in self.taken() {
            replica.distrust();
        }
    }
}

impl ArrayAtRead<'_> {
    /// Describes the use of replicas in a read of `selection`.
    ///
    /// # Errors
    /// As [`ArrayAtRead::with_plan`].
    pub(super) fn redirected_read(&self, selection: &Selection) -> Result<Option<RedirectedRead>> {
        let taken = self.redirected(selection, |_, redirected| {
            Ok(redirected.taken_by_name().into_iter().unzip::<_, _, Vec<String>, Vec<u64>>())
        })?;
        let Some((replicas, bytes)) = taken else { return Ok(None) };
        let replica_bytes = bytes.into_iter().sum();
        let price = self.with_plan(selection, |plan| priced(plan).map(|(_, price)| price))?;
        let predicted_seconds_without = price.seconds;
        Ok(Some(RedirectedRead { replicas, replica_bytes, predicted_seconds_without }))
    }

    /// Calls `act` with the array and the parts that replicas supply to a read; `None` if they
    /// supply none.
    ///
    /// # Errors
    /// Those of storage, while checking the source for changes.
    pub(super) fn redirected<T>(
        &self,
        selection: &Selection,
        act: impl FnOnce(&BaseArray<'_>, &Redirected) -> Result<T>,
    ) -> Result<Option<T>> {
        match self {
            Self::Foreign(variable) => {
                let facts = variable.facts();
                let objects = ArrayObjects::of_variable(&***variable);
                let (Some(replicas), Some(objects)) = (&facts.replicas, objects) else {
                    return Ok(None);
                };
                let replicas = &*replicas.now();
                let of_array = replicas.of_array(&facts.path);
                // A read that no replica can help does not pay for a look at the file.
                let hope = ReplicaProspect::of(selection, (replicas, of_array), &facts.path);
                let Some(hope) = hope else { return Ok(None) };
                if !variable.is_as_opened(false)? {
                    return Ok(None);
                }
                let source = match variable.sources() {
                    Sources::One(source) => Some(source),
                    Sources::Joined(_) => None,
                };
                let base = BaseArray {
                    source,
                    priced: source.map(OpenedOnce::new),
                    moment: &Settled,
                    layout: &facts.layout,
                    meaning: 0,
                    form: &facts.meaning,
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
                // The moment of a snapshot may be older than the objects that replicas were made
                // of.
                let replicas = store.replicas.as_ref().filter(|_| store.held.is_none());
                let Some(replicas) = replicas else { return Ok(None) };
                let replicas = &*replicas.now();
                let of_array = replicas.of_array(path);
                let hope = ReplicaProspect::of(selection, (replicas, of_array), path);
                let Some(hope) = hope else { return Ok(None) };
                let snapshot = snapshot.clone().map_or_else(|| store.snapshot(), Ok)?;
                let state = &handle.closed_by_now(state)?;
                let pinned = handle.pinned_to(state, snapshot);
                let base = BaseArray {
                    source: Some(&pinned.source),
                    priced: Some(OpenedOnce::new(&pinned.source)),
                    moment: &pinned.moment,
                    layout: &state.layout,
                    meaning: state.meaning,
                    form: &state.form,
                    cache: ChunkCache::new(&store.cache, &state.scope),
                    tuning: &store.tuning,
                    objects: ArrayObjects::Store(StoredObjects::new(pinned.clone(), state)),
                };
                let wanted = (selection, &hope);
                let found = Redirected::find(&base, wanted, (replicas, of_array), path);
                found.map(|redirected| act(&base, &redirected)).transpose()
            }
        }
    }
}
