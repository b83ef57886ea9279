//! Builds and renews the value index of arrays: see the module `index`.
//!
//! 1. *Lock*: one process at a time builds the index of an array.
//! 2. *Pages*: for one page of blocks after the other, the objects of its elements are looked at,
//!    blocks of unchanged objects are copied from the present index, the others are read and
//!    folded, and the objects are looked at again. An object counts only if both looks agree
//!    (`Array::bound_in_part`). Memory holds one page of ranges.
//!    With bins, the numbers and tails of its elements are written in place: readers of the present
//!    index find by its checksums that these are others.
//! 3. *Publication*: the arrays of level one are published under the next number, and then the
//!    record that names them. Until then readers have the present index; an interruption leaves it.
//! 4. *Removal*: the arrays that no record names are removed. A reader of those finds them gone, and
//!    counts their blocks as unknown.
//!
//! | module | holds |
//! |---|---|
//! | `edges` | the choice of the edges of bins |
//! | `planned` | the predicted size of an index, and the indexes that `optimize` made |
//! | `pages` | the values of one page, and the boxes of its blocks that are read |
//! | `writing` | the Zarr groups of both levels, and their record |

mod edges;
mod pages;
mod planned;
mod writing;

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use bedform_format::{Limits, ObjectPath};
use bedform_geometry::{ChunkGrid, Region, Selection, element_count};
use serde::Serialize;

use self::pages::PageValues;
use self::writing::{BinsWriter, GroupWriter, IndexDirectory, NewBins};

pub use self::edges::BinChoice;
pub(crate) use self::planned::{IndexSize, remove_planned};
use crate::array::Array;
use crate::array::index::{IndexForm, ValueIndex, elements_of, hexadecimal};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{BinEdges, INDEXED_OBJECTS_MAX, IndexRecord, newest_record, tail_room};
use crate::options::ProgressCallback;
use crate::plan::tuning::block_shape;
use crate::replica::{OBJECTS_MAX, SourceObject};
use crate::store::Store;
use crate::threads::workers::check_cancelled;
use crate::zarr::nodes::NodeKind;

/// Blocks of a page.
const PAGE_BLOCKS: u64 = 1 << 14;
/// The most blocks of a page, for arrays of which many blocks share a chunk.
const PAGE_BLOCKS_MAX: u64 = 1 << 18;
/// Elements of a page with bins, whose numbers are in memory.
const PAGE_NUMBERS: u64 = 64 << 20;
/// Bytes that are read between two calls of the progress callback.
const STEP_BYTES: u64 = 128 << 20;

/// Options of building an index.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct IndexOptions {
    /// True to read every block again, also those of unchanged objects.
    pub anew: bool,
    /// The bins of level two.
    pub bins: BinChoice,
    /// The maker of the index.
    pub maker: IndexMaker,
}

/// The maker of an index. [`optimize`](mod@crate::optimize) keeps its own indexes within its budget,
/// and leaves those of users alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexMaker {
    /// A user, who also takes over an index that `optimize` made.
    #[default]
    User,
    /// `optimize`; an index of a user stays one.
    Optimize,
    /// The maker of the present index; a user without one.
    Present,
}

impl IndexMaker {
    /// True if an index that takes the place of `present` belongs to `optimize`.
    fn is_planned(self, present: Option<&ValueIndex>) -> bool {
        let was_planned = present.map(|present| present.record().planned);
        match self {
            Self::User => false,
            Self::Optimize => was_planned.unwrap_or(true),
            Self::Present => was_planned.unwrap_or(false),
        }
    }
}

