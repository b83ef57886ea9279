//! The time that other readers need for a layout.
//!
//! Programs other than Bedform read a store too, and each has its own costs. zarr-python spends its
//! time on every chunk, in Python, where Bedform spends it on bytes. A layout of many small chunks
//! is therefore fast for one and slow for the other.
//!
//! # The formula for zarr-python
//!
//! For a selection, with chunks and shards counted as zarr-python touches them:
//!
//! ```text
//! seconds = CALL
//!         + chunks * (CHUNK_AXIS * axes + CODED)
//!         + objects of one chunk, not sharded * OBJECT
//!         + shards whole * SHARD_WHOLE + their chunks * CHUNK_WHOLE
//!         + shards in part * SHARD_PART + their chunks touched * CHUNK_PART
//!         + shards * chunks that a shard has room for * INDEX_ENTRY
//!         + decoded bytes * (ZSTD_BYTE for a store of its own defaults, DECODED_BYTE for ours)
//!         + result bytes * (RESULT_BYTE, with shards SHARDED_RESULT_BYTE more)
//!         + rows that lie together in a chunk and in the result * ROW
//!         + elements that are copied one by one * STRIDED
//! ```
//!
//! A shard is read *whole*, with one request, if the selection touches every chunk that it has room
//! for. Otherwise it is read *in part*: its index, then its chunks one by one. A shard that extends
//! beyond the end of the array by a chunk is never whole. Chunks at the edges are decoded in full.
//!
//! The constants are measured by `tools/measure_zarr_python.py` for zarr-python 3.1 on two cores,
//! on local storage, with the files in the page cache. Of reads of layouts outside the fit, three
//! in four are within 25 % of the formula, and all but a few within a factor of two. On a server
//! each request also waits for its answer, `REQUESTS_AT_ONCE` at a time.
//!
//! # The bound
//!
//! A layout is compared with the store that `to_zarr` or `zarr.create_array` make of the same array
//! by their defaults: [`zarr_default_chunks`], no shards. Its time may be `RATIO_MAX` times the
//! time of that store: less than twice, by the spread of the formula.

use std::fmt;

use bedform_storage::Profile;
use serde::Serialize;
use serde_json::Value;

use super::cost::{CostModel, Layout, Read, ReadCost, bytes_of};
use super::report;
use crate::error::{Error, Result};

/// The most time of zarr-python for a layout, over its time for a store of its own defaults.
pub(super) const RATIO_MAX: f64 = 1.6;

/// Seconds of a call.
const CALL: f64 = 0.438e-3;
/// Seconds of a chunk, for each axis.
const CHUNK_AXIS: f64 = 0.0355e-3;
/// Seconds that a codec adds to a chunk.
const CODED: f64 = 0.144e-3;
/// Seconds of an object that is one chunk, not sharded.
const OBJECT: f64 = 0.1165e-3;
/// Seconds of a shard that is read whole.
const SHARD_WHOLE: f64 = 0.506e-3;
/// Seconds of a chunk of a shard that is read whole.
const CHUNK_WHOLE: f64 = 0.052e-3;
/// Seconds of a shard that is read in part, for its index.
const SHARD_PART: f64 = 0.594e-3;
/// Seconds of a chunk of a shard that is read in part.
const CHUNK_PART: f64 = 0.198e-3;
/// Seconds of an entry of a shard's index.
const INDEX_ENTRY: f64 = 0.078e-6;
/// Seconds of a byte decoded by Zstandard alone: the default of a store by zarr-python.
const ZSTD_BYTE: f64 = 1.04e-9;
/// Seconds of a byte decoded by Zstandard in Blosc: the slowest of the usual choices of
/// `codecs="auto"`.
const DECODED_BYTE: f64 = 0.70e-9;
/// Seconds of a byte of the result.
const RESULT_BYTE: f64 = 0.158e-9;
/// Additional seconds of a byte that comes out of shards, which are assembled first.
const SHARDED_RESULT_BYTE: f64 = 0.478e-9;
/// Seconds of a row.
const ROW: f64 = 1.25e-9;
/// Seconds of an element where rows are not along the last axis.
const STRIDED: f64 = 0.25e-9;
/// The most requests that zarr-python has in flight, by its default configuration.
pub(super) const REQUESTS_AT_ONCE: f64 = 10.0;

