//! The table of references, sorted by directory and name.

use std::collections::HashMap;
use std::sync::Arc;

use super::{ReferencesError, TARGET_BYTES_MAX, shown};
use crate::{Limits, ObjectPath};

type Result<T> = std::result::Result<T, ReferencesError>;

/// In place of a target: the bytes are inline.
const INLINE: u32 = u32::MAX;
/// In place of a length: the range extends to the end of the file.
const TO_END: u64 = u64::MAX;
/// Bytes of memory for all targets, in addition to four times the length of the references.
const TARGETS_BYTES_FREE: u64 = 64 << 20;

/// The location of a key's bytes; `T` identifies the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference<'a, T = u32> {
    /// The bytes.
    Inline(&'a [u8]),
    /// A byte range of a file.
    Range {
        /// The file: an index for [`References::target`], or its path or URL when
        /// [adding](ReferencesBuilder::add).
        target: T,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes; `None` extends to the end of the file.
        length: Option<u64>,
    },
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReferencesEntry {
    /// Last segment of the entry's path.
    pub name: String,
    /// True if keys lie below the path.
    pub is_directory: bool,
}

/// A set of references.
///
/// ```
/// use bedform_format::references::{Reference, parse};
/// use bedform_format::{Limits, ObjectPath};
///
/// let set = parse(br#"{".zgroup": "{}", "t/0": ["a.nc", 100, 20]}"#, &Limits::default())?;
/// let found = set.find(&ObjectPath::parse("t/0").unwrap()).unwrap();
/// assert_eq!(found, Reference::Range { target: 0, offset: 100, length: Some(20) });
/// assert_eq!(set.target(0), "a.nc");
/// # Ok::<(), bedform_format::references::ReferencesError>(())
/// ```
#[derive(Debug, Default)]
pub struct References {
    targets: Vec<Arc<str>>,
    /// Sorted by path.
    directories: Vec<ReferenceDirectory>,
    /// The entries of each directory are consecutive and sorted by name.
    entries: Vec<ReferenceRow>,
    /// Concatenated names of the entries.
    names: String,
    inline: Vec<u8>,
}

#[derive(Debug)]
struct ReferenceDirectory {
    path: Box<str>,
    /// Index of its first entry; its entries end before the first of the next directory.
    first: u32,
}

#[derive(Debug, Clone, Copy)]
struct ReferenceRow {
    /// Offset of its name in `names`; the name ends at the offset of the next entry.
    name: u32,
    target: u32,
    offset: u64,
    length: u64,
}

impl References {
    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the distinct paths and URLs of files.
    pub fn targets(&self) -> &[Arc<str>] {
        &self.targets
    }

    /// Returns the path or URL of a file, as in the references; empty for an unknown index.
    pub fn target(&self, number: u32) -> &str {
        self.targets.get(number as usize).map_or("", |target| target)
    }

    /// Returns the location of a key's bytes.
    pub fn find(&self, path: &ObjectPath) -> Option<Reference<'_>> {
        let (parent, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        let directory =
            self.directories.binary_search_by(|other| (*other.path).cmp(parent)).ok()?;
        let (mut first, mut end) = self.entries_of(directory);
        while first < end {
            let middle = first + (end - first) / 2;
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Less => first = middle + 1,
                std::cmp::Ordering::Equal => return self.reference(middle),
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        None
    }

    /// Returns true if keys lie below `path`; the root is always a directory.
    pub fn is_directory(&self, path: &ObjectPath) -> bool {
        path.is_root() || {
            let at = self.directories.partition_point(|other| &*other.path < path.as_str());
            let is_it = |at: usize| self.directories.get(at).map(|other| &*other.path);
            is_it(at) == Some(path.as_str()) || self.below(path.as_str()).next().is_some()
        }
    }

    /// Returns the entries directly below `path`, sorted by name.
    pub fn list(&self, path: &ObjectPath) -> Vec<ReferencesEntry> {
        let mut found = Vec::new();
        if let Ok(at) = self.directories.binary_search_by(|other| (*other.path).cmp(path.as_str()))
        {
            let (first, end) = self.entries_of(at);
            let names = (first..end).map(|entry| self.name(entry).to_owned());
            found.extend(names.map(|name| ReferencesEntry { name, is_directory: false }));
        }
        let mut last = None;
        for name in self.below(path.as_str()) {
            if last != Some(name) {
                found.push(ReferencesEntry { name: name.to_owned(), is_directory: true });
                last = Some(name);
            }
        }
        found.sort();
        // A path that is a key and also has keys below it is listed once; no file system could hold
        // both.
        found.dedup_by(|next, before| next.name == before.name);
        found
    }

    /// Returns the next path segment of each directory below `path`, in the order of their paths.
    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let first = self.directories.partition_point(|other| *other.path < *prefix);
        self.directories[first..]
            .iter()
            .map_while(move |other| {
                let rest = other.path.strip_prefix(&*prefix)?;
                Some(rest.split('/').next().unwrap_or_default())
            })
            .filter(|name| !name.is_empty())
    }

    /// Returns the index of a directory's first entry, and the index after its last.
    fn entries_of(&self, directory: usize) -> (usize, usize) {
        let first = |at: usize| self.directories.get(at).map(|found| found.first as usize);
        let end = first(directory + 1).unwrap_or(self.entries.len());
        (first(directory).unwrap_or(end), end)
    }

    fn name(&self, entry: usize) -> &str {
        let start = |at: usize| self.entries.get(at).map(|found| found.name as usize);
        let end = start(entry + 1).unwrap_or(self.names.len());
        start(entry).and_then(|start| self.names.get(start..end)).unwrap_or_default()
    }

    fn reference(&self, entry: usize) -> Option<Reference<'_>> {
        let ReferenceRow { target, offset, length, .. } = *self.entries.get(entry)?;
        if target == INLINE {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            return Some(Reference::Inline(self.inline.get(start..end)?));
        }
        let length = (length != TO_END).then_some(length);
        Some(Reference::Range { target, offset, length })
    }
}

