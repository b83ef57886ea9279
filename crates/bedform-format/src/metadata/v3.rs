//! Zarr v3 documents.

use serde_json::{Map, Value};

use super::element_type::element_type;
use super::writer::OPEN_VERSION;
use super::{
    ArrayMetadata, ChunkKeys, CodecChoice, Encoding, FillValue, Identity, MetadataError,
    ShardEncoding,
};
use crate::codec::definitions::{self, BYTES_CODECS, Context, SERIALIZERS, is_filter_name};
use crate::codec::filters::{FILTERS, check_filters};
use crate::codec::{BytesCodec, CodecChain, Serializer, is_serializer};
use crate::fields::{Fields, Named, invalid, shown, unsupported};
use crate::json::{self, KeptTexts, ObjectText, Texts, object_text};
use crate::{DataType, Endian, Limits};

type Result<T> = std::result::Result<T, MetadataError>;

/// The parsed document of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDocument {
    /// The user's attributes as text, parsed on demand.
    pub attributes: ObjectText,
    /// Consolidated documents of all nodes below the group, by path; `None` without consolidated
    /// metadata.
    pub consolidated: Option<Texts>,
    /// The store's identity, if Bedform made the group.
    pub store: Option<[u8; 16]>,
    /// State of the store's log.
    pub log: LogState,
    /// A pending or finished replacement of a group by another.
    pub replacing: Option<Replacing>,
    /// Zarr version: 2 or 3.
    pub zarr_format: u8,
}

/// Parses an array's document.
///
/// # Errors
/// [`MetadataError`] names the field at fault. Counts in the document cause no allocation.
pub fn parse_array(document: &Value, limits: &Limits) -> Result<ArrayMetadata> {
    let fields = Fields::new("", document)?;
    check_node(&fields, "array", ARRAY_KEYS)?;
    let shape = fields.lengths("shape", limits.rank_max, 0)?;
    let (data_type, structure) = element_type(&fields)?;
    let grid = Named::parse("chunk_grid", fields.need("chunk_grid")?)?;
    if grid.name != "regular" {
        return Err(unsupported("chunk_grid.name", format!("the chunk grid {:?}", grid.name)));
    }
    let chunk_shape = grid.fields()?.lengths("chunk_shape", limits.rank_max, 0)?;
    let chunk_shape = chunk_lengths("chunk_grid.configuration.chunk_shape", chunk_shape, &shape)?;
    if !fields.get("storage_transformers").is_none_or(|list| list == &Value::Array(Vec::new())) {
        return Err(unsupported("storage_transformers", "a storage transformer"));
    }
    let encoding = parse_codecs("codecs", fields.need("codecs")?, &chunk_shape, data_type, limits)?;
    let metadata = ArrayMetadata {
        fill_value: FillValue::parse(fields.need("fill_value")?, data_type)?,
        dimension_names: dimension_names(&fields, shape.len())?,
        attributes: attributes(&fields)?,
        identity: identity(&fields)?,
        order: order(&fields)?,
        choice: choice(&fields)?,
        keys: chunk_keys(fields.need("chunk_key_encoding")?)?,
        zarr_format: 3,
        shape,
        data_type,
        structure,
        chunk_shape,
        encoding,
    };
    check_sizes(&metadata, limits)?;
    Ok(metadata)
}

/// Documents of other nodes inside the document of a group, kept as text because there may be many.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupTexts {
    /// Documents of all nodes below the group, by path.
    pub consolidated: Option<Texts>,
    /// Documents of a group that is about to replace another, by path below it.
    pub replacing: Option<Texts>,
}

impl GroupTexts {
    const PATHS: [&[&str]; 2] = [
        &["consolidated_metadata", "metadata"],
        &["consolidated_metadata", "replacing", "metadata"],
    ];

    /// Parses the kept documents and inserts them into `document`, from which they were kept, so that it
    /// can be changed and published as a whole.
    ///
    /// # Errors
    /// As [`parse_document`].
    pub fn insert_into(self, document: &mut Value, limits: &Limits) -> Result<()> {
        for (path, texts) in self.kept() {
            let values = texts.iter().map(|(key, text)| Ok((key.clone(), text.parse(limits)?)));
            let values: Map<String, Value> = values.collect::<Result<_>>()?;
            let place = path.iter().try_fold(&mut *document, |value, key| value.get_mut(key));
            if let Some(place) = place {
                *place = Value::Object(values);
            }
        }
        Ok(())
    }

