//! Validated names of objects inside a store.

use std::fmt;

/// Largest length of one segment in bytes; common file systems and object stores accept it.
pub const SEGMENT_BYTES_MAX: usize = 255;
/// Largest length of a path in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// The path of an object relative to its store: segments joined by `/`.
///
/// A value of this type
///
/// - is empty (the store's root) or has segments of 1 to 255 bytes, 1,024 bytes in all;
/// - has no segment `.` or `..`, no leading or trailing `/`, no empty segment;
/// - has no NUL, control character or backslash.
///
/// ```
/// use bedform_format::ObjectPath;
/// assert!(ObjectPath::parse("temperature/c/0/0").is_ok());
/// assert!(ObjectPath::parse("../secret").is_err());
/// assert!(ObjectPath::parse("/etc/passwd").is_err());
/// assert!(ObjectPath::parse("a//b").is_err());
/// assert!(ObjectPath::parse("a\\b").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ObjectPath(String);

impl fmt::Debug for ObjectPath {
    /// The path in quotes, as messages show it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

/// The reason why a string is not an [`ObjectPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{reason} in the name {name:?}")]
pub struct PathError {
    /// The broken rule, as a short phrase.
    pub reason: &'static str,
    /// The name, shortened to 80 characters.
    pub name: String,
}

impl ObjectPath {
    /// Returns the path of the store's root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses and checks a path.
    ///
    /// # Errors
    /// [`PathError`] names the broken rule.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let refuse =
            |reason| Err(PathError { reason, name: text.chars().take(80).collect::<String>() });
        if text.is_empty() {
            return Ok(Self::root());
        }
        if text.len() > PATH_BYTES_MAX {
            return refuse("more than 1,024 bytes");
        }
        if text.chars().any(char::is_control) {
            return refuse("a control character");
        }
        if text.contains('\\') {
            return refuse("a backslash");
        }
        for segment in text.split('/') {
            match segment {
                "" => return refuse("an empty segment"),
                "." | ".." => return refuse("a segment '.' or '..'"),
                long if long.len() > SEGMENT_BYTES_MAX => {
                    return refuse("a segment of more than 255 bytes");
                }
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// Appends `name`, which may have several segments.
    ///
    /// # Errors
    /// As [`ObjectPath::parse`].
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        if self.is_root() { Self::parse(name) } else { Self::parse(&format!("{self}/{name}")) }
    }

    /// Returns true for the store's root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path as text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path without its last segment; the root is its own parent.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.rsplit_once('/').map_or("", |(head, _)| head).to_owned())
    }

    /// Returns the last segment; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.as_str(), |(_, tail)| tail)
    }

    /// Returns true if this path is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self == other
            || (self.0.starts_with(&other.0) && self.0.as_bytes().get(other.0.len()) == Some(&b'/'))
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_store_are_refused() {
        for name in ["..", "a/../b", "/a", "a/", "a//b", ".", "a/./b", "a\0b", "a\nb", "a\\b"] {
            assert!(ObjectPath::parse(name).is_err(), "{name:?}");
        }
        assert!(ObjectPath::parse(&"a".repeat(256)).is_err());
        assert!(ObjectPath::parse(&"a/".repeat(600)).is_err());
    }

    #[test]
    fn ordinary_names_are_taken_whatever_their_script() {
        for name in ["zarr.json", "c/0/1", "temp\u{e9}rature", "a b", "..a", "..."] {
            assert_eq!(ObjectPath::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn parent_and_name_split_at_the_last_slash() {
        let path = ObjectPath::parse("a/b/c").unwrap();
        assert_eq!((path.parent().as_str(), path.name()), ("a/b", "c"));
        assert!(path.is_within(&ObjectPath::parse("a/b").unwrap()));
        assert!(!path.is_within(&ObjectPath::parse("a/bb").unwrap()));
        assert!(!ObjectPath::parse("a/bc").unwrap().is_within(&ObjectPath::parse("a/b").unwrap()));
        assert!(ObjectPath::root().parent().is_root());
    }
}
