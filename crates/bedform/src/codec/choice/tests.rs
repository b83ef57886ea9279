use proptest::prelude::*;

use super::*;

fn rates() -> ReadRates {
    ReadRates { bytes_per_second: 1e9, cores: 2.0, ..ReadRates::of(&Profile::default_local()) }
}

/// A sample of one block without padding.
fn block(elements: Vec<u8>) -> [SampleBlock; 1] {
    [SampleBlock { valid_bytes: elements.len(), elements }]
}

/// The choice for an array of one chunk.
fn choice_for(elements: Vec<u8>, data_type: DataType, beyond_zarr: bool) -> ChosenCodecs {
    let chunk_bytes = elements.len();
    choose(&block(elements), data_type, chunk_bytes, beyond_zarr, rates()).unwrap()
}

/// The measurement of a mebibyte of elements with an encoded size relative to it, and a decoding
/// rate of one core.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn measured(size: f64, decode_bytes_per_second: f64) -> Option<CodecMeasurement> {
    let valid_bytes = 1 << 20;
    let encoded_bytes = (valid_bytes as f64 * size) as u64;
    let decoding_seconds = valid_bytes as f64 / decode_bytes_per_second;
    Some(CodecMeasurement { valid_bytes, encoded_bytes, decoding_seconds })
}

fn taken(measured: &[Option<CodecMeasurement>], bytes_per_second: f64) -> usize {
    cheapest(measured, ReadRates { bytes_per_second, ..rates() })
}

#[test]
fn fast_storage_takes_what_decodes_fast_and_slow_storage_what_is_small() {
    let all = [measured(0.5, 1e9), measured(0.5, 5e9), measured(0.3, 5e8)];
    assert_eq!(taken(&all, 10e9), 1);
    assert_eq!(taken(&all, 1e8), 2);
}

#[test]
fn what_is_more_than_two_percent_larger_than_zstd_is_never_taken() {
    let all = |size| [measured(0.5, 1e8), measured(size, 1e11)];
    assert_eq!(taken(&all(0.509), 10e9), 1);
    assert_eq!(taken(&all(0.512), 10e9), 0);
}

#[test]
fn times_that_are_nearly_the_same_leave_the_first_candidate() {
    let all = [measured(0.5, 1e9), measured(0.5, 1.01e9), measured(0.5, 1.005e9)];
    assert_eq!(taken(&all, 1e9), 0);
}

#[test]
fn a_candidate_that_was_given_up_is_not_taken() {
    assert_eq!(taken(&[measured(0.5, 1e9), None], 1e9), 0);
    assert_eq!(taken(&[], 1e9), 0);
}

/// Smooth numbers with noise in the last `bits` bits of the mantissa.
fn smooth(count: usize, bits: u32) -> Vec<u8> {
    let mut state = 1_u64;
    let mut noise = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 40).unwrap_or(0)
    };
    #[allow(clippy::cast_precision_loss)]
    let element = |at: usize| 280.0_f32 + 20.0 * (at as f32 / 500.0).sin();
    let bits = (1_u32 << bits) - 1;
    (0..count).flat_map(|at| (element(at).to_bits() ^ (noise() & bits)).to_le_bytes()).collect()
}

#[test]
fn smooth_numbers_are_shuffled_and_noise_is_stored_as_it_is() {
    let chosen = choice_for(smooth(1 << 16, 8), DataType::Float32, false);
    assert!(matches!(chosen.codecs.as_slice(), [BytesCodec::Blosc(_)]), "{chosen:?}");
    let sizes = |name: &str| {
        let found = chosen.comparison.compared.iter().find(|codec| codec.name == name);
        found.map(|codec| codec.size)
    };
    assert!(chosen.comparison.size() < sizes("zstd"), "{chosen:?}");

    let noise: Vec<u8> =
        smooth(1 << 16, 31).into_iter().zip(smooth(1 << 18, 8)).map(|(a, b)| a ^ b).collect();
    let chosen = choice_for(noise, DataType::UInt8, false);
    assert_eq!(
        chosen.codecs.len(),
        usize::from(chosen.comparison.size() < Some(0.98)),
        "{chosen:?}"
    );
}

#[test]
fn codecs_beyond_zarr_are_taken_only_where_they_are_allowed() {
    let is_beyond = |candidate: &CodecCandidate| candidate.serializer.is_some();
    for data_type in [DataType::Float32, DataType::Int16, DataType::UInt64] {
        assert!(!candidates(data_type, 1 << 20, false).iter().any(is_beyond), "{data_type}");
        let all = candidates(data_type, 1 << 20, true);
        assert_eq!(all.iter().filter(|one| is_beyond(one)).count(), 1);
    }
    // Pco has no codec for single bytes or complex numbers.
    for data_type in [DataType::UInt8, DataType::Bool, DataType::Complex64, DataType::FixedBytes(8)]
    {
        assert!(!candidates(data_type, 1 << 20, true).iter().any(is_beyond), "{data_type}");
    }
}

