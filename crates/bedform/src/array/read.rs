//! Reads of a selection into a buffer, and what a read would do.

use std::sync::{Mutex, PoisonError};

use bedform_format::metadata::FillValue;
use bedform_geometry::{AxisRange, AxisSelection, Selection};
use bedform_machine::Workload;

use super::Array;
use super::known::Known;
use crate::codec::text;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::Target;
use crate::plan::geometry::Geometry;
use crate::plan::price::Price;
use crate::run::execute::{Reading, execute};
use crate::run::explain::explain;
use crate::run::workload::read_workload;
use crate::run::{Explanation, ReadStatistics};

impl Array {
    /// Bytes of the result of a read of `selection`.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub fn result_bytes(&self, selection: &Selection) -> Result<u64> {
        Ok(self.geometry(&self.known()?, selection)?.result_bytes())
    }

    /// Reads `selection` into `buffer`, C order, elements in the machine's byte order.
    ///
    /// A call that is cancelled ([`cancelled_by`](bedform_storage::cancelled_by)) ends with `Interrupted`.
    ///
    /// # Errors
    /// `OutOfBounds` and `InvalidArgument` by the selection or the buffer's size; `Corrupt` if stored
    /// bytes are damaged; those of storage. The contents of `buffer` are then unspecified.
    pub fn read(&self, selection: &Selection, buffer: &mut [u8]) -> Result<ReadStatistics> {
        self.read_known(&self.known()?, selection, buffer)
    }

    /// As [`Array::read`], by what is known of the array already: for a caller that has just asked
    /// for its shape.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_as_known(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
    ) -> Result<ReadStatistics> {
        self.read_known(&self.last_known(), selection, buffer)
    }

    /// Reads the element at `position`, which may count from the end, in the machine's byte order;
    /// nothing if the array has no such element, or is one of text. What [`Array::read`] does, for
    /// those who ask in a loop.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_element(&self, position: &[i64]) -> Result<Option<(Vec<u8>, ReadStatistics)>> {
        let known = self.known()?;
        let shape = known.layout().grid.array_shape();
        if position.len() != shape.len() || known.layout().is_text() {
            return Ok(None);
        }
        let mut axes = Vec::with_capacity(shape.len());
        for (&at, &length) in position.iter().zip(shape) {
            let from_end = if at < 0 { length } else { 0 };
            match from_end.checked_add_signed(at) {
                Some(at) if at < length => {
                    axes.push(AxisSelection::Range(AxisRange::new(at, 1, 1)?));
                }
                _ => return Ok(None),
            }
        }
        let mut element = vec![0; known.layout().item_size];
        let selection = Selection::Orthogonal(axes);
        let statistics = self.read_known(&known, &selection, &mut element)?;
        Ok(Some((element, statistics)))
    }

    fn read_known(
        &self,
        known: &Known<'_>,
        selection: &Selection,
        buffer: &mut [u8],
    ) -> Result<ReadStatistics> {
        if known.layout().is_text() {
            return Err(Error::invalid(format!("{} holds text; read it as text", self.name())));
        }
        let geometry = self.geometry(known, selection)?;
        known.with_plan(&geometry, None, |plan| execute(&Reading { plan }, Target::new(buffer)))
    }

    /// Which chunks a selection touches.
    fn geometry(&self, known: &Known<'_>, selection: &Selection) -> Result<Geometry> {
        known.layout().geometry(selection).map_err(|error| error.at(self.path()))
    }

    /// What a read of `selection` would do, without reading chunks: which objects, how many requests and
    /// bytes, what is decoded, how long it takes by the profile. Opens the objects and reads their
    /// indexes.
    ///
    /// # Errors
    /// As a read, but for what only the chunks can show.
    pub fn explain(&self, selection: &Selection) -> Result<Explanation> {
        let known = self.known()?;
        let geometry = self.geometry(&known, selection)?;
        known.with_plan(&geometry, None, |plan| explain(self.name(), plan))
    }

    /// The price of a read of `selection` by its geometry alone, without I/O.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array; of looking up the array
    /// again.
    pub fn estimate(&self, selection: &Selection) -> Result<Price> {
        let known = self.known()?;
        let geometry = self.geometry(&known, selection)?;
        known.with_plan(&geometry, None, |plan| Ok(plan.estimate()))
    }

    /// The requests of a read of `selection` that `clients` share, as
    /// [`Machine::simulate`](bedform_machine::Machine::simulate) takes them: those of the plan
    /// that [`Array::explain`] prices. Each object is a file. Its requests, in the order of the plan,
    /// are cut into as many runs as there are clients, of as many requests, one more or less; a client
    /// opens each object that it has requests of and reads its index, unless this process has it cached.
    ///
    /// # Errors
    /// As [`Array::explain`]; `LimitExceeded` for more requests or clients than are simulated.
    pub fn workload(&self, selection: &Selection, clients: u32) -> Result<Workload> {
        let known = self.known()?;
        let geometry = self.geometry(&known, selection)?;
        known.with_plan(&geometry, None, |plan| read_workload(plan, clients))
    }

    /// Reads `selection` of an array of text.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_text(&self, selection: &Selection) -> Result<Vec<String>> {
        let known = self.known()?;
        let FillValue::Text(fill) = &known.layout().fill else {
            return Err(Error::invalid(format!("{} does not hold text", self.name())));
        };
        let geometry = self.geometry(&known, selection)?;
        // Texts get numbers, and the numbers are scattered like any other element. 0 is the fill.
        let texts = Mutex::new(vec![fill.clone()]);
        let count = usize::try_from(known.layout().grid.chunk_len()).unwrap_or(usize::MAX);
        let number = |decoded: &[u8], numbers: &mut Vec<u8>| -> Result<()> {
            let split = text::split(decoded, count)
                .map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
            let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
            let first = texts.len() as u64;
            texts.extend(split.iter().map(|text| (*text).to_owned()));
            numbers.clear();
            numbers.extend((first..texts.len() as u64).flat_map(u64::to_le_bytes));
            Ok(())
        };
        let mut buffer = vec![0; usize::try_from(geometry.result_bytes()).unwrap_or(usize::MAX)];
        known.with_plan(&geometry, Some(&number), |plan| {
            execute(&Reading { plan }, Target::new(&mut buffer))
        })?;
        let texts = texts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let numbers = buffer.as_chunks::<8>().0.iter().copied();
        Ok(numbers
            .map(|number| {
                let at = usize::try_from(u64::from_le_bytes(number)).unwrap_or(0);
                texts.get(at).cloned().unwrap_or_default()
            })
            .collect())
    }
}
