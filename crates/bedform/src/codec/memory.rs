//! What codecs share: buffers that are used again, lengths that are checked.

use super::{CodecError, Result, SizeBound};

/// Makes `output` `length` bytes long without caring what is in them.
pub(super) fn resize(output: &mut Vec<u8>, length: usize) {
    // Buffers are used again, so growing (and zeroing) is rare.
    if output.capacity() < length {
        // Nothing in it is to be copied.
        output.clear();
    }
    if output.len() < length {
        grow(output, length);
    } else {
        output.truncate(length);
    }
}

/// Makes `output` longer, and its memory no larger than that: a vector's own growth would take up to
/// twice the bytes that a limit allows.
pub(super) fn grow(output: &mut Vec<u8>, length: usize) {
    output.reserve_exact(length.saturating_sub(output.len()));
    output.resize(length, 0);
}

/// Cuts `output` to what was found, which must keep to `bound`.
pub(super) fn finish(
    codec: &'static str,
    bound: SizeBound,
    found: usize,
    output: &mut Vec<u8>,
) -> Result<()> {
    match bound {
        SizeBound::Exactly(expected) if expected != found => {
            return Err(CodecError::Length { codec, expected, found });
        }
        SizeBound::AtMost(expected) if found > expected => {
            return Err(CodecError::Length { codec, expected, found });
        }
        _ => output.truncate(found),
    }
    Ok(())
}

pub(super) fn invalid(codec: &'static str, detail: &str) -> CodecError {
    CodecError::Invalid { codec, detail: format!(": {detail}") }
}

/// Checks the checksum behind `input`, and gives the length without it.
pub(super) fn checked_length(
    codec: &'static str,
    input: &[u8],
    sum: impl Fn(&[u8]) -> u32,
) -> Result<usize> {
    let Some((body, tail)) = input.split_last_chunk::<4>() else {
        return Err(CodecError::Length { codec, expected: 4, found: input.len() });
    };
    let (expected, found) = (u32::from_le_bytes(*tail), sum(body));
    if expected == found {
        Ok(body.len())
    } else {
        Err(CodecError::Checksum { codec, expected, found })
    }
}
