//! Objects of a server, which this starts, and which fails as told.

#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bedform_format::ObjectPath;
use bedform_storage::{
    CalibrateOptions, Condition, Durability, Hint, Mode, RemoteOptions, RemoteStorage, Storage,
    StorageError, StorageErrorKind, calibrate_url,
};

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Good,
    /// Whole objects, whatever part is asked for.
    Whole,
    /// The bytes that are there now, whatever version is asked for.
    Unconditional,
    Status(u16),
    /// No answer at all.
    Reset,
    /// Half of the bytes that the answer promises.
    CutOff,
}

#[derive(Default)]
struct Content {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    changes: u64,
    /// What comes next; then good answers.
    answers: Vec<Answer>,
}

/// A server of one thread a connection, gone with the test process.
struct Server {
    address: String,
    content: Arc<Mutex<Content>>,
    requests: Arc<AtomicU64>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (content, requests) = (Arc::<Mutex<Content>>::default(), Arc::<AtomicU64>::default());
        let (served, counted) = (content.clone(), requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (served, counted) = (served.clone(), counted.clone());
                std::thread::spawn(move || serve(stream, &served, &counted));
            }
        });
        Self { address, content, requests }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let mut content = self.content.lock().unwrap();
        content.changes += 1;
        let change = content.changes;
        content.objects.insert(format!("/a b/{name}"), (bytes.to_vec(), change));
    }

    fn answers(&self, answers: &[Answer]) {
        self.content.lock().unwrap().answers = answers.iter().rev().copied().collect();
    }

    fn storage(&self) -> RemoteStorage {
        let options = RemoteOptions {
            pause: Duration::from_millis(1),
            deadline: Duration::from_secs(2),
            ..RemoteOptions::default()
        };
        RemoteStorage::open(&format!("http://{}/a%20b/", self.address), Mode::ReadOnly, &options)
            .unwrap()
    }
}

/// Answers one request, and closes the connection.
fn serve(mut stream: TcpStream, content: &Mutex<Content>, requests: &AtomicU64) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: BTreeMap<String, String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned())))
        .collect();
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap().replace("%20", " "));
    requests.fetch_add(1, Ordering::SeqCst);
    let (answer, found) = {
        let mut content = content.lock().unwrap();
        (content.answers.pop().unwrap_or(Answer::Good), content.objects.get(&target).cloned())
    };
    let mut say = |status: u16, more: &str, length: usize, body: &[u8]| {
        let head = format!(
            "HTTP/1.1 {status} said\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n"
        );
        let body = if method == "HEAD" { &[][..] } else { body };
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    };
    let Some((bytes, change)) = found else { return say(404, "", 0, b"") };
    let tag = format!("\"{change}\"");
    let more = format!("ETag: {tag}\r\nLast-Modified: Mon, 23 Nov 2026 00:00:00 GMT\r\n");
    match answer {
        Answer::Reset => return,
        Answer::Status(status) => {
            let body = b"<Error><Code>SlowDown</Code><Message>not now</Message></Error>";
            return say(status, "", body.len(), body);
        }
        _ => {}
    }
    if answer != Answer::Unconditional
        && headers.get("if-match").is_some_and(|wanted| *wanted != tag)
    {
        return say(412, &more, 0, b"");
    }
    let range = headers.get("range").filter(|_| answer != Answer::Whole);
    let Some(range) = range.and_then(|range| range.strip_prefix("bytes=")) else {
        return say(200, &more, bytes.len(), &bytes);
    };
    let (start, end) = match range.split_once('-').unwrap() {
        ("", last) => (bytes.len().saturating_sub(last.parse().unwrap()), bytes.len()),
        (first, "") => (first.parse().unwrap(), bytes.len()),
        (first, last) => (first.parse().unwrap(), last.parse::<usize>().unwrap() + 1),
    };
    let end = end.min(bytes.len());
    if start >= end {
        return say(416, "", 0, b"");
    }
    let more = format!("{more}Content-Range: bytes {start}-{}/{}\r\n", end - 1, bytes.len());
    let sent = if answer == Answer::CutOff { start + (end - start) / 2 } else { end };
    say(206, &more, end - start, &bytes[start..sent]);
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

