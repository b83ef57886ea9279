//! Arrays: one type for all of them, whatever their elements lie in.
//!
//! An array of a store is read through its log and its shards, a variable of a foreign file through its
//! chunk map. What is common to them is here, once: reads, plans, prices, workloads. What only an array
//! of a store can do says so of others.
//!
//! | module | holds |
//! |---|---|
//! | `known` | what a read goes by: how the array is stored, its source and its moment |
//! | `read` | reads of a selection into a buffer, what a read would do, its requests for a simulated machine |
//! | `describe` | what an array is |
//! | `write` | writes to a selection, appends, changes of shape |
//! | `verify`, `verified` | what is damaged in its objects; arrays that are checked together |

mod describe;
mod known;
mod read;
pub(crate) mod verified;
mod verify;
mod write;

use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::metadata::ArrayMetadata;
use bedform_geometry::Order;
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::variable::Variable;
use crate::log::array::ArrayHandle;
use crate::zarr::state::ArrayState;

pub use crate::write::elements::Elements;
pub use write::{Append, Growth, append, append_with};

/// An array of a store, or a variable of a foreign file. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct Array {
    backing: Backing,
}

/// What the elements of an array lie in.
#[derive(Debug, Clone)]
enum Backing {
    /// Shards of a store, and its log.
    Stored(ArrayHandle),
    /// A foreign file.
    Foreign(Arc<Variable>),
}

impl Array {
    /// An array of a store.
    pub(crate) fn stored_in(handle: ArrayHandle) -> Self {
        Self { backing: Backing::Stored(handle) }
    }

    /// The variable at `path` of a foreign file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that only its native library reads.
    pub fn of_file(file: &ForeignFile, path: &str) -> Result<Self> {
        let variable = Arc::new(file.variable(path)?);
        Ok(Self { backing: Backing::Foreign(variable) })
    }

    /// The handle of an array of a store.
    ///
    /// # Errors
    /// `ReadOnly` for a variable of a foreign file.
    pub(crate) fn stored(&self) -> Result<&ArrayHandle> {
        match &self.backing {
            Backing::Stored(handle) => Ok(handle),
            Backing::Foreign(variable) => Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "{}: foreign files are never written; convert it with 'bedform convert'",
                    variable.name()
                ),
            )),
        }
    }

    /// What the document of an array of a store says.
    ///
    /// # Errors
    /// Of looking up the array again; `Unsupported` for a variable of a foreign file.
    fn documented(&self) -> Result<Arc<ArrayState>> {
        match &self.backing {
            Backing::Stored(handle) => handle.state(),
            Backing::Foreign(variable) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is in a foreign file, and has no Zarr document", variable.name()),
            )),
        }
    }

    /// The array's path in its store or file.
    pub fn path(&self) -> &str {
        match &self.backing {
            Backing::Stored(handle) => handle.path.as_str(),
            Backing::Foreign(variable) => variable.path(),
        }
    }

    /// The array as a user knows it.
    pub fn name(&self) -> String {
        match &self.backing {
            Backing::Stored(handle) => handle.name(),
            Backing::Foreign(variable) => variable.name(),
        }
    }

    /// Elements along each axis.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn shape(&self) -> Result<Vec<u64>> {
        match &self.backing {
            Backing::Stored(handle) => Ok(handle.state()?.metadata.shape.clone()),
            Backing::Foreign(variable) => Ok(variable.shape().to_vec()),
        }
    }

    /// The fill value as an element of a buffer, in the machine's byte order; nothing for text.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn fill_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.known()?.layout().fill.bytes().to_vec())
    }

    /// NumPy's name of the elements' type in memory; "O" for text.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn numpy(&self) -> Result<String> {
        Ok(self.data_type()?.numpy())
    }

    /// The type of the elements.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn data_type(&self) -> Result<DataType> {
        match &self.backing {
            Backing::Stored(handle) => Ok(handle.state()?.metadata.data_type),
            Backing::Foreign(variable) => Ok(variable.data_type()),
        }
    }

    /// The name of each axis, if it has one.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn dimension_names(&self) -> Result<Vec<Option<String>>> {
        match &self.backing {
            Backing::Stored(handle) => {
                let metadata = &handle.state()?.metadata;
                let unnamed = || vec![None; metadata.shape.len()];
                Ok(metadata.dimension_names.clone().unwrap_or_else(unnamed))
            }
            Backing::Foreign(variable) => {
                Ok(variable.dimension_names().into_iter().map(Some).collect())
            }
        }
    }

    /// The array's description.
    ///
    /// # Errors
    /// Of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn metadata(&self) -> Result<ArrayMetadata> {
        Ok(self.documented()?.metadata.clone())
    }

    /// The order of the chunks in the shards that Bedform writes to this array.
    ///
    /// # Errors
    /// Of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn order(&self) -> Result<Order> {
        Ok(self.documented()?.order)
    }

    /// The document that describes the array: of Zarr v3 as the last commit left it, of v2 `.zarray`.
    ///
    /// # Errors
    /// Of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn document(&self) -> Result<Value> {
        Ok(self.documented()?.document.clone())
    }

    /// The user's attributes.
    ///
    /// # Errors
    /// Of looking up the array again.
    pub fn attributes(&self) -> Result<Map<String, Value>> {
        match &self.backing {
            Backing::Stored(handle) => Ok(handle.state()?.metadata.attributes.clone()),
            Backing::Foreign(variable) => Ok(variable.attributes()),
        }
    }
}
