//! What is known of a variable of a foreign file, or of many files, whoever reads it.

use std::fmt::Debug;
use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::chunk_map::SourceVersion;
use serde_json::{Map, Value};

use super::archive::JoinedVariable;
use crate::cache::{CacheHandle, Scope};
use crate::error::Result;
use crate::plan::tuning::Tuning;
use crate::prefetch::Follows;
use crate::replica::Replicas;
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
    /// What its chunks have in common in the cache.
    pub(crate) scope: Arc<Scope>,
    /// Where its decoded chunks are kept.
    pub(crate) cache: Arc<CacheHandle>,
    pub(crate) tuning: Tuning,
    /// Other copies of it; nothing where there can be none.
    pub(crate) replicas: Option<Arc<Replicas>>,
    /// Who follows the reads; nothing where none is made ahead.
    pub(crate) follows: Option<Arc<Follows>>,
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

    /// True unless a read would find that the source has changed.
    ///
    /// # Errors
    /// Those of storage.
    fn is_as_opened(&self) -> Result<bool> {
        Ok(true)
    }

    /// The attributes, as xarray shows those of such files.
    fn attributes(&self) -> Map<String, Value>;

    /// A name for each axis, as xarray shows those of such files; nothing for axes without.
    fn dimension_names(&self) -> Vec<Option<String>>;

    /// What the variable is; the keys are those of [`Array::describe`](crate::Array::describe) that a
    /// foreign variable has, `storage` and `encoding`.
    fn describe(&self) -> Value;
}
