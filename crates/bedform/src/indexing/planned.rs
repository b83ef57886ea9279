//! The predicted size of an index, and the removal of indexes that `optimize` made.

use bedform_format::Limits;
use bedform_geometry::ChunkGrid;

use super::edges::{AutoBins, auto_bins};
use super::writing::IndexDirectory;
use crate::array::Array;
use crate::error::Result;
use crate::index::{BinEdges, TAIL_SHARE, newest_record};

/// Bytes of the count of missing elements, of the count of a bin, and of a checksum of a block.
const NUMBER_BYTES: u64 = 4;
/// Bytes of the position of an element in a block.
const POSITION_BYTES: u64 = 2;

/// The predicted bytes of an index that an array could have.
#[derive(Debug, Clone)]
pub(crate) struct IndexSize {
    /// The blocks of the array.
    pub(crate) grid: ChunkGrid,
    /// The bytes of level one.
    pub(crate) ranges: u64,
    /// Level two, if it pays.
    pub(crate) bins: Option<BinsSize>,
}

/// The predicted bytes of level two.
#[derive(Debug, Clone)]
pub(crate) struct BinsSize {
    pub(crate) edges: BinEdges,
    /// The bytes of the counts and checksums of blocks.
    pub(crate) counts: u64,
    /// The bytes of the numbers of the bins of all elements.
    pub(crate) numbers: u64,
    /// The bytes of the values in the outermost bins.
    pub(crate) tails: u64,
}

impl BinsSize {
    /// The bytes of level two.
    pub(crate) fn bytes(&self) -> u64 {
        self.counts.saturating_add(self.numbers).saturating_add(self.tails)
    }
}

impl IndexSize {
    /// Predicts the size by a sample of the elements; `None` for elements that are no numbers.
    ///
    /// # Errors
    /// Errors of reading.
    pub(crate) fn of(array: &Array) -> Result<Option<Self>> {
        let Some(form) = array.index_form()? else { return Ok(None) };
        let blocks = form.grid.chunk_count().unwrap_or(u64::MAX);
        let item = form.fold.data_type().item_size().unwrap_or(1) as u64;
        let bins = auto_bins(array, &form)?.map(|AutoBins { edges, share }| {
            let elements = super::raw_bytes(array)? / item.max(1);
            // A count for each bin and for missing elements, and two checksums.
            let of_block = (edges.bins() as u64 + 3) * NUMBER_BYTES;
            let tail_bytes = if edges.has_tails() { POSITION_BYTES + item } else { 0 };
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
            #[allow(clippy::cast_sign_loss)]
            let part = |share: f64, of: u64| (share * of as f64) as u64;
            Ok::<_, crate::Error>(BinsSize {
                counts: blocks.saturating_mul(of_block),
                numbers: part(share, array.stored_bytes()?),
                tails: part(TAIL_SHARE, elements).saturating_mul(tail_bytes),
                edges,
            })
        });
        let ranges = blocks.saturating_mul(2 * item + NUMBER_BYTES);
        Ok(Some(Self { grid: form.grid, ranges, bins: bins.transpose()? }))
    }
}

/// Removes the index of an array if `optimize` made it and no user has taken it over since. Returns
/// whether it did.
///
/// # Errors
/// As [`IndexDirectory::locked`].
pub(crate) fn remove_planned(array: &Array) -> Result<bool> {
    let directory = IndexDirectory::of(array)?;
    let _lock = directory.locked()?;
    let record = newest_record(directory.sidecar(), array.path(), &Limits::default());
    let is_planned = record.is_some_and(|(_, record)| record.planned);
    if is_planned {
        directory.remove();
    }
    Ok(is_planned)
}
