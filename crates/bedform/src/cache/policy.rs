//! The order of eviction, and the accounts of the cache and its handles.
//!
//! The order of eviction is S3-FIFO (Yang et al., SOSP 2023), by bytes. A new entry starts in a
//! small segment. If no lookup finds it until it is the oldest there, it is evicted, and its hash
//! is remembered (a ghost); otherwise it moves to the main segment. There the oldest is evicted,
//! unless a lookup has found it since its last turn. An entry that returns while its ghost is
//! remembered starts in the main segment.
//!
//! - A scan passes through the small segment and evicts nothing from the main one.
//! - A new working set replaces an old one even if it does not fit the small segment: its ghosts
//!   are remembered. A segmented LRU would keep the old one for ever.
//! - A hit changes one counter in the table's shard, without a lock that all threads share.
//!
//! Each handle has the same two segments for the entries that it is charged for, against its cap.
//! Indexes have separate segments. Room is taken from data while indexes have no more than the
//! floor, an eighth of the limit in question, and from indexes when they have more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::key::{CacheKey, EntryKind, EvictionClass};
use super::list::{AgeList, Chain, EvictionNode, EvictionSegment, NodeArena};
use super::table::{CacheTable, CacheValue};

/// The divisor of a limit whose quotient is kept for indexes.
const FLOOR_PART: u64 = 8;
/// The divisor of a class's bytes: its small segment keeps at least this part.
const SMALL_PART: u64 = 10;
/// The least number of ghosts that are remembered, however few the entries are.
const GHOSTS_MIN: usize = 64;

/// The order of eviction, and all accounts. It is locked before a shard of the table, never after
/// one.
#[derive(Debug, Default)]
pub(super) struct Policy {
    nodes: NodeArena,
    all: Account,
    handles: HashMap<u64, HandleAccount>,
    ghosts: Ghosts,
    kinds: [KindAccount; EntryKind::ALL.len()],
    peak: u64,
}

/// Entries by class and segment, and their bytes.
#[derive(Debug, Default)]
struct Account {
    lists: [[AgeList; 2]; 2],
    bytes: [[u64; 2]; 2],
    /// Bytes by class that are reserved for values in preparation.
    reserved: [u64; 2],
}

#[derive(Debug)]
struct HandleAccount {
    account: Account,
    is_open: bool,
}

/// Entries of one kind, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KindAccount {
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

/// The room that an entry needs, and its kind and handle.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoomRequest {
    pub(super) handle: u64,
    /// The handle's cap, in bytes.
    pub(super) cap: u64,
    pub(super) kind: EntryKind,
    pub(super) bytes: u64,
}

impl Account {
    /// Bytes that are kept or reserved.
    fn used(&self) -> u64 {
        self.class_bytes(EvictionClass::Index) + self.class_bytes(EvictionClass::Data)
    }

    fn class_bytes(&self, class: EvictionClass) -> u64 {
        let class = class as usize;
        self.bytes[class].iter().sum::<u64>() + self.reserved[class]
    }

    fn is_empty(&self) -> bool {
        self.used() == 0 && self.lists.iter().flatten().all(AgeList::is_empty)
    }

    /// The entry that has the next turn when `bytes` more of a class need room below `limit`.
    fn candidate(&self, limit: u64, class: EvictionClass, bytes: u64) -> Option<usize> {
        let more = if class == EvictionClass::Index { bytes } else { 0 };
        let has_excess = self.class_bytes(EvictionClass::Index) + more > limit / FLOOR_PART;
        match has_excess {
            true => self.oldest(EvictionClass::Index).or_else(|| self.oldest(EvictionClass::Data)),
            false => self.oldest(EvictionClass::Data).or_else(|| self.oldest(EvictionClass::Index)),
        }
    }

    fn oldest(&self, class: EvictionClass) -> Option<usize> {
        let [small, main] = self.bytes[class as usize];
        let [new, again] = &self.lists[class as usize];
        match small > (small + main) / SMALL_PART {
            true => new.oldest().or_else(|| again.oldest()),
            false => again.oldest().or_else(|| new.oldest()),
        }
    }

    fn push(&mut self, nodes: &mut NodeArena, chain: Chain, at: usize) {
        let Some((class, segment, bytes)) = nodes.get(at).map(placed) else { return };
        nodes.push(&mut self.lists[class][segment], chain, at);
        self.bytes[class][segment] += bytes;
    }

    fn unlink(&mut self, nodes: &mut NodeArena, chain: Chain, at: usize) {
        let Some((class, segment, bytes)) = nodes.get(at).map(placed) else { return };
        nodes.unlink(&mut self.lists[class][segment], chain, at);
        self.bytes[class][segment] -= bytes;
    }
}

