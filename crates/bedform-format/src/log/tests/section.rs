//! Sections and their builder.

use proptest::prelude::*;

use super::super::*;
use super::{Change, assert_exact, body_of_counts, boxes_in, limits, pairs};
use crate::Limits;

/// A write as the caller made it, before the builder split off its record and shared its boxes.
#[derive(Debug, Clone, PartialEq)]
struct Write {
    key: [u8; 16],
    shape: Vec<u64>,
    base: Vec<u64>,
    boxes: Vec<(Vec<u64>, Vec<u64>)>,
    order: (u32, u32),
}

/// Reassembles the writes of a section.
fn writes_of(section: &Section) -> Vec<Write> {
    let whole = |entry: &Entry| {
        let array = &section.arrays[entry.array as usize];
        let prefixed = |first: Option<u64>, rest: &[u64]| -> Vec<u64> {
            first.into_iter().chain(rest.iter().copied()).collect()
        };
        let boxes = section.selections[entry.selection as usize].iter().map(|(start, shape)| {
            (prefixed(entry.record, start), prefixed(entry.record.map(|_| 1), shape))
        });
        Write {
            key: array.key,
            shape: array.shape.clone(),
            base: array.base.clone(),
            boxes: boxes.collect(),
            order: (entry.epoch, entry.rank),
        }
    };
    section.entries.iter().map(whole).collect()
}

fn list_of(boxes: &Boxes) -> Vec<(Vec<u64>, Vec<u64>)> {
    boxes.iter().map(|(start, shape)| (start.to_vec(), shape.to_vec())).collect()
}

/// Adds blocks for `bytes` bytes of data.
fn add_blocks(builder: &mut SectionBuilder, mut bytes: u64, block_bytes: u64) {
    let mut offset = 4096 + 32;
    while bytes > 0 {
        let (now, checksum) = (bytes.min(block_bytes), 0x9e37_79b9_u32.rotate_left(bytes as u32));
        builder.block(Block { offset, stored_bytes: now, bytes: now, checksum, codec: 0 });
        offset += now.next_multiple_of(8) + 32;
        bytes -= now;
    }
}

fn small() -> Section {
    let mut builder = SectionBuilder::default();
    let grid = builder.array_from([1; 16], 4, &[9, 5, 6], &[2, 5, 6]).unwrap();
    let scalar = builder.array([2; 16], 8, &[]).unwrap();
    let mut bytes = builder.write(scalar, Boxes::without_axes(1), 0, 3).unwrap();
    for step in 2..5 {
        let boxes = Boxes::new(3, vec![step, 0, 0, step, 3, 2], vec![1, 2, 2, 1, 1, 4]).unwrap();
        bytes += builder.write(grid, boxes, 1, 3).unwrap();
    }
    bytes += builder.write(grid, Boxes::one(&[0, 0, 0], &[9, 1, 1]).unwrap(), 2, 3).unwrap();
    add_blocks(&mut builder, bytes, 100);
    builder.finish(CommitId { session: [7; 16], epoch: 300 })
}

fn decode(bytes: &[u8]) -> Result<Section> {
    Section::decode(bytes, &limits())
}

fn array_shapes() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let length = prop_oneof![6 => 1_u64..5, 1 => Just(1_u64 << 33)];
    prop::collection::vec(prop::collection::vec(length, 0..4), 1..4)
}

