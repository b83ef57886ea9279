//! Round trips against simple models, damage, and impossible claims.
#![allow(clippy::cast_possible_truncation)]

mod boxes;
mod columns;
mod directory;
mod promises;
mod records;
mod root;
mod section;
mod settled;
mod table;

use proptest::prelude::*;

use super::varint::write_varint;
use super::{Boxes, LogError};
use crate::Limits;

fn limits() -> Limits {
    Limits::default()
}

/// Asserts that `decode` accepts `bytes`, but no proper prefix and no extension.
fn assert_exact<T: std::fmt::Debug>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T, LogError>) {
    assert!(decode(bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "the first {length} bytes");
    }
    assert!(decode(&[bytes, &[0]].concat()).is_err(), "a zero behind them");
}

fn assert_every_bit_counts<T: std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, LogError>,
) {
    assert!(decode(bytes).is_ok());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&flipped).is_err(), "bit {bit}");
    }
}

/// Returns a body of version 1 with these counts, followed by bytes that could be columns.
fn body_of_counts(counts: &[u64]) -> Vec<u8> {
    let mut bytes = vec![1];
    // The identity of the commit.
    bytes.extend_from_slice(&[0; 17]);
    counts.iter().for_each(|count| write_varint(*count, &mut bytes));
    bytes.extend_from_slice(&[0; 4096]);
    bytes
}

/// Shapes of up to five axes; some have more elements than 64 bits count.
fn shapes() -> impl Strategy<Value = Vec<u64>> {
    let length = prop_oneof![4 => 1_u64..9, 1 => Just(u64::MAX), 1 => 1_u64..1 << 40];
    prop::collection::vec(length, 0..5)
}

/// Returns one to `count_max` boxes inside `shape`, derived from any numbers.
fn boxes_in(shape: &[u64], numbers: &[(u64, u64)], count_max: usize) -> Boxes {
    let rank = shape.len();
    let count = (numbers.len() / rank.max(1)).clamp(1, count_max);
    if rank == 0 {
        return Boxes::without_axes(count);
    }
    let (mut starts, mut lengths) = (Vec::new(), Vec::new());
    for index in 0..count * rank {
        let length = shape[index % rank];
        let (start, more) = numbers.get(index).copied().unwrap_or_default();
        starts.push(start % length);
        lengths.push(1 + more % (length - start % length));
    }
    Boxes::new(rank, starts, lengths).unwrap()
}

/// Numbers for [`boxes_in`], many of them equal.
fn pairs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let number = || prop_oneof![0_u64..4, any::<u64>()];
    prop::collection::vec((number(), number()), 0..60)
}

/// The name of a defect, and a function that introduces it.
type Change<T> = (&'static str, fn(&mut T));
