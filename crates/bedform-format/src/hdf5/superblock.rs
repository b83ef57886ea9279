//! The superblock: the base address, the widths of numbers, and the address of the root group.

use super::cursor::{Cursor, FileBlock, Widths};
use super::error::{Hdf5Error, Result};
use super::object_header::{MessageKind, ObjectHeader};
use super::source::CountedFile;

/// First bytes of a superblock.
pub(super) const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// Bytes that hold the largest superblock.
const SUPERBLOCK_BYTES: u64 = 128;

/// Offset of the flags in version 3; then the flags of a file that is open for writing.
const FLAGS_AT: usize = 11;
const BEING_WRITTEN: u8 = 0x01;
const SINGLE_WRITER: u8 = 0x04;

/// The content of the superblock and its extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Version, 0 to 3.
    pub version: u8,
    /// Bytes of the user block before the superblock. Addresses are relative to its end.
    pub user_block_bytes: u64,
    /// Address of the root group.
    pub root: u64,
    /// True if a writer has the file open, or ended without closing it. Its content may be
    /// inconsistent, and the HDF5 library refuses it.
    pub being_written: bool,
    /// As `being_written`, for a single writer that permits concurrent readers (SWMR). Such a file
    /// is consistent at every moment.
    pub single_writer: bool,
}

/// The location of the table of shared messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedMessageTable {
    pub(super) address: u64,
    pub(super) index_count: u8,
}

/// Finds and reads the superblock, and sets the base, widths and table of shared messages of the
/// source.
pub(super) fn read(source: &mut CountedFile<'_>) -> Result<Superblock> {
    source.base = find(source)?;
    let block = source.block_up_to(0, SUPERBLOCK_BYTES)?;
    let mut cursor = block.cursor();
    cursor.skip(SIGNATURE.len())?;
    let version = cursor.u8()?;
    let (root, extension) = match version {
        0 | 1 => (read_old(source, cursor, version)?, None),
        2 | 3 => read_new(source, &block)?,
        _ => return Err(Hdf5Error::unknown(format!("version {version} of the superblock"))),
    };
    if let Some(address) = extension {
        read_extension(source, address)?;
    }
    let flags = block.bytes.get(FLAGS_AT).copied().unwrap_or(0);
    let marks = if version == 3 { flags & (BEING_WRITTEN | SINGLE_WRITER) } else { 0 };
    let single_writer = marks == BEING_WRITTEN | SINGLE_WRITER;
    let being_written = marks != 0 && !single_writer;
    Ok(Superblock { version, user_block_bytes: source.base, root, being_written, single_writer })
}

/// Searches for the superblock, which lies at offset 0, 512, 1024, 2048 and so on.
fn find(source: &CountedFile<'_>) -> Result<u64> {
    let mut at = 0_u64;
    while at < source.size() {
        let block = source.block_up_to(at, SIGNATURE.len() as u64)?;
        if block.bytes == SIGNATURE {
            return Ok(at);
        }
        at = at.saturating_mul(2).max(512);
    }
    Err(Hdf5Error::NotHdf5)
}

fn set_widths(source: &mut CountedFile<'_>, cursor: &mut Cursor<'_>) -> Result {
    let [address, length] = cursor.array()?;
    let is_known = |width| matches!(width, 2 | 4 | 8);
    if !is_known(address) || !is_known(length) {
        return Err(cursor.corrupt(format!("addresses of {address} bytes, lengths of {length}")));
    }
    source.widths = Widths { address, length };
    Ok(())
}

/// Reads the address of the root group from a superblock of version 0 or 1.
fn read_old(source: &mut CountedFile<'_>, mut cursor: Cursor<'_>, version: u8) -> Result<u64> {
    cursor.version(0, "the free space storage")?;
    cursor.version(0, "the root symbol table entry")?;
    cursor.skip(1)?;
    cursor.version(0, "shared header messages")?;
    set_widths(source, &mut cursor)?;
    // Skips a reserved byte, the node sizes of two B-trees, and flags.
    cursor.skip(9)?;
    if version == 1 {
        // The field holds half of the largest number of children.
        source.chunk_node_children = u64::from(cursor.u16()?).saturating_mul(2);
        cursor.skip(2)?;
    }
    let widths = source.widths;
    let block = FileBlock { bytes: cursor.rest().to_vec(), at: cursor.at(), widths };
    let mut cursor = block.cursor();
    let base = cursor.required_address()?;
    cursor.address()?;
    check_end(source, &mut cursor, base)?;
    if cursor.address()?.is_some() {
        return Err(Hdf5Error::unknown("a file driver of its own"));
    }
    // The symbol table entry of the root: the offset of its name, then its object header.
    cursor.length()?;
    cursor.required_address()
}

/// Reads the addresses of the root group and the extension from a superblock of version 2 or 3.
fn read_new(source: &mut CountedFile<'_>, block: &FileBlock) -> Result<(u64, Option<u64>)> {
    let mut cursor = block.cursor();
    cursor.skip(SIGNATURE.len().saturating_add(1))?;
    set_widths(source, &mut cursor)?;
    let length = 16_usize.saturating_add(usize::from(source.widths.address).saturating_mul(4));
    let bytes = block.bytes.get(..length).unwrap_or(&block.bytes).to_vec();
    let mut block = FileBlock { bytes, at: block.at, widths: source.widths };
    source.take_checksum(&mut block)?;
    let mut cursor = block.cursor();
    cursor.skip(12)?;
    let base = cursor.required_address()?;
    let extension = cursor.address()?;
    check_end(source, &mut cursor, base)?;
    Ok((cursor.required_address()?, extension))
}

/// Checks that the file has the stored length. The stored end is relative to the original start of
/// the file; a user block that was added later shifts it.
fn check_end(source: &CountedFile<'_>, cursor: &mut Cursor<'_>, stored_base: u64) -> Result {
    let before = *cursor;
    let stored = cursor.required_address()?;
    let end = stored.checked_sub(stored_base).and_then(|bytes| bytes.checked_add(source.base));
    match end {
        Some(end) if end <= source.size() => Ok(()),
        _ => {
            let size = source.size();
            Err(before.corrupt(format!("it ends at byte {stored} and has {size}: it is cut short")))
        }
    }
}

fn read_extension(source: &mut CountedFile<'_>, address: u64) -> Result {
    let header = ObjectHeader::read(source, address)?;
    for message in &header.messages {
        match message.kind {
            MessageKind::DRIVER_INFORMATION => {
                return Err(Hdf5Error::unknown("a file driver of its own"));
            }
            MessageKind::CACHE_IMAGE => {
                return Err(Hdf5Error::unknown("an image of the metadata cache"));
            }
            MessageKind::SHARED_MESSAGE_TABLE => {
                let mut cursor = message.cursor();
                cursor.version(0, "the table of shared messages")?;
                let address = cursor.required_address()?;
                let index_count = cursor.u8()?;
                source.shared_messages = Some(SharedMessageTable { address, index_count });
            }
            _ => {}
        }
    }
    Ok(())
}
