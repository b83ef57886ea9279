//! Staging of the bytes of one file: large aligned blocks, written past the page cache by
//! background threads.
//!
//! Two writes are in flight while the caller fills another block. That hides the fixed time for
//! each request of a distant file system, and keeps a local device busy.
//!
//! An object of at most [`Staging::small_bytes_max`] bytes is one buffered write. So are the few
//! bytes that a growing object gains between two syncs: each flush starts again.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bedform_format::log::{Lane, STRIPE_BYTES};

use super::LocalShared;
use crate::LargeMemory;
use crate::file_system::{FileSystem, uninterrupted};
use crate::memory_limit::threads_that_fit;

/// The multiple of bytes for offsets, lengths and addresses of direct writes.
const ALIGNMENT: usize = 4096;

/// The most blocks kept for later writers.
const SPARE_BLOCKS_MAX: usize = 16;

/// The factor on [`Staging::reserve_bytes`] for an object whose size is known beforehand.
const HINTED_STEPS: u64 = 16;

/// The parameters of staging. The defaults were measured; tests use smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staging {
    /// Objects of at most this many bytes are kept in memory and written in one piece.
    pub small_bytes_max: usize,
    /// Bytes of one block; a multiple of 4,096.
    pub block_bytes: usize,
    /// The most blocks of one writer while one write is in flight; each further write adds one
    /// block.
    pub blocks_max: usize,
    /// Writes in flight of one writer, where a second thread writes. The writers of a shared object
    /// have twice as many together, and each one at least: together they keep the device busy.
    pub writes_max: usize,
    /// Bytes reserved ahead of the writes of a large object of unknown size. For a known size the
    /// step is sixteen times as large.
    pub reserve_bytes: u64,
    /// Write durable objects past the page cache, where the system can.
    pub direct: bool,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            small_bytes_max: 1 << 20,
            block_bytes: 2 << 20,
            blocks_max: 3,
            writes_max: 2,
            reserve_bytes: 64 << 20,
            direct: true,
        }
    }
}

/// A block of memory whose first byte is aligned.
#[derive(Debug)]
struct WriteBlock {
    memory: LargeMemory,
    length: usize,
}

impl WriteBlock {
    fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self { memory: LargeMemory::new(capacity)?, length: 0 })
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    fn is_full(&self) -> bool {
        self.length == self.memory.len()
    }

    /// Copies as many of `bytes` as fit, and returns their number.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.memory.len() - self.length);
        self.memory[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        count
    }
}

/// Empty blocks that the writers of a handle share: allocating a block costs as much as filling it.
/// They are freed when the last writer ends.
#[derive(Debug, Default)]
pub(super) struct SpareBlocks(Mutex<SpareBlockList>);

#[derive(Debug, Default)]
struct SpareBlockList {
    writers: usize,
    blocks: Vec<WriteBlock>,
}

impl SpareBlocks {
    fn spare(&self) -> MutexGuard<'_, SpareBlockList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.spare().writers += 1;
    }

    fn take(&self) -> Option<WriteBlock> {
        self.spare().blocks.pop()
    }

    /// Ends a writer, whose blocks other writers may reuse.
    fn end(&self, blocks: impl Iterator<Item = WriteBlock>) {
        let mut spare = self.spare();
        spare.writers -= 1;
        let room = if spare.writers == 0 { 0 } else { SPARE_BLOCKS_MAX };
        spare.blocks.extend(blocks.map(|block| WriteBlock { length: 0, ..block }));
        let kept = room.min(spare.blocks.len());
        let rest = spare.blocks.split_off(kept);
        drop(spare);
        drop(rest);
    }
}

/// A file with the offset of the next write, shared by the writing threads.
struct FileSink<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    file: Arc<F::Handle>,
    /// The byte ranges of the file that belong to this writer.
    lane: Lane,
    /// The expected size of the whole object in bytes, 0 if unknown.
    size_hint: u64,
    state: Mutex<SinkState>,
}

