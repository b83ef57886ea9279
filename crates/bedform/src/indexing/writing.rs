//! The Zarr groups of an index in the sidecar, and the record that names them.

use std::sync::Arc;

use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::{ChunkGrid, Region};
use bedform_storage::{Durability, Lock, Mode, Storage};
use serde_json::{Map, Value, json};

use super::pages::{PageBins, PageValues};
use crate::array::{Array, Elements};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{
    BINS, BinEdges, CATALOGUE, GROUPS, IndexRecord, NUMBERS, POSITION_TYPE, TAIL_NAMES,
    UNKNOWN_BIN, described_arrays, directory_of, page_fingerprint, tail_room,
};
use crate::opening::storage_in_sidecar;
use crate::options::{OpenOptions, Prefetch};
use crate::sidecar::{INDEX, Sidecar};
use crate::store::{StagedStore, Store};
use crate::zarr::NewArray;

/// Elements of a chunk of tails.
const TAIL_CHUNK: u64 = 1 << 16;
/// Digits of the name of a group.
const DIGITS: usize = 8;

/// The directory of the index of one array.
pub(super) struct IndexDirectory {
    sidecar: Sidecar,
    /// Its path in the sidecar.
    path: String,
    /// The array, for messages.
    name: String,
}

impl IndexDirectory {
    /// Finds or makes the sidecar of an array's source. It lies where that of replicas does.
    ///
    /// # Errors
    /// `Unsupported` for an array that was not opened by a path; `PermissionDenied` if the sidecar
    /// cannot lie beside the source.
    pub(super) fn of(array: &Array) -> Result<Self> {
        let name = array.name();
        let none = || {
            let text = format!("{name}: it was not opened by a path, so an index has no place");
            Error::new(ErrorKind::Unsupported, text)
        };
        let sidecar = array.sidecar().ok_or_else(none)?.made_for_contents()?;
        let sidecar = sidecar.filter(|sidecar| sidecar.own_directory().is_some());
        let sidecar = sidecar.ok_or_else(|| {
            let text = format!(
                "{name}: an index cannot lie beside it, where this user may not write, and goes to no home directory \
                 unasked: set BEDFORM_SIDECAR to a directory for it"
            );
            Error::new(ErrorKind::PermissionDenied, text)
        })?;
        Ok(Self { sidecar, path: directory_of(array.path()), name })
    }

    /// Opens a directory of groups, and makes it if it is missing.
    fn storage(&self, groups: &str) -> Result<Arc<dyn Storage>> {
        let path = format!("{}/{groups}", self.path);
        storage_in_sidecar(&self.sidecar, &path, Mode::ReadWrite, &OpenOptions::default())
    }

    /// Locks the directory, so that one process at a time builds the index.
    ///
    /// # Errors
    /// `Conflict` if another process holds the lock; errors of storage.
    pub(super) fn locked(&self) -> Result<Box<dyn Lock>> {
        let lock = self.storage(GROUPS).and_then(|_| self.sidecar.try_lock(&self.path));
        lock.map_err(|error| self.located(error))?.ok_or_else(|| {
            let text = format!("{}: another process builds its index: wait for it", self.name);
            Error::new(ErrorKind::Conflict, text)
        })
    }

    /// Adds the place of the index and a remedy to an error of writing there.
    pub(super) fn located(&self, error: Error) -> Error {
        let remedy = match error.kind() {
            ErrorKind::NoSpace => "free some, and run the same command again",
            ErrorKind::ReadOnly => "set BEDFORM_SIDECAR to another directory",
            _ => return error,
        };
        let directory = self.sidecar.own_directory().unwrap_or_default().join(&self.path);
        error.at(format!("the index in {}", directory.display())).followed_by(remedy)
    }

    /// The name of the next group: the number of the next record.
    fn next_name(&self) -> String {
        let number = self.sidecar.last_number(&self.list()).saturating_add(1);
        format!("{number:0DIGITS$}")
    }

    fn list(&self) -> String {
        format!("{}/{CATALOGUE}", self.path)
    }

    /// Saves the record as the newest, and removes the groups that it does not name.
    ///
    /// # Errors
    /// `Io` if it cannot be kept.
    pub(super) fn publish(&self, record: &IndexRecord) -> Result<()> {
        if self.sidecar.save_next(&self.list(), record).is_none() {
            let text = format!("{}: the record of its index cannot be kept", self.name);
            return Err(Error::new(ErrorKind::Io, text));
        }
        for (groups, named) in [(GROUPS, &record.group), (BINS, &record.bins)] {
            let groups = format!("{}/{groups}", self.path);
            for entry in self.sidecar.entries(&groups) {
                if entry.is_directory && is_made_here(&entry.name) && entry.name != *named {
                    self.sidecar.remove_directory(&format!("{groups}/{}", entry.name));
                }
            }
            self.sidecar.sweep(&groups);
        }
        self.sidecar.open_to_readers(&[INDEX]);
        Ok(())
    }