proptest! {
    #[test]
    fn writes_come_back_as_they_were_and_selections_are_stored_once(
        shapes in array_shapes(),
        writes in prop::collection::vec(
            (any::<usize>(), pairs(), 0_u32..3, any::<u32>(), any::<bool>()), 0..12,
        ),
    ) {
        let mut builder = SectionBuilder::default();
        let (mut model, mut data_bytes) = (Vec::new(), 0_u64);
        for (which, numbers, epoch, rank, appends) in writes {
            let number = which % shapes.len();
            let (key, shape) = ([number as u8; 16], &shapes[number]);
            let base: Vec<u64> =
                shape.iter().map(|length| if appends { length / 2 } else { *length }).collect();
            let array = builder.array_from(key, 2, shape, &base).unwrap();
            // Few elements, so that their bytes fit 64 bits.
            let numbers: Vec<_> = numbers.into_iter().map(|(at, by)| (at, by % 2)).collect();
            let boxes = boxes_in(shape, &numbers, 3);
            let order = (epoch, rank);
            let write = Write { key, shape: shape.clone(), base, boxes: list_of(&boxes), order };
            let bytes = 2 * boxes.elements().unwrap();
            prop_assert_eq!(builder.write(array, boxes, epoch, rank), Ok(bytes));
            model.push(write);
            data_bytes += bytes;
        }
        add_blocks(&mut builder, data_bytes, 1000);
        let section = builder.finish(CommitId { session: [7; 16], epoch: 300 });
        prop_assert_eq!(writes_of(&section), &model[..]);
        for (index, boxes) in section.selections.iter().enumerate() {
            prop_assert!(!section.selections[..index].contains(boxes));
        }
        let bytes = section.encode(&limits()).unwrap();
        prop_assert_eq!(decode(&bytes), Ok(section.clone()));
        let touched = section.touched().unwrap();
        prop_assert_eq!(touched.iter().map(|part| part.bytes).sum::<u64>(), data_bytes);
        for write in model {
            let part = touched.iter().find(|part| part.key == write.key).unwrap();
            for (start, shape) in write.boxes {
                for axis in 0..start.len() {
                    prop_assert!(part.start[axis] <= start[axis]);
                    prop_assert!(start[axis] + shape[axis] <= part.end[axis]);
                }
            }
        }
    }

    #[test]
    fn a_changed_section_is_refused_or_holds(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = small().encode(&limits()).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(section) = decode(&bytes) {
            prop_assert!(section.check(&limits()).is_ok());
            prop_assert_eq!(decode(&section.encode(&limits()).unwrap()), Ok(section));
        }
    }
}

#[test]
fn a_section_comes_back_and_no_part_of_it_is_taken_for_it() {
    let section = small();
    let bytes = section.encode(&limits()).unwrap();
    assert_eq!(decode(&bytes).as_ref(), Ok(&section));
    assert_exact(&bytes, decode);
    assert_eq!(decode(&Section::default().encode(&limits()).unwrap()), Ok(Section::default()));
}

#[test]
fn records_share_a_selection_and_other_writes_keep_their_first_axis() {
    let section = small();
    let found: Vec<_> =
        section.entries.iter().map(|entry| (entry.record, entry.selection)).collect();
    assert_eq!(found, [(None, 0), (Some(2), 1), (Some(3), 1), (Some(4), 1), (None, 2)]);
    let ranks: Vec<_> = section.selections.iter().map(Boxes::rank).collect();
    assert_eq!(ranks, [0, 2, 3]);
    let mut builder = SectionBuilder::default();
    let line = builder.array([1; 16], 4, &[9]).unwrap();
    builder.write(line, Boxes::one(&[3], &[1]).unwrap(), 0, 0).unwrap();
    assert_eq!(
        builder.finish(CommitId { session: [7; 16], epoch: 300 }).entries[0].record,
        None,
        "a line has no axis to spare"
    );
}

#[test]
fn touched_is_the_box_around_all_writes_over_all_axes() {
    let touched = small().touched().unwrap();
    let grid = TouchedArray {
        key: [1; 16],
        start: vec![0, 0, 0],
        end: vec![9, 4, 6],
        entries: 4,
        bytes: 4 * (3 * 8 + 9),
    };
    let scalar = TouchedArray { key: [2; 16], start: vec![], end: vec![], entries: 1, bytes: 8 };
    assert_eq!(touched, [grid, scalar]);
}

