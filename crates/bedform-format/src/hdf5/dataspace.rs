//! Dataspaces: the shape of a dataset or of an attribute.

use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};

/// The shape of a dataset or of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dataspace {
    /// No elements.
    Null,
    /// One element.
    Scalar,
    /// An array.
    Simple {
        /// Length of each axis.
        shape: Vec<u64>,
        /// Largest length of each axis; `None` for an axis without bound.
        max_shape: Vec<Option<u64>>,
    },
}

const HAS_MAXIMUM: u8 = 1;

impl Dataspace {
    /// Returns the length of each axis; empty for a scalar and for no elements.
    pub fn shape(&self) -> &[u64] {
        match self {
            Self::Simple { shape, .. } => shape,
            Self::Null | Self::Scalar => &[],
        }
    }

    /// Returns the number of elements; `None` if it exceeds 64 bits.
    pub fn element_count(&self) -> Option<u64> {
        match self {
            Self::Null => Some(0),
            _ if self.shape().contains(&0) => Some(0),
            _ => self.shape().iter().try_fold(1_u64, |count, size| count.checked_mul(*size)),
        }
    }

    pub(super) fn decode(mut cursor: Cursor<'_>, rank_max: usize) -> Result<Self> {
        let version = cursor.u8()?;
        let [rank, flags, kind] = cursor.array()?;
        match version {
            1 => cursor.skip(4)?,
            2 => {}
            _ => return Err(Hdf5Error::unknown(format!("version {version} of a dataspace"))),
        }
        match (version, kind) {
            (2, 2) => return Ok(Self::Null),
            _ if rank == 0 => return Ok(Self::Scalar),
            (2, 0) => return Err(cursor.corrupt("a scalar with axes")),
            (2, kind) if kind != 1 => return Err(cursor.corrupt(format!("dataspace kind {kind}"))),
            _ => {}
        }
        let rank = usize::from(rank);
        if rank > rank_max {
            return Err(Hdf5Error::limit(format!("{rank} dimensions, {rank_max} allowed")));
        }
        let shape = (0..rank).map(|_| cursor.length()).collect::<Result<Vec<u64>>>()?;
        let unlimited = unlimited_length(&cursor);
        let max_shape = if flags & HAS_MAXIMUM == 0 {
            shape.iter().copied().map(Some).collect()
        } else {
            let maximum = |_| Ok(Some(cursor.length()?).filter(|size| *size != unlimited));
            (0..rank).map(maximum).collect::<Result<Vec<Option<u64>>>>()?
        };
        let grown = |(size, max): (&u64, &Option<u64>)| max.is_some_and(|max| *size > max);
        if shape.iter().zip(&max_shape).any(grown) {
            return Err(cursor.corrupt("an axis longer than it may become"));
        }
        Ok(Self::Simple { shape, max_shape })
    }
}

/// Returns the stored length that means "no bound": all bits set.
fn unlimited_length(cursor: &Cursor<'_>) -> u64 {
    let unused = 64_u32.saturating_sub(u32::from(cursor.widths().length).saturating_mul(8));
    u64::MAX.checked_shr(unused).unwrap_or(0)
}
