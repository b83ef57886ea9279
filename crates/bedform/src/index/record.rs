//! The record of an index as a helper file, and the directories of an index in a sidecar.

use bedform_format::Limits;
use bedform_format::chunk_map::SourceVersion;
use bedform_format::index::IndexRecord;

use crate::sidecar::{Helper, INDEX, Sidecar};

/// The directory of the record's generations in that of an array's index.
pub(crate) const CATALOGUE: &str = "catalogue";
/// The directory of the Zarr groups of level one in that of an array's index.
pub(crate) const LEVEL_ONE: &str = "level1";

// Valid for every state of the source: it records the versions of its objects.
impl Helper for IndexRecord {
    const BYTES_MAX: u64 = 128 << 20;

    fn encode(&self) -> Option<Vec<u8>> {
        Self::encode(self)
    }

    fn decode(bytes: &[u8], limits: &Limits) -> Option<Self> {
        Self::decode(bytes, limits)
    }
}

/// Returns the directory of the index of the array at `path`, in a sidecar.
pub(crate) fn directory_of(path: &str) -> String {
    match path {
        "" => INDEX.to_owned(),
        path => format!("{INDEX}/{path}"),
    }
}

/// Returns the newest valid record of the array at `path` in a sidecar, and its number.
pub(crate) fn newest_record(
    sidecar: &Sidecar,
    path: &str,
    limits: &Limits,
) -> Option<(u64, IndexRecord)> {
    let directory = directory_of(path);
    let names: Vec<&str> = directory.split('/').collect();
    if !sidecar.is_trusted_at(&names) {
        return None;
    }
    let list = format!("{directory}/{CATALOGUE}");
    let newest = sidecar.load_newest::<IndexRecord>(&list, &SourceVersion::default(), limits);
    newest.filter(|(_, record)| record.array == path)
}
