//! A cursor over text in the form that AMReX writes: words, numbers, and tuples in parentheses.

use memchr::{memchr, memchr_iter};

use super::error::{AmrError, Result};
use crate::Limits;
use crate::shown::printable;

/// The largest number of axes that AMReX has.
pub(super) const AXES_MAX: usize = 3;
/// The largest number of characters of the text in a message.
const EXCERPT_CHARS: usize = 40;

/// Integers in parentheses, one per axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct AxisIntegers {
    values: [i64; AXES_MAX],
    len: usize,
}

impl AxisIntegers {
    pub(super) fn as_slice(&self) -> &[i64] {
        self.values.get(..self.len).unwrap_or_default()
    }
}

/// A half-open box, as the text gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextBox {
    pub(super) start: AxisIntegers,
    pub(super) stop: AxisIntegers,
}

/// A reader of the remaining text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextCursor<'a> {
    file: &'static str,
    /// The whole text, for line numbers.
    text: &'a [u8],
    rest: &'a [u8],
    /// Number of bytes of the text after `rest`.
    after: usize,
}

impl<'a> TextCursor<'a> {
    /// Makes a cursor over a text of at most `index_bytes_max` bytes.
    pub(super) fn new(file: &'static str, text: &'a [u8], limits: &Limits) -> Result<Self> {
        let cursor = Self::unlimited(file, text);
        let limit = limits.index_bytes_max;
        if text.len() as u64 > limit {
            return Err(cursor.limit(format!("{} bytes, at most {limit}", text.len())));
        }
        Ok(cursor)
    }

    /// Makes a cursor over a text that the caller has bounded.
    pub(super) fn unlimited(file: &'static str, text: &'a [u8]) -> Self {
        Self { file, text, rest: text, after: 0 }
    }

    /// Returns the offset of the next byte in the text.
    pub(super) fn at(&self) -> usize {
        self.text.len().saturating_sub(self.after).saturating_sub(self.rest.len())
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns an error at the next byte that is not white space.
    pub(super) fn corrupt(&self, reason: impl Into<String>) -> AmrError {
        AmrError::Corrupt { file: self.file, line: self.line_number(), reason: reason.into() }
    }

    /// Returns an error for a part of the format that is not read.
    pub(super) fn unsupported(&self, reason: impl Into<String>) -> AmrError {
        AmrError::Unsupported { file: self.file, line: self.line_number(), reason: reason.into() }
    }

    /// Returns an error for a count over a limit.
    pub(super) fn limit(&self, reason: impl Into<String>) -> AmrError {
        AmrError::Limit { file: self.file, line: self.line_number(), reason: reason.into() }
    }

    /// Returns an error that quotes the next line.
    pub(super) fn expected(&self, what: &str) -> AmrError {
        let cursor = self.at_next();
        let line = match memchr(b'\n', cursor.rest) {
            Some(end) => cursor.rest.get(..end).unwrap_or_default(),
            None => cursor.rest,
        };
        if line.is_empty() {
            let end = if cursor.after > 0 { "line" } else { "text" };
            return cursor.corrupt(format!("{what} expected, but the {end} ends"));
        }
        cursor.corrupt(format!("{what} expected, not {}", excerpt(line)))
    }

    /// Returns the cursor at the next byte that is not white space.
    fn at_next(mut self) -> Self {
        self.skip_space();
        self
    }

    fn line_number(&self) -> u64 {
        let before = self.text.get(..self.at_next().at()).unwrap_or_default();
        1 + memchr_iter(b'\n', before).count() as u64
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    pub(super) fn skip_space(&mut self) {
        while let [byte, rest @ ..] = self.rest
            && byte.is_ascii_whitespace()
        {
            self.rest = rest;
        }
    }

    /// Splits off the line, without its end.
    pub(super) fn line(&mut self, what: &str) -> Result<Self> {
        let split = memchr(b'\n', self.rest).and_then(|end| self.rest.split_at_checked(end));
        let Some((line, [_, rest @ ..])) = split else {
            return Err(self.corrupt(format!("the text ends in the line of {what}")));
        };
        self.rest = rest;
        Ok(Self { rest: line, after: self.after.saturating_add(rest.len() + 1), ..*self })
    }

    /// Passes the end of the line; fails if more text is before it.
    pub(super) fn end_line(&mut self, what: &str) -> Result {
        let line = self.line(what)?;
        line.finish(what)
    }

    /// Checks that nothing but white space is left.
    pub(super) fn finish(&self, what: &str) -> Result {
        if self.at_next().rest.is_empty() {
            return Ok(());
        }
        Err(self.expected(&format!("nothing after {what}")))
    }

    /// Returns the number of words that are left.
    pub(super) fn words_left(mut self) -> usize {
        let mut count = 0;
        while !self.next_word().is_empty() {
            count += 1;
        }
        count
    }

    /// Takes the next word: the bytes before white space. Empty at the end of the text.
    fn next_word(&mut self) -> &'a [u8] {
        self.skip_space();
        self.take_until(u8::is_ascii_whitespace)
    }

    fn take_until(&mut self, ends: impl Fn(&u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().position(ends).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or_default();
        self.rest = rest;
        taken
    }

    /// Takes the next word, which there must be.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a [u8]> {
        let before = *self;
        let word = self.next_word();
        if word.is_empty() { Err(before.expected(what)) } else { Ok(word) }
    }

    /// Returns the next byte that is not white space, and does not take it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.rest.first().copied()
    }

