//! Reads of a selection into a buffer.

use std::sync::{Mutex, PoisonError};

use bedform_format::metadata::FillValue;
use bedform_geometry::{AxisRange, AxisSelection, Selection};

use super::{Array, ArrayState};
use crate::codec::text;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::Target;
use crate::plan::geometry::Geometry;
use crate::run::ReadStatistics;
use crate::run::execute::{MakeElements, Reading, execute};

impl Array {
    /// Bytes of the result of a read of `selection`.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub fn result_bytes(&self, selection: &Selection) -> Result<u64> {
        let state = self.state()?;
        Ok(plan(&state, selection).map_err(|error| error.at(&self.path))?.result_bytes())
    }

    /// Reads `selection` into `buffer`, C order, elements in the machine's byte order.
    ///
    /// `interrupted` is asked now and then, on the caller's thread, whether to stop.
    ///
    /// # Errors
    /// `OutOfBounds` and `InvalidArgument` by the selection or the buffer's size; `Corrupt` if stored
    /// bytes are damaged; those of storage. The contents of `buffer` are then unspecified.
    pub fn read(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ReadStatistics> {
        let state = self.state()?;
        self.read_state(&state, selection, buffer, interrupted)
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
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ReadStatistics> {
        self.read_state(&self.last_state(), selection, buffer, interrupted)
    }

    /// Reads the element at `position`, which may count from the end, in the machine's byte order;
    /// nothing if the array has no such element, or is one of text. What [`Array::read`] does, for
    /// those who ask in a loop.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_element(&self, position: &[i64]) -> Result<Option<(Vec<u8>, ReadStatistics)>> {
        let state = self.state()?;
        let shape = &state.metadata.shape;
        if position.len() != shape.len() || state.is_text() {
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
        let mut element = vec![0; state.item_size];
        let selection = Selection::Orthogonal(axes);
        let statistics = self.read_state(&state, &selection, &mut element, &|| false)?;
        Ok(Some((element, statistics)))
    }

    fn read_state(
        &self,
        state: &ArrayState,
        selection: &Selection,
        buffer: &mut [u8],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ReadStatistics> {
        if state.is_text() {
            return Err(Error::invalid(format!("{} holds text; read it as text", self.name())));
        }
        let plan = plan(state, selection).map_err(|error| error.at(&self.path))?;
        let fill = state.metadata.fill_value.bytes();
        self.shared.in_one_snapshot(|| {
            self.run(state, &plan, None, fill, Target::new(buffer), interrupted)
        })
    }

    /// Reads `selection` of an array of text.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_text(
        &self,
        selection: &Selection,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<String>> {
        let state = self.state()?;
        let FillValue::Text(fill) = &state.metadata.fill_value else {
            return Err(Error::invalid(format!("{} does not hold text", self.name())));
        };
        let plan = plan(&state, selection).map_err(|error| error.at(&self.path))?;
        // Texts get numbers, and the numbers are scattered like any other element. 0 is the fill.
        let texts = Mutex::new(vec![fill.clone()]);
        let count = usize::try_from(state.grid.chunk_len()).unwrap_or(usize::MAX);
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
        let mut buffer = vec![0; usize::try_from(plan.result_bytes()).unwrap_or(usize::MAX)];
        self.shared.in_one_snapshot(|| {
            let target = Target::new(&mut buffer);
            self.run(&state, &plan, Some(&number), &[0; 8], target, interrupted)
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

    fn run(
        &self,
        state: &ArrayState,
        plan: &Geometry,
        elements: Option<&MakeElements<'_>>,
        fill: &[u8],
        target: Target<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ReadStatistics> {
        let source = self.source(state)?;
        let reading = Reading {
            plan,
            source: &source,
            codec: &state.codec,
            elements,
            fill,
            cache: Some((&self.shared.chunks, state.number)).filter(|(cache, _)| cache.limit() > 0),
            tuning: &self.shared.tuning,
            interrupted,
        };
        execute(&reading, target)
    }
}

/// The plan of a read.
pub(super) fn plan(state: &ArrayState, selection: &Selection) -> Result<Geometry> {
    Geometry::new(&state.grid, &state.per_object, selection, state.item_size)
}
