//! An array read by a callback equals a list of its elements, at the cost that `explain` predicts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bedform::foreign::{Callback, CallbackArray};
use bedform::{Array, Error, ErrorKind, OpenOptions};
use bedform_format::DataType;
use bedform_geometry::{Region, Selection};
use proptest::prelude::*;

use super::arrays::read;
use super::cases;
use super::model::{Model, Numbers};
use super::strategies::{TYPES, selection, shape};

/// The regions of the callback's calls.
type Calls = Arc<Mutex<Vec<Region>>>;

/// Makes an array whose elements a callback takes from `model`, and a list of the calls.
fn called(
    model: &Model,
    data_type: DataType,
    chunk_shape: Option<&[u64]>,
    (is_serial, cache_bytes): (bool, u64),
) -> (Array, Calls) {
    let mut described =
        CallbackArray::new("numbers", &model.shape, data_type).with_fill(&model.fill);
    if let Some(chunk_shape) = chunk_shape {
        described = described.with_chunks(chunk_shape);
    }
    let (calls, elements) = (Calls::default(), model.clone());
    let seen = calls.clone();
    let callback = Callback::new(Arc::new(move |region: &Region, buffer: &mut [u8]| {
        seen.lock().unwrap().push(region.clone());
        buffer.copy_from_slice(&elements.read(&Selection::from(region.clone())).concat());
        Ok(())
    }));
    let callback = if is_serial { callback.one_at_a_time() } else { callback };
    let mut options = OpenOptions::default();
    options.cache_bytes = cache_bytes;
    (Array::of_callback(described, callback, &options).unwrap(), calls)
}

/// Takes the calls since the last time: start and shape of each region.
fn taken(calls: &Calls) -> Vec<(Vec<u64>, Vec<u64>)> {
    let calls = std::mem::take(&mut *calls.lock().unwrap());
    calls.iter().map(|region| (region.start().to_vec(), region.shape().to_vec())).collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn any_read_through_a_callback_is_what_a_list_holds_and_calls_once_for_each_chunk(
        shape in shape(),
        data_type in proptest::sample::select(&TYPES[..14]),
        given in proptest::option::of(proptest::collection::vec(1..=4_u64, 4)),
        is_serial in any::<bool>(),
        is_kept in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let numbers = &mut Numbers(seed);
        let mut model = Model::new(&shape, &numbers.element(data_type));
        let all = Selection::all(&shape);
        let elements = numbers.elements(data_type, all.len().unwrap());
        model.write(&all, &elements);
        let given = given.map(|given| given[..shape.len()].to_vec());
        // Larger than all cached data of this process, so nothing is evicted.
        let cache_bytes = if is_kept { 256 << 20 } else { 0 };
        let (array, calls) = called(&model, data_type, given.as_deref(), (is_serial, cache_bytes));
        prop_assert_eq!(array.shape().unwrap(), shape.clone());
        for _ in 0..4 {
            let selection = selection(&shape, numbers);
            let facts = array.explain(&selection).unwrap();
            prop_assert!(facts.read_by_callback);
            prop_assert_eq!(taken(&calls), []);
            prop_assert_eq!(&read(&array, data_type, &selection), &model.read(&selection));
            let made = taken(&calls);
            let different: BTreeSet<_> = made.iter().collect();
            prop_assert_eq!(different.len(), made.len());
            prop_assert!(made.len() as u64 <= facts.requests);
            prop_assert!(is_kept || made.len() as u64 == facts.requests);
            if is_kept {
                prop_assert_eq!(&read(&array, data_type, &selection), &model.read(&selection));
                prop_assert_eq!(taken(&calls), []);
            }
        }
    }
}

#[test]
fn what_a_callback_fails_with_is_the_error_of_the_read() {
    for is_serial in [false, true] {
        let fail = |region: &Region, _: &mut [u8]| match region.start() {
            [8, ..] => Err(Error::new(ErrorKind::NotFound, "the library has lost it")),
            _ => Ok(()),
        };
        let callback = Callback::new(Arc::new(fail));
        let callback = if is_serial { callback.one_at_a_time() } else { callback };
        let described =
            CallbackArray::new("a", &[12, 1 << 20], DataType::UInt8).with_chunks(&[1, 1 << 20]);
        let array = Array::of_callback(described, callback, &OpenOptions::default()).unwrap();
        let read = |first| {
            let region = Region::new(vec![first, 0], vec![4, 1 << 20]).unwrap();
            array.read(&Selection::from(region), &mut vec![0; 4 << 20])
        };
        assert_eq!(read(0).unwrap().chunks, 4);
        let error = read(7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), "the library has lost it");
    }
}

#[test]
fn variables_without_chunks_are_called_for_in_rows_and_small_chunks_together() {
    let zeros = |_: &Region, _: &mut [u8]| Ok(());
    let requests = |chunk_shape: Option<&[u64]>| {
        let described = CallbackArray::new("a", &[1024, 1024], DataType::Float64);
        let described = match chunk_shape {
            Some(chunk_shape) => described.with_chunks(chunk_shape),
            None => described,
        };
        let callback = Callback::new(Arc::new(zeros));
        let array = Array::of_callback(described, callback, &OpenOptions::default()).unwrap();
        array.explain(&Selection::all(&[1024, 1024])).unwrap().requests
    };
    // 8 MiB: two calls for rows, eight for 16 rows of small chunks each, one per large chunk.
    assert_eq!(requests(None), 2);
    assert_eq!(requests(Some(&[8, 8])), 8);
    assert_eq!(requests(Some(&[512, 512])), 4);
}

#[test]
fn what_no_array_can_be_is_refused() {
    let refused = |described: CallbackArray| {
        let callback = Callback::new(Arc::new(|_: &Region, _: &mut [u8]| Ok(())));
        Array::of_callback(described, callback, &OpenOptions::default()).unwrap_err()
    };
    let described = |shape: &[u64]| CallbackArray::new("a", shape, DataType::Float64);
    let text = CallbackArray::new("a", &[3], DataType::String);
    assert_eq!(refused(text).kind(), ErrorKind::Unsupported);
    let error = refused(described(&[3]).with_fill(&[0; 4]));
    assert_eq!(error.to_string(), "a: a fill value of 4 bytes, expected 8");
    let error = refused(described(&[3]).with_chunks(&[1, 1]));
    assert_eq!(error.to_string(), "a: chunks of rank 2 in an array of rank 1");
    let error = refused(described(&[1 << 40]).with_chunks(&[1 << 40]));
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    let (array, _) = called(&Model::new(&[4], &vec![0; 8]), DataType::Float64, None, (true, 0));
    assert_eq!(
        array.workload(&Selection::all(&[4]), 1).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let error = array.write(&Selection::all(&[4]), bedform::Elements::Bytes(&[0; 32]));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ReadOnly);
}