/// A program that reads stores, and whose costs are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// Bedform.
    Bedform,
    /// zarr-python 3, also behind `xarray.open_zarr`.
    ZarrPython,
}

impl Reader {
    /// All readers whose costs are known.
    pub const ALL: [Self; 2] = [Self::Bedform, Self::ZarrPython];

    /// Returns the name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bedform => "bedform",
            Self::ZarrPython => "zarr-python",
        }
    }
}

impl fmt::Display for Reader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Returns the readers that a value names: `"any"` (also if absent), a name, or a list of names.
///
/// # Errors
/// `InvalidArgument` for unknown names, and for an empty list.
pub fn readers_named(value: Option<&Value>) -> Result<Vec<Reader>> {
    let known = || Reader::ALL.map(Reader::name).join(", ");
    let named = |value: &Value| {
        let found =
            value.as_str().and_then(|name| Reader::ALL.into_iter().find(|one| one.name() == name));
        found.ok_or_else(|| {
            Error::invalid(format!(
                "there is no reader {value}: give \"any\", or a list of {}",
                known()
            ))
        })
    };
    let mut readers = match value {
        None | Some(Value::Null) => Reader::ALL.to_vec(),
        Some(Value::String(word)) if word == "any" => Reader::ALL.to_vec(),
        Some(Value::Array(names)) if names.is_empty() => {
            return Err(Error::invalid(format!(
                "readers is an empty list: name one of {}",
                known()
            )));
        }
        Some(Value::Array(names)) => names.iter().map(named).collect::<Result<_>>()?,
        Some(name) => vec![named(name)?],
    };
    readers.sort_unstable();
    readers.dedup();
    Ok(readers)
}

/// Returns the default chunk shape of zarr-python, and so of `to_zarr` in xarray. Lengths are
/// halved in turn until a chunk is near a size in bytes that grows with the bytes of the array.
pub fn zarr_default_chunks(shape: &[u64], item_size: u64) -> Vec<u64> {
    const MIB: f64 = 1_048_576.0;
    let mut chunks: Vec<u64> = shape.iter().map(|&length| length.max(1)).collect();
    let whole = bytes_of(&chunks, item_size);
    let target = 0.25 * MIB * 2_f64.powf((whole / MIB).log10());
    let target = target.clamp(0.125 * MIB, 64.0 * MIB);
    let mut axis = 0;
    while !chunks.is_empty() && chunks.iter().any(|&length| length > 1) {
        let bytes = bytes_of(&chunks, item_size);
        let is_near = bytes < target || (bytes - target).abs() / target < 0.5;
        if is_near && bytes < 64.0 * MIB {
            break;
        }
        chunks[axis] = chunks[axis].div_ceil(2);
        axis = (axis + 1) % chunks.len();
    }
    chunks
}

/// The objects, chunks and bytes that a read touches, as zarr-python counts them.
#[derive(Debug, Clone, Copy, Default)]
struct TouchCounts {
    objects: f64,
    chunks: f64,
    /// Chunks of the objects that are read whole.
    whole_chunks: f64,
    /// Chunks that an object has room for.
    room: f64,
    decoded_bytes: f64,
    result_bytes: f64,
    /// Rows of the result, cut at the borders of chunks.
    rows: f64,
    /// Elements whose rows are not along the last axis.
    strided: f64,
    axes: f64,
}

