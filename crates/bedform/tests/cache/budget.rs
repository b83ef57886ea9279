//! One cache budget for all stores of a process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use bedform::{Array, Freshness, cache_statistics};

use super::support::*;

const STORES: usize = 100;
const THREADS: usize = 8;
const READS: usize = 400;
const CHILDREN: usize = 20;
/// The cap of each handle: a quarter of the bytes of all stores.
const CAP: u64 = 6 << 20;
/// Seconds after which a child that waits for a lock is killed.
const CHILD_SECONDS: u32 = 60;

/// Forks; the child ends with 0 if `child` does not panic.
#[allow(unsafe_code)]
fn in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: the child uses the allocator, which the C library makes safe to use after a fork,
    // files, and handles that it opens itself. It ends without running the test harness's exit
    // handlers.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork failed"),
            0 => {
                libc::alarm(CHILD_SECONDS);
                libc::_exit(i32::from(catch_unwind(AssertUnwindSafe(child)).is_err()));
            }
            process => {
                let mut status = 0;
                assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
                status
            }
        }
    }
}

#[test]
fn a_hundred_stores_and_their_logs_stay_under_one_budget_while_the_process_forks() {
    let _alone = alone();
    let directory = Directory::new();
    let stores: Vec<(PathBuf, Vec<u8>)> = (0..STORES)
        .map(|number| {
            let at = directory.join(&format!("{number}.zarr"));
            let mut expected = create(&at, 16, number as u64);
            if number % 3 == 0 {
                let newer = content(CHUNK * 5, 77);
                commit(&at, 1000, &newer);
                expected[1000..1000 + newer.len()].copy_from_slice(&newer);
            }
            (at, expected)
        })
        .collect();
    bedform::set_cache_budget(CAP);
    let cap = |number: usize| if number % 10 == 9 { 0 } else { CAP };
    let handles: Vec<Array> = (0..STORES)
        .map(|number| open(&stores[number].0, options(cap(number), Freshness::Read)))
        .collect();
    let (is_done, hits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read_one = |thread: usize, round: usize| {
        // Most reads are of a few stores.
        let number = match round % 4 {
            0 => (round * 31 + thread * 7) % STORES,
            _ => (round + thread) % 10,
        };
        let (at, expected) = &stores[number];
        let count = match round % 7 {
            0 => decoded(&open(at, options(cap(number), Freshness::Open)), expected),
            _ => decoded(&handles[number], expected),
        };
        if count == 0 {
            hits.fetch_add(1, Ordering::Relaxed);
        }
    };
    let children: Vec<i32> = thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let read_one = &read_one;
                scope.spawn(move || (0..READS).for_each(|round| read_one(thread, round)))
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let statistics = cache_statistics();
                assert!(statistics.bytes <= CAP, "{statistics:?}");
                thread::yield_now();
            }
        });
        let children = (0..CHILDREN).map(|child| {
            let number = child * 3 % STORES;
            let (at, expected) = &stores[number];
            in_child(|| {
                assert_eq!(cache_statistics().bytes, 0, "a child begins with an empty cache");
                let opened = || open(at, options(CAP, Freshness::Read));
                assert!(decoded(&opened(), expected) > 0);
                assert_eq!(decoded(&opened(), expected), 0);
                assert!(cache_statistics().bytes <= CAP);
            })
        });
        let children = children.collect();
        for reader in readers {
            reader.join().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        children
    });
    assert_eq!(children, vec![0; CHILDREN]);
    let statistics = cache_statistics();
    assert!(statistics.bytes_peak <= CAP, "{statistics:?}");
    assert!(statistics.bytes > CAP / 2, "{statistics:?}");
    assert!(hits.into_inner() > THREADS * READS / 10);
}

#[test]
fn prefetching_keeps_no_more_than_the_cap_and_says_what_it_left_out() {
    let _alone = alone();
    let directory = Directory::new();
    let elements = create(&directory.join("a.zarr"), 4, 1);
    let_grow_old();
    let chunks = 4 * CHUNKS;
    // Room for six chunks and the indexes; each entry takes some bytes besides its value.
    let cap = 6 * (CHUNK + 1024);
    let array = open(&directory.join("a.zarr"), options(cap, Freshness::Read));
    let before = cache_statistics().bytes;
    let all = part(0, elements.len() as u64);
    let done = array.prefetch(&all).unwrap();
    assert_eq!((done.read.chunks, done.present, done.left_out), (6, 0, chunks - 6));
    assert!(cache_statistics().bytes.saturating_sub(before) <= cap);
    let bypass = open(&directory.join("a.zarr"), options(0, Freshness::Read));
    let done = bypass.prefetch(&all).unwrap();
    assert_eq!((done.read.chunks, done.present, done.left_out), (0, 0, chunks));
    // If the cache has room for all chunks, a read decodes none.
    let array = open(&directory.join("a.zarr"), options(1 << 20, Freshness::Read));
    let done = array.prefetch(&all).unwrap();
    assert_eq!((done.read.chunks + done.present, done.left_out), (chunks, 0));
    assert_eq!(decoded(&array, &elements), 0);
    assert_eq!(array.prefetch(&all).unwrap().present, chunks);
}
