//! The arrays of the target.

use bedform_format::metadata::CodecChoice;
use bedform_format::{BytesCodec, Limits, ObjectPath, Serializer};
use bedform_geometry::Region;
use serde_json::Value;

use super::CodecWish;
use super::copy::ConversionJob;
use super::plan::{ArrayPlan, layout_of};
use super::source::{RegionBuffers, SourceArray};
use crate::codec::choice::ChosenCodecs;
use crate::error::Result;
use crate::store::Store;
use crate::zarr::choosing::chosen_for;
use crate::zarr::{ArrayLayout, NewArray};

/// Arrays of fewer bytes are read as a whole to choose their codecs.
const READ_BYTES_MAX: u64 = 8 << 20;

impl ConversionJob<'_> {
    /// The description of the target's array in `store` for `plan`. All elements of a small array
    /// choose its codecs, and the first region that is written those of a large one.
    ///
    /// # Errors
    /// Those of reading the source; `InvalidArgument` for codecs that the array cannot have.
    pub(super) fn new_array(
        &self,
        store: &Store,
        path: &ObjectPath,
        plan: &ArrayPlan,
    ) -> Result<NewArray> {
        let source = self.source.array(&plan.name)?;
        let mut new = new_array(&source, plan, &self.plan.codecs)?;
        if self.plan.flat_keys {
            new.layout.keys.separator = '.';
        }
        if plan.bytes() >= READ_BYTES_MAX {
            return Ok(new);
        }
        chosen_for(&**store.zarr()?, path, &new, &|take| {
            let mut values = RegionBuffers::default();
            source.read(&Region::whole(plan.shape.clone())?, &mut values)?;
            take(&values.bytes)
        })
    }
}

fn new_array(source: &SourceArray, plan: &ArrayPlan, codecs: &CodecWish) -> Result<NewArray> {
    let layout = layout_of(plan)?;
    let names = plan.dims.iter().cloned().map(Some).collect();
    let (serializer, bytes, choice) = codecs_of(source, &layout.chunks, codecs)?;
    Ok(NewArray {
        shape: plan.shape.clone(),
        data_type: source.data_type(),
        layout: ArrayLayout {
            serializer,
            shard_shape: layout.shards.unwrap_or_else(|| layout.chunks.clone()),
            chunk_shape: layout.chunks,
            order: layout.order,
            codecs: bytes,
            transpose: None,
            checksum: true,
            keys: bedform_format::metadata::ChunkKeys::DEFAULT,
            choice,
        },
        fill_value: source.fill_value.clone(),
        dimension_names: Some(names),
        attributes: source.attributes.clone(),
    })
}

/// The codecs of the copy of an array, and the open choice if the first write is to choose them.
///
/// # Errors
/// `InvalidArgument` for codecs that the array cannot have.
pub(super) fn codecs_of(
    source: &SourceArray,
    chunks: &[u64],
    wish: &CodecWish,
) -> Result<(Option<Serializer>, Vec<BytesCodec>, Option<CodecChoice>)> {
    match wish {
        CodecWish::Named(named) => {
            let named = Value::Array(named.clone());
            let limits = Limits::default();
            let (serializer, bytes) =
                crate::zarr::description::codecs(&named, chunks, source.data_type(), &limits)?;
            Ok((serializer, bytes, None))
        }
        CodecWish::Auto { beyond_zarr } => {
            let ChosenCodecs { serializer, codecs, .. } = ChosenCodecs::without_sample();
            let choice = CodecChoice::Open { beyond_zarr: *beyond_zarr };
            Ok((serializer, codecs, (!source.is_text()).then_some(choice)))
        }
    }
}
