//! Fractal heaps: the links and attributes of objects that have many.
//!
//! A heap is one space of bytes. It is cut in direct blocks, which hold the objects and double in
//! size from row to row; indirect blocks say where these are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::btree_v2;
use super::cursor::{Block, Cursor, bytes_for};
use super::error::{Hdf5Error, Result};
use super::source::Source;

/// A heap, opened.
pub(super) struct FractalHeap<'s, 'r> {
    source: &'s Source<'r>,
    address: u64,
    id_bytes: usize,
    /// Whether direct blocks have checksums.
    has_checksums: bool,
    huge_index: Option<u64>,
    /// Bytes of the offset and of the length in the number of an object.
    offset_bytes: usize,
    length_bytes: usize,
    table: DoublingTable,
    root: Option<u64>,
    /// Rows of the root, if it is an indirect block.
    root_rows: u16,
    direct: RefCell<DirectBlocks>,
    indirect: RefCell<HashMap<u64, Rc<Vec<Option<u64>>>>>,
}

/// Direct blocks that were read. Objects are asked for in the order of hashes, so that any block may be
/// needed next.
#[derive(Default)]
struct DirectBlocks {
    kept: HashMap<u64, Rc<Block>>,
    bytes: u64,
}

/// How the space of a heap is cut. Rows 0 and 1 have blocks of the first size, later ones of twice
/// that of the row before.
#[derive(Debug, Clone, Copy)]
struct DoublingTable {
    /// Blocks in a row; a power of two.
    width: u64,
    /// Bytes of a block of the first row; a power of two.
    first_bytes: u64,
    /// Bytes of the largest direct block.
    direct_bytes_max: u64,
}

/// A block of the table.
struct TablePlace {
    row: u64,
    column: u64,
    bytes: u64,
    /// First byte in the space of the (part of the) heap that the table cuts.
    start: u64,
}

/// Indirect blocks that are kept of a heap.
const INDIRECT_MAX: usize = 64;
/// Indirect blocks within indirect blocks: sizes double, so that there can be no more.
const DEPTH_MAX: usize = 64;
const FLAG_CHECKSUMS: u8 = 0x02;
/// Longest tiny object whose length fits the first byte of its number.
const TINY_SHORT_MAX: usize = 16;

impl<'s, 'r> FractalHeap<'s, 'r> {
    pub(super) fn open(source: &'s Source<'r>, address: u64) -> Result<Self> {
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
        // Free and used space, counts of objects.
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

    /// The object of this number.
    pub(super) fn object(&self, id: &[u8]) -> Result<Block> {
        let (at, widths) = (self.source.offset_of(self.address)?, self.source.widths);
        let id = Block { bytes: id.to_vec(), at, widths };
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

    fn managed(&self, offset: u64, length: u64) -> Result<Block> {
        self.source.spend(length)?;
        let (block, start) = self.direct_block_of(offset)?;
        let from = usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let mut cursor = block.cursor();
        cursor.skip(from)?;
        let at = cursor.at();
        let bytes = cursor.take(usize::try_from(length).unwrap_or(usize::MAX))?.to_vec();
        Ok(Block { bytes, at, widths: block.widths })
    }

    /// An object too large for a direct block: its number has its place, or finds it in an index.
    fn huge(&self, mut cursor: Cursor<'_>) -> Result<Block> {
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

    /// An object that lies in its number.
    fn tiny(&self, first: u8, mut cursor: Cursor<'_>) -> Result<Block> {
        let low = usize::from(first & 0x0f);
        let is_short = self.id_bytes.saturating_sub(1) <= TINY_SHORT_MAX.saturating_add(1);
        let length = if is_short { low } else { low << 8 | usize::from(cursor.u8()?) };
        let at = cursor.at();
        let bytes = cursor.take(length.saturating_add(1))?.to_vec();
        Ok(Block { bytes, at, widths: self.source.widths })
    }

    /// The direct block that holds an offset, and the offset where it begins.
    fn direct_block_of(&self, offset: u64) -> Result<(Rc<Block>, u64)> {
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

    fn direct_block(&self, address: u64, length: u64) -> Result<Rc<Block>> {
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

    /// Addresses of the blocks of an indirect block, row by row.
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

    /// What both kinds of block begin with: signature, version, heap, offset.
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
    fn keep(&mut self, address: u64, block: &Rc<Block>, bytes_max: u64) {
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

    /// Bits of the bytes of the first row.
    fn first_row_bits(self) -> u32 {
        self.first_bytes.trailing_zeros().saturating_add(self.width.trailing_zeros())
    }

    /// The block that holds an offset.
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

    /// Rows of an indirect block that cuts so many bytes.
    fn rows_of(self, bytes: u64) -> u64 {
        let bits = bytes.trailing_zeros().saturating_sub(self.first_row_bits());
        u64::from(bits).saturating_add(1)
    }
}
