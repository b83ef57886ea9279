//! Writing of documents, and their seal, which detects changed bits.
//!
//! A sealed document stores its own length and CRC-32C in `bedform.seal`. Other programs that
//! rewrite a document keep unknown keys, so a rewritten document may contain an outdated seal. But
//! they do not reproduce Bedform's format (indented by one space) at the same length. So a document
//! in that format and of the sealed length must match its checksum. Any other document was
//! rewritten by another program, and is accepted as it is.

use serde_json::{Map, Value, json};

use super::element_type::{DATE_TIME, FIXED_BYTES, FIXED_UNICODE, RAW_BYTES, TIME_DELTA};
use super::{
    ArrayMetadata, CodecChoice, Encoding, Identity, LogState, MetadataError, ShardEncoding,
};
use crate::checksum::{UNSEALED, crc32c_of_sealed, set_seal};
use crate::codec::{CodecChain, definitions};
use crate::json::KeptTexts;
use crate::{DataType, TimeUnit};

/// The version of the `bedform` key in the document of an array with open codecs.
pub(super) const OPEN_VERSION: u32 = 2;

/// Returns the document of an array, not yet sealed. Its attributes stay
/// [text](crate::json::object_text).
pub fn write_array(metadata: &ArrayMetadata) -> Value {
    let mut document = Map::new();
    document.insert("zarr_format".into(), json!(3));
    document.insert("node_type".into(), json!("array"));
    if let Some(identity) = &metadata.identity {
        let mut own = own_key(&identity.store, Some(identity));
        if let Some(order) = &metadata.order {
            own["order"] = json!(order);
        }
        set_choice(&mut own, metadata.choice.as_ref());
        document.insert("bedform".into(), own);
    }
    document.insert("shape".into(), json!(metadata.shape));
    document.insert("data_type".into(), write_data_type(metadata.data_type));
    document.insert(
        "chunk_grid".into(),
        json!({"name": "regular", "configuration": {"chunk_shape": metadata.chunk_shape}}),
    );
    let encoding = if metadata.keys.prefixed { "default" } else { "v2" };
    document.insert(
        "chunk_key_encoding".into(),
        json!({
            "name": encoding,
            "configuration": {"separator": metadata.keys.separator.to_string()},
        }),
    );
    document.insert("fill_value".into(), metadata.fill_value.to_json(metadata.data_type));
    document.insert("codecs".into(), write_codecs(&metadata.encoding, metadata.data_type));
    document.insert("attributes".into(), metadata.attributes.to_value());
    if let Some(names) = &metadata.dimension_names {
        document.insert("dimension_names".into(), json!(names));
    }
    document.insert("storage_transformers".into(), json!([]));
    Value::Object(document)
}

/// Writes the codec choice into the `bedform` key of an array.
fn set_choice(own: &mut Value, choice: Option<&CodecChoice>) {
    let is_open = choice.is_some_and(CodecChoice::is_open);
    own["version"] = json!(if is_open { OPEN_VERSION } else { 1 });
    if let Some(choice) = choice {
        own["choice"] = choice.to_value();
    }
}

/// Replaces the open codecs in an array's document by the chosen `encoding` of its objects.
pub fn close_choice(
    document: &mut Value,
    encoding: &Encoding,
    data_type: DataType,
    choice: &CodecChoice,
) {
    document["codecs"] = write_codecs(encoding, data_type);
    if let Some(own) = document.get_mut("bedform") {
        set_choice(own, Some(choice));
    }
}

/// Returns a data type in its Zarr v3 form.
pub fn write_data_type(data_type: DataType) -> Value {
    let fixed = |name: &str| json!({"name": name, "configuration": {"length_bytes": data_type.item_size()}});
    let time = |name: &str, unit: TimeUnit| json!({"name": name, "configuration": {"unit": unit.unit(), "scale_factor": unit.count()}});
    match data_type {
        DataType::FixedBytes(_) => fixed(FIXED_BYTES),
        DataType::FixedUnicode(_) => fixed(FIXED_UNICODE),
        DataType::Raw(_) => fixed(RAW_BYTES),
        DataType::DateTime(unit) => time(DATE_TIME, unit),
        DataType::TimeDelta(unit) => time(TIME_DELTA, unit),
        _ => json!(data_type.v3_name()),
    }
}

/// Returns the document of a group, not yet sealed.
///
/// `consolidated` holds the documents of all nodes below; only the root of a store has it. The
/// root's `bedform` key is inside the consolidated metadata: zarr-python refuses groups with
/// unknown top-level keys, and ignores unknown keys there. Groups below the root have no `bedform`
/// key.
pub fn write_group(
    store: &[u8; 16],
    attributes: &Map<String, Value>,
    consolidated: Option<Map<String, Value>>,
) -> Value {
    let mut document = Map::new();
    document.insert("zarr_format".into(), json!(3));
    document.insert("node_type".into(), json!("group"));
    if let Some(metadata) = consolidated {
        let consolidated = write_consolidated(store, LogState::default(), metadata);
        document.insert("consolidated_metadata".into(), consolidated);
    }
    document.insert("attributes".into(), Value::Object(attributes.clone()));
    Value::Object(document)
}

