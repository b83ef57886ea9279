//! Extensible arrays: the chunk index of datasets that can grow along one axis, with an element for
//! each chunk.
//!
//! An index block holds the first elements, the addresses of the first data blocks, and those of
//! secondary blocks, which hold the addresses of further data blocks. Super block `n`, stored as a
//! secondary block or not, stands for `2^(n/2)` data blocks. Each has `2^((n+1)/2)` times the
//! smallest number of elements.

use super::numbering::Numbering;
use super::{IndexElements, Indexed, TakeChunk, is_page_written};
use crate::hdf5::cursor::{Cursor, FileBlock};
use crate::hdf5::error::{Hdf5Error, Result};
use crate::hdf5::source::{ANNOUNCED_MAX, CountedFile};

pub(super) fn for_each(indexed: &Indexed<'_, '_>, address: u64, take: TakeChunk<'_>) -> Result {
    let header = ExtensibleArrayHeader::read(indexed.source, address)?;
    let Some(index_block) = header.index_block else { return Ok(()) };
    let numbering = Numbering::of(indexed, true);
    let is_filtered = indexed.is_filtered();
    let elements = IndexElements::new(indexed, numbering, header.element_bytes, is_filtered);
    ExtensibleArrayWalk { source: indexed.source, header, elements }.index_block(index_block, take)
}

struct ExtensibleArrayHeader {
    address: u64,
    /// 0 for unfiltered chunks, 1 for filtered chunks.
    client: u8,
    element_bytes: u8,
    /// Binary logarithm of the largest number of elements.
    count_bits: u8,
    /// Number of elements in the index block.
    index_elements: u8,
    /// Number of elements in the smallest data block; a power of two.
    block_elements_min: u8,
    /// Number of data block addresses in the smallest secondary block; a power of two.
    pointers_min: u8,
    /// Binary logarithm of the number of elements in a page.
    page_bits: u8,
    index_block: Option<u64>,
}

/// The number of data blocks in a super block, and of elements in each.
struct SuperBlock {
    blocks: u64,
    block_elements: u64,
}

struct ExtensibleArrayWalk<'i, 's, 'r> {
    source: &'s CountedFile<'r>,
    header: ExtensibleArrayHeader,
    elements: IndexElements<'i, 's, 'r>,
}

impl ExtensibleArrayHeader {
    fn read(source: &CountedFile<'_>, address: u64) -> Result<Self> {
        let (addresses, lengths) = (source.widths.address, source.widths.length);
        let counts = u64::from(lengths).saturating_mul(6);
        let length = 16_u64.saturating_add(addresses.into()).saturating_add(counts);
        let block = source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        cursor.signature(*b"EAHD")?;
        cursor.version(0, "an extensible array")?;
        let [client, element_bytes, count_bits, index_elements] = cursor.array()?;
        let [block_elements_min, pointers_min, page_bits] = cursor.array()?;
        let is_possible = block_elements_min.is_power_of_two()
            && pointers_min.is_power_of_two()
            && count_bits <= 64
            && page_bits <= 32;
        if !is_possible {
            return Err(cursor.corrupt("an extensible array of impossible sizes"));
        }
        for _ in 0..6 {
            cursor.length()?;
        }
        let index_block = cursor.address()?;
        Ok(Self {
            address,
            client,
            element_bytes,
            count_bits,
            index_elements,
            block_elements_min,
            pointers_min,
            page_bits,
            index_block,
        })
    }

    fn super_block(&self, number: u32) -> SuperBlock {
        let doublings = number.saturating_add(1) / 2;
        let block_elements = u64::from(self.block_elements_min);
        SuperBlock {
            blocks: 1_u64.checked_shl(number / 2).unwrap_or(u64::MAX),
            block_elements: block_elements.checked_shl(doublings).unwrap_or(u64::MAX),
        }
    }

