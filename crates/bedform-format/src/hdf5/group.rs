//! Groups: old ones with a symbol table, new ones with link messages or a heap of links.

use super::btree_v1::{self, TreeKind};
use super::btree_v2;
use super::cursor::{Cursor, FileBlock};
use super::error::{Hdf5Error, Result};
use super::fractal_heap::FractalHeap;
use super::link::{Link, LinkTarget};
use super::object_header::{MessageKind, ObjectHeader};
use super::source::CountedFile;

/// The links of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupLinks {
    /// The links, in creation order if the group tracks it, else by name.
    pub links: Vec<Link>,
    /// True if the group tracks the creation order of links.
    pub order_tracked: bool,
}

const ORDER_TRACKED: u8 = 0x01;
const ORDER_INDEXED: u8 = 0x02;
/// Bytes of a link's heap ID.
const LINK_ID_BYTES: usize = 7;
/// Cache type of a symbol table entry that is a soft link.
const ENTRY_IS_SOFT_LINK: u32 = 2;

/// The links of a group while they are read.
struct LinkCollector<'s, 'r> {
    source: &'s CountedFile<'r>,
    links: GroupLinks,
    /// Bytes of all names and link targets.
    bytes: u64,
}

/// Reads the links of the group with this header.
pub(super) fn read_links(source: &CountedFile<'_>, header: &ObjectHeader) -> Result<GroupLinks> {
    let mut listing = LinkCollector { source, links: GroupLinks::default(), bytes: 0 };
    if let Some(message) = header.find(MessageKind::LINK_INFORMATION) {
        listing.read_new(header, message.cursor())?;
    } else if let Some(message) = header.find(MessageKind::SYMBOL_TABLE) {
        listing.read_symbol_table(message.cursor())?;
    }
    let mut found = listing.links;
    if found.order_tracked {
        found.links.sort_by_key(|link| link.order);
    } else {
        found.links.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let mut names: Vec<&[u8]> = found.links.iter().map(|link| link.name.as_slice()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| matches!(pair, [one, next] if one == next)) {
        let at = source.offset_of(header.address)?;
        return Err(Hdf5Error::corrupt(at, "a group with two links of one name"));
    }
    Ok(found)
}

impl LinkCollector<'_, '_> {
    fn add(&mut self, link: Link) -> Result {
        let target = match &link.target {
            LinkTarget::Soft(path) => path.len(),
            LinkTarget::External { file, path } => file.len().saturating_add(path.len()),
            LinkTarget::Hard(_) | LinkTarget::UserDefined(_) => 0,
        };
        let bytes = link.name.len().saturating_add(target) as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        self.source.spend(bytes)?;
        let bytes_max = self.source.limits.metadata_bytes_max;
        if self.bytes > bytes_max {
            return Err(Hdf5Error::limit(format!("links of more than {bytes_max} bytes")));
        }
        self.links.links.push(link);
        Ok(())
    }

    fn read_new(&mut self, header: &ObjectHeader, mut information: Cursor<'_>) -> Result {
        information.version(0, "link information")?;
        let flags = information.u8()?;
        self.links.order_tracked = flags & ORDER_TRACKED != 0;
        if self.links.order_tracked {
            information.skip(8)?;
        }
        let heap = information.address()?;
        let by_name = information.address()?;
        if flags & ORDER_INDEXED != 0 {
            information.address()?;
        }
        for message in header.all(MessageKind::LINK) {
            self.add(Link::decode(message.cursor())?)?;
        }
        let (Some(heap), Some(by_name)) = (heap, by_name) else { return Ok(()) };
        let heap = FractalHeap::open(self.source, heap)?;
        btree_v2::for_each(self.source, by_name, &[5], &mut |_, mut record| {
            // Skips the hash of the name; the heap ID of the link follows.
            record.skip(4)?;
            let link = heap.object(record.take(LINK_ID_BYTES)?)?;
            self.add(Link::decode(link.cursor())?)
        })
    }

    fn read_symbol_table(&mut self, mut message: Cursor<'_>) -> Result {
        let source = self.source;
        let tree = message.required_address()?;
        let names = read_local_heap(source, message.required_address()?)?;
        let key_bytes = usize::from(source.widths.length);
        btree_v1::for_each(source, tree, (TreeKind::Group, &[]), key_bytes, &mut |_, node| {
            self.read_symbols(node, &names)
        })
    }

    /// Reads the links of one symbol table node.
    fn read_symbols(&mut self, address: u64, names: &FileBlock) -> Result {
        let source = self.source;
        let head = source.block(address, 8)?;
        let mut cursor = head.cursor();
        cursor.signature(*b"SNOD")?;
        cursor.version(1, "a symbol table node")?;
        cursor.skip(1)?;
        let count = cursor.u16()?;
        let (addresses, lengths) = (source.widths.address, source.widths.length);
        let entry_bytes = u64::from(addresses).saturating_add(lengths.into()).saturating_add(24);
        let start = address.saturating_add(8);
        let body = source.block(start, entry_bytes.saturating_mul(count.into()))?;
        let mut cursor = body.cursor();
        for _ in 0..count {
            let name = text_at(names, cursor.length()?)?;
            let object = cursor.address()?;
            let kind = cursor.u32()?;
            cursor.skip(4)?;
            let mut scratch = cursor.split(16)?;
            let target = if kind == ENTRY_IS_SOFT_LINK {
                LinkTarget::Soft(text_at(names, scratch.u32()?.into())?)
            } else {
                LinkTarget::Hard(object.ok_or_else(|| cursor.corrupt("a link to nothing"))?)
            };
            self.add(Link { name, target, order: None })?;
        }
        Ok(())
    }
}

/// Reads the data of a local heap, which holds the names of an old group.
fn read_local_heap(source: &CountedFile<'_>, address: u64) -> Result<FileBlock> {
    let (addresses, lengths) = (u64::from(source.widths.address), u64::from(source.widths.length));
    let length = lengths.saturating_mul(2).saturating_add(addresses).saturating_add(8);
    let block = source.block(address, length)?;
    let mut cursor = block.cursor();
    cursor.signature(*b"HEAP")?;
    cursor.version(0, "a local heap")?;
    cursor.skip(3)?;
    let bytes = cursor.length()?;
    cursor.length()?;
    source.block(cursor.required_address()?, bytes)
}

fn text_at(names: &FileBlock, offset: u64) -> Result<Vec<u8>> {
    let mut cursor = names.cursor();
    cursor.skip(usize::try_from(offset).unwrap_or(usize::MAX))?;
    let text = cursor.zero_terminated()?;
    if text.is_empty() {
        return Err(cursor.corrupt("a link without a name"));
    }
    Ok(text.to_vec())
}
