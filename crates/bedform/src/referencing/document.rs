//! Metadata of the arrays and groups of a set, in Zarr v2 and v3.

use bedform_format::chunk_map::ForeignArray;
use bedform_format::codec::{CodecChain, Serializer};
use bedform_format::json::{self, ObjectText};
use bedform_format::metadata::{
    ArrayMetadata, ChunkKeys, Encoding, FillValue, write_array, write_array_v2, write_attributes_v2,
};
use serde_json::{Map, Value, json};

use super::fill::FillRule;
use super::grid::ChunkForm;
use super::{ReferenceForm, ReferenceSet, SetArray};
use crate::convert::encoded_attributes;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::attributes::{AttributeStyle, dimension_names, variable_attributes};

/// Returns the attributes of an array as readers of the format expect them.
pub(super) fn attributes(
    array: &ForeignArray,
    style: AttributeStyle,
    form: ReferenceForm,
    fill: &FillRule,
) -> Map<String, Value> {
    let mut attributes = match form {
        ReferenceForm::Icechunk => encoded_attributes(array, style),
        ReferenceForm::Kerchunk => variable_attributes(array, style),
    };
    if !fill.keeps_attribute {
        attributes.shift_remove("_FillValue");
    }
    attributes
}

/// Returns the metadata of an array.
///
/// # Errors
/// `Unsupported` for elements without a type.
pub(super) fn metadata(
    array: &ForeignArray,
    form: ChunkForm,
    fill: &FillRule,
    attributes: &Map<String, Value>,
    format: ReferenceForm,
) -> Result<ArrayMetadata> {
    let data_type = array.data_type.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("{:?}: elements without a type", array.path))
    })?;
    let names = dimension_names(array).into_iter().map(Some).collect();
    Ok(ArrayMetadata {
        shape: array.shape.clone(),
        data_type,
        structure: None,
        chunk_shape: form.shape,
        keys: match format {
            ReferenceForm::Kerchunk => ChunkKeys { prefixed: false, separator: '.' },
            ReferenceForm::Icechunk => ChunkKeys::DEFAULT,
        },
        fill_value: FillValue::Bytes(fill.bytes.clone()),
        encoding: Encoding::Chunk(CodecChain {
            transpose: None,
            serializer: Serializer::Bytes(form.endian),
            bytes: form.codecs,
        }),
        dimension_names: Some(names),
        attributes: ObjectText::from(attributes),
        identity: None,
        order: None,
        choice: None,
        zarr_format: if format == ReferenceForm::Kerchunk { 2 } else { 3 },
    })
}

impl ReferenceSet {
    /// Returns the Zarr v2 documents of all groups and arrays: keys such as `t/.zarray`, and texts.
    pub fn documents_v2(&self) -> Vec<(String, String)> {
        let mut documents = Vec::new();
        for group in &self.groups {
            let mut add = |name, document: &Value| {
                documents.push((key(&group.path, name), text(document)));
            };
            add(".zgroup", &json!({"zarr_format": 2}));
            if group.path.is_empty() || !group.attributes.is_empty() {
                add(".zattrs", &Value::Object(group.attributes.clone()));
            }
        }
        for SetArray { path, metadata, attributes, has_fill, .. } in &self.arrays {
            let array = write_array_v2(metadata, *has_fill);
            documents.push((key(path, ".zarray"), text(&array)));
            let names = metadata.dimension_names.as_deref().unwrap_or_default();
            documents.push((key(path, ".zattrs"), text(&write_attributes_v2(attributes, names))));
        }
        documents
    }

    /// Returns the Zarr v3 documents of all groups and arrays: keys such as `t/zarr.json`, and
    /// texts.
    pub fn documents_v3(&self) -> Vec<(String, String)> {
        let groups = self.groups.iter().map(|group| {
            let attributes = &group.attributes;
            let document =
                json!({"zarr_format": 3, "node_type": "group", "attributes": attributes});
            (key(&group.path, "zarr.json"), text(&document))
        });
        let arrays = self
            .arrays
            .iter()
            .map(|array| (key(&array.path, "zarr.json"), text(&write_array(&array.metadata))));
        groups.chain(arrays).collect()
    }
}

/// Returns the key of an object of a node.
pub(super) fn key(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn text(document: &Value) -> String {
    String::from_utf8_lossy(&json::write(document)).into_owned()
}
