//! The encoded size of chunks of a shape, measured on a few boxes of the array.

use bedform_codec::Scratch;
use bedform_format::CodecChain;
use bedform_geometry::{Region, Selection};

use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::tuning::Tuning;
use crate::threads::workers::check_cancelled;

/// Boxes of a sample.
const BOXES: u64 = 6;
/// The most bytes of the array's own chunks that are decoded for a box, unless one chunk has more.
const DECODED_MAX: u64 = 16 << 20;

/// Returns the encoded bytes of chunks over their raw bytes. A box has the shape of a chunk, or a
/// smaller one where the array is stored so that the chunk would take long to read.
///
/// # Errors
/// Those of reading; `Memory`.
pub(super) fn encoded_share(
    array: &Array,
    chunks: &[u64],
    chain: &CodecChain,
    tuning: &Tuning,
) -> Result<f64> {
    let shape = array.shape()?;
    let lengths = box_shape(array, &shape, chunks, tuning)?;
    let codec = array.layout_in(&lengths, chain)?.codec;
    let (mut raw, mut encoded) = (0_u64, 0_u64);
    let mut scratch = Scratch::default();
    let mut output = Vec::new();
    for number in 0..BOXES {
        check_cancelled("the advice was stopped")?;
        let selection = Selection::from(&box_at(&shape, &lengths, number)?);
        let bytes = usize::try_from(array.result_bytes(&selection)?).unwrap_or(usize::MAX);
        let mut elements = vec![0; bytes];
        array.read(&selection, &mut elements)?;
        let done = codec.encode(&elements, &mut scratch, &mut output);
        done.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        raw += elements.len() as u64;
        encoded += output.len() as u64;
    }
    Ok(encoded as f64 / raw.max(1) as f64)
}

/// Returns the shape of the boxes: that of `chunks`, halved along its longest axis while reading it
/// decodes too much.
fn box_shape(array: &Array, shape: &[u64], chunks: &[u64], tuning: &Tuning) -> Result<Vec<u64>> {
    let mut lengths: Vec<u64> =
        chunks.iter().zip(shape).map(|(chunk, length)| (*chunk).clamp(1, *length)).collect();
    loop {
        let selection = Selection::from(&box_at(shape, &lengths, 0)?);
        let (cost, _) = array.priced_by(&selection, tuning)?;
        let longest = (0..lengths.len()).max_by_key(|axis| lengths[*axis]);
        let Some(axis) = longest.filter(|axis| lengths[*axis] > 1) else { break };
        if cost.decoded_bytes.max(cost.result_bytes) <= DECODED_MAX {
            break;
        }
        lengths[axis] = lengths[axis].div_ceil(2);
    }
    Ok(lengths)
}

/// Returns box `number` of a sample. The boxes are spread evenly, and differently along each axis.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn box_at(shape: &[u64], lengths: &[u64], number: u64) -> Result<Region> {
    let start = |(axis, (size, length)): (usize, (&u64, &u64))| {
        let step = (axis as f64 + 2.0).sqrt().fract();
        let share = ((number as f64 + 0.5) / BOXES as f64 + number as f64 * step).fract();
        // On the grid of chunks, as the file will be cut.
        let places = (size / length).max(1);
        ((places as f64 * share) as u64).min(places - 1) * length
    };
    let starts: Vec<u64> = shape.iter().zip(lengths).enumerate().map(start).collect();
    Ok(Region::new(starts, lengths.to_vec())?)
}
