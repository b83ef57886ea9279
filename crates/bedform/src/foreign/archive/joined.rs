//! A joined variable: one array, whose elements lie in many files.

use std::collections::BTreeSet;
use std::sync::Arc;

use bedform_format::chunk_map::{ChunkMap, ForeignArray, SourceVersion};
use bedform_geometry::{ChunkGrid, PlacedAxis, Points, Positions, Selection};

use super::cut::{PartsByFile, cut, cut_part, cut_points, file_of, files_at, files_of_selection};
use super::meaning::time_meaning;
use super::member::ArchiveMember;
use super::{Archive, VariableForm};
use crate::cache::Scope;
use crate::error::Result;
use crate::foreign::ForeignFile;
use crate::foreign::facts::{ForeignVariable, Sources, VariableFacts};
use crate::foreign::source_version;
use crate::plan::geometry::Geometry;
use crate::run::chunks::ChunkCache;
use crate::run::plan::{PlanPiece, ReadPlan};
use crate::run::read_source::ReadSource;
use crate::source::StoredLayout;

/// A variable whose elements lie in many files.
#[derive(Debug)]
pub(crate) struct JoinedVariable {
    archive: Arc<Archive>,
    /// The variable's number among the joined variables.
    number: usize,
    map: Arc<ChunkMap>,
    position: usize,
    facts: VariableFacts,
    /// The joined dimension, and for times their units.
    key: String,
}

/// A file that a read touches.
#[derive(Debug)]
pub(crate) struct FileRead {
    file: usize,
    /// The common part of its chunks' cache keys; `None` for raw chunks, which no cache keeps.
    scope: Option<Arc<Scope>>,
}

/// The files that a read touches, each with the geometry of its part.
type FileParts = Vec<(FileRead, Geometry)>;

impl JoinedVariable {
    /// Makes joined variable `number` of an archive, which is at `position` of the chunk map of
    /// `file`.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape that no array has.
    pub(super) fn new(
        file: &ForeignFile,
        archive: &Arc<Archive>,
        number: usize,
        position: usize,
    ) -> Result<Self> {
        let array = &file.map.arrays[position];
        // The chunks of the first file stand for all where one chunk shape is needed.
        let form = archive.form(0, number);
        let VariableForm { data_type, layout, .. } = form;
        let grid = ChunkGrid::new(array.shape.clone(), layout.grid.chunk_shape().to_vec())?;
        let per_object = grid.grid_shape().iter().map(|count| (*count).max(1)).collect();
        let layout = StoredLayout { grid, per_object, ..layout.clone() };
        let scope = file.cache.scope(&array.path, 0);
        let facts = VariableFacts::of_file(file, &form.array, (*data_type, layout), scope);
        let key = match time_meaning(&archive.form(0, number).array) {
            Some(units) => format!("{} of {units}", archive.dimension),
            None => archive.dimension.clone(),
        };
        let (archive, map) = (archive.clone(), file.map.clone());
        Ok(Self { archive, number, map, position, facts, key })
    }

    /// Calls `act` with the plan that reads `selection`: a piece for each file that it touches.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array; those of `act`.
    pub(crate) fn with_plan<T>(
        &self,
        selection: &Selection,
        act: impl FnOnce(ReadPlan<'_>) -> Result<T>,
    ) -> Result<T> {
        let cut = || {
            selection.validate(self.facts.layout.grid.array_shape())?;
            self.file_parts(cut(selection, self.axis(), &self.archive.starts)?)
        };
        let parts = cut().map_err(|error| error.at(&self.facts.path))?;
        let members: Vec<ArchiveMember<'_>> =
            parts.iter().map(|(read, _)| self.member(read)).collect();
        let pieces = parts
            .iter()
            .zip(&members)
            .map(|((read, geometry), member)| self.read_source(read, member).piece(geometry));
        let mut pieces: Vec<PlanPiece<'_>> = pieces.collect();
        PlanPiece::number(&mut pieces);
        act(ReadPlan::new(&pieces, &self.facts.tuning))
    }

    /// Cuts a part of a read into one geometry for each file. Its elements fill a box of a result
    /// of `result_shape`.
    ///
    /// # Errors
    /// `LimitExceeded` for a part that is too large to plan.
    pub(crate) fn parts_of(&self, part: &[PlacedAxis], result_shape: &[u64]) -> Result<FileParts> {
        self.file_parts(cut_part(part, result_shape, self.axis(), &self.archive.starts)?)
    }

    /// As [`JoinedVariable::parts_of`], for points, each of which has its place in the result.
    ///
    /// # Errors
    /// As [`JoinedVariable::parts_of`].
    pub(crate) fn parts_of_points(&self, points: &Points, results: &[u64]) -> Result<FileParts> {
        #[allow(clippy::cast_possible_truncation)]
        let place_of = |number: u64| results[number as usize];
        self.file_parts(cut_points(points, place_of, self.axis(), &self.archive.starts)?)
    }

    /// Returns the source of a read's part in one file.
    pub(crate) fn member(&self, read: &FileRead) -> ArchiveMember<'_> {
        ArchiveMember { archive: &self.archive, file: read.file, variable: self.number }
    }

