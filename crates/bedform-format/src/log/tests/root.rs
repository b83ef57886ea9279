//! Roots.

use proptest::prelude::*;

use super::super::*;
use super::{Change, assert_every_bit_counts, assert_exact, limits};
use crate::Limits;
use crate::metadata::seal;

fn commit(number: u64) -> CommitRecord {
    CommitRecord {
        number,
        segment: format!("0123456789abcdef-{number}"),
        offset: 4096,
        stored_bytes: 90,
        bytes: 200,
        codec: SealedCodec::Zstd,
    }
}

fn table(first: u64, last: u64) -> TableRecord {
    let name = TableRecord::name(last, &[7; 16]);
    TableRecord { name, first, last, rows: 3, bytes: 700, index_bytes: 200, checksum: 1 }
}

fn small() -> Root {
    Root {
        store: [0xab; 16],
        number: 42,
        settled: 29,
        since: 30,
        tables: vec![table(30, 37), table(38, 39)],
        commits: vec![commit(40), commit(42)],
        shapes: [([1; 16], vec![3, 4]), ([0xfe; 16], vec![])].into(),
        sessions: [([9; 16], 3)].into(),
        settled_shards: [30, 41]
            .map(|number| SettledRecord { number, bytes: 90, checksum: 7 })
            .into(),
    }
}

/// Returns the root in its version 1 form.
fn as_first_version(root: &Root) -> serde_json::Value {
    let document: serde_json::Value =
        serde_json::from_slice(&root.encode(&limits()).unwrap()).unwrap();
    let mut document = document;
    let fields = document.as_object_mut().unwrap();
    fields.shift_remove("since");
    fields.shift_remove("tables");
    let lists = fields.shift_remove("settled_shards").unwrap();
    if let Some(list) = lists.as_array().unwrap().last() {
        fields.insert("settled_shards".to_owned(), list.clone());
    }
    document["bedform"]["version"] = 1.into();
    document["bedform"].as_object_mut().unwrap().shift_remove("seal");
    document
}

fn decode(bytes: &[u8]) -> Result<Root> {
    Root::decode(bytes, &limits())
}

