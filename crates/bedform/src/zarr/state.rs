//! What is known of an array, as of one version of its documents.

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

/// What is known of an array, as of one version of its documents.
#[derive(Debug)]
pub(crate) struct ArrayState {
    pub(crate) metadata: ArrayMetadata,
    /// The document that the metadata are from.
    pub(crate) document: Value,
    /// How it is stored; without shards each object holds one chunk.
    pub(crate) layout: StoredLayout,
    /// What shards end with, for an array that has some.
    pub(crate) shard_end: Option<ShardEnd>,
    /// Bytes of the largest object that was opened by this; 0 before the first.
    pub(crate) object_bytes: AtomicU64,
    pub(crate) order: Order,
    /// The first write chooses the codecs: there are no shards, and none is written by this state.
    pub(crate) is_open: bool,
    /// What the array's objects have in common in the cache.
    pub(crate) scope: Arc<Scope>,
    /// Tells this state from others of the handle.
    pub(crate) number: u64,
    /// A hash of what decides, beside the array's objects and commits, which elements it has: the same in other
    /// handles.
    pub(crate) meaning: u64,
    /// The fingerprint that its replicas must have beside its objects: see
    /// [`Replica::meaning`](crate::replica::Replica).
    pub(crate) form: String,
    /// Nothing for a draft, and where storage could not be asked after a change.
    pub(crate) source: Option<ArrayOrigin>,
}

/// Bytes of the number that stands for a text in buffers.
pub(crate) const TEXT_ITEM: usize = 8;

impl ArrayState {
    /// The state of the array at `path` with these metadata.
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

    /// The array as it would be with another shape.
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

    /// What Bedform knows the array by, if it made it.
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

/// The shape is none of it: an array that has grown keeps its replicas. Its key is another part of their records.
fn form(metadata: &ArrayMetadata) -> String {
    let ArrayMetadata { data_type, structure, chunk_shape, keys, fill_value, encoding, .. } =
        metadata;
    meaning_of(&format!(
        "{data_type:?} {structure:?} {chunk_shape:?} {keys:?} {fill_value:?} {encoding:?}"
    ))
}

/// True if the first write is to choose the codecs of the array at `path`. An array that lies alone keeps those
/// that it has: see [`super::choosing`].
fn is_open(path: &ObjectPath, metadata: &ArrayMetadata) -> bool {
    !path.is_root() && metadata.choice.as_ref().is_some_and(CodecChoice::is_open)
}

/// A hash of all that decides, beside the bytes of an object, which chunks and which index they are.
/// Attributes and the array's shape are none of that.
fn decoding(metadata: &ArrayMetadata) -> u64 {
    let ArrayMetadata { data_type, chunk_shape, keys, encoding, identity, .. } = metadata;
    let text = format!("{data_type:?} {chunk_shape:?} {keys:?} {encoding:?} {identity:?}");
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The shape and codecs of the unit of encoding.
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

/// What storage has on the array at `path`.
///
/// # Errors
/// `NotFound`; `Corrupt` or `Unsupported` by its metadata.
pub(crate) fn load(hierarchy: &Hierarchy, path: &ObjectPath) -> Result<ArrayState> {
    let ArrayDocument { metadata, document, origin } =
        hierarchy.documents.array(hierarchy, path)?;
    ArrayState::new(hierarchy, path, metadata, document, Some(origin))
        .map_err(|error| error.at(hierarchy.name_of(path)))
}
