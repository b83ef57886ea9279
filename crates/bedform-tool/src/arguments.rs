//! Options and their values.

use std::path::Path;

use bedform::{Error, OpenOptions, Result, Store};

/// The arguments of a command, after its name.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    positional: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    /// Parses arguments; `flags` are the options without a value, `valued` those with one.
    pub(crate) fn parse(given: &[String], flags: &[&str], valued: &[&str]) -> Result<Self> {
        let mut found = Self::default();
        let mut rest = given.iter();
        while let Some(one) = rest.next() {
            if !one.starts_with("--") {
                found.positional.push(one.clone());
                continue;
            }
            let (name, value) = match one.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (one.as_str(), None),
            };
            let value = match value {
                None if flags.contains(&name) => String::new(),
                value if valued.contains(&name) => value
                    .or_else(|| rest.next().cloned())
                    .ok_or_else(|| Error::invalid(format!("{name} needs a value")))?,
                _ => return Err(unknown(one, flags, valued)),
            };
            found.options.push((name.to_owned(), value));
        }
        Ok(found)
    }

    /// Returns the path that every command has, and up to `more` further arguments.
    pub(crate) fn path(&self, more: usize) -> Result<(&str, &[String])> {
        match self.positional.split_first() {
            None => Err(Error::invalid("the path of the store is missing")),
            Some((path, rest)) if rest.len() <= more => Ok((path, rest)),
            Some((_, rest)) => {
                Err(Error::invalid(format!("{:?} is one argument too many", rest[more])))
            }
        }
    }

    /// True if the option was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(known, _)| known == name)
    }

    /// Returns the last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last().copied()
    }

    /// Returns all values of an option.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.options.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

fn unknown(given: &str, flags: &[&str], valued: &[&str]) -> Error {
    let known: Vec<_> = flags.iter().chain(valued).copied().collect();
    Error::invalid(format!("there is no option {given:?}; there are {}", known.join(", ")))
}

/// Opens the store or file at a path.
pub(crate) fn open(path: &str, writable: bool) -> Result<Store> {
    let mut options = OpenOptions::default();
    options.writable = writable;
    Store::open_path(Path::new(path), options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[&str]) -> Result<Arguments> {
        let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
        Arguments::parse(&given, &["--json"], &["--array", "--memory"])
    }

    #[test]
    fn options_may_stand_anywhere_and_have_values_in_both_forms() {
        let found =
            parsed(&["--memory=1GiB", "s.zarr", "--array", "t", "--array=u", "--json"]).unwrap();
        assert_eq!(found.path(0).unwrap().0, "s.zarr");
        assert_eq!(found.values("--array"), ["t", "u"]);
        assert_eq!((found.value("--memory"), found.value("--grace")), (Some("1GiB"), None));
        assert!(found.has("--json") && !found.has("--burst"));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (given, says) in [
            (
                &["s", "--arrays", "t"][..],
                "no option \"--arrays\"; there are --json, --array, --memory",
            ),
            (&["s", "--json=1"], "no option \"--json=1\""),
            (&["s", "--memory"], "--memory needs a value"),
        ] {
            let text = parsed(given).unwrap_err().to_string();
            assert!(text.contains(says), "{text}");
        }
        let text = parsed(&["s", "t"]).unwrap().path(0).unwrap_err().to_string();
        assert!(text.contains("\"t\" is one argument too many"), "{text}");
        assert!(parsed(&[]).unwrap().path(0).is_err());
    }
}
