//! Forks while other threads are in the cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::*;

/// Children that are forked one after another.
const CHILDREN: usize = 200;
/// Seconds after which a blocked child is killed.
const CHILD_SECONDS: u32 = 30;

/// A lock that serializes the tests of the process's cache. No child takes it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the process's cache in a child: it begins empty, works, and has the parent's budget.
fn use_in_child(inherited: &Member, budget: u64) -> bool {
    let was_empty = !inherited.get(1);
    inherited.put(1);
    let own = Member::new_in_process(1 << 20);
    own.put(2);
    let works = inherited.get(1) && own.get(2);
    let statistics = cache_statistics();
    was_empty && works && statistics.budget == budget && statistics.bytes <= budget
}

/// Forks, and returns the status of the child: 0 if `child` returned true.
#[allow(unsafe_code)]
fn in_child(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child uses the allocator, which the C library makes safe to use after a fork, and
    // the cache. It ends without the exit handlers of the test harness.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork failed"),
            0 => {
                libc::alarm(CHILD_SECONDS);
                libc::_exit(i32::from(!child()));
            }
            process => {
                let mut status = 0;
                assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
                status
            }
        }
    }
}

impl Member {
    fn new_in_process(cap: u64) -> Self {
        let handle = CacheHandle::new(cap, None);
        let scope = handle.scope("array", 7);
        Self { handle, scope }
    }
}

#[test]
fn a_child_makes_a_cache_of_its_own_and_waits_for_no_lock() {
    let _alone = alone();
    let member = Member::new_in_process(1 << 20);
    member.put(1);
    let is_done = AtomicBool::new(false);
    let outcomes: Vec<_> = thread::scope(|scope| {
        for thread in 0..4 {
            let (member, is_done) = (&member, &is_done);
            scope.spawn(move || {
                let mut number = thread;
                while !is_done.load(Ordering::Relaxed) {
                    number += 4;
                    member.read(2 + number % 5000);
                }
            });
        }
        let outcomes = (0..CHILDREN).map(|_| {
            // No other test makes a handle with a larger cap of the process's own cache meanwhile:
            // the budget is read in the child as well.
            let parent = of_process();
            in_child(|| use_in_child(&member, parent.budget.bytes()))
        });
        let outcomes = outcomes.collect();
        is_done.store(true, Ordering::Relaxed);
        outcomes
    });
    assert_eq!(outcomes, vec![0; CHILDREN]);
    assert!(cache_statistics().bytes > 0, "the parent's cache goes on");
}

#[test]
fn a_childs_child_makes_one_as_well() {
    let _alone = alone();
    let member = Member::new_in_process(1 << 20);
    member.put(1);
    let outcome = in_child(|| {
        let is_new = !member.get(1);
        member.put(1);
        is_new && member.get(1) && in_child(|| !member.get(1)) == 0
    });
    assert_eq!(outcome, 0);
    assert!(member.get(1));
}

#[test]
fn a_handle_that_is_dropped_in_a_child_stays_with_its_parent() {
    let _alone = alone();
    let member = Member::new_in_process(1 << 20);
    member.put(1);
    let mut taken = Some(member);
    let outcome = in_child(|| {
        drop(taken.take());
        true
    });
    assert_eq!(outcome, 0);
    assert!(taken.is_some_and(|member| member.get(1)));
}
