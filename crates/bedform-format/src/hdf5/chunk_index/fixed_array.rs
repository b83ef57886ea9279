//! Fixed arrays: the chunk index of datasets of bounded size, with an element for each chunk.

use super::numbering::Numbering;
use super::{IndexElements, Indexed, TakeChunk, is_page_written};
use crate::hdf5::error::Result;
use crate::hdf5::source::{ANNOUNCED_MAX, CountedFile};

pub(super) fn for_each(indexed: &Indexed<'_, '_>, address: u64, take: TakeChunk<'_>) -> Result {
    let source = indexed.source;
    let header = FixedArrayHeader::read(source, address)?;
    let Some(block_address) = header.block else { return Ok(()) };
    let numbering = Numbering::of(indexed, false);
    let is_filtered = indexed.is_filtered();
    let mut elements = IndexElements::new(indexed, numbering, header.element_bytes, is_filtered);
    let page_elements = 1_u64.checked_shl(header.page_bits.into()).unwrap_or(u64::MAX);
    let prefix_bytes = u64::from(source.widths.address).saturating_add(6);
    let element_bytes = u64::from(header.element_bytes);
    if header.count <= page_elements {
        let bytes = header.count.saturating_mul(element_bytes);
        let length = prefix_bytes.saturating_add(bytes).saturating_add(4);
        let block = source.checked_block(block_address, length)?;
        let mut cursor = block.cursor();
        header.check_prefix(&mut cursor, address)?;
        return elements.take_from(&mut cursor, header.count, take);
    }
    let page_count = header.count.div_ceil(page_elements);
    let prefix_bytes = prefix_bytes.saturating_add(page_count.div_ceil(8)).saturating_add(4);
    let block = source.checked_block(block_address, prefix_bytes)?;
    let mut cursor = block.cursor();
    header.check_prefix(&mut cursor, address)?;
    let bitmap = cursor.rest();
    let mut page_address = block_address.saturating_add(prefix_bytes);
    let mut left = header.count;
    let page_bytes = page_elements.saturating_mul(element_bytes).saturating_add(4);
    let batch_bytes = page_bytes.saturating_mul(ANNOUNCED_MAX as u64);
    for page in 0..page_count {
        if page.is_multiple_of(ANNOUNCED_MAX as u64) {
            source.announce(std::iter::once((page_address, batch_bytes)))?;
        }
        let count = left.min(page_elements);
        let length = count.saturating_mul(element_bytes).saturating_add(4);
        if is_page_written(bitmap, page) {
            let block = source.checked_block(page_address, length)?;
            elements.take_from(&mut block.cursor(), count, take)?;
        } else {
            elements.skip(count);
        }
        page_address = page_address.saturating_add(length);
        left = left.saturating_sub(count);
    }
    Ok(())
}

struct FixedArrayHeader {
    /// 0 for unfiltered chunks, 1 for filtered chunks.
    client: u8,
    element_bytes: u8,
    /// Binary logarithm of the number of elements in a page.
    page_bits: u8,
    count: u64,
    block: Option<u64>,
}

impl FixedArrayHeader {
    fn read(source: &CountedFile<'_>, address: u64) -> Result<Self> {
        let (addresses, lengths) = (source.widths.address, source.widths.length);
        let length = 12_u64.saturating_add(addresses.into()).saturating_add(lengths.into());
        let block = source.checked_block(address, length)?;
        let mut cursor = block.cursor();
        cursor.signature(*b"FAHD")?;
        cursor.version(0, "a fixed array")?;
        let [client, element_bytes, page_bits] = cursor.array()?;
        let count = cursor.length()?;
        let block = cursor.address()?;
        Ok(Self { client, element_bytes, page_bits, count, block })
    }

    fn check_prefix(&self, cursor: &mut crate::hdf5::cursor::Cursor<'_>, address: u64) -> Result {
        cursor.signature(*b"FADB")?;
        cursor.version(0, "a block of a fixed array")?;
        if cursor.u8()? != self.client || cursor.address()? != Some(address) {
            return Err(cursor.corrupt("a block of another fixed array"));
        }
        Ok(())
    }
}
