//! Queries in a trace: equal conditions over equal regions of an array, counted.

use super::{RANK_MAX, TraceReader};
use crate::log::varint::write_varint;

/// Largest number of different queries in a block.
pub const BLOCK_QUERIES_MAX: usize = 256;
/// Largest length of a condition in bytes.
pub const CONDITION_BYTES_MAX: usize = 512;

/// The kind of result of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QueryResultKind {
    /// Numbers of matching elements.
    Count,
    /// Whether any element matches.
    Any,
    /// Positions of matching elements.
    Points,
    /// Values at matching elements.
    Values,
    /// A mask of the region.
    Mask,
    /// Statistics of values.
    Statistics,
    /// A histogram of values.
    Histogram,
    /// Positions and values, in batches.
    Batches,
}

impl QueryResultKind {
    /// All kinds, each at its number in a trace.
    pub const ALL: [Self; 8] = [
        Self::Count,
        Self::Any,
        Self::Points,
        Self::Values,
        Self::Mask,
        Self::Statistics,
        Self::Histogram,
        Self::Batches,
    ];

    /// Returns the name of the kind, as in the knowledge document.
    ///
    /// ```
    /// use bedform_format::trace::query::QueryResultKind;
    ///
    /// let names = QueryResultKind::ALL.map(QueryResultKind::name);
    /// assert_eq!(names[..3], ["count", "any", "points"]);
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Any => "any",
            Self::Points => "points",
            Self::Values => "values",
            Self::Mask => "mask",
            Self::Statistics => "statistics",
            Self::Histogram => "histogram",
            Self::Batches => "batches",
        }
    }
}

/// The part of a query by which equal queries are recognized.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TracedCondition {
    /// The condition in Python's form, with paths of arrays as names. Empty if it is longer than
    /// [`CONDITION_BYTES_MAX`], or if there were too many others.
    pub text: String,
    /// True if stored values were compared, and not decoded ones.
    pub is_stored: bool,
    /// The kind of result.
    pub result: QueryResultKind,
    /// First position and length of the region, along each axis of the array.
    pub region: Vec<(u64, u64)>,
}

/// Queries with one condition, region and kind of result, by their use of one array.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracedQuery {
    /// The condition, region and kind of result.
    pub condition: TracedCondition,
    /// Their numbers.
    pub tally: QueryTally,
}

/// Sums over equal queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct QueryTally {
    /// Number of queries.
    pub queries: u64,
    /// Bytes of the array's elements that they read.
    pub bytes: u64,
    /// Number of matching elements.
    pub matched: u64,
    /// Number of blocks of the region.
    pub blocks: u64,
    /// Number of blocks whose elements the condition did not read.
    pub blocks_left_out: u64,
    /// Total duration in nanoseconds.
    pub took_ns: u64,
    /// Start of the last query, in nanoseconds since 1970.
    pub last_ns: u64,
}

impl QueryTally {
    /// Adds the queries of another tally.
    pub fn add(&mut self, other: &Self) {
        let last_ns = self.last_ns.max(other.last_ns);
        let sums = self.numbers().into_iter().zip(other.numbers());
        let mut sums = sums.map(|(one, other)| one.saturating_add(other));
        let mut next = || sums.next().unwrap_or_default();
        *self = Self {
            queries: next(),
            bytes: next(),
            matched: next(),
            blocks: next(),
            blocks_left_out: next(),
            took_ns: next(),
            last_ns,
        };
    }

    fn numbers(&self) -> [u64; 7] {
        let Self { queries, bytes, matched, blocks, blocks_left_out, took_ns, last_ns } = *self;
        [queries, bytes, matched, blocks, blocks_left_out, took_ns, last_ns]
    }
}

/// True if the queries of a block of this rank keep the limits.
pub(super) fn fit(queries: &[TracedQuery], rank: usize) -> bool {
    let fits = |TracedQuery { condition, .. }: &TracedQuery| {
        condition.text.len() <= CONDITION_BYTES_MAX && condition.region.len() == rank
    };
    queries.len() <= BLOCK_QUERIES_MAX && queries.iter().all(fits)
}