/// Encodes 546 variables of 40 time steps, each divided like this rank's part of the grid. An entry
/// takes 1.865 bytes: 1.42 for the selection, 0.40 for the keys of the arrays. The columns of all
/// entries together take less than 600 bytes. (Blocks, about 9 bytes each, grow with the data and
/// not with the entries; here they are as large as possible.)
#[test]
fn an_entry_that_shares_its_selection_takes_under_three_bytes() {
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    let shape = [40, 72, 48_602];
    let (mut starts, mut lengths) = (Vec::new(), Vec::new());
    for _ in 0..5000 {
        let length = [1 + below(8), 1 + below(50)];
        starts.extend([below(72 - length[0]), below(48_602 - length[1])]);
        lengths.extend(length);
    }
    let boxes = Boxes::new(2, starts, lengths).unwrap();
    let mut builder = SectionBuilder::default();
    let selection = builder.declare(boxes).unwrap();
    let mut data_bytes = 0;
    for step in 0..40 {
        for variable in 0..546_u64 {
            let mut key = [0xa5; 16];
            key[..8].copy_from_slice(&variable.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            let array = builder.array(key, 8, &shape).unwrap();
            let entry = Entry { array, record: Some(step), selection, epoch: 0, rank: 17 };
            data_bytes += builder.write_declared(entry).unwrap();
        }
    }
    add_blocks(&mut builder, data_bytes, 1 << 30);
    let section = builder.finish(CommitId { session: [7; 16], epoch: 300 });
    assert_eq!((section.entries.len(), section.selections.len()), (21_840, 1));
    let bytes = section.encode(&limits()).unwrap();
    let each = bytes.len() as f64 / section.entries.len() as f64;
    assert!(each < 3.0, "{each}");
    assert_eq!(decode(&bytes).unwrap(), section);
}

#[test]
fn counts_that_nothing_stands_behind_are_refused_before_memory_is_taken() {
    for huge in [u64::MAX, u64::MAX / 16, 1 << 40, 20_000_000] {
        for position in 0..5 {
            let mut counts = [0; 5];
            counts[position] = huge;
            assert!(decode(&body_of_counts(&counts)).is_err(), "{huge} at {position}");
        }
    }
    // A run of 3,000,000 entries takes few bytes, but more memory than allowed.
    let mut builder = SectionBuilder::default();
    let array = builder.array([1; 16], 1, &[]).unwrap();
    builder.write(array, Boxes::without_axes(1), 0, 0).unwrap();
    let mut section = builder.finish(CommitId { session: [7; 16], epoch: 300 });
    section.entries = vec![section.entries[0]; 3_000_000];
    section.blocks =
        vec![Block { offset: 0, stored_bytes: 3_000_000, bytes: 3_000_000, checksum: 0, codec: 0 }];
    assert!(matches!(section.encode(&limits()), Err(LogError::Limit { .. })));
    let mut few = limits();
    few.section_entries_max = 2;
    assert!(matches!(small().encode(&few), Err(LogError::Limit { .. })));
    let bytes = small().encode(&limits()).unwrap();
    assert!(matches!(Section::decode(&bytes, &few), Err(LogError::Limit { .. })));
    few = limits();
    few.section_boxes_max = 2;
    assert!(matches!(Section::decode(&bytes, &few), Err(LogError::Limit { .. })));
    let small_index = Limits::default().with_index_bytes_max(20);
    assert!(matches!(Section::decode(&bytes, &small_index), Err(LogError::Limit { .. })));
}

#[test]
fn a_newer_version_is_refused_by_its_name() {
    let mut bytes = small().encode(&limits()).unwrap();
    bytes[0] = 3;
    let refused = decode(&bytes).unwrap_err();
    assert!(matches!(refused, LogError::NewerVersion { found: 3, supported: 2, .. }));
    bytes[0] = 0;
    assert!(decode(&bytes).is_err());
}

/// The encoding of [`small`] by version 1, which did not store the shape before a session's
/// appends.
#[test]
fn a_section_of_version_1_is_read_as_one_that_has_appended_nowhere() {
    let parts: [&[u8]; 6] = [
        &[1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 172, 2, 2, 3, 3, 5, 2, 3, 6, 5, 4],
        &[5, 18, 7, 2, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2],
        &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 8, 8, 0, 2, 0, 2, 4, 2, 2, 0, 3, 4, 2, 2, 0, 1, 0],
        &[1, 2, 0, 40, 2, 14, 7, 0, 0, 0, 0, 9, 1, 1, 5, 2, 1, 0, 0, 1, 6, 0, 6, 2, 2, 0, 9, 6],
        &[0, 2, 0, 0, 0, 2, 6, 0, 2, 0, 0, 0, 2, 4, 6, 0, 0, 2, 4, 192, 64, 247, 63, 3, 200, 1],
        &[119, 3, 200, 1, 119, 3, 0, 0, 0, 227, 153, 155, 119, 158, 185, 121, 55],
    ];
    let mut section = small();
    section.arrays.iter_mut().for_each(|array| array.base.clone_from(&array.shape));
    assert_eq!(decode(&parts.concat()), Ok(section));
}

