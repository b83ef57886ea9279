//! A joined variable: one array, whose elements lie in many files.

use std::sync::Arc;

use bedform_format::chunk_map::{ChunkMap, ForeignArray};
use bedform_geometry::{ChunkGrid, Selection};
use serde_json::{Map, Value};

use super::Archive;
use super::cut::cut;
use super::member::Member;
use crate::cache::Scope;
use crate::error::{Error, ErrorKind, Result};
use crate::foreign::ForeignFile;
use crate::foreign::attributes::{self, Style};
use crate::foreign::facts::{ForeignVariable, Sources, VariableFacts};
use crate::foreign::variable::{describe, layout_of};
use crate::plan::geometry::Geometry;
use crate::run::chunks::ChunkCache;
use crate::run::plan::{Piece, ReadPlan};
use crate::source::{Settled, StoredLayout};

/// A variable that many files have together.
#[derive(Debug)]
pub(crate) struct JoinedVariable {
    archive: Arc<Archive>,
    /// Its number among the joined variables.
    number: usize,
    map: Arc<ChunkMap>,
    position: usize,
    facts: VariableFacts,
}

/// What a read takes of one file.
struct Part<'a> {
    member: Member<'a>,
    geometry: Geometry,
    /// What its chunks have in common in the cache; nothing for those that no cache keeps.
    scope: Option<Arc<Scope>>,
}

impl JoinedVariable {
    /// Joined variable `number` of an archive, which is at `position` of the chunk map of `file`.
    ///
    /// # Errors
    /// `Unsupported` for one that only its native library reads.
    pub(super) fn new(
        file: &ForeignFile,
        archive: &Arc<Archive>,
        number: usize,
        position: usize,
    ) -> Result<Self> {
        let array = &file.map.arrays[position];
        let (data_type, first) = layout_of(array)?.map_err(|reason| {
            let text =
                format!("{:?} of {} is read by its own library: {reason}", array.path, file.name());
            Error::new(ErrorKind::Unsupported, text)
        })?;
        // As the first file cuts it, where one shape of chunks has to stand for all.
        let chunk_shape = archive.form(0, number).layout.grid.chunk_shape().to_vec();
        let grid = ChunkGrid::new(array.shape.clone(), chunk_shape)?;
        let per_object = grid.grid_shape().iter().map(|count| (*count).max(1)).collect();
        let codec = archive.form(0, number).layout.codec.clone();
        let layout = StoredLayout { grid, per_object, codec, ..first };
        let facts = VariableFacts {
            name: format!("{}/{}", file.name(), array.path),
            path: array.path.clone(),
            data_type,
            layout,
            scope: file.cache.scope(&array.path, 0),
            cache: file.cache.clone(),
            tuning: file.tuning.clone(),
            replicas: None,
            follows: file.follows.clone(),
        };
        let (archive, map) = (archive.clone(), file.map.clone());
        Ok(Self { archive, number, map, position, facts })
    }

    fn array(&self) -> &ForeignArray {
        &self.map.arrays[self.position]
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
        let parts = self.parts(selection).map_err(|error| error.at(&self.facts.path))?;
        let axis = self.archive.joined[self.number].axis;
        let cache = |scope| ChunkCache::new(&self.facts.cache, scope);
        let pieces = parts.iter().map(|Part { member, geometry, scope }| Piece {
            source: member,
            moment: &Settled,
            layout: &self.archive.form(member.file, self.number).layout,
            meaning: 0,
            geometry,
            cache: scope.as_ref().and_then(cache),
            begins: Some((axis, self.archive.starts[member.file])),
            cells_before: 0,
        });
        let mut pieces: Vec<Piece<'_>> = pieces.collect();
        Piece::number(&mut pieces);
        act(ReadPlan::new(&pieces, &self.facts.tuning))
    }

    fn parts(&self, selection: &Selection) -> Result<Vec<Part<'_>>> {
        selection.validate(self.facts.layout.grid.array_shape())?;
        let archive = &*self.archive;
        let axis = archive.joined[self.number].axis;
        let parts = cut(selection, axis, &archive.starts)?.into_iter().map(|(file, part)| {
            let form = archive.form(file, self.number);
            let StoredLayout { grid, per_object, item_size, codec, .. } = &form.layout;
            let geometry = part.geometry(grid, per_object, *item_size)?;
            let scope = (!codec.is_raw()).then(|| {
                let path = format!("{}:{}", archive.file_name(file), self.facts.path);
                self.facts.cache.scope(&path, form.decoding)
            });
            Ok(Part { member: Member { archive, file, variable: self.number }, geometry, scope })
        });
        parts.collect()
    }

    /// True if some file has the variable as its elements, in chunks of more than `bytes` bytes.
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

    fn attributes(&self) -> Map<String, Value> {
        attributes::variable_attributes(self.array(), Style::of(&self.map))
    }

    fn dimension_names(&self) -> Vec<Option<String>> {
        attributes::dimension_names(self.array()).into_iter().map(Some).collect()
    }

    fn describe(&self) -> Value {
        describe(self.array(), &self.facts, Style::of(&self.map))
    }
}