/// State that all threads writing to a file share.
struct SinkState {
    /// Bytes that are written or assigned to a thread.
    position: u64,
    /// The offset of the first failed write: later bytes do not count, and nothing more is written.
    failed: Option<u64>,
    /// Large pieces are to be written past the page cache.
    wants_direct: bool,
    /// Direct writes are turned on at present.
    direct: bool,
    /// Bytes of this writer for which the file was extended; `None` where reserving failed.
    reserved: Option<u64>,
    is_reserving: bool,
    /// The largest size in bytes that reserving may have given the file.
    longest: u64,
}

impl SinkState {
    /// Bytes that were written without a failure before them.
    fn end(&self) -> u64 {
        self.failed.unwrap_or(self.position)
    }
}

impl<F: FileSystem> FileSink<F> {
    fn state(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the offset of the next `count` bytes, which the caller must write.
    fn take(&self, count: usize) -> u64 {
        let mut state = self.state();
        let start = state.position;
        state.position += count as u64;
        start
    }

    /// Extends the file for bytes up to `end`. Allocating in large steps ahead of the writes makes
    /// them fast, also through the page cache. While one thread reserves, other threads continue
    /// without waiting: some file systems take long.
    fn reserve(&self, end: u64) {
        let (start, size) = {
            let mut state = self.state();
            let is_due = state.reserved.is_some_and(|reserved| end > reserved);
            if !is_due || state.is_reserving {
                return;
            }
            let Some((start, size)) = self.next_reserve(end) else { return };
            if self.lane.is_alone() {
                // A failed call may have done a part of the work; the writes will report a real
                // lack of space.
                state.longest = state.longest.max(size);
            }
            state.is_reserving = true;
            (start, size)
        };
        let is_done = size == start
            || uninterrupted(|| self.shared.system.reserve(&self.file, start, size - start))
                .is_ok();
        let mut state = self.state();
        state.is_reserving = false;
        state.reserved = is_done.then(|| match self.lane.is_alone() {
            true => size,
            false => size / self.row() * STRIPE_BYTES,
        });
    }

    /// Bytes of one stripe of every lane.
    fn row(&self) -> u64 {
        STRIPE_BYTES * u64::from(self.lane.lanes().count())
    }

    /// Returns the current and the next size of the file, so that bytes up to `end` have room.
    /// `None` if the system does not report the size.
    fn next_reserve(&self, end: u64) -> Option<(u64, u64)> {
        let step = self.shared.staging.reserve_bytes;
        if self.lane.is_alone() {
            // In steps: a hint may be far too large, and all users share a full disk.
            let size = if self.size_hint >= end {
                end.saturating_add(step.saturating_mul(HINTED_STEPS)).min(self.size_hint)
            } else {
                end.saturating_add(step)
            };
            return Some((0, size));
        }
        // Reserving makes the system wait for the writes of all lanes. The first writer therefore
        // reserves whole rows of stripes, and the file's size informs the others. All lanes
        // together reserve as far ahead as a single writer.
        let row = self.row();
        let needed = end.div_ceil(STRIPE_BYTES).saturating_mul(row);
        let status = uninterrupted(|| self.shared.system.status(&self.file)).ok()?;
        let size = status.version.size / row * row;
        Some((size, if size < needed { needed.saturating_add(step / row * row) } else { size }))
    }

    /// Frees the stripes of this lane that were reserved and not written, also those that writers
    /// of other lanes reserved. The file's size tells how far they reach. No writer knows the ends
    /// of the other lanes, so none truncates the file: it may end in a hole.
    fn release_stripes(&self) {
        let mut state = self.state();
        let Some(own) = state.reserved else { return };
        let size = uninterrupted(|| self.shared.system.status(&self.file));
        let reserved = size.map_or(0, |status| status.version.size / self.row() * STRIPE_BYTES);
        let (mut at, reserved) = (state.end(), reserved.max(own));
        while at < reserved {
            let run = self.lane.run(at);
            // A system that cannot free the space keeps it for later writes, or until the file is
            // deleted.
            let release = || self.shared.system.release(&self.file, run.offset, run.length);
            if uninterrupted(release).is_err() {
                break;
            }
            at += run.length;
        }
        state.reserved = Some(state.end());
    }

    /// Truncates the file to the written bytes.
    fn cut(&self) -> io::Result<()> {
        let mut state = self.state();
        let end = state.end();
        if !self.lane.is_alone() || state.longest <= end {
            return Ok(());
        }
        uninterrupted(|| self.shared.system.set_size(&self.file, end))?;
        state.longest = end;
        state.reserved = state.reserved.map(|_| end);
        Ok(())
    }

    /// Writes one of many blocks at the next offset.
    fn write_block(&self, block: &WriteBlock) -> io::Result<()> {
        self.write_block_at(self.take(block.length), block)
    }

    /// Writes one of many blocks at an offset from [`FileSink::take`]. Does nothing after a failed
    /// write, which the failing thread reports.
    fn write_block_at(&self, start: u64, block: &WriteBlock) -> io::Result<()> {
        if self.state().failed.is_some() {
            return Ok(());
        }
        self.reserve(start + block.length as u64);
        self.write_at(start, block.bytes())
    }

    /// Writes `bytes` at the next offset.
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_at(self.take(bytes.len()), bytes)
    }