fn read(
    storage: &RemoteStorage,
    name: &str,
    start: usize,
    length: usize,
) -> Result<Vec<u8>, StorageError> {
    let mut bytes = vec![0; length];
    storage.open(&path(name))?.read(start as u64, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn objects_of_a_server_are_read_as_they_are() {
    let server = Server::start();
    let storage = server.storage();
    for length in [0, 1, 65_535, 65_536, 65_537, 300_000] {
        let bytes = pattern(length);
        server.put("d/a", &bytes);
        let object = storage.open(&path("d/a")).unwrap();
        assert_eq!(object.version().size, length as u64);
        assert_eq!(*object.version(), storage.stat(&path("d/a")).unwrap());
        for start in [0, 1, length / 2, length.saturating_sub(65_537), length.saturating_sub(9)] {
            for part in [0, 1, 100, length / 3, length - start.min(length)] {
                let start = start.min(length);
                let part = part.min(length - start);
                let mut found = vec![0; part];
                object.read(start as u64, &mut found).unwrap();
                assert_eq!(found, bytes[start..start + part], "{part} of {length} at {start}");
            }
        }
        for (start, part) in [(0, length + 1), (length, 1), (usize::MAX - 1, 4)] {
            let error = object.read(start as u64, &mut vec![0; part]).unwrap_err();
            assert_eq!(error.kind, StorageErrorKind::Truncated);
        }
    }
    for name in ["missing", "d"] {
        assert_eq!(storage.open(&path(name)).unwrap_err().kind, StorageErrorKind::NotFound);
        assert_eq!(storage.stat(&path(name)).unwrap_err().kind, StorageErrorKind::NotFound);
    }
}

#[test]
fn a_document_costs_one_request_and_a_part_of_a_large_object_one_more() {
    let server = Server::start();
    let storage = server.storage();
    server.put("small", &pattern(5000));
    server.put("large", &pattern(500_000));
    let count = |name: &str, start: usize, length: usize| {
        let before = server.requests.load(Ordering::SeqCst);
        read(&storage, name, start, length).unwrap();
        server.requests.load(Ordering::SeqCst) - before
    };
    assert_eq!(count("small", 0, 5000), 1);
    assert_eq!(count("large", 499_000, 1000), 1, "the end, where the index of a shard lies");
    assert_eq!(count("large", 0, 100_000), 2);
    assert_eq!(count("large", 0, 500_000), 2);
}

#[test]
fn an_object_that_was_replaced_or_deleted_is_a_conflict_and_never_a_mixture() {
    for answer in [Answer::Good, Answer::Unconditional] {
        let server = Server::start();
        let storage = server.storage();
        server.put("a", &pattern(300_000));
        let object = storage.open(&path("a")).unwrap();
        assert!(object.is_current().unwrap());
        server.put("a", &[9; 300_000]);
        assert!(!object.is_current().unwrap());
        server.answers(&[answer]);
        let error = object.read(0, &mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Conflict, "{error}");
        // What came when it was opened is of that version.
        let mut end = [0; 1000];
        object.read(299_000, &mut end).unwrap();
        assert_eq!(end[..], pattern(300_000)[299_000..]);
        server.content.lock().unwrap().objects.clear();
        let error = object.read(0, &mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Conflict, "{error}");
        assert!(!object.is_current().unwrap());
    }
}

#[test]
fn errors_that_pass_are_tried_again_and_no_byte_is_wrong() {
    let server = Server::start();
    let storage = server.storage();
    let bytes = pattern(400_000);
    server.put("a", &bytes);
    let faults = [
        Answer::Good,
        Answer::Good,
        Answer::Status(503),
        Answer::Status(429),
        Answer::Status(500),
        Answer::Reset,
        Answer::CutOff,
    ];
    for seed in 1..=200_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        let answers: Vec<Answer> =
            (0..6).map(|_| faults[below(faults.len() as u64) as usize]).collect();
        server.answers(&answers);
        let start = below(399_000) as usize;
        let length = below((400_000 - start) as u64) as usize;
        match read(&storage, "a", start, length) {
            Ok(found) => {
                assert_eq!(found, bytes[start..start + length], "seed {seed}: {answers:?}")
            }
            // Half an answer again and again is no answer.
            Err(error) => panic!("seed {seed}: {answers:?}: {error}"),
        }
    }
}

#[test]
fn a_server_that_gives_no_parts_is_read_whole() {
    let server = Server::start();
    let storage = server.storage();
    let bytes = pattern(200_000);
    server.put("a", &bytes);
    server.answers(&[Answer::Whole; 9]);
    assert_eq!(read(&storage, "a", 10, 1000).unwrap(), bytes[10..1010]);
}

#[test]
fn errors_that_stay_say_what_the_server_said_within_the_deadline() {
    let server = Server::start();
    let storage = server.storage();
    server.put("a", b"x");
    let said = |status: u16| {
        server.answers(&[Answer::Status(status); 40]);
        let begun = Instant::now();
        let error = storage.open(&path("a")).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(20));
        (error.kind, error.to_string())
    };
    let (kind, text) = said(503);
    assert_eq!(kind, StorageErrorKind::Server);
    assert!(text.contains("not now [SlowDown]"), "{text}");
    let (kind, text) = said(403);
    assert_eq!(kind, StorageErrorKind::PermissionDenied);
    assert!(text.contains("these credentials give no access"), "{text}");
    let (kind, text) = said(401);
    assert_eq!(kind, StorageErrorKind::PermissionDenied);
    assert!(text.contains("credentials are needed"), "{text}");
    let nobody = RemoteStorage::open(
        "http://127.0.0.1:9/x",
        Mode::ReadOnly,
        &RemoteOptions { deadline: Duration::from_millis(200), ..RemoteOptions::default() },
    );
    assert_eq!(nobody.unwrap().open(&path("a")).unwrap_err().kind, StorageErrorKind::Server);
}

