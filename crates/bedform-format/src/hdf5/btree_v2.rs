//! B-trees of version 2: sorted records of one size.

use super::cursor::{Cursor, bytes_for};
use super::error::Result;
use super::source::{ANNOUNCED_MAX, CountedFile};

/// Largest depth of a tree; a deeper one would hold more records than there are addresses.
const DEPTH_MAX: u16 = 40;
/// Bytes of the signature, version, kind and checksum of a node.
const NODE_OVERHEAD: u64 = 10;

/// A callback for each record: the kind of the tree, and the bytes of the record.
pub(super) type TakeRecord<'a> = &'a mut dyn FnMut(u8, Cursor<'_>) -> Result;

/// The header of a tree.
struct RecordTree<'s, 'r> {
    source: &'s CountedFile<'r>,
    kind: u8,
    record_bytes: u16,
    /// For each level, from the leaves up, the width in bytes of the count of all records below.
    total_widths: Vec<usize>,
    /// Width in bytes of the count of records in a node.
    count_width: usize,
    leaf_records_max: u64,
    node_bytes: u64,
}

/// A reference to a node, as its parent stores it.
struct NodePointer {
    address: u64,
    records: u16,
}

/// Calls `take` with every record of the tree at `address`, whose kind must be one of `kinds`.
pub(super) fn for_each(
    source: &CountedFile<'_>,
    address: u64,
    kinds: &[u8],
    take: TakeRecord<'_>,
) -> Result {
    let (addresses, lengths) = (source.widths.address, source.widths.length);
    let length = 22_u64.saturating_add(addresses.into()).saturating_add(lengths.into());
    let block = source.checked_block(address, length)?;
    let mut cursor = block.cursor();
    cursor.signature(*b"BTHD")?;
    cursor.version(0, "a B-tree of version 2")?;
    let kind = cursor.u8()?;
    if !kinds.contains(&kind) {
        return Err(cursor.corrupt(format!("a B-tree of kind {kind}, not {kinds:?}")));
    }
    let node_bytes = cursor.u32()?;
    let record_bytes = cursor.u16()?;
    let depth = cursor.u16()?;
    // The fill percentages at which writers split and merge nodes.
    cursor.skip(2)?;
    let root = cursor.address()?;
    let records = cursor.u16()?;
    let Some(address) = root.filter(|_| records > 0) else { return Ok(()) };
    if depth > DEPTH_MAX || record_bytes == 0 {
        return Err(cursor.corrupt(format!("a B-tree of {depth} levels")));
    }
    let tree = RecordTree::new(source, kind, record_bytes, u64::from(node_bytes), depth);
    tree.visit(&NodePointer { address, records }, depth, take)
}

impl<'s, 'r> RecordTree<'s, 'r> {
    fn new(
        source: &'s CountedFile<'r>,
        kind: u8,
        record_bytes: u16,
        node_bytes: u64,
        depth: u16,
    ) -> Self {
        let record = u64::from(record_bytes);
        let room = node_bytes.saturating_sub(NODE_OVERHEAD);
        let leaf_records_max = room.checked_div(record).unwrap_or(0);
        let count_width = bytes_for(leaf_records_max);
        let mut total_widths = vec![0];
        let mut total_max = leaf_records_max;
        for _ in 0..depth {
            let below = total_widths.last().copied().unwrap_or(0);
            let pointer = usize::from(source.widths.address)
                .saturating_add(count_width)
                .saturating_add(below) as u64;
            let records_max = room
                .saturating_sub(pointer)
                .checked_div(record.saturating_add(pointer))
                .unwrap_or(0);
            total_max = total_max.saturating_mul(records_max.saturating_add(1));
            total_max = total_max.saturating_add(records_max);
            total_widths.push(bytes_for(total_max));
        }
        Self { source, kind, record_bytes, total_widths, count_width, leaf_records_max, node_bytes }
    }

    /// Visits all records of a node and its descendants, in order.
    fn visit(&self, node: &NodePointer, level: u16, take: TakeRecord<'_>) -> Result {
        let records_bytes = u64::from(node.records).saturating_mul(self.record_bytes.into());
        let pointer_count = if level == 0 { 0 } else { u64::from(node.records).saturating_add(1) };
        let total_width = match level {
            0 | 1 => 0,
            _ => self.total_widths.get(usize::from(level).saturating_sub(1)).copied().unwrap_or(0),
        };
        let pointer_bytes = usize::from(self.source.widths.address)
            .saturating_add(self.count_width)
            .saturating_add(total_width) as u64;
        let length = pointer_count
            .saturating_mul(pointer_bytes)
            .saturating_add(records_bytes)
            .saturating_add(NODE_OVERHEAD);
        let block = self.source.checked_block(node.address, length)?;
        let mut cursor = block.cursor();
        cursor.signature(if level == 0 { *b"BTLF" } else { *b"BTIN" })?;
        cursor.version(0, "a node of a B-tree of version 2")?;
        let kind = cursor.u8()?;
        if kind != self.kind || u64::from(node.records) > self.leaf_records_max {
            return Err(cursor.corrupt("a node of another B-tree"));
        }
        let mut records = cursor.split(usize::try_from(records_bytes).unwrap_or(usize::MAX))?;
        let mut children = Vec::new();
        for _ in 0..pointer_count {
            let address = cursor.required_address()?;
            let count = cursor.uint(self.count_width)?;
            cursor.skip(total_width)?;
            let records = u16::try_from(count)
                .map_err(|_| cursor.corrupt(format!("{count} records in a node")))?;
            children.push(NodePointer { address, records });
        }
        for batch in children.chunks(ANNOUNCED_MAX) {
            self.source.announce(batch.iter().map(|child| (child.address, self.node_bytes)))?;
            for child in batch {
                self.visit(child, level.saturating_sub(1), take)?;
                if !records.is_empty() {
                    take(self.kind, records.split(self.record_bytes.into())?)?;
                }
            }
        }
        while !records.is_empty() {
            take(self.kind, records.split(self.record_bytes.into())?)?;
        }
        Ok(())
    }
}
