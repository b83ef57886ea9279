//! The time of decoding: for a read by the measured times of each codec, for a sample by the work
//! counted in its encoded bytes.

use bedform_format::CodecChain;
use bedform_format::codec::{BloscShuffle, BytesCodec, Serializer};
use bedform_storage::{CodecTimes, Processor};

use super::work::DecodingWork;

/// The name of the times of all checksums.
const CHECKSUM: &str = "crc32c";

/// Counts of the chunks of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Decoding {
    /// The number of chunks.
    pub(crate) chunks: f64,
    /// Their bytes on storage.
    pub(crate) encoded_bytes: f64,
    /// Their bytes in memory.
    pub(crate) decoded_bytes: f64,
}

impl Decoding {
    /// Makes the counts of `chunks` chunks with these total bytes.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn of(chunks: u64, encoded_bytes: u64, decoded_bytes: u64) -> Self {
        let [chunks, encoded_bytes, decoded_bytes] =
            [chunks, encoded_bytes, decoded_bytes].map(|count| count as f64);
        Self { chunks, encoded_bytes, decoded_bytes }
    }
}

/// The seconds of one core to decode chunks that were encoded with `chain`. A codec before the
/// first compressing one processes decoded bytes, a codec behind it encoded bytes.
pub(crate) fn decoding_seconds(chain: &CodecChain, processor: &Processor, of: Decoding) -> f64 {
    let Decoding { chunks, encoded_bytes, decoded_bytes } = of;
    let (mut seconds, mut inside) = (0.0, decoded_bytes);
    if matches!(chain.serializer, Serializer::Pcodec(_)) {
        seconds += processor.codec("pcodec").decoding(chunks, encoded_bytes, decoded_bytes);
        inside = encoded_bytes;
    }
    for codec in &chain.bytes {
        let outside = if compresses(codec) { encoded_bytes } else { inside };
        seconds += processor.codec(&time_name(codec)).decoding(chunks, outside, inside);
        inside = outside;
    }
    seconds
}

/// The name under which times learned from reads with `chain` are stored: its codecs. Checksums
/// count only if there is no other codec.
pub(crate) fn chain_name(chain: &CodecChain) -> String {
    let is_pcodec = matches!(chain.serializer, Serializer::Pcodec(_));
    let names = chain.bytes.iter().map(time_name);
    let (sums, codecs): (Vec<_>, Vec<_>) = names.partition(|name| name == CHECKSUM);
    let codecs =
        is_pcodec.then(|| "pcodec".to_owned()).into_iter().chain(codecs).collect::<Vec<_>>();
    match codecs.is_empty() {
        true => sums.into_iter().next().unwrap_or_else(|| "none".to_owned()),
        false => codecs.join("+"),
    }
}

/// The name under which a codec's times are stored.
pub(crate) fn time_name(codec: &BytesCodec) -> String {
    let name = match codec {
        BytesCodec::Zstd { .. } => "zstd",
        BytesCodec::Gzip { .. } | BytesCodec::Zlib { .. } => "zlib",
        BytesCodec::Crc32c | BytesCodec::Fletcher32 | BytesCodec::Checksum { .. } => CHECKSUM,
        BytesCodec::Shuffle { .. } => "shuffle",
        BytesCodec::Lz4 => "blosc-lz4-byte",
        BytesCodec::Blosc(blosc) => {
            let filter = match blosc.shuffle {
                BloscShuffle::None => "none",
                BloscShuffle::Byte => "byte",
                BloscShuffle::Bit => "bit",
            };
            return format!("blosc-{}-{filter}", blosc.compressor.name());
        }
        _ => "other",
    };
    name.to_owned()
}

/// Seconds of one core for each unit of decoding work, fitted to 290 chunks of fields and counts of
/// all types; three quarters of them are predicted within a fifth.
const ZSTD_SEQUENCE: f64 = 14e-9;
const HUFFMAN_BYTE: f64 = 0.8e-9;
const ZSTD_BYTE: f64 = 0.03e-9;
const ZSTD_BLOCK: f64 = 1.7e-6;
const LZ4_SEQUENCE: f64 = 5.1e-9;
const LZ4_BYTE: f64 = 0.024e-9;
const UNSHUFFLED_BYTE: f64 = 0.115e-9;
const UNSHUFFLED_BIT_BYTE: f64 = 0.46e-9;
const COPIED_BYTE: f64 = 0.033e-9;
const CONTAINER: f64 = 0.4e-6;
/// The same for encoding at the levels that [`super::choice`] uses: seconds per byte, per sequence,
/// and per byte of Huffman-coded literals.
const ZSTD_ENCODING: [f64; 3] = [0.64e-9, 45e-9, 2.2e-9];
const BLOSC_ZSTD_ENCODING: [f64; 3] = [1.1e-9, 130e-9, 2.8e-9];
const LZ4_ENCODING: [f64; 2] = [0.53e-9, 15.5e-9];
const PCODEC_ENCODING: f64 = 15e-9;
/// The chunk with which a machine is compared to the assumed one: a field that compresses to half
/// of its bytes.
const TYPICAL: Decoding =
    Decoding { chunks: 1.0, encoded_bytes: 131_072.0, decoded_bytes: 262_144.0 };

