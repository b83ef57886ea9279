//! The arrays of a query, with the decoding of their elements.

use bedform_geometry::element_count;
use bedform_query::{ValueDecoding, ValueType};

use super::frame::{BlockBox, Frame};
use super::packing::{self, PackedMeaning};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};

/// An array of a query.
#[derive(Debug, Clone)]
pub(super) struct QueryOperand {
    /// Its name in the expression.
    pub(super) name: String,
    pub(super) array: Array,
    pub(super) dims: Vec<String>,
    pub(super) shape: Vec<u64>,
    /// The shape of the boxes in which it is best read.
    pub(super) block: Vec<u64>,
    pub(super) decoding: ValueDecoding,
}

impl QueryOperand {
    /// Describes `array`, whose values are compared as decoded by `decode`, or as they are stored.
    ///
    /// # Errors
    /// `Unsupported` for elements that are not numbers, and, decoded, for times; `InvalidArgument`
    /// by its attributes.
    pub(super) fn new(name: &str, array: Array, decode: bool) -> Result<Self> {
        let data_type = array.data_type()?;
        let Some(stored) = packing::value_type(data_type) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{name} has elements of type {data_type}: queries compare numbers"),
            ));
        };
        let PackedMeaning { packing, time_units } =
            packing_of(&array, stored).map_err(|error| error.at(name))?;
        if let Some(units) = time_units.filter(|_| decode) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{name} holds times ({units}): select them by a region or, in Python, by \
                     sel={{\"{name}\": slice(from, to)}}; or compare stored numbers: decode=False"
                ),
            ));
        }
        let decoded = ValueDecoding::new(stored, packing)
            .map_err(|error| Error::invalid(error.to_string()).at(name))?;
        let decoding = if decode { decoded } else { decoded.undecoded() };
        let names = array.dimension_names()?;
        let dims = names.into_iter().enumerate();
        let dims = dims.map(|(axis, name)| name.unwrap_or_else(|| format!("dim_{axis}"))).collect();
        let (shape, block) = (array.shape()?, array.query_block()?);
        Ok(Self { name: name.to_owned(), array, dims, shape, block, decoding })
    }

    /// Returns the bytes of all its elements.
    pub(super) fn bytes(&self) -> u64 {
        let item = self.decoding.stored().bytes() as u64;
        element_count(&self.shape).unwrap_or(u64::MAX).saturating_mul(item)
    }

    /// Returns start and shape of what a block takes of the array.
    pub(super) fn region_in(&self, frame: &Frame, block: &BlockBox) -> (Vec<u64>, Vec<u64>) {
        let axis = |dim: &String| frame.dims.iter().position(|known| known == dim);
        let axes: Vec<usize> = self.dims.iter().filter_map(axis).collect();
        (
            axes.iter().map(|axis| block.start[*axis]).collect(),
            axes.iter().map(|axis| block.shape[*axis]).collect(),
        )
    }
}

fn packing_of(array: &Array, stored: ValueType) -> Result<PackedMeaning> {
    if let Some(described) = array.described_in_file() {
        return packing::of_foreign(described);
    }
    // In Zarr v2 the fill value marks missing values; in v3 an attribute does.
    let fill = array.stored().ok().map(|_| array.metadata()).transpose()?;
    let fill = fill.filter(|metadata| metadata.zarr_format == 2).map(|of| of.fill_value);
    packing::of_stored(&array.attributes()?, stored, fill.as_ref())
}
