//! A table of the file, parsed by hand, so that an error names the setting, its value and the values
//! that it takes.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, Result};
use crate::size;

/// A number of bytes: an integer, or text such as `"10 GiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub(super) u64);

impl Size {
    /// The number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    pub(super) fn of(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::String(text) => size::from_text(text).ok().map(Self),
            value => integer(value).map(Self),
        }
    }
}

/// A table of the file.
pub(super) struct SettingsTable<'t> {
    pub(super) text: &'t str,
    /// Its name in messages, such as `[burst] `; empty for the whole file.
    pub(super) name: &'static str,
    pub(super) table: &'t DeTable<'t>,
}

impl<'t> SettingsTable<'t> {
    /// Fails at a key that is not one of `known`.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<()> {
        let is_unknown = |key: &&Spanned<_>| !known.contains(&AsRef::<str>::as_ref(key.get_ref()));
        let Some(key) = self.table.keys().find(is_unknown) else { return Ok(()) };
        let text =
            format!("{}{} is not known; there are {}", self.name, key.get_ref(), known.join(", "));
        Err(at_line(self.text, key.span().start, text))
    }

    /// The value of `key` as `read` parses it; `None` if the key is missing. `what` describes valid
    /// values in errors.
    pub(super) fn setting<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'t DeValue<'t>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some((_, value)) = self.table.iter().find(|(own, _)| own.get_ref() == key) else {
            return Ok(None);
        };
        let bad = || {
            let given = self.text[value.span()].replace('\n', " ");
            let text = format!("{}{key} is {given}; it takes {what}", self.name);
            at_line(self.text, value.span().start, text)
        };
        read(value.get_ref()).map(Some).ok_or_else(bad)
    }

    /// The table called `key`; `name` stands before its settings in messages.
    pub(super) fn section(
        &self,
        key: &str,
        name: &'static str,
    ) -> Result<Option<SettingsTable<'t>>> {
        let what = format!("a table: write [{key}] above its settings");
        let table = self.setting(key, &what, DeValue::as_table)?;
        Ok(table.map(|table| SettingsTable { text: self.text, name, table }))
    }
}

/// The values of a [`Size`], for errors.
pub(super) const SIZE: &str = "a number of bytes such as 67108864 or \"64 MiB\"";

pub(super) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let given = value.as_integer()?;
    u64::from_str_radix(given.as_str(), given.radix()).ok()
}

/// An error in the line that contains byte `start` of `text`.
pub(super) fn at_line(text: &str, start: usize, problem: impl std::fmt::Display) -> Error {
    let line = 1 + text[..start].matches('\n').count();
    Error::invalid(format!("line {line}: {problem}"))
}