#[test]
fn sections_that_do_not_hold_are_neither_written_nor_believed() {
    let changes: [Change<Section>; 16] = [
        ("an array that is not there", |section| section.entries[0].array = 9),
        ("a selection that is not there", |section| section.entries[0].selection = 9),
        ("a record behind the last", |section| section.entries[1].record = Some(9)),
        ("the last record of all numbers", |section| section.entries[1].record = Some(u64::MAX)),
        ("a record of an array without axes", |section| section.entries[0].record = Some(0)),
        ("a selection of too few axes", |section| section.entries[1].record = None),
        ("an array that is smaller than its boxes", |section| {
            section.arrays[0].shape[2] = 5;
            section.arrays[0].base[2] = 5;
        }),
        ("an array of too many axes", |section| {
            section.arrays[0].shape = vec![1; 33];
            section.arrays[0].base = vec![1; 33];
        }),
        ("an array that was larger before", |section| section.arrays[0].base[1] = 6),
        ("an array that had fewer axes before", |section| section.arrays[0].base.truncate(2)),
        ("elements of no bytes", |section| section.arrays[0].item_size = 0),
        ("more data than the entries have", |section| section.blocks.push(section.blocks[0])),
        ("less data than the entries have", |section| section.blocks.truncate(1)),
        ("a block behind the end of all files", |section| section.blocks[0].offset = u64::MAX),
        ("a block of another length uncompressed", |section| section.blocks[0].stored_bytes = 1),
        ("a block over the limit", |section| section.blocks[0].bytes = u64::MAX),
    ];
    for (what, change) in changes {
        let mut section = small();
        change(&mut section);
        assert!(section.encode(&limits()).is_err(), "{what}");
    }
}

#[test]
fn sums_that_64_bits_do_not_hold_are_refused() {
    let mut builder = SectionBuilder::default();
    let array = builder.array([1; 16], 1 << 31, &[1 << 62]).unwrap();
    let all = Boxes::one(&[0], &[1 << 62]).unwrap();
    assert!(matches!(builder.write(array, all, 0, 0), Err(LogError::Invalid { .. })));
    assert!(builder.is_empty());
    let array = builder.array([1; 16], 1, &[1 << 62]).unwrap();
    for _ in 0..8 {
        let all = Boxes::one(&[0], &[1 << 62]).unwrap();
        assert_eq!(builder.write(array, all, 0, 0), Ok(1 << 62));
    }
    assert!(builder.finish(CommitId { session: [7; 16], epoch: 300 }).encode(&limits()).is_err());
}

#[test]
fn what_is_refused_leaves_the_builder_as_it_was() {
    let mut builder = SectionBuilder::default();
    let array = builder.array([1; 16], 4, &[4, 4]).unwrap();
    assert!(builder.write(array, Boxes::one(&[3, 3], &[1, 2]).unwrap(), 0, 0).is_err());
    assert!(builder.write(array + 1, Boxes::one(&[0, 0], &[1, 1]).unwrap(), 0, 0).is_err());
    assert!(builder.write(array, Boxes::without_axes(1), 0, 0).is_err());
    let line = builder.declare(Boxes::one(&[0], &[4]).unwrap()).unwrap();
    assert_eq!(builder.declare(Boxes::one(&[0], &[4]).unwrap()), Ok(line));
    let entry = Entry { array, record: Some(4), selection: line, epoch: 0, rank: 0 };
    assert!(builder.write_declared(entry).is_err(), "behind the last record");
    assert!(builder.write_declared(Entry { record: None, ..entry }).is_err(), "another rank");
    assert!(builder.write_declared(Entry { selection: 1, ..entry }).is_err(), "not declared");
    assert!(builder.is_empty());
    assert_eq!(builder.write_declared(Entry { record: Some(3), ..entry }), Ok(16));
    // A write of the same box reuses the declared selection.
    assert_eq!(builder.write(array, Boxes::one(&[1, 0], &[1, 4]).unwrap(), 0, 0), Ok(16));
    assert_eq!(builder.array([1; 16], 4, &[4, 4]), Ok(array));
    assert_eq!(builder.array([1; 16], 4, &[5, 4]), Ok(array + 1), "grown in between");
    assert_eq!(builder.array_from([1; 16], 4, &[5, 4], &[4, 4]), Ok(array + 2), "appended to");
    assert!(builder.array_from([1; 16], 4, &[5, 4], &[6, 4]).is_err());
    assert!(builder.array([1; 16], 0, &[4]).is_err());
    assert!(builder.array([1; 16], 4, &[1; 33]).is_err());
    let section = builder.finish(CommitId { session: [7; 16], epoch: 300 });
    assert_eq!((section.arrays.len(), section.selections.len()), (3, 1));
}

