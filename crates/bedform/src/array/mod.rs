//! Arrays: what they are, reading them, writing to them.
//!
//! | module | holds |
//! |---|---|
//! | `source` | where the objects of a Zarr array are, and what their tails say |
//! | `read` | reads of a selection into a buffer |
//! | `describe`, `explain`, `verify` | what an array is, what a read would do, what is damaged |
//! | `workload` | a read as requests for a simulated machine |
//! | `write` | writes to a selection, appends, changes of shape |

mod describe;
pub(crate) mod explain;
mod read;
pub(crate) mod verify;
pub(crate) mod workload;
mod write;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use bedform_format::metadata::{ArrayMetadata, Encoding, Identity, ShardEncoding};
use bedform_format::{CodecChain, DataType, ObjectPath};
use bedform_geometry::{ChunkGrid, Order};
use serde_json::{Map, Value};

use crate::codec::ChunkCodec;
use crate::error::{Error, ErrorKind, Result};
use crate::log::commit::enlarge;
use crate::store::{ArrayDocument, DraftLock, Shared, Snapshot};
use crate::zarr::source::{ShardEnd, ZarrSource};

pub(crate) use write::publish_grown;
pub use write::{Append, Elements, Growth, append, append_with};

/// An array of a store. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Array {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: ObjectPath,
    state: Arc<RwLock<Arc<ArrayState>>>,
    /// The state with the shape that commits which are not settled have given the array.
    larger: Arc<RwLock<Option<Larger>>>,
    draft: Option<Arc<DraftLock>>,
    /// A handle on a growth that is under way: what is known stays as it is.
    growing: bool,
}

/// The larger state of an array, and which of its states it was made from.
#[derive(Debug)]
struct Larger {
    of: u64,
    state: Arc<ArrayState>,
}

/// What is known of an array, as of one version of its documents.
#[derive(Debug)]
pub(crate) struct ArrayState {
    pub(crate) metadata: ArrayMetadata,
    /// The document that the metadata are from.
    pub(crate) document: Value,
    /// The array cut into chunks (the unit of encoding).
    pub(crate) grid: ChunkGrid,
    /// Chunks of an object along each axis; all ones for arrays without shards.
    pub(crate) per_object: Vec<u64>,
    /// What shards end with, for an array that has some.
    pub(crate) shard_end: Option<ShardEnd>,
    /// Bytes of the largest object that was opened by this; 0 before the first.
    pub(crate) object_bytes: AtomicU64,
    pub(crate) codec: ChunkCodec,
    pub(crate) order: Order,
    /// Bytes of an element in a buffer; text is held as numbers of texts.
    pub(crate) item_size: usize,
    /// Tells this opened array's chunks from others' in the cache.
    pub(crate) number: u64,
    /// Nothing for a draft, and where storage could not be asked after a change.
    source: Option<ArrayDocument>,
}

/// Bytes of the number that stands for a text in buffers.
pub(crate) const TEXT_ITEM: usize = 8;

impl ArrayState {
    fn new(
        shared: &Shared,
        metadata: ArrayMetadata,
        document: Value,
        source: Option<ArrayDocument>,
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
        let end = |shard: &ShardEncoding| ShardEnd::new(chunks, shard.index_checked, grid.rank());
        let codec = ChunkCodec::new(chain, metadata.data_type, chunk_shape);
        // An order that this version does not know only costs speed.
        let order =
            metadata.order.as_deref().and_then(|name| name.parse().ok()).unwrap_or(Order::RowMajor);
        Ok(Self {
            item_size: metadata.data_type.item_size().unwrap_or(TEXT_ITEM),
            number: shared.number(),
            shard_end: metadata.shard().map(end),
            metadata,
            object_bytes: AtomicU64::new(0),
            document,
            grid,
            per_object,
            codec,
            order,
            source,
        })
    }

    /// The shard encoding, if the array is sharded.
    pub(crate) fn shard(&self) -> Option<&ShardEncoding> {
        self.metadata.shard()
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.metadata.identity.as_ref()
    }

    pub(crate) fn is_text(&self) -> bool {
        self.metadata.data_type == DataType::String
    }
}

