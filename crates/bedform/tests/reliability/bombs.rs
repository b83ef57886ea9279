//! H4: small files that claim, or expand to, a gibibyte or a tebibyte, in chunks declared as 4 KiB.

use std::io::Write as _;
use std::path::Path;

use bedform_codec::{ChunkCodec, Scratch};
use bedform_format::codec::{BloscCompressor, BloscConfiguration, BloscShuffle};
use bedform_format::shard::{Extent, ShardIndex};
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, Serializer};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

use crate::child::{TIME_MAX, open};
use crate::support::{Scratch as Directory, count, in_parallel};

const CHUNK: u64 = 4096;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn zeros(size: u64, mut sink: impl std::io::Write) {
    let block = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        sink.write_all(&block).unwrap();
    }
}

fn gzip(size: u64) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(9));
    zeros(size, &mut encoder);
    encoder.finish().unwrap()
}

fn zlib(size: u64) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(9));
    zeros(size, &mut encoder);
    encoder.finish().unwrap()
}

fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let mut output = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(output.as_mut_slice(), bytes, 3).unwrap();
    output.truncate(length);
    output
}

/// A Zstandard frame of `size` zeros as repeated bytes, 4 bytes for every 128 KiB. It claims
/// `claim` bytes, or has no size.
fn zstd(size: u64, claim: Option<u64>) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    match claim {
        Some(claim) => {
            frame.extend([0xc0, 0x50]);
            frame.extend(claim.to_le_bytes());
        }
        None => frame.extend([0x00, 0x50]),
    }
    let blocks = size >> 17;
    for block in 0..blocks {
        let header = (1_u32 << 17) << 3 | 1 << 1 | u32::from(block + 1 == blocks);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

fn blosc(compressor: BloscCompressor) -> Vec<u8> {
    let configuration = BloscConfiguration {
        compressor,
        level: 1,
        shuffle: BloscShuffle::None,
        type_size: 1,
        block_size: 0,
    };
    let chain = CodecChain {
        transpose: None,
        serializer: Serializer::Bytes(Endian::Little),
        bytes: vec![BytesCodec::Blosc(configuration)],
    };
    let mut output = Vec::new();
    ChunkCodec::new(&chain, DataType::UInt8, &[GIB])
        .encode(&vec![0; GIB as usize], &mut Scratch::default(), &mut output)
        .unwrap();
    output
}

/// A Blosc header with the largest possible claim.
fn blosc_claim() -> Vec<u8> {
    let mut bytes = vec![2, 1, 0x21, 1];
    for word in [i32::MAX as u32 - 16, 1 << 20, 64] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize(64, 0);
    bytes
}

/// A Pco file of `claim` equal numbers, at most 2^24 in each of its chunks.
fn pcodec(claim: u64) -> Vec<u8> {
    let mut bytes = b"pco!\x02\x00\x03".to_vec();
    let mut left = claim;
    while left > 0 {
        let count = left.min(1 << 24);
        bytes.push(7);
        bytes.extend_from_slice(&(count as u32 - 1).to_le_bytes()[..3]);
        // Classic mode, no differences, one bin from 0 on without bits.
        bytes.extend([0, 0x10, 0, 0, 0, 0]);
        left -= count;
    }
    bytes.push(0);
    bytes
}

/// A Pco file that claims a dictionary of 2^25 numbers, or a window of 2^24.
fn pcodec_claim(head: u32) -> Vec<u8> {
    let mut bytes = b"pco!\x02\x00\x04\x01\x07\xff\x0f\x00".to_vec();
    bytes.extend(head.to_le_bytes());
    bytes.resize(256, 0);
    bytes
}

fn named(codec: &str) -> Value {
    match codec {
        "pcodec" => json!({"name": "numcodecs.pcodec", "configuration": {}}),
        "gzip" => json!({"name": "gzip", "configuration": {"level": 5}}),
        "zlib" => json!({"name": "numcodecs.zlib", "configuration": {"level": 5}}),
        "zstd" => json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}}),
        _ => json!({"name": "blosc", "configuration":
            {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}}),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Chunk,
    Shard,
    Text,
}

