//! Chooses the storage targets of the shards of a replica, from the processes that read it
//! together.
//!
//! "Make each OST be contacted by as few processes as possible": Tang, section 3.2.4. The learned
//! global pattern of a run tells which process reads which part; [`GridReaders`] assigns the shards
//! to targets. Without configured targets, or without such a pattern, shards get the ordinary
//! placement of an array.

use std::sync::Arc;

use bedform_geometry::{AccessCosts, ChunkGrid, GridReaders, Region};
use bedform_patterns::{Global, Place};
use bedform_storage::{Placement, Profile};

use super::reads::known_reads;
use super::{OptimizeOptions, OptimizedSource, PlannedReplica, SourcePlace};
use crate::error::Result;
use crate::placement::ShardTargets;
use crate::replica::AxisRuns;

/// The most reads of a global pattern; longer patterns do not affect the placement.
const READS_MAX: u64 = 1 << 21;

/// The shards of a replica, with the processes that read them together.
struct ReplicaReaders {
    targets: Arc<ShardTargets>,
    readers: GridReaders,
    costs: AccessCosts,
    processes: usize,
}

/// Returns the placement of a replica's shards; `None` for the ordinary one by coordinates.
///
/// # Errors
/// `InvalidArgument` for a malformed list of targets; errors of loading learned reads.
pub(super) fn placement_of(
    source: &OptimizedSource,
    place: &SourcePlace,
    replica: &PlannedReplica,
    options: &OptimizeOptions,
) -> Result<Option<Arc<dyn Placement>>> {
    let found = readers_of(source, place, replica, options)?;
    Ok(found.map(|found| found.targets.for_readers(&found.readers, &found.costs)))
}

/// Returns a remark for the user if the placement reduces the processes per target.
///
/// # Errors
/// Those of [`placement_of`].
pub(super) fn note_of(
    source: &OptimizedSource,
    place: &SourcePlace,
    replica: &PlannedReplica,
    options: &OptimizeOptions,
) -> Result<Option<String>> {
    let Some(found) = readers_of(source, place, replica, options)? else { return Ok(None) };
    let ReplicaReaders { targets, readers, costs, processes } = found;
    let most = |places: &[u64]| {
        let load = readers.load(places, targets.count());
        load.iter().map(|target| target.processes).max().unwrap_or(0)
    };
    let placed = most(&readers.placement(targets.count(), &costs));
    let plain = most(&readers.spread(targets.count()));
    let array = &replica.array;
    Ok((placed < plain).then(|| {
        format!(
            "{array}: {processes} processes read the replica together: a target serves at most {placed} of them, \
             not {plain}"
        )
    }))
}

fn readers_of(
    source: &OptimizedSource,
    place: &SourcePlace,
    replica: &PlannedReplica,
    options: &OptimizeOptions,
) -> Result<Option<ReplicaReaders>> {
    let Some(targets) = ShardTargets::configured()? else { return Ok(None) };
    // Expected reads do not say how many processes read.
    let is_learnt = options.reads.is_empty() && options.selections.is_empty();
    let known = match is_learnt {
        true => known_reads(source, place, options.like.as_ref())?,
        false => None,
    };
    let learned = known.and_then(|(_, mut known)| known.arrays.remove(&replica.array));
    let globals = learned.map(|learned| learned.global.0).unwrap_or_default();
    // The newest run comes first.
    let found = globals.iter().rev().find_map(|global| {
        let processes = global.processes().filter(|&processes| processes > 1)?;
        Some((readers_by(replica, global, processes)?, processes))
    });
    let item_bytes = replica.raw_bytes as f64 / replica.shape.iter().product::<u64>().max(1) as f64;
    let profile = Profile::lustre_example();
    let costs = AccessCosts {
        element_seconds: item_bytes / profile.read_bytes_per_second_one,
        piece_seconds: profile.request_seconds_one,
        // Equal for all placements.
        latency_seconds: 0.0,
    };
    Ok(found.map(|(readers, processes)| ReplicaReaders { targets, readers, costs, processes }))
}

