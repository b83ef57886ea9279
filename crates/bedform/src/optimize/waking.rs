//! Compares resting replicas with their source, and wakes them.
//!
//! Copied, moved or recalled files keep their size and time of change, and so do rewritten files
//! whose time somebody put back. Only the elements tell the two cases apart, so waking reads every
//! element of a resting replica from both sides. If they are equal, the replica's record gets the
//! files' present versions. If they differ, the record loses the objects of the source with
//! differences, and the replica serves the rest.

use std::collections::{BTreeSet, HashMap};

use bedform_format::ObjectPath;
use bedform_format::chunk_map::SourceVersion;
use bedform_geometry::{AxisSelection, Points, Region, Selection};

use super::building::{NamedCatalogue, directory_of, locked};
use super::conditions::{ReplicaState, open_own, places_in, read_into};
use super::{OptimizeOptions, OptimizedSource, SourcePlace};
use crate::array::{Array, BoundObjects};
use crate::convert::{ConvertSource, read_both};
use crate::error::{Error, ErrorKind, Result};
use crate::options::ProgressCallback;
use crate::replica::{
    CATALOGUE, PLACES, Replica, ReplicaElements, ReplicaObject, SourceObject, Standing,
    fingerprint_of,
};
use crate::sidecar::Sidecar;
use crate::store::Store;
use crate::threads::workers::check_cancelled;

/// Points that are compared at a time.
const POINTS_AT_ONCE: usize = 1 << 20;

/// Compares the resting replicas of the source at `place` with it, and returns the names of those
/// that are read again. `progress` receives the decoded bytes compared so far and in all.
///
/// # Errors
/// `Conflict` if another process makes replicas of the source; `Interrupted`; errors of opening and
/// reading the source.
pub fn wake(
    place: &SourcePlace,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
) -> Result<Vec<String>> {
    Ok(compare_resting(place, options, progress)?.woken)
}

/// Names of resting replicas that [`compare_resting`] compared, and of those that are read again.
#[derive(Debug, Default)]
pub(super) struct RestingCompared {
    pub(super) compared: Vec<String>,
    pub(super) woken: Vec<String>,
}

/// Compares and wakes replicas as [`wake`] does.
///
/// # Errors
/// Those of [`wake`].
pub(super) fn compare_resting(
    place: &SourcePlace,
    options: &OptimizeOptions,
    progress: ProgressCallback<'_>,
) -> Result<RestingCompared> {
    let rests = |source: &OptimizedSource| -> Vec<Replica> {
        let resting = source.replicas.iter().filter(|one| one.1.state == ReplicaState::Resting);
        resting.map(|(replica, _)| replica.clone()).collect()
    };
    if rests(&OptimizedSource::open(place, options)?).is_empty() {
        return Ok(RestingCompared::default());
    }
    let _lock = locked(place, &directory_of(place, options.sidecars.as_deref())?)?;
    // Another process may have woken them.
    let source = OptimizedSource::open(place, options)?;
    let (resting, mut done) = (rests(&source), RestingCompared::default());
    let Some(sidecar) = source.sidecar.as_ref().filter(|_| !resting.is_empty()) else {
        return Ok(done);
    };
    let all = resting.iter().map(|replica| replica.raw_bytes).sum();
    let mut before = 0;
    for replica in &resting {
        let begun = before;
        let telling = |bytes: u64| progress(begun + bytes.min(replica.raw_bytes), all);
        let comparison = ReplicaComparison::new(&source, sidecar, place, replica, &telling)?;
        before += replica.raw_bytes;
        let compared = match comparison.run(options.memory_bytes) {
            // A writer is active: the replica rests until the next attempt.
            Err(error) if error.kind() == ErrorKind::Conflict => continue,
            compared => compared?,
        };
        if !compared.of.objects.is_empty() {
            done.woken.push(compared.id.clone());
        }
        done.compared.push(compared.id.clone());
        let catalogue = NamedCatalogue { sidecar, place };
        catalogue.change(|replicas| {
            let known = replicas.iter_mut().find(|one| one.id == compared.id);
            known.into_iter().for_each(|known| known.clone_from(&compared));
        })?;
        sidecar.open_to_readers(&[CATALOGUE]);
    }
    Ok(done)
}

/// A resting replica, opened with its source for the comparison.
struct ReplicaComparison<'a> {
    replica: &'a Replica,
    /// The part of the source that the replica holds.
    part: ConvertSource,
    whole: Array,
    own: Store,
    copy: Array,
    /// Objects of the source that are unchanged, or possibly unchanged, with their present
    /// versions.
    objects: Vec<SourceObject>,
    telling: &'a dyn Fn(u64),
}

