//! The chunk grid of a variable of many files.
//!
//! Zarr has one chunk shape and one list of codecs for an array. The parts of a variable fit if
//! their chunks do: equal shapes and filters, and in each file but the last a whole number of
//! chunks along the joined axis. Blocks without filters, chunked or not, may be cut: a box of them
//! is one range of bytes if it spans whole rows behind the axis that is cut.

use bedform_format::Endian;
use bedform_format::chunk_map::{ChunkTable, ForeignStorage};
use bedform_format::codec::BytesCodec;

use crate::foreign::stored::{StoredBlocks, StoredPart, StoredVariable};

/// The size in bytes that cut chunks come close to. Larger blocks without chunks are cut.
const CUT_BYTES: u64 = 16 << 20;
/// The most candidates for the divisor of a length.
const DIVISORS_TRIED: u64 = 1 << 20;

/// The reason why references cannot express a variable, with the index of the file that does not
/// fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) file: usize,
    pub(super) reason: String,
}

impl Misfit {
    pub(super) fn new(file: usize, reason: impl Into<String>) -> Self {
        Self { file, reason: reason.into() }
    }
}

/// A result for a variable, or the misfit of one of its parts.
pub(super) type Fit<T> = std::result::Result<T, Misfit>;

/// The form of the chunks of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChunkForm {
    pub(super) shape: Vec<u64>,
    pub(super) endian: Endian,
    pub(super) codecs: Vec<BytesCodec>,
    /// True if stored blocks are cut into smaller chunks.
    pub(super) is_cut: bool,
}

/// The form of the stored blocks of one part.
struct BlockForm<'p> {
    file: usize,
    shape: Vec<u64>,
    part: &'p StoredPart<'p>,
    codecs: Vec<BytesCodec>,
}

/// Returns the shape of the blocks of a part: its chunks, or its records, or all of it.
pub(super) fn block_shape(part: &StoredPart<'_>) -> Vec<u64> {
    let mut shape: Vec<u64> = part.array.shape.iter().map(|length| (*length).max(1)).collect();
    match &part.array.storage {
        ForeignStorage::Chunked { chunk_shape, .. } => return chunk_shape.clone(),
        ForeignStorage::Records { .. } => shape.iter_mut().take(1).for_each(|length| *length = 1),
        _ => {}
    }
    shape
}

/// Returns the common chunk form of all parts.
///
/// # Errors
/// The [`Misfit`] of the first part that does not fit.
pub(super) fn chunk_form(variable: &StoredVariable<'_>) -> Fit<ChunkForm> {
    let item_size = item_size(variable);
    let blocks = blocks_of(variable)?;
    let Some(first) = blocks.first() else {
        let shape = bounded(&variable.array.shape, item_size);
        let endian = variable.array.endian;
        return Ok(ChunkForm { shape, endian, codecs: Vec::new(), is_cut: false });
    };
    for block in &blocks {
        check_alike(first, block)?;
    }
    let form = |shape, is_cut| ChunkForm {
        shape,
        endian: first.part.array.endian,
        codecs: first.codecs.clone(),
        is_cut,
    };
    let uneven = uneven_file(variable, &first.shape);
    let other = blocks.iter().find(|block| block.shape != first.shape);
    let may_cut = first.codecs.is_empty();
    let is_whole = |block: &BlockForm<'_>| matches!(block.part.blocks, StoredBlocks::At(_));
    let is_large = bytes_of(&first.shape, item_size) > CUT_BYTES && blocks.iter().all(is_whole);
    if uneven.is_none() && other.is_none() && !(may_cut && is_large) {
        return Ok(form(first.shape.clone(), false));
    }
    if may_cut && let Some(shape) = cut_shape(variable, &blocks, item_size) {
        let is_cut = blocks.iter().any(|block| block.shape != shape);
        return Ok(form(shape, is_cut));
    }
    if let Some(other) = other {
        let reason = format!("has chunks {}, not {}", shown(&other.shape), shown(&first.shape));
        return Err(Misfit::new(other.file, reason));
    }
    match uneven {
        Some(misfit) => Err(misfit),
        None => Ok(form(first.shape.clone(), false)),
    }
}

