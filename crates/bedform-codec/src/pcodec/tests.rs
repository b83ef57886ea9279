#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

use bedform_format::{BytesCodec, CodecChain};

use super::*;
use crate::tests::pcodec;
use crate::{ChunkCodec, Scratch};

const TYPES: [DataType; 9] = [
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
];

/// xorshift: a reproducible sequence of random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn chunk(chain: &CodecChain, data_type: DataType, count: usize) -> ChunkCodec {
    ChunkCodec::new(chain, data_type, &[count as u64])
}

fn with(change: impl Fn(&mut PcodecConfiguration)) -> CodecChain {
    let mut chain = pcodec(&[]);
    if let Serializer::Pcodec(configuration) = &mut chain.serializer {
        change(configuration);
    }
    chain
}

/// Noise, ramps, constants, multiples, few values, tenths, repeats: Pco has modes and deltas for
/// each.
fn samples(data_type: DataType, count: usize) -> Vec<Vec<u8>> {
    let size = data_type.item_size().unwrap();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let noise: Vec<u8> = (0..count * size).map(|_| numbers.next() as u8).collect();
    let of = |value: &dyn Fn(usize) -> u64| -> Vec<u8> {
        (0..count).flat_map(|at| value(at).to_le_bytes()[..size].to_vec()).collect()
    };
    let tenths = |at: usize| -> Vec<u8> {
        let number = (at % 977) as f64 * 0.1;
        match size {
            2 => f16::from_f64(number).to_le_bytes().to_vec(),
            4 => (number as f32).to_le_bytes().to_vec(),
            _ => number.to_le_bytes().to_vec(),
        }
    };
    vec![
        noise,
        of(&|at| at as u64),
        of(&|_| 0x7fc0_1234_5678_9abc),
        of(&|at| (at as u64).wrapping_mul(at as u64) / 7 * 1000),
        of(&|at| [3, 1 << 40, u64::MAX, 0][at * at % 4]),
        (0..count).flat_map(tenths).collect(),
        of(&|at| ((at % 97) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    ]
}

#[test]
fn numbers_of_every_type_come_back_bit_by_bit() {
    let mut scratch = Scratch::default();
    let mut encoded = Vec::new();
    for data_type in TYPES {
        for count in [1, 2, 255, 256, 257, 5000] {
            let codec = chunk(&pcodec(&[]), data_type, count);
            for data in samples(data_type, count) {
                codec.encode(&data, &mut scratch, &mut encoded).unwrap();
                assert!(encoded.len() as u64 <= codec.encoded_bytes_max());
                assert_eq!(codec.decode(&encoded, 0, &mut scratch).unwrap(), data, "{data_type}");
            }
        }
    }
}

#[test]
fn every_setting_gives_numbers_that_come_back() {
    let chains = [
        with(|it| it.level = 0),
        with(|it| it.level = 12),
        with(|it| it.mode = PcodecMode::Classic),
        with(|it| it.delta = PcodecDelta::None),
        with(|it| it.delta = PcodecDelta::Consecutive(0)),
        with(|it| it.delta = PcodecDelta::Consecutive(7)),
        with(|it| it.delta = PcodecDelta::Lookback),
        with(|it| it.page_elements = 64),
        with(|it| it.page_elements = 1 << 24),
    ];
    let mut scratch = Scratch::default();
    let mut encoded = Vec::new();
    for chain in chains {
        for data_type in [DataType::Int16, DataType::Float64] {
            let codec = chunk(&chain, data_type, 100_000);
            for data in samples(data_type, 100_000) {
                codec.encode(&data, &mut scratch, &mut encoded).unwrap();
                assert!(encoded.len() as u64 <= codec.encoded_bytes_max(), "{chain:?}");
                assert_eq!(codec.decode(&encoded, 0, &mut scratch).unwrap(), data, "{chain:?}");
            }
        }
    }
}

#[test]
fn the_form_that_is_written_is_the_one_that_readers_since_2024_know() {
    let codec = chunk(&pcodec(&[]), DataType::Int32, 1000);
    let data: Vec<u8> = (0..1000_i32).flat_map(i32::to_le_bytes).collect();
    let mut encoded = Vec::new();
    codec.encode(&data, &mut Scratch::default(), &mut encoded).unwrap();
    // "pco!", standalone version 2, 10 bits of count, format version 3, number type i32, 1000 less
    // one; written by numcodecs 0.16 with pcodec 0.3.6.
    assert_eq!(encoded[..14], *b"pco!\x02\x09\xfa\x03\x03\xe7\x03\x00\x10\x01");
    assert_eq!(encoded.last(), Some(&END));
}

#[test]
fn files_of_older_and_newer_forms_are_read() {
    let numbers: Vec<u32> = (0..700).map(|at| at * at).collect();
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let codec = chunk(&pcodec(&[]), DataType::UInt32, 700);
    let mut scratch = Scratch::default();
    let mut encoded = Vec::new();
    codec.encode(&data, &mut scratch, &mut encoded).unwrap();
    // Standalone version 3 of format 4, as the library writes it, in modes that format 3 lacks.
    for (mode, delta) in [
        (ModeSpec::Auto, DeltaSpec::Auto),
        (ModeSpec::TryDict, DeltaSpec::NoOp),
        (ModeSpec::Classic, DeltaSpec::TryConv1(6)),
    ] {
        let config = ChunkConfig::default().with_mode_spec(mode).with_delta_spec(delta);
        let newer = pco::standalone::simple_compress(&numbers, &config).unwrap();
        assert_eq!(newer[4], STANDALONE_VERSION_MAX);
        assert_eq!(codec.decode(&newer, 0, &mut scratch).unwrap(), data);
    }
    // The standalone version before the count in the header; its format version 1 had different
    // chunks.
    let older = [MAGIC, &[1], &encoded[8..]].concat();
    assert!(skip_header(&older).is_ok_and(|rest| rest == &older[4..]));
    let mut future = encoded.clone();
    future[4] = 4;
    let error = codec.decode(&future, 0, &mut scratch).unwrap_err().to_string();
    assert!(error.contains("newer"), "{error}");
}

#[test]
fn numbers_of_another_type_and_count_are_refused() {
    let mut scratch = Scratch::default();
    let mut encoded = Vec::new();
    let data = samples(DataType::Int32, 1000).remove(1);
    let written = chunk(&pcodec(&[]), DataType::Int32, 1000);
    written.encode(&data, &mut scratch, &mut encoded).unwrap();
    for data_type in TYPES.into_iter().filter(|other| *other != DataType::Int32) {
        let other = chunk(&pcodec(&[]), data_type, 1000);
        assert!(other.decode(&encoded, 0, &mut scratch).is_err(), "{data_type}");
    }
    for count in [1, 999, 1001, 1 << 20] {
        let other = chunk(&pcodec(&[]), DataType::Int32, count);
        let error = other.decode(&encoded, 0, &mut scratch).unwrap_err();
        assert!(matches!(error, CodecError::Length { codec: NAME, .. }), "{count}: {error}");
    }
    assert!(written.encode(&data[4..], &mut scratch, &mut encoded).is_err());
    encoded.push(0);
    assert!(written.decode(&encoded, 0, &mut scratch).is_err());
}

#[test]
fn other_types_have_no_pcodec() {
    for data_type in [DataType::Bool, DataType::Int8, DataType::Complex64, DataType::String] {
        assert!(!PcodecConfiguration::takes(data_type));
        let codec = chunk(&pcodec(&[]), data_type, 4);
        let outcome = codec.encode(&[0; 64], &mut Scratch::default(), &mut Vec::new());
        assert!(matches!(outcome, Err(CodecError::Unsupported(_))), "{data_type}");
        assert!(codec.decode(b"pco!", 0, &mut Scratch::default()).is_err());
    }
}

/// Returns a file of one chunk of `T`; `body` holds the bits after the chunk's count.
fn file<T: Element>(length: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_header(u64::MAX, &mut bytes);
    *bytes.last_mut().unwrap() = 4;
    bytes.extend([1, T::TYPE]);
    bytes.extend_from_slice(&((length - 1) as u32).to_le_bytes()[..3]);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_file_made_by_hand_is_read() {
    // Format 3: classic mode, no delta, one bin that starts at 0 and takes no bits.
    let bytes = b"pco!\x02\x00\x03\x07\xff\x0f\x00\x00\x10\x00\x00\x00\x00\x00";
    let codec = chunk(&pcodec(&[]), DataType::UInt16, 4096);
    assert_eq!(codec.decode(bytes, 0, &mut Scratch::default()).unwrap(), [0; 8192]);
}

#[test]
fn what_a_file_claims_is_not_allocated() {
    let dictionary = (0x1ff_ffff_u32 << 4 | 4).to_le_bytes();
    // Classic mode, lookback deltas with a window of 2^24, without bins.
    let window = (2_u32 << 4 | 23 << 8).to_le_bytes();
    let bodies = [[&dictionary[..], &[0; 64]].concat(), [&window[..], &[0; 64]].concat()];
    for body in bodies {
        let bytes = file::<u64>(4096, &body);
        let codec = chunk(&pcodec(&[]), DataType::UInt64, 4096);
        let error = codec.decode(&bytes, 0, &mut Scratch::default()).unwrap_err().to_string();
        assert!(error.contains("larger than its chunk"), "{error}");
    }
    let codec = chunk(&pcodec(&[]), DataType::UInt64, 4096);
    let bytes = file::<u64>(1 << 24, &[0; 64]);
    let error = codec.decode(&bytes, 0, &mut Scratch::default()).unwrap_err();
    assert!(matches!(error, CodecError::Length { .. }), "{error}");
}

#[test]
fn pages_of_one_number_are_refused_before_their_tables_cost_seconds() {
    let one = pco::standalone::simple_compress(&[7_u16], &ChunkConfig::default()).unwrap();
    // The chunk lies between the header of the file and its end byte.
    let head = one.len() - skip_header(&one).unwrap().len() + 2;
    let chunk_of_one = &one[head..one.len() - 1];
    let bytes = [&one[..head], &chunk_of_one.repeat(100_000), &[END]].concat();
    let codec = chunk(&pcodec(&[]), DataType::UInt16, 100_000);
    let error = codec.decode(&bytes, 0, &mut Scratch::default()).unwrap_err().to_string();
    assert!(error.contains("pages"), "{error}");
    let bytes = [&one[..head], &chunk_of_one.repeat(1000), &[END]].concat();
    let codec = chunk(&pcodec(&[]), DataType::UInt16, 1000);
    assert_eq!(codec.decode(&bytes, 0, &mut Scratch::default()).unwrap(), [7, 0].repeat(1000));
}

#[test]
fn changed_bytes_never_panic_and_never_give_more_than_a_chunk() {
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let mut scratch = Scratch::default();
    let configs = [
        ChunkConfig::default(),
        ChunkConfig::default().with_mode_spec(ModeSpec::TryDict),
        ChunkConfig::default().with_delta_spec(DeltaSpec::TryLookback),
        ChunkConfig::default().with_delta_spec(DeltaSpec::TryConsecutive(7)),
        ChunkConfig::default().with_delta_spec(DeltaSpec::TryConv1(6)),
        ChunkConfig::default().with_paging_spec(PagingSpec::EqualPagesUpTo(100)),
    ];
    let rounds = 300;
    for data_type in [DataType::UInt16, DataType::Int32, DataType::Float32, DataType::Float64] {
        let codec = chunk(&pcodec(&[]), data_type, 700);
        for data in samples(data_type, 700) {
            for config in &configs {
                let Ok(encoded) = compress(data_type, &data, config) else { continue };
                for _ in 0..rounds {
                    let mut changed = encoded.clone();
                    for _ in 0..=numbers.below(3) {
                        // The first bytes decide most.
                        let most = if numbers.below(2) == 0 { 40 } else { usize::MAX };
                        let at = numbers.below(changed.len().min(most));
                        changed[at] = match numbers.below(3) {
                            0 => changed[at] ^ 1 << numbers.below(8),
                            1 => 0xff,
                            _ => numbers.next() as u8,
                        };
                    }
                    changed.truncate(changed.len() - numbers.below(3) * numbers.below(9));
                    if let Ok(decoded) = codec.decode(&changed, 0, &mut scratch) {
                        assert_eq!(decoded.len(), codec.decoded_bytes());
                    }
                }
            }
        }
    }
}

fn compress(
    data_type: DataType,
    data: &[u8],
    config: &ChunkConfig,
) -> std::result::Result<Vec<u8>, PcoError> {
    fn of<T: Element>(data: &[u8], config: &ChunkConfig) -> std::result::Result<Vec<u8>, PcoError> {
        let numbers: Vec<T> = data.chunks_exact(size_of::<T>()).map(T::get).collect();
        pco::standalone::simple_compress(&numbers, config)
    }
    match data_type {
        DataType::UInt16 => of::<u16>(data, config),
        DataType::Int32 => of::<i32>(data, config),
        DataType::Float32 => of::<f32>(data, config),
        _ => of::<f64>(data, config),
    }
}

#[test]
fn the_front_of_a_chunk_needs_its_pages_only() {
    let mut chain = with(|it| it.page_elements = 1000);
    chain.bytes = vec![BytesCodec::Crc32c];
    let codec = chunk(&chain, DataType::Int64, 10_000);
    let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
    let data = samples(DataType::Int64, 10_000).remove(3);
    codec.encode(&data, &mut scratch, &mut encoded).unwrap();
    let front = codec.decode_front(&encoded, 0, 8 * 1500, &mut scratch).unwrap();
    assert_eq!(front, &data[..8 * 2000]);
    // Without a checksum, the decoder reads all pages.
    let unchecked = chunk(&with(|it| it.page_elements = 1000), DataType::Int64, 10_000);
    let bytes = &encoded[..encoded.len() - 4];
    assert_eq!(unchecked.decode_front(bytes, 0, 8, &mut scratch).unwrap(), data);
    assert!(unchecked.decode_front(&bytes[..bytes.len() - 1], 0, 8, &mut scratch).is_err());
}
