//! Points that replicas hold: each point of a read is looked up in the places that a replica lists.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::sync::Arc;

use bedform_geometry::{AxisRange, AxisSelection, PlacedAxis, Points, Selection, bounds_of};

use super::base::{BaseArray, CELLS_MAX, ReadPart, ReadPartSource, of_files};
use super::cutting::GAIN_MIN;
use super::objects::ArrayObjects;
use super::{ArrayReplicas, Redirected};
use crate::error::Result;
use crate::plan::geometry::Geometry;
use crate::plan::price::Cost;
use crate::replica::{OpenReplica, ReplicaElements, SourceObject, fingerprint_of};
use crate::run::plan::ReadPlan;
use crate::source::StoredLayout;

/// The number of points that are looked up first: if none is found, few of the others would be.
const SAMPLED: usize = 64;
/// The most consecutive places of a stretch whose distances are examined, and the most stretches.
const WINDOW: usize = 256;
const WINDOWS: usize = 64;
/// The number of stretches of which each place is looked up in replicas.
const WINDOWS_LOOKED_FOR: usize = 8;
/// The most replicas that one read uses.
const TAKEN_MAX: usize = 4;
/// The first number in the keys of choices for points: no box is so long.
const KEY: u64 = u64::MAX;

/// Points of a read: their places in the C order of the array, and their indexes in the result,
/// ascending.
#[derive(Default)]
struct RequestedPoints<'a> {
    places: Cow<'a, [u64]>,
    /// The indexes in the result; `None` if each point has its own number.
    results: Option<Vec<u64>>,
}

/// The division of points: parts from replicas, by their indexes, as places in them; and the rest.
struct PointDivision<'a> {
    taken: Vec<(usize, PlacedAxis)>,
    left: RequestedPoints<'a>,
}

/// The places of a selection's points, if it is one of points.
fn places_of<'s>(selection: &'s Selection, shape: &[u64]) -> Option<Cow<'s, [u64]>> {
    match selection {
        Selection::Orthogonal(axes) => match axes.as_slice() {
            [AxisSelection::Coords(list)] => Some(Cow::Borrowed(list)),
            _ => None,
        },
        Selection::Points(points) => match points.coords() {
            [list] => Some(Cow::Borrowed(list)),
            [] => None,
            _ => Some(Cow::Owned(points.places(shape))),
        },
        Selection::Union(_) => None,
    }
}

/// True if the selection is of points and some replica holds points.
pub(super) fn asks_for_points(selection: &Selection, replicas: &[Arc<OpenReplica>]) -> bool {
    let is_listed = match selection {
        Selection::Orthogonal(axes) => matches!(axes.as_slice(), [AxisSelection::Coords(_)]),
        Selection::Points(_) => true,
        Selection::Union(_) => false,
    };
    let has_points = |replica: &Arc<OpenReplica>| {
        matches!(replica.record.held, ReplicaElements::Points { .. }) && !replica.is_broken()
    };
    is_listed && replicas.iter().any(has_points)
}

impl Redirected {
    /// As [`Redirected::find`], for replicas of points.
    pub(super) fn find_points(
        base: &BaseArray<'_>,
        selection: &Selection,
        replicas: ArrayReplicas<'_>,
    ) -> Option<Self> {
        let of_array = replicas.of_array;
        let shape = base.objects.layout().grid.array_shape();
        let places = places_of(selection, shape)?;
        let (low, high) = bounds_of(&places)?;
        let meets = |number: &usize| {
            let record = &of_array[*number].record;
            let meets = match record.held {
                ReplicaElements::Points { first, last, .. } => first <= high && low <= last,
                ReplicaElements::Runs(_) => false,
            };
            meets && !of_array[*number].is_broken()
        };
        let mut among: Vec<usize> = (0..of_array.len()).filter(meets).collect();
        // Replicas with the most points first: a point that is found in one is looked up in no
        // other.
        among.sort_by_key(|number| std::cmp::Reverse(of_array[*number].record.held.shape()));
        let count = places.len() as u64;
        let mut cuts = vec![PointDivision {
            taken: Vec::new(),
            left: RequestedPoints { places, results: None },
        }];
        let whole = same_cut(&cuts[0], &among, of_array);
        let whole = whole.or_else(|| smallest_cut(&cuts[0], &among, of_array));
        if among.is_empty() || whole.is_none() && !base.would_gain(&cuts[0].left, &among, of_array)
        {
            return None;
        }
        // Checking that they are of the array as it is may take a look at many objects.
        among.retain(|number| base.has_all_of(&of_array[*number]));
        cuts.extend(whole.filter(|cut| cut.taken.iter().all(|(at, _)| among.contains(at))));
        while cuts.len() <= TAKEN_MAX && !cuts.last()?.left.places.is_empty() {
            let next = best_cut(cuts.last()?, &among, of_array);
            let Some(next) = next else { break };
            cuts.push(next);
        }
        if cuts.len() == 1 {
            return None;
        }
        let shares = cuts.iter().map(|cut| 8 * cut.left.places.len() as u64 / count.max(1));
        let used = cuts.last()?.taken.iter().map(|(number, _)| *number as u64);
        let key: Vec<u64> =
            [KEY, u64::from(count.ilog2())].into_iter().chain(shares).chain(used).collect();
        let choice = replicas.choice(key, || {
            if let Some(at) = made_for(&cuts, of_array, count) {
                return vec![at];
            }
            let price = |cut: &PointDivision<'_>| -> Option<f64> {
                let own = base.price_places(&cut.left.places)?;
                let taken = cut.taken.iter().map(|(number, placed)| {
                    let part = std::slice::from_ref(placed);
                    let part = ReadPart::of_replica(&of_array[*number], part, &[count]).ok()?;
                    base.estimate(&part)
                });
                taken.sum::<Option<f64>>().map(|taken| own + taken)
            };
            let Some(without) = price(&cuts[0]) else { return Vec::new() };
            let priced = cuts.iter().enumerate().skip(1);
            let priced = priced.filter_map(|(at, cut)| Some((price(cut)?, at)));
            let best = priced.min_by(|a, b| a.0.total_cmp(&b.0));
            let best = best.filter(|best| best.0 < without * (1.0 - GAIN_MIN));
            best.map(|best| best.1).into_iter().collect()
        });
        let chosen = cuts.get(*choice.first()?)?;
        Some(Self { parts: parts_of(base, of_array, chosen, count).ok()? })
    }
}

