//! Numbers and columns.

use proptest::prelude::*;

use super::super::varint::*;
use super::assert_exact;

proptest! {
    #[test]
    fn a_number_comes_back_whatever_follows_it(value: u64, behind: Vec<u8>) {
        let mut bytes = Vec::new();
        write_varint(value, &mut bytes);
        prop_assert!(bytes.len() <= 10);
        bytes.extend_from_slice(&behind);
        prop_assert_eq!(read_varint(&bytes), Ok((value, &behind[..])));
        let signed = value.cast_signed();
        prop_assert_eq!(unzigzag(zigzag(signed)), signed);
    }

    #[test]
    fn bytes_that_are_a_number_are_its_only_form(bytes: Vec<u8>) {
        if let Ok((value, rest)) = read_varint(&bytes) {
            let mut again = Vec::new();
            write_varint(value, &mut again);
            prop_assert_eq!(&bytes[..bytes.len() - rest.len()], &again);
        }
    }

    #[test]
    fn a_column_comes_back_and_has_no_other_length(
        runs in prop::collection::vec((prop_oneof![0_u64..3, any::<u64>()], 0_u64..3, 1_usize..6), 0..20),
    ) {
        // Runs that are constant, that count up, and that wrap around.
        let values: Vec<u64> = runs
            .into_iter()
            .flat_map(|(first, step, count)| {
                (0..count as u64).map(move |index| first.wrapping_add(index * step))
            })
            .collect();
        let bytes = encode_column(&values);
        assert_exact(&bytes, |bytes| decode_column(bytes, values.len()));
        prop_assert_eq!(decode_column(&bytes, values.len()), Ok(values.clone()));
        prop_assert!(decode_column(&bytes, values.len() + 1).is_err());
        if let Some(fewer) = values.len().checked_sub(1) {
            prop_assert!(decode_column(&bytes, fewer).is_err());
        }
    }

    #[test]
    fn bytes_that_are_a_column_are_its_only_form(
        bytes in prop::collection::vec(0_u8..5, 0..12), count in 0_usize..40,
    ) {
        if let Ok(values) = decode_column(&bytes, count) {
            prop_assert_eq!(encode_column(&values), bytes);
        }
    }
}

#[test]
fn numbers_that_are_too_long_are_refused() {
    let eleven_bytes = [0x80; 11];
    let over_64_bits = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    for bytes in [&[][..], &[0x80], &[0x80, 0], &[0xff, 0x80, 0], &eleven_bytes, &over_64_bits] {
        assert!(read_varint(bytes).is_err(), "{bytes:?}");
    }
    let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(read_varint(&largest), Ok((u64::MAX, &[][..])));
}

#[test]
fn a_run_takes_a_few_bytes_and_cannot_be_longer_than_its_column() {
    let constant = [7; 100_000];
    let bytes = encode_column(&constant);
    assert_eq!(bytes.len(), 6);
    assert_eq!(decode_column(&bytes, constant.len()).unwrap(), constant);
    let mut endless = vec![0, 0];
    write_varint(u64::MAX, &mut endless);
    assert!(decode_column(&endless, 1000).is_err());
    assert!(decode_column(&[0, 0, 0, 0, 0, 0], 4).is_err(), "a run in two pieces");
    // A missing column fails before memory is allocated.
    assert!(decode_column(&[], usize::MAX).is_err());
}
