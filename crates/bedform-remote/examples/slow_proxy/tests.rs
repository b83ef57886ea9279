//! The proxy with a server that sends as many bytes as requested, and echoes uploads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::head::Head;
use super::proxy::{Proxy, Slowness};

const REQUEST: Duration = Duration::from_millis(30);
const BYTES_PER_SECOND: f64 = 80e6;
/// A time that only a hanging proxy needs.
const HANGS: Duration = Duration::from_secs(600);

/// Holds the server's answers back until a number of requests has arrived.
#[derive(Clone)]
struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    fn new(requests: usize) -> Self {
        Self(Arc::new((Mutex::new(requests), Condvar::new())))
    }

    /// Counts a request and waits for the others; false if they do not arrive.
    fn pass(&self) -> bool {
        let (missing, all_here) = &*self.0;
        let mut missing = missing.lock().unwrap();
        *missing = missing.saturating_sub(1);
        all_here.notify_all();
        let (_missing, waited) =
            all_here.wait_timeout_while(missing, HANGS, |missing| *missing > 0).unwrap();
        !waited.timed_out()
    }
}

fn head_of(socket: &mut TcpStream) -> Option<Head> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(Head(head))
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Answers `GET /LENGTH` with that many bytes, and any other request with its own body.
fn answer(mut socket: TcpStream, gate: &Gate) -> Option<()> {
    while let Some(head) = head_of(&mut socket) {
        gate.pass().then_some(())?;
        let mut sent = vec![0; usize::try_from(head.upload_length().unwrap()).unwrap()];
        socket.read_exact(&mut sent).ok()?;
        let text = String::from_utf8(head.0).unwrap();
        let wanted = text.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
        let body = wanted.map_or(sent, |length| body(length.parse().unwrap()));
        let interim = if text.contains("Expect") { "HTTP/1.1 100 Continue\r\n\r\n" } else { "" };
        let answer = format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        socket.write_all(answer.as_bytes()).ok()?;
        if !text.starts_with("HEAD") {
            socket.write_all(&body).ok()?;
        }
    }
    Some(())
}

/// Starts a server behind a proxy, and returns the proxy's address.
fn start() -> SocketAddr {
    start_with(Gate::new(0))
}

/// As [`start`], with a server that answers once the gate is open.
fn start_with(gate: Gate) -> SocketAddr {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (server, front) = (listen(), listen());
    let slowness = Slowness { request: REQUEST, bytes_per_second: BYTES_PER_SECOND };
    let proxy: &Proxy = Box::leak(Box::new(Proxy::new(server.local_addr().unwrap(), slowness)));
    let place = front.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in server.incoming() {
            let gate = gate.clone();
            std::thread::spawn(move || answer(socket.unwrap(), &gate));
        }
    });
    std::thread::spawn(move || proxy.listen(&front));
    place
}

/// Sends a request, and returns the body of the answer with the elapsed time.
fn ask(socket: &mut TcpStream, head: &str, upload: &[u8]) -> (Vec<u8>, Duration) {
    let start = Instant::now();
    socket.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
    socket.write_all(upload).unwrap();
    let mut answer = head_of(socket).unwrap();
    while answer.is_interim() {
        answer = head_of(socket).unwrap();
    }
    let length = answer.answer_length(&Head(head.into())).unwrap();
    let mut body = vec![0; usize::try_from(length).unwrap()];
    socket.read_exact(&mut body).unwrap();
    (body, start.elapsed())
}

fn transfer(length: usize) -> Duration {
    Duration::from_secs_f64(length as f64 / BYTES_PER_SECOND)
}

#[test]
fn answers_arrive_as_they_are_and_not_before_their_time() {
    let mut socket = TcpStream::connect(start()).unwrap();
    // Shorter and longer than a piece, and several on one connection.
    for length in [0, 1, 1000, 100_000, 3_000_000, 12_345] {
        let (found, took) = ask(&mut socket, &format!("GET /{length} HTTP/1.1"), &[]);
        assert!(found == body(length), "{length}");
        assert!(took >= REQUEST + transfer(length), "{length}: {took:?}");
    }
}

#[test]
fn uploads_take_as_long_as_answers_and_the_request_begins_behind_them() {
    let mut socket = TcpStream::connect(start()).unwrap();
    for (length, field) in [(10, ""), (1_000_000, ""), (500_000, "\r\nExpect: 100-continue")] {
        let head = format!("PUT /x HTTP/1.1\r\nContent-Length: {length}{field}");
        let sent = body(length);
        let (found, took) = ask(&mut socket, &head, &sent);
        assert!(found == sent, "{length}");
        assert!(took >= REQUEST + 2 * transfer(length), "{length}: {took:?}");
    }
}

#[test]
fn streams_do_not_wait_for_each_other() {
    // The server answers only after the last request has arrived.
    let place = start_with(Gate::new(64));
    let ask_once = move || {
        let mut socket = TcpStream::connect(place).unwrap();
        ask(&mut socket, "GET /10 HTTP/1.1", &[]).1
    };
    let threads: Vec<_> = (0..64).map(|_| std::thread::spawn(ask_once)).collect();
    for thread in threads {
        assert!(thread.join().unwrap() >= REQUEST);
    }
}

#[test]
fn requests_and_bytes_are_counted_over_all_connections() {
    let place = start();
    let connect = || TcpStream::connect(place).unwrap();
    ask(&mut connect(), "GET /1000 HTTP/1.1", &[]);
    ask(&mut connect(), "HEAD /1000 HTTP/1.1", &[]);
    let mut last = connect();
    ask(&mut last, "PUT /x HTTP/1.1\r\ncontent-length: 7", b"seven b");
    for mut socket in [last, connect()] {
        let (counts, _) = ask(&mut socket, "GET /-/counts HTTP/1.1", &[]);
        assert_eq!(counts, br#"{"requests": 3, "bytes": 1007, "received": 7}"#);
    }
}

#[test]
fn what_does_not_say_how_long_it_is_ends_the_connection() {
    let mut socket = TcpStream::connect(start()).unwrap();
    socket.write_all(b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    // An end or a reset, depending on the bytes in flight.
    let _ = socket.read_to_end(&mut rest);
    assert!(rest.is_empty());
}