/// The replica with exactly these points in this order: no other's places have to be read.
fn same_cut<'a>(
    whole: &PointDivision<'a>,
    among: &[usize],
    replicas: &[Arc<OpenReplica>],
) -> Option<PointDivision<'a>> {
    let places = &whole.left.places;
    let wanted = ReplicaElements::points(places)?;
    let fingerprint = LazyCell::new(|| fingerprint_of(places));
    let is_same = |number: &&usize| {
        let replica = &replicas[**number];
        let has_fingerprint =
            || replica.record.places.as_ref().is_some_and(|of| of.fingerprint == *fingerprint);
        replica.record.held == wanted && has_fingerprint()
    };
    let number = *among.iter().find(is_same)?;
    let all = AxisSelection::Range(AxisRange::whole(places.len() as u64));
    let left = RequestedPoints { results: Some(Vec::new()), ..RequestedPoints::default() };
    Some(PointDivision { taken: vec![(number, PlacedAxis::whole(&all))], left })
}

/// The smallest of the replicas that have all of the points: places of larger ones are not read.
/// `among` is sorted by descending number of points.
fn smallest_cut<'a>(
    whole: &PointDivision<'a>,
    among: &[usize],
    replicas: &[Arc<OpenReplica>],
) -> Option<PointDivision<'a>> {
    let places = &whole.left.places;
    let is_enough = |number: &&usize| {
        let count: u64 = replicas[**number].record.held.shape().iter().product();
        count >= places.len() as u64
    };
    among.iter().rev().filter(is_enough).find_map(|number| {
        let held = replicas[*number].places()?;
        let is_held = |place: &u64| held.binary_search(place).is_ok();
        if !whole.left.sample().all(is_held) {
            return None;
        }
        let (taken, left) = whole.left.split(held);
        left.places.is_empty().then_some(PointDivision { taken: vec![(*number, taken?)], left })
    })
}

