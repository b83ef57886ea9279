//! B-trees of version 1, which index groups and chunks.
//!
//! The library searches a tree of chunks by the keys of its nodes, while [`for_each`] lists the
//! leaves. So that both have the same chunks of a damaged file, a tree is corrupt if a search would
//! miss one of its leaf entries.

use super::cursor::Cursor;
use super::error::{Hdf5Error, Result};
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
        let level_below = level.checked_sub(1);
        if entries == 0 {
            return Ok(level_below);
        }
        // A key follows the last entry.
        let body_bytes = self.entry_bytes().saturating_mul(entries.into());
        let body_bytes = body_bytes.saturating_add(self.key_bytes as u64);
        let body = self.source.block(place.address.saturating_add(head_bytes), body_bytes)?;
        let mut cursor = body.cursor();
        let mut own = self.chunk_key(cursor)?;
        for _ in 0..entries {
            let key = cursor.split(self.key_bytes)?;
            let address = cursor.required_address()?;
            let next = self.chunk_key(cursor)?;
            match level_below {
                None => {
                    self.check_leaf(place, (&own, &next), key)?;
                    take(key, address)?;
                }
                Some(_) => {
                    let between = self.between(place, (own, &next), key)?;
                    below.push(NodePlace { address, between });
                }
            }
            own = next;
        }
        Ok(level_below)
    }

    /// Fails unless a search finds the chunk of a leaf's entry between the keys of the entry and of
    /// the next one. Such a chunk is sought by its own key, which begins an element.
    fn check_leaf(
        &self,
        place: &NodePlace,
        (own, next): (&ChunkKey, &ChunkKey),
        key: Cursor<'_>,
    ) -> Result {
        if self.kind == TreeKind::Group {
            return Ok(());
        }
        let leads = place.between.as_ref().is_none_or(|(least, most)| least <= own && own < most);
        match leads && own < next && own.last() == Some(&0) {
            true => Ok(()),
            false => Err(missed(key)),
        }
    }

    /// Returns the keys between which a search descends to a child; `None` in a tree of a group.
    fn between(
        &self,
        place: &NodePlace,
        (own, next): (ChunkKey, &ChunkKey),
        key: Cursor<'_>,
    ) -> Result<Option<(ChunkKey, ChunkKey)>> {
        if self.kind == TreeKind::Group {
            return Ok(None);
        }
        let (mut first, mut end) = (own, next.clone());
        if let Some((least, most)) = &place.between {
            first = first.max(least.clone());
            end = end.min(most.clone());
        }
        if first < end { Ok(Some((first, end))) } else { Err(missed(key)) }
    }

    /// Returns the offsets of the next key in a tree of chunks, behind the length and the filter mask;
    /// none in a tree of a group.
    fn chunk_key(&self, mut keys: Cursor<'_>) -> Result<ChunkKey> {
        let mut key = keys.split(self.key_bytes)?;
        if self.kind == TreeKind::Group {
            return Ok(ChunkKey::default());
        }
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

fn missed(key: Cursor<'_>) -> Hdf5Error {
    key.corrupt("a B-tree of chunks in which a search misses a chunk")
}