/// The shape and codecs of the unit of encoding.
fn inner(metadata: &ArrayMetadata) -> Result<(&[u64], &CodecChain)> {
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

impl Array {
    pub(crate) fn open(shared: Arc<Shared>, path: ObjectPath) -> Result<Self> {
        let state = load(&shared, &path)?;
        Ok(Self {
            shared,
            path,
            state: Arc::new(RwLock::new(Arc::new(state))),
            larger: Arc::default(),
            draft: None,
            growing: false,
        })
    }

    /// An array whose creation is not yet committed; with its lock, if this handle has made it.
    pub(crate) fn draft(
        shared: Arc<Shared>,
        path: ObjectPath,
        metadata: ArrayMetadata,
        document: Value,
        lock: Option<Arc<DraftLock>>,
    ) -> Result<Self> {
        let state = ArrayState::new(&shared, metadata, document, None)?;
        let state = Arc::new(RwLock::new(Arc::new(state)));
        Ok(Self { shared, path, state, larger: Arc::default(), draft: lock, growing: false })
    }

    /// The array's path in its store.
    pub fn path(&self) -> &ObjectPath {
        &self.path
    }

    /// The array as a user knows it.
    pub fn name(&self) -> String {
        self.shared.name_of(&self.path)
    }

    /// What is known of the array, looked up again if the store's freshness asks for it and another
    /// writer (or another handle) has changed it.
    /// Commits that are not settled may have made the array larger than its metadata say.
    pub(crate) fn state(&self) -> Result<Arc<ArrayState>> {
        if !self.shared.documents.is_log_pending() {
            let state = self.stored_state()?;
            self.shared.check_outer()?;
            if !self.shared.documents.is_log_pending() {
                return Ok(state);
            }
        }
        Ok(self.state_in_snapshot()?.0)
    }

    /// As [`Array::state`], with a snapshot: none of its commits has made the array larger than that.
    pub(crate) fn state_in_snapshot(&self) -> Result<(Arc<ArrayState>, Snapshot)> {
        let snapshot = self.shared.snapshot()?;
        // In this order: settling publishes an array's shape before it drops the commits that gave it,
        // so what the root no longer says the documents do.
        let state = self.stored_state()?;
        let Some(view) = snapshot.view.as_ref().filter(|_| !self.growing) else {
            return Ok((state, snapshot));
        };
        if let Some(key) = state.source.as_ref().and_then(|source| source.replaced)
            && view.names(&key)?
        {
            return Err(replaced(&self.name(), "put something else in the place of"));
        }
        let shapes = &view.root.shapes;
        let state = match state.identity().and_then(|identity| shapes.get(&identity.array)) {
            Some(shape) => self.enlarged(state, shape)?,
            None => state,
        };
        Ok((state, snapshot))
    }

    fn enlarged(&self, state: Arc<ArrayState>, shape: &[u64]) -> Result<Arc<ArrayState>> {
        let mut larger = state.metadata.shape.clone();
        enlarge(&mut larger, shape);
        if larger == state.metadata.shape {
            return Ok(state);
        }
        if let Some(known) = &*self.larger.read().unwrap_or_else(PoisonError::into_inner)
            && known.of == state.number
            && known.state.metadata.shape == larger
        {
            return Ok(known.state.clone());
        }
        let enlarged = Arc::new(self.with_shape(&state, &larger)?);
        let known = Larger { of: state.number, state: enlarged.clone() };
        *self.larger.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(enlarged)
    }

    /// What [`Array::state`] gave last.
    pub(crate) fn last_state(&self) -> Arc<ArrayState> {
        let state = self.known();
        match &*self.larger.read().unwrap_or_else(PoisonError::into_inner) {
            Some(larger) if larger.of == state.number => larger.state.clone(),
            _ => state,
        }
    }

    /// As [`Array::state`], as the metadata have it.
    fn stored_state(&self) -> Result<Arc<ArrayState>> {
        let state = self.known();
        if self.growing {
            return Ok(state);
        }
        match &state.source {
            Some(source) if self.shared.documents.is_current(&self.shared, source)? => Ok(state),
            Some(_) => self.reload(),
            None => match self.reload() {
                // Not yet committed.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(state),
                outcome => outcome,
            },
        }
    }

    /// Where the objects of the array with `state` are, as of now.
    pub(crate) fn source<'a>(&'a self, state: &'a ArrayState) -> Result<ZarrSource<'a>> {
        Ok(self.source_in(state, self.shared.snapshot()?))
    }

    /// As [`Array::source`], as of `snapshot`.
    fn source_in<'a>(&'a self, state: &'a ArrayState, snapshot: Snapshot) -> ZarrSource<'a> {
        ZarrSource { shared: &self.shared, path: &self.path, state, snapshot }
    }

    /// Takes `state`, which was just committed; better, what storage has now.
    fn advance(&self, state: ArrayState) {
        if self.reload().is_err() {
            // The commit stands all the same. Storage is asked again at the next use.
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        }
    }

    /// What was known of the array when it was last looked up.
    pub(crate) fn known(&self) -> Arc<ArrayState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What storage has on the array now.
    pub(crate) fn reload(&self) -> Result<Arc<ArrayState>> {
        let state = Arc::new(load(&self.shared, &self.path)?);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state.clone();
        Ok(state)
    }

    /// Elements along each axis.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn shape(&self) -> Result<Vec<u64>> {
        Ok(self.state()?.metadata.shape.clone())
    }

    /// The array's description.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn metadata(&self) -> Result<ArrayMetadata> {
        Ok(self.state()?.metadata.clone())
    }

    /// The order of the chunks in the shards that Bedform writes to this array.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn order(&self) -> Result<Order> {
        Ok(self.state()?.order)
    }

    /// The document that describes the array: of Zarr v3 as the last commit left it, of v2 `.zarray`.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn document(&self) -> Result<Value> {
        Ok(self.state()?.document.clone())
    }

    /// The user's attributes.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn attributes(&self) -> Result<Map<String, Value>> {
        Ok(self.state()?.metadata.attributes.clone())
    }
}

/// The error of an array that is no longer what commits are of.
pub(crate) fn replaced(name: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "another program has {what} {name}, of which there are commits that are not settled: put \
             back what was there, or delete the array with Bedform"
        ),
    )
}

/// What storage has on the array at `path`.
///
/// # Errors
/// As [`Store::array`](crate::Store::array).
pub(crate) fn load(shared: &Shared, path: &ObjectPath) -> Result<ArrayState> {
    let source = shared.documents.array(shared, path)?;
    ArrayState::new(shared, source.metadata.clone(), source.document.clone(), Some(source))
        .map_err(|error| error.at(shared.name_of(path)))
}
