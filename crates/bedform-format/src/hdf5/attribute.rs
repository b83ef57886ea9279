//! Attributes: small named values of objects.

use super::btree_v2;
use super::cursor::{Cursor, FileBlock};
use super::dataspace::Dataspace;
use super::datatype::Datatype;
use super::error::{Hdf5Error, Result};
use super::fractal_heap::FractalHeap;
use super::object_header::{FLAG_SHARED, MessageKind, ObjectHeader};
use super::shared::{self, SharedBody};
use super::source::CountedFile;

/// A small named value of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// The name as bytes, mostly UTF-8.
    pub name: Vec<u8>,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Shape of the value.
    pub space: Dataspace,
    /// The elements as stored. Elements of variable length are references into a heap;
    /// [`Hdf5File::values`](super::Hdf5File::values) resolves them.
    pub data: Vec<u8>,
    /// Creation order, counted from 0, if the object tracks it.
    pub order: Option<u32>,
    /// Offset of the elements in the file, for errors.
    pub(super) at: u64,
}

const TYPE_SHARED: u8 = 0x01;
const SPACE_SHARED: u8 = 0x02;
const ORDER_TRACKED: u8 = 0x01;
const ORDER_INDEXED: u8 = 0x02;
/// Bytes of an attribute's heap ID in the records of the name index.
const ATTRIBUTE_ID_BYTES: usize = 8;

/// Reads the attributes of the object with this header, in creation order if the object tracks it,
/// else by name.
pub(super) fn read_all(source: &CountedFile<'_>, header: &ObjectHeader) -> Result<Vec<Attribute>> {
    let mut found = AttributeCollector { source, attributes: Vec::new(), bytes: 0 };
    for message in header.all(MessageKind::ATTRIBUTE) {
        let SharedBody { block, .. } = shared::body_of(source, message)?;
        found.add(&block, message.order.map(u32::from))?;
    }
    if let Some(message) = header.find(MessageKind::ATTRIBUTE_INFORMATION) {
        found.add_dense(message.cursor())?;
    }
    let mut attributes = found.attributes;
    if header.attribute_order_tracked {
        attributes.sort_by_key(|attribute| attribute.order);
    } else {
        attributes.sort_by(|one, other| one.name.cmp(&other.name));
    }
    Ok(attributes)
}

struct AttributeCollector<'s, 'r> {
    source: &'s CountedFile<'r>,
    attributes: Vec<Attribute>,
    bytes: u64,
}

impl AttributeCollector<'_, '_> {
    fn add(&mut self, block: &FileBlock, order: Option<u32>) -> Result {
        let bytes_max = self.source.limits.attributes_bytes_max;
        self.bytes = self.bytes.saturating_add(block.bytes.len() as u64);
        if self.bytes > bytes_max {
            return Err(Hdf5Error::limit(format!("attributes of more than {bytes_max} bytes")));
        }
        self.attributes.push(Attribute::decode(self.source, block.cursor(), order)?);
        Ok(())
    }

    /// Reads the attributes of an object that stores them in a fractal heap.
    fn add_dense(&mut self, mut information: Cursor<'_>) -> Result {
        information.version(0, "attribute information")?;
        let flags = information.u8()?;
        if flags & ORDER_TRACKED != 0 {
            information.skip(2)?;
        }
        let heap = information.address()?;
        let by_name = information.address()?;
        if flags & ORDER_INDEXED != 0 {
            information.address()?;
        }
        let (Some(heap), Some(by_name)) = (heap, by_name) else { return Ok(()) };
        let source = self.source;
        let heap = FractalHeap::open(source, heap)?;
        btree_v2::for_each(source, by_name, &[8], &mut |_, mut record| {
            let start = record;
            let id = record.take(ATTRIBUTE_ID_BYTES)?;
            let flags = record.u8()?;
            let order = record.u32()?;
            let block = if flags & FLAG_SHARED == 0 {
                heap.object(id)?
            } else {
                shared::in_table(source, MessageKind::ATTRIBUTE, &start, id)?.block
            };
            self.add(&block, Some(order))
        })
    }
}

impl Attribute {
    /// Approximate memory of the attribute, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let bytes = self.name.len().saturating_add(self.data.len()) as u64;
        bytes.saturating_add(self.datatype.weight())
    }

    fn decode(
        source: &CountedFile<'_>,
        mut cursor: Cursor<'_>,
        order: Option<u32>,
    ) -> Result<Self> {
        let start = cursor;
        let [version, flags] = cursor.array()?;
        if !(1..=3).contains(&version) {
            return Err(Hdf5Error::unknown(format!("version {version} of an attribute")));
        }
        let flags = if version == 1 { 0 } else { flags };
        let (name_bytes, type_bytes, space_bytes) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
        if version == 3 {
            // The flag that says if the name is ASCII or UTF-8.
            cursor.skip(1)?;
        }
        let mut part = |length: u16| {
            let length = usize::from(length);
            let part = cursor.split(length)?;
            if version == 1 {
                let padded = length.next_multiple_of(8);
                cursor.skip(padded.saturating_sub(length))?;
            }
            Ok::<Cursor<'_>, Hdf5Error>(part)
        };
        let name = part(name_bytes)?.zero_terminated()?.to_vec();
        let datatype = datatype_at(source, part(type_bytes)?, flags & TYPE_SHARED != 0)?;
        let space = dataspace_at(source, part(space_bytes)?, flags & SPACE_SHARED != 0)?;
        let length =
            space.element_count().and_then(|count| count.checked_mul(datatype.size.into()));
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or_else(|| start.corrupt("an attribute of more than 2^64 bytes"))?;
        let at = cursor.at();
        let data = cursor.take(length)?.to_vec();
        Ok(Self { name, datatype, space, data, order, at })
    }
}

/// Decodes the datatype in a part of a message, or the shared datatype that the part refers to.
pub(super) fn datatype_at(
    source: &CountedFile<'_>,
    cursor: Cursor<'_>,
    is_shared: bool,
) -> Result<Datatype> {
    let depth_max = source.limits.type_depth_max;
    if !is_shared {
        return Datatype::decode(cursor, depth_max);
    }
    let SharedBody { block, committed } = shared::resolve(source, MessageKind::DATATYPE, cursor)?;
    Ok(Datatype { committed, ..Datatype::decode(block.cursor(), depth_max)? })
}

fn dataspace_at(
    source: &CountedFile<'_>,
    cursor: Cursor<'_>,
    is_shared: bool,
) -> Result<Dataspace> {
    let rank_max = source.limits.rank_max;
    if !is_shared {
        return Dataspace::decode(cursor, rank_max);
    }
    let SharedBody { block, .. } = shared::resolve(source, MessageKind::DATASPACE, cursor)?;
    Dataspace::decode(block.cursor(), rank_max)
}
