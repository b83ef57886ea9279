//! `zstd`: Zstandard frames.

use std::sync::Arc;

use bedform_format::BytesCodec;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::memory::{finish, invalid, resize};
use super::{BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Zstd { level, checksum } => Some(Arc::new(Zstd { level, checksum })),
        _ => None,
    }
}

#[derive(Debug)]
struct Zstd {
    level: i32,
    checksum: bool,
}

/// The decoded length of a frame's blocks is a multiple of this number of bytes, by the habit of
/// encoders.
const BLOCK_UNIT: usize = 1 << 10;

impl BytesToBytes for Zstd {
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        contexts: &mut Contexts,
    ) -> Result<Decoded> {
        let contexts = contexts.of::<ZstdContexts>();
        if let (Some(front), SizeBound::Exactly(size)) = (wanted.front, wanted.size)
            && (front.is_checked || is_whole_frame(input, size))
        {
            contexts.decode_front(input, size, front.bytes, output)?;
            // Encoders end blocks at round positions, so damage that changes the length of a block
            // is detected here, as at the end of a whole frame.
            if front.is_checked || output.len().is_multiple_of(BLOCK_UNIT) {
                return Ok(Decoded::Output);
            }
        }
        contexts.decode(input, wanted.size, output)?;
        Ok(Decoded::Output)
    }

    fn encode(&self, input: &[u8], output: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
        contexts.of::<ZstdContexts>().encode(input, self.level, self.checksum, output)
    }

    fn decodes_fronts(&self) -> bool {
        true
    }
}

/// Zstandard's contexts, kept between chunks because they are costly to make.
#[derive(Default)]
struct ZstdContexts {
    decoder: Option<DCtx<'static>>,
    encoder: Option<CCtx<'static>>,
}

impl ZstdContexts {
    /// Returns the decoder for a chunk of `bytes` bytes.
    fn decoder(&mut self, bytes: usize) -> Result<&mut DCtx<'static>> {
        if self.decoder.is_none() {
            self.decoder = DCtx::try_create();
        }
        self.decoder.as_mut().ok_or(CodecError::Memory { bytes })
    }

    /// Returns the encoder for a chunk of `bytes` bytes.
    fn encoder(&mut self, bytes: usize) -> Result<&mut CCtx<'static>> {
        if self.encoder.is_none() {
            self.encoder = CCtx::try_create();
        }
        self.encoder.as_mut().ok_or(CodecError::Memory { bytes })
    }

    fn decode(&mut self, input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
        let capacity = match bound {
            SizeBound::Exactly(size) => size,
            // The size in the frame is only a hint; the bound limits the output.
            SizeBound::AtMost(size) => zstd_safe::get_frame_content_size(input)
                .ok()
                .flatten()
                .and_then(|claimed| usize::try_from(claimed).ok())
                .unwrap_or(input.len().saturating_mul(64).saturating_add(1 << 16))
                .min(size),
        };
        resize(output, capacity)?;
        let found = self
            .decoder(capacity)?
            .decompress(output.as_mut_slice(), input)
            .map_err(|code| failure(code, capacity))?;
        finish("zstd", bound, found, output)
    }

    /// Decodes at least the first `needed` bytes of a frame of `size` bytes, block by block, and
    /// skips the rest. The caller has verified the whole frame by a checksum or by
    /// [`is_whole_frame`].
    fn decode_front(
        &mut self,
        input: &[u8],
        size: usize,
        needed: usize,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        resize(output, size)?;
        let decoder = self.decoder(size)?;
        let refuse = |code| failure(code, size);
        decoder.reset(ResetDirective::SessionOnly).map_err(refuse)?;
        decoder.set_parameter(DParameter::StableOutBuffer(true)).map_err(refuse)?;
        let outcome = feed_blocks(decoder, input, needed, output);
        decoder.reset(ResetDirective::SessionAndParameters).map_err(refuse)?;
        output.truncate(outcome?);
        Ok(())
    }

    fn encode(
        &mut self,
        input: &[u8],
        level: i32,
        checksum: bool,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let encoder = self.encoder(input.len())?;
        let refuse = |code| failure(code, input.len());
        encoder.set_parameter(CParameter::CompressionLevel(level)).map_err(refuse)?;
        encoder.set_parameter(CParameter::ChecksumFlag(checksum)).map_err(refuse)?;
        resize(output, zstd_safe::compress_bound(input.len()))?;
        let written = encoder.compress2(output.as_mut_slice(), input).map_err(refuse)?;
        output.truncate(written);
        Ok(())
    }
}

