//! Blocks of numbers of any type and byte order, for filters.

use bedform_format::codec::StoredNumber;
use bedform_format::{DataType, Endian};
use half::f16;

use super::memory::grow;
use super::{CodecError, Result};

/// Largest number of elements in a block.
pub(super) const BLOCK: usize = 512;

/// The elements of a block, widened to the largest type of their kind, which holds every bit.
pub(super) enum NumberBlock {
    Signed([i64; BLOCK]),
    Unsigned([u64; BLOCK]),
    Float([f64; BLOCK]),
}

macro_rules! load {
    ($bytes:expr, $endian:expr, $type:ty, $lane:ident, $zero:expr, $widen:expr) => {{
        let mut lane = [$zero; BLOCK];
        let (numbers, _) = $bytes.as_chunks::<{ size_of::<$type>() }>();
        for (wide, raw) in lane.iter_mut().zip(numbers) {
            let number = match $endian {
                Endian::Little => <$type>::from_le_bytes(*raw),
                Endian::Big => <$type>::from_be_bytes(*raw),
            };
            *wide = $widen(number);
        }
        NumberBlock::$lane(lane)
    }};
}

/// Decodes at most one block of numbers.
pub(super) fn load(bytes: &[u8], of: StoredNumber) -> NumberBlock {
    use DataType as T;
    match of.data_type {
        T::Int8 => load!(bytes, of.endian, i8, Signed, 0, i64::from),
        T::Int16 => load!(bytes, of.endian, i16, Signed, 0, i64::from),
        T::Int32 => load!(bytes, of.endian, i32, Signed, 0, i64::from),
        T::UInt8 => load!(bytes, of.endian, u8, Unsigned, 0, u64::from),
        T::UInt16 => load!(bytes, of.endian, u16, Unsigned, 0, u64::from),
        T::UInt32 => load!(bytes, of.endian, u32, Unsigned, 0, u64::from),
        T::UInt64 => load!(bytes, of.endian, u64, Unsigned, 0, |number| number),
        T::Float16 => load!(bytes, of.endian, f16, Float, 0.0, f16::to_f64),
        T::Float32 => load!(bytes, of.endian, f32, Float, 0.0, f64::from),
        T::Float64 => load!(bytes, of.endian, f64, Float, 0.0, |number| number),
        // Int64: the metadata parser accepts no other type.
        _ => load!(bytes, of.endian, i64, Signed, 0, |number| number),
    }
}

macro_rules! put {
    ($lane:expr, $count:expr, $endian:expr, $output:expr, $narrow:expr) => {
        for number in &$lane[..$count] {
            let number = $narrow(*number);
            match $endian {
                Endian::Little => $output.extend_from_slice(&number.to_le_bytes()),
                Endian::Big => $output.extend_from_slice(&number.to_be_bytes()),
            }
        }
    };
}

macro_rules! put_integers {
    ($lane:expr, $count:expr, $of:expr, $output:expr) => {{
        use DataType as T;
        let (lane, count, endian) = ($lane, $count, $of.endian);
        match $of.data_type {
            T::Int8 => put!(lane, count, endian, $output, |n| n as i8),
            T::Int16 => put!(lane, count, endian, $output, |n| n as i16),
            T::Int32 => put!(lane, count, endian, $output, |n| n as i32),
            T::UInt8 => put!(lane, count, endian, $output, |n| n as u8),
            T::UInt16 => put!(lane, count, endian, $output, |n| n as u16),
            T::UInt32 => put!(lane, count, endian, $output, |n| n as u32),
            T::UInt64 => put!(lane, count, endian, $output, |n| n as u64),
            // NumPy also converts through a 32-bit float.
            T::Float16 => put!(lane, count, endian, $output, |n| f16::from_f32(n as f32)),
            T::Float32 => put!(lane, count, endian, $output, |n| n as f32),
            T::Float64 => put!(lane, count, endian, $output, |n| n as f64),
            _ => put!(lane, count, endian, $output, |n| n as i64),
        }
    }};
}

