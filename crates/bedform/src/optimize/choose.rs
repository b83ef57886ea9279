//! The greedy choice of the replicas that save most predicted time per byte within the budget.
//!
//! A value index is one more candidate: it serves queries as a replica serves reads.
//!
//! [`choose`] first takes replicas as if none existed, new and existing ones alike. Then each new
//! one must pay again, against the existing ones that fit in its place: one that differs a little
//! from these is not made. At the end it gives up replicas that later choices made useless. An
//! existing one that no read needs stays while there is room, because its reads may come again; one
//! whose place a new one takes is dropped.

use std::cmp::Ordering;

use super::candidates::{CandidateReplica, PlannedHelper};

/// The number of repetitions of all counted reads within which a replica must pay for its making.
const REPEATS: f64 = 100.0;
/// The least share of the seconds of all counted reads that a replica must save.
const SHARE_MIN: f64 = 0.005;
/// A new replica takes the place of an existing one if it has at least this share of the reads that
/// the existing one serves, at this share of its speed.
const NEARLY: f64 = 0.9;

/// A kind of reads, or queries with one condition, that replicas and indexes could serve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PricedUse {
    /// The weight of such reads or queries: their number, older ones counting less.
    pub(super) reads: f64,
    /// Predicted seconds of one if nothing is chosen.
    pub(super) seconds: f64,
    /// True if every such read takes the same listed elements.
    pub(super) is_exact: bool,
}

/// The outcome of [`choose`].
#[derive(Debug, Default)]
pub(super) struct ChosenReplicas {
    pub(super) make: Vec<PlannedHelper>,
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

/// The overlap of the shares that different replicas hold of a kind of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// The shares are disjoint and add up, even where two replicas hold the same places.
    Disjoint,
    /// Unknown: only the best replica counts.
    Unknown,
}

