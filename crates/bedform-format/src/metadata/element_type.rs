//! Element types by their names in Zarr v3.

use serde_json::Value;

use super::MetadataError;
use super::structure::{Structure, is_structured};
use crate::fields::{Fields, Named, invalid, unsupported};
use crate::{DataType, Endian, TimeUnit};

type Result<T> = std::result::Result<T, MetadataError>;

/// zarr-python's names of opaque bytes, times and durations.
pub(super) const RAW_BYTES: &str = "raw_bytes";
pub(super) const DATE_TIME: &str = "numpy.datetime64";
pub(super) const TIME_DELTA: &str = "numpy.timedelta64";
/// zarr-python's names of fixed-size text.
pub(super) const FIXED_BYTES: &str = "null_terminated_bytes";
pub(super) const FIXED_UNICODE: &str = "fixed_length_utf32";

/// Parses the data type of an array: a name, or an object for fixed-size text.
///
/// # Errors
/// `Unsupported` for an unknown name, `Field` for a length over the limit.
pub fn parse_data_type(value: &Value) -> Result<DataType> {
    let named = Named::parse("data_type", value)?;
    let text = match named.name {
        FIXED_BYTES => DataType::fixed_bytes as fn(u64) -> Option<DataType>,
        FIXED_UNICODE => DataType::fixed_unicode,
        RAW_BYTES => DataType::raw,
        DATE_TIME => return Ok(DataType::DateTime(time_unit(&named)?)),
        TIME_DELTA => return Ok(DataType::TimeDelta(time_unit(&named)?)),
        name => {
            let found = DataType::parse_v3(name).or_else(|| raw_bits(name));
            return found
                .ok_or_else(|| unsupported("data_type", format!("the data type {name:?}")));
        }
    };
    let fields = named.fields()?;
    let bytes = fields.integer("length_bytes", 1..=i64::from(u32::MAX), None)?;
    text(bytes.unsigned_abs())
        .ok_or_else(|| invalid(fields.at("length_bytes"), "not a length of fixed-size text"))
}

/// Parses the core specification's `r` with a number of bits.
fn raw_bits(name: &str) -> Option<DataType> {
    let bits: u64 = name.strip_prefix('r')?.parse().ok()?;
    (bits > 0 && bits.is_multiple_of(8)).then(|| DataType::raw(bits / 8)).flatten()
}

fn time_unit(named: &Named<'_>) -> Result<TimeUnit> {
    let fields = named.fields()?;
    let count = fields.integer("scale_factor", 1..=i64::from(i32::MAX), Some(1))?;
    TimeUnit::new(fields.text("unit")?, count.unsigned_abs())
        .ok_or_else(|| invalid(fields.at("unit"), "not a unit of NumPy"))
}

/// Parses the type of the elements, and the fields of structured elements.
pub(super) fn element_type(fields: &Fields<'_, '_>) -> Result<(DataType, Option<Structure>)> {
    let value = fields.need("data_type")?;
    let named = Named::parse("data_type", value)?;
    if !is_structured(named.name) {
        return Ok((parse_data_type(value)?, None));
    }
    let structure = Structure::parse_v3(&named, structure_order(fields))?;
    Ok((structure.data_type("data_type")?, Some(structure)))
}

/// Returns the byte order that the codec `bytes` gives the fields of structured elements.
fn structure_order(fields: &Fields<'_, '_>) -> Endian {
    fn is_big(codec: &Value) -> bool {
        let configuration = codec.get("configuration");
        let of = |key: &str| configuration.and_then(|configuration| configuration.get(key));
        match codec.get("name").and_then(Value::as_str) {
            Some("bytes") => of("endian").and_then(Value::as_str) == Some("big"),
            Some("sharding_indexed") => {
                of("codecs").and_then(Value::as_array).is_some_and(|inner| inner.iter().any(is_big))
            }
            _ => false,
        }
    }
    let codecs = fields.get("codecs").and_then(Value::as_array);
    match codecs.is_some_and(|codecs| codecs.iter().any(is_big)) {
        true => Endian::Big,
        false => Endian::Little,
    }
}