/// The division without a rest, if its replicas were made for as many points.
fn made_for(
    cuts: &[PointDivision<'_>],
    replicas: &[Arc<OpenReplica>],
    count: u64,
) -> Option<usize> {
    let (at, last) = cuts.iter().enumerate().next_back()?;
    let is_made = |(number, _): &(usize, PlacedAxis)| {
        let expected = &replicas[*number].record.expected;
        expected.iter().any(|one| one.shape == [count] && one.seconds_with < one.seconds_without)
    };
    (last.left.places.is_empty() && last.taken.iter().all(is_made)).then_some(at)
}

impl BaseArray<'_> {
    /// True if a replica may be of the array as it is, and none of its source objects has changed.
    fn has_all_of(&self, replica: &OpenReplica) -> bool {
        let of = &replica.record.of.objects;
        let is_still = |object: &SourceObject| self.is_still(replica, &object.at).unwrap_or(false);
        self.may_have(replica) && of.len() as u64 <= CELLS_MAX && of.iter().all(is_still)
    }

    /// False if reading the points that no replica has takes as long as reading all points: the
    /// array's own reads mostly fetch the bytes between points. Decided by a sample, before all
    /// places are looked up.
    fn would_gain(
        &self,
        wanted: &RequestedPoints<'_>,
        among: &[usize],
        replicas: &[Arc<OpenReplica>],
    ) -> bool {
        let places = &*wanted.places;
        let held: Vec<&[u64]> =
            among.iter().filter_map(|number| replicas[*number].places()).collect();
        let is_held = |place: &u64| held.iter().any(|held| held.binary_search(place).is_ok());
        if !wanted.sample().any(is_held) {
            return false;
        }
        let windows = || {
            let step = (places.len() / WINDOWS_LOOKED_FOR).max(WINDOW);
            places.chunks(step).flat_map(|window| &window[..window.len().min(WINDOW)])
        };
        // The start of the next search in each replica.
        let mut near = vec![0; held.len()];
        let mut is_left = |place: &&u64| {
            held.iter().zip(&mut near).all(|(held, near)| match find_from(held, **place, *near) {
                Ok(number) => {
                    *near = number;
                    false
                }
                Err(number) => {
                    *near = number;
                    true
                }
            })
        };
        let left: Vec<u64> = windows().filter(|place| is_left(place)).copied().collect();
        let seen = windows().count().max(1);
        let without = self.price_places(places);
        let with = self.price_sample(&left, (places.len() * left.len() / seen) as u64);
        with.zip(without).is_none_or(|(with, without)| with < without * (1.0 - GAIN_MIN))
    }

    /// Seconds to read the elements at these places from the array itself, by a sample of the
    /// places.
    fn price_places(&self, places: &[u64]) -> Option<f64> {
        self.price_sample(places, places.len() as u64)
    }

    /// As [`BaseArray::price_places`], for `count` places that are spread like these.
    fn price_sample(&self, places: &[u64], count: u64) -> Option<f64> {
        if places.is_empty() || count == 0 {
            return Some(0.0);
        }
        let StoredLayout { grid, codec, item_size, .. } = self.objects.layout();
        let item = *item_size as u64;
        let plan = ReadPlan::new(&[], self.objects.tuning());
        let gap_max = plan.merging().gap_bytes;
        let chunk = grid.chunk_len().max(1);
        let (mut seen, mut requests, mut bytes, mut chunks) = (0_u64, 0_u64, 0_u64, 0_u64);
        for window in places.chunks((places.len() / WINDOWS).max(WINDOW)) {
            let window = &window[..window.len().min(WINDOW)];
            seen += window.len() as u64;
            for pair in window.windows(2) {
                let gap = pair[1].abs_diff(pair[0]).saturating_mul(item);
                let is_near = gap <= gap_max;
                requests += u64::from(!is_near);
                bytes = bytes.saturating_add(if is_near { gap } else { item });
                chunks += u64::from(pair[1] / chunk != pair[0] / chunk);
            }
        }
        let scaled = |part: u64| part.saturating_mul(count) / seen.max(1) + 1;
        let (requests, chunks) = (scaled(requests), scaled(chunks));
        let decoded = codec.decoded_bytes() as u64;
        let cost = match codec.is_raw() && grid.chunk_count() == Some(1) {
            true => Cost { requests, bytes: scaled(bytes), chunks: requests, ..Cost::default() },
            false => Cost {
                requests: chunks,
                bytes: chunks.saturating_mul(decoded),
                chunks,
                decoded_bytes: chunks.saturating_mul(decoded),
                ..Cost::default()
            },
        };
        let result_bytes = count.saturating_mul(item);
        let cost = Cost { objects: 1, runs: count, result_bytes, ..cost };
        Some(plan.price(&cost).seconds)
    }

    /// Seconds of a part by its geometry alone.
    fn estimate(&self, part: &ReadPart) -> Option<f64> {
        self.with_pieces(&[part], self.priced(), |plan| Ok(plan.estimate().seconds))?.ok()
    }
}

/// Adds the replica that has most of the rest, by a sample.
fn best_cut<'a>(
    cut: &PointDivision<'a>,
    among: &[usize],
    replicas: &[Arc<OpenReplica>],
) -> Option<PointDivision<'a>> {
    let others = among.iter().filter(|number| cut.taken.iter().all(|(taken, _)| taken != *number));
    let sampled = others.filter_map(|number| {
        let places = replicas[*number].places()?;
        let found = cut.left.sample().filter(|place| places.binary_search(place).is_ok()).count();
        (found > 0).then_some((found, *number))
    });
    let (_, number) = sampled.max_by_key(|(found, number)| (*found, usize::MAX - number))?;
    let (found, left) = cut.left.split(replicas[number].places()?);
    let mut taken = cut.taken.clone();
    taken.push((number, found?));
    Some(PointDivision { taken, left })
}

