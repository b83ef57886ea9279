//! The layout with the smallest predicted cost for given reads.
//!
//! Chunk shapes are searched downhill from cubes and from the shapes that suit each read alone. The
//! best of them, and those simple shapes, are then priced with several shard shapes and orders.
//! Axes that the reads treat alike are cut alike where that costs little: no list of reads is
//! complete, and a near-cubic chunk serves other reads too. Yet the answer never costs more, by the
//! model, than the plain layouts in the table of alternatives. A layout that another reader reads
//! too slowly ([`readers`](super::readers)) is advised only if no other was found. The same
//! question gets the same answer.

use bedform_geometry::{GeometryError, Order, RANK_MAX};
use bedform_storage::{CodecTimes, Profile, ProfileError};
use serde::Serialize;

use super::choose::Search;
use super::cost::{CostModel, Layout, Read, ReadCost, order_name};
use super::kinds::Kinds;
use super::ocs::DecisionWindow;
use super::readers::{Reader, ReaderCost};
use super::report;
use crate::plan::opening::whole_number;

/// Lengths beyond this leave no room to round up to whole shards.
const LENGTH_MAX: u64 = 1 << 62;
const READS_MAX: usize = 1024;
/// Appends that a growing array is assumed to get if the request does not say.
const APPENDS_ASSUMED: u64 = 1000;
/// The codec that is assumed for compressed data of which only the ratio is given.
const USUAL_CODEC: &str = "blosc-zstd-byte";
/// The most axes for which the default reads include every pair.
const PAIRED_AXES_MAX: usize = 6;

/// The reason why a request gets no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviseError {
    /// The array has too many dimensions.
    #[error("an array of {rank} dimensions; at most {RANK_MAX} are supported")]
    RankTooLarge {
        /// Dimensions given.
        rank: usize,
    },
    /// A dimension is too long.
    #[error("dimension {axis} is {length} long; at most {LENGTH_MAX} is supported")]
    TooLong {
        /// The dimension.
        axis: usize,
        /// Its length.
        length: u64,
    },
    /// A number of the request is out of range.
    #[error("{what} is {value}, which is not {wanted}")]
    OutOfRange {
        /// The number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The allowed values.
        wanted: &'static str,
    },
    /// A read or an append names a dimension that the array does not have.
    #[error("{what} names dimension {axis} of an array of {rank} dimensions, counted from 0")]
    NoSuchAxis {
        /// The part of the request that names it.
        what: &'static str,
        /// The dimension named.
        axis: usize,
        /// Dimensions of the array.
        rank: usize,
    },
    /// A box has another number of dimensions than the array.
    #[error("a box of {found} dimensions is read from an array of {rank}")]
    BoxRank {
        /// Dimensions of the box.
        found: usize,
        /// Dimensions of the array.
        rank: usize,
    },
    /// A selection does not fit the array.
    #[error("a selection does not fit the array: {0}")]
    Selection(#[from] GeometryError),
    /// The profile is not usable.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Expected reads with their weights: the frequency of each, relative to the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadMix {
    /// Reads and weights. Empty: see [`ReadMix::default_for`].
    pub reads: Vec<(Read, f64)>,
}

impl ReadMix {
    /// Makes a mix of reads of whole axes, as `reads={("lat", "lon"): 0.7, ("time",): 0.3}` in
    /// Python.
    pub fn of_axes(reads: &[(&[usize], f64)]) -> Self {
        let read = |&(spanned, weight): &(&[usize], f64)| {
            (Read::Axes { spanned: spanned.to_vec() }, weight)
        };
        Self { reads: reads.iter().map(read).collect() }
    }