/// Returns the shards of a replica with their readers, by a global pattern split over `processes`.
/// `None` if the replica was made for reads of another shape, or the pattern is too long.
fn readers_by(replica: &PlannedReplica, global: &Global, processes: usize) -> Option<GridReaders> {
    let runs = replica.held.runs()?;
    let walk = global.walk();
    let lengths = walk.start.bounds().map(|(first, end)| end.abs_diff(first));
    let most = replica.expected.iter().max_by(|one, other| {
        (one.reads * one.seconds_with).total_cmp(&(other.reads * other.seconds_with))
    })?;
    if !lengths.eq(most.shape.iter().copied()) || walk.count() > READS_MAX {
        return None;
    }
    let grid = ChunkGrid::new(replica.shape.clone(), replica.shards.clone()).ok()?;
    let mut readers = GridReaders::new(grid).ok()?;
    for (process, walk) in (0..).zip(global.split(processes)) {
        for read in walk.places() {
            if let Some(region) = inner(runs, &read) {
                readers.add(process, &region).ok()?;
            }
        }
    }
    Some(readers)
}

/// Returns the part of a read that a replica of these runs holds, as a box of the replica; `None`
/// if it is empty.
fn inner(runs: &[AxisRuns], read: &Place) -> Option<Region> {
    if read.rank() != runs.len() {
        return None;
    }
    let before = |runs: &AxisRuns, at: i64| {
        let at = u64::try_from(at).unwrap_or(0);
        let held = runs.iter().map(|(first, count)| at.saturating_sub(*first).min(*count));
        held.sum::<u64>()
    };
    let ends = runs.iter().zip(read.bounds());
    let (start, shape): (Vec<u64>, Vec<u64>) = ends
        .map(|(runs, (first, end))| {
            let start = before(runs, first);
            (start, before(runs, end) - start)
        })
        .unzip();
    Region::new(start, shape).ok().filter(|region| !region.is_empty())
}

#[cfg(test)]
mod tests {
    use bedform_patterns::{Level, Walk, merge};

    use super::*;
    use crate::replica::{ExpectedReads, ReplicaElements};

    /// A replica of hours 5, 6 and 29, 30 of rows 0 to 7, in shards of one row.
    fn replica() -> PlannedReplica {
        PlannedReplica {
            id: String::new(),
            array: "t".to_owned(),
            dims: Vec::new(),
            held: ReplicaElements::of_runs(vec![vec![(5, 2), (29, 2)], vec![(0, 8)]], &[48, 16])
                .unwrap(),
            places: None,
            shape: vec![4, 8],
            raw_bytes: 128,
            chunks: vec![4, 1],
            shards: vec![4, 1],
            order: "row-major".to_owned(),
            bytes: 128,
            building_seconds: 0.0,
            expected: vec![ExpectedReads {
                shape: vec![48, 1],
                reads: 16.0,
                seconds_without: 1.0,
                seconds_with: 0.1,
            }],
        }
    }

    /// The pattern of `processes` processes, each of which reads `each` columns of `length` hours.
    fn columns(processes: i64, each: i64, length: i64) -> Global {
        let column = |at: i64| Place::new([(0, length), (at, at + 1)]);
        let step = column(0).step_to(&column(1)).unwrap();
        let part = |process: i64| Walk {
            start: column(each * process),
            levels: vec![Level { step: step.clone(), count: each.unsigned_abs() }],
        };
        merge(&(0..processes).map(part).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn processes_read_what_the_replica_has_of_their_parts() {
        let readers = readers_by(&replica(), &columns(4, 4, 48), 4).unwrap();
        let load = readers.load(&[0, 0, 0, 0, 1, 1, 1, 1], 2);
        // The replica holds the rows of the first two processes.
        assert_eq!(load.iter().map(|target| target.processes).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(load[1].elements, 16);
        let other = readers_by(&replica(), &columns(4, 4, 48), 16).unwrap();
        assert_eq!(other.load(&[0; 8], 1)[0].processes, 8);
    }

    #[test]
    fn patterns_of_other_reads_than_the_replica_is_made_for_place_nothing() {
        assert!(readers_by(&replica(), &columns(4, 4, 24), 4).is_none());
        let place = Place::new([(0, 48)]);
        assert_eq!(inner(replica().held.runs().unwrap(), &place), None);
    }
}
