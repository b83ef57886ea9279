//! Work on items in parallel, with the results in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::threads::workers::with_workers;

/// The shared state of [`in_order`]: items handed out, results ready, the first error.
struct OrderedProgress<T> {
    next_item: usize,
    next_result: usize,
    ready: BTreeMap<usize, T>,
    /// True while a thread takes results.
    taking: bool,
    error: Option<Error>,
}

/// Calls `make` for the items `0..count` on up to `threads` threads, including the caller's, each
/// with its own state from `start`. Calls `take` with the results in order, one at a time. At most
/// `window` results exist at any time.
///
/// # Errors
/// The first error of either function; the remaining items are not begun.
pub(crate) fn in_order<S, T: Send>(
    count: usize,
    threads: usize,
    window: usize,
    start: impl Fn() -> S + Sync,
    make: impl Fn(usize, &mut S) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let progress = Mutex::new(OrderedProgress {
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

/// Returns the result of `make` for each of `items`, in their order, computed by `threads` threads.
///
/// # Errors
/// That of the first item that fails; the remaining items are not begun.
pub(crate) fn map_in_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    make: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    map_numbers(threads, items.len(), |_| Ok(()), |number| make(&items[number]))
}

/// Returns the result of `make` for each number below `count`, in their order, computed by
/// `threads` threads. The calling thread calls `before` ahead of each number of its own, with the
/// count of finished numbers.
///
/// # Errors
/// That of `before`, else that of the lowest number; the remaining numbers are not begun.
pub(crate) fn map_numbers<R: Send>(
    threads: usize,
    count: usize,
    before: impl Fn(usize) -> Result<()>,
    make: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    // Numbers are taken in order, so all below a failed one were begun.
    let end = || next.fetch_max(count, Ordering::Relaxed);
    let made = Mutex::new((Vec::with_capacity(count), None::<(usize, Error)>));
    let lock = || made.lock().unwrap_or_else(PoisonError::into_inner);
    let one = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return false;
        }
        let outcome = make(number);
        let (made, failed) = &mut *lock();
        match outcome {
            Ok(one) => made.push((number, one)),
            Err(error) => {
                end();
                if failed.as_ref().is_none_or(|(other, _)| number < *other) {
                    *failed = Some((number, error));
                }
            }
        }
        true
    };
    let own = || loop {
        let done = lock().0.len();
        if let Err(error) = before(done) {
            end();
            return Err(error);
        }
        if !one() {
            return Ok(());
        }
    };
    with_workers("bedform-items", threads.min(count).saturating_sub(1), || while one() {}, own)?;
    let (mut made, failed) = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, error)) = failed {
        return Err(error);
    }
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
    fn of_items_that_fail_the_first_is_named_and_one_that_is_asked_before_each_ends_all() {
        for threads in [1, 2, 7] {
            let items: Vec<usize> = (0..200).collect();
            let twice = |item: &usize| Ok(2 * item);
            let made = map_in_threads(threads, &items, twice).unwrap();
            assert!(made.into_iter().eq((0..400).step_by(2)));
            let fail = |item: usize| match item {
                50.. => Err(Error::invalid(item.to_string())),
                _ => Ok(item),
            };
            let error = map_numbers(threads, 200, |_| Ok(()), fail).unwrap_err();
            assert_eq!(error.to_string(), "50");
            let before = |_| Err(Error::invalid("before"));
            let error = map_numbers(threads, 200, before, fail).unwrap_err();
            assert_eq!(error.to_string(), "before");
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
