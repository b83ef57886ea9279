//! Lists of settled shards.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::{assert_exact, limits};

type Model = BTreeMap<([u8; 16], [u64; 2]), u64>;

fn list(model: &Model, grid: [u64; 2]) -> SettledShards {
    let mut arrays = BTreeMap::new();
    for ((key, at), commit) in model {
        let array = arrays.entry(*key).or_insert_with(|| SettledArray::new(*key, grid.to_vec()));
        array.add(at, *commit);
    }
    SettledShards { arrays: arrays.into_values().collect() }
}

fn models() -> impl Strategy<Value = Model> {
    let key = (0_u8..3).prop_map(|key| [key; 16]);
    prop::collection::btree_map((key, prop::array::uniform2(0_u64..4)), 0_u64..100, 0..20)
}

proptest! {
    #[test]
    fn a_list_comes_back_and_lists_add_up(one in models(), other in models()) {
        // The array grows between the two lists.
        let (first, second) = (list(&one, [4, 4]), list(&other, [5, 7]));
        let bytes = first.encode(&limits()).unwrap();
        let found = SettledShards::decode(&bytes, &limits());
        prop_assert_eq!(found.as_ref(), Ok(&first));
        let both = first.with(second);
        both.encode(&limits()).unwrap();
        let mut model = one;
        for (key, commit) in other {
            let known = model.entry(key).or_default();
            *known = commit.max(*known);
        }
        for key in 0_u8..3 {
            for at in [[0, 0], [1, 3], [3, 1], [3, 3], [2, 2], [9, 9]] {
                let expected = model.get(&([key; 16], at)).copied();
                prop_assert_eq!(both.commit_of(&[key; 16], &at), expected);
            }
        }
        let count: usize = both.arrays.iter().map(SettledArray::count).sum();
        prop_assert_eq!(count, model.len());
    }

    #[test]
    fn no_bytes_are_too_much_for_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        let _ = SettledShards::decode(&bytes, &limits());
    }
}

#[test]
fn parts_of_a_list_are_not_taken_for_it() {
    let model = BTreeMap::from([(([1; 16], [0, 3]), 7), (([2; 16], [3, 3]), 9)]);
    let bytes = list(&model, [4, 4]).encode(&limits()).unwrap();
    assert_exact(&bytes, |bytes| SettledShards::decode(bytes, &limits()));
}

#[test]
fn of_too_many_shards_the_oldest_are_left_out() {
    let side = 1 << 11;
    let mut old = SettledArray::new([1; 16], vec![side, side]);
    // In ascending order, so that each insertion is at the end.
    for number in 0..side * side / 2 {
        old.add(&[number / side, number % side], 5);
    }
    let mut new = SettledArray::new([1; 16], vec![side, side]);
    new.add(&[side - 1, side - 1], 6);
    assert_eq!(old.count(), SettledShards::COUNT_MAX);
    let all = SettledShards { arrays: vec![old] }.with(SettledShards { arrays: vec![new] });
    assert_eq!(all.commit_of(&[1; 16], &[side - 1, side - 1]), Some(6));
    assert_eq!(all.commit_of(&[1; 16], &[0, 0]), None);
}
