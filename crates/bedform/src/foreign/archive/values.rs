//! The elements of small variables, read whole to compare them.

use std::sync::Arc;

use bedform_format::chunk_map::{ChunkTable, ForeignArray, ForeignStorage};
use bedform_format::{DataType, Endian};
use bedform_geometry::Selection;
use bedform_storage::Object;

use super::times::integer;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::chunks::{TableHandle, cell_of};
use crate::foreign::inline::CompactObject;
use crate::foreign::variable::layout_of;
use crate::options::OpenOptions;
use crate::plan::copy::CopyTarget;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::read_source::ReadSource;
use crate::source::{OpenCell, PendingCell, Source, StoredLayout};

/// The most bytes of a variable that is compared.
pub(super) const COMPARED_BYTES_MAX: u64 = 16 << 20;

/// The relative difference of coordinates that rounding may cause.
pub(super) const TOLERANCE: f64 = 1e-6;
/// The same for times, which count from any epoch.
pub(super) const TOLERANCE_OF_TIMES: f64 = 1e-12;
/// The most that labels may differ, as a share of the distance between neighbours.
const TOLERANCE_OF_STEP: f64 = 0.1;
const SHOWN_BYTES_MAX: usize = 64;

/// The elements of a variable, little-endian.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VariableElements {
    pub(super) data_type: DataType,
    pub(super) bytes: Vec<u8>,
}

impl VariableElements {
    fn item_size(&self) -> usize {
        self.data_type.item_size().unwrap_or(1).max(1)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() / self.item_size()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.item_size())
    }

    fn element(&self, at: usize) -> &[u8] {
        let size = self.item_size();
        self.bytes.get(at * size..(at + 1) * size).unwrap_or_default()
    }

    /// Returns the element as a number; `None` for text.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn number(&self, at: usize) -> Option<f64> {
        let element = self.element(at);
        match self.data_type {
            DataType::Float32 => Some(f32::from_le_bytes(element.try_into().ok()?).into()),
            DataType::Float64 => Some(f64::from_le_bytes(element.try_into().ok()?)),
            other => integer(other, element).map(|number| number as f64),
        }
    }

    pub(super) fn is_nan(&self, at: usize) -> bool {
        self.number(at).is_some_and(f64::is_nan)
    }

    /// Returns the element for a message.
    pub(super) fn shown(&self, at: usize) -> String {
        let element = self.element(at);
        if let Some(number) = integer(self.data_type, element) {
            return number.to_string();
        }
        if let Some(number) = self.number(at) {
            return format!("{number:?}");
        }
        let text = &element[..element.len().min(SHOWN_BYTES_MAX)];
        format!("{:?}", String::from_utf8_lossy(text).trim_end_matches('\0'))
    }

    /// Returns the first position at which two variables of one length differ by more than the
    /// relative `tolerance`.
    pub(super) fn differs_at(&self, other: &Self, tolerance: f64) -> Option<usize> {
        if self == other {
            return None;
        }
        let step = self.step();
        (0..self.len()).find(|&at| !self.is_close(other, at, (tolerance, step)))
    }

    fn is_real(&self) -> bool {
        matches!(self.data_type, DataType::Float32 | DataType::Float64)
    }

    /// Returns true if the elements at a position are one label. Integers and texts must be equal.
    /// The allowed difference of other numbers is bounded by shares of the distance `step` of
    /// neighbours, for numbers near zero or far from it.
    fn is_close(&self, other: &Self, at: usize, (tolerance, step): (f64, Option<f64>)) -> bool {
        let (element, same) = (self.element(at), other.element(at));
        if self.data_type == other.data_type && element == same {
            return true;
        }
        let whole = (integer(self.data_type, element), integer(other.data_type, same));
        if let (Some(own), Some(that)) = whole {
            return own == that;
        }
        let is_real = self.is_real() || other.is_real();
        let (Some(own), Some(that), true) = (self.number(at), other.number(at), is_real) else {
            return false;
        };
        if own.is_nan() || that.is_nan() {
            return own.is_nan() && that.is_nan();
        }
        let relative = tolerance * own.abs().max(that.abs());
        let allowed = match step {
            Some(step) => relative.clamp(tolerance * step, TOLERANCE_OF_STEP * step),
            None => relative,
        };
        (own - that).abs() <= allowed
    }

    /// Returns the least distance between neighbours of labels in a strict order; `None` for
    /// others.
    fn step(&self) -> Option<f64> {
        let numbers: Vec<f64> = (0..self.len()).map(|at| self.number(at)).collect::<Option<_>>()?;
        let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let is_ordered =
            steps.iter().all(|step| *step > 0.0) || steps.iter().all(|step| *step < 0.0);
        let least = steps.into_iter().map(f64::abs).min_by(f64::total_cmp);
        least.filter(|least| is_ordered && least.is_finite())
    }

    /// Returns true if two variables differ by more than rounding.
    pub(super) fn is_other(&self, other: &Self) -> bool {
        let is_alike = self.data_type == other.data_type && self.bytes.len() == other.bytes.len();
        !is_alike
            || self.bytes != other.bytes
                && (0..self.len()).any(|at| !self.is_close(other, at, (TOLERANCE, None)))
    }
}