    /// Returns the variable in one file as reads see it; `member` is the file's source.
    pub(crate) fn read_source<'p>(
        &'p self,
        read: &'p FileRead,
        member: &'p ArchiveMember<'p>,
    ) -> ReadSource<'p> {
        let layout = &self.archive.form(read.file, self.number).layout;
        let cache = |scope| ChunkCache::new(&self.facts.cache, scope);
        ReadSource {
            cache: read.scope.as_ref().and_then(cache),
            begins: Some((self.axis(), self.archive.starts[read.file])),
            ..ReadSource::settled(member, layout, &self.facts.tuning)
        }
    }

    /// Returns the axis along which the files are joined.
    pub(crate) fn axis(&self) -> usize {
        self.archive.joined[self.number].axis
    }

    /// Returns the text that, beside the files, decides the elements. It names the joined
    /// dimension, and for times the units of the first file, to which other files' times are
    /// converted.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if every read that replicas serve checks whether files have changed.
    pub(crate) fn asks_again(&self) -> bool {
        self.archive.open.asks_again() || !self.archive.places.storage(0).is_remote()
    }

    /// Returns the stretches of the joined axis, first position and end, of the files that have
    /// some of the positions.
    pub(crate) fn stretches(&self, positions: &Positions) -> Vec<(u64, u64)> {
        self.stretches_of_files(files_at(positions, &self.archive.starts))
    }

    /// Returns the stretches of the files that a selection touches.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub(crate) fn stretches_of(&self, selection: &Selection) -> Result<Vec<(u64, u64)>> {
        selection.validate(self.facts.layout.grid.array_shape())?;
        let files = files_of_selection(selection, self.axis(), &self.archive.starts)?;
        Ok(self.stretches_of_files(files))
    }

    fn stretches_of_files(&self, files: BTreeSet<usize>) -> Vec<(u64, u64)> {
        let starts = &self.archive.starts;
        files.into_iter().map(|file| (starts[file], starts[file + 1])).collect()
    }

    /// Returns the file that has exactly this stretch; `None` if there is none.
    fn file_at(&self, (start, end): (u64, u64)) -> Option<usize> {
        let starts = &self.archive.starts;
        let file = file_of(starts, start);
        (starts.get(file) == Some(&start) && starts.get(file + 1) == Some(&end)).then_some(file)
    }

    /// Returns the state of the file that has exactly this stretch; `None` if there is none. With
    /// `anew` the file is checked.
    ///
    /// # Errors
    /// `NotFound` for a file that is gone; those of storage.
    pub(crate) fn version(&self, stretch: (u64, u64), anew: bool) -> Result<Option<SourceVersion>> {
        let Some(file) = self.file_at(stretch) else { return Ok(None) };
        let archive = &self.archive;
        let known = &archive.files[file].source;
        if !anew {
            return Ok(Some(known.clone()));
        }
        let place = &archive.places.files[file];
        let found = source_version(&archive.places.storage(file).stat(&place.name)?);
        // A changed file has other elements than the archive knows, perhaps another number of them.
        Ok((found == *known).then_some(found))
    }

    fn file_parts(&self, parts: PartsByFile) -> Result<FileParts> {
        let archive = &*self.archive;
        let parts = parts.into_iter().map(|(file, part)| {
            let form = archive.form(file, self.number);
            let StoredLayout { grid, per_object, item_size, codec, .. } = &form.layout;
            let geometry = part.geometry(grid, per_object, *item_size)?;
            let scope = (!codec.is_raw()).then(|| {
                let path = format!("{}:{}", archive.file_name(file), self.facts.path);
                self.facts.cache.scope(&path, form.decoding)
            });
            Ok((FileRead { file, scope }, geometry))
        });
        parts.collect()
    }

    /// Returns true if some file has raw chunks of the variable of more than `bytes` bytes.
    pub(crate) fn has_large_raw_chunks(&self, bytes: u64) -> bool {
        let of_variable =
            self.archive.forms.iter().filter(|form| form.array.path == self.facts.path);
        let mut codecs = of_variable.map(|form| &form.layout.codec);
        codecs.any(|codec| codec.is_raw() && codec.decoded_bytes() as u64 > bytes)
    }
}

impl ForeignVariable for JoinedVariable {
    fn facts(&self) -> &VariableFacts {
        &self.facts
    }

    fn sources(&self) -> Sources<'_> {
        Sources::Joined(self)
    }

    fn described(&self) -> Option<(&ChunkMap, &ForeignArray)> {
        Some((&self.map, &self.map.arrays[self.position]))
    }
}
