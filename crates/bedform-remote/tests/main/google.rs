//! Google Cloud Storage, as far as its documentation of the XML API describes the server. Objects
//! have generations, and an `ETag` depends on the bytes alone.

use std::collections::BTreeMap;
use std::time::Duration;

use bedform_remote::{RemoteOptions, RemoteStorage};
use bedform_storage::conformance::check;
use bedform_storage::{Condition, Durability, Mode, Storage, StorageErrorKind, WriteHint};

use super::server::{self, Reply, Request, Row, Server, Service, decoded, escaped, path, put};

struct Found {
    bytes: Vec<u8>,
    generation: u64,
    /// Header fields that came with it and go with each answer.
    metadata: String,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Found>,
    generations: u64,
    /// The number of the next writes that are refused as too frequent.
    busy: usize,
}

fn google() -> Server<Bucket> {
    Server::start(Bucket::default())
}

fn open(google: &Server<Bucket>, name: &str) -> RemoteStorage {
    RemoteStorage::open(&format!("gs://bucket/{name}"), Mode::Create, &google.options()).unwrap()
}

fn error(status: u16, code: &str) -> Reply {
    let body = format!("<?xml version='1.0'?><Error><Code>{code}</Code></Error>");
    Reply::new(status, String::new(), body)
}

/// Returns the `ETag` of an object's bytes.
fn tag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("\"{hash:032x}\"")
}

impl Service for Bucket {
    fn answer(&mut self, request: &mut Request) -> Option<Reply> {
        let Some(name) = request.path.strip_prefix("/bucket") else {
            return Some(error(404, "NoSuchBucket"));
        };
        let name = decoded(name.trim_start_matches('/'));
        Some(match &*request.method {
            "GET" if name.is_empty() => self.list(request),
            "GET" | "HEAD" => self.get(&name, request),
            "PUT" => self.put(name, request),
            "DELETE" => match self.objects.remove(&name) {
                Some(_) => Reply::new(204, String::new(), []),
                None => error(404, "NoSuchKey"),
            },
            _ => error(501, "NotImplemented"),
        })
    }
}

impl Bucket {
    fn put(&mut self, name: String, request: &mut Request) -> Reply {
        if self.busy > 0 {
            self.busy -= 1;
            return error(429, "SlowDown");
        }
        let there = self.objects.get(&name).map_or(0, |found| found.generation);
        let wanted = request.field("x-goog-if-generation-match");
        if wanted.is_some_and(|wanted| wanted.parse() != Ok(there)) {
            return error(412, "PreconditionFailed");
        }
        self.generations += 1;
        let generation = self.generations;
        let metadata = request.fields_below("x-goog-meta-");
        let bytes = std::mem::take(&mut request.body);
        let said = format!("ETag: {}\r\nx-goog-generation: {generation}\r\n", tag(&bytes));
        self.objects.insert(name, Found { bytes, generation, metadata });
        Reply::new(200, said, [])
    }

    fn get(&self, name: &str, request: &Request) -> Reply {
        let Some(Found { bytes, generation, metadata }) = self.objects.get(name) else {
            return error(404, "NoSuchKey");
        };
        let tag = tag(bytes);
        if request.field("if-match").is_some_and(|wanted| wanted != tag) {
            return error(412, "PreconditionFailed");
        }
        let said = format!(
            "ETag: {tag}\r\nx-goog-generation: {generation}\r\n\
             Last-Modified: Mon, 23 Nov 2026 00:00:00 GMT\r\n{metadata}"
        );
        let part = Reply::part(request.field("range"), said, bytes);
        part.unwrap_or_else(|| error(416, "InvalidRange"))
    }

    fn list(&self, request: &Request) -> Reply {
        let row = |row: Row<'_, Found>| match row {
            Row::Object(name, Found { bytes, .. }) => format!(
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag>\
                 <LastModified>2026-11-23T00:00:00.000Z</LastModified></Contents>",
                escaped(name),
                bytes.len(),
                tag(bytes),
            ),
            Row::Prefix(name) => {
                format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escaped(name))
            }
        };
        let rows: String = server::rows(&self.objects, request).into_iter().map(row).collect();
        let body = format!("<ListBucketResult><Name>bucket</Name>{rows}</ListBucketResult>");
        Reply::new(200, String::new(), body)
    }
}

#[test]
fn google_keeps_the_contract_and_is_told_no_name_by_those_who_have_none() {
    let google = google();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        open(&google, &format!("checks/{}", next.get()))
    });
    let state = google.state();
    assert!(state.asked.len() > 100);
    assert!(state.asked.iter().all(|request| request.field("authorization").is_none()));
}

#[test]
fn an_object_that_was_replaced_by_the_same_bytes_is_another() {
    let google = google();
    let storage = open(&google, "same");
    assert!(put(&storage, "a", b"one", Condition::Absent));
    let first = storage.open(&path("a")).unwrap();
    let other = open(&google, "same");
    assert!(put(&other, "a", b"two", Condition::None));
    assert!(put(&other, "a", b"one", Condition::None));
    assert!(!put(&storage, "a", b"three", Condition::Unchanged(&*first)));
    let found = storage.open(&path("a")).unwrap();
    assert!(put(&storage, "a", b"three", Condition::Unchanged(&*found)));
}

#[test]
fn what_is_deleted_is_deleted_again_where_the_answer_is_lost() {
    let google = google();
    let storage = open(&google, "lost");
    for name in ["a", "b/c", "b/d"] {
        assert!(put(&storage, name, name.as_bytes(), Condition::Absent));
    }
    google.state().lost = vec!["DELETE"];
    storage.delete(&path("a"), Durability::Disk, Condition::None).unwrap();
    google.state().lost = vec!["DELETE", "DELETE"];
    storage.delete_tree(&path("b"), Durability::Disk).unwrap();
    let state = google.state();
    assert_eq!(state.lost, [] as [&str; 0]);
    let left = state.service.objects.keys().filter(|name| !name.contains(".bedform-"));
    assert_eq!(left.collect::<Vec<_>>(), [] as [&String; 0]);
}

#[test]
fn a_server_that_is_asked_for_too_much_is_asked_again_and_what_it_has_not_done_is_known() {
    let google = google();
    let storage = open(&google, "busy");
    google.state().service.busy = 5;
    assert!(put(&storage, "a", b"one", Condition::Absent));
    let options = RemoteOptions { deadline: Duration::from_millis(500), ..google.options() };
    let impatient = RemoteStorage::open("gs://bucket/busy", Mode::ReadWrite, &options).unwrap();
    assert!(put(&impatient, "c", b"one", Condition::Absent));
    google.state().service.busy = usize::MAX;
    let mut writer = impatient.create(&path("b"), Durability::Disk, WriteHint::default()).unwrap();
    writer.append(b"two").unwrap();
    let refused = writer.publish(Condition::Absent).unwrap_err();
    assert_eq!(refused.kind, StorageErrorKind::Server, "{refused}");
    google.state().service.busy = 0;
    assert!(put(&storage, "b", b"two", Condition::Absent));
}
