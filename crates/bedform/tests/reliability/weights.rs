//! H14: metadata whose cost exceeds their size.
//!
//! Every case is a store with documents of legal JSON, or a chunk with a large claim. A process of
//! its own opens it. It may take 16 times the stored bytes plus 64 MiB, and `TIME_MAX`.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::child::{Outcome, TIME_MAX, open};
use crate::support::{Scratch, count, in_parallel};

/// The expected outcome of opening a store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Read,
    Refused,
    /// Reading and rejecting are both right, depending on a limit.
    Either,
}

struct Case {
    story: String,
    /// Paths below the store, with the bytes of the files.
    files: Vec<(String, Vec<u8>)>,
    expected: Expected,
}

fn array() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": ["bytes"], "attributes": {},
    })
}

/// The document of an array with the text `value` at `pointer`.
fn array_with(pointer: &str, value: &str) -> String {
    let mut document = array();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = json!("#value#");
    document.to_string().replace("\"#value#\"", value)
}

fn group_with(key: &str, value: &str) -> String {
    format!(r#"{{"zarr_format": 3, "node_type": "group", "{key}": {value}}}"#)
}

fn list(item: &str, bytes: usize) -> String {
    format!("[{}]", vec![item; bytes / (item.len() + 1)].join(","))
}

fn object(value: &str, bytes: usize) -> String {
    let count = bytes / (value.len() + 12);
    let entries: Vec<_> = (0..count).map(|key| format!("\"k{key:07}\":{value}")).collect();
    format!("{{{}}}", entries.join(","))
}

/// Values that take much more memory than their text.
fn dense(bytes: usize) -> Vec<(&'static str, String)> {
    vec![
        ("digits", list("1", bytes)),
        ("numbers", list("-12.5e-3", bytes)),
        ("empty lists", list("[]", bytes)),
        ("empty objects", list("{}", bytes)),
        ("small objects", list(r#"{"a":0}"#, bytes)),
        ("nested lists", list("[[[0]]]", bytes)),
        ("empty texts", list(r#""""#, bytes)),
        ("bare NaN", list("NaN", bytes)),
        ("keys", object("0", bytes)),
        ("one text", format!("\"{}\"", "x".repeat(bytes))),
        ("one text of escapes", format!("\"{}\"", "\\u00e9".repeat(bytes / 12))),
    ]
}

fn single(story: String, document: String, expected: Expected) -> Case {
    Case { story, files: vec![("zarr.json".to_owned(), document.into_bytes())], expected }
}

fn attributes(bytes: usize, expected: impl Fn(&str) -> Expected) -> Vec<Case> {
    let mut cases = Vec::new();
    for (what, value) in dense(bytes) {
        let attributes = format!(r#"{{"a":{value}}}"#);
        let story = format!("attributes of {bytes} bytes, {what}");
        let expected = expected(what);
        cases.push(single(story.clone(), array_with("/attributes", &attributes), expected));
        cases.push(single(
            format!("{story}, of a group"),
            group_with("attributes", &attributes),
            expected,
        ));
        let files = vec![
            (".zgroup".to_owned(), br#"{"zarr_format": 2}"#.to_vec()),
            (".zattrs".to_owned(), attributes.into_bytes()),
        ];
        cases.push(Case { story: format!("{story}, of version 2"), files, expected });
    }
    cases
}

/// Fields of an array's document with much content.
fn fields(bytes: usize) -> Vec<Case> {
    let text = format!("\"{}\"", "x".repeat(bytes));
    let mut cases = Vec::new();
    let mut add = |what: &str, document: String, expected| {
        cases.push(single(format!("{what} of {bytes} bytes"), document, expected));
    };
    for pointer in
        ["/data_type", "/node_type", "/fill_value", "/chunk_grid/name", "/chunk_key_encoding/name"]
    {
        add(pointer, array_with(pointer, &text), Expected::Refused);
    }
    add(
        "a dimension's name",
        array_with("/dimension_names", &format!("[{text}]")),
        Expected::Either,
    );
    add("a codec's name", array_with("/codecs", &format!("[{text}]")), Expected::Refused);
    add("codecs", array_with("/codecs", &list("\"bytes\"", bytes)), Expected::Refused);
    add("shape", array_with("/shape", &list("1", bytes)), Expected::Refused);
    let keys = object(r#"{"must_understand":false}"#, bytes);
    let document = array().to_string();
    add(
        "unknown keys",
        format!("{},{}", &document[..document.len() - 1], &keys[1..]),
        Expected::Either,
    );
    cases
}

/// A group's document that contains those of many arrays, which exist nowhere else.
fn consolidated(arrays: usize, document: &str, expected: Expected) -> Case {
    let entries: Vec<_> =
        (0..arrays).map(|number| format!("\"v{number:06}\":{document}")).collect();
    let metadata = format!(r#"{{"kind": "inline", "metadata": {{{}}}}}"#, entries.join(","));
    let story = format!("{arrays} consolidated documents of {} bytes", document.len());
    single(story, group_with("consolidated_metadata", &metadata), expected)
}

/// A chunk of 2 GiB with little or no stored data.
fn claims() -> Vec<Case> {
    let codecs = [
        json!([{"name": "bytes", "configuration": {"endian": "little"}}]),
        json!(["bytes", {"name": "zstd", "configuration": {"level": 3, "checksum": false}}]),
        json!(["bytes", {"name": "gzip", "configuration": {"level": 5}}]),
        json!(["bytes", {"name": "blosc", "configuration":
            {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}}]),
        json!(["bytes", "crc32c"]),
        json!([{"name": "numcodecs.pcodec", "configuration": {}}]),
    ];
    let mut cases = Vec::new();
    for codecs in codecs {
        let mut document = array();
        let item = if codecs.as_array().unwrap().len() == 1 { "uint16" } else { "uint8" };
        let length = if item == "uint16" { 1_u64 << 30 } else { 1 << 31 };
        document["shape"] = json!([length]);
        document["chunk_grid"]["configuration"]["chunk_shape"] = json!([length]);
        document["data_type"] = json!(item);
        document["fill_value"] = json!(7);
        document["codecs"] = codecs.clone();
        let metadata = ("zarr.json".to_owned(), document.to_string().into_bytes());
        for there in [None, Some(vec![]), Some(vec![0; 64]), Some(vec![0x28; 1 << 20])] {
            let story =
                format!("a chunk of 2 GiB by {codecs}, {:?} bytes", there.as_ref().map(Vec::len));
            let expected = if there.is_none() { Expected::Read } else { Expected::Refused };
            let chunk = there.map(|bytes| ("c/0".to_owned(), bytes));
            let files = [Some(metadata.clone()), chunk].into_iter().flatten().collect();
            cases.push(Case { story, files, expected });
        }
    }
    cases
}

fn cases() -> Vec<Case> {
    let large = 40_000_000;
    let mut cases = attributes(large, |what| match what {
        // Each character takes six bytes in the document, and two as an attribute, so the document
        // has half of `bytes`.
        "one text of escapes" => Expected::Read,
        _ => Expected::Refused,
    });
    cases.extend(attributes(15_000_000, |what| match what {
        "one text" | "one text of escapes" => Expected::Read,
        _ => Expected::Either,
    }));
    // Typical values of programs: labels and colours, long lists of numbers.
    for (item, count) in
        [(r#"{"label-value": 12, "rgba": [255, 0, 0, 255]}"#, 100_000), ("-12.345678", 1_000_000)]
    {
        let attributes = format!(r#"{{"a":[{}]}}"#, vec![item; count].join(", "));
        let story = format!("attributes of {count} values such as {item}");
        let document = array_with("/attributes", &attributes);
        cases.push(single(story, document, Expected::Read));
    }
    cases.extend(fields(10_000_000));
    let many = 100_000;
    let usual = array().to_string();
    // The arrays themselves are missing.
    cases.push(consolidated(many, &usual, Expected::Refused));
    cases.push(consolidated(many * 10, "{}", Expected::Either));
    cases.push(consolidated(1, &array_with("/attributes", &object("0", large)), Expected::Refused));
    cases.push(consolidated(
        200,
        &array_with("/attributes", &object("0", large / 200)),
        Expected::Refused,
    ));
    cases.extend(claims());
    cases
}

/// Runs a case, and returns its time.
fn check(root: &Path, case: &Case) -> Result<Duration, String> {
    let mut weight = 0;
    for (path, bytes) in &case.files {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        weight += bytes.len() as u64;
    }
    let outcome = open(root)?;
    std::fs::remove_dir_all(root).unwrap();
    if outcome.time > TIME_MAX || outcome.peak_bytes > 16 * weight + (64 << 20) {
        return Err(format!("{weight} bytes take too much: {}", short(&outcome)));
    }
    let is_refusal =
        ["Corrupt", "Unsupported", "LimitExceeded", "NotFound"].contains(&&*outcome.kind);
    let is_right = match case.expected {
        Expected::Read => outcome.kind == "Ok",
        Expected::Refused => is_refusal,
        Expected::Either => is_refusal || outcome.kind == "Ok",
    };
    match is_right && outcome.message.len() <= 4096 {
        true => Ok(outcome.time),
        false => Err(short(&outcome)),
    }
}

fn short(outcome: &Outcome) -> String {
    format!("{outcome:?}").chars().take(600).collect()
}

#[test]
#[ignore = "a stage of make reliability"]
fn metadata_take_memory_and_time_by_what_they_weigh() {
    let scratch = Scratch::new("weights");
    let cases: Vec<(usize, Case)> = cases().into_iter().enumerate().collect();
    let slowest = Mutex::new((Duration::ZERO, String::new()));
    let problems: Vec<String> = in_parallel(&cases, |(number, case)| {
        let checked = check(&scratch.0.join(number.to_string()), case);
        if let Ok(time) = checked {
            let mut slowest = slowest.lock().unwrap();
            *slowest = std::mem::take(&mut *slowest).max((time, case.story.clone()));
        }
        checked.err().map(|problem| format!("{}: {problem}", case.story))
    })
    .into_iter()
    .flatten()
    .collect();
    let (time, story) = slowest.into_inner().unwrap();
    println!("{story} took {time:.2?}, the longest");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    count("weights", cases.len() as u64);
}