    /// Returns the kept documents with their paths in the document.
    pub fn kept(&self) -> Vec<KeptTexts<'_>> {
        let texts = [&self.consolidated, &self.replacing];
        Self::PATHS
            .into_iter()
            .zip(texts)
            .filter_map(|(path, texts)| Some((path, texts.as_ref()?)))
            .collect()
    }
}

/// Parses the document of a group or array; keeps attributes and the documents of other nodes as
/// text.
///
/// # Errors
/// As [`json::parse`].
pub fn parse_document(bytes: &[u8], limits: &Limits) -> Result<(Value, GroupTexts)> {
    let (document, [consolidated, replacing]) =
        json::parse_keeping(bytes, limits, GroupTexts::PATHS)?;
    let texts = GroupTexts { consolidated, replacing };
    if texts != GroupTexts::default() && document.get("node_type") == Some(&"array".into()) {
        // The document is an array's, and its odd member is its own: parses it without keeping
        // texts.
        let (document, []) = json::parse_keeping(bytes, limits, [])?;
        return Ok((document, GroupTexts::default()));
    }
    Ok((document, texts))
}

/// Parses a group's document from which `texts` were kept.
///
/// # Errors
/// As [`parse_array`].
pub fn parse_group(document: &Value, texts: GroupTexts) -> Result<GroupDocument> {
    let fields = Fields::new("", document)?;
    check_node(&fields, "group", GROUP_KEYS)?;
    let (mut store, mut log, mut replacing) = (None, LogState::default(), None);
    let consolidated = match fields.get("consolidated_metadata") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let inner = Fields::new("consolidated_metadata", value)?;
            store = identity_field(&inner, "store")?;
            log = log_state(&inner)?;
            if let Some(value) = inner.get("replacing") {
                replacing = Some(Replacing::parse(value, texts.replacing)?);
            }
            if inner.text("kind")? != "inline" {
                return Err(unsupported("consolidated_metadata.kind", "a kind but 'inline'"));
            }
            let found = inner.need("metadata")?;
            Some(
                texts
                    .consolidated
                    .ok_or_else(|| no_object("consolidated_metadata.metadata", found))?,
            )
        }
    };
    let attributes = attributes(&fields)?;
    Ok(GroupDocument { attributes, consolidated, store, log, replacing, zarr_format: 3 })
}

fn no_object(field: &str, found: &Value) -> MetadataError {
    invalid(field, format!("expected an object, found {}", shown(found)))
}

/// A replacement of a group, while the consolidated metadata still have the old documents. The
/// exchange of the two directories decides which group counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacing {
    /// Path of the group.
    pub group: String,
    /// The new documents, by path below the group; the group's own path is empty.
    pub metadata: Texts,
}

impl Replacing {
    const FIELD: &str = "consolidated_metadata.replacing";

    fn parse(value: &Value, metadata: Option<Texts>) -> Result<Self> {
        let fields = Fields::new(Self::FIELD, value)?;
        let found = fields.need("metadata")?;
        let metadata = metadata.ok_or_else(|| no_object(Self::FIELD, found))?;
        Ok(Self { group: fields.text("group")?.to_owned(), metadata })
    }

    /// Returns the JSON form for the consolidated metadata of a store's root, without the new
    /// documents.
    pub fn to_value(&self) -> Value {
        serde_json::json!({"group": self.group, "metadata": {}})
    }
}

/// The state of the log, as a store's root document records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogState {
    /// True if there are commits that are not settled.
    pub pending: bool,
    /// True if a log exists although all commits are settled, because a writer or reader still
    /// needs it. The log lists the shards that must exist. Without the log, the store is complete.
    pub kept: bool,
    /// All commits up to this number are settled. Numbers are never reused.
    pub settled: u64,
}

