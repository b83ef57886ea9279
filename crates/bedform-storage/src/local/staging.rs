//! Bytes on their way to a file: collected into large aligned blocks, written past the page cache by
//! a thread of their own while the caller makes more.
//!
//! Small objects never get that far: they are one buffered write.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use super::Shared;
use crate::LargeMemory;
use crate::file_system::{FileSystem, uninterrupted};

/// What offsets, lengths and addresses of direct writes are multiples of.
const ALIGNMENT: usize = 4096;

/// How many times as much is set aside at once for an object whose size was said before.
const HINTED_STEPS: u64 = 16;

/// How writers stage bytes. The defaults were measured; tests use smaller ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staging {
    /// Objects up to this size are kept in memory and written in one piece.
    pub small_bytes_max: usize,
    /// Bytes of one block; a multiple of 4,096.
    pub block_bytes: usize,
    /// Blocks that one writer has at most.
    pub blocks_max: usize,
    /// Bytes that are set aside ahead of the writes of large objects whose size is not known; for
    /// others it is sixteen times as much.
    pub reserve_bytes: u64,
    /// Write past the page cache where the system can, if the object is to be durable.
    pub direct: bool,
}

impl Default for Staging {
    fn default() -> Self {
        Self {
            small_bytes_max: 1 << 20,
            block_bytes: 2 << 20,
            blocks_max: 3,
            reserve_bytes: 64 << 20,
            direct: true,
        }
    }
}

/// A block of memory whose first byte is aligned.
struct Block {
    memory: LargeMemory,
    length: usize,
}

impl Block {
    fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self { memory: LargeMemory::new(capacity)?, length: 0 })
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[..self.length]
    }

    fn is_full(&self) -> bool {
        self.length == self.memory.len()
    }

    /// Takes what fits of `bytes` and says how much.
    fn fill(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.memory.len() - self.length);
        self.memory[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        count
    }
}

/// Writes blocks to a file, one after the other.
struct Sink<F: FileSystem> {
    shared: Arc<Shared<F>>,
    file: Arc<F::Handle>,
    position: u64,
    direct: bool,
    /// Bytes of the whole object as far as known, 0 if not.
    size_hint: u64,
    /// How long the file was made ahead of the writes; nothing where that is not to be had.
    reserved: Option<u64>,
    /// The longest that the file may have become so.
    longest: u64,
}

impl<F: FileSystem> Sink<F> {
    /// Makes the file long enough for `count` more bytes. Allocating in large steps ahead of the
    /// writes is what makes them fast, also through the page cache.
    fn reserve(&mut self, count: usize) {
        let Some(reserved) = self.reserved else { return };
        let end = self.position + count as u64;
        if end <= reserved {
            return;
        }
        // In steps: a hint may be far too large, and a full disk is everybody's.
        let step = self.shared.staging.reserve_bytes;
        let size = if self.size_hint >= end {
            end.saturating_add(step.saturating_mul(HINTED_STEPS)).min(self.size_hint)
        } else {
            end.saturating_add(step)
        };
        // A refusal may come after some of the work is done; what it means the writes will tell.
        self.longest = self.longest.max(size);
        let outcome = uninterrupted(|| self.shared.system.reserve(&self.file, size));
        self.reserved = outcome.is_ok().then_some(size);
    }

    /// Cuts off what was reserved and not written.
    fn finish(self) -> io::Result<()> {
        if self.longest <= self.position {
            return Ok(());
        }
        uninterrupted(|| self.shared.system.set_size(&self.file, self.position))
    }

    /// Writes `bytes` behind what was written before.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.reserve(bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            // The end of the object is rarely aligned: it takes the way through the page cache.
            let aligned = done + (bytes.len() - done) / ALIGNMENT * ALIGNMENT;
            if self.direct && aligned == done {
                self.leave_direct()?;
            }
            let rest = if self.direct { &bytes[done..aligned] } else { &bytes[done..] };
            match uninterrupted(|| shared.system.write_at(&self.file, self.position, rest)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    done += count;
                    self.position += count as u64;
                    if self.direct && !count.is_multiple_of(ALIGNMENT) {
                        self.leave_direct()?;
                    }
                }
                // The system took the flag but not the write.
                Err(error) if self.direct && error.kind() == io::ErrorKind::InvalidInput => {
                    self.leave_direct()?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        self.direct = false;
        uninterrupted(|| self.shared.system.set_direct(&self.file, false))
    }
}

/// Where full blocks go.
enum Outlet<F: FileSystem> {
    /// Written before the caller goes on.
    Inline(Sink<F>),
    /// Handed to a thread, which hands them back empty, or its first failure.
    Thread {
        full: SyncSender<Block>,
        empty: Receiver<io::Result<Block>>,
        thread: JoinHandle<()>,
        made: usize,
        blocks_max: usize,
    },
}

/// The bytes of one object, in order.
pub(super) struct Stream<F: FileSystem> {
    shared: Arc<Shared<F>>,
    file: Arc<F::Handle>,
    small: Vec<u8>,
    large: Option<(Block, Outlet<F>)>,
    direct: bool,
    size_hint: u64,
}

