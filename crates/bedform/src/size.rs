//! Sizes in options: an integer that counts bytes, or text such as `"256 MiB"`.
//!
//! The grammar of the text is that of [`bedform_format::size`], for every door.

use serde_json::Value;

use crate::error::{Error, Result};

/// Parses a size in text into bytes.
///
/// # Errors
/// `InvalidArgument` names the text and gives an example.
///
/// ```
/// assert_eq!(bedform::size::from_text("1.5 KiB")?, 1536);
/// # Ok::<(), bedform::Error>(())
/// ```
pub fn from_text(text: &str) -> Result<u64> {
    bedform_format::size::parse(text).map_err(|error| Error::invalid(error.to_string()))
}

/// Parses the value of the option `key`, an integer or text, into bytes.
///
/// # Errors
/// `InvalidArgument` names the key and the value.
///
/// ```
/// use bedform::size::from_json;
///
/// assert_eq!(from_json("cache_bytes", &"64 KiB".into())?, from_json("cache_bytes", &65536.into())?);
/// # Ok::<(), bedform::Error>(())
/// ```
pub fn from_json(key: &str, value: &Value) -> Result<u64> {
    match value {
        Value::String(text) => {
            from_text(text).map_err(|error| Error::invalid(format!("{key}: {error}")))
        }
        _ => value.as_u64().ok_or_else(|| Error::invalid(format!("not a value of {key}: {value}"))),
    }
}

/// Formats a number of bytes for people: `1.5 KiB`.
pub(crate) fn bytes_text(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes;
    let mut unit = units[0];
    for larger in &units[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if value < 10.0 && value.fract() != 0.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_no_size_is_named_with_its_value() {
        for value in [Value::from("much"), (-1).into(), 1.5.into(), true.into()] {
            let error = from_json("cache_bytes", &value).unwrap_err().to_string();
            assert!(error.contains("cache_bytes") && error.contains(&value.to_string()), "{error}");
        }
    }
}
