//! Segments that were written to an object store and copied from there as files.
//!
//! In the object store a segment is a small object whose metadata name its parts. So does its text,
//! which is all that remains where metadata get lost. Each part has the position of its first byte
//! as its name.

use bedform_format::ObjectPath;
use bedform_storage::{Object, Storage, StorageError, StorageErrorKind, Version, lacks};

use crate::error::Result;

pub(super) type StorageResult<T> = std::result::Result<T, StorageError>;

/// Maximum number of bytes of the text; a longer file is a segment.
const TEXT_BYTES_MAX: u64 = 256;
const TEXT_START: &str = "bedform-parts 1\n";
const DIRECTORY_START: &str = ".bedform-parts-";
/// Maximum number of parts that are read from a directory.
const PARTS_MAX: usize = 1 << 20;

/// The consecutive parts of a segment, as one object.
#[derive(Debug)]
struct PartedSegment {
    path: ObjectPath,
    version: Version,
    /// The position of the first byte of each part, and the part.
    parts: Vec<(u64, Box<dyn Object>)>,
}

/// Returns the segment at `path`: `file` itself, or the parts that it names.
///
/// # Errors
/// Of storage.
pub(super) fn segment_of(
    storage: &dyn Storage,
    path: &ObjectPath,
    file: Box<dyn Object>,
) -> Result<Box<dyn Object>> {
    let Some(directory) = directory_of(path, &*file)? else { return Ok(file) };
    let mut starts: Vec<u64> = storage
        .list(&directory)?
        .iter()
        .filter(|entry| entry.name.len() == 16)
        .filter_map(|entry| u64::from_str_radix(&entry.name, 16).ok())
        .take(PARTS_MAX)
        .collect();
    starts.sort_unstable();
    let (mut end, mut parts) = (0, Vec::new());
    // A copy may lack parts: the segment ends before the first missing one.
    for start in starts {
        if start != end {
            break;
        }
        let part = storage.open(&directory.join(&format!("{start:016x}"))?)?;
        end += part.version().size;
        parts.push((start, part));
    }
    let version = Version { size: end, ..file.version().clone() };
    Ok(Box::new(PartedSegment { path: path.clone(), version, parts }))
}

/// Returns the directory that the text of a file names; `None` if the file is not such a text.
fn directory_of(path: &ObjectPath, file: &dyn Object) -> Result<Option<ObjectPath>> {
    let size = file.version().size;
    if size > TEXT_BYTES_MAX {
        return Ok(None);
    }
    let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read(0, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let name = text.strip_prefix(TEXT_START).map(str::trim_end);
    let name = name.filter(|name| name.starts_with(DIRECTORY_START) && !name.contains('/'));
    Ok(name.map(|name| path.parent().join(name)).transpose()?)
}

impl Object for PartedSegment {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> StorageResult<()> {
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let next = self.parts.partition_point(|(start, _)| *start <= at);
            let part = next.checked_sub(1).and_then(|last| self.parts.get(last));
            let truncated = || StorageError::new(StorageErrorKind::Truncated, "read", &self.path);
            let (start, object) = part.filter(|_| at < self.version.size).ok_or_else(truncated)?;
            let left = usize::try_from(start + object.version().size - at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            object.read(at - start, now)?;
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    fn is_current(&self) -> StorageResult<bool> {
        self.parts.iter().try_fold(true, |all, (_, part)| Ok(all && part.is_current()?))
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}
