//! Values in messages, as the user typed them.

pub(super) use crate::publication::quoted;

/// Formats lengths as `50 x 100`.
pub(super) fn count_phrase(lengths: &[u64]) -> String {
    let texts: Vec<String> = lengths.iter().map(u64::to_string).collect();
    texts.join(" x ")
}

/// Formats a number of bytes with a binary unit.
pub(super) fn byte_phrase(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_for_people() {
        assert_eq!((quoted("t"), quoted("it's")), ("'t'".to_owned(), "\"it's\"".to_owned()));
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!(
            [0, 1023, 1536, 3 << 30].map(byte_phrase),
            ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
        );
    }
}
