//! Measurement of copies, gathers, and reads from the page cache.

#![allow(clippy::disallowed_methods, reason = "it reads a file of its own")]

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use bedform_storage::Processor;
use rustix::fs::{MemfdFlags, memfd_create};

use super::stopwatch::Stopwatch;
use crate::plan::copy::{Strided, copy_box};

const CHUNK: usize = 256 << 10;
const RESULT: usize = 16 << 20;
const FRESH: usize = 48 << 20;
const REQUEST: usize = 1 << 20;
/// Requests to a file.
const REQUESTS: u64 = 40;
/// Runs of one element in one gather.
const RUNS: usize = 16 << 10;
/// Planes, rows, and runs per row, of a box of 4 MB.
const BOX: [usize; 3] = [64, 72, 14];

pub(super) fn measure(machine: &mut Processor, watch: &mut Stopwatch) {
    let chunk = vec![1_u8; CHUNK];
    let fill = |result: &mut [u8]| {
        result.chunks_exact_mut(CHUNK).for_each(|part| part.copy_from_slice(&chunk));
    };
    let mut result = vec![1_u8; RESULT];
    machine.copy_bytes_per_second = RESULT as f64 / watch.seconds(|| fill(&mut result));
    let fresh = watch.seconds(|| {
        let mut result = vec![0_u8; FRESH];
        fill(&mut result);
        black_box(&result);
    });
    machine.fresh_bytes_per_second = FRESH as f64 / fresh;

    // A gather, as a read of a series from chunks, and a scatter, as a read of a plane into rows.
    let shape = [RUNS as u64];
    let gather = watch.seconds(|| {
        let source = Strided { bytes: chunk.as_slice(), strides: &[16] };
        let target = Strided { bytes: &mut result[..RUNS * 4], strides: &[4] };
        let done = copy_box(&shape, source, target, 4, 1);
        let _ = black_box(done);
    });
    let scatter = watch.seconds(|| {
        let source = Strided { bytes: chunk.as_slice(), strides: &[4] };
        let target = Strided { bytes: result.as_mut_slice(), strides: &[64] };
        let done = copy_box(&shape, source, target, 4, 1);
        let _ = black_box(done);
    });
    machine.run_seconds = (gather + scatter) / 2.0 / RUNS as f64;
    machine.far_run_seconds = far_run_seconds(&chunk, &mut result, watch);
    let _ = measure_requests(machine, watch);
}

/// Seconds of a run in a box that is assembled out of chunks that are short along its rows: each
/// chunk writes short runs all over the result.
fn far_run_seconds(chunk: &[u8], result: &mut [u8], watch: &mut Stopwatch) -> f64 {
    let [planes, rows, across] = BOX;
    let [chunk_rows, run] = [8, 64];
    let row = across * run;
    let source = [(chunk_rows * run) as i64, run as i64, 1];
    let target = [(rows * row) as i64, row as i64, 1];
    let shape = [planes as u64, chunk_rows as u64, run as u64];
    let seconds = watch.seconds(|| {
        for first in (0..rows).step_by(chunk_rows) {
            for at in 0..across {
                let place = result.get_mut(first * row + at * run..).unwrap_or_default();
                let source = Strided { bytes: chunk, strides: &source };
                let target = Strided { bytes: place, strides: &target };
                let done = copy_box(&shape, source, target, 1, 1);
                let _ = black_box(done);
            }
        }
    });
    seconds / (planes * rows * across) as f64
}

/// Measures requests to a file in memory that is larger than the processor's caches.
fn measure_requests(machine: &mut Processor, watch: &mut Stopwatch) -> std::io::Result<()> {
    let made = memfd_create("bedform-processor", MemfdFlags::CLOEXEC)?;
    let file = File::from(made);
    let mut buffer = vec![1_u8; REQUEST];
    for at in 0..REQUESTS {
        file.write_all_at(&buffer, at * REQUEST as u64)?;
    }
    let small = watch.seconds(|| {
        let _ = black_box(file.read_exact_at(&mut buffer[..64], 0));
    });
    let large = watch.seconds(|| {
        for at in 0..REQUESTS {
            let _ = black_box(file.read_exact_at(&mut buffer, at * REQUEST as u64));
        }
    });
    let all = REQUESTS as f64;
    machine.request_seconds = small;
    machine.cached_bytes_per_second = all * REQUEST as f64 / (large - all * small).max(1e-9);
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    machine.object_seconds = watch.seconds(|| {
        let _ = black_box(File::open(&again).and_then(|file| file.metadata()));
    });
    Ok(())
}
