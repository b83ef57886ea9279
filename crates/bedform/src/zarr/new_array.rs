//! New arrays: their description, and their first documents.

use bedform_format::json::ObjectText;
use bedform_format::metadata::{
    ArrayMetadata, ChunkKeys, CodecChoice, Encoding, FillValue, Identity, ShardEncoding,
    parse_array, write_array,
};
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, ObjectPath, Serializer};
use bedform_geometry::Order;
use serde_json::{Map, Value};

use super::hierarchy::Hierarchy;
use crate::error::{Error, Result};

/// How the elements of a new array become bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayLayout {
    /// Elements of a chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// Elements of a shard along each axis: a multiple of the chunk's.
    pub shard_shape: Vec<u64>,
    /// The order of the chunks in a shard.
    pub order: Order,
    /// The codec from elements to bytes; `None` stores them one after another, or text as
    /// `vlen-utf8`.
    pub serializer: Option<Serializer>,
    /// Codecs from bytes to bytes. A CRC-32C is appended unless it is there.
    pub codecs: Vec<BytesCodec>,
    /// The order in which axes are stored in a chunk, slowest first; `None` keeps their order.
    pub transpose: Option<Vec<usize>>,
    /// False leaves the chunks without a checksum.
    pub checksum: bool,
    /// The scheme of object names.
    pub keys: ChunkKeys,
    /// Whether the first write chooses the codecs, or how they were chosen; `None` where they were
    /// named.
    pub choice: Option<CodecChoice>,
}

/// The description of an array to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArray {
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub data_type: DataType,
    /// How elements become bytes.
    pub layout: ArrayLayout,
    /// The value of elements that were never written.
    pub fill_value: FillValue,
    /// Names of the axes.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// The user's attributes.
    pub attributes: Map<String, Value>,
}

impl NewArray {
    /// Makes the document of the array at `path`.
    pub(crate) fn document(
        &self,
        identity: Identity,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
    ) -> Result<Value> {
        let document = write_array(&self.metadata(identity)?);
        // It is parsed as a reader would, so that no document is written that readers refuse.
        parse_array(&document, &hierarchy.options.limits).map_err(|error| {
            Error::invalid(format!("array {path:?} cannot be created: {error}"))
        })?;
        let lengths = self.layout.shard_shape.iter().zip(&self.layout.chunk_shape);
        let per_object: Vec<u64> = lengths.map(|(shard, chunk)| shard / chunk.max(&1)).collect();
        self.layout.order.check(&per_object).map_err(|error| {
            let order = self.layout.order.name();
            Error::invalid(format!(
                "array {path:?} cannot be created with the order {order}: {error}; choose fewer chunks in a \
                 shard, or row-major"
            ))
        })?;
        Ok(document)
    }

    /// True if the first write is to choose the codecs.
    pub(crate) fn is_open(&self) -> bool {
        self.layout.choice.as_ref().is_some_and(CodecChoice::is_open)
    }

    fn metadata(&self, identity: Identity) -> Result<ArrayMetadata> {
        let layout = &self.layout;
        let rank = self.shape.len();
        let ranks = [layout.chunk_shape.len(), layout.shard_shape.len()];
        if ranks.iter().any(|other| *other != rank) {
            return Err(Error::invalid(format!(
                "the shape {:?}, the chunks {:?} and the shards {:?} must have one rank",
                self.shape, layout.chunk_shape, layout.shard_shape
            )));
        }
        let mut bytes = layout.codecs.clone();
        if layout.checksum && bytes.last() != Some(&BytesCodec::Crc32c) {
            bytes.push(BytesCodec::Crc32c);
        }
        let serializer = layout.serializer.unwrap_or(match self.data_type {
            DataType::String => Serializer::VlenUtf8,
            _ => Serializer::Bytes(Endian::Little),
        });
        let transpose = layout.transpose.clone().filter(|order| !order.is_sorted());
        let inner = Encoding::Chunk(CodecChain { transpose, serializer, bytes });
        Ok(ArrayMetadata {
            shape: self.shape.clone(),
            data_type: self.data_type,
            structure: None,
            chunk_shape: layout.shard_shape.clone(),
            keys: layout.keys,
            fill_value: self.fill_value.clone(),
            encoding: Encoding::Shard(ShardEncoding {
                chunk_shape: layout.chunk_shape.clone(),
                inner: Box::new(inner),
                index_checked: true,
                index_at_start: false,
            }),
            dimension_names: self.dimension_names.clone(),
            attributes: ObjectText::from(&self.attributes),
            identity: Some(identity),
            order: Some(layout.order.name().to_owned()),
            choice: layout.choice.clone(),
            zarr_format: 3,
        })
    }
}
