//! The asynchronous runtime that requests run on: one for each process.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::object_store::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

use super::Result;
use super::error::{may_be_cut, to_error};
use super::per_process::PerProcess;
use crate::{Answer, Bell, StorageError};

/// Answers in a row that may be cut off.
const CUT_MAX: usize = 3;
/// The time within which an answer is cut off that was asked for once.
const CUT_SOON: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Requests of a process at most that are asked for ahead: many reads at once share them.
const AT_ONCE_MAX: usize = 256;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();
static AT_ONCE: PerProcess<Arc<Semaphore>> = PerProcess::new();

/// Waits for `future` on this thread.
///
/// # Errors
/// If the system has no threads left.
pub(crate) fn wait<F: Future>(future: F) -> Result<F::Output> {
    Ok(runtime()?.block_on(future))
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
    wait(spawn(future)?)?.map_err(|error| to_error(operation, path, ended(error)))?
}

/// The error of a request whose task has ended without an answer.
pub(super) fn ended(error: JoinError) -> Error {
    Error::Generic { store: "requests", source: Box::new(error) }
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
