#![allow(clippy::cast_possible_truncation)]

use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, PcodecConfiguration, PcodecDelta, PcodecMode,
};
use bedform_format::{CodecChain, Endian};

use super::*;

fn chain(bytes: &[BytesCodec]) -> CodecChain {
    CodecChain {
        transpose: None,
        serializer: Serializer::Bytes(Endian::Little),
        bytes: bytes.to_vec(),
    }
}

fn blosc_of(compressor: BloscCompressor, shuffle: BloscShuffle) -> BytesCodec {
    BytesCodec::Blosc(BloscConfiguration {
        compressor,
        level: 5,
        shuffle,
        type_size: 4,
        block_size: 0,
    })
}

pub(super) fn pcodec(bytes: &[BytesCodec]) -> CodecChain {
    let serializer = Serializer::Pcodec(PcodecConfiguration {
        level: 8,
        mode: PcodecMode::Auto,
        delta: PcodecDelta::Auto,
        page_elements: 1 << 18,
    });
    CodecChain { serializer, ..chain(bytes) }
}

fn chains() -> Vec<CodecChain> {
    let zstd = BytesCodec::Zstd { level: 3, checksum: false };
    vec![
        chain(&[]),
        chain(&[BytesCodec::Crc32c]),
        chain(&[zstd]),
        chain(&[zstd, BytesCodec::Crc32c]),
        chain(&[BytesCodec::Zstd { level: -5, checksum: true }]),
        chain(&[BytesCodec::Gzip { level: 6 }]),
        chain(&[BytesCodec::Zlib { level: 1 }, BytesCodec::Crc32c]),
        chain(&[BytesCodec::Shuffle { element_size: 4 }, zstd, BytesCodec::Crc32c]),
        chain(&[BytesCodec::Crc32c, zstd, BytesCodec::Gzip { level: 1 }]),
        chain(&[blosc_of(BloscCompressor::Lz4, BloscShuffle::Byte)]),
        chain(&[blosc_of(BloscCompressor::Zstd, BloscShuffle::Bit), BytesCodec::Crc32c]),
        chain(&[blosc_of(BloscCompressor::Zlib, BloscShuffle::None)]),
        chain(&[blosc_of(BloscCompressor::BloscLz, BloscShuffle::Byte)]),
        pcodec(&[]),
        pcodec(&[BytesCodec::Crc32c]),
        pcodec(&[zstd, BytesCodec::Crc32c]),
        pcodec(&[BytesCodec::Crc32c, BytesCodec::Gzip { level: 1 }]),
    ]
}

fn sample(count: usize) -> Vec<u8> {
    (0..count as u32).flat_map(|i| (i.wrapping_mul(i) % 1009).to_le_bytes()).collect()
}

#[test]
fn every_chain_gives_back_what_it_took() {
    let mut scratch = Scratch::default();
    for chain in chains() {
        for count in [1, 7, 4096] {
            let codec = ChunkCodec::new(&chain, DataType::UInt32, &[count as u64]);
            let data = sample(count);
            let mut encoded = Vec::new();
            codec.encode(&data, &mut scratch, &mut encoded).unwrap();
            assert_eq!(codec.decode(&encoded, 0, &mut scratch).unwrap(), data, "{chain:?}");
        }
    }
}

#[test]
fn data_of_another_size_than_the_chunk_are_refused_by_every_chain() {
    let mut scratch = Scratch::default();
    for chain in chains() {
        let larger = ChunkCodec::new(&chain, DataType::UInt32, &[4096]);
        let smaller = ChunkCodec::new(&chain, DataType::UInt32, &[4095]);
        let mut encoded = Vec::new();
        larger.encode(&sample(4096), &mut scratch, &mut encoded).unwrap();
        assert!(smaller.decode(&encoded, 0, &mut scratch).is_err(), "{chain:?}");
        smaller.encode(&sample(4095), &mut scratch, &mut encoded).unwrap();
        assert!(larger.decode(&encoded, 0, &mut scratch).is_err(), "{chain:?}");
    }
}

#[test]
fn a_bomb_is_refused_without_its_memory() {
    let bomb = vec![0_u8; 64 << 20];
    let mut scratch = Scratch::default();
    for codec in [
        BytesCodec::Zstd { level: 3, checksum: false },
        BytesCodec::Gzip { level: 6 },
        BytesCodec::Zlib { level: 6 },
        blosc_of(BloscCompressor::Zstd, BloscShuffle::None),
    ] {
        let chain = chain(&[codec]);
        let mut encoded = Vec::new();
        ChunkCodec::new(&chain, DataType::UInt8, &[64 << 20])
            .encode(&bomb, &mut scratch, &mut encoded)
            .unwrap();
        let small = ChunkCodec::new(&chain, DataType::UInt8, &[4096]);
        let mut fresh = Scratch::default();
        assert!(small.decode(&encoded, 0, &mut fresh).is_err(), "{codec:?}");
        assert!(fresh.front.capacity() + fresh.back.capacity() < 1 << 20, "{codec:?}");
    }
}

