//! H5: metadata with hostile numbers, types and nesting.
//!
//! Every case is one change of a valid document, from the lists below. Most must be rejected with a
//! typed error; legal but odd documents must be read.

use std::path::Path;

use serde_json::{Value, json};

use crate::child::{TIME_MAX, open};
use crate::support::{Scratch, count, in_parallel};

const ARRAY: &str = r#"{
 "zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "int32",
 "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
 "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
 "fill_value": 0, "attributes": {}, "dimension_names": ["y", "x"],
 "codecs": [{"name": "sharding_indexed", "configuration": {
  "chunk_shape": [2, 3],
  "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
             {"name": "zstd", "configuration": {"level": 3, "checksum": false}}],
  "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
  "index_location": "end"}}]}"#;

const ARRAY_V2: &str = r#"{"zarr_format": 2, "shape": [4, 6], "chunks": [2, 3], "dtype": "<i4",
 "compressor": {"id": "zlib", "level": 5}, "fill_value": 0, "order": "C", "filters": null}"#;

/// Invalid lengths of axes and chunks.
const NO_LENGTHS: &[&str] = &[
    "null",
    "true",
    "{}",
    "4",
    "\"4, 6\"",
    "[]",
    "[4]",
    "[4, 6, 8]",
    "[4, -6]",
    "[4, 6.5]",
    "[4, \"6\"]",
    "[4, null]",
    "[4, 1e3]",
    "[4, 18446744073709551616]",
    "[4, 1e400]",
    "[18446744073709551615, 18446744073709551615]",
    "[9223372036854775807, 6]",
    "[4, NaN]",
    "[4, Infinity]",
    "[4, -Infinity]",
    "[[4], 6]",
    "[4, {}]",
    "[4, true]",
];
/// Further invalid lengths of chunks.
const NO_CHUNKS: &[&str] = &[
    "[0, 6]",
    "[4, 0]",
    "[0, 0]",
    "[9223372036854775808, 9223372036854775808]",
    "[4294967296, 4294967296]",
    "[18446744073709551615, 1]",
    "[1, 18446744073709551615]",
    "[65536, 65536]",
    "[536870913, 1]",
    "[2147483648, 2147483648]",
];
/// Invalid names.
const NO_NAMES: &[&str] = &[
    "null",
    "0",
    "[]",
    "{}",
    "\"\"",
    "\"unknown\"",
    "\"../x\"",
    "\"int32\\u0000\"",
    "\"INT32\"",
    "\"int33\"",
    "\"\\u202eint32\"",
    "true",
    "[\"int32\"]",
    "1e999",
];

