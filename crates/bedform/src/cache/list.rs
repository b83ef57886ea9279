//! Linked lists of entries by age. An entry is in two lists at a time: that of the whole cache and
//! that of the handle that is charged for it.

use std::sync::Arc;

use super::key::CacheKey;

/// The index that stands for no node.
const NONE: usize = usize::MAX;

/// One of the two lists that a node is in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Chain {
    /// The list of the whole cache.
    All,
    /// The list of the node's handle.
    Handle,
}

/// The segment of an entry in the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum EvictionSegment {
    /// New entries.
    Small,
    /// Entries that were looked up again.
    Main,
}

/// An entry in the order of eviction.
#[derive(Debug)]
pub(super) struct EvictionNode {
    pub(super) key: Arc<CacheKey>,
    /// The handle that is charged for it.
    pub(super) handle: u64,
    pub(super) bytes: u64,
    pub(super) segment: EvictionSegment,
    links: [ListLink; 2],
}

/// The neighbours of a node in a list.
#[derive(Debug, Clone, Copy)]
struct ListLink {
    older: usize,
    newer: usize,
}

impl EvictionNode {
    /// A node that is in no list.
    pub(super) fn new(
        key: Arc<CacheKey>,
        handle: u64,
        bytes: u64,
        segment: EvictionSegment,
    ) -> Self {
        let links = [ListLink { older: NONE, newer: NONE }; 2];
        Self { key, handle, bytes, segment, links }
    }
}

/// The ends of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeList {
    oldest: usize,
    newest: usize,
}

impl Default for AgeList {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE }
    }
}

impl AgeList {
    /// The node that was added first.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.oldest == NONE
    }
}

/// The arena of all nodes.
#[derive(Debug, Default)]
pub(super) struct NodeArena {
    slots: Vec<Option<EvictionNode>>,
    free: Vec<usize>,
}

impl NodeArena {
    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn add(&mut self, node: EvictionNode) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(node);
                at
            }
            None => {
                self.slots.push(Some(node));
                self.slots.len() - 1
            }
        }
    }

    /// Removes a node that is in no list.
    pub(super) fn remove(&mut self, at: usize) -> Option<EvictionNode> {
        let node = self.slots.get_mut(at)?.take();
        if node.is_some() {
            self.free.push(at);
        }
        node
    }

    pub(super) fn get(&self, at: usize) -> Option<&EvictionNode> {
        self.slots.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut EvictionNode> {
        self.slots.get_mut(at)?.as_mut()
    }

    fn link(&mut self, at: usize, chain: Chain) -> Option<&mut ListLink> {
        Some(&mut self.get_mut(at)?.links[chain as usize])
    }

    /// Adds a node to a list as its newest.
    pub(super) fn push(&mut self, list: &mut AgeList, chain: Chain, at: usize) {
        let older = list.newest;
        if let Some(link) = self.link(at, chain) {
            *link = ListLink { older, newer: NONE };
        }
        match self.link(older, chain) {
            Some(link) => link.newer = at,
            None => list.oldest = at,
        }
        list.newest = at;
    }

    /// Removes a node from its list.
    pub(super) fn unlink(&mut self, list: &mut AgeList, chain: Chain, at: usize) {
        let Some(&mut ListLink { older, newer }) = self.link(at, chain) else { return };
        match self.link(older, chain) {
            Some(link) => link.newer = newer,
            None => list.oldest = newer,
        }
        match self.link(newer, chain) {
            Some(link) => link.older = older,
            None => list.newest = older,
        }
    }

    /// The nodes of a list, oldest first.
    pub(super) fn iter(
        &self,
        list: &AgeList,
        chain: Chain,
    ) -> impl Iterator<Item = (usize, &EvictionNode)> {
        let mut next = list.oldest;
        std::iter::from_fn(move || {
            let (at, node) = (next, self.get(next)?);
            next = node.links[chain as usize].newer;
            Some((at, node))
        })
    }
}
