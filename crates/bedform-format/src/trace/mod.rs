//! Traces: records of the reads of a process from the arrays of a store or file.
//!
//! A trace file is a sequence of **blocks**; each records reads of one array:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `BfTr` |
//! | 4 | length of the rest, without the checksum, little-endian |
//! | 4 | CRC-32C of the rest |
//! | rest | version 4, weight, source, array, columns, replicas, queries: varints and [columns](crate::log::varint) |
//!
//! Equal steps take a few bytes at any number, so most of a trace is times. A process appends
//! blocks; a reader ignores a block that a crash has cut off. After a damaged block, all further
//! blocks are ignored, since the length of the damaged one may be wrong. Earlier versions can be
//! read: 1 has no computations, 1 and 2 have no selections and no replicas, 1 to 3 no queries.
//!
//! For a read of lists or points, a block has the bounding box and the [content
//! hash](selection::TracedSelection) of the selection. A separate file next to the trace holds each
//! distinct selection once.
//!
//! [`query`] is the record of queries by value: each condition once in a block, with its count.
//!
//! [`knowledge`] is the document into which traces are merged.

pub mod knowledge;
pub mod query;
pub mod selection;

use self::query::TracedQuery;
use crate::checksum::crc32c;
use crate::log::varint::{
    decode_column, encode_column, read_varint, unzigzag, write_varint, zigzag,
};

const MAGIC: &[u8; 4] = b"BfTr";
const HEAD: usize = 12;
const VERSION: u64 = 4;
/// The last version whose reads have no computation.
const VERSION_WITHOUT_COMPUTATIONS: u64 = 1;
/// The last version without selections and replicas.
const VERSION_WITHOUT_SELECTIONS: u64 = 2;
/// The last version without queries.
const VERSION_WITHOUT_QUERIES: u64 = 3;
/// Largest length of a block in bytes.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Largest number of reads in a block.
pub const BLOCK_READS_MAX: usize = 4096;
const RANK_MAX: usize = 32;
const PATH_BYTES_MAX: usize = 4096;
/// Largest number of replicas in a block.
pub const BLOCK_REPLICAS_MAX: usize = 1024;
const REPLICA_BYTES_MAX: usize = 64;

/// An array, as described in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracedArray {
    /// Path in the store or file.
    pub path: String,
    /// Length of each axis in elements.
    pub shape: Vec<u64>,
    /// Length of an element in bytes.
    pub item_size: u64,
}

/// The positions of a read along one axis: `count` positions from `first` on, `step` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TracedAxis {
    /// The first position.
    pub first: u64,
    /// Number of positions.
    pub count: u64,
    /// Distance between positions.
    pub step: i64,
}

/// A recorded read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TracedRead {
    /// Number of the thread or task that made the read, within the process.
    pub stream: u64,
    /// Number of the computation to which the read belongs; for the user, all reads of a
    /// computation are one. 0 if the read is independent.
    pub computation: u64,
    /// Start of the read, in nanoseconds since 1970.
    pub began_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Length of the result in bytes.
    pub bytes: u64,
    /// True if the elements were already prefetched.
    pub was_ahead: bool,
    /// True for lists of positions and for points; `axes` is then the bounding box.
    pub is_list: bool,
    /// Content hash of the selection; 0 if the axes describe it, or if it is unknown.
    pub selection: u64,
    /// Positions along each axis.
    pub axes: Vec<TracedAxis>,
}

/// The use of one replica by the reads of one array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TracedReplica {
    /// Name of the replica.
    pub id: String,
    /// Number of reads that took elements from it.
    pub reads: u64,
    /// Bytes taken from it.
    pub bytes: u64,
    /// Total duration of these reads in nanoseconds.
    pub took_ns: u64,
    /// Start of the last of these reads, in nanoseconds since 1970.
    pub last_ns: u64,
}

/// A block of a trace: reads of one array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceBlock {
    /// Identity of the store or file, if it has one; otherwise zeros.
    pub source: [u8; 16],
    /// Number of reads for which each record stands: 1, unless there were too many to record.
    pub weight: u64,
    /// The array.
    pub array: TracedArray,
    /// The reads, in the order of their starts in the process.
    pub reads: Vec<TracedRead>,
    /// The use of replicas since the last block that lists it.
    pub replicas: Vec<TracedReplica>,
    /// The queries since the last block that lists some, each condition once.
    pub queries: Vec<TracedQuery>,
}

