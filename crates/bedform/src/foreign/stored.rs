//! The stored blocks of variables, file by file, for work that takes chunks as they are encoded.

use std::path::PathBuf;
use std::sync::Arc;

use bedform_format::chunk_map::{ChunkTable, ForeignArray, ForeignStorage, SourceVersion};

use super::ForeignFile;
use crate::error::{Error, ErrorKind, Result};
use crate::options::ProgressCallback;

/// A variable with the blocks of all its files.
#[derive(Debug)]
pub(crate) struct StoredVariable<'f> {
    /// The variable as a reader sees it, with the shape of all files.
    pub(crate) array: &'f ForeignArray,
    /// The axis along which files are joined; `None` for a variable of one file.
    pub(crate) axis: Option<usize>,
    /// Its parts, in the order of the files.
    pub(crate) parts: Vec<StoredPart<'f>>,
}

/// The part of a variable that one file has.
#[derive(Debug)]
pub(crate) struct StoredPart<'f> {
    /// Index of the file: see [`ForeignFile::source_files`].
    pub(crate) file: usize,
    /// The first position of the part along the joined axis.
    pub(crate) start: u64,
    /// The variable in its own file; the locations of an archive's files are in `blocks` alone.
    pub(crate) array: &'f ForeignArray,
    pub(crate) blocks: StoredBlocks,
}

/// The locations of the bytes of a variable in one file.
#[derive(Debug, Clone)]
pub(crate) enum StoredBlocks {
    /// Never written: every element has the fill value.
    Absent,
    /// No extent of the file: the elements lie in its metadata, or were converted.
    Inside,
    /// The offset of the first byte of a variable without chunks.
    At(u64),
    /// The chunk table.
    Table(Arc<ChunkTable>),
}

/// A file of the source, and its state when it was opened.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The path, with links resolved; `None` for a file that was opened alone.
    pub path: Option<PathBuf>,
    /// The state of the file.
    pub version: SourceVersion,
}

impl ForeignFile {
    /// Returns the files of the source: one, or those of an archive in their joined order.
    pub fn source_files(&self) -> Vec<SourceFile> {
        match &self.archive {
            Some(archive) => archive.source_files(),
            None => vec![SourceFile { path: None, version: self.map.source.clone() }],
        }
    }

    /// Returns the variables at `paths` with their stored blocks. Chunk tables that are not known
    /// yet are read, by several threads; `progress` receives the files done and in all.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable that only its native library reads; `Conflict` if a
    /// file has changed; those of the parser and of storage; `Interrupted`.
    pub(crate) fn stored_variables(
        &self,
        paths: &[&str],
        progress: ProgressCallback<'_>,
    ) -> Result<Vec<StoredVariable<'_>>> {
        let mut found = Vec::with_capacity(paths.len());
        for path in paths {
            let array = &self.map.arrays[self.position(path)?];
            found.push(StoredVariable { array, axis: None, parts: Vec::new() });
        }
        if let Some(archive) = &self.archive {
            archive.add_parts(&mut found, progress)?;
        }
        for variable in found.iter_mut().filter(|variable| variable.axis.is_none()) {
            let own = self.file_of(&variable.array.path)?;
            let position = own.position(&variable.array.path)?;
            let (array, blocks) = (&own.map.arrays[position], own.stored_blocks(position)?);
            variable.parts.push(StoredPart { file: 0, start: 0, array, blocks });
        }
        Ok(found)
    }

    /// Returns the blocks of the variable at `position` of a single file's map.
    fn stored_blocks(&self, position: usize) -> Result<StoredBlocks> {
        let array = &self.map.arrays[position];
        Ok(match &array.storage {
            ForeignStorage::Empty => StoredBlocks::Absent,
            ForeignStorage::Compact { .. } => StoredBlocks::Inside,
            ForeignStorage::Contiguous { offset, .. } | ForeignStorage::Records { offset, .. } => {
                StoredBlocks::At(*offset)
            }
            ForeignStorage::Chunked { chunks, .. } => {
                let object = self.object(true)?;
                let table = self.tables.of(&self.map, position, &self.reader(&*object));
                let table = table.map_err(|error| self.located(error))?;
                StoredBlocks::Table(table.unwrap_or_else(|| Arc::new(chunks.clone())))
            }
            ForeignStorage::Native { reason } => {
                let text = format!("{:?} is read by its own library: {reason}", array.path);
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            _ => {
                let text = format!("{:?} has a storage that is not known", array.path);
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        })
    }
}
