//! Unpaired UTF-16 surrogates: Python writes them as escapes, but UTF-8 cannot represent them.

use std::iter::Peekable;
use std::str::Chars;

use memchr::memchr;

/// First of four characters that stand for an unpaired surrogate: a mark from the private use area,
/// then the last three hexadecimal digits. No user's text contains the mark.
pub(super) const MARK: char = '\u{e002}';

/// Returns the code of the escape at the start of `bytes`, if it is a surrogate.
fn half(bytes: &[u8]) -> Option<u16> {
    let [b'\\', b'u', digits @ ..] = bytes else { return None };
    let digits = std::str::from_utf8(digits.first_chunk::<4>()?).ok()?;
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = u16::from_str_radix(digits, 16).ok().filter(|_| is_plain)?;
    (0xd800..0xe000).contains(&code).then_some(code)
}

/// Replaces escapes of unpaired surrogates by marks; `None` if the document has none.
pub(super) fn marked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut output: Option<Vec<u8>> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(next) = memchr(b'\\', bytes.get(at..)?) {
        at += next;
        let rest = &bytes[at..];
        let Some(code) = half(rest) else {
            at = (at + 2).min(bytes.len());
            continue;
        };
        let is_high = |code: u16| code < 0xdc00;
        if is_high(code) && rest.get(6..).and_then(half).is_some_and(|low| !is_high(low)) {
            at += 12;
            continue;
        }
        let output = output.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
        output.extend_from_slice(&bytes[copied..at]);
        output.extend_from_slice(format!("{MARK}{:03x}", code & 0xfff).as_bytes());
        at += 6;
        copied = at;
    }
    output.map(|mut output| {
        output.extend_from_slice(&bytes[copied..]);
        output
    })
}

/// Reverses [`marked`].
pub(super) fn unmarked(bytes: Vec<u8>) -> Vec<u8> {
    let mut mark = [0; 4];
    let mark = MARK.encode_utf8(&mut mark).as_bytes();
    if !bytes.windows(mark.len()).any(|window| window == mark) {
        return bytes;
    }
    let mut output = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let Some(first) = rest.first() {
        let digits = rest.strip_prefix(mark).and_then(|rest| rest.first_chunk::<3>());
        let length = match digits.filter(|digits| is_half(digits)) {
            Some(digits) => {
                output.extend_from_slice(b"\\ud");
                output.extend_from_slice(digits);
                mark.len() + digits.len()
            }
            None => {
                output.push(*first);
                1
            }
        };
        rest = &rest[length..];
    }
    output
}

/// Returns true for the last three digits of a surrogate, as [`marked`] writes them.
fn is_half(digits: &[u8; 3]) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    digits.iter().all(is_digit) && !matches!(digits[0], b'0'..=b'7')
}

/// Returns the codes of the characters of a parsed text, including unpaired surrogates.
///
/// ```
/// use bedform_format::{Limits, json};
/// let document = json::parse(br#"["a\ud800"]"#, &Limits::default())?;
/// let codes: Vec<u32> = json::codes_of(document[0].as_str().unwrap()).collect();
/// assert_eq!(codes, [97, 0xd800]);
/// # Ok::<(), json::JsonError>(())
/// ```
pub fn codes_of(text: &str) -> impl Iterator<Item = u32> + '_ {
    Codes(text.chars().peekable())
}

struct Codes<'a>(Peekable<Chars<'a>>);

impl Iterator for Codes<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let character = self.0.next()?;
        if character != MARK {
            return Some(character.into());
        }
        let mut ahead = self.0.clone();
        let digits =
            [(); 3].map(|()| ahead.next().and_then(|next| u8::try_from(next).ok()).unwrap_or(0));
        if !is_half(&digits) {
            return Some(character.into());
        }
        self.0 = ahead;
        let code = digits
            .iter()
            .fold(0xd, |code, digit| code << 4 | char::from(*digit).to_digit(16).unwrap_or(0));
        Some(code)
    }
}

/// Reverses [`codes_of`]; a code that is neither a character nor a surrogate becomes the
/// replacement character.
pub fn text_of_codes(codes: impl Iterator<Item = u32>) -> String {
    let mut text = String::new();
    for code in codes {
        match char::from_u32(code) {
            Some(character) => text.push(character),
            None if (0xd800..0xe000).contains(&code) => {
                text.push_str(&format!("{MARK}{:03x}", code & 0xfff));
            }
            None => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
    text
}

/// Returns bytes as text; bytes that are not UTF-8 become unpaired surrogates, as with Python's
/// `surrogateescape`.
///
/// ```
/// use bedform_format::json;
/// let text = json::text_of_bytes(b"caf\xe9");
/// assert_eq!(json::codes_of(&text).last(), Some(0xdce9));
/// assert_eq!(json::text_of_bytes("caf\u{e9}".as_bytes()), "caf\u{e9}");
/// ```
pub fn text_of_bytes(bytes: &[u8]) -> String {
    let chunks = bytes.utf8_chunks();
    text_of_codes(chunks.flat_map(|chunk| {
        let valid = chunk.valid().chars().map(u32::from);
        valid.chain(chunk.invalid().iter().map(|byte| 0xdc00 | u32::from(*byte)))
    }))
}

#[cfg(test)]
mod tests {
    use super::super::{parse, write};
    use super::*;
    use crate::Limits;

    #[test]
    fn halves_that_stand_alone_are_written_as_they_were_read_and_pairs_are_characters() {
        for (text, marks) in [
            (r#"{"a": "\ud800"}"#, 1),
            (r#"{"\udfff": "\ud800\ud83d\ude00\udc00"}"#, 3),
            (r#"["\\ud800", "\ud83d\ude00", "x\uD8ff"]"#, 1),
            (r#"["\ud800\ud800\udc00"]"#, 1),
        ] {
            let value = parse(text.as_bytes(), &Limits::default()).unwrap();
            let written = write(&value);
            assert_eq!(value.to_string().matches(MARK).count(), marks, "{text}");
            assert!(!String::from_utf8(written.clone()).unwrap().contains(MARK));
            assert_eq!(parse(&written, &Limits::default()).unwrap(), value);
        }
        assert_eq!(marked(br#"{"a": "\u00e9\n"}"#), None);
        assert_eq!(marked(br#""\ud8"#), None);
    }

    #[test]
    fn codes_are_a_text_again() {
        let codes = [0x61, 0xd800, 0x1f600, 0xdfff, 0x38];
        let text = text_of_codes(codes.into_iter());
        assert_eq!(codes_of(&text).collect::<Vec<_>>(), codes);
        assert_eq!(codes_of("\u{e002}0ff").count(), 4);
    }
}
