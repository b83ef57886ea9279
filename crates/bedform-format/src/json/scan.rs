//! The pass before parsing: checks the depth, and marks numbers that JSON or 64 bits cannot
//! represent.

use super::surrogates::marked;
use super::{JsonError, NUMBER, is_marked_word};

/// The class of a byte outside strings.
#[derive(Clone, Copy, PartialEq)]
enum ByteClass {
    Other,
    Quote,
    Open,
    Close,
    /// The first byte of a number, or of a word for one.
    Word,
}

const CLASSES: [ByteClass; 256] = {
    let mut classes = [ByteClass::Other; 256];
    classes[b'"' as usize] = ByteClass::Quote;
    classes[b'[' as usize] = ByteClass::Open;
    classes[b'{' as usize] = ByteClass::Open;
    classes[b']' as usize] = ByteClass::Close;
    classes[b'}' as usize] = ByteClass::Close;
    classes[b'N' as usize] = ByteClass::Word;
    classes[b'I' as usize] = ByteClass::Word;
    classes[b'-' as usize] = ByteClass::Word;
    let mut digit = b'0';
    while digit <= b'9' {
        classes[digit as usize] = ByteClass::Word;
        digit += 1;
    }
    classes
};

/// Checks the depth. Returns the document with strings for unrepresentable numbers and marks for
/// unpaired surrogates; `None` if it has neither.
pub(super) fn scan(bytes: &[u8], depth_max: usize) -> Result<Option<Vec<u8>>, JsonError> {
    match marked(bytes) {
        None => scan_numbers(bytes, depth_max),
        Some(marked) => Ok(Some(scan_numbers(&marked, depth_max)?.unwrap_or(marked))),
    }
}

fn scan_numbers(bytes: &[u8], depth_max: usize) -> Result<Option<Vec<u8>>, JsonError> {
    let mut depth = 0_usize;
    let mut output: Option<Vec<u8>> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match CLASSES[usize::from(byte)] {
            ByteClass::Other => {}
            ByteClass::Quote => at = string_end(bytes, at),
            ByteClass::Open => {
                depth += 1;
                if depth > depth_max {
                    return Err(JsonError::TooDeep { limit: depth_max });
                }
            }
            ByteClass::Close => depth = depth.saturating_sub(1),
            ByteClass::Word => {
                let start = at - 1;
                let word = word_at(&bytes[start..]);
                at = start + word.len();
                // Keys are strings and stay unchanged.
                if !is_marked_word(word) || bytes[at..].trim_ascii_start().starts_with(b":") {
                    continue;
                }
                let output = output.get_or_insert_with(|| Vec::with_capacity(bytes.len() + 64));
                output.extend_from_slice(&bytes[copied..start]);
                output.push(b'"');
                output.extend_from_slice(NUMBER.encode_utf8(&mut [0; 4]).as_bytes());
                output.extend_from_slice(word);
                output.push(b'"');
                copied = at;
            }
        }
    }
    Ok(output.map(|mut output| {
        output.extend_from_slice(&bytes[copied..]);
        output
    }))
}

/// Returns the number or word that starts here, or else its first byte.
fn word_at(rest: &[u8]) -> &[u8] {
    let word: &[u8] = match rest.first() {
        Some(b'N') => b"NaN",
        Some(b'I') => b"Infinity",
        Some(b'-') => b"-Infinity",
        _ => return number_at(rest),
    };
    if rest.starts_with(word) { word } else { number_at(rest) }
}

/// Returns the leading bytes that may belong to a number; at least one.
fn number_at(rest: &[u8]) -> &[u8] {
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let length = rest.iter().position(|byte| !is_of_number(byte)).unwrap_or(rest.len());
    &rest[..length.max(1)]
}

/// Returns the offset after the closing quote of the string whose first byte is at `at`.
pub(super) fn string_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        // Scans eight bytes at a time; most have neither quotes nor escapes.
        while let Some(word) = bytes.get(at..at + 8).and_then(|word| word.try_into().ok()) {
            let word = u64::from_le_bytes(word);
            let found = bytes_equal(word, b'"') | bytes_equal(word, b'\\');
            at += found.trailing_zeros() as usize / 8;
            if found != 0 {
                break;
            }
        }
        match bytes.get(at) {
            None => return bytes.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// Returns a word whose lowest set bit is the highest bit of the first byte equal to `byte`; 0 if
/// there is none. Higher bits may be wrong.
fn bytes_equal(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    let other = word ^ (ONES * u64::from(byte));
    other.wrapping_sub(ONES) & !other & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_64_bits_do_not_hold_are_told_from_other_numbers() {
        for (number, is_marked) in [
            ("18446744073709551615", false),
            ("18446744073709551616", true),
            ("-9223372036854775808", false),
            ("-9223372036854775809", true),
            ("1844674407370955161.6", false),
            ("18446744073709551616e0", false),
            ("018446744073709551616", false),
            ("--18446744073709551616", false),
            ("1", false),
        ] {
            for text in [number.to_owned(), format!("[1,{number} ]"), format!("{{\"a\":{number}}}")]
            {
                let marked = text.replace(number, &format!("\"{NUMBER}{number}\""));
                let scanned = scan(text.as_bytes(), 9).unwrap();
                assert_eq!(scanned, is_marked.then(|| marked.into_bytes()), "{text}");
            }
            for text in [format!("\"{number}\""), format!("{{{number} : 1}}")] {
                assert_eq!(scan(text.as_bytes(), 9).unwrap(), None);
            }
        }
    }

    #[test]
    fn strings_end_at_their_quote_wherever_it_is() {
        let parts = ["", "x", "\\\"", "\\\\", "\u{e9}", "12345678", "\u{7f}\u{80}"];
        for first in parts {
            for second in parts {
                for third in parts {
                    let text = format!("{first}{second}{third}{first}");
                    let whole = format!("{text}\", \"[");
                    assert_eq!(string_end(whole.as_bytes(), 0), text.len() + 1, "{whole}");
                    assert_eq!(string_end(text.as_bytes(), 0), text.len(), "{text}");
                }
            }
        }
    }
}
