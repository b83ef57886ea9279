//! Arrays: one type for arrays of stores and for variables of foreign files.
//!
//! An array of a store is read through its log and its shards, a foreign variable through its chunk
//! map. Reads, plans, prices and workloads are the same for both. A call that needs an array of a
//! store returns an error for others.
//!
//! | module | holds |
//! |---|---|
//! | `known` | an array as of the start of a read: handle, state, snapshot; its reads and plans |
//! | `read` | reads into a buffer; explanations, prices, simulated requests |
//! | `ahead` | readahead |
//! | `redirect` | reads that replicas make cheaper |
//! | `hosted` | reads that another library makes where nothing here has the elements |
//! | `visit` | chunks shown to a visitor, chunks decoded into the cache |
//! | `describe` | a description in JSON |
//! | `index` | the value index: ranges of blocks as of a moment, and the fold that makes them |
//! | `write` | writes to a selection, appends, changes of shape |
//! | `verify`, `verified` | checks of the objects of one array, and of several with their log |

mod ahead;
mod describe;
mod hosted;
pub(crate) mod index;
mod known;
mod read;
mod redirect;
pub(crate) mod verified;
mod verify;
mod visit;
mod write;

use std::sync::Arc;

use bedform_format::DataType;
use bedform_format::chunk_map::ForeignArray;
use bedform_format::metadata::ArrayMetadata;
use bedform_geometry::{Order, Region, element_count};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::callback::CalledVariable;
use crate::foreign::facts::ForeignVariable;
use crate::foreign::{Callback, CallbackArray, ForeignFile};
use crate::log::array::ArrayHandle;
use crate::options::OpenOptions;
use crate::zarr::state::ArrayState;

pub use crate::write::elements::Elements;
pub use hosted::HostedUses;
pub use index::{BlockRange, ValueIndex};
pub(crate) use redirect::{BoundObjects, Standings};
pub use visit::{Prefetched, SelectedRun, VisitedChunk, VisitedElements};
pub use write::{Append, Growth, append, append_with};

/// An array of a store, or a variable of a foreign file. Cheap to clone; safe to share between
/// threads.
#[derive(Debug, Clone)]
pub struct Array {
    backing: ArrayBacking,
}

/// The source of an array's elements.
#[derive(Debug, Clone)]
enum ArrayBacking {
    /// Shards of a store, and its log.
    Stored(ArrayHandle),
    /// A variable of one foreign file or of many joined, or a callback.
    Foreign(Arc<dyn ForeignVariable>),
}

impl Array {
    /// Wraps the handle of an array of a store.
    pub(crate) fn stored_in(handle: ArrayHandle) -> Self {
        Self { backing: ArrayBacking::Stored(handle) }
    }

    /// Opens the variable at `path` of a foreign file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that only its format's library reads.
    pub fn of_file(file: &ForeignFile, path: &str) -> Result<Self> {
        Ok(Self { backing: ArrayBacking::Foreign(file.any_variable(path)?) })
    }

    /// Opens the variable at `path` of a foreign file, read by a callback because only the library
    /// of its format can. Shape, type and chunks come from the file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for elements without a type of fixed size.
    pub fn of_file_by(file: &ForeignFile, path: &str, callback: Callback) -> Result<Self> {
        let variable = Arc::new(CalledVariable::of_file(file, path, callback)?);
        Ok(Self { backing: ArrayBacking::Foreign(variable) })
    }

    /// Makes an array of a callback that supplies elements region by region, with the reads, plans
    /// and cache of all arrays. The callback is called for whole chunks.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use bedform::foreign::{Callback, CallbackArray};
    /// use bedform::{Array, OpenOptions};
    /// use bedform_format::DataType;
    /// use bedform_geometry::{AxisRange, AxisSelection, Selection};
    ///
    /// let squares = |region: &bedform_geometry::Region, buffer: &mut [u8]| {
    ///     for (at, element) in (region.start()[0]..).zip(buffer) {
    ///         *element = (at * at) as u8;
    ///     }
    ///     Ok(())
    /// };
    /// let described = CallbackArray::new("squares", &[12], DataType::UInt8).with_chunks(&[4]);
    /// let callback = Callback::new(Arc::new(squares));
    /// let array = Array::of_callback(described, callback, &OpenOptions::default())?;
    ///
    /// let mut buffer = [0; 3];
    /// let every_fifth = Selection::Orthogonal(vec![AxisSelection::Range(AxisRange::new(1, 5, 3)?)]);
    /// array.read(&every_fifth, &mut buffer)?;
    /// assert_eq!(buffer, [1, 36, 121]);
    /// assert!(array.explain(&every_fifth)?.read_by_callback);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` for a shape or fill value that does not fit; `Unsupported` for text;
    /// `LimitExceeded` for chunks larger than the limit.
    pub fn of_callback(
        array: CallbackArray,
        callback: Callback,
        options: &OpenOptions,
    ) -> Result<Self> {
        let variable = Arc::new(CalledVariable::alone(array, callback, options)?);
        Ok(Self { backing: ArrayBacking::Foreign(variable) })
    }

