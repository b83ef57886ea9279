//! Matching elements in batches of bounded memory.

use bedform_geometry::Region;
use bedform_query::Predicate;

use super::{PreparedQuery, QueryPoints};
use crate::error::{Error, ErrorKind, Result};

/// A batch that takes a smaller part of the memory makes the next one larger.
const SMALL_PART: u64 = 4;

/// The matching elements of a query in C order, in batches that take so many bytes at most; see
/// [`ValueQuery::batches`](super::ValueQuery::batches).
///
/// The region is searched in parts along its first dimension, by whole blocks where they fit. A part
/// whose matches take more than the memory is halved, along the next dimension once it is one index
/// thick: so the order holds.
pub struct PointBatches {
    prepared: PreparedQuery,
    predicate: Predicate,
    memory: u64,
    /// Parts of the region that are not searched yet, the next one last.
    rest: Vec<Region>,
    /// The thickness of the next part along the first dimension.
    step: u64,
}

impl std::fmt::Debug for PointBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { memory, rest, step, .. } = self;
        let mut shown = f.debug_struct("PointBatches");
        shown.field("memory", memory).field("rest", rest).field("step", step);
        shown.finish_non_exhaustive()
    }
}

impl PointBatches {
    pub(super) fn new(prepared: PreparedQuery, predicate: Predicate, memory: u64) -> Result<Self> {
        let bytes = prepared.row_bytes();
        if bytes > memory {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "a matching element takes {bytes} bytes, more than the memory of a batch, \
                     {memory}: raise it"
                ),
            ));
        }
        let whole = prepared.frame.region.clone();
        // Of a part this thick everything may match.
        let behind = whole.shape().iter().skip(1).fold(1, |all: u64, n| all.saturating_mul(*n));
        let step = (memory / bytes / behind.max(1)).max(1);
        Ok(Self { prepared, predicate, memory, rest: vec![whole], step })
    }

    /// The dimensions of positions.
    pub fn dims(&self) -> &[String] {
        &self.prepared.frame.dims
    }

    /// Returns the next batch, which has at least one element; `None` behind the last. After an error
    /// the same part of the region is searched again.
    ///
    /// # Errors
    /// Those of reads.
    pub fn next_batch(&mut self) -> Result<Option<QueryPoints>> {
        while let Some(rest) = self.rest.pop() {
            let part = self.cut(rest);
            match self.search(&part) {
                Ok(found) => {
                    let bytes = found.count.saturating_mul(self.prepared.row_bytes());
                    if bytes < self.memory / SMALL_PART {
                        self.step = self.step.saturating_mul(2);
                    }
                    if found.count > 0 {
                        return Ok(Some(found));
                    }
                }
                Err(error) => {
                    let halves = match error.kind() == ErrorKind::LimitExceeded {
                        true => self.halves(&part),
                        false => None,
                    };
                    let Some((first, second)) = halves else {
                        self.rest.push(part);
                        return Err(error);
                    };
                    self.step = first.shape()[0];
                    self.rest.extend([second, first]);
                }
            }
        }
        Ok(None)
    }

    fn search(&self, part: &Region) -> Result<QueryPoints> {
        let frame = self.prepared.frame.clone().within(part.clone())?;
        let prepared = PreparedQuery { frame, ..self.prepared.clone() };
        prepared.points(&self.predicate, None, self.memory)
    }

    /// Cuts the next part off a region that is not searched yet, and keeps the rest.
    fn cut(&mut self, region: Region) -> Region {
        let Some(&start) = region.start().first() else { return region };
        let end = self.prepared.frame.block_end(0, start.saturating_add(self.step));
        let Some((part, rest)) = split(&region, 0, end) else { return region };
        self.rest.push(rest);
        part
    }

    /// Returns the halves of a region in C order, along the first dimension that has two indexes or
    /// more; by whole blocks if it has several. `None` for one element.
    fn halves(&self, region: &Region) -> Option<(Region, Region)> {
        let axis = region.shape().iter().position(|length| *length > 1)?;
        let middle = region.start()[axis] + region.shape()[axis] / 2;
        split(region, axis, self.prepared.frame.block_end(axis, middle))
            .or_else(|| split(region, axis, middle))
    }
}

/// Returns the parts of a region before and from an index along a dimension; `None` if one is empty.
fn split(region: &Region, axis: usize, at: u64) -> Option<(Region, Region)> {
    let (start, end) = (region.start()[axis], region.end(axis));
    if at <= start || at >= end {
        return None;
    }
    let part = |from: u64, to: u64| {
        let (mut starts, mut shape) = (region.start().to_vec(), region.shape().to_vec());
        (starts[axis], shape[axis]) = (from, to - from);
        Region::new(starts, shape).ok()
    };
    Some((part(start, at)?, part(at, end)?))
}

