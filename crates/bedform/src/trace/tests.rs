//! Learning from hostile traces: too many, too large, or with arbitrary contents.

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;

use bedform_format::metadata::write_group;
use bedform_format::trace::knowledge::ARRAYS_MAX;
use bedform_format::trace::query::{QueryResultKind, QueryTally, TracedCondition, TracedQuery};
use bedform_format::trace::selection::{SelectedAxis, TracedSelection};
use bedform_format::trace::{TraceBlock, TracedArray, TracedAxis, TracedRead, TracedReplica};
use bedform_geometry::{AxisSelection, Selection};
use bedform_patterns::{Pattern, Patterns, Place, Sequence};

use serde_json::Map;

use super::knowledge::fitted;
use super::{Explained, Knowledge, Learned, LearnedArray, kept_selection, learn};
use crate::sidecar::{Helper as _, Sidecar, SidecarName};

/// A source that consists of its sidecar alone.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("bedform-{name}-{}", std::process::id()));
        fs::create_dir_all(place.join("s.zarr")).unwrap();
        Sidecar::make(&SidecarName::of_path(&place.join("s.zarr"))).unwrap().unwrap();
        fs::create_dir_all(place.join("s.zarr.bedform/traces")).unwrap();
        Self(place)
    }

    fn trace(&self, name: &str, blocks: &[TraceBlock]) {
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.encode().unwrap()).collect();
        fs::write(self.0.join("s.zarr.bedform/traces").join(name), bytes).unwrap();
    }

    fn learned(&self) -> Learned {
        learn(&self.0.join("s.zarr"), &|_, _| {}).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn block(path: &str, starts: &[u64], began_ns: impl Fn(u64) -> u64) -> TraceBlock {
    let read = |(number, first): (u64, &u64)| TracedRead {
        stream: 1,
        computation: 0,
        began_ns: began_ns(number),
        took_ns: 5,
        bytes: 8,
        was_ahead: false,
        is_list: false,
        selection: 0,
        axes: vec![TracedAxis { first: *first, count: 1, step: 1 }],
    };
    TraceBlock {
        source: [0; 16],
        weight: 1,
        array: TracedArray { path: path.into(), shape: vec![1 << 40], item_size: 8 },
        reads: (0..).zip(starts).map(read).collect(),
        replicas: Vec::new(),
        queries: Vec::new(),
    }
}

fn rows(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

#[test]
fn many_traces_are_all_read_and_told_of() {
    let place = Scratch::new("many-traces");
    for number in 0..300_u64 {
        place.trace(&format!("{number:08}"), &[block("t", &rows(0, 20), |at| at)]);
    }
    let told = std::sync::atomic::AtomicU64::new(0);
    let tell = |done: u64, all: u64| {
        assert!(done < all && all == 300);
        told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let learned = learn(&place.0.join("s.zarr"), &tell).unwrap();
    assert_eq!(told.into_inner(), 300);
    assert_eq!(learned.traces, 300);
    assert_eq!(learned.knowledge.arrays["t"].read.reads, 6000);
    assert!(learned.knowledge.arrays["t"].patterns.0.len() < 8);
}

#[test]
fn of_more_arrays_than_are_known_some_are_and_the_rest_is_left_out() {
    let place = Scratch::new("many-arrays");
    let blocks = |from: usize| -> Vec<TraceBlock> {
        let names = (from..from + ARRAYS_MAX).map(|number| format!("a/{number}"));
        names.map(|name| block(&name, &rows(0, 6), |at| at)).collect()
    };
    place.trace("0", &blocks(0));
    place.trace("1", &blocks(ARRAYS_MAX / 2));
    let known = place.learned().knowledge.arrays;
    assert_eq!(known.len(), ARRAYS_MAX);
    assert_eq!(known["a/0"].read.reads, 6);
    assert_eq!(known[&format!("a/{}", ARRAYS_MAX / 2)].read.reads, 12);
}

#[test]
fn what_replicas_gave_is_added_up_over_traces_and_their_last_use_counts() {
    let place = Scratch::new("replica-uses");
    let used = |id: &str, last_ns| TracedReplica {
        id: id.to_owned(),
        reads: 3,
        bytes: 100,
        took_ns: 500_000_000,
        last_ns,
    };
    let with = |replicas| TraceBlock { replicas, ..block("t", &rows(0, 6), |at| at) };
    place.trace("0", &[with(vec![used("a", 7), used("b", 9)]), with(vec![used("a", 5)])]);
    place.trace("1", &[TraceBlock { reads: Vec::new(), ..with(vec![used("b", 20)]) }]);
    let known = place.learned().knowledge;
    let found: Vec<_> =
        known.replicas.iter().map(|(id, used)| (id.as_str(), used.reads, used.last_ns)).collect();
    assert_eq!(found, [("a", 6, 7), ("b", 6, 20)]);
    assert!((known.replicas["b"].seconds - 1.0).abs() < 1e-9);
    assert_eq!(known.arrays["t"].read.reads, 12);
}

#[test]
fn queries_of_an_array_are_added_up_over_traces_and_no_reads() {
    let place = Scratch::new("query-traces");
    let query = |queries, seconds: u64| TracedQuery {
        condition: TracedCondition {
            text: "t > 3".to_owned(),
            is_stored: false,
            result: QueryResultKind::Points,
            region: vec![(0, 5)],
        },
        tally: QueryTally {
            queries,
            bytes: 40,
            took_ns: seconds * 1_000_000_000,
            ..QueryTally::default()
        },
    };
    let with = |queries| TraceBlock { queries, ..block("t", &[], |at| at) };
    place.trace("0", &[with(vec![query(2, 1)]), with(vec![query(1, 1)])]);
    place.trace("1", &[with(vec![query(4, 3)])]);
    let known = &place.learned().knowledge.arrays["t"];
    assert_eq!((known.queries.queries, known.queries.bytes, known.read.reads), (7, 120, 0));
    assert_eq!(known.queries.conditions.len(), 1);
    assert!((known.queries.seconds - 5.0).abs() < 1e-9);
}

#[test]
fn a_read_of_a_whole_array_is_one_kind_of_read_and_hides_no_pattern_of_the_others() {
    let place = Scratch::new("whole-among-others");
    let rows_of = |first| TraceBlock {
        array: TracedArray { path: "t".into(), shape: vec![100], item_size: 8 },
        ..block("t", &rows(first, 20), |at| first + at)
    };
    let mut whole = TraceBlock { reads: rows_of(20).reads[..1].to_vec(), ..rows_of(20) };
    (whole.reads[0].axes[0], whole.reads[0].bytes) =
        (TracedAxis { first: 0, count: 100, step: 1 }, 800);
    // Loaded in the middle of a loop: most bytes are those of the whole array.
    place.trace("0", &[rows_of(0), whole, rows_of(20)]);
    let known = &place.learned().knowledge.arrays["t"];
    assert_eq!(known.read, Explained { reads: 41, bytes: 40 * 8 + 800 });
    assert_eq!(known.predicted["strided"].reads, 37);
    let longest = |pattern: &Pattern| match pattern {
        Pattern::Walk(walk) => walk.count(),
        _ => 0,
    };
    assert_eq!(known.patterns.0.iter().map(longest).max(), Some(40));
    let kinds: Vec<_> = known.kinds.0.iter().map(|kind| (kind.counts[0], kind.reads)).collect();
    assert_eq!(kinds, [(1, 40), (100, 1)]);
}

#[test]
fn an_array_whose_ends_are_read_before_all_of_it_has_no_pattern() {
    let place = Scratch::new("loaded");
    let mut loaded = TraceBlock {
        array: TracedArray { path: "t".into(), shape: vec![100], item_size: 8 },
        ..block("t", &[0, 99, 0].repeat(8), |at| at)
    };
    for whole in loaded.reads.iter_mut().skip(2).step_by(3) {
        whole.axes[0].count = 100;
    }
    place.trace("0", &[loaded]);
    let known = &place.learned().knowledge.arrays["t"];
    assert_eq!((known.read.reads, known.patterns.0.len()), (24, 0));
    assert!(known.predicted.is_empty() && known.global.0.is_empty());
}

#[test]
fn lists_are_counted_by_content_and_kept_where_a_process_has_recorded_them() {
    let place = Scratch::new("lists");
    let list = |positions: &[u64]| TracedSelection {
        is_points: false,
        axes: vec![SelectedAxis::List(Cow::Owned(positions.to_vec()))],
    };
    let (kept, unknown) = (list(&[3, 5, 99]), list(&[4]));
    let reads = |selection: u64| {
        let mut block = block("t", &[3, 3], |at| at);
        for read in &mut block.reads {
            (read.is_list, read.selection) = (true, selection);
        }
        block
    };
    place.trace("0", &[reads(kept.hash()), reads(unknown.hash()), reads(0)]);
    let recorded = place.0.join("s.zarr.bedform/recorded-selections");
    fs::create_dir(&recorded).unwrap();
    fs::write(recorded.join("0"), kept.encode(kept.hash()).unwrap()).unwrap();
    let known = &place.learned().knowledge.arrays["t"];
    let mut found: Vec<_> =
        known.selections.all.iter().map(|one| (one.reads, one.is_kept)).collect();
    found.sort_unstable();
    assert_eq!(found, [(2, false), (2, true)]);
    assert_eq!(known.lists.reads, 6);
    let sidecar = Sidecar::of_path(&place.0.join("s.zarr")).unwrap().unwrap();
    let selected: Vec<_> =
        known.selections.all.iter().filter_map(|one| kept_selection(&sidecar, one)).collect();
    let expected = Selection::Orthogonal(vec![AxisSelection::Coords(vec![3, 5, 99])]);
    assert_eq!(selected, [expected]);
}

#[test]
fn clocks_that_jump_change_no_pattern_and_no_count() {
    let place = Scratch::new("clocks");
    let began = |number: u64| match number {
        // Back by a day, to the begin of time, and to its end.
        0..20 => 1 << 60 | number,
        20..40 => (1 << 60) - (86_400 << 30) + number,
        40..60 => 0,
        _ => u64::MAX,
    };
    place.trace("0", &[block("t", &rows(0, 80), began)]);
    let known = &place.learned().knowledge.arrays["t"];
    assert_eq!(known.read.reads, 80);
    assert_eq!(known.predicted["strided"].reads, 77);
}

#[test]
fn knowledge_that_is_too_large_loses_patterns_first_and_then_the_arrays_that_were_read_least() {
    let place = Place::new([(0, 8), (0, 8)]);
    let far = 1 << 59;
    let step = place.step_to(&Place::new([(far, far), (far, far)])).unwrap();
    let sequence = Pattern::Sequence(Sequence { start: place, steps: vec![step; 500] });
    let array = |bytes, count| LearnedArray {
        read: Explained { reads: 1, bytes },
        patterns: Patterns(vec![sequence.clone(); count]),
        ..LearnedArray::default()
    };
    let known = |name: &str, count: usize| {
        let arrays = (0..400).map(|number| (format!("{name}{number}"), array(number, count)));
        let mut known = Knowledge::default();
        known.arrays = arrays.collect();
        fitted(known)
    };
    let fitted = known("a", 2);
    assert_eq!(fitted.arrays.len(), 400);
    assert!(fitted.arrays.values().all(|array| array.patterns.0.len() == 1));
    let long = "n".repeat(50_000);
    let fitted = known(&long, 0);
    assert_eq!(fitted.arrays.len(), 200);
    assert!(fitted.arrays.values().all(|array| array.read.bytes >= 200));
    assert!(fitted.encode().unwrap().len() as u64 <= Knowledge::BYTES_MAX);
}

#[test]
fn reads_of_another_store_are_counted_and_change_nothing() {
    let place = Scratch::new("other-store");
    let document = |byte: u8| {
        let text = write_group(&[byte; 16], &Map::new(), Some(Map::new())).to_string();
        fs::write(place.0.join("s.zarr/zarr.json"), text).unwrap();
    };
    document(0x1f);
    let of_store =
        |byte: u8, path| TraceBlock { source: [byte; 16], ..block(path, &rows(0, 20), |at| at) };
    place.trace(
        "0",
        &[of_store(0x1f, "t"), of_store(0x2f, "t"), of_store(0x2f, "u"), of_store(0, "t")],
    );
    let learned = place.learned();
    assert_eq!(learned.ignored, 40);
    assert_eq!(learned.knowledge.arrays.len(), 1);
    assert_eq!(learned.knowledge.arrays["t"].read.reads, 40);
    // Another store at the same path begins without knowledge.
    document(0x2f);
    place.trace("1", &[of_store(0x2f, "u")]);
    let learned = place.learned();
    assert_eq!(learned.knowledge.arrays.keys().collect::<Vec<_>>(), ["u"]);
}
