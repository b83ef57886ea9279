//! Many threads and many handles on one cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const THREADS: u64 = 8;
const HANDLES: u64 = 100;
const STEPS: u64 = 20_000;

/// A pseudorandom generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn read_something(member: &Member, random: &mut Random) {
    let kind = EntryKind::ALL[usize::try_from(random.below(6)).unwrap()];
    let number = random.below(400);
    let key = member.key(kind, number);
    match member.handle.get::<Arc<u64>>(&key) {
        Some(found) => assert_eq!(*found, number),
        None => member.handle.put(key, random.below(5000), || Arc::new(number)),
    }
}

#[test]
fn eight_threads_with_a_hundred_handles_never_exceed_the_budget_nor_a_cap() {
    let budget = 200 * ENTRY;
    let cache = cache_of(0);
    cache.set_budget(budget);
    let cap = |number: u64| (number % 5) * 20 * ENTRY;
    let place = |number: u64| ["a", "b", "c"].get(usize::try_from(number % 4).unwrap()).copied();
    let members: Vec<_> =
        (0..HANDLES).map(|number| Member::new(&cache, cap(number), place(number))).collect();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (cache, members) = (&cache, &members);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for step in 0..STEPS {
                        let at = random.below(HANDLES);
                        read_something(&members[usize::try_from(at).unwrap()], &mut random);
                        if step % 100 == 0 {
                            // A handle that is dropped soon.
                            let passing = Member::new(cache, cap(at), place(at));
                            (0..5).for_each(|_| read_something(&passing, &mut random));
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                cache.policy().check(80 * ENTRY);
                assert!(cache.statistics().bytes <= budget);
                thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let statistics = cache.statistics();
    assert!(statistics.bytes_peak <= budget, "{statistics:?}");
    // There were hits of each kind; the entries left at the end depend on the threads' timing.
    assert!(statistics.kinds.iter().all(|kind| kind.hits > 0), "{statistics:?}");
    assert!(statistics.kinds.iter().any(|kind| kind.entries > 0), "{statistics:?}");
    drop(members);
    cache.policy().check(80 * ENTRY);
    cache.set_budget(0);
    assert_eq!(cache.policy().open_accounts(), 0, "what is gone leaves nothing behind");
}

#[test]
fn a_smaller_budget_holds_at_once_for_all_threads() {
    let cache = cache_of(100);
    let member = Member::new(&cache, u64::MAX, Some("disk"));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let member = &member;
            scope.spawn(move || {
                let mut random = Random(thread);
                (0..STEPS).for_each(|_| read_something(member, &mut random));
            });
        }
        for step in 0..2000 {
            let entries = 10 + step * 37 % 90;
            cache.set_budget(entries * ENTRY);
            // Values in preparation have reserved room, and kept bytes are within the new budget.
            assert!(cache.policy().kept() <= entries * ENTRY);
        }
    });
    assert!(cache.statistics().bytes <= cache.statistics().budget);
}