    /// Returns the mix that is assumed if no reads are given: planes, series and boxes, a third
    /// each. Planes span every pair of axes alike (beyond six axes, only neighbouring ones), and
    /// series every axis alike. Boxes are near-cubic, lie anywhere, and have as many elements as a
    /// plane has in the geometric mean. Axes of one element take no part. With two longer axes
    /// there are no planes, with one no boxes either; an array without any is read whole.
    pub fn default_for(shape: &[u64]) -> Self {
        let long: Vec<usize> = (0..shape.len()).filter(|&axis| shape[axis] > 1).collect();
        let paired = |a: usize, b: usize| long.len() <= PAIRED_AXES_MAX || b == a + 1;
        let pairs = (0..long.len()).flat_map(|a| (a + 1..long.len()).map(move |b| (a, b)));
        let planes: Vec<_> = match long.len() {
            0..=2 => Vec::new(),
            _ => {
                pairs.filter(|&(a, b)| paired(a, b)).map(|(a, b)| vec![long[a], long[b]]).collect()
            }
        };
        let series: Vec<_> = long.iter().map(|&axis| vec![axis]).collect();
        let mut families = vec![planes, series];
        families.retain(|family| !family.is_empty());
        let boxes = usize::from(long.len() > 1);
        let share = 1.0 / (families.len() + boxes) as f64;
        let mut reads = Vec::new();
        for family in families {
            let weight = share / family.len() as f64;
            reads.extend(family.into_iter().map(|spanned| (Read::Axes { spanned }, weight)));
        }
        if boxes == 1 {
            // A box has the product of all lengths to the power 2/n elements. Each axis gives a
            // side of equal length, cut to the axis.
            let log = long.iter().map(|&axis| (shape[axis] as f64).ln()).sum::<f64>();
            let side = (2.0 * log / (long.len() * long.len()) as f64).exp().round().max(1.0);
            let side = |&size: &u64| whole_number(side).min(size);
            reads.push((Read::Box { shape: shape.iter().map(side).collect() }, share));
        }
        if reads.is_empty() {
            reads.push((Read::Everything, 1.0));
        }
        Self { reads }
    }
}

/// A dimension along which the array grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appendable {
    /// The dimension.
    pub axis: usize,
    /// Elements along it that one append adds. Shards along it divide this number and the present
    /// length, so that an append only ever adds shards.
    pub append_len: u64,
    /// The length that the array is expected to reach. `None` means 1000 appends, or the present
    /// length if that is more.
    pub expected_len: Option<u64>,
}

/// The question for advice: an array, the expected reads, and the storage.
#[derive(Debug, Clone, PartialEq)]
pub struct AdviseRequest {
    /// Elements along each axis.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_size: u64,
    /// Names of the axes for the table; missing ones are numbered.
    pub dimension_names: Vec<String>,
    /// The dimension that grows, if one does.
    pub appendable: Option<Appendable>,
    /// The reads expected.
    pub reads: ReadMix,
    /// The storage.
    pub profile: Profile,
    /// Raw bytes over stored bytes: 1 for raw data, 4 if a quarter is left.
    pub compression_ratio: f64,
    /// Decoded bytes per second of one core; `None` uses the rate that the profile has measured.
    pub decode_bytes_per_second: Option<f64>,
    /// Cores that decode.
    pub cores: u32,
    /// The fewest raw bytes of a chunk; a chunk has fewer only if the array has.
    pub chunk_bytes_min: u64,
    /// The most raw bytes of a chunk; a chunk has more only if an element has.
    pub chunk_bytes_max: u64,
    /// The most raw bytes of a shard. Shards may be larger, up to 4 GiB, if the array would
    /// otherwise have more than 100,000 of them.
    pub shard_bytes: u64,
    /// True if each chunk has a checksum, so that it is read whole.
    pub checksummed: bool,
    /// True if reads are priced as if the page cache had the data, for arrays that are read again
    /// and again.
    pub cached: bool,
    /// The readers that the layout has to suit; never empty. The cost is that for Bedform, and
    /// zarr-python must take less than twice the time that it takes for a store of its own
    /// defaults. Without Bedform in the list the cost is that for zarr-python.
    pub readers: Vec<Reader>,
    /// The chunk shape of the source, if the array is a copy: the search also starts from it.
    pub source_chunks: Option<Vec<u64>>,
    /// True if the chunks lie in one file in row-major order, where a table that is in memory
    /// locates them: a chunked variable of a NetCDF-4 or HDF5 file, with deflate and shuffle.
    pub in_one_file: bool,
    /// True to search also the best layout for each read alone, which shows if no layout suits all.
    pub compare_alone: bool,
}

