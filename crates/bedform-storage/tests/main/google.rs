//! Google Cloud Storage, as far as its documentation of the XML API says what a server does: objects have
//! generations, and their names (`ETag`) are those of their bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bedform_format::ObjectPath;
use bedform_storage::conformance::check;
use bedform_storage::{
    Condition, Durability, Hint, Mode, RemoteOptions, RemoteStorage, Storage, StorageErrorKind,
};

type Fields = BTreeMap<String, String>;

struct Found {
    bytes: Vec<u8>,
    generation: u64,
    /// Fields that came with it, and go with each answer.
    metadata: Fields,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Found>,
    generations: u64,
    /// Methods of which the next answer is lost.
    lost: Vec<&'static str>,
    /// Writes that are told to come later.
    busy: usize,
    /// Requests that said who asks.
    signed: usize,
    asked: Vec<String>,
}

/// A server of one thread a connection, gone with the test process.
struct Google {
    address: String,
    bucket: Arc<Mutex<Bucket>>,
}

/// What is answered: status, fields, body.
type Said = (u16, String, Vec<u8>);

impl Google {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bucket = Arc::<Mutex<Bucket>>::default();
        let served = bucket.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                std::thread::spawn(move || serve(stream, &served));
            }
        });
        Self { address, bucket }
    }

    fn storage(&self, name: &str) -> RemoteStorage {
        let options = RemoteOptions {
            anonymous: true,
            endpoint: Some(format!("http://{}", self.address)),
            pause: Duration::from_millis(1),
            deadline: Duration::from_millis(500),
            ..RemoteOptions::default()
        };
        RemoteStorage::open(&format!("gs://bucket/{name}"), Mode::Create, &options).unwrap()
    }
}

/// Answers one request, and closes the connection.
fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok().map(|_| line.trim_end().to_owned())
    };
    let first = line()?;
    let mut fields = Fields::new();
    while let Some((name, value)) = line()?.split_once(": ") {
        fields.insert(name.to_lowercase(), value.to_owned());
    }
    let length = fields.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let ((status, more, body), is_lost) = {
        let mut bucket = bucket.lock().unwrap();
        bucket.asked.push(first.clone());
        bucket.signed += usize::from(fields.contains_key("authorization"));
        let lost = bucket.lost.iter().position(|lost| *lost == method);
        let is_lost = lost.map(|at| bucket.lost.remove(at)).is_some();
        (bucket.answer(method, target, &fields, body), is_lost)
    };
    if is_lost {
        return None;
    }
    let length = if more.contains("Content-Length") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("HTTP/1.1 {status} said\r\n{length}Connection: close\r\n{more}\r\n");
    let mut stream = stream;
    let body = if method == "HEAD" { &[][..] } else { &body };
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
}

fn error(status: u16, code: &str) -> Said {
    let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code></Error>");
    (status, String::new(), body.into_bytes())
}

/// The name of an object's bytes.
fn tag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:032x}\"")
}

fn decoded(text: &str) -> String {
    let (mut plain, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *byte == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                plain.push(code);
                rest = &after[2..];
            }
            None => {
                plain.push(if *byte == b'+' { b' ' } else { *byte });
                rest = after;
            }
        }
    }
    String::from_utf8(plain).unwrap()
}

impl Bucket {
    fn answer(&mut self, method: &str, target: &str, fields: &Fields, body: Vec<u8>) -> Said {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Some(path) = path.strip_prefix("/bucket") else { return error(404, "NoSuchBucket") };
        let name = decoded(path.trim_start_matches('/'));
        match method {
            "GET" if name.is_empty() => self.list(query),
            "GET" | "HEAD" => self.get(&name, fields, method == "HEAD"),
            "PUT" => self.put(name, fields, body),
            "DELETE" => match self.objects.remove(&name) {
                Some(_) => (204, String::new(), Vec::new()),
                None => error(404, "NoSuchKey"),
            },
            _ => error(501, "NotImplemented"),
        }
    }

    fn put(&mut self, name: String, fields: &Fields, bytes: Vec<u8>) -> Said {
        if self.busy > 0 {
            self.busy -= 1;
            return error(429, "SlowDown");
        }
        let there = self.objects.get(&name).map_or(0, |found| found.generation);
        let wanted = fields.get("x-goog-if-generation-match");
        if wanted.is_some_and(|wanted| wanted.parse() != Ok(there)) {
            return error(412, "PreconditionFailed");
        }
        self.generations += 1;
        let generation = self.generations;
        let metadata = fields.iter().filter(|(name, _)| name.starts_with("x-goog-meta-"));
        let metadata = metadata.map(|(name, value)| (name.clone(), value.clone())).collect();
        let said = format!("ETag: {}\r\nx-goog-generation: {generation}\r\n", tag(&bytes));
        self.objects.insert(name, Found { bytes, generation, metadata });
        (200, said, Vec::new())
    }

