//! The copy loop of a conversion: regions are read from the source and written to, or compared
//! with, the target.

use bedform_format::ObjectPath;
use bedform_geometry::Region;
use bedform_storage::Storage;
use std::sync::Arc;

use super::journal::{Journal, mark};
use super::plan::{ArrayPlan, ConvertPlan};
use super::regions::{RegionSizing, Regions};
use super::source::{ConvertSource, RegionBuffers, SourceArray, selection_of};
use super::tasks::{Distributed, TargetPlace, TaskExchange, Workers, key_of};
use super::words::{byte_phrase, quoted};
use super::{ConvertError, ConvertResult};
use crate::array::{Array, Elements};
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::options::ProgressCallback;
use crate::store::Store;
use crate::threads::workers::check_cancelled;

/// A running conversion.
pub(super) struct ConversionJob<'a> {
    pub(super) source: &'a ConvertSource,
    pub(super) plan: &'a ConvertPlan,
    pub(super) progress: ProgressCallback<'a>,
    /// Hands regions to workers; `None` copies in this process.
    pub(super) exchange: Option<TaskExchange<'a>>,
}

impl ConversionJob<'_> {
    /// Copies all arrays into those that `target_of` returns, which workers find at `place`.
    ///
    /// # Errors
    /// As [`ConversionJob::copy`].
    pub(super) fn copy_all(
        &self,
        place: Option<&TargetPlace>,
        target_of: &dyn Fn(&ArrayPlan) -> Result<Array>,
        journal: &mut Option<Journal>,
    ) -> Result<Distributed> {
        match self.workers(place) {
            Some(workers) => self.distribute(workers, false, target_of, journal),
            None => {
                let resumed_bytes = self.copy(target_of, journal)?;
                Ok(Distributed { resumed_bytes, warnings: Vec::new() })
            }
        }
    }

    fn workers<'w>(&'w self, place: Option<&'w TargetPlace>) -> Option<Workers<'w>> {
        let (exchange, place) = self.exchange.zip(place)?;
        Some(Workers { place, exchange })
    }

    /// Copies the unfinished regions into the arrays that `target_of` returns, and marks them in
    /// the journal. Returns the bytes that an earlier run had copied.
    ///
    /// # Errors
    /// Those of reading and writing; `Interrupted`. Finished regions are kept.
    fn copy(
        &self,
        target_of: &dyn Fn(&ArrayPlan) -> Result<Array>,
        journal: &mut Option<Journal>,
    ) -> Result<u64> {
        let (mut finished, mut resumed) = (0_u64, 0_u64);
        let mut values = RegionBuffers::default();
        for array in &self.plan.arrays {
            let source = self.open(array)?;
            let target = target_of(array)?;
            let key = key_of(&target)?;
            for region in array.regions() {
                let region = region?;
                let bytes = array.bytes_of(region.shape());
                let mark = mark(&array.name, &key, region.start());
                if journal.as_ref().is_some_and(|journal| journal.is_done(&mark)) {
                    resumed = resumed.saturating_add(bytes);
                } else {
                    copy_region(&source, &target, &region, &mut values)?;
                    if let Some(journal) = journal.as_mut() {
                        journal.note(&mark, bytes)?;
                    }
                }
                finished = finished.saturating_add(bytes);
                self.tell(finished)?;
            }
        }
        Ok(resumed)
    }

    pub(super) fn open(&self, array: &ArrayPlan) -> Result<SourceArray> {
        let source = self.source.array(&array.name)?;
        if source.shape == array.shape {
            return Ok(source);
        }
        let text = format!(
            "array {} of {} has changed its shape since it was planned: run the conversion again",
            quoted(&array.name),
            quoted(self.source.name())
        );
        Err(Error::new(ErrorKind::Conflict, text))
    }

    pub(super) fn tell(&self, finished: u64) -> Result<()> {
        (self.progress)(finished, self.plan.bytes());
        check_cancelled("the conversion was stopped")
    }

    /// Reads both sides again and compares every byte of the arrays that `copy_of` returns with the
    /// source, the bits of a NaN included.
    ///
    /// # Errors
    /// `Differs` names the first region that differs; those of reading; `Interrupted`.
    pub(super) fn compare(
        &self,
        place: Option<&TargetPlace>,
        copy_of: &dyn Fn(&ArrayPlan) -> Result<Array>,
    ) -> ConvertResult<()> {
        if let Some(workers) = self.workers(place) {
            return Ok(self.distribute(workers, true, copy_of, &mut None).map(drop)?);
        }
        let mut compared = 0_u64;
        let (mut left, mut right) = (RegionBuffers::default(), RegionBuffers::default());
        for array in &self.plan.arrays {
            let source = self.open(array)?;
            let copy = SourceArray::of_store(copy_of(array)?)?;
            for region in array.regions() {
                let region = region?;
                if !is_same(&source, &copy, &region, &mut left, &mut right)? {
                    return Err(differs(&array.name, &region, Some(compared)));
                }
                compared = compared.saturating_add(array.bytes_of(region.shape()));
                self.tell(compared)?;
            }
        }
        Ok(())
    }

    /// As [`ConversionJob::compare`], with the store in `storage`, opened anew and without a cache.
    pub(super) fn compare_store(
        &self,
        place: Option<&TargetPlace>,
        storage: Arc<dyn Storage>,
        options: &OpenOptions,
    ) -> ConvertResult<()> {
        let mut options = options.clone();
        (options.writable, options.cache_bytes) = (false, 0);
        let store = Store::open(storage, options)?;
        self.compare(place, &|array| store.array(&ObjectPath::parse(&array.name)?))
    }
}

