//! The bytes of a file: read in blocks, checked against the size of the file, and counted.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::ahead::ReadaheadCache;
use super::checksum::lookup3;
use super::cursor::{FileBlock, Widths};
use super::error::{Hdf5Error, ReadError, Result};
use super::superblock::SharedMessageTable;
use crate::Limits;

/// Positioned reads of one file.
pub trait ReadAt {
    /// Reads exactly `length` bytes from `offset`. The parser never reads past the file's size.
    ///
    /// # Errors
    /// Any error; the parser returns it as [`Hdf5Error::Read`].
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError>;

    /// Reads several extents, each an offset and a length, concurrently; `None` if that is not
    /// faster than [`ReadAt::read_at`] of one after another.
    ///
    /// # Errors
    /// As [`ReadAt::read_at`].
    fn read_many(&self, extents: &[(u64, usize)]) -> ManyRead;
}

/// The result of [`ReadAt::read_many`].
pub type ManyRead = std::result::Result<Option<Vec<Vec<u8>>>, ReadError>;

impl ReadAt for &[u8] {
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError> {
        let start = usize::try_from(offset).ok();
        let taken = start.and_then(|start| self.get(start..)?.get(..length));
        taken.map(<[u8]>::to_vec).ok_or_else(|| "beyond the end of the bytes".into())
    }

    fn read_many(&self, _: &[(u64, usize)]) -> ManyRead {
        Ok(None)
    }
}

/// Largest total length of cached blocks, in bytes.
const CACHE_BYTES: usize = 16 << 20;
/// Charged per request in addition to its bytes, so that loops of empty requests end.
const REQUEST_COST: u64 = 64;
/// Bytes that may be used of a file in addition to [`USES_MAX`] times its size; a small file is
/// read several times.
const FREE_BYTES: u64 = 16 << 20;
/// How often each byte of a file may be used on average: headers are used once, shared parts more
/// often.
const USES_MAX: u64 = 64;

/// Children per node, in a file that does not store the number.
const CHUNK_NODE_CHILDREN: u64 = 64;
/// Largest number of index nodes or blocks in one announcement.
pub(super) const ANNOUNCED_MAX: usize = 256;

/// An open file with its cache of blocks.
pub(super) struct CountedFile<'r> {
    reader: &'r dyn ReadAt,
    size: u64,
    /// Offset of address 0 in the file.
    pub(super) base: u64,
    pub(super) widths: Widths,
    pub(super) limits: Limits,
    /// Location of the table of shared messages, if the file has one.
    pub(super) shared_messages: Option<SharedMessageTable>,
    /// True if a wrong checksum is an error.
    pub(super) checks_sums: bool,
    /// Largest number of children of a node in a version 1 B-tree of chunks.
    pub(super) chunk_node_children: u64,
    block_bytes: usize,
    blocks: RefCell<BlockCache>,
    ahead: RefCell<ReadaheadCache>,
    bytes_allowed: u64,
    bytes_left: Cell<u64>,
}

#[derive(Default)]
struct BlockCache {
    kept: HashMap<u64, Rc<Vec<u8>>>,
    oldest_first: VecDeque<u64>,
}

