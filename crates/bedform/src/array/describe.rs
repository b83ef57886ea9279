//! Arrays as plain JSON: for `info`, for the doors, for people.

use bedform_format::metadata::{CodecChoice, Encoding, write_codecs};
use serde_json::{Value, json};

use super::{Array, ArrayBacking};
use crate::error::Result;
use crate::zarr::state::inner;

impl Array {
    /// Describes the array as a JSON object: `shape`, `dtype` (Zarr's name), `numpy` (NumPy's; for
    /// structured elements the list of fields), `chunks`, `shards` (null without), `order` (null
    /// without), `codecs` (of a chunk, as in Zarr metadata), `codec_choice` (null if they were
    /// named; `open` if the first write chooses; else the comparison), `fill_value`, `dims`,
    /// `attributes`, `zarr_format`, `bedform` (whether Bedform made it) and `checked` (whether a
    /// changed bit in a chunk is always noticed). A variable of a foreign file lacks the keys about
    /// Zarr, and has `storage` and `encoding`.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub fn describe(&self) -> Result<Value> {
        let handle = match &self.backing {
            ArrayBacking::Stored(handle) => handle,
            ArrayBacking::Foreign(variable) => return Ok(variable.describe()),
        };
        let state = handle.state()?;
        let metadata = &state.metadata;
        let (chunks, chain) = inner(metadata)?;
        let shards = metadata.shard().map(|_| &metadata.chunk_shape);
        let codecs = write_codecs(&Encoding::Chunk(chain.clone()), metadata.data_type);
        let mut description = json!({
            "path": self.path(),
            "shape": metadata.shape,
            "dtype": metadata.data_type.to_string(),
            "numpy": match &metadata.structure {
                Some(structure) => structure.numpy().clone(),
                None => Value::from(metadata.data_type.numpy()),
            },
            "chunks": chunks,
            "shards": shards,
            "order": shards.map(|_| state.order.name()),
            "codecs": codecs,
            "codec_choice": metadata.choice.as_ref().map(CodecChoice::to_value),
            "fill_value": metadata.fill_value.to_json(metadata.data_type),
            "dims": metadata.dimension_names,
            "attributes": null,
            "zarr_format": metadata.zarr_format,
            "bedform": metadata.identity.is_some(),
            "checked": chain.is_checked(),
        });
        // Moved instead of copied: they may be large.
        description["attributes"] = Value::Object(handle.values(&metadata.attributes)?);
        Ok(description)
    }
}