impl LogState {
    /// Makes the state without a log: all commits up to `settled` are in the shards.
    pub fn all_settled(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Returns true if the reader must look for a log.
    pub fn has_log(self) -> bool {
        self.pending || self.kept
    }
}

fn log_state(fields: &Fields<'_, '_>) -> Result<LogState> {
    let Some(own) = fields.get("bedform") else { return Ok(LogState::default()) };
    let mark = |name: &str| match own.get(name) {
        None => Ok(false),
        Some(Value::Bool(is_so)) => Ok(*is_so),
        Some(other) => {
            let found = format!("expected true or false, found {}", shown(other));
            Err(invalid(format!("bedform.{name}"), found))
        }
    };
    let (pending, kept) = (mark("pending")?, mark("kept")?);
    let settled = match own.get("settled") {
        None => 0,
        Some(number) => number.as_u64().ok_or_else(|| {
            invalid("bedform.settled", format!("expected a number, found {}", shown(number)))
        })?,
    };
    Ok(LogState { pending, kept, settled })
}

const ARRAY_KEYS: &[&str] = &[
    "zarr_format",
    "node_type",
    "bedform",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];
const GROUP_KEYS: &[&str] = &["zarr_format", "node_type", "attributes", "consolidated_metadata"];

fn check_node(fields: &Fields<'_, '_>, kind: &str, known: &[&str]) -> Result<()> {
    fields.integer("zarr_format", 3..=3, None)?;
    let found = fields.text("node_type")?;
    if found != kind {
        return Err(invalid("node_type", format!("expected {kind:?}, found {found:?}")));
    }
    for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
        let ignorable = fields
            .get(key)
            .and_then(|value| value.get("must_understand"))
            .is_some_and(|flag| flag == &Value::Bool(false));
        if !ignorable {
            return Err(unsupported(key.clone(), "this extension"));
        }
    }
    Ok(())
}

pub(super) fn same_rank(field: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(invalid(field, format!("{found} dimensions, but the array has {expected}")))
}

/// Checks chunk lengths. zarr-python writes 0 along an empty axis; any other length serves as well.
pub(super) fn chunk_lengths(field: &str, mut chunks: Vec<u64>, shape: &[u64]) -> Result<Vec<u64>> {
    same_rank(field, chunks.len(), shape.len())?;
    for (axis, (chunk, length)) in chunks.iter_mut().zip(shape).enumerate() {
        if *chunk == 0 && *length > 0 {
            let problem = "expected a length of at least 1, found 0";
            return Err(invalid(format!("{field}[{axis}]"), problem));
        }
        *chunk = (*chunk).max(1);
    }
    Ok(chunks)
}

fn chunk_keys(value: &Value) -> Result<ChunkKeys> {
    let named = Named::parse("chunk_key_encoding", value)?;
    let prefixed = match named.name {
        "default" => true,
        "v2" => false,
        other => {
            return Err(unsupported("chunk_key_encoding.name", format!("the encoding {other:?}")));
        }
    };
    let fields = named.fields()?;
    let usual = if prefixed { '/' } else { '.' };
    let separator = match fields.get("separator").map(|value| value.as_str()) {
        None => usual,
        Some(Some("/")) => '/',
        Some(Some(".")) => '.',
        Some(_) => return Err(invalid(fields.at("separator"), "expected '/' or '.'")),
    };
    Ok(ChunkKeys { prefixed, separator })
}

fn dimension_names(fields: &Fields<'_, '_>, rank: usize) -> Result<Option<Vec<Option<String>>>> {
    if fields.get("dimension_names").is_none_or(Value::is_null) {
        return Ok(None);
    }
    let list = fields.list("dimension_names")?;
    same_rank("dimension_names", list.len(), rank)?;
    let names: Option<Vec<_>> = list
        .iter()
        .map(|name| match name {
            Value::Null => Some(None),
            Value::String(text) => Some(Some(text.clone())),
            _ => None,
        })
        .collect();
    names.map(Some).ok_or_else(|| invalid("dimension_names", "expected strings or null"))
}