impl AdviseRequest {
    /// Makes a request with the defaults: the default reads, raw and checksummed data, two cores,
    /// chunks of 16 KiB to 16 MiB, shards of at most 256 MiB.
    pub fn new(shape: &[u64], item_size: u64, profile: Profile) -> Self {
        Self {
            shape: shape.to_vec(),
            item_size,
            dimension_names: Vec::new(),
            appendable: None,
            reads: ReadMix::default(),
            profile,
            compression_ratio: 1.0,
            decode_bytes_per_second: None,
            cores: 2,
            chunk_bytes_min: 16 << 10,
            chunk_bytes_max: 16 << 20,
            shard_bytes: 256 << 20,
            checksummed: true,
            cached: false,
            readers: Reader::ALL.to_vec(),
            source_chunks: None,
            in_one_file: false,
            compare_alone: true,
        }
    }
}

/// A layout that was priced.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// A name for the table, as "cube of 64 KiB".
    pub name: String,
    /// The layout itself.
    #[serde(flatten)]
    pub layout: Layout,
    /// The cost of each read, as in [`Advice::reads`].
    pub costs: Vec<ReadCost>,
    /// The quantity that is minimised: the weighted mean of the reads' seconds. Reads of one weight
    /// and, within a factor of two, one size all count as the slowest of them. Without Bedform
    /// among the readers it is the weighted mean of the seconds of zarr-python.
    pub cost_seconds: f64,
    /// The cost for each reader, in the order of [`AdviseRequest::readers`].
    pub readers: Vec<ReaderCost>,
    /// The reason why the layout was chosen or lost.
    pub verdict: String,
}

/// A read of the question, named.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedRead {
    /// The axes or elements that are read, as "lat,lon".
    pub name: String,
    /// Its share of all reads.
    pub weight: f64,
}

/// The advised layout, its predicted costs, and the alternatives. `Display` prints it as tables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The array's shape as it was priced: a growing axis at its expected length.
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub item_size: u64,
    /// Elements of a chunk along each axis.
    pub chunk_shape: Vec<u64>,
    /// Elements of a shard along each axis: a multiple of the chunk's.
    pub shard_shape: Vec<u64>,
    /// How chunks follow each other in a shard.
    #[serde(serialize_with = "order_name")]
    pub order: Order,
    /// The reads that were priced.
    pub reads: Vec<NamedRead>,
    /// The cost of each named read in a layout of its own, if there are a few.
    pub kinds: Option<Kinds>,
    /// All layouts that were compared: the chosen one first, then by cost.
    pub predicted: Vec<Candidate>,
    /// The optimized chunk size of Smart-IO on this storage, in bytes, for comparison.
    pub ocs: f64,
    /// Its decision window.
    pub window: DecisionWindow,
    /// The most requests that a read has in flight.
    pub requests_in_flight: u32,
    /// The largest gap in bytes between chunks that a read reads over.
    pub merge_gap_bytes: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Advice {
    /// The costs of the chosen layout, one for each of [`Advice::reads`].
    pub fn costs(&self) -> &[ReadCost] {
        self.predicted.first().map_or(&[], |chosen| &chosen.costs)
    }
}

