//! The asynchronous runtime that requests run on: one for each process.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use ::object_store::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinHandle};

use super::Result;
use super::error::may_be_cut;
use super::per_process::PerProcess;
use crate::StorageError;

/// Answers in a row that may be cut off.
const CUT_MAX: usize = 3;
/// The time within which an answer is cut off that was asked for once.
const CUT_SOON: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

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
