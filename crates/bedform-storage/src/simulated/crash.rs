//! The states that a power cut may leave.
//!
//! Every change without a confirming sync is kept or lost on its own. The units are a sector or
//! page of a write, the size of a file, and one change of names in a directory. Kept changes apply
//! in their order. Lost bytes inside the kept size read as the earlier bytes, or as zeros.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{
    Body, FileChange, Inode, Pending, SimulatedDirectory, SimulatedFile, SimulatedState, TOP,
    apply_names, index, overlay,
};

/// The decisions of one power cut.
pub(super) trait CrashDecisions {
    /// Returns true if the next change is kept.
    fn keeps(&mut self) -> bool;
    /// Returns the number of bytes that are kept or lost together; `None` for each write as a
    /// whole.
    fn unit(&mut self) -> Option<usize>;
    /// Returns the index of the size that the file gets, among `count` sizes in order of time.
    fn size(&mut self, count: usize) -> usize;
}

/// A small generator of numbers that depend on the seed alone.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count.max(1) as u64)).unwrap_or(0)
    }
}

/// Decisions by a generator; the kept share differs between images.
pub(super) struct Sampled {
    random: Random,
    kept_percent: u64,
    is_torn: bool,
}

impl Sampled {
    /// Returns decisions by `seed`; with `is_torn`, no write is kept or lost as a whole.
    pub(super) fn new(seed: u64, is_torn: bool) -> Self {
        let mut random = Random(seed);
        let kept_percent = [10, 50, 50, 90][random.below(4)];
        Self { random, kept_percent, is_torn }
    }
}

impl CrashDecisions for Sampled {
    fn keeps(&mut self) -> bool {
        self.random.next() % 100 < self.kept_percent
    }

    fn unit(&mut self) -> Option<usize> {
        let units = [Some(512), Some(4096), None];
        units[self.random.below(if self.is_torn { 2 } else { 3 })]
    }

    fn size(&mut self, count: usize) -> usize {
        self.random.below(count)
    }
}

/// Decisions by the bits of a number: one per change, and one per file for its size.
pub(super) struct Enumerated {
    pub(super) bits: u64,
    pub(super) asked: u32,
}

impl Enumerated {
    fn bit(&mut self) -> bool {
        let bit = self.bits >> self.asked.min(63) & 1 == 1;
        self.asked += 1;
        bit
    }
}

impl CrashDecisions for Enumerated {
    fn keeps(&mut self) -> bool {
        self.bit()
    }

    fn unit(&mut self) -> Option<usize> {
        None
    }

    fn size(&mut self, count: usize) -> usize {
        if self.bit() { count - 1 } else { 0 }
    }
}

/// Returns the state in which a system restarts after a power cut now.
pub(super) fn image(state: &SimulatedState, fate: &mut dyn CrashDecisions) -> SimulatedState {
    let mut inodes: BTreeMap<u64, Inode> = BTreeMap::new();
    let mut transactions = BTreeMap::new();
    let mut open = vec![TOP];
    while let Some(number) = open.pop() {
        if let Some(inode) = inodes.get_mut(&number) {
            inode.names += 1;
            continue;
        }
        let Some(before) = state.inodes.get(&number) else { continue };
        let body = match &before.body {
            Body::File(file) => Body::File(surviving_file(file, fate)),
            Body::Directory(directory) => {
                let entries = surviving_names(directory, fate, &mut transactions);
                open.extend(entries.values());
                Body::Directory(SimulatedDirectory {
                    durable: entries.clone(),
                    entries,
                    pending: Vec::new(),
                })
            }
        };
        let inode = Inode { body, names: 1, lock: None, ..*before };
        inodes.insert(number, inode);
    }
    SimulatedState { inodes, ..*state }
}

/// Returns the number of yes-or-no decisions of a power cut now.
pub(super) fn questions(state: &SimulatedState) -> u32 {
    let mut counter = DecisionCounter(0);
    let _ = image(state, &mut counter);
    counter.0
}

/// Decisions that keep everything, so that every reachable change is counted.
struct DecisionCounter(u32);

impl CrashDecisions for DecisionCounter {
    fn keeps(&mut self) -> bool {
        self.0 += 1;
        true
    }

    fn unit(&mut self) -> Option<usize> {
        None
    }

    fn size(&mut self, count: usize) -> usize {
        self.0 += 1;
        count - 1
    }
}

/// Returns the surviving names. `transactions` holds the decisions on transactions seen so far.
fn surviving_names(
    directory: &SimulatedDirectory,
    fate: &mut dyn CrashDecisions,
    transactions: &mut BTreeMap<u64, bool>,
) -> BTreeMap<String, u64> {
    let mut entries = directory.durable.clone();
    for Pending { change, transaction, .. } in &directory.pending {
        let is_kept = match transaction {
            Some(number) => *transactions.entry(*number).or_insert_with(|| fate.keeps()),
            None => fate.keeps(),
        };
        if is_kept {
            apply_names(&mut entries, change);
        }
    }
    entries
}

fn surviving_file(file: &SimulatedFile, fate: &mut dyn CrashDecisions) -> SimulatedFile {
    if file.pending.is_empty() {
        let bytes = Arc::clone(&file.durable);
        return SimulatedFile { durable: Arc::clone(&bytes), bytes, pending: Vec::new() };
    }
    let mut sizes = vec![file.durable.len()];
    let mut content = file.durable.to_vec();
    for Pending { change, .. } in &file.pending {
        let last = sizes.last().copied().unwrap_or(0);
        match change {
            FileChange::Size(size) => sizes.push(index(*size)),
            FileChange::Write { offset, bytes } => {
                sizes.push(last.max(index(*offset) + bytes.len()));
                write_torn(&mut content, index(*offset), bytes, fate);
            }
        }
    }
    content.resize(sizes[fate.size(sizes.len())], 0);
    let bytes = Arc::new(content);
    SimulatedFile { durable: Arc::clone(&bytes), bytes, pending: Vec::new() }
}

/// Writes the surviving units of `bytes`.
fn write_torn(content: &mut Vec<u8>, offset: usize, bytes: &[u8], fate: &mut dyn CrashDecisions) {
    let Some(unit) = fate.unit() else {
        if fate.keeps() {
            overlay(content, offset, bytes);
        }
        return;
    };
    let mut start = 0;
    while start < bytes.len() {
        // Units lie on the device's grid, not on that of the write.
        let end = ((offset + start) / unit * unit + unit - offset).min(bytes.len());
        if fate.keeps() {
            overlay(content, offset + start, &bytes[start..end]);
        }
        start = end;
    }
}