#[test]
fn plain_servers_are_only_read() {
    let server = Server::start();
    let (storage, url) = (server.storage(), format!("http://{}/x", server.address));
    assert!(RemoteStorage::open(&url, Mode::ReadWrite, &RemoteOptions::default()).is_err());
    let refused = Some(StorageErrorKind::ReadOnly);
    let kind = |error: Option<StorageError>| error.map(|error| error.kind);
    let a = path("a");
    assert_eq!(kind(storage.create(&a, Durability::Disk, Hint::default()).err()), refused);
    assert_eq!(kind(storage.grow(&a, Durability::Disk, None).err()), refused);
    assert_eq!(kind(storage.delete(&a, Durability::Disk, Condition::None).err()), refused);
    assert_eq!(kind(storage.delete_tree(&a, Durability::Disk).err()), refused);
    assert_eq!(kind(storage.lock(&a).err()), refused);
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

#[test]
fn urls_that_are_no_places_are_refused_without_their_secrets() {
    for url in [
        "s3://",
        "s3:///path",
        "s3://key:secret@bucket/path",
        "https://host/path?sig=secret",
        "https://user:secret@host/path",
        "ftp://host/secret",
        "no url",
    ] {
        let error = RemoteStorage::open(url, Mode::ReadOnly, &RemoteOptions::default())
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret") || url.starts_with("ftp"), "{error}");
    }
}

#[test]
fn a_server_of_files_is_measured_by_a_file_of_it() {
    let server = Server::start();
    server.put("large", &pattern(2 << 20));
    let options = CalibrateOptions { seconds_max: 0.2, ..CalibrateOptions::default() };
    let measure = |name: &str| {
        let url = format!("http://{}/a%20b/{name}", server.address);
        calibrate_url(
            &url,
            &RemoteOptions::default(),
            &options,
            &AtomicBool::new(false),
            &mut |_| {},
        )
    };
    let profile = measure("large").unwrap();
    profile.check().unwrap();
    assert!(profile.notes.iter().any(|note| note.contains("writing was not measured")));
    let error = measure("missing").unwrap_err().to_string();
    assert!(error.contains("no object of 1 MiB or more"), "{error}");
}