/// Copies a region; durable on return.
pub(super) fn copy_region(
    source: &SourceArray,
    target: &Array,
    region: &Region,
    values: &mut RegionBuffers,
) -> Result<()> {
    source.read(region, values)?;
    let texts: Vec<&str>;
    let elements = if source.is_text() {
        texts = values.texts.iter().map(String::as_str).collect();
        Elements::Text(&texts)
    } else {
        Elements::Bytes(&values.bytes)
    };
    target.write(&selection_of(region)?, elements).map(drop)
}

/// True if every byte of a region, and the type of the elements, is the same in both.
pub(super) fn is_same(
    source: &SourceArray,
    copy: &SourceArray,
    region: &Region,
    left: &mut RegionBuffers,
    right: &mut RegionBuffers,
) -> Result<bool> {
    source.read(region, left)?;
    copy.read(region, right)?;
    let is_same = match source.is_text() {
        true => left.texts == right.texts,
        false => left.bytes == right.bytes,
    };
    Ok(is_same && source.data_type() == copy.data_type())
}

/// Reads both an array of `source` and its copy, in blocks of whole shards of the copy that fit
/// `memory_bytes`. `act` gets each block with the elements of both sides.
///
/// # Errors
/// Those of reading and of `act`; `Interrupted`.
pub(crate) fn read_both(
    source: &ConvertSource,
    name: &str,
    copy: &Array,
    memory_bytes: u64,
    mut act: impl FnMut(&Region, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let shards = copy.metadata()?.chunk_shape;
    let (whole, copy) = (source.array(name)?, SourceArray::of_store(copy.clone())?);
    let extent = RegionSizing {
        shape: &whole.shape,
        source_chunks: whole.chunks.as_deref(),
        item_size: whole.data_type().item_size().unwrap_or(1) as u64,
        threads: 1,
    };
    let block = extent.grow_region(&shards, memory_bytes);
    let (mut left, mut right) = (RegionBuffers::default(), RegionBuffers::default());
    for region in Regions::new(&whole.shape, &block) {
        check_cancelled("comparing replicas was stopped")?;
        let region = region?;
        whole.read(&region, &mut left)?;
        copy.read(&region, &mut right)?;
        act(&region, &left.bytes, &right.bytes)?;
    }
    Ok(())
}

/// Makes the error of a region that differs; `compared` counts the bytes before it that are equal.
pub(super) fn differs(array: &str, region: &Region, compared: Option<u64>) -> ConvertError {
    let ranges: Vec<String> = (0..region.rank())
        .map(|axis| format!("{}:{}", region.start()[axis], region.end(axis)))
        .collect();
    let before = compared.map_or_else(String::new, |bytes| {
        format!("; {} before it are the same", byte_phrase(bytes))
    });
    ConvertError::Differs(format!(
        "array {} differs from the source in [{}]: the target was not published{before}",
        quoted(array),
        ranges.join(", "),
    ))
}