/// Appends the first `count` numbers of `lane` to `output`, converted by NumPy's rules.
///
/// # Errors
/// [`CodecError::Invalid`] for a float outside the range of the integer type: NumPy's result
/// depends on the machine.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::unnecessary_cast
)]
pub(super) fn store(
    codec: &'static str,
    lane: &NumberBlock,
    count: usize,
    of: StoredNumber,
    output: &mut Vec<u8>,
) -> Result<()> {
    match (lane, of.data_type) {
        (NumberBlock::Signed(lane), _) => put_integers!(lane, count, of, output),
        (NumberBlock::Unsigned(lane), _) => put_integers!(lane, count, of, output),
        (NumberBlock::Float(lane), DataType::Float16) => {
            put!(lane, count, of.endian, output, f16::from_f64);
        }
        (NumberBlock::Float(lane), DataType::Float32) => {
            put!(lane, count, of.endian, output, |n| n as f32)
        }
        (NumberBlock::Float(lane), DataType::Float64) => {
            put!(lane, count, of.endian, output, |n| n)
        }
        (NumberBlock::Float(lane), data_type) => {
            let (least, most) = bounds(data_type);
            let mut whole = [0_i64; BLOCK];
            let mut unsigned = [0_u64; BLOCK];
            for (index, number) in lane[..count].iter().enumerate() {
                let number = number.trunc();
                if !(number >= least && number < most) {
                    let detail = format!(": {number} is no {data_type}");
                    return Err(CodecError::Invalid { codec, detail });
                }
                whole[index] = number as i64;
                unsigned[index] = number as u64;
            }
            let lane = match data_type {
                DataType::UInt64 => NumberBlock::Unsigned(unsigned),
                _ => NumberBlock::Signed(whole),
            };
            return store(codec, &lane, count, of, output);
        }
    }
    Ok(())
}

/// Returns the smallest integer of a type, and the largest plus one.
fn bounds(data_type: DataType) -> (f64, f64) {
    use DataType as T;
    let signed = |bits: i32| (-(2_f64.powi(bits - 1)), 2_f64.powi(bits - 1));
    let unsigned = |bits: i32| (0.0, 2_f64.powi(bits));
    match data_type {
        T::Int8 => signed(8),
        T::Int16 => signed(16),
        T::Int32 => signed(32),
        T::UInt8 => unsigned(8),
        T::UInt16 => unsigned(16),
        T::UInt32 => unsigned(32),
        T::UInt64 => unsigned(64),
        _ => signed(64),
    }
}

/// Decodes all of `input`, a block at a time; `change` maps the numbers of a block.
pub(super) fn each_block(
    codec: &'static str,
    input: &[u8],
    (decoded, encoded): (StoredNumber, StoredNumber),
    output: &mut Vec<u8>,
    mut change: impl FnMut(NumberBlock, usize) -> NumberBlock,
) -> Result<()> {
    let length = decoded_length(input.len(), decoded, encoded).ok_or(CodecError::Length {
        codec,
        expected: input.len() / encoded.size() * encoded.size(),
        found: input.len(),
    })?;
    output.clear();
    grow(output, length)?;
    output.clear();
    for block in input.chunks(BLOCK * encoded.size()) {
        let count = block.len() / encoded.size();
        store(codec, &change(load(block, encoded), count), count, decoded, output)?;
    }
    Ok(())
}

/// Returns the length in bytes of the elements whose encoded form has `length` bytes.
fn decoded_length(length: usize, decoded: StoredNumber, encoded: StoredNumber) -> Option<usize> {
    encoded_length(length, encoded, decoded)
}

/// Returns the length in bytes of the encoded form of elements of `length` bytes.
pub(super) fn encoded_length(
    length: usize,
    decoded: StoredNumber,
    encoded: StoredNumber,
) -> Option<usize> {
    let is_whole = length.is_multiple_of(decoded.size());
    is_whole.then(|| (length / decoded.size()).checked_mul(encoded.size())).flatten()
}
