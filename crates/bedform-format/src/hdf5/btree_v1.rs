//! B-trees of version 1, which index groups and chunks.
//!
//! The library searches a tree of chunks by the keys of its nodes, while [`for_each`] lists the
//! leaves. So that both have the same chunks of a damaged file, a tree is corrupt if a search would
//! miss one of its leaf entries.

use super::cursor::Cursor;
use super::error::Result;
use super::source::{ANNOUNCED_MAX, CountedFile};

/// The kind of object that a tree indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    /// Symbol table nodes of a group.
    Group = 0,
    /// Chunks of a dataset.
    Chunks = 1,
}

/// Largest height of a tree, even if each node has one child.
const LEVEL_MAX: u8 = 40;

/// Largest number of children that are collected before they are visited.
const BELOW_MAX: usize = 1 << 14;

/// A callback for the key and address of each leaf entry.
type TakeEntry<'a> = &'a mut dyn FnMut(Cursor<'_>, u64) -> Result;

/// The offsets of a chunk along the axes and within an element, by which a tree is searched.
type ChunkKey = Box<[u64]>;

/// A node that is to be visited.
struct NodePlace {
    address: u64,
    /// The keys between which a search descends to the node; none for the root, and in trees of
    /// groups.
    between: Option<(ChunkKey, ChunkKey)>,
}

/// A tree during a walk.
struct NodeTree<'s, 'r> {
    source: &'s CountedFile<'r>,
    kind: TreeKind,
    key_bytes: usize,
    /// In a tree of chunks, the lengths of a chunk along the axes, and the bytes of an element.
    chunk: &'s [u64],
}

/// Calls `take` with the key and the address of each leaf entry, in order. `chunk` has, for a tree of
/// chunks, the lengths of a chunk along the axes, and the bytes of an element.
pub(super) fn for_each(
    source: &CountedFile<'_>,
    address: u64,
    (kind, chunk): (TreeKind, &[u64]),
    key_bytes: usize,
    take: TakeEntry<'_>,
) -> Result {
    NodeTree { source, kind, key_bytes, chunk }.visit(
        &[NodePlace { address, between: None }],
        None,
        take,
    )
}

impl NodeTree<'_, '_> {
    /// Visits nodes of one level, then their children, and announces each batch to the readahead.
    fn visit(&self, nodes: &[NodePlace], expected: Option<u8>, take: TakeEntry<'_>) -> Result {
        let node_bytes = self.node_bytes();
        for batch in nodes.chunks(ANNOUNCED_MAX) {
            self.source.announce(batch.iter().map(|node| (node.address, node_bytes)))?;
            let (mut below, mut level_below) = (Vec::new(), None);
            for node in batch {
                level_below = self.node(node, expected, &mut below, take)?;
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

    /// Reads one node: passes the entries of a leaf to `take`, or adds the children of another node
    /// to `below`. Returns the level of the children; `None` below a leaf.
    fn node(
        &self,
        place: &NodePlace,
        expected: Option<u8>,
        below: &mut Vec<NodePlace>,
        take: TakeEntry<'_>,
    ) -> Result<Option<u8>> {
        let head_bytes = self.head_bytes();
        let head = self.source.block(place.address, head_bytes)?;
        let mut cursor = head.cursor();
        cursor.signature(*b"TREE")?;
        let [found_kind, level] = cursor.array()?;
        let entries = cursor.u16()?;
        if found_kind != self.kind as u8 || level > LEVEL_MAX {
            return Err(
                cursor.corrupt(format!("a B-tree node of kind {found_kind}, level {level}"))
            );
        }
        // Each level is one below its parent's, so a walk cannot follow a cycle.
        if expected.is_some_and(|expected| expected != level) {
            return Err(
                cursor.corrupt(format!("a B-tree node of level {level} in the wrong place"))
            );
        }
        // A key follows the last entry.
        let body_bytes = self.entry_bytes().saturating_mul(entries.into());
        let body_bytes = body_bytes.saturating_add(self.key_bytes as u64);
        let body = self.source.block(place.address.saturating_add(head_bytes), body_bytes)?;
        let mut cursor = body.cursor();
        let level_below = level.checked_sub(1);
        for _ in 0..entries {
            let key = cursor.split(self.key_bytes)?;
            let address = cursor.required_address()?;
            let between = self.between(place, level, key, cursor)?;
            match level_below {
                None => take(key, address)?,
                Some(_) => below.push(NodePlace { address, between }),
            }
        }
        Ok(level_below)
    }

    /// Returns the keys between which a search of a node of `level` finds the child after `key`, with
    /// `after` at the key behind it; `None` in a tree of a group.
    fn between(
        &self,
        place: &NodePlace,
        level: u8,
        key: Cursor<'_>,
        mut after: Cursor<'_>,
    ) -> Result<Option<(ChunkKey, ChunkKey)>> {
        if self.kind == TreeKind::Group {
            return Ok(None);
        }
        let own = self.chunk_key(key)?;
        let (mut first, mut end) = (own.clone(), self.chunk_key(after.split(self.key_bytes)?)?);
        if let Some((least, most)) = &place.between {
            first = first.max(least.clone());
            end = end.min(most.clone());
        }
        // The entry of a leaf is sought by its own key, which begins an element.
        let is_sought = level > 0 || (own == first && own.last() == Some(&0));
        match first < end && is_sought {
            true => Ok(Some((first, end))),
            false => Err(key.corrupt("a B-tree of chunks in which a search misses a chunk")),
        }
    }

    /// Returns the offsets of a key of a tree of chunks, behind the length and the filter mask.
    fn chunk_key(&self, mut key: Cursor<'_>) -> Result<ChunkKey> {
        key.skip(8)?;
        let offset = |length: &u64| match key.u64()? {
            offset if offset.checked_rem(*length) == Some(0) => Ok(offset),
            offset => Err(key.corrupt(format!("a chunk at {offset}, in chunks of {length}"))),
        };
        self.chunk.iter().map(offset).collect()
    }

    fn head_bytes(&self) -> u64 {
        u64::from(self.source.widths.address).saturating_mul(2).saturating_add(8)
    }

    fn entry_bytes(&self) -> u64 {
        u64::from(self.source.widths.address).saturating_add(self.key_bytes as u64)
    }

    /// Length of a full node in bytes.
    fn node_bytes(&self) -> u64 {
        let entries = self.entry_bytes().saturating_mul(self.source.chunk_node_children);
        self.head_bytes().saturating_add(entries)
    }
}