impl<'a> ReplicaComparison<'a> {
    fn new(
        source: &OptimizedSource,
        sidecar: &Sidecar,
        place: &SourcePlace,
        replica: &'a Replica,
        telling: &'a dyn Fn(u64),
    ) -> Result<Self> {
        let path = ObjectPath::parse(&replica.array)?;
        let (whole, own) = (source.store.array(&path)?, open_own(sidecar, replica)?);
        let copy = own.array(&path)?;
        let part = ConvertSource::store(place.shown(), &source.store)?;
        let part = part.part(&replica.array, replica.held.clone());
        let objects = Vec::new();
        Ok(Self { replica, part, whole, own, copy, objects, telling })
    }

    /// Compares all elements, and returns the replica's record with the present versions, without
    /// the objects of the source in which elements differ.
    fn run(mut self, memory_bytes: u64) -> Result<Replica> {
        let (replica, places) = (self.replica, self.places()?);
        let selection = match &places {
            Some(places) => Selection::Points(Points::at_places(places, &self.whole.shape()?)?),
            None => replica.held.outer(&Region::whole(replica.held.shape())?),
        };
        let own = self.own_objects()?;
        let versions = self.whole.object_versions(&selection)?.unwrap_or_default();
        let recorded = replica.of.objects.iter().map(|then| (&then.at, &then.version));
        let recorded: HashMap<&Vec<u64>, &Option<SourceVersion>> = recorded.collect();
        let may_be_same = |now: &SourceObject| {
            let then = recorded.get(&now.at);
            then.is_some_and(|then| {
                Standing::of(then.as_ref(), now.version.as_ref()) != Standing::Changed
            })
        };
        self.objects = versions.into_iter().filter(may_be_same).collect();
        let mut differing = BTreeSet::new();
        let BoundObjects { meaning, mut of } =
            self.whole.bound(&selection, places.is_some(), || {
                differing = match &places {
                    Some(places) => self.compare_points(places)?,
                    None => self.compare_runs(memory_bytes)?,
                };
                Ok(())
            })?;
        let compared = self.objects.iter().map(|object| (&object.at, &object.version));
        let compared: HashMap<&Vec<u64>, &Option<SourceVersion>> = compared.collect();
        of.objects.retain(|object| {
            compared.get(&object.at) == Some(&&object.version) && !differing.contains(&object.at)
        });
        if self.own_objects()? != own || self.copy.document()? != replica.document {
            let text = format!("{}: the replica is being changed: try again", replica.id);
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let (objects, of_places) = own;
        let mut woken = Replica { meaning, of, objects, ..replica.clone() };
        if let Some(places) = &mut woken.places {
            places.objects = of_places;
        }
        Ok(woken)
    }

    /// Returns the present versions of the replica's own objects, and of those of its places.
    fn own_objects(&self) -> Result<(Vec<ReplicaObject>, Vec<ReplicaObject>)> {
        let of_places = match &self.replica.places {
            Some(_) => self.own.array(&ObjectPath::parse(PLACES)?)?.own_objects()?,
            None => Vec::new(),
        };
        Ok((self.copy.own_objects()?, of_places))
    }

    /// Returns the places of the elements of a replica of points; `None` for other replicas.
    fn places(&self) -> Result<Option<Vec<u64>>> {
        let Some(of) = &self.replica.places else { return Ok(None) };
        let damaged = || {
            let text = "its places are not those of the catalogue: delete the replica";
            Error::corrupt(self.replica.id.clone(), text)
        };
        let ReplicaElements::Points { count, .. } = self.replica.held else {
            return Err(damaged());
        };
        let places = places_in(&self.own, count)?;
        (fingerprint_of(&places) == of.fingerprint).then_some(Some(places)).ok_or_else(damaged)
    }

    /// Returns the coordinates of the objects with differences: of all objects, if one point
    /// differs.
    fn compare_points(&self, places: &[u64]) -> Result<BTreeSet<Vec<u64>>> {
        let shape = self.whole.shape()?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let (mut done, mut bytes) = (0_u64, 0_u64);
        for places in places.chunks(POINTS_AT_ONCE) {
            check_cancelled("comparing replicas was stopped")?;
            let own = Selection::from(&Region::new([done], [places.len() as u64])?);
            let points = Selection::Points(Points::at_places(places, &shape)?);
            read_into(&self.whole, &points, &mut left)?;
            read_into(&self.copy, &own, &mut right)?;
            if left != right {
                return Ok(self.objects.iter().map(|object| object.at.clone()).collect());
            }
            (done, bytes) = (done + places.len() as u64, bytes + left.len() as u64);
            (self.telling)(bytes);
        }
        Ok(BTreeSet::new())
    }

    /// Returns the coordinates of the objects with differences.
    fn compare_runs(&self, memory_bytes: u64) -> Result<BTreeSet<Vec<u64>>> {
        let mut differing = BTreeSet::new();
        let (mut regions, mut bytes) = (None, 0_u64);
        read_both(
            &self.part,
            &self.replica.array,
            &self.copy,
            memory_bytes,
            |region, left, right| {
                bytes += left.len() as u64;
                (self.telling)(bytes);
                if left == right {
                    return Ok(());
                }
                let regions = match &mut regions {
                    Some(regions) => regions,
                    none => none.insert(self.whole.regions_of(&self.objects)?),
                };
                let count = region.len().unwrap_or(0).max(1);
                let item = left.len() / usize::try_from(count).unwrap_or(usize::MAX).max(1);
                let positions = positions_in(&self.replica.held, region);
                for (object, of_object) in self.objects.iter().zip(regions.iter()) {
                    let inside = ranges_in(&positions, of_object);
                    let lengths: Vec<usize> = positions.iter().map(Vec::len).collect();
                    if left.len() != right.len() || differs((left, right), &lengths, &inside, item)
                    {
                        differing.insert(object.at.clone());
                    }
                }
                Ok(())
            },
        )?;
        Ok(differing)
    }
}

/// Returns the positions of the array along each axis of a region of a replica, ascending.
fn positions_in(held: &ReplicaElements, region: &Region) -> Vec<Vec<u64>> {
    let Selection::Orthogonal(axes) = held.outer(region) else { return Vec::new() };
    let positions = |axis: &AxisSelection| match axis {
        AxisSelection::Range(range) => range.iter().collect(),
        AxisSelection::Coords(list) => list.clone(),
    };
    axes.iter().map(positions).collect()
}

/// Returns the range of the sorted positions along each axis that lies in a region, as indexes.
fn ranges_in(positions: &[Vec<u64>], region: &Region) -> Vec<(usize, usize)> {
    let range = |(axis, positions): (usize, &Vec<u64>)| {
        let below = |bound: u64| positions.partition_point(|position| *position < bound);
        (below(region.start()[axis]), below(region.end(axis)))
    };
    positions.iter().enumerate().map(range).collect()
}

/// True if two boxes of elements in C order, of `lengths` and `item` bytes per element, differ
/// within `ranges`.
fn differs(
    (left, right): (&[u8], &[u8]),
    lengths: &[usize],
    ranges: &[(usize, usize)],
    item: usize,
) -> bool {
    let (Some((_, inner)), Some(((first, end), rest))) =
        (lengths.split_first(), ranges.split_first())
    else {
        return left != right;
    };
    let step = inner.iter().product::<usize>() * item;
    (*first..*end).any(|at| {
        let bytes = at * step..(at + 1) * step;
        differs((&left[bytes.clone()], &right[bytes]), inner, rest, item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_in_just_the_boxes_that_have_it() {
        let (lengths, item) = ([4, 5, 3], 2);
        let left: Vec<u8> = (0..120).collect();
        for at in 0..60 {
            let mut right = left.clone();
            right[at * 2 + 1] ^= 1;
            let place = [at / 15, at / 3 % 5, at % 3];
            for ranges in
                [[(0, 4), (0, 5), (0, 3)], [(1, 3), (2, 5), (0, 2)], [(2, 2), (0, 5), (0, 3)]]
            {
                let has =
                    place.iter().zip(&ranges).all(|(at, (low, high))| (low..high).contains(&at));
                assert_eq!(differs((&left, &right), &lengths, &ranges, item), has, "{place:?}");
            }
        }
    }

    #[test]
    fn positions_of_an_object_are_found_among_runs() {
        let held =
            ReplicaElements::of_runs(vec![vec![(2, 3), (10, 2)], vec![(4, 4)]], &[20, 8]).unwrap();
        let positions = positions_in(&held, &Region::new([1, 0], [4, 2]).unwrap());
        assert_eq!(positions, [vec![3, 4, 10, 11], vec![4, 5]]);
        let object = Region::new([4, 0], [7, 5]).unwrap();
        assert_eq!(ranges_in(&positions, &object), [(1, 3), (0, 1)]);
    }
}
