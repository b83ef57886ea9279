//! Reads of a selection into a buffer, and their explanation and price.

use std::sync::{Mutex, PoisonError};

use bedform_codec::ChunkCodec;
use bedform_format::CodecChain;
use bedform_geometry::{AxisRange, AxisSelection, ChunkGrid, Selection};
use bedform_machine::Workload;
use bedform_storage::Profile;

use super::Array;
use super::known::{ArrayAtRead, ArrayRead};
use super::visit::VisitedElements;
use crate::error::{Error, Result};
use crate::foreign::{ForeignFile, StoredTexts};
use crate::plan::copy::{Copy, CopyTarget};
use crate::plan::price::{Cost, Price};
use crate::plan::tuning::Tuning;
use crate::run::deliver::Deliver;
use crate::run::execute::execute;
use crate::run::explain::{SeenChunks, explain, priced};
use crate::run::plan::ReadPlan;
use crate::run::workload::read_workload;
use crate::run::{Explanation, ReadStatistics, ReadsExplanation};
use crate::source::StoredLayout;

/// The most objects that are opened to compute the stored size of an array.
const OBJECTS_OPENED_MAX: u64 = 1 << 12;

impl Array {
    /// The bytes of the result of a read of `selection`.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array.
    pub fn result_bytes(&self, selection: &Selection) -> Result<u64> {
        Ok(self.known()?.geometry(selection)?.result_bytes())
    }

    /// Reads `selection` into `buffer`, C order, elements in the machine's byte order.
    ///
    /// A call that is cancelled ([`cancelled_by`](bedform_storage::cancelled_by)) ends with
    /// `Interrupted`.
    ///
    /// # Errors
    /// `OutOfBounds` and `InvalidArgument` by the selection or the buffer's size; `Corrupt` if
    /// stored bytes are damaged; those of storage. The contents of `buffer` are then unspecified.
    pub fn read(&self, selection: &Selection, buffer: &mut [u8]) -> Result<ReadStatistics> {
        self.read_known(&self.known()?, selection, buffer)
    }