impl TraceBlock {
    /// Encodes the block; `None` if it exceeds a limit.
    ///
    /// ```
    /// use bedform_format::trace::{TraceBlock, TracedArray, TracedAxis, TracedRead, blocks};
    ///
    /// let read = |at| TracedRead {
    ///     stream: 1,
    ///     computation: 0,
    ///     began_ns: 1_000_000 + 5000 * at,
    ///     took_ns: 700,
    ///     bytes: 32,
    ///     was_ahead: at > 3,
    ///     is_list: false,
    ///     selection: 0,
    ///     axes: vec![TracedAxis { first: at, count: 1, step: 1 }, TracedAxis { first: 0, count: 8, step: 1 }],
    /// };
    /// let block = TraceBlock {
    ///     source: [7; 16],
    ///     weight: 1,
    ///     array: TracedArray { path: "t".into(), shape: vec![4096, 8], item_size: 4 },
    ///     reads: (0..4000).map(read).collect(),
    ///     replicas: Vec::new(),
    ///     queries: Vec::new(),
    /// };
    /// let bytes = block.encode().unwrap();
    /// assert!(bytes.len() < 200);
    /// assert_eq!(blocks(&bytes).collect::<Vec<_>>(), [block]);
    /// ```
    pub fn encode(&self) -> Option<Vec<u8>> {
        let TracedArray { path, shape, item_size } = &self.array;
        let rank = shape.len();
        let fits = self.reads.len() <= BLOCK_READS_MAX
            && rank <= RANK_MAX
            && path.len() <= PATH_BYTES_MAX
            && self.replicas.len() <= BLOCK_REPLICAS_MAX
            && self.replicas.iter().all(|replica| replica.id.len() <= REPLICA_BYTES_MAX)
            && query::fit(&self.queries, rank)
            && self.reads.iter().all(|read| read.axes.len() == rank);
        if !fits {
            return None;
        }
        let mut bytes = [MAGIC.as_slice(), &[0; HEAD - 4]].concat();
        for number in [VERSION, self.weight, path.len() as u64] {
            write_varint(number, &mut bytes);
        }
        bytes.extend(self.source);
        bytes.extend(path.as_bytes());
        for number in [*item_size, rank as u64].iter().chain(shape) {
            write_varint(*number, &mut bytes);
        }
        write_varint(self.reads.len() as u64, &mut bytes);
        let mut column = |value: &dyn Fn(&TracedRead) -> u64| {
            let column = encode_column(&self.reads.iter().map(value).collect::<Vec<_>>());
            write_varint(column.len() as u64, &mut bytes);
            bytes.extend(column);
        };
        column(&|read| read.stream);
        column(&|read| read.began_ns);
        column(&|read| read.took_ns);
        column(&|read| read.bytes);
        column(&|read| u64::from(read.was_ahead) | u64::from(read.is_list) << 1);
        column(&|read| read.computation);
        column(&|read| read.selection);
        for axis in 0..rank {
            column(&|read| read.axes[axis].first);
            column(&|read| read.axes[axis].count);
            column(&|read| zigzag(read.axes[axis].step));
        }
        write_varint(self.replicas.len() as u64, &mut bytes);
        for TracedReplica { id, reads, bytes: taken, took_ns, last_ns } in &self.replicas {
            write_varint(id.len() as u64, &mut bytes);
            bytes.extend(id.as_bytes());
            for number in [*reads, *taken, *took_ns, *last_ns] {
                write_varint(number, &mut bytes);
            }
        }
        query::write(&self.queries, &mut bytes);
        framed(bytes, BLOCK_BYTES_MAX)
    }
}

/// Fills length and checksum into the head of a block; `None` if it is longer than `most` bytes.
fn framed(mut bytes: Vec<u8>, most: usize) -> Option<Vec<u8>> {
    let length = u32::try_from(bytes.len() - HEAD).ok()?;
    let sum = crc32c(&bytes[HEAD..]);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..HEAD].copy_from_slice(&sum.to_le_bytes());
    (bytes.len() <= most).then_some(bytes)
}

