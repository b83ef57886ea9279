//! The class `Array`, and buffers of elements.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use bedform::layout::AdviseRequest;
use bedform::{Elements, ReadStatistics, WriteStatistics};
use bedform_format::DataType;
use bedform_storage::Profile;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use serde::Serialize;

use crate::advise::profile_error;
use crate::error::{raise, to_json, warn};
use crate::selection::parse;
use crate::signals::detached;

/// An array of a store.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct Array {
    pub(crate) inner: bedform::Array,
}

/// The bytes of a C-contiguous buffer.
pub(crate) struct BufferBytes {
    pointer: *mut u8,
    length: usize,
    _buffer: PyUntypedBuffer,
}

// SAFETY: the value keeps the buffer, and with it the memory, alive; only threads of the engine use
// it, which write disjoint parts.
unsafe impl Send for BufferBytes {}
// SAFETY: as above; shared use only reads.
unsafe impl Sync for BufferBytes {}

impl BufferBytes {
    pub(crate) fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(raise(bedform::Error::invalid("the buffer must be C-contiguous")));
        }
        if writable && buffer.readonly() {
            return Err(raise(bedform::Error::invalid("the buffer is read-only")));
        }
        let (pointer, length) = (buffer.buf_ptr().cast(), buffer.len_bytes());
        Ok(Self { pointer, length, _buffer: buffer })
    }

    pub(crate) fn get(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the pointer and length are those of a contiguous buffer that this value keeps.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: as above, and the buffer was checked to be writable. By NumPy's usual contract,
        // no other code uses the array meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.length) }
    }
}

/// Elements in memory of the engine, as a buffer for NumPy arrays.
#[pyclass(frozen, module = "bedform._internal")]
pub(crate) struct OwnedElements {
    /// The pointer of a disassembled `Vec`.
    pointer: *mut u8,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns its memory. Only NumPy changes that meanwhile, whose users synchronize their
// accesses.
unsafe impl Send for OwnedElements {}
// SAFETY: as above.
unsafe impl Sync for OwnedElements {}

impl OwnedElements {
    pub(crate) fn new(elements: Vec<u8>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        let (length, capacity) = (elements.len(), elements.capacity());
        Self { pointer: elements.as_mut_ptr(), length, capacity }
    }
}

impl Drop for OwnedElements {
    fn drop(&mut self) {
        // SAFETY: the parts are those of a `Vec` that is dropped only here; each view of it kept
        // this object alive.
        drop(unsafe { Vec::from_raw_parts(self.pointer, self.length, self.capacity) });
    }
}

#[pymethods]
impl OwnedElements {
    /// Returns a writable view of the bytes.
    ///
    /// # Safety
    /// `view` comes from the interpreter.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let length = isize::try_from(this.length).unwrap_or(isize::MAX);
        // SAFETY: `view` comes from the interpreter; it keeps `slf`, and with it the memory, alive.
        let done = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), this.pointer.cast(), length, 0, flags)
        };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

pub(crate) type ReadCounts = (u64, u64, u64, u64, u64);

pub(crate) fn counts(statistics: ReadStatistics) -> ReadCounts {
    let ReadStatistics { objects, requests, bytes, chunks, waits, absent: _ } = statistics;
    (objects, requests, bytes, chunks, waits)
}

/// Returns counts as JSON.
pub(crate) fn counts_json(statistics: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(statistics).map_err(|error| PyTypeError::new_err(error.to_string()))
}

fn written(statistics: WriteStatistics) -> (u64, u64) {
    (statistics.objects, statistics.bytes)
}

#[pymethods]
impl Array {
    /// Makes an array of values in memory: C order, native byte order, of NumPy's type `dtype`.
    #[staticmethod]
    fn of_values(name: &str, shape: Vec<u64>, dtype: &str, values: Vec<u8>) -> PyResult<Self> {
        let made = DataType::parse_numpy(dtype)
            .ok_or_else(|| bedform::Error::invalid(format!("no type of elements: {dtype:?}")))
            .and_then(|(data_type, _)| bedform::Array::of_values(name, &shape, data_type, values));
        made.map(|inner| Self { inner }).map_err(raise)
    }

