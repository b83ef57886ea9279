//! Tables.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::{assert_every_bit_counts, assert_exact, limits};
use crate::Limits;

/// A commit of the model: its number, its sections with one array and box each, and the arrays that
/// grow.
type Commit = (u64, Vec<(u8, u64, u64)>, Vec<(u8, u64)>);
type Model = Vec<Commit>;

fn models() -> impl Strategy<Value = Model> {
    let section = (0_u8..4, 0_u64..50, 1_u64..9);
    let sections = prop::collection::vec(section, 0..6);
    let grown = prop::collection::vec((0_u8..4, 1_u64..9), 0..3);
    prop::collection::vec((1_u64..4, sections, grown), 1..60)
}

/// Arrays of ranks 0 to 3; the index is the rank.
fn boxed(array: u8, at: u64, length: u64) -> ([u8; 16], Vec<u64>, Vec<u64>) {
    let rank = usize::from(array);
    ([array; 16], vec![at; rank], vec![at + length; rank])
}

fn directories(model: &Model) -> Vec<(CommitRecord, Directory)> {
    let mut number = 0;
    let directory = |(step, sections, grown): &Commit| {
        number += step;
        let mut at = number * 1000;
        let sections = sections.iter().map(|(array, start, length)| {
            let (key, start, end) = boxed(*array, *start, *length);
            at += 10;
            SectionPlace {
                segment: u32::from(*array % 2),
                offset: at,
                stored_bytes: 10,
                bytes: 20,
                rank_first: 0,
                arrays: vec![TouchedArray { key, start, end, entries: 1, bytes: 8 }],
            }
        });
        let grown = grown.iter().map(|(array, length)| GrownArray {
            key: [*array; 16],
            base: vec![number; usize::from(*array)],
            shape: vec![number + length; usize::from(*array)],
        });
        let directory = Directory {
            segments: vec!["one-0".to_owned(), format!("two-{}", number / 20)],
            sections: sections.collect(),
            grown: grown.collect(),
            ..Directory::default()
        };
        let segment = "own-0".to_owned();
        let (offset, codec) = (at, SealedCodec::None);
        let record = CommitRecord { number, segment, offset, stored_bytes: 5, bytes: 5, codec };
        (record, directory)
    };
    model.iter().map(directory).collect()
}

fn table_of(commits: &[(CommitRecord, Directory)]) -> Table {
    let mut table = Table::default();
    commits.iter().for_each(|(record, directory)| table.add(record, directory));
    table
}

/// Decodes an encoded table.
fn read(bytes: &[u8], index_bytes: usize, limits: &Limits) -> Result<Table> {
    let index = TableIndex::decode(&bytes[bytes.len() - index_bytes..], limits)?;
    let mut table = Table {
        commits: index.commits.clone(),
        segments: index.segments.clone(),
        ..Table::default()
    };
    for block in &index.blocks {
        let stored = &bytes[block.offset as usize..][..block.bytes as usize];
        match block.kind {
            BlockKind::Rows => table.rows.extend(block.rows(stored, &index, limits)?),
            BlockKind::Growths => table.growths.extend(block.growths(stored, limits)?),
        }
    }
    Ok(table)
}

