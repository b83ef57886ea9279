//! Queries: the elements of arrays at which a condition on their values holds.
//!
//! A [`ValueQuery`] has an expression, the arrays that it names, and a region. Each call plans, reads and
//! evaluates: `count`, `points`, `values`, `mask`, statistics, histograms, `explain`.
//!
//! # Promises
//!
//! - Results equal those of the expression over the whole arrays, decoded as xarray decodes them and
//!   evaluated by NumPy's rules. An index makes a query faster and never changes its result.
//! - All arrays are read as of one moment if their handles are of one snapshot.
//! - The same data and expression give the same result, sums of reals included.
//!
//! # How it works
//!
//! The arrays span a frame together, cut into blocks along the chunks of the largest
//! array. A plan leaves out blocks by conditions on coordinates and by ranges of stored values; the
//! others are read in batches, many blocks at once, through the reads of arrays: so replicas serve
//! them, and the cache keeps their chunks. Traces record the query as a whole. Values are compared as they are
//! stored (`bedform_query`); only values that are asked for are decoded.
//!
//! Blocks are read into buffers and not shown to a visitor of chunks: several arrays of different
//! chunks meet in a block, and replicas serve buffers alone. After PARLO (Gong et al.), sections III
//! C and D: value, region and combined queries, with a scan where an index would not pay.
//!
//! | module | holds |
//! |---|---|
//! | `packing` | attributes that say how stored elements become values |
//! | `operand` | the arrays of a query |
//! | `forecast` | the effect of an index that there is not yet |
//! | `frame` | their common dimensions, the region, the blocks |
//! | `indexed` | ranges and bins of blocks from the value index of an array |
//! | `binned` | blocks that value indexes decide |
//! | `edges` | decoded numbers as stored values, for the edges of bins |
//! | `columns` | the stored elements of an array over the blocks of a batch |
//! | `plan` | the blocks that may match, and batches of them |
//! | `scan` | the execution: threads, batches, evaluation |
//! | `recording` | the record of a query in the traces of its arrays |
//! | `rows` | collectors of places, values and masks |
//! | `batches` | places and values in batches of bounded memory |
//! | `reduce` | collectors of counts, statistics and histograms |

mod batches;
mod binned;
mod columns;
mod edges;
mod forecast;
mod frame;
mod indexed;
mod operand;
mod packing;
mod plan;
mod recording;
mod reduce;
mod rows;
mod scan;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bedform_format::trace::query::QueryResultKind;
use bedform_geometry::{Region, Selection};
use bedform_query::{Expression, ExpressionError, Operand, Predicate, Values};
use serde::Serialize;

use self::binned::{Conjuncts, KnownArrays};
use self::frame::Frame;
use self::indexed::IndexRanges;
use self::operand::QueryOperand;
use self::plan::{BlockState, QueryPlan, Residents};
use self::recording::{QueryRecord, ScanTally};
use self::reduce::{CountCollector, HistogramCollector, Kept, StatisticsCollector};
use self::rows::{MaskCollector, MatchedRows, RowCollector};
use self::scan::{Collector, QueryScan};
use crate::error::{Error, ErrorKind, Result};

pub use self::batches::PointBatches;
pub(crate) use self::binned::BinUse;
pub(crate) use self::edges::{decoded_ends, stored_edge};
pub(crate) use self::forecast::IndexForecast;
pub use self::operand::QueryArray;
pub use self::reduce::{Extreme, ValueStatistics};

/// The most regions whose read is explained exactly.
const REGIONS_EXPLAINED_MAX: usize = 1 << 16;

/// Characters of an expression that an error shows before its column.
const NEAR_MAX: usize = 24;

/// Options of a query.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryOptions {
    /// The region: a range of indexes for some dimensions; others are taken whole.
    pub region: Vec<(String, Range<u64>)>,
    /// Whether values are compared as xarray decodes them, or as they are stored.
    pub decode: bool,
    /// The most bytes that a result may take.
    pub memory: u64,
    /// Threads; `None` takes one per core.
    pub threads: Option<usize>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { region: Vec::new(), decode: true, memory: 1 << 30, threads: None }
    }
}

