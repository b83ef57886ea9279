//! The work of decoding, counted in encoded bytes.
//!
//! Rates per byte are wrong by a factor of up to ten between data. LZ4 copies literals at the speed
//! of memory and takes nanoseconds for each sequence; so does Zstandard, which also decodes
//! Huffman-coded literals. The counts are in the formats: the LZ4 block format (tokens), and RFC
//! 8878, sections 3.1.1.2 and 3.1.1.3 (blocks, sections of literals and of sequences). Nothing is
//! decoded here, and no bytes are trusted: counting stops where they are invalid.

use std::ops::AddAssign;

use bedform_format::{BytesCodec, CodecChain, Serializer};

/// The work of decoding some chunks, by parts that take time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DecodingWork {
    /// Sequences of LZ4: literals and a match each.
    pub(crate) lz4_sequences: u64,
    /// Bytes that LZ4 streams decode to.
    pub(crate) lz4_bytes: u64,
    /// Sequences of Zstandard.
    pub(crate) zstd_sequences: u64,
    /// Bytes of Huffman-coded literals.
    pub(crate) huffman_bytes: u64,
    /// Bytes that Zstandard frames decode to.
    pub(crate) zstd_bytes: u64,
    /// Compressed blocks of Zstandard, which have their own tables.
    pub(crate) zstd_blocks: u64,
    /// Bytes that are unshuffled by byte.
    pub(crate) unshuffled_bytes: u64,
    /// Bytes that are unshuffled by bit, in units of elements of several bytes.
    pub(crate) unshuffled_bit_bytes: u64,
    /// Bytes that are copied unchanged.
    pub(crate) copied_bytes: u64,
    /// Containers of Blosc.
    pub(crate) containers: u64,
    /// Encoded bytes of Pco chunks, and the bytes that they decode to.
    pub(crate) pcodec_encoded_bytes: u64,
    pub(crate) pcodec_bytes: u64,
    /// Bytes of which a checksum is computed.
    pub(crate) checked_bytes: u64,
}

impl DecodingWork {
    /// Counts the work of a chunk of `decoded_bytes` that was encoded with `chain`, one of the
    /// candidates of [`super::choice`].
    pub(crate) fn of(chain: &CodecChain, encoded: &[u8], decoded_bytes: usize) -> Self {
        let decoded_bytes = decoded_bytes as u64;
        let mut work = match (&chain.serializer, chain.bytes.first()) {
            (Serializer::Pcodec(_), _) => Self {
                pcodec_encoded_bytes: encoded.len() as u64,
                pcodec_bytes: decoded_bytes,
                ..Self::default()
            },
            (_, Some(BytesCodec::Blosc(_))) => of_blosc(encoded),
            (_, Some(BytesCodec::Zstd { .. })) => of_zstd(encoded, decoded_bytes),
            _ => Self::default(),
        };
        work.checked_bytes += encoded.len() as u64;
        work
    }
}

impl AddAssign for DecodingWork {
    fn add_assign(&mut self, other: Self) {
        self.lz4_sequences += other.lz4_sequences;
        self.lz4_bytes += other.lz4_bytes;
        self.zstd_sequences += other.zstd_sequences;
        self.huffman_bytes += other.huffman_bytes;
        self.zstd_bytes += other.zstd_bytes;
        self.zstd_blocks += other.zstd_blocks;
        self.unshuffled_bytes += other.unshuffled_bytes;
        self.unshuffled_bit_bytes += other.unshuffled_bit_bytes;
        self.copied_bytes += other.copied_bytes;
        self.containers += other.containers;
        self.pcodec_encoded_bytes += other.pcodec_encoded_bytes;
        self.pcodec_bytes += other.pcodec_bytes;
        self.checked_bytes += other.checked_bytes;
    }
}

/// Counts the work of a Zstandard frame that decodes to `decoded_bytes`.
pub(crate) fn of_zstd(frame: &[u8], decoded_bytes: u64) -> DecodingWork {
    let mut work = DecodingWork { zstd_bytes: decoded_bytes, ..DecodingWork::default() };
    let _ = count_zstd(frame, &mut work);
    work
}

