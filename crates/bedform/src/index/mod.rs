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
//! index/g/t/groups/00000003/          a plain Zarr v3 group: minimum, maximum, missing
//! index/g/t/bins/00000002/            level two: a plain Zarr v3 group with the array `numbers`
//! ```
//!
//! The record ([`IndexRecord`]) lists the objects of the source with their versions, and a
//! fingerprint of each page. A page is a box of blocks, and one chunk of each of the three arrays.
//! A lost or replaced chunk would read as the fill value: the fingerprint tells.
//!
//! Level two is optional: an array of the source's shape with the number of the bin of each element,
//! and in the group of level one two arrays more, the number of elements in each bin and a checksum
//! of each block. Of edges that a sample gave, level two has the values in the outermost bins, too,
//! a row for each page. Its pages are renewed in place. While a record of other bytes is the newest, the
//! checksums make such blocks unknown.
//!
//! `array/index` opens the index of an [`Array`](crate::Array) and compares the objects; `indexing`
//! builds it.
//!
//! | module | holds |
//! |---|---|
//! | `grid` | the division of an array into blocks |
//! | `bins` | edges of bins, and the number of the bin of each element |
//! | `fold` | least and greatest values and missing elements of runs of elements |
//! | `record` | the record as a helper file, and its place |
//! | `level_one` | the arrays with an element for each block, read page by page |
//! | `level_two` | the array of the bins of all elements, read block by block, and the tails |

mod bins;
mod fold;
mod grid;
mod level_one;
mod level_two;
mod record;

pub(crate) use bedform_format::index::{
    EDGES_MAX, INDEXED_OBJECTS_MAX, IndexRecord, MISSING_BIN, TAILED_BLOCK_MAX, UNKNOWN_BIN,
    page_fingerprint,
};
pub(crate) use bins::{BinEdges, TAIL_SHARE};
pub(crate) use fold::{BlockFold, FoldedPart, ITEM_MAX, RangeFold, each_run, put_box};
pub(crate) use grid::BlockGrid;
pub(crate) use level_one::{BlockBins, EachRange, LevelOne, described_arrays};
pub(crate) use level_two::{BlockTails, LevelTwo, NUMBERS, POSITION_TYPE, TAIL_NAMES, tail_room};
pub(crate) use record::{BINS, CATALOGUE, GROUPS, directory_of, newest_record};
