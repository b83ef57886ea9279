//! Heads of requests and answers, read as far as needed to find their ends.

use std::io::{Error, ErrorKind, Result};

const END: &[u8] = b"\r\n\r\n";

/// The first line and the fields, with the empty line after them.
pub(crate) struct Head(pub(crate) Vec<u8>);

impl Head {
    /// Removes a complete head from the front of `bytes`; `None` while a part is missing.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let end = bytes.windows(END.len()).position(|window| window == END)? + END.len();
        let rest = bytes.split_off(end);
        Some(Self(std::mem::replace(bytes, rest)))
    }

    /// Returns the value of a field, in small letters.
    fn field(&self, wanted: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.0);
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.next().map(|(_, value)| value.trim().to_ascii_lowercase())
    }

    fn length(&self) -> Result<Option<u64>> {
        let number = |text: String| text.parse().map_err(|_| invalid("a length is no number"));
        self.field("content-length").map(number).transpose()
    }

    /// Returns the length in bytes of a request's body.
    pub(crate) fn upload_length(&self) -> Result<u64> {
        match self.field("transfer-encoding") {
            Some(_) => Err(invalid("the client does not say how long its request is")),
            None => Ok(self.length()?.unwrap_or(0)),
        }
    }

    /// Returns the length in bytes of the body of an answer to `request`.
    pub(crate) fn answer_length(&self, request: &Self) -> Result<u64> {
        if request.0.starts_with(b"HEAD ") || ["204", "304"].contains(&self.status().as_str()) {
            return Ok(0);
        }
        self.length()?.ok_or_else(|| invalid("the server does not say how long its answer is"))
    }

    /// True if the client waits for `100 Continue` before it sends the body.
    pub(crate) fn awaits_leave(&self) -> bool {
        self.field("expect").is_some_and(|value| value == "100-continue")
    }

    /// True if another answer follows this one.
    pub(crate) fn is_interim(&self) -> bool {
        self.status() == "100"
    }

    fn status(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

pub(crate) fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}
