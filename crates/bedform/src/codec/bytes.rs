//! Checksums and shuffles.

use bedform_format::BytesCodec;
use bedform_format::checksum::crc32c;

use super::compress::grow;
use super::{CodecError, Result};

/// Checks the checksum behind `input`, and gives the length without it.
pub(super) fn checked_length(codec: BytesCodec, input: &[u8]) -> Result<usize> {
    let (name, sum): (_, fn(&[u8]) -> u32) = match codec {
        BytesCodec::Fletcher32 => ("fletcher32", fletcher32),
        _ => ("crc32c", crc32c),
    };
    let Some((body, tail)) = input.split_last_chunk::<4>() else {
        return Err(CodecError::Length { codec: name, expected: 4, found: input.len() });
    };
    let (expected, found) = (u32::from_le_bytes(*tail), sum(body));
    if expected == found {
        Ok(body.len())
    } else {
        Err(CodecError::Checksum { codec: name, expected, found })
    }
}

pub(super) fn append_crc32c(bytes: &mut Vec<u8>) {
    let checksum = crc32c(bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

/// HDF5's Fletcher-32: over big-endian 16-bit words, reduced modulo 65,535.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (pairs, odd) = bytes.as_chunks::<2>();
    // 360 words are the most that cannot overflow 32 bits.
    for block in pairs.chunks(360) {
        for pair in block {
            low += u32::from(u16::from_be_bytes(*pair));
            high += low;
        }
        low = fold(low);
        high = fold(high);
    }
    if let [last] = odd {
        low += u32::from(*last) << 8;
        high += low;
        low = fold(low);
        high = fold(high);
    }
    low = fold(low);
    high = fold(high);
    high << 16 | low
}

/// Gathers byte 0 of every element, then byte 1, and so on; a rest is kept as it is.
pub(super) fn shuffle(input: &[u8], element_size: usize, output: &mut Vec<u8>) {
    output.clear();
    output.reserve(input.len());
    let count = input.len() / element_size.max(1);
    let (body, rest) = input.split_at(count * element_size.max(1));
    for byte in 0..element_size {
        output.extend(body.iter().skip(byte).step_by(element_size));
    }
    output.extend_from_slice(rest);
}

/// The inverse of [`shuffle`].
pub(super) fn unshuffle(input: &[u8], element_size: usize, output: &mut Vec<u8>) {
    output.clear();
    grow(output, input.len());
    let count = input.len() / element_size.max(1);
    let (body, rest) = input.split_at(count * element_size.max(1));
    match element_size {
        2 => unshuffle_fixed::<2>(body, count, output),
        4 => unshuffle_fixed::<4>(body, count, output),
        8 => unshuffle_fixed::<8>(body, count, output),
        _ => {
            for (byte, plane) in body.chunks_exact(count.max(1)).enumerate() {
                for (element, value) in plane.iter().enumerate() {
                    output[element * element_size + byte] = *value;
                }
            }
        }
    }
    let at = output.len() - rest.len();
    output[at..].copy_from_slice(rest);
}

fn unshuffle_fixed<const N: usize>(body: &[u8], count: usize, output: &mut [u8]) {
    if count == 0 {
        return;
    }
    let planes: [&[u8]; N] = std::array::from_fn(|byte| &body[byte * count..(byte + 1) * count]);
    for (element, target) in output.as_chunks_mut::<N>().0.iter_mut().take(count).enumerate() {
        for byte in 0..N {
            target[byte] = planes[byte][element];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_groups_bytes_by_their_place_and_comes_back() {
        let input: Vec<u8> = (0..23).collect();
        for element_size in [1, 2, 3, 4, 8] {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            shuffle(&input, element_size, &mut there);
            unshuffle(&there, element_size, &mut back);
            assert_eq!(back, input, "{element_size}");
        }
        let mut two = Vec::new();
        shuffle(&[1, 2, 3, 4, 5], 2, &mut two);
        assert_eq!(two, [1, 3, 2, 4, 5]);
    }
}
