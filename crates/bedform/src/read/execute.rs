//! Runs a plan: opens objects, fetches units, decodes chunks and copies them into the result.
//!
//! There is one kind of thread, and it does all of these in turn for one unit at a time, so that a
//! chunk is decoded while it is still in the core's cache and no queue of fetched bytes can grow. The
//! caller's thread is the first. While the data are in the page cache, there are as many threads as
//! cores; the first request that would wait for the device brings more, as many as keep it busy, or
//! a few where the storage fetches ahead what it is told of.
//! Threads live for one read: starting one costs less than a hundredth of the smallest read that
//! gets one, nothing is left behind for a fork or for the interpreter's exit, and dropping a read
//! joins all of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};

use bedform_format::BytesCodec;
use bedform_format::checksum::Crc32c;
use bedform_storage::{Object, ReadBlock};

use super::buffers::{Buffers, Kept, grow};
use super::fetch::{FetchedChunk, UNIT_BYTES_MAX, Unit, units};
use super::locate::ChunkSource;
use super::plan::{Plan, Task};
use super::scatter::{Axis, Copy, Target};
use super::tuning::Tuning;
use crate::codec::{ChunkCodec, CodecError};
use crate::error::{Error, ErrorKind, Result};
use crate::log::overlay::Overlay;
use crate::store::{ChunkCache, ChunkKey};

/// What a read did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStatistics {
    /// Objects opened.
    pub objects: u64,
    /// Requests for bytes, those for indexes included.
    pub requests: u64,
    /// Bytes asked for, those of indexes included.
    pub bytes: u64,
    /// Chunks decoded, or read in part.
    pub chunks: u64,
    /// Requests that had to wait for the device.
    pub waits: u64,
}

/// Makes the elements of a decoded chunk.
pub(crate) type MakeElements<'a> = dyn Fn(&[u8], &mut Vec<u8>) -> Result<()> + Sync + 'a;

