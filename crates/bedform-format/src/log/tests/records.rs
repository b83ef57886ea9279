//! Heads of records, headers of segments, sealed bodies.

use proptest::prelude::*;

use super::super::*;
use super::{assert_every_bit_counts, assert_exact, limits};
use crate::checksum::crc32c;

#[test]
fn every_changed_bit_of_a_head_is_noticed() {
    let kinds = [RecordKind::Header, RecordKind::Data, RecordKind::Section, RecordKind::Directory];
    for (sequence, kind) in (0_u64..).zip(kinds) {
        let head = RecordHead { kind, body_bytes: 0x1234_5678_9abc, sequence };
        assert_eq!(RecordHead::decode(&head.encode()), Ok(head));
        assert_every_bit_counts(&head.encode(), RecordHead::decode);
        assert_exact(&head.encode(), RecordHead::decode);
    }
}

#[test]
fn every_changed_bit_of_a_header_is_noticed() {
    let header = SegmentHeader { store: [1; 16], session: [2; 16], rank: 7 };
    assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    assert_every_bit_counts(&header.encode(), SegmentHeader::decode);
    assert_exact(&header.encode(), SegmentHeader::decode);
}

#[test]
fn a_head_that_is_whole_and_cannot_be_is_refused() {
    let head = RecordHead { kind: RecordKind::Data, body_bytes: 9, sequence: 0 };
    let changed = |at: usize, value: u8| {
        let mut bytes = head.encode();
        bytes[at] = value;
        let checksum = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        RecordHead::decode(&bytes)
    };
    assert!(matches!(changed(0, b'X'), Err(LogError::Foreign { .. })));
    assert!(matches!(changed(4, 9), Err(LogError::Invalid { .. })), "an unknown kind");
    let newer = changed(6, 2).unwrap_err();
    assert!(matches!(newer, LogError::NewerVersion { found: 2, supported: 1, .. }));
    assert!(newer.to_string().contains("newer"), "{newer}");
    assert!(changed(6, 0).is_err(), "version 0");
    assert!(changed(15, 0x80).is_err(), "a body larger than any file");
    assert!(changed(24, 1).is_err(), "reserved bytes");
    assert!(changed(16, 5).is_ok());
    assert_eq!(padded_bytes(u64::MAX), u64::MAX);
}

#[test]
fn a_sealed_body_is_held_against_its_checksum_length_and_limit() {
    let stored = b"as it is stored";
    let body = |sealed: &Sealed| [&sealed.encode_head()[..], stored].concat();
    let sealed = Sealed::new(stored, 4096, SealedCodec::Zstd);
    assert_eq!(Sealed::open(&body(&sealed), &limits()), Ok((sealed, &stored[..])));
    assert_exact(&body(&sealed), |bytes| Sealed::open(bytes, &limits()).map(drop));
    // The checksum detects changes of itself and of the stored bytes; only decompression checks the
    // length.
    for bit in 12 * 8..body(&sealed).len() * 8 {
        let mut flipped = body(&sealed);
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Sealed::open(&flipped, &limits()).is_err(), "bit {bit}");
    }
    let mut unknown = body(&sealed);
    unknown[8] = 2;
    assert!(matches!(Sealed::open(&unknown, &limits()), Err(LogError::Invalid { .. })));
    let bomb = Sealed { bytes: limits().index_bytes_max + 1, ..sealed };
    assert!(matches!(Sealed::open(&body(&bomb), &limits()), Err(LogError::Limit { .. })));
    let longer = Sealed::new(stored, stored.len() as u64 + 1, SealedCodec::None);
    assert!(Sealed::open(&body(&longer), &limits()).is_err());
}

#[test]
fn a_lane_is_one_run_of_bytes_and_no_two_share_any() {
    let count = 5;
    let lanes = Lanes::new(count).unwrap();
    // Stripes of the file belong to the lanes in turn.
    for stripe in 0..40 {
        let lane = lanes.lane(stripe % count).unwrap();
        let within = u64::from(stripe / count) * STRIPE_BYTES;
        for at in [0, 1, STRIPE_BYTES - 1] {
            let run = lane.run(within + at);
            assert_eq!(run.offset, u64::from(stripe) * STRIPE_BYTES + at);
            assert_eq!(run.length, STRIPE_BYTES - at);
            assert_eq!(lanes.run(lane.address(within + at).unwrap()), Some(run));
        }
    }
    assert_eq!(lanes.lane(count), None);
    assert_eq!(Lanes::new(0), None);
    assert_eq!(Lanes::new(u32::MAX), None);
}

#[test]
fn what_is_said_of_addresses_outside_all_lanes_is_nothing() {
    let lanes = Lanes::new(2).unwrap();
    let last = lanes.lane(1).unwrap();
    assert_eq!(last.address(LANE_BYTES), None);
    let end = last.address(LANE_BYTES - 1).unwrap();
    assert!(lanes.end_of(end, 1).is_some());
    assert_eq!(lanes.end_of(end, 2), None, "it would begin the next lane");
    assert_eq!(lanes.end_of(LANE_BYTES - 1, 2), None, "two lanes");
    for address in [2 * LANE_BYTES, u64::MAX] {
        assert_eq!(lanes.run(address), None);
        assert_eq!(lanes.end_of(address, 1), None);
    }
    assert_eq!(lanes.end_of(1, u64::MAX), None);
    assert_eq!(Lanes::ONE.end_of(10, 5), Some(15));
    assert_eq!(Lanes::ONE.end_of(10, 0), Some(10));
    assert_eq!(Lanes::ONE.end_of(u64::MAX, 1), None);
}

proptest! {
    #[test]
    fn names_and_addresses_of_any_kind_are_taken_or_refused(
        session: [u8; 16], rank: u32, count in 1_u32..=1 << 16, address: u64, length: u64,
        text in "[0-9a-fx-]{0,50}",
    ) {
        let name = SegmentName { session, rank, lanes: Lanes::new(count).unwrap() };
        prop_assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        prop_assert!(super::super::check_segment_name(&name.to_string()).is_ok());
        if let Some(found) = SegmentName::parse(&text) {
            prop_assert_eq!(found.to_string(), text);
        }
        if let Some(end) = name.lanes.end_of(address, length) {
            let run = name.lanes.run(address).unwrap();
            prop_assert!(end >= run.offset);
            prop_assert!(end - run.offset >= length.min(run.length));
        }
    }
}