/// A builder of [`References`] from keys in any order.
#[derive(Debug)]
pub struct ReferencesBuilder {
    limit: u64,
    targets: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// Length of all targets in bytes.
    targets_bytes: u64,
    keys: String,
    entries: Vec<AddedReference>,
    inline: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct AddedReference {
    key: u32,
    /// Length of the key, and of the directory in it, in bytes.
    bytes: u16,
    directory: u16,
    target: u32,
    offset: u64,
    length: u64,
}

impl AddedReference {
    fn split<'a>(&self, keys: &'a str) -> (&'a str, &'a str) {
        let start = self.key as usize;
        let key = keys.get(start..start + usize::from(self.bytes)).unwrap_or_default();
        let directory = usize::from(self.directory);
        let name = if directory == 0 { 0 } else { directory + 1 };
        (key.get(..directory).unwrap_or_default(), key.get(name..).unwrap_or_default())
    }
}

impl ReferencesBuilder {
    /// Makes an empty builder.
    pub fn new(limits: &Limits) -> Self {
        // Offsets of names have 32 bits.
        let limit = limits.references_bytes_max.min(u64::from(u32::MAX - 1));
        Self {
            limit,
            targets: Vec::new(),
            numbers: HashMap::new(),
            targets_bytes: 0,
            keys: String::new(),
            entries: Vec::new(),
            inline: Vec::new(),
        }
    }

