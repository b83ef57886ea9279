//! Reads all content of a file, for fuzzers and tests.

use std::collections::HashSet;

use super::{Hdf5File, Hdf5Layout, LinkTarget, ManyRead, ObjectKind, ReadAt, ReadError, chunk_map};
use crate::Limits;
use crate::chunk_map::SourceVersion;

/// Largest number of extents of a dataset that are read as elements of texts.
const TEXT_EXTENTS_MAX: usize = 4;

/// A reader of bytes in memory that behaves like a server: it serves many extents at once.
struct AtOnce<'b>(&'b [u8]);

impl ReadAt for AtOnce<'_> {
    fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        self.0.read_at(offset, length)
    }

    fn read_many(&self, extents: &[(u64, usize)]) -> ManyRead {
        extents.iter().map(|(offset, length)| self.read_at(*offset, *length).map(Some)).collect()
    }
}

/// Reads all content of a file, damaged or not, and ignores checksums, which a fuzzer's input never
/// satisfies.
///
/// # Panics
/// If the parser breaks a promise: an invalid map, or a chunk outside the file.
#[doc(hidden)]
pub fn look_at_everything(bytes: &[u8]) {
    let limits = Limits::default();
    let size = bytes.len() as u64;
    let Ok(file) = Hdf5File::open_unchecked(&bytes, size, 4096, &limits) else { return };
    let source = SourceVersion { size, ..SourceVersion::default() };
    if let Ok(map) = chunk_map(&file, &source, &limits) {
        assert_eq!(map.check(&limits), Ok(()), "a file gives a map that holds");
    }
    let reader = AtOnce(bytes);
    let Ok(file) = Hdf5File::open_unchecked(&reader, size, 512, &limits) else { return };
    let mut met = HashSet::new();
    let mut pending = vec![file.superblock().root];
    while let Some(address) = pending.pop() {
        if !met.insert(address) {
            continue;
        }
        let Ok(object) = file.object(address) else { continue };
        for attribute in file.attributes(&object).unwrap_or_default() {
            let _ = file.values(&attribute);
        }
        let links = file.links(&object).unwrap_or_default().links;
        pending.extend(links.iter().filter_map(|link| match link.target {
            LinkTarget::Hard(address) => Some(address),
            _ => None,
        }));
        if let ObjectKind::Dataset(dataset) = &object.kind {
            let mut extents = Vec::new();
            let _ = file.chunks(dataset, &mut |chunk| {
                let end = chunk.offset.checked_add(chunk.length);
                assert!(end.is_some_and(|end| end <= size), "a chunk lies in the file");
                if extents.len() < TEXT_EXTENTS_MAX {
                    extents.push((chunk.offset, chunk.length));
                }
                Ok(())
            });
            if let Hdf5Layout::Contiguous { offset: Some(offset), length: Some(length) } =
                dataset.layout
            {
                extents.push((offset, length));
            }
            for (offset, length) in extents {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let elements = bytes.get(start..).and_then(|rest| rest.get(..length));
                let _ = file.texts(elements.unwrap_or_default());
            }
        }
    }
}