impl<'r> CountedFile<'r> {
    pub(super) fn new(
        reader: &'r dyn ReadAt,
        size: u64,
        block_bytes: usize,
        limits: &Limits,
    ) -> Self {
        let allowed = size.saturating_mul(USES_MAX).saturating_add(FREE_BYTES);
        let bytes_allowed = allowed.min(limits.hdf5_bytes_max);
        Self {
            reader,
            size,
            base: 0,
            widths: Widths { address: 8, length: 8 },
            limits: limits.clone(),
            shared_messages: None,
            checks_sums: true,
            chunk_node_children: CHUNK_NODE_CHILDREN,
            block_bytes: block_bytes.max(512),
            blocks: RefCell::default(),
            ahead: RefCell::default(),
            bytes_allowed,
            bytes_left: Cell::new(bytes_allowed),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Converts an address to an offset in the file.
    pub(super) fn offset_of(&self, address: u64) -> Result<u64> {
        let offset = address.checked_add(self.base).filter(|offset| *offset <= self.size);
        offset.ok_or_else(|| self.beyond(address, 0))
    }

    /// Converts an address to an offset, and checks that the file has `length` bytes there.
    pub(super) fn extent_of(&self, address: u64, length: u64) -> Result<u64> {
        let offset = self.offset_of(address)?;
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(offset),
            _ => Err(self.beyond(offset, length)),
        }
    }

    fn beyond(&self, offset: u64, length: u64) -> Hdf5Error {
        let what = format!("{length} bytes of a file of {}: it is cut short or damaged", self.size);
        Hdf5Error::corrupt(offset, what)
    }

    /// Reads `length` bytes at an address.
    pub(super) fn block(&self, address: u64, length: u64) -> Result<FileBlock> {
        let at = self.extent_of(address, length)?;
        let bytes_max = self.limits.metadata_bytes_max;
        if length > bytes_max {
            return Err(Hdf5Error::limit(format!("{length} bytes at once, {bytes_max} allowed")));
        }
        self.spend(length)?;
        let bytes = self.fetch(at, length)?;
        Ok(FileBlock { bytes, at, widths: self.widths })
    }

    /// Reads up to `length` bytes at an address; fewer at the end of the file.
    pub(super) fn block_up_to(&self, address: u64, length: u64) -> Result<FileBlock> {
        let left = self.size.saturating_sub(self.offset_of(address)?);
        self.block(address, length.min(left))
    }

    /// Reads `length` bytes at an address, verifies the checksum in the last four, and returns the
    /// others.
    pub(super) fn checked_block(&self, address: u64, length: u64) -> Result<FileBlock> {
        let mut block = self.block(address, length)?;
        self.take_checksum(&mut block)?;
        Ok(block)
    }

    /// Verifies and removes the checksum in the last four bytes of a block.
    pub(super) fn take_checksum(&self, block: &mut FileBlock) -> Result {
        let Some((body, stored)) = block.bytes.split_last_chunk::<4>() else {
            return Err(Hdf5Error::corrupt(block.at, "no room for a checksum"));
        };
        self.check_sum(block.at, body, u32::from_le_bytes(*stored))?;
        let length = body.len();
        block.bytes.truncate(length);
        Ok(())
    }

    /// Verifies the checksum of `bytes`, which start at offset `at`.
    pub(super) fn check_sum(&self, at: u64, bytes: &[u8], stored: u32) -> Result {
        if !self.checks_sums {
            return Ok(());
        }
        match lookup3(bytes) {
            found if found == stored => Ok(()),
            found => {
                let what = format!("the checksum is {found:08x}, expected {stored:08x}");
                Err(Hdf5Error::corrupt(at, what))
            }
        }
    }

    /// Charges bytes that are used, or memory that is allocated for them, to the limit of the file.
    pub(super) fn spend(&self, bytes: u64) -> Result {
        let left = self.bytes_left.get().checked_sub(bytes.saturating_add(REQUEST_COST));
        self.bytes_left.set(left.unwrap_or(0));
        let allowed = self.bytes_allowed;
        let over = || Hdf5Error::limit_of_file(format!("{allowed} bytes of metadata are allowed"));
        left.map(|_| ()).ok_or_else(over)
    }

    /// Announces extents, each an address and a length, that are read next. If the reader gains by
    /// concurrent requests, up to [`ANNOUNCED_MAX`] of them are fetched at once. Lengths may be
    /// guesses; they are charged only when used.
    pub(super) fn announce(&self, extents: impl Iterator<Item = (u64, u64)>) -> Result {
        if self.ahead.borrow().is_useless() {
            return Ok(());
        }
        let in_file = |(address, length): (u64, u64)| {
            let offset = address.checked_add(self.base).filter(|offset| *offset < self.size)?;
            let length = length.min(self.size.saturating_sub(offset));
            let last = offset.saturating_add(length.saturating_sub(1));
            let (blocks, kept) = (self.place_of(offset).0..=self.place_of(last).0, &self.blocks);
            let is_kept = blocks.clone().all(|number| kept.borrow().kept.contains_key(&number));
            (length > 0 && !is_kept).then_some((offset, length))
        };
        let wanted = extents.take(ANNOUNCED_MAX).filter_map(in_file).collect();
        self.ahead.borrow_mut().fetch(self.reader, wanted, self.block_bytes as u64)
    }

    fn fetch(&self, mut offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut left = usize::try_from(length)
            .map_err(|_| Hdf5Error::limit(format!("{length} bytes of metadata at once")))?;
        let mut bytes = Vec::with_capacity(left);
        while left > 0 {
            let (block, within) = match self.ahead.borrow().at(offset) {
                Some(found) => found,
                None => {
                    let (number, within) = self.place_of(offset);
                    (self.kept_or_read(number)?, within)
                }
            };
            let part = block.get(within..).unwrap_or_default();
            let part = part.get(..left).unwrap_or(part);
            if part.is_empty() {
                return Err(self.beyond(offset, left as u64));
            }
            bytes.extend_from_slice(part);
            left = left.saturating_sub(part.len());
            offset = offset.saturating_add(part.len() as u64);
        }
        Ok(bytes)
    }

    /// Returns the number of the block that contains `offset`, and the position in it.
    fn place_of(&self, offset: u64) -> (u64, usize) {
        let block_bytes = self.block_bytes as u64;
        let number = offset.checked_div(block_bytes).unwrap_or(0);
        let within = offset.checked_rem(block_bytes).unwrap_or(0);
        (number, usize::try_from(within).unwrap_or(usize::MAX))
    }

    fn kept_or_read(&self, number: u64) -> Result<Rc<Vec<u8>>> {
        if let Some(block) = self.blocks.borrow().kept.get(&number) {
            return Ok(Rc::clone(block));
        }
        let start = number.saturating_mul(self.block_bytes as u64);
        let length = self.size.saturating_sub(start).min(self.block_bytes as u64);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = self.reader.read_at(start, length).map_err(Hdf5Error::Read)?;
        if bytes.len() != length {
            let what = format!("{} bytes read at {start}, {length} asked for", bytes.len());
            return Err(Hdf5Error::Read(what.into()));
        }
        let block = Rc::new(bytes);
        let count_max = CACHE_BYTES.checked_div(self.block_bytes).unwrap_or(1);
        self.blocks.borrow_mut().keep(number, &block, count_max);
        Ok(block)
    }
}

impl BlockCache {
    fn keep(&mut self, number: u64, block: &Rc<Vec<u8>>, count_max: usize) {
        while self.oldest_first.len() >= count_max.max(1) {
            if let Some(oldest) = self.oldest_first.pop_front() {
                self.kept.remove(&oldest);
            }
        }
        self.kept.insert(number, Rc::clone(block));
        self.oldest_first.push_back(number);
    }
}
