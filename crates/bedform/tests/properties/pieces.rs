//! Arrays that are created or appended to in pieces: readers see no partial state.

use std::sync::Arc;

use bedform::{
    Array, Elements, Error, ErrorKind, Growth, NewArray, OpenOptions, Store, append_with,
};
use bedform_format::ObjectPath;
use bedform_geometry::{Region, Selection};
use bedform_storage::{MemoryStorage, RecordedOperation, Recording, Storage, StorageOperation};
use serde_json::{Map, Value, json};

fn path(text: &str) -> ObjectPath {
    ObjectPath::parse(text).unwrap()
}

/// Two handles on one store, as in two processes.
fn two() -> (Store, Store) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let first = Store::create(storage.clone(), &Map::new(), options.clone()).unwrap();
    (first, Store::open(storage, options).unwrap())
}

fn bytes_of(length: u64) -> NewArray {
    let description = json!({"shape": [length], "dtype": "uint8", "chunks": [2], "shards": [4]});
    NewArray::from_json(&description, &bedform_format::Limits::default()).unwrap()
}

fn span(start: u64, length: u64) -> Selection {
    Selection::from(Region::new(vec![start], vec![length]).unwrap())
}

fn contents(store: &Store, name: &str) -> Vec<u8> {
    let array = store.array(&path(name)).unwrap();
    let length = array.shape().unwrap()[0];
    let mut out = vec![0; usize::try_from(length).unwrap()];
    array.read(&span(0, length), &mut out).unwrap();
    out
}

#[test]
fn drafts_are_written_by_others_and_appear_together_with_their_group() {
    let (first, second) = two();
    for name in ["g/a", "g/b"] {
        first.draft_array(&path(name), &bytes_of(4)).unwrap();
        assert_eq!(second.array(&path(name)).unwrap_err().kind(), ErrorKind::NotFound);
        let draft = second.open_draft(&path(name)).unwrap();
        draft.write(&span(0, 4), Elements::Bytes(&[1, 2, 3, 4])).unwrap();
    }
    assert!(second.nodes().unwrap().is_empty());
    let attributes = |text: &str| Map::from_iter([("title".to_owned(), Value::from(text))]);
    let groups = [(path("g"), attributes("group")), (ObjectPath::root(), attributes("root"))];
    first.commit_drafts_with(&[path("g/a"), path("g/b")], &groups).unwrap();
    assert_eq!(contents(&second, "g/b"), [1, 2, 3, 4]);
    assert_eq!(second.group_attributes(&path("g")).unwrap(), attributes("group"));
    assert_eq!(second.group_attributes(&ObjectPath::root()).unwrap(), attributes("root"));
    let missing = second.open_draft(&path("g/c")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// A regression: a conversion that wrote a draft in blocks listed a directory of the log for each.
#[test]
fn the_blocks_of_a_draft_look_once_for_promises_of_dead_writers() {
    let recording = Arc::new(Recording::new(MemoryStorage::new()));
    let mut options = OpenOptions::default();
    options.commits_named = 2;
    options.writable = true;
    let store = Store::create(recording.clone(), &Map::new(), options).unwrap();
    let draft = store.draft_array(&path("a"), &bytes_of(8)).unwrap();
    let written = |array: &Array, blocks: u64| {
        recording.clear();
        for start in 0..blocks {
            array.write(&span(4 * start, 4), Elements::Bytes(&[7; 4])).unwrap();
        }
        let of_log = |event: &&RecordedOperation| {
            event.operation == StorageOperation::List && !event.place.is_empty()
        };
        recording.events().iter().filter(of_log).count()
    };
    assert_eq!((written(&draft, 2), written(&draft.clone(), 2)), (1, 0));
    store.commit_drafts(&[path("a")]).unwrap();
    assert_eq!(written(&draft, 2), 2, "sessions can write to what is visible");
    assert_eq!(contents(&store, "a"), [7; 8]);
}

#[test]
fn an_append_in_pieces_is_seen_when_it_is_complete() {
    let (first, second) = two();
    let array = first.create_array(&path("a"), &bytes_of(3)).unwrap();
    array.write(&span(0, 3), Elements::Bytes(&[1, 2, 3])).unwrap();
    let parts = [Growth { array: &array, axis: 0, length: 4 }];
    append_with(&parts, &mut |shapes| {
        for (start, value) in [(3, 4), (5, 6), (4, 5), (6, 7)] {
            let grown = second.grown(&path("a"), &shapes[0])?;
            grown.write(&span(start, 1), Elements::Bytes(&[value]))?;
            assert_eq!(contents(&second, "a"), [1, 2, 3]);
        }
        second.set_attributes(&path("a"), Map::from_iter([("n".to_owned(), json!(1))]))
    })
    .unwrap();
    assert_eq!(contents(&second, "a"), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(second.array(&path("a")).unwrap().attributes().unwrap()["n"], 1);
}

#[test]
fn what_a_failed_append_in_pieces_wrote_never_comes_to_light() {
    let (first, _) = two();
    let array = first.create_array(&path("a"), &bytes_of(1)).unwrap();
    array.write(&span(0, 1), Elements::Bytes(&[1])).unwrap();
    let grow = |written: u8, fails: bool| {
        let parts = [Growth { array: &array, axis: 0, length: 5 }];
        append_with(&parts, &mut |shapes| {
            let grown = first.grown(&path("a"), &shapes[0])?;
            for start in 0..u64::from(written) {
                grown.write(&span(start + 1, 1), Elements::Bytes(&[9]))?;
            }
            if fails { Err(Error::new(ErrorKind::Io, "the disk is gone")) } else { Ok(()) }
        })
    };
    assert_eq!(grow(5, true).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(contents(&first, "a"), [1]);
    grow(1, false).unwrap();
    assert_eq!(contents(&first, "a"), [1, 9, 0, 0, 0, 0]);
}

#[test]
fn a_handle_on_a_grown_array_does_not_shrink_it() {
    let (first, _) = two();
    first.create_array(&path("a"), &bytes_of(3)).unwrap();
    for shape in [vec![2], vec![3, 1]] {
        let error = first.grown(&path("a"), &shape).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn who_deletes_an_array_or_a_group_waits_for_the_appends_to_what_is_in_it() {
    for deleted in ["g/h/a", "g"] {
        let (first, second) = two();
        let array = first.create_array(&path("g/h/a"), &bytes_of(1)).unwrap();
        first.create_array(&path("g/b"), &bytes_of(1)).unwrap();
        std::thread::scope(|scope| {
            let (begin, begun) = std::sync::mpsc::channel();
            let deletion = scope.spawn(move || {
                begun.recv().unwrap();
                second.delete(&path(deleted)).unwrap();
            });
            let parts = [Growth { array: &array, axis: 0, length: 3 }];
            append_with(&parts, &mut |_| {
                begin.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(100));
                assert!(!deletion.is_finished(), "{deleted}");
                Ok(())
            })
            .unwrap();
            deletion.join().unwrap();
        });
        assert_eq!(first.array(&path("g/h/a")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