    /// Adds a reference under a key.
    ///
    /// # Errors
    /// [`ReferencesError`] for an invalid key, an invalid range, or a count over its limit.
    pub fn add(&mut self, key: &str, value: Reference<'_, &str>) -> Result<()> {
        let path = ObjectPath::parse(key)?;
        if path.is_root() {
            return Err(ReferencesError::value(key, "it has no name"));
        }
        let (target, offset, length) = match value {
            Reference::Inline(bytes) => {
                let offset = self.inline.len() as u64;
                self.check("too many inline bytes", offset.saturating_add(bytes.len() as u64))?;
                self.inline.extend_from_slice(bytes);
                (INLINE, offset, bytes.len() as u64)
            }
            Reference::Range { target, offset, length } => {
                let is_range = length.is_none_or(|length| {
                    length != TO_END
                        && offset.checked_add(length).is_some_and(|end| end <= i64::MAX as u64)
                });
                if !is_range {
                    return Err(ReferencesError::value(key, "no file has such a range of bytes"));
                }
                (self.number_of(key, target)?, offset, length.unwrap_or(TO_END))
            }
        };
        let start = self.keys.len() as u64;
        self.check("too many bytes of keys", start + key.len() as u64)?;
        self.check("too many keys", self.entries.len() as u64)?;
        let directory = path.parent().as_str().len();
        let position = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX);
        self.entries.push(AddedReference {
            key: u32::try_from(start).unwrap_or(u32::MAX),
            bytes: position(key.len()),
            directory: position(directory),
            target,
            offset,
            length,
        });
        self.keys.push_str(key);
        Ok(())
    }

    /// Sorts the keys and returns the table.
    ///
    /// # Errors
    /// [`ReferencesError::Twice`] for a duplicate key.
    pub fn finish(self) -> Result<References> {
        let Self { targets, keys, mut entries, inline, .. } = self;
        entries.sort_by(|one, other| one.split(&keys).cmp(&other.split(&keys)));
        let mut set = References { targets, inline, ..References::default() };
        set.names.reserve_exact(keys.len());
        set.entries.reserve_exact(entries.len());
        let mut last: Option<(&str, &str)> = None;
        for added in &entries {
            let (directory, name) = added.split(&keys);
            if last == Some((directory, name)) {
                let start = added.key as usize;
                let key = keys.get(start..start + usize::from(added.bytes));
                return Err(ReferencesError::Twice(shown(key.unwrap_or_default())));
            }
            // Both counts are below `limit`, which fits 32 bits.
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            if last.is_none_or(|(before, _)| before != directory) {
                let first = count(set.entries.len());
                set.directories.push(ReferenceDirectory { path: directory.into(), first });
            }
            let AddedReference { target, offset, length, .. } = *added;
            set.entries.push(ReferenceRow { name: count(set.names.len()), target, offset, length });
            set.names.push_str(name);
            last = Some((directory, name));
        }
        set.names.shrink_to_fit();
        Ok(set)
    }

    /// Replaces the path of each target by the result of `rename`, unless it is `None`.
    pub(super) fn rename(&mut self, rename: impl Fn(&str) -> Result<Option<String>>) -> Result<()> {
        let mut bytes = 0_u64;
        for target in &mut self.targets {
            if let Some(renamed) = rename(target)? {
                *target = renamed.into();
            }
            bytes = bytes.saturating_add(target.len() as u64);
            let limit = self.limit.saturating_add(TARGETS_BYTES_FREE);
            if bytes > limit {
                return Err(ReferencesError::TooLarge { what: "too long paths of files", limit });
            }
        }
        Ok(())
    }

    fn number_of(&mut self, key: &str, target: &str) -> Result<u32> {
        if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains('\0') {
            return Err(ReferencesError::value(key, "its file has no path, or a very long one"));
        }
        // Consecutive keys mostly name the same file.
        if let Some(last) = self.entries.last().filter(|last| last.target != INLINE)
            && self.targets.get(last.target as usize).is_some_and(|other| **other == *target)
        {
            return Ok(last.target);
        }
        if let Some(number) = self.numbers.get(target) {
            return Ok(*number);
        }
        self.targets_bytes = self.targets_bytes.saturating_add(target.len() as u64);
        self.check("too long paths of files", self.targets_bytes)?;
        let number = u32::try_from(self.targets.len()).ok().filter(|number| *number != INLINE);
        let number = number.ok_or(ReferencesError::TooLarge {
            what: "too many files",
            limit: u64::from(INLINE),
        })?;
        let target: Arc<str> = target.into();
        self.targets.push(target.clone());
        self.numbers.insert(target, number);
        Ok(number)
    }

    fn check(&self, what: &'static str, bytes: u64) -> Result<()> {
        if bytes <= self.limit {
            return Ok(());
        }
        Err(ReferencesError::TooLarge { what, limit: self.limit })
    }
}