proptest! {
    #[test]
    fn a_table_has_what_the_directories_have_and_finds_it_by_array(model in models()) {
        let commits = directories(&model);
        let mut table = table_of(&commits);
        table.sort();
        let (bytes, index_bytes) = table.encode(&limits()).unwrap();
        prop_assert_eq!(&read(&bytes, index_bytes, &limits()).unwrap(), &table);
        let index = TableIndex::decode(&bytes[bytes.len() - index_bytes..], &limits()).unwrap();
        for array in 0_u8..5 {
            let key = [array; 16];
            let mut expected = Vec::new();
            for (record, directory) in &commits {
                for (order, section) in (0..).zip(&directory.sections) {
                    let own = section.arrays.iter().filter(|touched| touched.key == key);
                    let name = &directory.segments[section.segment as usize];
                    expected.extend(own.map(|touched| {
                        (record.number, order, name.clone(), section.offset, touched.start.clone())
                    }));
                }
            }
            let mut found = Vec::new();
            for block in index.blocks_of(BlockKind::Rows, &key) {
                let stored = &bytes[block.offset as usize..][..block.bytes as usize];
                for row in block.rows(stored, &index, &limits()).unwrap() {
                    if row.key == key {
                        prop_assert!(block.intersects(&row.start, &row.end));
                        let name = index.segments[row.segment as usize].name.clone();
                        found.push((row.commit, row.order, name, row.offset, row.start));
                    }
                }
            }
            prop_assert_eq!(found, expected);
            let mut shapes = Vec::new();
            for block in index.blocks_of(BlockKind::Growths, &key) {
                let stored = &bytes[block.offset as usize..][..block.bytes as usize];
                let growths = block.growths(stored, &limits()).unwrap();
                let own = growths.into_iter().filter(|growth| growth.grown.key == key);
                shapes.extend(own.map(|growth| (growth.commit, growth.grown.shape)));
            }
            let grown = commits.iter().flat_map(|(record, directory)| {
                let own = directory.grown.iter().filter(|grown| grown.key == key);
                own.map(|grown| (record.number, grown.shape.clone()))
            });
            prop_assert_eq!(shapes, grown.collect::<Vec<_>>());
        }
    }

    #[test]
    fn tables_merge_to_the_table_of_all_their_commits(
        model in models(),
        at in any::<prop::sample::Index>(),
        settled in 0_u64..40,
    ) {
        let commits = directories(&model);
        let (first, later) = commits.split_at(at.index(commits.len()));
        let mut merged = table_of(first);
        merged.sort();
        merged.extend(table_of(later));
        merged.drop_settled(settled);
        merged.sort();
        let rest: Vec<_> =
            commits.iter().filter(|(record, _)| record.number > settled).cloned().collect();
        let mut expected = table_of(&rest);
        expected.sort();
        // The indexes of segments, and the remaining ends of settled records, may differ.
        let named = |table: &Table| -> Vec<_> {
            let name = |row: &TableRow| table.segments[row.segment as usize].name.clone();
            table.rows.iter().map(|row| (row.key, row.commit, row.order, name(row), row.offset)).collect()
        };
        prop_assert_eq!(named(&merged), named(&expected));
        prop_assert_eq!(&merged.commits, &expected.commits);
        prop_assert_eq!(&merged.growths, &expected.growths);
        let last = |table: &Table| -> BTreeMap<String, (u64, Option<u64>)> {
            let last = |segment: &TableSegment| (segment.last, segment.ends.iter().max().copied());
            table.segments.iter().map(|one| (one.name.clone(), last(one))).collect()
        };
        prop_assert_eq!(last(&merged), last(&expected));
        if !merged.commits.is_empty() {
            merged.encode(&limits()).unwrap();
        }
    }

    #[test]
    fn no_bytes_are_too_much_for_the_reader_of_an_index(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let _ = TableIndex::decode(&bytes, &limits());
    }
}

fn small() -> (Vec<u8>, usize) {
    let model: Model =
        (0..40).map(|at| (1, vec![(2, at, 1), (3, at, 2), (0, 0, 1)], vec![(2, 1)])).collect();
    let mut table = table_of(&directories(&model));
    table.sort();
    table.encode(&limits()).unwrap()
}

#[test]
fn every_changed_bit_of_a_block_is_noticed_and_no_part_of_an_index_is_taken_for_it() {
    let (bytes, index_bytes) = small();
    let (blocks, index) = bytes.split_at(bytes.len() - index_bytes);
    assert_exact(index, |bytes| TableIndex::decode(bytes, &limits()));
    assert_every_bit_counts(blocks, |blocks| {
        read(&[blocks, index].concat(), index_bytes, &limits())
    });
}

#[test]
fn an_array_of_many_rows_has_blocks_of_its_own_whose_boxes_say_where_they_are() {
    let model: Model = (0..1000).map(|at| (1, vec![(1, at, 1), (2, 0, 1)], vec![])).collect();
    let mut table = table_of(&directories(&model));
    table.sort();
    let (bytes, index_bytes) = table.encode(&limits()).unwrap();
    let index = TableIndex::decode(&bytes[bytes.len() - index_bytes..], &limits()).unwrap();
    let blocks: Vec<_> = index.blocks_of(BlockKind::Rows, &[1; 16]).collect();
    assert_eq!(blocks.len(), 1000_usize.div_ceil(BLOCK_ITEMS_MAX));
    for (number, block) in blocks.iter().enumerate() {
        let first = (number * BLOCK_ITEMS_MAX) as u64;
        assert_eq!(block.bounds.as_ref().unwrap().0, [first]);
        assert_eq!(block.commits.0, first + 1);
    }
}
