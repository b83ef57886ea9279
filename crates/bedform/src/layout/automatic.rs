//! The layout of a new array whose writer asks for no particular one.

use bedform_geometry::Order;
use bedform_storage::Profile;
use serde_json::Value;

use super::question::axes_read;
use super::{AdviseRequest, Appendable, Read, Reader, advise};
use crate::error::{Error, Result};

/// Elements of an append that are assumed if none are given: a shard then has a few dozen steps.
const APPEND_ASSUMED: u64 = 32;
/// Bytes of a shard if only its chunks are given.
const SHARD_BYTES: u64 = 64 << 20;

/// The facts about a new array from which its layout is chosen.
pub(crate) struct NewArrayFacts<'a> {
    pub(crate) shape: &'a [u64],
    pub(crate) item_size: u64,
    pub(crate) dimension_names: &'a [Option<String>],
    /// The axes that a typical read spans, with weights: `{"lat,lon": 0.7, "time": 0.3}`, or by number
    /// `[[[1, 2], 0.7], [[0], 0.3]]`.
    pub(crate) reads: Option<&'a Value>,
    /// Elements along the growing axis that one append adds.
    pub(crate) append_length: Option<u64>,
    /// The readers that the layout has to suit.
    pub(crate) readers: &'a [Reader],
}

/// Returns the chunks, the shards and the order of a new array that asks for the best ones.
///
/// # Errors
/// `InvalidArgument` for reads that name an axis that does not exist, and as [`advise`].
pub(crate) fn choose(
    asked: &NewArrayFacts<'_>,
    profile: Profile,
) -> Result<(Vec<u64>, Vec<u64>, Order)> {
    let advice = advise(&request(asked, profile)?);
    let advice = advice.map_err(|error| Error::invalid(error.to_string()))?;
    Ok((advice.chunk_shape, advice.shard_shape, advice.order))
}

/// Returns the request for advice behind [`choose`].
///
/// # Errors
/// `InvalidArgument` for reads that name an axis that does not exist.
pub(crate) fn request(asked: &NewArrayFacts<'_>, profile: Profile) -> Result<AdviseRequest> {
    let mut request = AdviseRequest::new(asked.shape, asked.item_size, profile);
    request.dimension_names = names_of(asked);
    if let Some(reads) = asked.reads {
        request.reads.reads = reads_of(reads, &request.dimension_names)?;
    }
    request.appendable = appendable(asked.shape, asked.append_length);
    request.readers = asked.readers.to_vec();
    // The comparison with single reads is only for people to see.
    request.compare_alone = false;
    Ok(request)
}

/// Returns the growing axis of an array of `shape`: its first axis of length 0, or its first axis
/// if `append_length` is given. `None` without either.
pub(super) fn appendable(shape: &[u64], append_length: Option<u64>) -> Option<Appendable> {
    let growing = shape.iter().position(|&length| length == 0);
    let axis = growing.or_else(|| append_length.map(|_| 0))?;
    let append_len = append_length.unwrap_or(APPEND_ASSUMED);
    Some(Appendable { axis, append_len, expected_len: None })
}

fn names_of(asked: &NewArrayFacts<'_>) -> Vec<String> {
    let name = |axis: usize| asked.dimension_names.get(axis).cloned().flatten();
    (0..asked.shape.len()).map(|axis| name(axis).unwrap_or_else(|| format!("dim_{axis}"))).collect()
}

fn reads_of(reads: &Value, names: &[String]) -> Result<Vec<(Read, f64)>> {
    let bad =
        || Error::invalid(r#""reads" is no object of weights: {"lat,lon": 0.7, "time": 0.3}"#);
    if let Value::Array(list) = reads {
        return list.iter().map(axes_read).collect::<Option<_>>().ok_or_else(bad);
    }
    let axis = |name: &str| {
        names.iter().position(|known| known == name).ok_or_else(|| {
            Error::invalid(format!("no axis {name:?}: the axes are {}", names.join(", ")))
        })
    };
    let read = |(axes, weight): (&String, &Value)| {
        let spanned = axes.split(',').map(str::trim).map(axis).collect::<Result<_>>()?;
        let weight = weight.as_f64().filter(|weight| *weight > 0.0).ok_or_else(bad)?;
        Ok((Read::Axes { spanned }, weight))
    };
    reads.as_object().ok_or_else(bad)?.iter().map(read).collect()
}

/// Returns shards of about 64 MiB for given chunks, grown from the last axis on.
pub(crate) fn default_shards(shape: &[u64], chunk_shape: &[u64], item_size: u64) -> Vec<u64> {
    let mut shards: Vec<u64> = chunk_shape.iter().map(|&length| length.max(1)).collect();
    let mut bytes = shards.iter().fold(item_size.max(1), |all, &length| all.saturating_mul(length));
    for (length, &whole) in shards.iter_mut().zip(shape).rev() {
        let room = (SHARD_BYTES / bytes).max(1);
        let factor = room.min(whole.div_ceil(*length).max(1));
        *length = length.saturating_mul(factor);
        bytes = bytes.saturating_mul(factor);
    }
    shards
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shards_grow_from_the_last_axis_on() {
        assert_eq!(default_shards(&[1000, 512, 512], &[1, 64, 64], 4), [64, 512, 512]);
    }

    #[test]
    fn maps_get_chunks_of_one_map() {
        let names = ["time", "lat", "lon"].map(|name| Some(name.to_owned()));
        let reads = json!({"lat, lon": 1.0});
        let mut asked = NewArrayFacts {
            shape: &[0, 90, 180],
            item_size: 4,
            dimension_names: &names,
            reads: Some(&reads),
            append_length: Some(24),
            readers: &[Reader::Bedform],
        };
        let (chunks, shards, _) = choose(&asked, Profile::default_local()).unwrap();
        assert_eq!(chunks[0], 1, "{chunks:?}");
        assert_eq!(24 % shards[0], 0, "an append adds whole shards");
        let by_number = json!([[[1, 2], 1.0]]);
        asked.reads = Some(&by_number);
        asked.readers = &Reader::ALL;
        let any = choose(&asked, Profile::default_local()).unwrap().0;
        assert_eq!(any[1..], [90, 180], "whole maps, and a few for a chunk");
        assert!(any[0] > 1 && 24 % any[0] == 0, "{any:?}");
        asked.readers = &[Reader::Bedform];
        assert_eq!(choose(&asked, Profile::default_local()).unwrap().0, chunks);
        let wrong = [
            json!({"height": 1.0}),
            json!({"lat": 0}),
            json!(["lat"]),
            json!([[[1, 3], 1.0]]),
            json!([[[1], 0.0]]),
        ];
        for wrong in &wrong {
            asked.reads = Some(wrong);
            assert!(choose(&asked, Profile::default_local()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_without_a_shape_have_about_64_mib() {
        assert_eq!(default_shards(&[1000, 512, 512], &[1, 64, 64], 4), [64, 512, 512]);
        assert_eq!(default_shards(&[0, 3], &[5, 3], 8), [5, 3]);
        assert_eq!(default_shards(&[], &[], 8), [0_u64; 0]);
    }
}
