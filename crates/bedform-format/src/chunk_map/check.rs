//! Validation of chunk maps; the engine uses only maps that pass.

use std::collections::HashSet;

use super::{
    ChunkMap, ChunkMapError, ChunkTable, ForeignArray, ForeignAttribute, ForeignStorage,
    RefusedMember,
};
use crate::{DataType, Limits, ObjectPath};

type Result<T = ()> = std::result::Result<T, String>;

/// The largest size of an array or file in bytes; file offsets are signed 64-bit integers.
const BYTES_MAX: u64 = i64::MAX as u64;
/// An HDF5 filter mask has 32 bits, one for each filter.
const FILTERS_MAX: usize = 32;

impl ChunkMap {
    /// Checks all properties that the header of the `chunk_map` module promises.
    ///
    /// # Errors
    /// [`ChunkMapError::Invalid`] names the array or group, and the broken rule.
    pub fn check(&self, limits: &Limits) -> std::result::Result<(), ChunkMapError> {
        let invalid = |path: &str, reason| ChunkMapError::Invalid {
            path: path.chars().take(80).collect(),
            reason,
        };
        if self.source.size > BYTES_MAX {
            return Err(invalid("", format!("a file of {} bytes", self.source.size)));
        }
        let mut groups: HashSet<&str> = HashSet::new();
        for group in &self.groups {
            let check = || {
                check_path(&group.path, &groups)?;
                check_attributes(&group.attributes, limits)?;
                let names: HashSet<&str> =
                    group.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
                if names.len() != group.dimensions.len() {
                    return Err("two dimensions of the same name".into());
                }
                Ok(())
            };
            check().map_err(|reason| invalid(&group.path, reason))?;
            if !groups.insert(&group.path) {
                return Err(invalid(&group.path, "two groups of the same path".into()));
            }
        }
        let mut arrays: HashSet<&str> = HashSet::new();
        for array in &self.arrays {
            check_array(array, self.source.size, &groups, limits)
                .map_err(|reason| invalid(&array.path, reason))?;
            if !arrays.insert(&array.path) {
                return Err(invalid(&array.path, "two variables of the same path".into()));
            }
        }
        Ok(())
    }
}

impl ChunkMap {
    /// Moves invalid variables from the map to the list of refused members, so that the valid ones
    /// stay readable.
    pub fn refuse_invalid(&mut self, limits: &Limits) {
        let groups: HashSet<&str> = self.groups.iter().map(|group| group.path.as_str()).collect();
        let mut paths = HashSet::new();
        let mut refused = Vec::new();
        let size = self.source.size;
        let reasons: Vec<Option<String>> = self
            .arrays
            .iter()
            .map(|array| match check_array(array, size, &groups, limits) {
                Ok(()) if paths.insert(&array.path) => None,
                Ok(()) => Some("another variable of the same path".into()),
                Err(reason) => Some(reason),
            })
            .collect();
        let mut reasons = reasons.into_iter();
        self.arrays.retain(|array| match reasons.next().flatten() {
            Some(reason) => {
                refused.push((array.path.clone(), reason));
                false
            }
            None => true,
        });
        for (path, reason) in refused {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
            let member = RefusedMember { name: name.to_owned(), reason };
            let group = self.groups.iter_mut().find(|group| group.path == parent);
            group.into_iter().for_each(|group| group.refused.push(member.clone()));
        }
    }
}

impl ForeignArray {
    /// Checks the chunks of this array in a file of `file_bytes` bytes.
    pub(crate) fn check_chunks(&self, file_bytes: u64, limits: &Limits) -> Result {
        let item_size = self.data_type.and_then(DataType::item_size).unwrap_or(1) as u64;
        check_storage(self, array_bytes(&self.shape, item_size)?, file_bytes, limits)
    }
}

fn check_path(text: &str, groups: &HashSet<&str>) -> Result {
    let path = ObjectPath::parse(text).map_err(|error| error.to_string())?;
    if path.is_root() || groups.contains(path.parent().as_str()) {
        return Ok(());
    }
    Err("it lies in a group that the map does not have before it".into())
}

