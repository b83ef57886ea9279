//! Global patterns: the merged reads of all processes of a program (end of section 2.3.4).
//!
//! The pattern of each process changes with the number of processes; the global pattern does not.
//! Three decompositions are distinguished, by the relative positions of the processes' walks:
//!
//! | decomposition | processes | global walk |
//! |---|---|---|
//! | blocks | each takes a run of the elements of one level, after the previous process | that level undivided |
//! | cyclic | each takes every P-th element of the innermost level | that level undivided |
//! | pieces | equal walks, at equal steps or in a grid | one or several levels more |

use serde::{Deserialize, Deserializer, Serialize};

use crate::pattern::known_ones;
use crate::walk::LEVELS_MAX;
use crate::{Level, Place, Step, Walk};

/// Largest number of processes for which patterns are split.
const PROCESSES_MAX: usize = 1 << 20;

/// The distribution of one level's elements among processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GlobalDecomposition {
    /// Runs of elements of the outermost level.
    Blocks,
    /// Every P-th element of the innermost level, for P processes.
    Cyclic,
    /// One element each, of the outermost levels.
    Pieces,
}

/// The walk of all processes of a program, and its decomposition.
///
/// ```
/// use bedform_patterns::{Level, Place, Walk, merge};
///
/// // Four processes read 25 records each of a file; then three do.
/// let record = |number: u64| Place::bytes(512 * number, 512).unwrap();
/// let step = record(0).step_to(&record(1)).unwrap();
/// let part = |first, count| Walk { start: record(first), levels: vec![Level { step: step.clone(), count }] };
/// let four = [part(0, 25), part(25, 25), part(50, 25), part(75, 25)];
/// let global = merge(&four).unwrap();
/// assert_eq!(global.split(3), [part(0, 34), part(34, 33), part(67, 33)]);
/// assert_eq!(global.split(4), four);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Global {
    walk: Walk,
    decomposition: GlobalDecomposition,
    /// Number of processes from which it was merged; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    processes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Global patterns in a file. Deserialization skips invalid entries, as for
/// [`Patterns`](crate::Patterns).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Globals(pub Vec<Global>);

impl<'de> Deserialize<'de> for Globals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        known_ones(deserializer).map(Self)
    }
}

/// Merges the walks of all processes, in the order of ranks; `None` if they form no global pattern.
pub fn merge(per_process: &[Walk]) -> Option<Global> {
    if per_process.len() < 2 {
        return None;
    }
    let walks: Vec<Walk> = per_process.iter().map(joined).collect();
    let processes = per_process.len() as u64;
    let merged = |walk, decomposition| Global { walk, decomposition, processes };
    blocks(&walks)
        .map(|walk| merged(walk, GlobalDecomposition::Blocks))
        .or_else(|| cyclic(&walks).map(|walk| merged(walk, GlobalDecomposition::Cyclic)))
        .or_else(|| pieces(&walks).map(|walk| merged(walk, GlobalDecomposition::Pieces)))
}

impl Global {
    /// Returns the walk of all processes together.
    pub fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Returns the number of processes from which it was merged; `None` for patterns saved before
    /// the number was recorded.
    pub fn processes(&self) -> Option<usize> {
        usize::try_from(self.processes).ok().filter(|&processes| processes > 0)
    }

    /// Returns true if both are the same reads, by any number of processes.
    pub fn is_of_same_reads(&self, other: &Self) -> bool {
        self.walk == other.walk && self.decomposition == other.decomposition
    }

    /// Splits the pattern for `processes` processes, in the order of ranks; processes without reads
    /// get no walk.
    pub fn split(&self, processes: usize) -> Vec<Walk> {
        let processes = processes.min(PROCESSES_MAX);
        match self.decomposition {
            GlobalDecomposition::Blocks | GlobalDecomposition::Pieces => {
                spread(&self.walk, processes)
            }
            GlobalDecomposition::Cyclic => self.split_cyclic(processes),
        }
    }