    /// The sidecar with the index.
    pub(super) fn sidecar(&self) -> &Sidecar {
        &self.sidecar
    }

    /// Removes the index, its record first: from then on queries read the array.
    pub(super) fn remove(&self) {
        for part in [CATALOGUE, GROUPS, BINS] {
            self.sidecar.remove_directory(&format!("{}/{part}", self.path));
        }
    }
}

/// True for the name of a group.
fn is_made_here(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|digit| digit.is_ascii_digit())
}

/// The group with an element for each block while it is written.
pub(super) struct GroupWriter {
    staged: StagedStore,
    parent: Arc<dyn Storage>,
    name: String,
    arrays: Vec<Array>,
    pages: Vec<u128>,
}

/// A published group.
pub(super) struct WrittenGroup {
    pub(super) name: String,
    /// The fingerprint of each page.
    pub(super) pages: Vec<u128>,
    pub(super) stored_bytes: u64,
}

impl GroupWriter {
    /// Begins a group whose arrays have an element for each block, and a chunk for each page.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn begin(
        directory: &IndexDirectory,
        data_type: DataType,
        edges: Option<&BinEdges>,
        paged: &ChunkGrid,
    ) -> Result<Self> {
        let parent = directory.storage(GROUPS)?;
        let name = directory.next_name();
        // No record names it: an interrupted process has left it.
        let left = format!("{}/{GROUPS}/{name}", directory.path);
        directory.sidecar.remove_directory(&left);
        let path = ObjectPath::parse(&name)?;
        let staged = StagedStore::create_in(&parent, &path, false, &Map::new(), writing())?;
        let mut arrays = Vec::new();
        for (name, data_type, bins) in described_arrays(data_type, edges) {
            let new = described(data_type, paged, bins)?;
            arrays.push(staged.store().create_array(&ObjectPath::parse(name)?, &new)?);
        }
        Ok(Self { staged, parent, name, arrays, pages: Vec::new() })
    }

    /// Writes the next page.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn write(&mut self, blocks: &Region, values: &PageValues) -> Result<()> {
        let PageValues { least, greatest, missing, bins, .. } = values;
        let mut parts = vec![least.as_slice(), greatest, missing];
        parts.extend(bins.iter().flat_map(|bins| [bins.counts.as_slice(), &bins.checksums]));
        let tails = bins.iter().map(|bins| bins.tail_checksums.as_slice());
        parts.extend(tails.filter(|checksums| !checksums.is_empty()));
        for (array, elements) in self.arrays.iter().zip(&parts) {
            // The counts of bins have a further axis.
            let shape = array.shape()?;
            let whole = &shape[blocks.rank()..];
            let start = [blocks.start(), &vec![0; whole.len()]].concat();
            let region = Region::new(start, [blocks.shape(), whole].concat())?;
            array.write(&region.into(), Elements::Bytes(elements))?;
        }
        self.pages.push(page_fingerprint(&parts));
        Ok(())
    }

    /// Publishes the group.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn publish(self) -> Result<WrittenGroup> {
        let Self { staged, parent, name, arrays, pages } = self;
        drop(arrays);
        staged.publish()?;
        let stored_bytes = bytes_below(&*parent, &ObjectPath::parse(&name)?)?;
        Ok(WrittenGroup { name, pages, stored_bytes })
    }
}

/// The array of the bins of all elements while it is written: page by page, in place. Readers find by
/// checksums the blocks that are not those of their record.
pub(super) struct BinsWriter {
    parent: Arc<dyn Storage>,
    pub(super) name: String,
    numbers: Array,
    /// Positions and values of the tails, a row for each page.
    tails: Option<[Array; 2]>,
}

/// The bins of a new index.
pub(super) struct NewBins<'a> {
    pub(super) edges: &'a BinEdges,
    pub(super) data_type: DataType,
}