    /// Writes `bytes` at an offset from [`FileSink::take`].
    fn write_at(&self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let position = start + done as u64;
            done += self.write_some(position, &bytes[done..]).inspect_err(|_| {
                let mut state = self.state();
                state.failed = Some(state.end().min(position));
            })?;
        }
        Ok(())
    }

    /// Writes some of `bytes`, and returns their number.
    fn write_some(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        // The end of an object is rarely aligned and goes through the page cache.
        let aligned = bytes.len() / ALIGNMENT * ALIGNMENT;
        let direct = {
            let mut state = self.state();
            if aligned == 0 {
                self.set_direct(&mut state, false)?;
            }
            state.direct
        };
        let rest = if direct { &bytes[..aligned] } else { bytes };
        let run = self.lane.run(position);
        let rest = &rest[..usize::try_from(run.length).unwrap_or(usize::MAX).min(rest.len())];
        match uninterrupted(|| self.shared.system.write_at(&self.file, run.offset, rest)) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                if !count.is_multiple_of(ALIGNMENT) {
                    self.set_direct(&mut self.state(), false)?;
                }
                Ok(count)
            }
            // The system accepted the flag but not the write.
            Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                let mut state = self.state();
                state.wants_direct = false;
                self.set_direct(&mut state, false)?;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn set_direct(&self, state: &mut SinkState, direct: bool) -> io::Result<()> {
        if state.direct == direct {
            return Ok(());
        }
        state.direct = false;
        uninterrupted(|| self.shared.system.set_direct(&self.file, direct))?;
        state.direct = direct;
        Ok(())
    }
}

/// Threads that write full blocks and return them empty, or return their first failure.
struct WritingThreads {
    full: SyncSender<(u64, WriteBlock)>,
    empty: Receiver<io::Result<WriteBlock>>,
    threads: Vec<JoinHandle<()>>,
}

impl WritingThreads {
    /// Starts one thread for each write in flight, all writing to `sink`; `None` if the system has
    /// no more threads.
    fn start<F: FileSystem>(sink: &Arc<FileSink<F>>, writes: usize, blocks: usize) -> Option<Self> {
        let (full, incoming) = sync_channel::<(u64, WriteBlock)>(blocks);
        let (outgoing, empty): (Sender<io::Result<WriteBlock>>, _) = channel();
        let incoming = Arc::new(Mutex::new(incoming));
        let mut threads = Vec::new();
        for _ in 0..threads_that_fit(writes) {
            let (sink, incoming, outgoing) = (sink.clone(), incoming.clone(), outgoing.clone());
            let next = move || incoming.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let work = move || {
                while let Ok((start, mut block)) = next() {
                    let outcome = sink.write_block_at(start, &block);
                    let is_over = outcome.is_err();
                    block.length = 0;
                    if outgoing.send(outcome.map(|()| block)).is_err() || is_over {
                        return;
                    }
                }
            };
            let name = "bedform-write".to_owned();
            // A missing thread only makes writing slower.
            threads.extend(std::thread::Builder::new().name(name).spawn(work).ok());
        }
        (!threads.is_empty()).then_some(Self { full, empty, threads })
    }