/// Finds the layout with the smallest predicted cost.
///
/// ```
/// use bedform::layout::{AdviseRequest, ReadMix, advise};
/// use bedform_storage::Profile;
///
/// let mut request = AdviseRequest::new(&[8760, 37, 721, 1440], 4, Profile::default_local());
/// request.reads = ReadMix::of_axes(&[(&[2, 3], 1.0)]); // maps only
/// let advice = advise(&request)?;
/// assert_eq!(advice.chunk_shape[..2], [1, 1]);
/// println!("{advice}");
/// # Ok::<(), bedform::layout::AdviseError>(())
/// ```
///
/// # Errors
/// [`AdviseError`] names the part of the request that is wrong.
pub fn advise(request: &AdviseRequest) -> Result<Advice, AdviseError> {
    check(request)?;
    let mut notes = Vec::new();
    let extents = extents_of(request, &mut notes);
    let mut model =
        CostModel::new(&extents, request.item_size, request.profile.clone(), request.cores);
    model.compression_ratio = request.compression_ratio;
    model.codec = codec_of(request);
    model.checksummed = request.checksummed;
    model.indexed = !request.in_one_file;
    model.cached = request.cached;
    let mix = match request.reads.reads.is_empty() {
        true => ReadMix::default_for(&extents).reads,
        false => request.reads.reads.clone(),
    };
    let total: f64 = mix.iter().map(|(_, weight)| weight).sum();
    let reads = mix.into_iter().map(|(read, weight)| (read, weight / total)).collect();
    let mut search = Search::new(request, &extents, model.clone(), reads);
    let (chosen, simple) = search.run();
    search.note_readers(&chosen, &mut notes);
    search.note_limits(&chosen, &mut notes);
    search.note_appends(request, &chosen, &mut notes);
    let names: Vec<_> = search
        .reads
        .iter()
        .map(|(read, weight)| NamedRead {
            name: report::read_name(read, &request.dimension_names),
            weight: *weight,
        })
        .collect();
    let kinds = Kinds::of(request, &extents, &model, &search, &chosen, &names);
    kinds.iter().for_each(|kinds| kinds.note(&mut notes));
    let predicted = search.table(chosen, simple, &names);
    let layout = predicted[0].layout.clone();
    let ocs = request.profile.optimized_chunk_bytes();
    Ok(Advice {
        item_size: request.item_size,
        chunk_shape: layout.chunk_shape,
        shard_shape: layout.shard_shape,
        order: layout.order,
        reads: names,
        kinds,
        predicted,
        ocs,
        window: DecisionWindow::new(ocs, extents.len()),
        requests_in_flight: request.profile.requests_in_flight,
        merge_gap_bytes: request.profile.merge_gap_bytes,
        notes,
        shape: extents,
    })
}

/// Returns the decoding times that the request implies.
fn codec_of(request: &AdviseRequest) -> CodecTimes {
    if request.in_one_file && request.compression_ratio > 1.0 {
        let processor = &request.profile.processor;
        let (deflate, shuffle) = (processor.codec("zlib"), processor.codec("shuffle"));
        return CodecTimes {
            chunk_seconds: deflate.chunk_seconds + shuffle.chunk_seconds,
            decoded_byte_seconds: deflate.decoded_byte_seconds
                + shuffle.decoded_byte_seconds
                + shuffle.encoded_byte_seconds,
            ..deflate
        };
    }
    let name = match (request.compression_ratio > 1.0, request.checksummed) {
        (true, _) => USUAL_CODEC,
        (false, true) => "crc32c",
        // Raw chunks are copied, no more.
        (false, false) => {
            return CodecTimes {
                chunk_seconds: 0.0,
                encoded_byte_seconds: 0.0,
                decoded_byte_seconds: 0.0,
                encode_bytes_per_second: 1e15,
            };
        }
    };
    let measured = request.profile.processor.codec(name);
    match request.decode_bytes_per_second {
        Some(rate) => {
            CodecTimes { encoded_byte_seconds: 0.0, decoded_byte_seconds: 1.0 / rate, ..measured }
        }
        None => measured,
    }
}

