//! The asynchronous runtime that requests run on: one for each process.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::object_store::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use super::Result;
use super::error::{may_be_cut, to_error};
use super::per_process::PerProcess;
use super::transport::call;
use bedform_storage::cancellation::{self, ASK_EVERY, Grace, interrupted};
use bedform_storage::{Answer, Bell, StorageError};

/// Answers in a row that may be cut off.
const CUT_MAX: usize = 3;
/// The time within which an answer is cut off that was asked for once.
const CUT_SOON: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// How long what gives back a lock, which ends by itself, is waited for when the program wants to stop; and
/// how long at most.
const GRACE_TO_GIVE_BACK: Duration = Duration::from_millis(500);
const GIVE_BACK: Duration = Duration::from_secs(3);

/// Requests of a process at most that are asked for ahead: many reads at once share them.
const AT_ONCE_MAX: usize = 256;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();
static AT_ONCE: PerProcess<Arc<Semaphore>> = PerProcess::new();

/// Waits on this thread for `future`, which does `operation` to `path` and changes nothing that matters if
/// it is dropped. The program is asked meanwhile whether that is to go on.
///
/// # Errors
/// `Interrupted` if it is not; if the system has no threads left.
pub(crate) fn wait<F: Future>(
    operation: &'static str,
    path: impl Display,
    future: F,
) -> Result<F::Output> {
    let stopped = || interrupted(operation, &path);
    if !cancellation::may_begin() {
        return Err(stopped());
    }
    listen(Grace::of(Duration::ZERO), future)?.ok_or_else(stopped)
}

/// As [`wait`], for a write, whose outcome nobody knows if it is dropped. Where the program wants that to
/// end it has a while for it; nothing if that was not enough.
///
/// # Errors
/// `Interrupted` if it was not begun; if the system has no threads left.
pub(super) fn write<F: Future>(
    operation: &'static str,
    path: impl Display,
    future: F,
) -> Result<Option<F::Output>> {
    if !cancellation::may_begin() {
        return Err(interrupted(operation, path));
    }
    listen(Grace::default(), future)
}

/// As [`write`], for what gives back what others wait for, or makes room: it is begun also where the program
/// has ended the wait before, and waited for some seconds at most.
///
/// # Errors
/// If the system has no threads left.
pub(super) fn give_back<F: Future>(future: F) -> Result<Option<F::Output>> {
    cancellation::within(GIVE_BACK, || listen(Grace::of(GRACE_TO_GIVE_BACK), future))
}

/// Waits for `future`, for `grace` at most once the program wants to wait no longer.
fn listen<F: Future>(mut grace: Grace, future: F) -> Result<Option<F::Output>> {
    let runtime = runtime()?;
    let mut future = pin!(future);
    loop {
        // Who is asked may run anything, and so is asked outside.
        let slice = async { tokio::time::timeout(ASK_EVERY, &mut future).await };
        if let Ok(outcome) = runtime.block_on(slice) {
            return Ok(Some(outcome));
        }
        if grace.is_over() {
            return Ok(None);
        }
    }
}

/// Begins `future`, which goes on by itself.
///
/// # Errors
/// As [`wait`].
pub(super) fn spawn<F>(future: F) -> Result<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Ok(runtime()?.spawn(future))
}

/// Begins `future`, whose outcome is the answer; dropping that ends it. Nothing without a runtime.
pub(super) fn answer<T: Send + 'static>(
    bell: &Arc<Bell>,
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Option<Answer<T>> {
    let (answer, promise) = Answer::new(bell.clone());
    let Ok(at_once) =
        AT_ONCE.get(|| Ok::<_, Infallible>(Arc::new(Semaphore::new(AT_ONCE_MAX))), drop);
    let running = runtime().ok()?.spawn(async move {
        let _leave = at_once.acquire().await;
        promise.keep(future.await);
    });
    let running = running.abort_handle();
    Some(answer.given_up_by(move || running.abort()))
}

/// Waits for what `future` does to `path`, as a task of its own: what comes in many pieces would wake who
/// waits with each of them.
///
/// # Errors
/// As [`wait`]; those of `future`.
pub(super) fn run<T: Send + 'static>(
    operation: &'static str,
    path: &str,
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let task = spawn(future)?;
    let _given_up = AbortOnDrop(task.abort_handle());
    wait(operation, path, task)?.map_err(|error| to_error(operation, path, ended(error)))?
}

/// Ends a task that nobody waits for any more; one that has ended stays as it is.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The error of a request whose task has ended without an answer.
pub(super) fn ended(error: JoinError) -> Error {
    Error::Generic { store: "requests", source: Box::new(error) }
}

/// As [`again`], as one call: with one deadline for all that is requested.
///
/// # Errors
/// Those of `ask`.
pub(super) async fn request<T, F>(ask: impl Fn() -> F) -> std::result::Result<T, Error>
where
    F: Future<Output = std::result::Result<T, Error>>,
{
    call(again(ask)).await
}

/// What `ask` gives; asked again if its answer was cut off.
///
/// # Errors
/// Those of `ask`.
pub(super) async fn again<T, F>(ask: impl Fn() -> F) -> std::result::Result<T, Error>
where
    F: Future<Output = std::result::Result<T, Error>>,
{
    for _ in 0..CUT_MAX {
        let begun = Instant::now();
        match ask().await {
            // One that took long was asked again already.
            Err(error) if may_be_cut(&error) && begun.elapsed() < CUT_SOON => {
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
    ask().await
}

fn runtime() -> Result<&'static Runtime> {
    let found = RUNTIME.get(start, Runtime::shutdown_background);
    found.map_err(|error| StorageError::from_io("start", "requests", error))
}

fn start() -> io::Result<Runtime> {
    // Two threads drive the sockets. Who waits for bytes of an object that is open copies them by itself.
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().thread_name("bedform-requests");
    builder.build()
}
