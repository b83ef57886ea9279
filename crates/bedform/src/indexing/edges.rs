//! The choice of the edges of an array's bins.

use bedform_geometry::{ChunkGrid, Selection, delinearize, element_count};

use crate::array::Array;
use crate::array::index::{IndexForm, ValueIndex};
use crate::error::{Error, Result};
use crate::index::{BinEdges, EDGES_MAX, TAILED_BLOCK_MAX};
use crate::plan::spread::spread;
use crate::query::{decoded_ends, stored_edge};

/// The bins that `Auto` makes.
const AUTO_BINS: usize = 20;
/// `Auto` makes bins if their numbers take at most this share of the stored array.
const AUTO_SHARE: f64 = 0.15;
/// Boxes of a sample, elements of each, and bytes that are read for it. Tails need many boxes: in a
/// smooth field they lie in few places.
const SAMPLE_BOXES: u64 = 192;
const SAMPLE_ELEMENTS: u64 = 8 << 10;
const SAMPLE_BYTES: u64 = 64 << 20;

/// The bins of level two of an index.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum BinChoice {
    /// Those of the present index; none without one.
    #[default]
    Present,
    /// None: level one alone.
    None,
    /// 20 bins of about as many values each, if their numbers take at most 15 % of the bytes that
    /// the array takes in storage.
    Auto,
    /// So many bins of about as many values each, the outer two at each end with fewer.
    Count(usize),
    /// So many bins of equal width between the least and the greatest value of a sample.
    Width(usize),
    /// The decoded values between bins.
    Edges(Vec<f64>),
}

/// Returns the edges of the bins that an array gets.
///
/// # Errors
/// `InvalidArgument` for numbers of bins and edges that no bins can have; errors of reading.
pub(super) fn chosen(
    choice: &BinChoice,
    array: &Array,
    form: &IndexForm,
    old: Option<&ValueIndex>,
) -> Result<Option<BinEdges>> {
    let refused = |text: String| Error::invalid(text).at(array.name());
    if let BinChoice::Count(bins) | BinChoice::Width(bins) = choice
        && !(2..=EDGES_MAX + 1).contains(bins)
    {
        return Err(refused(format!("{bins} bins: an index has 2 to {} of them", EDGES_MAX + 1)));
    }
    let fold = &form.fold;
    let of_numbers = |numbers: &[f64]| -> Result<Option<BinEdges>> {
        let stored = numbers.iter().map(|number| stored_edge(array, *number));
        let stored: Vec<Vec<u8>> =
            stored.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        Ok(BinEdges::new(fold.data_type(), &stored))
    };
    let fitting = |edges| fitting(edges, form);
    match choice {
        BinChoice::None => Ok(None),
        BinChoice::Present => Ok(old.and_then(ValueIndex::recorded_edges).cloned().map(fitting)),
        BinChoice::Count(bins) => {
            Ok(BinEdges::of_sample(fold, &sample(array, form)?, *bins).map(fitting))
        }
        BinChoice::Auto => Ok(auto_bins(array, form)?.map(|bins| bins.edges)),
        #[allow(clippy::cast_precision_loss, reason = "at most 254 bins")]
        BinChoice::Width(bins) => {
            let Some((least, greatest)) = decoded_ends(array, &sample(array, form)?)? else {
                return Ok(None);
            };
            let width = (greatest - least) / *bins as f64;
            let edges: Vec<f64> = (1..*bins).map(|at| least + width * at as f64).collect();
            of_numbers(&edges)
        }
        BinChoice::Edges(edges) => {
            if edges.is_empty() || edges.len() > EDGES_MAX || edges.iter().any(|edge| edge.is_nan())
            {
                let text = format!("bins need 1 to {EDGES_MAX} edges, all of them numbers");
                return Err(refused(text));
            }
            of_numbers(edges)
        }
    }
}

/// Returns edges with tails only where positions in a block have 16 bits.
fn fitting(edges: BinEdges, form: &IndexForm) -> BinEdges {
    let block = element_count(form.grid.chunk_shape()).unwrap_or(u64::MAX);
    let has_tails = edges.has_tails() && block <= TAILED_BLOCK_MAX;
    edges.with_tails(has_tails)
}

/// The bins that `Auto` makes.
pub(super) struct AutoBins {
    pub(super) edges: BinEdges,
    /// The bytes of their numbers, as a share of those of the array in storage.
    pub(super) share: f64,
}

/// Returns the bins that `Auto` makes of an array; `None` if their numbers take too many bytes.
///
/// # Errors
/// Errors of reading.
pub(super) fn auto_bins(array: &Array, form: &IndexForm) -> Result<Option<AutoBins>> {
    let sample = sample(array, form)?;
    let edges = BinEdges::of_sample(&form.fold, &sample, AUTO_BINS);
    let Some(edges) = edges.map(|edges| fitting(edges, form)) else { return Ok(None) };
    let share = share(array, form, &sample, &edges)?;
    Ok((share <= AUTO_SHARE).then_some(AutoBins { edges, share }))
}

/// Reads elements from boxes all over the array, the same ones each time.
fn sample(array: &Array, form: &IndexForm) -> Result<Vec<u8>> {
    let grid = ChunkGrid::new(array.shape()?, array.query_block()?)?;
    let item = form.fold.data_type().item_size().unwrap_or(1) as u64;
    let blocks = grid.chunk_count().unwrap_or(u64::MAX);
    let block = grid.chunk_shape().iter().fold(item, |bytes, length| bytes.saturating_mul(*length));
    let count = (SAMPLE_BYTES / block.max(1)).clamp(1, SAMPLE_BOXES).min(blocks);
    let mut found = Vec::new();
    for at in spread(count, blocks) {
        let at = delinearize(at, grid.grid_shape());
        let region = grid.chunk_region_clipped(&at);
        let elements = region.len().unwrap_or(0);
        let mut buffer = vec![0; usize::try_from(elements.saturating_mul(item)).unwrap_or(0)];
        array.read_part(&Selection::from(region), &mut buffer, block.saturating_mul(count))?;
        let step = elements.div_ceil(SAMPLE_ELEMENTS).max(1);
        // An odd step meets all places of a row.
        let step = usize::try_from(step | 1).unwrap_or(1);
        let item = usize::try_from(item).unwrap_or(1);
        buffer.chunks_exact(item).step_by(step).for_each(|element| found.extend(element));
    }
    Ok(found)
}

/// Returns the bytes that the numbers of bins take at most, as a share of the array's in storage: by
/// the entropy of the numbers, each for itself.
#[allow(clippy::cast_precision_loss, reason = "a share")]
fn share(array: &Array, form: &IndexForm, sample: &[u8], edges: &BinEdges) -> Result<f64> {
    let numbers = edges.number(&form.fold, sample, &form.fold.of(sample));
    let mut counts = [0_u32; 256];
    numbers.iter().for_each(|number| counts[usize::from(*number)] += 1);
    let shares = counts.iter().filter(|count| **count > 0);
    let shares = shares.map(|count| f64::from(*count) / numbers.len() as f64);
    let bits: f64 = shares.map(|share| -share * share.log2()).sum();
    let shape = array.shape()?;
    let elements = shape.iter().fold(1.0, |count, length| count * *length as f64);
    Ok(bits / 8.0 * elements / (array.stored_bytes()? as f64).max(1.0))
}
