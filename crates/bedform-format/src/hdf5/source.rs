//! The bytes of the file: fetched in blocks, checked against the size of the file, counted.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::ahead::Ahead;
use super::checksum::lookup3;
use super::cursor::{Block, Widths};
use super::error::{Hdf5Error, ReadError, Result};
use super::superblock::SharedMessageTable;
use crate::Limits;

/// Positioned reads of one file, wherever it lies.
pub trait ReadAt {
    /// Exactly `length` bytes from `offset` on. The parser asks for nothing beyond the file's size.
    ///
    /// # Errors
    /// Whatever the reader has to say; the parser passes it on as [`Hdf5Error::Read`].
    fn read_at(&self, offset: u64, length: usize) -> std::result::Result<Vec<u8>, ReadError>;

    /// The bytes of each of these offsets and lengths, requested all at once; nothing where that is not
    /// faster than [`ReadAt::read_at`] of one after another.
    ///
    /// # Errors
    /// As [`ReadAt::read_at`].
    fn read_many(&self, extents: &[(u64, usize)]) -> ManyRead;
}

/// What [`ReadAt::read_many`] gives.
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

/// Bytes of the blocks that are kept.
const CACHE_BYTES: usize = 16 << 20;
/// What every request counts, so that empty ones end too.
const REQUEST_COST: u64 = 64;
/// Bytes that any file may cost; a small file is read several times over.
const FREE_BYTES: u64 = 16 << 20;
/// How often all bytes of a file may be used: headers once, shared parts more often.
const USES_MAX: u64 = 64;

/// Children of a node in a file that does not say.
const CHUNK_NODE_CHILDREN: u64 = 64;
/// How many nodes or blocks of an index are announced together.
pub(super) const ANNOUNCED_MAX: usize = 256;

/// The file and what has been fetched of it.
pub(super) struct Source<'r> {
    reader: &'r dyn ReadAt,
    size: u64,
    /// What addresses in the file are relative to.
    pub(super) base: u64,
    pub(super) widths: Widths,
    pub(super) limits: Limits,
    /// Where the messages are that objects share, if the file has a table of them.
    pub(super) shared_messages: Option<SharedMessageTable>,
    /// Whether a wrong checksum is an error.
    pub(super) checks_sums: bool,
    /// Children that a node of a B-tree of version 1 for chunks has at most.
    pub(super) chunk_node_children: u64,
    block_bytes: usize,
    blocks: RefCell<Blocks>,
    ahead: RefCell<Ahead>,
    bytes_allowed: u64,
    bytes_left: Cell<u64>,
}

#[derive(Default)]
struct Blocks {
    kept: HashMap<u64, Rc<Vec<u8>>>,
    oldest_first: VecDeque<u64>,
}

impl<'r> Source<'r> {
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

    /// Where in the file an address is.
    pub(super) fn offset_of(&self, address: u64) -> Result<u64> {
        let offset = address.checked_add(self.base).filter(|offset| *offset <= self.size);
        offset.ok_or_else(|| self.beyond(address, 0))
    }

    /// Where in the file `length` bytes at an address are, all of which it has.
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

    /// `length` bytes at an address.
    pub(super) fn block(&self, address: u64, length: u64) -> Result<Block> {
        let at = self.extent_of(address, length)?;
        let bytes_max = self.limits.metadata_bytes_max;
        if length > bytes_max {
            return Err(Hdf5Error::limit(format!("{length} bytes at once, {bytes_max} allowed")));
        }
        self.spend(length)?;
        let bytes = self.fetch(at, length)?;
        Ok(Block { bytes, at, widths: self.widths })
    }

    /// Up to `length` bytes at an address: fewer where the file ends.
    pub(super) fn block_up_to(&self, address: u64, length: u64) -> Result<Block> {
        let left = self.size.saturating_sub(self.offset_of(address)?);
        self.block(address, length.min(left))
    }

    /// `length` bytes at an address, the last four of which are the checksum of the others; without
    /// it.
    pub(super) fn checked_block(&self, address: u64, length: u64) -> Result<Block> {
        let mut block = self.block(address, length)?;
        self.take_checksum(&mut block)?;
        Ok(block)
    }

    /// Takes the checksum off a block whose last four bytes it is.
    pub(super) fn take_checksum(&self, block: &mut Block) -> Result {
        let Some((body, stored)) = block.bytes.split_last_chunk::<4>() else {
            return Err(Hdf5Error::corrupt(block.at, "no room for a checksum"));
        };
        self.check_sum(block.at, body, u32::from_le_bytes(*stored))?;
        let length = body.len();
        block.bytes.truncate(length);
        Ok(())
    }

    /// Checks that `bytes`, which begin at `at`, have this checksum.
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

    /// Counts bytes that are used, or memory that is made of them.
    pub(super) fn spend(&self, bytes: u64) -> Result {
        let left = self.bytes_left.get().checked_sub(bytes.saturating_add(REQUEST_COST));
        self.bytes_left.set(left.unwrap_or(0));
        let allowed = self.bytes_allowed;
        let over = || Hdf5Error::limit_of_file(format!("{allowed} bytes of metadata are allowed"));
        left.map(|_| ()).ok_or_else(over)
    }

    /// Says that these addresses and lengths are used next. Where requests are dear they are fetched at
    /// once, [`ANNOUNCED_MAX`] of them at most; else this does nothing. Lengths may be guesses, and count
    /// for nothing before they are used.
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

    /// The block that holds an offset, and the place in it.
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

impl Blocks {
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