/// The decoding speed of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CodecSpeeds {
    /// The machine's times over those of the assumed machine. One number for all codecs: the ratio
    /// of two codecs differs less between machines than between measurements.
    slowness: f64,
    /// Seconds per byte.
    checked_byte: f64,
    pcodec_encoded_byte: f64,
    pcodec_byte: f64,
}

impl CodecSpeeds {
    /// The speeds of a processor, from measured or assumed times.
    pub(crate) fn of(processor: &Processor) -> Self {
        let assumed = Processor::assumed_codecs();
        let Decoding { chunks, encoded_bytes, decoded_bytes } = TYPICAL;
        let seconds = |times: CodecTimes| times.decoding(chunks, encoded_bytes, decoded_bytes);
        let over_assumed = |name: &str| {
            let known = assumed.get(name).copied().map_or(0.0, seconds);
            if known > 0.0 { seconds(processor.codec(name)) / known } else { 1.0 }
        };
        let slowness = (over_assumed("zstd") * over_assumed("blosc-lz4-byte")).sqrt();
        let (checksum, pcodec) = (processor.codec(CHECKSUM), processor.codec("pcodec"));
        Self {
            slowness,
            checked_byte: checksum.encoded_byte_seconds + checksum.decoded_byte_seconds,
            pcodec_encoded_byte: pcodec.encoded_byte_seconds,
            pcodec_byte: pcodec.decoded_byte_seconds,
        }
    }

    /// The seconds of one core to decode.
    pub(crate) fn decoding_seconds(&self, work: &DecodingWork) -> f64 {
        let counted = of(work.zstd_sequences, ZSTD_SEQUENCE)
            + of(work.huffman_bytes, HUFFMAN_BYTE)
            + of(work.zstd_bytes, ZSTD_BYTE)
            + of(work.zstd_blocks, ZSTD_BLOCK)
            + of(work.lz4_sequences, LZ4_SEQUENCE)
            + of(work.lz4_bytes, LZ4_BYTE)
            + of(work.unshuffled_bytes, UNSHUFFLED_BYTE)
            + of(work.unshuffled_bit_bytes, UNSHUFFLED_BIT_BYTE)
            + of(work.copied_bytes, COPIED_BYTE)
            + of(work.containers, CONTAINER);
        counted * self.slowness
            + of(work.checked_bytes, self.checked_byte)
            + of(work.pcodec_encoded_bytes, self.pcodec_encoded_byte)
            + of(work.pcodec_bytes, self.pcodec_byte)
    }
}

/// The approximate seconds of encoding on the assumed machine, by the work of decoding the result.
pub(crate) fn encoding_seconds(work: &DecodingWork) -> f64 {
    let [byte, sequence, literal] =
        if work.containers > 0 { BLOSC_ZSTD_ENCODING } else { ZSTD_ENCODING };
    let [lz4_byte, lz4_sequence] = LZ4_ENCODING;
    of(work.zstd_bytes, byte)
        + of(work.zstd_sequences, sequence)
        + of(work.huffman_bytes, literal)
        + of(work.lz4_bytes + work.copied_bytes, lz4_byte)
        + of(work.lz4_sequences, lz4_sequence)
        + of(work.pcodec_bytes, PCODEC_ENCODING)
}

#[allow(clippy::cast_precision_loss)]
fn of(count: u64, seconds: f64) -> f64 {
    count as f64 * seconds
}

fn compresses(codec: &BytesCodec) -> bool {
    matches!(
        codec,
        BytesCodec::Zstd { .. }
            | BytesCodec::Gzip { .. }
            | BytesCodec::Zlib { .. }
            | BytesCodec::Blosc(_)
            | BytesCodec::Lz4
            | BytesCodec::Bz2
            | BytesCodec::Lzma { .. }
    )
}