#[test]
fn a_full_section_says_so_and_can_still_be_read() {
    let mut builder = SectionBuilder::default();
    let array = builder.array([1; 16], 1, &[1 << 40, 1 << 20]).unwrap();
    let mut written = 0;
    let refused = loop {
        // 4,000 distinct boxes, scattered so that they do not compress.
        let starts = (0..8000).map(|at| (at * 7919 + written * 104_729) % (1 << 20)).collect();
        let boxes = Boxes::new(2, starts, vec![1; 8000]).unwrap();
        match builder.write(array, boxes, 0, 0) {
            Ok(bytes) => written += bytes,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, LogError::SectionFull);
    let many = Boxes::new(2, vec![0; 8_000_000], vec![1; 8_000_000]).unwrap();
    let mut other = SectionBuilder::default();
    let same = other.array([1; 16], 1, &[1 << 40, 1 << 20]).unwrap();
    assert_eq!(other.write(same, many, 0, 0), Err(LogError::SectionFull), "too much for any");
    add_blocks(&mut builder, written, 1000);
    let section = builder.finish(CommitId { session: [7; 16], epoch: 300 });
    assert!(section.entries.len() > 300, "{}", section.entries.len());
    assert_eq!(decode(&section.encode(&limits()).unwrap()), Ok(section));
}

#[test]
fn sections_that_are_put_together_have_the_writes_of_all_in_order_and_shared_boxes_once() {
    let mut whole = SectionBuilder::default();
    let (mut model, mut blocks) = (Vec::new(), Vec::new());
    for rank in 0..5_u32 {
        let mut builder = SectionBuilder::default();
        let grid = builder.array([1; 16], 4, &[9, 5, 6]).unwrap();
        let own = builder.array([2 + rank as u8 % 2; 16], 1, &[100]).unwrap();
        let shared = Boxes::one(&[u64::from(rank), 1, 2], &[1, 2, 3]).unwrap();
        let mut bytes = builder.write(grid, shared, 0, rank).unwrap();
        let boxes = Boxes::one(&[10 * u64::from(rank)], &[7]).unwrap();
        bytes += builder.write(own, boxes, 0, rank).unwrap();
        add_blocks(&mut builder, bytes, 10);
        let section = builder.finish(CommitId { session: [7; 16], epoch: 1 });
        model.extend(writes_of(&section));
        blocks.extend(section.blocks.clone());
        assert_eq!(whole.absorb(section), Ok(None));
    }
    let section = whole.finish(CommitId { session: [7; 16], epoch: 1 });
    assert_eq!(writes_of(&section), model);
    assert_eq!(section.blocks, blocks);
    assert_eq!((section.arrays.len(), section.selections.len()), (3, 6));
    assert_eq!(decode(&section.encode(&limits()).unwrap()), Ok(section));
}

#[test]
fn a_section_that_does_not_fit_is_given_back_and_fits_an_empty_one() {
    let count = 1_200_000;
    let large = |first: u64| {
        let mut builder = SectionBuilder::default();
        let array = builder.array([1; 16], 1, &[1 << 30]).unwrap();
        let starts = (0..count).map(|at| 2 * at + first).collect();
        let boxes = Boxes::new(1, starts, vec![1; count as usize]).unwrap();
        let bytes = builder.write(array, boxes, 0, 0).unwrap();
        add_blocks(&mut builder, bytes, 32 << 10);
        builder.finish(CommitId::default())
    };
    let mut whole = SectionBuilder::default();
    assert_eq!(whole.absorb(large(0)), Ok(None));
    for _ in 0..5 {
        assert_eq!(whole.absorb(large(0)), Ok(None), "the same boxes again");
    }
    let refused = (1..10).find_map(|first| whole.absorb(large(first)).unwrap());
    assert!(whole.finish(CommitId::default()).encode(&limits()).is_ok());
    assert_eq!(SectionBuilder::default().absorb(refused.unwrap()), Ok(None));
}
