//! Measurement of the time to decode, by codec: per chunk, encoded byte and decoded byte.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use bedform_codec::{ChunkCodec, Scratch};
use bedform_format::codec::{
    BloscCompressor, BloscConfiguration, BloscShuffle, PcodecConfiguration, PcodecDelta, PcodecMode,
};
use bedform_format::{BytesCodec, CodecChain, DataType, Serializer};
use bedform_storage::calibrate::SampleRandom;
use bedform_storage::{CodecTimes, Processor};

use super::stopwatch::Stopwatch;

/// Elements of a large and of a small chunk, 256 KiB and 4 KiB.
const LARGE: usize = 64 << 10;
const SMALL: usize = 1 << 10;

pub(super) fn measure(machine: &mut Processor, watch: &mut Stopwatch) {
    for (name, chain) in chains() {
        if let Some(times) = measure_one(&chain, watch) {
            machine.codecs.insert(name.to_owned(), times);
        }
    }
}

fn blosc(compressor: BloscCompressor, shuffle: BloscShuffle) -> CodecChain {
    let level = 5;
    let blosc = BloscConfiguration { compressor, level, shuffle, type_size: 4, block_size: 0 };
    of_bytes(BytesCodec::Blosc(blosc))
}

fn of_bytes(codec: BytesCodec) -> CodecChain {
    CodecChain { bytes: vec![codec], ..CodecChain::raw() }
}

fn chains() -> Vec<(&'static str, CodecChain)> {
    let pcodec = PcodecConfiguration {
        level: 8,
        mode: PcodecMode::Auto,
        delta: PcodecDelta::Auto,
        page_elements: 1 << 18,
    };
    let pcodec = CodecChain { serializer: Serializer::Pcodec(pcodec), ..CodecChain::raw() };
    vec![
        ("blosc-lz4-bit", blosc(BloscCompressor::Lz4, BloscShuffle::Bit)),
        ("blosc-lz4-byte", blosc(BloscCompressor::Lz4, BloscShuffle::Byte)),
        ("blosc-zstd-bit", blosc(BloscCompressor::Zstd, BloscShuffle::Bit)),
        ("blosc-zstd-byte", blosc(BloscCompressor::Zstd, BloscShuffle::Byte)),
        ("crc32c", of_bytes(BytesCodec::Crc32c)),
        ("pcodec", pcodec),
        ("shuffle", of_bytes(BytesCodec::Shuffle { element_size: 4 })),
        ("zlib", of_bytes(BytesCodec::Zlib { level: 1 })),
        ("zstd", of_bytes(BytesCodec::Zstd { level: 3, checksum: false })),
    ]
}

/// Float32 fields as models write them: nearly as much noise as signal, signal with few digits, and
/// mostly one value.
fn fields(count: usize) -> [Vec<u8>; 3] {
    let mut random = SampleRandom(7);
    let wave =
        |at: usize| 280.0 + 20.0 * (at as f32 * 0.003).sin() + 3.0 * (at as f32 * 0.071).sin();
    let noise = |random: &mut SampleRandom| u32::try_from(random.next() >> 32).unwrap_or(0);
    let noisy = |at: usize, keep: u32, random: &mut SampleRandom| {
        let bits = wave(at).to_bits() & (u32::MAX << keep);
        f32::from_bits(bits | (noise(random) & ((1 << keep) - 1)))
    };
    let bytes = |values: Vec<f32>| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let much = (0..count).map(|at| noisy(at, 14, &mut random)).collect();
    let less = (0..count).map(|at| f32::from_bits(wave(at).to_bits() & (u32::MAX << 11))).collect();
    let rare = (0..count).map(|at| if at % 97 < 90 { 0.0 } else { wave(at) }).collect();
    [bytes(much), bytes(less), bytes(rare)]
}

/// Seconds to decode a chunk, and its encoded and decoded bytes.
struct DecodeSample {
    seconds: f64,
    encoded: f64,
    decoded: f64,
}

fn sample(codec: &ChunkCodec, field: &[u8], watch: &mut Stopwatch) -> Option<DecodeSample> {
    let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
    codec.encode(field, &mut scratch, &mut encoded).ok()?;
    let seconds = watch.seconds(|| {
        let _ = black_box(codec.decode(&encoded, 0, &mut scratch));
    });
    Some(DecodeSample { seconds, encoded: encoded.len() as f64, decoded: field.len() as f64 })
}

