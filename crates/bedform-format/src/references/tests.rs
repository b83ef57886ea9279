use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{Limits, ObjectPath};

fn read(text: &str) -> Result<References, ReferencesError> {
    parse(text.as_bytes(), &Limits::default())
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

#[test]
fn a_name_is_found_in_its_directory_alone() {
    let set = read(r#"{"a/b/0": "x", "a-b/0": "y", "a/b.c": "z", "a/b/10": "w", "a/b/9": "v"}"#);
    let set = set.unwrap();
    let inline = |key: &str| match set.find(&path(key)) {
        Some(Reference::Inline(bytes)) => Some(std::str::from_utf8(bytes).unwrap()),
        _ => None,
    };
    assert_eq!(
        [inline("a/b/0"), inline("a-b/0"), inline("a/b.c")],
        [Some("x"), Some("y"), Some("z")]
    );
    assert_eq!([inline("a/b/1"), inline("a/b"), inline("0"), inline("a/b/0/0")], [None; 4]);
    let names = |at: &str| {
        set.list(&path(at))
            .into_iter()
            .map(|found| (found.name, found.is_directory))
            .collect::<Vec<_>>()
    };
    let entry = |name: &str, is_directory| (name.to_owned(), is_directory);
    assert_eq!(names(""), [entry("a", true), entry("a-b", true)]);
    assert_eq!(names("a"), [entry("b", true), entry("b.c", false)]);
    assert_eq!(names("a/b"), [entry("0", false), entry("10", false), entry("9", false)]);
    assert_eq!(names("a/b/0"), []);
    assert!(set.is_directory(&path("a")) && set.is_directory(&path("a/b")));
    assert!(!set.is_directory(&path("a/b/0")) && !set.is_directory(&path("b")));
}

#[test]
fn templates_are_names_of_texts_and_nothing_else() {
    let with = |target: &str| {
        let document = json!({
            "version": 1,
            "templates": {"u": "s3://bucket", "f": "{{u}}"},
            "refs": {"t/0": [target, 0, 1]},
        });
        read(&document.to_string()).map(|set| set.target(0).to_owned())
    };
    assert_eq!(with("{{u}}/a{{ u }}.nc").unwrap(), "s3://bucket/as3://bucket.nc");
    for target in ["{{f}}", "{{v}}", "{{u", "{{u(c=1)}}", "{{u|upper}}", "{% if %}", "{{'a'}}"] {
        assert!(matches!(with(target), Err(ReferencesError::Expression(_))), "{target}");
    }
}

#[test]
fn paths_that_grow_by_templates_are_bounded() {
    let document = json!({
        "version": 1,
        "templates": {"u": "x".repeat(TARGET_BYTES_MAX / 2)},
        "refs": {"t/0": ["{{u}}{{u}}{{u}}", 0, 1]},
    });
    assert!(matches!(read(&document.to_string()), Err(ReferencesError::Value { .. })));
}

#[test]
fn counts_are_held_against_the_limit_before_anything_is_kept() {
    let limits = Limits { references_bytes_max: 40, ..Limits::default() };
    let long = br#"{"version": 1, "refs": {"a": "0123456789"}}"#;
    assert!(matches!(parse(long, &limits), Err(ReferencesError::TooLarge { .. })));
    let mut builder = ReferencesBuilder::new(&limits);
    builder.add("a", Reference::Inline(&[0; 40])).unwrap();
    assert!(builder.add("b", Reference::Inline(&[0])).is_err());
    assert!(builder.add(&"c".repeat(40), Reference::Inline(&[])).is_err());
}

#[test]
fn values_nested_deeply_are_text_that_nobody_follows() {
    let deep = format!("{{\"a\": {}{}}}", "{\"x\":".repeat(100_000), "}".repeat(100_000));
    assert!(read(&deep).is_err());
    let list = format!("{{\"a\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read(&list).is_err());
}

proptest! {
    #[test]
    fn a_set_has_the_keys_of_its_document(
        keys in prop::collection::btree_map("[ab]{1,2}(/[ab.0]{1,2}){0,3}", 0_u64..1000, 0..40)
    ) {
        let keys: BTreeMap<String, u64> =
            keys.into_iter().filter(|(key, _)| ObjectPath::parse(key).is_ok()).collect();
        let refs: serde_json::Map<String, Value> = keys
            .iter()
            .map(|(key, at)| (key.clone(), json!([format!("{}.nc", at % 3), at, at + 1])))
            .collect();
        let set = read(&json!({"version": 1, "refs": refs}).to_string()).unwrap();
        prop_assert_eq!(set.len(), keys.len());
        for (key, at) in &keys {
            let Some(Reference::Range { target, offset, length }) = set.find(&path(key)) else {
                return Err(TestCaseError::fail(key.clone()));
            };
            prop_assert_eq!(set.target(target), format!("{}.nc", at % 3));
            prop_assert_eq!((offset, length), (*at, Some(at + 1)));
        }
        let mut listed = 0;
        let mut directories = vec![ObjectPath::root()];
        while let Some(directory) = directories.pop() {
            for entry in set.list(&directory) {
                let below = directory.join(&entry.name).unwrap();
                listed += usize::from(keys.contains_key(below.as_str()));
                if set.is_directory(&below) {
                    directories.push(below);
                }
            }
        }
        prop_assert_eq!(listed, keys.len());
    }
}
