//! Converts selections to places of a pattern, ranges to traced axes, and back.

use bedform_format::trace::TracedAxis;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_patterns::Place;

/// Returns a range of positions in its traced form.
pub(super) fn traced_range(range: &AxisRange) -> TracedAxis {
    TracedAxis { first: range.start(), count: range.len(), step: range.step() }
}

/// Returns the range of a traced axis; `None` for a malformed one.
pub(super) fn range_of(traced: TracedAxis) -> Option<AxisSelection> {
    AxisRange::new(traced.first, traced.step, traced.count).ok().map(AxisSelection::Range)
}

/// The form of a selection: the step along each axis, without the bounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SelectionSteps(Vec<i64>);

/// Returns the form and the place of a box, which may take every n-th element. `None` for lists,
/// points and empty selections.
pub(crate) fn place_of(selection: &Selection) -> Option<(SelectionSteps, Place)> {
    let Selection::Orthogonal(axes) = selection else { return None };
    let mut steps = Vec::with_capacity(axes.len());
    let mut bounds = Vec::with_capacity(axes.len());
    for axis in axes {
        let AxisSelection::Range(range) = axis else { return None };
        let (low, high) = range.bounds()?;
        steps.push(if range.len() > 1 { range.step() } else { 1 });
        bounds.push((i64::try_from(low).ok()?, i64::try_from(high).ok()?.checked_add(1)?));
    }
    Some((SelectionSteps(steps), Place::new(bounds)))
}

/// Clips a place to an array of `shape`; `None` if it begins outside.
pub(crate) fn cut(place: &Place, shape: &[u64]) -> Option<Place> {
    if place.rank() != shape.len() {
        return None;
    }
    let axis = |((first, end), &length): ((i64, i64), &u64)| {
        let end = end.min(i64::try_from(length).unwrap_or(i64::MAX));
        (first >= 0 && first < end).then_some((first, end))
    };
    Some(Place::new(place.bounds().zip(shape).map(axis).collect::<Option<Vec<_>>>()?))
}

/// Returns the selection at a place within the array, as [`cut`] returns it.
pub(crate) fn selection_at(form: &SelectionSteps, place: &Place) -> Option<Selection> {
    if form.0.len() != place.rank() {
        return None;
    }
    let axis = |((first, end), &step): ((i64, i64), &i64)| {
        let span = end.checked_sub(first)?.checked_sub(1)?;
        let count = span.checked_div(step.checked_abs()?)?.checked_add(1)?;
        let start = if step < 0 { end - 1 } else { first };
        let range = AxisRange::new(u64::try_from(start).ok()?, step, u64::try_from(count).ok()?);
        range.ok().map(AxisSelection::Range)
    };
    place.bounds().zip(&form.0).map(axis).collect::<Option<_>>().map(Selection::Orthogonal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, step: i64, count: u64) -> AxisSelection {
        AxisSelection::Range(AxisRange::new(start, step, count).unwrap())
    }

    #[test]
    fn boxes_of_every_third_element_forwards_and_backwards_are_found_again_at_their_place() {
        for axis in [range(2, 3, 4), range(11, -3, 4)] {
            let selection = Selection::Orthogonal(vec![axis, range(5, 1, 1)]);
            let (form, place) = place_of(&selection).unwrap();
            assert_eq!(place, Place::new([(2, 12), (5, 6)]));
            assert_eq!(cut(&place, &[20, 6]), Some(place.clone()));
            assert_eq!(selection_at(&form, &place), Some(selection));
        }
    }

    #[test]
    fn places_are_cut_at_the_end_of_the_array_and_none_behind_it() {
        let place = Place::new([(96, 128)]);
        assert_eq!(cut(&place, &[120]), Some(Place::new([(96, 120)])));
        assert_eq!(cut(&place, &[96]), None);
        assert_eq!(cut(&place, &[96, 1]), None);
        assert_eq!(cut(&Place::new([(-3, 2)]), &[120]), None);
    }
}
