//! A parser for sizes such as `"256 MiB"`, `"1.5 GB"` or `"4096"`.
//!
//! `bedform.toml`, environment variables, the command line, Python and C share this grammar:
//!
//! ```text
//! size   = number [spaces] [unit]
//! number = digits ["." digits]
//! unit   = B | KB | MB | GB | TB | KiB | MiB | GiB | TiB
//! ```
//!
//! Units are case-insensitive. KB is 1000 bytes, KiB 1024; a number without a unit is in bytes. The
//! arithmetic is exact, and a fraction of a byte is dropped.

use thiserror::Error;

/// Units, and their bytes.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The text is not a size, or is 2^64 bytes or more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a size: write a number below 2^64 and a unit, such as \"256 MiB\" or \"1.5 GB\""
)]
pub struct SizeError {
    text: String,
}

/// Parses a size into bytes.
///
/// # Errors
/// [`SizeError`] names the text and gives an example.
///
/// ```
/// use bedform_format::size::parse;
///
/// assert_eq!(parse("1.5 GiB")?, 1_610_612_736);
/// assert_eq!(parse("10kB")?, 10_000);
/// assert!(parse("ten").is_err());
/// # Ok::<(), bedform_format::size::SizeError>(())
/// ```
pub fn parse(text: &str) -> Result<u64, SizeError> {
    bytes_of(text.trim()).ok_or_else(|| SizeError { text: text.to_owned() })
}

fn bytes_of(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, unit_bytes) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    // Empty and signed numbers were refused above, so a failure means that the number is too large.
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(unit_bytes)?.checked_add(bytes_of_fraction(fraction, unit_bytes))
}

/// Returns the whole bytes of the digits after the decimal point. Each step, from the last digit to
/// the first, divides by ten and drops the remainder. This is exact: a remainder is less than one
/// unit of the next step.
fn bytes_of_fraction(digits: &str, unit_bytes: u64) -> u64 {
    let digits = digits.bytes().rev().map(|digit| u64::from(digit - b'0'));
    digits.fold(0, |bytes, digit| (digit * unit_bytes + bytes) / 10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_numbers_with_decimal_or_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("007", 7),
            ("7 B", 7),
            ("7.9 B", 7),
            ("1.5", 1),
            (" 2KiB ", 2048),
            ("2\tkib", 2048),
            ("3 mib", 3 << 20),
            ("3 MB", 3_000_000),
            ("1.5 GiB", 3 << 29),
            ("0.1 TiB", 109_951_162_777),
            ("4.35 KB", 4350),
            ("1TiB", 1 << 40),
            ("9007199254740993", (1 << 53) + 1),
            ("18446744073709551615", u64::MAX),
            ("16777215.99999999999999999999999999999999999999999999 TiB", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_what_was_given_and_an_example() {
        for text in [
            "",
            " ",
            "GiB",
            ".5 GiB",
            "5. GiB",
            "1.2.3 GiB",
            "-1",
            "+1",
            "1e3",
            "1,5 GiB",
            "1_000",
            "1 2",
            "1 G",
            "1 Gi",
            "1 PiB",
            "1 GiB/s",
            "\u{663} B",
            "nan",
            "18446744073709551616",
            "16777216 TiB",
            "99999999999999999999999 B",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?}")), "{error}");
            assert!(error.contains("256 MiB") && !error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_size_is_its_number_times_its_unit_rounded_down(
            whole in prop_oneof![0_u64..5000, any::<u64>()],
            fraction in "[0-9]{0,12}",
            unit in 0..UNITS.len(),
            space in " {0,2}",
            is_lower in any::<bool>(),
        ) {
            let (name, unit_bytes) = UNITS[unit];
            let point = if fraction.is_empty() { "" } else { "." };
            let name = if is_lower { name.to_lowercase() } else { name.to_owned() };
            let text = format!("{whole}{point}{fraction}{space}{name}");

            // Computes the same with one fraction of integers.
            let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap());
            let numerator = fraction.parse::<u128>().unwrap_or(0) * u128::from(unit_bytes);
            let exact = u128::from(whole) * u128::from(unit_bytes) + numerator / scale;
            prop_assert_eq!(parse(&text).ok(), u64::try_from(exact).ok(), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
