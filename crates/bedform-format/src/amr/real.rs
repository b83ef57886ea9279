//! The description of the numbers in a file.

use super::error::Result;
use super::text::TextCursor;
use crate::{DataType, Endian};

/// IEEE numbers: the bits in all, of the exponent and of the mantissa; the first bit of the sign,
/// of the exponent and of the mantissa; the highest bit of the mantissa; the bias.
const FORMATS: [([u64; 8], DataType); 2] = [
    ([32, 8, 23, 0, 1, 9, 0, 127], DataType::Float32),
    ([64, 11, 52, 0, 1, 12, 0, 1023], DataType::Float64),
];
/// Number of bytes of the largest number that a description may have.
const NUMBER_BYTES_MAX: usize = 16;

/// The type and byte order of the elements of a FAB, which AMReX calls a real descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RealDescriptor {
    /// The type: [`DataType::Float32`] or [`DataType::Float64`].
    pub data_type: DataType,
    /// The byte order.
    pub endian: Endian,
}

impl RealDescriptor {
    /// Reads `((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))`.
    pub(super) fn read(cursor: &mut TextCursor) -> Result<Self> {
        const WHAT: &str = "a number of a real descriptor";
        let before = *cursor;
        cursor.byte(b'(')?;
        let mut format = [0; 8];
        read_list(cursor, &mut format)?;
        cursor.byte(b',')?;
        let mut order = [0; NUMBER_BYTES_MAX];
        let bytes = read_list(cursor, &mut order)?;
        cursor.byte(b')')?;
        let Some((_, data_type)) = FORMATS.iter().find(|(known, _)| *known == format) else {
            return Err(before.unsupported(format!(
                "numbers of the format {format:?}; float32 and float64 in IEEE's form are read"
            )));
        };
        let order = order.get(..bytes).unwrap_or_default();
        if Some(bytes) != data_type.item_size() {
            return Err(before.expected(&format!("{WHAT} of as many bytes as the number")));
        }
        let ascending = 1..=bytes as u64;
        let endian = if order.iter().copied().eq(ascending.clone()) {
            Endian::Big
        } else if order.iter().copied().eq(ascending.rev()) {
            Endian::Little
        } else {
            return Err(before.unsupported(format!(
                "numbers whose bytes have the order {order:?}; little-endian and big-endian are read"
            )));
        };
        Ok(Self { data_type: *data_type, endian })
    }
}

/// Reads `(count, (numbers))` into `numbers`; returns the count.
fn read_list(cursor: &mut TextCursor, numbers: &mut [u64]) -> Result<usize> {
    const WHAT: &str = "a number of a real descriptor";
    cursor.byte(b'(')?;
    let before = *cursor;
    let count = usize::try_from(cursor.count(WHAT)?).unwrap_or(usize::MAX);
    let Some(taken) = numbers.get_mut(..count) else {
        return Err(before.expected(&format!("a count of at most {}", numbers.len())));
    };
    cursor.byte(b',')?;
    cursor.byte(b'(')?;
    for number in taken {
        *number = cursor.count(WHAT)?;
    }
    cursor.byte(b')')?;
    cursor.byte(b')')?;
    Ok(count)
}
