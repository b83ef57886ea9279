//! Selections.

use proptest::prelude::*;

use super::super::*;
use super::{assert_exact, boxes_in, limits, pairs, shapes};

proptest! {
    /// Tests the module's proof: position and distance restore every box, in shapes with and
    /// without 64-bit element counts.
    #[test]
    fn boxes_come_back_from_their_flattened_form(shape in shapes(), numbers in pairs()) {
        let boxes = boxes_in(&shape, &numbers, 30);
        let bytes = boxes.encode(&shape).unwrap();
        prop_assert_eq!(Boxes::decode(&bytes, &shape, &limits()), Ok(boxes));
        assert_exact(&bytes, |bytes| Boxes::decode(bytes, &shape, &limits()));
    }

    #[test]
    fn what_is_accepted_has_one_form_and_lies_inside(
        bytes in prop::collection::vec(prop_oneof![0_u8..8, any::<u8>()], 0..40),
        shape in prop::collection::vec(1_u64..6, 0..4),
    ) {
        if let Ok(boxes) = Boxes::decode(&bytes, &shape, &limits()) {
            prop_assert!(boxes.validate(&shape).is_ok());
            prop_assert_eq!(boxes.encode(&shape), Ok(bytes));
        }
    }

    #[test]
    fn elements_and_bounds_are_those_of_the_single_boxes(
        shape in prop::collection::vec(1_u64..9, 0..4), numbers in pairs(),
    ) {
        let boxes = boxes_in(&shape, &numbers, 30);
        let (low, high) = boxes.bounds().unwrap();
        let elements: u64 = boxes.iter().map(|(_, shape)| shape.iter().product::<u64>()).sum();
        prop_assert_eq!(boxes.elements(), Ok(elements));
        prop_assert_eq!(boxes.iter().count(), boxes.count());
        for axis in 0..shape.len() {
            let starts = boxes.iter().map(|(start, _)| start[axis]);
            let ends = boxes.iter().map(|(start, shape)| start[axis] + shape[axis]);
            prop_assert_eq!((starts.min(), ends.max()), (Some(low[axis]), Some(high[axis])));
        }
    }
}

#[test]
fn boxes_that_are_empty_or_leave_their_shape_are_refused() {
    let one = |start, length| Boxes::new(1, vec![start], vec![length]).unwrap();
    assert!(one(3, 4).validate(&[7]).is_ok());
    for (start, length) in [(3, 0), (3, 5), (7, 1), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(one(start, length).validate(&[7]).is_err(), "{start} + {length}");
        assert!(one(start, length).encode(&[7]).is_err());
    }
    assert!(one(0, 1).validate(&[7, 7]).is_err(), "another rank");
    assert!(Boxes::new(2, vec![], vec![]).unwrap().validate(&[7, 7]).is_err(), "no boxes");
    assert!(Boxes::new(2, vec![0; 3], vec![1; 3]).is_err(), "half a box");
    assert!(Boxes::new(2, vec![0; 2], vec![1; 4]).is_err(), "starts without shapes");
    assert!(Boxes::new(0, vec![], vec![]).is_err(), "a count that nothing tells");
    // A box of two elements at (1, 2): flattened, the second is (2, 0), outside the shape (2, 3).
    let places = [varint::encode_column(&[5, 0]), varint::encode_column(&[1, 0])];
    let [starts, distances] = places.map(|column| [vec![2], column].concat());
    let crossing = [vec![2, 1], starts, distances].concat();
    assert!(Boxes::decode(&crossing, &[2, 3], &limits()).is_err());
}

#[test]
fn the_elements_of_boxes_are_counted_or_it_is_said_that_they_cannot_be() {
    let huge = vec![1 << 33, 1 << 33];
    assert!(Boxes::new(2, vec![0; 2], huge).unwrap().elements().is_err());
    assert!(Boxes::new(1, vec![0; 2], vec![u64::MAX; 2]).unwrap().elements().is_err());
    assert_eq!(Boxes::without_axes(3).elements(), Ok(3));
}

#[test]
fn claims_of_very_many_boxes_are_refused() {
    for count in [u64::MAX, 1 << 40, limits().section_boxes_max + 1, 10_000_000] {
        for form in 0..3 {
            let mut bytes = Vec::new();
            varint::write_varint(count, &mut bytes);
            // Two columns with a run of that length.
            let mut column = vec![0, 0];
            varint::write_varint(count - 2, &mut column);
            bytes.push(form);
            for _ in 0..2 {
                varint::write_varint(column.len() as u64, &mut bytes);
                bytes.extend_from_slice(&column);
            }
            assert!(Boxes::decode(&bytes, &[4, 4, 4], &limits()).is_err(), "{count}");
        }
    }
}
