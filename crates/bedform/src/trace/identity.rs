//! The key in a store's document, which tells the store from another one at the same path.
//!
//! Files, stores of other programs, and stores on servers have no known key; their traces count for
//! the present content of the path.

use std::io::Read as _;
use std::path::Path;

use bedform_format::Limits;
use bedform_format::metadata::{parse_document, parse_group};
use bedform_storage::open_without_waiting;

/// A store's key; zeros where there is none.
pub(super) type StoreKey = [u8; 16];

/// Returns the key of the store at `path`.
pub(super) fn key_of(path: &Path) -> StoreKey {
    key_in(&path.join("zarr.json")).unwrap_or_default()
}

fn key_in(document: &Path) -> Option<StoreKey> {
    let limits = Limits::default();
    let file = open_without_waiting(document).ok()?;
    let found = file.metadata().ok().filter(|found| found.is_file())?;
    let length = found.len();
    if length > limits.metadata_bytes_max {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).ok()?;
    let (document, texts) = parse_document(&bytes, &limits).ok()?;
    parse_group(&document, texts).ok()?.store
}

/// True for a trace whose key differs from the source's, if both are known.
pub(super) fn is_other(traced: &StoreKey, own: &StoreKey) -> bool {
    let none = StoreKey::default();
    *traced != none && *own != none && traced != own
}
