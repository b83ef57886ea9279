//! Many encoders, one sequence: work on items in parallel, take the results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::Result;
use crate::threads::workers::with_workers;

struct Progress<T> {
    next_item: usize,
    next_result: usize,
    ready: BTreeMap<usize, T>,
    /// A thread is taking results.
    taking: bool,
    error: Option<crate::error::Error>,
}

/// Calls `make` for the items `0..count` on up to `threads` threads (the caller's is one of them),
/// each with a state of its own from `start`, and `take` with the results in order, one at a time. No
/// more than `window` results exist at any time.
///
/// # Errors
/// The first error of either function; the rest is not begun.
pub(crate) fn in_order<S, T: Send>(
    count: usize,
    threads: usize,
    window: usize,
    start: impl Fn() -> S + Sync,
    make: impl Fn(usize, &mut S) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let progress = Mutex::new(Progress {
        next_item: 0,
        next_result: 0,
        ready: BTreeMap::new(),
        taking: false,
        error: None,
    });
    let changed = Condvar::new();
    let take = Mutex::new(take);
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut state = start();
        loop {
            let item = {
                let mut progress = lock();
                loop {
                    if progress.error.is_some() || progress.next_item >= count {
                        return;
                    }
                    if progress.next_item < progress.next_result + window.max(1) {
                        break;
                    }
                    progress = changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
                }
                progress.next_item += 1;
                progress.next_item - 1
            };
            let made = make(item, &mut state);
            let mut progress = lock();
            match made {
                Ok(result) => {
                    progress.ready.insert(item, result);
                }
                Err(error) => {
                    progress.error.get_or_insert(error);
                }
            }
            if progress.taking {
                continue;
            }
            progress.taking = true;
            loop {
                let next = progress.next_result;
                let Some(result) = progress.ready.remove(&next) else { break };
                if progress.error.is_some() {
                    break;
                }
                drop(progress);
                let taken = take.lock().unwrap_or_else(PoisonError::into_inner)(result);
                progress = lock();
                progress.next_result += 1;
                if let Err(error) = taken {
                    progress.error.get_or_insert(error);
                }
                changed.notify_all();
            }
            progress.taking = false;
            changed.notify_all();
        }
    };
    with_workers("bedform-write", threads.min(count).saturating_sub(1), work, work);
    match progress.into_inner().unwrap_or_else(PoisonError::into_inner).error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// What `make` makes of each of `items`, in their order, by so many threads.
///
/// # Errors
/// The first error; the rest is not begun.
pub(crate) fn map_in_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    make: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    if threads == 1 {
        return items.iter().map(make).collect();
    }
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Ok(Vec::with_capacity(items.len())));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return };
            let outcome = make(item);
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *made, outcome) {
                (Ok(all), Ok(one)) => all.push((number, one)),
                (Ok(_), Err(error)) => *made = Err(error),
                (Err(_), _) => return,
            }
        }
    };
    with_workers("bedform-write", threads.min(items.len()).saturating_sub(1), work, work);
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    made.sort_unstable_by_key(|(number, _)| *number);
    Ok(made.into_iter().map(|(_, one)| one).collect())
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::threads::ordered::*;

    #[test]
    fn results_come_in_order_whatever_the_number_of_threads() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let make = |item: usize, _: &mut ()| {
                if item.is_multiple_of(3) {
                    std::thread::yield_now();
                }
                Ok(item)
            };
            in_order(
                500,
                threads,
                4,
                || (),
                make,
                |item| {
                    taken.push(item);
                    Ok(())
                },
            )
            .unwrap();
            assert!(taken.iter().copied().eq(0..500));
        }
    }

    #[test]
    fn an_error_of_either_side_ends_the_work() {
        let fail = |item: usize| if item == 5 { Err(Error::invalid("five")) } else { Ok(item) };
        let outcome = in_order(100, 3, 4, || (), |item, _: &mut ()| fail(item), |_| Ok(()));
        assert_eq!(outcome.unwrap_err().to_string(), "five");
        let mut taken = 0;
        let outcome = in_order(
            100,
            3,
            4,
            || (),
            |item, _: &mut ()| Ok(item),
            |item| {
                taken += 1;
                fail(item).map(drop)
            },
        );
        assert!(outcome.is_err());
        assert_eq!(taken, 6);
    }
}
