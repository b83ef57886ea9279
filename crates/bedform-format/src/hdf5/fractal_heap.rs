//! Fractal heaps, which store the links or attributes of objects with many.
//!
//! A heap is one address space. It is divided into direct blocks, which contain the heap's objects;
//! their size doubles from row to row. Indirect blocks hold the addresses of other blocks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::btree_v2;
use super::cursor::{Cursor, FileBlock, bytes_for};
use super::error::{Hdf5Error, Result};
use super::source::CountedFile;

/// An open heap.
pub(super) struct FractalHeap<'s, 'r> {
    source: &'s CountedFile<'r>,
    address: u64,
    id_bytes: usize,
    /// True if direct blocks have checksums.
    has_checksums: bool,
    huge_index: Option<u64>,
    /// Bytes of the offset, and of the length, in an object's heap ID.
    offset_bytes: usize,
    length_bytes: usize,
    table: DoublingTable,
    root: Option<u64>,
    /// Number of rows of the root, if it is an indirect block.
    root_rows: u16,
    direct: RefCell<DirectBlocks>,
    indirect: RefCell<HashMap<u64, Rc<Vec<Option<u64>>>>>,
}

/// A cache of direct blocks. Objects are looked up in the order of name hashes, so accesses to
/// blocks are random.
#[derive(Default)]
struct DirectBlocks {
    kept: HashMap<u64, Rc<FileBlock>>,
    bytes: u64,
}

/// The division of a heap into rows of blocks. Blocks in rows 0 and 1 have the first size; it
/// doubles with each later row.
#[derive(Debug, Clone, Copy)]
struct DoublingTable {
    /// Number of blocks in a row; a power of two.
    width: u64,
    /// Length of a block of the first row in bytes; a power of two.
    first_bytes: u64,
    /// Length of the largest direct block in bytes.
    direct_bytes_max: u64,
}

/// The position of a block in the table.
struct TablePlace {
    row: u64,
    column: u64,
    bytes: u64,
    /// Offset of its first byte, relative to the start of the table's part of the heap.
    start: u64,
}

/// Largest number of cached indirect blocks of a heap.
const INDIRECT_MAX: usize = 64;
/// Largest depth of nested indirect blocks: sizes double at each level, so 64 bits allow no more.
const DEPTH_MAX: usize = 64;
const FLAG_CHECKSUMS: u8 = 0x02;
/// Largest length of a tiny object that fits the first byte of its heap ID.
const TINY_SHORT_MAX: usize = 16;

impl<'s, 'r> FractalHeap<'s, 'r> {
    pub(super) fn open(source: &'s CountedFile<'r>, address: u64) -> Result<Self> {
        let (addresses, lengths) = (source.widths.address, source.widths.length);
        let fixed = 26_u64.saturating_add(u64::from(addresses).saturating_mul(3));
        let length = fixed.saturating_add(u64::from(lengths).saturating_mul(12));
        let prefix = source.block(address, 10)?;
        let mut cursor = prefix.cursor();
        cursor.signature(*b"FRHP")?;
        cursor.version(0, "a fractal heap")?;
        let (id_bytes, filter_bytes) = (cursor.u16()?, cursor.u16()?);
        if filter_bytes != 0 {
            return Err(Hdf5Error::unknown("a heap that goes through filters"));
        }
        let block = source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        cursor.skip(9)?;
        let flags = cursor.u8()?;
        let managed_max = u64::from(cursor.u32()?);
        cursor.length()?;
        let huge_index = cursor.address()?;
        cursor.length()?;
        cursor.address()?;
        // Sizes of free and used space, and counts of objects.
        for _ in 0..8 {
            cursor.length()?;
        }
        let start = cursor;
        let width = u64::from(cursor.u16()?);
        let (first_bytes, direct_bytes_max) = (cursor.length()?, cursor.length()?);
        let space_bits = cursor.u16()?;
        cursor.u16()?;
        let root = cursor.address()?;
        let root_rows = cursor.u16()?;
        let table = DoublingTable { width, first_bytes, direct_bytes_max };
        if space_bits > 64 || !table.is_possible() {
            return Err(start.corrupt("a heap of impossible sizes"));
        }
        Ok(Self {
            source,
            address,
            id_bytes: id_bytes.into(),
            has_checksums: flags & FLAG_CHECKSUMS != 0,
            huge_index,
            offset_bytes: usize::from(space_bits.div_ceil(8)),
            length_bytes: bytes_for(direct_bytes_max.min(managed_max)),
            table,
            root,
            root_rows,
            direct: RefCell::default(),
            indirect: RefCell::default(),
        })
    }