/// Returns the blocks at the start of `bytes`, up to the first that is damaged, cut off or of an
/// unknown version.
pub fn blocks(bytes: &[u8]) -> impl Iterator<Item = TraceBlock> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (block, behind) = split(rest, MAGIC, BLOCK_BYTES_MAX)?;
        rest = behind;
        decode(block)
    })
}

/// Returns the length in bytes of the complete blocks at the start of `bytes`.
pub fn whole_bytes(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((_, behind)) = split(rest, MAGIC, BLOCK_BYTES_MAX) {
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// Splits off a block and verifies its checksum; returns its payload and the bytes after it.
fn split<'a>(bytes: &'a [u8], magic: &[u8; 4], most: usize) -> Option<(&'a [u8], &'a [u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = usize::try_from(number(4)).ok()?;
    if &head[..4] != magic || length > most {
        return None;
    }
    let (block, behind) = rest.split_at_checked(length)?;
    (crc32c(block) == number(8)).then_some((block, behind))
}

/// The remaining bytes of a block.
struct TraceReader<'a>(&'a [u8]);

impl<'a> TraceReader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = read_varint(self.0).ok()?;
        self.0 = rest;
        Some(number)
    }

    /// Reads a number of at most `most`.
    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= most)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn column(&mut self, count: usize) -> Option<Vec<u64>> {
        let length = self.count(self.0.len())?;
        decode_column(self.bytes(length)?, count).ok()
    }
}

fn decode(block: &[u8]) -> Option<TraceBlock> {
    let mut rest = TraceReader(block);
    let version = rest.number()?;
    if !(1..=VERSION).contains(&version) {
        return None;
    }
    let weight = rest.number()?.max(1);
    let path_bytes = rest.count(PATH_BYTES_MAX)?;
    let source = rest.bytes(16)?.try_into().ok()?;
    let path = std::str::from_utf8(rest.bytes(path_bytes)?).ok()?.to_owned();
    let (item_size, rank) = (rest.number()?, rest.count(RANK_MAX)?);
    let shape = (0..rank).map(|_| rest.number()).collect::<Option<Vec<_>>>()?;
    let count = rest.count(BLOCK_READS_MAX)?;
    let mut columns =
        |number: usize| (0..number).map(|_| rest.column(count)).collect::<Option<Vec<Vec<u64>>>>();
    let of_all = columns(5)?;
    let computations = columns(usize::from(version > VERSION_WITHOUT_COMPUTATIONS))?;
    let selections = columns(usize::from(version > VERSION_WITHOUT_SELECTIONS))?;
    let of_axes = columns(3 * rank)?;
    let read = |at: usize| TracedRead {
        stream: of_all[0][at],
        computation: computations.first().map_or(0, |of| of[at]),
        began_ns: of_all[1][at],
        took_ns: of_all[2][at],
        bytes: of_all[3][at],
        was_ahead: of_all[4][at] & 1 != 0,
        is_list: of_all[4][at] & 2 != 0,
        selection: selections.first().map_or(0, |of| of[at]),
        axes: (0..rank)
            .map(|axis| TracedAxis {
                first: of_axes[3 * axis][at],
                count: of_axes[3 * axis + 1][at],
                step: unzigzag(of_axes[3 * axis + 2][at]),
            })
            .collect(),
    };
    let reads = (0..count).map(read).collect();
    let replicas = match version > VERSION_WITHOUT_SELECTIONS {
        true => replicas_of(&mut rest)?,
        false => Vec::new(),
    };
    let queries = match version > VERSION_WITHOUT_QUERIES {
        true => query::read(&mut rest, rank)?,
        false => Vec::new(),
    };
    let array = TracedArray { path, shape, item_size };
    Some(TraceBlock { source, weight, array, reads, replicas, queries })
}

fn replicas_of(rest: &mut TraceReader<'_>) -> Option<Vec<TracedReplica>> {
    let count = rest.count(BLOCK_REPLICAS_MAX)?;
    let replica = |_| {
        let length = rest.count(REPLICA_BYTES_MAX)?;
        let id = std::str::from_utf8(rest.bytes(length)?).ok()?.to_owned();
        let mut number = || rest.number();
        let (reads, bytes, took_ns, last_ns) = (number()?, number()?, number()?, number()?);
        Some(TracedReplica { id, reads, bytes, took_ns, last_ns })
    };
    (0..count).map(replica).collect()
}

