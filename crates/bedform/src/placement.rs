//! The storage target of each shard, on file systems that let users choose (Lustre).
//!
//! A shard's target is computed from its coordinates alone, so all processes agree on it at any
//! time. Planes of a growing array lie on as many targets as possible. Nothing on disk records it:
//! a shard on another target reads just as well.
//!
//! A replica is written once, by one process, and does not grow. So its shards are placed where the
//! processes that read it together contend least ([`ShardTargets::for_readers`]).

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use bedform_format::ObjectPath;
use bedform_geometry::{AccessCosts, GridReaders, Spread, linearize};
use bedform_storage::Placement;

use crate::error::{Error, Result};

const VARIABLE: &str = "BEDFORM_LUSTRE_TARGETS";
/// The most targets of one file in Lustre.
const TARGETS_MAX: usize = 2000;
/// Steps for arrays of up to so many dimensions are precomputed.
const DIMENSIONS: usize = 5;

/// The storage targets of shards.
///
/// ```
/// use bedform::placement::ShardTargets;
/// use bedform_format::ObjectPath;
/// use bedform_storage::Placement;
///
/// let targets = ShardTargets::parse("0-3,8")?;
/// let of = |path| targets.target(&ObjectPath::parse(path).unwrap());
/// assert_eq!(of("t/c/0/0"), Some(0));
/// assert_eq!(of("t/c/0/4"), Some(8));
/// assert_eq!(of("t/zarr.json"), None);
/// # Ok::<(), bedform::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardTargets {
    /// The targets' numbers in the file system.
    indexes: Vec<u32>,
    /// The spreads for 1, 2, ... dimensions.
    spreads: Vec<Spread>,
}

impl ShardTargets {
    /// The targets in `BEDFORM_LUSTRE_TARGETS`, as it was at the first call; `None` if it is not
    /// set.
    ///
    /// # Errors
    /// As [`ShardTargets::parse`], with the name of the variable.
    pub fn configured() -> Result<Option<Arc<Self>>> {
        static TARGETS: OnceLock<std::result::Result<Option<Arc<ShardTargets>>, String>> =
            OnceLock::new();
        let found = TARGETS.get_or_init(|| {
            let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
            let parsed = text.map(|text| ShardTargets::parse(&text.to_string_lossy())).transpose();
            parsed.map(|found| found.map(Arc::new)).map_err(|error| error.to_string())
        });
        match found {
            Ok(targets) => Ok(targets.clone()),
            Err(text) => Err(Error::invalid(format!("{VARIABLE}: {text}"))),
        }
    }

    /// Parses a list such as `0-335` or `3,5,9-20`.
    ///
    /// # Errors
    /// `InvalidArgument` for any other text, for a target that is named twice, and for more than
    /// 2,000.
    pub fn parse(text: &str) -> Result<Self> {
        let bad =
            |what: &str| Error::invalid(format!("{what}, not a list such as 0-335 or 3,5,9-20"));
        let mut indexes = Vec::new();
        for part in text.split(',') {
            let range = range_of(part).ok_or_else(|| bad(&format!("{part:?}")))?;
            if (range.end() - range.start()) as usize >= TARGETS_MAX - indexes.len() {
                return Err(Error::invalid(format!("more than {TARGETS_MAX} targets")));
            }
            indexes.extend(range);
        }
        let mut sorted = indexes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < indexes.len() {
            return Err(bad("a target is named twice"));
        }
        let count = u32::try_from(indexes.len()).unwrap_or(u32::MAX);
        let spreads = (1..=DIMENSIONS).map(|dimensions| Spread::new(dimensions, count)).collect();
        Ok(Self { indexes, spreads })
    }

    /// The number of targets.
    pub fn count(&self) -> u32 {
        // `parse` has limited the count.
        u32::try_from(self.indexes.len()).unwrap_or(u32::MAX)
    }

    /// Places the shards of one array so that each target serves few of the processes that read it.
    pub fn for_readers(
        self: &Arc<Self>,
        readers: &GridReaders,
        costs: &AccessCosts,
    ) -> Arc<dyn Placement> {
        let places = readers.placement(self.count(), costs);
        let grid = readers.grid().grid_shape().to_vec();
        Arc::new(ReadShards { targets: self.clone(), grid, places })
    }
}

/// Parses `5` or `5-9`.
fn range_of(part: &str) -> Option<RangeInclusive<u32>> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

impl Placement for ShardTargets {
    fn target(&self, path: &ObjectPath) -> Option<u32> {
        let coordinates = shard_coordinates(path)?;
        let found = match self.spreads.get(coordinates.len() - 1) {
            Some(spread) => spread.target(&coordinates),
            None => Spread::new(coordinates.len(), self.count()).target(&coordinates),
        };
        self.indexes.get(found as usize).copied()
    }
}

