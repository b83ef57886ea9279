//! An HTTP server on this machine, whose answers each test defines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bedform_format::ObjectPath;
use bedform_remote::{RemoteOptions, RemoteStorage};
use bedform_storage::{Condition, Durability, Storage, WriteHint};

pub(crate) type Fields = BTreeMap<String, String>;

pub(crate) struct Request {
    pub(crate) method: String,
    /// As it was sent, without the query.
    pub(crate) path: String,
    query: String,
    /// By name, in small letters.
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn read(from: &mut impl BufRead) -> Option<Self> {
        let first = line(from)?;
        let mut words = first.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let fields = read_fields(from)?;
        let length = fields.get("content-length").and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        from.read_exact(&mut body).ok()?;
        Some(Self { method, path, query, fields, body })
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// Returns a value of the query.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| decoded(&value.replace('+', " ")))
    }

    /// Returns the fields whose names begin with `prefix`, in the form of an answer.
    pub(crate) fn fields_below(&self, prefix: &str) -> String {
        let wanted = self.fields.iter().filter(|(name, _)| name.starts_with(prefix));
        wanted.map(|(name, value)| format!("{name}: {value}\r\n")).collect()
    }
}

fn line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

/// Reads fields up to the empty line after them.
pub(crate) fn read_fields(from: &mut impl BufRead) -> Option<Fields> {
    let mut fields = Fields::new();
    while let Some((name, value)) = line(from)?.split_once(": ") {
        fields.insert(name.to_lowercase(), value.to_owned());
    }
    Some(fields)
}

/// Returns a text without percent escapes.
pub(crate) fn decoded(text: &str) -> String {
    let (mut plain, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *byte == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        plain.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(plain).unwrap()
}

/// Returns a text with XML escapes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// An answer. The body is not sent if the request is a HEAD.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Lines, with their ends.
    pub(crate) fields: String,
    pub(crate) body: Vec<u8>,
    /// Bytes at the end of the body that are promised and not sent.
    pub(crate) cut_off: usize,
}

impl Reply {
    pub(crate) fn new(status: u16, fields: String, body: impl Into<Vec<u8>>) -> Self {
        Self { status, fields, body: body.into(), cut_off: 0 }
    }

    /// Returns `bytes`, or those in `range`; `None` if the range has none of them.
    pub(crate) fn part(range: Option<&str>, fields: String, bytes: &[u8]) -> Option<Self> {
        let Some(range) = range else { return Some(Self::new(200, fields, bytes)) };
        let Range { start, end } = part_of(range, bytes.len())?;
        let (last, size) = (end - 1, bytes.len());
        let fields = format!("{fields}Content-Range: bytes {start}-{last}/{size}\r\n");
        Some(Self::new(206, fields, &bytes[start..end]))
    }

    pub(crate) fn send(&self, stream: &mut TcpStream, method: &str) -> Option<()> {
        let Self { status, fields, body, cut_off } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} said\r\nContent-Length: {length}\r\nConnection: close\r\n{fields}\r\n"
        );
        let body = if method == "HEAD" { &[][..] } else { &body[..length - cut_off] };
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
    }
}

fn part_of(range: &str, size: usize) -> Option<Range<usize>> {
    let number = |text: &str| text.parse::<usize>().unwrap();
    let (start, end) = match range.strip_prefix("bytes=")?.split_once('-')? {
        ("", last) => (size.saturating_sub(number(last)), size),
        (first, "") => (number(first), size),
        (first, last) => (number(first), size.min(number(last) + 1)),
    };
    (start < end).then_some(start..end)
}

/// A row of a list: an object, or a common prefix of several names.
pub(crate) enum Row<'a, T> {
    Object(&'a str, &'a T),
    Prefix(&'a str),
}

impl<'a, T> Row<'a, T> {
    pub(crate) fn name(&self) -> &'a str {
        match self {
            Self::Object(name, _) | Self::Prefix(name) => name,
        }
    }
}

/// Returns the rows of the list that `request` asks for, sorted by name.
pub(crate) fn rows<'a, T>(objects: &'a BTreeMap<String, T>, request: &Request) -> Vec<Row<'a, T>> {
    let prefix = request.value("prefix").unwrap_or_default();
    let delimiter = request.value("delimiter");
    let below = objects.iter().filter(|(name, _)| name.starts_with(&prefix));
    let mut rows: Vec<_> = below
        .map(|(name, object)| {
            let cut = delimiter.as_deref().and_then(|cut| name[prefix.len()..].find(cut));
            match cut {
                Some(at) => Row::Prefix(&name[..=prefix.len() + at]),
                None => Row::Object(name, object),
            }
        })
        .collect();
    rows.dedup_by_key(|row| row.name());
    rows
}

/// The contents of a server, and its answers.
pub(crate) trait Service: Send + 'static {
    /// Returns the answer; `None` breaks the connection.
    fn answer(&mut self, request: &mut Request) -> Option<Reply>;
}

pub(crate) struct State<S> {
    pub(crate) service: S,
    /// Methods whose next answer is lost.
    pub(crate) lost: Vec<&'static str>,
    pub(crate) asked: Vec<Request>,
}

/// A server with one thread per connection, which ends with the test process.
pub(crate) struct Server<S> {
    pub(crate) address: String,
    state: Arc<Mutex<State<S>>>,
}

impl<S: Service> Server<S> {
    pub(crate) fn start(service: S) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State { service, lost: Vec::new(), asked: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || serve(stream, &served));
            }
        });
        Self { address, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap()
    }

    /// Returns options for unsigned requests to this server.
    pub(crate) fn options(&self) -> RemoteOptions {
        RemoteOptions {
            anonymous: true,
            endpoint: Some(format!("http://{}", self.address)),
            pause: Duration::from_millis(1),
            deadline: PATIENCE,
            ..RemoteOptions::default()
        }
    }
}

/// Answers one request, and closes the connection.
fn serve<S: Service>(mut stream: TcpStream, state: &Mutex<State<S>>) -> Option<()> {
    let mut request = Request::read(&mut BufReader::new(stream.try_clone().ok()?))?;
    let method = request.method.clone();
    let reply = {
        let mut state = state.lock().unwrap();
        let reply = state.service.answer(&mut request);
        let lost = state.lost.iter().position(|lost| *lost == request.method);
        let lost = lost.map(|at| state.lost.remove(at));
        state.asked.push(request);
        if lost.is_none() { reply } else { None }
    };
    reply?.send(&mut stream, &method)
}

pub(crate) fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

/// A time that only an event that never comes needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until `condition` holds, for minutes at most; `awaited` names the condition.
pub(crate) fn wait_until(awaited: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {awaited}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes an object, and returns whether the condition held.
pub(crate) fn put(
    storage: &RemoteStorage,
    name: &str,
    bytes: &[u8],
    condition: Condition<'_>,
) -> bool {
    let mut writer = storage.create(&path(name), Durability::Disk, WriteHint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(condition).is_ok()
}