/// Returns the bytes of all elements of a variable; `None` for one without a type of fixed size.
pub(super) fn bytes_of(array: &ForeignArray) -> Option<u64> {
    bytes_in(array, &array.shape)
}

fn bytes_in(array: &ForeignArray, shape: &[u64]) -> Option<u64> {
    let item = array.data_type.and_then(DataType::item_size)? as u64;
    shape.iter().try_fold(item, |bytes, length| bytes.checked_mul(*length))
}

/// Returns true for a variable that takes little memory to read: its elements, and each of its
/// chunks.
pub(super) fn is_small(array: &ForeignArray) -> bool {
    let chunk = match &array.storage {
        ForeignStorage::Chunked { chunk_shape, .. } => bytes_in(array, chunk_shape),
        _ => Some(0),
    };
    let fits = |bytes: Option<u64>| bytes.is_some_and(|bytes| bytes <= COMPARED_BYTES_MAX);
    fits(bytes_of(array)) && fits(chunk)
}

/// A variable of an opened file as a source.
pub(super) struct OpenedVariable<'a> {
    pub(super) name: String,
    pub(super) array: &'a ForeignArray,
    pub(super) object: Arc<dyn Object>,
    pub(super) table: Arc<ChunkTable>,
}

impl Source for OpenedVariable<'_> {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let object: Arc<dyn Object> = match &self.array.storage {
            ForeignStorage::Empty => return Ok(None),
            ForeignStorage::Compact { data } => Arc::new(CompactObject::new(data.clone())),
            _ => self.object.clone(),
        };
        let table = || TableHandle::Own(self.table.clone());
        Ok(Some(cell_of(object, &self.array.storage, None, table)))
    }

    fn object_name(&self, _: &[u64]) -> String {
        self.name.clone()
    }

    fn place_name(&self) -> String {
        self.name.clone()
    }

    fn needs_lookups(&self) -> bool {
        false
    }
}

impl OpenedVariable<'_> {
    /// Returns all elements; `None` for a variable that only the library of its format reads.
    ///
    /// # Errors
    /// `Corrupt` for damaged elements; those of storage.
    pub(super) fn elements(&self) -> Result<Option<VariableElements>> {
        let Ok((data_type, layout)) = layout_of(self.array)? else { return Ok(None) };
        let mut bytes = read_whole(self, &layout)?;
        if Endian::NATIVE == Endian::Big {
            bytes.chunks_mut(data_type.swap_size().max(1)).for_each(<[u8]>::reverse);
        }
        Ok(Some(VariableElements { data_type, bytes }))
    }
}

/// Reads all elements of a variable on the caller's thread, because other threads read other files
/// of the archive.
///
/// # Errors
/// `LimitExceeded` for more bytes than are compared; those of reading.
pub(super) fn read_whole(source: &dyn Source, layout: &StoredLayout) -> Result<Vec<u8>> {
    let selection = Selection::all(layout.grid.array_shape());
    let geometry = layout.geometry(&selection)?;
    let bytes = geometry.result_bytes();
    if bytes > COMPARED_BYTES_MAX {
        let text = format!("{}: {bytes} bytes to compare", source.object_name(&[]));
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let tuning = Tuning::with(&OpenOptions { threads: Some(1), ..OpenOptions::default() });
    let deliver = Deliver::Buffer(CopyTarget::new(&mut buffer));
    let own = ReadSource::settled(source, layout, &tuning);
    own.with_plan(&geometry, |plan| execute(plan, deliver))?;
    Ok(buffer)
}
