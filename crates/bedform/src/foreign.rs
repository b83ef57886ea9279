//! Foreign files, read as they are: NetCDF classic, NetCDF-4, HDF5.
//!
//! A [`ChunkMap`] says where the bytes of every variable lie; the plan, the fetches and the codecs are
//! those of Zarr arrays. A whole file is one object here: a variable without chunks is one chunk of
//! raw elements, of which a read fetches just the bytes that it needs; a record variable has one such
//! chunk for each record.

use std::sync::Arc;

use bedform_format::chunk_map::{ChunkMap, ChunkTable, ForeignArray as MapArray, ForeignStorage};
use bedform_format::netcdf_classic::{self, Header};
use bedform_format::shard::Extent;
use bedform_format::{Limits, ObjectPath};
use bedform_geometry::{ChunkGrid, Selection};
use bedform_storage::machine::Workload;
use bedform_storage::{Object, Storage, StorageError, StorageErrorKind, Version};
use serde_json::{Value, json};

use crate::array::explain::explain_plan;
use crate::array::workload::read_workload;
use crate::codec::ChunkCodec;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::copy::Target;
use crate::plan::geometry::Geometry;
use crate::plan::opening::Need;
use crate::plan::tuning::Tuning;
use crate::run::ReadStatistics;
use crate::run::execute::{Reading, execute};
use crate::source::locate::{ChunkLocations, ChunkPlaces, OpenCell, Opening, Source};

pub use bedform_format::chunk_map::SourceVersion;

/// The first look at a classic header.
const HEADER_BYTES: u64 = 64 << 10;

/// A foreign file, opened: its chunk map, and where it is.
#[derive(Debug, Clone)]
pub struct ForeignFile {
    storage: Arc<dyn Storage>,
    path: ObjectPath,
    map: Arc<ChunkMap>,
    tuning: Tuning,
    /// Whether every read looks if the file has changed.
    checks: bool,
}

impl ForeignFile {
    /// The file at `path` of `storage`, whose chunk map is `map`.
    ///
    /// # Errors
    /// `Conflict` if the file is not the one that the map was made from.
    pub fn new(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        map: ChunkMap,
        options: &crate::OpenOptions,
    ) -> Result<Self> {
        let checks = options.freshness == crate::Freshness::Read;
        let tuning = Tuning::with(options);
        let file = Self { storage, path, map: Arc::new(map), tuning, checks };
        let version = file.storage.stat(&file.path)?;
        file.check_version(&version)?;
        Ok(file)
    }

    /// Opens a NetCDF classic file: its header is its chunk map.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` by the header; those of storage.
    pub fn open_classic(
        storage: Arc<dyn Storage>,
        path: ObjectPath,
        options: &crate::OpenOptions,
    ) -> Result<Self> {
        let object = storage.open(&path)?;
        let version = object.version().clone();
        let map = read_classic(&*object, &source_version(&version), &options.limits)
            .map_err(|error| error.at(format!("{}/{path}", storage.name())))?;
        Self::new(storage, path, map, options)
    }

    /// The chunk map.
    pub fn map(&self) -> &ChunkMap {
        &self.map
    }

    /// The file as a user knows it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.storage.name(), self.path)
    }

    /// The variable at `path` of the file.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that only its native library reads.
    pub fn array(&self, path: &str) -> Result<ForeignArray> {
        let position = self.map.arrays.iter().position(|array| array.path == path);
        let position = position.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no variable {path:?} in {}", self.name()))
        })?;
        ForeignArray::new(self.clone(), position)
    }

    fn check_version(&self, version: &Version) -> Result<()> {
        if source_version(version) == self.map.source {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("{} has changed since it was opened; open it again", self.name()),
        ))
    }
}

/// A chunk map's word for a version of storage.
pub fn source_version(version: &Version) -> SourceVersion {
    SourceVersion {
        size: version.size,
        modified_ns: version.modified_ns,
        changed_ns: version.changed_ns,
        identity: version.identity,
    }
}