impl BinsWriter {
    /// Opens the array that a record names, in the array's present shape, or makes a new one.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn begin(
        directory: &IndexDirectory,
        present: Option<&IndexRecord>,
        new: &NewBins<'_>,
        grid: &ChunkGrid,
        paged: &ChunkGrid,
    ) -> Result<Self> {
        let parent = directory.storage(BINS)?;
        let has_tails = new.edges.has_tails();
        let rows = [paged.grid_shape(), &[tail_room(paged, grid)]].concat();
        if let Some(record) = present {
            let found = Self::opened(parent, &record.bins, has_tails)?;
            found.numbers.resize(grid.array_shape())?;
            for array in found.tails.iter().flatten() {
                array.resize(&rows)?;
            }
            return Ok(found);
        }
        let name = directory.next_name();
        directory.sidecar.remove_directory(&format!("{}/{BINS}/{name}", directory.path));
        let path = ObjectPath::parse(&name)?;
        let staged = StagedStore::create_in(&parent, &path, false, &Map::new(), writing())?;
        let pages = paged.chunk_shape().iter().zip(grid.chunk_shape());
        let shard: Vec<u64> =
            pages.map(|(blocks, length)| blocks.saturating_mul(*length)).collect();
        let described = json!({
            "shape": grid.array_shape(), "dtype": "uint8", "chunks": grid.chunk_shape(),
            "shards": shard, "codecs": ["zstd"], "fill_value": UNKNOWN_BIN,
        });
        let mut arrays = vec![(NUMBERS, described)];
        let [positions, values] = TAIL_NAMES;
        for (name, data_type) in [(positions, POSITION_TYPE), (values, new.data_type)] {
            if has_tails {
                arrays.push((name, tail_array(&rows, data_type)));
            }
        }
        for (name, described) in arrays {
            let new = NewArray::from_json(&described, &Limits::default())?;
            staged.store().create_array(&ObjectPath::parse(name)?, &new)?;
        }
        staged.publish()?;
        Self::opened(parent, &name, has_tails)
    }

    /// Opens the arrays of the group `name`.
    fn opened(parent: Arc<dyn Storage>, name: &str, has_tails: bool) -> Result<Self> {
        let store = Store::open(parent.within(&ObjectPath::parse(name)?)?, writing())?;
        let array = |name: &str| store.array(&ObjectPath::parse(name)?);
        let tails = match has_tails {
            true => Some([array(TAIL_NAMES[0])?, array(TAIL_NAMES[1])?]),
            false => None,
        };
        Ok(Self { numbers: array(NUMBERS)?, tails, parent, name: name.to_owned() })
    }

    /// Writes the numbers and tails of the page with these coordinates, unless the stored ones are
    /// right.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn write(&self, at: &[u64], page: &PageBins) -> Result<()> {
        if page.numbers.is_empty() {
            return Ok(());
        }
        self.numbers.write(&page.elements.clone().into(), Elements::Bytes(&page.numbers))?;
        let Some([positions, values]) = &self.tails else { return Ok(()) };
        // A page with too many of them has none: their checksums make them unknown.
        let Some(tails) = page.tails() else { return Ok(()) };
        let count = tails.len();
        if count > 0 {
            let start = [at, &[0]].concat();
            let shape = [vec![1; at.len()], vec![count]].concat();
            let row = Region::new(start, shape)?;
            positions.write(&row.clone().into(), Elements::Bytes(&tails.positions))?;
            values.write(&row.into(), Elements::Bytes(&tails.values))?;
        }
        Ok(())
    }

    /// The bytes of the array in storage.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn stored_bytes(&self) -> Result<u64> {
        bytes_below(&*self.parent, &ObjectPath::parse(&self.name)?)
    }
}

fn writing() -> OpenOptions {
    OpenOptions {
        writable: true,
        durability: Durability::Process,
        prefetch: Prefetch::Off,
        records: false,
        ..OpenOptions::default()
    }
}

/// Describes an array with a row for each page, of elements of tails.
fn tail_array(rows: &[u64], data_type: DataType) -> Value {
    let row = rows.last().copied().unwrap_or(1);
    let one = |length: u64| [vec![1; rows.len().saturating_sub(1)], vec![length]].concat();
    let chunk = row.min(TAIL_CHUNK);
    json!({
        "shape": rows, "dtype": data_type.to_string(), "chunks": one(chunk),
        "shards": one(row.div_ceil(chunk) * chunk), "codecs": ["zstd"], "fill_value": fill_of(data_type),
    })
}

/// The fill value of an array of values.
fn fill_of(data_type: DataType) -> Value {
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Value::from("NaN"),
        DataType::Bool => Value::from(false),
        _ => Value::from(0),
    }
}

/// Describes an array with an element for each block, or with `bins` elements.
fn described(data_type: DataType, paged: &ChunkGrid, bins: Option<u64>) -> Result<NewArray> {
    let fill = fill_of(data_type);
    let further: Vec<u64> = bins.into_iter().collect();
    let page = [paged.chunk_shape(), &further].concat();
    let shape = [paged.array_shape(), &further].concat();
    let described = json!({
        "shape": shape, "dtype": data_type.to_string(), "chunks": page,
        "shards": page, "codecs": ["zstd"], "fill_value": fill,
    });
    NewArray::from_json(&described, &Limits::default())
}

/// Returns the bytes of all files below a directory.
fn bytes_below(storage: &dyn Storage, directory: &ObjectPath) -> Result<u64> {
    let (mut bytes, mut directories) = (0, vec![directory.clone()]);
    while let Some(directory) = directories.pop() {
        for entry in storage.list(&directory)? {
            let path = directory.join(&entry.name)?;
            match entry.is_directory {
                true => directories.push(path),
                false => bytes += storage.stat(&path)?.size,
            }
        }
    }
    Ok(bytes)
}