/// Returns the blocks of all parts that have some.
fn blocks_of<'p>(variable: &'p StoredVariable<'p>) -> Fit<Vec<BlockForm<'p>>> {
    let mut blocks = Vec::new();
    for part in &variable.parts {
        let misfit = |reason: &str| Misfit::new(part.file, reason);
        if part.array.shape.contains(&0) {
            continue;
        }
        let codecs = match (&part.blocks, &part.array.storage) {
            (StoredBlocks::Absent, _) => continue,
            (StoredBlocks::Inside, _) => {
                return Err(misfit("has values in its metadata, or converted ones"));
            }
            (StoredBlocks::Table(table), ForeignStorage::Chunked { codecs, .. }) => {
                if table.is_empty() {
                    continue;
                }
                let codecs = applied(codecs, table)
                    .ok_or_else(|| misfit("has chunks to which some filters were not applied"))?;
                let chunk_bytes = bytes_of(&block_shape(part), item_size(variable));
                if !shuffles_elements(&codecs, chunk_bytes) {
                    return Err(misfit(
                        "shuffles bytes that are no elements, as after compression",
                    ));
                }
                codecs
            }
            _ => Vec::new(),
        };
        blocks.push(BlockForm { file: part.file, shape: block_shape(part), part, codecs });
    }
    Ok(blocks)
}

/// Returns the codecs that were applied to all chunks; `None` if they differ between chunks.
fn applied(codecs: &[BytesCodec], table: &ChunkTable) -> Option<Vec<BytesCodec>> {
    let mask = table.filter_masks.first().copied().unwrap_or(0);
    if table.filter_masks.iter().any(|other| *other != mask) {
        return None;
    }
    let is_applied = |number: usize| number >= 32 || mask >> number & 1 == 0;
    Some((0..codecs.len()).filter(|number| is_applied(*number)).map(|at| codecs[at]).collect())
}

/// Returns true if each shuffle takes whole elements. HDF5 leaves the rest of a buffer as it is,
/// other readers refuse it.
fn shuffles_elements(codecs: &[BytesCodec], chunk_bytes: u64) -> bool {
    codecs.iter().enumerate().all(|(number, codec)| match codec {
        BytesCodec::Shuffle { element_size } => {
            number == 0 && chunk_bytes.is_multiple_of(u64::from(*element_size))
        }
        _ => true,
    })
}

fn check_alike(first: &BlockForm<'_>, block: &BlockForm<'_>) -> Fit<()> {
    let misfit = |reason: &str| Err(Misfit::new(block.file, reason));
    let (of, own) = (first.part.array, block.part.array);
    let has_order = of.data_type.is_some_and(|data_type| data_type.swap_size() > 1);
    if has_order && of.endian != own.endian {
        return misfit("has numbers of the other byte order");
    }
    let pairs = first.codecs.iter().zip(&block.codecs);
    if first.codecs.len() != block.codecs.len() || pairs.into_iter().any(|(a, b)| !are_alike(a, b))
    {
        return misfit("has other filters");
    }
    Ok(())
}

/// Returns true if one decoder reads both: levels matter to writers alone.
fn are_alike(one: &BytesCodec, other: &BytesCodec) -> bool {
    use BytesCodec as C;
    match (one, other) {
        (C::Zlib { .. }, C::Zlib { .. })
        | (C::Zstd { .. }, C::Zstd { .. })
        | (C::Blosc(_), C::Blosc(_)) => true,
        _ => one == other,
    }
}

/// Returns the first file, but for the last one, in which the joined axis has no whole number of
/// chunks.
fn uneven_file(variable: &StoredVariable<'_>, chunk: &[u64]) -> Option<Misfit> {
    let (axis, lengths) = (variable.axis?, inner_lengths(variable));
    let chunk = chunk[axis].max(1);
    let (file, length) = lengths.into_iter().find(|(_, length)| length % chunk != 0)?;
    let reason = format!("has length {length} on the joined axis and chunks of {chunk}");
    Some(Misfit::new(file, reason))
}

/// Returns the lengths along the joined axis of all files that have some, but for the last one.
fn inner_lengths(variable: &StoredVariable<'_>) -> Vec<(usize, u64)> {
    let Some(axis) = variable.axis else { return Vec::new() };
    let lengths = variable.parts.iter().map(|part| (part.file, part.array.shape[axis]));
    let mut lengths: Vec<_> = lengths.filter(|(_, length)| *length > 0).collect();
    lengths.pop();
    lengths
}

