//! Requests that are passed on with a delay, and counted.

use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::head::Head;
use super::peer::{Pace, Peer, Pipe};

const COUNTS: &[u8] = b"GET /-/counts ";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes of a thread's stack, which holds heads only.
const STACK_BYTES: usize = 256 << 10;

/// The latency of a request and the bandwidth of a stream.
pub(crate) struct Slowness {
    pub(crate) request: Duration,
    pub(crate) bytes_per_second: f64,
}

/// The server, the delays, and the counts of requests and bytes.
pub(crate) struct Proxy {
    server: SocketAddr,
    slowness: Slowness,
    requests: AtomicU64,
    answered: AtomicU64,
    received: AtomicU64,
}

/// The two sides of one client's connection.
struct Connection {
    client: Peer,
    server: Peer,
    pipe: Pipe,
}

impl Proxy {
    pub(crate) fn new(server: SocketAddr, slowness: Slowness) -> Self {
        let [requests, answered, received] = [const { AtomicU64::new(0) }; 3];
        Self { server, slowness, requests, answered, received }
    }

    /// Serves all clients, until the process ends.
    pub(crate) fn listen(&'static self, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            let serve = move || match self.serve(client) {
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    eprintln!("slow_proxy: {error}");
                }
                // One side closed its connection: that of the other side is closed as well.
                _ => {}
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(serve) {
                eprintln!("slow_proxy: no thread for a connection: {error}");
            }
        }
    }

    /// Passes on the requests of one connection, one after the other.
    fn serve(&self, client: TcpStream) -> Result<()> {
        let server = Peer::new(TcpStream::connect(self.server)?)?;
        let client = Peer::new(client)?;
        let mut connection = Connection { client, server, pipe: Pipe::new()? };
        while let Some(request) = connection.client.head()? {
            self.exchange(&mut connection, &request)?;
        }
        Ok(())
    }

    /// Passes on a request and its answer.
    fn exchange(&self, connection: &mut Connection, request: &Head) -> Result<()> {
        let Connection { client, server, pipe } = connection;
        if request.0.starts_with(COUNTS) {
            return client.send(&self.counts());
        }
        self.requests.fetch_add(1, Relaxed);
        server.send(&request.0)?;
        if request.awaits_leave() {
            client.send(CONTINUE)?;
        }
        let length = request.upload_length()?;
        client.pass(server, length, Pace::new(self.slowness.bytes_per_second), pipe)?;
        self.received.fetch_add(length, Relaxed);
        // The server answers during the latency.
        let asked = Instant::now();
        let answer = final_answer(server)?;
        std::thread::sleep(self.slowness.request.saturating_sub(asked.elapsed()));
        client.send(&answer.0)?;
        let length = answer.answer_length(request)?;
        self.answered.fetch_add(length, Relaxed);
        server.pass(client, length, Pace::new(self.slowness.bytes_per_second), pipe)
    }

    /// Returns the answer with the counts.
    fn counts(&self) -> Vec<u8> {
        let [requests, answered, received] =
            [&self.requests, &self.answered, &self.received].map(|count| count.load(Relaxed));
        let body =
            format!(r#"{{"requests": {requests}, "bytes": {answered}, "received": {received}}}"#);
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

/// Reads the final answer, after any `100 Continue`.
fn final_answer(server: &mut Peer) -> Result<Head> {
    loop {
        match server.head()? {
            Some(head) if head.is_interim() => {}
            Some(head) => return Ok(head),
            None => return Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
