//! The division of a selection into parts, and the choice of replicas for them.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use bedform_geometry::{AxisSelection, PlacedBox, Selection};

use super::ArrayReplicas;
use super::base::{BaseArray, PARTS_MAX, ReadPart};
use crate::error::Result;
use crate::replica::OpenReplica;
use crate::run::plan::ReadPlan;

/// The most replicas that one read uses.
const TAKEN_MAX: usize = 8;
/// The part of its time that a read must save by a replica.
pub(super) const GAIN_MIN: f64 = 0.05;
/// The largest ratio of lengths, along each axis, between a read and the reads that a replica was
/// made for.
const ALIKE: u64 = 2;

/// The replicas that serve a kind of read, by their indexes, in the order in which they take parts.
pub(crate) type Choice = Vec<usize>;

/// The context of dividing one selection into parts.
pub(super) struct DivisionContext<'c> {
    pub(super) base: &'c BaseArray<'c>,
    pub(super) replicas: ArrayReplicas<'c>,
    pub(super) result_shape: Vec<u64>,
    /// True once a part of some replica was found changed: other reads of the kind may find theirs
    /// unchanged.
    pub(super) has_changed: Cell<bool>,
}

/// The division of a selection: parts from replicas, by their indexes, and the rest, which the
/// array supplies.
#[derive(Clone, Default)]
pub(super) struct BoxDivision {
    pub(super) taken: Vec<(usize, PlacedBox)>,
    pub(super) left: Vec<PlacedBox>,
}

impl DivisionContext<'_> {
    /// Moves the boxes that replica `number` has from the rest to the taken parts; `None` if it has
    /// none of them.
    pub(super) fn with(&self, cut: &BoxDivision, number: usize) -> Option<BoxDivision> {
        let replica = &self.replicas.of_array[number];
        let held = &replica.record.held;
        let mut next = BoxDivision { taken: cut.taken.clone(), left: Vec::new() };
        for part in &cut.left {
            let (inside, rest) = held.split(part);
            next.left.extend(rest);
            let Some(inside) = inside else { continue };
            let still = self.base.parts_that_are_still(replica, inside);
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

    pub(super) fn parts(&self, cut: &BoxDivision) -> Result<Vec<ReadPart>> {
        let mut parts = Vec::with_capacity(cut.taken.len() + cut.left.len());
        for (number, part) in &cut.taken {
            let replica = &self.replicas.of_array[*number];
            parts.push(ReadPart::of_replica(replica, part, &self.result_shape)?);
        }
        for part in &cut.left {
            parts.extend(self.base.own_parts(part, &self.result_shape)?);
        }
        Ok(parts)
    }

    fn price(&self, cut: &BoxDivision) -> Option<f64> {
        self.base.price(&self.parts(cut).ok()?)
    }

    /// Divides a read among these replicas, one after the other.
    pub(super) fn by(&self, whole: BoxDivision, choice: &[usize]) -> BoxDivision {
        choice.iter().fold(whole, |cut, number| self.with(&cut, *number).unwrap_or(cut))
    }

    /// True if the replica's parts take less time than the whole read can take from the array
    /// itself. Decided by geometry alone, before an object of the array is opened for its price.
    fn may_gain(&self, whole: &BoxDivision, cut: &BoxDivision) -> Option<bool> {
        // Covers over the array's objects have a price that geometry does not show.
        if self.base.own.is_some_and(|own| !own.moment.is_settled()) {
            return Some(true);
        }
        let seconds = |cut: &BoxDivision, of: fn(&ReadPlan<'_>) -> f64| {
            let parts = self.parts(cut).ok()?;
            let parts: Vec<&ReadPart> = parts.iter().collect();
            self.base.with_pieces(&parts, self.base.priced(), |plan| Ok(of(&plan)))?.ok()
        };
        let taken = BoxDivision { taken: cut.taken.clone(), left: Vec::new() };
        let least = seconds(&taken, |plan| plan.estimate().seconds)?;
        let most = seconds(whole, |plan| plan.estimate_at_most().seconds)?;
        Some(least < most * (1.0 - GAIN_MIN))
    }

    /// Chooses the replicas that make the read cheapest, one after the other. `cuts` has the
    /// division for each replica alone.
    pub(super) fn choose(&self, whole: &BoxDivision, cuts: &[(usize, BoxDivision)]) -> Choice {
        let may_gain =
            |(_, cut): &&(usize, BoxDivision)| self.may_gain(whole, cut).unwrap_or(false);
        let among: Vec<usize> = cuts.iter().filter(may_gain).map(|(number, _)| *number).collect();
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

/// The selected positions along each axis, unless the selection is a union or lists points in
/// several axes.
pub(super) fn axes_of(selection: &Selection) -> Option<Cow<'_, [AxisSelection]>> {
    match selection {
        Selection::Orthogonal(axes) => Some(Cow::Borrowed(axes)),
        Selection::Points(points) => match points.coords() {
            [list] => Some(Cow::Owned(vec![AxisSelection::Coords(list.clone())])),
            _ => None,
        },
        Selection::Union(_) => None,
    }
}

/// The fastest replica that was made for reads of such lengths and has the whole read, if there is
/// one.
pub(super) fn made_for(
    cuts: &[(usize, BoxDivision)],
    replicas: &[Arc<OpenReplica>],
    shape: &[u64],
) -> Option<usize> {
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

/// The key by which choices are shared among reads: lengths, steps, and the eighths of the read
/// that each replica holds.
pub(super) fn key_of(axes: &[AxisSelection], cuts: &[(usize, BoxDivision)]) -> Vec<u64> {
    let axis = |axis: &AxisSelection| match axis {
        AxisSelection::Range(range) => [range.len(), range.step().unsigned_abs()],
        AxisSelection::Coords(list) => [list.len() as u64, 0],
    };
    let share =
        |(number, cut): &(usize, BoxDivision)| [*number as u64, 8 - eighths(axes, &cut.left)];
    axes.iter().flat_map(axis).chain(cuts.iter().flat_map(share)).collect()
}

/// The number of whole eighths of a read of `axes` that are left to the array.
pub(super) fn eighths(axes: &[AxisSelection], left: &[PlacedBox]) -> u64 {
    let elements = |part: &PlacedBox| part.iter().map(|axis| axis.len() as f64).product::<f64>();
    let whole: f64 = axes.iter().map(|axis| axis.len() as f64).product();
    let left: f64 = left.iter().map(elements).sum();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let eighths = (8.0 * left / whole.max(1.0)).floor() as u64;
    eighths.min(8)
}