    /// The path in the store.
    #[getter]
    fn path(&self) -> String {
        self.inner.path().to_string()
    }

    /// The name of the array in messages.
    #[getter]
    fn name(&self) -> String {
        self.inner.name()
    }

    /// Returns the present number of elements along each axis.
    fn shape(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        detached(py, || self.inner.shape()).map_err(raise)
    }

    /// The NumPy type of the elements in memory; "O" for text.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.inner.numpy()).map_err(raise)
    }

    /// Describes the array, as JSON: see `bedform::Array::describe`.
    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.inner.describe()).map(|value| value.to_string()).map_err(raise)
    }

    /// Returns the encoded bytes per byte of the stored elements: see
    /// `bedform::Array::stored_size`.
    fn stored_size(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        detached(py, || self.inner.stored_size()).map_err(raise)
    }

    /// Returns the metadata document of the array, as JSON.
    fn document(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.inner.document()).map(|value| value.to_string()).map_err(raise)
    }

    /// Returns the bytes of the fill value; empty for text.
    fn fill_bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        detached(py, || self.inner.fill_bytes()).map_err(raise)
    }

    /// Reads `selection`, made for the last shape that `shape()` returned, into `buffer`. Returns
    /// (objects, requests, bytes, chunks, waits), and the buffer of elements that were read ahead.
    /// With `may_take` false there is none; with one, `buffer` is unchanged.
    fn read(
        &self,
        py: Python<'_>,
        selection: &Bound<'_, PyTuple>,
        buffer: &Bound<'_, PyAny>,
        may_take: bool,
    ) -> PyResult<(ReadCounts, Option<OwnedElements>)> {
        let selection = parse(selection)?;
        let mut bytes = BufferBytes::of(buffer, true)?;
        let read = || match may_take {
            true => self.inner.read_or_take(&selection, bytes.get_mut()),
            false => Ok((self.inner.read_as_known(&selection, bytes.get_mut())?, None)),
        };
        let (done, own) = detached(py, read).map_err(raise)?;
        Ok((counts(done), own.map(OwnedElements::new)))
    }

    /// Decodes the chunks of `selection` into the cache. Returns the counts of `read`, the number
    /// of chunks that were cached before, and the number left out.
    fn prefetch(
        &self,
        py: Python<'_>,
        selection: &Bound<'_, PyTuple>,
    ) -> PyResult<(ReadCounts, u64, u64)> {
        let selection = parse(selection)?;
        detached(py, || self.inner.prefetch(&selection))
            .map(|done| (counts(done.read), done.present, done.left_out))
            .map_err(raise)
    }

    /// Reads the selections ahead in turn, as the program uses them.
    fn foresee(&self, py: Python<'_>, selections: Vec<Bound<'_, PyTuple>>) -> PyResult<()> {
        let selections = selections.iter().map(parse).collect::<PyResult<Vec<_>>>()?;
        detached(py, || self.inner.foresee(selections)).map_err(raise)
    }

    /// Returns the bytes of the element at `key`, with the counts of `read`; `None` unless `key` is
    /// one plain integer inside the array per axis.
    fn element<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyTuple>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, ReadCounts)>> {
        let mut position = Vec::with_capacity(key.len());
        for entry in key.iter() {
            let Ok(at) = entry.cast_exact::<PyInt>() else { return Ok(None) };
            let Ok(at) = at.extract::<i64>() else { return Ok(None) };
            position.push(at);
        }
        let found = detached(py, || self.inner.read_element(&position)).map_err(raise)?;
        Ok(found.map(|(element, statistics)| (PyBytes::new(py, &element), counts(statistics))))
    }

    /// Returns the texts of `selection`, in C order.
    fn read_text(&self, py: Python<'_>, selection: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
        let selection = parse(selection)?;
        detached(py, || self.inner.read_text(&selection)).map_err(raise)
    }

    /// Writes the elements of `buffer` to `selection`; returns (objects, bytes).
    fn write(
        &self,
        py: Python<'_>,
        selection: &Bound<'_, PyTuple>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64)> {
        let selection = parse(selection)?;
        let data = GivenElements::of(buffer)?;
        let outcome = detached(py, || data.with(|elements| self.inner.write(&selection, elements)));
        let statistics = outcome.map_err(raise)?;
        warn(py, self.inner.take_warnings())?;
        Ok(written(statistics))
    }

    /// Changes the shape.
    fn resize(&self, py: Python<'_>, shape: Vec<u64>) -> PyResult<()> {
        detached(py, || self.inner.resize(&shape)).map_err(raise)
    }

    /// Returns the plan of a read, as JSON.
    fn explain(&self, py: Python<'_>, selection: &Bound<'_, PyTuple>) -> PyResult<String> {
        let selection = parse(selection)?;
        let explanation = detached(py, || self.inner.explain(&selection)).map_err(raise)?;
        to_json(&explanation).map_err(raise)
    }

    /// Returns the sums of the plans of reads, as JSON: see `bedform::Array::explain_reads`.
    fn explain_reads(
        &self,
        py: Python<'_>,
        selections: Vec<Bound<'_, PyTuple>>,
        in_turn: bool,
    ) -> PyResult<String> {
        let selections = selections.iter().map(parse).collect::<PyResult<Vec<_>>>()?;
        let explained =
            detached(py, || self.inner.explain_reads(&selections, in_turn)).map_err(raise)?;
        to_json(&explained).map_err(raise)
    }

    /// Returns the chunks that a NetCDF-4 or HDF5 file of this array should have for a request in
    /// JSON (see `AdviseRequest::from_json`) on a profile in JSON, as JSON.
    fn advise_repack(&self, py: Python<'_>, question: &str, profile: &str) -> PyResult<String> {
        let profile = Profile::from_json("the profile", profile).map_err(profile_error)?;
        let question: serde_json::Value = serde_json::from_str(question)
            .map_err(|error| raise(bedform::Error::invalid(error.to_string())))?;
        detached(py, || {
            let request = AdviseRequest::from_json(&question, profile)?;
            to_json(&bedform::repack::advise(&self.inner, &request)?)
        })
        .map_err(raise)
    }

    /// Returns the requests of a read that `clients` processes share, as JSON.
    fn workload(
        &self,
        py: Python<'_>,
        selection: &Bound<'_, PyTuple>,
        clients: u32,
    ) -> PyResult<String> {
        let selection = parse(selection)?;
        let workload = detached(py, || self.inner.workload(&selection, clients)).map_err(raise)?;
        to_json(&workload).map_err(raise)
    }

    /// Returns the number of stored objects, and the number that the shape has space for.
    fn stored_objects(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        detached(py, || self.inner.stored_objects()).map_err(raise)
    }

    /// Reads and checks all stored objects; returns one line per problem.
    fn verify(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        detached(py, || self.inner.verify()).map_err(raise)
    }
}

/// Elements to write: a buffer, or a list of texts.
pub(crate) enum GivenElements {
    Bytes(BytesOwner),
    Text(Vec<String>),
}

pub(crate) struct BytesOwner(BufferBytes);

impl BytesOwner {
    pub(crate) fn get(&self) -> &[u8] {
        self.0.get()
    }
}

impl GivenElements {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Only a list counts as texts: an empty buffer is a sequence of texts, too.
        if let Ok(texts) = object.cast::<PyList>() {
            let texts = texts
                .iter()
                .map(|text| Ok(text.cast::<PyString>()?.to_str()?.to_owned()))
                .collect::<PyResult<Vec<String>>>()?;
            return Ok(Self::Text(texts));
        }
        BufferBytes::of(object, false)
            .map(|bytes| Self::Bytes(BytesOwner(bytes)))
            .map_err(|_| PyTypeError::new_err("elements must be a C-contiguous buffer or texts"))
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(Elements<'_>) -> T) -> T {
        match self {
            Self::Bytes(owner) => act(Elements::Bytes(owner.get())),
            Self::Text(texts) => {
                let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
                act(Elements::Text(&borrowed))
            }
        }
    }
}
