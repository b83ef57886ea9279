//! One side of a connection, and bodies that move between the two sides at a limited bandwidth.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

use super::head::{Head, invalid};

const HEAD_BYTES_MAX: usize = 64 << 10;
/// The most bytes passed on at a time: 6.6 ms of a stream of 80 MB/s.
const PIECE_BYTES: usize = 512 << 10;

/// The bandwidth of one stream, counted from its beginning.
pub(crate) struct Pace {
    begun: Instant,
    bytes_per_second: f64,
    moved: u64,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: f64) -> Self {
        Self { begun: Instant::now(), bytes_per_second, moved: 0 }
    }

    /// Waits until `bytes` more bytes may have arrived.
    fn keep(&mut self, bytes: u64) {
        self.moved += bytes;
        let due = Duration::from_secs_f64(self.moved as f64 / self.bytes_per_second);
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
    }
}

/// A socket, with bytes that were read after a head.
pub(crate) struct Peer {
    socket: TcpStream,
    ahead: Vec<u8>,
}

impl Peer {
    pub(crate) fn new(socket: TcpStream) -> Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, ahead: Vec::new() })
    }

    /// Reads the next head; `None` if the other side closed the connection.
    pub(crate) fn head(&mut self) -> Result<Option<Head>> {
        let mut piece = [0; 16 << 10];
        loop {
            if let Some(head) = Head::take(&mut self.ahead) {
                return Ok(Some(head));
            }
            if self.ahead.len() > HEAD_BYTES_MAX {
                return Err(invalid("a head has no end"));
            }
            match self.socket.read(&mut piece)? {
                0 => return Ok(None),
                length => self.ahead.extend_from_slice(&piece[..length]),
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes)
    }

    /// Passes on `length` bytes: each piece is sent at the time at which it may arrive, none
    /// earlier.
    pub(crate) fn pass(
        &mut self,
        to: &mut Self,
        length: u64,
        mut pace: Pace,
        pipe: &Pipe,
    ) -> Result<()> {
        let known = usize::try_from(length).unwrap_or(usize::MAX).min(self.ahead.len());
        if known > 0 {
            pace.keep(known as u64);
            to.socket.write_all(&self.ahead[..known])?;
            self.ahead.drain(..known);
        }
        let mut left = length - known as u64;
        while left > 0 {
            let moved = pipe.fill(&self.socket, left.min(PIECE_BYTES as u64))?;
            pace.keep(moved);
            pipe.empty(&to.socket, moved)?;
            left -= moved;
        }
        Ok(())
    }
}

/// A kernel pipe, through which bytes move from socket to socket.
pub(crate) struct Pipe {
    exit: OwnedFd,
    entry: OwnedFd,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self> {
        let (exit, entry) = pipe()?;
        // Sockets deliver parts of pages, and the first few would fill a pipe of the default size.
        let _ = fcntl_setpipe_size(&entry, 2 * PIECE_BYTES);
        Ok(Self { exit, entry })
    }

    fn fill(&self, from: &TcpStream, length: u64) -> Result<u64> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match splice(from, None, &self.entry, None, length, SpliceFlags::MOVE)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            moved => Ok(moved as u64),
        }
    }

    fn empty(&self, to: &TcpStream, mut left: u64) -> Result<()> {
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX);
            left -= splice(&self.exit, None, to, None, length, SpliceFlags::MOVE)? as u64;
        }
        Ok(())
    }
}
