//! The asynchronous runtime that requests run on: one for each process.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::Result;
use super::per_process::PerProcess;
use crate::StorageError;

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

fn runtime() -> Result<&'static Runtime> {
    let found = RUNTIME.get(start, Runtime::shutdown_background);
    found.map_err(|error| StorageError::from_io("start", "requests", error))
}

fn start() -> io::Result<Runtime> {
    // Two threads drive the sockets; who waits for an answer copies it by itself.
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().thread_name("bedform-requests");
    builder.build()
}
