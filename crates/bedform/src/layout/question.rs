//! Requests for advice as JSON, the form in which Python, C and the command line pass them.

use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_storage::Profile;
use serde_json::Value;

use super::automatic::appendable;
use super::readers::readers_named;
use super::{AdviseRequest, Appendable, Read};
use crate::error::{Error, Result};

impl AdviseRequest {
    /// Parses a request: `shape`, `item_size`, and optionally `dims`, `reads` (a list of `[axes,
    /// weight]`), `selections` (a list of `[weight, [[start, step, count], ...]]`), `append`
    /// (`{axis, length, expected}`) or `append_length`, `compression_ratio`,
    /// `decode_bytes_per_second`, `cores`, `readers` (`"any"`, a name or a list of them),
    /// `source_chunks`, `compare_alone`, `cached`.
    ///
    /// # Errors
    /// `InvalidArgument` names the key at fault.
    pub fn from_json(question: &Value, profile: Profile) -> Result<Self> {
        let get = |key: &str| question.get(key).filter(|value| !value.is_null());
        let bad =
            |key: &str| Error::invalid(format!("{key:?} of the question is missing or wrong"));
        let shape = get("shape").and_then(lengths).ok_or_else(|| bad("shape"))?;
        let item_size = get("item_size").and_then(Value::as_u64).ok_or_else(|| bad("item_size"))?;
        let mut request = Self::new(&shape, item_size, profile);
        if let Some(names) = get("dims") {
            let names = names.as_array().ok_or_else(|| bad("dims"))?;
            let name = |(axis, name): (usize, &Value)| {
                name.as_str().map_or_else(|| format!("dim_{axis}"), str::to_owned)
            };
            request.dimension_names = names.iter().enumerate().map(name).collect();
        }
        for (key, parse) in
            [("reads", axes_read as fn(&Value) -> _), ("selections", selection_read)]
        {
            let Some(list) = get(key) else { continue };
            let reads = list.as_array().and_then(|list| list.iter().map(parse).collect());
            let reads: Vec<(Read, f64)> = reads.ok_or_else(|| bad(key))?;
            request.reads.reads.extend(reads);
        }
        if let Some(append) = get("append") {
            let field = |key: &str| append.get(key).and_then(Value::as_u64);
            let axis = field("axis").and_then(|axis| usize::try_from(axis).ok());
            let (axis, append_len) = axis.zip(field("length")).ok_or_else(|| bad("append"))?;
            let expected_len = field("expected");
            request.appendable = Some(Appendable { axis, append_len, expected_len });
        } else {
            let length = get("append_length")
                .map(|value| value.as_u64().ok_or_else(|| bad("append_length")));
            request.appendable = appendable(&shape, length.transpose()?);
        }
        let number = |key: &str| get(key).map(|value| value.as_f64().ok_or_else(|| bad(key)));
        if let Some(ratio) = number("compression_ratio") {
            request.compression_ratio = ratio?;
        }
        if let Some(rate) = number("decode_bytes_per_second") {
            request.decode_bytes_per_second = Some(rate?);
        }
        if let Some(cores) = get("cores") {
            let cores = cores.as_u64().and_then(|cores| u32::try_from(cores).ok());
            request.cores = cores.ok_or_else(|| bad("cores"))?;
        }
        request.readers = readers_named(get("readers"))?;
        if let Some(cached) = get("cached") {
            request.cached = cached.as_bool().ok_or_else(|| bad("cached"))?;
        }
        if let Some(compare) = get("compare_alone") {
            request.compare_alone = compare.as_bool().ok_or_else(|| bad("compare_alone"))?;
        }
        if let Some(chunks) = get("source_chunks") {
            request.source_chunks = Some(lengths(chunks).ok_or_else(|| bad("source_chunks"))?);
        }
        Ok(request)
    }
}

fn lengths(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// Parses `[axes, weight]`, the axes by number.
pub(super) fn axes_read(value: &Value) -> Option<(Read, f64)> {
    let [axes, weight] = value.as_array()?.as_slice() else { return None };
    let spanned =
        lengths(axes)?.into_iter().map(usize::try_from).collect::<std::result::Result<_, _>>();
    Some((Read::Axes { spanned: spanned.ok()? }, weight.as_f64()?))
}

fn selection_read(value: &Value) -> Option<(Read, f64)> {
    let [weight, axes] = value.as_array()?.as_slice() else { return None };
    let axis = |axis: &Value| -> Option<AxisSelection> {
        let [start, step, count] = axis.as_array()?.as_slice() else { return None };
        let range = AxisRange::new(start.as_u64()?, step.as_i64()?, count.as_u64()?).ok()?;
        Some(AxisSelection::Range(range))
    };
    let axes = axes.as_array()?.iter().map(axis).collect::<Option<_>>()?;
    Some((Read::Selection(Selection::Orthogonal(axes)), weight.as_f64()?))
}
