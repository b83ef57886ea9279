//! B-trees of version 1: of groups and of chunks.

use super::cursor::Cursor;
use super::error::Result;
use super::source::Source;

/// What a tree is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    /// Symbol table nodes of a group.
    Group = 0,
    /// Chunks of a dataset.
    Chunks = 1,
}

/// Levels of a tree; with nodes of one child each.
const LEVEL_MAX: u8 = 40;

/// Calls `take` with the key and the address of everything that the leaves of a tree name.
pub(super) fn for_each(
    source: &Source<'_>,
    address: u64,
    kind: TreeKind,
    key_bytes: usize,
    take: &mut dyn FnMut(Cursor<'_>, u64) -> Result,
) -> Result {
    visit(source, address, kind, key_bytes, None, take)
}

fn visit(
    source: &Source<'_>,
    address: u64,
    kind: TreeKind,
    key_bytes: usize,
    expected_level: Option<u8>,
    take: &mut dyn FnMut(Cursor<'_>, u64) -> Result,
) -> Result {
    let width = u64::from(source.widths.address);
    let head_bytes = width.saturating_mul(2).saturating_add(8);
    let head = source.block(address, head_bytes)?;
    let mut cursor = head.cursor();
    cursor.signature(*b"TREE")?;
    let [found_kind, level] = cursor.array()?;
    let entries = cursor.u16()?;
    if found_kind != kind as u8 || level > LEVEL_MAX {
        return Err(cursor.corrupt(format!("a B-tree node of kind {found_kind}, level {level}")));
    }
    // Levels that go down by one leave no room for a cycle.
    if expected_level.is_some_and(|expected| expected != level) {
        return Err(cursor.corrupt(format!("a B-tree node of level {level} in the wrong place")));
    }
    let entry_bytes = width.saturating_add(key_bytes as u64);
    let body = source
        .block(address.saturating_add(head_bytes), entry_bytes.saturating_mul(entries.into()))?;
    let mut cursor = body.cursor();
    for _ in 0..entries {
        let key = cursor.split(key_bytes)?;
        let child = cursor.required_address()?;
        match level.checked_sub(1) {
            None => take(key, child)?,
            below => visit(source, child, kind, key_bytes, below, take)?,
        }
    }
    Ok(())
}
