//! The arrays of a query, with the decoding of their elements.

use bedform_geometry::{Region, element_count};
use bedform_query::{ValueDecoding, ValueType};

use super::frame::{BlockBox, Frame};
use super::packing::{self, PackedMeaning};
use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};

/// An array that a door gives to a query, as a whole or a part of it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryArray {
    /// Its name in the expression.
    pub name: String,
    /// The array.
    pub array: Array,
    /// The part of it that the query sees; positions count from its start. `None`: all.
    pub part: Option<Region>,
    /// Names of its dimensions, in place of its own.
    pub dims: Option<Vec<String>>,
    /// Whether its values are decoded, in place of the query's option.
    pub decode: Option<bool>,
}

impl QueryArray {
    /// Names an array, all of which the query sees.
    pub fn new(name: impl Into<String>, array: Array) -> Self {
        Self { name: name.into(), array, part: None, dims: None, decode: None }
    }
}

impl From<(String, Array)> for QueryArray {
    fn from((name, array): (String, Array)) -> Self {
        Self::new(name, array)
    }
}

/// An array of a query.
#[derive(Debug, Clone)]
pub(super) struct QueryOperand {
    /// Its name in the expression.
    pub(super) name: String,
    pub(super) array: Array,
    pub(super) dims: Vec<String>,
    /// The start of the part of the array that the query sees, and its shape.
    pub(super) start: Vec<u64>,
    pub(super) shape: Vec<u64>,
    /// The shape of the boxes in which it is best read.
    pub(super) block: Vec<u64>,
    pub(super) decoding: ValueDecoding,
    /// True if decoded values are compared, and not stored ones.
    pub(super) is_decoded: bool,
}

impl QueryOperand {
    /// Describes an array. With `decode` its values are compared as decoded, else as stored, unless
    /// the array says otherwise.
    ///
    /// # Errors
    /// `Unsupported` for elements that are not numbers, and, decoded, for times; `InvalidArgument`
    /// by its attributes, and for a part or dimensions that do not fit it.
    pub(super) fn new(given: &QueryArray, decode: bool) -> Result<Self> {
        let QueryArray { name, array, .. } = given;
        let decode = given.decode.unwrap_or(decode);
        let data_type = array.data_type()?;
        let Some(stored) = packing::value_type(data_type) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{name} has elements of type {data_type}: queries compare numbers"),
            ));
        };
        let decoding = decoding_of(name, array, stored, decode)?;
        let whole = array.shape()?;
        let part = match &given.part {
            Some(part) => part.clone(),
            None => Region::whole(whole.clone())?,
        };
        let (start, shape) = (part.start().to_vec(), part.shape().to_vec());
        let dims = match &given.dims {
            Some(dims) => dims.clone(),
            None => {
                let names = array.dimension_names()?.into_iter().enumerate();
                names.map(|(axis, name)| name.unwrap_or_else(|| format!("dim_{axis}"))).collect()
            }
        };
        let fits = (0..whole.len()).all(|axis| part.rank() > axis && part.end(axis) <= whole[axis]);
        if dims.len() != whole.len() || part.rank() != whole.len() || !fits {
            return Err(Error::invalid(format!(
                "{name} has the shape {whole:?}: the given part or dimensions do not fit"
            )));
        }
        let (name, block) = (name.clone(), array.query_block()?);
        let array = array.clone();
        Ok(Self { name, array, dims, start, shape, block, decoding, is_decoded: decode })
    }

    /// Returns the bytes of all its elements.
    pub(super) fn bytes(&self) -> u64 {
        let item = self.decoding.stored().bytes() as u64;
        element_count(&self.shape).unwrap_or(u64::MAX).saturating_mul(item)
    }

    /// Returns the start and shape, in the array, of the elements that a block takes.
    pub(super) fn region_in(&self, frame: &Frame, block: &BlockBox) -> (Vec<u64>, Vec<u64>) {
        let axis = |dim: &String| frame.dims.iter().position(|known| known == dim);
        let axes: Vec<usize> = self.dims.iter().filter_map(axis).collect();
        (
            axes.iter().zip(&self.start).map(|(axis, own)| own + block.start[*axis]).collect(),
            axes.iter().map(|axis| block.shape[*axis]).collect(),
        )
    }
}

/// Returns the decoding of an array.
fn decoding_of(
    name: &str,
    array: &Array,
    stored: ValueType,
    decode: bool,
) -> Result<ValueDecoding> {
    let PackedMeaning { packing, time_units } =
        packing_of(array, stored).map_err(|error| error.at(name))?;
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
    Ok(if decode { decoded } else { decoded.undecoded() })
}

pub(super) fn packing_of(array: &Array, stored: ValueType) -> Result<PackedMeaning> {
    if let Some(described) = array.described_in_file() {
        return packing::of_foreign(described);
    }
    let fill = array.missing_fill_value()?;
    packing::of_stored(&array.attributes()?, stored, fill.as_ref())
}