#[test]
fn memory_that_is_used_again_grows_to_what_is_allowed_and_no_further() {
    for codec in [
        BytesCodec::Zstd { level: 3, checksum: false },
        BytesCodec::Gzip { level: 6 },
        BytesCodec::Zlib { level: 6 },
        blosc_of(BloscCompressor::Zstd, BloscShuffle::None),
        BytesCodec::Shuffle { element_size: 4 },
    ] {
        // The outer codec knows only a bound, the inner one the exact size.
        let chain = chain(&[codec, BytesCodec::Gzip { level: 1 }]);
        let mut used = Scratch::default();
        for count in [100_000, 100_001, 100_002] {
            let one = ChunkCodec::new(&chain, DataType::UInt32, &[count]);
            let mut encoded = Vec::new();
            let data = sample(count as usize);
            one.encode(&data, &mut Scratch::default(), &mut encoded).unwrap();
            assert_eq!(one.decode(&encoded, 0, &mut used).unwrap(), data, "{codec:?}");
            let allowed = 2 * data.len() + (1 << 16) + 1;
            let taken = used.front.capacity().max(used.back.capacity());
            assert!(taken <= allowed, "{codec:?}: {taken} bytes, {allowed} allowed");
        }
        let before = used.back.capacity();
        assert!(before <= 4 * 100_002 + 1, "{codec:?}: {before} bytes for a known size");
    }
}

