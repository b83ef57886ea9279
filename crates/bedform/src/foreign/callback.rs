//! Variables that only a foreign library can decode, read by a callback.
//!
//! A [`Callback`] fills a buffer with the elements of a region. A [`Source`] wraps it, so that such
//! variables have plans, prices, a cache, and reads of any selection:
//!
//! - The variable is cut into regular chunks, each a cell of its own. A chunk is whole chunks of
//!   the file, as many along the fastest axes as make a call worth its cost. For a variable without
//!   chunks it is rows of a few MiB. A read calls back once for each chunk that it touches, for the
//!   part of it that lies in the array.
//! - The callback returns the raw elements in C order, in the machine's byte order. Decoded chunks
//!   are cached by the version that the file had when the chunk was read; other versions share
//!   nothing with it. If the file has changed by the time a call returns, the read is a `Conflict`.
//!   Elements outside of the file have no version; a callback for them is
//!   [`not_kept`](Callback::not_kept).
//! - An error of the callback ends the read and is its error, unchanged.
//! - Several threads call the callback at once, unless it is
//!   [`one_at_a_time`](Callback::one_at_a_time). Then a read calls it on its caller's thread alone,
//!   and reads of other threads wait for their turn. The callback must not read the same array.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bedform_codec::ChunkCodec;
use bedform_format::chunk_map::{ChunkMap, ForeignArray, ForeignStorage};
use bedform_format::metadata::FillValue;
use bedform_format::{BytesCodec, CodecChain, DataType, Endian, Limits, Serializer};
use bedform_geometry::{ChunkGrid, Region, strides};
use bedform_storage::{Object, StorageError, StorageErrorKind, Version, lacks};

use super::ForeignFile;
use super::facts::{ForeignVariable, Sources, VariableFacts};
use crate::cache::CacheHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::options::OpenOptions;
use crate::plan::copy::{Strided, copy_box};
use crate::plan::opening::Need;
use crate::plan::tuning::{Tuning, block_shape};
use crate::source::{ChunkLocations, OpenCell, PendingCell, Source, StoredLayout};

/// Bytes of a chunk that consists of several chunks of a file.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes of a chunk of a variable that has no chunks in its file.
const ROWS_BYTES: u64 = 4 << 20;

/// A function that fills a buffer with the elements of a region: C order, the machine's byte order.
pub type ReadElements = dyn Fn(&Region, &mut [u8]) -> Result<()> + Send + Sync;

/// A function that reads regions of an array, and the rules for calling it.
#[derive(Clone)]
pub struct Callback {
    read: Arc<ReadElements>,
    is_serial: bool,
    is_kept: bool,
}

impl Callback {
    /// Makes a callback that several threads may call at once.
    pub fn new(read: Arc<ReadElements>) -> Self {
        Self { read, is_serial: false, is_kept: true }
    }

    /// Restricts calls to one thread at a time, the thread that reads.
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.is_serial = true;
        self
    }

    /// Turns caching off, for elements that can change while the file does not.
    #[must_use]
    pub fn not_kept(mut self) -> Self {
        self.is_kept = false;
        self
    }
}

impl Callback {
    /// Makes every call fail with `LimitExceeded` and this message.
    fn refusing(mut self, message: String) -> Self {
        let fail = move |_: &Region, _: &mut [u8]| {
            Err(Error::new(ErrorKind::LimitExceeded, message.clone()))
        };
        self.read = Arc::new(fail);
        self
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read: _, is_serial, is_kept } = self;
        let mut shown = formatter.debug_struct("Callback");
        shown.field("is_serial", is_serial).field("is_kept", is_kept).finish_non_exhaustive()
    }
}

/// The description of an array that a callback reads; see
/// [`Array::of_callback`](crate::Array::of_callback).
#[derive(Debug, Clone)]
pub struct CallbackArray {
    name: String,
    shape: Vec<u64>,
    data_type: DataType,
    chunk_shape: Option<Vec<u64>>,
    fill: Option<Vec<u8>>,
}

