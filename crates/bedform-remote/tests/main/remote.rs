//! Objects of a local server that fails on request.

#![allow(clippy::cast_possible_truncation)]

use std::collections::BTreeMap;
use std::time::Duration;

use bedform_remote::{RemoteOptions, RemoteStorage, calibrate};
use bedform_storage::{
    CalibrateOptions, Condition, Durability, Mode, Storage, StorageError, StorageErrorKind,
    WriteHint,
};

use super::server::{Reply, Request, Server, Service, decoded, path};

/// The server's treatment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Good,
    /// The whole object, for any requested range.
    Whole,
    /// The present bytes, for any requested version.
    Unconditional,
    Status(u16),
    /// No answer at all.
    Reset,
    /// Half of the promised bytes.
    CutOff,
}

#[derive(Default)]
struct Content {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    changes: u64,
    /// The next answers; then good ones.
    answers: Vec<Answer>,
}

impl Service for Content {
    fn answer(&mut self, request: &mut Request) -> Option<Reply> {
        let answer = self.answers.pop().unwrap_or(Answer::Good);
        let Some((bytes, change)) = self.objects.get(&decoded(&request.path)) else {
            let mut missing = Reply::new(404, String::new(), "<html>There is nothing here</html>");
            missing.cut_off = if answer == Answer::CutOff { missing.body.len() / 2 } else { 0 };
            return Some(missing);
        };
        let tag = format!("\"{change}\"");
        let more = format!("ETag: {tag}\r\nLast-Modified: Mon, 23 Nov 2026 00:00:00 GMT\r\n");
        match answer {
            Answer::Reset => return None,
            Answer::Status(status) => {
                let body = "<Error><Code>SlowDown</Code><Message>not now</Message></Error>";
                return Some(Reply::new(status, String::new(), body));
            }
            _ => {}
        }
        let wanted = request.field("if-match").filter(|_| answer != Answer::Unconditional);
        if wanted.is_some_and(|wanted| wanted != tag) {
            return Some(Reply::new(412, more, []));
        }
        let range = request.field("range").filter(|_| answer != Answer::Whole);
        let Some(mut reply) = Reply::part(range, more, bytes) else {
            return Some(Reply::new(416, String::new(), []));
        };
        if answer == Answer::CutOff && reply.status == 206 {
            reply.cut_off = reply.body.len().div_ceil(2);
        }
        Some(reply)
    }
}

impl Server<Content> {
    fn of_files() -> Self {
        Self::start(Content::default())
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let content = &mut self.state().service;
        content.changes += 1;
        content.objects.insert(format!("/a b/{name}"), (bytes.to_vec(), content.changes));
    }

    fn answers(&self, answers: &[Answer]) {
        self.state().service.answers = answers.iter().rev().copied().collect();
    }

    /// Returns the number of requests so far.
    fn requests(&self) -> usize {
        self.state().asked.len()
    }

    /// Returns a storage that repeats requests for minutes: a busy machine gives up no earlier than
    /// an idle one.
    fn storage(&self) -> RemoteStorage {
        self.storage_until(Duration::from_secs(600))
    }

    fn storage_until(&self, deadline: Duration) -> RemoteStorage {
        let pause = Duration::from_millis(1);
        let options = RemoteOptions { pause, deadline, ..RemoteOptions::default() };
        RemoteStorage::open(&format!("http://{}/a%20b/", self.address), Mode::ReadOnly, &options)
            .unwrap()
    }
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
    let server = Server::of_files();
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
    let server = Server::of_files();
    let storage = server.storage();
    server.put("small", &pattern(5000));
    server.put("large", &pattern(500_000));
    let count = |name: &str, start: usize, length: usize| {
        let before = server.requests();
        read(&storage, name, start, length).unwrap();
        server.requests() - before
    };
    assert_eq!(count("small", 0, 5000), 1);
    assert_eq!(count("large", 499_000, 1000), 1, "the end, where the index of a shard lies");
    assert_eq!(count("large", 0, 100_000), 2);
    assert_eq!(count("large", 0, 500_000), 2);
}