pub(crate) fn check_array(
    array: &ForeignArray,
    file_bytes: u64,
    groups: &HashSet<&str>,
    limits: &Limits,
) -> Result {
    if array.path.is_empty() {
        return Err("a variable without a name".into());
    }
    check_path(&array.path, groups)?;
    check_attributes(&array.attributes, limits)?;
    let rank = array.shape.len();
    if rank > limits.rank_max {
        return Err(format!("{rank} dimensions, over the limit of {}", limits.rank_max));
    }
    if array.unlimited.len() != rank
        || array.dimension_names.as_ref().is_some_and(|names| names.len() != rank)
    {
        return Err("its lists of axes differ in length".into());
    }
    let item_size = array.data_type.and_then(DataType::item_size).map(|size| size as u64);
    if let (Some(fill), Some(size)) = (&array.fill_value, item_size)
        && fill.len() as u64 != size
    {
        return Err(format!("a fill value of {} bytes for elements of {size}", fill.len()));
    }
    let total = array_bytes(&array.shape, item_size.unwrap_or(1))?;
    if item_size.is_none() && !matches!(array.storage, ForeignStorage::Native { .. }) {
        return Err("elements without a fixed size that are not read natively".into());
    }
    check_storage(array, total, file_bytes, limits)
}

fn check_storage(array: &ForeignArray, total: u64, file_bytes: u64, limits: &Limits) -> Result {
    match &array.storage {
        ForeignStorage::Native { .. } | ForeignStorage::Empty => Ok(()),
        ForeignStorage::Contiguous { offset, length } => {
            same(*length, total, "bytes stored for an array that needs")?;
            inside(*offset, *length, file_bytes)
        }
        ForeignStorage::Compact { data } => {
            same(data.len() as u64, total, "bytes stored for an array that needs")
        }
        ForeignStorage::Records { offset, stride, length } => {
            let Some((records, inner)) = array.shape.split_first() else {
                return Err("records without an axis to count them".into());
            };
            let item_size = array.data_type.and_then(DataType::item_size).unwrap_or(1) as u64;
            same(*length, array_bytes(inner, item_size)?, "bytes in a record that needs")?;
            if *records == 0 || *length == 0 {
                return Ok(());
            }
            if stride < length {
                return Err(format!("records of {length} bytes, {stride} bytes apart"));
            }
            let span =
                (records - 1).checked_mul(*stride).and_then(|span| span.checked_add(*length));
            inside(*offset, span.ok_or("records that end beyond 2^64")?, file_bytes)
        }
        ForeignStorage::Chunked { chunk_shape, codecs, chunks } => {
            let bounds = ChunkBounds::new(array, (chunk_shape, codecs.len()), limits)?;
            check_table(chunks, &bounds, file_bytes)
        }
    }
}

/// The bounds on the chunks of one array.
pub(crate) struct ChunkBounds {
    chunk_count: u64,
    chunk_bytes: u64,
    stored_bytes_max: u64,
    /// The filter mask of a chunk for which all filters were skipped.
    all_skipped: u32,
}

