//! Matching elements in batches of bounded memory.

use bedform_geometry::Region;
use bedform_query::Predicate;

use super::{PreparedQuery, QueryPoints};
use crate::error::{ErrorKind, Result};

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
    pub(super) fn new(prepared: PreparedQuery, predicate: Predicate, memory: u64) -> Self {
        let whole = prepared.frame.region.clone();
        // Of a part this thick everything may match.
        let behind = whole.shape().iter().skip(1).fold(1, |all: u64, n| all.saturating_mul(*n));
        let step = (memory / prepared.row_bytes() / behind.max(1)).max(1);
        Self { prepared, predicate, memory, rest: vec![whole], step }
    }

    /// The dimensions of positions.
    pub fn dims(&self) -> &[String] {
        &self.prepared.frame.dims
    }

    /// Returns the next batch, which has at least one element; `None` behind the last. After an error
    /// the same part of the region is searched again.
    ///
    /// # Errors
    /// Those of reads; `LimitExceeded` if a single element takes more than the memory.
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

    /// Cuts the next part off what is left of a region, and keeps the rest.
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
