//! Readahead for a round: threads read windows of the log while one thread lays them.
//!
//! One thread plans the windows, in order. Several threads each take the next window that none has
//! begun, read it and check it. The windows are laid in order. The number of windows in flight
//! depends on the storage: [`AHEAD`], or [`AHEAD_OF_SERVER`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bedform_storage::{ReadBlock, stopped_by};

use super::lay::RoundBounds;
use super::read::{Window, WindowPlan, index, plan_windows};
use crate::error::{Error, ErrorKind, Result};
use crate::log::view::RootView;
use crate::threads::workers;

/// Windows that are read ahead of the laid one, and threads that read them: the requests in flight.
const AHEAD: usize = 4;
/// The same on a server, where each answer is waited for: these windows are a quarter of the
/// memory.
const AHEAD_OF_SERVER: usize = 16;

/// A window to read, and the channel for the result.
type WindowRequest = (WindowPlan, SyncSender<Result<Window>>);

/// Memory of windows, reused while a store is settled: freed memory is not always free for others.
#[derive(Debug, Default)]
pub(super) struct WindowPool(Mutex<Vec<Vec<u8>>>);

impl WindowPool {
    /// Returns the memory of a window, new if there is none to reuse.
    fn take(&self, window_bytes: u64) -> Vec<u8> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // Pages that are never filled take no memory.
        free.unwrap_or_else(|| Vec::with_capacity(index(window_bytes)))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }
}

/// Reads the data that `round` needs, in windows of `window_bytes` bytes, and calls `lay` with
/// each, in order. Takes their memory from `spare`.
///
/// # Errors
/// `Corrupt` for damaged records; those of storage and of `lay`; `Io` if no thread can be started.
pub(super) fn read_ahead(
    view: &RootView,
    round: &[RoundBounds],
    window_bytes: u64,
    spare: &WindowPool,
    lay: &mut dyn FnMut(&Window) -> Result<()>,
) -> Result<()> {
    let ahead = if view.place.storage.is_remote() { AHEAD_OF_SERVER } else { AHEAD };
    let (send_task, tasks) = channel::<WindowRequest>();
    let (send_window, windows) = sync_channel(ahead);
    let tasks = Mutex::new(tasks);
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let stop = &stop;
        let start = || std::thread::Builder::new().name("bedform-settle".to_owned());
        let plan = move || {
            let mut send = |window| {
                let gone = |_| Error::new(ErrorKind::Interrupted, "nobody takes what is read");
                let (done, wait) = sync_channel(1);
                send_window.send(wait).map_err(gone)?;
                // The receiver of tasks lives as long as this function.
                let _ = send_task.send((window, done));
                Ok(())
            };
            stopped_by(stop, || plan_windows(view, round, window_bytes, &mut send))
        };
        let planner =
            start().spawn_scoped(scope, plan).map_err(|error| Error::no_thread(&error))?;
        for number in 0..ahead {
            let reader = start().spawn_scoped(scope, || {
                stopped_by(stop, || read_tasks(&tasks, window_bytes, spare));
            });
            if let (0, Err(error)) = (number, reader) {
                return Err(Error::no_thread(&error));
            }
        }
        let laid = lay_all(&windows, spare, lay);
        if laid.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        drop(windows);
        let planned = planner.join().unwrap_or_else(|_| Err(ended()));
        laid.and(planned)
    })
}

fn lay_all(
    windows: &Receiver<Receiver<Result<Window>>>,
    spare: &WindowPool,
    lay: &mut dyn FnMut(&Window) -> Result<()>,
) -> Result<()> {
    while let Some(window) = workers::answer(windows)? {
        let window = workers::answer(&window)?.unwrap_or_else(|| Err(ended()))?;
        lay(&window)?;
        spare.give_back(window.bytes);
    }
    Ok(())
}

/// Reads windows until no more are planned.
fn read_tasks(tasks: &Mutex<Receiver<WindowRequest>>, window_bytes: u64, spare: &WindowPool) {
    let mut block = ReadBlock::default();
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok((window, done)) = next() {
        // The receiver is gone if laying has failed.
        let _ = done.send(window.read(spare.take(window_bytes), &mut block));
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Io, "internal error: a thread that reads has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_windows_goes_round() {
        let spare = WindowPool::default();
        let mut window = spare.take(100);
        assert!(window.is_empty() && window.capacity() >= 100);
        window.resize(100, 1);
        let memory = window.as_ptr();
        spare.give_back(window);
        let again = spare.take(100);
        assert_eq!(again.as_ptr(), memory);
        assert!(spare.take(100).is_empty(), "there was no other");
    }
}
