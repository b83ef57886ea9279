//! B-trees of version 1: of groups and of chunks.

use super::cursor::Cursor;
use super::error::Result;
use super::source::{ANNOUNCED_MAX, Source};

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

/// Children of visited nodes that are remembered before they are visited themselves.
const BELOW_MAX: usize = 1 << 14;

/// Takes the key and the address of what a leaf names.
type TakeEntry<'a> = &'a mut dyn FnMut(Cursor<'_>, u64) -> Result;

/// A tree that is walked over.
struct Tree<'s, 'r> {
    source: &'s Source<'r>,
    kind: TreeKind,
    key_bytes: usize,
}

/// Calls `take` with the key and the address of everything that the leaves of a tree name, in order.
pub(super) fn for_each(
    source: &Source<'_>,
    address: u64,
    kind: TreeKind,
    key_bytes: usize,
    take: TakeEntry<'_>,
) -> Result {
    Tree { source, kind, key_bytes }.visit(&[address], None, take)
}

impl Tree<'_, '_> {
    /// Visits nodes of one level, then those below them: many are announced together.
    fn visit(&self, nodes: &[u64], expected: Option<u8>, take: TakeEntry<'_>) -> Result {
        let node_bytes = self.node_bytes();
        for batch in nodes.chunks(ANNOUNCED_MAX) {
            self.source.announce(batch.iter().map(|address| (*address, node_bytes)))?;
            let (mut below, mut level_below) = (Vec::new(), None);
            for address in batch {
                level_below = self.node(*address, expected, &mut below, take)?;
                if below.len() >= BELOW_MAX {
                    self.visit(&std::mem::take(&mut below), level_below, take)?;
                }
            }
            if !below.is_empty() {
                self.visit(&below, level_below, take)?;
            }
        }
        Ok(())
    }

    /// Reads one node: takes what a leaf names, adds the children of another to `below`, and gives their
    /// level.
    fn node(
        &self,
        address: u64,
        expected: Option<u8>,
        below: &mut Vec<u64>,
        take: TakeEntry<'_>,
    ) -> Result<Option<u8>> {
        let head_bytes = self.head_bytes();
        let head = self.source.block(address, head_bytes)?;
        let mut cursor = head.cursor();
        cursor.signature(*b"TREE")?;
        let [found_kind, level] = cursor.array()?;
        let entries = cursor.u16()?;
        if found_kind != self.kind as u8 || level > LEVEL_MAX {
            return Err(
                cursor.corrupt(format!("a B-tree node of kind {found_kind}, level {level}"))
            );
        }
        // Levels that go down by one leave no room for a cycle.
        if expected.is_some_and(|expected| expected != level) {
            return Err(
                cursor.corrupt(format!("a B-tree node of level {level} in the wrong place"))
            );
        }
        let body_bytes = self.entry_bytes().saturating_mul(entries.into());
        let body = self.source.block(address.saturating_add(head_bytes), body_bytes)?;
        let mut cursor = body.cursor();
        let level_below = level.checked_sub(1);
        for _ in 0..entries {
            let key = cursor.split(self.key_bytes)?;
            let child = cursor.required_address()?;
            match level_below {
                None => take(key, child)?,
                Some(_) => below.push(child),
            }
        }
        Ok(level_below)
    }

    fn head_bytes(&self) -> u64 {
        u64::from(self.source.widths.address).saturating_mul(2).saturating_add(8)
    }

    fn entry_bytes(&self) -> u64 {
        u64::from(self.source.widths.address).saturating_add(self.key_bytes as u64)
    }

    /// Bytes of a node that is full.
    fn node_bytes(&self) -> u64 {
        let entries = self.entry_bytes().saturating_mul(self.source.chunk_node_children);
        self.head_bytes().saturating_add(entries)
    }
}