    /// Waits for an empty block.
    fn receive(&self) -> io::Result<WriteBlock> {
        self.empty.recv().unwrap_or_else(|_| Err(stopped()))
    }

    fn send(&self, start: u64, block: WriteBlock) -> io::Result<()> {
        let failure = || self.empty.iter().find_map(Result::err).unwrap_or_else(stopped);
        self.full.send((start, block)).map_err(|_| failure())
    }

    /// Waits for all writes, adds the blocks to `spare`, and ends the threads.
    fn finish(self, spare: &mut Vec<WriteBlock>) -> io::Result<()> {
        let Self { full, empty, threads } = self;
        drop(full);
        let mut outcome = Ok(());
        for written in empty {
            match written {
                Ok(block) => spare.push(block),
                Err(error) => outcome = Err(error),
            }
        }
        for thread in threads {
            let joined = thread.join();
            outcome = outcome.and_then(|()| joined.map_err(|_| stopped()));
        }
        outcome
    }
}

fn stopped() -> io::Error {
    io::Error::other("the writing thread has stopped")
}

/// The writer of one object's bytes, in order. Between flushes it has no thread.
pub(super) struct StagedStream<F: FileSystem> {
    shared: Arc<LocalShared<F>>,
    file: Arc<F::Handle>,
    sink: Arc<FileSink<F>>,
    /// Bytes appended since the last flush, while they are at most [`Staging::small_bytes_max`].
    small: Vec<u8>,
    /// The block that is being filled, after more bytes came.
    block: Option<WriteBlock>,
    threads: Option<WritingThreads>,
    /// Empty blocks, out of `blocks` in all.
    spare: Vec<WriteBlock>,
    blocks: usize,
    /// The process that owns the threads and the file.
    process: u32,
}

impl<F: FileSystem> StagedStream<F> {
    /// Starts at the front of the empty `file`, or of a lane of it. `direct`: large objects bypass
    /// the page cache.
    pub(super) fn new(
        shared: &Arc<LocalShared<F>>,
        file: F::Handle,
        lane: Lane,
        direct: bool,
        size_hint: Option<u64>,
    ) -> Self {
        let small_max = shared.staging.small_bytes_max;
        let hint = usize::try_from(size_hint.unwrap_or(0)).unwrap_or(usize::MAX);
        // An object known to be large is written to a block from the start.
        let small = Vec::with_capacity(if hint > small_max { 0 } else { hint });
        let file = Arc::new(file);
        shared.blocks.begin();
        let sink = FileSink {
            shared: Arc::clone(shared),
            file: Arc::clone(&file),
            lane,
            size_hint: size_hint.unwrap_or(0),
            state: Mutex::new(SinkState {
                position: 0,
                failed: None,
                wants_direct: direct && shared.staging.direct,
                direct: false,
                reserved: Some(0),
                is_reserving: false,
                longest: 0,
            }),
        };
        Self {
            shared: Arc::clone(shared),
            file,
            sink: Arc::new(sink),
            small,
            block: None,
            threads: None,
            spare: Vec::new(),
            blocks: 0,
            process: std::process::id(),
        }
    }

    /// Returns the file, which has the bytes up to the last flush.
    pub(super) fn file(&self) -> &F::Handle {
        &self.file
    }