impl TouchCounts {
    /// Returns the mean counts of a box of `widths` anywhere in an array of `extents`.
    fn of_box(extents: &[u64], item_size: u64, layout: &Layout, widths: &[u64]) -> Self {
        let mut touched = Self { objects: 1.0, chunks: 1.0, room: 1.0, ..Self::default() };
        let mut whole_objects = 1.0;
        for (axis, (&extent, &width)) in extents.iter().zip(widths).enumerate() {
            let (chunk, shard) = (layout.chunk_shape[axis], layout.shard_shape[axis]);
            let inner = (shard / chunk).max(1) as f64;
            let chunks = crossed(extent, width, chunk);
            touched.chunks *= chunks;
            touched.objects *= crossed(extent, width, shard);
            touched.room *= inner;
            whole_objects *= match width >= extent {
                true => (chunks / inner).floor(),
                false => ((chunks - inner + 1.0) / inner).max(0.0),
            };
        }
        touched.whole_chunks = whole_objects * touched.room;
        touched.decoded_bytes = touched.chunks * bytes_of(&layout.chunk_shape, item_size);
        touched.result_bytes = bytes_of(widths, item_size);
        touched.axes = extents.len() as f64;
        let elements = bytes_of(widths, 1);
        // NumPy drops axes of one element.
        let long = |&axis: &usize| widths[axis].min(layout.chunk_shape[axis]) > 1;
        (touched.rows, touched.strided) = match (0..extents.len()).rev().find(long) {
            None => (elements, 0.0),
            Some(axis) => {
                let cut = crossed(extents[axis], widths[axis], layout.chunk_shape[axis]);
                let strided = if axis + 1 == extents.len() { 0.0 } else { elements };
                (elements / widths[axis] as f64 * cut, strided)
            }
        };
        touched
    }

    /// Returns the counts of a read that was priced for Bedform.
    fn of_cost(layout: &Layout, cost: &ReadCost) -> Self {
        let room = layout.shard_shape.iter().zip(&layout.chunk_shape);
        let room = room.map(|(shard, chunk)| (shard / chunk).max(1) as f64).product();
        Self {
            objects: cost.objects,
            chunks: cost.chunks,
            whole_chunks: if room == 1.0 { cost.chunks } else { 0.0 },
            room,
            decoded_bytes: cost.decoded_bytes,
            result_bytes: cost.result_bytes,
            rows: cost.runs,
            strided: 0.0,
            axes: layout.chunk_shape.len() as f64,
        }
    }

    fn seconds(&self, is_sharded: bool, profile: &Profile, ratio: f64) -> f64 {
        let part_chunks = (self.chunks - self.whole_chunks).max(0.0);
        let opening = match is_sharded {
            true => {
                let whole = self.whole_chunks / self.room;
                whole * SHARD_WHOLE
                    + (self.objects - whole).max(0.0) * SHARD_PART
                    + self.objects * self.room * INDEX_ENTRY
                    + self.whole_chunks * CHUNK_WHOLE
                    + part_chunks * CHUNK_PART
            }
            false => self.objects * OBJECT,
        };
        let chunks = self.chunks * (CHUNK_AXIS * self.axes + CODED);
        let waiting = match (profile.is_remote, is_sharded) {
            (true, true) => wait_seconds(self.objects + part_chunks, profile),
            (true, false) => wait_seconds(self.objects, profile),
            (false, _) => 0.0,
        };
        let moving = match profile.is_remote {
            true => self.decoded_bytes / ratio / profile.read_bytes_per_second_many,
            false => 0.0,
        };
        let decoding = self.decoded_bytes * if is_sharded { DECODED_BYTE } else { ZSTD_BYTE };
        let result_byte = RESULT_BYTE + if is_sharded { SHARDED_RESULT_BYTE } else { 0.0 };
        let copying = self.result_bytes * result_byte + self.rows * ROW + self.strided * STRIDED;
        CALL + chunks + opening + waiting + moving + decoding + copying
    }
}

fn wait_seconds(requests: f64, profile: &Profile) -> f64 {
    requests * profile.request_seconds_one / requests.clamp(1.0, REQUESTS_AT_ONCE)
}

