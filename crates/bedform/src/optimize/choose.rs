//! The greedy choice of the replicas that save most predicted time per byte within the budget.

use super::PlannedReplica;
use super::candidates::CandidateReplica;
use super::reads::PricedReadKind;

/// The number of repetitions of all counted reads within which a replica must pay for its making.
const REPEATS: f64 = 100.0;
/// The least share of the seconds of all counted reads that a replica must save.
const SHARE_MIN: f64 = 0.005;

/// The outcome of [`choose`].
#[derive(Debug, Default)]
pub(super) struct ChosenReplicas {
    pub(super) make: Vec<PlannedReplica>,
    /// Names of existing replicas that stay.
    pub(super) keep: Vec<String>,
    pub(super) drop: Vec<String>,
    /// Names of existing replicas that no read needs, kept or dropped, the most valuable first.
    pub(super) unused: Vec<String>,
    pub(super) bytes: u64,
    /// For each kind the seconds of a read: with the existing replicas, and with the chosen ones.
    pub(super) seconds_now: Vec<f64>,
    pub(super) seconds_then: Vec<f64>,
}

/// Returns the mean seconds of a read of each kind with these replicas; the fastest replica that
/// holds a read serves it. The model takes the shares of different replicas as disjoint, even where
/// two hold the same places.
fn seconds_with(kinds: &[PricedReadKind], replicas: &[&CandidateReplica]) -> Vec<f64> {
    let of_kind = |(number, kind): (usize, &PricedReadKind)| {
        let mut served: Vec<(f64, f64)> =
            replicas.iter().filter_map(|replica| replica.serves[number]).collect();
        if kind.exact.is_some() {
            // The overlap of their elements is not known, so only the best replica counts.
            let with =
                served.iter().map(|(share, with)| share * with + (1.0 - share) * kind.seconds);
            return with.fold(kind.seconds, f64::min);
        }
        served.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (mut seconds, mut left) = (0.0, 1.0);
        for (share, with) in served.into_iter().filter(|(_, with)| *with < kind.seconds) {
            let taken = share.min(left);
            seconds += taken * with;
            left -= taken;
        }
        seconds + left * kind.seconds
    };
    kinds.iter().enumerate().map(of_kind).collect()
}

fn total(kinds: &[PricedReadKind], seconds: &[f64]) -> f64 {
    kinds.iter().zip(seconds).map(|(kind, seconds)| kind.reads * seconds).sum()
}

/// Takes the candidate that saves most per byte, repeatedly, while one pays and fits the budget. At
/// the end it gives up a replica that later choices made useless.
pub(super) fn choose(
    kinds: &[PricedReadKind],
    candidates: Vec<CandidateReplica>,
    budget_bytes: u64,
) -> ChosenReplicas {
    let of_site: Vec<_> = candidates.iter().filter(|one| one.is_of_site).collect();
    let is_own = |one: &&CandidateReplica| !one.is_of_site;
    let candidates: Vec<_> = candidates.iter().filter(is_own).collect();
    let existing: Vec<_> = candidates.iter().copied().filter(|one| one.planned.is_none()).collect();
    let beside_site = |own: &[&CandidateReplica]| {
        let all: Vec<_> = of_site.iter().chain(own).copied().collect();
        seconds_with(kinds, &all)
    };
    let seconds_now = beside_site(&existing);
    let whole = total(kinds, &kinds.iter().map(|kind| kind.seconds).collect::<Vec<_>>());
    let mut chosen: Vec<&CandidateReplica> = Vec::new();
    let mut bytes = 0_u64;
    loop {
        let before = total(kinds, &beside_site(&chosen));
        let worth = |candidate: &&CandidateReplica| {
            let with: Vec<_> = chosen.iter().copied().chain([*candidate]).collect();
            before - total(kinds, &beside_site(&with))
        };
        let others = candidates.iter().copied().filter(|one| {
            let is_taken = chosen.iter().any(|taken| taken.id == one.id);
            !is_taken && bytes.saturating_add(one.bytes) <= budget_bytes
        });
        let worthy = others.filter_map(|one| {
            let gain = worth(&one);
            let pays = gain * REPEATS > one.building_seconds && gain > SHARE_MIN * whole;
            pays.then(|| (gain / one.bytes.max(1) as f64, gain, one))
        });
        let worthy: Vec<_> = worthy.collect();
        // Only candidates with at least 0.8 of the largest gain compete by gain per byte. Otherwise
        // many small ones would fill the budget first and leave no room for a large one.
        let most = worthy.iter().map(|(_, gain, _)| *gain).fold(0.0, f64::max);
        let large = worthy.iter().filter(|(_, gain, _)| *gain >= 0.8 * most);
        let best = large.max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, _, best)) = best else { break };
        bytes = bytes.saturating_add(best.bytes);
        chosen.push(best);
    }
    give_up_useless(&mut chosen, SHARE_MIN * whole, |own| total(kinds, &beside_site(own)));
    let seconds_then = beside_site(&chosen);
    let bytes = chosen.iter().map(|one| one.bytes).sum();
    let is_chosen = |one: &&CandidateReplica| chosen.iter().any(|taken| taken.id == one.id);
    let (keep, mut unused): (Vec<&CandidateReplica>, Vec<&CandidateReplica>) =
        existing.iter().copied().partition(is_chosen);
    // An unused replica stays while there is room: its reads may come again. Otherwise the fewest
    // saved seconds per byte go first, and of equals the one used longest ago.
    unused.sort_by(|a, b| {
        let by_bytes = |one: &CandidateReplica| one.worth.seconds / one.bytes.max(1) as f64;
        let by_use = by_bytes(b).total_cmp(&by_bytes(a));
        by_use.then_with(|| b.worth.last_ns.cmp(&a.worth.last_ns))
    });
    let unused: Vec<(String, u64)> =
        unused.into_iter().map(|one| (one.id.clone(), one.bytes)).collect();
    let (stay, drop) = room_for(&unused, bytes, budget_bytes);
    let of_staying = unused.iter().filter(|(id, _)| stay.contains(id)).map(|(_, bytes)| bytes);
    let used = bytes + of_staying.sum::<u64>();
    ChosenReplicas {
        make: chosen.iter().filter_map(|one| one.planned.clone()).collect(),
        keep: keep.iter().map(|one| one.id.clone()).chain(stay).collect(),
        drop,
        unused: unused.into_iter().map(|(id, _)| id).collect(),
        bytes: used,
        seconds_now,
        seconds_then,
    }
}

