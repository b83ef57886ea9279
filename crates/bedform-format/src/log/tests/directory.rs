//! Directories.

use proptest::prelude::*;

use super::super::*;
use super::{Change, assert_exact, body_of_counts, limits};

fn part(key: u8, start: &[u64], end: &[u64]) -> TouchedArray {
    let (start, end) = (start.to_vec(), end.to_vec());
    TouchedArray { key: [key; 16], start, end, entries: 3, bytes: 1000 }
}

fn place(segment: u32, rank_first: u32, arrays: Vec<TouchedArray>) -> SectionPlace {
    let offset = 4096 * u64::from(rank_first + 1);
    SectionPlace { segment, offset, stored_bytes: 100, bytes: 300, rank_first, arrays }
}

fn small() -> Directory {
    Directory {
        commit: CommitId { session: [7; 16], epoch: 300 },
        is_promised: true,
        segments: vec!["0123456789abcdef-0".into(), "fedcba9876543210-12".into()],
        sections: vec![
            place(0, 0, vec![part(1, &[0, 0], &[4, 5]), part(2, &[], &[])]),
            place(1, 1, vec![]),
            place(1, 2, vec![part(3, &[7], &[8]), part(1, &[2, 5], &[4, 10])]),
        ],
        grown: vec![
            GrownArray { key: [3; 16], base: vec![8], shape: vec![9] },
            GrownArray { key: [1; 16], base: vec![4, 0], shape: vec![4, 1 << 40] },
        ],
    }
}

fn decode(bytes: &[u8]) -> Result<Directory> {
    Directory::decode(bytes, &limits())
}

fn parts() -> impl Strategy<Value = Vec<TouchedArray>> {
    let number = || prop_oneof![0_u64..12, any::<u64>()];
    let part = (0_u8..4, prop::collection::vec((number(), number()), 4), number(), number());
    let part = part.prop_map(|(key, sides, entries, bytes)| {
        // The rank of an array follows from its key.
        let sides = &sides[..usize::from(key)];
        let start: Vec<u64> = sides.iter().map(|(at, _)| (*at).min(u64::MAX - 1)).collect();
        let end = start.iter().zip(sides);
        let end = end.map(|(at, (_, more))| at.saturating_add((*more).max(1))).collect();
        TouchedArray { key: [key; 16], start, end, entries, bytes }
    });
    prop::collection::vec(part, 0..5)
}

fn directories() -> impl Strategy<Value = Directory> {
    let segments = prop::collection::vec("[a-z0-9-]{1,9}", 1..4);
    let section = (any::<u32>(), any::<u64>(), 0_u64..1 << 20, any::<u32>(), parts());
    let commit = (any::<[u8; 16]>(), any::<u32>());
    let commit = commit.prop_map(|(session, epoch)| CommitId { session, epoch });
    let sides = prop::collection::vec((0..=i64::MAX as u64, any::<u64>()), 0..4);
    let grown = (any::<[u8; 16]>(), sides).prop_map(|(key, sides)| {
        let (shape, base) = sides.iter().map(|(at, less)| (*at, less % (at + 1))).unzip();
        GrownArray { key, base, shape }
    });
    let grown = prop::collection::vec(grown, 0..4);
    let parts = (commit, segments, prop::collection::vec(section, 0..6), grown);
    parts.prop_map(|(commit, segments, sections, grown)| {
        let count = segments.len() as u32;
        let place = |(segment, offset, bytes, rank_first, arrays): (u32, u64, u64, u32, _)| {
            let (segment, offset) = (segment % count, offset.min(u64::MAX - bytes));
            SectionPlace { segment, offset, stored_bytes: bytes, bytes, rank_first, arrays }
        };
        let sections = sections.into_iter().map(place).collect();
        let is_promised = commit.epoch % 2 == 1;
        Directory { commit, is_promised, segments, sections, grown }
    })
}

