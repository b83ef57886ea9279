//! `blosc`: Blosc 1 containers, through the C library.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use bedform_format::BytesCodec;
use bedform_format::codec::{BloscConfiguration, BloscShuffle};

use super::memory::resize;
use super::{BytesToBytes, CodecError, Contexts, DecodeRequest, Decoded, Result, SizeBound};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Blosc(configuration) => Some(Arc::new(Blosc { configuration })),
        _ => None,
    }
}

#[derive(Debug)]
struct Blosc {
    configuration: BloscConfiguration,
}

impl BytesToBytes for Blosc {
    fn decode(
        &self,
        input: &[u8],
        wanted: DecodeRequest,
        output: &mut Vec<u8>,
        _: &mut Contexts,
    ) -> Result<Decoded> {
        decode(input, wanted.size, output)?;
        Ok(Decoded::Output)
    }

    fn encode(&self, input: &[u8], output: &mut Vec<u8>, _: &mut Contexts) -> Result<()> {
        encode(input, &self.configuration, output)
    }
}

/// Largest number of bytes that Blosc adds to incompressible data (`BLOSC_MAX_OVERHEAD`).
const OVERHEAD: usize = 16;

fn decode(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let mut found = 0_usize;
    // SAFETY: the pointer and length are of one slice; the library reads the header only and
    // writes the size through a valid pointer.
    let valid = unsafe {
        blosc_src::blosc_cbuffer_validate(input.as_ptr().cast(), input.len(), &raw mut found)
    };
    if valid != 0 {
        return Err(invalid());
    }
    match bound {
        SizeBound::Exactly(expected) if expected != found => {
            return Err(CodecError::Length { codec: "blosc", expected, found });
        }
        SizeBound::AtMost(expected) if found > expected => {
            return Err(CodecError::Length { codec: "blosc", expected, found });
        }
        _ => {}
    }
    resize(output, found)?;
    if found == 0 {
        return Ok(());
    }
    // SAFETY: the header was validated against the input's length, and the output has the exact
    // size that is passed; one thread, no global state.
    let written = unsafe {
        blosc_src::blosc_decompress_ctx(
            input.as_ptr().cast::<c_void>(),
            output.as_mut_ptr().cast::<c_void>(),
            output.len(),
            1,
        )
    };
    if usize::try_from(written) == Ok(found) { Ok(()) } else { Err(invalid()) }
}

fn encode(input: &[u8], configuration: &BloscConfiguration, output: &mut Vec<u8>) -> Result<()> {
    let name = configuration.compressor.name();
    let compressor = CString::new(name).map_err(|_| invalid())?;
    let shuffle = match configuration.shuffle {
        BloscShuffle::None => 0,
        BloscShuffle::Byte => 1,
        BloscShuffle::Bit => 2,
    };
    resize(output, input.len() + OVERHEAD)?;
    // SAFETY: both buffers are valid for the lengths given; the name is a C string that outlives
    // the call.
    let written = unsafe {
        blosc_src::blosc_compress_ctx(
            c_int::from(configuration.level),
            shuffle,
            usize::from(configuration.type_size),
            input.len(),
            input.as_ptr().cast::<c_void>(),
            output.as_mut_ptr().cast::<c_void>(),
            output.len(),
            compressor.as_ptr(),
            configuration.block_size as usize,
            1,
        )
    };
    match usize::try_from(written) {
        Ok(length) if length > 0 => {
            output.truncate(length);
            Ok(())
        }
        _ => Err(CodecError::Unsupported(format!("this build's Blosc cannot write {name:?}"))),
    }
}

fn invalid() -> CodecError {
    CodecError::Invalid { codec: "blosc", detail: String::new() }
}