/// Writes an array with `bomb` as its only chunk.
fn plant(root: &Path, codecs: &[&str], place: Place, bomb: &[u8]) {
    let (data_type, serializer, fill) = match place {
        // The codec replaces the serializer.
        _ if codecs == ["pcodec"] => ("uint16", named("pcodec"), json!(0)),
        Place::Text => ("string", json!({"name": "vlen-utf8"}), json!("")),
        _ => ("uint8", json!({"name": "bytes"}), json!(0)),
    };
    let mut chain = vec![serializer];
    chain.extend(codecs.iter().filter(|codec| **codec != "pcodec").map(|codec| named(codec)));
    let mut object = bomb.to_vec();
    if place == Place::Shard {
        let extent = Extent { offset: 0, length: bomb.len() as u64 };
        object.extend(ShardIndex::new([Some(extent), None]).encode(true));
        chain = vec![json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": [CHUNK], "codecs": chain,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        }})];
    }
    let shape = if place == Place::Shard { 2 * CHUNK } else { CHUNK };
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shape]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill, "codecs": chain, "attributes": {},
    });
    std::fs::create_dir_all(root.join("c")).unwrap();
    std::fs::write(root.join("zarr.json"), document.to_string()).unwrap();
    std::fs::write(root.join("c/0"), object).unwrap();
}

#[test]
#[ignore = "a stage of make reliability"]
fn a_bomb_is_refused_in_little_time_and_memory() {
    let directory = Directory::new("bombs");
    let (gzip_gib, zlib_gib) = std::thread::scope(|scope| {
        let gzip = scope.spawn(|| gzip(GIB));
        (gzip.join().unwrap(), zlib(GIB))
    });
    let zstd_tib = zstd(TIB, Some(TIB));
    let gib_of_gzips = gzip_gib.repeat(16);
    let singles: [(&str, &[u8]); 8] = [
        ("gzip", &gzip_gib),
        ("zlib", &zlib_gib),
        ("zstd", &zstd(GIB, None)),
        ("zstd", &zstd(GIB, Some(GIB))),
        ("zstd", &zstd(GIB, Some(CHUNK))),
        ("zstd", &zstd(GIB, Some(TIB))),
        ("blosc", &blosc(BloscCompressor::Lz4)),
        ("blosc", &blosc_claim()),
    ];
    let nested: [(&[&str], Vec<u8>); 7] = [
        (&["gzip", "gzip"], gzip_of(&gzip_gib)),
        (&["zstd", "zstd"], zstd_of(&zstd(GIB, None))),
        (&["zstd", "zstd"], zstd_of(&zstd_tib)),
        (&["zstd", "gzip"], gzip_of(&zstd_tib)),
        (&["gzip", "zstd"], zstd_of(&gib_of_gzips)),
        (&["zlib", "gzip"], gzip_of(&zlib_gib)),
        (&["gzip", "gzip", "gzip"], gzip_of(&gzip_of(&gzip_gib))),
    ];
    let mut bombs = Vec::new();
    for (codec, bytes) in singles {
        for place in [Place::Chunk, Place::Shard, Place::Text] {
            bombs.push((vec![codec], place, bytes.to_vec()));
        }
    }
    let packed = [
        pcodec(GIB),
        pcodec(TIB),
        pcodec(CHUNK + 1),
        pcodec_claim(0x1ff_ffff << 4 | 4),
        pcodec_claim(2 << 4 | 23 << 8),
    ];
    for bytes in packed {
        for place in [Place::Chunk, Place::Shard] {
            bombs.push((vec!["pcodec"], place, bytes.clone()));
        }
    }
    bombs.extend(nested.into_iter().map(|(codecs, bytes)| (codecs.to_vec(), Place::Chunk, bytes)));
    let numbered: Vec<_> = bombs.iter().enumerate().collect();
    let worst = in_parallel(&numbered, |(number, (codecs, place, bytes))| {
        let root = directory.0.join(number.to_string());
        std::fs::create_dir_all(&root).unwrap();
        plant(&root, codecs, *place, bytes);
        let story = format!("bomb {number}: {codecs:?}, {place:?}, {} bytes", bytes.len());
        let outcome = open(&root).unwrap_or_else(|problem| panic!("{story}: {problem}"));
        assert_eq!(outcome.kind, "Corrupt", "{story}: {outcome:?}");
        assert!(outcome.time < TIME_MAX, "{story}: {outcome:?}");
        // Texts have no declared size: their limit is 64 MiB and 16 times the encoded size, and the
        // buffer doubles until it reaches that.
        let limit = if *place == Place::Text { 224 << 20 } else { CHUNK + (64 << 20) };
        assert!(outcome.peak_bytes < limit, "{story}: {outcome:?}");
        (outcome.peak_bytes >> 10, outcome.time)
    });
    println!(
        "worst: {:?} KiB, {:?}",
        worst.iter().map(|w| w.0).max(),
        worst.iter().map(|w| w.1).max()
    );
    count("bombs", bombs.len() as u64);
}