impl CallbackArray {
    /// Describes an array of this shape and type, which messages call `name`.
    pub fn new(name: impl Into<String>, shape: &[u64], data_type: DataType) -> Self {
        let (name, shape) = (name.into(), shape.to_vec());
        Self { name, shape, data_type, chunk_shape: None, fill: None }
    }

    /// Sets the chunks in which the elements are stored, so that calls are for whole chunks.
    /// Without them calls are for rows.
    #[must_use]
    pub fn with_chunks(mut self, chunk_shape: &[u64]) -> Self {
        self.chunk_shape = Some(chunk_shape.to_vec());
        self
    }

    /// Returns the bytes of a chunk, if the array has chunks.
    fn chunk_bytes(&self) -> Option<u64> {
        let item = self.data_type.item_size().unwrap_or(1) as u64;
        let axes = self.chunk_shape.as_ref()?.iter();
        Some(axes.fold(item, |bytes, axis| bytes.saturating_mul(*axis)))
    }

    /// Sets the fill value: an element in the machine's byte order.
    #[must_use]
    pub fn with_fill(mut self, element: &[u8]) -> Self {
        self.fill = Some(element.to_vec());
        self
    }
}

/// A variable that a callback reads.
#[derive(Debug)]
pub(crate) struct CalledVariable {
    facts: VariableFacts,
    called: Arc<BoundCallback>,
    /// The file of the variable, and its position in the chunk map.
    described: Option<(ForeignFile, usize)>,
}

/// A callback, and the file that it reads.
#[derive(Debug)]
struct BoundCallback {
    callback: Callback,
    /// Held while the callback runs, if only one thread at a time may call it.
    turn: Mutex<()>,
    /// The file; `None` for an array outside of files.
    file: Option<ForeignFile>,
    name: String,
    chunk_shape: Vec<u64>,
    item_size: usize,
}

impl CalledVariable {
    /// Makes the array that `described` describes, outside of files.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape or type that no array can have; `LimitExceeded` for chunks
    /// over the limit.
    pub(crate) fn alone(
        described: CallbackArray,
        callback: Callback,
        options: &OpenOptions,
    ) -> Result<Self> {
        let cap = if callback.is_kept { options.cache_bytes } else { 0 };
        let cache = Arc::new(CacheHandle::new(cap, None));
        let tuning = Tuning::with(options);
        let largest = options.limits.chunk_bytes_max;
        Self::new(described, callback, (cache, tuning), None, largest)
    }

