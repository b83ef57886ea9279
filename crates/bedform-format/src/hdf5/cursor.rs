//! Blocks of the file with their offsets, and a cursor that reads them field by field.

use super::error::{Hdf5Error, Result};

/// The widths in bytes of addresses and lengths in this file, from its superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Widths {
    pub(super) address: u8,
    pub(super) length: u8,
}

/// A piece of the file in memory.
#[derive(Debug, Clone)]
pub(super) struct FileBlock {
    pub(super) bytes: Vec<u8>,
    /// Offset of the first byte in the file.
    pub(super) at: u64,
    pub(super) widths: Widths,
}

impl FileBlock {
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor { rest: &self.bytes, at: self.at, widths: self.widths }
    }
}

/// A reader of the remaining bytes of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    at: u64,
    widths: Widths,
}

impl<'a> Cursor<'a> {
    /// Returns an error at the position of the next byte.
    pub(super) fn corrupt(&self, what: impl Into<String>) -> Hdf5Error {
        Hdf5Error::corrupt(self.at, what)
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn widths(&self) -> Widths {
        self.widths
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((head, rest)) = self.rest.split_at_checked(count) else {
            let left = self.rest.len();
            return Err(self.corrupt(format!("{count} bytes expected, {left} left")));
        };
        self.advance(head.len(), rest);
        Ok(head)
    }

    /// Splits off the next `count` bytes as a cursor.
    pub(super) fn split(&mut self, count: usize) -> Result<Self> {
        let at = self.at;
        let rest = self.take(count)?;
        Ok(Self { rest, at, widths: self.widths })
    }

    pub(super) fn skip(&mut self, count: usize) -> Result {
        self.take(count).map(|_| ())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            let left = self.rest.len();
            return Err(self.corrupt(format!("{N} bytes expected, {left} left")));
        };
        self.advance(N, rest);
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a little-endian unsigned integer of up to 8 bytes.
    pub(super) fn uint(&mut self, width: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        if width > bytes.len() {
            return Err(self.corrupt(format!("a number of {width} bytes")));
        }
        bytes.iter_mut().zip(self.take(width)?).for_each(|(to, from)| *to = *from);
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn length(&mut self) -> Result<u64> {
        self.uint(self.widths.length.into())
    }

    /// Reads an address, relative to the base; `None` if all its bits are ones.
    pub(super) fn address(&mut self) -> Result<Option<u64>> {
        let width = usize::from(self.widths.address);
        let value = self.uint(width)?;
        let undefined = u64::MAX.checked_shr(bits(8_usize.saturating_sub(width))).unwrap_or(0);
        Ok((value != undefined).then_some(value))
    }

    /// Reads an address; fails if it is undefined.
    pub(super) fn required_address(&mut self) -> Result<u64> {
        let before = *self;
        self.address()?.ok_or_else(|| before.corrupt("an address that is not defined"))
    }

    pub(super) fn signature(&mut self, expected: [u8; 4]) -> Result {
        let before = *self;
        if self.array()? == expected {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&expected);
        Err(before.corrupt(format!("the signature {name} expected")))
    }

    /// Reads a version, which must be `known`.
    pub(super) fn version(&mut self, known: u8, what: &str) -> Result {
        match self.u8()? {
            found if found == known => Ok(()),
            found => Err(Hdf5Error::unknown(format!("version {found} of {what}"))),
        }
    }

    /// Reads the bytes before the next NUL, and skips the NUL.
    pub(super) fn zero_terminated(&mut self) -> Result<&'a [u8]> {
        let length = self.rest.iter().position(|byte| *byte == 0);
        let text = self.take(length.ok_or_else(|| self.corrupt("a name without its end"))?)?;
        self.skip(1)?;
        Ok(text)
    }

    fn advance(&mut self, count: usize, rest: &'a [u8]) {
        self.at = self.at.saturating_add(count as u64);
        self.rest = rest;
    }
}

/// Returns the number of bits in `bytes` bytes.
pub(super) fn bits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(8)
}

/// Returns the number of bytes that hold any integer up to `limit`.
pub(super) fn bytes_for(limit: u64) -> usize {
    let bits = u64::BITS.saturating_sub(limit.leading_zeros()).max(1);
    bits.div_ceil(8) as usize
}
