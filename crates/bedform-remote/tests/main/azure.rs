//! Azure Blob Storage, as far as its documentation describes the server. Each write gives a blob a
//! new `ETag`, no range counts from the end of a blob, and blobs are deleted in batches.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bedform_remote::RemoteStorage;
use bedform_storage::conformance::check;
use bedform_storage::{Condition, Durability, Mode, Storage, StorageError, StorageErrorKind};

use super::server::{
    self, Reply, Request, Row, Server, Service, decoded, escaped, path, put, read_fields,
};

/// Rows of a page of a list; Azure sends 5000.
const PAGE_ROWS: usize = 5;
/// The most requests of a batch.
const BATCH_MAX: usize = 256;
/// The most bytes of names and values of a blob's metadata.
const METADATA_BYTES_MAX: usize = 8 << 10;
const BATCH_BOUNDARY: &str = "batchresponse_66925647-d0cb-4109-b6d3-28efe3e1e5ed";
const MODIFIED: &str = "Mon, 23 Nov 2026 00:00:00 GMT";
/// Azure begins its documents with a byte order mark.
const DOCUMENT: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>";

struct Blob {
    bytes: Vec<u8>,
    tag: String,
    /// Header fields that came with it and go with each answer.
    metadata: String,
}

/// The only container of an account, `bucket`.
#[derive(Default)]
struct Container {
    blobs: BTreeMap<String, Blob>,
    writes: u64,
    /// Sends ranges of empty blobs, as the emulator Azurite does.
    gives_parts_of_nothing: bool,
    access: Access,
    /// The number of the next 404 pages that are cut off.
    cut_off: usize,
}

/// The rights of an unsigned request.
#[derive(Default, PartialEq, Eq)]
enum Access {
    /// Reading and writing, which Azure never grants.
    #[default]
    All,
    /// Reading blobs.
    Blobs,
    None,
}

fn azure() -> Server<Container> {
    Server::start(Container::default())
}

fn open(azure: &Server<Container>, name: &str) -> RemoteStorage {
    RemoteStorage::open(&format!("az://bucket/{name}"), Mode::Create, &azure.options()).unwrap()
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let fields = format!("x-ms-error-code: {code}\r\nContent-Type: application/xml\r\n");
    let body = format!(
        "{DOCUMENT}<Error><Code>{code}</Code><Message>{message}\n\
         RequestId:5d2f4b3a-001e-0045-6ae5-8a1f2c000000\n\
         Time:2026-11-23T00:00:00.0000000Z</Message></Error>"
    );
    Reply::new(status, fields, body)
}

fn not_met() -> Reply {
    let message = "The condition specified using HTTP conditional header(s) is not met.";
    error(412, "ConditionNotMet", message)
}

fn no_blob() -> Reply {
    error(404, "BlobNotFound", "The specified blob does not exist.")
}

/// True for a valid name of a blob's metadata: an identifier of C#.
fn is_identifier(name: &str) -> bool {
    let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || sign == b'_';
    !name.starts_with(|sign: char| sign.is_ascii_digit()) && name.bytes().all(is_sign)
}

impl Service for Container {
    fn answer(&mut self, request: &mut Request) -> Option<Reply> {
        let is_read = matches!(&*request.method, "GET" | "HEAD") && request.value("comp").is_none();
        let mut reply = match self.name_of(request) {
            _ if self.access == Access::None => {
                let message = "Public access is not permitted on this storage account.";
                error(409, "PublicAccessNotPermitted", message)
            }
            _ if self.access == Access::Blobs && !is_read => {
                error(404, "ResourceNotFound", "The specified resource does not exist.")
            }
            Some(name) => self.answer_of(name, request),
            None => error(404, "ContainerNotFound", "The specified container does not exist."),
        };
        if reply.status == 404 && self.cut_off > 0 {
            self.cut_off -= 1;
            reply.cut_off = reply.body.len() - DOCUMENT.len() - 16;
        }
        Some(reply)
    }
}

impl Container {
    /// Returns the name of the requested blob, empty for the container itself; `None` for another
    /// container.
    fn name_of(&self, request: &Request) -> Option<String> {
        let rest = request.path.strip_prefix("/bucket")?;
        match rest.strip_prefix('/') {
            Some(name) => Some(decoded(name)),
            None => rest.is_empty().then(String::new),
        }
    }

