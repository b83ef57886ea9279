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

use self::base::{BaseArray, ReadPart, ReadPartSource};
use self::cutting::{BoxDivision, Choice, DivisionContext, axes_of, eighths, key_of, made_for};
use self::kinds::{ReadKindHash, kind_of};
use self::objects::{ArrayObjects, StoredObjects};
pub(crate) use self::objects::{BoundObjects, PinnedObjects, Standings};
use self::points::asks_for_points;
use super::known::ArrayAtRead;
use crate::error::Result;
use crate::replica::{NamedReplicas, OpenReplica, Replicas};
use crate::run::RedirectedRead;
use crate::run::explain::priced;
use crate::run::plan::ReadPlan;

/// A read in parts, some of which replicas supply.
#[derive(Debug)]
pub(super) struct Redirected {
    parts: Vec<ReadPart>,
}

/// The names of the replicas that served a read, and the bytes that each supplied.
pub(super) type ReplicaBytes = Vec<(String, u64)>;

/// The replicas of one array, numbered, and the choices among them.
#[derive(Clone, Copy)]
struct ArrayReplicas<'a> {
    named: &'a NamedReplicas,
    of_array: &'a [Arc<OpenReplica>],
    /// The path of the array.
    array: &'a str,
}

impl<'a> ArrayReplicas<'a> {
    fn new(named: &'a NamedReplicas, array: &'a str) -> Self {
        Self { named, of_array: named.of_array(array), array }
    }

    /// As [`NamedReplicas::choice`].
    fn choice(self, key: Vec<u64>, choose: impl FnOnce() -> Choice) -> Choice {
        self.named.choice(self.array, key, choose)
    }
}

/// The ways in which replicas may help a read.
struct ReplicaProspect {
    /// True if replicas of points may have some of its elements.
    of_points: bool,
    /// The kind of the read; `None` if no other replica has any of it, or none is known to help.
    kind: Option<ReadKindHash>,
}

impl ReplicaProspect {
    /// Decides cheaply how replicas may help a read; `None` if they do not.
    fn of(selection: &Selection, replicas: ArrayReplicas<'_>) -> Option<Self> {
        let ArrayReplicas { named, of_array, array } = replicas;
        let of_points = asks_for_points(selection, of_array);
        let kind = kind_of(array, selection, of_array).filter(|kind| !named.are_no_help(*kind));
        (of_points || kind.is_some()).then_some(Self { of_points, kind })
    }
}

impl Redirected {
    /// Finds the parts of a read of `selection` that replicas supply; `None` if they do not make it
    /// cheaper.
    fn find(
        base: &BaseArray<'_>,
        selection: &Selection,
        prospect: &ReplicaProspect,
        replicas: ArrayReplicas<'_>,
    ) -> Option<Self> {
        if prospect.of_points
            && let Some(found) = Self::find_points(base, selection, replicas)
        {
            return Some(found);
        }
        let (kind, axes) = (prospect.kind?, &axes_of(selection)?[..]);
        let whole: PlacedBox = axes.iter().map(PlacedAxis::whole).collect();
        let (result_shape, has_changed) = (selection.result_shape(), Cell::new(false));
        let cutting = DivisionContext { base, replicas, result_shape, has_changed };
        let whole = BoxDivision { left: vec![whole], ..BoxDivision::default() };
        if let Some((choice, left)) = replicas.named.remembered(kind)
            && choice.iter().all(|number| base.may_have(&replicas.of_array[*number]))
        {
            // Objects that have changed since may leave more to the array.
            let cut = cutting.by(whole.clone(), &choice);
            if eighths(axes, &cut.left) == left {
                return Self::of_cut(&cutting, &cut);
            }
        }
        let (choice, cut) = Self::decide(&cutting, selection, &whole, axes);
        if !cutting.has_changed.get() {
            replicas.named.remember(kind, (choice, eighths(axes, &cut.left)));
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
        selection: &Selection,
        whole: &BoxDivision,
        axes: &[AxisSelection],
    ) -> (Choice, BoxDivision) {
        let (base, of_array) = (cutting.base, cutting.replicas.of_array);
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
                cutting.replicas.choice(key, || cutting.choose(whole, &cuts))
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
        base.with_pieces(&parts, base.own, act)
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

    /// True if replicas of the array are named now.
    pub(super) fn has_replicas(&self) -> bool {
        self.replicas().is_some_and(|replicas| !replicas.now().of_array(self.path()).is_empty())
    }

    /// The replicas that may serve reads; `None` where there can be none.
    fn replicas(&self) -> Option<&Replicas> {
        let (replicas, may_have) = match self {
            Self::Foreign(variable) => {
                let has_objects = ArrayObjects::of_variable(&***variable).is_some();
                (&variable.facts().replicas, has_objects)
            }
            // The moment of a snapshot may be older than the objects that replicas were made of.
            Self::Stored(handle, ..) => (&handle.store.replicas, handle.store.held.is_none()),
        };
        replicas.as_deref().filter(|_| may_have)
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
        let Some(named) = self.replicas().map(Replicas::now) else { return Ok(None) };
        let replicas = ArrayReplicas::new(&named, self.path());
        // A read that no replica can help does not pay for a look at the array.
        let prospect = ReplicaProspect::of(selection, replicas);
        let Some(prospect) = prospect else { return Ok(None) };
        let find = |objects: ArrayObjects<'_>| {
            let base = BaseArray::new(objects);
            let found = Redirected::find(&base, selection, &prospect, replicas);
            found.map(|redirected| act(&base, &redirected)).transpose()
        };
        match self {
            Self::Foreign(variable) => match ArrayObjects::of_variable(&***variable) {
                Some(objects) if variable.is_as_opened(false)? => find(objects),
                _ => Ok(None),
            },
            Self::Stored(handle, state, snapshot) => {
                let (state, snapshot) = handle.state_to_read(state, snapshot.clone())?;
                let pinned = handle.pinned_to(&state, snapshot);
                find(ArrayObjects::Store(StoredObjects::new(&pinned)))
            }
        }
    }
}
