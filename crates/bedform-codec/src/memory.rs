//! Reusable buffers for decoders, and checks of decoded lengths.

use std::alloc::{Layout, alloc_zeroed};

use super::{CodecError, Result, SizeBound};

/// Sets the length of `output` to `length` bytes, with any content.
///
/// Metadata may claim many more bytes than a damaged chunk decodes to, so new memory is mapped only
/// when a decoder writes to it.
///
/// # Errors
/// [`CodecError::Memory`] if the system has none.
pub(super) fn resize(output: &mut Vec<u8>, length: usize) -> Result<()> {
    // Buffers are reused, so growing and zeroing are rare.
    if output.capacity() < length {
        // Drops the old buffer first, so that its content is not copied.
        *output = Vec::new();
        *output = zeroed(length).ok_or(CodecError::Memory { bytes: length })?;
    } else if output.len() < length {
        output.resize(length, 0);
    } else {
        output.truncate(length);
    }
    Ok(())
}

/// Returns zeros in pages that the system maps at the first write; `None` without memory.
#[allow(unsafe_code)]
fn zeroed(length: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(length).ok()?;
    if length == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the layout is not empty. The memory, if not null, is from the global allocator, of
    // this layout and zeroed: a valid vector of `length` bytes.
    unsafe {
        let memory = alloc_zeroed(layout);
        (!memory.is_null()).then(|| Vec::from_raw_parts(memory, length, length))
    }
}

/// Extends `output` to exactly `length` bytes of memory: a vector's own growth could take twice the
/// bytes that a limit allows.
///
/// # Errors
/// As [`resize`].
pub(super) fn grow(output: &mut Vec<u8>, length: usize) -> Result<()> {
    let more = length.saturating_sub(output.len());
    output.try_reserve_exact(more).map_err(|_| CodecError::Memory { bytes: length })?;
    output.resize(length, 0);
    Ok(())
}

/// Truncates `output` to the `found` decoded bytes, which must satisfy `bound`.
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

/// Verifies the checksum at the end of `input`, and returns the length before it.
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