    /// Takes `bytes`; an error may stem from earlier bytes.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.block.is_none() {
            if self.small.len() + bytes.len() <= self.shared.staging.small_bytes_max {
                self.small.extend_from_slice(bytes);
                return Ok(());
            }
            self.start_blocks()?;
            let small = std::mem::take(&mut self.small);
            self.append(&small)?;
        }
        while !bytes.is_empty() {
            let mut block = match self.block.take() {
                Some(block) if block.is_full() => self.exchange(block)?,
                Some(block) => block,
                None => self.empty_block()?,
            };
            bytes = &bytes[block.fill(bytes)..];
            self.block = Some(block);
        }
        Ok(())
    }

    /// Writes and waits for all staged bytes, and truncates reserved space. After success more
    /// bytes may be appended; after a failure none.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(threads) = self.threads.take() {
            threads.finish(&mut self.spare)?;
        }
        if let Some(mut block) = self.block.take() {
            self.sink.write_block(&block)?;
            block.length = 0;
            self.spare.push(block);
        } else {
            // This memory has any alignment.
            self.sink.set_direct(&mut self.sink.state(), false)?;
            self.sink.write(&self.small)?;
            self.small.clear();
        }
        self.sink.cut()
    }

    /// As [`StagedStream::flush`]; returns the file after closing all other handles.
    pub(super) fn finish(mut self) -> io::Result<F::Handle> {
        self.flush()?;
        let file = Arc::clone(&self.file);
        drop(self);
        Arc::into_inner(file).ok_or_else(|| io::Error::other("the file is still in use"))
    }

    #[cfg(test)]
    pub(super) fn has_thread(&self) -> bool {
        self.threads.is_some()
    }

    /// Returns the most writes in flight.
    fn writes(&self) -> usize {
        let (each, lanes) = (self.shared.staging.writes_max, self.sink.lane.lanes().count());
        (2 * each / (lanes as usize).max(1)).clamp(1, each.max(1))
    }

    /// Returns the most blocks in use.
    fn blocks_max(&self) -> usize {
        self.shared.staging.blocks_max + self.writes() - 1
    }

    /// Takes the first block of an object that is larger than expected, and starts threads if they
    /// pay.
    fn start_blocks(&mut self) -> io::Result<()> {
        self.block = Some(self.empty_block()?);
        let direct = {
            let mut state = self.sink.state();
            state.wants_direct && self.sink.set_direct(&mut state, true).is_ok()
        };
        let staging = &self.shared.staging;
        if direct && staging.blocks_max > 1 && self.shared.system.is_overlapped() {
            self.threads = WritingThreads::start(&self.sink, self.writes(), self.blocks_max());
        }
        Ok(())
    }

    /// Passes the full `block` to a writing thread and returns an empty one.
    fn exchange(&mut self, mut block: WriteBlock) -> io::Result<WriteBlock> {
        if self.threads.is_none() {
            self.sink.write_block(&block)?;
            block.length = 0;
            return Ok(block);
        }
        let next = self.empty_block()?;
        if let Some(threads) = &self.threads {
            threads.send(self.sink.take(block.length), block)?;
        }
        Ok(next)
    }

    fn empty_block(&mut self) -> io::Result<WriteBlock> {
        let staging = &self.shared.staging;
        match (self.spare.pop(), &self.threads) {
            (Some(block), _) => Ok(block),
            (None, Some(threads)) if self.blocks >= self.blocks_max() => threads.receive(),
            (None, _) => {
                self.blocks += 1;
                let new = || WriteBlock::new(staging.block_bytes.next_multiple_of(ALIGNMENT));
                self.shared.blocks.take().map_or_else(new, Ok)
            }
        }
    }
}

impl<F: FileSystem> Drop for StagedStream<F> {
    fn drop(&mut self) {
        let threads = self.threads.take();
        if self.process != std::process::id() {
            // A fork copies the value, but not the threads, and the file belongs to the parent.
            std::mem::forget(threads);
            return;
        }
        if let Some(threads) = threads {
            let _ = threads.finish(&mut self.spare);
        }
        // Reserved space would be lost to all users for as long as the file has a name.
        let _ = self.sink.cut();
        if !self.sink.lane.is_alone() {
            self.sink.release_stripes();
        }
        self.shared.blocks.end(self.spare.drain(..).chain(self.block.take()));
    }
}
