//! Opened references: inline bytes, and ranges of files.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bedform_format::checksum::Fingerprint;
use bedform_storage::{
    Answer, Bell, Bytes, Object, ReadBlock, StorageError, StorageErrorKind, Version, lacks,
};

type Result<T> = std::result::Result<T, StorageError>;

/// Returns the error for a file that does not match its references.
pub(super) fn dangling(operation: &'static str, file: &str, why: String) -> StorageError {
    StorageError {
        kind: StorageErrorKind::Dangling,
        operation,
        path: file.to_owned(),
        source: Some(io::Error::other(why)),
    }
}

/// Renames an error to the file `file`. A missing or shorter file does not match its references, so
/// its error becomes `Dangling`. `NotFound` would make the chunk read as fill values.
pub(super) fn named(mut error: StorageError, file: &str) -> StorageError {
    let why = match error.kind {
        StorageErrorKind::NotFound => Some("it does not exist"),
        StorageErrorKind::Conflict => Some("it has changed since it was first read"),
        StorageErrorKind::Truncated => Some("it is shorter than it was"),
        StorageErrorKind::NotAnObject => Some("it is not a plain file"),
        _ => None,
    };
    match why {
        Some(why) => dangling(error.operation, file, why.to_owned()),
        None => {
            file.clone_into(&mut error.path);
            error
        }
    }
}

fn identity_of(parts: &[u64]) -> (u64, u64) {
    let mut fingerprint = Fingerprint::new();
    parts.iter().for_each(|part| fingerprint.update(&part.to_le_bytes()));
    fingerprint.halves()
}

/// Returns the version of a range of a file; messages name the file `shown`.
///
/// # Errors
/// `Dangling` if the file ends before the range.
pub(super) fn version_of(
    file: &Version,
    shown: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<Version> {
    let left = file.size.checked_sub(offset);
    let size = length.or(left).filter(|length| left.is_some_and(|left| *length <= left));
    let Some(size) = size else {
        let end = length.map_or(String::new(), |length| format!(" to {}", offset + length));
        let why = format!("it has {} bytes, and they read from {offset}{end}", file.size);
        return Err(dangling("open", shown, why));
    };
    if !file.tells_bytes_apart() {
        return Ok(Version { size, ..Version::default() });
    }
    let (device, number) = file.identity;
    let (first, second) = match file.changed_ns {
        // The first number of the identity comes from an ETag.
        0 => identity_of(&[device, number, file.size, offset]),
        // A local file's device stays separate: see `SourceVersion`.
        _ => (device, identity_of(&[number, file.size, offset]).1),
    };
    let identity = (first, second);
    Ok(Version { size, identity, ..file.clone() })
}

/// A range of a file.
#[derive(Debug)]
pub(super) struct RangeObject {
    file: Arc<dyn Object>,
    shown: Arc<str>,
    offset: u64,
    version: Version,
}

impl RangeObject {
    /// # Errors
    /// `Dangling` if the file ends before the range.
    pub(super) fn new(
        file: Arc<dyn Object>,
        shown: Arc<str>,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Self> {
        let version = version_of(file.version(), &shown, offset, length)?;
        Ok(Self { file, shown, offset, version })
    }

    /// Returns the file offset of the bytes from `offset` on, if all `length` of them lie in the
    /// range.
    fn place(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.version.size).then(|| self.offset.checked_add(offset)).flatten()
    }
}

impl Object for RangeObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let place = self
            .place(offset, buffer.len() as u64)
            .ok_or_else(|| StorageError::new(StorageErrorKind::Truncated, "read", &self.shown))?;
        self.file.read(place, buffer).map_err(|error| named(error, &self.shown))
    }

    fn read_past<'b>(
        &self,
        offset: u64,
        length: usize,
        block: &'b mut ReadBlock,
    ) -> Result<Option<&'b [u8]>> {
        let Some(place) = self.place(offset, length as u64) else { return Ok(None) };
        self.file.read_past(place, length, block).map_err(|error| named(error, &self.shown))
    }

    fn read_ahead(&self, offset: u64, length: u64) -> bool {
        let length = length.min(self.version.size.saturating_sub(offset));
        self.place(offset, length).is_some_and(|place| self.file.read_ahead(place, length))
    }

    fn request(&self, offset: u64, length: u64, bell: &Arc<Bell>) -> Option<Answer<Bytes>> {
        let (answer, shown) = (
            self.file.request(self.place(offset, length)?, length, bell)?,
            Arc::clone(&self.shown),
        );
        Some(answer.then(move |bytes| bytes.map_err(|error| named(error, &shown))))
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(place) = self.place(offset, buffer.len() as u64) else { return Ok(0) };
        self.file.read_resident(place, buffer).map_err(|error| named(error, &self.shown))
    }

    fn buffered_range(&self) -> Range<u64> {
        let Range { start, end } = self.file.buffered_range();
        let within = |place: u64| place.saturating_sub(self.offset).min(self.version.size);
        within(start)..within(end)
    }

    fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.file.buffered_bytes(self.place(offset, length as u64)?, length)
    }

    fn kept(&self) -> Option<Arc<dyn Object>> {
        let (shown, offset) = (Arc::clone(&self.shown), self.offset);
        Some(Arc::new(Self {
            file: self.file.kept()?,
            shown,
            offset,
            version: self.version.clone(),
        }))
    }

    fn is_current(&self) -> Result<bool> {
        self.file.is_current().map_err(|error| named(error, &self.shown))
    }
}

/// Bytes of the references themselves.
#[derive(Debug)]
pub(super) struct InlineObject {
    key: String,
    bytes: Box<[u8]>,
    version: Version,
}

impl InlineObject {
    pub(super) fn new(key: String, bytes: &[u8], modified_ns: i64) -> Self {
        let mut fingerprint = Fingerprint::new();
        fingerprint.update(bytes);
        let identity = fingerprint.halves();
        let size = bytes.len() as u64;
        let version = Version { size, modified_ns, changed_ns: modified_ns, identity };
        Self { key, bytes: bytes.into(), version }
    }

    fn extent(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }
}

impl Object for InlineObject {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let bytes = self
            .extent(offset, buffer.len())
            .ok_or_else(|| StorageError::new(StorageErrorKind::Truncated, "read", &self.key))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn read_resident(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(start..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), rest.get(..length)) {
            to.copy_from_slice(from);
        }
        Ok(length)
    }

    fn buffered_range(&self) -> Range<u64> {
        0..self.version.size
    }

    fn buffered_bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.extent(offset, length)
    }

    fn is_current(&self) -> Result<bool> {
        Ok(true)
    }

    lacks!(read_past, read_ahead, request, kept);
}
