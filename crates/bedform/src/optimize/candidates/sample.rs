//! The compression of an array's elements, measured on a few blocks where its reads are.

use bedform_geometry::{Region, Selection};
use bedform_storage::Profile;

use super::bytes_of;
use super::settings::SETTINGS;
use crate::array::Array;
use crate::codec::choice::{ReadRates, SampleBlock, choose};
use crate::error::{Error, ErrorKind, Result};
use crate::optimize::reads::PricedReadKind;

/// Returns the compression ratio of the elements: zstd, on a few blocks where a kind of reads is.
pub(super) fn sampled_ratio(array: &Array, kind: &PricedReadKind) -> Result<f64> {
    let mut blocks = Vec::new();
    for number in 0..SETTINGS.sample_blocks {
        let region = block_at(kind, f64::from(number) / f64::from(SETTINGS.sample_blocks - 1))?;
        let selection = Selection::from(&region);
        let bytes = usize::try_from(array.result_bytes(&selection)?).unwrap_or(usize::MAX);
        let mut block = vec![0; bytes];
        array.read(&selection, &mut block)?;
        blocks.push(SampleBlock { valid_bytes: block.len(), elements: block });
    }
    let rates = ReadRates::of(&Profile::default_local());
    let chosen = choose(&blocks, array.data_type()?, 0, false, rates);
    let chosen = chosen.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let compared = chosen.comparison.compared;
    let size = compared.iter().find(|codec| codec.name == "zstd").map_or(1.0, |codec| codec.size);
    Ok(if size > 0.0 { (1.0 / size).max(1.0) } else { 1.0 })
}

/// Returns a small box in the hot region of a kind, with sides as equal as possible. `share`, from
/// 0 to 1, places it in the region.
fn block_at(kind: &PricedReadKind, share: f64) -> Result<Region> {
    let mut shape = vec![1_u64; kind.hot.rank()];
    loop {
        let bytes = bytes_of(&shape, kind.item_size);
        let open = (0..shape.len()).filter(|axis| shape[*axis] < kind.hot.shape()[*axis]);
        let shortest = open.min_by_key(|axis| shape[*axis]);
        match shortest.filter(|_| bytes * 2.0 <= SETTINGS.sample_block_bytes) {
            Some(axis) => shape[axis] = (shape[axis] * 2).min(kind.hot.shape()[axis]),
            None => break,
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let start = |axis: usize| {
        let room = kind.hot.shape()[axis] - shape[axis];
        kind.hot.start()[axis] + (room as f64 * share) as u64
    };
    Ok(Region::new((0..shape.len()).map(start).collect::<Vec<_>>(), shape.clone())?)
}