/// Returns the mean number of pieces of `length` that `width` elements anywhere in `extent` touch.
fn crossed(extent: u64, width: u64, length: u64) -> f64 {
    let all = extent.div_ceil(length.max(1)) as f64;
    match width {
        _ if width >= extent => all,
        0 | 1 => 1.0,
        _ => (1.0 + (width - 1) as f64 / length as f64).min(all),
    }
}

/// A read whose time is bounded.
#[derive(Debug, Clone)]
struct BoundedRead {
    name: String,
    /// The index of the read among the priced reads; `None` for a box that only the bound needs.
    priced: Option<usize>,
    widths: Option<Vec<u64>>,
    /// Seconds that zarr-python takes with its own default chunks.
    own_seconds: f64,
}

/// The cost of a layout for one reader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReaderCost {
    /// The reader.
    pub reader: Reader,
    /// The weighted mean of the seconds of the reads.
    pub seconds: f64,
    /// The largest ratio of a read's time to that for a store of the reader's own defaults; `None`
    /// for Bedform.
    pub worst_ratio: Option<f64>,
    /// The read with the largest ratio.
    pub worst_read: Option<String>,
}

/// The times of zarr-python for layouts of one array, relative to those for a store of its own
/// defaults.
#[derive(Debug, Clone)]
pub(super) struct ZarrPython {
    extents: Vec<u64>,
    item_size: u64,
    profile: Profile,
    ratio: f64,
    bounded: Vec<BoundedRead>,
    weights: Vec<f64>,
    pub(super) own_chunks: Vec<u64>,
}

impl ZarrPython {
    /// Makes the model for `reads` of an array whose axes have `names`. If the reads are `assumed`,
    /// because the user named none, usual reads are bounded too: an index along each axis, a line
    /// along each, a box.
    pub(super) fn new(
        model: &CostModel,
        reads: &[(Read, f64)],
        names: &[String],
        assumed: bool,
    ) -> Self {
        let own_chunks = zarr_default_chunks(&model.shape, model.item_size);
        let mut reader = Self {
            extents: model.shape.clone(),
            item_size: model.item_size,
            profile: model.profile.clone(),
            ratio: model.compression_ratio,
            bounded: Vec::new(),
            weights: reads.iter().map(|(_, weight)| *weight).collect(),
            own_chunks,
        };
        let own = Layout {
            chunk_shape: reader.own_chunks.clone(),
            shard_shape: reader.own_chunks.clone(),
            order: bedform_geometry::Order::RowMajor,
        };
        for (number, (read, _)) in reads.iter().enumerate() {
            let widths = widths_of(read, &model.shape);
            let touched = match &widths {
                Some(widths) => reader.touched_box(&own, widths),
                None => TouchCounts::of_cost(&own, &model.price(&own, read)),
            };
            let own_seconds = reader.seconds_of(touched, false);
            let name = report::read_name(read, names);
            reader.bounded.push(BoundedRead { name, priced: Some(number), widths, own_seconds });
        }
        let extents = reader.extents.clone();
        let mut usual = vec![("everything".to_owned(), extents.clone())];
        if assumed {
            usual.extend(usual_boxes(&extents, names));
        }
        for (name, widths) in usual {
            if reader.bounded.iter().any(|known| known.widths.as_ref() == Some(&widths)) {
                continue;
            }
            let own_seconds = reader.seconds_of(reader.touched_box(&own, &widths), false);
            reader.bounded.push(BoundedRead {
                name,
                priced: None,
                widths: Some(widths),
                own_seconds,
            });
        }
        reader
    }

    fn touched_box(&self, layout: &Layout, widths: &[u64]) -> TouchCounts {
        TouchCounts::of_box(&self.extents, self.item_size, layout, widths)
    }

    fn seconds_of(&self, touched: TouchCounts, is_sharded: bool) -> f64 {
        touched.seconds(is_sharded, &self.profile, self.ratio)
    }