impl<'a> RequestedPoints<'a> {
    /// Some of the places, evenly spread.
    fn sample(&self) -> impl Iterator<Item = &u64> {
        let step = self.places.len().div_ceil(SAMPLED).max(1);
        self.places.iter().step_by(step)
    }

    fn result_of(&self, at: usize) -> u64 {
        self.results.as_ref().map_or(at as u64, |results| results[at])
    }

    /// Divides the points into those among `held`, by their indexes there, and the others.
    fn split(&self, held: &[u64]) -> (Option<PlacedAxis>, RequestedPoints<'a>) {
        if self.results.is_none() && *self.places == *held {
            let all = AxisSelection::Range(AxisRange::whole(held.len() as u64));
            let none = RequestedPoints { results: Some(Vec::new()), ..RequestedPoints::default() };
            return (Some(PlacedAxis::whole(&all)), none);
        }
        let (mut found, mut placed) = (Vec::new(), Vec::new());
        let (mut left, mut results) = (Vec::new(), Vec::new());
        // The start of the next search: points mostly ascend.
        let mut near = 0;
        for (at, place) in self.places.iter().enumerate() {
            let result = self.result_of(at);
            match find_from(held, *place, near) {
                Ok(number) => {
                    near = number;
                    found.push(number as u64);
                    placed.push(result);
                }
                Err(number) => {
                    near = number;
                    left.push(*place);
                    results.push(result);
                }
            }
        }
        let taken = (!found.is_empty()).then(|| PlacedAxis::listed(found, placed));
        (taken, RequestedPoints { places: Cow::Owned(left), results: Some(results) })
    }
}

/// As `binary_search`, by doubling steps from `near` on if the place is not before it.
fn find_from(held: &[u64], place: u64, near: usize) -> std::result::Result<usize, usize> {
    let near = near.min(held.len());
    if held.get(near).is_none_or(|first| *first > place) {
        return held[..near].binary_search(&place);
    }
    let (mut low, mut step) = (near, 1);
    while held.get(low + step).is_some_and(|at| *at <= place) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(held.len());
    let found = held[low..high].binary_search(&place);
    found.map(|at| at + low).map_err(|at| at + low)
}

fn parts_of(
    base: &BaseArray<'_>,
    replicas: &[Arc<OpenReplica>],
    cut: &PointDivision<'_>,
    count: u64,
) -> Result<Vec<ReadPart>> {
    let mut parts = Vec::with_capacity(cut.taken.len() + 1);
    for (number, placed) in &cut.taken {
        parts.push(ReadPart::of_replica(
            &replicas[*number],
            std::slice::from_ref(placed),
            &[count],
        )?);
    }
    if !cut.left.places.is_empty() {
        parts.extend(rest_parts(base, &cut.left, count)?);
    }
    Ok(parts)
}

fn rest_parts(
    base: &BaseArray<'_>,
    left: &RequestedPoints<'_>,
    count: u64,
) -> Result<Vec<ReadPart>> {
    let StoredLayout { grid, per_object, item_size, .. } = base.objects.layout();
    let shape = grid.array_shape();
    let results = || (0..left.places.len()).map(|at| left.result_of(at)).collect::<Vec<u64>>();
    if shape.len() == 1 {
        let placed = PlacedAxis::listed(left.places.to_vec(), results());
        return base.own_parts(&[placed], &[count]);
    }
    let points = Points::at_places(&left.places, shape)?;
    if let ArrayObjects::Archive(joined) = &base.objects {
        return Ok(of_files(joined.parts_of_points(&points, &results())?));
    }
    let geometry = Geometry::placed_points(grid, per_object, points, &results(), *item_size)?;
    Ok(vec![ReadPart { of: ReadPartSource::Array, geometry }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_from_wherever_the_last_one_was() {
        let held: Vec<u64> = (0..1000).map(|at| 3 * at).collect();
        for near in [0, 1, 17, 500, 999, 1000, 5000] {
            for place in [0, 1, 2, 3, 300, 301, 1500, 2997, 2998, 9000] {
                assert_eq!(
                    find_from(&held, place, near),
                    held.binary_search(&place),
                    "{place} {near}"
                );
            }
        }
    }

    #[test]
    fn points_are_split_into_those_that_are_held_and_others_with_their_places_in_the_result() {
        let wanted = RequestedPoints { places: Cow::Borrowed(&[9, 2, 5, 7, 2]), results: None };
        let (found, left) = wanted.split(&[2, 3, 7, 8]);
        let found = found.unwrap();
        assert_eq!(found.positions.iter().collect::<Vec<_>>(), [0, 2, 0]);
        assert_eq!(found.result.iter().collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!((&*left.places, left.results), (&[9, 5][..], Some(vec![0, 2])));
    }
}