/// Returns the consolidated metadata of a store's root, with the `bedform` key and the state of the
/// log.
pub fn write_consolidated(store: &[u8; 16], log: LogState, metadata: Map<String, Value>) -> Value {
    let mut own = own_key(store, None);
    if log.pending {
        own["pending"] = json!(true);
    }
    if log.kept {
        own["kept"] = json!(true);
    }
    if log.settled > 0 {
        own["settled"] = json!(log.settled);
    }
    json!({
        "bedform": own,
        "kind": "inline",
        "must_understand": false,
        "metadata": metadata,
    })
}

/// Returns the `bedform` key in the document of an array or of a store's root.
pub fn own_value(document: &Value) -> Option<&Value> {
    let holder = match document.get("consolidated_metadata") {
        Some(consolidated) => consolidated,
        None => document,
    };
    holder.get("bedform")
}

fn own_value_mut(document: &mut Value) -> Option<&mut Map<String, Value>> {
    let holder = match document.get("consolidated_metadata") {
        Some(_) => document.get_mut("consolidated_metadata")?,
        None => document,
    };
    holder.get_mut("bedform")?.as_object_mut()
}

fn own_key(store: &[u8; 16], identity: Option<&Identity>) -> Value {
    let mut own = json!({"must_understand": false, "version": 1, "store": hex(store)});
    if let Some(identity) = identity {
        own["array"] = json!(hex(&identity.array));
    }
    own
}

/// Returns the hexadecimal form of a key: two digits per byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the codecs of an array in their Zarr v3 form.
pub fn write_codecs(encoding: &Encoding, data_type: DataType) -> Value {
    match encoding {
        Encoding::Chunk(chain) => write_chain(chain, data_type),
        Encoding::Shard(shard) => json!([write_shard(shard, data_type)]),
    }
}

fn write_shard(shard: &ShardEncoding, data_type: DataType) -> Value {
    let mut index_codecs = vec![json!({"name": "bytes", "configuration": {"endian": "little"}})];
    if shard.index_checked {
        index_codecs.push(json!({"name": "crc32c"}));
    }
    json!({
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": shard.chunk_shape,
            "codecs": write_codecs(&shard.inner, data_type),
            "index_codecs": index_codecs,
            "index_location": if shard.index_at_start { "start" } else { "end" },
        },
    })
}

fn write_chain(chain: &CodecChain, data_type: DataType) -> Value {
    let mut list = Vec::new();
    if let Some(order) = &chain.transpose {
        list.push(json!({"name": "transpose", "configuration": {"order": order}}));
    }
    // Zarr v2 allows filters anywhere in a chain; in v3, the leading ones precede the serializer.
    let filters = chain.bytes.iter().take_while(|codec| codec.is_filter()).count();
    let (filters, bytes) = chain.bytes.split_at(filters);
    let written = |codec| definitions::write_bytes_codec(codec, data_type);
    list.extend(filters.iter().map(written));
    list.push(definitions::write(definitions::SERIALIZERS, &chain.serializer, data_type));
    list.extend(bytes.iter().map(written));
    Value::Array(list)
}

const FORM: &[u8] = b"{\n \"zarr_format\"";

/// Returns `document` as stored bytes, with its seal. A document without the key `bedform` gets no
/// seal.
pub fn seal(document: Value) -> Vec<u8> {
    seal_with(document, &[])
}

/// As [`seal`], with the members `kept` of objects that are empty in the document.
pub fn seal_with(mut document: Value, kept: &[KeptTexts<'_>]) -> Vec<u8> {
    let own = own_value_mut(&mut document);
    let sealed = own.map(|own| own.insert("seal".into(), json!(UNSEALED))).is_some();
    let mut bytes = crate::json::write_with(&document, kept);
    bytes.push(b'\n');
    if sealed && let Some(at) = seal_position(&bytes, UNSEALED) {
        set_seal(&mut bytes, at);
    }
    bytes
}

/// Returns the offset of the seal's text. The key `bedform` precedes all of the user's members.
fn seal_position(bytes: &[u8], seal: &str) -> Option<usize> {
    let pattern = format!("\"seal\": \"{seal}\"");
    let at = bytes.windows(pattern.len()).position(|window| window == pattern.as_bytes())?;
    Some(at + "\"seal\": \"".len())
}

/// Checks the seal of a stored document. Returns true if the seal is in force, which means that
/// Bedform wrote the document last.
///
/// # Errors
/// [`MetadataError::Checksum`] if the bytes have changed.
pub fn check_seal(bytes: &[u8], document: &Value) -> Result<bool, MetadataError> {
    if bytes.starts_with(FORM) { check_seal_in_form(bytes, document) } else { Ok(false) }
}

/// As [`check_seal`], for a document that is known to be in Bedform's format.
pub(crate) fn check_seal_in_form(bytes: &[u8], document: &Value) -> Result<bool, MetadataError> {
    let seal = own_value(document).and_then(|own| own.get("seal")).and_then(Value::as_str);
    let Some((seal, (length, checksum))) =
        seal.and_then(|seal| Some((seal, seal.split_once(':')?)))
    else {
        return Ok(false);
    };
    if length.parse() != Ok(bytes.len()) {
        return Ok(false);
    }
    let Ok(expected) = u32::from_str_radix(checksum, 16) else { return Ok(false) };
    let Some(at) = seal_position(bytes, seal) else { return Ok(false) };
    let found = crc32c_of_sealed(bytes, at + length.len() + 1..at + seal.len());
    if found == expected { Ok(true) } else { Err(MetadataError::Checksum { expected, found }) }
}
