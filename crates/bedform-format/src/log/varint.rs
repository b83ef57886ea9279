//! Varints, and columns of numbers that store the differences between neighbours.
//!
//! A number is LEB128: seven bits per byte, lowest first. Only the shortest form is accepted, so
//! that equal values have equal bytes. A **column** holds the difference of each number from its
//! predecessor (of the first, from 0), zigzag-coded. After two equal differences follows the number
//! of further equal ones. So columns of equal numbers and arithmetic sequences take a few bytes at
//! any length, and random numbers cost nothing extra.

use super::{LogError, Result, invalid};

const NUMBER: &str = "a number";
/// 64 bits at seven bits per byte.
const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` to `bytes`.
///
/// ```
/// use bedform_format::log::varint::{read_varint, write_varint};
/// let mut bytes = Vec::new();
/// write_varint(300, &mut bytes);
/// assert_eq!(bytes, [0xac, 0x02]);
/// assert_eq!(read_varint(&bytes)?, (300, &[][..]));
/// assert!(read_varint(&[0xac, 0x82, 0x00]).is_err(), "longer than need be");
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
pub fn write_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        // The mask leaves seven bits.
        #[allow(clippy::cast_possible_truncation)]
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    bytes.push(value as u8);
}

/// Splits `bytes` into the number at the start and the bytes after it.
///
/// # Errors
/// [`LogError`] if there is no number, or it has more than 64 bits or is not in its shortest form.
pub fn read_varint(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        if at + 1 == VARINT_BYTES_MAX && byte > 1 {
            return Err(invalid(NUMBER, "more than 64 bits"));
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            if byte == 0 && at > 0 {
                return Err(invalid(NUMBER, "longer than need be"));
            }
            return Ok((value, &bytes[at + 1..]));
        }
    }
    Err(LogError::CutShort { what: NUMBER })
}

/// Maps small numbers of either sign to small unsigned numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
///
/// ```
/// use bedform_format::log::varint::{unzigzag, zigzag};
/// assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
/// assert_eq!(unzigzag(zigzag(i64::MIN)), i64::MIN);
/// ```
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Encodes `values` as a column; the module header has the layout.
///
/// ```
/// use bedform_format::log::varint::{decode_column, encode_column};
/// let counting: Vec<u64> = (1000..9000).collect();
/// let bytes = encode_column(&counting);
/// assert_eq!(bytes.len(), 6);
/// assert_eq!(decode_column(&bytes, counting.len())?, counting);
/// assert!(decode_column(&bytes, counting.len() + 1).is_err());
/// # Ok::<(), bedform_format::log::LogError>(())
/// ```
pub fn encode_column(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() + 8);
    write_steps(values.iter().copied(), &mut bytes);
    bytes
}

/// Decodes a column of `count` numbers that takes all of `bytes`.
///
/// Allocates memory for `count` numbers: check `count` against a limit first, since a column may be
/// far shorter than its content.
///
/// # Errors
/// [`LogError`] if there are fewer or more numbers, or any is not in its shortest form.
pub fn decode_column(bytes: &[u8], count: usize) -> Result<Vec<u64>> {
    let mut column = Column::new(bytes, count as u64, "a column");
    // Reserves at most one number per byte, so that a short column without runs fails before a
    // large allocation.
    let mut values = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        values.push(column.next()?);
    }
    column.finish()?;
    Ok(values)
}

fn write_steps(values: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    let (mut previous, mut last_step, mut run) = (0_u64, None, 0_u64);
    for value in values {
        let step = zigzag(value.wrapping_sub(previous).cast_signed());
        previous = value;
        if last_step == Some(step) {
            run += 1;
        } else {
            end_run(run, bytes);
            (last_step, run) = (Some(step), 1);
        }
        if run <= 2 {
            write_varint(step, bytes);
        }
    }
    end_run(run, bytes);
}

fn end_run(run: u64, bytes: &mut Vec<u8>) {
    if let Some(further) = run.checked_sub(2) {
        write_varint(further, bytes);
    }
}

/// Appends a column, preceded by its length in bytes; [`ColumnReader::column`] reads it.
pub(super) fn write_column(values: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    let mut column = Vec::new();
    write_steps(values, &mut column);
    write_varint(column.len() as u64, bytes);
    bytes.extend_from_slice(&column);
}