#[test]
fn every_changed_bit_is_noticed_where_a_checksum_is_kept() {
    let mut scratch = Scratch::default();
    for chain in chains().into_iter().filter(CodecChain::is_checked) {
        let codec = ChunkCodec::new(&chain, DataType::UInt32, &[64]);
        let mut encoded = Vec::new();
        codec.encode(&sample(64), &mut scratch, &mut encoded).unwrap();
        for bit in 0..encoded.len() * 8 {
            encoded[bit / 8] ^= 1 << (bit % 8);
            assert!(codec.decode(&encoded, 0, &mut scratch).is_err(), "{chain:?} bit {bit}");
            encoded[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn damaged_data_never_panic() {
    let mut scratch = Scratch::default();
    for chain in chains() {
        let codec = ChunkCodec::new(&chain, DataType::UInt32, &[4096]);
        let mut encoded = Vec::new();
        codec.encode(&sample(4096), &mut scratch, &mut encoded).unwrap();
        for length in (0..encoded.len()).step_by(7) {
            let _ = codec.decode(&encoded[..length], 0, &mut scratch);
        }
        for (seed, byte) in (0..encoded.len()).step_by(3).enumerate() {
            let kept = encoded[byte];
            encoded[byte] = (seed * 37) as u8;
            let _ = codec.decode(&encoded, 0, &mut scratch);
            encoded[byte] = kept;
        }
    }
}

#[test]
fn a_codec_that_a_chunk_was_written_without_is_passed_over() {
    let with = chain(&[BytesCodec::Shuffle { element_size: 4 }, BytesCodec::Zlib { level: 1 }]);
    let without = chain(&[BytesCodec::Shuffle { element_size: 4 }]);
    let mut scratch = Scratch::default();
    let mut encoded = Vec::new();
    let codec = ChunkCodec::new(&without, DataType::UInt32, &[64]);
    codec.encode(&sample(64), &mut scratch, &mut encoded).unwrap();
    let codec = ChunkCodec::new(&with, DataType::UInt32, &[64]);
    assert_eq!(codec.decode(&encoded, 0b10, &mut scratch).unwrap(), sample(64));
}

#[test]
fn the_front_of_a_chunk_is_what_the_whole_begins_with() {
    let zstd = BytesCodec::Zstd { level: 3, checksum: false };
    let mut scratch = Scratch::default();
    let chains = [
        chain(&[zstd, BytesCodec::Crc32c]),
        chain(&[zstd]),
        chain(&[BytesCodec::Crc32c]),
        pcodec(&[]),
        pcodec(&[BytesCodec::Crc32c]),
        pcodec(&[zstd, BytesCodec::Crc32c]),
    ];
    for chain in chains {
        for data in [sample(300_000), vec![7; 1_200_000]] {
            let codec = ChunkCodec::new(&chain, DataType::UInt32, &[300_000]);
            let mut encoded = Vec::new();
            codec.encode(&data, &mut scratch, &mut encoded).unwrap();
            for needed in [0, 1, 131_071, 131_072, 131_073, 600_000, 899_999, 1_200_000] {
                let front = codec.decode_front(&encoded, 0, needed, &mut scratch).unwrap();
                assert!(front.len() >= needed);
                assert_eq!(front, &data[..front.len()], "{needed}");
            }
            // After a partial decode, the context still decodes whole chunks.
            assert_eq!(codec.decode(&encoded, 0, &mut scratch).unwrap(), data);
        }
    }
}

#[test]
fn a_chunk_without_a_checksum_that_is_not_whole_is_refused_whatever_is_needed_of_it() {
    let chain = chain(&[BytesCodec::Zstd { level: 3, checksum: false }]);
    let codec = ChunkCodec::new(&chain, DataType::UInt32, &[300_000]);
    let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
    codec.encode(&sample(300_000), &mut scratch, &mut encoded).unwrap();
    for length in [0, 3, 12, encoded.len() / 2, encoded.len() - 1] {
        assert!(codec.decode_front(&encoded[..length], 0, 100, &mut scratch).is_err(), "{length}");
    }
    let longer = [&encoded[..], &[0]].concat();
    assert!(codec.decode_front(&longer, 0, 100, &mut scratch).is_err());
    // A chunk of another size, and a frame whose own checksum is wrong.
    let other = ChunkCodec::new(&chain, DataType::UInt32, &[300_001]);
    assert!(other.decode_front(&encoded, 0, 100, &mut scratch).is_err());
    let checked = BytesCodec::Zstd { level: 3, checksum: true };
    let checked = ChunkCodec::new(&self::chain(&[checked]), DataType::UInt32, &[300_000]);
    checked.encode(&sample(300_000), &mut scratch, &mut encoded).unwrap();
    assert!(codec.decode_front(&encoded, 0, 100, &mut scratch).is_ok());
    *encoded.last_mut().unwrap() ^= 1;
    assert!(codec.decode_front(&encoded, 0, 100, &mut scratch).is_err());
}

#[test]
fn damage_is_noticed_where_the_front_is_decoded_as_where_all_is_unless_the_front_is_right() {
    let chain = chain(&[BytesCodec::Zstd { level: 3, checksum: false }]);
    let codec = ChunkCodec::new(&chain, DataType::UInt32, &[300_000]);
    let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
    let mut random = 1_u32;
    let mut next = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 8
    };
    // Noise on smooth values, as in measurements.
    let data: Vec<u8> = (0..300_000_u32)
        .flat_map(|at| {
            (1e3 + (f64::from(at) / 1e4).sin() * 9.0 + f64::from(next() % 4096) * 1e-4)
                .to_bits()
                .to_le_bytes()[4..]
                .to_vec()
        })
        .collect();
    codec.encode(&data, &mut scratch, &mut encoded).unwrap();
    let needed = 600_000;
    let (mut noticed, mut silent) = (0, 0);
    for _ in 0..2000 {
        let bit = next() as usize % (encoded.len() * 8);
        encoded[bit / 8] ^= 1 << (bit % 8);
        if codec.decode(&encoded, 0, &mut scratch).is_err() {
            noticed += 1;
            let front = codec.decode_front(&encoded, 0, needed, &mut scratch);
            silent += u32::from(front.is_ok_and(|front| front[..needed] != data[..needed]));
        }
        encoded[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(noticed > 100 && silent == 0);
}

#[test]
fn transposed_chunks_have_the_strides_of_their_axes() {
    let mut transposed = chain(&[]);
    transposed.transpose = Some(vec![2, 0, 1]);
    let codec = ChunkCodec::new(&transposed, DataType::Float32, &[2, 3, 5]);
    assert_eq!(codec.strides(), [12, 4, 24]);
    assert_eq!(ChunkCodec::new(&chain(&[]), DataType::Float32, &[2, 3, 5]).strides(), [60, 20, 4]);
}

#[test]
fn text_comes_back_and_damaged_text_is_refused() {
    let texts = ["", "a", "\u{e9}t\u{e9}"];
    let mut bytes = Vec::new();
    text::join(texts.iter().copied(), &mut bytes).unwrap();
    assert_eq!(text::split(&bytes, 3).unwrap(), texts);
    assert!(text::split(&bytes, 2).is_err());
    assert!(text::split(&bytes[..bytes.len() - 1], 3).is_err());
    bytes.push(0);
    assert!(text::split(&bytes, 3).is_err());
    assert!(text::split(&[1, 0, 0, 0, 1, 0, 0, 0, 0xff], 1).is_err());
}