    fn seconds(&self, layout: &Layout, costs: &[ReadCost], read: &BoundedRead) -> f64 {
        let touched = match (&read.widths, read.priced.and_then(|number| costs.get(number))) {
            (Some(widths), _) => self.touched_box(layout, widths),
            (None, Some(cost)) => TouchCounts::of_cost(layout, cost),
            (None, None) => TouchCounts::default(),
        };
        self.seconds_of(touched, true)
    }

    /// Returns the largest ratio of times, and the number of its read. `costs` are those of the
    /// priced reads.
    fn worst(&self, layout: &Layout, costs: &[ReadCost]) -> (f64, usize) {
        let mut worst = (0.0, 0);
        for (number, read) in self.bounded.iter().enumerate() {
            let ratio = self.seconds(layout, costs, read) / read.own_seconds;
            if ratio > worst.0 {
                worst = (ratio, number);
            }
        }
        worst
    }

    /// Returns the number of steps of a tenth by which a layout exceeds the bound; 0 within it.
    pub(super) fn excess(&self, layout: &Layout, costs: &[ReadCost]) -> f64 {
        let (ratio, _) = self.worst(layout, costs);
        if ratio <= RATIO_MAX { 0.0 } else { (10.0 * (ratio / RATIO_MAX).ln()).ceil() }
    }

    /// Returns the excess without the prices of the reads; `None` if a read is not a box.
    pub(super) fn excess_of_boxes(&self, layout: &Layout) -> Option<f64> {
        let are_boxes = self.bounded.iter().all(|read| read.widths.is_some());
        are_boxes.then(|| self.excess(layout, &[]))
    }

    /// Returns the weighted mean of the seconds of the priced reads.
    pub(super) fn weighted_seconds(&self, layout: &Layout, costs: &[ReadCost]) -> f64 {
        let priced = self.bounded.iter().filter_map(|read| Some((read, read.priced?)));
        priced.map(|(read, number)| self.weights[number] * self.seconds(layout, costs, read)).sum()
    }

    pub(super) fn cost(&self, layout: &Layout, costs: &[ReadCost]) -> ReaderCost {
        let (ratio, number) = self.worst(layout, costs);
        ReaderCost {
            reader: Reader::ZarrPython,
            seconds: self.weighted_seconds(layout, costs),
            worst_ratio: Some(ratio),
            worst_read: self.bounded.get(number).map(|read| read.name.clone()),
        }
    }
}

/// Returns the elements of a read along each axis; `None` for a selection, which is not a box at
/// any position.
fn widths_of(read: &Read, extents: &[u64]) -> Option<Vec<u64>> {
    let axes = extents.iter().enumerate();
    match read {
        Read::Everything => Some(extents.to_vec()),
        Read::Axes { spanned } => {
            let width = |(axis, &extent)| if spanned.contains(&axis) { extent } else { 1 };
            Some(axes.map(width).collect())
        }
        Read::Box { shape } => Some(axes.map(|(axis, &extent)| shape[axis].min(extent)).collect()),
        Read::Selection(_) => None,
    }
}

/// Returns usual reads of any array: an index along each axis, a line along each, a quarter of each
/// axis.
fn usual_boxes(extents: &[u64], names: &[String]) -> Vec<(String, Vec<u64>)> {
    let mut boxes = Vec::new();
    for axis in 0..extents.len() {
        let mut index = extents.to_vec();
        index[axis] = 1;
        let name = report::axes_text(&[axis], names);
        boxes.push((format!("one index of {name}"), index));
        let mut line = vec![1; extents.len()];
        line[axis] = extents[axis];
        boxes.push((name, line));
    }
    let quarter = extents.iter().map(|&extent| extent.div_ceil(4)).collect();
    boxes.push(("a quarter of each axis".to_owned(), quarter));
    boxes
}

#[cfg(test)]
mod tests {
    use bedform_geometry::Order;
    use serde_json::json;

    use super::*;

    fn layout(chunk: &[u64], shard: &[u64]) -> Layout {
        let (chunk_shape, shard_shape) = (chunk.to_vec(), shard.to_vec());
        Layout { chunk_shape, shard_shape, order: Order::RowMajor }
    }

