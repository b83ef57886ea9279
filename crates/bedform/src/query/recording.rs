//! Records a query in the traces of the arrays of its condition, once it has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use bedform_format::trace::query::{QueryResultKind, QueryTally, TracedCondition};
use bedform_query::Expression;

use super::frame::{BlockBox, Frame};
use super::operand::QueryOperand;
use crate::trace::nanoseconds;

/// A query whose arrays are recorded: its condition, and sums over its scans. Batches are scans of
/// one query. It is recorded when it is dropped, if a scan has ended without an error.
pub(super) struct QueryRecord {
    result: QueryResultKind,
    /// The condition, with paths of arrays as names.
    text: String,
    /// The arrays of the condition.
    arrays: Vec<RecordedOperand>,
    /// Sums over the scans, without bytes.
    tally: Mutex<QueryTally>,
}

/// An array of the condition of a query.
struct RecordedOperand {
    operand: QueryOperand,
    /// The start and length of its region along each axis.
    region: Vec<(u64, u64)>,
    /// Bytes of its elements that were read.
    bytes: AtomicU64,
}

/// The blocks and matches of one scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTally {
    pub(super) blocks: u64,
    pub(super) blocks_left_out: u64,
    pub(super) matched: u64,
}

impl QueryRecord {
    /// Makes the record of a query over `operands`, which begin with those of its condition; `None`
    /// if reads of none of them are recorded.
    pub(super) fn new(
        expression: &Expression,
        operands: &[QueryOperand],
        frame: &Frame,
        result: QueryResultKind,
    ) -> Option<Self> {
        let own = &operands[..expression.names().len()];
        if !own.iter().any(|operand| operand.array.is_recorded()) {
            return None;
        }
        let path = |operand: &QueryOperand| match operand.array.path() {
            // An array that is the whole store.
            "" => operand.name.clone(),
            path => path.to_owned(),
        };
        let whole =
            BlockBox { start: frame.region.start().to_vec(), shape: frame.region.shape().to_vec() };
        let with_region = |operand: &QueryOperand| {
            let (start, shape) = operand.region_in(frame, &whole);
            let region = start.into_iter().zip(shape).collect();
            RecordedOperand { operand: operand.clone(), region, bytes: AtomicU64::new(0) }
        };
        Some(Self {
            result,
            text: expression.renamed(own.iter().map(path)).to_string(),
            arrays: own.iter().map(with_region).collect(),
            tally: Mutex::default(),
        })
    }

    /// Adds bytes that were read of an operand.
    pub(super) fn add_bytes(&self, operand: usize, bytes: u64) {
        if let Some(recorded) = self.arrays.get(operand) {
            recorded.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Adds a scan that has just ended.
    pub(super) fn add(&self, began: Instant, scan: ScanTally) {
        let took = began.elapsed();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ScanTally { blocks, blocks_left_out, matched } = scan;
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).add(&QueryTally {
            queries: 0,
            bytes: 0,
            matched,
            blocks,
            blocks_left_out,
            took_ns: nanoseconds(took),
            last_ns: nanoseconds(now.saturating_sub(took)),
        });
    }
}

impl Drop for QueryRecord {
    fn drop(&mut self) {
        let tally = *self.tally.get_mut().unwrap_or_else(PoisonError::into_inner);
        if tally.last_ns == 0 {
            return;
        }
        for RecordedOperand { operand, region, bytes } in &mut self.arrays {
            let condition = TracedCondition {
                text: self.text.clone(),
                is_stored: !operand.is_decoded,
                result: self.result,
                region: std::mem::take(region),
            };
            let tally = QueryTally { queries: 1, bytes: *bytes.get_mut(), ..tally };
            operand.array.record_query(condition, &tally);
        }
    }
}