proptest! {
    #[test]
    fn a_directory_comes_back_whatever_its_sections_touch(directory in directories()) {
        let bytes = directory.encode(&limits()).unwrap();
        prop_assert_eq!(decode(&bytes), Ok(directory));
    }

    #[test]
    fn a_section_is_found_by_any_element_that_it_touches(
        directory in directories(), key in 1_u8..4, at in prop::collection::vec(0_u64..16, 3),
    ) {
        let start = &at[..usize::from(key)];
        let end: Vec<u64> = start.iter().map(|at| at + 1).collect();
        let has = |part: &TouchedArray| {
            part.key == [key; 16]
                && (0..start.len()).all(|axis| (part.start[axis]..part.end[axis]).contains(&start[axis]))
        };
        let expected: Vec<&SectionPlace> =
            directory.sections.iter().filter(|section| section.arrays.iter().any(has)).collect();
        let found: Vec<_> = directory.sections_of(&[key; 16], start, &end).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_changed_directory_is_refused_or_holds(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = small().encode(&limits()).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(directory) = decode(&bytes) {
            prop_assert!(directory.check(&limits()).is_ok());
            prop_assert_eq!(decode(&directory.encode(&limits()).unwrap()), Ok(directory));
        }
    }
}

#[test]
fn no_part_of_a_directory_is_taken_for_it() {
    assert_exact(&small().encode(&limits()).unwrap(), decode);
    let empty = Directory::default();
    assert_eq!(decode(&empty.encode(&limits()).unwrap()), Ok(empty));
}

#[test]
fn boxes_that_only_touch_at_their_edges_have_nothing_in_common() {
    let directory = small();
    let ranks = |key: u8, start: &[u64], end: &[u64]| -> Vec<u32> {
        directory.sections_of(&[key; 16], start, end).map(|section| section.rank_first).collect()
    };
    assert_eq!(ranks(1, &[0, 0], &[9, 9]), [0, 2]);
    assert_eq!(ranks(1, &[0, 5], &[9, 6]), [2]);
    assert_eq!(ranks(1, &[4, 0], &[9, 9]), [0_u32; 0]);
    assert_eq!(ranks(1, &[3, 3], &[3, 9]), [0_u32; 0], "an empty box");
    assert_eq!(ranks(2, &[], &[]), [0], "an array without axes");
    assert_eq!(ranks(9, &[0], &[9]), [0_u32; 0]);
    assert_eq!(ranks(3, &[0, 0], &[1, 1]), [2], "another rank is not passed over");
}

#[test]
fn an_array_that_was_made_anew_with_another_rank_keeps_both() {
    let mut directory = small();
    directory.sections[1].arrays = vec![part(1, &[5], &[6]), part(1, &[0, 0], &[1, 1])];
    assert_eq!(decode(&directory.encode(&limits()).unwrap()), Ok(directory));
}

#[test]
fn counts_that_nothing_stands_behind_are_refused_before_memory_is_taken() {
    for huge in [u64::MAX, u64::MAX / 16, 1 << 40, 20_000_000] {
        for position in 0..4 {
            let mut counts = [0; 4];
            counts[position] = huge;
            assert!(
                decode(&body_of_counts(&[&[0], &counts[..]].concat())).is_err(),
                "{huge} at {position}"
            );
        }
    }
    let mut many = small();
    many.sections[0].arrays = vec![part(2, &[], &[]); 1_000_000];
    assert!(matches!(many.encode(&limits()), Err(LogError::Limit { .. })));
}

#[test]
fn directories_that_do_not_hold_are_neither_written_nor_believed() {
    let changes: [Change<Directory>; 10] = [
        ("a name that leaves its place", |d| d.segments[0] = "..".into()),
        ("a name of two segments", |d| d.segments[0] = "a/b".into()),
        ("an empty name", |d| d.segments[0] = String::new()),
        ("a segment that is not there", |d| d.sections[2].segment = 2),
        ("a section behind the end of all files", |d| d.sections[0].offset = u64::MAX),
        ("a section over the limit", |d| d.sections[0].bytes = u64::MAX),
        ("a stored section over the limit", |d| d.sections[0].stored_bytes = 1 << 40),
        ("an empty box", |d| d.sections[0].arrays[0].end[0] = 0),
        ("an end without a start", |d| d.sections[0].arrays[0].end.push(9)),
        ("too many axes", |d| d.sections[0].arrays[0] = part(1, &[0; 33], &[1; 33])),
    ];
    for (what, change) in changes {
        let mut directory = small();
        change(&mut directory);
        assert!(directory.encode(&limits()).is_err(), "{what}");
    }
    // Tests the same names and claims in the encoding, by replacing them with bytes of equal
    // length.
    let bytes = small().encode(&limits()).unwrap();
    let at = bytes.windows(4).position(|window| window == b"0123").unwrap();
    for name in [b"\xff\xff\xff\xff", b"a/b/", b"a\0bc", b"a\\bc"] {
        let mut changed = bytes.clone();
        changed[at..at + 4].copy_from_slice(name);
        assert!(decode(&changed).is_err(), "{name:?}");
    }
    let mut newer = bytes;
    newer[0] = 2;
    assert!(matches!(decode(&newer), Err(LogError::NewerVersion { found: 2, .. })));
}
