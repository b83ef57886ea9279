//! Level one of an index as a Zarr group in the sidecar, and the record that names it.

use std::sync::Arc;

use bedform_format::{DataType, Limits, ObjectPath};
use bedform_geometry::{ChunkGrid, Region};
use bedform_storage::{Durability, Lock, Mode, Storage};
use serde_json::{Map, Value, json};

use super::pages::PageValues;
use crate::array::{Array, Elements};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{
    ARRAY_NAMES, CATALOGUE, IndexRecord, LEVEL_ONE, MISSING_TYPE, directory_of, page_fingerprint,
};
use crate::opening::storage_in_sidecar;
use crate::options::{OpenOptions, Prefetch};
use crate::sidecar::{INDEX, Sidecar};
use crate::store::StagedStore;
use crate::zarr::NewArray;

/// Digits of the name of a group of level one.
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

    /// Opens the directory of the groups of level one, and makes it if it is missing.
    fn storage(&self) -> Result<Arc<dyn Storage>> {
        let path = format!("{}/{LEVEL_ONE}", self.path);
        storage_in_sidecar(&self.sidecar, &path, Mode::ReadWrite, &OpenOptions::default())
    }

    /// Locks the directory, so that one process at a time builds the index.
    ///
    /// # Errors
    /// `Conflict` if another process holds the lock; errors of storage.
    pub(super) fn locked(&self) -> Result<Box<dyn Lock>> {
        let lock = self.storage().and_then(|_| self.sidecar.try_lock(&self.path));
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
        let groups = format!("{}/{LEVEL_ONE}", self.path);
        for entry in self.sidecar.entries(&groups) {
            if entry.is_directory && is_made_here(&entry.name) && entry.name != record.level_one {
                self.sidecar.remove_directory(&format!("{groups}/{}", entry.name));
            }
        }
        self.sidecar.sweep(&groups);
        self.sidecar.open_to_readers(&[INDEX]);
        Ok(())
    }
}

/// True for the name of a group of level one.
fn is_made_here(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|digit| digit.is_ascii_digit())
}

/// The arrays of level one while they are written.
pub(super) struct LevelOneWriter {
    staged: StagedStore,
    parent: Arc<dyn Storage>,
    name: String,
    arrays: Vec<Array>,
    pages: Vec<u128>,
}

/// A published group of level one.
pub(super) struct WrittenLevelOne {
    pub(super) name: String,
    /// The fingerprint of each page.
    pub(super) pages: Vec<u128>,
    pub(super) stored_bytes: u64,
}

impl LevelOneWriter {
    /// Begins a group whose arrays have an element for each block, and a chunk for each page.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn begin(
        directory: &IndexDirectory,
        data_type: DataType,
        paged: &ChunkGrid,
    ) -> Result<Self> {
        let parent = directory.storage()?;
        let number = directory.sidecar.last_number(&directory.list()).saturating_add(1);
        let name = format!("{number:0DIGITS$}");
        // No record names it: an interrupted process has left it.
        let left = format!("{}/{LEVEL_ONE}/{name}", directory.path);
        directory.sidecar.remove_directory(&left);
        let options = OpenOptions {
            writable: true,
            durability: Durability::Process,
            prefetch: Prefetch::Off,
            records: false,
            ..OpenOptions::default()
        };
        let path = ObjectPath::parse(&name)?;
        let staged = StagedStore::create_in(&parent, &path, false, &Map::new(), options)?;
        let types = [data_type, data_type, MISSING_TYPE];
        let mut arrays = Vec::with_capacity(types.len());
        for (name, data_type) in ARRAY_NAMES.iter().zip(types) {
            let new = described(data_type, paged)?;
            arrays.push(staged.store().create_array(&ObjectPath::parse(name)?, &new)?);
        }
        Ok(Self { staged, parent, name, arrays, pages: Vec::new() })
    }

    /// Writes the next page.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn write(&mut self, blocks: &Region, values: &PageValues) -> Result<()> {
        let PageValues { least, greatest, missing, .. } = values;
        for (array, elements) in self.arrays.iter().zip([least, greatest, missing]) {
            array.write(&blocks.clone().into(), Elements::Bytes(elements))?;
        }
        self.pages.push(page_fingerprint(least, greatest, missing));
        Ok(())
    }

    /// Publishes the group.
    ///
    /// # Errors
    /// Those of storage.
    pub(super) fn publish(self) -> Result<WrittenLevelOne> {
        let Self { staged, parent, name, arrays, pages } = self;
        drop(arrays);
        staged.publish()?;
        let stored_bytes = bytes_below(&*parent, &ObjectPath::parse(&name)?)?;
        Ok(WrittenLevelOne { name, pages, stored_bytes })
    }
}

/// Describes an array of level one.
fn described(data_type: DataType, paged: &ChunkGrid) -> Result<NewArray> {
    let fill = match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Value::from("NaN"),
        DataType::Bool => Value::from(false),
        _ => Value::from(0),
    };
    let page = paged.chunk_shape();
    let described = json!({
        "shape": paged.array_shape(), "dtype": data_type.to_string(), "chunks": page,
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