    /// Returns the object with this heap ID.
    pub(super) fn object(&self, id: &[u8]) -> Result<FileBlock> {
        let (at, widths) = (self.source.offset_of(self.address)?, self.source.widths);
        let id = FileBlock { bytes: id.to_vec(), at, widths };
        let mut cursor = id.cursor();
        let first = cursor.u8()?;
        match first >> 4 {
            0 => {
                let offset = cursor.uint(self.offset_bytes)?;
                let length = cursor.uint(self.length_bytes)?;
                self.managed(offset, length)
            }
            1 => self.huge(cursor),
            2 => self.tiny(first, cursor),
            _ => Err(Hdf5Error::unknown(format!("a heap object of form {:#x}", first >> 4))),
        }
    }

    fn managed(&self, offset: u64, length: u64) -> Result<FileBlock> {
        self.source.spend(length)?;
        let (block, start) = self.direct_block_of(offset)?;
        let from = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut cursor = block.cursor();
        cursor.skip(from)?;
        let at = cursor.at();
        let bytes = cursor.take(usize::try_from(length).unwrap_or(usize::MAX))?.to_vec();
        Ok(FileBlock { bytes, at, widths: block.widths })
    }

    /// Reads an object too large for a direct block. Its heap ID holds its extent, or a key of the
    /// index of such objects.
    fn huge(&self, mut cursor: Cursor<'_>) -> Result<FileBlock> {
        let widths = self.source.widths;
        let direct_bytes = usize::from(widths.address).saturating_add(widths.length.into());
        if direct_bytes < self.id_bytes {
            let (address, length) = (cursor.required_address()?, cursor.length()?);
            return self.source.block(address, length);
        }
        let key = cursor.uint(self.id_bytes.saturating_sub(1).min(8))?;
        let index = self.huge_index.ok_or_else(|| cursor.corrupt("no index of huge objects"))?;
        let mut found = None;
        btree_v2::for_each(self.source, index, &[1], &mut |_, mut record| {
            let (address, length) = (record.required_address()?, record.length()?);
            if record.length()? == key {
                found = Some((address, length));
            }
            Ok(())
        })?;
        let (address, length) = found.ok_or_else(|| cursor.corrupt("a huge object is missing"))?;
        self.source.block(address, length)
    }

    /// Reads an object that is stored in its heap ID.
    fn tiny(&self, first: u8, mut cursor: Cursor<'_>) -> Result<FileBlock> {
        let low = usize::from(first & 0x0f);
        let is_short = self.id_bytes.saturating_sub(1) <= TINY_SHORT_MAX.saturating_add(1);
        let length = if is_short { low } else { low << 8 | usize::from(cursor.u8()?) };
        let at = cursor.at();
        let bytes = cursor.take(length.saturating_add(1))?.to_vec();
        Ok(FileBlock { bytes, at, widths: self.source.widths })
    }

    /// Returns the direct block that contains `offset`, and the offset of the block's first byte.
    fn direct_block_of(&self, offset: u64) -> Result<(Rc<FileBlock>, u64)> {
        let missing = || Hdf5Error::corrupt(self.address, "a heap object that is not in its heap");
        let mut address = self.root.ok_or_else(missing)?;
        if self.root_rows == 0 {
            let bytes = self.table.first_bytes;
            return Ok((self.direct_block(address, bytes)?, 0));
        }
        let mut rows = u64::from(self.root_rows);
        let mut base = 0_u64;
        for _ in 0..DEPTH_MAX {
            let place = self.table.place_of(offset.saturating_sub(base));
            let entries = self.indirect_block(address, rows)?;
            let position = place.row.saturating_mul(self.table.width).saturating_add(place.column);
            let entry = usize::try_from(position).ok().and_then(|at| entries.get(at));
            address = entry.copied().flatten().ok_or_else(missing)?;
            base = base.saturating_add(place.start);
            if place.bytes <= self.table.direct_bytes_max {
                return Ok((self.direct_block(address, place.bytes)?, base));
            }
            rows = self.table.rows_of(place.bytes);
        }
        Err(missing())
    }

