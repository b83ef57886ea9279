//! New arrays from JSON descriptions, which the doors (Python, C) pass on.

use bedform_format::codec::is_serializer;
use bedform_format::metadata::{CodecChoice, Encoding, FillValue, parse_codecs, parse_data_type};
use bedform_format::{BytesCodec, CodecChain, DataType, Limits, Serializer};
use bedform_geometry::Order;
use bedform_storage::Profile;
use serde_json::{Map, Value, json};

use super::new_array::{ArrayLayout, NewArray};
use crate::codec::choice::ChosenCodecs;
use crate::error::{Error, Result};
use crate::layout::automatic::{NewArrayFacts, choose, default_shards};
use crate::layout::readers::readers_named;
use crate::options::OpenOptions;

/// The assumed bytes of one text where a layout is chosen.
const TEXT_BYTES: u64 = 16;

impl NewArray {
    /// As [`NewArray::from_json`], for a store that was opened with `options`. Without `chunks` the
    /// cheapest layout on the store's storage is chosen, for the `reads`, for appends of
    /// `append_length`, and for the `readers` (`"any"`, a name or a list of them). `reads` gives
    /// weights of reads by dimension names (`{"lat,lon": 0.7, "time": 0.3}`) or by number
    /// (`[[[1, 2], 0.7], [[0], 0.3]]`). Without it planes, series and boxes have equal weights. A
    /// `profile` describes another storage. Without `shards`, shards have about 64 MiB.
    ///
    /// # Errors
    /// As [`NewArray::from_json`].
    ///
    /// ```
    /// use bedform::{NewArray, OpenOptions};
    /// let description = serde_json::json!({
    ///     "shape": [0, 90, 180], "dtype": "float32", "dims": ["time", "lat", "lon"],
    ///     "reads": {"lat,lon": 1.0}, "readers": "bedform",
    /// });
    /// let new = NewArray::from_json_with(&description, &OpenOptions::default())?;
    /// assert_eq!(new.layout.chunk_shape[0], 1);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn from_json_with(description: &Value, options: &OpenOptions) -> Result<Self> {
        let mut whole = description.clone();
        let given = |key: &str| description.get(key).filter(|value| !value.is_null());
        if given("chunks").is_none() || given("shards").is_none() {
            complete_layout(&mut whole, options)?;
        }
        Self::from_json(&whole, &options.limits)
    }

    /// Parses a description: `shape`, `dtype` (as in Zarr metadata), `chunks`, `shards`, and
    /// optionally `order`, `codecs`, `transpose`, `checksum`, `fill_value`, `dims`, `attributes`.
    /// `codecs` is a list of codecs, by name or as in Zarr metadata: perhaps one from elements to
    /// bytes, such as `pcodec`, then those from bytes to bytes. Or it is `"auto"`: the first write
    /// chooses, also among codecs outside Zarr's core if `codecs_beyond_zarr` is true.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault.
    ///
    /// ```
    /// use bedform::NewArray;
    /// let description = serde_json::json!({
    ///     "shape": [100, 20], "dtype": "float32", "chunks": [10, 20], "shards": [50, 20],
    ///     "codecs": ["zstd"], "order": "hilbert",
    /// });
    /// let new = NewArray::from_json(&description, &Default::default())?;
    /// assert_eq!(new.layout.shard_shape, [50, 20]);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn from_json(description: &Value, limits: &Limits) -> Result<Self> {
        let get = |key: &str| description.get(key).filter(|value| !value.is_null());
        let bad = |key: &str| Error::invalid(format!("{key:?} of a new array is missing or wrong"));
        let lengths = |key: &str| -> Result<Vec<u64>> {
            get(key)
                .and_then(Value::as_array)
                .and_then(|list| list.iter().map(Value::as_u64).collect())
                .ok_or_else(|| bad(key))
        };
        let named = get("dtype").ok_or_else(|| bad("dtype"))?;
        let data_type = parse_data_type(named).ok().filter(|data_type| !data_type.is_only_read());
        let data_type = data_type
            .ok_or_else(|| Error::invalid(format!("arrays of {named} are not supported")))?;
        let chunk_shape = lengths("chunks")?;
        let order = match get("order").map(Value::as_str) {
            None => Order::RowMajor,
            Some(Some(name)) => name.parse()?,
            Some(None) => return Err(bad("order")),
        };
        let transpose = match get("transpose") {
            None => None,
            Some(_) => Some(
                lengths("transpose")?
                    .into_iter()
                    .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
                    .collect(),
            ),
        };
        let choice = choice(get("codecs"), get("codecs_beyond_zarr"), data_type)?;
        let (serializer, codecs) = match get("codecs") {
            Some(Value::String(_)) => {
                let unchosen = ChosenCodecs::without_sample();
                (unchosen.serializer, unchosen.codecs)
            }
            Some(named) => codecs(named, &chunk_shape, data_type, limits)?,
            None => (None, Vec::new()),
        };
        Ok(Self {
            shape: lengths("shape")?,
            fill_value: match get("fill_value") {
                None => FillValue::zero(data_type),
                Some(value) => FillValue::parse(value, data_type)
                    .map_err(|error| Error::invalid(error.to_string()))?,
            },
            dimension_names: dimension_names(get("dims")).ok_or_else(|| bad("dims"))?,
            attributes: match get("attributes") {
                None => Map::new(),
                Some(Value::Object(attributes)) => attributes.clone(),
                Some(_) => return Err(bad("attributes")),
            },
            layout: ArrayLayout {
                serializer,
                codecs,
                shard_shape: lengths("shards")?,
                checksum: get("checksum").and_then(Value::as_bool).unwrap_or(true),
                keys: bedform_format::metadata::ChunkKeys::DEFAULT,
                chunk_shape,
                order,
                transpose,
                choice,
            },
            data_type,
        })
    }
}

