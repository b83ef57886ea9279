//! Types of the log beside a store, and their encoding; `docs/format.md` describes the bytes.
//!
//! Everything here is pure: no I/O and no compression. Callers compress an encoded body and prefix
//! it with a [`Sealed`] head. A decoder returns only valid values: indexes point into their lists,
//! boxes lie in their arrays, sums do not overflow. Decoding takes at most 4 x the encoded bytes +
//! 64 MiB of memory, and an encoder refuses a value that would need more. Roots are JSON;
//! [`Limits`](crate::Limits) bounds their size and depth.
//!
//! | type | meaning |
//! |---|---|
//! | [`RecordHead`] | the 32 bytes before every record of a segment |
//! | [`SegmentHeader`] | the first record of a segment: store, session and writer |
//! | [`SegmentName`], [`Lanes`] | the name of a segment, and how several writers share one |
//! | [`Sealed`] | the head of a compressed body |
//! | [`Section`], [`SectionBuilder`] | the writes of one writer in one commit |
//! | [`Boxes`] | a selection of a section |
//! | [`Directory`] | the sections of a commit, and the part of each array that they touch |
//! | [`CommitId`] | the identity of a commit before it has a number |
//! | [`Promise`], [`PromiseFile`] | the commits that count before a root names them |
//! | [`Root`] | the commits that count, in order |
//! | [`Table`], [`TableIndex`] | the parts of arrays that many commits touch, by array |
//! | [`SettledShards`] | the commits that settled shards contain |
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
pub use directory::{Directory, GrownArray, SectionPlace, TouchedArray, boxes_meet};
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

/// The reason why bytes of a log, or a value to encode, were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The magic number belongs to another format.
    #[error("not {what}: it begins with other bytes")]
    Foreign {
        /// The expected object, with its article.
        what: &'static str,
    },
    /// The bytes end too soon.
    #[error("cut short in {what}")]
    CutShort {
        /// The object that was being read.
        what: &'static str,
    },
    /// Bytes follow the end of the object.
    #[error("bytes are left behind {what}")]
    Trailing {
        /// The object that was read.
        what: &'static str,
    },
    /// Written by a newer version.
    #[error("{what} of version {found}; this version reads up to {supported}: use a newer one")]
    NewerVersion {
        /// The object with the version.
        what: &'static str,
        /// The version that the bytes name.
        found: u64,
        /// The newest version that this code reads.
        supported: u64,
    },
    /// The bytes have changed since they were written.
    #[error("checksum mismatch in {what}: expected {expected:08x}, found {found:08x}")]
    Checksum {
        /// The damaged object.
        what: &'static str,
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes that were read.
        found: u32,
    },
    /// More than [`Limits`](crate::Limits) allow.
    #[error("{found} {what}, over the limit of {limit}")]
    Limit {
        /// The counted items.
        what: &'static str,
        /// The number of items that the bytes claim.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// An impossible value.
    #[error("{what}: {problem}")]
    Invalid {
        /// The object with the value.
        what: &'static str,
        /// The rule that the value breaks.
        problem: String,
    },
    /// The section cannot take this write. Finish it and begin another; if the section was empty,
    /// write fewer boxes at once.
    #[error("the section is full: begin another, or write fewer boxes at once")]
    SectionFull,
    /// A root that is not JSON, is damaged, has a newer version, or has an impossible field.
    #[error(transparent)]
    Document(#[from] MetadataError),
}

type Result<T> = std::result::Result<T, LogError>;

fn invalid(what: &'static str, problem: impl Into<String>) -> LogError {
    LogError::Invalid { what, problem: problem.into() }
}

/// Bytes of memory that a decoder may take regardless of the encoded size.
const MEMORY_BASE: u64 = 64 << 20;
/// Bytes of memory that a decoder may take per encoded byte.
const MEMORY_FACTOR: u64 = 4;
/// Approximate overhead of the allocator per allocation, in bytes.
const ALLOCATION_BYTES: u64 = 16;

/// The memory that a decoder may still take; checked before every allocation.
#[derive(Debug)]
struct DecodeBudget {
    limit: u64,
    used: u64,
}

impl DecodeBudget {
    fn new(encoded_bytes: usize) -> Self {
        let limit = (encoded_bytes as u64).saturating_mul(MEMORY_FACTOR);
        Self { limit: limit.saturating_add(MEMORY_BASE), used: 0 }
    }

    /// Charges `count` items of `each` bytes to the budget, and returns `count` as a `usize`.
    fn charge(&mut self, count: u64, each: u64) -> Result<usize> {
        self.used = count.saturating_mul(each).saturating_add(self.used);
        let over = LogError::Limit { what: "bytes of memory", found: self.used, limit: self.limit };
        if self.used > self.limit {
            return Err(over);
        }
        usize::try_from(count).map_err(|_| over)
    }
}

/// The size of a value in bytes, without its heap memory.
const fn size_of<T>() -> u64 {
    std::mem::size_of::<T>() as u64
}

/// Heap memory of a list of `count` 8-byte numbers, in bytes.
fn list_bytes(count: usize) -> u64 {
    8 * count as u64 + ALLOCATION_BYTES
}

fn check_limit(what: &'static str, found: u64, limit: u64) -> Result<()> {
    if found > limit { Err(LogError::Limit { what, found, limit }) } else { Ok(()) }
}

/// Checks that this code reads the version of a record or body.
fn check_version(what: &'static str, found: u64, supported: u64) -> Result<()> {
    if found == 0 {
        return Err(invalid(what, "version 0"));
    }
    if found > supported {
        return Err(LogError::NewerVersion { what, found, supported });
    }
    Ok(())
}

/// Checks that a segment name is one path segment, so that it cannot name an object elsewhere.
fn check_segment_name(name: &str) -> Result<()> {
    let what = "the name of a segment";
    let path = ObjectPath::parse(name).map_err(|error| invalid(what, error.to_string()))?;
    if path.is_root() || path.name() != name {
        return Err(invalid(what, format!("expected one path segment, found {path:?}")));
    }
    Ok(())
}

/// Checks that the end of an extent of a segment fits 64 bits.
fn check_place(what: &'static str, place: Extent) -> Result<()> {
    let Extent { offset, length } = place;
    if offset.checked_add(length).is_none() {
        return Err(invalid(what, format!("bytes {offset} + {length} of a segment")));
    }
    Ok(())
}