    fn direct_block(&self, address: u64, length: u64) -> Result<Rc<FileBlock>> {
        if let Some(block) = self.direct.borrow().kept.get(&address) {
            return Ok(Rc::clone(block));
        }
        let block = self.source.block(address, length)?;
        let mut cursor = block.cursor();
        self.prefix(&mut cursor, *b"FHDB")?;
        if self.has_checksums {
            let start = cursor;
            let stored = cursor.u32()?;
            let mut bytes = block.bytes.clone();
            let place = block.bytes.len().saturating_sub(start.len());
            bytes.iter_mut().skip(place).take(4).for_each(|byte| *byte = 0);
            self.source.check_sum(block.at, &bytes, stored)?;
        }
        let block = Rc::new(block);
        self.direct.borrow_mut().keep(address, &block, self.source.limits.metadata_bytes_max);
        Ok(block)
    }

    /// Returns the addresses in an indirect block, row by row.
    fn indirect_block(&self, address: u64, rows: u64) -> Result<Rc<Vec<Option<u64>>>> {
        if let Some(entries) = self.indirect.borrow().get(&address) {
            return Ok(Rc::clone(entries));
        }
        let count = rows.saturating_mul(self.table.width);
        let width = u64::from(self.source.widths.address);
        let prefix = width.saturating_add(9).saturating_add(self.offset_bytes as u64);
        let length = count.saturating_mul(width).saturating_add(prefix);
        let block = self.source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        self.prefix(&mut cursor, *b"FHIB")?;
        let entries = (0..count).map(|_| cursor.address()).collect::<Result<Vec<_>>>()?;
        let entries = Rc::new(entries);
        let mut kept = self.indirect.borrow_mut();
        if kept.len() >= INDIRECT_MAX {
            kept.clear();
        }
        kept.insert(address, Rc::clone(&entries));
        Ok(entries)
    }

    /// Checks the prefix of a block: signature, version and heap address. Skips the offset after
    /// it.
    fn prefix(&self, cursor: &mut Cursor<'_>, signature: [u8; 4]) -> Result {
        cursor.signature(signature)?;
        cursor.version(0, "a heap block")?;
        if cursor.address()? != Some(self.address) {
            return Err(cursor.corrupt("a block of another heap"));
        }
        cursor.skip(self.offset_bytes)
    }
}

impl DirectBlocks {
    fn keep(&mut self, address: u64, block: &Rc<FileBlock>, bytes_max: u64) {
        let bytes = block.bytes.len() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > bytes_max {
            self.kept.clear();
            self.bytes = bytes;
        }
        self.kept.insert(address, Rc::clone(block));
    }
}

impl DoublingTable {
    fn is_possible(self) -> bool {
        let is_size = |bytes: u64| bytes.is_power_of_two() && bytes < 1 << 32;
        is_size(self.width)
            && is_size(self.first_bytes)
            && is_size(self.direct_bytes_max)
            && self.first_bytes <= self.direct_bytes_max
    }

    /// Returns the binary logarithm of the length of the first row in bytes.
    fn first_row_bits(self) -> u32 {
        self.first_bytes.trailing_zeros().saturating_add(self.width.trailing_zeros())
    }

    /// Returns the position of the block that contains `offset`.
    fn place_of(self, offset: u64) -> TablePlace {
        let row_bits = self.first_row_bits();
        let high_bit = offset.checked_ilog2().unwrap_or(0);
        let (row, row_start) = match high_bit.checked_sub(row_bits) {
            None => (0_u32, 0_u64),
            Some(above) => (above.saturating_add(1), 1_u64.checked_shl(high_bit).unwrap_or(0)),
        };
        let block_bits = self.first_bytes.trailing_zeros().saturating_add(row.saturating_sub(1));
        let column = offset.saturating_sub(row_start).checked_shr(block_bits).unwrap_or(0);
        let within = column.checked_shl(block_bits).unwrap_or(0);
        TablePlace {
            row: row.into(),
            column,
            bytes: 1_u64.checked_shl(block_bits).unwrap_or(u64::MAX),
            start: row_start.saturating_add(within),
        }
    }

    /// Returns the number of rows of an indirect block that covers `bytes` bytes.
    fn rows_of(self, bytes: u64) -> u64 {
        let bits = bytes.trailing_zeros().saturating_sub(self.first_row_bits());
        u64::from(bits).saturating_add(1)
    }
}