/// Returns the open choice if the first write is to choose the codecs.
///
/// # Errors
/// `InvalidArgument` for unknown words, and for `codecs_beyond_zarr` with named codecs.
fn choice(
    codecs: Option<&Value>,
    beyond_zarr: Option<&Value>,
    data_type: DataType,
) -> Result<Option<CodecChoice>> {
    let beyond_zarr = match beyond_zarr {
        None => false,
        Some(Value::Bool(beyond_zarr)) => *beyond_zarr,
        Some(other) => {
            return Err(Error::invalid(format!(
                "\"codecs_beyond_zarr\" of a new array must be true or false, not {other}"
            )));
        }
    };
    match codecs {
        Some(Value::String(word)) if word == "auto" => {
            // Text has one codec, so there is no choice.
            let is_open = data_type != DataType::String;
            Ok(is_open.then_some(CodecChoice::Open { beyond_zarr }))
        }
        Some(Value::String(word)) => Err(Error::invalid(format!(
            "\"codecs\" of a new array must be \"auto\" or a list, not {word:?}; a list of one is [{word:?}]"
        ))),
        _ if beyond_zarr => Err(Error::invalid(
            "\"codecs_beyond_zarr\" of a new array comes with \"codecs\": \"auto\"",
        )),
        _ => Ok(None),
    }
}

