//! `gzip`: gzip members.

use std::io::Read as _;
use std::sync::Arc;

use bedform_format::BytesCodec;
use flate2::Compression;

use super::memory::{finish, grow, invalid, resize};
use super::{BytesToBytes, Contexts, DecodeRequest, Decoded, Result, SizeBound};

pub(super) fn open(codec: &BytesCodec) -> Option<Arc<dyn BytesToBytes>> {
    match *codec {
        BytesCodec::Gzip { level } => Some(Arc::new(Gzip { level })),
        _ => None,
    }
}

#[derive(Debug)]
struct Gzip {
    level: u32,
}

impl BytesToBytes for Gzip {
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
        encode(input, self.level, output)
    }
}

fn decode(input: &[u8], bound: SizeBound, output: &mut Vec<u8>) -> Result<()> {
    let mut decoder = flate2::bufread::MultiGzDecoder::new(input);
    let limit = match bound {
        SizeBound::Exactly(size) | SizeBound::AtMost(size) => size,
    };
    // One byte over the limit suffices to detect excess data.
    let most = limit.saturating_add(1);
    let start = match bound {
        SizeBound::Exactly(_) => most,
        SizeBound::AtMost(_) => input.len().saturating_mul(4).clamp((1 << 12).min(most), most),
    };
    resize(output, start)?;
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
            grow(output, larger)?;
        }
    }
    finish("gzip", bound, found, output)
}

fn encode(input: &[u8], level: u32, output: &mut Vec<u8>) -> Result<()> {
    let mut encoder = flate2::bufread::GzEncoder::new(input, Compression::new(level));
    output.clear();
    encoder.read_to_end(output).map_err(|error| invalid("gzip", &error.to_string()))?;
    Ok(())
}