/// Returns the shape of chunks into which all blocks can be cut: one element along the axes before
/// some axis, whole blocks along those behind it. Of all such shapes it is the one whose bytes come
/// closest to [`CUT_BYTES`].
fn cut_shape(
    variable: &StoredVariable<'_>,
    blocks: &[BlockForm<'_>],
    item_size: u64,
) -> Option<Vec<u64>> {
    let first = &blocks.first()?.shape;
    let inner = inner_lengths(variable);
    let mut best: Option<(f64, Vec<u64>)> = None;
    for axis in 0..first.len() {
        let has_rows = |block: &BlockForm<'_>| block.shape[axis + 1..] == first[axis + 1..];
        let is_even = variable.axis.is_none_or(|joined| {
            joined <= axis || inner.iter().all(|(_, length)| length % first[joined] == 0)
        });
        if !blocks.iter().all(has_rows) || !is_even {
            continue;
        }
        let mut common = blocks.iter().fold(0, |common, block| divisor(common, block.shape[axis]));
        if variable.axis == Some(axis) {
            common = inner.iter().fold(common, |common, (_, length)| divisor(common, *length));
        }
        let row_bytes = bytes_of(&first[axis + 1..], item_size).max(1);
        let length = divisor_near(common, CUT_BYTES / row_bytes);
        let mut shape = vec![1; axis];
        shape.push(length);
        shape.extend_from_slice(&first[axis + 1..]);
        let distance = distance(bytes_of(&shape, item_size));
        if best.as_ref().is_none_or(|(least, _)| distance < *least) {
            best = Some((distance, shape));
        }
    }
    best.map(|(_, shape)| shape)
}

/// Returns how far a size is from [`CUT_BYTES`], as the logarithm of the ratio.
#[allow(clippy::cast_precision_loss)]
fn distance(bytes: u64) -> f64 {
    (bytes.max(1) as f64 / CUT_BYTES as f64).ln().abs()
}

/// Returns the greatest common divisor.
fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}

/// Returns the divisor of `number` that comes closest to `wanted`, as a ratio.
#[allow(clippy::cast_precision_loss)]
fn divisor_near(number: u64, wanted: u64) -> u64 {
    let wanted = wanted.max(1) as f64;
    let off = |divisor: u64| (divisor as f64 / wanted).ln().abs();
    let mut best = number;
    let mut candidate = 1;
    while candidate <= number / candidate && candidate <= DIVISORS_TRIED {
        if number.is_multiple_of(candidate) {
            for divisor in [candidate, number / candidate] {
                if off(divisor) < off(best) {
                    best = divisor;
                }
            }
        }
        candidate += 1;
    }
    best
}

/// Returns a chunk shape for an array without stored chunks, of at most [`CUT_BYTES`].
fn bounded(shape: &[u64], item_size: u64) -> Vec<u64> {
    let mut left = CUT_BYTES / item_size.max(1);
    let mut chunk = vec![1; shape.len()];
    for (length, own) in shape.iter().zip(&mut chunk).rev() {
        *own = (*length).clamp(1, left.max(1));
        left /= *own;
    }
    chunk
}

pub(super) fn bytes_of(shape: &[u64], item_size: u64) -> u64 {
    shape.iter().fold(item_size, |bytes, length| bytes.saturating_mul(*length))
}

pub(super) fn item_size(variable: &StoredVariable<'_>) -> u64 {
    variable.array.data_type.and_then(|data_type| data_type.item_size()).unwrap_or(1).max(1) as u64
}

fn shown(shape: &[u64]) -> String {
    let lengths: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("({})", lengths.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divisor_is_the_one_that_comes_closest() {
        assert_eq!(divisor_near(24, 5), 6);
        assert_eq!(divisor_near(24, 1000), 24);
        assert_eq!(divisor_near(31, 5), 1);
        assert_eq!(divisor_near(1, 7), 1);
        assert_eq!((divisor(0, 12), divisor(18, 12), divisor(31, 28)), (12, 6, 1));
    }

    #[test]
    fn chunks_of_what_was_never_written_are_bounded() {
        assert_eq!(bounded(&[1000, 2000, 3000], 8), [1, 699, 3000]);
        assert_eq!(bounded(&[0, 5], 4), [1, 5]);
        assert_eq!(bounded(&[], 4), Vec::<u64>::new());
    }
}