/// Appends the queries of a block.
pub(super) fn write(queries: &[TracedQuery], bytes: &mut Vec<u8>) {
    write_varint(queries.len() as u64, bytes);
    for TracedQuery { condition: TracedCondition { text, is_stored, result, region }, tally } in
        queries
    {
        let number = QueryResultKind::ALL.iter().position(|kind| kind == result).unwrap_or(0);
        write_varint(text.len() as u64, bytes);
        bytes.extend(text.as_bytes());
        for number in [u64::from(*is_stored), number as u64] {
            write_varint(number, bytes);
        }
        for (first, count) in region {
            write_varint(*first, bytes);
            write_varint(*count, bytes);
        }
        tally.numbers().into_iter().for_each(|number| write_varint(number, bytes));
    }
}

/// Reads the queries of a block of an array with `rank` axes.
pub(super) fn read(rest: &mut TraceReader<'_>, rank: usize) -> Option<Vec<TracedQuery>> {
    debug_assert!(rank <= RANK_MAX);
    let count = rest.count(BLOCK_QUERIES_MAX)?;
    (0..count).map(|_| read_one(rest, rank)).collect()
}

fn read_one(rest: &mut TraceReader<'_>, rank: usize) -> Option<TracedQuery> {
    let length = rest.count(CONDITION_BYTES_MAX)?;
    let text = std::str::from_utf8(rest.bytes(length)?).ok()?.to_owned();
    let is_stored = rest.count(1)? == 1;
    let result = *QueryResultKind::ALL.get(rest.count(QueryResultKind::ALL.len())?)?;
    let mut number = || rest.number();
    let region = (0..rank).map(|_| Some((number()?, number()?))).collect::<Option<Vec<_>>>()?;
    let tally = QueryTally {
        queries: number()?,
        bytes: number()?,
        matched: number()?,
        blocks: number()?,
        blocks_left_out: number()?,
        took_ns: number()?,
        last_ns: number()?,
    };
    let condition = TracedCondition { text, is_stored, result, region };
    Some(TracedQuery { condition, tally })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str, result: QueryResultKind) -> TracedQuery {
        let region = vec![(3, 7), (0, u64::MAX)];
        TracedQuery {
            condition: TracedCondition { text: text.into(), is_stored: false, result, region },
            tally: QueryTally { queries: 2, bytes: 1 << 40, last_ns: 9, ..QueryTally::default() },
        }
    }

    fn read_again(bytes: &[u8]) -> Option<Vec<TracedQuery>> {
        read(&mut TraceReader(bytes), 2)
    }

    #[test]
    fn queries_of_each_kind_of_result_are_read_again() {
        let all = QueryResultKind::ALL.map(|kind| query("`a/b` > 3", kind));
        let mut bytes = Vec::new();
        write(&all, &mut bytes);
        assert_eq!(read_again(&bytes), Some(all.to_vec()));
        for cut in 0..bytes.len() {
            assert_eq!(read_again(&bytes[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn queries_beyond_the_limits_are_not_made_and_not_believed() {
        let long = query(&"t".repeat(CONDITION_BYTES_MAX + 1), QueryResultKind::Any);
        assert!(!fit(std::slice::from_ref(&long), 2));
        assert!(!fit(&vec![query("t", QueryResultKind::Any); BLOCK_QUERIES_MAX + 1], 2));
        assert!(!fit(&[query("t", QueryResultKind::Any)], 3));
        let mut bytes = Vec::new();
        write(&[long], &mut bytes);
        assert_eq!(read_again(&bytes), None);
        // A kind of result of a later version, and a count without entries.
        assert_eq!(read_again(&[1, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]), None);
        assert_eq!(read_again(&[0x80, 2]), None);
    }

    #[test]
    fn tallies_add_up_to_the_largest_number_and_keep_the_last_start() {
        let mut sum = QueryTally { bytes: u64::MAX - 1, last_ns: 5, ..QueryTally::default() };
        sum.add(&QueryTally { queries: 1, bytes: 7, last_ns: 4, ..QueryTally::default() });
        assert_eq!((sum.queries, sum.bytes, sum.last_ns), (1, u64::MAX, 5));
    }
}
