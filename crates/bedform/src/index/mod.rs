//! The value index: for blocks of an array the least and greatest value, and the count of missing
//! ones.
//!
//! # Promises
//!
//! - The range of a block is that of its elements at the moment of the reader. It is known only if
//!   each object with some of them has the recorded version, no later commit lies over it, and the
//!   array has the same metadata, missing values, and extent of the block.
//! - An index that is damaged, old, or of another array counts as none. Losing it costs only speed.
//! - An index counts from the moment at which a record names it. An unnamed directory is unfinished
//!   or replaced.
//!
//! # How it works
//!
//! The index of the array `g/t` lies in its source's [sidecar](crate::sidecar), in `index/g/t`:
//!
//! ```text
//! index/g/t/catalogue/00000003        the record of the index, in generations
//! index/g/t/level1/00000003/          a plain Zarr v3 group: minimum, maximum, missing
//! ```
//!
//! The record ([`IndexRecord`]) lists the objects of the source with their versions, and a
//! fingerprint of each page. A page is a box of blocks, and one chunk of each of the three arrays.
//! A lost or replaced chunk would read as the fill value: the fingerprint tells.
//!
//! `array/index` opens the index of an [`Array`](crate::Array) and compares the objects; `indexing`
//! builds it.
//!
//! | module | holds |
//! |---|---|
//! | `grid` | the division of an array into blocks |
//! | `fold` | least and greatest values and missing elements of runs of elements |
//! | `record` | the record as a helper file, and its place |
//! | `level_one` | the three arrays, read page by page |

mod fold;
mod grid;
mod level_one;
mod record;

pub(crate) use bedform_format::index::{INDEXED_OBJECTS_MAX, IndexRecord, page_fingerprint};
pub(crate) use fold::{BlockFold, FoldedPart, RangeFold};
pub(crate) use grid::BlockGrid;
pub(crate) use level_one::{ARRAY_NAMES, LevelOne, MISSING_TYPE};
pub(crate) use record::{CATALOGUE, LEVEL_ONE, directory_of, newest_record};