    fn split_cyclic(&self, processes: usize) -> Vec<Walk> {
        let Walk { start, levels } = &self.walk;
        let Some((row, above)) = levels.split_first() else { return dealt(&self.walk, processes) };
        let all = processes as u64;
        let counts =
            (0..all.min(row.count)).map(|process| (process, (row.count - process).div_ceil(all)));
        let walks = counts.map_while(|(process, count)| {
            let start = start.after(&row.step.times(process)?)?;
            let own = Level { step: row.step.times(all)?, count };
            let levels = std::iter::once(own).chain(above.iter().cloned());
            Some(Walk { start, levels: levels.filter(|level| level.count > 1).collect() })
        });
        walks.collect()
    }
}

/// Splits the outermost level into runs if it has enough elements; otherwise assigns several
/// processes to each element.
fn spread(walk: &Walk, processes: usize) -> Vec<Walk> {
    let Some(outermost) = walk.levels.last().filter(|level| level.count < processes as u64) else {
        return dealt(walk, processes);
    };
    let elements = dealt(walk, processes);
    let shares = shares(processes as u64, outermost.count);
    let all = elements.iter().zip(shares);
    all.flat_map(|(element, (_, share))| {
        spread(element, usize::try_from(share).unwrap_or(processes))
    })
    .collect()
}

/// Splits the outermost level into runs of nearly equal length.
fn dealt(walk: &Walk, processes: usize) -> Vec<Walk> {
    let Some((outermost, below)) = walk.levels.split_last() else {
        return std::iter::once(walk.clone()).take(processes).collect();
    };
    let Level { step, count } = outermost;
    let walks = shares(*count, processes as u64).map_while(|(first, share)| {
        let level = (share > 1).then(|| Level { step: step.clone(), count: share });
        let levels = below.iter().cloned().chain(level).collect();
        Some(Walk { start: walk.start.after(&step.times(first)?)?, levels })
    });
    walks.collect()
}

/// Returns the first element and the number of elements of each share; empty shares are left out.
fn shares(elements: u64, among: u64) -> impl Iterator<Item = (u64, u64)> {
    let (each, more) = (elements / among.max(1), elements % among.max(1));
    (0..among.min(elements)).map(move |at| (at * each + at.min(more), each + u64::from(at < more)))
}

/// Returns the same walk with as few levels as possible: rows that continue each other become one.
fn joined(walk: &Walk) -> Walk {
    let mut levels: Vec<Level> = Vec::new();
    for level in walk.levels.iter().filter(|level| level.count > 1) {
        match levels.last_mut() {
            Some(below) if below.step.times(below.count).as_ref() == Some(&level.step) => {
                below.count = below.count.saturating_mul(level.count);
            }
            _ => levels.push(level.clone()),
        }
    }
    Walk { start: walk.start.clone(), levels }
}

/// Returns the walk formed by runs of the outermost level, each after the previous one.
fn blocks(walks: &[Walk]) -> Option<Walk> {
    let depth = walks.iter().map(|walk| walk.levels.len()).max()?;
    let longest = walks.iter().find(|walk| walk.levels.len() == depth)?;
    let (outermost, below) = match longest.levels.split_last() {
        Some((outermost, below)) => (outermost.step.clone(), below),
        None => (walks[0].start.step_to(&walks[1].start)?, &[][..]),
    };
    let mut all: u64 = 0;
    for walk in walks {
        let count = runs(walk, &outermost, below)?;
        let is_behind = walk.start.is_after(&walks[0].start, &outermost.times(all)?);
        all = all.checked_add(count).filter(|_| is_behind)?;
    }
    let levels = below.iter().cloned().chain([Level { step: outermost, count: all }]);
    Some(Walk { start: walks[0].start.clone(), levels: levels.collect() })
}

/// Returns the number of elements of the outermost level in a walk; 1 if the walk lacks that level.
fn runs(walk: &Walk, outermost: &Step, below: &[Level]) -> Option<u64> {
    match walk.levels.strip_prefix(below)? {
        [] => Some(1),
        [level] if level.step == *outermost => Some(level.count),
        _ => None,
    }
}

