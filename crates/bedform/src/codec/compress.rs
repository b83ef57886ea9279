//! Zstandard, gzip and zlib.

use std::io::Read as _;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::{CodecError, Result, SizeBound};

/// Zstandard's contexts: costly to make, so kept.
#[derive(Default)]
pub(super) struct ZstdContexts {
    decoder: Option<DCtx<'static>>,
    encoder: Option<CCtx<'static>>,
}

impl ZstdContexts {
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        bound: SizeBound,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let capacity = match bound {
            SizeBound::Exactly(size) => size,
            // What the frame says is a hint; the bound is what holds.
            SizeBound::AtMost(size) => zstd_safe::get_frame_content_size(input)
                .ok()
                .flatten()
                .and_then(|claimed| usize::try_from(claimed).ok())
                .unwrap_or(input.len().saturating_mul(64).saturating_add(1 << 16))
                .min(size),
        };
        resize(output, capacity);
        let decoder = self.decoder.get_or_insert_with(DCtx::create);
        let found = decoder
            .decompress(output.as_mut_slice(), input)
            .map_err(|code| invalid("zstd", zstd_safe::get_error_name(code)))?;
        finish("zstd", bound, found, output)
    }

    /// Decodes the first `needed` bytes, at least, of a frame of `size` bytes, block by block. What
    /// lies behind them is not looked at: the caller has checked the whole by a checksum, or by
    /// [`is_whole_frame`].
    pub(super) fn decode_front(
        &mut self,
        input: &[u8],
        size: usize,
        needed: usize,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        resize(output, size);
        let decoder = self.decoder.get_or_insert_with(DCtx::create);
        let refuse = |code| invalid("zstd", zstd_safe::get_error_name(code));
        decoder.reset(ResetDirective::SessionOnly).map_err(refuse)?;
        decoder.set_parameter(DParameter::StableOutBuffer(true)).map_err(refuse)?;
        let outcome = feed_blocks(decoder, input, needed, output);
        decoder.reset(ResetDirective::SessionAndParameters).map_err(refuse)?;
        output.truncate(outcome?);
        Ok(())
    }

    pub(super) fn encode(
        &mut self,
        input: &[u8],
        level: i32,
        checksum: bool,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        let encoder = self.encoder.get_or_insert_with(CCtx::create);
        let refuse = |code| invalid("zstd", zstd_safe::get_error_name(code));
        encoder.set_parameter(CParameter::CompressionLevel(level)).map_err(refuse)?;
        encoder.set_parameter(CParameter::ChecksumFlag(checksum)).map_err(refuse)?;
        resize(output, zstd_safe::compress_bound(input.len()));
        let written = encoder.compress2(output.as_mut_slice(), input).map_err(refuse)?;
        output.truncate(written);
        Ok(())
    }
}

