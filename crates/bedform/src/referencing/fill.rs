//! Fill values and masks in the terms of Zarr v2 and v3.
//!
//! A file knows the value of elements that were never written, and, as the attribute `_FillValue`, a
//! value that stands for missing ones. Zarr v3 has both. Of Zarr v2 xarray takes the fill value of
//! an array as its mask, unless it is null: then the attribute counts, and chunks that are not
//! stored read as zeros.

use bedform_format::DataType;
use bedform_format::chunk_map::{ForeignArray, ForeignAttribute};
use bedform_format::json::NUMBER;
use bedform_format::metadata::FillValue;
use serde_json::Value;

use super::ReferenceForm;
use super::grid::{Fit, Misfit};
use super::table::grid_shape;
use crate::foreign::stored::{StoredBlocks, StoredPart, StoredVariable};

const FILL_VALUE: &str = "_FillValue";

/// The fill value of an array of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FillRule {
    /// The bytes of the fill value in the machine's byte order.
    pub(super) bytes: Vec<u8>,
    /// True if the document has the fill value, false if it has null.
    pub(super) is_written: bool,
    /// True if the attribute `_FillValue` stays among the attributes.
    pub(super) keeps_attribute: bool,
    /// True if xarray takes the fill value for a mask, which the file does not have.
    pub(super) is_mask_by_mistake: bool,
}

impl FillRule {
    /// Returns the rule for a variable whose chunks are referenced; `is_full` says that all are.
    ///
    /// # Errors
    /// A [`Misfit`] for parts with chunks that are not stored and different fill values, and, for
    /// Zarr v2, for a mask that differs from a fill value other than zero.
    pub(super) fn of(
        variable: &StoredVariable<'_>,
        is_full: bool,
        form: ReferenceForm,
    ) -> Fit<Self> {
        if is_full {
            return Ok(Self::of_stored(variable, form));
        }
        let (file, fill) = fill_of_parts(variable)?;
        if form == ReferenceForm::Icechunk {
            return Ok(Self::beside_mask(fill));
        }
        let is_zero = fill.iter().all(|byte| *byte == 0);
        match mask_of(variable.array) {
            Some(mask) if mask == fill => Ok(Self::as_mask(fill)),
            _ if is_zero => Ok(Self::unwritten(fill)),
            None if !has_mask(variable.array) => {
                let is_mask_by_mistake = !is_nan(&fill, variable.array.data_type);
                Ok(Self { is_mask_by_mistake, ..Self::as_mask(fill) })
            }
            _ => {
                let reason = "has unwritten chunks with another fill value than _FillValue";
                Err(Misfit::new(file, reason))
            }
        }
    }

    /// Returns the rule for a variable of which every element is stored.
    pub(super) fn of_stored(variable: &StoredVariable<'_>, form: ReferenceForm) -> Self {
        let own = own_fill(variable.array);
        match (mask_of(variable.array), form) {
            (Some(mask), ReferenceForm::Kerchunk) => Self::as_mask(mask),
            (None, ReferenceForm::Kerchunk) => Self::unwritten(own),
            (_, ReferenceForm::Icechunk) => Self::beside_mask(own),
        }
    }

    /// The fill value is the mask.
    fn as_mask(bytes: Vec<u8>) -> Self {
        Self { bytes, is_written: true, keeps_attribute: false, is_mask_by_mistake: false }
    }

    /// The document has null, and the attribute alone masks.
    fn unwritten(bytes: Vec<u8>) -> Self {
        Self { bytes, is_written: false, keeps_attribute: true, is_mask_by_mistake: false }
    }

    /// The format has both, a fill value and a mask.
    fn beside_mask(bytes: Vec<u8>) -> Self {
        Self { bytes, is_written: true, keeps_attribute: true, is_mask_by_mistake: false }
    }
}

/// Returns the fill value of the parts with elements that are not stored, and the first such file.
fn fill_of_parts(variable: &StoredVariable<'_>) -> Fit<(usize, Vec<u8>)> {
    let mut found: Option<(usize, Vec<u8>)> = None;
    for part in variable.parts.iter().filter(|part| has_gaps(part)) {
        let fill = own_fill(part.array);
        match &found {
            Some((_, first)) if *first != fill => {
                let reason = "has unwritten chunks with another fill value";
                return Err(Misfit::new(part.file, reason));
            }
            Some(_) => {}
            None => found = Some((part.file, fill)),
        }
    }
    Ok(found.unwrap_or_else(|| (0, own_fill(variable.array))))
}

/// True if some chunks of a part are not stored.
fn has_gaps(part: &StoredPart<'_>) -> bool {
    match &part.blocks {
        StoredBlocks::Absent => !part.array.shape.contains(&0),
        StoredBlocks::Table(table) => {
            let grid = grid_shape(&part.array.shape, &super::grid::block_shape(part));
            (table.len() as u64) < grid.iter().product()
        }
        StoredBlocks::At(_) | StoredBlocks::Inside => false,
    }
}

fn own_fill(array: &ForeignArray) -> Vec<u8> {
    let size = array.data_type.and_then(DataType::item_size).unwrap_or(1);
    array.fill_element().unwrap_or_else(|| vec![0; size])
}

fn has_mask(array: &ForeignArray) -> bool {
    array.attributes.iter().any(|(name, _)| name == FILL_VALUE)
}

/// Returns the attribute `_FillValue` as an element in the machine's byte order; `None` without
/// one of the variable's own type.
fn mask_of(array: &ForeignArray) -> Option<Vec<u8>> {
    let (_, attribute) = array.attributes.iter().find(|(name, _)| name == FILL_VALUE)?;
    let data_type = array.data_type?;
    let size = data_type.item_size()?;
    match attribute {
        ForeignAttribute::Values(values)
            if values.data_type == data_type && values.data.len() == size =>
        {
            let mut element = values.data.clone();
            if values.endian != bedform_format::Endian::NATIVE {
                element.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
            }
            Some(element)
        }
        ForeignAttribute::Text(text) if matches!(data_type, DataType::FixedBytes(_)) => {
            let mut element = text.as_bytes().to_vec();
            (element.len() <= size).then(|| {
                element.resize(size, 0);
                element
            })
        }
        _ => None,
    }
}

/// True for NaN, which readers show as NaN with and without a mask.
fn is_nan(element: &[u8], data_type: Option<DataType>) -> bool {
    let Some(float @ (DataType::Float16 | DataType::Float32 | DataType::Float64)) = data_type
    else {
        return false;
    };
    // Zarr has the bits of an unusual NaN as a number in base 16.
    let is_nan = |text: &str| text == "NaN" || text.starts_with("0x");
    FillValue::Bytes(element.to_vec()).to_json(float).as_str().is_some_and(is_nan)
}

/// True if an attribute has a number that JSON lacks.
pub(super) fn has_marked_number(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with(NUMBER),
        Value::Array(values) => values.iter().any(has_marked_number),
        _ => false,
    }
}