/// A placement of one array's shards that its readers' regions decide.
#[derive(Debug)]
struct ReadShards {
    targets: Arc<ShardTargets>,
    grid: Vec<u64>,
    /// For each shard, in C order, the index of its target in the list.
    places: Vec<u64>,
}

impl Placement for ReadShards {
    fn target(&self, path: &ObjectPath) -> Option<u32> {
        let coordinates = shard_coordinates(path)?;
        let is_own = coordinates.len() == self.grid.len()
            && coordinates.iter().zip(&self.grid).all(|(at, count)| at < count);
        if !is_own {
            return self.targets.target(path);
        }
        let shard = usize::try_from(linearize(&coordinates, &self.grid)).ok()?;
        let place = usize::try_from(*self.places.get(shard)?).ok()?;
        self.targets.indexes.get(place).copied()
    }
}

/// The coordinates of the shard at this path, from the numbers behind `c/` or `c.`; `None` for
/// other objects.
fn shard_coordinates(path: &ObjectPath) -> Option<Vec<u64>> {
    if let Some(numbers) = path.name().strip_prefix("c.") {
        return numbers.split('.').map(|number| number.parse().ok()).collect();
    }
    let mut coordinates = Vec::new();
    for segment in path.as_str().rsplit('/') {
        match segment.parse() {
            Ok(number) => coordinates.push(number),
            Err(_) if segment == "c" && !coordinates.is_empty() => {
                coordinates.reverse();
                return Some(coordinates);
            }
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bedform_geometry::{ChunkGrid, Region};

    use super::*;

    #[test]
    fn only_shards_have_targets_and_the_order_of_axes_counts() {
        let coordinates = |text| shard_coordinates(&ObjectPath::parse(text).unwrap());
        assert_eq!(coordinates("group/t/c/1/2/30"), Some(vec![1, 2, 30]));
        assert_eq!(coordinates("c/7"), Some(vec![7]));
        assert_eq!(coordinates("group/t/c.1.2.30"), Some(vec![1, 2, 30]));
        for other in ["t/zarr.json", "t/c", "1/2", "t/c/1/x", "t/d/1/2", "c/1/.bedform-lock", "c."]
        {
            assert_eq!(coordinates(other), None, "{other}");
        }
        let targets = ShardTargets::parse("0-335").unwrap();
        let of = |text| targets.target(&ObjectPath::parse(text).unwrap()).unwrap();
        assert_ne!(of("t/c/1/0/0"), of("t/c/0/0/1"));
        // More dimensions than are precomputed.
        assert!(of("t/c/1/2/3/4/5/6") < 336);
    }

    #[test]
    fn shards_that_two_processes_read_are_on_targets_of_each() {
        let targets = Arc::new(ShardTargets::parse("10-13").unwrap());
        let grid = ChunkGrid::new([8, 4], [1, 4]).unwrap();
        let mut readers = GridReaders::new(grid).unwrap();
        for process in 0..2 {
            let half = Region::new([4 * u64::from(process), 0], [4, 4]).unwrap();
            readers.add(process, &half).unwrap();
        }
        let costs = AccessCosts { element_seconds: 1.0, piece_seconds: 1.0, latency_seconds: 0.0 };
        let placed = targets.for_readers(&readers, &costs);
        let of = |text: &str| placed.target(&ObjectPath::parse(text).unwrap());
        let found: Vec<_> = (0..8).map(|row| of(&format!("r/t/c.{row}.0")).unwrap()).collect();
        assert_eq!(found, [10, 11, 10, 11, 12, 13, 12, 13]);
        assert_eq!(of("r/t/c/5/0"), Some(13));
        // Shards of other arrays, and shards behind the end.
        for other in ["r/t/c.3", "r/t/c.8.0"] {
            assert_eq!(of(other), targets.target(&ObjectPath::parse(other).unwrap()), "{other}");
        }
        assert_eq!(of("r/t/zarr.json"), None);
    }

    #[test]
    fn lists_of_targets_are_read_or_refused() {
        assert_eq!(ShardTargets::parse("3, 5,9-11").unwrap().indexes, [3, 5, 9, 10, 11]);
        for text in ["", "x", "3-", "9-3", "1,1", "0-5,5", "-1", "0-2000", "0-4294967295,1"] {
            assert!(ShardTargets::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(ShardTargets::parse("1-2000").unwrap().indexes.len(), 2000);
    }
}