fn read_classic(object: &dyn Object, source: &SourceVersion, limits: &Limits) -> Result<ChunkMap> {
    let mut wanted = HEADER_BYTES;
    loop {
        let length = wanted.min(source.size).min(limits.metadata_bytes_max);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        object.read(0, &mut bytes)?;
        let parsed = netcdf_classic::parse(&bytes, source, limits)
            .map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?;
        match parsed {
            Header::Complete(map) => return Ok(*map),
            Header::Incomplete { bytes_needed }
                if bytes_needed > length && length < source.size =>
            {
                if length == limits.metadata_bytes_max {
                    return Err(Error::new(
                        ErrorKind::LimitExceeded,
                        format!("a header of more than {length} bytes is over the limit"),
                    ));
                }
                wanted = bytes_needed.max(length.saturating_mul(2));
            }
            Header::Incomplete { .. } => {
                return Err(Error::new(ErrorKind::Corrupt, "the file ends inside its header"));
            }
        }
    }
}

/// A variable of a foreign file. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub struct ForeignArray {
    file: ForeignFile,
    position: usize,
    grid: ChunkGrid,
    per_object: Vec<u64>,
    codec: ChunkCodec,
    item_size: usize,
    fill: Vec<u8>,
}

impl ForeignArray {
    fn new(file: ForeignFile, position: usize) -> Result<Self> {
        let map = file.map.clone();
        let array = &map.arrays[position];
        let native = |reason: &str| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{:?} of {} is read by its own library: {reason}", array.path, file.name()),
            )
        };
        if let ForeignStorage::Native { reason } = &array.storage {
            return Err(native(reason));
        }
        let data_type = array.data_type.ok_or_else(|| native("it has no type of fixed size"))?;
        let item_size =
            data_type.item_size().ok_or_else(|| native("it has no type of fixed size"))?;
        let at_least_one =
            |shape: &[u64]| shape.iter().map(|length| (*length).max(1)).collect::<Vec<_>>();
        let chunk_shape = match &array.storage {
            ForeignStorage::Chunked { chunk_shape, .. } => chunk_shape.clone(),
            ForeignStorage::Records { .. } => {
                let mut shape = at_least_one(&array.shape);
                if let Some(first) = shape.first_mut() {
                    *first = 1;
                }
                shape
            }
            _ => at_least_one(&array.shape),
        };
        let grid = ChunkGrid::new(array.shape.clone(), chunk_shape.clone())?;
        Ok(Self {
            per_object: at_least_one(grid.grid_shape()),
            codec: ChunkCodec::new(&array.codec_chain(), data_type, &chunk_shape),
            fill: array.fill_element().unwrap_or_else(|| vec![0; item_size]),
            item_size,
            grid,
            position,
            file,
        })
    }

    fn array(&self) -> &MapArray {
        &self.file.map.arrays[self.position]
    }

    /// The variable as a user knows it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.file.name(), self.array().path)
    }

    /// Elements along each axis.
    pub fn shape(&self) -> &[u64] {
        &self.array().shape
    }

    /// The NumPy type of the elements in memory.
    pub fn numpy(&self) -> String {
        self.array().data_type.map_or_else(|| "O".to_owned(), |data_type| data_type.numpy())
    }

    /// The fill value, in the machine's byte order.
    pub fn fill_bytes(&self) -> &[u8] {
        &self.fill
    }

    fn plan(&self, selection: &Selection) -> Result<Geometry> {
        Geometry::new(&self.grid, &self.per_object, selection, self.item_size)
            .map_err(|error| error.at(&self.array().path))
    }

    /// Reads `selection` into `buffer`; see [`Array::read`](crate::Array::read).
    ///
    /// # Errors
    /// As there; `Conflict` if the file has changed since it was opened.
    pub fn read(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<ReadStatistics> {
        let plan = self.plan(selection)?;
        let reading = Reading {
            plan: &plan,
            source: self,
            codec: &self.codec,
            elements: None,
            fill: &self.fill,
            cache: None,
            tuning: &self.file.tuning,
            interrupted,
        };
        execute(&reading, Target::new(buffer))
    }

    /// The plan of a read; see [`Array::explain`](crate::Array::explain).
    ///
    /// # Errors
    /// As there.
    pub fn explain(&self, selection: &Selection) -> Result<Value> {
        let plan = self.plan(selection)?;
        explain_plan(&self.name(), &plan, self, &self.codec, &self.file.tuning)
    }

    /// The requests of a read that `clients` share; see [`Array::workload`](crate::Array::workload).
    ///
    /// # Errors
    /// As there.
    pub fn workload(&self, selection: &Selection, clients: u32) -> Result<Workload> {
        let plan = self.plan(selection)?;
        read_workload(&plan, self, &self.codec, &self.file.tuning, clients)
    }

    /// What the variable is; the keys are those of [`Array::describe`](crate::Array::describe) that
    /// a foreign variable has.
    pub fn describe(&self) -> Value {
        let array = self.array();
        let (kind, chunks) = match &array.storage {
            ForeignStorage::Contiguous { .. } => ("contiguous", None),
            ForeignStorage::Compact { .. } => ("compact", None),
            ForeignStorage::Chunked { chunk_shape, .. } => ("chunked", Some(chunk_shape)),
            ForeignStorage::Records { .. } => ("records", None),
            ForeignStorage::Empty => ("empty", None),
            _ => ("native", None),
        };
        json!({
            "path": array.path,
            "shape": array.shape,
            "dtype": array.data_type.map(|data_type| data_type.to_string()),
            "numpy": self.numpy(),
            "storage": kind,
            "chunks": chunks.unwrap_or(&self.grid.chunk_shape().to_vec()),
            "shards": null,
            "order": null,
            "dims": array.dimension_names,
        })
    }
}

