//! Objects: groups, datasets and committed datatypes.

use super::attribute::datatype_at;
use super::dataspace::Dataspace;
use super::datatype::Datatype;
use super::error::{Hdf5Error, Result};
use super::filter::{Hdf5FillValue, PipelineFilter, decode_pipeline};
use super::layout::Hdf5Layout;
use super::object_header::{FLAG_SHARED, MessageKind, ObjectHeader};
use super::shared;
use super::source::CountedFile;

/// An object of a file.
#[derive(Debug, Clone)]
pub struct Hdf5Object {
    /// Kind of the object, with the content of a dataset or datatype.
    pub kind: ObjectKind,
    pub(super) header: ObjectHeader,
}

/// The kind of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectKind {
    /// A group: [`Hdf5File::links`](super::Hdf5File::links) lists it.
    Group,
    /// A dataset.
    Dataset(Box<Dataset>),
    /// A committed datatype.
    Datatype(Datatype),
}

/// A dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Shape of the dataset.
    pub space: Dataspace,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Value of elements that were never written.
    pub fill_value: Hdf5FillValue,
    /// Filters of chunks, in the order in which a writer applies them.
    pub filters: Vec<PipelineFilter>,
    /// Storage layout of the elements.
    pub layout: Hdf5Layout,
}

impl Hdf5Object {
    /// Returns the address of the object header.
    pub fn address(&self) -> u64 {
        self.header.address
    }

    /// Returns true if the object tracks the creation order of its attributes.
    pub fn attribute_order_tracked(&self) -> bool {
        self.header.attribute_order_tracked
    }

    pub(super) fn read(source: &CountedFile<'_>, address: u64) -> Result<Self> {
        let header = ObjectHeader::read(source, address)?;
        let has = |kind| header.find(kind).is_some();
        let kind = if has(MessageKind::SYMBOL_TABLE) || has(MessageKind::LINK_INFORMATION) {
            ObjectKind::Group
        } else if has(MessageKind::DATASPACE) && has(MessageKind::DATATYPE) {
            ObjectKind::Dataset(Box::new(Dataset::read(source, &header)?))
        } else if let Some(message) = header.find(MessageKind::DATATYPE) {
            let is_shared = message.flags & FLAG_SHARED != 0;
            ObjectKind::Datatype(datatype_at(source, message.cursor(), is_shared)?)
        } else {
            let at = source.offset_of(address)?;
            return Err(Hdf5Error::corrupt(at, "neither a group nor a dataset nor a type"));
        };
        Ok(Self { kind, header })
    }
}

impl Dataset {
    /// Approximate memory of the dataset, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let filters = self.filters.iter().map(|filter| filter.values.len().saturating_mul(4));
        let fixed = match &self.layout {
            Hdf5Layout::Compact(data) => data.len(),
            _ => 0,
        };
        let bytes = filters.fold(fixed, usize::saturating_add) as u64;
        bytes.saturating_add(self.datatype.weight())
    }

    fn read(source: &CountedFile<'_>, header: &ObjectHeader) -> Result<Self> {
        let body = |kind| header.find(kind).map(|message| shared::body_of(source, message));
        let missing = |what: &str| {
            let at = source.offset_of(header.address).unwrap_or(header.address);
            Hdf5Error::corrupt(at, format!("a dataset without {what}"))
        };
        let space = body(MessageKind::DATASPACE).ok_or_else(|| missing("a dataspace"))??;
        let space = Dataspace::decode(space.block.cursor(), source.limits.rank_max)?;
        let datatype = header.find(MessageKind::DATATYPE).ok_or_else(|| missing("a datatype"))?;
        let is_shared = datatype.flags & FLAG_SHARED != 0;
        let datatype = datatype_at(source, datatype.cursor(), is_shared)?;
        let filters = match body(MessageKind::FILTERS).transpose()? {
            Some(body) => decode_pipeline(body.block.cursor())?,
            None => Vec::new(),
        };
        let layout = header.find(MessageKind::LAYOUT).ok_or_else(|| missing("a layout"))?;
        let layout = if header.find(MessageKind::EXTERNAL_FILES).is_some() {
            Hdf5Layout::External
        } else {
            Hdf5Layout::decode(source, layout.cursor())?
        };
        let dataset =
            Self { space, datatype, fill_value: fill_value(source, header)?, filters, layout };
        dataset.check().map_err(missing)?;
        Ok(dataset)
    }

    /// Checks that the shape, the type and the layout are consistent.
    fn check(&self) -> std::result::Result<(), &'static str> {
        if let Hdf5Layout::Chunked(layout) = &self.layout {
            if layout.shape.len() != self.space.shape().len() {
                return Err("a shape of the rank of its chunks");
            }
            if layout.element_bytes != u64::from(self.datatype.size) {
                return Err("a type of the size that its chunks have");
            }
        }
        Ok(())
    }
}

fn fill_value(source: &CountedFile<'_>, header: &ObjectHeader) -> Result<Hdf5FillValue> {
    if let Some(message) = header.find(MessageKind::FILL_VALUE) {
        return Hdf5FillValue::decode(shared::body_of(source, message)?.block.cursor());
    }
    match header.find(MessageKind::OLD_FILL_VALUE) {
        Some(message) => {
            Hdf5FillValue::decode_old(shared::body_of(source, message)?.block.cursor())
        }
        None => Ok(Hdf5FillValue::Undefined),
    }
}