impl ChunkBounds {
    /// Returns the bounds of an array; `None` for an array without chunks.
    pub(crate) fn of(array: &ForeignArray, limits: &Limits) -> Result<Option<Self>> {
        match &array.storage {
            ForeignStorage::Chunked { chunk_shape, codecs, .. } => {
                Self::new(array, (chunk_shape, codecs.len()), limits).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn new(
        array: &ForeignArray,
        (chunk_shape, codecs): (&[u64], usize),
        limits: &Limits,
    ) -> Result<Self> {
        if chunk_shape.len() != array.shape.len() || chunk_shape.is_empty() {
            return Err("chunks of another rank than the array".into());
        }
        if chunk_shape.contains(&0) {
            return Err("chunks of length 0".into());
        }
        if codecs > limits.codecs_max.min(FILTERS_MAX) {
            return Err(format!("{codecs} filters, over the limit"));
        }
        let item_size = array.data_type.and_then(DataType::item_size).unwrap_or(1) as u64;
        let chunk_bytes = array_bytes(chunk_shape, item_size)?;
        if chunk_bytes > limits.chunk_bytes_max {
            return Err(format!(
                "chunks of {chunk_bytes} bytes, over the limit of {}",
                limits.chunk_bytes_max
            ));
        }
        let axes = array.shape.iter().zip(chunk_shape);
        let grid: Vec<u64> = axes.map(|(size, chunk)| size.div_ceil(*chunk)).collect();
        Ok(Self {
            chunk_count: array_bytes(&grid, 1)?,
            chunk_bytes,
            stored_bytes_max: limits.chunk_bytes_max,
            all_skipped: u32::try_from((1_u64 << codecs) - 1).unwrap_or(u32::MAX),
        })
    }
}

pub(crate) fn check_table(table: &ChunkTable, bounds: &ChunkBounds, file_bytes: u64) -> Result {
    if let Some(pair) = table.indexes.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(format!("chunk {} twice, or out of order", pair[1]));
    }
    if let Some(last) = table.indexes.last()
        && *last >= bounds.chunk_count
    {
        return Err(format!("chunk {last} of {}", bounds.chunk_count));
    }
    for at in 0..table.len() {
        let (offset, length) = (table.offsets[at], table.lengths[at]);
        let check = || {
            let mask = table.filter_masks[at];
            if mask & !bounds.all_skipped != 0 {
                return Err(format!("the filter mask {mask:#x} names a filter that there is not"));
            }
            if mask == bounds.all_skipped {
                same(length, bounds.chunk_bytes, "bytes stored, unfiltered, for a chunk of")?;
            }
            if length > bounds.stored_bytes_max {
                return Err(format!("{length} stored bytes, over the limit"));
            }
            inside(offset, length, file_bytes)
        };
        check().map_err(|reason| format!("chunk {}: {reason}", table.indexes[at]))?;
    }
    Ok(())
}

fn check_attributes(attributes: &[(String, ForeignAttribute)], limits: &Limits) -> Result {
    let mut names = HashSet::with_capacity(attributes.len());
    let mut bytes = 0_u64;
    for (name, attribute) in attributes {
        if !names.insert(name.as_str()) {
            return Err(format!("two attributes {name:?}"));
        }
        bytes += name.len() as u64
            + match attribute {
                ForeignAttribute::Text(text) => text.len() as u64,
                ForeignAttribute::Texts(texts) => {
                    texts.iter().map(|text| text.len() as u64 + 8).sum()
                }
                ForeignAttribute::Values(values) => {
                    let item_size = values.data_type.item_size();
                    let shape = values.shape.as_deref().unwrap_or_default();
                    let needed = match item_size {
                        Some(size) => array_bytes(shape, size as u64)?,
                        None => return Err(format!("attribute {name:?}: text given as numbers")),
                    };
                    let given = values.data.len() as u64;
                    same(given, needed, "bytes of an attribute that needs")
                        .map_err(|reason| format!("attribute {name:?}: {reason}"))?;
                    given
                }
            };
        if bytes > limits.attributes_bytes_max {
            return Err(format!(
                "attributes over the limit of {} bytes",
                limits.attributes_bytes_max
            ));
        }
    }
    Ok(())
}

/// Returns the length of an array in bytes, ignoring axes of length 0; at most [`BYTES_MAX`].
fn array_bytes(shape: &[u64], item_size: u64) -> Result<u64> {
    let product = shape
        .iter()
        .filter(|size| **size != 0)
        .try_fold(item_size, |bytes, size| bytes.checked_mul(*size))
        .filter(|bytes| *bytes <= BYTES_MAX)
        .ok_or("more than 2^63 bytes")?;
    Ok(if shape.contains(&0) { 0 } else { product })
}

fn same(given: u64, needed: u64, what: &str) -> Result {
    if given == needed { Ok(()) } else { Err(format!("{given} {what} {needed}")) }
}

pub(crate) fn inside(offset: u64, length: u64, file_bytes: u64) -> Result {
    match offset.checked_add(length) {
        Some(end) if end <= file_bytes => Ok(()),
        _ => Err(format!(
            "{length} bytes at {offset} of a file of {file_bytes}: it is cut short or damaged"
        )),
    }
}