    /// Makes the variable at `path` of a file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for elements without a fixed size; as [`CalledVariable::alone`].
    pub(crate) fn of_file(file: &ForeignFile, path: &str, callback: Callback) -> Result<Self> {
        let file = file.file_of(path)?;
        let position = file.position(path)?;
        let array = &file.map.arrays[position];
        let data_type = array.data_type.ok_or_else(|| {
            let text = format!("{path:?} of {} has elements without a type", file.name());
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let chunk_shape = match &array.storage {
            ForeignStorage::Chunked { chunk_shape, .. } => Some(chunk_shape),
            _ => array.encoding.chunks.as_ref(),
        };
        let mut described = CallbackArray {
            name: format!("{}/{path}", file.name()),
            shape: array.shape.clone(),
            data_type,
            chunk_shape: chunk_shape.filter(|chunks| chunks.len() == array.shape.len()).cloned(),
            fill: array.fill_element(),
        };
        let largest = Limits::default().chunk_bytes_max;
        let large = described.chunk_bytes().filter(|bytes| *bytes > largest);
        if large.is_some() {
            // A library that does not decode such chunks reads rows of them.
            described.chunk_shape = None;
        }
        let callback = match large {
            Some(bytes) if !array.encoding.filters.is_empty() => callback.refusing(format!(
                "{}: a compressed chunk of {bytes} bytes is over the limit of {largest}; write the \
                 variable with smaller chunks, with h5repack, or read it with h5py",
                described.name
            )),
            _ => callback,
        };
        let cache = match callback.is_kept {
            true => file.cache.clone(),
            false => Arc::new(CacheHandle::new(0, None)),
        };
        let place = (cache, file.tuning.clone());
        let mut variable = Self::new(described, callback, place, Some((file, path)), u64::MAX)?;
        variable.described = Some((file.clone(), position));
        Ok(variable)
    }

    fn new(
        described: CallbackArray,
        callback: Callback,
        (cache, mut tuning): (Arc<CacheHandle>, Tuning),
        file: Option<(&ForeignFile, &str)>,
        chunk_bytes_max: u64,
    ) -> Result<Self> {
        let CallbackArray { name, shape, data_type, chunk_shape, fill } = described;
        let item_size = data_type.item_size().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{name}: a callback reads no text"))
        })?;
        let (given, bytes) = match &chunk_shape {
            Some(given) => (given.clone(), CHUNK_BYTES),
            None => (vec![1; shape.len()], ROWS_BYTES),
        };
        if given.len() != shape.len() {
            let text = format!(
                "{name}: chunks of rank {} in an array of rank {}",
                given.len(),
                shape.len()
            );
            return Err(Error::invalid(text));
        }
        let chunk_shape = block_shape(&shape, &given, item_size as u64, bytes);
        let grid = ChunkGrid::new(shape, chunk_shape.clone())?;
        let chunk_bytes = grid.chunk_len().checked_mul(item_size as u64);
        if chunk_bytes.is_none_or(|bytes| bytes > chunk_bytes_max) {
            let text = format!("{name}: a chunk of {chunk_shape:?} elements is over the limit");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let fill = fill.unwrap_or_else(|| vec![0; item_size]);
        if fill.len() != item_size {
            let text =
                format!("{name}: a fill value of {} bytes, expected {item_size}", fill.len());
            return Err(Error::invalid(text));
        }
        let bytes: Vec<BytesCodec> = Vec::new();
        let chain =
            CodecChain { transpose: None, serializer: Serializer::Bytes(Endian::NATIVE), bytes };
        let layout = StoredLayout {
            per_object: vec![1; grid.rank()],
            codec: ChunkCodec::new(&chain, data_type, &chunk_shape),
            item_size,
            fill: FillValue::Bytes(fill),
            grid,
        };
        if callback.is_serial {
            (tuning.threads, tuning.threads_waiting) = (1, 1);
        }
        let path = file.map_or(name.as_str(), |(_, path)| path).to_owned();
        let key = file.map_or_else(|| name.clone(), |(file, path)| format!("{}:{path}", file.path));
        let scope = cache.scope(&key, decoding(data_type, &chunk_shape));
        let called = BoundCallback {
            callback,
            turn: Mutex::default(),
            file: file.map(|(file, _)| file.clone()),
            name: name.clone(),
            chunk_shape,
            item_size,
        };
        // Only the program itself may call its callback, so nothing is read ahead.
        let follows = None;
        let replicas = file.and_then(|(file, _)| file.replicas.clone());
        let facts = VariableFacts {
            name,
            path,
            data_type,
            layout,
            // A variable without a state has no replicas.
            meaning: String::new(),
            scope,
            cache,
            tuning,
            replicas,
            // Nor has it an index.
            sidecar: None,
            follows,
        };
        Ok(Self { facts, called: Arc::new(called), described: None })
    }
}

/// Returns a hash of everything that decides the chunks of the variable. It differs from those of
/// variables that the engine decodes.
fn decoding(data_type: DataType, chunk_shape: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("callback {data_type:?} {chunk_shape:?}").hash(&mut hasher);
    hasher.finish()
}

impl ForeignVariable for CalledVariable {
    fn facts(&self) -> &VariableFacts {
        &self.facts
    }

    fn sources(&self) -> Sources<'_> {
        Sources::One(self.facts.read_source(self))
    }

    fn described(&self) -> Option<(&ChunkMap, &ForeignArray)> {
        let (file, position) = self.described.as_ref()?;
        Some((&file.map, &file.map.arrays[*position]))
    }

    fn is_decoded(&self) -> bool {
        false
    }
}