/// True if `input` is one frame of `size` bytes without a checksum of its own, whose blocks follow each
/// other up to its end: what a decoder would find wrong with it otherwise, it finds block by block.
pub(super) fn is_whole_frame(input: &[u8], size: usize) -> bool {
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

/// Where a block of a frame ends.
struct Block {
    end: usize,
    is_last: bool,
}

/// The block whose header is at `start` (RFC 8878, section 3.1.1.2); nothing if it is not all there.
fn block_at(input: &[u8], start: usize) -> Option<Block> {
    let header = input.get(start..start.checked_add(3)?)?;
    let word = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let (last, kind, length) = (word & 1 == 1, word >> 1 & 3, word >> 3);
    // A block of repeated bytes is one byte long, whatever it stands for.
    let stored = if kind == 1 { 1 } else { length as usize };
    let end = start + 3 + stored;
    (end <= input.len()).then_some(Block { end, is_last: last })
}

/// Gives the decoder one block after the other until `needed` bytes are there; says how many are.
fn feed_blocks(
    decoder: &mut DCtx<'static>,
    input: &[u8],
    needed: usize,
    output: &mut [u8],
) -> Result<usize> {
    let too_short = || invalid("zstd", "the frame ends too early");
    let mut target = OutBuffer::around(output);
    let mut end = frame_header_bytes(input).ok_or_else(too_short)?;
    let mut source = InBuffer::around(input.get(..end).ok_or_else(too_short)?);
    let mut fed = 0;
    loop {
        while source.pos() < source.src.len() {
            decoder
                .decompress_stream(&mut target, &mut source)
                .map_err(|code| invalid("zstd", zstd_safe::get_error_name(code)))?;
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
                .map_err(|code| invalid("zstd", zstd_safe::get_error_name(code)))?;
            let found = target.pos();
            return if found >= needed {
                Ok(found)
            } else {
                Err(CodecError::Length { codec: "zstd", expected: needed, found })
            };
        }
    }
}

/// Bytes of the header of a Zstandard frame (RFC 8878, section 3.1.1.1).
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

pub(super) fn decode_gzip(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let mut decoder = flate2::bufread::MultiGzDecoder::new(input);
    let limit = match bound {
        SizeBound::Exactly(size) | SizeBound::AtMost(size) => size,
    };
    // One byte over the limit is enough to know that there is too much.
    let most = limit.saturating_add(1);
    let start = match bound {
        SizeBound::Exactly(_) => most,
        SizeBound::AtMost(_) => input.len().saturating_mul(4).clamp((1 << 12).min(most), most),
    };
    resize(output, start);
    let mut found = 0;
    loop {
        let read = decoder.read(&mut output[found..]);
        found += match read {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(invalid("gzip", &error.to_string())),
        };
        if found == most {
            break;
        }
        if found == output.len() {
            let larger = found.saturating_mul(2).min(most);
            grow(output, larger);
        }
    }
    finish("gzip", bound, found, output)
}

pub(super) fn decode_zlib(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let mut decoder = Decompress::new(true);
    let (SizeBound::Exactly(limit) | SizeBound::AtMost(limit)) = bound;
    let start = match bound {
        SizeBound::Exactly(size) => size,
        SizeBound::AtMost(size) => input.len().saturating_mul(4).clamp(1 << 12, size.max(1 << 12)),
    };
    resize(output, start);
    loop {
        let consumed = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let produced = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        let status = decoder
            .decompress(
                input.get(consumed..).unwrap_or_default(),
                &mut output[produced..],
                FlushDecompress::Finish,
            )
            .map_err(|error| invalid("zlib", &error.to_string()))?;
        let found = usize::try_from(decoder.total_out()).unwrap_or(usize::MAX);
        if status == Status::StreamEnd {
            return finish("zlib", bound, found, output);
        }
        if found < output.len() {
            return Err(invalid("zlib", "the stream ends too early"));
        }
        if output.len() > limit {
            return Err(CodecError::Length { codec: "zlib", expected: limit, found });
        }
        // A full buffer with the stream's end still to come: one byte more tells the two apart.
        let larger = output.len().saturating_mul(2).min(limit).max(output.len() + 1);
        grow(output, larger);
    }
}

pub(super) fn encode_gzip(input: &[u8], level: u32, output: &mut Vec<u8>) -> Result<()> {
    let mut encoder = flate2::bufread::GzEncoder::new(input, Compression::new(level));
    output.clear();
    encoder.read_to_end(output).map_err(|error| invalid("gzip", &error.to_string()))?;
    Ok(())
}

pub(super) fn encode_zlib(input: &[u8], level: u32, output: &mut Vec<u8>) -> Result<()> {
    let mut encoder = Compress::new(Compression::new(level), true);
    output.clear();
    loop {
        output.reserve((input.len() / 2).max(1 << 12));
        let consumed = usize::try_from(encoder.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(consumed..).unwrap_or_default();
        let status = encoder
            .compress_vec(rest, output, FlushCompress::Finish)
            .map_err(|error| invalid("zlib", &error.to_string()))?;
        if status == Status::StreamEnd {
            return Ok(());
        }
    }
}

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

fn finish(codec: &'static str, bound: SizeBound, found: usize, output: &mut Vec<u8>) -> Result<()> {
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

fn invalid(codec: &'static str, detail: &str) -> CodecError {
    CodecError::Invalid { codec, detail: format!(": {detail}") }
}
