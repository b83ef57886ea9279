//! What tells a store from another at the same path: the key in its document.
//!
//! Of files, of stores that other programs made, and of stores on servers nothing is known; their traces are those of
//! whatever lies at the path.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bedform_format::Limits;
use bedform_format::metadata::{parse_document, parse_group};

use crate::sidecar::Sidecar;
use crate::threads::per_process::PerProcess;

/// A key, or zeros where there is none.
pub(super) type Key = [u8; 16];

/// Sources that are remembered; beyond it all are forgotten.
const SOURCES_MAX: usize = 1 << 10;

/// The paths of the sources that are watched, by the directories of their sidecars.
static SOURCES: PerProcess<Mutex<HashMap<PathBuf, PathBuf>>> = PerProcess::new();

/// Remembers which source this is the sidecar of.
pub(super) fn remember(sidecar: &Sidecar) {
    let Some((directory, source)) = sidecar.own_directory().zip(sidecar.source()) else { return };
    let sources = SOURCES.get(|_| Mutex::default());
    let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    if sources.len() >= SOURCES_MAX {
        sources.clear();
    }
    sources.insert(directory, source.to_owned());
}

/// The key of the source whose sidecar is this directory.
pub(super) fn key_beside(directory: &Path) -> Key {
    let Some(sources) = SOURCES.existing() else { return Key::default() };
    let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    let source = sources.get(directory).cloned();
    drop(sources);
    source.map_or(Key::default(), |source| key_of(&source))
}

/// The key of the store at `path`.
pub(super) fn key_of(path: &Path) -> Key {
    key_in(&path.join("zarr.json")).unwrap_or_default()
}

fn key_in(document: &Path) -> Option<Key> {
    let limits = Limits::default();
    let length = fs::metadata(document).ok().filter(fs::Metadata::is_file)?.len();
    if length > limits.metadata_bytes_max {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(document).ok()?.take(length).read_to_end(&mut bytes).ok()?;
    let (document, texts) = parse_document(&bytes, &limits).ok()?;
    parse_group(&document, texts).ok()?.store
}

/// True for a trace of a source that is known to be another.
pub(super) fn is_other(traced: &Key, own: &Key) -> bool {
    let none = Key::default();
    *traced != none && *own != none && traced != own
}