fn roots() -> impl Strategy<Value = Root> {
    let lengths = prop::collection::vec(0..=i64::MAX as u64, 0..4);
    let shapes = prop::collection::btree_map(any::<[u8; 16]>(), lengths, 0..4);
    let sessions = prop::collection::btree_map(any::<[u8; 16]>(), any::<u32>(), 0..4);
    let commit = (1_u64..9, "[a-z0-9\"-]{1,9}", 0_u64..1 << 62, 0_u64..1 << 20, any::<bool>());
    let commits = prop::collection::vec(commit, 0..5);
    let tables = prop::collection::vec((1_u64..9, 0_u64..9), 0..4);
    (any::<[u8; 16]>(), 0_u64..1 << 30, tables, commits, 0_u64..5, shapes, sessions).prop_map(
        |(store, settled, spans, steps, more, shapes, sessions)| {
            let mut number = settled;
            let mut tables = Vec::new();
            for (step, length) in spans {
                tables.push(table(number + step, number + step + length));
                number += step + length;
            }
            let mut commits = Vec::new();
            for (step, segment, offset, bytes, is_packed) in steps {
                number += step;
                let codec = if is_packed { SealedCodec::Zstd } else { SealedCodec::None };
                let (stored_bytes, bytes) = (bytes, bytes);
                commits.push(CommitRecord { number, segment, offset, stored_bytes, bytes, codec });
            }
            let list = |number| SettledRecord { number, bytes: 1 << more, checksum: u32::MAX };
            let settled_shards = (0..more / 2).map(list).collect();
            let (number, since) = (number + more, settled);
            Root {
                store,
                number,
                settled,
                since,
                tables,
                commits,
                shapes,
                sessions,
                settled_shards,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_root_comes_back(root in roots()) {
        let bytes = root.encode(&limits()).unwrap();
        prop_assert_eq!(decode(&bytes), Ok(root));
    }

    #[test]
    fn a_root_of_the_first_version_is_read(root in roots()) {
        let mut first = Root { tables: vec![], since: root.number, ..root };
        first.settled_shards.drain(..first.settled_shards.len().saturating_sub(1));
        let found = decode(&seal(as_first_version(&first)));
        prop_assert_eq!(found.as_ref(), Ok(&first));
    }

    #[test]
    fn names_are_ten_digits_and_nothing_else(number in 0_u64..10_000_000_000, other: String) {
        prop_assert_eq!(Root::parse_name(&Root::name(number)), Some(number));
        if let Some(number) = Root::parse_name(&other) {
            prop_assert_eq!(Root::name(number), other);
        }
    }
}

#[test]
fn every_changed_bit_of_a_root_is_noticed_and_no_part_is_taken_for_it() {
    let bytes = small().encode(&limits()).unwrap();
    assert_eq!(decode(&bytes), Ok(small()));
    assert_every_bit_counts(&bytes, decode);
    assert_exact(&bytes, decode);
}

#[test]
fn names_of_other_things_are_no_roots() {
    for name in ["42.json", "00000000042.json", "+000000042.json", "0000000042", "000000004a.json"]
    {
        assert_eq!(Root::parse_name(name), None, "{name}");
    }
    // Such a number is too large for a root.
    let far = Root { number: 10_000_000_000, ..small() };
    assert!(matches!(far.encode(&limits()), Err(LogError::Limit { .. })));
}

#[test]
fn roots_that_do_not_hold_are_neither_written_nor_believed() {
    let changes: [Change<Root>; 20] = [
        ("a commit that is settled", |root| {
            (root.settled, root.tables) = (40, vec![]);
        }),
        ("a commit newer than the root", |root| root.number = 41),
        ("settled commits newer than the root", |root| {
            (root.settled, root.tables, root.commits) = (43, vec![], vec![]);
        }),
        ("commits out of order", |root| root.commits.reverse()),
        ("a commit twice", |root| root.commits[0].number = 42),
        ("a name of two segments", |root| root.commits[0].segment = "a/b".into()),
        ("a place that no file has", |root| root.commits[0].offset = i64::MAX as u64),
        ("a directory over the limit", |root| root.commits[0].bytes = 1 << 40),
        ("a list of shards newer than the root", |root| {
            root.settled_shards[1].number = 43;
        }),
        ("a list of shards over the limit", |root| root.settled_shards[0].bytes = 1 << 40),
        ("lists of shards out of order", |root| root.settled_shards.reverse()),
        ("a beginning newer than the root", |root| root.since = 43),
        ("tables out of order", |root| root.tables.reverse()),
        ("a table that is settled", |root| root.settled = 30),
        ("a table behind a commit", |root| root.commits[0].number = 39),
        ("a table over the limit", |root| root.tables[0].bytes = 1 << 40),
        ("an index larger than its table", |root| root.tables[0].index_bytes = 701),
        ("a table of another name", |root| root.tables[0].name = TableRecord::name(36, &[7; 16])),
        ("a table somewhere else", |root| root.tables[0].name = "0000000037-../x".into()),
        ("too many axes", |root| drop(root.shapes.insert([1; 16], vec![1; 33]))),
    ];
    for (what, change) in changes {
        let mut root = small();
        change(&mut root);
        assert!(root.encode(&limits()).is_err(), "{what}");
    }
}

/// With a valid seal: the seal must not be the only defence.
#[test]
fn a_sealed_document_that_is_no_root_is_refused_with_the_field_at_fault() {
    let bytes = small().encode(&limits()).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let refused = |pointer: &str, value: serde_json::Value| {
        let mut changed = document.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        decode(&seal(changed)).unwrap_err().to_string()
    };
    let newer = refused("/bedform/version", 3.into());
    assert!(newer.contains("version 3 (a newer Bedform)"), "{newer}");
    for (pointer, value, said) in [
        ("/number", "42".into(), "number: expected an integer"),
        ("/settled", (-1).into(), "settled: expected an integer"),
        ("/commits/1/offset", 1.5.into(), "commits[1].offset"),
        ("/commits/1/number", u64::MAX.into(), "commits[1].number"),
        ("/commits/1/codec", 7.into(), "unknown codec 7"),
        ("/commits/1/segment", "../x".into(), "the name of a segment"),
        ("/commits/0", 3.into(), "commits[0]: expected an object"),
        ("/commits", 3.into(), "commits: expected a list"),
        ("/shapes/01010101010101010101010101010101", vec![-3].into(), "shapes.0101"),
        ("/shapes", vec![3].into(), "shapes: expected an object"),
        ("/shapes", serde_json::json!({"a": [3]}), "shapes: \"a\""),
        ("/sessions", vec![3].into(), "sessions: expected an object"),
        ("/sessions", serde_json::json!({"09": 1}), "sessions: \"09\""),
        ("/sessions/09090909090909090909090909090909", (1_u64 << 32).into(), "epoch 4294967296"),
        ("/bedform/store", "ab".into(), "bedform.store: expected 32"),
        ("/tables", 3.into(), "tables: expected a list"),
        ("/tables/1/last", (-1).into(), "tables[1].last"),
        ("/tables/1/checksum", (1_u64 << 32).into(), "a checksum of 4294967296"),
        ("/tables/1", 3.into(), "tables[1]: expected an object"),
        ("/since", 1.5.into(), "since: expected an integer"),
        ("/commits/0/number", 43.into(), "do not ascend"),
    ] {
        let message = refused(pointer, value);
        assert!(message.contains(said), "{pointer}: {message}");
    }
    let mut unknown = document.clone();
    unknown["more"] = 1.into();
    assert!(decode(&seal(unknown)).is_err(), "a key that this version does not know");
    let unsealed = serde_json::to_vec_pretty(&document).unwrap();
    assert!(decode(&unsealed).is_err());
    assert!(decode(b"{}").is_err());
    assert!(decode(b"[]").is_err());
    assert!(decode(b"").is_err());
    let tight = Limits::default().with_metadata_bytes_max(100);
    assert!(Root::decode(&bytes, &tight).is_err());
}