/// The outcome of building the index of one array.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct MadeIndexes {
    /// The path of the array.
    pub array: String,
    /// Number of blocks of the array.
    pub blocks: u64,
    /// Blocks that were read; the others were known already.
    pub blocks_read: u64,
    /// Objects that were being written or had unsettled commits over them: their blocks are not in
    /// the index.
    pub objects_left_out: u64,
    /// Bytes of the array's elements.
    pub raw_bytes: u64,
    /// Bytes of the index in storage.
    pub bytes: u64,
    /// Number of bins; 0 without level two.
    pub bins: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// An existing index of an array.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct IndexCondition {
    /// The path of the array.
    pub array: String,
    /// Number of blocks.
    pub blocks: u64,
    /// Shape of a block in elements.
    pub block_shape: Vec<u64>,
    /// Bytes of the index in storage.
    pub bytes: u64,
    /// Number of bins; 0 without level two.
    pub bins: u64,
    /// True if `optimize` made it, and may remove it.
    pub is_planned: bool,
    /// Time of its creation, in seconds since 1970.
    pub made: u64,
}

/// Builds or renews the indexes of the arrays at these paths, or of all arrays of numbers. One
/// array after the other is published. `progress` receives the bytes of elements done so far and in
/// all.
///
/// # Errors
/// `NotFound` for an array that does not exist; those of [`Array::index`].
pub fn index_arrays(
    store: &Store,
    arrays: Option<&[ObjectPath]>,
    options: &IndexOptions,
    progress: ProgressCallback<'_>,
) -> Result<Vec<MadeIndexes>> {
    let chosen = match arrays {
        Some(paths) => {
            let opened = paths.iter().map(|path| store.array(path));
            opened.collect::<Result<Vec<_>>>()?
        }
        None => arrays_of_numbers(store)?,
    };
    let sizes = chosen.iter().map(raw_bytes).collect::<Result<Vec<_>>>()?;
    let (all, mut before) = (sizes.iter().sum::<u64>(), 0);
    let mut reports = Vec::with_capacity(chosen.len());
    for (array, bytes) in chosen.iter().zip(sizes) {
        let telling = |done: u64, _: u64| progress(before + done, all);
        reports.push(array.index(options, &telling)?);
        before += bytes;
    }
    Ok(reports)
}

/// Returns all arrays of a store that can be indexed.
fn arrays_of_numbers(store: &Store) -> Result<Vec<Array>> {
    let mut paths: Vec<ObjectPath> = match store.is_array() {
        true => vec![ObjectPath::root()],
        false => Vec::new(),
    };
    let nodes = store.nodes()?.into_iter();
    paths.extend(nodes.filter(|(_, kind)| *kind == NodeKind::Array).map(|(path, _)| path));
    let mut arrays = Vec::with_capacity(paths.len());
    for path in paths {
        let array = match store.array(&path) {
            // The library of its format reads it.
            Err(error) if error.kind() == ErrorKind::Unsupported => continue,
            array => array?,
        };
        if array.index_form()?.is_some() {
            arrays.push(array);
        }
    }
    Ok(arrays)
}

/// Returns the bytes of an array's elements.
pub(crate) fn raw_bytes(array: &Array) -> Result<u64> {
    let elements = element_count(&array.shape()?).unwrap_or(u64::MAX);
    let item = array.data_type()?.item_size().unwrap_or(1) as u64;
    Ok(elements.saturating_mul(item))
}

/// Returns the existing indexes of a store's arrays, whether or not they are of its present state.
///
/// # Errors
/// Those of listing the arrays.
pub fn index_conditions(store: &Store) -> Result<Vec<IndexCondition>> {
    let sidecar = match store.file() {
        Some(file) => file.sidecar.as_ref(),
        None => store.options().sidecar.as_ref(),
    };
    let Some(sidecar) = sidecar else { return Ok(Vec::new()) };
    let sidecar = sidecar.found_again().unwrap_or_else(|| sidecar.clone());
    let both = || std::iter::once(&sidecar).chain(sidecar.site());
    if !both().any(|one| !one.entries(crate::sidecar::INDEX).is_empty()) {
        return Ok(Vec::new());
    }
    let nodes = store.nodes()?.into_iter().filter(|(_, kind)| *kind == NodeKind::Array);
    let root = store.is_array().then(ObjectPath::root);
    let paths = root.into_iter().chain(nodes.map(|(path, _)| path));
    let limits = Limits::default();
    let found = paths.filter_map(|path| {
        let record = |one| Some((one, newest_record(one, path.as_str(), &limits)?.1));
        let (own, mut record) = both().find_map(record)?;
        // That of a site is no user's to remove.
        record.planned &= std::ptr::eq(own, &raw const sidecar);
        Some(condition_of(record))
    });
    Ok(found.collect())
}

