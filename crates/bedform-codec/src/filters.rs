//! `delta`, `fixedscaleoffset`, `quantize` and `astype`: numcodecs' filters of numbers. Bedform
//! reads them but does not write them.

use std::sync::Arc;

use bedform_format::codec::StoredNumber;
use bedform_format::{BytesCodec, DataType};
use half::f16;

use super::numbers::{BLOCK, NumberBlock, each_block, encoded_length};
use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result, only_read};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    let (name, change, types) = match *codec {
        BytesCodec::Delta { decoded, encoded } => ("delta", Change::Sum, (decoded, encoded)),
        BytesCodec::FixedScaleOffset { decoded, encoded, scale, offset } => {
            let change = Change::ScaleOffset { scale: scale.get(), offset: offset.get() };
            ("fixedscaleoffset", change, (decoded, encoded))
        }
        BytesCodec::Quantize { decoded, encoded, .. } => {
            ("quantize", Change::None, (decoded, encoded))
        }
        BytesCodec::AsType { decoded, encoded } => ("astype", Change::None, (decoded, encoded)),
        _ => return None,
    };
    Some(Arc::new(NumberFilter { name, change, types }))
}

/// The transformation of encoded numbers before their conversion.
#[derive(Debug, Clone, Copy)]
enum Change {
    None,
    /// Adds to each number the sum of all before it.
    Sum,
    ScaleOffset {
        scale: f64,
        offset: f64,
    },
}

#[derive(Debug)]
struct NumberFilter {
    name: &'static str,
    change: Change,
    /// Types of decoded and of encoded elements.
    types: (StoredNumber, StoredNumber),
}

impl BytesToBytes for NumberFilter {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        let (decoded, encoded) = self.types;
        match self.change {
            Change::None => each_block(self.name, input, self.types, output, |lane, _| lane)?,
            Change::Sum => {
                let mut sum = Sum::of(decoded.data_type);
                each_block(self.name, input, self.types, output, |lane, count| {
                    sum.add(lane, count)
                })?;
            }
            Change::ScaleOffset { scale, offset } => {
                each_block(self.name, input, self.types, output, |lane, _| {
                    scaled(lane, encoded.data_type, scale, offset)
                })?;
            }
        }
        Ok(Decoded::Output)
    }

    fn encode(&self, _: &[u8], _: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        only_read(self.name)
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        encoded_length(decoded, self.types.0, self.types.1)
    }
}

/// A running sum, in the type in which NumPy adds.
enum Sum {
    Integer(u64),
    Half(f16),
    Single(f32),
    Double(f64),
}

impl Sum {
    fn of(data_type: DataType) -> Self {
        match data_type {
            DataType::Float16 => Self::Half(f16::NEG_ZERO),
            DataType::Float32 => Self::Single(-0.0),
            DataType::Float64 => Self::Double(-0.0),
            _ => Self::Integer(0),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn add(&mut self, lane: NumberBlock, count: usize) -> NumberBlock {
        match self {
            // Integer addition wraps, so the bits suffice.
            Self::Integer(sum) => {
                let mut sums = [0; BLOCK];
                for (index, place) in sums.iter_mut().take(count).enumerate() {
                    *sum = sum.wrapping_add(match &lane {
                        NumberBlock::Signed(lane) => lane[index] as u64,
                        NumberBlock::Unsigned(lane) => lane[index],
                        // The metadata parser refuses such types.
                        NumberBlock::Float(lane) => lane[index] as u64,
                    });
                    *place = *sum;
                }
                NumberBlock::Unsigned(sums)
            }
            Self::Half(sum) => floats(&lane, count, |number| {
                *sum = f16::from_f32(sum.to_f32() + f16::from_f64(number.double()).to_f32());
                sum.to_f64()
            }),
            Self::Single(sum) => floats(&lane, count, |number| {
                *sum += number.single();
                f64::from(*sum)
            }),
            Self::Double(sum) => floats(&lane, count, |number| {
                *sum += number.double();
                *sum
            }),
        }
    }
}

/// A number of a block.
#[derive(Clone, Copy)]
enum Number {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Number {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    fn single(self) -> f32 {
        match self {
            Self::Signed(number) => number as f32,
            Self::Unsigned(number) => number as f32,
            Self::Float(number) => number as f32,
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn double(self) -> f64 {
        match self {
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

fn floats(lane: &NumberBlock, count: usize, mut change: impl FnMut(Number) -> f64) -> NumberBlock {
    let mut changed = [0.0; BLOCK];
    for (index, place) in changed.iter_mut().take(count).enumerate() {
        *place = change(match lane {
            NumberBlock::Signed(lane) => Number::Signed(lane[index]),
            NumberBlock::Unsigned(lane) => Number::Unsigned(lane[index]),
            NumberBlock::Float(lane) => Number::Float(lane[index]),
        });
    }
    NumberBlock::Float(changed)
}

/// Returns `number / scale + offset`, with the precision that NumPy uses for encoded numbers of
/// this type.
#[allow(clippy::cast_possible_truncation)]
fn scaled(lane: NumberBlock, encoded: DataType, scale: f64, offset: f64) -> NumberBlock {
    match encoded {
        DataType::Float16 => {
            let (scale, offset) = (f16::from_f64(scale).to_f32(), f16::from_f64(offset).to_f32());
            floats(&lane, BLOCK, |number| {
                let quotient = f16::from_f32(number.single() / scale);
                f16::from_f32(quotient.to_f32() + offset).to_f64()
            })
        }
        DataType::Float32 => {
            let (scale, offset) = (scale as f32, offset as f32);
            floats(&lane, BLOCK, |number| f64::from(number.single() / scale + offset))
        }
        _ => floats(&lane, BLOCK, |number| number.double() / scale + offset),
    }
}
