//! The asynchronous runtime of requests: one for each process.

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
use bedform_storage::cancellation::{self, ASK_EVERY, GracePeriod, interrupted};
use bedform_storage::{Answer, Bell, StorageError};

/// The most repetitions after answers that were cut off.
const CUT_MAX: usize = 3;
/// The longest duration of a cut-off request that is repeated.
const CUT_SOON: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// The grace period for releasing a lock after a cancellation, and the longest wait without one. An
/// unreleased lock expires.
const GRACE_TO_GIVE_BACK: Duration = Duration::from_millis(500);
const GIVE_BACK: Duration = Duration::from_secs(3);

/// The most pending requests of a process: concurrent reads share them.
const AT_ONCE_MAX: usize = 256;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();
static AT_ONCE: PerProcess<Arc<Semaphore>> = PerProcess::new();

/// Waits on this thread for `future`, the `operation` on `path`. Dropping it must have no lasting
/// effect. The wait polls for cancellation.
///
/// # Errors
/// `Interrupted` if the call was cancelled; if the system has no threads left.
pub(crate) fn wait<F: Future>(
    operation: &'static str,
    path: impl Display,
    future: F,
) -> Result<F::Output> {
    let stopped = || interrupted(operation, &path);
    if !cancellation::may_begin() {
        return Err(stopped());
    }
    listen(GracePeriod::of(Duration::ZERO), future)?.ok_or_else(stopped)
}

/// As [`wait`], for a write, whose outcome is unknown if it is dropped. After a cancellation it has
/// a grace period; `None` if that was too short.
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
    listen(GracePeriod::default(), future)
}

/// As [`write`], for releasing a lock or deleting objects. Starts even after a cancellation, and
/// waits a few seconds at most.
///
/// # Errors
/// If the system has no threads left.
pub(super) fn give_back<F: Future>(future: F) -> Result<Option<F::Output>> {
    cancellation::within(GIVE_BACK, || listen(GracePeriod::of(GRACE_TO_GIVE_BACK), future))
}

/// Waits for `future`; after a cancellation for `grace` at most.
fn listen<F: Future>(mut grace: GracePeriod, future: F) -> Result<Option<F::Output>> {
    let runtime = runtime()?;
    let mut future = pin!(future);
    loop {
        // The question may run any code of the caller, so it is asked outside the runtime.
        let slice = async { tokio::time::timeout(ASK_EVERY, &mut future).await };
        if let Ok(outcome) = runtime.block_on(slice) {
            return Ok(Some(outcome));
        }
        if grace.is_over() {
            return Ok(None);
        }
    }
}

/// Starts `future` in the background.
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

/// Starts `future`, whose outcome is the answer; dropping the answer cancels it. `None` without a
/// runtime.
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

/// Waits for `future`, the `operation` on `path`, as a separate task. A body arrives in many
/// pieces, each of which would otherwise wake the calling thread.
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

/// Aborts a task on drop; a finished task is unaffected.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the error of a request whose task ended without an answer.
pub(super) fn ended(error: JoinError) -> Error {
    Error::Generic { store: "requests", source: Box::new(error) }
}

/// As [`again`], as one call with one deadline for all its requests.
///
/// # Errors
/// Those of `ask`.
pub(super) async fn request<T, F>(ask: impl Fn() -> F) -> std::result::Result<T, Error>
where
    F: Future<Output = std::result::Result<T, Error>>,
{
    call(again(ask)).await
}

/// Returns the outcome of `ask`, repeating it if its answer was cut off.
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
            // A slow request was repeated by the client already.
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
    // Two threads drive the sockets; a thread that reads an open object copies the bytes itself.
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().thread_name("bedform-requests");
    builder.build()
}