fn condition_of(record: IndexRecord) -> IndexCondition {
    IndexCondition {
        blocks: element_count(&record.grid_shape()).unwrap_or(u64::MAX),
        array: record.array,
        block_shape: record.block_shape,
        bytes: record.stored_bytes,
        bins: bins_of(record.edges.len()),
        is_planned: record.planned,
        made: record.made,
    }
}

/// The number of bins between so many edges.
fn bins_of(edges: usize) -> u64 {
    if edges == 0 { 0 } else { edges as u64 + 1 }
}

impl Array {
    /// Builds the index of the array, or renews it: blocks of objects that are unchanged since are
    /// not read again. The index is published as a whole; an interruption leaves the present one.
    /// `progress` receives the bytes of elements done so far and in all.
    ///
    /// # Errors
    /// `Unsupported` for elements that are no numbers, for a variable that a library reads, and for
    /// an array that was not opened by a path; `PermissionDenied` if the index cannot lie beside
    /// the data; `Conflict` if another process builds it, or the array's metadata change meanwhile;
    /// `LimitExceeded` for too many objects; `Interrupted`, `NoSpace`; errors of reading and
    /// writing.
    pub fn index(
        &self,
        options: &IndexOptions,
        progress: ProgressCallback<'_>,
    ) -> Result<MadeIndexes> {
        let began = Instant::now();
        let form = self.index_form()?.ok_or_else(|| {
            let text = "its elements are no numbers, and have no index";
            Error::new(ErrorKind::Unsupported, text).at(self.name())
        })?;
        let directory = IndexDirectory::of(self)?;
        let _lock = directory.locked()?;
        let present = self.value_index()?;
        let edges = edges::chosen(&options.bins, self, &form, present.as_ref())?;
        let planned = options.maker.is_planned(present.as_ref());
        let old = present.filter(|_| !options.anew);
        let has_edges = |old: &&ValueIndex| old.edges() == edges.as_ref();
        let all = raw_bytes(self)?;
        let mut report = MadeIndexes {
            array: self.path().to_owned(),
            blocks: form.grid.chunk_count().unwrap_or(u64::MAX),
            raw_bytes: all,
            ..MadeIndexes::default()
        };
        report.bins = bins_of(edges.as_ref().map_or(0, |edges| edges.edges().len()));
        if let Some(old) = old.as_ref().filter(has_edges).filter(|old| old.is_complete()) {
            progress(all, all);
            report.bytes = old.stored_bytes();
            if old.record().planned != planned {
                directory.publish(&IndexRecord { planned, ..old.record().clone() })?;
            }
        } else {
            let mut build = |old: Option<&ValueIndex>| {
                let building = Building::new(self, &form, edges.clone(), old, progress)?;
                report.blocks_read = 0;
                building.run(&directory, planned, &mut report)
            };
            // A damaged index counts as none: it is made anew. If the array is damaged, that says so.
            let is_damage =
                |error: &Error| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound);
            let built = match build(old.as_ref()) {
                Err(error) if old.is_some() && is_damage(&error) => build(None),
                built => built,
            };
            built.map_err(|error| directory.located(error))?;
        }
        report.seconds = began.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// The building of the index of one array.
struct Building<'a> {
    array: &'a Array,
    form: &'a IndexForm,
    edges: Option<BinEdges>,
    old: Option<&'a ValueIndex>,
    progress: ProgressCallback<'a>,
    /// The pages, in units of blocks.
    paged: ChunkGrid,
    /// The objects that were looked at; `None` for those that may have changed.
    objects: HashMap<Vec<u64>, Option<SourceObject>>,
    /// The fingerprint of the array's metadata, and its key.
    identity: Option<(String, String)>,
    all_bytes: u64,
    done_bytes: u64,
}

