//! Lookups by name in a chunk map. The tables are built once, because a file may have many
//! variables.

use std::collections::HashMap;
use std::sync::OnceLock;

use bedform_format::chunk_map::{ChunkMap, ForeignGroup};

/// Numbers of groups and variables by their paths.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    groups: OnceLock<HashMap<String, usize>>,
    arrays: OnceLock<HashMap<String, usize>>,
}

impl Lookup {
    pub(super) fn array(&self, map: &ChunkMap, path: &str) -> Option<usize> {
        let numbers = || numbered(map.arrays.iter().map(|array| &array.path));
        self.arrays.get_or_init(numbers).get(path).copied()
    }

    pub(super) fn group<'m>(&self, map: &'m ChunkMap, path: &str) -> Option<&'m ForeignGroup> {
        let numbers = || numbered(map.groups.iter().map(|group| &group.path));
        map.groups.get(*self.groups.get_or_init(numbers).get(path)?)
    }
}

fn numbered<'p>(paths: impl Iterator<Item = &'p String>) -> HashMap<String, usize> {
    paths.cloned().zip(0..).collect()
}
