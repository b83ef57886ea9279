//! Settled lists: the shards that were settled while a log has had commits, each with its last
//! commit.
//!
//! A shard names its last commit, but a lost shard, or an old version restored from a copy, does
//! not. The list shows the loss. Numbers are varints; each column is preceded by its length in
//! bytes ([`varint`](super::varint)).
//!
//! ```text
//! version 1
//! count: arrays
//! arrays  16 bytes each: key; columns: rank, number of shards
//! grids   column of all lengths: how many objects there are along each axis
//! shards  columns of all: number in the C order of the grid; commit
//! ```

use super::varint::{ColumnReader, write_column, write_varint};
use super::{DecodeBudget, Result, check_limit, check_version, invalid, list_bytes, size_of};
use crate::Limits;

const VERSION: u64 = 1;
const WHAT: &str = "a list of settled shards";

/// The settled shards of a store, each with the last commit that it contains.
///
/// ```
/// use bedform_format::{Limits, log::{SettledArray, SettledShards}};
/// let mut array = SettledArray::new([1; 16], vec![2, 3]);
/// array.add(&[1, 1], 7);
/// array.add(&[0, 2], 9);
/// let shards = SettledShards { arrays: vec![array] };
/// let limits = Limits::default();
/// assert_eq!(SettledShards::decode(&shards.encode(&limits)?, &limits)?, shards);
/// assert_eq!(shards.commit_of(&[1; 16], &[1, 1]), Some(7));
/// assert_eq!(shards.commit_of(&[1; 16], &[1, 0]), None);
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettledShards {
    /// By array, sorted by key.
    pub arrays: Vec<SettledArray>,
}

/// The settled shards of one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledArray {
    /// Identity of the array.
    key: [u8; 16],
    /// Number of objects along each axis when the list was made.
    grid: Vec<u64>,
    /// Number of the shard in the C order of the grid, and its commit, sorted by number.
    shards: Vec<(u64, u64)>,
}

impl SettledArray {
    /// Makes an empty list for an array with `grid` objects along each axis.
    pub fn new(key: [u8; 16], grid: Vec<u64>) -> Self {
        Self { key, grid, shards: Vec::new() }
    }

    /// Returns the array's key.
    pub fn key(&self) -> &[u8; 16] {
        &self.key
    }

    /// Records that the shard at `coordinates` contains all commits up to `commit`. An earlier
    /// commit than the recorded one changes nothing; shards outside the grid are ignored.
    pub fn add(&mut self, coordinates: &[u64], commit: u64) {
        let Some(number) = self.number(coordinates) else { return };
        match self.shards.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => self.shards[at].1 = self.shards[at].1.max(commit),
            Err(at) => self.shards.insert(at, (number, commit)),
        }
    }

    fn add_all(&mut self, other: &Self) {
        let others = other.iter().filter_map(|(at, commit)| Some((self.number(&at)?, commit)));
        let others: Vec<(u64, u64)> = others.collect();
        self.shards.extend(others);
        self.shards.sort_unstable_by_key(|(number, commit)| (*number, std::cmp::Reverse(*commit)));
        self.shards.dedup_by_key(|(number, _)| *number);
    }

    /// Returns the coordinates and commit of each shard.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u64>, u64)> {
        self.shards.iter().map(|(number, commit)| (self.coordinates(*number), *commit))
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.shards.len()
    }

    fn number(&self, coordinates: &[u64]) -> Option<u64> {
        if coordinates.len() != self.grid.len() {
            return None;
        }
        coordinates.iter().zip(&self.grid).try_fold(0_u64, |number, (at, length)| {
            (at < length).then_some(())?;
            number.checked_mul(*length)?.checked_add(*at)
        })
    }

    fn coordinates(&self, mut number: u64) -> Vec<u64> {
        let mut coordinates = vec![0; self.grid.len()];
        for (at, length) in coordinates.iter_mut().zip(&self.grid).rev() {
            *at = number % length;
            number /= length;
        }
        coordinates
    }

    fn memory_bytes(rank: usize, shards: u64) -> u64 {
        size_of::<Self>() + list_bytes(rank) + list_bytes(0) + shards * size_of::<(u64, u64)>()
    }

    fn check(&self, limits: &Limits) -> Result<()> {
        check_limit("axes", self.grid.len() as u64, limits.rank_max as u64)?;
        let objects = self.grid.iter().try_fold(1_u64, |all, length| all.checked_mul(*length));
        let Some(objects) = objects.filter(|objects| i64::try_from(*objects).is_ok()) else {
            return Err(invalid(WHAT, format!("a grid of {:?}", self.grid)));
        };
        let is_ascending = self.shards.is_sorted_by(|one, next| one.0 < next.0);
        if !is_ascending || self.shards.last().is_some_and(|(number, _)| *number >= objects) {
            return Err(invalid(WHAT, "its numbers do not ascend within the grid"));
        }
        Ok(())
    }
}

impl SettledShards {
    /// The largest number of shards in a list; reading more would take too much memory.
    pub const COUNT_MAX: usize = 1 << 21;