impl<'a> Building<'a> {
    fn new(
        array: &'a Array,
        form: &'a IndexForm,
        edges: Option<BinEdges>,
        old: Option<&'a ValueIndex>,
        progress: ProgressCallback<'a>,
    ) -> Result<Self> {
        let old = old.filter(|old| old.grid().chunk_shape() == form.grid.chunk_shape());
        let blocks = form.grid.grid_shape();
        // The objects of a page are compared at once.
        let most = (OBJECTS_MAX as u64 / 2 / form.objects_of_block.max(1)).clamp(1, PAGE_BLOCKS);
        let most = match &edges {
            None => most,
            Some(_) => {
                let block = element_count(form.grid.chunk_shape()).unwrap_or(u64::MAX).max(1);
                most.min(PAGE_NUMBERS / block).max(1)
            }
        };
        let mut page = block_shape(blocks, &form.blocks_of_chunk, 1, most);
        if element_count(&page).is_none_or(|count| count > PAGE_BLOCKS_MAX) {
            page = block_shape(blocks, &vec![1; blocks.len()], 1, most);
        }
        let paged = ChunkGrid::new(blocks.to_vec(), page)?;
        let (objects, identity) = (HashMap::new(), None);
        let all_bytes = raw_bytes(array)?;
        let done_bytes = 0;
        Ok(Self {
            array,
            form,
            edges,
            old,
            progress,
            paged,
            objects,
            identity,
            all_bytes,
            done_bytes,
        })
    }

    fn run(
        mut self,
        directory: &IndexDirectory,
        planned: bool,
        report: &mut MadeIndexes,
    ) -> Result<()> {
        let data_type = self.form.fold.data_type();
        let edges = self.edges.take();
        let mut writer = GroupWriter::begin(directory, data_type, edges.as_ref(), &self.paged)?;
        let bins = match &edges {
            Some(edges) => Some(self.bins_writer(directory, edges)?),
            None => None,
        };
        let pages = self.paged.chunk_count().unwrap_or(u64::MAX);
        for number in 0..pages {
            check_cancelled("indexing was stopped")?;
            let at = bedform_geometry::delinearize(number, self.paged.grid_shape());
            let blocks = self.paged.chunk_region_clipped(&at);
            let values = self.page(&blocks, edges.as_ref(), report)?;
            if let Some((writer, bins)) = bins.as_ref().zip(values.bins.as_ref()) {
                writer.write(&at, bins)?;
            }
            writer.write(&blocks, &values)?;
        }
        let group = writer.publish()?;
        let stored_bytes = match &bins {
            Some(bins) => group.stored_bytes + bins.stored_bytes()?,
            None => group.stored_bytes,
        };
        let left_out = self.objects.values().filter(|object| object.is_none()).count();
        report.objects_left_out = left_out as u64;
        report.bytes = stored_bytes;
        let (meaning, key) = self.identity.unwrap_or_default();
        let mut objects: Vec<SourceObject> = self.objects.into_values().flatten().collect();
        objects.sort_unstable_by(|one, other| one.at.cmp(&other.at));
        let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let record = IndexRecord {
            array: self.array.path().to_owned(),
            group: group.name,
            edges: edges.as_ref().map(|edges| hexadecimal(edges.edges())).unwrap_or_default(),
            bins: bins.map(|bins| bins.name).unwrap_or_default(),
            tails: edges.as_ref().is_some_and(BinEdges::has_tails),
            meaning,
            missing_values: hexadecimal(self.form.fold.missing_values()),
            array_shape: self.form.grid.array_shape().to_vec(),
            block_shape: self.form.grid.chunk_shape().to_vec(),
            page_shape: self.paged.chunk_shape().to_vec(),
            planned,
            stored_bytes,
            made: made.as_secs(),
            key,
            pages: group.pages,
            objects,
        };
        directory.publish(&record)
    }