/// `None` where the frame ends early.
fn count_zstd(frame: &[u8], work: &mut DecodingWork) -> Option<()> {
    let descriptor = *frame.get(4)?;
    let is_single = descriptor & 0x20 != 0;
    let content_size = match descriptor >> 6 {
        0 => usize::from(is_single),
        flag => 1 << flag,
    };
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let mut rest = frame.get(5 + usize::from(!is_single) + dictionary + content_size..)?;
    loop {
        let header = little_endian(rest, 3)?;
        let size = usize::try_from(header >> 3).ok()?;
        rest = rest.get(3..)?;
        // The types of a block: raw, one repeated byte, compressed.
        let stored = match header >> 1 & 3 {
            1 => 1,
            2 => {
                work.zstd_blocks += 1;
                count_zstd_block(rest.get(..size)?, work)?;
                size
            }
            _ => size,
        };
        if header & 1 == 1 {
            return Some(());
        }
        rest = rest.get(stored..)?;
    }
}

fn count_zstd_block(block: &[u8], work: &mut DecodingWork) -> Option<()> {
    let first = *block.first()?;
    let format = first >> 2 & 3;
    let sequences = if first & 3 < 2 {
        let (bytes, shift) = match format {
            1 => (2, 4),
            3 => (3, 4),
            _ => (1, 3),
        };
        let length = usize::try_from(little_endian(block, bytes)? >> shift).ok()?;
        let stored = if first & 3 == 0 { length } else { 1 };
        block.get(bytes + stored..)?
    } else {
        let (bytes, bits) = match format {
            2 => (4, 14),
            3 => (5, 18),
            _ => (3, 10),
        };
        let header = little_endian(block, bytes)? >> 4;
        work.huffman_bytes += header & ((1 << bits) - 1);
        let stored = usize::try_from(header >> bits).ok()?;
        block.get(bytes + stored..)?
    };
    let count = |at: usize| sequences.get(at).copied().map(u64::from);
    work.zstd_sequences += match count(0)? {
        first @ 0..128 => first,
        255 => count(1)? + (count(2)? << 8) + 0x7f00,
        first => ((first - 128) << 8) + count(1)?,
    };
    Some(())
}

/// Counts the work of a Blosc container.
pub(crate) fn of_blosc(container: &[u8]) -> DecodingWork {
    let mut work = DecodingWork { containers: 1, ..DecodingWork::default() };
    let _ = count_blosc(container, &mut work);
    work
}

fn count_blosc(container: &[u8], work: &mut DecodingWork) -> Option<()> {
    let flags = *container.get(2)?;
    let type_size = usize::from(*container.get(3)?);
    let decoded = usize::try_from(little_endian(container.get(4..)?, 4)?).ok()?;
    let block = usize::try_from(little_endian(container.get(8..)?, 4)?).ok()?.max(1);
    if flags & 2 != 0 {
        work.copied_bytes += decoded as u64;
        return Some(());
    }
    if flags & 1 != 0 && type_size > 1 {
        work.unshuffled_bytes += decoded as u64;
    } else if flags & 4 != 0 {
        // Unshuffling bits of one-byte elements takes 1.6 times as long.
        let decoded = decoded as u64;
        work.unshuffled_bit_bytes += if type_size == 1 { decoded * 8 / 5 } else { decoded };
    }
    let is_split = flags & 16 == 0;
    for (number, start) in (0..decoded).step_by(block).enumerate() {
        let length = block.min(decoded - start);
        let streams = if is_split && length == block { type_size.max(1) } else { 1 };
        let at = little_endian(container.get(16 + 4 * number..)?, 4)?;
        let mut rest = container.get(usize::try_from(at).ok()?..)?;
        for _ in 0..streams {
            let size = usize::try_from(little_endian(rest, 4)?).ok()?;
            let stream = rest.get(4..)?.get(..size)?;
            count_stream(stream, (length / streams) as u64, flags >> 5, work);
            rest = rest.get(4 + size..)?;
        }
    }
    Some(())
}

/// Counts a stream in a Blosc container, by the number of its format.
fn count_stream(stream: &[u8], decoded_bytes: u64, format: u8, work: &mut DecodingWork) {
    match format {
        _ if stream.len() as u64 == decoded_bytes => work.copied_bytes += decoded_bytes,
        1 => {
            work.lz4_bytes += decoded_bytes;
            work.lz4_sequences += lz4_sequences(stream);
        }
        4 => *work += of_zstd(stream, decoded_bytes),
        _ => work.copied_bytes += decoded_bytes,
    }
}

/// The number of sequences in an LZ4 block.
fn lz4_sequences(mut block: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(rest) = after_sequence(block) {
        count += 1;
        block = rest;
    }
    count
}