/// Decodes a frame of exactly `length` bytes into `output`, and replaces the content of `output`.
pub(super) fn decompress_into(
    input: &[u8],
    length: usize,
    output: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    contexts.of::<ZstdContexts>().decode(input, SizeBound::Exactly(length), output)
}

/// Decodes a Zstandard frame of exactly `length` bytes, with a new context.
///
/// # Errors
/// [`CodecError`].
pub fn decompress(input: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    ZstdContexts::default().decode(input, SizeBound::Exactly(length), &mut output)?;
    Ok(output)
}

/// Encodes `input` as one Zstandard frame, with a new context.
///
/// # Errors
/// [`CodecError::Memory`].
pub fn compress(input: &[u8], level: i32) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    ZstdContexts::default().encode(input, level, false, &mut output)?;
    Ok(output)
}

/// Returns the error of a failed library call for a chunk of `bytes` bytes.
fn failure(code: usize, bytes: usize) -> CodecError {
    /// `ZSTD_error_memory_allocation`, which the library's functions return as its negative.
    const MEMORY: usize = 64_usize.wrapping_neg();
    match code {
        MEMORY => CodecError::Memory { bytes },
        _ => invalid("zstd", zstd_safe::get_error_name(code)),
    }
}

/// Returns true if `input` is one frame of `size` bytes without its own checksum, with complete
/// blocks up to its end. A decoder detects all other damage block by block.
fn is_whole_frame(input: &[u8], size: usize) -> bool {
    const CHECKSUM_FLAG: u8 = 1 << 2;
    let claimed = zstd_safe::get_frame_content_size(input).ok().flatten();
    let Some(mut end) = frame_header_bytes(input).filter(|_| claimed == Some(size as u64)) else {
        return false;
    };
    if input[4] & CHECKSUM_FLAG != 0 {
        return false;
    }
    while let Some(block) = block_at(input, end) {
        end = block.end;
        if block.is_last {
            return end == input.len();
        }
    }
    false
}

/// The end of a block in a frame.
struct ZstdBlock {
    end: usize,
    is_last: bool,
}

/// Returns the block whose header is at `start` (RFC 8878, section 3.1.1.2), if it is complete in
/// `input`.
fn block_at(input: &[u8], start: usize) -> Option<ZstdBlock> {
    let header = input.get(start..start.checked_add(3)?)?;
    let word = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let (last, kind, length) = (word & 1 == 1, word >> 1 & 3, word >> 3);
    // A block of one repeated byte is stored as one byte, at any decoded length.
    let stored = if kind == 1 { 1 } else { length as usize };
    let end = start + 3 + stored;
    (end <= input.len()).then_some(ZstdBlock { end, is_last: last })
}

/// Feeds the decoder block by block until `output` has `needed` bytes, and returns the number of
/// bytes decoded.
fn feed_blocks(
    decoder: &mut DCtx<'static>,
    input: &[u8],
    needed: usize,
    output: &mut [u8],
) -> Result<usize> {
    let too_short = || invalid("zstd", "the frame ends too early");
    let size = output.len();
    let mut target = OutBuffer::around(output);
    let mut end = frame_header_bytes(input).ok_or_else(too_short)?;
    let mut source = InBuffer::around(input.get(..end).ok_or_else(too_short)?);
    let mut fed = 0;
    loop {
        while source.pos() < source.src.len() {
            decoder
                .decompress_stream(&mut target, &mut source)
                .map_err(|code| failure(code, size))?;
        }
        if target.pos() >= needed {
            return Ok(target.pos());
        }
        fed = end.max(fed);
        let block = block_at(input, fed).ok_or_else(too_short)?;
        end = block.end;
        source = InBuffer::around(input.get(fed..end).ok_or_else(too_short)?);
        if block.is_last {
            decoder
                .decompress_stream(&mut target, &mut source)
                .map_err(|code| failure(code, size))?;
            let found = target.pos();
            return if found >= needed {
                Ok(found)
            } else {
                Err(CodecError::Length { codec: "zstd", expected: needed, found })
            };
        }
    }
}

/// Returns the length of a Zstandard frame header (RFC 8878, section 3.1.1.1).
fn frame_header_bytes(input: &[u8]) -> Option<usize> {
    if input.get(..4)? != [0x28, 0xb5, 0x2f, 0xfd] {
        return None;
    }
    let descriptor = *input.get(4)?;
    let single_segment = descriptor >> 5 & 1 == 1;
    let window = usize::from(!single_segment);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = match (descriptor >> 6, single_segment) {
        (0, false) => 0,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    Some(5 + window + dictionary + content)
}
