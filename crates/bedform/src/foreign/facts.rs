//! Facts of a variable of a foreign file, or of many files, that all its readers need.

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignStorage, SourceVersion};
use serde_json::{Map, Value, json};

use super::ForeignFile;
use super::archive::JoinedVariable;
use super::attributes::{self, AttributeStyle};
use crate::cache::{CacheHandle, Scope};
use crate::error::Result;
use crate::plan::tuning::Tuning;
use crate::prefetch::HandleReads;
use crate::replica::{Replicas, meaning_of};
use crate::run::chunks::ChunkCache;
use crate::run::read_source::ReadSource;
use crate::sidecar::Sidecar;
use crate::source::{Source, StoredLayout};

/// The facts by which a variable is read.
#[derive(Debug, Clone)]
pub(crate) struct VariableFacts {
    /// The variable's name for users and messages.
    pub(crate) name: String,
    /// Its path in the file.
    pub(crate) path: String,
    pub(crate) data_type: DataType,
    pub(crate) layout: StoredLayout,
    /// The fingerprint that replicas must share beside the bytes of the file: see
    /// [`Replica::meaning`](crate::replica::Replica).
    pub(crate) meaning: String,
    /// The common part of the cache keys of its chunks.
    pub(crate) scope: Arc<Scope>,
    /// The cache of its decoded chunks.
    pub(crate) cache: Arc<CacheHandle>,
    pub(crate) tuning: Tuning,
    /// Its replicas; `None` if there can be none.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// The sidecar of its file; `None` if there is none.
    pub(crate) sidecar: Option<Sidecar>,
    /// The follower of its reads; `None` if no reads are made ahead.
    pub(crate) follows: Option<Arc<HandleReads>>,
}

impl VariableFacts {
    /// Makes the facts of the variable `array` of a file, with its type and stored form.
    pub(super) fn of_file(
        file: &ForeignFile,
        array: &ForeignArray,
        (data_type, layout): (DataType, StoredLayout),
        scope: Arc<Scope>,
    ) -> Self {
        let (path, chunks) = (&array.path, layout.grid.chunk_shape());
        let codecs = array.codec_chain();
        let stored = format!("{data_type:?} {chunks:?} {codecs:?} {:?}", layout.fill);
        Self {
            name: format!("{}/{path}", file.name()),
            path: path.clone(),
            data_type,
            meaning: meaning_of(&stored),
            layout,
            scope,
            cache: file.cache.clone(),
            tuning: file.tuning.clone(),
            replicas: file.replicas.clone(),
            sidecar: file.sidecar.clone(),
            follows: file.follows.clone(),
        }
    }

    /// Returns the variable as reads see it, if it has the one `source`.
    pub(super) fn read_source<'a>(&'a self, source: &'a dyn Source) -> ReadSource<'a> {
        let cache = ChunkCache::new(&self.cache, &self.scope);
        ReadSource { cache, ..ReadSource::settled(source, &self.layout, &self.tuning) }
    }
}

/// The source or sources of a variable's chunks.
#[derive(Clone, Copy)]
pub(crate) enum Sources<'a> {
    /// One file.
    One(ReadSource<'a>),
    /// Many files, one behind the other along an axis.
    Joined(&'a JoinedVariable),
}

/// A variable of a foreign file, or of many files as one.
pub(crate) trait ForeignVariable: Send + Sync + Debug {
    /// Returns the facts by which the variable is read.
    fn facts(&self) -> &VariableFacts;

    /// Returns the source or sources of its chunks.
    fn sources(&self) -> Sources<'_>;

    /// Returns the state of the file that its reads assume; `None` if it has none.
    fn state(&self) -> Option<&SourceVersion> {
        None
    }

    /// Returns true if the file has the state that reads assume. The file is checked, with one
    /// exception: reads of this handle never check objects of a server again, and `anew` is false.
    ///
    /// # Errors
    /// Those of storage.
    fn is_as_opened(&self, anew: bool) -> Result<bool> {
        let _ = anew;
        Ok(true)
    }

    /// Returns the variable in the chunk map that describes it; `None` if no map does.
    fn described(&self) -> Option<(&ChunkMap, &ForeignArray)>;

    /// Returns the attributes, as xarray shows those of such files.
    fn attributes(&self) -> Map<String, Value> {
        let described = self.described();
        described
            .map(|(map, array)| attributes::variable_attributes(array, AttributeStyle::of(map)))
            .unwrap_or_default()
    }

    /// Returns a name for each axis, as xarray shows those of such files; `None` for axes without a
    /// name.
    fn dimension_names(&self) -> Vec<Option<String>> {
        match self.described() {
            Some((_, array)) => attributes::dimension_names(array).into_iter().map(Some).collect(),
            None => vec![None; self.facts().layout.grid.rank()],
        }
    }

    /// Describes the variable. The keys are those of [`Array::describe`](crate::Array::describe)
    /// that a foreign variable has, `storage` and `encoding`.
    fn describe(&self) -> Value {
        let (facts, array) = (self.facts(), self.described().map(|(_, array)| array));
        let kind = match array.map(|array| &array.storage) {
            _ if !self.is_decoded() => "native",
            Some(ForeignStorage::Contiguous { .. }) => "contiguous",
            Some(ForeignStorage::Compact { .. }) => "compact",
            Some(ForeignStorage::Chunked { .. }) => "chunked",
            Some(ForeignStorage::Records { .. }) => "records",
            Some(ForeignStorage::Empty) => "empty",
            _ => "native",
        };
        let grid = &facts.layout.grid;
        json!({
            "path": facts.path,
            "shape": grid.array_shape(),
            "dtype": facts.data_type.to_string(),
            "numpy": facts.data_type.numpy(),
            "storage": kind,
            "encoding": array.map(|array| &array.encoding),
            "chunks": grid.chunk_shape(),
            "shards": null,
            "order": null,
            "fill_value": facts.layout.fill.to_json(facts.data_type),
            "dims": self.dimension_names(),
            "attributes": self.attributes(),
        })
    }

    /// Returns false if the library of the format decodes it.
    fn is_decoded(&self) -> bool {
        true
    }
}
