//! Conditions of queries: repeated queries of an array, with their regions and times.
//!
//! Queries with the same condition over regions of the same lengths are one entry, at any place.

use bedform_format::trace::knowledge::{LearnedCondition, LearnedQueries};
use bedform_format::trace::query::{QueryTally, TracedCondition, TracedQuery};

/// The most conditions of an array; the one with the least seconds is dropped.
const CONDITIONS_MAX: usize = 64;

/// Counts the queries of a block of an array of `shape`.
pub(super) fn count_queries(learned: &mut LearnedQueries, shape: &[u64], queries: &[TracedQuery]) {
    for TracedQuery { condition, tally } in queries {
        learned.queries = learned.queries.saturating_add(tally.queries);
        learned.bytes = learned.bytes.saturating_add(tally.bytes);
        learned.seconds += seconds_of(tally);
        let is_inside = |((first, count), length): (&(u64, u64), &u64)| {
            first.checked_add(*count).is_some_and(|end| end <= *length)
        };
        let fits = condition.region.len() == shape.len()
            && condition.region.iter().zip(shape).all(is_inside);
        if fits && tally.queries > 0 {
            count_in(entry_of(&mut learned.conditions, condition), condition, tally);
        }
    }
}

fn seconds_of(tally: &QueryTally) -> f64 {
    tally.took_ns as f64 * 1e-9
}

/// Returns the entry of a condition; makes it if needed.
fn entry_of<'a>(
    conditions: &'a mut Vec<LearnedCondition>,
    condition: &TracedCondition,
) -> &'a mut LearnedCondition {
    let lengths = || condition.region.iter().map(|(_, count)| *count);
    let is_same = |known: &LearnedCondition| {
        known.condition == condition.text
            && known.is_stored == condition.is_stored
            && known.shape.iter().copied().eq(lengths())
    };
    let found = conditions.iter().position(is_same);
    let number = found.unwrap_or_else(|| {
        if conditions.len() >= CONDITIONS_MAX {
            let by_seconds = |a: &(usize, &LearnedCondition), b: &(usize, &LearnedCondition)| {
                a.1.seconds.total_cmp(&b.1.seconds)
            };
            let least = conditions.iter().enumerate().min_by(by_seconds);
            let least = least.map_or(0, |(number, _)| number);
            conditions.remove(least);
        }
        conditions.push(LearnedCondition {
            condition: condition.text.clone(),
            is_stored: condition.is_stored,
            shape: lengths().collect(),
            start: condition.region.iter().map(|(first, _)| *first).collect(),
            end: condition.region.iter().map(|(first, count)| first + count).collect(),
            ..LearnedCondition::default()
        });
        conditions.len() - 1
    });
    &mut conditions[number]
}

fn count_in(known: &mut LearnedCondition, condition: &TracedCondition, tally: &QueryTally) {
    let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    add(&mut known.queries, tally.queries);
    add(&mut known.bytes, tally.bytes);
    add(&mut known.matched, tally.matched);
    add(&mut known.blocks, tally.blocks);
    add(&mut known.blocks_left_out, tally.blocks_left_out);
    add(known.results.entry(condition.result.name().to_owned()).or_default(), tally.queries);
    known.seconds += seconds_of(tally);
    known.last_ns = known.last_ns.max(tally.last_ns);
    for (axis, (first, count)) in condition.region.iter().enumerate() {
        known.start[axis] = known.start[axis].min(*first);
        known.end[axis] = known.end[axis].max(first + count);
    }
}

#[cfg(test)]
mod tests {
    use bedform_format::trace::query::QueryResultKind;

    use super::*;

    fn query(text: &str, first: u64, seconds: u64) -> TracedQuery {
        TracedQuery {
            condition: TracedCondition {
                text: text.to_owned(),
                is_stored: false,
                result: QueryResultKind::Count,
                region: vec![(first, 10)],
            },
            tally: QueryTally {
                queries: 2,
                bytes: 80,
                took_ns: seconds * 1_000_000_000,
                last_ns: first.saturating_add(100),
                ..QueryTally::default()
            },
        }
    }

    #[test]
    fn one_condition_over_regions_of_one_shape_is_one_entry_with_the_box_around_them() {
        let mut learned = LearnedQueries::default();
        let queries = [query("t > 3", 20, 1), query("t > 3", 0, 2), query("t > 4", 0, 1)];
        count_queries(&mut learned, &[30], &queries);
        assert_eq!((learned.queries, learned.bytes, learned.conditions.len()), (6, 240, 2));
        let first = &learned.conditions[0];
        assert_eq!((first.queries, first.results["count"], first.last_ns), (4, 4, 120));
        assert_eq!((&first.shape, &first.start, &first.end), (&vec![10], &vec![0], &vec![30]));
        assert!((first.seconds - 3.0).abs() < 1e-9);
    }

    #[test]
    fn regions_outside_of_the_array_are_counted_without_a_condition() {
        let mut learned = LearnedQueries::default();
        count_queries(&mut learned, &[30], &[query("t > 3", 21, 1), query("t > 3", u64::MAX, 1)]);
        count_queries(&mut learned, &[30, 30], &[query("t > 3", 0, 1)]);
        assert_eq!((learned.queries, learned.conditions.len()), (6, 0));
    }

    #[test]
    fn of_many_conditions_those_that_took_least_are_forgotten() {
        let mut learned = LearnedQueries::default();
        for bound in 1..=200 {
            count_queries(&mut learned, &[30], &[query(&format!("t > {bound}"), 0, bound)]);
        }
        assert_eq!((learned.queries, learned.conditions.len()), (400, CONDITIONS_MAX));
        assert!(learned.conditions.iter().any(|known| known.condition == "t > 200"));
    }
}