fn attributes(fields: &Fields<'_, '_>) -> Result<ObjectText> {
    match fields.get("attributes") {
        None | Some(Value::Null) => Ok(ObjectText::default()),
        Some(Value::Object(map)) => Ok(ObjectText::from(map)),
        Some(other) => object_text(other).ok_or_else(|| no_object("attributes", other)),
    }
}

fn identity(fields: &Fields<'_, '_>) -> Result<Option<Identity>> {
    let field = |key| identity_field_up_to(i64::from(OPEN_VERSION), fields, key);
    let (store, array) = (field("store")?, field("array")?);
    Ok(store.zip(array).map(|(store, array)| Identity { store, array }))
}

/// Returns the name of the chunk order; this crate does not know the orders.
fn order(fields: &Fields<'_, '_>) -> Result<Option<String>> {
    let Some(value) = fields.get("bedform") else { return Ok(None) };
    let own = Fields::new("bedform", value)?;
    match own.get("order") {
        None => Ok(None),
        Some(_) => Ok(Some(own.text("order")?.to_owned())),
    }
}

/// Returns the codec choice. Version 2 of the `bedform` key means open codecs, and nothing else.
fn choice(fields: &Fields<'_, '_>) -> Result<Option<CodecChoice>> {
    let Some(own) = fields.get("bedform") else { return Ok(None) };
    let choice = own.get("choice").and_then(CodecChoice::parse);
    let is_open = choice.as_ref().is_some_and(CodecChoice::is_open);
    if !is_open && own.get("version").and_then(Value::as_u64) == Some(u64::from(OPEN_VERSION)) {
        return Err(unsupported("bedform.version", "version 2 (a newer Bedform)"));
    }
    Ok(choice)
}

/// Returns the identity under `key` of the `bedform` key, whose version must be 1.
fn identity_field(fields: &Fields<'_, '_>, key: &str) -> Result<Option<[u8; 16]>> {
    identity_field_up_to(1, fields, key)
}

/// As [`identity_field`], for versions up to `newest`.
pub(crate) fn identity_field_up_to(
    newest: i64,
    fields: &Fields<'_, '_>,
    key: &str,
) -> Result<Option<[u8; 16]>> {
    let Some(value) = fields.get("bedform") else { return Ok(None) };
    let own = Fields::new("bedform", value)?;
    let version = own.integer("version", 1..=i64::from(u32::MAX), Some(1))?;
    if version > newest {
        return Err(unsupported("bedform.version", format!("version {version} (a newer Bedform)")));
    }
    if own.get(key).is_none() {
        return Ok(None);
    }
    let text = own.text(key)?;
    let parsed = parse_hex(text);
    parsed.map(Some).ok_or_else(|| invalid(own.at(key), "expected 32 hexadecimal digits"))
}

/// Parses an identity of 32 lower-case hexadecimal digits.
pub fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 32 || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Parses a list of codecs for chunks of `chunk_shape`.
///
/// # Errors
/// As [`parse_array`].
pub fn parse_codecs(
    path: &str,
    value: &Value,
    chunk_shape: &[u64],
    data_type: DataType,
    limits: &Limits,
) -> Result<Encoding> {
    codecs_at_depth(path, value, chunk_shape, data_type, limits, 0)
}

