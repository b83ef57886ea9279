//! Panics as errors: a bug in the engine must not end the program that calls it.
//!
//! Each door (Python, C) calls the engine through [`caught`]. A panic hook records the location of
//! each panic, because the payload that [`std::panic::catch_unwind`] returns has only the message.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// The most panics that the hook keeps until a door reports them.
const RECORDS_MAX: usize = 16;
/// The prefix of the names of the engine's threads.
const THREAD_NAMES: &str = "bedform-";
/// With this variable set, panics are also printed as the standard library prints them.
const BACKTRACE_VARIABLE: &str = "RUST_BACKTRACE";

/// A panic as the hook saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PanicRecord {
    message: String,
    /// `file:line` in the sources.
    location: String,
}

static RECORDS: Mutex<VecDeque<PanicRecord>> = Mutex::new(VecDeque::new());

thread_local! {
    static IS_IN_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Calls `act`; turns a panic in it, or in a thread that it joins, into an error. A mutex that
/// `act` holds is then poisoned: put state that a panic may leave half-changed behind a mutex, and
/// check it for poison.
///
/// # Errors
/// `Internal` after a panic.
///
/// # Examples
///
/// ```
/// use bedform::{ErrorKind, panics::caught};
///
/// let outcome = caught(|| -> u64 { panic!("index out of bounds") });
/// assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Internal);
/// ```
pub fn caught<T>(act: impl FnOnce() -> T) -> Result<T> {
    record_panics();
    let was_in_call = IS_IN_CALL.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(act));
    IS_IN_CALL.set(was_in_call);
    outcome.map_err(|payload| error_of(&*payload))
}

/// Makes the error of a session whose earlier call panicked.
pub fn session_panicked() -> Error {
    Error::new(
        ErrorKind::Poisoned,
        "an earlier call of this session met a bug of Bedform; what was committed before stands: start a new \
         session",
    )
}

/// Installs the hook, once per process. Panics of threads outside the engine go to the previous
/// hook.
fn record_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            let is_worker = thread.name().is_some_and(|name| name.starts_with(THREAD_NAMES));
            let is_own = is_worker || IS_IN_CALL.try_with(Cell::get).unwrap_or(false);
            if is_own {
                record(info);
            }
            if !is_own || std::env::var_os(BACKTRACE_VARIABLE).is_some() {
                before(info);
            }
        }));
    });
}

fn record(info: &PanicHookInfo<'_>) {
    let message = message_of(info.payload());
    let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
    let mut records = records();
    records.truncate(RECORDS_MAX - 1);
    records.push_front(PanicRecord { message, location: location.unwrap_or_default() });
}

fn records() -> MutexGuard<'static, VecDeque<PanicRecord>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic; empty for a payload that is no text.
fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

/// Makes the error of a panic with this payload. A scope of threads panics with its own message
/// after one of its threads has: then the thread's record, which precedes it, is reported.
fn error_of(payload: &(dyn Any + Send)) -> Error {
    let message = message_of(payload);
    let mut records = records();
    let same = records.iter().position(|record| record.message == message);
    let is_of_scope = message == "a scoped thread panicked";
    let number = if is_of_scope { same.map_or(0, |at| at + 1) } else { same.unwrap_or(0) };
    let found = records.remove(number);
    let PanicRecord { message, location } =
        found.unwrap_or(PanicRecord { message, location: String::new() });
    let at = if location.is_empty() { String::new() } else { format!(" at {location}") };
    let version = env!("CARGO_PKG_VERSION");
    Error::new(
        ErrorKind::Internal,
        format!(
            "a bug of Bedform {version}: {message}{at}; nothing that was committed is lost; please report this \
             line with the call that led to it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::workers::with_workers;

    fn error_after(act: impl FnOnce()) -> Error {
        caught(act).unwrap_err()
    }

    #[test]
    fn a_panic_is_an_error_of_one_line_that_names_the_line_of_code() {
        let error = error_after(|| panic!("no {} here\nat all", 7));
        assert_eq!(error.kind(), ErrorKind::Internal);
        let text = error.to_string();
        assert!(text.contains("no 7 here") && !text.contains('\n'), "{text}");
        assert!(text.contains("panics.rs:"), "{text}");
        assert_eq!(caught(|| 7).unwrap(), 7);
    }

    #[test]
    fn a_panic_in_a_worker_is_an_error_that_names_its_line_of_code() {
        let broken = || panic!("a worker that fails");
        let error = error_after(|| with_workers("bedform-test", 1, broken, || ()));
        assert!(error.to_string().contains("a worker that fails at "), "{error}");
    }

    #[test]
    fn a_panic_outside_of_calls_is_left_to_the_program() {
        caught(|| ()).unwrap();
        let outcome = std::thread::spawn(|| panic!("the program's own")).join();
        assert!(outcome.is_err());
        assert!(records().iter().all(|record| record.message != "the program's own"));
    }
}