    fn answer_of(&mut self, name: String, request: &mut Request) -> Reply {
        let is_of_container = request.value("restype").as_deref() == Some("container");
        let part = request.value("comp");
        match (&*request.method, part.as_deref()) {
            ("GET", Some("list")) if is_of_container && name.is_empty() => self.list(request),
            ("POST", Some("batch")) if is_of_container && name.is_empty() => self.batch(request),
            ("GET" | "HEAD", None) => self.get(&name, request),
            ("PUT", None) => self.put(name, request),
            ("DELETE", None) => self.delete(&name),
            _ => error(501, "NotImplemented", "This is not done here."),
        }
    }

    fn put(&mut self, name: String, request: &mut Request) -> Reply {
        let has = |name: &str, value: &str| request.field(name) == Some(value);
        if !has("x-ms-blob-type", "BlockBlob") || request.field("content-length").is_none() {
            let message = "An HTTP header that's mandatory for this request is not specified.";
            return error(400, "MissingRequiredHeader", message);
        }
        let metadata = request.fields_below("x-ms-meta-");
        let names =
            metadata.lines().filter_map(|line| line["x-ms-meta-".len()..].split(':').next());
        if metadata.len() > METADATA_BYTES_MAX || !names.into_iter().all(is_identifier) {
            return error(400, "InvalidMetadata", "The metadata specified is invalid.");
        }
        let there = self.blobs.get(&name).map(|blob| &*blob.tag);
        if has("if-none-match", "*") && there.is_some() {
            return error(409, "BlobAlreadyExists", "The specified blob already exists.");
        }
        if request.field("if-match").is_some_and(|wanted| Some(wanted) != there) {
            return not_met();
        }
        self.writes += 1;
        let tag = format!("\"0x8DE{:012X}\"", self.writes);
        let said = format!("ETag: {tag}\r\nLast-Modified: {MODIFIED}\r\n");
        let bytes = std::mem::take(&mut request.body);
        self.blobs.insert(name, Blob { bytes, tag, metadata });
        Reply::new(201, said, [])
    }

    fn get(&self, name: &str, request: &Request) -> Reply {
        let Some(Blob { bytes, tag, metadata }) = self.blobs.get(name) else { return no_blob() };
        if request.field("if-match").is_some_and(|wanted| wanted != tag) {
            return not_met();
        }
        let fields = format!(
            "ETag: {tag}\r\nLast-Modified: {MODIFIED}\r\nx-ms-blob-type: BlockBlob\r\n{metadata}"
        );
        let range = request.field("range");
        if range.is_some() && bytes.is_empty() && self.gives_parts_of_nothing {
            return Reply::new(206, format!("{fields}Content-Range: bytes 0--1/0\r\n"), []);
        }
        if range.is_some_and(|range| range.starts_with("bytes=-")) {
            let message = "The value for one of the HTTP headers is not in the correct format.";
            return error(400, "InvalidHeaderValue", message);
        }
        Reply::part(range, fields, bytes).unwrap_or_else(|| {
            let message = "The range specified is invalid for the current size of the resource.";
            error(416, "InvalidRange", message)
        })
    }

    fn delete(&mut self, name: &str) -> Reply {
        match self.blobs.remove(name) {
            Some(_) => Reply::new(202, "x-ms-delete-type-permanent: true\r\n".to_owned(), []),
            None => no_blob(),
        }
    }

    /// Returns a page of a list, with the marker of the next one.
    fn list(&self, request: &Request) -> Reply {
        let marker = request.value("marker").unwrap_or_default();
        let mut rows = server::rows(&self.blobs, request).into_iter();
        let mut rows = rows.by_ref().filter(|row| row.name() >= &*marker);
        let page: String = rows.by_ref().take(PAGE_ROWS).map(|row| listed(&row)).collect();
        let next = rows.next().map(|row| escaped(row.name())).unwrap_or_default();
        let body = format!(
            "{DOCUMENT}<EnumerationResults ContainerName=\"bucket\"><Blobs>{page}</Blobs>\
             <NextMarker>{next}</NextMarker></EnumerationResults>"
        );
        Reply::new(200, "Content-Type: application/xml\r\n".to_owned(), body)
    }

    /// Carries out the requests in the body of a batch.
    fn batch(&mut self, request: &Request) -> Reply {
        let boundary = request.field("content-type");
        let boundary = boundary.and_then(|kind| kind.strip_prefix("multipart/mixed; boundary="));
        let body = str::from_utf8(&request.body).unwrap();
        let mark = format!("--{}", boundary.unwrap());
        let (parts, rest) = body.split_once(&format!("{mark}--")).unwrap();
        let parts: Vec<_> = parts.split(&format!("{mark}\r\n")).skip(1).collect();
        if parts.is_empty() || parts.len() > BATCH_MAX || !rest.trim().is_empty() {
            return error(400, "InvalidInput", "One of the request inputs is not valid.");
        }
        let mut said = String::new();
        for part in parts {
            let _ = write!(said, "--{BATCH_BOUNDARY}\r\n{}", self.part_of_batch(part));
        }
        let _ = write!(said, "--{BATCH_BOUNDARY}--\r\n");
        let kind = format!("Content-Type: multipart/mixed; boundary={BATCH_BOUNDARY}\r\n");
        Reply::new(202, kind, said)
    }