    /// Takes `byte` after any white space.
    pub(super) fn byte(&mut self, byte: u8) -> Result {
        self.skip_space();
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                Ok(())
            }
            _ => Err(self.expected(&format!("'{}'", char::from(byte)))),
        }
    }

    /// Takes an integer in decimal digits, perhaps after a minus.
    pub(super) fn integer(&mut self, what: &str) -> Result<i64> {
        self.skip_space();
        let (negative, mut rest) = match self.rest {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let digits = rest.len();
        // Below zero, where there is one integer more.
        let mut value = Some(0_i64);
        while let [digit @ b'0'..=b'9', after @ ..] = rest {
            let digit = i64::from(digit - b'0');
            value = value.and_then(|value| value.checked_mul(10)?.checked_sub(digit));
            rest = after;
        }
        if rest.len() == digits || rest.first().is_some_and(|byte| !ends_number(byte)) {
            return Err(self.expected(what));
        }
        let value = if negative { value } else { value.and_then(i64::checked_neg) };
        let Some(value) = value else {
            return Err(self.expected(&format!("{what} of at most 63 bits")));
        };
        self.rest = rest;
        Ok(value)
    }

    /// Takes an integer that is not negative.
    pub(super) fn count(&mut self, what: &str) -> Result<u64> {
        let before = *self;
        u64::try_from(self.integer(what)?)
            .map_err(|_| before.expected(&format!("{what}, which is not negative,")))
    }

    /// Takes a real number, which may be infinite or not a number.
    pub(super) fn real(&mut self, what: &str) -> Result<f64> {
        let before = *self;
        self.skip_space();
        let word = self.take_until(ends_number);
        parse_real(word).ok_or_else(|| before.expected(what))
    }

    /// Takes a finite number.
    pub(super) fn finite(&mut self, what: &str) -> Result<f64> {
        let before = *self;
        let value = self.real(what)?;
        if value.is_finite() {
            return Ok(value);
        }
        Err(before.expected(&format!("{what}, which is finite,")))
    }

    /// Takes one finite number per axis.
    pub(super) fn finite_axes(&mut self, rank: usize, what: &str) -> Result<Vec<f64>> {
        (0..rank).map(|_| self.finite(what)).collect()
    }

    /// Takes integers in parentheses, separated by commas: one to three.
    pub(super) fn axis_integers(&mut self, what: &str) -> Result<AxisIntegers> {
        let before = *self;
        self.byte(b'(')?;
        let mut found = AxisIntegers { values: [0; AXES_MAX], len: 0 };
        for place in &mut found.values {
            *place = self.integer(what)?;
            found.len += 1;
            match self.peek() {
                Some(b',') if found.len < AXES_MAX => self.byte(b',')?,
                _ => break,
            }
        }
        if self.peek() == Some(b',') {
            return Err(before.expected(&format!("{what} with at most {AXES_MAX} axes")));
        }
        self.byte(b')')?;
        Ok(found)
    }

    /// Takes a box `((lowest) (highest) (centring))`, whose bounds are inclusive; the centring may
    /// be absent.
    pub(super) fn cells(&mut self) -> Result<TextBox> {
        const WHAT: &str = "the bounds of a box";
        let before = *self;
        self.byte(b'(')?;
        let start = self.axis_integers(WHAT)?;
        let mut stop = self.axis_integers(WHAT)?;
        let mut axes_agree = start.len == stop.len;
        if self.peek() == Some(b'(') {
            let centring = self.axis_integers("the centring of a box")?;
            axes_agree &= centring.len == start.len;
            if centring.as_slice().iter().any(|axis| *axis != 0) {
                return Err(before.centring(centring.as_slice()));
            }
        }
        self.byte(b')')?;
        if !axes_agree {
            return Err(before.expected("a box with bounds of one rank"));
        }
        // AMReX has integers of 32 bits.
        let is_sensible = |bounds: AxisIntegers| {
            bounds.as_slice().iter().all(|bound| i32::try_from(*bound).is_ok())
        };
        if !is_sensible(start) || !is_sensible(stop) {
            return Err(before.expected("a box with bounds of 32 bits"));
        }
        stop.values = stop.values.map(|highest| highest.saturating_add(1));
        Ok(TextBox { start, stop })
    }

    fn centring(&self, centring: &[i64]) -> AmrError {
        if centring.iter().any(|axis| !matches!(axis, 0 | 1)) {
            return self.expected("a box with centrings of 0 or 1");
        }
        let axes: Vec<_> = centring.iter().map(i64::to_string).collect();
        self.at_next().unsupported(format!(
            "boxes with the centring ({}); only cell-centred data are read",
            axes.join(",")
        ))
    }
}

/// Parses a number as the C++ library writes it; `None` for other texts.
pub(super) fn parse_real(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Returns a piece of the text for a message: in quotes, without hidden characters.
pub(super) fn excerpt(text: &[u8]) -> String {
    // A character takes at most 4 bytes.
    let start = text.get(..4 * EXCERPT_CHARS + 4).unwrap_or(text);
    let start = String::from_utf8_lossy(start);
    format!("\"{}\"", printable(start.trim_end(), EXCERPT_CHARS))
}

fn ends_number(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b',' | b'(' | b')')
}