impl Source for CalledVariable {
    fn open(
        &self,
        coordinates: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let version = match &self.called.file {
            None => Version::default(),
            Some(file) => {
                let version = file.storage.stat(&file.path)?;
                if file.checks {
                    file.check_version(&version)?;
                }
                version
            }
        };
        let layout = &self.facts.layout;
        let region = layout.grid.chunk_region_clipped(coordinates);
        let object = CalledRegion { called: self.called.clone(), region, version };
        Ok(Some(OpenCell {
            object: Arc::new(object),
            locations: ChunkLocations::Whole(layout.codec.decoded_bytes() as u64),
            contained: 0,
            index_requests: 0,
            index_bytes: 0,
        }))
    }

    fn makes_chunks(&self) -> bool {
        true
    }

    fn needs_lookups(&self) -> bool {
        false
    }

    fn object_name(&self, _: &[u64]) -> String {
        self.facts.name.clone()
    }

    fn place_name(&self) -> String {
        let file = self.called.file.as_ref();
        file.map_or_else(|| self.facts.name.clone(), ForeignFile::own_name)
    }
}

/// A chunk as an object: its bytes are made when they are read.
#[derive(Debug)]
struct CalledRegion {
    called: Arc<BoundCallback>,
    /// The part of the chunk that lies in the array.
    region: Region,
    version: Version,
}

impl BoundCallback {
    /// Calls the callback for `region`.
    fn call(&self, region: &Region, buffer: &mut [u8]) -> Result<()> {
        // A callback that panicked left no state here.
        let turn = || self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _turn = self.callback.is_serial.then(turn);
        (self.callback.read)(region, buffer)
    }

    /// Fills `buffer`, a whole chunk; `region` is the part of it that lies in the array.
    fn fill(&self, region: &Region, buffer: &mut [u8]) -> Result<()> {
        if region.shape() == self.chunk_shape {
            return self.call(region, buffer);
        }
        let bytes = region.len().and_then(|count| usize::try_from(count).ok());
        let mut dense = vec![0; bytes.unwrap_or(0).saturating_mul(self.item_size)];
        self.call(region, &mut dense)?;
        buffer.fill(0);
        let steps = |shape: &[u64]| -> Vec<i64> {
            let item = self.item_size as u64;
            strides(shape).iter().map(|count| (count * item).cast_signed()).collect()
        };
        let (from, to) = (steps(region.shape()), steps(&self.chunk_shape));
        let source = Strided { bytes: dense.as_slice(), strides: &from };
        let target = Strided { bytes: buffer, strides: &to };
        copy_box(region.shape(), source, target, self.item_size, 1)
    }

    fn chunk_bytes(&self) -> usize {
        let count = self.chunk_shape.iter().product::<u64>();
        usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(self.item_size)
    }
}

/// Wraps an error of the engine for its way through storage, from which it returns unchanged.
fn through_storage(name: &str, error: Error) -> StorageError {
    StorageError::from_io("read", name, io::Error::other(error))
}

impl Object for CalledRegion {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        let (called, whole) = (&self.called, self.called.chunk_bytes());
        let failed = |error| through_storage(&called.name, error);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buffer.len()).filter(|end| *end <= whole);
        let Some(end) = end else {
            return Err(StorageError::new(StorageErrorKind::Truncated, "read", &called.name));
        };
        if (start, end) == (0, whole) {
            called.fill(&self.region, buffer).map_err(failed)?;
        } else {
            let mut made = vec![0; whole];
            called.fill(&self.region, &mut made).map_err(failed)?;
            buffer.copy_from_slice(&made[start..end]);
        }
        match self.is_current()? {
            true => Ok(()),
            false => Err(StorageError::new(StorageErrorKind::Conflict, "read", &called.name)),
        }
    }

    fn is_current(&self) -> std::result::Result<bool, StorageError> {
        match &self.called.file {
            None => Ok(true),
            Some(file) => Ok(file.storage.stat(&file.path)? == self.version),
        }
    }

    lacks!(read_past, read_ahead, request, read_resident, buffered_range, buffered_bytes, kept);
}
