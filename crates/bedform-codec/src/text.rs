//! `vlen-utf8`, text of variable length: a u32 count, then for each element a u32 length and the
//! text.

use std::sync::Arc;

use bedform_format::Serializer;

use super::{ArrayToBytes, ChunkOf, CodecError, Result, SizeBound};

pub(super) fn open(serializer: &Serializer, _: &ChunkOf<'_>) -> Option<Arc<dyn ArrayToBytes>> {
    (*serializer == Serializer::VlenUtf8).then(|| Arc::new(VlenUtf8Codec) as Arc<dyn ArrayToBytes>)
}

/// The identity codec of text: stored bytes are the decoded chunk, and [`split`] finds the texts in
/// it.
#[derive(Debug)]
struct VlenUtf8Codec;

impl ArrayToBytes for VlenUtf8Codec {
    fn is_identity(&self) -> bool {
        true
    }

    fn decoded_length(&self, encoded: usize) -> SizeBound {
        SizeBound::AtMost(bytes_max(encoded))
    }
}

/// Returns the largest decoded length of a text chunk in bytes; only its encoded length bounds it.
pub(super) fn bytes_max(encoded: usize) -> usize {
    const ALWAYS: usize = 64 << 20;
    const MOST: usize = 2 << 30;
    encoded.saturating_mul(16).saturating_add(ALWAYS).min(MOST)
}

/// Splits a decoded chunk into `count` texts.
///
/// # Errors
/// [`CodecError`] if the count differs, a length exceeds the data, or a text is not UTF-8.
pub fn split(bytes: &[u8], count: usize) -> Result<Vec<&str>> {
    let invalid =
        |detail: &str| CodecError::Invalid { codec: "vlen-utf8", detail: format!(": {detail}") };
    let (head, mut rest) = take(bytes, 4).ok_or_else(|| invalid("too short"))?;
    let found = word(head);
    if found != count {
        return Err(CodecError::Length { codec: "vlen-utf8", expected: count, found });
    }
    // The count matches the array's shape, but each text still needs four bytes of input.
    if rest.len() / 4 < count {
        return Err(invalid("too short"));
    }
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, tail) = take(rest, 4).ok_or_else(|| invalid("too short"))?;
        let (text, tail) = take(tail, word(head)).ok_or_else(|| invalid("too short"))?;
        texts.push(std::str::from_utf8(text).map_err(|_| invalid("not UTF-8"))?);
        rest = tail;
    }
    if rest.is_empty() { Ok(texts) } else { Err(invalid("bytes left over")) }
}

/// Reverses [`split`]; writes into `output`.
///
/// # Errors
/// [`CodecError::Unsupported`] if a length or the count does not fit 32 bits.
pub fn join<'a>(texts: impl ExactSizeIterator<Item = &'a str>, output: &mut Vec<u8>) -> Result<()> {
    let word = |length: usize| {
        u32::try_from(length)
            .map(u32::to_le_bytes)
            .map_err(|_| CodecError::Unsupported("text of more than 4 GiB in a chunk".to_owned()))
    };
    output.clear();
    output.extend_from_slice(&word(texts.len())?);
    for text in texts {
        output.extend_from_slice(&word(text.len())?);
        output.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

fn take(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(length)
}

fn word(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte))
}