/// Returns the mean seconds of a read of each kind with these replicas; the fastest replica that
/// holds a read serves it.
fn seconds_with(kinds: &[PricedUse], replicas: &[&CandidateReplica], overlap: Overlap) -> Vec<f64> {
    let of_kind = |(number, kind): (usize, &PricedUse)| {
        let mut served: Vec<(f64, f64)> =
            replicas.iter().filter_map(|replica| replica.serves[number]).collect();
        // The overlap of the elements of listed reads is never known.
        if kind.is_exact || overlap == Overlap::Unknown {
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

fn total(kinds: &[PricedUse], seconds: &[f64]) -> f64 {
    kinds.iter().zip(seconds).map(|(kind, seconds)| kind.reads * seconds).sum()
}

/// Chooses the replicas to make, keep and drop. A new one is made only if it pays against the
/// existing ones, and an existing one whose place a new one takes is dropped.
pub(super) fn choose(
    kinds: &[PricedUse],
    candidates: Vec<CandidateReplica>,
    budget_bytes: u64,
) -> ChosenReplicas {
    let whole = total(kinds, &kinds.iter().map(|kind| kind.seconds).collect::<Vec<_>>());
    let (of_site, own): (Vec<_>, Vec<_>) = candidates.iter().partition(|one| one.is_of_site);
    let existing: Vec<_> = own.iter().copied().filter(|one| one.planned.is_none()).collect();
    let choice = ReplicaChoice { kinds, of_site, gain_min: SHARE_MIN * whole, budget_bytes };
    let mut chosen = Vec::new();
    choice.fill(&mut chosen, &own);
    choice.give_up_near_equal(&mut chosen, &existing);
    choice.give_up_useless(&mut chosen);
    let is_chosen = |one: &&CandidateReplica| chosen.iter().any(|taken| taken.id == one.id);
    let (keep, mut unused): (Vec<_>, Vec<_>) = existing.iter().copied().partition(is_chosen);
    unused.sort_by(by_worth);
    let (replaced, mut others): (Vec<_>, Vec<_>) =
        unused.iter().copied().partition(|one| chosen.iter().any(|new| takes_place_of(new, one)));
    // Of the others those go first whose reads the chosen ones serve.
    others.sort_by_cached_key(|one| choice.is_superfluous(one, &chosen));
    let bytes = bytes_of(&chosen);
    let (stay, drop) = room_for(&named(&others), bytes, budget_bytes);
    let of_staying = others.iter().filter(|one| stay.contains(&one.id)).map(|one| one.bytes);
    ChosenReplicas {
        make: chosen.iter().filter_map(|one| one.planned.clone()).collect(),
        bytes: bytes + of_staying.sum::<u64>(),
        keep: keep.iter().map(|one| one.id.clone()).chain(stay).collect(),
        drop: replaced.into_iter().map(|one| one.id.clone()).chain(drop).collect(),
        unused: unused.iter().map(|one| one.id.clone()).collect(),
        seconds_now: choice.seconds(&existing, Overlap::Disjoint),
        seconds_then: choice.seconds(&chosen, Overlap::Disjoint),
    }
}

/// A choice of replicas for these kinds of reads within a budget, beside those of the site.
struct ReplicaChoice<'a> {
    kinds: &'a [PricedUse],
    of_site: Vec<&'a CandidateReplica>,
    /// The least seconds of all counted reads that a replica must save.
    gain_min: f64,
    budget_bytes: u64,
}

impl<'a> ReplicaChoice<'a> {
    /// Returns the mean seconds of a read of each kind with these replicas.
    fn seconds(&self, own: &[&CandidateReplica], overlap: Overlap) -> Vec<f64> {
        let all: Vec<_> = self.of_site.iter().chain(own).copied().collect();
        seconds_with(self.kinds, &all, overlap)
    }

    /// Returns the seconds of all reads with these replicas.
    fn total(&self, own: &[&CandidateReplica], overlap: Overlap) -> f64 {
        total(self.kinds, &self.seconds(own, overlap))
    }

    /// True if a replica that saves `gain` seconds of all reads is worth its making.
    fn pays(&self, one: &CandidateReplica, gain: f64) -> bool {
        gain * REPEATS > one.building_seconds && gain > self.gain_min
    }

    /// Adds the candidate that saves most per byte, repeatedly, while one pays and fits the budget.
    fn fill(&self, chosen: &mut Vec<&'a CandidateReplica>, candidates: &[&'a CandidateReplica]) {
        while let Some(best) = self.best_beside(chosen, candidates) {
            chosen.push(best);
        }
    }

    fn best_beside(
        &self,
        chosen: &[&'a CandidateReplica],
        candidates: &[&'a CandidateReplica],
    ) -> Option<&'a CandidateReplica> {
        let (before, bytes) = (self.total(chosen, Overlap::Disjoint), bytes_of(chosen));
        let others = candidates.iter().copied().filter(|one| {
            let is_taken = chosen.iter().any(|taken| taken.id == one.id);
            !is_taken && bytes.saturating_add(one.bytes) <= self.budget_bytes
        });
        let worthy = others.filter_map(|one| {
            let with: Vec<_> = chosen.iter().copied().chain([one]).collect();
            let gain = before - self.total(&with, Overlap::Disjoint);
            self.pays(one, gain).then(|| (gain / one.bytes.max(1) as f64, gain, one))
        });
        let worthy: Vec<_> = worthy.collect();
        // Only candidates with at least 0.8 of the largest gain compete by gain per byte. Otherwise
        // many small ones would fill the budget first and leave no room for a large one.
        let most = worthy.iter().map(|(_, gain, _)| *gain).fold(0.0, f64::max);
        let large = worthy.iter().filter(|(_, gain, _)| *gain >= 0.8 * most);
        large.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, _, best)| *best)
    }

    /// Gives up each new replica that does not pay against the existing ones that fit in its place.
    fn give_up_near_equal(
        &self,
        chosen: &mut Vec<&'a CandidateReplica>,
        existing: &[&'a CandidateReplica],
    ) {
        let mut at = 0;
        while let Some(one) = chosen.get(at).copied() {
            let mut instead = chosen.clone();
            instead.remove(at);
            self.fill(&mut instead, existing);
            // Existing replicas that overlap must not count as if they held all reads together.
            let gain = [Overlap::Disjoint, Overlap::Unknown]
                .map(|overlap| self.total(&instead, overlap) - self.total(chosen, overlap));
            match one.planned.is_some() && !self.pays(one, gain[0].max(gain[1])) {
                true => *chosen = instead,
                false => at += 1,
            }
        }
    }

    /// Gives up each replica whose removal costs next to nothing.
    fn give_up_useless(&self, chosen: &mut Vec<&'a CandidateReplica>) {
        let mut at = 0;
        while at < chosen.len() {
            let mut others = chosen.clone();
            let one = others.remove(at);
            match self.saves(one, &others) {
                true => at += 1,
                false => *chosen = others,
            }
        }
    }

    /// True if a replica beside these saves more than next to nothing.
    fn saves(&self, one: &CandidateReplica, others: &[&CandidateReplica]) -> bool {
        let with: Vec<_> = others.iter().copied().chain([one]).collect();
        let gain = self.total(others, Overlap::Disjoint) - self.total(&with, Overlap::Disjoint);
        gain > self.gain_min
    }

    /// True for an existing replica if the chosen ones serve all reads that it was made for.
    fn is_superfluous(&self, one: &CandidateReplica, chosen: &[&CandidateReplica]) -> bool {
        one.is_counted && !self.saves(one, chosen)
    }
}

/// True if a new replica serves nearly all reads that the existing one serves, in nearly the same
/// time or less, and these include all that the existing one was made for.
fn takes_place_of(new: &CandidateReplica, existing: &CandidateReplica) -> bool {
    let mut served = existing.serves.iter().zip(&new.serves);
    let are_served = served.all(|served| match served {
        (Some(old), Some(new)) => new.0 >= old.0 * NEARLY && new.1 * NEARLY <= old.1,
        (old, _) => old.is_none(),
    });
    new.planned.is_some() && existing.is_counted && are_served
}

/// Orders unneeded replicas by their value: the seconds that they saved per byte, and of equals the
/// time of their last use.
fn by_worth(a: &&CandidateReplica, b: &&CandidateReplica) -> Ordering {
    let by_bytes = |one: &CandidateReplica| one.worth.seconds / one.bytes.max(1) as f64;
    let by_use = by_bytes(b).total_cmp(&by_bytes(a));
    by_use.then_with(|| b.worth.last_ns.cmp(&a.worth.last_ns))
}

fn bytes_of(replicas: &[&CandidateReplica]) -> u64 {
    replicas.iter().map(|one| one.bytes).fold(0, u64::saturating_add)
}

fn named(replicas: &[&CandidateReplica]) -> Vec<(String, u64)> {
    replicas.iter().map(|one| (one.id.clone(), one.bytes)).collect()
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

#[cfg(test)]
pub(super) mod tests {
    use bedform_geometry::Region;

    use super::super::candidates::Worth;
    use super::super::{PlannedIndex, PlannedReplica};
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
            is_counted: false,
            serves: Vec::new(),
            worth: Worth { seconds, last_ns },
        }
    }

    pub(in super::super) fn new_replica(
        id: &str,
        bytes: u64,
        seconds_with: f64,
    ) -> CandidateReplica {
        let planned = PlannedHelper::Replica(Box::new(PlannedReplica {
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
        }));
        CandidateReplica {
            planned: Some(planned),
            building_seconds: 0.1,
            serves: vec![Some((1.0, seconds_with))],
            ..existing(id, bytes, 0.0, 0)
        }
    }

    pub(in super::super) fn one_kind(seconds: f64) -> PricedUse {
        PricedUse { reads: 1.0, seconds, is_exact: false }
    }

    fn whole() -> Region {
        Region::whole([100]).unwrap()
    }

    /// An existing replica that serves this share of the reads in `seconds`, and all that it was
    /// made for.
    fn serving(id: &str, bytes: u64, share: f64, seconds: f64) -> CandidateReplica {
        let serves = vec![Some((share, seconds))];
        CandidateReplica { serves, is_counted: true, ..existing(id, bytes, 90.0, 9) }
    }

    #[test]
    fn a_new_replica_that_differs_a_little_from_an_existing_one_is_not_made() {
        let kinds = [one_kind(10.0)];
        for old in [1.0, 1.01] {
            let candidates = vec![serving("old", 100, 1.0, old), new_replica("new", 60, 1.0)];
            let chosen = choose(&kinds, candidates, 1000);
            assert!(chosen.make.is_empty() && chosen.drop.is_empty(), "{old}");
            assert_eq!((chosen.keep, chosen.bytes), (vec!["old".to_owned()], 100));
        }
        // The existing one does not fit the budget.
        let candidates = vec![serving("old", 100, 1.0, 1.0), new_replica("new", 60, 1.0)];
        let chosen = choose(&kinds, candidates, 80);
        assert_eq!((chosen.make[0].id(), chosen.drop), ("new".to_owned(), vec!["old".to_owned()]));
    }

    #[test]
    fn an_index_for_queries_is_chosen_beside_replicas_while_there_is_room_for_both() {
        let uses = [one_kind(10.0), PricedUse { reads: 5.0, seconds: 4.0, is_exact: false }];
        let planned = PlannedHelper::Index(PlannedIndex {
            array: "t".to_owned(),
            has_bins: false,
            raw_bytes: 400,
            bytes: 7,
            building_seconds: 1.0,
        });
        let index = CandidateReplica {
            id: planned.id(),
            planned: Some(planned),
            building_seconds: 1.0,
            serves: vec![None, Some((1.0, 0.5))],
            ..existing("", 7, 0.0, 0)
        };
        let mut replica = new_replica("new", 60, 1.0);
        replica.serves.push(None);
        let chosen = |budget| choose(&uses, vec![replica.clone(), index.clone()], budget);
        let made = |budget| chosen(budget).make.iter().map(PlannedHelper::id).collect::<Vec<_>>();
        assert_eq!(made(67), ["index of t", "new"]);
        assert_eq!(made(66), ["index of t"]);
        assert_eq!((chosen(67).bytes, chosen(66).bytes), (67, 7));
        assert_eq!(chosen(67).seconds_then, [1.0, 0.5]);
    }

    #[test]
    fn an_existing_replica_goes_if_a_new_one_serves_all_that_it_was_made_for() {
        let kinds = [one_kind(10.0)];
        let of_other_reads =
            CandidateReplica { is_counted: false, ..serving("other", 9, 0.5, 1.0) };
        let candidates =
            vec![serving("part", 100, 0.5, 1.0), of_other_reads, new_replica("new", 60, 1.0)];
        let chosen = choose(&kinds, candidates, 1000);
        assert_eq!((chosen.make.len(), chosen.drop), (1, vec!["part".to_owned()]));
        assert_eq!((chosen.keep, chosen.bytes), (vec!["other".to_owned()], 69));
        // If the new one is not made in the end, both may stay.
        assert_eq!(chosen.unused, ["other", "part"]);
    }

    #[test]
    fn existing_replicas_that_may_hold_the_same_places_do_not_keep_one_of_all_from_being_made() {
        let parts = ["a", "b"].map(|id| serving(id, 100, 0.6, 1.0));
        let candidates = parts.into_iter().chain([new_replica("new", 60, 1.0)]).collect();
        let chosen = choose(&[one_kind(10.0)], candidates, 1000);
        assert_eq!((chosen.make.len(), chosen.keep.len()), (1, 0));
        assert_eq!(chosen.drop, ["a", "b"]);
    }

    #[test]
    fn where_there_is_no_room_replicas_go_first_whose_reads_others_serve() {
        let unneeded = CandidateReplica { serves: vec![None], ..existing("unneeded", 100, 0.0, 1) };
        let candidates =
            vec![serving("best", 100, 1.0, 1.0), serving("served", 100, 0.9, 1.2), unneeded];
        let chosen = |budget| choose(&[one_kind(10.0)], candidates.clone(), budget);
        assert_eq!(chosen(300).keep, ["best", "unneeded", "served"]);
        assert_eq!(
            (chosen(200).keep.as_slice(), chosen(200).drop),
            (&["best".to_owned(), "unneeded".to_owned()][..], vec!["served".to_owned()])
        );
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
