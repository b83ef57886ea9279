//! What is known of a variable of a foreign file, or of many files, whoever reads it.

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignStorage, SourceVersion};
use serde_json::{Map, Value, json};

use super::ForeignFile;
use super::archive::JoinedVariable;
use super::attributes::{self, Style};
use crate::cache::{CacheHandle, Scope};
use crate::error::Result;
use crate::plan::tuning::Tuning;
use crate::prefetch::HandleReads;
use crate::replica::{Replicas, meaning_of};
use crate::source::{Source, StoredLayout};

/// What reads of a variable go by.
#[derive(Debug, Clone)]
pub(crate) struct VariableFacts {
    /// The variable as a user knows it.
    pub(crate) name: String,
    /// Its path in the file.
    pub(crate) path: String,
    pub(crate) data_type: DataType,
    pub(crate) layout: StoredLayout,
    /// The fingerprint that its replicas must have beside the bytes of the file: see
    /// [`Replica::meaning`](crate::replica::Replica).
    pub(crate) meaning: String,
    /// What its chunks have in common in the cache.
    pub(crate) scope: Arc<Scope>,
    /// Where its decoded chunks are kept.
    pub(crate) cache: Arc<CacheHandle>,
    pub(crate) tuning: Tuning,
    /// Other copies of it; nothing where there can be none.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// Who follows the reads; nothing where none is made ahead.
    pub(crate) follows: Option<Arc<HandleReads>>,
}

impl VariableFacts {
    /// Those of the variable `array` of a file, of a type and stored like that.
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
            follows: file.follows.clone(),
        }
    }
}

/// Where the chunks of a variable lie.
#[derive(Clone, Copy)]
pub(crate) enum Sources<'a> {
    /// In one file.
    One(&'a dyn Source),
    /// In many, one behind the other along an axis.
    Joined(&'a JoinedVariable),
}

/// A variable of a foreign file, or of many as one: what is known of it.
pub(crate) trait ForeignVariable: Send + Sync + Debug {
    /// What reads go by.
    fn facts(&self) -> &VariableFacts;

    /// Where its chunks lie.
    fn sources(&self) -> Sources<'_>;

    /// The state of the source that reads of it go by; nothing where it has none.
    fn state(&self) -> Option<&SourceVersion> {
        None
    }

    /// True if the source has the state that reads of it go by. It is looked at, unless reads of its handle look at
    /// no object of a server again, and it need not be looked at `anew`.
    ///
    /// # Errors
    /// Those of storage.
    fn is_as_opened(&self, anew: bool) -> Result<bool> {
        let _ = anew;
        Ok(true)
    }

    /// The variable in the chunk map that describes it; nothing where none does.
    fn described(&self) -> Option<(&ChunkMap, &ForeignArray)>;

    /// The attributes, as xarray shows those of such files.
    fn attributes(&self) -> Map<String, Value> {
        let described = self.described();
        described
            .map(|(map, array)| attributes::variable_attributes(array, Style::of(map)))
            .unwrap_or_default()
    }

    /// A name for each axis, as xarray shows those of such files; nothing for axes without.
    fn dimension_names(&self) -> Vec<Option<String>> {
        match self.described() {
            Some((_, array)) => attributes::dimension_names(array).into_iter().map(Some).collect(),
            None => vec![None; self.facts().layout.grid.rank()],
        }
    }

    /// What the variable is; the keys are those of [`Array::describe`](crate::Array::describe) that a
    /// foreign variable has, `storage` and `encoding`.
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

    /// False if the library of the format decodes it.
    fn is_decoded(&self) -> bool {
        true
    }
}
