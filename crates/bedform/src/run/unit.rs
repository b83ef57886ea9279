//! The work on one unit: fetch (see `fetch`), check, decode and deliver.

use std::ops::Range;

use bedform_codec::{CodecError, Scratch};
use bedform_format::checksum::Crc32c;
use bedform_format::shard::Extent;
use bedform_storage::{Answer, Object};

use super::buffers::{DecodingBuffers, ThreadBuffers, resize_discarding};
use super::deliver::Deliver;
use super::execute::{ReadExecution, ThreadStarter};
use super::fetch::{ObjectReader, length_of};
use super::plan::PlannedCell;
use super::queue::QueuedUnit;
use super::resolve::{FetchedChunk, NeededChunk, SCATTERED_BYTES_MIN, Unit};
use crate::cache::ObjectKey;
use crate::error::{Error, Result};
use crate::plan::copy::{Axis, Copy, CopyTarget};
use crate::source::{Destination, Payload};

/// Bytes of the pieces in which large chunks are read and checked: several fit a core's own cache.
const PIECE_BYTES: usize = 256 << 10;

impl ReadExecution<'_> {
    /// Fetches a unit, decodes its chunks and delivers them.
    pub(crate) fn run_unit(
        &self,
        queued: QueuedUnit,
        buffers: &mut ThreadBuffers,
        helpers: ThreadStarter<'_>,
    ) -> Result<()> {
        let QueuedUnit { object, cell, unit, answers } = queued;
        let (object, unit) = (&*object, &unit);
        let Some(cell) = self.plan.cell(cell) else { return Ok(()) };
        let ThreadBuffers { fetched, block, piece, decoding } = buffers;
        for wanted in &unit.missing {
            let cover = unit.cover.as_deref();
            self.deliver_chunk(cell, wanted, None, cover, &mut Vec::new())?;
        }
        let mut reader = ObjectReader { run: self, object, block, helpers };
        let is_asked = !answers.is_empty();
        if let [chunk] = unit.chunks.as_slice()
            && !is_asked
            && unit.extents.len() == 1
            && self.can_stream(cell, chunk)
            && self.stream_chunk(cell, chunk, &mut reader, fetched, piece)?
        {
            return Ok(());
        }
        let scattered = unit.payload.as_deref().filter(|_| unit.is_scattered() && !is_asked);
        if let Some(payload) = scattered {
            self.count(object, unit);
            let outcome = self.run_scattered(payload, &mut reader, fetched, &mut decoding.scratch);
            reader.block.set_scattered(false);
            return outcome;
        }
        let target = self.deliver.target().filter(|_| !is_asked);
        if let Some(rooms) = target.and_then(|target| self.rooms_in_place(target, cell, unit)) {
            self.count(object, unit);
            return reader.fill_all(unit, rooms, None);
        }
        let mut answers = answers.into_iter();
        let alone = match unit.extents.len() {
            1 => answers.next().flatten().map(Answer::take).transpose()?,
            _ => None,
        };
        let bytes = match &alone {
            Some(bytes) => bytes,
            None => reader.fetch_unit(unit, answers, fetched)?,
        };
        self.count(object, unit);
        let decode =
            |buffers: &mut DecodingBuffers| self.decode_unit(object, cell, unit, bytes, buffers);
        match &self.remote {
            None => decode(decoding),
            Some(remote) => remote.decoding.with(decode),
        }
    }

    /// Decodes the chunks of a fetched unit and delivers them.
    fn decode_unit(
        &self,
        object: &dyn Object,
        cell: PlannedCell<'_>,
        unit: &Unit,
        bytes: &[u8],
        decoding: &mut DecodingBuffers,
    ) -> Result<()> {
        let DecodingBuffers { scratch, laid } = decoding;
        if let Some(payload) = &unit.payload {
            return payload.run_part(0, bytes, scratch, &self.destination());
        }
        for copy in &unit.raw {
            self.copy(cell, copy, bytes)?;
        }
        let cache = self.caching.cache_of(cell);
        let coordinates = cache.map(|_| ObjectKey::at(&cell.coordinates()));
        for chunk in &unit.chunks {
            let encoded = &bytes[chunk.start..chunk.start + chunk.length];
            let needed = match (self.deliver, cache) {
                (Deliver::Buffer(_), None) => self.needed_bytes(cell, &chunk.wanted)?.end,
                _ => cell.codec().decoded_bytes(),
            };
            let decoded = cell
                .codec()
                .decode_front(encoded, chunk.skip, needed, scratch)
                .map_err(|error| Error::decoding(self.place_of(cell, chunk), error))?;
            let is_whole = || self.takes_all(cell, &chunk.wanted);
            if let Some((cache, coordinates)) = cache.zip(coordinates.as_ref())
                && self.caching.keeps(cell.codec(), chunk.length, is_whole)?
            {
                cache.put(coordinates, object.version(), chunk.wanted.task.position, decoded);
            }
            let cover = unit.cover.as_deref();
            self.deliver_chunk(cell, &chunk.wanted, Some(decoded), cover, laid)?;
        }
        Ok(())
    }

    /// Adds the requests, bytes and chunks of a unit to the counts of the read.
    fn count(&self, object: &dyn Object, unit: &Unit) {
        let (requests, bytes) = unit.requests(object);
        self.counters.requests.add(requests);
        self.counters.bytes.add(bytes);
        self.counters.chunks.add(
            unit.chunks.len() as u64
                + u64::from(!unit.raw.is_empty())
                + unit.payload.as_ref().map_or(0, |payload| payload.block_count()),
        );
    }

    /// Returns the name of a chunk for messages.
    fn place_of(&self, cell: PlannedCell<'_>, chunk: &FetchedChunk) -> String {
        format!(
            "{}, chunk {:?} (bytes {} to {})",
            cell.object_name(),
            cell.piece.geometry.chunk_coordinates(cell.number, chunk.wanted.task),
            chunk.extent.offset,
            chunk.extent.end()
        )
    }

    /// Returns the byte range of a decoded chunk from the first to the last byte that the read
    /// takes.
    fn needed_bytes(&self, cell: PlannedCell<'_>, wanted: &NeededChunk) -> Result<Range<usize>> {
        let (mut start, mut end) = (usize::MAX, 0);
        wanted.for_each_copy(cell, cell.codec().strides(), |copy| {
            let range = copy.source_range(self.plan.item_size());
            (start, end) = (start.min(range.start), end.max(range.end));
            Ok(())
        })?;
        Ok(start.min(end)..end)
    }

    /// Returns true if the read takes every element of a chunk.
    fn takes_all(&self, cell: PlannedCell<'_>, wanted: &NeededChunk) -> Result<bool> {
        let mut taken = 0_u64;
        wanted.for_each_copy(cell, cell.codec().strides(), |copy| {
            taken += copy.axes.iter().map(Axis::count).product::<u64>();
            Ok(())
        })?;
        let bytes = taken.saturating_mul(self.plan.item_size() as u64);
        Ok(bytes >= cell.codec().decoded_bytes() as u64)
    }

    /// Returns true for a large chunk of raw elements with only a checksum, if it is not to be
    /// cached. Only the needed part of it has to be held in memory.
    fn can_stream(&self, cell: PlannedCell<'_>, chunk: &FetchedChunk) -> bool {
        self.deliver.target().is_some()
            && self.caching.cache_of(cell).is_none()
            && chunk.skip == 0
            && chunk.length >= 2 * PIECE_BYTES
            && cell.codec().is_checksummed_raw()
            && !self.threads.has_waited()
    }

    /// Reads a chunk piece by piece, checks each piece while it is in the core's cache, and keeps
    /// only the needed bytes. Returns false, without any effect, if the chunk is not in the page
    /// cache.
    fn stream_chunk(
        &self,
        cell: PlannedCell<'_>,
        chunk: &FetchedChunk,
        reader: &mut ObjectReader<'_, '_>,
        fetched: &mut Vec<u8>,
        piece: &mut Vec<u8>,
    ) -> Result<bool> {
        let damaged = |error| Error::corrupt(self.place_of(cell, chunk), error);
        let expected = cell.codec().decoded_bytes();
        let payload = chunk.length - 4;
        if payload != expected {
            return Err(damaged(CodecError::Length { codec: "bytes", expected, found: payload }));
        }
        let needed = self.needed_bytes(cell, &chunk.wanted)?;
        resize_discarding(fetched, needed.len());
        resize_discarding(piece, PIECE_BYTES);
        let mut checksum = Crc32c::new();
        let mut at = 0;
        while at < payload {
            let border = match at {
                at if at < needed.start => needed.start,
                at if at < needed.end => needed.end,
                _ => payload,
            };
            let end = border.min(at + PIECE_BYTES).min(payload);
            let piece = match needed.contains(&at) {
                true => &mut fetched[at - needed.start..end - needed.start],
                false => &mut piece[..end - at],
            };
            let offset = chunk.extent.offset + at as u64;
            if at > 0 {
                reader.fill(offset, piece)?;
            } else if reader.object.read_resident(offset, piece)? < piece.len() {
                return Ok(false);
            }
            checksum.update(piece);
            at = end;
        }
        let mut stored = [0; 4];
        let end = chunk.extent.offset + payload as u64;
        reader.fill(end, &mut stored)?;
        let (expected, found) = (u32::from_le_bytes(stored), checksum.finish());
        if expected != found {
            return Err(damaged(CodecError::Checksum { codec: "crc32c", expected, found }));
        }
        let known = reader.object.buffered_range();
        if known.start > chunk.extent.offset || known.end < chunk.extent.end() {
            self.counters.requests.add(1);
            self.counters.bytes.add(chunk.extent.length);
        }
        self.counters.chunks.add(1);
        self.copy_chunk(cell, &chunk.wanted, &fetched[..needed.len()], needed.start)?;
        Ok(true)
    }

    /// Copies the selected elements of a chunk, whose bytes from `start` on are in `elements`.
    pub(super) fn copy_chunk(
        &self,
        cell: PlannedCell<'_>,
        wanted: &NeededChunk,
        elements: &[u8],
        start: usize,
    ) -> Result<()> {
        wanted.for_each_copy(cell, cell.codec().strides(), |mut copy| {
            copy.source_start -= i64::try_from(start).unwrap_or(i64::MAX);
            copy.tidy();
            self.copy(cell, &copy, elements)
        })
    }

    /// Returns the destination of elements of a log, which are in the machine's byte order.
    pub(crate) fn destination(&self) -> Destination<'_> {
        Destination { target: self.deliver.target(), item: self.plan.item_size(), swap: 1 }
    }

    /// Returns the slices of the result for the extents of a unit. `None` unless each extent is one
    /// run of result bytes and nothing else.
    fn rooms_in_place<'t>(
        &self,
        target: CopyTarget<'t>,
        cell: PlannedCell<'_>,
        unit: &Unit,
    ) -> Option<Vec<&'t mut [u8]>> {
        let is_plain = unit.payload.is_none()
            && unit.chunks.is_empty()
            && unit.raw.len() == unit.extents.len()
            && cell.codec().swap_size() == 1;
        let mut before = 0;
        let room_of = |(copy, extent): (&Copy, &Extent)| {
            let run = copy.as_run(self.plan.item_size())?;
            let (source, _, bytes) = run.parts();
            let is_all = (source, bytes) == (before, length_of(extent));
            before += bytes;
            // SAFETY: no element of the result is in two copies of a plan, each of which one thread
            // runs once.
            is_all.then(|| unsafe { target.room_of(&run) }).flatten()
        };
        is_plain.then(|| unit.raw.iter().zip(&unit.extents).map(room_of).collect()).flatten()
    }

    /// Fetches the extents of a log. It reads past the page cache until a large extent is partly
    /// cached, and from then on through it. Each extent is checked and copied from the device's block
    /// before the next request. So its bytes are copied once, and a thread needs no more memory
    /// than one extent takes.
    fn run_scattered(
        &self,
        payload: &dyn Payload,
        reader: &mut ObjectReader<'_, '_>,
        fetched: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let object = reader.object;
        let (mut start, mut goes_past, mut is_told) = (0, true, false);
        for (number, extent) in payload.extents().iter().enumerate() {
            let length = length_of(extent);
            let part = start;
            start += length;
            reader.block.set_scattered(goes_past);
            if goes_past
                && let Some(bytes) = object.read_past(extent.offset, length, reader.block)?
            {
                self.waits(reader.helpers);
                payload.run_part(part, bytes, scratch, &self.destination())?;
                continue;
            }
            reader.block.set_scattered(false);
            // A short extent always goes through the page cache, and tells nothing about the
            // others.
            goes_past &= extent.length < SCATTERED_BYTES_MIN;
            resize_discarding(fetched, length);
            let buffer = &mut fetched[..length];
            if object.read_resident(extent.offset, buffer)? < length {
                if !goes_past && !std::mem::replace(&mut is_told, true) {
                    for next in &payload.extents()[number..] {
                        object.read_ahead(next.offset, next.length);
                    }
                }
                reader.fill(extent.offset, buffer)?;
            }
            payload.run_part(part, buffer, scratch, &self.destination())?;
        }
        Ok(())
    }

    fn copy(&self, cell: PlannedCell<'_>, copy: &Copy, source: &[u8]) -> Result<()> {
        let Some(target) = self.deliver.target() else { return Ok(()) };
        // SAFETY: no element of the result is in two copies of a plan.
        unsafe { copy.run(source, target, self.plan.item_size(), cell.codec().swap_size()) }
    }

    /// Writes the fill value to the places of a chunk that was never written.
    pub(super) fn fill_chunk(
        &self,
        cell: PlannedCell<'_>,
        wanted: &NeededChunk,
        target: CopyTarget<'_>,
    ) -> Result<()> {
        let still = vec![0; cell.codec().strides().len()];
        wanted.for_each_copy(cell, &still, |mut copy| {
            if let [Axis::Table { offsets, .. }] = copy.axes.as_mut_slice() {
                offsets.iter_mut().for_each(|pair| pair.0 = 0);
            }
            copy.tidy();
            // SAFETY: as in `copy`. The fill value is in the machine's byte order already.
            unsafe {
                let fill = cell.piece.layout.fill_element();
                copy.run(fill, target, self.plan.item_size(), 1)
            }
        })
    }
}
