//! The log beside a store: its bytes, to types and back. `docs/format.md` has its layout.
//!
//! Everything here is pure. Bodies are encoded and decoded as they are before compression; whoever
//! does the I/O compresses them and wraps them up as [`Sealed`]. What a decoder accepts holds: indexes
//! point at something, boxes lie in their arrays, sums do not overflow. Nothing that is decoded takes
//! more memory than 4 x the bytes that it was given as + 64 MiB, whatever these say; nor is anything
//! encoded that would. Roots are JSON, and bounded as all such documents are.
//!
//! | type | is |
//! |---|---|
//! | [`RecordHead`] | the 32 bytes before every record of a segment |
//! | [`SegmentHeader`] | whose segment it is: the first record |
//! | [`SegmentName`], [`Lanes`] | the name of a segment, and how several writers share one |
//! | [`Sealed`] | what stands before a compressed body |
//! | [`Section`], [`SectionBuilder`] | what the data of one writer mean |
//! | [`Boxes`] | a selection of a section |
//! | [`Directory`] | the sections of a commit, and what they touch |
//! | [`CommitId`] | what tells commits apart before they have a number |
//! | [`Promise`], [`PromiseFile`] | the commits that count before a root knows them |
//! | [`Root`] | the commits that count |
//! | [`Table`], [`TableIndex`] | what many commits touch, by array |
//! | [`SettledShards`] | which commits shards contain for certain |
//! | [`varint`] | numbers and columns of numbers |

mod boxes;
mod builder;
mod commit_id;
mod directory;
mod lanes;
mod promises;
mod root;
mod section;
mod section_wire;
mod segment;
mod settled;
mod table;
#[cfg(test)]
mod tests;
pub mod varint;

pub use boxes::Boxes;
pub use builder::SectionBuilder;
pub use commit_id::CommitId;
pub use directory::{Directory, GrownArray, SectionPlace, Touched, boxes_meet};
pub use lanes::{LANE_BYTES, Lane, Lanes, STRIPE_BYTES, SegmentName};
pub use promises::{Promise, PromiseFile, PromisesHeader};
pub use root::{CommitRecord, Root, SettledRecord, TableRecord};
pub use section::{Block, Entry, Section, SectionArray};
pub use segment::{
    RecordHead, RecordKind, SEGMENT_ALIGNMENT, Sealed, SealedCodec, SegmentHeader, padded_bytes,
};
pub use settled::{SettledArray, SettledShards};
pub use table::{
    BLOCK_ITEMS_MAX, BlockKind, Table, TableBlock, TableGrowth, TableIndex, TableRow, TableSegment,
};

use crate::ObjectPath;
use crate::metadata::MetadataError;
use crate::shard::Extent;

/// Why bytes of a log were refused, or why something cannot become such bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The bytes are something else.
    #[error("not {what}: it begins with other bytes")]
    Foreign {
        /// What was expected, with its article.
        what: &'static str,
    },
    /// The bytes end too soon.
    #[error("cut short in {what}")]
    CutShort {
        /// What was being read.
        what: &'static str,
    },
    /// There are more bytes than belong there.
    #[error("bytes are left behind {what}")]
    Trailing {
        /// What had been read.
        what: &'static str,
    },
    /// Written by a newer version.
    #[error("{what} of version {found}; this version reads up to {supported}: use a newer one")]
    NewerVersion {
        /// What has the version.
        what: &'static str,
        /// The version that was found.
        found: u64,
        /// The newest that can be read.
        supported: u64,
    },
    /// The bytes have changed since they were written.
    #[error("checksum mismatch in {what}: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// What is damaged.
        what: &'static str,
        /// The checksum that was stored.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// More than [`Limits`](crate::Limits) allow.
    #[error("{found} {what}, over the limit of {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many are claimed.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A value that cannot be.
    #[error("{what}: {problem}")]
    Invalid {
        /// What has the value.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The section that is being built cannot take this write: finish it and begin another, or, if
    /// it was empty, write fewer boxes at once.
    #[error("the section is full: begin another, or write fewer boxes at once")]
    SectionFull,
    /// A root that is no document, damaged, of a newer version, or has a field that cannot be.
    #[error(transparent)]
    Document(#[from] MetadataError),
}

type Result<T> = std::result::Result<T, LogError>;

fn invalid(what: &'static str, problem: impl Into<String>) -> LogError {
    LogError::Invalid { what, problem: problem.into() }
}

/// Memory that a decoded body may take whatever its size.
const MEMORY_FREE: u64 = 64 << 20;
/// Memory that a decoded body may take for each of its bytes.
const MEMORY_FACTOR: u64 = 4;
/// What the allocator takes for itself with every allocation, about.
const ALLOCATION_BYTES: u64 = 16;

/// The memory that a decoder may still take: asked before every allocation.
#[derive(Debug)]
struct Budget {
    limit: u64,
    used: u64,
}

impl Budget {
    fn new(encoded_bytes: usize) -> Self {
        let limit = (encoded_bytes as u64).saturating_mul(MEMORY_FACTOR);
        Self { limit: limit.saturating_add(MEMORY_FREE), used: 0 }
    }

    /// Takes memory for `count` things of `each` bytes, and gives the count as one of this machine.
    fn charge(&mut self, count: u64, each: u64) -> Result<usize> {
        self.used = count.saturating_mul(each).saturating_add(self.used);
        let over = LogError::Limit { what: "bytes of memory", found: self.used, limit: self.limit };
        if self.used > self.limit {
            return Err(over);
        }
        usize::try_from(count).map_err(|_| over)
    }
}

/// Memory of a value on the stack or in a list.
const fn size_of<T>() -> u64 {
    std::mem::size_of::<T>() as u64
}

/// Memory of a list of `count` numbers, beside the list's own value.
fn list_bytes(count: usize) -> u64 {
    8 * count as u64 + ALLOCATION_BYTES
}

fn check_limit(what: &'static str, found: u64, limit: u64) -> Result<()> {
    if found > limit { Err(LogError::Limit { what, found, limit }) } else { Ok(()) }
}

/// Checks the version of a record or body.
fn check_version(what: &'static str, found: u64, supported: u64) -> Result<()> {
    if found == 0 {
        return Err(invalid(what, "version 0"));
    }
    if found > supported {
        return Err(LogError::NewerVersion { what, found, supported });
    }
    Ok(())
}

/// A name is used to open an object: it must be one segment that stays where it is put.
fn check_segment_name(name: &str) -> Result<()> {
    let what = "the name of a segment";
    let path = ObjectPath::parse(name).map_err(|error| invalid(what, error.to_string()))?;
    if path.is_root() || path.name() != name {
        return Err(invalid(what, format!("expected one path segment, found {path:?}")));
    }
    Ok(())
}

/// Where something lies in a segment: its end can be counted.
fn check_place(what: &'static str, place: Extent) -> Result<()> {
    let Extent { offset, length } = place;
    if offset.checked_add(length).is_none() {
        return Err(invalid(what, format!("bytes {offset} + {length} of a segment")));
    }
    Ok(())
}
