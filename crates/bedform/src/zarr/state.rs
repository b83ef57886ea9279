//! An array of a Zarr store as of one version of its documents: metadata, layout, codecs, identity.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bedform_codec::ChunkCodec;
use bedform_format::metadata::{
    ArrayMetadata, CodecChoice, Encoding, Identity, ShardEncoding, parse_array,
};
use bedform_format::replica::meaning_of;
use bedform_format::{CodecChain, DataType, ObjectPath};
use bedform_geometry::{ChunkGrid, Order};
use serde_json::{Value, json};

use super::documents::{ArrayDocument, ArrayOrigin};
use super::hierarchy::Hierarchy;
use super::source::ShardEnd;
use crate::cache::Scope;
use crate::error::{Error, ErrorKind, Result};
use crate::source::StoredLayout;

/// An array as of one version of its documents.
#[derive(Debug)]
pub(crate) struct ArrayState {
    pub(crate) metadata: ArrayMetadata,
    /// The document from which the metadata were parsed.
    pub(crate) document: Value,
    /// Grid, codecs and fill value; without shards each object holds one chunk.
    pub(crate) layout: StoredLayout,
    /// Sizes of index and stamp at the end of a shard; `None` for an array without shards.
    pub(crate) shard_end: Option<ShardEnd>,
    /// Bytes of the largest object that was opened through this state; 0 before the first.
    pub(crate) object_bytes: AtomicU64,
    pub(crate) order: Order,
    /// True while the first write has yet to choose the codecs: no shards exist, and this state
    /// writes none.
    pub(crate) is_open: bool,
    /// The part of the cache key that all objects of the array share.
    pub(crate) scope: Arc<Scope>,
    /// A number that no other state of this handle has.
    pub(crate) number: u64,
    /// A hash of the decoding, shape and fill value: with the array's objects and commits it
    /// decides the elements. The same in all handles.
    pub(crate) meaning: u64,
    /// The fingerprint that replicas of this array must carry, beside those of its objects: see
    /// [`Replica::meaning`](crate::replica::Replica).
    pub(crate) form: String,
    /// The versions of the documents; `None` for a draft, and where storage could not be asked
    /// after a change.
    pub(crate) source: Option<ArrayOrigin>,
}

/// Bytes per element of text in buffers: the number that stands for the text.
pub(crate) const TEXT_ITEM: usize = 8;

impl ArrayState {
    /// Derives the state of the array at `path` from its metadata.
    ///
    /// # Errors
    /// `Unsupported` for shards within shards; those of the grid.
    pub(crate) fn new(
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        metadata: ArrayMetadata,
        document: Value,
        source: Option<ArrayOrigin>,
    ) -> Result<Self> {
        let (chunk_shape, chain) = inner(&metadata)?;
        let grid = ChunkGrid::new(metadata.shape.clone(), chunk_shape.to_vec())?;
        let per_object: Vec<u64> = metadata
            .chunk_shape
            .iter()
            .zip(chunk_shape)
            .map(|(object, chunk)| object / chunk)
            .collect();
        let chunks = per_object.iter().product();
        let rank = grid.rank();
        let end = |shard: &ShardEncoding| ShardEnd::new(chunks, shard.index_checked, rank);
        let codec = ChunkCodec::new(chain, metadata.data_type, chunk_shape);
        // An order that this version does not know only costs speed.
        let order =
            metadata.order.as_deref().and_then(|name| name.parse().ok()).unwrap_or(Order::RowMajor);
        let item_size = metadata.data_type.item_size().unwrap_or(TEXT_ITEM);
        let fill = metadata.fill_value.clone();
        let (meaning, form) = (meaning(&metadata), form(&metadata));
        Ok(Self {
            layout: StoredLayout { grid, per_object, codec, item_size, fill },
            scope: hierarchy.cache.scope(path.as_str(), decoding(&metadata)),
            number: hierarchy.number(),
            meaning,
            form,
            is_open: is_open(path, &metadata),
            shard_end: metadata.shard().map(end),
            metadata,
            object_bytes: AtomicU64::new(0),
            document,
            order,
            source,
        })
    }

    /// The same array with another shape.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape that the array cannot have.
    pub(crate) fn with_shape(
        &self,
        hierarchy: &Hierarchy,
        path: &ObjectPath,
        shape: &[u64],
    ) -> Result<Self> {
        let mut document = self.document.clone();
        document["shape"] = json!(shape);
        let metadata = parse_array(&document, &hierarchy.options.limits)
            .map_err(|error| Error::invalid(format!("{}: {error}", hierarchy.name_of(path))))?;
        Self::new(hierarchy, path, metadata, document, None)
    }

    /// The shard encoding, if the array is sharded.
    pub(crate) fn shard(&self) -> Option<&ShardEncoding> {
        self.metadata.shard()
    }

    /// The store and array keys in the metadata, if Bedform made the array.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.metadata.identity.as_ref()
    }

    /// True for an array of text.
    pub(crate) fn is_text(&self) -> bool {
        self.metadata.data_type == DataType::String
    }
}

fn meaning(metadata: &ArrayMetadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    let fill = format!("{:?}", metadata.fill_value);
    (decoding(metadata), &metadata.shape, fill).hash(&mut hasher);
    hasher.finish()
}

/// The shape is left out, so that an array that has grown keeps its replicas. The array's key is
/// stored beside this fingerprint in their records.
fn form(metadata: &ArrayMetadata) -> String {
    let ArrayMetadata { data_type, structure, chunk_shape, keys, fill_value, encoding, .. } =
        metadata;
    meaning_of(&format!(
        "{data_type:?} {structure:?} {chunk_shape:?} {keys:?} {fill_value:?} {encoding:?}"
    ))
}

/// True if the first write is to choose the codecs of the array at `path`. An array that is opened
/// without its store keeps the codecs of its document: see [`super::choosing`].
fn is_open(path: &ObjectPath, metadata: &ArrayMetadata) -> bool {
    !path.is_root() && metadata.choice.as_ref().is_some_and(CodecChoice::is_open)
}

/// A hash of everything that, with the bytes of an object, decides its chunks and index. Attributes
/// and the array's shape are left out.
fn decoding(metadata: &ArrayMetadata) -> u64 {
    let ArrayMetadata { data_type, chunk_shape, keys, encoding, identity, .. } = metadata;
    let text = format!("{data_type:?} {chunk_shape:?} {keys:?} {encoding:?} {identity:?}");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The shape and codecs of the unit of encoding: those of the chunks in a shard.
pub(crate) fn inner(metadata: &ArrayMetadata) -> Result<(&[u64], &CodecChain)> {
    match &metadata.encoding {
        Encoding::Chunk(chain) => Ok((&metadata.chunk_shape, chain)),
        Encoding::Shard(shard) => match &*shard.inner {
            Encoding::Chunk(chain) => Ok((&shard.chunk_shape, chain)),
            Encoding::Shard(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "shards within shards are not supported; read the array with another library and \
                 convert it",
            )),
        },
    }
}

/// Loads the state of the array at `path` from its documents in storage.
///
/// # Errors
/// `NotFound`; `Corrupt` or `Unsupported` by its metadata.
pub(crate) fn load(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<ArrayState> {
    let ArrayDocument { metadata, document, origin } =
        hierarchy.documents.array(hierarchy, path)?;
    ArrayState::new(hierarchy, path, metadata, document, Some(origin))
        .map_err(|error| error.at(hierarchy.name_of(path)))
}
