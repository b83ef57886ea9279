//! Options of a conversion from JSON, as the doors pass them on.

use bedform_geometry::Order;
use bedform_storage::Profile;
use serde_json::{Map, Value};

use super::{ArrayLayoutChoice, CodecWish, ConvertOptions};
use crate::error::{Error, Result};
use crate::layout::readers::readers_named;
use crate::size;

impl ConvertOptions {
    /// Parses options, each optional; null stands for the default: `layout`
    /// (`{chunks, shards, order}`), `reads` (a list of `[names, weight]`, or
    /// `{"lat,lon": weight}`), `readers` (`"any"`, a name or a list of them), `profile` (a document
    /// of `calibrate`), `memory_bytes`, `codecs` (`"auto"` or a list), `codecs_beyond_zarr`,
    /// `exclude`, `verify`, `restart`.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault.
    ///
    /// ```
    /// use bedform::convert::ConvertOptions;
    /// let given = serde_json::json!({"reads": [[["lat", "lon"], 0.7]], "memory_bytes": 1_048_576});
    /// let options = ConvertOptions::from_json(given.as_object().unwrap())?;
    /// assert_eq!(options.source_cache_bytes(), 256 << 10);
    /// # Ok::<(), bedform::Error>(())
    /// ```
    pub fn from_json(given: &Map<String, Value>) -> Result<Self> {
        let mut options = Self::default();
        for (key, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            let bad = || Error::invalid(format!("not a value of {key}: {value}"));
            match key.as_str() {
                "layout" => options.layout = Some(layout_of(value).ok_or_else(bad)?),
                "reads" => options.reads = reads_of(value).ok_or_else(bad)?,
                "readers" => options.readers = readers_named(Some(value))?,
                "profile" => {
                    let profile = Profile::from_json("the profile", &value.to_string());
                    let profile = profile.map_err(|error| Error::invalid(error.to_string()))?;
                    options.profile = Some(profile);
                }
                "memory_bytes" => options.memory_bytes = size::from_json(key, value)?,
                "codecs" => {
                    let wish = codecs_of(value).ok_or_else(bad)?;
                    // The order of the keys does not matter: `codecs_beyond_zarr` refines "auto".
                    if matches!(wish, CodecWish::Named(_)) {
                        options.codecs = wish;
                    }
                }
                "codecs_beyond_zarr" if value.is_boolean() => {
                    let is_auto = !given.get("codecs").is_some_and(Value::is_array);
                    let beyond_zarr = value == &Value::Bool(true);
                    if is_auto {
                        options.codecs = CodecWish::Auto { beyond_zarr };
                    } else if beyond_zarr {
                        let text = "codecs_beyond_zarr comes with codecs=\"auto\"";
                        return Err(Error::invalid(text));
                    }
                }
                "exclude" => options.exclude = texts_of(value).ok_or_else(bad)?,
                "verify" => options.verify = value.as_bool().ok_or_else(bad)?,
                "restart" => options.restart = value.as_bool().ok_or_else(bad)?,
                _ => return Err(Error::invalid(format!("there is no option {key:?}"))),
            }
        }
        Ok(options)
    }
}

fn layout_of(value: &Value) -> Option<ArrayLayoutChoice> {
    let order = match value.get("order").filter(|order| !order.is_null()) {
        None => Order::RowMajor,
        Some(order) => order.as_str()?.parse().ok()?,
    };
    let shards = value.get("shards").filter(|shards| !shards.is_null());
    Some(ArrayLayoutChoice {
        chunks: lengths_of(value.get("chunks")?)?,
        shards: match shards {
            None => None,
            Some(shards) => Some(lengths_of(shards)?),
        },
        order,
    })
}

fn lengths_of(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn codecs_of(value: &Value) -> Option<CodecWish> {
    match value {
        Value::Array(named) => Some(CodecWish::Named(named.clone())),
        Value::String(word) if word == "auto" => Some(CodecWish::default()),
        _ => None,
    }
}

fn texts_of(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

fn reads_of(value: &Value) -> Option<Vec<(Vec<String>, f64)>> {
    let read = |read: &Value| {
        let [names, weight] = read.as_array()?.as_slice() else { return None };
        Some((texts_of(names)?, weight.as_f64()?))
    };
    match value {
        Value::Object(reads) => {
            let read = |(axes, weight): (&String, &Value)| {
                let names = axes.split(',').map(|name| name.trim().to_owned());
                Some((names.collect(), weight.as_f64()?))
            };
            reads.iter().map(read).collect()
        }
        _ => value.as_array()?.iter().map(read).collect(),
    }
}