    /// Opens the array of the present numbers if these have the same edges and pages, or makes a new
    /// one.
    fn bins_writer(&mut self, directory: &IndexDirectory, edges: &BinEdges) -> Result<BinsWriter> {
        let is_fitting = |old: &&ValueIndex| {
            old.edges() == Some(edges) && old.record().page_shape == self.paged.chunk_shape()
        };
        let present = self.old.filter(is_fitting).map(ValueIndex::record);
        if present.is_none() {
            // Its numbers lie in other pages, and are not copied.
            self.old = None;
        }
        let new = NewBins { edges, data_type: self.form.fold.data_type() };
        BinsWriter::begin(directory, present, &new, &self.form.grid, &self.paged)
    }

    /// Makes the values of one page, and notes its objects.
    fn page(
        &mut self,
        blocks: &Region,
        edges: Option<&BinEdges>,
        report: &mut MadeIndexes,
    ) -> Result<PageValues> {
        let elements = elements_of(&self.form.grid, blocks)?;
        let selection = Selection::from(elements.clone());
        let mut values = PageValues::new(self.form.fold.data_type(), blocks);
        if let Some(edges) = edges {
            values = values.with_bins(edges, elements, tail_room(&self.paged, &self.form.grid));
        }
        let array = self.array;
        let (bound, left_out) =
            array.bound_in_part(&selection, || self.fill(&mut values, edges, report))?;
        let identity = (bound.meaning, bound.of.key);
        if *self.identity.get_or_insert_with(|| identity.clone()) != identity {
            let text = "its metadata have changed meanwhile: try again";
            return Err(Error::new(ErrorKind::Conflict, text).at(array.name()));
        }
        for object in bound.of.objects {
            let known = self.objects.entry(object.at.clone()).or_insert(Some(object.clone()));
            // An object of two pages may have changed between them.
            if known.as_ref() != Some(&object) {
                *known = None;
            }
        }
        self.objects.extend(left_out.into_iter().map(|at| (at, None)));
        if self.objects.len() > INDEXED_OBJECTS_MAX {
            let text = format!("it has more than {INDEXED_OBJECTS_MAX} objects, and no index");
            return Err(Error::new(ErrorKind::LimitExceeded, text).at(array.name()));
        }
        Ok(values)
    }

    /// Fills a page: blocks of unchanged objects from the present index, the others by a read.
    fn fill(
        &mut self,
        values: &mut PageValues,
        edges: Option<&BinEdges>,
        report: &mut MadeIndexes,
    ) -> Result<()> {
        if let Some(old) = self.old {
            // An object of an earlier page may have changed since.
            old.look_again();
            values.copy_from(old);
            let unread = values.unread();
            self.done_bytes += self.bytes_of(values.len() - unread);
        }
        let item = self.form.fold.data_type().item_size().unwrap_or(1) as u64;
        let block = element_count(self.form.grid.chunk_shape()).unwrap_or(u64::MAX);
        let at_once = STEP_BYTES / block.saturating_mul(item).max(1);
        for part in values.unread_boxes(&self.form.blocks_of_chunk, at_once.max(1)) {
            check_cancelled("indexing was stopped")?;
            let IndexForm { fold, grid, .. } = self.form;
            let folds = self.array.fold_blocks(fold, edges, grid, &part)?;
            report.blocks_read += folds.len() as u64;
            self.done_bytes += self.bytes_of(folds.len() as u64);
            values.set(&part, grid, &folds);
            (self.progress)(self.done_bytes.min(self.all_bytes), self.all_bytes);
        }
        Ok(())
    }

    /// The bytes of so many blocks of average size.
    fn bytes_of(&self, blocks: u64) -> u64 {
        let all = self.form.grid.chunk_count().unwrap_or(u64::MAX).max(1);
        let share = u128::from(self.all_bytes) * u128::from(blocks) / u128::from(all);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}
