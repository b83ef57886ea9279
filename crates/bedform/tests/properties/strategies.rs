//! Random arrays, selections and changes.

use bedform::{ArrayLayout, NewArray};
use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, PcodecConfiguration, PcodecDelta, PcodecMode,
};
use bedform_format::metadata::FillValue;
use bedform_format::{BytesCodec, DataType, Serializer};
use bedform_geometry::{AxisRange, AxisSelection, Order, Points, Region, Selection};
use proptest::collection::vec;
use proptest::prelude::*;

use super::model::Numbers;

pub(crate) const TYPES: [DataType; 15] = [
    DataType::Bool,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Complex64,
    DataType::Complex128,
    DataType::String,
];

const ORDERS: [Order; 4] = [Order::RowMajor, Order::ColumnMajor, Order::Z, Order::Hilbert];

fn codecs() -> impl Strategy<Value = Vec<BytesCodec>> {
    let blosc = BytesCodec::Blosc(BloscConfiguration {
        compressor: BloscCompressor::Lz4,
        level: 5,
        shuffle: BloscShuffle::Byte,
        type_size: 4,
        block_size: 0,
    });
    let zstd = BytesCodec::Zstd { level: 1, checksum: false };
    prop_oneof![
        3 => Just(vec![]),
        2 => Just(vec![zstd]),
        1 => Just(vec![BytesCodec::Zstd { level: -3, checksum: true }]),
        1 => Just(vec![BytesCodec::Gzip { level: 1 }]),
        1 => Just(vec![blosc]),
        1 => Just(vec![BytesCodec::Shuffle { element_size: 4 }, zstd]),
        1 => Just(vec![BytesCodec::Crc32c, BytesCodec::Zlib { level: 1 }]),
    ]
}

/// Returns a serializer for some arrays: Pco, where it supports the elements.
fn serializer(data_type: DataType, seed: u64) -> Option<Serializer> {
    if !PcodecConfiguration::takes(data_type) || !seed.is_multiple_of(4) {
        return None;
    }
    Some(Serializer::Pcodec(PcodecConfiguration {
        level: 4,
        mode: PcodecMode::Auto,
        delta: PcodecDelta::Auto,
        page_elements: 1 << 18,
    }))
}

/// Shapes of rank 0 to 4, with lengths of zero among them.
pub(crate) fn shape() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![1 => Just(0), 15 => 1..=7_u64], 0..=4)
}

fn fill(data_type: DataType, seed: u64) -> FillValue {
    if seed.is_multiple_of(3) {
        return FillValue::zero(data_type);
    }
    let element = Numbers(seed).element(data_type);
    match data_type {
        DataType::String => FillValue::Text(String::from_utf8(element).unwrap()),
        _ => FillValue::Bytes(element),
    }
}

/// An array of small chunks in small shards.
pub(crate) fn new_array(types: &'static [DataType]) -> impl Strategy<Value = NewArray> {
    let axes = |shape: &Vec<u64>| {
        let rank = shape.len();
        (
            vec(1..=4_u64, rank),
            vec(1..=3_u64, rank),
            Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
        )
    };
    let rest = (
        proptest::sample::select(types),
        proptest::sample::select(&ORDERS[..]),
        codecs(),
        any::<(bool, bool, u64)>(),
    );
    (shape(), rest)
        .prop_flat_map(move |(shape, rest)| (axes(&shape), Just(shape), Just(rest)))
        .prop_map(|((chunk_shape, factors, transpose), shape, rest)| {
            let (data_type, order, codecs, (checksum, transposed, seed)) = rest;
            let shard_shape = chunk_shape.iter().zip(factors).map(|(a, b)| a * b).collect();
            NewArray {
                shape,
                data_type,
                layout: ArrayLayout {
                    chunk_shape,
                    shard_shape,
                    order,
                    serializer: serializer(data_type, seed / 3),
                    codecs,
                    transpose: transposed.then_some(transpose),
                    checksum,
                    keys: bedform_format::metadata::ChunkKeys::DEFAULT,
                    choice: None,
                },
                fill_value: fill(data_type, seed),
                dimension_names: None,
                attributes: serde_json::Map::new(),
            }
        })
}

/// Returns a selection of an array of `shape`: everything, a box, steps of either sign, lists with
/// equal entries, points, or unions of overlapping boxes.
pub(crate) fn selection(shape: &[u64], numbers: &mut Numbers) -> Selection {
    match numbers.below(8) {
        0 => Selection::all(shape),
        1 => points(shape, numbers),
        2 => Selection::Union((0..numbers.below(4)).map(|_| region(shape, numbers)).collect()),
        3 => Selection::from(region(shape, numbers)),
        _ => Selection::Orthogonal(shape.iter().map(|size| axis(*size, numbers)).collect()),
    }
}

fn region(shape: &[u64], numbers: &mut Numbers) -> Region {
    let (start, lengths): (Vec<u64>, Vec<u64>) = shape
        .iter()
        .map(|size| {
            let (a, b) = (numbers.below(size + 1), numbers.below(size + 1));
            (a.min(b), a.abs_diff(b))
        })
        .unzip();
    Region::new(start, lengths).unwrap()
}

fn points(shape: &[u64], numbers: &mut Numbers) -> Selection {
    let count = if shape.contains(&0) { 0 } else { numbers.below(12) };
    if shape.is_empty() {
        return Selection::Points(Points::of_rank_zero(count));
    }
    let coords =
        shape.iter().map(|size| (0..count).map(|_| numbers.below(*size)).collect()).collect();
    Selection::Points(Points::new(coords).unwrap())
}

fn axis(size: u64, numbers: &mut Numbers) -> AxisSelection {
    if size == 0 {
        return AxisSelection::Range(AxisRange::whole(0));
    }
    match numbers.below(4) {
        0 => AxisSelection::Range(AxisRange::whole(size)),
        1 => AxisSelection::Coords((0..numbers.below(6)).map(|_| numbers.below(size)).collect()),
        _ => {
            let start = numbers.below(size);
            let step = numbers.below(3).cast_signed() + 1;
            let step = if numbers.below(2) == 0 { step } else { -step };
            let room = if step > 0 { size - 1 - start } else { start };
            let most = room / step.unsigned_abs() + 1;
            AxisSelection::Range(AxisRange::new(start, step, numbers.below(most + 1)).unwrap())
        }
    }
}
