//! The budget that a note names: one with which the same command makes or keeps replicas.

use super::candidates::CandidateReplica;
use super::choose::{ChosenReplicas, PricedUse, choose};

/// The most enlargements of a budget before it is named.
const ENLARGED_MAX: usize = 16;

/// Returns a budget, in bytes, that holds the new replica with the fewest predicted bytes that
/// pays; `None` if none pays.
pub(super) fn budget_to_make(kinds: &[PricedUse], candidates: &[CandidateReplica]) -> Option<u64> {
    let pays = |one: &&CandidateReplica| {
        let of_site = candidates.iter().filter(|other| other.is_of_site);
        let with: Vec<_> = of_site.chain([*one]).cloned().collect();
        !choose(kinds, with, u64::MAX).make.is_empty()
    };
    let least = candidates.iter().filter(pays).map(|one| one.bytes).min()?;
    Some(enlarged(with_margin(least), |budget_bytes| {
        bytes_needed(&choose(kinds, candidates.to_vec(), budget_bytes), candidates)
    }))
}

/// Returns a budget, in bytes, with which all existing replicas stay. `without_existing` are the
/// candidates once these are dropped: then the budget holds one that pays, if any does.
pub(super) fn budget_to_keep(
    kinds: &[PricedUse],
    candidates: &[CandidateReplica],
    without_existing: &[CandidateReplica],
) -> u64 {
    let is_existing = |one: &&CandidateReplica| one.planned.is_none() && !one.is_of_site;
    let existing: u64 = candidates.iter().filter(is_existing).map(|one| one.bytes).sum();
    let least = budget_to_make(kinds, without_existing).unwrap_or(0);
    enlarged(existing.max(least), |budget_bytes| {
        let with = choose(kinds, candidates.to_vec(), budget_bytes);
        let made = with.make.iter().map(|one| with_margin(one.bytes()));
        let without = choose(kinds, without_existing.to_vec(), budget_bytes);
        made.fold(existing, u64::saturating_add).max(bytes_needed(&without, without_existing))
    })
}

/// Returns the bytes of the chosen replicas, with a margin for those that are to be made.
fn bytes_needed(chosen: &ChosenReplicas, candidates: &[CandidateReplica]) -> u64 {
    let is_kept =
        |one: &&CandidateReplica| chosen.keep.contains(&one.id) && !chosen.unused.contains(&one.id);
    let kept: u64 = candidates.iter().filter(is_kept).map(|one| one.bytes).sum();
    let made = chosen.make.iter().map(|one| with_margin(one.bytes()));
    made.fold(kept, u64::saturating_add)
}

/// Enlarges `budget_bytes` until the choice within it needs no more bytes, which `needed` returns:
/// a larger budget can make the choice take larger replicas.
fn enlarged(budget_bytes: u64, needed: impl Fn(u64) -> u64) -> u64 {
    let mut budget_bytes = rounded_up(budget_bytes);
    for _ in 0..ENLARGED_MAX {
        let needed = needed(budget_bytes);
        if needed <= budget_bytes {
            break;
        }
        budget_bytes = rounded_up(needed);
    }
    budget_bytes
}

/// Adds a quarter to predicted bytes: a sample of the elements predicts them.
fn with_margin(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.div_ceil(4))
}

/// Rounds bytes up to the size that [`text_up`] writes.
fn rounded_up(bytes: u64) -> u64 {
    bedform_format::size::parse(&text_up(bytes)).unwrap_or(bytes)
}

/// Formats bytes as a user types a size, rounded up: to a tenth of the unit below 10, otherwise to
/// a whole number of it.
pub(super) fn text_up(bytes: u64) -> String {
    let units = [("KiB", 1_u128 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let bytes = u128::from(bytes.max(1 << 10));
    // 1023.5 KiB is 1 MiB, not 1024 KiB.
    let fits = units.into_iter().find(|(_, unit)| bytes <= 1023 * unit);
    let (name, unit) = fits.unwrap_or(units[3]);
    let tenths = (10 * bytes).div_ceil(unit);
    match tenths {
        0..100 if tenths % 10 != 0 => format!("{}.{} {name}", tenths / 10, tenths % 10),
        _ => format!("{} {name}", bytes.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::{existing, new_replica, one_kind};
    use super::*;

    #[test]
    fn a_size_is_rounded_up_to_one_that_users_type() {
        assert_eq!(text_up(1), "1 KiB");
        assert_eq!(text_up(202 * 1024 + 1), "203 KiB");
        assert_eq!(text_up(1024 * 1024 - 1), "1 MiB");
        assert_eq!(text_up((1 << 20) + 1), "1.1 MiB");
        assert_eq!(text_up(12 << 30), "12 GiB");
        for bytes in (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]) {
            assert!(rounded_up(bytes) >= bytes, "{bytes}");
        }
    }

    #[test]
    fn the_budget_for_a_new_replica_has_a_quarter_more_than_its_predicted_bytes() {
        let candidates = [new_replica("small", 400_000, 5.0), new_replica("large", 900_000, 4.9)];
        let budget = budget_to_make(&[one_kind(10.0)], &candidates).unwrap();
        assert!((500_000..510_000).contains(&budget), "{budget}");
        assert_eq!(choose(&[one_kind(10.0)], candidates.to_vec(), budget).make[0].id(), "small");
    }

    #[test]
    fn the_budget_grows_where_it_lets_the_choice_take_a_larger_replica() {
        // 500,000 bytes hold the larger one as predicted, without a margin for it.
        let candidates = [new_replica("small", 400_000, 9.0), new_replica("large", 490_000, 1.0)];
        let budget = budget_to_make(&[one_kind(10.0)], &candidates).unwrap();
        assert!((612_500..614_500).contains(&budget), "{budget}");
    }

    #[test]
    fn the_budget_that_keeps_the_existing_replicas_holds_what_is_made_beside_them() {
        let unneeded = existing("old", 1_000_000, 0.0, 1);
        let unneeded = CandidateReplica { serves: vec![None], ..unneeded };
        let kinds = [one_kind(10.0)];
        let alone = budget_to_keep(&kinds, std::slice::from_ref(&unneeded), &[]);
        assert!((1_000_000..1_100_000).contains(&alone), "{alone}");
        let candidates = [unneeded, new_replica("new", 400_000, 1.0)];
        let budget = budget_to_keep(&kinds, &candidates, &candidates[1..]);
        assert!((1_500_000..1_600_000).contains(&budget), "{budget}");
        let chosen = choose(&kinds, candidates.to_vec(), budget);
        assert_eq!((chosen.keep, chosen.make.len()), (vec!["old".to_owned()], 1));
    }

    #[test]
    fn the_budget_that_keeps_an_existing_replica_also_makes_it_anew() {
        let kinds = [one_kind(10.0)];
        let stored = existing("one", 300_000, 0.0, 1);
        let stored = CandidateReplica { serves: vec![Some((1.0, 1.0))], ..stored };
        let anew = [new_replica("one", 400_000, 1.0)];
        let budget = budget_to_keep(&kinds, &[stored], &anew);
        assert!((500_000..510_000).contains(&budget), "{budget}");
    }
}
