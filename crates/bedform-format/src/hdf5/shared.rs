//! Shared messages: committed datatypes, and the file's table of shared messages.

use super::cursor::{Cursor, FileBlock};
use super::error::{Hdf5Error, Result};
use super::fractal_heap::FractalHeap;
use super::object_header::{FLAG_SHARED, Message, MessageKind, ObjectHeader};
use super::source::CountedFile;

/// The body of a message, stored in its header or elsewhere.
pub(super) struct SharedBody {
    pub(super) block: FileBlock,
    /// Address of the committed datatype that contains it, if one does.
    pub(super) committed: Option<u64>,
}

/// Location type of a shared message, from version 3 on: the heap of its kind.
const IN_HEAP: u8 = 1;
/// Bytes of a heap ID in that heap.
const HEAP_ID_BYTES: usize = 8;

/// Returns the body of a message of a header.
pub(super) fn body_of(source: &CountedFile<'_>, message: &Message) -> Result<SharedBody> {
    if message.flags & FLAG_SHARED != 0 {
        return resolve(source, message.kind, message.cursor());
    }
    Ok(SharedBody { block: message.body.clone(), committed: None })
}

/// Returns the body of the shared message that `reference` names.
pub(super) fn resolve(
    source: &CountedFile<'_>,
    kind: MessageKind,
    mut reference: Cursor<'_>,
) -> Result<SharedBody> {
    let start = reference;
    let [version, place] = reference.array()?;
    match version {
        1 => {
            reference.skip(6)?;
            reference.length()?;
        }
        3 if place == IN_HEAP => {
            let id = reference.take(HEAP_ID_BYTES)?;
            return in_table(source, kind, &start, id);
        }
        2 | 3 => {}
        _ => return Err(Hdf5Error::unknown(format!("version {version} of a shared message"))),
    }
    let address = reference.required_address()?;
    let header = ObjectHeader::read(source, address)?;
    match header.find(kind) {
        Some(message) if message.flags & FLAG_SHARED == 0 => {
            Ok(SharedBody { block: message.body.clone(), committed: Some(address) })
        }
        _ => Err(start.corrupt("a shared message that is not where it should be")),
    }
}

/// Returns the body of a message that only the table of shared messages locates.
pub(super) fn in_table(
    source: &CountedFile<'_>,
    kind: MessageKind,
    start: &Cursor<'_>,
    id: &[u8],
) -> Result<SharedBody> {
    let table = source.shared_messages.ok_or_else(|| start.corrupt("no shared message table"))?;
    let width = u64::from(source.widths.address);
    let entry_bytes = width.saturating_mul(2).saturating_add(14);
    let length = entry_bytes.saturating_mul(table.index_count.into()).saturating_add(8);
    let block = source.checked_block(table.address, length)?;
    let mut cursor = block.cursor();
    cursor.signature(*b"SMTB")?;
    for _ in 0..table.index_count {
        cursor.version(0, "an index of shared messages")?;
        cursor.skip(1)?;
        let kinds = cursor.u16()?;
        // Skips the smallest shared size, the sizes at which the index changes form, and a count.
        cursor.skip(10)?;
        cursor.address()?;
        let heap = cursor.address()?;
        if kinds.checked_shr(kind.0.into()).unwrap_or(0) & 1 == 1 {
            let heap = heap.ok_or_else(|| cursor.corrupt("shared messages without a heap"))?;
            let block = FractalHeap::open(source, heap)?.object(id)?;
            return Ok(SharedBody { block, committed: None });
        }
    }
    Err(start.corrupt("a shared message of a kind that is not shared"))
}