fn codecs_at_depth(
    path: &str,
    value: &Value,
    chunk_shape: &[u64],
    data_type: DataType,
    limits: &Limits,
    depth: usize,
) -> Result<Encoding> {
    let Value::Array(list) = value else {
        return Err(invalid(path, format!("expected a list, found {}", shown(value))));
    };
    if list.len() > limits.codecs_max {
        return Err(invalid(
            path,
            format!("{} codecs, over the limit of {}", list.len(), limits.codecs_max),
        ));
    }
    let mut transpose: Option<Vec<usize>> = None;
    let mut serializer = None;
    let mut shard = None;
    let (mut filters, mut bytes) = (Vec::new(), Vec::new());
    for (index, value) in list.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let codec = Named::parse(&at, value)?;
        let serialized = serializer.is_some() || shard.is_some();
        let context = Context { at: &at, data_type, endian: None, zarr_format: 3 };
        let unknown = || unsupported(at.as_str(), format!("the codec {:?}", codec.name));
        match codec.name {
            name if serialized
                && (matches!(name, "transpose" | "sharding_indexed")
                    || is_serializer(name)
                    || is_filter_name(name)) =>
            {
                return Err(invalid(at, format!("{name:?} cannot follow bytes")));
            }
            name if !serialized && is_filter_name(name) => {
                let filter = definitions::parse(FILTERS, &codec, &context)?;
                filters.push(filter.ok_or_else(unknown)?);
            }
            "transpose" if !filters.is_empty() => {
                return Err(unsupported(at, "a transposition behind a filter"));
            }
            "transpose" => {
                let order = transpose_order(&codec, chunk_shape.len())?;
                // Combines two consecutive transpositions.
                transpose = Some(match transpose {
                    None => order,
                    Some(first) => {
                        order.iter().filter_map(|axis| first.get(*axis)).copied().collect()
                    }
                });
            }
            "sharding_indexed" => {
                if depth >= limits.shard_depth_max {
                    return Err(invalid(at, "shards nested too deeply"));
                }
                shard = Some(shard_encoding(&codec, chunk_shape, data_type, limits, depth)?);
            }
            _ if serialized => {
                let codec = definitions::parse(BYTES_CODECS, &codec, &context)?;
                bytes.push(codec.ok_or_else(unknown)?);
            }
            _ => {
                let codec = definitions::parse(SERIALIZERS, &codec, &context)?;
                serializer = Some(codec.ok_or_else(unknown)?);
            }
        }
    }
    match (serializer, shard) {
        (None, None) => Err(invalid(path, "no codec makes bytes of the elements")),
        (_, Some(shard)) => {
            if transpose.is_some() || !filters.is_empty() || !bytes.is_empty() {
                return Err(unsupported(path, "a codec around 'sharding_indexed'"));
            }
            Ok(Encoding::Shard(shard))
        }
        (Some(serializer), None) => {
            let (serializer, bytes) = filtered(path, serializer, filters, bytes, data_type)?;
            // The identity permutation is dropped.
            let transpose = transpose.filter(|order| !order.is_sorted());
            Ok(Encoding::Chunk(CodecChain { transpose, serializer, bytes }))
        }
    }
}

/// Combines filters with a serializer and codecs from bytes to bytes. Returns the serializer with
/// the byte order of decoded elements, and all codecs from bytes to bytes.
fn filtered(
    path: &str,
    serializer: Serializer,
    mut filters: Vec<BytesCodec>,
    mut bytes: Vec<BytesCodec>,
    data_type: DataType,
) -> Result<(Serializer, Vec<BytesCodec>)> {
    if filters.is_empty() {
        return Ok((serializer, bytes));
    }
    let Serializer::Bytes(endian) = serializer else {
        return Err(unsupported(path, "a filter of what is not bytes"));
    };
    let endian = check_filters(path, &filters, data_type, endian)?;
    filters.append(&mut bytes);
    Ok((Serializer::Bytes(endian), filters))
}

fn transpose_order(codec: &Named<'_>, rank: usize) -> Result<Vec<usize>> {
    let fields = codec.fields()?;
    let list = match fields.need("order")? {
        Value::String(text) if text == "C" => return Ok((0..rank).collect()),
        Value::String(text) if text == "F" => return Ok((0..rank).rev().collect()),
        _ => fields.list("order")?,
    };
    let order: Option<Vec<usize>> = list
        .iter()
        .map(|axis| axis.as_u64().and_then(|axis| usize::try_from(axis).ok()))
        .filter(|axis| axis.is_none_or(|axis| axis < rank))
        .collect();
    let mut sorted = order.clone().unwrap_or_default();
    sorted.sort_unstable();
    match order {
        Some(order) if sorted.iter().copied().eq(0..rank) => Ok(order),
        _ => Err(invalid(fields.at("order"), format!("expected a permutation of {rank} axes"))),
    }
}

