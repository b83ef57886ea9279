//! Base64 in the standard alphabet, with padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
///
/// ```
/// use bedform_format::base64;
/// assert_eq!(["", "a", "ab", "abc"].map(|text| base64::encode(text.as_bytes())),
///     ["", "YQ==", "YWI=", "YWJj"]);
/// ```
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let bits =
            (0..3).fold(0, |bits, at| bits << 8 | part.get(at).copied().map_or(0, usize::from));
        for at in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * at) & 63];
            text.push(if at <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Decodes a text; `None` for another character.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut filled) = (0_u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6 | u32::from(value)) & 0xff_ffff;
        filled += 6;
        if filled >= 8 {
            filled -= 8;
            bytes.push((buffer >> filled & 0xff) as u8);
        }
    }
    Some(bytes)
}