/// Adds the chunks, shards and order that a description lacks.
fn complete_layout(description: &mut Value, options: &OpenOptions) -> Result<()> {
    let get = |key: &str| description.get(key).filter(|value| !value.is_null());
    let bad = |key: &str| Error::invalid(format!("{key:?} of a new array is missing or wrong"));
    let lengths = |key: &str| -> Result<Vec<u64>> {
        let list = get(key).and_then(Value::as_array).ok_or_else(|| bad(key))?;
        list.iter().map(Value::as_u64).collect::<Option<_>>().ok_or_else(|| bad(key))
    };
    let shape = lengths("shape")?;
    let data_type = parse_data_type(get("dtype").ok_or_else(|| bad("dtype"))?)
        .map_err(|error| Error::invalid(error.to_string()))?;
    let item_size = data_type.item_size().map_or(TEXT_BYTES, |bytes| bytes as u64);
    if get("chunks").is_some() {
        let shards = default_shards(&shape, &lengths("chunks")?, item_size);
        description["shards"] = json!(shards);
        return Ok(());
    }
    if get("shards").is_some() {
        return Err(Error::invalid("\"shards\" of a new array come with \"chunks\""));
    }
    let names = dimension_names(get("dims")).ok_or_else(|| bad("dims"))?.unwrap_or_default();
    let asked = NewArrayFacts {
        shape: &shape,
        item_size,
        dimension_names: &names,
        reads: get("reads"),
        append_length: get("append_length").and_then(Value::as_u64),
        readers: &readers_named(get("readers"))?,
    };
    let profile = match get("profile") {
        Some(given) => Profile::from_json("the profile", &given.to_string())
            .map_err(|error| Error::invalid(error.to_string()))?,
        None => options.profile.clone().unwrap_or_else(Profile::default_local),
    };
    let (chunks, shards, order) = choose(&asked, profile)?;
    description["chunks"] = json!(chunks);
    description["shards"] = json!(shards);
    if get_order(description).is_none() {
        description["order"] = json!(order.name());
    }
    Ok(())
}

fn get_order(description: &Value) -> Option<&Value> {
    description.get("order").filter(|value| !value.is_null())
}

fn dimension_names(value: Option<&Value>) -> Option<Option<Vec<Option<String>>>> {
    let Some(value) = value else { return Some(None) };
    let names = value.as_array()?.iter().map(|name| match name {
        Value::Null => Some(None),
        Value::String(name) => Some(Some(name.clone())),
        _ => None,
    });
    names.collect::<Option<Vec<_>>>().map(Some)
}

/// Parses the serializer, if one is named, and the codecs from bytes to bytes. Without a named one
/// the usual serializer is put first, because the parser of metadata requires one.
pub(crate) fn codecs(
    codecs: &Value,
    chunk_shape: &[u64],
    data_type: DataType,
    limits: &Limits,
) -> Result<(Option<Serializer>, Vec<BytesCodec>)> {
    let Value::Array(list) = codecs else {
        return Err(Error::invalid("\"codecs\" of a new array must be a list"));
    };
    let mut all: Vec<Value> = list
        .iter()
        .map(|codec| match codec.as_str() {
            // The default level of the Zstandard and gzip tools.
            Some("zstd") => json!({"name": "zstd", "configuration": {"level": 3}}),
            _ => codec.clone(),
        })
        .collect();
    let name = |codec: &Value| codec.as_str().or_else(|| codec["name"].as_str()).map(str::to_owned);
    // Plain elements and text have one form each here, so their serializers are not named.
    let is_named = match all.first().and_then(name) {
        Some(name) => is_serializer(&name) && !matches!(name.as_str(), "bytes" | "vlen-utf8"),
        None => false,
    };
    if !is_named {
        all.insert(
            0,
            match data_type {
                DataType::String => json!("vlen-utf8"),
                _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
            },
        );
    }
    let names: Vec<String> = all.iter().filter_map(name).collect();
    match parse_codecs("codecs", &Value::Array(all), chunk_shape, data_type, limits) {
        Ok(Encoding::Chunk(CodecChain { serializer, bytes, .. })) => {
            if let Some(index) = bytes.iter().position(BytesCodec::is_only_read) {
                let name = names.get(index + 1).map_or("", String::as_str);
                let text = format!("the codec {name:?} is only read: no new array has it");
                return Err(Error::invalid(text));
            }
            Ok((is_named.then_some(serializer), bytes))
        }
        Ok(Encoding::Shard(_)) => {
            Err(Error::invalid("shards are given by \"shards\", not as a codec"))
        }
        Err(error) => Err(Error::invalid(error.to_string())),
    }
}