impl Iterator for PointBatches {
    type Item = Result<QueryPoints>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bedform_format::ObjectPath;
    use bedform_geometry::Selection;
    use bedform_storage::{CancelSource, MemoryStorage, cancelled_by};
    use serde_json::json;

    use crate::array::Array;
    use crate::error::ErrorKind;
    use crate::options::OpenOptions;
    use crate::query::{QueryArray, QueryOptions, QueryPoints, ValueQuery};
    use crate::store::Store;
    use crate::write::elements::Elements;
    use crate::zarr::NewArray;

    /// Bytes of a matching element with its value of a byte.
    const ROW: u64 = 8 * 4 + 1;

    /// An array of shape (7, 5, 6) in chunks of (2, 3, 4) whose values are from 0 to 209.
    fn numbered() -> Array {
        let options = OpenOptions { writable: true, ..OpenOptions::default() };
        let storage = Arc::new(MemoryStorage::new());
        let store = Store::create(storage, &Default::default(), options).unwrap();
        let new = json!({
            "shape": [7, 5, 6], "dtype": "uint8", "dims": ["z", "y", "x"], "chunks": [2, 3, 4]
        });
        let new = NewArray::from_json_with(&new, &OpenOptions::default()).unwrap();
        let array = store.create_array(&ObjectPath::parse("t").unwrap(), &new).unwrap();
        let data: Vec<u8> = (0..210).collect();
        array.write(&Selection::all(&[7, 5, 6]), Elements::Bytes(&data)).unwrap();
        array
    }

    fn query(array: &Array, text: &str, region: &[(&str, std::ops::Range<u64>)]) -> ValueQuery {
        let region = region.iter().map(|(dim, range)| ((*dim).to_owned(), range.clone()));
        let options = QueryOptions { region: region.collect(), ..QueryOptions::default() };
        ValueQuery::new(text, &[QueryArray::new("t", array.clone())], options).unwrap()
    }

    fn rows(points: &QueryPoints) -> Vec<(Vec<u64>, u8)> {
        let value = |at: usize| points.values[0].as_bytes()[at];
        let place = |at: usize| points.positions.iter().map(|axis| axis[at]).collect();
        (0..usize::try_from(points.count).unwrap()).map(|at| (place(at), value(at))).collect()
    }

    #[test]
    fn batches_of_any_memory_are_the_points_in_their_order() {
        let array = numbered();
        let values = [QueryArray::new("t", array.clone())];
        let regions: [&[_]; 4] = [
            &[],
            &[("z", 1..6), ("x", 3..6)],
            &[("z", 3..4), ("y", 2..3), ("x", 5..6)],
            &[("y", 4..4)],
        ];
        for text in ["t >= 0", "t > 300", "t > 60 and t < 64", "t == 77 or t >= 180"] {
            for region in regions {
                let query = query(&array, text, region);
                let expected = rows(&query.points(&values, None).unwrap());
                for memory in [1, 2, 3, 7, 31, 100, 1000] {
                    let batches = query.batches(&values, memory * ROW + 5).unwrap();
                    let found: Vec<_> = batches.map(|batch| rows(&batch.unwrap())).collect();
                    assert!(found.iter().all(|batch| (1..=memory).contains(&(batch.len() as u64))));
                    assert_eq!(found.concat(), expected, "{text} in {region:?} by {memory}");
                }
            }
        }
    }

    #[test]
    fn a_batch_that_failed_is_searched_again() {
        let array = numbered();
        let query = query(&array, "t >= 100", &[]);
        let values = [QueryArray::new("t", array.clone())];
        let mut batches = query.batches(&values, 20 * ROW).unwrap();
        let mut found = Vec::new();
        let mut stops = 0;
        loop {
            let stop = CancelSource::new(|| true);
            let error = cancelled_by(&stop, || batches.next_batch().map(drop));
            stops += u32::from(error.is_err_and(|error| error.kind() == ErrorKind::Interrupted));
            match batches.next_batch().unwrap() {
                Some(batch) => found.extend(rows(&batch)),
                None => break,
            }
        }
        assert_eq!(found, rows(&query.points(&values, None).unwrap()));
        assert!(stops > 2, "{stops}");
    }

    #[test]
    fn a_memory_without_room_for_an_element_is_refused() {
        let array = numbered();
        let values = [QueryArray::new("t", array.clone())];
        let error = query(&array, "t > 3", &[]).batches(&values, ROW - 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.to_string().contains("takes 33 bytes"), "{error}");
    }
}