    /// Returns the last commit that the shard at `coordinates` is known to contain.
    pub fn commit_of(&self, key: &[u8; 16], coordinates: &[u64]) -> Option<u64> {
        let at = self.arrays.binary_search_by_key(key, |array| array.key).ok()?;
        let array = &self.arrays[at];
        let number = array.number(coordinates)?;
        let at = array.shards.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(array.shards[at].1)
    }

    /// Merges the list with a later one, whose grids replace the older grids. Beyond
    /// [`SettledShards::COUNT_MAX`] shards, the ones with the oldest commits are dropped.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let mut arrays: std::collections::BTreeMap<[u8; 16], SettledArray> =
            other.arrays.into_iter().map(|array| (array.key, array)).collect();
        for old in self.arrays {
            match arrays.get_mut(&old.key) {
                Some(array) => array.add_all(&old),
                None => drop(arrays.insert(old.key, old)),
            }
        }
        let mut all = Self { arrays: arrays.into_values().collect() };
        let mut commits: Vec<u64> =
            all.arrays.iter().flat_map(|array| array.shards.iter().map(|shard| shard.1)).collect();
        if let Some(over) = commits.len().checked_sub(Self::COUNT_MAX).filter(|over| *over > 0) {
            let (_, oldest, _) = commits.select_nth_unstable(over - 1);
            let oldest = *oldest;
            for array in &mut all.arrays {
                array.shards.retain(|(_, commit)| *commit > oldest);
            }
        }
        all.arrays.retain(|array| !array.shards.is_empty());
        all
    }

    fn check(&self, limits: &Limits) -> Result<()> {
        let count = self.arrays.iter().map(|array| array.shards.len() as u64).sum();
        check_limit("settled shards", count, Self::COUNT_MAX as u64)?;
        if !self.arrays.is_sorted_by(|one, next| one.key < next.key) {
            return Err(invalid(WHAT, "its arrays are not in the order of their keys"));
        }
        self.arrays.iter().try_for_each(|array| array.check(limits))
    }

    /// Encodes the list; the module header has the layout.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the list is over the limits or invalid.
    pub fn encode(&self, limits: &Limits) -> Result<Vec<u8>> {
        self.check(limits)?;
        let mut bytes = Vec::new();
        write_varint(VERSION, &mut bytes);
        write_varint(self.arrays.len() as u64, &mut bytes);
        self.arrays.iter().for_each(|array| bytes.extend_from_slice(&array.key));
        write_column(self.arrays.iter().map(|array| array.grid.len() as u64), &mut bytes);
        write_column(self.arrays.iter().map(|array| array.shards.len() as u64), &mut bytes);
        write_column(self.arrays.iter().flat_map(|array| array.grid.iter().copied()), &mut bytes);
        let shards = || self.arrays.iter().flat_map(|array| array.shards.iter());
        write_column(shards().map(|(number, _)| *number), &mut bytes);
        write_column(shards().map(|(_, commit)| *commit), &mut bytes);
        check_limit("bytes of settled shards", bytes.len() as u64, limits.index_bytes_max)?;
        Ok(bytes)
    }

    /// Decodes a list.
    ///
    /// # Errors
    /// [`LogError`](super::LogError) if the bytes are damaged, of a newer version, over the limits,
    /// or invalid.
    pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let mut reader = ColumnReader::new(bytes);
        check_version(WHAT, reader.number(WHAT)?, VERSION)?;
        check_limit("bytes of settled shards", bytes.len() as u64, limits.index_bytes_max)?;
        let mut budget = DecodeBudget::new(bytes.len());
        let count = reader.number(WHAT)?;
        let capacity = budget.charge(count, SettledArray::memory_bytes(0, 0))?;
        let keys = reader.pieces::<16>(count, WHAT)?;
        let (mut ranks, mut counts) = (reader.column(count, WHAT)?, reader.column(count, WHAT)?);
        let mut arrays = Vec::with_capacity(capacity);
        let (mut axes, mut all) = (0, 0);
        for key in keys {
            let (rank, shards) = (ranks.next()?, counts.next()?);
            check_limit("axes", rank, limits.rank_max as u64)?;
            check_limit("settled shards", shards, Self::COUNT_MAX as u64)?;
            let grid = vec![0; budget.charge(rank, 8)?];
            let shards_here = budget.charge(shards, size_of::<(u64, u64)>())?;
            arrays.push(SettledArray { key: *key, grid, shards: vec![(0, 0); shards_here] });
            (axes, all) = (axes + rank, all + shards);
        }
        ranks.finish()?;
        counts.finish()?;
        let mut lengths = reader.column(axes, WHAT)?;
        for length in arrays.iter_mut().flat_map(|array| &mut array.grid) {
            *length = lengths.next()?;
        }
        lengths.finish()?;
        let (mut numbers, mut commits) = (reader.column(all, WHAT)?, reader.column(all, WHAT)?);
        for shard in arrays.iter_mut().flat_map(|array| &mut array.shards) {
            *shard = (numbers.next()?, commits.next()?);
        }
        numbers.finish()?;
        commits.finish()?;
        reader.finish(WHAT)?;
        let list = Self { arrays };
        list.check(limits)?;
        Ok(list)
    }
}
