//! What decoding takes, by the times that were measured of each codec.

use bedform_format::CodecChain;
use bedform_format::codec::{BloscShuffle, BytesCodec, Serializer};
use bedform_storage::Processor;

/// What the times of checksums go by.
const CHECKSUM: &str = "crc32c";

/// The chunks of a read.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Decoding {
    /// How many.
    pub(crate) chunks: f64,
    /// Their bytes on storage.
    pub(crate) encoded_bytes: f64,
    /// Their bytes in memory.
    pub(crate) decoded_bytes: f64,
}

impl Decoding {
    /// So many chunks of so many bytes together.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn of(chunks: u64, encoded_bytes: u64, decoded_bytes: u64) -> Self {
        let [chunks, encoded_bytes, decoded_bytes] =
            [chunks, encoded_bytes, decoded_bytes].map(|count| count as f64);
        Self { chunks, encoded_bytes, decoded_bytes }
    }
}

/// Seconds of one core to decode chunks that went through `chain`. What lies before the first codec that
/// compresses has the bytes that come out, what lies behind it those on storage.
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

/// The name that what is learnt of reads through `chain` goes by: its codecs, of which checksums count where there
/// is nothing else.
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

/// The name that a codec's times go by.
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