    /// As [`Array::read`], with the state of the last lookup: for a caller that has just asked for
    /// the shape.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_as_known(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
    ) -> Result<ReadStatistics> {
        self.read_known(&self.last_known(), selection, buffer)
    }

    /// As [`Array::read_as_known`], for a caller that can also take a buffer. Elements that were
    /// read ahead are returned in the buffer that they were read into, and `buffer` stays
    /// unchanged.
    /// # Errors
    /// As [`Array::read`].
    pub fn read_or_take(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
    ) -> Result<(ReadStatistics, Option<Vec<u8>>)> {
        let known = self.last_known();
        self.check_no_text(&known)?;
        let read = ArrayRead::new(selection, Deliver::Buffer(CopyTarget::new(buffer)));
        let outcome = known.read(ArrayRead { takes_buffers: true, ..read })?;
        Ok((outcome.statistics, outcome.taken))
    }

    /// As [`Array::read_as_known`], for a part of a pass over the array that reads `pass_bytes`: it
    /// is neither followed nor recorded, and its chunks are cached only if those of the whole pass
    /// have room.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub(crate) fn read_part(
        &self,
        selection: &Selection,
        buffer: &mut [u8],
        pass_bytes: u64,
    ) -> Result<()> {
        let known = self.last_known();
        self.check_no_text(&known)?;
        let read = ArrayRead::new(selection, Deliver::Buffer(CopyTarget::new(buffer)));
        known.read(ArrayRead { pass_bytes: Some(pass_bytes), ..read }).map(drop)
    }

    /// Calls `act` with the plan that makes `copies` from an array of one axis, all as of one moment.
    /// The offsets in the source are bytes from the first element, as if the array were raw; they
    /// fill `bytes` bytes of the result. `act` is called again while the data move on meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` for an array of another rank; as [`Array::read`], and those of `act`.
    pub(crate) fn with_row_plan(
        &self,
        copies: Vec<Copy>,
        bytes: u64,
        act: &mut dyn FnMut(ReadPlan<'_>) -> Result<()>,
    ) -> Result<()> {
        self.known()?.with_row_plan(copies, bytes, act)
    }

    /// As [`Array::read`], for a table of the engine's own: the read is not recorded, and follows no
    /// pattern.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub(crate) fn read_unrecorded(&self, selection: &Selection, buffer: &mut [u8]) -> Result<()> {
        self.known()?.with_plan(selection, |plan| {
            if plan.result_bytes() != buffer.len() as u64 {
                return Err(Error::invalid("a buffer of another size").at(self.name()));
            }
            execute(plan, Deliver::Buffer(CopyTarget::new(buffer))).map(drop)
        })
    }

    /// Reads the element at `position`, which may count from the end, in the machine's byte order.
    /// `None` if the array has no such element, or holds text. Does the same as [`Array::read`],
    /// for callers that read single elements in a loop.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_element(&self, position: &[i64]) -> Result<Option<(Vec<u8>, ReadStatistics)>> {
        // Rank and type never change, so the array is not looked up again for a position of the
        // wrong rank.
        let last = self.last_known();
        if position.len() != last.layout().grid.array_shape().len() || last.layout().is_text() {
            return Ok(None);
        }
        let known = self.known()?;
        let shape = known.layout().grid.array_shape();
        let mut axes = Vec::with_capacity(shape.len());
        for (&at, &length) in position.iter().zip(shape) {
            let from_end = if at < 0 { length } else { 0 };
            match from_end.checked_add_signed(at) {
                Some(at) if at < length => {
                    axes.push(AxisSelection::Range(AxisRange::new(at, 1, 1)?));
                }
                _ => return Ok(None),
            }
        }
        let mut element = vec![0; known.layout().item_size];
        let selection = Selection::Orthogonal(axes);
        let statistics = self.read_known(&known, &selection, &mut element)?;
        Ok(Some((element, statistics)))
    }

    pub(super) fn read_known(
        &self,
        known: &ArrayAtRead<'_>,
        selection: &Selection,
        buffer: &mut [u8],
    ) -> Result<ReadStatistics> {
        self.check_no_text(known)?;
        let read = ArrayRead::new(selection, Deliver::Buffer(CopyTarget::new(buffer)));
        Ok(known.read(read)?.statistics)
    }

    fn check_no_text(&self, known: &ArrayAtRead<'_>) -> Result<()> {
        match known.layout().is_text() {
            true => Err(Error::invalid(format!("{} holds text; read it as text", self.name()))),
            false => Ok(()),
        }
    }

    /// Explains a read of `selection` without reading chunks: its objects, requests and bytes, the
    /// decoding, and its time by the profile. Opens the objects and reads their indexes.
    ///
    /// # Errors
    /// As a read, except errors that only show in the chunks.
    pub fn explain(&self, selection: &Selection) -> Result<Explanation> {
        let known = self.known()?;
        let explained = known.with_best_plan(selection, |plan, _| explain(self.name(), plan))?;
        let redirected = known.redirected_read(selection)?;
        let followed = known.followed_reads(selection);
        Ok(Explanation { followed, redirected, ..explained })
    }

    /// Explains the reads of a computation: the sums of their explanations, by file or store. With
    /// `in_turn` a read finds chunks of earlier ones in the cache, which is empty at first.
    ///
    /// # Errors
    /// As [`Array::explain`].
    pub fn explain_reads(
        &self,
        selections: &[Selection],
        in_turn: bool,
    ) -> Result<ReadsExplanation> {
        let known = self.known()?;
        let cache_bytes = known.cache_limit();
        let mut sum = ReadsExplanation { cache_bytes, ..Default::default() };
        let mut seen = in_turn.then(|| SeenChunks::new(cache_bytes));
        for selection in selections {
            sum += known
                .with_best_plan(selection, |plan, _| ReadsExplanation::of(plan, seen.as_mut()))?;
        }
        Ok(sum)
    }

    /// Predicts the price of a read of `selection` by its geometry alone, without I/O.
    ///
    /// # Errors
    /// `OutOfBounds`, `InvalidArgument` if the selection does not fit the array; those of looking
    /// up the array again.
    pub fn estimate(&self, selection: &Selection) -> Result<Price> {
        self.known()?.with_plan(selection, |plan| Ok(plan.estimate()))
    }

    /// The price of a read of `selection` from the array itself, without replicas: the same as in
    /// [`Array::explain`].
    ///
    /// # Errors
    /// As [`Array::explain`].
    pub fn price(&self, selection: &Selection) -> Result<Price> {
        self.known()?.with_plan(selection, |plan| priced(plan).map(|(_, price)| price))
    }

    /// The work and the price of a read of `selection` from the array itself, by other limits.
    ///
    /// # Errors
    /// As [`Array::explain`].
    pub(crate) fn priced_by(
        &self,
        selection: &Selection,
        tuning: &Tuning,
    ) -> Result<(Cost, Price)> {
        self.known()?.with_plan(selection, |plan| priced(ReadPlan::new(plan.pieces(), tuning)))
    }

    /// The limits by which reads of the array are planned, with prices of `profile`.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn tuning_by(&self, profile: &Profile) -> Result<Tuning> {
        Ok(self.known()?.tuning().priced_by(profile))
    }

    /// The stored form of the array in chunks of another shape and codecs.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape that no array has; those of looking up the array again.
    pub(crate) fn layout_in(&self, chunks: &[u64], chain: &CodecChain) -> Result<StoredLayout> {
        let data_type = self.data_type()?;
        let known = self.known()?;
        let own = known.layout();
        let grid = ChunkGrid::new(own.grid.array_shape().to_vec(), chunks.to_vec())?;
        Ok(StoredLayout {
            per_object: grid.grid_shape().iter().map(|count| (*count).max(1)).collect(),
            codec: ChunkCodec::new(chain, data_type, chunks),
            item_size: own.item_size,
            fill: own.fill.clone(),
            grid,
        })
    }

    /// The chunk shape and the codecs of the array.
    ///
    /// # Errors
    /// Those of looking up the array again.
    pub(crate) fn stored_form(&self) -> Result<(Vec<u64>, CodecChain)> {
        let known = self.known()?;
        let layout = known.layout();
        Ok((layout.grid.chunk_shape().to_vec(), layout.codec.chain().clone()))
    }

    /// The bytes of all chunks as they are stored, computed from indexes alone.
    ///
    /// # Errors
    /// As [`Array::explain`].
    pub fn stored_bytes(&self) -> Result<u64> {
        let known = self.known()?;
        let all = Selection::all(known.layout().grid.array_shape());
        known.with_plan(&all, |plan| priced(plan).map(|(cost, _)| cost.bytes))
    }

    /// The encoded bytes per byte of elements in stored chunks. `None` if no chunk is stored, or if
    /// more than 4,096 objects would have to be opened.
    ///
    /// # Errors
    /// As [`Array::explain`].
    #[allow(clippy::cast_precision_loss)]
    pub fn stored_size(&self) -> Result<Option<f64>> {
        let known = self.known()?;
        let grid = &known.layout().grid;
        let all = Selection::all(grid.array_shape());
        known.with_plan(&all, |plan| {
            if plan.cell_count() > OBJECTS_OPENED_MAX {
                return Ok(None);
            }
            let (cost, _) = priced(plan)?;
            let chunks_bytes = grid.chunk_count().unwrap_or(u64::MAX) as f64
                * known.layout().codec.decoded_bytes() as f64;
            // The padding of chunks that pass the end of the array does not count.
            let valid_bytes = cost.decoded_bytes as f64 * plan.result_bytes() as f64 / chunks_bytes;
            Ok((valid_bytes > 0.0).then(|| cost.bytes as f64 / valid_bytes))
        })
    }

    /// The requests of a read of `selection` that `clients` share, as input of
    /// [`Machine::simulate`](bedform_machine::Machine::simulate). They are those of the plan that
    /// [`Array::explain`] prices. Each object is a file. Its requests, in the order of the plan,
    /// are divided into as many runs as there are clients, of equal length up to one request. A
    /// client opens each object of its requests and reads its index, unless this process has it
    /// cached.
    ///
    /// # Errors
    /// As [`Array::explain`]; `LimitExceeded` for more requests or clients than are simulated.
    pub fn workload(&self, selection: &Selection, clients: u32) -> Result<Workload> {
        self.known()?.with_plan(selection, |plan| read_workload(plan, clients))
    }

    /// Reads the texts of a selection of a foreign variable, in C order, without the format's
    /// library.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` for a variable without text, and for texts that only the library
    /// can read; as [`Array::read`].
    pub fn texts_of_file(
        file: &ForeignFile,
        path: &str,
        selection: &Selection,
    ) -> Result<StoredTexts> {
        let variable = file.text_variable(path)?;
        let stored = Self::of_file(&variable.stored, path)?;
        let bytes = stored.result_bytes(selection)?;
        let mut elements = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        stored.read(selection, &mut elements)?;
        variable.texts_of(&elements)
    }

    /// Reads `selection` of an array of text.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn read_text(&self, selection: &Selection) -> Result<Vec<String>> {
        let known = self.known()?;
        if !known.layout().is_text() {
            return Err(Error::invalid(format!("{} does not hold text", self.name())));
        }
        let count =
            known.geometry(selection)?.result_bytes() / known.layout().item_size.max(1) as u64;
        let texts = vec![String::new(); usize::try_from(count).unwrap_or(usize::MAX)];
        let texts = Mutex::new(texts);
        self.visit_again(&known, selection, &|chunk| {
            let VisitedElements::Texts(found) = chunk.elements() else { return Ok(()) };
            let mut texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
            chunk.for_each_run(|run| {
                let from = found.iter().skip(run.element);
                let to = texts.iter_mut().skip(run.result).take(run.count);
                to.zip(from).for_each(|(to, from)| (*from).clone_into(to));
                Ok(())
            })
        })?;
        Ok(texts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