/// An iterator over the numbers of an encoded column, without an allocation.
#[derive(Debug)]
pub(super) struct Column<'a> {
    rest: &'a [u8],
    what: &'static str,
    /// Numbers still to return.
    left: u64,
    previous: u64,
    step: Option<u64>,
    /// True once the current step was stored twice; `further` counts its repeats still to return.
    is_run: bool,
    further: u64,
}

impl<'a> Column<'a> {
    fn new(bytes: &'a [u8], count: u64, what: &'static str) -> Self {
        Self { rest: bytes, what, left: count, previous: 0, step: None, is_run: false, further: 0 }
    }

    /// Returns the next number.
    pub(super) fn next(&mut self) -> Result<u64> {
        let short = LogError::CutShort { what: self.what };
        self.left = self.left.checked_sub(1).ok_or(short)?;
        if self.further > 0 {
            self.further -= 1;
        } else {
            self.read_step()?;
        }
        let step = unzigzag(self.step.unwrap_or(0)).cast_unsigned();
        self.previous = self.previous.wrapping_add(step);
        Ok(self.previous)
    }

    fn read_step(&mut self) -> Result<()> {
        let step = self.number()?;
        if self.step != Some(step) {
            (self.step, self.is_run) = (Some(step), false);
            return Ok(());
        }
        if self.is_run {
            return Err(invalid(self.what, "a run in two pieces"));
        }
        self.is_run = true;
        self.further = self.number()?;
        if self.further > self.left {
            return Err(invalid(self.what, "a run that is longer than its column"));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u64> {
        if self.rest.is_empty() {
            return Err(LogError::CutShort { what: self.what });
        }
        let (number, rest) = read_varint(self.rest)?;
        self.rest = rest;
        Ok(number)
    }

    /// Returns the next number, which must fit 32 bits.
    pub(super) fn next_u32(&mut self) -> Result<u32> {
        let value = self.next()?;
        u32::try_from(value).map_err(|_| invalid(self.what, format!("{value} is too large")))
    }

    /// Returns the item of `list` at the index that is the next number.
    pub(super) fn next_of<'l, T>(&mut self, list: &'l [T]) -> Result<&'l T> {
        let index = self.next()?;
        usize::try_from(index).ok().and_then(|at| list.get(at)).ok_or_else(|| {
            invalid(self.what, format!("{index} points behind the last of {}", list.len()))
        })
    }

    /// Checks that all numbers have been returned and that no bytes remain.
    pub(super) fn finish(self) -> Result<()> {
        if self.left > 0 {
            return Err(LogError::CutShort { what: self.what });
        }
        if !self.rest.is_empty() {
            return Err(LogError::Trailing { what: self.what });
        }
        Ok(())
    }
}

/// A reader of the remaining bytes of an object; each read fails if too few are left.
#[derive(Debug)]
pub(super) struct ColumnReader<'a> {
    rest: &'a [u8],
}

impl<'a> ColumnReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64> {
        if self.rest.is_empty() {
            return Err(LogError::CutShort { what });
        }
        let (number, rest) = read_varint(self.rest)?;
        self.rest = rest;
        Ok(number)
    }

    pub(super) fn number_u32(&mut self, what: &'static str) -> Result<u32> {
        let number = self.number(what)?;
        u32::try_from(number).map_err(|_| invalid(what, format!("{number} is over 32 bits")))
    }

    pub(super) fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8]> {
        let short = LogError::CutShort { what };
        let Ok(count) = usize::try_from(count) else { return Err(short) };
        let (head, rest) = self.rest.split_at_checked(count).ok_or(short)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads `count` pieces of `N` bytes each.
    pub(super) fn pieces<const N: usize>(
        &mut self,
        count: u64,
        what: &'static str,
    ) -> Result<&'a [[u8; N]]> {
        Ok(self.take(count.saturating_mul(N as u64), what)?.as_chunks().0)
    }

    /// Reads a column of `count` numbers, preceded by its length in bytes.
    pub(super) fn column(&mut self, count: u64, what: &'static str) -> Result<Column<'a>> {
        let bytes = self.number(what)?;
        Ok(Column::new(self.take(bytes, what)?, count, what))
    }

    pub(super) fn finish(self, what: &'static str) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(LogError::Trailing { what }) }
    }
}