    fn part_of_batch(&mut self, part: &str) -> String {
        let mut part = part.as_bytes();
        let fields = read_fields(&mut part).unwrap();
        let mut request = Request::read(&mut part).unwrap();
        assert_eq!((&*fields["content-type"], &*request.method), ("application/http", "DELETE"));
        let Reply { status, fields: more, body, .. } = self.answer(&mut request).unwrap();
        format!(
            "Content-Type: application/http\r\nContent-ID: {}\r\n\r\n\
             HTTP/1.1 {status} said\r\nContent-Length: {}\r\n{more}\r\n{}\r\n",
            fields["content-id"],
            body.len(),
            String::from_utf8(body).unwrap(),
        )
    }
}

/// Returns a row of a list. ETags have no quotes there.
fn listed(row: &Row<'_, Blob>) -> String {
    match row {
        Row::Object(name, Blob { bytes, tag, .. }) => format!(
            "<Blob><Name>{}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified>\
             <Etag>{}</Etag><Content-Length>{}</Content-Length>\
             <Content-Type>application/octet-stream</Content-Type>\
             <BlobType>BlockBlob</BlobType></Properties></Blob>",
            escaped(name),
            tag.trim_matches('"'),
            bytes.len(),
        ),
        Row::Prefix(name) => format!("<BlobPrefix><Name>{}</Name></BlobPrefix>", escaped(name)),
    }
}

/// Returns the methods of the requests since the last call, and checks that no range counts from an
/// end.
fn asked(azure: &Server<Container>) -> Vec<String> {
    let asked = std::mem::take(&mut azure.state().asked);
    let ranges = asked.iter().filter_map(|request| request.field("range"));
    ranges.for_each(|range| assert!(!range.starts_with("bytes=-"), "{range}"));
    asked.into_iter().map(|request| request.method).collect()
}

#[test]
fn azure_keeps_the_contract_and_is_told_no_name_by_those_who_have_none() {
    let azure = azure();
    let next = std::cell::Cell::new(0);
    check(|| {
        next.set(next.get() + 1);
        open(&azure, &format!("checks/{}", next.get()))
    });
    let state = azure.state();
    assert!(state.asked.len() > 100);
    assert!(state.asked.iter().all(|request| request.field("authorization").is_none()));
    assert!(state.asked.iter().any(|request| request.value("marker").is_some()));
}

#[test]
fn a_write_whose_answer_is_lost_has_happened_once() {
    let azure = azure();
    let storage = open(&azure, "lost");
    assert!(put(&storage, "a", b"one", Condition::Absent));
    azure.state().lost = vec!["PUT"];
    assert!(put(&storage, "b", b"one", Condition::Absent));
    let found = storage.open(&path("b")).unwrap();
    let writes = azure.state().service.writes;
    azure.state().lost = vec!["PUT"];
    assert!(put(&storage, "b", b"two", Condition::Unchanged(&*found)));
    assert!(!put(&storage, "b", b"three", Condition::Unchanged(&*found)));
    assert_eq!(azure.state().service.writes, writes + 1);
}

#[test]
fn what_is_deleted_is_deleted_again_where_the_answer_is_lost() {
    let azure = azure();
    let storage = open(&azure, "lost");
    let names = (0..300).map(|number| format!("b/{number}"));
    for name in ["a".to_owned()].into_iter().chain(names) {
        assert!(put(&storage, &name, name.as_bytes(), Condition::Absent));
    }
    azure.state().lost = vec!["POST"];
    storage.delete(&path("a"), Durability::Disk, Condition::None).unwrap();
    azure.state().lost = vec!["POST", "POST"];
    storage.delete_tree(&path("b"), Durability::Disk).unwrap();
    let state = azure.state();
    assert_eq!(state.lost, [] as [&str; 0]);
    let left = state.service.blobs.keys().filter(|name| !name.contains(".bedform-"));
    assert_eq!(left.collect::<Vec<_>>(), [] as [&String; 0]);
}