fn check(request: &AdviseRequest) -> Result<(), AdviseError> {
    let rank = request.shape.len();
    if rank > RANK_MAX {
        return Err(AdviseError::RankTooLarge { rank });
    }
    if let Some(axis) = request.shape.iter().position(|&length| length > LENGTH_MAX) {
        return Err(AdviseError::TooLong { axis, length: request.shape[axis] });
    }
    let axis_of = |what: &'static str, axis: usize| match axis < rank {
        true => Ok(()),
        false => Err(AdviseError::NoSuchAxis { what, axis, rank }),
    };
    let positive = |what: &'static str, value: f64| match (1e-6..=1e18).contains(&value) {
        true => Ok(()),
        false => Err(AdviseError::OutOfRange { what, value, wanted: "between 1e-6 and 1e18" }),
    };
    request.profile.check()?;
    if request.readers.is_empty() {
        let wanted = "at least one";
        return Err(AdviseError::OutOfRange { what: "the number of readers", value: 0.0, wanted });
    }
    positive("the item size", request.item_size as f64)?;
    positive("the compression ratio", request.compression_ratio)?;
    positive("the decode rate", request.decode_bytes_per_second.unwrap_or(1.0))?;
    positive("the number of cores", f64::from(request.cores))?;
    positive("the least chunk size", request.chunk_bytes_min as f64)?;
    positive("the shard size", request.shard_bytes as f64)?;
    if request.chunk_bytes_max < request.chunk_bytes_min {
        let value = request.chunk_bytes_max as f64;
        let wanted = "at least the least chunk size";
        return Err(AdviseError::OutOfRange { what: "the largest chunk size", value, wanted });
    }
    if let Some(append) = request.appendable {
        axis_of("the append", append.axis)?;
        positive("the length of an append", append.append_len as f64)?;
        if let Some(length) = append.expected_len.filter(|&length| length > LENGTH_MAX) {
            return Err(AdviseError::TooLong { axis: append.axis, length });
        }
    }
    if request.reads.reads.len() > READS_MAX {
        let value = request.reads.reads.len() as f64;
        let wanted = "at most 1024: merge those that are alike";
        return Err(AdviseError::OutOfRange { what: "the number of reads", value, wanted });
    }
    for (read, weight) in &request.reads.reads {
        positive("the weight of a read", *weight)?;
        match read {
            Read::Axes { spanned } => {
                spanned.iter().try_for_each(|&axis| axis_of("a read", axis))?;
            }
            Read::Box { shape } if shape.len() != rank => {
                return Err(AdviseError::BoxRank { found: shape.len(), rank });
            }
            Read::Selection(selection) => selection.validate(&request.shape)?,
            Read::Box { .. } | Read::Everything => {}
        }
    }
    Ok(())
}

/// Returns the lengths that are priced: a growing axis has its expected length, an empty axis one
/// element.
fn extents_of(request: &AdviseRequest, notes: &mut Vec<String>) -> Vec<u64> {
    let mut extents: Vec<u64> = request.shape.iter().map(|&length| length.max(1)).collect();
    if let Some(append) = request.appendable {
        let have = request.shape[append.axis];
        let assumed = || append.append_len.saturating_mul(APPENDS_ASSUMED).min(LENGTH_MAX);
        let expected = append.expected_len.unwrap_or_else(assumed);
        extents[append.axis] = have.max(expected).max(1);
        if append.expected_len.is_none() && extents[append.axis] > have {
            notes.push(format!(
                "priced for a length of {} along the growing axis ({APPENDS_ASSUMED} appends)",
                extents[append.axis]
            ));
        }
        if !have.is_multiple_of(append.append_len) {
            notes.push(format!(
                "the length {have} is no whole number of appends of {}: shards along that axis \
                 must divide both",
                append.append_len
            ));
        }
    }
    extents
}