#[cfg(test)]
mod tests {
    use super::query::{QueryResultKind, QueryTally, TracedCondition};
    use super::*;

    fn block(count: u64) -> TraceBlock {
        let read = |at: u64| TracedRead {
            stream: at % 3,
            computation: (at / 4).wrapping_mul(u64::MAX / 7),
            began_ns: at * 1_000_003,
            took_ns: at * at % 977,
            bytes: 64,
            was_ahead: at.is_multiple_of(2),
            is_list: at.is_multiple_of(5),
            selection: if at.is_multiple_of(5) { u64::MAX - at % 2 } else { 0 },
            axes: vec![TracedAxis { first: at, count: 4, step: -2 }; 2],
        };
        TraceBlock {
            source: [1; 16],
            weight: 4,
            array: TracedArray { path: "a/b".into(), shape: vec![9, 9], item_size: 4 },
            reads: (0..count).map(read).collect(),
            replicas: vec![TracedReplica { id: "r1".into(), reads: 3, ..TracedReplica::default() }],
            queries: vec![TracedQuery {
                condition: TracedCondition {
                    text: "`a/b` > 3".into(),
                    is_stored: true,
                    result: QueryResultKind::Points,
                    region: vec![(1, 8), (0, 9)],
                },
                tally: QueryTally { queries: count, blocks: 4, ..QueryTally::default() },
            }],
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_ends_a_trace_and_what_is_before_counts() {
        let one = block(10).encode().unwrap();
        let both = [one.clone(), block(7).encode().unwrap()].concat();
        assert_eq!(blocks(&both).collect::<Vec<_>>(), [block(10), block(7)]);
        assert_eq!(whole_bytes(&both), both.len());
        for cut in 0..both.len() {
            let expected = usize::from(cut >= one.len());
            assert_eq!(blocks(&both[..cut]).count(), expected, "{cut}");
            assert_eq!(whole_bytes(&both[..cut]), expected * one.len());
        }
        for at in 0..one.len() {
            let mut damaged = both.clone();
            damaged[at] ^= 0x10;
            assert_eq!(blocks(&damaged).count(), 0, "{at}");
        }
    }

    #[test]
    fn blocks_of_the_first_version_have_reads_without_a_computation_and_later_versions_are_none() {
        // Two reads of an array `t` of 9 elements of 4 bytes: columns of equal steps.
        let mut payload = vec![1, 1, 1];
        payload.extend([0; 16]);
        payload.extend([b't', 4, 1, 9, 2]);
        for column in [[7, 7], [1000, 2000], [30, 40], [4, 4], [0, 1], [3, 4], [1, 1], [2, 2]] {
            let column = encode_column(&column);
            write_varint(column.len() as u64, &mut payload);
            payload.extend(column);
        }
        let read = |at: u64| TracedRead {
            stream: 7,
            computation: 0,
            began_ns: 1000 + 1000 * at,
            took_ns: 30 + 10 * at,
            bytes: 4,
            was_ahead: at == 1,
            is_list: false,
            selection: 0,
            axes: vec![TracedAxis { first: 3 + at, count: 1, step: 1 }],
        };
        assert_eq!(decode(&payload).unwrap().reads, [read(0), read(1)]);
        payload[0] = 5;
        assert_eq!(decode(&payload), None);
    }

    #[test]
    fn blocks_beyond_the_limits_are_not_made_and_not_believed() {
        assert!(block(BLOCK_READS_MAX as u64 + 1).encode().is_none());
        let mut odd = block(3);
        odd.reads[1].axes.pop();
        assert!(odd.encode().is_none());
        let mut named = block(3);
        named.replicas[0].id = "r".repeat(65);
        assert!(named.encode().is_none());
        named.replicas = vec![TracedReplica::default(); BLOCK_REPLICAS_MAX + 1];
        assert!(named.encode().is_none());
        // A count larger than any column.
        let mut payload = vec![2, 1, 0];
        payload.extend([0; 16]);
        payload.extend([4, 0, 0xff, 0x1f]);
        assert!(decode(&payload).is_none());
    }
}