/// Fields of the v3 document, with values that must be rejected.
fn hostile() -> Vec<(String, Vec<String>)> {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let inner = "/codecs/0/configuration";
    let level = |text: &str| format!(r#"{{"name": "zstd", "configuration": {{"level": {text}}}}}"#);
    let chain = |count: usize| {
        let mut list =
            vec![r#"{"name": "bytes", "configuration": {"endian": "little"}}"#.to_owned()];
        list.resize(count, level("1"));
        format!("[{}]", list.join(","))
    };
    vec![
        ("/shape".to_owned(), own(NO_LENGTHS)),
        (
            "/shape".to_owned(),
            own(&[
                &format!("[{}]", ["1"; 33].join(",")),
                &format!("[{}]", vec!["1"; 500_000].join(",")),
            ]),
        ),
        (
            "/chunk_grid/configuration/chunk_shape".to_owned(),
            [own(NO_LENGTHS), own(NO_CHUNKS)].concat(),
        ),
        (format!("{inner}/chunk_shape"), [own(NO_LENGTHS), own(NO_CHUNKS)].concat()),
        (format!("{inner}/chunk_shape"), own(&["[3, 6]", "[4, 4]", "[8, 12]"])),
        ("/data_type".to_owned(), own(NO_NAMES)),
        (
            "/data_type".to_owned(),
            own(&["\"r0\"", "\"r7\"", "\"r18446744073709551616\"", "\"float128\"", "\"object\""]),
        ),
        ("/chunk_grid/name".to_owned(), own(NO_NAMES)),
        ("/chunk_key_encoding/name".to_owned(), own(NO_NAMES)),
        (
            "/chunk_key_encoding/configuration/separator".to_owned(),
            own(&[
                "\"\"",
                "\"//\"",
                "\"..\"",
                "\"/../\"",
                "\"\\\\\"",
                "0",
                "null",
                "[]",
                "\"\\u0000\"",
            ]),
        ),
        (
            "/fill_value".to_owned(),
            own(&[
                "\"x\"",
                "[]",
                "{}",
                "true",
                "1.5",
                "2147483648",
                "-2147483649",
                "1e400",
                "NaN",
                "\"NaN\"",
                "\"0x\"",
                "\"0x123456789\"",
            ]),
        ),
        ("/node_type".to_owned(), own(&["null", "0", "\"\"", "\"Array\"", "\"link\"", "[]"])),
        (
            "/zarr_format".to_owned(),
            own(&["null", "0", "1", "4", "3.5", "\"3\"", "-3", "18446744073709551619", "[3]"]),
        ),
        ("/attributes".to_owned(), own(&["0", "[]", "\"\"", "true"])),
        (
            "/dimension_names".to_owned(),
            own(&["0", "{}", "[\"y\"]", "[\"y\", \"x\", \"z\"]", "[0, 1]", "[[], []]", "\"yx\""]),
        ),
        (
            "/codecs".to_owned(),
            own(&[
                "null",
                "{}",
                "[]",
                "[0]",
                "[null]",
                "[[]]",
                "[{}]",
                "[\"unknown\"]",
                "\"bytes\"",
                "[\"zstd\"]",
                "[\"crc32c\", \"bytes\"]",
                "[\"bytes\", \"bytes\"]",
            ]),
        ),
        ("/codecs".to_owned(), vec![chain(18), chain(1000)]),
        (
            format!("{inner}/codecs"),
            own(&[
                "null",
                "{}",
                "[]",
                "[0]",
                "[{\"name\": \"bytes\"}]",
                "[\"zstd\"]",
                "[\"crc32c\"]",
            ]),
        ),
        (format!("{inner}/codecs"), vec![chain(18)]),
        (
            format!("{inner}/codecs/1"),
            ["1.5", "\"3\"", "23", "-131073", "9999999999", "null", "[]"].map(level).to_vec(),
        ),
        (
            format!("{inner}/codecs/1"),
            own(&[
                r#"{"name": "gzip", "configuration": {"level": -1}}"#,
                r#"{"name": "gzip", "configuration": {"level": 10}}"#,
                r#"{"name": "gzip", "configuration": {"level": "x"}}"#,
                r#"{"name": "blosc", "configuration": {"cname": "lz5", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}"#,
                r#"{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 99, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}"#,
                r#"{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": 7, "typesize": 4, "blocksize": 0}}"#,
                r#"{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 0, "blocksize": 0}}"#,
                r#"{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": -1}}"#,
                r#"{"name": "transpose", "configuration": {"order": [1, 0]}}"#,
                r#"{"name": "numcodecs.shuffle", "configuration": {"elementsize": 0}}"#,
                r#"{"name": "numcodecs.shuffle", "configuration": {"elementsize": -4}}"#,
            ]),
        ),
        (
            format!("{inner}/codecs/0"),
            own(&[
                r#"{"name": "transpose", "configuration": {"order": [0, 0]}}"#,
                r#"{"name": "transpose", "configuration": {"order": [0]}}"#,
                r#"{"name": "transpose", "configuration": {"order": [0, 2]}}"#,
                r#"{"name": "transpose", "configuration": {"order": [0, 18446744073709551615]}}"#,
                r#"{"name": "transpose", "configuration": {"order": "C"}}"#,
                r#"{"name": "bytes", "configuration": {"endian": "middle"}}"#,
                r#"{"name": "bytes", "configuration": {"endian": 0}}"#,
                r#"{"name": "vlen-utf8"}"#,
            ]),
        ),
        (
            format!("{inner}/index_codecs"),
            own(&["null", "[]", "{}", "[\"zstd\"]", "[\"bytes\", \"zstd\"]", "[0]"]),
        ),
        (format!("{inner}/index_location"), own(&["0", "\"middle\"", "[]", "{}"])),
        ("/storage_transformers".to_owned(), own(&["[{\"name\": \"link\"}]", "{}", "0", "\"x\""])),
        ("/must_know".to_owned(), own(&["{}", "{\"must_understand\": true}", "1"])),
        ("/consolidated_metadata".to_owned(), own(&["{}", "{\"kind\": \"inline\"}"])),
    ]
}

/// Legal but odd values.
fn legal() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("/shape", vec!["[0, 6]", "[0, 0]", "[9007199254740993, 6]", "[1, 300000000000000000]"]),
        ("/fill_value", vec!["null"]),
        ("/codecs/0/configuration/codecs/1", vec![r#"{"name": "blosc", "configuration": {}}"#]),
        (
            "/attributes",
            vec![
                "null",
                r#"{"a": NaN}"#,
                r#"{"a": [-Infinity, Infinity]}"#,
                r#"{"": 0}"#,
                r#"{"..": "/etc/passwd"}"#,
                r#"{"a": 1e308}"#,
                r#"{"a": 123456789012345678901234567890}"#,
                r#"{"\u0000": "\ud83d\ude00"}"#,
            ],
        ),
        ("/dimension_names", vec!["null", "[null, null]", r#"["..", "/"]"#, r#"["x", "x"]"#]),
        ("/unknown", vec![r#"{"must_understand": false}"#]),
    ]
}

fn hostile_v2() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("/shape", NO_LENGTHS.to_vec()),
        ("/chunks", [NO_LENGTHS, NO_CHUNKS].concat()),
        (
            "/dtype",
            vec![
                "null",
                "0",
                "[]",
                "\"\"",
                "\"<i3\"",
                "\"i4\"",
                "\"<i99999999999\"",
                "\"|O\"",
                "[[\"a\", \"<q4\"]]",
                "\"<M8[parsec]\"",
                "\"<V18446744073709551616\"",
            ],
        ),
        ("/order", vec!["null", "\"K\"", "0"]),
        (
            "/compressor",
            vec![
                "0",
                "\"zlib\"",
                "{}",
                "{\"id\": \"pickle\"}",
                "{\"id\": \"zlib\", \"level\": 99}",
                "[]",
            ],
        ),
        (
            "/filters",
            vec![
                "0",
                "{}",
                "[{\"id\": \"pickle\"}]",
                "[{\"id\": \"delta\", \"dtype\": \"<q9\"}]",
                "[0]",
            ],
        ),
        ("/fill_value", vec!["\"x\"", "[]", "{}", "1e400"]),
        ("/zarr_format", vec!["3", "1", "null"]),
        ("/dimension_separator", vec!["\"\"", "\"//\"", "0"]),
    ]
}

/// Whole hostile documents.
fn documents() -> Vec<String> {
    let mut twice = ARRAY.replace("\"shape\": [4, 6],", "\"shape\": [4, 6], \"shape\": [4, 6],");
    twice.push('\n');
    vec![
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "\u{feff}{}".to_owned(),
        ARRAY[..ARRAY.len() - 1].to_owned(),
        format!("{ARRAY}{ARRAY}"),
        format!("{ARRAY}\0"),
        twice,
        "[".repeat(1_000_000),
        "{\"a\":".repeat(1_000_000),
        ARRAY.replace(
            "\"attributes\": {}",
            &format!("\"attributes\": {{\"a\": {}1{}}}", "[".repeat(100), "]".repeat(100)),
        ),
        ARRAY.replace(
            "\"attributes\": {}",
            &format!("\"attributes\": {{\"a\": \"{}\"}}", "x".repeat(17 << 20)),
        ),
        format!("{}{}", ARRAY, " ".repeat(64 << 20)),
    ]
}

/// Replaces the value at `pointer` in a document; the last key of the pointer may be new. The value
/// is text, and need not be JSON.
fn changed(document: &str, pointer: &str, value: &str) -> String {
    const MARK: &str = "#value#";
    let mut document: Value = serde_json::from_str(document).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list[key.parse::<usize>().unwrap()] = json!(MARK),
        parent => parent[key] = json!(MARK),
    }
    document.to_string().replace(&format!("\"{MARK}\""), value)
}

struct Case {
    story: String,
    file: &'static str,
    document: String,
    is_legal: bool,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |file, base: &str, pointer: &str, value: &str, is_legal| {
        let story = format!("{file}{pointer} = {:.80}", value);
        cases.push(Case { story, file, document: changed(base, pointer, value), is_legal });
    };
    for (pointer, values) in hostile() {
        values.iter().for_each(|value| add("zarr.json", ARRAY, &pointer, value, false));
    }
    for (pointer, values) in legal() {
        values.iter().for_each(|value| add("zarr.json", ARRAY, pointer, value, true));
    }
    for (pointer, values) in hostile_v2() {
        values.iter().for_each(|value| add(".zarray", ARRAY_V2, pointer, value, false));
    }
    for (number, document) in documents().into_iter().enumerate() {
        let story = format!("document {number}");
        cases.push(Case { story, file: "zarr.json", document, is_legal: false });
    }
    let rank_0 = ARRAY_V2.replace("[4, 6]", "[]").replace("[2, 3]", "[]");
    cases.push(Case { story: "rank 0".into(), file: ".zarray", document: rank_0, is_legal: true });
    for (file, document) in [("zarr.json", ARRAY), (".zarray", ARRAY_V2)] {
        let document = document.to_owned();
        cases.push(Case { story: format!("a good {file}"), file, document, is_legal: true });
    }
    cases
}

fn check(root: &Path, case: &Case) -> Result<(), String> {
    std::fs::create_dir_all(root).unwrap();
    std::fs::write(root.join(case.file), &case.document).unwrap();
    let outcome = open(root)?;
    std::fs::remove_dir_all(root).unwrap();
    if outcome.time > TIME_MAX || outcome.peak_bytes > 512 << 20 {
        return Err(format!("takes too much: {outcome:?}"));
    }
    let is_typed =
        ["Corrupt", "Unsupported", "LimitExceeded", "NotFound"].contains(&&*outcome.kind);
    match case.is_legal {
        true if outcome.kind == "Ok" => Ok(()),
        false if is_typed && !outcome.message.is_empty() => Ok(()),
        _ => Err(format!("{outcome:?}")),
    }
}

#[test]
#[ignore = "a stage of make reliability"]
fn hostile_metadata_get_a_typed_error() {
    let scratch = Scratch::new("hostile");
    let cases: Vec<(usize, Case)> = cases().into_iter().enumerate().collect();
    let problems: Vec<String> = in_parallel(&cases, |(number, case)| {
        let checked = check(&scratch.0.join(number.to_string()), case);
        checked.err().map(|problem| format!("{}: {problem}", case.story))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    count("hostile-documents", cases.len() as u64);
}