    fn get(&self, name: &str, fields: &Fields, is_head: bool) -> Said {
        let Some(found) = self.objects.get(name) else { return error(404, "NoSuchKey") };
        let tag = tag(&found.bytes);
        if fields.get("if-match").is_some_and(|wanted| *wanted != tag) {
            return error(412, "PreconditionFailed");
        }
        let mut said = format!("ETag: {tag}\r\nx-goog-generation: {}\r\n", found.generation);
        said.push_str("Last-Modified: Mon, 23 Nov 2026 00:00:00 GMT\r\n");
        for (name, value) in &found.metadata {
            let _ = write!(said, "{name}: {value}\r\n");
        }
        let size = found.bytes.len();
        if is_head {
            let _ = write!(said, "Content-Length: {size}\r\n");
            return (200, said, Vec::new());
        }
        let range = fields.get("range").and_then(|range| range.strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
            return (200, said, found.bytes.clone());
        };
        let number = |text: &str| text.parse::<usize>().unwrap();
        let (start, end) = match (first, last) {
            ("", last) => (size.saturating_sub(number(last)), size),
            (first, "") => (number(first), size),
            (first, last) => (number(first), size.min(number(last) + 1)),
        };
        if start >= end {
            return error(416, "InvalidRange");
        }
        let _ = write!(said, "Content-Range: bytes {start}-{}/{size}\r\n", end - 1);
        (206, said, found.bytes[start..end].to_vec())
    }

    fn list(&self, query: &str) -> Said {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| decoded(value))
        };
        let prefix = value("prefix").unwrap_or_default();
        let delimiter = value("delimiter");
        let (mut rows, mut prefixes) = (String::new(), Vec::new());
        for (name, found) in self.objects.iter().filter(|(name, _)| name.starts_with(&prefix)) {
            let cut = delimiter.as_deref().and_then(|d| name[prefix.len()..].find(d));
            if let Some(at) = cut {
                prefixes.push(&name[..=prefix.len() + at]);
                continue;
            }
            let _ = write!(
                rows,
                "<Contents><Key>{name}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>2026-11-23T00:00:00.000Z</LastModified></Contents>",
                found.bytes.len(),
                tag(&found.bytes),
            );
        }
        prefixes.dedup();
        for prefix in prefixes {
            let _ = write!(rows, "<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
        }
        let body = format!("<ListBucketResult><Name>bucket</Name>{rows}</ListBucketResult>");
        (200, String::new(), body.into_bytes())
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

fn put(storage: &RemoteStorage, name: &str, bytes: &[u8], condition: Condition<'_>) -> bool {
    let mut writer = storage.create(&path(name), Durability::Disk, Hint::default()).unwrap();
    writer.append(bytes).unwrap();
    writer.publish(condition).is_ok()
}

#[test]
fn google_keeps_the_contract_and_is_told_no_name_by_those_who_have_none() {
    let google = Google::start();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        google.storage(&format!("checks/{}", next.get()))
    });
    let bucket = google.bucket.lock().unwrap();
    assert!(bucket.asked.len() > 100);
    assert_eq!(bucket.signed, 0);
}

#[test]
fn an_object_that_was_replaced_by_the_same_bytes_is_another() {
    let google = Google::start();
    let storage = google.storage("same");
    assert!(put(&storage, "a", b"one", Condition::Absent));
    let first = storage.open(&path("a")).unwrap();
    let other = google.storage("same");
    assert!(put(&other, "a", b"two", Condition::None));
    assert!(put(&other, "a", b"one", Condition::None));
    assert!(!put(&storage, "a", b"three", Condition::Unchanged(&*first)));
    let found = storage.open(&path("a")).unwrap();
    assert!(put(&storage, "a", b"three", Condition::Unchanged(&*found)));
}

#[test]
fn what_is_deleted_is_deleted_again_where_the_answer_is_lost() {
    let google = Google::start();
    let storage = google.storage("lost");
    for name in ["a", "b/c", "b/d"] {
        assert!(put(&storage, name, name.as_bytes(), Condition::Absent));
    }
    google.bucket.lock().unwrap().lost = vec!["DELETE"];
    storage.delete(&path("a"), Durability::Disk, Condition::None).unwrap();
    google.bucket.lock().unwrap().lost = vec!["DELETE", "DELETE"];
    storage.delete_tree(&path("b"), Durability::Disk).unwrap();
    let bucket = google.bucket.lock().unwrap();
    assert_eq!(bucket.lost, [] as [&str; 0]);
    let left = bucket.objects.keys().filter(|name| !name.contains(".bedform-"));
    assert_eq!(left.collect::<Vec<_>>(), [] as [&String; 0]);
}

#[test]
fn a_server_that_is_asked_for_too_much_is_asked_again_and_what_it_has_not_done_is_known() {
    let google = Google::start();
    let storage = google.storage("busy");
    google.bucket.lock().unwrap().busy = 5;
    assert!(put(&storage, "a", b"one", Condition::Absent));
    google.bucket.lock().unwrap().busy = usize::MAX;
    let mut writer = storage.create(&path("b"), Durability::Disk, Hint::default()).unwrap();
    writer.append(b"two").unwrap();
    let refused = writer.publish(Condition::Absent).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::Server, "{refused}");
    google.bucket.lock().unwrap().busy = 0;
    assert!(put(&storage, "b", b"two", Condition::Absent));
}
