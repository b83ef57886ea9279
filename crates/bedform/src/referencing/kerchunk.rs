//! Sets of references as kerchunk's JSON, version 1.

use std::io::{self, Write};
use std::path::Path;

use bedform_format::metadata::ChunkKeys;
use bedform_storage::{
    Condition, Durability, Mode, ObjectWriter, StorageError, StorageErrorKind, WriteHint,
};

use super::document::key;
use super::table::set_coordinates;
use super::{ArrayChunks, ReferenceSet, SetArray};
use crate::error::{Error, ErrorKind, Result};
use crate::opening::storage_of;
use crate::options::OpenOptions;
use crate::publication::{exists, has_name, split_target};

/// Bytes that are handed to storage at a time.
const BUFFER_BYTES: usize = 1 << 20;
/// Chunks that are written between two polls for cancellation.
const WRITTEN_AT_ONCE: usize = 1 << 16;

impl ReferenceSet {
    /// Writes the set as JSON to the file `target`, which appears when it is complete and durable.
    /// With `replaces` it takes the place of a file.
    ///
    /// # Errors
    /// `Exists`; `NotFound` if the directory is missing; those of
    /// [`ReferenceSet::write_kerchunk`] and of storage.
    pub fn publish_kerchunk(&self, target: &Path, replaces: bool) -> Result<()> {
        let shown = target.to_string_lossy().into_owned();
        let (above, name) = split_target(target)?;
        let storage = storage_of(&above, Mode::ReadWrite, &OpenOptions::default())?;
        if !replaces && has_name(&*storage, &name)? {
            return Err(exists(&shown));
        }
        let object = storage.create(&name, Durability::Disk, WriteHint::default())?;
        let mut writer = BufferedObject { object, buffer: Vec::new() };
        self.write_kerchunk(&mut writer)?;
        writer.flush().map_err(failed)?;
        let condition = if replaces { Condition::None } else { Condition::Absent };
        match writer.object.publish(condition) {
            Err(error) if error.kind == StorageErrorKind::Exists => Err(exists(&shown)),
            published => Ok(published.map(drop)?),
        }
    }

    /// Writes the set as JSON to `writer`.
    ///
    /// # Errors
    /// `Io`; `Interrupted`.
    pub fn write_kerchunk(&self, writer: &mut dyn Write) -> Result<()> {
        let names: Vec<String> = self.files.iter().map(|file| quoted(&file.name)).collect();
        writer.write_all(b"{\"version\":1,\"refs\":{").map_err(failed)?;
        for (number, (key, document)) in self.documents_v2().iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(writer, "{comma}\n{}:{}", quoted(key), quoted(document)).map_err(failed)?;
        }
        for array in &self.arrays {
            write_chunks(array, &names, writer)?;
        }
        writer.write_all(b"\n}}\n").map_err(failed)
    }
}

fn write_chunks(array: &SetArray, names: &[String], writer: &mut dyn Write) -> Result<()> {
    let keys = ChunkKeys { prefixed: false, separator: '.' };
    let grid = array.grid();
    let mut at = vec![0; grid.len()];
    let name = |at: &[u64]| quoted(&key(&array.path, &keys.name(at)));
    match &array.chunks {
        ArrayChunks::Stored(bytes) if bytes.is_empty() => Ok(()),
        ArrayChunks::Stored(bytes) => {
            let encoded = bedform_format::base64::encode(bytes);
            write!(writer, ",\n{}:\"base64:{encoded}\"", name(&at)).map_err(failed)
        }
        ArrayChunks::Referenced(references) => {
            for part in references.chunks(WRITTEN_AT_ONCE) {
                crate::threads::workers::check_cancelled("writing the references was stopped")?;
                for found in part {
                    set_coordinates(&mut at, found.position, &grid);
                    let file = &names[found.file as usize];
                    let (key, offset, length) = (name(&at), found.offset, found.length);
                    write!(writer, ",\n{key}:[{file},{offset},{length}]").map_err(failed)?;
                }
            }
            Ok(())
        }
    }
}

/// An object of a storage as a writer.
struct BufferedObject<'s> {
    object: Box<dyn ObjectWriter + 's>,
    buffer: Vec<u8>,
}

impl Write for BufferedObject<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.object.append(&self.buffer).map_err(io::Error::other)?;
        self.buffer.clear();
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    match error.downcast::<StorageError>() {
        Ok(error) => error.into(),
        Err(error) => Error::new(ErrorKind::Io, error.to_string()),
    }
}

/// Returns a text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
