//! A variable of a foreign file: its stored form, and its chunks by the chunk map.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bedform_codec::ChunkCodec;
use bedform_format::DataType;
use bedform_format::chunk_map::{
    ChunkMap, ForeignArray as MapArray, ForeignStorage, SourceVersion,
};
use bedform_format::metadata::FillValue;
use bedform_geometry::ChunkGrid;
use bedform_storage::{Object, Version};

use super::ForeignFile;
use super::chunks::{TableHandle, cell_of};
use super::facts::{ForeignVariable, Sources, VariableFacts};
use super::inline::CompactObject;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::opening::Need;
use crate::source::{OpenCell, PendingCell, Source, StoredLayout};

/// A variable of a foreign file. Cheap to clone; safe to share between threads.
#[derive(Debug, Clone)]
pub(crate) struct FileVariable {
    file: ForeignFile,
    position: usize,
    facts: VariableFacts,
}

impl FileVariable {
    pub(super) fn new(file: ForeignFile, position: usize) -> Result<Self> {
        let map = file.map.clone();
        let array = &map.arrays[position];
        let native = |reason: &str| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{:?} of {} is read by its own library: {reason}", array.path, file.name()),
            )
        };
        let (data_type, layout) = match layout_of(array)? {
            Ok(found) => found,
            Err(reason) => return Err(native(reason)),
        };
        let path = format!("{}:{}", file.path, array.path);
        let scope = file.cache.scope(&path, decoding(array, layout.grid.chunk_shape()));
        let facts = VariableFacts::of_file(&file, array, (data_type, layout), scope);
        Ok(Self { facts, position, file })
    }

    fn array(&self) -> &MapArray {
        &self.file.map.arrays[self.position]
    }
}

/// Returns the type of a variable's elements and their stored form, or the reason why only the
/// library of the format reads them.
///
/// # Errors
/// `InvalidArgument` for a shape that no array has.
pub(super) fn layout_of(
    array: &MapArray,
) -> Result<std::result::Result<(DataType, StoredLayout), &str>> {
    if let ForeignStorage::Native { reason } = &array.storage {
        return Ok(Err(reason));
    }
    let sized = array.data_type.and_then(|data_type| Some((data_type, data_type.item_size()?)));
    let Some((data_type, item_size)) = sized else {
        return Ok(Err("it has no type of fixed size"));
    };
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
    let layout = StoredLayout {
        per_object: at_least_one(grid.grid_shape()),
        codec: ChunkCodec::new(&array.codec_chain(), data_type, &chunk_shape),
        fill: FillValue::Bytes(array.fill_element().unwrap_or_else(|| vec![0; item_size])),
        item_size,
        grid,
    };
    Ok(Ok((data_type, layout)))
}

impl ForeignVariable for FileVariable {
    fn facts(&self) -> &VariableFacts {
        &self.facts
    }

    fn sources(&self) -> Sources<'_> {
        Sources::One(self.facts.read_source(self))
    }

    fn state(&self) -> Option<&SourceVersion> {
        Some(&self.file.map.source)
    }

    fn is_as_opened(&self, anew: bool) -> Result<bool> {
        self.file.is_as_opened(anew)
    }

    fn described(&self) -> Option<(&ChunkMap, &MapArray)> {
        Some((&self.file.map, self.array()))
    }
}

/// Returns a hash of everything, beside the bytes of the file, that decides the chunks of the
/// variable.
pub(super) fn decoding(array: &MapArray, chunk_shape: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = format!("{:?} {chunk_shape:?} {:?}", array.data_type, array.codec_chain());
    text.hash(&mut hasher);
    hasher.finish()
}

impl Source for FileVariable {
    fn open(
        &self,
        _: &[u64],
        _: Need,
        _: Option<PendingCell>,
        _: &dyn Fn(),
    ) -> Result<Option<OpenCell>> {
        let mut table = None;
        let object: Arc<dyn Object> = match &self.array().storage {
            ForeignStorage::Empty => return Ok(None),
            ForeignStorage::Compact { data } => Arc::new(CompactObject::new(data.clone())),
            _ => {
                let has_chunks = matches!(&self.array().storage, ForeignStorage::Chunked { .. });
                let object = self.file.object(has_chunks)?;
                let reader = self.file.reader(&*object);
                let found = self.file.tables.of(&self.file.map, self.position, &reader);
                table = found.map_err(|error| self.file.located(error))?;
                object
            }
        };
        let table = || match table {
            Some(table) => TableHandle::Own(table),
            None => TableHandle::OfMap(self.file.map.clone(), self.position),
        };
        Ok(Some(cell_of(object, &self.array().storage, None, table)))
    }

    fn is_still(&self, _: &[u64], version: Option<&Version>) -> Result<bool> {
        match (&self.array().storage, version) {
            // These bytes lie in the chunk map, which does not change.
            (ForeignStorage::Empty | ForeignStorage::Compact { .. }, _) => Ok(true),
            (_, Some(version)) => self.file.is_still(version),
            (_, None) => Ok(false),
        }
    }

    fn object_name(&self, _: &[u64]) -> String {
        self.facts.name.clone()
    }

    fn place_name(&self) -> String {
        self.file.own_name()
    }

    fn needs_lookups(&self) -> bool {
        false
    }
}