/// The bytes behind the first sequence; `None` behind the last one, which has no match.
fn after_sequence(block: &[u8]) -> Option<&[u8]> {
    let (token, rest) = block.split_first()?;
    let (literals, rest) = lz4_length(usize::from(token >> 4), rest)?;
    // Skips the offset of the match.
    let rest = rest.get(literals..)?.get(2..)?;
    lz4_length(usize::from(token & 15), rest).map(|(_, rest)| rest)
}

/// A length that continues in further bytes if its four bits are all set.
fn lz4_length(mut length: usize, mut rest: &[u8]) -> Option<(usize, &[u8])> {
    if length < 15 {
        return Some((length, rest));
    }
    loop {
        let (more, behind) = rest.split_first()?;
        length += usize::from(*more);
        rest = behind;
        if *more < 255 {
            return Some((length, rest));
        }
    }
}

fn little_endian(bytes: &[u8], count: usize) -> Option<u64> {
    let taken = bytes.get(..count)?;
    Some(taken.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use bedform_codec::{ChunkCodec, Scratch};
    use bedform_format::DataType;
    use proptest::prelude::*;

    use super::*;
    use crate::codec::choice::candidates;

    #[test]
    fn sequences_of_lz4_are_counted_by_their_tokens() {
        // One literal and a match of 4 + 15 + 255 + 3 bytes; no literal and a match of 4; the last
        // literals.
        let block = [&[0x1f, b'a', 1, 0, 255, 3][..], &[0x00, 2, 0], &[0x20, b'b', b'c']].concat();
        assert_eq!(lz4_sequences(&block), 2);
        assert_eq!(lz4_sequences(&[0xf0, 255, 255]), 0);
        assert_eq!(lz4_sequences(&[]), 0);
    }

    /// The work of elements of `type_size` bytes with every candidate, by name.
    fn work_of(elements: &[u8], data_type: DataType) -> Vec<(&'static str, DecodingWork)> {
        let count = elements.len() / data_type.item_size().unwrap_or(1);
        let all = candidates(data_type, elements.len(), false).into_iter();
        all.map(|candidate| {
            let chain = CodecChain { bytes: candidate.codecs, ..CodecChain::raw() };
            let codec = ChunkCodec::new(&chain, data_type, &[count as u64]);
            let (mut scratch, mut encoded) = (Scratch::default(), Vec::new());
            codec.encode(elements, &mut scratch, &mut encoded).unwrap();
            (candidate.name, DecodingWork::of(&chain, &encoded, elements.len()))
        })
        .collect()
    }

    #[test]
    fn repeated_values_take_few_sequences_and_small_counts_many() {
        let repeated = vec![7; 1 << 18];
        for (name, work) in work_of(&repeated, DataType::UInt32) {
            assert!(work.lz4_sequences + work.zstd_sequences < 100, "{name}: {work:?}");
        }
        let mut state = 1_u64;
        let counts: Vec<u8> = (0..1 << 16)
            .flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                u32::try_from(state >> 61).unwrap_or(0).to_le_bytes()
            })
            .collect();
        let work = work_of(&counts, DataType::UInt32);
        let of = |name: &str| work.iter().find(|one| one.0 == name).unwrap().1;
        assert!(of("blosc-lz4-shuffle").lz4_sequences > 5_000, "{work:?}");
        let zstd = of("zstd");
        assert!(zstd.zstd_sequences + zstd.huffman_bytes > 5_000, "{work:?}");
    }

    proptest! {
        #[test]
        fn streams_decode_to_all_bytes_of_a_chunk(
            words in prop::collection::vec(0_u64..1 << 20, 1..4000),
            repeats in 1_usize..40,
        ) {
            let elements: Vec<u8> =
                words.repeat(repeats).into_iter().flat_map(u64::to_le_bytes).collect();
            for (name, work) in work_of(&elements, DataType::UInt64) {
                let bytes = work.lz4_bytes + work.zstd_bytes + work.copied_bytes;
                let expected = if name == "none" { 0 } else { elements.len() as u64 };
                prop_assert_eq!(bytes, expected, "{} {:?}", name, work);
                prop_assert!(3 * work.zstd_sequences + work.huffman_bytes <= work.zstd_bytes);
                prop_assert!(4 * work.lz4_sequences <= work.lz4_bytes);
            }
        }

        #[test]
        fn bytes_that_are_no_chunk_are_counted_to_where_they_make_sense(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            of_blosc(&bytes);
            of_zstd(&[&[0x28, 0xb5, 0x2f, 0xfd], bytes.as_slice()].concat(), 1 << 20);
            lz4_sequences(&bytes);
        }
    }
}