#[test]
fn a_container_that_is_not_there_is_said_to_be_missing() {
    let azure = azure();
    let open = |mode| RemoteStorage::open("az://other/a", mode, &azure.options()).unwrap();
    let (read, created) = (open(Mode::ReadOnly), open(Mode::Create));
    let document = path("zarr.json");
    let is_missing = |said: Result<(), StorageError>| {
        let error = said.unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::Server, "{error}");
        let text = error.to_string();
        assert!(text.contains("there is no such container"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    };
    is_missing(read.open(&document).map(drop));
    is_missing(read.stat(&document).map(drop));
    is_missing(read.list(&path("")).map(drop));
    is_missing(created.open(&document).map(drop));
    is_missing(created.lock(&path("")).map(drop));
    is_missing(created.put(&document, b"{}", Durability::Disk, Condition::Absent).map(drop));
    is_missing(created.delete(&document, Durability::Disk, Condition::None));
    is_missing(created.delete_tree(&path(""), Durability::Disk));
}

#[test]
fn an_account_that_serves_nobody_without_a_name_has_no_conflict_with_anybody() {
    let azure = Server::start(Container { access: Access::None, ..Container::default() });
    let storage = open(&azure, "private");
    let document = path("zarr.json");
    let is_refused = |said: Result<(), StorageError>| {
        let error = said.unwrap_err();
        assert_eq!(error.kind, StorageErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("credentials are needed: Public access"), "{error}");
    };
    is_refused(storage.open(&document).map(drop));
    is_refused(storage.stat(&document).map(drop));
    is_refused(storage.list(&path("")).map(drop));
    is_refused(storage.lock(&path("")).map(drop));
    is_refused(storage.put(&document, b"{}", Durability::Disk, Condition::Absent).map(drop));
    is_refused(storage.delete(&document, Durability::Disk, Condition::None));
    is_refused(storage.delete_tree(&path(""), Durability::Disk));
    // The test of the server before the first write ends with the deletion of its object.
    assert_eq!(asked(&azure).len(), 10, "nothing is asked again");
}

#[test]
fn who_may_read_blobs_and_not_list_them_is_told_that() {
    let azure = azure();
    let storage = open(&azure, "read");
    assert!(put(&storage, "a", b"one", Condition::Absent));
    azure.state().service.access = Access::Blobs;
    assert_eq!(storage.open(&path("a")).unwrap().version().size, 3);
    assert_eq!(storage.open(&path("b")).unwrap_err().kind, StorageErrorKind::NotFound);
    let denied = storage.list(&path("")).unwrap_err();
    assert_eq!(denied.kind, StorageErrorKind::PermissionDenied);
    assert!(denied.to_string().contains("these credentials may not list it"), "{denied}");
}

#[test]
fn a_small_object_is_opened_with_one_request_and_a_large_one_with_two() {
    let azure = azure();
    let storage = open(&azure, "sizes");
    for (name, size) in [("small", 5000), ("limit", 64 << 10), ("large", (64 << 10) + 1)] {
        assert!(put(&storage, name, &vec![7; size], Condition::Absent));
        asked(&azure);
        let object = storage.open(&path(name)).unwrap();
        assert_eq!(object.version().size, size as u64);
        let mut end = [0; 4];
        object.read(size as u64 - 4, &mut end).unwrap();
        assert_eq!(end, [7; 4]);
        assert_eq!(asked(&azure), vec!["GET"; if name == "large" { 2 } else { 1 }], "{name}");
    }
}

#[test]
fn an_object_without_bytes_is_opened_whatever_a_server_says_of_parts_of_it() {
    for gives_parts_of_nothing in [false, true] {
        let azure = Server::start(Container { gives_parts_of_nothing, ..Container::default() });
        let storage = open(&azure, "empty");
        assert!(put(&storage, "a", b"", Condition::Absent));
        asked(&azure);
        let object = storage.open(&path("a")).unwrap();
        assert_eq!((object.version().size, asked(&azure)), (0, vec!["GET".into(), "HEAD".into()]));
        assert!(object.is_current().unwrap());
        assert!(put(&storage, "a", b"one", Condition::Unchanged(&*object)));
    }
}

#[test]
fn what_is_missing_is_asked_for_again_where_the_page_that_says_so_is_cut_off() {
    let azure = azure();
    let storage = open(&azure, "cut");
    azure.state().service.cut_off = 3;
    assert_eq!(storage.open(&path("a")).unwrap_err().kind, StorageErrorKind::NotFound);
    assert_eq!(azure.state().service.cut_off, 0);
    // The container may be missing: no answer says that the object is.
    azure.state().service.cut_off = usize::MAX;
    let error = storage.open(&path("a")).unwrap_err();
    assert_eq!(error.kind, StorageErrorKind::Server);
    assert!(error.to_string().contains("404 Not Found and broke off"), "{error}");
}
