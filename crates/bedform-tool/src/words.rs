//! Sizes, counts and times in words.

use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use bedform::{Error, Result, size};

/// Writes a size as people read it: `1.5 KiB`.
pub(crate) fn bytes(count: u64) -> String {
    if count < 1 << 10 {
        return format!("{count} B");
    }
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let power = ((63 - count.leading_zeros()) / 10).min(4);
    let divisor = 1_u64 << (10 * power);
    // The whole part and a digit, so that no number is rounded to a float.
    let tenths = u128::from(count) * 10 / u128::from(divisor);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[power as usize - 1])
}

/// Writes a number with its noun: `1 commit`, `2 commits`.
pub(crate) fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Writes the lengths of a shape: `24 x 90`.
pub(crate) fn shape(lengths: &serde_json::Value) -> String {
    let lengths: Vec<String> =
        lengths.as_array().into_iter().flatten().map(ToString::to_string).collect();
    if lengths.is_empty() { "scalar".to_owned() } else { lengths.join(" x ") }
}

/// Reads a size: `512MiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64> {
    size::from_text(text)
}

/// Reads a time: `90`, `30min`, `1h`.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale = match text[digits.len()..].trim() {
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => f64::NAN,
    };
    let seconds = digits.trim().parse::<f64>().unwrap_or(f64::NAN) * scale;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Error::invalid(format!("{text:?} is no time: give 90, 30min or 1h")))
}

/// The time after which work is reported.
const SILENT: Duration = Duration::from_secs(2);
/// The time between two reports.
const BETWEEN: Duration = Duration::from_millis(200);

/// Reports the progress of long work on a terminal.
pub(crate) struct Progress {
    what: &'static str,
    next: Cell<Instant>,
    has_reported: Cell<bool>,
}

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        let next = Cell::new(Instant::now() + SILENT);
        Self { what, next, has_reported: Cell::new(false) }
    }

    pub(crate) fn tell(&self, done: u64, of: u64) {
        let now = Instant::now();
        if of == 0 || now < self.next.get() || !std::io::stderr().is_terminal() {
            return;
        }
        self.next.set(now + BETWEEN);
        self.has_reported.set(true);
        let percent = u128::from(done) * 100 / u128::from(of);
        let _ = write!(std::io::stderr(), "\r{}: {percent} %", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.has_reported.get() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_written_and_read_as_in_python() {
        let written = [0, 1023, 1024, 1536, 5 << 20, u64::MAX].map(bytes);
        assert_eq!(written, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "16777215.9 TiB"]);
        assert_eq!(
            (count(1, "commit"), count(2, "commit")),
            ("1 commit".into(), "2 commits".into())
        );
        for (text, seconds) in [("90", 90.0), ("1.5h", 5400.0), ("30 min", 1800.0), ("0", 0.0)] {
            assert_eq!(parse_seconds(text).unwrap(), Duration::from_secs_f64(seconds));
        }
        for text in ["", "h", "-1", "1 week", "1e400"] {
            assert!(parse_seconds(text).unwrap_err().to_string().contains("is no time"));
        }
    }
}