fn shard_encoding(
    codec: &Named<'_>,
    shard_shape: &[u64],
    data_type: DataType,
    limits: &Limits,
    depth: usize,
) -> Result<ShardEncoding> {
    let fields = codec.fields()?;
    let chunk_shape = fields.lengths("chunk_shape", limits.rank_max, 1)?;
    same_rank(&fields.at("chunk_shape"), chunk_shape.len(), shard_shape.len())?;
    if shard_shape.iter().zip(&chunk_shape).any(|(shard, chunk)| !shard.is_multiple_of(*chunk)) {
        return Err(invalid(
            fields.at("chunk_shape"),
            format!("{chunk_shape:?} does not divide the shard shape {shard_shape:?}"),
        ));
    }
    let path = fields.at("codecs");
    let inner =
        codecs_at_depth(&path, fields.need("codecs")?, &chunk_shape, data_type, limits, depth + 1)?;
    let index_checked = index_is_checked(&fields, limits)?;
    let index_at_start = match fields.get("index_location").map(|value| value.as_str()) {
        None | Some(Some("end")) => false,
        Some(Some("start")) => true,
        Some(_) => {
            return Err(invalid(fields.at("index_location"), "expected 'start' or 'end'"));
        }
    };
    Ok(ShardEncoding { chunk_shape, inner: Box::new(inner), index_checked, index_at_start })
}

/// Checks the codecs of a shard's index: little-endian bytes, with or without a CRC-32C. Returns
/// true with a CRC-32C.
fn index_is_checked(fields: &Fields<'_, '_>, limits: &Limits) -> Result<bool> {
    let path = fields.at("index_codecs");
    let value = fields.need("index_codecs")?;
    // The index is an array of u64, regardless of the array's element type.
    let encoding = codecs_at_depth(&path, value, &[1], DataType::UInt64, limits, usize::MAX)?;
    match encoding {
        Encoding::Chunk(CodecChain {
            transpose: None,
            serializer: Serializer::Bytes(Endian::Little),
            bytes,
        }) => match bytes.as_slice() {
            [] => Ok(false),
            [BytesCodec::Crc32c] => Ok(true),
            _ => Err(unsupported(path, "a compressed index")),
        },
        _ => Err(unsupported(path, "an index that is not little-endian bytes")),
    }
}

/// Checks the sizes implied by shapes against the limits.
pub(super) fn check_sizes(metadata: &ArrayMetadata, limits: &Limits) -> Result<()> {
    let bytes = |shape: &[u64]| {
        let item = metadata.data_type.item_size().unwrap_or(1) as u64;
        shape.iter().try_fold(item, |product, length| product.checked_mul(*length))
    };
    // Leaves out zeros: a zero length would make the product zero and hide the other lengths.
    let lengths: Vec<u64> = metadata.shape.iter().copied().filter(|length| *length > 0).collect();
    if bytes(&lengths).is_none_or(|total| i64::try_from(total).is_err()) {
        return Err(invalid("shape", format!("{:?} has more than 2^63 bytes", metadata.shape)));
    }
    let too_large = |field: &str, shape: &[u64], limit: u64| {
        invalid(field, format!("a chunk of {shape:?} is over the limit of {limit} bytes"))
    };
    let mut outer = metadata.chunk_shape.as_slice();
    let mut encoding = &metadata.encoding;
    while let Encoding::Shard(shard) = encoding {
        let chunks: Option<u64> = outer
            .iter()
            .zip(&shard.chunk_shape)
            .try_fold(1_u64, |count, (outer, inner)| count.checked_mul(outer / inner));
        if chunks
            .and_then(|chunks| chunks.checked_mul(16))
            .is_none_or(|size| size > limits.index_bytes_max || bytes(outer).is_none())
        {
            return Err(invalid(
                "chunk_grid",
                format!(
                    "a shard of {outer:?} has too many chunks of {:?}: its index is over the \
                     limit of {} bytes",
                    shard.chunk_shape, limits.index_bytes_max
                ),
            ));
        }
        outer = &shard.chunk_shape;
        encoding = &shard.inner;
    }
    match bytes(outer) {
        Some(size) if size <= limits.chunk_bytes_max => Ok(()),
        _ => Err(too_large("chunk_grid", outer, limits.chunk_bytes_max)),
    }
}
