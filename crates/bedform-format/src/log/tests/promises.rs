//! Promise files: every changed bit is detected, and a damaged file yields only promises that were
//! written.

use proptest::prelude::*;

use super::super::*;
use super::{assert_every_bit_counts, assert_exact, limits};
use crate::checksum::crc32c;

const BLOCK: usize = SEGMENT_ALIGNMENT as usize;

fn header(first: u64) -> PromisesHeader {
    let segment = SegmentHeader { store: [1; 16], session: [2; 16], rank: 7 };
    PromisesHeader { segment, file: 3, first }
}

fn promise(number: u64) -> Promise {
    Promise {
        commit: CommitId { session: [2; 16], epoch: u32::try_from(number).unwrap() + 5 },
        number,
        address: 4096 * number,
        stored_bytes: 160,
        checksum: 0x1234_5678,
    }
}

/// The blocks of a file with `count` promises.
fn blocks(first: u64, count: u64) -> Vec<Vec<u8>> {
    let promises = (first..first + count).map(|number| promise(number).encode());
    let all = [header(first).encode()].into_iter().chain(promises);
    all.map(|bytes| [&bytes[..], &[0; BLOCK - Promise::BYTES]].concat()).collect()
}

#[test]
fn every_changed_bit_of_a_header_or_a_promise_is_noticed() {
    assert_eq!(PromisesHeader::decode(&header(9).encode()), Ok(header(9)));
    assert_every_bit_counts(&header(9).encode(), PromisesHeader::decode);
    assert_exact(&header(9).encode(), PromisesHeader::decode);
    assert_eq!(Promise::decode(&promise(9).encode()), Ok(promise(9)));
    assert_every_bit_counts(&promise(9).encode(), Promise::decode);
    assert_exact(&promise(9).encode(), Promise::decode);
}

#[test]
fn what_is_whole_and_cannot_be_is_refused() {
    let sealed = |mut bytes: [u8; 64], at: usize, value: u8| {
        bytes[at] = value;
        let checksum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    };
    let changed = |at, value| PromisesHeader::decode(&sealed(header(0).encode(), at, value));
    let newer = changed(4, 2).unwrap_err();
    assert!(matches!(newer, LogError::NewerVersion { found: 2, supported: 1, .. }));
    assert!(newer.to_string().contains("use a newer one"), "{newer}");
    assert!(changed(4, 0).is_err(), "version 0");
    assert!(changed(55, 0x80).is_err(), "a number that cannot be counted on from");
    assert!(changed(56, 1).is_err(), "reserved bytes");
    assert!(matches!(changed(0, b'X'), Err(LogError::Foreign { .. })));
    let changed = |at, value| Promise::decode(&sealed(promise(0).encode(), at, value));
    assert!(matches!(changed(0, b'X'), Err(LogError::Foreign { .. })));
    assert!(changed(39, 0x80).is_err(), "behind the end of any file");
    assert!(changed(52, 1).is_err(), "reserved bytes");
    assert!(changed(48, 1).is_ok());
}

#[test]
fn a_file_over_the_limit_is_refused() {
    let few = limits().with_metadata_bytes_max(4 * BLOCK as u64);
    assert!(PromiseFile::decode(&blocks(0, 3).concat(), &few).is_ok());
    let error = PromiseFile::decode(&blocks(0, 4).concat(), &few).unwrap_err();
    assert!(matches!(error, LogError::Limit { .. }), "{error}");
}

/// A change of one block.
#[derive(Debug, Clone, Copy)]
enum Harm {
    None,
    Flip(usize),
    Zero,
    /// Overwrites it by another promise of the file, or by one of another session.
    Replace(u64),
    Foreign,
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        5 => Just(Harm::None),
        2 => (0..Promise::BYTES * 8).prop_map(Harm::Flip),
        1 => Just(Harm::Zero),
        1 => (0..9_u64).prop_map(Harm::Replace),
        1 => Just(Harm::Foreign),
    ]
}

proptest! {
    #[test]
    fn what_is_read_of_a_damaged_file_are_the_promises_that_are_whole_and_in_their_places(
        first in 0_u64..1000, harms in prop::collection::vec(harm(), 0..9), cut in 0_usize..3,
        zeros in 0_usize..9000,
    ) {
        let mut blocks = blocks(first, harms.len() as u64);
        // The model: for each number, true for an intact promise, and true for an empty block.
        let mut expected = Vec::new();
        for ((block, harm), number) in blocks[1..].iter_mut().zip(&harms).zip(first..) {
            let state = match harm {
                Harm::None => (true, false),
                Harm::Flip(bit) => {
                    block[bit / 8] ^= 1 << (bit % 8);
                    (false, false)
                }
                Harm::Zero => {
                    block.fill(0);
                    (false, true)
                }
                Harm::Replace(other) => {
                    block[..64].copy_from_slice(&promise(first + other).encode());
                    (first + other == number, false)
                }
                Harm::Foreign => {
                    let mut other = promise(number);
                    other.commit.session = [9; 16];
                    block[..64].copy_from_slice(&other.encode());
                    (false, false)
                }
            };
            expected.push((number, state));
        }
        let mut bytes = blocks.concat();
        if cut > 0 && !harms.is_empty() {
            // Cuts after the last promise, within its block, or before it.
            bytes.truncate(bytes.len() - [0, BLOCK - 64, BLOCK][cut]);
            if cut == 2 {
                expected.pop();
            }
        }
        bytes.resize(bytes.len() + zeros, 0);
        let found = PromiseFile::decode(&bytes, &limits()).unwrap();
        prop_assert_eq!(found.header, header(first));
        let whole = expected.iter().filter(|(_, (is_whole, _))| *is_whole);
        let whole: Vec<Promise> = whole.map(|(number, _)| promise(*number)).collect();
        prop_assert_eq!(&found.promises, &whole);
        let behind = expected.iter().rev().take_while(|(_, (is_whole, _))| !is_whole);
        let has_torn_end = behind.into_iter().any(|(_, (_, is_empty))| !is_empty);
        prop_assert_eq!(found.has_torn_end, has_torn_end);
    }

    #[test]
    fn any_bytes_are_taken_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..3, name in ".{0,20}",
    ) {
        let mut file = blocks(u64::from(u32::MAX), 0).concat();
        file.resize(3 * BLOCK, 0);
        let start = at * BLOCK;
        file[start..start + bytes.len()].copy_from_slice(&bytes);
        let _ = PromiseFile::decode(&file, &limits());
        if let Some(number) = PromiseFile::parse_name(&name) {
            prop_assert_eq!(PromiseFile::name(number), name);
        }
    }
}