#[test]
fn text_and_a_few_bytes_are_not_compared() {
    for (elements, data_type) in [
        (vec![1; 1 << 20], DataType::String),
        (smooth(SAMPLE_BYTES_MIN / 4 - 1, 8), DataType::Float32),
    ] {
        assert_eq!(choice_for(elements, data_type, true), ChosenCodecs::without_sample());
    }
    let nothing = choose(&[], DataType::Float64, 1 << 20, true, rates()).unwrap();
    assert_eq!(nothing, ChosenCodecs::without_sample());
}

#[test]
fn the_note_begins_with_what_was_taken() {
    let chosen = choice_for(smooth(1 << 15, 8), DataType::Float32, true);
    let compared = &chosen.comparison.compared;
    let names: Vec<&str> = compared.iter().map(|codec| codec.name.as_str()).collect();
    let of_taken = candidates(DataType::Float32, 1 << 17, true)
        .into_iter()
        .find(|one| one.name == names[0])
        .map(|one| (one.serializer, one.codecs));
    assert_eq!(of_taken, Some((chosen.serializer, chosen.codecs)));
    assert!(names.contains(&"zstd"), "{names:?}");
    assert_eq!(chosen.comparison.sampled_bytes, 1 << 17);
}

const DATA_TYPES: [DataType; 12] = [
    DataType::Bool,
    DataType::Int8,
    DataType::UInt8,
    DataType::Int16,
    DataType::UInt32,
    DataType::Int64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Complex64,
    DataType::Complex128,
    DataType::FixedBytes(7),
];

/// Bits that codecs of numbers often get wrong: NaN with payloads, subnormal numbers, -0.0,
/// infinities.
fn hard_bits() -> impl Strategy<Value = u64> {
    let double = |value: f64| Just(value.to_bits());
    prop_oneof![
        any::<u64>(),
        (1_u64..1 << 52).prop_map(|payload| f64::NAN.to_bits() | payload),
        (1_u64..1 << 52).prop_map(|payload| 0xfff0_0000_0000_0000 | payload),
        (0_u64..1 << 52),
        double(-0.0),
        double(f64::NEG_INFINITY),
        (any::<u32>())
            .prop_map(|bits| u64::from(0x7f80_0000 | (bits >> 9)) << 32 | u64::from(bits)),
    ]
}

fn hard_bytes(item_size: usize) -> impl Strategy<Value = Vec<u8>> {
    let bytes = |words: Vec<u64>| words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    let many = proptest::collection::vec(hard_bits(), 1..300).prop_map(bytes);
    let equal =
        (hard_bits(), 1_usize..3000).prop_map(move |(word, count)| bytes(vec![word; count]));
    prop_oneof![many, equal].prop_map(move |mut bytes| {
        bytes.truncate(bytes.len() / item_size * item_size);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_candidate_gives_back_every_bit(
        (data_type, elements) in prop::sample::select(&DATA_TYPES[..]).prop_flat_map(|data_type| {
            (Just(data_type), hard_bytes(data_type.item_size().unwrap_or(1)))
        }),
    ) {
        let item_size = data_type.item_size().unwrap_or(1);
        let mut scratch = Scratch::default();
        for candidate in candidates(data_type, elements.len(), true) {
            let chain = CodecTrial::of(candidate).chain;
            let count = (elements.len() / item_size) as u64;
            let codec = ChunkCodec::new(&chain, data_type, &[count]);
            let mut encoded = Vec::new();
            codec.encode(&elements, &mut scratch, &mut encoded).unwrap();
            let decoded = codec.decode(&encoded, 0, &mut scratch).unwrap();
            prop_assert_eq!(decoded, elements.as_slice());
        }
    }

    #[test]
    fn one_sample_and_one_profile_give_one_choice(
        (data_type, elements) in prop::sample::select(&DATA_TYPES[..]).prop_flat_map(|data_type| {
            (Just(data_type), hard_bytes(data_type.item_size().unwrap_or(1)))
        }),
        beyond_zarr: bool,
    ) {
        let elements = elements.repeat(1 + SAMPLE_BYTES_MIN / elements.len().max(1));
        let again = choice_for(elements.clone(), data_type, beyond_zarr);
        prop_assert_eq!(choice_for(elements, data_type, beyond_zarr), again);
    }
}

/// Numbers with few values, in a chunk with an odd number of elements.
#[test]
fn the_bits_of_a_chunk_of_any_shape_are_put_side_by_side() {
    for count in [52_500_usize, 52_504, 16_384 + 1, 300_007] {
        let elements: Vec<u8> = (0..count as u64)
            .flat_map(|at| {
                let number = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
                u32::try_from(number).unwrap_or(0).to_le_bytes()
            })
            .collect();
        let chosen = choice_for(elements, DataType::UInt32, false);
        let size = |name: &str| {
            chosen.comparison.compared.iter().find(|one| one.name == name).map(|one| one.size)
        };
        for name in ["blosc-lz4-bitshuffle", "blosc-zstd-bitshuffle"] {
            assert!(size(name) < Some(0.15), "{count}: {chosen:?}");
        }
    }
}