impl<F: FileSystem> Stream<F> {
    /// Starts at the front of the empty `file`. `direct`: large objects go past the page cache.
    pub(super) fn new(
        shared: &Arc<Shared<F>>,
        file: F::Handle,
        direct: bool,
        size_hint: Option<u64>,
    ) -> Self {
        let small_max = shared.staging.small_bytes_max;
        let hint = usize::try_from(size_hint.unwrap_or(0)).unwrap_or(usize::MAX);
        // An object that is known to be large goes to a block at once.
        let small = Vec::with_capacity(if hint > small_max { 0 } else { hint });
        let direct = direct && shared.staging.direct;
        Self {
            shared: Arc::clone(shared),
            file: Arc::new(file),
            small,
            large: None,
            direct,
            size_hint: size_hint.unwrap_or(0),
        }
    }

    /// Takes `bytes` over; a failure may be that of earlier ones.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.large.is_none() {
            if self.small.len() + bytes.len() <= self.shared.staging.small_bytes_max {
                self.small.extend_from_slice(bytes);
                return Ok(());
            }
            self.large = Some(self.grow()?);
            let small = std::mem::take(&mut self.small);
            self.append(&small)?;
        }
        let Some((block, outlet)) = &mut self.large else { return Ok(()) };
        while !bytes.is_empty() {
            if block.is_full() {
                outlet.exchange(block)?;
            }
            let count = block.fill(bytes);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Writes what is staged and waits for it; returns the file, of which no other handle is left.
    pub(super) fn finish(self) -> io::Result<F::Handle> {
        let sink = self.large.is_none().then(|| self.sink(false, None));
        let Self { file, small, large, .. } = self;
        if let Some(mut sink) = sink {
            sink.write(&small)?;
        }
        if let Some((block, outlet)) = large {
            outlet.finish(block)?;
        }
        Arc::into_inner(file).ok_or_else(|| io::Error::other("the file is still in use"))
    }

    fn sink(&self, direct: bool, reserved: Option<u64>) -> Sink<F> {
        Sink {
            shared: Arc::clone(&self.shared),
            file: Arc::clone(&self.file),
            position: 0,
            direct,
            size_hint: self.size_hint,
            reserved,
            longest: 0,
        }
    }

    /// The first block and the outlet of an object that turns out to be large.
    fn grow(&self) -> io::Result<(Block, Outlet<F>)> {
        let staging = &self.shared.staging;
        let capacity = staging.block_bytes.next_multiple_of(ALIGNMENT);
        let direct = self.direct && self.shared.system.set_direct(&self.file, true).is_ok();
        let sink = || self.sink(direct, Some(0));
        let is_threaded = direct && staging.blocks_max > 1 && self.shared.system.is_overlapped();
        let outlet = if is_threaded { Outlet::thread(sink(), staging.blocks_max) } else { None };
        Ok((Block::new(capacity)?, outlet.unwrap_or_else(|| Outlet::Inline(sink()))))
    }
}

impl<F: FileSystem> Outlet<F> {
    /// An outlet with a thread of its own, or none if the system has no more.
    fn thread(mut sink: Sink<F>, blocks_max: usize) -> Option<Self> {
        let (full, incoming) = sync_channel::<Block>(blocks_max);
        let (outgoing, empty): (Sender<io::Result<Block>>, _) = channel();
        let work = move || {
            for mut block in incoming {
                let outcome = sink.write(block.bytes());
                let is_over = outcome.is_err();
                block.length = 0;
                if outgoing.send(outcome.map(|()| block)).is_err() || is_over {
                    return;
                }
            }
            if let Err(error) = sink.finish() {
                let _ = outgoing.send(Err(error));
            }
        };
        let name = "bedform-write".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(work).ok()?;
        Some(Self::Thread { full, empty, thread, made: 1, blocks_max })
    }

    /// Takes the full `block` and leaves an empty one in its place.
    fn exchange(&mut self, block: &mut Block) -> io::Result<()> {
        match self {
            Self::Inline(sink) => {
                sink.write(block.bytes())?;
                block.length = 0;
            }
            Self::Thread { full, empty, made, blocks_max, .. } => {
                let next = if *made < *blocks_max {
                    *made += 1;
                    Block::new(block.memory.len())?
                } else {
                    empty.recv().map_err(|_| stopped())??
                };
                let filled = std::mem::replace(block, next);
                if full.send(filled).is_err() {
                    return Err(empty.iter().find_map(Result::err).unwrap_or_else(stopped));
                }
            }
        }
        Ok(())
    }

    /// Writes the last `block` and waits until all are written.
    fn finish(self, block: Block) -> io::Result<()> {
        match self {
            Self::Inline(mut sink) => {
                sink.write(block.bytes())?;
                sink.finish()
            }
            Self::Thread { full, empty, thread, .. } => {
                let sent = full.send(block);
                drop(full);
                let failure = empty.iter().find_map(Result::err);
                let joined = thread.join();
                match failure {
                    Some(error) => Err(error),
                    None if sent.is_err() || joined.is_err() => Err(stopped()),
                    None => Ok(()),
                }
            }
        }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the writing thread has stopped")
}