impl Source for ForeignArray {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<Opening>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let object: Arc<dyn Object> = match &self.array().storage {
            ForeignStorage::Empty => return Ok(None),
            ForeignStorage::Compact { data } => Arc::new(Inline::new(data.clone())),
            _ => {
                let object = self.file.storage.open(&self.file.path)?;
                if self.file.checks {
                    self.file.check_version(object.version())?;
                }
                Arc::from(object)
            }
        };
        let places = MapPlaces { map: self.file.map.clone(), position: self.position };
        Ok(Some(OpenCell {
            overlay: None,
            object,
            places: ChunkLocations::Map(Arc::new(places)),
            index_requests: 0,
            index_bytes: 0,
        }))
    }

    fn object_name(&self, _: &[u64]) -> String {
        self.name()
    }
}

/// Where the chunks of one variable lie.
struct MapPlaces {
    map: Arc<ChunkMap>,
    position: usize,
}

impl ChunkPlaces for MapPlaces {
    fn find(&self, position: u64) -> Option<(Extent, u32)> {
        let find_in = |table: &ChunkTable| {
            let entry = table.find(position)?;
            Some((Extent { offset: entry.offset, length: entry.length }, entry.filter_mask))
        };
        match &self.map.arrays[self.position].storage {
            ForeignStorage::Contiguous { offset, length } => {
                Some((Extent { offset: *offset, length: *length }, 0))
            }
            ForeignStorage::Compact { data } => {
                Some((Extent { offset: 0, length: data.len() as u64 }, 0))
            }
            ForeignStorage::Chunked { chunks, .. } => find_in(chunks),
            ForeignStorage::Records { offset, stride, length } => {
                let offset = offset.checked_add(stride.checked_mul(position)?)?;
                Some((Extent { offset, length: *length }, 0))
            }
            _ => None,
        }
    }
}

/// Bytes of a chunk map as an object.
#[derive(Debug)]
struct Inline {
    bytes: Vec<u8>,
    version: Version,
}

impl Inline {
    fn new(bytes: Vec<u8>) -> Self {
        let version = Version { size: bytes.len() as u64, ..Version::default() };
        Self { bytes, version }
    }
}

impl Object for Inline {
    fn version(&self) -> &Version {
        &self.version
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<(), StorageError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buffer.len());
        let bytes = end.and_then(|end| self.bytes.get(start..end)).ok_or_else(|| {
            StorageError::new(StorageErrorKind::Truncated, "read", "a compact variable")
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn read_resident(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, StorageError> {
        self.read(offset, buffer).map(|()| buffer.len())
    }

    fn is_current(&self) -> std::result::Result<bool, StorageError> {
        Ok(true)
    }

    bedform_storage::lacks!(read_past, read_ahead, ask, at_hand, known, kept);
}