    /// Makes an array of values in memory, in C order and native byte order.
    ///
    /// # Errors
    /// `InvalidArgument` if the bytes are not those of the shape; `Unsupported` for text.
    pub fn of_values(
        name: &str,
        shape: &[u64],
        data_type: DataType,
        values: Vec<u8>,
    ) -> Result<Self> {
        let item = data_type.item_size().unwrap_or(1) as u64;
        let expected = element_count(shape).and_then(|count| count.checked_mul(item));
        if expected != Some(values.len() as u64) {
            let length = values.len();
            return Err(Error::invalid(format!("{name}: {length} bytes for the shape {shape:?}")));
        }
        let described = CallbackArray::new(name, shape, data_type);
        // Without chunks all of it is one, so that a region is the whole.
        let read = move |_: &Region, buffer: &mut [u8]| match buffer.len() == values.len() {
            true => {
                buffer.copy_from_slice(&values);
                Ok(())
            }
            false => Err(Error::new(ErrorKind::Internal, "values in memory are one chunk")),
        };
        let callback = Callback::new(Arc::new(read)).not_kept();
        Self::of_callback(described, callback, &OpenOptions::default())
    }

    /// Returns warnings about writes through the array's store since the last call: a line for each
    /// array whose chunks differ much in size from the sample that chose its codecs.
    pub fn take_warnings(&self) -> Vec<String> {
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.store.tallies.take_lines(),
            ArrayBacking::Foreign(_) => Vec::new(),
        }
    }

    /// The handle of an array of a store.
    ///
    /// # Errors
    /// `ReadOnly` for a variable of a foreign file.
    pub(crate) fn stored(&self) -> Result<&ArrayHandle> {
        match &self.backing {
            ArrayBacking::Stored(handle) => Ok(handle),
            ArrayBacking::Foreign(variable) => Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "{}: foreign files are never written; convert it with 'bedform convert'",
                    variable.facts().name
                ),
            )),
        }
    }

    /// The state of an array of a store, with its document.
    ///
    /// # Errors
    /// Those of looking up the array again; `Unsupported` for a variable of a foreign file.
    fn documented(&self) -> Result<Arc<ArrayState>> {
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.state(),
            ArrayBacking::Foreign(variable) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is in a foreign file, and has no Zarr document", variable.facts().name),
            )),
        }
    }

    /// The array's path in its store or file.
    pub fn path(&self) -> &str {
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.path.as_str(),
            ArrayBacking::Foreign(variable) => &variable.facts().path,
        }
    }

    /// The array's name as a user knows it.
    pub fn name(&self) -> String {
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.name(),
            ArrayBacking::Foreign(variable) => variable.facts().name.clone(),
        }
    }

    /// Elements along each axis.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn shape(&self) -> Result<Vec<u64>> {
        match &self.backing {
            ArrayBacking::Stored(handle) => Ok(handle.state()?.metadata.shape.clone()),
            ArrayBacking::Foreign(variable) => {
                Ok(variable.facts().layout.grid.array_shape().to_vec())
            }
        }
    }

    /// The fill value as an element of a buffer, in the machine's byte order; empty for text.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn fill_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.known()?.layout().fill.bytes().to_vec())
    }

    /// NumPy's name of the elements' type in memory; `O` for text.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn numpy(&self) -> Result<String> {
        Ok(self.data_type()?.numpy())
    }

    /// The type of the elements.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn data_type(&self) -> Result<DataType> {
        match &self.backing {
            ArrayBacking::Stored(handle) => Ok(handle.state()?.metadata.data_type),
            ArrayBacking::Foreign(variable) => Ok(variable.facts().data_type),
        }
    }

    /// The name of each axis, if it has one.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn dimension_names(&self) -> Result<Vec<Option<String>>> {
        match &self.backing {
            ArrayBacking::Stored(handle) => {
                let metadata = &handle.state()?.metadata;
                let unnamed = || vec![None; metadata.shape.len()];
                Ok(metadata.dimension_names.clone().unwrap_or_else(unnamed))
            }
            ArrayBacking::Foreign(variable) => Ok(variable.dimension_names()),
        }
    }

    /// The variable in the chunk map of its file, if it has one: names, types and attributes as
    /// the file stores them.
    pub(crate) fn described_in_file(&self) -> Option<&ForeignArray> {
        match &self.backing {
            ArrayBacking::Stored(_) => None,
            ArrayBacking::Foreign(variable) => variable.described().map(|(_, array)| array),
        }
    }

    /// The array's metadata.
    ///
    /// # Errors
    /// Those of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn metadata(&self) -> Result<ArrayMetadata> {
        Ok(self.documented()?.metadata.clone())
    }

    /// The order of the chunks in the shards that Bedform writes to this array.
    ///
    /// # Errors
    /// Those of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn order(&self) -> Result<Order> {
        Ok(self.documented()?.order)
    }

    /// The document that describes the array: for Zarr v3 as the last commit left it, for v2
    /// `.zarray`.
    ///
    /// # Errors
    /// Those of looking up the array again; `Unsupported` for a variable of a foreign file.
    pub fn document(&self) -> Result<Value> {
        let document = self.documented()?.document.clone();
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.with_values(document),
            ArrayBacking::Foreign(_) => Ok(document),
        }
    }

    /// The user's attributes.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn attributes(&self) -> Result<Map<String, Value>> {
        match &self.backing {
            ArrayBacking::Stored(handle) => handle.values(&handle.state()?.metadata.attributes),
            ArrayBacking::Foreign(variable) => Ok(variable.attributes()),
        }
    }
}