/// Returns the walk of which each of P processes takes every P-th element.
fn cyclic(walks: &[Walk]) -> Option<Walk> {
    let (first, row) = (&walks[0], walks[0].levels.first()?);
    let step = first.start.step_to(&walks[1].start)?;
    if step.times(walks.len() as u64)? != row.step {
        return None;
    }
    let above = &first.levels[1..];
    let (mut all, mut before) = (0_u64, row.count);
    for (process, walk) in (0..).zip(walks) {
        let (own, own_above) = walk.levels.split_first()?;
        let is_own = own.step == row.step
            && own_above == above
            && walk.start.is_after(&first.start, &step.times(process)?);
        // The last processes have one element less if the elements do not divide evenly.
        if !is_own || own.count > before || row.count - own.count > 1 {
            return None;
        }
        (all, before) = (all.checked_add(own.count)?, own.count);
    }
    let levels = std::iter::once(Level { step, count: all }).chain(above.iter().cloned());
    Some(Walk { start: first.start.clone(), levels: levels.collect() })
}

/// Returns the walk formed by equal walks whose starts form a walk: slabs, or blocks of a grid.
fn pieces(walks: &[Walk]) -> Option<Walk> {
    let (first, others) = walks.split_first()?;
    if others.iter().any(|walk| walk.levels != first.levels) {
        return None;
    }
    let above = levels_of(&walks.iter().map(|walk| &walk.start).collect::<Vec<_>>())?;
    let levels: Vec<Level> = first.levels.iter().cloned().chain(above).collect();
    (levels.len() <= LEVELS_MAX).then(|| Walk { start: first.start.clone(), levels })
}