/// The class, the segment and the bytes of a node.
fn placed(node: &EvictionNode) -> (usize, usize, u64) {
    (node.key.kind().class() as usize, node.segment as usize, node.bytes)
}

impl Policy {
    /// Bytes that are kept or reserved.
    pub(super) fn used(&self) -> u64 {
        self.all.used()
    }

    /// The most bytes that were ever kept or reserved.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// The account of a kind.
    pub(super) fn kind(&self, kind: EntryKind) -> KindAccount {
        self.kinds[kind as usize]
    }

    /// Reserves room for an entry below the handle's cap and below `budget`. Evicted values are
    /// added to `freed`. False if there is no room.
    pub(super) fn reserve(
        &mut self,
        table: &CacheTable,
        request: RoomRequest,
        budget: u64,
        freed: &mut Vec<CacheValue>,
    ) -> bool {
        let RoomRequest { handle, cap, kind, bytes } = request;
        if bytes > cap.min(budget) {
            return false;
        }
        let class = kind.class();
        while self.handle_used(handle).saturating_add(bytes) > cap {
            let handle = self.handles.get(&handle);
            let found = handle.and_then(|handle| handle.account.candidate(cap, class, bytes));
            let Some(at) = found else { return false };
            self.look_at(table, at, freed);
        }
        while self.used().saturating_add(bytes) > budget {
            let Some(at) = self.all.candidate(budget, class, bytes) else { return false };
            self.look_at(table, at, freed);
        }
        self.all.reserved[class as usize] += bytes;
        self.account(handle).reserved[class as usize] += bytes;
        self.peak = self.peak.max(self.used());
        true
    }

    /// Releases reserved room.
    pub(super) fn release(&mut self, request: RoomRequest) {
        let RoomRequest { handle, kind, bytes, .. } = request;
        let class = kind.class() as usize;
        self.all.reserved[class] -= bytes;
        self.account(handle).reserved[class] -= bytes;
        self.forget_if_unused(handle);
    }

    /// Keeps a value for which room was reserved. Returns the value if it is not kept: another
    /// thread was first, or the budget has become smaller.
    pub(super) fn keep(
        &mut self,
        table: &CacheTable,
        request: RoomRequest,
        budget: u64,
        key: Arc<CacheKey>,
        value: CacheValue,
    ) -> Option<CacheValue> {
        let is_over = self.used() > budget;
        self.release(request);
        let mut shard = table.shard(&key);
        if is_over || shard.contains(&key) {
            return Some(value);
        }
        let segment = match self.ghosts.take(key.digest()) {
            true => EvictionSegment::Main,
            false => EvictionSegment::Small,
        };
        let RoomRequest { handle, kind, bytes, .. } = request;
        shard.insert(key.clone(), value);
        drop(shard);
        let at = self.nodes.add(EvictionNode::new(key, handle, bytes, segment));
        self.link(at);
        let kind = &mut self.kinds[kind as usize];
        kind.entries += 1;
        kind.bytes += bytes;
        None
    }

    /// Evicts entries until no more than `budget` bytes are used.
    pub(super) fn shrink(&mut self, table: &CacheTable, budget: u64, freed: &mut Vec<CacheValue>) {
        while self.used() > budget {
            let Some(at) = self.all.candidate(budget, EvictionClass::Data, 0) else { return };
            self.look_at(table, at, freed);
        }
    }

    /// Evicts the entries that only `handle` may see.
    pub(super) fn evict_own(
        &mut self,
        table: &CacheTable,
        handle: u64,
        freed: &mut Vec<CacheValue>,
    ) {
        let Some(HandleAccount { account, .. }) = self.handles.get(&handle) else { return };
        let lists = account.lists.iter().flatten();
        let nodes = lists.flat_map(|list| self.nodes.iter(list, Chain::Handle));
        let own = nodes.filter(|(_, node)| node.key.handle() == handle);
        let own: Vec<_> = own.map(|(at, node)| (at, node.key.clone())).collect();
        for (at, key) in own {
            freed.extend(table.shard(&key).remove(&key));
            self.remove(at);
        }
    }

    /// Closes a handle. Entries that it has shared stay.
    pub(super) fn close(&mut self, table: &CacheTable, handle: u64, freed: &mut Vec<CacheValue>) {
        self.evict_own(table, handle, freed);
        if let Some(account) = self.handles.get_mut(&handle) {
            account.is_open = false;
            self.forget_if_unused(handle);
        }
    }

