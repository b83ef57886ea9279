//! `shuffle` of HDF5 and numcodecs: byte shuffle of elements of one size.

use std::sync::Arc;

use bedform_format::BytesCodec;

use super::memory::grow;
use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Shuffle { element_size } => {
            Some(Arc::new(Shuffle { element_size: element_size as usize }))
        }
        _ => None,
    }
}

#[derive(Debug)]
struct Shuffle {
    element_size: usize,
}

impl BytesToBytes for Shuffle {
    fn decode(
        &self,
        input: &[u8],
        _: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        unshuffle(input, self.element_size, output)?;
        Ok(Decoded::Output)
    }

    fn encode(&self, input: &[u8], output: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        shuffle(input, self.element_size, output);
        Ok(())
    }

    fn encoded_length(&self, decoded: usize) -> Option<usize> {
        Some(decoded)
    }
}

/// Groups byte 0 of every element, then byte 1, and so on; trailing bytes that form no element stay
/// unchanged.
fn shuffle(input: &[u8], element_size: usize, output: &mut Vec<u8>) {
    output.clear();
    output.reserve(input.len());
    let count = input.len() / element_size.max(1);
    let (body, rest) = input.split_at(count * element_size.max(1));
    for byte in 0..element_size {
        output.extend(body.iter().skip(byte).step_by(element_size));
    }
    output.extend_from_slice(rest);
}

/// Reverses [`shuffle`].
fn unshuffle(input: &[u8], element_size: usize, output: &mut Vec<u8>) -> Result<()> {
    output.clear();
    grow(output, input.len())?;
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
    Ok(())
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
            unshuffle(&there, element_size, &mut back).unwrap();
            assert_eq!(back, input, "{element_size}");
        }
        let mut two = Vec::new();
        shuffle(&[1, 2, 3, 4, 5], 2, &mut two);
        assert_eq!(two, [1, 3, 2, 4, 5]);
    }
}