#[test]
fn an_object_that_was_replaced_or_deleted_is_a_conflict_and_never_a_mixture() {
    for answer in [Answer::Good, Answer::Unconditional] {
        let server = Server::of_files();
        let storage = server.storage();
        server.put("a", &pattern(300_000));
        let object = storage.open(&path("a")).unwrap();
        assert!(object.is_current().unwrap());
        server.put("a", &[9; 300_000]);
        assert!(!object.is_current().unwrap());
        server.answers(&[answer]);
        let error = object.read(0, &mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Conflict, "{error}");
        // The bytes that came with the opening are of that version.
        let mut end = [0; 1000];
        object.read(299_000, &mut end).unwrap();
        assert_eq!(end[..], pattern(300_000)[299_000..]);
        server.state().service.objects.clear();
        let error = object.read(0, &mut [0; 1000]).unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Conflict, "{error}");
        assert!(!object.is_current().unwrap());
    }
}

#[test]
fn errors_that_pass_are_tried_again_and_no_byte_is_wrong() {
    let server = Server::of_files();
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
            // Repeated half answers are no answer.
            Err(error) => panic!("seed {seed}: {answers:?}: {error}"),
        }
    }
}

#[test]
fn what_a_server_of_files_has_not_is_absent_by_its_status_also_where_the_page_is_cut_off() {
    let server = Server::of_files();
    let storage = server.storage();
    for answers in [[Answer::Good; 9], [Answer::CutOff; 9]] {
        server.answers(&answers);
        assert_eq!(storage.open(&path("none")).unwrap_err().kind, StorageErrorKind::NotFound);
    }
}

#[test]
fn a_server_that_gives_no_parts_is_read_whole() {
    let server = Server::of_files();
    let storage = server.storage();
    let bytes = pattern(200_000);
    server.put("a", &bytes);
    server.answers(&[Answer::Whole; 9]);
    assert_eq!(read(&storage, "a", 10, 1000).unwrap(), bytes[10..1010]);
}

#[test]
fn errors_that_stay_say_what_the_server_said_within_the_deadline() {
    let server = Server::of_files();
    let storage = server.storage_until(Duration::from_secs(2));
    server.put("a", b"x");
    let said = |status: u16| {
        // The answer after these is good; the deadline allows fewer requests.
        server.answers(&[Answer::Status(status); 40]);
        let error = storage.open(&path("a")).unwrap_err();
        (error.kind, error.to_string())
    };
    let (kind, text) = said(503);
    assert_eq!(kind, StorageErrorKind::Server);
    assert!(text.contains("not now [SlowDown]"), "{text}");
    let (kind, text) = said(403);
    assert_eq!(kind, StorageErrorKind::PermissionDenied);
    assert!(text.contains("these credentials give no access"), "{text}");
    let (kind, text) = said(409);
    assert_eq!(kind, StorageErrorKind::Server);
    assert!(text.contains("status 409") && text.contains("not now [SlowDown]"), "{text}");
    assert!(!text.contains("exists already"), "{text}");
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
    let server = Server::of_files();
    let (storage, url) = (server.storage(), format!("http://{}/x", server.address));
    assert!(RemoteStorage::open(&url, Mode::ReadWrite, &RemoteOptions::default()).is_err());
    let refused = Some(StorageErrorKind::ReadOnly);
    let kind = |error: Option<StorageError>| error.map(|error| error.kind);
    let a = path("a");
    assert_eq!(kind(storage.create(&a, Durability::Disk, WriteHint::default()).err()), refused);
    assert_eq!(kind(storage.grow(&a, Durability::Disk, None).err()), refused);
    assert_eq!(kind(storage.delete(&a, Durability::Disk, Condition::None).err()), refused);
    assert_eq!(kind(storage.delete_tree(&a, Durability::Disk).err()), refused);
    assert_eq!(kind(storage.lock(&a).err()), refused);
    assert_eq!(server.requests(), 0);
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
    let server = Server::of_files();
    server.put("large", &pattern(2 << 20));
    let options = CalibrateOptions { seconds_max: 0.2, ..CalibrateOptions::default() };
    let measure = |name: &str| {
        let url = format!("http://{}/a%20b/{name}", server.address);
        let storage = RemoteStorage::open(&url, Mode::ReadOnly, &RemoteOptions::default()).unwrap();
        calibrate(&storage, &options, &mut |_| {})
    };
    let profile = measure("large").unwrap();
    profile.check().unwrap();
    assert!(profile.notes.iter().any(|note| note.contains("writing was not measured")));
    let error = measure("missing").unwrap_err().to_string();
    assert!(error.contains("no object of 1 MiB or more"), "{error}");
}