    #[test]
    fn default_chunks_are_those_of_zarr_python() {
        // The chunks that zarr-python 3.1.6 makes for zarr.create_array(shape=..., dtype=...,
        // chunks="auto").
        let cases: [(&[u64], u64, &[u64]); 7] = [
            (&[], 8, &[]),
            (&[0, 5], 4, &[1, 5]),
            (&[200_000], 4, &[50_000]),
            (&[8000, 6000], 2, &[1000, 750]),
            (&[100_000, 100], 4, &[12_500, 13]),
            (&[1460, 181, 360], 4, &[183, 23, 90]),
            (&[400, 400, 400], 4, &[50, 100, 100]),
        ];
        for (shape, item_size, chunks) in cases {
            assert_eq!(zarr_default_chunks(shape, item_size), chunks, "{shape:?}");
        }
        // Elements that no chunk holds do not go on for ever.
        assert_eq!(zarr_default_chunks(&[3], 1 << 40), [1]);
    }

    #[test]
    fn reads_are_counted_as_zarr_python_touches_them() {
        let extents = [100, 60];
        let count = |layout: &Layout, widths: &[u64]| {
            let touched = TouchCounts::of_box(&extents, 4, layout, widths);
            (touched.objects, touched.chunks, touched.whole_chunks)
        };
        // Ten by six chunks of 10 x 10, in four shards.
        let even = layout(&[10, 10], &[50, 30]);
        assert_eq!(count(&even, &[100, 60]), (4.0, 60.0, 60.0));
        assert_eq!(count(&even, &[1, 60]), (2.0, 6.0, 0.0));
        assert_eq!(count(&even, &[1, 1]), (1.0, 1.0, 0.0));
        // Shards with room beyond the end are never read whole.
        let hanging = layout(&[10, 10], &[60, 60]);
        assert_eq!(count(&hanging, &[100, 60]), (2.0, 60.0, 36.0));
        // A shard of one chunk is always read whole.
        assert_eq!(count(&layout(&[10, 10], &[10, 10]), &[1, 60]), (6.0, 6.0, 6.0));
    }

    #[test]
    fn every_chunk_of_a_store_costs_zarr_python_time() {
        let model = CostModel::new(&[1460, 181, 360], 4, Profile::default_local(), 2);
        let reader = ZarrPython::new(&model, &[(Read::Everything, 1.0)], &[], true);
        let seconds = |chunk: &[u64], shard: &[u64]| {
            let layout = layout(chunk, shard);
            let cost = model.price(&layout, &Read::Everything);
            reader.weighted_seconds(&layout, &[cost])
        };
        // Measured: 11 s for 16 KiB in shards that hang over the end, half a second for its own store.
        let small = seconds(&[32, 8, 16], &[736, 96, 192]);
        assert!((7.0..15.0).contains(&small), "{small}");
        let own = reader.bounded[0].own_seconds;
        assert!((0.35..0.8).contains(&own), "{own}");
        let large = layout(&[122, 16, 30], &[122, 48, 360]);
        assert!(
            reader.excess(&large, &[]) < reader.excess(&layout(&[32, 8, 16], &[736, 96, 192]), &[])
        );
    }

    #[test]
    fn readers_are_named_and_others_refused() {
        let named = |value| readers_named(Some(&value));
        assert_eq!(readers_named(None).unwrap(), Reader::ALL);
        assert_eq!(named(json!("any")).unwrap(), Reader::ALL);
        assert_eq!(named(json!("bedform")).unwrap(), [Reader::Bedform]);
        let both = json!(["zarr-python", "bedform", "bedform"]);
        assert_eq!(named(both).unwrap(), Reader::ALL);
        for wrong in [json!("zarr"), json!(["bedform", "any"]), json!([]), json!(3), json!([3])] {
            let text = named(wrong.clone()).unwrap_err().to_string();
            assert!(text.contains("bedform, zarr-python"), "{wrong}: {text}");
        }
    }
}
