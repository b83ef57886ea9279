//! Which storage target a shard is to lie on, where the file system lets its users choose.
//!
//! A shard's target follows from its coordinates alone, so that every process, at any time, finds the same
//! one, and planes of a growing array are on as many targets as possible. Nothing on disk says it: it is where
//! bytes are, not what they are, and a shard that lies elsewhere is read as well.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use bedform_format::ObjectPath;
use bedform_geometry::Spread;
use bedform_storage::Placement;

use crate::error::{Error, Result};

const VARIABLE: &str = "BEDFORM_LUSTRE_TARGETS";
/// As many as a file of Lustre can have.
const TARGETS_MAX: usize = 2000;
/// For arrays of up to so many dimensions steps are found once.
const DIMENSIONS: usize = 5;

/// The storage targets that shards go to.
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
    /// The file system's own numbers of them.
    indexes: Vec<u32>,
    /// For 1, 2, ... dimensions.
    spreads: Vec<Spread>,
}

impl ShardTargets {
    /// Those that `BEDFORM_LUSTRE_TARGETS` names, as it was at the first call; nothing without it.
    ///
    /// # Errors
    /// As [`ShardTargets::parse`], with the name of the variable.
    pub fn configured() -> Result<Option<Arc<dyn Placement>>> {
        static TARGETS: OnceLock<std::result::Result<Option<Arc<ShardTargets>>, String>> =
            OnceLock::new();
        let found = TARGETS.get_or_init(|| {
            let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
            let parsed = text.map(|text| ShardTargets::parse(&text.to_string_lossy())).transpose();
            parsed.map(|found| found.map(Arc::new)).map_err(|error| error.to_string())
        });
        match found {
            Ok(targets) => Ok(targets.clone().map(|one| one as Arc<dyn Placement>)),
            Err(text) => Err(Error::invalid(format!("{VARIABLE}: {text}"))),
        }
    }

    /// Reads a list such as `0-335` or `3,5,9-20`.
    ///
    /// # Errors
    /// `InvalidArgument` for another text, for a target that is named twice, and for more than 2,000.
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
}

/// `5` or `5-9`.
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
            None => {
                let count = u32::try_from(self.indexes.len()).unwrap_or(u32::MAX);
                Spread::new(coordinates.len(), count).target(&coordinates)
            }
        };
        self.indexes.get(found as usize).copied()
    }
}

/// The coordinates of the shard that has this path: what follows `c/`; nothing for other objects.
fn shard_coordinates(path: &ObjectPath) -> Option<Vec<u64>> {
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
    use super::*;

    #[test]
    fn only_shards_have_targets_and_the_order_of_axes_counts() {
        let coordinates = |text| shard_coordinates(&ObjectPath::parse(text).unwrap());
        assert_eq!(coordinates("group/t/c/1/2/30"), Some(vec![1, 2, 30]));
        assert_eq!(coordinates("c/7"), Some(vec![7]));
        for other in ["t/zarr.json", "t/c", "1/2", "t/c/1/x", "t/d/1/2", "c/1/.bedform-lock"] {
            assert_eq!(coordinates(other), None, "{other}");
        }
        let targets = ShardTargets::parse("0-335").unwrap();
        let of = |text| targets.target(&ObjectPath::parse(text).unwrap()).unwrap();
        assert_ne!(of("t/c/1/0/0"), of("t/c/0/0/1"));
        // More dimensions than there are steps for.
        assert!(of("t/c/1/2/3/4/5/6") < 336);
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