/// The elements of arrays at which a condition holds; see the module.
#[derive(Debug, Clone)]
pub struct ValueQuery {
    expression: Expression,
    predicate: Predicate,
    operands: Vec<QueryOperand>,
    options: QueryOptions,
    frame: Frame,
}

/// Matching elements, in C order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueryPoints {
    /// The dimensions of the query, extended by those of the arrays whose values were asked for.
    pub dims: Vec<String>,
    /// The number of elements.
    pub count: u64,
    /// For each dimension of the query, the index of each element in the arrays.
    pub positions: Vec<Vec<u64>>,
    /// For each array whose values were asked for, the decoded value of each element.
    pub values: Vec<Values>,
}

/// The plan of a query, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueryExplanation {
    /// The expression.
    pub expression: String,
    /// Dimensions of the query.
    pub dims: Vec<String>,
    /// The start of the region along each dimension.
    pub start: Vec<u64>,
    /// Its length along each dimension.
    pub shape: Vec<u64>,
    /// Blocks of the region.
    pub blocks: u64,
    /// Blocks without a match by conditions on coordinates.
    pub blocks_outside: u64,
    /// Blocks without a match by the ranges of their values.
    pub blocks_pruned: u64,
    /// Blocks in which everything matches, whose elements are not read to find that.
    pub blocks_whole: u64,
    /// Blocks that indexes decide: bins and the values of the outermost ones are read, and not the
    /// array.
    pub blocks_binned: u64,
    /// Blocks to read and evaluate.
    pub blocks_read: u64,
    /// Bytes to read, of all arrays.
    pub bytes: u64,
    /// Bytes that a scan of the region would read.
    pub bytes_of_scan: u64,
    /// Predicted seconds of a cold query.
    pub predicted_cold_seconds: f64,
    /// Predicted seconds of a cold scan of the region.
    pub predicted_cold_seconds_of_scan: f64,
    /// Arrays of the expression with a value index that is used.
    pub indexed: Vec<String>,
    /// Arrays of the expression that an index could serve.
    pub not_indexed: Vec<String>,
}

