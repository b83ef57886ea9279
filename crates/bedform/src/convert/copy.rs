//! Regions of arrays, read from one side and written to, or compared with, the other.

use bedform_format::ObjectPath;
use bedform_geometry::Region;
use bedform_storage::Storage;
use std::sync::Arc;

use super::journal::{Journal, mark};
use super::plan::{ArrayPlan, ConvertPlan};
use super::source::{ConvertSource, SourceArray, Values, selection_of};
use super::words::{byte_phrase, quoted};
use super::{ConvertError, Outcome};
use crate::array::{Array, Elements};
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::options::Progress;
use crate::store::Store;
use crate::threads::workers::check_goes_on;

/// A conversion that runs.
pub(super) struct Job<'a> {
    pub(super) source: &'a ConvertSource,
    pub(super) plan: &'a ConvertPlan,
    pub(super) progress: Progress<'a>,
}

impl Job<'_> {
    /// Copies what is not done yet into the arrays that `target_of` gives, and notes it in the journal.
    /// Gives the bytes that an earlier run had done.
    ///
    /// # Errors
    /// Those of reading and writing; `Interrupted`. What is done is kept.
    pub(super) fn copy(
        &self,
        target_of: &dyn Fn(&ArrayPlan) -> Result<Array>,
        journal: &mut Option<Journal>,
    ) -> Result<u64> {
        let (mut finished, mut resumed) = (0_u64, 0_u64);
        let mut values = Values::default();
        for array in &self.plan.arrays {
            let source = self.open(array)?;
            let target = target_of(array)?;
            let key = target.metadata()?.identity.map_or([0; 16], |identity| identity.array);
            for region in array.regions() {
                let region = region?;
                let bytes = array.bytes_of(region.shape());
                let mark = mark(&array.name, &key, region.start());
                if journal.as_ref().is_some_and(|journal| journal.is_done(&mark)) {
                    resumed = resumed.saturating_add(bytes);
                } else {
                    source.read(&region, &mut values)?;
                    self.write(&target, &region, source.is_text(), &values)?;
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

    fn open(&self, array: &ArrayPlan) -> Result<SourceArray> {
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

    fn write(&self, target: &Array, region: &Region, is_text: bool, values: &Values) -> Result<()> {
        let texts: Vec<&str>;
        let elements = if is_text {
            texts = values.texts.iter().map(String::as_str).collect();
            Elements::Text(&texts)
        } else {
            Elements::Bytes(&values.bytes)
        };
        target.write(&selection_of(region)?, elements).map(drop)
    }

    fn tell(&self, finished: u64) -> Result<()> {
        (self.progress)(finished, self.plan.bytes());
        check_goes_on("the conversion was stopped")
    }

    /// Reads both sides once more: every byte of the arrays that `copy_of` gives must be the source's, the
    /// bits of a NaN included.
    ///
    /// # Errors
    /// `Differs` names the first region that does; those of reading; `Interrupted`.
    pub(super) fn compare(&self, copy_of: &dyn Fn(&ArrayPlan) -> Result<Array>) -> Outcome<()> {
        let mut compared = 0_u64;
        let (mut left, mut right) = (Values::default(), Values::default());
        for array in &self.plan.arrays {
            let source = self.open(array)?;
            let copy = SourceArray::of_store(copy_of(array)?)?;
            for region in array.regions() {
                let region = region?;
                source.read(&region, &mut left)?;
                copy.read(&region, &mut right)?;
                let is_same = match source.is_text() {
                    true => left.texts == right.texts,
                    false => left.bytes == right.bytes,
                };
                if !is_same || source.data_type() != copy.data_type() {
                    return Err(differs(array, &region, compared));
                }
                compared = compared.saturating_add(array.bytes_of(region.shape()));
                self.tell(compared)?;
            }
        }
        Ok(())
    }

    /// As [`Job::compare`], with the store in `storage`, opened anew and without a cache.
    pub(super) fn compare_store(
        &self,
        storage: Arc<dyn Storage>,
        options: &OpenOptions,
    ) -> Outcome<()> {
        let mut options = options.clone();
        (options.writable, options.cache_bytes) = (false, 0);
        let store = Store::open(storage, options)?;
        self.compare(&|array| store.array(&ObjectPath::parse(&array.name)?))
    }
}

fn differs(array: &ArrayPlan, region: &Region, compared: u64) -> ConvertError {
    let ranges: Vec<String> = (0..region.rank())
        .map(|axis| format!("{}:{}", region.start()[axis], region.end(axis)))
        .collect();
    ConvertError::Differs(format!(
        "array {} differs from the source in [{}]: the target was not published; {} before it are the same",
        quoted(&array.name),
        ranges.join(", "),
        byte_phrase(compared)
    ))
}