    /// Returns the number of super blocks of the whole array, and of those whose data blocks the
    /// index block addresses.
    fn super_block_counts(&self) -> (u32, u32) {
        let smallest = self.block_elements_min.trailing_zeros();
        let all = u32::from(self.count_bits).saturating_sub(smallest).saturating_add(1);
        let direct = self.pointers_min.trailing_zeros().saturating_mul(2);
        (all, direct.min(all))
    }

    fn check_prefix(&self, cursor: &mut Cursor<'_>, signature: [u8; 4]) -> Result {
        cursor.signature(signature)?;
        cursor.version(0, "a block of an extensible array")?;
        if cursor.u8()? != self.client || cursor.address()? != Some(self.address) {
            return Err(cursor.corrupt("a block of another extensible array"));
        }
        Ok(())
    }

    /// Bytes of the array offset in the prefix of blocks other than the index block.
    fn offset_bytes(&self) -> u64 {
        u64::from(self.count_bits.div_ceil(8))
    }

    fn page_elements(&self) -> u64 {
        1_u64.checked_shl(self.page_bits.into()).unwrap_or(u64::MAX)
    }
}

impl ExtensibleArrayWalk<'_, '_, '_> {
    fn index_block(&mut self, address: u64, take: TakeChunk<'_>) -> Result {
        let (all, direct) = self.header.super_block_counts();
        let data_blocks = u64::from(self.header.pointers_min).saturating_sub(1).saturating_mul(2);
        let pointers = data_blocks.saturating_add(all.saturating_sub(direct).into());
        let width = u64::from(self.source.widths.address);
        let elements = u64::from(self.header.index_elements);
        let length = elements
            .saturating_mul(self.header.element_bytes.into())
            .saturating_add(pointers.saturating_mul(width))
            .saturating_add(width)
            .saturating_add(10);
        let block = self.source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        self.header.check_prefix(&mut cursor, *b"EAIB")?;
        self.elements.take_from(&mut cursor, elements, take)?;
        self.announce_named_by_index(cursor, direct, all)?;
        for number in 0..direct {
            let SuperBlock { blocks, block_elements } = self.header.super_block(number);
            for _ in 0..blocks {
                match cursor.address()? {
                    Some(address) => self.data_block(address, block_elements, None, take)?,
                    None => self.elements.skip(block_elements),
                }
            }
        }
        for number in direct..all {
            let content = self.header.super_block(number);
            match cursor.address()? {
                Some(address) => self.secondary_block(address, &content, take)?,
                None => {
                    self.elements.skip(content.blocks.saturating_mul(content.block_elements));
                }
            }
        }
        Ok(())
    }

    /// Announces the data blocks of the first super blocks, and the secondary blocks of the others.
    fn announce_named_by_index(&self, mut pointers: Cursor<'_>, direct: u32, all: u32) -> Result {
        let contents = (0..all).map(|number| self.header.super_block(number));
        let lengths = contents.enumerate().flat_map(|(number, content)| {
            let is_direct = number < direct as usize;
            let length = if is_direct {
                self.data_block_bytes(content.block_elements)
            } else {
                self.secondary_block_bytes(&content)
            };
            let count = if is_direct { content.blocks } else { 1 };
            (0..count).map(move |_| length)
        });
        let mut extents = Vec::new();
        for length in lengths {
            let Ok(pointer) = pointers.address() else { break };
            extents.extend(pointer.map(|address| (address, length)));
        }
        self.source.announce(extents.into_iter())
    }

    /// Length of a data block without pages, in bytes.
    fn data_block_bytes(&self, elements: u64) -> u64 {
        let bytes = elements.saturating_mul(self.header.element_bytes.into());
        bytes.saturating_add(self.prefix_bytes())
    }

    /// Bytes of a data block's prefix and checksum.
    fn prefix_bytes(&self) -> u64 {
        let width = u64::from(self.source.widths.address);
        width.saturating_add(self.header.offset_bytes()).saturating_add(10)
    }

    /// Returns the number of pages in each data block of a super block; 0 if the data blocks are
    /// not paged.
    fn pages_of(&self, content: &SuperBlock) -> u64 {
        let page_elements = self.header.page_elements();
        match content.block_elements.checked_div(page_elements) {
            Some(pages) if content.block_elements > page_elements => pages,
            _ => 0,
        }
    }

    fn secondary_block_bytes(&self, content: &SuperBlock) -> u64 {
        let width = u64::from(self.source.widths.address);
        let bitmap_bytes = self.pages_of(content).div_ceil(8);
        bitmap_bytes
            .saturating_add(width)
            .saturating_mul(content.blocks)
            .saturating_add(self.prefix_bytes())
    }

    fn secondary_block(
        &mut self,
        address: u64,
        content: &SuperBlock,
        take: TakeChunk<'_>,
    ) -> Result {
        let pages = self.pages_of(content);
        let bitmap_bytes = pages.div_ceil(8);
        let length = self.secondary_block_bytes(content);
        let block = self.source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        self.header.check_prefix(&mut cursor, *b"EASB")?;
        cursor.uint(usize::try_from(self.header.offset_bytes()).unwrap_or(usize::MAX))?;
        let bitmap_bytes = bitmap_bytes.saturating_mul(content.blocks);
        let bitmap = cursor.take(usize::try_from(bitmap_bytes).unwrap_or(usize::MAX))?;
        let block_bytes = self.data_block_bytes(content.block_elements);
        for number in 0..content.blocks {
            if number.is_multiple_of(ANNOUNCED_MAX as u64) {
                let mut pointers = cursor;
                let left = content.blocks.saturating_sub(number);
                let pointers = (0..left).map_while(|_| pointers.address().ok());
                let extents = pointers.flatten().map(|address| (address, block_bytes));
                self.source.announce(extents.take(ANNOUNCED_MAX))?;
            }
            // The bitmap has one bit for each page of all data blocks, regardless of the space
            // reserved for each block's bits.
            let pages = (pages > 0).then_some((bitmap, number.saturating_mul(pages)));
            match cursor.address()? {
                Some(address) => self.data_block(address, content.block_elements, pages, take)?,
                None => self.elements.skip(content.block_elements),
            }
        }
        Ok(())
    }

    /// Reads a data block. In a paged block, reads the pages whose bits are set; `pages` gives the
    /// bitmap and the first bit.
    fn data_block(
        &mut self,
        address: u64,
        count: u64,
        pages: Option<(&[u8], u64)>,
        take: TakeChunk<'_>,
    ) -> Result {
        let prefix_bytes = self.prefix_bytes();
        let element_bytes = u64::from(self.header.element_bytes);
        let page_elements = self.header.page_elements();
        let Some((bitmap, first_bit)) = pages else {
            if count > page_elements {
                return Err(Hdf5Error::unknown("an index block whose data blocks have pages"));
            }
            let block = self.source.checked_block(address, self.data_block_bytes(count))?;
            let mut cursor = self.data_block_elements(&block)?;
            return self.elements.take_from(&mut cursor, count, take);
        };
        let block = self.source.checked_block(address, prefix_bytes)?;
        self.data_block_elements(&block)?;
        let page_bytes = page_elements.saturating_mul(element_bytes).saturating_add(4);
        let mut page_address = address.saturating_add(prefix_bytes);
        for page in 0..count.checked_div(page_elements).unwrap_or(0) {
            if is_page_written(bitmap, first_bit.saturating_add(page)) {
                let block = self.source.checked_block(page_address, page_bytes)?;
                self.elements.take_from(&mut block.cursor(), page_elements, take)?;
            } else {
                self.elements.skip(page_elements);
            }
            page_address = page_address.saturating_add(page_bytes);
        }
        Ok(())
    }

    /// Returns a cursor at the first element of a data block.
    fn data_block_elements<'b>(&self, block: &'b FileBlock) -> Result<Cursor<'b>> {
        let mut cursor = block.cursor();
        self.header.check_prefix(&mut cursor, *b"EADB")?;
        cursor.uint(usize::try_from(self.header.offset_bytes()).unwrap_or(usize::MAX))?;
        Ok(cursor)
    }
}
