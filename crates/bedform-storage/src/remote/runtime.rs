//! The asynchronous runtime that requests run on: one for each process.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};

use super::Result;
use crate::StorageError;

/// The runtime, and the process that has its threads: a child that was forked has only a copy.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Waits for `future` on this thread.
///
/// # Errors
/// If the system has no threads left.
pub(crate) fn wait<F: Future>(future: F) -> Result<F::Output> {
    Ok(runtime()?.block_on(future))
}

fn runtime() -> Result<Arc<Runtime>> {
    let process = std::process::id();
    let mut known = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, runtime)) = &*known
        && *of == process
    {
        return Ok(runtime.clone());
    }
    let new = start().map_err(|error| StorageError::from_io("start", "requests", error))?;
    if let Some(parents) = known.replace((process, new.clone())) {
        // Its threads are not here: who waited for them would wait for ever.
        std::mem::forget(parents);
    }
    Ok(new)
}

fn start() -> io::Result<Arc<Runtime>> {
    // Two threads drive the sockets; who waits for an answer copies it by itself.
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().thread_name("bedform-requests");
    Ok(Arc::new(builder.build()?))
}