/// Divides unneeded replicas, names with bytes in the order of their value, into those that fit the
/// budget beside `used_bytes`, and the others.
pub(super) fn room_for(
    unused: &[(String, u64)],
    mut used_bytes: u64,
    budget_bytes: u64,
) -> (Vec<String>, Vec<String>) {
    let fits = |(_, bytes): &&(String, u64)| {
        let with = used_bytes.saturating_add(*bytes);
        let is_fitting = with <= budget_bytes;
        if is_fitting {
            used_bytes = with;
        }
        is_fitting
    };
    let (stay, drop): (Vec<_>, Vec<_>) = unused.iter().partition(fits);
    let names = |some: Vec<&(String, u64)>| some.into_iter().map(|(id, _)| id.clone()).collect();
    (names(stay), names(drop))
}

/// Gives up each replica whose removal costs at most `least` seconds. `seconds` returns the
/// predicted seconds of all reads with the given replicas.
fn give_up_useless(
    chosen: &mut Vec<&CandidateReplica>,
    least: f64,
    seconds: impl Fn(&[&CandidateReplica]) -> f64,
) {
    let mut at = 0;
    while at < chosen.len() {
        let mut others = chosen.clone();
        others.remove(at);
        match seconds(&others) - seconds(chosen) <= least {
            true => *chosen = others,
            false => at += 1,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bedform_geometry::Region;

    use super::super::candidates::Worth;
    use super::*;
    use crate::replica::ReplicaElements;

    pub(in super::super) fn existing(
        id: &str,
        bytes: u64,
        seconds: f64,
        last_ns: u64,
    ) -> CandidateReplica {
        CandidateReplica {
            planned: None,
            is_of_site: false,
            id: id.to_owned(),
            bytes,
            building_seconds: 0.0,
            serves: Vec::new(),
            worth: Worth { seconds, last_ns },
        }
    }

    pub(in super::super) fn new_replica(
        id: &str,
        bytes: u64,
        seconds_with: f64,
    ) -> CandidateReplica {
        let planned = PlannedReplica {
            id: id.to_owned(),
            array: "t".to_owned(),
            dims: vec!["x".to_owned()],
            held: ReplicaElements::region(&whole()),
            places: None,
            shape: vec![100],
            raw_bytes: 400,
            chunks: vec![100],
            shards: vec![100],
            order: "c".to_owned(),
            bytes,
            building_seconds: 0.1,
            expected: Vec::new(),
        };
        CandidateReplica {
            planned: Some(planned),
            building_seconds: 0.1,
            serves: vec![Some((1.0, seconds_with))],
            ..existing(id, bytes, 0.0, 0)
        }
    }

    pub(in super::super) fn one_kind(seconds: f64) -> PricedReadKind {
        PricedReadKind {
            array: "t".to_owned(),
            dims: vec!["x".to_owned()],
            array_shape: vec![100],
            item_size: 4,
            counts: vec![10],
            steps: vec![1],
            reads: 1.0,
            bounds: whole(),
            hot: whole(),
            seconds,
            exact: None,
        }
    }

    fn whole() -> Region {
        Region::whole([100]).unwrap()
    }

    #[test]
    fn an_unneeded_replica_that_fits_stays_even_if_a_more_valuable_one_does_not() {
        let unused = [("a".to_owned(), 50), ("b".to_owned(), 100), ("c".to_owned(), 20)];
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(room_for(&unused, 30, 100), (names(&["a", "c"]), names(&["b"])));
        assert_eq!(room_for(&unused, 0, 200), (names(&["a", "b", "c"]), names(&[])));
        assert_eq!(room_for(&unused, 200, 100), (names(&[]), names(&["a", "b", "c"])));
    }

    #[test]
    fn of_replicas_that_no_read_needs_those_go_first_that_saved_least_for_their_bytes_and_longest_ago()
     {
        let replicas = vec![
            existing("never", 10, 0.0, 5),
            existing("large", 100, 20.0, 90),
            existing("small", 10, 9.0, 50),
            existing("later", 10, 0.0, 80),
        ];
        let kept = |budget| choose(&[], replicas.clone(), budget).keep;
        assert_eq!(kept(130), ["small", "large", "later", "never"]);
        assert_eq!(kept(120), ["small", "large", "later"]);
        assert_eq!(kept(110), ["small", "large"]);
        assert_eq!(kept(30), ["small", "later", "never"]);
        let chosen = choose(&[], replicas.clone(), 20);
        assert_eq!((chosen.keep, chosen.bytes), (vec!["small".to_owned(), "later".to_owned()], 20));
        assert_eq!(chosen.drop, ["large", "never"]);
    }
}