impl ValueQuery {
    /// Makes a query of the expression `text` over `arrays`, which have the names of the expression. Reads
    /// no elements.
    ///
    /// # Errors
    /// `InvalidArgument` for an expression that cannot be parsed, with the column, or does not fit
    /// the types of its arrays; for dimensions that do not fit each other; for a region of unknown
    /// dimensions. `OutOfBounds` for a region that leaves the arrays. `NotFound` for a name without
    /// an array. `Unsupported` for arrays of text and times.
    pub fn new(text: &str, arrays: &[QueryArray], options: QueryOptions) -> Result<Self> {
        let expression = Expression::parse(text).map_err(|error| refusal(text, &error))?;
        let operands = expression.names().into_iter().map(|name| {
            let found = arrays.iter().find(|array| array.name == name);
            let array = found.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("the query names {name:?}, no array"))
            })?;
            QueryOperand::new(array, options.decode)
        });
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let bound: Vec<Operand> = operands
            .iter()
            .map(|operand| Operand {
                name: operand.name.clone(),
                decoding: operand.decoding.clone(),
            })
            .collect();
        let predicate = expression.bind(&bound).map_err(|error| refusal(text, &error))?;
        let frame = Frame::new(&operands, &options.region)?;
        Ok(Self { expression, predicate, operands, options, frame })
    }

    /// The names of the arrays in an expression, each once, in order of appearance.
    ///
    /// # Errors
    /// `InvalidArgument` for an expression that cannot be parsed.
    pub fn names(text: &str) -> Result<Vec<String>> {
        let expression = Expression::parse(text).map_err(|error| refusal(text, &error))?;
        Ok(expression.names().into_iter().map(str::to_owned).collect())
    }

    /// The dimensions of the query.
    pub fn dims(&self) -> &[String] {
        &self.frame.dims
    }

    /// The region, in the dimensions of the query.
    pub fn region(&self) -> &Region {
        &self.frame.region
    }

    /// The number of matching elements. With `over`, the number for each position along the other
    /// dimensions: the shape of the result, and the counts in C order.
    ///
    /// # Errors
    /// Those of reads; `InvalidArgument` for a dimension that the query lacks.
    pub fn count(&self, over: Option<&[String]>) -> Result<(Vec<u64>, Vec<u64>)> {
        self.counted(over, false)
    }

    /// Whether any element matches, as counts that are 0 or more: see [`ValueQuery::count`].
    ///
    /// # Errors
    /// As [`ValueQuery::count`].
    pub fn any(&self, over: Option<&[String]>) -> Result<(Vec<u64>, Vec<u64>)> {
        self.counted(over, true)
    }

    fn counted(&self, over: Option<&[String]>, only_any: bool) -> Result<(Vec<u64>, Vec<u64>)> {
        let result = if only_any { QueryResultKind::Any } else { QueryResultKind::Count };
        let prepared = self.with(&[])?.recorded(&self.expression, result);
        let kept = self.kept::<u64>(&prepared.frame, over)?;
        let collector = CountCollector::new(kept, only_any);
        prepared.run(&self.predicate, &collector)?;
        Ok(collector.finish())
    }

    /// Returns the dimensions that a result with entries of type `T` keeps.
    fn kept<T>(&self, frame: &Frame, over: Option<&[String]>) -> Result<Kept> {
        let kept = Kept::new(frame, over)?;
        let (memory, bytes) = (self.options.memory, kept.len() as u64 * size_of::<T>() as u64);
        match bytes <= memory || kept.len() == 1 {
            true => Ok(kept),
            false => Err(Error::new(
                ErrorKind::LimitExceeded,
                format!(
                    "the result takes {bytes} bytes, more than the {memory} of the query: reduce \
                     more dimensions, ask for a smaller region, or raise it"
                ),
            )),
        }
    }

    /// The matching elements in C order, at most the first `limit` of them, with the decoded values
    /// of the arrays `values`. An array with further dimensions extends the query by them.
    ///
    /// # Errors
    /// Those of reads; `LimitExceeded` if they take more memory than the query may use.
    pub fn points(&self, values: &[QueryArray], limit: Option<u64>) -> Result<QueryPoints> {
        let prepared = self.with(values)?.recorded(&self.expression, QueryResultKind::Points);
        prepared.points(&self.predicate, limit, self.options.memory)
    }

    /// As [`ValueQuery::points`], without their positions.
    ///
    /// # Errors
    /// As [`ValueQuery::points`].
    pub fn values(&self, values: &[QueryArray], limit: Option<u64>) -> Result<QueryPoints> {
        let prepared = self.with(values)?.recorded(&self.expression, QueryResultKind::Values);
        let (found, _) = prepared.rows(&self.predicate, limit, self.options.memory)?;
        Ok(found)
    }

    /// The matching elements in C order, in batches of at most `memory` bytes, with decoded values
    /// as [`ValueQuery::points`] returns them. Each is read when it is asked for, all as of the
    /// moment of the arrays.
    ///
    /// # Errors
    /// Those of arrays that do not fit the query; `LimitExceeded` if a single element takes more
    /// than the memory.
    pub fn batches(&self, values: &[QueryArray], memory: u64) -> Result<PointBatches> {
        let prepared = self.with(values)?.recorded(&self.expression, QueryResultKind::Batches);
        PointBatches::new(prepared, self.predicate.clone(), memory)
    }

    /// Fills a mask of the region, a byte for each element in C order, 1 where it matches.
    ///
    /// # Errors
    /// Those of reads; `InvalidArgument` if `mask` has another length than the region.
    pub fn mask(&self, mask: &mut [u8]) -> Result<()> {
        let expected = self.frame.region.len().and_then(|count| usize::try_from(count).ok());
        if expected != Some(mask.len()) {
            return Err(Error::invalid("the mask has another length than the region"));
        }
        mask.fill(0);
        let prepared = self.with(&[])?.recorded(&self.expression, QueryResultKind::Mask);
        let collector = MaskCollector { frame: &prepared.frame, mask: Mutex::new(mask) };
        prepared.run(&self.predicate, &collector)
    }

    /// The shape of a result over some dimensions, as [`ValueQuery::count`] returns it; with `values` that
    /// of their statistics. Reads no elements.
    ///
    /// # Errors
    /// `InvalidArgument` for a dimension that the query lacks, or arrays that do not fit it;
    /// `LimitExceeded`.
    pub fn shape_over(&self, values: &[QueryArray], over: Option<&[String]>) -> Result<Vec<u64>> {
        Ok(Kept::new(&self.with(values)?.frame, over)?.shape)
    }

    /// Statistics of the decoded values of `array` at the matches, missing values left out. With
    /// `over`, for each position along the other dimensions.
    ///
    /// # Errors
    /// As [`ValueQuery::count`].
    pub fn statistics(
        &self,
        array: QueryArray,
        over: Option<&[String]>,
    ) -> Result<(Vec<u64>, Vec<ValueStatistics>)> {
        let prepared = self.with(&[array])?.recorded(&self.expression, QueryResultKind::Statistics);
        let kept = self.kept::<ValueStatistics>(&prepared.frame, over)?;
        let collector = StatisticsCollector::new(kept);
        prepared.run(&self.predicate, &collector)?;
        Ok(collector.finish())
    }

    /// The number of matching values of `array` in each class between two neighbouring `edges`,
    /// which ascend. The last class contains its upper edge; values outside are not counted.
    ///
    /// # Errors
    /// As [`ValueQuery::count`]; `InvalidArgument` for edges that do not ascend.
    pub fn histogram(&self, array: QueryArray, edges: &[f64]) -> Result<Vec<u64>> {
        let ascend = edges.windows(2).all(|pair| matches!(pair, [one, next] if one <= next));
        if edges.len() < 2 || !ascend || edges.iter().any(|edge| !edge.is_finite()) {
            return Err(Error::invalid("edges of a histogram ascend, and are two or more"));
        }
        let prepared = self.with(&[array])?.recorded(&self.expression, QueryResultKind::Histogram);
        let counts = Mutex::new(vec![0; edges.len() - 1]);
        let collector = HistogramCollector { edges, counts };
        prepared.run(&self.predicate, &collector)?;
        Ok(collector.counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Explains the query: the blocks that are left out and by what, bytes and predicted seconds,
    /// against a scan. Reads coordinates alone.
    ///
    /// # Errors
    /// Those of planning reads.
    pub fn explain(&self) -> Result<QueryExplanation> {
        let prepared = self.with(&[])?;
        let residents = prepared.residents(Some(&self.predicate))?;
        let indexes = prepared.indexes(&self.predicate, &residents)?;
        let plan = prepared.plan(&self.predicate, &residents, &indexes);
        let (bytes, seconds) = prepared.price(&plan, &residents, &self.predicate)?;
        let of_bins = plan.blocks.iter().map(|block| match &block.state {
            BlockState::Binned(binned) => binned.stored_bytes,
            _ => 0,
        });
        let bytes = of_bins.fold(bytes, u64::saturating_add);
        let nothing = Residents::none(prepared.operands.len(), prepared.frame.dims.len());
        let PreparedQuery { operands, frame, .. } = &prepared;
        let everything = KnownArrays { operands, frame, residents: &nothing, indexes: &[] };
        let everything = QueryPlan::new(everything, None, 1);
        let scan = everything.undecided();
        let (bytes_of_scan, seconds_of_scan) =
            prepared.price(&scan, &residents, &self.predicate)?;
        let has_index = |at: &usize| indexes.get(*at).is_some_and(Option::is_some);
        let used = self.predicate.operands_used();
        let large = |at: &&usize| residents.columns[**at].is_none();
        let name = |at: &usize| prepared.operands[*at].name.clone();
        Ok(QueryExplanation {
            expression: self.expression.to_string(),
            dims: prepared.frame.dims.clone(),
            start: prepared.frame.region.start().to_vec(),
            shape: prepared.frame.region.shape().to_vec(),
            blocks: plan.total,
            blocks_outside: plan.outside,
            blocks_pruned: plan.pruned,
            blocks_whole: plan.whole,
            blocks_binned: plan.binned,
            blocks_read: plan.read().count() as u64,
            bytes,
            bytes_of_scan,
            predicted_cold_seconds: seconds,
            predicted_cold_seconds_of_scan: seconds_of_scan,
            indexed: used.iter().filter(|at| has_index(at)).map(name).collect(),
            not_indexed: used.iter().filter(large).filter(|at| !has_index(at)).map(name).collect(),
        })
    }

    /// Returns the query with the arrays whose values are asked for.
    fn with(&self, values: &[QueryArray]) -> Result<PreparedQuery> {
        let mut operands = self.operands.clone();
        let mut wanted = Vec::with_capacity(values.len());
        for array in values {
            let known = operands.iter().position(|operand| operand.name == array.name);
            wanted.push(match known {
                Some(at) => at,
                None => {
                    operands.push(QueryOperand::new(array, self.options.decode)?);
                    operands.len() - 1
                }
            });
        }
        let frame = match operands.len() == self.operands.len() {
            true => self.frame.clone(),
            false => Frame::new(&operands, &self.options.region)?,
        };
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = self.options.threads.unwrap_or_else(cores);
        Ok(PreparedQuery { operands, wanted, frame, threads, record: None })
    }
}

/// A query with all arrays that one call needs.
#[derive(Clone)]
struct PreparedQuery {
    operands: Vec<QueryOperand>,
    wanted: Vec<usize>,
    frame: Frame,
    threads: usize,
    /// The record of the query, which all batches share; `None` if no array is recorded.
    record: Option<Arc<QueryRecord>>,
}

impl PreparedQuery {
    /// Records the query, once it has ended, where its arrays are recorded.
    fn recorded(mut self, expression: &Expression, result: QueryResultKind) -> Self {
        let record = QueryRecord::new(expression, &self.operands, &self.frame, result);
        self.record = record.map(Arc::new);
        self
    }

    fn residents(&self, predicate: Option<&Predicate>) -> Result<Residents> {
        Residents::read(&self.operands, &self.frame, predicate)
    }

    /// Opens the value index of each array of the condition that has one and is not read whole.
    ///
    /// # Errors
    /// Those of looking up the arrays again.
    fn indexes(
        &self,
        predicate: &Predicate,
        residents: &Residents,
    ) -> Result<Vec<Option<IndexRanges>>> {
        let used = predicate.operands_used();
        let open = |(at, operand): (usize, &QueryOperand)| match used.contains(&at)
            && residents.columns[at].is_none()
        {
            true => IndexRanges::open(operand, &self.frame),
            false => Ok(None),
        };
        self.operands.iter().enumerate().map(open).collect()
    }

    fn plan(
        &self,
        predicate: &Predicate,
        residents: &Residents,
        indexes: &[Option<IndexRanges>],
    ) -> QueryPlan {
        let Self { operands, frame, .. } = self;
        let arrays = KnownArrays { operands, frame, residents, indexes };
        QueryPlan::new(arrays, Some(predicate), self.threads)
    }

    /// Returns the bytes that a matching element takes in [`PreparedQuery::points`].
    fn row_bytes(&self) -> u64 {
        // The place of an element, and its position along each dimension.
        let places = 8 * (1 + self.frame.dims.len() as u64);
        let value = |at: &usize| self.operands[*at].decoding.decoded().bytes() as u64;
        places + self.wanted.iter().map(value).sum::<u64>()
    }

    fn points(
        &self,
        predicate: &Predicate,
        limit: Option<u64>,
        memory: u64,
    ) -> Result<QueryPoints> {
        let (mut found, places) = self.rows(predicate, limit, memory)?;
        found.positions = positions_of(&places, &self.frame);
        Ok(found)
    }

    /// Returns the matching elements without their positions, and their places in the region.
    fn rows(
        &self,
        predicate: &Predicate,
        limit: Option<u64>,
        memory: u64,
    ) -> Result<(QueryPoints, Vec<u64>)> {
        let empty = |at: &usize| Values::new(self.operands[*at].decoding.decoded());
        let empty = self.wanted.iter().map(empty).collect();
        let collector = RowCollector::new(&self.frame, empty, self.row_bytes(), limit, memory);
        self.run(predicate, &collector)?;
        let MatchedRows { places, values } = collector.finish();
        let (dims, count) = (self.frame.dims.clone(), places.len() as u64);
        Ok((QueryPoints { dims, count, positions: Vec::new(), values }, places))
    }

    fn run<C: Collector>(&self, predicate: &Predicate, collector: &C) -> Result<()> {
        let began = Instant::now();
        let residents = self.residents(Some(predicate))?;
        let indexes = self.indexes(predicate, &residents)?;
        let plan = self.plan(predicate, &residents, &indexes);
        let record = self.record.as_deref();
        let scan = QueryScan {
            frame: &self.frame,
            operands: &self.operands,
            predicate: Some(predicate),
            wanted: &self.wanted,
            residents: &residents,
            plan: &plan,
            indexes: &indexes,
            conjuncts: &Conjuncts::of(predicate),
            threads: self.threads.max(1),
            record,
            matched: AtomicU64::new(0),
        };
        scan.run(collector)?;
        if let Some(record) = record {
            let resident = residents.columns.iter().enumerate();
            let resident = resident.filter_map(|(at, column)| Some((at, column.as_ref()?)));
            resident.for_each(|(at, column)| record.add_bytes(at, column.bytes_read()));
            let matched = scan.matched.into_inner();
            let blocks_left_out = plan.total - plan.read().count() as u64;
            record.add(began, ScanTally { blocks: plan.total, blocks_left_out, matched });
        }
        Ok(())
    }

    /// Returns the bytes and predicted cold seconds of the reads that the blocks of a plan need to
    /// be evaluated.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn price(
        &self,
        plan: &QueryPlan,
        residents: &Residents,
        predicate: &Predicate,
    ) -> Result<(u64, f64)> {
        let (mut bytes, mut seconds) = (0_u64, 0.0);
        for at in predicate.operands_used() {
            let operand = &self.operands[at];
            if residents.columns[at].is_some() {
                continue;
            }
            let mut regions = Vec::new();
            for block in plan.read() {
                let (start, shape) = operand.region_in(&self.frame, &block.bounds);
                columns::push_region(&mut regions, Region::new(start, shape)?)?;
            }
            regions.dedup();
            let explained = regions.len().min(REGIONS_EXPLAINED_MAX);
            let share = match explained {
                0 => continue,
                some => regions.len() as f64 / some as f64,
            };
            regions.truncate(explained);
            let explained = operand.array.explain(&Selection::Union(regions))?;
            bytes = bytes.saturating_add((explained.bytes as f64 * share) as u64);
            seconds += explained.predicted_cold_seconds * share;
        }
        Ok((bytes, seconds))
    }
}

/// Returns the error of an expression, with the column and the characters before it.
fn refusal(expression: &str, error: &ExpressionError) -> Error {
    let Some(column) = error.column else { return Error::invalid(error.message.clone()) };
    let before: Vec<char> = expression.chars().take(column).collect();
    let near: String = before[before.len().saturating_sub(NEAR_MAX)..].iter().collect();
    let message = &error.message;
    Error::invalid(match near.trim().is_empty() {
        true => format!("the query, column {}: {message}", column + 1),
        false => format!("the query, column {}, after {near:?}: {message}", column + 1),
    })
}

/// Returns positions in the arrays, a list for each dimension, of places in the region.
fn positions_of(places: &[u64], frame: &Frame) -> Vec<Vec<u64>> {
    let region = &frame.region;
    let mut positions = vec![Vec::with_capacity(places.len()); frame.dims.len()];
    for place in places {
        let mut rest = *place;
        for axis in (0..frame.dims.len()).rev() {
            let length = region.shape()[axis].max(1);
            positions[axis].push(region.start()[axis] + rest % length);
            rest /= length;
        }
    }
    positions
}