    /// Gives an entry its turn: it moves on, or is evicted.
    fn look_at(&mut self, table: &CacheTable, at: usize, freed: &mut Vec<CacheValue>) {
        let Some((key, segment)) = self.nodes.get(at).map(|node| (node.key.clone(), node.segment))
        else {
            return;
        };
        let mut shard = table.shard(&key);
        if shard.was_asked_for(&key, segment == EvictionSegment::Small) {
            drop(shard);
            self.unlink(at);
            if let Some(node) = self.nodes.get_mut(at) {
                node.segment = EvictionSegment::Main;
            }
            self.link(at);
            return;
        }
        freed.extend(shard.remove(&key));
        drop(shard);
        self.remove(at);
        if segment == EvictionSegment::Small {
            self.ghosts.add(key.digest(), self.nodes.len());
        }
    }

    fn remove(&mut self, at: usize) {
        self.unlink(at);
        if let Some(node) = self.nodes.remove(at) {
            let kind = &mut self.kinds[node.key.kind() as usize];
            kind.entries -= 1;
            kind.bytes -= node.bytes;
            self.forget_if_unused(node.handle);
        }
    }

    fn link(&mut self, at: usize) {
        let Some(handle) = self.nodes.get(at).map(|node| node.handle) else { return };
        self.all.push(&mut self.nodes, Chain::All, at);
        let account = &mut self.handles.entry(handle).or_default().account;
        account.push(&mut self.nodes, Chain::Handle, at);
    }

    fn unlink(&mut self, at: usize) {
        let Some(handle) = self.nodes.get(at).map(|node| node.handle) else { return };
        self.all.unlink(&mut self.nodes, Chain::All, at);
        let account = &mut self.handles.entry(handle).or_default().account;
        account.unlink(&mut self.nodes, Chain::Handle, at);
    }

    fn account(&mut self, handle: u64) -> &mut Account {
        &mut self.handles.entry(handle).or_default().account
    }

    fn handle_used(&self, handle: u64) -> u64 {
        self.handles.get(&handle).map_or(0, |handle| handle.account.used())
    }

    fn forget_if_unused(&mut self, handle: u64) {
        if self.handles.get(&handle).is_some_and(|it| !it.is_open && it.account.is_empty()) {
            self.handles.remove(&handle);
        }
    }
}

impl Default for HandleAccount {
    fn default() -> Self {
        Self { account: Account::default(), is_open: true }
    }
}

/// Hashes of the keys that were evicted last without another lookup.
#[derive(Debug, Default)]
struct Ghosts {
    /// The hashes, with the number of each one's eviction.
    numbers: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    next: u64,
}

impl Ghosts {
    /// Remembers a hash; the number of ghosts is limited to that of entries.
    fn add(&mut self, hash: u64, entries: usize) {
        self.next += 1;
        self.numbers.insert(hash, self.next);
        self.order.push_back((hash, self.next));
        while self.order.len() > entries.max(GHOSTS_MIN) {
            let Some((hash, number)) = self.order.pop_front() else { return };
            if self.numbers.get(&hash) == Some(&number) {
                self.numbers.remove(&hash);
            }
        }
    }

    /// True if a hash was remembered; forgets it.
    fn take(&mut self, hash: u64) -> bool {
        self.numbers.remove(&hash).is_some()
    }
}

#[cfg(test)]
impl Policy {
    /// Checks that all accounts agree with the entries, and that no handle has more than `cap`
    /// bytes.
    pub(super) fn check(&self, cap: u64) {
        let mut total = 0;
        for (handle, HandleAccount { account, is_open }) in &self.handles {
            account.check(&self.nodes, Chain::Handle);
            assert!(account.used() <= cap, "handle {handle} has {} of {cap}", account.used());
            assert!(*is_open || !account.is_empty(), "handle {handle} is forgotten");
            total += account.used();
        }
        self.all.check(&self.nodes, Chain::All);
        assert_eq!(total, self.all.used());
        let kinds = self.kinds.iter().map(|kind| kind.bytes).sum::<u64>();
        assert_eq!(kinds, self.kept());
        assert!(self.ghosts.numbers.len() <= self.ghosts.order.len());
    }

    /// Bytes that are kept.
    pub(super) fn kept(&self) -> u64 {
        self.all.bytes.iter().flatten().sum()
    }

    /// The number of handles with an account.
    pub(super) fn open_accounts(&self) -> usize {
        self.handles.len()
    }
}

#[cfg(test)]
impl Account {
    fn check(&self, nodes: &NodeArena, chain: Chain) {
        for (lists, bytes) in self.lists.iter().zip(&self.bytes) {
            for (list, bytes) in lists.iter().zip(bytes) {
                assert_eq!(
                    nodes.iter(list, chain).map(|(_, node)| node.bytes).sum::<u64>(),
                    *bytes
                );
            }
        }
    }
}