/// Everything that a read needs to know.
pub(crate) struct Reading<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) source: &'a dyn ChunkSource,
    pub(crate) codec: &'a ChunkCodec,
    /// Makes the elements of a decoded chunk, where they are not the decoded bytes themselves.
    pub(crate) elements: Option<&'a MakeElements<'a>>,
    /// The bytes of the element that stands for what was never written.
    pub(crate) fill: &'a [u8],
    /// Where decoded chunks are kept, and by which number those of this array.
    pub(crate) cache: Option<(&'a ChunkCache, u64)>,
    pub(crate) tuning: &'a Tuning,
    /// True once the caller wants to stop; asked on the caller's thread.
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

/// Reads below this many decoded bytes stay on the caller's thread.
const ALONE_BYTES: u64 = 256 << 10;

/// Threads that reads have started beyond their callers', in the whole process.
static EXTRA_THREADS: AtomicUsize = AtomicUsize::new(0);
const EXTRA_THREADS_MAX: usize = 64;

/// Fills `target` with what the plan selects.
///
/// # Errors
/// The first error of any thread; what `target` holds is then unspecified.
pub(crate) fn execute(reading: &Reading<'_>, target: Target<'_>) -> Result<ReadStatistics> {
    if target.len() as u64 != reading.plan.result_bytes() {
        return Err(Error::invalid(format!(
            "the buffer has {} bytes, the selection needs {}",
            target.len(),
            reading.plan.result_bytes()
        )));
    }
    if reading.plan.result_bytes() == 0 {
        return Ok(ReadStatistics::default());
    }
    let decoded = reading.plan.chunk_count().saturating_mul(reading.codec.decoded_bytes() as u64);
    let needed = if reading.codec.is_raw() {
        decoded.min(reading.plan.result_bytes().saturating_mul(8))
    } else {
        decoded
    };
    let run = Run::new(reading, target);
    if needed <= ALONE_BYTES || reading.tuning.threads_waiting <= 1 {
        run.work(None, true, reading.interrupted);
    } else {
        std::thread::scope(|scope| {
            for _ in 1..reading.tuning.threads {
                run.start_thread(scope);
            }
            run.work(Some(scope), true, reading.interrupted);
        });
    }
    run.finish()
}

/// The state that the threads of one read share.
struct Run<'a> {
    plan: &'a Plan,
    source: &'a dyn ChunkSource,
    codec: &'a ChunkCodec,
    elements: Option<&'a MakeElements<'a>>,
    fill: &'a [u8],
    cache: Option<(&'a ChunkCache, u64)>,
    tuning: &'a Tuning,
    target: Target<'a>,
    cells: u64,
    queue: Mutex<Queue>,
    /// Woken when units were added, a planner finished, or the read failed.
    changed: Condvar,
    stopped: AtomicBool,
    waiting: AtomicBool,
    /// True once the storage fetches requests while nobody waits for them.
    fetched_ahead: AtomicBool,
    /// True once there are requests that somebody must wait for.
    fetched_late: AtomicBool,
    threads: AtomicUsize,
    /// Bytes of the largest unit so far; 0 before the first.
    largest_unit: AtomicU64,
    objects: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    chunks: AtomicU64,
    waits: AtomicU64,
}

/// A unit of the object of a cell.
type QueuedUnit = (Arc<dyn Object>, u64, Unit);

#[derive(Default)]
struct Queue {
    next_cell: u64,
    units: VecDeque<QueuedUnit>,
    /// How many of them, from the front, the storage was told of.
    ahead: usize,
    /// Threads that are opening an object and will add units.
    planning: usize,
    error: Option<Error>,
}

/// Brings more threads in, as far as there is work for them and the limits allow.
type Helpers<'h> = &'h dyn Fn();

enum Work {
    Cell(u64),
    Unit(Arc<dyn Object>, u64, Unit),
    Done,
}

impl<'a> Run<'a> {
    fn new(reading: &Reading<'a>, target: Target<'a>) -> Self {
        let chunk_bytes = reading.codec.decoded_bytes() as u64;
        let decoded = reading.plan.chunk_count().saturating_mul(chunk_bytes);
        // A read that would push most others out is not kept, nor is what the page cache has as well.
        let cache = reading.cache.filter(|(cache, _)| {
            decoded <= cache.limit() / 2 && !reading.codec.is_raw() && reading.elements.is_none()
        });
        Self {
            cache,
            plan: reading.plan,
            source: reading.source,
            codec: reading.codec,
            elements: reading.elements,
            fill: reading.fill,
            tuning: reading.tuning,
            target,
            cells: reading.plan.cell_count(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            fetched_ahead: AtomicBool::new(false),
            fetched_late: AtomicBool::new(false),
            threads: AtomicUsize::new(1),
            largest_unit: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    fn finish(self) -> Result<ReadStatistics> {
        let queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        match queue.error {
            Some(error) => Err(error),
            None => Ok(ReadStatistics {
                objects: self.objects.into_inner(),
                requests: self.requests.into_inner(),
                bytes: self.bytes.into_inner(),
                chunks: self.chunks.into_inner(),
                waits: self.waits.into_inner(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A thread that panicked is reported by the scope; the queue itself is always whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread if the limits and the system allow; going without is no error.
    fn start_thread<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        let mine = self.threads.fetch_add(1, Ordering::Relaxed);
        let extra = EXTRA_THREADS.fetch_add(1, Ordering::Relaxed);
        let started = mine < self.thread_limit()
            && extra < EXTRA_THREADS_MAX
            && Builder::new()
                .name("bedform-read".to_owned())
                .spawn_scoped(scope, move || {
                    let _leave = Leave(&self.threads);
                    self.work(Some(scope), false, &|| false);
                })
                .is_ok();
        if !started {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            EXTRA_THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Threads whose buffers fit the bound together.
    fn thread_limit(&self) -> usize {
        let chunk = self.codec.decoded_bytes() as u64;
        let scratch = match self.codec.chain().bytes.len() {
            0 => 0,
            1 => chunk,
            _ => chunk.saturating_mul(2),
        };
        let fetched = match self.largest_unit.load(Ordering::Relaxed) {
            0 if self.codec.is_raw() => UNIT_BYTES_MAX,
            0 => UNIT_BYTES_MAX.max(chunk),
            largest => largest,
        };
        // Only large requests have a use for a block.
        let block = if fetched < SMALL_UNIT_BYTES { 0 } else { ReadBlock::BYTES as u64 };
        let each = scratch.saturating_add(fetched).saturating_add(block);
        let fit = usize::try_from(self.tuning.buffer_bytes / each.max(1)).unwrap_or(usize::MAX);
        let ahead = self.fetched_ahead.load(Ordering::Relaxed);
        let useful = match ahead && !self.fetched_late.load(Ordering::Relaxed) {
            true => self.tuning.threads_ahead(),
            false => self.tuning.threads_waiting,
        };
        fit.clamp(1, useful.max(self.tuning.threads))
    }

    /// Works until nothing is left.
    fn work<'scope, 'env>(
        &'scope self,
        scope: Option<&'scope Scope<'scope, 'env>>,
        caller: bool,
        interrupted: &dyn Fn() -> bool,
    ) {
        let mut buffers = Kept::take();
        let more = || {
            if let Some(scope) = scope {
                self.grow(scope);
            }
        };
        let helpers: Helpers<'_> = &more;
        loop {
            if caller && interrupted() {
                self.fail(Error::new(ErrorKind::Interrupted, "the read was stopped"));
            }
            let outcome = match self.next(caller) {
                Work::Done => return,
                Work::Cell(cell) => self.plan_cell(cell, helpers),
                Work::Unit(object, cell, unit) => {
                    self.run_unit(&*object, cell, &unit, &mut buffers.0, helpers)
                }
            };
            if let Err(error) = outcome {
                self.fail(error);
            }
        }
    }

    fn next(&self, caller: bool) -> Work {
        let mut queue = self.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Work::Done;
            }
            // Units have turned out larger than they were when this thread was started.
            if !caller && self.threads.load(Ordering::Relaxed) > self.thread_limit() {
                return Work::Done;
            }
            if let Some((object, cell, unit)) = queue.units.pop_front() {
                queue.ahead = queue.ahead.saturating_sub(1);
                return Work::Unit(object, cell, unit);
            }
            if queue.next_cell < self.cells {
                queue.next_cell += 1;
                queue.planning += 1;
                return Work::Cell(queue.next_cell - 1);
            }
            if queue.planning == 0 {
                return Work::Done;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fail(&self, error: Error) {
        let mut queue = self.lock();
        queue.error.get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Requests wait for the device: more threads keep it busy.
    fn grow<'scope, 'env>(&'scope self, scope: &'scope Scope<'scope, 'env>) {
        let left = {
            let queue = self.lock();
            queue.units.len() as u64 + (self.cells - queue.next_cell)
        };
        let mut threads = self.threads.load(Ordering::Relaxed);
        while threads < self.thread_limit() && (threads as u64) < left {
            self.start_thread(scope);
            threads += 1;
        }
    }

    /// Opens an object and adds its units to the queue.
    fn plan_cell(&self, cell: u64, helpers: Helpers<'_>) -> Result<()> {
        let planned = Planned(self);
        let coordinates = self.plan.cell_coordinates(cell);
        let Some(opened) = self.source.open(&coordinates, &|| self.waits(helpers))? else {
            for task in self.plan.tasks(cell) {
                self.fill_chunk(cell, task)?;
            }
            return Ok(());
        };
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(opened.index_requests, Ordering::Relaxed);
        self.bytes.fetch_add(opened.index_bytes, Ordering::Relaxed);
        let object = &opened.object;
        let mut tasks = self.plan.tasks(cell);
        // What is laid over chunks is not kept with them.
        if let (Some((cache, array)), None) = (self.cache, &opened.overlay) {
            let mut left = Vec::with_capacity(tasks.len());
            for task in tasks {
                let key = ChunkKey::new(array, object.version(), task.position);
                match cache.get(&key, |_| true) {
                    Some(elements) => self.copy_chunk(cell, task, &elements)?,
                    None => left.push(task),
                }
            }
            tasks = left;
        }
        let units = units(self.plan, cell, tasks, &opened, self.codec, self.tuning.gap_bytes)
            .map_err(|error| error.at(self.source.object_name(&coordinates)))?;
        let largest = units.iter().map(Unit::bytes).max().unwrap_or(0);
        self.largest_unit.fetch_max(largest, Ordering::Relaxed);
        self.lock().units.extend(units.into_iter().map(|unit| (object.clone(), cell, unit)));
        drop(planned);
        if self.waiting.load(Ordering::Relaxed) {
            self.read_ahead();
            helpers();
        }
        Ok(())
    }

    /// A request is about to wait for the device.
    fn waits(&self, helpers: Helpers<'_>) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.store(true, Ordering::Relaxed);
        self.read_ahead();
        helpers();
    }

    /// Tells the storage which requests come next, so that it is busy with many of them while no
    /// thread has to wait for each.
    fn read_ahead(&self) {
        let ahead: Vec<_> = {
            let mut queue = self.lock();
            let mut left = AHEAD_BYTES_MAX;
            let within = |(_, _, unit): &&QueuedUnit| {
                let fits = left > 0;
                left = left.saturating_sub(unit.bytes());
                fits
            };
            let end = queue.units.iter().take(AHEAD_MAX).take_while(within).count();
            // In large steps: each goes through the queue.
            if queue.ahead > end / 2 {
                return;
            }
            let start = std::mem::replace(&mut queue.ahead, end);
            let units = queue.units.range(start..end);
            units.map(|(object, _, unit)| (object.clone(), unit.extents.clone())).collect()
        };
        for (object, extents) in ahead {
            for extent in extents {
                let fetched = object.read_ahead(extent.offset, extent.length);
                let said = if fetched { &self.fetched_ahead } else { &self.fetched_late };
                said.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Fetches a unit, decodes its chunks and copies them to their places.
    fn run_unit(
        &self,
        object: &dyn Object,
        cell: u64,
        unit: &Unit,
        buffers: &mut Buffers,
        helpers: Helpers<'_>,
    ) -> Result<()> {
        if let Some(overlay) = &unit.overlay {
            return self.run_overlaid(object, cell, unit, overlay, buffers, helpers);
        }
        for task in &unit.missing {
            self.fill_chunk(cell, *task)?;
        }
        if let [chunk] = unit.chunks.as_slice()
            && self.can_stream(chunk)
            && self.stream_chunk(object, cell, chunk, buffers, helpers)?
        {
            return Ok(());
        }
        let Buffers { fetched, block, elements, scratch, .. } = buffers;
        let bytes = self.fetch_unit(object, unit, fetched, block, helpers)?;
        self.requests.fetch_add(unit.extents.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(unit.bytes(), Ordering::Relaxed);
        self.chunks.fetch_add(
            unit.chunks.len() as u64 + u64::from(!unit.raw.is_empty()),
            Ordering::Relaxed,
        );
        for copy in &unit.raw {
            self.copy(copy, bytes)?;
        }
        for chunk in &unit.chunks {
            let encoded = &bytes[chunk.start..chunk.start + chunk.length];
            let place = || self.place_of(cell, chunk);
            let needed = match (self.elements, self.cache) {
                (None, None) => self.needed_bytes(cell, chunk.task)?.end,
                _ => self.codec.decoded_bytes(),
            };
            let decoded = self
                .codec
                .decode_front(encoded, chunk.skip, needed, scratch)
                .map_err(|error| Error::corrupt(place(), error))?;
            if let Some((cache, array)) = self.cache {
                let key = ChunkKey::new(array, object.version(), chunk.task.position);
                cache.put(key, Arc::from(decoded), decoded.len() as u64 + 128);
            }
            let made = match self.elements {
                None => decoded,
                Some(make) => {
                    make(decoded, &mut *elements).map_err(|error| error.at(place()))?;
                    elements.as_slice()
                }
            };
            self.copy_chunk(cell, chunk.task, made)?;
        }
        Ok(())
    }

    /// As [`Run::run_unit`], for chunks over which something is laid.
    fn run_overlaid(
        &self,
        object: &dyn Object,
        cell: u64,
        unit: &Unit,
        overlay: &Overlay,
        buffers: &mut Buffers,
        helpers: Helpers<'_>,
    ) -> Result<()> {
        let Buffers { fetched, block, elements, scratch, .. } = buffers;
        let bytes = self.fetch_unit(object, unit, fetched, block, helpers)?;
        self.requests.fetch_add(unit.extents.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(unit.bytes(), Ordering::Relaxed);
        let chunks = unit.chunks.len() + unit.missing.len();
        self.chunks.fetch_add(chunks as u64, Ordering::Relaxed);
        for chunk in &unit.chunks {
            let encoded = &bytes[chunk.start..chunk.start + chunk.length];
            let decoded = self.codec.decode(encoded, chunk.skip, scratch);
            let decoded =
                decoded.map_err(|error| Error::corrupt(self.place_of(cell, chunk), error))?;
            elements.clear();
            elements.extend_from_slice(decoded);
            overlay.lay(&self.plan.chunk_coordinates(cell, chunk.task), elements)?;
            self.copy_chunk(cell, chunk.task, elements)?;
        }
        for task in &unit.missing {
            overlay.fill(elements);
            overlay.lay(&self.plan.chunk_coordinates(cell, *task), elements)?;
            self.copy_chunk(cell, *task, elements)?;
        }
        Ok(())
    }

    /// What messages call a chunk.
    fn place_of(&self, cell: u64, chunk: &FetchedChunk) -> String {
        format!(
            "{}, chunk {:?} (bytes {} to {})",
            self.source.object_name(&self.plan.cell_coordinates(cell)),
            self.plan.chunk_coordinates(cell, chunk.task),
            chunk.extent.offset,
            chunk.extent.end()
        )
    }

    /// The bytes of a decoded chunk, from the first to the last that the read takes.
    fn needed_bytes(&self, cell: u64, task: Task) -> Result<Range<usize>> {
        let (mut start, mut end) = (usize::MAX, 0);
        self.plan.for_each_copy(cell, task, self.codec.strides(), |copy| {
            let range = copy.source_range(self.plan.item_size());
            (start, end) = (start.min(range.start), end.max(range.end));
            Ok(())
        })?;
        Ok(start.min(end)..end)
    }

    /// True for a large chunk of elements with nothing but a checksum behind them, none of which is
    /// to be kept: only the part that is needed has to be held in memory.
    fn can_stream(&self, chunk: &FetchedChunk) -> bool {
        self.elements.is_none()
            && self.cache.is_none()
            && chunk.skip == 0
            && chunk.length >= 2 * PIECE_BYTES
            && matches!(self.codec.chain().bytes.as_slice(), [BytesCodec::Crc32c])
            && !self.waiting.load(Ordering::Relaxed)
    }

    /// Reads a chunk piece by piece and checks each while it is in the core's cache; keeps only what
    /// the read needs. False, and nothing done, if the chunk is not in the page cache.
    fn stream_chunk(
        &self,
        object: &dyn Object,
        cell: u64,
        chunk: &FetchedChunk,
        buffers: &mut Buffers,
        helpers: Helpers<'_>,
    ) -> Result<bool> {
        let damaged = |error| Error::corrupt(self.place_of(cell, chunk), error);
        let expected = self.codec.decoded_bytes();
        let payload = chunk.length - 4;
        if payload != expected {
            return Err(damaged(CodecError::Length { codec: "bytes", expected, found: payload }));
        }
        let needed = self.needed_bytes(cell, chunk.task)?;
        grow(&mut buffers.fetched, needed.len());
        grow(&mut buffers.piece, PIECE_BYTES);
        let mut checksum = Crc32c::new();
        let mut at = 0;
        while at < payload {
            let (inside, border) = match at {
                at if at < needed.start => (false, needed.start),
                at if at < needed.end => (true, needed.end),
                _ => (false, payload),
            };
            let end = border.min(at + PIECE_BYTES).min(payload);
            let piece = if inside {
                &mut buffers.fetched[at - needed.start..end - needed.start]
            } else {
                &mut buffers.piece[..end - at]
            };
            let offset = chunk.extent.offset + at as u64;
            if at > 0 {
                self.fill(object, offset, piece, &mut buffers.block, helpers)?;
            } else if object.read_resident(offset, piece)? < piece.len() {
                return Ok(false);
            }
            checksum.update(piece);
            at = end;
        }
        let mut stored = [0; 4];
        let end = chunk.extent.offset + payload as u64;
        self.fill(object, end, &mut stored, &mut buffers.block, helpers)?;
        let (expected, found) = (u32::from_le_bytes(stored), checksum.finish());
        if expected != found {
            return Err(damaged(CodecError::Checksum { codec: "crc32c", expected, found }));
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(chunk.extent.length, Ordering::Relaxed);
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.plan.for_each_copy(cell, chunk.task, self.codec.strides(), |mut copy| {
            copy.source_start -= i64::try_from(needed.start).unwrap_or(i64::MAX);
            copy.tidy();
            self.copy(&copy, &buffers.fetched[..needed.len()])
        })?;
        Ok(true)
    }

    fn copy_chunk(&self, cell: u64, task: Task, elements: &[u8]) -> Result<()> {
        self.plan.for_each_copy(cell, task, self.codec.strides(), |mut copy| {
            copy.tidy();
            self.copy(&copy, elements)
        })
    }

    /// The bytes of a unit, one extent behind the other: in the block, as the device left them there,
    /// or copied to `fetched`.
    fn fetch_unit<'b>(
        &self,
        object: &dyn Object,
        unit: &Unit,
        fetched: &'b mut Vec<u8>,
        block: &'b mut ReadBlock,
        helpers: Helpers<'_>,
    ) -> Result<&'b [u8]> {
        let length = usize::try_from(unit.bytes()).unwrap_or(usize::MAX);
        grow(fetched, length);
        if let [extent] = unit.extents.as_slice() {
            let buffer = &mut fetched[..length];
            if let Some(bytes) = self.fetch(object, extent.offset, buffer, block, helpers)? {
                return Ok(bytes);
            }
            return Ok(&fetched[..length]);
        }
        let mut start = 0;
        for extent in &unit.extents {
            let end = start + usize::try_from(extent.length).unwrap_or(usize::MAX);
            self.fill(object, extent.offset, &mut fetched[start..end], block, helpers)?;
            start = end;
        }
        Ok(&fetched[..length])
    }

    /// Fills `buffer` with the bytes from `offset` on.
    fn fill(
        &self,
        object: &dyn Object,
        offset: u64,
        buffer: &mut [u8],
        block: &mut ReadBlock,
        helpers: Helpers<'_>,
    ) -> Result<()> {
        if let Some(bytes) = self.fetch(object, offset, buffer, block, helpers)? {
            buffer.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Fills `buffer` with the bytes from `offset` on; or, where the device left them in the block,
    /// gives them as they are there.
    fn fetch<'b>(
        &self,
        object: &dyn Object,
        offset: u64,
        buffer: &mut [u8],
        block: &'b mut ReadBlock,
        helpers: Helpers<'_>,
    ) -> Result<Option<&'b [u8]>> {
        let at_hand = object.read_resident(offset, buffer)?;
        if at_hand == buffer.len() {
            return Ok(None);
        }
        self.waits(helpers);
        if let Some(bytes) = object.read_past(offset, buffer.len(), block)? {
            return Ok(Some(bytes));
        }
        object.read(offset + at_hand as u64, &mut buffer[at_hand..])?;
        Ok(None)
    }

    fn copy(&self, copy: &Copy, source: &[u8]) -> Result<()> {
        // SAFETY: no element of the result is in two copies of a plan.
        unsafe { copy.run(source, self.target, self.plan.item_size(), self.codec.swap_size()) }
    }

    /// Fills the place of a chunk that was never written.
    fn fill_chunk(&self, cell: u64, task: Task) -> Result<()> {
        let still = vec![0; self.codec.strides().len()];
        self.plan.for_each_copy(cell, task, &still, |mut copy| {
            if let [Axis::Table { offsets, .. }] = copy.axes.as_mut_slice() {
                offsets.iter_mut().for_each(|pair| pair.0 = 0);
            }
            copy.tidy();
            // SAFETY: as in `copy`. The fill value is in the machine's byte order already.
            unsafe { copy.run(self.fill, self.target, self.plan.item_size(), 1) }
        })
    }
}

/// Units below this are never read past the page cache.
const SMALL_UNIT_BYTES: u64 = 128 << 10;

/// Units of which the storage is told before they are read.
const AHEAD_MAX: usize = 256;
/// Bytes of these units together.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Pieces in which large chunks are read and checked: several fit a core's own cache.
const PIECE_BYTES: usize = 256 << 10;

/// Counts a thread out, also if it panics.
struct Leave<'r>(&'r AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        EXTRA_THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a planner out and wakes those who wait for its units, also if it fails or panics.
struct Planned<'r, 'a>(&'r Run<'a>);

impl Drop for Planned<'_, '_> {
    fn drop(&mut self) {
        self.0.lock().planning -= 1;
        self.0.changed.notify_all();
    }
}
