//! Heads of requests and answers: as many fields as it takes to know where they end.

use std::io::{Error, ErrorKind, Result};

const END: &[u8] = b"\r\n\r\n";

/// The first line and the fields, with the empty line behind them.
pub(crate) struct Head(pub(crate) Vec<u8>);

impl Head {
    /// Takes the head that `bytes` begin with, once all of it is there.
    pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let end = bytes.windows(END.len()).position(|window| window == END)? + END.len();
        let rest = bytes.split_off(end);
        Some(Self(std::mem::replace(bytes, rest)))
    }

    /// A field, named in small letters.
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

    /// The bytes that come with a request.
    pub(crate) fn upload_length(&self) -> Result<u64> {
        match self.field("transfer-encoding") {
            Some(_) => Err(invalid("the client does not say how long its request is")),
            None => Ok(self.length()?.unwrap_or(0)),
        }
    }

    /// The bytes that come with an answer to a request.
    pub(crate) fn answer_length(&self, request: &Self) -> Result<u64> {
        if request.0.starts_with(b"HEAD ") || ["204", "304"].contains(&self.status().as_str()) {
            return Ok(0);
        }
        self.length()?.ok_or_else(|| invalid("the server does not say how long its answer is"))
    }

    /// Whether a client wants to be told to send what it has.
    pub(crate) fn awaits_leave(&self) -> bool {
        self.field("expect").is_some_and(|value| value == "100-continue")
    }

    /// Whether another answer follows this one.
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