/// Returns the levels of the walk that the places form in their order; `None` if they form none.
fn levels_of(places: &[&Place]) -> Option<Vec<Level>> {
    let [first, second, ..] = places else { return Some(Vec::new()) };
    let step = first.step_to(second)?;
    let is_row = |row: &[&Place]| row.windows(2).all(|pair| pair[1].is_after(pair[0], &step));
    let length = 1 + places.windows(2).take_while(|pair| pair[1].is_after(pair[0], &step)).count();
    let mut rows = places.chunks_exact(length);
    if !rows.remainder().is_empty() || !rows.all(is_row) {
        return None;
    }
    let above = levels_of(&places.iter().copied().step_by(length).collect::<Vec<_>>())?;
    Some(std::iter::once(Level { step, count: length as u64 }).chain(above).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Place {
        Place::new([(offset, offset + 1)])
    }

    fn walk(start: i64, levels: &[(i64, u64)]) -> Walk {
        let level =
            |&(by, count): &(i64, u64)| Level { step: at(0).step_to(&at(by)).unwrap(), count };
        Walk { start: at(start), levels: levels.iter().map(level).collect() }
    }

    fn places(walks: &[Walk]) -> Vec<Place> {
        let mut places: Vec<Place> = walks.iter().flat_map(Walk::places).collect();
        places.sort();
        places
    }

    #[test]
    fn slabs_of_a_volume_are_pieces_that_other_numbers_of_processes_share() {
        // Each process reads 3 rows of 4 places in each of 2 planes.
        let parts: Vec<Walk> =
            (0..4).map(|part| walk(30 * part, &[(1, 4), (10, 3), (1000, 2)])).collect();
        let global = merge(&parts).unwrap();
        assert_eq!(global.walk(), &walk(0, &[(1, 4), (10, 3), (1000, 2), (30, 4)]));
        assert_eq!(global.split(4), parts);
        assert_eq!(global.split(2)[1], walk(60, &[(1, 4), (10, 3), (1000, 2), (30, 2)]));
        assert_eq!(global.split(8)[1], walk(1000, &[(1, 4), (10, 3)]));
        for processes in 1..9 {
            assert_eq!(places(&global.split(processes)), places(&parts));
        }
    }

    #[test]
    fn blocks_of_a_grid_are_pieces_too() {
        let parts: Vec<Walk> =
            (0..6).map(|part| walk(40 * (part / 3) + 4 * (part % 3), &[(1, 3), (10, 3)])).collect();
        let global = merge(&parts).unwrap();
        assert_eq!(global.walk(), &walk(0, &[(1, 3), (10, 3), (4, 3), (40, 2)]));
        assert_eq!(global.split(6), parts);
        assert_eq!(global.split(2)[1], walk(40, &[(1, 3), (10, 3), (4, 3)]));
        for processes in 1..60 {
            let split = global.split(processes);
            assert_eq!(places(&split), places(&parts));
            assert_eq!(split.len(), processes.min(54));
        }
        assert_eq!(merge(&parts[..5]), None);
    }

    #[test]
    fn every_so_many_th_place_is_dealt_out_again() {
        let parts: Vec<Walk> =
            (0..3).map(|part| walk(5 * part, &[(15, 7 - u64::from(part > 0))])).collect();
        let global = merge(&parts).unwrap();
        assert_eq!(global.walk(), &walk(0, &[(5, 19)]));
        assert_eq!(global.split(3), parts);
        assert_eq!(global.split(2), [walk(0, &[(10, 10)]), walk(5, &[(10, 9)])]);
    }

    #[test]
    fn walks_that_lie_anyhow_make_up_none() {
        assert_eq!(merge(&[walk(0, &[(1, 5)]), walk(9, &[(1, 5)]), walk(15, &[(1, 5)])]), None);
        assert_eq!(merge(&[walk(0, &[(1, 5)]), walk(9, &[(2, 5)])]), None);
        assert_eq!(merge(&[walk(0, &[(1, 5)])]), None);
        assert_eq!(merge(&[]), None);
    }

    #[test]
    fn the_number_of_processes_is_kept_and_patterns_without_it_are_read() {
        let parts = [walk(0, &[(1, 5)]), walk(5, &[(1, 5)])];
        let two = merge(&parts).unwrap();
        assert_eq!(two.processes(), Some(2));
        let kept = serde_json::to_value(&two).unwrap();
        assert_eq!(serde_json::from_value::<Global>(kept.clone()).unwrap(), two);
        let mut earlier = kept;
        earlier.as_object_mut().unwrap().remove("processes");
        let earlier: Global = serde_json::from_value(earlier).unwrap();
        assert_eq!(earlier.processes(), None);
        assert!(earlier.is_of_same_reads(&two) && earlier != two);
        assert!(!serde_json::to_string(&earlier).unwrap().contains("processes"));
    }

    #[test]
    fn numbers_at_their_ends_are_no_fault() {
        let far = walk(i64::MAX - 9, &[(i64::MAX - 1, u64::MAX), (1, 5)]);
        for others in [vec![far.clone(), far.clone()], vec![far.clone(), walk(i64::MIN, &[])]] {
            if let Some(global) = merge(&others) {
                assert!(global.split(usize::MAX).len() <= PROCESSES_MAX);
            }
        }
        assert_eq!(merge(&[walk(0, &[(1, 5)]), walk(5, &[(1, 5)])]).unwrap().split(0), []);
    }

    proptest! {
        #[test]
        fn contiguous_pieces_stay_whole_and_even(
            counts in prop::collection::vec(1_u64..9, 2..7),
            below in 1_u64..4,
            processes in 1_usize..12,
        ) {
            let starts = counts.iter().scan(0, |end, count| {
                *end += count;
                Some(*end - count)
            });
            let level = |by, count: u64| (count > 1).then_some((by, count));
            let part = |(start, count): (u64, &u64)| {
                let levels: Vec<(i64, u64)> = level(1, below).into_iter().chain(level(10, *count)).collect();
                walk(10 * i64::try_from(start).unwrap(), &levels)
            };
            let parts: Vec<Walk> = starts.zip(&counts).map(part).collect();
            let global = merge(&parts).unwrap();
            let split = global.split(processes);
            prop_assert_eq!(places(&split), places(&parts));
            let sizes = split.iter().map(|walk| walk.count() / below);
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }
}