fn measure_one(chain: &CodecChain, watch: &mut Stopwatch) -> Option<CodecTimes> {
    let codec = |count| ChunkCodec::new(chain, DataType::Float32, &[count as u64]);
    let (large, small) = (codec(LARGE), codec(SMALL));
    let fields_large = fields(LARGE);
    let samples: Option<Vec<_>> =
        fields_large.iter().map(|field| sample(&large, field, watch)).collect();
    let samples = samples?;
    let tiny = sample(&small, &fields(SMALL)[1], watch)?;
    let (mut scratch, mut output) = (Scratch::default(), Vec::new());
    let encode = watch.seconds(|| {
        let _ = black_box(large.encode(&fields_large[1], &mut scratch, &mut output));
    });
    let (mut chunk, mut of_bytes) = (0.0, (0.0, 0.0));
    // The cost of a chunk is a small part of the time of a large one, so a few iterations converge.
    for _ in 0..4 {
        of_bytes = fitted(&samples, chunk);
        chunk = (tiny.seconds - tiny.encoded * of_bytes.0 - tiny.decoded * of_bytes.1).max(0.0);
    }
    Some(CodecTimes {
        chunk_seconds: chunk,
        encoded_byte_seconds: of_bytes.0,
        decoded_byte_seconds: of_bytes.1,
        encode_bytes_per_second: fields_large[1].len() as f64 / encode,
    })
}

/// Fits the costs of an encoded and of a decoded byte, neither below 0, with the least relative
/// errors.
fn fitted(samples: &[DecodeSample], chunk: f64) -> (f64, f64) {
    let (mut ee, mut ed, mut dd, mut e, mut d) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for sample in samples {
        let seconds = (sample.seconds - chunk).max(sample.seconds * 0.1);
        let (encoded, decoded) = (sample.encoded / seconds, sample.decoded / seconds);
        ee += encoded * encoded;
        ed += encoded * decoded;
        dd += decoded * decoded;
        e += encoded;
        d += decoded;
    }
    let determinant = ee * dd - ed * ed;
    if determinant > 1e-9 * ee * dd {
        let (of_encoded, of_decoded) =
            ((e * dd - d * ed) / determinant, (d * ee - e * ed) / determinant);
        if of_encoded >= 0.0 && of_decoded >= 0.0 {
            return (of_encoded, of_decoded);
        }
        if of_decoded < 0.0 {
            return (e / ee, 0.0);
        }
    }
    (0.0, d / dd)
}

/// The throughput of decoding on all `cores` over that of one core.
pub(super) fn gain(cores: u32) -> f64 {
    if cores <= 1 {
        return 1.0;
    }
    let (_, chain) = chains().remove(3);
    let codec = ChunkCodec::new(&chain, DataType::Float32, &[LARGE as u64]);
    let [_, field, _] = fields(LARGE);
    let mut encoded = Vec::new();
    if codec.encode(&field, &mut Scratch::default(), &mut encoded).is_err() {
        return f64::from(cores);
    }
    let rate = |threads: u32| {
        let times: Vec<f64> = (0..3).map(|_| together(threads, &codec, &encoded)).collect();
        f64::from(threads) / times.into_iter().fold(f64::INFINITY, f64::min)
    };
    let cores = cores.min(64);
    (rate(cores) / rate(1)).clamp(1.0, f64::from(cores))
}

/// Chunks that each thread decodes in one measurement.
const TOGETHER: usize = 150;

/// Seconds until the slowest of so many threads has decoded its chunks.
fn together(threads: u32, codec: &ChunkCodec, encoded: &[u8]) -> f64 {
    let barrier = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let work = || {
            let mut scratch = Scratch::default();
            barrier.wait();
            let started = Instant::now();
            for _ in 0..TOGETHER {
                let _ = black_box(codec.decode(encoded, 0, &mut scratch));
            }
            started.elapsed().as_secs_f64()
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let times = handles.into_iter().map(|handle| handle.join().unwrap_or(0.0));
        times.fold(0.0, f64::max)
    })
}
